//! A stream: blocks of entries in the order of their ids, and consumer groups.
//!
//! ```text
//!   Stream  chain [first id, block 4: 92 live][first id, block 9: 100 live] ...     two levels, found by id
//!           nodes  id -> handle                                 see `nodes`; a block's bytes: see `block`
//!           groups  name -> last id, pending entries, consumers          see `group`
//! ```
//!
//! A stream is never packed: it is made to grow. A block that one long entry has made too large for the arena
//! lies with the global allocator. Blocks that XTRIM cuts off are freed in steps, as a list's.
//!
//! `mod` is the structure and reading, `edit` changes, `block` bytes, `group` consumer groups, `cut` the
//! state at a snapshot, `image` how it leaves memory as a whole, `away` blocks that left it, `shown` reading
//! of any, `view` what commands see.

mod away;
mod block;
mod cut;
mod edit;
mod group;
mod id;
pub(crate) mod image;
mod shown;
mod view;

#[cfg(test)]
mod tests;

use crate::layout::chain::{self, At, Chain};
use crate::layout::heap::Heap;
use crate::values::nodes::{Nodes, Reading};
use block::Block;
use cut::StreamCut;
use shown::{Bodies, Piece, block_of, find};
use std::sync::Arc;

pub use block::{NewBlock, StreamBlock, StreamEntry};
pub use cut::StreamPart;
pub(crate) use cut::{emit_block, read_payload};
pub use edit::Trim;
pub use group::{Consumer, ConsumerGroup, ConsumerGroups, GroupEdit, Pending};
pub use id::StreamId;
pub(crate) use shown::Shown;
pub use shown::{Range, RangeBack, StreamState};
pub use view::{StreamEdit, StreamView};

/// Steps of `Stream::prefetch`.
pub(crate) const PREFETCH_STEPS: usize = chain::PREFETCH_STEPS + 3;
/// Two values of 16 B.
const TYPICAL_ENTRY_BYTES: usize = 34;

pub(crate) struct Stream {
    nodes: Nodes,
    chain: Chain<Piece>,
    /// Cut off, and to be freed.
    debris: Chain<Piece>,
    large: u64,
    large_bytes: u64,
    pub state: StreamState,
    pub groups: Arc<ConsumerGroups>,
    /// Groups that are gone, to be freed.
    gone: Vec<Arc<ConsumerGroup>>,
    /// The stream as it was when the snapshot under way began, if that has yet to emit it.
    cut: Option<Box<StreamCut>>,
}

impl Stream {
    /// `object`: the number by which nodes name their stream.
    pub fn new(object: u32) -> Stream {
        Stream {
            nodes: Nodes::new(object),
            chain: Chain::new(),
            debris: Chain::new(),
            large: 0,
            large_bytes: 0,
            state: StreamState::default(),
            groups: Arc::default(),
            gone: Vec::new(),
            cut: None,
        }
    }

    /// Entries.
    pub fn len(&self) -> u64 {
        self.chain.count()
    }

    /// Bytes of everything: classes of nodes, large blocks, tables, groups.
    pub fn memory_bytes(&self) -> usize {
        self.nodes.memory_bytes() + self.table_bytes() + self.large_bytes as usize
    }

    /// Returns the bytes that the stream takes from the global allocator, without the nodes' table.
    fn table_bytes(&self) -> usize {
        self.chain.memory_bytes() + self.debris.memory_bytes() + self.groups.memory_bytes()
    }

    fn block<'a>(&self, reading: Reading<'a>, piece: &Piece) -> Block<'a> {
        block_of(&self.nodes, reading, piece)
    }

    /// Returns the whole stream, to read it.
    fn shown<'a>(&'a self, reading: Reading<'a>) -> Shown<'a> {
        let bodies = Bodies::Nodes(&self.nodes, reading);
        Shown { chain: &self.chain, state: &self.state, groups: &self.groups, bodies }
    }

    /// Asks for the memory that `add` will touch, in `PREFETCH_STEPS` steps: each reads what the ones before
    /// have asked for.
    pub fn prefetch(&self, heap: &Heap, step: usize) {
        if step < chain::PREFETCH_STEPS {
            return self.chain.prefetch_last(step);
        }
        let Some(piece) = self.chain.last().map(|at| self.chain.get(at)).filter(|piece| !piece.large) else {
            return;
        };
        if step == chain::PREFETCH_STEPS {
            return self.nodes.prefetch_handle(piece.number);
        }
        if self.is_away(heap, piece) {
            return;
        }
        let node = self.nodes.handle(piece.number);
        let line = |at: usize| heap.arena().prefetch(node.raw(), at);
        if step == chain::PREFETCH_STEPS + 1 {
            // The head, and the names after it.
            [0, block::HEAD_BYTES].into_iter().for_each(line);
        } else {
            let used = Block(heap.bytes(node, block::HEAD_BYTES)).used();
            [used, used + TYPICAL_ENTRY_BYTES].into_iter().for_each(line);
        }
    }

    /// The last block that may hold `id`.
    fn find(&self, id: StreamId) -> Option<At> {
        find(&self.chain, id)
    }

    /// Entries from the lower to the higher id, both included.
    pub fn range<'a>(&'a self, reading: Reading<'a>, from: StreamId, to: StreamId) -> Range<'a> {
        self.shown(reading).range(from, to)
    }

    /// Returns the entries from the higher to the lower id, both included.
    pub fn range_back<'a>(&'a self, reading: Reading<'a>, from: StreamId, to: StreamId) -> RangeBack<'a> {
        self.shown(reading).range_back(from, to)
    }

    /// The first id of each block, and the bytes of Valkey's own, for XINFO.
    pub fn blocks(&self) -> impl Iterator<Item = StreamId> + '_ {
        self.chain.iter().map(|piece| piece.first)
    }

    /// Asserts everything that the files of this folder call an invariant.
    pub fn check_invariants(&self, reading: Reading<'_>) {
        self.chain.check_invariants();
        let (mut nodes, mut sizes, mut large, mut last) = (0, 0, (0, 0), None);
        let mut is_first_away = false;
        for piece in self.chain.iter() {
            if self.is_away(reading.heap, piece) {
                assert!(last < Some(piece.first) && piece.first <= self.state.last_id, "ids rise");
                assert!(piece.live > 0, "a block without entries is freed");
                is_first_away |= last.is_none();
                last = Some(piece.first);
                continue;
            }
            let block = self.block(reading, piece);
            block.check_invariants();
            assert_eq!((piece.first, piece.live), (block.first(), block.live()));
            assert!(last < Some(block.first()) && block.last() <= self.state.last_id, "ids rise");
            assert!(piece.live > 0, "a block without entries is freed");
            last = Some(block.last());
        }
        let waste = self.cut.iter().flat_map(|cut| cut.blocks.waste());
        for piece in self.chain.iter().chain(self.debris.iter()).chain(waste) {
            if piece.large {
                large = (large.0 + 1, large.1 + reading.large.get(piece.number).len() as u64);
            } else {
                self.nodes.check(reading.heap, piece.number);
                (nodes, sizes) = (nodes + 1, sizes + self.block(reading, piece).room());
            }
        }
        for number in self.cut.iter().flat_map(|cut| cut.blocks.orphans()) {
            self.nodes.check(reading.heap, number);
            let orphan = Piece { first: StreamId::MIN, number, large: false, live: 0 };
            (nodes, sizes) = (nodes + 1, sizes + self.block(reading, &orphan).room());
        }
        self.nodes.check_sum(nodes, sizes);
        self.nodes.check_away(reading.heap);
        assert_eq!((self.large, self.large_bytes), large);
        if !is_first_away {
            let first = self.range(reading, StreamId::MIN, StreamId::MAX).at_most(1).next();
            assert_eq!(self.state.first_id, first.map_or(StreamId::MIN, |entry| entry.id));
        }
        self.groups.check_invariants();
    }
}
