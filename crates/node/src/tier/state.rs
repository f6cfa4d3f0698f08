//! State that all threads share about the values that are not in memory.

use isotherm_allocator as allocator;
use isotherm_disk::Disk;
use isotherm_keyspace::{ColdKeeper, ColdRef, Db, Keyspace};
use isotherm_tier::{Checkpoint, Live, Log, LogConfig, Place};
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use super::asked::Asked;
use super::checkpoint::Checkpoints;
use super::damaged::DamagedRecords;
use super::fetches::Turnstile;
use super::files::{Access, Files};
use super::health::{Event, Health, State};
use super::homes::Homes;
use super::lent::Lent;
use super::owner::Claim;
use super::read_warnings::ReadWarnings;
use super::reads::Reads;
use super::rings::Rings;
use super::times::Times;
use super::verify::Verify;
use crate::room::shortage::ValueDisk;
use isotherm_runtime::routines;
use isotherm_runtime::time::{elapsed, instant};

/// Part of the limit by which memory has grown since nothing could leave it, so that all of it is looked
/// through again: half of the distance between writers that continue and writers that wait.
const GROWN_DIVISOR: u64 = 128;

/// Time after which the sinker's call to the disk counts as hanging.
const HANGS_MS: u64 = 2000;

/// Keys whose values are asked to leave memory, and not gone yet.
const ASKED_MAX: usize = 1024;
/// Hashes with fields that are due, and that were not read yet: some 100 B each. Others are asked for again a
/// second later.
const DUE_MAX: usize = 8192;

/// Counted since the start.
#[derive(Default)]
pub struct Counters {
    pub reads: AtomicU64,
    pub read_bytes: AtomicU64,
    pub read_us: AtomicU64,
    pub reads_in_commands: AtomicU64,
    pub unreadable: AtomicU64,
    pub sunk_values: AtomicU64,
    /// Nodes that left again without being written.
    pub clean_nodes: AtomicU64,
    /// Keys that froze, or were found frozen by a start.
    pub frozen_keys: AtomicU64,
    pub sunk_bytes: AtomicU64,
    pub written_bytes: AtomicU64,
    pub cleaned_segments: AtomicU64,
    pub survivor_bytes: AtomicU64,
    pub write_errors: AtomicU64,
    /// Reads that the system refused.
    pub read_errors: AtomicU64,
    /// Records that were read and do not verify.
    pub damaged: AtomicU64,
    /// Times that reads took.
    pub read_times: Times,
    /// Time for which commands that write waited for the sinker, in all.
    pub slowed_ms: AtomicU64,
    /// Bytes of the log, as the sinker last saw it; so are the next two.
    pub file_bytes: AtomicU64,
    pub dead_bytes: AtomicU64,
    pub free_segments: AtomicU64,
    /// Memory that the groups of the log take; `table_bytes` is that of its tables.
    pub group_bytes: AtomicU64,
    pub table_bytes: AtomicU64,
    /// Kept only because the base in force names them.
    pub waiting_segments: AtomicU64,
    /// Segments of the whole log.
    pub segments: AtomicU64,
    /// Bytes of the log that values can take.
    pub usable_bytes: AtomicU64,
    /// Bytes left on the file system.
    pub disk_free_bytes: AtomicU64,
}

pub struct Tier {
    pub files: Files,
    pub counters: Counters,
    pub reads: Reads<Tier>,
    pub rings: Rings,
    /// Turn of a command that needs more than fits with the values that others wait for.
    pub turnstile: Turnstile,
    pub checkpoints: Checkpoints,
    /// The base that refers to the log is being loaded: what lives is not known yet.
    pub is_restoring: AtomicBool,
    /// The sinker waits for segments: nothing can leave memory before a base is in force, or a snapshot is
    /// through.
    pub is_awaiting_segments: AtomicBool,
    /// Time since which all segments that nothing lives in are kept for those; 0: they are not.
    pub(super) segments_kept_since_ms: AtomicU64,
    /// The base that refers to the log was found by a start that has not loaded it, as `appendonly` is off:
    /// nothing writes over it unasked.
    pub has_foreign_base: AtomicBool,
    pub(super) live: Arc<Live>,
    pub(super) undeclared_reads: AtomicU64,
    pub damaged_records: DamagedRecords,
    pub(super) read_warnings: ReadWarnings,
    pub homes: Homes,
    health: Mutex<Health>,
    /// State of `health`; `suspects_reads` is a copy from there too.
    state: AtomicU8,
    suspects_reads: AtomicBool,
    pub(super) is_probing: AtomicBool,
    pub lent: Lent,
    /// No value that may leave is left in memory.
    is_idle: AtomicBool,
    /// Bytes that were in use as the look began that has set `is_idle`.
    idle_at_bytes: AtomicU64,
    is_off: AtomicBool,
    pub verify: Verify,
    /// SWAP CLEAN: number of segments that are cleaned at most.
    pub cleanings_wanted: AtomicU64,
    /// Keys whose values are to leave memory: STORETOSSDB.
    pub to_leave: Asked,
    /// Hashes that have fields that are due.
    pub due: Asked,
    began: Instant,
    /// Since when commands that write wait for the sinker; 0: they do not.
    slowed_since_ms: AtomicU64,
    /// Since when the sinker waits for the disk; 0: it does not.
    sinker_waits_since_ms: AtomicU64,
    /// used_memory
    pub(super) used_bytes: Box<dyn Fn() -> u64 + Send + Sync>,
    /// Bytes in use below which values come to memory that are only read.
    pub(super) home_below_bytes: AtomicU64,
    /// 0: there is none.
    pub(super) read_timeout_ms: AtomicU64,
    is_wanted: Mutex<bool>,
    wanted: Condvar,
}

/// Settings of the files, from the configuration.
pub struct Terms {
    pub disk_bytes_max: u64,
    /// Bytes that may be lent.
    pub cache_bytes: u64,
    pub access: Access,
}

impl Tier {
    /// Takes the folder. The log is for the sinker.
    pub fn open(
        disk: Arc<dyn Disk>,
        folder: &Path,
        terms: Terms,
        keyspace: &Keyspace,
        claim: &Claim,
    ) -> Result<(Arc<Tier>, Log), String> {
        let named = claim.checkpoint.as_ref().map(Checkpoint::named).unwrap_or_default();
        let config = LogConfig::of_bytes(terms.disk_bytes_max).covering(&named);
        let config = match routines::is_simulated() {
            true => config.with_segments_of(isotherm_tier::GROUP_BYTES as u64),
            false => config,
        };
        let files = Files::open(disk, folder, config.segments_max(), claim, terms.access)?;
        let log = Log::restored(config, &named);
        let arenas = keyspace.arenas().to_vec();
        let live_bytes = move || arenas.iter().map(|arena| arena.live_bytes()).sum::<u64>();
        let tier = Arc::new(Tier {
            files,
            counters: Counters::default(),
            reads: Reads::default(),
            rings: Rings::default(),
            turnstile: Turnstile::default(),
            checkpoints: Checkpoints::default(),
            is_restoring: AtomicBool::new(false),
            is_awaiting_segments: AtomicBool::new(false),
            segments_kept_since_ms: AtomicU64::new(0),
            has_foreign_base: AtomicBool::new(false),
            live: log.live(),
            undeclared_reads: AtomicU64::new(0),
            damaged_records: DamagedRecords::default(),
            read_warnings: ReadWarnings::default(),
            homes: Homes::default(),
            health: Mutex::default(),
            state: AtomicU8::new(State::Works as u8),
            suspects_reads: AtomicBool::new(false),
            is_probing: AtomicBool::new(false),
            lent: Lent::new(terms.cache_bytes, keyspace.partition_count()),
            is_idle: AtomicBool::new(false),
            idle_at_bytes: AtomicU64::new(0),
            is_off: AtomicBool::new(false),
            verify: Verify::default(),
            cleanings_wanted: AtomicU64::new(0),
            to_leave: Asked::new(ASKED_MAX),
            due: Asked::new(DUE_MAX),
            began: instant(),
            slowed_since_ms: AtomicU64::new(0),
            sinker_waits_since_ms: AtomicU64::new(0),
            used_bytes: Box::new(move || live_bytes() + allocator::allocated_bytes()),
            home_below_bytes: AtomicU64::new(u64::MAX),
            read_timeout_ms: AtomicU64::new(0),
            is_wanted: Mutex::new(false),
            wanted: Condvar::new(),
        });
        let shared: Arc<dyn ColdKeeper> = tier.clone();
        keyspace.keep_cold(&shared);
        Ok((tier, log))
    }
}

impl Tier {
    // ---- how the disk is ----

    pub fn state(&self) -> State {
        match State::of(self.state.load(Relaxed)) {
            State::Failed => State::Failed,
            _ if self.is_off.load(Relaxed) => State::Off,
            State::Works if self.is_idle.load(Relaxed) => State::Idle,
            state => state,
        }
    }

    /// Returns whether what is on disk cannot be had at present.
    pub fn has_failed(&self) -> bool {
        self.state() == State::Failed
    }

    /// Notes that nothing may leave memory, with `used_bytes` of it in use.
    pub fn set_idle(&self, used_bytes: u64) {
        self.idle_at_bytes.store(used_bytes, Relaxed);
        self.is_idle.store(true, Relaxed);
    }

    pub fn end_idle(&self) {
        self.is_idle.store(false, Relaxed);
    }

    /// Notes how much memory is in use: what has come since nothing could leave may leave.
    pub fn note_used(&self, used_bytes: u64, limit_bytes: u64) {
        let grown_bytes = used_bytes.saturating_sub(self.idle_at_bytes.load(Relaxed));
        if grown_bytes > limit_bytes / GROWN_DIVISOR && self.is_idle.load(Relaxed) {
            self.end_idle();
        }
    }

    /// `swap-mode no`, or yes again.
    pub fn set_off(&self, is_off: bool) {
        if self.is_off.swap(is_off, Relaxed) != is_off {
            isotherm_runtime::log::notice(format!("swap: switched {}", if is_off { "off" } else { "on" }));
            self.wake();
        }
    }

    pub fn is_off(&self) -> bool {
        self.is_off.load(Relaxed)
    }

    pub fn segments_max(&self) -> u64 {
        self.files.segments_max()
    }

    /// Returns whether files are read and written past the page cache.
    pub fn is_direct(&self) -> bool {
        self.files.is_direct()
    }

    /// Returns what the values on disk take there, with their heads: in memory they take about as much.
    pub fn live_bytes(&self) -> u64 {
        self.live.bytes()
    }

    // ---- what operators ask for ----

    /// The value of this key leaves memory as soon as it can. Whether it was noted: not if too many are.
    pub fn ask_to_leave(&self, db: Db, key: &[u8]) -> bool {
        let has_room = self.to_leave.push(db, key);
        self.wake();
        has_room
    }

    // ---- how it is, in detail ----

    pub(super) fn now_ms(&self) -> u64 {
        // 0 stands for none.
        elapsed(self.began).as_millis() as u64 + 1
    }

    fn health(&self) -> MutexGuard<'_, Health> {
        self.health.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub fn note(&self, event: Event) {
        let mut health = self.health();
        let before = health.state();
        let state = health.step(event, self.now_ms());
        self.state.store(state as u8, Relaxed);
        self.suspects_reads.store(health.suspects_reads(), Relaxed);
        drop(health);
        if state != before {
            isotherm_runtime::log::warning(format!("swap: {} (was: {})", state.name(), before.name()));
        }
    }

    /// Returns how it looks to callers that are short of memory.
    pub fn takes(&self) -> ValueDisk {
        match self.state() {
            State::Works => ValueDisk::Takes,
            State::Idle => ValueDisk::Unasked,
            State::Full => match self.segments_kept_ms() {
                Some(ms) => ValueDisk::Troubled { ms },
                None => ValueDisk::Full,
            },
            State::Off => ValueDisk::Full,
            State::Degraded | State::Failed => {
                ValueDisk::Troubled { ms: self.health().trouble_ms(self.now_ms()) }
            }
        }
    }

    pub fn may_write(&self) -> bool {
        self.health().may_write(self.now_ms())
    }

    /// Returns whether reads have failed lately.
    pub fn suspects_reads(&self) -> bool {
        self.suspects_reads.load(Relaxed)
    }

    /// A reader probes the disk if it is time.
    pub fn probe_if_due(&self) {
        let is_due = self.suspects_reads() && self.health().take_probe(self.now_ms());
        // Before the disk has failed one that hangs holds up one reader.
        if is_due && (!self.is_probing.swap(true, Relaxed) || self.state() == State::Failed) {
            self.reads.ask_probe();
        }
    }

    /// The sinker calls the disk, which may take as long as it likes: others see that.
    pub fn call_disk<R>(&self, call: impl FnOnce(&Files) -> R) -> R {
        self.sinker_waits_since_ms.store(self.now_ms(), Relaxed);
        let result = call(&self.files);
        self.sinker_waits_since_ms.store(0, Relaxed);
        result
    }

    /// Commands that write wait from now on, or no longer.
    pub fn note_slowed(&self, is_slowed: bool) {
        let since_ms = &self.slowed_since_ms;
        if is_slowed {
            _ = since_ms.compare_exchange(0, self.now_ms(), Relaxed, Relaxed);
        } else if let since @ 1.. = since_ms.swap(0, Relaxed) {
            self.counters.slowed_ms.fetch_add(self.now_ms().saturating_sub(since), Relaxed);
        }
    }

    pub fn is_sinker_stuck(&self) -> bool {
        let since_ms = self.sinker_waits_since_ms.load(Relaxed);
        since_ms > 0 && self.now_ms().saturating_sub(since_ms) >= HANGS_MS
    }

    /// Sets how long commands wait for a value; `None`: as long as it takes.
    pub fn set_read_timeout(&self, timeout: Option<Duration>) {
        self.read_timeout_ms.store(timeout.map_or(0, |timeout| timeout.as_millis() as u64), Relaxed);
    }

    /// Sets below which used_memory values come to memory that are only read.
    pub fn set_home_below(&self, bytes: u64) {
        self.home_below_bytes.store(bytes, Relaxed);
    }

    /// Returns the bytes of copies of what is on disk, and of buffers for those: no key leaves for them.
    pub fn copies_bytes(&self) -> u64 {
        self.lent.bytes() + self.rings.bytes() + isotherm_disk::direct_rooms_bytes() as u64
    }

    /// Returns how many bytes one partition may have lent.
    pub fn lent_bytes_max(&self) -> usize {
        self.lent.bytes_max()
    }

    /// Values that commands met whose declarations do not lead to them: read under a lock.
    pub fn undeclared_reads(&self) -> u64 {
        self.undeclared_reads.load(Relaxed)
    }

    /// Returns whether keys may lie on disk themselves.
    pub fn may_have_frozen(&self) -> bool {
        self.counters.frozen_keys.load(Relaxed) > 0
    }

    /// A file refers to a value, and an entry is about to.
    pub fn add(&self, reference: ColdRef) {
        self.live.add(Place::from_raw(reference.raw()));
    }

    // ---- the sinker is woken ----

    pub fn wake(&self) {
        let mut is_wanted = self.is_wanted.lock().unwrap_or_else(PoisonError::into_inner);
        if !std::mem::replace(&mut *is_wanted, true) {
            self.wanted.notify_one();
        }
    }

    /// Waits until it is woken, no longer than `at_most`.
    pub fn await_wake(&self, at_most: Duration) {
        let is_wanted = self.is_wanted.lock().unwrap_or_else(PoisonError::into_inner);
        let waited = self.wanted.wait_timeout_while(is_wanted, at_most, |is_wanted| !*is_wanted);
        *waited.unwrap_or_else(PoisonError::into_inner).0 = false;
    }
}
