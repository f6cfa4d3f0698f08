//! Memory accounting: every byte that is used is accounted for by purpose, and what is resident is explained
//! to the system's figure.
//!
//! `cargo xtask allocators` runs this under each of the four.

use crate::common::{Client, Server, encode, wait_until};
use std::collections::BTreeMap;

const KEYS: usize = 4000;
/// Memory that the accounting may miss of used memory: threads that rest know up to 4 KB each alone, those at
/// work 64 KB; the rounding of the allocator for tables that are counted by their lengths; buffers of
/// workers.
const UNBOOKED_BYTES_MAX: i64 = 192 << 10;
/// More with `swap-mode`: 227 KB in all were seen since the thread that writes values can evict keys.
const UNBOOKED_TIER_BYTES_MAX: i64 = 96 << 10;
const UNBOOKED_SHARE_MAX: i64 = 100;

fn memory_map(client: &mut Client) -> BTreeMap<String, i64> {
    let text = client.ask("INFO memorymap");
    let lines = text.lines().filter_map(|line| line.trim_end().strip_prefix("memorymap_")?.split_once(':'));
    lines.map(|(name, bytes)| (name.to_string(), bytes.parse().unwrap())).collect()
}

/// The sums hold, and nearly everything has a name.
fn check(server: &Server, client: &mut Client, when: &str) -> BTreeMap<String, i64> {
    // Looking takes memory too: an allocator may take its next huge page, of 2 MB, between two looks.
    const LOOKS: usize = 5;
    let mut last = None;
    for _ in 0..LOOKS {
        let before = server.resident_bytes() as i64;
        let used = used_memory(client);
        let map = memory_map(client);
        let after = server.resident_bytes() as i64;
        check_used(client, used, &map, when);
        let explains = |rss: i64| (map["total"] - rss).abs() <= rss / 100 + (1 << 20);
        if explains(before) || explains(after) {
            return map;
        }
        last = Some((before, after, map));
    }
    panic!("{when}: RSS is not explained: {last:#?}");
}

fn used_memory(client: &mut Client) -> i64 {
    client.info("memory", "used_memory") as i64
}

/// `before`: what was used before that look.
fn check_used(client: &mut Client, before: i64, map: &BTreeMap<String, i64>, when: &str) {
    let is_part = |name: &str| !["used", "total"].contains(&name) && !name.starts_with("beside");
    let parts: i64 = map.iter().filter(|(name, _)| is_part(name)).map(|(_, bytes)| bytes).sum();
    assert_eq!(parts, map["total"], "{when}: the parts are the whole: {map:#?}");
    // Copies of what is on disk may be dropped between two looks.
    let after = used_memory(client);
    let used = map["used"].clamp(before.min(after), before.max(after));
    // A thread may have added its own counts meanwhile: with swap-mode there are sixteen more, which read.
    let counts_max = if map["tier_tables"] > 0 { 256 << 10 } else { 64 << 10 };
    assert!((map["used"] - used).abs() <= counts_max, "{when}: used_memory is {used}: {map:#?}");
    let of_tier = if map["tier_tables"] > 0 { UNBOOKED_TIER_BYTES_MAX } else { 0 };
    let unbooked_max = UNBOOKED_BYTES_MAX + of_tier + map["used"] / UNBOOKED_SHARE_MAX;
    assert!(map["unbooked"].abs() <= unbooked_max, "{when}: {map:#?}");
}

/// `count` requests, each of the words that `words` makes; the replies are read, not looked at.
fn run(client: &mut Client, count: usize, words: impl Fn(usize) -> Vec<Vec<u8>>) {
    for from in (0..count).step_by(100) {
        let requests: Vec<u8> = (from..count.min(from + 100))
            .flat_map(|at| encode(&words(at).iter().map(Vec::as_slice).collect::<Vec<_>>()))
            .collect();
        client.send(requests);
        (from..count.min(from + 100)).for_each(|_| drop(client.read_reply()));
    }
}

fn texts(words: &[&str]) -> Vec<Vec<u8>> {
    words.iter().map(|word| word.as_bytes().to_vec()).collect()
}

fn fill(client: &mut Client) {
    let number = |at: usize| format!("{at:05}");
    run(client, KEYS, |at| texts(&["SET", &format!("text:{}", number(at)), &"v".repeat(at % 300)]));
    run(client, KEYS, |at| {
        texts(&["SET", &format!("number:{}", number(at)), &(at * at).to_string(), "EX", "1000"])
    });
    run(client, KEYS / 8, |at| texts(&["SET", &format!("large:{}", number(at)), &"x".repeat(at * 40)]));
    run(client, KEYS / 8, |at| {
        texts(&["SET", &format!("{}:{}", "long".repeat(50), number(at)), &"x".repeat(at * 3)])
    });
    run(client, KEYS, |at| texts(&["HSET", &format!("hash:{}", at % 500), &format!("field:{at}"), "value"]));
    run(client, KEYS, |at| texts(&["HSET", "hash", &format!("field:{at}"), &"w".repeat(at % 200)]));
    run(client, KEYS, |at| texts(&["SADD", &format!("set:{}", at % 500), &format!("member:{at}")]));
    run(client, KEYS, |at| texts(&["SADD", &format!("numbers:{}", at % 50), &at.to_string()]));
    run(client, KEYS, |at| texts(&["SADD", "set", &format!("member:{at}")]));
    run(client, KEYS, |at| {
        texts(&["ZADD", &format!("zset:{}", at % 500), &at.to_string(), &format!("member:{at}")])
    });
    run(client, KEYS, |at| texts(&["ZADD", "zset", &at.to_string(), &format!("member:{at}")]));
    run(client, KEYS, |at| texts(&["RPUSH", &format!("list:{}", at % 500), &format!("element:{at}")]));
    run(client, KEYS, |at| texts(&["RPUSH", "list", &"e".repeat(at % 100)]));
    run(client, 20, |at| texts(&["RPUSH", "list", &"e".repeat(at * 1000)]));
    run(client, KEYS, |at| {
        texts(&["XADD", &format!("stream:{}", at % 50), "*", "field", &format!("value:{at}")])
    });
    run(client, 50, |at| texts(&["COPY", &format!("large:{}", number(450 + at)), &format!("copy:{at}")]));
}

fn churn(client: &mut Client) {
    let number = |at: usize| format!("{at:05}");
    run(client, KEYS, |at| texts(&["SET", &format!("text:{}", number(at)), &"n".repeat(at * 7 % 400)]));
    run(client, KEYS / 2, |at| texts(&["APPEND", &format!("text:{}", number(at * 2)), "more"]));
    run(client, KEYS / 2, |at| texts(&["INCRBY", &format!("number:{}", number(at * 2)), "1000000000"]));
    run(client, KEYS / 4, |at| texts(&["PEXPIRE", &format!("number:{}", number(at * 3)), "1"]));
    run(client, KEYS / 4, |at| texts(&["PERSIST", &format!("number:{}", number(at * 4))]));
    run(client, KEYS / 3, |at| texts(&["DEL", &format!("text:{}", number(at * 3))]));
    run(client, KEYS / 8, |at| {
        texts(&["SETRANGE", &format!("large:{}", number(at)), &(at * 50).to_string(), "end"])
    });
    run(client, KEYS / 2, |at| texts(&["HDEL", "hash", &format!("field:{}", at * 2)]));
    run(client, KEYS / 2, |at| texts(&["SREM", "set", &format!("member:{}", at * 2)]));
    run(client, KEYS / 2, |at| texts(&["ZREM", "zset", &format!("member:{}", at * 2)]));
    run(client, KEYS / 2, |_| texts(&["LPOP", "list"]));
    run(client, 300, |at| texts(&["RENAME", &format!("zset:{at}"), &format!("renamed:{at}")]));
}

/// Values that are on disk, on their way there, or lent.
#[test]
fn what_is_cold_is_accounted_for() {
    let folder = crate::swap::Folder::new("accounting");
    let server = folder.start(&["--save", "", "--swap-max-disk", "8gb", "--swap-cache", "16mb"]);
    let mut client = server.client();
    wait_until("it is noted", || client.ask("INFO locks").contains("\r\ngate_housekeeping:"));
    let empty = check(&server, &mut client, "empty");
    assert!(empty["tier_tables"] > 0, "{empty:#?}");
    crate::swap::set(&mut client, 0..40_000, 0);
    let mut written = u64::MAX;
    wait_until("nothing moves any more", || {
        std::thread::sleep(std::time::Duration::from_millis(200));
        let before = std::mem::replace(&mut written, crate::swap::swap(&mut client, "swap_written_bytes"));
        before == written && crate::swap::swap(&mut client, "swap_writes_waiting_bytes") == 0
    });
    check(&server, &mut client, "filled");
    crate::swap::check(&mut client, 0..40_000, 0);
    let read = check(&server, &mut client, "read");
    assert!(read["tier_lent"] > 2 << 20, "{read:#?}");
    client.check("FLUSHALL", "+OK\r\n");
    wait_until("it is freed", || memory_map(&mut client)["tier_lent"] == 0);
    check(&server, &mut client, "flushed");
}

#[test]
fn every_byte_is_accounted_for() {
    let server = Server::with_workers(2, &["--save", ""]);
    let mut client = server.client();
    // The memory of the process is noted a moment after the start, with everything held.
    wait_until("it is noted", || client.ask("INFO locks").contains("\r\ngate_housekeeping:"));
    check(&server, &mut client, "empty");
    let clients: Vec<Client> = (0..100).map(|_| server.client()).collect();
    fill(&mut client);
    let full = check(&server, &mut client, "filled");
    for name in [
        "keys",
        "values",
        "expiries",
        "entry_heads",
        "page_overhead",
        "directories",
        "collection_nodes",
        "large_values",
        "clients",
        "process",
        "stacks",
        "program",
    ] {
        assert!(full[name] > 0, "{name}: {full:#?}");
    }
    churn(&mut client);
    check(&server, &mut client, "churned");
    client.check("SUBSCRIBE a", "*3\r\n$9\r\nsubscribe\r\n$1\r\na\r\n:1\r\n");
    let listener = client;
    let mut client = server.client();
    assert!(check(&server, &mut client, "heard")["pubsub"] > 0);
    client.check("SWAPDB 0 7", "+OK\r\n");
    check(&server, &mut client, "swapped");
    client.check("FLUSHALL", "+OK\r\n");
    drop((clients, listener));
    // The memory of removed collections is freed by and by.
    wait_until("it is freed", || memory_map(&mut client)["large_values"] == 0);
    let empty = check(&server, &mut client, "emptied");
    for name in ["keys", "values", "expiries", "entry_heads", "page_overhead", "large_values"] {
        assert_eq!(empty[name], 0, "{name}");
    }
}

/// The reported types are the stored ones.
#[test]
fn types_and_encodings_are_distinguished() {
    let server = Server::start(&[]);
    let mut client = server.client();
    client.check("SET number 12345", "+OK\r\n");
    client.check("SET text abcdef", "+OK\r\n");
    client.check("RPUSH list a b c", ":3\r\n");
    client.check("SELECT 3", "+OK\r\n");
    client.check("SADD set 1 2 3", ":3\r\n");
    let map = client.ask("MEMORY MAP");
    let at = |part: &str| map.find(part).unwrap_or_else(|| panic!("no {part:?} in {map:?}"));
    let names = [
        "used",
        "keys",
        "total",
        "resident",
        "slab_free",
        "total",
        "beside",
        "page_tables",
        "keyspace",
        "db0",
        "string",
        "int",
        "embstr",
        "list",
        "listpack",
        "db3",
        "set",
        "intset",
    ];
    let places: Vec<usize> = names[8..].iter().map(|name| at(&format!("\r\n{name}\r\n"))).collect();
    assert!(places.is_sorted(), "{map:?}");
    assert!(names[..8].iter().all(|name| map.contains(&format!("\r\n{name}\r\n"))), "{map:?}");
    client.check("MEMORY MAP all", "-ERR wrong number of arguments for 'memory|map' command\r\n");
}

#[test]
fn values_on_their_way_to_another_server_are_accounted_for() {
    const BYTES: i64 = 30 << 20;
    let server = Server::start(&["--rdbcompression", "no"]);
    let mut client = server.client();
    client.check(&format!("SETRANGE long {} x", BYTES - 1), &format!(":{BYTES}\r\n"));
    // It reads nothing.
    let target = std::net::TcpListener::bind(("127.0.0.1", 0)).unwrap();
    let port = target.local_addr().unwrap().port().to_string();
    let mut mover = server.client();
    mover.send(encode(&["MIGRATE", "127.0.0.1", &port, "long", "0", "60000"]));
    // The buffer that it is put into grows, and is noted when it has.
    wait_until("the value is on its way", || {
        let map = memory_map(&mut client);
        map["migration"] >= BYTES && map["unbooked"] < UNBOOKED_BYTES_MAX
    });
    check(&server, &mut client, "on its way");
    drop(target);
    assert!(mover.read_reply().starts_with(b"-IOERR"));
    wait_until("it is given up", || memory_map(&mut client)["migration"] == 0);
    client.check("STRLEN long", &format!(":{BYTES}\r\n"));
}
