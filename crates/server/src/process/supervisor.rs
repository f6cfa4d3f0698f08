//! systemd's notifications: ready, what is going on, stopping. A datagram each to the socket that `NOTIFY_SOCKET` names.

use std::io;
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr, UnixDatagram};
use std::sync::OnceLock;

use crate::config::Config;
use crate::process::log;

/// Where to; unset or `None` without a supervisor.
static SOCKET: OnceLock<Option<String>> = OnceLock::new();

/// Finds out whether this process is supervised, as `supervised` asks.
pub fn find(config: &Config) {
    let socket = std::env::var("NOTIFY_SOCKET").ok().filter(|_| config.supervised_by_systemd());
    if socket.is_none() && config.demands_systemd() {
        log::warning("systemd supervision requested, but NOTIFY_SOCKET not found!");
    }
    // Asked once, at start.
    let _ = SOCKET.set(socket);
    notify("STATUS=Isotherm is loading...\n");
}

pub fn is_there() -> bool {
    matches!(SOCKET.get(), Some(Some(_)))
}

/// Says something to the supervisor, if there is one.
pub fn notify(message: &str) {
    let Some(Some(name)) = SOCKET.get() else { return };
    if let Err(error) = send(name, message) {
        log::warning(format!("systemd supervision error: {}", crate::process::listeners::os_text(&error)));
    }
}

/// A name that begins with `@` is one of the abstract names.
fn send(name: &str, message: &str) -> io::Result<()> {
    let address = match name.strip_prefix('@') {
        Some(name) => SocketAddr::from_abstract_name(name)?,
        None => SocketAddr::from_pathname(name)?,
    };
    UnixDatagram::unbound()?.send_to_addr(message.as_bytes(), &address).map(drop)
}
