//! Reports about the whole keyspace, made without stopping it: one partition after the other is locked,
//! looked at and released.
//!
//! ```text
//!   partition 0   [hold: copy counters]
//!   partition 1                          [hold]
//!   ...                                         [hold]
//!   arenas                                             their figures, at one moment
//! ```
//! Figures of one partition are of one moment, figures of two partitions are not: a key that is renamed
//! meanwhile may be counted twice or not at all, and the sums (`breakdown`) close with what was changed
//! meanwhile. The gate would make it one moment for all, at the price that all threads wait for the slowest
//! partition as well. Inside EXEC everything is held already; then the same code reads what is held.
//!
//! SWAPDB is the one change that would make a report wrong by more than what happens meanwhile (one half of
//! the partitions before it, the other half after it), so figures by database are read again if databases
//! were swapped.
//!
//! A hold looks at `ITEMS_PER_HOLD_MAX` items at most.

use crate::access::effect::NoEffects;
use crate::access::lock::{Held, Want};
use crate::access::partition::Partition;
use crate::access::terms::{Conditions, ExpiryMode, Lookup};
use crate::access::txn::Txn;
use crate::accounting::attribution::LargestKeys;
use crate::accounting::sizes::{SIZE_BINS, SIZED_TYPES};
use crate::layout::kind::Db;
use crate::reports::breakdown::{Breakdown, ClassBreakdown, ClassList};
use crate::reports::idle::IdleTimes;
use crate::reports::slot_size::SlotSize;
use crate::tables::table::Table;
use crate::values::cold::ColdCounts;
use crate::values::value::Entry;
use isotherm_arena::ArenaStats;
use isotherm_stdx::{Slot, UnixMs, steps};
use std::collections::BTreeMap;
use std::sync::atomic::Ordering::Acquire;

/// Databases, slots or keys that one hold looks at: at some 20 ns each, 20 us.
pub(crate) const ITEMS_PER_HOLD_MAX: usize = 1000;

/// Times that a report by database begins again because databases were swapped. After that the report is
/// given as it was read.
const ROUNDS_MAX: usize = 4;

/// Numbers of keys of a database.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct DatabaseKeys {
    /// Expired ones that have not left yet included.
    pub keys: u64,
    /// Number of keys with an expiry.
    pub volatile: u64,
    /// Hashes that have fields with a time.
    pub timed_hashes: u64,
}

/// Numbers of keys of a database by size, for each of `SIZED_TYPES`.
pub type Sizes = [[u64; SIZE_BINS]; SIZED_TYPES.len()];

pub struct Survey<'h, 'k> {
    held: &'h mut Held<'k>,
    /// Everything was held before: nothing is locked or released here.
    keeps: bool,
}

impl<'h, 'k> Survey<'h, 'k> {
    /// `held` has nothing, or everything: a partition cannot be locked out of order while some others are
    /// held.
    pub fn new(held: &'h mut Held<'k>) -> Survey<'h, 'k> {
        let keeps = held.holds_all();
        assert!(keeps || !held.holds_any(), "a survey locks one partition at a time");
        Survey { held, keeps }
    }

    /// The keys of each database, by its number.
    pub fn databases(&mut self) -> Vec<DatabaseKeys> {
        let databases = usize::from(self.held.keyspace.config().databases);
        self.by_database(|survey| {
            let mut all = vec![DatabaseKeys::default(); databases];
            survey.each_table(|db, table| {
                let sums = &mut all[usize::from(db.0)];
                sums.keys += table.len();
                sums.volatile += table.volatile_len();
                sums.timed_hashes += table.timed_hashes;
            });
            all
        })
    }

    /// Returns the sizes of the keys of each database that has some.
    pub fn sizes(&mut self) -> BTreeMap<Db, Sizes> {
        self.by_database(|survey| {
            let mut all: BTreeMap<Db, Sizes> = BTreeMap::new();
            survey.each_table(|db, table| table.sizes.add_to(all.entry(db).or_insert_with(no_sizes)));
            all
        })
    }

    /// Returns the keys and memory of every type and encoding, by database.
    pub fn classes(&mut self) -> Vec<ClassBreakdown> {
        self.by_database(|survey| {
            let mut list = ClassList::default();
            survey.each_table(|db, table| list.add(db, table));
            list.sorted()
        })
    }

    /// Returns the memory of the keyspace by use, and the arenas' own figures at the end of the survey. While
    /// nothing changes the first are exactly what lives in the second; changes meanwhile are in the
    /// difference.
    pub fn breakdown(&mut self) -> (Breakdown, Vec<ArenaStats>) {
        let (mut breakdown, mut used) = (Breakdown::default(), 0);
        for number in 0..self.held.keyspace.partition_count() as u16 {
            self.each_table_of(number, &mut |_, table| breakdown.add_table(table, &mut used));
            self.look(number, |partition| breakdown.add_partition(partition, &mut used));
        }
        let keyspace = self.held.keyspace;
        let arenas: Vec<ArenaStats> = keyspace.arenas().iter().map(|arena| arena.stats()).collect();
        breakdown.close(keyspace, &arenas, used);
        (breakdown, arenas)
    }

    /// Returns the counts of values that are not in memory.
    pub fn cold(&mut self) -> ColdCounts {
        let mut sum = ColdCounts::default();
        let class_bytes = self.held.keyspace.config().class_bytes;
        for number in 0..self.held.keyspace.partition_count() as u16 {
            sum.add(&self.look(number, |partition| partition.store.cold.counts(class_bytes)));
        }
        sum
    }

    /// Returns how long some keys of a database have not been used; slots are looked at from `start` on.
    pub fn idle_times(&mut self, db: Db, start: Slot, now: UnixMs) -> IdleTimes {
        let mut times = IdleTimes::none();
        let mut at = 0;
        while at < Slot::COUNT && !times.is_enough() {
            let slot = Slot::new(((start.index() + at) % Slot::COUNT) as u16);
            let partition = self.held.keyspace.partition_of(slot);
            let slot_done = self.look(partition, |partition| times.add_slot(partition, db, slot, now));
            at += usize::from(slot_done);
        }
        times
    }

    /// The size of every slot, by its number.
    pub fn slot_sizes(&mut self) -> Vec<SlotSize> {
        /// A slot is looked at, and what lies in it.
        const SLOTS_PER_HOLD_MAX: usize = ITEMS_PER_HOLD_MAX / 2;
        let keyspace = self.held.keyspace;
        let mut of_partition: Vec<Vec<Slot>> = vec![Vec::new(); keyspace.partition_count()];
        Slot::all().for_each(|slot| of_partition[usize::from(keyspace.partition_of(slot))].push(slot));
        let mut sizes = vec![SlotSize::default(); Slot::COUNT];
        for (number, slots) in of_partition.iter().enumerate() {
            let number = number as u16;
            let mut used = Vec::new();
            self.each_table_of(number, &mut |db, _| used.push(db));
            for db in used {
                for some in slots.chunks(SLOTS_PER_HOLD_MAX) {
                    self.look(number, |partition| {
                        steps::note(some.len() as u64);
                        some.iter().for_each(|slot| sizes[slot.index()].add(partition, db, *slot));
                    });
                }
            }
        }
        sizes
    }

    /// The keys that take the most memory.
    pub fn largest_keys(&mut self) -> LargestKeys {
        let mut names = BTreeMap::new();
        self.each_table(|db, table| {
            names.insert(table.number, db);
        });
        self.held.keyspace.shared().counters.attribution.largest.report(|table| names.get(&table).copied())
    }

    /// Shows the entry of a key to `look`, without a trace: expired keys are still there, and nothing is
    /// touched.
    pub fn find<R>(
        &mut self,
        db: Db,
        name: &[u8],
        now: UnixMs,
        look: impl FnOnce(Entry<'_>) -> R,
    ) -> Option<R> {
        let key = self.held.keyspace.key(name);
        self.held.acquire(Want::One(self.held.keyspace.partition_of(key.slot)));
        steps::note(1);
        let conditions = Conditions { now, expiry_mode: ExpiryMode::Keep, no_touch: true };
        let mut no_sink = NoEffects;
        let found = Txn::new(self.held, conditions, &mut no_sink).find(db, &key, Lookup::Silent).map(look);
        self.let_go();
        found
    }

    /// Waits until no command is under way that had its locks before: each partition is locked once. Rules
    /// and marks that were set before this call are seen by everything that runs after it.
    pub fn pass(&mut self) {
        (0..self.held.keyspace.partition_count() as u16).for_each(|number| self.look(number, |_| ()));
    }

    // ---- holding ----

    /// Reads by database, and again if databases were swapped meanwhile.
    fn by_database<R>(&mut self, read: impl Fn(&mut Survey<'h, 'k>) -> R) -> R {
        let swaps = &self.held.keyspace.shared().swaps;
        for _ in 1..ROUNDS_MAX {
            let before = swaps.load(Acquire);
            let all = read(self);
            if swaps.load(Acquire) == before {
                return all;
            }
        }
        read(self)
    }

    /// The tables of databases that have keys.
    fn each_table(&mut self, mut look: impl FnMut(Db, &Table)) {
        for number in 0..self.held.keyspace.partition_count() as u16 {
            self.each_table_of(number, &mut look);
        }
    }

    fn each_table_of(&mut self, number: u16, look: &mut dyn FnMut(Db, &Table)) {
        let databases = self.held.keyspace.config().databases;
        for from in (0..databases).step_by(ITEMS_PER_HOLD_MAX) {
            let some = from..databases.min(from.saturating_add(ITEMS_PER_HOLD_MAX as u16));
            self.look(number, |partition| {
                steps::note(some.len() as u64);
                for db in some.map(Db) {
                    if let Some(table) = partition.table(db) {
                        look(db, table);
                    }
                }
            });
        }
    }

    fn look<R>(&mut self, number: u16, look: impl FnOnce(&Partition) -> R) -> R {
        self.held.acquire(Want::One(number));
        if self.keeps {
            return look(self.held.numbered(number));
        }
        let watch = self.held.keyspace.shared().watch();
        let from = (watch.begin)();
        let seen = look(self.held.numbered(number));
        (watch.end)(from);
        self.let_go();
        seen
    }

    fn let_go(&mut self) {
        if !self.keeps {
            self.held.release();
        }
    }
}

fn no_sizes() -> Sizes {
    [[0; SIZE_BINS]; SIZED_TYPES.len()]
}
