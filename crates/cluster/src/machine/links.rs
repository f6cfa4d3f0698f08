//! The connections of the bus: one that this node made to each other node, and one that each made to it.
//!
//! A link that another node made belongs to no node until a message has named the sender. A node names itself
//! with its first message, so there are few of these links, each for a moment; the link of a node that is not
//! known here, or says nothing, is closed at a bound.

use super::node::Nodes;
use super::{Handle, Ms, Now, Output};
use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;

/// Names a connection for as long as the process lives. The machine numbers those it asks for evenly, the
/// caller those it accepts oddly.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct LinkId(pub u64);

pub struct Link {
    pub node: Option<Handle>,
    pub is_inbound: bool,
    pub created: Ms,
    /// Creation time as clients see it, computed once. Computed anew from the current time, it would at times
    /// differ by a millisecond.
    pub created_unix_ms: u64,
    /// A message over it has shown that.
    pub knows_extensions: bool,
    /// Address of the peer, if it is known. Stored as text, the two addresses would take more memory than the
    /// rest.
    peer_ip: Option<IpAddr>,
    local_ip: Option<IpAddr>,
}

impl Link {
    /// Empty if it is not known.
    pub fn peer_ip(&self) -> String {
        text(self.peer_ip)
    }

    /// Returns the address by which the other end reaches this node, or an empty text if it is not known.
    pub fn local_ip(&self) -> String {
        text(self.local_ip)
    }

    /// Returns whether the connection is made.
    pub fn stands(&self) -> bool {
        self.local_ip.is_some()
    }

    pub fn set_local_ip(&mut self, ip: &str) {
        self.local_ip = ip.parse().ok();
    }
}

fn text(ip: Option<IpAddr>) -> String {
    ip.map(|ip| ip.to_string()).unwrap_or_default()
}

/// Links of no node. One more closes the oldest of them: all that a large cluster makes when it starts at
/// once fit, and have named themselves long before they are the oldest.
pub const UNNAMED_MAX: usize = 1024;
/// Number of node timeouts after which a link of no node is closed. A node that did not know that it is not
/// known here connects anew.
const UNNAMED_TIMEOUTS: u64 = 2;

#[derive(Default)]
pub struct Links {
    /// On their own: a leaf of the map is half empty where numbers only grow.
    by_id: BTreeMap<LinkId, Box<Link>>,
    /// Links that belong to no node yet, the oldest first.
    unnamed: BTreeSet<LinkId>,
    asked_for: u64,
}

impl Links {
    pub fn accept(&mut self, id: LinkId, peer_ip: &str, local_ip: &str, now: Now) {
        let link = Link {
            node: None,
            is_inbound: true,
            created: now.ms,
            created_unix_ms: now.unix_ms,
            knows_extensions: false,
            peer_ip: peer_ip.parse().ok(),
            local_ip: local_ip.parse().ok(),
        };
        let taken = self.by_id.insert(id, Box::new(link));
        assert!(taken.is_none(), "a link is accepted once");
        self.unnamed.insert(id);
    }

    /// Returns the oldest link of no node, if there are too many of them.
    pub fn excess(&self) -> Option<LinkId> {
        self.unnamed.first().copied().filter(|_| self.unnamed.len() > UNNAMED_MAX)
    }

    // COMPAT(cluster): A link of the bus whose sender is not known is closed after two node timeouts, and the
    // oldest of more than 1,024. Why: connections that never say who they are take descriptors and memory for
    // good.
    /// Returns a link whose node has had its time to name itself.
    pub fn overdue(&self, handshake_timeout_ms: u64, now: Now) -> Option<LinkId> {
        let timeout_ms = handshake_timeout_ms.saturating_mul(UNNAMED_TIMEOUTS);
        self.unnamed.first().copied().filter(|id| now.ms.since(self.by_id[id].created) > timeout_ms)
    }

    /// Adds a link to a node that has none. Returns the request to make it.
    pub fn connect(&mut self, handle: Handle, nodes: &mut Nodes, now: Now) -> Output {
        self.asked_for += 2;
        let id = LinkId(self.asked_for);
        let node = &mut nodes[handle];
        let link = Link {
            node: Some(handle),
            is_inbound: false,
            created: now.ms,
            created_unix_ms: now.unix_ms,
            knows_extensions: false,
            peer_ip: node.address.ip.parse().ok(),
            local_ip: None,
        };
        self.by_id.insert(id, Box::new(link));
        node.outbound = Some(id);
        Output::Connect { link: id, ip: node.address.ip.clone(), port: node.address.bus_port }
    }

    /// Removes a link. Returns whether there was one.
    pub fn remove(&mut self, id: LinkId, nodes: &mut Nodes, now: Now) -> bool {
        let Some(link) = self.by_id.remove(&id) else { return false };
        self.unnamed.remove(&id);
        let Some(node) = link.node else { return true };
        let node = &mut nodes[node];
        if link.is_inbound {
            node.inbound = None;
            node.inbound_lost = now.ms;
        } else {
            node.outbound = None;
        }
        true
    }

    /// Notes that a connection has failed that this node made or tried to make.
    pub fn note_loss(&self, id: LinkId, nodes: &mut Nodes, now: Now) {
        // A connection that never stood has sent no ping, so the time of the attempt counts as one: else its
        // failure would never be noticed.
        if let Some(node) = self.get(id).filter(|link| !link.is_inbound).and_then(|link| link.node) {
            nodes[node].ping_sent.get_or_insert(now.ms);
        }
    }

    /// Notes which node has made this connection. The node has no other.
    pub fn bind(&mut self, id: LinkId, node: Handle, nodes: &mut Nodes) {
        nodes[node].inbound = Some(id);
        self.get_mut(id).expect("a packet comes over a link").node = Some(node);
        self.unnamed.remove(&id);
    }

    /// Returns the node of a link, if it has identified itself.
    pub fn known_node(&self, id: LinkId, nodes: &Nodes) -> Option<Handle> {
        self.get(id).and_then(|link| link.node).filter(|node| !nodes[*node].is_in_handshake())
    }

    pub fn get(&self, id: LinkId) -> Option<&Link> {
        self.by_id.get(&id).map(Box::as_ref)
    }

    pub fn get_mut(&mut self, id: LinkId) -> Option<&mut Link> {
        self.by_id.get_mut(&id).map(Box::as_mut)
    }

    pub fn iter(&self) -> impl Iterator<Item = (LinkId, &Link)> {
        self.by_id.iter().map(|(id, link)| (*id, &**link))
    }

    pub fn check_invariants(&self, nodes: &Nodes) -> Result<(), String> {
        for (id, link) in &self.by_id {
            if link.node.is_none() != self.unnamed.contains(id) {
                return Err(format!("{id:?} is of {:?}, and listed otherwise", link.node));
            }
            let Some(node) = link.node else { continue };
            if !nodes.has(node) {
                return Err(format!("{id:?} is of {node:?}, which is no node"));
            }
            let end = if link.is_inbound { nodes[node].inbound } else { nodes[node].outbound };
            if end != Some(*id) {
                return Err(format!("{id:?} is of {}, which has {end:?}", nodes[node].id));
            }
        }
        if self.unnamed.len() > UNNAMED_MAX {
            return Err(format!("{} links are of no node", self.unnamed.len()));
        }
        Ok(())
    }
}
