//! Copies in memory of what is on disk: how many there may be, and how they give way.
//!
//! ```text
//!   room for them    maxmemory - what presses on it, to swap-cache; none above the limit
//!   dropped          one by one as others are lent (`Held::lend`), each 50 ms beyond the room (`watch`),
//!                    and when a command needs memory (`eviction`)
//! ```
//! Lent bytes do not press: neither does a value leave for them, nor a key, nor is a command refused.

use isotherm_keyspace::{DropLimits, GIVEN_MS, Held, Want};
use std::sync::atomic::Ordering::Relaxed;

use super::pace;
use super::state::Tier;
use crate::Node;
use crate::room::shortage::GaveWay;
use isotherm_runtime::time::unix_now;

/// Copies that go under one lock.
const DROPS_PER_HOLD: usize = 64;
/// Copies that go in one round: some 500 us.
const DROPS_PER_ROUND: usize = 1024;
/// Time for which a node stays that came back for a command, far above the limit: ten times as long as a read
/// from a busy disk takes. Else it is `GIVEN_MS`.
const GIVEN_SHORT_MS: i64 = 50;
/// Rest between two rounds of commands that need memory: what came since is in use.
const ROUND_MS: u64 = 10;

/// Notes how much may be lent now.
pub fn bound(node: &Node, tier: &Tier) {
    let (limit, cache_bytes) = (node.config.memory_target_bytes(), node.config.swap_cache_bytes());
    tier.lent.bound(match limit {
        0 => cache_bytes,
        limit => cache_bytes.min(limit.saturating_sub(node.pressing_memory_bytes())),
    });
}

/// Drops what there is, as memory is above its limit, if that was not done just now.
pub fn give_way(node: &Node, tier: &Tier) -> GaveWay {
    let (now_ms, last_ms) = (tier.now_ms(), tier.lent.round_ms.load(Relaxed));
    if now_ms < last_ms + ROUND_MS {
        return GaveWay::Nothing;
    }
    bound(node, tier);
    let is_far_above = node.pressing_used_bytes() > pace::waits_above(node.config.memory_target_bytes());
    let limits = DropLimits {
        lent_bytes_max: tier.lent.bytes_max(),
        count_max: DROPS_PER_HOLD,
        given_ms: if is_far_above { GIVEN_SHORT_MS } else { GIVEN_MS },
    };
    let (mut dropped, mut clean, mut are_more) = (0, 0, false);
    for partition in 0..node.keyspace.partition_count() as u16 {
        let mut held = Held::new(&node.keyspace);
        held.acquire(Want::One(partition));
        let some = limits.drop_copies(&mut held, partition, unix_now());
        clean += some.clean;
        dropped += some.clean + some.lent;
        are_more |= some.clean == DROPS_PER_HOLD || dropped >= DROPS_PER_ROUND;
        if dropped >= DROPS_PER_ROUND {
            break;
        }
    }
    if dropped == 0 {
        tier.lent.round_ms.store(now_ms, Relaxed);
    }
    match are_more {
        true => GaveWay::Some,
        false if clean > 0 => GaveWay::All,
        false => GaveWay::Nothing,
    }
}
