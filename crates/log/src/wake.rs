//! Wake-ups from an append to sleeping readers of the log, at the price of one load while all are awake.
//!
//! ```text
//!   reader      mark its bit   fence    is there more?    no: park       yes: go on
//!   appender    append         fence    is one marked?    yes: unmark all, wake each
//! ```
//! Each of the two writes before the fence what the other reads after it, so at least one sees the other: the
//! reader sees what was appended, or the appender sees the mark. A wake-up that comes before the sleep makes
//! the sleep end at once. `tests/shuttle` explores the interleavings. The server decides which threads sleep,
//! and where.

use crate::sync::{AtomicU64, fence};
use std::sync::atomic::Ordering;

/// The readers that have read all there was, and sleep until they are woken: a bit each.
#[derive(Default)]
pub struct SleepMarks(AtomicU64);

impl SleepMarks {
    /// A reader is about to look whether there is more, and to sleep if there is not.
    pub fn set(&self, reader: usize) {
        self.0.fetch_or(1 << reader, Ordering::SeqCst);
        fence(Ordering::SeqCst);
    }

    /// Something was appended. The readers that the caller has to wake, as bits: of several callers, one gets
    /// each.
    #[inline]
    pub fn take(&self) -> u64 {
        fence(Ordering::SeqCst);
        if self.0.load(Ordering::SeqCst) == 0 { 0 } else { self.0.swap(0, Ordering::SeqCst) }
    }
}
