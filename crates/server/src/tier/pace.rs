//! Who fills memory without a client that could wait: loading. It pauses while values are on their way to disk.

use std::time::Duration;

use super::state::State;
use crate::persistence::Store;
use crate::process::routines;
use crate::upkeep::memory::Memory;

/// How long it rests before it looks again.
const REST: Duration = Duration::from_millis(1);
/// The sinker makes no step for so long: it is waited for no longer.
const RESTS_MAX: u32 = 10_000;

/// Whether memory is above its limit and values can leave it.
pub fn is_short(store: Store<'_>) -> bool {
    let limit = store.config.maxmemory_bytes();
    let can_leave = store.cold.disk().is_some_and(|tier| tier.state().can_sink());
    can_leave && limit > 0 && Memory::used_bytes(store.keyspace) > limit
}

/// Nothing is held.
pub fn await_sinker(store: Store<'_>) {
    let Some(tier) = store.cold.disk() else { return };
    for _ in 0..RESTS_MAX {
        if !is_short(store) || tier.state() != State::Works {
            return;
        }
        tier.wake();
        routines::pause(REST);
    }
}
