//! `swap-mode`: more data than memory, answered as if all lay in memory.

use crate::common::{Client, Server, encode, field, text_field, wait_until};
use std::path::PathBuf;

/// A folder that is removed at the end.
pub struct Folder(pub PathBuf);

impl Folder {
    pub fn new(name: &str) -> Folder {
        let path = std::env::temp_dir().join(format!("isotherm-swap-{name}-{}", std::process::id()));
        let _ = std::fs::remove_dir_all(&path);
        std::fs::create_dir_all(&path).expect("a folder");
        Folder(path)
    }

    pub fn start(&self, more: &[&str]) -> Server {
        let dir = self.0.to_str().expect("a plain path");
        let own =
            ["--dir", dir, "--swap-mode", "yes", "--maxmemory", "24mb", "--enable-debug-command", "yes"];
        Server::with_workers(2, &[&own[..], more].concat())
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

const KEYS: usize = 60_000;

pub fn name(number: usize) -> String {
    format!("key:{number:010}")
}

/// 1000 bytes that only this key has.
pub fn value(number: usize, version: usize) -> String {
    let piece = format!("{number}/{version}.");
    piece.repeat(1000 / piece.len() + 1)[..1000].to_string()
}

pub fn set(client: &mut Client, numbers: impl Iterator<Item = usize>, version: usize) {
    let numbers: Vec<usize> = numbers.collect();
    for some in numbers.chunks(100) {
        let requests: Vec<_> =
            some.iter().map(|n| encode(&["SET", &name(*n), &value(*n, version)])).collect();
        client.send(requests.concat());
        some.iter().for_each(|_| client.expect("+OK\r\n"));
    }
}

pub fn check(client: &mut Client, numbers: impl Iterator<Item = usize>, version: usize) {
    let numbers: Vec<usize> = numbers.collect();
    for some in numbers.chunks(100) {
        client.send(some.iter().flat_map(|n| encode(&["GET", &name(*n)])).collect::<Vec<u8>>());
        for n in some {
            let expected = format!("$1000\r\n{}\r\n", value(*n, version));
            assert_eq!(String::from_utf8_lossy(&client.read_reply()), expected, "{n}");
        }
    }
}

pub fn wait_until_loaded(client: &mut Client) {
    wait_until("it is loaded", || !client.ask("DBSIZE").contains("LOADING"));
}

pub fn swap(client: &mut Client, name: &str) -> u64 {
    field(&client.ask("INFO swap"), name)
}

#[test]
fn more_data_than_memory_is_there() {
    let folder = Folder::new("more");
    let server = folder.start(&[]);
    let (mut client, mut other) = (server.client(), server.client());
    set(&mut client, 0..KEYS, 0);
    client.check("DBSIZE", &format!(":{KEYS}\r\n"));
    let used = field(&client.ask("INFO memory"), "used_memory");
    assert!(used < 28 << 20, "{used}: writers waited for the disk");
    assert!(swap(&mut client, "swap_keys") > KEYS as u64 / 2);
    check(&mut client, (0..KEYS).step_by(7), 0);
    // Commands that need no value read none.
    let reads = swap(&mut other, "swap_reads");
    for n in (0..KEYS).step_by(50) {
        other.check(&format!("STRLEN {}", name(n)), ":1000\r\n");
        other.check(&format!("TTL {}", name(n)), ":-1\r\n");
        other.check(&format!("TYPE {}", name(n)), "+string\r\n");
        other.check(&format!("EXPIRE {} 10000", name(n)), ":1\r\n");
        other.check(&format!("PERSIST {}", name(n)), ":1\r\n");
    }
    assert_eq!(swap(&mut other, "swap_reads"), reads);
    // Changed, deleted, renamed, copied.
    for n in (0..KEYS).step_by(600) {
        other.check(&format!("APPEND {} x", name(n)), ":1001\r\n");
        other.check(&format!("GETRANGE {} 998 -1", name(n)), &format!("$3\r\n{}x\r\n", &value(n, 0)[998..]));
        other.check(&format!("RENAME {} renamed:{n}", name(n)), "+OK\r\n");
        other.check(&format!("COPY renamed:{n} {}", name(n)), ":1\r\n");
        other.check(&format!("DEL renamed:{n}"), ":1\r\n");
        other.check(&format!("GETDEL {}", name(n)), &format!("$1001\r\n{}x\r\n", value(n, 0)));
    }
    client.check("DEBUG CHECK-INVARIANTS", "+OK\r\n");
    client.check("FLUSHALL", "+OK\r\n");
    wait_until("places are given back", || swap(&mut client, "swap_keys") == 0);
    wait_until("files are removed", || swap(&mut client, "swap_file_bytes") <= 64 << 20);
    assert_eq!(swap(&mut client, "swap_unreadable"), 0);
}

/// Elements of a collection: small ones lie in their entry, of the larger ones Valkey would say hashtable,
/// skiplist, quicklist.
fn element_count(number: usize) -> usize {
    if number.is_multiple_of(3) { 150 } else { 12 }
}

fn element(number: usize, at: usize) -> String {
    format!("element:{number}:{at}")
}

/// The command that makes the collection of this number.
fn collection(number: usize) -> Vec<String> {
    let command = ["HSET", "SADD", "ZADD", "RPUSH"][number % 4];
    let mut words = vec![command.to_string(), name(number)];
    for at in 0..element_count(number) {
        match command {
            "HSET" => words.extend([element(number, at), format!("value {at}")]),
            "ZADD" => words.extend([format!("{at}.5"), element(number, at)]),
            _ => words.push(element(number, at)),
        }
    }
    words
}

/// All of 4 types leave memory, are read and changed, and are the same in a file.
#[test]
fn collections_leave_memory_too() {
    const COLLECTIONS: usize = 15_000;
    let folder = Folder::new("collections");
    let server = folder.start(&["--swap-cache", "1mb", "--maxmemory", "10mb"]);
    let mut client = server.client();
    let numbers: Vec<usize> = (0..COLLECTIONS).collect();
    for some in numbers.chunks(50) {
        client.send(some.iter().flat_map(|n| encode(&collection(*n))).collect::<Vec<u8>>());
        for n in some {
            let count = element_count(*n);
            client.expect(&format!(":{count}\r\n"));
        }
    }
    let cold = swap(&mut client, "swap_keys");
    assert!(cold > COLLECTIONS as u64 / 4, "{cold}");
    let digest = client.ask("DEBUG DIGEST");
    let encodings = [["listpack", "hashtable", "skiplist", "listpack"], ["listpack"; 4]];
    for n in numbers.iter().copied().step_by(61) {
        let (key, count) = (name(n), element_count(n));
        let last = element(n, count - 1);
        let encoding = encodings[usize::from(count == 12)][n % 4];
        client.check(&format!("OBJECT ENCODING {key}"), &format!("${}\r\n{encoding}\r\n", encoding.len()));
        let (length, part, answer) = match n % 4 {
            0 => ("HLEN", format!("HGET {key} {last}"), format!("value {}", count - 1)),
            1 => ("SCARD", format!("SISMEMBER {key} {last}"), String::new()),
            2 => ("ZCARD", format!("ZSCORE {key} {last}"), format!("{}.5", count - 1)),
            _ => ("LLEN", format!("LINDEX {key} -1"), last.clone()),
        };
        client.check(&format!("{length} {key}"), &format!(":{count}\r\n"));
        match answer.is_empty() {
            true => client.check(&part, ":1\r\n"),
            false => client.check(&part, &format!("${}\r\n{answer}\r\n", answer.len())),
        }
    }
    assert_eq!(client.ask("DEBUG DIGEST"), digest);
    // A file has them all, and what was loaded is the same.
    client.check("SAVE", "+OK\r\n");
    client.check("DEBUG RELOAD NOSAVE", "+OK\r\n");
    assert_eq!(client.ask("DEBUG DIGEST"), digest);
    for n in numbers.iter().copied().step_by(97) {
        let (key, count) = (name(n), element_count(n));
        let (more, less) = match n % 4 {
            0 => (format!("HSET {key} more 1"), format!("HDEL {key} {}", element(n, 0))),
            1 => (format!("SADD {key} more"), format!("SREM {key} {}", element(n, 0))),
            2 => (format!("ZADD {key} 1 more"), format!("ZREM {key} {}", element(n, 0))),
            _ => (format!("RPUSH {key} more"), format!("LREM {key} 1 {}", element(n, 0))),
        };
        client.check(&more, &format!(":{}\r\n", if n % 4 == 3 { count + 1 } else { 1 }));
        client.check(&less, ":1\r\n");
        client.check(&format!("COPY {key} copy:{n}"), ":1\r\n");
        client.check(&format!("RENAME {key} renamed:{n}"), "+OK\r\n");
        client.check(&format!("DEL copy:{n}"), ":1\r\n");
    }
    client.check("DEBUG CHECK-INVARIANTS", "+OK\r\n");
    assert_eq!(swap(&mut client, "swap_unreadable"), 0);
    client.check("FLUSHALL", "+OK\r\n");
    wait_until("places are given back", || swap(&mut client, "swap_keys") == 0);
}

/// Written over again and again: the disk does not grow with that, and no old value comes back.
#[test]
fn a_disk_that_is_small_is_cleaned() {
    let folder = Folder::new("clean");
    // A save would keep segments from being cleaned.
    let server = folder.start(&["--swap-max-disk", "512mb", "--save", ""]);
    let mut client = server.client();
    set(&mut client, 0..KEYS * 4, 0);
    // Each segment keeps something alive: the keys that are written over are everywhere.
    for version in 1..4 {
        set(&mut client, (0..KEYS * 4).filter(|n| n % 5 != 0), version);
    }
    check(&mut client, (0..KEYS * 4).step_by(5 * 17), 0);
    check(&mut client, (1..KEYS * 4).step_by(5 * 19), 3);
    let info = client.ask("INFO swap");
    assert!(field(&info, "swap_cleaned_segments") > 0, "{info}");
    assert!(field(&info, "swap_survivor_bytes") > 0, "{info}");
    assert_eq!(text_field(&info, "swap_state"), "ok");
    client.check("DEBUG CHECK-INVARIANTS", "+OK\r\n");
}

/// A file has all values, wherever they lie; what loads it has the memory that it had.
#[test]
fn files_are_complete_and_loaded_within_the_limit() {
    let folder = Folder::new("files");
    let digest = {
        let mut server = folder.start(&["--appendonly", "yes", "--log-memory-limit", "2mb"]);
        let mut client = server.client();
        wait_until_loaded(&mut client);
        set(&mut client, 0..KEYS, 3);
        let digest = client.ask("DEBUG DIGEST");
        client.check("BGREWRITEAOF", "+Background append only file rewriting started\r\n");
        set(&mut client, (0..KEYS).step_by(3), 3);
        wait_until("the rewrite", || client.ask("INFO persistence").contains("aof_rewrite_in_progress:0"));
        assert!(client.ask("INFO persistence").contains("aof_last_bgrewrite_status:ok"));
        server.signal("KILL");
        server.wait();
        digest
    };
    let server = folder.start(&["--appendonly", "yes", "--log-memory-limit", "2mb"]);
    let mut client = server.client();
    wait_until_loaded(&mut client);
    assert_eq!(client.ask("DEBUG DIGEST"), digest);
    assert!(field(&client.ask("INFO memory"), "used_memory_peak") < 40 << 20);
    check(&mut client, (0..KEYS).step_by(11), 3);
    client.check("SAVE", "+OK\r\n");
    client.check("DEBUG RELOAD", "+OK\r\n");
    assert_eq!(client.ask("DEBUG DIGEST"), digest);
}

#[test]
fn transactions_scripts_and_patterns_have_their_values() {
    let folder = Folder::new("commands");
    let server = folder.start(&["--swap-min-value", "16"]);
    let mut client = server.client();
    client.check("DEBUG SWAP-CHAOS 1", "+OK\r\n");
    let long = |text: &str| format!("{text}{}", ".".repeat(40));
    let is_cold = |client: &mut Client, keys: u64| {
        wait_until("all values leave memory", || swap(client, "swap_keys") == keys);
    };
    client.check(
        &format!("MSET a {} b {} w_1 {} w_2 {}", long("a"), long("b"), long("2"), long("1")),
        "+OK\r\n",
    );
    client.check("RPUSH l 1 2", ":2\r\n");
    is_cold(&mut client, 4);
    client.check("MULTI", "+OK\r\n");
    client.check("GET a", "+QUEUED\r\n");
    client.check("APPEND b !", "+QUEUED\r\n");
    let reply = client.ask("EXEC");
    assert!(reply.contains(&long("a")) && reply.contains(":42"), "{reply}");
    is_cold(&mut client, 4);
    client.send(encode(&["EVAL", "return redis.call('GET', KEYS[1])", "1", "a"]));
    assert_eq!(client.read_reply(), format!("$41\r\n{}\r\n", long("a")).as_bytes());
    // It was fetched before the script began.
    assert_eq!(swap(&mut client, "swap_reads_in_commands"), 0);
    is_cold(&mut client, 4);
    let library =
        "#!lua name=l\nredis.register_function('f', function(keys) return redis.call('GET', keys[1]) end)";
    client.send(encode(&["FUNCTION", "LOAD", library]));
    client.expect("$1\r\nl\r\n");
    client.send(encode(&["FCALL", "f", "1", "b"]));
    assert_eq!(client.read_reply(), format!("$42\r\n{}!\r\n", long("b")).as_bytes());
    assert_eq!(swap(&mut client, "swap_reads_in_commands"), 0);
    is_cold(&mut client, 4);
    let reply = client.ask("SORT l BY w_* ALPHA GET w_*");
    assert_eq!(reply, format!("*2\r\n${0}\r\n{1}\r\n${0}\r\n{2}\r\n", 41, long("1"), long("2")));
    client.check("SWAPDB 0 1", "+OK\r\n");
    client.check("SELECT 1", "+OK\r\n");
    is_cold(&mut client, 4);
    assert!(client.ask("MGET a b nothing").contains(&long("b")));
    client.check("MOVE a 2", ":1\r\n");
    client.check("SELECT 2", "+OK\r\n");
    assert!(client.ask("GET a").contains(&long("a")));
    client.check("DEBUG CHECK-INVARIANTS", "+OK\r\n");
}

/// A value that was damaged on disk is an error for its command alone, and no other value; the key can be
/// written again.
#[test]
fn what_cannot_be_read_is_an_error() {
    let folder = Folder::new("damaged");
    let server = folder.start(&[]);
    let mut client = server.client();
    client.check("DEBUG SWAP-CHAOS 1", "+OK\r\n");
    set(&mut client, 0..20, 0);
    wait_until("all values leave memory", || swap(&mut client, "swap_keys") == 20);
    client.check("DEBUG SWAP-CHAOS 0", "+OK\r\n");
    let path = folder.0.join("swap/00000000.cold");
    let bytes = std::fs::read(&path).expect("the file is there");
    let needle = value(7, 0);
    let at = bytes.windows(1000).position(|part| part == needle.as_bytes()).expect("the value is there");
    {
        use std::os::unix::fs::FileExt;
        let file = std::fs::OpenOptions::new().write(true).open(&path).expect("it is writable");
        file.write_all_at(b"X", at as u64 + 500).expect("it is written");
    }
    let error = "-SWAPERR A value that this command needs cannot be read from disk\r\n";
    client.check(&format!("GET {}", name(7)), error);
    client.check(&format!("APPEND {} x", name(7)), error);
    client.check(&format!("MGET {} {}", name(6), name(7)), error);
    client.check(&format!("STRLEN {}", name(7)), ":1000\r\n");
    check(&mut client, (0..20).filter(|n| *n != 7), 0);
    // A file without it would pass for complete.
    let bad =
        |what: &str, key: &str| format!("{what} cannot be read (its record is damaged: Checksum): {key}");
    let of_file = "A value on disk that belongs into the file";
    assert!(client.ask("SAVE").starts_with("-ERR"));
    let slot = client.ask_number(&format!("CLUSTER KEYSLOT {}", name(7)));
    server.wait_for_log(&bad(of_file, &format!("a key of slot {slot}\n")));
    client.check("CONFIG SET hide-user-data-from-log no", "+OK\r\n");
    assert!(client.ask("SAVE").starts_with("-ERR"));
    server.wait_for_log(&bad(of_file, &format!("key '{}'\n", name(7))));
    client.check("SWAP VERIFY", "+Verification started\r\n");
    server.wait_for_log(&bad("A value on disk", &format!("key '{}' in DB 0\n", name(7))));
    set(&mut client, [7].into_iter(), 1);
    check(&mut client, [7].into_iter(), 1);
    client.check("SAVE", "+OK\r\n");
    assert!(swap(&mut client, "swap_unreadable") > 0);
}

#[test]
fn it_says_why_it_does_not_start() {
    let folder = Folder::new("start");
    let dir = folder.0.to_str().expect("a plain path");
    let _first = folder.start(&[]);
    let mut command = crate::common::command(&[
        "--dir",
        dir,
        "--swap-mode",
        "yes",
        "--maxmemory",
        "10mb",
        "--port",
        &crate::common::free_port().to_string(),
    ]);
    let output = command.output().expect("it ends");
    let text =
        String::from_utf8_lossy(&output.stdout).into_owned() + &String::from_utf8_lossy(&output.stderr);
    assert!(!output.status.success() && text.contains("in use by another process"), "{text}");
}

/// The figures that operators see are right.
#[test]
fn figures_are_shown() {
    let folder = Folder::new("figures");
    let metrics = crate::common::free_port();
    let server = folder.start(&["--latency-monitor-threshold", "1", "--metrics-port", &metrics.to_string()]);
    let (mut client, mut other) = (server.client(), server.client());
    client.check("DEBUG SWAP-CHAOS 1", "+OK\r\n");
    set(&mut client, 0..100, 0);
    wait_until("all values leave memory", || swap(&mut client, "swap_keys") == 100);
    client.check("DEBUG SWAP-CHAOS 0", "+OK\r\n");
    client.check("DEBUG SWAP-FAULT READ HANG 1", "+OK\r\n");
    client.send(encode(&["GET", &name(0)]));
    wait_until("it waits", || other.ask("CLIENT LIST").contains("flags=b"));
    std::thread::sleep(std::time::Duration::from_millis(100));
    other.check("DEBUG SWAP-FAULT READ NONE", "+OK\r\n");
    client.expect(&format!("$1000\r\n{}\r\n", value(0, 0)));
    assert!(other.ask("LATENCY LATEST").contains("swap-read"));
    assert!(other.ask("LATENCY HISTORY swap-read").starts_with("*1\r\n"));
    let tier = other.ask("MEMORY STATS").split("tier.bytes\r\n:").nth(1).map(str::to_string);
    let tier = tier.and_then(|rest| rest.lines().next()?.parse::<u64>().ok()).expect("a figure");
    assert!(tier > 1000, "what was lent, and tables: {tier}");
    // Used three times while it is lent; a write promotes it.
    check(&mut client, std::iter::repeat_n(0, 3), 0);
    client.check(&format!("APPEND {} x", name(0)), ":1001\r\n");
    // All is held by EXEC.
    client.check("MULTI", "+OK\r\n");
    client.check("INFO swap", "+QUEUED\r\n");
    let info = client.ask("EXEC");
    for (name, least, most) in [
        ("swap_keys", 99, 99),
        ("swap_reads", 1, 1),
        ("swap_lent_hits", 4, 5),
        ("swap_came_home", 1, 1),
        ("swap_sunk_values", 100, 101),
        ("swap_read_usec_p50", 5000, 60_000_000),
        ("swap_read_usec_p99", 5000, 60_000_000),
        ("swap_timeouts", 0, 0),
    ] {
        assert!((least..=most).contains(&field(&info, name)), "{name}: {info}");
    }
    let page = {
        use std::io::{Read, Write};
        let mut stream = std::net::TcpStream::connect(("127.0.0.1", metrics)).expect("it listens");
        stream.write_all(b"GET /metrics HTTP/1.1\r\nHost: localhost\r\n\r\n").expect("it is sent");
        let mut text = String::new();
        stream.read_to_string(&mut text).expect("it is text");
        text
    };
    for line in ["isotherm_swap_keys 99\n", "isotherm_swap_reads_total 1\n"] {
        assert!(page.contains(line), "{line} is not in {page}");
    }
    // The writer may have come to an end, or not yet.
    let state = |name: &str| page.contains(&format!("isotherm_swap_state{{is=\"{name}\"}} 1\n"));
    assert!(state("ok") || state("nothing-to-move"), "{page}");
    let amplification: f64 = text_field(&info, "swap_write_amplification").parse().expect("a number");
    // Small groups are padded to whole blocks.
    assert!((1.0..20.0).contains(&amplification), "{info}");
}
