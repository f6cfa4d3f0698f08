//! Effects of a claim of slots here (clusterUpdateSlotsConfigWith).
//!
//! A slot goes to the node that claims it with the higher configuration epoch, or to any if no node claims
//! it. So a failover and a slot that was moved spread by themselves, and a node that comes back with old
//! claims is set right by UPDATE.

use super::change::Change;
use super::{Handle, Level, Output};
use crate::wire::Header;
use crate::{NodeId, Slot, SlotSet};

/// Changes that a claim has made so far.
#[derive(Default)]
struct Effect {
    /// Slots that this node loses while it may have keys in them.
    lost: Vec<Slot>,
    /// Slots of this node, or of its primary, that the claim took.
    taken: usize,
}

impl Change<'_> {
    /// A primary claims other slots than are known as its own. Returns an owner by a newer claim, of whom the
    /// sender has to hear.
    pub fn claims_packet(&mut self, sender: Handle, header: &Header) -> Option<Handle> {
        self.claim(sender, header.config_epoch, &header.slots);
        let newer = header.slots.iter().find_map(|slot| {
            let owner =
                self.slots.owner(slot).filter(|owner| *owner != sender && !self.slots.is_unclaimed(slot))?;
            (self.nodes[owner].config_epoch > header.config_epoch).then_some(owner)
        });
        if let Some(owner) = newer {
            let text = format!(
                "Node {} has old slots configuration, sending an UPDATE message about {}",
                self.name(sender),
                self.name(owner)
            );
            self.outputs.say(Level::Verbose, text);
        }
        newer
    }

    pub fn update_packet(&mut self, node: NodeId, config_epoch: u64, slots: &SlotSet) {
        let Some(node) = self.nodes.find(&node).filter(|node| self.nodes[*node].config_epoch < config_epoch)
        else {
            return;
        };
        if node == self.nodes.me {
            return self.outputs.notice("Discarding UPDATE message about myself.".to_string());
        }
        self.make_primary(node);
        self.nodes[node].config_epoch = config_epoch;
        self.todo.save_first();
        self.claim(node, config_epoch, slots);
    }

    fn claim(&mut self, sender: Handle, epoch: u64, slots: &SlotSet) {
        if sender == self.nodes.me {
            return;
        }
        let primary = self.nodes.my_primary();
        let was_same_shard = self.nodes.are_in_one_shard(sender, self.nodes.me);
        let mut effect = Effect::default();
        for slot in Slot::all() {
            match slots.has(slot) {
                true => self.claim_slot(sender, epoch, slot, primary, &mut effect),
                false => self.unclaim_slot(sender, epoch, slot),
            }
        }
        let lost_all = effect.taken > 0 && self.nodes[primary].slot_count == 0;
        let slotless = effect.taken == 0
            && self.nodes.my().primary != Some(sender)
            && slots.is_empty()
            && self.nodes.my().slot_count == 0
            && self.nodes.epoch_of(self.nodes.me) < epoch
            && was_same_shard;
        if (lost_all && (self.settings.allows_replica_migration || was_same_shard))
            || (slotless && self.nodes[primary].slot_count == 0)
        {
            self.follow_new_owner(sender, was_same_shard);
        } else if !effect.lost.is_empty() {
            if lost_all {
                self.outputs.notice(format!(
                    "My last slot was migrated to node {}. I am now an empty primary.",
                    self.name(sender)
                ));
            }
            // After the words say so, so that no command adds a key later.
            self.todo.hold(Output::DeleteKeys(effect.lost));
        }
    }

    fn follow_new_owner(&mut self, sender: Handle, is_same_shard: bool) {
        self.outputs.notice(format!(
            "Configuration change detected. Reconfiguring myself as a replica of node {} in shard {}",
            self.name(sender),
            self.nodes[sender].shard
        ));
        self.follow(sender, !is_same_shard, !is_same_shard);
        self.todo.broadcast = true;
    }

    fn claim_slot(&mut self, sender: Handle, epoch: u64, slot: Slot, primary: Handle, effect: &mut Effect) {
        let owner = self.slots.owner(slot);
        if owner == Some(sender) {
            self.slots.unclaimed.remove(slot);
            return;
        }
        let is_older = owner.is_some_and(|owner| self.nodes[owner].config_epoch < epoch);
        if !self.slots.is_unclaimed(slot) && !is_older {
            return;
        }
        if owner == Some(self.nodes.me) {
            effect.lost.push(slot);
        }
        if owner == Some(primary) {
            effect.taken += 1;
        }
        if self.slots.migrating.contains_key(&slot) && !self.nodes.are_in_one_shard(sender, self.nodes.me) {
            self.slots.migrating.remove(&slot);
        }
        if let Some(&from) = self.slots.importing.get(&slot).filter(|from| **from != sender) {
            // Its source has failed over within its shard, or an administrator gave it to another one.
            if self.nodes.are_in_one_shard(sender, from) {
                self.slots.importing.insert(slot, sender);
            } else {
                self.slots.importing.remove(&slot);
            }
        }
        self.give(slot, sender);
        self.slots.unclaimed.remove(slot);
        self.todo.save_first();
    }

    /// The sender does not claim this one.
    fn unclaim_slot(&mut self, sender: Handle, epoch: u64, slot: Slot) {
        if self.slots.owner(slot) == Some(sender) {
            // It stays its own until another claims it, or clients would see an error instead of a
            // redirection.
            self.slots.unclaimed.insert(slot);
        }
        if let Some(&to) = self.slots.migrating.get(&slot)
            && to != sender
            && (self.nodes[to].config_epoch < epoch || self.nodes[to].is_replica())
            && self.nodes.are_in_one_shard(to, sender)
        {
            self.slots.migrating.insert(slot, sender);
            self.todo.slots();
            self.todo.save_first();
        }
        if self.nodes.my().is_primary() && self.slots.importing.get(&slot) == Some(&sender) {
            // The source has given it up, so the end of its move was missed here.
            self.outputs.notice(format!(
                "Slot {} is no longer being imported from node {}",
                slot.get(),
                self.name(sender)
            ));
            self.slots.importing.remove(&slot);
            if self.slots.owner(slot) != Some(self.nodes.me) {
                self.give(slot, self.nodes.me);
                self.bump_epoch();
            }
            self.todo.slots();
            self.todo.save_first();
        }
    }
    /// Gives this node the highest epoch of all, unless it has it: without asking others, after a slot was
    /// moved by hand (clusterBumpConfigEpochWithoutConsensus).
    pub fn bump_epoch(&mut self) -> bool {
        let epoch = self.nodes.my().config_epoch;
        if epoch != 0 && epoch == self.epochs.max(self.nodes) {
            return false;
        }
        self.take_new_epoch();
        self.outputs.notice(format!("New configEpoch set to {}", self.epochs.current));
        true
    }

    fn take_new_epoch(&mut self) {
        self.nodes.my_mut().config_epoch = self.epochs.begin_new();
        self.todo.save_first();
        self.todo.broadcast = true;
    }

    /// Two primaries with one epoch: the one with the smaller id takes another, so of many all but one move
    /// on (clusterHandleConfigEpochCollision).
    pub fn resolve_collision(&mut self, sender: Handle) {
        let other = &self.nodes[sender];
        let (me, both) = (self.nodes.my(), other.is_primary() && self.nodes.my().is_primary());
        if !both || other.config_epoch != me.config_epoch || other.id <= me.id {
            return;
        }
        self.take_new_epoch();
        self.outputs.notice(format!(
            "configEpoch collision with node {}. configEpoch set to {}",
            self.name(sender),
            self.epochs.current
        ));
    }
}
