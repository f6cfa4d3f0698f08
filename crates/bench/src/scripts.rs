//! Scripts: the CPU of a call, and the requests that wait for one that takes long.
//!
//! `slow`: 50 connections GET keys at a fixed rate, first alone, then during a script that has named one
//! other key, then during one that meets keys in its middle; PINGs come with them, and at the end SCRIPT
//! KILL. A request that could not be served in time waits, and its waiting counts (`open_loop`).

use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use isotherm_probe::{Client, command};
use isotherm_resp::reply_parse::Value;
use isotherm_stdx::Prng;

use crate::histogram::Histogram;
use crate::load::{Load, Until, fill};
use crate::open_loop::OpenLoop;
use crate::options::Options;
use crate::process::{SIDES, Server, Setting};
use crate::report::Table;
use crate::shape::{Commands, Order, Shape, Verb};
use crate::speed::{HEAD, cells, cost_of, in_turns};
use crate::{Fallible, progress};

pub const ROWS: [&str; 9] =
    ["get", "get-set", "expire", "return", "eval-get", "fcall-get", "loop", "get-single", "slow"];

const KEYS: u64 = 1_000_000;

struct Row {
    name: &'static str,
    what: &'static str,
    verb: &'static str,
    text: &'static str,
    has_key: bool,
    pipeline: u64,
    calls: u64,
}

const GET: &str = "return redis.call('GET', KEYS[1])";
const FUNCTIONS: &str = "#!lua name=bench\nredis.register_function('get', function(keys, args) return redis.call('GET', keys[1]) end)";

fn rows() -> [Row; 8] {
    let row = |name, what, verb, text, has_key, pipeline, calls| Row {
        name,
        what,
        verb,
        text,
        has_key,
        pipeline,
        calls,
    };
    const M: u64 = 1_000_000;
    let get_set = "redis.call('GET', KEYS[1]) return redis.call('SET', KEYS[1], '0123456789abcdef')";
    let expire = "redis.call('INCR', KEYS[1]) redis.call('PEXPIRE', KEYS[1], 60000) return redis.call('PTTL', KEYS[1])";
    let sum = "local n = 0 for i = 1, 1000000 do n = n + i end return n";
    [
        row("get", "EVALSHA of GET, pipelined 32", "EVALSHA", GET, true, 32, M),
        row("get-set", "EVALSHA of GET + SET, pipelined 32", "EVALSHA", get_set, true, 32, M),
        row("expire", "EVALSHA of INCR + PEXPIRE + PTTL, pipelined 32", "EVALSHA", expire, true, 32, M),
        row("return", "EVALSHA of return 1, pipelined 32", "EVALSHA", "return 1", false, 32, M),
        row("eval-get", "EVAL of GET, pipelined 32", "EVAL", GET, true, 32, M),
        row("fcall-get", "FCALL of GET, pipelined 32", "FCALL", FUNCTIONS, true, 32, M),
        row("loop", "a loop of a million additions", "EVAL", sum, false, 1, 200),
        row("get-single", "EVALSHA of GET, not pipelined", "EVALSHA", GET, true, 1, M / 4),
    ]
}

/// Calls of one script.
struct Calls {
    head: [Vec<u8>; 2],
    has_key: bool,
    keys: u64,
    prng: Prng,
}

impl Commands for Calls {
    fn write(&mut self, out: &mut Vec<u8>) {
        let [verb, script] = &self.head;
        match self.has_key {
            true => {
                let key = format!("key:{:012}", self.prng.below(self.keys));
                command(out, [&verb[..], script, b"1", key.as_bytes()].into_iter());
            }
            false => command(out, [&verb[..], script, b"0"].into_iter()),
        }
    }
}

impl Row {
    fn calls(&self, server: &Server, keys: u64, seed: u64) -> Fallible<Calls> {
        let mut client = server.client()?;
        let script = match self.verb {
            "EVALSHA" => match client.call(&["SCRIPT", "LOAD", self.text])? {
                Value::Bulk(sha) => sha,
                other => return Err(format!("SCRIPT LOAD: {other:?}")),
            },
            "FCALL" => {
                client.call(&["FUNCTION", "LOAD", "REPLACE", self.text])?;
                b"get".to_vec()
            }
            _ => self.text.as_bytes().to_vec(),
        };
        Ok(Calls { head: [self.verb.into(), script], has_key: self.has_key, keys, prng: Prng::new(seed) })
    }
}

pub fn measure(options: &Options) -> Fallible<Vec<Table>> {
    let mut calls = Table::new(
        "scripts",
        format!("CPU of a call of a script, one worker, one core{}", options.scale_note()),
        &HEAD,
    );
    calls.note(format!(
        "50 connections, {KEYS} keys of 16 B with values of 16 B, {} rounds A B. The ratio is Isotherm over Valkey.",
        options.rounds
    ));
    let wanted: Vec<Row> = rows().into_iter().filter(|row| options.wants(row.name)).collect();
    if !wanted.is_empty() {
        let keys = options.scaled(KEYS);
        let [first, second] = SIDES.map(|side| Server::start(side, &Setting::one_core(), options));
        let pair = [first?, second?];
        for row in &wanted {
            for server in &pair {
                fill(
                    server,
                    &mut Shape::new(Verb::Set, keys).values(crate::shape::Values::Number),
                    keys,
                    "preload",
                )?;
            }
            let costs = in_turns(&pair, row.name, options.rounds, |server, round| {
                let mut calls = row.calls(server, keys, round)?;
                let before = server.cpu_ns()?;
                let until = Until::Commands(options.scaled(row.calls).max(10));
                let ran = Load::fifty(server.port, row.pipeline).run(&mut calls, until)?;
                Ok(cost_of(&ran, server.cpu_ns()? - before))
            })?;
            calls.row(cells(row.what, &costs));
        }
    }
    let mut tables = vec![calls];
    if options.wants("slow") {
        tables.push(slow(options)?);
    }
    Ok(tables)
}

// ---- scripts that take long ----

const GETS_PER_SECOND: f64 = 10_000.0;
const CONNECTIONS: usize = 50;
const TIME: Duration = Duration::from_secs(3);

/// Waiting times of other clients during one script.
struct Waits {
    gets: Histogram,
    pings: Histogram,
    killed_ms: f64,
}

fn slow(options: &Options) -> Fallible<Table> {
    let head = [
        "what",
        "workers",
        "GET p99 alone, ms",
        "GET p99, ms",
        "longest GET, ms",
        "longest PING, ms",
        "SCRIPT KILL, ms",
    ];
    let mut table = Table::new("slow-scripts", "Others beside a script of three seconds", &head);
    table.note(format!(
        "{CONNECTIONS} connections GET other keys, {GETS_PER_SECOND} a second at fixed moments; what cannot be served waits, and its waiting counts."
    ));
    for workers in [1, 2] {
        for side in SIDES {
            // Above what Valkey's clients wait, so that each gets its reply.
            let setting = Setting { workers, ..Setting::default() }.with("busy-reply-threshold", 60_000);
            let server = Server::start(side, &setting, options)?;
            let keys = options.scaled(KEYS);
            fill(&server, &mut Shape::new(Verb::Set, keys), keys, "preload")?;
            let gets = OpenLoop { port: server.port, connections: CONNECTIONS, per_second: GETS_PER_SECOND };
            let alone = gets.run_for(&mut Shape::new(Verb::Get, keys).order(Order::Uniform), TIME)?;
            for (what, round) in [
                ("one key, named", "redis.call('GET', KEYS[1])"),
                ("keys that it meets", "redis.call('GET', 'met:' .. n % 100)"),
            ] {
                let body = format!("for n = 1, ARGV[1] do {round} for i = 1, 1000 do end end");
                let waits = beside(&server, &gets, keys, &body)?;
                progress(&format!(
                    "slow {} {workers} workers, {what}: GET p99 {:.2} ms",
                    side.name(),
                    waits.gets.quantile_us(0.99) / 1e3
                ));
                let ms = |us: f64| format!("{:.2}", us / 1e3);
                table.row([
                    format!("{}: {what}", side.name()),
                    workers.to_string(),
                    ms(alone.quantile_us(0.99)),
                    ms(waits.gets.quantile_us(0.99)),
                    ms(waits.gets.longest_us()),
                    ms(waits.pings.longest_us()),
                    format!("{:.2}", waits.killed_ms),
                ]);
            }
        }
    }
    Ok(table)
}

fn beside(server: &Server, gets: &OpenLoop, keys: u64, body: &str) -> Fallible<Waits> {
    const CALIBRATION: f64 = 20_000.0;
    let mut caller = server.client()?;
    let begun = Instant::now();
    caller.call(&["EVAL", body, "1", "own", &CALIBRATION.to_string()])?;
    let rounds = CALIBRATION * TIME.as_secs_f64() / begun.elapsed().as_secs_f64();
    let (port, is_over) = (server.port, AtomicBool::new(false));
    let (gets, pings) = thread::scope(|scope| {
        let mut request = Vec::new();
        let rounds = format!("{rounds:.0}");
        command(&mut request, [&b"EVAL"[..], body.as_bytes(), b"1", b"own", rounds.as_bytes()].into_iter());
        caller.send(&request)?;
        let pings = scope.spawn(|| ping(port, &is_over));
        let begun = Instant::now();
        let gets =
            gets.run(&mut Shape::new(Verb::Get, keys).order(Order::Uniform), || begun.elapsed() >= TIME);
        is_over.store(true, Ordering::Release);
        let pings = pings.join().expect("no panic")?;
        caller.read()?;
        Ok::<_, String>((gets?, pings))
    })?;
    Ok(Waits { gets, pings, killed_ms: kill(server)? })
}

/// Returns the time that SCRIPT KILL takes once the server accepts it, in milliseconds. Valkey accepts it
/// after `busy-reply-threshold`.
fn kill(server: &Server) -> Fallible<f64> {
    let (mut caller, mut client) = (server.client()?, server.client()?);
    client.call(&["CONFIG", "SET", "busy-reply-threshold", "200"])?;
    let mut request = Vec::new();
    command(&mut request, [&b"EVAL"[..], b"while true do end", b"0"].into_iter());
    caller.send(&request)?;
    thread::sleep(Duration::from_millis(400));
    let asked = Instant::now();
    client.call(&["SCRIPT", "KILL"])?;
    let killed_ms = asked.elapsed().as_secs_f64() * 1e3;
    if caller.read().is_ok() {
        return Err("a script without an end has ended".to_string());
    }
    client.call(&["CONFIG", "SET", "busy-reply-threshold", "60000"])?;
    Ok(killed_ms)
}

fn ping(port: u16, is_over: &AtomicBool) -> Fallible<Histogram> {
    let (mut client, mut times) = (Client::connect(port)?, Histogram::default());
    while !is_over.load(Ordering::Acquire) {
        let sent = Instant::now();
        client.call(&["PING"])?;
        times.add(sent.elapsed());
        thread::sleep(Duration::from_millis(5));
    }
    Ok(times)
}
