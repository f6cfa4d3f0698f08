//! Pending entries change hands: XCLAIM XAUTOCLAIM.

use super::id::{parse_start, parse_strict};
use super::log::{Log, claim, group_id};
use super::{no_key_or_group, reply_entry, reply_id};
use crate::call::is_word;
use crate::spec::*;
use crate::{Call, Handler, Outcome};
use isotherm_keyspace::{EditError, EventClass, Key, Lookup, Pending, StreamEdit, StreamId, Value};
use isotherm_resp::{Reply, errors};
use isotherm_stdx::parse_i64;
use std::sync::Arc;

pub const XCLAIM: Command<Handler> = Command::new(
    Spec {
        name: "xclaim",
        summary: "Gives pending entries to another consumer of the group. Returns them.",
        since: "5.0.0",
        group: Group::Stream,
        complexity: "O(log N) for each ID, N the pending entries of the group",
        arity: -6,
        flags: Flags::WRITE.or(Flags::FAST),
        acl: AclCategories::STREAM,
        key_specs: &[KeySpec::one(1, KeyFlags::RW.or(KeyFlags::UPDATE))],
        tips: &["nondeterministic_output"],
        arguments: &[
            Argument::key("key", 0),
            Argument::string("group"),
            Argument::string("consumer"),
            Argument::string("min-idle-time"),
            Argument::string("id").multiple(),
            Argument::integer("ms").token("IDLE").optional(),
            Argument::unix_time("unix-time-milliseconds").token("TIME").optional(),
            Argument::integer("count").token("RETRYCOUNT").optional(),
            Argument::pure_token("force", "FORCE").optional(),
            Argument::pure_token("justid", "JUSTID").optional(),
            Argument::string("lastid").token("LASTID").optional(),
        ],
        ..Spec::BASE
    },
    xclaim,
);

struct Claim {
    ids: Vec<StreamId>,
    idle_min_ms: i64,
    delivered_ms: i64,
    deliveries: Option<u64>,
    force: bool,
    just_id: bool,
    last_id: StreamId,
}

fn parse_claim(call: &Call<'_, '_, '_>) -> Result<Claim, Vec<u8>> {
    let (args, now_ms) = (call.args, call.txn.now().get());
    let integer = |text: &[u8], error: &str| parse_i64(text).ok_or_else(|| error.as_bytes().to_vec());
    let idle_min_ms = integer(args.get(4), "ERR Invalid min-idle-time argument for XCLAIM")?.max(0);
    let ids: Vec<StreamId> = args.iter().skip(5).map_while(|text| parse_strict(text, 0).ok()).collect();
    let mut at = 5 + ids.len();
    let (mut delivered_ms, mut deliveries) = (-1, -1);
    let mut claim = Claim {
        ids,
        idle_min_ms,
        delivered_ms: now_ms,
        deliveries: None,
        force: false,
        just_id: false,
        last_id: StreamId::MIN,
    };
    while at < args.len() {
        let (word, value) = (args.get(at), args.try_get(at + 1));
        match value {
            _ if is_word(word, "FORCE") => claim.force = true,
            _ if is_word(word, "JUSTID") => claim.just_id = true,
            Some(value) if is_word(word, "IDLE") => {
                let idle_ms = integer(value, "ERR Invalid IDLE option argument for XCLAIM")?;
                delivered_ms = now_ms.wrapping_sub(idle_ms);
                at += 1;
            }
            Some(value) if is_word(word, "TIME") => {
                delivered_ms = integer(value, "ERR Invalid TIME option argument for XCLAIM")?;
                at += 1;
            }
            Some(value) if is_word(word, "RETRYCOUNT") => {
                deliveries = integer(value, "ERR Invalid RETRYCOUNT option argument for XCLAIM")?;
                at += 1;
            }
            Some(value) if is_word(word, "LASTID") => {
                claim.last_id = parse_strict(value, 0)?;
                at += 1;
            }
            _ => {
                let shown = word.split(|byte| *byte == 0).next().unwrap_or_default();
                return Err(errors::with_bytes("ERR Unrecognized XCLAIM option '", shown, "'"));
            }
        }
        at += 1;
    }
    // A time that is not between the epoch and now makes no sense, and is replaced by now.
    if (0..=now_ms).contains(&delivered_ms) {
        claim.delivered_ms = delivered_ms;
    }
    claim.deliveries = u64::try_from(deliveries).ok();
    Ok(claim)
}

/// Returns an error unless the key holds a stream with this group.
fn check_group(call: &mut Call<'_, '_, '_>) -> Result<(), Vec<u8>> {
    let (key, group) = (call.key(1), call.args.get(2));
    match call.txn.find(call.db, &key, Lookup::Read).map(|entry| entry.value) {
        Some(Value::Stream(stream)) if stream.group(group).is_some() => Ok(()),
        Some(Value::Stream(_)) => Err(no_key_or_group(key.bytes, group)),
        None => Err(no_key_or_group(key.bytes, group)),
        Some(_) => Err(errors::WRONG_TYPE.into()),
    }
}

fn xclaim(call: &mut Call<'_, '_, '_>) -> Outcome {
    let parsed = check_group(call).and_then(|()| parse_claim(call));
    let wanted = match parsed {
        Ok(wanted) => wanted,
        Err(error) => return call.fail(error),
    };
    let (key, name, consumer) = (call.key(1), call.args.get(2), call.args.get(3));
    let now_ms = call.txn.now().get();
    let reply = &mut *call.reply;
    let mut log = Log::default();
    let edited = call.txn.edit_stream(call.db, &key, &call.settings.limits, |stream| {
        if !stream.wants(wanted.ids.iter().copied()) {
            return Err(EditError::Full);
        }
        let mut group = stream.group_mut(name).expect("it was found");
        let mut records_last_id = wanted.last_id > group.last_id;
        group.last_id = group.last_id.max(wanted.last_id);
        drop(group);
        let created = super::consumer(stream, name, consumer, now_ms);
        let open = reply.defer();
        let mut claimed = 0;
        for &id in &wanted.ids {
            let group = stream.groups().and_then(|groups| groups.get(name)).expect("it was found");
            let old = group.pending(id).cloned();
            if stream.range(id, id).next().is_none() {
                if let Some(old) = old {
                    forget(stream, name, &key, &old, &mut log);
                    records_last_id = false;
                }
                continue;
            }
            let young =
                |old: &Pending| wanted.idle_min_ms > 0 && now_ms - old.delivered_ms < wanted.idle_min_ms;
            if old.is_none() && !wanted.force || old.as_ref().is_some_and(young) {
                continue;
            }
            let before = old.map_or(1, |old| old.deliveries);
            let counted = if wanted.just_id { before } else { before + 1 };
            let deliveries = wanted.deliveries.unwrap_or(counted);
            give(stream, (name, consumer), &key, (id, wanted.delivered_ms, deliveries), now_ms, &mut log);
            reply_claimed(stream, reply, id, wanted.just_id);
            records_last_id = false;
            claimed += 1;
        }
        reply.close_array(open, claimed);
        if records_last_id {
            let group = stream.group_mut(name).expect("it was found");
            log.push_all(group_id(key.bytes, name, &group));
        }
        Ok(created)
    });
    let Ok(created) = edited.and_then(|edited| edited.result) else { return call.out_of_memory() };
    finish(call, &key, created, log);
    Outcome::Done
}

fn finish(call: &mut Call<'_, '_, '_>, key: &Key<'_>, created: bool, log: Log) {
    if created {
        call.event(EventClass::Stream, "xgroup-createconsumer", key);
    }
    call.count(u64::from(created) + log.len());
    log.record(call);
}

/// A pending entry is no longer in the stream.
fn forget(stream: &mut StreamEdit<'_, '_>, name: &[u8], key: &Key<'_>, old: &Pending, log: &mut Log) {
    let mut group = stream.group_mut(name).expect("it was found");
    log.push_all(claim(key.bytes, name, group.last_id, old));
    group.acknowledge(old.id);
}

/// An entry is this consumer's from now on.
fn give(
    stream: &mut StreamEdit<'_, '_>,
    (name, consumer): (&[u8], &[u8]),
    key: &Key<'_>,
    (id, delivered_ms, deliveries): (StreamId, i64, u64),
    now_ms: i64,
    log: &mut Log,
) {
    let mut group = stream.group_mut(name).expect("it was found");
    let consumer = group.consumers().get_key_value(consumer).map(|(name, _)| Arc::clone(name));
    let consumer = consumer.expect("it was made if it was not there");
    let pending = Pending { id, delivered_ms, deliveries, consumer: Arc::clone(&consumer) };
    log.push_all(claim(key.bytes, name, group.last_id, &pending));
    group.deliver(pending);
    group.consumer_mut(&consumer).expect("it is there").active_ms = now_ms;
}

fn reply_claimed(stream: &StreamEdit<'_, '_>, reply: &mut Reply, id: StreamId, just_id: bool) {
    if just_id {
        reply_id(reply, id);
    } else {
        stream.range(id, id).next().into_iter().for_each(|entry| reply_entry(reply, &entry));
    }
}

pub const XAUTOCLAIM: Command<Handler> = Command::new(
    Spec {
        name: "xautoclaim",
        summary: "Gives entries that have been pending for long to another consumer, from an ID on. Returns them and the next ID.",
        since: "6.2.0",
        group: Group::Stream,
        complexity: "O(N), N the COUNT, 100 by default",
        arity: -6,
        flags: Flags::WRITE.or(Flags::FAST),
        acl: AclCategories::STREAM,
        key_specs: &[KeySpec::one(1, KeyFlags::RW.or(KeyFlags::DELETE))],
        tips: &["nondeterministic_output"],
        history: &[(
            "7.0.0",
            "The reply ends with the IDs of entries that are deleted and not pending any more.",
        )],
        arguments: &[
            Argument::key("key", 0),
            Argument::string("group"),
            Argument::string("consumer"),
            Argument::string("min-idle-time"),
            Argument::string("start"),
            Argument::integer("count").token("COUNT").optional(),
            Argument::pure_token("justid", "JUSTID").optional(),
        ],
        ..Spec::BASE
    },
    xautoclaim,
);

/// Maximum number of pending entries to look at for each requested one.
const TRIES_EACH: u64 = 10;

fn parse_auto(call: &Call<'_, '_, '_>) -> Result<(i64, StreamId, u64, bool), &'static str> {
    let args = call.args;
    let idle = parse_i64(args.get(4)).ok_or("ERR Invalid min-idle-time argument for XAUTOCLAIM")?;
    let start = parse_start(args.get(5))?;
    let (mut count, mut just_id, mut at) = (100, false, 6);
    while at < args.len() {
        if is_word(args.get(at), "COUNT") && at + 1 < args.len() {
            const COUNT_MAX: i64 = i64::MAX / 16;
            let number = parse_i64(args.get(at + 1)).filter(|count| (1..=COUNT_MAX).contains(count));
            count = number.ok_or("ERR COUNT must be > 0")? as u64;
            at += 1;
        } else if is_word(args.get(at), "JUSTID") {
            just_id = true;
        } else {
            return Err(errors::SYNTAX);
        }
        at += 1;
    }
    Ok((idle.max(0), start, count, just_id))
}

/// Returns whether the entries that XAUTOCLAIM will look at are in memory, so that it can find out which of
/// them still exist.
fn wants_pending(
    stream: &StreamEdit<'_, '_>,
    group: &[u8],
    (start, count): (StreamId, u64),
    is_young: impl Fn(&Pending) -> bool,
) -> bool {
    if !stream.has_away() {
        return true;
    }
    let group = stream.groups().and_then(|groups| groups.get(group)).expect("it was found");
    let (mut left, tries) = (count, usize::try_from(count * TRIES_EACH).unwrap_or(usize::MAX));
    // Of the young ones none is claimed, unless it is gone.
    let looked_at = group.pending_from(start).take(tries).take_while(|old| {
        let is_one = left > 0;
        left -= u64::from(is_one && !is_young(old));
        is_one
    });
    stream.wants(looked_at.map(|old| old.id))
}

fn xautoclaim(call: &mut Call<'_, '_, '_>) -> Outcome {
    let (idle_min_ms, start, count, just_id) = match parse_auto(call) {
        Ok(parsed) => parsed,
        Err(error) => return call.fail(error),
    };
    if let Err(error) = check_group(call) {
        return call.fail(error);
    }
    let (key, name, consumer) = (call.key(1), call.args.get(2), call.args.get(3));
    let now_ms = call.txn.now().get();
    let reply = &mut *call.reply;
    let mut log = Log::default();
    let edited = call.txn.edit_stream(call.db, &key, &call.settings.limits, |stream| {
        let is_young = |old: &Pending| idle_min_ms > 0 && now_ms - old.delivered_ms < idle_min_ms;
        if !wants_pending(stream, name, (start, count), is_young) {
            return Err(EditError::Full);
        }
        let created = super::consumer(stream, name, consumer, now_ms);
        let (mut tries, mut left, mut next) = (count * TRIES_EACH, count, Some(start));
        let (mut claimed, mut gone, mut entries) = (0, Vec::new(), Reply::new(reply.proto));
        let cursor = loop {
            let group = stream.groups().and_then(|groups| groups.get(name)).expect("it was found");
            let found = next.and_then(|next| group.pending_from(next).next().cloned());
            let Some(old) = found else { break StreamId::MIN };
            if tries == 0 || left == 0 {
                break old.id;
            }
            tries -= 1;
            next = old.id.next();
            if stream.range(old.id, old.id).next().is_none() {
                forget(stream, name, &key, &old, &mut log);
                gone.push(old.id);
                left -= 1;
                continue;
            }
            if is_young(&old) {
                continue;
            }
            let deliveries = old.deliveries + u64::from(!just_id);
            give(stream, (name, consumer), &key, (old.id, now_ms, deliveries), now_ms, &mut log);
            reply_claimed(stream, &mut entries, old.id, just_id);
            (claimed, left) = (claimed + 1, left - 1);
        };
        reply.array(3);
        reply_id(reply, cursor);
        reply.array(claimed);
        reply.raw(&entries.out);
        reply.array(gone.len());
        gone.into_iter().for_each(|id| reply_id(reply, id));
        Ok(created)
    });
    let Ok(created) = edited.and_then(|edited| edited.result) else { return call.out_of_memory() };
    finish(call, &key, created, log);
    Outcome::Done
}
