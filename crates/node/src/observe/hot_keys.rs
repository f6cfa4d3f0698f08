//! The keys that are used most: HOTKEYS.
//!
//! One command of `hotkeys-sample-ratio` is looked at, at random distances, so that nothing which comes
//! regularly is met always or never. Its keys go into a table of its worker, of a fixed size (Space-Saving):
//! a key that is not there takes the place of the one with the fewest uses and inherits their number as its
//! possible error.
//!
//! ```text
//!   hashes  [hash 8] x 120
//!   uses    [uses 8] x 120
//!   line    [error 8][ticks 8][db 2][len 4][head of the name, up to 96 B]         (16 + 120) B x 120 = 15.9 KB
//! ```
//! The data that is searched lies together: 15 cache lines of hashes, and of the lines only the one that is
//! wanted.
//!
//! After N uses, a key with more than N / 120 is in the table, and its number is too high by N /
//! 120 at most. A report adds the workers' tables up: a key that misses in one may have had as many uses
//! there as its last line.

use isotherm_keyspace::Db;
use std::sync::{Mutex, MutexGuard, PoisonError};

/// Keys of a worker that are distinguished.
const LINES: usize = 120;
/// Bytes that are kept of a name. A longer name is cut; its key is found by its hash.
pub const NAME_BYTES_MAX: usize = 96;
const TABLE_BYTES_MAX: usize = 16 << 10;
const LINE_BYTES: usize = 2 * size_of::<u64>() + size_of::<Line>();
const _: () = assert!(LINE_BYTES * LINES <= TABLE_BYTES_MAX);

/// Entry for one key in a worker's table, without its hash and its uses.
#[derive(Clone, Copy, Debug)]
struct Line {
    error: u64,
    ticks: u64,
    len: u32,
    db: u16,
    name: [u8; NAME_BYTES_MAX],
}

/// Table of the keys that one worker has met.
#[derive(Default)]
struct Table {
    hashes: Vec<u64>,
    uses: Vec<u64>,
    lines: Vec<Line>,
    /// Fewest uses of an entry in a full table. No entry before number `fewest_from` has as few. Both only
    /// grow, so that a key which is met for the first time finds its entry in a few steps.
    fewest: u64,
    fewest_from: usize,
    met: u64,
    /// Sampling ratio: one command of `ratio` was looked at.
    ratio: u32,
}

/// The table of a worker. Others look into it only for HOTKEYS.
#[derive(Default)]
pub struct HotKeys(Mutex<Table>);

/// A use of a key: its hash distinguishes it from others, its time is its share of its command's.
#[derive(Clone, Copy)]
pub struct Use<'a> {
    pub db: Db,
    pub name: &'a [u8],
    pub hash: u64,
    pub ticks: u64,
}

/// A key with its uses among the commands that were looked at.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct HotKey {
    pub db: Db,
    /// Cut at `NAME_BYTES_MAX`.
    pub name: Vec<u8>,
    pub name_bytes: u32,
    pub uses: u64,
    /// Number of these uses that may be another key's.
    pub error: u64,
    pub ticks: u64,
    hash: u64,
}

impl HotKeys {
    /// A use by one of `ratio` commands; what was met at another ratio cannot be added to it and is
    /// forgotten.
    pub fn note(&self, used: Use<'_>, ratio: u32) {
        let mut table = self.lock();
        if table.ratio != ratio {
            *table = Table { ratio, ..Table::default() };
        }
        table.note(used);
    }

    pub fn memory_bytes(&self) -> usize {
        self.lock().lines.capacity() * LINE_BYTES
    }

    pub fn reset(&self) {
        *self.lock() = Table::default();
    }

    fn lock(&self) -> MutexGuard<'_, Table> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Table {
    fn note(&mut self, used: Use<'_>) {
        self.met += 1;
        let at = match self.find(used) {
            Some(at) => at,
            None => self.take_line(used),
        };
        self.uses[at] += 1;
        self.lines[at].ticks += used.ticks;
    }

    fn find(&self, used: Use<'_>) -> Option<usize> {
        let mut from = 0;
        loop {
            let at = from + self.hashes[from..].iter().position(|&hash| hash == used.hash)?;
            if self.lines[at].db == used.db.0 {
                return Some(at);
            }
            from = at + 1;
        }
    }

    /// A line for a key that has none.
    fn take_line(&mut self, used: Use<'_>) -> usize {
        let mut name = [0; NAME_BYTES_MAX];
        let kept = used.name.len().min(NAME_BYTES_MAX);
        name[..kept].copy_from_slice(&used.name[..kept]);
        let len = u32::try_from(used.name.len()).unwrap_or(u32::MAX);
        let fresh = Line { error: 0, ticks: 0, len, db: used.db.0, name };
        if self.lines.len() < LINES {
            if self.lines.is_empty() {
                self.hashes.reserve_exact(LINES);
                self.uses.reserve_exact(LINES);
                self.lines.reserve_exact(LINES);
            }
            self.hashes.push(used.hash);
            self.uses.push(0);
            self.lines.push(fresh);
            return self.lines.len() - 1;
        }
        let least = self.least();
        // Whose time it was is not known.
        self.hashes[least] = used.hash;
        self.lines[least] = Line { error: self.uses[least], ..fresh };
        least
    }

    /// A line with the fewest uses of a full table.
    fn least(&mut self) -> usize {
        let from = self.fewest_from;
        if let Some(at) = self.uses[from..].iter().position(|&uses| uses == self.fewest) {
            self.fewest_from = from + at;
            return from + at;
        }
        self.fewest = self.uses.iter().copied().min().expect("the table is full");
        let at = self.uses.iter().position(|&uses| uses == self.fewest);
        self.fewest_from = at.expect("that is one of them");
        self.fewest_from
    }

    /// Returns the most uses that a key may have had which is not in the table.
    fn missed_max(&self) -> u64 {
        if self.lines.len() < LINES { 0 } else { self.uses.iter().copied().min().unwrap_or(0) }
    }
}

/// The keys of all tables at `ratio`, those with the most uses first, and how many uses were met.
pub fn merge<'a>(tables: impl Iterator<Item = &'a HotKeys>, ratio: u32) -> (Vec<HotKey>, u64) {
    let tables = tables.map(HotKeys::lock).filter(|table| table.ratio == ratio);
    let tables: Vec<MutexGuard<'a, Table>> = tables.collect();
    let missed: u64 = tables.iter().map(|table| table.missed_max()).sum();
    let mut keys: Vec<HotKey> = Vec::new();
    for table in &tables {
        for ((line, &hash), uses) in table.lines.iter().zip(&table.hashes).zip(&table.uses) {
            let same = |key: &HotKey| key.hash == hash && key.db.0 == line.db;
            let at = keys.iter().position(same).unwrap_or_else(|| {
                keys.push(HotKey {
                    db: Db(line.db),
                    name: line.name[..NAME_BYTES_MAX.min(line.len as usize)].to_vec(),
                    name_bytes: line.len,
                    uses: 0,
                    // Until it is met there, it may have been in every table.
                    error: missed,
                    ticks: 0,
                    hash,
                });
                keys.len() - 1
            });
            let key = &mut keys[at];
            key.uses += uses;
            key.error = key.error - table.missed_max() + line.error;
            key.ticks += line.ticks;
        }
    }
    keys.sort_by(|a, b| b.uses.cmp(&a.uses).then_with(|| a.name.cmp(&b.name)));
    (keys, tables.iter().map(|table| table.met).sum())
}

#[cfg(test)]
mod tests {
    use super::*;
    use isotherm_stdx::Prng;
    use std::collections::BTreeMap;

    fn note(keys: &HotKeys, number: u64) {
        let name = format!("key:{number}");
        let hash = number.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
        keys.note(Use { db: Db(0), name: name.as_bytes(), hash, ticks: 3 }, 64);
    }

    /// Whatever comes: no number is too low, none too high by more than its error, and that is bounded.
    #[test]
    fn numbers_are_within_their_error() {
        for seed in 0..8 {
            let mut prng = Prng::new(seed);
            let (tables, mut truth) = ([HotKeys::default(), HotKeys::default()], BTreeMap::new());
            for _ in 0..20_000 {
                // Squared twice: a few keys are used much, of many seldom.
                let share = prng.below(1000) * prng.below(1000) / 1000;
                let number = if seed % 2 == 0 { prng.below(100_000) } else { share };
                note(&tables[prng.below(2) as usize], number);
                *truth.entry(format!("key:{number}").into_bytes()).or_insert(0u64) += 1;
            }
            let (keys, met) = merge(tables.iter(), 64);
            assert_eq!(met, 20_000);
            for key in &keys {
                let truth = truth[&key.name];
                assert!(key.uses <= truth + key.error, "seed {seed}: {key:?}, {truth} uses");
                assert!(key.uses + key.error >= truth, "seed {seed}: {key:?}, {truth} uses");
                assert!(key.error <= met / LINES as u64 + 2, "seed {seed}: {key:?}");
            }
            for (name, uses) in truth.iter().filter(|(_, uses)| **uses > met / LINES as u64) {
                assert!(keys.iter().any(|key| key.name == *name), "seed {seed}: {uses} uses of {name:?}");
            }
        }
    }

    #[test]
    fn a_table_never_grows() {
        let keys = HotKeys::default();
        (0..10_000).for_each(|number| note(&keys, number));
        let table = keys.lock();
        assert_eq!((table.lines.len(), table.lines.capacity()), (LINES, LINES));
        assert_eq!((table.hashes.capacity(), table.uses.capacity()), (LINES, LINES));
        drop(table);
        keys.reset();
        assert_eq!(merge([&keys].into_iter(), 64), (Vec::new(), 0));
    }

    #[test]
    fn long_names_are_distinguished() {
        let keys = HotKeys::default();
        let name = vec![b'x'; 1000];
        for (hash, times) in [(1, 5), (2, 3)] {
            (0..times).for_each(|_| keys.note(Use { db: Db(1), name: &name, hash, ticks: 1 }, 1));
        }
        let (keys, _) = merge([&keys].into_iter(), 1);
        let seen: Vec<_> = keys.iter().map(|key| (key.uses, key.name.len(), key.name_bytes)).collect();
        assert_eq!(seen, [(5, NAME_BYTES_MAX, 1000), (3, NAME_BYTES_MAX, 1000)]);
    }
}
