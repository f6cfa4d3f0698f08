//! Lists: nodes cut where a server of the field would have cut them while the elements came in at the tail.
//!
//! `list-max-listpack-size` decides: -1 to -5 are 4 to 64 KB a node, a positive number is a number of elements (and 8 KB).
//! An element above that gets a node of its own, without a listpack around it.

use super::kind::RdbType;
use super::listpack::ListpackBuilder;
use super::write::Writer;

const CONTAINER_PLAIN: u64 = 1;
const CONTAINER_PACKED: u64 = 2;
/// What an element is thought to add beyond its own bytes.
const ELEMENT_OVERHEAD_BYTES: usize = 8;
/// Under a limit in elements a node still ends here.
const NODE_BYTES_MAX: usize = 8192;

/// When a node is full.
#[derive(Clone, Copy)]
struct Fill {
    bytes_max: usize,
    elements_max: usize,
}

impl Fill {
    fn new(list_size: i32) -> Fill {
        match list_size {
            0.. => Fill { bytes_max: NODE_BYTES_MAX, elements_max: list_size.max(1) as usize },
            _ => Fill { bytes_max: 2048 << list_size.unsigned_abs().min(5), elements_max: usize::MAX },
        }
    }
}

/// The nodes are written at once; their number goes in front of them at the end.
pub struct ListWriter<'w> {
    writer: &'w mut Writer,
    fill: Fill,
    /// A list that is one listpack stays one, whatever its size.
    single: bool,
    node: ListpackBuilder,
    nodes: u64,
    count_at: usize,
}

impl<'w> ListWriter<'w> {
    pub fn new(writer: &'w mut Writer, list_size: i32, single: bool) -> ListWriter<'w> {
        writer.byte(RdbType::ListQuicklist2 as u8);
        let count_at = writer.bytes().len();
        ListWriter {
            writer,
            fill: Fill::new(list_size),
            single,
            node: ListpackBuilder::new(),
            nodes: 0,
            count_at,
        }
    }

    pub fn push(&mut self, text: &[u8]) {
        if !self.single && text.len() > self.fill.bytes_max {
            self.end_node();
            self.node_of(CONTAINER_PLAIN, text);
            return;
        }
        let bytes = self.node.bytes() + text.len() + ELEMENT_OVERHEAD_BYTES;
        let full = bytes > self.fill.bytes_max || self.node.len() >= self.fill.elements_max;
        if full && !self.single {
            self.end_node();
        }
        self.node.push(text);
    }

    fn end_node(&mut self) {
        if !self.node.is_empty() {
            let listpack = std::mem::take(&mut self.node).finish();
            self.node_of(CONTAINER_PACKED, &listpack);
        }
    }

    fn node_of(&mut self, container: u64, bytes: &[u8]) {
        self.writer.length(container);
        self.writer.text(bytes);
        self.nodes += 1;
    }

    pub fn finish(mut self) {
        self.end_node();
        self.writer.insert_length(self.count_at, self.nodes);
    }
}
