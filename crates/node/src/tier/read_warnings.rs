//! The server's log where values cannot be read: a line a second at most, however many commands meet them.
//!
//! ```text
//!   failures    x x  xx x       x
//!   lines       x      x        x       the second one says of how many it speaks
//!                      ^ a second later
//! ```

use std::sync::{Mutex, PoisonError};

/// Time between two lines.
const INTERVAL_MS: u64 = 1000;

/// Failures since the last line.
#[derive(Default, Debug)]
pub struct ReadWarnings(Mutex<Since>);

#[derive(Default, Debug)]
struct Since {
    /// Time of the last line.
    line_ms: Option<u64>,
    withheld: u64,
}

impl Since {
    fn is_due(&self, now_ms: u64) -> bool {
        self.line_ms.is_none_or(|line_ms| now_ms >= line_ms + INTERVAL_MS)
    }

    fn take(&mut self, now_ms: u64) -> u64 {
        self.line_ms = Some(now_ms);
        std::mem::take(&mut self.withheld)
    }
}

impl ReadWarnings {
    /// Notes a failure, by a clock that does not go back. Returns how many were withheld before it, if it is
    /// time for a line.
    pub fn note(&self, now_ms: u64) -> Option<u64> {
        let mut since = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if since.is_due(now_ms) {
            return Some(since.take(now_ms));
        }
        since.withheld += 1;
        None
    }

    /// Returns how many were withheld, if there are some and it is time for a line.
    pub fn take_due(&self, now_ms: u64) -> Option<u64> {
        let mut since = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        (since.withheld > 0 && since.is_due(now_ms)).then(|| since.take(now_ms))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_a_second_counts_the_rest() {
        let warnings = ReadWarnings::default();
        assert_eq!(warnings.take_due(5), None);
        assert_eq!(warnings.note(10), Some(0));
        assert_eq!([11, 500, 1009].map(|ms| warnings.note(ms)), [None; 3]);
        assert_eq!(warnings.take_due(1009), None);
        assert_eq!(warnings.note(1010), Some(3));
        assert_eq!((warnings.note(1011), warnings.take_due(2009)), (None, None));
        assert_eq!((warnings.take_due(2010), warnings.take_due(5000)), (Some(1), None));
        assert_eq!(warnings.note(5000), Some(0));
    }
}
