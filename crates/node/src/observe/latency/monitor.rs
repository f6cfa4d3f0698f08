//! Events that took longer than `latency-monitor-threshold`: by kind the last 160 seconds in which there was
//! one, and the worst of each second.
//!
//! The measuring thread compares with the threshold first, so the lock is met only by what was slow.

use isotherm_stdx::steps;
use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use isotherm_config::Config;
use isotherm_runtime::time::unix_now;

/// Seconds remembered of each kind.
const SAMPLES_MAX: usize = 160;

/// Kinds of measured events, with Valkey's names.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Event {
    Command,
    FastCommand,
    CommandUnblocking,
    ExpireCycle,
    EvictionCycle,
    ActiveDefragCycle,
    /// A write to the append-only file, and by what else the disk had to do meanwhile.
    AofWrite,
    AofWritePendingFsync,
    AofWriteActiveChild,
    AofWriteAlone,
    /// A sync under `appendfsync always`.
    AofFsyncAlways,
    /// The manifest was replaced.
    AofRename,
    /// The cut of a snapshot.
    Fork,
    /// The file of a save that failed or was ended was removed.
    RdbUnlinkTempFile,
    /// A value was read from swap-dir, with all tries.
    SwapRead,
    /// A lock was held: those that the events above held, and those of the housekeeping.
    Lock,
}

impl Event {
    pub fn name(self) -> &'static str {
        match self {
            Event::Command => "command",
            Event::FastCommand => "fast-command",
            Event::CommandUnblocking => "command-unblocking",
            Event::ExpireCycle => "expire-cycle",
            Event::EvictionCycle => "eviction-cycle",
            Event::ActiveDefragCycle => "active-defrag-cycle",
            Event::AofWrite => "aof-write",
            Event::AofWritePendingFsync => "aof-write-pending-fsync",
            Event::AofWriteActiveChild => "aof-write-active-child",
            Event::AofWriteAlone => "aof-write-alone",
            Event::AofFsyncAlways => "aof-fsync-always",
            Event::AofRename => "aof-rename",
            Event::Fork => "fork",
            Event::RdbUnlinkTempFile => "rdb-unlink-temp-file",
            // COMPAT(observability): LATENCY has the event `swap-read` (a value was read from disk). Why:
            // with swap-mode it is what takes time.
            Event::SwapRead => "swap-read",
            // COMPAT(observability): LATENCY has the event `lock` (a lock of the keyspace was held longer
            // than the threshold; INFO locks has the cause), `expire-cycle` includes waits for locks,
            // `active-defrag-cycle` is compaction, `fork` the cut of a snapshot, and `aof-write` and
            // `aof-fsync-always` are of threads beside the workers. The events of Valkey's main thread are
            // missing, and `aof-fstat` and `aof-rewrite-diff-write`. Why: nothing like them is done.
            Event::Lock => "lock",
        }
    }
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Sample {
    pub unix_seconds: i64,
    pub latency_ms: u64,
}

/// Monitor to which a thread reports events that took long.
#[derive(Clone, Copy)]
pub struct Spikes<'n> {
    pub monitor: &'n Monitor,
    pub config: &'n Config,
}

impl Spikes<'_> {
    /// Notes an event if it took as long as `latency-monitor-threshold`.
    pub fn note(self, event: Event, took: Duration) {
        self.monitor.note(self.config.latency_threshold_ms(), event, took);
    }

    /// Runs a call, and notes an event if it took as long as `latency-monitor-threshold`.
    pub fn time<R>(self, event: Event, call: impl FnOnce() -> R) -> R {
        let begun = Instant::now();
        let result = call();
        self.note(event, begun.elapsed());
        result
    }
}

/// Samples of one kind of event.
#[derive(Clone, Default, Debug)]
pub struct Series {
    /// Oldest first, at most `SAMPLES_MAX`.
    pub samples: Vec<Sample>,
    pub max_ms: u64,
    pub sum_ms: u64,
    pub count: u64,
}

#[derive(Default)]
pub struct Monitor {
    series: Mutex<BTreeMap<&'static str, Series>>,
}

impl Monitor {
    /// Notes an event if it took as long as the threshold; without one nothing is noted.
    pub fn note(&self, threshold_ms: Option<u64>, event: Event, took: Duration) {
        if threshold_ms.is_some_and(|ms| took.as_millis() >= u128::from(ms)) {
            self.add(event, took, unix_now().0.div_euclid(1000));
        }
    }

    pub fn add(&self, event: Event, latency: Duration, unix_seconds: i64) {
        self.lock().entry(event.name()).or_default().add(latency.as_millis() as u64, unix_seconds);
    }

    /// Forgets one kind of event, or all; returns how many kinds.
    pub fn reset(&self, name: Option<&[u8]>) -> usize {
        let mut series = self.lock();
        let before = series.len();
        steps::note(1 + before as u64);
        series.retain(|kind, _| name.is_some_and(|name| !kind.as_bytes().eq_ignore_ascii_case(name)));
        before - series.len()
    }

    pub fn get(&self, name: &[u8]) -> Option<Series> {
        self.lock().iter().find(|(kind, _)| kind.as_bytes() == name).map(|(_, series)| series.clone())
    }

    pub fn all(&self) -> Vec<(&'static str, Series)> {
        self.lock().iter().map(|(kind, series)| (*kind, series.clone())).collect()
    }

    fn lock(&self) -> MutexGuard<'_, BTreeMap<&'static str, Series>> {
        self.series.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Series {
    fn add(&mut self, latency_ms: u64, unix_seconds: i64) {
        self.max_ms = self.max_ms.max(latency_ms);
        self.sum_ms += latency_ms;
        self.count += 1;
        if let Some(last) = self.samples.last_mut().filter(|last| last.unix_seconds == unix_seconds) {
            last.latency_ms = last.latency_ms.max(latency_ms);
            return;
        }
        if self.samples.len() == SAMPLES_MAX {
            self.samples.remove(0);
        }
        self.samples.push(Sample { unix_seconds, latency_ms });
    }

    /// Figures of the samples for LATENCY DOCTOR.
    pub fn analysis(&self, now_seconds: i64) -> Analysis {
        let count = self.samples.len().max(1) as u64;
        let average_ms = self.samples.iter().map(|sample| sample.latency_ms).sum::<u64>() / count;
        let deviations = self.samples.iter().map(|sample| sample.latency_ms.abs_diff(average_ms));
        let oldest = self.samples.iter().map(|sample| sample.unix_seconds).min().unwrap_or(now_seconds);
        Analysis {
            average_ms,
            mean_deviation_ms: deviations.sum::<u64>() / count,
            period_seconds: (now_seconds - oldest).max(1) as f64 / count as f64,
        }
    }
}

#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Analysis {
    pub average_ms: u64,
    pub mean_deviation_ms: u64,
    /// Between two samples.
    pub period_seconds: f64,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_worst_of_a_second_is_kept() {
        let monitor = Monitor::default();
        for (ms, second) in [(5, 1), (9, 1), (7, 1), (3, 4)] {
            monitor.add(Event::Command, Duration::from_millis(ms), second);
        }
        let series = monitor.get(b"command").expect("it was added to");
        let samples: Vec<_> = series.samples.iter().map(|s| (s.unix_seconds, s.latency_ms)).collect();
        assert_eq!(samples, [(1, 9), (4, 3)]);
        assert_eq!((series.max_ms, series.sum_ms, series.count), (9, 24, 4));
        let expected = Analysis { average_ms: 6, mean_deviation_ms: 3, period_seconds: 2.0 };
        assert_eq!(series.analysis(5), expected);
    }

    #[test]
    fn old_seconds_leave() {
        let mut series = Series::default();
        (0..1000).for_each(|second| series.add(1, second));
        assert_eq!(series.samples.len(), SAMPLES_MAX);
        assert_eq!(series.samples[0].unix_seconds, 1000 - SAMPLES_MAX as i64);
    }

    #[test]
    fn resetting_counts_kinds() {
        let monitor = Monitor::default();
        monitor.add(Event::Command, Duration::ZERO, 1);
        monitor.add(Event::ExpireCycle, Duration::ZERO, 1);
        assert_eq!(monitor.reset(Some(b"nothing")), 0);
        assert_eq!(monitor.reset(Some(b"COMMAND")), 1);
        assert_eq!(monitor.reset(None), 1);
        assert!(monitor.all().is_empty());
    }
}
