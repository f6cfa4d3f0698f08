//! TLS of this process: what its connections are made with, when that is read anew, and what is counted.
//!
//! ```text
//! tls-* --> settings --> isotherm_tls::Contexts --> new connections take what is current; the old keep what they have
//! files ------------------^      a change is read as a whole, or everything stays as it was
//! ```

mod settings;

use isotherm_reactor::stream::Progress;
use isotherm_reactor::{Stream, TlsStream};
use isotherm_tls::context::AuthClients;
use isotherm_tls::settings::Materials;
use isotherm_tls::{Contexts, Session};
use std::io;
use std::net::{IpAddr, TcpStream};
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex, PoisonError, RwLock};
use std::thread;
use std::time::{Duration, Instant};

use isotherm_config::{Config, Id, Reason, id};
use isotherm_runtime::log;
pub use settings::{is_for_cluster, is_for_replication, is_used, user_names};

/// Parameter for the time between two looks at the files.
const RELOAD_INTERVAL: Id = id("tls-auto-reload-interval");

#[derive(Default)]
pub struct TlsState {
    contexts: RwLock<Option<Arc<Contexts>>>,
    /// Held by the thread that reads files. When they were read, or looked at, last.
    read: Mutex<Option<Instant>>,
    pub counts: Counts,
}

/// Counts of handshakes of connections that clients have begun.
#[derive(Default)]
pub struct Counts {
    pub done: AtomicU64,
    pub resumed: AtomicU64,
    pub failed: AtomicU64,
}

impl Counts {
    pub fn note_done(&self, is_resumed: bool) {
        self.done.fetch_add(1, Relaxed);
        if is_resumed {
            self.resumed.fetch_add(1, Relaxed);
        }
    }

    pub fn note_failed(&self) {
        self.failed.fetch_add(1, Relaxed);
    }
}

impl TlsState {
    pub fn contexts(&self) -> Option<Arc<Contexts>> {
        self.contexts.read().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Reads all files anew. After an error, which is logged, everything is as before.
    pub fn configure(&self, config: &Config) -> Result<(), Reason> {
        let mut read = self.read.lock().unwrap_or_else(PoisonError::into_inner);
        *read = Some(Instant::now());
        let settings = settings::of(config);
        if config.has_dh_params() {
            // COMPAT(server): `tls-dh-params-file` is accepted and has no effect. Why: there are no suites
            // with DH, only with ECDH.
            log::notice("tls-dh-params-file has no effect: no suite with DH is offered");
        }
        match Contexts::load(&settings) {
            Ok(contexts) => {
                self.set(contexts);
                Ok(())
            }
            Err(failure) => {
                log::warning(failure.0);
                Err("Unable to update TLS configuration. Check server logs.".into())
            }
        }
    }

    /// With `tls-auto-reload-interval`, looks from time to time whether files have changed: on another
    /// thread, for a disk may be slow.
    pub fn tick(&'static self, config: &'static Config) {
        let interval_s = config.number(RELOAD_INTERVAL).unsigned_abs();
        if interval_s == 0 || !is_used(config) {
            return;
        }
        // A thread that reads files now has news soon enough.
        let Ok(read) = self.read.try_lock() else { return };
        if read.is_some_and(|at| at.elapsed() < Duration::from_secs(interval_s)) {
            return;
        }
        drop(read);
        let spawned = thread::Builder::new().name("tls-reload".into()).spawn(|| self.reload(config));
        if let Err(error) = spawned {
            log::warning(format!("Background TLS reload failed: {error}"));
        }
    }

    fn reload(&self, config: &Config) {
        let mut read = self.read.lock().unwrap_or_else(PoisonError::into_inner);
        *read = Some(Instant::now());
        log::debug("Background TLS reconfiguration started");
        let settings = settings::of(config);
        if self.contexts().is_some_and(|contexts| contexts.materials == Materials::of(&settings)) {
            return log::debug("TLS reload skipped: materials unchanged");
        }
        log::notice("TLS materials changed, reloading in background");
        match Contexts::load(&settings) {
            Ok(contexts) => {
                self.set(contexts);
                log::notice("TLS materials reloaded successfully");
            }
            Err(failure) => {
                log::warning(failure.0);
                log::warning("Background TLS reload failed");
            }
        }
    }

    fn set(&self, contexts: Contexts) {
        *self.contexts.write().unwrap_or_else(PoisonError::into_inner) = Some(Arc::new(contexts));
    }

    /// A connection that a client has begun, under TLS. `None`: there is nothing to make it with.
    pub fn accept(&self, config: &Config, socket: TcpStream) -> Option<Stream> {
        self.accept_as(settings::auth_clients(config), socket)
    }

    /// Accepts a connection that another node has begun. A node always shows a certificate.
    pub fn accept_node(&self, socket: TcpStream) -> Option<Stream> {
        self.accept_as(AuthClients::Yes, socket)
    }

    fn accept_as(&self, auth: AuthClients, socket: TcpStream) -> Option<Stream> {
        let contexts = self.contexts()?;
        let Some(server) = contexts.server(auth) else {
            log::warning(
                "Error accepting a client connection: there is no authority to check certificates with",
            );
            return None;
        };
        match Session::server(Arc::clone(server)) {
            Ok(session) => Some(Stream::Tls(Box::new(TlsStream::server(socket, session)))),
            Err(failed) => {
                log::warning(format!("Error accepting a client connection: {failed}"));
                None
            }
        }
    }

    /// A connection that this server has begun to `ip`, under TLS: once it stands, `TlsStream::shake_hands`
    /// comes next.
    pub fn connect(&self, socket: TcpStream, ip: IpAddr) -> io::Result<TlsStream> {
        let contexts = self.contexts().ok_or_else(|| io::Error::other("TLS is not configured"))?;
        let session = Session::client(Arc::clone(contexts.client()), ip.into());
        Ok(TlsStream::client(socket, session.map_err(|failed| io::Error::other(failed.to_string()))?))
    }

    /// Connects over a socket that blocks for a limited time, and completes the handshake unless `is_over`.
    pub fn connect_now(&self, socket: TcpStream, is_over: impl Fn() -> bool) -> io::Result<Stream> {
        let ip = socket.peer_addr()?.ip();
        let mut tls = self.connect(socket, ip)?;
        while !is_over() {
            match tls.shake_hands() {
                Progress::Bytes(_) => return Ok(Stream::Tls(Box::new(tls))),
                Progress::Later => {}
                Progress::Ended => return Err(io::ErrorKind::UnexpectedEof.into()),
                Progress::Broken(kind) => {
                    let failed = tls.take_failed();
                    return Err(failed.map_or(kind.into(), |failed| io::Error::other(failed.to_string())));
                }
            }
        }
        Err(io::ErrorKind::TimedOut.into())
    }
}
