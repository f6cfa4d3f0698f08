//! The fields of INFO, by section.

use isotherm_stdx::units::human_bytes;

use super::snapshot::Snapshot;
use crate::process::start_options;
use crate::process::version_line::{CHANGED, COMMIT};
use crate::upkeep::compaction::share_percent;
use isotherm_config::file::VERSION;
use isotherm_durability::aof::rewrite;
use isotherm_durability::persistence::report;
use isotherm_durability::persistence::report::SavingReport;
use isotherm_node::effects::pubsub::Kind;
use isotherm_node::observe::counter::Counter;
use isotherm_node::observe::stats::CycleCounters;
use isotherm_node::persistence::state::Job;
use isotherm_node::process::version::{REDIS_VERSION, VALKEY_VERSION};
use isotherm_node::replication::primary::SyncCounts;
use isotherm_node::tls;
use isotherm_node::users::Denied;
use isotherm_replicas::replication::report::Buffers;
use isotherm_tls::{Contexts, Facts};
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::{self, Relaxed};

/// A name, and how its value is found.
pub type Field = (&'static str, fn(&Snapshot<'_>) -> String);

/// Returns 0, for fields about things that do not exist here.
fn none(_: &Snapshot<'_>) -> String {
    "0".into()
}

// COMPAT(observability): INFO omits a field rather than report a made-up value: `redis_build_id`,
// `gcc_version`, `io_threaded_freed_objects`, `io_threaded_accept_processed`, `io_threaded_poll_processed`,
// `io_threaded_total_prefetch_*` and `reply_buffer_*` are missing. Why: they count what does not happen here.
pub const SERVER: &[Field] = &[
    ("redis_version", |_| REDIS_VERSION.into()),
    // COMPAT(observability): INFO reports `server_name:isotherm` and adds `isotherm_version`; `redis_version` is
    // 7.2.4, as in Valkey. Why: tools that look for the server find it, and clients that look for the Redis version
    // work unchanged.
    ("server_name", |_| "isotherm".into()),
    ("isotherm_version", |_| VERSION.into()),
    ("valkey_version", |_| VALKEY_VERSION.into()),
    ("valkey_release_stage", |_| "ga".into()),
    ("redis_git_sha1", |_| COMMIT.into()),
    ("redis_git_dirty", |_| CHANGED.into()),
    ("server_mode", |s| s.node.config.mode().into()),
    ("os", |_| {
        let name = rustix::system::uname();
        [name.sysname(), name.release(), name.machine()]
            .map(|part| part.to_string_lossy().into_owned())
            .join(" ")
    }),
    ("arch_bits", |_| usize::BITS.to_string()),
    ("monotonic_clock", |_| "TSC".into()),
    ("multiplexing_api", |_| "epoll".into()),
    ("process_id", |_| std::process::id().to_string()),
    ("process_supervised", |_| if crate::process::supervisor::is_there() { "systemd" } else { "no" }.into()),
    ("run_id", |s| s.node.process.run_id.to_string()),
    ("tcp_port", |s| s.node.config.shown_port().to_string()),
    ("server_time_usec", |s| (s.now.0 * 1000).to_string()),
    ("uptime_in_seconds", |s| uptime_seconds(s).to_string()),
    ("uptime_in_days", |s| (uptime_seconds(s) / 86_400).to_string()),
    ("hz", |s| s.node.config.hz().to_string()),
    ("configured_hz", |s| s.node.config.hz().to_string()),
    ("clients_hz", |s| s.node.config.hz().to_string()),
    // Valkey's clock of seconds in 24 bits.
    ("lru_clock", |s| ((s.now.0 / 1000) & 0xff_ffff).to_string()),
    ("executable", |s| s.node.process.executable.display().to_string()),
    ("config_file", |s| {
        s.node.process.config_file.as_ref().map(|file| file.path.display().to_string()).unwrap_or_default()
    }),
    ("io_threads_active", |s| u8::from(s.node.worker_count() > 1).to_string()),
    ("availability_zone", |s| String::from_utf8_lossy(&s.node.config.availability_zone()).into_owned()),
];

fn uptime_seconds(snapshot: &Snapshot<'_>) -> i64 {
    snapshot.node.process.age_ms(snapshot.now) / 1000
}

pub const CLIENTS: &[Field] = &[
    ("connected_clients", |s| {
        let replicas = s.node.replication.primary.replicas().len();
        s.node.clients.count().saturating_sub(replicas).to_string()
    }),
    ("cluster_connections", |s| s.node.cluster.get().map_or(0, |member| member.bus.links()).to_string()),
    ("maxclients", |s| s.node.config.max_clients().to_string()),
    ("client_recent_max_input_buffer", |s| s.clients().input_bytes_max.to_string()),
    ("client_recent_max_output_buffer", |s| s.clients().output_bytes_max.to_string()),
    ("blocked_clients", |s| s.clients().waiting.to_string()),
    ("tracking_clients", |s| s.node.trackers.sessions().to_string()),
    ("pubsub_clients", |s| s.node.pubsub.sessions.load(Ordering::Acquire).to_string()),
    ("watching_clients", |s| s.clients().watching.to_string()),
    // COMPAT(observability): `clients_in_timeout_table` is always 0. Why: blocked clients are in no such table.
    ("clients_in_timeout_table", none),
    ("total_watched_keys", |s| s.clients().watched_keys.to_string()),
    ("total_blocking_keys", |s| s.node.keyspace.waited_keys()[0].to_string()),
    ("total_blocking_keys_on_nokey", |s| s.node.keyspace.waited_keys()[1].to_string()),
    ("paused_reason", |s| s.node.pause.report(s.now).map_or("none", |(_, cause, _)| cause.name()).into()),
    ("paused_actions", |s| match s.node.pause.report(s.now) {
        None => "none".into(),
        Some((true, ..)) => "all".into(),
        Some((false, ..)) => "write".into(),
    }),
    ("paused_timeout_milliseconds", |s| {
        s.node.pause.report(s.now).map_or(0, |(.., left_ms)| left_ms).to_string()
    }),
];

pub const MEMORY: &[Field] = &[
    ("used_memory", |s| s.node.used_memory_bytes().to_string()),
    ("used_memory_human", |s| human_bytes(s.node.used_memory_bytes())),
    ("used_memory_rss", |s| s.facts.rss_bytes().to_string()),
    ("used_memory_rss_human", |s| human_bytes(s.facts.rss_bytes())),
    ("used_memory_peak", |s| peak(s).to_string()),
    ("used_memory_peak_human", |s| human_bytes(peak(s))),
    ("used_memory_peak_perc", |s| format!("{:.2}%", percent(s.node.used_memory_bytes(), peak(s)))),
    // Keys and values with their pages and directories are the dataset; the rest is overhead.
    ("used_memory_overhead", |s| overhead(s).to_string()),
    ("used_memory_startup", |s| s.node.memory.startup_bytes().to_string()),
    ("used_memory_dataset", |s| s.dataset_bytes().to_string()),
    ("used_memory_dataset_perc", |s| {
        format!("{:.2}%", percent(s.dataset_bytes(), s.node.used_memory_bytes()))
    }),
    // COMPAT(observability): `allocator_*` in INFO and MEMORY STATS cover the arenas of the keyspace and the
    // allocator together. Why: most data lies in the arenas, and the ratios would say nothing about it otherwise.
    ("allocator_allocated", |s| s.allocators().allocated.to_string()),
    ("allocator_active", |s| s.allocators().active.to_string()),
    ("allocator_resident", |s| s.allocators().resident.to_string()),
    ("allocator_muzzy", none),
    ("total_system_memory", |_| isotherm_node::process::system::machine_memory_bytes().to_string()),
    ("total_system_memory_human", |_| human_bytes(isotherm_node::process::system::machine_memory_bytes())),
    ("used_memory_lua", |s| s.node.scripts.interpreter_bytes().to_string()),
    ("used_memory_vm_eval", |s| s.node.scripts.interpreter_bytes().to_string()),
    ("used_memory_lua_human", |s| human_bytes(s.node.scripts.interpreter_bytes())),
    ("used_memory_scripts_eval", |s| s.node.scripts.bytes().to_string()),
    ("number_of_cached_scripts", |s| s.node.scripts.count().to_string()),
    ("number_of_functions", |s| s.node.libraries.function_count().to_string()),
    ("number_of_libraries", |s| s.node.libraries.count().to_string()),
    ("used_memory_vm_functions", |s| s.node.libraries.interpreter_bytes().to_string()),
    ("used_memory_vm_total", |s| interpreter_bytes(s).to_string()),
    ("used_memory_vm_total_human", |s| human_bytes(interpreter_bytes(s))),
    ("used_memory_functions", |s| s.node.libraries.bytes().to_string()),
    ("used_memory_scripts", |s| script_bytes(s).to_string()),
    ("used_memory_scripts_human", |s| human_bytes(script_bytes(s))),
    ("isotherm_memory_limit_bytes", |_| isotherm_node::process::system::memory_bytes().to_string()),
    ("maxmemory", |s| s.node.config.maxmemory_bytes().to_string()),
    ("maxmemory_human", |s| human_bytes(s.node.config.maxmemory_bytes())),
    ("maxmemory_policy", |s| s.node.config.eviction_policy_name().into()),
    ("allocator_frag_ratio", |s| ratio(s.allocators().active, s.allocators().allocated)),
    ("allocator_frag_bytes", |s| excess(s.allocators().active, s.allocators().allocated)),
    ("allocator_rss_ratio", |s| ratio(s.allocators().resident, s.allocators().active)),
    ("allocator_rss_bytes", |s| excess(s.allocators().resident, s.allocators().active)),
    ("rss_overhead_ratio", |s| ratio(s.facts.rss_bytes(), s.allocators().resident)),
    ("rss_overhead_bytes", |s| excess(s.facts.rss_bytes(), s.allocators().resident)),
    ("mem_fragmentation_ratio", |s| ratio(s.facts.rss_bytes(), s.node.used_memory_bytes())),
    ("mem_fragmentation_bytes", |s| excess(s.facts.rss_bytes(), s.node.used_memory_bytes())),
    // COMPAT(observability): `mem_not_counted_for_evict` has the backlog and what is kept for a snapshot too,
    // and all of the log that waits for the append-only file: none of it counts for `maxmemory`. Why: no key
    // that leaves makes it less.
    ("mem_not_counted_for_evict", |s| s.node.apart().total().to_string()),
    ("mem_replication_backlog", |s| Buffers::of(s.node).backlog.to_string()),
    ("mem_total_replication_buffers", |s| Buffers::of(s.node).total().to_string()),
    ("mem_replicas_repl_buffer", none),
    ("mem_clients_slaves", |s| Buffers::of(s.node).of_replicas().to_string()),
    ("mem_clients_normal", |s| s.node.clients.own_bytes().to_string()),
    ("mem_cluster_links", |s| s.node.cluster.get().map_or(0, |member| member.bus.link_bytes()).to_string()),
    ("mem_cluster_slot_import", none),
    ("mem_cluster_slot_export", none),
    ("mem_aof_buffer", |s| Buffers::of(s.node).of_aof(s.node).to_string()),
    ("mem_allocator", |_| isotherm_allocator::name()),
    ("mem_overhead_db_hashtable_rehashing", none),
    ("active_defrag_running", |s| s.node.memory.compaction.percent().to_string()),
    // COMPAT(observability): `lazyfreed_objects` counts DEL's large collections whatever `lazyfree-lazy-user-del` says, and the keys
    // of FLUSHALL without SYNC whatever `lazyfree-lazy-user-flush` says; of a stream it looks at the entries, not at their nodes. Why:
    // these options have no effect: what is large is freed in steps, and of up to 1,000 elements at once in microseconds.
    ("lazyfree_pending_objects", |s| s.node.keyspace.lazy_frees().0.to_string()),
    ("lazyfreed_objects", |s| s.node.keyspace.lazy_frees().1.to_string()),
    ("isotherm_arena_live_bytes", |s| s.arenas().live.to_string()),
    ("isotherm_arena_slab_bytes", |s| s.arenas().slabs.to_string()),
    ("isotherm_arena_partial_free_bytes", |s| s.arenas().partial_free.to_string()),
    ("isotherm_arena_tail_bytes", |s| s.arenas().tails.to_string()),
    ("isotherm_arena_free_slab_bytes", |s| s.arenas().free_slabs.to_string()),
    ("isotherm_arena_metadata_bytes", |s| s.arenas().metadata.to_string()),
    ("isotherm_arena_committed_bytes", |s| s.arenas().committed.to_string()),
    ("isotherm_arena_reserved_bytes", |s| s.arenas().reserved.to_string()),
    // What does not count for maxmemory, one by one, and the limit of the first.
    ("isotherm_not_counted_log_bytes", |s| s.node.apart().log.to_string()),
    ("isotherm_not_counted_replica_bytes", |s| s.node.apart().replicas.to_string()),
    ("isotherm_not_counted_snapshot_bytes", |s| s.node.apart().snapshot.to_string()),
    ("isotherm_log_limit_bytes", |s| s.node.config.log_memory_bytes().to_string()),
    ("isotherm_maxmemory_excess_bytes", |s| s.node.memory.excess_bytes().to_string()),
    ("isotherm_allocator_retained_bytes", |s| s.allocators().retained.to_string()),
    ("isotherm_allocator_metadata_bytes", |s| s.allocators().metadata.to_string()),
    ("isotherm_allocator_options", |_| start_options::shown()),
    ("isotherm_allocator_lock_waits", |_| isotherm_allocator::lock_waits().unwrap_or_default().to_string()),
    ("isotherm_malloc_bytes", |_| isotherm_allocator::allocated_bytes().to_string()),
];

fn ratio(part: u64, whole: u64) -> String {
    format!("{:.2}", part as f64 / whole.max(1) as f64)
}

fn excess(part: u64, whole: u64) -> String {
    (part as i64 - whole as i64).to_string()
}

/// The cron looks now and then; what is used now may be more than it has ever seen.
fn peak(snapshot: &Snapshot<'_>) -> u64 {
    snapshot.node.memory.peak_bytes().max(snapshot.node.used_memory_bytes())
}

fn overhead(snapshot: &Snapshot<'_>) -> u64 {
    snapshot.node.used_memory_bytes().saturating_sub(snapshot.dataset_bytes())
}

fn percent(part: u64, whole: u64) -> f64 {
    part as f64 * 100.0 / whole.max(1) as f64
}

fn saving(snapshot: &Snapshot<'_>) -> SavingReport {
    SavingReport::of(snapshot.node.store())
}

pub const PERSISTENCE: &[Field] = &[
    ("isotherm_persistence", |s| if s.node.aof.is_on() { "rdb,aof" } else { "rdb" }.into()),
    ("loading", |s| u8::from(report::is_loading(s.node.store())).to_string()),
    ("async_loading", none),
    ("current_cow_peak", none),
    // COMPAT(observability): `current_cow_size` is what is kept for a snapshot of what was written since its cut; `current_cow_peak`
    // and `current_cow_size_age` are 0. Why: there is no fork, and the size is counted at any time.
    ("current_cow_size", |s| s.node.keyspace.kept_bytes().to_string()),
    ("current_cow_size_age", none),
    ("snapshot_writer_waits", |s| {
        s.node.persistence.progress.writer_waits.load(Ordering::Relaxed).to_string()
    }),
    ("current_fork_perc", |s| format!("{:.2}", saving(s).percent())),
    ("current_save_keys_processed", |s| saving(s).keys.to_string()),
    ("current_save_keys_total", |s| saving(s).keys_total.to_string()),
    ("rdb_changes_since_last_save", |s| saving(s).changes_since.to_string()),
    ("rdb_bgsave_in_progress", |s| u8::from(saving(s).is_in_background()).to_string()),
    ("rdb_last_save_time", |s| saving(s).saving.last_save_seconds.to_string()),
    ("rdb_last_bgsave_status", |s| if saving(s).saving.last_failed { "err" } else { "ok" }.into()),
    ("rdb_last_bgsave_time_sec", |s| saving(s).saving.last_took_seconds.to_string()),
    ("rdb_current_bgsave_time_sec", |s| saving(s).running_seconds(Job::BackgroundSave).to_string()),
    ("rdb_saves", |s| saving(s).saving.saves.to_string()),
    ("rdb_last_cow_size", none),
    ("rdb_last_load_keys_expired", |s| {
        s.node.persistence.loading.keys_expired.load(Ordering::Relaxed).to_string()
    }),
    ("rdb_last_load_keys_loaded", |s| {
        s.node.persistence.loading.keys_loaded.load(Ordering::Relaxed).to_string()
    }),
    ("aof_enabled", |s| u8::from(s.node.aof.is_on()).to_string()),
    ("aof_rewrite_in_progress", |s| u8::from(rewrite::is_running(s.node)).to_string()),
    ("aof_rewrite_scheduled", |s| u8::from(s.node.aof.rewrites().is_scheduled).to_string()),
    ("aof_last_rewrite_time_sec", |s| s.node.aof.rewrites().last_took_seconds.to_string()),
    ("aof_current_rewrite_time_sec", |s| saving(s).running_seconds(Job::Rewrite).to_string()),
    ("aof_last_bgrewrite_status", |s| if s.node.aof.rewrites().last_failed { "err" } else { "ok" }.into()),
    ("aof_rewrites", |s| s.node.aof.rewrites().begun.to_string()),
    ("aof_rewrites_consecutive_failures", |s| s.node.aof.rewrites().failures_in_row.to_string()),
    ("aof_last_write_status", |s| if s.node.aof.failure().is_some() { "err" } else { "ok" }.into()),
    ("aof_last_cow_size", none),
    ("log_offset", |s| s.node.log.end().to_string()),
    ("module_fork_in_progress", none),
    ("module_fork_last_cow_size", none),
    ("slot_migration_fork_in_progress", none),
];

pub const STATS: &[Field] = &[
    ("total_connections_received", |s| s.totals().values.connections_received.to_string()),
    ("total_commands_processed", |s| {
        s.totals().commands.iter().map(|command| command.calls).sum::<u64>().to_string()
    }),
    ("instantaneous_ops_per_sec", |s| s.node.stats.rates().commands.to_string()),
    ("total_net_input_bytes", |s| s.totals().values.net_input_bytes.to_string()),
    ("total_net_output_bytes", |s| s.totals().values.net_output_bytes.to_string()),
    ("total_net_repl_input_bytes", |s| sync_counts(s).heard_bytes.load(Ordering::Relaxed).to_string()),
    ("total_net_repl_output_bytes", |s| sync_counts(s).sent_bytes.load(Ordering::Relaxed).to_string()),
    ("total_net_cluster_slot_import_bytes", none),
    ("total_net_cluster_slot_export_bytes", none),
    ("instantaneous_input_kbps", |s| kilobytes(s.node.stats.rates().input_bytes)),
    ("instantaneous_output_kbps", |s| kilobytes(s.node.stats.rates().output_bytes)),
    ("instantaneous_input_repl_kbps", |_| kilobytes(0)),
    ("instantaneous_output_repl_kbps", |_| kilobytes(0)),
    ("rejected_connections", |s| s.totals().values.connections_rejected.to_string()),
    ("sync_full", |s| sync_counts(s).full.load(Ordering::Relaxed).to_string()),
    ("sync_partial_ok", |s| sync_counts(s).partial.load(Ordering::Relaxed).to_string()),
    ("sync_partial_err", |s| sync_counts(s).partial_refused.load(Ordering::Relaxed).to_string()),
    ("expired_keys", |s| s.totals().values.expired_keys.to_string()),
    ("expired_fields", |s| s.totals().values.expired_fields.to_string()),
    // Every page knows what is due first: nothing is found by sampling, and nothing stale is estimated.
    ("expired_stale_perc", |_| "0.00".into()),
    ("expired_keys_with_volatile_items_stale_perc", |_| "0.00".into()),
    ("expired_time_cap_reached_count", |s| s.totals().values.expire_time_caps.to_string()),
    ("expire_cycle_cpu_milliseconds", |s| (s.totals().values.expire_cycle_us / 1000).to_string()),
    ("evicted_keys", |s| s.totals().values.evicted_keys.to_string()),
    ("evicted_clients", |s| s.totals().values.evicted_clients.to_string()),
    ("evicted_scripts", |s| s.node.scripts.evicted().to_string()),
    // Ours: scripts that run for more than a millisecond at this moment, and commands that had to wait for
    // such a script.
    ("long_scripts", |s| s.node.keyspace.lease_holders().to_string()),
    ("total_script_waits", |s| s.node.runs.waits().to_string()),
    ("total_script_keys_refused", |s| s.node.runs.refused_keys().to_string()),
    ("total_eviction_exceeded_time", |s| s.totals().values.eviction_exceeded_ms.to_string()),
    ("current_eviction_exceeded_time", none),
    ("keyspace_hits", |s| s.totals().values.keyspace_hits.to_string()),
    ("keyspace_misses", |s| s.totals().values.keyspace_misses.to_string()),
    ("pubsub_channels", |s| s.node.pubsub.count(Kind::Channel).to_string()),
    ("pubsub_patterns", |s| s.node.pubsub.count(Kind::Pattern).to_string()),
    ("pubsubshard_channels", |s| s.node.pubsub.count(Kind::ShardChannel).to_string()),
    // COMPAT(observability): `latest_fork_usec` is how long all clients stood still for the last snapshot, and `total_forks` counts
    // snapshots. Why: there is no fork.
    ("latest_fork_usec", |s| saving(s).saving.cut_us.to_string()),
    ("total_forks", |s| saving(s).saving.cuts.to_string()),
    ("migrate_cached_sockets", |s| s.node.migrations.cached_sockets().to_string()),
    ("slave_expires_tracked_keys", |s| s.node.replication.own_keys.count().to_string()),
    // COMPAT(observability): `active_defrag_hits` counts objects that compaction moved, `active_defrag_key_hits` the
    // keys in them, `active_defrag_misses` objects that could not be moved; `active_defrag_key_misses` is 0. Why:
    // compaction empties slabs and does not scan keys.
    ("active_defrag_hits", |s| s.totals().values.compaction_moved.to_string()),
    ("active_defrag_misses", |s| s.totals().values.compaction_stayed.to_string()),
    ("active_defrag_key_hits", |s| s.totals().values.compaction_keys.to_string()),
    ("active_defrag_key_misses", none),
    ("total_active_defrag_time", |s| (s.totals().values.compaction_run_us / 1000).to_string()),
    ("current_active_defrag_time", |s| (s.node.memory.compaction.run_us() / 1000).to_string()),
    ("isotherm_compaction_cpu_percent", |s| share_percent(s.node).to_string()),
    ("isotherm_compaction_cpu_milliseconds", |s| (s.totals().values.compaction_us / 1000).to_string()),
    ("isotherm_huge_pages_cpu_milliseconds", |s| (s.totals().values.collapse_us / 1000).to_string()),
    ("tracking_total_keys", |s| s.node.trackers.keys().to_string()),
    ("tracking_total_items", |s| s.node.trackers.items().to_string()),
    ("tracking_total_prefixes", |s| s.node.trackers.prefixes().to_string()),
    ("unexpected_error_replies", |s| {
        s.node.replication.link.unexpected_errors.load(Ordering::Relaxed).to_string()
    }),
    ("total_error_replies", |s| s.totals().values.error_replies.to_string()),
    ("dump_payload_sanitizations", none),
    ("total_reads_processed", |s| s.totals().values.reads_processed.to_string()),
    ("total_writes_processed", |s| s.totals().values.writes_processed.to_string()),
    ("io_threaded_reads_processed", |s| by_threads(s, s.totals().values.reads_processed)),
    ("io_threaded_writes_processed", |s| by_threads(s, s.totals().values.writes_processed)),
    ("client_query_buffer_limit_disconnections", |s| {
        s.totals().values.query_buffer_limit_disconnections.to_string()
    }),
    ("client_output_buffer_limit_disconnections", |s| {
        s.totals().values.output_buffer_limit_disconnections.to_string()
    }),
    ("eventloop_cycles", |s| s.totals().values.eventloop_cycles.to_string()),
    ("eventloop_duration_sum", |s| s.node.stats.micros(s.totals().values.eventloop_ticks).to_string()),
    ("eventloop_duration_cmd_sum", |s| {
        s.totals().commands.iter().map(|command| command.usec).sum::<u64>().to_string()
    }),
    ("instantaneous_eventloop_cycles_per_sec", |s| s.node.stats.rates().cycles.to_string()),
    ("instantaneous_eventloop_duration_usec", |s| {
        let rates = s.node.stats.rates();
        rates.busy_us.checked_div(rates.cycles).unwrap_or_default().to_string()
    }),
    ("acl_access_denied_auth", |s| denied(s, |denied| &denied.auth)),
    ("acl_access_denied_cmd", |s| denied(s, |denied| &denied.command)),
    ("acl_access_denied_key", |s| denied(s, |denied| &denied.key)),
    ("acl_access_denied_channel", |s| denied(s, |denied| &denied.channel)),
    ("acl_access_denied_tls_cert", |s| denied(s, |denied| &denied.tls_certificate)),
    ("acl_access_denied_db", |s| denied(s, |denied| &denied.database)),
];

fn denied(snapshot: &Snapshot<'_>, of: impl Fn(&Denied) -> &AtomicU64) -> String {
    of(snapshot.node.users.denied()).load(Relaxed).to_string()
}

/// A single worker does its reading and writing itself; several are what `io-threads` asked for.
fn by_threads(snapshot: &Snapshot<'_>, count: u64) -> String {
    if snapshot.node.worker_count() > 1 { count.to_string() } else { "0".into() }
}

fn kilobytes(bytes: u64) -> String {
    format!("{:.2}", bytes as f64 / 1024.0)
}

pub const DEBUG: &[Field] = &[
    ("eventloop_duration_aof_sum", none),
    ("eventloop_duration_cron_sum", |s| {
        s.node.stats.micros(s.node.control_stats().values.eventloop_ticks.get()).to_string()
    }),
    ("eventloop_duration_max", |s| s.node.stats.micros(longest(s, |cycles| &cycles.ticks_max)).to_string()),
    ("eventloop_cmd_per_cycle_max", |s| longest(s, |cycles| &cycles.commands_max).to_string()),
    ("eventloop_bytes_per_cycle_max", |s| longest(s, |cycles| &cycles.bytes_max).to_string()),
];

fn sync_counts<'n>(snapshot: &Snapshot<'n>) -> &'n SyncCounts {
    &snapshot.node.replication.primary.counts
}

fn longest(snapshot: &Snapshot<'_>, of: fn(&CycleCounters) -> &Counter) -> u64 {
    snapshot.node.stats.threads().iter().map(|thread| of(&thread.cycles).get()).max().unwrap_or_default()
}

pub const CPU: &[Field] = &[
    ("used_cpu_sys", |s| format!("{:.6}", s.facts.cpu().system)),
    ("used_cpu_user", |s| format!("{:.6}", s.facts.cpu().user)),
    ("used_cpu_sys_children", |_| "0.000000".into()),
    ("used_cpu_user_children", |_| "0.000000".into()),
    ("used_cpu_sys_main_thread", |s| format!("{:.6}", s.facts.control_cpu().system)),
    ("used_cpu_user_main_thread", |s| format!("{:.6}", s.facts.control_cpu().user)),
    ("used_active_time_main_thread", |s| format!("{:.6}", s.facts.control_cpu_seconds())),
];

pub const SCRIPTING_ENGINES: &[Field] = &[
    ("engines_count", |_| "1".into()),
    ("engines_total_used_memory", |s| interpreter_bytes(s).to_string()),
    // An engine allocates nothing besides its interpreters.
    ("engines_total_memory_overhead", none),
    ("engine_0", |s| {
        let bytes = interpreter_bytes(s);
        format!("name=LUA,module=lua,abi_version=4,used_memory={bytes},memory_overhead=0")
    }),
];

/// Returns the bytes of the interpreters of all workers, for scripts and for functions.
fn interpreter_bytes(s: &Snapshot<'_>) -> u64 {
    s.node.scripts.interpreter_bytes() + s.node.libraries.interpreter_bytes()
}

/// Returns the bytes of the texts of scripts and libraries, and of their entries.
fn script_bytes(s: &Snapshot<'_>) -> u64 {
    s.node.scripts.bytes() + s.node.libraries.bytes()
}

pub const TLS: &[Field] = &[
    ("tls_server_cert_serial", |s| tls_serial(s, |contexts| Some(&contexts.server_facts))),
    ("tls_server_cert_expires_in_seconds", |s| tls_left(s, |contexts| Some(&contexts.server_facts))),
    ("tls_client_cert_serial", |s| tls_serial(s, |contexts| contexts.client_facts.as_ref())),
    ("tls_client_cert_expires_in_seconds", |s| tls_left(s, |contexts| contexts.client_facts.as_ref())),
    ("tls_ca_cert_serial", |s| tls_serial(s, |contexts| contexts.authority_facts.as_ref())),
    ("tls_ca_cert_expires_in_seconds", |s| tls_left(s, |contexts| contexts.authority_facts.as_ref())),
];

type OfContexts = fn(&Contexts) -> Option<&Facts>;

fn tls_facts<T>(s: &Snapshot<'_>, of: OfContexts, shown: impl Fn(&Facts) -> T) -> Option<T> {
    let contexts = s.node.tls.contexts().filter(|_| tls::is_used(&s.node.config))?;
    of(&contexts).map(shown)
}

fn tls_serial(s: &Snapshot<'_>, of: OfContexts) -> String {
    tls_facts(s, of, |facts| facts.serial.clone()).unwrap_or_else(|| "none".into())
}

fn tls_left(s: &Snapshot<'_>, of: OfContexts) -> String {
    tls_facts(s, of, |facts| (facts.not_after_s - s.now.0 / 1000).max(0)).unwrap_or_default().to_string()
}

pub const CLUSTER: &[Field] = &[("cluster_enabled", |s| u8::from(s.node.cluster.is_enabled()).to_string())];
