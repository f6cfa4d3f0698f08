//! Settings, which may change while the node runs.

use super::node::Node;
use crate::Flags;

/// Number of node timeouts for which a report of a failure counts.
const REPORT_TIMEOUTS: u64 = 2;

#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Settings {
    pub node_timeout_ms: u64,
    /// 0: half of the node timeout.
    pub ping_interval_ms: u64,
    pub gossip_percent: u64,
    pub blacklist_ttl_s: u64,
    pub requires_full_coverage: bool,
    pub allows_replica_migration: bool,
    pub no_failover: bool,
    /// The bus, and therefore the first port of messages, is TLS.
    pub is_tls: bool,
    /// A primary is followed at its port of TLS.
    pub follows_by_tls: bool,
    /// Empty: as others see it.
    pub announced_ip: String,
    pub tcp_port: u16,
    pub tls_port: u16,
    pub bus_port: u16,
    pub client_tcp_port: u16,
    pub client_tls_port: u16,
    pub client_ipv4: String,
    pub client_ipv6: String,
    pub hostname: String,
    pub human_name: String,
    pub availability_zone: String,
    /// DEBUG: packets of this type are ignored; `Some(-2)`: all.
    pub dropped_type: Option<i16>,
    pub closes_on_drop: bool,
    pub no_reconnection: bool,
    pub no_random_ping: bool,
    /// Each ping is worth a line of the log.
    pub says_debug: bool,
}

/// A node whose configuration file says nothing.
impl Default for Settings {
    fn default() -> Settings {
        Settings {
            node_timeout_ms: 15_000,
            ping_interval_ms: 0,
            gossip_percent: 10,
            blacklist_ttl_s: 60,
            requires_full_coverage: true,
            allows_replica_migration: true,
            no_failover: false,
            is_tls: false,
            follows_by_tls: false,
            announced_ip: String::new(),
            tcp_port: 6379,
            tls_port: 0,
            bus_port: 16_379,
            client_tcp_port: 0,
            client_tls_port: 0,
            client_ipv4: String::new(),
            client_ipv6: String::new(),
            hostname: String::new(),
            human_name: String::new(),
            availability_zone: String::new(),
            dropped_type: None,
            closes_on_drop: false,
            no_reconnection: false,
            no_random_ping: false,
            says_debug: false,
        }
    }
}

impl Settings {
    /// A handshake that takes longer has failed.
    pub fn handshake_timeout_ms(&self) -> u64 {
        self.node_timeout_ms.max(1000)
    }

    /// Returns for how long a report of a failure counts.
    pub fn report_valid_ms(&self) -> u64 {
        self.node_timeout_ms.saturating_mul(REPORT_TIMEOUTS)
    }

    pub fn ping_interval_ms(&self) -> u64 {
        if self.ping_interval_ms > 0 { self.ping_interval_ms } else { self.node_timeout_ms / 2 }
    }
}

impl Node {
    /// Brings this node's own entry in line with what is configured. Returns whether that changed it.
    pub fn announce(&mut self, settings: &Settings) -> bool {
        let before = (self.address.clone(), self.flags);
        let address = self.address_mut();
        if !settings.announced_ip.is_empty() {
            address.ip.clone_from(&settings.announced_ip);
        }
        address.tcp_port = settings.tcp_port;
        address.tls_port = settings.tls_port;
        address.bus_port = settings.bus_port;
        address.client_tcp_port = settings.client_tcp_port;
        address.client_tls_port = settings.client_tls_port;
        address.client_ipv4.clone_from(&settings.client_ipv4);
        address.client_ipv6.clone_from(&settings.client_ipv6);
        address.hostname.clone_from(&settings.hostname);
        address.human_name.clone_from(&settings.human_name);
        address.availability_zone.clone_from(&settings.availability_zone);
        self.flags.clear(Flags::NOFAILOVER);
        // This node holds no elections yet. Replicas of the same primary must not count on it.
        if settings.no_failover || self.flags.has(Flags::REPLICA) {
            self.flags.set(Flags::NOFAILOVER);
        }
        self.flags.set(Flags::EXTENSIONS | Flags::LIGHT_PUBLISH | Flags::LIGHT_MODULE);
        before != (self.address.clone(), self.flags)
    }
}
