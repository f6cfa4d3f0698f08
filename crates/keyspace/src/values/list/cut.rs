//! A list as it was at the cut of a snapshot: its `crate::values::cut::Cut`, as long as it has yet to be
//! emitted.

use super::block::{self, Block};
use super::{List, Piece};
use crate::layout::chain::Chain;
use crate::layout::last_used::stamp;
use crate::values::cut::{Body, Cut, Piece as Cuttable, PieceBytes};
use crate::values::nodes::{NodeId, Nodes, Room};
use crate::values::parts::Part;
use crate::values::receiver::{LongPart, NodeOf, NodePart, Receiver};

impl Cuttable for Piece {
    fn body(&self) -> Body {
        match *self {
            Piece::Block { node, .. } => Body::Node(node),
            Piece::Large { number, .. } => Body::Large(number),
        }
    }

    fn node_bytes(room: &Room<'_>, nodes: &Nodes, node: NodeId) -> usize {
        Block(room.heap.bytes(nodes.handle(node), block::HEAD_BYTES)).room()
    }
}

fn emit_block(block: Block<'_>, visit: &mut dyn FnMut(Part<'_>)) {
    visit(Part::Node { alone: false });
    block.cells().for_each(|cell| visit(Part::Item(block.element(cell))));
}

/// The parts of a block that was read. Returns false if its payload is none.
pub(crate) fn read_payload(payload: &[u8], visit: &mut dyn FnMut(Part<'_>)) -> bool {
    let block = block::of_payload(payload);
    block.into_iter().for_each(|block| emit_block(block, visit));
    block.is_some()
}

impl List {
    /// A snapshot has yet to emit the list as it is now, or no longer.
    pub fn keep_cut(&mut self, saving: bool) {
        if !saving && let Some(cut) = &mut self.cut {
            cut.abandon();
            if let Some(cut) = self.cut.take_if(|cut| cut.is_over()) {
                self.debris.append(cut.into_waste());
            }
        } else if saving && self.cut.is_none() {
            let waste = std::mem::replace(&mut self.debris, Chain::new());
            self.cut = Some(Box::new(Cut::of(&self.chain, waste)));
        }
    }

    /// Drops some of what is kept for a snapshot that ended early. Returns true when nothing is left of that.
    pub fn forget_cut(&mut self, room: &mut Room<'_>, pieces_max: usize) -> bool {
        let Some(cut) = self.cut.as_mut().filter(|cut| cut.is_abandoned()) else { return true };
        let done = cut.forget_step(room, &mut self.nodes, pieces_max);
        if done {
            self.keep_cut(false);
        }
        done
    }

    /// Has to come before every change of a block.
    #[inline]
    pub(super) fn before_change(&mut self, room: &mut Room<'_>, node: NodeId) {
        // Where no block ever leaves memory, none has a record, and no one asks when it was changed.
        if room.cold.keeper.is_some() {
            self.note_change(room, node);
        }
        if let Some(cut) = &mut self.cut {
            cut.before_change(room, &self.nodes, Body::Node(node));
        }
    }

    #[inline(never)]
    fn note_change(&self, room: &mut Room<'_>, node: NodeId) {
        self.nodes.drop_clean(room.cold, node);
        let handle = self.nodes.handle(node);
        block::set_stamp(room.heap.bytes_mut(handle, block::HEAD_BYTES), stamp(room.now));
    }

    /// Has to come before a piece is freed. Returns whether it is to stay instead.
    #[inline]
    pub(super) fn is_kept(&mut self, room: &mut Room<'_>, piece: Piece) -> bool {
        self.cut.as_mut().is_some_and(|cut| cut.keeps(room, &self.nodes, piece.body()))
    }

    /// Emits the next block of the list as it was at the cut. Returns true when that was all.
    pub fn emit_cut(&mut self, room: &mut Room<'_>, receiver: &mut dyn Receiver) -> bool {
        self.keep_cut(true);
        let cut = self.cut.as_mut().expect("it was just begun");
        let emitted = cut.emit_next(room, &mut self.nodes, &mut |piece| match piece {
            PieceBytes::Large(body) => receiver.long(LongPart::Item(body)),
            PieceBytes::Away(name, reference) => {
                receiver.long(LongPart::Node(NodePart { name, reference, of: NodeOf::List }));
            }
            PieceBytes::Node(bytes) => {
                emit_block(Block(bytes), &mut |part| receiver.part(part));
            }
        });
        let done = !emitted && cut.drop_step(64);
        if done {
            self.keep_cut(false);
        }
        done
    }
}
