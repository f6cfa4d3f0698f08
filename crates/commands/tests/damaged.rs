//! Damaged payloads, restored and then used: the reply is an error of Valkey's or a value that works like any other, and the
//! keyspace keeps its invariants. Seeded; a panic prints its seed.

mod common;

use common::Server;
use isotherm_keyspace::NoEffects;
use isotherm_persist::dump;
use isotherm_resp::ArgsBuf;
use isotherm_resp::reply::Protocol;
use isotherm_stdx::Prng;

const GOLDENS: &str = include_str!("../../persist/tests/goldens/valkey-9.1.2.txt");
const FOOTER_BYTES: usize = 10;
const CHECK_EVERY: u64 = 1000;

/// Type and value of each golden that is not long.
fn payloads() -> Vec<Vec<u8>> {
    let bytes = |hex: &str| -> Vec<u8> {
        let digits: Vec<u8> = hex.bytes().map(|digit| (digit as char).to_digit(16).unwrap() as u8).collect();
        digits.as_chunks::<2>().0.iter().map(|[high, low]| high << 4 | low).collect()
    };
    let goldens = GOLDENS.lines().filter_map(|line| line.strip_prefix("= ")).map(bytes);
    goldens
        .map(|golden| golden[..golden.len() - FOOTER_BYTES].to_vec())
        .filter(|value| value.len() < 600)
        .collect()
}

fn damaged(prng: &mut Prng, payloads: &[Vec<u8>]) -> Vec<u8> {
    const TELLING: [u8; 12] = [0, 1, 0x3f, 0x40, 0x7f, 0x80, 0x81, 0xc0, 0xc3, 0xf0, 0xfe, 0xff];
    let mut bytes = prng.pick(payloads).clone();
    for _ in 0..1 + prng.below(2) {
        let at = prng.below(bytes.len() as u64) as usize;
        match prng.below(5) {
            0 => bytes[at] = *prng.pick(&TELLING),
            1 => bytes[at] = prng.next_u64() as u8,
            2 => bytes[at] ^= 1 << prng.below(8),
            3 => bytes[at] = bytes[at].wrapping_add(1),
            _ => bytes.truncate(at.max(1)),
        }
    }
    dump::seal(bytes)
}

fn run(server: &mut Server, words: &[&[u8]]) -> Vec<u8> {
    let args: ArgsBuf = words.iter().copied().collect();
    server.run(args.args(), &mut NoEffects).out
}

/// How many were taken.
fn restore(seeds: std::ops::Range<u64>) -> u64 {
    let payloads = payloads();
    let mut server = Server::new(Protocol::Resp2, 2);
    let mut taken = 0;
    for seed in seeds {
        let payload = damaged(&mut Prng::new(seed), &payloads);
        let reply = run(&mut server, &[b"RESTORE", b"{k}1", b"0", &payload, b"REPLACE"]);
        let refused = [b"-ERR Bad data format\r\n".as_slice(), b"-ERR Unsupported foreign data type"];
        if refused.iter().any(|text| reply.starts_with(text)) {
            continue;
        }
        assert_eq!(reply.escape_ascii().to_string(), "+OK\\r\\n", "seed {seed}");
        taken += 1;
        let dumped = run(&mut server, &[b"DUMP", b"{k}1"]);
        assert_eq!(dumped[0], b'$', "seed {seed}");
        run(&mut server, &[b"OBJECT", b"ENCODING", b"{k}1"]);
        run(&mut server, &[b"COPY", b"{k}1", b"{k}2", b"REPLACE"]);
        run(&mut server, &[b"DEL", b"{k}1"]);
        if seed.is_multiple_of(CHECK_EVERY) {
            server.check_invariants();
        }
    }
    server.check_invariants();
    taken
}

#[test]
fn thousands_of_damaged_payloads_are_restored_and_used() {
    let taken = restore(0..10_000);
    assert!(taken > 500, "too few mutations reach the keyspace: {taken}");
}

/// `cargo test --release -p isotherm-commands --test damaged -- --ignored`
#[test]
#[ignore = "a minute, with --release"]
fn a_million_damaged_payloads_are_restored_and_used() {
    restore(1_000_000..2_000_000);
}
