//! The thread that goes round all cold keys when it is asked to: it verifies the values on disk, or brings
//! all of them back to memory.
//!
//! ```text
//!   SWAP VERIFY          each value is read and checked against its key; none is changed. 64 MB a second at most
//!   swap-mode no         each value is read and comes back to memory, as long as that is below maxmemory
//!   fields are due       hashes that the active cycle asked for come back, whatever else there is
//! ```
//! One hold of a partition shows some entries; nothing is held while values are read.

use isotherm_commands::call::ColdKey;
use isotherm_commands::spec::Need;
use isotherm_keyspace::{BundleAt, ColdRef, Db, Held, HeldNode, NodeAt, NodeHand, SlotHand, SlotKeys, Want};
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

use isotherm_node::Node;
use isotherm_node::tier::damaged;
use isotherm_node::tier::files::ReadError;
use isotherm_node::tier::health::State;
use isotherm_node::tier::state::Tier;
use isotherm_node::tier::target::slot_of;
use isotherm_runtime::log;
use isotherm_runtime::routines::Routine;
use isotherm_runtime::time::unix_now;

/// Entries and pages that are looked at under one lock.
const LOOKS_PER_HOLD: u64 = 200;
/// Bytes that verifying reads at most, so that clients that wait for values hardly feel it.
const VERIFY_BYTES_PER_S: u64 = 64 << 20;
/// Without work.
const REST: Duration = Duration::from_millis(100);
/// After a round that could not bring all back to memory.
const REST_LEFT: Duration = Duration::from_secs(1);
/// Damaged values of a round that are named in the server's log.
const NAMED_MAX: u64 = 10;
/// Hashes with fields that are due, between two looks at the rest.
const DUE_PER_STEP: usize = 64;

pub struct Round {
    node: &'static Node,
    tier: Arc<Tier>,
    hand: SlotHand,
    /// Hand for parts of large collections. It goes first.
    node_hand: NodeHand,
    /// Value of `hand.rounds` at which this round is over; `None`: no round is under way.
    ends_at: Option<u64>,
    verifies: bool,
    bytes: u64,
    has_left: bool,
}

impl Routine for Round {
    fn step(&mut self) -> bool {
        self.bytes = 0;
        self.bring_due_home();
        match self.ends_at {
            None => self.begin(),
            Some(end) if self.hand.rounds >= end => self.end(),
            Some(_) => self.go_on(),
        }
        true
    }

    fn rest(&mut self) {
        isotherm_allocator::settle();
        match self.ends_at {
            None if std::mem::take(&mut self.has_left) => std::thread::sleep(REST_LEFT),
            None => self.tier.due.wait(REST),
            Some(_) if self.verifies => {
                std::thread::sleep(Duration::from_micros(self.bytes * 1_000_000 / VERIFY_BYTES_PER_S));
            }
            Some(_) => {}
        }
    }
}

impl Round {
    pub fn new(node: &'static Node, tier: Arc<Tier>) -> Round {
        let (hand, node_hand) = Default::default();
        Round { node, tier, hand, node_hand, ends_at: None, verifies: false, bytes: 0, has_left: false }
    }

    fn begin(&mut self) {
        let verify = &self.tier.verify;
        self.verifies = verify.is_wanted.load(Relaxed);
        if self.verifies {
            for counter in [&verify.keys, &verify.bytes, &verify.bad, &verify.slots] {
                counter.store(0, Relaxed);
            }
        }
        if self.verifies || self.tier.state() == State::Off {
            (self.hand, self.node_hand) = Default::default();
            self.ends_at = Some(1);
        }
    }

    fn end(&mut self) {
        self.ends_at = None;
        if self.verifies {
            let verify = &self.tier.verify;
            verify.is_wanted.store(false, Relaxed);
            verify.rounds.fetch_add(1, Relaxed);
            log::notice(format!(
                "swap: {} values on disk were verified, {} of them cannot be read",
                verify.keys.load(Relaxed),
                verify.bad.load(Relaxed)
            ));
        }
    }

    /// The parts of large collections of one hold.
    fn go_on_with_nodes(&mut self) {
        let mut found = Vec::new();
        {
            let mut held = Held::new(&self.node.keyspace);
            held.acquire(Want::One(self.node_hand.partition()));
            let mut show = |node, reference| found.push((node, reference));
            self.node_hand.show_away(&mut held, LOOKS_PER_HOLD, &mut show);
        }
        for (node, reference) in found {
            match self.verifies {
                true => self.verify_node(node, reference),
                false => self.bring_home(ColdKey::of_node(node)),
            }
        }
    }

    /// The cold entries of one hold.
    fn go_on(&mut self) {
        if self.node_hand.rounds == 0 {
            return self.go_on_with_nodes();
        }
        let keyspace = &self.node.keyspace;
        let mut found: Vec<(Db, Box<[u8]>)> = Vec::new();
        let mut bundles = Vec::new();
        {
            let slot = self.hand.slot();
            let mut held = Held::new(keyspace);
            held.acquire(Want::One(keyspace.partition_of(slot)));
            let mut show = |db, key: &[u8], _| found.push((db, key.into()));
            self.hand.show_cold(&mut held, LOOKS_PER_HOLD, &mut show);
            if self.hand.slot() != slot {
                SlotKeys::of(&held, slot).bundles(&mut |db, name, reference| {
                    bundles.push(BundleAt { db, slot, name, reference });
                });
            }
        }
        for bundle in bundles {
            self.visit_bundle(bundle);
        }
        for (db, key) in found {
            match self.verifies {
                true => self.verify(db, &key),
                false => self.bring_home(ColdKey::of(db, &key, Need::All, true)),
            }
        }
        if self.verifies {
            self.tier.verify.slots.store(u64::from(self.hand.slot().get()), Relaxed);
        }
    }

    // ---- verifying ----

    fn verify(&mut self, db: Db, key: &[u8]) {
        let verify = &self.tier.verify;
        let cold = ColdKey::of(db, key, Need::All, true);
        let found = self.tier.read_found(&self.node.keyspace, &cold, true);
        // One that has frozen meanwhile is verified with its record.
        let Some((target, read)) = found.filter(|(target, _)| !target.is_bundle()) else { return };
        self.bytes += target.from.value_bytes() as u64;
        verify.keys.fetch_add(1, Relaxed);
        match read {
            Ok(value) => _ = verify.bytes.fetch_add(value.len() as u64, Relaxed),
            Err(why) => {
                let hides = self.node.config.hides_user_data();
                self.note_bad(&why, || format!("{} in DB {}", log::name_of_key(hides, key), db.0));
            }
        }
    }

    /// Counts a value that cannot be read, and names the first ones in the log.
    fn note_bad(&self, why: &ReadError, owner: impl FnOnce() -> String) {
        if self.tier.verify.bad.fetch_add(1, Relaxed) < NAMED_MAX {
            log::warning(format!("A value on disk cannot be read ({why}): {}", owner()));
        }
    }

    /// Verifies a part of a collection. One that was moved meanwhile waits for the next round.
    fn verify_node(&mut self, node: NodeAt, reference: ColdRef) {
        let payload = self.tier.read_again(reference, node.name.as_bytes());
        let keyspace = &self.node.keyspace;
        let mut held = Held::new(keyspace);
        held.acquire(Want::One(keyspace.partition_of(node.slot)));
        if HeldNode::of(&mut held, node).reference() != Some(reference) {
            return;
        }
        self.bytes += reference.value_bytes() as u64;
        let verify = &self.tier.verify;
        verify.keys.fetch_add(1, Relaxed);
        match payload {
            Ok(payload) => _ = verify.bytes.fetch_add(payload.len() as u64, Relaxed),
            Err(why) => self.note_bad(&why, || format!("a part of a collection of slot {}", node.slot.get())),
        }
    }

    // ---- bundles ----

    /// Verifies a bundle, or brings its keys back to memory. One that was moved meanwhile is no longer there,
    /// and waits for the next round.
    fn visit_bundle(&mut self, at: BundleAt) {
        let BundleAt { db, slot, name, reference } = at;
        if !self.verifies && !self.may_bring_home() {
            return;
        }
        let keyspace = &self.node.keyspace;
        let payload = self.tier.read_again(reference, name.as_bytes());
        let mut held = Held::new(keyspace);
        held.acquire(Want::One(keyspace.partition_of(slot)));
        if held.database_of_bundle((db, slot), name, reference) != Some(db) {
            return;
        }
        self.bytes += reference.value_bytes() as u64;
        if self.verifies {
            let verify = &self.tier.verify;
            verify.keys.fetch_add(1, Relaxed);
            match payload {
                Ok(payload) => _ = verify.bytes.fetch_add(payload.len() as u64, Relaxed),
                Err(why) => {
                    let keys = held.bundle_keys(&at).unwrap_or_default();
                    self.note_bad(&why, || damaged::text((db, slot), reference, keys));
                }
            }
        } else {
            let is_home =
                payload.is_ok_and(|payload| held.thaw_all((db, slot), name, &payload, reference, unix_now()));
            self.has_left |= !is_home;
        }
    }

    // ---- bringing back to memory ----

    fn may_bring_home(&mut self) -> bool {
        if self.tier.state() != State::Off {
            // It was switched on again.
            self.ends_at = None;
            return false;
        }
        let limit = self.node.config.memory_target_bytes();
        let is_full = limit > 0 && self.node.counted_memory_bytes() >= limit;
        if is_full {
            self.has_left = true;
            self.ends_at = None;
        }
        !is_full
    }

    /// Brings back hashes that have fields that are due, so that the active cycle finds them. A hash that
    /// cannot be read now is asked for again.
    fn bring_due_home(&self) {
        let keyspace = &self.node.keyspace;
        for (db, key) in self.tier.due.take(DUE_PER_STEP) {
            if self.tier.state() == State::Failed {
                continue;
            }
            let cold = ColdKey { key, ..ColdKey::of(db, &[], Need::All, true) };
            let fetched = self.tier.read_key(keyspace, &cold).filter(|fetched| !fetched.is_bundle);
            let Some((from, value)) = fetched.and_then(|fetched| Some((fetched.from, fetched.value?))) else {
                continue;
            };
            let key = keyspace.key(&cold.key);
            let mut held = Held::new(keyspace);
            held.acquire(Want::One(keyspace.partition_of(key.slot)));
            // Without memory it stays where it is.
            _ = held.warm(cold.db, &key, &value, from, unix_now());
        }
    }

    fn bring_home(&mut self, cold: ColdKey) {
        if !self.may_bring_home() {
            return;
        }
        let keyspace = &self.node.keyspace;
        let Some(fetched) = self.tier.read_key(keyspace, &cold) else { return };
        self.has_left |= !fetched.is_there();
        let mut held = Held::new(keyspace);
        held.acquire(Want::One(keyspace.partition_of(slot_of(keyspace, &cold))));
        self.tier.hand_over(&mut held, &cold, &fetched, unix_now());
    }
}
