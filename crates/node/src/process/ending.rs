//! An end of the process that waits for its replicas: until when, and which clients wait for it. And one that
//! is decided: the client that has asked for it has no reply, and its connection ends with the process, when
//! no other client reaches the process any more.

use isotherm_keyspace::{SteadyMs, UnixMs, Waiter};
use isotherm_log::LogOffset;
use std::sync::atomic::{AtomicBool, AtomicI64, Ordering::SeqCst};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use crate::process::asked_end::Options;
use crate::replication::primary::Primary;

#[derive(Default)]
pub struct Ending {
    /// End of the process in any case, as a `SteadyMs`; 0 while nothing waits. Changed under the mutex.
    deadline_ms: AtomicI64,
    /// True once nothing stands in the way of the end any more. Never taken back.
    is_decided: AtomicBool,
    /// A thread looks whether something stands in its way, and writes the last file; or has found that
    /// nothing does.
    is_deciding: AtomicBool,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    options: Options,
    by_signal: bool,
    waiters: Vec<Arc<Waiter>>,
}

impl Ending {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// False if one is under way.
    pub fn begin(&self, options: Options, by_signal: bool, deadline: UnixMs) -> bool {
        let mut state = self.state();
        let is_first = !self.is_under_way();
        if is_first {
            // The list keeps clients that wait for a thread which is deciding.
            (state.options, state.by_signal) = (options, by_signal);
            self.deadline_ms.store(SteadyMs::of(deadline).0.max(1), SeqCst);
        }
        is_first
    }

    /// False if another thread decides, or has decided. Clients that wait for that one's end wait for this
    /// one too.
    pub fn begin_deciding(&self) -> bool {
        let _state = self.state();
        !self.is_deciding.swap(true, SeqCst)
    }

    pub fn is_deciding(&self) -> bool {
        self.is_deciding.load(SeqCst)
    }

    pub fn decide(&self) {
        self.is_decided.store(true, SeqCst);
    }

    pub fn is_under_way(&self) -> bool {
        self.deadline_ms.load(SeqCst) != 0
    }

    /// A second interrupt is not patient.
    pub fn is_by_signal(&self) -> bool {
        self.is_under_way() && self.state().by_signal
    }

    pub fn left_ms(&self, now: UnixMs) -> Option<i64> {
        Some(self.deadline_ms.load(SeqCst)).filter(|at| *at != 0).map(|at| at - SteadyMs::of(now).0)
    }

    /// A client waits for the end. False if there is none to wait for.
    pub fn add(&self, waiter: &Arc<Waiter>) -> bool {
        let mut state = self.state();
        let comes = [&self.is_deciding, &self.is_decided].into_iter().any(|flag| flag.load(SeqCst));
        let comes = comes || self.is_under_way();
        if comes {
            state.waiters.push(Arc::clone(waiter));
        }
        comes
    }

    /// The wait is over: all replicas have the log to its `end`, or the time is over.
    pub fn due(&self, primary: &Primary, end: LogOffset, now: UnixMs) -> Option<Options> {
        let left_ms = self.left_ms(now)?;
        let is_due = left_ms <= 0 || primary.lagging(end).is_empty();
        is_due.then(|| self.state().options)
    }

    /// Calls the end off, for the thread that decides or while the end waits for replicas. Returns the
    /// clients that have waited for it, if it was called off.
    pub fn end(&self, by_decider: bool) -> Option<Vec<Arc<Waiter>>> {
        let mut state = self.state();
        let waits = self.is_under_way() && !self.is_deciding.load(SeqCst);
        if !by_decider && !waits {
            return None;
        }
        self.deadline_ms.store(0, SeqCst);
        self.is_deciding.store(false, SeqCst);
        Some(std::mem::take(&mut state.waiters))
    }
}
