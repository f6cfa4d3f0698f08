//! Host and port by which a node is named to clients.

use isotherm_cluster::Slot;
use isotherm_cluster::topology::Node;
use isotherm_cluster::topology::replies::{Asker, Endpoint};
use std::io::Write;

use isotherm_config::{Config, Id, id};
use isotherm_node::session::{ClientShared, Transport};

/// Returns how a client is connected and which endpoint type is preferred, as far as that decides on the name
/// that a node is shown by.
pub fn asker_of(client: &ClientShared, config: &Config) -> Asker {
    const TYPE: Id = id("cluster-preferred-endpoint-type");
    let endpoint = match config.number(TYPE) {
        0 => Endpoint::Ip,
        1 => Endpoint::Hostname,
        _ => Endpoint::Unknown,
    };
    let is_tls = client.transport == Transport::Tls;
    Asker { is_ipv6: !client.is_unix() && client.addr.starts_with('['), is_tls, endpoint }
}

/// `MOVED 3999 127.0.0.1:6381`; `word` is MOVED or ASK.
pub fn write_redirection(out: &mut Vec<u8>, word: &str, slot: Slot, node: &Node, asker: Asker) {
    let (host, port) = (asker.host(node), node.address.client_port(asker.is_tls));
    write!(out, "{word} {} {host}:{port}", slot.get()).expect("there is memory");
}
