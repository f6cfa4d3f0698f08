//! Leases: keys that stay a script's own after it has released their partitions.
//!
//! ```text
//!   partition 3   locked for one call at a time     leases   hash of k1: 17 | hash of k9: 17 | hash of k4: 21
//!   partition 8                                     leases   hash of k2: 17
//!   shared        holders: 2 (17, 21)               gates that wait: 1
//! ```
//! A script that takes long must not hold locks, and no other client may see what it has half done, nor
//! change what it has read. So its partitions are unlocked, and the keys that it has named or met are listed,
//! by their hash, under its number. A command that has its locks looks whether one of its keys is listed
//! under another number; then it releases all that it holds, and comes again. A script frees its leases
//! together, at its end, so what scripts do has an order in which it could have been done one after the
//! other. MIGRATE leases keys in the same way while they are on their way to another server. (Two keys with
//! one hash share a lease: one of them is waited for without need.)
//!
//! The operations on leases are in `leasing`.
//!
//! **The gate** is taken only while there are no leases: its uses - the cut of a snapshot, a change of the
//! role - must not fall into the middle of a script. Reports take all partitions with
//! `acquire_beside_leases`. A script that needs every key (KEYS, FLUSHALL) leases **all**, once no other
//! script has a lease: each partition says so.
//!
//! **No cycle.** A thread never waits for a lease while it holds a partition. The caller decides which
//! scripts may lease a key while they have leases already: one at a time, or two of them could wait for each
//! other.
//!
//! Invariants: a partition lists only numbers between `begin_lease` and `end_lease`. Leases of a partition
//! change under its lock only: a command that finds a key leased there is listed for the end of that lease
//! before the lease ends.

use crate::access::sync::{AtomicBool, AtomicUsize, Condvar, Mutex};
use std::collections::HashMap;
use std::hash::{BuildHasherDefault, Hasher};
use std::num::NonZeroU64;
use std::sync::OnceLock;

/// Holder of leases: a number that no other run of a script of this process has.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct LeaseId(pub NonZeroU64);

/// Place at which a leased key is listed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct LeasePlace {
    pub partition: u16,
    pub hash: u64,
}

/// The hashes of keys are keyed hashes already.
#[derive(Default)]
pub(super) struct AsItIs(u64);

impl Hasher for AsItIs {
    fn finish(&self) -> u64 {
        self.0
    }

    fn write(&mut self, _: &[u8]) {
        unreachable!("the keys are u64");
    }

    fn write_u64(&mut self, hash: u64) {
        self.0 = hash;
    }
}

/// The leased keys of one partition.
#[derive(Default)]
pub(crate) struct Leases {
    pub(super) by_hash: HashMap<u64, LeaseId, BuildHasherDefault<AsItIs>>,
    /// Holder that has leased every key, those that are not there yet too. All partitions have the same one.
    pub(super) all: Option<LeaseId>,
}

impl Leases {
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.by_hash.is_empty() && self.all.is_none()
    }

    #[inline]
    pub fn has_all(&self) -> bool {
        self.all.is_some()
    }

    #[inline]
    pub fn has(&self, hash: u64) -> bool {
        self.all.is_some() || self.by_hash.contains_key(&hash)
    }
}

/// State of all leases that is read without a partition's lock.
#[derive(Default)]
pub(crate) struct LeaseShared {
    pub(super) holders: Mutex<usize>,
    pub(super) none_left: Condvar,
    /// A copy of `holders`, for threads that only ask.
    pub(super) count: AtomicUsize,
    pub(super) gates_waiting: AtomicUsize,
    /// A thread that does not wait wants the gate.
    pub(super) is_gate_asked: AtomicBool,
    pub(super) changed: OnceLock<Box<dyn Fn() + Send + Sync>>,
}

impl LeaseShared {
    pub(super) fn notify(&self) {
        if let Some(changed) = self.changed.get() {
            changed();
        }
    }
}
