//! Requests of administrators to a node: CLUSTER MEET, ADDSLOTS, SETSLOT, FORGET, REPLICATE, RESET and their
//! like (clusterCommandSpecial, clusterCommandSetSlot).
//!
//! A request that changes something is answered when the change stands: on disk, and obeyed by every worker.

use super::node::Node;
use super::{Handle, LinkId, Machine, Now, Output};
use crate::{Flags, NodeId, Slot};
use std::net::IpAddr;

/// The caller's name for a request.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct RequestId(pub u64);

#[derive(Clone, PartialEq, Eq, Debug)]
pub enum SlotAction {
    Migrating(NodeId),
    Importing(NodeId),
    Stable,
    /// `holds_keys`: this node has keys in the slot, so it cannot give it away.
    Node {
        node: NodeId,
        holds_keys: bool,
    },
}

/// Request of a CLUSTER command, or of DEBUG CLUSTERLINK. Where it depends on this node's keys, the caller
/// has looked them up.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Request {
    Meet {
        ip: String,
        port: u16,
        bus_port: u16,
    },
    /// Ranges as the user named them: an error names the first slot that is at fault.
    AddSlots(Vec<(Slot, Slot)>),
    DelSlots(Vec<(Slot, Slot)>),
    FlushSlots {
        has_keys: bool,
    },
    SetSlot {
        slot: Slot,
        action: SlotAction,
        /// True if the request comes from the primary that this node follows.
        is_replicated: bool,
    },
    BumpEpoch,
    SaveConfig,
    Forget(NodeId),
    Replicate {
        node: NodeId,
        has_keys: bool,
    },
    ReplicateNoOne,
    SetConfigEpoch(u64),
    Reset {
        is_hard: bool,
        has_keys: bool,
    },
    CountFailureReports(NodeId),
    Links,
    /// DEBUG CLUSTERLINK KILL.
    KillLinks {
        node: NodeId,
        to: bool,
        from: bool,
    },
}

#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Answer {
    Ok,
    /// A status that is not OK.
    Status(String),
    Integer(i64),
    Links(Vec<LinkView>),
    /// The text after `-ERR `.
    Error(String),
}

/// A row of CLUSTER LINKS; the caller knows what the connection's queue holds.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct LinkView {
    pub link: LinkId,
    pub is_inbound: bool,
    pub node: NodeId,
    pub created_unix_ms: u64,
}

type Answered = Result<Answer, String>;

impl Machine {
    pub(super) fn request(&mut self, id: RequestId, request: Request, now: Now) {
        let answer = self.answer(request, now).unwrap_or_else(Answer::Error);
        // The change is on its way to the disk; the answer leaves after it.
        self.todo.hold(Output::Answer { id, answer });
    }

    fn answer(&mut self, request: Request, now: Now) -> Answered {
        match request {
            Request::Meet { ip, port, bus_port } => self.meet(&ip, port, bus_port, now),
            Request::AddSlots(ranges) => self.add_slots(&ranges),
            Request::DelSlots(ranges) => self.delete_slots(&ranges),
            Request::FlushSlots { has_keys: true } => {
                Err("DB must be empty to perform CLUSTER FLUSHSLOTS.".to_string())
            }
            Request::FlushSlots { has_keys: false } => {
                let me = self.nodes.me;
                self.change().take_all(me);
                Ok(Answer::Ok)
            }
            Request::SetSlot { slot, action, is_replicated } => self.set_slot(slot, &action, is_replicated),
            Request::BumpEpoch => {
                let word = if self.change().bump_epoch() { "BUMPED" } else { "STILL" };
                Ok(Answer::Status(format!("{word} {}", self.nodes.my().config_epoch)))
            }
            Request::SaveConfig => {
                self.todo.save_first();
                Ok(Answer::Ok)
            }
            Request::Forget(node) => self.forget(node, now),
            Request::Replicate { node, has_keys } => self.replicate(node, has_keys),
            Request::ReplicateNoOne => self.replicate_no_one(),
            Request::SetConfigEpoch(epoch) => self.set_config_epoch(epoch),
            Request::Reset { is_hard, has_keys } => self.reset(is_hard, has_keys, now),
            Request::CountFailureReports(node) => {
                let node = self.known(&node)?;
                let valid_ms = self.settings.report_valid_ms();
                Ok(Answer::Integer(self.nodes[node].count_reports(valid_ms, now.ms) as i64))
            }
            Request::Links => Ok(Answer::Links(self.link_views())),
            Request::KillLinks { node, to, from } => self.kill_links(node, to, from, now),
        }
    }

    fn known(&self, id: &NodeId) -> Result<Handle, String> {
        self.nodes.find(id).ok_or_else(|| format!("Unknown node {id}"))
    }

    fn meet(&mut self, ip: &str, port: u16, bus_port: u16, now: Now) -> Answered {
        let parsed: IpAddr =
            ip.parse().map_err(|_| format!("Invalid node address specified: {ip}:{port}"))?;
        let ip = parsed.to_string();
        let is_tls = self.settings.is_tls;
        let is_under_way = self.nodes.iter().any(|(_, node)| {
            let address = (node.address.ip.as_str(), node.client_port(is_tls), node.address.bus_port);
            node.is_in_handshake() && address == (ip.as_str(), port, bus_port)
        });
        if is_under_way {
            return Ok(Answer::Ok);
        }
        let (id, shard) = (self.new_id(), self.new_id());
        let mut node = Node::new(id, shard, Flags::HANDSHAKE | Flags::MEET, now.ms);
        let address = node.address_mut();
        address.ip = ip;
        (address.tcp_port, address.tls_port) = self.ports(port, 0);
        address.bus_port = bus_port;
        let full = || "Too many nodes are known".to_string();
        self.nodes.add(node).ok_or_else(full)?;
        Ok(Answer::Ok)
    }

    /// Each slot of the ranges once, in order; of the first that cannot be had, what is wrong.
    fn check_slots(&self, ranges: &[(Slot, Slot)], has_to_be_owned: bool) -> Result<Vec<Slot>, String> {
        let mut seen = crate::SlotSet::new();
        let mut slots = Vec::new();
        for number in ranges.iter().flat_map(|(first, last)| first.get()..=last.get()) {
            let slot = Slot::new(number);
            match self.slots.owner(slot) {
                None if has_to_be_owned => return Err(format!("Slot {number} is already unassigned")),
                Some(_) if !has_to_be_owned => return Err(format!("Slot {number} is already busy")),
                _ => {}
            }
            if !seen.insert(slot) {
                return Err(format!("Slot {number} specified multiple times"));
            }
            slots.push(slot);
        }
        Ok(slots)
    }

    // COMPAT(cluster): A replica refuses CLUSTER ADDSLOTS and ADDSLOTSRANGE. Valkey's takes the slots, and
    // ends at its next change of primary. Why: a node with slots follows no other.
    fn add_slots(&mut self, ranges: &[(Slot, Slot)]) -> Answered {
        if self.nodes.my().is_replica() {
            return Err("Please use ADDSLOTS only with primaries.".to_string());
        }
        let me = self.nodes.me;
        for slot in self.check_slots(ranges, false)? {
            self.slots.importing.remove(&slot);
            self.change().give(slot, me);
        }
        Ok(Answer::Ok)
    }

    fn delete_slots(&mut self, ranges: &[(Slot, Slot)]) -> Answered {
        for slot in self.check_slots(ranges, true)? {
            self.change().take(slot);
        }
        Ok(Answer::Ok)
    }

    /// Checks a request before it is replicated, and returns the error that it would meet. Only SETSLOT is
    /// checked, because only SETSLOT is replicated.
    pub fn check(&self, request: &Request) -> Result<(), String> {
        match request {
            Request::SetSlot { slot, action, is_replicated } => {
                self.check_set_slot(*slot, action, *is_replicated).map(|_| ())
            }
            _ => Ok(()),
        }
    }

    /// The node that it names.
    fn check_set_slot(
        &self,
        slot: Slot,
        action: &SlotAction,
        is_replicated: bool,
    ) -> Result<Option<Handle>, String> {
        if self.nodes.my().is_replica() && !is_replicated {
            return Err("Please use SETSLOT only with masters.".to_string());
        }
        let number = slot.get();
        match action {
            SlotAction::Migrating(node) => {
                if self.nodes.my().is_primary() && self.slots.owner(slot) != Some(self.nodes.me) {
                    return Err(format!("I'm not the owner of hash slot {number}"));
                }
                self.other_primary(node).map(Some)
            }
            SlotAction::Importing(node) => {
                if self.slots.owner(slot) == Some(self.nodes.me) {
                    return Err(format!("I'm already the owner of hash slot {number}"));
                }
                self.other_primary(node).map(Some)
            }
            SlotAction::Stable => Ok(None),
            SlotAction::Node { node, holds_keys } => {
                let node = self.known(node)?;
                if self.nodes[node].is_replica() {
                    return Err("Target node is not a master".to_string());
                }
                if self.slots.owner(slot) == Some(self.nodes.me) && node != self.nodes.me && *holds_keys {
                    return Err(format!(
                        "Can't assign hashslot {number} to a different node while I still hold keys for this hash slot."
                    ));
                }
                Ok(Some(node))
            }
        }
    }

    fn set_slot(&mut self, slot: Slot, action: &SlotAction, is_replicated: bool) -> Answered {
        let node = self.check_set_slot(slot, action, is_replicated)?;
        let was_involved = self.is_involved(slot);
        match (action, node) {
            (SlotAction::Migrating(_), Some(node)) => {
                self.outputs.notice(format!("Migrating slot {} to node {}", slot.get(), self.name(node)));
                self.slots.migrating.insert(slot, node);
            }
            (SlotAction::Importing(_), Some(node)) => {
                self.outputs.notice(format!("Importing slot {} from node {}", slot.get(), self.name(node)));
                self.slots.importing.insert(slot, node);
            }
            (SlotAction::Node { holds_keys, .. }, Some(node)) => self.assign(slot, node, *holds_keys),
            _ => {
                self.outputs.notice(format!("Marking slot {} stable", slot.get()));
                self.slots.importing.remove(&slot);
                self.slots.migrating.remove(&slot);
            }
        }
        self.todo.slots();
        // That a slot went from one other node to another is what those say too, so it may be lost.
        if was_involved || self.is_involved(slot) {
            self.todo.save_first();
        }
        Ok(Answer::Ok)
    }

    /// Returns whether the slot belongs to this shard, or is migrating from it or to it.
    pub fn is_involved(&self, slot: Slot) -> bool {
        self.slots.owner(slot) == Some(self.nodes.my_primary())
            || self.slots.importing.contains_key(&slot)
            || self.slots.migrating.contains_key(&slot)
    }

    fn other_primary(&self, id: &NodeId) -> Result<Handle, String> {
        let node = self.nodes.find(id).ok_or_else(|| format!("I don't know about node {id}"))?;
        if node == self.nodes.me {
            return Err("Target node is myself".to_string());
        }
        if self.nodes[node].is_replica() {
            return Err("Target node is not a master".to_string());
        }
        Ok(node)
    }

    fn assign(&mut self, slot: Slot, node: Handle, holds_keys: bool) {
        let was_mine = self.slots.owner(slot) == Some(self.nodes.my_primary());
        self.outputs.notice(format!(
            "Assigning slot {} to node {} in shard {}",
            slot.get(),
            self.name(node),
            self.nodes[node].shard
        ));
        if !holds_keys {
            self.slots.migrating.remove(&slot);
        }
        let primary = self.nodes.my_primary();
        self.change().give(slot, node);
        if was_mine && node != primary && self.nodes[primary].slot_count == 0 {
            self.lost_last_slot(node);
        }
        let is_ours = node == self.nodes.me || Some(node) == self.nodes.my().primary;
        if is_ours && self.slots.importing.remove(&slot).is_some() && node == self.nodes.me {
            // It was moved by hand, so no election gave it an epoch that others would obey.
            if self.change().bump_epoch() {
                self.outputs.notice(format!("ConfigEpoch updated after importing slot {}", slot.get()));
            }
            self.todo.broadcast = true;
        }
    }

    fn lost_last_slot(&mut self, new_owner: Handle) {
        let name = self.name(new_owner);
        if self.settings.allows_replica_migration {
            self.outputs.notice(format!(
                "Lost my last slot during slot migration. Reconfiguring myself as a replica of {name}"
            ));
            self.change().follow(new_owner, true, true);
            self.todo.broadcast = true;
        } else if self.nodes.my().is_primary() {
            self.outputs
                .notice(format!("My last slot was migrated to node {name}. I am now an empty primary."));
        }
    }

    fn forget(&mut self, id: NodeId, now: Now) -> Answered {
        let Some(node) = self.nodes.find(&id) else {
            // Another node may have spread it already.
            return if self.forgotten.is_banned(&id, now.ms) {
                Ok(Answer::Ok)
            } else {
                Err(format!("Unknown node {id}"))
            };
        };
        if node == self.nodes.me {
            return Err("I tried hard but I can't forget myself...".to_string());
        }
        if self.nodes.my().primary == Some(node) {
            return Err("Can't forget my master!".to_string());
        }
        let ttl_s = self.settings.blacklist_ttl_s;
        self.forgotten.forget(id, ttl_s, now.ms);
        self.remove_node(node, now);
        Ok(Answer::Ok)
    }

    fn replicate(&mut self, id: NodeId, has_keys: bool) -> Answered {
        let node = self.known(&id)?;
        if node == self.nodes.me {
            return Err("Can't replicate myself".to_string());
        }
        if self.nodes[node].is_replica() {
            return Err("I can only replicate a master, not a replica.".to_string());
        }
        if self.nodes.my().is_primary() && (self.nodes.my().slot_count != 0 || has_keys) {
            return Err("To set a master the node must be empty and without assigned slots.".to_string());
        }
        if self.nodes.my().primary != Some(node) {
            self.change().follow(node, true, true);
            self.todo.broadcast = true;
        }
        Ok(Answer::Ok)
    }

    fn replicate_no_one(&mut self) -> Answered {
        if self.nodes.my().is_primary() {
            return Ok(Answer::Ok);
        }
        let me = self.nodes.me;
        self.change().make_primary(me);
        self.todo.role = Some(Output::Lead);
        self.change().close_all_slots();
        self.new_shard();
        self.todo.save_first();
        self.todo.broadcast = true;
        Ok(Answer::Ok)
    }

    fn new_shard(&mut self) {
        let shard = self.new_id();
        self.nodes.my_mut().shard = shard;
        self.outputs.notice(format!("Moving myself to a new shard {shard}."));
    }

    fn set_config_epoch(&mut self, epoch: u64) -> Answered {
        if self.nodes.len() > 1 {
            return Err(
                "The user can assign a config epoch only when the node does not know any other node."
                    .to_string(),
            );
        }
        if self.nodes.my().config_epoch != 0 {
            return Err("Node config epoch is already non-zero".to_string());
        }
        self.nodes.my_mut().config_epoch = epoch;
        self.epochs.current = self.epochs.current.max(epoch);
        self.outputs.notice(format!("configEpoch set to {epoch} via CLUSTER SET-CONFIG-EPOCH"));
        self.todo.save_first();
        Ok(Answer::Ok)
    }

    fn reset(&mut self, is_hard: bool, has_keys: bool, now: Now) -> Answered {
        if self.nodes.my().is_primary() && has_keys {
            return Err("CLUSTER RESET can't be called with master nodes containing keys".to_string());
        }
        self.change().close_all_slots();
        Slot::all().for_each(|slot| self.change().take(slot));
        let was_replica = self.nodes.my().is_replica();
        let me = self.nodes.me;
        self.nodes
            .handles()
            .into_iter()
            .filter(|node| *node != me)
            .for_each(|node| self.remove_node(node, now));
        self.forgotten.clear();
        if is_hard {
            (self.epochs.current, self.epochs.last_vote) = (0, 0);
            self.nodes.my_mut().config_epoch = 0;
            self.commits.standing.current_epoch = 0;
            let id = self.new_id();
            self.nodes.rename(self.nodes.me, id);
            self.outputs.notice(format!("Node hard reset, now I'm {id}"));
        }
        self.new_shard();
        if was_replica {
            self.change().make_primary(me);
            self.todo.role = Some(Output::Lead);
        }
        self.todo.save_first();
        self.todo.update_state = true;
        Ok(Answer::Ok)
    }

    fn link_views(&self) -> Vec<LinkView> {
        let view = |id: LinkId, link: &super::links::Link| {
            let node = self.nodes[link.node?].id;
            let created_unix_ms = link.created_unix_ms;
            Some(LinkView { link: id, is_inbound: link.is_inbound, node, created_unix_ms })
        };
        self.links.iter().filter_map(|(id, link)| view(id, link)).collect()
    }

    fn kill_links(&mut self, id: NodeId, to: bool, from: bool, now: Now) -> Answered {
        let node = self.known(&id)?;
        let ends = [(to, self.nodes[node].outbound), (from, self.nodes[node].inbound)];
        for link in ends.into_iter().filter(|(is_wanted, _)| *is_wanted).filter_map(|(_, link)| link) {
            self.close(link, now);
        }
        Ok(Answer::Ok)
    }
}
