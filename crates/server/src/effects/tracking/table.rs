//! Which sessions have read which keys.
//!
//! ```text
//! shard = hash of the key    { key: [id of a session | its worker] }      8 B a session; with one no memory of its own
//! ```
//! A shard's lock is held for one key at a time, under the lock of the key's partition. All keys leave at once by taking the
//! maps out of their shards, under the gate; what was in them is dropped later, by the cron (`drop_cleared`).

use isotherm_allocator::class_bytes;
use std::collections::hash_map::Entry;
use std::collections::{HashMap, HashSet};
use std::hash::{BuildHasher, RandomState};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

use crate::upkeep::memory::hash_table_bytes;

const SHARDS: usize = 64;

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
    /// Whether it was not among them.
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
    /// Of its keys together: sessions, and what names take.
    items: usize,
    key_bytes: usize,
}

pub struct Table {
    shards: Box<[Mutex<Shard>]>,
    /// What was in the shards when they were cleared.
    cleared: Mutex<Vec<Map>>,
    hasher: RandomState,
    keys: AtomicUsize,
    /// Sessions of all keys together.
    items: AtomicUsize,
    /// What the keys' names take.
    key_bytes: AtomicUsize,
    /// Where the next key is taken from that has to leave.
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
            .map(|shard| hash_table_bytes::<(Box<[u8]>, Readers)>(lock(shard).map.capacity()))
            .sum();
        let several = self.items().saturating_sub(self.keys());
        tables + self.key_bytes.load(Ordering::Relaxed) + several * 2 * size_of::<Tracker>()
    }

    pub fn note(&self, key: &[u8], tracker: Tracker) {
        let mut shard = self.shard_of(key);
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
        let readers = shard.map.remove(key)?;
        Some(self.count_out(&mut shard, key, readers))
    }

    /// Any key leaves.
    pub fn take_any(&self) -> Option<(Box<[u8]>, Vec<Tracker>)> {
        for _ in 0..SHARDS {
            let at = self.hand.fetch_add(1, Ordering::Relaxed) % SHARDS;
            let mut shard = lock(&self.shards[at]);
            let Some(key) = shard.map.keys().next().cloned() else { continue };
            let Entry::Occupied(entry) = shard.map.entry(key) else { unreachable!("it was just there") };
            let (key, readers) = entry.remove_entry();
            if shard.map.capacity() > 64 && shard.map.len() < shard.map.capacity() / 8 {
                let len = shard.map.len();
                shard.map.shrink_to(len * 2);
            }
            let trackers = self.count_out(&mut shard, &key, readers);
            return Some((key, trackers));
        }
        None
    }

    /// All keys leave. Their memory follows with `drop_cleared`.
    pub fn clear(&self) {
        for shard in &self.shards {
            let Shard { map, items, key_bytes } = std::mem::take(&mut *lock(shard));
            if map.capacity() == 0 {
                continue;
            }
            self.keys.fetch_sub(map.len(), Ordering::AcqRel);
            self.items.fetch_sub(items, Ordering::AcqRel);
            self.key_bytes.fetch_sub(key_bytes, Ordering::Relaxed);
            self.cleared.lock().unwrap_or_else(PoisonError::into_inner).push(map);
        }
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
                for (key, readers) in lock(shard).map.iter() {
                    assert_eq!(self.hasher.hash_one(&**key) as usize % SHARDS, at);
                    keys += 1;
                    items += match readers {
                        Readers::One(_) => 1,
                        Readers::Several(all) => all.len(),
                    };
                }
            }
            assert_eq!((self.keys(), self.items()), (keys, items));
        }
    }

    #[test]
    fn it_remembers_as_a_map_does() {
        let mut prng = isotherm_stdx::Prng::new(5);
        let (table, mut model) = (Table::default(), BTreeMap::<Vec<u8>, BTreeSet<u64>>::new());
        for _ in 0..20_000 {
            let key = prng.below(300).to_string().into_bytes();
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
}
