//! A base of the append-only file that refers to the log: what its thread and the one that writes the log say
//! to each other.
//!
//! ```text
//!   rewrite      cut                    Name ->                     -> answer: segments and lengths, or: not now
//!   rewrite      writes the base, syncs the segments                   (Failed: Doubt ->, GivenUp ->)
//!   AOF writer   the manifest lists it                              InForce ->
//!   rewrite      failed or ended                                    GivenUp ->
//! ```
//! The log's thread alone knows its segments, so it is asked. From its answer on none of what it named is
//! freed or written over, until it hears what became of the base; if it never does, until a later base is in
//! force.

use isotherm_tier::{Checkpoint, SegmentNumber};
use std::sync::{Mutex, MutexGuard, PoisonError};

/// Said to the thread that writes the log.
#[derive(Debug)]
pub enum Ask {
    /// A base begins. Its snapshot was cut, and is held until the answer is there.
    Name(Ticket),
    /// A base is listed by the manifest, durably: one that refers, or one that has all values.
    InForce { refers: bool },
    /// The base that was named last will not be listed.
    GivenUp,
    /// A sync of a segment failed.
    Doubt(SegmentNumber),
}

/// Number of the question for one base. An answer to an earlier question does not answer this one.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct Ticket(u64);

/// Answer of the log's thread; `None`: a base cannot refer to the log now.
pub type Answer = Option<Checkpoint>;

#[derive(Default)]
struct State {
    asks: Vec<Ask>,
    last: Ticket,
    answer: Option<(Ticket, Answer)>,
}

#[derive(Default)]
pub struct Checkpoints {
    state: Mutex<State>,
}

impl Checkpoints {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The caller wakes the log's thread.
    pub fn name(&self) -> Ticket {
        let mut state = self.state();
        state.last.0 += 1;
        let ticket = state.last;
        state.asks.push(Ask::Name(ticket));
        ticket
    }

    pub fn say(&self, ask: Ask) {
        self.state().asks.push(ask);
    }

    /// The answer, once it is there.
    pub fn take_answer(&self, ticket: Ticket) -> Option<Answer> {
        let mut state = self.state();
        state.answer.take_if(|(answered, _)| *answered == ticket).map(|(_, answer)| answer)
    }

    // ---- for the log's thread ----

    pub fn has_asks(&self) -> bool {
        !self.state().asks.is_empty()
    }

    pub fn take(&self) -> Vec<Ask> {
        std::mem::take(&mut self.state().asks)
    }

    pub fn answer(&self, ticket: Ticket, answer: Answer) {
        self.state().answer = Some((ticket, answer));
    }
}
