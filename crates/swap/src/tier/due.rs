//! The thread that reads frozen keys whose time is over: they come to memory, where the expiry cycle removes
//! them as any other, with their events, for the log and for replicas.
//!
//! ```text
//!   a round every few seconds    bundles whose bound is over by [`READ_AFTER_MS`]  -->  read, without a lock  -->  what is due comes
//! ```
//! A key is gone within half a minute, and keys of one record that expire one after the other are read
//! together. Where the expiry cycle does not remove keys, nothing is read: on a replica the primary's DEL
//! names them.

use isotherm_keyspace::{BundleAt, DueHand, Held, UnixMs, Want, thaw_due};
use std::sync::Arc;
use std::time::Duration;

use isotherm_node::Node;
use isotherm_node::tier::health::State;
use isotherm_node::tier::state::Tier;
use isotherm_runtime::routines::Routine;
use isotherm_runtime::time::unix_now;

/// Time between the moment at which the first key of a bundle is due and the read of its record.
const READ_AFTER_MS: i64 = 20_000;
/// Between two rounds.
const REST: Duration = Duration::from_secs(5);
/// Rest between two rounds with DEBUG SWAP-CHAOS, where records are read at once.
const REST_IN_HASTE: Duration = Duration::from_millis(20);

pub struct Due {
    node: &'static Node,
    tier: Arc<Tier>,
    hand: DueHand,
    /// `hand.rounds` when it rested last.
    rested: u64,
}

impl Routine for Due {
    fn step(&mut self) -> bool {
        // Records that cannot be read now are met again in the next round.
        if !self.node.expires_keys() || self.tier.state() == State::Failed {
            self.hand.rounds += 1;
            return true;
        }
        for due in self.find() {
            self.thaw(due);
        }
        true
    }

    fn rest(&mut self) {
        if std::mem::replace(&mut self.rested, self.hand.rounds) != self.hand.rounds {
            isotherm_allocator::settle();
            std::thread::sleep(if self.is_in_haste() { REST_IN_HASTE } else { REST });
        }
    }
}

impl Due {
    pub fn new(node: &'static Node, tier: Arc<Tier>) -> Due {
        Due { node, tier, hand: DueHand::default(), rested: 0 }
    }

    fn is_in_haste(&self) -> bool {
        self.node.debug.swap_chaos.is_on()
    }

    fn find(&mut self) -> Vec<BundleAt> {
        let after_ms = if self.is_in_haste() { 0 } else { READ_AFTER_MS };
        let mut held = Held::new(&self.node.keyspace);
        held.acquire(Want::One(self.hand.partition()));
        self.hand.step(&mut held, UnixMs(unix_now().0 - after_ms))
    }

    /// Thaws the due keys of a bundle. A bundle that was moved meanwhile is no longer there, and is met again
    /// in the next round.
    fn thaw(&self, due: BundleAt) {
        let BundleAt { db, slot, name, reference } = due;
        let Ok(payload) = self.tier.read_again(reference, name.as_bytes()) else { return };
        let keyspace = &self.node.keyspace;
        let mut held = Held::new(keyspace);
        held.acquire(Want::One(keyspace.partition_of(slot)));
        // SWAPDB may have come between.
        if let Some(db) = held.database_of_bundle((db, slot), name, reference) {
            // Without memory for them they stay until the next round.
            _ = thaw_due(&mut held, &BundleAt { db, ..due }, &payload, unix_now());
        }
    }
}
