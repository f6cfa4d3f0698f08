//! Connections to targets: kept for some seconds, since one MIGRATE mostly follows another.
//!
//! A step - to connect, to write 64 KB, to read a line - has as much time as the client has given; its thread
//! looks meanwhile, some times a second, whether the process is about to end.

use isotherm_reactor::{Stream, connect};
use std::io::{ErrorKind, Read, Write};
use std::net::{TcpStream, ToSocketAddrs};
use std::time::{Duration, Instant};

use crate::tls::TlsState;

/// Connections that are kept.
pub const KEPT_MAX: usize = 64;
/// Time for which an unused connection is kept.
const KEPT_FOR: Duration = Duration::from_secs(10);
const WRITE_BYTES: usize = 64 << 10;
const READ_BYTES: usize = 16 << 10;
/// A line that is longer is no reply.
const LINE_BYTES_MAX: usize = 64 << 10;
/// Time that a thread waits for a socket before it looks around.
const LOOK: Duration = Duration::from_millis(100);

/// A connection is of no use any more.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Lost {
    pub is_timeout: bool,
}

const BROKEN: Lost = Lost { is_timeout: false };
const TIMEOUT: Lost = Lost { is_timeout: true };

/// Limits of the time that a step is waited for.
#[derive(Clone, Copy)]
pub struct Patience<'p> {
    pub step: Duration,
    /// Moment at which all steps together have to be over.
    pub until: Option<Instant>,
    pub is_over: &'p dyn Fn() -> bool,
}

impl Patience<'_> {
    fn begin(&self) -> Option<Instant> {
        let step = Instant::now().checked_add(self.step);
        self.until.map_or(step, |until| Some(step.map_or(until, |step| step.min(until))))
    }

    /// Returns how long to wait for the socket now.
    fn slice(&self, deadline: Option<Instant>) -> Result<Duration, Lost> {
        let left = deadline.map_or(LOOK, |deadline| deadline.saturating_duration_since(Instant::now()));
        if left.is_zero() || (self.is_over)() { Err(TIMEOUT) } else { Ok(left.min(LOOK)) }
    }
}

/// A connection.
pub struct Target {
    stream: Stream,
    name: Name,
    /// The database that it has selected, if that is known.
    pub selected: Option<i64>,
    last_use: Instant,
    input: Vec<u8>,
    /// Bytes of `input` that were read as lines.
    taken: usize,
    /// Longest wait of the socket, as the socket has it.
    slice: Duration,
}

/// Host and port, as the client has written them.
type Name = (Box<[u8]>, Box<[u8]>);

/// Parses a number as C does: the digits that stand in front of anything else.
fn port_number(text: &[u8]) -> u16 {
    let digits: String =
        text.iter().take_while(|byte| byte.is_ascii_digit()).map(|byte| char::from(*byte)).collect();
    digits.parse().unwrap_or(0)
}

impl Target {
    /// A target that refuses is `BROKEN`; one that there is no way to is `TIMEOUT`, as is one that does not
    /// answer. Under TLS if there is something to make that with.
    pub fn connect(
        host: &[u8],
        port: &[u8],
        tls: Option<&TlsState>,
        patience: Patience<'_>,
    ) -> Result<Target, Lost> {
        let name = std::str::from_utf8(host).map_err(|_| TIMEOUT)?;
        let addresses = (name, port_number(port)).to_socket_addrs().map_err(|_| TIMEOUT)?;
        let deadline = patience.begin();
        let mut lost = TIMEOUT;
        for address in addresses {
            let left = deadline.map_or(patience.step, |end| end.saturating_duration_since(Instant::now()));
            if left.is_zero() {
                return Err(TIMEOUT);
            }
            match connect::connect(None, address, left) {
                Ok(stream) => {
                    // Without it small requests are late; they come all the same.
                    let _ = stream.set_nodelay(true);
                    return Ok(Target {
                        stream: under_tls(stream, tls, deadline, patience)?,
                        name: (host.into(), port.into()),
                        selected: None,
                        last_use: Instant::now(),
                        input: Vec::new(),
                        taken: 0,
                        slice: Duration::ZERO,
                    });
                }
                Err(error) => lost = Lost { is_timeout: error.kind() != ErrorKind::ConnectionRefused },
            }
        }
        Err(lost)
    }

    fn wait_at_most(&mut self, slice: Duration) -> Result<(), Lost> {
        if self.slice != slice {
            let socket = self.stream.tcp().ok_or(BROKEN)?;
            let set = socket.set_read_timeout(Some(slice));
            set.and_then(|()| socket.set_write_timeout(Some(slice))).map_err(|_| BROKEN)?;
            self.slice = slice;
        }
        Ok(())
    }

    pub fn send(&mut self, bytes: &[u8], patience: Patience<'_>) -> Result<(), Lost> {
        for mut rest in bytes.chunks(WRITE_BYTES) {
            let deadline = patience.begin();
            while !rest.is_empty() {
                self.wait_at_most(patience.slice(deadline)?)?;
                match Write::write(&mut self.stream, rest) {
                    Ok(0) => return Err(BROKEN),
                    Ok(written) => rest = &rest[written..],
                    Err(error) if is_no_more_than_late(error.kind()) => {}
                    Err(_) => return Err(BROKEN),
                }
            }
        }
        Ok(())
    }

    /// The next line, without its end.
    pub fn line(&mut self, patience: Patience<'_>) -> Result<Vec<u8>, Lost> {
        let deadline = patience.begin();
        let mut looked = self.taken;
        loop {
            if let Some(length) = self.input[looked..].iter().position(|byte| *byte == b'\n') {
                let line = &self.input[self.taken..looked + length];
                let line = line.strip_suffix(b"\r").unwrap_or(line).to_vec();
                self.taken = looked + length + 1;
                return Ok(line);
            }
            self.input.drain(..self.taken);
            self.taken = 0;
            looked = self.input.len();
            if looked > LINE_BYTES_MAX {
                return Err(BROKEN);
            }
            self.fill(patience, deadline)?;
        }
    }

    fn fill(&mut self, patience: Patience<'_>, deadline: Option<Instant>) -> Result<(), Lost> {
        let had = self.input.len();
        self.input.resize(had + READ_BYTES, 0);
        let read = loop {
            let slice = patience.slice(deadline).and_then(|slice| self.wait_at_most(slice));
            if let Err(lost) = slice {
                break Err(lost);
            }
            match Read::read(&mut self.stream, &mut self.input[had..]) {
                Ok(0) => break Err(BROKEN),
                Ok(read) => break Ok(read),
                Err(error) if is_no_more_than_late(error.kind()) => {}
                Err(_) => break Err(BROKEN),
            }
        };
        self.input.truncate(had + read.unwrap_or(0));
        read.map(|_| ())
    }

    /// Returns whether all that the target has sent was asked for.
    fn is_in_step(&self) -> bool {
        self.taken == self.input.len()
    }
}

/// With the handshake of TLS, which is a step like others.
fn under_tls(
    socket: TcpStream,
    tls: Option<&TlsState>,
    deadline: Option<Instant>,
    patience: Patience<'_>,
) -> Result<Stream, Lost> {
    let Some(tls) = tls else { return Ok(Stream::Tcp(socket)) };
    let set = socket.set_read_timeout(Some(LOOK));
    set.and_then(|()| socket.set_write_timeout(Some(LOOK))).map_err(|_| BROKEN)?;
    let connected = tls.connect_now(socket, || patience.slice(deadline).is_err());
    connected.map_err(|error| Lost { is_timeout: error.kind() == ErrorKind::TimedOut })
}

fn is_no_more_than_late(kind: ErrorKind) -> bool {
    matches!(kind, ErrorKind::WouldBlock | ErrorKind::TimedOut | ErrorKind::Interrupted)
}

/// The connections that are not in use; the one that was used last at the end.
#[derive(Default)]
pub struct Sockets(Vec<Target>);

impl Sockets {
    pub fn count(&self) -> usize {
        self.0.len()
    }

    /// Takes the one to this target that was used last.
    pub fn take(&mut self, host: &[u8], port: &[u8]) -> Option<Target> {
        let at = self.0.iter().rposition(|target| *target.name.0 == *host && *target.name.1 == *port)?;
        Some(self.0.remove(at))
    }

    /// Keeps one for the next MIGRATE to its target.
    pub fn put(&mut self, mut target: Target) {
        if !target.is_in_step() {
            return;
        }
        if self.0.len() == KEPT_MAX {
            self.0.remove(0);
        }
        target.last_use = Instant::now();
        target.input = Vec::new();
        target.taken = 0;
        self.0.push(target);
    }

    /// Closes those that were not used for long.
    pub fn close_idle(&mut self) {
        self.0.retain(|target| target.last_use.elapsed() <= KEPT_FOR);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::TcpListener;

    fn patience(step: Duration) -> Patience<'static> {
        Patience { step, until: None, is_over: &|| false }
    }

    const LONG: Duration = Duration::from_secs(20);

    #[test]
    fn lines_are_read_however_they_come() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let port = listener.local_addr().unwrap().port().to_string();
        let mut target = Target::connect(b"127.0.0.1", port.as_bytes(), None, patience(LONG)).unwrap();
        let (mut theirs, _) = listener.accept().unwrap();
        theirs.write_all(b"+OK\r\n-ERR a").unwrap();
        assert_eq!(target.line(patience(LONG)).unwrap(), b"+OK");
        let mut sockets = Sockets::default();
        theirs.write_all(b" b\r\n:1\n").unwrap();
        assert_eq!(target.line(patience(LONG)).unwrap(), b"-ERR a b");
        assert_eq!(target.line(patience(LONG)).unwrap(), b":1");
        let short = Duration::from_millis(20);
        assert_eq!(target.line(patience(short)), Err(TIMEOUT));
        sockets.put(target);
        assert!(sockets.take(b"localhost", port.as_bytes()).is_none());
        let mut target = sockets.take(b"127.0.0.1", port.as_bytes()).unwrap();
        theirs.write_all(&vec![b'x'; 2 * LINE_BYTES_MAX]).unwrap();
        assert_eq!(target.line(patience(LONG)), Err(BROKEN));
        sockets.put(target);
        assert_eq!(sockets.count(), 0, "it has sent what was not asked for");
    }

    #[test]
    fn what_is_not_read_is_not_waited_for_without_end() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let port = listener.local_addr().unwrap().port().to_string();
        let mut target = Target::connect(b"127.0.0.1", port.as_bytes(), None, patience(LONG)).unwrap();
        let much = vec![0; 64 << 20];
        assert_eq!(target.send(&much, patience(Duration::from_millis(50))), Err(TIMEOUT));
        let ending = Patience { step: LONG, until: None, is_over: &|| true };
        assert_eq!(target.line(ending), Err(TIMEOUT));
    }

    #[test]
    fn ports_are_read_as_c_reads_them() {
        for (text, port) in [("6379", 6379), ("6379x", 6379), ("", 0), ("x", 0), ("99999", 0)] {
            assert_eq!(port_number(text.as_bytes()), port, "{text}");
        }
    }
}
