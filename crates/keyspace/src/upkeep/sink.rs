//! The hand that goes round the slots and shows values that may leave memory.
//!
//! The hand only shows values. The caller decides whether one leaves, by its length and by how long it was
//! not used. The values of one step come in the order of slots, so that values written together belong to
//! slots that follow each other.
//!
//! Not shown: integers, hashes with a field that is about to be due, large collections that cannot leave as a
//! whole (`values::image`), keys that do not lie in their page, values outside of `SinkLimits`, and pages
//! that a snapshot under way has yet to see: those it would have to save, and could no longer read in memory.

use crate::access::lock::Held;
use crate::access::nodes::HeldNode;
use crate::layout::entry::{EntryBytes, Place};
use crate::layout::key::Key;
use crate::layout::kind::{Db, Form};
use crate::layout::last_used::{self, AccessMode};
use crate::layout::page::Spot;
use crate::upkeep::freeze::FreezeLimits;
use crate::upkeep::sink_nodes::ByNodes;
use crate::upkeep::slot_hand::SlotHand;
use crate::values::image::{self, ImageRoom};
use crate::values::object::Root;
use crate::values::store::Store;
use isotherm_arena::Handle;
use isotherm_stdx::{Slot, Steps, UnixMs};

/// A hash stays if one of its fields comes due within this time,
const STAYS_BEFORE_MS: i64 = 1000;
/// and has not been due for longer than this: on a replica it is not taken out by time.
const STAYS_BEHIND_MS: i64 = 600_000;

/// A value in memory that could leave it.
#[derive(Clone, Copy)]
pub struct Sinkable<'a> {
    pub db: Db,
    pub slot: Slot,
    pub key: &'a [u8],
    pub expiry: Option<UnixMs>,
    /// Bytes that the value takes in memory, about.
    pub bytes: usize,
    /// Seconds since the last use: exact under an LRU policy, else a lower bound that the page shares.
    pub idle_seconds: u32,
    /// The logarithmic counter of uses, under an LFU policy.
    pub frequency: Option<u8>,
    source: Source<'a>,
}

#[derive(Clone, Copy)]
enum Source<'a> {
    Bytes(Form, &'a [u8]),
    Object(&'a Root, &'a Store),
}

/// Bytes of a value to be written, and their form.
#[derive(Clone, Copy, Debug)]
pub struct Payload<'a> {
    /// Number of the form, by which the bytes are read. It is to be remembered with them.
    pub form_number: u8,
    pub bytes: &'a [u8],
}

/// Buffers in which the payloads of large collections are made.
#[derive(Default)]
pub struct SinkRoom(ImageRoom);

impl<'a> Sinkable<'a> {
    /// Returns whether the key could leave with its value instead (`SlotHand::show_freezable`).
    pub fn may_freeze(&self, limits: FreezeLimits) -> bool {
        let is_small =
            matches!(self.source, Source::Bytes(_, bytes) if bytes.len() <= limits.value_bytes_max);
        is_small && limits.permit(self.expiry)
    }

    /// Returns the number of elements that have to be gathered for a large collection; 0 for other values.
    pub fn gathered_elements(&self) -> u64 {
        match self.source {
            Source::Bytes(..) => 0,
            Source::Object(root, _) => image::element_count(root),
        }
    }

    pub fn payload<'r>(&self, room: &'r mut SinkRoom) -> Payload<'r>
    where
        'a: 'r,
    {
        match self.source {
            Source::Bytes(form, bytes) => Payload { form_number: form as u8, bytes },
            Source::Object(root, store) => {
                let form = image::write(root, store, &mut room.0);
                Payload { form_number: form as u8, bytes: &room.0.bytes }
            }
        }
    }
}

/// Limits of the values that are shown, by their memory: a smaller one gains nothing, and the length of a
/// larger one has no room in a reference.
#[derive(Clone, Copy, Debug)]
pub struct SinkLimits {
    pub value_bytes_min: usize,
    pub value_bytes_max: usize,
    /// Collections that go by nodes are not shown.
    pub by_nodes: ByNodes,
}

/// Limits of the copies that stay, and of those that go in one hold.
#[derive(Clone, Copy, Debug)]
pub struct DropLimits {
    /// Lent values beyond these bytes go, and nodes if that is 0.
    pub lent_bytes_max: usize,
    pub count_max: usize,
    /// Time for which a node stays that came back for a command.
    pub given_ms: i64,
}

/// Copies that have left memory.
#[derive(Clone, Copy, Default, PartialEq, Eq, Debug)]
pub struct DroppedCopies {
    pub lent: usize,
    pub clean: usize,
}

impl DropLimits {
    /// Drops some copies of a partition that is held.
    pub fn drop_copies(self, held: &mut Held<'_>, number: u16, now: UnixMs) -> DroppedCopies {
        let DropLimits { lent_bytes_max, count_max, given_ms } = self;
        let partition = held.numbered(number);
        let cold = &mut partition.store.cold;
        let lent = (0..count_max).take_while(|_| cold.take_oldest(lent_bytes_max, now).is_some()).count();
        if lent_bytes_max > 0 || !cold.has_clean() {
            return DroppedCopies { lent, clean: 0 };
        }
        let names = cold.some_clean(count_max, given_ms, now).into_iter();
        let clean = names.filter(|name| HeldNode::new(partition, *name).chill_clean(now)).count();
        DroppedCopies { lent, clean }
    }
}

impl SlotHand {
    /// Shows what may leave of the hand's slot, until about `looks_max` pages and entries were looked at or
    /// the slot is over.
    pub fn show_sinkable(
        &mut self,
        held: &mut Held<'_>,
        limits: SinkLimits,
        looks_max: u64,
        now: UnixMs,
        visit: &mut dyn FnMut(Sinkable<'_>),
    ) {
        let slot = self.slot();
        self.walk_pages(held, Steps::new(looks_max), &mut |store, db, page, steps| {
            if store.awaits_snapshot(page) {
                return;
            }
            for spot in store.heap.page(page).spots() {
                steps.look(1);
                if let Some(value) = Sinkable::at(store, (db, slot, page), spot, limits, now) {
                    visit(value);
                }
            }
        });
    }
}

fn is_due_soon(root: &Root, now: UnixMs) -> bool {
    root.has_fields_due(UnixMs(now.0 - STAYS_BEHIND_MS), UnixMs(now.0 + STAYS_BEFORE_MS))
}

impl<'a> Sinkable<'a> {
    /// Returns the value of a key, if it is in memory and may leave it. Its partition is held.
    pub fn of(
        held: &'a mut Held<'_>,
        db: Db,
        key: &Key<'_>,
        limits: SinkLimits,
        now: UnixMs,
    ) -> Option<Sinkable<'a>> {
        let partition = held.partition(key.slot);
        let store = &partition.store;
        let (page, spot) = partition.find(db, key).filter(|(page, _)| !store.awaits_snapshot(*page))?;
        Sinkable::at(store, (db, key.slot, page), spot, limits, now)
    }

    fn at(
        store: &'a Store,
        (db, slot, page): (Db, Slot, Handle),
        spot: Spot,
        limits: SinkLimits,
        now: UnixMs,
    ) -> Option<Sinkable<'a>> {
        let view = store.heap.page(page);
        let entry = EntryBytes(view.entry(spot));
        let (key, source) = entry.inline_key().zip(Source::of(store, entry, limits.by_nodes))?;
        let bytes = match source {
            Source::Bytes(_, bytes) => bytes.len(),
            // The active cycle would ask for it at once.
            Source::Object(root, _) if is_due_soon(root, now) => return None,
            Source::Object(root, _) => root.memory_bytes() as usize,
        };
        if !(limits.value_bytes_min..=limits.value_bytes_max).contains(&bytes) {
            return None;
        }
        let own = view.access(spot.index, AccessMode::Lru.width());
        let idle_seconds = u32::from(last_used::idle_seconds(own.unwrap_or(view.stamp()), now));
        let frequency = view.access(spot.index, AccessMode::Lfu.width()).map(|counter| counter as u8);
        let expiry = entry.expiry();
        Some(Sinkable { db, slot, key, expiry, bytes, idle_seconds, frequency, source })
    }
}

impl<'a> Source<'a> {
    /// Returns the source from which an entry's value could be written, if it could.
    fn of(store: &'a Store, entry: EntryBytes<'a>, by_nodes: ByNodes) -> Option<Source<'a>> {
        match entry.place() {
            _ if entry.form() == Form::Int => None,
            Place::Cold => None,
            Place::Object => {
                let number = entry.parts().object()?;
                let root = store.objects.get(number);
                let is_whole = image::has_image(root) && !by_nodes.are(root, number);
                is_whole.then_some(Source::Object(root, store))
            }
            Place::Inline | Place::Blob | Place::Large => {
                Some(Source::Bytes(entry.form(), store.value_bytes_of(entry)))
            }
        }
    }
}
