//! A thread with its connections.
//!
//! A connection sends its batch in one write, then reads until all replies of the batch are there. The
//! latency of a batch is the time to its first byte: what comes after is our own parsing.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::io::{self, Read, Write};
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};

use isotherm_reactor::Stream;
use isotherm_resp::reply_parse::ReplyReader;
use isotherm_stdx::Prng;
use mio::unix::SourceFd;
use mio::{Events, Interest, Poll, Token};

use super::engine::Test;
use super::histogram::Histogram;
use super::nodes::tag_of;
use super::options::ReadFrom;
use crate::Fallible;
use crate::address::Address;
use crate::connection::{Dial, push_request, resolve};
use crate::text::reason;

const READ_BYTES: usize = 64 << 10;
const EVENTS_MAX: usize = 1024;
/// Number of connections that are opened at once: servers limit those that they have not accepted yet.
const OPENED_AT_ONCE: usize = 64;
const OPENING_PAUSE: Duration = Duration::from_millis(50);
/// A cluster that is down may come back.
const CLUSTER_DOWN_PAUSE: Duration = Duration::from_secs(1);

pub struct Worker {
    test: Arc<Test>,
    poll: Poll,
    clients: Vec<Client>,
    histogram: Histogram,
    epoch: u64,
    prng: Prng,
    /// Connections that wait under a limit of requests per second, each with the time when it sends.
    paused: BinaryHeap<Reverse<(Instant, usize)>>,
    /// Connections that have something under way.
    active: usize,
    chunk: Vec<u8>,
}

struct Client {
    stream: Stream,
    /// Node of the connection in a cluster. `generation` is the age of the map by which its slot was drawn.
    node: usize,
    generation: u64,
    /// Commands sent once at the beginning (AUTH, SELECT, ...). `greeting_replies` is the number of their
    /// replies.
    greeting: Vec<u8>,
    greeting_replies: u64,
    batch: Vec<u8>,
    sent: usize,
    /// Replies still to come.
    pending: u64,
    begun: Instant,
    latency_us: Option<u64>,
    arrived: Vec<u8>,
    reader: ReplyReader,
}

impl Worker {
    pub fn new(test: Arc<Test>, index: usize, clients: impl Iterator<Item = usize>) -> Fallible<Worker> {
        let seed = test.options.seed.map_or_else(crate::seed, |seed| seed + index as u64);
        let mut worker = Worker {
            poll: Poll::new().map_err(|why| format!("Cannot wait for sockets: {}", reason(&why)))?,
            clients: Vec::new(),
            histogram: Histogram::new(test.options.precision),
            epoch: test.epoch(),
            prng: Prng::new(seed),
            paused: BinaryHeap::new(),
            active: 0,
            chunk: vec![0; READ_BYTES],
            test,
        };
        for (opened, number) in clients.enumerate() {
            if opened % OPENED_AT_ONCE == OPENED_AT_ONCE - 1 {
                std::thread::sleep(OPENING_PAUSE);
            }
            let node = worker.test.nodes.as_ref().map_or(0, |nodes| number % nodes.list.len());
            let client = worker.open(worker.clients.len(), node)?;
            worker.clients.push(client);
        }
        Ok(worker)
    }

    fn open(&self, token: usize, node: usize) -> Fallible<Client> {
        let options = &self.test.options;
        let address = match &self.test.nodes {
            Some(nodes) => &nodes.list[node].address,
            None => &options.address,
        };
        let stream = connect(address, options.dial)
            .map_err(|why| format!("Could not connect to server at {address}: {}", reason(&why)))?;
        let both = Interest::READABLE | Interest::WRITABLE;
        let number = stream.number();
        (self.poll.registry().register(&mut SourceFd(&number), Token(token), both))
            .map_err(|why| format!("Cannot wait for a socket: {}", reason(&why)))?;
        let (greeting, greeting_replies) = self.greeting();
        Ok(Client {
            stream,
            node,
            generation: 0,
            greeting,
            greeting_replies,
            batch: self.test.template.batch(options.pipeline),
            sent: 0,
            pending: 0,
            begun: Instant::now(),
            latency_us: None,
            arrived: Vec::new(),
            reader: ReplyReader::new(),
        })
    }

    fn greeting(&self) -> (Vec<u8>, u64) {
        let options = &self.test.options;
        let db = options.db.to_string();
        let mut commands: Vec<Vec<&str>> = Vec::new();
        commands.extend(options.login.command());
        if options.tracking {
            commands.push(vec!["CLIENT", "TRACKING", "on"]);
        }
        if options.db != 0 {
            commands.push(vec!["SELECT", &db]);
        }
        if options.resp3 {
            // Tracking wants RESP3 to be there first, where it is asked for.
            commands.insert(options.login.password.is_some().into(), vec!["HELLO", "3"]);
        }
        if self.test.nodes.is_some() && options.read_from != ReadFrom::Primaries {
            commands.push(vec!["READONLY"]);
        }
        let mut bytes = Vec::new();
        for command in &commands {
            push_request(&mut bytes, command);
        }
        (bytes, commands.len() as u64)
    }

    pub fn run(mut self) -> Fallible<Histogram> {
        for at in 0..self.clients.len() {
            self.begin(at)?;
        }
        let mut events = Events::with_capacity(EVENTS_MAX);
        while self.active > 0 && !self.test.is_over() {
            let now = Instant::now();
            let timeout = self.paused.peek().map(|Reverse((at, _))| at.saturating_duration_since(now));
            match self.poll.poll(&mut events, timeout) {
                Err(why) if why.kind() == io::ErrorKind::Interrupted => continue,
                other => other.map_err(|why| format!("Cannot wait for sockets: {}", reason(&why)))?,
            }
            let ready: Vec<usize> = events.iter().map(|event| event.token().0).collect();
            for at in ready {
                self.advance(at)?;
            }
            self.wake_paused()?;
        }
        Ok(self.histogram)
    }

    /// Only opened, and waiting: idle connections.
    pub fn wait_for_ever(mut self) -> Fallible {
        let mut events = Events::with_capacity(EVENTS_MAX);
        loop {
            match self.poll.poll(&mut events, None) {
                Err(why) if why.kind() == io::ErrorKind::Interrupted => continue,
                other => other.map_err(|why| format!("Cannot wait for sockets: {}", reason(&why)))?,
            }
            let ready: Vec<usize> = events.iter().map(|event| event.token().0).collect();
            for at in ready {
                self.clients[at].pending = u64::MAX;
                self.receive(at)?;
            }
        }
    }

    /// Takes a ticket for a batch of this connection and sends it, or lets the connection rest.
    fn begin(&mut self, at: usize) -> Fallible {
        let requests = self.requests_of_a_batch();
        if !self.test.take_ticket(requests) {
            return Ok(());
        }
        self.active += 1;
        let wait = self.test.wait_for_rate(requests);
        if wait.is_zero() {
            return self.launch(at);
        }
        self.paused.push(Reverse((Instant::now() + wait, at)));
        Ok(())
    }

    fn requests_of_a_batch(&self) -> u64 {
        (self.test.options.pipeline * self.test.template.commands) as u64
    }

    fn wake_paused(&mut self) -> Fallible {
        let now = Instant::now();
        while self.paused.peek().is_some_and(|Reverse((at, _))| *at <= now) {
            if let Some(Reverse((_, at))) = self.paused.pop() {
                self.launch(at)?;
            }
        }
        Ok(())
    }

    /// Fills a batch in and sends as much of it as goes.
    fn launch(&mut self, at: usize) -> Fallible {
        if self.test.template.has_tags() && self.test.nodes.is_some() {
            self.fill_tags(at)?;
        }
        let requests = self.requests_of_a_batch();
        let client = &mut self.clients[at];
        if self.test.options.keyspace.is_some() {
            self.test.template.fill_numbers(&mut client.batch, &self.test.numbers, &mut self.prng);
        }
        client.sent = 0;
        client.pending = requests + client.greeting_replies;
        client.latency_us = None;
        client.begun = Instant::now();
        client.send()
    }

    fn fill_tags(&mut self, at: usize) -> Fallible {
        let Some(nodes) = self.test.nodes.clone() else { return Ok(()) };
        let drawn = nodes.draw_slot(self.clients[at].node, &mut self.prng);
        if drawn.node != self.clients[at].node {
            // Its node has no slots any more.
            self.clients[at] = self.open(at, drawn.node)?;
        }
        let client = &mut self.clients[at];
        client.generation = drawn.generation;
        self.test.template.fill_tags(&mut client.batch, tag_of(drawn.slot));
        Ok(())
    }

    /// Advances a connection that something can be done with.
    fn advance(&mut self, at: usize) -> Fallible {
        if self.clients[at].pending == 0 {
            return Ok(());
        }
        self.clients[at].send()?;
        self.receive(at)?;
        if self.clients[at].pending == 0 && self.clients[at].sent > 0 {
            self.complete(at)?;
        }
        Ok(())
    }

    /// All replies of a batch are there.
    fn complete(&mut self, at: usize) -> Fallible {
        self.active -= 1;
        if !self.test.options.keepalive {
            let node = self.clients[at].node;
            self.clients[at] = self.open(at, node)?;
        }
        self.clients[at].sent = 0;
        self.begin(at)
    }

    fn receive(&mut self, at: usize) -> Fallible {
        while self.clients[at].pending > 0 {
            let client = &mut self.clients[at];
            let count = match Read::read(&mut client.stream, &mut self.chunk) {
                Ok(0) => return Err("Error: Server closed the connection".to_string()),
                Ok(count) => count,
                Err(why) if why.kind() == io::ErrorKind::WouldBlock => return Ok(()),
                Err(why) if why.kind() == io::ErrorKind::Interrupted => continue,
                Err(why) => return Err(format!("Error: {}", reason(&why))),
            };
            if client.latency_us.is_none() {
                client.latency_us = Some(client.begun.elapsed().as_micros() as u64);
            }
            client.arrived.extend_from_slice(&self.chunk[..count]);
            self.take_replies(at)?;
            // A read that did not fill its buffer has emptied the socket; a word of more will come.
            if self.clients[at].stream.is_drained(count, self.chunk.len()) {
                break;
            }
        }
        Ok(())
    }

    fn take_replies(&mut self, at: usize) -> Fallible {
        let epoch = self.test.epoch();
        if epoch != self.epoch {
            self.epoch = epoch;
            self.histogram.clear();
        }
        let mut taken = 0;
        let mut finished = 0;
        let client = &mut self.clients[at];
        while client.pending > 0 {
            let rest = &client.arrived[taken..];
            let Some(length) = client
                .reader
                .find_end(rest)
                .map_err(|bad| format!("Error: Protocol error, {}", bad.reason))?
            else {
                break;
            };
            let reply = &rest[..length];
            match reply[0] {
                // A push is no reply.
                b'>' => {}
                b'-' | b'!' if !redirected(reply, client, &self.test, &mut self.prng)? => {
                    return Err(error_reply(reply, client, &self.test));
                }
                _ if client.greeting_replies > 0 => {
                    client.greeting_replies -= 1;
                    // It has been sent, and is not said again. The rest to be sent is counted from the batch.
                    client.sent -= client.greeting.len();
                    client.greeting = Vec::new();
                    client.pending -= 1;
                }
                _ => {
                    client.pending -= 1;
                    finished += 1;
                }
            }
            taken += length;
            client.reader = ReplyReader::new();
        }
        client.arrived.drain(..taken);
        if finished > 0 {
            let latency_us = client.latency_us.unwrap_or(0);
            self.histogram.record(latency_us, finished);
            self.test.note_finished(finished, latency_us);
        }
        Ok(())
    }
}

/// True if this error means that slots have moved, and was handled.
fn redirected(reply: &[u8], client: &Client, test: &Test, prng: &mut Prng) -> Fallible<bool> {
    let Some(nodes) = test.nodes.as_ref().filter(|_| test.template.has_tags()) else { return Ok(false) };
    let down = reply.starts_with(b"-CLUSTERDOWN");
    if !(down || reply.starts_with(b"-MOVED") || reply.starts_with(b"-ASK")) {
        return Ok(false);
    }
    if down {
        eprintln!("{}", error_reply(reply, client, test));
        std::thread::sleep(CLUSTER_DOWN_PAUSE);
    }
    nodes.refresh(client.generation, prng)?;
    Ok(true)
}

fn error_reply(reply: &[u8], client: &Client, test: &Test) -> String {
    let text = match reply[0] {
        b'!' => reply.splitn(2, |&byte| byte == b'\n').nth(1).unwrap_or_default(),
        _ => &reply[1..],
    };
    let text = String::from_utf8_lossy(text);
    match &test.nodes {
        Some(nodes) => format!("Error from server {}: {}", nodes.list[client.node].address, text.trim_end()),
        None => format!("Error from server: {}", text.trim_end()),
    }
}

impl Client {
    /// Sends what is left of the greeting and of the batch.
    fn send(&mut self) -> Fallible {
        while self.sent < self.greeting.len() + self.batch.len() {
            let outcome = match self.sent.checked_sub(self.greeting.len()) {
                None => Write::write(&mut self.stream, &self.greeting[self.sent..]),
                Some(sent) => Write::write(&mut self.stream, &self.batch[sent..]),
            };
            match outcome {
                Ok(count) => self.sent += count,
                Err(why) if why.kind() == io::ErrorKind::WouldBlock => break,
                Err(why) if why.kind() == io::ErrorKind::Interrupted => {}
                Err(why) => return Err(format!("Error writing to the server: {}", reason(&why))),
            }
        }
        Ok(())
    }
}

/// Connects and waits for it: a server that is not there is reported once, and clearly.
fn connect(address: &Address, dial: Dial) -> io::Result<Stream> {
    match address {
        Address::Unix(path) => {
            let stream = std::os::unix::net::UnixStream::connect(path)?;
            stream.set_nonblocking(true)?;
            Ok(Stream::Unix(stream))
        }
        Address::Tcp { host, port } => {
            let addresses: Vec<SocketAddr> = resolve(host, *port, dial)?;
            let stream = std::net::TcpStream::connect(addresses.as_slice())?;
            stream.set_nodelay(true)?;
            let stream = match dial.tls {
                Some(tls) => tls.connect(stream)?,
                None => Stream::Tcp(stream),
            };
            rustix::io::ioctl_fionbio(&stream, true)?;
            Ok(stream)
        }
    }
}
