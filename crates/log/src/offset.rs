//! A place in the log.

use std::fmt;
use std::ops::{Add, Sub};

/// Number of bytes of the log before a place, since the history began. The replication offset of Valkey
/// counts the same.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Debug)]
pub struct LogOffset(pub u64);

impl Add<u64> for LogOffset {
    type Output = LogOffset;

    #[inline]
    fn add(self, bytes: u64) -> LogOffset {
        LogOffset(self.0 + bytes)
    }
}

/// The bytes between two places; the first does not follow the second.
impl Sub for LogOffset {
    type Output = u64;

    #[inline]
    fn sub(self, earlier: LogOffset) -> u64 {
        debug_assert!(earlier <= self, "{earlier:?} lies behind {self:?}");
        self.0 - earlier.0
    }
}

impl fmt::Display for LogOffset {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}
