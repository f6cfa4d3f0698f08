//! Blocks of a list that are not in memory (see `crate::values::blocks`): what a change needs, and what their
//! bytes are.
//!
//! A change wants the blocks that it writes to or looks at; those that it drops as a whole it does not read,
//! and nothing is joined with one that is away. A push to an end that is away begins a block of its own.

use super::block::{self, Block, HEAD_BYTES};
use super::{End, List, Piece};
use crate::layout::chain::At;
use crate::layout::kind::Full;
use crate::layout::last_used;
use crate::layout::packed::Element;
use crate::values::blocks::{Blocks, reading_of};
use crate::values::nodes::{Nodes, Reading};
use crate::values::store::Store;
use isotherm_stdx::UnixMs;

impl List {
    /// The block of element `index` is about to change.
    #[inline]
    pub(super) fn want_at(&self, reading: Reading<'_>, index: u64) -> Result<(), Full> {
        if self.nodes.away() == 0 {
            return Ok(());
        }
        self.want(reading, self.chain.find(index).map(|(at, _)| at))
    }

    /// Elements up to or from these are about to be taken out: blocks that lose some, and not all, are
    /// written.
    #[inline]
    pub(super) fn want_edges(&self, reading: Reading<'_>, edges: [u64; 2]) -> Result<(), Full> {
        if self.nodes.away() == 0 {
            return Ok(());
        }
        let is_cut = |edge: u64| match self.chain.find(edge) {
            Some((at, rest)) => (rest > 0).then_some(at),
            None => None,
        };
        self.want(reading, edges.into_iter().filter_map(is_cut))
    }

    /// Elements equal to this one are looked for from an end, up to `count` of them, to be taken out.
    #[inline]
    pub(super) fn want_equal(
        &self,
        reading: Reading<'_>,
        from: End,
        count: u64,
        element: Element<'_>,
    ) -> Result<(), Full> {
        if self.nodes.away() == 0 {
            return Ok(());
        }
        let index = if from == End::Front { 0 } else { self.len() - 1 };
        let equal = self.iter(reading, index, from).search(element, u64::MAX);
        _ = equal.take(usize::try_from(count).unwrap_or(usize::MAX)).count();
        self.refuse_wanted(reading)
    }

    #[cold]
    fn want(&self, reading: Reading<'_>, places: impl IntoIterator<Item = At>) -> Result<(), Full> {
        for at in places {
            if let Piece::Block { node, .. } = *self.chain.get(at) {
                self.nodes.is_shown(reading, node);
            }
        }
        self.refuse_wanted(reading)
    }

    /// Returns an error if something that the command has looked at is not in memory, here or before.
    fn refuse_wanted(&self, reading: Reading<'_>) -> Result<(), Full> {
        if reading.cold.has_failed() { Err(Full) } else { Ok(()) }
    }
}

impl Blocks for List {
    fn nodes(&self) -> &Nodes {
        &self.nodes
    }

    fn nodes_mut(&mut self) -> &mut Nodes {
        &mut self.nodes
    }

    fn node<'a>(&self, store: &'a Store, id: u32) -> &'a [u8] {
        self.block(reading_of(store), id).0
    }

    fn payload_bytes(node: &[u8]) -> usize {
        Block(node).bytes()
    }

    fn write_payload(node: &[u8], into: &mut Vec<u8>) {
        block::write_payload(Block(node), into);
    }

    fn restore(payload: &[u8], node: &mut [u8], now: UnixMs) {
        block::lay_out(payload, node);
        block::set_stamp(node, last_used::stamp(now));
    }

    fn idle_seconds(node: &[u8], now: UnixMs) -> u32 {
        u32::from(last_used::idle_seconds(Block(&node[..HEAD_BYTES]).stamp(), now))
    }
}
