//! Streams: entries gathered into nodes as XADD gathers them, then counters and groups; see `decode_stream.rs` for the drawing.
//!
//! A node ends before the entry that would take it to `stream-node-max-bytes`, and after `stream-node-max-entries`. What
//! its first entry calls its fields, the others need not repeat.

use super::encode::Shape;
use super::kind::RdbType;
use super::listpack::ListpackBuilder;
use super::value::{Group, StreamCounters, StreamId};
use super::write::Writer;

const FLAG_SAME_FIELDS: i64 = 2;
const ELEMENTS_FIXED: usize = 3;
/// A node ends here whatever the parameters say.
const NODE_BYTES_LIMIT: u64 = 1 << 30;

pub struct StreamWriter<'w> {
    writer: &'w mut Writer,
    node_bytes_max: u64,
    node_entries_max: u64,
    node: Option<Node>,
    nodes: u64,
    count_at: usize,
}

/// The number of entries stands in front of them, so they are kept apart until the node ends.
struct Node {
    id: StreamId,
    /// Of the first entry, for comparing.
    fields: Vec<Vec<u8>>,
    /// From the number of fields to the zero behind them.
    master: ListpackBuilder,
    entries: ListpackBuilder,
    count: u64,
}

impl<'w> StreamWriter<'w> {
    pub fn new(writer: &'w mut Writer, shape: &Shape) -> StreamWriter<'w> {
        writer.byte(RdbType::StreamListpacks3 as u8);
        let count_at = writer.bytes().len();
        let or_unlimited = |limit: u64, unlimited: u64| if limit == 0 { unlimited } else { limit };
        StreamWriter {
            writer,
            node_bytes_max: or_unlimited(shape.stream_node_bytes, NODE_BYTES_LIMIT).min(NODE_BYTES_LIMIT),
            node_entries_max: or_unlimited(shape.stream_node_entries, u64::MAX),
            node: None,
            nodes: 0,
            count_at,
        }
    }

    /// Entries come rising by id.
    pub fn push(&mut self, id: StreamId, pairs: &[(&[u8], &[u8])]) {
        let added: usize = pairs.iter().map(|(field, value)| field.len() + value.len()).sum();
        let full = |node: &Node| {
            (node.bytes() + added) as u64 >= self.node_bytes_max || node.count >= self.node_entries_max
        };
        if self.node.as_ref().is_some_and(full) {
            self.end_node();
        }
        self.node.get_or_insert_with(|| Node::new(id, pairs)).push(id, pairs);
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
    fn new(id: StreamId, pairs: &[(&[u8], &[u8])]) -> Node {
        let mut master = ListpackBuilder::new();
        master.push_integer(pairs.len() as i64);
        pairs.iter().for_each(|(field, _)| master.push(field));
        master.push_integer(0);
        let fields = pairs.iter().map(|(field, _)| field.to_vec()).collect();
        Node { id, fields, master, entries: ListpackBuilder::new(), count: 0 }
    }

    fn head(&self) -> ListpackBuilder {
        let mut head = ListpackBuilder::new();
        head.push_integer(self.count as i64);
        head.push_integer(0);
        head
    }

    fn bytes(&self) -> usize {
        let empty = ListpackBuilder::new().bytes();
        self.head().bytes() + self.master.bytes() + self.entries.bytes() - 2 * empty
    }

    fn push(&mut self, id: StreamId, pairs: &[(&[u8], &[u8])]) {
        let same = self.fields.iter().map(Vec::as_slice).eq(pairs.iter().map(|(field, _)| *field));
        let entry = &mut self.entries;
        entry.push_integer(if same { FLAG_SAME_FIELDS } else { 0 });
        entry.push_integer(id.ms.wrapping_sub(self.id.ms) as i64);
        entry.push_integer(id.seq.wrapping_sub(self.id.seq) as i64);
        if !same {
            entry.push_integer(pairs.len() as i64);
        }
        for (field, value) in pairs {
            if !same {
                entry.push(field);
            }
            entry.push(value);
        }
        let elements = if same { pairs.len() } else { 2 * pairs.len() + 1 };
        entry.push_integer((elements + ELEMENTS_FIXED) as i64);
        self.count += 1;
    }

    fn finish(self) -> Vec<u8> {
        let mut all = self.head();
        all.append(&self.master);
        all.append(&self.entries);
        all.finish()
    }
}
