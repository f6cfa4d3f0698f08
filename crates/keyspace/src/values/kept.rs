//! Account of the bytes that all partitions keep for a snapshot, with their limit.
//!
//! The account becomes full above the limit, and stays full until a little of it is gone. A change that waits
//! for that waits for milliseconds, again and again, and not once for half of it. No method here waits: the
//! caller sees that the account is full, and lets changes wait where no lock is held.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed, Ordering::SeqCst};

/// Bytes to be gone, or half of the limit, before changes continue: with values that have to be read from
/// disk first that takes some 10 ms.
const RELIEF_BYTES_MAX: u64 = 32 << 10;

pub(crate) struct KeptAccount {
    bytes: AtomicU64,
    bytes_max: AtomicU64,
    is_full: AtomicBool,
    /// The last limit that was one.
    limit: AtomicU64,
}

impl KeptAccount {
    pub fn new() -> KeptAccount {
        let (bytes, is_full) = (AtomicU64::new(0), AtomicBool::new(false));
        KeptAccount { bytes, bytes_max: AtomicU64::new(u64::MAX), is_full, limit: AtomicU64::new(u64::MAX) }
    }

    pub fn bytes(&self) -> u64 {
        self.bytes.load(Relaxed)
    }

    /// Bytes within the limit. More is kept only where that was lifted, and takes the room of data.
    pub fn bytes_within_limit(&self) -> u64 {
        self.bytes().min(self.limit.load(Relaxed))
    }

    #[inline]
    pub fn is_full(&self) -> bool {
        self.is_full.load(Relaxed)
    }

    pub fn add(&self, bytes: u64) {
        if self.bytes.fetch_add(bytes, Relaxed) + bytes > self.bytes_max.load(Relaxed) {
            self.is_full.store(true, SeqCst);
        }
    }

    pub fn subtract(&self, bytes: u64) {
        let left = self.bytes.fetch_sub(bytes, Relaxed) - bytes;
        if self.is_full() {
            let bytes_max = self.bytes_max.load(Relaxed);
            if left <= bytes_max - RELIEF_BYTES_MAX.min(bytes_max / 2) {
                self.is_full.store(false, SeqCst);
            }
        }
    }

    /// Sets the limit from now on; `u64::MAX` means no limit.
    pub fn set_limit(&self, bytes_max: u64) {
        self.bytes_max.store(bytes_max, Relaxed);
        if bytes_max != u64::MAX {
            self.limit.store(bytes_max, Relaxed);
        }
        if self.bytes() <= bytes_max {
            self.is_full.store(false, SeqCst);
        }
    }
}
