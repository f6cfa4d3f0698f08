//! The sections of INFO, in their order.

use super::cluster::{CLUSTER, CLUSTER_INFO};
use super::commands::{COMMAND_STATS, ERROR_STATS, LATENCY_STATS, LOCKS};
use super::keyspace::{IDLE_TIMES, KEY_SIZES, KEYSPACE};
use super::memory::{MEMORY, MEMORY_MAP};
use super::persistence::PERSISTENCE;
use super::replication::REPLICATION;
use super::row::Row;
use super::server::{CLIENTS, CPU, SCRIPTING_ENGINES, SERVER, TLS};
use super::stats::{DEBUG, STATS};
use super::swap::{REDIS_SSDB, SWAP};

pub struct Section {
    /// Name by which INFO is asked for the section.
    pub name: &'static str,
    pub title: &'static str,
    /// Shown when nothing in particular is asked for.
    pub by_default: bool,
    /// Shown only when it is asked for by its name.
    pub is_hidden: bool,
    pub rows: &'static [Row],
}

pub const SECTIONS: &[Section] = &[
    section("server", "Server", SERVER),
    section("tls", "TLS", TLS),
    section("clients", "Clients", CLIENTS),
    section("memory", "Memory", MEMORY),
    // Not with `everything`: asking the kernel takes ten milliseconds a gigabyte, and a client that asks for
    // all seldom reads it.
    hidden(section("memorymap", "MemoryMap", MEMORY_MAP)),
    section("persistence", "Persistence", PERSISTENCE),
    section("stats", "Stats", STATS),
    section("replication", "Replication", REPLICATION),
    section("cpu", "CPU", CPU),
    section("modules", "Modules", &[]),
    only_asked(section("commandstats", "Commandstats", COMMAND_STATS)),
    section("errorstats", "Errorstats", ERROR_STATS),
    only_asked(section("latencystats", "Latencystats", LATENCY_STATS)),
    section("cluster", "Cluster", CLUSTER),
    only_asked(section("swap", "Swap", SWAP)),
    only_asked(section("redis-ssdb", "Redis-SSDB", REDIS_SSDB)),
    only_asked(section("cluster_info", "Cluster Info", CLUSTER_INFO)),
    section("scriptingengines", "Scripting Engines", SCRIPTING_ENGINES),
    section("keyspace", "Keyspace", KEYSPACE),
    // COMPAT(observability): INFO has the section Keysizes of Redis 8, with the bytes that a string is stored
    // in (1 to 8 for an integer), and the sections MemoryMap, Locks and Idletimes of its own. Why: they
    // answer where memory and time go without a scan.
    section("keysizes", "Keysizes", KEY_SIZES),
    only_asked(section("locks", "Locks", LOCKS)),
    // Nor this, for which some hundred pages of each database are read.
    hidden(section("idletimes", "Idletimes", IDLE_TIMES)),
    hidden(section("debug", "Debug", DEBUG)),
];

const fn section(name: &'static str, title: &'static str, rows: &'static [Row]) -> Section {
    Section { name, title, by_default: true, is_hidden: false, rows }
}

const fn only_asked(section: Section) -> Section {
    Section { by_default: false, ..section }
}

const fn hidden(section: Section) -> Section {
    Section { is_hidden: true, by_default: false, ..section }
}

#[cfg(test)]
mod tests {
    use crate::observe::info::row::Type;
    use crate::observe::info::rows;

    #[test]
    fn fields_and_metrics_are_declared_once() {
        // The lines of families are not known before they are made.
        let fields = || rows().filter(|row| !row.name.contains('*'));
        let metrics = fields().flat_map(|row| row.metrics().map(|metric| metric.name(row) + " as a metric"));
        let mut names: Vec<String> = fields().map(|row| row.name.to_string()).chain(metrics).collect();
        names.sort_unstable();
        let twice: Vec<_> = names.windows(2).filter(|pair| pair[0] == pair[1]).collect();
        assert!(twice.is_empty(), "{twice:?}");
    }

    #[test]
    fn own_metrics_are_in_their_document() {
        let text = include_str!("../../../../../docs/metrics.md");
        let named: Vec<&str> = text.split('`').skip(1).step_by(2).collect();
        for (row, metric) in rows().flat_map(|row| row.metrics().map(move |metric| (row, metric))) {
            let name = metric.name(row);
            if name.starts_with("redis_") {
                continue;
            }
            let is_named = |pattern: &&&str| match pattern.split_once(['*', '{']) {
                Some((start, _)) => start.starts_with("isotherm_") && name.starts_with(start),
                None => **pattern == name,
            };
            assert!(named.iter().find(is_named).is_some(), "docs/metrics.md does not name {name}");
            assert!(metric.kind != Type::Counter || name.ends_with("_total"), "{name}");
        }
    }
}
