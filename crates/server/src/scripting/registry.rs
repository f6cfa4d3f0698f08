//! The runs of scripts of the node: which may begin, which are asked to end, which have leases.
//!
//! **The token.** A script may meet keys that it was not called with, and leases them then, while it has leases already. Two such
//! scripts could wait for each other, so there is one token, which a script has from its beginning to its end. What it waits for is
//! a script without a token, and that waits for nothing.
//!
//! **No connection is forgotten.** One that has to wait for a lease or the token is parked, and its worker tries again when
//! `WorkerMessage::ScriptsChanged` comes, which is posted after each end of a suspended run, and after the token was given back if
//! a worker had asked for it without success.

use isotherm_keyspace::{Keyspace, LeaseId, Waiter};
use std::num::NonZeroU64;
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use crate::mail::Mail;
use crate::mail::message::WorkerMessage;
use crate::mail::tasks::Tasks;

/// Where a run stands: SCRIPT KILL asks for its end.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Running {
    None,
    Clean,
    /// It has written.
    Dirty,
    Killed,
}

/// What other threads see of a run. One after the other may use the same mark.
pub struct RunMark {
    pub id: LeaseId,
    running: AtomicU8,
    is_long: AtomicBool,
}

impl RunMark {
    pub fn begin(&self) {
        self.is_long.store(false, Ordering::Relaxed);
        self.running.store(Running::Clean as u8, Ordering::Release);
    }

    pub fn end(&self) {
        self.running.store(Running::None as u8, Ordering::Release);
    }

    pub fn running(&self) -> Running {
        [Running::None, Running::Clean, Running::Dirty, Running::Killed]
            [usize::from(self.running.load(Ordering::Acquire))]
    }

    /// It takes long enough for SCRIPT KILL to reach it.
    pub fn note_long(&self) {
        self.is_long.store(true, Ordering::Release);
    }

    /// The script writes, unless it was asked to end before: then it does not.
    pub fn begin_write(&self) -> bool {
        let dirty = Running::Dirty as u8;
        let swap =
            self.running.compare_exchange(Running::Clean as u8, dirty, Ordering::AcqRel, Ordering::Acquire);
        swap.is_ok() || self.running() == Running::Dirty
    }

    /// Asks for its end. Where it stands then.
    pub fn kill(&self) -> Running {
        let killed = Running::Killed as u8;
        let _ =
            self.running.compare_exchange(Running::Clean as u8, killed, Ordering::AcqRel, Ordering::Acquire);
        self.running()
    }
}

/// The runs of the node.
#[derive(Default)]
pub struct RunRegistry {
    marks: Mutex<Vec<Arc<RunMark>>>,
    last_id: AtomicU64,
    is_token_taken: AtomicBool,
    is_token_awaited: AtomicBool,
    /// Runs that have leases.
    leasers: Mutex<usize>,
    /// Runs that take longer than `busy-reply-threshold`.
    slow: AtomicUsize,
    /// Clients that wait for keys, and whose command is to be tried again behind a script.
    postponed: Mutex<Vec<Arc<Waiter>>>,
    waits: AtomicU64,
    refused_keys: AtomicU64,
    is_ending: AtomicBool,
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl RunRegistry {
    /// A mark that no other run has.
    pub fn new_mark(&self) -> Arc<RunMark> {
        let number = self.last_id.fetch_add(1, Ordering::Relaxed) + 1;
        let id = LeaseId(NonZeroU64::new(number).expect("numbers begin with 1"));
        let (running, is_long) = (AtomicU8::new(Running::None as u8), AtomicBool::new(false));
        let mark = Arc::new(RunMark { id, running, is_long });
        lock(&self.marks).push(Arc::clone(&mark));
        mark
    }

    pub fn drop_mark(&self, mark: &RunMark) {
        lock(&self.marks).retain(|other| other.id != mark.id);
    }

    /// SCRIPT KILL: of the runs that take long, all that have not written are asked to end. What came of it: `None` if there is no
    /// such run.
    pub fn kill(&self) -> Running {
        let marks = lock(&self.marks);
        let long = marks.iter().filter(|mark| mark.is_long.load(Ordering::Acquire));
        let found: Vec<Running> = long.map(|mark| mark.kill()).collect();
        let has = |running| found.contains(&running).then_some(running);
        has(Running::Killed).or_else(|| has(Running::Dirty)).unwrap_or(Running::None)
    }

    /// A signal has asked for the end of the process: scripts that have not written end.
    pub fn set_ending(&self, is_ending: bool) {
        self.is_ending.store(is_ending, Ordering::Release);
    }

    pub fn is_ending(&self) -> bool {
        self.is_ending.load(Ordering::Acquire)
    }

    // ---- the token ----

    pub fn try_take_token(&self) -> bool {
        let (taken, order) = (&self.is_token_taken, Ordering::SeqCst);
        taken.compare_exchange(false, true, order, order).is_ok()
    }

    /// The same for a caller that is going to wait for it.
    pub fn take_token_or_wait(&self) -> bool {
        self.is_token_awaited.store(true, Ordering::SeqCst);
        self.try_take_token()
    }

    pub fn give_token_back(&self, mail: &Mail) {
        self.is_token_taken.store(false, Ordering::SeqCst);
        if self.is_token_awaited.load(Ordering::SeqCst) && self.is_token_awaited.swap(false, Ordering::SeqCst)
        {
            mail.post_all(None, || WorkerMessage::ScriptsChanged);
        }
    }

    // ---- leases ----

    /// A run is going to have leases. What it holds already stays its own, as other threads see under the locks that it holds.
    pub fn begin_leases(&self, keyspace: &Keyspace, mail: &Mail) {
        let mut leasers = lock(&self.leasers);
        *leasers += 1;
        mail.set_tasks(Tasks::LEASED, Tasks::LEASED);
        keyspace.begin_lease();
    }

    /// It has freed them all.
    pub fn end_leases(&self, keyspace: &Keyspace, mail: &Mail, id: LeaseId) {
        let mut leasers = lock(&self.leasers);
        *leasers -= 1;
        if *leasers == 0 {
            mail.set_tasks(Tasks::LEASED, Tasks::NONE);
        }
        keyspace.end_lease(id);
    }

    /// Who had to wait for leases tries again.
    pub fn wake(&self, mail: &Mail, look: impl Fn(Arc<Waiter>)) {
        mail.post_all(None, || WorkerMessage::ScriptsChanged);
        let postponed = std::mem::take(&mut *lock(&self.postponed));
        postponed.into_iter().for_each(look);
    }

    pub fn postpone(&self, waiter: &Arc<Waiter>) {
        lock(&self.postponed).push(Arc::clone(waiter));
    }

    /// A command has to wait for a script.
    pub fn note_wait(&self) {
        self.waits.fetch_add(1, Ordering::Relaxed);
    }

    pub fn waits(&self) -> u64 {
        self.waits.load(Ordering::Relaxed)
    }

    /// A script has met a key that its text did not show, while another had the token.
    pub fn note_refused_key(&self) {
        self.refused_keys.fetch_add(1, Ordering::Relaxed);
    }

    pub fn refused_keys(&self) -> u64 {
        self.refused_keys.load(Ordering::Relaxed)
    }

    // ---- those that are too slow ----

    /// Whether clients that wait for a script get an error by now.
    pub fn is_busy(&self) -> bool {
        self.slow.load(Ordering::Acquire) > 0
    }

    pub fn note_slow(&self, mail: &Mail) {
        self.slow.fetch_add(1, Ordering::AcqRel);
        mail.post_all(None, || WorkerMessage::ScriptsChanged);
    }

    pub fn forget_slow(&self) {
        self.slow.fetch_sub(1, Ordering::AcqRel);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_script_that_has_written_is_not_killed() {
        let runs = RunRegistry::default();
        let mark = runs.new_mark();
        mark.begin();
        assert_eq!(runs.kill(), Running::None, "it does not take long");
        mark.note_long();
        assert!(mark.begin_write() && mark.begin_write());
        assert_eq!(runs.kill(), Running::Dirty);
        let other = runs.new_mark();
        other.begin();
        other.note_long();
        assert_eq!(runs.kill(), Running::Killed);
        assert!(!other.begin_write() && mark.begin_write());
        runs.drop_mark(&other);
        assert_eq!(runs.kill(), Running::Dirty);
        mark.end();
        assert_eq!(runs.kill(), Running::None);
    }

    #[test]
    fn there_is_one_token() {
        let runs = RunRegistry::default();
        assert!(runs.try_take_token() && !runs.try_take_token() && !runs.take_token_or_wait());
    }
}
