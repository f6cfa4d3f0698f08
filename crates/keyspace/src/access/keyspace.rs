//! The keyspace: all partitions, each behind its lock, and what they share.

use crate::access::partition::Partition;
use crate::access::shared::{Config, Shared};
use crate::access::sync::{Mutex, MutexGuard};
use crate::access::work_guard::{HoldWatch, WorkGuard};
use crate::accounting::attribution::{PrefixError, PrefixReport, PrefixSettings};
use crate::layout::cold::ColdKeeper;
use crate::layout::key::{Key, KeyHasher};
use crate::layout::kind::Db;
use crate::layout::large::{Lent, RequestMemory};
use crate::layout::last_used::AccessMode;
use crate::tables::geometry::Geometry;
use isotherm_arena::{Arena, ArenaConfig, ReserveError};
use isotherm_stdx::Slot;
use std::ops::Range;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, PoisonError, TryLockError};

pub struct Keyspace {
    pub(super) partitions: Box<[Mutex<Partition>]>,
    pub(super) arenas: Box<[Arc<Arena>]>,
    pub(super) shared: Arc<Shared>,
    hasher: KeyHasher,
    pub(crate) geometry: Geometry,
    config: Config,
}

impl Keyspace {
    pub fn new(config: Config) -> Result<Keyspace, ReserveError> {
        assert!(config.arenas >= 1 && config.databases >= 1, "there is at least one of each");
        let geometry = Geometry::new(config.partitions);
        let shared = Arc::new(Shared::new(&config));
        let reserve_bytes = config.reserve_bytes / config.arenas as u64;
        let arenas = (0..config.arenas)
            .map(|_| Arena::new(ArenaConfig { reserve_bytes }).map(Arc::new))
            .collect::<Result<Box<[_]>, _>>()?;
        let partitions = (0..config.partitions as u16)
            .map(|number| {
                // Neighbouring stripes in different arenas: their locks are taken by different workers at a
                // time.
                let arena = Arc::clone(&arenas[usize::from(number) % config.arenas]);
                Mutex::new(Partition::new(number, geometry, &config, arena, Arc::clone(&shared)))
            })
            .collect();
        let hasher = KeyHasher::new(config.hash_secret);
        Ok(Keyspace { partitions, arenas, shared, hasher, geometry, config })
    }

    pub fn config(&self) -> &Config {
        &self.config
    }

    #[inline]
    pub fn key<'a>(&self, bytes: &'a [u8]) -> Key<'a> {
        self.hasher.key(bytes)
    }

    #[inline]
    pub fn partition_of(&self, slot: Slot) -> u16 {
        self.geometry.partition_of(slot)
    }

    /// Returns the stamp that `Held::stamps` has for the partition of a slot.
    pub fn stamp_of(&self, slot: Slot) -> &AtomicU64 {
        &self.shared.stamps[usize::from(self.partition_of(slot))]
    }

    pub(crate) fn hasher(&self) -> KeyHasher {
        self.hasher
    }

    /// Returns whether something that was removed from a partition may wait to be freed (`free_step`).
    pub fn has_unfreed(&self, partition: u16) -> bool {
        self.shared.unfreed[usize::from(partition)].load(Relaxed)
    }

    /// Removed collections and keys of flushed databases: those that wait to be freed, and those that were
    /// freed since `reset_lazy_frees`.
    pub fn lazy_frees(&self) -> (u64, u64) {
        (self.shared.lazy.pending(), self.shared.lazy.freed())
    }

    pub fn reset_lazy_frees(&self) {
        self.shared.lazy.reset();
    }

    pub fn partition_count(&self) -> usize {
        self.partitions.len()
    }

    /// Lends the bytes of a request that consists mostly of `argument`: see [`Lent::lend_to`].
    pub fn lend_request(&self, request: Vec<u8>, argument: Range<usize>, memory: RequestMemory) -> Lent {
        Lent::new(request, argument, memory, &self.shared.large)
    }

    /// Bytes that strings and elements above 4 KB take of the global allocator.
    pub fn large_bytes(&self) -> u64 {
        self.shared.large.bytes()
    }

    pub fn arenas(&self) -> &[Arc<Arena>] {
        &self.arenas
    }

    /// An arena for which no more memory is to be had: keys of its partitions are refused until some have
    /// left.
    #[inline]
    pub fn full_arena(&self) -> Option<usize> {
        self.arenas.iter().position(|arena| arena.is_full())
    }

    /// Bytes of all live objects; none if an arena is full.
    #[inline(always)]
    pub fn live_bytes_unless_full(&self) -> Option<u64> {
        match &*self.arenas {
            [only] => (!only.is_full()).then(|| only.live_bytes()),
            arenas => {
                let mut all = arenas.iter();
                all.try_fold(0, |sum, arena| (!arena.is_full()).then(|| sum + arena.live_bytes()))
            }
        }
    }

    /// The arena that a partition's objects lie in.
    #[inline]
    pub(crate) fn arena_of(&self, partition: u16) -> &Arc<Arena> {
        match &*self.arenas {
            // A division costs as much as a near cache miss.
            [only] => only,
            arenas => &arenas[usize::from(partition) % arenas.len()],
        }
    }

    #[inline]
    pub(crate) fn shared(&self) -> &Shared {
        &self.shared
    }

    /// Sets the access stamps that are kept from now on (maxmemory-policy), and lfu-log-factor.
    pub fn set_access(&self, mode: AccessMode, lfu_log_factor: u32) {
        self.shared.access.set(mode);
        for number in 0..self.partitions.len() as u16 {
            let mut partition = self.lock(number);
            partition.store.access = mode;
            partition.store.lfu_log_factor = lfu_log_factor;
        }
    }

    pub fn access(&self) -> AccessMode {
        self.shared.access.mode()
    }

    /// Returns whether any database has a key. No partition may be held.
    pub fn has_keys(&self) -> bool {
        let has_keys = |number: u16| {
            let partition = self.lock(number);
            (0..self.config.databases).any(|db| partition.len(Db(db)) > 0)
        };
        (0..self.partition_count() as u16).any(has_keys)
    }

    /// Sets the keeper that gets references back. To be called before the first value leaves memory.
    pub fn keep_cold(&self, keeper: &Arc<dyn ColdKeeper>) {
        let partitions = self.partition_count();
        for partition in 0..partitions as u16 {
            let cold = &mut self.lock(partition).store.cold;
            (cold.keeper, cold.partitions) = (Some(Arc::clone(keeper)), partitions);
        }
    }

    /// Sets how prefixes of keys are counted from now on. Called once, before there are keys.
    pub fn plan_prefixes(&self, settings: PrefixSettings) -> Result<(), PrefixError> {
        if self.shared.counters.weights.iter().any(|weight| weight.keys.load(Relaxed) > 0) {
            return Err(PrefixError::HasKeys);
        }
        self.shared.counters.attribution.prefixes.plan(settings)
    }

    /// Returns the keys and memory under the prefixes that have `depth` separators, the one after them
    /// counted (from 1 to `PREFIX_DEPTH_MAX`). `None` if that is not counted.
    pub fn prefixes(&self, depth: usize) -> Option<PrefixReport> {
        self.shared.counters.attribution.prefixes.report(depth)
    }

    /// Counts keys that are waited for, and those of them by a client that waits for their removal too.
    pub fn waited_keys(&self) -> [u64; 2] {
        self.shared.waited.get()
    }

    /// Sets the watch that measures the holds of work, once.
    pub fn watch_holds(&self, watch: HoldWatch) {
        self.shared.watch.set(watch).expect("it is said once");
    }

    /// Locks a partition for a step of work.
    pub(crate) fn lock(&self, partition: u16) -> WorkGuard<'_, Partition> {
        WorkGuard::new(self.shared.watch(), self.lock_unwatched(partition))
    }

    pub(crate) fn try_lock(&self, partition: u16) -> Option<WorkGuard<'_, Partition>> {
        self.try_lock_unwatched(partition).map(|guard| WorkGuard::new(self.shared.watch(), guard))
    }

    pub(super) fn lock_unwatched(&self, partition: u16) -> MutexGuard<'_, Partition> {
        // A panic under a lock ends the process (panic = abort), so a poisoned lock is met only in tests.
        self.partitions[usize::from(partition)].lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn try_lock_unwatched(&self, partition: u16) -> Option<MutexGuard<'_, Partition>> {
        match self.partitions[usize::from(partition)].try_lock() {
            Ok(guard) => Some(guard),
            Err(TryLockError::Poisoned(poisoned)) => Some(poisoned.into_inner()),
            Err(TryLockError::WouldBlock) => None,
        }
    }
}
