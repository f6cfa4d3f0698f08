//! Replies to clients about a topology: CLUSTER SLOTS, CLUSTER SHARDS and the lines of CLUSTER NODES.
//!
//! ```text
//!   SLOTS    [[first, last, NODE, NODE ...] ...]            by slot; the owner, then replicas that have data, by id
//!            NODE: [endpoint, port, id, {what the endpoint does not say}]
//!   SHARDS   [{slots: [first, last ...], nodes: [{...} ...], id} ...]       by id; a shard's primary, then its replicas by id
//!   NODES    a line of nodes.conf for each, without what only the file has
//! ```
//! The bytes are Valkey's but for the order of shards and lines, which there is that of a hash table.

use super::{Node, NodeIndex, Topology};
use crate::conf::{self, Line, Reader, Slots};
use crate::{Flags, NodeId, Slot, SlotRanges};
use isotherm_resp::Reply;
use std::collections::BTreeMap;

/// `cluster-preferred-endpoint-type`
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub enum Endpoint {
    #[default]
    Ip,
    Hostname,
    Unknown,
}

/// Properties of a client that decide how nodes are named to it: its connection, and the preferred endpoint
/// type.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct Asker {
    pub is_ipv6: bool,
    pub is_tls: bool,
    pub endpoint: Endpoint,
}

/// The reply to CLUSTER SLOTS.
pub fn slots(topology: &Topology, asker: Asker, reply: &mut Reply) {
    let replicas = topology.replicas();
    let runs = topology.runs();
    reply.array(runs.len());
    for (owner, first, last) in runs {
        let mut nodes = Reply::new(reply.proto);
        let count = slots_nodes(topology, owner, &replicas, asker, &mut nodes);
        reply.array(2 + count);
        reply.integer(i64::from(first.get()));
        reply.integer(i64::from(last.get()));
        reply.raw(&nodes.out);
    }
}

/// Writes the nodes of a run: its owner, and those replicas of the owner that have data. Returns the number
/// of nodes.
pub(super) fn slots_nodes(
    topology: &Topology,
    owner: NodeIndex,
    replicas: &[Vec<NodeIndex>],
    asker: Asker,
    reply: &mut Reply,
) -> usize {
    let has_data = |node: &&Node| !node.flags.has(Flags::FAIL) && node.offset != 0;
    slots_node(topology.node(owner), asker, reply);
    let replicas = replicas[usize::from(owner.0)].iter().map(|index| topology.node(*index));
    1 + replicas.filter(has_data).map(|node| slots_node(node, asker, reply)).count()
}

fn slots_node(node: &Node, asker: Asker, reply: &mut Reply) {
    let address = &node.address;
    reply.array(4);
    match asker.endpoint {
        Endpoint::Unknown => reply.null(),
        _ => text(reply, asker.host(node)),
    }
    reply.integer(i64::from(address.client_port(asker.is_tls)));
    reply.bulk(node.id.as_bytes());
    let ip = asker.endpoint != Endpoint::Ip;
    let hostname = asker.endpoint != Endpoint::Hostname && !address.hostname.is_empty();
    let rest = [
        (ip, "ip", address.client_ip(asker.is_ipv6)),
        (hostname, "hostname", &address.hostname),
        (!address.availability_zone.is_empty(), "availability-zone", &address.availability_zone),
    ];
    reply.map(rest.iter().filter(|(is_shown, ..)| *is_shown).count());
    for (_, name, value) in rest.iter().filter(|(is_shown, ..)| *is_shown) {
        text(reply, name);
        text(reply, value);
    }
}

/// The reply to CLUSTER SHARDS.
pub fn shards(topology: &Topology, asker: Asker, reply: &mut Reply) {
    let shards = by_shard(topology);
    reply.array(shards.len());
    for (id, nodes) in shards {
        shard(topology, &id, &nodes, asker, reply, |owner, reply| match owner {
            Some(owner) => slot_ranges(&topology.node(owner).slots, reply),
            None => reply.array(0),
        });
    }
}

/// A shard's primary, then its replicas by id. A node that is met only is in no shard yet.
pub(super) fn by_shard(topology: &Topology) -> BTreeMap<NodeId, Vec<NodeIndex>> {
    let mut shards: BTreeMap<NodeId, Vec<NodeIndex>> = BTreeMap::new();
    for (at, node) in topology.nodes.iter().enumerate().filter(|(_, node)| !node.flags.has(Flags::HANDSHAKE))
    {
        shards.entry(node.shard).or_default().push(NodeIndex(at as u16));
    }
    shards.values_mut().for_each(|nodes| {
        nodes.sort_by_key(|index| (topology.node(*index).flags.has(Flags::REPLICA), *index));
    });
    shards
}

/// `slots` writes the ranges of this node: the first of the shard that has any.
pub(super) fn shard(
    topology: &Topology,
    id: &NodeId,
    nodes: &[NodeIndex],
    asker: Asker,
    reply: &mut Reply,
    slots: impl FnOnce(Option<NodeIndex>, &mut Reply),
) {
    let owner = nodes.iter().copied().find(|index| !topology.node(*index).slots.is_empty());
    reply.map(3);
    text(reply, "slots");
    slots(owner, reply);
    text(reply, "nodes");
    reply.array(nodes.len());
    nodes.iter().for_each(|index| shards_node(topology.node(*index), asker, reply));
    text(reply, "id");
    reply.bulk(id.as_bytes());
}

pub(super) fn slot_ranges(slots: &SlotRanges, reply: &mut Reply) {
    let ranges = slots.ranges();
    reply.array(2 * ranges.len());
    for (first, last) in ranges {
        reply.integer(i64::from(first.get()));
        reply.integer(i64::from(last.get()));
    }
}

fn shards_node(node: &Node, asker: Asker, reply: &mut Reply) {
    let address = &node.address;
    let open = reply.defer();
    let mut count = 0;
    let mut pair = |name: &str, value: Shown<'_>| {
        text(reply, name);
        match value {
            Shown::Text(value) => text(reply, value),
            Shown::Number(value) => reply.integer(value),
        }
        count += 1;
    };
    let is_replica = node.flags.has(Flags::REPLICA);
    pair("id", Shown::Text(node.id.as_str()));
    if address.tcp_port != 0 {
        pair("port", Shown::Number(i64::from(address.client_port(false))));
    }
    if address.tls_port != 0 {
        pair("tls-port", Shown::Number(i64::from(address.client_port(true))));
    }
    pair("ip", Shown::Text(address.client_ip(asker.is_ipv6)));
    pair("endpoint", Shown::Text(asker.host(node)));
    if !address.hostname.is_empty() {
        pair("hostname", Shown::Text(&address.hostname));
    }
    pair("role", Shown::Text(if is_replica { "replica" } else { "master" }));
    pair("replication-offset", Shown::Number(node.offset.cast_signed()));
    let health = match node {
        node if node.flags.has(Flags::FAIL) => "fail",
        node if is_replica && node.offset == 0 => "loading",
        _ => "online",
    };
    pair("health", Shown::Text(health));
    if !address.availability_zone.is_empty() {
        pair("availability-zone", Shown::Text(&address.availability_zone));
    }
    reply.close_map(open, count);
}

enum Shown<'v> {
    Text(&'v str),
    Number(i64),
}

/// The reply to CLUSTER NODES, which is a verbatim text: all nodes, also those that are met only.
pub fn nodes(topology: &Topology, asker: Asker) -> String {
    let mut out = String::with_capacity(topology.nodes.len() * 150);
    (0..topology.nodes.len()).for_each(|at| node_line(topology, NodeIndex(at as u16), asker, &mut out));
    out
}

/// A line of it, with its end, which CLUSTER REPLICAS shows without.
pub fn node_line(topology: &Topology, index: NodeIndex, asker: Asker, out: &mut String) {
    line_with(topology, index, Slots::Ranges(&topology.node(index).slots), asker, out);
}

/// `slots`: those of this node.
pub(super) fn line_with(
    topology: &Topology,
    index: NodeIndex,
    slots: Slots<'_>,
    asker: Asker,
    out: &mut String,
) {
    let node = topology.node(index);
    let is_me = index == topology.myself;
    let line = Line {
        id: &node.id,
        address: &node.address,
        shard: Some(&node.shard),
        flags: node.flags,
        primary: node.primary.map(|primary| &topology.node(primary).id),
        ping_sent_ms: node.ping_sent_ms,
        pong_received_ms: node.pong_received_ms,
        config_epoch: topology.epoch_of(node),
        is_connected: node.is_connected,
        slots,
        migrating: if is_me { &topology.migrating } else { &[] },
        importing: if is_me { &topology.importing } else { &[] },
    };
    conf::write_line(&line, Reader::Client { is_tls: asker.is_tls, is_ipv6: asker.is_ipv6 }, out);
}

fn text(reply: &mut Reply, text: &str) {
    reply.bulk(text.as_bytes());
}

impl Asker {
    /// Returns the host part that stands in front of a port, where it is not a null.
    pub fn host(self, node: &Node) -> &str {
        match self.endpoint {
            Endpoint::Ip => node.address.client_ip(self.is_ipv6),
            Endpoint::Hostname if node.address.hostname.is_empty() => "?",
            Endpoint::Hostname => &node.address.hostname,
            Endpoint::Unknown => "",
        }
    }
}

impl Topology {
    /// A replica has its primary's.
    pub fn epoch_of(&self, node: &Node) -> u64 {
        node.primary.map_or(node.config_epoch, |primary| self.node(primary).config_epoch)
    }

    /// Returns the replicas of each node, in the order of the nodes.
    pub(super) fn replicas(&self) -> Vec<Vec<NodeIndex>> {
        let mut replicas = vec![Vec::new(); self.nodes.len()];
        for (at, node) in self.nodes.iter().enumerate() {
            if let Some(primary) = node.primary {
                replicas[usize::from(primary.0)].push(NodeIndex(at as u16));
            }
        }
        replicas
    }

    /// Neighbours of one owner: it, the first and the last of them.
    fn runs(&self) -> Vec<(NodeIndex, Slot, Slot)> {
        let mut runs: Vec<(NodeIndex, Slot, Slot)> = Vec::new();
        for slot in Slot::all() {
            let Some(owner) = self.owners[slot.index()] else { continue };
            match runs.last_mut() {
                Some((last_owner, _, last)) if *last_owner == owner && last.get() + 1 == slot.get() => {
                    *last = slot;
                }
                _ => runs.push((owner, slot, slot)),
            }
        }
        runs
    }
}
