//! Leasing: what scripts, commands and the gate do with leases (`lease`).
//!
//! ```text
//!   script     begin_lease | lease, lease_all | ... | free_leases | end_lease
//!   command    has its locks | is_leased: lets go of them, and waits for `watch_leases`
//!   gate       locks everything | has_leases: lets go, and waits until there are none
//! ```

use crate::access::keyspace::Keyspace;
use crate::access::lease::{LeaseId, LeasePlace, Leases};
use crate::access::lock::{Held, Want};
use crate::layout::key::Key;
use isotherm_stdx::steps;
use std::sync::PoisonError;
use std::sync::atomic::Ordering::{Acquire, Release};
use std::time::Duration;

/// Times that a thread with a deadline finds a lease which has begun since there were none.
const GATE_ATTEMPTS: usize = 4;

impl Keyspace {
    /// Sets the function that is called when leases have ended, or when no gate is waited for any more: what
    /// had to wait may try again. Set once.
    pub fn watch_leases(&self, changed: impl Fn() + Send + Sync + 'static) {
        assert!(self.shared().leases.changed.set(Box::new(changed)).is_ok(), "it is said once");
    }

    #[inline]
    pub fn has_leases(&self) -> bool {
        self.lease_holders() > 0
    }

    /// Returns the number of holders, which may have leases.
    #[inline]
    pub fn lease_holders(&self) -> usize {
        self.shared().leases.count.load(Acquire)
    }

    pub fn lease_place(&self, key: &Key<'_>) -> LeasePlace {
        LeasePlace { partition: self.partition_of(key.slot), hash: key.hash }
    }

    /// Returns whether a thread wants the gate: a script that would have leases had better not begin.
    pub fn is_gate_awaited(&self) -> bool {
        let leases = &self.shared().leases;
        leases.gates_waiting.load(Acquire) > 0 || leases.is_gate_asked.load(Acquire)
    }

    /// Sets whether a thread wants the gate and has something else to do meanwhile (`Held::try_gate`). Only
    /// one thread calls this, again and again.
    pub fn ask_for_gate(&self, is_asked: bool) {
        let leases = &self.shared().leases;
        if leases.is_gate_asked.load(Acquire) != is_asked {
            leases.is_gate_asked.store(is_asked, Release);
            if !is_asked {
                leases.notify();
            }
        }
    }

    /// Counts one more holder, which may have leases. The caller holds what it is about to lease, or nothing
    /// that would break the gate.
    pub fn begin_lease(&self) {
        let leases = &self.shared().leases;
        let mut holders = leases.holders.lock().unwrap_or_else(PoisonError::into_inner);
        *holders += 1;
        leases.count.store(*holders, Release);
        own::add(1);
    }

    /// Counts one holder less, which has freed all that it had leased.
    pub fn end_lease(&self) {
        let leases = &self.shared().leases;
        let mut holders = leases.holders.lock().unwrap_or_else(PoisonError::into_inner);
        *holders -= 1;
        leases.count.store(*holders, Release);
        if *holders == 0 {
            leases.none_left.notify_all();
        }
        drop(holders);
        own::add(-1);
        leases.notify();
    }

    /// Waits until there are no leases, for a moment at least. The caller holds nothing.
    pub fn await_no_leases(&self) {
        let leases = &self.shared().leases;
        let mut holders = leases.holders.lock().unwrap_or_else(PoisonError::into_inner);
        while *holders > 0 {
            holders = leases.none_left.wait(holders).unwrap_or_else(PoisonError::into_inner);
        }
    }

    /// Waits until there are no leases, or until `at_most` has passed. Returns whether there were none.
    fn await_no_leases_for(&self, at_most: Duration) -> bool {
        let leases = &self.shared().leases;
        let holders = leases.holders.lock().unwrap_or_else(PoisonError::into_inner);
        let waited = leases.none_left.wait_timeout_while(holders, at_most, |holders| *holders > 0);
        *waited.unwrap_or_else(PoisonError::into_inner).0 == 0
    }
}

impl Held<'_> {
    /// Locks everything while there are no leases. Returns whether another thread had a part of it.
    pub(crate) fn lock_gate(&mut self) -> bool {
        let mut waited = self.lock_all();
        if !self.keyspace().has_leases() {
            return waited;
        }
        own::assert_none();
        let leases = &self.keyspace().shared().leases;
        leases.gates_waiting.fetch_add(1, Release);
        while self.keyspace().has_leases() {
            self.release();
            self.keyspace().await_no_leases();
            self.lock_all();
            waited = true;
        }
        if leases.gates_waiting.fetch_sub(1, Release) == 1 {
            leases.notify();
        }
        waited
    }

    /// Locks everything unless there are leases: then nothing is held.
    pub fn try_gate(&mut self) -> bool {
        if self.keyspace().has_leases() {
            return false;
        }
        self.acquire_beside_leases();
        let is_had = !self.keyspace().has_leases();
        if !is_had {
            self.release();
        }
        is_had
    }

    /// Locks everything once there are no leases, if that is within `at_most`. False: nothing is held.
    /// Meanwhile no script begins.
    pub fn gate_within(&mut self, at_most: Duration) -> bool {
        if self.try_gate() {
            return true;
        }
        own::assert_none();
        let leases = &self.keyspace().shared().leases;
        leases.gates_waiting.fetch_add(1, Release);
        let mut is_had = false;
        // A script that was admitted before may have begun meanwhile.
        for _ in 0..GATE_ATTEMPTS {
            if is_had || !self.keyspace().await_no_leases_for(at_most) {
                break;
            }
            is_had = self.try_gate();
        }
        if leases.gates_waiting.fetch_sub(1, Release) == 1 {
            leases.notify();
        }
        is_had
    }

    /// Locks everything, for a caller that only looks on, or has leases itself: scripts may be in the middle
    /// of their work. Returns whether another thread had a part of it.
    pub fn acquire_beside_leases(&mut self) -> bool {
        if self.covers(Want::All) {
            return false;
        }
        self.release();
        self.begin_budget();
        self.lock_all()
    }

    /// The key with this hash, in a partition that is held, is leased from now on. No other script has leased
    /// it. Returns whether it was not leased yet.
    pub fn lease(&mut self, place: LeasePlace, id: LeaseId) -> bool {
        let before = self.numbered(place.partition).leases.by_hash.insert(place.hash, id);
        debug_assert!(before.is_none_or(|before| before == id), "a key has one lease");
        before.is_none()
    }

    /// Leases every key there is and will be. Everything is held, and no other script has leased a key.
    pub fn lease_all(&mut self, id: LeaseId) {
        assert!(self.holds_all(), "no other thread is in the middle of a command");
        for partition in self.held_partitions() {
            debug_assert!(partition.leases.all.is_none_or(|before| before == id));
            partition.leases.all = Some(id);
        }
    }

    /// Returns whether the key, whose partition is held, is leased by another holder than `id`. A command
    /// asks for each key that its client has named: that is its own work, and not counted as what the hold
    /// does for others.
    pub fn is_leased(&self, key: &Key<'_>, id: Option<LeaseId>) -> bool {
        let leases = &self.partition_ref(key.slot).leases;
        leases.by_hash.get(&key.hash).copied().or(leases.all).is_some_and(|leaser| Some(leaser) != id)
    }

    /// Frees the leases under this number in all partitions that are held: in all there are, if it has leased
    /// all.
    pub fn free_leases(&mut self, id: LeaseId) {
        for partition in self.held_partitions() {
            steps::note(1);
            partition.leases.by_hash.retain(|_, leaser| *leaser != id);
            partition.leases.all = partition.leases.all.filter(|leaser| *leaser != id);
            if partition.leases.is_empty() {
                partition.leases = Leases::default();
            }
        }
    }

    /// Locks one more partition if that needs no waiting. So this may be done in any order.
    pub fn try_extend(&mut self, partition: u16) -> bool {
        self.holds_numbered(partition) || self.try_push(partition)
    }

    /// Locks all other partitions too, if that needs no waiting. Returns whether all are held.
    pub fn try_extend_all(&mut self) -> bool {
        (0..self.keyspace().partition_count() as u16).all(|partition| self.try_extend(partition))
    }
}

/// Number of leases that this thread has to end: if it waited for these, it would wait for itself.
#[cfg(not(shuttle))]
mod own {
    use std::cell::Cell;

    thread_local! {
        static COUNT: Cell<isize> = const { Cell::new(0) };
    }

    pub fn add(count: isize) {
        COUNT.set(COUNT.get() + count);
    }

    pub fn assert_none() {
        assert_eq!(COUNT.get(), 0, "a thread that has to bring a script to its end does not wait for that");
    }
}

/// Shuttle's threads are none of the system's.
#[cfg(shuttle)]
mod own {
    pub fn add(_: isize) {}
    pub fn assert_none() {}
}
