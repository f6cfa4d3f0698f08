//! FUNCTION: the libraries of functions.
//!
//! LOAD, DELETE, FLUSH and RESTORE hold the gate, and the log has their own text. A subcommand that only
//! reads takes the catalog as it is at that moment, and holds nothing.

use isotherm_commands::Outcome;
use isotherm_commands::help::write_help;
use isotherm_commands::spec::*;
use isotherm_persist::rdb::functions;
use isotherm_resp::{Reply, errors};
use isotherm_stdx::glob_match;

use super::super::{AdminCall, AdminHandler};
use super::{busy_with_script, fcall, kill, of_script};
use isotherm_engine::scripting::library_change;
use isotherm_engine::scripting::library_change::Done;
use isotherm_node::scripting::function_engine::LoadTime;
use isotherm_node::scripting::libraries::{Function, Library};
use isotherm_node::scripting::shebang::ScriptFlags;
use isotherm_runtime::time::elapsed;

/// Name of the one engine, as in Valkey.
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
    complexity: "That of the subcommand",
    flags: Flags(0),
    acl: AclCategories(0),
    ..of_function("function", "Manages libraries of functions.", -2)
};
const FUNCTION_DELETE: Spec = Spec {
    arguments: &[Argument::string("library-name")],
    ..changes("delete", "Removes a library with its functions. An error for an unknown one.", 3)
};
const FUNCTION_DUMP: Spec = Spec {
    complexity: "O(N), N all functions",
    ..of_function("dump", "Returns all libraries in the form that FUNCTION RESTORE takes.", 2)
};
const FUNCTION_FLUSH: Spec = Spec {
    complexity: "O(N), N the removed functions",
    arguments: &[Argument::one_of(
        "flush-type",
        &[Argument::pure_token("async", "ASYNC"), Argument::pure_token("sync", "SYNC")],
    )
    .optional()],
    ..changes("flush", "Removes every library.", -2)
};
const FUNCTION_HELP: Spec =
    Spec { since: "7.0.0", group: Group::Scripting, acl: AclCategories::SCRIPTING, ..Spec::HELP };
const FUNCTION_KILL: Spec = Spec {
    flags: Flags::NOSCRIPT.or(Flags::ALLOW_BUSY),
    tips: &["request_policy:all_shards", "response_policy:one_succeeded"],
    ..of_function("kill", "Stops the running function, unless it has written.", 2)
};
const FUNCTION_LIST: Spec = Spec {
    complexity: "O(N), N all functions",
    tips: &["nondeterministic_output_order"],
    arguments: &[
        Argument::string("library-name-pattern").token("LIBRARYNAME").optional(),
        Argument::pure_token("withcode", "WITHCODE").optional(),
    ],
    ..of_function("list", "Returns the libraries with their functions, and with their code on request.", -2)
};
const FUNCTION_LOAD: Spec = Spec {
    complexity: "O(1) without the time to compile",
    flags: Flags::NOSCRIPT.or(Flags::WRITE).or(Flags::DENYOOM),
    arguments: &[Argument::pure_token("replace", "REPLACE").optional(), Argument::string("function-code")],
    ..changes("load", "Adds a library, or replaces it with REPLACE. Returns its name.", -3)
};
const FUNCTION_RESTORE: Spec = Spec {
    complexity: "O(N), N the functions of the payload",
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
    ..changes("restore", "Adds the libraries of a payload of FUNCTION DUMP.", -3)
};
const FUNCTION_STATS: Spec = Spec {
    flags: Flags::NOSCRIPT.or(Flags::ALLOW_BUSY),
    tips: &["nondeterministic_output", "request_policy:all_shards", "response_policy:special"],
    ..of_function(
        "stats",
        "Returns the running function, the engines and their numbers of libraries and functions.",
        2,
    )
};

// ---- what changes the libraries ----

// COMPAT(scripts): What a library of functions keeps in local variables outside of its functions is kept by
// each worker for itself. Why: a worker has an interpreter of its own.
//
// COMPAT(scripts): A library from an append-only file or a primary that does not end while it loads is given
// up when the process is asked to end. Why: Valkey has to be killed there.
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
            call.reply.error(errors::with_bytes("ERR Unknown argument ", word, ""));
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
            call.reply.integer(elapsed(running.began).as_millis() as i64);
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
    write_help(
        call.reply,
        call.args,
        &[
            "LOAD [REPLACE] <FUNCTION CODE>",
            "    Add the library that this code defines and return its name. REPLACE: one of that name goes.",
            "DELETE <LIBRARY NAME>",
            "    Remove this library with its functions.",
            "LIST [LIBRARYNAME PATTERN] [WITHCODE]",
            "    Return the libraries with names that fit PATTERN, by default all, each with",
            "    * its name,",
            "    * its engine,",
            "    * its functions with their flags,",
            "    * and with WITHCODE its source.",
            "STATS",
            "    Return the function that runs, or null, with",
            "    * its name,",
            "    * the command line that called it,",
            "    * and the milliseconds since then;",
            "    and the engines with the numbers of their libraries and functions.",
            "KILL",
            "    Stop the running function, unless it has written.",
            "FLUSH [ASYNC|SYNC]",
            "    Remove all libraries. ASYNC and SYNC do the same.",
            "DUMP",
            "    Return all libraries as one payload for RESTORE.",
            "RESTORE <PAYLOAD> [FLUSH|APPEND|REPLACE]",
            "    Add the libraries of a payload of DUMP. What happens to those that are here:",
            "    * FLUSH: all are removed before.",
            "    * APPEND: all stay; two of one name are an error (default).",
            "    * REPLACE: those with the name of a new one go. Two functions of one name",
            "      in different libraries are still an error.",
        ],
    )
}
