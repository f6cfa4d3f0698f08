//! Order of what gives way when memory or the disk of values is short: copies, values, writers, keys last.

use crate::common::{Client, Server, encode, field, wait_until};
use crate::swap::{Folder, check, name, set, swap};
use crate::swap_faults::{fault, set_or_oom, state};
use std::time::{Duration, Instant};

/// More than memory: 1.0 KB each, 24 MB of memory.
const MANY: usize = 40_000;

pub fn evicted(client: &mut Client) -> u64 {
    field(&client.ask("INFO stats"), "evicted_keys")
}

/// Bytes that count for maxmemory.
fn counted(client: &mut Client) -> u64 {
    let info = client.ask("INFO memory");
    field(&info, "used_memory") - field(&info, "mem_not_counted_for_evict")
}

/// GETs that bring more than memory cost no key and no write.
#[test]
fn copies_give_way_before_keys_and_writes() {
    for policy in ["noeviction", "allkeys-lru"] {
        let folder = Folder::new("copies");
        let server = folder.start(&["--maxmemory-policy", policy, "--swap-cache", "64mb"]);
        let mut client = server.client();
        set(&mut client, 0..2 * MANY, 0);
        for read in [2 * MANY, MANY] {
            check(&mut client, 0..read, 0);
            assert_eq!(set_or_oom(&mut client, 0..1000), 0, "{policy}");
        }
        assert_eq!(evicted(&mut client), 0, "{policy}");
        client.check("DEBUG CHECK-INVARIANTS", "+OK\r\n");
        wait_until("no more is lent than there is room for", || counted(&mut client) <= 24 << 20);
    }
}

/// As much as the limit is kept for replicas, and none of it is data.
#[test]
fn the_log_costs_no_key_and_no_write() {
    let primary = ["--repl-backlog-size", "30mb", "--maxmemory", "24mb", "--repl-diskless-sync-delay", "0"];
    let server = Server::with_workers(2, &primary);
    let port = server.port.to_string();
    let replica = Server::with_workers(1, &["--replicaof", "127.0.0.1", &port]);
    wait_until("the replica follows", || replica.client().info("replication", "master_repl_offset") > 0);
    let mut client = server.client();
    for policy in ["noeviction", "allkeys-lru"] {
        client.check(&format!("CONFIG SET maxmemory-policy {policy}"), "+OK\r\n");
        for _ in 0..40 {
            assert_eq!(set_or_oom(&mut client, 0..1000), 0, "{policy}");
        }
        assert_eq!(evicted(&mut client), 0, "{policy}");
    }
    let info = client.ask("INFO memory");
    let log = field(&info, "isotherm_not_counted_log_bytes");
    assert!(log > 24 << 20 && field(&info, "used_memory") > 24 << 20, "{info}");
    let parts = ["log", "replica", "snapshot"].map(|part| format!("isotherm_not_counted_{part}_bytes"));
    let sum: u64 = parts.iter().map(|part| field(&info, part)).sum();
    assert_eq!(field(&info, "mem_not_counted_for_evict"), sum);
}

/// A save keeps the segments that it may read: writers wait, then they are refused, until it is through.
#[test]
fn a_save_that_keeps_the_disk_costs_no_keys() {
    let folder = Folder::new("kept");
    let kept = ["--snapshot-memory-limit", "64mb", "--swap-max-disk", "320mb", "--save", ""];
    let server = folder.start(&[&["--maxmemory-policy", "allkeys-lru"], &kept[..]].concat());
    let mut client = server.client();
    set(&mut client, 0..2 * MANY, 0);
    client.check("CONFIG SET rdb-key-save-delay 1000", "+OK\r\n");
    client.check("BGSAVE", "+Background saving started\r\n");
    let mut refused = 0;
    for _ in 0..20 {
        refused = set_or_oom(&mut client, 0..MANY);
        if refused > 0 {
            break;
        }
    }
    assert!(refused > 0, "all that is kept does not fit");
    assert_eq!(state(&mut client), "full");
    assert_eq!(evicted(&mut client), 0);
    client.check("CONFIG SET rdb-key-save-delay 0", "+OK\r\n");
    wait_until("writes are taken again", || set_or_oom(&mut client, 0..100) == 0);
    assert_eq!(evicted(&mut client), 0);
    client.check("DEBUG CHECK-INVARIANTS", "+OK\r\n");
}

/// A log of values that is full loses as much as it gains, of what was written first.
#[test]
fn a_full_log_evicts_what_was_written() {
    const WRITTEN: usize = 25_000;
    let folder = Folder::new("full-log");
    let server = folder.start(&["--maxmemory-policy", "allkeys-lru", "--swap-max-disk", "320mb"]);
    let mut client = server.client();
    let mut keys = 0;
    while evicted(&mut client) == 0 {
        set(&mut client, keys..keys + 5000, 0);
        keys += 5000;
        assert!(keys < 600_000, "it becomes full");
    }
    for round in 0..4 {
        let before = evicted(&mut client);
        set(&mut client, keys..keys + WRITTEN, 0);
        keys += WRITTEN;
        let evicted = evicted(&mut client) - before;
        assert!(evicted < WRITTEN as u64 * 12 / 10, "{evicted} in round {round}");
    }
    // The oldest have gone, the newest are there.
    let there = |client: &mut Client, numbers: std::ops::Range<usize>| {
        numbers
            .step_by(50)
            .filter(|number| client.ask(&format!("EXISTS {}", name(*number))) == ":1\r\n")
            .count()
    };
    assert_eq!(there(&mut client, keys - 50_000..keys), 1000);
    assert!(there(&mut client, 0..50_000) < 500);
    assert_eq!(state(&mut client), "ok");
    client.check("DEBUG CHECK-INVARIANTS", "+OK\r\n");
}

/// Values that no record can hold leave for their own sake: those on disk would free next to nothing.
#[test]
fn values_that_stay_in_memory_cost_no_cache() {
    const LARGE_BYTES: usize = 17 << 20;
    let folder = Folder::new("unmoved");
    let server = folder.start(&["--maxmemory-policy", "allkeys-lru"]);
    let mut client = server.client();
    set(&mut client, 0..MANY, 0);
    let large = "x".repeat(LARGE_BYTES);
    for number in 0..3 {
        client.send(encode(&["SET", &format!("large:{number}"), &large]));
        client.expect("+OK\r\n");
    }
    wait_until("they have left", || counted(&mut client) <= (24 << 20) * 11 / 10);
    let evicted = evicted(&mut client);
    assert!(evicted < MANY as u64 / 5, "{evicted}");
    client.check("DEBUG CHECK-INVARIANTS", "+OK\r\n");
}

/// A file system that others fill makes no segment go: values could not follow.
#[test]
fn a_file_system_that_is_short_costs_what_was_written() {
    const WRITTEN: usize = 20_000;
    let folder = Folder::new("short-system");
    let server = folder.start(&["--maxmemory-policy", "allkeys-lru", "--save", ""]);
    let mut client = server.client();
    set(&mut client, 0..4 * MANY, 0);
    assert_eq!(evicted(&mut client), 0);
    fault(&mut client, "free 10000000");
    // The segment that is being filled still takes values.
    let mut keys = 4 * MANY;
    wait_until("no value leaves memory any more", || {
        set(&mut client, keys..keys + 1000, 0);
        keys += 1000;
        evicted(&mut client) > 0
    });
    let before = evicted(&mut client);
    set(&mut client, keys..keys + WRITTEN, 0);
    let evicted = evicted(&mut client) - before;
    assert!(before < 5000 && evicted < WRITTEN as u64 * 12 / 10, "{before}, then {evicted}");
    client.check("DEBUG CHECK-INVARIANTS", "+OK\r\n");
}

/// Without a policy nothing is dropped: what was answered is there.
#[test]
fn a_full_log_refuses_without_a_policy() {
    let folder = Folder::new("full-refuses");
    let server = folder.start(&["--swap-max-disk", "256mb"]);
    let mut client = server.client();
    let mut keys = 0;
    while set_or_oom(&mut client, keys..keys + 5000) == 0 {
        keys += 5000;
        assert!(keys < 600_000, "it becomes full");
    }
    check(&mut client, (0..keys).step_by(31), 0);
    assert_eq!(evicted(&mut client), 0);
    // Values that are deleted make room again.
    for first in (0..keys / 2).step_by(100) {
        let names: Vec<String> = (first..first + 100).map(name).collect();
        client.check(&format!("DEL {}", names.join(" ")), ":100\r\n");
    }
    wait_until("what is dead was cleaned", || state(&mut client) == "ok");
    assert_eq!(set_or_oom(&mut client, 0..20_000), 0);
}

/// A write that takes 3 s, as a cloud's volume does now and then.
#[test]
fn a_disk_that_hangs_or_fails_for_a_moment_costs_no_key() {
    let folder = Folder::new("moment");
    let server = folder.start(&["--maxmemory-policy", "allkeys-lru"]);
    let mut client = server.client();
    set(&mut client, 0..2 * MANY, 0);
    let mut keys = 2 * MANY;
    for what in ["hang", "io"] {
        fault(&mut client, &format!("write {what}"));
        let began = Instant::now();
        let mut refused = 0;
        while began.elapsed() < Duration::from_secs(3) || state(&mut client) != "degraded" {
            refused += set_or_oom(&mut client, keys..keys + 100);
            keys += 100;
        }
        assert!(refused > 0, "{what}");
        assert_eq!(evicted(&mut client), 0, "{what}");
        fault(&mut client, "write none");
        wait_until("it comes back by itself", || {
            state(&mut client) == "ok" && set_or_oom(&mut client, 0..2) == 0
        });
    }
    assert_eq!(evicted(&mut client), 0);
    check(&mut client, (0..2 * MANY).step_by(7), 0);
}

/// Messages wait for messages, not for values on their way to disk.
#[test]
fn what_does_not_write_does_not_wait_with_writers() {
    let folder = Folder::new("monitored");
    let server = folder.start(&[]);
    let mut clients: Vec<Client> = (0..4).map(|_| server.client()).collect();
    let [writer, monitor, other, asks] = &mut clients[..] else { unreachable!() };
    set(writer, 0..MANY, 0);
    monitor.check("MONITOR", "+OK\r\n");
    let id = writer.id();
    fault(asks, "write hang");
    std::thread::scope(|scope| {
        // Refusals once the disk is given up do not matter.
        scope.spawn(|| set_or_oom(writer, 0..MANY));
        wait_until("the writer waits", || asks.sees_waiting(id) || state(asks) != "ok");
        for request in ["PING", "PUBLISH channel message", "SUBSCRIBE channel", "GET nothing"] {
            other.send(encode(&request.split(' ').collect::<Vec<_>>()));
            assert!(!other.read_reply().starts_with(b"-"), "{request}");
            other.check("RESET", "+RESET\r\n");
        }
        // It is waited for two seconds at most.
        let answered = state(asks);
        fault(asks, "write none");
        assert_eq!(answered, "ok", "they were answered before the writer was");
    });
}

/// A replica holds more than memory, as its primary does.
#[test]
fn a_replica_reads_no_faster_than_values_leave_memory() {
    let folders = [Folder::new("paced-primary"), Folder::new("paced-replica")];
    let primary = folders[0].start(&["--maxmemory", "200mb", "--repl-diskless-sync-delay", "0"]);
    let replica = folders[1].start(&["--replicaof", "127.0.0.1", &primary.port.to_string()]);
    let (mut client, mut other) = (primary.client(), replica.client());
    wait_until("the replica follows", || other.ask("INFO replication").contains("master_link_status:up"));
    fault(&mut other, "write slow");
    let mut most = 0;
    for first in (0..3 * MANY).step_by(1000) {
        set(&mut client, first..first + 1000, 0);
        most = most.max(counted(&mut other));
    }
    wait_until("it has all", || {
        most = most.max(counted(&mut other));
        other.ask("DBSIZE") == format!(":{}\r\n", 3 * MANY)
    });
    assert!(most < (24 << 20) * 11 / 10, "{most}");
    assert!(swap(&mut other, "swap_keys") > MANY as u64);
    assert!(other.ask("INFO replication").contains("master_link_status:up"));
    check(&mut other, (0..3 * MANY).step_by(101), 0);
}

/// A disk that refuses what its file system claims to have: no segment goes, as values could not follow.
#[test]
fn a_disk_that_refuses_writes_costs_what_was_written() {
    const WRITTEN: usize = 20_000;
    let folder = Folder::new("refuses");
    let policy = ["--maxmemory-policy", "allkeys-lru", "--swap-max-disk", "256mb", "--save", ""];
    let server = folder.start(&policy);
    let mut client = server.client();
    let mut keys = 0;
    while evicted(&mut client) == 0 {
        set(&mut client, keys..keys + 5000, 0);
        keys += 5000;
        assert!(keys < 600_000, "the log becomes full");
    }
    fault(&mut client, "write full");
    let before = evicted(&mut client);
    for _ in 0..4 {
        set(&mut client, keys..keys + WRITTEN / 4, 0);
        keys += WRITTEN / 4;
        wait_until("it is tried again", || state(&mut client) == "full");
    }
    let evicted = evicted(&mut client) - before;
    assert!(evicted < WRITTEN as u64 * 12 / 10, "{evicted}");
    fault(&mut client, "write none");
    wait_until("values leave again", || {
        set(&mut client, keys..keys + 100, 0);
        keys += 100;
        state(&mut client) == "ok"
    });
    assert!(!folder.0.join("swap/probe").exists());
    client.check("DEBUG CHECK-INVARIANTS", "+OK\r\n");
}

/// Dead values all over a full log: writers wait until enough of it was cleaned, however many segments that
/// takes.
#[test]
fn what_is_dead_here_and_there_refuses_no_write() {
    const KEYS: usize = 130_000;
    let folder = Folder::new("spread");
    let server = folder.start(&["--swap-max-disk", "320mb", "--save", ""]);
    let mut client = server.client();
    assert_eq!(set_or_oom(&mut client, 0..KEYS), 0);
    let mut refused = 0;
    for round in 0..4 {
        // Each writes a part of every segment again.
        for first in (round * 1000..KEYS).step_by(4000) {
            refused += set_or_oom(&mut client, first..(first + 1000).min(KEYS));
        }
    }
    assert_eq!(refused, 0);
    check(&mut client, (0..KEYS).step_by(101), 0);
    client.check("DEBUG CHECK-INVARIANTS", "+OK\r\n");
}

/// A segment with a part that cannot be read is dropped in its turn: the keys of that part go before those
/// whose values are there. Until then the server's log has one line a second of them.
#[test]
fn what_cannot_be_read_is_evicted_too() {
    use std::os::unix::fs::FileExt;
    let folder = Folder::new("unread");
    let server =
        folder.start(&["--maxmemory-policy", "allkeys-lru", "--swap-max-disk", "256mb", "--save", ""]);
    let mut client = server.client();
    let mut keys = 100_000;
    set(&mut client, 0..keys, 0);
    let path = folder.0.join("swap/00000000.cold");
    let file = std::fs::OpenOptions::new().write(true).open(&path).expect("it is writable");
    file.write_all_at(&vec![0; 8 << 20], 8 << 20).expect("it is written");
    let began = Instant::now();
    let is_lost = |client: &mut Client, number: usize| {
        client.ask(&format!("GET {}", name(number))).starts_with("-SWAPERR")
    };
    let lost: Vec<usize> = (0..60_000).step_by(20).filter(|number| is_lost(&mut client, *number)).collect();
    assert!(lost.len() > 100, "{}", lost.len());
    let lines = server.log().matches("A value on disk cannot be read").count() as u64;
    assert!((1..=began.elapsed().as_secs() + 1).contains(&lines), "{lines} lines");
    server.wait_for_log("more values on disk could not be read");
    let names: Vec<String> = lost.iter().map(|number| name(*number)).collect();
    let exist = format!("EXISTS {}", names.join(" "));
    wait_until("they are evicted", || {
        set(&mut client, keys..keys + 1000, 0);
        keys += 1000;
        client.ask_number(&exist) == 0
    });
    // Not all others had to go for that. A busy machine drops another segment of some 50,000 keys meanwhile.
    let left = client.ask_number("DBSIZE");
    assert!(left > 40_000, "{left}");
    client.check("DEBUG CHECK-INVARIANTS", "+OK\r\n");
}

/// Many databases with few keys each: what the tables take costs no keys.
#[test]
fn many_databases_with_few_keys_cost_no_keys() {
    const DATABASES: usize = 250;
    const KEYS_EACH: usize = 60;
    let folder = Folder::new("databases");
    let more = ["--databases", "16000", "--maxmemory-policy", "allkeys-lru", "--maxmemory", "30mb"];
    let server = folder.start(&[&more[..], &["--save", ""]].concat());
    let mut client = server.client();
    let mut longest = Duration::ZERO;
    for db in 0..DATABASES {
        client.check(&format!("SELECT {}", db * 63), "+OK\r\n");
        let began = Instant::now();
        set(&mut client, 0..KEYS_EACH, db);
        longest = longest.max(began.elapsed());
    }
    let info = client.ask("INFO memory");
    assert_eq!(evicted(&mut client), 0, "{longest:?} {info} {}", client.ask("MEMORY MAP"));
    for db in (0..DATABASES).step_by(17) {
        client.check(&format!("SELECT {}", db * 63), "+OK\r\n");
        check(&mut client, 0..KEYS_EACH, db);
    }
    client.check("DEBUG CHECK-INVARIANTS", "+OK\r\n");
}
