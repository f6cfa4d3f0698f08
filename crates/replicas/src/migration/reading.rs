//! Reads of what MIGRATE needs and memory does not have: values, records of frozen keys, and parts of
//! collections.
//!
//! ```text
//!   lock: lack | unlock,  read,  lock: hand_over, lack? a portion | unlock
//! ```
//! A thread of the tier reads the disk while no lock is held, and can be abandoned. After the disk was silent
//! for `swap-read-timeout`, nothing more is read for this MIGRATE: the keys that lack something
//! stay, the others leave.

use isotherm_commands::call::ColdKey;
use isotherm_commands::spec::Need;
use isotherm_keyspace::{Db, Held, HeldNode, NodeNeed, Want, Whereabouts};
use std::time::Duration;

use isotherm_node::Node;
use isotherm_node::tier::State;
use isotherm_node::tier::target::Fetched;
use isotherm_runtime::time::unix_now;

/// Parts of a collection that are looked for in one hold.
const NODES_PER_HOLD: usize = 256;

/// Records that were read, for their keys.
pub type Brought = Vec<(ColdKey, Fetched)>;

/// Memory's lack of what a key has.
pub enum Lack {
    Nothing,
    /// At least these are on disk.
    Away(Vec<ColdKey>),
    Unreadable,
}

/// Finds what memory lacks of a key. Its partition is held.
pub fn lack(node: &Node, held: &mut Held<'_>, db: Db, name: &[u8]) -> Lack {
    if node.tier().is_none() {
        return Lack::Nothing;
    }
    let key = node.keyspace.key(name);
    // A frozen key comes to memory: from there it leaves for good.
    let home = held.may_be_frozen(db, &key);
    match held.whereabouts(db, &key, home) {
        Whereabouts::Here => {}
        Whereabouts::Away(_) | Whereabouts::Frozen(..) => {
            return Lack::Away(vec![ColdKey::of(db, name, Need::All, home)]);
        }
        Whereabouts::Unreadable => {
            held.forget_failure(db, &key);
            return Lack::Unreadable;
        }
    }
    let (nodes, mut has_lost) = (NodeNeed::All.away(held, db, &key, NODES_PER_HOLD), false);
    for at in &nodes {
        let mut node = HeldNode::of(held, *at);
        if node.is_unreadable() {
            node.forget_failure();
            has_lost = true;
        }
    }
    match (has_lost, nodes.is_empty()) {
        (true, _) => Lack::Unreadable,
        (false, true) => Lack::Nothing,
        (false, false) => Lack::Away(nodes.into_iter().map(ColdKey::of_node).collect()),
    }
}

/// Returns a key that is to be read before it can leave: it may lie on disk itself. Its partition is held.
pub fn frozen(held: &mut Held<'_>, db: Db, name: &[u8]) -> Option<ColdKey> {
    let key = held.keyspace().key(name);
    held.may_be_frozen(db, &key).then(|| ColdKey::of(db, name, Need::All, true))
}

/// Gives records to their keys, whose partitions are held.
pub fn hand_over(node: &Node, held: &mut Held<'_>, brought: Brought) {
    let (Some(tier), now) = (node.tier(), unix_now()) else { return };
    for (cold, fetched) in brought {
        tier.hand_over(held, &cold, &fetched, now);
    }
}

/// Reader of one MIGRATE.
pub struct Reading {
    node: &'static Node,
    /// The disk has not been silent for too long.
    answers: bool,
}

impl Reading {
    pub fn new(node: &'static Node) -> Reading {
        Reading { node, answers: true }
    }

    /// Reads what keys lack. Nothing is held. Parts of collections are given to these at once, as they stay
    /// for a while; the rest is for the next hold. `None`: some of it cannot be read.
    pub fn read(&mut self, keys: Vec<ColdKey>) -> Option<Brought> {
        let (keyspace, mut brought) = (&self.node.keyspace, Brought::new());
        for cold in keys {
            // It came to memory meanwhile, or is gone: the next look says.
            let Some(fetched) = self.read_one(&cold)? else { continue };
            match cold.node {
                Some(at) => {
                    let mut held = Held::new(keyspace);
                    held.acquire(Want::One(keyspace.partition_of(at.slot)));
                    hand_over(self.node, &mut held, vec![(cold, fetched)]);
                }
                None => brought.push((cold, fetched)),
            }
        }
        Some(brought)
    }

    /// Reads one record. `None`: it cannot be read, or the disk is silent.
    fn read_one(&mut self, cold: &ColdKey) -> Option<Option<Fetched>> {
        let (node, tier, cold) = (self.node, self.node.tier()?, cold.clone());
        if !self.answers || tier.state() == State::Failed {
            return None;
        }
        let gives_up = |waited: Duration| {
            node.config.swap_read_timeout().is_some_and(|timeout| waited >= timeout)
                || tier.state() == State::Failed
                || node.runs.is_ending()
        };
        match tier.call(move |tier| tier.read_key(&node.keyspace, &cold), Some(&gives_up)) {
            Ok(Some(fetched)) => fetched.is_there().then_some(Some(fetched)),
            Ok(None) => Some(None),
            Err(_) => {
                tier.note_read_timeout();
                self.answers = false;
                None
            }
        }
    }
}
