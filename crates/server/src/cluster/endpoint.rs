//! How a node is named to clients: its host and its port.

use isotherm_cluster::Slot;
use isotherm_cluster::topology::{Address, Node};
use std::io::Write;

use crate::config::{Config, Id, id};
use crate::session::ClientShared;

/// `cluster-preferred-endpoint-type`
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Preferred {
    Ip,
    Hostname,
    Unknown,
}

impl Preferred {
    pub fn of(config: &Config) -> Preferred {
        const TYPE: Id = id("cluster-preferred-endpoint-type");
        match config.number(TYPE) {
            0 => Preferred::Ip,
            1 => Preferred::Hostname,
            _ => Preferred::Unknown,
        }
    }
}

/// How a client is connected, as far as it decides on what a node is called.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct Via {
    pub is_ipv6: bool,
    pub is_tls: bool,
}

impl Via {
    pub fn of(client: &ClientShared) -> Via {
        let is_ipv6 = !client.is_unix && client.addr.starts_with('[');
        Via { is_ipv6, is_tls: false }
    }

    pub fn ip(self, address: &Address) -> &str {
        let own = if self.is_ipv6 { &address.client_ipv6 } else { &address.client_ipv4 };
        if own.is_empty() { &address.ip } else { own }
    }

    pub fn port(self, address: &Address) -> u16 {
        let (own, usual) = match self.is_tls {
            true => (address.client_tls_port, address.tls_port),
            false => (address.client_tcp_port, address.tcp_port),
        };
        if own > 0 { own } else { usual }
    }

    /// What stands in front of the port.
    pub fn host(self, address: &Address, preferred: Preferred) -> &str {
        match preferred {
            Preferred::Ip => self.ip(address),
            Preferred::Hostname if address.hostname.is_empty() => "?",
            Preferred::Hostname => &address.hostname,
            Preferred::Unknown => "",
        }
    }

    /// `MOVED 3999 127.0.0.1:6381`; `word` is MOVED or ASK.
    pub fn write_redirection(
        self,
        out: &mut Vec<u8>,
        word: &str,
        slot: Slot,
        node: &Node,
        preferred: Preferred,
    ) {
        let (host, port) = (self.host(&node.address, preferred), self.port(&node.address));
        write!(out, "{word} {} {host}:{port}", slot.get()).expect("there is memory");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_preferred() {
        let mut address = Address { ip: "10.0.0.1".into(), tcp_port: 7000, ..Address::default() };
        let via = Via::default();
        assert_eq!(via.host(&address, Preferred::Ip), "10.0.0.1");
        assert_eq!(via.host(&address, Preferred::Hostname), "?");
        assert_eq!(via.host(&address, Preferred::Unknown), "");
        address.hostname = "a.example".into();
        address.client_ipv6 = "::2".into();
        address.client_tcp_port = 17000;
        assert_eq!(via.host(&address, Preferred::Hostname), "a.example");
        let v6 = Via { is_ipv6: true, is_tls: false };
        assert_eq!((v6.host(&address, Preferred::Ip), v6.port(&address)), ("::2", 17000));
        assert_eq!(via.host(&address, Preferred::Ip), "10.0.0.1");
    }
}
