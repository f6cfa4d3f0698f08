//! Walks over keys that lie on disk (SCAN, KEYS, RANDOMKEY): they wait for the disk alone, and meet each key.

use crate::common::{Client, encode, wait_until};
use crate::swap::{Folder, swap};
use crate::swap_faults::{TOO_SLOW, fault};
use crate::swap_frozen::{freeze, name, set};
use std::collections::BTreeSet;
use std::os::unix::fs::FileExt;

/// The names in the reply to SCAN, and the next cursor.
fn scan(client: &mut Client, cursor: &str, count: usize) -> (String, Vec<String>) {
    let reply = client.ask(&format!("SCAN {cursor} COUNT {count}"));
    let mut words = reply.split("\r\n").filter(|word| !word.starts_with(['*', '$']) && !word.is_empty());
    let cursor = words.next().expect("a cursor").to_string();
    assert!(!cursor.starts_with('-'), "{cursor}");
    (cursor, words.map(String::from).collect())
}

fn scan_all(client: &mut Client, count: usize, mut between: impl FnMut()) -> Vec<String> {
    let (mut names, mut cursor) = (Vec::new(), "0".to_string());
    loop {
        let (next, found) = scan(client, &cursor, count);
        names.extend(found);
        if next == "0" {
            return names;
        }
        assert_ne!(next, cursor, "it goes on");
        cursor = next;
        between();
    }
}

fn keys(client: &mut Client, pattern: &str) -> Vec<String> {
    let reply = client.ask(&format!("KEYS {pattern}"));
    assert!(reply.starts_with('*'), "{reply}");
    reply
        .split("\r\n")
        .skip(1)
        .filter(|it| !it.starts_with('$') && !it.is_empty())
        .map(String::from)
        .collect()
}

fn all(numbers: std::ops::Range<usize>) -> BTreeSet<String> {
    numbers.map(name).collect()
}

#[test]
fn walks_wait_for_the_disk_and_no_client_for_them() {
    let folder = Folder::new("walks-hung");
    let server = folder.start_freezing(&["--swap-read-timeout", "0"]);
    let mut other = server.client();
    set(&mut other, 0..2000);
    freeze(&mut other, 2000);
    other.check("SET hot 1", "+OK\r\n");
    fault(&mut other, "read hang");
    let requests = [&["SCAN", "0", "COUNT", "100"][..], &["KEYS", "*"], &["RANDOMKEY"]];
    let mut walkers: Vec<Client> = requests
        .iter()
        .map(|words| {
            let mut client = server.client();
            client.send(encode(words));
            client
        })
        .collect();
    // Each of these holds all that the walks need.
    wait_until("the walks wait", || other.ask("CLIENT LIST").matches("flags=b").count() >= 2);
    other.check("GET hot", "$1\r\n1\r\n");
    other.check("DBSIZE", ":2001\r\n");
    // One that leaves is not waited for.
    drop(walkers.remove(0));
    fault(&mut other, "read none");
    let found = String::from_utf8_lossy(&walkers[0].read_reply()).into_owned();
    assert!(found.starts_with("*2001\r\n"), "{}", &found[..found.len().min(100)]);
    assert!(walkers[1].read_reply().starts_with(b"$"));
    assert_eq!(swap(&mut other, "swap_reads_undeclared"), 0, "nothing was read under locks");
    other.check("DEBUG CHECK-INVARIANTS", "+OK\r\n");
}

/// A value that does not come in time is an error, and the next try begins anew.
#[test]
fn walks_give_up_and_begin_again() {
    let folder = Folder::new("walks-late");
    let server = folder.start_freezing(&["--swap-read-timeout", "300"]);
    let mut client = server.client();
    set(&mut client, 0..2000);
    freeze(&mut client, 2000);
    fault(&mut client, "read hang");
    for request in ["SCAN 0 COUNT 100", "KEYS *", "RANDOMKEY"] {
        client.check(request, TOO_SLOW);
    }
    fault(&mut client, "read none");
    wait_until("the disk counts as healthy", || client.ask("INFO swap").contains("swap_state:ok"));
    client.check("CONFIG SET swap-read-timeout 60000", "+OK\r\n");
    assert_eq!(keys(&mut client, "*").len(), 2000);
    assert_eq!(scan_all(&mut client, 100, || ()).into_iter().collect::<BTreeSet<_>>(), all(0..2000));
}

/// More records than are read at a time, and keys that freeze and are promoted between the steps.
#[test]
fn walks_meet_each_key_while_keys_come_and_go() {
    const KEYS: usize = 60_000;
    let folder = Folder::new("walks-all");
    let server = folder.start_freezing(&[]);
    let (mut client, mut other) = (server.client(), server.client());
    set(&mut client, 0..KEYS);
    freeze(&mut client, KEYS as u64);
    let expected = all(0..KEYS);
    let found = keys(&mut client, "*");
    assert_eq!(found.len(), KEYS, "each once");
    assert_eq!(found.into_iter().collect::<BTreeSet<_>>(), expected);
    assert_eq!(keys(&mut client, "key:0000001*").len(), 10);
    client.check("KEYS nothing*", "*0\r\n");
    assert_eq!(swap(&mut client, "swap_frozen_keys"), KEYS as u64, "nothing comes home for it");
    let read = swap(&mut client, "swap_reads");
    scan(&mut client, "0", 10);
    assert!(swap(&mut client, "swap_reads") - read < 100, "a call reads what it shows");
    // Others freeze and thaw all the time.
    other.check("DEBUG SWAP-CHAOS 1", "+OK\r\n");
    let mut turn = 0;
    let mut touch = || {
        turn += 1;
        for n in 0..20 {
            other.ask(&format!("GET {}", name((turn * 7919 + n * 2999) % KEYS)));
        }
    };
    let found = scan_all(&mut client, 3000, &mut touch);
    assert_eq!(found.into_iter().collect::<BTreeSet<_>>(), expected);
    for _ in 0..3 {
        client.send(encode(&["KEYS", "*"]));
        touch();
        let reply = String::from_utf8_lossy(&client.read_reply()).into_owned();
        assert!(reply.starts_with(&format!("*{KEYS}\r\n")), "{}", &reply[..reply.len().min(100)]);
        let found: BTreeSet<String> =
            reply.split("\r\n").filter(|word| word.starts_with("key:")).map(String::from).collect();
        assert_eq!(found, expected);
    }
    for _ in 0..20 {
        assert!(client.ask("RANDOMKEY").contains("key:"));
    }
    client.check("DEBUG SWAP-CHAOS 0", "+OK\r\n");
    assert_eq!(swap(&mut client, "swap_reads_undeclared"), 0, "nothing was read under locks");
    client.check("DEBUG CHECK-INVARIANTS", "+OK\r\n");
}

/// EXEC has read what its walks need before it begins. For a script nothing can be read before: an error, and
/// not a wait of all others.
#[test]
fn transactions_read_before_and_scripts_walk_in_memory_alone() {
    const ERROR: &str =
        "-SWAPERR This command needs more keys on disk than are read before a transaction or a script";
    let folder = Folder::new("walks-exec");
    // With less memory values would leave alone before, where a slot has few keys: those do not freeze.
    let server = folder.start_freezing(&["--maxmemory", "64mb", "--swap-min-value", "512"]);
    let (mut client, mut other) = (server.client(), server.client());
    set(&mut client, 0..2000);
    freeze(&mut client, 2000);
    client.check("MULTI", "+OK\r\n");
    for request in ["SCAN 0 COUNT 100", "KEYS *", "RANDOMKEY", "SELECT 1", "KEYS *", "SELECT 0", "DBSIZE"] {
        client.check(request, "+QUEUED\r\n");
    }
    fault(&mut other, "read slow");
    client.send(encode(&["EXEC"]));
    let reply = String::from_utf8_lossy(&client.read_reply()).into_owned();
    fault(&mut other, "read none");
    assert!(!reply.contains("SWAPERR") && reply.contains("*2000\r\n"), "{reply}");
    assert!(reply.ends_with("+OK\r\n*0\r\n+OK\r\n:2000\r\n"), "{reply}");
    client.send(encode(&["EVAL", "return redis.pcall('KEYS', '*')", "0"]));
    assert!(String::from_utf8_lossy(&client.read_reply()).starts_with(ERROR));
    // More than is read for one transaction: its other commands run.
    client.check("FLUSHALL", "+OK\r\n");
    let value = "v".repeat(450);
    for some in (0..25_000).collect::<Vec<_>>().chunks(200) {
        client.send(some.iter().flat_map(|n| encode(&["SET", &name(*n), &value])).collect::<Vec<u8>>());
        some.iter().for_each(|_| client.expect("+OK\r\n"));
    }
    freeze(&mut client, 25_000);
    client.check("MULTI", "+OK\r\n");
    client.check("KEYS *", "+QUEUED\r\n");
    client.check(&format!("STRLEN {}", name(3)), "+QUEUED\r\n");
    client.check("EXEC", &format!("*2\r\n{ERROR}\r\n:450\r\n"));
    assert_eq!(keys(&mut client, "*").len(), 25_000, "outside it goes on in steps");
    assert_eq!(swap(&mut client, "swap_reads_undeclared"), 0);
    client.check("DEBUG CHECK-INVARIANTS", "+OK\r\n");
}

/// Its keys are left out by walks, which is said once; files are without it only when it was given up, by
/// what the log calls it.
#[test]
fn a_damaged_record_is_passed_and_given_up_by_its_address() {
    const KEYS: usize = 400;
    let folder = Folder::new("walks-damaged");
    let server = folder.start_freezing(&[]);
    let mut client = server.client();
    // All in one slot, so that a record has several.
    let name = |n: usize| format!("{{s}}key:{n}");
    for n in 0..KEYS {
        client.check(&format!("SET {} value-{n}", name(n)), "+OK\r\n");
    }
    freeze(&mut client, KEYS as u64);
    let path = folder.0.join("swap/00000000.cold");
    let bytes = std::fs::read(&path).expect("the file is there");
    let needle = name(300) + "value-300";
    let found = bytes.windows(needle.len()).enumerate().filter(|(_, part)| *part == needle.as_bytes());
    let places: Vec<u64> = found.map(|(at, _)| at as u64).collect();
    let file = std::fs::OpenOptions::new().write(true).open(&path).expect("it is writable");
    let write =
        |byte: &[u8]| places.iter().for_each(|at| file.write_all_at(byte, *at).expect("it is written"));
    write(b"X");
    let found = keys(&mut client, "*");
    let lost = KEYS - found.len();
    assert!((1..KEYS).contains(&lost), "{lost}");
    let mut scanned = scan_all(&mut client, 10, || ());
    scanned.sort_unstable();
    scanned.dedup();
    let mut sorted = found.clone();
    sorted.sort_unstable();
    assert_eq!(scanned, sorted);
    for _ in 0..100 {
        assert!(found.contains(&client.ask("RANDOMKEY").split("\r\n").nth(1).expect("a name").to_string()));
    }
    client.check("DBSIZE", &format!(":{KEYS}\r\n"));
    assert!(swap(&mut client, "swap_keys_left_out") >= 2 * lost as u64);
    let log = server.log();
    assert_eq!(log.matches("(SCAN, KEYS) leave out").count(), 1, "{log}");
    let what = log.split("SWAP FORGET ").nth(1).and_then(|rest| rest.split(" gives").next()).expect("a name");
    assert!(log.contains(&format!("leave out {lost} keys of slot ")));
    assert!(client.ask("SAVE").starts_with("-ERR"));
    server.wait_for_log(&format!(
        "that belongs into the file cannot be read (its record is damaged: Checksum): {lost} keys"
    ));
    for wrong in ["SLOT 1", "SLOT 16384 RECORD 1", "RECORD 1 SLOT 1", "SLOT 1 RECORD x"] {
        assert!(client.ask(&format!("SWAP FORGET {wrong}")).starts_with("-ERR"), "{wrong}");
    }
    client.check("SWAP FORGET SLOT 1 RECORD 12345", ":0\r\n");
    write(b"{");
    client.check(&format!("SWAP FORGET {what}"), "-ERR this record can be read\r\n");
    assert_eq!(keys(&mut client, "*").len(), KEYS);
    write(b"X");
    fault(&mut client, "read io");
    client.check(
        &format!("SWAP FORGET {what}"),
        "-ERR the disk does not answer: what cannot be read is not given up before it does (see INFO swap)\r\n",
    );
    fault(&mut client, "read none");
    wait_until("the disk counts as healthy", || client.ask("INFO swap").contains("swap_state:ok"));
    client.check(&format!("SWAP FORGET {what}"), &format!(":{lost}\r\n"));
    assert_eq!(swap(&mut client, "swap_lost_keys"), lost as u64);
    client.check("DBSIZE", &format!(":{}\r\n", KEYS - lost));
    client.check(&format!("GET {}", name(300)), "$-1\r\n");
    let mut left = keys(&mut client, "*");
    left.sort_unstable();
    assert_eq!(left, sorted);
    client.check("SAVE", "+OK\r\n");
    client.check("DEBUG CHECK-INVARIANTS", "+OK\r\n");
}
