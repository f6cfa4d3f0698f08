//! LATENCY DOCTOR: what was too slow, in words, with advice.

use isotherm_log::writer::FsyncPolicy;
use std::fmt::Write;

use isotherm_durability::aof;
use isotherm_node::Node;
use isotherm_node::observe::command_log::Kind;

/// A piece of advice, in the order in which they are given.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Advice {
    EnableSlowLog,
    TuneSlowLog,
    ReadSlowLog,
    Scheduler,
    LocalDisk,
    SolidStateDisk,
    DiskContention,
    RelaxedSync,
    Hz,
    LargeObjects,
    MassEviction,
    ReadLocks,
    HugePages,
}

pub fn report(node: &Node, now_seconds: i64) -> String {
    // COMPAT(observability): LATENCY DOCTOR and MEMORY DOCTOR report in words of their own. Why: people read
    // them, no program compares them, and the advice is about this server.
    let (all, threshold) = (node.latency.all(), node.config.latency_threshold_ms());
    if all.is_empty() && threshold.is_none() {
        return "Nothing is recorded: latency monitoring is off. CONFIG SET latency-monitor-threshold <milliseconds> switches \
                it on.\n"
            .into();
    }
    let mut out = String::new();
    let mut advice: Vec<Advice> = Vec::new();
    if !all.is_empty() {
        out.push_str("Slow events:\n\n");
    }
    for (at, (name, series)) in all.iter().enumerate() {
        let figures = series.analysis(now_seconds);
        writeln!(
            out,
            "{}. {name}: {} latency spikes (average {}ms, mean deviation {}ms, one every {:.2} s). The slowest ever took \
             {}ms.",
            at + 1,
            series.samples.len(),
            figures.average_ms,
            figures.mean_deviation_ms,
            figures.period_seconds,
            series.max_ms
        )
        .expect("a String takes anything");
        advice.extend(advice_on(name, node));
    }
    if huge_pages_used() {
        advice.push(Advice::HugePages);
    }
    advice.sort_unstable();
    advice.dedup();
    match (all.is_empty(), advice.is_empty()) {
        (true, true) => {
            out.push_str("No event was slower than the threshold since the start, or since LATENCY RESET.\n")
        }
        (false, true) => out.push_str("\nThere is no simple advice about these.\n"),
        (_, false) => {
            out.push_str("\nAdvice:\n\n");
            let threshold_us = threshold.unwrap_or(0).saturating_mul(1000);
            advice.iter().for_each(|advice| out.push_str(&text(*advice, threshold_us)));
        }
    }
    out
}

fn advice_on(event: &str, node: &Node) -> Vec<Advice> {
    let threshold_ms = node.config.latency_threshold_ms().unwrap_or(0);
    match event {
        "command" => {
            let mut advice = vec![Advice::ReadSlowLog, Advice::LargeObjects];
            match Kind::Slow.threshold(&node.config) {
                None => advice.push(Advice::EnableSlowLog),
                Some(slow_us) if slow_us / 1000 > threshold_ms => advice.push(Advice::TuneSlowLog),
                Some(_) => {}
            }
            advice
        }
        "fast-command" => vec![Advice::Scheduler],
        "aof-write-pending-fsync" => vec![Advice::LocalDisk, Advice::DiskContention, Advice::SolidStateDisk],
        "aof-write-active-child" => vec![Advice::SolidStateDisk],
        "aof-write-alone" | "aof-rename" => vec![Advice::LocalDisk, Advice::SolidStateDisk],
        "aof-fsync-always" if aof::settings::policy(node) == FsyncPolicy::Always => vec![Advice::RelaxedSync],
        "rdb-unlink-temp-file" => vec![Advice::DiskContention, Advice::LocalDisk],
        "expire-cycle" if node.config.hz() < 100 => vec![Advice::Hz, Advice::LargeObjects],
        "expire-cycle" => vec![Advice::LargeObjects],
        "eviction-cycle" => vec![Advice::MassEviction],
        "swap-read" => vec![Advice::DiskContention, Advice::LocalDisk, Advice::SolidStateDisk],
        "lock" => vec![Advice::ReadLocks],
        _ => Vec::new(),
    }
}

fn text(advice: Advice, threshold_us: u64) -> String {
    match advice {
        Advice::EnableSlowLog => format!(
            "- The slow log is off, so the slow commands are not known. 'CONFIG SET slowlog-log-slower-than \
             {threshold_us}' records them.\n"
        ),
        Advice::TuneSlowLog => format!(
            "- The slow log begins above the threshold of the latency monitor, and misses some of these commands. 'CONFIG SET \
             slowlog-log-slower-than {threshold_us}' makes the two equal.\n"
        ),
        Advice::ReadSlowLog => "- SLOWLOG GET shows which commands are slow, and their arguments.\n".into(),
        Advice::Scheduler => "- Commands that wait for nothing were slow, so threads of the server waited for a CPU. Other \
                              programs or virtual machines of this host take it; give the server cores of its own.\n"
            .into(),
        Advice::LocalDisk => "- If the data directory is on a network volume, move it to a local disk: each sync of an \
                              append-only file crosses the network.\n"
            .into(),
        Advice::SolidStateDisk => "- If the data directory is on a rotating disk, move it to an SSD: it syncs faster, and snapshots and \
                                   rewrites end sooner.\n"
            .into(),
        Advice::DiskContention => "- Other programs may use the same disk. Find them (iostat, iotop), and give the data directory a \
                                   disk of its own.\n"
            .into(),
        Advice::RelaxedSync => "- Under 'appendfsync always' each reply waits for the disk. Under 'everysec' none does, and a crash \
                                may lose the last second.\n"
            .into(),
        Advice::Hz => "- 'CONFIG SET hz 100' splits the expiry of keys into smaller steps.\n".into(),
        Advice::LargeObjects => "- A command over a whole large object takes time in proportion to its size. Split such objects, or read \
                                 them in parts.\n"
            .into(),
        Advice::MassEviction => "- Many keys had to be evicted at once. A lower 'maxmemory' causes that, and so does a command that \
                                 stores a large value (SUNIONSTORE, SORT with STORE, RESTORE).\n"
            .into(),
        Advice::ReadLocks => "- Locks are held for long, and other clients' commands wait meanwhile. INFO locks shows which \
                              commands, or which work of the server itself, have held them (gate_ are those that held \
                              up everybody).\n"
            .into(),
        Advice::HugePages => "- The process has huge pages that it did not ask for. 'echo madvise > \
                              /sys/kernel/mm/transparent_hugepage/enabled' ends that; those that exist stay until the next \
                              start.\n"
            .into(),
    }
}

/// Huge pages that were not asked for. Those under full ranges of the keyspace are no trouble.
fn huge_pages_used() -> bool {
    let enabled = std::fs::read_to_string("/sys/kernel/mm/transparent_hugepage/enabled").unwrap_or_default();
    if !enabled.contains("[always]") {
        return false;
    }
    let text = std::fs::read_to_string("/proc/self/smaps_rollup").unwrap_or_default();
    let line = text.lines().find_map(|line| line.strip_prefix("AnonHugePages:"));
    let kilobytes = line.and_then(|line| line.split_whitespace().next()?.parse::<u64>().ok());
    kilobytes.unwrap_or(0) > 0
}
