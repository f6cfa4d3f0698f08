//! How much of each segment lives, counted by many threads.
//!
//! A record lives from [`Log::append`](crate::Log::append) on, before any entry points to it, until its entry is deleted, written
//! over, or brought back to memory: that thread holds the lock of the entry's partition, so a record is reported once.
//! It touches no lock of the log's: one atomic subtraction.
//!
//! What counts of a record is what its place alone shows: head and payload. Keys and padding count as living as long as their
//! payloads do: a segment's share is living units over all units that came to it.

use crate::place::{ADDRESS_UNIT_BYTES, Place, SegmentNumber};
use crate::record::HEAD_BYTES;
use std::sync::atomic::{AtomicU32, Ordering};

/// Living units of each segment, of 16 B: 64 MB are 2^22 of them.
#[derive(Debug)]
pub struct Live {
    units: Box<[AtomicU32]>,
}

impl Live {
    pub(crate) fn new(segments: u32) -> Live {
        Live { units: (0..segments).map(|_| AtomicU32::new(0)).collect() }
    }

    /// The record at `place` is no longer needed.
    pub fn retire(&self, place: Place) {
        let units = units(place);
        let before = self.units[place.segment().0 as usize].fetch_sub(units, Ordering::AcqRel);
        assert!(before >= units, "a record of {units} units is retired in a segment with {before}");
    }

    /// An entry points to `place`: one that was loaded, or a record that was just appended.
    pub fn add(&self, place: Place) {
        self.units[place.segment().0 as usize].fetch_add(units(place), Ordering::AcqRel);
    }

    /// Of all records that live: heads and payloads.
    pub fn bytes(&self) -> u64 {
        let units = self.units.iter().map(|units| u64::from(units.load(Ordering::Relaxed)));
        units.sum::<u64>() * ADDRESS_UNIT_BYTES
    }

    pub fn units(&self, segment: SegmentNumber) -> u32 {
        self.units[segment.0 as usize].load(Ordering::Acquire)
    }
}

/// What a record counts.
pub(crate) fn units(place: Place) -> u32 {
    ((HEAD_BYTES + place.payload_bytes()) as u64).div_ceil(ADDRESS_UNIT_BYTES) as u32
}
