//! `swap-mode`: reads of values on disk, by io_uring and by threads: the cost of one, the rate of many at
//! once, the delay of clients that read from memory meanwhile, and the rate that is left when a fifth of the
//! values is in memory.
//!
//! Both ways run in the same minutes, in turns, each on a server of its own; figures are medians of the
//! rounds. The performance of the disk of the benchmark's folder by itself is measured between them.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use isotherm_probe::{Client, command};
use isotherm_resp::reply_parse::Value;
use isotherm_stdx::Prng;

use crate::disk::Probe;
use crate::durability::median;
use crate::histogram::Histogram;
use crate::load::{Load, Until, fill};
use crate::open_loop::OpenLoop;
use crate::options::Options;
use crate::process::{Server, Setting, Side};
use crate::report::Table;
use crate::shape::{Commands, Order, Shape, Values, Verb, named, scramble};
use crate::swap::{PATIENCE, swap};
use crate::zipf::Zipf;
use crate::{Fallible, progress};

pub const ROWS: [&str; 3] = ["swap-read", "swap-beside", "swap-zipf"];

const KEYS: u64 = 1_000_000;
const VALUE_BYTES: usize = 400;
/// Reads of a round that are sent one after another.
const READS: u64 = 3000;
/// Reads of a round that several requests at once share.
const READS_AT_ONCE: u64 = 20_000;
const CONNECTIONS: [usize; 2] = [8, 32];
/// GETs of one connection that are sent at once.
const PIPELINE: u64 = 32;
/// Rate of GETs of keys in memory, in addition to others.
const HOT_PER_SECOND: f64 = 2000.0;
const HOT_KEYS: u64 = 100;
const RUN: Duration = Duration::from_secs(3);
/// The two ways, as values of `swap-io-uring`.
const WAYS: [&str; 2] = ["yes", "no"];

pub fn measure(options: &Options) -> Fallible<Vec<Table>> {
    let head = ["what", "io_uring", "threads", "aim"];
    let mut table = Table::new("swap-reads", "Reads of values on disk (`swap-io-uring`)", &head);
    table.note(
        "Isotherm with one worker; keys of 16 B, values of 400 B, on disk; what was read is not kept. Beside a GET from memory, \
         over as many connections.",
    );
    if options.wants("swap-read") || options.wants("swap-beside") {
        let servers = Servers::start(options)?;
        if options.wants("swap-read") {
            alone(options, &servers, &mut table)?;
            for (connections, pipeline) in [(CONNECTIONS[0], 1), (CONNECTIONS[1], 1), (1, PIPELINE)] {
                at_once(options, &servers, (connections, pipeline), &mut table)?;
            }
        }
        if options.wants("swap-beside") {
            beside(options, &servers, &mut table)?;
        }
    }
    if options.wants("swap-zipf") {
        zipf(options, &mut table)?;
    }
    Ok(vec![table])
}

/// Servers of both ways. All their values are on disk but those of a few keys.
struct Servers {
    both: [Server; 2],
    keys: u64,
    disk: Probe,
}

impl Servers {
    fn start(options: &Options) -> Fallible<Servers> {
        let keys = options.scaled(KEYS);
        let start = |way: &str| -> Fallible<Server> {
            let setting = Setting { workers: 1, ..Setting::default() }
                .with("maxmemory", keys * 60 + (32 << 20))
                .with("swap-mode", "yes")
                .with("swap-io-uring", way)
                .with("swap-cache", 1 << 20)
                .with("enable-debug-command", "yes");
            let server = Server::start(Side::Isotherm, &setting, options)?;
            fill(&server, &mut values(keys), keys, "values")?;
            await_cold(&server, keys)?;
            fill(&server, &mut values(HOT_KEYS).first(keys), HOT_KEYS, "values in memory")?;
            Ok(server)
        };
        let both = [start(WAYS[0])?, start(WAYS[1])?];
        for (server, way) in both.iter().zip(WAYS) {
            progress(&format!("swap-io-uring {way}: {} read", backend(&mut server.client()?)?));
        }
        Ok(Servers { both, keys, disk: Probe::new(&options.scratch, 1 << 30)? })
    }

    fn cold(&self, seed: u64) -> Shape {
        Shape::new(Verb::Get, self.keys).order(Order::Uniform).seed(seed)
    }

    fn hot(&self) -> Shape {
        Shape::new(Verb::Get, HOT_KEYS).first(self.keys).order(Order::Uniform)
    }
}

fn values(count: u64) -> Shape {
    Shape::new(Verb::Set, count).values(Values::Fixed(VALUE_BYTES))
}

fn await_cold(server: &Server, keys: u64) -> Fallible {
    let mut client = server.client()?;
    client.call(&["DEBUG", "SWAP-CHAOS", "1"])?;
    let waited = Instant::now();
    while swap(&mut client, "swap_keys")? < keys && waited.elapsed() < PATIENCE {
        std::thread::sleep(Duration::from_millis(50));
    }
    client.call(&["DEBUG", "SWAP-CHAOS", "0"])?;
    let cold = swap(&mut client, "swap_keys")?;
    // Keys whose values are met meanwhile stay.
    if cold < keys / 100 * 99 { Err(format!("{cold} of {keys} values are on disk")) } else { Ok(()) }
}

fn backend(client: &mut Client) -> Fallible<String> {
    let Value::Bulk(text) = client.call(&["INFO", "swap"])? else {
        return Err("INFO is no text".to_string());
    };
    isotherm_probe::info_field(&text, "swap_backend").ok_or_else(|| "no field swap_backend".to_string())
}

/// Connections, and requests that each sends at once.
type AtOnce = (usize, u64);

/// Figures of one way, one from each round.
#[derive(Default)]
struct Figures {
    p50_us: Vec<f64>,
    cpu_us: Vec<f64>,
    per_second: Vec<f64>,
}

impl Figures {
    fn p50(&self) -> f64 {
        median(self.p50_us.clone()).unwrap_or_default()
    }

    fn cpu(&self) -> f64 {
        median(self.cpu_us.clone()).unwrap_or_default()
    }

    fn rate(&self) -> f64 {
        median(self.per_second.clone()).unwrap_or_default()
    }

    /// Measures `count` GETs, and adds their figures.
    fn add(&mut self, server: &Server, load: AtOnce, shape: &mut dyn Commands, count: u64) -> Fallible {
        let before = server.cpu_ns()?;
        let (connections, pipeline) = load;
        let ran = Load { port: server.port, connections, pipeline }.run(shape, Until::Commands(count))?;
        if ran.nulls > 0 {
            return Err(format!("{} values are not there", ran.nulls));
        }
        self.cpu_us.push((server.cpu_ns()? - before) as f64 / count as f64 / 1e3);
        self.p50_us.push(ran.batches.quantile_us(0.5));
        self.per_second.push(ran.per_second());
        Ok(())
    }
}

/// Rounds of both ways and of the disk: cold, hot, the disk by as many threads.
fn rounds(
    options: &Options,
    servers: &Servers,
    load: AtOnce,
    reads: u64,
) -> Fallible<([Figures; 2], [Figures; 2], Figures)> {
    let (mut cold, mut hot): ([Figures; 2], [Figures; 2]) = Default::default();
    let (mut disk, at_once) = (Figures::default(), load.0 as u64 * load.1);
    for round in 0..options.rounds as u64 * 2 {
        for (way, server) in servers.both.iter().enumerate() {
            let before = swap(&mut server.client()?, "swap_reads")?;
            let seed = round * 1000 + at_once;
            cold[way].add(server, load, &mut servers.cold(seed), reads)?;
            let read = swap(&mut server.client()?, "swap_reads")? - before;
            if read < reads * 9 / 10 {
                return Err(format!("{reads} GETs were to read from disk, {read} did"));
            }
            hot[way].add(server, load, &mut servers.hot(), reads)?;
        }
        let read = servers.disk.read(at_once as usize, reads)?;
        disk.p50_us.push(read.p50_us);
        disk.cpu_us.push(read.cpu_us);
        disk.per_second.push(read.per_second);
    }
    Ok((cold, hot, disk))
}

/// Measures GETs that are sent one after another.
fn alone(options: &Options, servers: &Servers, table: &mut Table) -> Fallible {
    let (cold, hot, disk) = rounds(options, servers, (1, 1), options.scaled(READS))?;
    let of_disk = format!("{:.0} us, {:.1} us", disk.p50(), disk.cpu());
    table.row([
        "a read of 4 KB from this disk by one thread: p50, CPU".into(),
        of_disk.clone(),
        of_disk,
        "-".into(),
    ]);
    let both = |of: &dyn Fn(usize) -> f64| [0, 1].map(|way| format!("{:.1} us", of(way)));
    let mut row = |what: &str, figures: [String; 2], aim: &str| {
        let [ring, threads] = figures;
        table.row([what.into(), ring, threads, aim.into()]);
    };
    let pair = |of: fn(&Figures) -> f64| {
        [0, 1].map(|way| format!("{:.1} us, {:.1} us", of(&cold[way]), of(&hot[way])))
    };
    row("p50 of a GET from disk, one connection, and of one from memory", pair(Figures::p50), "-");
    row(
        "its difference over the read's",
        both(&|way| cold[way].p50() - hot[way].p50() - disk.p50()),
        "<= 15 us",
    );
    row("CPU of all threads, the same", pair(Figures::cpu), "-");
    row(
        "its difference over the read's",
        both(&|way| cold[way].cpu() - hot[way].cpu() - disk.cpu()),
        "<= 2.5 us",
    );
    Ok(())
}

fn at_once(options: &Options, servers: &Servers, load: AtOnce, table: &mut Table) -> Fallible {
    let (cold, hot, disk) = rounds(options, servers, load, options.scaled(READS_AT_ONCE))?;
    let of_disk = format!("{:.1} k/s, {:.1} us", disk.rate() / 1e3, disk.cpu());
    table.row([
        format!("reads of this disk by {} threads, CPU of each", load.0 as u64 * load.1),
        of_disk.clone(),
        of_disk,
        "-".into(),
    ]);
    let figure = |way: usize| {
        let more = cold[way].cpu() - hot[way].cpu();
        format!("{:.1} k/s, {more:.1} us", cold[way].rate() / 1e3)
    };
    table.row([
        match load {
            (1, pipeline) => {
                format!("GETs of one connection, {pipeline} at once, CPU of each over one from memory")
            }
            (connections, _) => {
                format!("GETs of {connections} connections, CPU of each over one from memory")
            }
        },
        figure(0),
        figure(1),
        "-".into(),
    ]);
    Ok(())
}

/// Load that runs in addition to the GETs from memory.
enum Beside<'p> {
    Nothing,
    /// GETs of values on disk, one after the other on each connection.
    Cold,
    /// Reads of the disk alone, at a rate per second.
    Disk(&'p Probe, f64),
}

/// Delays of GETs from memory, and how many others were answered a second.
fn hot_beside(servers: &Servers, server: &Server, beside: &Beside<'_>) -> Fallible<(Histogram, f64)> {
    let (port, is_over) = (server.port, AtomicBool::new(false));
    let connections = CONNECTIONS[1];
    std::thread::scope(|scope| {
        let disk = scope.spawn(|| match beside {
            Beside::Disk(probe, rate) => probe.load(connections, *rate, &is_over),
            _ => Ok(()),
        });
        let others = scope.spawn(|| -> Fallible<f64> {
            match beside {
                Beside::Nothing | Beside::Disk(..) => Ok(0.0),
                Beside::Cold => {
                    let load = Load { port, connections, pipeline: 1 };
                    let ran = load.run(&mut servers.cold(99), Until::Passed(RUN + RUN / 10))?;
                    Ok(ran.per_second())
                }
            }
        });
        let hot = OpenLoop { port, connections: 4, per_second: HOT_PER_SECOND };
        let times = hot.run_for(&mut servers.hot(), RUN);
        is_over.store(true, Ordering::Relaxed);
        disk.join().expect("it reads")?;
        Ok((times?, others.join().expect("it loads")?))
    })
}

fn beside(options: &Options, servers: &Servers, table: &mut Table) -> Fallible {
    const NAMES: [&str; 3] =
        ["alone", "beside 32 that read from disk", "beside as many reads of the disk by others"];
    let mut rates: [Vec<f64>; 2] = Default::default();
    let mut delays: [[[Vec<f64>; 2]; 3]; 2] = Default::default();
    for _ in 0..options.rounds {
        for (way, server) in servers.both.iter().enumerate() {
            let mut rate = 0.0;
            for (case, delays) in delays[way].iter_mut().enumerate() {
                let what = match case {
                    0 => Beside::Nothing,
                    1 => Beside::Cold,
                    _ => Beside::Disk(&servers.disk, rate),
                };
                let (times, others) = hot_beside(servers, server, &what)?;
                if case == 1 {
                    rate = others;
                    rates[way].push(others);
                }
                delays[0].push(times.quantile_us(0.5));
                delays[1].push(times.quantile_us(0.99));
            }
        }
    }
    let of =
        |way: usize, case: usize, which: usize| median(delays[way][case][which].clone()).unwrap_or_default();
    for (case, name) in NAMES.into_iter().enumerate() {
        let figure = |way| format!("{:.0} us, {:.0} us", of(way, case, 0), of(way, case, 1));
        table.row([
            format!("p50 and p99 of {:.0} k GETs/s from memory, {name}", HOT_PER_SECOND / 1e3),
            figure(0),
            figure(1),
            "-".into(),
        ]);
    }
    let rate = |way: usize| format!("{:.1} k/s", median(rates[way].clone()).unwrap_or_default() / 1e3);
    table.row(["those that read from disk beside them".into(), rate(0), rate(1), "-".into()]);
    let ratio = |way| {
        let [p50, p99] = [0, 1].map(|which| of(way, 1, which) / of(way, 2, which));
        format!("{p50:.2} x, {p99:.2} x")
    };
    let what = "p50 and p99 beside them over beside as many reads of the disk";
    table.row([what.into(), ratio(0), ratio(1), "<= 1.05 x, 1.2 x".into()]);
    Ok(())
}

/// 95 GETs and 5 SETs of 100, of keys by Zipf's law.
struct Mixed {
    zipf: Zipf,
    keys: u64,
    prng: Prng,
    value: Vec<u8>,
}

impl Mixed {
    fn new(keys: u64, seed: u64) -> Mixed {
        Mixed { zipf: Zipf::new(keys, 0.99), keys, prng: Prng::new(seed), value: vec![b'v'; VALUE_BYTES] }
    }
}

impl Commands for Mixed {
    fn write(&mut self, out: &mut Vec<u8>) {
        // The most wanted keys lie everywhere.
        let key = named(scramble(self.zipf.draw(&mut self.prng)) % self.keys);
        match self.prng.below(100) < 5 {
            true => command(out, [b"SET", &key[..], &self.value].into_iter()),
            false => command(out, [b"GET", &key[..]].into_iter()),
        }
    }
}

/// Four of five values on disk, over all in memory.
fn zipf(options: &Options, table: &mut Table) -> Fallible {
    let keys = options.scaled(KEYS);
    // A fifth of the values, the entries of all, and what a server takes, at 85 %.
    let limit = (keys / 5 * (VALUE_BYTES as u64 + 40) + keys * 36 + (12 << 20)) * 100 / 85;
    let start = |way: Option<&str>| -> Fallible<Server> {
        let mut setting = Setting { workers: 1, ..Setting::default() };
        if let Some(way) = way {
            setting = setting.with("maxmemory", limit).with("swap-mode", "yes").with("swap-io-uring", way);
            setting = setting.with("swap-cache", 4 << 20).with("maxmemory-policy", "allkeys-lfu");
        }
        let server = Server::start(Side::Isotherm, &setting, options)?;
        fill(&server, &mut values(keys), keys, "values")?;
        Ok(server)
    };
    let servers = [start(None)?, start(Some(WAYS[0]))?, start(Some(WAYS[1]))?];
    for pipeline in [1, 16] {
        let mut rates: [Vec<f64>; 3] = Default::default();
        for round in 0..=options.rounds {
            for (at, server) in servers.iter().enumerate() {
                let load = Load::fifty(server.port, pipeline);
                let ran = load.run(&mut Mixed::new(keys, round as u64 + pipeline), Until::Passed(RUN))?;
                // The first one promotes the most wanted values.
                if round > 0 {
                    rates[at].push(ran.per_second());
                }
            }
        }
        let cold = |at: usize| -> Fallible<f64> {
            Ok(swap(&mut servers[at].client()?, "swap_keys")? as f64 / keys as f64 * 100.0)
        };
        progress(&format!("{:.0} and {:.0} % of the values are on disk", cold(1)?, cold(2)?));
        let of = |at: usize| median(rates[at].clone()).unwrap_or_default();
        let figure = |at: usize| format!("{:.2} x, {:.1} k/s", of(at) / of(0), of(at) / 1e3);
        table.row([
            format!("zipf 0.99, 95/5, 80 % of values on disk, pipeline {pipeline}: over all in memory"),
            figure(1),
            figure(2),
            if pipeline == 1 { ">= 0.75 x".into() } else { "-".into() },
        ]);
    }
    Ok(())
}
