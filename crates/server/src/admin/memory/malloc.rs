//! MEMORY PURGE and MEMORY MALLOC-STATS, which call the allocator.

use isotherm_allocator::{self as allocator, Format};
use isotherm_commands::Outcome;
use isotherm_commands::spec::*;
use isotherm_resp::errors;

use crate::admin::AdminCall;

pub const MEMORY_PURGE: Spec = Spec {
    name: "purge",
    summary: "Gives free memory of the allocator back to the system.",
    since: "4.0.0",
    group: Group::Server,
    complexity: "Grows with the memory in use",
    arity: 2,
    flags: Flags::LOADING,
    tips: &["request_policy:all_shards", "response_policy:all_succeeded"],
    ..Spec::BASE
};

/// Gives back what is free already; the housekeeping does the same by and by.
pub fn purge(call: &mut AdminCall<'_>) -> Outcome {
    for arena in call.node.keyspace.arenas() {
        arena.trim(0);
    }
    allocator::purge();
    call.reply.ok();
    Outcome::Done
}

pub const MEMORY_MALLOC_STATS: Spec = Spec {
    name: "malloc-stats",
    summary: "Returns the report of the memory allocator.",
    since: "4.0.0",
    group: Group::Server,
    complexity: "Grows with the memory in use",
    arity: -2,
    flags: Flags::LOADING,
    tips: &["nondeterministic_output", "request_policy:all_shards", "response_policy:special"],
    ..Spec::BASE
};

/// `MEMORY MALLOC-STATS [TEXT | JSON]`; Valkey has the first form only, without a word for it.
pub fn stats(call: &mut AdminCall<'_>) -> Outcome {
    // COMPAT(observability): MEMORY MALLOC-STATS takes `TEXT` or `JSON` (its arity is -2), and its text is
    // that of the allocator of the build. Why: JSON is what programs can read, and there are four allocators
    // to choose from.
    let (word, more) = (call.args.try_get(2).unwrap_or(b"text"), call.args.try_get(3).is_some());
    let format = match word {
        word if word.eq_ignore_ascii_case(b"text") && !more => Format::Text,
        word if word.eq_ignore_ascii_case(b"json") && !more => Format::Json,
        _ => {
            call.reply.error(errors::SYNTAX);
            return Outcome::Done;
        }
    };
    call.reply.verbatim("txt", allocator::report(format).as_bytes());
    Outcome::Done
}
