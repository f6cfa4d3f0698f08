//! What INFO says of replication.

use isotherm_replication::ReplId;
use isotherm_replication::link::Phase;
use std::sync::atomic::Ordering::Relaxed;

use super::state::Upstream;
use crate::config::id;
use crate::node::Node;
use crate::process::time::unix_now;

type Line = (&'static str, String);

pub fn lines(node: &Node) -> Vec<Line> {
    let upstream = node.replication.upstream();
    let mut lines = vec![("role", if upstream.is_some() { "slave" } else { "master" }.to_string())];
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
    let mut lines = vec![
        ("master_host", upstream.host.clone()),
        ("master_port", upstream.port.to_string()),
        ("master_link_status", if is_up { "up" } else { "down" }.into()),
        ("master_last_io_seconds_ago", if is_up { view.silent_seconds() } else { -1 }.to_string()),
        ("master_sync_in_progress", u8::from(phase == Phase::Transfer).to_string()),
        ("slave_read_repl_offset", read.to_string()),
        ("slave_repl_offset", applied.to_string()),
        ("replicas_repl_buffer_size", "0".into()),
        ("replicas_repl_buffer_peak", "0".into()),
    ];
    if phase == Phase::Transfer {
        let (total, read) = (view.sync_bytes.load(Relaxed), view.sync_read_bytes.load(Relaxed));
        let percent = if total == 0 { 0.0 } else { read as f64 / total as f64 * 100.0 };
        lines.extend([
            ("master_sync_total_bytes", total.to_string()),
            ("master_sync_read_bytes", read.to_string()),
            ("master_sync_left_bytes", (total - read).to_string()),
            ("master_sync_perc", format!("{percent:.2}")),
            ("master_sync_last_io_seconds_ago", view.silent_seconds().to_string()),
        ]);
    }
    if !is_up {
        let since = match view.down_since_seconds.load(Relaxed) {
            0 => -1,
            since => unix_now().0 / 1000 - since,
        };
        lines.push(("master_link_down_since_seconds", since.to_string()));
    }
    let number = |name| node.config.number(name).to_string();
    lines.extend([
        ("slave_priority", number(id("replica-priority"))),
        ("slave_read_only", number(id("replica-read-only"))),
        ("replica_announced", number(id("replica-announced"))),
        ("repl_unknown_commands", view.unknown_commands.load(Relaxed).to_string()),
    ]);
    lines
}

/// Those that follow this node.
fn of_replicas(_: &Node) -> Vec<Line> {
    vec![
        ("connected_slaves", "0".into()),
        ("replicas_waiting_psync", "0".into()),
        ("master_failover_state", "no-failover".into()),
    ]
}

fn of_history(node: &Node) -> Vec<Line> {
    let history = node.replication.state().history;
    let (second, second_end) = match history.second() {
        Some((second, end)) => (second, end.0 as i64 + 1),
        None => (ReplId::NONE, -1),
    };
    let size = node.config.shown(id("repl-backlog-size"));
    vec![
        ("master_replid", history.id().to_string()),
        ("master_replid2", second.to_string()),
        ("master_repl_offset", node.log.end().0.to_string()),
        ("second_repl_offset", second_end.to_string()),
        ("repl_backlog_active", "0".into()),
        ("repl_backlog_size", String::from_utf8_lossy(&size).into_owned()),
        ("repl_backlog_first_byte_offset", "0".into()),
        ("repl_backlog_histlen", "0".into()),
    ]
}
