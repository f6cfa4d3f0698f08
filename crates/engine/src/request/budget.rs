//! The budget of a turn of the event loop: what a worker moves before it looks at its sockets again.
//!
//! ```text
//! a turn     events | mailbox | deliveries | what goes on      parts: 2 ms or 4 MB each
//! a part     share | share | ...                               a connection each: 2 ms or 1 MB
//! a share    piece | piece | ...                               256 KB; the clock is looked at in between
//! ```
//! Bytes read, bytes written, messages handed out and commands are paid from one budget. With nothing left of
//! it a connection moves one small piece, so that usual replies leave at once, and continues in the next
//! turn.
//!
//! 256 KB are some 60 us, and 4 MB about a millisecond: a client that has little to say waits for some
//! milliseconds, however many others move much, and a turn more costs those a microsecond.

use crate::request::clock::CommandClock;

/// Time that one connection is read, and its requests are run, before the others of its worker have their
/// turn; and how long a part of a turn takes, the last share apart. Requests that were read by then may take
/// as long again. 2 ms are some thousand requests, so a pipeline is seldom interrupted.
const SHARE_MICROS: u64 = 2_000;
const SHARE_BYTES: usize = 1 << 20;
/// A part of a turn serves four connections that move much.
const PART_BYTES: usize = 4 * SHARE_BYTES;
/// Bytes that a call of the system moves at most.
const PIECE_BYTES_MAX: usize = 256 << 10;
/// Bytes of a call with nothing left: the replies of a batch are seldom more.
const PIECE_BYTES_MIN: usize = 64 << 10;
/// Work without bytes, such as a message for one receiver, after which the clock is looked at: some
/// microseconds.
const UNITS_PER_LOOK: usize = 64;

pub struct Budget {
    clock: quanta::Clock,
    /// Length of a share, and of a part.
    ticks: u64,
    part_ends: u64,
    share_ends: u64,
    /// Bytes that are left.
    part_bytes: usize,
    share_bytes: usize,
    /// Units paid since the clock was looked at.
    units: usize,
    /// Bytes paid in this turn.
    moved_bytes: u64,
}

impl Budget {
    pub fn new(clock: &CommandClock) -> Budget {
        Budget {
            clock: quanta::Clock::new(),
            ticks: clock.ticks_of_micros(SHARE_MICROS),
            part_ends: 0,
            share_ends: 0,
            part_bytes: PART_BYTES,
            share_bytes: SHARE_BYTES,
            units: 0,
            moved_bytes: 0,
        }
    }

    /// Begins a part of a turn, at `now`.
    #[inline]
    pub fn begin_part(&mut self, now: u64) {
        self.part_ends = now + self.ticks;
        self.part_bytes = PART_BYTES;
        self.units = 0;
    }

    /// Begins the share of a connection, at `now`.
    #[inline]
    pub fn begin_share(&mut self, now: u64) {
        self.share_ends = now + self.ticks;
        self.share_bytes = SHARE_BYTES.min(self.part_bytes);
    }

    /// Begins the share of one of many connections that are written one after the other, without a look at
    /// the clock: its time is that of the part.
    #[inline]
    pub fn begin_share_of_part(&mut self) {
        self.share_ends = self.part_ends;
        self.share_bytes = SHARE_BYTES.min(self.part_bytes);
    }

    /// Returns how much the next call of the system may move.
    #[inline]
    pub fn piece_bytes(&self) -> usize {
        self.share_bytes.clamp(PIECE_BYTES_MIN, PIECE_BYTES_MAX)
    }

    /// Takes off bytes that were read or written.
    #[inline]
    pub fn pay(&mut self, bytes: usize) {
        self.share_bytes = self.share_bytes.saturating_sub(bytes);
        self.part_bytes = self.part_bytes.saturating_sub(bytes);
        self.moved_bytes += bytes as u64;
    }

    /// Takes off work that is no bytes, which ends the part if its time is over.
    #[inline]
    pub fn pay_units(&mut self, units: usize) {
        self.units += units;
        if self.units >= UNITS_PER_LOOK {
            self.units = 0;
            if self.clock.raw() >= self.part_ends {
                self.part_bytes = 0;
            }
        }
    }

    /// Returns whether the current connection has had its share.
    #[inline]
    pub fn is_share_over(&self) -> bool {
        self.share_bytes == 0 || self.clock.raw() >= self.share_ends
    }

    /// Returns whether the requests that were read are not to be run to their end either, at `now`.
    #[inline]
    pub fn is_share_exceeded(&self, now: u64) -> bool {
        now >= self.share_ends + self.ticks
    }

    /// Returns whether others that move much wait for the next part.
    #[inline]
    pub fn is_part_over(&self) -> bool {
        self.part_bytes == 0 || self.clock.raw() >= self.part_ends
    }

    /// Returns whether a part is over by what was paid, without a look at the clock.
    #[inline]
    pub fn is_part_spent(&self) -> bool {
        self.part_bytes == 0
    }

    /// Returns the bytes that were paid since the last call, at the end of a turn.
    #[inline]
    pub fn take_moved_bytes(&mut self) -> u64 {
        std::mem::take(&mut self.moved_bytes)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn budget() -> Budget {
        let mut budget = Budget::new(&CommandClock::default());
        let now = budget.clock.raw();
        // Time is not what ends it here.
        budget.ticks = u64::MAX / 4;
        budget.begin_part(now);
        budget.begin_share(now);
        budget
    }

    #[test]
    fn shares_and_parts_end_by_bytes() {
        let mut budget = budget();
        let mut shares = 0;
        while !budget.is_part_over() {
            let now = budget.clock.raw();
            budget.begin_share(now);
            let mut moved = 0;
            while !budget.is_share_over() {
                assert_eq!(budget.piece_bytes(), PIECE_BYTES_MAX);
                budget.pay(PIECE_BYTES_MAX);
                moved += PIECE_BYTES_MAX;
            }
            assert_eq!(moved, SHARE_BYTES);
            shares += 1;
        }
        assert_eq!(shares, PART_BYTES / SHARE_BYTES);
        budget.begin_share_of_part();
        assert!(budget.is_share_over() && budget.is_part_spent());
        assert_eq!(budget.piece_bytes(), PIECE_BYTES_MIN, "a small reply leaves at once");
        budget.pay(100);
        assert_eq!(budget.take_moved_bytes(), PART_BYTES as u64 + 100);
        assert_eq!(budget.take_moved_bytes(), 0);
    }

    #[test]
    fn they_end_by_time() {
        let mut budget = budget();
        assert!(!budget.is_share_over() && !budget.is_part_over());
        let now = budget.clock.raw();
        budget.ticks = 0;
        budget.begin_part(now);
        budget.begin_share(now);
        assert!(budget.is_share_over() && budget.is_part_over() && budget.is_share_exceeded(now));
        assert!(!budget.is_part_spent());
        (0..UNITS_PER_LOOK).for_each(|_| budget.pay_units(1));
        assert!(budget.is_part_spent(), "units look at the clock");
    }
}
