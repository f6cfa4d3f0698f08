//! The end: who asks for it, what may stand in its way, and who calls it off.
//!
//! ```text
//! SIGTERM, SIGINT --> pending -- next look of the control thread --+
//!                        |                                         v
//! SHUTDOWN ABORT --------+ nothing is pending     SHUTDOWN --> may it? --> end
//! ```
//! SAVE asks for what does not exist yet: a file. It stands in the way of the end, unless FORCE says that it need not.

use std::sync::atomic::{AtomicU8, Ordering};

use crate::config::{Config, Id, id};
use crate::process::log;

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
    /// A signal has come. A second interrupt ends the process at once.
    pub fn note(&self, signal: Signal) {
        let before = self.0.swap(signal as u8, Ordering::AcqRel);
        if before != 0 && signal == Signal::Interrupt {
            log::warning("You insist... exiting now.");
            std::process::exit(1);
        }
        log::warning(format!("Received {} scheduling shutdown...", signal.name()));
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
    /// Whether the signal that is pending ends the process now.
    pub fn ends(&self, config: &Config) -> bool {
        self.take().is_some_and(|signal| {
            let may_end = may_end(Options(config.number(signal.parameter())), "");
            if !may_end {
                log::warning("Errors trying to shut down the server. Check the logs for more information.");
            }
            may_end
        })
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

/// Whether nothing stands in the way of the end. `by` says which client has asked, if it was not a signal.
pub fn may_end(options: Options, by: &str) -> bool {
    log::notice(format!("User requested shutdown...{by}"));
    if !options.has(Options::SAVE) {
        return true;
    }
    log::notice("Saving the final RDB snapshot before exiting.");
    match options.has(Options::FORCE) {
        true => log::warning("Error trying to save the DB. Exit anyway."),
        false => log::warning("Error trying to save the DB, can't exit."),
    }
    options.has(Options::FORCE)
}
