//! CPU per operation: one worker on one core, the load on another, both servers in turns.
//!
//! The cost of a request for the server is its threads' CPU time over the requests answered. Requests per
//! second would also measure the load generator, the network stack's mood and other users of the machine.
//! Each round measures both servers (A B A B); the table shows the best of each, and the median of the
//! rounds' ratios.

use crate::load::{Load, Ran, Until, fill};
use crate::options::Options;
use crate::process::{SIDES, Server, Setting};
use crate::report::Table;
use crate::shape::{Order, Shape, Values, Verb};
use crate::{Fallible, progress};

pub struct Row {
    pub name: &'static str,
    what: &'static str,
    /// Keys that are there before a round.
    preloaded: u64,
    pipeline: u64,
    commands: u64,
    work: Work,
}

#[derive(Clone, Copy, PartialEq)]
enum Work {
    /// The keys stay as they are, so one preload serves all rounds.
    Steady(Verb),
    /// Values change their size; each round begins with 16 B values again.
    Resizing(Verb),
    /// Writing new keys: from an empty server to `commands` keys.
    NewKeys,
    /// Deletes all keys, which each round loads first.
    DeleteAll,
}

pub fn rows() -> Vec<Row> {
    use Verb::{Append, Get, Incr, Mset, Set};
    use Work::{DeleteAll, NewKeys, Resizing, Steady};
    const M: u64 = 1_000_000;
    const NEW: u64 = 6_320_000;
    let row = |name, what, preloaded, pipeline, commands, work| Row {
        name,
        what,
        preloaded,
        pipeline,
        commands,
        work,
    };
    vec![
        row("get-1m", "GET, 1 M keys, pipelined 32", M, 32, 4 * M, Steady(Get)),
        row("set-1m", "SET of existing keys, 1 M keys, pipelined 32", M, 32, 4 * M, Steady(Set)),
        row("get-10m", "GET, 10 M keys, pipelined 32", 10 * M, 32, 4 * M, Steady(Get)),
        row("set-10m", "SET of existing keys, 10 M keys, pipelined 32", 10 * M, 32, 4 * M, Steady(Set)),
        row("get-single", "GET, 1 M keys, not pipelined", M, 1, M / 2, Steady(Get)),
        row("set-single", "SET of existing keys, 1 M keys, not pipelined", M, 1, M / 2, Steady(Set)),
        row("new", "SET of new keys, 0 to 6.32 M, pipelined 32", 0, 32, NEW, NewKeys),
        row("del", "DEL of all 6.32 M, pipelined 32", NEW, 32, NEW, DeleteAll),
        row(
            "resize",
            "SET of existing keys to 8..128 B, 1 M keys, pipelined 32",
            M,
            32,
            4 * M,
            Resizing(Set),
        ),
        row("incr", "INCR, 1 M keys, pipelined 32", M, 32, 4 * M, Steady(Incr)),
        row("append", "APPEND of 8 B, 1 M keys, pipelined 32", M, 32, 2 * M, Resizing(Append)),
        row("mset", "MSET of 10, 1 M keys, pipelined 32", M, 32, M / 2, Steady(Mset(10))),
    ]
}

/// Cost of one round on one server.
pub struct Cost {
    pub cpu_us: f64,
    per_second: f64,
    /// Part of the time in which the server's core was busy. Far below 1, requests per second measure the
    /// load generator.
    busy: f64,
}

pub const HEAD: [&str; 8] = [
    "what",
    "Valkey CPU us/op",
    "Isotherm CPU us/op",
    "best / best",
    "median ratio",
    "Valkey k/s",
    "Isotherm k/s",
    "core busy, V / I",
];

pub fn measure(options: &Options) -> Fallible<Vec<Table>> {
    let mut table = Table::new(
        "speed",
        format!("CPU per operation, one worker, one core{}", options.scale_note()),
        &HEAD,
    );
    table.note(format!(
        "50 connections, 16 B keys and values, {} rounds A B. The ratio is Isotherm over Valkey: below 1, Isotherm needs less.",
        options.rounds
    ));
    let mut loaded: Option<(Pair, Preload)> = None;
    for row in rows().iter().filter(|row| options.wants(row.name)) {
        let preload = preload_of(row, options);
        // Rows that leave the keys as they were share one pair of servers.
        let reusable = loaded.take().filter(|(_, there)| *there == preload);
        let pair = match reusable {
            Some((pair, _)) => pair,
            None => Pair::start(options, &preload)?,
        };
        table.row(measure_row(row, &pair, options)?);
        if matches!(row.work, Work::Steady(verb) if verb != Verb::Incr) {
            loaded = Some((pair, preload));
        }
    }
    Ok(vec![table])
}

/// Data that a pair of servers holds before the rounds of a row.
#[derive(PartialEq)]
struct Preload {
    keys: u64,
    numbers: bool,
}

fn preload_of(row: &Row, options: &Options) -> Preload {
    match row.work {
        // These load anew in each round.
        Work::NewKeys | Work::DeleteAll | Work::Resizing(_) => Preload { keys: 0, numbers: false },
        Work::Steady(verb) => Preload { keys: options.scaled(row.preloaded), numbers: verb == Verb::Incr },
    }
}

/// Both servers, Valkey first.
struct Pair([Server; 2]);

impl Pair {
    fn start(options: &Options, preload: &Preload) -> Fallible<Pair> {
        let [first, second] = SIDES.map(|side| Server::start(side, &Setting::one_core(), options));
        let pair = Pair([first?, second?]);
        if preload.keys > 0 {
            let values = if preload.numbers { Values::Number } else { Values::Fixed(16) };
            for server in &pair.0 {
                let mut shape = Shape::new(Verb::Set, preload.keys).values(values);
                fill(server, &mut shape, preload.keys, "preload")?;
            }
        }
        Ok(pair)
    }
}

fn measure_row(row: &Row, pair: &Pair, options: &Options) -> Fallible<[String; 8]> {
    let costs =
        in_turns(&pair.0, row.name, options.rounds, |server, round| run_once(row, server, round, options))?;
    Ok(cells(row.what, &costs))
}

/// The costs of both servers, round by round: A B A B.
pub fn in_turns(
    servers: &[Server; 2],
    name: &str,
    rounds: usize,
    mut run: impl FnMut(&Server, u64) -> Fallible<Cost>,
) -> Fallible<[Vec<Cost>; 2]> {
    let mut costs: [Vec<Cost>; 2] = [Vec::new(), Vec::new()];
    for round in 1..=rounds {
        for (server, costs) in servers.iter().zip(&mut costs) {
            let cost = run(server, round as u64)?;
            progress(&format!(
                "{name} round {round} {}: {:.3} us CPU, {:.0} k/s, core {:.0} % busy",
                server.side.name(),
                cost.cpu_us,
                cost.per_second / 1e3,
                cost.busy * 100.0
            ));
            costs.push(cost);
        }
    }
    Ok(costs)
}

/// A row of the table.
pub fn cells(what: &str, costs: &[Vec<Cost>; 2]) -> [String; 8] {
    let [valkey, isotherm] = costs;
    let mut ratios: Vec<f64> =
        isotherm.iter().zip(valkey).map(|(ours, theirs)| ours.cpu_us / theirs.cpu_us).collect();
    ratios.sort_by(f64::total_cmp);
    let (best_valkey, best_isotherm) = (best(valkey), best(isotherm));
    [
        what.to_string(),
        format!("{:.3}", best_valkey.cpu_us),
        format!("{:.3}", best_isotherm.cpu_us),
        format!("{:.2}", best_isotherm.cpu_us / best_valkey.cpu_us),
        format!("{:.2}", ratios[ratios.len() / 2]),
        format!("{:.0}", best_valkey.per_second / 1e3),
        format!("{:.0}", best_isotherm.per_second / 1e3),
        format!("{:.0} % / {:.0} %", best_valkey.busy * 100.0, best_isotherm.busy * 100.0),
    ]
}

pub fn best(costs: &[Cost]) -> &Cost {
    costs.iter().min_by(|a, b| a.cpu_us.total_cmp(&b.cpu_us)).expect("at least one round")
}

fn run_once(row: &Row, server: &Server, round: u64, options: &Options) -> Fallible<Cost> {
    let (keys, commands) = (options.scaled(row.preloaded), options.scaled(row.commands));
    let uniform = |verb| Shape::new(verb, keys).order(Order::Uniform).seed(round);
    let mut shape = match row.work {
        Work::Steady(verb) => uniform(verb),
        Work::Resizing(verb) => {
            start_anew(server, keys)?;
            let values = if verb == Verb::Append { Values::Fixed(8) } else { Values::Between(8, 128) };
            uniform(verb).values(values)
        }
        Work::NewKeys => {
            start_anew(server, 0)?;
            Shape::new(Verb::Set, commands)
        }
        Work::DeleteAll => {
            start_anew(server, keys)?;
            Shape::new(Verb::Del, keys).order(Order::Shuffled)
        }
    };
    let before = server.cpu_ns()?;
    let ran = Load::fifty(server.port, row.pipeline).run(&mut shape, Until::Commands(commands))?;
    let cost = cost_of(&ran, server.cpu_ns()? - before);
    check_outcome(row, server, &ran, keys, commands)?;
    Ok(cost)
}

pub fn cost_of(ran: &Ran, cpu_ns: u64) -> Cost {
    Cost {
        cpu_us: cpu_ns as f64 / 1e3 / ran.commands as f64,
        per_second: ran.per_second(),
        busy: cpu_ns as f64 / 1e9 / ran.passed.as_secs_f64(),
    }
}

fn start_anew(server: &Server, keys: u64) -> Fallible {
    server.client()?.call(&["FLUSHALL", "SYNC"])?;
    if keys > 0 {
        fill(server, &mut Shape::new(Verb::Set, keys), keys, "preload")?;
    }
    Ok(())
}

/// A server that answers fast but does not do the work would win otherwise.
fn check_outcome(row: &Row, server: &Server, ran: &Ran, keys: u64, commands: u64) -> Fallible {
    let there = server.client()?.dbsize()?;
    let expected = match row.work {
        Work::NewKeys => commands,
        Work::DeleteAll => 0,
        Work::Steady(_) | Work::Resizing(_) => keys,
    };
    if there != expected {
        return Err(format!("{}: {} keys on {}, {expected} expected", row.name, there, server.side.name()));
    }
    if row.work == Work::Steady(Verb::Get) && ran.nulls > 0 {
        return Err(format!("{}: {} reads found nothing on {}", row.name, ran.nulls, server.side.name()));
    }
    Ok(())
}
