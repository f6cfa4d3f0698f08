//! Section Replication.

use isotherm_log::LogOffset;
use isotherm_replication::link::Phase;
use isotherm_replication::{History, ReplId};
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;

use super::row::{Lines, Row, Value, family, field, gauge, none};
use super::snapshot::Snapshot;
use isotherm_config::{Id, id};
use isotherm_node::Node;
use isotherm_node::replication::primary::ReplicaShared;
use isotherm_node::replication::state::Upstream;
use isotherm_runtime::time::steady_now;

/// Role, replicas and place in the log of one moment.
pub struct Report {
    link: Option<Link>,
    replicas: Vec<Arc<ReplicaShared>>,
    history: History,
    end: LogOffset,
    /// Begin of the backlog, if there is one.
    backlog: Option<LogOffset>,
}

/// Link to the primary that is followed.
pub struct Link {
    upstream: Upstream,
    is_up: bool,
    read: u64,
    applied: u64,
    /// Bytes of the primary's snapshot while it comes, and how many have come.
    transfer: Option<(i64, i64)>,
    /// Lack for which the link is down, and the error of a command.
    refused: Option<(&'static str, Option<String>)>,
}

impl Report {
    pub fn of(node: &Node) -> Report {
        let primary = &node.replication.primary;
        let link = node.replication.upstream().map(|upstream| Link::of(node, upstream));
        let replicas = primary.replicas().clone();
        let (history, end) = (node.replication.state().history, node.log.end());
        let first = || primary.backlog_first(node.log.first()).min(end);
        Report { link, replicas, history, end, backlog: primary.has_backlog().then(first) }
    }

    /// Returns the bytes that the slowest replica lacks.
    fn lag_bytes(&self) -> u64 {
        let online = self.replicas.iter().filter(|replica| replica.seen.state().is_online());
        online.map(|replica| self.end.0.saturating_sub(replica.seen.acked().0)).max().unwrap_or(0)
    }
}

impl Link {
    fn of(node: &Node, upstream: Upstream) -> Link {
        let (view, phase) = (&node.replication.link, node.replication.link.phase());
        let has_position = node.replication.state().has_position;
        let applied = if has_position { node.log.end().0 } else { 1 };
        let read = if has_position { view.read_offset.load(Relaxed).max(applied) } else { 1 };
        let transfer = || (view.sync_bytes.load(Relaxed), view.sync_read_bytes.load(Relaxed));
        let transfer = (phase == Phase::Transfer).then(transfer);
        let refused = match phase {
            Phase::Connected => None,
            _ if view.refuses_empty.load(Relaxed) => Some(("empty", None)),
            _ if view.lacks_memory.load(Relaxed) => Some(("memory", None)),
            _ => view.failed_with().map(|error| ("command", Some(error))),
        };
        Link { upstream, is_up: phase == Phase::Connected, read, applied, transfer, refused }
    }
}

pub const REPLICATION: &[Row] = &[
    field("role", |s| if s.replication().link.is_some() { "slave" } else { "master" }.into()),
    field("master_host", |s| link(s, |link| link.upstream.host.clone())),
    field("master_port", |s| link(s, |link| link.upstream.port)),
    field("master_link_status", |s| link(s, |link| if link.is_up { "up" } else { "down" })),
    field("master_last_io_seconds_ago", |s| {
        link(s, |link| if link.is_up { s.node.replication.link.silent_seconds() } else { -1 })
    }),
    field("master_sync_in_progress", |s| link(s, |link| link.transfer.is_some())),
    field("slave_read_repl_offset", |s| link(s, |link| link.read)),
    field("slave_repl_offset", |s| link(s, |link| link.applied)),
    field("replicas_repl_buffer_size", |s| link(s, |_| 0)),
    field("replicas_repl_buffer_peak", |s| link(s, |_| 0)),
    field("master_sync_total_bytes", |s| transfer(s, |total, _| total)),
    field("master_sync_read_bytes", |s| transfer(s, |_, read| read)),
    field("master_sync_left_bytes", |s| transfer(s, |total, read| total - read)),
    field("master_sync_perc", |s| {
        let percent = |total, read| if total == 0 { 0.0 } else { read as f64 / total as f64 * 100.0 };
        transfer(s, |total, read| format!("{:.2}", percent(total, read)))
    }),
    field("master_sync_last_io_seconds_ago", |s| {
        transfer(s, |_, _| s.node.replication.link.silent_seconds())
    }),
    field("master_link_down_since_seconds", |s| {
        let seconds = || s.node.replication.link.down_seconds().unwrap_or(-1);
        link(s, |link| (!link.is_up).then(seconds))
    }),
    field("master_refused", |s| link(s, |link| link.refused.as_ref().map(|(what, _)| *what))),
    field("master_refused_error", |s| link(s, |link| link.refused.as_ref()?.1.clone())),
    field("slave_priority", |s| link(s, |_| s.node.config.number(const { id("replica-priority") }))),
    field("slave_read_only", |s| link(s, |_| s.node.config.number(const { id("replica-read-only") }))),
    field("replica_announced", |s| link(s, |_| s.node.config.number(const { id("replica-announced") }))),
    field("repl_unknown_commands", |s| link(s, |_| s.node.replication.link.unknown_commands.load(Relaxed))),
    gauge("connected_slaves", "redis_*", |s| s.replication().replicas.len().into()),
    field("min_slaves_good_slaves", |s| {
        const LIMITS: [Id; 2] = [id("min-replicas-to-write"), id("min-replicas-max-lag")];
        let are_set = LIMITS.iter().all(|limit| s.node.config.number(*limit) > 0);
        are_set.then(|| s.node.replication.primary.good_replicas.load(Relaxed)).into()
    }),
    family("slave*", replicas, &[]),
    field("replicas_waiting_psync", none),
    field("master_failover_state", |s| s.node.replication.failover.name().into()),
    field("master_replid", |s| s.replication().history.id().to_string().into()),
    field("master_replid2", |s| second(s).map_or(ReplId::NONE, |(id, _)| id).to_string().into()),
    gauge("master_repl_offset", "redis_*", |s| s.replication().end.0.into()),
    gauge("second_repl_offset", "redis_*", |s| second(s).map_or(-1, |(_, end)| end.0 as i64 + 1).into()),
    gauge("repl_backlog_active", "redis_repl_backlog_is_active", |s| {
        s.replication().backlog.is_some().into()
    }),
    gauge("repl_backlog_size", "redis_replication_backlog_bytes", |s| {
        s.node.config.number(const { id("repl-backlog-size") }).into()
    }),
    gauge("repl_backlog_first_byte_offset", "redis_*", |s| {
        s.replication().backlog.map_or(0, |first| first.0 + 1).into()
    }),
    gauge("repl_backlog_histlen", "redis_repl_backlog_history_bytes", |s| {
        s.replication().backlog.map_or(0, |first| s.replication().end - first).into()
    }),
    field("repl_log_first_offset_disk", |s| {
        let primary = &s.node.replication.primary;
        let is_empty = primary.ring_bytes.load(Relaxed) == 0;
        if is_empty { -1 } else { primary.ring_first.load(Relaxed) as i64 + 1 }.into()
    }),
    field("repl_quorum_offset", |s| s.node.gate.quorum().0.into()),
    field("repl_lag_bytes", |s| s.replication().lag_bytes().into()),
];

fn link<T: Into<Value>>(s: &Snapshot<'_>, of: impl FnOnce(&Link) -> T) -> Value {
    s.replication().link.as_ref().map(of).into()
}

fn transfer<T: Into<Value>>(s: &Snapshot<'_>, of: impl FnOnce(i64, i64) -> T) -> Value {
    link(s, |link| link.transfer.map(|(total, read)| of(total, read)))
}

fn replicas(s: &Snapshot<'_>) -> Lines {
    let line = |replica: &ReplicaShared| {
        let ReplicaShared { address, port, seen, .. } = replica;
        let (state, offset, lag_seconds) =
            (seen.state().name(), seen.acked(), seen.lag_seconds(steady_now()));
        format!("ip={address},port={port},state={state},offset={offset},lag={lag_seconds},type=replica")
    };
    let each = s.replication().replicas.iter().enumerate();
    each.map(|(at, replica)| (at.to_string(), line(replica))).collect()
}

/// Returns the history before this one, and where it ended.
fn second(s: &Snapshot<'_>) -> Option<(ReplId, LogOffset)> {
    s.replication().history.second()
}
