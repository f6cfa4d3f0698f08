//! State of saving and loading, for INFO and for the code that decides whether to save.

use isotherm_disk::Disk;
use isotherm_persist::rdb::file::LogMark;
use isotherm_stdx::UnixMs;
use isotherm_stdx::steady::SteadyMs;
use std::sync::atomic::{AtomicBool, AtomicI64, AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use isotherm_runtime::time::{elapsed, instant, unix_now};
use isotherm_runtime::{log, routines};

/// Longest wait of a worker, or of the control thread, for the end of a walk that it has cancelled.
pub const END_MAX: Duration = Duration::from_secs(1);
/// Time that a file in the background gives one read of a value: no thread waits for the file.
pub const READ_MAX: Duration = Duration::from_secs(60);

pub struct Persistence {
    pub disk: Arc<dyn Disk>,
    saving: Mutex<Saving>,
    /// Saves that were about to put their file in the place of the one before.
    pub replaced: AtomicU64,
    /// The save under way is to end at once, without its file.
    pub is_cancelled: AtomicBool,
    pub progress: Progress,
    pub loading: Loading,
}

/// Progress of the save under way.
#[derive(Default)]
pub struct Progress {
    pub keys: AtomicU64,
    pub keys_total: AtomicU64,
    /// Written to the file.
    pub bytes: AtomicU64,
    /// Steps of the walks of all saves. `writer_waits` counts how often writers had to wait because too much
    /// was kept.
    pub steps: AtomicU64,
    pub writer_waits: AtomicU64,
    /// Signs of life between two steps: values that were read, delays for tests.
    pub moves: AtomicU64,
}

/// The start, until the data is there.
#[derive(Default)]
pub struct Loading {
    pub started_seconds: AtomicU64,
    /// Beginning of the load, as a `SteadyMs`.
    pub begun_ms: AtomicI64,
    pub total_bytes: AtomicU64,
    pub loaded_bytes: AtomicU64,
    /// Memory that was used by the server that wrote the file.
    pub used_memory_bytes: AtomicU64,
    pub keys_loaded: AtomicU64,
    pub keys_expired: AtomicU64,
}

impl Loading {
    /// Begins a load of `total_bytes`; 0: their number is not known.
    pub fn begin(&self, now: UnixMs, total_bytes: u64) {
        self.started_seconds.store((now.0 / 1000) as u64, Relaxed);
        self.begun_ms.store(SteadyMs::of(now).0, Relaxed);
        self.total_bytes.store(total_bytes, Relaxed);
        let counters = [&self.loaded_bytes, &self.used_memory_bytes, &self.keys_loaded, &self.keys_expired];
        counters.into_iter().for_each(|counter| counter.store(0, Relaxed));
    }
}

#[derive(Clone, Debug)]
pub struct Saving {
    pub running: Option<Running>,
    /// BGSAVE SCHEDULE came while another save was under way.
    pub is_scheduled: bool,
    /// The last save that succeeded, or the start: in Unix seconds for clients, and by a clock that does not
    /// go back.
    pub last_save_seconds: i64,
    pub last_save: Instant,
    /// The last one in the background that began.
    pub last_try: Option<Instant>,
    pub last_failed: bool,
    /// Duration of the last save in the background; -1 if there was none.
    pub last_took_seconds: i64,
    /// Changes that the last file has (`Values::dirty` at its cut).
    pub saved_changes: u64,
    /// Saves that were begun.
    pub saves: u64,
    /// Time for which everything was held for the last cut; `cuts` is the number of cuts.
    pub cut_us: u64,
    pub cuts: u64,
    /// Unix time of the last cut, which its file has as the time of its creation.
    pub cut_seconds: i64,
    /// Mark of the log that the next cut's file has.
    pub log: Option<LogMark>,
    /// The steps that there were when the cron last saw more of them, and when that was.
    pub seen_steps: u64,
    pub seen_at: Instant,
}

impl Saving {
    /// Notes a cut, for which everything was held for `took`. Returns its Unix time, and the mark of the log
    /// for its file.
    pub fn note_cut(&mut self, took: Duration) -> (i64, Option<LogMark>) {
        (self.cut_us, self.cuts) = (took.as_micros() as u64, self.cuts + 1);
        self.cut_seconds = unix_now().0 / 1000;
        (self.cut_seconds, self.log)
    }
}

#[derive(Clone, Copy, Debug)]
pub struct Running {
    pub began: Instant,
    pub job: Job,
}

/// Purpose of a walk over the keyspace.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Job {
    /// SAVE, SHUTDOWN: the thread that asked writes.
    Save(Asker),
    /// BGSAVE and save points.
    BackgroundSave,
    /// A new base of the append-only file.
    Rewrite,
    /// A snapshot for replicas, which is streamed to them.
    Stream,
}

/// Thread that a save keeps.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Asker {
    Client,
    /// The process is to end, and does without the file if the save makes no progress.
    Signal,
    /// DEBUG RELOAD: everything is held while the file is written.
    Holder,
}

/// Outcome for a walk that was to end.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Ended {
    /// No such walk was under way.
    Nothing,
    Walk,
    /// Left behind, since its disk hangs: it ends without its file when that answers. Until then no other
    /// begins.
    LeftBehind,
}

impl Persistence {
    pub fn new(disk: Arc<dyn Disk>, now_seconds: i64) -> Persistence {
        Persistence {
            disk,
            saving: Mutex::new(Saving {
                running: None,
                is_scheduled: false,
                last_save_seconds: now_seconds,
                last_save: instant(),
                last_try: None,
                last_failed: false,
                last_took_seconds: -1,
                saved_changes: 0,
                saves: 0,
                cut_us: 0,
                cuts: 0,
                cut_seconds: 0,
                log: None,
                seen_steps: 0,
                seen_at: instant(),
            }),
            replaced: AtomicU64::new(0),
            is_cancelled: AtomicBool::new(false),
            progress: Progress::default(),
            loading: Loading::default(),
        }
    }

    /// Held for a moment only.
    pub fn saving(&self) -> MutexGuard<'_, Saving> {
        self.saving.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Asks the walk that is under way to end, if it is of such a job. Whether it is.
    pub fn cancel(&self, is_one: impl Fn(Job) -> bool) -> bool {
        let saving = self.saving();
        let is_found = saving.running.is_some_and(|running| is_one(running.job));
        if is_found {
            // Under the mutex: it is not the next one's.
            self.is_cancelled.store(true, Relaxed);
        }
        is_found
    }

    /// Ends the walk that is under way, if it is of such a job, and waits for that, no longer than `at_most`.
    /// The caller holds nothing.
    pub fn end(&self, at_most: Duration, is_one: impl Fn(Job) -> bool) -> Ended {
        let begun = instant();
        let mut ended = Ended::Nothing;
        while self.cancel(&is_one) {
            if elapsed(begun) > at_most {
                log::warning(
                    "What is being saved cannot be ended: its disk does not answer. It is left behind",
                );
                return Ended::LeftBehind;
            }
            ended = Ended::Walk;
            routines::pause(routines::LOOK);
        }
        ended
    }

    /// Begins a walk, unless one is under way.
    pub fn begin(&self, job: Job) -> bool {
        let mut saving = self.saving();
        if saving.running.is_some() {
            return false;
        }
        saving.running = Some(Running { began: instant(), job });
        saving.saves += u64::from(job != Job::Rewrite);
        if job == Job::BackgroundSave {
            saving.last_try = Some(instant());
        }
        self.is_cancelled.store(false, Relaxed);
        self.progress.keys.store(0, Relaxed);
        self.progress.bytes.store(0, Relaxed);
        self.progress.keys_total.store(0, Relaxed);
        true
    }
}
