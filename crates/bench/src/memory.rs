//! The memory of keys, values, times to live and connections.
//!
//! Bytes per key are those above the empty server, divided by DBSIZE. Every figure comes from a fresh
//! process, read after its memory has stood still. Valkey runs as a one-node cluster that owns all slots: one
//! table a slot, which is what a member of a cluster pays, and the layout that Isotherm always has.

use std::net::TcpStream;
use std::process::{Command, Stdio};
use std::time::Duration;

use isotherm_resp::reply_parse::Value;

use crate::load::{Load, Until, fill};
use crate::options::Options;
use crate::process::{SIDES, Server, Setting, Side, allow_open_files};
use crate::report::Table;
use crate::shape::{KEY_BYTES, Keys, Shape, Values, Verb, named, scramble, size_by_key};
use crate::{Fallible, progress};

pub const ROWS: [&str; 13] = [
    "keys-6m",
    "keys-1m",
    "keys-100k",
    "random-6m",
    "ttl-6m",
    "workers-1m",
    "values-64",
    "values-128",
    "values-512",
    "values-1024",
    "sawtooth",
    "churn",
    "idle",
];

pub fn measure(options: &Options) -> Fallible<Vec<Table>> {
    Ok(vec![per_key(options)?, sawtooth(options)?, churn(options)?, idle(options)?])
}

// ---------------------------------------------------------------------------------------------------- bytes per key

/// A row of the first table: what is stored, how many, how large.
struct Row {
    name: &'static str,
    what: &'static str,
    keys: u64,
    payload_bytes: usize,
    with: With,
}

enum With {
    /// valkey-benchmark's own command: random keys out of `keys`; some 63 % of these are met.
    ValkeyBenchmark,
    Shape(Keys, Verb, usize),
    /// Random keys, measured with each of the requested numbers of workers.
    EachWorkers,
}

const PER_KEY: [Row; 10] = [
    row("keys-6m", "valkey-benchmark's SET, 16 B + 16 B", 10_000_000, 32, With::ValkeyBenchmark),
    row("keys-1m", "the same keys, 1 M of them", 1_000_000, 32, With::Shape(Keys::Named, Verb::Set, 16)),
    row("keys-100k", "the same keys, 100 k of them", 100_000, 32, With::Shape(Keys::Named, Verb::Set, 16)),
    row("random-6m", "random bytes, 16 B + 16 B", 6_320_000, 32, With::Shape(Keys::Binary, Verb::Set, 16)),
    row(
        "ttl-6m",
        "the same, each with a TTL",
        6_320_000,
        32,
        With::Shape(Keys::Binary, Verb::SetWithTtl, 16),
    ),
    row("workers-1m", "random bytes, 16 B + 16 B", 1_000_000, 32, With::EachWorkers),
    row("values-64", "16 B keys, values of 64 B", 1_000_000, 80, With::Shape(Keys::Named, Verb::Set, 64)),
    row("values-128", "values of 128 B", 1_000_000, 144, With::Shape(Keys::Named, Verb::Set, 128)),
    row("values-512", "values of 512 B", 1_000_000, 528, With::Shape(Keys::Named, Verb::Set, 512)),
    row("values-1024", "values of 1024 B", 1_000_000, 1040, With::Shape(Keys::Named, Verb::Set, 1024)),
];

const fn row(name: &'static str, what: &'static str, keys: u64, payload_bytes: usize, with: With) -> Row {
    Row { name, what, keys, payload_bytes, with }
}

/// Memory that a full server takes in addition to that of an empty one.
struct Taken {
    keys: u64,
    used_per_key: f64,
    resident_per_key: f64,
}

fn per_key(options: &Options) -> Fallible<Table> {
    let head = [
        "what",
        "keys",
        "payload B",
        "Valkey used B/key",
        "RSS",
        "Isotherm used B/key",
        "RSS",
        "RSS, Isotherm / Valkey",
    ];
    let mut table = Table::new("memory-per-key", format!("Bytes per key{}", options.scale_note()), &head);
    table.note("Above the empty server. Valkey as a one-node cluster with all slots; Isotherm with one worker where no number is named.");
    for row in PER_KEY.iter().filter(|row| options.wants(row.name)) {
        let valkey = fill_and_weigh(Side::Valkey, row, 1, options)?;
        let workers = if matches!(row.with, With::EachWorkers) { options.workers.clone() } else { vec![1] };
        for workers in workers {
            let isotherm = fill_and_weigh(Side::Isotherm, row, workers, options)?;
            let named = if matches!(row.with, With::EachWorkers) {
                format!(", {workers} workers")
            } else {
                String::new()
            };
            table.row([
                format!("{}{named}", row.what),
                isotherm.keys.to_string(),
                row.payload_bytes.to_string(),
                format!("{:.1}", valkey.used_per_key),
                format!("{:.1}", valkey.resident_per_key),
                format!("{:.1}", isotherm.used_per_key),
                format!("{:.1}", isotherm.resident_per_key),
                format!("{:.2}", isotherm.resident_per_key / valkey.resident_per_key),
            ]);
        }
    }
    Ok(table)
}

pub fn workers_named(workers: usize) -> String {
    if workers == 1 { "1 worker".to_string() } else { format!("{workers} workers") }
}

fn fill_and_weigh(side: Side, row: &Row, workers: usize, options: &Options) -> Fallible<Taken> {
    let server = Server::start(side, &Setting::slots(workers), options)?;
    let empty = Weight::of(&server)?;
    let keys = options.scaled(row.keys);
    match row.with {
        With::ValkeyBenchmark => valkey_benchmark(&server, keys, options)?,
        With::Shape(names, verb, value_bytes) => {
            let mut shape = Shape::new(verb, keys).keys(names).values(Values::Fixed(value_bytes));
            fill(&server, &mut shape, keys, row.name)?;
        }
        With::EachWorkers => {
            let mut shape = Shape::new(Verb::Set, keys).keys(Keys::Binary);
            fill(&server, &mut shape, keys, row.name)?;
        }
    }
    let full = Weight::of(&server)?;
    let keys = server.client()?.dbsize()?;
    let taken = Taken {
        keys,
        used_per_key: above(full.used_bytes, empty.used_bytes, keys),
        resident_per_key: above(full.resident_bytes, empty.resident_bytes, keys),
    };
    progress(&format!(
        "{} {} ({workers} workers): {keys} keys, used {:.1} B, RSS {:.1} B a key",
        row.name,
        side.name(),
        taken.used_per_key,
        taken.resident_per_key
    ));
    Ok(taken)
}

pub struct Weight {
    pub used_bytes: u64,
    pub resident_bytes: u64,
}

impl Weight {
    /// After the server's memory has come to rest.
    pub fn of(server: &Server) -> Fallible<Weight> {
        server.settle(Duration::from_secs(20))?;
        Ok(Weight {
            used_bytes: server.client()?.used_memory_bytes()?,
            resident_bytes: server.resident_bytes()?,
        })
    }
}

pub fn above(full: u64, empty: u64, keys: u64) -> f64 {
    (full as f64 - empty as f64) / keys as f64
}

fn valkey_benchmark(server: &Server, keys: u64, options: &Options) -> Fallible {
    let (port, keys) = (server.port.to_string(), keys.to_string());
    let words = ["-p", &port, "-t", "set", "-n", &keys, "-r", &keys, "-d", "16", "-P", "64", "-q"];
    let program = options.valkey_benchmark();
    progress(&format!("{}: valkey-benchmark {}", server.side.name(), words[2..].join(" ")));
    let status = Command::new(&program).args(words).stdout(Stdio::null()).status();
    match status {
        Ok(status) if status.success() => Ok(()),
        Ok(status) => Err(format!("{} failed ({status})", program.display())),
        Err(why) => Err(format!("cannot run {}: {why}", program.display())),
    }
}

// --------------------------------------------------------------------------------------------------------- sawtooth

/// used_memory per key at every step of growth: a table that doubles shows its teeth here.
fn sawtooth(options: &Options) -> Fallible<Table> {
    let title =
        format!("Growth: used_memory per key at every 100 k keys from 3 M to 10 M{}", options.scale_note());
    let mut table =
        Table::new("memory-sawtooth", title, &["", "best B/key", "worst B/key", "worst over best"]);
    if !options.wants("sawtooth") {
        return Ok(table);
    }
    let (from, to, step) = (options.scaled(3_000_000), options.scaled(10_000_000), options.scaled(100_000));
    for side in SIDES {
        let server = Server::start(side, &Setting::slots(1), options)?;
        let empty = Weight::of(&server)?;
        let load = Load::fifty(server.port, 64);
        let mut shape = Shape::new(Verb::Set, to + step);
        load.run(&mut shape, Until::Commands(from))?;
        let mut client = server.client()?;
        let (mut best, mut worst, mut keys) = (f64::MAX, f64::MIN, from);
        loop {
            // The load's connections close just now; what they held is not part of a key.
            std::thread::sleep(Duration::from_millis(50));
            let per_key = above(client.used_memory_bytes()?, empty.used_bytes, keys);
            (best, worst) = (best.min(per_key), worst.max(per_key));
            if keys >= to {
                break;
            }
            load.run(&mut shape, Until::Commands(step))?;
            keys += step;
        }
        assert_eq!(client.dbsize()?, keys, "every key was new");
        progress(&format!("sawtooth {}: {best:.2} .. {worst:.2} B a key", side.name()));
        let over = format!("+{:.1} %", (worst / best - 1.0) * 100.0);
        table.row([side.name().to_string(), format!("{best:.2}"), format!("{worst:.2}"), over]);
    }
    Ok(table)
}

// ------------------------------------------------------------------------------------------------------------ churn

const SMALL: (usize, usize) = (16, 1024);
const LARGE: (usize, usize) = (1100, 2048);

/// Small values, half of them deleted, the gaps filled with values that do not fit into them.
fn churn(options: &Options) -> Fallible<Table> {
    let keys = options.scaled(2_000_000);
    let head = ["", "filled", "half deleted", "refilled", "30 s later", "30 s later, used_memory"];
    let title = format!("Churn: RSS over payload{}", options.scale_note());
    let mut table = Table::new("memory-churn", title, &head);
    table.note(format!(
        "{keys} keys with values of 16..1024 B; a random half deleted; refilled to {keys} with values of 1100..2048 B. \
         Payload is the bytes of keys and values; RSS is the whole process. Debian's Valkey has no active defragmentation."
    ));
    if !options.wants("churn") {
        return Ok(table);
    }
    churn_once(Side::Valkey, 1, keys, options, &mut table)?;
    for &workers in &options.workers {
        churn_once(Side::Isotherm, workers, keys, options, &mut table)?;
    }
    Ok(table)
}

fn churn_once(side: Side, workers: usize, keys: u64, options: &Options, table: &mut Table) -> Fallible {
    let server = Server::start(side, &Setting::slots(workers), options)?;
    let mut small = Shape::new(Verb::Set, keys).values(Values::ByKey(SMALL.0, SMALL.1));
    fill(&server, &mut small, keys, "churn")?;
    let goes = |number: &u64| scramble(number ^ 0xdead).is_multiple_of(2);
    let payload = |numbers: &mut dyn Iterator<Item = u64>, (least, most): (usize, usize)| -> u64 {
        numbers.map(|number| (KEY_BYTES + size_by_key(number, least, most)) as u64).sum()
    };
    let all = payload(&mut (0..keys), SMALL);
    let stay = payload(&mut (0..keys).filter(|number| !goes(number)), SMALL);
    let gone = (0..keys).filter(goes).count() as u64;
    let ratio = |payload_bytes: u64| -> Fallible<String> {
        Ok(format!("{:.2}", server.resident_bytes()? as f64 / payload_bytes as f64))
    };
    server.settle(Duration::from_secs(10))?;
    let filled = ratio(all)?;
    delete(&server, (0..keys).filter(goes))?;
    server.settle(Duration::from_secs(10))?;
    let half = ratio(stay)?;
    let mut large = Shape::new(Verb::Set, gone).first(keys).values(Values::ByKey(LARGE.0, LARGE.1));
    fill(&server, &mut large, gone, "churn refill")?;
    let refill = stay + payload(&mut (keys..keys + gone), LARGE);
    let refilled = ratio(refill)?;
    std::thread::sleep(Duration::from_secs(30));
    let later = ratio(refill)?;
    let mut client = server.client()?;
    assert_eq!(client.dbsize()?, keys, "as many as before");
    let used = format!("{:.2}", client.used_memory_bytes()? as f64 / refill as f64);
    let name = if side == Side::Valkey {
        side.name().to_string()
    } else {
        format!("Isotherm, {}", workers_named(workers))
    };
    progress(&format!("churn {name}: {filled}, {half}, {refilled}, {later} x payload"));
    table.row([name, filled, half, refilled, later, used]);
    Ok(())
}

/// Deletes in batches of 64 over one connection; all must have been there.
fn delete(server: &Server, numbers: impl Iterator<Item = u64>) -> Fallible {
    let mut client = server.client()?;
    let mut request = Vec::new();
    let mut numbers = numbers.peekable();
    while numbers.peek().is_some() {
        request.clear();
        let batch: Vec<[u8; KEY_BYTES]> = numbers.by_ref().take(64).map(named).collect();
        for key in &batch {
            isotherm_probe::command(&mut request, [b"DEL", key.as_slice()].into_iter());
        }
        client.send(&request)?;
        for _ in &batch {
            match client.read()? {
                Value::Integer(1) => {}
                other => return Err(format!("DEL of a key that is there: {other:?}")),
            }
        }
    }
    Ok(())
}

// ------------------------------------------------------------------------------------------------- idle connections

const IDLE_CONNECTIONS: u64 = 10_000;
const IDLE_FOR: Duration = Duration::from_secs(15);

fn idle(options: &Options) -> Fallible<Table> {
    let connections = options.scaled(IDLE_CONNECTIONS);
    let mut table = Table::new(
        "memory-idle",
        format!("{connections} idle connections"),
        &["", "RSS B/connection", "used B/connection"],
    );
    table.note("Each has sent one PING and has been idle for 15 s. The kernel's socket buffers are not part of a process's RSS.");
    if !options.wants("idle") {
        return Ok(table);
    }
    allow_open_files(connections + 1000)?;
    for side in SIDES {
        let setting = Setting::slots(1).with("maxclients", connections + 100);
        let server = Server::start(side, &setting, options)?;
        let empty = Weight::of(&server)?;
        let mut open = Vec::new();
        for _ in 0..connections {
            open.push(greeted(server.port)?);
        }
        // Servers shrink the buffers of idle clients, and allocators return memory, only after a while.
        std::thread::sleep(IDLE_FOR);
        let full = Weight::of(&server)?;
        let resident = above(full.resident_bytes, empty.resident_bytes, connections);
        let used = above(full.used_bytes, empty.used_bytes, connections);
        progress(&format!("idle {}: {resident:.0} B RSS a connection", side.name()));
        table.row([side.name().to_string(), format!("{resident:.0}"), format!("{used:.0}")]);
    }
    Ok(table)
}

/// A connection that has been used once, without the buffers that a client would keep.
pub fn greeted(port: u16) -> Fallible<TcpStream> {
    use std::io::{Read, Write};
    let named = |why: std::io::Error| format!("connection to {port}: {why}");
    let mut stream = TcpStream::connect(("127.0.0.1", port)).map_err(named)?;
    stream.write_all(b"PING\r\n").map_err(named)?;
    let mut reply = [0; 7];
    stream.read_exact(&mut reply).map_err(named)?;
    if &reply == b"+PONG\r\n" { Ok(stream) } else { Err("PING was not answered with PONG".to_string()) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_row_has_a_name_in_the_list() {
        assert!(PER_KEY.iter().all(|row| ROWS.contains(&row.name)));
    }
}
