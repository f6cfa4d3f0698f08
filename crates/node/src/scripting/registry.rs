//! The runs of scripts of the node: which may begin, which are asked to end, which have leases.
//!
//! **The token.** A script may meet keys that it was not called with, and leases them then, while it has
//! leases already. Two such scripts could wait for each other, so there is one token, which a script has from
//! its beginning to its end. It waits only for a script without a token, and that one waits for nothing.
//!
//! **No connection is forgotten.** One that has to wait for a lease or the token is parked, and its worker
//! tries again when `WorkerMessage::ScriptsChanged` comes, which is posted after each end of a suspended run,
//! and after the token was given back if a worker had asked for it without success.

use isotherm_keyspace::{Keyspace, LeaseId, Waiter};
use isotherm_resp::ArgsBuf;
use std::num::NonZeroU64;
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Instant;

use crate::mail::Mail;
use crate::mail::message::WorkerMessage;
use crate::mail::tasks::Tasks;

/// State of a run, as SCRIPT KILL sees and changes it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Running {
    None,
    Clean,
    /// Run that has written.
    Dirty,
    Killed,
}

/// State of a run that other threads see. Runs may use the same mark one after another.
pub struct RunMark {
    pub id: LeaseId,
    running: AtomicU8,
    is_long: AtomicBool,
    is_function: AtomicBool,
    shown: Mutex<Option<FunctionCall>>,
}

/// A call that takes long, as FUNCTION STATS shows it.
#[derive(Clone)]
pub struct FunctionCall {
    /// FCALL and its arguments.
    pub words: ArgsBuf,
    pub began: Instant,
}

impl RunMark {
    pub fn begin(&self, is_function: bool) {
        self.is_long.store(false, Ordering::Relaxed);
        self.is_function.store(is_function, Ordering::Relaxed);
        self.running.store(Running::Clean as u8, Ordering::Release);
    }

    pub fn end(&self) {
        self.running.store(Running::None as u8, Ordering::Release);
        if self.is_long.load(Ordering::Relaxed) {
            *lock(&self.shown) = None;
        }
    }

    pub fn is_function(&self) -> bool {
        self.is_function.load(Ordering::Relaxed)
    }

    /// Shows the call to other clients from now on, as it takes long.
    pub fn show(&self, call: FunctionCall) {
        self.note_long();
        *lock(&self.shown) = Some(call);
    }

    pub fn running(&self) -> Running {
        [Running::None, Running::Clean, Running::Dirty, Running::Killed]
            [usize::from(self.running.load(Ordering::Acquire))]
    }

    /// Notes that the run takes long enough for SCRIPT KILL to reach it.
    pub fn note_long(&self) {
        self.is_long.store(true, Ordering::Release);
    }

    fn is_long_now(&self) -> bool {
        self.is_long.load(Ordering::Acquire) && self.running() != Running::None
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
    /// A command waits for the end of all of them. Set while there are some only.
    is_end_awaited: AtomicBool,
    /// Scripts, and functions, that take longer than `busy-reply-threshold`.
    slow: [AtomicUsize; 2],
    /// Clients that wait for keys, and whose command is to be tried again after a script.
    postponed: Mutex<Vec<Arc<Waiter>>>,
    waits: AtomicU64,
    refused_keys: AtomicU64,
    is_ending: AtomicBool,
    is_abandoned: AtomicBool,
    /// A transaction stands in the middle of its script.
    is_exclusive: AtomicBool,
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl RunRegistry {
    /// A mark that no other run has.
    pub fn new_mark(&self) -> Arc<RunMark> {
        let number = self.last_id.fetch_add(1, Ordering::Relaxed) + 1;
        let id = LeaseId(NonZeroU64::new(number).expect("numbers begin with 1"));
        let mark = Arc::new(RunMark {
            id,
            running: AtomicU8::new(Running::None as u8),
            is_long: AtomicBool::new(false),
            is_function: AtomicBool::new(false),
            shown: Mutex::new(None),
        });
        lock(&self.marks).push(Arc::clone(&mark));
        mark
    }

    pub fn drop_mark(&self, mark: &RunMark) {
        lock(&self.marks).retain(|other| other.id != mark.id);
    }

    /// SCRIPT KILL, or FUNCTION KILL: of the runs of this kind that take long, all that have not written are
    /// asked to end. Returns the outcome: `Killed`; `Dirty` if they have written; `Clean` if there is only a
    /// run of the other kind; `None` if there is none.
    pub fn kill(&self, of_function: bool) -> Running {
        let marks = lock(&self.marks);
        let (ours, others): (Vec<&Arc<RunMark>>, _) = marks
            .iter()
            .filter(|mark| mark.is_long_now())
            .partition(|mark| mark.is_function() == of_function);
        let found: Vec<Running> = ours.into_iter().map(|mark| mark.kill()).collect();
        let has = |running| found.contains(&running).then_some(running);
        let of_others = || {
            let is_dirty = others.iter().any(|mark| mark.running() == Running::Dirty);
            (!others.is_empty()).then_some(if is_dirty { Running::Dirty } else { Running::Clean })
        };
        has(Running::Killed).or_else(|| has(Running::Dirty)).or_else(of_others).unwrap_or(Running::None)
    }

    /// The kind of the run that takes long, and what other clients see of it.
    pub fn long(&self) -> Option<(bool, Option<FunctionCall>)> {
        let marks = lock(&self.marks);
        let long: Vec<&Arc<RunMark>> = marks.iter().filter(|mark| mark.is_long_now()).collect();
        let mark = long.iter().find(|mark| mark.is_function()).or(long.first())?;
        Some((mark.is_function(), lock(&mark.shown).clone()))
    }

    /// A signal has asked for the end of the process: scripts that have not written end.
    pub fn set_ending(&self, is_ending: bool) {
        self.is_ending.store(is_ending, Ordering::Release);
    }

    pub fn is_ending(&self) -> bool {
        self.is_ending.load(Ordering::Acquire)
    }

    /// SHUTDOWN NOSAVE: the process ends, whatever scripts have done so far. From here on none continues.
    pub fn abandon(&self) {
        self.is_abandoned.store(true, Ordering::Release);
    }

    pub fn are_abandoned(&self) -> bool {
        self.is_abandoned.load(Ordering::Acquire)
    }

    /// A transaction stands in the middle of its script, and has leased every key: no other script begins, so
    /// that it can continue after the script, with the gate. Everything is held.
    pub fn set_exclusive(&self, is_exclusive: bool) {
        self.is_exclusive.store(is_exclusive, Ordering::Release);
    }

    pub fn is_exclusive(&self) -> bool {
        self.is_exclusive.load(Ordering::Acquire)
    }

    // ---- the token ----

    pub fn try_take_token(&self) -> bool {
        let (taken, order) = (&self.is_token_taken, Ordering::SeqCst);
        taken.compare_exchange(false, true, order, order).is_ok()
    }

    /// Takes the token if it is free. Else the caller waits, and workers are notified when the token is given
    /// back.
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

    /// A run is going to have leases. Keys that it holds already stay its own, as other threads see under the
    /// locks that it holds.
    pub fn begin_leases(&self, keyspace: &Keyspace, mail: &Mail) {
        let mut leasers = lock(&self.leasers);
        *leasers += 1;
        mail.set_tasks(Tasks::LEASED, Tasks::LEASED);
        keyspace.begin_lease();
    }

    /// Notes that a run has freed all its leases.
    pub fn end_leases(&self, keyspace: &Keyspace, mail: &Mail) {
        let mut leasers = lock(&self.leasers);
        *leasers -= 1;
        if *leasers == 0 {
            self.is_end_awaited.store(false, Ordering::Release);
            mail.set_tasks(Tasks::LEASED, Tasks::NONE);
        }
        keyspace.end_lease();
    }

    /// A command needs that there are no leases: it would wait for ever while one script after the other
    /// begins.
    pub fn await_end(&self) {
        let leasers = lock(&self.leasers);
        self.is_end_awaited.store(*leasers > 0, Ordering::Release);
    }

    /// Returns whether a run that would have leases had better not begin.
    pub fn is_end_awaited(&self) -> bool {
        self.is_end_awaited.load(Ordering::Acquire)
    }

    /// Lets the commands and clients try again that had to wait for leases.
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

    /// Returns whether clients that wait for a script get an error by now.
    pub fn is_busy(&self) -> bool {
        self.slow.iter().any(|slow| slow.load(Ordering::Acquire) > 0)
    }

    /// Returns whether only functions are too slow.
    pub fn is_busy_with_function(&self) -> bool {
        self.slow[0].load(Ordering::Acquire) == 0
    }

    pub fn note_slow(&self, is_function: bool, mail: &Mail) {
        self.slow[usize::from(is_function)].fetch_add(1, Ordering::AcqRel);
        mail.post_all(None, || WorkerMessage::ScriptsChanged);
    }

    pub fn forget_slow(&self, is_function: bool) {
        self.slow[usize::from(is_function)].fetch_sub(1, Ordering::AcqRel);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_script_that_has_written_is_not_killed() {
        let runs = RunRegistry::default();
        let mark = runs.new_mark();
        mark.begin(false);
        assert_eq!(runs.kill(false), Running::None, "it does not take long");
        mark.note_long();
        assert!(mark.begin_write() && mark.begin_write());
        assert_eq!(runs.kill(false), Running::Dirty);
        let other = runs.new_mark();
        other.begin(false);
        other.note_long();
        assert_eq!(runs.kill(false), Running::Killed);
        assert!(!other.begin_write() && mark.begin_write());
        runs.drop_mark(&other);
        assert_eq!(runs.kill(false), Running::Dirty);
        mark.end();
        assert_eq!(runs.kill(false), Running::None);
    }

    #[test]
    fn there_is_one_token() {
        let runs = RunRegistry::default();
        assert!(runs.try_take_token() && !runs.try_take_token() && !runs.take_token_or_wait());
    }
}
