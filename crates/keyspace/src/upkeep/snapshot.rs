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
//! met, split, merged or freed. At the end every page carries the epoch, so one byte is enough: it may wrap, because
//! outside a snapshot all versions are equal. One snapshot at a time.
//!
//! A large collection is told in parts: its entry's page leads to it, and its own nodes carry the epoch in the same way.
//! What it changes meanwhile is saved first, under the number of the object; an object that is removed before it was
//! told is kept until the snapshot is over.
//!
//! Extra memory: the entries of pages that were written before the walk came to them; large bodies are shared, not
//! copied, until somebody changes them. A database that FLUSHALL drops meanwhile is freed when all was walked.

use crate::access::lock::{Held, Keyspace, Want};
use crate::access::partition::Partition;
use crate::layout::entry::{EntryBytes, Place};
use crate::layout::kind::{Db, Form};
use crate::layout::pile::Pile;
use crate::values::collection::Stored;
use crate::values::parts::{Outline, Part};
use crate::values::saved::{Pending, Saved, SavedField, SavedValue};
use crate::values::value::Value;
use isotherm_stdx::UnixMs;
use std::sync::atomic::Ordering;

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

/// A snapshot under way. Dropping it early finishes it without telling anybody.
pub struct Snapshot<'k> {
    keyspace: &'k Keyspace,
    partition: u16,
    db: u16,
    slot: usize,
}

impl Keyspace {
    /// Takes the gate for a moment and begins a snapshot of everything as it is then. `None` if one is under way.
    pub fn snapshot(&self) -> Option<Snapshot<'_>> {
        if self.shared().snapshot_active.swap(true, Ordering::AcqRel) {
            return None;
        }
        let mut held = Held::new(self);
        held.acquire(Want::All);
        held.partitions().for_each(Partition::begin_snapshot);
        Some(Snapshot { keyspace: self, partition: 0, db: 0, slot: 0 })
    }

    /// Bytes that the snapshot under way keeps because of what was written since its cut. It goes through all of them.
    pub fn snapshot_bytes(&self) -> u64 {
        (0..self.partition_count() as u16).map(|partition| self.lock(partition).snapshot_bytes()).sum()
    }
}

impl Snapshot<'_> {
    /// Walks on over about `pages_max` pages under one partition's lock. False when all has been told.
    pub fn step(&mut self, pages_max: usize, visit: &mut dyn FnMut(SnapshotItem<'_>)) -> bool {
        if usize::from(self.partition) == self.keyspace.partition_count() {
            return false;
        }
        let mut held = Held::new(self.keyspace);
        held.acquire(Want::One(self.partition));
        let partition = held.numbered(self.partition);
        let mut pages = 0;
        while pages < pages_max {
            // A collection comes in one piece: what was saved meanwhile waits until it has ended.
            if !partition.is_in_collection() && partition.emit_saved(visit) {
                pages += 1;
                continue;
            }
            if partition.tell_pending(&mut pages, pages_max, visit) {
                continue;
            }
            if self.db == self.keyspace.config().databases {
                partition.end_snapshot();
                (self.partition, self.db, self.slot) = (self.partition + 1, 0, 0);
                return true;
            }
            pages += 1;
            match partition.snapshot_next_slot(Db(self.db), self.slot) {
                Some(slot) => {
                    pages += partition.emit_slot(Db(self.db), slot, visit);
                    self.slot = slot + 1;
                }
                None => (self.db, self.slot) = (self.db + 1, 0),
            }
        }
        true
    }
}

impl Drop for Snapshot<'_> {
    fn drop(&mut self) {
        const PAGES_PER_STEP: usize = 64;
        while self.step(PAGES_PER_STEP, &mut |_| {}) {}
        self.keyspace.shared().snapshot_active.store(false, Ordering::Release);
    }
}

/// A snapshot tells what is stored, whether its time has come or not.
const ALL_TIMES: UnixMs = UnixMs(i64::MIN);

fn saved_value(form: Form, bytes: &[u8]) -> Value<'_> {
    if form.is_collection() {
        return Value::collection(form, Stored::Packed(bytes), ALL_TIMES);
    }
    Value::Bytes(bytes)
}

impl Partition {
    fn begin_snapshot(&mut self) {
        self.name_tables_for_snapshot();
        let state = &mut self.store.snapshot;
        assert!(!state.active && state.saved.is_empty(), "one snapshot at a time");
        state.epoch = state.epoch.wrapping_add(1);
        state.active = true;
        self.store.objects.keep_doomed();
    }

    fn end_snapshot(&mut self) {
        let state = &self.store.snapshot;
        debug_assert!(state.saved.is_empty() && state.pending.is_empty());
        debug_assert!(state.fields.is_empty());
        self.store.snapshot.active = false;
        self.store.objects.doom_kept();
        self.store.note_unfreed();
    }

    /// Whether a collection has begun and not ended.
    fn is_in_collection(&self) -> bool {
        self.store.snapshot.pending.front().is_some_and(|pending| pending.cursor.is_some())
    }

    /// Goes on with the objects that were met. False if there is none.
    fn tell_pending(
        &mut self,
        nodes: &mut usize,
        nodes_max: usize,
        visit: &mut dyn FnMut(SnapshotItem<'_>),
    ) -> bool {
        let Some(mut next) = self.store.snapshot.pending.pop_front() else { return false };
        let mut root = self.store.objects.take(next.number);
        if next.cursor.is_none() {
            let outline = root.cut.unwrap_or_else(|| root.outline());
            visit(SnapshotItem::Begin { db: next.db, key: &next.key, expiry: next.expiry, outline });
        }
        let mut cursor = next.cursor.unwrap_or(0);
        let budget = nodes_max.saturating_sub(*nodes).max(1);
        let structure = root.body.structure_mut();
        let done = structure
            .tell_step(&mut self.store, &mut cursor, budget, &mut |part| visit(SnapshotItem::Part(part)));
        *nodes += budget;
        let number = next.number;
        if done {
            structure.set_saving(false);
            (root.seen, root.cut) = (self.store.snapshot.version(), None);
            visit(SnapshotItem::End);
        } else {
            next.cursor = Some(cursor);
            self.store.snapshot.pending.push_front(next);
        }
        self.store.objects.put(number, root);
        true
    }

    /// Emits some of the entries that were saved. False if there are none.
    fn emit_saved(&mut self, visit: &mut dyn FnMut(SnapshotItem<'_>)) -> bool {
        let Some(some) = self.store.snapshot.saved.take_some() else { return false };
        for saved in some {
            let value = match &saved.value {
                SavedValue::Int(int) => Value::Int(*int),
                SavedValue::Bytes(form, bytes) => saved_value(*form, bytes),
                SavedValue::Shared(form, body, skip) => saved_value(*form, &body[*skip..]),
            };
            let (key, expiry) = (&*saved.key, saved.expiry);
            visit(SnapshotItem::Entry(SnapshotEntry { db: saved.db, key, value, expiry }));
        }
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

    /// The next slot from `from` on that has keys in a database that was `db` at the cut.
    fn snapshot_next_slot(&self, db: Db, from: usize) -> Option<usize> {
        self.snapshot_tables(db).filter_map(|table| table.next_slot(&self.store.heap, from)).min()
    }

    /// Emits the pages of a slot that were not seen yet; how many.
    fn emit_slot(&mut self, db: Db, slot: usize, visit: &mut dyn FnMut(SnapshotItem<'_>)) -> usize {
        let mut pages = Vec::new();
        for table in self.snapshot_tables(db) {
            table.for_each_page(&self.store.heap, slot, |_, page| pages.push(page));
        }
        let epoch = self.store.snapshot.epoch;
        for &page in &pages {
            let view = self.store.heap.page(page);
            if view.version() == epoch {
                continue;
            }
            let mut objects = Vec::new();
            for spot in view.spots() {
                let entry = EntryBytes(view.entry(spot));
                let key = self.store.key_of(entry);
                if let Some(body) = entry.body().filter(|body| body.place == Place::Object) {
                    objects.push(Pending::new(db, key, entry, body.raw));
                    continue;
                }
                let value = Value::of(&self.store, entry, ALL_TIMES);
                visit(SnapshotItem::Entry(SnapshotEntry { db, key, value, expiry: entry.expiry() }));
            }
            self.store.snapshot.pending.extend(objects);
            crate::layout::page::set_version(self.store.heap.page_mut(page), epoch);
        }
        pages.len()
    }
}
