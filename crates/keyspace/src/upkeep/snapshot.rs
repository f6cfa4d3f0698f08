//! Snapshots without fork: a walk over all pages while writes go on.
//!
//! ```text
//!   cut (under the gate): epoch += 1, every partition becomes active
//!   page.version != epoch   not seen yet      the walk emits it and stamps it with the epoch;
//!                                             a writer saves its entries first (`before_change`) and stamps it
//!   page.version == epoch   seen, saved, or born after the cut
//! ```
//!
//! What the walk emits and what writers saved is together exactly the state at the cut, in whatever order pages are
//! met, split, merged or freed. One snapshot at a time.
//!
//! **Versions wrap.** They are one byte. A partition knows the last epoch that all of its pages were stamped with: a snapshot
//! that ends early, or is of some slots only, leaves older versions behind, which differ from the next epoch too. Before
//! the byte could meet itself (`EPOCHS_BEHIND_MAX`), the next snapshot walks everything once without emitting it.
//!
//! **Steps.** A step emits about as many items (entries, parts of collections) as it is given, under one partition's lock.
//! Within a slot the walk goes on by the number of the page: that changes only by a split or a merge, which save the
//! page first. A page that is too much for what is left of a step is saved, and emitted entry by entry.
//!
//! **Collections.** A large collection is emitted in parts: its entry's page leads to it, and its own nodes carry the epoch
//! in the same way. What it changes meanwhile is saved first, under the number of the object; an object that is removed
//! stays until it was emitted. Nothing comes between the first part and the last: entries that are saved meanwhile wait,
//! each page's at most once.
//!
//! Extra memory: the entries of pages that were written before the walk came to them; large bodies are shared, not
//! copied, until they change. A database that FLUSHALL drops meanwhile is freed when its partition was walked.

use crate::access::lock::{Held, Keyspace, Want};
use crate::access::partition::Partition;
use crate::layout::directory;
use crate::layout::entry::{EntryBytes, Place};
use crate::layout::kind::{Db, Form};
use crate::layout::pile::Pile;
use crate::tables::geometry::Geometry;
use crate::values::collection::Stored;
use crate::values::parts::{Outline, Part};
use crate::values::saved::{EPOCHS_BEHIND_MAX, Pending, Saved, SavedField, SavedValue};
use crate::values::value::Value;
use isotherm_arena::Handle;
use isotherm_stdx::{Slot, Steps, UnixMs};
use std::collections::{HashMap, VecDeque};
use std::ops::RangeInclusive;
use std::sync::atomic::Ordering;

/// Nodes that an object lets go in one hold, of what it kept for a snapshot that ended early.
const FORGOTTEN_PER_HOLD: usize = 100;
/// Items of a step that is not emitted.
const SILENT_STEP_ITEMS: u64 = 500;

/// What a snapshot emits: whole entries, and large collections in parts, one after the other.
#[derive(Clone, Copy, Debug)]
pub enum SnapshotItem<'a> {
    Entry(SnapshotEntry<'a>),
    /// A large collection; its parts follow, then `End`.
    Begin {
        db: Db,
        key: &'a [u8],
        expiry: Option<UnixMs>,
        outline: Outline,
    },
    Part(Part<'a>),
    End,
}

/// An entry as it was at the cut.
#[derive(Clone, Copy, Debug)]
pub struct SnapshotEntry<'a> {
    pub db: Db,
    pub key: &'a [u8],
    pub value: Value<'a>,
    pub expiry: Option<UnixMs>,
}

/// A snapshot under way. Dropping it early ends it at once: nothing more is walked, and what was saved is given back.
pub struct Snapshot<'k> {
    keyspace: &'k Keyspace,
    /// Those that have slots of it, and the one that is being walked.
    partitions: Vec<u16>,
    at: usize,
    place: WalkPlace,
}

/// Where the walk of a partition goes on.
#[derive(Clone, Copy, Default)]
struct WalkPlace {
    db: u16,
    /// The slot's place in the partition, and whether it was found to have keys.
    slot: usize,
    is_in_slot: bool,
    /// Of the tables that were the database's at the cut, in the order of their numbers.
    table: u32,
    page: u32,
}

/// What a step may still emit, and to whom.
struct Walk<'v> {
    steps: Steps,
    visit: &'v mut dyn FnMut(SnapshotItem<'_>),
}

impl Walk<'_> {
    fn emit(&mut self, item: SnapshotItem<'_>) {
        self.steps.look(1);
        (self.visit)(item);
    }
}

const ALL_SLOTS: RangeInclusive<u16> = 0..=Slot::COUNT as u16 - 1;

impl Keyspace {
    /// Takes the gate for a moment and begins a snapshot of everything as it is then. `None` if one is under way.
    pub fn snapshot(&self) -> Option<Snapshot<'_>> {
        Held::new(self).snapshot()
    }

    /// The same of some slots.
    pub fn snapshot_of(&self, slots: RangeInclusive<u16>) -> Option<Snapshot<'_>> {
        Held::new(self).snapshot_of(slots)
    }

    /// Bytes that the snapshot under way keeps because of what was written since its cut. It goes through all of them.
    pub fn snapshot_bytes(&self) -> u64 {
        (0..self.partition_count() as u16).map(|partition| self.lock(partition).snapshot_bytes()).sum()
    }
}

impl<'k> Held<'k> {
    /// As `Keyspace::snapshot`, for a thread that may hold partitions already. Afterwards it holds all.
    pub fn snapshot(&mut self) -> Option<Snapshot<'k>> {
        self.snapshot_of(ALL_SLOTS)
    }

    pub fn snapshot_of(&mut self, slots: RangeInclusive<u16>) -> Option<Snapshot<'k>> {
        let active = &self.keyspace.shared().snapshot_active;
        if active.swap(true, Ordering::AcqRel) {
            return None;
        }
        if self.forget_snapshots() {
            let mut all = self.begin_snapshot(ALL_SLOTS);
            while all.step_in(self, SILENT_STEP_ITEMS, &mut |_| {}) {
                self.let_others_in();
            }
            std::mem::drop(all);
            if active.swap(true, Ordering::AcqRel) {
                return None;
            }
        }
        Some(self.begin_snapshot(slots))
    }

    /// Unlocks, unless everything is held: then the caller wants no other thread in between.
    fn let_others_in(&mut self) {
        if !self.covers(Want::All) || self.keyspace.partition_count() == 1 {
            self.release();
        }
    }

    /// Lets objects drop what they kept for snapshots that ended early. Whether some partition has no epoch left.
    fn forget_snapshots(&mut self) -> bool {
        let mut is_worn = false;
        for number in 0..self.keyspace.partition_count() as u16 {
            loop {
                self.acquire(Want::One(number));
                let partition = self.numbered(number);
                let more = partition.store.forget_step(FORGOTTEN_PER_HOLD);
                is_worn |= partition.store.snapshot.is_worn();
                if !more {
                    break;
                }
                self.let_others_in();
            }
        }
        is_worn
    }

    fn begin_snapshot(&mut self, slots: RangeInclusive<u16>) -> Snapshot<'k> {
        self.acquire(Want::All);
        let geometry = self.keyspace.geometry;
        let mut partitions: Vec<u16> =
            slots.clone().map(|slot| geometry.partition_of(Slot::new(slot))).collect();
        partitions.sort_unstable();
        partitions.dedup();
        for &number in &partitions {
            self.numbered(number).begin_snapshot((slots != ALL_SLOTS).then(|| slots.clone()));
        }
        Snapshot { keyspace: self.keyspace, partitions, at: 0, place: WalkPlace::default() }
    }
}

impl<'k> Snapshot<'k> {
    /// Walks on over about `items_max` items under one partition's lock. False when all has been emitted.
    pub fn step(&mut self, items_max: u64, visit: &mut dyn FnMut(SnapshotItem<'_>)) -> bool {
        self.step_in(&mut Held::new(self.keyspace), items_max, visit)
    }

    /// The same for a thread that may hold the partition already.
    pub fn step_in(
        &mut self,
        held: &mut Held<'k>,
        items_max: u64,
        visit: &mut dyn FnMut(SnapshotItem<'_>),
    ) -> bool {
        let Some(&number) = self.partitions.get(self.at) else { return false };
        held.acquire(Want::One(number));
        let partition = held.numbered(number);
        let mut walk = Walk { steps: Steps::new(items_max.max(1)), visit };
        while !walk.steps.is_spent() {
            // A collection comes in one piece: what was saved meanwhile waits until it has ended.
            let is_in_collection = partition.store.snapshot.is_in_collection();
            if !is_in_collection && partition.emit_saved(&mut walk) || partition.emit_collection(&mut walk) {
                continue;
            }
            if self.place.db == self.keyspace.config().databases {
                partition.end_snapshot();
                (self.at, self.place) = (self.at + 1, WalkPlace::default());
                return true;
            }
            if !partition.emit_next_page(&mut self.place, &mut walk) {
                self.place = WalkPlace { db: self.place.db + 1, ..WalkPlace::default() };
            }
        }
        true
    }

    /// Ends it at once, as dropping does.
    pub fn abort(self) {}
}

impl Drop for Snapshot<'_> {
    fn drop(&mut self) {
        for &number in &self.partitions[self.at..] {
            let mut held = Held::new(self.keyspace);
            held.acquire(Want::One(number));
            let saved = held.numbered(number).abort_snapshot();
            held.release();
            drop(saved);
        }
        self.keyspace.shared().snapshot_active.store(false, Ordering::Release);
    }
}

/// A snapshot emits what is stored, whether its time has come or not.
const ALL_TIMES: UnixMs = UnixMs(i64::MIN);

fn saved_value(form: Form, bytes: &[u8]) -> Value<'_> {
    if form.is_collection() {
        return Value::collection(form, Stored::Packed(bytes), ALL_TIMES);
    }
    Value::Bytes(bytes)
}

/// What was saved for a snapshot that ended: dropped without the lock.
type Leftovers = (Pile<Saved>, VecDeque<Pending>, HashMap<u32, Pile<SavedField>>);

/// What emitting an entry costs: a small collection is walked, at two bytes an element at least.
fn weight_of(form: Form, value_bytes: usize) -> u64 {
    1 + if form.is_collection() { value_bytes as u64 / 2 } else { 0 }
}

impl Partition {
    fn begin_snapshot(&mut self, slots: Option<RangeInclusive<u16>>) {
        self.name_tables_for_snapshot();
        let state = &mut self.store.snapshot;
        assert!(
            !state.active && state.saved.is_empty() && state.keeping.is_empty(),
            "one snapshot at a time"
        );
        state.epoch = state.epoch.wrapping_add(1);
        assert!(state.epoch.wrapping_sub(state.complete) <= EPOCHS_BEHIND_MAX + 1, "no version meets itself");
        (state.active, state.slots) = (true, slots);
        self.store.objects.keep_pending_free();
    }

    fn end_snapshot(&mut self) {
        let state = &mut self.store.snapshot;
        debug_assert!(state.saved.is_empty() && state.pending.is_empty());
        debug_assert!(state.fields.is_empty());
        if state.slots.is_none() {
            state.complete = state.epoch;
        }
        state.active = false;
        state.keeping = Pile::default();
        self.store.objects.doom_kept();
        self.store.note_unfreed();
    }

    /// What objects keep is dropped in steps, by upkeep or before the next snapshot.
    fn abort_snapshot(&mut self) -> Leftovers {
        let state = &mut self.store.snapshot;
        state.active = false;
        let (saved, pending) = (std::mem::take(&mut state.saved), std::mem::take(&mut state.pending));
        let fields = std::mem::take(&mut state.fields);
        self.store.objects.doom_kept();
        self.store.note_unfreed();
        (saved, pending, fields)
    }

    /// Goes on with the collections that were met. False if there is none.
    fn emit_collection(&mut self, walk: &mut Walk<'_>) -> bool {
        let Some(mut next) = self.store.snapshot.pending.pop_front() else { return false };
        let number = next.number;
        let mut root = self.store.objects.take(number);
        if next.cursor.is_none() {
            let outline = root.cut.unwrap_or_else(|| root.outline());
            walk.emit(SnapshotItem::Begin { db: next.db, key: &next.key, expiry: next.expiry, outline });
            self.store.snapshot.keeping.push(number);
        }
        let mut cursor = next.cursor.unwrap_or(0);
        let structure = root.body.structure_mut();
        let done = loop {
            let emit = &mut |part: Part<'_>| walk.emit(SnapshotItem::Part(part));
            let done = structure.emit_step(&mut self.store, &mut cursor, 1, emit);
            walk.steps.look(1);
            if done || walk.steps.is_spent() {
                break done;
            }
        };
        if done {
            structure.set_saving(false);
            (root.seen, root.cut) = (self.store.snapshot.version(), None);
            walk.emit(SnapshotItem::End);
        } else {
            next.cursor = Some(cursor);
            self.store.snapshot.pending.push_front(next);
        }
        self.store.objects.put(number, root);
        if done {
            self.let_go(number);
        }
        true
    }

    /// An object was emitted: what was kept of it for the snapshot may go, and all of it if it was removed meanwhile.
    fn let_go(&mut self, number: u32) {
        self.store.note_garbage(number);
        if self.store.objects.doom_emitted(number) {
            self.store.note_unfreed();
        }
    }

    /// Emits an entry that was saved. False if there is none.
    fn emit_saved(&mut self, walk: &mut Walk<'_>) -> bool {
        let Some(saved) = self.store.snapshot.saved.pop() else { return false };
        let (value, form) = match &saved.value {
            SavedValue::Int(int) => (Value::Int(*int), Form::Int),
            SavedValue::Bytes(form, bytes) => (saved_value(*form, bytes), *form),
            SavedValue::Shared(form, body, skip) => (saved_value(*form, &body[*skip..]), *form),
        };
        let bytes = if let SavedValue::Bytes(_, bytes) = &saved.value { bytes.len() } else { 0 };
        walk.steps.look(weight_of(form, bytes) - 1);
        let (key, expiry) = (&*saved.key, saved.expiry);
        walk.emit(SnapshotItem::Entry(SnapshotEntry { db: saved.db, key, value, expiry }));
        true
    }

    /// What is kept for the snapshot because it was written since the cut.
    pub fn snapshot_bytes(&self) -> u64 {
        let state = &self.store.snapshot;
        if !state.is_active() {
            return 0;
        }
        let entries = state.saved.iter().map(Saved::memory_bytes);
        let fields = state.fields.values().flat_map(Pile::iter).map(SavedField::memory_bytes);
        let objects = self.store.objects.iter().map(|(_, root)| root.body.structure().kept_bytes());
        entries.chain(fields).chain(objects.map(|bytes| bytes as usize)).sum::<usize>() as u64
    }

    /// The next slot from a place on that has keys in a database that was `db` at the cut. It passes the partition's slots
    /// at most.
    fn snapshot_next_slot(&self, db: Db, from: usize) -> Option<usize> {
        let mut from = from;
        loop {
            let tables = self.snapshot_tables(db);
            let at = tables.filter_map(|table| table.next_slot(&self.store.heap, from)).min()?;
            let spread = self.geometry.spread_of(self.number, at);
            if self.store.snapshot.covers(|| Geometry::slot_at(spread)) {
                return Some(at);
            }
            from = at + 1;
        }
    }

    /// Emits the page at the walk's place, if it was not seen yet, and moves on. False behind the database's last.
    fn emit_next_page(&mut self, place: &mut WalkPlace, walk: &mut Walk<'_>) -> bool {
        walk.steps.look(1);
        let db = Db(place.db);
        if !place.is_in_slot {
            let Some(slot) = self.snapshot_next_slot(db, place.slot) else { return false };
            *place = WalkPlace { db: place.db, slot, is_in_slot: true, table: 0, page: 0 };
        }
        let slot = place.slot;
        let rest = self.snapshot_tables(db).filter(|table| table.number >= place.table);
        let Some(table) = rest.min_by_key(|table| table.number) else {
            *place = WalkPlace { db: place.db, slot: slot + 1, ..WalkPlace::default() };
            return true;
        };
        if table.number != place.table {
            (place.table, place.page) = (table.number, 0);
        }
        let record = table.slot(&self.store.heap, slot).record;
        if place.page >= record.pages {
            (place.table, place.page) = (place.table + 1, 0);
            return true;
        }
        let (page, _) = directory::get(&self.store.heap, &record, place.page);
        place.page += 1;
        if let Some(page) =
            page.filter(|page| self.store.heap.page(*page).version() != self.store.snapshot.epoch)
        {
            self.emit_page(db, page, walk);
        }
        true
    }

    fn emit_page(&mut self, db: Db, page: Handle, walk: &mut Walk<'_>) {
        let view = self.store.heap.page(page);
        let entries = || view.spots().map(|spot| EntryBytes(view.entry(spot)));
        let is_object = |entry: &EntryBytes<'_>| entry.place() == Place::Object;
        let weight = |entry: EntryBytes<'_>| weight_of(entry.form(), self.store.value_bytes_of(entry).len());
        let sum: u64 = entries().filter(|entry| !is_object(entry)).map(weight).sum();
        if sum > walk.steps.left() {
            walk.steps.look(view.len() as u64);
            return self.store.save_page(db, page);
        }
        let mut objects = Vec::new();
        for entry in entries() {
            let key = self.store.key_of(entry);
            if let Some(body) = entry.body().filter(|body| body.place == Place::Object) {
                objects.push(Pending::new(db, key, entry, body.raw));
                continue;
            }
            let value = Value::of(&self.store, entry, ALL_TIMES);
            walk.emit(SnapshotItem::Entry(SnapshotEntry { db, key, value, expiry: entry.expiry() }));
        }
        self.store.snapshot.pending.extend(objects);
        let epoch = self.store.snapshot.epoch;
        crate::layout::page::set_version(self.store.heap.page_mut(page), epoch);
    }
}
