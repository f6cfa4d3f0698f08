//! Streams on their way in: block by block, then what the stream and its groups remember.
//!
//! A node of a payload becomes a block, and a block a node, whatever the limits in force: names that entries
//! share are shared on both sides. Were entries added one by one, a name longer than a block may be would be
//! written for each of them: a payload of 1 MB could take a GB.

use crate::digest::mix;
use isotherm_keyspace::{
    Consumer, ConsumerGroup, Element, Full, NewBlock, Pending, StreamEdit, StreamId, StreamState, StreamView,
    TextRoom,
};
use isotherm_persist::rdb::{self, RdbStream};
use isotherm_stdx::number::push_u64;
use isotherm_stdx::sha1::Digest;
use std::sync::Arc;

pub(crate) fn to_rdb(id: StreamId) -> rdb::StreamId {
    rdb::StreamId { ms: id.ms, seq: id.seq }
}

fn from_rdb(id: rdb::StreamId) -> StreamId {
    StreamId { ms: id.ms, seq: id.seq }
}

pub(crate) fn element_to_rdb(element: Element<'_>) -> rdb::Element<'_> {
    match element {
        Element::Int(int) => rdb::Element::Integer(int),
        Element::Bytes(bytes) => rdb::Element::Text(bytes),
    }
}

// ---- in ----

/// Loads blocks after those that are there.
pub(crate) fn load_blocks(edit: &mut StreamEdit<'_, '_>, stream: &RdbStream) -> Result<(), Full> {
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
    Ok(())
}

/// Loads the state, after the last block.
pub(crate) fn load_state(edit: &mut StreamEdit<'_, '_>, stream: &RdbStream) {
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
