//! MEMORY and its subcommands.

mod diff;
mod doctor;
mod malloc;
mod map;
mod prefixes;
mod profile;
mod reply;
mod stats;
mod top;

use isotherm_commands::Outcome;
use isotherm_commands::help::write_help;
use isotherm_commands::spec::*;
use isotherm_keyspace::Lookup;
use isotherm_resp::errors;
use isotherm_stdx::parse_i64;

use super::{AdminCall, AdminHandler};

const MEMORY: Spec = Spec {
    name: "memory",
    summary: "Shows the use of memory and its causes.",
    since: "4.0.0",
    group: Group::Server,
    complexity: "That of the subcommand",
    arity: -2,
    ..Spec::BASE
};

pub const COMMANDS: &[Command<AdminHandler>] = &[Command::container(
    MEMORY,
    &[
        Command::new(diff::MEMORY_DIFF, diff::diff),
        Command::new(doctor::MEMORY_DOCTOR, doctor::doctor),
        Command::new(MEMORY_HELP, help),
        Command::new(malloc::MEMORY_MALLOC_STATS, malloc::stats),
        // COMPAT(observability): MEMORY MAP, DIFF, PREFIXES, TOP and PROFILE are Isotherm's. Why: Valkey does
        // not report memory by purpose.
        // COMPAT(users): MEMORY TOP, PREFIXES and DIFF and HOTKEYS GET show a user the keys that its patterns
        // match, and the prefixes all of whose keys they match, in databases that it may use. Sums over keys
        // of everyone (`other`, `without`) are zero without a right to all keys. Why: names of keys are data
        // of those who use them.
        Command::new(map::MEMORY_MAP, map::map),
        Command::new(prefixes::MEMORY_PREFIXES, prefixes::prefixes),
        Command::new(profile::MEMORY_PROFILE, profile::profile),
        Command::new(malloc::MEMORY_PURGE, malloc::purge),
        Command::new(stats::MEMORY_STATS, stats::stats),
        Command::new(top::MEMORY_TOP, top::top),
        Command::new(MEMORY_USAGE, usage),
    ],
)];

const MEMORY_USAGE: Spec = Spec {
    name: "usage",
    summary: "Returns the bytes that a key and its value take, large values estimated by samples; null for an absent key.",
    since: "4.0.0",
    group: Group::Server,
    complexity: "O(N), N the samples",
    arity: -3,
    flags: Flags::READONLY,
    key_specs: &[KeySpec::one(2, KeyFlags::RO)],
    arguments: &[Argument::key("key", 0), Argument::integer("count").token("SAMPLES").optional()],
    ..Spec::BASE
};

fn usage(call: &mut AdminCall<'_>) -> Outcome {
    if let Err(text) = check_samples(call) {
        call.reply.error(text);
        return Outcome::Done;
    }
    let (db, name) = (call.session.db, call.args.get(2));
    let mut txn = call.debug_txn();
    let key = txn.key(name);
    let found = txn.find(db, &key, Lookup::Silent).map(|entry| entry.memory_bytes());
    match found {
        Some(bytes) => call.reply.integer(bytes as i64),
        None => call.reply.null(),
    }
    Outcome::Done
}

/// `SAMPLES count` says how many elements of a collection are measured; here a collection knows its size.
fn check_samples(call: &AdminCall<'_>) -> Result<(), &'static str> {
    let options = call.args.from(3);
    for at in (0..options.len()).step_by(2) {
        let count = options.try_get(at + 1).filter(|_| options.get(at).eq_ignore_ascii_case(b"samples"));
        let count = parse_i64(count.ok_or(errors::SYNTAX)?).ok_or(errors::NOT_AN_INTEGER)?;
        if count < 0 {
            return Err(errors::SYNTAX);
        }
    }
    Ok(())
}

const MEMORY_HELP: Spec = Spec { since: "4.0.0", group: Group::Server, ..Spec::HELP };

fn help(call: &mut AdminCall<'_>) -> Outcome {
    write_help(
        call.reply,
        call.args,
        &[
            "DIFF [MARK]",
            "    Record memory usage (MARK), or return its changes since then: by purpose, by type,",
            "    by key prefix.",
            "DOCTOR",
            "    Explain problems with memory in words.",
            "MALLOC-STATS",
            "    Return the allocator's report.",
            "MAP",
            "    Return where every byte is: used memory by purpose, other resident memory,",
            "    and the memory of keys by type and encoding.",
            "PREFIXES [DEPTH <depth>] [TOP <count>]",
            "    Return the memory of key prefixes with <depth> separators, the largest first,",
            "    with the error of each figure (default: depth 1, at most 3; 16 prefixes).",
            "PROFILE ON|OFF|DUMP [<file>]",
            "    Sample live allocations (ON, OFF), or write the samples to a file (*.heap)",
            "    in the working directory. Needs a build with the feature `profiling`.",
            "PURGE",
            "    Give free memory of the allocator back to the system.",
            "STATS",
            "    Return figures about the server's memory.",
            "TOP [<count>]",
            "    Return the <count> largest keys by memory (default: 16).",
            "USAGE <key> [SAMPLES <count>]",
            "    Return the bytes of <key> and its value. A large value is estimated",
            "    from <count> of its elements (default: 5; 0: all of them).",
        ],
    )
}
