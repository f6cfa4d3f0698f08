//! Prefetching: the cache lines that a command will need are asked for while others run.
//!
//! A lookup is four dependent misses: slot record, directory node, page header, entry. A batch of commands goes
//! through the stages together, so that the misses of different commands overlap: at 10 M keys a GET costs 213 ns
//! without, 97 with (research: spike). Everything read here is a hint, read without locks: it decides only which line
//! to ask for, and the lookup is done again under the lock.

use crate::directory::{CHILD_BYTES, digit, levels};
use crate::key::Key;
use crate::lock::Keyspace;
use crate::page::HEADER_BYTES;
use crate::page::words::{equal_bytes, sum_bytes, sum_first};
use crate::record::{RECORD_BYTES, page_index};
use crate::table::{RUN_SLOTS_MAX, tag_of};
use crate::value::Db;
use std::sync::atomic::Ordering::Relaxed;

/// What the stages of one key's prefetch hand on.
#[derive(Clone, Copy, Default, Debug)]
pub struct Prefetch {
    raw: u32,
    offset: u32,
    index: u32,
}

const TYPICAL_ENTRY_BYTES: usize = 33;
/// 17 to 24 entries: 8 + 2 x 24.
const TYPICAL_COLUMNS_END: usize = HEADER_BYTES + 2 * 24;

/// Stages of `Keyspace::prefetch`.
pub const PREFETCH_STAGES: usize = 4;

impl Keyspace {
    /// Stage 0 to 3 for one key, in order.
    #[inline]
    pub fn prefetch(&self, stage: usize, db: Db, key: &Key<'_>, state: &mut Prefetch) {
        let partition = self.geometry.partition_of(key.slot);
        let arena = self.arena_of(partition);
        match stage {
            0 => {
                let run_slots = self.geometry.slots_per_partition().min(RUN_SLOTS_MAX);
                let place = self.geometry.place_of(key.slot);
                let index = self.shared().root(partition, db).load(Relaxed);
                if index == 0 {
                    *state = Prefetch::default();
                    return;
                }
                // A power of two: no command is to wait for a division.
                state.raw = arena.hint_u32(index, (place >> run_slots.trailing_zeros()) * 4);
                state.offset = ((place & (run_slots - 1)) * RECORD_BYTES) as u32;
                arena.prefetch(state.raw, state.offset as usize);
            }
            1 if state.raw != 0 => {
                let root = arena.hint_u32(state.raw, state.offset as usize);
                let pages = arena.hint_u32(state.raw, state.offset as usize + 4);
                state.raw = 0;
                if pages == 0 || root == 0 {
                    return;
                }
                state.index = page_index(key.hash, pages);
                let mut node = root;
                for level in (1..levels(pages).min(4)).rev() {
                    node = arena.hint_u32(node, digit(state.index, level) * CHILD_BYTES);
                }
                state.raw = node;
                // One page has no directory: the root is the page.
                state.offset =
                    if pages == 1 { u32::MAX } else { (digit(state.index, 0) * CHILD_BYTES) as u32 };
                arena.prefetch(node, if pages == 1 { 0 } else { state.offset as usize });
            }
            2 if state.raw != 0 => {
                if state.offset != u32::MAX {
                    state.raw = arena.hint_u32(state.raw, state.offset as usize);
                }
                if state.raw != 0 {
                    arena.prefetch(state.raw, 0);
                    // Header and columns of a page that begins in the first half of a line take no second one.
                    arena.prefetch(state.raw, TYPICAL_COLUMNS_END - 1);
                }
            }
            3 if state.raw != 0 => {
                let offset = hinted_offset(|at| arena.hint_u64(state.raw, at), tag_of(key.hash));
                arena.prefetch(state.raw, offset);
                // An entry of 34 B lies across two lines every second time.
                arena.prefetch(state.raw, offset + TYPICAL_ENTRY_BYTES);
            }
            _ => {}
        }
    }
}

/// Where the first entry with this tag begins, if the page is what it seems to be; without one, where the page ends,
/// which is where a new entry goes.
#[inline]
fn hinted_offset(read: impl Fn(usize) -> u64, tag: u8) -> usize {
    let header = read(0);
    let cap = (header >> 8 & 31) as usize * 8;
    let width = (header >> 13 & 7) as usize;
    for word in 0..cap / 8 {
        let hits = equal_bytes(read(HEADER_BYTES + word * 8), tag);
        if hits != 0 {
            let lens = HEADER_BYTES + cap;
            let whole: usize = (0..word).map(|word| sum_bytes(read(lens + word * 8))).sum();
            let part = sum_first(read(lens + word * 8), (hits.trailing_zeros() / 8) as usize);
            return HEADER_BYTES + (2 + width) * cap + whole + part;
        }
    }
    (header >> 16) as u16 as usize
}
