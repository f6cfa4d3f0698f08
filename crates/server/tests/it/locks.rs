//! Reports of the server on how long it holds its locks, and for which commands.

use crate::common::{Client, Server, field, wait_until};

const OK: &str = "+OK\r\n";

/// A figure of a cause: `lock_lrange:holds=3,...`.
fn figure(info: &str, cause: &str, name: &str) -> Option<u64> {
    let line = info.lines().find_map(|line| line.strip_prefix(cause)?.strip_prefix(':'))?;
    line.split(',').find_map(|pair| pair.strip_prefix(name)?.strip_prefix('=')?.parse().ok())
}

/// Asks until such a figure of a cause is there.
#[track_caller]
fn wait_for(client: &mut Client, cause: &str, name: &str, is_it: impl Fn(u64) -> bool) -> u64 {
    let mut found = None;
    wait_until(&format!("{name} of {cause}"), || {
        found = figure(&client.ask("INFO locks"), cause, name).filter(|figure| is_it(*figure));
        found.is_some()
    });
    found.expect("it was waited for")
}

/// Longer than a thread that holds a lock waits for a CPU, also on a busy machine.
const LONG_USEC: u64 = 300_000;
const LONG_SLEEP: &str = "DEBUG SLEEP 0.3";

#[test]
fn holds_are_counted_by_command() {
    let server = Server::with_workers(2, &["--enable-debug-command", "yes"]);
    let mut client = server.client();
    client.check("RPUSH list a b c", ":3\r\n");
    (0..3).for_each(|_| drop(client.ask("LRANGE list 0 -1")));
    client.check(LONG_SLEEP, OK);
    client.check("MULTI", OK);
    client.check("LRANGE list 0 0", "+QUEUED\r\n");
    client.check("EXEC", "*1\r\n*1\r\n$1\r\na\r\n");
    let info = client.ask("INFO locks");
    assert_eq!(figure(&info, "lock_lrange", "holds"), Some(3), "{info}");
    assert_eq!(figure(&info, "lock_exec", "holds"), Some(1), "what is run inside is EXEC's: {info}");
    assert_eq!(figure(&info, "gate_debug", "holds"), Some(1), "{info}");
    let longest = figure(&info, "gate_debug", "longest_usec").unwrap();
    assert!(longest >= LONG_USEC && figure(&info, "gate_debug", "usec") == Some(longest), "{info}");
    assert!(field(&info, "locks_longest_usec") >= longest, "{info}");
    let cpu = |cause: &str| figure(&info, cause, "longest_cpu_us");
    if cfg!(debug_assertions) {
        assert!(cpu("gate_debug").unwrap() < LONG_USEC / 10, "it slept: {info}");
        assert!(info.contains("\nlocks_longest_cpu_us:"), "{info}");
    }
    // Not among what is shown unasked.
    assert!(!client.ask("INFO").contains("# Locks") && client.ask("INFO everything").contains("# Locks"));
    client.check("CONFIG RESETSTAT", OK);
    let info = client.ask("INFO locks");
    assert_eq!(figure(&info, "lock_lrange", "holds").unwrap_or(0), 0, "{info}");
    assert_eq!(figure(&info, "gate_debug", "holds").unwrap_or(0), 0, "{info}");
}

/// The work of the server itself has names of its own, and a second after a hold is over it no longer counts
/// for the last second.
#[test]
fn work_of_the_server_has_names() {
    let server = Server::with_workers(2, &["--enable-debug-command", "yes"]);
    let mut client = server.client();
    (0..100).for_each(|number| client.check(&format!("SET k{number} v PX 1"), OK));
    wait_for(&mut client, "lock_expiry", "holds", |holds| holds > 0);
    client.check("DEBUG SLEEP 0.02", OK);
    let longest = wait_for(&mut client, "gate_debug", "last_second_longest_usec", |longest| longest > 0);
    assert!(longest >= 20_000, "{longest} us");
    wait_for(&mut client, "gate_debug", "last_second_holds", |holds| holds == 0);
}

/// No command stops for a report: none of the reports ever holds every partition.
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
    // Once, a moment after the start, everything is held while the process's own memory is measured.
    assert!(gates.iter().all(|gate| gate.starts_with("gate_housekeeping:")), "{gates:#?}");
    client.check("DBSIZE", ":1\r\n");
    let info = client.ask("INFO locks");
    assert_eq!(figure(&info, "gate_dbsize", "holds"), Some(1), "DBSIZE is one: {info}");
    // Inside a transaction they run while everything is held, and their replies are the same.
    client.check("MULTI", OK);
    reports.iter().for_each(|report| client.check(report, "+QUEUED\r\n"));
    let replies = client.ask("EXEC");
    for part in ["db0:keys=1,", "memorymap_total:", "dataset.bytes", "complete-from-bytes", "key-count"] {
        assert!(replies.contains(part), "{part} is not in {replies}");
    }
}

#[test]
fn long_holds_are_events() {
    let server =
        Server::with_workers(2, &["--enable-debug-command", "yes", "--latency-monitor-threshold", "250"]);
    let mut client = server.client();
    client.check("LATENCY HISTORY lock", "*0\r\n");
    client.check(LONG_SLEEP, OK);
    assert!(client.ask("LATENCY HISTORY lock").starts_with("*1\r\n*2\r\n:"));
    assert!(client.ask("LATENCY LATEST").contains("$4\r\nlock\r\n"));
    let report = client.ask("LATENCY DOCTOR");
    assert!(report.contains("lock: 1 latency spikes") && report.contains("INFO locks shows"), "{report}");
    client.check("LATENCY RESET lock", ":1\r\n");
}

/// The work of a COUNT is the client's own, also where ten entries are looked at for each: builds with debug
/// assertions end when a hold looks at more than its bound.
#[test]
fn a_count_asks_for_more() {
    let server = Server::with_workers(1, &[]);
    let mut client = server.client();
    for id in 1..=4000 {
        client.check(
            &format!("XADD stream {id}-1 field value"),
            &format!("${}\r\n{id}-1\r\n", format!("{id}-1").len()),
        );
    }
    client.check("XGROUP CREATE stream group 0", OK);
    client.ask("XREADGROUP GROUP group ann COUNT 4000 STREAMS stream >");
    // All of them are too young: ten times COUNT are looked at.
    let reply = client.ask("XAUTOCLAIM stream group bob 3600000 - COUNT 300 JUSTID");
    assert!(reply.starts_with("*3\r\n$6\r\n3001-1\r\n*0\r\n"), "{reply}");
    let reply = client.ask("XAUTOCLAIM stream group bob 0 - COUNT 3000 JUSTID");
    assert!(reply.starts_with("*3\r\n$6\r\n3001-1\r\n*3000\r\n"), "{reply}");
}
