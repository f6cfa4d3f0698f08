//! Eviction: how room is made for a command, and by the cron. `shortage` decides what leaves.
//!
//! Keys are evicted before a command is run and before anything is locked, one at a time, until memory is
//! below the limit or the time for it is over; then the cron continues.

use isotherm_keyspace::{AccessMode, EffectSink, Evicted, EvictionGain, EvictionPolicy};
use isotherm_stdx::{Prng, Steps};
use std::time::{Duration, Instant};

use isotherm_node::Node;
use isotherm_node::mail::tasks::Tasks;
use isotherm_node::observe::holds;
use isotherm_node::observe::holds::Work;
use isotherm_node::observe::latency::monitor::Event;
use isotherm_node::observe::stats::ThreadStats;
use isotherm_node::room::shortage;
use isotherm_node::room::shortage::{GaveWay, MemoryShort, Relief, ValueDisk};
use isotherm_node::session::client_memory;
use isotherm_node::tier::{copies, pace};
use isotherm_runtime::time::unix_now;

/// Nodes or entries of what was removed that are freed in one hold: some 20 us.
pub const FREED_PER_STEP_MAX: usize = 200;
/// Such holds on the way to room for a command: some 500 us, as long as eviction may take by default.
const FREE_STEPS_MAX: u64 = 25;

/// Keys of scripts that one attempt to make room may choose without effect.
const LEASED_MET_MAX: u64 = 1000;
/// Attempts to find a key in memory, one after the other, before one that is not there leaves: there is
/// hardly any.
const HOT_MISSED_MAX: u32 = 32;

/// Result of an attempt to make room.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Room {
    /// Memory is below the limit.
    Enough,
    /// Memory is still above the limit, but there is more to evict: the next command or the cron continues.
    Soon,
    /// Memory is above the limit, and nothing may be evicted.
    None,
}

/// Makes room until memory is below the limit and no arena is full, as `shortage` says. The caller holds no
/// partition.
pub fn make_room(node: &Node, prng: &mut Prng, sink: &mut dyn EffectSink, stats: &ThreadStats) -> Room {
    let limit = node.config.memory_target_bytes();
    if limit == 0 || node.has_room() || node.leaves_memory_to_primary() {
        return Room::Enough;
    }
    let is_above = node.pressing_memory_bytes() > limit;
    // Connections are too large before keys are too many.
    let limit = if is_above { limit + client_memory::evict_clients(node, stats) } else { limit };
    let excess = node.memory.excess_bytes();
    let room = Wanted { node, limit, excess };
    // Memory that was removed and not freed yet is neither a reason to evict nor one to refuse.
    let has_unfreed = !room.is_there() && !free_removed(node);
    let tier = node.tier();
    let gave_way = match tier.filter(|_| !room.is_there()) {
        Some(tier) => copies::give_way(node, tier),
        None => GaveWay::Nothing,
    };
    if room.is_there() {
        return Room::Enough;
    }
    // While data is imported, its source decides what leaves. Paused for writing nothing may change.
    let may_evict = !node.config.import_mode() && !node.mail.tasks().has(Tasks::PAUSES);
    // The share of the machine's memory costs neither keys nor commands.
    let is_limited = node.config.maxmemory_bytes() > 0 || node.keyspace.full_arena().is_some();
    let may_evict = may_evict && is_limited;
    let policy = node.config.eviction_policy().filter(|_| may_evict);
    // Also one that is full or fails looks whether it is so still.
    tier.inspect(|tier| {
        tier.note_used(node.pressing_used_bytes(), limit);
        tier.wake();
    });
    let seen = MemoryShort {
        has_unfreed,
        gave_way,
        disk: tier.map_or(ValueDisk::None, |tier| tier.takes()),
        is_far_above: node.pressing_used_bytes() > pace::waits_above(limit),
        may_evict: policy.is_some(),
    };
    match (shortage::for_memory(seen), policy, tier) {
        (Relief::Evict(gain), Some(policy), _) => evict(&room, (policy, gain), prng, sink, stats),
        (Relief::HoldWriters, _, Some(tier)) => {
            pace::hold_writers(&node.mail, tier);
            Room::Soon
        }
        (Relief::UnderWay | Relief::HoldWriters, ..) => Room::Soon,
        // A full arena refuses what does not fit into it, and nothing else.
        (Relief::Refuse | Relief::Evict(_), ..) if room.is_below() || !is_limited => Room::Enough,
        (Relief::Refuse | Relief::Evict(_), ..) => Room::None,
    }
}

/// The room that a command wants.
struct Wanted<'n> {
    node: &'n Node,
    limit: u64,
    excess: u64,
}

impl Wanted<'_> {
    fn is_below(&self) -> bool {
        self.node.pressing_used_bytes() + self.excess <= self.limit
    }

    fn is_there(&self) -> bool {
        self.is_below() && self.node.keyspace.full_arena().is_none()
    }
}

/// Evicts keys until there is room, or the time for it is over.
fn evict(
    room: &Wanted<'_>,
    (policy, mut gain): (EvictionPolicy, EvictionGain),
    prng: &mut Prng,
    sink: &mut dyn EffectSink,
    stats: &ThreadStats,
) -> Room {
    let node = room.node;
    let _working = holds::working(Work::Eviction);
    let (begun, patience) = (Instant::now(), patience(node.config.eviction_tenacity()));
    let now = unix_now();
    let mut leased = Steps::new(LEASED_MET_MAX);
    let mut missed = 0;
    let end = loop {
        let arena = if room.is_below() { node.keyspace.full_arena() } else { None };
        match node.keyspace.try_evict((policy, gain), arena, now, prng, sink) {
            Evicted::Key(partition) => {
                missed = 0;
                stats.values.evicted_keys.add(1);
                // A large collection has left the keyspace, but not yet the memory.
                free_removed_of(node, partition, &mut Steps::new(FREE_STEPS_MAX));
            }
            Evicted::NotYet => {
                missed += 1;
                if missed == HOT_MISSED_MAX {
                    gain = EvictionGain::Any;
                }
            }
            // There may be nothing else, and the script to be waited for may be this thread's.
            Evicted::Leased if !leased.look(1) => break Room::Soon,
            Evicted::Leased => {}
            Evicted::Nothing if !free_removed(node) => break Room::Soon,
            // No command is refused for what is only held.
            Evicted::Nothing if node.pressing_used_bytes() <= room.limit => break Room::Enough,
            Evicted::Nothing => break Room::None,
        }
        if room.is_there() {
            break Room::Enough;
        }
        if patience.is_some_and(|patience| begun.elapsed() > patience) {
            break Room::Soon;
        }
    };
    node.note_latency(Event::EvictionCycle, begun.elapsed());
    end
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

/// `maxmemory-eviction-tenacity`: 0..10 is linear, to half a millisecond; above, it grows by 15 % a step; 100
/// is for ever.
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
