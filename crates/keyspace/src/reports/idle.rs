//! Histogram of the times since keys were last used, for some of them, read from the stamps of their pages.
//!
//! Slots are looked at from a random place on, until enough pages were seen: a few thousand keys show the
//! shape, and the time that it takes does not grow with the data. Under an LRU policy a key has its own
//! stamp, else its page's, a lower bound. Stamps reach back some nine hours.

use crate::access::partition::Partition;
use crate::accounting::sizes::SIZE_BINS;
use crate::layout::directory;
use crate::layout::kind::Db;
use crate::layout::last_used::{self, AccessMode};
use crate::layout::page::Page;
use crate::reports::survey::ITEMS_PER_HOLD_MAX;
use isotherm_stdx::steps::Steps;
use isotherm_stdx::{Slot, UnixMs};

/// Pages of a database that are looked at: some 17 keys each.
const PAGES_MAX: usize = 512;

/// Numbers of keys that were looked at and were idle for 0 s, 1 s, 2 to 3 s, 4 to 7 s, ...
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct IdleTimes {
    pub keys: u64,
    pub bins: [u64; SIZE_BINS],
    /// Pages that were looked at.
    pages: usize,
    /// Page at which the current slot continues.
    next_page: u32,
}

impl IdleTimes {
    pub(crate) fn none() -> IdleTimes {
        IdleTimes { keys: 0, bins: [0; SIZE_BINS], pages: 0, next_page: 0 }
    }

    /// Returns whether enough was looked at.
    pub(crate) fn is_enough(&self) -> bool {
        self.pages >= PAGES_MAX
    }

    /// Adds the keys of a slot, whose partition is held, as many as one hold may look at. Returns true when
    /// the slot is done; a slot of a single tag may hold all there is. Pages that are split or merged between
    /// two holds may be seen twice or not at all.
    pub(crate) fn add_slot(&mut self, partition: &Partition, db: Db, slot: Slot, now: UnixMs) -> bool {
        let mut steps = Steps::new(ITEMS_PER_HOLD_MAX as u64);
        steps.look(1);
        let from = std::mem::take(&mut self.next_page);
        let Some(table) = partition.table(db) else { return true };
        let heap = &partition.store.heap;
        let record = table.slot(heap, partition.geometry.place_of(slot)).record;
        for index in from..record.pages {
            if self.is_enough() {
                return true;
            }
            if steps.is_spent() {
                self.next_page = index;
                return false;
            }
            self.pages += 1;
            let Some(page) = directory::get(heap, &record, index).0 else { continue };
            let page = heap.page(page);
            steps.look(1 + page.len() as u64);
            self.add_page(page, now);
        }
        true
    }

    fn add_page(&mut self, page: Page<'_>, now: UnixMs) {
        for index in 0..page.len() {
            let own = page.access(index, AccessMode::Lru.width());
            let seconds = last_used::idle_seconds(own.unwrap_or(page.stamp()), now);
            self.bins[(u16::BITS - seconds.leading_zeros()) as usize] += 1;
        }
        self.keys += page.len() as u64;
    }
}
