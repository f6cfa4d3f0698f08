//! Waiting for an ACK: one client's SET and WAIT 1, and fifty that do it at once, compared with replies that
//! wait by themselves.

use std::time::{Duration, Instant};

use isotherm_probe::{Client, command};

use super::pair::Pair;
use crate::durability::{Best, Figures, median, thousands};
use crate::load::{Load, Until};
use crate::options::Options;
use crate::process::{SIDES, Side};
use crate::report::Table;
use crate::shape::{Commands, Order, Shape, Verb};
use crate::{Fallible, progress};

const KEYS: u64 = 100_000;
const TRIES: u64 = 5_000;
const FOR: Duration = Duration::from_secs(5);

pub fn measure(options: &Options, table: &mut Table) -> Fallible {
    let [mut times, mut rates] = <[Figures; 2]>::default();
    for round in 1..=options.rounds {
        for side in SIDES {
            let pair = Pair::start(side, side, options)?;
            pair.join()?;
            let middle_us = one_client(&mut pair.primary.client()?, options.scaled(TRIES))?;
            let per_second = fifty_clients(&pair, side)?;
            progress(&format!(
                "wait round {round} {}: SET + WAIT 1 p50 {middle_us:.0} us; 50 clients {:.1} k/s",
                side.name(),
                per_second / 1e3
            ));
            times.add(side, middle_us);
            rates.add(side, per_second);
        }
    }
    times.row(table, "SET + WAIT 1, one client: p50", Best::Least, |us| format!("{us:.0} us"), "<= 1.3");
    let what = "50 clients: SET + WAIT 1 pipelined; Isotherm: SET with repl-ack-quorum 1";
    rates.row(table, what, Best::Most, thousands, ">= 1.5");
    Ok(())
}

/// The median, in microseconds.
fn one_client(client: &mut Client, tries: u64) -> Fallible<f64> {
    let mut request = Vec::new();
    command(&mut request, [&b"SET"[..], b"key", b"0123456789abcdef"].into_iter());
    command(&mut request, [&b"WAIT"[..], b"1", b"1000"].into_iter());
    let mut times = Vec::new();
    for _ in 0..tries.max(100) {
        let begun = Instant::now();
        client.send(&request)?;
        client.read()?;
        client.read()?;
        times.push(begun.elapsed().as_secs_f64() * 1e6);
    }
    median(times).ok_or_else(|| "nothing was measured".to_string())
}

/// Acknowledged SETs a second.
fn fifty_clients(pair: &Pair, side: Side) -> Fallible<f64> {
    let shape = Shape::new(Verb::Set, KEYS).order(Order::Uniform);
    let port = pair.primary.port;
    let until = Until::Passed(FOR);
    match side {
        Side::Isotherm => {
            pair.primary.client()?.call(&["CONFIG", "SET", "repl-ack-quorum", "1"])?;
            let mut shape = shape;
            Ok(Load { port, connections: 50, pipeline: 1 }.run(&mut shape, until)?.per_second())
        }
        // Two commands for each that counts.
        Side::Valkey => {
            let mut shape = WithWait { sets: shape, waits: false };
            Ok(Load { port, connections: 50, pipeline: 2 }.run(&mut shape, until)?.per_second() / 2.0)
        }
    }
}

/// A SET, then a WAIT for it.
struct WithWait {
    sets: Shape,
    waits: bool,
}

impl Commands for WithWait {
    fn write(&mut self, out: &mut Vec<u8>) {
        match self.waits {
            true => command(out, [&b"WAIT"[..], b"1", b"1000"].into_iter()),
            false => self.sets.write(out),
        }
        self.waits = !self.waits;
    }
}
