//! Keys that may leave memory as bundles: small keys that were not used for a while, those of one part of a
//! slot together.
//!
//! ```text
//!   a slot of up to 63 pages    one step, all of its pages
//!   a larger one                a step for each 2^k-th part of its hashes, which are in 32 to 63 pages
//!   what a step has found       in the order of hashes, cut in halves until a half fits a record
//! ```
//! A key that expires soon stays: it would be read again to be removed.

use crate::access::lock::Held;
use crate::layout::bundle::{
    self, BUNDLE_BYTES_MAX, BUNDLE_KEYS_MAX, BundleName, FORM_OF_BUNDLES, Interval, Item, order_of,
};
use crate::layout::directory;
use crate::layout::entry::{EntryBytes, Place};
use crate::layout::kind::Db;
use crate::layout::last_used::{self, AccessMode};
use crate::upkeep::slot_hand::SlotHand;
use crate::values::store::Store;
use isotherm_arena::Handle;
use isotherm_stdx::{Slot, Steps, UnixMs, steps};

/// A part of a slot has fewer than twice as many pages: some 1,000 keys.
const PAGES_PER_PART: u32 = 32;
/// Looks at databases in one step.
const LOOKS_MAX: u64 = 200;

/// Limits of the keys that may freeze.
#[derive(Clone, Copy, Debug)]
pub struct FreezeLimits {
    /// A larger value leaves alone.
    pub value_bytes_max: usize,
    pub idle_seconds_min: u32,
    /// Fewer keys of one part stay.
    pub keys_min: usize,
    /// Keys that expire before stay.
    pub expiry_min: UnixMs,
}

impl FreezeLimits {
    pub(crate) fn permit(&self, expiry: Option<UnixMs>) -> bool {
        expiry.is_none_or(|at| at >= self.expiry_min)
    }
}

/// Keys that may leave memory as one record.
#[derive(Clone, Copy, Debug)]
pub struct Freezable<'a> {
    pub db: Db,
    pub slot: Slot,
    pub name: BundleName,
    pub payload: &'a [u8],
    pub keys: usize,
}

impl Freezable<'_> {
    /// Number that the record of a bundle has as its form.
    pub const FORM_NUMBER: u8 = FORM_OF_BUNDLES;
}

struct Candidate<'a> {
    order: u32,
    item: Item<'a>,
}

impl SlotHand {
    /// Shows what may freeze of a part of the slot, and moves on.
    pub fn show_freezable(
        &mut self,
        held: &mut Held<'_>,
        limits: FreezeLimits,
        now: UnixMs,
        visit: &mut dyn FnMut(Freezable<'_>),
    ) {
        let slot = self.slot();
        let place = held.keyspace.geometry.place_of(slot);
        let partition = held.partition(slot);
        // However many databases there may be, those without keys are none of the steps.
        let mut looks = Steps::new(LOOKS_MAX);
        let Some(db) = partition.next_used_at(self.db, place, &mut looks) else { return self.pass_slot() };
        self.enter_database(db);
        let table = partition.table(db).filter(|table| table.keys > 0);
        let record = table.map(|table| table.slot(&partition.store.heap, place).record);
        let Some(record) = record.filter(|record| record.pages > 0) else {
            self.pass_database();
            return;
        };
        let level = (record.pages / PAGES_PER_PART).max(1).ilog2();
        if self.step >= 1 << level {
            self.pass_database();
            return;
        }
        let indexes = (self.step..record.pages).step_by(1 << level);
        let pages = indexes.filter_map(|index| directory::get(&partition.store.heap, &record, index).0);
        let mut found = Vec::new();
        for page in pages {
            gather_page(&partition.store, page, limits, now, &mut found);
        }
        // The part's pages are those of the hashes that end with its number.
        let part = Interval { start: self.step.reverse_bits(), level: level as u8 };
        found.sort_unstable_by_key(|candidate| candidate.order);
        let mut payload = Vec::new();
        cut(&found, part, limits.keys_min, &mut |part, candidates| {
            bundle::write(candidates.iter().map(|candidate| candidate.item), &mut payload);
            let keys = candidates.len();
            visit(Freezable { db, slot, name: part.name(), payload: &payload, keys });
        });
        self.step += 1;
    }
}

/// Cuts candidates, in order, until each piece fits a record and is of one part.
fn cut<'a>(
    candidates: &[Candidate<'a>],
    part: Interval,
    keys_min: usize,
    take: &mut dyn FnMut(Interval, &[Candidate<'a>]),
) {
    if candidates.len() < keys_min.max(1) {
        return;
    }
    let bytes: usize = candidates.iter().map(|candidate| candidate.item.bytes()).sum();
    if bytes <= BUNDLE_BYTES_MAX && candidates.len() <= BUNDLE_KEYS_MAX {
        return take(part, candidates);
    }
    let (first, second) = if part.level == Interval::LEVEL_MAX {
        // Their hashes are equal in all bits that count: any cut will do.
        (part, part)
    } else {
        let level = part.level + 1;
        let half = 1 << (Interval::LEVEL_MAX - level);
        (Interval { start: part.start, level }, Interval { start: part.start | half, level })
    };
    let at = match first == second {
        true if candidates.len() == 1 => return take(part, candidates),
        true => candidates.len() / 2,
        false => candidates.partition_point(|candidate| candidate.order < second.start),
    };
    cut(&candidates[..at], first, keys_min, take);
    cut(&candidates[at..], second, keys_min, take);
}

fn gather_page<'a>(
    store: &'a Store,
    page: Handle,
    limits: FreezeLimits,
    now: UnixMs,
    found: &mut Vec<Candidate<'a>>,
) {
    if store.awaits_snapshot(page) {
        return;
    }
    let view = store.heap.page(page);
    for spot in view.spots() {
        steps::note(1);
        let entry = EntryBytes(view.entry(spot));
        let is_small = matches!(entry.place(), Place::Inline | Place::Blob);
        let expiry = entry.expiry();
        let Some(key) = entry.inline_key().filter(|_| is_small && limits.permit(expiry)) else {
            continue;
        };
        let value = store.value_bytes_of(entry);
        let own = view.access(spot.index, AccessMode::Lru.width());
        let idle_seconds = u32::from(last_used::idle_seconds(own.unwrap_or(view.stamp()), now));
        if value.len() <= limits.value_bytes_max && idle_seconds >= limits.idle_seconds_min {
            let order = order_of(store.hasher.hash(key));
            found.push(Candidate { order, item: Item { form: entry.form(), expiry, key, value } });
        }
    }
}
