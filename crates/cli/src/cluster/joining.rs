//! Waiting until nodes that were introduced to each other are a cluster.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use super::node::{Line, is_consistent, know_each_other, split_address};
use super::roster::Cluster;
use super::say;
use crate::Fallible;
use crate::connection::resolve;
use crate::terminal::put;

const POLL: Duration = Duration::from_millis(100);
/// Until then a node that cannot be reached is not mentioned.
const PATIENCE: Duration = Duration::from_secs(20);
const PATIENCE_PER_NODE: Duration = Duration::from_millis(150);
const JOIN_MAX: Duration = Duration::from_secs(600);

/// CLUSTER MEET wants an address, not a name.
pub fn meet_request(cluster: &Cluster, at: usize) -> Fallible<String> {
    let node = cluster.node(at);
    let invalid = || format!("Invalid IP address or hostname specified: {}", node.host);
    let found = resolve(&node.host, node.port, cluster.way.dial).map_err(|_| invalid())?;
    let ip = found.first().ok_or_else(invalid)?.ip();
    let mut request = format!("CLUSTER MEET {ip} {}", node.port);
    if node.bus_port != node.port.saturating_add(super::node::BUS_PORT_ABOVE) {
        request += &format!(" {}", node.bus_port);
    }
    Ok(request)
}

// COMPAT(tools): isotherm-cli --cluster create and add-node wait until all nodes know each other, look ten
// times a second, and give up after ten minutes; valkey-cli waits until all agree about slots, looks once a
// second, for ever. Why: a node that is not known yet can neither be followed nor checked, and a script is to
// end.
pub fn wait(cluster: &mut Cluster) -> Fallible {
    say::line("Waiting for the cluster to join");
    let ids: Vec<String> = cluster.members.iter().map(|member| member.node.id.clone()).collect();
    let ids: Vec<&str> = ids.iter().map(String::as_str).collect();
    let begun = Instant::now();
    let patience = PATIENCE + PATIENCE_PER_NODE * ids.len() as u32;
    let (mut dots, mut warned) = (0, begun);
    loop {
        let views = cluster.views()?;
        if is_consistent(&views) && know_each_other(&views, &ids) {
            put("\n");
            return Ok(());
        }
        if begun.elapsed().as_secs() > dots {
            dots = begun.elapsed().as_secs();
            put(".");
        }
        if warned.elapsed() > patience {
            warned = Instant::now();
            warn(cluster, &views);
        }
        if begun.elapsed() > JOIN_MAX {
            return Err("\n[ERR] The nodes do not join.".to_string());
        }
        std::thread::sleep(POLL);
    }
}

fn warn(cluster: &Cluster, views: &[Vec<Line>]) {
    let mut missed: BTreeMap<String, (String, Vec<String>)> = BTreeMap::new();
    for (at, view) in views.iter().enumerate() {
        let unlinked = view.iter().filter(|line| !line.is_myself());
        for line in unlinked.filter(|line| !line.linked || line.node.has_flag("handshake")) {
            let node = &line.node;
            let place = match split_address(&node.address()) {
                Some(_) if node.bus_port > 0 => format!("The port {} of node {}", node.bus_port, node.host),
                _ => format!("Node {}", node.address()),
            };
            missed.entry(node.address()).or_insert((place, Vec::new())).1.push(cluster.name(at));
        }
    }
    if missed.is_empty() {
        return;
    }
    put("\n");
    say::err(format!("Warning: {} node(s) may be unreachable", missed.len()));
    for (place, from) in missed.into_values() {
        say::err(format!(" - {place} may be unreachable from:"));
        from.iter().for_each(|from| say::err(format!("   {from}")));
        say::err(
            "Cluster bus ports must be reachable by every node.\nRemember that cluster bus ports are different \
             from standard instance ports.",
        );
    }
}
