//! What happens to keys and clients while a value is read: reads are held until it has happened.

use crate::common::{Client, Server, encode, wait_until};
use crate::swap::{Folder, check, name, set, swap, value};
use crate::swap_faults::{fault, with_cold};

/// A client whose GET of this key waits for the disk.
fn parked(server: &Server, other: &mut Client, key: usize) -> Client {
    parked_with(server, other, &["GET", &name(key)])
}

fn parked_with(server: &Server, other: &mut Client, words: &[&str]) -> Client {
    let mut client = server.client();
    client.send(encode(&["CLIENT", "SETNAME", "parked"]));
    client.expect("+OK\r\n");
    client.send(encode(words));
    wait_until("it is parked", || is_blocked(other));
    client
}

fn is_blocked(other: &mut Client) -> bool {
    let list = other.ask("CLIENT LIST");
    list.lines().any(|line| line.contains("name=parked") && line.contains("flags=b"))
}

fn of_key_0(version: usize) -> String {
    format!("$1000\r\n{}\r\n", value(0, version))
}

#[test]
fn keys_change_meanwhile() {
    let folder = Folder::new("parked-keys");
    let server = with_cold(&folder, 20, &["--swap-read-timeout", "0"]);
    let mut other = server.client();
    let cold_again = |other: &mut Client| {
        other.check("FLUSHALL", "+OK\r\n");
        other.check("DEBUG SWAP-CHAOS 1", "+OK\r\n");
        set(other, 0..20, 0);
        wait_until("all values leave memory", || swap(other, "swap_keys") == 20);
        other.check("DEBUG SWAP-CHAOS 0", "+OK\r\n");
    };
    let other_value = value(0, 1);
    let cases: [(&str, String, String); 7] = [
        ("deleted", format!("DEL {}", name(0)), "$-1\r\n".into()),
        ("written over", format!("SET {} {other_value}", name(0)), of_key_0(1)),
        ("renamed", format!("RENAME {} other", name(1)), of_key_0(0)),
        ("expired", format!("PEXPIRE {} -1", name(0)), "$-1\r\n".into()),
        ("flushed", "FLUSHALL".into(), "$-1\r\n".into()),
        ("swapped", "SWAPDB 0 1".into(), "$-1\r\n".into()),
        (
            "another type",
            format!("DEL {0};LPUSH {0} 1", name(0)),
            "-WRONGTYPE Operation against a key holding the wrong kind of value\r\n".into(),
        ),
    ];
    for (what, line, expected) in cases {
        cold_again(&mut other);
        fault(&mut other, "read hang");
        let mut client = parked(&server, &mut other, 0);
        let mut actor = server.client();
        for line in line.split(';') {
            actor.send(encode(&line.split(' ').collect::<Vec<_>>()));
            // RENAME waits for its value too.
            if what != "renamed" {
                assert!(!actor.read_reply().starts_with(b"-"), "{what}");
            }
        }
        fault(&mut other, "read none");
        assert_eq!(String::from_utf8_lossy(&client.read_reply()), expected, "{what}");
        other.check("DEBUG CHECK-INVARIANTS", "+OK\r\n");
    }
    assert_eq!(swap(&mut other, "swap_unreadable"), 0);
}

#[test]
fn clients_leave_are_killed_and_paused_meanwhile() {
    let folder = Folder::new("parked-clients");
    let server = with_cold(&folder, 20, &["--swap-read-timeout", "0"]);
    let mut other = server.client();
    fault(&mut other, "read hang");
    drop(parked(&server, &mut other, 0));
    fault(&mut other, "read none");
    wait_until("the one that left is gone", || !other.ask("CLIENT LIST").contains("name=parked"));
    fault(&mut other, "read hang");
    let mut client = parked(&server, &mut other, 1);
    let list = other.ask("CLIENT LIST");
    let line = list.lines().find(|line| line.contains("name=parked")).expect("it is there");
    let id = line.split("id=").nth(1).and_then(|rest| rest.split(' ').next()).expect("a number").to_string();
    other.check(&format!("CLIENT KILL ID {id}"), ":1\r\n");
    client.expect_end();
    fault(&mut other, "read none");
    fault(&mut other, "read hang");
    let mut client = parked_with(&server, &mut other, &["APPEND", &name(2), "x"]);
    other.check("CLIENT PAUSE 600000 WRITE", "+OK\r\n");
    fault(&mut other, "read none");
    std::thread::sleep(std::time::Duration::from_millis(200));
    assert!(is_blocked(&mut other), "it waits for the end of the pause");
    other.check("CLIENT UNPAUSE", "+OK\r\n");
    client.expect(":1001\r\n");
    check(&mut client, (0..20).filter(|n| *n != 2), 0);
    other.check("DEBUG CHECK-INVARIANTS", "+OK\r\n");
}

/// More than may be lent at a time, in one command and in one transaction.
#[test]
fn many_cold_keys_at_once() {
    const KEYS: usize = 10_000;
    let folder = Folder::new("many");
    let server = with_cold(&folder, KEYS, &["--swap-cache", "1mb", "--maxmemory", "64mb"]);
    let mut client = server.client();
    let names: Vec<String> = (0..KEYS).map(name).collect();
    let mut words = vec!["MGET"];
    words.extend(names.iter().map(String::as_str));
    client.send(encode(&words));
    let reply = client.read_reply();
    let expected: String = (0..KEYS).map(|n| format!("$1000\r\n{}\r\n", value(n, 0))).collect();
    assert_eq!(String::from_utf8_lossy(&reply), format!("*{KEYS}\r\n{expected}"));
    client.check("MULTI", "+OK\r\n");
    for n in 0..KEYS {
        client.send(encode(&["GET", &name(n)]));
    }
    (0..KEYS).for_each(|_| client.expect("+QUEUED\r\n"));
    client.send(encode(&["EXEC"]));
    assert_eq!(String::from_utf8_lossy(&client.read_reply()), format!("*{KEYS}\r\n{expected}"));
    wait_until("what was lent goes", || swap(&mut client, "swap_lent_bytes") < 3 << 20);
    client.check("DEBUG CHECK-INVARIANTS", "+OK\r\n");
}
