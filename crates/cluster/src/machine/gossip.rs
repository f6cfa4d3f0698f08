//! Statements of others about others (clusterProcessGossipSection, clusterProcessPingExtensions).

use super::node::Node;
use super::{Handle, Level, Machine, Ms, Now};
use crate::Flags;
use crate::topology::Address;
use crate::wire::{Extensions, Gossip};

/// A clock may be so far ahead of this one.
const CLOCK_TOLERANCE_MS: u64 = 500;

impl Machine {
    /// `sender` may still be in its handshake, if it sent MEET.
    pub(super) fn read_gossip(&mut self, sender: Option<Handle>, gossip: &[Gossip], now: Now) {
        for entry in gossip {
            match self.nodes.find(&entry.id) {
                Some(node) if node == self.nodes.me => {}
                Some(node) => self.gossip_about(node, sender, entry, now),
                None => self.gossip_about_unknown(sender, entry, now),
            }
        }
    }

    fn gossip_about(&mut self, node: Handle, sender: Option<Handle>, entry: &Gossip, now: Now) {
        let down = Flags::PFAIL | Flags::FAIL;
        let is_down = entry.flags.has(down);
        if let Some(sender) = sender {
            if is_down {
                if self.nodes[sender].votes() && self.nodes[node].add_report(sender, now.ms) {
                    let text = format!(
                        "Node {} reported node {} as not reachable.",
                        self.name(sender),
                        self.name(node)
                    );
                    self.outputs.say(Level::Verbose, text);
                }
                self.mark_failed_if_agreed(node, now);
            } else if self.nodes[node].remove_report(sender) {
                let text =
                    format!("Node {} reported node {} is back online.", self.name(sender), self.name(node));
                self.outputs.say(Level::Verbose, text);
            }
        }
        let known = &self.nodes[node];
        if !is_down && known.is_normal() && known.ping_sent.is_none() && known.reports.is_empty() {
            self.learn_pong(node, entry.pong_received_s, now);
        }
        let known = &self.nodes[node];
        if known.flags.has(down) && !is_down && !entry.flags.has(Flags::NOADDR) {
            let (tcp, tls) = self.ports(entry.port, entry.other_port);
            self.move_to(node, entry.ip.clone(), (tcp, tls, entry.bus_port), now);
        }
    }

    /// Another node had an answer later than this one, so this one need not ask.
    fn learn_pong(&mut self, node: Handle, received_s: u32, now: Now) {
        let received_ms = u64::from(received_s) * 1000;
        if received_ms == 0 || received_ms > now.unix_ms + CLOCK_TOLERANCE_MS {
            return;
        }
        let moment = Ms(now.ms.0.saturating_sub(now.unix_ms.saturating_sub(received_ms)));
        let known = &mut self.nodes[node];
        known.pong_received = known.pong_received.max(Some(moment));
    }

    fn gossip_about_unknown(&mut self, sender: Option<Handle>, entry: &Gossip, now: Now) {
        let is_wanted = sender.is_some()
            && !entry.flags.has(Flags::NOADDR)
            && !self.forgotten.is_banned(&entry.id, now.ms);
        if !is_wanted {
            return;
        }
        let shard = self.new_id();
        // Flags that the sender alone can know of itself are not taken over.
        let flags = entry.flags.without(Flags::MYSELF | Flags::HANDSHAKE | Flags::MEET);
        let mut node = Node::new(entry.id, shard, flags, now.ms);
        let address = node.address_mut();
        address.ip = entry.ip.clone();
        (address.tcp_port, address.tls_port) = self.ports(entry.port, entry.other_port);
        address.bus_port = entry.bus_port;
        if self.nodes.add(node).is_some() {
            self.forgotten.add(&entry.id);
            self.todo.save();
        }
    }

    pub(super) fn read_extensions(&mut self, sender: Handle, extensions: &Extensions, now: Now) {
        for (id, ttl_s) in &extensions.forgotten {
            let Some(node) = self.nodes.find(id) else { continue };
            if node == self.nodes.me || self.nodes.my().primary == Some(node) || node == sender {
                continue;
            }
            if self.forgotten.is_taken_back(id, *ttl_s, now.ms) {
                continue;
            }
            self.forgotten.forget(*id, *ttl_s, now.ms);
            self.remove_node(node, now);
        }
        if !announces(extensions, &self.nodes[sender].address) {
            announce(extensions, self.nodes[sender].address_mut());
            self.todo.save();
        }
        let primary = self.nodes[sender].primary.unwrap_or(sender);
        let shard = extensions.shard.unwrap_or(self.nodes[primary].shard);
        self.change().move_to_shard(sender, shard);
    }
}

/// Returns whether an address agrees with the extensions that its node announces.
fn announces(extensions: &Extensions, address: &Address) -> bool {
    let said = [
        &extensions.hostname,
        &extensions.human_name,
        &extensions.availability_zone,
        &extensions.client_ipv4,
        &extensions.client_ipv6,
    ];
    let known = [
        &address.hostname,
        &address.human_name,
        &address.availability_zone,
        &address.client_ipv4,
        &address.client_ipv6,
    ];
    said == known
        && (extensions.client_port, extensions.client_tls_port)
            == (address.client_tcp_port, address.client_tls_port)
}

fn announce(extensions: &Extensions, address: &mut Address) {
    address.hostname.clone_from(&extensions.hostname);
    address.human_name.clone_from(&extensions.human_name);
    address.availability_zone.clone_from(&extensions.availability_zone);
    address.client_ipv4.clone_from(&extensions.client_ipv4);
    address.client_ipv6.clone_from(&extensions.client_ipv6);
    address.client_tcp_port = extensions.client_port;
    address.client_tls_port = extensions.client_tls_port;
}
