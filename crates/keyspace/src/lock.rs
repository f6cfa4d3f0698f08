//! The keyspace and its lock stripes.
//!
//! A slot lies wholly in one partition (`geometry`). Data is reachable only through a guard: a [`Held`] is the set of
//! guards that a command has, always locked in ascending order, so two workers never wait for each other in a ring.
//!
//! Holding every partition is the gate: nothing else reads or changes data meanwhile.
//!
//! There is no `unsafe` here: a guard is the standard library's, 4.4 ns uncontended, and what it guards is a value.
//! `tests/lock_model.rs` explores interleavings with shuttle, which replaces the mutex under `--cfg shuttle`.

use crate::access::{AccessMode, AccessSettings};
use crate::attribution::Attribution;
use crate::geometry::Geometry;
use crate::key::{Key, KeyHasher};
use crate::large::LargeBooks;
use crate::partition::Partition;
use crate::value::Db;
use crate::waiter::{WaitedKeys, Waiter};
use isotherm_arena::{Arena, ArenaConfig, ReserveError};
use isotherm_stdx::Slot;
use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, PoisonError, TryLockError};

#[cfg(shuttle)]
use shuttle::sync::{Mutex, MutexGuard};
#[cfg(not(shuttle))]
use std::sync::{Mutex, MutexGuard};

/// What a keyspace is made of; fixed while the process lives.
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
    /// What the global allocator takes for a request of so many bytes: for the books.
    pub class_bytes: fn(usize) -> usize,
}

/// What is read without a partition's lock.
pub(crate) struct Shared {
    databases: usize,
    /// Raw handles of the tables' slot indexes, by partition and database: where prefetch hints begin.
    roots: Box<[AtomicU32]>,
    /// Keys and volatile keys of each partition, all databases together: how eviction chooses one.
    pub weights: Box<[Weight]>,
    pub access: AccessSettings,
    pub snapshot_active: AtomicBool,
    pub attribution: Attribution,
    /// Of the table that is made next.
    pub next_table: AtomicU32,
    pub waited: WaitedKeys,
    /// What large bodies take, those that a snapshot still holds included.
    pub large: Arc<LargeBooks>,
}

#[derive(Default)]
pub(crate) struct Weight {
    pub keys: AtomicU64,
    pub volatile: AtomicU64,
}

impl Weight {
    /// Called under the partition's lock, so that a plain load and store lose nothing.
    #[inline]
    pub fn add(&self, keys: i64, volatile: i64) {
        for (weight, change) in [(&self.keys, keys), (&self.volatile, volatile)] {
            if change != 0 {
                weight.store(weight.load(Relaxed).wrapping_add_signed(change), Relaxed);
            }
        }
    }
}

impl Shared {
    fn new(config: &Config) -> Shared {
        let databases = usize::from(config.databases);
        Shared {
            databases,
            roots: (0..config.partitions * databases).map(|_| AtomicU32::new(0)).collect(),
            weights: (0..config.partitions).map(|_| Weight::default()).collect(),
            access: AccessSettings::new(),
            snapshot_active: AtomicBool::new(false),
            attribution: Attribution::new(KeyHasher::new(config.hash_secret)),
            next_table: AtomicU32::new(0),
            waited: WaitedKeys::default(),
            large: Arc::new(LargeBooks::new(config.class_bytes)),
        }
    }

    #[inline]
    pub fn root(&self, partition: u16, db: Db) -> &AtomicU32 {
        &self.roots[usize::from(partition) * self.databases + usize::from(db.0)]
    }
}

pub struct Keyspace {
    partitions: Box<[Mutex<Partition>]>,
    arenas: Box<[Arc<Arena>]>,
    shared: Arc<Shared>,
    hasher: KeyHasher,
    pub(crate) geometry: Geometry,
    config: Config,
}

/// The partitions that a command needs.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Want<'a> {
    Nothing,
    One(u16),
    /// Ascending, without repetitions.
    Many(&'a [u16]),
    /// The gate.
    All,
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
                // Neighbouring stripes in different arenas: their locks are taken by different workers at a time.
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

    pub fn partition_count(&self) -> usize {
        self.partitions.len()
    }

    /// What strings and elements above 4 KB take of the global allocator.
    pub fn large_bytes(&self) -> u64 {
        self.shared.large.bytes()
    }

    pub fn arenas(&self) -> &[Arc<Arena>] {
        &self.arenas
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

    /// Which access stamps are kept from now on (maxmemory-policy), and lfu-log-factor.
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

    /// How many keys are waited for, and how many of them by somebody who waits for their removal too.
    pub fn waited_keys(&self) -> [u64; 2] {
        self.shared.waited.get()
    }

    /// Asserts everything that the files of this crate call an invariant. Takes the gate.
    pub fn check_invariants(&self) {
        let mut held = Held::new(self);
        held.acquire(Want::All);
        let mut objects = vec![0; self.arenas.len()];
        let mut waited = [0; 2];
        for partition in held.partitions() {
            objects[usize::from(partition.number) % self.arenas.len()] += partition.check_invariants();
            let counts = partition.waiters.counts();
            waited = [waited[0] + counts[0], waited[1] + counts[1]];
        }
        assert_eq!(waited, self.waited_keys());
        self.check_books(&held);
        held.check_attribution();
        for (arena, objects) in self.arenas.iter().zip(objects) {
            arena.check_invariants();
            assert_eq!(arena.stats().live_objects, objects, "every object is referred to, once");
        }
    }

    pub(crate) fn lock(&self, partition: u16) -> MutexGuard<'_, Partition> {
        // A panic under a lock ends the process (panic = abort), so a poisoned lock is met only in tests.
        self.partitions[usize::from(partition)].lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn try_lock(&self, partition: u16) -> Option<MutexGuard<'_, Partition>> {
        match self.partitions[usize::from(partition)].try_lock() {
            Ok(guard) => Some(guard),
            Err(TryLockError::Poisoned(poisoned)) => Some(poisoned.into_inner()),
            Err(TryLockError::WouldBlock) => None,
        }
    }
}

/// The partitions that are locked for the command under way. Kept over a batch: while consecutive commands need the
/// same partition it is locked once.
pub struct Held<'k> {
    pub(crate) keyspace: &'k Keyspace,
    /// Ascending by partition.
    guards: Vec<(u16, MutexGuard<'k, Partition>)>,
    /// Keys that somebody waits for and that were changed, in the order of their first change.
    ready: VecDeque<(Db, Box<[u8]>)>,
}

impl<'k> Held<'k> {
    pub fn new(keyspace: &'k Keyspace) -> Held<'k> {
        Held { keyspace, guards: Vec::new(), ready: VecDeque::new() }
    }

    pub fn keyspace(&self) -> &'k Keyspace {
        self.keyspace
    }

    /// Makes sure that all of `want` is held. What is held already stays if it is enough; otherwise everything is
    /// dropped first and locked again in ascending order.
    #[inline]
    pub fn acquire(&mut self, want: Want<'_>) {
        if self.covers(want) {
            return;
        }
        self.release();
        match want {
            Want::Nothing => {}
            Want::One(partition) => self.lock(partition),
            Want::Many(partitions) => partitions.iter().for_each(|&partition| self.lock(partition)),
            Want::All => {
                (0..self.keyspace.partitions.len() as u16).for_each(|partition| self.lock(partition))
            }
        }
    }

    /// Unlocks everything. Whoever waits for what was changed has been served before.
    #[inline]
    pub fn release(&mut self) {
        debug_assert!(self.ready.is_empty(), "waiters are served under the locks of who changed their keys");
        self.guards.clear();
    }

    pub fn holds_any(&self) -> bool {
        !self.guards.is_empty()
    }

    pub fn holds_all(&self) -> bool {
        self.guards.len() == self.keyspace.partitions.len()
    }

    fn lock(&mut self, partition: u16) {
        debug_assert!(
            self.guards.last().is_none_or(|(last, _)| *last < partition),
            "locks are taken ascending"
        );
        self.guards.push((partition, self.keyspace.lock(partition)));
    }

    #[inline]
    fn covers(&self, want: Want<'_>) -> bool {
        match want {
            Want::Nothing => true,
            Want::One(partition) => self.position(partition).is_some(),
            Want::Many(partitions) => partitions.iter().all(|&partition| self.position(partition).is_some()),
            Want::All => self.holds_all(),
        }
    }

    #[inline]
    fn position(&self, partition: u16) -> Option<usize> {
        match self.guards.as_slice() {
            [] => None,
            [(only, _)] => (*only == partition).then_some(0),
            many => many.binary_search_by_key(&partition, |(number, _)| *number).ok(),
        }
    }

    /// The partition of a slot. Panics if it is not held: a command that touches a key it did not name is our bug.
    #[inline]
    pub(crate) fn partition(&mut self, slot: Slot) -> &mut Partition {
        self.numbered(self.keyspace.partition_of(slot))
    }

    #[inline]
    pub(crate) fn numbered(&mut self, partition: u16) -> &mut Partition {
        let at = self.position(partition).expect("a command touches only keys whose partitions it holds");
        &mut self.guards[at].1
    }

    /// Two different partitions that are held.
    pub(crate) fn two(&mut self, a: Slot, b: Slot) -> (&mut Partition, &mut Partition) {
        let at = [a, b].map(|slot| {
            let number = self.keyspace.partition_of(slot);
            self.position(number).expect("a command touches only keys whose partitions it holds")
        });
        let [a, b] = self.guards.get_disjoint_mut(at).expect("they are different");
        (&mut a.1, &mut b.1)
    }

    /// From now on every change of a key is told (`Effect::Touched`), or no longer. All partitions are held, so that no
    /// command falls between.
    pub fn tell_changes(&mut self, tell: bool) {
        assert!(self.holds_all(), "whoever asks for changes holds the gate");
        self.partitions().for_each(|partition| partition.tells_changes = tell);
    }

    // ---- waiters ----

    /// Somebody waits for this key, and it was changed.
    pub(crate) fn note_ready(&mut self, db: Db, key: &[u8]) {
        if !self.ready.iter().any(|(other, name)| *other == db && **name == *key) {
            self.ready.push_back((db, key.into()));
        }
    }

    /// Whether `take_ready` has one.
    #[inline]
    pub fn has_ready(&self) -> bool {
        !self.ready.is_empty()
    }

    /// The key that was changed first, of those that somebody waits for.
    pub fn take_ready(&mut self) -> Option<(Db, Box<[u8]>)> {
        self.ready.pop_front()
    }

    /// How many keys are noted.
    pub fn ready_len(&self) -> usize {
        self.ready.len()
    }

    /// Forgets the keys that were noted after the first `len`: whoever noted them has found nothing, and so will others.
    pub fn forget_ready(&mut self, len: usize) {
        self.ready.truncate(len);
    }

    /// Those who wait for `key`, the oldest first. Its partition is held.
    pub fn waiters(&mut self, db: Db, key: &Key<'_>) -> Vec<Arc<Waiter>> {
        self.partition(key.slot).waiters.of(db, key.bytes).to_vec()
    }

    /// Whether the key's partition is held.
    pub fn holds(&self, key: &Key<'_>) -> bool {
        self.position(self.keyspace.partition_of(key.slot)).is_some()
    }

    /// Lists `waiter` under each of its keys, behind those that wait for it already. Their partitions are held.
    pub fn wait(&mut self, waiter: &Arc<Waiter>) {
        for (db, name) in &waiter.keys {
            let slot = Slot::of_key(name);
            let counts = &self.keyspace.shared.waited;
            self.partition(slot).waiters.add(*db, name, waiter, counts);
        }
    }

    /// Takes a waiter that has ended out of the lists of those partitions that are held.
    pub fn forget_here(&mut self, waiter: &Arc<Waiter>) {
        for (db, name) in &waiter.keys {
            let partition = self.keyspace.partition_of(Slot::of_key(name));
            if self.position(partition).is_some() {
                let counts = &self.keyspace.shared.waited;
                self.numbered(partition).waiters.remove(*db, name, waiter, counts);
            }
        }
    }

    /// The same everywhere: locks each partition in turn.
    pub fn forget(&mut self, waiter: &Arc<Waiter>) {
        for (_, name) in &waiter.keys {
            self.acquire(Want::One(self.keyspace.partition_of(Slot::of_key(name))));
            self.forget_here(waiter);
        }
        self.release();
    }

    /// Whoever stands behind `waiter` may be served now: all of its keys are looked at. Their partitions are held.
    pub fn pass_on(&mut self, waiter: &Waiter) {
        waiter.keys.iter().for_each(|(db, name)| self.note_ready(*db, name));
    }

    pub(crate) fn all(&self) -> impl Iterator<Item = &Partition> {
        assert!(self.holds_all(), "whole-keyspace work holds the gate");
        self.guards.iter().map(|(_, guard)| &**guard)
    }

    pub(crate) fn partitions(&mut self) -> impl Iterator<Item = &mut Partition> {
        assert!(self.holds_all(), "whole-keyspace work holds the gate");
        self.guards.iter_mut().map(|(_, guard)| &mut **guard)
    }
}
