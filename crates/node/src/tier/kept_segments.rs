//! Segments in which nothing lives, and that are kept all the same: by the base in force, which refers to
//! them, or by a snapshot that may read them.
//!
//! ```text
//!   values find no segment, and some are kept     since   0 s   writers wait
//!                                                        10 s   the disk counts as full: -OOM, no key leaves
//!                                                        60 s   keys leave by the policy (`shortage`)
//! ```

use std::sync::atomic::Ordering::Relaxed;

use super::checkpoint::Ask;
use super::health::State;
use super::state::Tier;

/// A new base is due when one part in `WAITING_DIVISOR` of the space waits for it.
const WAITING_DIVISOR: u64 = 10;

impl Tier {
    /// Notes whether segments in which nothing lives are kept for a base or a snapshot, while values need
    /// them. Returns since how many milliseconds.
    pub fn note_segments_kept(&self, are_kept: bool) -> u64 {
        let since = &self.segments_kept_since_ms;
        match (are_kept, since.load(Relaxed)) {
            (false, _) => since.store(0, Relaxed),
            (true, 0) => since.store(self.now_ms(), Relaxed),
            (true, _) => {}
        }
        self.segments_kept_ms().unwrap_or(0)
    }

    pub(super) fn segments_kept_ms(&self) -> Option<u64> {
        match self.segments_kept_since_ms.load(Relaxed) {
            0 => None,
            since => Some(self.now_ms().saturating_sub(since)),
        }
    }

    /// A base of the append-only file is listed, durably.
    pub fn base_in_force(&self, refers: bool) {
        self.counters.waiting_segments.store(0, Relaxed);
        self.has_foreign_base.store(false, Relaxed);
        self.checkpoints.say(Ask::InForce { refers });
        self.wake();
    }

    /// Returns whether a base can be written that takes the place of the one in force, with `appendonly` off
    /// too: memory has what that has, and what came since.
    pub fn can_have_base(&self) -> bool {
        !self.has_foreign_base.load(Relaxed)
    }

    /// Returns whether so much space is kept only by the base in force that there should be another one.
    pub fn wants_base(&self) -> bool {
        let waiting = self.counters.waiting_segments.load(Relaxed);
        let is_much = waiting * WAITING_DIVISOR > self.counters.segments.load(Relaxed);
        waiting > 0
            && self.can_have_base()
            && (is_much || self.is_awaiting_segments.load(Relaxed) || self.state() == State::Full)
    }
}
