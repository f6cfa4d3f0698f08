//! A worker: one thread that owns its connections for life, reads requests, runs them and writes replies.
//!
//! ```text
//!           +-> read ---------> input buffer --> batches of requests --> reply buffer --> write -+
//!   wait ---+                   (one a worker)                           (one a worker)          +--> wait
//!           +-> mailbox: a new connection, look at yours, one of yours is to go -----------------+
//! ```
//! Bytes of an incomplete request are copied out of the input buffer into the connection, and back in front
//! of the next read. When that would mean copying much - a large value arrives - the connection reads into
//! bytes of its own (`input_buffer`).

mod batch;
mod connection;
mod debugging;
mod delivery;
mod group;
mod handshake;
mod held;
mod input_buffer;
mod invalidation;
mod keys;
mod leaving;
mod lending;
mod limits;
mod messages;
mod outbox;
mod parking;
mod reading;
mod scripts;
mod send;
mod values;

use isotherm_keyspace::SteadyMs;
use isotherm_reactor::stream::Progress;
use isotherm_reactor::{Events, Mailbox, Ready, Sender, Stream, Timers, Token};
use std::collections::{BTreeSet, VecDeque};
use std::io;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use crate::admin;
use batch::{Requests, write_replies};
use connection::{Connection, Listed, OWN_BYTES, Phase, Sends};
use delivery::Said;
use group::{Group, Join};
use handshake::Handshakes;
use input_buffer::Input;
use isotherm_engine::request::dispatch::Dispatcher;
use isotherm_engine::request::execute::Exec;
use isotherm_engine::request::transaction;
use isotherm_node::Node;
use isotherm_node::mail::message::{FeederMessage, WorkerMessage};
use isotherm_node::observe::holds;
use isotherm_node::observe::resident;
use isotherm_node::request::reply_gate::PARTS;
use isotherm_node::session::{Attention, ClientShared, Session};
use isotherm_runtime::time::unix_now;
use messages::Incoming;
use parking::{Parked, Parking};
use send::{count_read, count_taken};
use values::Values;

/// The input buffer. A pipeline of 32 requests of some 50 bytes is 1.6 KB; reading more at once makes few
/// calls of a bulk load.
const INPUT_BYTES: usize = 64 << 10;
/// Timers that are run in one turn: each kind re-arms itself, and the mailbox is looked at in between.
const DUE_PER_TURN_MAX: usize = 2;
/// Interval of the looks for idle connections.
const IDLE_SCAN_INTERVAL: Duration = Duration::from_secs(1);
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
enum Due {
    IdleScan,
    CloseLook,
    HeldLook,
    ValuesLook,
}

pub struct Worker {
    events: Events,
    mailbox: Mailbox<WorkerMessage>,
    number: usize,
    inner: Inner,
}

/// All but what is waited for.
struct Inner {
    node: &'static Node,
    /// Number of this worker.
    number: u16,
    dispatcher: Dispatcher,
    /// Connections by token. A connection in hand is taken out.
    connections: Vec<Option<Box<Connection>>>,
    free: Vec<usize>,
    input: Box<[u8]>,
    requests: Requests,
    group: Group,
    /// Connections that have more to read, to run or to write, without a further event. The first waits
    /// longest.
    again: VecDeque<usize>,
    incoming: Incoming,
    parking: Parking,
    /// Connections that have bytes of their own to read into, or whose patience with their client ends.
    close: Vec<usize>,
    said: Said,
    timers: Timers<Due>,
    /// Deadlines at which clients that wait for a key are to be answered without it.
    deadlines: BTreeSet<(SteadyMs, usize)>,
    /// Connections whose replies wait for the log.
    held: Vec<usize>,
    /// True while a timer for the next look at `held` is set.
    looks_at_held: bool,
    /// Times that replies which waited had been given up when it last looked at all.
    given_up: [u64; PARTS],
    /// Connections that have become replicas.
    leaving: Vec<usize>,
    handshakes: Handshakes,
    values: Values,
}

impl Worker {
    pub fn new(
        node: &'static Node,
        events: Events,
        mailbox: Mailbox<WorkerMessage>,
        number: usize,
    ) -> Worker {
        let mut timers = Timers::default();
        timers.add(Instant::now() + IDLE_SCAN_INTERVAL, Due::IdleScan);
        let mut dispatcher = Dispatcher::new(node, &admin::TABLE, number);
        dispatcher.reply.shares = true;
        let inner = Inner {
            node,
            number: number as u16,
            dispatcher,
            connections: Vec::new(),
            free: Vec::new(),
            input: vec![0; INPUT_BYTES].into_boxed_slice(),
            requests: Requests::default(),
            group: Group::new(),
            again: VecDeque::new(),
            incoming: Incoming::default(),
            parking: Parking::default(),
            close: Vec::new(),
            said: Said::default(),
            timers,
            deadlines: BTreeSet::new(),
            held: Vec::new(),
            looks_at_held: false,
            given_up: node.gate.given_up(),
            leaving: Vec::new(),
            handshakes: Handshakes::default(),
            values: Values::default(),
        };
        Worker { events, mailbox, number, inner }
    }

    /// Runs for ever; the process ends it.
    pub fn run(mut self) -> io::Result<()> {
        resident::note_stack();
        holds::enter(self.inner.node.hold_sinks(), self.number);
        loop {
            // A worker leaves messages for itself without waking itself.
            let timeout = match self.inner.has_work() || self.mailbox.has_messages() {
                true => Some(Duration::ZERO),
                false => self.inner.next_in(),
            };
            self.events.wait(timeout)?;
            let woken = self.inner.dispatcher.exec.clock.raw();
            self.inner.dispatcher.budget.begin_part(woken);
            self.inner.dispatcher.exec.stats.cycles.began.set(woken);
            for ready in self.events.ready().filter(|ready| ready.token != Token::MAILBOX) {
                self.inner.serve(ready);
            }
            self.inner.run_group();
            if self.mailbox.has_messages() || self.awaits_messages() {
                self.read_messages();
            }
            self.inner.turn();
            self.turn_values();
            self.inner.handshakes.begin_turn();
            if !self.inner.leaving.is_empty() {
                self.hand_over();
            }
            let Dispatcher { exec: Exec { stats, clock, .. }, commands, budget, .. } =
                &mut self.inner.dispatcher;
            let ticks = clock.raw().saturating_sub(woken);
            stats.values.eventloop_cycles.add(1);
            stats.values.eventloop_ticks.add(ticks);
            stats.cycles.ticks_max.raise_to(ticks);
            stats.cycles.commands_max.raise_to(std::mem::take(commands));
            stats.cycles.bytes_max.raise_to(budget.take_moved_bytes());
            stats.cycles.began.set(0);
            isotherm_allocator::settle();
        }
    }
}

impl Inner {
    /// Returns whether there is work to do without waiting for an event.
    fn has_work(&self) -> bool {
        !self.again.is_empty()
            || self.incoming.has_work()
            || !self.said.is_empty()
            || self.parking.has_work()
            || self.dispatcher.exec.runs.has_work()
            || self.values.has_work()
            || !self.dispatcher.exec.wanted.is_empty()
    }

    /// Returns whether a turn has more to do than to serve what is ready.
    #[inline]
    fn goes_on(&self) -> bool {
        !self.again.is_empty()
            || !self.deadlines.is_empty()
            || !self.parking.is_idle()
            || self.dispatcher.exec.runs.has_work()
    }

    // ---- connections come and go ----

    fn add(&mut self, stream: Stream, shared: Arc<ClientShared>) -> usize {
        let token = self.free.pop().unwrap_or_else(|| {
            self.connections.push(None);
            self.connections.len() - 1
        });
        shared.token.store(token, Ordering::Release);
        self.node.clients.add(&shared, OWN_BYTES);
        // After that, since a change of the user looks for its sessions there.
        let connection = Box::new(Connection::new(stream, Session::begin(shared, &self.node.users)));
        self.handshakes.note(token, &connection);
        self.connections[token] = Some(connection);
        token
    }

    fn close(&mut self, token: usize) {
        if let Some(connection) = self.connections[token].take() {
            self.forget(*connection, token);
        }
    }

    fn forget(&mut self, mut connection: Connection, token: usize) {
        // Nothing is served to it from here on.
        self.handshakes.forget(&connection);
        self.stop_waiting(&mut connection, token);
        self.leave_debugger(&connection);
        // Its bytes go first: while it is listed, no key is evicted for what is about to leave.
        connection.outbox = None;
        connection.input = Input::default();
        transaction::leave(&mut connection.session, &mut self.dispatcher.exec.held);
        self.dispatcher.exec.held.release();
        if let Some(parked) = connection.parked {
            self.parking.remove(parked);
        }
        let Dispatcher { exec, audience, .. } = &mut self.dispatcher;
        connection.session.stop_listening(self.node, &mut exec.held, audience);
        self.dispatcher.exec.held.release();
        self.node.clients.remove(connection.session.id());
        if connection.session.has_tracked {
            self.node.trackers.note_gone();
        }
        self.free.push(token);
        // Dropping the stream closes the socket, which takes it out of the set of events.
    }

    // ---- events ----

    #[inline]
    fn serve(&mut self, ready: Ready) {
        let token = ready.token.0;
        let Some(mut connection) = self.connections.get_mut(token).and_then(Option::take) else { return };
        if ready.writable {
            match connection.outbox.is_some() {
                true => self.write_or_wait(&mut connection),
                false if connection.stream.buffer_bytes() > 0 => self.write_unsaid(&mut connection),
                false => {}
            }
        }
        if ready.readable
            && !ready.closed
            && connection.is_plain()
            && !self.dispatcher.exec.hot.judges_replies
        {
            return self.join_group(connection, token);
        }
        if ready.readable || ready.closed {
            if ready.closed {
                connection.note_end();
            }
            self.read_or_wait(&mut connection, ready.closed);
        }
        self.settle(connection, token);
    }

    /// Reads from a connection now, or in the next turn if the others that moved much before it have left
    /// nothing of this one.
    #[inline]
    fn read_or_wait(&mut self, connection: &mut Connection, ended: bool) {
        if self.dispatcher.budget.is_part_over() {
            connection.edge.readable = true;
            return self.go_on_later(connection);
        }
        self.read(connection, ended);
    }

    /// Writes what waits now, or in the next turn.
    fn write_or_wait(&mut self, connection: &mut Connection) {
        if self.dispatcher.budget.is_part_over() {
            connection.edge.writable = true;
            return self.go_on_later(connection);
        }
        self.write(connection);
    }

    #[inline]
    fn join_group(&mut self, connection: Box<Connection>, token: usize) {
        match self.group.join(&mut self.dispatcher, connection, token) {
            Join::Joined if self.group.is_full() => self.run_group(),
            Join::Joined => {}
            Join::Not(mut connection, progress) => {
                match progress {
                    Progress::Bytes(_) | Progress::Later if connection.stream.is_drained(0, 1) => {}
                    Progress::Bytes(_) | Progress::Later => self.go_on_later(&mut connection),
                    Progress::Ended | Progress::Broken(_) => connection.break_off(),
                }
                self.settle(connection, token);
            }
            Join::TooMuch(mut connection, bytes) => {
                count_read(self.dispatcher.exec.stats, &connection.session, bytes.len());
                self.dispatcher.begin_share();
                self.run_own(&mut connection, bytes.into());
                self.read_or_wait(&mut connection, false);
                // Both reads together were much, however little the second one brought.
                if connection.sends == Sends::Little {
                    connection.sends = Sends::Much;
                }
                self.settle(connection, token);
            }
        }
    }

    #[inline]
    fn run_group(&mut self) {
        if self.group.is_empty() {
            return;
        }
        self.group.run(&mut self.dispatcher);
        while let Some((mut connection, token)) = self.group.take_done() {
            self.finish(&mut connection);
            self.settle(connection, token);
        }
    }

    /// Puts a connection back, or ends it.
    #[inline]
    fn settle(&mut self, connection: Box<Connection>, token: usize) {
        match connection.is_closing() {
            true => self.take_leave(connection, token),
            false => self.connections[token] = Some(connection),
        }
    }

    /// Ends a connection that is closing, once it has been answered.
    #[cold]
    fn take_leave(&mut self, mut connection: Box<Connection>, token: usize) {
        if let Some(blocked) = &connection.session.blocked {
            let is_answered = !blocked.waiter.end() && blocked.waiter.is_answered();
            // A value that was taken for it is on its way, and is written if anything is.
            if connection.phase == Phase::Broken || !is_answered {
                self.stop_waiting(&mut connection, token);
            }
        }
        // The rest of its transaction needs its session.
        let is_in_exec = matches!(connection.parked, Some(Parked::Exec(_)));
        if connection.outbox.is_none() && !connection.is_blocked() && !is_in_exec {
            self.forget(*connection, token);
        } else {
            self.connections[token] = Some(connection);
        }
    }

    /// The socket takes more: what waits is written, and a client that was stopped by that continues.
    fn write(&mut self, connection: &mut Connection) {
        self.dispatcher.begin_share();
        match connection.write_outbox(&mut self.dispatcher.budget) {
            Ok(written) => {
                count_taken(self.dispatcher.exec.stats, &connection.session, written, unix_now());
            }
            Err(()) => connection.break_off(),
        }
        match connection.edge.writable {
            true => self.go_on_later(connection),
            // The bytes that it leaves unread are known now.
            false => self.check_output(connection),
        }
        self.free_debugger(connection);
        self.go_on(connection);
    }

    /// Runs what a stopped connection has kept, and lets it read again: also if it is stopped again and waits
    /// for a key, for no further event reports an end that was met while nothing was read.
    fn run_kept(&mut self, connection: &mut Connection) {
        self.dispatcher.begin_share();
        self.go_on(connection);
    }

    /// Does the same within the share that the connection has.
    fn go_on(&mut self, connection: &mut Connection) {
        self.run_unrun(connection);
        if connection.edge.readable && !connection.is_deaf() && !connection.reads_too_little() {
            self.go_on_later(connection);
        }
    }

    /// The connection continues in the next turn: once, however many reasons there are.
    fn go_on_later(&mut self, connection: &mut Connection) {
        if connection.listed.add(Listed::AGAIN) {
            self.again.push_back(connection.token());
        }
    }

    #[inline]
    fn run_unrun(&mut self, connection: &mut Connection) {
        if connection.can_go_on() && !connection.edge.writable {
            let kept = std::mem::take(&mut connection.input);
            self.run_own(connection, kept);
        }
    }

    /// After requests have run: replies leave, limits are looked at, others see where the session stands.
    #[inline]
    fn finish(&mut self, connection: &mut Connection) {
        write_replies(&mut self.dispatcher, connection);
        self.requests.trim();
        let is_parked = connection.parked.is_some();
        if is_parked {
            self.park(connection);
        }
        if is_parked || !connection.session.is_shown() {
            connection.session.publish(self.dispatcher.exec.clock.now());
        }
        self.note_room(connection);
        if !connection.input.is_empty() || connection.session.multi.is_some() {
            self.check_query(connection);
            if connection.can_go_on() {
                self.go_on_later(connection);
            }
        }
        if connection.outbox.is_some() {
            self.note_held(connection);
            self.check_output(connection);
            if connection.edge.writable {
                self.go_on_later(connection);
            }
        }
        self.account(connection);
    }

    /// Returns the time until something is due.
    fn next_in(&self) -> Option<Duration> {
        let now = Instant::now();
        let timer = self.timers.next_in(now);
        let pause = self.parking.pause_due().map(|due| round_up(due.saturating_duration_since(now)));
        let deadline = self.deadlines.first().map(|(deadline, _)| {
            Duration::from_millis(deadline.ms_since(SteadyMs::of(unix_now())).max(0) as u64)
        });
        timer.into_iter().chain(pause).chain(deadline).min()
    }

    // ---- messages and timers ----

    /// Another worker has asked for something.
    fn attend(&mut self, token: usize, id: u64) {
        let is_its = |connection: &mut Box<Connection>| connection.session.id() == id;
        let taken = self.connections.get_mut(token).and_then(|connection| connection.take_if(is_its));
        let Some(mut connection) = taken else {
            // It may have become a replica.
            return self.node.mail.post_feeder(FeederMessage::Attend { id });
        };
        if connection.session.shared.is_asked(Attention::ANY) && !connection.session.heeds(&self.node.users) {
            // After a reply that is half written nothing else can be sent.
            match connection.outbox.is_some() {
                true => connection.break_off(),
                false => connection.begin_closing(),
            }
        }
        self.settle(connection, token);
    }

    /// Does the work that is due now, and continues with connections that had more to read.
    #[inline]
    fn turn(&mut self) {
        if self.goes_on() {
            self.dispatcher.begin_part();
            self.turn_again();
            if !self.deadlines.is_empty() {
                self.end_waiting();
            }
            if !self.parking.is_idle() {
                self.resume_parked();
            }
            self.run_scripts();
        }
        for _ in 0..DUE_PER_TURN_MAX {
            let Some(due) = self.timers.take_due(Instant::now()) else { break };
            self.dispatcher.begin_part();
            match due {
                Due::CloseLook => self.look_closely(),
                Due::HeldLook => self.look_at_held(),
                Due::ValuesLook => self.look_at_values(),
                Due::IdleScan => {
                    self.dispatcher.exec.runs.retry_debugged();
                    self.scan_handshakes();
                    self.scan_idle();
                    self.timers.add(Instant::now() + IDLE_SCAN_INTERVAL, Due::IdleScan);
                }
            }
        }
    }

    /// Connections that have more to do continue, in their order: one at least. Those for which this turn has
    /// no time wait in front of all others.
    fn turn_again(&mut self) {
        for _ in 0..self.again.len() {
            let Some(token) = self.again.pop_front() else { return };
            let Some(mut connection) = self.connections[token].take() else { continue };
            connection.listed.remove(Listed::AGAIN);
            if connection.edge.writable {
                self.write(&mut connection);
            }
            if !connection.listed.has(Listed::AGAIN) {
                self.read(&mut connection, true);
            }
            self.settle(connection, token);
            if self.dispatcher.budget.is_part_over() {
                return;
            }
        }
    }
}

/// The wait for events knows whole milliseconds: a shorter one would end before what it waits for.
fn round_up(left: Duration) -> Duration {
    Duration::from_millis(left.as_micros().div_ceil(1000) as u64)
}

/// Makes the mailboxes of `workers` workers, so that the node knows them before the first runs.
pub fn mailboxes(workers: usize) -> io::Result<Vec<(Events, Mailbox<WorkerMessage>)>> {
    let make = |_| {
        let events = Events::new()?;
        let mailbox = events.mailbox()?;
        Ok((events, mailbox))
    };
    (0..workers).map(make).collect()
}

/// The writers' ends of mailboxes.
pub fn senders(workers: &[(Events, Mailbox<WorkerMessage>)]) -> Box<[Sender<WorkerMessage>]> {
    workers.iter().map(|(_, mailbox)| mailbox.sender()).collect()
}
