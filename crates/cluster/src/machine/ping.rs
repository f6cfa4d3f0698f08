//! Messages that this node sends: PING, PONG and MEET with gossip about some others, FAIL, UPDATE, PUBLISH
//! (clusterBuildMessageHdr, clusterSendPing, clusterBroadcastPong, clusterPropagatePublish).

use super::{Handle, Level, LinkId, Machine, Ms, Now, Output};
use crate::topology::State;
use crate::wire::{self, Body, Extensions, Gossip, Header, Message, PingKind};
use crate::{Flags, Slot, SlotSet};
use std::sync::Arc;

/// Minimum number of other nodes that a ping carries, if there are as many.
const GOSSIP_MIN: usize = 3;

impl Machine {
    pub(super) fn header(&mut self) -> Header {
        let (config_epoch, slots) = match self.nodes.my().primary {
            Some(primary) => {
                (self.nodes[primary].config_epoch, Box::new(self.slots.of(primary, &self.nodes).to_set()))
            }
            // Slots that were lost meanwhile are not claimed, even though their loss is not on disk.
            None => (self.commits.standing.config_epoch, self.standing_claims()),
        };
        let me = self.nodes.my();
        let (port, other_port) = self.ports(me.address.tcp_port, me.address.tls_port);
        Header {
            sender: me.id,
            primary: me.primary.map(|primary| self.nodes[primary].id),
            current_epoch: self.commits.standing.current_epoch,
            config_epoch,
            offset: self.offset,
            slots,
            ip: self.settings.announced_ip.clone(),
            port,
            other_port,
            bus_port: me.address.bus_port,
            flags: me.flags,
            is_ok: self.health.state == State::Ok,
            is_paused: false,
            forces_vote: false,
        }
    }

    fn standing_claims(&self) -> Box<SlotSet> {
        let mut claims = self.commits.standing.claims.clone();
        let lost: Vec<Slot> =
            claims.iter().filter(|slot| self.slots.owner(*slot) != Some(self.nodes.me)).collect();
        lost.into_iter().for_each(|slot| {
            claims.remove(slot);
        });
        claims
    }

    /// The port of the bus's own kind first.
    pub(super) fn ports(&self, tcp: u16, tls: u16) -> (u16, u16) {
        if self.settings.is_tls { (tls, tcp) } else { (tcp, tls) }
    }

    pub(super) fn connected(&mut self, link: LinkId, local_ip: &str, now: Now) {
        let Some(record) = self.links.get_mut(link) else { return };
        record.set_local_ip(local_ip);
        let Some(node) = record.node else { return };
        let waiting = self.nodes[node].ping_sent;
        // A member that does not seem to know this one is sent MEET later (`keep_connected`).
        let is_met = self.nodes[node].flags.has(Flags::MEET) && self.nodes[node].is_in_handshake();
        let kind = if is_met { PingKind::Meet } else { PingKind::Ping };
        self.ping(link, kind, now);
        if waiting.is_some() {
            // A ping that was sent over the link before this one is still not answered.
            self.nodes[node].ping_sent = waiting;
        }
    }

    pub(super) fn ping(&mut self, link: LinkId, kind: PingKind, now: Now) {
        let Some(record) = self.links.get(link) else { return };
        let (to, is_inbound) = (record.node, record.is_inbound);
        let with_extensions =
            record.knows_extensions || to.is_some_and(|node| self.nodes[node].flags.has(Flags::EXTENSIONS));
        if let Some(node) = to.filter(|_| !is_inbound) {
            match kind {
                PingKind::Ping => self.nodes[node].ping_sent = Some(now.ms),
                PingKind::Meet => self.nodes[node].meet_sent = Some(now.ms),
                PingKind::Pong => {}
            }
        }
        if self.settings.says_debug {
            let name = to.map_or_else(|| "<unknown> (<unknown>)".to_string(), |node| self.name(node));
            let (kind, end) = (kind.name(), if is_inbound { "inbound" } else { "outbound" });
            self.outputs.say(Level::Debug, format!("Sending {kind} packet to node {name} on {end} link"));
        }
        let gossip = self.gossip_for(to, now);
        let extensions = with_extensions.then(|| Box::new(self.extensions(now)));
        self.send(link, Body::Ping { kind, gossip, extensions });
    }

    /// Some nodes, of whom all have their turn, and all that do not answer this node.
    fn gossip_for(&mut self, to: Option<Handle>, now: Now) -> Vec<Gossip> {
        let others = self.nodes.len().saturating_sub(2);
        let percent = self.settings.gossip_percent as usize;
        let wanted = (self.nodes.len() * percent / 100).max(GOSSIP_MIN).min(others);
        let left_out = Flags::PFAIL | Flags::HANDSHAKE | Flags::NOADDR;
        let start = self.random.next_u64();
        let chosen: Vec<Handle> = self
            .nodes
            .handles_from(start)
            .filter(|handle| *handle != self.nodes.me && Some(*handle) != to)
            .filter(|handle| !self.nodes[*handle].flags.has(left_out))
            .filter(|handle| self.nodes[*handle].outbound.is_some() || self.nodes[*handle].slot_count > 0)
            .take(wanted)
            .collect();
        let mut gossip: Vec<Gossip> = chosen.into_iter().map(|handle| self.gossip_of(handle, now)).collect();
        if self.health.pfail_count > 0 {
            let failing = self.nodes.iter().filter(|(_, node)| {
                node.flags.has(Flags::PFAIL) && !node.flags.has(Flags::HANDSHAKE | Flags::NOADDR)
            });
            gossip.extend(failing.map(|(handle, _)| self.gossip_of(handle, now)));
        }
        gossip
    }

    fn gossip_of(&self, handle: Handle, now: Now) -> Gossip {
        let node = &self.nodes[handle];
        let seconds = |moment: Option<Ms>| moment.map_or(0, |at| (now.unix_of(at) / 1000) as u32);
        let (port, other_port) = self.ports(node.address.tcp_port, node.address.tls_port);
        Gossip {
            id: node.id,
            ping_sent_s: seconds(node.ping_sent),
            pong_received_s: seconds(node.pong_received),
            ip: node.address.ip.clone(),
            port,
            other_port,
            bus_port: node.address.bus_port,
            flags: node.flags,
        }
    }

    fn extensions(&self, now: Now) -> Extensions {
        let me = self.nodes.my();
        Extensions {
            hostname: me.address.hostname.clone(),
            human_name: me.address.human_name.clone(),
            availability_zone: me.address.availability_zone.clone(),
            client_ipv4: me.address.client_ipv4.clone(),
            client_ipv6: me.address.client_ipv6.clone(),
            client_port: me.address.client_tcp_port,
            client_tls_port: me.address.client_tls_port,
            shard: Some(me.shard),
            forgotten: self.forgotten.banned(now.ms),
        }
    }

    pub(super) fn send(&mut self, link: LinkId, body: Body<'_>) {
        let message = Message { header: Some(Box::new(self.header())), body };
        self.send_message(link, &message);
    }

    pub(super) fn send_message(&mut self, link: LinkId, message: &Message<'_>) {
        let mut bytes = Vec::new();
        wire::encode(message, &mut bytes);
        self.outputs.push(Output::Send { link, bytes: bytes.into() });
    }

    /// To all nodes that this one has a connection to.
    pub(super) fn broadcast(&mut self, body: Body<'_>) {
        let message = Message { header: Some(Box::new(self.header())), body };
        let mut bytes = Vec::new();
        wire::encode(&message, &mut bytes);
        let bytes: Arc<[u8]> = bytes.into();
        for link in self.peers().collect::<Vec<_>>() {
            self.outputs.push(Output::Send { link, bytes: bytes.clone() });
        }
    }

    fn peers(&self) -> impl Iterator<Item = LinkId> + '_ {
        let left_out = Flags::MYSELF | Flags::HANDSHAKE;
        self.nodes
            .iter()
            .filter(move |(_, node)| !node.flags.has(left_out))
            .filter_map(|(_, node)| node.outbound)
    }

    /// Something has changed that others should know at once.
    pub(super) fn broadcast_pong(&mut self, now: Now) {
        for link in self.peers().collect::<Vec<_>>() {
            self.ping(link, PingKind::Pong, now);
        }
    }

    /// Sends `to` the current claims of `about`, because `to` claims slots that it no longer owns.
    pub(super) fn send_update(&mut self, to: Handle, about: Handle) {
        let Some(link) = self.nodes[to].outbound else { return };
        let node = &self.nodes[about];
        let id = node.id;
        let (config_epoch, mut slots) = match about == self.nodes.me {
            // As in headers: an epoch that a crash takes back would undo what others have decided.
            true => (self.commits.standing.config_epoch, self.standing_claims()),
            false => (node.config_epoch, Box::new(self.slots.of(about, &self.nodes).to_set())),
        };
        self.slots.unclaimed.iter().for_each(|slot| {
            slots.remove(slot);
        });
        self.send(link, Body::Update { node: id, config_epoch, slots });
    }

    pub(super) fn publish(&mut self, channel: &[u8], message: &[u8], is_sharded: bool) {
        let body = Body::Publish { channel, message, is_sharded };
        // With a short header, and with a full one.
        let mut made: [Option<Arc<[u8]>>; 2] = [None, None];
        let shard = self.nodes.my().shard;
        let targets: Vec<(LinkId, bool)> = self
            .nodes
            .iter()
            .filter(|(_, node)| !node.flags.has(Flags::MYSELF | Flags::HANDSHAKE))
            .filter(|(_, node)| !is_sharded || node.shard == shard)
            .filter_map(|(_, node)| Some((node.outbound?, self.takes_light(node))))
            .collect();
        for (link, is_light) in targets {
            let made = &mut made[usize::from(!is_light)];
            if made.is_none() {
                let header = (!is_light).then(|| Box::new(self.header()));
                let mut bytes = Vec::new();
                wire::encode(&Message { header, body: body.clone() }, &mut bytes);
                *made = Some(bytes.into());
            }
            let bytes = made.clone().expect("made above");
            self.outputs.push(Output::Send { link, bytes });
        }
    }

    /// Returns whether the node accepts light messages: it has announced so, and has answered over this link,
    /// so that it knows which node the link belongs to.
    fn takes_light(&self, node: &super::Node) -> bool {
        let created = node.outbound.and_then(|link| self.links.get(link)).map(|link| link.created);
        node.flags.has(Flags::LIGHT_PUBLISH)
            && created.is_some_and(|created| node.pong_received >= Some(created))
    }
}
