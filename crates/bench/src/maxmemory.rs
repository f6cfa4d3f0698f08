//! Is `maxmemory` kept while everyone writes, and what does it cost to find the few keys that may go?
//!
//! * `overshoot`: clients write values to 4 KB as fast as they can; used_memory is read every 10 ms, resident
//!   memory every 100 ms, and the largest of each is compared with `maxmemory`.
//! * `volatile`: among a million keys one in ten thousand has a TTL, and a `volatile-*` policy has to find
//!   them all. A few large values press them out; the server's CPU time over the keys evicted is the cost of
//!   each.

use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use isotherm_probe::{Client, command};

use crate::load::{Load, Until, fill};
use crate::memory::workers_named;
use crate::options::Options;
use crate::process::{SIDES, Server, Setting, Side};
use crate::report::Table;
use crate::shape::{Order, Shape, Values, Verb};
use crate::{Fallible, progress};

pub const ROWS: [&str; 5] = ["overshoot", "volatile-lru", "volatile-lfu", "volatile-random", "volatile-ttl"];

pub fn measure(options: &Options) -> Fallible<Vec<Table>> {
    Ok(vec![overshoot(options)?, volatile(options)?])
}

// -------------------------------------------------------------------------------------------------------- overshoot

const LIMITS_BYTES: [u64; 2] = [64 << 20, 512 << 20];
const WRITING: Duration = Duration::from_secs(10);
const VALUE_BYTES: (usize, usize) = (16, 4096);

fn overshoot(options: &Options) -> Fallible<Table> {
    let head = ["", "maxmemory", "largest used_memory / maxmemory", "largest RSS / maxmemory", "writes k/s"];
    let mut table = Table::new("maxmemory-overshoot", "maxmemory while clients write at full speed", &head);
    table.note(
        "allkeys-lru; 50 connections, SET of values of 16..4096 B over twice the keys that fit, pipelined 16, 10 s; used_memory read every 10 ms.",
    );
    if !options.wants(ROWS[0]) {
        return Ok(table);
    }
    for limit_bytes in LIMITS_BYTES {
        overshoot_once(Side::Valkey, 1, limit_bytes, options, &mut table)?;
        for &workers in &options.workers {
            overshoot_once(Side::Isotherm, workers, limit_bytes, options, &mut table)?;
        }
    }
    Ok(table)
}

fn overshoot_once(
    side: Side,
    workers: usize,
    limit_bytes: u64,
    options: &Options,
    table: &mut Table,
) -> Fallible {
    let setting = Setting { workers, ..Setting::default() }
        .with("maxmemory", limit_bytes)
        .with("maxmemory-policy", "allkeys-lru");
    let server = Server::start(side, &setting, options)?;
    let keys = 2 * limit_bytes / (VALUE_BYTES.1 as u64 / 2);
    let mut shape = Shape::new(Verb::Set, keys)
        .order(Order::Uniform)
        .values(Values::Between(VALUE_BYTES.0, VALUE_BYTES.1));
    let stop = AtomicBool::new(false);
    let (largest, ran) = thread::scope(|scope| {
        let watcher = scope.spawn(|| watch(&server, &stop));
        let ran =
            Load { port: server.port, connections: 50, pipeline: 16 }.run(&mut shape, Until::Passed(WRITING));
        stop.store(true, Ordering::Relaxed);
        (watcher.join().expect("the watcher does not panic"), ran)
    });
    let (largest, ran) = (largest?, ran?);
    let (used, resident) =
        (largest.used_bytes as f64 / limit_bytes as f64, largest.resident_bytes as f64 / limit_bytes as f64);
    let name = if side == Side::Valkey {
        side.name().to_string()
    } else {
        format!("Isotherm, {}", workers_named(workers))
    };
    progress(&format!("overshoot {name}, {} MB: used {used:.3}, RSS {resident:.3}", limit_bytes >> 20));
    let megabytes = format!("{} MB", limit_bytes >> 20);
    table.row([
        name,
        megabytes,
        format!("{used:.3}"),
        format!("{resident:.3}"),
        format!("{:.0}", ran.per_second() / 1e3),
    ]);
    Ok(())
}

#[derive(Default)]
struct Largest {
    used_bytes: u64,
    resident_bytes: u64,
}

fn watch(server: &Server, stop: &AtomicBool) -> Fallible<Largest> {
    let mut client = server.client()?;
    let mut largest = Largest::default();
    let mut resident_read = Instant::now();
    while !stop.load(Ordering::Relaxed) {
        largest.used_bytes = largest.used_bytes.max(client.used_memory_bytes()?);
        if resident_read.elapsed() > Duration::from_millis(100) {
            largest.resident_bytes = largest.resident_bytes.max(server.resident_bytes()?);
            resident_read = Instant::now();
        }
        thread::sleep(Duration::from_millis(10));
    }
    Ok(largest)
}

// --------------------------------------------------------------------------------------------------------- volatile

const KEYS: u64 = 1_000_000;
/// 0.01 % of them.
const ONE_IN: u64 = 10_000;
/// Presses out some twenty of the small keys at once, so that the command around an eviction weighs little.
const PRESSING_BYTES: usize = 2048;

fn volatile(options: &Options) -> Fallible<Table> {
    let keys = options.scaled(KEYS);
    let title = format!("Evicting the {} volatile keys among {keys}", keys / ONE_IN);
    let mut table =
        Table::new("maxmemory-volatile", title, &["policy", "Valkey CPU us a key", "Isotherm CPU us a key"]);
    table.note("One worker on one core. CPU time of the whole server while 2 KB values press the volatile keys out, over the keys evicted.");
    for policy in ROWS[1..].iter().filter(|policy| options.wants(policy)) {
        let mut cells = [policy.to_string(), String::new(), String::new()];
        for (side, cell) in SIDES.into_iter().zip(&mut cells[1..]) {
            let cpu_us = volatile_once(side, policy, keys, options)?;
            progress(&format!("{policy} {}: {cpu_us:.1} us CPU a key", side.name()));
            *cell = format!("{cpu_us:.1}");
        }
        table.row(cells);
    }
    Ok(table)
}

fn volatile_once(side: Side, policy: &str, keys: u64, options: &Options) -> Fallible<f64> {
    let server = Server::start(side, &Setting::one_core().with("maxmemory-policy", policy), options)?;
    let volatile = (keys / ONE_IN).max(1);
    fill(&server, &mut Shape::new(Verb::Set, keys - volatile), keys - volatile, policy)?;
    fill(&server, &mut Shape::new(Verb::SetWithTtl, volatile).first(keys), volatile, policy)?;
    let mut client = server.client()?;
    let limit_bytes = client.used_memory_bytes()?;
    // A server may begin to evict as soon as it hears of the limit, so this is part of what is measured.
    let (before_ns, before_keys) = (server.cpu_ns()?, evicted(&mut client)?);
    client.call(&["CONFIG", "SET", "maxmemory", &limit_bytes.to_string()])?;
    let refused = press(&mut client)?;
    let (after_ns, after_keys) = (server.cpu_ns()?, evicted(&mut client)?);
    let gone = after_keys - before_keys;
    if gone != volatile {
        return Err(format!("{} evicted {gone} of {volatile} volatile keys, then: {refused}", side.name()));
    }
    Ok((after_ns - before_ns) as f64 / 1e3 / gone as f64)
}

/// Writes until the server refuses; returns what it said.
fn press(client: &mut Client) -> Fallible<String> {
    let value = vec![b'x'; PRESSING_BYTES];
    let mut request = Vec::new();
    for number in 0..1_000_000u32 {
        request.clear();
        command(&mut request, [b"SET".as_slice(), format!("press:{number}").as_bytes(), &value].into_iter());
        client.send(&request)?;
        if let Err(refused) = client.read() {
            return if refused.starts_with("OOM") { Ok(refused) } else { Err(refused) };
        }
    }
    Err("the server never refused a write above maxmemory".to_string())
}

fn evicted(client: &mut Client) -> Fallible<u64> {
    client.info("evicted_keys")?.parse().map_err(|_| "evicted_keys is no number".to_string())
}
