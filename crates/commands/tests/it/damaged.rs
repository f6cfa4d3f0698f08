//! Damaged payloads, restored and then used: the reply is an error of Valkey's or a value that works like any
//! other, and the keyspace keeps its invariants. Seeded; a panic prints its seed.

use crate::common::Server;
use crate::payloads;
use isotherm_keyspace::NoEffects;
use isotherm_persist::dump;
use isotherm_resp::ArgsBuf;
use isotherm_resp::reply::Protocol;
use isotherm_stdx::Prng;

/// Commands that are run on each restored value. A value of another type is refused, which is an answer too.
const USES: &[&str] = &[
    "GETRANGE {k}1 0 -1",
    "APPEND {k}1 x",
    "SETBIT {k}1 7 1",
    "PFCOUNT {k}1",
    "PFADD {k}1 a b",
    "LRANGE {k}1 0 -1",
    "LPOS {k}1 a",
    "LPUSH {k}1 new",
    "LINSERT {k}1 BEFORE new newer",
    "LSET {k}1 -1 last",
    "LREM {k}1 0 new",
    "LTRIM {k}1 0 20",
    "RPOP {k}1 2",
    "SMEMBERS {k}1",
    "SADD {k}1 7 member",
    "SUNIONSTORE {k}3 {k}1",
    "SRANDMEMBER {k}1 -5",
    "SREM {k}1 7 a",
    "SPOP {k}1 2",
    "HGETALL {k}1",
    "HSET {k}1 f v g w",
    "HINCRBY {k}1 n 1",
    "HEXPIRE {k}1 100 FIELDS 1 f",
    "HTTL {k}1 FIELDS 2 f g",
    "HRANDFIELD {k}1 -5 WITHVALUES",
    "HSCAN {k}1 0",
    "HDEL {k}1 f a",
    "ZRANGE {k}1 0 -1 WITHSCORES",
    "ZADD {k}1 1.5 member 2 a",
    "ZRANGEBYSCORE {k}1 -inf (7 LIMIT 1 3",
    "ZRANK {k}1 a",
    "ZUNIONSTORE {k}3 2 {k}1 {k}1",
    "ZREM {k}1 a",
    "ZPOPMIN {k}1 2",
    "XRANGE {k}1 - +",
    "XINFO STREAM {k}1 FULL COUNT 0",
    "XADD {k}1 18446744073709551614-* f v",
    "XGROUP CREATE {k}1 new 0",
    "XREADGROUP GROUP new ann STREAMS {k}1 >",
    "XAUTOCLAIM {k}1 new bob 0 0",
    "XREVRANGE {k}1 + - COUNT 3",
    "XTRIM {k}1 MAXLEN 2",
    "OBJECT ENCODING {k}1",
    "RENAME {k}1 {k}4",
    "COPY {k}4 {k}1 REPLACE",
];
const CHECK_EVERY: u64 = 1000;

/// Type and value, not the long ones.
fn payloads() -> Vec<Vec<u8>> {
    let mut all = payloads::bodies();
    all.retain(|value| value.len() < payloads::SHORT_BYTES_MAX);
    all
}

fn run(server: &mut Server, words: &[&[u8]]) -> Vec<u8> {
    let args: ArgsBuf = words.iter().copied().collect();
    server.run(args.args(), &mut NoEffects).out
}

/// Restores damaged payloads. Returns how many were taken.
fn restore(seeds: std::ops::Range<u64>) -> u64 {
    let payloads = payloads();
    let mut server = Server::new(Protocol::Resp2, 2);
    let mut taken = 0;
    for seed in seeds {
        let payload = dump::seal(payloads::damaged(&mut Prng::new(seed), &payloads));
        let reply = run(&mut server, &[b"RESTORE", b"{k}1", b"0", &payload, b"REPLACE"]);
        let refused = [b"-ERR Bad data format\r\n".as_slice(), b"-ERR Unsupported foreign data type"];
        if refused.iter().any(|text| reply.starts_with(text)) {
            continue;
        }
        assert_eq!(reply.escape_ascii().to_string(), "+OK\\r\\n", "seed {seed}");
        taken += 1;
        let dumped = run(&mut server, &[b"DUMP", b"{k}1"]);
        assert_eq!(dumped[0], b'$', "seed {seed}");
        run(&mut server, &[b"COPY", b"{k}1", b"{k}2", b"REPLACE"]);
        for used in USES {
            let words: Vec<&[u8]> = used.split(' ').map(str::as_bytes).collect();
            assert!(!run(&mut server, &words).is_empty(), "seed {seed}: {used}");
        }
        run(&mut server, &[b"DEL", b"{k}1", b"{k}2", b"{k}3", b"{k}4"]);
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

/// `cargo test --release -p isotherm-commands --test it damaged:: -- --ignored`
#[test]
#[ignore = "a minute, with --release"]
fn a_million_damaged_payloads_are_restored_and_used() {
    restore(1_000_000..2_000_000);
}
