//! Slots that leave this node: clients that follow their keys are released.

use crate::access::followers::Followers;
use crate::access::waiter::Waiter;
use isotherm_stdx::Slot;
use std::sync::Arc;

/// Clients that a slot's leaving concerns.
pub(crate) struct Released {
    /// Clients that wait for keys, the oldest first, each with one of its slots.
    pub waiters: Vec<(Slot, Arc<Waiter>)>,
    /// Keys that were visited.
    pub visited: usize,
}

impl Followers {
    /// Slots leave: watchers of their keys fail, and waiters are returned. A waiter stays listed until it has
    /// ended. It visits every key of the partition that is watched or waited for.
    pub fn leave_slots(&mut self, leaves: impl Fn(Slot) -> bool) -> Released {
        let watched = self.watches.fail_where(|key| leaves(Slot::of_key(key)));
        let (mut waiters, waited) = self.waiters.of_keys(|key| {
            let slot = Slot::of_key(key);
            leaves(slot).then_some(slot)
        });
        waiters.sort_by_key(|(_, waiter)| waiter.turn());
        waiters.dedup_by(|(_, a), (_, b)| Arc::ptr_eq(a, b));
        Released { waiters, visited: watched + waited }
    }
}
