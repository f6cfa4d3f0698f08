//! Effects of a message from another node (clusterProcessPacket).
//!
//! A message is from the node of its link; over a link that belongs to no node yet, from the one it names. A
//! message from a node that is not known is answered, and otherwise ignored, unless it is MEET.

use super::node::Node;
use super::{Handle, Level, LinkId, Machine, Now, Output};
use crate::wire::{Body, Extensions, Gossip, Header, Message, PingKind, Type};
use crate::{Flags, NodeId};

/// Content of a PING, PONG or MEET without its header.
struct Ping<'m> {
    kind: PingKind,
    gossip: &'m [Gossip],
    extensions: Option<&'m Extensions>,
}

impl Machine {
    pub(super) fn packet(&mut self, link: LinkId, message: &Message<'_>, now: Now) {
        if self.links.get(link).is_none() {
            return;
        }
        if let Some(dropped) = self.settings.dropped_type
            && (dropped == -2 || dropped == Type::of(&message.body).number() as i16)
        {
            if self.settings.closes_on_drop {
                self.close(link, now);
            }
            return;
        }
        match &message.header {
            None => self.light_packet(link, &message.body, now),
            Some(header) => self.full_packet(link, header, &message.body, now),
        }
    }

    fn light_packet(&mut self, link: LinkId, body: &Body<'_>, now: Now) {
        let Some(node) = self.links.known_node(link, &self.nodes) else {
            self.outputs
                .notice("Closing link that sent a lightweight message as its first message".to_string());
            return self.close(link, now);
        };
        self.nodes[node].data_received = Some(now.ms);
        self.deliver(body);
    }

    fn deliver(&mut self, body: &Body<'_>) {
        if let Body::Publish { channel, message, is_sharded } = body {
            let (channel, message) = (channel.to_vec(), message.to_vec());
            self.outputs.push(Output::Deliver { channel, message, is_sharded: *is_sharded });
        }
    }

    fn full_packet(&mut self, link: LinkId, header: &Header, body: &Body<'_>, now: Now) {
        let sender = self.sender_of(link, header, now);
        if matches!(body, Body::Ping { extensions: Some(_), .. })
            && let Some(record) = self.links.get_mut(link)
        {
            record.knows_extensions = true;
        }
        match sender {
            Some(sender) => self.note_sender(sender, link, header, now),
            None if !matches!(body, Body::Ping { kind: PingKind::Meet, .. }) => {
                self.forgotten.note_link(link, header.sender);
            }
            None => {}
        }
        match body {
            Body::Ping { kind, gossip, extensions } => {
                let ping = Ping { kind: *kind, gossip, extensions: extensions.as_deref() };
                self.ping_packet(link, sender, header, &ping, now);
            }
            Body::Fail(failing) => self.fail_packet(sender, failing, now),
            Body::Update { node, config_epoch, slots } if sender.is_some() => {
                self.change().update_packet(*node, *config_epoch, slots);
            }
            Body::Publish { .. } if sender.is_some() => self.deliver(body),
            Body::VoteRequest => {
                if let Some(sender) = sender {
                    self.vote_request(sender, header);
                }
            }
            // Elections of this node, manual failovers of its shard: none are held yet; modules do not exist.
            Body::Publish { .. } | Body::Update { .. } | Body::Vote | Body::ManualFailover | Body::Module => {
            }
        }
    }

    fn sender_of(&mut self, link: LinkId, header: &Header, now: Now) -> Option<Handle> {
        if let Some(node) = self.links.known_node(link, &self.nodes) {
            return Some(node);
        }
        let is_bound = self.links.get(link)?.node.is_some();
        let sender = self.nodes.find(&header.sender)?;
        // Itself, by an address that leads back here.
        if sender != self.nodes.me && !is_bound {
            self.bind(link, sender, now);
        }
        Some(sender)
    }

    /// A message has shown which node has made this connection. Of two, the older one is closed.
    fn bind(&mut self, link: LinkId, node: Handle, now: Now) {
        if let Some(old) = self.nodes[node].inbound {
            self.close(old, now);
        }
        self.links.bind(link, node, &mut self.nodes);
    }

    fn note_sender(&mut self, sender: Handle, link: LinkId, header: &Header, now: Now) {
        let knows = self.links.get(link).is_some_and(|link| link.knows_extensions);
        if sender == self.nodes.me {
            return;
        }
        let node = &mut self.nodes[sender];
        if knows {
            node.flags.set(Flags::EXTENSIONS);
        }
        let announced = Flags::LIGHT_PUBLISH | Flags::LIGHT_MODULE | Flags::MY_PRIMARY_FAIL;
        node.flags = node.flags.without(announced) | (header.flags & announced);
        node.data_received = Some(now.ms);
        if node.is_in_handshake() {
            return;
        }
        node.offset = header.offset;
        if header.primary.is_none() && header.config_epoch > node.config_epoch {
            node.config_epoch = header.config_epoch;
            self.todo.save_first();
        }
        if self.epochs.learn(header.current_epoch) {
            self.commits.show_epoch(header.current_epoch);
        }
    }

    fn ping_packet(
        &mut self,
        link: LinkId,
        sender: Option<Handle>,
        header: &Header,
        ping: &Ping<'_>,
        now: Now,
    ) {
        if ping.kind != PingKind::Pong {
            self.learn_own_ip(link, ping.kind);
            if ping.kind == PingKind::Meet && !self.meet_packet(link, sender, header, ping, now) {
                return;
            }
            self.ping(link, PingKind::Pong, now);
        }
        if sender == Some(self.nodes.me) {
            return self.met_itself(link, now);
        }
        if let Some(sender) = sender.filter(|sender| self.nodes[*sender].flags.has(Flags::MEET)) {
            self.nodes[sender].flags.clear(Flags::MEET);
            self.outputs.notice(format!("Successfully completed handshake with {}", self.name(sender)));
        }
        let Some(record) = self.links.get(link) else { return };
        let (bound, is_inbound) = (record.node, record.is_inbound);
        if let Some(node) = bound.filter(|_| !is_inbound)
            && !self.check_name(link, node, header, now)
        {
            return;
        }
        if let Some(sender) = sender {
            self.follow_flags(sender, header);
            if ping.kind == PingKind::Ping && !self.nodes[sender].is_in_handshake() {
                self.update_address(sender, link, header, now);
            }
        }
        if let Some(node) = bound.filter(|_| !is_inbound && ping.kind == PingKind::Pong) {
            self.note_pong(node, now);
        }
        let Some(sender) = sender else { return };
        let was_replica = self.nodes[sender].is_replica();
        if !self.change().follow_role(sender, header) {
            return;
        }
        let is_as_known = || self.slots.are_owned(&header.slots, sender, &self.nodes);
        if header.primary.is_none()
            && (was_replica || !is_as_known())
            && let Some(owner) = self.change().claims_packet(sender, header)
        {
            self.send_update(sender, owner);
        }
        if self.nodes.my().is_primary()
            && header.primary.is_none()
            && header.config_epoch == self.nodes.my().config_epoch
        {
            self.change().resolve_collision(sender);
        }
        self.read_gossip(Some(sender), ping.gossip, now);
        if let Some(extensions) = ping.extensions {
            self.read_extensions(sender, extensions, now);
        }
    }

    /// A MEET that led back to this node: the handshake has come to its end.
    fn met_itself(&mut self, link: LinkId, now: Now) {
        let bound = self.links.get(link).and_then(|link| link.node);
        if let Some(node) = bound.filter(|node| self.nodes[*node].is_in_handshake()) {
            self.remove_node(node, now);
        }
    }

    /// Learns the address by which others reach this node, from the connection of a node that wants to meet
    /// it.
    fn learn_own_ip(&mut self, link: LinkId, kind: PingKind) {
        let is_wanted = kind == PingKind::Meet || self.nodes.my().address.ip.is_empty();
        let Some(record) =
            self.links.get(link).filter(|_| is_wanted && self.settings.announced_ip.is_empty())
        else {
            return;
        };
        let ip = record.local_ip();
        if ip.is_empty() || ip == self.nodes.my().address.ip {
            return;
        }
        self.outputs.notice(format!("IP address for this node updated to {ip}"));
        self.nodes.my_mut().address_mut().ip = ip;
        self.todo.save();
    }

    /// Handles a MEET. Returns whether its link is still open.
    fn meet_packet(
        &mut self,
        link: LinkId,
        sender: Option<Handle>,
        header: &Header,
        ping: &Ping<'_>,
        now: Now,
    ) -> bool {
        let Some(sender) = sender else {
            return self.meet_unknown(link, header, ping, now);
        };
        let node = &self.nodes[sender];
        if let Some(outbound) =
            node.outbound.filter(|_| now.ms.since(node.created) > self.settings.handshake_timeout_ms())
        {
            // It thinks that it is not known here. A new connection will show it that it is.
            self.outputs.notice(format!(
                "Freeing outbound link to node {} after receiving a MEET packet from this known node",
                self.name(sender)
            ));
            self.close(outbound, now);
            return outbound != link;
        }
        true
    }

    fn meet_unknown(&mut self, link: LinkId, header: &Header, ping: &Ping<'_>, now: Now) -> bool {
        let names_members = ping.gossip.iter().any(|entry| self.nodes.find(&entry.id).is_some());
        if self.forgotten.stays_out(link, &header.sender, names_members) {
            let text = format!("Ignoring MEET of node {}, which was forgotten", header.sender);
            self.outputs.say(Level::Verbose, text);
            return true;
        }
        let Some(record) = self.links.get(link) else { return false };
        if record.node.is_none() {
            let ip = if header.ip.is_empty() { record.peer_ip() } else { header.ip.clone() };
            if ip.is_empty() {
                self.close(link, now);
                return false;
            }
            let knows = if record.knows_extensions { Flags::EXTENSIONS } else { Flags::NONE };
            let (id, shard) = (self.new_id(), self.new_id());
            let mut node = Node::new(id, shard, Flags::HANDSHAKE | knows, now.ms);
            let address = node.address_mut();
            address.ip = ip;
            (address.tcp_port, address.tls_port) = self.ports(header.port, header.other_port);
            address.bus_port = header.bus_port;
            let Some(node) = self.nodes.add(node) else {
                self.close(link, now);
                return false;
            };
            self.bind(link, node, now);
            self.todo.save();
        }
        // An administrator sent it, so its gossip is believed.
        let sender = self.links.get(link).and_then(|link| link.node);
        self.read_gossip(sender, ping.gossip, now);
        true
    }

    /// The answer to what this node has sent: does it come from the node that is expected? Whether the link
    /// is still there.
    fn check_name(&mut self, link: LinkId, node: Handle, header: &Header, now: Now) -> bool {
        if let Some(sought) = self.nodes[node].sought {
            if let Some(found) = self.nodes.find(&sought).filter(|_| header.sender == sought) {
                self.update_address(found, link, header, now);
            }
            self.remove_node(node, now);
            return false;
        }
        if self.nodes[node].is_in_handshake() {
            // Looked up anew: the gossip of a MEET may have named the sender itself.
            if let Some(sender) = self.nodes.find(&header.sender) {
                // Known already, perhaps at another address.
                self.update_address(sender, link, header, now);
                self.remove_node(node, now);
                return false;
            }
            self.nodes.rename(node, header.sender);
            self.forgotten.meet(&header.sender);
            let node = &mut self.nodes[node];
            node.flags.clear(Flags::HANDSHAKE);
            node.flags.set(header.flags & (Flags::PRIMARY | Flags::REPLICA));
            self.todo.save();
            return true;
        }
        if self.nodes[node].id == header.sender {
            return true;
        }
        self.lost_identity(link, node, now);
        false
    }

    /// Another node answers at its address: it was reset, or replaced. Its old self will not come back.
    fn lost_identity(&mut self, link: LinkId, handle: Handle, now: Now) {
        let node = &mut self.nodes[handle];
        let text = format!(
            "PONG contains mismatching sender ID. About node {} in shard {} added {} ms ago, having flags {}",
            node.id,
            node.shard,
            now.ms.since(node.created),
            node.flags.0
        );
        node.flags.set(Flags::NOADDR);
        let address = node.address_mut();
        address.ip.clear();
        (address.tcp_port, address.tls_port, address.bus_port) = (0, 0, 0);
        self.outputs.notice(text);
        self.close(link, now);
        if !self.nodes[handle].flags.has(Flags::FAIL) {
            self.change().mark_failed(handle, now);
            self.broadcast(Body::Fail(self.nodes[handle].id));
        }
        self.todo.save();
    }

    fn follow_flags(&mut self, sender: Handle, header: &Header) {
        let node = &mut self.nodes[sender];
        let before = node.flags;
        node.flags = node.flags.without(Flags::NOFAILOVER) | (header.flags & Flags::NOFAILOVER);
        if node.flags != before {
            self.todo.save();
        }
    }

    /// A node is where its own pings come from. The link that they come by stays; the one to the old address
    /// is closed.
    pub(super) fn update_address(&mut self, sender: Handle, link: LinkId, header: &Header, now: Now) -> bool {
        if self.nodes[sender].outbound == Some(link) {
            return false;
        }
        let Some(record) = self.links.get(link) else { return false };
        let ip = if header.ip.is_empty() { record.peer_ip() } else { header.ip.clone() };
        let (tcp, tls) = self.ports(header.port, header.other_port);
        self.move_to(sender, ip, (tcp, tls, header.bus_port), now)
    }

    /// Notes another address of a node, and connects anew. Whether it is another.
    pub(super) fn move_to(&mut self, handle: Handle, ip: String, ports: (u16, u16, u16), now: Now) -> bool {
        let address = &self.nodes[handle].address;
        let known = (address.tcp_port, address.tls_port, address.bus_port);
        if ip.is_empty() || (address.ip == ip && known == ports) {
            return false;
        }
        let address = self.nodes[handle].address_mut();
        address.ip = ip;
        (address.tcp_port, address.tls_port, address.bus_port) = ports;
        self.nodes[handle].flags.clear(Flags::NOADDR);
        if let Some(outbound) = self.nodes[handle].outbound {
            self.close(outbound, now);
        }
        let node = &self.nodes[handle];
        let text = format!(
            "Address updated for node {}, now {}:{}",
            self.name(handle),
            node.address.ip,
            node.client_port(self.settings.is_tls)
        );
        self.outputs.notice(text);
        self.todo.save();
        true
    }

    fn note_pong(&mut self, node: Handle, now: Now) {
        if !self.nodes.has(node) {
            return;
        }
        let pinged = &mut self.nodes[node];
        pinged.pong_received = Some(now.ms);
        pinged.ping_sent = None;
        if pinged.flags.has(Flags::PFAIL) {
            pinged.flags.clear(Flags::PFAIL);
            self.todo.save();
            self.todo.update_state = true;
        } else if pinged.flags.has(Flags::FAIL) {
            self.change().clear_failure_if_due(node, now);
        }
    }

    fn fail_packet(&mut self, sender: Option<Handle>, failing: &NodeId, now: Now) {
        let Some(sender) = sender else {
            return self.outputs.notice(format!("Ignoring FAIL message from unknown node about {failing}"));
        };
        let Some(node) =
            self.nodes.find(failing).filter(|node| !self.nodes[*node].flags.has(Flags::FAIL | Flags::MYSELF))
        else {
            return;
        };
        let text = format!("FAIL message received from {} about {}", self.name(sender), self.name(node));
        self.outputs.say(Level::Notice, text);
        self.change().mark_failed(node, now);
    }
}
