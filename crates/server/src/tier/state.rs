//! What all threads share of the values that are not in memory.

use isotherm_commands::call::{ColdKey, ColdKeys};
use isotherm_disk::Disk;
use isotherm_keyspace::{ColdKeeper, ColdRef, Held, Keyspace, Want, Whereabouts};
use isotherm_tier::{Live, Log, LogConfig, Place};
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::time::Duration;

use super::files::{Files, ReadError};
use super::reads::Reads;
use crate::process::time::unix_now;

/// A value that does not verify is read so often: the place of a value that is moved meanwhile is looked up anew each time.
const READS_MAX: u32 = 3;

/// What the sinker can do.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u8)]
pub enum State {
    Works = 0,
    /// No room is left on disk, or a write failed: nothing leaves memory until there is.
    Full = 1,
    /// Nothing that may leave is left in memory.
    Idle = 2,
}

impl State {
    pub fn name(self) -> &'static str {
        match self {
            State::Works => "ok",
            State::Full => "full",
            State::Idle => "nothing-to-move",
        }
    }
}

/// Counted since the start.
#[derive(Default)]
pub struct Counters {
    pub reads: AtomicU64,
    pub read_bytes: AtomicU64,
    pub read_us: AtomicU64,
    pub reads_in_commands: AtomicU64,
    pub unreadable: AtomicU64,
    pub sunk_values: AtomicU64,
    pub sunk_bytes: AtomicU64,
    pub written_bytes: AtomicU64,
    pub cleaned_segments: AtomicU64,
    pub survivor_bytes: AtomicU64,
    pub write_errors: AtomicU64,
    /// As the sinker last saw it.
    pub file_bytes: AtomicU64,
    pub free_segments: AtomicU64,
}

/// Gets back the places that no entry has.
struct Keeper {
    files: Arc<Files>,
    live: Arc<Live>,
    undeclared_reads: AtomicU64,
    takes_home: AtomicBool,
}

impl ColdKeeper for Keeper {
    fn retire(&self, reference: ColdRef) {
        self.live.retire(Place::from_raw(reference.raw()));
    }

    fn read(&self, reference: ColdRef, key: &[u8]) -> Option<Vec<u8>> {
        self.undeclared_reads.fetch_add(1, Relaxed);
        // The key's partition is held: the value stays where it is.
        (0..READS_MAX).find_map(|_| self.files.read(Place::from_raw(reference.raw()), key).ok())
    }

    fn takes_home(&self) -> bool {
        self.takes_home.load(Relaxed)
    }
}

pub struct Tier<M> {
    pub files: Arc<Files>,
    pub counters: Counters,
    pub reads: Reads<M, Fetched>,
    keeper: Arc<Keeper>,
    state: AtomicU8,
    /// Values of so many bytes may be lent by one partition.
    lent_bytes_max: usize,
    is_wanted: Mutex<bool>,
    wanted: Condvar,
}

impl<M> Tier<M> {
    /// Takes the folder. The log is for the sinker.
    pub fn open(
        disk: Arc<dyn Disk>,
        folder: &Path,
        disk_bytes_max: u64,
        cache_bytes: u64,
        keyspace: &Keyspace,
    ) -> Result<(Tier<M>, Log), String> {
        let config = LogConfig::of_bytes(disk_bytes_max);
        let log = Log::new(config);
        let files = Arc::new(Files::open(disk, folder, config.segments_max())?);
        let keeper = Arc::new(Keeper {
            files: Arc::clone(&files),
            live: log.live(),
            undeclared_reads: AtomicU64::new(0),
            takes_home: AtomicBool::new(true),
        });
        let shared: Arc<dyn ColdKeeper> = keeper.clone();
        keyspace.keep_cold(&shared);
        let tier = Tier {
            files,
            counters: Counters::default(),
            reads: Reads::default(),
            keeper,
            state: AtomicU8::new(State::Works as u8),
            lent_bytes_max: (cache_bytes / keyspace.partition_count() as u64) as usize,
            is_wanted: Mutex::new(false),
            wanted: Condvar::new(),
        };
        Ok((tier, log))
    }

    pub fn state(&self) -> State {
        match self.state.load(Relaxed) {
            0 => State::Works,
            1 => State::Full,
            _ => State::Idle,
        }
    }

    pub fn set_state(&self, state: State) -> State {
        match self.state.swap(state as u8, Relaxed) {
            0 => State::Works,
            1 => State::Full,
            _ => State::Idle,
        }
    }

    /// Above a share of the limit values that are read stay where they are.
    pub fn set_takes_home(&self, takes: bool) {
        self.keeper.takes_home.store(takes, Relaxed);
    }

    /// Values that commands met whose declarations do not lead to them: read under a lock.
    pub fn undeclared_reads(&self) -> u64 {
        self.keeper.undeclared_reads.load(Relaxed)
    }

    // ---- the sinker is woken ----

    pub fn wake(&self) {
        let mut is_wanted = self.is_wanted.lock().unwrap_or_else(PoisonError::into_inner);
        if !std::mem::replace(&mut *is_wanted, true) {
            self.wanted.notify_one();
        }
    }

    /// Waits until it is, or so long.
    pub fn await_wake(&self, at_most: Duration) {
        let is_wanted = self.is_wanted.lock().unwrap_or_else(PoisonError::into_inner);
        let waited = self.wanted.wait_timeout_while(is_wanted, at_most, |is_wanted| !*is_wanted);
        *waited.unwrap_or_else(PoisonError::into_inner).0 = false;
    }

    // ---- reading ----

    /// The value of a key at a place.
    pub fn read(&self, reference: ColdRef, key: &[u8]) -> Result<Vec<u8>, ReadError> {
        let from = std::time::Instant::now();
        let value = self.files.read(Place::from_raw(reference.raw()), key);
        self.counters.reads.fetch_add(1, Relaxed);
        self.counters.read_us.fetch_add(from.elapsed().as_micros() as u64, Relaxed);
        if let Ok(value) = &value {
            self.counters.read_bytes.fetch_add(value.len() as u64, Relaxed);
        }
        value
    }

    /// Reads what a key refers to, as often as it refers to something else meanwhile. Holds its partition only to look. `None`: it is
    /// no longer away, or was not.
    pub fn read_key(&self, keyspace: &Keyspace, cold: &ColdKey) -> Option<Fetched> {
        let key = keyspace.key(&cold.key);
        let look = || {
            let mut held = Held::new(keyspace);
            held.acquire(Want::One(keyspace.partition_of(key.slot)));
            let place = held.whereabouts(cold.db, &key, cold.home);
            let lent = if cold.home { held.lent(cold.db, &key) } else { None };
            (place, lent)
        };
        let mut reads = 0;
        let mut before = None;
        loop {
            let (Whereabouts::Away(value), lent) = look() else { return None };
            if let Some(lent) = lent {
                return Some(Fetched { from: value.reference, value: Some(lent.into_vec()) });
            }
            // It was moved: that was no failure of the disk.
            reads = if before == Some(value.reference) { reads + 1 } else { 0 };
            if reads == READS_MAX {
                self.counters.unreadable.fetch_add(1, Relaxed);
                return Some(Fetched { from: value.reference, value: None });
            }
            before = Some(value.reference);
            match self.read(value.reference, &cold.key) {
                Ok(bytes) => return Some(Fetched { from: value.reference, value: Some(bytes) }),
                Err(error) if reads + 1 == READS_MAX => self.complain(&cold.key, &error),
                Err(_) => {}
            }
        }
    }

    fn complain(&self, key: &[u8], error: &ReadError) {
        crate::process::log::warning(format!(
            "A value on disk cannot be read ({error}); its key has {} bytes and stays: it can be overwritten or deleted",
            key.len()
        ));
    }

    /// Hands over what was read. The partition of the key is held.
    pub fn hand_over(&self, held: &mut Held<'_>, cold: &ColdKey, fetched: &Fetched) {
        let (now, key) = (unix_now(), held.keyspace().key(&cold.key));
        if let Some(value) = fetched.value.as_deref().filter(|_| cold.home)
            && let Ok(_) = held.warm(cold.db, &key, value, fetched.from, now)
        {
            return;
        }
        let value = if cold.home { None } else { fetched.value.as_deref() };
        held.lend(cold.db, &key, value, fetched.from, self.lent_bytes_max, now);
    }

    /// For a command that cannot be interrupted any more: it waits for the values, and holds what it holds.
    pub fn fetch_held(&self, held: &mut Held<'_>, keys: &ColdKeys) {
        for cold in &keys.keys {
            let key = held.keyspace().key(&cold.key);
            let Whereabouts::Away(value) = held.whereabouts(cold.db, &key, cold.home) else { continue };
            let lent = if cold.home { held.lent(cold.db, &key) } else { None };
            // What is held is moved by no other thread.
            let read = || {
                self.counters.reads_in_commands.fetch_add(1, Relaxed);
                (0..READS_MAX).find_map(|_| self.read(value.reference, &cold.key).ok())
            };
            let bytes = lent.map(Vec::from).or_else(read);
            if bytes.is_none() {
                self.counters.unreadable.fetch_add(1, Relaxed);
            }
            self.hand_over(held, cold, &Fetched { from: value.reference, value: bytes });
        }
    }

    /// For a snapshot, whose places stay where they are: a read that fails is repeated.
    pub fn read_again(&self, reference: ColdRef, key: &[u8]) -> Result<Vec<u8>, ReadError> {
        let mut last = self.read(reference, key);
        for _ in 1..READS_MAX {
            if last.is_ok() {
                break;
            }
            last = self.read(reference, key);
        }
        last
    }
}

/// What was read of a key.
pub struct Fetched {
    /// Where it was.
    from: ColdRef,
    /// `None`: it cannot be read.
    value: Option<Vec<u8>>,
}
