//! Events of keys and clients while a value is read: reads are held until they have happened.

use crate::common::{Client, Server, encode, wait_until};
use crate::swap::{Folder, check, name, set, swap, value};
use crate::swap_faults::{fault, with_cold};
use isotherm_stdx::Prng;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

/// A client whose GET of this key waits for the disk.
fn parked(server: &Server, other: &mut Client, key: usize) -> Client {
    parked_with(server, other, &["GET", &name(key)])
}

fn parked_with(server: &Server, other: &mut Client, words: &[&str]) -> Client {
    let mut client = named(server);
    client.send(encode(words));
    wait_until("it is parked", || is_blocked(other));
    client
}

/// A client that `is_blocked` knows.
fn named(server: &Server) -> Client {
    let mut client = server.client();
    client.check("CLIENT SETNAME parked", "+OK\r\n");
    client
}

/// Makes a list of two elements of 100 bytes, which leaves memory as the only key that does.
fn cold_list(other: &mut Client, name: &str) {
    let cold = swap(other, "swap_keys");
    other.check("DEBUG SWAP-CHAOS 1", "+OK\r\n");
    other.check(&format!("RPUSH {name} {} {}", element('x'), element('y')), ":2\r\n");
    wait_until("it leaves memory", || swap(other, "swap_keys") == cold + 1);
    other.check("DEBUG SWAP-CHAOS 0", "+OK\r\n");
}

fn element(of: char) -> String {
    of.to_string().repeat(100)
}

fn is_blocked(other: &mut Client) -> bool {
    let list = other.ask("CLIENT LIST");
    let is_shown = |line: &str| {
        let flags = line.split(' ').find_map(|word| word.strip_prefix("flags="));
        line.contains("name=parked") && flags.is_some_and(|flags| flags.contains('b'))
    };
    list.lines().any(is_shown)
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
            format!("SELECT 1;LPUSH {} 1;SWAPDB 0 1", name(0)),
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

/// Requests before the parked one are answered, those after it wait, and the parked one has changed nothing.
#[test]
fn a_request_is_run_again_in_its_order() {
    let folder = Folder::new("parked-order");
    let server = with_cold(&folder, 1, &["--swap-read-timeout", "0"]);
    let (mut client, mut other) = (named(&server), server.client());
    fault(&mut other, "read hang");
    let requests = [&["GET", "hot"][..], &["APPEND", &name(0), "x"], &["STRLEN", &name(0)]];
    client.send(requests.map(encode).concat());
    client.expect("$4\r\nhere\r\n");
    wait_until("it is parked", || is_blocked(&mut other));
    other.check("GET hot", "$4\r\nhere\r\n");
    let is_counted = |other: &mut Client| other.ask("INFO commandstats").contains("cmdstat_append:");
    assert!(!is_counted(&mut other));
    fault(&mut other, "read none");
    client.expect(":1001\r\n");
    client.expect(":1001\r\n");
    assert!(is_counted(&mut other));
}

/// A key, its type, expiry, last access and the length of a string stay in memory, and what is overwritten is
/// not needed.
#[test]
fn what_needs_no_value_reads_none() {
    let folder = Folder::new("parked-none");
    let server = with_cold(&folder, 2, &[]);
    let mut client = server.client();
    cold_list(&mut client, "l");
    fault(&mut client, "read hang");
    let (a, b) = (name(0), name(1));
    for (command, reply) in [
        (format!("TYPE {a}"), "+string\r\n"),
        (format!("EXISTS {a} l"), ":2\r\n"),
        (format!("TTL {a}"), ":-1\r\n"),
        (format!("EXPIRE {a} 1000 NX"), ":1\r\n"),
        (format!("PERSIST {a}"), ":1\r\n"),
        (format!("STRLEN {a}"), ":1000\r\n"),
        (format!("TOUCH {a} l"), ":2\r\n"),
        (format!("OBJECT ENCODING {a}"), "$3\r\nraw\r\n"),
        (format!("SET {a} 3 NX"), "$-1\r\n"),
        (format!("SET {b} 3 XX"), "+OK\r\n"),
        (format!("SET {a} 3"), "+OK\r\n"),
        (format!("GET {a}"), "$1\r\n3\r\n"),
        (format!("DEL {b}"), ":1\r\n"),
        ("UNLINK l".into(), ":1\r\n"),
    ] {
        client.check(&command, reply);
    }
    assert_eq!((swap(&mut client, "swap_reads"), swap(&mut client, "swap_keys")), (0, 0));
}

#[test]
fn what_needs_a_value_waits_for_it() {
    let folder = Folder::new("parked-some");
    let server = with_cold(&folder, 3, &["--swap-read-timeout", "0"]);
    let mut other = server.client();
    ["l", "m", "n"].into_iter().for_each(|list| cold_list(&mut other, list));
    for (command, reply) in [
        (format!("SET {} 1 IFEQ 2", name(0)), "$-1\r\n".to_string()),
        (format!("DELIFEQ {} 1", name(1)), ":0\r\n".into()),
        ("LLEN l".into(), ":2\r\n".into()),
        ("LRANGE m 0 0".into(), format!("*1\r\n$100\r\n{}\r\n", element('x'))),
        ("LPUSH n w".into(), ":3\r\n".into()),
        // A value on disk lies there under its name.
        (format!("RENAME {} other", name(2)), "+OK\r\n".into()),
    ] {
        fault(&mut other, "read hang");
        let mut client = parked_with(&server, &mut other, &command.split(' ').collect::<Vec<_>>());
        fault(&mut other, "read none");
        assert_eq!(String::from_utf8_lossy(&client.read_reply()), reply, "{command}");
    }
}

/// The end of the work that runs during a test.
struct End<'e>(&'e AtomicBool);

impl Drop for End<'_> {
    fn drop(&mut self) {
        self.0.store(true, Relaxed);
    }
}

/// Another client moves the value away before the command runs, each time: at last the command reads under
/// its locks.
#[test]
fn a_command_is_not_parked_for_ever() {
    const DATABASES: usize = 200;
    /// Swaps in one batch.
    const SWAPS: usize = 15;
    let folder = Folder::new("parked-ever");
    let server = folder.start(&["--swap-read-timeout", "0", "--swap-cache", "0", "--databases", "200"]);
    let (mut client, mut other) = (server.client(), server.client());
    let value = value(0, 0);
    other.check("DEBUG SWAP-CHAOS 1", "+OK\r\n");
    for db in 0..DATABASES {
        other.check(&format!("SELECT {db}"), "+OK\r\n");
        other.check(&format!("SET a {value}"), "+OK\r\n");
    }
    wait_until("all values leave memory", || swap(&mut other, "swap_keys") == DATABASES as u64);
    other.check("DEBUG SWAP-CHAOS 0", "+OK\r\n");
    fault(&mut other, "read slow");
    let is_over = AtomicBool::new(false);
    let mut swapper = server.client();
    std::thread::scope(|scope| {
        scope.spawn(|| {
            // By chance, or what is there when a read ends might be what was there when it began.
            let mut prng = Prng::new(1);
            while !is_over.load(Relaxed) {
                let mut swap =
                    || encode(&["SWAPDB", "0", &(1 + prng.below(DATABASES as u64 - 1)).to_string()]);
                let swaps: Vec<u8> = (0..SWAPS).flat_map(|_| swap()).collect();
                swapper.send(&swaps);
                (0..SWAPS).for_each(|_| swapper.expect("+OK\r\n"));
            }
        });
        let _end = End(&is_over);
        let script = "return redis.call('GET', KEYS[1])";
        for request in [&["GET", "a"][..], &["EXEC"], &["EVAL", script, "1", "a"]] {
            let before = swap(&mut other, "swap_reads_in_commands");
            wait_until("it reads under its locks", || {
                if request == ["EXEC"] {
                    client.check("MULTI", "+OK\r\n");
                    client.check("GET a", "+QUEUED\r\n");
                }
                client.send(encode(request));
                let reply = String::from_utf8(client.read_reply()).expect("text");
                assert!(reply.ends_with(&format!("$1000\r\n{value}\r\n")), "{reply}");
                swap(&mut other, "swap_reads_in_commands") > before
            });
        }
    });
    other.check("DEBUG CHECK-INVARIANTS", "+OK\r\n");
}

/// A transaction does nothing while its values are read.
#[test]
fn a_transaction_has_all_that_it_needs_read_before_it_begins() {
    let folder = Folder::new("parked-exec");
    let server = with_cold(&folder, 3, &["--swap-read-timeout", "0"]);
    let (mut client, mut other) = (named(&server), server.client());
    client.check("MULTI", "+OK\r\n");
    for key in ["hot", &name(0), &name(1)] {
        client.check(&format!("APPEND {key} x"), "+QUEUED\r\n");
    }
    fault(&mut other, "read hang");
    client.send(encode(&["EXEC"]));
    wait_until("it is parked", || is_blocked(&mut other));
    other.check("GET hot", "$4\r\nhere\r\n");
    fault(&mut other, "read none");
    client.expect("*3\r\n:5\r\n:1001\r\n:1001\r\n");
    client.check("EXEC", "-ERR EXEC without MULTI\r\n");
    // A watched key that changes meanwhile is a changed one.
    client.check("WATCH hot", "+OK\r\n");
    client.check("MULTI", "+OK\r\n");
    client.check(&format!("GET {}", name(2)), "+QUEUED\r\n");
    fault(&mut other, "read hang");
    client.send(encode(&["EXEC"]));
    wait_until("it is parked", || is_blocked(&mut other));
    other.check("SET hot there", "+OK\r\n");
    fault(&mut other, "read none");
    client.expect("*-1\r\n");
}

/// The value that wakes a client may be on disk. It takes it once it is there, and none after it is served
/// before.
#[test]
fn who_waits_for_a_key_is_served_what_was_read() {
    let folder = Folder::new("parked-waiters");
    let server = folder.start(&["--swap-read-timeout", "0"]);
    let (mut first, mut second, mut other) = (server.client(), server.client(), server.client());
    other.check("SELECT 1", "+OK\r\n");
    cold_list(&mut other, "q");
    for (client, blocked) in [(&mut first, 1), (&mut second, 2)] {
        client.send(encode(&["BLPOP", "q", "0"]));
        wait_until("it is blocked", || other.blocked_count() == blocked);
    }
    fault(&mut other, "read hang");
    other.check("SWAPDB 0 1", "+OK\r\n");
    other.check("SET k v", "+OK\r\n");
    second.expect_silence();
    assert_eq!(other.blocked_count(), 2);
    fault(&mut other, "read none");
    for (client, of) in [(&mut first, 'x'), (&mut second, 'y')] {
        client.expect(&format!("*2\r\n$1\r\nq\r\n$100\r\n{}\r\n", element(of)));
    }
    other.check("DEBUG CHECK-INVARIANTS", "+OK\r\n");
}
