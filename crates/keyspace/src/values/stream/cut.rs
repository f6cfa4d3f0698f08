//! A stream as it was at the cut of a snapshot: its blocks (see `crate::values::cut`), what it knew of
//! itself, and its groups.
//!
//! ```text
//!   emitted   Block, Entry ..., State, for each group: Group, Pending ..., for each of its consumers: Consumer, Owned ...
//! ```
//!
//! Groups are shared until they change. The first change of a group after the cut copies its consumers, and
//! of what is pending the places of bunches: a thousandth of a byte for each.

use super::block::{self, Block, StreamBlock};
use super::group::{ConsumerGroup, ConsumerGroups, Pending};
use super::id::StreamId;
use super::shown::{Piece, StreamState};
use super::{Stream, StreamEntry};
use crate::layout::chain::Chain;
use crate::values::cut::{Body, Cut, Piece as Cuttable, PieceBytes};
use crate::values::nodes::{NodeId, Nodes, Room};
use crate::values::parts::Part;
use crate::values::receiver::{LongPart, NodeOf, NodePart, Receiver};
use std::sync::Arc;

/// Ids that are emitted for one node of the walk's budget.
const IDS_PER_NODE: usize = 64;

/// Part of a stream that a snapshot emits. The parts come in the order of the variants.
#[derive(Clone, Copy, Debug)]
pub enum StreamPart<'a> {
    /// A block; its entries follow.
    Block(StreamBlock<'a>),
    Entry(StreamEntry<'a>),
    /// The groups follow.
    State {
        state: StreamState,
        groups: usize,
    },
    /// A group; its pending entries follow, then its consumers.
    Group {
        name: &'a [u8],
        last_id: StreamId,
        entries_read: Option<u64>,
        pending: u64,
        consumers: usize,
    },
    Pending(&'a Pending),
    /// The ids that it owns follow.
    Consumer {
        name: &'a [u8],
        seen_ms: i64,
        active_ms: i64,
        pending: u64,
    },
    Owned(StreamId),
}

pub(super) struct StreamCut {
    pub blocks: Cut<Piece>,
    state: StreamState,
    groups: Arc<ConsumerGroups>,
    walk: Walk,
}

/// Position of the walk: the part that is emitted next.
enum Walk {
    Blocks,
    State,
    /// The group after this one.
    Group(Option<Box<[u8]>>),
    /// Pending entries of a group, from an id on.
    Pending(Box<[u8]>, StreamId),
    /// Consumer of a group, the next one after this name.
    Consumer(Box<[u8]>, Option<Arc<[u8]>>),
    Owned(Box<[u8]>, Arc<[u8]>, StreamId),
    Done,
}

impl Cuttable for Piece {
    fn body(&self) -> Body {
        if self.large { Body::Large(self.number) } else { Body::Node(self.number) }
    }

    fn node_bytes(room: &Room<'_>, nodes: &Nodes, node: NodeId) -> usize {
        Block(room.heap.bytes(nodes.handle(node), block::SHARED_HEAD_BYTES)).room()
    }
}

impl Stream {
    /// A snapshot has yet to emit the stream as it is now, or no longer.
    pub fn keep_cut(&mut self, saving: bool) {
        if !saving && let Some(cut) = &mut self.cut {
            cut.blocks.abandon();
            let Some(cut) = self.cut.take_if(|cut| cut.blocks.is_over()) else { return };
            self.debris.append(cut.blocks.into_waste());
            self.gone.extend(Arc::into_inner(cut.groups).into_iter().flat_map(ConsumerGroups::into_groups));
        } else if saving && self.cut.is_none() {
            let waste = std::mem::replace(&mut self.debris, Chain::new());
            self.cut = Some(Box::new(StreamCut {
                blocks: Cut::of(&self.chain, waste),
                state: self.state,
                groups: Arc::clone(&self.groups),
                walk: Walk::Blocks,
            }));
        }
    }

    /// Drops some of what is kept for a snapshot that ended early. Returns true when nothing is left of that.
    pub fn forget_cut(&mut self, room: &mut Room<'_>, pieces_max: usize) -> bool {
        let Some(cut) = self.cut.as_mut().filter(|cut| cut.blocks.is_abandoned()) else { return true };
        let done = cut.blocks.forget_step(room, &mut self.nodes, pieces_max);
        if done {
            self.keep_cut(false);
        }
        done
    }

    /// Has to come before every change of a block.
    pub(super) fn before_change(&mut self, room: &mut Room<'_>, piece: Piece) {
        // Where no block ever leaves memory, none has a record, and no one asks when it was changed.
        if room.cold.keeper.is_some() && !piece.large {
            self.note_change(room, piece.number);
        }
        if let Some(cut) = &mut self.cut {
            cut.blocks.before_change(room, &self.nodes, piece.body());
        }
    }

    #[inline(never)]
    fn note_change(&self, room: &mut Room<'_>, node: NodeId) {
        self.nodes.drop_clean(room.cold, node);
        let (now, handle) = (room.now, self.nodes.handle(node));
        block::set_stamp(room.heap.bytes_mut(handle, block::SHARED_HEAD_BYTES), now);
    }

    /// Has to come before a block is freed. Returns whether it is to stay instead.
    pub(super) fn is_kept(&mut self, room: &mut Room<'_>, piece: Piece) -> bool {
        self.cut.as_mut().is_some_and(|cut| cut.blocks.keeps(room, &self.nodes, piece.body()))
    }

    /// Emits what comes next of the stream as it was at the cut, a block of it at most. Returns true when
    /// that was all.
    pub fn emit_cut(&mut self, room: &mut Room<'_>, receiver: &mut dyn Receiver) -> bool {
        self.keep_cut(true);
        let cut = self.cut.as_mut().expect("it was just begun");
        let done = cut.emit_next(room, &mut self.nodes, receiver);
        if done {
            self.keep_cut(false);
        }
        done
    }
}

impl StreamCut {
    /// True when everything was emitted.
    fn emit_next(&mut self, room: &mut Room<'_>, nodes: &mut Nodes, receiver: &mut dyn Receiver) -> bool {
        match &self.walk {
            Walk::Blocks => {
                let emitted = self.blocks.emit_next(room, nodes, &mut |piece| match piece {
                    PieceBytes::Large(body) => receiver.long(LongPart::Block(body)),
                    PieceBytes::Away(name, reference) => {
                        receiver.long(LongPart::Node(NodePart { name, reference, of: NodeOf::Stream }));
                    }
                    PieceBytes::Node(bytes) => {
                        emit_block(bytes, &mut |part| receiver.part(Part::Stream(part)));
                    }
                });
                if !emitted && self.blocks.drop_step(IDS_PER_NODE) {
                    self.walk = Walk::State;
                }
            }
            Walk::State => {
                let state = StreamPart::State { state: self.state, groups: self.groups.len() };
                receiver.part(Part::Stream(state));
                self.walk = Walk::Group(None);
            }
            Walk::Done => return true,
            walk => self.walk = walk.step(&self.groups, &mut |part| receiver.part(Part::Stream(part))),
        }
        false
    }
}

pub(crate) fn emit_block(bytes: &[u8], visit: &mut dyn FnMut(StreamPart<'_>)) {
    let block = StreamBlock(Block(bytes));
    visit(StreamPart::Block(block));
    block.entries().for_each(|entry| visit(StreamPart::Entry(entry)));
}

/// The parts of a block that was read. Returns false if its payload is none.
pub(crate) fn read_payload(payload: &[u8], visit: &mut dyn FnMut(StreamPart<'_>)) -> bool {
    let is_one = payload.len() > block::HEAD_BYTES && Block(payload).used() == payload.len();
    if is_one {
        emit_block(payload, visit);
    }
    is_one
}

impl Walk {
    /// Emits some of the groups; what comes next.
    fn step(&self, groups: &ConsumerGroups, visit: &mut dyn FnMut(StreamPart<'_>)) -> Walk {
        let group = |name: &[u8]| groups.get(name).expect("the cut keeps its groups");
        match self {
            Walk::State | Walk::Blocks | Walk::Done => unreachable!("groups come behind the blocks"),
            Walk::Group(name) => match groups.after(name.as_deref()) {
                None => Walk::Done,
                Some((name, group)) => {
                    visit(group_part(name, group));
                    Walk::Pending(name.into(), StreamId::MIN)
                }
            },
            Walk::Pending(name, from) => {
                let pending = group(name).pending_from(*from).take(IDS_PER_NODE);
                let next =
                    emit_ids(pending, |pending| pending.id, |pending| visit(StreamPart::Pending(pending)));
                next.map_or_else(
                    || Walk::Consumer(name.clone(), None),
                    |next| Walk::Pending(name.clone(), next),
                )
            }
            Walk::Consumer(name, before) => match group(name).consumer_after(before.as_deref()) {
                None => Walk::Group(Some(name.clone())),
                Some((consumer, found)) => {
                    let (seen_ms, active_ms) = (found.seen_ms, found.active_ms);
                    let pending = found.pending_len();
                    visit(StreamPart::Consumer { name: consumer, seen_ms, active_ms, pending });
                    Walk::Owned(name.clone(), Arc::clone(consumer), StreamId::MIN)
                }
            },
            Walk::Owned(name, consumer, from) => {
                let found = &group(name).consumers()[consumer];
                let ids = found.pending_from(*from).take(IDS_PER_NODE);
                let next = emit_ids(ids, |id| *id, |id| visit(StreamPart::Owned(id)));
                let (name, consumer) = (name.clone(), Arc::clone(consumer));
                match next {
                    Some(next) => Walk::Owned(name, consumer, next),
                    None => Walk::Consumer(name, Some(consumer)),
                }
            }
        }
    }
}

/// Emits items; returns the id to continue with, if there may be more.
fn emit_ids<T>(
    items: impl Iterator<Item = T>,
    id: impl Fn(&T) -> StreamId,
    mut emit: impl FnMut(T),
) -> Option<StreamId> {
    let (mut count, mut last) = (0, StreamId::MIN);
    for item in items {
        (count, last) = (count + 1, id(&item));
        emit(item);
    }
    if count < IDS_PER_NODE { None } else { last.next() }
}

fn group_part<'a>(name: &'a [u8], group: &ConsumerGroup) -> StreamPart<'a> {
    StreamPart::Group {
        name,
        last_id: group.last_id,
        entries_read: group.entries_read,
        pending: group.pending_len(),
        consumers: group.consumers().len(),
    }
}
