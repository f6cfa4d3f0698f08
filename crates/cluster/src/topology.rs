//! The knowledge that a node has of its cluster, as a value that does not change: clients are answered from
//! it.
//!
//! The machine makes one after each change that a client can see; workers compare a generation and keep the
//! newest.

pub mod info;
pub mod ready;
pub mod replies;

#[cfg(test)]
mod tests;

use crate::{Flags, NodeId, Slot, SlotRanges};
use std::sync::Arc;

/// An index into `Topology::nodes`.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct NodeIndex(pub u16);

/// Why commands are refused.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum State {
    Ok,
    /// A slot has no owner, or its owner has failed.
    Uncovered,
    /// Most primaries are out of reach.
    Minority,
    /// After a start or a rejoin, for a moment.
    Waiting,
}

#[derive(Clone, Debug)]
pub struct Topology {
    pub generation: u64,
    /// Nodes in ascending order of their ids. This node is one of them.
    pub nodes: Vec<Node>,
    pub myself: NodeIndex,
    /// Indexed by slot. Shared by the topologies between two moves of a slot.
    pub owners: Arc<[Option<NodeIndex>; Slot::COUNT]>,
    pub migrating: Vec<(Slot, NodeId)>,
    pub importing: Vec<(Slot, NodeId)>,
    pub state: State,
    pub current_epoch: u64,
    pub last_vote_epoch: u64,
    /// Primaries with slots.
    pub size: usize,
}

#[derive(Clone, Debug)]
pub struct Node {
    pub id: NodeId,
    pub shard: NodeId,
    pub flags: Flags,
    pub primary: Option<NodeIndex>,
    pub address: Arc<Address>,
    pub config_epoch: u64,
    /// Unix times in ms; 0: none.
    pub ping_sent_ms: u64,
    pub pong_received_ms: u64,
    pub is_connected: bool,
    pub offset: u64,
    /// Slots that are its own.
    pub slots: SlotRanges,
}

/// Addresses of a node, and the names that it announces.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub struct Address {
    pub ip: String,
    /// 0: none.
    pub tcp_port: u16,
    pub tls_port: u16,
    pub bus_port: u16,
    pub hostname: String,
    pub human_name: String,
    pub availability_zone: String,
    pub client_ipv4: String,
    pub client_ipv6: String,
    pub client_tcp_port: u16,
    pub client_tls_port: u16,
}

impl Address {
    /// Returns the address by which clients of that family reach the node.
    pub fn client_ip(&self, is_ipv6: bool) -> &str {
        let announced = if is_ipv6 { &self.client_ipv6 } else { &self.client_ipv4 };
        if announced.is_empty() { &self.ip } else { announced }
    }

    pub fn client_port(&self, is_tls: bool) -> u16 {
        let (announced, own) = if is_tls {
            (self.client_tls_port, self.tls_port)
        } else {
            (self.client_tcp_port, self.tcp_port)
        };
        if announced == 0 { own } else { announced }
    }
}

impl Topology {
    pub fn node(&self, index: NodeIndex) -> &Node {
        &self.nodes[usize::from(index.0)]
    }

    pub fn me(&self) -> &Node {
        self.node(self.myself)
    }

    pub fn owner(&self, slot: Slot) -> Option<&Node> {
        self.owners[slot.index()].map(|index| self.node(index))
    }

    pub fn find(&self, id: &NodeId) -> Option<NodeIndex> {
        self.nodes.binary_search_by(|node| node.id.cmp(id)).ok().map(|at| NodeIndex(at as u16))
    }
}
