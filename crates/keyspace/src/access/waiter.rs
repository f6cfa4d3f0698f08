//! Waiters: clients that wait until a key is there (BLPOP and its kin).
//!
//! A partition lists, per key, the waiters of it, the oldest first. A change of such a key is noted by the
//! thread that makes it (`Held`); when its command is done, and before it releases the partition, it runs the
//! waiters' commands for them (`serving`). So a log gets the push before the pop, and the client that pushed
//! finds its list already emptied.
//!
//! ```text
//!             claim             finish
//!   waiting --------> claimed --------> answered      an answer is on its way to the owner
//!      | |  <--------    |
//!      | |   release     |  answer_otherwise, end: wait while it is claimed
//!      | +---------------+--------------> answered    CLIENT UNBLOCK
//!      +------------------------------->  ended       no answer comes: its time is over, it is killed or gone
//! ```
//! A waiter leaves `waiting` for good once. All of them exchange one byte; the locks of partitions are not
//! needed for it. A waiter that has ended may still be listed: it is passed over, and its owner takes it out.
//!
//! A list costs nothing beyond its key for one waiter, which is what nearly every key has. Of several it is a
//! tree by turn, with counts of what they wait for: to leave, and to see that none of them wants a key as it
//! is, take no scan.

use crate::access::keyspace::Keyspace;
use crate::access::sync::{AtomicBool, AtomicU8, yield_now};
use crate::layout::kind::{Db, Type};
use isotherm_stdx::{Slot, steps};
use std::any::Any;
use std::collections::{BTreeMap, HashSet};
use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

pub struct Waiter {
    /// Only a key of this type is worth a try.
    pub kind: Type,
    /// True if the key's absence is worth a try too: the command then says what is wrong (XREADGROUP, whose
    /// group is gone).
    pub on_removal: bool,
    /// Ascending by partition, without repetitions.
    pub keys: Box<[WaitedKey]>,
    state: AtomicU8,
    woken: AtomicBool,
    /// Place among all waiters of a key: older waiters have a smaller number. 0 until the waiter is listed.
    turn: AtomicU64,
    wake: fn(&Arc<Waiter>),
    /// Owner of the waiter; the keyspace does not look at it.
    pub client: Box<dyn Any + Send + Sync>,
}

/// The name is shared with the partition's list.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct WaitedKey {
    pub partition: u16,
    pub db: Db,
    pub name: Arc<[u8]>,
}

const WAITING: u8 = 0;
const CLAIMED: u8 = 1;
const ANSWERED: u8 = 2;
const ENDED: u8 = 3;

/// Outcome of an attempt to claim a waiter.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Claim {
    Taken,
    /// Another thread, which holds another of its partitions, has it, and may find nothing for it.
    Busy,
    Ended,
}

impl Waiter {
    /// `wake` asks the owner to look by itself. It is called under the lock of a partition, so it may queue,
    /// never wait.
    pub fn new<'n>(
        keyspace: &Keyspace,
        kind: Type,
        on_removal: bool,
        keys: impl Iterator<Item = (Db, &'n [u8])>,
        wake: fn(&Arc<Waiter>),
        client: Box<dyn Any + Send + Sync>,
    ) -> Arc<Waiter> {
        let mut seen = HashSet::new();
        let mut keys: Vec<WaitedKey> = keys
            .filter(|key| seen.insert(*key))
            .map(|(db, name)| {
                let partition = keyspace.partition_of(Slot::of_key(name));
                WaitedKey { partition, db, name: name.into() }
            })
            .collect();
        keys.sort_by_key(|key| key.partition);
        Arc::new(Waiter {
            kind,
            on_removal,
            keys: keys.into_boxed_slice(),
            state: AtomicU8::new(WAITING),
            woken: AtomicBool::new(false),
            turn: AtomicU64::new(0),
            wake,
            client,
        })
    }

    fn change(&self, from: u8, to: u8) -> Result<u8, u8> {
        self.state.compare_exchange(from, to, Ordering::AcqRel, Ordering::Acquire)
    }

    /// A thread that holds one of its partitions may try to serve it: no other does meanwhile.
    pub fn claim(&self) -> Claim {
        match self.change(WAITING, CLAIMED) {
            Ok(_) => Claim::Taken,
            Err(CLAIMED) => Claim::Busy,
            Err(_) => Claim::Ended,
        }
    }

    /// Lets a claimed waiter wait again, as there was nothing for it.
    pub fn release(&self) {
        assert!(
            self.change(CLAIMED, WAITING).is_ok(),
            "only the thread that has claimed a waiter releases it"
        );
    }

    /// Marks a claimed waiter as served: the answer is on its way.
    pub fn finish(&self) {
        assert!(
            self.change(CLAIMED, ANSWERED).is_ok(),
            "only the thread that has claimed a waiter finishes it"
        );
    }

    /// Ends the wait, and nothing is served to the waiter from now on: its time is over, it is killed, or its
    /// connection is gone. Returns false if it had ended before. Waits while another thread has claimed it;
    /// that thread takes no lock of a partition meanwhile.
    pub fn end(&self) -> bool {
        self.leave(ENDED)
    }

    /// Ends the wait of a client that is answered without its key (CLIENT UNBLOCK). Returns false if it had
    /// ended before.
    pub fn answer_otherwise(&self) -> bool {
        self.leave(ANSWERED)
    }

    fn leave(&self, to: u8) -> bool {
        loop {
            match self.change(WAITING, to) {
                Ok(_) => return true,
                Err(CLAIMED) => yield_now(),
                Err(_) => return false,
            }
        }
    }

    pub fn has_ended(&self) -> bool {
        self.state.load(Ordering::Acquire) >= ANSWERED
    }

    /// Returns whether an answer is on its way.
    pub fn is_answered(&self) -> bool {
        self.state.load(Ordering::Acquire) == ANSWERED
    }

    /// Gives the waiter the place behind all that are listed; `last` is the last turn that was given. Its
    /// keys' partitions are held, so each list stays in order.
    pub(crate) fn take_turn(&self, last: &AtomicU64) {
        let turn = last.fetch_add(1, Ordering::Relaxed) + 1;
        self.turn.store(turn, Ordering::Relaxed);
    }

    pub fn turn(&self) -> u64 {
        self.turn.load(Ordering::Relaxed)
    }

    /// Returns whether a key of this type, or the absence of one, is worth a try.
    pub fn wants(&self, kind: Option<Type>) -> bool {
        self.on_removal || kind == Some(self.kind)
    }

    /// Asks the owner to run the command itself, with all locks that it needs, and then to pass on to the
    /// waiters behind this one. Until it has, none of them is served with what it was woken for.
    pub fn wake(self: &Arc<Waiter>) {
        if !self.woken.swap(true, Ordering::AcqRel) {
            (self.wake)(self);
        }
    }

    /// The owner will look, and knows that already.
    pub fn mark_woken(&self) {
        self.woken.store(true, Ordering::Release);
    }

    pub fn is_woken(&self) -> bool {
        self.woken.load(Ordering::Acquire)
    }

    /// The owner is about to look, and has no lock yet: what changes from now on wakes it again.
    pub fn clear_woken(&self) {
        self.woken.store(false, Ordering::Release);
    }

    /// Returns the bytes that the waiter takes, here and in the lists of partitions, without its client's
    /// part.
    pub fn memory_bytes(&self, class_bytes: fn(usize) -> usize) -> usize {
        /// An entry of a partition's table (a name, a list, a byte of the table's own), of which some are
        /// empty.
        const LISTED_BYTES: usize = (size_of::<Arc<[u8]>>() + size_of::<List>() + 1) * 3 / 2;
        let counts = 2 * size_of::<usize>();
        let names: usize = self.keys.iter().map(|key| class_bytes(counts + key.name.len())).sum();
        class_bytes(counts + size_of::<Waiter>())
            + class_bytes(size_of_val(&*self.keys))
            + names
            + self.keys.len() * LISTED_BYTES
    }
}

impl fmt::Debug for Waiter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Waiter").field("kind", &self.kind).field("keys", &self.keys.len()).finish()
    }
}

/// Number of keys that are waited for, and number of those that a waiter wants to see removed too; over all
/// partitions.
#[derive(Default)]
pub(crate) struct WaitedKeys([AtomicU64; 2]);

impl WaitedKeys {
    fn change(&self, before: [u64; 2], after: [u64; 2]) {
        for (count, (before, after)) in self.0.iter().zip(before.into_iter().zip(after)) {
            count.fetch_add(after.wrapping_sub(before), Ordering::Relaxed);
        }
    }

    pub fn get(&self) -> [u64; 2] {
        [0, 1].map(|at: usize| self.0[at].load(Ordering::Relaxed))
    }
}

/// The waiters of one key.
enum List {
    One(Arc<Waiter>),
    Several(Box<Several>),
}

/// Invariants: the counts are those of the waiters; a waiter is listed under its turn; there are at least two
/// of them.
#[derive(Default)]
struct Several {
    by_turn: BTreeMap<u64, Arc<Waiter>>,
    on_removal: u32,
    of_kind: [u32; Type::COUNT],
}

impl Several {
    fn add(&mut self, waiter: &Arc<Waiter>) {
        let before = self.by_turn.insert(waiter.turn(), Arc::clone(waiter));
        assert!(before.is_none(), "a waiter is listed once, under a turn of its own");
        self.on_removal += u32::from(waiter.on_removal);
        self.of_kind[waiter.kind as usize] += 1;
    }

    fn remove(&mut self, waiter: &Waiter) {
        if self.by_turn.remove(&waiter.turn()).is_some() {
            self.on_removal -= u32::from(waiter.on_removal);
            self.of_kind[waiter.kind as usize] -= 1;
        }
    }
}

impl List {
    fn add(&mut self, waiter: &Arc<Waiter>) {
        match self {
            List::One(first) => {
                let mut several = Box::<Several>::default();
                several.add(first);
                several.add(waiter);
                *self = List::Several(several);
            }
            List::Several(several) => several.add(waiter),
        }
    }

    /// Removes a waiter. Returns whether none is left.
    fn remove(&mut self, waiter: &Arc<Waiter>) -> bool {
        match self {
            List::One(only) => return Arc::ptr_eq(only, waiter),
            List::Several(several) => {
                several.remove(waiter);
                if several.by_turn.len() == 1 {
                    let (_, last) = several.by_turn.pop_first().expect("one is left");
                    *self = List::One(last);
                }
            }
        }
        false
    }

    /// The oldest whose turn is later than this.
    fn behind(&self, turn: u64) -> Option<&Arc<Waiter>> {
        match self {
            List::One(only) => Some(only).filter(|only| only.turn() > turn),
            List::Several(several) => several.by_turn.range(turn + 1..).next().map(|(_, waiter)| waiter),
        }
    }

    fn for_each(&self, visit: impl FnMut(&Arc<Waiter>)) {
        match self {
            List::One(only) => [only].into_iter().for_each(visit),
            List::Several(several) => several.by_turn.values().for_each(visit),
        }
    }

    /// Returns whether a waiter of the list wants a key of this type, or the absence of one.
    fn wants(&self, kind: Option<Type>) -> bool {
        match self {
            List::One(only) => only.wants(kind),
            List::Several(several) => {
                several.on_removal > 0 || kind.is_some_and(|kind| several.of_kind[kind as usize] > 0)
            }
        }
    }

    /// Returns the counts that one key adds to `WaitedKeys`.
    fn counts(&self) -> [u64; 2] {
        [1, u64::from(self.wants(None))]
    }

    fn check_invariants(&self, db: Db, name: &[u8]) {
        let check = |waiter: &Waiter| {
            assert!(waiter.keys.iter().any(|key| key.db == db && *key.name == *name), "it waits for that");
        };
        match self {
            List::One(only) => check(only),
            List::Several(several) => {
                let (mut on_removal, mut of_kind) = (0, [0; Type::COUNT]);
                for (turn, waiter) in &several.by_turn {
                    check(waiter);
                    assert_eq!(*turn, waiter.turn());
                    on_removal += u32::from(waiter.on_removal);
                    of_kind[waiter.kind as usize] += 1;
                }
                assert!(several.by_turn.len() > 1 && several.on_removal == on_removal);
                assert_eq!(several.of_kind, of_kind);
            }
        }
    }
}

/// Lists by name of their key, so that the order in which waiters are served after FLUSHALL or SWAPDB depends
/// on nothing but the keys.
type WaitersOfKeys = BTreeMap<Arc<[u8]>, List>;

/// The waiters of one partition.
#[derive(Default)]
pub(crate) struct Waiters {
    databases: BTreeMap<Db, WaitersOfKeys>,
}

impl Waiters {
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.databases.is_empty()
    }

    fn list(&self, db: Db, key: &[u8]) -> Option<&List> {
        self.databases.get(&db)?.get(key)
    }

    /// The name of a key that has waiters, to be shared.
    pub fn name(&self, db: Db, key: &[u8]) -> Option<&Arc<[u8]>> {
        self.databases.get(&db)?.get_key_value(key).map(|(name, _)| name)
    }

    /// The oldest waiter of `key` after `turn`, if one of the list wants a key of this type.
    pub fn next(&self, db: Db, key: &[u8], turn: u64, kind: Option<Type>) -> Option<&Arc<Waiter>> {
        self.list(db, key).filter(|list| list.wants(kind))?.behind(turn)
    }

    /// Returns whether there are waiters of `key` that came after `turn`.
    pub fn has_behind(&self, db: Db, key: &[u8], turn: u64) -> bool {
        self.list(db, key).is_some_and(|list| list.behind(turn).is_some())
    }

    /// The keys of a database that are waited for, and whether one of the waiters wants a key that is absent.
    pub fn keys(&self, db: Db) -> impl Iterator<Item = (&Arc<[u8]>, bool)> {
        let keys = self.databases.get(&db).into_iter().flatten();
        keys.map(|(name, list)| (name, list.wants(None)))
    }

    /// The waiters of all keys for which `wanted` has something, and how many keys it was asked about.
    pub fn of_keys<T: Copy>(&self, wanted: impl Fn(&[u8]) -> Option<T>) -> (Vec<(T, Arc<Waiter>)>, usize) {
        let mut found = Vec::new();
        let mut asked = 0;
        for (key, list) in self.databases.values().flatten() {
            steps::note(1);
            asked += 1;
            if let Some(wanted) = wanted(key) {
                list.for_each(|waiter| found.push((wanted, Arc::clone(waiter))));
            }
        }
        (found, asked)
    }

    pub fn add(&mut self, key: &WaitedKey, waiter: &Arc<Waiter>, counts: &WaitedKeys) {
        use std::collections::btree_map::Entry;
        match self.databases.entry(key.db).or_default().entry(Arc::clone(&key.name)) {
            Entry::Vacant(place) => {
                let list = List::One(Arc::clone(waiter));
                counts.change([0; 2], list.counts());
                place.insert(list);
            }
            Entry::Occupied(mut list) => {
                let list = list.get_mut();
                let before = list.counts();
                list.add(waiter);
                counts.change(before, list.counts());
            }
        }
    }

    /// Removes a waiter from a key's list. Nothing happens if it is listed no longer.
    pub fn remove(&mut self, db: Db, key: &[u8], waiter: &Arc<Waiter>, counts: &WaitedKeys) {
        let Some(keys) = self.databases.get_mut(&db) else { return };
        let Some(list) = keys.get_mut(key) else { return };
        let before = list.counts();
        if !list.remove(waiter) {
            return counts.change(before, list.counts());
        }
        counts.change(before, [0; 2]);
        keys.remove(key);
        if keys.is_empty() {
            self.databases.remove(&db);
        }
    }

    /// `key` leaves by itself (its time, a lack of memory): no client's command is under way that could
    /// serve, so if one of the waiters is concerned, the oldest of all looks for itself and passes on to
    /// those behind it.
    pub fn wake_removed(&self, db: Db, key: &[u8]) {
        if let Some(oldest) = self.next(db, key, 0, None) {
            oldest.wake();
        }
    }

    /// Returns the counts that `WaitedKeys` has for this partition.
    pub fn counts(&self) -> [u64; 2] {
        let lists = self.databases.values().flat_map(BTreeMap::values);
        lists.map(List::counts).fold([0; 2], |sum, one| [sum[0] + one[0], sum[1] + one[1]])
    }

    pub fn check_invariants(&self) {
        for (db, keys) in &self.databases {
            assert!(!keys.is_empty(), "a database is listed while it has waiters");
            keys.iter().for_each(|(name, list)| list.check_invariants(*db, name));
        }
    }
}
