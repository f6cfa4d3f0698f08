//! Changes of what is known of the cluster: of the nodes, the owners of the slots, the epochs.
//!
//! A change notes in `Todo` what has to follow from it. It sends nothing and touches no connection: the file
//! may have to come first.

use super::epochs::Epochs;
use super::node::Nodes;
use super::outputs::Outputs;
use super::slots::Slots;
use super::{Handle, Output, Settings, commit::Todo};
use crate::{NodeId, Slot, SlotSet};

/// Parts of the machine that a change may touch.
pub struct Change<'m> {
    pub settings: &'m Settings,
    pub nodes: &'m mut Nodes,
    pub slots: &'m mut Slots,
    pub epochs: &'m mut Epochs,
    pub todo: &'m mut Todo,
    /// Outputs for lines of the log.
    pub outputs: &'m mut Outputs,
}

impl Change<'_> {
    pub fn name(&self, node: Handle) -> String {
        self.nodes.name(node, self.settings.is_tls)
    }

    /// Brings this node's own entry in line with what is configured.
    pub fn announce_settings(&mut self) {
        if self.nodes.my_mut().announce(self.settings) {
            self.todo.save();
        }
    }

    pub fn give(&mut self, slot: Slot, node: Handle) {
        self.slots.give(slot, node, self.nodes);
        self.todo.slots();
    }

    /// Takes a slot from its owner, if it has one.
    pub fn take(&mut self, slot: Slot) {
        if self.slots.take(slot, self.nodes) {
            self.todo.slots();
        }
    }

    /// Takes all slots from a node. Returns how many it had.
    pub fn take_all(&mut self, node: Handle) -> usize {
        let slots = self.slots.of(node, self.nodes);
        slots.iter().for_each(|slot| self.take(slot));
        slots.len()
    }

    /// Gives all slots of `from` to `to`, and redirects open slots that point to `from`, as a failover within
    /// a shard requires.
    pub fn move_slots(&mut self, from: Handle, to: Handle) {
        let slots = self.slots.of(from, self.nodes);
        slots.iter().for_each(|slot| self.give(slot, to));
        self.slots.redirect(from, to);
    }

    pub fn close_all_slots(&mut self) {
        self.slots.close_all();
        self.todo.slots();
    }

    /// Makes the loaded data agree with the owners of the slots (verifyClusterConfigWithData): this node
    /// takes slots that have keys but no owner, and deletes keys in slots of other nodes.
    pub fn check_data(&mut self, populated: &SlotSet) {
        if self.nodes.my().is_replica() {
            return;
        }
        let mut foreign = Vec::new();
        for slot in populated.iter() {
            match self.slots.owner(slot) {
                _ if self.slots.importing.contains_key(&slot) => {}
                Some(owner) if owner == self.nodes.me => {}
                None => {
                    self.outputs.notice(format!(
                        "I have keys for unassigned slot {}. Taking responsibility for it.",
                        slot.get()
                    ));
                    self.give(slot, self.nodes.me);
                }
                Some(_) => {
                    self.outputs.notice(format!(
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

    /// A replica is in its primary's shard, whatever it says.
    pub fn move_to_shard(&mut self, node: Handle, shard: NodeId) {
        if let Some(primary) = self.nodes[node].primary
            && self.nodes[primary].shard != shard
        {
            return;
        }
        if self.nodes[node].shard != shard {
            self.nodes[node].shard = shard;
            self.todo.save();
        }
        if self.nodes.my().primary == Some(node) && self.nodes.my().shard != shard {
            self.nodes.my_mut().shard = shard;
            self.todo.save_first();
        }
    }
}
