//! The thread that never calls the disk: it ends waits that last too long.
//!
//! ```text
//!   each 50 ms:   whether memory has room for what is only read (swap-load-upper-limit) is looked up
//!                 a write that hangs: those who wait for memory go on, and maxmemory-policy decides
//!                 a disk that has failed is probed by a reader
//!                 what is lent beyond swap-cache, or beyond the room below maxmemory, goes
//!   each second:  the same where no command lends any more
//! ```

use isotherm_keyspace::{Held, Slot, Want};
use std::sync::Arc;
use std::time::Duration;

use super::sinker::share;
use isotherm_node::Node;
use isotherm_node::tier::copies;
use isotherm_node::tier::fetches;
use isotherm_node::tier::health::Event;
use isotherm_node::tier::state::Tier;
use isotherm_runtime::routines::Routine;
use isotherm_runtime::time::unix_now;

/// Time between two looks: a wait may end later than its time by this much.
const LOOK: Duration = Duration::from_millis(50);
const LOOKS_PER_TRIM: u32 = 20;
/// Lent values that go under one lock.
const TRIMS_PER_HOLD: usize = 64;
/// Holds of one partition in one look.
const HOLDS_PER_TRIM: u32 = 100;

pub struct Watch {
    node: &'static Node,
    tier: Arc<Tier>,
    looks: u32,
    /// Slots, one of each partition.
    slots: Vec<Slot>,
}

impl Watch {
    pub fn new(node: &'static Node, tier: Arc<Tier>) -> Watch {
        let keyspace = &node.keyspace;
        let mut slots: Vec<Slot> = (0..Slot::COUNT as u16).map(Slot::new).collect();
        slots.sort_by_key(|slot| keyspace.partition_of(*slot));
        slots.dedup_by_key(|slot| keyspace.partition_of(*slot));
        Watch { node, tier, looks: 0, slots }
    }

    /// Sets the use of memory below which values come back to it that are only read, and the bytes that
    /// workers read at once.
    fn set_home_below(&self) {
        let (limit, upper) = (self.node.config.memory_target_bytes(), self.node.config.swap_upper_percent());
        let below = match (limit, upper) {
            (0, _) | (_, 0) => u64::MAX,
            _ => {
                let uncounted =
                    self.node.used_memory_bytes().saturating_sub(self.node.pressing_memory_bytes());
                share(limit, upper) + uncounted
            }
        };
        self.tier.set_home_below(below);
        let workers = self.node.config.workers() as u64;
        self.tier.rings.set_bytes_max(fetches::bytes_max(limit, workers));
    }

    fn trim_lent(&self) {
        let keyspace = &self.node.keyspace;
        for slot in &self.slots {
            for _ in 0..HOLDS_PER_TRIM {
                let mut held = Held::new(keyspace);
                held.acquire(Want::One(keyspace.partition_of(*slot)));
                if !held.trim_lent(*slot, self.tier.lent_bytes_max(), TRIMS_PER_HOLD, unix_now()) {
                    break;
                }
            }
        }
        isotherm_allocator::settle();
    }

    fn end_waits_for_sinker(&self) {
        if self.tier.is_sinker_stuck() {
            self.tier.note(Event::WriteHangs);
            if self.node.mail.is_sinker_behind() {
                self.node.mail.set_sinker_behind(false);
                self.tier.note_slowed(false);
            }
        }
    }
}

impl Routine for Watch {
    fn step(&mut self) -> bool {
        self.set_home_below();
        self.tier.set_read_timeout(self.node.config.swap_read_timeout());
        self.end_waits_for_sinker();
        self.tier.probe_if_due();
        self.tier.end_complaints();
        self.looks = (self.looks + 1) % LOOKS_PER_TRIM;
        copies::bound(self.node, &self.tier);
        if self.looks == 0 || self.tier.lent.is_too_much() {
            self.trim_lent();
        }
        true
    }

    fn rest(&mut self) {
        std::thread::sleep(LOOK);
    }
}
