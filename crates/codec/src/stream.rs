//! Streams on their way: block by block, then what the stream and its groups remember.
//!
//! A node of a payload becomes a block, and a block a node, whatever the limits in force: names that entries share are
//! shared on both sides. Were entries added one by one, a name longer than a block may be would be written for each of
//! them: a payload of 1 MB could take a GB.

use crate::digest::mix;
use crate::save::to_rdb as element_to_rdb;
use isotherm_keyspace::{
    Consumer, ConsumerGroup, Element, Full, NewBlock, Pending, StreamEdit, StreamEntry, StreamId,
    StreamState, StreamView, TextRoom,
};
use isotherm_persist::Sink;
use isotherm_persist::rdb::{self, RdbStream, StreamCounters, StreamWriter, Writer};
use isotherm_stdx::number::push_u64;
use isotherm_stdx::sha1::Digest;
use std::collections::HashMap;
use std::sync::Arc;

/// In the bytes: how much a group has read is not known.
const ENTRIES_READ_UNKNOWN: i64 = -1;

fn to_rdb(id: StreamId) -> rdb::StreamId {
    rdb::StreamId { ms: id.ms, seq: id.seq }
}

fn from_rdb(id: rdb::StreamId) -> StreamId {
    StreamId { ms: id.ms, seq: id.seq }
}

// ---- out ----

/// Block by block, as they lie.
pub(crate) fn save<S: Sink>(writer: &mut Writer<S>, stream: StreamView<'_>) {
    let mut out = StreamWriter::begin(writer, stream.whole_blocks().count() as u64);
    for block in stream.whole_blocks() {
        let first = block.entries().next().expect("a block has an entry").id;
        let entries = block.entries().count() as u64;
        out.begin_node(writer, to_rdb(first), entries, block.names().map(element_to_rdb));
        block.entries().for_each(|entry| save_entry(&mut out, &entry));
    }
    let StreamState { first_id, last_id, max_deleted_id, entries_added } = stream.state();
    let counters = StreamCounters {
        length: stream.len(),
        last_id: to_rdb(last_id),
        first_id: to_rdb(first_id),
        max_deleted_id: to_rdb(max_deleted_id),
        entries_added,
    };
    out.counters(writer, &counters, stream.groups().len() as u64);
    for (name, group) in stream.groups().iter() {
        rdb::stream_group_whole(writer, &group_to_rdb(name, group));
    }
}

fn save_entry(out: &mut StreamWriter, entry: &StreamEntry<'_>) {
    let id = to_rdb(entry.id);
    if entry.shares_names() {
        out.begin_entry(id, None);
        entry.values().for_each(|value| out.push(element_to_rdb(value)));
    } else {
        out.begin_entry(id, Some(entry.fields().count()));
        for (name, value) in entry.fields() {
            out.push(element_to_rdb(name));
            out.push(element_to_rdb(value));
        }
    }
    out.end_entry();
}

fn group_to_rdb(name: &[u8], group: &ConsumerGroup) -> rdb::Group {
    let numbers: HashMap<&[u8], usize> =
        group.consumers().keys().enumerate().map(|(number, name)| (&**name, number)).collect();
    let pending = group.pending_from(StreamId::MIN).map(|pending| rdb::Pending {
        id: to_rdb(pending.id),
        consumer: numbers[&*pending.consumer],
        delivered_ms: pending.delivered_ms,
        deliveries: pending.deliveries,
    });
    let consumers = group.consumers().iter().map(|(name, consumer)| rdb::Consumer {
        name: name.to_vec(),
        seen_ms: consumer.seen_ms,
        active_ms: consumer.active_ms,
    });
    rdb::Group {
        name: name.to_vec(),
        last_id: to_rdb(group.last_id),
        entries_read: group.entries_read.map_or(ENTRIES_READ_UNKNOWN, |read| read as i64),
        pending: pending.collect(),
        consumers: consumers.collect(),
    }
}

// ---- in ----

pub(crate) fn load(edit: &mut StreamEdit<'_, '_>, stream: &RdbStream) -> Result<(), Full> {
    edit.create()?;
    let mut texts: Vec<&[u8]> = Vec::new();
    for (node, entries) in stream.nodes() {
        let mut block = NewBlock::new(from_rdb(entries[0].id), stream.names(node));
        for entry in entries {
            texts.clear();
            if entry.shares_names(node) {
                texts.extend(stream.values(entry));
                block.push_shared(from_rdb(entry.id), &texts);
            } else {
                stream.pairs(entry).for_each(|(name, value)| texts.extend([name, value]));
                block.push_own(from_rdb(entry.id), &texts);
            }
        }
        edit.put_block(&block)?;
    }
    *edit.state_mut() = StreamState {
        first_id: from_rdb(stream.first_id()),
        last_id: from_rdb(stream.last_id),
        max_deleted_id: from_rdb(stream.max_deleted_id),
        entries_added: stream.entries_added,
    };
    if !stream.groups.is_empty() {
        let groups = stream.groups.iter();
        edit.set_groups(groups.map(|group| (group.name.as_slice().into(), group_from_rdb(group))));
    }
    Ok(())
}

fn group_from_rdb(group: &rdb::Group) -> ConsumerGroup {
    let mut loaded = ConsumerGroup::new(from_rdb(group.last_id), u64::try_from(group.entries_read).ok());
    let names: Vec<Arc<[u8]>> =
        group.consumers.iter().map(|consumer| consumer.name.as_slice().into()).collect();
    for (name, consumer) in names.iter().zip(&group.consumers) {
        let mut own = Consumer::new(consumer.seen_ms);
        own.active_ms = consumer.active_ms;
        loaded.add_consumer(name, own);
    }
    for pending in &group.pending {
        loaded.deliver(Pending {
            id: from_rdb(pending.id),
            delivered_ms: pending.delivered_ms,
            deliveries: pending.deliveries,
            consumer: Arc::clone(&names[pending.consumer]),
        });
    }
    loaded
}

// ---- the signature ----

pub(crate) fn add_to_digest(digest: &mut Digest, stream: StreamView<'_>) {
    let mut text = Vec::new();
    for entry in stream.range(StreamId::MIN, StreamId::MAX) {
        text.clear();
        push_u64(&mut text, entry.id.ms);
        text.push(b'.');
        push_u64(&mut text, entry.id.seq);
        mix(digest, &text);
        let add =
            |digest: &mut Digest, element: Element<'_>| mix(digest, element.text(&mut TextRoom::default()));
        for (name, value) in entry.fields() {
            add(digest, name);
            add(digest, value);
        }
    }
}
