//! Maximum size of the log.

use crate::group::{BLOCK_BYTES, GROUP_BYTES};
use crate::place::{SEGMENT_BYTES, SEGMENTS_MAX};
use crate::segments::Named;

/// Values from memory begin a segment only while this part of the log (one in 25) is free for survivors of
/// cleaning: a log that is full of living values could not be cleaned. With the segment that is being cleaned
/// that is a twentieth.
const RESERVE_DIVISOR: u32 = 25;
/// Minimum reserve of a small log: the segments that are being filled with values from memory and with
/// survivors, and one more.
const RESERVE_SEGMENTS_MIN: u32 = 3;

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct LogConfig {
    segments_max: u32,
    segment_bytes: u64,
}

impl LogConfig {
    /// A log of at most `bytes_max` bytes; fewer than four segments cannot be cleaned, so it has at least
    /// those.
    pub fn of_bytes(bytes_max: u64) -> LogConfig {
        let segments = (bytes_max / SEGMENT_BYTES).clamp(4, u64::from(SEGMENTS_MAX));
        LogConfig { segments_max: segments as u32, segment_bytes: SEGMENT_BYTES }
    }

    /// Returns the configuration of a log that is large enough for existing segments, even above the current
    /// limit.
    #[must_use]
    pub fn covering(self, named: &[Named]) -> LogConfig {
        let needed = named.iter().map(|named| named.segment.0 + 1).max().unwrap_or(0);
        LogConfig { segments_max: self.segments_max.max(needed), ..self }
    }

    /// Makes segments full with `segment_bytes` bytes already: a simulation sees more of them in less time.
    /// Panics if they are longer than places reach, or no group fits.
    #[must_use]
    pub fn with_segments_of(self, segment_bytes: u64) -> LogConfig {
        assert!(segment_bytes <= SEGMENT_BYTES && segment_bytes >= GROUP_BYTES as u64);
        assert!(segment_bytes.is_multiple_of(BLOCK_BYTES as u64));
        LogConfig { segment_bytes, ..self }
    }

    pub fn segment_bytes(self) -> u64 {
        self.segment_bytes
    }

    pub fn segments_max(self) -> u32 {
        self.segments_max
    }

    /// Number of segments of the reserve, one at least: with less room only survivors of cleaning get any.
    pub fn reserve_segments(self) -> u32 {
        (self.segments_max / RESERVE_DIVISOR).max(RESERVE_SEGMENTS_MIN)
    }
}
