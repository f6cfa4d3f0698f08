//! Copies in memory of what is on disk: how many there may be, and how they give way.
//!
//! ```text
//!   room for them    maxmemory - what presses on it, to swap-cache; none above the limit
//!   dropped          one by one as others are lent (`Held::lend`), each 50 ms beyond the room (`watch`),
//!                    and when a command needs memory (`eviction`)
//! ```
//! Lent bytes do not press: neither does a value leave for them, nor a key, nor is a command refused.

use isotherm_keyspace::Held;
use isotherm_keyspace::Want;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering::Relaxed};

use super::state::Tier;
use crate::node::Node;
use crate::process::time::unix_now;

/// Copies that go under one lock.
const DROPS_PER_HOLD: usize = 64;
/// Copies that go in one round: some 500 us.
const DROPS_PER_ROUND: usize = 1024;
/// Rest between two rounds of commands that need memory: what came since is in use.
const ROUND_MS: u64 = 10;

pub struct Copies {
    lent_bytes: AtomicU64,
    /// Most that one partition may have lent.
    lent_bytes_max: AtomicUsize,
    partitions: u16,
    /// Time of the last round that found nothing, by the clock of the tier.
    round_ms: AtomicU64,
}

impl Copies {
    pub fn new(cache_bytes: u64, partitions: u16) -> Copies {
        let copies = Copies {
            lent_bytes: AtomicU64::new(0),
            lent_bytes_max: AtomicUsize::new(0),
            partitions,
            round_ms: AtomicU64::new(0),
        };
        copies.bound(cache_bytes);
        copies
    }

    fn bound(&self, bytes: u64) {
        self.lent_bytes_max.store((bytes / u64::from(self.partitions)) as usize, Relaxed);
    }

    pub fn lent_more(&self, bytes: i64) {
        self.lent_bytes.fetch_add(bytes as u64, Relaxed);
    }

    /// Bytes that are lent, in all partitions.
    pub fn lent_bytes(&self) -> u64 {
        // Between a lend and its count another thread may take it back.
        (self.lent_bytes.load(Relaxed) as i64).max(0) as u64
    }

    /// Most that one partition may have lent.
    pub fn lent_bytes_max(&self) -> usize {
        self.lent_bytes_max.load(Relaxed)
    }

    /// Returns whether more is lent than may be.
    pub fn are_too_many(&self) -> bool {
        self.lent_bytes() > self.lent_bytes_max() as u64 * u64::from(self.partitions)
    }
}

/// Notes how many there may be now.
pub fn bound<M>(node: &Node, tier: &Tier<M>) {
    let (limit, cache_bytes) = (node.config.memory_target_bytes(), node.config.swap_cache_bytes());
    tier.copies.bound(match limit {
        0 => cache_bytes,
        limit => cache_bytes.min(limit.saturating_sub(node.pressing_memory_bytes())),
    });
}

/// Drops what there is, as memory is above its limit, if that was not done just now. Returns whether less
/// presses on it then.
pub fn give_way<M>(node: &Node, tier: &Tier<M>) -> bool {
    let copies = &tier.copies;
    let (now_ms, last_ms) = (tier.now_ms(), copies.round_ms.load(Relaxed));
    if now_ms < last_ms + ROUND_MS {
        return false;
    }
    bound(node, tier);
    let (mut dropped, mut clean) = (0, 0);
    for partition in 0..copies.partitions {
        let mut held = Held::new(&node.keyspace);
        held.acquire(Want::One(partition));
        let some = held.drop_copies(partition, copies.lent_bytes_max(), DROPS_PER_HOLD, unix_now());
        clean += some.clean;
        dropped += some.clean + some.lent;
        if dropped >= DROPS_PER_ROUND {
            return clean > 0;
        }
    }
    if dropped == 0 {
        copies.round_ms.store(now_ms, Relaxed);
    }
    clean > 0
}
