//! Settings of the link, from the configuration.

use isotherm_cluster::Flags;
use isotherm_replication::link::Settings;
use std::net::IpAddr;

use isotherm_config::{Id, id};
use isotherm_node::Node;
use isotherm_node::process::version::VALKEY_VERSION;
use isotherm_node::tls;

pub const TIMEOUT: Id = id("repl-timeout");

/// The address of this machine that a primary is connected from, if one is named.
pub fn source(node: &Node) -> Option<IpAddr> {
    const SOURCE: Id = id("bind-source-addr");
    let text = node.config.text(SOURCE);
    std::str::from_utf8(&text).ok()?.parse().ok()
}

/// The id of a replica that would hold an election. A Valkey primary that shuts down chooses one of the
/// replicas that have said theirs, and one with `nofailover` does nothing then.
fn offered_id(node: &Node) -> Option<Vec<u8>> {
    let topology = node.cluster.get()?.topologies.newest().1;
    let me = topology.me();
    (!me.flags.has(Flags::NOFAILOVER)).then(|| me.id.as_str().as_bytes().to_vec())
}

pub fn settings(node: &Node) -> Settings {
    const PASSWORD: Id = id("primaryauth");
    const USER: Id = id("primaryuser");
    const ADDRESS: Id = id("replica-announce-ip");
    const PORT: Id = id("replica-announce-port");
    let config = &node.config;
    let text = |id| Some(config.text(id).to_vec()).filter(|text| !text.is_empty());
    let port = match config.number(PORT) {
        0 if tls::is_for_replication(config) => i64::from(config.tls_port()),
        0 => i64::from(config.port()),
        port => port,
    };
    Settings {
        password: text(PASSWORD).map(|password| (text(USER), password)),
        port: u16::try_from(port).unwrap_or(0),
        address: text(ADDRESS),
        node_id: offered_id(node),
        version: VALKEY_VERSION,
        timeout_ms: config.number(TIMEOUT).unsigned_abs() * 1000,
        hands_over: node.replication.failover.is_in_progress(),
    }
}
