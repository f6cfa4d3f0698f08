//! Words about the cluster bus: packets that are ignored, connections that are not made again, or are closed.

use isotherm_cluster::NodeId;
use isotherm_cluster::machine::Request;
use isotherm_resp::errors;
use isotherm_stdx::parse_i64;

use super::{AdminCall, is_on};

pub fn drop_packets(call: &mut AdminCall<'_>) {
    match parse_i64(call.args.get(2)) {
        Some(kind) => {
            call.node.debug.dropped_packets.set(kind);
            configured(call);
        }
        None => call.reply.error(errors::NOT_AN_INTEGER),
    }
}

pub fn close_on_drop(call: &mut AdminCall<'_>) {
    call.node.debug.closes_links_on_drop.set(is_on(call.args.get(2)));
    configured(call);
}

pub fn disable_random_ping(call: &mut AdminCall<'_>) {
    call.node.debug.no_random_ping.set(is_on(call.args.get(2)));
    configured(call);
}

pub fn disable_reconnection(call: &mut AdminCall<'_>) {
    call.node.debug.no_reconnection.set(is_on(call.args.get(2)));
    configured(call);
}

fn configured(call: &mut AdminCall<'_>) {
    if let Some(member) = call.node.cluster.get() {
        member.bus.configured(false);
    }
    call.reply.ok();
}

/// DEBUG CLUSTERLINK KILL <to|from|all> <node-id>
pub fn kill_links(call: &mut AdminCall<'_>) {
    if !call.args.get(2).eq_ignore_ascii_case(b"kill") {
        return call.reply.error(errors::subcommand_syntax(call.args));
    }
    let Some(member) = call.node.cluster.get() else {
        return call.reply.error("ERR Debug option only available for cluster mode enabled setup!");
    };
    let id = call.args.get(4);
    let (_, topology) = member.topologies.newest();
    let Some(node) = NodeId::parse(id).filter(|id| topology.find(id).is_some()) else {
        return call.reply.error(errors::with_bytes("ERR Unknown node ", id, ""));
    };
    if node == topology.me().id {
        return call.reply.error("ERR Cannot free cluster link(s) to myself");
    }
    let (to, from) = match call.args.get(3).to_ascii_lowercase().as_slice() {
        b"to" => (true, false),
        b"from" => (false, true),
        b"all" => (true, true),
        _ => return call.reply.error(errors::subcommand_syntax(call.args)),
    };
    member.bus.order(Request::KillLinks { node, to, from });
    call.reply.ok();
}
