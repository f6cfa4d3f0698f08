//! Streams: nodes of entries, then counters and groups; see `decode_stream.rs` for the drawing.
//!
//! Where a node ends is known to whoever has the stream. Entries whose fields are called as the node's do not repeat that.

use super::kind::RdbType;
use super::listpack::ListpackBuilder;
use super::value::{Group, StreamCounters, StreamId};
use super::write::Writer;

const FLAG_SAME_FIELDS: i64 = 2;
const ELEMENTS_FIXED: usize = 3;

pub struct StreamWriter<'w> {
    writer: &'w mut Writer,
    node: Option<Node>,
    nodes: u64,
    count_at: usize,
}

/// The number of entries stands in front of them, so they are kept apart until the node ends.
struct Node {
    id: StreamId,
    /// From the number of fields to the zero behind their names.
    master: ListpackBuilder,
    entries: ListpackBuilder,
    count: u64,
}

impl<'w> StreamWriter<'w> {
    pub fn new(writer: &'w mut Writer) -> StreamWriter<'w> {
        writer.byte(RdbType::StreamListpacks3 as u8);
        let count_at = writer.bytes().len();
        StreamWriter { writer, node: None, nodes: 0, count_at }
    }

    /// Begins a node: the id of its first entry, and the names of fields that its entries may share. Ids rise.
    pub fn begin_node<'a>(&mut self, first: StreamId, names: impl ExactSizeIterator<Item = &'a [u8]>) {
        self.end_node();
        self.node = Some(Node::new(first, names));
    }

    /// An entry of the node, with the node's names.
    pub fn push_values<'a>(&mut self, id: StreamId, values: impl ExactSizeIterator<Item = &'a [u8]>) {
        let node = self.node.as_mut().expect("entries lie in nodes");
        let count = values.len();
        node.begin_entry(FLAG_SAME_FIELDS, id);
        values.for_each(|value| node.entries.push(value));
        node.end_entry(count);
    }

    /// An entry of the node, with names of its own.
    pub fn push_pairs<'a>(
        &mut self,
        id: StreamId,
        pairs: impl ExactSizeIterator<Item = (&'a [u8], &'a [u8])>,
    ) {
        let node = self.node.as_mut().expect("entries lie in nodes");
        let count = pairs.len();
        node.begin_entry(0, id);
        node.entries.push_integer(count as i64);
        for (name, value) in pairs {
            node.entries.push(name);
            node.entries.push(value);
        }
        node.end_entry(2 * count + 1);
    }

    fn end_node(&mut self) {
        if let Some(node) = self.node.take() {
            self.writer.text(&node.id.to_bytes());
            self.writer.text(&node.finish());
            self.nodes += 1;
        }
    }

    pub fn finish(mut self, counters: &StreamCounters, groups: &[Group]) {
        self.end_node();
        self.writer.insert_length(self.count_at, self.nodes);
        let StreamCounters { length, last_id, first_id, max_deleted_id, entries_added } = *counters;
        self.writer.length(length);
        self.id(last_id);
        self.id(first_id);
        self.id(max_deleted_id);
        self.writer.length(entries_added);
        self.writer.length(groups.len() as u64);
        groups.iter().for_each(|group| self.group(group));
    }

    fn id(&mut self, id: StreamId) {
        self.writer.length(id.ms);
        self.writer.length(id.seq);
    }

    fn group(&mut self, group: &Group) {
        self.writer.text(&group.name);
        self.id(group.last_id);
        self.writer.length(group.entries_read as u64);
        self.writer.length(group.pending.len() as u64);
        for pending in &group.pending {
            self.writer.raw(&pending.id.to_bytes());
            self.writer.milliseconds(pending.delivered_ms);
            self.writer.length(pending.deliveries);
        }
        let mut theirs: Vec<Vec<StreamId>> = vec![Vec::new(); group.consumers.len()];
        group.pending.iter().for_each(|pending| theirs[pending.consumer].push(pending.id));
        self.writer.length(group.consumers.len() as u64);
        for (consumer, ids) in group.consumers.iter().zip(theirs) {
            self.writer.text(&consumer.name);
            self.writer.milliseconds(consumer.seen_ms);
            self.writer.milliseconds(consumer.active_ms);
            self.writer.length(ids.len() as u64);
            ids.iter().for_each(|id| self.writer.raw(&id.to_bytes()));
        }
    }
}

impl Node {
    fn new<'a>(id: StreamId, names: impl ExactSizeIterator<Item = &'a [u8]>) -> Node {
        let mut master = ListpackBuilder::new();
        master.push_integer(names.len() as i64);
        names.for_each(|name| master.push(name));
        master.push_integer(0);
        Node { id, master, entries: ListpackBuilder::new(), count: 0 }
    }

    fn begin_entry(&mut self, flags: i64, id: StreamId) {
        self.entries.push_integer(flags);
        self.entries.push_integer(id.ms.wrapping_sub(self.id.ms) as i64);
        self.entries.push_integer(id.seq.wrapping_sub(self.id.seq) as i64);
    }

    /// `elements`: between the id and the end.
    fn end_entry(&mut self, elements: usize) {
        self.entries.push_integer((elements + ELEMENTS_FIXED) as i64);
        self.count += 1;
    }

    fn finish(self) -> Vec<u8> {
        let mut all = ListpackBuilder::new();
        all.push_integer(self.count as i64);
        all.push_integer(0);
        all.append(&self.master);
        all.append(&self.entries);
        all.finish()
    }
}
