//! Table of the sessions that have read a key.
//!
//! ```text
//! shard = hash of the key    { key: [id of a session | its worker] }      8 B a session; with one no memory of its own
//! ```
//! A shard's lock is held for one key at a time, under the lock of the key's partition. All keys leave at
//! once by taking the maps out of their shards, under the gate; what was in them is dropped later, by the
//! cron (`drop_cleared`).
//!
//! Readers that are gone are forgotten by a walk, one shard after the other, some keys at a time
//! (`forget_gone`):
//!
//! ```text
//! shard    old { all its keys }   map { }          the walk comes: everything is old, in no time
//!          old { the rest }       map { looked at, noted since, or needed }
//!          old { }                map { all its keys }
//! ```

use isotherm_allocator::class_bytes;
use std::collections::hash_map::Entry;
use std::collections::{HashMap, HashSet};
use std::hash::{BuildHasher, RandomState};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

use crate::room::memory::hash_table_bytes;

pub const SHARDS: usize = 64;
/// Keys and readers that a walk looks at under one hold of a shard's lock; the readers of the last key may be
/// more.
const LOOKS_PER_HOLD_MAX: usize = 500;

/// A session: its id, and in the low bits its worker.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Tracker(u64);

const WORKER_BITS: u32 = 16;

impl Tracker {
    pub fn new(id: u64, worker: u16) -> Tracker {
        assert!(id < 1 << (u64::BITS - WORKER_BITS), "ids are given out one by one");
        Tracker(id << WORKER_BITS | u64::from(worker))
    }
    pub fn id(self) -> u64 {
        self.0 >> WORKER_BITS
    }
    pub fn worker(self) -> u16 {
        self.0 as u16
    }
}

#[expect(clippy::box_collection, reason = "mostly there is one reader, and 16 B are enough for it")]
enum Readers {
    One(Tracker),
    Several(Box<HashSet<Tracker>>),
}

impl Readers {
    /// Adds a reader. Returns whether it was not among them.
    fn add(&mut self, tracker: Tracker) -> bool {
        match self {
            Readers::One(only) if *only == tracker => false,
            Readers::One(first) => {
                *self = Readers::Several(Box::new(HashSet::from([*first, tracker])));
                true
            }
            Readers::Several(all) => all.insert(tracker),
        }
    }

    fn len(&self) -> usize {
        match self {
            Readers::One(_) => 1,
            Readers::Several(all) => all.len(),
        }
    }

    /// Returns those for which `lives` is true, if any.
    fn living(self, lives: &dyn Fn(Tracker) -> bool) -> Option<Readers> {
        match self {
            Readers::One(only) => lives(only).then_some(Readers::One(only)),
            Readers::Several(mut all) => {
                let before = all.len();
                all.retain(|tracker| lives(*tracker));
                if all.len() < before {
                    all.shrink_to_fit();
                }
                match (all.len(), all.iter().next()) {
                    (0, _) => None,
                    (1, Some(only)) => Some(Readers::One(*only)),
                    _ => Some(Readers::Several(all)),
                }
            }
        }
    }

    fn into_vec(self) -> Vec<Tracker> {
        match self {
            Readers::One(only) => vec![only],
            Readers::Several(all) => all.into_iter().collect(),
        }
    }
}

type Map = HashMap<Box<[u8]>, Readers>;

#[derive(Default)]
struct Shard {
    map: Map,
    /// Keys that the walk is still to look at. Usually empty; a key is in one of the two.
    old: Map,
    /// Totals of the shard's keys: their sessions, and the bytes of their names.
    items: usize,
    key_bytes: usize,
}

impl Shard {
    fn remove(&mut self, key: &[u8]) -> Option<Readers> {
        match self.map.remove(key) {
            None if !self.old.is_empty() => self.old.remove(key),
            found => found,
        }
    }

    /// Brings a key to those that the walk has looked at.
    fn bring(&mut self, key: &[u8]) {
        if let Some((key, readers)) = self.old.remove_entry(key) {
            self.map.insert(key, readers);
        }
    }

    fn key_count(&self) -> usize {
        self.map.len() + self.old.len()
    }
}

/// Work of a walk: what was looked at, and whether the shard is done.
pub struct Walked {
    pub looks: usize,
    pub is_done: bool,
}

pub struct Table {
    shards: Box<[Mutex<Shard>]>,
    /// Maps of the shards that were cleared.
    cleared: Mutex<Vec<Map>>,
    hasher: RandomState,
    keys: AtomicUsize,
    /// Sessions of all keys together.
    items: AtomicUsize,
    /// Bytes of the keys' names.
    key_bytes: AtomicUsize,
    /// Counter that chooses the shard from which the next key is taken that has to leave.
    hand: AtomicUsize,
}

impl Default for Table {
    fn default() -> Table {
        Table {
            shards: (0..SHARDS).map(|_| Mutex::default()).collect(),
            cleared: Mutex::default(),
            hasher: RandomState::new(),
            keys: AtomicUsize::new(0),
            items: AtomicUsize::new(0),
            key_bytes: AtomicUsize::new(0),
            hand: AtomicUsize::new(0),
        }
    }
}

impl Table {
    pub fn keys(&self) -> usize {
        self.keys.load(Ordering::Acquire)
    }

    pub fn items(&self) -> usize {
        self.items.load(Ordering::Acquire)
    }

    /// Names, the tables that they are in, and the sessions of keys that several have read, about.
    pub fn memory_bytes(&self) -> usize {
        let tables: usize = self
            .shards
            .iter()
            .map(|shard| {
                let Shard { map, old, .. } = &*lock(shard);
                let bytes = |map: &Map| hash_table_bytes::<(Box<[u8]>, Readers)>(map.capacity());
                bytes(map) + bytes(old)
            })
            .sum();
        let several = self.items().saturating_sub(self.keys());
        tables + self.key_bytes.load(Ordering::Relaxed) + several * 2 * size_of::<Tracker>()
    }

    pub fn note(&self, key: &[u8], tracker: Tracker) {
        let mut shard = self.shard_of(key);
        if !shard.old.is_empty() {
            shard.bring(key);
        }
        // Mostly it is there already, and its name need not be copied.
        let is_new = match shard.map.get_mut(key) {
            Some(readers) => readers.add(tracker),
            None => {
                shard.map.insert(key.into(), Readers::One(tracker));
                shard.key_bytes += class_bytes(key.len());
                self.keys.fetch_add(1, Ordering::AcqRel);
                self.key_bytes.fetch_add(class_bytes(key.len()), Ordering::Relaxed);
                true
            }
        };
        if is_new {
            shard.items += 1;
            self.items.fetch_add(1, Ordering::AcqRel);
        }
    }

    /// The key leaves.
    pub fn take(&self, key: &[u8]) -> Option<Vec<Tracker>> {
        if self.keys() == 0 {
            return None;
        }
        let mut shard = self.shard_of(key);
        let readers = shard.remove(key)?;
        Some(self.count_out(&mut shard, key, readers))
    }

    /// Any key leaves.
    pub fn take_any(&self) -> Option<(Box<[u8]>, Vec<Tracker>)> {
        for _ in 0..SHARDS {
            let at = self.hand.fetch_add(1, Ordering::Relaxed) % SHARDS;
            let mut shard = lock(&self.shards[at]);
            let map = if shard.map.is_empty() { &mut shard.old } else { &mut shard.map };
            let Some(key) = map.keys().next().cloned() else { continue };
            let Entry::Occupied(entry) = map.entry(key) else { unreachable!("it was just there") };
            let (key, readers) = entry.remove_entry();
            if map.capacity() > 64 && map.len() < map.capacity() / 8 {
                map.shrink_to(map.len() * 2);
            }
            let trackers = self.count_out(&mut shard, &key, readers);
            return Some((key, trackers));
        }
        None
    }

    /// All keys leave. Their memory follows with `drop_cleared`.
    pub fn clear(&self) {
        for shard in &self.shards {
            let shard = std::mem::take(&mut *lock(shard));
            self.keys.fetch_sub(shard.key_count(), Ordering::AcqRel);
            let Shard { map, old, items, key_bytes } = shard;
            self.items.fetch_sub(items, Ordering::AcqRel);
            self.key_bytes.fetch_sub(key_bytes, Ordering::Relaxed);
            let maps = [map, old].into_iter().filter(|map| map.capacity() > 0);
            self.cleared.lock().unwrap_or_else(PoisonError::into_inner).extend(maps);
        }
    }

    /// A step of the walk through the shard `at`, for which `begins` is true with the first one: forgets
    /// readers for which `lives` is false, and keys without any other. One walks at a time.
    pub fn forget_gone(&self, at: usize, begins: bool, lives: &dyn Fn(Tracker) -> bool) -> Walked {
        let mut shard = lock(&self.shards[at]);
        let Shard { map, old, items, key_bytes } = &mut *shard;
        if begins {
            std::mem::swap(map, old);
        }
        let (mut looks, mut keys_gone, mut items_gone, mut bytes_gone) = (0, 0, 0, 0);
        // Entries that are not taken stay, and the next step passes over the empty places in front of them
        // sixteen at a time.
        for (key, readers) in old.extract_if(|_, _| true) {
            let count = readers.len();
            looks += 1 + count;
            match readers.living(lives) {
                Some(living) => {
                    items_gone += count - living.len();
                    map.insert(key, living);
                }
                None => {
                    items_gone += count;
                    keys_gone += 1;
                    bytes_gone += class_bytes(key.len());
                }
            }
            if looks >= LOOKS_PER_HOLD_MAX {
                break;
            }
        }
        *items -= items_gone;
        *key_bytes -= bytes_gone;
        self.keys.fetch_sub(keys_gone, Ordering::AcqRel);
        self.items.fetch_sub(items_gone, Ordering::AcqRel);
        self.key_bytes.fetch_sub(bytes_gone, Ordering::Relaxed);
        let done = old.is_empty().then(|| std::mem::take(old));
        drop(shard);
        Walked { looks, is_done: done.is_some() }
    }

    /// Frees what was cleared; no lock is held meanwhile.
    pub fn drop_cleared(&self) {
        let cleared = std::mem::take(&mut *self.cleared.lock().unwrap_or_else(PoisonError::into_inner));
        drop(cleared);
    }

    fn count_out(&self, shard: &mut Shard, key: &[u8], readers: Readers) -> Vec<Tracker> {
        let trackers = readers.into_vec();
        shard.items -= trackers.len();
        shard.key_bytes -= class_bytes(key.len());
        self.key_bytes.fetch_sub(class_bytes(key.len()), Ordering::Relaxed);
        self.keys.fetch_sub(1, Ordering::AcqRel);
        self.items.fetch_sub(trackers.len(), Ordering::AcqRel);
        trackers
    }

    fn shard_of(&self, key: &[u8]) -> MutexGuard<'_, Shard> {
        lock(&self.shards[self.hasher.hash_one(key) as usize % SHARDS])
    }
}

fn lock(shard: &Mutex<Shard>) -> MutexGuard<'_, Shard> {
    shard.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::{BTreeMap, BTreeSet};

    impl Table {
        /// The counts are those of the shards, and no key lies in another's.
        fn check_invariants(&self) {
            let (mut keys, mut items) = (0, 0);
            for (at, shard) in self.shards.iter().enumerate() {
                let shard = lock(shard);
                for (key, readers) in shard.map.iter().chain(&shard.old) {
                    assert_eq!(self.hasher.hash_one(&**key) as usize % SHARDS, at);
                    assert!(!(shard.map.contains_key(key) && shard.old.contains_key(key)));
                    keys += 1;
                    items += readers.len();
                }
            }
            assert_eq!((self.keys(), self.items()), (keys, items));
        }
    }

    #[test]
    fn it_remembers_as_a_map_does() {
        let mut prng = isotherm_stdx::Prng::new(5);
        let (table, mut model) = (Table::default(), BTreeMap::<Vec<u8>, BTreeSet<u64>>::new());
        let (mut at, mut begins) = (0, true);
        for _ in 0..20_000 {
            let key = prng.below(300).to_string().into_bytes();
            // A walk that finds everyone there changes nothing, wherever it is.
            if prng.below(3) == 0 {
                begins = table.forget_gone(at, begins, &|_| true).is_done;
                at = (at + usize::from(begins)) % SHARDS;
            }
            match prng.below(10) {
                0 => {
                    let taken = table.take(&key).map(|all| all.iter().map(|one| one.id()).collect());
                    assert_eq!(taken, model.remove(&key));
                }
                1 if prng.below(20) == 0 => {
                    let Some((key, trackers)) = table.take_any() else { continue };
                    let expected = model.remove(&key.to_vec()).expect("it was noted");
                    assert_eq!(trackers.iter().map(|one| one.id()).collect::<BTreeSet<_>>(), expected);
                }
                _ => {
                    let tracker = Tracker::new(1 + prng.below(4), 3);
                    assert_eq!(tracker.worker(), 3);
                    table.note(&key, tracker);
                    model.entry(key).or_default().insert(tracker.id());
                }
            }
            assert_eq!(table.keys(), model.len());
            assert_eq!(table.items(), model.values().map(BTreeSet::len).sum::<usize>());
        }
        table.check_invariants();
        table.clear();
        table.check_invariants();
        assert_eq!((table.keys(), table.items()), (0, 0));
    }

    #[test]
    fn readers_that_are_gone_are_forgotten_in_steps() {
        let table = Table::default();
        for key in 0..2000u32 {
            for id in 1..=1 + u64::from(key % 20) {
                table.note(&key.to_be_bytes(), Tracker::new(id, 0));
            }
        }
        // Those with an even id are gone; a key is read, one changes and some are pushed out between the
        // steps.
        let lives = |tracker: Tracker| tracker.id() % 2 == 1;
        let mut longest = 0;
        for at in 0..SHARDS {
            let mut begins = true;
            loop {
                let walked = table.forget_gone(at, begins, &lives);
                longest = longest.max(walked.looks);
                begins = false;
                table.note(&7u32.to_be_bytes(), Tracker::new(31, 0));
                table.take(&(at as u32 * 20).to_be_bytes());
                if walked.is_done {
                    break;
                }
            }
        }
        assert!(longest <= LOOKS_PER_HOLD_MAX + 21, "{longest}");
        table.check_invariants();
        let mut gone = 0;
        while let Some((_, readers)) = table.take_any() {
            assert!(readers.iter().all(|reader| lives(*reader)));
            gone += 1;
        }
        // All others had a first reader, which is still there.
        assert_eq!(gone, 2000 - SHARDS);
        // With no reader left a key goes, too.
        table.note(b"k", Tracker::new(2, 0));
        (0..SHARDS).for_each(|at| assert!(table.forget_gone(at, true, &lives).is_done));
        assert_eq!((table.keys(), table.items(), table.key_bytes.load(Ordering::Relaxed)), (0, 0, 0));
        table.check_invariants();
    }
}
