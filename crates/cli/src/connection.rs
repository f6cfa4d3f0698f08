//! One blocking connection: requests out, values in.
//!
//! Bytes that have arrived and were not taken yet wait in one buffer; a reply is taken when its last byte is
//! there. A wait can be ended from outside by a signal, if that was asked for.

use std::io::{self, Read, Write};
use std::net::{SocketAddr, TcpStream, ToSocketAddrs};
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use isotherm_reactor::Stream;
use isotherm_resp::reply_parse::{ReplyReader, Value, parse_value};
use isotherm_stdx::Prng;
use rustix::event::{PollFd, PollFlags, Timespec, poll};

use crate::address::Address;
use crate::text::reason;
use crate::tls::Tls;

const READ_BYTES: usize = 64 << 10;
/// A peer that is gone without a word is noticed within a minute or so.
const KEEPALIVE: Duration = Duration::from_secs(15);
/// A signal that comes just before the wait begins is seen after this time at the latest.
const INTERRUPT_CHECK: Timespec = Timespec { tv_sec: 0, tv_nsec: 200_000_000 };

/// Address family that a name is to be resolved to.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub enum Family {
    #[default]
    Any,
    V4,
    V6,
}

/// Settings for opening a connection.
#[derive(Clone, Copy, Default, Debug)]
pub struct Dial {
    pub timeout: Option<Duration>,
    pub family: Family,
    /// A name may stand for several nodes. A thousand clients that all begin with the first of them overrun
    /// it.
    pub shuffle: bool,
    pub tls: Option<Tls>,
}

/// Why there is no reply.
#[derive(Debug)]
pub enum Broken {
    Closed,
    Interrupted,
    Io(io::Error),
    Protocol(&'static str),
}

impl std::fmt::Display for Broken {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Broken::Closed => f.write_str("Server closed the connection"),
            Broken::Interrupted => f.write_str("Interrupted"),
            Broken::Io(why) => f.write_str(&reason(why)),
            Broken::Protocol(why) => write!(f, "Protocol error, {why}"),
        }
    }
}

impl Broken {
    /// True if connecting again may help.
    pub fn is_lost(&self) -> bool {
        match self {
            Broken::Closed => true,
            Broken::Io(why) => {
                matches!(why.kind(), io::ErrorKind::ConnectionReset | io::ErrorKind::BrokenPipe)
            }
            Broken::Interrupted | Broken::Protocol(_) => false,
        }
    }
}

pub struct Connection {
    stream: Stream,
    buffer: Vec<u8>,
    /// Bytes at the front of `buffer` that have been taken.
    taken: usize,
    interrupt: Option<Arc<AtomicBool>>,
}

impl Connection {
    pub fn open(address: &Address, dial: Dial) -> io::Result<Connection> {
        let stream = match address {
            Address::Unix(path) => Stream::Unix(UnixStream::connect(path)?),
            Address::Tcp { host, port } => {
                let socket = connect_tcp(host, *port, dial)?;
                match dial.tls {
                    Some(tls) => tls.connect(socket)?,
                    None => Stream::Tcp(socket),
                }
            }
        };
        Ok(Connection { stream, buffer: Vec::new(), taken: 0, interrupt: None })
    }

    /// Sets a flag that ends every wait from now on when it is raised.
    pub fn interrupt_by(&mut self, flag: Arc<AtomicBool>) {
        self.interrupt = Some(flag);
    }

    pub fn send<A: AsRef<[u8]>>(&mut self, args: &[A]) -> Result<(), Broken> {
        let mut request = Vec::new();
        push_request(&mut request, args);
        self.write(&request)
    }

    pub fn write(&mut self, bytes: &[u8]) -> Result<(), Broken> {
        self.stream.write_all(bytes).map_err(Broken::Io)
    }

    /// Writes as much of `bytes` as the peer takes at once; needs `set_nonblocking`.
    pub fn write_some(&mut self, bytes: &[u8]) -> io::Result<usize> {
        Write::write(&mut self.stream, bytes)
    }

    pub fn set_nonblocking(&self) -> io::Result<()> {
        rustix::io::ioctl_fionbio(&self.stream, true).map_err(io::Error::from)
    }

    /// Makes every read from now on fail if it gets no data for `timeout`.
    pub fn set_read_timeout(&self, timeout: Duration) -> io::Result<()> {
        use rustix::net::sockopt::{Timeout, set_socket_timeout};
        set_socket_timeout(&self.stream, Timeout::Recv, Some(timeout)).map_err(io::Error::from)
    }

    pub fn read(&mut self) -> Result<Value, Broken> {
        let mut reader = ReplyReader::new();
        loop {
            if let Some(value) = self.take(&mut reader)? {
                return Ok(value);
            }
            self.wait_readable()?;
            self.fill()?;
        }
    }

    /// A reply that has arrived already.
    pub fn read_arrived(&mut self) -> Result<Option<Value>, Broken> {
        self.take(&mut ReplyReader::new())
    }

    pub fn call<A: AsRef<[u8]>>(&mut self, args: &[A]) -> Result<Value, Broken> {
        self.send(args)?;
        self.read()
    }

    fn take(&mut self, reader: &mut ReplyReader) -> Result<Option<Value>, Broken> {
        let arrived = &self.buffer[self.taken..];
        let bad = |bad: isotherm_resp::reply_parse::BadReply| Broken::Protocol(bad.reason);
        if reader.find_end(arrived).map_err(bad)?.is_none() {
            return Ok(None);
        }
        let (value, length) = parse_value(arrived).map_err(bad)?.expect("its end has been found");
        self.taken += length;
        if self.taken == self.buffer.len() {
            self.buffer.clear();
            self.taken = 0;
        }
        Ok(Some(value))
    }

    /// Returns the bytes that have arrived and were not taken yet.
    pub fn arrived(&self) -> &[u8] {
        &self.buffer[self.taken..]
    }

    /// Marks the first `bytes` bytes of `arrived` as taken.
    pub fn consume(&mut self, bytes: usize) {
        self.taken += bytes;
        debug_assert!(self.taken <= self.buffer.len());
    }

    /// Takes what has arrived from the system.
    pub fn fill(&mut self) -> Result<(), Broken> {
        if self.taken > 0 {
            self.buffer.drain(..self.taken);
            self.taken = 0;
        }
        let mut chunk = [0; READ_BYTES];
        let count = loop {
            match Read::read(&mut self.stream, &mut chunk) {
                Err(why) if why.kind() == io::ErrorKind::Interrupted => {}
                other => break other.map_err(Broken::Io)?,
            }
        };
        if count == 0 {
            return Err(Broken::Closed);
        }
        self.buffer.extend_from_slice(&chunk[..count]);
        Ok(())
    }

    /// Returns when there is something to read, or when the interrupt flag was raised.
    fn wait_readable(&self) -> Result<(), Broken> {
        let Some(flag) = &self.interrupt else { return Ok(()) };
        loop {
            if flag.swap(false, Ordering::Relaxed) {
                return Err(Broken::Interrupted);
            }
            let fd = self.as_fd();
            match poll(&mut [PollFd::new(&fd, PollFlags::IN)], Some(&INTERRUPT_CHECK)) {
                Ok(0) | Err(rustix::io::Errno::INTR) => {}
                Ok(_) => return Ok(()),
                Err(why) => return Err(Broken::Io(why.into())),
            }
        }
    }
}

impl AsFd for Connection {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.stream.as_fd()
    }
}

fn connect_tcp(host: &str, port: u16, dial: Dial) -> io::Result<TcpStream> {
    let mut last = io::Error::new(io::ErrorKind::NotFound, "Name or service not known");
    for address in resolve(host, port, dial)? {
        let outcome = match dial.timeout {
            Some(timeout) => TcpStream::connect_timeout(&address, timeout),
            None => TcpStream::connect(address),
        };
        match outcome {
            Ok(stream) => {
                stream.set_nodelay(true)?;
                // Without keepalive everything still works; only a peer that vanishes goes unnoticed for
                // longer.
                rustix::net::sockopt::set_socket_keepalive(&stream, true).ok();
                rustix::net::sockopt::set_tcp_keepidle(&stream, KEEPALIVE).ok();
                rustix::net::sockopt::set_tcp_keepintvl(&stream, KEEPALIVE / 3).ok();
                return Ok(stream);
            }
            Err(why) => last = why,
        }
    }
    Err(last)
}

/// The addresses to try, in order.
pub fn resolve(host: &str, port: u16, dial: Dial) -> io::Result<Vec<SocketAddr>> {
    let unknown = |_| io::Error::new(io::ErrorKind::NotFound, "Name or service not known");
    let mut addresses: Vec<SocketAddr> = (host, port).to_socket_addrs().map_err(unknown)?.collect();
    match dial.family {
        Family::Any => {}
        Family::V4 => addresses.sort_by_key(|address| !address.is_ipv4()),
        Family::V6 => addresses.sort_by_key(|address| !address.is_ipv6()),
    }
    if dial.shuffle && addresses.len() > 1 {
        let start = crate::seed();
        let at = Prng::new(start).below(addresses.len() as u64) as usize;
        addresses.rotate_left(at);
    }
    Ok(addresses)
}

pub fn push_request<A: AsRef<[u8]>>(out: &mut Vec<u8>, args: &[A]) {
    out.extend(format!("*{}\r\n", args.len()).bytes());
    for arg in args {
        let arg = arg.as_ref();
        out.extend(format!("${}\r\n", arg.len()).bytes());
        out.extend(arg);
        out.extend(b"\r\n");
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::TcpListener;

    #[test]
    fn replies_come_in_pieces_and_together() {
        let listener = TcpListener::bind(("127.0.0.1", 0)).unwrap();
        let port = listener.local_addr().unwrap().port();
        let peer = std::thread::spawn(move || {
            let (mut stream, _) = listener.accept().unwrap();
            let mut request = vec![0; b"*1\r\n$4\r\nPING\r\n".len()];
            stream.read_exact(&mut request).unwrap();
            assert_eq!(request, b"*1\r\n$4\r\nPING\r\n");
            for piece in [&b"+PO"[..], b"NG\r\n:1\r\n:2\r\n$5\r\nab"] {
                stream.write_all(piece).unwrap();
                std::thread::sleep(Duration::from_millis(20));
            }
        });
        let mut connection = Connection::open(&Address::tcp("127.0.0.1", port), Dial::default()).unwrap();
        assert_eq!(connection.call(&["PING"]).unwrap(), Value::Simple(b"PONG".to_vec()));
        assert_eq!(connection.read().unwrap(), Value::Integer(1));
        assert_eq!(connection.read_arrived().unwrap(), Some(Value::Integer(2)));
        assert_eq!(connection.read_arrived().unwrap(), None);
        peer.join().unwrap();
        assert!(matches!(connection.read(), Err(Broken::Closed)));
    }

    #[test]
    fn no_server_listens() {
        let port = TcpListener::bind(("127.0.0.1", 0)).unwrap().local_addr().unwrap().port();
        let why = Connection::open(&Address::tcp("127.0.0.1", port), Dial::default()).err().unwrap();
        assert_eq!(reason(&why), "Connection refused");
    }
}
