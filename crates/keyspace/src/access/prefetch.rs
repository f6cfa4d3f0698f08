//! Prefetching: the cache lines that a command will need are asked for while others run.
//!
//! A lookup is four dependent misses: slot record, directory node, page header, entry. A batch of commands
//! goes through the stages together, so that the misses of different commands overlap: at 10 M keys a GET
//! costs 213 ns without, 97 with (research: spike). Everything read here is a hint, read without locks: it
//! decides only which line to ask for, and the lookup is done again under the lock.
//!
//! ```text
//!   stage     asks for                      a command that changes the length of a page asks for more
//!   0         slot record
//!   1         directory entry               that of the page that is split or merged next, if it comes to that now
//!   2         page: header and columns
//!   3         entry                         what of the page will be copied, and those other pages
//! ```

use crate::access::keyspace::Keyspace;
use crate::layout::directory::{CHILD_BYTES, digit, levels};
use crate::layout::key::{Key, tag_of};
use crate::layout::kind::Db;
use crate::layout::page::words::{equal_bytes, first_bytes, pair_sums, sum_lanes};
use crate::layout::page::{self, ENTRIES_MAX, HEADER_BYTES};
use crate::layout::record::{RECORD_BYTES, Record, buddy, page_index};
use crate::tables::table::RUN_SLOTS_MAX;
use crate::values::linear::{is_overfull, is_sparse};
use crate::values::pages::is_worth_tightening;
use isotherm_arena::{Arena, Hint};
use std::sync::atomic::Ordering::Relaxed;

/// Changes that a command may make to its keys, as far as these say which memory it will touch.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct Intent {
    /// May store a key that is not there: its page is copied to a larger place.
    pub adds: bool,
    /// Removes a key or changes its length: the bytes after its entry move.
    pub moves: bool,
}

/// Keys that go through the stages together: 32 x 4 lines, and some whole pages, are what the first level
/// holds.
pub const PREFETCH_KEYS_MAX: usize = 32;

const TYPICAL_ENTRY_BYTES: usize = 33;
/// Bytes that a change adds to a small collection.
const TYPICAL_ELEMENT_BYTES: usize = 16;
/// 17 to 24 entries: 8 + 2 x 24.
const TYPICAL_COLUMNS_END: usize = HEADER_BYTES + 2 * 24;
/// Header, tags and lengths of any page.
const COLUMNS_BYTES_MAX: usize = HEADER_BYTES + 2 * ENTRIES_MAX;
/// Bytes of a page that is not known yet: the mean page.
const TYPICAL_PAGE_BYTES: usize = 640;
/// Bytes of a page that are asked for at most, however long it is.
const PAGE_BYTES_AHEAD_MAX: usize = 1024;

/// Bytes of an object; raw 0: nothing.
#[derive(Clone, Copy, Default, Debug)]
struct Place {
    raw: u32,
    offset: u32,
}

impl Place {
    #[inline]
    fn new(raw: u32, offset: usize) -> Place {
        Place { raw, offset: offset as u32 }
    }
}

/// The offset of a page that has no directory: a slot's only one.
const NO_DIRECTORY: u32 = u32::MAX;

impl Keyspace {
    /// Asks for the memory that commands with these keys will touch.
    #[inline]
    pub fn prefetch(&self, db: Db, keys: &[(&Key<'_>, Intent)]) {
        for some in keys.chunks(PREFETCH_KEYS_MAX) {
            self.prefetch_together(db, some);
        }
    }

    fn prefetch_together(&self, db: Db, keys: &[(&Key<'_>, Intent)]) {
        let mut places = [Place::default(); PREFETCH_KEYS_MAX];
        // Directory entries of the pages that the next split or merge goes through.
        let mut others = [[Place::default(); 2]; PREFETCH_KEYS_MAX];
        let arena_near = |key: &Key<'_>| &**self.arena_of(self.geometry.partition_of(key.slot));
        for ((key, _), place) in keys.iter().zip(&mut places) {
            *place = self.prefetch_record(db, key);
        }
        for (((key, intent), place), others) in keys.iter().zip(&mut places).zip(&mut others) {
            if place.raw != 0 {
                *place = prefetch_directory(arena_near(key), *place, key.hash, *intent, others);
            }
        }
        for ((key, _), place) in keys.iter().zip(&mut places) {
            if place.raw != 0 {
                let arena = arena_near(key);
                place.raw = hinted_page(arena, *place);
                arena.prefetch(place.raw, 0);
                // Header and columns of a page that begins in the first half of a line take no second one.
                arena.prefetch(place.raw, TYPICAL_COLUMNS_END - 1);
            }
        }
        for (((key, intent), place), others) in keys.iter().zip(&places).zip(&others) {
            if place.raw != 0 {
                prefetch_entry(arena_near(key), place.raw, tag_of(key.hash), *intent, others);
            }
        }
    }

    #[inline]
    fn prefetch_record(&self, db: Db, key: &Key<'_>) -> Place {
        let run_slots = self.geometry.slots_per_partition().min(RUN_SLOTS_MAX);
        let place = self.geometry.place_of(key.slot);
        let partition = self.geometry.partition_of(key.slot);
        let index = self.shared().root(partition, db).load(Relaxed);
        if index == 0 {
            return Place::default();
        }
        let arena = self.arena_of(partition);
        // A power of two: no command is to wait for a division.
        let raw = hinted_handle(arena, Place::new(index, (place >> run_slots.trailing_zeros()) * 4));
        let offset = (place & (run_slots - 1)) * RECORD_BYTES;
        arena.prefetch(raw, offset);
        Place::new(raw, offset)
    }
}

/// The handle that stands at a place; 0 is none.
#[inline]
fn hinted_handle(arena: &Arena, at: Place) -> u32 {
    arena.hint::<4>(at.raw, at.offset).map_or(0, |hint| hint.u32(0))
}

/// Asks for the handle of the key's page, and returns its place. If there is a change it also asks for the
/// handles of the pages that it may split or merge.
#[inline]
fn prefetch_directory(arena: &Arena, at: Place, hash: u64, intent: Intent, others: &mut [Place; 2]) -> Place {
    let Some(record) = arena.hint::<RECORD_BYTES>(at.raw, at.offset) else { return Place::default() };
    let (root, pages) = (record.u32(0), record.u32(4));
    if pages == 0 || root == 0 {
        return Place::default();
    }
    // A slot of one page splits just that one.
    if pages == 1 {
        arena.prefetch(root, 0);
        return Place { raw: root, offset: NO_DIRECTORY };
    }
    if intent != Intent::default() {
        prefetch_others(arena, root, pages, record, intent, others);
    }
    prefetch_child(arena, root, pages, page_index(hash, pages))
}

/// Asks for the handles of the pages that this command's change will split or merge, if the slot is that far.
/// Any number may stand in the record; the lower half of its pages' bytes is read, so that sums hold them.
#[inline]
fn prefetch_others(
    arena: &Arena,
    root: u32,
    pages: u32,
    record: Hint<'_, RECORD_BYTES>,
    intent: Intent,
    others: &mut [Place; 2],
) {
    let (keys, page_bytes) = (record.u32(8), u64::from(record.u32(16)));
    let entry_bytes = TYPICAL_ENTRY_BYTES as u64;
    if intent.adds {
        let (keys, page_bytes) = (keys.saturating_add(1), page_bytes + entry_bytes);
        if is_overfull(&Record::of_pages(root, pages, keys, page_bytes)) {
            others[0] = prefetch_child(arena, root, pages, buddy(pages));
        }
    } else {
        let (keys, page_bytes) = (keys.saturating_sub(1), page_bytes.saturating_sub(entry_bytes));
        if is_sparse(&Record::of_pages(root, pages, keys, page_bytes)) {
            *others = [pages - 1, buddy(pages - 1)].map(|index| prefetch_child(arena, root, pages, index));
        }
    }
}

/// Asks for the handle of page `index` of several, and returns its place.
#[inline]
fn prefetch_child(arena: &Arena, root: u32, pages: u32, index: u32) -> Place {
    let mut node = root;
    for level in (1..levels(pages).min(4)).rev() {
        node = hinted_handle(arena, Place::new(node, digit(index, level) * CHILD_BYTES));
    }
    let offset = digit(index, 0) * CHILD_BYTES;
    arena.prefetch(node, offset);
    Place::new(node, offset)
}

#[inline]
fn hinted_page(arena: &Arena, at: Place) -> u32 {
    if at.offset == NO_DIRECTORY { at.raw } else { hinted_handle(arena, at) }
}

/// The entry; and where the command will change the length of the page, all that it copies.
#[inline]
fn prefetch_entry(arena: &Arena, page: u32, tag: u8, intent: Intent, others: &[Place; 2]) {
    let Some(columns) = arena.hint::<COLUMNS_BYTES_MAX>(page, 0) else { return };
    let header = columns.u64(0);
    let used = (header >> 16) as u16 as usize;
    let entry = hinted_entry(header, columns, tag);
    let sweeps = if entry.is_some() { intent.moves } else { intent.adds };
    if sweeps {
        // In place, the bytes after the entry move; to another place, all of the page.
        let size = page::class_size(&header.to_le_bytes());
        let stays = match (entry, intent.adds) {
            (_, false) => !is_worth_tightening(used.saturating_sub(TYPICAL_ENTRY_BYTES), size),
            (Some(_), true) => used + TYPICAL_ELEMENT_BYTES <= size,
            (None, true) => used + TYPICAL_ENTRY_BYTES <= size,
        };
        let from = if stays { entry.unwrap_or(used) } else { TYPICAL_COLUMNS_END };
        arena.prefetch_range(page, from, used.min(PAGE_BYTES_AHEAD_MAX));
        for other in others.iter().filter(|other| other.raw != 0) {
            arena.prefetch_range(hinted_page(arena, *other), 0, TYPICAL_PAGE_BYTES);
        }
    }
    // A new entry goes where the page ends.
    let offset = entry.unwrap_or(used);
    arena.prefetch(page, offset);
    // An entry of 33 B lies across two lines every second time.
    arena.prefetch(page, offset + TYPICAL_ENTRY_BYTES - 1);
}

/// Returns the offset of the first entry with this tag, if the page is what it seems to be.
#[inline]
fn hinted_entry(header: u64, columns: Hint<'_, COLUMNS_BYTES_MAX>, tag: u8) -> Option<usize> {
    let cap = (header >> 8 & 31) as usize * 8;
    let width = (header >> 13 & 3) as usize;
    // The lengths of the entries in front of the word.
    let (mut before, mut at) = (0, HEADER_BYTES);
    while at < HEADER_BYTES + cap {
        let hits = equal_bytes(columns.u64(at), tag);
        let lens = columns.u64(at + cap);
        if hits != 0 {
            let part = first_bytes(lens, (hits.trailing_zeros() / 8) as usize);
            return Some(HEADER_BYTES + (2 + width) * cap + sum_lanes(before + pair_sums(part)));
        }
        before += pair_sums(lens);
        at += 8;
    }
    None
}
