//! Load over many connections from one thread: each sends a batch, waits for all its replies, sends the next.
//!
//! One thread, because the generator has one core to itself and must not steal from the server's. The time
//! from sending a batch to its last reply goes into a histogram.

use std::io::{ErrorKind, Read, Write};
use std::net::SocketAddr;
use std::time::{Duration, Instant};

use mio::net::TcpStream;
use mio::{Events, Interest, Poll, Token};

use crate::histogram::Histogram;
use crate::process::Server;
use crate::reply::{Scanner, Seen};
use crate::shape::Commands;
use crate::{Fallible, progress};

pub struct Load {
    pub port: u16,
    pub connections: usize,
    pub pipeline: u64,
}

/// Condition for the end of a load.
#[derive(Clone, Copy)]
pub enum Until {
    Commands(u64),
    Passed(Duration),
}

pub struct Ran {
    pub commands: u64,
    pub nulls: u64,
    pub passed: Duration,
    /// Times from sending a batch to its last reply.
    pub batches: Histogram,
}

impl Ran {
    pub fn per_second(&self) -> f64 {
        self.commands as f64 / self.passed.as_secs_f64()
    }
}

/// Sends all commands of a shape, in ten parts with a line of progress each if that takes long.
pub fn fill(server: &Server, shape: &mut dyn Commands, commands: u64, name: &str) -> Fallible {
    send_all(&Load::fifty(server.port, 64), server, shape, commands, name)
}

/// Fills a server over one connection, so that the commands arrive in their order.
pub fn fill_in_order(server: &Server, shape: &mut dyn Commands, commands: u64, name: &str) -> Fallible {
    let load = Load { port: server.port, connections: 1, pipeline: 128 };
    send_all(&load, server, shape, commands, name)
}

fn send_all(load: &Load, server: &Server, shape: &mut dyn Commands, commands: u64, name: &str) -> Fallible {
    let part = if commands >= 2_000_000 { commands.div_ceil(10) } else { commands };
    let mut sent = 0;
    while sent < commands {
        let now = part.min(commands - sent);
        let ran = load.run(shape, Until::Commands(now))?;
        sent += now;
        let speed = ran.per_second() / 1e3;
        progress(&format!("{name} {}: {sent} of {commands} ({speed:.0} k/s)", server.side.name()));
    }
    Ok(())
}

struct Connection {
    stream: TcpStream,
    out: Vec<u8>,
    written: usize,
    scanner: Scanner,
    /// Replies of the batch that are still to come.
    awaited: u64,
    sent: Instant,
}

/// A batch of 32 short replies is some 700 B; this holds many at once.
const READ_BYTES: usize = 1 << 16;

impl Load {
    /// The usual shape of a benchmark: 50 connections.
    pub fn fifty(port: u16, pipeline: u64) -> Load {
        Load { port, connections: 50, pipeline }
    }

    pub fn run(&self, shape: &mut dyn Commands, until: Until) -> Fallible<Ran> {
        let named = |why: std::io::Error| format!("load on port {}: {why}", self.port);
        let mut poll = Poll::new().map_err(named)?;
        let mut connections = Vec::with_capacity(self.connections);
        for index in 0..self.connections {
            connections.push(self.connect(&poll, index).map_err(named)?);
        }
        let start = Instant::now();
        let mut run = Running {
            shape,
            until,
            start,
            started: 0,
            finished: 0,
            seen: Seen::default(),
            batches: Histogram::default(),
        };
        for connection in &mut connections {
            run.next_batch(connection, self.pipeline).map_err(named)?;
        }
        let mut events = Events::with_capacity(self.connections.max(64));
        let mut buffer = vec![0; READ_BYTES];
        while run.finished < run.started {
            poll.poll(&mut events, Some(Duration::from_secs(60))).map_err(named)?;
            if events.is_empty() {
                return Err(format!("the server on port {} sent nothing for a minute", self.port));
            }
            for event in &events {
                let connection = &mut connections[event.token().0];
                flush(connection).map_err(named)?;
                if event.is_readable() {
                    run.read(connection, &mut buffer, self.pipeline).map_err(named)?;
                }
            }
            if let Some(error) = &run.seen.first_error {
                return Err(format!("the server on port {} replied -{error}", self.port));
            }
        }
        Ok(Ran {
            commands: run.finished,
            nulls: run.seen.nulls,
            passed: start.elapsed(),
            batches: run.batches,
        })
    }

    fn connect(&self, poll: &Poll, index: usize) -> std::io::Result<Connection> {
        let address = SocketAddr::from(([127, 0, 0, 1], self.port));
        let stream = std::net::TcpStream::connect(address)?;
        stream.set_nodelay(true)?;
        stream.set_nonblocking(true)?;
        let mut stream = TcpStream::from_std(stream);
        poll.registry().register(&mut stream, Token(index), Interest::READABLE | Interest::WRITABLE)?;
        let scanner = Scanner::default();
        Ok(Connection { stream, out: Vec::new(), written: 0, scanner, awaited: 0, sent: Instant::now() })
    }
}

struct Running<'a> {
    shape: &'a mut dyn Commands,
    until: Until,
    start: Instant,
    started: u64,
    finished: u64,
    seen: Seen,
    batches: Histogram,
}

impl Running<'_> {
    fn next_batch(&mut self, connection: &mut Connection, pipeline: u64) -> std::io::Result<()> {
        let batch = match self.until {
            Until::Commands(total) => pipeline.min(total - self.started),
            Until::Passed(time) if self.start.elapsed() < time => pipeline,
            Until::Passed(_) => 0,
        };
        if batch == 0 {
            return Ok(());
        }
        connection.out.clear();
        connection.written = 0;
        for _ in 0..batch {
            self.shape.write(&mut connection.out);
        }
        self.started += batch;
        connection.awaited = batch;
        connection.sent = Instant::now();
        flush(connection)
    }

    /// Reads until nothing is left; the last reply of a batch starts the next.
    fn read(&mut self, connection: &mut Connection, buffer: &mut [u8], pipeline: u64) -> std::io::Result<()> {
        loop {
            let bytes = match connection.stream.read(buffer) {
                Ok(0) => return Err(ErrorKind::UnexpectedEof.into()),
                Ok(bytes) => bytes,
                Err(why) if why.kind() == ErrorKind::WouldBlock => return Ok(()),
                Err(why) if why.kind() == ErrorKind::Interrupted => continue,
                Err(why) => return Err(why),
            };
            let before = self.seen.replies;
            connection.scanner.scan(&buffer[..bytes], &mut self.seen);
            let replies = self.seen.replies - before;
            assert!(replies <= connection.awaited, "more replies than commands");
            connection.awaited -= replies;
            self.finished += replies;
            if connection.awaited == 0 && replies > 0 {
                self.batches.add(connection.sent.elapsed());
                self.next_batch(connection, pipeline)?;
            }
            // A short read has emptied the socket; the next byte comes with an event of its own.
            if bytes < buffer.len() {
                return Ok(());
            }
        }
    }
}

fn flush(connection: &mut Connection) -> std::io::Result<()> {
    while connection.written < connection.out.len() {
        match connection.stream.write(&connection.out[connection.written..]) {
            Ok(bytes) => connection.written += bytes,
            Err(why) if why.kind() == ErrorKind::WouldBlock => return Ok(()),
            Err(why) if why.kind() == ErrorKind::Interrupted => {}
            Err(why) => return Err(why),
        }
    }
    Ok(())
}
