//! A connection to another server, from an address of this machine that may be given.

use crate::stream::Stream;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use rustix::net::{self, AddressFamily, SocketFlags, SocketType, ipproto, sockopt};
use std::io;
use std::net::{IpAddr, SocketAddr, TcpStream};
use std::os::fd::OwnedFd;
use std::time::{Duration, Instant};

/// Connects within `timeout`; the stream blocks. An address to come from that cannot be used is left to the
/// system, as Valkey does.
pub fn connect(from: Option<IpAddr>, to: SocketAddr, timeout: Duration) -> io::Result<TcpStream> {
    match from {
        Some(from) if from.is_ipv4() == to.is_ipv4() => {
            connect_from(from, to, timeout).or_else(|_| TcpStream::connect_timeout(&to, timeout))
        }
        _ => TcpStream::connect_timeout(&to, timeout),
    }
}

/// Begins a connection and waits for nothing: the socket becomes writable once it stands or has failed, and
/// `Stream::take_error` says which.
pub fn begin(from: Option<IpAddr>, to: SocketAddr) -> io::Result<Stream> {
    let family = if to.is_ipv6() { AddressFamily::INET6 } else { AddressFamily::INET };
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    let socket = net::socket_with(family, SocketType::STREAM, flags, Some(ipproto::TCP))?;
    if let Some(from) = from.filter(|from| from.is_ipv4() == to.is_ipv4()) {
        sockopt::set_socket_reuseaddr(&socket, true)?;
        net::bind(&socket, &SocketAddr::new(from, 0))?;
    }
    match net::connect(&socket, &to) {
        Ok(()) | Err(Errno::INPROGRESS) => Ok(Stream::Tcp(TcpStream::from(socket))),
        Err(error) => Err(error.into()),
    }
}

fn connect_from(from: IpAddr, to: SocketAddr, timeout: Duration) -> io::Result<TcpStream> {
    let family = if to.is_ipv6() { AddressFamily::INET6 } else { AddressFamily::INET };
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    let socket = net::socket_with(family, SocketType::STREAM, flags, Some(ipproto::TCP))?;
    sockopt::set_socket_reuseaddr(&socket, true)?;
    net::bind(&socket, &SocketAddr::new(from, 0))?;
    match net::connect(&socket, &to) {
        Ok(()) => {}
        Err(Errno::INPROGRESS) => wait_until_connected(&socket, timeout)?,
        Err(error) => return Err(error.into()),
    }
    let stream = TcpStream::from(socket);
    stream.set_nonblocking(false)?;
    Ok(stream)
}

fn wait_until_connected(socket: &OwnedFd, timeout: Duration) -> io::Result<()> {
    let begun = Instant::now();
    loop {
        let left = timeout.saturating_sub(begun.elapsed());
        let left = Timespec { tv_sec: left.as_secs() as i64, tv_nsec: i64::from(left.subsec_nanos()) };
        match poll(&mut [PollFd::new(socket, PollFlags::OUT)], Some(&left)) {
            Ok(0) => return Err(io::ErrorKind::TimedOut.into()),
            Ok(_) => return sockopt::socket_error(socket)?.map_err(io::Error::from),
            Err(Errno::INTR) => {}
            Err(error) => return Err(error.into()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::{Ipv4Addr, TcpListener};

    fn ip(last: u8) -> IpAddr {
        Ipv4Addr::new(127, 0, 0, last).into()
    }

    const PATIENCE: Duration = Duration::from_secs(10);

    #[test]
    fn it_comes_from_the_address_that_is_given() {
        let listener = TcpListener::bind((ip(1), 0)).unwrap();
        let to = listener.local_addr().unwrap();
        for (from, seen) in [(None, ip(1)), (Some(ip(3)), ip(3))] {
            let stream = connect(from, to, PATIENCE).unwrap();
            assert_eq!(stream.local_addr().unwrap().ip(), seen);
            assert_eq!(listener.accept().unwrap().1.ip(), seen);
        }
        // One of another family, or of no interface of this machine.
        for from in [IpAddr::from([0; 16]), Ipv4Addr::new(192, 0, 2, 1).into()] {
            assert_eq!(connect(Some(from), to, PATIENCE).unwrap().local_addr().unwrap().ip(), ip(1));
        }
    }

    #[test]
    fn what_does_not_listen_is_an_error() {
        let to = TcpListener::bind((ip(1), 0)).unwrap().local_addr().unwrap();
        let error = connect(Some(ip(3)), to, PATIENCE).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::ConnectionRefused);
    }
}
