//! The clock of commands: what time it is, and how long each took, for one reading of the TSC a command.
//!
//! ```text
//!   begin        lap          lap          lap
//!     |-- GET ----|--- SET ----|--- GET ----|        the end of one command is the beginning of the next
//! ```
//! The wall clock is read when the millisecond that it showed last is over by the TSC: at most a thousand
//! times a second, however many commands run. A step of the wall clock is noticed within that millisecond,
//! and at once if another thread has noted it: its moments are not to be mixed with those from before it.

use isotherm_stdx::{UnixMs, steady};

use isotherm_runtime::time::since_epoch;

/// Ticks are scaled by this many bits to become nanoseconds.
const SCALE_BITS: u32 = 32;

pub struct CommandClock {
    ticks: quanta::Clock,
    ticks_per_ms: f64,
    /// Nanoseconds of 2^32 ticks.
    ns_scale: u64,
    /// Tick at which the command under way began.
    began: u64,
    /// Time that the wall clock showed, and the ticks between which it holds.
    now: UnixMs,
    read_at: u64,
    flips_at: u64,
    /// Distance by which the wall clock had been set when it was read (`steady::set_by_ms`).
    set_by_ms: i64,
}

impl Default for CommandClock {
    fn default() -> CommandClock {
        let ticks = quanta::Clock::new();
        // 2^40 ticks are some minutes, so the quotient is exact to nine digits.
        let sample = 1u64 << 40;
        let ticks_per_ms = sample as f64 / ticks.delta_as_nanos(0, sample) as f64 * 1e6;
        let ns_scale = ticks.delta_as_nanos(0, 1 << SCALE_BITS);
        CommandClock {
            ticks,
            ticks_per_ms,
            ns_scale,
            began: 0,
            now: UnixMs(0),
            read_at: 0,
            flips_at: 0,
            set_by_ms: 0,
        }
    }
}

impl CommandClock {
    /// Now, in ticks.
    #[inline]
    pub fn raw(&self) -> u64 {
        self.ticks.raw()
    }

    /// A batch begins.
    #[inline]
    pub fn begin(&mut self) {
        self.began = self.ticks.raw();
    }

    /// A command ends and the next begins: the ticks that it took.
    #[inline]
    pub fn lap(&mut self) -> u64 {
        self.lap_since(self.began)
    }

    /// Ends a command that began at `began` and within which others may have ended. Returns the ticks that it
    /// took.
    #[inline]
    pub fn lap_since(&mut self, began: u64) -> u64 {
        self.began = self.ticks.raw();
        // A thread that moves between cores may see a counter that is some ticks behind.
        self.began.saturating_sub(began)
    }

    /// Returns the tick at which the command under way began, or at which the last one ended.
    #[inline]
    pub fn began(&self) -> u64 {
        self.began
    }

    #[inline]
    pub fn nanos(&self, ticks: u64) -> u64 {
        ((u128::from(ticks) * u128::from(self.ns_scale)) >> SCALE_BITS) as u64
    }

    /// Returns the number of ticks that take at least `micros`, as `nanos` counts them.
    pub fn ticks_of_micros(&self, micros: u64) -> u64 {
        let ticks = ((u128::from(micros) * 1000) << SCALE_BITS).div_ceil(u128::from(self.ns_scale.max(1)));
        u64::try_from(ticks).unwrap_or(u64::MAX)
    }

    /// The command under way had to wait: what it decides by is the time when it has what it waited for. How
    /// long it took counts from when it began, as before.
    #[inline]
    pub fn outdate(&mut self) {
        self.flips_at = 0;
    }

    /// The moment at which the command under way began, or at which it had what it had to wait for
    /// (`outdate`).
    #[inline]
    pub fn now(&mut self) -> UnixMs {
        let is_old = self.began < self.read_at || self.began >= self.flips_at;
        if is_old || self.set_by_ms != steady::set_by_ms() {
            self.read();
        }
        self.now
    }

    #[cold]
    fn read(&mut self) {
        let since = since_epoch();
        let left_ms = 1.0 - f64::from(since.subsec_nanos() % 1_000_000) / 1e6;
        self.now = UnixMs(since.as_millis() as i64);
        self.set_by_ms = steady::set_by_ms();
        self.read_at = self.began;
        self.flips_at = self.began + (left_ms * self.ticks_per_ms) as u64;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn after_waiting_the_time_is_read_anew() {
        let mut clock = CommandClock::default();
        let mut stale = 0;
        for _ in 0..20 {
            clock.begin();
            clock.now();
            // The next command begins in the same millisecond, as a rule, and waits.
            clock.begin();
            std::thread::sleep(std::time::Duration::from_millis(3));
            let woken = isotherm_runtime::time::unix_now();
            stale += i32::from(clock.now() < woken);
            clock.outdate();
            assert!(clock.now() >= woken);
            assert!(
                clock.nanos(clock.raw() - clock.began()) >= 3_000_000,
                "its time counts from when it began"
            );
        }
        assert!(stale > 0, "without that it would be the time before the wait");
    }

    #[test]
    fn limits_in_ticks_are_limits_in_time() {
        let clock = CommandClock::default();
        for micros in [0, 1, 2, 10_000, 3_600_000_000] {
            let ticks = clock.ticks_of_micros(micros);
            assert_eq!(clock.nanos(ticks) / 1000, micros);
            assert!(ticks == 0 || clock.nanos(ticks - 1) / 1000 < micros);
        }
        assert_eq!(clock.ticks_of_micros(i64::MAX as u64), u64::MAX);
    }

    #[test]
    fn follows_the_wall_clock() {
        let mut clock = CommandClock::default();
        for _ in 0..2000 {
            clock.begin();
            let before = isotherm_runtime::time::unix_now();
            clock.begin();
            let now = clock.now();
            let after = isotherm_runtime::time::unix_now();
            // It may lag by what passed between the two readings, not by a whole millisecond more.
            assert!(before.0 - 1 <= now.0 && now.0 <= after.0, "{before:?} {now:?} {after:?}");
            std::thread::sleep(std::time::Duration::from_micros(50));
        }
    }
}
