//! The runs of one worker that are suspended, and what its next run begins with.

use isotherm_script::Debugger;
use std::collections::VecDeque;
use std::sync::Arc;

use super::run::{Awaits, SuspendedExec, SuspendedRun};
use isotherm_node::request::next::{Ticket, WaitReason};
use isotherm_node::scripting::cache::Script;
use isotherm_node::scripting::registry::RunMark;

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
    pub parked: Option<WaitReason>,
    /// Output of the debugger of the run that had the last turn.
    pub said: Option<(Ticket, Vec<u8>)>,
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
            Awaits::Leases | Awaits::User => self.waiting.push_back(run),
        }
    }

    /// The run that was suspended last is one of a transaction, whose reply so far is `replied`. Its
    /// connection is parked for all of it.
    pub fn suspend_exec(&mut self, transaction: SuspendedExec, replied: Vec<u8>) {
        let run = self.runnable.back_mut().expect("a script within a transaction waits for nothing");
        run.reply.out = replied;
        self.parked = Some(WaitReason::Exec(run.ticket));
        run.transaction = Some(Box::new(transaction));
    }

    /// Lets all waiting runs try again, as the reason of their waiting may be gone.
    pub fn retry(&mut self) {
        self.runnable.append(&mut self.waiting);
    }

    // ---- those that are debugged ----

    /// The debugger of this run, for what its client sends or does: if the run waits for that it continues.
    pub fn debugger(&mut self, ticket: Ticket) -> Option<&mut Debugger> {
        if let Some(at) =
            self.waiting.iter().position(|run| run.ticket == ticket && run.state.awaits == Awaits::User)
        {
            self.runnable.extend(self.waiting.remove(at));
        }
        let run = self.runnable.iter_mut().chain(&mut self.waiting).find(|run| run.ticket == ticket)?;
        run.callee.debugger()
    }

    /// Returns whether the run waits for its user, and there is input from the user that it has not looked
    /// at.
    pub fn has_more_input(&mut self, ticket: Ticket) -> bool {
        let run = self.waiting.iter_mut().find(|run| run.ticket == ticket);
        run.is_some_and(|run| run.callee.debugger().is_some_and(|debugger| debugger.has_input()))
    }

    /// Lets all waiting runs try again if one waits for its user, as it may have to end.
    pub fn retry_debugged(&mut self) {
        if self.waiting.iter().any(|run| run.state.awaits == Awaits::User) {
            self.retry();
        }
    }
}
