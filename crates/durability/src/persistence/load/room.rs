//! Pauses of a load while memory is above its limit and values leave it: no client could wait instead.

use std::time::Duration;

use isotherm_node::persistence::Store;
use isotherm_node::room::memory::{Apart, Memory};
use isotherm_node::tier::State;
use isotherm_runtime::routines;

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
