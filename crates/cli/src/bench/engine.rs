//! One test: connections over workers, tickets for batches, and the end.
//!
//! ```text
//! worker: ready connections -> ticket? -> fill in numbers -> send -> ... -> replies -> latency -> ticket? -> ...
//! ```
//! Tickets are handed out until the requests are used up or the time is over; a worker ends when none of its
//! connections waits for a reply. The caller watches meanwhile, a few times a second.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc::{self, RecvTimeoutError};
use std::time::{Duration, Instant};

use super::histogram::Histogram;
use super::nodes::Nodes;
use super::options::Options;
use super::template::{Numbers, Template};
use super::worker::Worker;
use crate::Fallible;

/// Between two looks of the watcher.
const WATCH: Duration = Duration::from_millis(250);

/// State that the workers of a test share.
pub struct Test {
    pub options: Options,
    pub template: Template,
    pub numbers: Numbers,
    pub nodes: Option<Arc<Nodes>>,
    begun: Instant,
    issued: AtomicU64,
    finished: AtomicU64,
    /// Sum of the latencies of all finished requests, for the progress line.
    latency_sum_us: AtomicU64,
    warming_up: AtomicBool,
    /// Raised when the warm-up is over: histograms begin anew.
    epoch: AtomicU64,
    /// Nanoseconds since `begun` at which the next batch may be sent, under a limit of requests a second.
    next_ns: AtomicU64,
    failed: AtomicBool,
}

/// Progress of a test.
#[derive(Clone, Copy, Debug)]
pub struct Progress {
    pub finished: u64,
    pub latency_sum_us: u64,
    pub elapsed: Duration,
    pub warming_up: bool,
}

pub struct Outcome {
    pub histogram: Histogram,
    pub finished: u64,
    pub elapsed: Duration,
}

impl Test {
    pub fn new(options: Options, template: Template, numbers: Numbers, nodes: Option<Arc<Nodes>>) -> Test {
        Test {
            warming_up: AtomicBool::new(options.warmup.is_some()),
            options,
            template,
            numbers,
            nodes,
            begun: Instant::now(),
            issued: AtomicU64::new(0),
            finished: AtomicU64::new(0),
            latency_sum_us: AtomicU64::new(0),
            epoch: AtomicU64::new(0),
            next_ns: AtomicU64::new(0),
            failed: AtomicBool::new(false),
        }
    }

    /// Runs the test. `watch` is called now and then.
    pub fn run(self, mut watch: impl FnMut(&Test, Progress)) -> Fallible<Outcome> {
        let count = self.options.threads.max(1);
        let clients = self.options.clients;
        let digits = self.options.precision;
        let test = Arc::new(self);
        // Connections are opened before the clock runs.
        let workers = (0..count)
            .map(|i| Worker::new(test.clone(), i, (i..clients).step_by(count)))
            .collect::<Fallible<Vec<_>>>()?;
        let (sender, ended) = mpsc::channel();
        let mut begun = Instant::now();
        let threads: Vec<_> = workers
            .into_iter()
            .map(|worker| {
                let (sender, test) = (sender.clone(), test.clone());
                std::thread::spawn(move || {
                    let outcome = worker.run();
                    test.failed.fetch_or(outcome.is_err(), Ordering::Relaxed);
                    // The watcher waits for as many words as there are workers, and no other thread reads.
                    sender.send(outcome).ok();
                })
            })
            .collect();
        drop(sender);
        let mut histogram = Histogram::new(digits);
        let mut left = threads.len();
        while left > 0 {
            match ended.recv_timeout(WATCH) {
                Ok(outcome) => {
                    histogram.merge(&outcome?);
                    left -= 1;
                }
                Err(RecvTimeoutError::Timeout) => {
                    test.end_warmup(&mut begun);
                    watch(&test, test.progress(begun));
                }
                Err(RecvTimeoutError::Disconnected) => return Err("A worker died".to_string()),
            }
        }
        let elapsed = begun.elapsed();
        histogram.check_invariants();
        Ok(Outcome { histogram, finished: test.finished.load(Ordering::Relaxed), elapsed })
    }

    /// Opens the connections and leaves it at that, until one of them ends.
    pub fn wait_for_ever(self) -> Fallible {
        let clients = self.options.clients;
        Worker::new(Arc::new(self), 0, 0..clients)?.wait_for_ever()
    }

    fn progress(&self, begun: Instant) -> Progress {
        Progress {
            finished: self.finished.load(Ordering::Relaxed),
            latency_sum_us: self.latency_sum_us.load(Ordering::Relaxed),
            elapsed: begun.elapsed(),
            warming_up: self.warming_up.load(Ordering::Relaxed),
        }
    }

    fn end_warmup(&self, begun: &mut Instant) {
        let Some(warmup) = self.options.warmup else { return };
        if !self.warming_up.load(Ordering::Relaxed) || begun.elapsed() < warmup {
            return;
        }
        *begun = Instant::now();
        self.epoch.store(self.begun.elapsed().as_nanos() as u64, Ordering::Relaxed);
        for counter in [&self.issued, &self.finished, &self.latency_sum_us] {
            counter.store(0, Ordering::Relaxed);
        }
        self.warming_up.store(false, Ordering::Release);
    }

    /// Changes when the warm-up ends; 0 before, then the nanosecond of the end.
    pub fn epoch(&self) -> u64 {
        self.epoch.load(Ordering::Relaxed)
    }

    /// True if `requests` more may be sent.
    pub fn take_ticket(&self, requests: u64) -> bool {
        if self.failed.load(Ordering::Relaxed) {
            return false;
        }
        let before = self.issued.fetch_add(requests, Ordering::Relaxed);
        if self.warming_up.load(Ordering::Acquire) {
            return true;
        }
        match self.options.duration {
            Some(duration) => {
                let since = Duration::from_nanos(self.epoch());
                self.begun.elapsed().saturating_sub(since) < duration
            }
            None => before < self.options.requests,
        }
    }

    /// True once enough requests have been answered. After a warm-up some are still under way then; they
    /// count no more.
    pub fn is_over(&self) -> bool {
        self.options.duration.is_none()
            && !self.warming_up.load(Ordering::Acquire)
            && self.finished.load(Ordering::Relaxed) >= self.options.requests
    }

    pub fn note_finished(&self, requests: u64, latency_us: u64) {
        self.finished.fetch_add(requests, Ordering::Relaxed);
        self.latency_sum_us.fetch_add(latency_us * requests, Ordering::Relaxed);
    }

    /// Reserves a batch's turn under the limit of requests per second. Returns how long the batch has to wait
    /// for it.
    pub fn wait_for_rate(&self, requests: u64) -> Duration {
        if self.options.rps == 0 {
            return Duration::ZERO;
        }
        let cost = requests * 1_000_000_000 / self.options.rps;
        let now = self.begun.elapsed().as_nanos() as u64;
        let mut at = self.next_ns.load(Ordering::Relaxed);
        loop {
            let mine = at.max(now);
            match self.next_ns.compare_exchange_weak(at, mine + cost, Ordering::Relaxed, Ordering::Relaxed) {
                Ok(_) => return Duration::from_nanos(mine - now),
                Err(other) => at = other,
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn test(options: Options) -> Test {
        Test::new(options, Template::of(&["PING"]), Numbers::new(0, false), None)
    }

    #[test]
    fn tickets_end_with_the_requests() {
        let test = test(Options { requests: 10, ..Options::default() });
        assert_eq!((0..10).filter(|_| test.take_ticket(3)).count(), 4, "0, 3, 6 and 9 are below 10");
    }

    #[test]
    fn the_warm_up_costs_no_tickets() {
        let options = Options { requests: 2, warmup: Some(Duration::ZERO), ..Options::default() };
        let test = test(options);
        assert!((0..10).all(|_| test.take_ticket(1)));
        test.end_warmup(&mut Instant::now());
        assert_eq!((0..10).filter(|_| test.take_ticket(1)).count(), 2);
        assert_ne!(test.epoch(), 0);
    }

    #[test]
    fn a_rate_puts_batches_in_a_line() {
        let test = test(Options { rps: 1000, ..Options::default() });
        let waits: Vec<u128> = (0..4).map(|_| test.wait_for_rate(10).as_millis()).collect();
        assert!(waits[0] == 0 && waits.is_sorted() && (25..=30).contains(&waits[3]), "{waits:?}");
    }
}
