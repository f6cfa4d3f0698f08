//! FAILOVER back and forth under load: how long no write is accepted, and whether an answered one is lost.
//!
//! ```text
//!   FAILOVER to A ----------------------------> SET at B: -READONLY, -READONLY, ... +OK
//!        '--------------- unavailable ----------------------------------------------'
//! ```
//! Writers run meanwhile, at the server of the two that takes their writes. Each key is written once, so a
//! key that is missing at the last primary is lost.

use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::thread;
use std::time::{Duration, Instant};

use isotherm_probe::{Client, command};
use isotherm_resp::reply_parse::Value;

use super::pair::{Pair, Syncs};
use crate::options::Options;
use crate::process::Side::{self, Isotherm, Valkey};
use crate::report::Table;
use crate::{Fallible, progress};

const HANDOVERS: u64 = 200;
const WRITERS: usize = 3;
const PATIENCE: Duration = Duration::from_secs(60);
/// Time for which writers write between two handovers.
const LOADED: Duration = Duration::from_millis(50);
const BETWEEN_TRIES: Duration = Duration::from_micros(200);
const ASKED_AHEAD: usize = 500;

/// Each is compared with Valkey to Valkey.
const PAIRS: [(Side, Side); 2] = [(Isotherm, Isotherm), (Isotherm, Valkey)];

#[derive(Default)]
struct Outcome {
    /// Sorted, in milliseconds.
    unavailable_ms: Vec<f64>,
    answered: usize,
    lost: usize,
    /// Snapshots besides the first one.
    snapshots: u64,
}

impl Outcome {
    fn at(&self, share: f64) -> f64 {
        let last = self.unavailable_ms.len().saturating_sub(1);
        self.unavailable_ms.get((last as f64 * share).round() as usize).copied().unwrap_or(f64::NAN)
    }
}

pub fn measure(options: &Options, table: &mut Table) -> Fallible {
    let times = options.scaled(HANDOVERS).max(10);
    let base = hand_over(Valkey, Valkey, times, options)?;
    for (primary, replica) in PAIRS {
        let ours = hand_over(primary, replica, times, options)?;
        let pair = format!("{times} handovers, {} and {}", primary.name(), replica.name());
        for (share, name, aim) in [(0.5, "p50", "<= 1.2"), (0.99, "p99", "< 1 s")] {
            let (theirs, own) = (base.at(share), ours.at(share));
            table.row([
                format!("{pair}: no write accepted, {name}"),
                format!("{theirs:.1} ms"),
                format!("{own:.1} ms"),
                format!("{:.2}", own / theirs),
                aim.to_string(),
            ]);
        }
        let lost = |outcome: &Outcome| format!("{} of {}", outcome.lost, outcome.answered);
        let (theirs, own) = (lost(&base), lost(&ours));
        table.row(["answered writes lost".into(), theirs, own, "-".into(), "0".into()]);
        let (theirs, own) = (base.snapshots.to_string(), ours.snapshots.to_string());
        table.row(["full syncs beside the first".into(), theirs, own, "-".into(), "0".into()]);
    }
    Ok(())
}

fn hand_over(primary: Side, replica: Side, times: u64, options: &Options) -> Fallible<Outcome> {
    let pair = Pair::start(primary, replica, options)?;
    pair.join()?;
    let ports = [pair.primary.port, pair.replica.port];
    let stop = AtomicBool::new(false);
    let mut outcome = Outcome::default();
    let written = thread::scope(|scope| {
        let stop = &stop;
        let writers: Vec<_> =
            (0..WRITERS).map(|number| scope.spawn(move || write(ports, number, stop))).collect();
        let measured = hand_over_again(ports, times);
        stop.store(true, Relaxed);
        let written: Fallible<Vec<_>> = writers
            .into_iter()
            .map(|writer| writer.join().unwrap_or_else(|_| Err("a writer panicked".to_string())))
            .collect();
        outcome.unavailable_ms = measured?;
        written
    })?;
    outcome.unavailable_ms.sort_by(f64::total_cmp);
    let mut last = Client::connect(ports[(times % 2) as usize])?;
    for (number, numbers) in written.iter().enumerate() {
        outcome.answered += numbers.len();
        for keys in numbers.chunks(ASKED_AHEAD) {
            outcome.lost += missing(&mut last, number, keys)?;
        }
    }
    for server in [&pair.primary, &pair.replica] {
        outcome.snapshots += Syncs::of(server)?.full;
    }
    outcome.snapshots = outcome.snapshots.saturating_sub(1);
    progress(&format!(
        "failover {} and {}: p50 {:.1} ms, p99 {:.1} ms, max {:.1} ms; {} of {} answered writes lost; {} more full syncs",
        primary.name(),
        replica.name(),
        outcome.at(0.5),
        outcome.at(0.99),
        outcome.at(1.0),
        outcome.lost,
        outcome.answered,
        outcome.snapshots
    ));
    Ok(outcome)
}

/// The times in which no write was accepted, in milliseconds.
fn hand_over_again(ports: [u16; 2], times: u64) -> Fallible<Vec<f64>> {
    let mut clients = [Client::connect(ports[0])?, Client::connect(ports[1])?];
    let mut unavailable_ms = Vec::new();
    for time in 0..times as usize {
        let [one, two] = &mut clients;
        let (from, to) = if time.is_multiple_of(2) { (one, two) } else { (two, one) };
        let begun = Instant::now();
        while !from.info("slave0").is_ok_and(|line| line.contains("state=online")) {
            check(begun, "the replica is not online")?;
        }
        thread::sleep(LOADED);
        let begun = Instant::now();
        from.call(&["FAILOVER"])?;
        while to.call(&["SET", "asked", "1"]).is_err() {
            check(begun, "no write is accepted")?;
        }
        unavailable_ms.push(begun.elapsed().as_secs_f64() * 1e3);
        while from.info("master_failover_state")? != "no-failover" {
            check(begun, "the failover does not end")?;
        }
    }
    Ok(unavailable_ms)
}

fn check(begun: Instant, what: &str) -> Fallible {
    thread::sleep(BETWEEN_TRIES);
    if begun.elapsed() > PATIENCE { Err(format!("{what} after {PATIENCE:?}")) } else { Ok(()) }
}

/// Writes one key after the other at the node that takes it. Returns those that were answered.
fn write(ports: [u16; 2], writer: usize, stop: &AtomicBool) -> Fallible<Vec<u64>> {
    let mut clients = [Client::connect(ports[0])?, Client::connect(ports[1])?];
    let (mut answered, mut at, mut number) = (Vec::new(), 0, 0);
    while !stop.load(Relaxed) {
        match clients[at].call(&["SET", &key(writer, number), "1"]) {
            Ok(_) => {
                answered.push(number);
                number += 1;
            }
            Err(why) if why.contains("READONLY") => {
                at = 1 - at;
                thread::sleep(BETWEEN_TRIES);
            }
            Err(why) => return Err(why),
        }
    }
    Ok(answered)
}

fn key(writer: usize, number: u64) -> String {
    format!("{writer}:{number}")
}

/// Returns how many of the keys are missing.
fn missing(client: &mut Client, writer: usize, keys: &[u64]) -> Fallible<usize> {
    let mut request = Vec::new();
    for number in keys {
        command(&mut request, [&b"EXISTS"[..], key(writer, *number).as_bytes()].into_iter());
    }
    client.send(&request)?;
    let mut count = 0;
    for _ in keys {
        count += usize::from(client.read()? != Value::Integer(1));
    }
    Ok(count)
}
