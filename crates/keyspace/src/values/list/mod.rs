//! A large list: blocks of packed elements in a chain.
//!
//! ```text
//!   List   chain [block 7: 478][block 3: 478][large 12: 1] ...      how many elements each stands for
//!          nodes  id -> handle                                      see `nodes`; a block's bytes: see `block`
//! ```
//!
//! The ends grow in place: the first block is reversed, so that pushing to the front appends too. In the
//! middle a block is written anew, split in two when it gets too large and joined with a neighbour when it
//! gets small. An element too large for any block lies alone, in the global allocator.
//!
//! Besides its elements (16.07 B of 16 B, see `block`) a block costs 4 B in the table and 12 B in the chain:
//! 0.03 B.
//!
//! Blocks that are cut off in one go (LTRIM, LPOP with a count) leave the chain at once and are freed in
//! steps from `debris`, so that ten million elements stall no client.
//!
//! `mod` is the structure and reading, `edit` changes, `block` bytes, `cut` the state at a snapshot, `away`
//! blocks that are not in memory, `view` what commands see.

mod away;
mod block;
mod cut;
mod edit;
mod iter;
mod view;

#[cfg(test)]
mod tests;

use crate::layout::chain::{At, Chain, Counted};
use crate::layout::listpack::{LISTPACK_EMPTY_BYTES, entry_bytes};
use crate::layout::packed::Element;
use crate::values::cut::Cut;
use crate::values::nodes::{NodeId, Nodes, Reading};
use block::Block;
use isotherm_arena::Handle;

pub(crate) use cut::read_payload;
pub use iter::Iter;
pub use view::{Elements, ListEdit, ListView};
pub(crate) use view::{blocks_from, pack_again};

/// Front or back of a list.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum End {
    Front,
    Back,
}

/// Item of the chain, which stands for a few elements in a row.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Piece {
    Block {
        node: NodeId,
        count: u16,
        listpack: u32,
    },
    /// A single element, by its number among the large bodies.
    Large {
        number: u32,
        listpack: u32,
    },
}

const _: () = assert!(size_of::<Piece>() == 12);

/// Placeholder that a reader is shown for each element that is not in memory: the reply is thrown away, and
/// the command runs again when the element was read.
const ABSENT: Element<'static> = Element::Int(0);

impl Piece {
    /// Bytes of its elements' entries in a listpack.
    fn listpack(&self) -> u64 {
        match self {
            Piece::Block { listpack, .. } | Piece::Large { listpack, .. } => u64::from(*listpack),
        }
    }
}

impl Counted for Piece {
    #[inline]
    fn count(&self) -> u64 {
        match self {
            Piece::Block { count, .. } => u64::from(*count),
            Piece::Large { .. } => 1,
        }
    }
}

pub(crate) struct List {
    nodes: Nodes,
    chain: Chain<Piece>,
    /// Cut off, and to be freed.
    debris: Chain<Piece>,
    /// Large elements, and their bytes.
    large: u64,
    large_bytes: u64,
    /// Bytes of the entries in one listpack of all elements.
    listpack_bytes: u64,
    /// True if OBJECT ENCODING reports a quicklist (see `view`).
    quick: bool,
    /// The list as it was when the snapshot under way began, if that has yet to emit it.
    cut: Option<Box<Cut<Piece>>>,
}

impl List {
    /// `object`: the number by which nodes name their list.
    pub fn new(object: u32) -> List {
        List {
            nodes: Nodes::new(object),
            chain: Chain::new(),
            debris: Chain::new(),
            large: 0,
            large_bytes: 0,
            listpack_bytes: 0,
            quick: false,
            cut: None,
        }
    }

    fn is_empty(&self) -> bool {
        self.chain.is_empty()
    }

    #[inline]
    pub fn len(&self) -> u64 {
        self.chain.count()
    }

    /// Bytes of a listpack of all elements.
    pub fn listpack_bytes(&self) -> u64 {
        LISTPACK_EMPTY_BYTES + self.listpack_bytes
    }

    /// Bytes of everything: classes of nodes, large elements, tables.
    pub fn memory_bytes(&self) -> usize {
        self.nodes.memory_bytes() + self.table_bytes() + self.large_bytes as usize
    }

    /// Returns the bytes that the list takes from the global allocator, without the nodes' table.
    fn table_bytes(&self) -> usize {
        self.chain.memory_bytes() + self.debris.memory_bytes()
    }

    #[inline]
    fn block<'a>(&self, reading: Reading<'a>, node: NodeId) -> Block<'a> {
        let handle = self.nodes.handle(node);
        let room = Block(reading.heap.bytes(handle, block::HEAD_BYTES)).room();
        Block(reading.heap.bytes(handle, room))
    }

    /// Element `index` from the front.
    pub fn get<'a>(&self, reading: Reading<'a>, index: u64) -> Option<Element<'a>> {
        let (at, rest) = self.chain.find(index)?;
        Some(self.element_in(reading, at, rest as usize))
    }

    fn element_in<'a>(&self, reading: Reading<'a>, at: At, index: usize) -> Element<'a> {
        match *self.chain.get(at) {
            Piece::Large { number, .. } => Element::Bytes(reading.large.get(number)),
            Piece::Block { node, .. } if !self.nodes.is_shown(reading, node) => ABSENT,
            Piece::Block { node, .. } => {
                let block = self.block(reading, node);
                block.element(block.get(index))
            }
        }
    }

    /// The first element at an end.
    pub fn end<'a>(&self, reading: Reading<'a>, end: End) -> Option<Element<'a>> {
        let at = self.end_at(end)?;
        let index = match end {
            End::Front => 0,
            End::Back => self.chain.get(at).count() as usize - 1,
        };
        Some(self.element_in(reading, at, index))
    }

    fn end_at(&self, end: End) -> Option<At> {
        match end {
            End::Front => self.chain.first(),
            End::Back => self.chain.last(),
        }
    }

    /// Elements from `index` on, towards the other end than `from`.
    pub fn iter<'a>(&'a self, reading: Reading<'a>, index: u64, from: End) -> Iter<'a> {
        Iter::new(self, reading, index, from)
    }

    /// Compaction has moved a node.
    fn moved(&mut self, node: NodeId, from: Handle, to: Handle) {
        self.nodes.relocate(node, from, to);
    }

    /// Asserts everything that the files of this folder call an invariant.
    pub fn check_invariants(&self, reading: Reading<'_>) {
        self.chain.check_invariants();
        self.debris.check_invariants();
        let (mut nodes, mut sizes, mut large) = (0, 0, (0, 0));
        let waste = self.cut.iter().flat_map(|cut| cut.waste());
        for piece in self.chain.iter().chain(self.debris.iter()).chain(waste) {
            match *piece {
                Piece::Block { node, .. } if self.nodes.reference_at(reading.heap, node).is_some() => {
                    self.nodes.check(reading.heap, node);
                    (nodes, sizes) = (nodes + 1, sizes + self.block(reading, node).room());
                }
                Piece::Block { node, count, listpack } => {
                    self.nodes.check(reading.heap, node);
                    let block = self.block(reading, node);
                    block.check_invariants();
                    assert_eq!(block.count(), count as usize);
                    let entries = block.cells().map(|cell| entry_bytes(block.element(cell)));
                    assert_eq!(u64::from(listpack), entries.sum::<u64>());
                    (nodes, sizes) = (nodes + 1, sizes + block.room());
                }
                Piece::Large { number, .. } => {
                    let len = reading.large.get(number).len();
                    assert!(len > block::DATA_BYTES_MAX - 4, "it would fit into a block");
                    large = (large.0 + 1, large.1 + len as u64);
                }
            }
        }
        for node in self.cut.iter().flat_map(|cut| cut.orphans()) {
            self.nodes.check(reading.heap, node);
            (nodes, sizes) = (nodes + 1, sizes + self.block(reading, node).room());
        }
        self.nodes.check_sum(nodes, sizes);
        self.nodes.check_away(reading.heap);
        assert_eq!((self.large, self.large_bytes), large);
        assert_eq!(self.listpack_bytes, self.chain.iter().map(Piece::listpack).sum::<u64>());
    }
}
