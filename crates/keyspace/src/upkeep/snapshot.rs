//! Snapshots without fork: a walk over all pages while writes continue.
//!
//! ```text
//!   cut (under the gate): epoch += 1, every partition becomes active
//!   page.version != epoch   not seen yet      the walk emits it and stamps it with the epoch;
//!                                             a writer saves its entries first (`before_change`) and stamps it
//!   page.version == epoch   seen, saved, or born after the cut
//! ```
//!
//! The items that the walk emits and those that writers saved are together exactly the state at the cut, in
//! whatever order pages are met, split, merged or freed. One snapshot at a time.
//!
//! **Versions wrap.** They are one byte. A partition knows the last epoch that all of its pages were stamped
//! with: a snapshot that ends early, or is of some slots only, leaves older versions behind, which differ
//! from the next epoch too. Before the byte could meet itself (`EPOCHS_BEHIND_MAX`), the next snapshot walks
//! everything once without emitting it.
//!
//! **Steps.** A step emits about as many items (entries, parts of collections) as it is given, under one
//! partition's lock. A long item counts as several, one for each 64 bytes, so that a step is bounded in bytes
//! too: a page (16 KB, or one entry of 4 KB) is the most that it may exceed that by. Strings above 4 KB are
//! shared under the lock and emitted after its release. Within a slot the walk continues by the number of the
//! page: that changes only by a split or a merge, which save the page first. A page that weighs too much is
//! saved, and emitted entry by entry. The steps go round over the partitions, so that items that writers save
//! are emitted soon, and few bytes are kept at a time; a collection is not left before its end. While as much
//! is kept as may be, steps emit only saved items, of one partition after the other: writers wait for it.
//!
//! **Collections.** A large collection is emitted in parts: its entry's page leads to it, and its own nodes
//! carry the epoch in the same way. A part that changes meanwhile is saved first, under the number of the
//! object; an object that is removed stays until it was emitted. Nothing comes between the first part and the
//! last: entries that are saved meanwhile wait, each page's at most once.
//!
//! Extra memory: the entries of pages that were written before the walk came to them; large bodies are
//! shared, not copied, until they change. A database that FLUSHALL drops meanwhile is freed when its
//! partition was walked, a table that was made after the cut at once.

use crate::access::keyspace::Keyspace;
use crate::access::lock::{Held, Want};
use crate::access::partition::Partition;
use crate::layout::bundle::{self, BundleName, Expiring};
use crate::layout::cold::ColdRef;
use crate::layout::entry::read_int;
use crate::layout::kind::{Db, Form};
use crate::layout::last_used::AccessStamp;
use crate::layout::node_name::NodeName;
use crate::layout::packed::Element;
use crate::layout::pile::Pile;
use crate::upkeep::walk::{Late, Walk, WalkPlace};
use crate::values::fields::ReadPage;
use crate::values::parts::{Outline, Part};
use crate::values::receiver::{NodeOf, NodePart};
use crate::values::saved::{EPOCHS_BEHIND_MAX, Leftovers};
use crate::values::value::Value;
use crate::values::{list, stream, zset};
use isotherm_stdx::{Slot, UnixMs};
use std::collections::VecDeque;
use std::ops::RangeInclusive;
use std::sync::atomic::Ordering;

/// Nodes that an object releases in one hold, of those that it kept for a snapshot that ended early.
const FORGOTTEN_PER_HOLD: usize = 100;
/// Items of a step that is not emitted.
const SILENT_STEP_ITEMS: u64 = 500;

/// Item that a snapshot emits: a whole entry, or a part of a large collection, whose parts come one after the
/// other.
#[derive(Clone, Copy, Debug)]
pub enum SnapshotItem<'a> {
    Entry(SnapshotEntry<'a>),
    /// Keys that lie outside memory with their values.
    Bundle(SnapshotBundle<'a>),
    /// A large collection; its parts follow, then `End`.
    Begin {
        db: Db,
        key: &'a [u8],
        expiry: Option<UnixMs>,
        access: Option<AccessStamp>,
        outline: Outline,
    },
    Part(Part<'a>),
    /// Parts of the collection that are not in memory.
    Node(SnapshotNode),
    End,
}

/// An entry as it was at the cut.
#[derive(Clone, Copy, Debug)]
pub struct SnapshotEntry<'a> {
    pub db: Db,
    pub key: &'a [u8],
    pub value: Value<'a>,
    pub expiry: Option<UnixMs>,
    /// Under an LRU or LFU policy.
    pub access: Option<AccessStamp>,
}

/// Keys outside memory as they were at the cut, and where their record was then: it has them as long as the
/// snapshot is under way.
#[derive(Clone, Copy, Debug)]
pub struct SnapshotBundle<'a> {
    pub db: Db,
    pub slot: Slot,
    pub name: BundleName,
    pub reference: ColdRef,
    pub(crate) prints: &'a [u16],
    /// Count and bound of its keys that expire, if there are any.
    pub expiring: Option<Expiring>,
}

impl SnapshotBundle<'_> {
    /// Sixteen bits of each key's hash, in the order of the record; 0: it has left.
    pub fn prints(&self) -> &[u16] {
        self.prints
    }

    /// Returns the number of keys.
    pub fn keys(&self) -> u64 {
        self.prints.iter().filter(|print| **print != 0).count() as u64
    }

    /// Returns its entries from the record that was read; `None` if that is no record of a bundle.
    pub fn entries<'p>(&self, payload: &'p [u8]) -> Option<Vec<SnapshotEntry<'p>>> {
        let items = bundle::items(payload)?;
        let db = self.db;
        let live = items.into_iter().zip(self.prints).filter(|(_, print)| **print != 0);
        let entries = live.map(|(item, _)| SnapshotEntry {
            db,
            key: item.key,
            value: Value::of_bytes(item.form, item.value, UnixMs(i64::MIN)),
            expiry: item.expiry,
            access: None,
        });
        Some(entries.collect())
    }
}

/// Fields or members outside memory as they were at the cut: their record has to be read.
#[derive(Clone, Copy, Debug)]
pub struct SnapshotNode {
    pub(crate) part: NodePart,
}

impl SnapshotNode {
    pub fn name(&self) -> NodeName {
        self.part.name
    }

    pub fn reference(&self) -> ColdRef {
        self.part.reference
    }

    /// Calls `visit` with its parts, from the record that was read. Returns false if that is no record of a
    /// node.
    pub fn parts(&self, payload: &[u8], mut visit: impl FnMut(Part<'_>)) -> bool {
        match self.part.of {
            NodeOf::Hash | NodeOf::Set => {}
            NodeOf::Zset => {
                return zset::read_payload(payload, &mut |member, score| {
                    visit(Part::Scored(Element::Bytes(member), score));
                });
            }
            NodeOf::List => return list::read_payload(payload, &mut visit),
            NodeOf::Stream => return stream::read_payload(payload, &mut |part| visit(Part::Stream(part))),
        }
        let Some(page) = ReadPage::of(payload) else { return false };
        for (name, form, value) in page.entries() {
            let name = Element::Bytes(name);
            visit(match (self.part.of, form) {
                (NodeOf::Hash, Form::Int) => Part::Field(name, Element::Int(read_int(value)), None),
                (NodeOf::Hash, _) => Part::Field(name, Element::Bytes(value), None),
                _ => Part::Member(name),
            });
        }
        true
    }
}

/// A snapshot under way. Dropping it early ends it at once: nothing more is walked, and what was saved is
/// given back.
pub struct Snapshot<'k> {
    keyspace: &'k Keyspace,
    /// Partitions that are still to be walked, in turn, and the position of the walk in each.
    partitions: VecDeque<(u16, WalkPlace)>,
    /// Items that the last step left to be emitted without the lock.
    late: Vec<Late>,
    /// Steps in a row that found nothing that was saved.
    steps_without_saved: usize,
}

const ALL_SLOTS: RangeInclusive<u16> = 0..=Slot::COUNT as u16 - 1;

impl Keyspace {
    /// Takes the gate for a moment and begins a snapshot of everything as it is then. `None` if one is under
    /// way.
    pub fn snapshot(&self) -> Option<Snapshot<'_>> {
        Snapshot::begin_in(&mut Held::new(self))
    }

    /// Takes the gate for a moment and begins a snapshot of some slots as they are then. `None` if one is
    /// under way.
    pub fn snapshot_of(&self, slots: RangeInclusive<u16>) -> Option<Snapshot<'_>> {
        Snapshot::begin(&mut Held::new(self), slots)
    }

    /// Returns whether a snapshot is under way: it may refer to values on disk that no entry has any more.
    pub fn is_snapshot_active(&self) -> bool {
        self.shared().snapshot_active.load(Ordering::Acquire)
    }

    /// Returns the number of snapshots that have begun: under any partition's lock none begins.
    pub fn snapshots_begun(&self) -> u64 {
        self.shared().snapshots_begun.load(Ordering::Acquire)
    }

    /// Returns the bytes that are kept for a snapshot because of what was written since its cut, what is left
    /// of one that ended early included. It takes no lock.
    pub fn kept_bytes(&self) -> u64 {
        self.shared().kept.bytes()
    }

    /// Returns the same as far as it is within its limit.
    pub fn kept_bytes_within_limit(&self) -> u64 {
        self.shared().kept.bytes_within_limit()
    }

    /// Sets how many bytes may be kept for the snapshot under way before `is_kept_full`.
    pub fn limit_kept(&self, bytes_max: u64) {
        self.shared().kept.set_limit(bytes_max);
    }

    /// Returns whether so much is kept for the snapshot under way that changes should wait until some of it
    /// has been emitted.
    #[inline]
    pub fn is_kept_full(&self) -> bool {
        self.shared().kept.is_full()
    }

    /// Bytes that the snapshot under way keeps because of what was written since its cut.
    pub fn snapshot_bytes(&self) -> u64 {
        (0..self.partition_count() as u16).map(|partition| self.lock(partition).snapshot_bytes()).sum()
    }
}

/// Unlocks, unless everything is held: then the caller wants no other thread in between.
fn let_others_in(held: &mut Held<'_>) {
    if !held.covers(Want::All) || held.keyspace.partition_count() == 1 {
        held.release();
    }
}

/// Lets objects drop what they kept for snapshots that ended early. Returns whether some partition has no
/// epoch left.
fn forget_snapshots(held: &mut Held<'_>) -> bool {
    let mut is_worn = false;
    for number in 0..held.keyspace.partition_count() as u16 {
        loop {
            held.acquire(Want::One(number));
            let partition = held.numbered(number);
            let more = partition.store.forget_step(FORGOTTEN_PER_HOLD);
            is_worn |= partition.store.snapshot.is_worn();
            if !more {
                break;
            }
            let_others_in(held);
        }
    }
    is_worn
}

impl<'k> Snapshot<'k> {
    /// Begins a snapshot like `Keyspace::snapshot`, for a thread that may hold partitions already. Afterwards
    /// it holds all.
    pub fn begin_in(held: &mut Held<'k>) -> Option<Snapshot<'k>> {
        Snapshot::begin(held, ALL_SLOTS)
    }

    fn begin(held: &mut Held<'k>, slots: RangeInclusive<u16>) -> Option<Snapshot<'k>> {
        let active = &held.keyspace.shared().snapshot_active;
        if active.swap(true, Ordering::AcqRel) {
            return None;
        }
        if forget_snapshots(held) {
            let mut all = Snapshot::cut(held, ALL_SLOTS);
            while all.step_in(held, SILENT_STEP_ITEMS, &mut |_| {}) {
                let_others_in(held);
            }
            std::mem::drop(all);
            if active.swap(true, Ordering::AcqRel) {
                return None;
            }
        }
        Some(Snapshot::cut(held, slots))
    }

    fn cut(held: &mut Held<'k>, slots: RangeInclusive<u16>) -> Snapshot<'k> {
        held.acquire(Want::All);
        held.keyspace.shared().snapshots_begun.fetch_add(1, Ordering::AcqRel);
        let geometry = held.keyspace.geometry;
        let mut partitions: Vec<u16> =
            slots.clone().map(|slot| geometry.partition_of(Slot::new(slot))).collect();
        partitions.sort_unstable();
        partitions.dedup();
        for &number in &partitions {
            held.numbered(number).begin_snapshot((slots != ALL_SLOTS).then(|| slots.clone()));
        }
        let partitions = partitions.into_iter().map(|number| (number, WalkPlace::default())).collect();
        Snapshot { keyspace: held.keyspace, partitions, late: Vec::new(), steps_without_saved: 0 }
    }

    /// Walks on over about `items_max` items under one partition's lock. Returns false when all has been
    /// emitted.
    pub fn step(&mut self, items_max: u64, visit: &mut dyn FnMut(SnapshotItem<'_>)) -> bool {
        let mut held = Held::new(self.keyspace);
        let more = self.walk(&mut held, items_max, visit);
        std::mem::drop(held);
        self.late.drain(..).for_each(|late| late.visit(visit));
        more
    }

    /// Walks on like `step`, for a thread that may hold the partition already.
    pub fn step_in(
        &mut self,
        held: &mut Held<'k>,
        items_max: u64,
        visit: &mut dyn FnMut(SnapshotItem<'_>),
    ) -> bool {
        let more = self.walk(held, items_max, visit);
        self.late.drain(..).for_each(|late| late.visit(visit));
        more
    }

    fn walk(&mut self, held: &mut Held<'k>, items_max: u64, visit: &mut dyn FnMut(SnapshotItem<'_>)) -> bool {
        let Some(&(number, mut place)) = self.partitions.front() else { return false };
        held.acquire(Want::One(number));
        let partition = held.numbered(number);
        let saved_only = self.keyspace.is_kept_full() && self.steps_without_saved < self.partitions.len();
        self.steps_without_saved = match saved_only && !partition.store.snapshot.has_saved() {
            true => self.steps_without_saved + 1,
            false => 0,
        };
        let mut walk = Walk::new(items_max, visit, &mut self.late);
        let is_done = match saved_only {
            true => {
                walk.step_over_saved(partition);
                false
            }
            false => walk.step(partition, &mut place, self.keyspace.config().databases),
        };
        let is_in_collection = partition.store.snapshot.collection.is_some();
        self.partitions.pop_front();
        if is_done {
            self.late.push(Late::Garbage(partition.end_snapshot()));
        } else if is_in_collection {
            self.partitions.push_front((number, place));
        } else {
            self.partitions.push_back((number, place));
        }
        true
    }

    /// Ends it at once, as dropping does.
    pub fn abort(self) {}

    /// Ends the snapshot at once, for a thread that holds partitions: to drop it, the thread would wait for
    /// itself.
    pub fn abort_in(mut self, held: &mut Held<'k>) {
        for (number, _) in std::mem::take(&mut self.partitions) {
            held.acquire(Want::One(number));
            drop(held.numbered(number).abort_snapshot());
        }
    }
}

impl Drop for Snapshot<'_> {
    fn drop(&mut self) {
        for &(number, _) in &self.partitions {
            let mut held = Held::new(self.keyspace);
            held.acquire(Want::One(number));
            let saved = held.numbered(number).abort_snapshot();
            held.release();
            drop(saved);
        }
        self.keyspace.limit_kept(u64::MAX);
        self.keyspace.shared().snapshot_active.store(false, Ordering::Release);
    }
}

impl Partition {
    fn begin_snapshot(&mut self, slots: Option<RangeInclusive<u16>>) {
        self.name_tables_for_snapshot();
        let state = &mut self.store.snapshot;
        assert!(
            !state.active && state.saved.is_empty() && state.bundles.is_empty() && state.keeping.is_empty(),
            "one snapshot at a time"
        );
        state.epoch = state.epoch.wrapping_add(1);
        assert!(state.epoch.wrapping_sub(state.complete) <= EPOCHS_BEHIND_MAX + 1, "no version meets itself");
        (state.active, state.slots) = (true, slots);
        self.store.objects.keep_pending_free();
    }

    /// Ends the snapshot in this partition. The caller drops the returned pile without the lock.
    fn end_snapshot(&mut self) -> Pile<u32> {
        let state = &mut self.store.snapshot;
        debug_assert!(
            state.saved.is_empty()
                && state.bundles.is_empty()
                && state.pending.is_empty()
                && state.collection.is_none()
        );
        debug_assert!(state.fields.is_empty());
        if state.slots.is_none() {
            state.complete = state.epoch;
        }
        state.active = false;
        let keeping = std::mem::take(&mut state.keeping);
        self.flushed.extend(self.flushed_since.drain(..));
        self.store.objects.doom_kept();
        self.store.note_unfreed();
        keeping
    }

    /// Ends the snapshot early in this partition. State that objects keep for it is dropped in steps, by
    /// upkeep or before the next snapshot.
    fn abort_snapshot(&mut self) -> Leftovers {
        let leftovers = self.store.snapshot.abort();
        self.flushed.extend(self.flushed_since.drain(..));
        self.store.objects.doom_kept();
        self.store.note_unfreed();
        leftovers
    }

    /// Returns the bytes that are kept for the snapshot because of what was written since the cut.
    pub fn snapshot_bytes(&self) -> u64 {
        match self.store.snapshot.is_active() {
            true => self.store.snapshot.kept_bytes() + self.store.objects.footprint().kept_bytes,
            false => 0,
        }
    }
}
