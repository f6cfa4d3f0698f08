//! Commands about the server as a whole: TIME, INFO, SHUTDOWN, LOLWUT.

use isotherm_commands::Outcome;
use isotherm_commands::spec::*;
use isotherm_keyspace::Waiter;
use isotherm_resp::{Reply, errors};
use isotherm_stdx::parse_i64;
use std::sync::Arc;

use super::{AdminCall, AdminHandler, errand};
use crate::admin;
use crate::observe::info;
use crate::process::leaving::{self, Answer};
use crate::process::logo;
use isotherm_engine::request::blocking;
use isotherm_engine::request::blocking::NO_END;
use isotherm_engine::scripting::run::ScriptTime;
use isotherm_node::Node;
use isotherm_node::mail::message::{ControlMessage, Without};
use isotherm_node::process::asked_end::Options;
use isotherm_node::session::errand::Answerer;
use isotherm_node::session::line;
use isotherm_runtime::time::unix_now_us;

pub const COMMANDS: &[Command<AdminHandler>] = &[
    Command::new(TIME, time),
    // The keyspace section counts keys.
    Command::new(INFO, info),
    Command::new(SHUTDOWN, shutdown),
    Command::new(LOLWUT, lolwut),
];

const LOLWUT: Spec = Spec {
    name: "lolwut",
    summary: "Draws a picture in characters, followed by the version.",
    since: "5.0.0",
    group: Group::Server,
    complexity: "",
    arity: -1,
    flags: Flags::READONLY.or(Flags::FAST),
    arguments: &[Argument::integer("version").token("VERSION").optional()],
    ..Spec::BASE
};

/// A picture. `VERSION n` would choose one of several.
fn lolwut(call: &mut AdminCall<'_>) -> Outcome {
    let asks_version = call.args.len() >= 3 && call.args.get(1).eq_ignore_ascii_case(b"version");
    if asks_version && parse_i64(call.args.get(2)).is_none() {
        call.reply.error(errors::NOT_AN_INTEGER);
        return Outcome::Done;
    }
    call.reply.verbatim("txt", logo::lolwut(&call.node.config).as_bytes());
    Outcome::Done
}

const TIME: Spec = Spec {
    name: "time",
    summary: "Returns the clock of the server: Unix seconds, and microseconds of the second.",
    since: "2.6.0",
    group: Group::Server,
    complexity: "O(1)",
    flags: Flags::LOADING.or(Flags::STALE).or(Flags::FAST),
    tips: &["nondeterministic_output"],
    ..Spec::BASE
};

fn time(call: &mut AdminCall<'_>) -> Outcome {
    let us = match call.exec.script_time {
        ScriptTime::At(us) => us,
        ScriptTime::None | ScriptTime::Unread => unix_now_us(),
    };
    if call.exec.script_time == ScriptTime::Unread {
        call.exec.script_time = ScriptTime::At(us);
    }
    call.reply.array(2);
    call.reply.bulk_i64(us.div_euclid(1_000_000));
    call.reply.bulk_i64(us.rem_euclid(1_000_000));
    Outcome::Done
}

const INFO: Spec = Spec {
    name: "info",
    summary: "Returns facts and counters of the server by section.",
    group: Group::Server,
    complexity: "O(1)",
    arity: -1,
    flags: Flags::LOADING.or(Flags::STALE).or(Flags::ASKS_SYSTEM),
    acl: AclCategories::DANGEROUS,
    tips: &["nondeterministic_output", "request_policy:all_shards", "response_policy:special"],
    history: &[("7.0.0", "Several sections in one call.")],
    arguments: &[Argument::string("section").optional().multiple()],
    reach: Reach::Each,
    ..Spec::BASE
};

fn info(call: &mut AdminCall<'_>) -> Outcome {
    let asked: Vec<&[u8]> = call.args.from(1).iter().collect();
    let mut snapshot = admin::snapshot(call);
    info::look_up(&mut snapshot, &asked, || call.survey());
    call.reply.verbatim("txt", info::text(&snapshot, &asked).as_bytes());
    Outcome::Done
}

const SHUTDOWN: Spec = Spec {
    name: "shutdown",
    summary: "Saves the data as configured and ends the server.",
    group: Group::Server,
    complexity: "O(N) with a save, N the keys of all databases; O(1) without",
    arity: -1,
    flags: Flags::ADMIN
        .or(Flags::STOPS_ALL)
        .or(Flags::NOSCRIPT)
        .or(Flags::LOADING)
        .or(Flags::STALE)
        .or(Flags::NO_MULTI)
        .or(Flags::ALLOW_BUSY),
    history: &[
        ("7.0.0", "New options `NOW`, `FORCE` and `ABORT`."),
        ("9.0.0", "New options `SAFE` and `FAILOVER`."),
    ],
    arguments: &[Argument::one_of(
        "abort-selector",
        &[
            Argument::block(
                "save-selector-block",
                &[
                    Argument::one_of(
                        "save-selector",
                        &[Argument::pure_token("nosave", "NOSAVE"), Argument::pure_token("save", "SAVE")],
                    )
                    .optional(),
                    Argument::pure_token("now", "NOW").since("7.0.0").optional(),
                    Argument::pure_token("force", "FORCE").since("7.0.0").optional(),
                    Argument::pure_token("safe", "SAFE").since("9.0.0").optional(),
                    Argument::pure_token("failover", "FAILOVER").since("9.0.0").optional(),
                ],
            ),
            Argument::pure_token("abort", "ABORT").since("7.0.0"),
        ],
    )
    .optional()],
    ..Spec::BASE
};

fn shutdown(call: &mut AdminCall<'_>) -> Outcome {
    let (mut options, mut abort) = (Options::default(), false);
    for word in call.args.from(1).iter() {
        options = options.or(match word.to_ascii_lowercase().as_slice() {
            b"save" => Options::SAVE,
            b"nosave" => Options::NOSAVE,
            b"now" => Options::NOW,
            b"force" => Options::FORCE,
            b"safe" => Options::SAFE,
            b"failover" => Options::FAILOVER,
            b"abort" => {
                abort = true;
                continue;
            }
            _ => {
                call.reply.error(errors::SYNTAX);
                return Outcome::Done;
            }
        });
    }
    match () {
        _ if abort && options != Options::default() => call.reply.error(errors::SYNTAX),
        _ if options.has(Options::SAVE) && options.has(Options::NOSAVE) => call.reply.error(errors::SYNTAX),
        _ if options.has(Options::FAILOVER) => {
            call.reply.error("ERR SHUTDOWN FAILOVER is only supported in cluster mode.");
        }
        _ if abort && leaving::abort(call.node) => call.reply.ok(),
        _ if abort && leaving::abort_pending(call.node) => call.reply.ok(),
        _ if abort => call.reply.error("ERR No shutdown in progress."),
        _ => return leave(call, options, |_| ()),
    }
    Outcome::Done
}

/// Asks the process to end; the client waits until it has. The end may wait for a disk, however many commands
/// wait for one already. `refused` runs if the process stays.
pub fn leave(call: &mut AdminCall<'_>, options: Options, refused: fn(&Node)) -> Outcome {
    let (node, client) = (call.node, line::short(call.node, &call.session.shared));
    let work = move |waiter: &Arc<Waiter>, reply: &mut Reply| {
        match leaving::ask(node, options, Some(&format!(" (user request from '{client}')"))) {
            Answer::Ends => {
                // Success has no reply: the connection ends with the process.
                node.process.ending.decide();
                node.mail.post_control(ControlMessage::ShutDown);
            }
            Answer::Waits => {}
            Answer::Refused => {
                refused(node);
                reply.error(NO_END);
                return Answerer::Errand;
            }
        }
        if !node.process.ending.add(waiter) {
            blocking::answer_without_end(waiter, Without::NoEnd);
        }
        Answerer::Other
    };
    errand::park(call, None, Box::new(work), false)
}
