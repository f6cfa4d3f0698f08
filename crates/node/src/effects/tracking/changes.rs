//! Keys that have changed, on their way to sessions that track.

use std::collections::BTreeMap;

use crate::effects::pubsub::message::MESSAGE_BYTES;

/// Author of a change of a key: the id of a session, or 0.
pub type Author = u64;

/// Keys that were changed within one batch, and the last author of each.
pub type Changes = BTreeMap<Box<[u8]>, Author>;

/// Returns the bytes that a key takes in a message of changes.
pub fn stale_bytes(key: &[u8]) -> usize {
    MESSAGE_BYTES + key.len()
}

pub fn changes_bytes(changes: &Changes) -> usize {
    changes.keys().map(|key| stale_bytes(key)).sum()
}
