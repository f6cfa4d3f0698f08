//! SAVE, BGSAVE, BGREWRITEAOF, LASTSAVE.

use isotherm_commands::Outcome;
use isotherm_commands::spec::*;
use isotherm_keyspace::Held;
use isotherm_resp::errors;

use super::{AdminCall, AdminHandler, errand};
use isotherm_durability::aof::rewrite;
use isotherm_durability::persistence::background;
use isotherm_durability::persistence::background::{Asked, Cancelled, Saved};
use isotherm_node::persistence::state::{END_MAX, Job};
use isotherm_runtime::log;

pub const COMMANDS: &[Command<AdminHandler>] = &[
    Command::new(SAVE, save),
    Command::new(BGSAVE, bgsave),
    Command::new(BGREWRITEAOF, bgrewriteaof),
    Command::new(LASTSAVE, lastsave),
];

const ANOTHER: &str = "ERR Another child process is active (AOF?): can't BGSAVE right now. Use BGSAVE SCHEDULE in order to schedule \
                       a BGSAVE whenever possible.";
pub const BUSY: &str = "ERR Background save already in progress";
/// Valkey's, where only the log knows more.
const FAILED: &str = "ERR";
const LATE: &str = "ERR The disk does not answer: the save is given up";
const BEHIND_SCRIPT: &str = "ERR A script is in its middle: there is no new file";

const SAVE: Spec = Spec {
    name: "save",
    summary: "Writes an RDB snapshot and answers when it is complete.",
    group: Group::Server,
    complexity: "O(N), N the keys of all databases",
    arity: 1,
    flags: Flags::NO_ASYNC_LOADING
        .or(Flags::STOPS_ALL)
        .or(Flags::ADMIN)
        .or(Flags::NOSCRIPT)
        .or(Flags::NO_MULTI),
    reach: Reach::Each,
    ..Spec::BASE
};

// COMPAT(persistence): While SAVE writes, other clients are served, and what they write after its begin is
// not in the file. Why: no client waits for another one's.
fn save(call: &mut AdminCall<'_>) -> Outcome {
    let node = call.node;
    errand::run_long(call, move |reply| {
        rewrite::postpone(node);
        let mut held = Held::new(&node.keyspace);
        if !held.gate_within(END_MAX) {
            return reply.error(BEHIND_SCRIPT);
        }
        match background::save_watched(node.store(), &mut held, node.used_memory_bytes()) {
            Saved::Done => reply.ok(),
            Saved::Busy => reply.error(BUSY),
            Saved::Failed => reply.error(FAILED),
            Saved::Late => reply.error(LATE),
        }
    })
}

const BGSAVE: Spec = Spec {
    name: "bgsave",
    summary: "Starts to write an RDB snapshot in the background.",
    group: Group::Server,
    complexity: "O(1)",
    arity: -1,
    flags: Flags::NO_ASYNC_LOADING.or(Flags::STOPS_ALL).or(Flags::ADMIN).or(Flags::NOSCRIPT),
    history: &[("3.2.2", "New option `SCHEDULE`."), ("8.1.0", "New option `CANCEL`.")],
    arguments: &[Argument::one_of(
        "operation",
        &[
            Argument::pure_token("schedule", "SCHEDULE").since("3.2.2"),
            Argument::pure_token("cancel", "CANCEL").since("8.1.0"),
        ],
    )
    .optional()],
    reach: Reach::Each,
    ..Spec::BASE
};

fn bgsave(call: &mut AdminCall<'_>) -> Outcome {
    let store = call.node.store();
    let word = (call.args.len() > 1).then(|| call.args.get(1).to_ascii_lowercase());
    match (word.as_deref(), call.args.len()) {
        (None, _) | (Some(b"schedule"), 2) => {}
        (Some(b"cancel"), 2) => {
            match background::cancel(store) {
                Cancelled::Running => call.reply.simple("Background saving cancelled"),
                Cancelled::Scheduled => call.reply.simple("Scheduled background saving cancelled"),
                Cancelled::Nothing => {
                    call.reply.error("ERR Background saving is currently not in progress or scheduled");
                }
            }
            return Outcome::Done;
        }
        _ => {
            call.reply.error(errors::SYNTAX);
            return Outcome::Done;
        }
    }
    let is_rewriting = store.state.saving().running.is_some_and(|running| running.job == Job::Rewrite);
    // What else the queue changes is to be in the file.
    let waits_for_exec = call.session.in_exec && store.state.saving().running.is_none();
    if waits_for_exec || is_rewriting && word.is_some() {
        store.state.saving().is_scheduled = true;
        if waits_for_exec {
            log::notice("Background saving scheduled to run after transaction execution");
        }
        call.reply.simple("Background saving scheduled");
        return Outcome::Done;
    }
    if is_rewriting {
        call.reply.error(ANOTHER);
        return Outcome::Done;
    }
    let used_memory_bytes = call.node.used_memory_bytes();
    match background::save_in_background(store, &mut call.exec.held, used_memory_bytes) {
        Asked::Started => call.reply.simple("Background saving started"),
        Asked::Busy => call.reply.error(BUSY),
        Asked::Failed => call.reply.error(FAILED),
    }
    Outcome::Done
}

const BGREWRITEAOF: Spec = Spec {
    name: "bgrewriteaof",
    summary: "Starts to rewrite the append-only file in the background.",
    group: Group::Server,
    complexity: "O(1)",
    arity: 1,
    flags: Flags::NO_ASYNC_LOADING.or(Flags::STOPS_ALL).or(Flags::ADMIN).or(Flags::NOSCRIPT),
    reach: Reach::Each,
    ..Spec::BASE
};

fn bgrewriteaof(call: &mut AdminCall<'_>) -> Outcome {
    const SCHEDULED: &str = "Background append only file rewriting scheduled";
    let node = call.node;
    if rewrite::is_running(node) {
        call.reply.error("ERR Background append only file rewriting already in progress");
        return Outcome::Done;
    }
    let is_to_wait = node.persistence.saving().running.is_some() || call.session.in_exec;
    match if is_to_wait { Asked::Busy } else { rewrite::ask(node, &mut call.exec.held) } {
        Asked::Busy => {
            let mut rewrites = node.aof.rewrites();
            (rewrites.is_scheduled, rewrites.failures_in_row) = (true, 0);
            log::notice(format!("{SCHEDULED}."));
            call.reply.simple(SCHEDULED);
        }
        Asked::Started => call.reply.simple("Background append only file rewriting started"),
        Asked::Failed => call.reply.error(
            "ERR Can't execute an AOF background rewriting. Please check the server logs for more information.",
        ),
    }
    Outcome::Done
}

const LASTSAVE: Spec = Spec {
    name: "lastsave",
    summary: "Returns the Unix time in seconds of the latest successful snapshot.",
    group: Group::Server,
    complexity: "O(1)",
    arity: 1,
    flags: Flags::LOADING.or(Flags::STALE).or(Flags::FAST),
    acl: AclCategories::ADMIN.or(AclCategories::DANGEROUS),
    tips: &["nondeterministic_output"],
    ..Spec::BASE
};

fn lastsave(call: &mut AdminCall<'_>) -> Outcome {
    call.reply.integer(call.node.persistence.saving().last_save_seconds);
    Outcome::Done
}
