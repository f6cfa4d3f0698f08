//! MIGRATE during writes of clients, over connections that are cut, and in a cluster: nothing is lost,
//! doubled or stale.

use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use crate::cluster_nodes::cluster;
use crate::common::{Client, PATIENCE, Server, encode, wait_until};
use crate::migrate::{BUSY, NULL, OK, check, migrate};
use crate::swap::{Folder, swap};

// ---- connections that are cut ----

/// A proxy that passes bytes on, late if it is to, and cuts a connection after a number of them.
pub struct Proxy {
    pub port: u16,
    /// Bytes that still pass to the target, and back.
    left: Arc<[AtomicU64; 2]>,
    pub delay_us: Arc<AtomicU64>,
}

impl Proxy {
    fn new(target: u16) -> Proxy {
        let listener = TcpListener::bind(("127.0.0.1", 0)).unwrap();
        let port = listener.local_addr().unwrap().port();
        let left = Arc::new([AtomicU64::new(0), AtomicU64::new(0)]);
        let delay_us = Arc::new(AtomicU64::new(0));
        let (shared, delay) = (Arc::clone(&left), Arc::clone(&delay_us));
        std::thread::spawn(move || {
            for stream in listener.incoming() {
                let from = stream.unwrap();
                let to = TcpStream::connect(("127.0.0.1", target)).unwrap();
                for (way, mut from, mut to) in
                    [(0, from.try_clone().unwrap(), to.try_clone().unwrap()), (1, to, from)]
                {
                    let (left, delay) = (Arc::clone(&shared), Arc::clone(&delay));
                    std::thread::spawn(move || {
                        let mut bytes = [0; 4096];
                        while let Ok(count @ 1..) = from.read(&mut bytes) {
                            std::thread::sleep(Duration::from_micros(delay.load(Ordering::SeqCst)));
                            let may = left[way].load(Ordering::SeqCst).min(count as u64);
                            left[way].fetch_sub(may, Ordering::SeqCst);
                            if to.write_all(&bytes[..may as usize]).is_err() || may < count as u64 {
                                break;
                            }
                        }
                        let _ = from.shutdown(std::net::Shutdown::Both);
                        let _ = to.shutdown(std::net::Shutdown::Both);
                    });
                }
            }
        });
        Proxy { port, left, delay_us }
    }

    /// One that cuts nothing.
    pub fn late(target: u16) -> Proxy {
        let proxy = Proxy::new(target);
        proxy.left.iter().for_each(|left| left.store(1 << 40, Ordering::SeqCst));
        proxy
    }
}

#[test]
fn a_connection_that_is_cut_anywhere_loses_nothing() {
    let (source, target) = (Server::start(&[]), Server::start(&[]));
    let (mut here, mut there) = (source.client(), target.client());
    let proxy = Proxy::new(target.port);
    let value = "v".repeat(40);
    let (mut cut_ways, mut whole) = (0, 0);
    for way in 0..2 {
        // Requests are some 200 bytes, replies 15.
        for bytes in (0..230).step_by(if way == 0 { 7 } else { 1 }).take(if way == 0 { 40 } else { 25 }) {
            here.check("FLUSHALL", OK);
            there.check("FLUSHALL", OK);
            here.check(&format!("MSET a {value}1 b {value}2"), OK);
            for (at, left) in proxy.left.iter().enumerate() {
                left.store(if at == way { bytes } else { 1 << 40 }, Ordering::SeqCst);
            }
            let reply = migrate(&mut here, proxy.port, "'' 0 2000 KEYS a b");
            for (key, number) in [("a", 1), ("b", 2)] {
                let expected = format!("$41\r\n{value}{number}\r\n");
                let (at_source, at_target) =
                    (here.ask(&format!("GET {key}")), there.ask(&format!("GET {key}")));
                assert!(at_source == NULL || at_source == expected, "{way} {bytes}: {at_source}");
                assert!(at_target == NULL || at_target == expected, "{way} {bytes}: {at_target}");
                assert!(at_source != NULL || at_target != NULL, "{way} {bytes}: {key} is lost, {reply}");
                assert!(reply != OK || at_source == NULL, "{way} {bytes}: {key} stays");
            }
            cut_ways += usize::from(reply != OK);
            whole += usize::from(reply == OK);
            assert!(reply == OK || reply.starts_with("-IOERR") || reply == BUSY, "{way} {bytes}: {reply}");
        }
    }
    assert!(cut_ways > 30 && whole > 5, "{cut_ways} {whole}");
}

// ---- during writes ----

/// Adds to a key where it is, and says whether it was there.
const ADD: &str =
    "if redis.call('exists', KEYS[1]) == 1 then return redis.call('incr', KEYS[1]) else return -1 end";

/// Random schedules: writers add to counters wherever these are, some delete and make anew, while MIGRATE
/// moves them.
#[test]
fn nothing_is_lost_doubled_or_stale_beside_writers() {
    const KEYS: usize = 6;
    let (source, target) = (Server::with_workers(2, &[]), Server::with_workers(2, &[]));
    let (mut here, mut there) = (source.client(), target.client());
    let proxy = Proxy::late(target.port);
    for seed in 0..200_u64 {
        proxy.delay_us.store(seed % 4 * 400, Ordering::SeqCst);
        let added: Vec<Mutex<u64>> = (0..KEYS).map(|_| Mutex::new(0)).collect();
        for key in 0..KEYS {
            here.check(&format!("SET k:{key} 0"), OK);
        }
        let is_over = AtomicBool::new(false);
        std::thread::scope(|scope| {
            for writer in 0..2_u64 {
                let (added, is_over, source, target) = (&added, &is_over, &source, &target);
                scope.spawn(move || {
                    let mut clients = [source.client(), target.client()];
                    let mut random = seed * 7919 + writer * 104_729 + 1;
                    while !is_over.load(Ordering::SeqCst) {
                        random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
                        let key = (random >> 33) as usize % KEYS;
                        let name = format!("k:{key}");
                        let mut count = added[key].lock().unwrap();
                        // Where it is: here until it has left.
                        let done = clients.iter_mut().any(|client| {
                            client.send(encode(&["EVAL", ADD, "1", &name]));
                            client.read_reply() != b":-1\r\n"
                        });
                        assert!(done, "seed {seed}: {name} is nowhere");
                        *count += 1;
                        drop(count);
                    }
                });
            }
            let mut random = seed + 1;
            let mut names: Vec<String> = (0..KEYS).map(|key| format!("k:{key}")).collect();
            while !names.is_empty() {
                random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
                let some = names.len().min(1 + (random >> 40) as usize % 3);
                let moved: Vec<String> = names.drain(..some).collect();
                check(&mut here, proxy.port, &format!("'' 0 10000 KEYS {}", moved.join(" ")), OK);
            }
            is_over.store(true, Ordering::SeqCst);
        });
        for (key, count) in added.iter().enumerate() {
            here.check(&format!("EXISTS k:{key}"), ":0\r\n");
            let count = *count.lock().unwrap();
            let text = count.to_string();
            there.check(&format!("GET k:{key}"), &format!("${}\r\n{text}\r\n", text.len()));
        }
        there.check("FLUSHALL", OK);
    }
}

// ---- in a cluster ----

/// Sends a command where its key is, as a client of the cluster does.
pub fn follow(clients: &mut [Client; 2], ports: [u16; 2], first: usize, words: &[&str]) -> String {
    let (mut at, mut asking) = (first, false);
    for _ in 0..1000 {
        if asking {
            clients[at].check("ASKING", OK);
        }
        clients[at].send(encode(words));
        let reply = String::from_utf8_lossy(&clients[at].read_reply()).into_owned();
        let is_ask = reply.starts_with("-ASK ");
        if !is_ask && !reply.starts_with("-MOVED ") {
            assert!(!reply.starts_with('-'), "{words:?}: {reply}");
            return reply;
        }
        let port: u16 = reply.trim_end().rsplit(':').next().unwrap().parse().unwrap();
        at = ports.iter().position(|other| *other == port).expect("one of both");
        asking = is_ask;
    }
    panic!("{words:?} is sent around");
}

/// Moves the keys of a slot to the other node, `at_once` with each MIGRATE.
pub fn empty_slot(mover: &mut Client, port: u16, slot: u16, at_once: usize) {
    loop {
        let names = mover.ask(&format!("CLUSTER GETKEYSINSLOT {slot} {at_once}"));
        let names: Vec<&str> = names.lines().filter(|line| line.starts_with('{')).collect();
        if names.is_empty() {
            return;
        }
        let reply = migrate(mover, port, &format!("'' 0 10000 KEYS {}", names.join(" ")));
        assert!(reply == OK || reply == "+NOKEY\r\n", "{names:?}: {reply}");
    }
}

/// Writers change, delete and make anew the keys of a slot while it goes to the other node, and back.
#[test]
fn a_slot_moves_beside_writers() {
    const KEYS: usize = 5;
    const ROUNDS: u64 = 100;
    let nodes = cluster(2, &[]);
    let ports = [0, 1].map(|node| nodes[node].server.port);
    let mut clients = [0, 1].map(|node| nodes[node].client());
    let ids = [0, 1].map(|node| nodes[node].id.trim().to_string());
    // The value that each key has to hold; nothing if it was deleted.
    let model: Vec<Mutex<Option<u64>>> = (0..KEYS).map(|_| Mutex::new(None)).collect();
    let proxies = ports.map(Proxy::late);
    for round in 0..ROUNDS {
        proxies.iter().for_each(|proxy| proxy.delay_us.store(round % 4 * 400, Ordering::SeqCst));
        let (from, to) = ((round % 2) as usize, 1 - (round % 2) as usize);
        for (key, value) in model.iter().enumerate() {
            *value.lock().unwrap() = Some(1000);
            let name = format!("{{06S}}{key}");
            clients[from].check(&format!("SET {name} 1000"), OK);
        }
        clients[to].check(&format!("CLUSTER SETSLOT 0 IMPORTING {}", ids[from]), OK);
        clients[from].check(&format!("CLUSTER SETSLOT 0 MIGRATING {}", ids[to]), OK);
        let is_over = AtomicBool::new(false);
        std::thread::scope(|scope| {
            for writer in 0..2_u64 {
                let (model, is_over, nodes) = (&model, &is_over, &nodes);
                scope.spawn(move || {
                    let mut clients = [0, 1].map(|node: usize| nodes[node].client());
                    let mut random = round * 7919 + writer * 104_729 + 1;
                    while !is_over.load(Ordering::SeqCst) {
                        random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
                        let key = (random >> 33) as usize % KEYS;
                        let name = format!("{{06S}}{key}");
                        let mut value = model[key].lock().unwrap();
                        match random >> 60 {
                            0..3 => {
                                let gone = follow(&mut clients, ports, from, &["DEL", &name]);
                                assert_eq!(
                                    gone,
                                    format!(":{}\r\n", u8::from(value.is_some())),
                                    "{round} {name}"
                                );
                                *value = None;
                            }
                            3..6 => {
                                let text = (random >> 40).to_string();
                                assert_eq!(follow(&mut clients, ports, from, &["SET", &name, &text]), OK);
                                *value = Some(random >> 40);
                            }
                            _ => {
                                let next = value.unwrap_or(0) + 1;
                                let reply = follow(&mut clients, ports, from, &["INCR", &name]);
                                assert_eq!(reply, format!(":{next}\r\n"), "{round} {name}");
                                *value = Some(next);
                            }
                        }
                    }
                });
            }
            empty_slot(&mut clients[from], proxies[to].port, 0, 2);
            is_over.store(true, Ordering::SeqCst);
        });
        clients[to].check(&format!("CLUSTER SETSLOT 0 NODE {}", ids[to]), OK);
        clients[from].check(&format!("CLUSTER SETSLOT 0 NODE {}", ids[to]), OK);
        clients[from].check("CLUSTER COUNTKEYSINSLOT 0", ":0\r\n");
        for (key, value) in model.iter().enumerate() {
            let reply = clients[to].ask(&format!("GET {{06S}}{key}"));
            let expected = value
                .lock()
                .unwrap()
                .map_or(NULL.to_string(), |value| format!("${}\r\n{value}\r\n", value.to_string().len()));
            assert_eq!(reply, expected, "round {round}, key {key}");
        }
    }
}

/// The target has an older value, and the newer one left memory and cannot be read: the older one is removed
/// there, the key stays here, and so does the process.
#[test]
fn a_value_that_cannot_be_read_stays() {
    let folder = Folder::new("migrate-unreadable");
    let server = folder.start(&["--maxmemory", "100mb"]);
    let (mut client, mut moves) = (server.client(), server.client());
    client.send(encode(&["SET", "k", &"v".repeat(4000)]));
    client.expect(OK);
    let target = TcpListener::bind(("127.0.0.1", 0)).unwrap();
    moves.send(format!("MIGRATE 127.0.0.1 {} k 0 60000\r\n", target.local_addr().unwrap().port()));
    let mut target = target.accept().unwrap().0;
    target.set_read_timeout(Some(PATIENCE)).unwrap();
    let mut request = vec![0; 64 << 10];
    assert!(target.read(&mut request).unwrap() > 0, "the value as it was");
    client.check("APPEND k x", ":4001\r\n");
    client.check("DEBUG SWAP-CHAOS 1", OK);
    wait_until("the value leaves memory", || swap(&mut client, "swap_keys") == 1);
    client.check("DEBUG SWAP-FAULT READ IO", OK);
    target.write_all(b"+OK\r\n+OK\r\n").unwrap();
    let count = target.read(&mut request).unwrap();
    assert!(request[..count].ends_with(b"DEL\r\n$1\r\nk\r\n"), "{}", request[..count].escape_ascii());
    target.write_all(b":1\r\n").unwrap();
    let reply = moves.read_reply();
    assert!(reply.starts_with(b"-"), "{}", reply.escape_ascii());
    client.check("DEBUG SWAP-FAULT READ NONE", OK);
    client.check("DEBUG SWAP-CHAOS 0", OK);
    client.check("STRLEN k", ":4001\r\n");
}
