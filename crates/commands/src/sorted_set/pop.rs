//! Members leave from one end: ZPOPMIN ZPOPMAX ZMPOP.

use super::reply::write_scored;
use crate::call::is_word;
use crate::several::{Several, keys_behind};
use crate::spec::*;
use crate::{Call, Handler, Outcome};
use isotherm_keyspace::{Element, EventClass, Key, Lookup, Value};
use isotherm_resp::{Protocol, errors};
use isotherm_stdx::number::{I64_BYTES_MAX, write_u64};
use isotherm_stdx::parse_i64;
use std::ops::Range;

pub const ZPOPMIN: Command<Handler> = Command::new(
    Spec {
        name: "zpopmin",
        summary: "Takes the members with the lowest scores and returns them; empty for an absent key.",
        since: "5.0.0",
        group: Group::SortedSet,
        complexity: "O(log(N)*M), N the size of the sorted set, M the members taken",
        arity: -2,
        flags: Flags::WRITE.or(Flags::FAST),
        acl: AclCategories::SORTEDSET,
        key_specs: &[KeySpec::one(1, KeyFlags::RW.or(KeyFlags::ACCESS).or(KeyFlags::DELETE))],
        arguments: &[Argument::key("key", 0), Argument::integer("count").optional()],
        ..Spec::BASE
    },
    zpopmin,
);

fn zpopmin(call: &mut Call<'_, '_, '_>) -> Outcome {
    pop_from_one(call, End::Min)
}

pub const ZPOPMAX: Command<Handler> = Command::new(
    Spec {
        name: "zpopmax",
        summary: "Takes the members with the highest scores and returns them; empty for an absent key.",
        since: "5.0.0",
        group: Group::SortedSet,
        complexity: "O(log(N)*M), N the size of the sorted set, M the members taken",
        arity: -2,
        flags: Flags::WRITE.or(Flags::FAST),
        acl: AclCategories::SORTEDSET,
        key_specs: &[KeySpec::one(1, KeyFlags::RW.or(KeyFlags::ACCESS).or(KeyFlags::DELETE))],
        arguments: &[Argument::key("key", 0), Argument::integer("count").optional()],
        ..Spec::BASE
    },
    zpopmax,
);

fn zpopmax(call: &mut Call<'_, '_, '_>) -> Outcome {
    pop_from_one(call, End::Max)
}

pub const ZMPOP: Command<Handler> = Command::new(
    Spec {
        name: "zmpop",
        summary: "Takes members with the lowest or highest scores from the first sorted set that has some; null when all are empty.",
        since: "7.0.0",
        group: Group::SortedSet,
        complexity: "O(K) + O(M*log(N)), K the given keys, N the size of the sorted set, M the members taken",
        arity: -4,
        flags: Flags::WRITE,
        acl: AclCategories::SORTEDSET,
        key_specs: &[keys_behind(1)],
        arguments: &[
            Argument::integer("numkeys"),
            Argument::key("key", 0).multiple(),
            Argument::one_of(
                "where",
                &[Argument::pure_token("min", "MIN"), Argument::pure_token("max", "MAX")],
            ),
            Argument::integer("count").token("COUNT").optional(),
        ],
        ..Spec::BASE
    },
    zmpop,
);

fn zmpop(call: &mut Call<'_, '_, '_>) -> Outcome {
    let several = match Several::parse(call, 1, End::of_word) {
        Ok(several) => several,
        Err(error) => return call.fail(error),
    };
    pop_first(call, several.keys, several.end, several.count, Shape::Nested).unwrap_or_else(|| {
        call.reply.null_array();
        Outcome::Done
    })
}

/// Form of the members in the reply, after their key.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Shape {
    /// A single member with its score; logged without a count.
    Flat,
    /// An array of pairs.
    Nested,
}

/// Pops of the first of these keys that is there, up to `count` members. `None` if no key is. Keys out of
/// reach are as good as absent.
pub(super) fn pop_first(
    call: &mut Call<'_, '_, '_>,
    keys: Range<usize>,
    end: End,
    count: u64,
    shape: Shape,
) -> Option<Outcome> {
    for at in keys {
        let key = call.key(at);
        if !call.reaches(&key) {
            continue;
        }
        match call.txn.find(call.db, &key, Lookup::Write).map(|entry| entry.value) {
            None => continue,
            Some(Value::Zset(_)) => {}
            Some(_) => return Some(call.fail(errors::WRONG_TYPE)),
        }
        let Some(popped) = pop(call, &key, end, count) else { return Some(call.out_of_memory()) };
        write_popped(call, &key, &popped, shape);
        let mut room = [0; I64_BYTES_MAX];
        let words = [end.command(), key.bytes, write_u64(popped.len() as u64, &mut room)];
        call.record(if shape == Shape::Flat { &words[..2] } else { &words });
        return Some(Outcome::Done);
    }
    None
}

fn write_popped(call: &mut Call<'_, '_, '_>, key: &Key<'_>, popped: &[(Vec<u8>, f64)], shape: Shape) {
    call.reply.array(if shape == Shape::Flat { 3 } else { 2 });
    call.reply.bulk(key.bytes);
    if shape == Shape::Nested {
        call.reply.array(popped.len());
    }
    for (member, score) in popped {
        if shape == Shape::Nested {
            call.reply.array(2);
        }
        call.reply.bulk(member);
        call.reply.double(*score);
    }
}

#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum End {
    Min,
    Max,
}

impl End {
    pub(super) fn of_word(word: &[u8]) -> Option<End> {
        match word {
            _ if is_word(word, "MIN") => Some(End::Min),
            _ if is_word(word, "MAX") => Some(End::Max),
            _ => None,
        }
    }

    fn event(self) -> &'static str {
        match self {
            End::Min => "zpopmin",
            End::Max => "zpopmax",
        }
    }

    fn command(self) -> &'static [u8] {
        match self {
            End::Min => b"ZPOPMIN",
            End::Max => b"ZPOPMAX",
        }
    }
}

fn pop_from_one(call: &mut Call<'_, '_, '_>, end: End) -> Outcome {
    if call.args.len() > 3 {
        return call.fail(errors::SYNTAX);
    }
    let count = match call.args.try_get(2) {
        None => None,
        Some(text) => match parse_i64(text).and_then(|count| u64::try_from(count).ok()) {
            Some(count) => Some(count),
            None => return call.fail(errors::MUST_BE_POSITIVE),
        },
    };
    let key = call.key(1);
    match call.txn.find(call.db, &key, Lookup::Write).map(|entry| entry.value) {
        Some(Value::Zset(_)) if count != Some(0) => {}
        Some(Value::Zset(_)) | None => {
            call.reply.array(0);
            return Outcome::Done;
        }
        Some(_) => return call.fail(errors::WRONG_TYPE),
    }
    let Some(popped) = pop(call, &key, end, count.unwrap_or(1)) else { return call.out_of_memory() };
    // With a count, RESP3 has pairs; a single member always comes flat.
    let pairs = count.is_some() && call.reply.proto == Protocol::Resp3;
    call.reply.array(if pairs { popped.len() } else { popped.len() * 2 });
    for (member, score) in &popped {
        if pairs {
            write_scored(call.reply, Element::Bytes(member), Some(*score));
        } else {
            call.reply.bulk(member);
            call.reply.double(*score);
        }
    }
    Outcome::Done
}

/// Takes up to `count` members, one at least, out of a sorted set that is there, and emits the events.
/// `None`: memory ended.
fn pop(call: &mut Call<'_, '_, '_>, key: &Key<'_>, end: End, count: u64) -> Option<Vec<(Vec<u8>, f64)>> {
    let edited = call.txn.edit_zset(call.db, key, &call.settings.limits, |edit| {
        let count = count.min(edit.len());
        let first = if end == End::Min { 0 } else { edit.len() - count };
        let mut popped = Vec::new();
        if edit.wants_range(first, count) {
            popped.reserve(count as usize);
            edit.for_each(0, count, end == End::Min, |member, score| popped.push((member.to_vec(), score)));
            edit.remove_range(first, count);
        }
        popped
    });
    // Without any it runs again, or cannot be done.
    let edited = edited.ok().filter(|edited| !edited.result.is_empty())?;
    call.wrote(EventClass::Zset, end.event(), key, edited.result.len() as u64);
    Some(edited.result)
}
