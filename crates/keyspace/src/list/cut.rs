//! A list as it was at the cut of a snapshot.
//!
//! ```text
//!   before the first change after the cut     chain := a copy of the list's chain (its groups are shared, 8 B each)
//!   before a block changes or goes            saved[node] := its bytes, unless the snapshot has seen it
//!   before a large element goes               large[number] := the body, shared
//!   the walk                                  piece by piece of the cut's chain: what was saved, else what is there
//! ```
//!
//! A block that the walk has seen carries the snapshot's epoch, and so does one that was born after the cut: neither is
//! saved. Whoever frees a number of a piece saves it first, so a number that is taken anew never hides an old piece.

use super::block::Block;
use super::{List, Piece};
use crate::chain::{At, Chain};
use crate::large::Shared;
use crate::nodes::{NodeId, Room};
use crate::packed::Element;
use std::collections::BTreeMap;

pub(super) struct Cut {
    chain: Chain<Piece>,
    saved: BTreeMap<NodeId, Box<[u8]>>,
    large: BTreeMap<u32, Shared>,
    /// What the walk emits next.
    next: Option<At>,
}

impl List {
    /// Has to come before every change of the list.
    #[inline]
    pub(super) fn before_change(&mut self, room: &Room<'_>) {
        if room.era.active && self.version != room.era.epoch && self.cut.is_none() {
            self.begin_cut();
        }
    }

    #[cold]
    fn begin_cut(&mut self) {
        let chain = self.chain.clone();
        let next = chain.first();
        self.cut = Some(Box::new(Cut { chain, saved: BTreeMap::new(), large: BTreeMap::new(), next }));
    }

    /// Has to come before every change of a block, and before it is freed.
    #[inline]
    pub(super) fn before_block_change(&mut self, room: &mut Room<'_>, node: NodeId) {
        if self.cut.is_some() && self.nodes.version(room.heap, node) != room.era.epoch {
            self.save_block(room, node);
        }
    }

    #[cold]
    fn save_block(&mut self, room: &mut Room<'_>, node: NodeId) {
        let bytes = self.block(room.reading(), node).0.into();
        self.nodes.set_version(room.heap, node, room.era.epoch);
        let cut = self.cut.as_mut().expect("the caller has looked");
        cut.saved.insert(node, bytes);
    }

    /// Has to come before a large element is freed.
    pub(super) fn before_large_change(&mut self, room: &Room<'_>, number: u32) {
        if let Some(cut) = &mut self.cut {
            cut.large.entry(number).or_insert_with(|| room.large.share(number));
        }
    }

    /// Whether the snapshot under way has yet to see (all of) the list.
    pub fn is_unseen(&self, room: &Room<'_>) -> bool {
        room.era.active && self.version != room.era.epoch
    }

    /// Elements at the cut; only while the list is unseen.
    pub fn cut_len(&self) -> u64 {
        self.cut.as_ref().map_or(self.chain.count(), |cut| cut.chain.count())
    }

    /// Emits the next elements of the list as it was at the cut, some `pieces_max` blocks of them. True when that was
    /// all; the list counts as seen then.
    pub fn emit_cut(
        &mut self,
        room: &mut Room<'_>,
        pieces_max: usize,
        visit: &mut dyn FnMut(Element<'_>),
    ) -> bool {
        debug_assert!(self.is_unseen(room));
        if self.cut.is_none() {
            self.begin_cut();
        }
        for _ in 0..pieces_max {
            let cut = self.cut.as_mut().expect("it was just begun");
            let Some(at) = cut.next else { break };
            cut.next = cut.chain.next(at);
            let piece = *cut.chain.get(at);
            self.emit_piece(room, piece, visit);
        }
        let done = self.cut.as_ref().is_some_and(|cut| cut.next.is_none());
        if done {
            self.cut = None;
            self.version = room.era.epoch;
        }
        done
    }

    fn emit_piece(&mut self, room: &mut Room<'_>, piece: Piece, visit: &mut dyn FnMut(Element<'_>)) {
        let cut = self.cut.as_mut().expect("the walk is under way");
        match piece {
            Piece::Large { number, .. } => match cut.large.remove(&number) {
                Some(body) => visit(Element::Bytes(&body)),
                None => visit(Element::Bytes(room.large.get(number))),
            },
            Piece::Block { node, .. } => match cut.saved.remove(&node) {
                Some(bytes) => emit_block(Block(&bytes), visit),
                None => {
                    debug_assert_ne!(self.nodes.version(room.heap, node), room.era.epoch);
                    emit_block(self.block(room.reading(), node), visit);
                    self.nodes.set_version(room.heap, node, room.era.epoch);
                }
            },
        }
    }
}

fn emit_block(block: Block<'_>, visit: &mut dyn FnMut(Element<'_>)) {
    block.cells().for_each(|cell| visit(block.element(cell)));
}
