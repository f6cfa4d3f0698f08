//! CLUSTER LINKS: the connections of the bus, and what waits in their queues.

use isotherm_cluster::machine::{LinkId, LinkView};
use isotherm_resp::Reply;
use std::collections::BTreeMap;

use super::connection::BusConnection;

pub fn write(reply: &mut Reply, links: &[LinkView], connections: &BTreeMap<LinkId, Box<BusConnection>>) {
    reply.array(links.len());
    for link in links {
        let connection = connections.get(&link.link);
        let bytes = connection.map_or(0, |connection| connection.queued_bytes()) as i64;
        let is_pending = connection.is_some_and(|connection| connection.queued_bytes() > 0);
        reply.map(6);
        reply.bulk(b"direction");
        reply.bulk(if link.is_inbound { b"from" } else { b"to" });
        reply.bulk(b"node");
        reply.bulk(link.node.as_bytes());
        reply.bulk(b"create-time");
        reply.integer(link.created_unix_ms as i64);
        reply.bulk(b"events");
        reply.bulk(if is_pending { b"rw" } else { b"r" });
        reply.bulk(b"send-buffer-allocated");
        reply.integer(bytes);
        reply.bulk(b"send-buffer-used");
        reply.integer(bytes);
    }
}
