//! Sections Stats and Debug.

use super::row::{Row, Type, Value, counter, field, gauge, metric, none};
use super::snapshot::Snapshot;
use isotherm_node::effects::pubsub::Kind;
use isotherm_node::observe::counter::Counter;
use isotherm_node::observe::stats::CycleCounters;
use isotherm_node::replication::primary::SyncCounts;
use isotherm_node::users::Denied;
use std::sync::atomic::AtomicU64;

pub const STATS: &[Row] = &[
    counter("total_connections_received", "redis_connections_received_total", |s| {
        s.counts().connections_received.into()
    }),
    counter("total_commands_processed", "redis_commands_processed_total", |s| {
        s.totals().commands.iter().map(|command| command.calls).sum::<u64>().into()
    }),
    field("instantaneous_ops_per_sec", |s| s.node.stats.rates().commands.into()),
    counter("total_net_input_bytes", "redis_net_input_bytes_total", |s| s.counts().net_input_bytes.into()),
    counter("total_net_output_bytes", "redis_net_output_bytes_total", |s| s.counts().net_output_bytes.into()),
    counter("total_net_repl_input_bytes", "redis_net_repl_input_bytes_total", |s| {
        (&sync_counts(s).heard_bytes).into()
    }),
    counter("total_net_repl_output_bytes", "redis_net_repl_output_bytes_total", |s| {
        (&sync_counts(s).sent_bytes).into()
    }),
    field("total_net_cluster_slot_import_bytes", none),
    field("total_net_cluster_slot_export_bytes", none),
    field("instantaneous_input_kbps", |s| kilobytes(s.node.stats.rates().input_bytes)),
    field("instantaneous_output_kbps", |s| kilobytes(s.node.stats.rates().output_bytes)),
    field("instantaneous_input_repl_kbps", |_| kilobytes(0)),
    field("instantaneous_output_repl_kbps", |_| kilobytes(0)),
    counter("rejected_connections", "redis_*_total", |s| s.counts().connections_rejected.into()),
    gauge("sync_full", "redis_replica_resyncs_full", |s| (&sync_counts(s).full).into()),
    gauge("sync_partial_ok", "redis_replica_partial_resync_accepted", |s| (&sync_counts(s).partial).into()),
    gauge("sync_partial_err", "redis_replica_partial_resync_denied", |s| {
        (&sync_counts(s).partial_refused).into()
    }),
    counter("expired_keys", "redis_*_total", |s| s.counts().expired_keys.into()),
    counter("expired_fields", "redis_expired_subkeys_total", |s| s.counts().expired_fields.into()),
    // Every page knows what is due first: nothing is found by sampling, and nothing stale is estimated.
    gauge("expired_stale_perc", "redis_expired_stale_percentage", |_| "0.00".into()),
    field("expired_keys_with_volatile_items_stale_perc", |_| "0.00".into()),
    counter("expired_time_cap_reached_count", "redis_expired_time_cap_reached_total", |s| {
        s.counts().expire_time_caps.into()
    }),
    counter("expire_cycle_cpu_milliseconds", "redis_expire_cycle_cpu_time_ms_total", |s| {
        (s.counts().expire_cycle_us / 1000).into()
    }),
    counter("evicted_keys", "redis_*_total", |s| s.counts().evicted_keys.into()),
    counter("evicted_clients", "redis_*_total", |s| s.counts().evicted_clients.into()),
    counter("evicted_scripts", "redis_*_total", |s| s.node.scripts.evicted().into()),
    // Ours: scripts that run for more than a millisecond at this moment, and commands that had to wait for
    // such a script.
    gauge("long_scripts", "redis_*", |s| s.node.keyspace.lease_holders().into()),
    counter("total_script_waits", "redis_script_waits_total", |s| s.node.runs.waits().into()),
    counter("total_script_keys_refused", "redis_script_keys_refused_total", |s| {
        s.node.runs.refused_keys().into()
    }),
    counter("total_eviction_exceeded_time", "redis_eviction_exceeded_time_ms_total", |s| {
        s.counts().eviction_exceeded_ms.into()
    }),
    gauge("current_eviction_exceeded_time", "redis_*_ms", none),
    counter("keyspace_hits", "redis_*_total", |s| s.counts().keyspace_hits.into()),
    counter("keyspace_misses", "redis_*_total", |s| s.counts().keyspace_misses.into()),
    gauge("pubsub_channels", "redis_*", |s| s.node.pubsub.count(Kind::Channel).into()),
    gauge("pubsub_patterns", "redis_*", |s| s.node.pubsub.count(Kind::Pattern).into()),
    gauge("pubsubshard_channels", "redis_*", |s| s.node.pubsub.count(Kind::ShardChannel).into()),
    // COMPAT(observability): `latest_fork_usec` is how long all clients stood still for the last snapshot,
    // and `total_forks` counts snapshots. Why: there is no fork.
    field("latest_fork_usec", |s| s.saving().saving.cut_us.into()).seen_as(
        metric("redis_latest_fork_seconds", Type::Gauge, "`latest_fork_usec` of INFO, in seconds.", "")
            .part("", 1e6),
    ),
    field("total_forks", |s| s.saving().saving.cuts.into()),
    gauge("migrate_cached_sockets", "redis_*_total", |s| s.node.migrations.cached_sockets().into()),
    gauge("slave_expires_tracked_keys", "redis_*", |s| s.node.replication.own_keys.count().into()),
    // COMPAT(observability): `active_defrag_hits` counts objects that compaction moved,
    // `active_defrag_key_hits` the keys in them, `active_defrag_misses` objects that could not be moved;
    // `active_defrag_key_misses` is 0. Why: compaction empties slabs and does not scan keys.
    gauge("active_defrag_hits", "redis_defrag_hits", |s| s.counts().compaction_moved.into()),
    gauge("active_defrag_misses", "redis_defrag_misses", |s| s.counts().compaction_stayed.into()),
    gauge("active_defrag_key_hits", "redis_defrag_key_hits", |s| s.counts().compaction_keys.into()),
    gauge("active_defrag_key_misses", "redis_defrag_key_misses", none),
    field("total_active_defrag_time", |s| (s.counts().compaction_run_us / 1000).into()),
    field("current_active_defrag_time", |s| (s.node.memory.compaction.run_us() / 1000).into()),
    gauge("isotherm_compaction_cpu_percent", "*", |s| s.node.compaction_share_percent().into()),
    counter("isotherm_compaction_cpu_milliseconds", "*_total", |s| (s.counts().compaction_us / 1000).into()),
    counter("isotherm_huge_pages_cpu_milliseconds", "*_total", |s| (s.counts().collapse_us / 1000).into()),
    gauge("tracking_total_keys", "redis_*", |s| s.node.trackers.keys().into()),
    gauge("tracking_total_items", "redis_*", |s| s.node.trackers.items().into()),
    gauge("tracking_total_prefixes", "redis_*", |s| s.node.trackers.prefixes().into()),
    counter("unexpected_error_replies", "redis_*", |s| (&s.node.replication.link.unexpected_errors).into()),
    counter("total_error_replies", "redis_*", |s| s.counts().error_replies.into()),
    counter("dump_payload_sanitizations", "redis_*", none),
    counter("total_reads_processed", "redis_*", |s| s.counts().reads_processed.into()),
    counter("total_writes_processed", "redis_*", |s| s.counts().writes_processed.into()),
    counter("io_threaded_reads_processed", "redis_*", |s| by_threads(s, s.counts().reads_processed)),
    counter("io_threaded_writes_processed", "redis_*", |s| by_threads(s, s.counts().writes_processed)),
    counter("client_query_buffer_limit_disconnections", "redis_*_total", |s| {
        s.counts().query_buffer_limit_disconnections.into()
    }),
    counter("client_output_buffer_limit_disconnections", "redis_*_total", |s| {
        s.counts().output_buffer_limit_disconnections.into()
    }),
    counter("eventloop_cycles", "redis_*_total", |s| s.counts().eventloop_cycles.into()),
    counter("eventloop_duration_sum", "redis_*_usec_total", |s| {
        s.node.stats.micros(s.counts().eventloop_ticks).into()
    }),
    counter("eventloop_duration_cmd_sum", "redis_*_usec_total", |s| {
        s.totals().commands.iter().map(|command| command.usec).sum::<u64>().into()
    }),
    gauge("instantaneous_eventloop_cycles_per_sec", "redis_*", |s| s.node.stats.rates().cycles.into()),
    gauge("instantaneous_eventloop_duration_usec", "redis_*", |s| {
        let rates = s.node.stats.rates();
        rates.busy_us.checked_div(rates.cycles).unwrap_or_default().into()
    }),
    counter("acl_access_denied_auth", "redis_*_total", |s| denied(s, |denied| &denied.auth)),
    counter("acl_access_denied_cmd", "redis_*_total", |s| denied(s, |denied| &denied.command)),
    counter("acl_access_denied_key", "redis_*_total", |s| denied(s, |denied| &denied.key)),
    counter("acl_access_denied_channel", "redis_*_total", |s| denied(s, |denied| &denied.channel)),
    counter("acl_access_denied_tls_cert", "redis_*_total", |s| denied(s, |denied| &denied.tls_certificate)),
    counter("acl_access_denied_db", "redis_*_total", |s| denied(s, |denied| &denied.database)),
    field("keyspace_hits_ssdb", |s| s.swap(|_| s.cold.lent_hits)),
];

fn denied(s: &Snapshot<'_>, of: impl Fn(&Denied) -> &AtomicU64) -> Value {
    of(s.node.users.denied()).into()
}

/// A single worker does its reading and writing itself; several are what `io-threads` asked for.
fn by_threads(s: &Snapshot<'_>, count: u64) -> Value {
    if s.node.worker_count() > 1 { count } else { 0 }.into()
}

fn kilobytes(bytes: u64) -> Value {
    format!("{:.2}", bytes as f64 / 1024.0).into()
}

fn sync_counts<'n>(s: &Snapshot<'n>) -> &'n SyncCounts {
    &s.node.replication.primary.counts
}

pub const DEBUG: &[Row] = &[
    field("eventloop_duration_aof_sum", none),
    field("eventloop_duration_cron_sum", |s| {
        s.node.stats.micros(s.node.control_stats().values.eventloop_ticks.get()).into()
    }),
    field("eventloop_duration_max", |s| s.node.stats.micros(longest(s, |cycles| &cycles.ticks_max)).into()),
    field("eventloop_cmd_per_cycle_max", |s| longest(s, |cycles| &cycles.commands_max).into()),
    field("eventloop_bytes_per_cycle_max", |s| longest(s, |cycles| &cycles.bytes_max).into()),
];

fn longest(s: &Snapshot<'_>, of: fn(&CycleCounters) -> &Counter) -> u64 {
    s.node.stats.threads().iter().map(|thread| of(&thread.cycles).get()).max().unwrap_or_default()
}
