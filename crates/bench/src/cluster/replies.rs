//! CLUSTER SLOTS, SHARDS and NODES: microseconds a call, while nothing changes and right after a change.

use isotherm_probe::{Client, command, info_field};
use isotherm_resp::reply_parse::Value;
use std::io::{Read, Write};
use std::net::TcpStream;

use super::conf::{self, Layout};
use crate::durability::{Best, Figures};
use crate::options::Options;
use crate::process::{SIDES, Server, Setting, Side};
use crate::reply::{Scanner, Seen};
use crate::report::Table;
use crate::{Fallible, progress};

const SIZES: [(usize, Layout); 4] =
    [(80, Layout::Contiguous), (100, Layout::Contiguous), (80, Layout::Scattered), (100, Layout::Scattered)];

fn named(nodes: usize, layout: Layout) -> String {
    let layout = if layout == Layout::Contiguous { "a range each" } else { "each slot a range" };
    format!("{nodes} primaries, {layout}")
}

fn aim(contiguous: &'static str, scattered: &'static str) -> impl Fn(Layout) -> &'static str {
    move |layout| if layout == Layout::Contiguous { contiguous } else { scattered }
}

fn show(us: f64) -> String {
    format!("{us:.2} us")
}

pub fn slots(options: &Options, table: &mut Table) -> Fallible {
    let aim = aim("<= 2 us", "<= 10 us");
    SIZES.into_iter().try_for_each(|(nodes, layout)| calls(&["SLOTS"], nodes, layout, &aim, options, table))
}

pub fn shards_and_nodes(options: &Options, table: &mut Table) -> Fallible {
    let aim = aim("<= 5 us", "<= 12 us");
    let sizes = SIZES.into_iter().filter(|(nodes, _)| *nodes == 100);
    sizes
        .into_iter()
        .try_for_each(|(nodes, layout)| calls(&["SHARDS", "NODES"], nodes, layout, &aim, options, table))
}

fn calls(
    subcommands: &[&str],
    nodes: usize,
    layout: Layout,
    aim: &impl Fn(Layout) -> &'static str,
    options: &Options,
    table: &mut Table,
) -> Fallible {
    let servers = start(nodes, layout, options)?;
    // Valkey needs some seconds for the most expensive of them.
    let calls = options.scaled(if layout == Layout::Contiguous { 20_000 } else { 2_000 }).max(20);
    for subcommand in subcommands {
        let mut figures = Figures::default();
        for round in 1..=options.rounds {
            for server in &servers {
                let us = usec_per_call(server, subcommand, |asker| (0..calls).try_for_each(|_| asker.ask()))?;
                progress(&format!("{subcommand} round {round} {}: {us:.2} us a call", server.side.name()));
                figures.add(server.side, us);
            }
        }
        let what = format!("CLUSTER {subcommand}, {}", named(nodes, layout));
        figures.row(table, &what, Best::Median, show, aim(layout));
    }
    Ok(())
}

/// Measures the first call after each move of a slot, and the whole cost of making the reply anew, on
/// whichever thread: CPU of moves and calls in turns, less that of as many moves and of as many calls.
pub fn change(options: &Options, table: &mut Table) -> Fallible {
    let aim = aim("<= 40 us", "<= 200 us");
    for (nodes, layout) in SIZES {
        let (mut first, mut anew) = (Figures::default(), Figures::default());
        for round in 1..=options.rounds {
            for side in SIDES {
                let server = start_one(side, nodes, layout, options)?;
                let (us, anew_us) = cost_of_changes(&server, (nodes, layout), options)?;
                progress(&format!(
                    "change round {round} {}: {us:.2} us a call, {anew_us:.1} us CPU anew",
                    side.name()
                ));
                first.add(side, us);
                anew.add(side, anew_us);
            }
        }
        let what = named(nodes, layout);
        let (first_what, anew_what) = (
            format!("the first CLUSTER SLOTS behind a change, {what}"),
            "CPU of all threads to make it anew",
        );
        first.row(table, &first_what, Best::Median, show, aim(layout));
        anew.row(table, anew_what, Best::Median, show, aim(layout));
    }
    Ok(())
}

/// Moves at a time: without a call after each, then with one.
const BLOCK: usize = 25;

/// Returns the cost of the first CLUSTER SLOTS after a change, in microseconds: as the server counts it, and
/// as CPU time of all its threads.
fn cost_of_changes(server: &Server, shape: (usize, Layout), options: &Options) -> Fallible<(f64, f64)> {
    let mut client = server.client()?;
    let mut steady = Asker::connect(server.port, "SLOTS")?;
    let blocks = options.scaled(8).max(2) as usize;
    let (mut moves_us, mut both_us, mut calls_us) = (0.0, 0.0, 0.0);
    let us = usec_per_call(server, "SLOTS", |asker| {
        for block in 0..blocks {
            let at = 2 * block * BLOCK;
            moves_us += cpu_us(server, || move_slots(&mut client, shape, at..at + BLOCK, || Ok(())))?;
            both_us += cpu_us(server, || {
                move_slots(&mut client, shape, at + BLOCK..at + 2 * BLOCK, || asker.ask())
            })?;
        }
        Ok(())
    })?;
    for _ in 0..blocks {
        calls_us += cpu_us(server, || (0..BLOCK).try_for_each(|_| steady.ask()))?;
    }
    Ok((us, (both_us - moves_us - calls_us) / (blocks * BLOCK) as f64))
}

/// Moves slots one after another, each from one absent node to another one.
fn move_slots(
    client: &mut Client,
    (nodes, layout): (usize, Layout),
    moves: std::ops::Range<usize>,
    mut behind: impl FnMut() -> Fallible,
) -> Fallible {
    for at in moves {
        let (slot, to) = match layout {
            // The last slot of a range becomes the first of the next: there are no more ranges than before.
            Layout::Contiguous => {
                let (from, turn) = (1 + at % (nodes - 2), at / (nodes - 2));
                ((from + 1) * conf::SLOTS / nodes - 1 - turn, from + 1)
            }
            // Nor here: its neighbours are the next two nodes' and the last two's.
            Layout::Scattered => {
                let from = 1 + at % (nodes - 4);
                (from + nodes * (at * 7 % 160), from + 3)
            }
        };
        client.call(&["CLUSTER", "SETSLOT", &slot.to_string(), "NODE", &conf::id(to)])?;
        behind()?;
    }
    Ok(())
}

fn cpu_us(server: &Server, work: impl FnOnce() -> Fallible) -> Fallible<f64> {
    let before_ns = server.cpu_ns()?;
    work()?;
    Ok((server.cpu_ns()? - before_ns) as f64 / 1e3)
}

fn start(nodes: usize, layout: Layout, options: &Options) -> Fallible<[Server; 2]> {
    let [valkey, isotherm] = SIDES.map(|side| start_one(side, nodes, layout, options));
    Ok([valkey?, isotherm?])
}

fn start_one(side: Side, nodes: usize, layout: Layout, options: &Options) -> Fallible<Server> {
    let server = conf::start(side, Some(&conf::text(nodes, layout)), Setting::one_core(), options)?;
    let mut client = server.client()?;
    let Value::Array(runs) = client.call(&["CLUSTER", "SLOTS"])? else { return Err("no array".into()) };
    let expected = if layout == Layout::Contiguous { nodes } else { 16384 };
    match runs.len() == expected {
        true => Ok(server),
        false => Err(format!("{} shows {} ranges, {expected} expected", side.name(), runs.len())),
    }
}

/// Runs `work`, and returns the time that a call took on average by the server's own count, in microseconds.
fn usec_per_call(
    server: &Server,
    subcommand: &str,
    work: impl FnOnce(&mut Asker) -> Fallible,
) -> Fallible<f64> {
    let mut client = server.client()?;
    let mut asker = Asker::connect(server.port, subcommand)?;
    client.call(&["CONFIG", "RESETSTAT"])?;
    work(&mut asker)?;
    let Value::Bulk(text) = client.call(&["INFO", "commandstats"])? else { return Err("no text".into()) };
    let name = format!("cmdstat_cluster|{}", subcommand.to_lowercase());
    let line = info_field(&text, &name).ok_or_else(|| format!("no {name} in INFO commandstats"))?;
    let us = line.split(',').find_map(|part| part.strip_prefix("usec_per_call=")?.parse().ok());
    us.ok_or_else(|| format!("{name}:{line} has no time"))
}

/// Asks for the same again and again, and does not look at what it gets.
struct Asker {
    stream: TcpStream,
    request: Vec<u8>,
    scanner: Scanner,
    buffer: Vec<u8>,
}

impl Asker {
    fn connect(port: u16, subcommand: &str) -> Fallible<Asker> {
        let stream = TcpStream::connect(("127.0.0.1", port)).map_err(|why| why.to_string())?;
        stream.set_nodelay(true).map_err(|why| why.to_string())?;
        let mut request = Vec::new();
        command(&mut request, [&b"CLUSTER"[..], subcommand.as_bytes()].into_iter());
        Ok(Asker { stream, request, scanner: Scanner::default(), buffer: vec![0; 1 << 18] })
    }

    fn ask(&mut self) -> Fallible {
        self.stream.write_all(&self.request).map_err(|why| why.to_string())?;
        let mut seen = Seen::default();
        while seen.replies == 0 {
            let bytes = self.stream.read(&mut self.buffer).map_err(|why| why.to_string())?;
            if bytes == 0 {
                return Err("the server has closed the connection".to_string());
            }
            self.scanner.scan(&self.buffer[..bytes], &mut seen);
        }
        seen.first_error.map_or(Ok(()), Err)
    }
}
