//! Progress of a group: the number of entries that it has read, and of those that are still to come.

use isotherm_keyspace::{ConsumerGroup, StreamId, StreamState};

/// Returns whether an entry after `from` was deleted.
fn has_gaps(state: &StreamState, len: u64, from: StreamId) -> bool {
    len > 0 && state.max_deleted_id != StreamId::MIN && from <= state.max_deleted_id
}

/// Returns how many of all entries ever added come up to `id`; `None` if deleted ones make that unknown.
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

// COMPAT(streams): The lag in XINFO is 0 for a stream without entries, the number of entries for a group
// that has read none of them, and null where ENTRIESREAD cannot be right, as in Redis 8; Valkey counts
// entries that are gone, and answers a negative lag there. Why: programs start consumers by this number.
/// Entries that are still to come, never more than there are; `None` where that is unknown.
pub(super) fn lag(state: &StreamState, len: u64, group: &ConsumerGroup) -> Option<u64> {
    if state.entries_added == 0 || len == 0 {
        return Some(0);
    }
    if group.last_id < state.first_id && state.max_deleted_id < state.first_id {
        return Some(len);
    }
    let counted = group.entries_read.filter(|_| !has_gaps(state, len, group.last_id));
    let rest = counted.and_then(|read| state.entries_added.checked_sub(read)).filter(|rest| *rest <= len);
    rest.or_else(|| {
        let read = entries_up_to(state, len, group.last_id)?;
        state.entries_added.checked_sub(read)
    })
}

/// The group is about to be given entry `id`, after all that it was given before.
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

#[cfg(test)]
mod tests {
    use super::*;

    fn id(ms: u64) -> StreamId {
        StreamId { ms, seq: 0 }
    }

    /// Entries 1 to `added`. Those up to `gone` were trimmed, or deleted one by one.
    fn state(added: u64, gone: u64, is_deleted: bool) -> (StreamState, u64) {
        let first_id = if gone == added { StreamId::MIN } else { id(gone + 1) };
        let max_deleted_id = if is_deleted { id(gone) } else { StreamId::MIN };
        let state = StreamState { first_id, last_id: id(added), max_deleted_id, entries_added: added };
        (state, added - gone)
    }

    #[track_caller]
    fn check((state, len): (StreamState, u64), (last, read): (u64, Option<u64>), expected: Option<u64>) {
        assert_eq!(lag(&state, len, &ConsumerGroup::new(id(last), read)), expected);
    }

    #[test]
    fn a_lag_is_what_is_still_to_come() {
        for is_deleted in [false, true] {
            // Without entries there is none to come.
            check(state(3, 3, is_deleted), (2, Some(2)), Some(0));
            check(state(3, 3, is_deleted), (0, None), Some(0));
            // Those that left before they were read do not come.
            check(state(9, 4, is_deleted), (2, Some(2)), Some(5));
            check(state(9, 4, is_deleted), (0, None), Some(5));
            check(state(9, 4, is_deleted), (7, Some(7)), Some(2));
            check(state(9, 4, is_deleted), (9, None), Some(0));
        }
        // A count that cannot be is none.
        check(state(3, 0, false), (2, Some(1000)), None);
        check(state(3, 0, false), (3, Some(1000)), Some(0));
        check(state(3, 0, false), (0, Some(1000)), Some(3));
        check(state(9, 4, false), (7, Some(0)), None);
        // One in the middle was deleted.
        let gap = StreamState { max_deleted_id: id(5), ..state(9, 0, false).0 };
        check((gap, 8), (3, Some(3)), None);
        check((gap, 8), (6, Some(6)), Some(3));
    }
}
