//! One connection's bytes: TCP or a unix socket, never blocking.

use rustix::net::{self, RecvFlags, SendFlags, sockopt};
use std::io::{self, Read};
use std::net::{SocketAddr, TcpStream};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd};
use std::os::unix::net::UnixStream;
use std::time::Duration;

#[derive(Debug)]
pub enum Stream {
    Tcp(TcpStream),
    Unix(UnixStream),
}

/// How a read or a write ended.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Progress {
    /// So many bytes, and at least one.
    Bytes(usize),
    /// Nothing now: an event will follow.
    Later,
    /// The peer sends no more.
    Ended,
    /// The connection is broken.
    Broken(io::ErrorKind),
}

impl Progress {
    fn of(result: io::Result<usize>) -> Option<Progress> {
        match result {
            Ok(0) => Some(Progress::Ended),
            Ok(count) => Some(Progress::Bytes(count)),
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => Some(Progress::Later),
            Err(error) if error.kind() == io::ErrorKind::Interrupted => None,
            Err(error) => Some(Progress::Broken(error.kind())),
        }
    }
}

impl Stream {
    /// Makes a connection ready for the loop: it never blocks, and small writes leave at once.
    pub fn prepare(&self, keepalive: Option<Duration>) -> io::Result<()> {
        match self {
            Stream::Unix(stream) => stream.set_nonblocking(true),
            Stream::Tcp(stream) => {
                stream.set_nonblocking(true)?;
                stream.set_nodelay(true)?;
                match keepalive {
                    Some(idle) => set_keepalive(stream, idle),
                    None => Ok(()),
                }
            }
        }
    }

    #[inline]
    pub fn read(&self, into: &mut [u8]) -> Progress {
        loop {
            // Not by way of the standard library: its calls can be cancelled, which costs some 100 ns each.
            let result = net::recv(self, &mut *into, RecvFlags::empty()).map(|(count, _)| count);
            if let Some(progress) = Progress::of(result.map_err(io::Error::from)) {
                return progress;
            }
        }
    }

    /// Appends at most `limit` bytes to `into`, without clearing memory first. It reads until the socket has nothing
    /// more.
    pub fn append_to(&self, into: &mut Vec<u8>, limit: usize) -> Progress {
        let before = into.len();
        let result = match self {
            Stream::Tcp(stream) => stream.take(limit as u64).read_to_end(into),
            Stream::Unix(stream) => stream.take(limit as u64).read_to_end(into),
        };
        match (into.len() - before, result) {
            (0, result) => Progress::of(result.map(|_| 0)).unwrap_or(Progress::Later),
            // What ended the reading, an error or the peer, is met again by the next read.
            (count, _) => Progress::Bytes(count),
        }
    }

    #[inline]
    pub fn write(&self, bytes: &[u8]) -> Progress {
        loop {
            let result = net::send(self, bytes, SendFlags::NOSIGNAL);
            if let Some(progress) = Progress::of(result.map_err(io::Error::from)) {
                return progress;
            }
        }
    }

    /// What has become of a connection that was begun: the error that it ended with, if it has.
    pub fn take_error(&self) -> io::Result<()> {
        sockopt::socket_error(self)?.map_err(io::Error::from)
    }

    pub fn is_unix(&self) -> bool {
        matches!(self, Stream::Unix(_))
    }

    /// The peer and our side, where they are internet addresses.
    pub fn addresses(&self) -> Option<(SocketAddr, SocketAddr)> {
        match self {
            Stream::Tcp(stream) => Some((stream.peer_addr().ok()?, stream.local_addr().ok()?)),
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
        }
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
