//! Sections Memory and MemoryMap.

use isotherm_stdx::units::human_bytes;

use super::row::{Lines, Metric, Row, Type, Value, counter, family, field, gauge, metric, none};
use super::snapshot::Snapshot;
use crate::observe::memory_map::{Line, MemoryMap};
use crate::process::start_options;
use isotherm_node::process::system;
use isotherm_replicas::replication::report::Buffers;

pub const MEMORY: &[Row] = &[
    gauge("used_memory", "redis_memory_used_bytes", |s| s.node.used_memory_bytes().into()),
    field("used_memory_human", |s| human_bytes(s.node.used_memory_bytes()).into()),
    gauge("used_memory_rss", "redis_memory_used_rss_bytes", |s| s.facts.rss_bytes().into()),
    field("used_memory_rss_human", |s| human_bytes(s.facts.rss_bytes()).into()),
    gauge("used_memory_peak", "redis_memory_used_peak_bytes", |s| peak(s).into()),
    field("used_memory_peak_human", |s| human_bytes(peak(s)).into()),
    field("used_memory_peak_perc", |s| percent(s.node.used_memory_bytes(), peak(s))),
    // Keys and values with their pages and directories are the dataset; the rest is overhead.
    gauge("used_memory_overhead", "redis_memory_used_overhead_bytes", |s| overhead(s).into()),
    gauge("used_memory_startup", "redis_memory_used_startup_bytes", |s| s.node.memory.startup_bytes().into()),
    gauge("used_memory_dataset", "redis_memory_used_dataset_bytes", |s| s.dataset_bytes().into()),
    field("used_memory_dataset_perc", |s| percent(s.dataset_bytes(), s.node.used_memory_bytes())),
    // COMPAT(observability): `allocator_*` in INFO and MEMORY STATS cover the arenas of the keyspace and the
    // allocator together. Why: most data lies in the arenas, and the ratios would say nothing about it
    // otherwise.
    gauge("allocator_allocated", "redis_*_bytes", |s| s.allocators().allocated.into()),
    gauge("allocator_active", "redis_*_bytes", |s| s.allocators().active.into()),
    gauge("allocator_resident", "redis_*_bytes", |s| s.allocators().resident.into()),
    gauge("allocator_muzzy", "redis_*_bytes", none),
    gauge("total_system_memory", "redis_*_bytes", |_| system::machine_memory_bytes().into()),
    field("total_system_memory_human", |_| human_bytes(system::machine_memory_bytes()).into()),
    gauge("used_memory_lua", "redis_memory_used_lua_bytes", |s| s.node.scripts.interpreter_bytes().into()),
    gauge("used_memory_vm_eval", "redis_memory_used_vm_eval_bytes", |s| {
        s.node.scripts.interpreter_bytes().into()
    }),
    field("used_memory_lua_human", |s| human_bytes(s.node.scripts.interpreter_bytes()).into()),
    gauge("used_memory_scripts_eval", "redis_memory_used_scripts_eval_bytes", |s| {
        s.node.scripts.bytes().into()
    }),
    gauge("number_of_cached_scripts", "redis_*", |s| s.node.scripts.count().into()),
    gauge("number_of_functions", "redis_*", |s| s.node.libraries.function_count().into()),
    gauge("number_of_libraries", "redis_*", |s| s.node.libraries.count().into()),
    gauge("used_memory_vm_functions", "redis_memory_used_vm_functions_bytes", |s| {
        s.node.libraries.interpreter_bytes().into()
    }),
    gauge("used_memory_vm_total", "redis_memory_used_vm_total", |s| s.interpreter_bytes().into()),
    field("used_memory_vm_total_human", |s| human_bytes(s.interpreter_bytes()).into()),
    gauge("used_memory_functions", "redis_memory_used_functions_bytes", |s| s.node.libraries.bytes().into()),
    gauge("used_memory_scripts", "redis_memory_used_scripts_bytes", |s| script_bytes(s).into()),
    field("used_memory_scripts_human", |s| human_bytes(script_bytes(s)).into()),
    gauge("isotherm_memory_limit_bytes", "*", |_| system::memory_bytes().into()),
    gauge("maxmemory", "redis_memory_max_bytes", |s| s.node.config.maxmemory_bytes().into()),
    field("maxmemory_human", |s| human_bytes(s.node.config.maxmemory_bytes()).into()),
    field("maxmemory_policy", |s| s.node.config.eviction_policy_name().into()),
    gauge("allocator_frag_ratio", "redis_*", |s| ratio(s.allocators().active, s.allocators().allocated)),
    gauge("allocator_frag_bytes", "redis_*", |s| excess(s.allocators().active, s.allocators().allocated)),
    gauge("allocator_rss_ratio", "redis_*", |s| ratio(s.allocators().resident, s.allocators().active)),
    gauge("allocator_rss_bytes", "redis_*", |s| excess(s.allocators().resident, s.allocators().active)),
    field("rss_overhead_ratio", |s| ratio(s.facts.rss_bytes(), s.allocators().resident)),
    field("rss_overhead_bytes", |s| excess(s.facts.rss_bytes(), s.allocators().resident)),
    gauge("mem_fragmentation_ratio", "redis_*", |s| ratio(s.facts.rss_bytes(), s.node.used_memory_bytes())),
    gauge("mem_fragmentation_bytes", "redis_*", |s| excess(s.facts.rss_bytes(), s.node.used_memory_bytes())),
    // COMPAT(observability): `mem_not_counted_for_evict` has the backlog and what is kept for a snapshot too,
    // and all of the log that waits for the append-only file: none of it counts for `maxmemory`. Why: no key
    // that leaves makes it less.
    gauge("mem_not_counted_for_evict", "redis_mem_not_counted_for_eviction_bytes", |s| {
        s.node.apart().total().into()
    }),
    gauge("mem_replication_backlog", "redis_*_bytes", |s| Buffers::of(s.node).backlog.into()),
    gauge("mem_total_replication_buffers", "redis_*_bytes", |s| Buffers::of(s.node).total().into()),
    field("mem_replicas_repl_buffer", none),
    gauge("mem_clients_slaves", "redis_*", |s| Buffers::of(s.node).of_replicas().into()),
    gauge("mem_clients_normal", "redis_*", |s| s.node.clients.own_bytes().into()),
    gauge("mem_cluster_links", "redis_*_bytes", |s| {
        s.node.cluster.get().map_or(0, |member| member.bus.link_bytes()).into()
    }),
    field("mem_cluster_slot_import", none),
    field("mem_cluster_slot_export", none),
    gauge("mem_aof_buffer", "redis_*_bytes", |s| Buffers::of(s.node).of_aof(s.node).into()),
    field("mem_allocator", |_| isotherm_allocator::name().into()),
    gauge("mem_overhead_db_hashtable_rehashing", "redis_*_bytes", none),
    gauge("active_defrag_running", "redis_*", |s| s.node.memory.compaction.percent().into()),
    // COMPAT(observability): `lazyfreed_objects` counts DEL's large collections whatever
    // `lazyfree-lazy-user-del` says, and the keys of FLUSHALL without SYNC whatever
    // `lazyfree-lazy-user-flush` says; of a stream it looks at the entries, not at their nodes. Why: these
    // options have no effect: what is large is freed in steps, and of up to 1,000 elements at once in
    // microseconds.
    gauge("lazyfree_pending_objects", "redis_*", |s| s.node.keyspace.lazy_frees().0.into()),
    gauge("lazyfreed_objects", "redis_*", |s| s.node.keyspace.lazy_frees().1.into()),
    gauge("isotherm_arena_live_bytes", "*", |s| s.arenas().live.into()),
    gauge("isotherm_arena_slab_bytes", "*", |s| s.arenas().slabs.into()),
    gauge("isotherm_arena_partial_free_bytes", "*", |s| s.arenas().partial_free.into()),
    gauge("isotherm_arena_tail_bytes", "*", |s| s.arenas().tails.into()),
    gauge("isotherm_arena_free_slab_bytes", "*", |s| s.arenas().free_slabs.into()),
    gauge("isotherm_arena_metadata_bytes", "*", |s| s.arenas().metadata.into()),
    gauge("isotherm_arena_committed_bytes", "*", |s| s.arenas().committed.into()),
    gauge("isotherm_arena_reserved_bytes", "*", |s| s.arenas().reserved.into()),
    // What does not count for maxmemory, one by one, and the limit of the first.
    gauge("isotherm_not_counted_log_bytes", "*", |s| s.node.apart().log.into()),
    gauge("isotherm_not_counted_replica_bytes", "*", |s| s.node.apart().replicas.into()),
    gauge("isotherm_not_counted_snapshot_bytes", "*", |s| s.node.apart().snapshot.into()),
    gauge("isotherm_log_limit_bytes", "*", |s| s.node.config.log_memory_bytes().into()),
    gauge("isotherm_maxmemory_excess_bytes", "*", |s| s.node.memory.excess_bytes().into()),
    gauge("isotherm_allocator_retained_bytes", "*", |s| s.allocators().retained.into()),
    gauge("isotherm_allocator_metadata_bytes", "*", |s| s.allocators().metadata.into()),
    field("isotherm_allocator_options", |_| start_options::shown().into()),
    counter("isotherm_allocator_lock_waits", "*_total", |_| {
        isotherm_allocator::lock_waits().unwrap_or_default().into()
    }),
    gauge("isotherm_malloc_bytes", "*", |_| isotherm_allocator::allocated_bytes().into()),
];

fn ratio(part: u64, whole: u64) -> Value {
    format!("{:.2}", part as f64 / whole.max(1) as f64).into()
}

fn excess(part: u64, whole: u64) -> Value {
    (part as i64 - whole as i64).into()
}

/// The cron looks now and then; what is used now may be more than it has ever seen.
fn peak(s: &Snapshot<'_>) -> u64 {
    s.node.memory.peak_bytes().max(s.node.used_memory_bytes())
}

fn overhead(s: &Snapshot<'_>) -> u64 {
    s.node.used_memory_bytes().saturating_sub(s.dataset_bytes())
}

fn percent(part: u64, whole: u64) -> Value {
    format!("{:.2}%", part as f64 * 100.0 / whole.max(1) as f64).into()
}

/// Returns the bytes of the texts of scripts and libraries, and of their entries.
fn script_bytes(s: &Snapshot<'_>) -> u64 {
    s.node.scripts.bytes() + s.node.libraries.bytes()
}

/// Lines of the map, if it was asked for. The metric has the parts, not their sums.
pub const MEMORY_MAP: &[Row] = &[
    family("memorymap_*", |s| map_lines(s, |map| &map.used), &[map_metric("part=\"*\"")]),
    field("memorymap_used", |s| s.memory_map().map(|map| map.used_bytes).into()),
    family("memorymap_*", |s| map_lines(s, |map| &map.resident), &[map_metric("part=\"*\"")]),
    field("memorymap_total", |s| s.memory_map().map(|map| map.total_bytes).into()),
    family("memorymap_beside_*", |s| map_lines(s, |map| &map.beside), &[map_metric("part=\"beside_*\"")]),
];

const fn map_metric(labels: &'static str) -> Metric {
    metric("isotherm_memory_map_bytes", Type::Gauge, "Where memory is: `memorymap_*` of INFO.", labels)
}

fn map_lines(s: &Snapshot<'_>, of: fn(&MemoryMap) -> &Vec<Line>) -> Lines {
    let lines = s.memory_map().map(of).into_iter().flatten();
    lines.map(|line| (line.name.to_string(), line.bytes.to_string())).collect()
}
