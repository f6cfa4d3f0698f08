//! Table: one database of one partition, with its slot records, and finding, storing and removing an entry.
//!
//! ```text
//!   index ->  [run handle u32] x runs            Index object; a run comes with the first key of its 64 slots
//!             run -> [record 32 B] x 64          Index object of 2 KB (fewer slots if the partition has fewer)
//!                    record -> page | directory -> pages
//! ```
//!
//! A run of another database than the first has only records in use while these are few (`runs`).
//!
//! A table also has sums over each run (keys, volatile keys, expiry bound), so that SCAN, RANDOMKEY, eviction
//! and expiry skip 64 slots at a time: 12 B a run, 3 KB for 16384 slots.
//!
//! Growth (`linear`): after an insert, if the mean page is larger than its target, one page is split (about 1
//! us); after a removal, if it is well below, the last page is merged into its buddy. Nothing is ever
//! rehashed as a whole.

pub(crate) mod build;
mod change;
mod runs;

use crate::accounting::sizes::Sizes;
use crate::accounting::tally::Tally;
use crate::layout::directory::{self, Bounded};
use crate::layout::entry::{EntryBytes, Place};
use crate::layout::heap::Heap;
use crate::layout::key::{Key, tag_of};
use crate::layout::kind::Full;
use crate::layout::page::Spot;
use crate::layout::record::{NEVER, Record, bound_of, page_index};
use crate::tables::counters::Counters;
use crate::tables::frozen::{Bundle, BundleAddress, Frozen};
use crate::tables::location::{Location, SlotRef};
use crate::values::store::Store;
use isotherm_arena::Handle;
use isotherm_stdx::{Steps, steps};
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;

pub(crate) use runs::{Layout, RUN_SLOTS_MAX, Runs};

const PARTS: u32 = u64::BITS;

pub(crate) struct Table {
    runs: Runs,
    /// Parts of the slots, a bit for each 64th, that have had keys.
    parts: u64,
    part_bits: u32,
    pub sums: Vec<RunSum>,
    /// Number of keys in pages.
    pub keys: u64,
    pub volatile: u64,
    /// Keys outside memory; `None` as a rule.
    pub frozen: Option<Box<Frozen>>,
    /// Hashes that have fields with a time.
    pub timed_hashes: u64,
    /// Bytes in use in the pages: the sum of the records'.
    pub page_bytes: u64,
    pub tally: Tally,
    pub sizes: Sizes,
    /// No other table ever has it.
    pub number: u32,
    /// Distinguished by snapshots, whatever SWAPDB does to its number.
    pub snapshot_db: crate::layout::kind::Db,
    /// True once the table was flushed.
    is_flushed: bool,
    partition: u16,
    counters: Arc<Counters>,
}

/// Sums over the records of a run.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct RunSum {
    pub keys: u32,
    pub volatile: u32,
    pub bound: u32,
}

const NO_SUM: RunSum = RunSum { keys: 0, volatile: 0, bound: NEVER };

impl Table {
    pub fn new(
        heap: &mut Heap,
        slots: usize,
        layout: Layout,
        partition: u16,
        counters: &Arc<Counters>,
    ) -> Result<Table, Full> {
        let runs = Runs::new(heap, slots, layout)?;
        let sums = vec![NO_SUM; slots / runs.run_slots()];
        let (snapshot_db, counters) = (crate::layout::kind::Db(0), Arc::clone(counters));
        Ok(Table {
            runs,
            parts: 0,
            part_bits: slots.trailing_zeros().saturating_sub(PARTS.trailing_zeros()),
            sums,
            keys: 0,
            volatile: 0,
            frozen: None,
            timed_hashes: 0,
            page_bytes: 0,
            tally: Tally::default(),
            sizes: Sizes::default(),
            number: counters.next_table.fetch_add(1, Relaxed),
            snapshot_db,
            is_flushed: false,
            partition,
            counters,
        })
    }

    pub fn index(&self) -> Handle {
        self.runs.index()
    }

    #[inline]
    pub fn run_slots(&self) -> usize {
        self.runs.run_slots()
    }

    // ---- records ----

    #[inline]
    pub fn slot(&self, heap: &Heap, at: usize) -> SlotRef {
        self.runs.slot(heap, at)
    }

    /// Makes sure that the slot's run is there.
    pub(super) fn materialise(&mut self, heap: &mut Heap, slot: &mut SlotRef) -> Result<(), Full> {
        self.runs.materialise(heap, slot)
    }

    /// Writes a record back, and its difference into the sums.
    #[inline]
    pub fn store(&mut self, heap: &mut Heap, slot: &SlotRef, old: &Record) {
        let run = self.runs.write(heap, slot);
        let sum = &mut self.sums[run];
        sum.bound = sum.bound.min(slot.record.bound);
        self.page_bytes = self.page_bytes + slot.record.page_bytes() - old.page_bytes();
        let keys = slot.record.keys.wrapping_sub(old.keys);
        let volatile = slot.record.volatile.wrapping_sub(old.volatile);
        if keys == 0 && volatile == 0 {
            return;
        }
        self.parts |= 1 << (slot.at >> self.part_bits);
        sum.keys = sum.keys.wrapping_add(keys);
        sum.volatile = sum.volatile.wrapping_add(volatile);
        let (keys, volatile) = (i64::from(keys as i32), i64::from(volatile as i32));
        self.keys = self.keys.wrapping_add_signed(keys);
        self.volatile = self.volatile.wrapping_add_signed(volatile);
        if !self.is_flushed {
            self.counters.weights[usize::from(self.partition)].add(keys, volatile);
        }
    }

    /// Counts a run's bound again.
    pub fn refresh_bound(&mut self, heap: &Heap, run: usize) {
        let slots = run * self.run_slots()..(run + 1) * self.run_slots();
        self.sums[run].bound = slots.map(|at| self.slot(heap, at).record.bound).min().unwrap_or(NEVER);
    }

    /// Frees the slot's run if all its slots are empty.
    pub fn release_run_if_empty(&mut self, heap: &mut Heap, slot: &SlotRef) {
        let run = self.runs.run_of(slot.at);
        if self.sums[run].keys == 0 && slot.run.is_some() && self.runs.release(heap, run) {
            self.sums[run] = NO_SUM;
        }
    }

    /// Returns whether the slot may have keys in pages: a look at no more than the table itself.
    #[inline]
    pub fn may_have(&self, at: usize) -> bool {
        self.parts >> (at >> self.part_bits) & 1 != 0
    }

    // ---- finding ----

    /// Finds the entry of a key. Returns only what a read needs, in registers; `locate` returns more, through
    /// memory.
    #[inline(always)]
    pub fn find(&self, store: &Store, at: usize, key: &Key<'_>) -> Option<(Handle, Spot)> {
        steps::note(1);
        let record = self.slot(&store.heap, at).record;
        if record.pages == 0 {
            return None;
        }
        let page = directory::get(&store.heap, &record, page_index(key.hash, record.pages)).0?;
        Some((page, store.find(page, key)?))
    }

    /// Returns the place of a key, or the place that it would have.
    #[inline(always)]
    pub fn locate(&self, store: &Store, at: usize, key: &Key<'_>) -> Location {
        let hole = self.locate_seen(store, at, key, None);
        Location { spot: hole.page.and_then(|page| store.find(page, key)), ..hole }
    }

    /// Returns the location of a key that was just looked for: its entry is at `spot`, or it has none.
    #[inline(always)]
    pub fn locate_seen(&self, store: &Store, at: usize, key: &Key<'_>, spot: Option<Spot>) -> Location {
        steps::note(1);
        let slot = self.slot(&store.heap, at);
        if slot.record.pages == 0 {
            return Location { slot, page_index: 0, page: None, spot: None };
        }
        let page_index = page_index(key.hash, slot.record.pages);
        let (page, _) = directory::get(&store.heap, &slot.record, page_index);
        Location { slot, page_index, page, spot }
    }

    // ---- all of it ----

    /// Returns the bytes that the table takes from the global allocator.
    pub fn malloc_bytes(&self) -> usize {
        size_of::<Table>()
            + self.sums.capacity() * size_of::<RunSum>()
            + self.tally.memory_bytes()
            + self.sizes.memory_bytes()
            + self.frozen.as_ref().map_or(0, |frozen| size_of::<Frozen>() + frozen.memory_bytes())
    }

    /// All keys, wherever they are.
    pub fn len(&self) -> u64 {
        self.keys + self.frozen_keys()
    }

    #[inline]
    pub fn is_empty(&self) -> bool {
        self.keys == 0 && self.frozen.is_none()
    }

    /// Returns the number of keys that expire, wherever they are.
    pub fn volatile_len(&self) -> u64 {
        self.volatile + self.frozen.as_ref().map_or(0, |frozen| frozen.volatile)
    }

    pub fn frozen_keys(&self) -> u64 {
        self.frozen.as_ref().map_or(0, |frozen| frozen.keys)
    }

    /// All keys of a slot.
    pub fn slot_len(&self, heap: &Heap, at: usize) -> u64 {
        let frozen = self.frozen.as_ref().map_or(0, |frozen| frozen.keys_of(at));
        u64::from(self.slot(heap, at).record.keys) + frozen
    }

    /// Calls `visit` with every page of a slot.
    pub fn for_each_page(&self, heap: &Heap, at: usize, mut visit: impl FnMut(u32, Handle)) {
        let record = self.slot(heap, at).record;
        for index in 0..record.pages {
            if let (Some(page), _) = directory::get(heap, &record, index) {
                visit(index, page);
            }
        }
    }

    /// The first slot from `from` on that has keys, in pages or outside memory.
    pub fn next_slot(&self, heap: &Heap, from: usize) -> Option<usize> {
        let frozen = self.frozen.as_ref().and_then(|frozen| frozen.next_slot(from));
        [self.next_slot_in_pages(heap, from), frozen].into_iter().flatten().min()
    }

    fn next_slot_in_pages(&self, heap: &Heap, from: usize) -> Option<usize> {
        let runs = self.run_slots();
        let mut at = from;
        while at < self.sums.len() * runs {
            if self.sums[at / runs].keys == 0 {
                at = (at / runs + 1) * runs;
            } else if self.slot(heap, at).record.keys > 0 {
                return Some(at);
            } else {
                at += 1;
            }
        }
        None
    }

    /// The first page of a slot from `from` on whose bound is a wanted one (see `directory`).
    pub fn next_bounded(
        &mut self,
        heap: &mut Heap,
        at: usize,
        from: u32,
        wanted: &dyn Fn(u32) -> bool,
        steps: &mut Steps,
    ) -> Bounded {
        let mut slot = self.slot(heap, at);
        let before = slot.record;
        let found = directory::next_bounded(heap, &mut slot.record, from, wanted, steps);
        if slot.record != before {
            self.store(heap, &slot, &before);
        }
        found
    }

    /// Places of slots that have keys in pages, ascending.
    pub fn slots_with_keys<'a>(&'a self, heap: &'a Heap) -> impl Iterator<Item = usize> + 'a {
        self.sums
            .iter()
            .enumerate()
            .filter(|(_, sum)| sum.keys > 0)
            .flat_map(|(run, _)| run * self.run_slots()..(run + 1) * self.run_slots())
            .filter(|&at| self.slot(heap, at).record.keys > 0)
    }

    // ---- frozen keys ----

    /// The bundles of a slot from an address on.
    pub fn bundles_from(&self, from: BundleAddress) -> impl Iterator<Item = (BundleAddress, &Bundle)> {
        self.frozen.iter().flat_map(move |frozen| frozen.from(from))
    }

    /// Marks the table as flushed: it is no longer a database's, and eviction does not count its keys.
    pub fn mark_flushed(&mut self) {
        self.is_flushed = true;
        self.counters.weights[usize::from(self.partition)].add(-(self.keys as i64), -(self.volatile as i64));
    }

    /// Gives back what a table without keys has.
    pub fn free_empty(self, store: &mut Store) {
        debug_assert!(self.is_empty(), "its runs went with their keys");
        store.heap.release(self.index());
    }

    /// Returns how many objects of the arena, large values, and values that are not in memory the table
    /// refers to.
    pub fn check_invariants(&self, store: &Store, slot_of: impl Fn(&[u8]) -> usize) -> [u64; 3] {
        let (mut keys, mut volatile, mut timed_hashes, mut referred) = (0, 0, 0, [1, 0, 0]);
        let (mut page_bytes, mut tally, mut sizes) = (0, Tally::default(), Sizes::default());
        for (run, sum) in self.sums.iter().enumerate() {
            let (mut run_keys, mut run_volatile) = (0, 0);
            for at in run * self.run_slots()..(run + 1) * self.run_slots() {
                let record = self.slot(&store.heap, at).record;
                timed_hashes += u64::from(self.check_slot(store, at, &record, &slot_of, &mut referred));
                page_bytes += record.page_bytes();
                assert!(record.keys == 0 || self.may_have(at), "a slot with keys is in a part that has some");
                self.for_each_page(&store.heap, at, |_, page| {
                    let page = store.heap.page(page);
                    for account in page.spots().map(|spot| store.account(EntryBytes(page.entry(spot)))) {
                        tally.add(&account);
                        sizes.note(None, Some(&account));
                    }
                });
                assert!(record.bound >= sum.bound, "a run's bound is a lower bound");
                run_keys += record.keys;
                run_volatile += record.volatile;
            }
            assert_eq!((sum.keys, sum.volatile), (run_keys, run_volatile));
            assert_eq!(
                self.runs.is_there(&store.heap, run),
                run_keys > 0,
                "a run is there while it has keys"
            );
            keys += u64::from(run_keys);
            volatile += u64::from(run_volatile);
            referred[0] += u64::from(run_keys > 0);
        }
        assert_eq!((self.keys, self.volatile, self.timed_hashes), (keys, volatile, timed_hashes));
        assert_eq!(self.page_bytes, page_bytes);
        self.runs.check_invariants(&store.heap);
        assert!(self.tally.entry_bytes() <= page_bytes, "entries lie in pages");
        assert!(self.frozen.as_ref().is_none_or(|frozen| !frozen.is_empty()), "an empty one is dropped");
        self.tally.check_invariants(&tally);
        self.sizes.check_invariants(&sizes);
        referred
    }

    fn check_slot(
        &self,
        store: &Store,
        at: usize,
        record: &Record,
        slot_of: &impl Fn(&[u8]) -> usize,
        referred: &mut [u64; 3],
    ) -> u32 {
        let mut timed_hashes = 0;
        referred[0] += directory::check_invariants(&store.heap, record) as u64;
        let (mut keys, mut volatile, mut bytes, mut outside) = (0, 0, 0, 0);
        for index in 0..record.pages {
            let (Some(handle), bound) = directory::get(&store.heap, record, index) else { continue };
            let page = store.heap.page(handle);
            page.check_invariants();
            assert!(page.len() > 0, "a page without entries has no bytes");
            if !self.is_flushed {
                store.snapshot.check_version(page.version());
            }
            referred[0] += 1;
            bytes += page.used() as u64;
            for spot in page.spots() {
                let entry = EntryBytes(page.entry(spot));
                let key = store.key_of(entry);
                let hash = store.hasher.hash(key);
                assert_eq!((page_index(hash, record.pages), tag_of(hash)), (index, page.tag(spot.index)));
                assert_eq!(slot_of(key), at);
                keys += 1;
                if let Some(expiry) = entry.expiry() {
                    volatile += 1;
                    assert!(bound_of(expiry) >= bound, "a page's bound is a lower bound");
                }
                outside += entry.body().map_or(0, |body| store.body_units(body));
                timed_hashes += u32::from(entry.body().is_some_and(|body| store.is_timed(body)));
                referred[0] += u64::from(entry.place() == Place::Blob);
                referred[1] += u64::from(entry.place() == Place::Large);
                referred[2] += u64::from(entry.place() == Place::Cold);
            }
        }
        let counted = (keys, volatile, bytes, outside);
        assert_eq!(counted, (record.keys, record.volatile, record.page_bytes(), record.outside()));
        assert!(record.bound == NEVER || record.pages > 0);
        timed_hashes
    }
}
