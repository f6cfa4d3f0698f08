//! Pushes about slots that leave this node, for clients that have asked for them (CLIENT
//! MAINT_NOTIFICATIONS). They learn it from one message instead of a MOVED for each slot.
//!
//! ```text
//!   slots    1 opens  1 goes         2 opens 2 goes  3 opens 3 goes   4 opens
//!   time     0.0      0.1    0.2     0.3     0.4     0.5     0.6      0.7        1.2
//!   pushed   SMIGRATING 1                                                        SMIGRATED 2-3
//!                            SMIGRATED 1                                         SMIGRATING 4
//! ```
//! A client loads the topology anew with each SMIGRATED, and redis-py connects anew to the node that the
//! slots have left. So the first change is pushed at once, and those of the next second in one push. Only the
//! node that slots leave pushes: its clients are those that would go to the wrong place, and a client that is
//! connected to all nodes hears of a move once.
//!
//! "At once" is a tenth of a second later: clients load the topology from any node, and the others are to
//! have heard of the change by then. A node that has lost its last slot does not wait for the end of the
//! second, since it may be about to be taken away. A client library that an old topology still sends to it
//! would be lost there.
//!
//! Clients wait longer for replies between SMIGRATING and the next SMIGRATED, and some count the first ones.
//! So a second SMIGRATING comes only after an SMIGRATED.
//!
//! **What this module does not know:** sessions, the clock. Two topologies and the time come in, pushes go
//! out.

use isotherm_cluster::topology::replies::Asker;
use isotherm_cluster::topology::{NodeIndex, Topology};
use isotherm_cluster::{Slot, SlotSet};
use isotherm_resp::{Protocol, Reply};
use isotherm_stdx::UnixMs;
use std::collections::BTreeMap;
use std::fmt::Write;
use std::sync::Arc;

/// Between two pushes of a kind.
const PAUSE_MS: i64 = 1000;
/// Until other nodes have heard of a change too.
const SETTLES_MS: i64 = 100;
/// Bits of this node's id in the number of a push, below the time in ms: clients take two pushes with one
/// number for one push, from whichever nodes they come. It stays below 2^53, which scripting languages still
/// count in.
const NODE_BITS: u32 = 12;

#[derive(Default)]
pub struct Herald {
    /// Slots that have left this node and were not announced to clients yet.
    left: SlotSet,
    /// Time at which the first of them left.
    left_at: Option<UnixMs>,
    migrated_at: Option<UnixMs>,
    migrating_at: Option<UnixMs>,
    /// SMIGRATING was said, and no SMIGRATED since.
    is_announced: bool,
    last_number: i64,
}

/// Push to clients.
pub struct News {
    number: i64,
    what: What,
    topology: Arc<Topology>,
}

#[derive(PartialEq, Eq, Debug)]
enum What {
    Migrating(Box<SlotSet>),
    /// Slots by the node that has them now.
    Migrated(BTreeMap<NodeIndex, SlotSet>),
}

impl Herald {
    /// The topology was `before` and is `after`; it is called several times a second, whether they differ or
    /// not.
    pub fn look(&mut self, before: &Topology, after: &Arc<Topology>, now: UnixMs) -> Vec<News> {
        self.note_left(before, after, now);
        let mut pushes = Vec::new();
        let is_due_now = is_due(self.migrated_at, PAUSE_MS, now) || after.me().slots.is_empty();
        if self.left_at.is_some() && is_due(self.left_at, SETTLES_MS, now) && is_due_now {
            self.left_at = None;
            let targets = by_owner(&std::mem::take(&mut self.left), after);
            if !targets.is_empty() {
                self.migrated_at = Some(now);
                self.is_announced = false;
                pushes.push(self.news(What::Migrated(targets), after, now));
            }
        }
        if !after.migrating.is_empty() && !self.is_announced && is_due(self.migrating_at, PAUSE_MS, now) {
            self.migrating_at = Some(now);
            self.is_announced = true;
            let mut open = SlotSet::new();
            after.migrating.iter().for_each(|(slot, _)| _ = open.insert(*slot));
            pushes.push(self.news(What::Migrating(Box::new(open)), after, now));
        }
        pushes
    }

    /// No client listens.
    pub fn rest(&mut self) {
        self.left = SlotSet::new();
        self.left_at = None;
        self.is_announced = false;
    }

    fn note_left(&mut self, before: &Topology, after: &Topology, now: UnixMs) {
        let is_same = Arc::ptr_eq(&before.owners, &after.owners) && before.myself == after.myself;
        if is_same || !after.nodes.iter().any(|node| node.id == before.me().id) {
            return;
        }
        for slot in Slot::all() {
            let (was, is) = (before.owners[slot.index()], after.owners[slot.index()]);
            if is == Some(after.myself) {
                self.left.remove(slot);
            } else if was == Some(before.myself) {
                self.left.insert(slot);
                self.left_at.get_or_insert(now);
            }
        }
    }

    fn news(&mut self, what: What, topology: &Arc<Topology>, now: UnixMs) -> News {
        let id = topology.me().id.as_bytes().iter();
        let own = id.fold(0u32, |hash, byte| hash.wrapping_mul(31).wrapping_add(u32::from(*byte)));
        let next = (self.last_number >> NODE_BITS) + 1;
        self.last_number = now.0.max(next) << NODE_BITS | i64::from(own % (1 << NODE_BITS));
        News { number: self.last_number, what, topology: Arc::clone(topology) }
    }
}

/// Returns whether `last` is long enough ago. A clock that was set back does not silence the pushes.
fn is_due(last: Option<UnixMs>, pause_ms: i64, now: UnixMs) -> bool {
    last.is_none_or(|last| !(0..pause_ms).contains(&(now.0 - last.0)))
}

/// A slot that no node has now is not said.
fn by_owner(slots: &SlotSet, topology: &Topology) -> BTreeMap<NodeIndex, SlotSet> {
    let mut owners: BTreeMap<NodeIndex, SlotSet> = BTreeMap::new();
    for slot in slots.iter() {
        if let Some(owner) = topology.owners[slot.index()] {
            owners.entry(owner).or_default().insert(slot);
        }
    }
    owners
}

impl News {
    /// Returns the push for a client of this kind, with the addresses that CLUSTER SLOTS shows to it.
    pub fn push(&self, asker: Asker) -> Vec<u8> {
        let mut reply = Reply::new(Protocol::Resp3);
        reply.push(3);
        match &self.what {
            What::Migrating(slots) => {
                reply.bulk(b"SMIGRATING");
                reply.integer(self.number);
                reply.bulk(ranges(slots).as_bytes());
            }
            What::Migrated(targets) => {
                reply.bulk(b"SMIGRATED");
                reply.integer(self.number);
                reply.array(targets.len());
                for (target, slots) in targets {
                    reply.array(3);
                    reply.bulk(self.address(self.topology.myself, asker).as_bytes());
                    reply.bulk(self.address(*target, asker).as_bytes());
                    reply.bulk(ranges(slots).as_bytes());
                }
            }
        }
        reply.out
    }

    /// An IPv6 address stands in brackets, as libraries put it together from CLUSTER SLOTS.
    fn address(&self, index: NodeIndex, asker: Asker) -> String {
        let node = self.topology.node(index);
        let (host, port) = (asker.host(node), node.address.client_port(asker.is_tls));
        if host.contains(':') { format!("[{host}]:{port}") } else { format!("{host}:{port}") }
    }
}

/// `1,5-7`
fn ranges(slots: &SlotSet) -> String {
    let mut text = String::new();
    for (first, last) in slots.ranges() {
        let comma = if text.is_empty() { "" } else { "," };
        match first == last {
            true => write!(text, "{comma}{}", first.get()),
            false => write!(text, "{comma}{}-{}", first.get(), last.get()),
        }
        .expect("a String takes all");
    }
    text
}

#[cfg(test)]
mod tests;
