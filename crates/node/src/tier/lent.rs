//! Values that are lent: how many bytes they take in all partitions, and how many they may (`copies`).

use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering::Relaxed};

pub struct Lent {
    bytes: AtomicU64,
    /// Most that one partition may have lent.
    bytes_max: AtomicUsize,
    partitions: u64,
    /// Time of the last round that found nothing to drop, by the clock of the tier.
    pub round_ms: AtomicU64,
}

impl Lent {
    pub fn new(bytes_max: u64, partitions: usize) -> Lent {
        let lent = Lent {
            bytes: AtomicU64::new(0),
            bytes_max: AtomicUsize::new(0),
            partitions: partitions as u64,
            round_ms: AtomicU64::new(0),
        };
        lent.bound(bytes_max);
        lent
    }

    pub fn bound(&self, bytes_max: u64) {
        self.bytes_max.store((bytes_max / self.partitions) as usize, Relaxed);
    }

    pub fn add(&self, bytes: i64) {
        self.bytes.fetch_add(bytes as u64, Relaxed);
    }

    /// Bytes that are lent, in all partitions.
    pub fn bytes(&self) -> u64 {
        // A value may be taken back before it was counted.
        (self.bytes.load(Relaxed) as i64).max(0) as u64
    }

    /// Most that one partition may have lent.
    pub fn bytes_max(&self) -> usize {
        self.bytes_max.load(Relaxed)
    }

    /// Returns whether more is lent than may be.
    pub fn is_too_much(&self) -> bool {
        self.bytes() > self.bytes_max() as u64 * self.partitions
    }
}
