//! Modes that transcripts of a lone primary cannot show: other ways to treat expired keys, clients that do
//! not touch, a store that is full, no subscriber, and whole keyspaces.

use crate::common::{Server, words};
use isotherm_commands::Record;
use isotherm_keyspace::{ExpiryMode, NoEffects, UnixMs};
use isotherm_resp::Reply;
use isotherm_resp::reply::Protocol;
use std::collections::BTreeSet;

fn run(server: &mut Server, line: &str) -> String {
    let reply = server.run(words(line).args(), &mut NoEffects);
    String::from_utf8_lossy(&reply.out).trim_end().replace("\r\n", " ")
}

#[track_caller]
fn check(server: &mut Server, steps: &[(&str, &str)]) {
    for (line, expected) in steps {
        assert_eq!(run(server, line), *expected, "{line}");
    }
}

fn pass(server: &mut Server, ms: i64) {
    server.conditions.now = UnixMs(server.conditions.now.get() + ms);
}

#[test]
fn the_replication_stream_sees_expired_keys() {
    let mut server = Server::new(Protocol::Resp2, 4);
    server.conditions.expiry_mode = ExpiryMode::Keep;
    check(
        &mut server,
        &[
            ("SET k v PXAT 1", "+OK"),
            ("GET k", "$1 v"),
            ("TTL k", ":0"),
            ("PEXPIRETIME k", ":1"),
            ("EXPIRE k -1", ":1"),
            ("EXISTS k", ":1"),
            ("GETEX k PXAT 1", "$1 v"),
            ("EXISTS k", ":1"),
            ("INCR n", ":1"),
            ("PEXPIREAT n 5", ":1"),
            ("INCR n", ":2"),
            ("DBSIZE", ":2"),
            ("KEYS k", "*1 $1 k"),
            ("DEL k n", ":2"),
        ],
    );
}

#[test]
fn a_replica_hides_expired_keys_and_keeps_them() {
    let mut server = Server::new(Protocol::Resp2, 4);
    check(&mut server, &[("SET k v PX 5", "+OK")]);
    pass(&mut server, 10);
    server.conditions.expiry_mode = ExpiryMode::Hide;
    check(&mut server, &[("GET k", "$-1"), ("EXISTS k", ":0"), ("KEYS *", "*0"), ("DBSIZE", ":1")]);
    check(&mut server, &[("EXPIRE k 100", ":0"), ("PTTL k", ":-2"), ("SCAN 0 COUNT 1000", "*2 $1 0 *0")]);
    server.conditions.expiry_mode = ExpiryMode::Delete;
    check(&mut server, &[("GET k", "$-1"), ("DBSIZE", ":0")]);
}

#[test]
fn touch_touches_even_for_clients_that_do_not() {
    let mut server = Server::new(Protocol::Resp2, 1);
    check(&mut server, &[("SET k v", "+OK")]);
    pass(&mut server, 60_000);
    server.conditions.no_touch = true;
    check(&mut server, &[("GET k", "$1 v"), ("OBJECT IDLETIME k", ":60")]);
    check(&mut server, &[("TOUCH k", ":1"), ("OBJECT IDLETIME k", ":0")]);
    pass(&mut server, 60_000);
    server.conditions.no_touch = false;
    check(
        &mut server,
        &[("EXISTS k", ":1"), ("TYPE k", "+string"), ("TTL k", ":-1"), ("OBJECT IDLETIME k", ":60")],
    );
    check(&mut server, &[("GET k", "$1 v"), ("OBJECT IDLETIME k", ":0")]);
}

/// A reader of the log must not lose the value of IFEQ because it reads like an option.
#[test]
fn a_compared_value_may_be_the_word_get() {
    let mut server = Server::new(Protocol::Resp2, 1);
    check(&mut server, &[("SET k get", "+OK")]);
    let (_, lines) = rewritten(&mut server, "SET k v GET IFEQ get GET");
    assert_eq!(lines, ["SET k v IFEQ get"]);
}

/// The last of several durations counts, and the log does not hold the others.
#[test]
fn one_moment_stays_of_several() {
    let mut server = Server::new(Protocol::Resp2, 1);
    let (_, none) = rewritten(&mut server, "MSETEX 1 k v EX 10 XX EX 20");
    assert!(none.is_empty());
    let (_, lines) = rewritten(&mut server, "MSETEX 1 k v EX 10 NX EX 20");
    let moment = server.conditions.now.get() + 20_000;
    assert_eq!(lines, [format!("MSETEX 1 k v NX PXAT {moment}")]);
    check(&mut server, &[("TTL k", ":20")]);
}

#[test]
fn a_full_store_answers_and_logs_only_what_it_took() {
    let mut server = Server::with_space(Protocol::Resp2, 1, 4 << 20);
    let mut taken = 0;
    let oom = "-OOM command not allowed: no memory available for this key.";
    let (refused, lines) = loop {
        let line = format!("MSET {{t}}a{taken} @150xa {{t}}b{taken} @150xb {{t}}c{taken} @150xc");
        let (reply, logged) = rewritten(&mut server, &line);
        if reply.out != b"+OK\r\n" {
            assert_eq!(String::from_utf8_lossy(&reply.out).trim_end(), oom);
            break (line, logged);
        }
        taken += 1;
        assert!(taken < 100_000, "4 MB hold no 45 MB");
    };
    assert!(taken > 1000, "{taken}");
    let stored = ["a", "b", "c"].map(|name| run(&mut server, &format!("EXISTS {{t}}{name}{taken}")) == ":1");
    let count = stored.iter().filter(|stored| **stored).count();
    assert!(count < 3 && !stored[2], "{stored:?}");
    let logged = lines.first().map_or(0, |line| (line.split(' ').count() - 1) / 2);
    assert_eq!((logged, lines.len()), (count, usize::from(count > 0)), "{refused}");
    // Some pages have room left; soon none has.
    for command in ["SET", "SETNX", "APPEND", "GETSET"] {
        let replies = (0..20_000).map(|i| run(&mut server, &format!("{command} {{t}}{command}{i} @150xa")));
        assert!(replies.into_iter().any(|reply| reply == oom), "{command}");
    }
    let replies = (0..20_000).map(|i| run(&mut server, &format!("SETRANGE {{t}}range{i} 0 @150xa")));
    assert!(replies.into_iter().any(|reply| reply == oom));
    assert_eq!(run(&mut server, "FLUSHALL"), "+OK");
    assert_eq!(run(&mut server, &refused), "+OK");
}

#[test]
fn every_key_is_found_by_keys_scan_and_chance() {
    for partitions in [1, 8] {
        let mut server = Server::new(Protocol::Resp2, partitions);
        let all: BTreeSet<String> = (0..500).map(|i| format!("key:{i}")).collect();
        for key in &all {
            check(&mut server, &[(&format!("SET {key} v"), "+OK")]);
        }
        let bulks = |reply: &str| -> BTreeSet<String> {
            reply.split(' ').filter(|word| word.starts_with("key:")).map(str::to_string).collect()
        };
        assert_eq!(bulks(&run(&mut server, "KEYS *")), all);
        assert_eq!(bulks(&run(&mut server, "KEYS key:1?")).len(), 10);
        let (mut cursor, mut seen, mut calls) = ("0".to_string(), BTreeSet::new(), 0);
        loop {
            let reply = run(&mut server, &format!("SCAN {cursor} COUNT 20"));
            cursor = reply.split(' ').nth(2).expect("a cursor").to_string();
            seen.extend(bulks(&reply));
            calls += 1;
            if cursor == "0" {
                break;
            }
        }
        assert_eq!(seen, all);
        assert!(calls > 5, "{calls} calls for 500 keys, 20 at a time");
        let drawn: BTreeSet<String> = (0..500).flat_map(|_| bulks(&run(&mut server, "RANDOMKEY"))).collect();
        assert!(drawn.len() > 200, "{} of 500 drawn 500 times", drawn.len());
        assert!(drawn.is_subset(&all));
    }
}

/// Runs one command; what the log holds for it, requests as they came apart.
fn rewritten(server: &mut Server, line: &str) -> (Reply, Vec<String>) {
    let mut lines = Vec::new();
    let mut log = |_, record: Record<'_>| {
        if let Record::Words(args) = record {
            let words = args.iter().map(|word| String::from_utf8_lossy(word).into_owned());
            lines.push(words.collect::<Vec<_>>().join(" "));
        }
    };
    let reply = server.run_recorded(words(line).args(), &mut NoEffects, Some(&mut log));
    (reply, lines)
}
