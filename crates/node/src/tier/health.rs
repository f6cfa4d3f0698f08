//! State of the disk of cold values, judged by how its calls end. No clock, no threads, no files:
//! `step(event, now)`.
//!
//! ```text
//!   Works ---- no room on disk ------------------------------------> Full      a write is tried each second
//!     |  ----- 5 writes failed within a minute, or one hangs ------> Degraded  reads only; tried in 5 to 8 s
//!     |  ----- reads failed, and so did a probe behind them,
//!     |        or so many were given up while none came back ------> Failed    who needs a cold value gets an error at once
//!     '<------ the write that is tried succeeds; a read or a probe does --------'
//! ```
//! Values that were to leave are in memory until a write has succeeded, so a failed one loses nothing. `Full`
//! for want of segments ends when cleaning has freed some: no write has to be tried.
//!
//! One damaged place is no failed disk: before reads fail at once, a reader probes other files. It does so
//! after any read that failed or did not return. Nothing is cleaned before a read succeeds, and where nothing
//! else is read none would.

/// Failed writes within [`ERRORS_WITHIN_MS`] after which the disk is degraded.
const WRITE_ERRORS_MAX: usize = 5;
const ERRORS_WITHIN_MS: u64 = 60_000;
/// Reads that fail one after the other until a probe decides at once whether the disk has failed.
const READ_ERRORS_MAX: u32 = 8;
/// Commands that give up waiting while no read comes back, until the disk has failed.
const TIMEOUTS_MAX: u32 = 8;
/// A disk without room is tried again.
const REST_FULL_MS: u64 = 1000;
/// A degraded one, at first, and the longest: a folder that was gone is in use again within 10 s. A try costs
/// a group of 1 MB at most.
const REST_DEGRADED_MS: u64 = 5000;
const REST_DEGRADED_MS_MAX: u64 = 8000;
/// Between a failed read and a probe, and between two probes.
const PROBE_MS: u64 = 1000;

/// State of the disk and of the sinker.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u8)]
pub enum State {
    Works = 0,
    /// No room is left on disk: nothing leaves memory until there is.
    Full = 1,
    /// No value that may leave is left in memory.
    Idle = 2,
    /// Writes fail: values are read, and none leaves memory.
    Degraded = 3,
    /// Reads fail too: a command that needs a cold value gets an error at once.
    Failed = 4,
    /// `swap-mode no` since: nothing leaves memory, and values on disk come back to it.
    Off = 5,
}

impl State {
    pub fn name(self) -> &'static str {
        match self {
            State::Works => "ok",
            State::Full => "full",
            State::Idle => "nothing-to-move",
            State::Degraded => "degraded",
            State::Failed => "failed",
            State::Off => "off",
        }
    }

    /// Returns whether values can leave memory, if there are any that may.
    pub fn can_sink(self) -> bool {
        matches!(self, State::Works | State::Idle)
    }

    pub fn of(number: u8) -> State {
        match number {
            0 => State::Works,
            1 => State::Full,
            2 => State::Idle,
            3 => State::Degraded,
            4 => State::Failed,
            _ => State::Off,
        }
    }
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Event {
    /// A group is on disk.
    Written,
    /// A group is not. `no_room`: the file system, or its quota, says so.
    WriteFailed {
        no_room: bool,
    },
    /// A write has not come back for long.
    WriteHangs,
    /// The log has no segment for what leaves memory.
    NoSegment,
    /// The log has a segment again.
    SegmentFreed,
    ReadDone,
    /// A read has failed by an error of the system. A record that does not verify says nothing of the disk.
    ReadFailed,
    /// A command has given up.
    ReadTimedOut,
    Probed {
        works: bool,
    },
}

/// Milliseconds of a clock that does not go back.
pub type Ms = u64;

#[derive(Default, Debug)]
pub struct Health {
    lacks_segments: bool,
    /// Until then no write is tried, and why.
    rest: Option<(Rest, Ms)>,
    /// Length of the next rest of a degraded disk.
    rest_ms: u64,
    /// Times of the last failed writes, the oldest first.
    write_errors: Vec<Ms>,
    /// Since the last one that succeeded.
    read_errors: u32,
    timeouts: u32,
    has_failed: bool,
    /// A probe is due then.
    probe_at: Option<Ms>,
    /// Time since which it is degraded or has failed.
    trouble_since: Option<Ms>,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Rest {
    NoRoom,
    Degraded,
}

impl Health {
    pub fn step(&mut self, event: Event, now: Ms) -> State {
        match event {
            Event::Written => {
                self.rest = None;
                self.rest_ms = 0;
                self.write_errors.clear();
            }
            Event::WriteFailed { no_room: true } if !self.is_degraded() => {
                self.rest = Some((Rest::NoRoom, now + REST_FULL_MS));
            }
            Event::WriteFailed { .. } => self.note_write_error(now),
            Event::WriteHangs if !self.is_degraded() => self.degrade(now),
            Event::WriteHangs => {}
            Event::NoSegment => self.lacks_segments = true,
            Event::SegmentFreed => self.lacks_segments = false,
            Event::ReadDone | Event::Probed { works: true } => {
                (self.read_errors, self.timeouts, self.has_failed, self.probe_at) = (0, 0, false, None);
            }
            Event::ReadFailed => self.note_read_error(now),
            Event::ReadTimedOut => {
                self.timeouts += 1;
                self.probe_at.get_or_insert(now + PROBE_MS);
                self.fail_if(self.timeouts >= TIMEOUTS_MAX, now);
            }
            Event::Probed { works: false } => self.fail_if(true, now),
        }
        let state = self.state();
        match state {
            State::Degraded | State::Failed => _ = self.trouble_since.get_or_insert(now),
            _ => self.trouble_since = None,
        }
        state
    }

    /// Milliseconds since it became degraded or failed; 0: it is neither.
    pub fn trouble_ms(&self, now: Ms) -> Ms {
        self.trouble_since.map_or(0, |since| now.saturating_sub(since))
    }

    fn is_degraded(&self) -> bool {
        matches!(self.rest, Some((Rest::Degraded, _)))
    }

    fn note_write_error(&mut self, now: Ms) {
        self.write_errors.retain(|then| now - then < ERRORS_WITHIN_MS);
        self.write_errors.push(now);
        if self.is_degraded() || self.write_errors.len() >= WRITE_ERRORS_MAX {
            self.write_errors.clear();
            self.degrade(now);
        }
    }

    fn degrade(&mut self, now: Ms) {
        self.rest_ms = (self.rest_ms * 2).clamp(REST_DEGRADED_MS, REST_DEGRADED_MS_MAX);
        self.rest = Some((Rest::Degraded, now + self.rest_ms));
    }

    fn note_read_error(&mut self, now: Ms) {
        self.read_errors += 1;
        match self.read_errors {
            READ_ERRORS_MAX => self.probe_at = Some(now),
            _ => _ = self.probe_at.get_or_insert(now + PROBE_MS),
        }
    }

    fn fail_if(&mut self, has_failed: bool, now: Ms) {
        if has_failed {
            self.has_failed = true;
            self.probe_at = Some(now + PROBE_MS);
        }
    }

    /// Returns whether a write may be tried. When a rest of a degraded disk is over, one write is tried, and
    /// its end decides.
    pub fn may_write(&self, now: Ms) -> bool {
        !self.has_failed && self.rest.is_none_or(|(_, until)| now >= until)
    }

    /// Returns whether a reader is to probe the disk now. Asked once for each probe.
    pub fn take_probe(&mut self, now: Ms) -> bool {
        let is_due = self.probe_at.is_some_and(|at| now >= at);
        if is_due {
            // If it never ends, reads that are given up say so.
            self.probe_at = Some(now + PROBE_MS);
        }
        is_due
    }

    /// Returns whether a read that succeeds would change the state: reads have failed or timed out before.
    pub fn suspects_reads(&self) -> bool {
        self.read_errors > 0 || self.timeouts > 0 || self.has_failed
    }

    pub fn state(&self) -> State {
        match self.rest {
            _ if self.has_failed => State::Failed,
            Some((Rest::Degraded, _)) => State::Degraded,
            Some((Rest::NoRoom, _)) => State::Full,
            None if self.lacks_segments => State::Full,
            None => State::Works,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ERROR: Event = Event::WriteFailed { no_room: false };
    const NO_ROOM: Event = Event::WriteFailed { no_room: true };

    #[test]
    fn five_failed_writes_a_minute_are_too_many() {
        let mut health = Health::default();
        // One in 20 s is written elsewhere.
        for second in (0..400).step_by(20) {
            assert_eq!(health.step(ERROR, second * 1000), State::Works);
            assert!(health.may_write(second * 1000));
        }
        let mut health = Health::default();
        for ms in 0..4 {
            assert_eq!(health.step(ERROR, ms), State::Works);
        }
        assert_eq!(health.step(ERROR, 4), State::Degraded);
        assert!(!health.may_write(5003) && health.may_write(5004));
        assert_eq!(health.state(), State::Degraded, "until a write has succeeded");
        // The one that is tried fails: a little longer.
        assert_eq!(health.step(ERROR, 5004), State::Degraded);
        assert!(!health.may_write(13_003) && health.may_write(13_004));
        assert_eq!(health.step(NO_ROOM, 13_004), State::Degraded);
        (0..10).for_each(|at| _ = health.step(ERROR, 100_000 * (at + 1)));
        assert!(!health.may_write(1_007_999) && health.may_write(1_008_000), "8 s at most");
        assert_eq!(health.step(Event::Written, 1_008_000), State::Works);
        assert_eq!(health.step(ERROR, 1_008_001), State::Works, "it is as good as new");
    }

    #[test]
    fn a_disk_without_room_is_tried_each_second() {
        let mut health = Health::default();
        assert_eq!(health.step(NO_ROOM, 10), State::Full);
        assert!(!health.may_write(1009) && health.may_write(1010));
        assert_eq!(health.step(NO_ROOM, 1010), State::Full);
        assert!(!health.may_write(2009));
        assert_eq!(health.step(Event::Written, 2010), State::Works);
        // Without segments what was gathered is written all the same.
        assert_eq!(health.step(Event::NoSegment, 3000), State::Full);
        assert!(health.may_write(3000));
        assert_eq!(health.step(Event::Written, 3000), State::Full);
        assert_eq!(health.step(Event::SegmentFreed, 3001), State::Works);
    }

    #[test]
    fn a_write_that_hangs_degrades_until_it_ends() {
        let mut health = Health::default();
        assert_eq!(health.trouble_ms(7), 0);
        assert_eq!(health.step(Event::WriteHangs, 0), State::Degraded);
        (1..100).for_each(|ms| _ = health.step(Event::WriteHangs, ms * 100));
        assert!(health.may_write(5000), "the rest did not grow");
        assert_eq!(health.trouble_ms(9998), 9998, "since it began");
        assert_eq!(health.step(Event::Written, 9999), State::Works);
        assert_eq!(health.trouble_ms(9999), 0);
    }

    #[test]
    fn one_bad_place_is_no_failed_disk() {
        let mut health = Health::default();
        (0..7).for_each(|ms| _ = health.step(Event::ReadFailed, ms));
        assert!(!health.take_probe(7));
        assert_eq!(health.step(Event::ReadFailed, 8), State::Works);
        assert!(health.take_probe(8) && !health.take_probe(8), "one at a time");
        assert_eq!(health.step(Event::Probed { works: true }, 9), State::Works);
        assert!(!health.suspects_reads() && !health.take_probe(5000));
        // The others say so too.
        (0..9).for_each(|ms| _ = health.step(Event::ReadFailed, 6000 + ms));
        assert!(health.take_probe(6010));
        assert_eq!(health.step(Event::Probed { works: false }, 6011), State::Failed);
        assert!(!health.may_write(6011) && !health.take_probe(6012) && health.take_probe(7011));
        assert_eq!(health.step(Event::Probed { works: true }, 7012), State::Works);
        assert!(health.may_write(7012));
    }

    /// After a failed read a probe decides: where nothing else is read, no other read could show that the
    /// disk is well.
    #[test]
    fn behind_one_failed_read_a_probe_decides() {
        for event in [Event::ReadFailed, Event::ReadTimedOut] {
            let mut health = Health::default();
            assert_eq!(health.step(event, 5), State::Works);
            assert!(health.suspects_reads() && !health.take_probe(1004));
            health.step(event, 900);
            assert!(health.take_probe(1005) && !health.take_probe(1006));
            assert_eq!(health.step(Event::Probed { works: true }, 1007), State::Works);
            assert!(!health.suspects_reads() && !health.take_probe(9999));
        }
    }

    #[test]
    fn reads_that_never_come_back_fail_the_disk_until_one_does() {
        let mut health = Health::default();
        (0..7).for_each(|ms| assert_eq!(health.step(Event::ReadTimedOut, ms), State::Works));
        // Slow, not gone.
        assert_eq!(health.step(Event::ReadDone, 8), State::Works);
        (0..7).for_each(|ms| assert_eq!(health.step(Event::ReadTimedOut, ms + 10), State::Works));
        assert_eq!(health.step(Event::ReadTimedOut, 20), State::Failed);
        assert_eq!(health.step(Event::ReadDone, 30), State::Works);
    }
}
