//! Sections Swap and Redis-SSDB: values that are not in memory.

use super::row::{Row, Value, counter, field, gauge, word};
use super::snapshot::Snapshot;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

/// Lines of the section. All but the first are there with `swap-mode`.
pub const SWAP: &[Row] = &[
    field("swap_mode", |s| s.node.config.swaps().into()),
    word("swap_state", "isotherm_*", |s| s.swap(|t| t.state().name())),
    // The reader for commands that wait: a ring or threads.
    word("swap_backend", "isotherm_*", |s| s.swap(|t| t.rings.backend())),
    gauge("swap_direct_io", "isotherm_*", |s| s.swap(|t| t.is_direct())),
    // Memory above which values leave: maxmemory, or a share of the machine's.
    gauge("swap_memory_target", "isotherm_*", |s| s.swap(|_| s.node.config.memory_target_bytes())),
    gauge("swap_keys", "isotherm_*", |s| s.swap(|_| s.cold.keys)),
    gauge("swap_bytes", "isotherm_*", |s| s.swap(|_| s.cold.bytes)),
    // Keys that left memory with their values (`swap-freeze`), and the records that they are in.
    gauge("swap_frozen_keys", "isotherm_*", |s| s.swap(|_| s.cold.frozen_keys)),
    gauge("swap_bundles", "isotherm_*", |s| s.swap(|_| s.cold.bundles)),
    counter("swap_thawed", "isotherm_*_total", |s| s.swap(|_| s.cold.thawed)),
    // Parts of large collections.
    gauge("swap_nodes", "isotherm_*", |s| s.swap(|_| s.cold.nodes)),
    gauge("swap_node_bytes", "isotherm_*", |s| s.swap(|_| s.cold.node_bytes)),
    counter("swap_nodes_came_home", "isotherm_*_total", |s| s.swap(|_| s.cold.nodes_home)),
    // Left again without being written.
    counter("swap_nodes_left_clean", "isotherm_*_total", |s| s.swap(|t| load(&t.counters.clean_nodes))),
    // Frozen keys that were given up (SWAP FORGET).
    counter("swap_lost_keys", "isotherm_*_total", |s| s.swap(|_| s.cold.lost)),
    // Keys that SCAN and KEYS left out, as their record is damaged: each time.
    counter("swap_keys_left_out", "isotherm_*_total", |s| s.swap(|t| load(&t.damaged_records.keys_left_out))),
    gauge("swap_file_bytes", "isotherm_*", |s| s.swap(|t| load(&t.counters.file_bytes))),
    // What values can take of `swap-max-disk`: the rest is for cleaning.
    gauge("swap_usable_bytes", "isotherm_*", |s| s.swap(|t| load(&t.counters.usable_bytes))),
    // Left on the file system.
    gauge("swap_disk_free_bytes", "isotherm_*", |s| s.swap(|t| load(&t.counters.disk_free_bytes))),
    gauge("swap_open_files", "isotherm_*", |s| s.swap(|t| t.files.open_files().0)),
    gauge("swap_live_bytes", "isotherm_*", |s| s.swap(|t| t.live_bytes())),
    gauge("swap_dead_bytes", "isotherm_*", |s| s.swap(|t| load(&t.counters.dead_bytes))),
    // Kept only because the base of the append-only file in force refers to them (`swap-checkpoint`).
    gauge("swap_waiting_segments", "isotherm_*", |s| s.swap(|t| load(&t.counters.waiting_segments))),
    gauge("swap_free_segments", "isotherm_*", |s| s.swap(|t| load(&t.counters.free_segments))),
    counter("swap_sunk_values", "isotherm_*_total", |s| s.swap(|t| load(&t.counters.sunk_values))),
    counter("swap_sunk_bytes", "isotherm_*_total", |s| s.swap(|t| load(&t.counters.sunk_bytes))),
    counter("swap_written_bytes", "isotherm_*_total", |s| s.swap(|t| load(&t.counters.written_bytes))),
    counter("swap_survivor_bytes", "isotherm_*_total", |s| s.swap(|t| load(&t.counters.survivor_bytes))),
    counter("swap_cleaned_segments", "isotherm_*_total", |s| s.swap(|t| load(&t.counters.cleaned_segments))),
    gauge("swap_write_amplification", "isotherm_*", write_amplification),
    gauge("swap_writes_waiting_bytes", "isotherm_*", |s| s.swap(|t| load(&t.counters.group_bytes))),
    counter("swap_slowed_msec", "isotherm_*_total", |s| s.swap(|t| load(&t.counters.slowed_ms))),
    counter("swap_reads", "isotherm_*_total", |s| s.swap(|t| load(&t.counters.reads))),
    counter("swap_read_bytes", "isotherm_*_total", |s| s.swap(|t| load(&t.counters.read_bytes))),
    gauge("swap_read_usec_mean", "isotherm_*", mean_us),
    gauge("swap_read_usec_p50", "isotherm_*", |s| s.swap(|t| t.counters.read_times.percentile_us(50))),
    gauge("swap_read_usec_p99", "isotherm_*", |s| s.swap(|t| t.counters.read_times.percentile_us(99))),
    gauge("swap_reads_waiting", "isotherm_*", |s| s.swap(|t| t.reads_waiting())),
    counter("swap_reads_in_commands", "isotherm_*_total", |s| {
        s.swap(|t| load(&t.counters.reads_in_commands))
    }),
    counter("swap_reads_undeclared", "isotherm_*_total", |s| s.swap(|t| t.undeclared_reads())),
    gauge("swap_lent_values", "isotherm_*", |s| s.swap(|_| s.cold.lent_values)),
    gauge("swap_lent_bytes", "isotherm_*", |s| s.swap(|_| s.cold.lent_bytes)),
    counter("swap_lent_hits", "isotherm_*_total", |s| s.swap(|_| s.cold.lent_hits)),
    counter("swap_came_home", "isotherm_*_total", |s| s.swap(|_| s.cold.came_home)),
    // Of these, what had left within the minute before.
    counter("swap_regrets", "isotherm_*_total", |s| s.swap(|t| load(&t.homes.regrets))),
    counter("swap_write_errors", "isotherm_*_total", |s| s.swap(|t| load(&t.counters.write_errors))),
    counter("swap_read_errors", "isotherm_*_total", |s| s.swap(|t| load(&t.counters.read_errors))),
    counter("swap_damaged", "isotherm_*_total", |s| s.swap(|t| load(&t.counters.damaged))),
    counter("swap_timeouts", "isotherm_*_total", |s| s.swap(|t| t.reads.timeouts())),
    counter("swap_unreadable", "isotherm_*_total", |s| s.swap(|t| load(&t.counters.unreadable))),
    gauge("swap_clean_in_progress", "isotherm_*", |s| s.swap(|t| t.cleanings_wanted.load(Relaxed) > 0)),
    gauge("swap_verify_in_progress", "isotherm_*", |s| s.swap(|t| t.verify.is_wanted.load(Relaxed))),
    // Of the 16384 slots.
    gauge("swap_verify_slots", "isotherm_*", |s| s.swap(|t| load(&t.verify.slots))),
    gauge("swap_verify_keys", "isotherm_*", |s| s.swap(|t| load(&t.verify.keys))),
    gauge("swap_verify_bytes", "isotherm_*", |s| s.swap(|t| load(&t.verify.bytes))),
    gauge("swap_verify_bad_keys", "isotherm_*", |s| s.swap(|t| load(&t.verify.bad))),
    counter("swap_verify_rounds", "isotherm_*_total", |s| s.swap(|t| load(&t.verify.rounds))),
];

fn load(counter: &AtomicU64) -> u64 {
    counter.load(Relaxed)
}

/// Bytes written a byte that has left memory.
fn write_amplification(s: &Snapshot<'_>) -> Value {
    s.swap(|t| {
        let (written, sunk) = (load(&t.counters.written_bytes), load(&t.counters.sunk_bytes));
        format!("{:.2}", if sunk == 0 { 0.0 } else { written as f64 / sunk as f64 })
    })
}

fn mean_us(s: &Snapshot<'_>) -> Value {
    s.swap(|t| load(&t.counters.read_us).checked_div(load(&t.counters.reads)).unwrap_or(0))
}

// COMPAT(observability): With `swap-mode`, INFO has SWAPDB's section Redis-SSDB and `keyspace_hits_ssdb`
// (commands that were shown a value from disk). A key is never between memory and disk here, so
// `keys_loading_from_ssdb`, `keys_transferring_to_ssdb`, `keys_delete_confirming`, `keys_hot_to_be_load` and
// `keys_may_be_deleted` are 0. Why: monitoring of SWAPDB works.
/// Lines of SWAPDB, with its names.
pub const REDIS_SSDB: &[Row] = &[
    field("keys_in_redis_count", |s| s.swap(|_| keys(s).saturating_sub(keys_on_disk(s)))),
    field("keys_in_ssdb_count", |s| s.swap(|_| keys_on_disk(s))),
    field("keys_loading_from_ssdb", |s| s.swap(|_| 0)),
    field("keys_transferring_to_ssdb", |s| s.swap(|_| 0)),
    field("keys_visiting_ssdb", |s| s.swap(|t| t.reads_waiting())),
    field("keys_delete_confirming", |s| s.swap(|_| 0)),
    field("keys_hot_to_be_load", |s| s.swap(|_| 0)),
    field("keys_may_be_deleted", |s| s.swap(|_| 0)),
];

fn keys(s: &Snapshot<'_>) -> u64 {
    s.databases.iter().map(|database| database.keys).sum()
}

fn keys_on_disk(s: &Snapshot<'_>) -> u64 {
    s.cold.keys + s.cold.frozen_keys
}
