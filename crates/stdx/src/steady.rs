//! Moments for durations, which go on steadily while the wall clock is set forth and back.
//!
//! ```text
//!   steady moment = wall clock - what that was set by since the process began
//! ```
//! Only expiry compares moments of the wall clock. Time is an argument here as everywhere: the caller that
//! reads both clocks says by how much they have come apart (`note_wall_clock`), before the moment that was
//! read is handed down. A command that had read the clock just before a step is misdated by it, once.

use crate::units::UnixMs;
use std::sync::atomic::{AtomicI64, Ordering::Relaxed};

/// Smallest difference that is a step. Less is a clock that is slewed, or a thread that was held up between
/// reading both clocks.
const STEP_MS_MIN: u64 = 1000;

/// Milliseconds by which the wall clock is ahead of where it would be without steps.
static SET_BY_MS: AtomicI64 = AtomicI64::new(0);

/// A moment in milliseconds since 1970, had the clock never been set while this process runs.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
pub struct SteadyMs(pub i64);

impl SteadyMs {
    #[inline]
    pub fn of(moment: UnixMs) -> SteadyMs {
        SteadyMs(moment.0.saturating_sub(SET_BY_MS.load(Relaxed)))
    }

    /// Milliseconds from `earlier` to `self`.
    pub const fn ms_since(self, earlier: SteadyMs) -> i64 {
        self.0.saturating_sub(earlier.0)
    }
}

/// Returns by how many milliseconds the wall clock is ahead of where it would be without steps: a caller that
/// keeps a moment reads it anew when this has changed.
#[inline]
pub fn set_by_ms() -> i64 {
    SET_BY_MS.load(Relaxed)
}

/// Notes that the wall clock is ahead by so much of where it would be without steps.
pub fn note_wall_clock(ahead_ms: i64) {
    if ahead_ms.abs_diff(SET_BY_MS.load(Relaxed)) >= STEP_MS_MIN {
        SET_BY_MS.store(ahead_ms, Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The only test of this process that sets the clock.
    #[test]
    fn durations_do_not_see_steps() {
        const DAY_MS: i64 = 86_400_000;
        let since = SteadyMs::of(UnixMs(5_000_000));
        for (passed_ms, ahead_ms) in [(100, 0), (200, -DAY_MS), (300, DAY_MS), (400, 0), (500, 999)] {
            note_wall_clock(ahead_ms);
            let wall = UnixMs(5_000_000 + passed_ms + if ahead_ms == 999 { 0 } else { ahead_ms });
            assert_eq!(SteadyMs::of(wall).ms_since(since), passed_ms);
        }
        assert_eq!(SteadyMs::of(UnixMs(i64::MAX)), SteadyMs(i64::MAX));
        assert_eq!(SteadyMs::of(UnixMs(i64::MIN)), SteadyMs(i64::MIN));
    }
}
