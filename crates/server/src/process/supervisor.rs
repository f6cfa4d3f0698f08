//! systemd's notifications: ready, what the server is doing and that it may take longer, stopping. A datagram
//! each to the socket that `NOTIFY_SOCKET` names.

use std::io;
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr, UnixDatagram};
use std::sync::atomic::{AtomicBool, Ordering::SeqCst};
use std::sync::{Arc, OnceLock};
use std::thread::JoinHandle;
use std::time::Duration;

use isotherm_config::Config;
use isotherm_runtime::log::{self, os_text};

/// Socket of the supervisor; unset or `None` without one.
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
        log::warning(format!("systemd supervision error: {}", os_text(&error)));
    }
}

/// Time that the supervisor waits for the next message, and the interval of these messages.
const EXTENDED_US: u64 = 30_000_000;
const BETWEEN: Duration = Duration::from_secs(1);

/// Asks the supervisor each second for more time, until it is dropped.
pub struct Extension {
    is_over: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

/// Something takes long that the supervisor waits for; `status` says how far it is. None without a
/// supervisor.
pub fn extend(status: impl Fn() -> String + Send + 'static) -> Option<Extension> {
    if !is_there() {
        return None;
    }
    let is_over = Arc::new(AtomicBool::new(false));
    let seen = Arc::clone(&is_over);
    let run = move || {
        while !seen.load(SeqCst) {
            notify(&format!("STATUS={}\nEXTEND_TIMEOUT_USEC={EXTENDED_US}\n", status()));
            std::thread::park_timeout(BETWEEN);
        }
    };
    // Without the thread the supervisor's own patience has to do.
    let thread = std::thread::Builder::new().name("supervisor".into()).spawn(run).ok();
    Some(Extension { is_over, thread })
}

impl Drop for Extension {
    fn drop(&mut self) {
        self.is_over.store(true, SeqCst);
        // It may hang in a supervisor that does not listen: no thread waits for it.
        self.thread.iter().for_each(|thread| thread.thread().unpark());
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
