//! Times of GETs of other clients while the cluster changes: with a thousand clients that fetch CLUSTER SLOTS
//! at each move, and with a disk that takes 200 ms to replace nodes.conf.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::{Duration, Instant};

use isotherm_probe::{Client, command};
use isotherm_resp::reply_parse::Value;

use super::conf::{self, Layout};
use crate::durability::{Best, Disk, Figures, ratio};
use crate::histogram::Histogram;
use crate::options::Options;
use crate::process::{SIDES, Server, Setting, allow_open_files};
use crate::reply::{Scanner, Seen};
use crate::report::Table;
use crate::{Fallible, progress};

const NODES: usize = 100;
const CLIENTS: u64 = 1000;
const MOVES_PER_SECOND: u32 = 10;
const GETS_PER_SECOND: u32 = 500;
const WINDOW_S: u64 = 10;
const REPLACE_US: u32 = 200_000;
/// A move is answered when it is saved; the next one does not wait for that.
const MOVERS: u32 = 16;

/// All clients fetch the slots anew at each move, as those do that were sent MOVED.
pub fn herd(options: &Options, table: &mut Table) -> Fallible {
    allow_open_files(4096)?;
    let what = format!(
        "{} clients fetch SLOTS at each of 10 moves a second: p99 of others' GET over quiet",
        options.scaled(CLIENTS)
    );
    let setting = Setting::one_core();
    beside_moves(options, table, &setting, options.scaled(CLIENTS), &what, "<= 1.2 x")
}

pub fn slow_files(options: &Options, table: &mut Table) -> Fallible {
    let setting = Disk::slow(options, REPLACE_US)?.under(Setting::one_core());
    let what = "a file takes 200 ms to write, 10 slots move a second: p99 of GET over quiet";
    beside_moves(options, table, &setting, 0, what, "<= 1.1 x")
}

fn beside_moves(
    options: &Options,
    table: &mut Table,
    setting: &Setting,
    clients: u64,
    what: &str,
    aim: &str,
) -> Fallible {
    let mut figures = Figures::default();
    for round in 1..=options.rounds {
        for side in SIDES {
            let text = conf::text(NODES, Layout::Contiguous);
            let server = conf::start(side, Some(&text), setting.clone(), options)?;
            server.wait_until_cluster_is_ok()?;
            let key = own_key(&mut server.client()?)?;
            let window = Duration::from_secs(options.scaled(WINDOW_S).max(3));
            gets(&server, &key, window / 4)?;
            let quiet_us = gets(&server, &key, window)?.quantile_us(0.99);
            let is_over = AtomicBool::new(false);
            let (moving, moves) = std::thread::scope(|scope| {
                let mover = scope.spawn(|| move_and_fetch(&server, clients, &is_over));
                let moving = gets(&server, &key, window);
                is_over.store(true, Relaxed);
                (moving, mover.join().expect("the mover returns what fails"))
            });
            let (moving_us, moves) = (moving?.quantile_us(0.99), moves?);
            progress(&format!(
                "beside moves round {round} {}: p99 {quiet_us:.0} us quiet, {moving_us:.0} us beside {moves} moves",
                side.name()
            ));
            figures.add(side, moving_us / quiet_us);
        }
    }
    figures.row(table, what, Best::Median, ratio, aim);
    Ok(())
}

/// A key in the slots of the first node, which is the server.
fn own_key(client: &mut Client) -> Fallible<String> {
    for number in 0..100_000 {
        let key = format!("key:{number}");
        if let Value::Integer(slot) = client.call(&["CLUSTER", "KEYSLOT", &key])?
            && (slot as usize) < conf::SLOTS / NODES
        {
            client.call(&["SET", &key, "value"])?;
            return Ok(key);
        }
    }
    Err("no key is the server's own".to_string())
}

/// Sends GETs at fixed times, whether or not the last one was answered: the time of a GET counts from when it
/// was due. A server that has fallen behind by two windows has shown what it does; those that were due and
/// never sent are not counted.
fn gets(server: &Server, key: &str, window: Duration) -> Fallible<Histogram> {
    let mut client = server.client()?;
    let mut times = Histogram::default();
    let start = Instant::now();
    for at in 0.. {
        let due = Duration::from_secs(1) / GETS_PER_SECOND * at;
        if due > window || start.elapsed() > window * 3 {
            break;
        }
        std::thread::sleep(due.saturating_sub(start.elapsed()));
        let sent =
            if start.elapsed() > due + Duration::from_millis(1) { start + due } else { Instant::now() };
        client.call(&["GET", key])?;
        times.add(sent.elapsed());
    }
    Ok(times)
}

/// Moves slots while clients fetch the topology. Returns how many slots were moved.
fn move_and_fetch(server: &Server, clients: u64, is_over: &AtomicBool) -> Fallible<u32> {
    let mut movers = (0..MOVERS).map(|_| server.client()).collect::<Fallible<Vec<_>>>()?;
    let mut herd = Herd::connect(server.port, clients)?;
    let (start, mut moves) = (Instant::now(), 0);
    while !is_over.load(Relaxed) {
        // A slot at a time goes from one node that is not there to the next.
        let from = 1 + moves as usize % (NODES - 2);
        let slot = (from + 1) * conf::SLOTS / NODES - 1 - moves as usize / (NODES - 2);
        let mut request = Vec::new();
        let (slot, to) = (slot.to_string(), conf::id(from + 1));
        let words = ["CLUSTER", "SETSLOT", &slot, "NODE", &to].map(str::as_bytes);
        command(&mut request, words.into_iter());
        let mover = &mut movers[(moves % MOVERS) as usize];
        if moves >= MOVERS {
            mover.read()?;
        }
        mover.send(&request)?;
        moves += 1;
        herd.ask()?;
        let due = start + Duration::from_secs(1) / MOVES_PER_SECOND * moves;
        while Instant::now() < due {
            herd.read()?;
            std::thread::sleep(Duration::from_millis(2).min(due.saturating_duration_since(Instant::now())));
        }
    }
    Ok(moves)
}

/// Clients. Each asks again when it has its reply.
struct Herd {
    clients: Vec<(TcpStream, Scanner, bool)>,
    buffer: Vec<u8>,
}

impl Herd {
    fn connect(port: u16, clients: u64) -> Fallible<Herd> {
        let connect = |_| {
            let stream = TcpStream::connect(("127.0.0.1", port))?;
            stream.set_nonblocking(true)?;
            Ok((stream, Scanner::default(), false))
        };
        let clients: std::io::Result<_> = (0..clients).map(connect).collect();
        let clients = clients.map_err(|why| format!("a client of the herd: {why}"))?;
        Ok(Herd { clients, buffer: vec![0; 1 << 16] })
    }

    fn ask(&mut self) -> Fallible {
        for (stream, _, waits) in self.clients.iter_mut().filter(|(.., waits)| !waits) {
            stream.write_all(b"CLUSTER SLOTS\r\n").map_err(|why| format!("a client of the herd: {why}"))?;
            *waits = true;
        }
        Ok(())
    }

    fn read(&mut self) -> Fallible {
        for (stream, scanner, waits) in self.clients.iter_mut().filter(|(.., waits)| *waits) {
            let mut seen = Seen::default();
            match stream.read(&mut self.buffer) {
                Ok(0) => return Err("the server has closed a connection".to_string()),
                Ok(bytes) => scanner.scan(&self.buffer[..bytes], &mut seen),
                Err(why) if why.kind() == std::io::ErrorKind::WouldBlock => {}
                Err(why) => return Err(format!("a client of the herd: {why}")),
            }
            *waits = seen.replies == 0;
        }
        Ok(())
    }
}
