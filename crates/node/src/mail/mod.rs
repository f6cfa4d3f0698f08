//! Mail: the messages that threads send each other, and the few bits that every worker reads before it runs a
//! command.
//!
//! ```text
//! any thread ---post---> [sender of worker 0]   WorkerMessage    one mailbox a thread; the first message wakes it
//!            \--------->  [sender of worker 1]
//!             \-------->  [sender of control]   ControlMessage
//! tasks       one word, read before every command: pauses, MONITOR, backpressure
//! ```
//! **Backpressure.** Messages that are not delivered yet take memory, and time of the workers that deliver
//! them. Each counts its bytes once for each receiver. When they are much, commands that cause more of them
//! wait (`Tasks::BACKPRESSURE`) until half of it is gone: the worker whose delivery makes the difference
//! posts `WorkerMessage::Drained` to the workers that have connections waiting. In the same way commands that
//! write, and only these, wait (`Tasks::WRITERS_WAIT`) for the log, a snapshot, or values on their way to
//! disk.
//!
//! **What this module does not know:** the node. What sends a message gets a `&Mail`.

pub mod beat;
pub mod message;
pub mod tasks;

use isotherm_reactor::Sender;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicUsize, Ordering};

use crate::observe::holds;
use message::{ControlMessage, FeederMessage, WorkerMessage};
use tasks::Tasks;

/// Bytes of undelivered messages above which commands that cause more of them wait, and at which these
/// continue.
const QUEUED_BYTES_MAX: usize = 64 << 20;
const QUEUED_BYTES_LOW: usize = QUEUED_BYTES_MAX / 2;

pub struct Mail {
    tasks: AtomicU32,
    workers: Box<[Sender<WorkerMessage>]>,
    control: Sender<ControlMessage>,
    /// Sender to the thread that feeds replicas; unset before the first replica has come.
    feeder: OnceLock<Sender<FeederMessage>>,
    /// True for each worker with a connection that waits until undelivered messages take less.
    drain_awaited: Box<[AtomicBool]>,
    /// The log of changes has as much to be written as it may.
    is_log_full: AtomicBool,
    /// True while the bytes that are kept for the snapshot under way are as many as they may be.
    is_snapshot_full: AtomicBool,
    /// Memory is above its limit, and values are on their way out of it.
    is_sinker_behind: AtomicBool,
    queued: Queued,
}

/// On a cache line of its own: it changes with every message, and the word next to it is read before every
/// command.
#[repr(align(64))]
#[derive(Default)]
struct Queued {
    bytes: AtomicUsize,
}

impl Mail {
    pub fn new(workers: Box<[Sender<WorkerMessage>]>, control: Sender<ControlMessage>) -> Mail {
        let drain_awaited = workers.iter().map(|_| AtomicBool::new(false)).collect();
        Mail {
            tasks: AtomicU32::new(0),
            workers,
            control,
            feeder: OnceLock::new(),
            drain_awaited,
            is_log_full: AtomicBool::new(false),
            is_snapshot_full: AtomicBool::new(false),
            is_sinker_behind: AtomicBool::new(false),
            queued: Queued::default(),
        }
    }

    // ---- tasks ----

    #[inline]
    pub fn tasks(&self) -> Tasks {
        Tasks(self.tasks.load(Ordering::Acquire))
    }

    /// Sets exactly `tasks` of those in `among` from now on.
    pub fn set_tasks(&self, among: Tasks, tasks: Tasks) {
        let set = |word: u32| Some(word & !among.0 | tasks.0);
        let _ = self.tasks.fetch_update(Ordering::AcqRel, Ordering::Acquire, set);
    }

    // ---- messages ----

    pub fn worker_count(&self) -> usize {
        self.workers.len()
    }

    pub fn post(&self, worker: usize, message: WorkerMessage) {
        self.workers[worker].post(message);
    }

    /// Posts a message. A message to the worker `from`, which posts it, does not wake it. If another thread
    /// posted it, the worker would sleep on it and on all messages after it: only the first message wakes.
    pub fn post_from(&self, from: Option<u16>, worker: u16, message: WorkerMessage) {
        debug_assert!(
            from.is_none_or(|from| holds::thread() == Some(usize::from(from))),
            "the poster is the thread that runs"
        );
        let sender = &self.workers[usize::from(worker)];
        if from == Some(worker) { sender.leave(message) } else { sender.post(message) }
    }

    /// To every worker.
    pub fn post_all(&self, from: Option<u16>, message: impl Fn() -> WorkerMessage) {
        (0..self.workers.len() as u16).for_each(|worker| self.post_from(from, worker, message()));
    }

    /// Returns whether something lies in the mailbox of `worker`.
    pub fn has_messages(&self, worker: u16) -> bool {
        self.workers[usize::from(worker)].has_messages()
    }

    pub fn post_control(&self, message: ControlMessage) {
        self.control.post(message);
    }

    pub fn set_feeder(&self, feeder: Sender<FeederMessage>) {
        assert!(self.feeder.set(feeder).is_ok(), "one thread feeds replicas");
    }

    /// To the thread that feeds replicas, if there is one.
    pub fn post_feeder(&self, message: FeederMessage) {
        if let Some(feeder) = self.feeder.get() {
            feeder.post(message);
        }
    }

    // ---- backpressure ----

    /// Undelivered messages, in bytes.
    pub fn queued_bytes(&self) -> usize {
        self.queued.bytes.load(Ordering::Relaxed)
    }

    /// A message of `bytes` is posted that a client's command has caused.
    pub fn add_queued(&self, bytes: usize) {
        let before = self.queued.bytes.fetch_add(bytes, Ordering::AcqRel);
        if before + bytes > QUEUED_BYTES_MAX {
            self.set_tasks(Tasks::BACKPRESSURE, Tasks::BACKPRESSURE);
        }
    }

    /// Subtracts `bytes` of a message that was delivered.
    pub fn subtract_queued(&self, bytes: usize) {
        let before = self.queued.bytes.fetch_sub(bytes, Ordering::SeqCst);
        if before > QUEUED_BYTES_LOW && before - bytes <= QUEUED_BYTES_LOW {
            self.set_tasks(Tasks::BACKPRESSURE, Tasks(0));
            self.post_drained();
        }
    }

    pub fn is_log_full(&self) -> bool {
        self.is_log_full.load(Ordering::SeqCst)
    }

    pub fn is_snapshot_full(&self) -> bool {
        self.is_snapshot_full.load(Ordering::SeqCst)
    }

    fn is_full(&self) -> bool {
        self.is_log_full() || self.is_snapshot_full() || self.is_sinker_behind()
    }

    /// Sets whether the bytes of the log that are to be written are as many as they may be. Commands that
    /// write wait until they are less.
    #[cold]
    pub fn set_log_full(&self, is_full: bool) {
        self.set_full(&self.is_log_full, is_full);
    }

    /// Sets whether the bytes that are kept for the snapshot under way are as many as they may be. Returns
    /// whether this is a change.
    #[cold]
    pub fn set_snapshot_full(&self, is_full: bool) -> bool {
        self.set_full(&self.is_snapshot_full, is_full) != is_full
    }

    pub fn is_sinker_behind(&self) -> bool {
        self.is_sinker_behind.load(Ordering::SeqCst)
    }

    /// Commands that write wait until values that are on their way to disk have left memory.
    #[cold]
    pub fn set_sinker_behind(&self, is_behind: bool) {
        self.set_full(&self.is_sinker_behind, is_behind);
    }

    fn set_full(&self, mark: &AtomicBool, is_full: bool) -> bool {
        let before = mark.swap(is_full, Ordering::SeqCst);
        if is_full {
            self.set_tasks(Tasks::WRITERS_WAIT, Tasks::WRITERS_WAIT);
        } else if !self.makes_writers_wait() {
            self.post_drained();
        }
        before
    }

    /// Returns whether undelivered messages take too much. The thread that sets the task may come late: the
    /// bytes decide.
    pub fn has_backpressure(&self) -> bool {
        if self.tasks().has(Tasks::BACKPRESSURE)
            && self.queued.bytes.load(Ordering::SeqCst) <= QUEUED_BYTES_LOW
        {
            self.set_tasks(Tasks::BACKPRESSURE, Tasks(0));
        }
        self.tasks().has(Tasks::BACKPRESSURE)
    }

    /// Returns whether the log, a snapshot or the disk of values lags. The marks decide, as bytes do there.
    pub fn makes_writers_wait(&self) -> bool {
        if self.tasks().has(Tasks::WRITERS_WAIT) && !self.is_full() {
            self.set_tasks(Tasks::WRITERS_WAIT, Tasks(0));
        }
        self.tasks().has(Tasks::WRITERS_WAIT)
    }

    /// Returns whether what a connection waits for is so still; asked by its worker. If it is,
    /// `WorkerMessage::Drained` comes when it is over: here the flag is raised before the bytes and marks are
    /// read, and a delivery subtracts its bytes before it reads the flag, so one of the two sees the other.
    pub fn awaits_drain(&self, worker: u16, writes: bool) -> bool {
        self.drain_awaited[usize::from(worker)].store(true, Ordering::SeqCst);
        if writes { self.makes_writers_wait() } else { self.has_backpressure() }
    }

    /// Undelivered messages have come to take little: workers with connections that wait for that get a
    /// notice.
    fn post_drained(&self) {
        for (worker, is_awaited) in self.drain_awaited.iter().enumerate() {
            if is_awaited.swap(false, Ordering::SeqCst) {
                self.post(worker, WorkerMessage::Drained);
            }
        }
    }
}
