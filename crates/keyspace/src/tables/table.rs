//! One database of one partition: its slot records, and finding, storing and removing an entry.
//!
//! ```text
//!   index ->  [run handle u32] x runs            Index object; a run comes with the first key of its 64 slots
//!             run -> [record 32 B] x 64          Index object of 2 KB (fewer slots if the partition has fewer)
//!                    record -> page | directory -> pages
//! ```
//!
//! Beside them, sums over each run (keys, volatile keys, expiry bound), so that SCAN, RANDOMKEY, eviction and expiry
//! skip 64 slots at a time: 12 B a run, 3 KB for 16384 slots.
//!
//! Growth (`linear`): after an insert, if the mean page is larger than its target, one page is split (about 1 us); after
//! a removal, if it is well below, the last page is merged into its buddy. Nothing is ever rehashed as a whole.

use crate::accounting::attribution::{Change, Size};
use crate::accounting::sizes::Sizes;
use crate::accounting::tally::{Account, Tally};
use crate::layout::entry::{Draft, EntryBytes, Place, Plan, form_of, value_bytes};
use crate::layout::heap::Heap;
use crate::layout::key::{Key, tag_of};
use crate::layout::kind::{Expiry, Full, NewValue, PackedValue};
use crate::layout::page::{self, Spot};
use crate::layout::record::{NEVER, RECORD_BYTES, Record, bound_of, page_index};
use crate::layout::{directory, linear};
use crate::tables::counters::Counters;
use crate::tables::location::{Location, SlotRef};
use crate::tables::store::{OldEntry, Store};
use isotherm_arena::{Handle, Kind};
use isotherm_stdx::{UnixMs, steps};
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;

pub(crate) const RUN_SLOTS_MAX: usize = 64;

pub(crate) struct Table {
    index: Handle,
    /// Slots of a run, as a power of two: every command divides by it.
    run_bits: u32,
    pub sums: Vec<RunSum>,
    pub keys: u64,
    pub volatile: u64,
    /// Hashes that have fields with a time.
    pub timed_hashes: u64,
    /// Bytes in use in the pages: the sum of the records'.
    pub page_bytes: u64,
    pub tally: Tally,
    pub sizes: Sizes,
    /// No other table ever has it.
    pub number: u32,
    /// Told apart by snapshots, whatever SWAPDB does to its number.
    pub snapshot_db: crate::layout::kind::Db,
    /// It was flushed.
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
        partition: u16,
        counters: &Arc<Counters>,
    ) -> Result<Table, Full> {
        let run_slots = slots.min(RUN_SLOTS_MAX);
        let runs = slots / run_slots;
        let (index, _) = heap.allocate(Kind::Index, runs * 4)?;
        heap.bytes_mut(index, runs * 4).fill(0);
        let (snapshot_db, counters) = (crate::layout::kind::Db(0), Arc::clone(counters));
        Ok(Table {
            index,
            run_bits: run_slots.trailing_zeros(),
            sums: vec![NO_SUM; runs],
            keys: 0,
            volatile: 0,
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
        self.index
    }

    #[inline]
    pub fn run_slots(&self) -> usize {
        1 << self.run_bits
    }

    /// The run of a slot, and where its record begins there.
    #[inline]
    fn in_run(&self, at: usize) -> (usize, usize) {
        (at >> self.run_bits, (at & (self.run_slots() - 1)) * RECORD_BYTES)
    }

    // ---- records ----

    #[inline]
    fn run(&self, heap: &Heap, run: usize) -> Option<Handle> {
        let bytes = &heap.bytes(self.index, run * 4 + 4)[run * 4..];
        Handle::from_raw(u32::from_le_bytes(bytes.try_into().expect("four bytes")))
    }

    #[inline]
    pub fn slot(&self, heap: &Heap, at: usize) -> SlotRef {
        let (run, offset) = self.in_run(at);
        let run = self.run(heap, run);
        let record = match run {
            None => Record::EMPTY,
            Some(run) => Record::read(&heap.bytes(run, offset + RECORD_BYTES)[offset..]),
        };
        SlotRef { at, run, record }
    }

    /// Makes sure that the slot's run is there.
    fn materialise(&mut self, heap: &mut Heap, slot: &mut SlotRef) -> Result<(), Full> {
        if slot.run.is_some() {
            return Ok(());
        }
        let bytes = self.run_slots() * RECORD_BYTES;
        let (run, _) = heap.allocate(Kind::Index, bytes)?;
        for record in heap.bytes_mut(run, bytes).chunks_exact_mut(RECORD_BYTES) {
            Record::EMPTY.write(record);
        }
        let at = self.in_run(slot.at).0 * 4;
        heap.bytes_mut(self.index, at + 4)[at..].copy_from_slice(&run.raw().to_le_bytes());
        slot.run = Some(run);
        Ok(())
    }

    /// Writes a record back, and its difference into the sums.
    #[inline]
    pub fn store(&mut self, heap: &mut Heap, slot: &SlotRef, old: &Record) {
        let (run, offset) = self.in_run(slot.at);
        let handle = slot.run.expect("a changed slot has its run");
        slot.record.write(&mut heap.bytes_mut(handle, offset + RECORD_BYTES)[offset..]);
        let sum = &mut self.sums[run];
        sum.bound = sum.bound.min(slot.record.bound);
        self.page_bytes = self.page_bytes + slot.record.page_bytes() - old.page_bytes();
        let keys = slot.record.keys.wrapping_sub(old.keys);
        let volatile = slot.record.volatile.wrapping_sub(old.volatile);
        if keys == 0 && volatile == 0 {
            return;
        }
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
        let run = self.in_run(slot.at).0;
        if let (0, Some(handle)) = (self.sums[run].keys, slot.run) {
            heap.release(handle);
            heap.bytes_mut(self.index, run * 4 + 4)[run * 4..].fill(0);
            self.sums[run] = NO_SUM;
        }
    }

    // ---- finding ----

    /// Where the entry of a key is: what reading it takes, in registers. `locate` answers more, through memory.
    #[inline(always)]
    pub fn look_up(&self, store: &Store, at: usize, key: &Key<'_>) -> Option<(Handle, Spot)> {
        steps::note(1);
        let record = self.slot(&store.heap, at).record;
        if record.pages == 0 {
            return None;
        }
        let page = directory::get(&store.heap, &record, page_index(key.hash, record.pages)).0?;
        Some((page, store.find(page, key)?))
    }

    #[inline]
    pub fn locate(&self, store: &Store, at: usize, key: &Key<'_>) -> Location {
        self.locate_by(store, at, key, |page| store.find(page, key))
    }

    /// The location of a key that was just looked up: its entry is at `spot`, or it has none.
    #[inline]
    pub fn locate_seen(&self, store: &Store, at: usize, key: &Key<'_>, spot: Option<Spot>) -> Location {
        self.locate_by(store, at, key, |page| {
            debug_assert_eq!(store.find(page, key), spot);
            spot
        })
    }

    #[inline(always)]
    fn locate_by(
        &self,
        store: &Store,
        at: usize,
        key: &Key<'_>,
        find: impl FnOnce(Handle) -> Option<Spot>,
    ) -> Location {
        steps::note(1);
        let slot = self.slot(&store.heap, at);
        if slot.record.pages == 0 {
            return Location { slot, page_index: 0, page: None, spot: None };
        }
        let page_index = page_index(key.hash, slot.record.pages);
        let (page, _) = directory::get(&store.heap, &slot.record, page_index);
        Location { slot, page_index, page, spot: page.and_then(find) }
    }

    // ---- changing ----

    /// Stores a value where its key is or would be (`location` was just looked up), whatever was there. The location is
    /// then where the entry lies, unless a page was split: then it is none.
    pub fn set(
        &mut self,
        store: &mut Store,
        location: &mut Location,
        key: &Key<'_>,
        value: NewValue<'_>,
        expiry: Expiry,
        now: UnixMs,
    ) -> Result<(), Full> {
        let old = store.old_entry(location);
        let expiry = match expiry {
            Expiry::Clear => None,
            Expiry::Keep => old.as_ref().and_then(|old| old.expiry),
            Expiry::At(at) => Some(at),
        };
        let tight = store.is_tight(location);
        let plan = Plan::new(key.bytes.len(), value_bytes(value), tight);
        let draft = match plan.place {
            Place::Inline => Draft::inline(key.bytes, value, expiry),
            Place::Blob | Place::Large => {
                let body = store.new_body(plan, key, value)?;
                Draft::outside(key.bytes, form_of(value), body, expiry)
            }
            Place::Object => unreachable!("an object is made by whoever changes a collection"),
        };
        self.put_over(store, location, key, &draft, old, now)
    }

    /// Gives the inline entry at `location`, just looked up, another inline value; head and key stay as they are.
    pub fn set_inline(
        &mut self,
        store: &mut Store,
        location: Location,
        value: PackedValue<'_>,
        now: UnixMs,
    ) -> Result<(), Full> {
        let (page, spot) = location.page.zip(location.spot).expect("it was found");
        let (mut slot, before) = (location.slot, location.slot.record);
        store.before_change(self.snapshot_db, slot.at, page);
        let view = store.heap.page(page);
        let (used, entry) = (view.used() as u64, EntryBytes(view.entry(spot)));
        let (kept, old) = (entry.0.len() - entry.tail().len(), store.account(entry));
        let (moved, spot) = store.replace_behind(page, spot, kept, value.bytes, now)?;
        store.set_form(moved, spot, value.form);
        let new = store.account(EntryBytes(store.heap.page(moved).entry(spot)));
        let page_now = store.heap.page(moved);
        let key = store.key_of(EntryBytes(page_now.entry(spot)));
        self.tell(key, page_now.tag(spot.index), Some(&old), Some(&new));
        if moved != page {
            directory::set_page(&mut store.heap, &mut slot.record, location.page_index, Some(moved));
        }
        slot.record.change_page_bytes(used, store.heap.page(moved).used() as u64);
        self.store(&mut store.heap, &slot, &before);
        self.grow(store, &slot, now);
        Ok(())
    }

    /// Puts an entry where the key is or would be. Its body, if it has one, is made already and is freed on an error;
    /// the old entry's is freed on success. The location is as after `set`.
    pub fn put(
        &mut self,
        store: &mut Store,
        location: &mut Location,
        key: &Key<'_>,
        draft: &Draft,
        now: UnixMs,
    ) -> Result<(), Full> {
        let old = store.old_entry(location);
        self.put_over(store, location, key, draft, old, now)
    }

    fn put_over(
        &mut self,
        store: &mut Store,
        location: &mut Location,
        key: &Key<'_>,
        draft: &Draft,
        old: Option<OldEntry>,
        now: UnixMs,
    ) -> Result<(), Full> {
        let before = location.slot.record;
        let entry = EntryBytes(draft.as_bytes());
        if let Err(full) = self.put_bytes(store, location, key, draft.as_bytes(), now) {
            if let Some(body) = entry.body() {
                store.free_body(body);
            }
            self.release_run_if_empty(&mut store.heap, &location.slot);
            return Err(full);
        }
        let account = store.account(entry);
        let old_account = old.as_ref().map(|old| &old.account);
        self.tell(key.bytes, tag_of(key.hash), old_account, Some(&account));
        let record = &mut location.slot.record;
        if let Some(body) = entry.body() {
            record.change_outside(0, store.body_units(body));
            self.timed_hashes += u64::from(store.is_timed(body));
        }
        match &old {
            None => record.keys += 1,
            Some(old) => {
                if let Some(body) = old.body {
                    record.change_outside(store.body_units(body), 0);
                    self.timed_hashes -= u64::from(store.is_timed(body));
                    store.free_body(body);
                }
                record.volatile -= u32::from(old.expiry.is_some());
            }
        }
        if let Some(at) = entry.expiry() {
            record.volatile += 1;
            directory::lower_bound(&mut store.heap, record, location.page_index, bound_of(at));
        }
        self.store(&mut store.heap, &location.slot, &before);
        let crowded = location.page.filter(|page| linear::is_crowded(store.heap.page(*page)));
        let is_split = match crowded {
            Some(page) if self.spread(store, location.slot, page, now) => true,
            _ => self.grow(store, &location.slot, now),
        };
        if is_split {
            (location.page, location.spot) = (None, None);
        }
        Ok(())
    }

    /// Writes the bytes of an entry into its page, which may move to another class. The record knows the new place, but
    /// is not stored yet; after an error it is as it was, and so is everything else.
    fn put_bytes(
        &mut self,
        store: &mut Store,
        location: &mut Location,
        key: &Key<'_>,
        entry: &[u8],
        now: UnixMs,
    ) -> Result<(), Full> {
        self.materialise(&mut store.heap, &mut location.slot)?;
        let slot = &mut location.slot;
        if slot.record.pages == 0 {
            directory::push(&mut store.heap, &mut slot.record, None, NEVER)?;
        }
        let Some(page) = location.page else {
            let (page, spot) = store.first_page(key, entry, now)?;
            slot.record.change_page_bytes(0, store.heap.page(page).used() as u64);
            directory::set_page(&mut store.heap, &mut slot.record, location.page_index, Some(page));
            (location.page, location.spot) = (Some(page), Some(spot));
            return Ok(());
        };
        store.before_change(self.snapshot_db, slot.at, page);
        let used = store.heap.page(page).used() as u64;
        let (moved, spot) = match location.spot {
            Some(spot) => store.replace_entry(page, spot, entry, now)?,
            None => store.append_entry(page, key.hash, entry, now)?,
        };
        let used_now = store.heap.page(moved).used() as u64;
        if moved != page {
            directory::set_page(&mut store.heap, &mut slot.record, location.page_index, Some(moved));
        }
        (location.page, location.spot) = (Some(moved), Some(spot));
        slot.record.change_page_bytes(used, used_now);
        Ok(())
    }

    /// Takes an entry out. The location is one that was just found.
    pub fn remove(&mut self, store: &mut Store, location: &Location, now: UnixMs) {
        let (page, spot) = (location.page.expect("it was found"), location.spot.expect("it was found"));
        store.before_change(self.snapshot_db, location.slot.at, page);
        let mut slot = location.slot;
        let before = slot.record;
        let (volatile, body, used) = {
            let page = store.heap.page(page);
            let entry = EntryBytes(page.entry(spot));
            let tag = page.tag(spot.index);
            self.tell(store.key_of(entry), tag, Some(&store.account(entry)), None);
            (entry.is_volatile(), entry.body(), page.used() as u64)
        };
        if let Some(body) = body {
            slot.record.change_outside(store.body_units(body), 0);
            self.timed_hashes -= u64::from(store.is_timed(body));
            store.free_body(body);
        }
        slot.record.keys -= 1;
        slot.record.volatile -= u32::from(volatile);
        let left = store.remove_entry(page, spot);
        self.settle_removal(store, slot, &before, location.page_index, (page, used), left);
        if slot.record.keys > 0 {
            self.shrink(store, slot.at, now);
        }
    }

    /// Takes those entries out of page `index` that are `dead` (all of them volatile); `bound` is that of the rest.
    pub fn remove_dead(
        &mut self,
        store: &mut Store,
        at: usize,
        index: u32,
        dead: &[bool; page::ENTRIES_MAX],
        bound: u32,
        now: UnixMs,
    ) {
        let mut slot = self.slot(&store.heap, at);
        let before = slot.record;
        let page = directory::get(&store.heap, &slot.record, index).0.expect("the page has dead entries");
        store.before_change(self.snapshot_db, at, page);
        let mut bodies = Vec::new();
        let view = store.heap.page(page);
        let (used, mut gone) = (view.used() as u64, 0);
        for spot in view.spots().filter(|spot| dead[spot.index]) {
            let entry = EntryBytes(view.entry(spot));
            let tag = view.tag(spot.index);
            self.tell(store.key_of(entry), tag, Some(&store.account(entry)), None);
            bodies.extend(entry.body());
            gone += 1;
        }
        for body in bodies {
            slot.record.change_outside(store.body_units(body), 0);
            self.timed_hashes -= u64::from(store.is_timed(body));
            store.free_body(body);
        }
        slot.record.keys -= gone;
        slot.record.volatile -= gone;
        directory::set_bound(&mut store.heap, &mut slot.record, index, bound);
        let left = store.remove_entries(page, dead);
        self.settle_removal(store, slot, &before, index, (page, used), left);
        // As many merges at most as single removals could have led to.
        while slot.record.keys > 0 && gone > 0 && self.shrink(store, at, now) {
            gone -= 1;
        }
    }

    /// Records what is left of a page that lost entries; a slot without keys gives everything back.
    fn settle_removal(
        &mut self,
        store: &mut Store,
        mut slot: SlotRef,
        before: &Record,
        index: u32,
        page: (Handle, u64),
        left: Option<Handle>,
    ) {
        linear::settle_removal(store, &mut slot.record, index, page, left);
        self.store(&mut store.heap, &slot, before);
        if slot.record.keys == 0 {
            self.release_run_if_empty(&mut store.heap, &slot);
        }
    }

    /// Sets or clears the expiry of an entry that was just found.
    pub fn set_expiry(
        &mut self,
        store: &mut Store,
        location: &mut Location,
        key: &Key<'_>,
        expiry: Option<UnixMs>,
        now: UnixMs,
    ) -> Result<(), Full> {
        let page = location.page.expect("it was found");
        let entry = EntryBytes(store.heap.page(page).entry(location.spot.expect("it was found")));
        let (was_volatile, old) = (entry.is_volatile(), store.account(entry));
        let draft = Draft::with_expiry(entry, expiry);
        let before = location.slot.record;
        self.put_bytes(store, location, key, draft.as_bytes(), now)?;
        let new = store.account(EntryBytes(draft.as_bytes()));
        self.tell(key.bytes, tag_of(key.hash), Some(&old), Some(&new));
        let record = &mut location.slot.record;
        record.volatile = record.volatile - u32::from(was_volatile) + u32::from(expiry.is_some());
        if let Some(at) = expiry {
            directory::lower_bound(&mut store.heap, record, location.page_index, bound_of(at));
        }
        self.store(&mut store.heap, &location.slot, &before);
        Ok(())
    }

    /// Gives the page of a location the access column of the mode in force.
    pub fn convert_page(&mut self, store: &mut Store, location: &Location, now: UnixMs) -> Result<(), Full> {
        let page = location.page.expect("it was found");
        let mut slot = location.slot;
        let before = slot.record;
        let used = store.heap.page(page).used();
        let moved = store.convert_access(page, now)?;
        slot.record.change_page_bytes(used as u64, store.heap.page(moved).used() as u64);
        directory::set_page(&mut store.heap, &mut slot.record, location.page_index, Some(moved));
        self.store(&mut store.heap, &slot, &before);
        Ok(())
    }

    // ---- what is counted ----

    /// An entry with this key has come, has gone, or is another now.
    #[inline]
    pub fn tell(&mut self, key: &[u8], tag: u8, old: Option<&Account>, new: Option<&Account>) {
        match (old, new) {
            (Some(old), Some(new)) if old == new => return,
            (Some(old), Some(new)) => self.tally.replace(old, new),
            (None, Some(new)) => self.tally.add(new),
            (Some(old), None) => self.tally.remove(old),
            (None, None) => unreachable!("something has changed"),
        }
        self.sizes.note(old, new);
        let (old, new) = (old.map(Size::of), new.map(Size::of));
        self.counters.attribution.note(&Change { table: self.number, key, tag, old, new });
    }

    /// None of its keys is shown as one of the largest any more: nobody finds them.
    pub fn forget_largest(&self) {
        self.counters.attribution.largest.forget_table(self.number);
    }

    /// An entry leaves a table that was flushed.
    pub fn forget_entry(&mut self, old: &Account) {
        self.tally.remove(old);
        self.sizes.note(Some(old), None);
    }

    /// And the prefixes that counted it.
    pub fn forget_share(&self, change: &Change<'_>) {
        self.counters.attribution.prefixes.note(change);
    }

    // ---- growth ----

    /// Splits one page if the slot's pages have become too full. Whether it did.
    #[inline]
    fn grow(&mut self, store: &mut Store, slot: &SlotRef, now: UnixMs) -> bool {
        // A split that finds no memory is left for the next insert: pages may be larger.
        linear::is_overfull(&slot.record) && self.split(store, *slot, now).is_ok()
    }

    fn split(&mut self, store: &mut Store, mut slot: SlotRef, now: UnixMs) -> Result<(), Full> {
        let (before, db, at) = (slot.record, self.snapshot_db, slot.at);
        linear::split(store, &mut slot.record, |store, page| store.before_change(db, at, page), now)?;
        self.store(&mut store.heap, &slot, &before);
        Ok(())
    }

    /// Splits pages until the entries of one that is crowded part. Whether it did.
    fn spread(&mut self, store: &mut Store, mut slot: SlotRef, page: Handle, now: UnixMs) -> bool {
        let (before, db, at) = (slot.record, self.snapshot_db, slot.at);
        let before_change = |store: &mut Store, page| store.before_change(db, at, page);
        let is_split = linear::spread(store, &mut slot.record, page, before_change, now);
        self.store(&mut store.heap, &slot, &before);
        is_split
    }

    /// Merges the last page into its buddy if the slot's pages have become too empty. Whether it did.
    fn shrink(&mut self, store: &mut Store, at: usize, now: UnixMs) -> bool {
        let mut slot = self.slot(&store.heap, at);
        linear::is_sparse(&slot.record) && self.merge(store, &mut slot, now).is_ok()
    }

    fn merge(&mut self, store: &mut Store, slot: &mut SlotRef, now: UnixMs) -> Result<(), Full> {
        let (before, db, at) = (slot.record, self.snapshot_db, slot.at);
        linear::merge(store, &mut slot.record, |store, page| store.before_change(db, at, page), now)?;
        self.store(&mut store.heap, slot, &before);
        Ok(())
    }

    // ---- all of it ----

    /// What the table has of the global allocator.
    pub fn malloc_bytes(&self) -> usize {
        size_of::<Table>()
            + self.sums.capacity() * size_of::<RunSum>()
            + self.tally.memory_bytes()
            + self.sizes.memory_bytes()
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

    /// Places of slots that have keys, ascending.
    pub fn slots_with_keys<'a>(&'a self, heap: &'a Heap) -> impl Iterator<Item = usize> + 'a {
        self.sums
            .iter()
            .enumerate()
            .filter(|(_, sum)| sum.keys > 0)
            .flat_map(|(run, _)| run * self.run_slots()..(run + 1) * self.run_slots())
            .filter(|&at| self.slot(heap, at).record.keys > 0)
    }

    /// It is no longer a database's: eviction does not count its keys.
    pub fn mark_flushed(&mut self) {
        self.is_flushed = true;
        self.counters.weights[usize::from(self.partition)].add(-(self.keys as i64), -(self.volatile as i64));
    }

    /// Gives back what a table without keys has.
    pub fn free_empty(self, store: &mut Store) {
        debug_assert_eq!(self.keys, 0, "its runs went with their keys");
        store.heap.release(self.index);
    }

    /// Returns how many objects of the arena and how many large values the table refers to.
    pub fn check_invariants(&self, store: &Store, slot_of: impl Fn(&[u8]) -> usize) -> [u64; 2] {
        let (mut keys, mut volatile, mut timed_hashes, mut referred) = (0, 0, 0, [1, 0]);
        let (mut page_bytes, mut tally, mut sizes) = (0, Tally::default(), Sizes::default());
        for (run, sum) in self.sums.iter().enumerate() {
            let (mut run_keys, mut run_volatile) = (0, 0);
            for at in run * self.run_slots()..(run + 1) * self.run_slots() {
                let record = self.slot(&store.heap, at).record;
                timed_hashes += u64::from(self.check_slot(store, at, &record, &slot_of, &mut referred));
                page_bytes += record.page_bytes();
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
                self.run(&store.heap, run).is_some(),
                run_keys > 0,
                "a run is there while it has keys"
            );
            keys += u64::from(run_keys);
            volatile += u64::from(run_volatile);
            referred[0] += u64::from(run_keys > 0);
        }
        assert_eq!((self.keys, self.volatile, self.timed_hashes), (keys, volatile, timed_hashes));
        assert_eq!(self.page_bytes, page_bytes);
        assert!(self.tally.entry_bytes() <= page_bytes, "entries lie in pages");
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
        referred: &mut [u64; 2],
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
            }
        }
        let counted = (keys, volatile, bytes, outside);
        assert_eq!(counted, (record.keys, record.volatile, record.page_bytes(), record.outside()));
        assert!(record.bound == NEVER || record.pages > 0);
        timed_hashes
    }
}
