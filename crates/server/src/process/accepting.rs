//! The thread that accepts connections and hands them to the workers in turn.
//!
//! ```text
//! listeners --accept--> admit? --message--> worker 0, 1, ... N-1, 0, ...; one that is busy is passed over
//!                                   \--not taken for 10 ms, by a worker that is busy--> another that is not
//! ```
//! The thread locks nothing of the keyspace and waits for sockets only: clients without a connection can come
//! and end what holds up the others (SCRIPT KILL, SHUTDOWN NOSAVE).
//!
//! Accepting rests for a while if the process has no file descriptor left: the waiting connection would be
//! reported again and again.

use isotherm_reactor::{Events, Mailbox, Stream, Token};
use std::io;
use std::net::IpAddr;
use std::os::fd::AsFd;
use std::sync::Arc;
use std::time::{Duration, Instant};

use isotherm_node::Node;
use isotherm_node::mail::message::{Newcomer, WorkerMessage};
use isotherm_node::process::listeners::Changed;
use isotherm_node::session::{ClientShared, Transport};
use isotherm_runtime::log::{self, os_text};
use isotherm_runtime::time::unix_now;

/// Connections taken from one listener before the others have their turn.
const ACCEPTS_PER_TURN_MAX: usize = 1000;
/// Rest of accepting when there are no file descriptors.
const ACCEPT_REST: Duration = Duration::from_millis(100);
/// Time after which a worker that has not looked at its sockets is busy.
const BUSY_MIN: Duration = Duration::from_millis(10);

/// A connection that its worker has not taken yet.
struct Posted {
    newcomer: Arc<Newcomer>,
    worker: usize,
}

/// Listener `i` of generation `g` has the token `g * LISTENERS_MAX + i`.
const LISTENERS_MAX: usize = 64;

struct Acceptor {
    node: &'static Node,
    events: Events,
    mailbox: Mailbox<Changed>,
    generation: usize,
    next_worker: usize,
    /// Connections that were looked at `BUSY_MIN` ago or later, oldest first.
    posted: Vec<Posted>,
    looked: Instant,
    /// Listeners that may have more to accept, and from when on they are asked again.
    pending: Vec<usize>,
    rest_until: Option<Instant>,
}

/// Connections are accepted from here on.
pub fn start(node: &'static Node) -> io::Result<()> {
    let events = Events::new()?;
    let mailbox = events.mailbox()?;
    node.process.listeners.set_acceptor(mailbox.sender());
    let mut acceptor = Acceptor {
        node,
        events,
        mailbox,
        generation: 0,
        next_worker: 0,
        posted: Vec::new(),
        looked: Instant::now(),
        pending: Vec::new(),
        rest_until: None,
    };
    acceptor.watch_listeners()?;
    std::thread::Builder::new().name("accept".into()).spawn(move || acceptor.run()).map(drop)
}

impl Acceptor {
    fn run(mut self) {
        if let Err(error) = self.accept_all() {
            // A process that nothing can reach is of no use.
            log::warning(format!("Fatal error in the thread that accepts connections: {error}"));
            std::process::exit(1);
        }
    }

    fn accept_all(&mut self) -> io::Result<()> {
        loop {
            let timeout = match self.rest_until {
                Some(until) => Some(until.saturating_duration_since(Instant::now())),
                None => (!self.pending.is_empty()).then_some(Duration::ZERO),
            };
            let timeout = match self.posted.is_empty() {
                true => timeout,
                false => Some(timeout.map_or(BUSY_MIN, |timeout| timeout.min(BUSY_MIN))),
            };
            self.events.wait(timeout)?;
            self.note_ready();
            if !self.mailbox.take().is_empty() {
                self.watch_listeners()?;
            }
            self.accept_pending();
            self.move_on();
        }
    }

    fn watch_listeners(&mut self) -> io::Result<()> {
        self.generation += 1;
        self.pending.clear();
        for (at, listener) in self.node.process.listeners.lock().iter().enumerate().take(LISTENERS_MAX) {
            self.events.forget(listener.socket.as_fd());
            self.events
                .watch_readable(listener.socket.as_fd(), Token(self.generation * LISTENERS_MAX + at))?;
            // A connection that came before it was watched is not reported.
            self.pending.push(at);
        }
        Ok(())
    }

    fn note_ready(&mut self) {
        let first = self.generation * LISTENERS_MAX;
        for ready in self.events.ready() {
            let at = ready.token.0.wrapping_sub(first);
            if at < LISTENERS_MAX && !self.pending.contains(&at) {
                self.pending.push(at);
            }
        }
    }

    fn accept_pending(&mut self) {
        if self.rest_until.is_some_and(|until| Instant::now() < until) {
            return;
        }
        self.rest_until = None;
        let mut more = Vec::new();
        for at in std::mem::take(&mut self.pending) {
            if self.accept_from(at) {
                more.push(at);
            }
        }
        self.pending = more;
    }

    /// Accepts what waits. Returns whether the listener may have more.
    fn accept_from(&mut self, at: usize) -> bool {
        for _ in 0..ACCEPTS_PER_TURN_MAX {
            match self.node.process.listeners.accept(at) {
                Ok(Some((stream, is_tls))) => self.welcome(stream, is_tls),
                Ok(None) => return false,
                // The peer has given up meanwhile.
                Err(error) if error.kind() == io::ErrorKind::ConnectionAborted => {}
                Err(error) => {
                    log::warning(format!("Accepting client connection: {}", os_text(&error)));
                    self.rest_until = Some(Instant::now() + ACCEPT_REST);
                    return true;
                }
            }
        }
        true
    }

    fn welcome(&mut self, mut stream: Stream, is_tls: bool) {
        let node = self.node;
        let addresses = stream.addresses();
        let peer = addresses.map(|(peer, _)| peer.ip().to_canonical());
        if node.clients.count() as u64 >= node.config.max_clients() {
            refuse(&mut stream, is_tls, "-ERR max number of clients reached\r\n");
            node.control_stats().values.connections_rejected.add(1);
            return;
        }
        if node.config.protected_mode()
            && node.users.is_open()
            && !peer.is_none_or(|ip| IpAddr::is_loopback(&ip))
        {
            refuse(&mut stream, is_tls, PROTECTED_MODE);
            node.control_stats().values.connections_rejected.add(1);
            return;
        }
        let keepalive = Some(node.config.tcp_keepalive_seconds()).filter(|seconds| *seconds > 0);
        // A connection that cannot be prepared is gone already, and the first read says so.
        if let Err(error) = stream.prepare(keepalive.map(|seconds| Duration::from_secs(u64::from(seconds)))) {
            log::verbose(format!("Error preparing a client connection: {error}"));
        }
        node.control_stats().values.connections_received.add(1);
        let transport = match is_tls {
            true => Transport::Tls,
            false if stream.is_unix() => Transport::Unix,
            false => Transport::Tcp,
        };
        let number = stream.number();
        let stream = match stream {
            Stream::Tcp(socket) if is_tls => match node.tls.accept(&node.config, socket) {
                Some(stream) => stream,
                None => return,
            },
            stream => stream,
        };
        let (addr, laddr) = match addresses {
            Some((peer, local)) => (peer.to_string(), local.to_string()),
            None => {
                let path = node.config.unix_socket().unwrap_or_default();
                (format!("{}:0", path.display()), format!("{}:0", path.display()))
            }
        };
        let worker = self.choose_worker().unwrap_or(self.next_worker);
        self.next_worker = (worker + 1) % node.worker_count();
        log::verbose(format!("Accepted {addr}"));
        let shared = ClientShared::new(
            node.clients.next_id(),
            worker as u16,
            number,
            (addr.into(), laddr.into()),
            transport,
            peer.is_none_or(|ip| ip.is_loopback()),
            unix_now(),
        );
        self.post(worker, stream, shared);
    }

    fn post(&mut self, worker: usize, stream: Stream, shared: ClientShared) {
        let newcomer = Newcomer::new(stream, shared);
        self.node.mail.post(worker, WorkerMessage::Connect(Arc::clone(&newcomer)));
        if self.node.worker_count() > 1 {
            self.posted.push(Posted { newcomer, worker });
        }
    }

    /// Sends connections that a busy worker has not taken to another: its command may be a long one.
    fn move_on(&mut self) {
        if self.looked.elapsed() < BUSY_MIN {
            return;
        }
        self.looked = Instant::now();
        self.posted.retain(|posted| !posted.newcomer.is_taken());
        if self.posted.is_empty() || self.choose_worker().is_none() {
            return;
        }
        for posted in std::mem::take(&mut self.posted) {
            let Some(worker) = self.choose_worker().filter(|_| self.is_busy(posted.worker)) else {
                self.posted.push(posted);
                continue;
            };
            if let Some((stream, mut shared)) = posted.newcomer.take() {
                shared.worker = worker as u16;
                self.next_worker = (worker + 1) % self.node.worker_count();
                self.post(worker, stream, shared);
            }
        }
    }

    fn is_busy(&self, worker: usize) -> bool {
        self.node.stats.is_busy_for(worker, BUSY_MIN)
    }

    /// The next worker in turn that is not busy, if there is one.
    fn choose_worker(&self) -> Option<usize> {
        let count = self.node.worker_count();
        (0..count).map(|step| (self.next_worker + step) % count).find(|worker| !self.is_busy(*worker))
    }
}

/// Best effort: a refused client may not hear why. Under TLS there is nothing to be heard before the
/// handshake, as in Valkey.
// COMPAT(server): Under TLS, who is refused by protected mode is closed without a word; Valkey says why
// behind the handshake. Why: the handshake of an unknown peer costs more than a hundred commands.
fn refuse(stream: &mut Stream, is_tls: bool, text: &str) {
    if !is_tls {
        let _ = stream.write(text.as_bytes());
    }
}

const PROTECTED_MODE: &str = "-DENIED Running in protected mode because protected mode is enabled and no password is \
    set for the default user. In this mode connections are only accepted from the loopback interface. If you want to \
    connect from external computers, you may adopt one of the following solutions: 1) Just disable protected mode \
    sending the command 'CONFIG SET protected-mode no' from the loopback interface by connecting from the same host the \
    server is running, however MAKE SURE it's not publicly accessible from internet if you do so. Use CONFIG REWRITE to \
    make this change permanent. 2) Alternatively you can just disable the protected mode by editing the configuration \
    file, and setting the protected mode option to 'no', and then restarting the server. 3) If you started the server \
    manually just for testing, restart it with the '--protected-mode no' option. 4) Set up an authentication password \
    for the default user. NOTE: You only need to do one of the above things in order for the server to start accepting \
    connections from the outside.\r\n";
