//! How an append finds out that the reader of the log sleeps, at the price of one load while it is awake.
//!
//! ```text
//!   reader      mark = true    fence    is there more?   no: park    yes: go on
//!   appender    append         fence    is it marked?    yes: unmark, unpark
//! ```
//! Of the two, each writes before the fence what the other reads behind it, so at least one sees the other: the reader sees
//! what was appended, or the appender sees the mark. An unpark that comes before the park makes the park return at once.
//! `tests/shuttle` explores the interleavings. Which thread is parked, and where, is the server's.

use crate::sync::{AtomicBool, fence};
use std::sync::atomic::Ordering;

/// The reader has read all there was, and sleeps until it is woken.
#[derive(Default)]
pub struct SleepMark(AtomicBool);

impl SleepMark {
    /// The reader is about to look whether there is more, and to sleep if there is not.
    pub fn set(&self) {
        self.0.store(true, Ordering::SeqCst);
        fence(Ordering::SeqCst);
    }

    /// Something was appended. Whether the caller has to wake the reader: of several, one has.
    #[inline]
    pub fn take(&self) -> bool {
        fence(Ordering::SeqCst);
        self.0.load(Ordering::SeqCst) && self.0.swap(false, Ordering::SeqCst)
    }
}
