//! Two threads over one: the keyspace behind its locks, in this process, without sockets.
//!
//! Over sockets the load generator would share the cores with the server, so scaling cannot be seen there on
//! a small machine. Here each thread does what a worker does with a batch of 32: hash the keys, prefetch,
//! then lock, look up or write, and keep the lock while the next key falls into the same partition. Each runs
//! on a core of its own for the same time; the figure is how many operations both finish over what one
//! finishes alone.

use std::sync::Barrier;
use std::thread;
use std::time::{Duration, Instant};

use isotherm_keyspace::{
    Conditions, Config, Db, Expiry, ExpiryMode, Held, Intent, Key, Keyspace, Lookup, NewValue, NoEffects,
    Txn, UnixMs, Want,
};
use isotherm_stdx::Prng;

use crate::options::Options;
use crate::process::pin_this_thread;
use crate::report::Table;
use crate::shape::named;
use crate::{Fallible, progress};

pub const ROWS: [&str; 2] = ["threads-get", "threads-set"];

const KEYS: u64 = 1_000_000;
const BATCH: usize = 32;
const RUN: Duration = Duration::from_secs(2);
/// 1: what a lone worker uses. 32: what two workers use.
const PARTITIONS: [usize; 2] = [1, 32];

pub fn measure(options: &Options) -> Fallible<Vec<Table>> {
    let keys = options.scaled(KEYS);
    let head = [
        "what",
        "partitions",
        "one thread M/s",
        "two threads M/s",
        "two over one",
        "ns CPU each: one thread",
        "two",
    ];
    let mut table =
        Table::new("threads", format!("Two threads over one, {keys} keys, in this process"), &head);
    table.note(format!(
        "16 B keys and values, batches of {BATCH} as a worker runs them, {} s a run; the best of {} rounds each. \
         On a shared machine the CPU times are more reliable than the rates.",
        RUN.as_secs(),
        options.rounds
    ));
    let (Some(first), Some(second)) = (options.server_core, options.load_core) else {
        progress("skipped: two threads over one: this process may use one core only");
        return Ok(vec![table]);
    };
    for row in ROWS.into_iter().filter(|row| options.wants(row)) {
        let writes = row == "threads-set";
        for partitions in PARTITIONS {
            let keyspace = filled(partitions, keys)?;
            let (mut alone, mut both) = (Speed::NONE, Speed::NONE);
            for round in 1..=options.rounds {
                alone = alone.best(run(&keyspace, keys, writes, &[first])?);
                both = both.best(run(&keyspace, keys, writes, &[first, second])?);
                let (alone, both) = (alone.per_second / 1e6, both.per_second / 1e6);
                progress(&format!("{row} P={partitions} round {round}: {alone:.2} and {both:.2} M/s"));
            }
            table.row([
                if writes { "SET of existing keys" } else { "GET" }.to_string(),
                partitions.to_string(),
                format!("{:.2}", alone.per_second / 1e6),
                format!("{:.2}", both.per_second / 1e6),
                format!("{:.2}", both.per_second / alone.per_second),
                format!("{:.0}", alone.cpu_ns),
                format!("{:.0}", both.cpu_ns),
            ]);
        }
    }
    Ok(vec![table])
}

/// All threads together.
#[derive(Clone, Copy)]
struct Speed {
    per_second: f64,
    /// CPU time of one operation.
    cpu_ns: f64,
}

impl Speed {
    const NONE: Speed = Speed { per_second: 0.0, cpu_ns: f64::MAX };

    fn best(self, other: Speed) -> Speed {
        Speed { per_second: self.per_second.max(other.per_second), cpu_ns: self.cpu_ns.min(other.cpu_ns) }
    }
}

fn filled(partitions: usize, keys: u64) -> Fallible<Keyspace> {
    let arenas = if partitions == 1 { 1 } else { 2 };
    let config = Config {
        partitions,
        arenas,
        databases: 1,
        reserve_bytes: 8 << 30,
        hash_secret: [7; 16],
        class_bytes: |bytes| bytes,
    };
    let keyspace = Keyspace::new(config).map_err(|why| format!("no address space: {why:?}"))?;
    let mut held = Held::new(&keyspace);
    (0..keys).for_each(|number| set(&mut held, &keyspace.key(&named(number))));
    held.release();
    drop(held);
    Ok(keyspace)
}

/// Runs one thread on each of the named cores.
fn run(keyspace: &Keyspace, keys: u64, writes: bool, cores: &[usize]) -> Fallible<Speed> {
    let start = Barrier::new(cores.len());
    let runs: Vec<Speed> = thread::scope(|scope| {
        let threads: Vec<_> = cores
            .iter()
            .map(|&core| {
                let start = &start;
                scope.spawn(move || {
                    pin_this_thread(core);
                    start.wait();
                    work(keyspace, keys, writes, core as u64)
                })
            })
            .collect();
        threads.into_iter().map(|thread| thread.join().expect("no operation panics")).collect::<Fallible<_>>()
    })?;
    let cpu_ns = runs.iter().map(|run| run.cpu_ns).sum::<f64>() / runs.len() as f64;
    Ok(Speed { per_second: runs.iter().map(|run| run.per_second).sum(), cpu_ns })
}

/// Works on batches as a worker does, for the time of a run.
fn work(keyspace: &Keyspace, keys: u64, writes: bool, seed: u64) -> Fallible<Speed> {
    let mut prng = Prng::new(seed);
    let mut held = Held::new(keyspace);
    let mut names = [[0; 16]; BATCH];
    let cpu_before_ns = this_thread_cpu_ns()?;
    let (begun, mut done) = (Instant::now(), 0u64);
    while begun.elapsed() < RUN {
        names.iter_mut().for_each(|name| *name = named(prng.below(keys)));
        let keys = names.each_ref().map(|name| keyspace.key(name));
        let intent = Intent { adds: writes, moves: false };
        keyspace.prefetch(Db(0), &keys.each_ref().map(|key| (key, intent)));
        for key in &keys {
            if writes { set(&mut held, key) } else { get(&mut held, key) }
        }
        held.release();
        done += BATCH as u64;
    }
    let per_second = done as f64 / begun.elapsed().as_secs_f64();
    Ok(Speed { per_second, cpu_ns: (this_thread_cpu_ns()? - cpu_before_ns) as f64 / done as f64 })
}

pub fn this_thread_cpu_ns() -> Fallible<u64> {
    let text = std::fs::read_to_string("/proc/thread-self/schedstat")
        .map_err(|why| format!("no schedstat: {why}"))?;
    let ns = text.split_whitespace().next().and_then(|word| word.parse().ok());
    ns.ok_or("schedstat is no number".to_string())
}

const CONDITIONS: Conditions =
    Conditions { now: UnixMs(1_790_000_000_000), expiry_mode: ExpiryMode::Delete, no_touch: false };

fn set(held: &mut Held<'_>, key: &Key<'_>) {
    held.acquire(Want::One(held.keyspace().partition_of(key.slot)));
    let mut sink = NoEffects;
    let mut txn = Txn::new(held, CONDITIONS, &mut sink);
    txn.set(Db(0), key, NewValue::encode(b"sixteen bytes...".as_slice()), Expiry::Clear)
        .expect("room for a key");
}

fn get(held: &mut Held<'_>, key: &Key<'_>) {
    held.acquire(Want::One(held.keyspace().partition_of(key.slot)));
    let mut sink = NoEffects;
    let mut txn = Txn::new(held, CONDITIONS, &mut sink);
    let found = txn.find(Db(0), key, Lookup::Read).expect("every key is there");
    std::hint::black_box(found.value);
}
