//! Lines of INFO about replication.

use isotherm_replication::ReplId;
use isotherm_replication::link::Phase;
use std::borrow::Cow;
use std::sync::atomic::Ordering::Relaxed;

use isotherm_config::{Id, id};
use isotherm_node::Node;
use isotherm_node::replication::primary::ReplicaShared;
use isotherm_node::replication::state::Upstream;
use isotherm_runtime::time::steady_now;

/// A name, and what it stands for.
type Line = (Cow<'static, str>, String);

pub fn lines(node: &Node) -> Vec<Line> {
    let upstream = node.replication.upstream();
    let mut lines: Vec<Line> =
        vec![("role".into(), if upstream.is_some() { "slave" } else { "master" }.to_string())];
    if let Some(upstream) = &upstream {
        lines.extend(of_replica(node, upstream));
    }
    lines.extend(of_replicas(node));
    lines.extend(of_history(node));
    lines
}

/// The primary that is followed.
fn of_replica(node: &Node, upstream: &Upstream) -> Vec<Line> {
    let view = &node.replication.link;
    let phase = view.phase();
    let is_up = phase == Phase::Connected;
    let has_position = node.replication.state().has_position;
    let applied = if has_position { node.log.end().0 } else { 1 };
    let read = if has_position { view.read_offset.load(Relaxed).max(applied) } else { 1 };
    let mut lines: Vec<Line> = vec![
        ("master_host".into(), upstream.host.clone()),
        ("master_port".into(), upstream.port.to_string()),
        ("master_link_status".into(), if is_up { "up" } else { "down" }.into()),
        ("master_last_io_seconds_ago".into(), if is_up { view.silent_seconds() } else { -1 }.to_string()),
        ("master_sync_in_progress".into(), u8::from(phase == Phase::Transfer).to_string()),
        ("slave_read_repl_offset".into(), read.to_string()),
        ("slave_repl_offset".into(), applied.to_string()),
        ("replicas_repl_buffer_size".into(), "0".into()),
        ("replicas_repl_buffer_peak".into(), "0".into()),
    ];
    if phase == Phase::Transfer {
        let (total, read) = (view.sync_bytes.load(Relaxed), view.sync_read_bytes.load(Relaxed));
        let percent = if total == 0 { 0.0 } else { read as f64 / total as f64 * 100.0 };
        lines.extend([
            ("master_sync_total_bytes".into(), total.to_string()),
            ("master_sync_read_bytes".into(), read.to_string()),
            ("master_sync_left_bytes".into(), (total - read).to_string()),
            ("master_sync_perc".into(), format!("{percent:.2}")),
            ("master_sync_last_io_seconds_ago".into(), view.silent_seconds().to_string()),
        ]);
    }
    if !is_up {
        let since = view.down_seconds().unwrap_or(-1);
        lines.push(("master_link_down_since_seconds".into(), since.to_string()));
        if view.refuses_empty.load(Relaxed) {
            lines.push(("master_refused".into(), "empty".into()));
        } else if view.lacks_memory.load(Relaxed) {
            lines.push(("master_refused".into(), "memory".into()));
        } else if let Some(error) = view.failed_with() {
            lines.push(("master_refused".into(), "command".into()));
            lines.push(("master_refused_error".into(), error));
        }
    }
    let number = |name| node.config.number(name).to_string();
    lines.extend([
        ("slave_priority".into(), number(id("replica-priority"))),
        ("slave_read_only".into(), number(id("replica-read-only"))),
        ("replica_announced".into(), number(id("replica-announced"))),
        ("repl_unknown_commands".into(), view.unknown_commands.load(Relaxed).to_string()),
    ]);
    lines
}

/// Memory that the node uses for replicas.
pub struct Buffers {
    /// The bytes of the log, if they are kept for replicas.
    pub log: u64,
    /// Bytes of `log` that are within `repl-backlog-size`.
    pub backlog: u64,
    /// Snapshots on their way.
    pub spools: u64,
    /// The keys that a writable replica expires itself.
    pub own_keys: u64,
}

impl Buffers {
    pub fn of(node: &Node) -> Buffers {
        const BACKLOG_BYTES: Id = id("repl-backlog-size");
        let primary = &node.replication.primary;
        let log = if primary.has_backlog() { node.log.memory_bytes() } else { 0 };
        let backlog = log.min(node.config.number(BACKLOG_BYTES) as u64);
        let own_keys = node.replication.own_keys.used_bytes();
        Buffers { log, backlog, spools: primary.spool_bytes.load(Relaxed), own_keys }
    }

    pub fn total(&self) -> u64 {
        self.log + self.spools + self.own_keys
    }

    /// Returns the bytes apart from the backlog.
    pub fn of_replicas(&self) -> u64 {
        self.log + self.spools - self.backlog
    }

    // COMPAT(observability): `mem_aof_buffer` and `aof.buffer` are 0 while there is a backlog, and with `mem_clients_slaves` the
    // snapshots on their way to replicas are counted. Why: the append-only file and replicas read the same bytes of the log.
    /// The log, where no replica reads it.
    pub fn of_aof(&self, node: &Node) -> u64 {
        node.log.memory_bytes().saturating_sub(self.log)
    }
}

/// Returns the lines about the replicas that follow this node.
fn of_replicas(node: &Node) -> Vec<Line> {
    const LEAST: Id = id("min-replicas-to-write");
    const LAG_MAX: Id = id("min-replicas-max-lag");
    let primary = &node.replication.primary;
    let replicas = primary.replicas().clone();
    let mut lines: Vec<Line> = vec![("connected_slaves".into(), replicas.len().to_string())];
    if node.config.number(LEAST) > 0 && node.config.number(LAG_MAX) > 0 {
        let good = primary.good_replicas.load(Relaxed);
        lines.push(("min_slaves_good_slaves".into(), good.to_string()));
    }
    let each = replicas.iter().enumerate();
    lines.extend(each.map(|(at, replica)| (format!("slave{at}").into(), replica_line(replica))));
    lines.extend([
        ("replicas_waiting_psync".into(), "0".into()),
        ("master_failover_state".into(), node.replication.failover.name().into()),
    ]);
    lines
}

fn replica_line(replica: &ReplicaShared) -> String {
    let ReplicaShared { address, port, seen, .. } = replica;
    let lag_seconds = seen.lag_seconds(steady_now());
    let (state, offset) = (seen.state().name(), seen.acked());
    format!("ip={address},port={port},state={state},offset={offset},lag={lag_seconds},type=replica")
}

fn of_history(node: &Node) -> Vec<Line> {
    const BACKLOG_BYTES: Id = id("repl-backlog-size");
    let history = node.replication.state().history;
    let (second, second_end) = match history.second() {
        Some((second, end)) => (second, end.0 as i64 + 1),
        None => (ReplId::NONE, -1),
    };
    let primary = &node.replication.primary;
    let end = node.log.end();
    let first = primary.backlog_first(node.log.first()).min(end);
    let (first_byte, length) = match primary.has_backlog() {
        true => (first.0 + 1, end - first),
        false => (0, 0),
    };
    let first_on_disk = match primary.ring_bytes.load(Relaxed) {
        0 => -1,
        _ => primary.ring_first.load(Relaxed) as i64 + 1,
    };
    let online = primary.replicas().clone().into_iter().filter(|replica| replica.seen.state().is_online());
    let lag_bytes = online.map(|replica| end.0.saturating_sub(replica.seen.acked().0)).max().unwrap_or(0);
    let line = |name: &'static str, value: &dyn ToString| (name.into(), value.to_string());
    vec![
        line("master_replid", &history.id()),
        line("master_replid2", &second),
        line("master_repl_offset", &end),
        line("second_repl_offset", &second_end),
        line("repl_backlog_active", &u8::from(primary.has_backlog())),
        line("repl_backlog_size", &node.config.number(BACKLOG_BYTES)),
        line("repl_backlog_first_byte_offset", &first_byte),
        line("repl_backlog_histlen", &length),
        line("repl_log_first_offset_disk", &first_on_disk),
        line("repl_quorum_offset", &node.gate.quorum()),
        line("repl_lag_bytes", &lag_bytes),
    ]
}
