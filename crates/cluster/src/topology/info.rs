//! The lines of CLUSTER INFO: a topology in figures, and what has gone over the bus.

use super::{Node, State, Topology};
use crate::Flags;
use crate::wire::Type;

/// Messages and bytes of one direction, from the start on.
#[derive(Clone, Default, Debug)]
pub struct Traffic {
    messages: [u64; Type::ALL.len()],
    bytes: u64,
    pubsub_bytes: u64,
    module_bytes: u64,
}

impl Traffic {
    /// A message that is not read to its end counts too; one whose type is not known does not.
    pub fn count(&mut self, kind: Type, bytes: usize) {
        let bytes = bytes as u64;
        self.messages[usize::from(kind.number())] += 1;
        self.bytes += bytes;
        match kind {
            Type::Publish | Type::PublishShard => self.pubsub_bytes += bytes,
            Type::Module => self.module_bytes += bytes,
            _ => {}
        }
    }
}

/// Counters of the bus thread.
#[derive(Clone, Default, Debug)]
pub struct Counts {
    pub sent: Traffic,
    pub received: Traffic,
    /// Links that were closed for what waited to be sent on them.
    pub links_over_limit: u64,
}

/// Names and values of the reply to CLUSTER INFO.
pub type Lines = Vec<(String, String)>;

pub fn lines(topology: &Topology, counts: &Counts) -> Lines {
    let mut out = Lines::new();
    let state = if topology.state == State::Ok { "ok" } else { "fail" };
    push(&mut out, "cluster_state", state);
    push_slots(topology, &mut out);
    push_failures(topology, &mut out);
    push(&mut out, "cluster_known_nodes", topology.nodes.len());
    push(&mut out, "cluster_size", topology.size);
    push(&mut out, "cluster_current_epoch", topology.current_epoch);
    push(&mut out, "cluster_my_epoch", topology.epoch_of(topology.me()));
    push_messages(&counts.sent, "sent", &mut out);
    push_messages(&counts.received, "received", &mut out);
    push(&mut out, "cluster_stats_bytes_sent", counts.sent.bytes);
    push(&mut out, "cluster_stats_bytes_received", counts.received.bytes);
    push(&mut out, "cluster_stats_pubsub_bytes_sent", counts.sent.pubsub_bytes);
    push(&mut out, "cluster_stats_pubsub_bytes_received", counts.received.pubsub_bytes);
    push(&mut out, "cluster_stats_module_bytes_sent", counts.sent.module_bytes);
    push(&mut out, "cluster_stats_module_bytes_received", counts.received.module_bytes);
    push(&mut out, "total_cluster_links_buffer_limit_exceeded", counts.links_over_limit);
    out
}

/// A node that has failed is not in doubt any more.
fn push_slots(topology: &Topology, out: &mut Lines) {
    let slots = |counts: &dyn Fn(Flags) -> bool| -> usize {
        topology.nodes.iter().filter(|node| counts(node.flags)).map(|node| node.slots.len()).sum()
    };
    let failed = |flags: Flags| flags.has(Flags::FAIL);
    let in_doubt = |flags: Flags| !failed(flags) && flags.has(Flags::PFAIL);
    push(out, "cluster_slots_assigned", slots(&|_| true));
    push(out, "cluster_slots_ok", slots(&|flags| !failed(flags) && !in_doubt(flags)));
    push(out, "cluster_slots_pfail", slots(&in_doubt));
    push(out, "cluster_slots_fail", slots(&failed));
}

fn push_failures(topology: &Topology, out: &mut Lines) {
    let is_voter = |node: &&Node| node.flags.has(Flags::PRIMARY) && !node.slots.is_empty();
    let with = |flag| topology.nodes.iter().filter(move |node| node.flags.has(flag));
    push(out, "cluster_nodes_pfail", with(Flags::PFAIL).count());
    push(out, "cluster_nodes_fail", with(Flags::FAIL).count());
    push(out, "cluster_voting_nodes_pfail", with(Flags::PFAIL).filter(is_voter).count());
    push(out, "cluster_voting_nodes_fail", with(Flags::FAIL).filter(is_voter).count());
}

fn push_messages(traffic: &Traffic, direction: &str, out: &mut Lines) {
    for (kind, count) in Type::ALL.iter().zip(traffic.messages).filter(|(_, count)| *count > 0) {
        push(out, &format!("cluster_stats_messages_{}_{direction}", kind.name()), count);
    }
    let all: u64 = traffic.messages.iter().sum();
    push(out, &format!("cluster_stats_messages_{direction}"), all);
}

fn push(out: &mut Lines, name: &str, value: impl std::fmt::Display) {
    out.push((name.to_string(), value.to_string()));
}
