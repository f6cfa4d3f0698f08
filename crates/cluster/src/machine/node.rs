//! The nodes that this one knows, itself among them: a table of at most 65,534, by handle and by id.

use super::{LinkId, Ms};
use crate::conf::NODES_MAX;
use crate::topology::Address;
use crate::{Flags, NodeId};
use std::collections::BTreeMap;
use std::ops::{Index, IndexMut};
use std::sync::Arc;

/// A node's place in the table. It is given to another node after the node was removed, so nothing keeps it
/// beyond that.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Handle(u16);

impl Handle {
    pub(super) fn number(self) -> u32 {
        u32::from(self.0)
    }
}

/// Some 500 B with its address.
pub struct Node {
    pub id: NodeId,
    pub shard: NodeId,
    pub flags: Flags,
    pub config_epoch: u64,
    pub slot_count: u16,
    /// Primary that this node replicates. `None` for a replica: its primary is not known yet.
    pub primary: Option<Handle>,
    /// Shared with the topologies that show it, so it is not written in place (`address_mut`).
    pub address: Arc<Address>,
    pub offset: u64,
    pub created: Ms,
    pub ping_sent: Option<Ms>,
    pub pong_received: Option<Ms>,
    pub data_received: Option<Ms>,
    pub meet_sent: Option<Ms>,
    pub failed: Ms,
    pub attempted: Option<Ms>,
    /// Time of the last question for its host name.
    pub looked_up: Option<Ms>,
    /// The node that is expected to answer this handshake, and no other.
    pub sought: Option<NodeId>,
    pub inbound_lost: Ms,
    pub outbound: Option<LinkId>,
    pub inbound: Option<LinkId>,
    /// Primaries that report this node as unreachable, each with the time of its last report.
    pub reports: Vec<(Handle, Ms)>,
}

impl Node {
    pub fn new(id: NodeId, shard: NodeId, flags: Flags, now: Ms) -> Node {
        Node {
            id,
            shard,
            flags,
            config_epoch: 0,
            slot_count: 0,
            primary: None,
            address: Arc::default(),
            offset: 0,
            created: now,
            ping_sent: None,
            pong_received: None,
            data_received: None,
            meet_sent: None,
            failed: now,
            attempted: None,
            looked_up: None,
            sought: None,
            inbound_lost: now,
            outbound: None,
            inbound: None,
            reports: Vec::new(),
        }
    }

    /// Returns the address for writing. It is copied first if a topology still shares it.
    pub fn address_mut(&mut self) -> &mut Address {
        Arc::make_mut(&mut self.address)
    }

    pub fn is_primary(&self) -> bool {
        self.flags.has(Flags::PRIMARY)
    }

    pub fn is_replica(&self) -> bool {
        self.flags.has(Flags::REPLICA)
    }

    /// Only primaries with slots vote, and count for a majority.
    pub fn votes(&self) -> bool {
        self.is_primary() && self.slot_count > 0
    }

    pub fn is_in_handshake(&self) -> bool {
        self.flags.has(Flags::HANDSHAKE)
    }

    pub fn is_normal(&self) -> bool {
        !self.flags.has(Flags::HANDSHAKE | Flags::MEET | Flags::PFAIL | Flags::FAIL)
    }

    pub fn client_port(&self, is_tls: bool) -> u16 {
        if is_tls { self.address.tls_port } else { self.address.tcp_port }
    }

    /// Returns the human name of the node, or its IP address and port if it has none.
    pub fn shown_name(&self, is_tls: bool) -> String {
        match self.address.human_name.as_str() {
            "" if self.address.ip.contains(':') => {
                format!("[{}]:{}", self.address.ip, self.client_port(is_tls))
            }
            "" => format!("{}:{}", self.address.ip, self.client_port(is_tls)),
            name => name.to_string(),
        }
    }
}

#[derive(Default)]
pub struct Nodes {
    places: Vec<Option<Node>>,
    /// Places without a node.
    free: Vec<Handle>,
    by_id: BTreeMap<NodeId, Handle>,
    /// Counts the nodes that came, went or changed their names.
    version: u64,
}

impl Nodes {
    /// Adds a node. Returns `None` if the table is full.
    pub fn add(&mut self, node: Node) -> Option<Handle> {
        assert!(!self.by_id.contains_key(&node.id), "a node is added once");
        if self.by_id.len() >= NODES_MAX {
            return None;
        }
        self.version += 1;
        let handle = self.free.pop().unwrap_or_else(|| {
            self.places.push(None);
            Handle((self.places.len() - 1) as u16)
        });
        self.by_id.insert(node.id, handle);
        self.places[usize::from(handle.0)] = Some(node);
        Some(handle)
    }

    pub fn remove(&mut self, handle: Handle) -> Node {
        let node = self.places[usize::from(handle.0)].take().expect("a handle is of a node");
        self.by_id.remove(&node.id);
        self.free.push(handle);
        self.version += 1;
        node
    }

    pub fn rename(&mut self, handle: Handle, id: NodeId) {
        let old = std::mem::replace(&mut self[handle].id, id);
        self.version += 1;
        self.by_id.remove(&old);
        let taken = self.by_id.insert(id, handle);
        assert!(taken.is_none(), "an id names one node");
    }

    pub fn find(&self, id: &NodeId) -> Option<Handle> {
        self.by_id.get(id).copied()
    }

    pub fn has(&self, handle: Handle) -> bool {
        self.places.get(usize::from(handle.0)).is_some_and(Option::is_some)
    }

    pub fn len(&self) -> usize {
        self.by_id.len()
    }

    pub fn version(&self) -> u64 {
        self.version
    }

    /// Handles are below it.
    pub fn places(&self) -> usize {
        self.places.len()
    }

    /// Iterates over the nodes in the order of their ids.
    pub fn iter(&self) -> impl Iterator<Item = (Handle, &Node)> {
        self.by_id.values().map(|&handle| (handle, &self[handle]))
    }

    /// Returns the handles of all nodes in the order of their ids, for loops that change nodes.
    pub fn handles(&self) -> Vec<Handle> {
        self.by_id.values().copied().collect()
    }

    /// Some nodes, in the order of their places from a random one on: each is met as often as any other.
    pub fn handles_from(&self, start: u64) -> impl Iterator<Item = Handle> + '_ {
        let count = self.places.len();
        let start = (start % count as u64) as usize;
        (0..count)
            .map(move |at| (start + at) % count)
            .filter(|at| self.places[*at].is_some())
            .map(|at| Handle(at as u16))
    }
}

impl Index<Handle> for Nodes {
    type Output = Node;
    fn index(&self, handle: Handle) -> &Node {
        self.places[usize::from(handle.0)].as_ref().expect("a handle is of a node")
    }
}

impl IndexMut<Handle> for Nodes {
    fn index_mut(&mut self, handle: Handle) -> &mut Node {
        self.places[usize::from(handle.0)].as_mut().expect("a handle is of a node")
    }
}
