//! Settings of a keyspace, and the state that its partitions share: read without any of their locks.

use crate::access::lease::LeaseShared;
use crate::access::waiter::WaitedKeys;
use crate::access::work_guard::HoldWatch;
use crate::accounting::lazy::LazyFrees;
use crate::layout::key::KeyHasher;
use crate::layout::kind::Db;
use crate::layout::large::LargeAccount;
use crate::layout::last_used::AccessSettings;
use crate::tables::counters::Counters;
use crate::values::kept::KeptAccount;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64};
use std::sync::{Arc, OnceLock};

/// Settings with which a keyspace is made; fixed while the process lives.
#[derive(Clone, Debug)]
pub struct Config {
    /// Lock stripes: a power of two, 1..=1024.
    pub partitions: usize,
    /// Arenas, each shared by a fixed set of stripes.
    pub arenas: usize,
    /// Databases (SELECT).
    pub databases: u16,
    /// Address space of all arenas together.
    pub reserve_bytes: u64,
    /// The secret of the key hash.
    pub hash_secret: [u8; 16],
    /// Returns the bytes that the global allocator takes for a request of that many bytes: for memory
    /// accounting.
    pub class_bytes: fn(usize) -> usize,
}

/// State that is read without a partition's lock.
pub(crate) struct Shared {
    databases: usize,
    /// Raw handles of the tables' slot indexes, by partition and database: where prefetch hints begin.
    roots: Box<[AtomicU32]>,
    /// Counters of tables.
    pub counters: Arc<Counters>,
    /// Flags by partition: something that was removed may wait to be freed.
    pub unfreed: Box<[Arc<AtomicBool>]>,
    pub lazy: Arc<LazyFrees>,
    /// Numbers by partition: the caller gives a partition its number with each change. As a field of the
    /// partition this number moved the others to cache lines that two threads took from each other: SETs of
    /// two threads fell from 1.85 to 1.07 of those of one.
    pub stamps: Box<[AtomicU64]>,
    pub access: AccessSettings,
    pub snapshot_active: AtomicBool,
    /// Counted under the gate, when all is cut.
    pub snapshots_begun: AtomicU64,
    /// Account of the memory that is kept for a snapshot.
    pub kept: Arc<KeptAccount>,
    pub waited: WaitedKeys,
    /// Number of times that databases were swapped. Changes while everything is held.
    pub swaps: AtomicU64,
    pub watch: OnceLock<HoldWatch>,
    /// Turns of waiters that were given.
    pub next_turn: AtomicU64,
    /// Account of large bodies, those that a snapshot still holds included.
    pub large: Arc<LargeAccount>,
    pub leases: LeaseShared,
}

impl Shared {
    pub fn new(config: &Config) -> Shared {
        let databases = usize::from(config.databases);
        Shared {
            databases,
            roots: (0..config.partitions * databases).map(|_| AtomicU32::new(0)).collect(),
            counters: Arc::new(Counters::new(config.partitions, KeyHasher::new(config.hash_secret))),
            lazy: Arc::default(),
            unfreed: (0..config.partitions).map(|_| Arc::default()).collect(),
            stamps: (0..config.partitions).map(|_| AtomicU64::new(0)).collect(),
            access: AccessSettings::new(),
            snapshot_active: AtomicBool::new(false),
            snapshots_begun: AtomicU64::new(0),
            kept: Arc::new(KeptAccount::new()),
            waited: WaitedKeys::default(),
            swaps: AtomicU64::new(0),
            watch: OnceLock::new(),
            next_turn: AtomicU64::new(0),
            large: Arc::new(LargeAccount::new(config.class_bytes)),
            leases: LeaseShared::default(),
        }
    }

    pub fn watch(&self) -> HoldWatch {
        self.watch.get().copied().unwrap_or(HoldWatch::NONE)
    }

    #[inline]
    pub fn root(&self, partition: u16, db: Db) -> &AtomicU32 {
        &self.roots[usize::from(partition) * self.databases + usize::from(db.0)]
    }
}
