//! Load at a fixed rate, whatever the server does: what it could not serve in time waits, and its waiting
//! counts.
//!
//! A closed loop sends nothing while a server stalls, so a stall of 100 ms is one slow request in it. Here
//! each command has a moment at which it is due; its time runs from then to its reply.

use std::collections::VecDeque;
use std::io::{ErrorKind, Read, Write};
use std::net::TcpStream;
use std::time::{Duration, Instant};

use crate::Fallible;
use crate::histogram::Histogram;
use crate::reply::{Scanner, Seen};
use crate::shape::Commands;

pub struct OpenLoop {
    pub port: u16,
    pub connections: usize,
    pub per_second: f64,
}

struct Connection {
    stream: TcpStream,
    out: Vec<u8>,
    scanner: Scanner,
    /// Due times of the requests whose replies are still to come.
    due: VecDeque<Instant>,
}

/// Between two looks at sockets that had nothing.
const NAP: Duration = Duration::from_micros(50);
/// Commands on their way at most: above that the server is not slow but gone.
const WAITING_MAX: usize = 20_000_000;
const READ_BYTES: usize = 1 << 16;

impl OpenLoop {
    /// Sends until `is_over`, which is asked every few milliseconds, and waits for the last reply.
    pub fn run(&self, shape: &mut dyn Commands, mut is_over: impl FnMut() -> bool) -> Fallible<Histogram> {
        let named = |why: std::io::Error| format!("open loop on port {}: {why}", self.port);
        let mut connections = Vec::with_capacity(self.connections);
        for _ in 0..self.connections {
            connections.push(Connection::open(self.port).map_err(named)?);
        }
        let (mut times, mut seen) = (Histogram::default(), Seen::default());
        let mut buffer = vec![0; READ_BYTES];
        let (start, mut sent, mut asked, mut ends) = (Instant::now(), 0u64, Instant::now(), false);
        loop {
            if !ends {
                let due = (start.elapsed().as_secs_f64() * self.per_second) as u64;
                while sent < due {
                    let connection = &mut connections[sent as usize % self.connections];
                    shape.write(&mut connection.out);
                    let after = Duration::from_secs_f64(sent as f64 / self.per_second);
                    connection.due.push_back(start + after);
                    sent += 1;
                }
            }
            let (mut moved, mut waiting) = (false, 0);
            for connection in &mut connections {
                moved |= connection.turn(&mut buffer, &mut seen, &mut times).map_err(named)?;
                waiting += connection.due.len();
            }
            if let Some(error) = &seen.first_error {
                return Err(format!("the server on port {} replied -{error}", self.port));
            }
            if waiting > WAITING_MAX {
                return Err(format!("the server on port {} is {waiting} replies behind", self.port));
            }
            if ends && waiting == 0 {
                return Ok(times);
            }
            if !ends && asked.elapsed() > Duration::from_millis(5) {
                ends = is_over();
                asked = Instant::now();
            }
            if !moved {
                std::thread::sleep(NAP);
            }
        }
    }

    /// Sends for the given time, and waits for the last reply.
    pub fn run_for(&self, shape: &mut dyn Commands, time: Duration) -> Fallible<Histogram> {
        let start = Instant::now();
        self.run(shape, || start.elapsed() >= time)
    }
}

impl Connection {
    fn open(port: u16) -> std::io::Result<Connection> {
        let stream = TcpStream::connect(("127.0.0.1", port))?;
        stream.set_nodelay(true)?;
        stream.set_nonblocking(true)?;
        let scanner = Scanner::default();
        Ok(Connection { stream, out: Vec::new(), scanner, due: VecDeque::new() })
    }

    /// Writes and reads what can be. True if something was.
    fn turn(&mut self, buffer: &mut [u8], seen: &mut Seen, times: &mut Histogram) -> std::io::Result<bool> {
        let mut moved = false;
        while !self.out.is_empty() {
            match self.stream.write(&self.out) {
                Ok(bytes) => {
                    self.out.drain(..bytes);
                    moved = true;
                }
                Err(why) if why.kind() == ErrorKind::WouldBlock => break,
                Err(why) if why.kind() == ErrorKind::Interrupted => {}
                Err(why) => return Err(why),
            }
        }
        while !self.due.is_empty() {
            match self.stream.read(buffer) {
                Ok(0) => return Err(ErrorKind::UnexpectedEof.into()),
                Ok(bytes) => {
                    moved = true;
                    let before = seen.replies;
                    self.scanner.scan(&buffer[..bytes], seen);
                    let now = Instant::now();
                    for due in self.due.drain(..(seen.replies - before) as usize) {
                        times.add(now.saturating_duration_since(due));
                    }
                }
                Err(why) if why.kind() == ErrorKind::WouldBlock => break,
                Err(why) if why.kind() == ErrorKind::Interrupted => {}
                Err(why) => return Err(why),
            }
        }
        Ok(moved)
    }
}
