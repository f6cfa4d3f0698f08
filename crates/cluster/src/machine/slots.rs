//! The owners of the slots, as this node sees them (clusterAddSlot, clusterDelSlot, clusterDelNodeSlots,
//! clusterMoveNodeSlots).

use super::{Handle, Machine, Output};
use crate::{Flags, Slot, SlotSet};

impl Machine {
    pub(super) fn owner(&self, slot: Slot) -> Option<Handle> {
        self.owners[slot.index()]
    }

    /// Returns whether a node owns exactly these slots.
    pub(super) fn owns_exactly(&self, node: Handle, slots: &SlotSet) -> bool {
        usize::from(self.nodes[node].slot_count) == slots.len()
            && slots.iter().all(|slot| self.owner(slot) == Some(node))
    }

    pub(super) fn give(&mut self, slot: Slot, node: Handle) {
        self.take(slot);
        let with_replicas = self.nodes.iter().any(|(_, node)| node.is_replica());
        let owner = &mut self.nodes[node];
        owner.slot_count += 1;
        // A primary that gets its first slot may be given replicas, if this is a cluster with replicas.
        if owner.slot_count == 1 && with_replicas {
            owner.flags.set(Flags::MIGRATE_TO);
        }
        self.owners[slot.index()] = Some(node);
        self.owners_version += 1;
        self.todo.slots();
    }

    /// Takes a slot from its owner. Returns whether it had one.
    pub(super) fn take(&mut self, slot: Slot) -> bool {
        let Some(owner) = self.owners[slot.index()].take() else { return false };
        self.nodes[owner].slot_count -= 1;
        self.owners_version += 1;
        self.unclaimed.remove(slot);
        self.todo.slots();
        true
    }

    /// Takes all slots from a node. Returns how many it had.
    pub(super) fn take_all(&mut self, node: Handle) -> usize {
        let slots = self.slots_of(node);
        slots.iter().for_each(|slot| {
            self.take(slot);
        });
        slots.len()
    }

    /// No owner, or one that has stopped saying so.
    pub(super) fn is_unclaimed(&self, slot: Slot) -> bool {
        self.owner(slot).is_none() || self.unclaimed.has(slot)
    }

    pub(super) fn close_all_slots(&mut self) {
        self.migrating.clear();
        self.importing.clear();
        self.todo.slots();
    }

    /// Gives all slots of `from` to `to`, and redirects open slots that point to `from`, as a failover within
    /// a shard requires. Returns how many slots were moved.
    pub(super) fn move_slots(&mut self, from: Handle, to: Handle) -> usize {
        let slots = self.slots_of(from);
        slots.iter().for_each(|slot| self.give(slot, to));
        for node in self.importing.values_mut().chain(self.migrating.values_mut()) {
            if *node == from {
                *node = to;
            }
        }
        slots.len()
    }

    /// Makes the loaded data agree with the owners of the slots (verifyClusterConfigWithData): this node
    /// takes slots that have keys but no owner, and deletes keys in slots of other nodes.
    pub(super) fn check_data(&mut self, populated: &SlotSet) {
        if self.is_replica() {
            return;
        }
        let mut foreign = Vec::new();
        for slot in populated.iter() {
            match self.owner(slot) {
                _ if self.importing.contains_key(&slot) => {}
                Some(owner) if owner == self.me => {}
                None => {
                    self.notice(format!(
                        "I have keys for unassigned slot {}. Taking responsibility for it.",
                        slot.get()
                    ));
                    self.give(slot, self.me);
                }
                Some(_) => {
                    self.notice(format!(
                        "I have keys for slot {}, but the slot is assigned to another node. Deleting keys in the slot.",
                        slot.get()
                    ));
                    foreign.push(slot);
                }
            }
        }
        if !foreign.is_empty() {
            self.todo.hold(Output::DeleteKeys(foreign));
        }
    }
}
