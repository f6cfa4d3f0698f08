//! The guards that a command has over the lock stripes of the keyspace.
//!
//! A slot lies wholly in one partition (`geometry`). Data is reachable only through a guard: a [`Held`] is
//! the set of guards that a command has, always locked in ascending order, so two workers never wait for each
//! other in a ring.
//!
//! Holding every partition is the gate: nothing else reads or changes data meanwhile, and no script is in the
//! middle of its work (`lease`).
//!
//! The module has no `unsafe`: a guard is the standard library's, 4.4 ns uncontended, and what it guards is a
//! value. `tests/shuttle/lock_model.rs` and `tests/shuttle/waiter_model.rs` explore interleavings with
//! shuttle, which replaces the mutex under `--cfg shuttle` (`sync`).

use crate::access::budget::HoldBudget;
use crate::access::keyspace::Keyspace;
use crate::access::named::NamedKeys;
use crate::access::partition::Partition;
use crate::access::ready::{Ready, ReadyKey};
use crate::access::sync::MutexGuard;
use crate::access::terms::Missing;
use crate::access::waiter::{WaitedKey, Waiter};
use crate::access::walk::Walk;
use crate::layout::key::Key;
use crate::layout::kind::{Db, Type};
use crate::layout::large::Shared;
use isotherm_stdx::{Slot, Steps, steps};
use std::sync::Arc;
use std::sync::atomic::AtomicU64;

/// Keys of one waiter or WATCH that are listed or taken out under one lock: some tens of microseconds, and
/// then others have the partition.
pub const KEYS_PER_HOLD_MAX: usize = 256;

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

/// Keys that are waited for and were changed by a script that is not over.
#[derive(Default)]
pub struct SuspendedReady(Ready);

/// The partitions that are locked for the command under way. Kept over a batch: while consecutive commands
/// need the same partition it is locked once.
pub struct Held<'k> {
    pub(crate) keyspace: &'k Keyspace,
    /// Ascending by partition.
    guards: Vec<(u16, MutexGuard<'k, Partition>)>,
    /// Keys that are waited for and were changed.
    ready: Ready,
    budget: HoldBudget,
    /// Entries of flushed databases that are to be freed before the client is answered.
    pub(crate) free_afterwards: u64,
    /// Time at which a lock that another thread held was obtained at last, by the clock of the watch: a lock
    /// that is free takes no time.
    locked_at: u64,
    pub(crate) missing: Vec<Missing>,
    /// Something that a command was lent is to go with its locks.
    pub(super) drops_passed: bool,
    /// Records that the current command has, if it walks over keys.
    pub walk: Walk,
    /// Keys that the handler under way may resolve; none: whatever is held.
    pub(super) named: Option<NamedKeys>,
    /// The request under way, if an argument of it may be stored as it lies.
    pub(super) lent: Option<Shared>,
}

impl<'k> Held<'k> {
    pub fn new(keyspace: &'k Keyspace) -> Held<'k> {
        Held {
            keyspace,
            guards: Vec::new(),
            ready: Ready::default(),
            budget: HoldBudget::default(),
            free_afterwards: 0,
            locked_at: 0,
            missing: Vec::new(),
            drops_passed: false,
            walk: Walk::default(),
            named: None,
            lent: None,
        }
    }

    pub fn keyspace(&self) -> &'k Keyspace {
        self.keyspace
    }

    /// Lets transactions resolve these keys only, until `unrestrict`: each with whether it may be changed.
    /// `reads_others`: any other may be read. Does nothing in builds without assertions.
    pub fn restrict<'n>(
        &mut self,
        command: &'static str,
        named: impl Iterator<Item = (&'n [u8], bool)>,
        reads_others: bool,
    ) {
        if cfg!(debug_assertions) {
            self.named = Some(NamedKeys::new(self.keyspace, command, named, reads_others));
        }
    }

    /// Lets transactions resolve every key that is held.
    pub fn unrestrict(&mut self) {
        self.named = None;
    }

    /// The key is about to be looked up.
    #[inline(always)]
    pub(super) fn check_named(&self, key: &Key<'_>) {
        if cfg!(debug_assertions)
            && let Some(named) = &self.named
        {
            named.check_named(key);
        }
    }

    /// The key is about to be changed, or was.
    #[inline(always)]
    pub(super) fn check_changed(&self, key: &Key<'_>) {
        if cfg!(debug_assertions)
            && let Some(named) = &self.named
        {
            named.check_changed(key);
        }
    }

    /// Makes sure that all of `want` is held. Locks that are held already stay if they are enough; otherwise
    /// everything is dropped first and locked again in ascending order. Says whether another thread had a
    /// part of it: then time has passed. Where it is inlined this costs nothing, for only the cold path
    /// answers yes.
    #[inline]
    pub fn acquire(&mut self, want: Want<'_>) -> bool {
        if self.covers(want) && !(want == Want::All && self.keyspace.has_leases()) {
            return false;
        }
        self.release();
        self.budget.begin();
        match want {
            Want::Nothing => false,
            Want::One(partition) => self.lock(partition),
            Want::Many(partitions) => self.lock_each(partitions.iter().copied()),
            Want::All => self.lock_gate(),
        }
    }

    /// Makes sure that one partition is held, which most commands need and most batches hold already. Returns
    /// whether another thread had it.
    #[inline(always)]
    pub fn acquire_one(&mut self, partition: u16) -> bool {
        self.position(partition).is_none() && self.acquire(Want::One(partition))
    }

    /// Unlocks everything. Clients that wait for what was changed have been served before.
    #[inline]
    pub fn release(&mut self) {
        debug_assert!(self.ready.is_empty(), "waiters are served under the locks of who changed their keys");
        if !self.guards.is_empty() {
            self.budget.end();
        }
        if self.drops_passed {
            self.drop_passed();
        }
        self.guards.clear();
    }

    /// Exempts `count` looked-at items from the limit: they are the own work of a command that may take as
    /// long as its client asks.
    #[inline(always)]
    pub fn exempt(&mut self, count: u64) {
        if cfg!(debug_assertions) {
            self.budget.own += count;
        }
    }

    pub fn holds_any(&self) -> bool {
        !self.guards.is_empty()
    }

    pub fn holds_all(&self) -> bool {
        self.guards.len() == self.keyspace.partitions.len()
    }

    pub(crate) fn lock_all(&mut self) -> bool {
        self.lock_each(0..self.keyspace.partitions.len() as u16)
    }

    pub(crate) fn begin_budget(&mut self) {
        self.budget.begin();
    }

    /// Locks one more, in whatever order, if no other thread has it.
    pub(crate) fn try_push(&mut self, partition: u16) -> bool {
        let Some(guard) = self.keyspace.try_lock_unwatched(partition) else { return false };
        if self.guards.is_empty() {
            self.budget.begin();
        }
        let at = self.guards.partition_point(|(number, _)| *number < partition);
        self.guards.insert(at, (partition, guard));
        true
    }

    pub(crate) fn holds_numbered(&self, partition: u16) -> bool {
        self.position(partition).is_some()
    }

    pub(crate) fn held_partitions(&mut self) -> impl Iterator<Item = &mut Partition> {
        self.guards.iter_mut().map(|(_, guard)| &mut **guard)
    }

    /// The partition of a slot, to read.
    pub(crate) fn partition_ref(&self, slot: Slot) -> &Partition {
        &self.guards[self.position_of(slot)].1
    }

    fn lock_each(&mut self, partitions: impl Iterator<Item = u16>) -> bool {
        partitions.fold(false, |waited, partition| self.lock(partition) | waited)
    }

    /// Locks a partition. Returns whether another thread had it.
    #[inline]
    fn lock(&mut self, partition: u16) -> bool {
        let is_behind = self.guards.last().is_none_or(|(last, _)| *last < partition);
        debug_assert!(is_behind, "locks are taken ascending");
        match self.keyspace.try_lock_unwatched(partition) {
            Some(guard) => {
                self.guards.push((partition, guard));
                false
            }
            None => {
                self.wait_for(partition);
                true
            }
        }
    }

    #[cold]
    fn wait_for(&mut self, partition: u16) {
        let guard = self.keyspace.lock_unwatched(partition);
        self.locked_at = (self.keyspace.shared.watch().begin)();
        self.guards.push((partition, guard));
    }

    /// Returns the time at which the last lock that had to be waited for was obtained: what was before was no
    /// hold. 0 if none was waited for.
    pub fn locked_at(&self) -> u64 {
        self.locked_at
    }

    #[inline]
    pub fn covers(&self, want: Want<'_>) -> bool {
        match want {
            Want::Nothing => true,
            Want::One(partition) => self.position(partition).is_some(),
            Want::Many(partitions) => partitions.iter().all(|&partition| self.position(partition).is_some()),
            Want::All => self.holds_all(),
        }
    }

    #[inline(always)]
    fn position(&self, partition: u16) -> Option<usize> {
        match self.guards.as_slice() {
            [] => None,
            [(only, _)] => (*only == partition).then_some(0),
            many => many.binary_search_by_key(&partition, |(number, _)| *number).ok(),
        }
    }

    /// The partition of a slot. Panics if it is not held: a command that touches a key it did not name is our
    /// bug.
    #[inline]
    pub(crate) fn partition(&mut self, slot: Slot) -> &mut Partition {
        self.numbered(self.keyspace.partition_of(slot))
    }

    #[inline]
    pub(crate) fn numbered(&mut self, partition: u16) -> &mut Partition {
        let at = self.position(partition).expect("a command touches only keys whose partitions it holds");
        &mut self.guards[at].1
    }

    fn position_of(&self, slot: Slot) -> usize {
        let partition = self.keyspace.partition_of(slot);
        self.position(partition).expect("a command touches only keys whose partitions it holds")
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

    /// Reports each change of a key as an effect (`Effect::Written`), or no longer. All partitions are held.
    pub fn report_changes(&mut self, report: bool) {
        assert!(self.holds_all(), "changes are reported from one moment on: the caller holds the gate");
        self.partitions().for_each(|partition| partition.followers.reports_changes = report);
    }

    /// A number for each partition that is held, kept for the caller (a place in the log, for which replies
    /// have to wait).
    pub fn stamps(&self) -> impl Iterator<Item = &AtomicU64> {
        self.guards.iter().map(|(number, _)| &self.keyspace.shared.stamps[usize::from(*number)])
    }

    /// Returns whether a command has asked for what it flushed to be freed.
    #[inline]
    pub fn has_flushed(&self) -> bool {
        self.free_afterwards > 0
    }

    /// Frees what was flushed, as far as the command has asked for it, a little in each of many holds. What
    /// was held is released.
    pub fn free_flushed(&mut self) {
        /// Entries freed in one hold: some 20 us.
        const STEPS_A_HOLD: usize = 200;
        self.release();
        // Removals by others meanwhile do not prolong this: nothing takes less than a unit of the arena.
        let live_bytes: u64 = self.keyspace.arenas().iter().map(|arena| arena.live_bytes()).sum();
        let most = live_bytes / 16 + Slot::COUNT as u64;
        let mut steps = Steps::new(std::mem::take(&mut self.free_afterwards).min(most));
        for partition in 0..self.keyspace.partition_count() as u16 {
            while self.keyspace.has_unfreed(partition) && !steps.is_spent() {
                self.keyspace.free_step(partition, STEPS_A_HOLD);
                steps.look(STEPS_A_HOLD as u64);
            }
        }
    }

    // ---- waiters ----

    /// The partition of a key that has changed, and the list of keys whose waiters are to be served.
    #[inline]
    pub(crate) fn partition_and_ready(&mut self, slot: Slot) -> (&mut Partition, &mut Ready) {
        let at = self.position_of(slot);
        (&mut self.guards[at].1, &mut self.ready)
    }

    /// All keys of a database are others now. Of those that are waited for, the ones are noted that are there
    /// at this moment, according to `is_there`, and those whose absence is waited for. Everything is held.
    pub(crate) fn note_all_ready(&mut self, db: Db, is_there: impl Fn(&Partition, &Key<'_>) -> bool) {
        assert!(self.holds_all(), "whole-keyspace work holds the gate");
        for (_, partition) in &self.guards {
            for (name, wants_absence) in partition.followers.waiters.keys(db) {
                steps::note(1);
                if wants_absence || is_there(partition, &self.keyspace.key(name)) {
                    self.ready.note(db, name, 0);
                }
            }
        }
    }

    /// Returns whether `take_ready` has a key.
    #[inline]
    pub fn has_ready(&self) -> bool {
        !self.ready.is_empty()
    }

    /// The key that was changed first, of those that are waited for.
    pub fn take_ready(&mut self) -> Option<(Db, Arc<[u8]>)> {
        self.ready.take().map(|key| (key.db, key.name))
    }

    pub(crate) fn take_ready_key(&mut self) -> Option<ReadyKey> {
        self.ready.take()
    }

    /// Takes all keys that were noted: a script is going to release their partitions, and they are served at
    /// its end.
    pub fn suspend_ready(&mut self) -> SuspendedReady {
        SuspendedReady(std::mem::take(&mut self.ready))
    }

    /// Notes them again. Their partitions are held, and nothing was noted since.
    pub fn resume_ready(&mut self, suspended: SuspendedReady) {
        debug_assert!(self.ready.is_empty());
        self.ready = suspended.0;
    }

    /// Returns the number of keys that are noted.
    pub(crate) fn ready_len(&self) -> usize {
        self.ready.len()
    }

    /// Forgets the keys that were noted after the first `len`: the command that noted them has found nothing.
    pub(crate) fn forget_ready(&mut self, len: usize) {
        self.ready.truncate(len);
    }

    /// The oldest waiter of `key` after `turn`; none if no waiter of the key wants one of this type. It is
    /// held.
    pub fn next_waiter(
        &mut self,
        db: Db,
        key: &Key<'_>,
        turn: u64,
        kind: Option<Type>,
    ) -> Option<Arc<Waiter>> {
        self.partition(key.slot).followers.waiters.next(db, key.bytes, turn, kind).cloned()
    }

    /// Returns whether the key's partition is held.
    pub fn holds(&self, key: &Key<'_>) -> bool {
        self.position(self.keyspace.partition_of(key.slot)).is_some()
    }

    /// Lists `waiter` under each of its keys, behind those that wait for it already. Their partitions are
    /// held.
    pub fn wait(&mut self, waiter: &Arc<Waiter>) {
        waiter.take_turn(&self.keyspace.shared.next_turn);
        // As many keys as its client has named.
        self.exempt(waiter.keys.len() as u64);
        for key in &waiter.keys {
            steps::note(1);
            let counts = &self.keyspace.shared.waited;
            self.numbered(key.partition).followers.waiters.add(key, waiter, counts);
        }
    }

    /// Takes a waiter that has ended out of the list of one key, which is held.
    pub(crate) fn unlist(&mut self, db: Db, key: &Key<'_>, waiter: &Arc<Waiter>) {
        let counts = &self.keyspace.shared.waited;
        self.partition(key.slot).followers.waiters.remove(db, key.bytes, waiter, counts);
    }

    /// Takes a waiter that has ended out of all lists, some keys of one partition at a time.
    pub fn forget(&mut self, waiter: &Arc<Waiter>) {
        let same = |a: &WaitedKey, b: &WaitedKey| a.partition == b.partition;
        for keys in waiter.keys.chunk_by(same).flat_map(|keys| keys.chunks(KEYS_PER_HOLD_MAX)) {
            self.acquire(Want::One(keys[0].partition));
            steps::note(keys.len() as u64);
            let counts = &self.keyspace.shared.waited;
            let partition = self.numbered(keys[0].partition);
            keys.iter().for_each(|key| partition.followers.waiters.remove(key.db, &key.name, waiter, counts));
            self.release();
        }
    }

    /// Lets the waiters behind `waiter` be served: all of its keys are looked at. Their partitions are held.
    pub(crate) fn pass_on(&mut self, waiter: &Waiter) {
        // As many keys as its client has named.
        self.exempt(waiter.keys.len() as u64);
        for key in &waiter.keys {
            steps::note(1);
            if self.numbered(key.partition).followers.waiters.has_behind(key.db, &key.name, waiter.turn()) {
                self.ready.note(key.db, &key.name, waiter.turn());
            }
        }
    }

    /// Slots of a partition, which is held, leave: watchers of their keys fail, and waiters are returned, the
    /// oldest first, each with one of its slots. A waiter stays listed until it has ended. It visits every
    /// key of the partition that is watched or waited for.
    pub fn leave_slots(&mut self, partition: u16, leaves: impl Fn(Slot) -> bool) -> Vec<(Slot, Arc<Waiter>)> {
        let released = self.numbered(partition).followers.leave_slots(leaves);
        // As many as clients have named.
        self.exempt(released.visited as u64);
        released.waiters
    }

    /// Returns the partitions that are held.
    pub(crate) fn guarded(&self) -> impl Iterator<Item = &Partition> {
        self.guards.iter().map(|(_, guard)| &**guard)
    }

    pub(crate) fn guarded_mut(&mut self) -> impl Iterator<Item = &mut Partition> {
        self.guards.iter_mut().map(|(_, guard)| &mut **guard)
    }

    pub(crate) fn all(&self) -> impl Iterator<Item = &Partition> {
        assert!(self.holds_all(), "whole-keyspace work holds the gate");
        self.guarded()
    }

    pub(crate) fn partitions(&mut self) -> impl Iterator<Item = &mut Partition> {
        assert!(self.holds_all(), "whole-keyspace work holds the gate");
        self.guards.iter_mut().map(|(_, guard)| &mut **guard)
    }

    /// Asserts everything that the files of this crate call an invariant. The gate is held.
    pub fn check_invariants(&mut self) {
        let keyspace = self.keyspace;
        let mut objects = vec![0; keyspace.arenas.len()];
        let mut waited = [0; 2];
        for partition in self.partitions() {
            objects[usize::from(partition.number) % keyspace.arenas.len()] += partition.check_invariants();
            let counts = partition.followers.waiters.counts();
            waited = [waited[0] + counts[0], waited[1] + counts[1]];
        }
        assert_eq!(waited, keyspace.waited_keys());
        keyspace.check_reports(self);
        for (arena, objects) in keyspace.arenas.iter().zip(objects) {
            arena.check_invariants();
            assert_eq!(arena.stats().live_objects, objects, "every object is referred to, once");
        }
    }
}
