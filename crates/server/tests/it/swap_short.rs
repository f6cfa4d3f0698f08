//! Values on disk are read while memory is short: values that are only read take none of it for good, and
//! writers get their turn.

use crate::common::{Client, Server, encode, field, wait_until};
use crate::swap::{self, Folder, swap};
use crate::swap_faults::{TOO_SLOW, fault, state, with_cold};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::SeqCst};

/// `maxmemory` of the tests.
const LIMIT: u64 = 24 << 20;
/// Beyond it there is a twentieth, and what is gathered again and again for a disk that takes nothing.
const MOST: u64 = LIMIT + LIMIT / 20 + (2 << 20);
/// Hashes and lists of 6 KB: more than twice the limit.
const COLLECTIONS: usize = 9000;
const ELEMENTS: usize = 60;

fn used(client: &mut Client) -> u64 {
    field(&client.ask("INFO memory"), "used_memory")
}

fn name(number: usize) -> String {
    format!("collection:{number}")
}

fn element(number: usize, at: usize) -> String {
    format!("{number}.{at}.").repeat(45)[..90].to_string()
}

fn fill(client: &mut Client, command: &str, numbers: std::ops::Range<usize>) {
    for number in numbers {
        let mut words = vec![command.to_string(), name(number)];
        for at in 0..ELEMENTS {
            match command {
                "HSET" => words.extend([format!("f{at}"), element(number, at)]),
                "ZADD" => words.extend([at.to_string(), element(number, at)]),
                _ => words.push(element(number, at)),
            }
        }
        client.send(encode(&words));
        assert!(client.read_reply().starts_with(b":"), "{command} {number}");
    }
}

/// From now on nothing leaves memory, and that is full.
fn fill_up(client: &mut Client) {
    fault(client, "write full");
    for n in 0.. {
        client.send(encode(&["SET", &format!("filler:{n}"), &"x".repeat(2000)]));
        if client.read_reply().starts_with(b"-OOM") {
            break;
        }
    }
    assert_eq!(state(client), "full");
}

/// The most that is used while `ask` asks for one of these numbers after the other.
fn most_used(
    client: &mut Client,
    numbers: std::ops::Range<usize>,
    mut ask: impl FnMut(&mut Client, usize),
) -> u64 {
    let mut most = 0;
    for number in numbers {
        ask(client, number);
        if number.is_multiple_of(100) {
            most = most.max(used(client));
        }
    }
    most.max(used(client))
}

fn start(folder: &Folder, more: &[&str]) -> Server {
    folder.start(&[&["--swap-cache", "1mb", "--save", ""][..], more].concat())
}

#[test]
fn reads_of_collections_bring_nothing_to_memory_that_is_full() {
    let folder = Folder::new("short-hashes");
    let server = start(&folder, &[]);
    let mut client = server.client();
    let kinds = [("HSET", 0..7000), ("ZADD", 7000..8000), ("SADD", 8000..8500), ("RPUSH", 8500..COLLECTIONS)];
    for (command, numbers) in kinds.clone() {
        fill(&mut client, command, numbers);
    }
    client.send(encode(&["ZADD", "scores", "1", "a", "2", "b"]));
    client.expect(":2\r\n");
    fill_up(&mut client);
    let bulk = |text: &str| format!("${}\r\n{text}\r\n", text.len());
    for (command, numbers) in kinds {
        let most = most_used(&mut client, numbers, |client, n| {
            let (at, name) = (n % ELEMENTS, name(n));
            let (words, expected) = match command {
                "HSET" => (vec!["HGET".into(), name, format!("f{at}")], bulk(&element(n, at))),
                "ZADD" => (vec!["ZSCORE".into(), name, element(n, at)], bulk(&at.to_string())),
                "SADD" => (vec!["SISMEMBER".into(), name, element(n, at)], ":1\r\n".to_string()),
                _ => (vec!["LINDEX".into(), name, at.to_string()], bulk(&element(n, at))),
            };
            client.send(encode(&words));
            assert_eq!(String::from_utf8_lossy(&client.read_reply()), expected, "{words:?}");
        });
        assert!(most <= MOST, "{command}: {most}");
    }
    client.check("DEBUG CHECK-INVARIANTS", "+OK\r\n");
    fault(&mut client, "write none");
}

#[test]
fn what_is_changed_comes_to_memory_as_far_as_there_is_room() {
    let folder = Folder::new("short-lists");
    let server = start(&folder, &[]);
    let mut client = server.client();
    fill(&mut client, "RPUSH", 0..COLLECTIONS);
    fill_up(&mut client);
    let (mut refused, mut served) = (0, 0);
    let most = most_used(&mut client, 0..COLLECTIONS, |client, n| {
        client.send(encode(&["LPOP", &name(n)]));
        match client.read_reply().as_slice() {
            reply if reply.starts_with(b"-OOM") => refused += 1,
            reply => {
                let expected = element(n, 0);
                assert_eq!(String::from_utf8_lossy(reply), format!("${}\r\n{expected}\r\n", expected.len()));
                served += 1;
            }
        }
    });
    assert!(most <= MOST, "{most}");
    assert!(refused > 0 && served > 0, "{served} served, {refused} refused");
    // Commands that free memory run in any case.
    client.check(&format!("DEL {}", name(COLLECTIONS - 1)), ":1\r\n");
    fault(&mut client, "write none");
    wait_until("values leave memory again", || {
        client.ask(&format!("LPOP {}", name(COLLECTIONS - 2))).starts_with('$')
    });
    client.check("DEBUG CHECK-INVARIANTS", "+OK\r\n");
}

#[test]
fn frozen_keys_are_shown_from_their_records() {
    const KEYS: usize = 120_000;
    let folder = Folder::new("short-frozen");
    let server = start(&folder, &["--swap-freeze", "yes"]);
    let mut client = server.client();
    let name = |n: usize| format!("frozen:{n}");
    let value = |n: usize| format!("{n}.").repeat(300)[..300].to_string();
    for first in (0..KEYS).step_by(200) {
        let some = first..first + 200;
        client.send(some.clone().flat_map(|n| encode(&["SET", &name(n), &value(n)])).collect::<Vec<u8>>());
        some.for_each(|_| client.expect("+OK\r\n"));
    }
    client.check("HSET hash field 1", ":1\r\n");
    client.check("SET number 42", "+OK\r\n");
    client.check("SET ends 1 EX 1000", "+OK\r\n");
    client.check("DEBUG SWAP-CHAOS 1", "+OK\r\n");
    wait_until("all of it leaves memory", || {
        swap(&mut client, "swap_frozen_keys") + swap(&mut client, "swap_keys") >= KEYS as u64
    });
    client.check("DEBUG SWAP-CHAOS 0", "+OK\r\n");
    assert!(swap(&mut client, "swap_frozen_keys") > KEYS as u64 / 2);
    fill_up(&mut client);
    let thawed = swap(&mut client, "swap_thawed");
    let mut most = 0;
    for first in (0..KEYS).step_by(100) {
        let some = first..first + 100;
        client.send(some.clone().flat_map(|n| encode(&["GET", &name(n)])).collect::<Vec<u8>>());
        for n in some {
            assert_eq!(String::from_utf8_lossy(&client.read_reply()), format!("$300\r\n{}\r\n", value(n)));
        }
        if first.is_multiple_of(10_000) {
            most = most.max(used(&mut client));
        }
    }
    let most = most.max(used(&mut client));
    assert!(most <= MOST, "{most}");
    assert_eq!(swap(&mut client, "swap_thawed"), thawed);
    // All that an entry says is there too.
    client.check("HGET hash field", "$1\r\n1\r\n");
    client.check("OBJECT ENCODING number", "$3\r\nint\r\n");
    client.check(&format!("OBJECT ENCODING {}", name(1)), "$3\r\nraw\r\n");
    client.check(&format!("EXISTS {} {} none", name(1), name(2)), ":2\r\n");
    client.check(&format!("TYPE {}", name(1)), "+string\r\n");
    client.check("TTL number", ":-1\r\n");
    assert!(client.ask("TTL ends").starts_with(":9"), "it has a time");
    client.check(&format!("STRLEN {}", name(3)), ":300\r\n");
    client.check(&format!("MGET {0} none {0}", name(3)), &{
        let bulk = format!("$300\r\n{}\r\n", value(3));
        format!("*3\r\n{bulk}$-1\r\n{bulk}")
    });
    for line in ["MULTI", "GET number", "DEL number", "GET number"] {
        assert!(client.ask(line).starts_with('+'));
    }
    client.check("EXEC", "*3\r\n$2\r\n42\r\n:1\r\n$-1\r\n");
    client.check("GETDEL ends", "$1\r\n1\r\n");
    client.check(&format!("DEL {}", name(5)), ":1\r\n");
    client.check(&format!("GET {}", name(5)), "$-1\r\n");
    client.check("DEBUG CHECK-INVARIANTS", "+OK\r\n");
    fault(&mut client, "write none");
}

/// Six clients read more than fits into memory, as fast as they can; another one writes.
#[test]
fn who_writes_does_not_wait_for_the_end_of_those_who_read() {
    let folder = Folder::new("short-turns");
    let server = start(&folder, &[]);
    let mut client = server.client();
    fill(&mut client, "HSET", 0..COLLECTIONS);
    let (has_ended, read) = (AtomicBool::new(false), AtomicU64::new(0));
    std::thread::scope(|scope| {
        for reader in 0..6 {
            let (mut client, has_ended, read) = (server.client(), &has_ended, &read);
            scope.spawn(move || {
                let mut number = reader * COLLECTIONS / 6;
                while !has_ended.load(SeqCst) {
                    number = (number + 1) % COLLECTIONS;
                    client.send(encode(&["HGET", &name(number), "f1"]));
                    assert!(client.read_reply().starts_with(b"$90\r\n"));
                    read.fetch_add(1, SeqCst);
                }
            });
        }
        wait_until("they read", || read.load(SeqCst) > 2000);
        for n in 0..300 {
            client.send(encode(&["SET", &format!("written:{n}"), &"x".repeat(3000)]));
            client.expect("+OK\r\n");
        }
        let before = read.load(SeqCst);
        wait_until("they still read", || read.load(SeqCst) > before);
        has_ended.store(true, SeqCst);
    });
    let most = used(&mut client);
    assert!(most <= MOST, "{most}");
    client.check("DEBUG CHECK-INVARIANTS", "+OK\r\n");
}

fn mget(numbers: std::ops::Range<usize>) -> Vec<u8> {
    let names: Vec<String> = numbers.map(swap::name).collect();
    encode(&std::iter::once("MGET").chain(names.iter().map(String::as_str)).collect::<Vec<_>>())
}

fn all_of(numbers: std::ops::Range<usize>) -> String {
    let values: String = numbers.clone().map(|n| format!("$1000\r\n{}\r\n", swap::value(n, 0))).collect();
    format!("*{}\r\n{values}", numbers.len())
}

/// The disk takes longer for all of it than a command waits for the next value.
#[test]
fn a_command_of_many_keys_waits_as_long_as_values_come() {
    const KEYS: usize = 30_000;
    let folder = Folder::new("short-many");
    let server = with_cold(&folder, KEYS, &["--swap-read-timeout", "1000"]);
    let (mut client, mut other) = (server.client(), server.client());
    fault(&mut other, "read slow");
    client.send(mget(0..KEYS));
    assert!(client.read_reply() == all_of(0..KEYS).as_bytes(), "all of them are answered");
    assert_eq!(swap(&mut other, "swap_timeouts"), 0);
    wait_until("what it was lent goes", || swap(&mut other, "swap_lent_bytes") < 30 << 20);
    client.check("DEBUG CHECK-INVARIANTS", "+OK\r\n");
}

#[test]
fn what_came_in_time_is_there_for_the_next_try() {
    const KEYS: usize = 200;
    let folder = Folder::new("short-kept");
    let server = with_cold(&folder, KEYS, &["--swap-read-timeout", "500"]);
    let (mut client, mut other) = (server.client(), server.client());
    fault(&mut other, "read hang 5");
    client.send(mget(0..KEYS));
    client.expect(TOO_SLOW);
    fault(&mut other, "read none");
    wait_until("what hung has ended", || swap(&mut other, "swap_reads") == KEYS as u64);
    client.send(mget(0..KEYS));
    client.expect(&all_of(0..KEYS));
    let reads = swap(&mut other, "swap_reads");
    assert!(reads <= KEYS as u64 + 5, "{reads}: each was read once, but for those that came too late");
}

/// A script with any number of cold keys is refused while no value can leave memory, and runs when there is
/// room.
#[test]
fn a_script_of_very_many_cold_keys_is_refused_or_runs() {
    const KEYS: usize = 10_000;
    let folder = Folder::new("short-script");
    let server = with_cold(&folder, KEYS, &["--save", ""]);
    let mut client = server.client();
    fill_up(&mut client);
    let append = "for _, key in ipairs(KEYS) do redis.call('APPEND', key, 'x') end return #KEYS";
    let mut words = vec!["EVAL".to_string(), append.to_string(), KEYS.to_string()];
    words.extend((0..KEYS).map(swap::name));
    client.send(encode(&words));
    assert!(client.read_reply().starts_with(b"-OOM"));
    client.check(&format!("STRLEN {}", swap::name(7)), ":1000\r\n");
    client.check("CONFIG SET maxmemory 200mb", "+OK\r\n");
    client.send(encode(&words));
    client.expect(&format!(":{KEYS}\r\n"));
    for n in (0..KEYS).step_by(97) {
        client.check(&format!("STRLEN {}", swap::name(n)), ":1001\r\n");
    }
    client.check("DEBUG CHECK-INVARIANTS", "+OK\r\n");
}
