//! Large values: what is read becomes the value, and a reply shares it, so neither costs its bytes a second
//! time.

use crate::common::{Client, Server, encode, wait_until};

const MIB: usize = 1 << 20;
/// A value that is read to where it stays.
const LARGE_BYTES: usize = 3 * MIB;

/// Bytes that show where they stand: they repeat after a number of bytes that no power of two divides.
fn value(seed: u8, len: usize) -> Vec<u8> {
    const PERIOD: usize = 65_521;
    let period: Vec<u8> = (0..PERIOD).map(|at| (at * 31 / 7) as u8 ^ seed).collect();
    let mut bytes = period.repeat(len.div_ceil(PERIOD));
    bytes.truncate(len);
    bytes
}

fn status_bytes(server: &Server, field: &str) -> u64 {
    let text = std::fs::read_to_string(format!("/proc/{}/status", server.pid())).unwrap();
    let line = text.lines().find_map(|line| line.strip_prefix(field)).expect("it is in every status");
    line.split_whitespace().next().unwrap().parse::<u64>().unwrap() * 1024
}

fn bulk(bytes: &[u8]) -> Vec<u8> {
    [format!("${}\r\n", bytes.len()).as_bytes(), bytes, b"\r\n"].concat()
}

fn set(value: &[u8]) -> Vec<u8> {
    encode(&[&b"SET"[..], b"k", value])
}

#[track_caller]
fn check_bytes(client: &mut Client, request: &[&[u8]], expected: &[u8]) {
    client.send(encode(request));
    let got = client.read_reply();
    let name = String::from_utf8_lossy(request[0]);
    assert!(got == bulk(expected), "{name}: {} bytes instead of {}", got.len(), expected.len());
}

#[track_caller]
fn check_large(client: &mut Client, words: &[&[u8]], reply: &str) {
    client.send(encode(words));
    client.expect(reply);
}

/// SET and GET of a value take its bytes once; SET again twice, where the old one is there until the new one
/// is.
#[test]
fn a_large_value_is_in_memory_once() {
    const BYTES: usize = 64 * MIB;
    let server = Server::start(&["--save", ""]);
    let mut client = server.client();
    client.check("SET small 1", "+OK\r\n");
    let before = status_bytes(&server, "VmHWM:");
    let large = value(0, BYTES);
    check_large(&mut client, &[b"SET", b"k", &large], "+OK\r\n");
    let peak = client.info("memory", "used_memory_peak");
    assert!(peak < (BYTES * 11 / 10 + 8 * MIB) as u64, "used_memory_peak is {peak}");
    check_bytes(&mut client, &[b"GET", b"k"], &large);
    check_bytes(&mut client, &[b"GETRANGE", b"k", b"1", b"-1"], &large[1..]);
    let grown = status_bytes(&server, "VmHWM:") - before;
    assert!(grown < (BYTES * 11 / 10 + 8 * MIB) as u64, "{grown} bytes for a value of {BYTES}");
    check_large(&mut client, &[b"SET", b"k", &large, b"EX", b"1000"], "+OK\r\n");
    let grown = status_bytes(&server, "VmHWM:") - before;
    assert!(grown < (2 * BYTES * 11 / 10 + 8 * MIB) as u64, "{grown} bytes for two values of {BYTES}");
    // A change is made where the value lies.
    check_large(&mut client, &[b"SETRANGE", b"k", b"5", b"x"], &format!(":{BYTES}\r\n"));
    let grown = status_bytes(&server, "VmHWM:") - before;
    assert!(grown < (2 * BYTES * 11 / 10 + 8 * MIB) as u64, "{grown} bytes for a change of {BYTES}");
    client.check("DEL k", ":1\r\n");
    wait_until("all is given back", || client.info("memory", "used_memory") < 16 << 20);
}

/// A part that is not read, and is little of its value, does not keep the value from being changed in place,
/// nor in memory.
#[test]
fn a_small_part_shares_nothing() {
    const PARTS: usize = 20;
    let server = Server::start(&["--save", ""]);
    let (mut client, mut reader) = (server.client(), server.client());
    check_large(&mut client, &[b"SET", b"k", &value(0, 16 * MIB)], "+OK\r\n");
    let pair = [encode(&["GETRANGE", "k", "0", "524287"]), encode(&["SETRANGE", "k", "0", "x"])].concat();
    reader.send(pair.repeat(PARTS));
    let calls = format!("cmdstat_setrange:calls={PARTS},");
    wait_until("all have run", || client.ask("INFO commandstats").contains(&calls));
    let used = client.info("memory", "used_memory");
    assert!(used < 48 << 20, "{used} bytes with a value of 16 MB and 10 MB of replies");
}

/// A request that was read while its client waited lies in room of twice its size.
#[test]
fn a_value_that_came_behind_a_wait_takes_its_size() {
    const BYTES: usize = 5 * MIB;
    let server = Server::start(&["--save", ""]);
    let (mut client, mut other) = (server.client(), server.client());
    client.send([encode(&["BLPOP", "q", "0"]), set(&value(0, BYTES))].concat());
    wait_until("it waits, and all has been read", || {
        other.blocked_count() == 1 && client_input_bytes(&mut other) > BYTES as u64
    });
    other.check("RPUSH q 1", ":1\r\n");
    client.expect("*2\r\n$1\r\nq\r\n$1\r\n1\r\n");
    client.expect("+OK\r\n");
    let usage = other.ask_number("MEMORY USAGE k");
    assert!(usage < (BYTES * 17 / 16 + MIB) as i64, "{usage} bytes for a value of {BYTES}");
}

/// Bytes of requests that have been read and have not run, of all clients.
fn client_input_bytes(client: &mut Client) -> u64 {
    let of = |line: &str| line.split(" qbuf=").nth(1)?.split(' ').next()?.parse::<u64>().ok();
    client.ask("CLIENT LIST").lines().filter_map(of).sum()
}

/// Commands that take a large argument store it as it came, whatever stands around it.
#[test]
fn every_command_stores_what_it_was_lent() {
    let server = Server::start(&["--save", ""]);
    let mut client = server.client();
    let (a, b) = (value(1, LARGE_BYTES), value(2, LARGE_BYTES + 1));
    let long_key = vec![b'n'; 500];
    check_large(&mut client, &[b"SETEX", b"k", b"1000", &a], "+OK\r\n");
    check_bytes(&mut client, &[b"GET", b"k"], &a);
    check_bytes(&mut client, &[b"GETSET", b"k", &b], &a);
    check_bytes(&mut client, &[b"SET", b"k", &a, b"KEEPTTL", b"GET"], &b);
    check_bytes(&mut client, &[b"GETEX", b"k", b"EX", b"1000"], &a);
    client.check("STRLEN k", &format!(":{LARGE_BYTES}\r\n"));
    check_large(&mut client, &[b"SETNX", b"k", &b], ":0\r\n");
    check_large(&mut client, &[b"SETNX", b"n", &b], ":1\r\n");
    check_bytes(&mut client, &[b"GETDEL", b"n"], &b);
    check_large(&mut client, &[b"MSET", b"x", b"1", b"m", &b, b"y", b"2"], "+OK\r\n");
    check_bytes(&mut client, &[b"GET", b"m"], &b);
    check_large(&mut client, &[b"SET", &long_key, &a], "+OK\r\n");
    check_bytes(&mut client, &[b"GET", &long_key], &a);
    check_large(&mut client, &[b"APPEND", b"p", &a], &format!(":{LARGE_BYTES}\r\n"));
    // It changes where it lies, then it grows.
    check_large(&mut client, &[b"SETRANGE", b"p", b"5", b"zz"], &format!(":{LARGE_BYTES}\r\n"));
    let mut changed = a.clone();
    changed[5..7].copy_from_slice(b"zz");
    check_bytes(&mut client, &[b"GET", b"p"], &changed);
    check_large(&mut client, &[b"APPEND", b"p", b"end"], &format!(":{}\r\n", LARGE_BYTES + 3));
    changed.extend_from_slice(b"end");
    check_bytes(&mut client, &[b"GET", b"p"], &changed);
    client.check("COPY p q", ":1\r\n");
    check_large(&mut client, &[b"SETRANGE", b"p", b"0", b"q"], &format!(":{}\r\n", LARGE_BYTES + 3));
    check_bytes(&mut client, &[b"GET", b"q"], &changed);
    // As it came, where it is refused, queued, or followed by others.
    client.check("MULTI", "+OK\r\n");
    check_large(&mut client, &[b"SET", b"k", &b], "+QUEUED\r\n");
    client.check("EXEC", "*1\r\n+OK\r\n");
    check_bytes(&mut client, &[b"GET", b"k"], &b);
    client.check("RPUSH list 1", ":1\r\n");
    check_large(
        &mut client,
        &[b"APPEND", b"list", &a],
        "-WRONGTYPE Operation against a key holding the wrong kind of value\r\n",
    );
    client.send([set(&a), encode(&["GET", "x"]), encode(&["STRLEN", "k"])].concat());
    client.expect("+OK\r\n");
    client.expect("$1\r\n1\r\n");
    client.expect(&format!(":{LARGE_BYTES}\r\n"));
    let both = [encode(&["GET", "x"]), set(&b), encode(&["GET", "k"])].concat();
    client.send(&both[..both.len() - 9]);
    client.expect("$1\r\n1\r\n");
    client.expect("+OK\r\n");
    client.send(&both[both.len() - 9..]);
    assert!(client.read_reply() == bulk(&b));
}

/// A command that has to wait finds its argument when its turn comes.
#[test]
fn a_paused_command_keeps_its_argument() {
    let server = Server::start(&["--save", ""]);
    let (mut client, mut other) = (server.client(), server.client());
    let id = client.id();
    let large = value(3, LARGE_BYTES);
    other.check("CLIENT PAUSE 100000 WRITE", "+OK\r\n");
    client.send([set(&large), encode(&["STRLEN", "k"])].concat());
    wait_until("it waits", || other.sees_waiting(id));
    other.check("EXISTS k", ":0\r\n");
    other.check("CLIENT UNPAUSE", "+OK\r\n");
    client.expect("+OK\r\n");
    client.expect(&format!(":{LARGE_BYTES}\r\n"));
    check_bytes(&mut other, &[b"GET", b"k"], &large);
}

/// A reply that its client has not read yet shows the value as of its command, and belongs to its client.
#[test]
fn a_reply_is_as_of_its_command() {
    const BYTES: usize = 24 * MIB;
    let server = Server::start(&["--save", ""]);
    let mut writer = server.client();
    let mut readers: Vec<Client> = (0..2).map(|_| server.client()).collect();
    let ids: Vec<u64> = readers.iter_mut().map(Client::id).collect();
    let first = value(4, BYTES);
    check_large(&mut writer, &[b"SET", b"k", &first], "+OK\r\n");
    readers[0].send(encode(&["GET", "k"]));
    wait_until("the first reply waits", || writer.unread_bytes(ids[0]) >= BYTES as u64);
    check_large(&mut writer, &[b"SETRANGE", b"k", b"7", b"changed"], &format!(":{BYTES}\r\n"));
    readers[1].send(encode(&["GET", "k"]));
    wait_until("the second reply waits", || writer.unread_bytes(ids[1]) >= BYTES as u64);
    // Three times the value: its client would cost as much in Valkey.
    let of_clients = writer.info("memory", "mem_clients_normal");
    assert!(of_clients < BYTES as u64 / 2, "values are no clients': {of_clients}");
    writer.check("DEL k", ":1\r\n");
    assert!(readers[0].read_reply() == bulk(&first), "as it was before");
    let mut second = first;
    second[7..14].copy_from_slice(b"changed");
    assert!(readers[1].read_reply() == bulk(&second), "as it was then");
    wait_until("all is given back", || writer.info("memory", "used_memory") < 8 << 20);
}

/// Clients that read nothing are closed for the values that they keep, as for replies of their own.
#[test]
fn unread_values_count_for_their_clients() {
    const BYTES: usize = 24 * MIB;
    let server = Server::start(&["--save", "", "--maxmemory-clients", "20mb"]);
    let (mut writer, mut reader) = (server.client(), server.client());
    writer.check("CLIENT NO-EVICT ON", "+OK\r\n");
    writer.check("SETRANGE k 0 x", ":1\r\n");
    check_large(
        &mut writer,
        &[b"SETRANGE", b"k", &(BYTES - 1).to_string().into_bytes(), b"x"],
        &format!(":{BYTES}\r\n"),
    );
    reader.send(encode(&["GET", "k"]));
    wait_until("it is closed", || writer.info("stats", "evicted_clients") == 1);
}

/// A length that was only announced takes no memory, even if some of it has come.
#[test]
fn announced_bytes_are_not_counted() {
    const CLIENTS: usize = 4;
    let server = Server::start(&["--save", ""]);
    let mut client = server.client();
    let before = client.info("memory", "used_memory");
    let mut senders: Vec<Client> = (0..CLIENTS).map(|_| server.client()).collect();
    let ids: Vec<u64> = senders.iter_mut().map(Client::id).collect();
    let part = value(5, 2 * MIB);
    for sender in &mut senders {
        sender.send(format!("*3\r\n$3\r\nSET\r\n$1\r\nk\r\n${}\r\n", 400 * MIB));
        sender.send(&part);
    }
    for id in ids {
        let has_come = |client: &mut Client| {
            let of = format!("id={id}");
            client.listed(&of, "qbuf").is_some_and(|bytes| bytes.parse::<usize>().unwrap() >= part.len())
        };
        wait_until("its bytes have come", || has_come(&mut client));
        let total = client.listed(&format!("id={id}"), "tot-mem").unwrap().parse::<usize>().unwrap();
        assert!(total < 2 * part.len(), "a client takes {total}");
    }
    let used = client.info("memory", "used_memory") - before;
    assert!(used < (CLIENTS * 2 * part.len()) as u64, "{used} for {CLIENTS} parts of {}", part.len());
    drop(senders);
    wait_until("nothing is left", || client.info("memory", "used_memory") < before + MIB as u64);
}
