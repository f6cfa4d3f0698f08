//! EVAL, FCALL and their siblings, SCRIPT and FUNCTION.
//!
//! ```text
//!   EVAL text   --> cache --> script --> run: interpreter --> host: its commands, one by one, as those of EXEC
//!   EVALSHA sha --'                                    / '--- takes long ---> suspended
//!   FCALL name  --> library --> function --------------'
//! ```
//! A script holds the partitions of its keys while it is short, and has leases of its keys once it takes
//! long.

#[cfg(test)]
mod bound_tests;
mod fcall;
mod functions;
mod host;
mod keys;
mod run;
mod slots;
pub mod suspended;
pub mod within_exec;

use isotherm_commands::Outcome;
use isotherm_commands::help::write_help;
use isotherm_commands::spec::*;

use isotherm_resp::errors;

use super::{AdminCall, AdminHandler};
use isotherm_engine::request::gates::server_name;
use isotherm_node::mail::message::WorkerMessage;
use isotherm_node::scripting::cache::hash;
use isotherm_node::scripting::registry::Running;

pub const COMMANDS: &[Command<AdminHandler>] = &[
    Command::new(EVAL, run::eval),
    Command::new(EVALSHA, run::evalsha),
    Command::new(EVAL_RO, run::eval),
    Command::new(EVALSHA_RO, run::evalsha),
    Command::new(fcall::FCALL, fcall::fcall),
    Command::new(fcall::FCALL_RO, fcall::fcall),
    Command::container(functions::FUNCTION, functions::SUBCOMMANDS),
    Command::container(
        SCRIPT,
        &[
            Command::new(SCRIPT_DEBUG, debug),
            Command::new(SCRIPT_EXISTS, exists),
            Command::new(SCRIPT_FLUSH, flush),
            Command::new(SCRIPT_HELP, help),
            Command::new(SCRIPT_KILL, |call| kill(call, false)),
            Command::new(SCRIPT_LOAD, load),
            Command::new(SCRIPT_SHOW, show),
        ],
    ),
];

const NO_SCRIPT: &str = "NOSCRIPT No matching script.";
const SHOWN: Flags = Flags::NOSCRIPT.or(Flags::SKIP_MONITOR).or(Flags::NO_MANDATORY_KEYS).or(Flags::STALE);
const RW: KeyFlags = KeyFlags::RW.or(KeyFlags::ACCESS).or(KeyFlags::UPDATE);
const RO: KeyFlags = KeyFlags::RO.or(KeyFlags::ACCESS);

const fn keys(flags: KeyFlags) -> KeySpec {
    KeySpec { notes: "", flags, begin: Begin::Index(2), find: Find::KeyNum { at: 0, first: 1, step: 1 } }
}

const fn runs(name: &'static str, summary: &'static str, since: &'static str) -> Spec {
    Spec {
        name,
        summary,
        since,
        group: Group::Scripting,
        complexity: "That of the script",
        arity: -3,
        flags: SHOWN.or(Flags::MAY_REPLICATE),
        acl: AclCategories::SCRIPTING,
        reach: Reach::Script,
        ..Spec::BASE
    }
}

const ARGUMENTS: [Argument; 4] = [
    Argument::string("script"),
    Argument::integer("numkeys"),
    Argument::key("key", 0).optional().multiple(),
    Argument::string("arg").optional().multiple(),
];
const SHA_ARGUMENTS: [Argument; 4] = [Argument::string("sha1"), ARGUMENTS[1], ARGUMENTS[2], ARGUMENTS[3]];

const EVAL: Spec = Spec {
    key_specs: &[keys(RW).notes("The code may read and write any of its keys")],
    arguments: &ARGUMENTS,
    ..runs("eval", "Runs a Lua script with keys and arguments.", "2.6.0")
};
const EVALSHA: Spec = Spec {
    key_specs: &[keys(RW)],
    arguments: &SHA_ARGUMENTS,
    ..runs("evalsha", "Runs the cached Lua script with this SHA1. An error for an unknown one.", "2.6.0")
};
const EVAL_RO: Spec = Spec {
    flags: SHOWN.or(Flags::READONLY),
    key_specs: &[keys(RO).notes("The code may read any of its keys")],
    arguments: &ARGUMENTS,
    ..runs("eval_ro", "Runs a Lua script that may not write.", "7.0.0")
};
const EVALSHA_RO: Spec = Spec {
    flags: SHOWN.or(Flags::READONLY),
    key_specs: &[keys(RO)],
    arguments: &SHA_ARGUMENTS,
    ..runs(
        "evalsha_ro",
        "Runs the cached Lua script with this SHA1, which may not write. An error for an unknown one.",
        "7.0.0",
    )
};

const fn of_script(name: &'static str, summary: &'static str, since: &'static str, arity: i32) -> Spec {
    Spec {
        name,
        summary,
        since,
        group: Group::Scripting,
        complexity: "O(1)",
        arity,
        flags: Flags::NOSCRIPT.or(Flags::STALE),
        acl: AclCategories::SCRIPTING,
        ..Spec::BASE
    }
}

const SCRIPT: Spec = Spec {
    complexity: "That of the subcommand",
    flags: Flags(0),
    acl: AclCategories(0),
    ..of_script("script", "Manages the cached Lua scripts.", "2.6.0", -2)
};
const SCRIPT_DEBUG: Spec = Spec {
    flags: Flags::NOSCRIPT,
    arguments: &[
        Argument::one_of(
            "mode",
            &[
                Argument::pure_token("yes", "YES"),
                Argument::pure_token("sync", "SYNC"),
                Argument::pure_token("no", "NO"),
            ],
        ),
        Argument::string("engine").since("9.1.0").optional(),
    ],
    ..of_script("debug", "Turns the debugger for scripts of this connection on or off.", "3.2.0", -3)
};
const SCRIPT_EXISTS: Spec = Spec {
    complexity: "O(N), N the given digests",
    tips: &["request_policy:all_shards", "response_policy:agg_logical_and"],
    arguments: &[Argument::string("sha1").multiple()],
    ..of_script("exists", "Returns for each SHA1 whether a script with it is cached.", "2.6.0", -3)
};
const SCRIPT_FLUSH: Spec = Spec {
    complexity: "O(N), N the cached scripts",
    tips: &["request_policy:all_nodes", "response_policy:all_succeeded"],
    history: &[("6.2.0", "New options `ASYNC` and `SYNC`.")],
    arguments: &[Argument::one_of(
        "flush-type",
        &[Argument::pure_token("async", "ASYNC"), Argument::pure_token("sync", "SYNC")],
    )
    .since("6.2.0")
    .optional()],
    ..of_script("flush", "Empties the cache of scripts.", "2.6.0", -2)
};
const SCRIPT_HELP: Spec =
    Spec { since: "5.0.0", group: Group::Scripting, acl: AclCategories::SCRIPTING, ..Spec::HELP };
const SCRIPT_KILL: Spec = Spec {
    flags: Flags::NOSCRIPT.or(Flags::ALLOW_BUSY),
    tips: &["request_policy:all_shards", "response_policy:one_succeeded"],
    ..of_script("kill", "Stops the running script, unless it has written.", "2.6.0", 2)
};
const SCRIPT_LOAD: Spec = Spec {
    complexity: "O(N), N the bytes of the script",
    tips: &["request_policy:all_nodes", "response_policy:all_succeeded"],
    arguments: &[Argument::string("script")],
    ..of_script("load", "Caches a script without running it. Returns its SHA1.", "2.6.0", 3)
};
const SCRIPT_SHOW: Spec = Spec {
    complexity: "O(1).",
    arguments: &[Argument::string("sha1")],
    ..of_script("show", "Returns the source of the cached script with this SHA1.", "8.0.0", 3)
};

// COMPAT(scripts): SCRIPT DEBUG YES is refused, and names SYNC. Why: it debugs a copy of the server, and no
// process is forked here.
//
// COMPAT(scripts): While a script is debugged (SCRIPT DEBUG SYNC) others go on; who needs one of its keys
// waits, and gets -BUSY behind `busy-reply-threshold`. SCRIPT KILL ends such a script, also in code that its
// user evaluates, and CLIENT KILL the session. In Valkey the server stands still, and hears neither. SCRIPT
// DEBUG may stand in a pipeline; a script within MULTI is not debugged. Why: nothing has to stand still.
fn debug(call: &mut AdminCall<'_>) -> Outcome {
    let is = |word: &[u8]| call.args.get(2).eq_ignore_ascii_case(word);
    let engine = call.args.try_get(3).unwrap_or(b"lua");
    if call.args.len() > 4 {
        call.reply.error(errors::subcommand_syntax(call.args));
    } else if !engine.eq_ignore_ascii_case(b"lua") {
        let before = "ERR No scripting engine found with name '";
        call.reply.error(errors::with_bytes(before, engine, "' to enable debug"));
    } else if is(b"no") {
        call.session.debugs = false;
        call.reply.ok();
    } else if is(b"sync") {
        call.session.debugs = true;
        call.reply.ok();
    } else if is(b"yes") {
        call.reply.error("ERR Scripts can't be debugged in a forked session here, use SCRIPT DEBUG SYNC");
    } else {
        call.reply.error("ERR Use SCRIPT DEBUG YES/SYNC/NO");
    }
    Outcome::Done
}

fn exists(call: &mut AdminCall<'_>) -> Outcome {
    let shas = call.args.from(2);
    call.reply.array(shas.len());
    shas.iter().for_each(|sha| call.reply.integer(call.node.scripts.has(sha).into()));
    Outcome::Done
}

fn flush(call: &mut AdminCall<'_>) -> Outcome {
    let mode = call.args.try_get(2);
    let is_known =
        mode.is_none_or(|word| word.eq_ignore_ascii_case(b"sync") || word.eq_ignore_ascii_case(b"async"));
    if is_known && call.args.len() <= 3 {
        call.node.scripts.flush();
        call.exec.drop_old_engine();
        call.node.mail.post_all(None, || WorkerMessage::ScriptsFlushed);
        call.reply.ok();
    } else {
        call.reply.error("ERR SCRIPT FLUSH only support SYNC|ASYNC option");
    }
    Outcome::Done
}

fn help(call: &mut AdminCall<'_>) -> Outcome {
    write_help(
        call.reply,
        call.args,
        &[
            "DEBUG (YES|SYNC|NO) [<engine_name>]",
            "    Run this connection's next scripts in the debugger, on the data itself (SYNC), or no longer (NO).",
            "    YES is refused: it needs a copy of the data. The only engine is lua.",
            "EXISTS <sha1> [<sha1> ...]",
            "    Return 1 or 0 for each script: whether it is cached.",
            "FLUSH [ASYNC|SYNC]",
            "    Empty the cache of scripts. ASYNC and SYNC do the same.",
            "KILL",
            "    Stop the running script, unless it has written.",
            "LOAD <script>",
            "    Cache <script> and return its SHA1. It is not run.",
            "SHOW <sha1>",
            "    Return the source of a cached script.",
        ],
    )
}

/// `of_function`: FUNCTION KILL, which ends no script, as SCRIPT KILL ends no function.
fn kill(call: &mut AdminCall<'_>, of_function: bool) -> Outcome {
    match call.node.runs.kill(of_function) {
        Running::Clean => call.reply.error(busy_with_script(call, !of_function)),
        Running::Killed => {
            // One that is debugged may be waiting for its user.
            call.node.mail.post_all(None, || WorkerMessage::ScriptsChanged);
            call.reply.ok();
        }
        Running::Dirty => call.reply.error(
            "UNKILLABLE Sorry the script already executed write commands against the dataset. You can either wait the \
             script termination or kill the server in a hard way using the SHUTDOWN NOSAVE command.",
        ),
        _ => call.reply.error("NOTBUSY No scripts in execution right now."),
    }
    Outcome::Done
}

/// Returns the error for other commands while a script or a function runs.
fn busy_with_script(call: &AdminCall<'_>, is_function: bool) -> String {
    let name = server_name(call.node.config.extended_redis_compatibility());
    errors::busy_with_script(name, is_function)
}

fn load(call: &mut AdminCall<'_>) -> Outcome {
    let body = call.args.get(2);
    let sha = hash(body);
    if !call.node.scripts.keep(&sha)
        && let Err(text) = run::register(call, body, true)
    {
        call.reply.error(text);
        return Outcome::Done;
    }
    call.reply.bulk(&sha);
    Outcome::Done
}

fn show(call: &mut AdminCall<'_>) -> Outcome {
    match call.node.scripts.look_at(call.args.get(2)) {
        Some(script) => call.reply.bulk(&script.body),
        None => call.reply.error(NO_SCRIPT),
    }
    Outcome::Done
}
