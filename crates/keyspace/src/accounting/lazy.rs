//! Counts for INFO of freeing that no client waits for: `lazyfree_pending_objects` and `lazyfreed_objects`.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

/// A removed collection that takes no more steps to free is none of these, as in Valkey.
pub(crate) const LAZY_EFFORT_MIN: u64 = 64;

/// Counts of all partitions together: collections that were removed, and keys of flushed databases.
#[derive(Default)]
pub(crate) struct LazyFrees {
    removed: AtomicU64,
    freed: AtomicU64,
    /// Freed before the last reset.
    reset: AtomicU64,
}

impl LazyFrees {
    pub fn remove(&self, objects: u64) {
        self.removed.fetch_add(objects, Relaxed);
    }

    pub fn free(&self, objects: u64) {
        self.freed.fetch_add(objects, Relaxed);
    }

    pub fn pending(&self) -> u64 {
        let freed = self.freed.load(Relaxed);
        self.removed.load(Relaxed).saturating_sub(freed)
    }

    pub fn freed(&self) -> u64 {
        self.freed.load(Relaxed).saturating_sub(self.reset.load(Relaxed))
    }

    pub fn reset(&self) {
        self.reset.store(self.freed.load(Relaxed), Relaxed);
    }
}
