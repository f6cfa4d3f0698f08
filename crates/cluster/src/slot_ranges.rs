//! A set of slots that does not change any more, as its runs of neighbours: what a node owns, shared by all
//! that show it.
//!
//! ```text
//!   [first 2|last 2] [first 2|last 2] ...       ascending; no two touch
//! ```
//! All nodes together have at most as many runs as there are slots, 64 KB; a bitmap each would be 2 KB a
//! node, however little it owns.

use crate::{Slot, SlotSet};
use std::sync::Arc;

#[derive(Clone, PartialEq, Eq, Default)]
pub struct SlotRanges(Arc<[(Slot, Slot)]>);

impl SlotRanges {
    /// Returns the ranges of each of `count` owners. `owner` names the owner of a slot.
    pub fn by_owner(count: usize, owner: impl Fn(Slot) -> Option<usize>) -> Vec<SlotRanges> {
        let mut runs: Vec<Vec<(Slot, Slot)>> = vec![Vec::new(); count];
        for slot in Slot::all() {
            let Some(owner) = owner(slot) else { continue };
            push(&mut runs[owner], slot);
        }
        let none = SlotRanges::default();
        let shared = |runs: Vec<_>| if runs.is_empty() { none.clone() } else { SlotRanges(runs.into()) };
        runs.into_iter().map(shared).collect()
    }

    pub fn ranges(&self) -> &[(Slot, Slot)] {
        &self.0
    }

    pub fn has(&self, slot: Slot) -> bool {
        let behind = self.0.partition_point(|(first, _)| *first <= slot);
        behind > 0 && slot <= self.0[behind - 1].1
    }

    /// Iterates over the slots in ascending order.
    pub fn iter(&self) -> impl Iterator<Item = Slot> + '_ {
        self.0.iter().flat_map(|(first, last)| (first.get()..=last.get()).map(Slot::new))
    }

    pub fn len(&self) -> usize {
        self.0.iter().map(|(first, last)| usize::from(last.get() - first.get()) + 1).sum()
    }

    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub fn to_set(&self) -> SlotSet {
        let mut set = SlotSet::new();
        self.iter().for_each(|slot| {
            set.insert(slot);
        });
        set
    }

    /// Returns whether both share the same memory, so that they need not be compared.
    pub fn is_shared_with(&self, other: &SlotRanges) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }

    /// Returns the number of bytes allocated for the ranges.
    pub fn memory_bytes(&self) -> usize {
        size_of_val(&*self.0)
    }
}

impl From<&SlotSet> for SlotRanges {
    fn from(set: &SlotSet) -> SlotRanges {
        SlotRanges(set.ranges().into())
    }
}

/// Adds a slot after all that are there.
fn push(runs: &mut Vec<(Slot, Slot)>, slot: Slot) {
    match runs.last_mut() {
        Some((_, last)) if last.get() + 1 == slot.get() => *last = slot,
        _ => runs.push((slot, slot)),
    }
}

impl std::fmt::Debug for SlotRanges {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_list().entries(self.0.iter().map(|(first, last)| first.get()..=last.get())).finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranges_are_the_set_that_they_were_made_from() {
        let mut set = SlotSet::new();
        for slot in [0, 1, 2, 63, 64, 700, 16383] {
            set.insert(Slot::new(slot));
        }
        let ranges = SlotRanges::from(&set);
        assert_eq!(ranges.ranges().len(), 4);
        assert_eq!((ranges.len(), ranges.to_set() == set), (7, true));
        assert!(Slot::all().all(|slot| ranges.has(slot) == set.has(slot)));
        let owners = SlotRanges::by_owner(2, |slot| Some(usize::from(!set.has(slot))));
        assert_eq!(owners[0], ranges);
        assert_eq!(owners[1].len(), Slot::COUNT - 7);
        assert!(SlotRanges::by_owner(2, |_| None)[1].is_empty());
    }
}
