//! The machine's state as others see it: the topology that clients are answered from, and nodes.conf.
//!
//! A topology is made ten times a second, since times of pings are in it; what it says of slots is made when
//! a slot has moved.

use super::{Handle, Machine, Now};
use crate::conf::{Conf, ConfNode};
use crate::topology::{self, Address, NodeIndex, Topology};
use crate::{Slot, SlotRanges};
use std::collections::BTreeMap;
use std::sync::Arc;

/// Parts of a topology that stay the same while no node is added or removed and no slot moves.
pub(super) struct Shape {
    /// Versions of the nodes and of the owners from which the shape was made.
    versions: (u64, u64),
    owners: Arc<[Option<NodeIndex>; Slot::COUNT]>,
    /// Slots of each node, in the order of the nodes.
    slots: Vec<SlotRanges>,
}

impl Machine {
    fn shape(&mut self) -> &Shape {
        let versions = (self.nodes.version(), self.owners_version);
        if self.shape.as_ref().is_none_or(|shape| shape.versions != versions) {
            self.shape = Some(self.new_shape(versions));
        }
        self.shape.as_ref().expect("made above")
    }

    fn new_shape(&self, versions: (u64, u64)) -> Shape {
        let indexes = self.indexes();
        let index_of = |slot: Slot| self.owner(slot).and_then(|owner| indexes[owner.number() as usize]);
        let mut owners = [None; Slot::COUNT];
        Slot::all().for_each(|slot| owners[slot.index()] = index_of(slot));
        let owner = |slot: Slot| owners[slot.index()].map(|index: NodeIndex| usize::from(index.0));
        let slots = SlotRanges::by_owner(self.nodes.len(), owner);
        Shape { versions, owners: Arc::new(owners), slots }
    }

    /// Returns, for each handle, the index of its node in a topology.
    fn indexes(&self) -> Vec<Option<NodeIndex>> {
        let mut indexes = vec![None; self.nodes.places()];
        for (at, (handle, _)) in self.nodes.iter().enumerate() {
            indexes[handle.number() as usize] = Some(NodeIndex(at as u16));
        }
        indexes
    }

    pub(super) fn topology(&mut self, now: Now) -> Arc<Topology> {
        self.generation += 1;
        self.commits.shown = self.health.state;
        let shape = self.shape();
        let (owners, slots) = (shape.owners.clone(), shape.slots.clone());
        let indexes = self.indexes();
        let index_of =
            |handle: Handle| indexes[handle.number() as usize].expect("a node's primary is a node");
        let nodes = self
            .nodes
            .iter()
            .zip(slots)
            .map(|((handle, node), slots)| topology::Node {
                id: node.id,
                shard: node.shard,
                flags: node.flags,
                primary: node.primary.map(index_of),
                address: node.address.clone(),
                config_epoch: node.config_epoch,
                ping_sent_ms: node.ping_sent.map_or(0, |at| now.unix_of(at)),
                pong_received_ms: node.pong_received.map_or(0, |at| now.unix_of(at)),
                is_connected: node.outbound.is_some() || handle == self.me,
                offset: if handle == self.me { self.offset } else { node.offset },
                slots,
            })
            .collect();
        let id_of = |(slot, node): (&Slot, &Handle)| (*slot, self.nodes[*node].id);
        Arc::new(Topology {
            generation: self.generation,
            nodes,
            myself: index_of(self.me),
            owners,
            migrating: self.migrating.iter().map(id_of).collect(),
            importing: self.importing.iter().map(id_of).collect(),
            state: self.health.state,
            current_epoch: self.current_epoch,
            last_vote_epoch: self.last_vote_epoch,
            size: self.health.size,
        })
    }

    /// The slots of a node that is one, from what is made once for all.
    pub(super) fn slots_of(&mut self, node: Handle) -> SlotRanges {
        let place = self.nodes.iter().position(|(handle, _)| handle == node).expect("a handle is of a node");
        self.shape().slots[place].clone()
    }

    /// Makes the file as it is to be.
    pub fn conf(&mut self, now: Now) -> Conf {
        let slots = self.shape().slots.clone();
        let known = self.nodes.iter().zip(slots).filter(|((_, node), _)| !node.is_in_handshake());
        let nodes = known.map(|((handle, node), slots)| {
            let open = |slots: &BTreeMap<Slot, Handle>| -> Vec<_> {
                let mine = slots.iter().filter(|_| handle == self.me);
                mine.map(|(slot, node)| (*slot, self.nodes[*node].id)).collect()
            };
            ConfNode {
                id: node.id,
                address: Address::clone(&node.address),
                shard: Some(node.shard),
                flags: node.flags,
                primary: node.primary.map(|primary| self.nodes[primary].id),
                ping_sent_ms: node.ping_sent.map_or(0, |at| now.unix_of(at)),
                pong_received_ms: node.pong_received.map_or(0, |at| now.unix_of(at)),
                config_epoch: self.epoch_of(handle),
                is_connected: node.outbound.is_some() || handle == self.me,
                slots,
                migrating: open(&self.migrating),
                importing: open(&self.importing),
            }
        });
        Conf {
            nodes: nodes.collect(),
            current_epoch: self.current_epoch,
            last_vote_epoch: self.last_vote_epoch,
            forgotten: self.forgotten.ids(),
        }
    }
}
