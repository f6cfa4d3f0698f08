//! The section Cluster Info, and the reply to CLUSTER INFO.

use isotherm_cluster::topology::info;
use std::fmt::Write;

use isotherm_node::Node;

/// Returns the text of CLUSTER INFO; `None` if the node is not a member of a cluster.
pub fn cluster_info(node: &Node) -> Option<String> {
    let member = node.cluster.get()?;
    let (_, topology) = member.topologies.newest();
    let mut text = info::info(&topology, &member.bus.counts());
    let status = if member.bus.is_saved() { "ok" } else { "err" };
    let (saved, invalid) = (member.bus.saved_unix_s(), member.bus.invalid_packets());
    let cpu_us = member.bus.cpu_us();
    // COMPAT(cluster): CLUSTER INFO and INFO also have `cluster_config_save_status`, `cluster_config_last_save_time`,
    // `cluster_bus_invalid_packets` and `cluster_bus_cpu_usec`. Why: a disk that does not take nodes.conf, a sender of nonsense, and
    // what the thread of the bus costs are to be seen.
    write!(
        text,
        "cluster_config_save_status:{status}\r\ncluster_config_last_save_time:{saved}\r\n\
         cluster_bus_invalid_packets:{invalid}\r\ncluster_bus_cpu_usec:{cpu_us}\r\n"
    )
    .expect("a text takes all");
    Some(text)
}
