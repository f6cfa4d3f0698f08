//! Living part of each segment, counted by many threads.
//!
//! A record lives from [`Log::append`](crate::Log::append) on, before any entry points to it, until its entry
//! is deleted, overwritten, or promoted to memory. The thread that does so holds the lock of the entry's
//! partition, so a record is reported once. It takes no lock of the log: the report is one atomic
//! subtraction.
//!
//! Sums are kept in addition to the counts, and a list of the segments that have become empty or are no
//! longer empty: a query goes over no segments.
//!
//! A record counts as its place alone shows: head and payload. Keys and padding count as living as long as
//! their payloads do: a segment's share is its living units over all units that were written to it.

use crate::place::{ADDRESS_UNIT_BYTES, Place, SegmentNumber};
use crate::record::HEAD_BYTES;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};

/// Parts of the sum: threads that report records of several segments seldom meet in one.
const SUMS: usize = 16;

/// Living units of some segments, alone in its line of the cache.
#[derive(Default, Debug)]
#[repr(align(64))]
struct Sum(AtomicU64);

/// Living units of each segment, of 16 B: 64 MB are 2^22 of them.
#[derive(Debug)]
pub struct Live {
    units: Box<[AtomicU32]>,
    sums: [Sum; SUMS],
    /// A bit for each segment that began to live, or died, since it was taken; and whether there is one.
    turned: Box<[AtomicU64]>,
    has_turned: AtomicBool,
}

impl Live {
    pub(crate) fn new(segments: u32) -> Live {
        Live {
            units: (0..segments).map(|_| AtomicU32::new(0)).collect(),
            sums: Default::default(),
            turned: (0..segments.div_ceil(u64::BITS)).map(|_| AtomicU64::new(0)).collect(),
            has_turned: AtomicBool::new(false),
        }
    }

    /// The record at `place` is no longer needed.
    pub fn retire(&self, place: Place) {
        let (units, segment) = (units(place), place.segment());
        let before = self.units[segment.0 as usize].fetch_sub(units, Ordering::AcqRel);
        assert!(before >= units, "a record of {units} units is retired in a segment with {before}");
        self.sum_of(segment).fetch_sub(u64::from(units), Ordering::Relaxed);
        if before == units {
            self.note_turned(segment);
        }
    }

    /// An entry points to `place`: one that was loaded, or a record that was just appended.
    pub fn add(&self, place: Place) {
        let (units, segment) = (units(place), place.segment());
        self.sum_of(segment).fetch_add(u64::from(units), Ordering::Relaxed);
        if self.units[segment.0 as usize].fetch_add(units, Ordering::AcqRel) == 0 {
            self.note_turned(segment);
        }
    }

    fn sum_of(&self, segment: SegmentNumber) -> &AtomicU64 {
        &self.sums[segment.0 as usize % SUMS].0
    }

    #[cold]
    fn note_turned(&self, segment: SegmentNumber) {
        let (word, bit) = (segment.0 / u64::BITS, segment.0 % u64::BITS);
        self.turned[word as usize].fetch_or(1 << bit, Ordering::AcqRel);
        self.has_turned.store(true, Ordering::Release);
    }

    /// Segments that began to live, or died, since the last call.
    pub(crate) fn take_turned(&self) -> Vec<SegmentNumber> {
        let mut turned = Vec::new();
        if !self.has_turned.swap(false, Ordering::AcqRel) {
            return turned;
        }
        for (word, bits) in (0..).zip(&self.turned) {
            let mut bits = if bits.load(Ordering::Relaxed) == 0 { 0 } else { bits.swap(0, Ordering::AcqRel) };
            while bits != 0 {
                turned.push(SegmentNumber(word * u64::BITS + bits.trailing_zeros()));
                bits &= bits - 1;
            }
        }
        turned
    }

    pub(crate) fn has_turned(&self, segment: SegmentNumber) -> bool {
        let (word, bit) = (segment.0 / u64::BITS, segment.0 % u64::BITS);
        self.turned[word as usize].load(Ordering::Acquire) & (1 << bit) != 0
    }

    /// Returns the bytes of all living records: heads and payloads.
    pub fn bytes(&self) -> u64 {
        let units = self.sums.iter().map(|sum| sum.0.load(Ordering::Relaxed));
        units.sum::<u64>() * ADDRESS_UNIT_BYTES
    }

    pub fn units(&self, segment: SegmentNumber) -> u32 {
        self.units[segment.0 as usize].load(Ordering::Acquire)
    }
}

/// Returns the units that a record counts.
pub(crate) fn units(place: Place) -> u32 {
    ((HEAD_BYTES + place.payload_bytes()) as u64).div_ceil(ADDRESS_UNIT_BYTES) as u32
}
