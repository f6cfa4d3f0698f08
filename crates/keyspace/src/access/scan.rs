//! SCAN and RANDOMKEY: walking and choosing without an order of their own.
//!
//! ```text
//!   cursor, 46 bits:   [position in the slot: 32 bits, reversed binary][spread slot number: 14 bits]
//! ```
//!
//! Every page of a slot covers one interval of the bit-reversed hash order; splits and merges refine and coarsen the
//! intervals but never move a key against that order. The cursor is a point in it: what lies behind it is still to
//! come, so a key that is there throughout is always returned, and twice only if pages merge. (Redis's dictScan,
//! carried to linear hashing: pages that are not split yet are met under the smaller mask.)

use crate::access::lock::Held;
use crate::access::partition::Partition;
use crate::layout::bundle::{self, order_of};
use crate::layout::directory;
use crate::layout::kind::Db;
use crate::layout::record::{Record, advance};
use crate::tables::frozen::{Bundle, BundleAddress};
use crate::tables::geometry::Geometry;
use crate::values::value::Entry;
use isotherm_arena::Handle;
use isotherm_stdx::{Slot, UnixMs};

const SLOT_BITS: u32 = Slot::COUNT.trailing_zeros();
const SLOT_MASK: u64 = Slot::COUNT as u64 - 1;
/// All below are cursors.
pub(crate) const CURSORS: u64 = 1 << (32 + SLOT_BITS);

/// Clients keep cursors in doubles.
const _: () = assert!(32 + SLOT_BITS < 53);

/// One call's work is bounded even if it meets only empty pages.
const PAGES_PER_CALL_MAX: u64 = 4096;

/// The cursor of a place in a slot.
pub(crate) fn cursor_of(slot: Slot, position: u32) -> u64 {
    u64::from(position) << SLOT_BITS | Geometry::spread(slot) as u64
}

/// The place in the slot that a cursor is about.
pub(crate) fn position_in(cursor: u64) -> u32 {
    (cursor >> SLOT_BITS) as u32
}

/// Visits entries from `cursor` on until `count` were seen; the next cursor, 0 at the end.
pub(crate) fn scan(
    held: &mut Held<'_>,
    db: Db,
    cursor: u64,
    count: u64,
    only: Option<Slot>,
    now: UnixMs,
    visit: &mut dyn FnMut(&[u8], &Entry<'_>),
) -> u64 {
    let geometry = held.keyspace.geometry;
    // COMPAT(keys): SCAN with a cursor near 2^64-1 is at its end; Valkey still returns the keys of its last bucket.
    // Why: no call of SCAN returns such a cursor.
    let mut position = (cursor >> SLOT_BITS) as u32;
    let mut spread = (cursor & SLOT_MASK) as usize;
    if let Some(slot) = only {
        let wanted = Geometry::spread(slot);
        if spread != wanted {
            (spread, position) = (wanted, 0);
        }
    }
    let (mut seen, mut pages) = (0, 0);
    while let Some(found) = next_slot(held, db, spread, only.is_some()) {
        if found != spread {
            (spread, position) = (found, 0);
        }
        let partition = held.numbered(geometry.partition_of_spread(spread));
        let place = geometry.place_of_spread(spread);
        let mut is_whole = true;
        loop {
            let table = partition.table(db).expect("the slot has keys");
            let record = table.slot(&partition.store.heap, place).record;
            let (page, next) = advance(position, record.pages.max(1));
            if table.frozen.is_some() {
                let piece = Piece { db, place, from: position.reverse_bits(), page, page_end: next };
                let (met, end) = partition.visit_piece(&record, piece, now, visit);
                (seen, position) = (seen + met.unwrap_or(0), end);
                is_whole &= met.is_some();
            } else {
                seen += visit_page(partition, &record, page, now, visit);
                position = next;
            }
            pages += 1;
            // Where something could not be read all that was found is thrown away.
            if position == 0 || seen >= count || pages >= PAGES_PER_CALL_MAX || !is_whole {
                break;
            }
        }
        if !is_whole {
            held.note_lost_keys(db);
        }
        if position != 0 {
            return u64::from(position) << SLOT_BITS | spread as u64;
        }
        if only.is_some() || spread + 1 == Slot::COUNT {
            return 0;
        }
        spread += 1;
        if seen >= count || pages >= PAGES_PER_CALL_MAX {
            // The cursor names a slot that has keys, so that 0 stays the word for the end.
            return next_slot(held, db, spread, false).map_or(0, |spread| spread as u64);
        }
    }
    0
}

pub(crate) fn visit_page(
    partition: &Partition,
    record: &Record,
    index: u32,
    now: UnixMs,
    visit: &mut dyn FnMut(&[u8], &Entry<'_>),
) -> u64 {
    let (Some(page), _) = directory::get(&partition.store.heap, record, index) else { return 0 };
    partition.visit_page(page, now, visit);
    partition.store.heap.page(page).len() as u64
}

/// A piece of a slot that has frozen keys: from a place in the order of hashes to where its page or a bundle ends.
struct Piece {
    db: Db,
    place: usize,
    from: u32,
    page: u32,
    /// The position behind the page; 0 behind the last.
    page_end: u32,
}

impl Partition {
    /// Visits the keys of a piece, those in its page and those of bundles, whose records are read. How many, if all could be
    /// read, and the position behind it.
    ///
    /// A key that freezes or thaws between two calls stays at its place in the order, so that it is met in any case.
    fn visit_piece(
        &self,
        record: &Record,
        piece: Piece,
        now: UnixMs,
        visit: &mut dyn FnMut(&[u8], &Entry<'_>),
    ) -> (Option<u64>, u32) {
        let frozen = self.table(piece.db).and_then(|table| table.frozen.as_ref()).expect("the slot has some");
        let (around, frozen_end) = frozen.around(piece.place, piece.from);
        let page_end = if piece.page_end == 0 { 1 << 32 } else { u64::from(piece.page_end.reverse_bits()) };
        let end = frozen_end.min(page_end);
        let is_within = |key: &[u8]| {
            let order = u64::from(order_of(self.store.hasher.hash(key)));
            (u64::from(piece.from)..end).contains(&order)
        };
        let (mut met, mut is_whole) = (0, true);
        let mut take = |key: &[u8], entry: &Entry<'_>| {
            if is_within(key) {
                met += 1;
                visit(key, entry);
            }
        };
        if record.pages > 0 {
            visit_page(self, record, piece.page, now, &mut take);
        }
        for address in around {
            let bundle = frozen.get(&address).expect("it was just found");
            is_whole &= self.visit_bundle(&address, bundle, &mut take);
        }
        (is_whole.then_some(met), (end as u32).reverse_bits())
    }

    /// Visits the keys of a bundle. Its record is read under the lock. Whether it could be.
    pub(crate) fn visit_bundle(
        &self,
        address: &BundleAddress,
        bundle: &Bundle,
        visit: &mut dyn FnMut(&[u8], &Entry<'_>),
    ) -> bool {
        let keeper = self.store.cold.keeper.as_ref().expect("what is frozen has a keeper");
        let Some(payload) = keeper.read(bundle.reference, address.name().as_bytes()) else { return false };
        let items = bundle::items(&payload).unwrap_or_default();
        for (_, item) in items.iter().enumerate().filter(|(ordinal, _)| bundle.is_live(*ordinal)) {
            Entry::of_item(&self.store, item, &mut |entry| visit(item.key, entry));
        }
        true
    }
}

/// The first slot with keys from `spread` on, in the order of SCAN; only that very slot if `exact`.
fn next_slot(held: &mut Held<'_>, db: Db, spread: usize, exact: bool) -> Option<usize> {
    let geometry = held.keyspace.geometry;
    let first = geometry.partition_of_spread(spread);
    let last = if exact { first } else { held.keyspace.partition_count() as u16 - 1 };
    let mut place = geometry.place_of_spread(spread);
    for number in first..=last {
        let partition = held.numbered(number);
        if let Some(table) = partition.table(db)
            && let Some(found) = table.next_slot(&partition.store.heap, place)
        {
            let found = geometry.spread_of(number, found);
            return (!exact || found == spread).then_some(found);
        }
        place = 0;
    }
    None
}

/// A slot of a table, with a chance in proportion to its keys (or volatile keys); `at` is below their number.
pub(crate) fn weighted_slot(partition: &Partition, db: Db, mut at: u64, volatile: bool) -> usize {
    let table = partition.table(db).expect("it has keys");
    let weight = |keys: u32, volatile_keys: u32| u64::from(if volatile { volatile_keys } else { keys });
    for (run, sum) in table.sums.iter().enumerate() {
        let run_weight = weight(sum.keys, sum.volatile);
        if at >= run_weight {
            at -= run_weight;
            continue;
        }
        for place in run * table.run_slots()..(run + 1) * table.run_slots() {
            let record = table.slot(&partition.store.heap, place).record;
            let slot_weight = weight(record.keys, record.volatile);
            if at < slot_weight {
                return place;
            }
            at -= slot_weight;
        }
    }
    unreachable!("the sums are those of the records")
}

/// Pages without entries that are drawn before the next one that has entries is taken: of pages with 8 entries one draw in 32
/// meets one, so that so many of these mean a slot of which nearly all is empty.
const DRAWS_MAX: u32 = 1000;

/// A random entry of a slot, every one equally likely: a random page, kept in proportion to its entries.
pub(crate) fn random_entry(
    partition: &Partition,
    record: &Record,
    random: &mut dyn FnMut(u64) -> u64,
) -> (Handle, usize) {
    let heap = &partition.store.heap;
    for _ in 0..DRAWS_MAX {
        let index = random(u64::from(record.pages)) as u32;
        let (Some(page), _) = directory::get(heap, record, index) else { continue };
        let at = random(crate::layout::page::ENTRIES_MAX as u64) as usize;
        if at < heap.page(page).len() {
            return (page, at);
        }
    }
    let from = random(u64::from(record.pages)) as u32;
    let indexes = (from..record.pages).chain(0..from);
    let page = indexes.filter_map(|index| directory::get(heap, record, index).0).next();
    let page = page.expect("the slot has entries");
    (page, random(heap.page(page).len() as u64) as usize)
}
