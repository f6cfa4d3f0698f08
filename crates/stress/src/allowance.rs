//! When the server is excused for not answering: what this program itself has done to it.
//!
//! ```text
//!   disturbance   |--- DEBUG SLEEP 0.3 ---|            |--- SIGSTOP ... SIGCONT ---|
//!   a wait             |---------------- PING ... -------------------| reply
//!   excused            |==================|            |=============|               and the rest counts
//! ```
//! An excuse begins before the disturbance is sent and ends when it has been answered, so it covers what it should. It also
//! has a longest time that it may take: a DEBUG SLEEP that never comes back is no excuse for ever.
//!
//! The machine is an excuse as well: a time in which a thread of the server was ready, and hardly got a core at all, as the
//! kernel counts it. One that shares its core gets on, if slowly, and a second is long. Of all threads the one that waited
//! longest decides.

use std::collections::BTreeMap;
use std::sync::Mutex;
use std::time::{Duration, Instant};

/// Whom an excuse covers: bits.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Cover(u8);

impl Cover {
    /// Nothing runs at all: DEBUG SLEEP, SIGSTOP, DEBUG RELOAD; CLIENT PAUSE ALL.
    pub const EVERYTHING: Cover = Cover(1);
    /// Commands that write, and expiry: CLIENT PAUSE WRITE.
    pub const WRITES: Cover = Cover(2);
    /// Expiry alone: DEBUG SET-ACTIVE-EXPIRE 0.
    pub const EXPIRY: Cover = Cover(4);

    pub const fn or(self, other: Cover) -> Cover {
        Cover(self.0 | other.0)
    }

    fn meets(self, other: Cover) -> bool {
        self.0 & other.0 != 0
    }
}

struct Excuse {
    cover: Cover,
    from: Instant,
    /// At first the latest end, then the real one.
    to: Instant,
}

/// Waiting for a core is believed up to this: threads that spin for ever also make each other wait.
const STARVED_MAX: Duration = Duration::from_secs(5);

/// A thread that waits for so much of a time has not really run in it.
const STARVED_SHARE: f64 = 0.9;

/// Threads by their number, and how long each waited for a core.
pub type Waits = Vec<(u64, Duration)>;

#[derive(Default)]
pub struct Allowance {
    excuses: Mutex<Vec<Excuse>>,
    /// Until when, and how much of the time before, each thread of the server waited for a core.
    starved: Mutex<Vec<(Instant, Waits)>>,
}

/// Names an excuse that has begun.
pub struct Begun(usize);

impl Allowance {
    /// Something begins that excuses `cover` for `longest` at most.
    pub fn begin(&self, cover: Cover, longest: Duration) -> Begun {
        let from = Instant::now();
        let mut excuses = self.excuses.lock().expect("no thread panics with it");
        excuses.push(Excuse { cover, from, to: from + longest });
        Begun(excuses.len() - 1)
    }

    /// It is over; `rest` of it is still to come (a pause that has been asked for).
    pub fn end(&self, begun: &Begun, rest: Duration) {
        let mut excuses = self.excuses.lock().expect("no thread panics with it");
        let excuse = &mut excuses[begun.0];
        excuse.to = excuse.to.min(Instant::now() + rest);
    }

    /// How much of the time from `from` to `to` is excused for those whom `cover` names.
    pub fn within(&self, cover: Cover, from: Instant, to: Instant) -> Duration {
        let excuses = self.excuses.lock().expect("no thread panics with it");
        let mut spans: Vec<(Instant, Instant)> = excuses
            .iter()
            .filter(|excuse| excuse.cover.meets(cover))
            .map(|excuse| (excuse.from.max(from), excuse.to.min(to)))
            .filter(|(from, to)| from < to)
            .collect();
        spans.sort();
        let (mut sum, mut reached) = (Duration::ZERO, from);
        for (from, to) in spans {
            let from = from.max(reached);
            sum += to.saturating_duration_since(from);
            reached = reached.max(to);
        }
        sum + self.starved_within(from, to)
    }

    /// Threads of the server have waited for a core, each for so much of `time`, which ends now.
    pub fn note_starved(&self, time: Duration, mut waited: Waits) {
        waited.retain(|(_, waited)| *waited >= time.mul_f64(STARVED_SHARE));
        self.starved.lock().expect("no thread panics with it").push((Instant::now(), waited));
    }

    fn starved_within(&self, from: Instant, to: Instant) -> Duration {
        let starved = self.starved.lock().expect("no thread panics with it");
        let mut sums: BTreeMap<u64, Duration> = BTreeMap::new();
        for (until, threads) in starved.iter().rev().take_while(|(until, _)| *until > from) {
            let counted = threads.iter().filter(|_| *until <= to);
            counted.for_each(|(thread, waited)| *sums.entry(*thread).or_default() += *waited);
        }
        sums.into_values().max().unwrap_or_default().min(STARVED_MAX)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    #[test]
    fn spans_that_overlap_count_once() {
        let allowance = Allowance::default();
        let start = Instant::now();
        allowance.begin(Cover::EVERYTHING, SECOND);
        allowance.begin(Cover::EVERYTHING, SECOND);
        allowance.begin(Cover::WRITES, 3 * SECOND);
        let near = |left: Duration, right: Duration| left.abs_diff(right) < SECOND / 10;
        assert!(near(allowance.within(Cover::EVERYTHING, start, start + 10 * SECOND), SECOND));
        let both = Cover::EVERYTHING.or(Cover::WRITES);
        assert!(near(allowance.within(both, start, start + 10 * SECOND), 3 * SECOND));
        assert!(near(allowance.within(both, start + 2 * SECOND, start + 10 * SECOND), SECOND));
        assert_eq!(allowance.within(Cover::EXPIRY, start, start + 10 * SECOND), Duration::ZERO);
    }

    #[test]
    fn an_end_shortens_and_never_prolongs() {
        let allowance = Allowance::default();
        let start = Instant::now();
        let sleep = allowance.begin(Cover::EVERYTHING, SECOND);
        allowance.end(&sleep, 5 * SECOND);
        assert!(allowance.within(Cover::EVERYTHING, start, start + 9 * SECOND) <= SECOND + SECOND / 10);
        allowance.end(&sleep, Duration::ZERO);
        assert!(allowance.within(Cover::EVERYTHING, start, start + 9 * SECOND) < SECOND / 2);
    }

    #[test]
    fn a_busy_machine_is_believed_for_a_while() {
        let allowance = Allowance::default();
        let start = Instant::now();
        allowance.note_starved(SECOND, vec![(1, SECOND), (2, SECOND / 2)]);
        allowance.note_starved(SECOND, vec![(1, Duration::ZERO), (2, SECOND)]);
        assert_eq!(allowance.within(Cover::EXPIRY, start, Instant::now()), SECOND);
        allowance.note_starved(SECOND, vec![(1, SECOND)]);
        assert_eq!(allowance.within(Cover::EXPIRY, start, Instant::now()), 2 * SECOND);
        allowance.note_starved(60 * SECOND, vec![(3, 60 * SECOND)]);
        assert_eq!(allowance.within(Cover::EXPIRY, start, Instant::now()), STARVED_MAX);
    }
}
