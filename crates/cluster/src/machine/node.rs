//! The nodes that this one knows, itself among them: a table of at most 65,534, by handle and by id.

use super::{LinkId, Ms};
use crate::conf::{Conf, NODES_MAX};
use crate::topology::{Address, NodeIndex};
use crate::{Flags, NodeId};
use isotherm_stdx::prng::Prng;
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

    /// Records that `sender` reports this node as failing. Returns whether the report is a new one.
    pub fn add_report(&mut self, sender: Handle, now: Ms) -> bool {
        if self.flags.has(Flags::FAIL) {
            return false;
        }
        match self.reports.iter_mut().find(|(node, _)| *node == sender) {
            Some((_, at)) => {
                *at = now;
                false
            }
            None => {
                self.reports.push((sender, now));
                true
            }
        }
    }

    pub fn remove_report(&mut self, sender: Handle) -> bool {
        let count = self.reports.len();
        self.reports.retain(|(node, _)| *node != sender);
        self.reports.len() < count
    }

    /// Returns how many reports are not older than `valid_ms`, and drops the others.
    pub fn count_reports(&mut self, valid_ms: u64, now: Ms) -> usize {
        self.reports.retain(|(_, at)| now.since(*at) < valid_ms);
        self.reports.len()
    }
}

pub struct Nodes {
    /// Handle of this node.
    pub me: Handle,
    places: Vec<Option<Node>>,
    /// Places without a node.
    free: Vec<Handle>,
    by_id: BTreeMap<NodeId, Handle>,
    /// Counts the nodes that came, went or changed their names.
    version: u64,
}

impl Nodes {
    /// Makes a table that has this node alone.
    pub fn of(me: Node) -> Nodes {
        let mut nodes = Nodes::empty();
        nodes.me = nodes.add(me).expect("the table is empty");
        nodes
    }

    /// Makes the table from what the file has. A node without a shard there gets one of its own.
    pub fn from_conf(conf: &Conf, random: &mut Prng, now: Ms) -> Nodes {
        let mut nodes = Nodes::empty();
        for node in &conf.nodes {
            let own = NodeId::random(random);
            // A ping that was sent before the stop is not waited for; but a node that was silent stays
            // suspect.
            let mut known = Node::new(node.id, node.shard.unwrap_or(own), node.flags, now);
            known.address = Arc::new(node.address.clone());
            // A replica has its primary's.
            known.config_epoch = if node.primary.is_some() { 0 } else { node.config_epoch };
            nodes.add(known);
        }
        for node in &conf.nodes {
            let known = nodes.find(&node.id).expect("it was added");
            nodes[known].primary = node.primary.and_then(|id| nodes.find(&id));
        }
        nodes.me = nodes.find(&conf.myself().id).expect("it was added");
        nodes
    }

    fn empty() -> Nodes {
        Nodes { me: Handle(0), places: Vec::new(), free: Vec::new(), by_id: BTreeMap::new(), version: 0 }
    }

    pub fn my(&self) -> &Node {
        &self[self.me]
    }

    pub fn my_mut(&mut self) -> &mut Node {
        let me = self.me;
        &mut self[me]
    }

    /// Returns this node, or the primary that it follows. This node answers for the slots of the node
    /// returned.
    pub fn my_primary(&self) -> Handle {
        self.my().primary.unwrap_or(self.me)
    }

    /// Returns the address of the primary that this node follows, if it follows one and that is known.
    pub fn primary_address(&self, by_tls: bool) -> Option<(String, u16)> {
        let node = &self[self.my().primary?];
        let is_known = !node.address.ip.is_empty() && !node.flags.has(Flags::NOADDR);
        is_known.then(|| (node.address.ip.clone(), node.client_port(by_tls)))
    }

    pub fn are_in_one_shard(&self, one: Handle, other: Handle) -> bool {
        self[one].shard == self[other].shard
    }

    /// The epoch that a node's claims have: a replica's are its primary's.
    pub fn epoch_of(&self, node: Handle) -> u64 {
        let node = &self[node];
        node.primary.map_or(node.config_epoch, |primary| self[primary].config_epoch)
    }

    /// `<id> (<name>)`, as the log has it.
    pub fn name(&self, node: Handle, is_tls: bool) -> String {
        let node = &self[node];
        format!("{} ({})", node.id, node.shown_name(is_tls))
    }

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

    /// Returns, for each handle, the index of its node in a topology.
    pub fn indexes(&self) -> Vec<Option<NodeIndex>> {
        let mut indexes = vec![None; self.places()];
        for (at, (handle, _)) in self.iter().enumerate() {
            indexes[handle.number() as usize] = Some(NodeIndex(at as u16));
        }
        indexes
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

    pub fn check_invariants(&self) -> Result<(), String> {
        if !self.has(self.me) {
            return Err("this node is none of the table".to_string());
        }
        match self.iter().find(|(_, node)| node.primary.is_some_and(|primary| !self.has(primary))) {
            Some((_, node)) => Err(format!("{}: its primary is no node", node.id)),
            None => Ok(()),
        }
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
