//! How long keys have not been used: a histogram of some of them, read from the stamps of their pages.
//!
//! Slots are looked at from a place that is drawn, until so many pages were seen: a few thousand keys tell the shape, and the
//! time that it takes does not grow with the data. Under an LRU policy a key has its own stamp, else its page's, a lower
//! bound. Stamps reach back some nine hours.

use crate::access::{self, AccessMode};
use crate::directory;
use crate::lock::Held;
use crate::partition::Partition;
use crate::sizes::SIZE_BINS;
use crate::value::Db;
use isotherm_stdx::{Slot, UnixMs};

/// Pages of a database that are looked at: some 17 keys each.
const PAGES_MAX: usize = 512;

/// Of the keys that were looked at, how many were idle for 0 s, 1 s, 2 to 3 s, 4 to 7 s, ...
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct IdleTimes {
    pub keys: u64,
    pub bins: [u64; SIZE_BINS],
}

impl IdleTimes {
    fn add_slot(&mut self, partition: &Partition, db: Db, slot: Slot, now: UnixMs) -> usize {
        let Some(table) = partition.table(db) else { return 0 };
        let heap = &partition.store.heap;
        let record = table.slot(heap, partition.geometry.place_of(slot)).record;
        // A slot of a single tag may hold all there is.
        let pages = record.pages.min(PAGES_MAX as u32);
        for page in (0..pages).filter_map(|index| directory::get(heap, &record, index).0) {
            let page = heap.page(page);
            for index in 0..page.len() {
                let own = page.access(index, AccessMode::Lru.width());
                let seconds = access::idle_seconds(own.unwrap_or(page.stamp()), now);
                self.bins[(u16::BITS - seconds.leading_zeros()) as usize] += 1;
            }
            self.keys += page.len() as u64;
        }
        pages as usize
    }

    /// Those of some keys of a database; slots are looked at from `start` on. Every partition is held.
    pub(crate) fn of(held: &Held<'_>, db: Db, start: Slot, now: UnixMs) -> IdleTimes {
        let partitions: Vec<&Partition> = held.all().collect();
        let mut times = IdleTimes { keys: 0, bins: [0; SIZE_BINS] };
        let mut pages = 0;
        for number in start.index()..start.index() + Slot::COUNT {
            let slot = Slot::new((number % Slot::COUNT) as u16);
            let partition = partitions[usize::from(held.keyspace.partition_of(slot))];
            pages += times.add_slot(partition, db, slot, now);
            if pages >= PAGES_MAX {
                break;
            }
        }
        times
    }
}
