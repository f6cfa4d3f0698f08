//! The memory that an RDB file takes is bounded by its bytes: by its values, and never by numbers that it
//! only claims.
//!
//! ```text
//!   [REDIS0011][what a test makes][ff, no checksum] --> server --> peak of its resident bytes (VmHWM), over that of an empty one
//! ```
//! The files are those in which few bytes make much: keys of one byte, a database for each key, streams and
//! groups without entries, numbers of elements that never come.

use crate::common::{Server, wait_until};

/// Resident bytes at most for a byte of the file.
const GROWTH_MAX: u64 = 64;
const SLACK_BYTES: u64 = 1 << 20;
/// Memory that the first keys of a database take in addition, when they lie in all parts of it: 256 runs of
/// 64 slots, each with its records and a first page (measured: 0.6 MB).
const DATABASE_BYTES: u64 = 700_000;
const DATABASES: u64 = 16;

/// A length in front of bytes, or a number of elements.
fn length(count: u64) -> Vec<u8> {
    match count {
        0..64 => vec![count as u8],
        64..16_384 => vec![0x40 | (count >> 8) as u8, count as u8],
        _ => [&[0x81][..], &count.to_be_bytes()].concat(),
    }
}

fn text(bytes: &[u8]) -> Vec<u8> {
    [&length(bytes.len() as u64)[..], bytes].concat()
}

/// Names of three bytes at most, each another.
fn name(number: u64) -> Vec<u8> {
    let digits = [number % 90, number / 90 % 90, number / 8100];
    let used = if number < 90 {
        1
    } else if number < 8100 {
        2
    } else {
        3
    };
    text(&digits.map(|digit| 33 + digit as u8)[..used])
}

/// `count` keys of a type, each with the same value.
fn keys(kind: u8, count: u64, value: &[u8]) -> Vec<u8> {
    (0..count).flat_map(|number| [&[kind][..], &name(number), value].concat()).collect()
}

fn database(number: u64) -> Vec<u8> {
    [&[0xfe][..], &length(number)].concat()
}

fn status_bytes(server: &Server, field: &str) -> u64 {
    let text = std::fs::read_to_string(format!("/proc/{}/status", server.pid())).unwrap();
    let line = text.lines().find_map(|line| line.strip_prefix(field)).expect("it is in every status");
    line.split_whitespace().next().unwrap().parse::<u64>().unwrap() * 1024
}

/// The keys that are there, and the peak of resident memory, in bytes.
fn load(folder: &std::path::Path, body: &[u8]) -> (i64, u64) {
    let file = [b"REDIS0011", body, b"\xff", &[0; 8]].concat();
    std::fs::write(folder.join("dump.rdb"), file).unwrap();
    let server = Server::with_workers(2, &["--dir", &folder.display().to_string(), "--save", ""]);
    let mut client = server.client();
    wait_until("the data is loaded", || client.info("persistence", "loading") == 0);
    let mut keys = 0;
    for db in 0..DATABASES {
        client.check(&format!("SELECT {db}"), "+OK\r\n");
        keys += client.ask_number("DBSIZE");
    }
    (keys, status_bytes(&server, "VmHWM:"))
}

#[test]
fn few_bytes_of_a_file_never_make_much() {
    let folder = std::env::temp_dir().join(format!("isotherm-load-memory-{}", std::process::id()));
    std::fs::create_dir_all(&folder).unwrap();
    let by_turns = |number: u64| [database(number % DATABASES), vec![0], name(number), vec![0]].concat();
    let group = |number: u64| [name(number), vec![0; 4]].concat();
    let groups: Vec<u8> = (0..60_000).flat_map(group).collect();
    let claim = [&[0xfb][..], &length(1 << 62), &length(1 << 62)].concat();
    let bodies = [
        ("keys of a few bytes", 1, 100_000, keys(0, 100_000, &[0])),
        ("a database for each key", DATABASES, 20_000, (0..20_000).flat_map(by_turns).collect()),
        ("a table of 2^62 keys that never come", 1, 1, [claim, keys(0, 1, &[0])].concat()),
        ("streams without entries", 1, 30_000, keys(15, 30_000, &[0; 5])),
        ("groups without consumers", 1, 1, keys(15, 1, &[&[0; 4], &length(60_000)[..], &groups].concat())),
        ("hashes of one empty field", 1, 50_000, keys(4, 50_000, &[1, 0, 0])),
    ];
    let (_, of_none) = load(&folder, &[]);
    for (what, databases, wanted, body) in bodies {
        let (keys, peak) = load(&folder, &body);
        assert_eq!(keys, wanted, "{what}");
        let over = peak.saturating_sub(of_none);
        let most = GROWTH_MAX * body.len() as u64 + SLACK_BYTES + databases * DATABASE_BYTES;
        assert!(over <= most, "{what}: {over} B for a file of {} B", body.len());
    }
    std::fs::remove_dir_all(&folder).ok();
}
