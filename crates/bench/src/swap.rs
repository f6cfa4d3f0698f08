//! `swap-mode`, of Isotherm alone: memory of a key whose value is on disk, how the limit is kept while eight
//! times as much is written, what a read from disk costs, what the mode costs while nothing is there,
//! rewrites and restarts with bases that refer to the disk, and full synchronizations from a primary whose
//! values are there.
//!
//! Files are read past the page cache, where the file system of the benchmark's folder can do that: delays
//! are shown next to those of its disk.

use std::time::{Duration, Instant};

use isotherm_probe::Client;
use isotherm_resp::reply_parse::Value;

use crate::disk::Probe;
use crate::durability::median;
use crate::options::Options;
use crate::process::{Server, Setting, Side};
use crate::report::Table;
use crate::{Fallible, progress, swap_nodes, swap_restart, swap_sync};

pub const ROWS: [&str; 7] =
    ["swap-fill", "swap-fill-large", "swap-frozen", "swap-nodes", "swap-cost", "swap-restart", "swap-sync"];

const KEYS: u64 = 2_000_000;
const VALUE_BYTES: usize = 400;
/// Amount of data to be written, in multiples of `maxmemory`, with keys of 20 B.
const LIMIT_TIMES: u64 = 8;
const READS: u64 = 20_000;
const COMMANDS: u64 = 2_000_000;
const BATCH: u64 = 200;
pub const PATIENCE: Duration = Duration::from_secs(60);

pub fn measure(options: &Options) -> Fallible<Vec<Table>> {
    let mut table =
        Table::new("swap", "Values that are not in memory (`swap-mode`)", &["what", "Isotherm", "aim"]);
    table.note(
        "Isotherm alone; keys of 20 B, values of 400 B. Files are read and written past the page cache.",
    );
    if options.wants("swap-fill") {
        fill(options, &mut table)?;
    }
    if options.wants("swap-fill-large") {
        LARGE.run(options, &mut table)?;
    }
    if options.wants("swap-frozen") {
        frozen(options, &mut table)?;
    }
    if options.wants("swap-nodes") {
        swap_nodes::nodes(options, &mut table)?;
    }
    if options.wants("swap-cost") {
        cost(options, &mut table)?;
    }
    if options.wants("swap-restart") {
        swap_restart::restart(options, &mut table)?;
    }
    if options.wants("swap-sync") {
        swap_sync::sync(options, &mut table)?;
    }
    Ok(vec![table])
}

pub fn key(number: u64) -> String {
    format!("key:{number:016}")
}

pub fn swap(client: &mut Client, field: &str) -> Fallible<u64> {
    let Value::Bulk(text) = client.call(&["INFO", "swap"])? else {
        return Err("INFO is no text".to_string());
    };
    let value = isotherm_probe::info_field(&text, field).ok_or_else(|| format!("no field {field}"))?;
    value.parse().map_err(|_| format!("{field}:{value} is no number"))
}

/// Sends requests in batches.
pub fn send_all(client: &mut Client, count: u64, make: impl Fn(u64, &mut Vec<u8>)) -> Fallible {
    send_paced(client, count, f64::INFINITY, make).map(drop)
}

/// Times of batches.
#[derive(Default)]
struct Waits {
    longest: Duration,
    batches: u64,
    /// Longer than is aimed at.
    long: u64,
}

impl Waits {
    fn note(&mut self, took: Duration) {
        self.longest = self.longest.max(took);
        self.batches += 1;
        self.long += u64::from(took > Duration::from_millis(10));
    }

    fn text(&self) -> String {
        format!("{:.1} ms, {} of {}", self.longest.as_secs_f64() * 1e3, self.long, self.batches)
    }
}

/// Sends requests in batches, at most `rate` of them a second. Returns the times of the batches.
fn send_paced(
    client: &mut Client,
    count: u64,
    rate: f64,
    make: impl Fn(u64, &mut Vec<u8>),
) -> Fallible<Waits> {
    let (mut waits, start) = (Waits::default(), Instant::now());
    for from in (0..count).step_by(BATCH as usize) {
        let (mut batch, to) = (Vec::new(), (from + BATCH).min(count));
        (from..to).for_each(|number| make(number, &mut batch));
        let due = Duration::from_secs_f64(from as f64 / rate);
        std::thread::sleep(due.saturating_sub(start.elapsed()));
        let begun = Instant::now();
        client.send(&batch)?;
        (from..to).try_for_each(|_| client.read().map(drop))?;
        waits.note(begun.elapsed());
    }
    Ok(waits)
}

fn set(number: u64, value: &[u8], batch: &mut Vec<u8>) {
    let key = key(number);
    isotherm_probe::command(batch, [&b"SET"[..], key.as_bytes(), value].into_iter());
}

/// Data that is written over a limit: the number of keys, and the multiple of `maxmemory`.
struct Fill {
    keys: u64,
    times: u64,
}

/// Amount of data that is so large that the program itself takes little of the limit.
const LARGE: Fill = Fill { keys: 10_000_000, times: 10 };
const SMALL: Fill = Fill { keys: KEYS, times: LIMIT_TIMES };

impl Fill {
    /// A new server that was written full, in batches: then once more, no faster than it takes without being
    /// held up.
    fn run(&self, options: &Options, table: &mut Table) -> Fallible<(Server, u64)> {
        let (keys, times) = (options.scaled(self.keys), self.times);
        let limit = keys * (VALUE_BYTES as u64 + 20) / times;
        let setting = Setting { workers: 1, ..Setting::default() }
            .with("maxmemory", limit)
            .with("swap-mode", "yes")
            .with("enable-debug-command", "yes");
        let server = Server::start(Side::Isotherm, &setting, options)?;
        let mut client = server.client()?;
        let empty = client.used_memory_bytes()?;
        let value = vec![b'v'; VALUE_BYTES];
        // How many a second, and how long they waited.
        let mut write = |rate: f64| -> Fallible<(f64, Waits)> {
            let begun = Instant::now();
            let waits = send_paced(&mut client, keys, rate, |number, batch| set(number, &value, batch))?;
            Ok((keys as f64 / begun.elapsed().as_secs_f64(), waits))
        };
        let (first, first_waits) = write(f64::INFINITY)?;
        let resident = server.resident_bytes()?;
        let used = server.client()?.used_memory_bytes()?;
        let part = |bytes: u64| format!("{:.2} x", bytes as f64 / limit as f64);
        let (million, mb) = (keys as f64 / 1e6, limit as f64 / 1e6);
        let what =
            format!("{million:.1} M keys written, {times} x maxmemory ({mb:.0} MB): used_memory over it");
        table.row([what, part(used), "1.03 x".into()]);
        table.row(["the same: RSS over it".into(), part(resident), "1.12 x".into()]);
        let long = "the longest batch of 200, and how many took more than 10 ms";
        let mut row = |what: &str, (rate, waits): (f64, Waits), aim: &str| {
            table.row([format!("{what}: SETs"), format!("{:.0} k/s", rate / 1e3), "-".into()]);
            table.row([format!("{what}: {long}"), waits.text(), aim.into()]);
        };
        row("while the disk takes what is too much", (first, first_waits), "-");
        let (again, waits) = write(f64::INFINITY)?;
        row("all of them written again", (again, waits), "-");
        row("once more, at 0.8 of the lower rate", write(first.min(again) * 0.8)?, "10 ms, 0");
        Ok((server, empty))
    }
}

/// Measures the memory of a key whose value is on disk, and the cost of a GET of such a key.
fn fill(options: &Options, table: &mut Table) -> Fallible {
    let keys = options.scaled(KEYS);
    let (server, empty) = SMALL.run(options, table)?;
    let mut client = server.client()?;
    client.call(&["DEBUG", "SWAP-CHAOS", "1"])?;
    let waited = Instant::now();
    while swap(&mut client, "swap_keys")? < keys && waited.elapsed() < PATIENCE {
        std::thread::sleep(Duration::from_millis(100));
    }
    client.call(&["DEBUG", "SWAP-CHAOS", "0"])?;
    std::thread::sleep(Duration::from_secs(3));
    let cold = swap(&mut client, "swap_keys")?;
    let bytes = (client.used_memory_bytes()? - empty) as f64 / keys as f64;
    progress(&format!("{cold} of {keys} values are on disk"));
    table.row([
        "memory of a key of 20 B whose value is on disk".into(),
        format!("{bytes:.1} B"),
        "<= 38 B".into(),
    ]);
    let written = swap(&mut client, "swap_written_bytes")? as f64;
    let sunk = (swap(&mut client, "swap_sunk_values")? * (VALUE_BYTES as u64 + 20)) as f64;
    table.row([
        "bytes written for a byte that left memory".into(),
        format!("{:.2}", written / sunk),
        "1.1".into(),
    ]);
    let gets = |client: &mut Client, step: u64| -> Fallible<(f64, f64)> {
        let (before, mut times) = (server.cpu_ns()?, Vec::new());
        for number in 0..READS {
            let begun = Instant::now();
            client.call(&["GET", &key(number * step % keys)])?;
            times.push(begun.elapsed().as_secs_f64() * 1e6);
        }
        let cpu_us = (server.cpu_ns()? - before) as f64 / READS as f64 / 1e3;
        Ok((cpu_us, median(times).unwrap_or_default()))
    };
    let reads = swap(&mut client, "swap_reads")?;
    let (far, far_p50) = gets(&mut client, 7_919)?;
    let reads = swap(&mut client, "swap_reads")? - reads;
    if reads < READS * 9 / 10 {
        return Err(format!("{READS} GETs were to read from disk, {reads} did"));
    }
    client.call(&["SET", &key(0), "value"])?;
    let (near, near_p50) = gets(&mut client, 0)?;
    progress(&format!("CPU of a GET alone: {far:.1} us from disk, {near:.1} us from memory"));
    let more = format!("{:.1} us", far - near);
    table.row([
        "CPU of all threads, a GET of such a key alone over one in memory".into(),
        more,
        "read + 2.5 us".into(),
    ]);
    let disk = Probe::new(&options.scratch, 1 << 30)?.read(1, READS)?;
    table.row([
        "a read of 4 KB from this disk, alone: p50, CPU".into(),
        format!("{:.0} us, {:.1} us", disk.p50_us, disk.cpu_us),
        "-".into(),
    ]);
    table.row([
        "p50 of a GET from disk, alone, over one from memory".into(),
        format!("{:.0} us", far_p50 - near_p50),
        "read + 15 us".into(),
    ]);
    Ok(())
}

/// Measures the memory of a key that left memory with its value (`swap-freeze`), and the cost of a GET of
/// such a key.
fn frozen(options: &Options, table: &mut Table) -> Fallible {
    let keys = options.scaled(KEYS);
    for (what, key_bytes, value_bytes) in [("16 B, value of 16 B", 16, 16), ("20 B, value of 400 B", 20, 400)]
    {
        let key = |number: u64| format!("key:{number:0width$}", width = key_bytes - 4);
        let setting = Setting { workers: 1, ..Setting::default() }
            .with("maxmemory", 4_u64 << 30)
            .with("swap-mode", "yes")
            .with("swap-freeze", "yes")
            .with("enable-debug-command", "yes");
        let server = Server::start(Side::Isotherm, &setting, options)?;
        let mut client = server.client()?;
        let empty = client.used_memory_bytes()?;
        let value = vec![b'v'; value_bytes];
        send_all(&mut client, keys, |number, batch| {
            isotherm_probe::command(batch, [&b"SET"[..], key(number).as_bytes(), &value].into_iter());
        })?;
        client.call(&["DEBUG", "SWAP-CHAOS", "1"])?;
        let begun = Instant::now();
        while swap(&mut client, "swap_frozen_keys")? < keys && begun.elapsed() < PATIENCE {
            std::thread::sleep(Duration::from_millis(20));
        }
        let took = begun.elapsed();
        client.call(&["DEBUG", "SWAP-CHAOS", "0"])?;
        std::thread::sleep(Duration::from_secs(3));
        let frozen = swap(&mut client, "swap_frozen_keys")?;
        if frozen < keys {
            return Err(format!("{frozen} of {keys} keys left memory"));
        }
        let bundles = swap(&mut client, "swap_bundles")?;
        let bytes = (client.used_memory_bytes()? - empty) as f64 / keys as f64;
        progress(&format!("{keys} keys in {bundles} records after {:.1} s", took.as_secs_f64()));
        table.row([
            format!("memory of a key of {what}, all of it on disk"),
            format!("{bytes:.1} B"),
            "<= 12 B, goal 5".into(),
        ]);
        let (before, mut times) = (server.cpu_ns()?, Vec::new());
        for number in 0..READS {
            let begun = Instant::now();
            client.call(&["GET", &key(number * 7_919 % keys)])?;
            times.push(begun.elapsed().as_secs_f64() * 1e6);
        }
        let cpu_us = (server.cpu_ns()? - before) as f64 / READS as f64 / 1e3;
        table.row([
            format!(
                "a GET of such a key, alone: p50, CPU of all threads ({:.0} keys a record)",
                keys as f64 / bundles as f64
            ),
            format!("{:.0} us, {cpu_us:.0} us", median(times).unwrap_or_default()),
            "-".into(),
        ]);
    }
    Ok(())
}

/// Both with the same limit, which is not reached.
fn cost(options: &Options, table: &mut Table) -> Fallible {
    let count = options.scaled(COMMANDS);
    let value = [b'v'; 100];
    let mut ratios = [Vec::new(), Vec::new()];
    for round in 1..=options.rounds {
        let mut times = [[0.0; 2]; 2];
        for (on, mode) in ["no", "yes"].into_iter().enumerate() {
            let setting = Setting::one_core().with("maxmemory", 2_u64 << 30).with("swap-mode", mode);
            let server = Server::start(Side::Isotherm, &setting, options)?;
            let mut client = server.client()?;
            for (what, times) in times.iter_mut().enumerate() {
                let before = server.cpu_ns()?;
                send_all(&mut client, count, |number, batch| match what {
                    0 => set(number % 100_000, &value, batch),
                    _ => {
                        let key = key(number % 100_000);
                        isotherm_probe::command(batch, [&b"GET"[..], key.as_bytes()].into_iter());
                    }
                })?;
                times[on] = (server.cpu_ns()? - before) as f64 / count as f64;
            }
        }
        for (ratios, [off, on]) in ratios.iter_mut().zip(times) {
            ratios.push(on / off);
        }
        progress(&format!("round {round}: {times:.0?} ns of SET and GET, off and on"));
    }
    for (name, ratios) in ["SET", "GET"].into_iter().zip(ratios) {
        let what = format!("CPU of a {name}, in batches, nothing on disk, over `swap-mode no`");
        table.row([what, format!("{:.2} x", median(ratios).unwrap_or_default()), "<= 1.02 x".into()]);
    }
    Ok(())
}
