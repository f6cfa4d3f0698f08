//! Sections Cluster and Cluster Info; the latter is also the reply to CLUSTER INFO.

use super::row::{Lines, Row, family, field, gauge};
use super::snapshot::Snapshot;
use isotherm_cluster::topology::info;

pub const CLUSTER: &[Row] = &[gauge("cluster_enabled", "redis_*", |s| s.node.cluster.is_enabled().into())];

/// Lines of a member of a cluster; elsewhere there are none.
pub const CLUSTER_INFO: &[Row] = &[
    family("*", topology, &[]),
    // COMPAT(cluster): CLUSTER INFO and INFO also have `cluster_config_save_status`,
    // `cluster_config_last_save_time`, `cluster_bus_invalid_packets` and `cluster_bus_cpu_usec`. Why: a disk
    // that does not take nodes.conf, a sender of nonsense, and what the thread of the bus costs are to be
    // seen.
    field("cluster_config_save_status", |s| {
        s.member(|member| if member.bus.is_saved() { "ok" } else { "err" })
    }),
    field("cluster_config_last_save_time", |s| s.member(|member| member.bus.saved_unix_s())),
    field("cluster_bus_invalid_packets", |s| s.member(|member| member.bus.invalid_packets())),
    field("cluster_bus_cpu_usec", |s| s.member(|member| member.bus.cpu_us())),
];

fn topology(s: &Snapshot<'_>) -> Lines {
    let Some(member) = s.node.cluster.get() else { return Lines::new() };
    let (_, topology) = member.topologies.newest();
    info::lines(&topology, &member.bus.counts())
}
