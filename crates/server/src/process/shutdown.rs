//! The end: requests for it, what may stand in its way, and how it is called off.
//!
//! ```text
//! SIGTERM, SIGINT --> `guard` --> pending -- next look of the control thread --+
//!                                    |                                         v
//! SHUTDOWN ABORT --------------------+ nothing is pending     SHUTDOWN --> may it? --> end
//! ```
//! A file that cannot be written stands in the way of the end, unless FORCE says that it need not.

use std::sync::atomic::{Ordering, Ordering::Relaxed};
use std::time::Duration;

use isotherm_keyspace::Held;

use crate::process::supervisor;
use isotherm_durability::persistence::background;
use isotherm_durability::persistence::background::Asked;
use isotherm_node::Node;
use isotherm_node::aof::state::AofState;
use isotherm_node::mail::tasks::Tasks;
use isotherm_node::persistence::Store;
use isotherm_node::persistence::state::{Asker, END_MAX};
use isotherm_node::process::asked_end::Options;
use isotherm_node::process::wish::Wish;
use isotherm_node::request::pause::{Cause, Pause};
use isotherm_runtime::log;
use isotherm_runtime::routines;
use isotherm_runtime::time::{elapsed, instant};

/// Time for which other walks, and those that begin after them, are ended; and time for which a worker waits
/// for a script.
pub const ATTEMPTS: Duration = Duration::from_secs(2);

/// Parts of the node that the end of the process concerns.
pub struct End<'n> {
    pub store: Store<'static>,
    pub aof: &'n AofState,
    pub pause: &'n Pause,
    pub wish: &'n Wish,
    pub used_memory_bytes: u64,
}

impl End<'static> {
    pub fn of(node: &'static Node) -> End<'static> {
        End {
            store: node.store(),
            aof: &node.aof,
            pause: &node.pause,
            wish: &node.process.wish,
            used_memory_bytes: node.used_memory_bytes(),
        }
    }
}

impl End<'_> {
    /// Returns whether nothing stands in the way of the end: the last file is written, if there is to be one.
    pub fn may_come(&self, options: Options) -> bool {
        if self.aof.awaits_base.load(Ordering::Relaxed) {
            if !options.has(Options::FORCE) {
                log::warning("Writing initial AOF, can't exit.");
                supervisor::notify("STATUS=Writing initial AOF, can't exit.\n");
                return false;
            }
            log::warning("Writing initial AOF. Exit anyway.");
        }
        let wants_file = options.has(Options::SAVE)
            || !options.has(Options::NOSAVE) && !self.store.config.save_points().is_empty();
        // Half loaded data does not replace the whole.
        if !wants_file || self.store.mail.tasks().has(Tasks::LOADING) {
            background::stop(self.store, END_MAX);
            return true;
        }
        log::notice("Saving the final RDB snapshot before exiting.");
        let progress = &self.store.state.progress;
        let _extending = supervisor::extend(|| {
            let (keys, total) = (progress.keys.load(Relaxed), progress.keys_total.load(Relaxed));
            format!("Saving the final RDB snapshot: {keys} of {total} keys")
        });
        // Commands wait from here on: their writes after the cut would be answered and lost.
        self.pause.begin(self.store.mail, Cause::Shutdown, i64::MAX, false);
        match self.save() {
            Asked::Started => return true,
            _ if self.wish.is_insisted() => return true,
            Asked::Busy | Asked::Failed => {}
        }
        if options.has(Options::FORCE) {
            log::warning("Error trying to save the DB. Exit anyway.");
            if self.wish.refused_for().is_some() {
                self.wish.note_loss();
            }
            return true;
        }
        log::warning("Error trying to save the DB, can't exit.");
        supervisor::notify("STATUS=Error trying to save the DB, can't exit.\n");
        false
    }

    /// Other walks end. One may begin after that, and ends too: the cut of a replica's snapshot, BGSAVE of a
    /// client.
    fn save(&self) -> Asked {
        let mut held = Held::new(self.store.keyspace);
        let begun = instant();
        loop {
            background::stop(self.store, END_MAX);
            // A script in its middle is waited for, unless SHUTDOWN NOSAVE ends that.
            while !held.try_gate() {
                if self.wish.is_insisted() || elapsed(begun) > ATTEMPTS && !self.wish.is_on() {
                    return Asked::Failed;
                }
                routines::pause(routines::LOOK);
            }
            // A disk that hangs is no error: the guard ends the process.
            let is_guarded = self.wish.is_on();
            let asker = if is_guarded { Asker::Signal } else { Asker::Client };
            let asked = background::save_now(self.store, &mut held, asker, self.used_memory_bytes);
            if asked != Asked::Busy || elapsed(begun) > ATTEMPTS && !is_guarded {
                return asked;
            }
        }
    }
}
