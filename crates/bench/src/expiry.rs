//! A million keys that expire in the same second: when are they gone, and what do others notice?
//!
//! Gone means gone from DBSIZE, which counts a key until its memory is taken back. First alone; then while 50
//! connections read other keys, whose 99th percentile is compared with the quiet seconds before.

use std::thread;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use crate::load::{Load, Until, fill};
use crate::options::Options;
use crate::process::{SIDES, Server, Setting};
use crate::report::Table;
use crate::shape::{Order, Shape, Verb};
use crate::{Fallible, progress};

pub const ROWS: [&str; 2] = ["expiry-alone", "expiry-load"];

const KEYS: u64 = 1_000_000;
/// Keys that stay, above the others, for the load to read.
const OTHERS: u64 = 100_000;
/// Time from the first SET until all keys are due: enough to load them, and to measure a quiet server.
const LEAD: Duration = Duration::from_secs(15);
const QUIET: Duration = Duration::from_secs(4);
const LOADED: Duration = Duration::from_secs(4);
const GIVE_UP: Duration = Duration::from_secs(60);

pub fn measure(options: &Options) -> Fallible<Vec<Table>> {
    let keys = options.scaled(KEYS);
    let head = [
        "",
        "alone: gone after",
        "under GET load: gone after",
        "p99 quiet",
        "p99 while they expire",
        "ratio",
    ];
    let mut table = Table::new("expiry", format!("{keys} keys expire in the same second"), &head);
    table.note("One worker on one core; 50 connections read 100,000 other keys, not pipelined. p99 over the 4 s before and after the keys are due.");
    if !ROWS.iter().any(|row| options.wants(row)) {
        return Ok(vec![table]);
    }
    for side in SIDES {
        let mut cells = [side.name().to_string(), "-".into(), "-".into(), "-".into(), "-".into(), "-".into()];
        if options.wants(ROWS[0]) {
            let server = Server::start(side, &Setting::one_core(), options)?;
            let gone = alone(&server, keys)?;
            progress(&format!("expiry {}: alone, gone after {gone}", side.name()));
            cells[1] = gone;
        }
        if options.wants(ROWS[1]) {
            let server = Server::start(side, &Setting::one_core(), options)?;
            let (gone, quiet_us, loaded_us) = under_load(&server, keys)?;
            progress(&format!(
                "expiry {}: under load, gone after {gone}, p99 {quiet_us:.0} then {loaded_us:.0} us",
                side.name()
            ));
            cells[2] = gone;
            cells[3] = format!("{quiet_us:.0} us");
            cells[4] = format!("{loaded_us:.0} us");
            cells[5] = format!("{:.2}", loaded_us / quiet_us);
        }
        table.row(cells);
    }
    Ok(vec![table])
}

fn alone(server: &Server, keys: u64) -> Fallible<String> {
    let due = load_keys(server, keys)?;
    sleep_until(due);
    gone_after(server, due, 0)
}

/// Measures expiry under load. Returns when all keys were gone, and the 99th percentiles before and after the
/// keys were due, in microseconds.
fn under_load(server: &Server, keys: u64) -> Fallible<(String, f64, f64)> {
    fill(server, &mut Shape::new(Verb::Set, OTHERS).first(keys), OTHERS, "other keys")?;
    let due = load_keys(server, keys)?;
    let load = Load::fifty(server.port, 1);
    let mut reads = Shape::new(Verb::Get, OTHERS).first(keys).order(Order::Uniform);
    let quiet = load.run(&mut reads, Until::Passed(QUIET))?;
    sleep_until(due);
    let (gone, loaded) = thread::scope(|scope| {
        let gone = scope.spawn(|| gone_after(server, due, OTHERS));
        let loaded = load.run(&mut reads, Until::Passed(LOADED));
        (gone.join().expect("the watcher does not panic"), loaded)
    });
    Ok((gone?, quiet.batches.quantile_us(0.99), loaded?.batches.quantile_us(0.99)))
}

/// Loads keys that are all due at the same moment, and returns it.
fn load_keys(server: &Server, keys: u64) -> Fallible<Due> {
    let now = SystemTime::now();
    let at = Instant::now() + LEAD;
    let unix_ms = (now + LEAD).duration_since(UNIX_EPOCH).expect("after 1970").as_millis() as u64;
    fill(server, &mut Shape::new(Verb::SetAt { unix_ms }, keys), keys, "keys with a TTL")?;
    if Instant::now() + QUIET > at {
        return Err("loading the keys took until they were due; use a smaller --scale".to_string());
    }
    Ok(at)
}

type Due = Instant;

fn sleep_until(due: Due) {
    thread::sleep(due.saturating_duration_since(Instant::now()));
}

fn gone_after(server: &Server, due: Due, others: u64) -> Fallible<String> {
    let mut client = server.client()?;
    while due.elapsed() < GIVE_UP {
        if client.dbsize()? <= others {
            return Ok(format!("{:.2} s", due.elapsed().as_secs_f64()));
        }
        thread::sleep(Duration::from_millis(5));
    }
    Ok(format!("{} left after {} s", client.dbsize()? - others, GIVE_UP.as_secs()))
}
