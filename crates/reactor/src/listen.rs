//! Listeners: TCP addresses and a unix socket.

use crate::stream::Stream;
use rustix::io::Errno;
use rustix::net::{self, AddressFamily, SocketFlags, SocketType, ipproto, sockopt};
use std::io;
use std::net::{IpAddr, SocketAddr, TcpListener};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::fs::{FileTypeExt, PermissionsExt};
use std::os::unix::net::UnixListener;
use std::path::Path;

#[derive(Debug)]
pub enum Listener {
    Tcp(TcpListener),
    Unix(UnixListener),
}

/// Rights and group of the file of a unix socket, and so the users who may connect through it. `None` keeps
/// the default.
#[derive(Clone, Copy, Default, Debug)]
pub struct FileRights {
    pub mode: Option<u32>,
    /// The number of a group.
    pub group: Option<u32>,
}

impl Listener {
    /// IPv6 sockets take IPv6 only, so that `*` and `::` may be bound side by side.
    pub fn tcp(ip: IpAddr, port: u16, backlog: i32) -> io::Result<Listener> {
        let address = SocketAddr::new(ip, port);
        let family = if address.is_ipv6() { AddressFamily::INET6 } else { AddressFamily::INET };
        let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
        let socket = net::socket_with(family, SocketType::STREAM, flags, Some(ipproto::TCP))?;
        if address.is_ipv6() {
            sockopt::set_ipv6_v6only(&socket, true)?;
        }
        sockopt::set_socket_reuseaddr(&socket, true)?;
        net::bind(&socket, &address)?;
        net::listen(&socket, backlog)?;
        Ok(Listener::Tcp(TcpListener::from(socket)))
    }

    pub fn unix(path: &Path, rights: FileRights, backlog: i32) -> io::Result<Listener> {
        let address = net::SocketAddrUnix::new(path)?;
        remove_unused(path, &address)?;
        let socket = unix_socket()?;
        net::bind(&socket, &address)?;
        if let Some(mode) = rights.mode {
            std::fs::set_permissions(path, std::fs::Permissions::from_mode(mode))?;
        }
        if let Some(group) = rights.group {
            std::os::unix::fs::chown(path, None, Some(group))?;
        }
        // Until now connections are refused.
        net::listen(&socket, backlog)?;
        Ok(Listener::Unix(UnixListener::from(socket)))
    }

    /// The next connection, or `None` if none waits.
    pub fn accept(&self) -> io::Result<Option<Stream>> {
        let accepted = match self {
            Listener::Tcp(listener) => listener.accept().map(|(stream, _)| Stream::Tcp(stream)),
            Listener::Unix(listener) => listener.accept().map(|(stream, _)| Stream::Unix(stream)),
        };
        match accepted {
            Ok(stream) => Ok(Some(stream)),
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => Ok(None),
            Err(error) => Err(error),
        }
    }

    pub fn is_unix(&self) -> bool {
        matches!(self, Listener::Unix(_))
    }
}

fn unix_socket() -> io::Result<OwnedFd> {
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    Ok(net::socket_with(AddressFamily::UNIX, SocketType::STREAM, flags, None)?)
}

/// Removes a socket whose process has ended: the bind would fail. A file that is no socket stays, and so does
/// a socket at which connections are accepted or wait.
// COMPAT(server): `unixsocket` with the path of another kind of file, or of a socket at which another process
// listens, is refused; Valkey removes both. Why: the file may be data, and the other server would be out of
// reach.
fn remove_unused(path: &Path, address: &net::SocketAddrUnix) -> io::Result<()> {
    let kind = match std::fs::symlink_metadata(path) {
        Ok(found) => found.file_type(),
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
        Err(error) => return Err(error),
    };
    if !kind.is_socket() {
        return Err(Errno::ADDRINUSE.into());
    }
    match net::connect(&unix_socket()?, address) {
        Err(Errno::CONNREFUSED) => std::fs::remove_file(path),
        Ok(()) | Err(Errno::AGAIN) => Err(Errno::ADDRINUSE.into()),
        Err(other) => Err(other.into()),
    }
}

impl AsFd for Listener {
    fn as_fd(&self) -> BorrowedFd<'_> {
        match self {
            Listener::Tcp(listener) => listener.as_fd(),
            Listener::Unix(listener) => listener.as_fd(),
        }
    }
}
