//! Costs of a key of 16 B with a value of 16 B, without a server: bytes a key by the arena's counters and by
//! RSS, and nanoseconds of CPU an operation in batches of 32 with prefetch.
//!
//! `cargo run --release -p isotherm-keyspace --example kv16 -- [keys] [partitions] [arenas]`

use isotherm_keyspace::*;
use isotherm_stdx::Prng;
use std::time::Duration;

const BATCH: usize = 32;

const READS: Intent = Intent { adds: false, moves: false };
const ADDS: Intent = Intent { adds: true, moves: false };
const MOVES: Intent = Intent { adds: false, moves: true };

fn main() {
    let argument = |at: usize, default: u64| {
        std::env::args().nth(at).map_or(default, |text| text.parse().expect("a number"))
    };
    let (keys, partitions, arenas) =
        (argument(1, 1_000_000), argument(2, 1) as usize, argument(3, 1) as usize);
    let config = Config {
        partitions,
        arenas,
        databases: 16,
        reserve_bytes: 24 << 30,
        hash_secret: *b"0123456789abcdef",
        class_bytes: |bytes| bytes,
    };
    let keyspace = Keyspace::new(config).expect("address space");
    let empty = rss_bytes();
    let report = |what: &str, took: Duration, operations: u64| {
        println!("{what:<24} {:>8.1} ns", took.as_nanos() as f64 / operations as f64);
    };

    let start = cpu_time();
    run(&keyspace, keys, Some(ADDS), |txn, key, number| {
        txn.set(Db(0), key, NewValue::Bytes(&value(number)), Expiry::Clear).expect("room");
    });
    report("insert", cpu_time() - start, keys);
    let live: u64 = keyspace.arenas().iter().map(|arena| arena.live_bytes()).sum();
    let per_key = |bytes: u64| bytes as f64 / keys as f64;
    println!("live {:.2} B/key, RSS {:.2} B/key", per_key(live), per_key(rss_bytes() - empty));
    while (0..arenas).any(|arena| keyspace.compact_step(arena, 64).more) {}
    keyspace.trim(0);
    println!("after compaction: RSS {:.2} B/key", per_key(rss_bytes() - empty));
    for arena in keyspace.arenas() {
        println!("{:?}", arena.stats());
    }

    for prefetch in [None, Some(READS)] {
        let start = cpu_time();
        run(&keyspace, keys, prefetch, |txn, key, _| {
            assert!(txn.find(Db(0), key, Lookup::Read).is_some());
        });
        report(if prefetch.is_some() { "get, prefetched" } else { "get" }, cpu_time() - start, keys);
    }
    let start = cpu_time();
    run(&keyspace, keys, Some(ADDS), |txn, key, number| {
        txn.set(Db(0), key, NewValue::Bytes(&value(number + 1)), Expiry::Clear).expect("room");
    });
    report("overwrite, prefetched", cpu_time() - start, keys);
    let start = cpu_time();
    run(&keyspace, keys, Some(MOVES), |txn, key, _| {
        txn.set_expiry(Db(0), key, Some(UnixMs(1_900_000_000_000))).expect("room");
    });
    report("expire, prefetched", cpu_time() - start, keys);
    while (0..arenas).any(|arena| keyspace.compact_step(arena, 64).more) {}
    keyspace.trim(0);
    println!("with a TTL on each: RSS {:.2} B/key", per_key(rss_bytes() - empty));
    let start = cpu_time();
    run(&keyspace, keys, Some(MOVES), |txn, key, _| assert!(txn.remove(Db(0), key)));
    report("delete, prefetched", cpu_time() - start, keys);
}

/// Keys in an order that looks random: an odd multiplier permutes the numbers.
fn run(
    keyspace: &Keyspace,
    keys: u64,
    prefetch: Option<Intent>,
    mut work: impl FnMut(&mut Txn<'_, '_>, &Key<'_>, u64),
) {
    let mut held = Held::new(keyspace);
    let mut numbers = [0u64; BATCH];
    let conditions =
        Conditions { now: UnixMs(1_800_000_000_000), expiry_mode: ExpiryMode::Delete, no_touch: false };
    let mut next = 0;
    while next < keys {
        let count = BATCH.min((keys - next) as usize);
        for number in numbers.iter_mut().take(count) {
            *number = next;
            next += 1;
        }
        let names: [[u8; 16]; BATCH] = std::array::from_fn(|at| name(numbers[at]));
        let keys: [Key<'_>; BATCH] = std::array::from_fn(|at| keyspace.key(&names[at]));
        if let Some(intent) = prefetch {
            let batch: [(&Key<'_>, Intent); BATCH] = std::array::from_fn(|at| (&keys[at], intent));
            keyspace.prefetch(Db(0), &batch[..count]);
        }
        let mut sink = NoEffects;
        for (key, number) in keys.iter().zip(numbers).take(count) {
            held.acquire(Want::One(keyspace.partition_of(key.slot)));
            work(&mut Txn::new(&mut held, conditions, &mut sink), key, number);
        }
        held.release();
    }
}

fn name(number: u64) -> [u8; 16] {
    let mut prng = Prng::new(number);
    let mut name = [0; 16];
    name[..8].copy_from_slice(&prng.next_u64().to_le_bytes());
    name[8..].copy_from_slice(&prng.next_u64().to_le_bytes());
    name
}

fn value(number: u64) -> [u8; 16] {
    let mut value = name(number);
    value[0] = b'x';
    value
}

/// Returns this thread's CPU time: the machine may have other work.
fn cpu_time() -> Duration {
    let schedstat = std::fs::read_to_string("/proc/thread-self/schedstat").expect("Linux");
    let ns = schedstat.split(' ').next().and_then(|ns| ns.parse().ok()).expect("a number");
    Duration::from_nanos(ns)
}

fn rss_bytes() -> u64 {
    let statm = std::fs::read_to_string("/proc/self/statm").expect("Linux");
    statm.split(' ').nth(1).and_then(|pages| pages.parse::<u64>().ok()).expect("a number") * 4096
}
