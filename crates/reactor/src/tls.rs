//! A connection's bytes under TLS: a socket and a session, never blocking.
//!
//! ```text
//! read     socket -> the reader's buffer, behind what was kept -> opened there: plain text at its front
//!                                                                  a record's beginning is kept
//! write    plain text -> sealed in a buffer of the thread -> socket
//!                                                            what it does not take is kept
//! ```
//! A connection that waits owns no buffer. One that reads slowly owns what was sealed and not taken, at most
//! `SEALED_BYTES_MAX`; the plain text of it still counts as not written: `write` takes it once it has left,
//! so its owner offers the same bytes again, as for any other socket.

use isotherm_tls::session::{Failed, RECORD_OVERHEAD_BYTES, RECORD_PLAIN_BYTES, Session, UNOPENED_BYTES_MAX};
use rustix::buffer::spare_capacity;
use rustix::net::{self, RecvFlags, SendFlags};
use std::cell::RefCell;
use std::io::{self, Read};
use std::net::TcpStream;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};

use crate::stream::Progress;

/// Plain text that is sealed for one `send`.
const SEALED_BYTES_MAX: usize = 4 * RECORD_PLAIN_BYTES;
/// A whole record has room in a reader's buffer with so much; with less it is opened in bytes of the
/// connection's own.
const RECORD_BYTES_MAX: usize = RECORD_PLAIN_BYTES + 2 * RECORD_OVERHEAD_BYTES;
/// Maximum number of bytes for a handshake: rustls takes messages of 64 KB each, and a certificate chain may
/// be one.
const HANDSHAKE_BYTES_MAX: usize = 128 << 10;
/// Reads without plain text before others have their turn, and bytes of them: such a record may be 22 bytes,
/// and costs as much as one of 1 KB does.
const EMPTY_READS_MAX: usize = 16;
const EMPTY_BYTES_MAX: usize = 128 << 10;
/// Number of bytes that are read at once into the connection's own buffer.
const OWN_READ_BYTES: usize = RECORD_BYTES_MAX;

/// Switch for tests: while it is on, sockets under TLS accept no bytes.
static TAKES_NOTHING: AtomicBool = AtomicBool::new(false);
/// Number of times that this was switched off. No event reports it.
static TOOK_NOTHING: AtomicU32 = AtomicU32::new(0);

pub fn take_nothing(on: bool) {
    if TAKES_NOTHING.swap(on, Ordering::Relaxed) && !on {
        TOOK_NOTHING.fetch_add(1, Ordering::Relaxed);
    }
}

pub fn took_nothing() -> u32 {
    TOOK_NOTHING.load(Ordering::Relaxed)
}

thread_local! {
    /// Cipher text of the last `send`. The buffer stays with the thread, as large as records of usual replies
    /// need.
    static SEALED: RefCell<Vec<u8>> = const { RefCell::new(Vec::new()) };
}

#[derive(Debug)]
pub struct TlsStream {
    socket: TcpStream,
    session: Session,
    /// Cipher text that is no whole record.
    kept: Vec<u8>,
    /// Plain text for which a reader had no room, and how much of it was read since.
    opened: Vec<u8>,
    opened_done: usize,
    /// Sealed, and not sent: from `unsent_done` on.
    unsent: Vec<u8>,
    unsent_done: usize,
    /// Bytes that were sealed and are not taken yet, as `write` says.
    unsent_plain: usize,
    /// The first message was sent, if this side is the one that begins.
    is_begun: bool,
    /// `shake_hands` has said that it is done.
    is_shaken: bool,
    /// Bytes that have arrived for the handshake.
    shaken_bytes: usize,
    /// The last read has left bytes in the socket, or may have.
    has_more: bool,
    /// Bytes that the call under way has read from the socket.
    received_bytes: usize,
    /// Why it has failed, until that is asked for.
    failed: Option<Failed>,
}

/// Result of a read from the socket.
enum Taken {
    Plain(usize),
    /// No plain text, but a handshake may have gone on.
    Nothing,
    Stopped(Progress),
}

impl TlsStream {
    /// Creates the stream of a connection that the peer has begun.
    pub fn server(socket: TcpStream, session: Session) -> TlsStream {
        TlsStream::new(socket, session, true)
    }

    /// Creates the stream of a connection that this side begins.
    pub fn client(socket: TcpStream, session: Session) -> TlsStream {
        TlsStream::new(socket, session, false)
    }

    fn new(socket: TcpStream, session: Session, is_begun: bool) -> TlsStream {
        TlsStream {
            socket,
            session,
            is_begun,
            is_shaken: false,
            kept: Vec::new(),
            opened: Vec::new(),
            opened_done: 0,
            unsent: Vec::new(),
            unsent_done: 0,
            unsent_plain: 0,
            shaken_bytes: 0,
            has_more: false,
            received_bytes: 0,
            failed: None,
        }
    }

    pub fn socket(&self) -> &TcpStream {
        &self.socket
    }

    pub fn session(&self) -> &Session {
        &self.session
    }

    pub fn take_failed(&mut self) -> Option<Failed> {
        self.failed.take()
    }

    /// Returns whether the last read left no bytes unread: an event will report further ones.
    pub fn is_drained(&self) -> bool {
        !self.has_more && self.opened.is_empty() && !self.session.has_ended()
    }

    /// Returns whether `shake_hands` still has something to do. That is also so if the socket has not taken
    /// the end of the handshake.
    pub fn is_handshaking(&self) -> bool {
        !self.is_shaken
    }

    /// Returns the size of the allocated buffers.
    pub fn buffer_bytes(&self) -> usize {
        self.kept.capacity() + self.opened.capacity() + self.unsent.capacity()
    }

    // ---- the handshake ----

    /// Continues the handshake: a client's begins here. `Bytes`: it is done, and the data that came after it
    /// can be read; `Later`: it needs more from the peer, or the socket takes no more. One call is a step: it
    /// does one piece of work that costs, and `is_drained` says whether more has come.
    pub fn shake_hands(&mut self) -> Progress {
        let progress = self.step();
        self.is_shaken |= matches!(progress, Progress::Bytes(_));
        progress
    }

    fn step(&mut self) -> Progress {
        if !std::mem::replace(&mut self.is_begun, true)
            && let Taken::Stopped(stopped) = self.open(&mut [])
        {
            return stopped;
        }
        match self.flush() {
            Progress::Bytes(_) if !self.session.is_handshaking() => return Progress::Bytes(1),
            Progress::Bytes(_) => {}
            stopped => return stopped,
        }
        let read = receive(&self.socket, &mut self.kept);
        self.has_more = matches!(read, Progress::Bytes(_));
        match read {
            Progress::Bytes(count) => self.shaken_bytes += count,
            Progress::Later => {}
            stopped => return stopped,
        }
        if self.shaken_bytes > HANDSHAKE_BYTES_MAX {
            return Progress::Broken(io::ErrorKind::InvalidData);
        }
        let mut bytes = std::mem::take(&mut self.kept);
        let plain = match self.open(&mut bytes) {
            Taken::Plain(count) => count,
            Taken::Nothing => 0,
            Taken::Stopped(stopped) => return stopped,
        };
        bytes.truncate(plain);
        self.opened = bytes;
        self.opened.shrink_to_fit();
        self.kept.shrink_to_fit();
        match self.session.is_handshaking() || !self.unsent.is_empty() {
            true => Progress::Later,
            false => Progress::Bytes(1),
        }
    }

    // ---- reading ----

    /// Plain text, at most as much as there is room for.
    pub fn read(&mut self, into: &mut [u8]) -> Progress {
        self.received_bytes = 0;
        for _ in 0..EMPTY_READS_MAX {
            if self.received_bytes >= EMPTY_BYTES_MAX {
                break;
            }
            if !self.opened.is_empty() {
                return Progress::Bytes(self.read_opened(into));
            }
            let taken = match self.kept.len() + RECORD_OVERHEAD_BYTES < into.len() {
                _ if self.session.has_ended() => Taken::Stopped(Progress::Ended),
                true => self.read_into(into),
                false => self.read_own(),
            };
            match taken {
                Taken::Plain(0) | Taken::Nothing => {}
                Taken::Plain(count) => return Progress::Bytes(count),
                Taken::Stopped(progress) => return progress,
            }
        }
        self.has_more = true;
        Progress::Later
    }

    /// Reads plain text and appends it to `into`, at most as much as its capacity has room for, and of no
    /// more than `limit` bytes of the socket and a record.
    pub fn append_to(&mut self, into: &mut Vec<u8>, limit: usize) -> Progress {
        let before = into.len();
        let limit = limit.min(into.capacity() - before);
        let mut progress = Progress::Later;
        self.received_bytes = 0;
        while into.len() - before < limit {
            if self.received_bytes >= limit.min(EMPTY_BYTES_MAX) && self.opened.is_empty() {
                // Records of little plain text, or of none: the rest is for the next read.
                self.has_more |= into.len() == before;
                break;
            }
            let left = limit - (into.len() - before);
            if !self.opened.is_empty() {
                let count = (self.opened.len() - self.opened_done).min(left);
                into.extend_from_slice(&self.opened[self.opened_done..self.opened_done + count]);
                self.opened_read(count);
                continue;
            }
            let taken = match self.kept.len() + RECORD_BYTES_MAX <= left {
                _ if self.session.has_ended() => Taken::Stopped(Progress::Ended),
                true => self.read_behind(into, Some(left)),
                false => self.read_own(),
            };
            match taken {
                Taken::Plain(_) | Taken::Nothing => {}
                Taken::Stopped(stopped) => {
                    progress = stopped;
                    break;
                }
            }
        }
        match into.len() - before {
            0 => progress,
            // The end of the reading is met again by the next read.
            count => Progress::Bytes(count),
        }
    }

    /// Appends plain text to `into`, of a single read where that brings any: for a socket that blocks.
    pub fn append_once(&mut self, into: &mut Vec<u8>) -> Progress {
        for _ in 0..EMPTY_READS_MAX {
            if !self.opened.is_empty() {
                let count = self.opened.len() - self.opened_done;
                into.extend_from_slice(&self.opened[self.opened_done..]);
                self.opened_read(count);
                return Progress::Bytes(count);
            }
            if self.session.has_ended() {
                return Progress::Ended;
            }
            match self.read_behind(into, None) {
                Taken::Plain(0) | Taken::Nothing => {}
                Taken::Plain(count) => return Progress::Bytes(count),
                Taken::Stopped(stopped) => return stopped,
            }
        }
        Progress::Later
    }

    /// Reads into the reader's buffer, and opens it there.
    fn read_into(&mut self, into: &mut [u8]) -> Taken {
        let kept = self.kept.len();
        into[..kept].copy_from_slice(&self.kept);
        let mut len = kept;
        let room = into.len() - kept;
        match receive_into(&self.socket, &mut into[kept..]) {
            Progress::Bytes(count) => {
                self.has_more = count == room;
                self.received_bytes += count;
                len += count;
            }
            stopped => return self.stop(stopped),
        }
        self.kept.clear();
        self.open(&mut into[..len])
    }

    /// Reads after the bytes in `into` and opens them there: up to `room` bytes of its spare capacity, or
    /// with a single read.
    fn read_behind(&mut self, into: &mut Vec<u8>, room: Option<usize>) -> Taken {
        let before = into.len();
        into.extend_from_slice(&self.kept);
        let (received, room) = match room.map(|room| room - self.kept.len()) {
            Some(room) => (receive_all(&self.socket, into, room), room),
            None => (receive(&self.socket, into), OWN_READ_BYTES),
        };
        match received {
            Progress::Bytes(count) => {
                self.has_more = count >= room;
                self.received_bytes += count;
            }
            stopped => {
                into.truncate(before);
                return self.stop(stopped);
            }
        }
        self.kept.clear();
        let taken = self.open(&mut into[before..]);
        into.truncate(before + if let Taken::Plain(count) = taken { count } else { 0 });
        taken
    }

    /// Reads into the connection's own buffer and opens the bytes there, if the reader has too little room
    /// for a record.
    fn read_own(&mut self) -> Taken {
        if self.kept.len() > UNOPENED_BYTES_MAX {
            return Taken::Stopped(Progress::Broken(io::ErrorKind::InvalidData));
        }
        match receive(&self.socket, &mut self.kept) {
            Progress::Bytes(count) => {
                self.has_more = count >= OWN_READ_BYTES;
                self.received_bytes += count;
            }
            stopped => return self.stop(stopped),
        }
        let mut bytes = std::mem::take(&mut self.kept);
        match self.open(&mut bytes) {
            Taken::Plain(count) => {
                bytes.truncate(count);
                self.opened = bytes;
                Taken::Nothing
            }
            other => other,
        }
    }

    /// Notes that a read ended without bytes: at the end of the stream, or because there are none now.
    fn stop(&mut self, stopped: Progress) -> Taken {
        self.has_more = false;
        self.kept.shrink_to_fit();
        Taken::Stopped(stopped)
    }

    fn open(&mut self, bytes: &mut [u8]) -> Taken {
        let mut out = Vec::new();
        let opened = self.session.open(bytes, &mut out);
        self.keep_unsent(&mut out);
        // Of what is said to the peer by itself, the socket seldom refuses anything.
        let flushed = if self.unsent.is_empty() { Progress::Bytes(0) } else { self.flush() };
        match opened {
            Ok(opened) => {
                match bytes.len() - opened.used {
                    0 => self.kept = Vec::new(),
                    _ => self.kept.extend_from_slice(&bytes[opened.used..]),
                }
                match opened.plain {
                    0 if self.session.has_ended() => Taken::Stopped(Progress::Ended),
                    0 if matches!(flushed, Progress::Broken(_)) => Taken::Stopped(flushed),
                    0 => Taken::Nothing,
                    count => Taken::Plain(count),
                }
            }
            Err(failed) => Taken::Stopped(self.fail(failed)),
        }
    }

    fn read_opened(&mut self, into: &mut [u8]) -> usize {
        let left = &self.opened[self.opened_done..];
        let count = left.len().min(into.len());
        into[..count].copy_from_slice(&left[..count]);
        self.opened_read(count);
        count
    }

    fn opened_read(&mut self, count: usize) {
        self.opened_done += count;
        if self.opened_done == self.opened.len() {
            self.opened = Vec::new();
            self.opened_done = 0;
        }
    }

    fn fail(&mut self, failed: Failed) -> Progress {
        self.flush();
        self.failed = Some(failed);
        Progress::Broken(io::ErrorKind::InvalidData)
    }

    // ---- writing ----

    /// Takes the part of `bytes` that has left. Bytes that were offered and not taken are to be offered
    /// again: they are sealed already.
    pub fn write(&mut self, bytes: &[u8]) -> Progress {
        if TAKES_NOTHING.load(Ordering::Relaxed) {
            return Progress::Later;
        }
        match self.flush() {
            Progress::Bytes(_) => {}
            stopped => return stopped,
        }
        if self.unsent_plain > 0 {
            // It may be offered in other pieces than before.
            let count = self.unsent_plain.min(bytes.len());
            self.unsent_plain -= count;
            return Progress::Bytes(count);
        }
        let plain = &bytes[..bytes.len().min(SEALED_BYTES_MAX)];
        SEALED.with_borrow_mut(|sealed| {
            sealed.clear();
            if !self.session.seal(&mut self.kept, plain, sealed) {
                return match self.session.is_handshaking() {
                    true => Progress::Later,
                    false => Progress::Broken(io::ErrorKind::ConnectionAborted),
                };
            }
            match send_all(&self.socket, sealed) {
                (sent, _) if sent == sealed.len() => Progress::Bytes(plain.len()),
                (sent, Progress::Later) => {
                    self.unsent = sealed[sent..].to_vec();
                    self.unsent_plain = plain.len();
                    Progress::Later
                }
                (_, stopped) => stopped,
            }
        })
    }

    /// Sends what is sealed. `Bytes(0)`: all of it.
    pub fn flush(&mut self) -> Progress {
        if self.unsent.is_empty() {
            return Progress::Bytes(0);
        }
        let (sent, stopped) = send_all(&self.socket, &self.unsent[self.unsent_done..]);
        self.unsent_done += sent;
        if self.unsent_done < self.unsent.len() {
            return stopped;
        }
        self.unsent = Vec::new();
        self.unsent_done = 0;
        Progress::Bytes(0)
    }

    fn keep_unsent(&mut self, out: &mut Vec<u8>) {
        match self.unsent.is_empty() {
            true => self.unsent = std::mem::take(out),
            false => self.unsent.append(out),
        }
    }
}

impl Drop for TlsStream {
    /// Says that nothing more follows, if the socket takes it: a peer that hears it knows that nothing was
    /// cut off.
    fn drop(&mut self) {
        if self.failed.is_none() && !self.session.is_handshaking() && self.flush() == Progress::Bytes(0) {
            let mut out = Vec::new();
            self.session.seal_end(&mut self.kept, &mut out);
            send_all(&self.socket, &out);
        }
    }
}

fn receive_into(socket: &TcpStream, into: &mut [u8]) -> Progress {
    loop {
        let result = net::recv(socket, &mut *into, RecvFlags::empty()).map(|(count, _)| count);
        if let Some(progress) = Progress::of(result.map_err(io::Error::from)) {
            return progress;
        }
    }
}

/// Receives bytes and appends them to `into`, which gets room for a record.
fn receive(socket: &TcpStream, into: &mut Vec<u8>) -> Progress {
    into.reserve(OWN_READ_BYTES);
    loop {
        let result = net::recv(socket, spare_capacity(into), RecvFlags::empty()).map(|(count, _)| count);
        if let Some(progress) = Progress::of(result.map_err(io::Error::from)) {
            return progress;
        }
    }
}

/// Receives bytes and appends them to `into`, until the socket has nothing more or there are `limit` bytes.
fn receive_all(socket: &TcpStream, into: &mut Vec<u8>, limit: usize) -> Progress {
    let before = into.len();
    let result = socket.take(limit as u64).read_to_end(into);
    match (into.len() - before, result) {
        (0, result) => Progress::of(result.map(|_| 0)).unwrap_or(Progress::Later),
        // The end of the reading, by an error or by the peer, is met again by the next read.
        (count, _) => Progress::Bytes(count),
    }
}

/// Returns how many bytes the socket has taken, and why it took no more.
fn send_all(socket: &TcpStream, bytes: &[u8]) -> (usize, Progress) {
    let mut sent = 0;
    while sent < bytes.len() {
        let result = net::send(socket, &bytes[sent..], SendFlags::NOSIGNAL);
        match Progress::of(result.map_err(io::Error::from)) {
            Some(Progress::Bytes(count)) => sent += count,
            Some(stopped) => return (sent, stopped),
            None => {}
        }
    }
    (sent, Progress::Later)
}
