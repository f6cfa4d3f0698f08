//! The port of the metrics: connections, requests, answers.
//!
//! ```text
//! door       accepts, and reads requests of all as their bytes come     one thread, waits for none
//!   |-- /healthz     asks the workers, answers when they have                       health
//!   |-- /metrics     handed over: a page takes its time, and a client may read it slowly
//!   +-- all else     answered at once
//! pages      make a page and send it, within ANSWER_PATIENCE            PAGE_THREADS threads
//! ```
//! A client keeps no other from its answer, whatever it sends or leaves out. A request has
//! `REQUEST_PATIENCE` to arrive, whole; of connections that have sent none the oldest gives way to a new one
//! above `WAITING_MAX`.

use isotherm_reactor::{Events, Token};
use std::collections::BTreeMap;
use std::io::{self, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::os::fd::AsFd;
use std::sync::mpsc::{Receiver, SyncSender, TrySendError, sync_channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use super::health::Health;
use super::host;
use super::page::page;
use isotherm_node::Node;
use isotherm_node::observe::resident;
use isotherm_runtime::log;

/// Time for a whole request to arrive. Its sender is in the same network, and sends one packet.
const REQUEST_PATIENCE: Duration = Duration::from_secs(2);
/// Time for a whole answer, some hundred kilobytes, to leave.
const ANSWER_PATIENCE: Duration = Duration::from_secs(2);
const REQUEST_BYTES_MAX: usize = 8 << 10;
/// Connections whose request has not arrived.
const WAITING_MAX: usize = 16;
/// Probes that are answered together.
const PROBES_MAX: usize = 8;
/// Pages that are made and sent at a time. One that asks for them is usual.
const PAGE_THREADS: usize = 3;
/// Requests for a page that wait for one of these threads.
const PAGES_QUEUED_MAX: usize = 4;
/// Connections that are open at a time.
pub const CONNECTIONS_MAX: usize = WAITING_MAX + PROBES_MAX + PAGE_THREADS + PAGES_QUEUED_MAX;
/// Rest of accepting when it has failed.
const ACCEPT_REST: Duration = Duration::from_millis(100);
/// Connections that are accepted in one turn; each is read too.
const ACCEPTS_PER_TURN_MAX: usize = 64;

const LISTENER: Token = Token(0);

/// A connection whose request has not arrived.
struct Waiting {
    stream: TcpStream,
    head: Vec<u8>,
    deadline: Instant,
}

struct Door {
    events: Events,
    listener: TcpListener,
    /// Moment from which on there may be more to accept.
    accepts_at: Option<Instant>,
    /// Connections by number, which is their order too.
    waiting: BTreeMap<usize, Waiting>,
    number: usize,
    health: Health,
    /// Connections that ask for it.
    probes: Vec<TcpStream>,
    pages: SyncSender<TcpStream>,
}

/// Answers in threads of its own.
pub fn serve(node: &'static Node, listener: TcpListener) -> io::Result<()> {
    let (pages, queue) = sync_channel(PAGES_QUEUED_MAX);
    let queue = Arc::new(Mutex::new(queue));
    for number in 0..PAGE_THREADS {
        let queue = Arc::clone(&queue);
        let run = move || send_pages(node, &queue);
        std::thread::Builder::new().name(format!("metrics-{number}")).spawn(run)?;
    }
    listener.set_nonblocking(true)?;
    let events = Events::new()?;
    events.watch_readable(listener.as_fd(), LISTENER)?;
    let door = Door {
        events,
        listener,
        accepts_at: Some(Instant::now()),
        waiting: BTreeMap::new(),
        number: LISTENER.0,
        health: Health::new(node),
        probes: Vec::new(),
        pages,
    };
    std::thread::Builder::new().name("metrics-door".into()).spawn(move || door.run()).map(drop)
}

impl Door {
    fn run(mut self) {
        resident::note_stack();
        loop {
            if let Err(error) = self.events.wait(self.next_in()) {
                log::warning(format!("The port for metrics is served no longer: {error}"));
                return;
            }
            let ready: Vec<Token> = self.events.ready().map(|ready| ready.token).collect();
            for token in ready {
                match token {
                    LISTENER => self.accepts_at = Some(Instant::now()),
                    Token(number) => self.read(number),
                }
            }
            if self.accepts_at.is_some_and(|at| at <= Instant::now()) {
                self.accept();
            }
            self.close_late();
            if let Some(verdict) = self.health.look() {
                let (status, body) = match &verdict {
                    Ok(()) => ("200 OK", "ok\n"),
                    Err(why) => ("503 Service Unavailable", &why[..]),
                };
                self.probes.drain(..).for_each(|probe| say(probe, status, body));
            }
        }
    }

    /// Returns the time until one is due. Those that came first are due first.
    fn next_in(&self) -> Option<Duration> {
        let first = self.waiting.values().next().map(|waiting| waiting.deadline);
        let due = [first, self.accepts_at, self.health.due()].into_iter().flatten().min()?;
        Some(due.saturating_duration_since(Instant::now()))
    }

    fn close_late(&mut self) {
        let now = Instant::now();
        while self.waiting.first_entry().is_some_and(|first| first.get().deadline <= now) {
            self.waiting.pop_first();
        }
    }

    fn accept(&mut self) {
        for _ in 0..ACCEPTS_PER_TURN_MAX {
            match self.listener.accept() {
                Ok((stream, _)) => self.add(stream),
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                    self.accepts_at = None;
                    return;
                }
                // A peer that is gone before it is answered asks again.
                Err(error) if error.kind() == io::ErrorKind::ConnectionAborted => {}
                // There may be no file descriptor for now.
                Err(_) => {
                    self.accepts_at = Some(Instant::now() + ACCEPT_REST);
                    return;
                }
            }
        }
    }

    fn add(&mut self, stream: TcpStream) {
        self.number += 1;
        let watched = stream
            .set_nonblocking(true)
            .and_then(|()| self.events.watch_readable(stream.as_fd(), Token(self.number)));
        if watched.is_err() {
            return;
        }
        let deadline = Instant::now() + REQUEST_PATIENCE;
        self.waiting.insert(self.number, Waiting { stream, head: Vec::new(), deadline });
        // Bytes that have come already are read now: mostly they are the whole request.
        self.read(self.number);
        while self.waiting.len() > WAITING_MAX {
            self.waiting.pop_first();
        }
    }

    fn read(&mut self, number: usize) {
        let Some(waiting) = self.waiting.get_mut(&number) else { return };
        match waiting.read() {
            Ok(false) => {}
            Ok(true) => {
                let Waiting { stream, head, .. } = self.waiting.remove(&number).expect("it was just read");
                self.events.forget(stream.as_fd());
                self.answer(stream, &head);
            }
            Err(_) => drop(self.waiting.remove(&number)),
        }
    }

    fn answer(&mut self, stream: TcpStream, head: &[u8]) {
        let is_loopback = stream.local_addr().is_ok_and(|address| address.ip().to_canonical().is_loopback());
        match path_of(head) {
            Some("/metrics") if is_loopback && host::is_foreign(head) => {
                say(stream, "403 Forbidden", "forbidden\n");
            }
            Some("/metrics") => {
                if let Err(TrySendError::Full(stream) | TrySendError::Disconnected(stream)) =
                    self.pages.try_send(stream)
                {
                    say(stream, "503 Service Unavailable", "too many requests at a time\n");
                }
            }
            Some("/healthz") if self.probes.len() == PROBES_MAX => {
                say(stream, "503 Service Unavailable", "too many probes at a time\n");
            }
            Some("/healthz") => {
                self.probes.push(stream);
                self.health.ask();
            }
            Some(_) => say(stream, "404 Not Found", "not found\n"),
            None => say(stream, "400 Bad Request", "bad request\n"),
        }
    }
}

impl Waiting {
    /// Reads what has come. Returns whether the request is there: up to the empty line, as much as there may
    /// be, or all that its client sends.
    fn read(&mut self) -> io::Result<bool> {
        let mut bytes = [0; 1024];
        loop {
            match self.stream.read(&mut bytes) {
                Ok(0) => return Ok(true),
                Ok(count) => {
                    let seen = self.head.len().saturating_sub(3);
                    self.head.extend_from_slice(&bytes[..count]);
                    let is_whole = self.head[seen..].windows(4).any(|end| end == b"\r\n\r\n");
                    if is_whole || self.head.len() >= REQUEST_BYTES_MAX {
                        return Ok(true);
                    }
                }
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(false),
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
    }
}

/// The path of a GET, without its query.
fn path_of(request: &[u8]) -> Option<&str> {
    let line = request.split(|&byte| byte == b'\r').next()?;
    let mut words = std::str::from_utf8(line).ok()?.split(' ');
    let (method, path, version) = (words.next()?, words.next()?, words.next()?);
    (method == "GET" && version.starts_with("HTTP/1.")).then(|| path.split('?').next().unwrap_or(path))
}

// ---- answers ----

fn response(status: &str, kind: &str, body: &str) -> String {
    let length = body.len();
    format!(
        "HTTP/1.1 {status}\r\nContent-Type: {kind}\r\nContent-Length: {length}\r\nConnection: close\r\n\r\n{body}"
    )
}

/// Sends a short answer, which the socket's empty buffer takes whole, and closes.
fn say(mut stream: TcpStream, status: &str, body: &str) {
    let _ = stream.write(response(status, "text/plain", body).as_bytes());
}

fn send_pages(node: &Node, queue: &Mutex<Receiver<TcpStream>>) {
    resident::note_stack();
    loop {
        let next = queue.lock().unwrap_or_else(PoisonError::into_inner).recv();
        let Ok(stream) = next else { return };
        let text = response("200 OK", "text/plain; version=0.0.4; charset=utf-8", &page(node));
        // A client that does not read its page asks again.
        let _ = send(stream, &text);
    }
}

fn send(mut stream: TcpStream, text: &str) -> io::Result<()> {
    stream.set_nonblocking(false)?;
    let deadline = Instant::now() + ANSWER_PATIENCE;
    let mut left = text.as_bytes();
    while !left.is_empty() {
        let patience = deadline.saturating_duration_since(Instant::now());
        if patience.is_zero() {
            return Err(io::ErrorKind::TimedOut.into());
        }
        stream.set_write_timeout(Some(patience))?;
        match stream.write(left) {
            Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
            Ok(count) => left = &left[count..],
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn requests() {
        let check = |request: &str, expected: Option<&str>| assert_eq!(path_of(request.as_bytes()), expected);
        check("GET /metrics HTTP/1.1\r\nHost: x\r\n\r\n", Some("/metrics"));
        check("GET /metrics?x=1 HTTP/1.0\r\n\r\n", Some("/metrics"));
        check("POST /metrics HTTP/1.1\r\n\r\n", None);
        check("GET /metrics\r\n\r\n", None);
        check("", None);
    }
}
