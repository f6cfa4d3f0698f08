//! The listening sockets: opened at start, and again by CONFIG SET bind and port. They lie behind a lock, so that
//! the client that changes them learns at once whether that works; the control thread only accepts.

use isotherm_reactor::{Listener, Stream};
use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, ToSocketAddrs};
use std::sync::{Mutex, MutexGuard, PoisonError};

use crate::config::Config;
use crate::process::log;

#[derive(Default)]
pub struct Listeners {
    open: Mutex<Vec<Listener>>,
}

impl Listeners {
    /// Closes what is open and opens what the configuration says. After an error, TCP is closed.
    pub fn open(&self, config: &Config) -> Result<(), String> {
        let mut open = self.lock();
        open.retain(Listener::is_unix);
        let tcp = open_tcp(config)?;
        open.extend(tcp);
        if !open.iter().any(Listener::is_unix) {
            open.extend(open_unix(config)?);
        }
        Ok(())
    }

    pub fn lock(&self) -> MutexGuard<'_, Vec<Listener>> {
        self.open.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The next connection of listener number `at`, if one waits and the listener is still there.
    pub fn accept(&self, at: usize) -> io::Result<Option<Stream>> {
        self.lock().get(at).map_or(Ok(None), Listener::accept)
    }
}

fn open_tcp(config: &Config) -> Result<Vec<Listener>, String> {
    match config.port() {
        0 => Ok(Vec::new()),
        port => open_tcp_at(config, port),
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
    Listener::unix(&path, mode, config.tcp_backlog()).map(Some).map_err(|error| {
        log::warning(format!("Failed opening Unix socket: bind: {}", os_text(&error)));
        format!("Failed listening on port {} (unix), aborting.", config.port())
    })
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

/// "Address already in use", without the number that Rust adds.
pub fn os_text(error: &io::Error) -> String {
    let text = error.to_string();
    text.split(" (os error").next().unwrap_or(&text).to_string()
}
