//! Linear hashing: how the pages under one record grow and shrink by one, owned by a slot or by an object.
//!
//! ```text
//!   split   page `buddy(pages)` -> itself and page `pages`          one entry in two moves, on average
//!   merge   page `pages - 1` into its buddy                         the reverse; nothing else is touched
//!   spread  splits until the entries of a dense page part         keys that come in an order made by their hashes
//! ```
//!
//! Pages are split in turn, not where they are full: with hashes in random order that is enough. Keys that
//! are copied in the order of SCAN (SCAN and COPY to another database, HSCAN and HSET to another hash) share
//! their lowest bits for a long time; the page that they all belong to is split again and again without
//! effect, until it takes no more entry. So a page near its limits is made room for: its entries part at the
//! lowest bit in which their hashes differ, and as many pages are added as that bit needs. Most of them are
//! empty, at 8 B each, and will be filled if the copy continues.
//!
//! The record says all there is to know: its `pages` is the state of the hashing (`record::buddy`). The
//! argument `before_change` is called for a page's owner before the page changes: a snapshot may need it as
//! it is.

use crate::layout::directory;
use crate::layout::entry::EntryBytes;
use crate::layout::kind::Full;
use crate::layout::page::{self, Page, Spot};
use crate::layout::record::{NEVER, Record, buddy, page_index};
use crate::values::store::Store;
use isotherm_arena::Handle;
use isotherm_stdx::{UnixMs, steps};

/// The mean page: 17 entries of 16 + 16 B. 320 would make inserts 20 % cheaper for 1.3 B a key (research:
/// memory 2.5).
const PAGE_BYTES_TARGET: u64 = 640;
/// Larger entries get larger pages: with fewer than this many, header and rounding weigh too much.
const PAGE_ENTRIES_TARGET: u64 = 8;

/// Returns whether the pages are so full that one is to be split.
#[inline]
pub(crate) fn is_overfull(record: &Record) -> bool {
    let (pages, keys) = (u64::from(record.pages), u64::from(record.keys));
    record.page_bytes() > PAGE_BYTES_TARGET * pages && keys > PAGE_ENTRIES_TARGET * pages
}

/// The number of pages that `entries` entries of `entry_bytes` bytes together have when they came one by one;
/// `width`: bytes of an access stamp. Of a page's columns half a word is free on average.
pub(crate) fn pages_for(entries: u64, entry_bytes: u64, width: u64) -> u32 {
    const FREE_ENTRIES: u64 = 4;
    let head = page::HEADER_BYTES as u64 + FREE_ENTRIES * (2 + width);
    let by_bytes = (entry_bytes + entries * (2 + width)).div_ceil(PAGE_BYTES_TARGET - head);
    let pages = by_bytes.min(entries.div_ceil(PAGE_ENTRIES_TARGET)).max(1);
    u32::try_from(pages).unwrap_or(u32::MAX)
}

/// Returns whether one page less would do. The limit is a fifth below the point where that page would be
/// split again, so that pages are not split and merged in turns.
#[inline]
pub(crate) fn is_sparse(record: &Record) -> bool {
    let Some(fewer @ 1..) = u64::from(record.pages).checked_sub(1) else { return false };
    let small = record.page_bytes() * 5 < PAGE_BYTES_TARGET * fewer * 4;
    let few = u64::from(record.keys) * 5 < PAGE_ENTRIES_TARGET * fewer * 4;
    small || few
}

/// Entries from which on a page counts as dense. With the smallest entries a mean page has 128, and one that
/// has yet to be split up to twice as many as one that was.
const DENSE_ENTRIES: usize = 200;
/// Entries from which on a page counts as dense if it has hardly any bytes left. Fewer entries are large
/// ones, which lie outside then.
const DENSE_ENTRIES_OF_FULL: usize = 32;
const DENSE_BYTES: usize = page::PAGE_BYTES_MAX - 512;
const _: () = assert!(DENSE_ENTRIES < page::ENTRIES_MAX);

/// Pages to which `spread` goes where there are not as many keys: 512 KB of directory, 1 ms under the lock.
/// That parts the first keys of a SCAN over 65,536 x 200 = 13 M keys of one slot.
const SPREAD_PAGES_MAX: u32 = 1 << 16;

/// Returns whether a page is so near its limits that it has to lose entries soon.
#[inline]
pub(crate) fn is_dense(page: Page<'_>) -> bool {
    let len = page.len();
    len >= DENSE_ENTRIES || len >= DENSE_ENTRIES_OF_FULL && page.used() > DENSE_BYTES
}

/// Returns the number of pages at which entries of one page with these hashes lie in two. `None` if the bits
/// that choose a page are the same in all.
pub(crate) fn pages_to_part(mut hashes: impl Iterator<Item = u64>) -> Option<u32> {
    let first = hashes.next()? as u32;
    let parts_at = hashes.fold(0, |bits, hash| bits | (hash as u32 ^ first)).trailing_zeros();
    // The new page has the bits that they share, and the one at which they part.
    let bit = 1u32.checked_shl(parts_at)?;
    Some((first & (bit - 1) | bit).saturating_add(1))
}

/// Adds pages until the entries of a page that is dense part. Returns whether any was added.
#[cold]
pub(crate) fn spread(
    store: &mut Store,
    record: &mut Record,
    page: Handle,
    before_change: impl Fn(&mut Store, Handle),
    now: UnixMs,
) -> bool {
    let view = store.heap.page(page);
    let hashes = view.spots().map(|spot| store.hasher.hash(store.key_of(EntryBytes(view.entry(spot)))));
    let Some(wanted) = pages_to_part(hashes) else { return false };
    let pages_max = SPREAD_PAGES_MAX.max(record.keys);
    let pages_before = record.pages;
    while record.pages < wanted && wanted <= pages_max {
        steps::note(1);
        // Without memory for more pages it stays as full as it is.
        if split(store, record, &before_change, now).is_err() {
            break;
        }
    }
    record.pages > pages_before
}

/// Adds a page, which takes entries of its buddy. After an error everything is as it was. A page that is not
/// in memory is not split.
pub(crate) fn split(
    store: &mut Store,
    record: &mut Record,
    before_change: impl Fn(&mut Store, Handle),
    now: UnixMs,
) -> Result<(), Full> {
    let new_index = record.pages;
    let source_index = buddy(new_index);
    let (source, bound) = directory::get(&store.heap, record, source_index);
    let Some(source) = source else {
        return directory::push(&mut store.heap, record, None, NEVER);
    };
    if store.heap.page(source).away().is_some() {
        return Err(Full);
    }
    before_change(store, source);
    let used = store.heap.page(source).used() as u64;
    let halves = store.split_page(source, |hash| page_index(hash, new_index + 1) == new_index, now)?;
    if let Err(full) = directory::push(&mut store.heap, record, halves[1].0, halves[1].1) {
        halves.iter().filter_map(|half| half.0).for_each(|page| store.heap.release(page));
        return Err(full);
    }
    directory::set_page(&mut store.heap, record, source_index, halves[0].0);
    if halves[0].1 != bound {
        directory::set_bound(&mut store.heap, record, source_index, halves[0].1);
    }
    store.heap.release(source);
    let used_now: usize =
        halves.iter().filter_map(|half| half.0).map(|page| store.heap.page(page).used()).sum();
    record.change_page_bytes(used, used_now as u64);
    Ok(())
}

/// Merges the last page into its buddy. Without memory for the merged page, or if one of the two is not in
/// memory, both stay.
pub(crate) fn merge(
    store: &mut Store,
    record: &mut Record,
    before_change: impl Fn(&mut Store, Handle),
    now: UnixMs,
) -> Result<(), Full> {
    let last = record.pages - 1;
    let target = buddy(last);
    let (from, from_bound) = directory::get(&store.heap, record, last);
    let (into, _) = directory::get(&store.heap, record, target);
    if from.into_iter().chain(into).any(|page| store.heap.page(page).away().is_some()) {
        return Err(Full);
    }
    if let Some(from) = from {
        before_change(store, from);
        let mut used = store.heap.page(from).used() as u64;
        let merged = match into {
            None => from,
            Some(into) => {
                before_change(store, into);
                used += store.heap.page(into).used() as u64;
                store.merge_pages(into, from, now)?
            }
        };
        record.change_page_bytes(used, store.heap.page(merged).used() as u64);
        directory::set_page(&mut store.heap, record, target, Some(merged));
        directory::lower_bound(&mut store.heap, record, target, from_bound);
    }
    directory::pop(&mut store.heap, record);
    Ok(())
}

/// Place of an entry among the pages of a record, or the place that it would have.
#[derive(Clone, Copy)]
pub(crate) struct PagePlace {
    pub index: u32,
    pub page: Option<Handle>,
    pub spot: Option<Spot>,
}

/// Writes the bytes of an entry into its page, which may move to another class; where it is then.
/// `first_page` makes the page if there is none yet. After an error the record may have its first page, which
/// is empty; all else is as it was.
#[inline]
pub(crate) fn put(
    store: &mut Store,
    record: &mut Record,
    place: PagePlace,
    (hash, entry): (u64, &[u8]),
    first_page: impl FnOnce(&mut Store) -> Result<(Handle, Spot), Full>,
    before_change: impl FnOnce(&mut Store, Handle),
    now: UnixMs,
) -> Result<(Handle, Spot), Full> {
    if record.pages == 0 {
        directory::push(&mut store.heap, record, None, NEVER)?;
    }
    let Some(page) = place.page else {
        let (page, spot) = first_page(store)?;
        record.change_page_bytes(0, store.heap.page(page).used() as u64);
        directory::set_page(&mut store.heap, record, place.index, Some(page));
        return Ok((page, spot));
    };
    before_change(store, page);
    let used = store.heap.page(page).used() as u64;
    let (moved, spot) = match place.spot {
        Some(spot) => store.replace_entry(page, spot, entry, now)?,
        None => store.append_entry(page, hash, entry, now)?,
    };
    let used_now = store.heap.page(moved).used() as u64;
    if moved != page {
        directory::set_page(&mut store.heap, record, place.index, Some(moved));
    }
    record.change_page_bytes(used, used_now);
    Ok((moved, spot))
}

/// Records what is left of a page that lost entries.
pub(crate) fn settle_removal(
    store: &mut Store,
    record: &mut Record,
    index: u32,
    (page, used): (Handle, u64),
    left: Option<Handle>,
) {
    record.change_page_bytes(used - left.map_or(0, |page| store.heap.page(page).used() as u64), 0);
    if left != Some(page) {
        directory::set_page(&mut store.heap, record, index, left);
    }
    if record.keys == 0 {
        debug_assert_eq!(record.page_bytes(), 0);
        directory::free(&mut store.heap, record);
        *record = Record::EMPTY;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use isotherm_stdx::Prng;

    /// With one page less than it says all hashes have one page, with as many they have two.
    #[test]
    fn entries_part_with_as_many_pages() {
        let mut prng = Prng::new(9);
        for _ in 0..2000 {
            let (shared, bits) = (prng.next_u64(), prng.below(30));
            let count = 2 + prng.below(20);
            let hashes: Vec<u64> =
                (0..count).map(|_| shared & ((1 << bits) - 1) | prng.next_u64() << bits).collect();
            let Some(pages) = pages_to_part(hashes.iter().copied()) else { continue };
            let of = |pages: u32| -> std::collections::BTreeSet<u32> {
                hashes.iter().map(|&hash| page_index(hash, pages)).collect()
            };
            assert_eq!((of(pages - 1).len(), of(pages).len()), (1, 2), "{bits} bits, {pages} pages");
        }
        assert_eq!(pages_to_part([7, 7 | 1 << 40].into_iter()), None);
    }
}
