//! State of the link to the primary that other threads see: INFO, ROLE, CLIENT LIST. The link's thread writes
//! it, all others read it.

use isotherm_replication::link::Phase;
use std::sync::atomic::{AtomicBool, AtomicI64, AtomicU8, AtomicU64, Ordering::Relaxed};
use std::sync::{Mutex, PoisonError};

use isotherm_runtime::time::steady_now;

#[derive(Default)]
pub struct LinkView {
    phase: AtomicU8,
    /// Times at which bytes came last, and at which the link went down, in seconds of the steady clock; 0 for
    /// never.
    heard_seconds: AtomicI64,
    down_since_seconds: AtomicI64,
    /// The snapshot that is received: its bytes, 0 where only a mark ends it, -1 until that is known; and
    /// those that came.
    pub sync_bytes: AtomicI64,
    pub sync_read_bytes: AtomicI64,
    /// Offsets of the stream that have come, and that were applied.
    pub read_offset: AtomicU64,
    /// Commands of the stream that this server does not know.
    pub unknown_commands: AtomicU64,
    /// The primary has come back without data, and is not followed; REPLICAOF, if it is repeated, says that
    /// it is to be.
    pub refuses_empty: AtomicBool,
    pub accepts_empty: AtomicBool,
    /// True while the link is down because there was no memory for a command of the stream.
    pub lacks_memory: AtomicBool,
    /// The error reply to the command of the stream that has taken the link down.
    failed_with: Mutex<Option<String>>,
    /// Errors that commands of the stream have replied with.
    pub unexpected_errors: AtomicU64,
}

const PHASES: [Phase; 5] =
    [Phase::Resting, Phase::Connecting, Phase::Handshake, Phase::Transfer, Phase::Connected];

impl LinkView {
    pub fn phase(&self) -> Phase {
        PHASES[usize::from(self.phase.load(Relaxed))]
    }

    pub fn set_phase(&self, phase: Phase) {
        let at = PHASES.iter().position(|one| *one == phase).expect("all are listed");
        self.phase.store(at as u8, Relaxed);
    }

    /// A command of the stream was answered with this error, and stops the link; or none does any more.
    pub fn set_failed_with(&self, error: Option<String>) {
        *self.failed_with.lock().unwrap_or_else(PoisonError::into_inner) = error;
    }

    pub fn failed_with(&self) -> Option<String> {
        self.failed_with.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Something has come.
    pub fn note_heard(&self) {
        self.heard_seconds.store(steady_seconds(), Relaxed);
    }

    pub fn silent_seconds(&self) -> i64 {
        (steady_seconds() - self.heard_seconds.load(Relaxed)).max(0)
    }

    /// The link is down from now on.
    pub fn note_down(&self) {
        self.down_since_seconds.store(steady_seconds(), Relaxed);
    }

    /// The link is up, or was not before.
    pub fn forget_down(&self) {
        self.down_since_seconds.store(0, Relaxed);
    }

    /// Returns for how long the link has been down, if it was up before.
    pub fn down_seconds(&self) -> Option<i64> {
        let since = Some(self.down_since_seconds.load(Relaxed)).filter(|since| *since != 0);
        since.map(|since| (steady_seconds() - since).max(0))
    }
}

/// Returns the current seconds, by the clock that nothing sets.
fn steady_seconds() -> i64 {
    steady_now().0 / 1000
}
