//! LATENCY DOCTOR: what was too slow, in words, with advice.

use isotherm_log::writer::FsyncPolicy;
use std::fmt::Write;

use crate::aof;
use crate::node::Node;
use crate::observe::command_log::Kind;

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
    let (all, threshold) = (node.latency.all(), node.config.latency_threshold_ms());
    if all.is_empty() && threshold.is_none() {
        return "I'm sorry, Dave, I can't do that. Latency monitoring is disabled in this Isotherm instance. You may use \
                \"CONFIG SET latency-monitor-threshold <milliseconds>.\" in order to enable it.\n"
            .into();
    }
    let mut out = String::new();
    let mut advice: Vec<Advice> = Vec::new();
    if !all.is_empty() {
        out.push_str("Latency spikes are observed in this Isotherm instance.\n\n");
    }
    for (at, (name, series)) in all.iter().enumerate() {
        let figures = series.analysis(now_seconds);
        writeln!(
            out,
            "{}. {name}: {} latency spikes (average {}ms, mean deviation {}ms, period {:.2} sec). Worst all time event \
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
        (true, true) => out.push_str(
            "No latency spike was observed during the lifetime of this Isotherm instance, not in the slightest bit.\n",
        ),
        (false, true) => out.push_str("\nThere are latency events logged that are not easy to fix.\n"),
        (_, false) => {
            out.push_str("\nHere is some advice for you:\n\n");
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
            "- There are latency issues with potentially slow commands you are using. Try to enable the Slow Log using \
             the command 'CONFIG SET slowlog-log-slower-than {threshold_us}'. If the Slow log is disabled slow commands \
             are not logged for you.\n"
        ),
        Advice::TuneSlowLog => format!(
            "- Your current Slow Log configuration only logs events that are slower than your configured latency monitor \
             threshold. Please use 'CONFIG SET slowlog-log-slower-than {threshold_us}'.\n"
        ),
        Advice::ReadSlowLog => "- Check your Slow Log to understand what are the commands you are running which are too \
                                slow to execute (SLOWLOG GET).\n"
            .into(),
        Advice::Scheduler => "- The system is slow to execute code paths not containing system calls. This usually \
                              means the system does not provide CPU time to run for long periods. You should try to:\n\
                              \x20 1) Lower the system load.\n\
                              \x20 2) Use a computer / VM just for Isotherm if you are running other software in the \
                              same system.\n\
                              \x20 3) Check if you have a \"noisy neighbour\" problem.\n"
            .into(),
        Advice::LocalDisk => "- It is strongly advised to use local disks for persistence, especially if you are using AOF. Remote \
                              disks provided by platform-as-a-service providers are known to be slow.\n"
            .into(),
        Advice::SolidStateDisk => "- SSD disks are able to reduce fsync latency, and total time needed for snapshotting and AOF \
                                   log rewriting.\n"
            .into(),
        Advice::DiskContention => "- Try to lower the disk contention. This is often caused by other disk intensive processes \
                                   running in the same computer (including other Isotherm instances).\n"
            .into(),
        Advice::RelaxedSync => "- Your fsync policy is set to 'always': each reply waits for the disk. If possible try to relax the \
                                fsync policy to 'everysec'.\n"
            .into(),
        Advice::Hz => "- In order to make the expiring of keys more incremental, try to set the 'hz' configuration \
                       parameter to 100 using 'CONFIG SET hz 100'.\n"
            .into(),
        Advice::LargeObjects => "- Commands over whole large objects take as long as these are. If you have very large \
                                 objects, try to fragment those objects into multiple smaller objects.\n"
            .into(),
        Advice::MassEviction => "- Sudden changes to the 'maxmemory' setting via 'CONFIG SET', or allocation of large \
                                 objects via sets or sorted sets intersections, STORE option of SORT or RESTORE may \
                                 create sudden memory pressure forcing the server to evict many keys at once.\n"
            .into(),
        Advice::ReadLocks => "- Locks are held for long, and other clients' commands wait meanwhile. INFO locks shows which \
                              commands, or which work of the server itself, have held them (gate_ are those that held \
                              up everybody).\n"
            .into(),
        Advice::HugePages => "- I detected a non zero amount of anonymous huge pages used by your process. To disable \
                              them use the command 'echo madvise > /sys/kernel/mm/transparent_hugepage/enabled', and \
                              restart the process to get rid of those that it has.\n"
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
