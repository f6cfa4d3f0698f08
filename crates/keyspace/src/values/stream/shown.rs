//! Reading a stream, be it in memory or in its image: what there is to find its blocks by, and walks over its
//! entries.

use super::block::{self, Block, StreamBlock, StreamEntry};
use super::group::ConsumerGroups;
use super::id::StreamId;
use crate::layout::chain::{At, Chain, Counted};
use crate::values::nodes::{Nodes, Reading};

/// Item of the chain, which stands for the entries of a block.
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

/// State of a stream over all its entries, those that are gone included.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct StreamState {
    /// Lowest id of the entries that are there; 0-0 if there are none.
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
    let room = Block(reading.heap.bytes(handle, block::SHARED_HEAD_BYTES)).room();
    Block(reading.heap.bytes(handle, room))
}

/// Source of the bytes of blocks.
#[derive(Clone, Copy)]
pub(super) enum Bodies<'a> {
    Nodes(&'a Nodes, Reading<'a>),
    Image(&'a [u8]),
}

impl<'a> Bodies<'a> {
    /// Returns a block that is in memory.
    pub fn block(self, piece: &Piece) -> Block<'a> {
        match self {
            Bodies::Nodes(nodes, reading) => block_of(nodes, reading, piece),
            Bodies::Image(bytes) => block_at(bytes, piece.number as usize),
        }
    }

    /// Returns a block. `None` if it is not in memory, which was noted.
    pub fn shown(self, piece: &Piece) -> Option<Block<'a>> {
        match self {
            Bodies::Nodes(nodes, reading) if !piece.large && !nodes.is_shown(reading, piece.number) => None,
            _ => Some(self.block(piece)),
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
        // In front of the first block there is nothing: it is looked at only if it begins within the range.
        let first = || self.chain.first().filter(|at| self.chain.get(*at).first <= to);
        let at = if from > to { None } else { find(self.chain, from).or_else(first) };
        Range { shown: self, from, to, at, block: None, left: u64::MAX }
    }

    pub fn range_back(self, from: StreamId, to: StreamId) -> RangeBack<'a> {
        let at = if from > to { None } else { find(self.chain, to) };
        RangeBack { shown: self, from, to, at, entries: Vec::new(), left: u64::MAX }
    }

    /// The entries of a block that lies in a range as a whole, as far as its neighbour shows; else none.
    fn entries_within(self, at: At, from: StreamId, to: StreamId) -> u64 {
        let (piece, next) = (self.chain.get(at), self.chain.next(at));
        let is_within = piece.first >= from && next.is_none_or(|next| self.chain.get(next).first <= to);
        if is_within { piece.count() } else { 0 }
    }

    pub fn whole_blocks(self) -> impl Iterator<Item = StreamBlock<'a>> + 'a {
        self.chain.iter().filter_map(move |piece| Some(StreamBlock(self.bodies.shown(piece)?)))
    }
}

/// Entries in the order of their ids.
pub struct Range<'a> {
    shown: Shown<'a>,
    from: StreamId,
    to: StreamId,
    at: Option<At>,
    block: Option<block::Entries<'a>>,
    /// Number of entries that are still to come, those counted that are not in memory.
    left: u64,
}

impl Range<'_> {
    /// Limits the range to `entries` entries: no blocks are read for more.
    pub fn at_most(mut self, entries: usize) -> Self {
        self.left = entries as u64;
        self
    }

    /// A block that is not in memory is passed.
    #[cold]
    fn pass(&mut self, at: At) {
        let chain = self.shown.chain;
        self.left = self.left.saturating_sub(self.shown.entries_within(at, self.from, self.to));
        self.at = chain.next(at).filter(|next| chain.get(*next).first <= self.to);
    }
}

impl<'a> Iterator for Range<'a> {
    type Item = StreamEntry<'a>;

    fn next(&mut self) -> Option<StreamEntry<'a>> {
        loop {
            let at = self.at.filter(|_| self.left > 0)?;
            let Shown { chain, bodies, .. } = self.shown;
            if self.block.is_none() {
                let Some(block) = bodies.shown(chain.get(at)) else {
                    self.pass(at);
                    continue;
                };
                self.block = Some(block.entries());
            }
            let entries = self.block.as_mut().expect("it was just put there");
            match entries.find(|entry| entry.id >= self.from && !entry.is_deleted()) {
                Some(entry) if entry.id <= self.to => {
                    self.left -= 1;
                    return Some(entry);
                }
                Some(_) => self.at = None,
                None => {
                    self.at = chain.next(at).filter(|next| chain.get(*next).first <= self.to);
                    self.block = None;
                }
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
    /// Entries still to come of the block that was read before.
    entries: Vec<StreamEntry<'a>>,
    /// Number of entries that are still to come, as in `Range`.
    left: u64,
}

impl RangeBack<'_> {
    /// Limits the range to `entries` entries: no blocks are read for more.
    pub fn at_most(mut self, entries: usize) -> Self {
        self.left = entries as u64;
        self
    }

    /// A block that is not in memory is passed; where the range ends in it, one too many is read.
    #[cold]
    fn pass(&mut self, at: At) {
        let chain = self.shown.chain;
        self.left = self.left.saturating_sub(self.shown.entries_within(at, self.from, self.to));
        self.at = if chain.get(at).first <= self.from { None } else { chain.previous(at) };
    }
}

impl<'a> Iterator for RangeBack<'a> {
    type Item = StreamEntry<'a>;

    fn next(&mut self) -> Option<StreamEntry<'a>> {
        loop {
            if self.left == 0 {
                return None;
            }
            if let Some(entry) = self.entries.pop() {
                self.left -= 1;
                return Some(entry);
            }
            let at = self.at?;
            let Shown { chain, bodies, .. } = self.shown;
            let piece = chain.get(at);
            let Some(block) = bodies.shown(piece) else {
                self.pass(at);
                continue;
            };
            let (from, to) = (self.from, self.to);
            let wanted = |entry: &StreamEntry<'a>| entry.id >= from && entry.id <= to && !entry.is_deleted();
            self.entries.extend(block.entries().filter(wanted));
            self.at = if piece.first <= from { None } else { chain.previous(at) };
        }
    }
}

/// The block of an image that begins there.
fn block_at(bytes: &[u8], at: usize) -> Block<'_> {
    let used = Block(&bytes[at..at + block::HEAD_BYTES]).used();
    Block(&bytes[at..at + used])
}
