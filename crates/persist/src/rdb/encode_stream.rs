//! Streams: nodes of entries, then counters and groups; see `decode_stream.rs` for the drawing.
//!
//! Every number stands in front of what it counts, so the caller has to know it: of nodes, of a node's
//! entries, of groups, of what is pending, of consumers. One node is held at a time. Entries whose fields are
//! called as the node's do not repeat that.

use super::listpack::{Element, ListpackBuilder};
use super::value::{Group, RdbStream, StreamCounters, StreamId};
use super::write::Writer;
use crate::sink::Sink;

const FLAG_SAME_FIELDS: i64 = 2;
const ELEMENTS_FIXED: usize = 3;

/// Writer of the bytes after the type.
pub struct StreamWriter {
    node: ListpackBuilder,
    first: StreamId,
    nodes_left: u64,
    entries_left: u64,
    /// Number of elements of the current entry, after its id.
    elements: usize,
}

impl StreamWriter {
    pub fn begin<S: Sink>(writer: &mut Writer<S>, nodes: u64) -> StreamWriter {
        writer.length(nodes);
        StreamWriter {
            node: ListpackBuilder::new(),
            first: StreamId::default(),
            nodes_left: nodes,
            entries_left: 0,
            elements: 0,
        }
    }

    /// Begins a node: the id of its first entry, how many entries it has, and the names of fields that they
    /// may share. Ids rise.
    pub fn begin_node<'a, S: Sink>(
        &mut self,
        writer: &mut Writer<S>,
        first: StreamId,
        entries: u64,
        names: impl ExactSizeIterator<Item = Element<'a>>,
    ) {
        self.end_node(writer);
        self.nodes_left = self.nodes_left.checked_sub(1).expect("as many nodes as were announced");
        (self.first, self.entries_left) = (first, entries);
        // Entries, deleted ones, names.
        self.node.push_integer(entries as i64);
        self.node.push_integer(0);
        self.node.push_integer(names.len() as i64);
        names.for_each(|name| self.node.add(name));
        self.node.push_integer(0);
    }

    /// Begins an entry of the node: with the node's names its values follow, else `own` names and values in
    /// turn.
    pub fn begin_entry(&mut self, id: StreamId, own: Option<usize>) {
        self.entries_left = self.entries_left.checked_sub(1).expect("as many entries as were announced");
        self.node.push_integer(if own.is_none() { FLAG_SAME_FIELDS } else { 0 });
        self.node.push_integer(id.ms.wrapping_sub(self.first.ms) as i64);
        self.node.push_integer(id.seq.wrapping_sub(self.first.seq) as i64);
        self.elements = 0;
        if let Some(pairs) = own {
            self.push(Element::Integer(pairs as i64));
        }
    }

    pub fn push(&mut self, element: Element<'_>) {
        self.node.add(element);
        self.elements += 1;
    }

    pub fn end_entry(&mut self) {
        self.node.push_integer((self.elements + ELEMENTS_FIXED) as i64);
    }

    fn end_node<S: Sink>(&mut self, writer: &mut Writer<S>) {
        assert_eq!(self.entries_left, 0, "as many entries as were announced");
        if !self.node.is_empty() {
            writer.text(&self.first.to_bytes());
            writer.text(self.node.finish());
            self.node.clear();
        }
    }

    /// Writes the counters, after the nodes; `groups` groups follow.
    pub fn counters<S: Sink>(&mut self, writer: &mut Writer<S>, counters: &StreamCounters, groups: u64) {
        self.end_node(writer);
        assert_eq!(self.nodes_left, 0, "as many nodes as were announced");
        let StreamCounters { length, last_id, first_id, max_deleted_id, entries_added } = *counters;
        writer.length(length);
        write_id(writer, last_id);
        write_id(writer, first_id);
        write_id(writer, max_deleted_id);
        writer.length(entries_added);
        writer.length(groups);
    }
}

/// `entries_read` is -1 if it is not known; `pending` entries follow.
pub fn stream_group<S: Sink>(
    writer: &mut Writer<S>,
    name: &[u8],
    last_id: StreamId,
    entries_read: i64,
    pending: u64,
) {
    writer.text(name);
    write_id(writer, last_id);
    writer.length(entries_read as u64);
    writer.length(pending);
}

/// Writes a pending entry. After the last one the consumers follow.
pub fn stream_pending<S: Sink>(writer: &mut Writer<S>, id: StreamId, delivered_ms: i64, deliveries: u64) {
    writer.raw(&id.to_bytes());
    writer.milliseconds(delivered_ms);
    writer.length(deliveries);
}

/// The ids of `pending` entries that it has follow.
pub fn stream_consumer<S: Sink>(
    writer: &mut Writer<S>,
    name: &[u8],
    seen_ms: i64,
    active_ms: i64,
    pending: u64,
) {
    writer.text(name);
    writer.milliseconds(seen_ms);
    writer.milliseconds(active_ms);
    writer.length(pending);
}

pub fn stream_owned<S: Sink>(writer: &mut Writer<S>, id: StreamId) {
    writer.raw(&id.to_bytes());
}

fn write_id<S: Sink>(writer: &mut Writer<S>, id: StreamId) {
    writer.length(id.ms);
    writer.length(id.seq);
}

/// A whole group of a decoded stream.
pub fn group<S: Sink>(writer: &mut Writer<S>, group: &Group) {
    stream_group(writer, &group.name, group.last_id, group.entries_read, group.pending.len() as u64);
    for pending in &group.pending {
        stream_pending(writer, pending.id, pending.delivered_ms, pending.deliveries);
    }
    let mut theirs: Vec<Vec<StreamId>> = vec![Vec::new(); group.consumers.len()];
    group.pending.iter().for_each(|pending| theirs[pending.consumer].push(pending.id));
    writer.length(group.consumers.len() as u64);
    for (consumer, ids) in group.consumers.iter().zip(theirs) {
        stream_consumer(writer, &consumer.name, consumer.seen_ms, consumer.active_ms, ids.len() as u64);
        ids.into_iter().for_each(|id| stream_owned(writer, id));
    }
}

pub(super) fn stream<S: Sink>(writer: &mut Writer<S>, stream: &RdbStream) {
    let mut out = StreamWriter::begin(writer, stream.nodes().count() as u64);
    for (node, entries) in stream.nodes() {
        let names = stream.names(node).map(Element::Text);
        out.begin_node(writer, entries[0].id, entries.len() as u64, names);
        for entry in entries {
            if entry.shares_names(node) {
                out.begin_entry(entry.id, None);
                stream.values(entry).for_each(|value| out.push(Element::Text(value)));
            } else {
                out.begin_entry(entry.id, Some(stream.pairs(entry).len()));
                for (name, value) in stream.pairs(entry) {
                    out.push(Element::Text(name));
                    out.push(Element::Text(value));
                }
            }
            out.end_entry();
        }
    }
    out.counters(writer, &stream.counters(), stream.groups.len() as u64);
    stream.groups.iter().for_each(|each| group(writer, each));
}
