//! Slowing of the clients that fill memory to the pace at which values leave it.
//!
//! ```text
//!   limit   limit + 1/64
//!     |        | writers wait
//!     |     |    and go on, each time some of it has left
//! ```
//! A writer waits for one group of values at a time, some milliseconds, instead of once for all that is
//! too much. Loading, which has no client that could wait, pauses by itself.

use std::time::Duration;

use super::health::State;
use super::state::Tier;
use crate::mail::Mail;
use crate::persistence::Store;
use crate::room::memory::{Apart, Memory};
use isotherm_runtime::routines;

/// Writers wait when memory exceeds its limit by one part in `BEHIND_DIVISOR`,
const BEHIND_DIVISOR: u64 = 64;
/// and continue when it has come down from there by these bytes, or half of the way: they leave memory in 1
/// to 2 ms.
const RELIEF_BYTES_MAX: u64 = 128 << 10;

pub fn waits_above(limit_bytes: u64) -> u64 {
    limit_bytes + limit_bytes / BEHIND_DIVISOR
}

pub fn goes_on_below(limit_bytes: u64) -> u64 {
    waits_above(limit_bytes) - RELIEF_BYTES_MAX.min(limit_bytes / BEHIND_DIVISOR / 2)
}

/// Lets writers wait until values that are on their way have left.
pub fn hold_writers(mail: &Mail, tier: &Tier) {
    mail.set_sinker_behind(true);
    tier.note_slowed(true);
    // The sinker looks at the mark after each of its steps; its last one may have been before.
    if tier.state() != State::Works {
        mail.set_sinker_behind(false);
        tier.note_slowed(false);
    }
}

/// Rest between two looks.
const REST: Duration = Duration::from_millis(1);
/// Rests after which the sinker is waited for no longer.
const RESTS_MAX: u32 = 10_000;

/// Returns whether memory is above its limit and values can leave it.
pub fn is_short(store: Store<'_>) -> bool {
    let limit = store.config.memory_target_bytes();
    let can_leave = store.tier.is_some_and(|tier| tier.state().can_sink());
    can_leave && limit > 0 && pressing_bytes(store) > limit
}

fn pressing_bytes(store: Store<'_>) -> u64 {
    let apart = Apart::of(store.keyspace, store.log, &store.replication.primary.spool_bytes);
    let copies = store.tier.map_or(0, |tier| tier.copies_bytes());
    Memory::used_bytes(store.keyspace).saturating_sub(apart.total() + copies)
}

/// Waits while memory is short and the sinker works. Nothing is held.
pub fn await_sinker(store: Store<'_>) {
    let Some(tier) = store.tier else { return };
    for _ in 0..RESTS_MAX {
        if !is_short(store) || tier.state() != State::Works {
            return;
        }
        tier.wake();
        routines::pause(REST);
    }
}
