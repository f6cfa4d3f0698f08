//! Prefetching: the cache lines that a command will need are asked for while others run.
//!
//! A lookup is four dependent misses: slot record, directory node, page header, entry. A batch of commands goes
//! through the stages together, so that the misses of different commands overlap: at 10 M keys a GET costs 213 ns
//! without, 97 with (research: spike). Everything read here is a hint, read without locks: it decides only which line
//! to ask for, and the lookup is done again under the lock.
//!
//! ```text
//!   stage     asks for                      a command that changes the length of a page asks for more
//!   0         slot record
//!   1         directory entry               that of the page that is split or merged next, if it comes to that now
//!   2         page: header and columns
//!   3         entry                         what of the page will be copied, and those other pages
//! ```

use crate::access::lock::Keyspace;
use crate::layout::directory::{CHILD_BYTES, digit, levels};
use crate::layout::key::{Key, tag_of};
use crate::layout::kind::Db;
use crate::layout::page::words::{equal_bytes, sum_bytes, sum_first};
use crate::layout::page::{self, HEADER_BYTES};
use crate::layout::record::{RECORD_BYTES, Record, buddy, page_index};
use crate::tables::table::RUN_SLOTS_MAX;
use crate::values::linear::{is_overfull, is_sparse};
use crate::values::pages::is_worth_tightening;
use isotherm_arena::Arena;
use std::sync::atomic::Ordering::Relaxed;

/// What a command may do to its keys, as far as that says which memory it will touch.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct Intent {
    /// May store a key that is not there: its page is copied to a larger place.
    pub adds: bool,
    /// Removes a key or changes its length: what lies behind its entry moves.
    pub moves: bool,
}

/// Keys that go through the stages together: 32 x 4 lines, and some whole pages, are what the first level holds.
pub const PREFETCH_KEYS_MAX: usize = 32;

const LINE_BYTES: usize = 64;
const TYPICAL_ENTRY_BYTES: usize = 33;
/// What a change adds to a small collection.
const TYPICAL_ELEMENT_BYTES: usize = 16;
/// 17 to 24 entries: 8 + 2 x 24.
const TYPICAL_COLUMNS_END: usize = HEADER_BYTES + 2 * 24;
/// Of a page of which nothing is known yet: the mean page.
const TYPICAL_PAGE_BYTES: usize = 640;
/// Of a page, however long it is.
const PAGE_BYTES_AHEAD_MAX: usize = 1024;

/// Bytes of an object; raw 0: nothing.
#[derive(Clone, Copy, Default, Debug)]
struct Place {
    raw: u32,
    offset: u32,
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
        for ((key, _), place) in keys.iter().zip(&mut places) {
            *place = self.prefetch_record(db, key);
        }
        for (((key, intent), place), others) in keys.iter().zip(&mut places).zip(&mut others) {
            if place.raw != 0 {
                let arena = self.arena_near(key);
                let record = *place;
                *place = prefetch_directory(arena, record, key.hash);
                if *intent != Intent::default() && place.raw != 0 {
                    *others = prefetch_others(arena, record, *intent);
                }
            }
        }
        for ((key, _), place) in keys.iter().zip(&mut places) {
            if place.raw != 0 {
                let arena = self.arena_near(key);
                place.raw = hinted_page(arena, *place);
                arena.prefetch(place.raw, 0);
                // Header and columns of a page that begins in the first half of a line take no second one.
                arena.prefetch(place.raw, TYPICAL_COLUMNS_END - 1);
            }
        }
        for (((key, intent), place), others) in keys.iter().zip(&places).zip(&others) {
            if place.raw != 0 {
                prefetch_entry(self.arena_near(key), place.raw, tag_of(key.hash), *intent, others);
            }
        }
    }

    #[inline]
    fn arena_near(&self, key: &Key<'_>) -> &Arena {
        self.arena_of(self.geometry.partition_of(key.slot))
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
        let raw = arena.hint_u32(index, (place >> run_slots.trailing_zeros()) * 4);
        let offset = (place & (run_slots - 1)) * RECORD_BYTES;
        arena.prefetch(raw, offset);
        Place { raw, offset: offset as u32 }
    }
}

/// Where the handle of the key's page stands.
#[inline]
fn prefetch_directory(arena: &Arena, record: Place, hash: u64) -> Place {
    let root = arena.hint_u32(record.raw, record.offset as usize);
    let pages = arena.hint_u32(record.raw, record.offset as usize + 4);
    if pages == 0 || root == 0 {
        return Place::default();
    }
    prefetch_child(arena, root, pages, page_index(hash, pages))
}

/// Where the handles of the pages stand that this command's change will split or merge, if the slot is that far.
#[inline]
fn prefetch_others(arena: &Arena, at: Place, intent: Intent) -> [Place; 2] {
    let record = hinted_record(arena, at);
    let Record { root, pages, keys, .. } = record;
    let mut others = [Place::default(); 2];
    // A slot of one page splits just that one.
    if pages < 2 {
        return others;
    }
    let entry_bytes = TYPICAL_ENTRY_BYTES as u64;
    if intent.adds {
        let (keys, page_bytes) = (keys.saturating_add(1), record.page_bytes() + entry_bytes);
        if is_overfull(&Record::of_pages(root, pages, keys, page_bytes)) {
            others[0] = prefetch_child(arena, root, pages, buddy(pages));
        }
    } else {
        let (keys, page_bytes) = (keys.saturating_sub(1), record.page_bytes().saturating_sub(entry_bytes));
        if is_sparse(&Record::of_pages(root, pages, keys, page_bytes)) {
            others = [pages - 1, buddy(pages - 1)].map(|index| prefetch_child(arena, root, pages, index));
        }
    }
    others
}

/// What growth is decided by. Any number may stand there; of the bytes the lower half is read, so that sums hold them.
#[inline]
fn hinted_record(arena: &Arena, at: Place) -> Record {
    let word = |offset: usize| arena.hint_u32(at.raw, at.offset as usize + offset);
    Record::of_pages(word(0), word(4), word(8), u64::from(word(16)))
}

/// Where the handle of page `index` stands.
#[inline]
fn prefetch_child(arena: &Arena, root: u32, pages: u32, index: u32) -> Place {
    if pages == 1 {
        arena.prefetch(root, 0);
        return Place { raw: root, offset: NO_DIRECTORY };
    }
    let mut node = root;
    for level in (1..levels(pages).min(4)).rev() {
        node = arena.hint_u32(node, digit(index, level) * CHILD_BYTES);
    }
    let offset = digit(index, 0) * CHILD_BYTES;
    arena.prefetch(node, offset);
    Place { raw: node, offset: offset as u32 }
}

#[inline]
fn hinted_page(arena: &Arena, at: Place) -> u32 {
    if at.offset == NO_DIRECTORY { at.raw } else { arena.hint_u32(at.raw, at.offset as usize) }
}

/// The entry; and where the command will change the length of the page, all that it copies.
#[inline]
fn prefetch_entry(arena: &Arena, page: u32, tag: u8, intent: Intent, others: &[Place; 2]) {
    let header = arena.hint_u64(page, 0);
    let used = (header >> 16) as u16 as usize;
    let entry = hinted_entry(header, |at| arena.hint_u64(page, at), tag);
    let sweeps = if entry.is_some() { intent.moves } else { intent.adds };
    if sweeps {
        // In place, what lies behind the entry moves; to another place, all of the page.
        let size = page::class_size(&header.to_le_bytes());
        let stays = match (entry, intent.adds) {
            (_, false) => !is_worth_tightening(used.saturating_sub(TYPICAL_ENTRY_BYTES), size),
            (Some(_), true) => used + TYPICAL_ELEMENT_BYTES <= size,
            (None, true) => used + TYPICAL_ENTRY_BYTES <= size,
        };
        let from = if stays { entry.unwrap_or(used) } else { TYPICAL_COLUMNS_END };
        sweep(arena, page, from, used.min(PAGE_BYTES_AHEAD_MAX));
        for other in others.iter().filter(|other| other.raw != 0) {
            sweep(arena, hinted_page(arena, *other), 0, TYPICAL_PAGE_BYTES);
        }
    }
    // A new entry goes where the page ends.
    let offset = entry.unwrap_or(used);
    arena.prefetch(page, offset);
    // An entry of 33 B lies across two lines every second time.
    arena.prefetch(page, offset + TYPICAL_ENTRY_BYTES - 1);
}

/// Asks for all lines of an object from byte `from` to `to`.
#[inline]
fn sweep(arena: &Arena, raw: u32, from: usize, to: usize) {
    (from..to).step_by(LINE_BYTES).for_each(|at| arena.prefetch(raw, at));
}

/// Where the first entry with this tag begins, if the page is what it seems to be.
#[inline]
fn hinted_entry(header: u64, read: impl Fn(usize) -> u64, tag: u8) -> Option<usize> {
    let cap = (header >> 8 & 31) as usize * 8;
    let width = (header >> 13 & 7) as usize;
    for word in 0..cap / 8 {
        let hits = equal_bytes(read(HEADER_BYTES + word * 8), tag);
        if hits != 0 {
            let lens = HEADER_BYTES + cap;
            let whole: usize = (0..word).map(|word| sum_bytes(read(lens + word * 8))).sum();
            let part = sum_first(read(lens + word * 8), (hits.trailing_zeros() / 8) as usize);
            return Some(HEADER_BYTES + (2 + width) * cap + whole + part);
        }
    }
    None
}
