//! The end: requests for it, what may stand in its way, and how it is called off.
//!
//! ```text
//! SIGTERM, SIGINT --> `guard` --> pending -- next look of the control thread --+
//!                                    |                                         v
//! SHUTDOWN ABORT --------------------+ nothing is pending     SHUTDOWN --> may it? --> end
//! ```
//! A file that cannot be written stands in the way of the end, unless FORCE says that it need not.

use std::sync::atomic::{AtomicU8, Ordering, Ordering::Relaxed};
use std::time::Duration;

use isotherm_keyspace::Held;

use crate::aof::state::AofState;
use crate::config::{Config, Id, id};
use crate::mail::tasks::Tasks;
use crate::persistence::Store;
use crate::persistence::background::{self, Asked};
use crate::persistence::state::{Asker, END_MAX};
use crate::process::log;
use crate::process::routines;
use crate::process::supervisor;
use crate::process::time::{elapsed, instant};
use crate::process::wish::Wish;
use crate::request::pause::{Cause, Pause};

/// The words of SHUTDOWN, as those of `shutdown-on-sigterm` are kept.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct Options(pub i64);

impl Options {
    pub const SAVE: Options = Options(1);
    pub const NOSAVE: Options = Options(2);
    pub const NOW: Options = Options(4);
    pub const FORCE: Options = Options(8);
    pub const SAFE: Options = Options(16);
    pub const FAILOVER: Options = Options(32);

    pub fn or(self, other: Options) -> Options {
        Options(self.0 | other.0)
    }

    pub fn has(self, other: Options) -> bool {
        self.0 & other.0 != 0
    }
}

/// The signals that ask for the end.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u8)]
pub enum Signal {
    Terminate = 1,
    Interrupt = 2,
}

impl Signal {
    fn name(self) -> &'static str {
        match self {
            Signal::Terminate => "SIGTERM",
            Signal::Interrupt => "SIGINT",
        }
    }

    fn parameter(self) -> Id {
        const ON_SIGTERM: Id = id("shutdown-on-sigterm");
        const ON_SIGINT: Id = id("shutdown-on-sigint");
        match self {
            Signal::Terminate => ON_SIGTERM,
            Signal::Interrupt => ON_SIGINT,
        }
    }
}

/// The last signal that was not acted on yet.
#[derive(Default)]
pub struct Pending(AtomicU8);

impl Pending {
    /// A signal has come.
    pub fn note(&self, signal: Signal) {
        self.0.store(signal as u8, Ordering::Release);
        log::warning(format!("Received {} scheduling shutdown...", signal.name()));
    }

    pub fn is_some(&self) -> bool {
        self.0.load(Ordering::Acquire) != 0
    }

    /// The thread that takes it acts on it, or calls it off.
    pub fn take(&self) -> Option<Signal> {
        match self.0.swap(0, Ordering::AcqRel) {
            0 => None,
            1 => Some(Signal::Terminate),
            _ => Some(Signal::Interrupt),
        }
    }
}

impl Pending {
    /// The options of the signal that is pending, if there is one.
    pub fn take_options(&self, config: &Config) -> Option<Options> {
        self.take().map(|signal| Options(config.number(signal.parameter())))
    }

    /// SHUTDOWN ABORT. Whether there was something to call off.
    pub fn abort(&self) -> bool {
        let was_pending = self.take().is_some();
        if was_pending {
            log::notice("Shutdown manually aborted.");
        }
        was_pending
    }
}

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
