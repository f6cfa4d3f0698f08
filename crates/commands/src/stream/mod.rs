//! The group `stream`.

mod add;
mod trim;

mod id;
mod range;
mod read;

mod claim;
mod group;
mod log;
mod pending;
mod progress;

mod info;

use crate::element::reply_element;
use crate::spec::Command;
use crate::{Call, Handler};
use isotherm_keyspace::{Consumer, Key, Lookup, StreamEdit, StreamEntry, StreamId, Value};
use isotherm_resp::Reply;

pub const COMMANDS: &[Command<Handler>] = &[
    group::XACK,
    add::XADD,
    claim::XAUTOCLAIM,
    claim::XCLAIM,
    add::XDEL,
    group::XGROUP,
    info::XINFO,
    add::XLEN,
    pending::XPENDING,
    range::XRANGE,
    read::XREAD,
    read::XREADGROUP,
    range::XREVRANGE,
    add::XSETID,
    trim::XTRIM,
];

#[derive(Clone, Copy, PartialEq, Eq)]
enum Found {
    Absent,
    Stream,
    Other,
}

fn kind_of(call: &mut Call<'_, '_, '_>, key: &Key<'_>) -> Found {
    match call.txn.find(call.db, key, Lookup::Write).map(|entry| entry.value) {
        None => Found::Absent,
        Some(Value::Stream(_)) => Found::Stream,
        Some(_) => Found::Other,
    }
}

fn reply_id(reply: &mut Reply, id: StreamId) {
    reply.bulk(&id.to_text());
}

/// An id, and fields and values in turns.
fn reply_entry(reply: &mut Reply, entry: &StreamEntry<'_>) {
    reply.array(2);
    reply_id(reply, entry.id);
    reply.array(entry.len() * 2);
    for (name, value) in entry.fields() {
        reply_element(reply, name);
        reply_element(reply, value);
    }
}

/// A pending entry that the stream no longer has.
fn reply_gone(reply: &mut Reply, id: StreamId) {
    reply.array(2);
    reply_id(reply, id);
    reply.null_array();
}

fn reply_entries<'a>(reply: &mut Reply, entries: impl Iterator<Item = StreamEntry<'a>>) {
    let open = reply.defer();
    let mut count = 0;
    for entry in entries {
        reply_entry(reply, &entry);
        count += 1;
    }
    reply.close_array(open, count);
}

/// Notes that a consumer of a group, which is there, tries something; makes it if it is new. Whether it is.
fn consumer(stream: &mut StreamEdit<'_, '_>, group: &[u8], name: &[u8], now_ms: i64) -> bool {
    let mut group = stream.group_mut(group).expect("it was found");
    match group.consumer_mut(name) {
        Some(consumer) => {
            consumer.seen_ms = now_ms;
            false
        }
        None => {
            group.add_consumer(name, Consumer::new(now_ms));
            true
        }
    }
}

/// Returns the bytes up to the first NUL, as Valkey prints strings.
fn shown(bytes: &[u8]) -> &[u8] {
    bytes.split(|byte| *byte == 0).next().unwrap_or_default()
}

fn no_group(group: &[u8], key: &[u8]) -> Vec<u8> {
    [b"NOGROUP No such consumer group '", shown(group), b"' for key name '", shown(key), b"'"].concat()
}

fn no_key_or_group(key: &[u8], group: &[u8]) -> Vec<u8> {
    [b"NOGROUP No such key '", shown(key), b"' or consumer group '", shown(group), b"'"].concat()
}
