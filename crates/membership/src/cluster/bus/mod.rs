//! The thread of the cluster bus: sockets, clock and mailbox on one side, the machine that decides
//! (`isotherm_cluster::machine`) on the other.
//!
//! ```text
//!   other nodes  <--links-->  bus thread  --Apply, Publish-->  hands   takes the locks of partitions: words, role
//!   workers      --requests-->     |      <--Applied---------    |
//!                <--replies--      |                             '---> deleter   deletes keys of lost slots
//!                                  |      <--Deleted--------------------'
//!                                  |      --Save-->            saver   writes nodes.conf
//!                                  |      <--Saved--
//!                                  |      --Resolve-->          names   addresses of a host name
//!                                  |      <--Resolved--
//! ```
//! The thread takes no partition's lock and writes no file: neither a slow command nor a slow disk makes the
//! node look dead to others.

mod conf_file;
mod connection;
mod deleter;
mod hands;
mod links_reply;
mod names;
mod open;
mod pulse;
mod replicas_first;
mod requests;
mod saver;
mod settings;

use isotherm_cluster::Slot;
use isotherm_cluster::machine::{Input, Level, LinkId, Machine, Ms, Now, Output, RequestId};
use isotherm_cluster::topology::Topology;
use isotherm_cluster::topology::info::Counts;
use isotherm_cluster::wire::{self, Caps, Defect, Type};
use isotherm_reactor::{Events, Listener, Mailbox, Ready, Stream, Token};
use std::collections::BTreeMap;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::os::fd::AsFd;
use std::sync::Arc;
use std::time::{Duration, Instant};

use crate::cluster::changes;
use connection::{BusConnection, Incoming, Shaken};
use isotherm_config::{Id, id};
use isotherm_node::Node;
use isotherm_node::cluster::requests::{Asker, Bus, BusMessage, Looked};
use isotherm_node::tls;
use isotherm_runtime::log;
use isotherm_runtime::time::{thread_cpu, unix_now};
pub use open::{Opened, open};
use pulse::Pulse;

const TICK: Duration = Duration::from_millis(100);
/// Size of the one buffer for all links.
const READ_BYTES: usize = 64 << 10;
/// Reads from one link in a turn.
const READS_PER_TURN: usize = 16;
const ACCEPTS_PER_TURN: usize = 64;
/// Longest time without a look at links for transactions that change the cluster. Nodes are given up after
/// some seconds.
const QUIET_MAX: Duration = Duration::from_secs(1);
/// Time between two looks whether these have ended.
const QUIET_LOOK: Duration = Duration::from_millis(1);
/// Limit of a client's message over a link on which no node has named itself.
const UNKNOWN_SENDER_BYTES_MAX: usize = 64 << 10;
/// Tokens of links are their numbers, which grow from 1; those of listeners stand at the other end.
const LISTENER_TOKENS: usize = usize::MAX - 64;

pub struct BusThread {
    node: &'static Node,
    events: Events,
    mailbox: Mailbox<BusMessage>,
    listeners: Vec<Listener>,
    /// Port that the listeners listen on.
    port: u16,
    machine: Machine,
    /// On their own, since a leaf of the map is half empty where numbers only grow.
    connections: BTreeMap<LinkId, Box<BusConnection>>,
    /// Links that may have more to read than a turn takes.
    unfinished: Vec<LinkId>,
    /// Events that wait for the end of a transaction, since when the bus is quiet for it.
    postponed: Vec<Ready>,
    quiet_since: Option<Instant>,
    /// Links that may have something to send now.
    unsent: Vec<LinkId>,
    /// Listeners that may have more to accept, for want of descriptors too: an edge is reported once.
    unaccepted: Vec<usize>,
    /// Connections that failed while an output was obeyed.
    failed: Vec<LinkId>,
    accepted: u64,
    asked: u64,
    /// Clients and workers whose requests are under way, each with the slot whose word was closed for the
    /// request.
    askers: BTreeMap<RequestId, (Asker, Option<Slot>)>,
    /// Slots that a request in progress is to give away.
    closing: BTreeMap<Slot, requests::Closing>,
    hands: hands::Hand,
    replicas_first: std::sync::mpsc::Sender<Looked>,
    saver: std::sync::mpsc::Sender<saver::Job>,
    names: std::sync::mpsc::Sender<names::Question>,
    counts: Counts,
    /// Bytes of clients' messages since the last report.
    published_bytes: usize,
    /// Something was sent or has come since the counts were shown.
    has_news: bool,
    pulse: Pulse,
    was_alive: bool,
    begun: Instant,
    next_tick: Instant,
    buffer: Vec<u8>,
}

/// Begins the thread. The data is loaded.
pub fn start(node: &'static Node, opened: Opened) -> io::Result<()> {
    let events = Events::new()?;
    let mailbox = events.mailbox()?;
    let member = node.cluster.get().expect("the bus belongs to a member of a cluster");
    for (at, listener) in opened.listeners.iter().enumerate() {
        events.watch_readable(listener.as_fd(), Token(LISTENER_TOKENS + at))?;
    }
    let hands = hands::start(node, mailbox.sender())?;
    let replicas_first = replicas_first::start(node, mailbox.sender())?;
    let saver = saver::start(node, mailbox.sender(), opened.file)?;
    let names = names::start(mailbox.sender())?;
    let now = Instant::now();
    let thread = BusThread {
        node,
        events,
        unaccepted: (0..opened.listeners.len()).collect(),
        listeners: opened.listeners,
        port: settings::bus_port(&node.config),
        machine: opened.machine,
        connections: BTreeMap::new(),
        unfinished: Vec::new(),
        postponed: Vec::new(),
        quiet_since: None,
        unsent: Vec::new(),
        failed: Vec::new(),
        accepted: 1,
        asked: 0,
        askers: BTreeMap::new(),
        closing: BTreeMap::new(),
        hands,
        replicas_first,
        saver,
        names,
        counts: Counts::default(),
        published_bytes: 0,
        has_news: true,
        pulse: Pulse::new(node.worker_count()),
        was_alive: true,
        begun: opened.begun,
        next_tick: now,
        buffer: vec![0; READ_BYTES],
        mailbox,
    };
    member.bus.attach(thread.mailbox.sender());
    std::thread::Builder::new().name("cluster-bus".into()).spawn(move || thread.run())?;
    Ok(())
}

impl BusThread {
    fn run(mut self) {
        loop {
            if let Err(error) = self.turn() {
                log::warning(format!("Fatal error in the thread of the cluster bus: {error}"));
                std::process::exit(1);
            }
        }
    }

    fn turn(&mut self) -> io::Result<()> {
        if !self.is_node_alive() {
            std::thread::sleep(TICK / 10);
            return Ok(());
        }
        let wait = self.next_tick.saturating_duration_since(Instant::now());
        let wait = match self.unfinished.is_empty() && self.postponed.is_empty() {
            true => wait,
            false if self.quiet_since.is_some() => wait.min(QUIET_LOOK),
            false => Duration::ZERO,
        };
        self.events.wait(Some(wait))?;
        // An edge is reported once.
        self.postponed.extend(self.events.ready());
        // Before the messages of other nodes: if one of them was asked for something after this node, its
        // message comes after.
        if self.mailbox.has_messages() {
            for message in self.mailbox.take() {
                self.message(message);
            }
        }
        if !self.keeps_quiet() {
            for ready in std::mem::take(&mut self.postponed) {
                self.meet(ready);
            }
            for link in std::mem::take(&mut self.unfinished) {
                self.read(link, true);
            }
        }
        if Instant::now() >= self.next_tick {
            self.next_tick = Instant::now() + TICK;
            self.close_overfull();
            std::mem::take(&mut self.unaccepted).into_iter().for_each(|at| self.accept(at));
            let offset = self.node.log.end().0;
            self.step(Input::Tick { offset });
            self.bus().note_cpu(thread_cpu());
        }
        self.flush();
        if std::mem::take(&mut self.has_news) {
            self.report();
        }
        Ok(())
    }

    /// Returns whether messages of other nodes wait for a transaction that changes the cluster.
    fn keeps_quiet(&mut self) -> bool {
        if !self.bus().is_quiet() {
            self.quiet_since = None;
            return false;
        }
        self.quiet_since.get_or_insert_with(Instant::now).elapsed() < QUIET_MAX
    }

    fn is_node_alive(&mut self) -> bool {
        const STALL: Id = id("cluster-stall-timeout");
        let stall_ms = self.node.config.number(STALL) as u64;
        let now_ms = self.now().ms.0;
        let is_alive = self.pulse.look(self.node, now_ms, stall_ms) && !self.node.debug.is_asleep.is_on();
        if is_alive != self.was_alive {
            self.was_alive = is_alive;
            match is_alive {
                true => log::notice("This node serves clients again: the cluster bus goes on."),
                false => {
                    log::warning("This node serves no clients: the cluster bus is silent until it does.")
                }
            }
        }
        is_alive
    }

    fn now(&self) -> Now {
        Now { ms: Ms(self.begun.elapsed().as_millis() as u64), unix_ms: unix_now().0 as u64 }
    }

    fn step(&mut self, input: Input<'_>) {
        let now = self.now();
        let outputs = self.machine.step(input, now);
        outputs.into_iter().for_each(|output| self.obey(output));
        while let Some(link) = self.failed.pop() {
            self.connections.remove(&link);
            let outputs = self.machine.step(Input::Closed { link }, now);
            outputs.into_iter().for_each(|output| self.obey(output));
        }
    }

    fn obey(&mut self, output: Output) {
        match output {
            Output::Connect { link, ip, port } => self.connect(link, &ip, port),
            Output::Send { link, bytes } => {
                if let Some(connection) = self.connections.get_mut(&link) {
                    self.has_news = true;
                    if let Some(kind) = Type::of_bytes(&bytes) {
                        self.counts.sent.count(kind, bytes.len());
                    }
                    connection.queue(bytes);
                    self.unsent.push(link);
                }
            }
            Output::Close { link } => {
                self.connections.remove(&link);
            }
            Output::Save { number, conf } => {
                self.saver.send(saver::Job { number, conf }).expect("the saver lives as long")
            }
            Output::Answer { id, answer } => self.answer(id, answer),
            Output::Deliver { channel, message, is_sharded } => {
                self.node.pubsub.publish(&self.node.mail, None, &channel, &message, is_sharded);
            }
            Output::Say(level, text) => match level {
                Level::Debug => log::debug(text),
                Level::Verbose => log::verbose(text),
                Level::Notice => log::notice(text),
                Level::Warning => log::warning(text),
            },
            Output::Apply { number, topology, gained, others } => {
                self.hand(hands::Work::Apply { number, topology, gained, others });
            }
            Output::Publish(topology) => self.publish(topology),
            Output::Follow { ip, port, .. } => self.hand(hands::Work::Follow { ip, port }),
            Output::Lead => self.hand(hands::Work::Lead),
            Output::DeleteKeys(slots) => self.hand(hands::Work::DeleteKeys(slots)),
            Output::Resolve { node, name } => {
                self.names.send((node, name)).expect("the thread of names lives as long");
            }
        }
    }

    fn hand(&self, work: hands::Work) {
        self.hands.hand(work);
    }

    /// Ten times a second: another thread is not woken where nothing but the topology is to be set.
    fn publish(&self, topology: Arc<Topology>) {
        match self.hands.are_at_rest() && changes::wakes_no_client(self.node, &topology) {
            true => changes::publish(self.node, topology),
            false => self.hand(hands::Work::Publish(topology)),
        }
    }

    fn message(&mut self, message: BusMessage) {
        match message {
            BusMessage::Request(request) => self.request(request),
            BusMessage::Replicated(looked, done) => self.replicated(looked, done),
            BusMessage::Order(request) => {
                self.asked += 1;
                self.step(Input::Request { id: RequestId(self.asked), request });
            }
            BusMessage::Looked(looked) => self.looked(looked),
            BusMessage::Next(looked) => self.begin(looked),
            BusMessage::Saved(number) => self.step(Input::Saved(number)),
            BusMessage::Applied(number) => self.step(Input::Applied(number)),
            BusMessage::Deleted(slots) => self.step(Input::Deleted(slots)),
            BusMessage::Resolved(node, ips) => self.step(Input::Resolved { node, ips: &ips }),
            BusMessage::Publish { channel, message, is_sharded } => {
                self.published_bytes += channel.len() + message.len();
                self.step(Input::Publish { channel: &channel, message: &message, is_sharded });
            }
            BusMessage::Populated(slots) => self.step(Input::Populated(slots)),
            BusMessage::Configured(done) => {
                let settings = Box::new(settings::read_all(self.node, self.port));
                self.step(Input::Settings(settings));
                self.hand(hands::Work::Drop(done));
            }
            BusMessage::Report(done) => {
                self.report();
                drop(done);
            }
            BusMessage::ResetCounts => {
                self.counts = Counts::default();
                self.report();
            }
        }
    }

    // ---- links ----

    fn meet(&mut self, ready: Ready) {
        if ready.token == Token::MAILBOX {
            return;
        }
        if ready.token.0 >= LISTENER_TOKENS {
            return self.accept(ready.token.0 - LISTENER_TOKENS);
        }
        let link = LinkId(ready.token.0 as u64);
        let Some(connection) = self.connections.get_mut(&link) else { return };
        self.unsent.push(link);
        if ready.writable && connection.is_connecting() && !self.connected(link) {
            return;
        }
        if !self.shake_hands(link) {
            return;
        }
        if let Some(connection) = self.connections.get_mut(&link) {
            connection.is_writable |= ready.writable;
        }
        if ready.readable || ready.closed {
            self.read(link, ready.closed);
        }
    }

    fn connect(&mut self, link: LinkId, ip: &str, port: u16) {
        let begun =
            ip.parse::<IpAddr>().map_err(|error| io::Error::other(error.to_string())).and_then(|ip| {
                let stream = isotherm_reactor::connect::begin(
                    settings::source(&self.node.config),
                    SocketAddr::new(ip, port),
                )?;
                let stream = match stream {
                    Stream::Tcp(socket) if tls::is_for_cluster(&self.node.config) => {
                        Stream::Tls(Box::new(self.node.tls.connect(socket, ip)?))
                    }
                    stream => stream,
                };
                self.events.watch(stream.as_fd(), Token(link.0 as usize))?;
                Ok(stream)
            });
        match begun {
            Ok(stream) => {
                self.connections.insert(link, Box::new(BusConnection::begun(stream)));
            }
            Err(_) => self.failed.push(link),
        }
    }

    /// A connection that was begun stands, or has failed. Whether it stands.
    fn connected(&mut self, link: LinkId) -> bool {
        let connection = self.connections.get_mut(&link).expect("it was looked up before");
        match (connection.complete(), connection.local_ip()) {
            (Ok(false), Some(_)) => true,
            (Ok(true), Some(local_ip)) => {
                self.step(Input::Connected { link, local_ip: &local_ip });
                true
            }
            _ => {
                self.closed(link);
                false
            }
        }
    }

    /// Under TLS a handshake comes before messages. Whether these can come now.
    fn shake_hands(&mut self, link: LinkId) -> bool {
        let Some(connection) = self.connections.get_mut(&link) else { return false };
        match connection.shake_hands() {
            Shaken::Ready | Shaken::Now { is_ours: false } => true,
            Shaken::Now { is_ours: true } => {
                let local_ip = connection.local_ip().unwrap_or_default();
                self.step(Input::Connected { link, local_ip: &local_ip });
                true
            }
            Shaken::Not => false,
            Shaken::Failed => {
                self.closed(link);
                false
            }
        }
    }

    fn closed(&mut self, link: LinkId) {
        if self.connections.remove(&link).is_some() {
            self.step(Input::Closed { link });
        }
    }

    fn accept(&mut self, at: usize) {
        for _ in 0..ACCEPTS_PER_TURN {
            let stream = match self.listeners[at].accept() {
                Ok(Some(stream)) => stream,
                Ok(None) => return,
                Err(error) => {
                    log::verbose(format!("Error accepting cluster node: {error}"));
                    break;
                }
            };
            let stream = match stream {
                Stream::Tcp(socket) if tls::is_for_cluster(&self.node.config) => {
                    let Some(stream) = self.node.tls.accept_node(socket) else { continue };
                    stream
                }
                stream => stream,
            };
            let Some((peer, local)) = stream.addresses() else { continue };
            self.accepted += 2;
            let link = LinkId(self.accepted);
            let is_ready =
                stream.prepare(None).and_then(|()| self.events.watch(stream.as_fd(), Token(link.0 as usize)));
            if is_ready.is_err() {
                continue;
            }
            self.connections.insert(link, Box::new(BusConnection::accepted(stream)));
            let (peer_ip, local_ip) =
                (peer.ip().to_canonical().to_string(), local.ip().to_canonical().to_string());
            self.step(Input::Accepted { link, peer_ip: &peer_ip, local_ip: &local_ip });
        }
        if !self.unaccepted.contains(&at) {
            self.unaccepted.push(at);
        }
    }

    /// `to_end`: also what no event will report.
    fn read(&mut self, link: LinkId, to_end: bool) {
        let mut buffer = std::mem::take(&mut self.buffer);
        for _ in 0..READS_PER_TURN {
            let Some(connection) = self.connections.get_mut(&link) else { break };
            match connection.read(&mut buffer) {
                Incoming::Nothing if connection.is_drained() => {
                    self.buffer = buffer;
                    return;
                }
                Incoming::Nothing => {}
                Incoming::Ended => {
                    self.closed(link);
                    break;
                }
                Incoming::Bytes(bytes, is_all) => {
                    self.take_messages(link, bytes);
                    if is_all && !to_end {
                        self.buffer = buffer;
                        return;
                    }
                }
            }
        }
        self.buffer = buffer;
        if self.connections.contains_key(&link) {
            self.unfinished.push(link);
        }
    }

    /// All messages that `bytes` hold as a whole; the rest is kept with the connection.
    fn take_messages(&mut self, link: LinkId, bytes: Vec<u8>) {
        // A node that has not said who it is has no messages of clients to bring.
        let payload_bytes = if self.machine.knows(link) {
            self.node.config.bulk_bytes_max()
        } else {
            UNKNOWN_SENDER_BYTES_MAX
        };
        let caps = Caps { payload_bytes };
        let mut at = 0;
        loop {
            let rest = &bytes[at..];
            let length = match wire::frame(rest, caps) {
                Ok(Some(length)) if rest.len() >= length => length,
                Ok(_) => break,
                Err(why) => return self.malformed(link, why),
            };
            self.has_news = true;
            if let Some(kind) = Type::of_bytes(rest) {
                self.counts.received.count(kind, length);
            }
            match wire::decode(&rest[..length]) {
                Ok(message) => self.step(Input::Packet { link, message: &message }),
                Err(why) if why.kind == Defect::Ignored => {
                    self.count_invalid();
                    log::warning(format!("A packet on the Cluster bus is ignored: {why}"));
                }
                Err(why) => return self.malformed(link, why),
            }
            if !self.connections.contains_key(&link) {
                return;
            }
            at += length;
        }
        if let Some(connection) = self.connections.get_mut(&link) {
            connection.keep(bytes, at);
        }
    }

    fn malformed(&mut self, link: LinkId, why: wire::Malformed) {
        self.count_invalid();
        log::warning(format!("Bad message length or signature received on the Cluster bus: {why}"));
        self.closed(link);
    }

    fn count_invalid(&self) {
        self.bus().count_invalid();
    }

    fn flush(&mut self) {
        // A link that is closed may be a reason to send something to others.
        while let Some(link) = self.unsent.pop() {
            if self.connections.get_mut(&link).is_some_and(|connection| !connection.flush()) {
                self.closed(link);
            }
        }
    }

    /// Updates the counts that INFO and CLUSTER INFO show.
    fn report(&mut self) {
        let bytes = self.connections.values().map(|connection| connection.memory_bytes()).sum::<usize>();
        self.bus().set_counts(self.counts.clone());
        let published_bytes = std::mem::take(&mut self.published_bytes);
        self.bus().set_links(self.connections.len(), bytes, published_bytes);
    }

    fn bus(&self) -> &'static Bus {
        &self.node.cluster.get().expect("the bus belongs to a member of a cluster").bus
    }

    fn close_overfull(&mut self) {
        let limit = settings::queue_bytes_max(&self.node.config);
        let overfull: Vec<LinkId> = self
            .connections
            .iter()
            .filter(|(_, connection)| connection.queued_bytes() > limit)
            .map(|(link, _)| *link)
            .collect();
        for link in overfull {
            log::warning("Freeing cluster link due to exceeding send buffer memory limit.");
            self.counts.links_over_limit += 1;
            self.closed(link);
        }
    }
}
