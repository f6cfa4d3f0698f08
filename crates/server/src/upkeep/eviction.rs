//! Eviction: how room is made for a command, and by the cron.
//!
//! Keys are evicted before a command is run and before anything is locked, one at a time, until memory is below the limit or
//! the time for it is over; then the cron goes on.

use isotherm_keyspace::{AccessMode, EffectSink, Evicted};
use isotherm_stdx::{Prng, Steps};
use std::time::{Duration, Instant};

use crate::mail::tasks::Tasks;
use crate::node::Node;
use crate::observe::holds::{self, Work};
use crate::observe::latency::monitor::Event;
use crate::observe::stats::ThreadStats;
use crate::process::time::unix_now;
use crate::tier::{State, Tier, pace};
use crate::upkeep::client_memory;

/// Nodes or entries of what was removed that are freed in one hold: some 20 us.
pub const FREED_PER_STEP_MAX: usize = 200;
/// Such holds on the way to room for a command: some 500 us, as long as eviction may take by default.
const FREE_STEPS_MAX: u64 = 25;

/// Keys of scripts that one attempt to make room may choose without effect.
const LEASED_MET_MAX: u64 = 1000;

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

/// Evicts until memory is below the limit and no arena is full. The caller holds no partition.
pub fn make_room(node: &Node, prng: &mut Prng, sink: &mut dyn EffectSink, stats: &ThreadStats) -> Room {
    let limit = node.config.memory_target_bytes();
    if limit == 0 || node.has_room() || node.leaves_memory_to_primary() {
        return Room::Enough;
    }
    let is_above = node.counted_memory_bytes() > limit;
    // Connections are too large before keys are too many.
    let limit = if is_above { limit + client_memory::evict_clients(node, stats) } else { limit };
    let excess = node.memory.excess_bytes();
    let is_below = || node.used_memory_bytes() + excess <= limit;
    // What was removed and not freed yet is neither a reason to evict nor one to refuse.
    let has_room = || is_below() && node.keyspace.full_arena().is_none();
    let is_freed = has_room() || free_removed(node);
    if has_room() {
        return Room::Enough;
    }
    if !is_freed {
        return Room::Soon;
    }
    if node.cold.makes_room(|tier| wait_for_sinker(node, tier, limit)) {
        return Room::Soon;
    }
    if node.config.maxmemory_bytes() == 0 && node.keyspace.full_arena().is_none() {
        return Room::Enough;
    }
    // A full arena refuses what does not fit into it, and nothing else.
    let refused = || if is_below() { Room::Enough } else { Room::None };
    // While data is imported, its source decides what leaves.
    let policy = node.config.eviction_policy().filter(|_| !node.config.import_mode());
    let Some(policy) = policy else { return refused() };
    // Paused for writing: nothing may change.
    if node.mail.tasks().has(Tasks::PAUSES) {
        return refused();
    }
    let _working = holds::working(Work::Eviction);
    let (begun, patience) = (Instant::now(), patience(node.config.eviction_tenacity()));
    let now = unix_now();
    let mut leased = Steps::new(LEASED_MET_MAX);
    let room = loop {
        let arena = if is_below() { node.keyspace.full_arena() } else { None };
        match node.keyspace.try_evict(policy, arena, now, prng, sink) {
            Evicted::Key(partition) => {
                stats.values.evicted_keys.add(1);
                // A large collection has left the keyspace, but not yet the memory.
                free_removed_of(node, partition, &mut Steps::new(FREE_STEPS_MAX));
            }
            Evicted::NotYet => {}
            // There may be nothing else, and the script to be waited for may be this thread's.
            Evicted::Leased if !leased.look(1) => break Room::Soon,
            Evicted::Leased => {}
            Evicted::Nothing if !free_removed(node) => break Room::Soon,
            // No command is refused for what is only held.
            Evicted::Nothing if node.used_memory_bytes() <= limit => break Room::Enough,
            Evicted::Nothing => break Room::None,
        }
        if has_room() {
            break Room::Enough;
        }
        if patience.is_some_and(|patience| begun.elapsed() > patience) {
            break Room::Soon;
        }
    };
    node.note_latency(Event::EvictionCycle, begun.elapsed());
    room
}

/// Values leave memory instead of keys, as long as some can. Those who write wait while too much is in memory.
fn wait_for_sinker<M>(node: &Node, tier: &Tier<M>, limit: u64) -> bool {
    let state = tier.state();
    if !state.can_sink() {
        return false;
    }
    tier.wake();
    let is_far_above = node.used_memory_bytes() > pace::waits_above(limit);
    if state == State::Idle {
        return !is_far_above;
    }
    if is_far_above {
        node.mail.set_sinker_behind(true);
        tier.note_slowed(true);
        // It looks at the mark behind each of its steps; its last one may have been before.
        if tier.state() != State::Works {
            node.mail.set_sinker_behind(false);
            tier.note_slowed(false);
        }
    }
    true
}

/// Frees some of what was removed. Whether nothing of that is left.
fn free_removed(node: &Node) -> bool {
    let mut steps = Steps::new(FREE_STEPS_MAX);
    let mut partitions = 0..node.keyspace.partition_count() as u16;
    partitions.all(|partition| free_removed_of(node, partition, &mut steps))
}

fn free_removed_of(node: &Node, partition: u16, steps: &mut Steps) -> bool {
    if !node.keyspace.has_unfreed(partition) {
        return true;
    }
    let _working = holds::working(Work::LazyFree);
    while node.keyspace.has_unfreed(partition) {
        if !steps.look(1) {
            return false;
        }
        node.keyspace.free_step(partition, FREED_PER_STEP_MAX);
    }
    true
}

/// The policy has changed, or the server starts: access stamps are kept accordingly.
pub fn apply_policy(node: &Node) {
    let policy = node.config.eviction_policy();
    let mode = match policy {
        Some(policy) if policy.is_lru() => AccessMode::Lru,
        Some(policy) if policy.is_lfu() => AccessMode::Lfu,
        _ => AccessMode::Page,
    };
    node.keyspace.set_access(mode, node.config.lfu_log_factor());
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
    fn tenacity_is_that_of_the_field() {
        assert_eq!(patience(0), Some(Duration::ZERO));
        assert_eq!(patience(10), Some(Duration::from_micros(500)));
        assert!((100..150).contains(&patience(99).unwrap().as_secs()));
        assert_eq!(patience(100), None);
    }
}
