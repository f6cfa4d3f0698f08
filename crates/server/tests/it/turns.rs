//! Turns of a worker: whatever clients send, read or publish at once, it looks at its other sockets in
//! between.

use crate::common::{Client, OnDrop, Server, encode, wait_until};
use std::io::{ErrorKind, Read, Write};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

const OK: &str = "+OK\r\n";
/// Bytes that one turn moves at most: four parts of 4 MB, and a last piece of each.
const TURN_BYTES_MAX: u64 = 18 << 20;
/// Time for which the worker rests while sockets are filled. Should a machine need longer for that, less is
/// there at once.
const REST: Duration = Duration::from_millis(500);
/// A socket takes some megabytes that are not read, so these are more than a turn may move.
const CLIENTS: usize = 16;

#[track_caller]
fn check_turns(client: &mut Client) {
    let most = client.info("debug", "eventloop_bytes_per_cycle_max");
    assert!((1..=TURN_BYTES_MAX).contains(&most), "{most} bytes in one turn");
}

/// Sends what the socket takes at once.
fn fill(client: &mut Client, bytes: &[u8]) -> usize {
    client.stream.set_nonblocking(true).unwrap();
    let mut sent = 0;
    while sent < bytes.len() {
        match client.stream.write(&bytes[sent..]) {
            Ok(count) => sent += count,
            Err(error) if error.kind() == ErrorKind::WouldBlock => break,
            Err(error) => panic!("{error}"),
        }
    }
    client.stream.set_nonblocking(false).unwrap();
    sent
}

/// Parts of large values lie in all sockets.
#[test]
fn uploads_take_turns() {
    const BYTES: usize = 4 << 20;
    let server = Server::start(&["--enable-debug-command", "yes"]);
    let mut holder = server.client();
    let mut senders: Vec<Client> = (0..CLIENTS).map(|_| server.client()).collect();
    senders.iter_mut().for_each(|sender| sender.check("PING", "+PONG\r\n"));
    server.hold_all_locks_for(REST, &mut holder, &[]);
    let request = encode(&[&b"SET"[..], b"k", &vec![b'x'; BYTES]]);
    let sent: Vec<usize> = senders.iter_mut().map(|sender| fill(sender, &request)).collect();
    holder.expect("*2\r\n+OK\r\n+OK\r\n");
    for (sender, sent) in senders.iter_mut().zip(&sent) {
        sender.send(&request[*sent..]);
        sender.expect(OK);
    }
    check_turns(&mut holder);
    holder.check("STRLEN k", &format!(":{BYTES}\r\n"));
}

/// Replies that sockets take only in part leave whole, whether their client reads at once or later.
#[test]
fn downloads_take_turns() {
    const BYTES: usize = 4 << 20;
    let server = Server::start(&["--enable-debug-command", "yes"]);
    let mut holder = server.client();
    let value: Vec<u8> = (0..BYTES).map(|at| (at / 7) as u8).collect();
    holder.send(encode(&[&b"SET"[..], b"k", &value]));
    holder.expect(OK);
    let mut readers: Vec<Client> = (0..CLIENTS).map(|_| server.client()).collect();
    readers.iter_mut().for_each(|reader| reader.check("PING", "+PONG\r\n"));
    server.hold_all_locks_for(REST, &mut holder, &[]);
    readers.iter_mut().for_each(|reader| reader.send([encode(&["GET", "k"]), encode(&["PING"])].concat()));
    holder.expect("*2\r\n+OK\r\n+OK\r\n");
    check_turns(&mut holder);
    let reply = [format!("${BYTES}\r\n").as_bytes(), &value, b"\r\n+PONG\r\n"].concat();
    let mut got = vec![0; reply.len()];
    for reader in &mut readers {
        reader.stream.read_exact(&mut got).unwrap();
        assert!(got == reply, "torn");
    }
    check_turns(&mut holder);
}

/// A publisher with many subscribers is held up, and no other client, in particular none that writes.
#[test]
fn deliveries_take_turns() {
    const SUBSCRIBERS: usize = 40;
    const MESSAGES: usize = 400;
    const BYTES: usize = 10_000;
    let server = Server::start(&["--client-output-buffer-limit", "pubsub 0 0 0"]);
    let mut subscribers: Vec<Client> = (0..SUBSCRIBERS).map(|_| server.client()).collect();
    for (at, subscriber) in subscribers.iter_mut().enumerate() {
        // Patterns are names of their own.
        let word = if at == 0 { "SUBSCRIBE" } else { ["SUBSCRIBE", "PSUBSCRIBE"][at % 2] };
        subscriber.ask(&format!("{word} c"));
    }
    let (mut publisher, mut other) = (server.client(), server.client());
    let id = publisher.id();
    let mut rounds = 0;
    wait_until("a client writes while the publisher is held up", || {
        rounds += 1;
        let messages = (0..MESSAGES).map(|at| format!("{rounds}:{at}:{}", "x".repeat(BYTES)));
        let flood: Vec<u8> = messages.flat_map(|message| encode(&["PUBLISH", "c", &message])).collect();
        let is_over = AtomicBool::new(false);
        let mut has_written = false;
        std::thread::scope(|scope| {
            let (publisher, is_over) = (&mut publisher, &is_over);
            scope.spawn(move || {
                let _over = OnDrop(|| is_over.store(true, Ordering::Release));
                publisher.send(&flood);
                (0..MESSAGES).for_each(|_| publisher.expect(&format!(":{SUBSCRIBERS}\r\n")));
            });
            while !is_over.load(Ordering::Acquire) {
                other.send(
                    [encode(&["SET", "k", "v"]), encode(&["CLIENT", "LIST", "ID", &id.to_string()])].concat(),
                );
                other.expect(OK);
                has_written |= String::from_utf8_lossy(&other.read_reply()).contains(" flags=b ");
            }
        });
        has_written
    });
    // All was published before this: it is handed out before the reply, in its order.
    let hears = &mut subscribers[0];
    hears.send(encode(&["UNSUBSCRIBE", "c"]));
    for round in 1..=rounds {
        for at in 0..MESSAGES {
            let message = String::from_utf8(hears.read_reply()).unwrap();
            assert!(message.starts_with("*3\r\n$7\r\nmessage\r\n$1\r\nc\r\n"), "{message:.60}");
            assert!(message.contains(&format!("\r\n{round}:{at}:x")), "{message:.60}");
        }
    }
    hears.expect("*3\r\n$11\r\nunsubscribe\r\n$1\r\nc\r\n:0\r\n");
    check_turns(&mut other);
}

/// A message with thousands of patterns is handed out in several turns, once to each, in their order.
#[test]
fn patterns_take_turns() {
    const PATTERNS: usize = 4_000;
    const MESSAGES: usize = 10;
    let server = Server::start(&["--client-output-buffer-limit", "pubsub 0 0 0"]);
    let (mut hears, mut says) = (server.client(), server.client());
    let patterns: Vec<String> = (0..PATTERNS).map(|at| format!("c*[c{at}]")).collect();
    let request: Vec<&str> =
        std::iter::once("PSUBSCRIBE").chain(patterns.iter().map(String::as_str)).collect();
    hears.send(encode(&request));
    (0..PATTERNS).for_each(|_| drop(hears.read_reply()));
    (0..MESSAGES).for_each(|at| says.send(encode(&["PUBLISH", "cc", &at.to_string()])));
    (0..MESSAGES).for_each(|_| says.expect(&format!(":{PATTERNS}\r\n")));
    hears.send(encode(&["PUNSUBSCRIBE", &patterns[0]]));
    for at in 0..MESSAGES {
        let mut heard = std::collections::BTreeSet::new();
        for _ in 0..PATTERNS {
            let message = String::from_utf8(hears.read_reply()).unwrap();
            let words: Vec<&str> = message.split("\r\n").collect();
            assert_eq!((words[2], words[6], words[8]), ("pmessage", "cc", &*at.to_string()), "{message}");
            heard.insert(words[4].to_string());
        }
        assert_eq!(heard.len(), PATTERNS, "message {at}");
    }
    hears.expect(&format!(
        "*3\r\n$12\r\npunsubscribe\r\n${}\r\n{}\r\n:{}\r\n",
        patterns[0].len(),
        patterns[0],
        PATTERNS - 1
    ));
}
