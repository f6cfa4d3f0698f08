//! A look for what may leave memory, from the last success on.
//!
//! ```text
//!   something leaves    nothing, nothing, ..   a whole round without effect
//!   begin                                      end: rest for some times as long
//! ```

use std::time::{Duration, Instant};

pub struct Look {
    since: Instant,
    /// Bytes in use as it began: what came later may not have been seen.
    used_bytes: u64,
    /// Time of the last look that was without effect.
    took: Duration,
}

impl Look {
    pub fn new() -> Look {
        Look { since: Instant::now(), used_bytes: 0, took: Duration::ZERO }
    }

    pub fn begin(&mut self, used_bytes: u64) {
        (self.since, self.used_bytes) = (Instant::now(), used_bytes);
    }

    /// Notes that the look was without effect. Returns the bytes that were in use as it began. The next one
    /// begins from those of now, so that a second one without effect is the last.
    pub fn end(&mut self, used_bytes: u64) -> u64 {
        self.took = self.since.elapsed();
        std::mem::replace(&mut self.used_bytes, used_bytes)
    }

    pub fn took(&self) -> Duration {
        self.took
    }
}
