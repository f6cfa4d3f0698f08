//! Commands that report the newest topology: CLUSTER SLOTS, SHARDS, NODES, INFO, REPLICAS, MYID, MYSHARDID.

use isotherm_cluster::topology::{NodeIndex, replies};
use isotherm_cluster::{Flags, NodeId};
use isotherm_commands::Outcome;
use isotherm_resp::errors;
use std::sync::Arc;

use super::{AdminCall, fail, no_cluster};
use crate::admin;
use crate::observe::info::{self, CLUSTER_INFO};
use isotherm_engine::request::slots::endpoint::asker_of;
use isotherm_node::cluster::shown::{Kind, Published};

/// Answers from the newest topology; or that there is no cluster.
fn answer(
    call: &mut AdminCall<'_>,
    write: impl FnOnce(&mut AdminCall<'_>, &Arc<Published>) -> Outcome,
) -> Outcome {
    if call.exec.route.member.is_none() {
        return no_cluster(call);
    }
    call.exec.route.refresh();
    let topology = Arc::clone(call.exec.route.topology());
    write(call, &topology)
}

fn bulk(call: &mut AdminCall<'_>, id: &NodeId) -> Outcome {
    call.reply.bulk(id.as_bytes());
    Outcome::Done
}

pub fn my_id(call: &mut AdminCall<'_>) -> Outcome {
    answer(call, |call, topology| bulk(call, &topology.me().id))
}

pub fn my_shard_id(call: &mut AdminCall<'_>) -> Outcome {
    answer(call, |call, topology| bulk(call, &topology.me().shard))
}

pub fn slots(call: &mut AdminCall<'_>) -> Outcome {
    show(call, Kind::Slots)
}

pub fn shards(call: &mut AdminCall<'_>) -> Outcome {
    show(call, Kind::Shards)
}

pub fn nodes(call: &mut AdminCall<'_>) -> Outcome {
    show(call, Kind::Nodes)
}

fn show(call: &mut AdminCall<'_>, kind: Kind) -> Outcome {
    answer(call, |call, topology| {
        let asker = asker_of(&call.session.shared, &call.node.config);
        call.reply.share(topology.reply(kind, asker, call.reply.proto));
        Outcome::Done
    })
}

pub fn info(call: &mut AdminCall<'_>) -> Outcome {
    let Some(member) = call.node.cluster.get() else { return no_cluster(call) };
    member.bus.await_counts();
    call.reply.verbatim("txt", info::lines(&admin::snapshot(call), CLUSTER_INFO).as_bytes());
    Outcome::Done
}

pub fn replicas(call: &mut AdminCall<'_>) -> Outcome {
    answer(call, |call, topology| {
        let name = call.args.get(2);
        let Some(index) = NodeId::parse(name).and_then(|id| topology.find(&id)) else {
            return fail(call, errors::with_bytes("ERR Unknown node ", name, ""));
        };
        if topology.node(index).flags.has(Flags::REPLICA) {
            return fail(call, "ERR The specified node is not a master");
        }
        let all = (0..topology.nodes.len()).map(|at| NodeIndex(at as u16));
        let replicas: Vec<NodeIndex> = all.filter(|at| topology.node(*at).primary == Some(index)).collect();
        let asker = asker_of(&call.session.shared, &call.node.config);
        call.reply.array(replicas.len());
        for replica in replicas {
            let mut line = String::new();
            replies::node_line(topology, replica, asker, &mut line);
            call.reply.bulk(line.trim_end().as_bytes());
        }
        Outcome::Done
    })
}
