//! Nodes that have moved: one that answers at its address no more is looked for under the host name that it
//! announces (`cluster-announce-hostname`).
//!
//! ```text
//!   possibly failing, a host name  --Resolve-->   the caller asks for its addresses
//!                                  <--Resolved--
//!   a handshake at each address: the one that is sought names itself    its address is noted
//!                                anything else answers                  nothing follows from that
//! ```
//! A cluster whose nodes have all come back at other addresses finds itself again in this way.

use std::net::IpAddr;

use super::node::Node;
use super::{Handle, Machine, Now, Output};
use crate::{Flags, NodeId};

/// Addresses of one name that are tried.
const ADDRESSES_MAX: usize = 8;
/// Maximum number of questions without an answer: a resolver that hangs is asked no more. One that answers is
/// asked for this number of names in each tick, 160 a second.
pub(super) const QUESTIONS_MAX: usize = 16;

// COMPAT(cluster): A node that does not answer at its address is looked for under the host name that it
// announces, once in a node timeout; Valkey finds it by CLUSTER MEET only. Why: where addresses come with
// each start, all nodes of a cluster may come back at others at once, and none knows one of another then.
/// Asks for the addresses of a node that is not reached.
pub(super) fn look_up(machine: &mut Machine, handle: Handle, now: Now) {
    let interval_ms = machine.settings.handshake_timeout_ms();
    let node = &machine.nodes[handle];
    let is_due = node.looked_up.is_none_or(|at| now.ms.since(at) > interval_ms);
    if !is_due || !node.is_sought_by_name() || machine.questions >= QUESTIONS_MAX {
        return;
    }
    let (id, name) = (node.id, node.address.hostname.clone());
    machine.nodes[handle].looked_up = Some(now.ms);
    machine.questions += 1;
    machine.outputs.push(Output::Resolve { node: id, name });
}

/// Tries the addresses of a node's name.
pub(super) fn resolved(machine: &mut Machine, id: &NodeId, ips: &[IpAddr], now: Now) {
    machine.questions = machine.questions.saturating_sub(1);
    let Some(handle) = machine.nodes.find(id).filter(|node| machine.nodes[*node].is_sought_by_name()) else {
        return;
    };
    for ip in ips.iter().take(ADDRESSES_MAX) {
        seek(machine, handle, ip.to_canonical().to_string(), now);
    }
}

/// Begins a handshake with what answers at an address.
fn seek(machine: &mut Machine, handle: Handle, ip: String, now: Now) {
    let (id, address) = (machine.nodes[handle].id, &machine.nodes[handle].address);
    // Another node has answered at its address, or it never had one: then it is known by its name alone.
    let bus_port = if address.bus_port == 0 { machine.settings.bus_port } else { address.bus_port };
    let is_tried = machine.nodes.iter().any(|(_, node)| {
        (node.is_in_handshake() || node.id == id)
            && (node.address.ip == ip && node.address.bus_port == bus_port)
    });
    if is_tried {
        return;
    }
    let mut node = Node::new(machine.new_id(), machine.new_id(), Flags::HANDSHAKE, now.ms);
    node.sought = Some(id);
    let address = node.address_mut();
    (address.ip, address.bus_port) = (ip, bus_port);
    // Without room in the table it is tried again later.
    let _ = machine.nodes.add(node);
}

impl Node {
    fn is_sought_by_name(&self) -> bool {
        self.flags.has(Flags::PFAIL | Flags::FAIL | Flags::NOADDR)
            && !self.flags.has(Flags::MYSELF | Flags::HANDSHAKE)
            && !self.address.hostname.is_empty()
    }
}
