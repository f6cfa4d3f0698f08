//! Hit ratio: how well a server guesses which keys will be asked for again.
//!
//! A client reads through the server: GET, and SET what was missing. It is asked (a) at the number of keys
//! that Valkey keeps, which compares the guesses alone, and (b) at the same `maxmemory`, which is what a user
//! gives. For (a) Isotherm's `maxmemory` is set to what that many keys take in it.

use isotherm_probe::{Client, command};
use isotherm_resp::reply_parse::Value;
use isotherm_stdx::Prng;

use crate::load::fill;
use crate::options::Options;
use crate::process::{Server, Setting, Side};
use crate::report::Table;
use crate::shape::{Shape, Verb, named};
use crate::zipf::Zipf;
use crate::{Fallible, progress};

pub const ROWS: [&str; 4] = ["lru-zipf", "lru-scan", "lfu-zipf", "lfu-scan"];

const KEYS: u64 = 4_000_000;
const MAXMEMORY_BYTES: u64 = 32 << 20;
const WARM_REQUESTS: u64 = 8_000_000;
const REQUESTS: u64 = 4_000_000;
const EXPONENT: f64 = 0.99;
/// Interval of one-time keys: in the polluted workload, one of this many requests is for a key that never
/// comes again.
const SCAN_ONE_IN: u64 = 5;
const BATCH: usize = 64;

pub fn measure(options: &Options) -> Fallible<Vec<Table>> {
    let title = format!("Hit ratio, {} seeds{}", options.seeds, options.scale_note());
    let head = [
        "policy and requests",
        "Valkey keys",
        "Valkey hits",
        "same keys: kept",
        "hits",
        "over Valkey",
        "same maxmemory: kept",
        "hits",
        "over Valkey",
    ];
    let mut table = Table::new("hits", title, &head);
    table.note(format!(
        "Zipf {EXPONENT} over {} keys, 16 B + 16 B, GET and SET what was missing; {} requests to warm up, {} measured; maxmemory {} bytes. \
         `scan`: one request in {SCAN_ONE_IN} is for a key that never comes again. Means of the seeds.",
        options.scaled(KEYS),
        options.scaled(WARM_REQUESTS),
        options.scaled(REQUESTS),
        options.scaled(MAXMEMORY_BYTES)
    ));
    for name in ROWS.into_iter().filter(|name| options.wants(name)) {
        let policy = if name.starts_with("lru") { "allkeys-lru" } else { "allkeys-lfu" };
        table.row(measure_row(name, policy, name.ends_with("scan"), options)?);
    }
    Ok(vec![table])
}

/// Number of keys that a server kept, and its hit ratio.
#[derive(Default, Clone, Copy)]
struct Found {
    kept: f64,
    hits: f64,
}

fn measure_row(name: &str, policy: &str, scan: bool, options: &Options) -> Fallible<[String; 9]> {
    let maxmemory_bytes = options.scaled(MAXMEMORY_BYTES);
    let mut sums = [Found::default(); 3];
    for seed in 1..=options.seeds {
        let valkey = run(Side::Valkey, policy, maxmemory_bytes, scan, seed, options)?;
        let same_keys = keeping(valkey.kept, policy, scan, seed, options)?;
        let same_memory = run(Side::Isotherm, policy, maxmemory_bytes, scan, seed, options)?;
        progress(&format!(
            "{name} seed {seed}: Valkey {:.4} of {:.0} keys; Isotherm {:.4} of {:.0}, {:.4} of {:.0}",
            valkey.hits, valkey.kept, same_keys.hits, same_keys.kept, same_memory.hits, same_memory.kept
        ));
        for (sum, found) in sums.iter_mut().zip([valkey, same_keys, same_memory]) {
            sum.kept += found.kept / options.seeds as f64;
            sum.hits += found.hits / options.seeds as f64;
        }
    }
    let [valkey, same_keys, same_memory] = sums;
    Ok([
        format!("{policy}, {}", if scan { "zipf and scan" } else { "zipf" }),
        format!("{:.0}", valkey.kept),
        format!("{:.4}", valkey.hits),
        format!("{:.0}", same_keys.kept),
        format!("{:.4}", same_keys.hits),
        format!("{:.3}", same_keys.hits / valkey.hits),
        format!("{:.0}", same_memory.kept),
        format!("{:.4}", same_memory.hits),
        format!("{:.3}", same_memory.hits / valkey.hits),
    ])
}

/// Isotherm with the `maxmemory` at which it keeps `keys` keys: first their memory when they are loaded, then
/// once more, corrected by the number that was kept.
fn keeping(keys: f64, policy: &str, scan: bool, seed: u64, options: &Options) -> Fallible<Found> {
    let enough_bytes = memory_for(keys as u64, policy, options)?;
    let found = run(Side::Isotherm, policy, enough_bytes, scan, seed, options)?;
    if (found.kept / keys - 1.0).abs() < 0.005 {
        return Ok(found);
    }
    let corrected_bytes = (enough_bytes as f64 * keys / found.kept) as u64;
    run(Side::Isotherm, policy, corrected_bytes, scan, seed, options)
}

/// used_memory of Isotherm with `keys` keys under this policy.
fn memory_for(keys: u64, policy: &str, options: &Options) -> Fallible<u64> {
    let setting = Setting::one_core().with("maxmemory-policy", policy);
    let server = Server::start(Side::Isotherm, &setting, options)?;
    fill(&server, &mut Shape::new(Verb::Set, keys), keys, "calibration")?;
    server.client()?.used_memory_bytes()
}

fn run(
    side: Side,
    policy: &str,
    maxmemory_bytes: u64,
    scan: bool,
    seed: u64,
    options: &Options,
) -> Fallible<Found> {
    let setting = Setting::one_core().with("maxmemory", maxmemory_bytes).with("maxmemory-policy", policy);
    let server = Server::start(side, &setting, options)?;
    let mut reader = Reader {
        client: server.client()?,
        zipf: Zipf::new(options.scaled(KEYS), EXPONENT),
        prng: Prng::new(seed),
        scan: scan.then_some(options.scaled(KEYS)),
        missing: Vec::new(),
    };
    reader.requests(options.scaled(WARM_REQUESTS))?;
    let measured = options.scaled(REQUESTS);
    let hits = reader.requests(measured)?;
    Ok(Found { kept: reader.client.dbsize()? as f64, hits: hits as f64 / measured as f64 })
}

/// A client that reads through the server.
struct Reader {
    client: Client,
    zipf: Zipf,
    prng: Prng,
    /// The next key of the scan, above all keys of the law.
    scan: Option<u64>,
    /// Keys to SET with the next batch.
    missing: Vec<u64>,
}

impl Reader {
    /// Sends `count` GETs in batches, and returns how many found a value.
    fn requests(&mut self, count: u64) -> Fallible<u64> {
        let (mut hits, mut asked) = (0, 0);
        let mut request = Vec::new();
        while asked < count {
            request.clear();
            let stored = self.missing.len();
            for number in self.missing.drain(..) {
                let key = named(number);
                command(&mut request, [b"SET", key.as_slice(), &key].into_iter());
            }
            let batch: Vec<u64> = (0..BATCH).map(|_| self.next()).collect();
            for number in &batch {
                command(&mut request, [b"GET", named(*number).as_slice()].into_iter());
            }
            self.client.send(&request)?;
            for _ in 0..stored {
                self.client.read().map_err(|why| format!("SET under maxmemory: {why}"))?;
            }
            for number in batch {
                match self.client.read()? {
                    Value::NullBulk => self.missing.push(number),
                    Value::Bulk(_) => hits += 1,
                    other => return Err(format!("GET: {other:?}")),
                }
            }
            asked += BATCH as u64;
        }
        Ok(hits)
    }

    fn next(&mut self) -> u64 {
        if let Some(next) = &mut self.scan
            && self.prng.one_in(SCAN_ONE_IN)
        {
            *next += 1;
            return *next;
        }
        self.zipf.draw(&mut self.prng)
    }
}
