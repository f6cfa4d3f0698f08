//! Section Persistence.

use super::row::{Row, Value, counter, field, gauge, none};
use isotherm_durability::aof::rewrite;
use isotherm_durability::persistence::report;
use isotherm_node::persistence::state::Job;
use std::sync::atomic::Ordering::Relaxed;

pub const PERSISTENCE: &[Row] = &[
    field("isotherm_persistence", |s| if s.node.aof.is_on() { "rdb,aof" } else { "rdb" }.into()),
    gauge("loading", "redis_*_dump_file", |s| report::is_loading(s.node.store()).into()),
    gauge("async_loading", "redis_*", none),
    field("current_cow_peak", none),
    // COMPAT(observability): `current_cow_size` is what is kept for a snapshot of what was written since its
    // cut; `current_cow_peak` and `current_cow_size_age` are 0. Why: there is no fork, and the size is
    // counted at any time.
    field("current_cow_size", |s| s.node.keyspace.kept_bytes().into()),
    field("current_cow_size_age", none),
    counter("snapshot_writer_waits", "isotherm_*_total", |s| {
        (&s.node.persistence.progress.writer_waits).into()
    }),
    field("current_fork_perc", |s| format!("{:.2}", s.saving().percent()).into()),
    gauge("current_save_keys_processed", "isotherm_*", |s| s.saving().keys.into()),
    gauge("current_save_keys_total", "isotherm_*", |s| s.saving().keys_total.into()),
    gauge("rdb_changes_since_last_save", "redis_*", |s| s.saving().changes_since.into()),
    gauge("rdb_bgsave_in_progress", "redis_*", |s| s.saving().is_in_background().into()),
    gauge("rdb_last_save_time", "redis_rdb_last_save_timestamp_seconds", |s| {
        s.saving().saving.last_save_seconds.into()
    }),
    gauge("rdb_last_bgsave_status", "redis_*", |s| status(s.saving().saving.last_failed)),
    gauge("rdb_last_bgsave_time_sec", "redis_rdb_last_bgsave_duration_sec", |s| {
        s.saving().saving.last_took_seconds.into()
    }),
    gauge("rdb_current_bgsave_time_sec", "redis_rdb_current_bgsave_duration_sec", |s| {
        s.saving().running_seconds(Job::BackgroundSave).into()
    }),
    gauge("rdb_saves", "redis_*_total", |s| s.saving().saving.saves.into()),
    gauge("rdb_last_cow_size", "redis_*_bytes", none),
    gauge("rdb_last_load_keys_expired", "redis_rdb_last_load_expired_keys", |s| {
        (&s.node.persistence.loading.keys_expired).into()
    }),
    gauge("rdb_last_load_keys_loaded", "redis_rdb_last_load_loaded_keys", |s| {
        (&s.node.persistence.loading.keys_loaded).into()
    }),
    gauge("aof_enabled", "redis_*", |s| s.node.aof.is_on().into()),
    gauge("aof_rewrite_in_progress", "redis_*", |s| rewrite::is_running(s.node).into()),
    gauge("aof_rewrite_scheduled", "redis_*", |s| s.node.aof.rewrites().is_scheduled.into()),
    gauge("aof_last_rewrite_time_sec", "redis_aof_last_rewrite_duration_sec", |s| {
        s.node.aof.rewrites().last_took_seconds.into()
    }),
    gauge("aof_current_rewrite_time_sec", "redis_aof_current_rewrite_duration_sec", |s| {
        s.saving().running_seconds(Job::Rewrite).into()
    }),
    gauge("aof_last_bgrewrite_status", "redis_*", |s| status(s.node.aof.rewrites().last_failed)),
    field("aof_rewrites", |s| s.node.aof.rewrites().begun.into()),
    field("aof_rewrites_consecutive_failures", |s| s.node.aof.rewrites().failures_in_row.into()),
    gauge("aof_last_write_status", "redis_*", |s| status(s.node.aof.failure().is_some())),
    gauge("aof_last_cow_size", "redis_*_bytes", none),
    counter("log_offset", "isotherm_*_total", |s| s.node.log.end().0.into()),
    gauge("module_fork_in_progress", "redis_*", none),
    gauge("module_fork_last_cow_size", "redis_*", none),
    field("slot_migration_fork_in_progress", none),
    // While there is an append-only file.
    gauge("aof_current_size", "redis_*_bytes", |s| s.aof(|aof| aof.current_bytes())),
    gauge("aof_base_size", "redis_*_bytes", |s| s.aof(|aof| aof.rewrites().size_then_bytes)),
    gauge("aof_pending_rewrite", "redis_*", |s| s.aof(|_| 0)),
    gauge("aof_buffer_length", "redis_*", |s| s.aof(|_| s.node.log.unwritten_bytes())),
    gauge("aof_pending_bio_fsync", "redis_*", |s| {
        let end = s.node.log.end();
        s.aof(|aof| aof.durable() < end)
    }),
    gauge("aof_delayed_fsync", "redis_*", |s| s.aof(|_| 0)),
    counter("aof_commits", "isotherm_*_total", |s| s.aof(|aof| aof.commits.load(Relaxed))),
    gauge("aof_held_replies", "isotherm_*", |s| s.aof(|_| s.node.gate.held())),
    counter("log_durable_offset", "isotherm_*_total", |s| s.aof(|aof| aof.durable().0)),
    // While a file is loaded.
    field("loading_start_time", |s| s.loading(|load| load.started_seconds)),
    gauge("loading_total_bytes", "isotherm_*", |s| s.loading(|load| load.total_bytes)),
    field("loading_rdb_used_mem", |s| s.loading(|load| load.used_memory_bytes)),
    gauge("loading_loaded_bytes", "isotherm_*", |s| s.loading(|load| load.loaded_bytes)),
    gauge("loading_loaded_perc", "isotherm_*", |s| s.loading(|load| format!("{:.2}", load.percent()))),
    gauge("loading_eta_seconds", "isotherm_*", |s| s.loading(|load| load.eta_seconds())),
];

fn status(has_failed: bool) -> Value {
    if has_failed { "err" } else { "ok" }.into()
}
