//! The sections of INFO, in their order, and those whose lines are not known beforehand.

use super::cluster::cluster_info;
use super::fields::{
    CLIENTS, CLUSTER, CPU, DEBUG, Field, MEMORY, PERSISTENCE, SCRIPTING_ENGINES, SERVER, STATS, TLS,
};
use super::snapshot::Snapshot;
use super::swap;
use isotherm_durability::aof;
use isotherm_durability::persistence::report::loading_lines;
use isotherm_keyspace::{Db, SIZE_BINS, SIZED_TYPES, Type};
use isotherm_node::observe::hold_causes::{cause_name, is_bounded_cause};
use isotherm_node::observe::holds::HoldTimes;
use isotherm_replicas::replication::report;
use std::fmt::Write;

pub struct Section {
    /// Name by which INFO is asked for the section.
    pub name: &'static str,
    pub title: &'static str,
    /// Shown when nothing in particular is asked for.
    pub by_default: bool,
    /// Shown only when it is asked for by its name.
    pub is_hidden: bool,
    pub body: Body,
}

pub enum Body {
    Fields(&'static [Field]),
    Lines(fn(&Snapshot<'_>, &mut String)),
}

pub const SECTIONS: &[Section] = &[
    section("server", "Server", Body::Lines(server)),
    section("tls", "TLS", Body::Fields(TLS)),
    section("clients", "Clients", Body::Fields(CLIENTS)),
    section("memory", "Memory", Body::Fields(MEMORY)),
    // Not with `everything`: asking the kernel takes ten milliseconds a gigabyte, and a client that asks for
    // all seldom reads it.
    hidden(section("memorymap", "MemoryMap", Body::Lines(memory_map))),
    section("persistence", "Persistence", Body::Lines(persistence)),
    section("stats", "Stats", Body::Lines(stats)),
    section("replication", "Replication", Body::Lines(replication)),
    section("cpu", "CPU", Body::Lines(cpu)),
    section("modules", "Modules", Body::Fields(&[])),
    only_asked(section("commandstats", "Commandstats", Body::Lines(command_stats))),
    section("errorstats", "Errorstats", Body::Lines(error_stats)),
    only_asked(section("latencystats", "Latencystats", Body::Lines(latency_stats))),
    section("cluster", "Cluster", Body::Fields(CLUSTER)),
    only_asked(section("swap", "Swap", Body::Lines(swap::swap))),
    only_asked(section("redis-ssdb", "Redis-SSDB", Body::Lines(swap::redis_ssdb))),
    only_asked(section("cluster_info", "Cluster Info", Body::Lines(cluster_lines))),
    section("scriptingengines", "Scripting Engines", Body::Fields(SCRIPTING_ENGINES)),
    section("keyspace", "Keyspace", Body::Lines(keyspace)),
    // COMPAT(observability): INFO has the section Keysizes of Redis 8, with the bytes that a string is stored in (1
    // to 8 for an integer), and the sections MemoryMap, Locks and Idletimes of its own. Why: they answer where
    // memory and time go without a scan.
    section("keysizes", "Keysizes", Body::Lines(key_sizes)),
    only_asked(section("locks", "Locks", Body::Lines(locks))),
    // Nor this, for which some hundred pages of each database are read.
    hidden(section("idletimes", "Idletimes", Body::Lines(idle_times))),
    hidden(section("debug", "Debug", Body::Fields(DEBUG))),
];

const fn section(name: &'static str, title: &'static str, body: Body) -> Section {
    Section { name, title, by_default: true, is_hidden: false, body }
}

fn cluster_lines(snapshot: &Snapshot<'_>, out: &mut String) {
    out.push_str(&cluster_info(snapshot.node).unwrap_or_default());
}

fn persistence(snapshot: &Snapshot<'_>, out: &mut String) {
    PERSISTENCE.iter().for_each(|(name, value)| line(out, format_args!("{name}:{}", value(snapshot))));
    let lines = aof::report::lines(snapshot.node).into_iter().chain(loading_lines(snapshot.node.store()));
    for (name, value) in lines {
        line(out, format_args!("{name}:{value}"));
    }
}

fn stats(snapshot: &Snapshot<'_>, out: &mut String) {
    STATS.iter().for_each(|(name, value)| line(out, format_args!("{name}:{}", value(snapshot))));
    swap::hits(snapshot, out);
}

fn replication(snapshot: &Snapshot<'_>, out: &mut String) {
    for (name, value) in report::lines(snapshot.node) {
        line(out, format_args!("{name}:{value}"));
    }
}

const fn only_asked(section: Section) -> Section {
    Section { by_default: false, ..section }
}

const fn hidden(section: Section) -> Section {
    Section { is_hidden: true, by_default: false, ..section }
}

fn server(snapshot: &Snapshot<'_>, out: &mut String) {
    for (name, value) in SERVER {
        // Clients that only know Redis look for the field by Redis' name.
        let as_redis = *name == "server_mode" && snapshot.node.config.extended_redis_compatibility();
        let name = if as_redis { "redis_mode" } else { name };
        line(out, format_args!("{name}:{}", value(snapshot)));
    }
    let config = &snapshot.node.config;
    let mut listeners = Vec::new();
    let binds: String = config.bind().iter().map(|address| format!("bind={address},")).collect();
    if config.port() != 0 {
        listeners.push(format!("name=tcp,{binds}port={}", config.port()));
    }
    if let Some(path) = config.unix_socket() {
        listeners.push(format!("name=unix,bind={}", path.display()));
    }
    if config.tls_port() != 0 {
        listeners.push(format!("name=tls,{binds}port={}", config.tls_port()));
    }
    if let Some(left_ms) = snapshot.node.process.ending.left_ms(snapshot.now) {
        line(out, format_args!("shutdown_in_milliseconds:{left_ms}"));
    }
    if let Some(refused_for) = snapshot.node.process.wish.refused_for() {
        line(out, format_args!("shutdown_refused_seconds:{}", refused_for.as_secs()));
    }
    for (at, listener) in listeners.iter().enumerate() {
        line(out, format_args!("listener{at}:{listener}"));
    }
}

fn cpu(snapshot: &Snapshot<'_>, out: &mut String) {
    for (name, value) in CPU {
        line(out, format_args!("{name}:{}", value(snapshot)));
    }
    // Workers are what Valkey calls I/O threads; the first of its threads is the main thread, ours the control thread.
    // COMPAT(observability): In INFO cpu the *main thread* is the control thread, and the I/O threads are the
    // workers. Why: these threads come closest to Valkey's.
    let stats = &snapshot.node.stats;
    for (number, thread) in stats.threads().iter().take(snapshot.node.worker_count()).enumerate() {
        let busy_us = stats.micros(thread.values.eventloop_ticks.get());
        line(out, format_args!("used_active_time_io_thread_{}:{:.6}", number + 1, busy_us as f64 / 1e6));
    }
}

fn command_stats(snapshot: &Snapshot<'_>, out: &mut String) {
    let totals = &snapshot.totals().commands;
    for (entry, total) in snapshot.node.commands.all().iter().zip(totals) {
        if total.calls == 0 && total.rejected == 0 && total.failed == 0 {
            continue;
        }
        let per_call = if total.calls == 0 { 0.0 } else { total.usec as f64 / total.calls as f64 };
        line(
            out,
            format_args!(
                "cmdstat_{}:calls={},usec={},usec_per_call={per_call:.2},rejected_calls={},failed_calls={}",
                entry.name, total.calls, total.usec, total.rejected, total.failed
            ),
        );
    }
}

fn latency_stats(snapshot: &Snapshot<'_>, out: &mut String) {
    let percentiles = snapshot.node.config.latency_percentiles();
    for entry in snapshot.node.commands.all() {
        let times = snapshot.node.stats.latency(entry.index);
        if times.calls() == 0 {
            continue;
        }
        let value = |text: &String| {
            let percent = text.parse().expect("the parameter is checked when it is set");
            format!("p{text}={:.3}", times.percentile_ns(percent) as f64 / 1000.0)
        };
        let values: Vec<String> = percentiles.iter().map(value).collect();
        line(out, format_args!("latency_percentiles_usec_{}:{}", entry.name, values.join(",")));
    }
}

fn error_stats(snapshot: &Snapshot<'_>, out: &mut String) {
    for (code, count) in &snapshot.totals().errors {
        // What would break a line of INFO.
        let code = String::from_utf8_lossy(code).replace(['#', ':', '\n', '\r'], "_");
        line(out, format_args!("errorstat_{code}:count={count}"));
    }
}

fn memory_map(snapshot: &Snapshot<'_>, out: &mut String) {
    let Some(map) = snapshot.memory_map() else { return };
    let mut show = |name: &str, bytes: i64| line(out, format_args!("memorymap_{name}:{bytes}"));
    map.used.iter().for_each(|part| show(part.name, part.bytes));
    show("used", map.used_bytes);
    map.resident.iter().for_each(|part| show(part.name, part.bytes));
    show("total", map.total_bytes);
    map.beside.iter().for_each(|part| show(&format!("beside_{}", part.name), part.bytes));
}

fn keyspace(snapshot: &Snapshot<'_>, out: &mut String) {
    for size in snapshot.databases.iter().filter(|size| size.keys > 0) {
        line(
            out,
            format_args!(
                "db{}:keys={},expires={},avg_ttl={},keys_with_volatile_items={}",
                size.db.0, size.keys, size.volatile, size.average_ttl_ms, size.timed_hashes
            ),
        );
    }
}

/// Writes the sizes of keys as Redis 8 does: `db0_distrib_strings_sizes:1=3,2=5,1K=1`.
fn key_sizes(snapshot: &Snapshot<'_>, out: &mut String) {
    for bins in &snapshot.bins {
        for (kind, counts) in SIZED_TYPES.iter().zip(&bins.sizes) {
            let what = match kind {
                Type::String => "strings_sizes",
                Type::List => "lists_items",
                Type::Set => "sets_items",
                Type::Zset => "zsets_items",
                _ => "hashes_items",
            };
            distribution(out, bins.db, what, counts);
        }
    }
}

/// Writes the idle times of the keys that were sampled, in seconds.
fn idle_times(snapshot: &Snapshot<'_>, out: &mut String) {
    for (db, idle) in snapshot.bins.iter().filter_map(|bins| Some((bins.db, bins.idle.as_ref()?))) {
        line(out, format_args!("db{}_idle_keys_sampled:{}", db.0, idle.keys));
        distribution(out, db, "idle_seconds", &idle.bins);
    }
}

/// Writes the holds of all causes together, then of each: `lock_get:holds=1,usec=120,...`, and as `gate_...`
/// the holds of every partition.
fn locks(snapshot: &Snapshot<'_>, out: &mut String) {
    let (node, totals) = (snapshot.node, snapshot.node.stats.hold_totals());
    let (mut all, mut last_second) = (HoldTimes::default(), HoldTimes::default());
    for total in &totals {
        all.add(total.all);
        last_second.add(total.last_second);
    }
    for (when, times) in [("", all), ("last_second_", last_second)] {
        line(out, format_args!("locks_{when}holds:{}", times.holds));
        line(out, format_args!("locks_{when}usec:{}", times.usec));
        line(out, format_args!("locks_{when}longest_usec:{}", times.longest_usec));
    }
    if cfg!(debug_assertions) {
        let bounded = totals.iter().filter(|total| is_bounded_cause(&node.commands, total.cause));
        let longest = bounded.max_by_key(|total| total.longest_cpu_us);
        line(out, format_args!("locks_longest_cpu_us:{}", longest.map_or(0, |total| total.longest_cpu_us)));
        let name = longest.map_or("", |total| cause_name(&node.commands, total.cause));
        line(out, format_args!("locks_longest_cpu_cause:{name}"));
    }
    for total in &totals {
        let (kind, name) =
            (if total.is_gate { "gate" } else { "lock" }, cause_name(&node.commands, total.cause));
        let [all, last] = [total.all, total.last_second]
            .map(|t| [("holds", t.holds), ("usec", t.usec), ("longest_usec", t.longest_usec)]);
        let all = all.map(|(name, value)| format!("{name}={value}")).join(",");
        let last = last.map(|(name, value)| format!("last_second_{name}={value}")).join(",");
        let cpu = match cfg!(debug_assertions) {
            true => format!(",longest_cpu_us={}", total.longest_cpu_us),
            false => String::new(),
        };
        line(out, format_args!("{kind}_{name}:{all},{last}{cpu}"));
    }
}

fn distribution(out: &mut String, db: Db, what: &str, counts: &[u64; SIZE_BINS]) {
    let used = counts.iter().enumerate().filter(|(_, count)| **count > 0);
    let shown: Vec<String> = used.map(|(bin, count)| format!("{}={count}", bin_label(bin))).collect();
    if !shown.is_empty() {
        line(out, format_args!("db{}_distrib_{what}:{}", db.0, shown.join(",")));
    }
}

/// The smallest number in a bin: 0, 1, 2, 4, ..., 512, 1K, ...
fn bin_label(bin: usize) -> String {
    const UNITS: [&str; 4] = ["", "K", "M", "G"];
    match bin.checked_sub(1) {
        None => "0".into(),
        Some(power) => format!("{}{}", 1u64 << (power % 10), UNITS[power / 10]),
    }
}

fn line(out: &mut String, text: std::fmt::Arguments<'_>) {
    write!(out, "{text}\r\n").expect("a String takes anything");
}
