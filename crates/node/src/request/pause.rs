//! Pauses: until when commands wait, which ones, and why.
//!
//! ```text
//!   CLIENT PAUSE ---+
//!   SHUTDOWN -------+--> one pause a cause --> what all together hold up (`Tasks`), and when that is looked at next
//!   FAILOVER -------+
//! ```
//! Each cause begins and ends its own: CLIENT UNPAUSE does not let writes into a node that hands over.

use isotherm_keyspace::{SteadyMs, UnixMs};
use std::sync::atomic::{AtomicI64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

use crate::mail::Mail;
use crate::mail::message::WorkerMessage;
use crate::mail::tasks::Tasks;

/// Why commands wait, in the order of their numbers.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Cause {
    /// CLIENT PAUSE
    Client,
    Shutdown,
    Failover,
}

const CAUSES: [Cause; 3] = [Cause::Client, Cause::Shutdown, Cause::Failover];

impl Cause {
    /// Returns the name that INFO gives to the cause.
    pub fn name(self) -> &'static str {
        match self {
            Cause::Client => "client_pause",
            Cause::Shutdown => "shutdown_in_progress",
            Cause::Failover => "failover_in_progress",
        }
    }
}

/// The pause of one cause; in milliseconds that no step of the wall clock changes (`SteadyMs`), as all
/// moments here.
#[derive(Clone, Copy, Default)]
struct One {
    end_ms: i64,
    writes_only: bool,
}

/// End of the pauses. The tasks of the node say which commands wait.
#[derive(Default)]
pub struct Pause {
    /// End of the first of the pauses; 0 if there is none.
    end_ms: AtomicI64,
    /// Pauses by cause. Locked while the ends and the tasks change together.
    causes: Mutex<[One; CAUSES.len()]>,
}

impl Pause {
    /// Until `end_ms`, in Unix milliseconds, commands wait; with `writes_only`, only those that write. A
    /// later end of the same cause stays.
    pub fn begin(&self, mail: &Mail, cause: Cause, end_ms: i64, writes_only: bool) {
        let end_ms = SteadyMs::of(UnixMs(end_ms)).0;
        let mut causes = self.causes();
        let one = &mut causes[cause as usize];
        *one = One { end_ms: one.end_ms.max(end_ms), writes_only };
        self.publish(mail, &*causes);
    }

    /// The cause is no more.
    pub fn end(&self, mail: &Mail, cause: Cause) {
        let mut causes = self.causes();
        causes[cause as usize] = One::default();
        self.publish(mail, &*causes);
    }

    /// The first thread that notices that a pause is over ends it for all.
    pub fn end_if_over(&self, mail: &Mail, now: UnixMs) {
        if !mail.tasks().has(Tasks::PAUSES) || self.is_on(now) {
            return;
        }
        let (now, mut causes) = (SteadyMs::of(now), self.causes());
        causes.iter_mut().filter(|one| one.end_ms <= now.0).for_each(|one| *one = One::default());
        self.publish(mail, &*causes);
    }

    /// Returns whether no pause has ended yet. The tasks of the node say which commands wait.
    pub fn is_on(&self, now: UnixMs) -> bool {
        self.left_ms(now) > 0
    }

    /// Milliseconds until one ends; not positive if nothing is paused.
    pub fn left_ms(&self, now: UnixMs) -> i64 {
        self.end_ms.load(Ordering::Acquire).saturating_sub(SteadyMs::of(now).0)
    }

    /// Returns what INFO shows: whether all commands wait or only those that write, the cause, and the
    /// milliseconds left, of the longest pause.
    pub fn report(&self, now: UnixMs) -> Option<(bool, Cause, i64)> {
        let (now, causes) = (SteadyMs::of(now), *self.causes());
        let on = || CAUSES.into_iter().zip(causes).filter(|(_, one)| one.end_ms > now.0);
        let holds_all = on().any(|(_, one)| !one.writes_only);
        let counted = on().filter(|(_, one)| !holds_all || !one.writes_only);
        // Of equals the first.
        let (cause, one) = counted.reduce(|a, b| if b.1.end_ms > a.1.end_ms { b } else { a })?;
        Some((holds_all, cause, one.end_ms - now.0))
    }

    /// Sets what follows from all pauses together.
    fn publish(&self, mail: &Mail, causes: &[One]) {
        let on = || causes.iter().filter(|one| one.end_ms > 0);
        let before = mail.tasks();
        let after = match on().all(|one| one.writes_only) {
            true if on().next().is_none() => Tasks(0),
            true => Tasks::PAUSE_WRITE,
            false => Tasks::PAUSE_ALL,
        };
        let end_ms = on().map(|one| one.end_ms).min().unwrap_or(0);
        let before_ms = self.end_ms.swap(end_ms, Ordering::AcqRel);
        mail.set_tasks(Tasks::PAUSES, after);
        // Clients that wait continue, or look when the next pause ends.
        let holds_less = before.has(Tasks::PAUSE_ALL) && !after.has(Tasks::PAUSE_ALL);
        if before.has(Tasks::PAUSES) && (holds_less || end_ms < before_ms) {
            mail.post_all(None, || WorkerMessage::PauseChanged);
        }
    }

    fn causes(&self) -> MutexGuard<'_, [One; CAUSES.len()]> {
        self.causes.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
