//! The nodes that an administrator took out (CLUSTER FORGET), in two stages.
//!
//! ```text
//!   FORGET --> for cluster-blacklist-ttl: spread to the others, not added by gossip
//!          --> until MEET: a MEET that the node sends by itself does not add it
//! ```
//! A node that still runs does not know that it was taken out. It misses the connections of the others, and
//! sends MEET to them. An administrator's MEET looks alike: it is the first message over a connection of its
//! own, which comes in addition to the one that the node has already, or from a node that was reset and knows
//! none of the members.

use super::{LinkId, Ms};
use crate::NodeId;
use std::collections::BTreeMap;

/// The longest time that gossip about a node is ignored, whatever a message says: a year.
const TTL_MAX_S: u64 = 366 * 86_400;
/// Nodes that are remembered; one more, and the one that was taken out first is not. They take 60 B each here
/// and 41 in the file: 240 KB and 168 KB.
const FORGOTTEN_MAX: usize = 4096;
/// The time by which the others may end theirs later: they count whole seconds, and hear of it a moment
/// later.
const SPREAD_MS: u64 = 2000;

#[derive(Default)]
pub(super) struct Forgotten {
    nodes: BTreeMap<NodeId, Entry>,
    /// The links of no node over which these send messages that are no MEET.
    pub links: BTreeMap<LinkId, NodeId>,
}

#[derive(Clone, Copy)]
struct Entry {
    /// The end of the time in which gossip does not add it.
    until: Ms,
    /// Set when an administrator has it met again.
    is_met: bool,
}

impl Forgotten {
    /// Makes the value of what the file has, which does not say how long gossip was ignored.
    pub fn of(ids: &[NodeId]) -> Forgotten {
        let entry = Entry { until: Ms(0), is_met: false };
        let nodes = ids.iter().take(FORGOTTEN_MAX).map(|id| (*id, entry)).collect();
        Forgotten { nodes, links: BTreeMap::new() }
    }

    pub fn forget(&mut self, id: NodeId, ttl_s: u64, now: Ms) {
        let until = Ms(now.0 + ttl_s.min(TTL_MAX_S) * 1000);
        self.nodes.insert(id, Entry { until, is_met: false });
        if self.nodes.len() > FORGOTTEN_MAX {
            let first = self.nodes.iter().min_by_key(|(_, entry)| entry.until).map(|(id, _)| *id);
            first.map(|id| self.nodes.remove(&id));
        }
    }

    /// Takes FORGET back: an administrator has the node met.
    pub fn meet(&mut self, id: &NodeId) {
        if let Some(entry) = self.nodes.get_mut(id) {
            entry.is_met = true;
        }
    }

    /// Drops what is known of a node that a member still knows.
    pub fn add(&mut self, id: &NodeId) {
        self.nodes.remove(id);
    }

    pub fn note_link(&mut self, link: LinkId, sender: NodeId) {
        if self.has(&sender) {
            self.links.insert(link, sender);
        }
    }

    /// Returns whether gossip does not add the node.
    pub fn is_banned(&self, id: &NodeId, now: Ms) -> bool {
        self.nodes.get(id).is_some_and(|entry| entry.is_banned(now))
    }

    /// Returns whether the node does not come back by itself.
    pub fn has(&self, id: &NodeId) -> bool {
        self.nodes.get(id).is_some_and(|entry| !entry.is_met)
    }

    /// Returns whether others still spread a FORGET that an administrator has taken back here.
    pub fn is_taken_back(&self, id: &NodeId, ttl_s: u64, now: Ms) -> bool {
        let until_ms = now.0.saturating_add(ttl_s.saturating_mul(1000));
        self.nodes.get(id).is_some_and(|entry| entry.is_met && until_ms <= entry.until.0 + SPREAD_MS)
    }

    /// Returns what is spread: nodes, and the seconds that are left.
    pub fn banned(&self, now: Ms) -> Vec<(NodeId, u64)> {
        let banned = self.nodes.iter().filter(|(_, entry)| entry.is_banned(now));
        banned.map(|(id, entry)| (*id, entry.until.since(now) / 1000)).collect()
    }

    /// Returns what the file is to have.
    pub fn ids(&self) -> Vec<NodeId> {
        self.nodes.iter().filter(|(_, entry)| !entry.is_met).map(|(id, _)| *id).collect()
    }

    /// Drops the nodes that were met again, once no one spreads that they were taken out.
    pub fn expire(&mut self, now: Ms) {
        self.nodes.retain(|_, entry| !entry.is_met || entry.until.0 + SPREAD_MS > now.0);
    }

    // COMPAT(cluster): A node that was taken out by CLUSTER FORGET and still runs stays out until CLUSTER
    // MEET, sent to a member or to the node itself, or until a member that still knows it says so after
    // cluster-blacklist-ttl. CLUSTER MEET holds at once, though others have not ended that time. nodes.conf
    // has the ids in its last line. Valkey's members take it back once it sends MEET by itself, after some 15
    // s and cluster-blacklist-ttl. Why: an administrator has said so.
    /// Returns whether this MEET is the own idea of a node that was taken out. `names_members`: its gossip
    /// does.
    pub fn stays_out(&self, link: LinkId, id: &NodeId, names_members: bool) -> bool {
        let has_another = || self.links.values().any(|sender| sender == id);
        self.has(id) && (self.links.contains_key(&link) || (names_members && !has_another()))
    }

    pub fn clear(&mut self) {
        self.nodes.clear();
    }
}

impl Entry {
    fn is_banned(self, now: Ms) -> bool {
        !self.is_met && self.until > now
    }
}
