//! Reading a stream, be it in memory or in its image: what there is to find its blocks by, and walks over its entries.

use super::block::{self, Block, StreamBlock, StreamEntry};
use super::group::ConsumerGroups;
use super::id::StreamId;
use crate::layout::chain::{At, Chain, Counted};
use crate::values::nodes::{Nodes, Reading};

/// What stands for the entries of a block.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Piece {
    /// The id of its first entry, deleted or not.
    pub first: StreamId,
    /// A node, or a large body.
    pub number: u32,
    pub large: bool,
    /// Entries that are not deleted.
    pub live: u32,
}

impl Counted for Piece {
    fn count(&self) -> u64 {
        u64::from(self.live)
    }
}

/// What a stream knows of all its entries, those that are gone included.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct StreamState {
    /// Of the entries that are there; 0-0 if there are none.
    pub first_id: StreamId,
    /// The highest one ever.
    pub last_id: StreamId,
    /// The highest one that was deleted by XDEL.
    pub max_deleted_id: StreamId,
    pub entries_added: u64,
}

pub(super) fn find(chain: &Chain<Piece>, id: StreamId) -> Option<At> {
    match chain.partition_point(|piece| piece.first <= id) {
        Some(behind) => chain.previous(behind),
        None => chain.last(),
    }
}

pub(super) fn block_of<'a>(nodes: &Nodes, reading: Reading<'a>, piece: &Piece) -> Block<'a> {
    if piece.large {
        return Block(reading.large.get(piece.number));
    }
    let handle = nodes.handle(piece.number);
    let room = Block(reading.heap.bytes(handle, block::HEAD_BYTES)).room();
    Block(reading.heap.bytes(handle, room))
}

/// Where the bytes of blocks are.
#[derive(Clone, Copy)]
pub(super) enum Bodies<'a> {
    Nodes(&'a Nodes, Reading<'a>),
    Image(&'a [u8]),
}

impl<'a> Bodies<'a> {
    pub fn block(self, piece: &Piece) -> Block<'a> {
        match self {
            Bodies::Nodes(nodes, reading) => block_of(nodes, reading, piece),
            Bodies::Image(bytes) => block_at(bytes, piece.number as usize),
        }
    }
}

/// A stream to read, in memory or in its image.
#[derive(Clone, Copy)]
pub(crate) struct Shown<'a> {
    pub(super) chain: &'a Chain<Piece>,
    pub(super) state: &'a StreamState,
    pub(super) groups: &'a ConsumerGroups,
    pub(super) bodies: Bodies<'a>,
}

impl<'a> Shown<'a> {
    pub fn range(self, from: StreamId, to: StreamId) -> Range<'a> {
        let at = if from > to { None } else { find(self.chain, from).or_else(|| self.chain.first()) };
        Range { shown: self, from, to, at, block: None }
    }

    pub fn range_back(self, from: StreamId, to: StreamId) -> RangeBack<'a> {
        let at = if from > to { None } else { find(self.chain, to) };
        RangeBack { shown: self, from, to, at, entries: Vec::new() }
    }

    pub fn whole_blocks(self) -> impl Iterator<Item = StreamBlock<'a>> + 'a {
        self.chain.iter().map(move |piece| StreamBlock(self.bodies.block(piece)))
    }
}

/// Entries in the order of their ids.
pub struct Range<'a> {
    shown: Shown<'a>,
    from: StreamId,
    to: StreamId,
    at: Option<At>,
    block: Option<block::Entries<'a>>,
}

impl<'a> Iterator for Range<'a> {
    type Item = StreamEntry<'a>;

    fn next(&mut self) -> Option<StreamEntry<'a>> {
        loop {
            let at = self.at?;
            let Shown { chain, bodies, .. } = self.shown;
            let entries = self.block.get_or_insert_with(|| bodies.block(chain.get(at)).entries());
            match entries.find(|entry| entry.id >= self.from && !entry.is_deleted()) {
                Some(entry) if entry.id <= self.to => return Some(entry),
                Some(_) => self.at = None,
                None => (self.at, self.block) = (chain.next(at), None),
            }
        }
    }
}

/// Entries against the order of their ids.
pub struct RangeBack<'a> {
    shown: Shown<'a>,
    from: StreamId,
    to: StreamId,
    /// The block to look at next.
    at: Option<At>,
    /// Those of the block before it that are still to come.
    entries: Vec<StreamEntry<'a>>,
}

impl<'a> Iterator for RangeBack<'a> {
    type Item = StreamEntry<'a>;

    fn next(&mut self) -> Option<StreamEntry<'a>> {
        loop {
            if let Some(entry) = self.entries.pop() {
                return Some(entry);
            }
            let at = self.at?;
            let Shown { chain, bodies, .. } = self.shown;
            let piece = chain.get(at);
            let (from, to) = (self.from, self.to);
            let wanted = |entry: &StreamEntry<'a>| entry.id >= from && entry.id <= to && !entry.is_deleted();
            self.entries.extend(bodies.block(piece).entries().filter(wanted));
            self.at = if piece.first <= from { None } else { chain.previous(at) };
        }
    }
}

/// The block of an image that begins there.
fn block_at(bytes: &[u8], at: usize) -> Block<'_> {
    let used = Block(&bytes[at..at + block::HEAD_BYTES]).used();
    Block(&bytes[at..at + used])
}
