//! XPENDING: what was delivered and not acknowledged.

use super::id::{parse_end, parse_start};
use super::{no_key_or_group, reply_id};
use crate::call::is_word;
use crate::spec::*;
use crate::{Call, Handler, Outcome};
use isotherm_keyspace::{ConsumerGroup, Lookup, Pending, StreamId, Value};
use isotherm_resp::{Args, Reply, errors};
use isotherm_stdx::parse_i64;

pub const XPENDING: Command<Handler> = Command::new(
    Spec {
        name: "xpending",
        summary: "Returns a summary of a group's pending entries, or the entries in a range.",
        since: "5.0.0",
        group: Group::Stream,
        complexity: "O(N), N the entries returned, the entries looked at with IDLE, or the consumers of the summary",
        arity: -3,
        flags: Flags::READONLY,
        acl: AclCategories::STREAM,
        key_specs: &[KeySpec::one(1, KeyFlags::RO.or(KeyFlags::ACCESS))],
        tips: &["nondeterministic_output"],
        history: &[("6.2.0", "New option `IDLE`; ranges may exclude their ends.")],
        arguments: &[
            Argument::key("key", 0),
            Argument::string("group"),
            Argument::block(
                "filters",
                &[
                    Argument::integer("min-idle-time").token("IDLE").since("6.2.0").optional(),
                    Argument::string("start"),
                    Argument::string("end"),
                    Argument::integer("count"),
                    Argument::string("consumer").optional(),
                ],
            )
            .optional(),
        ],
        ..Spec::BASE
    },
    xpending,
);

struct Wanted<'a> {
    idle_min_ms: i64,
    from: StreamId,
    to: StreamId,
    count: usize,
    consumer: Option<&'a [u8]>,
}

/// `[[IDLE ms] start end count [consumer]]`; `None` without.
fn parse(args: Args<'_>) -> Result<Option<Wanted<'_>>, &'static str> {
    if args.len() == 3 {
        return Ok(None);
    }
    if !(6..=9).contains(&args.len()) {
        return Err(errors::SYNTAX);
    }
    let (mut at, mut idle_min_ms) = (3, 0);
    if is_word(args.get(3), "IDLE") {
        idle_min_ms = parse_i64(args.get(4)).ok_or(errors::NOT_AN_INTEGER)?;
        if args.len() < 8 {
            return Err(errors::SYNTAX);
        }
        at = 5;
    }
    let count = parse_i64(args.get(at + 2)).ok_or(errors::NOT_AN_INTEGER)?.max(0) as usize;
    let (from, to) = (parse_start(args.get(at))?, parse_end(args.get(at + 1))?);
    Ok(Some(Wanted { idle_min_ms, from, to, count, consumer: args.try_get(at + 3) }))
}

fn xpending(call: &mut Call<'_, '_, '_>) -> Outcome {
    let wanted = match parse(call.args) {
        Ok(wanted) => wanted,
        Err(error) => return call.fail(error),
    };
    let (key, name, now_ms) = (call.key(1), call.args.get(2), call.txn.now().get());
    let reply = &mut *call.reply;
    let group = match call.txn.find(call.db, &key, Lookup::Read).map(|entry| entry.value) {
        Some(Value::Stream(stream)) => stream.group(name),
        None => {
            return call.fail(no_key_or_group(key.bytes, name));
        }
        Some(_) => return call.fail(errors::WRONG_TYPE),
    };
    let Some(group) = group else { return call.fail(no_key_or_group(key.bytes, name)) };
    match wanted {
        None => summary(reply, group),
        Some(wanted) => list(reply, group, &wanted, now_ms),
    }
    Outcome::Done
}

fn summary(reply: &mut Reply, group: &ConsumerGroup) {
    reply.array(4);
    reply.integer(group.pending_len() as i64);
    let first = group.pending_from(StreamId::MIN).next();
    let Some((first, last)) = first.zip(group.last_pending()) else {
        reply.null();
        reply.null();
        reply.null_array();
        return;
    };
    reply_id(reply, first.id);
    reply_id(reply, last.id);
    let busy = group.consumers().iter().filter(|(_, consumer)| consumer.pending_len() > 0);
    reply.array(busy.clone().count());
    for (name, consumer) in busy {
        reply.array(2);
        reply.bulk(name);
        reply.bulk_i64(consumer.pending_len() as i64);
    }
}

fn list(reply: &mut Reply, group: &ConsumerGroup, wanted: &Wanted<'_>, now_ms: i64) {
    let old_enough =
        |pending: &&Pending| wanted.idle_min_ms == 0 || now_ms - pending.delivered_ms >= wanted.idle_min_ms;
    let found: Vec<&Pending> = match wanted.consumer {
        None => {
            let all = group.pending_from(wanted.from).take_while(|pending| pending.id <= wanted.to);
            all.filter(old_enough).take(wanted.count).collect()
        }
        Some(name) => {
            let ids = group
                .consumers()
                .get(name)
                .into_iter()
                .flat_map(|consumer| consumer.pending_from(wanted.from));
            let ids = ids.take_while(|id| *id <= wanted.to);
            let all = ids.filter_map(|id| group.pending(id));
            all.filter(old_enough).take(wanted.count).collect()
        }
    };
    reply.array(found.len());
    for pending in found {
        reply.array(4);
        reply_id(reply, pending.id);
        reply.bulk(&pending.consumer);
        reply.integer((now_ms - pending.delivered_ms).max(0));
        reply.integer(pending.deliveries as i64);
    }
}
