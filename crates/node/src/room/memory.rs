//! Memory in use, and the part of it that counts for `maxmemory`.
//!
//! `used_memory` is the bytes that live in the keyspace's arenas and those that the allocator gave out: sums
//! of atomics, so that every command can look. `shortage` decides which memory is given up when it is too
//! much.
//!
//! ```text
//!   compared with maxmemory   used_memory + excess - apart
//!   excess                    slabs whole - what lives - (1 MB + a 128th of what lives), to a 16th of maxmemory
//!   apart                     log + replicas + snapshot: no key that leaves makes them less; each has its limit
//!   presses on values         the same - copies: values that are on disk too, and are dropped first
//! ```
//!
//! The excess of slabs beyond the usual counts too while keys may be evicted; otherwise RSS would exceed
//! `maxmemory` by it: 5 to 7 MB of 64 while values of all sizes up to 4 KB are overwritten. The usual excess
//! does not count: it would cost a small cache a tenth of its keys. The eviction of a key makes room in its
//! slab and does not shrink it, so the excess is not looked at while keys are evicted. The cron counts it
//! after compaction had its time, and lets it fall by halves. The bound of a 16th keeps eviction and excess
//! from driving each other.

use isotherm_keyspace::Keyspace;
use isotherm_log::Log;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

use crate::observe::memory_map::mark::Mark;
use isotherm_allocator as allocator;
use isotherm_config::Config;

#[derive(Default)]
pub struct Memory {
    peak_bytes: AtomicU64,
    startup_bytes: AtomicU64,
    excess_bytes: AtomicU64,
    process_bytes: AtomicU64,
    /// MEMORY DIFF MARK.
    mark: Mutex<Option<Box<Mark>>>,
    pub compaction: Progress,
}

/// Progress of a run of compaction. A run is a time during which there always was something to do.
#[derive(Default)]
pub struct Progress {
    /// 0 between runs.
    pub percent: AtomicU32,
    pub run_us: AtomicU64,
}

impl Progress {
    /// The share of a CPU that the run may take, in percent; 0 if there is none.
    pub fn percent(&self) -> u32 {
        self.percent.load(Ordering::Relaxed)
    }

    /// Returns the duration of the run in microseconds.
    pub fn run_us(&self) -> u64 {
        self.run_us.load(Ordering::Relaxed)
    }
}

/// Bytes of used_memory that do not count for `maxmemory`.
#[derive(Clone, Copy, Debug)]
pub struct Apart {
    /// Changes that wait for the append-only file or for replicas, and the backlog: `log-memory-limit`,
    /// `repl-backlog-size`.
    pub log: u64,
    /// Snapshots on their way to replicas.
    pub replicas: u64,
    /// Pages and values kept for a snapshot: `snapshot-memory-limit`.
    pub snapshot: u64,
}

impl Apart {
    /// Reads sums of atomics.
    pub fn of(keyspace: &Keyspace, log: &Log, spool_bytes: &AtomicU64) -> Apart {
        Apart {
            log: log.memory_bytes(),
            replicas: spool_bytes.load(Ordering::Relaxed),
            snapshot: keyspace.kept_bytes_within_limit(),
        }
    }

    pub fn total(&self) -> u64 {
        self.log + self.replicas + self.snapshot
    }
}

/// Some half-filled slabs are the price of any mixture of sizes; a keyspace of 8 MB has 0.5 MB of them.
const USUAL_BYTES: u64 = 1 << 20;

/// Returns the bytes that slabs of `held` bytes with `live` in use count for, beyond the live ones. A usual
/// share is left out, and the result is at most a sixteenth of `limit`.
fn excess_bytes(held: u64, live: u64, limit: u64) -> u64 {
    held.saturating_sub(live).saturating_sub(USUAL_BYTES + live / 128).min(limit / 16)
}

impl Memory {
    pub fn mark(&self) -> MutexGuard<'_, Option<Box<Mark>>> {
        self.mark.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The most that the cron has seen.
    pub fn peak_bytes(&self) -> u64 {
        self.peak_bytes.load(Ordering::Relaxed)
    }

    /// Returns the memory that the empty server used.
    pub fn startup_bytes(&self) -> u64 {
        self.startup_bytes.load(Ordering::Relaxed)
    }

    pub fn note_startup(&self, used_bytes: u64) {
        self.startup_bytes.store(used_bytes, Ordering::Relaxed);
    }

    /// Returns the memory of the process itself. `find` measures it until all threads have started; from then
    /// on it is constant.
    pub fn process_bytes_or(&self, find: impl FnOnce() -> u64) -> u64 {
        match self.process_bytes.load(Ordering::Relaxed) {
            0 => find(),
            bytes => bytes,
        }
    }

    /// The threads have started, and no request has come yet.
    pub fn note_process(&self, bytes: u64) {
        let _ = self.process_bytes.compare_exchange(0, bytes, Ordering::Relaxed, Ordering::Relaxed);
    }

    pub fn note(&self, used_bytes: u64) {
        self.peak_bytes.fetch_max(used_bytes, Ordering::Relaxed);
    }

    /// used_memory.
    #[inline]
    pub fn used_bytes(keyspace: &Keyspace) -> u64 {
        let arenas = keyspace.arenas().iter().map(|arena| arena.live_bytes());
        arenas.sum::<u64>() + allocator::allocated_bytes()
    }

    /// Counts the excess, ten times a second. Where nothing may leave there is none: writes are refused for
    /// what is used.
    pub fn note_excess(&self, keyspace: &Keyspace, config: &Config) {
        let limit = config.maxmemory_bytes();
        let mut excess = 0;
        if limit > 0 && config.eviction_policy().is_some() {
            let arenas = keyspace.arenas().iter().map(|arena| arena.stats());
            let (held, live) = arenas.fold((0, 0), |(held, live), stats| {
                (held + stats.slab_bytes + stats.free_slab_bytes, live + stats.live_bytes)
            });
            let target = excess_bytes(held, live, limit);
            // A cache is full some tenths of a second after the first write: too soon to approach it slowly.
            excess = target.max((self.excess_bytes() + target) / 2);
        }
        self.excess_bytes.store(excess, Ordering::Relaxed);
    }

    /// Returns the bytes that count for `maxmemory` in addition to used_memory.
    #[inline]
    pub fn excess_bytes(&self) -> u64 {
        self.excess_bytes.load(Ordering::Relaxed)
    }
}

/// Returns the bytes of a hash table (hashbrown's) with room for `capacity` values of `T`: an eighth of its
/// buckets stays free, and each has one more byte.
pub fn hash_table_bytes<T>(capacity: usize) -> usize {
    const GROUP_BYTES: usize = 16;
    match capacity {
        0 => 0,
        1..=3 => 4 * (size_of::<T>() + 1) + GROUP_BYTES,
        _ => (capacity * 8 / 7).next_power_of_two() * (size_of::<T>() + 1) + GROUP_BYTES,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_held_counts_beyond_the_usual_and_to_a_bound() {
        let check = |held_kb: u64, live_kb: u64, limit_kb: u64, excess_kb: u64| {
            let excess = excess_bytes(held_kb << 10, live_kb << 10, limit_kb << 10);
            assert_eq!(excess, excess_kb << 10, "{held_kb} KB held, {live_kb} KB live");
        };
        check(8_800, 8_192, 8_192, 0);
        check(65_536 + 1_024 + 512, 65_536, 65_536, 0);
        check(65_536 + 1_024 + 512 + 2_000, 65_536, 65_536, 2_000);
        check(65_536 + 6_000, 65_536, 65_536, 4_096);
        check(0, 16, 65_536, 0);
    }
}
