//! The lines of a file to values, or what is wrong with them.
//!
//! ```text
//!   line -> words, as a shell splits them -> 1 `vars` with pairs, or 8 and more of a node: id, address, flags, primary, 4 numbers, slots
//!   address -> parts between commas: ip:port@bus, hostname, name=value ...
//! ```
//! A slot that two lines claim belongs to the first of them, as in Valkey. Numbers are read strictly, where
//! Valkey takes `12x` as 12 and `x` as 0: of a file that is damaged nothing is believed.

use super::write::FLAG_NAMES;
use super::{Conf, ConfError, ConfNode, Defect, FILE_BYTES_MAX, NODES_MAX};
use crate::text::{self, HOSTNAME_BYTES_MAX, IP_BYTES_MAX, LABEL_BYTES_MAX};
use crate::topology::Address;
use crate::{Flags, NodeId, Slot, SlotRanges, SlotSet};
use isotherm_stdx::args_split::{Dialect, args_split};
use std::collections::{BTreeMap, HashMap, HashSet};

/// A node's own slots, one by one, and each open with a node's id: Valkey's bound.
const LINE_BYTES_MAX: usize = 1024 + Slot::COUNT * 128;

/// Longest part of an unreadable line that is shown in the log, in bytes.
const SHOWN_BYTES_MAX: usize = 200;

/// Between a client's port and that of the bus, where a file does not have the latter.
const BUS_PORT_OFFSET: u16 = 10_000;

/// `is_tls`: the bus of this node is (`tls-cluster`), which says what the port of an old file is.
/// A file without a byte is one that was never written, which is for the caller to know.
pub fn read(bytes: &[u8], is_tls: bool) -> Result<Conf, ConfError> {
    let mut reading = Reading { is_tls, ..Reading::default() };
    let mut last: (usize, &[u8]) = (1, b"");
    let error = |(number, line): (usize, &[u8]), defect| {
        let shown = &line[..line.len().min(SHOWN_BYTES_MAX)];
        ConfError { line_number: number, line: String::from_utf8_lossy(shown).into_owned(), defect }
    };
    if bytes.len() > FILE_BYTES_MAX {
        return Err(error(last, Defect::TooLong));
    }
    for (at, line) in bytes.split(|&byte| byte == b'\n').enumerate() {
        if !matches!(line, [] | [0, ..]) {
            last = (at + 1, line);
            reading.line(line).map_err(|defect| error(last, defect))?;
        }
    }
    reading.finish().map_err(|defect| error(last, defect))
}

#[derive(Default)]
struct Reading {
    is_tls: bool,
    nodes: Vec<ConfNode>,
    current_epoch: u64,
    last_vote_epoch: u64,
    forgotten: Vec<NodeId>,
    ids: HashSet<NodeId>,
    taken: SlotSet,
    has_myself: bool,
}

impl Reading {
    fn line(&mut self, line: &[u8]) -> Result<(), Defect> {
        if line.len() > LINE_BYTES_MAX {
            return Err(Defect::TooLong);
        }
        let words = args_split(line, Dialect::File).map_err(|_| Defect::UnbalancedQuotes)?;
        match words.first() {
            // Valkey ends on a line of blanks.
            None => Err(Defect::TooFewWords),
            Some(first) if first.eq_ignore_ascii_case(b"vars") => self.variables(&words[1..]),
            Some(_) => self.node(&words),
        }
    }

    fn variables(&mut self, words: &[Vec<u8>]) -> Result<(), Defect> {
        let (pairs, []) = words.as_chunks::<2>() else { return Err(Defect::BadVariables) };
        for [name, value] in pairs {
            if name.eq_ignore_ascii_case(b"currentEpoch") {
                self.current_epoch = number(value)?;
            } else if name.eq_ignore_ascii_case(b"lastVoteEpoch") {
                self.last_vote_epoch = number(value)?;
            } else if name.eq_ignore_ascii_case(b"forgotten") {
                let ids = value.split(|byte| *byte == b',').map(NodeId::parse);
                self.forgotten = ids.collect::<Option<_>>().ok_or(Defect::BadVariables)?;
            }
        }
        Ok(())
    }

    fn node(&mut self, words: &[Vec<u8>]) -> Result<(), Defect> {
        let Some(([id, address, flags, primary, ping, pong, epoch, connected], slots)) =
            words.split_first_chunk::<8>()
        else {
            return Err(Defect::TooFewWords);
        };
        let id = NodeId::parse(id).ok_or(Defect::BadId)?;
        if !self.ids.insert(id) {
            return Err(Defect::DuplicateId);
        }
        if self.nodes.len() == NODES_MAX {
            return Err(Defect::TooManyNodes);
        }
        let (address, shard) = read_address(address, self.is_tls)?;
        let mut node = ConfNode {
            id,
            address,
            shard,
            flags: read_flags(flags)?,
            primary: read_primary(primary)?,
            ping_sent_ms: number(ping)?,
            pong_received_ms: number(pong)?,
            config_epoch: number(epoch)?,
            is_connected: connected == b"connected",
            slots: SlotRanges::default(),
            migrating: Vec::new(),
            importing: Vec::new(),
        };
        if node.flags.has(Flags::MYSELF) && std::mem::replace(&mut self.has_myself, true) {
            return Err(Defect::TwoMyself);
        }
        self.slots(&mut node, slots)?;
        self.nodes.push(node);
        Ok(())
    }

    fn slots(&mut self, node: &mut ConfNode, words: &[Vec<u8>]) -> Result<(), Defect> {
        let (mut migrating, mut importing) = (BTreeMap::new(), BTreeMap::new());
        let mut own = SlotSet::new();
        for word in words {
            if let Some(open) = word.strip_prefix(b"[") {
                let (slot, is_importing, id) = read_open_slot(open)?;
                if is_importing { &mut importing } else { &mut migrating }.insert(slot, id);
                continue;
            }
            let (first, last) = match word.iter().position(|&byte| byte == b'-') {
                Some(at) => (slot(&word[..at])?, slot(&word[at + 1..])?),
                None => (slot(word)?, slot(word)?),
            };
            for slot in (first.get()..=last.get()).map(Slot::new) {
                if self.taken.insert(slot) {
                    own.insert(slot);
                }
            }
        }
        node.slots = SlotRanges::from(&own);
        node.migrating = migrating.into_iter().collect();
        node.importing = importing.into_iter().collect();
        Ok(())
    }

    fn finish(mut self) -> Result<Conf, Defect> {
        if !self.has_myself {
            return Err(Defect::NoMyself);
        }
        self.settle_shards();
        let highest = self.nodes.iter().map(|node| node.config_epoch).max().unwrap_or(0);
        Ok(Conf {
            nodes: self.nodes,
            current_epoch: self.current_epoch.max(highest),
            last_vote_epoch: self.last_vote_epoch,
            forgotten: self.forgotten,
        })
    }

    /// A replica is in its primary's shard, whatever its line says.
    fn settle_shards(&mut self) {
        let shards: HashMap<NodeId, NodeId> =
            self.nodes.iter().filter_map(|node| Some((node.id, node.shard?))).collect();
        for node in &mut self.nodes {
            let of_primary = node.primary.and_then(|primary| shards.get(&primary));
            node.shard = of_primary.copied().or(node.shard);
        }
    }
}

/// Reads an address with its shard, which stands among the fields after it.
fn read_address(word: &[u8], is_tls: bool) -> Result<(Address, Option<NodeId>), Defect> {
    let mut parts = word.split(|&byte| byte == b',');
    let place = parts.next().unwrap_or_default();
    let hostname = parts.next().unwrap_or_default();
    let hostname = text::word(hostname, HOSTNAME_BYTES_MAX).ok_or(Defect::BadHostname)?;
    let mut fields = Fields::default();
    fields.address.hostname = hostname.to_string();
    parts.try_for_each(|part| fields.read(part))?;
    let (ip, port, bus_port) = read_place(place)?;
    let mut address = fields.address;
    address.ip = ip.to_string();
    match (fields.has_tcp_port, fields.has_tls_port) {
        (false, false) if is_tls => address.tls_port = port,
        (false, _) => address.tcp_port = port,
        (true, false) => address.tls_port = port,
        (true, true) => {}
    }
    let client_port = if is_tls { address.tls_port } else { address.tcp_port };
    let usual = || client_port.checked_add(BUS_PORT_OFFSET).ok_or(Defect::BadAddress);
    address.bus_port = bus_port.map_or_else(usual, Ok)?;
    Ok((address, fields.shard))
}

/// `ip:port@bus`, where `@bus` may be missing, and the IP may be empty or have colons.
fn read_place(place: &[u8]) -> Result<(&str, u16, Option<u16>), Defect> {
    let colon = place.iter().rposition(|&byte| byte == b':').ok_or(Defect::BadAddress)?;
    let ip = text::word(&place[..colon], IP_BYTES_MAX).ok_or(Defect::BadAddress)?;
    let ports = &place[colon + 1..];
    let (port, bus_port) = match ports.iter().position(|&byte| byte == b'@') {
        Some(at) => (&ports[..at], Some(read_port(&ports[at + 1..]).ok_or(Defect::BadAddress)?)),
        None => (ports, None),
    };
    Ok((ip, read_port(port).ok_or(Defect::BadAddress)?, bus_port))
}

#[derive(Default)]
struct Fields {
    address: Address,
    shard: Option<NodeId>,
    has_tcp_port: bool,
    has_tls_port: bool,
}

impl Fields {
    /// `name=value`
    fn read(&mut self, part: &[u8]) -> Result<(), Defect> {
        let equals = part.iter().position(|&byte| byte == b'=').ok_or(Defect::BadAuxiliary)?;
        let value = text::word(&part[equals + 1..], LABEL_BYTES_MAX).ok_or(Defect::BadAuxiliary)?;
        let port = || read_port(value.as_bytes()).ok_or(Defect::BadAuxiliary);
        let address = &mut self.address;
        match &part[..equals] {
            b"shard-id" => {
                self.shard = Some(NodeId::parse(value.as_bytes()).ok_or(Defect::BadAuxiliary)?);
            }
            b"nodename" => address.human_name = value.to_string(),
            b"availability-zone" => address.availability_zone = value.to_string(),
            b"tcp-port" => (address.tcp_port, self.has_tcp_port) = (port()?, true),
            b"tls-port" => (address.tls_port, self.has_tls_port) = (port()?, true),
            b"client-tcp-port" => address.client_tcp_port = port()?,
            b"client-tls-port" => address.client_tls_port = port()?,
            b"client-ipv4" => address.client_ipv4 = checked(value, text::is_ipv4)?,
            b"client-ipv6" => address.client_ipv6 = checked(value, text::is_ipv6)?,
            _ => return Err(Defect::UnknownAuxiliary),
        }
        Ok(())
    }
}

fn checked(value: &str, is_address: impl Fn(&str) -> bool) -> Result<String, Defect> {
    if value.is_empty() || is_address(value) { Ok(value.to_string()) } else { Err(Defect::BadAuxiliary) }
}

/// A node without an address is one that has failed.
fn read_flags(word: &[u8]) -> Result<Flags, Defect> {
    let mut flags = Flags::NONE;
    for name in word.split(|&byte| byte == b',') {
        flags.set(read_flag(&name.to_ascii_lowercase()).ok_or(Defect::UnknownFlag)?);
    }
    Ok(flags)
}

fn read_flag(name: &[u8]) -> Option<Flags> {
    match name {
        b"primary" => Some(Flags::PRIMARY),
        b"replica" => Some(Flags::REPLICA),
        b"noaddr" => Some(Flags::NOADDR | Flags::FAIL),
        b"noflags" => Some(Flags::NONE),
        _ => FLAG_NAMES.iter().find(|(_, known)| known.as_bytes() == name).map(|(flag, _)| *flag),
    }
}

fn read_primary(word: &[u8]) -> Result<Option<NodeId>, Defect> {
    match word {
        [b'-', ..] => Ok(None),
        _ => NodeId::parse(word).map(Some).ok_or(Defect::BadId),
    }
}

/// Reads the text after the bracket: `slot->-id]` or `slot-<-id]`.
fn read_open_slot(word: &[u8]) -> Result<(Slot, bool, NodeId), Defect> {
    let dash = word.iter().position(|&byte| byte == b'-').ok_or(Defect::BadSlot)?;
    let slot = slot(&word[..dash])?;
    let (is_importing, id) = match &word[dash..] {
        [b'-', b'>', b'-', id @ .., b']'] => (false, id),
        [b'-', b'<', b'-', id @ .., b']'] => (true, id),
        _ => return Err(Defect::BadSlot),
    };
    Ok((slot, is_importing, NodeId::parse(id).ok_or(Defect::BadId)?))
}

fn slot(text: &[u8]) -> Result<Slot, Defect> {
    let number = digits(text).filter(|&number| number < Slot::COUNT as u64);
    number.map(|number| Slot::new(number as u16)).ok_or(Defect::BadSlot)
}

fn read_port(text: &[u8]) -> Option<u16> {
    digits(text).and_then(|port| u16::try_from(port).ok())
}

fn number(text: &[u8]) -> Result<u64, Defect> {
    digits(text).ok_or(Defect::BadNumber)
}

fn digits(text: &[u8]) -> Option<u64> {
    let text = std::str::from_utf8(text).ok()?;
    text.bytes().all(|byte| byte.is_ascii_digit()).then(|| text.parse().ok())?
}
