//! State of the process: when and how it was started, where it listens, and whether it is about to end.

use isotherm_keyspace::{SteadyMs, UnixMs};
use std::path::PathBuf;
use std::sync::atomic::{AtomicI64, Ordering::SeqCst};
use std::time::Duration;

use crate::process::asked_end::Pending;
use crate::process::ending::Ending;
use crate::process::listeners::Listeners;
use crate::process::wish::Wish;
use isotherm_config::file::Origin;
use isotherm_runtime::time::unix_now;

pub struct Process {
    pub started: UnixMs,
    /// 40 hexadecimal digits, new with every start.
    pub run_id: Box<str>,
    /// Seed for random numbers that need not be secret.
    pub seed: u64,
    /// Absolute.
    pub executable: PathBuf,
    pub config_file: Option<Origin>,
    /// Address at which metrics are served.
    pub metrics: Option<(String, u16)>,
    pub listeners: Listeners,
    /// A signal to end that is not acted on yet.
    pub pending_end: Pending,
    /// Outcome of the signals to end.
    pub wish: Wish,
    /// The end waits for replicas.
    pub ending: Ending,
    pub restart: Restart,
}

/// Delay after which the program starts again in place of this process, once that has ended, if it is to.
pub struct Restart(AtomicI64);

impl Restart {
    const NONE: i64 = -1;

    /// Asks for a start `delay_ms` after the end of the process.
    pub fn want(&self, delay_ms: i64) {
        self.0.store(delay_ms, SeqCst);
    }

    pub fn call_off(&self) {
        self.0.store(Restart::NONE, SeqCst);
    }

    pub fn delay(&self) -> Option<Duration> {
        u64::try_from(self.0.load(SeqCst)).ok().map(Duration::from_millis)
    }
}

impl Default for Restart {
    fn default() -> Restart {
        Restart(AtomicI64::new(Restart::NONE))
    }
}

impl Process {
    /// SHUTDOWN ABORT, while a signal is not acted on. Whether there was one.
    pub fn abort_pending(&self) -> bool {
        let was_pending = self.pending_end.abort();
        if was_pending {
            self.wish.call_off();
        }
        was_pending
    }

    /// Returns for how long it has run. As it began no step of the clock was known.
    pub fn age_ms(&self, now: UnixMs) -> i64 {
        SteadyMs::of(now).ms_since(SteadyMs(self.started.0)).max(0)
    }

    pub fn new(random: [u8; 32], config_file: Option<Origin>, metrics: Option<(String, u16)>) -> Process {
        let (id, seed) = random.split_at(20);
        Process {
            started: unix_now(),
            run_id: id.iter().map(|byte| format!("{byte:02x}")).collect::<String>().into(),
            seed: seed.iter().fold(0, |seed, byte| seed << 8 | u64::from(*byte)),
            executable: std::env::current_exe().unwrap_or_default(),
            config_file,
            metrics,
            listeners: Listeners::default(),
            pending_end: Pending::default(),
            wish: Wish::default(),
            ending: Ending::default(),
            restart: Restart::default(),
        }
    }
}
