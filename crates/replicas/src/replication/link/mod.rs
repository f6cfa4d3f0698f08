//! The thread of the link to a primary: socket, clock and data on one side, the machine that decides
//! (`isotherm_replication::link`) on the other.
//!
//! ```text
//!   REPLICAOF --> generation n --> thread n     connects, syncs, applies the stream, until generation n is over
//!                 generation n+1 --> thread n+1
//! ```
//! A new primary gets a new thread: one that waits for the network keeps no other waiting. The rest of an
//! older thread's work has no effect: it looks at the generation under its locks before it changes anything.

mod divergences;
mod faults;
mod settings;
mod sources;
mod stall;

use isotherm_keyspace::{Db, Held};
use isotherm_log::writer::Ms;
use isotherm_reactor::connect::connect;
use isotherm_replication::link::{Failure, Input, Line, Link, Output, Phase, Position, Settings, ack};
use std::io::{self, Write};
use std::net::{TcpStream, ToSocketAddrs};
use std::os::fd::AsRawFd;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::time::{Duration, Instant};

use crate::replication::stream::{self, Fault, READ_BYTES, Seen, Stream};
use crate::replication::sync::{self, Kept, Receiving, Why};
use crate::replication::{feeder, handover, role};
use divergences::Divergences;
use isotherm_durability::aof::applier::{Applier, Generation, Refused};
use isotherm_engine::request::execute::Exec;
use isotherm_engine::request::leases::await_gate;
use isotherm_node::Node;
use isotherm_node::effects::change_log::LogReader;
use isotherm_node::observe::holds;
use isotherm_node::replication::state::Upstream;
use isotherm_node::session::client::Seen as SeenClient;
use isotherm_node::session::{Attention, ClientShared, Transport};
use isotherm_node::tls;
use isotherm_runtime::log::{self, os_text};
use isotherm_runtime::time::unix_now;
use settings::{TIMEOUT, settings};
use sources::{Arrived, Beating, FromSocket, loads_from_socket};

/// Maximum time of one wait of the thread, so that it notices a new generation and CLIENT KILL.
const LOOK: Duration = Duration::from_millis(100);
/// While the append-only file or a save has no room for more.
const STALL_LOOK: Duration = Duration::from_millis(1);
/// Time that a send waits for room in the socket: all messages are small.
const SEND_PATIENCE: Duration = Duration::from_secs(5);
/// Bytes of the stream after which a log that has no reader is tidied.
const GATHER_BYTES: u64 = 256 << 10;
/// Batches between two looks at the clock.
const BATCHES_PER_LOOK: u32 = 64;

/// Begins to follow the primary of this generation, unless a link does already.
pub fn spawn(node: &'static Node) {
    let Some(upstream) = node.replication.upstream() else { return };
    let generation = Generation(node.replication.generation());
    if !node.replication.begins_link(generation.0) {
        return;
    }
    let run = move || {
        holds::enter(node.hold_sinks(), node.worker_count() + 1);
        LinkThread::new(node, generation, upstream).run();
    };
    let spawned = std::thread::Builder::new().name("replica-link".into()).spawn(run);
    if let Err(error) = spawned {
        log::warning(format!("Can't start the thread of the link to the primary: {}", os_text(&error)));
    }
}

struct LinkThread {
    node: &'static Node,
    generation: Generation,
    upstream: Upstream,
    link: Link,
    began: Instant,
    socket: Option<Socket>,
    applier: Applier,
    stream: Stream,
    /// A snapshot that was announced, and the file that it is received into.
    position: Option<Position>,
    receiving: Option<Receiving>,
    /// Bytes of a snapshot that is loaded without a file.
    arrived: Option<Arrived>,
    is_loading: bool,
    /// Outputs of the state machine of the link that are to be carried out.
    outputs: Vec<Output>,
    gathered: u64,
    /// The stream could not be read at this place before.
    garbage_at: Option<u64>,
    /// PSYNC was sent, and not answered.
    has_asked: bool,
    /// Phase that the last attempt came to.
    failed_in: Option<Phase>,
    /// Something of the stream may wait for the end of a pause.
    was_paused: bool,
    divergences: Divergences,
}

/// The connection, and how others see it.
struct Socket {
    stream: isotherm_reactor::Stream,
    shared: Arc<ClientShared>,
}

impl LinkThread {
    fn new(node: &'static Node, generation: Generation, upstream: Upstream) -> LinkThread {
        let db = Db(u16::try_from(node.log.stream_database()).unwrap_or(0));
        LinkThread {
            node,
            generation,
            upstream,
            link: Link::new(Settings::default()),
            began: Instant::now(),
            socket: None,
            applier: Applier::of_link(node, generation, db),
            stream: Stream::default(),
            position: None,
            receiving: None,
            arrived: None,
            is_loading: false,
            outputs: Vec::new(),
            gathered: 0,
            garbage_at: None,
            has_asked: false,
            failed_in: None,
            was_paused: false,
            divergences: Divergences::default(),
        }
    }

    fn now(&self) -> Ms {
        Ms(self.began.elapsed().as_millis() as u64)
    }

    fn is_current(&self) -> bool {
        self.node.replication.generation() == self.generation.0
    }

    fn run(&mut self) {
        self.node.replication.link.set_failed_with(None);
        while self.is_current() {
            let now = self.now();
            if self.link.is_due(now) && self.divergences.rests_until() <= now {
                self.begin();
            }
            self.turn();
            self.step(Input::Tick);
        }
        self.close();
    }

    /// Waits for something to happen, and does what follows.
    fn turn(&mut self) {
        if self.socket.as_ref().is_some_and(|socket| socket.shared.is_asked(Attention::KILL)) {
            self.step(Input::Broken("killed by a client"));
        }
        if self.socket.is_none() {
            let next = self.link.next_tick().max(self.divergences.rests_until());
            let due = next.0.saturating_sub(self.now().0);
            std::thread::sleep(LOOK.min(Duration::from_millis(due.max(1))));
        } else if self.link.phase() == Phase::Connected && self.has_stalled() {
            std::thread::sleep(STALL_LOOK);
            self.apply();
        } else {
            self.read();
            if std::mem::take(&mut self.was_paused) {
                self.apply();
            }
        }
        if self.arrived.is_some() {
            self.is_loading = true;
            self.load_from_socket();
            self.is_loading = false;
        }
    }

    // ---- attempts ----

    fn begin(&mut self) {
        let position = {
            let state = self.node.replication.state();
            state.position(self.node.log.end())
        };
        let Upstream { host, port } = &self.upstream;
        log::notice(match self.failed_in.take() {
            Some(Phase::Connected) => format!("Reconnecting to PRIMARY {host}:{port}"),
            Some(Phase::Transfer) => format!("Reconnecting to PRIMARY {host}:{port} after failure"),
            _ => format!("Connecting to PRIMARY {host}:{port}"),
        });
        self.stream.clear();
        let db = Db(u16::try_from(self.node.log.stream_database()).unwrap_or(0));
        self.applier = Applier::of_link(self.node, self.generation, db);
        let (settings, now) = (settings(self.node), self.now());
        self.link.begin(settings, position, now, &mut self.outputs);
        self.perform();
    }

    fn connect(&mut self) -> io::Result<Socket> {
        let Upstream { host, port } = &self.upstream;
        let begun = Instant::now();
        let timeout = Duration::from_secs(self.node.config.number(TIMEOUT).unsigned_abs());
        let source = settings::source(self.node);
        let mut last = io::Error::from(io::ErrorKind::NotFound);
        for address in (host.as_str(), *port).to_socket_addrs()? {
            let left = timeout.saturating_sub(begun.elapsed()).max(Duration::from_millis(1));
            match connect(source, address, left) {
                Ok(stream) => return self.prepare(stream, begun + timeout),
                Err(error) => last = error,
            }
        }
        Err(last)
    }

    fn prepare(&self, stream: TcpStream, until: Instant) -> io::Result<Socket> {
        let node = self.node;
        let (peer, local) = (stream.peer_addr()?, stream.local_addr()?);
        let number = stream.as_raw_fd();
        let keepalive = node.config.tcp_keepalive_seconds();
        let idle = (keepalive > 0).then(|| Duration::from_secs(u64::from(keepalive)));
        let stream = isotherm_reactor::Stream::Tcp(stream);
        stream.prepare(idle)?;
        let isotherm_reactor::Stream::Tcp(socket) = stream else { unreachable!("it was made so") };
        socket.set_nonblocking(false)?;
        socket.set_read_timeout(Some(LOOK))?;
        socket.set_write_timeout(Some(SEND_PATIENCE))?;
        let (stream, transport) = match tls::is_for_replication(&node.config) {
            true => {
                let is_over = || Instant::now() >= until || !self.is_current();
                (node.tls.connect_now(socket, is_over)?, Transport::Tls)
            }
            false => (isotherm_reactor::Stream::Tcp(socket), Transport::Tcp),
        };
        let addresses = (peer.to_string().into(), local.to_string().into());
        let id = node.clients.next_id();
        let is_local = peer.ip().is_loopback();
        let shared = ClientShared::new(id, 0, number, addresses, transport, is_local, unix_now());
        shared.seen.marks.fetch_or(SeenClient::PRIMARY, Relaxed);
        let shared = Arc::new(shared);
        node.clients.add(&shared, 0);
        Ok(Socket { stream, shared })
    }

    fn close(&mut self) {
        if let Some(socket) = self.socket.take() {
            self.node.clients.remove(socket.shared.id);
        }
        self.receiving = None;
        self.position = None;
        if !self.is_loading {
            self.arrived = None;
        }
    }

    // ---- the machine ----

    fn step(&mut self, input: Input<'_>) {
        self.link.step(input, self.now(), &mut self.outputs);
        self.perform();
    }

    /// Carries out what the machine has decided.
    fn perform(&mut self) {
        while !self.outputs.is_empty() {
            for output in std::mem::take(&mut self.outputs) {
                self.perform_one(output, &[]);
            }
        }
        self.show_phase();
    }

    fn show_phase(&self) {
        if self.is_current() {
            self.node.replication.link.set_phase(self.link.phase());
        }
    }

    /// `bytes` are those that the machine was given.
    fn perform_one(&mut self, output: Output, bytes: &[u8]) {
        match output {
            Output::Connect => {
                self.node.replication.link.set_phase(Phase::Connecting);
                log::notice("PRIMARY <-> REPLICA sync started");
                let connected = self.connect();
                let now = self.now();
                match connected {
                    Ok(socket) => {
                        self.applier.set_client(&socket.shared);
                        self.socket = Some(socket);
                        self.link.step(Input::Connected, now, &mut self.outputs);
                    }
                    Err(error) => {
                        self.link.step(Input::Broken(&os_text(&error)), now, &mut self.outputs);
                    }
                }
            }
            Output::Send(bytes) => self.send(&bytes),
            Output::Say(line) => {
                self.has_asked |= matches!(line, Line::Asking(_));
                log::notice(line.to_string());
            }
            Output::Full(position) => {
                self.node.replication.link.sync_bytes.store(-1, Relaxed);
                self.node.replication.link.sync_read_bytes.store(0, Relaxed);
                self.position = Some(position);
                self.note_taken_over();
            }
            Output::Snapshot { bytes } => self.begin_snapshot(bytes),
            Output::SnapshotBytes(range) => self.receive(&bytes[range]),
            Output::SnapshotEnds { mark_bytes } => self.end_snapshot(mark_bytes),
            Output::Continue { id } => {
                self.go_on(id);
                self.note_taken_over();
            }
            Output::Stream(range) => self.stream.buffer().extend_from_slice(&bytes[range]),
            Output::AckDue => self.acknowledge(),
            Output::Close(failure) => self.end_attempt(&failure),
        }
    }

    /// The primary has answered PSYNC, and any answer but an error says that it is one.
    fn note_taken_over(&mut self) {
        self.has_asked = false;
        if self.is_current() {
            handover::succeed(self.node);
        }
    }

    fn end_attempt(&mut self, failure: &Failure) {
        let is_silent = matches!(failure, Failure::Silence(_));
        if std::mem::take(&mut self.has_asked) && !is_silent && self.is_current() {
            handover::abort_alone(self.node, "Failover target rejected psync request");
        }
        let view = &self.node.replication.link;
        self.failed_in = Some(view.phase());
        match failure {
            Failure::GivenUp | Failure::Unusable => {}
            failure if failure.is_notice() => log::notice(failure.to_string()),
            failure => log::warning(failure.to_string()),
        }
        self.close();
        if self.is_current() && self.node.replication.is_link_up() {
            log::notice("Caching the disconnected primary state.");
            view.note_down();
            self.node.replication.set_link_up(false);
            self.node.config.touch();
        }
    }

    fn give_up(&mut self, why: Why) {
        let now = self.now();
        let input = match why {
            Why::Unusable => Input::Unusable,
            Why::GivenUp => Input::GivenUp,
        };
        self.link.step(input, now, &mut self.outputs);
    }

    // ---- bytes ----

    fn send(&mut self, bytes: &[u8]) {
        let Some(socket) = &mut self.socket else { return };
        if let Err(error) = socket.stream.write_all(bytes) {
            let now = self.now();
            self.link.step(Input::Broken(&os_text(&error)), now, &mut self.outputs);
        } else {
            self.node.link_stats().values.net_output_bytes.add(bytes.len() as u64);
        }
    }

    fn acknowledge(&mut self) {
        let node = self.node;
        let durable = node.aof.is_on().then(|| node.aof.durable().min(node.log.end()));
        self.send(&ack(stream::applied(node), durable));
    }

    fn read(&mut self) {
        let is_streaming = self.link.phase() == Phase::Connected;
        let Some(socket) = &mut self.socket else { return };
        let mut portion = Vec::new();
        let into = if is_streaming { self.stream.buffer() } else { &mut portion };
        let before = into.len();
        into.reserve(READ_BYTES);
        match socket.stream.receive(into) {
            Ok(0) => self.step(Input::Ended),
            Ok(count) => {
                self.note_read(count);
                if is_streaming {
                    let now = self.now();
                    let bytes = &self.stream.buffer()[before..];
                    // They are where they belong already.
                    let mut outputs = Vec::new();
                    self.link.step(Input::Bytes(bytes), now, &mut outputs);
                    debug_assert!(outputs.iter().all(|output| matches!(output, Output::Stream(_))));
                } else {
                    self.link.step(Input::Bytes(&portion), self.now(), &mut self.outputs);
                    for output in std::mem::take(&mut self.outputs) {
                        self.perform_one(output, &portion);
                    }
                    self.perform();
                }
                self.apply();
            }
            Err(error) => match error.kind() {
                io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut => self.step(Input::Quiet),
                io::ErrorKind::Interrupted => {}
                _ => self.step(Input::Broken(&os_text(&error))),
            },
        }
    }

    fn note_read(&mut self, count: usize) {
        let view = &self.node.replication.link;
        view.note_heard();
        self.node.link_stats().values.net_input_bytes.add(count as u64);
        if let Some(socket) = &self.socket {
            socket.shared.seen.note_interaction(unix_now());
            socket.shared.seen.input_total_bytes.fetch_add(count as u64, Relaxed);
        }
    }

    // ---- the stream ----

    /// Runs what has come of the stream, as far as there is room for it.
    fn apply(&mut self) {
        let mut batches = 0;
        while self.may_apply() {
            let mut seen = Seen::default();
            let bytes_max = self.node.config.query_buffer_bytes_max();
            let applied = self.stream.apply_batch(&mut self.applier, bytes_max, &mut seen);
            seen.divergences.iter().for_each(|divergence| self.report(divergence));
            if seen.asks_ack {
                self.acknowledge();
                self.perform();
            }
            match applied {
                Ok(true) => {}
                Ok(false) => break,
                Err(Fault::Refused(Refused::Superseded)) => return,
                Err(fault) => return self.stop_for(&fault),
            }
            batches += 1;
            if batches == BATCHES_PER_LOOK {
                batches = 0;
                self.step(Input::Tick);
            }
        }
        let node = self.node;
        let end = node.log.end().0;
        node.replication.link.read_offset.store(end + self.stream.unapplied_bytes() as u64, Relaxed);
        if end - self.gathered.min(end) >= GATHER_BYTES {
            if !node.log.is_read_by(LogReader::Aof) && !node.log.is_read_by(LogReader::Feeder) {
                node.log.gather();
            }
            self.gathered = end;
        }
    }

    // ---- synchronization ----

    fn go_on(&mut self, id: Option<isotherm_replication::ReplId>) {
        let node = self.node;
        let mut held = Held::new(&node.keyspace);
        if !await_gate(node, &mut held, || self.is_current()) {
            return;
        }
        let end = node.log.end();
        if let Some(id) = id.filter(|id| *id != node.replication.state().history.id()) {
            node.replication.state().history.rename(id, end);
            role::end_file(node);
            feeder::disconnect(node);
        }
        self.note_up();
        node.log.close_gap();
        node.replication.state().is_synced = true;
        held.release();
        feeder::keep_now(node);
    }

    /// Notes that the link is up: this node has all that its primary had a moment ago. Everything is held,
    /// and the primary is the one that is followed.
    fn note_up(&self) {
        let node = self.node;
        node.replication.set_link_up(true);
        node.replication.link.forget_down();
        node.replication.link.lacks_memory.store(false, Relaxed);
        node.replication.link.set_failed_with(None);
        node.config.touch();
    }

    fn begin_snapshot(&mut self, bytes: Option<u64>) {
        let shown = bytes.map_or(0, |bytes| bytes as i64);
        self.node.replication.link.sync_bytes.store(shown, Relaxed);
        let loads = self.position.is_some_and(|position| loads_from_socket(self.node, position));
        let to = if loads { "parser" } else { "disk" };
        log::notice(match bytes {
            Some(bytes) => format!("PRIMARY <-> REPLICA sync: receiving {bytes} bytes from primary to {to}"),
            None => format!("PRIMARY <-> REPLICA sync: receiving streamed RDB from primary with EOF to {to}"),
        });
        if loads {
            self.arrived = Some(Arrived::default());
            return;
        }
        match Receiving::begin(self.node) {
            Ok(receiving) => self.receiving = Some(receiving),
            Err(why) => self.give_up(why),
        }
    }

    fn receive(&mut self, bytes: &[u8]) {
        self.node.replication.link.sync_read_bytes.fetch_add(bytes.len() as i64, Relaxed);
        if let Some(arrived) = &mut self.arrived {
            arrived.bytes.extend(bytes);
        }
        let Some(receiving) = &mut self.receiving else { return };
        match receiving.write(bytes) {
            Ok(()) => {}
            Err(why) => {
                self.receiving = None;
                self.give_up(why);
            }
        }
    }

    /// All of the snapshot has come.
    fn end_snapshot(&mut self, mark_bytes: usize) {
        if let Some(arrived) = &mut self.arrived {
            arrived.mark_bytes = Some(mark_bytes);
            return;
        }
        let (Some(receiving), Some(position)) = (self.receiving.take(), self.position.take()) else { return };
        self.show_phase();
        let kept = receiving.keep(mark_bytes, position);
        let installed = kept.and_then(|kept| self.load_file(kept, position));
        self.end_install(installed);
    }

    fn end_install(&mut self, installed: Result<(), Why>) {
        let now = self.now();
        match installed {
            Ok(()) => {
                let node = self.node;
                let mut held = Held::new(&node.keyspace);
                if await_gate(node, &mut held, || self.is_current()) {
                    self.note_up();
                }
                held.release();
                let db = Db(u16::try_from(node.log.stream_database()).unwrap_or(0));
                self.applier = Applier::of_link(node, self.generation, db);
                if let Some(socket) = &self.socket {
                    self.applier.set_client(&socket.shared);
                }
                self.link.step(Input::Loaded, now, &mut self.outputs);
            }
            Err(why) => self.give_up(why),
        }
    }

    fn load_file(&mut self, kept: Kept, position: Position) -> Result<(), Why> {
        log::notice("Done downloading RDB");
        let Kept { portions: file, path, received } = kept;
        let (mut exec, generation) = (Exec::of_link(self.node), self.generation);
        let mut file = Beating { file, received, thread: self, beaten: Instant::now() };
        let installed = sync::install(&mut exec, generation, position, &mut file, false);
        self.remove_file(&path);
        installed
    }

    /// The snapshot is loaded as it comes.
    fn load_from_socket(&mut self) {
        let Some(position) = self.position.take() else { return };
        self.show_phase();
        let (mut exec, generation) = (Exec::of_link(self.node), self.generation);
        let mut socket = FromSocket { thread: self };
        let installed = socket
            .check_magic()
            .and_then(|()| sync::install(&mut exec, generation, position, &mut socket, true));
        self.arrived = None;
        if self.link.phase() == Phase::Transfer {
            self.end_install(installed);
            self.perform();
        }
    }
}
