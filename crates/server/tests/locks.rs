//! What the server tells of how long it holds its locks, and for whom.

mod common;

use common::{Client, Server, field};
use std::time::{Duration, Instant};

const OK: &str = "+OK\r\n";

/// A figure of a cause: `lock_lrange:holds=3,...`.
fn figure(info: &str, cause: &str, name: &str) -> Option<u64> {
    let line = info.lines().find_map(|line| line.strip_prefix(cause)?.strip_prefix(':'))?;
    line.split(',').find_map(|pair| pair.strip_prefix(name)?.strip_prefix('=')?.parse().ok())
}

/// Asks until `what` is told.
fn wait_for<T>(client: &mut Client, what: impl Fn(&str) -> Option<T>) -> T {
    let begun = Instant::now();
    loop {
        let info = client.ask("INFO locks");
        if let Some(told) = what(&info) {
            return told;
        }
        assert!(begun.elapsed() < common::PATIENCE, "{info}");
        std::thread::sleep(Duration::from_millis(10));
    }
}

#[test]
fn who_holds_locks_is_told() {
    let server = Server::with_workers(2, &["--enable-debug-command", "yes"]);
    let mut client = server.client();
    client.check("RPUSH list a b c", ":3\r\n");
    (0..3).for_each(|_| drop(client.ask("LRANGE list 0 -1")));
    client.check("DEBUG SLEEP 0.02", OK);
    client.check("MULTI", OK);
    client.check("LRANGE list 0 0", "+QUEUED\r\n");
    client.check("EXEC", "*1\r\n*1\r\n$1\r\na\r\n");
    let info = client.ask("INFO locks");
    assert_eq!(figure(&info, "lock_lrange", "holds"), Some(3), "{info}");
    assert_eq!(figure(&info, "lock_exec", "holds"), Some(1), "what is run inside is EXEC's: {info}");
    assert_eq!(figure(&info, "gate_debug", "holds"), Some(1), "{info}");
    let longest = figure(&info, "gate_debug", "longest_usec").unwrap();
    assert!(longest >= 20_000 && figure(&info, "gate_debug", "usec") == Some(longest), "{info}");
    assert!(field(&info, "locks_longest_usec") >= longest, "{info}");
    let cpu = |cause: &str| figure(&info, cause, "longest_cpu_us");
    if cfg!(debug_assertions) {
        assert!(cpu("gate_debug").unwrap() < 20_000, "it slept: {info}");
        assert!(info.contains("\nlocks_longest_cpu_us:"), "{info}");
    }
    // Not among what is shown unasked.
    assert!(!client.ask("INFO").contains("# Locks") && client.ask("INFO everything").contains("# Locks"));
    client.check("CONFIG RESETSTAT", OK);
    let info = client.ask("INFO locks");
    assert_eq!(figure(&info, "lock_lrange", "holds").unwrap_or(0), 0, "{info}");
    assert!(field(&info, "locks_longest_usec") < 20_000, "{info}");
}

/// The work of the server itself has names of its own, and a second after it is over it is no longer of the last second.
#[test]
fn work_that_nobody_asked_for_is_told() {
    let server = Server::with_workers(2, &["--enable-debug-command", "yes"]);
    let mut client = server.client();
    (0..100).for_each(|number| client.check(&format!("SET k{number} v PX 1"), OK));
    let longest = wait_for(&mut client, |info| figure(info, "lock_expiry", "longest_usec"));
    client.check("DEBUG SLEEP 0.02", OK);
    let of_second = wait_for(&mut client, |info| {
        figure(info, "gate_debug", "last_second_longest_usec").filter(|longest| *longest > 0)
    });
    assert!(of_second >= 20_000 && longest < u64::MAX);
    wait_for(&mut client, |info| figure(info, "gate_debug", "last_second_holds").filter(|holds| *holds == 0));
}

/// Reports stop nobody: none of them ever holds every partition.
#[test]
fn reports_are_no_gate() {
    let server = Server::with_workers(2, &[]);
    let mut client = server.client();
    client.check("SET k v", OK);
    let reports = [
        "INFO",
        "INFO everything",
        "INFO memorymap",
        "INFO idletimes",
        "MEMORY MAP",
        "MEMORY STATS",
        "MEMORY DOCTOR",
        "MEMORY DIFF MARK",
        "MEMORY DIFF",
        "MEMORY TOP",
        "MEMORY PREFIXES",
        "CLUSTER SLOT-STATS SLOTSRANGE 0 100",
        "CLUSTER SLOT-STATS ORDERBY key-count",
        "CLIENT LIST",
        "CLIENT KILL ID 99999",
        "HOTKEYS GET",
        "SLOWLOG GET",
        "LATENCY DOCTOR",
        "LATENCY HISTOGRAM",
    ];
    reports.iter().for_each(|report| drop(client.ask(report)));
    let info = client.ask("INFO locks");
    let gates: Vec<&str> = info.lines().filter(|line| line.starts_with("gate_")).collect();
    // Once, a moment after the start, all stand still for what the process itself takes.
    assert!(gates.iter().all(|gate| gate.starts_with("gate_housekeeping:")), "{gates:#?}");
    client.check("DBSIZE", ":1\r\n");
    let info = client.ask("INFO locks");
    assert_eq!(figure(&info, "gate_dbsize", "holds"), Some(1), "this one is: {info}");
    // Inside a transaction they are read while everything is held, and say the same.
    client.check("MULTI", OK);
    reports.iter().for_each(|report| client.check(report, "+QUEUED\r\n"));
    let told = client.ask("EXEC");
    for part in ["db0:keys=1,", "memorymap_total:", "dataset.bytes", "complete-from-bytes", "key-count"] {
        assert!(told.contains(part), "{part} is not in {told}");
    }
}

#[test]
fn long_holds_are_events() {
    let server =
        Server::with_workers(2, &["--enable-debug-command", "yes", "--latency-monitor-threshold", "5"]);
    let mut client = server.client();
    client.check("LATENCY HISTORY lock", "*0\r\n");
    client.check("DEBUG SLEEP 0.02", OK);
    assert!(client.ask("LATENCY HISTORY lock").starts_with("*1\r\n*2\r\n:"));
    assert!(client.ask("LATENCY LATEST").contains("$4\r\nlock\r\n"));
    let report = client.ask("LATENCY DOCTOR");
    assert!(report.contains("lock: 1 latency spikes") && report.contains("INFO locks tells"), "{report}");
    client.check("LATENCY RESET lock", ":1\r\n");
}
