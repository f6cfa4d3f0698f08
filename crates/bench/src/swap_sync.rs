//! Full synchronizations from a primary whose values are on disk (`swap-mode`), compared with one that has
//! them all in memory.
//!
//! ```text
//!   GETs of one key, 1,000 a second ---> primary ---> a new replica, from REPLICAOF to the link that is up
//! ```
//! The values are read about in the order in which they were written, so the disk's share is measured as one
//! thread that reads as many bytes from end to end, past the page cache. The reference is the slower of that
//! and of the primary that reads nothing.

use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::thread;
use std::time::{Duration, Instant};

use isotherm_probe::{Client, command};
use isotherm_stdx::Prng;

use crate::disk::Probe;
use crate::durability::median;
use crate::options::Options;
use crate::process::{Server, Setting, Side};
use crate::replication::{follow, link_is_up};
use crate::report::Table;
use crate::swap::{PATIENCE, key, send_all, swap};
use crate::{Fallible, progress};

const KEYS: u64 = 2_000_000;
const VALUE_BYTES: usize = 400;
/// Bytes of a key on disk: its value, its name, and the additional bytes of a record.
const RECORD_BYTES: u64 = VALUE_BYTES as u64 + 48;
const BETWEEN_GETS: Duration = Duration::from_millis(1);
const BETWEEN_LOOKS: Duration = Duration::from_millis(5);
const NAMES: [&str; 2] = ["in memory", "on disk"];

/// Figures of one synchronization.
struct Sync {
    took_s: f64,
    longest_get_ms: f64,
    /// The largest RSS of the primary over that before.
    grown: f64,
    cpu_s: f64,
}

pub fn sync(options: &Options, table: &mut Table) -> Fallible {
    let keys = options.scaled(KEYS);
    let primaries = [start(options, keys, "no")?, start(options, keys, "yes")?];
    await_cold(&primaries[1], keys)?;
    let disk = Probe::new(&options.scratch, (keys * RECORD_BYTES).next_multiple_of(1 << 20))?;
    let (mut syncs, mut alone): ([Vec<Sync>; 2], Vec<f64>) = Default::default();
    for round in 1..=options.rounds {
        for (primary, syncs) in primaries.iter().zip(&mut syncs) {
            syncs.push(sync_once(primary, options, keys)?);
        }
        alone.push(disk.read_through()?);
        let took = |at: usize| syncs[at].last().map_or(0.0, |sync| sync.took_s);
        let read_s = alone[alone.len() - 1];
        progress(&format!(
            "swap-sync round {round}: {:.2} s from memory, {:.2} s from disk, {read_s:.2} s to read as much",
            took(0),
            took(1)
        ));
    }
    let of = |at: usize, figure: fn(&Sync) -> f64| {
        median(syncs[at].iter().map(figure).collect()).unwrap_or_default()
    };
    let alone = median(alone).unwrap_or_default();
    let million = keys as f64 / 1e6;
    for (at, name) in NAMES.into_iter().enumerate() {
        table.row([
            format!("full sync of {million:.1} M keys, all values {name}: until the link is up, CPU of the primary"),
            format!("{:.2} s, {:.2} s", of(at, |sync| sync.took_s), of(at, |sync| sync.cpu_s)),
            "-".into(),
        ]);
    }
    table.row([
        "as many bytes read from this disk from end to end".into(),
        format!("{alone:.2} s"),
        "-".into(),
    ]);
    let rate = of(0, |sync| sync.took_s).max(alone) / of(1, |sync| sync.took_s);
    let what = "rate of the sync from disk over the slower of these two";
    table.row([what.into(), format!("{rate:.2} x"), ">= 0.8 x".into()]);
    let both = |figure: fn(&Sync) -> f64| [of(0, figure), of(1, figure)];
    let [hot, cold] = both(|sync| sync.grown);
    let what = "largest RSS of the primary meanwhile over before, in memory, on disk";
    table.row([what.into(), format!("{hot:.2} x, {cold:.2} x"), "<= 1.15 x".into()]);
    let [hot, cold] = both(|sync| sync.longest_get_ms);
    let what = "the longest of 1,000 GETs a second meanwhile, in memory, on disk";
    table.row([what.into(), format!("{hot:.1} ms, {cold:.1} ms"), "5 ms".into()]);
    Ok(())
}

fn start(options: &Options, keys: u64, mode: &str) -> Fallible<Server> {
    let setting = Setting { workers: 1, ..Setting::default() }
        .with("maxmemory", keys * (VALUE_BYTES as u64 + 100) + (256 << 20))
        .with("swap-mode", mode)
        .with("repl-diskless-sync-delay", 0)
        .with("client-output-buffer-limit", "replica 0 0 0")
        .with("enable-debug-command", "yes");
    let server = Server::start(Side::Isotherm, &setting, options)?;
    // Compressed they would take little on the way.
    let mut random = Prng::new(1);
    let value: Vec<u8> = (0..VALUE_BYTES).map(|_| random.below(256) as u8).collect();
    send_all(&mut server.client()?, keys, |number, batch| {
        command(batch, [&b"SET"[..], key(number).as_bytes(), &value].into_iter());
    })?;
    Ok(server)
}

fn await_cold(server: &Server, keys: u64) -> Fallible {
    let mut client = server.client()?;
    client.call(&["DEBUG", "SWAP-CHAOS", "1"])?;
    let waited = Instant::now();
    while swap(&mut client, "swap_keys")? < keys && waited.elapsed() < PATIENCE {
        thread::sleep(Duration::from_millis(100));
    }
    client.call(&["DEBUG", "SWAP-CHAOS", "0"])?;
    let cold = swap(&mut client, "swap_keys")?;
    client.call(&["SET", "in memory", "a value"])?;
    if cold < keys { Err(format!("{cold} of {keys} values are on disk")) } else { Ok(()) }
}

fn sync_once(primary: &Server, options: &Options, keys: u64) -> Fallible<Sync> {
    let setting = Setting { workers: 1, ..Setting::default() };
    let replica = Server::start(Side::Isotherm, &setting, options)?;
    let (before_bytes, before_ns) = (primary.resident_bytes()?, primary.whole_cpu_ns()?);
    let is_over = AtomicBool::new(false);
    let (took, longest, peak) = thread::scope(|scope| {
        let gets = scope.spawn(|| longest_get(primary.client()?, &is_over));
        let peak = scope.spawn(|| peak_of(primary, &is_over));
        let took = follow(&replica, primary.port);
        is_over.store(true, Relaxed);
        let joined = |_| "a thread panicked".to_string();
        Ok::<_, String>((took?, gets.join().map_err(joined)??, peak.join().map_err(joined)??))
    })?;
    let mut client = replica.client()?;
    let got = client.dbsize()?;
    if !link_is_up(&mut client)? || got < keys {
        return Err(format!("the replica has {got} of {keys} keys"));
    }
    Ok(Sync {
        took_s: took.as_secs_f64(),
        longest_get_ms: longest.as_secs_f64() * 1e3,
        grown: peak as f64 / before_bytes as f64,
        cpu_s: (primary.whole_cpu_ns()? - before_ns) as f64 / 1e9,
    })
}

fn longest_get(mut client: Client, is_over: &AtomicBool) -> Fallible<Duration> {
    let mut longest = Duration::ZERO;
    while !is_over.load(Relaxed) {
        let begun = Instant::now();
        client.call(&["GET", "in memory"])?;
        longest = longest.max(begun.elapsed());
        thread::sleep(BETWEEN_GETS);
    }
    Ok(longest)
}

fn peak_of(primary: &Server, is_over: &AtomicBool) -> Fallible<u64> {
    let mut peak = 0;
    while !is_over.load(Relaxed) {
        peak = peak.max(primary.resident_bytes()?);
        thread::sleep(BETWEEN_LOOKS);
    }
    Ok(peak)
}
