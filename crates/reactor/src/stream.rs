//! Byte stream of a connection: TCP, a unix socket, or TLS over TCP; never blocking.

use rustix::buffer::spare_capacity;
use rustix::net::{self, RecvFlags, SendFlags, sockopt};
use std::io::{self, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd};
use std::os::unix::net::UnixStream;
use std::time::Duration;

use crate::tls::TlsStream;

#[derive(Debug)]
pub enum Stream {
    Tcp(TcpStream),
    Unix(UnixStream),
    Tls(Box<TlsStream>),
}

/// Result of a read or a write.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Progress {
    /// Number of bytes, at least one.
    Bytes(usize),
    /// No bytes now: an event will follow.
    Later,
    /// The peer sends no more.
    Ended,
    /// The connection is broken.
    Broken(io::ErrorKind),
}

impl Progress {
    pub(crate) fn of(result: io::Result<usize>) -> Option<Progress> {
        match result {
            Ok(0) => Some(Progress::Ended),
            Ok(count) => Some(Progress::Bytes(count)),
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => Some(Progress::Later),
            Err(error) if error.kind() == io::ErrorKind::Interrupted => None,
            Err(error) => Some(Progress::Broken(error.kind())),
        }
    }
}

impl From<Progress> for io::Result<usize> {
    /// Returns the result that a blocking socket would return.
    fn from(progress: Progress) -> io::Result<usize> {
        match progress {
            Progress::Bytes(count) => Ok(count),
            Progress::Ended => Ok(0),
            Progress::Later => Err(io::ErrorKind::WouldBlock.into()),
            Progress::Broken(kind) => Err(kind.into()),
        }
    }
}

impl Read for Stream {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        let progress = Stream::read(self, into);
        // Why TLS has failed is more than a kind of error.
        match self.tls().and_then(TlsStream::take_failed) {
            Some(failed) if matches!(progress, Progress::Broken(_)) => {
                Err(io::Error::other(failed.to_string()))
            }
            _ => progress.into(),
        }
    }
}

impl Write for Stream {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        Stream::write(self, bytes).into()
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl Stream {
    /// Makes a connection ready for the loop: it never blocks, and small writes leave at once.
    pub fn prepare(&self, keepalive: Option<Duration>) -> io::Result<()> {
        match self {
            Stream::Unix(stream) => stream.set_nonblocking(true),
            Stream::Tcp(stream) => prepare_tcp(stream, keepalive),
            Stream::Tls(tls) => prepare_tcp(tls.socket(), keepalive),
        }
    }

    #[inline]
    pub fn read(&mut self, into: &mut [u8]) -> Progress {
        if let Stream::Tls(tls) = self {
            return tls.read(into);
        }
        loop {
            // Not by way of the standard library: its calls can be cancelled, which costs some 100 ns each.
            let result = net::recv(&*self, &mut *into, RecvFlags::empty()).map(|(count, _)| count);
            if let Some(progress) = Progress::of(result.map_err(io::Error::from)) {
                return progress;
            }
        }
    }

    /// Appends at most `limit` bytes to `into`, without clearing memory first. It reads until the socket has
    /// nothing more.
    pub fn append_to(&mut self, into: &mut Vec<u8>, limit: usize) -> Progress {
        let before = into.len();
        let result = match self {
            Stream::Tcp(stream) => (&*stream).take(limit as u64).read_to_end(into),
            Stream::Unix(stream) => (&*stream).take(limit as u64).read_to_end(into),
            Stream::Tls(tls) => return tls.append_to(into, limit),
        };
        match (into.len() - before, result) {
            (0, result) => Progress::of(result.map(|_| 0)).unwrap_or(Progress::Later),
            // The end of the reading, by an error or by the peer, is met again by the next read.
            (count, _) => Progress::Bytes(count),
        }
    }

    #[inline]
    pub fn write(&mut self, bytes: &[u8]) -> Progress {
        if let Stream::Tls(tls) = self {
            return tls.write(bytes);
        }
        loop {
            let result = net::send(&*self, bytes, SendFlags::NOSIGNAL);
            if let Some(progress) = Progress::of(result.map_err(io::Error::from)) {
                return progress;
            }
        }
    }

    /// Appends what a single read brings, for a socket that blocks: `WouldBlock` is the end of its patience.
    pub fn receive(&mut self, into: &mut Vec<u8>) -> io::Result<usize> {
        if let Stream::Tls(tls) = self {
            return tls.append_once(into).into();
        }
        net::recv(&*self, spare_capacity(into), RecvFlags::empty())
            .map(|(count, _)| count)
            .map_err(io::Error::from)
    }

    /// The socket, if it is one of TCP.
    pub fn tcp(&self) -> Option<&TcpStream> {
        match self {
            Stream::Tcp(stream) => Some(stream),
            Stream::Tls(tls) => Some(tls.socket()),
            Stream::Unix(_) => None,
        }
    }

    /// Returns the error with which the attempt to connect has ended, if it has failed.
    pub fn take_error(&self) -> io::Result<()> {
        sockopt::socket_error(self)?.map_err(io::Error::from)
    }

    /// Returns whether a read of `count` bytes into room for `room` bytes has emptied the socket.
    #[inline]
    pub fn is_drained(&self, count: usize, room: usize) -> bool {
        match self {
            Stream::Tls(tls) => tls.is_drained(),
            _ => count < room,
        }
    }

    /// Returns whether the stream cannot be read or written yet: `TlsStream::shake_hands` comes first.
    #[inline]
    pub fn is_handshaking(&self) -> bool {
        matches!(self, Stream::Tls(tls) if tls.is_handshaking())
    }

    /// Returns the stream under TLS, if the connection uses TLS.
    pub fn tls(&mut self) -> Option<&mut TlsStream> {
        match self {
            Stream::Tls(tls) => Some(tls),
            _ => None,
        }
    }

    /// Returns the size of the allocated buffers.
    #[inline]
    pub fn buffer_bytes(&self) -> usize {
        match self {
            Stream::Tls(tls) => tls.buffer_bytes(),
            _ => 0,
        }
    }

    pub fn is_unix(&self) -> bool {
        matches!(self, Stream::Unix(_))
    }

    /// The peer and our side, where they are internet addresses.
    pub fn addresses(&self) -> Option<(SocketAddr, SocketAddr)> {
        match self {
            Stream::Tcp(stream) => Some((stream.peer_addr().ok()?, stream.local_addr().ok()?)),
            Stream::Tls(tls) => Some((tls.socket().peer_addr().ok()?, tls.socket().local_addr().ok()?)),
            Stream::Unix(_) => None,
        }
    }

    pub fn number(&self) -> i32 {
        self.as_fd().as_raw_fd()
    }
}

impl AsFd for Stream {
    fn as_fd(&self) -> BorrowedFd<'_> {
        match self {
            Stream::Tcp(stream) => stream.as_fd(),
            Stream::Unix(stream) => stream.as_fd(),
            Stream::Tls(tls) => tls.socket().as_fd(),
        }
    }
}

fn prepare_tcp(stream: &TcpStream, keepalive: Option<Duration>) -> io::Result<()> {
    stream.set_nonblocking(true)?;
    stream.set_nodelay(true)?;
    match keepalive {
        Some(idle) => set_keepalive(stream, idle),
        None => Ok(()),
    }
}

/// Asks after a silence of `idle`, then every third of it, and gives up after three questions.
fn set_keepalive(stream: &TcpStream, idle: Duration) -> io::Result<()> {
    sockopt::set_socket_keepalive(stream, true)?;
    sockopt::set_tcp_keepidle(stream, idle)?;
    sockopt::set_tcp_keepintvl(stream, (idle / 3).max(Duration::from_secs(1)))?;
    sockopt::set_tcp_keepcnt(stream, 3)?;
    Ok(())
}
