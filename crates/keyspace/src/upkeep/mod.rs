//! Layer 6 of 7: what happens without a command: expiry, eviction, compaction, aging, snapshots. Always in
//! steps that are bounded, each under a lock of its own.

pub(crate) mod age;
pub(crate) mod cold_walk;
pub(crate) mod compact;
pub(crate) mod due;
pub(crate) mod evict;
pub(crate) mod expire;
pub(crate) mod freeze;
pub(crate) mod sink;
pub(crate) mod sink_nodes;
pub(crate) mod slot_hand;
pub(crate) mod snapshot;
pub(crate) mod steps;
pub(crate) mod walk;

#[cfg(test)]
mod walk_tests;
