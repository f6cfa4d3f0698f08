//! The end as it is asked for: by the words of SHUTDOWN, or by a signal that no thread acts on yet.

use std::sync::atomic::{AtomicU8, Ordering};

use isotherm_config::{Config, Id, id};
use isotherm_runtime::log;

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
