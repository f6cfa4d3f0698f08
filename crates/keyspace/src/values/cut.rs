//! The pieces of a list or a stream as they were at the cut of a snapshot.
//!
//! ```text
//!   before the first change after the cut     chain := a copy of the collection's chain, which shares all of it
//!   before a block changes                    saved[node] := its bytes, unless the snapshot has seen it
//!   instead of freeing a block                orphans += node: it stays as it is until it was emitted
//!   before a large body changes or goes       large[number] := the body, shared
//!   the walk                                  piece by piece of the cut's chain: what was saved, else what is there
//! ```
//!
//! A block that is not in memory stays so: what takes the snapshot reads its record. One that the cut has yet
//! to see does not leave.
//!
//! A block that the walk has seen carries the snapshot's epoch, and so does one that was born after the cut:
//! neither is saved. The memory of a cut follows the amount written: ten million elements that are cut off at
//! once are kept, not copied. An orphan keeps its number; the number of a large body may be taken anew, for a
//! body that the cut does not have.

use crate::layout::chain::{At, Chain, Counted};
use crate::layout::cold::ColdRef;
use crate::layout::large::Shared;
use crate::layout::node_name::NodeName;
use crate::values::nodes::{NodeId, Nodes, Room};
use std::collections::{BTreeMap, BTreeSet};

/// Item of a chain that stands for a few elements in a row.
pub(crate) trait Piece: Counted + Copy {
    fn body(&self) -> Body;
    /// Bytes of a node, by its head.
    fn node_bytes(room: &Room<'_>, nodes: &Nodes, node: NodeId) -> usize;
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Body {
    Node(NodeId),
    /// Number among the store's large bodies.
    Large(u32),
}

/// A piece as it was.
pub(crate) enum PieceBytes<'a> {
    Node(&'a [u8]),
    /// A node that is not in memory.
    Away(NodeName, ColdRef),
    Large(Shared),
}

pub(crate) struct Cut<P> {
    chain: Chain<P>,
    saved: BTreeMap<NodeId, Box<[u8]>>,
    saved_bytes: u64,
    orphans: BTreeSet<NodeId>,
    large: BTreeMap<u32, Shared>,
    /// Pieces that had been cut off before, and were not freed yet.
    waste: Chain<P>,
    /// Piece that the walk emits next.
    next: Option<At>,
    /// The snapshot ended before all was emitted: nothing is saved any more, and what was is dropped in
    /// steps.
    is_abandoned: bool,
}

impl<P: Piece> Cut<P> {
    /// `waste`: what is to be freed and not to be emitted.
    pub fn of(chain: &Chain<P>, waste: Chain<P>) -> Cut<P> {
        Cut {
            chain: chain.clone(),
            saved: BTreeMap::new(),
            saved_bytes: 0,
            orphans: BTreeSet::new(),
            large: BTreeMap::new(),
            waste,
            next: chain.first(),
            is_abandoned: false,
        }
    }

    /// Has to come before every change of a body.
    pub fn before_change(&mut self, room: &mut Room<'_>, nodes: &Nodes, body: Body) {
        if self.is_abandoned {
            return;
        }
        match body {
            Body::Large(number) => {
                self.large.entry(number).or_insert_with(|| room.large.share(number));
            }
            Body::Node(node) if nodes.version(room.heap, node) != room.epoch => {
                let size = P::node_bytes(room, nodes, node);
                let old = self.saved.insert(node, room.heap.bytes(nodes.handle(node), size).into());
                debug_assert!(old.is_none(), "a node is saved once");
                self.saved_bytes += size as u64;
                nodes.set_version(room.heap, node, room.epoch);
            }
            Body::Node(_) => {}
        }
    }

    /// Has to come before a body is freed. Returns whether it is to stay instead.
    pub fn keeps(&mut self, room: &mut Room<'_>, nodes: &Nodes, body: Body) -> bool {
        match body {
            _ if self.is_abandoned => false,
            Body::Node(node) if nodes.version(room.heap, node) != room.epoch => self.orphans.insert(node),
            _ => {
                self.before_change(room, nodes, body);
                false
            }
        }
    }

    /// Emits the next piece's bytes as they were. Returns false if there is none left.
    pub fn emit_next(
        &mut self,
        room: &mut Room<'_>,
        nodes: &mut Nodes,
        emit: &mut dyn FnMut(PieceBytes<'_>),
    ) -> bool {
        let Some(at) = self.next else { return false };
        self.next = self.chain.next(at);
        match self.chain.get(at).body() {
            Body::Large(number) => {
                let body = self.large.remove(&number).unwrap_or_else(|| room.large.share(number));
                emit(PieceBytes::Large(body));
            }
            Body::Node(node) => match self.saved.remove(&node) {
                Some(bytes) => {
                    self.saved_bytes -= bytes.len() as u64;
                    emit(PieceBytes::Node(&bytes));
                }
                None => self.emit_live(room, nodes, node, emit),
            },
        }
        true
    }

    fn emit_live(
        &mut self,
        room: &mut Room<'_>,
        nodes: &mut Nodes,
        node: NodeId,
        emit: &mut dyn FnMut(PieceBytes<'_>),
    ) {
        debug_assert_ne!(nodes.version(room.heap, node), room.epoch, "it is emitted once");
        let size = P::node_bytes(room, nodes, node);
        emit(match nodes.reference_at(room.heap, node) {
            Some(reference) => PieceBytes::Away(nodes.name(node), reference),
            None => PieceBytes::Node(room.heap.bytes(nodes.handle(node), size)),
        });
        if self.orphans.remove(&node) {
            nodes.release(room, node, size);
        } else {
            nodes.set_version(room.heap, node, room.epoch);
        }
    }

    /// Returns whether all pieces were emitted, or forgotten.
    pub fn is_over(&self) -> bool {
        self.chain.is_empty() && self.saved.is_empty() && self.orphans.is_empty()
    }

    pub fn abandon(&mut self) {
        self.is_abandoned = true;
    }

    pub fn is_abandoned(&self) -> bool {
        self.is_abandoned
    }

    /// Drops about `pieces_max` pieces of what is not to be emitted any more. Returns true when nothing is
    /// left.
    pub fn forget_step(&mut self, room: &mut Room<'_>, nodes: &mut Nodes, pieces_max: usize) -> bool {
        self.next = None;
        for _ in 0..pieces_max {
            if let Some((_, bytes)) = self.saved.pop_first() {
                self.saved_bytes -= bytes.len() as u64;
                continue;
            }
            if self.large.pop_first().is_some() {
                continue;
            }
            if let Some(node) = self.orphans.pop_first() {
                let size = P::node_bytes(room, nodes, node);
                nodes.release(room, node, size);
            } else if self.chain.drop_step(1) {
                return true;
            }
        }
        false
    }

    /// A piece to be freed.
    pub fn take_waste(&mut self) -> Option<P> {
        self.waste.last().map(|at| self.waste.remove(at))
    }

    /// Returns all pieces that are to be freed.
    pub fn into_waste(self) -> Chain<P> {
        self.waste
    }

    pub fn waste(&self) -> impl Iterator<Item = &P> {
        self.waste.iter()
    }

    /// Nodes that only the cut still has.
    pub fn orphans(&self) -> impl Iterator<Item = NodeId> + '_ {
        self.orphans.iter().copied()
    }

    /// Copies that it keeps.
    pub fn kept_bytes(&self) -> u64 {
        self.saved_bytes
    }

    pub fn is_emitted(&self) -> bool {
        self.next.is_none()
    }

    /// Drops what it has of the chain in steps. Returns true when nothing is left; everything was emitted.
    pub fn drop_step(&mut self, groups_max: usize) -> bool {
        debug_assert!(self.is_emitted() && self.saved.is_empty() && self.orphans.is_empty());
        self.chain.drop_step(groups_max)
    }
}
