//! FUNCTION: the libraries of functions.
//!
//! LOAD, DELETE, FLUSH and RESTORE hold the gate, and the log has their own text. What only reads takes the catalog as it is
//! at that moment, and holds nothing.

use isotherm_commands::Outcome;
use isotherm_commands::help::write_help;
use isotherm_commands::spec::*;
use isotherm_persist::rdb::functions;
use isotherm_resp::Reply;
use isotherm_stdx::glob_match;

use super::super::{AdminCall, AdminHandler};
use super::{busy_with_script, fcall, kill, of_script};
use crate::process::time::unix_now_us;
use crate::scripting::function_engine::LoadTime;
use crate::scripting::libraries::{Function, Library};
use crate::scripting::library_change::{self, Done};
use crate::scripting::shebang::ScriptFlags;

/// As Valkey names the one engine.
const ENGINE: &[u8] = b"LUA";

pub const SUBCOMMANDS: &[Command<AdminHandler>] = &[
    Command::new(FUNCTION_DELETE, change),
    Command::new(FUNCTION_DUMP, dump),
    Command::new(FUNCTION_FLUSH, change),
    Command::new(FUNCTION_HELP, help),
    Command::new(FUNCTION_KILL, |call| kill(call, true)),
    Command::new(FUNCTION_LIST, list),
    Command::new(FUNCTION_LOAD, change),
    Command::new(FUNCTION_RESTORE, change),
    Command::new(FUNCTION_STATS, stats),
];

const fn of_function(name: &'static str, summary: &'static str, arity: i32) -> Spec {
    Spec { flags: Flags::NOSCRIPT, ..of_script(name, summary, "7.0.0", arity) }
}

const fn changes(name: &'static str, summary: &'static str, arity: i32) -> Spec {
    Spec {
        flags: Flags::NOSCRIPT.or(Flags::WRITE),
        tips: &["request_policy:all_shards", "response_policy:all_succeeded"],
        reach: Reach::All,
        ..of_function(name, summary, arity)
    }
}

pub const FUNCTION: Spec = Spec {
    complexity: "Depends on subcommand.",
    flags: Flags(0),
    acl: AclCategories(0),
    ..of_function("function", "A container for function commands.", -2)
};
const FUNCTION_DELETE: Spec = Spec {
    arguments: &[Argument::string("library-name")],
    ..changes("delete", "Deletes a library and its functions.", 3)
};
const FUNCTION_DUMP: Spec = Spec {
    complexity: "O(N) where N is the number of functions",
    ..of_function("dump", "Dumps all libraries into a serialized binary payload.", 2)
};
const FUNCTION_FLUSH: Spec = Spec {
    complexity: "O(N) where N is the number of functions deleted",
    arguments: &[Argument::one_of(
        "flush-type",
        &[Argument::pure_token("async", "ASYNC"), Argument::pure_token("sync", "SYNC")],
    )
    .optional()],
    ..changes("flush", "Deletes all libraries and functions.", -2)
};
const FUNCTION_HELP: Spec = Spec {
    flags: Flags::LOADING.or(Flags::STALE),
    ..of_function("help", "Returns helpful text about the different subcommands.", 2)
};
const FUNCTION_KILL: Spec = Spec {
    flags: Flags::NOSCRIPT.or(Flags::ALLOW_BUSY),
    tips: &["request_policy:all_shards", "response_policy:one_succeeded"],
    ..of_function("kill", "Terminates a function during execution.", 2)
};
const FUNCTION_LIST: Spec = Spec {
    complexity: "O(N) where N is the number of functions",
    tips: &["nondeterministic_output_order"],
    arguments: &[
        Argument::string("library-name-pattern").token("LIBRARYNAME").optional(),
        Argument::pure_token("withcode", "WITHCODE").optional(),
    ],
    ..of_function("list", "Returns information about all libraries.", -2)
};
const FUNCTION_LOAD: Spec = Spec {
    complexity: "O(1) (considering compilation time is redundant)",
    flags: Flags::NOSCRIPT.or(Flags::WRITE).or(Flags::DENYOOM),
    arguments: &[Argument::pure_token("replace", "REPLACE").optional(), Argument::string("function-code")],
    ..changes("load", "Creates a library.", -3)
};
const FUNCTION_RESTORE: Spec = Spec {
    complexity: "O(N) where N is the number of functions on the payload",
    flags: Flags::NOSCRIPT.or(Flags::WRITE).or(Flags::DENYOOM),
    arguments: &[
        Argument::string("serialized-value"),
        Argument::one_of(
            "policy",
            &[
                Argument::pure_token("flush", "FLUSH"),
                Argument::pure_token("append", "APPEND"),
                Argument::pure_token("replace", "REPLACE"),
            ],
        )
        .optional(),
    ],
    ..changes("restore", "Restores all libraries from a payload.", -3)
};
const FUNCTION_STATS: Spec = Spec {
    flags: Flags::NOSCRIPT.or(Flags::ALLOW_BUSY),
    tips: &["nondeterministic_output", "request_policy:all_shards", "response_policy:special"],
    ..of_function("stats", "Returns information about a function during execution.", 2)
};

// ---- what changes the libraries ----

// COMPAT(scripts): What a library of functions keeps in local variables outside of its functions is kept by each worker for
// itself. Why: a worker has an interpreter of its own.
//
// COMPAT(scripts): A library from an append-only file or a primary that does not end while it loads is given up when the process
// is asked to end. Why: Valkey has to be killed there.
fn change(call: &mut AdminCall<'_>) -> Outcome {
    match try_change(call) {
        Ok(Done::Loaded(name)) => call.reply.bulk(&name),
        Ok(Done::Changed) => call.reply.ok(),
        Err(text) => call.reply.error(text),
    }
    Outcome::Done
}

fn try_change(call: &mut AdminCall<'_>) -> Result<Done, Vec<u8>> {
    let change = library_change::read(call.args)?.expect("its declaration says how many arguments it has");
    let (node, strict) = (call.node, call.node.config.checks_rdb_version());
    let mut engine = fcall::take_engine(call.exec);
    let done = library_change::apply(change, &node.libraries, &mut engine, LoadTime::OfClient, strict);
    call.exec.functions = Some(engine);
    let done = done.map_err(fcall::as_reply)?;
    log_change(call);
    Ok(done)
}

/// The log has it as it came.
fn log_change(call: &mut AdminCall<'_>) {
    call.exec.stats.values.dirty.add(1);
    if call.exec.pump.is_logging() {
        call.exec.pump.log.request(call.session.db, call.args);
        if !call.session.in_exec {
            call.exec.note_gate();
        }
    }
}

// ---- what reads them ----

fn dump(call: &mut AdminCall<'_>) -> Outcome {
    let catalog = call.node.libraries.catalog();
    let codes = catalog.libraries().map(|library| &library.text[..]);
    let payload = functions::dump(codes, call.exec.hot.settings.transfer.compress);
    call.reply.bulk(&payload);
    Outcome::Done
}

fn list(call: &mut AdminCall<'_>) -> Outcome {
    let (mut with_code, mut pattern) = (false, None);
    let mut words = call.args.from(2).iter();
    while let Some(word) = words.next() {
        if !with_code && word.eq_ignore_ascii_case(b"withcode") {
            with_code = true;
        } else if pattern.is_none() && word.eq_ignore_ascii_case(b"libraryname") {
            let Some(given) = words.next() else {
                call.reply.error("ERR library name argument was not given");
                return Outcome::Done;
            };
            pattern = Some(given);
        } else {
            call.reply.error([b"ERR Unknown argument ", word].concat());
            return Outcome::Done;
        }
    }
    let catalog = call.node.libraries.catalog();
    let is_asked = |library: &&std::sync::Arc<Library>| {
        pattern.is_none_or(|pattern| glob_match(pattern, &library.name, true))
    };
    call.reply.array(catalog.libraries().filter(is_asked).count());
    for library in catalog.libraries().filter(is_asked) {
        write_library(call.reply, library, with_code);
    }
    Outcome::Done
}

fn write_library(reply: &mut Reply, library: &Library, with_code: bool) {
    reply.map(if with_code { 4 } else { 3 });
    reply.bulk(b"library_name");
    reply.bulk(&library.name);
    reply.bulk(b"engine");
    reply.bulk(ENGINE);
    reply.bulk(b"functions");
    reply.array(library.functions.len());
    library.functions.iter().for_each(|function| write_function(reply, function));
    if with_code {
        reply.bulk(b"library_code");
        reply.bulk(&library.text);
    }
}

fn write_function(reply: &mut Reply, function: &Function) {
    reply.map(3);
    reply.bulk(b"name");
    reply.bulk(&function.name);
    reply.bulk(b"description");
    match &function.description {
        Some(text) => reply.bulk(text),
        None => reply.null(),
    }
    reply.bulk(b"flags");
    let flags = ScriptFlags::NAMES.iter().filter(|(_, flag)| function.flags.has(*flag));
    reply.set(flags.clone().count());
    flags.for_each(|(name, _)| reply.simple(name));
}

fn stats(call: &mut AdminCall<'_>) -> Outcome {
    let libraries = &call.node.libraries;
    let shown = match call.node.runs.long() {
        Some((false, _)) => {
            call.reply.error(busy_with_script(call, false));
            return Outcome::Done;
        }
        Some((true, shown)) => shown,
        None => None,
    };
    call.reply.map(2);
    call.reply.bulk(b"running_script");
    match shown {
        Some(running) => {
            let words = running.words.args();
            call.reply.map(3);
            call.reply.bulk(b"name");
            call.reply.bulk(words.get(1));
            call.reply.bulk(b"command");
            call.reply.array(words.len());
            words.iter().for_each(|word| call.reply.bulk(word));
            call.reply.bulk(b"duration_ms");
            call.reply.integer((unix_now_us() - running.began_us).max(0) / 1000);
        }
        None => call.reply.null(),
    }
    call.reply.bulk(b"engines");
    call.reply.map(1);
    call.reply.bulk(ENGINE);
    call.reply.map(2);
    call.reply.bulk(b"libraries_count");
    call.reply.integer(libraries.count() as i64);
    call.reply.bulk(b"functions_count");
    call.reply.integer(libraries.function_count() as i64);
    Outcome::Done
}

fn help(call: &mut AdminCall<'_>) -> Outcome {
    let lines = [
        "LOAD [REPLACE] <FUNCTION CODE>",
        "    Create a new library with the given library name and code.",
        "DELETE <LIBRARY NAME>",
        "    Delete the given library.",
        "LIST [LIBRARYNAME PATTERN] [WITHCODE]",
        "    Return general information on all the libraries:",
        "    * Library name",
        "    * The engine used to run the Library",
        "    * Functions list",
        "    * Library code (if WITHCODE is given)",
        "    It also possible to get only function that matches a pattern using LIBRARYNAME argument.",
        "STATS",
        "    Return information about the current function running:",
        "    * Function name",
        "    * Command used to run the function",
        "    * Duration in MS that the function is running",
        "    If no function is running, return nil",
        "    In addition, returns a list of available engines.",
        "KILL",
        "    Kill the current running function.",
        "FLUSH [ASYNC|SYNC]",
        "    Delete all the libraries.",
        "    When called without the optional mode argument, the behavior is determined by the",
        "    lazyfree-lazy-user-flush configuration directive. Valid modes are:",
        "    * ASYNC: Asynchronously flush the libraries.",
        "    * SYNC: Synchronously flush the libraries.",
        "DUMP",
        "    Return a serialized payload representing the current libraries, can be restored using FUNCTION RESTORE command",
        "RESTORE <PAYLOAD> [FLUSH|APPEND|REPLACE]",
        "    Restore the libraries represented by the given payload, it is possible to give a restore policy to",
        "    control how to handle existing libraries (default APPEND):",
        "    * FLUSH: delete all existing libraries.",
        "    * APPEND: appends the restored libraries to the existing libraries. On collision, abort.",
        "    * REPLACE: appends the restored libraries to the existing libraries, On collision, replace the old",
        "      libraries with the new libraries (notice that even on this option there is a chance of failure",
        "      in case of functions name collision with another library).",
    ];
    write_help(call.reply, call.args, &lines);
    Outcome::Done
}
