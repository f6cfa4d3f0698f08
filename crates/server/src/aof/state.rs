//! What other threads see of the append-only file, and what they ask of its writer.

use isotherm_log::LogOffset;
use isotherm_log::writer::Failure;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::SeqCst};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;

use super::driver::Inbox;

pub struct AofState {
    pub inbox: Inbox,
    /// Also says whether there is an append-only file.
    writer: Mutex<Option<JoinHandle<()>>>,
    /// A power failure takes nothing before this place of the log.
    durable: AtomicU64,
    failure: Mutex<Option<Failure>>,
    /// `aof-integrity-check`: commits are written with their lines.
    has_lines: AtomicBool,
    /// `aof-timestamp-enabled`: a line at the beginning of each second that has commands.
    has_timestamps: AtomicBool,
    /// By worker: it has replies that wait.
    waits: Box<[AtomicBool]>,
}

impl AofState {
    pub fn new(workers: usize) -> AofState {
        AofState {
            inbox: Inbox::new(),
            writer: Mutex::new(None),
            durable: AtomicU64::new(0),
            failure: Mutex::new(None),
            has_lines: AtomicBool::new(true),
            has_timestamps: AtomicBool::new(false),
            waits: (0..workers).map(|_| AtomicBool::new(false)).collect(),
        }
    }

    pub fn set_on(&self, writer: JoinHandle<()>) {
        *self.writer() = Some(writer);
    }

    pub fn is_on(&self) -> bool {
        self.writer().is_some()
    }

    /// The writing thread, which is to end.
    pub fn take_writer(&self) -> Option<JoinHandle<()>> {
        self.writer().take()
    }

    fn writer(&self) -> MutexGuard<'_, Option<JoinHandle<()>>> {
        self.writer.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub fn durable(&self) -> LogOffset {
        LogOffset(self.durable.load(SeqCst))
    }

    /// More is durable. `wake` is called for each worker that waits for that.
    pub fn set_durable(&self, offset: LogOffset, wake: impl Fn(u16)) {
        self.durable.store(offset.0, SeqCst);
        for (worker, waits) in self.waits.iter().enumerate() {
            if waits.load(SeqCst) && waits.swap(false, SeqCst) {
                wake(worker as u16);
            }
        }
    }

    /// A worker has replies that wait for `until`, and asks to be woken when more is durable. Whether they need not wait.
    pub fn is_durable_after_asking(&self, worker: u16, until: LogOffset) -> bool {
        self.waits[usize::from(worker)].store(true, SeqCst);
        self.durable() >= until
    }

    pub fn has_lines(&self) -> bool {
        self.has_lines.load(SeqCst)
    }

    pub fn set_has_lines(&self, has_lines: bool) {
        self.has_lines.store(has_lines, SeqCst);
    }

    pub fn has_timestamps(&self) -> bool {
        self.has_timestamps.load(SeqCst)
    }

    pub fn set_has_timestamps(&self, has_timestamps: bool) {
        self.has_timestamps.store(has_timestamps, SeqCst);
    }

    pub fn refuse_writes(&self, failure: Option<Failure>) {
        *self.failure.lock().unwrap_or_else(PoisonError::into_inner) = failure;
    }

    /// Why writes are refused, if they are.
    pub fn failure(&self) -> Option<Failure> {
        *self.failure.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
