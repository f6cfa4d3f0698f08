//! Entries between two ids: XRANGE XREVRANGE.

use super::id::{parse_end, parse_start};
use super::reply_entries;
use crate::call::is_word;
use crate::spec::*;
use crate::{Call, Handler, Outcome};
use isotherm_keyspace::{Lookup, Value};
use isotherm_resp::{Args, errors};
use isotherm_stdx::parse_i64;

pub const XRANGE: Command<Handler> = Command::new(
    Spec {
        name: "xrange",
        summary: "Returns the entries between two IDs, oldest first; empty for an absent key.",
        since: "5.0.0",
        group: Group::Stream,
        complexity: "O(N), N the entries returned: bounded by COUNT",
        arity: -4,
        flags: Flags::READONLY,
        acl: AclCategories::STREAM,
        key_specs: &[KeySpec::one(1, KeyFlags::RO.or(KeyFlags::ACCESS))],
        history: &[("6.2.0", "Ranges may exclude their ends.")],
        arguments: &[
            Argument::key("key", 0),
            Argument::string("start"),
            Argument::string("end"),
            Argument::integer("count").token("COUNT").optional(),
        ],
        ..Spec::BASE
    },
    xrange,
);

fn xrange(call: &mut Call<'_, '_, '_>) -> Outcome {
    range(call, false)
}

pub const XREVRANGE: Command<Handler> = Command::new(
    Spec {
        name: "xrevrange",
        summary: "Returns the entries between two IDs, newest first; empty for an absent key.",
        since: "5.0.0",
        group: Group::Stream,
        complexity: "O(N), N the entries returned: bounded by COUNT",
        arity: -4,
        flags: Flags::READONLY,
        acl: AclCategories::STREAM,
        key_specs: &[KeySpec::one(1, KeyFlags::RO.or(KeyFlags::ACCESS))],
        history: &[("6.2.0", "Ranges may exclude their ends.")],
        arguments: &[
            Argument::key("key", 0),
            Argument::string("end"),
            Argument::string("start"),
            Argument::integer("count").token("COUNT").optional(),
        ],
        ..Spec::BASE
    },
    xrevrange,
);

fn xrevrange(call: &mut Call<'_, '_, '_>) -> Outcome {
    range(call, true)
}

/// Returns the limit of COUNT; `None` for no limit.
fn parse_count(args: Args<'_>) -> Result<Option<usize>, &'static str> {
    let (mut count, mut at) = (None, 4);
    while at < args.len() {
        let value = args.try_get(at + 1).filter(|_| is_word(args.get(at), "COUNT")).ok_or(errors::SYNTAX)?;
        // -1 is no limit only as long as it is not given.
        count = Some(parse_i64(value).ok_or(errors::NOT_AN_INTEGER)?.max(0) as usize);
        at += 2;
    }
    Ok(count)
}

fn range(call: &mut Call<'_, '_, '_>, backwards: bool) -> Outcome {
    let (key, args) = (call.key(1), call.args);
    let (from_at, to_at) = if backwards { (3, 2) } else { (2, 3) };
    let parsed = parse_start(args.get(from_at))
        .and_then(|from| Ok((from, parse_end(args.get(to_at))?)))
        .and_then(|(from, to)| Ok((from, to, parse_count(args)?)));
    let (from, to, count) = match parsed {
        Ok(parsed) => parsed,
        Err(error) => return call.fail(error),
    };
    let reply = &mut *call.reply;
    match call.txn.find(call.db, &key, Lookup::Read).map(|entry| entry.value) {
        Some(Value::Stream(_)) if count == Some(0) => reply.null_array(),
        Some(Value::Stream(stream)) => {
            let most = count.unwrap_or(usize::MAX);
            if backwards {
                reply_entries(reply, stream.range_back(from, to).at_most(most));
            } else {
                reply_entries(reply, stream.range(from, to).at_most(most));
            }
        }
        Some(_) => return call.fail(errors::WRONG_TYPE),
        None => {
            reply.array(0);
        }
    }
    Outcome::Done
}
