//! Faults in applying the stream of the primary: their lines in the log, and what the link does next.
//!
//! ```text
//!   no commands, too large        asked for again; a second time at the same place: all data
//!   an error here, none there     counted, CRITICAL in the log; then, by `propagation-error-behavior`:
//!                                 link down, all data after a pause (`divergences`), or it goes on, or the process ends
//!   no memory, nothing changed    link down, asked for again
//!   no memory, a part changed     the place in the history is lost (`role::lose_place`): link down, all data
//! ```

use isotherm_replication::link::Input;
use std::sync::atomic::Ordering::Relaxed;

use super::LinkThread;
use crate::replication::stream::{Divergence, Fault};
use isotherm_config::{Id, id};
use isotherm_durability::aof::applier::{Refused, behavior};
use isotherm_durability::aof::switch;
use isotherm_runtime::log;

impl LinkThread {
    /// The stream cannot be applied: it is asked for again, and if that was so before at this place, the
    /// whole data is.
    pub(super) fn stop_for(&mut self, fault: &Fault) {
        log::warning(fault.to_string());
        let end = self.node.log.end().0;
        let lacks_memory = matches!(fault, Fault::Refused(Refused::OutOfMemory(_) | Refused::HalfApplied(_)));
        if lacks_memory && self.is_current() {
            self.node.replication.link.lacks_memory.store(true, Relaxed);
        }
        if let Fault::Refused(refused) = fault {
            if refused.is_half() {
                self.rest_half_applied();
            }
            if refused.is_of_command() {
                return self.stop_diverged(refused);
            }
        }
        if let Fault::Refused(refused @ Refused::NoDatabase(_)) = fault
            && self.is_current()
        {
            self.node.replication.link.set_failed_with(Some(refused.to_string()));
        }
        let is_ours = lacks_memory || matches!(fault, Fault::Refused(Refused::NoDatabase(_)));
        if !is_ours && self.garbage_at.replace(end) == Some(end) {
            log::notice("Discarding previously cached primary state.");
            // A link that has begun since has a position of its own.
            let mut state = self.node.replication.state();
            state.has_position &= !self.is_current();
        }
        self.step(if is_ours { Input::GivenUp } else { Input::Unusable });
    }

    // COMPAT(replication): `propagation-error-behavior` has the word `stop`, which is the default: where a
    // command of the primary is answered with an error, the link goes down (`master_refused:command` in
    // INFO) and all data is asked for, at most each ten minutes; one of the append-only file ends the
    // start. Valkey's default is `ignore`. Why: what changed data there and fails here is lost here for
    // good.
    /// The data is not the primary's: all of it is asked for, after a pause. Nothing of the command is in the
    /// log.
    fn stop_diverged(&mut self, refused: &Refused) {
        let now = self.now();
        let pause_ms = self.divergences.note(now);
        log::warning(format!(
            "The data of this replica is not its primary's, or it lacks a command of it: the link is down, and all data is asked for in \
             {} s (`propagation-error-behavior stop`).",
            pause_ms.div_ceil(1000)
        ));
        if self.is_current() {
            self.node.replication.link.set_failed_with(Some(refused.to_string()));
            self.node.replication.state().has_position = false;
        }
        self.step(Input::GivenUp);
    }

    /// Suspends the append-only file, because the data in memory is in no file. A start reads the suspended
    /// file, until all data has come or this node is a primary. Nothing is held.
    fn rest_half_applied(&self) {
        log::warning(
            "A part of a transaction of the primary is in the data, for there was no memory for the rest, or it failed: this replica asks for \
             all data again.",
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
        const READ_ONLY: Id = id("replica-read-only");
        let ends =
            ![behavior::IGNORE, behavior::STOP].contains(&self.node.config.number(behavior::PARAMETER));
        if ends && self.node.config.flag(READ_ONLY) {
            log::warning(format!(
                "This replica panicked sending an error to its primary after processing the command '{command}'"
            ));
            std::process::exit(1);
        }
    }
}
