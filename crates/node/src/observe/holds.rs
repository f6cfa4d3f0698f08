//! Times for which locks are held, by cause: INFO locks, the metrics `isotherm_lock_*`, the LATENCY event
//! `lock`.
//!
//! ```text
//!   wait for the lock | hold: the command, those it serves | next command of the batch
//!                     ^ from                               ^ to
//! ```
//! A hold is counted for its cause: the command that ran, or the housekeeping that no command asked for. The
//! time of waiting for a lock is not part of a hold. Holds of every partition are counted apart, as gates:
//! they stopped all threads.
//!
//! Short holds cost nothing more. Commands that are FAST or take constant time read no clock for it: their
//! time is known anyway (`CommandClock`), and they are counted only if they held for `LONG_HOLD` or more.
//! Each hold of any other command is counted. A clock is read for it only if there was other work between the
//! command before and the lock (keys may have been evicted), or between the command and the end of its hold
//! (other clients were served).
//!
//! Builds with debug assertions also measure each hold by the thread's processor time, which does not grow
//! while the thread waits for a CPU.

use std::cell::Cell;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

pub use crate::observe::hold_table::{HoldCause, HoldTimes, HoldTotals, Work};
use crate::observe::hold_table::{HoldTable, Sum, Sums, Tags};
use crate::observe::latency::monitor::{Event, Monitor};
use crate::observe::stats::Stats;
use isotherm_config::Config;
use isotherm_keyspace::HoldWatch;

/// Shorter holds of commands that are FAST or take constant time are not counted: reading the clock for each
/// would cost more time than its measurement is worth. A command that waits for such a hold waits less than a
/// round trip in a network.
pub const LONG_HOLD: Duration = Duration::from_micros(100);

/// Time between two samples of the figures of the last second.
pub const SAMPLE_INTERVAL: Duration = Duration::from_secs(1);

fn sums<'a>(tables: impl Iterator<Item = &'a HoldTable>, tags: Tags) -> Sums {
    let mut sums = Sums::default();
    tables.for_each(|table| table.add_to(&mut sums, tags));
    sums
}

impl Stats {
    /// A second is over. Only the control thread says so.
    pub fn sample_holds(&self) {
        let tags = self.holds.tags();
        let next = |tags: u32| Some(tags & !0xffff | u32::from((tags as u16).wrapping_add(1)));
        let _ = self.holds.tags.fetch_update(Relaxed, Relaxed, next);
        let now = sums(self.threads().iter().map(|thread| &thread.holds), tags);
        let mut sampled = self.holds.sampled();
        let since = |(key, sum): (&(HoldCause, bool), &Sum)| {
            let before = sampled.sums.get(key).copied().unwrap_or_default();
            let holds = sum.holds - before.holds;
            (*key, Sum { holds, ticks: sum.ticks - before.ticks, ..*sum })
        };
        sampled.second = now.iter().map(since).filter(|(_, sum)| sum.holds > 0).collect();
        sampled.sums = now;
    }

    /// CONFIG RESETSTAT.
    pub fn reset_holds(&self) {
        let _ = self.holds.tags.fetch_add(1 << 16, Relaxed);
        let mut sampled = self.holds.sampled();
        sampled.baseline = sums(self.threads().iter().map(|thread| &thread.holds), self.holds.tags());
    }

    /// Returns the holds since the start or the last reset, by cause.
    pub fn hold_totals(&self) -> Vec<HoldTotals> {
        // In this order: what is taken off was counted before.
        let sampled = self.holds.sampled();
        let now = sums(self.threads().iter().map(|thread| &thread.holds), self.holds.tags());
        let times = |holds, ticks, longest| HoldTimes {
            holds,
            usec: self.micros(ticks),
            longest_usec: self.micros(longest),
        };
        let totals = |((cause, is_gate), sum): ((HoldCause, bool), Sum)| {
            let [before, second] = [&sampled.baseline, &sampled.second]
                .map(|sums| sums.get(&(cause, is_gate)).copied().unwrap_or_default());
            HoldTotals {
                cause,
                is_gate,
                all: times(sum.holds - before.holds, sum.ticks - before.ticks, sum.longest_ticks),
                last_second: times(second.holds, second.ticks, second.longest_of_second_ticks),
                longest_cpu_us: sum.cpu_ns_max / 1000,
            }
        };
        let is_seen = |totals: &HoldTotals| totals.all.holds > 0 || totals.longest_cpu_us > 0;
        now.into_iter().map(totals).filter(is_seen).collect()
    }

    fn cause_of(&self, work: Work) -> HoldCause {
        (self.thread(0).commands.len() + work as usize) as HoldCause
    }
}

/// Destinations of a hold: counters for each hold, the latency monitor for long ones.
#[derive(Clone, Copy)]
pub struct HoldSinks<'n> {
    pub stats: &'n Stats,
    pub latency: &'n Monitor,
    pub config: &'n Config,
}

impl HoldSinks<'_> {
    /// A thread has held locks for `ticks`.
    pub fn note(self, thread: usize, cause: HoldCause, is_gate: bool, ticks: u64) {
        let (line, tags) = (self.stats.thread(thread).holds.line(cause, is_gate), self.stats.holds.tags());
        line.holds.add(1);
        line.ticks.add(ticks);
        line.longest.raise(tags.reset, ticks);
        line.of_second[usize::from(tags.second % 2)].raise(tags.second, ticks);
        let micros = self.stats.micros(ticks);
        // The threshold is at least a millisecond.
        if micros >= 1000 {
            self.latency.note(self.config.latency_threshold_ms(), Event::Lock, Duration::from_micros(micros));
        }
    }

    /// Notes the processor time of the thread during a hold; only the longest is kept.
    pub fn note_cpu(self, thread: usize, cause: HoldCause, is_gate: bool, ns: u64) {
        let line = self.stats.thread(thread).holds.line(cause, is_gate);
        line.longest_cpu_ns.raise(self.stats.holds.tags().reset, ns);
    }
}

/// The processor time of this thread in nanoseconds. 0 without debug assertions: asking takes longer than
/// most holds.
#[inline(always)]
pub fn cpu_ns() -> u64 {
    #[cfg(debug_assertions)]
    {
        isotherm_runtime::time::thread_cpu().as_nanos() as u64
    }
    #[cfg(not(debug_assertions))]
    0
}

// ---- what the keyspace locks by itself ----

/// Number of this thread, and the cause for which it takes locks.
#[derive(Clone, Copy)]
struct Worker {
    sinks: HoldSinks<'static>,
    thread: usize,
    cause: HoldCause,
}

thread_local! {
    static WORKER: Cell<Option<Worker>> = const { Cell::new(None) };
    static CPU_FROM: Cell<u64> = const { Cell::new(0) };
}

/// Called when a partition was locked for a step of work, and when it is about to be unlocked.
pub const WATCH: HoldWatch = HoldWatch { begin, end };

fn begin() -> u64 {
    CPU_FROM.set(cpu_ns());
    WORKER.get().map_or(0, |worker| worker.sinks.stats.now_ticks())
}

fn end(from: u64) {
    let Some(Worker { sinks, thread, cause }) = WORKER.get() else { return };
    sinks.note(thread, cause, false, sinks.stats.now_ticks().saturating_sub(from));
    if cfg!(debug_assertions) {
        sinks.note_cpu(thread, cause, false, cpu_ns().saturating_sub(CPU_FROM.get()));
    }
}

/// Counts that this thread has held every partition since `from`.
pub fn note_gate(from: u64) {
    let Some(Worker { sinks, thread, cause }) = WORKER.get() else { return };
    sinks.note(thread, cause, true, sinks.stats.now_ticks().saturating_sub(from));
}

/// Makes this thread count as number `thread` of the statistics from here on.
pub fn enter(sinks: HoldSinks<'static>, thread: usize) {
    WORKER.set(Some(Worker { sinks, thread, cause: sinks.stats.cause_of(Work::Housekeeping) }));
}

/// The number of this thread in the statistics: that of a worker, or the one after them for the control
/// thread.
pub fn thread() -> Option<usize> {
    WORKER.get().map(|worker| worker.thread)
}

/// Counts the locks of this thread for `command` until another cause is set.
pub fn enter_command(command: HoldCause) {
    WORKER.set(WORKER.get().map(|worker| Worker { cause: command, ..worker }));
}

/// Until it is dropped, what this thread locks is for that work.
#[must_use]
pub struct Working(Option<Worker>);

pub fn working(work: Work) -> Working {
    let before = WORKER.get();
    WORKER.set(before.map(|worker| Worker { cause: worker.sinks.stats.cause_of(work), ..worker }));
    Working(before)
}

impl Drop for Working {
    fn drop(&mut self) {
        WORKER.set(self.0);
    }
}

#[cfg(test)]
mod tests {
    #[test]
    fn seconds_and_resets_are_distinguished() {
        let stats = crate::observe::stats::Stats::new(2, 3);
        let hold = |thread: usize, cause, is_gate, ticks| {
            let (line, tags) = (stats.thread(thread).holds.line(cause, is_gate), stats.holds.tags());
            line.holds.add(1);
            line.ticks.add(ticks);
            line.longest.raise(tags.reset, ticks);
            line.of_second[usize::from(tags.second % 2)].raise(tags.second, ticks);
        };
        let shown = || {
            let totals = stats.hold_totals();
            totals.iter().map(|t| (t.cause, t.is_gate, t.all.holds, t.last_second.holds)).collect::<Vec<_>>()
        };
        assert_eq!(shown(), []);
        hold(0, 1, false, 1_000_000);
        hold(1, 1, false, 3_000_000);
        hold(1, 8, true, 2_000_000);
        assert_eq!(shown(), [(1, false, 2, 0), (8, true, 1, 0)]);
        stats.sample_holds();
        assert_eq!(shown(), [(1, false, 2, 2), (8, true, 1, 1)]);
        let first = stats.hold_totals()[0];
        assert_eq!(first.last_second, first.all);
        assert_eq!(first.all.longest_usec, stats.micros(3_000_000));
        hold(0, 1, false, 5);
        stats.sample_holds();
        assert_eq!(shown(), [(1, false, 3, 1), (8, true, 1, 0)]);
        assert_eq!(stats.hold_totals()[0].last_second.longest_usec, 0);
        stats.reset_holds();
        assert_eq!(shown(), []);
        hold(0, 8, true, 10_000);
        assert_eq!(shown(), [(8, true, 1, 0)]);
        assert_eq!(stats.hold_totals()[0].all.longest_usec, stats.micros(10_000));
    }
}
