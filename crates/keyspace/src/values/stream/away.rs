//! Blocks of a stream that are not in memory (see `crate::values::blocks`): what a change needs, and what
//! their bytes are.
//!
//! A change wants the blocks that it writes to, and the one that its first entry will be in; blocks that it
//! drops as a whole are not read. A command that makes several changes wants all of them before the first
//! one. How long a block was idle is read from the time in its last id, and, as ids need not be times, from a
//! coarse stamp.

use super::Stream;
use super::block::{self, Block, SHARED_HEAD_BYTES};
use super::edit::Trim;
use super::id::StreamId;
use super::shown::Piece;
use crate::layout::chain::At;
use crate::layout::heap::Heap;
use crate::layout::kind::Full;
use crate::values::blocks::{Blocks, reading_of};
use crate::values::nodes::{Nodes, Reading};
use crate::values::store::Store;
use isotherm_stdx::UnixMs;

impl Stream {
    pub(super) fn is_away(&self, heap: &Heap, piece: &Piece) -> bool {
        !piece.large && self.nodes.reference_at(heap, piece.number).is_some()
    }

    /// Wants the last block: an entry is about to be put after all others.
    #[inline]
    pub fn want_last(&self, reading: Reading<'_>) -> Result<(), Full> {
        if self.nodes.away() == 0 { Ok(()) } else { self.want(reading, self.chain.last()) }
    }

    /// The block that an entry is in, or would be.
    #[inline]
    pub(super) fn want_block(&self, reading: Reading<'_>, at: Option<At>) -> Result<(), Full> {
        if self.nodes.away() == 0 { Ok(()) } else { self.want(reading, at) }
    }

    /// Entries are about to be deleted. If all of a block go, the first one of the next may be the stream's
    /// first, and an id that is not there is looked for in the block before.
    #[inline]
    pub fn want_ids(&self, reading: Reading<'_>, ids: &[StreamId]) -> Result<(), Full> {
        if self.nodes.away() == 0 {
            return Ok(());
        }
        let places = ids.iter().filter_map(|id| self.find(*id));
        let may_go = |at: &At| self.chain.get(*at).live as usize <= ids.len();
        let neighbours = |at: At| [self.chain.previous(at), self.chain.next(at)].into_iter().flatten();
        let with_neighbours =
            |at: At| std::iter::once(at).chain(Some(at).filter(may_go).into_iter().flat_map(neighbours));
        self.want(reading, places.flat_map(with_neighbours))
    }

    /// Wants the blocks for entries that are about to be taken from the front (`Stream::trim`), when `more`
    /// were put after the others.
    #[inline]
    pub fn want_trim(
        &self,
        reading: Reading<'_>,
        keep: Trim,
        (whole, limit): (bool, u64),
        more: u64,
    ) -> Result<(), Full> {
        if self.nodes.away() == 0 {
            return Ok(());
        }
        let (mut gone, mut next) = (0, self.chain.first());
        while let Some(at) = next {
            let live = u64::from(self.chain.get(at).live);
            let left = self.len() + more - gone;
            let is_over = matches!(keep, Trim::Len(len) if left <= len) || limit > 0 && gone + live > limit;
            let goes_whole = match keep {
                _ if is_over => false,
                Trim::Len(len) => left - live >= len,
                Trim::From(id) => match self.chain.next(at) {
                    Some(next) if self.chain.get(next).first <= id => true,
                    _ if self.is_away(reading.heap, self.chain.get(at)) => false,
                    _ => self.goes_whole(reading, at, keep, left, live),
                },
            };
            if !goes_whole {
                let loses_some = match keep {
                    _ if is_over => false,
                    Trim::Len(_) => !whole,
                    Trim::From(id) => self.chain.get(at).first < id,
                };
                // The first entry of what is left is in it, or, if what it loses is all that it has, in the
                // next.
                let behind = next.filter(|_| loses_some && matches!(keep, Trim::From(_)));
                let behind = behind.and_then(|at| self.chain.next(at));
                next = next.filter(|_| gone > 0 || loses_some);
                return self.want(reading, next.into_iter().chain(behind));
            }
            (gone, next) = (gone + live, self.chain.next(at));
        }
        Ok(())
    }

    #[cold]
    fn want(&self, reading: Reading<'_>, places: impl IntoIterator<Item = At>) -> Result<(), Full> {
        for piece in places.into_iter().map(|at| self.chain.get(at)) {
            if !piece.large {
                self.nodes.is_shown(reading, piece.number);
            }
        }
        // Blocks that were looked at before may be missing too.
        if reading.cold.has_failed() { Err(Full) } else { Ok(()) }
    }
}

impl Blocks for Stream {
    fn nodes(&self) -> &Nodes {
        &self.nodes
    }

    fn nodes_mut(&mut self) -> &mut Nodes {
        &mut self.nodes
    }

    fn node<'a>(&self, store: &'a Store, id: u32) -> &'a [u8] {
        self.block(reading_of(store), &Piece { first: StreamId::MIN, number: id, large: false, live: 0 }).0
    }

    fn payload_bytes(node: &[u8]) -> usize {
        Block(node).used()
    }

    fn write_payload(node: &[u8], into: &mut Vec<u8>) {
        into.extend_from_slice(&node[..Block(node).used()]);
        into[..SHARED_HEAD_BYTES].fill(0);
    }

    fn restore(payload: &[u8], node: &mut [u8], now: UnixMs) {
        block::set_stamp(node, now);
        node[SHARED_HEAD_BYTES..payload.len()].copy_from_slice(&payload[SHARED_HEAD_BYTES..]);
        block::set_room(node);
    }

    fn idle_seconds(node: &[u8], now: UnixMs) -> u32 {
        let then = i64::try_from(Block(node).last().ms).unwrap_or(i64::MAX);
        let since_last = u32::try_from(now.0.saturating_sub(then).max(0) / 1000).unwrap_or(u32::MAX);
        since_last.min(block::idle_seconds_max(node, now))
    }
}
