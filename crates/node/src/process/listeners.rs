//! The listening sockets: opened at start, and again by CONFIG SET bind and port. A lock protects them, so
//! that the client that changes them learns at once whether that works; the thread that accepts hears of it.

use isotherm_reactor::{FileRights, Listener, Sender, Stream};
use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, ToSocketAddrs};
use std::sync::{Mutex, MutexGuard, OnceLock, PoisonError};

use isotherm_config::Config;
use isotherm_runtime::log::{self, os_text};

#[derive(Default)]
pub struct Listeners {
    open: Mutex<Vec<Open>>,
    acceptor: OnceLock<Sender<Changed>>,
}

/// A message to the thread that accepts: the listening sockets are others now.
pub struct Changed;

/// A listening socket, and whether those that come by it speak TLS.
pub struct Open {
    pub socket: Listener,
    pub is_tls: bool,
    /// Port and addresses for which the socket was opened; the port is 0 for a unix socket.
    port: u16,
    bind: Vec<String>,
}

impl Open {
    /// Returns the name of the kind of socket in the log and INFO.
    pub fn kind(&self) -> &'static str {
        match self.is_tls {
            true => "tls",
            false if self.socket.is_unix() => "unix",
            false => "tcp",
        }
    }
}

impl Listeners {
    /// Closes what the configuration does not say any more, and opens the others that it names. After an
    /// error, some of it is closed.
    pub fn open(&self, config: &Config) -> Result<(), String> {
        let mut open = self.lock();
        let (bind, wanted) = (config.bind(), [(config.port(), false), (config.tls_port(), true)]);
        let is_wanted = |open: &Open| open.bind == bind && wanted.contains(&(open.port, open.is_tls));
        open.retain(|open| open.socket.is_unix() || is_wanted(open));
        for (port, is_tls) in wanted {
            let is_open = open.iter().any(|open| !open.socket.is_unix() && open.is_tls == is_tls);
            if port != 0 && !is_open {
                let sockets = open_tcp_at(config, port)?.into_iter();
                open.extend(sockets.map(|socket| Open { socket, is_tls, port, bind: bind.clone() }));
            }
        }
        if !open.iter().any(|open| open.socket.is_unix()) {
            open.extend(open_unix(config)?.map(|socket| Open {
                socket,
                is_tls: false,
                port: 0,
                bind: Vec::new(),
            }));
        }
        Ok(())
    }

    /// Sets the thread that hears of other sockets, once.
    pub fn set_acceptor(&self, acceptor: Sender<Changed>) {
        assert!(self.acceptor.set(acceptor).is_ok(), "one thread accepts");
    }

    /// The sockets are others than before.
    pub fn note_changed(&self) {
        if let Some(acceptor) = self.acceptor.get() {
            acceptor.post(Changed);
        }
    }

    pub fn lock(&self) -> MutexGuard<'_, Vec<Open>> {
        self.open.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The next connection of listener number `at`, if one waits and the listener is still there, and whether
    /// it speaks TLS.
    pub fn accept(&self, at: usize) -> io::Result<Option<(Stream, bool)>> {
        let open = self.lock();
        let Some(listener) = open.get(at) else { return Ok(None) };
        Ok(listener.socket.accept()?.map(|stream| (stream, listener.is_tls)))
    }
}

fn open_tcp_at(config: &Config, port: u16) -> Result<Vec<Listener>, String> {
    let mut open = Vec::new();
    for name in config.bind() {
        let optional = name.starts_with('-');
        let address = name.trim_start_matches('-');
        match addresses(address, port).and_then(|ips| {
            ips.into_iter()
                .map(|ip| Listener::tcp(ip, port, config.tcp_backlog()))
                .collect::<io::Result<Vec<_>>>()
        }) {
            Ok(listeners) => open.extend(listeners),
            Err(error) if optional && is_absent(&error) => {}
            Err(error) => {
                let why = os_text(&error);
                log::warning(format!(
                    "Warning: Could not create server TCP listening socket {address}:{port}: bind: {why}"
                ));
                return Err(format!("Failed listening on port {port} (tcp), aborting."));
            }
        }
    }
    Ok(open)
}

/// The port of the cluster bus, at the same addresses.
pub fn open_bus(config: &Config, port: u16) -> Result<Vec<Listener>, String> {
    open_tcp_at(config, port)
}

fn open_unix(config: &Config) -> Result<Option<Listener>, String> {
    let Some(path) = config.unix_socket() else { return Ok(None) };
    let mode = Some(config.unix_socket_mode()).filter(|mode| *mode != 0);
    let open = || {
        let group = config.unix_socket_group().map(|name| group_id(&name)).transpose()?;
        let rights = FileRights { mode, group };
        Listener::unix(&path, rights, config.tcp_backlog())
            .map_err(|error| format!("bind: {}", os_text(&error)))
    };
    open().map(Some).map_err(|why| {
        log::warning(format!("Failed opening Unix socket: {why}"));
        format!("Failed listening on port {} (unix), aborting.", config.port())
    })
}

/// Returns the id of a group, from the system's databases of users.
fn group_id(name: &str) -> Result<u32, String> {
    let found = nix::unistd::Group::from_name(name);
    let why = match found {
        Ok(Some(group)) => return Ok(group.gid.as_raw()),
        Ok(None) => "there is no such group".to_string(),
        Err(code) => code.desc().to_string(),
    };
    Err(format!("getgrnam error for group '{name}': {why}"))
}

/// `*` and `::*` are all addresses of a family; a name is looked up.
fn addresses(name: &str, port: u16) -> io::Result<Vec<IpAddr>> {
    match name {
        "*" => Ok(vec![Ipv4Addr::UNSPECIFIED.into()]),
        "::*" => Ok(vec![Ipv6Addr::UNSPECIFIED.into()]),
        _ => match name.parse() {
            Ok(ip) => Ok(vec![ip]),
            Err(_) => {
                Ok(vec![(name, port).to_socket_addrs()?.next().ok_or(io::ErrorKind::AddrNotAvailable)?.ip()])
            }
        },
    }
}

/// The address, or its whole family, does not exist here.
fn is_absent(error: &io::Error) -> bool {
    use rustix::io::Errno;
    let kinds = [
        Errno::AFNOSUPPORT,
        Errno::PROTONOSUPPORT,
        Errno::SOCKTNOSUPPORT,
        Errno::PFNOSUPPORT,
        Errno::NOPROTOOPT,
        Errno::ADDRNOTAVAIL,
    ];
    error.raw_os_error().is_some_and(|code| kinds.iter().any(|kind| kind.raw_os_error() == code))
}
