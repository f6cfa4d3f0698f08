//! Where a request is to run: here, or which error sends its client elsewhere.

use isotherm_cluster::Slot;

use crate::cluster::endpoint::{Preferred, Via};
use crate::node::Node;
use crate::session::ClientShared;

pub const DOWN: &str = "CLUSTERDOWN The cluster is down";
pub const UNBOUND: &str = "CLUSTERDOWN Hash slot not served";

/// The error of a client that has waited for a key of a slot that is another node's.
pub fn redirection_of(node: &Node, slot: Slot, client: &ClientShared) -> Vec<u8> {
    let topology = node.cluster.get().map(|member| member.topologies.newest().1);
    match topology.as_ref().and_then(|topology| topology.owner(slot)) {
        None => UNBOUND.into(),
        Some(owner) => {
            let mut text = Vec::new();
            let preferred = Preferred::of(&node.config);
            Via::of(client).write_redirection(&mut text, "MOVED", slot, owner, preferred);
            text
        }
    }
}
