//! CPU of commands: as a member of a cluster over a lone server, and of requests that are all sent on.

use std::io::{Read, Write};
use std::net::TcpStream;

use isotherm_probe::Client;

use super::conf::{self, Layout};
use crate::durability::{Best, Figures};
use crate::load::{Load, Until, fill};
use crate::options::Options;
use crate::process::{SIDES, Server, Setting};
use crate::report::Table;
use crate::shape::{Commands, Order, Shape, Verb};
use crate::{Fallible, progress};

const KEYS: u64 = 1_000_000;
const PIPELINE: u64 = 32;

pub fn plain(options: &Options, table: &mut Table) -> Fallible {
    let keys = options.scaled(KEYS);
    let mut servers = Vec::new();
    for side in SIDES {
        let plain = Server::start(side, &Setting::one_core(), options)?;
        let member = conf::start(side, None, Setting::one_core(), options)?;
        member.own_all_slots()?;
        for server in [&plain, &member] {
            fill(server, &mut Shape::new(Verb::Set, keys), keys, "keys")?;
        }
        servers.push((side, plain, member));
    }
    for (verb, name) in [(Verb::Get, "GET"), (Verb::Set, "SET")] {
        for (pipeline, how, commands) in [(PIPELINE, "pipelined 32", 4_000_000), (1, "alone", 400_000)] {
            let mut figures = Figures::default();
            for round in 1..=options.rounds {
                for (side, plain, member) in &servers {
                    let cost = |server| {
                        let mut shape = Shape::new(verb, keys).order(Order::Uniform).seed(round as u64);
                        cpu_us(server, &mut shape, pipeline, options.scaled(commands))
                    };
                    // Their order changes, so that what one leaves in the caches falls on both.
                    let (plain_us, member_us) = match round % 2 {
                        0 => (cost(plain)?, cost(member)?),
                        _ => {
                            let member_us = cost(member)?;
                            (cost(plain)?, member_us)
                        }
                    };
                    progress(&format!(
                        "plain {name} {how} round {round} {}: {plain_us:.3} us alone, {member_us:.3} us in a cluster",
                        side.name()
                    ));
                    figures.add(*side, member_us / plain_us);
                }
            }
            let what = format!("CPU of {name}, {how}: member of a cluster over lone server");
            figures.row(table, &what, Best::Median, |figure| format!("{figure:.3} x"), "<= 1.02 x");
        }
    }
    Ok(())
}

fn cpu_us(server: &Server, shape: &mut dyn Commands, pipeline: u64, commands: u64) -> Fallible<f64> {
    let before_ns = server.cpu_ns()?;
    let ran = Load::fifty(server.port, pipeline).run(shape, Until::Commands(commands))?;
    Ok((server.cpu_ns()? - before_ns) as f64 / 1e3 / ran.commands as f64)
}

/// GETs of keys whose slots are another node's.
pub fn moved(options: &Options, table: &mut Table) -> Fallible {
    let mut servers = Vec::new();
    for side in SIDES {
        let server =
            conf::start(side, Some(&conf::text(2, Layout::Contiguous)), Setting::one_core(), options)?;
        server.wait_until_cluster_is_ok()?;
        let keys = keys_elsewhere(&mut server.client()?)?;
        servers.push((server, Batches::new(&keys)));
    }
    let batches = options.scaled(60_000);
    let (mut figures, mut best) = (Figures::default(), Figures::default());
    for round in 1..=options.rounds {
        for (server, requests) in &servers {
            let before_ns = server.cpu_ns()?;
            requests.send(server.port, batches)?;
            let us = (server.cpu_ns()? - before_ns) as f64 / 1e3 / (batches * PIPELINE) as f64;
            progress(&format!("moved round {round} {}: {us:.3} us", server.side.name()));
            figures.add(server.side, us);
            best.add(server.side, us);
        }
    }
    let show = |us: f64| format!("{us:.3} us");
    figures.row(table, "CPU of a request that is answered MOVED, pipelined 32", Best::Median, show, "<= 0.7");
    best.row(table, "the best round", Best::Least, show, "-");
    Ok(())
}

/// Keys in whose stead the server sends MOVED.
fn keys_elsewhere(client: &mut Client) -> Fallible<Vec<String>> {
    let mut keys = Vec::new();
    for number in 0..10_000 {
        let key = format!("key:{number:012}");
        if client.call(&["GET", &key]).is_err_and(|why| why.contains("MOVED")) {
            keys.push(key);
        }
    }
    if keys.len() < 1000 { Err(format!("only {} keys are another node's", keys.len())) } else { Ok(keys) }
}

/// 32 requests each.
struct Batches(Vec<Vec<u8>>);

impl Batches {
    fn new(keys: &[String]) -> Batches {
        let batch = |keys: &[String]| {
            let mut out = Vec::new();
            for key in keys {
                isotherm_probe::command(&mut out, [&b"GET"[..], key.as_bytes()].into_iter());
            }
            out
        };
        Batches(keys.chunks_exact(PIPELINE as usize).map(batch).collect())
    }

    /// Sends requests over fifty connections. Each waits for its replies, as in `Load`, but a MOVED would be
    /// a failure there.
    fn send(&self, port: u16, count: u64) -> Fallible {
        const CONNECTIONS: usize = 50;
        let failed = |why: std::io::Error| format!("load on port {port}: {why}");
        let mut streams = Vec::new();
        for _ in 0..CONNECTIONS {
            let stream = TcpStream::connect(("127.0.0.1", port)).map_err(failed)?;
            stream.set_nodelay(true).map_err(failed)?;
            streams.push(stream);
        }
        let mut buffer = vec![0; 1 << 16];
        let mut requests = self.0.iter().cycle();
        for _ in 0..count / CONNECTIONS as u64 {
            for stream in &mut streams {
                stream.write_all(requests.next().expect("an endless row")).map_err(failed)?;
            }
            for stream in &mut streams {
                let mut lines = 0;
                while lines < PIPELINE as usize {
                    let bytes = stream.read(&mut buffer).map_err(failed)?;
                    lines += buffer[..bytes].iter().filter(|byte| **byte == b'\n').count();
                    if bytes == 0 {
                        return Err("the server has closed a connection".to_string());
                    }
                }
            }
        }
        Ok(())
    }
}
