//! What the newest topology says: CLUSTER SLOTS, SHARDS, NODES, INFO, REPLICAS, MYID, MYSHARDID.

use isotherm_cluster::NodeId;
use isotherm_cluster::topology::Topology;
use isotherm_commands::Outcome;
use std::sync::Arc;

use super::{AdminCall, fail, no_cluster};

/// Answers from the newest topology; or that there is no cluster.
fn answer(call: &mut AdminCall<'_>, write: impl FnOnce(&mut AdminCall<'_>, &Topology) -> Outcome) -> Outcome {
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
    answer(call, |call, _| fail(call, "ERR not yet"))
}

pub fn shards(call: &mut AdminCall<'_>) -> Outcome {
    answer(call, |call, _| fail(call, "ERR not yet"))
}

pub fn nodes(call: &mut AdminCall<'_>) -> Outcome {
    answer(call, |call, _| fail(call, "ERR not yet"))
}

pub fn info(call: &mut AdminCall<'_>) -> Outcome {
    answer(call, |call, _| fail(call, "ERR not yet"))
}

pub fn replicas(call: &mut AdminCall<'_>) -> Outcome {
    answer(call, |call, _| fail(call, "ERR not yet"))
}
