//! Lists: nodes with their number in front.
//!
//! `list-max-listpack-size` decides where Valkey ends a node while elements come in at the tail: -1 to -5 are
//! 4 to 64 KB a node, a positive number is a number of elements (and 8 KB). An element above that gets a node
//! of its own, without a listpack around it. [`ListShape`] follows that rule, so nodes can be counted before
//! the first is written. Nodes that end elsewhere (where a list of ours is in blocks) are read as well.

use super::listpack::{self, Element, ListpackBuilder};
use super::write::Writer;
use crate::sink::Sink;

const CONTAINER_PLAIN: u64 = 1;
const CONTAINER_PACKED: u64 = 2;
/// Assumed bytes of an element in addition to its own.
const ELEMENT_OVERHEAD_BYTES: usize = 8;
/// Under a limit in elements a node still ends here.
const NODE_BYTES_MAX: usize = 8192;

/// Place of an element.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Place {
    /// Node of the previous element.
    Joins,
    /// New node, with the element as its first.
    Begins,
    /// Node of its own, without a listpack.
    Alone,
}

/// Rule that decides where nodes end.
#[derive(Clone, Debug)]
pub struct ListShape {
    bytes_max: usize,
    elements_max: usize,
    /// A list that is one listpack stays one, whatever its size.
    single: bool,
    /// Bytes and elements of the current node.
    bytes: usize,
    elements: usize,
}

impl ListShape {
    pub fn new(list_size: i32, single: bool) -> ListShape {
        let (bytes_max, elements_max) = match list_size {
            0.. => (NODE_BYTES_MAX, list_size.max(1) as usize),
            _ => (2048 << list_size.unsigned_abs().min(5), usize::MAX),
        };
        ListShape { bytes_max, elements_max, single, bytes: ListpackBuilder::EMPTY_BYTES, elements: 0 }
    }

    pub fn place(&mut self, text: &[u8]) -> Place {
        if !self.single && text.len() > self.bytes_max {
            (self.bytes, self.elements) = (ListpackBuilder::EMPTY_BYTES, 0);
            return Place::Alone;
        }
        let is_full = self.bytes + text.len() + ELEMENT_OVERHEAD_BYTES > self.bytes_max
            || self.elements >= self.elements_max;
        let begins = self.elements == 0 || is_full && !self.single;
        if begins {
            (self.bytes, self.elements) = (ListpackBuilder::EMPTY_BYTES, 0);
        }
        self.bytes += listpack::entry_bytes(text);
        self.elements += 1;
        if begins { Place::Begins } else { Place::Joins }
    }

    /// Returns the number of nodes of a list.
    pub fn nodes<'a>(mut self, texts: impl Iterator<Item = &'a [u8]>) -> u64 {
        texts.map(|text| u64::from(self.place(text) != Place::Joins)).sum()
    }
}

/// Writer of the bytes after the type. Holds a node until the next begins.
pub struct ListWriter {
    node: ListpackBuilder,
    is_alone: bool,
    nodes_left: u64,
}

impl ListWriter {
    pub fn begin<S: Sink>(writer: &mut Writer<S>, nodes: u64) -> ListWriter {
        writer.length(nodes);
        ListWriter { node: ListpackBuilder::new(), is_alone: false, nodes_left: nodes }
    }

    /// The elements that follow are of a node of their own. `alone`: it is one, and has no listpack around
    /// it.
    pub fn node<S: Sink>(&mut self, writer: &mut Writer<S>, alone: bool) {
        self.end_node(writer);
        self.nodes_left = self.nodes_left.checked_sub(1).expect("as many nodes as were announced");
        self.is_alone = alone;
    }

    pub fn push<S: Sink>(&mut self, writer: &mut Writer<S>, element: Element<'_>) {
        match element {
            Element::Text(text) if self.is_alone => {
                writer.length(CONTAINER_PLAIN);
                writer.text(text);
            }
            element => self.node.add(element),
        }
    }

    fn end_node<S: Sink>(&mut self, writer: &mut Writer<S>) {
        if !self.node.is_empty() {
            writer.length(CONTAINER_PACKED);
            writer.text(self.node.finish());
            self.node.clear();
        }
    }

    pub fn end<S: Sink>(mut self, writer: &mut Writer<S>) {
        self.end_node(writer);
        assert_eq!(self.nodes_left, 0, "as many nodes as were announced");
    }
}

/// Writes a list as Valkey would have it in nodes.
pub(super) fn list<'a, S: Sink>(
    writer: &mut Writer<S>,
    texts: impl Iterator<Item = &'a [u8]> + Clone,
    shape: &ListShape,
) {
    let mut list = ListWriter::begin(writer, shape.clone().nodes(texts.clone()));
    let mut shape = shape.clone();
    for text in texts {
        let place = shape.place(text);
        if place != Place::Joins {
            list.node(writer, place == Place::Alone);
        }
        list.push(writer, Element::Text(text));
    }
    list.end(writer);
}
