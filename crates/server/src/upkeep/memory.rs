//! How much memory is used, and what happens when that is too much.
//!
//! `used_memory` is what lives in the keyspace's arenas and what the allocator gave out: sums of atomics, so that every
//! command can look. Keys are evicted before a command is run and before anything is locked, one at a time, until memory
//! is below the limit or the time for it is over; then the cron goes on.
//!
//! ```text
//!   compared with maxmemory   used_memory + excess
//!   excess                    slabs whole - what lives - (1 MB + a 128th of what lives), to a 16th of maxmemory
//! ```
//!
//! Where keys may leave, what slabs hold beyond the usual counts too, or RSS would exceed `maxmemory` by it: 5 to 7 MB of
//! 64 while values of all sizes to 4 KB are overwritten. The usual does not: it would cost a small cache a tenth of its
//! keys. A key that leaves makes room in its slab and does not shrink it, so excess is not looked at while keys leave:
//! the cron counts it, after compaction had its time, and lets it fall by halves; the bound keeps the two from chasing.

use isotherm_keyspace::{AccessMode, EffectSink, Evicted, EvictionPolicy as Order};
use isotherm_stdx::{Prng, Steps};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use crate::admin::Mark;
use crate::config::EvictionPolicy;
use crate::node::{Node, Tasks, unix_now};
use crate::observe::holds::{self, Work};
use crate::observe::latency::monitor::Event;
use crate::observe::stats::ThreadStats;
use isotherm_allocator as allocator;

#[derive(Default)]
pub struct Memory {
    peak_bytes: AtomicU64,
    startup_bytes: AtomicU64,
    excess_bytes: AtomicU64,
    process_bytes: AtomicU64,
    /// MEMORY DIFF MARK.
    mark: Mutex<Option<Box<Mark>>>,
}

/// Some half-filled slabs are the price of any mixture of sizes; a keyspace of 8 MB has 0.5 MB of them.
const USUAL_BYTES: u64 = 1 << 20;

/// What slabs of `held` bytes with `live` in use count for, beyond these.
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

    /// What the empty server used.
    pub fn startup_bytes(&self) -> u64 {
        self.startup_bytes.load(Ordering::Relaxed)
    }

    pub fn note_startup(&self, used_bytes: u64) {
        self.startup_bytes.store(used_bytes, Ordering::Relaxed);
    }

    /// What the process itself takes: found by `find` once all threads are there, and the same from then on.
    pub fn process_bytes_or(&self, find: impl FnOnce() -> u64) -> u64 {
        match self.process_bytes.load(Ordering::Relaxed) {
            0 => find(),
            bytes => bytes,
        }
    }

    /// The threads have started, and nobody has asked for anything yet.
    pub fn note_process(&self, bytes: u64) {
        let _ = self.process_bytes.compare_exchange(0, bytes, Ordering::Relaxed, Ordering::Relaxed);
    }

    pub fn note(&self, used_bytes: u64) {
        self.peak_bytes.fetch_max(used_bytes, Ordering::Relaxed);
    }

    /// What counts for `maxmemory` beyond used_memory.
    #[inline]
    pub fn excess_bytes(&self) -> u64 {
        self.excess_bytes.load(Ordering::Relaxed)
    }
}

/// What a hash table (hashbrown's) takes that has room for so many of `T`: an eighth of its buckets stays free, and each
/// has a byte beside it.
pub fn hash_table_bytes<T>(capacity: usize) -> usize {
    const GROUP_BYTES: usize = 16;
    match capacity {
        0 => 0,
        1..=3 => 4 * (size_of::<T>() + 1) + GROUP_BYTES,
        _ => (capacity * 8 / 7).next_power_of_two() * (size_of::<T>() + 1) + GROUP_BYTES,
    }
}

/// Nodes or entries of what was removed that are freed in one hold: some 20 us.
pub const FREED_PER_STEP_MAX: usize = 200;
/// Such holds on the way to room for a command: some 500 us, as long as eviction may take by default.
const FREE_STEPS_MAX: u64 = 25;

/// How an attempt to make room ended.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Room {
    /// Memory is below the limit.
    Enough,
    /// It is still above, but there is more to evict: the next command or the cron goes on.
    Soon,
    /// It is above and nothing may leave.
    None,
}

impl Node {
    /// used_memory.
    #[inline]
    pub fn used_memory_bytes(&self) -> u64 {
        let arenas = self.keyspace.arenas().iter().map(|arena| arena.live_bytes());
        arenas.sum::<u64>() + allocator::allocated_bytes()
    }

    /// What is compared with `maxmemory`.
    #[inline]
    pub fn counted_memory_bytes(&self) -> u64 {
        self.used_memory_bytes() + self.memory.excess_bytes()
    }

    /// Counts the excess, ten times a second. Where nothing may leave there is none: writes are refused for what is used.
    pub fn note_excess(&self) {
        let limit = self.config.maxmemory_bytes();
        let mut excess = 0;
        if limit > 0 && order_of(self.config.eviction_policy()).is_some() {
            let arenas = self.keyspace.arenas().iter().map(|arena| arena.stats());
            let (held, live) = arenas.fold((0, 0), |(held, live), stats| {
                (held + stats.slab_bytes + stats.free_slab_bytes, live + stats.live_bytes)
            });
            let target = excess_bytes(held, live, limit);
            // A cache is full some tenths of a second after the first write: too soon to approach it slowly.
            excess = target.max((self.memory.excess_bytes() + target) / 2);
        }
        self.memory.excess_bytes.store(excess, Ordering::Relaxed);
    }

    /// Evicts until memory is below the limit and no arena is full. The caller holds no partition.
    pub fn make_room(&self, prng: &mut Prng, sink: &mut dyn EffectSink, stats: &ThreadStats) -> Room {
        let limit = self.config.maxmemory_bytes();
        if limit == 0 || self.has_room() {
            return Room::Enough;
        }
        let is_above = self.counted_memory_bytes() > limit;
        // Connections are too large before keys are too many.
        let limit = if is_above { limit + self.evict_clients(stats) } else { limit };
        let excess = self.memory.excess_bytes();
        let is_below = || self.used_memory_bytes() + excess <= limit;
        // What was removed and not freed yet is neither a reason to evict nor one to refuse.
        let has_room = || is_below() && self.keyspace.full_arena().is_none();
        let is_freed = has_room() || self.free_removed();
        if has_room() {
            return Room::Enough;
        }
        if !is_freed {
            return Room::Soon;
        }
        // A full arena refuses what does not fit into it, and nothing else.
        let refused = || if is_below() { Room::Enough } else { Room::None };
        // While data is imported, its source decides what leaves.
        let policy = self.config.eviction_policy();
        let Some(order) = order_of(policy).filter(|_| !self.config.import_mode()) else { return refused() };
        // Paused for writing: nothing may change.
        if self.tasks().has(Tasks::PAUSES) {
            return refused();
        }
        let _working = holds::working(Work::Eviction);
        let (begun, patience) = (Instant::now(), patience(self.config.eviction_tenacity()));
        let now = unix_now();
        let room = loop {
            let arena = if is_below() { self.keyspace.full_arena() } else { None };
            match self.keyspace.try_evict(order, arena, now, prng, sink) {
                Evicted::Key(partition) => {
                    stats.values.evicted_keys.add(1);
                    // A large collection has left the keyspace, but not yet the memory.
                    self.free_removed_of(partition, &mut Steps::new(FREE_STEPS_MAX));
                }
                Evicted::NotYet => {}
                Evicted::Nothing if !self.free_removed() => break Room::Soon,
                // Nobody is refused for what is only held.
                Evicted::Nothing if self.used_memory_bytes() <= limit => break Room::Enough,
                Evicted::Nothing => break Room::None,
            }
            if has_room() {
                break Room::Enough;
            }
            if patience.is_some_and(|patience| begun.elapsed() > patience) {
                break Room::Soon;
            }
        };
        self.note_latency(Event::EvictionCycle, begun.elapsed());
        room
    }

    /// Whether there is memory for more, below `maxmemory` and in every arena.
    #[inline]
    pub fn has_room(&self) -> bool {
        self.counted_memory_bytes() <= self.config.maxmemory_bytes() && self.keyspace.full_arena().is_none()
    }

    /// Frees some of what was removed. Whether nothing of that is left.
    fn free_removed(&self) -> bool {
        let mut steps = Steps::new(FREE_STEPS_MAX);
        let mut partitions = 0..self.keyspace.partition_count() as u16;
        partitions.all(|partition| self.free_removed_of(partition, &mut steps))
    }

    fn free_removed_of(&self, partition: u16, steps: &mut Steps) -> bool {
        if !self.keyspace.has_unfreed(partition) {
            return true;
        }
        let _working = holds::working(Work::LazyFree);
        while self.keyspace.has_unfreed(partition) {
            if !steps.look(1) {
                return false;
            }
            self.keyspace.free_step(partition, FREED_PER_STEP_MAX);
        }
        true
    }

    /// The policy has changed, or the server starts: access stamps are kept accordingly.
    pub fn apply_eviction_policy(&self) {
        let policy = self.config.eviction_policy();
        let mode = match policy {
            _ if policy.is_lru() => AccessMode::Lru,
            _ if policy.is_lfu() => AccessMode::Lfu,
            _ => AccessMode::Page,
        };
        self.keyspace.set_access(mode, self.config.lfu_log_factor());
    }
}

fn order_of(policy: EvictionPolicy) -> Option<Order> {
    Some(match policy {
        EvictionPolicy::NoEviction => return None,
        EvictionPolicy::AllkeysLru => Order::AllKeysLru,
        EvictionPolicy::AllkeysLfu => Order::AllKeysLfu,
        EvictionPolicy::AllkeysRandom => Order::AllKeysRandom,
        EvictionPolicy::VolatileLru => Order::VolatileLru,
        EvictionPolicy::VolatileLfu => Order::VolatileLfu,
        EvictionPolicy::VolatileRandom => Order::VolatileRandom,
        EvictionPolicy::VolatileTtl => Order::VolatileTtl,
    })
}

/// `maxmemory-eviction-tenacity`: 0..10 is linear, to half a millisecond; above, it grows by 15 % a step; 100 is for
/// ever.
fn patience(tenacity: u32) -> Option<Duration> {
    match tenacity {
        0..=10 => Some(Duration::from_micros(50 * u64::from(tenacity))),
        11..=99 => Some(Duration::from_micros((500.0 * 1.15f64.powi(tenacity as i32 - 10)) as u64)),
        _ => None,
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

    #[test]
    fn tenacity_is_that_of_the_field() {
        assert_eq!(patience(0), Some(Duration::ZERO));
        assert_eq!(patience(10), Some(Duration::from_micros(500)));
        assert!((100..150).contains(&patience(99).unwrap().as_secs()));
        assert_eq!(patience(100), None);
    }
}
