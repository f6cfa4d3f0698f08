//! Slots that leave this node: clients that follow their keys are released.

use crate::access::lock::Held;
use crate::access::waiter::Waiter;
use isotherm_stdx::Slot;
use std::sync::Arc;

impl Held<'_> {
    /// Slots of a partition, which is held, leave: watchers of their keys fail, and waiters are returned, the
    /// oldest first, each with one of its slots. A waiter stays listed until it has ended. It visits every
    /// key of the partition that is watched or waited for.
    pub fn leave_slots(&mut self, partition: u16, leaves: impl Fn(Slot) -> bool) -> Vec<(Slot, Arc<Waiter>)> {
        let followers = &mut self.numbered(partition).followers;
        let visited = followers.watches.fail_where(|key| leaves(Slot::of_key(key)));
        let (mut waiters, also_visited) = followers.waiters.of_keys(|key| {
            let slot = Slot::of_key(key);
            leaves(slot).then_some(slot)
        });
        // As many as clients have named.
        self.exempt((visited + also_visited) as u64);
        waiters.sort_by_key(|(_, waiter)| waiter.turn());
        waiters.dedup_by(|(_, a), (_, b)| Arc::ptr_eq(a, b));
        waiters
    }
}
