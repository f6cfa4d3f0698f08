//! What the allocator is asked and told by MEMORY PURGE and MEMORY MALLOC-STATS.

use isotherm_allocator::{self as allocator, Format};
use isotherm_commands::Outcome;
use isotherm_resp::errors;

use crate::admin::AdminCall;

/// Gives back what is free already; the housekeeping does the same by and by.
pub fn purge(call: &mut AdminCall<'_>) -> Outcome {
    for arena in call.node.keyspace.arenas() {
        arena.trim(0);
    }
    allocator::purge();
    call.reply.ok();
    Outcome::Done
}

/// `MEMORY MALLOC-STATS [TEXT | JSON]`; Valkey has the first form only, without a word for it.
pub fn stats(call: &mut AdminCall<'_>) -> Outcome {
    // COMPAT(observability): MEMORY MALLOC-STATS takes `TEXT` or `JSON` (its arity is -2), and its text is that of
    // the allocator of the build. Why: JSON is what programs can read, and there are four allocators to choose from.
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
