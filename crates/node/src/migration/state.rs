//! The MIGRATEs of the node: those that wait for a thread, and what its threads share.

use std::collections::VecDeque;
use std::io;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Condvar, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::Duration;

use super::flights::Flights;
use super::job::Job;
use super::request::Request;
use super::sockets::{Sockets, Target};

/// MIGRATEs that are under way at a time; more wait for the end of one.
const THREADS_MAX: usize = 4;
/// Time between two looks at unused sockets.
const SWEEP: Duration = Duration::from_secs(1);

type Spawn = Box<dyn Fn() -> io::Result<()> + Send + Sync>;

#[derive(Default)]
pub struct Migrations {
    line: Mutex<Line>,
    work: Condvar,
    sockets: Mutex<Sockets>,
    pub flights: Flights,
    /// Turn to count: its holder counts under the number that all these threads have in the statistics. It is
    /// taken before anything is locked.
    turn: Mutex<()>,
    spawn: OnceLock<Spawn>,
    /// Bytes of values that are on their way, as they are sent.
    bytes: AtomicU64,
}

/// Bytes of values that one MIGRATE has on their way, until it is dropped.
pub struct Carried<'m> {
    total: &'m AtomicU64,
    bytes: u64,
}

impl Carried<'_> {
    pub fn set(&mut self, bytes: usize) {
        let bytes = bytes as u64;
        self.total.fetch_add(bytes.wrapping_sub(self.bytes), Relaxed);
        self.bytes = bytes;
    }
}

impl Drop for Carried<'_> {
    fn drop(&mut self) {
        self.set(0);
    }
}

#[derive(Default)]
struct Line {
    jobs: VecDeque<Job>,
    threads: usize,
    /// Threads that wait for a job.
    idle: usize,
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Migrations {
    /// Sets the function that starts a thread. Called once.
    pub fn attach(&self, spawn: impl Fn() -> io::Result<()> + Send + Sync + 'static) {
        assert!(self.spawn.set(Box::new(spawn)).is_ok(), "it is said once");
    }

    /// The client of this job is parked. It is answered when the job is over. Those that no thread can be had
    /// for come back.
    pub fn begin(&self, job: Job) -> Result<(), (Vec<Job>, io::Error)> {
        let mut line = lock(&self.line);
        line.jobs.push_back(job);
        if line.idle >= line.jobs.len() || line.threads == THREADS_MAX {
            self.work.notify_one();
            return Ok(());
        }
        line.threads += 1;
        let spawned = self.spawn.get().map_or(Err(io::ErrorKind::Unsupported.into()), |spawn| spawn());
        let Err(error) = spawned else { return Ok(()) };
        line.threads -= 1;
        if line.threads > 0 { Ok(()) } else { Err((line.jobs.drain(..).collect(), error)) }
    }

    /// The next job; it is waited for.
    pub fn next(&self) -> Job {
        let mut line = lock(&self.line);
        loop {
            if let Some(job) = line.jobs.pop_front() {
                return job;
            }
            line.idle += 1;
            let sweeps = self.cached_sockets() > 0;
            line = match sweeps {
                true => self.work.wait_timeout(line, SWEEP).unwrap_or_else(PoisonError::into_inner).0,
                false => self.work.wait(line).unwrap_or_else(PoisonError::into_inner),
            };
            line.idle -= 1;
            if sweeps {
                lock(&self.sockets).close_idle();
            }
        }
    }

    pub fn carry(&self) -> Carried<'_> {
        Carried { total: &self.bytes, bytes: 0 }
    }

    /// Returns the memory that values on their way take.
    pub fn memory_bytes(&self) -> u64 {
        self.bytes.load(Relaxed)
    }

    pub fn turn(&self) -> MutexGuard<'_, ()> {
        lock(&self.turn)
    }

    /// Connections to targets that are kept.
    pub fn cached_sockets(&self) -> usize {
        lock(&self.sockets).count()
    }

    pub fn take_socket(&self, request: &Request) -> Option<Target> {
        lock(&self.sockets).take(&request.host, &request.port)
    }

    pub fn keep_socket(&self, target: Target) {
        lock(&self.sockets).put(target);
    }
}
