//! What this node could not do with the stream of its primary: what the log says of it, and how the link goes on.
//!
//! ```text
//!   no commands, too large        asked for again; a second time at the same place: all data
//!   an error here, none there     counted, CRITICAL in the log, the link goes on       (`propagation-error-behavior`)
//!   no memory, nothing changed    link down, asked for again
//!   no memory, a part changed     the place in the history is lost (`role::lose_place`): link down, all data
//! ```

use isotherm_replication::link::Input;
use std::sync::atomic::Ordering::Relaxed;

use super::LinkThread;
use crate::aof::applier::Refused;
use crate::aof::switch;
use crate::config::{Id, id};
use crate::process::log;
use crate::replication::stream::{Divergence, Fault};

impl LinkThread {
    /// The stream cannot be applied: it is asked for again, and if that was so before at this place, the whole data is.
    pub(super) fn stop_for(&mut self, fault: &Fault) {
        log::warning(fault.to_string());
        let end = self.node.log.end().0;
        let lacks_memory = matches!(fault, Fault::Refused(Refused::OutOfMemory(_) | Refused::HalfApplied(_)));
        if lacks_memory && self.is_current() {
            self.node.replication.link.lacks_memory.store(true, Relaxed);
        }
        if let Fault::Refused(Refused::HalfApplied(_)) = fault {
            self.rest_half_applied();
        }
        let is_ours = lacks_memory || matches!(fault, Fault::Refused(Refused::NoDatabase(_)));
        if !is_ours && self.garbage_at.replace(end) == Some(end) {
            log::notice("Discarding previously cached primary state.");
            self.node.replication.state().has_position = false;
        }
        self.step(if is_ours { Input::GivenUp } else { Input::Unusable });
    }

    /// What is in memory is in no file: the append-only file rests, and is what a start reads, until all data has come or this node
    /// is a primary. Nothing is held.
    fn rest_half_applied(&self) {
        log::warning(
            "A part of a transaction of the primary is in the data, for there was no memory for the rest: this replica asks for all data again.",
        );
        if switch::suspend(self.node, self.generation).is_err() || !self.is_current() {
            switch::resume(self.node, self.generation);
        }
    }

    pub(super) fn report(&self, divergence: &Divergence) {
        let Divergence { reply, command, is_unknown } = divergence;
        let view = &self.node.replication.link;
        log::warning(format!(
            "== CRITICAL == This replica is sending an error to its primary: '{reply}' after processing the command \
             '{command}'"
        ));
        view.unexpected_errors.fetch_add(1, Relaxed);
        view.unknown_commands.fetch_add(u64::from(*is_unknown), Relaxed);
        const BEHAVIOR: Id = id("propagation-error-behavior");
        const READ_ONLY: Id = id("replica-read-only");
        const IGNORE: i64 = 0;
        if self.node.config.number(BEHAVIOR) != IGNORE && self.node.config.flag(READ_ONLY) {
            log::warning(format!(
                "This replica panicked sending an error to its primary after processing the command '{command}'"
            ));
            std::process::exit(1);
        }
    }
}
