//! The clock of commands: what time it is, and how long each took, for one reading of the TSC a command.
//!
//! ```text
//!   begin        lap          lap          lap
//!     |-- GET ----|--- SET ----|--- GET ----|        the end of one command is the beginning of the next
//! ```
//! The wall clock is read when the millisecond that it showed last is over, as told by the TSC: at most a thousand times
//! a second, however many commands run. A step of the wall clock is noticed within that millisecond.

use isotherm_stdx::UnixMs;
use std::time::{SystemTime, UNIX_EPOCH};

pub struct CommandClock {
    ticks: quanta::Clock,
    ticks_per_ms: f64,
    /// When the command under way began.
    began: u64,
    /// What the wall clock showed, and the ticks within which that holds.
    now: UnixMs,
    read_at: u64,
    flips_at: u64,
}

impl CommandClock {
    pub fn new() -> CommandClock {
        let ticks = quanta::Clock::new();
        // 2^40 ticks are some minutes, so the quotient is exact to nine digits.
        let sample = 1u64 << 40;
        let ticks_per_ms = sample as f64 / ticks.delta_as_nanos(0, sample) as f64 * 1e6;
        CommandClock { ticks, ticks_per_ms, began: 0, now: UnixMs(0), read_at: 0, flips_at: 0 }
    }

    /// A batch begins.
    #[inline]
    pub fn begin(&mut self) {
        self.began = self.ticks.raw();
    }

    /// A command ends and the next begins: the ticks that it took.
    #[inline]
    pub fn lap(&mut self) -> u64 {
        let end = self.ticks.raw();
        // A thread that moves between cores may see a counter that is some ticks behind.
        let taken = end.saturating_sub(self.began);
        self.began = end;
        taken
    }

    /// The moment at which the command under way began.
    #[inline]
    pub fn now(&mut self) -> UnixMs {
        if self.began < self.read_at || self.began >= self.flips_at {
            self.read();
        }
        self.now
    }

    #[cold]
    fn read(&mut self) {
        let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        let left_ms = 1.0 - f64::from(since.subsec_nanos() % 1_000_000) / 1e6;
        self.now = UnixMs(since.as_millis() as i64);
        self.read_at = self.began;
        self.flips_at = self.began + (left_ms * self.ticks_per_ms) as u64;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn follows_the_wall_clock() {
        let mut clock = CommandClock::new();
        for _ in 0..2000 {
            clock.begin();
            let before = crate::node::unix_now();
            clock.begin();
            let now = clock.now();
            let after = crate::node::unix_now();
            // It may lag by what passed between the two readings, not by a whole millisecond more.
            assert!(before.0 - 1 <= now.0 && now.0 <= after.0, "{before:?} {now:?} {after:?}");
            std::thread::sleep(std::time::Duration::from_micros(50));
        }
    }
}
