//! Linear hashing: how the pages under one record grow and shrink by one, whoever owns them, a slot or an object.
//!
//! ```text
//!   split   page `buddy(pages)` -> itself and page `pages`          one entry in two moves, on average
//!   merge   page `pages - 1` into its buddy                         the reverse; nothing else is touched
//! ```
//!
//! The record says all there is to know: its `pages` is the state of the hashing (`record::buddy`). What a page's owner
//! has to do before the page changes (a snapshot may need it as it is) is an argument.

use crate::directory;
use crate::record::{NEVER, Record, buddy, page_index};
use crate::store::Store;
use crate::value::Full;
use isotherm_arena::Handle;
use isotherm_stdx::UnixMs;

/// The mean page: 17 entries of 16 + 16 B. 320 would make inserts 20 % cheaper for 1.3 B a key (research: memory 2.5).
const PAGE_BYTES_TARGET: u64 = 640;
/// Larger entries get larger pages: with fewer than this many, header and rounding weigh too much.
const PAGE_ENTRIES_TARGET: u64 = 8;

/// Whether the pages are so full that one is to be split.
#[inline]
pub(crate) fn is_overfull(record: &Record) -> bool {
    let (pages, keys) = (u64::from(record.pages), u64::from(record.keys));
    record.page_bytes > PAGE_BYTES_TARGET * pages && keys > PAGE_ENTRIES_TARGET * pages
}

/// Whether one page less would do: a fifth below the point where it would be split again, so that it does not go to and
/// fro.
#[inline]
pub(crate) fn is_sparse(record: &Record) -> bool {
    let Some(fewer @ 1..) = u64::from(record.pages).checked_sub(1) else { return false };
    let small = record.page_bytes * 5 < PAGE_BYTES_TARGET * fewer * 4;
    let few = u64::from(record.keys) * 5 < PAGE_ENTRIES_TARGET * fewer * 4;
    small || few
}

/// One page more. After an error everything is as it was.
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
    record.page_bytes = record.page_bytes + used_now as u64 - used;
    Ok(())
}

/// One page less. Without memory for the merged page both stay.
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
        record.page_bytes = record.page_bytes + store.heap.page(merged).used() as u64 - used;
        directory::set_page(&mut store.heap, record, target, Some(merged));
        directory::lower_bound(&mut store.heap, record, target, from_bound);
    }
    directory::pop(&mut store.heap, record);
    Ok(())
}

/// Records what is left of a page that lost entries.
pub(crate) fn settle_removal(
    store: &mut Store,
    record: &mut Record,
    index: u32,
    (page, used): (Handle, u64),
    left: Option<Handle>,
) {
    record.page_bytes -= used - left.map_or(0, |page| store.heap.page(page).used() as u64);
    if left != Some(page) {
        directory::set_page(&mut store.heap, record, index, left);
    }
    if record.keys == 0 {
        debug_assert_eq!(record.page_bytes, 0);
        directory::free(&mut store.heap, record);
        *record = Record::EMPTY;
    }
}
