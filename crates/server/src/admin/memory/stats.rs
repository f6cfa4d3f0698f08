//! MEMORY STATS.

use isotherm_commands::Outcome;
use isotherm_commands::spec::*;

use crate::admin::{self, AdminCall};
use crate::observe::memory_map::TierBytes;
use isotherm_replicas::replication::report::Buffers;

enum Figure {
    Integer(i64),
    Double(f64),
}

pub const MEMORY_STATS: Spec = Spec {
    name: "stats",
    summary: "Returns figures about the memory of the server, its parts and its databases.",
    since: "4.0.0",
    group: Group::Server,
    complexity: "O(1)",
    arity: 2,
    tips: &["nondeterministic_output", "request_policy:all_shards", "response_policy:special"],
    flags: Flags::ASKS_SYSTEM,
    reach: Reach::Each,
    ..Spec::BASE
};

pub fn stats(call: &mut AdminCall<'_>) -> Outcome {
    let keys: u64 = call.survey().databases().iter().map(|database| database.keys).sum();
    let tier = TierBytes::of(call.node, &mut call.survey());
    let snapshot = admin::snapshot(call);
    let used = call.node.used_memory_bytes();
    let dataset = snapshot.dataset_bytes();
    let peak = call.node.memory.peak_bytes().max(used);
    let rss = snapshot.facts.rss_bytes();
    let figures = *snapshot.allocators();
    let ratio = |part: u64, whole: u64| Figure::Double(part as f64 / whole.max(1) as f64);
    let excess = |part: u64, whole: u64| Figure::Integer(part as i64 - whole as i64);
    let bytes = |bytes: u64| Figure::Integer(bytes as i64);
    let percent = |part: u64, whole: u64| Figure::Double(part as f64 * 100.0 / whole.max(1) as f64);
    let buffers = Buffers::of(call.node);
    // COMPAT(observability): MEMORY STATS has no `db.N`. Why: there are no tables per database whose overhead
    // could be reported.
    let fields = [
        ("peak.allocated", bytes(peak)),
        ("total.allocated", bytes(used)),
        ("startup.allocated", bytes(call.node.memory.startup_bytes())),
        ("replication.backlog", bytes(buffers.backlog)),
        ("replicas.repl.buffer", bytes(0)),
        ("clients.slaves", bytes(buffers.of_replicas())),
        ("clients.normal", bytes(call.node.clients.own_bytes())),
        ("cluster.links", bytes(0)),
        ("cluster.slot_import", bytes(0)),
        ("cluster.slot_export", bytes(0)),
        ("aof.buffer", bytes(buffers.of_aof(call.node))),
        ("lua.caches", bytes(call.node.scripts.bytes())),
        ("functions.caches", bytes(call.node.libraries.bytes())),
        // COMPAT(observability): MEMORY STATS has `tier.bytes`, what values on disk take in memory beside
        // their entries (MEMORY MAP has its parts). Why: with `swap-mode` it is part of what is used.
        ("tier.bytes", bytes(tier.total())),
        // There are pages instead of tables.
        ("overhead.db.hashtable.lut", bytes(0)),
        ("overhead.db.hashtable.rehashing", bytes(0)),
        ("overhead.total", bytes(used.saturating_sub(dataset))),
        ("db.dict.rehashing.count", bytes(0)),
        ("keys.count", bytes(keys)),
        ("keys.bytes-per-key", bytes(dataset.checked_div(keys).unwrap_or_default())),
        ("dataset.bytes", bytes(dataset)),
        ("dataset.percentage", percent(dataset, used)),
        ("peak.percentage", percent(used, peak)),
        ("allocator.allocated", bytes(figures.allocated)),
        ("allocator.active", bytes(figures.active)),
        ("allocator.resident", bytes(figures.resident)),
        ("allocator.muzzy", bytes(0)),
        ("allocator-fragmentation.ratio", ratio(figures.active, figures.allocated)),
        ("allocator-fragmentation.bytes", excess(figures.active, figures.allocated)),
        ("allocator-rss.ratio", ratio(figures.resident, figures.active)),
        ("allocator-rss.bytes", excess(figures.resident, figures.active)),
        ("rss-overhead.ratio", ratio(rss, figures.resident)),
        ("rss-overhead.bytes", excess(rss, figures.resident)),
        ("fragmentation", ratio(rss, used)),
        ("fragmentation.bytes", excess(rss, used)),
    ];
    call.reply.map(fields.len());
    for (name, figure) in fields {
        call.reply.bulk(name.as_bytes());
        match figure {
            Figure::Integer(value) => call.reply.integer(value),
            Figure::Double(value) => call.reply.double(value),
        }
    }
    Outcome::Done
}
