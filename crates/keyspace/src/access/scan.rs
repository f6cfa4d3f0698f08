//! SCAN and RANDOMKEY: walking and choosing without an order of their own.
//!
//! ```text
//!   cursor, 46 bits:   [position in the slot: 32 bits, reversed binary][spread slot number: 14 bits]
//! ```
//!
//! Every page of a slot covers one interval of the bit-reversed hash order; splits and merges refine and
//! coarsen the intervals but never move a key against that order. The cursor is a point in it: keys after it
//! are still to come, so a key that is there throughout is always returned, and twice only if pages merge.
//! (Redis's dictScan, carried to linear hashing: pages that are not split yet are met under the smaller
//! mask.)
//!
//! Keys that lie outside memory are at their places in that order too: a piece of a slot is what one page and
//! the bundles around it have in common. A walk of a client reads none of their records by itself (`walk`).

use crate::access::lock::Held;
use crate::access::partition::Partition;
use crate::access::walk::{Walk, WalkRecord};
use crate::layout::bundle::order_of;
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

/// Pages that one call visits at most: its work is bounded even if it meets only empty pages.
const PAGES_PER_CALL_MAX: u64 = 4096;

/// The cursor of a place in a slot.
pub(crate) fn cursor_of(slot: Slot, position: u32) -> u64 {
    u64::from(position) << SLOT_BITS | Geometry::spread(slot) as u64
}

/// The place in the slot that a cursor is about.
pub(crate) fn position_in(cursor: u64) -> u32 {
    (cursor >> SLOT_BITS) as u32
}

/// Sources of the records of frozen keys.
pub(crate) enum Source<'w> {
    /// The disk, which is waited for under the lock.
    Disk,
    /// Records that were read for the walk: it names what it lacks, and runs again.
    Walk(&'w mut Walk),
}

/// Terms of a scan.
#[derive(Clone, Copy)]
pub(crate) struct Scanned {
    pub db: Db,
    pub only: Option<Slot>,
    pub now: UnixMs,
    /// A key is met once even if its page is merged between two calls.
    pub is_exact: bool,
}

/// Visits entries from `cursor` on until `count` were seen; the next cursor, 0 at the end. If the walk lacks
/// records afterwards, all that was found is thrown away.
pub(crate) fn scan(
    held: &mut Held<'_>,
    scanned: Scanned,
    cursor: u64,
    count: u64,
    source: &mut Source<'_>,
    visit: &mut dyn FnMut(&[u8], &Entry<'_>),
) -> u64 {
    let Scanned { db, only, now, is_exact } = scanned;
    let geometry = held.keyspace.geometry;
    // COMPAT(keys): SCAN with a cursor near 2^64-1 is at its end; Valkey still returns the keys of its last
    // bucket. Why: no call of SCAN returns such a cursor.
    let mut position = (cursor >> SLOT_BITS) as u32;
    let mut spread = (cursor & SLOT_MASK) as usize;
    if let Some(slot) = only {
        let wanted = Geometry::spread(slot);
        if spread != wanted {
            (spread, position) = (wanted, 0);
        }
    }
    let (mut seen, mut pages) = (0, 0);
    // Records that were read are shown before more are read, or the next run would need them again.
    let (mut may_end, mut is_naming) = (false, false);
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
            if table.frozen.is_some() || is_exact {
                let from = position.reverse_bits();
                let piece = Piece { db, place, from, page, page_end: next, may_end, is_naming };
                let met = piece.visit(partition, &record, now, source, visit);
                match source {
                    Source::Disk => is_whole &= !met.is_missing,
                    // Something lies before it, so the cursor is not 0.
                    Source::Walk(_) if met.is_missing && may_end => {
                        return u64::from(position) << SLOT_BITS | spread as u64;
                    }
                    Source::Walk(_) => is_naming |= met.is_missing,
                }
                may_end |= met.has_read && !is_naming;
                (seen, position) = (seen + met.keys, met.end);
            } else {
                seen += visit_page(partition, &record, page, now, visit);
                position = next;
            }
            pages += 1;
            // Where something could not be read all that was found is thrown away.
            let is_over = seen >= count || pages >= PAGES_PER_CALL_MAX || source.is_full();
            if position == 0 || is_over || !is_whole {
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
        if seen >= count || pages >= PAGES_PER_CALL_MAX || source.is_full() {
            // The cursor names a slot that has keys, so that 0 stays the word for the end.
            return next_slot(held, db, spread, false).map_or(0, |spread| spread as u64);
        }
    }
    0
}

impl Source<'_> {
    /// Returns whether the walk lacks records.
    pub fn is_wanting(&self) -> bool {
        match self {
            Source::Disk => false,
            Source::Walk(walk) => walk.is_wanting(),
        }
    }

    /// Returns whether a key of another record will do as well, of one that was read.
    pub fn has_others(&mut self) -> bool {
        match self {
            Source::Disk => false,
            Source::Walk(walk) => walk.has_others(),
        }
    }

    /// Visits the keys of a bundle, with their hashes. Returns whether its record could be read.
    fn visit_bundle(
        &mut self,
        partition: &Partition,
        db: Db,
        (address, bundle): (&BundleAddress, &Bundle),
        visit: &mut dyn FnMut(u64, &[u8], &Entry<'_>),
    ) -> bool {
        let walk = match self {
            Source::Disk => return bundle.visit(&partition.store, address, visit),
            Source::Walk(walk) => walk,
        };
        match walk.get(bundle.reference) {
            Some(WalkRecord::Lost) => return true,
            Some(WalkRecord::Payload(payload)) if bundle.visit_items(&partition.store, payload, visit) => {
                return true;
            }
            // Another one was written to its place since it was read.
            Some(WalkRecord::Payload(_)) => _ = walk.take(bundle.reference),
            None => {}
        }
        walk.want(partition.bundle_of(db, address, bundle.reference));
        false
    }

    /// Returns whether as much was named as is read at a time.
    fn is_full(&self) -> bool {
        match self {
            Source::Disk => false,
            Source::Walk(walk) => walk.is_full(),
        }
    }
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

/// A piece of a slot that has frozen keys: from a place in the order of hashes to where its page or a bundle
/// ends.
struct Piece {
    db: Db,
    place: usize,
    from: u32,
    page: u32,
    /// The position after the page; 0 after the last.
    page_end: u32,
    /// Records that the walk lacks are not named: it ends before this.
    may_end: bool,
    /// The walk lacks records already: it names others that it will need, and shows nothing.
    is_naming: bool,
}

/// Finds of a piece.
struct Met {
    /// Keys that were visited; of records that are to be read all that they have.
    keys: u64,
    /// The position after it.
    end: u32,
    /// A record is missing.
    is_missing: bool,
    /// A record that was read for the walk was used.
    has_read: bool,
}

impl Piece {
    /// Visits the keys of a piece, those in its page and those of bundles.
    ///
    /// A key that freezes or thaws between two calls stays at its place in the order, so that it is met in
    /// any case.
    fn visit(
        self,
        partition: &Partition,
        record: &Record,
        now: UnixMs,
        source: &mut Source<'_>,
        visit: &mut dyn FnMut(&[u8], &Entry<'_>),
    ) -> Met {
        let Piece { db, place, from, page, page_end, may_end, is_naming } = self;
        let frozen = partition.table(db).and_then(|table| table.frozen.as_ref());
        let (around, frozen_end) = frozen.map_or((Vec::new(), 1 << 32), |frozen| frozen.around(place, from));
        let page_end = if page_end == 0 { 1 << 32 } else { u64::from(page_end.reverse_bits()) };
        let end = frozen_end.min(page_end);
        let within = u64::from(from)..end;
        let mut met = Met { keys: 0, end: (end as u32).reverse_bits(), is_missing: false, has_read: false };
        let bundles = around.iter().filter_map(|address| Some((address, frozen?.get(address)?)));
        if let Source::Walk(walk) = source {
            for (address, bundle) in bundles.clone() {
                if walk.get(bundle.reference).is_some() {
                    continue;
                }
                met.is_missing = true;
                if may_end {
                    return met;
                }
                let is_new = walk.want(partition.bundle_of(db, address, bundle.reference));
                met.keys += if is_new { bundle.live() } else { 0 };
            }
            if is_naming || met.is_missing {
                return met;
            }
        }
        let (mut keys, mut is_missing) = (0, false);
        let mut take = |hash: u64, key: &[u8], entry: &Entry<'_>| {
            if within.contains(&u64::from(order_of(hash))) {
                keys += 1;
                visit(key, entry);
            }
        };
        if record.pages > 0 {
            let hasher = partition.store.hasher;
            visit_page(partition, record, page, now, &mut |key, entry| take(hasher.hash(key), key, entry));
        }
        for (address, bundle) in bundles {
            met.has_read |= matches!(source, Source::Walk(_));
            is_missing |= !source.visit_bundle(partition, db, (address, bundle), &mut take);
        }
        Met { keys, is_missing, ..met }
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

/// Pages without entries that are drawn before the next one that has entries is taken: of pages with 8
/// entries one draw in 32 meets one, so 1000 of these mean a slot that is nearly empty.
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

/// A frozen key, each with about the same chance, and when it expires: of a random bundle. None if its record
/// cannot be had.
pub(crate) fn random_frozen(
    partition: &Partition,
    db: Db,
    source: &mut Source<'_>,
    random: &mut dyn FnMut(u64) -> u64,
) -> Option<(Vec<u8>, Option<UnixMs>)> {
    let frozen = partition.table(db)?.frozen.as_ref()?;
    let (address, bundle) = frozen.nth(random(frozen.bundle_count()))?;
    let mut at = random(bundle.live());
    let mut found = None;
    source.visit_bundle(partition, db, (&address, bundle), &mut |_, key, entry| {
        if at == 0 && found.is_none() {
            found = Some((key.to_vec(), entry.expiry));
        }
        at = at.wrapping_sub(1);
    });
    found
}
