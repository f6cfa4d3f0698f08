//! An end of the process that waits for its replicas: until when, and which clients wait for it. And one that is decided: who has asked
//! for it has no reply, and its connection ends with the process, when no other reaches it any more.

use isotherm_keyspace::{UnixMs, Waiter};
use isotherm_log::LogOffset;
use std::sync::atomic::{AtomicBool, AtomicI64, Ordering::SeqCst};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use crate::process::shutdown::Options;
use crate::replication::primary::Primary;

#[derive(Default)]
pub struct Ending {
    /// When the process ends in any case, in Unix milliseconds; 0 while nothing waits. Changed under the mutex.
    deadline_ms: AtomicI64,
    /// Nothing stands in its way any more. Never taken back.
    is_decided: AtomicBool,
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
    pub fn begin(&self, options: Options, by_signal: bool, deadline_ms: i64) -> bool {
        let mut state = self.state();
        let is_first = !self.is_under_way();
        if is_first {
            *state = State { options, by_signal, waiters: Vec::new() };
            self.deadline_ms.store(deadline_ms.max(1), SeqCst);
        }
        is_first
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
        Some(self.deadline_ms.load(SeqCst)).filter(|at| *at != 0).map(|at| at - now.0)
    }

    /// A client waits for the end. False if there is none to wait for.
    pub fn add(&self, waiter: &Arc<Waiter>) -> bool {
        let mut state = self.state();
        let comes = self.is_under_way() || self.is_decided.load(SeqCst);
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

    /// It is called off. Those who have waited, if there was something to call off.
    pub fn end(&self) -> Option<Vec<Arc<Waiter>>> {
        let mut state = self.state();
        let was_under_way = self.deadline_ms.swap(0, SeqCst) != 0;
        was_under_way.then(|| std::mem::take(&mut state.waiters))
    }
}
