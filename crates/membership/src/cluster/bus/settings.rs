//! The parameters that the bus goes by.

use isotherm_cluster::machine::Settings;
use std::net::IpAddr;

use isotherm_config::{Config, Id, id};
use isotherm_node::Node;
use isotherm_node::tls;
use isotherm_runtime::log::{self, Level};

/// Distance of the bus's port above the clients' port, without `cluster-port`.
pub const BUS_PORT_OFFSET: u16 = 10_000;
/// Limit that `cluster-link-sendbuf-limit 0` stands for here: a link with more bytes to send is broken.
const QUEUE_BYTES_MAX: usize = 64 << 20;

pub fn bus_port(config: &Config) -> u16 {
    const PORT: Id = id("cluster-port");
    match config.number(PORT) as u16 {
        0 => default_port(config).saturating_add(BUS_PORT_OFFSET),
        port => port,
    }
}

/// Returns the port of the clients that connect as the nodes do, with TLS or without.
pub fn default_port(config: &Config) -> u16 {
    if tls::is_for_cluster(config) { config.tls_port() } else { config.port() }
}

/// With what DEBUG has switched. The bus listens where it did at the start, whatever has become of the
/// clients' port.
pub fn read_all(node: &Node, listening_port: u16) -> Settings {
    const ANNOUNCED: Id = id("cluster-announce-bus-port");
    let announced = node.config.number(ANNOUNCED) as u16;
    Settings {
        bus_port: if announced > 0 { announced } else { listening_port },
        dropped_type: node.debug.dropped_packets.get(),
        closes_on_drop: node.debug.closes_links_on_drop.is_on(),
        no_reconnection: node.debug.no_reconnection.is_on(),
        no_random_ping: node.debug.no_random_ping.is_on(),
        ..read(&node.config)
    }
}

pub fn read(config: &Config) -> Settings {
    let text = |id: Id| String::from_utf8_lossy(&config.text(id)).into_owned();
    let port = |id: Id| config.number(id) as u16;
    const ANNOUNCED_PORT: Id = id("cluster-announce-port");
    const ANNOUNCED_TLS_PORT: Id = id("cluster-announce-tls-port");
    const ANNOUNCED_BUS_PORT: Id = id("cluster-announce-bus-port");
    let or = |announced: u16, own: u16| if announced > 0 { announced } else { own };
    Settings {
        node_timeout_ms: config.number(const { id("cluster-node-timeout") }) as u64,
        ping_interval_ms: config.number(const { id("cluster-ping-interval") }) as u64,
        gossip_percent: config.number(const { id("cluster-message-gossip-perc") }) as u64,
        blacklist_ttl_s: config.number(const { id("cluster-blacklist-ttl") }) as u64,
        requires_full_coverage: config.flag(const { id("cluster-require-full-coverage") }),
        allows_replica_migration: config.flag(const { id("cluster-allow-replica-migration") }),
        no_failover: config.flag(const { id("cluster-replica-no-failover") }),
        is_tls: tls::is_for_cluster(config),
        follows_by_tls: tls::is_for_replication(config),
        announced_ip: text(const { id("cluster-announce-ip") }),
        tcp_port: or(port(ANNOUNCED_PORT), config.port()),
        tls_port: or(port(ANNOUNCED_TLS_PORT), config.tls_port()),
        bus_port: or(port(ANNOUNCED_BUS_PORT), bus_port(config)),
        client_tcp_port: port(const { id("cluster-announce-client-port") }),
        client_tls_port: port(const { id("cluster-announce-client-tls-port") }),
        client_ipv4: text(const { id("cluster-announce-client-ipv4") }),
        client_ipv6: text(const { id("cluster-announce-client-ipv6") }),
        hostname: text(const { id("cluster-announce-hostname") }),
        human_name: text(const { id("cluster-announce-human-nodename") }),
        availability_zone: text(const { id("availability-zone") }),
        dropped_type: None,
        closes_on_drop: false,
        no_reconnection: false,
        no_random_ping: false,
        says_debug: log::is_on(Level::Debug),
    }
}

/// The address that connections to other nodes are made from, if one is given.
pub fn source(config: &Config) -> Option<IpAddr> {
    let text = config.text(const { id("bind-source-addr") });
    std::str::from_utf8(&text).ok()?.parse().ok()
}

pub fn queue_bytes_max(config: &Config) -> usize {
    match config.number(const { id("cluster-link-sendbuf-limit") }) {
        0 => QUEUE_BYTES_MAX,
        limit => limit as usize,
    }
}
