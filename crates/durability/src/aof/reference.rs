//! A base that refers to values in the swap log (`swap-checkpoint`): from the question what may be referred
//! to, to a base in force.
//!
//! ```text
//!   cut -> ask -> answer -> base written -> segments synced -> listed by the manifest -> in force: what only the old one named is freed
//!                   \                          \
//!                    not now: a base with all    failed: the old base stands; the segment is cleaned, and until that is over
//!                    values                      bases have all values
//! ```
//! The snapshot is held until the answer is there: what is emptied since its cut is kept as long as it is
//! under way, and named.

use isotherm_tier::Checkpoint;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::time::{Duration, Instant};

use crate::persistence::save::SaveError;
use isotherm_node::Node;
use isotherm_node::tier::Tier;
use isotherm_node::tier::checkpoint::{Ask, Ticket};
use isotherm_runtime::log::{self, os_text};
use isotherm_runtime::routines;
use isotherm_runtime::time::{elapsed, instant};

/// Longest wait for the log's thread: meanwhile the snapshot keeps what is changed.
const ANSWER_MAX: Duration = Duration::from_secs(10);

/// Checkpoint of the swap log that a rewrite refers to.
pub struct Reference {
    node: &'static Node,
    ticket: Option<Ticket>,
    asked: Instant,
    checkpoint: Option<Checkpoint>,
}

impl Reference {
    pub fn new(node: &'static Node) -> Reference {
        Reference { node, ticket: None, asked: instant(), checkpoint: None }
    }

    fn tier(&self) -> Option<&'static Arc<Tier>> {
        self.node.tier()
    }

    /// Asks for a checkpoint, after the cut. Returns whether an answer is to be waited for.
    pub fn ask(&mut self) -> bool {
        let config = &self.node.config;
        let tier = self.tier().filter(|_| config.swaps() && config.swap_checkpoints());
        self.asked = instant();
        self.ticket = tier.map(|tier| {
            let ticket = tier.checkpoints.name();
            tier.wake();
            ticket
        });
        self.ticket.is_some()
    }

    /// Waits a moment.
    pub fn is_answered(&mut self) -> Result<bool, SaveError> {
        if self.node.persistence.is_cancelled.load(Relaxed) {
            return Err(SaveError::Cancelled);
        }
        let answer =
            self.tier().zip(self.ticket).and_then(|(tier, ticket)| tier.checkpoints.take_answer(ticket));
        match answer {
            None if elapsed(self.asked) > ANSWER_MAX => {
                log::warning("The thread that writes swap-dir does not answer: its disk hangs");
                return Err(SaveError::Failed);
            }
            None => {
                routines::pause(routines::LOOK);
                return Ok(false);
            }
            Some(None) => {
                log::warning(
                    "The base of the append-only file gets all values: it cannot refer to all files of swap-dir now. One could not be read, or a sync failed \
                     and what it was for is being copied.",
                );
                self.ticket = None;
            }
            Some(checkpoint) => self.checkpoint = checkpoint,
        }
        Ok(true)
    }

    /// Returns the description of the swap log for the head of the base.
    pub fn swap_log(&self) -> Option<Vec<u8>> {
        self.checkpoint.as_ref().map(Checkpoint::write)
    }

    /// Makes durable what the base refers to. Called before the base is listed.
    pub fn sync(&self) -> Result<(), SaveError> {
        let Some((checkpoint, tier)) = self.checkpoint.as_ref().zip(self.tier()) else { return Ok(()) };
        tier.files.sync(checkpoint).map_err(|failed| {
            let why = os_text(&failed.error);
            log::warning(format!(
                "Can't sync swap-dir ({why}): the base of the append-only file stays as it is"
            ));
            if let Some(segment) = failed.segment {
                tier.checkpoints.say(Ask::Doubt(segment));
            }
            SaveError::Failed
        })
    }

    /// The base is about to be listed: what becomes of it is heard by `in_force`, or not at all. Whether it
    /// refers.
    pub fn hand_over(&mut self) -> bool {
        self.ticket.take().is_some()
    }

    /// The base will not be listed.
    pub fn give_up(&mut self) {
        if let Some(tier) = self.tier().filter(|_| self.ticket.take().is_some()) {
            tier.checkpoints.say(Ask::GivenUp);
        }
    }
}

/// A base is listed.
pub fn in_force(node: &Node, refers: bool) {
    if let Some(tier) = node.tier() {
        tier.base_in_force(refers);
    }
}

/// Much of the disk is kept only by the base in force.
pub fn wants_base(node: &Node) -> bool {
    node.tier().is_some_and(|tier| tier.wants_base())
}
