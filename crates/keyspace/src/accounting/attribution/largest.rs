//! The keys that take the most memory, kept without a scan.
//!
//! ```text
//!   rank       [grade of the size: exponent, 5 bits of mantissa][tag 8]     32 grades between a size and its double
//!   threshold  rank of the smallest that is listed while the list is full, else that of 4 KB: what enters is above it
//!   least      rank of the smallest that is listed: what leaves is not below it
//! ```
//! A key enters when its rank is above the threshold, and is taken off when a rank of the least or more
//! leaves: one comparison for all others. Ranks are coarse so that a list which grows element by element does
//! not come here each time, and hold the tag so that among keys of one size only one of some hundred is taken
//! for the smallest. The sizes that are reported are looked up for a report.
//!
//! A key that takes less than 4 KB is never listed: small keys change their grade with every element, and
//! where all are small, each change would come to the lock (RPOP from lists of 20 elements took 2.9 times as
//! long).
//!
//! Gaps: a listed key that leaves makes room, and the next key is not known until it changes. Below `missed`,
//! the highest rank that was ever turned away or pushed out, the list may have gaps; above it, it is
//! complete.

use super::Change;
use crate::layout::key::KeyHasher;
use crate::layout::kind::Db;
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering::Relaxed};
use std::sync::{Mutex, MutexGuard, PoisonError};

// COMPAT(observability): MEMORY TOP (Isotherm only) lists the 128 largest keys of 4 KB and more. When listed
// keys are deleted, the next largest are unknown until they change; `complete-from-bytes` is the size from
// which on the list has no gaps. Why: the list is kept with every change instead of by a scan.
/// Keys in the list.
pub const LISTED_MAX: usize = 128;
/// A key that takes less is not worth a line.
pub(super) const LISTED_BYTES_MIN: u64 = 4 << 10;
/// Bytes of a name that are kept, from its beginning. 128 x 288 B = 36 KB at most.
const NAME_BYTES_MAX: usize = 256;

/// Bits of a grade's mantissa.
const MANTISSA_BITS: u32 = 5;
const TAG_BITS: u32 = 8;
/// Rank above all others.
const NONE: u32 = u32::MAX;
/// Just below the ranks of what may be listed.
const THRESHOLD_MIN: u32 = (grade(LISTED_BYTES_MIN) << TAG_BITS) - 1;

pub(crate) struct Largest {
    threshold: AtomicU32,
    least: AtomicU32,
    /// The smallest size of the threshold's grade.
    bytes_min: AtomicU64,
    list: Mutex<List>,
    hasher: KeyHasher,
}

#[derive(Default)]
struct List {
    keys: Vec<Listed>,
    /// The highest rank that is not in the list though it was there, or may have been.
    missed: u32,
}

#[derive(Clone)]
struct Listed {
    rank: u32,
    table: u32,
    hash: u64,
    name_bytes: usize,
    name: Box<[u8]>,
}

/// A key of the list.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct LargeKey {
    pub db: Db,
    /// Name of the key, or its beginning if it is longer than is kept.
    pub name: Vec<u8>,
    pub name_bytes: usize,
    /// Lower bound of the key's memory, which is less than a 32nd more.
    pub bytes: u64,
}

/// The largest keys, the largest first.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct LargestKeys {
    pub keys: Vec<LargeKey>,
    /// Every key of at least this size is among them.
    pub complete_from_bytes: u64,
}

/// Monotonic: a larger size never has a smaller grade.
#[inline]
pub(crate) const fn grade(bytes: u64) -> u32 {
    let exponent = if bytes == 0 { 0 } else { bytes.ilog2() };
    match exponent.checked_sub(MANTISSA_BITS) {
        None => bytes as u32,
        // Its highest bits, and how far they were shifted.
        Some(shift) => {
            ((shift + 1) << MANTISSA_BITS) + ((bytes >> shift) as u32 & ((1 << MANTISSA_BITS) - 1))
        }
    }
}

/// The smallest size of a grade.
pub(crate) fn grade_bytes(grade: u32) -> u64 {
    match (grade >> MANTISSA_BITS).checked_sub(1) {
        None => u64::from(grade),
        Some(shift) => u64::from(grade & ((1 << MANTISSA_BITS) - 1) | 1 << MANTISSA_BITS) << shift,
    }
}

#[inline]
fn rank(bytes: u64, tag: u8) -> u32 {
    grade(bytes) << TAG_BITS | u32::from(tag)
}

impl Largest {
    pub fn new(hasher: KeyHasher) -> Largest {
        let (threshold, least) = (AtomicU32::new(THRESHOLD_MIN), AtomicU32::new(NONE));
        let bytes_min = AtomicU64::new(grade_bytes(THRESHOLD_MIN >> TAG_BITS));
        Largest { threshold, least, bytes_min, list: Mutex::default(), hasher }
    }

    #[inline]
    pub fn note(&self, change: &Change<'_>) {
        let bytes = |size: Option<super::Size>| size.map_or(0, |size| size.bytes);
        if bytes(change.old).max(bytes(change.new)) >= self.bytes_min.load(Relaxed) {
            self.compare(change);
        }
    }

    #[inline(never)]
    fn compare(&self, change: &Change<'_>) {
        let rank = |size: super::Size| rank(size.bytes, change.tag);
        let (old, new) = (change.old.map(rank), change.new.map(rank));
        let threshold = self.threshold.load(Relaxed);
        let enters = new.is_some_and(|rank| rank > threshold);
        let leaves = old.is_some_and(|rank| rank >= self.least.load(Relaxed));
        if old != new && (enters || leaves) {
            self.change(change, new);
        }
    }

    #[cold]
    fn change(&self, change: &Change<'_>, rank: Option<u32>) {
        let hash = self.hasher.hash(change.key);
        let mut list = self.lock();
        list.remove(change, hash);
        if let Some(rank) = rank.filter(|&rank| rank > THRESHOLD_MIN) {
            list.insert(change, rank, hash);
        }
        self.publish(&list);
    }

    /// A table's keys are gone.
    pub fn forget_table(&self, table: u32) {
        let mut list = self.lock();
        list.missed = list.missed.max(list.threshold());
        list.keys.retain(|key| key.table != table);
        self.publish(&list);
    }

    fn publish(&self, list: &List) {
        let threshold = list.threshold();
        self.threshold.store(threshold, Relaxed);
        self.least.store(list.least_rank(), Relaxed);
        self.bytes_min.store(grade_bytes(threshold >> TAG_BITS), Relaxed);
    }

    /// All keys are gone.
    pub fn clear(&self) {
        let mut list = self.lock();
        *list = List::default();
        self.publish(&list);
    }

    fn lock(&self) -> MutexGuard<'_, List> {
        self.list.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Returns the part of a name that is kept.
fn kept(name: &[u8]) -> &[u8] {
    &name[..name.len().min(NAME_BYTES_MAX)]
}

impl Listed {
    fn is(&self, change: &Change<'_>) -> bool {
        let name = (change.table, change.key.len(), kept(change.key));
        (self.table, self.name_bytes, &*self.name) == name
    }
}

impl List {
    fn threshold(&self) -> u32 {
        if self.keys.len() < LISTED_MAX { THRESHOLD_MIN } else { self.least_rank() }
    }

    fn least_rank(&self) -> u32 {
        self.keys.iter().map(|key| key.rank).min().unwrap_or(NONE)
    }

    fn least(&self) -> Option<usize> {
        (0..self.keys.len()).min_by_key(|&at| self.keys[at].rank)
    }

    fn remove(&mut self, change: &Change<'_>, hash: u64) {
        // A key that was turned away while it was full may rank as high as the least of it.
        self.missed = self.missed.max(self.threshold());
        if let Some(at) = self.keys.iter().position(|key| key.hash == hash && key.is(change)) {
            self.keys.swap_remove(at);
        }
    }

    fn insert(&mut self, change: &Change<'_>, rank: u32, hash: u64) {
        let least = self.least().filter(|_| self.keys.len() == LISTED_MAX);
        if let Some(least) = least {
            if self.keys[least].rank >= rank {
                self.missed = self.missed.max(rank);
                return;
            }
            self.missed = self.missed.max(self.keys.swap_remove(least).rank);
        }
        let (table, name_bytes, name) = (change.table, change.key.len(), kept(change.key).into());
        self.keys.push(Listed { rank, table, hash, name_bytes, name });
    }
}

impl Largest {
    /// `db_of` knows the tables that there are.
    pub fn report(&self, db_of: impl Fn(u32) -> Option<Db>) -> LargestKeys {
        // 36 KB are copied under the lock, and put in order outside of it.
        let list = self.lock();
        let mut listed: Vec<Listed> = list.keys.clone();
        let missed = list.missed.max(list.threshold());
        drop(list);
        listed.sort_by(|a, b| b.rank.cmp(&a.rank).then_with(|| a.name.cmp(&b.name)));
        let keys = listed.into_iter().filter_map(|key| {
            Some(LargeKey {
                // One of a database that came or went since `db_of` was made.
                db: db_of(key.table)?,
                name: key.name.into_vec(),
                name_bytes: key.name_bytes,
                bytes: grade_bytes(key.rank >> TAG_BITS),
            })
        });
        let complete_from_bytes = grade_bytes((missed >> TAG_BITS) + 1);
        LargestKeys { keys: keys.collect(), complete_from_bytes }
    }

    pub fn memory_bytes(&self) -> usize {
        let list = self.lock();
        let names: usize = list.keys.iter().map(|key| key.name.len()).sum();
        list.keys.capacity() * size_of::<Listed>() + names
    }

    /// Asserts what the list says of itself; `all` are the keys that there are.
    pub fn check_invariants(&self, all: &[super::Counted<'_>]) {
        let list = self.lock();
        assert!(list.keys.len() <= LISTED_MAX);
        assert_eq!(self.threshold.load(Relaxed), list.threshold());
        assert_eq!(self.least.load(Relaxed), list.least_rank());
        let mut ranks: BTreeMap<(u32, usize, &[u8]), u32> = BTreeMap::new();
        for counted in all {
            let name = (counted.table, counted.key.len(), kept(counted.key));
            ranks.insert(name, rank(counted.size.bytes, counted.tag));
        }
        for key in &list.keys {
            let rank = ranks.remove(&(key.table, key.name_bytes, &*key.name));
            assert_eq!(rank, Some(key.rank), "a listed key is there, and has its rank");
        }
        let (missed, unlisted) = (list.missed.max(list.threshold()), ranks.values().max());
        assert!(unlisted.is_none_or(|rank| *rank <= missed), "{unlisted:?} is missed, above {missed}");
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::accounting::attribution::Size;
    use isotherm_stdx::Prng;

    #[test]
    fn grades_rise_with_sizes() {
        let mut before = 0;
        let beyond = (13..60).flat_map(|bit| [(1 << bit) - 1, 1 << bit, (1 << bit) * 5 / 4]);
        for bytes in (0..5000).chain(beyond) {
            let grade = grade(bytes);
            let least = grade_bytes(grade);
            assert!(least <= bytes && bytes - least <= bytes / 32, "{bytes} has the grade of {least}");
            assert!(grade >= before, "{bytes}");
            before = grade;
        }
        assert!(u64::from(grade(u64::MAX)) << TAG_BITS <= u64::from(u32::MAX));
    }

    /// Random sizes come, change and go: above what it says to be complete from, the list is that of the
    /// truth.
    #[test]
    fn the_list_is_complete_above_what_it_says() {
        for seed in 0..if cfg!(miri) { 1 } else { 30 } {
            let hasher = KeyHasher::new([seed as u8; 16]);
            let (largest, mut prng, mut truth) = (Largest::new(hasher), Prng::new(seed), BTreeMap::new());
            let sizes = [4000, 9000, 1 << 30][seed as usize % 3];
            for _ in 0..if cfg!(miri) { 300 } else { 20_000 } {
                let key = format!("key:{}", prng.below(2000));
                let tag = crate::layout::key::tag_of(hasher.hash(key.as_bytes()));
                let size = |bytes| Size { bytes, is_volatile: false };
                let new = (prng.below(10) < 6).then(|| 30 + prng.below(sizes));
                let old = match new {
                    Some(bytes) => truth.insert(key.clone(), bytes),
                    None => truth.remove(&key),
                };
                let (old, new) = (old.map(size), new.map(size));
                largest.note(&Change { table: 1, key: key.as_bytes(), tag, old, new });
            }
            let list = largest.lock();
            assert!(list.keys.iter().all(|key| key.rank > THRESHOLD_MIN));
            let missed = list.missed.max(list.threshold());
            for (key, bytes) in truth {
                let hash = hasher.hash(key.as_bytes());
                let rank = rank(bytes, crate::layout::key::tag_of(hash));
                let listed = list.keys.iter().find(|listed| listed.hash == hash);
                assert!(listed.is_some() || rank <= missed, "seed {seed}: {key} of {bytes} is missed");
                assert!(listed.is_none_or(|listed| listed.rank == rank), "seed {seed}: {key}");
            }
            drop(list);
            largest.forget_table(1);
            assert_eq!((largest.lock().keys.len(), largest.threshold.load(Relaxed)), (0, THRESHOLD_MIN));
        }
    }

    /// Many keys of one size do not come to the lock each time.
    #[test]
    fn equal_sizes_stay_away() {
        let hasher = KeyHasher::new([1; 16]);
        let largest = Largest::new(hasher);
        let (mut beyond, all) = (0, 10_000);
        for number in 0..all {
            let key = format!("key:{number}");
            let tag = crate::layout::key::tag_of(hasher.hash(key.as_bytes()));
            beyond += u32::from(rank(6000, tag) > largest.threshold.load(Relaxed));
            let new = Some(Size { bytes: 6000, is_volatile: false });
            largest.note(&Change { table: 1, key: key.as_bytes(), tag, old: None, new });
        }
        assert!(beyond < all / 10, "{beyond} of {all}");
        // Nor do they while all of them leave.
        let mut beyond = 0;
        for number in 0..all {
            let key = format!("key:{number}");
            let tag = crate::layout::key::tag_of(hasher.hash(key.as_bytes()));
            beyond += u32::from(rank(6000, tag) >= largest.least.load(Relaxed));
            let old = Some(Size { bytes: 6000, is_volatile: false });
            largest.note(&Change { table: 1, key: key.as_bytes(), tag, old, new: None });
        }
        assert!(beyond < all / 10, "{beyond} of {all}");
        assert!(largest.lock().keys.is_empty());
    }
}
