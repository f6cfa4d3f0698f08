//! The thread that never calls the disk: it ends waits that last too long.
//!
//! ```text
//!   each 50 ms:   commands for which nothing has come for longer than swap-read-timeout get their error
//!                 whether memory has room for what is only read (swap-load-upper-limit) is looked up
//!                 a write that hangs: those who wait for memory go on, and maxmemory-policy decides
//!                 a disk that has failed is probed by a reader
//!                 what is lent beyond swap-cache, or beyond the room below maxmemory, goes
//!   each second:  the same where no command lends any more
//! ```

use isotherm_commands::call::ColdKey;
use isotherm_keyspace::{Held, Slot, Want};
use std::sync::Arc;
use std::time::{Duration, Instant};

use super::copies;
use super::fetches;
use super::health::Event;
use super::reads::Late;
use super::sinker::share;
use super::state::Tier;
use super::target::{Fetched, slot_of};
use crate::mail::message::{Came, WorkerMessage};
use crate::node::Node;
use crate::process::routines::Routine;
use crate::process::time::unix_now;

/// How much later than its time a wait may end.
const LOOK: Duration = Duration::from_millis(50);
const LOOKS_PER_TRIM: u32 = 20;
/// Lent values that go under one lock.
const TRIMS_PER_HOLD: usize = 64;
/// Of one partition in one look.
const HOLDS_PER_TRIM: u32 = 100;

pub struct Watch {
    node: &'static Node,
    tier: Arc<Tier<WorkerMessage>>,
    looks: u32,
    /// One of each partition.
    slots: Vec<Slot>,
}

impl Watch {
    pub fn new(node: &'static Node, tier: Arc<Tier<WorkerMessage>>) -> Watch {
        let keyspace = &node.keyspace;
        let mut slots: Vec<Slot> = (0..Slot::COUNT as u16).map(Slot::new).collect();
        slots.sort_by_key(|slot| keyspace.partition_of(*slot));
        slots.dedup_by_key(|slot| keyspace.partition_of(*slot));
        Watch { node, tier, looks: 0, slots }
    }

    /// Jobs that have ended are forgotten, those that last too long are ended.
    fn end_reads(&self) {
        let timeout = self.node.config.swap_read_timeout();
        self.tier.set_read_timeout(timeout);
        // Without a timeout none is older than the process.
        let before = timeout.and_then(|timeout| Instant::now().checked_sub(timeout));
        for Late { worker, message, read } in self.tier.reads.expire(before) {
            self.tier.note(Event::ReadTimedOut);
            self.keep(&read);
            let message = match message {
                WorkerMessage::Fetched { ticket, .. } => WorkerMessage::fetched(ticket, Came::Late),
                other => other,
            };
            self.node.mail.post(usize::from(worker), message);
        }
    }

    /// Hands over what has come of a job in time, for those who try again.
    fn keep(&self, read: &[(ColdKey, Fetched)]) {
        let (keyspace, now) = (&self.node.keyspace, unix_now());
        for (cold, fetched) in
            read.iter().filter(|(cold, fetched)| cold.bundle.is_none() && fetched.is_there())
        {
            let mut held = Held::new(keyspace);
            held.acquire(Want::One(keyspace.partition_of(slot_of(keyspace, cold))));
            self.tier.hand_over(&mut held, cold, fetched, now);
        }
    }

    /// Looks up below which use of memory values come home that are only read, and how much workers read at
    /// once.
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
        self.end_reads();
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
