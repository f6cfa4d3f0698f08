//! The roles of nodes: which are primaries, and which primary a replica follows (clusterSetNodeAsPrimary,
//! clusterSetPrimary, and the part of clusterProcessPacket that follows a sender's role).

use super::change::Change;
use super::{Handle, Output};
use crate::Flags;
use crate::wire::Header;

impl Change<'_> {
    pub fn make_primary(&mut self, handle: Handle) {
        if self.nodes[handle].is_primary() {
            return;
        }
        self.outputs.notice(format!(
            "Reconfiguring node {} as primary for shard {}",
            self.name(handle),
            self.nodes[handle].shard
        ));
        let is_me = handle == self.nodes.me;
        let node = &mut self.nodes[handle];
        if node.primary.take().is_some() && !is_me {
            node.flags.set(Flags::MIGRATE_TO);
        }
        node.flags.clear(Flags::REPLICA);
        node.flags.set(Flags::PRIMARY);
        if is_me {
            self.todo.followed = None;
            self.todo.slots();
            self.announce_settings();
        }
        self.todo.save();
        self.todo.update_state = true;
    }

    /// Makes this node a replica of `primary`.
    pub fn follow(&mut self, primary: Handle, closes_slots: bool, needs_full: bool) {
        assert!(
            primary != self.nodes.me && self.nodes.my().slot_count == 0,
            "a node with slots follows no other"
        );
        let me = self.nodes.my_mut();
        me.flags.clear(Flags::PRIMARY | Flags::MIGRATE_TO | Flags::MY_PRIMARY_FAIL);
        me.flags.set(Flags::REPLICA);
        me.primary = Some(primary);
        if closes_slots {
            self.close_all_slots();
        }
        let shard = self.nodes[primary].shard;
        self.nodes.my_mut().shard = shard;
        self.announce_settings();
        self.todo.slots();
        self.todo.save_first();
        self.follow_address(needs_full);
    }

    fn follow_address(&mut self, needs_full: bool) {
        let Some((ip, port)) = self.nodes.primary_address(self.settings.follows_by_tls) else { return };
        if needs_full || self.todo.followed.as_ref() != Some(&(ip.clone(), port)) {
            self.todo.followed = Some((ip.clone(), port));
            self.todo.role = Some(Output::Follow { ip, port, needs_full });
        }
    }

    /// After a start, and after the primary was found at another address.
    pub fn follow_known_primary(&mut self) {
        if self.nodes.my().is_replica() {
            self.follow_address(false);
        }
    }

    /// Brings a node's role in line with what it says of itself. `false`: the message is older than what is
    /// known.
    pub fn follow_role(&mut self, sender: Handle, header: &Header) -> bool {
        let Some(primary_id) = header.primary else {
            self.make_primary_if_replica(sender);
            return true;
        };
        let claimed = self.nodes.find(&primary_id);
        if self.nodes[sender].is_primary() && !self.demote(sender, claimed, header) {
            return false;
        }
        let Some(claimed) =
            claimed.filter(|claimed| self.nodes[sender].primary != Some(*claimed) && *claimed != sender)
        else {
            return true;
        };
        self.outputs.notice(format!(
            "Node {} is now a replica of node {}",
            self.name(sender),
            self.name(claimed)
        ));
        self.nodes[sender].primary = Some(claimed);
        self.leave_chain();
        let shard = self.nodes[claimed].shard;
        self.move_to_shard(sender, shard);
        self.todo.save();
        true
    }

    fn make_primary_if_replica(&mut self, sender: Handle) {
        if self.nodes[sender].is_replica() {
            self.make_primary(sender);
        }
    }

    /// A primary says that it is a replica now.
    fn demote(&mut self, sender: Handle, claimed: Option<Handle>, header: &Header) -> bool {
        match claimed.filter(|claimed| self.nodes.are_in_one_shard(*claimed, sender) && *claimed != sender) {
            Some(claimed) => {
                let known = self.nodes.epoch_of(sender).max(self.nodes.epoch_of(claimed));
                if known > header.config_epoch {
                    self.outputs.notice(format!(
                        "Ignore stale message from {}; gossip config epoch: {}, current config epoch: {known}",
                        self.name(sender),
                        header.config_epoch
                    ));
                    return false;
                }
                self.move_slots(sender, claimed);
                if self.nodes[claimed].is_replica() {
                    self.make_primary(claimed);
                    self.nodes[claimed].config_epoch = header.config_epoch;
                }
            }
            None => {
                let count = self.take_all(sender);
                self.outputs.notice(format!(
                    "Node {} is no longer primary of shard {}; removed all {count} slot(s) it used to own",
                    self.name(sender),
                    self.nodes[sender].shard
                ));
            }
        }
        let node = &mut self.nodes[sender];
        node.flags.clear(Flags::PRIMARY | Flags::MIGRATE_TO);
        node.flags.set(Flags::REPLICA);
        self.todo.save_first();
        self.todo.update_state = true;
        true
    }

    /// A replica of a replica follows that one's primary instead.
    fn leave_chain(&mut self) {
        let Some(primary) = self.nodes.my().primary else { return };
        let Some(above) = self.nodes[primary].primary.filter(|above| *above != self.nodes.me) else { return };
        self.outputs.notice(format!(
            "I'm a sub-replica! Reconfiguring myself as a replica of {} from {}",
            self.nodes[above].id, self.nodes[primary].id
        ));
        let needs_full = !self.nodes.are_in_one_shard(above, self.nodes.me);
        self.follow(above, true, needs_full);
        self.todo.broadcast = true;
    }
}
