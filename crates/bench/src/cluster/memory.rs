//! Memory of an empty member of a cluster: with all slots over a lone server; of each node that it knows; and
//! while many clients have asked for a large reply and read it slowly.

use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::time::{Duration, Instant};

use isotherm_cluster::wire::{self, Body, Header, Message, PingKind};
use isotherm_cluster::{Flags, NodeId, Slot, SlotSet};
use isotherm_resp::reply_parse::Value;

use super::conf::{self, Layout};
use crate::durability::{Best, Figures};
use crate::options::Options;
use crate::process::{SIDES, Server, Setting, allow_open_files};
use crate::report::Table;
use crate::{Fallible, progress};

const NODES: usize = 1000;

pub fn measure(options: &Options, table: &mut Table) -> Fallible {
    let (mut empty, mut node) = (Figures::default(), Figures::default());
    for round in 1..=options.rounds {
        for side in SIDES {
            let setting = || Setting { workers: 1, ..Setting::default() };
            let used = |server: &Server| -> Fallible<f64> {
                // Everything of the start has been made; connections that were tried are over or stand.
                std::thread::sleep(Duration::from_millis(1500));
                Ok(server.client()?.used_memory_bytes()? as f64)
            };
            let plain = used(&Server::start(side, &setting(), options)?)?;
            let member = conf::start(side, None, setting(), options)?;
            member.own_all_slots()?;
            let one = used(&member)?;
            drop(member);
            let many =
                used(&conf::start(side, Some(&conf::text(NODES, Layout::Contiguous)), setting(), options)?)?;
            let (more_mb, node_kb) = ((one - plain) / 1e6, (many - one) / 1e3 / (NODES - 1) as f64);
            progress(&format!(
                "memory round {round} {}: {more_mb:.2} MB, {node_kb:.2} KB a node",
                side.name()
            ));
            empty.add(side, more_mb);
            node.add(side, node_kb);
        }
    }
    let mb = |figure: f64| format!("{figure:.2} MB");
    let kb = |figure: f64| format!("{figure:.2} KB");
    empty.row(
        table,
        "empty, with all slots: used_memory over a lone server's",
        Best::Median,
        mb,
        "<= 0.6 MB",
    );
    node.row(table, "each known node, without links", Best::Median, kb, "<= 2 KB");
    Ok(())
}

/// Measures the memory of a known node whose links exist: the server has connected to each node, and each
/// node to the server.
pub fn linked(options: &Options, table: &mut Table) -> Fallible {
    const LINKED: usize = 200;
    const CLIENT_PORT: u16 = 7000;
    allow_open_files(4096)?;
    let mut figures = Figures::default();
    for round in 1..=options.rounds {
        for side in SIDES {
            let failed = |why: std::io::Error| format!("a node that is played: {why}");
            let listener = TcpListener::bind(("127.0.0.1", 0)).map_err(failed)?;
            let bus_port = listener.local_addr().map_err(failed)?.port();
            let address = |_| format!("127.0.0.1:{CLIENT_PORT}@{bus_port}");
            let used = |nodes: usize| -> Fallible<f64> {
                let setting = Setting { workers: 1, ..Setting::default() };
                let conf = conf::text_at(nodes, Layout::Contiguous, address);
                let server = conf::start(side, Some(&conf), setting, options)?;
                let mut links = Vec::new();
                for node in 1..nodes {
                    links.push(listener.accept().map_err(failed)?.0);
                    let server_bus = server.port + 10_000;
                    let mut stream = TcpStream::connect(("127.0.0.1", server_bus)).map_err(failed)?;
                    stream.write_all(&ping_of(node, nodes, (CLIENT_PORT, bus_port))).map_err(failed)?;
                    links.push(stream);
                }
                std::thread::sleep(Duration::from_secs(3));
                let Value::Array(seen) = server.client()?.call(&["CLUSTER", "LINKS"])? else {
                    return Err("CLUSTER LINKS is no array".into());
                };
                match seen.len() == links.len() {
                    true => Ok(server.client()?.used_memory_bytes()? as f64),
                    false => Err(format!("{} has {} of {} links", side.name(), seen.len(), links.len())),
                }
            };
            let node_kb = (used(LINKED)? - used(1)?) / 1e3 / (LINKED - 1) as f64;
            progress(&format!("linked round {round} {}: {node_kb:.2} KB a node", side.name()));
            figures.add(side, node_kb);
        }
    }
    figures.row(
        table,
        "each known node with its two links",
        Best::Median,
        |kb| format!("{kb:.2} KB"),
        "<= 2 KB",
    );
    Ok(())
}

/// Builds the PING of a simulated node. It claims nothing that the server does not know already.
fn ping_of(node: usize, nodes: usize, (port, bus_port): (u16, u16)) -> Vec<u8> {
    let mut slots = SlotSet::new();
    for slot in node * conf::SLOTS / nodes..(node + 1) * conf::SLOTS / nodes {
        slots.insert(Slot::new(slot as u16));
    }
    let header = Header {
        sender: NodeId::parse(conf::id(node).as_bytes()).expect("an id has 40 digits"),
        primary: None,
        current_epoch: nodes as u64,
        config_epoch: node as u64,
        offset: 0,
        slots: Box::new(slots),
        ip: String::new(),
        port,
        other_port: 0,
        bus_port,
        flags: Flags::PRIMARY,
        is_ok: true,
        is_paused: false,
        forces_vote: false,
    };
    let body = Body::Ping { kind: PingKind::Ping, gossip: Vec::new(), extensions: None };
    let mut bytes = Vec::new();
    wire::encode(&Message { header: Some(Box::new(header)), body }, &mut bytes);
    bytes
}

/// Clients ask for CLUSTER SLOTS at once, and read 1 MB a second each. With the usual buffers of sockets the
/// kernel takes nearly all of it, so the row also says for how many clients a server kept anything itself.
pub fn slow_readers(options: &Options, table: &mut Table) -> Fallible {
    const CLIENTS: u64 = 1000;
    const READ_BYTES: usize = 100 << 10;
    allow_open_files(4096)?;
    let (mut figures, mut kept) = (Figures::default(), Figures::default());
    for round in 1..=options.rounds {
        for side in SIDES {
            let conf = conf::text(100, Layout::Scattered);
            let server = conf::start(side, Some(&conf), Setting::one_core(), options)?;
            server.client()?.call(&["CLUSTER", "SLOTS"])?;
            let before = server.resident_bytes()?;
            let failed = |why: std::io::Error| format!("a slow client: {why}");
            let mut streams = Vec::new();
            for _ in 0..options.scaled(CLIENTS) {
                let mut stream = TcpStream::connect(("127.0.0.1", server.port)).map_err(failed)?;
                stream.write_all(b"CLUSTER SLOTS\r\n").map_err(failed)?;
                stream.set_nonblocking(true).map_err(failed)?;
                streams.push(stream);
            }
            let (mut most, mut buffer) = (before, vec![0; READ_BYTES]);
            let waiting = server.client()?.call(&["CLIENT", "LIST"])?;
            let Value::Bulk(list) = waiting else { return Err("CLIENT LIST is no text".into()) };
            let list = String::from_utf8_lossy(&list).into_owned();
            kept.add(side, list.lines().filter(|line| !line.contains(" oll=0 ")).count() as f64);
            let start = Instant::now();
            while start.elapsed() < Duration::from_secs(2) {
                let turn = Instant::now();
                most = most.max(server.resident_bytes()?);
                for stream in &mut streams {
                    // Bytes that have not come yet are read in the next turn.
                    let _ = stream.read(&mut buffer);
                }
                std::thread::sleep(Duration::from_millis(100).saturating_sub(turn.elapsed()));
            }
            let grown_mb = (most - before) as f64 / 1e6;
            progress(&format!("slow-readers round {round} {}: {grown_mb:.1} MB", side.name()));
            figures.add(side, grown_mb);
        }
    }
    let what = format!("{} clients ask for 1.5 MB and read 1 MB/s: RSS grows by", options.scaled(CLIENTS));
    figures.row(table, &what, Best::Median, |figure| format!("{figure:.1} MB"), "<= 64 MB");
    kept.row(
        table,
        "of them, for whom the server keeps a part",
        Best::Median,
        |count| format!("{count:.0}"),
        "-",
    );
    Ok(())
}
