//! CLIENT PAUSE: until when, and of which commands.

use isotherm_keyspace::UnixMs;
use std::sync::atomic::{AtomicI64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

use crate::mail::Mail;
use crate::mail::message::WorkerMessage;
use crate::mail::tasks::Tasks;

/// When CLIENT PAUSE ends; which commands wait is among the tasks.
#[derive(Default)]
pub struct Pause {
    end_ms: AtomicI64,
    /// Held while the end and the tasks change together.
    changing: Mutex<()>,
}

impl Pause {
    /// CLIENT PAUSE: until `end_ms`, commands wait; with `writes_only`, only those that write. A later end stays.
    pub fn begin(&self, mail: &Mail, end_ms: i64, writes_only: bool) {
        let _changing = self.changing();
        let before = mail.tasks();
        self.end_ms.fetch_max(end_ms, Ordering::AcqRel);
        mail.set_tasks(Tasks::PAUSES, if writes_only { Tasks::PAUSE_WRITE } else { Tasks::PAUSE_ALL });
        if before.has(Tasks::PAUSE_ALL) && writes_only {
            mail.post_all(None, || WorkerMessage::PauseChanged);
        }
    }

    /// CLIENT UNPAUSE.
    pub fn end(&self, mail: &Mail) {
        let _changing = self.changing();
        self.finish(mail);
    }

    /// The first thread that notices that the time is over ends the pause for all.
    pub fn end_if_over(&self, mail: &Mail, now: UnixMs) {
        if !mail.tasks().has(Tasks::PAUSES) || self.is_on(now) {
            return;
        }
        let _changing = self.changing();
        // Another thread may have ended it, and a client may have begun a new one.
        if mail.tasks().has(Tasks::PAUSES) && !self.is_on(now) {
            self.finish(mail);
        }
    }

    pub fn is_on(&self, now: UnixMs) -> bool {
        now.0 < self.end_ms()
    }

    /// Milliseconds since 1970; 0 if nothing is paused.
    pub fn end_ms(&self) -> i64 {
        self.end_ms.load(Ordering::Acquire)
    }

    fn finish(&self, mail: &Mail) {
        self.end_ms.store(0, Ordering::Release);
        mail.set_tasks(Tasks::PAUSES, Tasks(0));
        mail.post_all(None, || WorkerMessage::PauseChanged);
    }

    fn changing(&self) -> MutexGuard<'_, ()> {
        self.changing.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
