//! Allowed parts of a wait: what this program itself has done to the server, and what the machine
//! has.
//!
//! ```text
//!   disturbance   |--- DEBUG SLEEP 0.3 ---|            |--- SIGSTOP ... SIGCONT ---|
//!   a wait             |---------------- PING ... -------------------| reply
//!   allowed            |==================|            |=============|               and the rest counts
//! ```
//! An allowance begins before the disturbance is sent and ends when it has been answered, so it covers what
//! it should. It also has a longest time: a DEBUG SLEEP that never comes back is not allowed for without end.
//!
//! The machine has a part as well: a time in which a thread of the server was ready, and hardly got a core at
//! all, as the kernel counts it. A thread that shares its core gets on, if slowly, and a second is long. Of
//! all threads the one that waited longest decides.

use std::collections::BTreeMap;
use std::sync::Mutex;
use std::time::{Duration, Instant};

/// Operations that an allowance covers, as bits.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Cover(u8);

impl Cover {
    /// All operations of the server: DEBUG SLEEP, SIGSTOP, DEBUG RELOAD; CLIENT PAUSE ALL.
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

/// A time that is allowed for.
struct Span {
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

/// Threads that waited for a core in one sample.
struct Starved {
    until: Instant,
    time: Duration,
    threads: Waits,
}

#[derive(Default)]
pub struct Allowance {
    spans: Mutex<Vec<Span>>,
    starved: Mutex<Vec<Starved>>,
}

/// Names an allowance that has begun.
pub struct Begun(usize);

impl Allowance {
    /// Something begins that allows `cover` to wait, for `longest` at most.
    pub fn begin(&self, cover: Cover, longest: Duration) -> Begun {
        let from = Instant::now();
        let mut spans = self.spans.lock().expect("no thread panics with it");
        spans.push(Span { cover, from, to: from + longest });
        Begun(spans.len() - 1)
    }

    /// Ends an allowance, except for a `rest` that is still to come (a pause that has been asked for).
    pub fn end(&self, begun: &Begun, rest: Duration) {
        let mut spans = self.spans.lock().expect("no thread panics with it");
        let span = &mut spans[begun.0];
        span.to = span.to.min(Instant::now() + rest);
    }

    /// Returns how much of the time from `from` to `to` is allowed for the operations in `cover`.
    pub fn within(&self, cover: Cover, from: Instant, to: Instant) -> Duration {
        let all = self.spans.lock().expect("no thread panics with it");
        let mut spans: Vec<(Instant, Instant)> = all
            .iter()
            .filter(|span| span.cover.meets(cover))
            .map(|span| (span.from.max(from), span.to.min(to)))
            .filter(|(from, to)| from < to)
            .collect();
        spans.sort();
        let (mut sum, mut reached) = (Duration::ZERO, from);
        for (from, to) in spans {
            let from = from.max(reached);
            sum += to.saturating_duration_since(from);
            reached = reached.max(to);
        }
        // A thread that waits for a core may do so within a span: together they are no more than the time
        // itself.
        (sum + self.starved_within(from, to)).min(to.saturating_duration_since(from))
    }

    /// Threads of the server have waited for a core, each for so much of `time`, which ends now.
    pub fn note_starved(&self, time: Duration, threads: Waits) {
        self.note_starved_until(Instant::now(), time, threads);
    }

    fn note_starved_until(&self, until: Instant, time: Duration, mut threads: Waits) {
        threads.retain(|(_, waited)| *waited >= time.mul_f64(STARVED_SHARE));
        self.starved.lock().expect("no thread panics with it").push(Starved { until, time, threads });
    }

    fn starved_within(&self, from: Instant, to: Instant) -> Duration {
        let starved = self.starved.lock().expect("no thread panics with it");
        let mut sums: BTreeMap<u64, Duration> = BTreeMap::new();
        for sample in starved.iter().rev().take_while(|sample| sample.until > from) {
            let before = sample.until.saturating_duration_since(from);
            let behind = sample.until.saturating_duration_since(to);
            let shared = before.min(sample.time).saturating_sub(behind);
            for (thread, waited) in &sample.threads {
                *sums.entry(*thread).or_default() += shared.min(*waited);
            }
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
        let (at, starved) = (
            |seconds: u32| start + seconds * SECOND,
            |until: u32, time: u32, threads: &[u64]| {
                let threads = threads.iter().map(|thread| (*thread, time * SECOND)).collect();
                allowance.note_starved_until(start + until * SECOND, time * SECOND, threads);
            },
        );
        starved(1, 1, &[1]);
        starved(2, 1, &[2]);
        let within = |from: u32, to: u32| allowance.within(Cover::EXPIRY, at(from), at(to));
        assert_eq!(within(0, 10), SECOND, "one thread waited for a second, and then another one");
        starved(3, 1, &[1]);
        assert_eq!(within(0, 10), 2 * SECOND);
        assert_eq!((within(3, 10), within(2, 10)), (Duration::ZERO, SECOND));
        assert_eq!(
            allowance.within(Cover::EXPIRY, start, start + SECOND / 2),
            SECOND / 2,
            "a part of a sample"
        );
        starved(60, 50, &[3]);
        assert_eq!(within(0, 60), STARVED_MAX);
        allowance.note_starved(SECOND, vec![(4, SECOND / 2)]);
        assert_eq!(within(0, 2), SECOND, "a thread that runs now and then is not starved");
    }

    #[test]
    fn a_wait_for_a_core_within_a_disturbance_is_allowed_for_once() {
        let allowance = Allowance::default();
        let start = Instant::now();
        allowance.begin(Cover::EVERYTHING, 2 * SECOND);
        allowance.note_starved_until(start + SECOND, SECOND, vec![(1, SECOND)]);
        assert_eq!(allowance.within(Cover::EVERYTHING, start + SECOND / 2, start + SECOND), SECOND / 2);
    }
}
