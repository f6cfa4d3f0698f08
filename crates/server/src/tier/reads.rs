//! Reads that clients wait for: a queue, and threads that take from it.
//!
//! ```text
//!   fetch(keys, worker, message)   [job][job][job]   one place in the queue for each thread that may help
//!                                     |
//!   reader: next key of the job, read; the last one to end hands all over, then posts the message
//! ```
//! All values of a command are handed over at one moment, so that the first one is not dropped while the last one is read.

use isotherm_commands::call::{ColdKey, ColdKeys};
use std::collections::VecDeque;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};

/// Reads under way: an SSD answers some 30 at once as fast as one.
pub const READERS: usize = 16;

/// The values of one command. `M` is the message that ends it, `F` what was read of a key.
struct Job<M, F> {
    keys: ColdKeys,
    next: AtomicUsize,
    left: AtomicUsize,
    fetched: Mutex<Vec<(usize, F)>>,
    end: Mutex<Option<(u16, M)>>,
}

pub struct Reads<M, F> {
    queue: Mutex<VecDeque<Arc<Job<M, F>>>>,
    some: Condvar,
}

/// A job whose keys were all read.
pub struct Done<M, F> {
    job: Arc<Job<M, F>>,
}

impl<M, F> Default for Reads<M, F> {
    fn default() -> Reads<M, F> {
        Reads { queue: Mutex::default(), some: Condvar::new() }
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl<M, F> Reads<M, F> {
    /// The message goes to the worker when all of it is there.
    pub fn add(&self, keys: ColdKeys, worker: u16, message: M) {
        let count = keys.keys.len();
        let job = Arc::new(Job {
            keys,
            next: AtomicUsize::new(0),
            left: AtomicUsize::new(count),
            fetched: Mutex::default(),
            end: Mutex::new(Some((worker, message))),
        });
        let helpers = count.clamp(1, READERS);
        lock(&self.queue).extend(std::iter::repeat_n(job, helpers));
        match helpers {
            1 => self.some.notify_one(),
            _ => self.some.notify_all(),
        }
    }

    /// Places in the queue.
    pub fn waiting(&self) -> usize {
        lock(&self.queue).len()
    }

    /// Waits for a job, and reads of it until no key is left. It is done for the one that has read the last.
    pub fn help(&self, read: impl Fn(&ColdKey) -> Option<F>) -> Option<Done<M, F>> {
        let job = self.take();
        loop {
            let at = job.next.fetch_add(1, Ordering::Relaxed);
            let cold = job.keys.keys.get(at)?;
            if let Some(fetched) = read(cold) {
                lock(&job.fetched).push((at, fetched));
            }
            if job.left.fetch_sub(1, Ordering::AcqRel) == 1 {
                return Some(Done { job });
            }
        }
    }

    fn take(&self) -> Arc<Job<M, F>> {
        let mut queue = lock(&self.queue);
        loop {
            match queue.pop_front() {
                Some(job) => return job,
                None => queue = self.some.wait(queue).unwrap_or_else(PoisonError::into_inner),
            }
        }
    }
}

impl<M, F> Done<M, F> {
    /// What was read; then the message, and for which worker.
    pub fn end(self, mut hand_over: impl FnMut(&ColdKey, &F)) -> Option<(u16, M)> {
        let job = &self.job;
        for (at, fetched) in lock(&job.fetched).drain(..) {
            hand_over(&job.keys.keys[at], &fetched);
        }
        lock(&job.end).take()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use isotherm_commands::spec::Need;
    use isotherm_keyspace::Db;

    fn keys(count: u8) -> ColdKeys {
        let key = |number| ColdKey { db: Db(0), key: [number].into(), need: Need::All, home: false };
        ColdKeys { keys: (0..count).map(key).collect() }
    }

    /// Several threads, many jobs: each key is read once, each message comes once, behind all of its keys.
    #[test]
    fn each_key_is_read_once_and_each_message_comes_once() {
        let reads: Arc<Reads<usize, u8>> = Arc::default();
        let places: usize = (0..100).map(|number: usize| (number % 40).clamp(1, READERS)).sum();
        (0..100).for_each(|number| reads.add(keys((number % 40).max(1) as u8), 3, number));
        let ended = Mutex::new(vec![0; 100]);
        std::thread::scope(|scope| {
            for thread in 0..5 {
                let (reads, ended) = (&reads, &ended);
                scope.spawn(move || {
                    for _ in 0..places / 5 + usize::from(thread < places % 5) {
                        let Some(done) = reads.help(|cold| Some(cold.key[0])) else { continue };
                        let mut seen = Vec::new();
                        let (worker, number) = done
                            .end(|cold, read| {
                                assert_eq!(cold.key[0], *read);
                                seen.push(*read);
                            })
                            .expect("it comes once");
                        seen.sort_unstable();
                        assert_eq!(seen, (0..(number % 40).max(1) as u8).collect::<Vec<_>>());
                        assert_eq!(worker, 3);
                        ended.lock().unwrap()[number] += 1;
                    }
                });
            }
        });
        assert_eq!(reads.waiting(), 0);
        assert!(ended.lock().unwrap().iter().all(|count| *count == 1));
    }
}
