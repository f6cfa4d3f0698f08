//! The runs of one worker that are suspended, and what its next run begins with.

use std::collections::VecDeque;
use std::sync::Arc;

use super::cache::Script;
use super::registry::RunMark;
use super::run::{Awaits, SuspendedRun};
use crate::request::next::Ticket;

/// Runs that one worker may have suspended. Each has an interpreter, and a stack.
const SUSPENDED_MAX: usize = 64;

/// The runs of one worker.
#[derive(Default)]
pub struct Runs {
    /// The mark of the next run, or of the one under way that is not suspended.
    pub mark: Option<Arc<RunMark>>,
    /// The run under way has the token, and is not suspended.
    pub has_token: bool,
    /// The script of the command under way, if it was looked for before its locks.
    pub found: Option<Arc<Script>>,
    /// The run that was suspended last, until its connection is parked.
    pub parked: Option<Ticket>,
    runnable: VecDeque<Box<SuspendedRun>>,
    waiting: VecDeque<Box<SuspendedRun>>,
}

impl Runs {
    pub fn has_work(&self) -> bool {
        !self.runnable.is_empty()
    }

    pub fn are_many(&self) -> bool {
        self.runnable.len() + self.waiting.len() >= SUSPENDED_MAX
    }

    /// Takes the one whose turn it is.
    pub fn take(&mut self) -> Option<Box<SuspendedRun>> {
        self.runnable.pop_front()
    }

    pub fn add(&mut self, run: Box<SuspendedRun>) {
        match run.state.awaits {
            Awaits::Nothing => self.runnable.push_back(run),
            Awaits::Leases => self.waiting.push_back(run),
        }
    }

    /// What runs wait for may be over.
    pub fn retry(&mut self) {
        self.runnable.append(&mut self.waiting);
    }
}
