//! The end that a signal has asked for, as far as it is refused, called off, or under way: what the guard,
//! the control thread and INFO share.

use isotherm_reactor::signals;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::SeqCst};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use isotherm_runtime::time::{elapsed, instant};

// COMPAT(server): A signal whose RDB file cannot be written is tried for 7 seconds more; then the next one
// ends the process without the file, with exit code 1. Valkey tries once a signal. Why: a disk that is full
// for a moment is no reason to be killed.
/// Time for which a file that cannot be written is tried again. A hang is found before.
pub const ATTEMPTS: Duration = Duration::from_secs(7);
/// Between two attempts, and between two lines about the last one.
pub const BETWEEN: Duration = Duration::from_secs(1);

/// Outcome of the end that a signal asks for.
#[derive(Default)]
pub struct Wish {
    /// Set while it is neither refused nor called off.
    is_on: AtomicBool,
    /// The control thread acts.
    is_acting: AtomicBool,
    /// The files are being closed.
    is_closing: AtomicBool,
    /// Attempts that have failed, each with an answer of the disk.
    answers: AtomicU64,
    /// Moment since which the process stays in spite of the last signal.
    refused: Mutex<Option<Instant>>,
    /// Something was not saved.
    has_lost: AtomicBool,
    /// SHUTDOWN NOSAVE has come while another end was under way.
    is_insisted: AtomicBool,
}

impl Wish {
    fn refused(&self) -> MutexGuard<'_, Option<Instant>> {
        self.refused.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub fn is_on(&self) -> bool {
        self.is_on.load(SeqCst)
    }

    /// A signal has come.
    pub fn begin(&self) {
        self.is_on.store(true, SeqCst);
    }

    /// The control thread acts on it, or has done so.
    pub fn is_acting(&self) -> bool {
        self.is_acting.load(SeqCst)
    }

    pub fn set_acting(&self, is_acting: bool) {
        self.is_acting.store(is_acting, SeqCst);
    }

    pub fn note_closing(&self) {
        self.is_closing.store(true, SeqCst);
    }

    pub fn is_closing(&self) -> bool {
        self.is_closing.load(SeqCst)
    }

    /// Attempts that have failed, each with an answer.
    pub fn answers(&self) -> u64 {
        self.answers.load(SeqCst)
    }

    /// An attempt has failed: until the next one everything continues. `is_answer`: something has answered
    /// that it cannot be, other than a first base that is still being written.
    pub fn note_failure(&self, is_answer: bool) {
        self.answers.fetch_add(u64::from(is_answer), SeqCst);
        signals::forget();
    }

    /// The process stays. The next signal ends it.
    pub fn refuse(&self) {
        *self.refused() = Some(instant());
        self.is_on.store(false, SeqCst);
        signals::forget();
    }

    /// Returns how long ago that was.
    pub fn refused_for(&self) -> Option<Duration> {
        self.refused().map(elapsed)
    }

    /// SHUTDOWN ABORT, unless the control thread acts. Whether there was something to call off.
    pub fn abort(&self) -> bool {
        !self.is_acting.load(SeqCst) && self.call_off()
    }

    /// The end is not asked for any more. Whether it was.
    pub fn call_off(&self) -> bool {
        signals::forget();
        let was_refused = self.refused().take().is_some();
        self.is_on.swap(false, SeqCst) || was_refused
    }

    /// SHUTDOWN NOSAVE: the end that is under way waits for nothing any more, and saves nothing.
    pub fn set_insisted(&self, is_insisted: bool) {
        self.is_insisted.store(is_insisted, SeqCst);
    }

    pub fn is_insisted(&self) -> bool {
        self.is_insisted.load(SeqCst)
    }

    pub fn note_loss(&self) {
        self.has_lost.store(true, SeqCst);
    }

    pub fn has_lost(&self) -> bool {
        self.has_lost.load(SeqCst)
    }
}
