//! Bad input, and what Valkey 9.1.2 answers to it, byte by byte.
//!
//! ```text
//! == title          a new connection and an empty server
//! > SET k v EX 0    one request; "..." with escapes, @20xa for twenty times the character a
//! = -ERR ...        its reply without the last line end, escaped
//! >> *1\r\n$x\r\n   bytes on a connection of their own
//! = ...<closed>     all that comes back, and whether the connection ends
//! ```
//! Where `ISOTHERM_PEER_BIN` says where Valkey's programs are, the same is played to Valkey, so that the
//! files are right.

use crate::common::{PATIENCE, Server, encode, free_port, read_some};
use isotherm_stdx::args_split::{Dialect, args_split};
use std::io::ErrorKind;
use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

const REQUESTS: &str = include_str!("bad_input/requests.txt");
const BYTES: &str = include_str!("bad_input/bytes.txt");

/// No request of the files may keep a worker busy for longer: neither patterns nor comparisons blow up.
const REQUEST_TIME: Duration = Duration::from_secs(10);

#[test]
fn wrong_requests() {
    let ours = Server::with_workers(2, &["--enable-debug-command", "yes"]);
    play("Isotherm", &ours, REQUESTS);
    ours.client().check("PING", "+PONG\r\n");
    if let Some(theirs) = valkey() {
        play("Valkey", &theirs, REQUESTS);
    }
}

#[test]
fn wrong_bytes() {
    let ours = Server::with_workers(2, &[]);
    play("Isotherm", &ours, BYTES);
    ours.client().check("PING", "+PONG\r\n");
    if let Some(theirs) = valkey() {
        play("Valkey", &theirs, BYTES);
    }
}

fn valkey() -> Option<Server> {
    let Some(folder) = std::env::var_os("ISOTHERM_PEER_BIN") else {
        println!("skipped: bad input to Valkey: ISOTHERM_PEER_BIN does not say where its programs are");
        return None;
    };
    let port = free_port();
    let mut command = Command::new(Path::new(&folder).join("valkey-server"));
    command.args(["--port", &port.to_string(), "--bind", "127.0.0.1", "--save", ""]);
    command.args(["--enable-debug-command", "yes"]);
    let server = Server::spawn(port, command);
    server.wait_for_log("Ready to accept connections");
    Some(server)
}

/// Plays a file to a server and collects everything that is answered otherwise.
fn play(name: &str, server: &Server, text: &str) {
    let mut wrong = Vec::new();
    let mut played = 0;
    let mut client = server.client();
    let mut lines = text.lines().filter(|line| !line.is_empty() && !line.starts_with('#'));
    while let Some(line) = lines.next() {
        if line.starts_with("== ") {
            client = server.client();
            client.check("FLUSHALL", "+OK\r\n");
            continue;
        }
        let expected =
            lines.next().and_then(|reply| reply.strip_prefix("= ")).expect("a reply to each request");
        let expected = unescape(&expand(expected));
        let begun = Instant::now();
        let got = if let Some(bytes) = line.strip_prefix(">> ") {
            answer_to_bytes(server, &unescape(&expand(bytes)), &expected)
        } else {
            let request = expand(line.strip_prefix("> ").expect("a request"));
            let words = args_split(request.as_bytes(), Dialect::Request).expect("balanced quotes");
            client.send(encode(&words));
            let mut reply = client.read_reply();
            reply.truncate(reply.len() - 2);
            reply
        };
        played += 1;
        if got != expected {
            wrong.push(format!("{line}\n  expected {}\n  got      {}", show(&expected), show(&got)));
        }
        assert!(begun.elapsed() < REQUEST_TIME, "{name} takes {:?} for {line}", begun.elapsed());
    }
    assert!(played > 150, "only {played}");
    assert!(wrong.is_empty(), "{name}, {} of {played}:\n{}", wrong.len(), wrong.join("\n"));
}

/// All that comes back, up to the end or to a silence.
fn answer_to_bytes(server: &Server, bytes: &[u8], expected: &[u8]) -> Vec<u8> {
    const SILENCE: Duration = Duration::from_millis(10);
    let closes = expected.ends_with(b"<closed>");
    let mut client = server.client();
    client.send(bytes);
    let mut got = Vec::new();
    loop {
        let complete = !closes && got.len() >= expected.len();
        let patience = if complete { SILENCE } else { PATIENCE };
        client.stream.set_read_timeout(Some(patience)).unwrap();
        let mut more = [0; 4096];
        match read_some(&mut client.stream, &mut more) {
            Ok(0) => break,
            Ok(count) => got.extend_from_slice(&more[..count]),
            Err(error) if error.kind() == ErrorKind::WouldBlock => return got,
            // Bytes that the server had not read when it closed reset the connection.
            Err(error) if error.kind() == ErrorKind::ConnectionReset => break,
            Err(error) => panic!("{error}"),
        }
    }
    got.extend_from_slice(b"<closed>");
    got
}

// ---- the format ----

/// Replaces `@20xa` by twenty times `a`; an escape counts as one character.
fn expand(text: &str) -> String {
    let mut out = String::new();
    let mut rest = text;
    while let Some(at) = rest.find('@') {
        out.push_str(&rest[..at]);
        rest = &rest[at + 1..];
        let repeated = rest.split_once('x').and_then(|(count, characters)| {
            let count = count.parse::<usize>().ok()?;
            let width = match characters.as_bytes() {
                [b'\\', b'x', ..] => 4,
                [b'\\', ..] => 2,
                _ => 1,
            };
            Some((characters.get(..width)?.repeat(count), characters.get(width..)?))
        });
        match repeated {
            Some((characters, behind)) => {
                out.push_str(&characters);
                rest = behind;
            }
            None => out.push('@'),
        }
    }
    out + rest
}

fn unescape(text: &str) -> Vec<u8> {
    let mut out = Vec::new();
    let mut bytes = text.bytes();
    while let Some(byte) = bytes.next() {
        if byte != b'\\' {
            out.push(byte);
            continue;
        }
        let mut next = || bytes.next().expect("something behind a backslash");
        let digit = |byte: u8| char::from(byte).to_digit(16).expect("a digit") as u8;
        out.push(match next() {
            b'r' => b'\r',
            b'n' => b'\n',
            b't' => b'\t',
            b'x' => digit(next()) * 16 + digit(next()),
            other => other,
        });
    }
    out
}

fn show(bytes: &[u8]) -> String {
    const SHOWN_MAX: usize = 300;
    let text = bytes.escape_ascii().to_string();
    text.chars().take(SHOWN_MAX).collect()
}
