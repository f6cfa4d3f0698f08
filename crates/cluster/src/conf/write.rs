//! A node as a line: of nodes.conf, and of the reply to CLUSTER NODES.
//!
//! ```text
//!                File                                 Client
//!   ip           that of the bus                      for clients of its family, if the node announces one
//!   port         TCP                                  TLS or TCP, as the client came; the announced one, if there is one
//!   behind       ,hostname or `,`, then all fields    ,hostname if there is one
//! ```

use super::{Conf, ConfNode};
use crate::topology::Address;
use crate::{Flags, NodeId, Slot, SlotRanges};
use std::fmt::Write;

/// Recipient of a line.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Reader {
    File,
    Client { is_tls: bool, is_ipv6: bool },
}

/// Node as a line shows it, from a `ConfNode` or from a topology.
pub struct Line<'n> {
    pub id: &'n NodeId,
    pub address: &'n Address,
    pub shard: Option<&'n NodeId>,
    pub flags: Flags,
    pub primary: Option<&'n NodeId>,
    pub ping_sent_ms: u64,
    pub pong_received_ms: u64,
    /// Config epoch of the node; for a replica, the one of its primary.
    pub config_epoch: u64,
    pub is_connected: bool,
    pub slots: Slots<'n>,
    pub migrating: &'n [(Slot, NodeId)],
    pub importing: &'n [(Slot, NodeId)],
}

#[derive(Clone, Copy)]
pub enum Slots<'n> {
    Ranges(&'n SlotRanges),
    /// Ranges that `write_slots` has already written as text.
    Text(&'n str),
}

impl<'n> From<&'n ConfNode> for Line<'n> {
    fn from(node: &'n ConfNode) -> Line<'n> {
        Line {
            id: &node.id,
            address: &node.address,
            shard: node.shard.as_ref(),
            flags: node.flags,
            primary: node.primary.as_ref(),
            ping_sent_ms: node.ping_sent_ms,
            pong_received_ms: node.pong_received_ms,
            config_epoch: node.config_epoch,
            is_connected: node.is_connected,
            slots: Slots::Ranges(&node.slots),
            migrating: &node.migrating,
            importing: &node.importing,
        }
    }
}

/// The file. Nodes that are met only are not part of it.
pub fn write(conf: &Conf) -> String {
    let mut out = String::with_capacity(conf.nodes.len() * 400 + 100);
    for node in conf.nodes.iter().filter(|node| !node.flags.has(Flags::HANDSHAKE)) {
        write_line(&node.into(), Reader::File, &mut out);
    }
    let (current, vote) = (conf.current_epoch, conf.last_vote_epoch);
    put(&mut out, format_args!("vars currentEpoch {current} lastVoteEpoch {vote}"));
    for (at, id) in conf.forgotten.iter().enumerate() {
        put(&mut out, format_args!("{}{id}", if at == 0 { " forgotten " } else { "," }));
    }
    out.push('\n');
    out
}

/// With its end.
pub fn write_line(line: &Line<'_>, reader: Reader, out: &mut String) {
    let address = line.address;
    let (ip, port) = match reader {
        Reader::File => (address.ip.as_str(), address.tcp_port),
        Reader::Client { is_tls, is_ipv6 } => (address.client_ip(is_ipv6), address.client_port(is_tls)),
    };
    put(out, format_args!("{} {ip}:{port}@{}", line.id, address.bus_port));
    if !address.hostname.is_empty() || reader == Reader::File {
        put(out, format_args!(",{}", address.hostname));
    }
    if reader == Reader::File {
        write_auxiliary(line, out);
    }
    out.push(' ');
    write_flags(line.flags, out);
    match line.primary {
        Some(primary) => put(out, format_args!(" {primary}")),
        None => out.push_str(" -"),
    }
    let is_connected = line.is_connected || line.flags.has(Flags::MYSELF);
    let connected = if is_connected { "connected" } else { "disconnected" };
    let (ping, pong, epoch) = (line.ping_sent_ms, line.pong_received_ms, line.config_epoch);
    put(out, format_args!(" {ping} {pong} {epoch} {connected}"));
    match line.slots {
        Slots::Ranges(slots) => write_slots(slots, out),
        Slots::Text(text) => out.push_str(text),
    }
    write_open_slots(line, out);
    out.push('\n');
}

/// The port of `ip:port` is not repeated.
fn write_auxiliary(line: &Line<'_>, out: &mut String) {
    let address = line.address;
    let mut text = |name: &str, value: &str| {
        if !value.is_empty() {
            put(out, format_args!(",{name}={value}"));
        }
    };
    let port = |port: u16| if port == 0 { String::new() } else { port.to_string() };
    text("availability-zone", &address.availability_zone);
    text("client-tls-port", &port(address.client_tls_port));
    text("client-tcp-port", &port(address.client_tcp_port));
    text("client-ipv6", &address.client_ipv6);
    text("client-ipv4", &address.client_ipv4);
    text("tls-port", &address.tls_port.to_string());
    text("nodename", &address.human_name);
    text("shard-id", line.shard.map_or("", NodeId::as_str));
}

pub(super) const FLAG_NAMES: [(Flags, &str); 8] = [
    (Flags::MYSELF, "myself"),
    (Flags::PRIMARY, "master"),
    (Flags::REPLICA, "slave"),
    (Flags::PFAIL, "fail?"),
    (Flags::FAIL, "fail"),
    (Flags::HANDSHAKE, "handshake"),
    (Flags::NOADDR, "noaddr"),
    (Flags::NOFAILOVER, "nofailover"),
];

fn write_flags(flags: Flags, out: &mut String) {
    let start = out.len();
    for (_, name) in FLAG_NAMES.iter().filter(|(flag, _)| flags.has(*flag)) {
        if out.len() > start {
            out.push(',');
        }
        out.push_str(name);
    }
    if out.len() == start {
        out.push_str("noflags");
    }
}

/// A blank in front of each range.
pub fn write_slots(slots: &SlotRanges, out: &mut String) {
    for (first, last) in slots.ranges() {
        put(out, format_args!(" {}", first.get()));
        if first != last {
            put(out, format_args!("-{}", last.get()));
        }
    }
}

/// Writes the open slots in ascending order. A slot that is both migrating and importing is shown as
/// migrating.
fn write_open_slots(line: &Line<'_>, out: &mut String) {
    if !line.flags.has(Flags::MYSELF) || line.migrating.is_empty() && line.importing.is_empty() {
        return;
    }
    let migrating = line.migrating.iter().map(|(slot, id)| (slot.get(), '>', id));
    let importing = line.importing.iter().map(|(slot, id)| (slot.get(), '<', id));
    let mut open: Vec<(u16, char, &NodeId)> = migrating.chain(importing).collect();
    open.sort_by_key(|(slot, way, _)| (*slot, *way == '<'));
    open.dedup_by_key(|(slot, ..)| *slot);
    for (slot, way, id) in open {
        put(out, format_args!(" [{slot}-{way}-{id}]"));
    }
}

fn put(out: &mut String, text: std::fmt::Arguments<'_>) {
    out.write_fmt(text).expect("a String takes all");
}
