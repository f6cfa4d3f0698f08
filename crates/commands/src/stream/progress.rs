//! How far a group has come: the number of entries it has read, and of those that are still to come.

use isotherm_keyspace::{ConsumerGroup, StreamId, StreamState};

/// Whether an entry behind `from` was deleted.
fn has_gaps(state: &StreamState, len: u64, from: StreamId) -> bool {
    len > 0 && state.max_deleted_id != StreamId::MIN && from <= state.max_deleted_id
}

/// How many entries of all ever added come up to `id`; `None` where deleted ones make that unknown.
pub(super) fn entries_up_to(state: &StreamState, len: u64, id: StreamId) -> Option<u64> {
    if state.entries_added == 0 {
        return Some(0);
    }
    if len == 0 && id <= state.last_id {
        return Some(state.entries_added);
    }
    if id != StreamId::MIN && id < state.max_deleted_id {
        return None;
    }
    if id == state.last_id {
        return Some(state.entries_added);
    }
    if id > state.last_id {
        return None;
    }
    let whole = state.max_deleted_id == StreamId::MIN || state.max_deleted_id < state.first_id;
    match id.cmp(&state.first_id) {
        std::cmp::Ordering::Less if whole => Some(state.entries_added.wrapping_sub(len)),
        std::cmp::Ordering::Equal if whole => Some(state.entries_added.wrapping_sub(len).wrapping_add(1)),
        _ => None,
    }
}

/// Entries that are still to come; `None` where that is unknown.
pub(super) fn lag(state: &StreamState, len: u64, group: &ConsumerGroup) -> Option<i64> {
    if state.entries_added == 0 {
        return Some(0);
    }
    let read = match group.entries_read {
        Some(read) if !has_gaps(state, len, group.last_id) => read,
        _ => entries_up_to(state, len, group.last_id)?,
    };
    Some(state.entries_added.wrapping_sub(read) as i64)
}

/// The group is about to be given entry `id`, behind all it was given before.
pub(super) fn advance(group: &mut ConsumerGroup, state: &StreamState, len: u64, id: StreamId) {
    match &mut group.entries_read {
        Some(read) if group.last_id >= state.first_id && !has_gaps(state, len, group.last_id) => {
            *read = read.saturating_add(1)
        }
        read if state.entries_added > 0 => *read = entries_up_to(state, len, id),
        _ => {}
    }
    group.last_id = id;
}
