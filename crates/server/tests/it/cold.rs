//! Commands that need values which are not in memory: their connections are parked while these are fetched, others are
//! served, and then they run again, from the start. A test names the cold keys and ends the fetches itself (DEBUG COLD, DEBUG
//! FETCH), in builds with debug assertions.

use crate::common::{Client, Server, encode, wait_until};

fn start(workers: usize) -> Server {
    Server::with_workers(workers, &["--enable-debug-command", "yes"])
}

fn wait_for_fetches(other: &mut Client, count: i64) {
    wait_until("fetches", || other.ask_number("DEBUG FETCHES") == count);
}

#[test]
fn a_request_is_parked_and_run_again_in_its_order() {
    let server = start(1);
    let (mut client, mut other) = (server.client(), server.client());
    client.check("MSET a 1 b 2", "+OK\r\n");
    other.check("DEBUG COLD a", "+OK\r\n");
    client.send([encode(&["GET", "b"]), encode(&["INCR", "a"]), encode(&["GET", "a"])].concat());
    assert_eq!(client.read_reply(), b"$1\r\n2\r\n", "what came before it is answered");
    wait_for_fetches(&mut other, 1);
    other.check("GET b", "$1\r\n2\r\n");
    let calls = |other: &mut Client| other.ask("INFO commandstats").contains("cmdstat_incr:");
    assert!(!calls(&mut other), "nothing was counted yet");
    other.check("DEBUG FETCH", ":1\r\n");
    assert_eq!(client.read_reply(), b":2\r\n");
    assert_eq!(client.read_reply(), b"$1\r\n2\r\n");
    assert!(calls(&mut other));
}

#[test]
fn what_is_not_read_is_not_fetched() {
    let server = start(1);
    let mut client = server.client();
    client.check("MSET a 1 b 2", "+OK\r\n");
    client.check("DEBUG COLD a b", "+OK\r\n");
    client.check("SET a 3", "+OK\r\n");
    client.check("DEL b", ":1\r\n");
    client.check("DEBUG FETCHES", ":0\r\n");
}

/// Its key, type, expiry, last access and the length of a string stay in memory.
#[test]
fn what_needs_no_value_is_not_fetched() {
    let server = start(1);
    let mut client = server.client();
    client.check("SET a 12345", "+OK\r\n");
    client.check("RPUSH l x y", ":2\r\n");
    client.check("DEBUG COLD a b l", "+OK\r\n");
    for (command, reply) in [
        ("TYPE a", "+string\r\n"),
        ("EXISTS a l", ":2\r\n"),
        ("TTL a", ":-1\r\n"),
        ("EXPIRE a 1000 NX", ":1\r\n"),
        ("PERSIST a", ":1\r\n"),
        ("STRLEN a", ":5\r\n"),
        ("TOUCH a l", ":2\r\n"),
        ("OBJECT ENCODING a", "$3\r\nint\r\n"),
        ("SET a 3 NX", "$-1\r\n"),
        ("SET b 4", "+OK\r\n"),
        ("DEL b", ":1\r\n"),
        ("UNLINK l", ":1\r\n"),
    ] {
        client.check(command, reply);
    }
    client.check("DEBUG FETCHES", ":0\r\n");
}

/// Each of these waits for its value.
#[test]
fn what_needs_a_value_is_fetched() {
    let server = start(1);
    let mut other = server.client();
    other.check("SET a 12345", "+OK\r\n");
    other.check("RPUSH l x y", ":2\r\n");
    for (command, reply) in [
        ("GET a", "$5\r\n12345\r\n"),
        ("SET a 1 IFEQ 2", "$-1\r\n"),
        ("DELIFEQ a 1", ":0\r\n"),
        ("LLEN l", ":2\r\n"),
        ("LRANGE l 0 0", "*1\r\n$1\r\nx\r\n"),
        ("LPUSH l w", ":3\r\n"),
        // What lies on disk lies there under its name.
        ("RENAME a b", "+OK\r\n"),
    ] {
        let mut client = server.client();
        other.check("DEBUG COLD a l", "+OK\r\n");
        client.send(encode(&command.split(' ').collect::<Vec<_>>()));
        wait_for_fetches(&mut other, 1);
        other.check("DEBUG FETCH", ":1\r\n");
        assert_eq!(client.read_reply(), reply.as_bytes(), "{command}");
    }
}

/// What was fetched is gone again each time before the command runs: at last it keeps its locks while it reads.
#[test]
fn a_command_is_not_parked_for_ever() {
    const FETCHES: usize = 16;
    for request in [&["GET", "a"][..], &["EXEC"], &["EVAL", "return redis.call('GET', KEYS[1])", "1", "a"]] {
        let server = start(1);
        let (mut client, mut other) = (server.client(), server.client());
        client.check("SET a 1", "+OK\r\n");
        if request == ["EXEC"] {
            client.check("MULTI", "+OK\r\n");
            client.check("GET a", "+QUEUED\r\n");
        }
        other.check("DEBUG COLD a", "+OK\r\n");
        client.send(encode(request));
        for _ in 0..FETCHES {
            wait_for_fetches(&mut other, 1);
            // The worker that runs this is to run the command too.
            other.check("MULTI", "+OK\r\n");
            other.check("DEBUG FETCH", "+QUEUED\r\n");
            other.check("DEBUG COLD a", "+QUEUED\r\n");
            other.check("EXEC", "*2\r\n:1\r\n+OK\r\n");
        }
        let reply = String::from_utf8(client.read_reply()).expect("text");
        assert!(reply.ends_with("$1\r\n1\r\n"), "{reply}");
        other.check("DEBUG FETCHES", ":0\r\n");
        // The next one waits as ever.
        other.check("DEBUG COLD a", "+OK\r\n");
        client.send(encode(&["GET", "a"]));
        wait_for_fetches(&mut other, 1);
        other.check("DEBUG FETCH", ":1\r\n");
        client.expect("$1\r\n1\r\n");
    }
}

/// Nothing of it was done while its values came.
#[test]
fn a_transaction_fetches_all_that_it_needs_before_it_begins() {
    let server = start(1);
    let (mut client, mut other) = (server.client(), server.client());
    client.check("MSET a 1 b 2 c 3", "+OK\r\n");
    other.check("DEBUG COLD b c", "+OK\r\n");
    client.check("MULTI", "+OK\r\n");
    for key in ["a", "b", "c"] {
        client.check(&format!("INCR {key}"), "+QUEUED\r\n");
    }
    client.send(encode(&["EXEC"]));
    wait_for_fetches(&mut other, 1);
    other.check("GET a", "$1\r\n1\r\n");
    other.check("DEBUG FETCH", ":1\r\n");
    assert_eq!(client.read_reply(), b"*3\r\n:2\r\n:3\r\n:4\r\n");
    client.check("EXEC", "-ERR EXEC without MULTI\r\n");
}

/// A watched key that changes meanwhile is a changed one.
#[test]
fn a_transaction_that_waits_for_values_is_still_watched() {
    let server = start(1);
    let (mut client, mut other) = (server.client(), server.client());
    client.check("MSET a 1 b 2", "+OK\r\n");
    client.check("WATCH a", "+OK\r\n");
    client.check("MULTI", "+OK\r\n");
    client.check("GET b", "+QUEUED\r\n");
    other.check("DEBUG COLD b", "+OK\r\n");
    client.send(encode(&["EXEC"]));
    wait_for_fetches(&mut other, 1);
    other.check("SET a 9", "+OK\r\n");
    other.check("DEBUG FETCH", ":1\r\n");
    assert_eq!(client.read_reply(), b"*-1\r\n");
}

/// The value that wakes a waiter may be cold itself. It takes it once it is there, and none behind it is served before.
#[test]
fn a_waiter_is_served_what_was_fetched() {
    for workers in [1, 2] {
        let server = start(workers);
        let (mut first, mut second, mut other) = (server.client(), server.client(), server.client());
        for (client, blocked) in [(&mut first, 1), (&mut second, 2)] {
            client.send(encode(&["BLPOP", "{q}", "0"]));
            wait_until("it is blocked", || other.blocked_count() == blocked);
        }
        other.check("RPUSH {q}x one two", ":2\r\n");
        other.check("DEBUG COLD {q}", "+OK\r\n");
        other.check("RENAME {q}x {q}", "+OK\r\n");
        wait_for_fetches(&mut other, 1);
        other.check("SET k v", "+OK\r\n");
        second.expect_silence();
        assert_eq!(other.blocked_count(), 2);
        other.check("DEBUG FETCH", ":1\r\n");
        assert_eq!(first.read_reply(), b"*2\r\n$3\r\n{q}\r\n$3\r\none\r\n");
        assert_eq!(second.read_reply(), b"*2\r\n$3\r\n{q}\r\n$3\r\ntwo\r\n");
        other.check("DEBUG CHECK-INVARIANTS", "+OK\r\n");
    }
}

#[test]
fn a_client_that_leaves_waits_for_no_values() {
    let server = start(1);
    let (mut client, mut other) = (server.client(), server.client());
    other.check("SET a 1", "+OK\r\n");
    other.check("DEBUG COLD a", "+OK\r\n");
    let id = client.id();
    client.send(encode(&["INCR", "a"]));
    wait_for_fetches(&mut other, 1);
    other.check(&format!("CLIENT KILL ID {id}"), ":1\r\n");
    wait_until("it is gone", || other.info("clients", "connected_clients") == 1);
    other.check("DEBUG FETCH", ":1\r\n");
    other.check("GET a", "$1\r\n1\r\n");
}
