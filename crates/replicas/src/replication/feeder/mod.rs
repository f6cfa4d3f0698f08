//! The thread that feeds replicas: it owns their sockets, sends them snapshots and the log, and hears their
//! ACKs.
//!
//! ```text
//!   worker --PSYNC--> attach --+--> +CONTINUE, the log from there
//!                              +--> waits --> cut --> snapshot --> ACK --> the log from the cut
//!   workers --append--> log --gather--> pieces --> each replica's socket
//!   a replica --REPLCONF ACK--> its counters, the clients that wait for them
//! ```
//! The feeder reads the log, as the writer of the append-only file does. A busy log is gathered for a moment,
//! so that one call sends many commands. A client that waits for ACKs ends that moment.
//!
//! The feeder reads and writes no file: the `courier` does, so a disk that hangs holds up no replica but
//! those that need it.
//!
//! The thread begins with the first replica. `Feed` decides what is sent and when a replica is given up; this
//! module does it.

mod attach;
mod courier;
mod cuts;
mod keep;
mod listen;
mod replica;
mod tick;

use isotherm_keyspace::{Held, SteadyMs};
use isotherm_log::{LogOffset, ReaderId};
use isotherm_reactor::{Events, Mailbox, Ready, Token};
use isotherm_replication::Ms;
use std::io;
use std::os::fd::AsFd;
use std::sync::atomic::Ordering::Relaxed;
use std::time::{Duration, Instant};

use crate::replication::full_sync;
use crate::replication::spill::Spill;
pub use attach::name_of;
use courier::{Courier, Reader};
use isotherm_engine::request::leases::{GATE_REST, try_gate};
use isotherm_node::Node;
use isotherm_node::effects::change_log::LogReader;
use isotherm_node::mail::message::{ControlMessage, FeederMessage};
use isotherm_node::mail::tasks::Tasks;
use isotherm_node::replication::failover::Due;
use isotherm_node::replication::primary::GETACK;
use isotherm_node::session::Attention;
use isotherm_node::session::line;
use isotherm_runtime::log;
use isotherm_runtime::time::{steady_now, unix_now};
use keep::Departed;
use replica::{Replica, Sent, Sources};

/// Between two looks at a busy log.
const GATHERING: Duration = Duration::from_millis(1);
/// Time between two looks at the log while no replica is there, and the log is only kept.
const KEEPING: Duration = Duration::from_millis(20);

/// Time between two looks at the log while a failover, or the end of the process, waits for replicas.
const WATCHED_LOOK: Duration = Duration::from_millis(50);

/// Maximum number of turns in which the rest is sent at the end.
const FLUSH_TURNS_MAX: usize = 1000;

const SECOND: Duration = Duration::from_secs(1);

const PING: &[u8] = b"*1\r\n$4\r\nPING\r\n";

pub struct Feeder {
    node: &'static Node,
    events: Events,
    mailbox: Mailbox<FeederMessage>,
    /// Replicas by token.
    replicas: Vec<Option<Box<Replica>>>,
    /// While the log is kept: the part after its place is kept beyond the backlog too.
    kept: Option<Kept>,
    /// Ring on disk of the log that has left memory and that replicas still lack.
    ring: Spill,
    ring_refused: Option<Instant>,
    departed: Vec<Departed>,
    began: Instant,
    next_tick: Instant,
    ticks: u64,
    /// The last replica left then.
    alone_since: Instant,
    /// A replica has more to send, and takes it.
    has_more: bool,
    /// The last look has found something in the log.
    is_busy: bool,
    courier: Courier,
    /// Messages that wait for the end of scripts.
    postponed: Vec<FeederMessage>,
}

struct Kept {
    reader: ReaderId,
    from: LogOffset,
}

/// Begins the thread.
pub fn start(node: &'static Node) -> io::Result<()> {
    let events = Events::new()?;
    let mailbox = events.mailbox()?;
    let (sender, waker) = (mailbox.sender(), mailbox.sender());
    let now = Instant::now();
    let feeder = Feeder {
        node,
        events,
        mailbox,
        replicas: Vec::new(),
        kept: None,
        ring: Spill::default(),
        ring_refused: None,
        departed: Vec::new(),
        began: now,
        next_tick: now + SECOND,
        // The first ping comes a whole period after the start.
        ticks: 1,
        alone_since: now,
        has_more: false,
        is_busy: false,
        courier: Courier::new(node),
        postponed: Vec::new(),
    };
    std::thread::Builder::new().name("feeder".into()).spawn(move || feeder.run())?;
    node.log.set_reader(LogReader::Feeder, move || waker.post(FeederMessage::Look));
    node.mail.set_feeder(sender);
    Ok(())
}

/// Keeps the log of a node that follows a primary, so that the other replicas of that primary may connect
/// here when this node is promoted. The log is kept when this returns. The caller holds nothing.
pub fn keep(node: &'static Node) {
    let (done, is_done) = std::sync::mpsc::channel();
    begin_to_keep(node, Some(done));
    // Without the thread the channel says so.
    let _ = is_done.recv();
}

/// Begins to keep the log a moment later, for a caller that may hold something.
pub fn keep_soon(node: &'static Node) {
    begin_to_keep(node, None);
}

fn begin_to_keep(node: &'static Node, done: Option<std::sync::mpsc::Sender<()>>) {
    match node.replication.primary.begin_once(|| start(node)) {
        Ok(()) => node.mail.post_feeder(FeederMessage::Keep(done)),
        Err(error) => log::warning(format!("Can't start the thread that feeds replicas: {error}")),
    }
}

/// Keeps the log of a primary that has just loaded a file of its history. Everything that is logged after
/// this is kept.
pub fn keep_now(node: &'static Node) {
    /// The thread has little else to do yet.
    const PATIENCE: Duration = Duration::from_secs(10);
    keep(node);
    let begun = Instant::now();
    while !node.replication.primary.has_backlog() && begun.elapsed() < PATIENCE {
        std::thread::sleep(Duration::from_millis(1));
    }
}

/// All replicas come back and hear what the history is called now.
pub fn disconnect(node: &Node) {
    node.mail.post_feeder(FeederMessage::Disconnect);
}

/// Disconnects all replicas and releases the log, which is about to become that of another history. The
/// caller holds nothing.
pub fn let_go(node: &Node) {
    let (done, is_done) = std::sync::mpsc::channel();
    node.mail.post_feeder(FeederMessage::LetGo(done));
    // Without the thread there is nothing to release, and the channel says so.
    let _ = is_done.recv();
}

/// The process ends: replicas get what their sockets take at once.
pub fn flush(node: &Node) {
    const PATIENCE: Duration = Duration::from_secs(1);
    let (done, is_done) = std::sync::mpsc::channel();
    node.mail.post_feeder(FeederMessage::Flush(done));
    let _ = is_done.recv_timeout(PATIENCE);
}

impl Feeder {
    fn run(mut self) {
        loop {
            let timeout = self.rest();
            if let Err(error) = self.events.wait(Some(timeout)) {
                // As with a worker, the process is of no use without it.
                log::warning(format!("Fatal error in the thread that feeds replicas: {error}"));
                std::process::exit(1);
            }
            let ready: Vec<Ready> =
                self.events.ready().filter(|ready| ready.token != Token::MAILBOX).collect();
            ready.into_iter().for_each(|ready| self.serve(ready));
            self.hear_postponed();
            self.mailbox.take().into_iter().for_each(|message| self.hear(message));
            if Instant::now() >= self.next_tick {
                self.next_tick = Instant::now() + SECOND;
                self.tick();
            }
            self.ask_for_acks();
            self.send();
            self.look_at_failover();
            self.look_at_end();
            isotherm_allocator::settle();
        }
    }

    /// Returns the time for which there is nothing to do.
    fn rest(&self) -> Duration {
        let until_tick = self.next_tick.saturating_duration_since(Instant::now());
        let log = &self.node.log;
        match () {
            () if self.has_more || self.mailbox.has_messages() => Duration::ZERO,
            () if !self.postponed.is_empty() => GATE_REST.min(until_tick),
            () if self.kept.is_none() => until_tick,
            () if !self.has_replicas() => KEEPING.min(until_tick),
            () if self.is_watched() => WATCHED_LOOK.min(until_tick),
            () if self.is_busy => GATHERING.min(until_tick),
            () => {
                log.fall_asleep(LogReader::Feeder);
                if log.end() > log.collected() { Duration::ZERO } else { until_tick }
            }
        }
    }

    fn now(&self) -> Ms {
        Ms(self.began.elapsed().as_millis() as u64)
    }

    fn has_replicas(&self) -> bool {
        self.replicas.iter().any(Option::is_some)
    }

    /// Hears what waits for scripts, in its order.
    fn hear_postponed(&mut self) {
        for message in std::mem::take(&mut self.postponed) {
            self.hear(message);
        }
    }

    /// Returns whether the message waits for the end of scripts, or behind another that does. All else is
    /// served meanwhile.
    fn postpones(&self, message: &FeederMessage) -> bool {
        let is_one = match message {
            FeederMessage::Attach(_) | FeederMessage::Keep(_) => self.kept.is_none(),
            FeederMessage::LetGo(_) => self.kept.is_some(),
            _ => return false,
        };
        let behind_script = || !try_gate(self.node, &mut Held::new(&self.node.keyspace));
        !self.postponed.is_empty() || is_one && self.node.keyspace.has_leases() && behind_script()
    }

    fn hear(&mut self, message: FeederMessage) {
        if self.postpones(&message) {
            return self.postponed.push(message);
        }
        match message {
            FeederMessage::Attach(arrival) => self.attach(*arrival),
            FeederMessage::Attend { id } => self.attend(id),
            FeederMessage::Look => {}
            FeederMessage::Walked => self.cut_if_due(),
            FeederMessage::Read { client, read, bytes } => self.bring(Reader { client, read }, bytes),
            FeederMessage::Written { generation, file } => self.note_ring_written(generation, file),
            FeederMessage::Disconnect => self.disconnect(),
            FeederMessage::Keep(done) => match self.open_backlog() {
                true => _ = done.map(|done| done.send(())),
                false => self.postponed.push(FeederMessage::Keep(done)),
            },
            FeederMessage::Flush(done) => {
                for _ in 0..FLUSH_TURNS_MAX {
                    self.send();
                    if !self.has_more {
                        break;
                    }
                }
                let _ = done.send(());
            }
            FeederMessage::LetGo(done) => {
                self.disconnect();
                match self.let_go() {
                    // It fails if the caller is gone.
                    true => _ = done.send(()),
                    false => self.postponed.push(FeederMessage::LetGo(done)),
                }
            }
        }
    }

    /// Each replica in turn, taken out of its place.
    fn each(&mut self, mut act: impl FnMut(&mut Feeder, usize, Box<Replica>) -> Option<Box<Replica>>) {
        for token in 0..self.replicas.len() {
            if let Some(replica) = self.replicas[token].take() {
                self.replicas[token] = act(self, token, replica);
            }
        }
    }

    fn serve(&mut self, ready: Ready) {
        let Some(mut replica) = self.replicas.get_mut(ready.token.0).and_then(Option::take) else { return };
        replica.is_writable |= ready.writable;
        let stays = !(ready.readable || ready.closed) || self.listen(&mut replica, ready.closed);
        self.settle(ready.token.0, replica, stays);
    }

    /// Puts a replica back, or ends it.
    fn settle(&mut self, token: usize, replica: Box<Replica>, stays: bool) {
        match stays {
            true => self.replicas[token] = Some(replica),
            false => self.lose(*replica),
        }
    }

    // ---- the log ----

    /// Appends a command of this thread's own, and returns where it ends. A replica's log has the commands of
    /// its primary only.
    fn append(&mut self, command: &[u8]) -> Option<LogOffset> {
        let node = self.node;
        // The role changes while everything is held: as long as this is, it stays.
        let mut held = Held::new(&node.keyspace);
        held.acquire_one(0);
        if self.kept.is_none() || node.mail.tasks().has(Tasks::REPLICA) {
            return None;
        }
        let appended = node.log.append_beside(command);
        node.log.wake(LogReader::Aof);
        Some(appended.end)
    }

    fn ask_for_acks(&mut self) {
        let primary = &self.node.replication.primary;
        if primary.take_ack_wanted()
            && self.has_replicas()
            && let Some(end) = self.append(GETACK)
        {
            primary.note_asked(end);
        }
    }

    /// The control thread acts on what is due: it holds all locks for that, and the feeder is not to wait for
    /// them.
    fn look_at_failover(&self) {
        let node = self.node;
        let (replication, now) = (&node.replication, steady_now());
        match replication.failover.due(&replication.primary, node.log.end(), now) {
            None => {}
            Some(Due::Ask) => node.ask_for_acks(),
            Some(Due::Synced(_) | Due::Forced(_) | Due::TimedOut) => {
                node.mail.post_control(ControlMessage::HandOver);
            }
        }
    }

    /// The end of the process waits for replicas: its time is watched by the control thread, and their ACKs
    /// are here.
    fn look_at_end(&self) {
        let (node, primary) = (self.node, &self.node.replication.primary);
        if !node.process.ending.is_under_way() {
            return;
        }
        let end = node.log.end();
        match primary.lagging(end).is_empty() {
            true => node.mail.post_control(ControlMessage::Look),
            false if primary.acks_asked_to() != end => node.ask_for_acks(),
            false => {}
        }
    }

    /// Something waits for replicas to have all of the log.
    fn is_watched(&self) -> bool {
        self.node.replication.failover.is_under_way() || self.node.process.ending.is_under_way()
    }

    /// Sends what there is to all that take it.
    fn send(&mut self) {
        let node = self.node;
        (self.has_more, self.is_busy) = (false, false);
        let before = node.log.collected();
        if self.kept.is_some() {
            node.log.gather();
        }
        let end = node.log.collected();
        self.is_busy = end > before;
        self.each(|feeder, _, replica| feeder.send_to(replica, end));
        self.release(end);
    }

    /// Sends to a replica all that its socket takes. Returns `None` if the replica is lost.
    fn send_to(&mut self, mut replica: Box<Replica>, end: LogOffset) -> Option<Box<Replica>> {
        let (before, now) = (replica.sent_bytes, self.now());
        let state = replica.feed.state();
        let Feeder { node, ring, courier, .. } = self;
        let mut sent = replica.send(Sources { log: &node.log, ring, courier }, end, now);
        if sent == Sent::Full && self.is_above_limit(&mut replica, end) {
            sent = Sent::Gone;
        }
        self.note_written(&replica, replica.sent_bytes - before);
        if replica.feed.state() != state {
            self.note_sync_step(&mut replica);
        }
        self.publish(&replica);
        match sent {
            Sent::All | Sent::Full => Some(replica),
            Sent::Turn => {
                self.has_more = true;
                Some(replica)
            }
            Sent::SyncFailed => {
                log::warning("SYNC failed. BGSAVE child returned an error");
                self.lose(*replica);
                None
            }
            Sent::Gone => {
                self.overrun(*replica);
                None
            }
            Sent::Done | Sent::Broken => {
                self.lose(*replica);
                None
            }
        }
    }

    /// Hands a replica the bytes that were read from a file for it.
    fn bring(&mut self, reader: Reader, bytes: io::Result<Vec<u8>>) {
        let mut replicas = self.replicas.iter_mut().flatten();
        if let Some(replica) = replicas.find(|replica| replica.shared.client.id == reader.client) {
            replica.take_read(reader, bytes);
        }
    }

    // ---- replicas leave ----

    /// A replica may have been asked something.
    fn attend(&mut self, id: u64) {
        self.each(|feeder, _, replica| {
            let client = &replica.shared.client;
            if client.id == id && client.is_asked(Attention::KILL) {
                feeder.lose(*replica);
                return None;
            }
            Some(replica)
        });
    }

    fn lose(&mut self, replica: Replica) {
        log::notice(format!("Connection with replica {} lost.", replica.name));
        self.remember(&replica);
        self.events.forget(replica.stream.as_fd());
        let client = &replica.shared.client;
        self.node.replication.primary.replicas().retain(|other| other.client.id != client.id);
        self.node.clients.remove(client.id);
        if let Some(sync) = &replica.sync {
            full_sync::leave(self.node, sync);
        }
        self.alone_since = Instant::now();
        self.note_good_replicas();
    }

    /// A replica is too slow for what is kept for it.
    fn overrun(&mut self, replica: Replica) {
        let client = &replica.shared.client;
        let line = line::of_log(self.node, client, unix_now());
        self.lose(replica);
        log::warning(format!("Client {} closed for overcoming of output buffer limits.", line.trim_end()));
        self.node.control_stats().values.output_buffer_limit_disconnections.add(1);
    }

    fn disconnect(&mut self) {
        self.each(|feeder, _, replica| {
            feeder.lose(*replica);
            None
        });
    }

    // ---- what others see ----

    fn publish(&self, replica: &Replica) {
        let (feed, seen) = (&replica.feed, &replica.shared.seen);
        let silent_ms = self.now().0.saturating_sub(feed.heard().0) as i64;
        let heard = SteadyMs(steady_now().0 - silent_ms);
        seen.note(feed.state(), feed.acked(), feed.synced(), heard);
        seen.note_sent(replica.at);
    }

    fn note_written(&self, replica: &Replica, bytes: u64) {
        if bytes > 0 {
            let total = &replica.shared.client.seen.output_total_bytes;
            total.store(total.load(Relaxed) + bytes, Relaxed);
            self.node.replication.primary.counts.sent_bytes.fetch_add(bytes, Relaxed);
        }
    }
}
