//! Connections to one of both servers, and the fences after which nothing more arrives.
//!
//! A fence is a PING on a connection of its own. Messages that a server has sent before it answers a fence
//! have arrived when that answer has. Messages pass from thread to thread within a server, and cause others:
//! so each worker has a fence, and there are several rounds.

use std::io::{self, ErrorKind, Read, Write};
use std::net::TcpStream;
use std::time::Instant;

use isotherm_resp::reply_parse::{ReplyReader, Value, parse_value};

use super::PATIENCE;
use super::steps::{CONNECTIONS, OPERATOR};
use crate::client::{Client, push_request};
use crate::grammar::Command;

/// Number of connections for fences. Connections are handed out in turn, so that up to this number of workers
/// have one.
const FENCES: usize = 4;
/// A change on one worker wakes a client of a second, whose change makes a message for a third.
const ROUNDS: usize = 3;
/// User of fences and the operator: no step changes it.
const USER: [&str; 3] = ["AUTH", "operator", "op"];
const READ_BYTES: usize = 16 << 10;

#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Event {
    Value(Value),
    Closed,
}

/// A connection that is never waited for.
pub struct Line {
    stream: TcpStream,
    buffer: Vec<u8>,
    reader: ReplyReader,
    pub id: i64,
    /// Address of this end.
    pub address: String,
    /// Events that were not compared yet.
    pub arrived: Vec<Event>,
}

impl Line {
    fn connect(port: u16, is_operator: bool) -> io::Result<Line> {
        let mut client = Client::connect(port)?;
        if is_operator {
            client.call(&USER)?;
        }
        let id = match client.call(&["CLIENT", "ID"])? {
            Value::Integer(id) => id,
            other => return Err(io::Error::other(format!("CLIENT ID: {other}"))),
        };
        let stream = client.into_stream();
        stream.set_nonblocking(true)?;
        let address = stream.local_addr()?.to_string();
        Ok(Line { stream, buffer: Vec::new(), reader: ReplyReader::new(), id, address, arrived: Vec::new() })
    }

    /// Sends as much as a socket's buffer takes, as all requests of a step are.
    fn send(&mut self, bytes: &[u8]) {
        if self.stream.write_all(bytes).is_err() {
            self.note_closed();
        }
    }

    pub fn is_closed(&self) -> bool {
        self.arrived.last() == Some(&Event::Closed)
    }

    fn note_closed(&mut self) {
        if !self.is_closed() {
            self.arrived.push(Event::Closed);
        }
    }

    /// Takes what is there.
    fn drain(&mut self) -> io::Result<()> {
        let mut chunk = [0; READ_BYTES];
        while !self.is_closed() {
            match self.stream.read(&mut chunk) {
                Ok(0) => self.note_closed(),
                Ok(count) => {
                    self.buffer.extend_from_slice(&chunk[..count]);
                    self.parse()?;
                }
                Err(why) if why.kind() == ErrorKind::WouldBlock => break,
                Err(why) if why.kind() == ErrorKind::Interrupted => {}
                Err(_) => self.note_closed(),
            }
        }
        Ok(())
    }

    fn parse(&mut self) -> io::Result<()> {
        let bad = |bad: isotherm_resp::reply_parse::BadReply| io::Error::other(bad.reason);
        while self.reader.find_end(&self.buffer).map_err(bad)?.is_some() {
            let (value, length) = parse_value(&self.buffer).map_err(bad)?.expect("its end has been found");
            self.buffer.drain(..length);
            self.reader = ReplyReader::new();
            self.arrived.push(Event::Value(value));
            if self.buffer.is_empty() {
                break;
            }
        }
        Ok(())
    }
}

pub struct Side {
    port: u16,
    asker: Client,
    fences: Vec<Client>,
    pub lines: Vec<Line>,
}

/// Facts that a server states of a connection, without those that differ by nature.
pub type State = Vec<(String, String)>;

impl Side {
    /// Prepares a server that no other client uses. Lines are added by `Side::add`.
    pub fn new(port: u16) -> io::Result<Side> {
        let mut asker = Client::connect(port)?;
        asker.call(&["ACL", "SETUSER", "operator", "on", ">op", "~*", "&*", "+@all"])?;
        asker.call(&USER)?;
        let mut fences = (0..FENCES).map(|_| Client::connect(port)).collect::<io::Result<Vec<_>>>()?;
        for fence in &mut fences {
            fence.call(&USER)?;
        }
        asker.call(&["DEBUG", "SET-ACTIVE-EXPIRE", "0"])?;
        Ok(Side { port, asker, fences, lines: Vec::new() })
    }

    /// Empties the server and drops all lines; returns when the server has seen them go.
    pub fn reset(&mut self) -> io::Result<()> {
        self.lines.clear();
        let commands: [&[&str]; 7] = [
            &["CLIENT", "UNPAUSE"],
            &["FLUSHALL"],
            &["SCRIPT", "FLUSH"],
            &["ACL", "DELUSER", "u1", "u2"],
            &["ACL", "SETUSER", "default", "reset", "on", "nopass", "~*", "&*", "+@all"],
            &["ACL", "LOG", "RESET"],
            &["CONFIG", "SET", "notify-keyspace-events", ""],
        ];
        for command in commands {
            self.asker.call(command)?;
        }
        let begun = Instant::now();
        while self.clients()? > FENCES + 1 {
            if begun.elapsed() > PATIENCE {
                return Err(io::Error::other("connections that were closed stay in CLIENT LIST"));
            }
            std::thread::yield_now();
        }
        Ok(())
    }

    fn clients(&mut self) -> io::Result<usize> {
        Ok(text(&self.asker.call(&["CLIENT", "LIST"])?).lines().filter(|line| !line.is_empty()).count())
    }

    pub fn add(&mut self, at: usize) -> io::Result<i64> {
        let line = Line::connect(self.port, at == OPERATOR)?;
        let id = line.id;
        match self.lines.get_mut(at) {
            Some(old) => *old = line,
            None => self.lines.push(line),
        }
        Ok(id)
    }

    /// Uses up numbers of connections.
    pub fn skip(&mut self, count: i64) -> io::Result<()> {
        for _ in 0..count {
            Client::connect(self.port)?.call(&["PING"])?;
        }
        Ok(())
    }

    pub fn send(&mut self, connection: usize, commands: &[Command]) {
        let mut bytes = Vec::new();
        for command in commands {
            let words: Vec<Vec<u8>> = command.iter().map(|word| self.substituted(word)).collect();
            push_request(&mut bytes, &words);
        }
        self.lines[connection].send(&bytes);
    }

    /// `$id2` and `$addr2` name a connection.
    fn substituted(&self, word: &[u8]) -> Vec<u8> {
        let named = |prefix: &str| {
            let index = std::str::from_utf8(word).ok()?.strip_prefix(prefix)?.parse::<usize>().ok()?;
            self.lines.get(index)
        };
        match (named("$id"), named("$addr")) {
            (Some(line), _) => line.id.to_string().into_bytes(),
            (_, Some(line)) => line.address.clone().into_bytes(),
            _ => word.to_vec(),
        }
    }

    pub fn begin_fence(&mut self) -> io::Result<()> {
        self.fences.iter_mut().try_for_each(|fence| fence.send(&["PING"]))
    }

    pub fn end_fence(&mut self) -> io::Result<()> {
        self.fences.iter_mut().try_for_each(|fence| fence.read().map(drop))
    }

    pub fn drain(&mut self) -> io::Result<()> {
        self.lines.iter_mut().try_for_each(Line::drain)
    }

    /// The connection with this address: `#2`, or none of them.
    pub fn index_of(&self, address: &str) -> Option<usize> {
        self.lines.iter().position(|line| line.address == address)
    }

    pub fn ask<A: AsRef<[u8]>>(&mut self, words: &[A]) -> io::Result<Value> {
        self.asker.call(words)
    }

    pub fn begin_states(&mut self) -> io::Result<()> {
        let ids: Vec<String> = self.lines.iter().map(|line| line.id.to_string()).collect();
        let mut words = vec!["CLIENT", "LIST", "ID"];
        words.extend(ids.iter().map(String::as_str));
        self.asker.send(&words)
    }

    /// The states of all lines.
    pub fn end_states(&mut self) -> io::Result<Vec<State>> {
        let list = text(&self.asker.read()?);
        let mut states = vec![State::new(); self.lines.len()];
        for line in list.lines() {
            let state = state_of(line);
            let id =
                state.iter().find(|(name, _)| name == "id").map(|(_, id)| id.clone()).unwrap_or_default();
            if let Some(at) = self.lines.iter().position(|line| line.id.to_string() == id) {
                states[at] = state;
            }
        }
        Ok(states)
    }
}

/// Both servers, a round of fences on each at the same time, several times.
pub fn fence(ours: &mut Side, theirs: &mut Side) -> io::Result<()> {
    for _ in 0..ROUNDS {
        ours.begin_fence()?;
        theirs.begin_fence()?;
        ours.end_fence()?;
        theirs.end_fence()?;
    }
    ours.drain()?;
    theirs.drain()
}

/// Facts of CLIENT LIST that both servers must agree about.
const FACTS: [&str; 13] =
    ["id", "name", "flags", "db", "sub", "psub", "ssub", "multi", "cmd", "user", "redir", "resp", "lib-name"];

fn state_of(line: &str) -> State {
    let fields = line.split(' ').filter_map(|field| field.split_once('='));
    let watches = fields.clone().any(|(name, value)| match name {
        "watch" => value != "0",
        _ => name == "flags" && value.contains('d'),
    });
    let mut state: State = fields
        .filter(|(name, _)| FACTS.contains(name))
        .map(|(name, value)| (name.to_string(), value.to_string()))
        .collect();
    for (name, value) in &mut state {
        if name == "flags" {
            // COMPAT.md: a change of a watched key shows with its client's next command.
            let mut flags: Vec<char> = value.chars().filter(|flag| *flag != 'd').collect();
            flags.sort_unstable();
            *value = if flags.is_empty() { "N".to_string() } else { flags.into_iter().collect() };
        }
    }
    // COMPAT.md: Valkey counts no commands for a client that has watched keys and is in no MULTI, and those
    // of a MULTI that will fail until the key has changed.
    if watches || !has_flag(&state, 'x') {
        state.retain(|(name, _)| name != "multi");
    }
    state
}

pub fn has_flag(state: &State, flag: char) -> bool {
    state.iter().any(|(name, value)| name == "flags" && value.contains(flag))
}

fn text(value: &Value) -> String {
    match value {
        Value::Bulk(text) | Value::Verbatim { text, .. } => String::from_utf8_lossy(text).into_owned(),
        other => other.to_string(),
    }
}

const _: () = assert!(OPERATOR == CONNECTIONS);
