//! The machine's state as others see it: the topology that clients are answered from, and nodes.conf.
//!
//! A topology is made ten times a second, since times of pings are in it; what it says of slots is made when
//! a slot has moved (`Shape`).

use super::epochs::Epochs;
use super::forgotten::Forgotten;
use super::health::Health;
use super::node::{Node, Nodes};
use super::slots::{Shape, Slots};
use super::{Handle, Now};
use crate::conf::{Conf, ConfNode};
use crate::topology::{self, Address, Topology};
use crate::{NodeId, Slot};
use std::collections::BTreeMap;
use std::sync::Arc;

/// Parts of the machine that others see, at one moment.
pub struct Shown<'m> {
    pub nodes: &'m Nodes,
    pub slots: &'m Slots,
    pub shape: Shape,
    pub epochs: &'m Epochs,
    pub forgotten: &'m Forgotten,
    pub health: &'m Health,
    /// Replication offset of this node.
    pub offset: u64,
    pub now: Now,
}

impl Shown<'_> {
    pub fn topology(self, generation: u64) -> Arc<Topology> {
        let indexes = self.nodes.indexes();
        let index_of =
            |handle: Handle| indexes[handle.number() as usize].expect("a node's primary is a node");
        let nodes = self
            .nodes
            .iter()
            .zip(&self.shape.slots)
            .map(|((handle, node), slots)| topology::Node {
                id: node.id,
                shard: node.shard,
                flags: node.flags,
                primary: node.primary.map(index_of),
                address: node.address.clone(),
                config_epoch: node.config_epoch,
                ping_sent_ms: self.ping_sent_ms(node),
                pong_received_ms: self.pong_received_ms(node),
                is_connected: self.is_connected(handle),
                offset: if handle == self.nodes.me { self.offset } else { node.offset },
                slots: slots.clone(),
            })
            .collect();
        Arc::new(Topology {
            generation,
            nodes,
            myself: index_of(self.nodes.me),
            migrating: self.open(&self.slots.migrating).collect(),
            importing: self.open(&self.slots.importing).collect(),
            owners: self.shape.owners,
            state: self.health.state,
            current_epoch: self.epochs.current,
            last_vote_epoch: self.epochs.last_vote,
            size: self.health.size,
        })
    }

    pub fn conf(&self) -> Conf {
        let known = self.nodes.iter().zip(&self.shape.slots);
        let known = known.filter(|((_, node), _)| !node.is_in_handshake());
        let nodes = known.map(|((handle, node), slots)| {
            let open = |slots: &BTreeMap<Slot, Handle>| -> Vec<_> {
                self.open(slots).filter(|_| handle == self.nodes.me).collect()
            };
            ConfNode {
                id: node.id,
                address: Address::clone(&node.address),
                shard: Some(node.shard),
                flags: node.flags,
                primary: node.primary.map(|primary| self.nodes[primary].id),
                ping_sent_ms: self.ping_sent_ms(node),
                pong_received_ms: self.pong_received_ms(node),
                config_epoch: self.nodes.epoch_of(handle),
                is_connected: self.is_connected(handle),
                slots: slots.clone(),
                migrating: open(&self.slots.migrating),
                importing: open(&self.slots.importing),
            }
        });
        Conf {
            nodes: nodes.collect(),
            current_epoch: self.epochs.current,
            last_vote_epoch: self.epochs.last_vote,
            forgotten: self.forgotten.ids(),
        }
    }

    fn ping_sent_ms(&self, node: &Node) -> u64 {
        node.ping_sent.map_or(0, |at| self.now.unix_of(at))
    }

    fn pong_received_ms(&self, node: &Node) -> u64 {
        node.pong_received.map_or(0, |at| self.now.unix_of(at))
    }

    fn is_connected(&self, handle: Handle) -> bool {
        self.nodes[handle].outbound.is_some() || handle == self.nodes.me
    }

    fn open<'s>(&'s self, slots: &'s BTreeMap<Slot, Handle>) -> impl Iterator<Item = (Slot, NodeId)> + 's {
        slots.iter().map(|(slot, node)| (*slot, self.nodes[*node].id))
    }
}
