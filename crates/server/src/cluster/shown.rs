//! Replies that show the topology, ready-made: the same bytes for all clients that ask in the same way, until it has changed.
//!
//! A topology is published ten times a second, since times of pings are in it; CLUSTER SLOTS is made anew only where something that it
//! shows is another. So is each of the others with each topology, and only if a client asks.

use isotherm_cluster::Flags;
use isotherm_cluster::topology::replies::{self, Asker};
use isotherm_cluster::topology::{Node, Topology};
use isotherm_resp::{Protocol, Reply};
use std::sync::{Arc, Mutex, PoisonError};

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Kind {
    Slots,
    Shards,
    Nodes,
}

struct Made {
    kind: Kind,
    asker: Asker,
    proto: Protocol,
    topology: Arc<Topology>,
    bytes: Arc<[u8]>,
}

/// At most one for each kind and way of asking.
#[derive(Default)]
pub struct Shown(Mutex<Vec<Made>>);

impl Shown {
    /// The reply in the protocol.
    pub fn get(&self, kind: Kind, topology: &Arc<Topology>, asker: Asker, proto: Protocol) -> Arc<[u8]> {
        let is_it = |made: &&mut Made| made.kind == kind && made.asker == asker && made.proto == proto;
        let mut all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(made) = all.iter_mut().find(is_it) {
            if !shows_the_same(kind, &made.topology, topology) {
                made.bytes = make(kind, topology, asker, proto);
            }
            // It is compared with the newest next time, which shares more.
            made.topology = Arc::clone(topology);
            return Arc::clone(&made.bytes);
        }
        let bytes = make(kind, topology, asker, proto);
        let topology = Arc::clone(topology);
        all.push(Made { kind, asker, proto, topology, bytes: Arc::clone(&bytes) });
        bytes
    }

    /// What they take.
    pub fn memory_bytes(&self) -> usize {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).iter().map(|made| made.bytes.len()).sum()
    }
}

fn make(kind: Kind, topology: &Topology, asker: Asker, proto: Protocol) -> Arc<[u8]> {
    let mut reply = Reply::new(proto);
    match kind {
        Kind::Slots => replies::slots(topology, asker, &mut reply),
        Kind::Shards => replies::shards(topology, asker, &mut reply),
        Kind::Nodes => reply.verbatim("txt", replies::nodes(topology, asker).as_bytes()),
    }
    reply.out.into()
}

fn shows_the_same(kind: Kind, before: &Arc<Topology>, now: &Arc<Topology>) -> bool {
    if Arc::ptr_eq(before, now) {
        return true;
    }
    let same = |(a, b): (&Node, &Node)| {
        let is_shown = |node: &Node| (node.flags.has(Flags::FAIL), node.offset != 0);
        a.id == b.id && a.primary == b.primary && a.address == b.address && is_shown(a) == is_shown(b)
    };
    kind == Kind::Slots
        && before.nodes.len() == now.nodes.len()
        && (Arc::ptr_eq(&before.owners, &now.owners) || before.owners == now.owners)
        && before.nodes.iter().zip(&now.nodes).all(same)
}
