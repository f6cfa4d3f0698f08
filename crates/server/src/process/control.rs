//! The control thread: accepts connections and hands them to the workers in turn, acts on signals, and keeps
//! the cron.
//!
//! ```text
//! listeners --accept--> admit? --message--> worker 0, 1, ... N-1, 0, ...
//! SIGTERM, SIGINT (`guard`) --> orderly end (`shutdown`), exit code 0
//! hz ------------------> cron
//! ```
//! When the process has no file descriptor left, accepting rests for a while: the waiting connection would be reported
//! again and again.

use isotherm_reactor::{Events, Mailbox, Stream, Token};
use std::io;
use std::net::IpAddr;
use std::os::fd::AsFd;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::time::{Duration, Instant};

use crate::aof;
use crate::mail::message::{ControlMessage, WorkerMessage};
use crate::node::{Node, unix_now};
use crate::observe::holds;
use crate::process::guard;
use crate::process::leaving::{self, Answer};
use crate::process::log::{self, os_text};
use crate::process::shutdown::Options;
use crate::process::supervisor;
use crate::process::wish::{ATTEMPTS, BETWEEN};
use crate::replication::{feeder, handover, link, role};
use crate::request::gating;
use crate::session::{ClientShared, Transport};
use crate::upkeep::cron::Cron;
use crate::upkeep::eviction;
use isotherm_allocator::{self as allocator, Format};

/// Connections taken from one listener before the others have their turn.
const ACCEPTS_PER_TURN_MAX: usize = 1000;
/// How long accepting rests when there are no file descriptors.
const ACCEPT_REST: Duration = Duration::from_millis(100);

/// Listener `i` of generation `g` has the token `g * LISTENERS_MAX + i`.
const LISTENERS_MAX: usize = 64;

pub struct Control {
    node: &'static Node,
    events: Events,
    mailbox: Mailbox<ControlMessage>,
    attempts: Attempts,
    generation: usize,
    next_worker: usize,
    cron: Cron,
    next_cron: Instant,
    /// `appendonly` is to hold, as soon as no other thread switches it.
    is_aof_due: bool,
    /// Listeners that may have more to accept, and from when on they are asked again.
    pending: Vec<usize>,
    rest_until: Option<Instant>,
}

/// The end that a signal asks for, while its file cannot be written.
#[derive(Default)]
struct Attempts {
    /// Options of the last signal.
    options: Options,
    /// Moments at which the first one failed, and the next one is due.
    since: Option<(Instant, Instant)>,
}

impl Control {
    pub fn new(node: &'static Node, events: Events, mailbox: Mailbox<ControlMessage>) -> io::Result<Control> {
        guard::start(node)?;
        let mut control = Control {
            node,
            events,
            mailbox,
            attempts: Attempts::default(),
            generation: 0,
            next_worker: 0,
            cron: Cron::new(node),
            next_cron: Instant::now(),
            is_aof_due: false,
            pending: Vec::new(),
            rest_until: None,
        };
        control.watch_listeners()?;
        Ok(control)
    }

    /// Runs until the process is to end.
    pub fn node(&self) -> &'static Node {
        self.node
    }

    pub fn run(mut self) -> io::Result<()> {
        holds::enter(self.node.hold_sinks(), self.node.worker_count());
        loop {
            let now = Instant::now();
            let mut timeout = self.next_cron.saturating_duration_since(now);
            match self.rest_until {
                Some(until) => timeout = timeout.min(until.saturating_duration_since(now)),
                None if !self.pending.is_empty() => timeout = Duration::ZERO,
                None => {}
            }
            self.events.wait(Some(timeout))?;
            self.note_ready();
            if let Some(options) = self.signalled()
                && self.ends(|node| leaving::ask(node, options, None))
            {
                return Ok(());
            }
            if let Some(options) = self.node.end_is_due()
                && self.ends(|node| leaving::finish(node, options))
            {
                return Ok(());
            }
            for message in self.mailbox.take() {
                match message {
                    ControlMessage::Listen => self.watch_listeners()?,
                    ControlMessage::Aof => self.is_aof_due = true,
                    ControlMessage::ReplyGate => gating::apply(self.node),
                    ControlMessage::Look => {}
                    ControlMessage::HandOver => {
                        if handover::act(self.node) {
                            link::spawn(self.node);
                        }
                    }
                    ControlMessage::EvictionPolicy => eviction::apply_policy(self.node),
                    ControlMessage::ShutDown => {
                        self.end();
                        return Ok(());
                    }
                }
            }
            if self.is_aof_due
                && let Some(applied) = aof::switch::try_apply(self.node)
            {
                self.is_aof_due = false;
                applied.unwrap_or_else(log::warning);
            }
            self.accept_pending();
            if Instant::now() >= self.next_cron {
                let rest = self.cron.tick();
                self.next_cron = Instant::now() + rest;
            }
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

    // ---- accepting ----

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

    /// Whether the listener may have more.
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
        if node.clients.len() as u64 >= node.config.max_clients() {
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
        let worker = self.next_worker;
        self.next_worker = (worker + 1) % node.worker_count();
        log::verbose(format!("Accepted {addr}"));
        let shared = ClientShared::new(
            node.clients.next_id(),
            worker as u16,
            number,
            (addr.into(), laddr.into()),
            transport,
            peer.is_none_or(|ip| ip.is_loopback()),
            unix_now().0,
        );
        node.mail.post(worker, WorkerMessage::Connect(Box::new((stream, Arc::new(shared)))));
    }

    // ---- the end ----

    /// Takes the options of a signal that has come, or whose end is to be tried again.
    fn signalled(&mut self) -> Option<Options> {
        let process = &self.node.process;
        // While another thread decides about the end it stays pending: it is acted on if nothing came of
        // that.
        if self.node.debug.cron_paused.is_on() || process.ending.is_deciding() {
            return None;
        }
        if let Some(options) = process.pending_end.take_options(&self.node.config) {
            let is_second = process.wish.refused_for().is_some();
            let options = if is_second { options.or(Options::FORCE) } else { options };
            self.attempts.options = options;
            return Some(options);
        }
        let (_, next) = self.attempts.since?;
        if !process.wish.is_on() {
            self.attempts.since = None;
            return None;
        }
        // Replicas were waited for.
        (Instant::now() >= next).then(|| self.attempts.options.or(Options::NOW))
    }

    /// The end that was asked for, unless something stands in its way.
    fn ends(&mut self, ask: impl FnOnce(&'static Node) -> Answer) -> bool {
        let wish = &self.node.process.wish;
        wish.set_acting(true);
        match ask(self.node) {
            Answer::Ends => {
                self.end();
                return true;
            }
            Answer::Waits => {}
            Answer::Refused => self.note_refusal(),
        }
        wish.set_acting(false);
        false
    }

    /// The file could not be written: again in a moment, if it was a signal that asked for it.
    fn note_refusal(&mut self) {
        let (wish, now) = (&self.node.process.wish, Instant::now());
        let is_writing_base = self.node.aof.awaits_base.load(Relaxed) && aof::rewrite::is_running(self.node);
        wish.note_failure(!is_writing_base);
        if !wish.is_on() {
            return;
        }
        let (first, _) = *self.attempts.since.get_or_insert((now, now));
        self.attempts.since = Some((first, now + BETWEEN));
        if now - first >= ATTEMPTS {
            self.attempts.since = None;
            wish.refuse();
        }
    }

    fn end(&self) {
        supervisor::notify("STOPPING=1\n");
        role::end_link(self.node);
        self.node.process.wish.note_closing();
        aof::switch::close(self.node);
        if self.node.aof.is_writer_ending() {
            self.node.process.wish.note_loss();
        }
        feeder::flush(self.node);
        // Who sees its connection end is not to reach this process any more.
        self.node.process.listeners.lock().clear();
        if let Some(path) = self.node.config.pid_file()
            && std::fs::remove_file(path).is_ok()
        {
            log::notice("Removing the pid file.");
        }
        if let Some(path) = self.node.config.unix_socket() {
            log::notice("Removing the unix socket file.");
            if let Err(error) = std::fs::remove_file(path) {
                log::warning(format!("Error removing the unix socket file: {error}"));
            }
        }
        if self.node.config.logs_allocator_stats() {
            log::notice(format!("Allocator statistics at exit:\n{}", allocator::report(Format::Text)));
        }
        log::warning("Isotherm is now ready to exit, bye bye...");
    }
}

/// Best effort: who is refused may not hear why. Under TLS there is nothing to be heard before the handshake, as in Valkey.
// COMPAT(server): Under TLS, who is refused by protected mode is closed without a word; Valkey says why behind the handshake. Why: the
// handshake of an unknown peer costs more than a hundred commands.
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
