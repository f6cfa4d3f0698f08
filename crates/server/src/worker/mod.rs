//! A worker: one thread that owns its connections for life, reads requests, runs them and writes replies.
//!
//! ```text
//!           +-> read ---------> input buffer --> batches of requests --> reply buffer --> write -+
//!   wait ---+                   (one a worker)                           (one a worker)          +--> wait
//!           +-> mailbox: a new connection, look at yours, one of yours is to go -----------------+
//! ```
//! Bytes of an incomplete request are copied out of the input buffer into the connection, and back in front of the next
//! read. When that would mean copying much - a large value arrives - the connection reads into bytes of its own (`input_buffer`).

mod batch;
mod connection;
mod delivery;
mod group;
mod input_buffer;
mod invalidation;
pub mod letter;
mod outbox;
mod send;
mod waiting;

use isotherm_keyspace::{UnixMs, Waiter};
use isotherm_reactor::stream::Progress;
use isotherm_reactor::{Events, Mailbox, Ready, Sender, Stream, Timers, Token};
use std::collections::BTreeSet;
use std::io;
use std::os::fd::AsFd;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use crate::admin;
use crate::node::{Node, unix_now};
use crate::observe::holds;
use crate::observe::resident;
use crate::process::log;
use crate::request::blocking::{self, owner};
use crate::request::cached_config::STRANGER_OUTPUT_BYTES_MAX;
use crate::request::dispatch::Dispatcher;
use crate::request::execute::Exec;
use crate::request::reply_limits::{log_output_limit, output_limit_of};
use crate::request::transaction;
use crate::session::{Attention, ClientShared, Session};
use batch::{Requests, run_requests, write_replies};
use connection::{Connection, OWN_BYTES};
use delivery::Said;
use group::{Group, Join};
use letter::{Letter, Without};
use send::{count_read, count_written};
use waiting::Waiting;

/// The input buffer. A pipeline of 32 requests of some 50 bytes is 1.6 KB; reading more at once makes few calls of a
/// bulk load.
const INPUT_BYTES: usize = 64 << 10;
/// Up to so many bytes of an unfinished request are copied back in front of the next read; so much is wanted at least
/// to read into the connection's own bytes.
const COPY_BYTES_MAX: usize = 16 << 10;
/// What one `read` into a connection's own bytes may bring without starving the others.
const READ_BYTES_MAX: usize = 4 << 20;
/// Reads of one connection before the others have their turn.
const READS_PER_TURN_MAX: usize = 16;
/// A stranger's request may not be longer.
const UNAUTHENTICATED_BYTES_MAX: usize = 1 << 20;
/// A request that has brought so much is booked before it runs: it may be what makes its client take too much.
const BOOKED_BYTES_MIN: usize = 64 << 10;
/// Timers that are run in one turn: each kind re-arms itself, and the mailbox is looked at in between.
const DUE_PER_TURN_MAX: usize = 2;
/// Those whose time to wait is over are answered so many in one turn, each with its own locks.
const TIMED_OUT_PER_TURN_MAX: usize = 256;
/// How often idle connections are looked for.
const IDLE_SCAN_INTERVAL: Duration = Duration::from_secs(1);

#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
enum Due {
    IdleScan,
    CloseLook,
}

pub struct Worker {
    events: Events,
    mailbox: Mailbox<Letter>,
    number: usize,
    inner: Inner,
}

/// All but what is waited for.
struct Inner {
    node: &'static Node,
    /// Of this worker.
    number: u16,
    dispatcher: Dispatcher,
    /// By token. A connection in hand is taken out.
    connections: Vec<Option<Box<Connection>>>,
    free: Vec<usize>,
    input: Box<[u8]>,
    requests: Requests,
    group: Group,
    /// Connections that have more to read, without a further event.
    again: Vec<usize>,
    /// Connections whose requests wait until the mailbox is empty.
    hearing: Vec<usize>,
    /// Connections that wait for the end of a pause, or of a crowd.
    waiting: Waiting,
    /// Connections that have bytes of their own to read into, or whose patience with their client ends.
    close: Vec<usize>,
    said: Said,
    timers: Timers<Due>,
    /// When those who wait for a key are to be answered without it.
    deadlines: BTreeSet<(UnixMs, usize)>,
}

/// What whoever waited for a key gets.
enum Answer {
    Reply(Vec<u8>),
    Without(Without),
}

impl Worker {
    pub fn new(node: &'static Node, events: Events, mailbox: Mailbox<Letter>, number: usize) -> Worker {
        let mut timers = Timers::default();
        timers.add(Instant::now() + IDLE_SCAN_INTERVAL, Due::IdleScan);
        let inner = Inner {
            node,
            number: number as u16,
            dispatcher: Dispatcher::new(node, number),
            connections: Vec::new(),
            free: Vec::new(),
            input: vec![0; INPUT_BYTES].into_boxed_slice(),
            requests: Requests::default(),
            group: Group::new(),
            again: Vec::new(),
            hearing: Vec::new(),
            waiting: Waiting::default(),
            close: Vec::new(),
            said: Said::default(),
            timers,
            deadlines: BTreeSet::new(),
        };
        Worker { events, mailbox, number, inner }
    }

    /// Runs for ever; the process ends it.
    pub fn run(mut self) -> io::Result<()> {
        resident::note_stack();
        holds::enter(self.inner.node, self.number);
        loop {
            // A worker leaves letters for itself without waking itself.
            let timeout = match self.inner.has_work() || self.mailbox.has_letters() {
                true => Some(Duration::ZERO),
                false => self.inner.next_in(),
            };
            self.events.wait(timeout)?;
            let woken = self.inner.dispatcher.exec.clock.raw();
            for ready in self.events.ready().filter(|ready| ready.token != Token::MAILBOX) {
                self.inner.serve(ready);
            }
            self.inner.run_group();
            if self.mailbox.has_letters() {
                self.read_letters();
            }
            self.inner.resume_hearing();
            self.inner.turn();
            let Dispatcher { exec: Exec { stats, clock, .. }, commands, .. } = &mut self.inner.dispatcher;
            let ticks = clock.raw().saturating_sub(woken);
            stats.values.eventloop_cycles.add(1);
            stats.values.eventloop_ticks.add(ticks);
            stats.cycles.ticks_max.raise_to(ticks);
            stats.cycles.commands_max.raise_to(std::mem::take(commands));
            isotherm_allocator::settle();
        }
    }

    fn read_letters(&mut self) {
        for letter in self.mailbox.take() {
            match letter {
                Letter::Connect(new) => {
                    let (stream, shared) = *new;
                    let token = self.inner.add(stream, shared);
                    let watched = match &self.inner.connections[token] {
                        Some(connection) => self
                            .events
                            .watch(connection.stream.as_fd(), Token(token))
                            .map_err(|why| why.to_string()),
                        None => Ok(()),
                    };
                    if let Err(why) = watched {
                        log::warning(format!(
                            "Error registering fd event for the new client connection: {why}"
                        ));
                        self.inner.close(token);
                    }
                }
                Letter::Attend { token, id } => self.inner.attend(token, id),
                Letter::PauseChanged => self.inner.pause_changed(),
                Letter::Uncrowded => self.inner.uncrowded(),
                Letter::Served { waiter, reply } => self.inner.answer(&waiter, Answer::Reply(reply)),
                Letter::Unblocked { waiter, how } => self.inner.answer(&waiter, Answer::Without(how)),
                Letter::Look { waiter } => blocking::look_for(&mut self.inner.dispatcher.exec, &waiter),
                Letter::Message { message, patterns } => self.inner.deliver(&message, &patterns),
                Letter::Line(line) => self.inner.tell_monitors(&line),
                Letter::Stale { key, ids, author } => self.inner.tell_stale(&key, &ids, author),
                Letter::Changes(changes) => self.inner.tell_changes(&changes),
                Letter::Flushed => self.inner.tell_flushed(),
                Letter::Redirected { token, id, body } => self.inner.tell_redirected(token, id, &body),
            }
        }
        self.inner.write_said();
    }
}

impl Inner {
    /// Whether there is something to do without waiting for an event.
    fn has_work(&self) -> bool {
        !self.again.is_empty() || !self.hearing.is_empty() || self.waiting.has_work()
    }

    // ---- connections come and go ----

    fn add(&mut self, stream: Stream, shared: Arc<ClientShared>) -> usize {
        let token = self.free.pop().unwrap_or_else(|| {
            self.connections.push(None);
            self.connections.len() - 1
        });
        shared.token.store(token, Ordering::Release);
        self.node.clients.add(&shared, OWN_BYTES);
        let session = Session::new(shared, !self.node.auth_required());
        self.connections[token] = Some(Box::new(Connection::new(stream, session)));
        token
    }

    fn close(&mut self, token: usize) {
        if let Some(connection) = self.connections[token].take() {
            self.forget(*connection, token);
        }
    }

    fn forget(&mut self, mut connection: Connection, token: usize) {
        // Nothing is served to it from here on.
        self.stop_waiting(&mut connection, token);
        // Its bytes go first: while it is listed, no key is evicted for what is about to leave.
        connection.outbox = None;
        connection.input = Vec::new();
        transaction::leave(&mut connection.session, &mut self.dispatcher.exec.held);
        self.dispatcher.exec.held.release();
        if let Some(cause) = connection.waits {
            self.waiting.remove(cause, connection.turn);
        }
        let Dispatcher { exec, audience, .. } = &mut self.dispatcher;
        connection.session.stop_listening(self.node, &mut exec.held, audience);
        self.dispatcher.exec.held.release();
        self.node.disconnected(&connection.session.shared);
        self.free.push(token);
        // Dropping the stream closes the socket, which takes it out of the set of events.
    }

    // ---- events ----

    #[inline]
    fn serve(&mut self, ready: Ready) {
        let token = ready.token.0;
        let Some(mut connection) = self.connections.get_mut(token).and_then(Option::take) else { return };
        if ready.writable && connection.outbox.is_some() {
            self.write(&mut connection);
        }
        if ready.readable
            && !ready.closed
            && connection.is_plain()
            && !self.dispatcher.exec.hot.judges_replies
        {
            return self.join_group(connection, token);
        }
        if ready.readable || ready.closed {
            connection.ended |= ready.closed;
            self.read(&mut connection, token, ready.closed);
        }
        self.settle(connection, token);
    }

    #[inline]
    fn join_group(&mut self, connection: Box<Connection>, token: usize) {
        match self.group.join(&mut self.dispatcher, connection, token) {
            Join::Joined if self.group.is_full() => self.run_group(),
            Join::Joined => {}
            Join::Not(mut connection, progress) => {
                match progress {
                    Progress::Bytes(_) | Progress::Later => {}
                    Progress::Ended | Progress::Broken(_) => connection.break_off(),
                }
                self.settle(connection, token);
            }
            Join::TooMuch(mut connection, bytes) => {
                connection.sends_much = true;
                count_read(self.dispatcher.exec.stats, &connection.session, bytes.len());
                self.run_own(&mut connection, bytes);
                self.read(&mut connection, token, false);
                self.settle(connection, token);
            }
        }
    }

    #[inline]
    fn run_group(&mut self) {
        if self.group.is_empty() {
            return;
        }
        for (mut connection, token) in self.group.run(&mut self.dispatcher) {
            self.finish(&mut connection);
            self.settle(connection, token);
        }
    }

    /// Puts a connection back, or ends it.
    #[inline]
    fn settle(&mut self, connection: Box<Connection>, token: usize) {
        match connection.closing {
            true => self.take_leave(connection, token),
            false => self.connections[token] = Some(connection),
        }
    }

    /// Ends a connection that is closing, once it has been answered.
    #[cold]
    fn take_leave(&mut self, mut connection: Box<Connection>, token: usize) {
        if let Some(blocked) = &connection.session.blocked {
            let is_answered = !blocked.waiter.end() && blocked.waiter.is_answered();
            // What was taken for it is on its way, and is written if anything is.
            if connection.broken || !is_answered {
                self.stop_waiting(&mut connection, token);
            }
        }
        if connection.outbox.is_none() && !connection.is_blocked() {
            self.forget(*connection, token);
        } else {
            self.connections[token] = Some(connection);
        }
    }

    /// The socket takes more: what waits is written, and whoever was stopped by that goes on.
    fn write(&mut self, connection: &mut Connection) {
        match connection.write_outbox() {
            Ok(written) => count_written(self.dispatcher.exec.stats, &connection.session, written),
            Err(()) => connection.break_off(),
        }
        self.run_kept(connection);
    }

    /// Runs what a stopped connection has kept, and lets it read again: also if it is stopped again and waits for a key,
    /// for no further event tells of an end that was met while nothing was read.
    fn run_kept(&mut self, connection: &mut Connection) {
        self.run_unrun(connection);
        if connection.readable && !connection.is_deaf() && !connection.reads_too_little() {
            self.again.push(connection.session.shared.token.load(Ordering::Relaxed));
        }
    }

    #[inline]
    fn run_unrun(&mut self, connection: &mut Connection) {
        if connection.unrun && !connection.is_stopped() {
            let kept = std::mem::take(&mut connection.input);
            self.run_own(connection, kept);
        }
    }

    #[inline]
    fn read(&mut self, connection: &mut Connection, token: usize, ended: bool) {
        connection.readable = true;
        for _ in 0..READS_PER_TURN_MAX {
            if connection.is_deaf() {
                return connection.leave_pause();
            }
            let aside = connection.reads_too_little() || connection.is_blocked();
            let (progress, filled) = match aside {
                true => self.read_aside(connection),
                false => self.read_once(connection),
            };
            match progress {
                // What it has sent before is run before the end is looked at again.
                Progress::Ended if aside && !connection.is_blocked() => return,
                // A read that leaves room has emptied the socket, unless the end is near.
                Progress::Bytes(_) if filled || ended => {}
                Progress::Bytes(_) | Progress::Later => {
                    connection.readable = false;
                    return;
                }
                Progress::Ended | Progress::Broken(_) => {
                    if progress != Progress::Ended {
                        connection.outbox = None;
                    }
                    connection.readable = false;
                    connection.closing = true;
                    return;
                }
            }
        }
        self.again.push(token);
    }

    /// One `read`, and the requests that it brings. Says whether all room was filled.
    #[inline]
    fn read_once(&mut self, connection: &mut Connection) -> (Progress, bool) {
        let kept = connection.input.len();
        if kept > COPY_BYTES_MAX || connection.wanted > COPY_BYTES_MAX {
            return self.read_own(connection);
        }
        self.input[..kept].copy_from_slice(&connection.input);
        let room = self.input.len() - kept;
        let progress = connection.stream.read(&mut self.input[kept..]);
        if let Progress::Bytes(count) = progress {
            count_read(self.dispatcher.exec.stats, &connection.session, count);
            let bytes = &mut self.input[..kept + count];
            let done = run_requests(&mut self.dispatcher, connection, bytes, &mut self.requests);
            connection.keep(&bytes[done..]);
            connection.sends_much = count >= group::REGION_BYTES;
            self.finish(connection);
            return (progress, count == room);
        }
        (progress, false)
    }

    /// The same into the connection's own bytes, which then are not copied.
    #[cold]
    fn read_own(&mut self, connection: &mut Connection) -> (Progress, bool) {
        let kept = connection.input.len();
        let least = connection.wanted.clamp(1, COPY_BYTES_MAX);
        if connection.input.capacity() - kept < least
            && let Err((more, _)) = connection.make_room(connection.wanted)
        {
            refuse_memory(connection, more);
            return (Progress::Later, false);
        }
        let room = (connection.input.capacity() - kept).min(READ_BYTES_MAX);
        let progress = connection.stream.append_to(&mut connection.input, room);
        if let Progress::Bytes(count) = progress {
            count_read(self.dispatcher.exec.stats, &connection.session, count);
            if count < connection.wanted {
                connection.wanted -= count;
                self.note_partial(connection);
            } else {
                let input = std::mem::take(&mut connection.input);
                self.run_own(connection, input);
            }
            return (progress, count == room);
        }
        (progress, false)
    }

    /// A client that does not read its replies may still be one that reads later, once it has written everything. So its
    /// requests are taken, but not run: they cost what it has sent, which the limit on queries bounds.
    #[cold]
    fn read_aside(&mut self, connection: &mut Connection) -> (Progress, bool) {
        let input = &mut connection.input;
        if connection.input_done > input.len() / 2 {
            input.drain(..std::mem::take(&mut connection.input_done));
        }
        if input.capacity() - input.len() < COPY_BYTES_MAX
            && let Err((more, _)) = connection.make_room(usize::MAX)
        {
            refuse_memory(connection, more);
            return (Progress::Later, false);
        }
        let input = &mut connection.input;
        let room = (input.capacity() - input.len()).min(READ_BYTES_MAX);
        let progress = connection.stream.append_to(input, room);
        if let Progress::Bytes(count) = progress {
            connection.unrun = true;
            count_read(self.dispatcher.exec.stats, &connection.session, count);
            self.note_partial(connection);
            return (progress, count == room);
        }
        (progress, false)
    }

    /// More of a request has come, and nothing can be run yet.
    fn note_partial(&mut self, connection: &mut Connection) {
        connection.session.shared.seen.last_interaction_ms.store(unix_now().0, Ordering::Relaxed);
        connection.input_peak = connection.input_peak.max(connection.input.len());
        self.note_room(connection);
        self.check_query(connection);
        self.book(connection);
    }

    /// Runs the requests of bytes that are the connection's own. What is left is moved to the front, but not again and
    /// again for somebody who has sent much and reads little.
    fn run_own(&mut self, connection: &mut Connection, mut input: Vec<u8>) {
        if input.len() > BOOKED_BYTES_MIN {
            connection.input = input;
            self.check_query(connection);
            self.book(connection);
            if connection.closing {
                return;
            }
            input = std::mem::take(&mut connection.input);
        }
        connection.input_peak = connection.input_peak.max(input.len());
        let mut done = std::mem::take(&mut connection.input_done);
        done += run_requests(&mut self.dispatcher, connection, &mut input[done..], &mut self.requests);
        if connection.reads_too_little() && done < input.len() / 2 {
            connection.input_done = done;
        } else {
            input.drain(..done);
        }
        connection.input = input;
        connection.give_back_room();
        self.finish(connection);
    }

    /// After requests have run: replies leave, limits are looked at, others see where the session stands.
    #[inline]
    fn finish(&mut self, connection: &mut Connection) {
        write_replies(&mut self.dispatcher, connection);
        self.requests.trim();
        if let Some(cause) = connection.waits {
            self.wait(connection, cause);
        }
        if connection.hears {
            self.hearing.push(connection.session.shared.token.load(Ordering::Relaxed));
        }
        if connection.is_blocked() {
            self.note_deadline(connection);
        }
        connection.session.publish(self.dispatcher.exec.clock.now().0);
        self.note_room(connection);
        if !connection.input.is_empty() || connection.session.multi.is_some() {
            self.check_query(connection);
        }
        if connection.outbox.is_some() {
            self.check_output(connection);
        }
        self.book(connection);
    }

    /// Books what a connection takes. If all of them take too much, those that take most are closed: maybe this one.
    #[inline]
    fn book(&mut self, connection: &mut Connection) {
        connection.book(self.node);
        if self.node.clients.bytes() > self.dispatcher.exec.hot.client_bytes_max {
            self.dispatcher.exec.release();
            self.node.evict_clients(self.dispatcher.exec.stats);
            // If it waits, the letter that has killed it decides (`attend`).
            if connection.session.shared.is_asked(Attention::KILL) && !connection.is_blocked() {
                connection.break_off();
            }
        }
    }

    // ---- limits ----

    fn check_query(&mut self, connection: &mut Connection) {
        let session = &connection.session;
        let queued = session.multi.as_ref().map_or(0, |multi| multi.bytes);
        let bytes = connection.input.len() - connection.input_done + queued;
        let stranger = !session.authenticated && self.node.auth_required();
        if bytes > self.dispatcher.exec.hot.query_bytes_max || stranger && bytes > UNAUTHENTICATED_BYTES_MAX {
            self.dispatcher.exec.stats.values.query_buffer_limit_disconnections.add(1);
            log::warning(format!(
                "Closing client that reached max query buffer length: {} (qbuf={bytes})",
                admin::client_line(self.node, &connection.session.shared, unix_now())
            ));
            connection.break_off();
        }
    }

    fn check_output(&mut self, connection: &mut Connection) {
        let limit = output_limit_of(&self.dispatcher.exec.hot, &connection.session);
        let Some(outbox) = &mut connection.outbox else { return };
        let bytes = outbox.bytes() as u64;
        let above = |limit_bytes: u64| limit_bytes > 0 && bytes >= limit_bytes;
        let soft_since = above(limit.soft_bytes).then(|| outbox.soft_since.unwrap_or_else(Instant::now));
        outbox.soft_since = soft_since;
        let patience = Duration::from_secs(limit.soft_seconds);
        let for_too_long = soft_since.is_some_and(|since| since.elapsed() > patience);
        let stranger = !connection.session.was_authenticated && self.node.auth_required();
        if above(limit.hard_bytes) || for_too_long || stranger && bytes > STRANGER_OUTPUT_BYTES_MAX as u64 {
            log_output_limit(&self.dispatcher.exec, &connection.session);
            connection.break_off();
        } else if soft_since.is_some() {
            self.attend_closely(connection);
        }
    }

    // ---- waiting for keys ----

    #[cold]
    fn note_deadline(&mut self, connection: &mut Connection) {
        let token = connection.session.shared.token.load(Ordering::Relaxed);
        let Some(blocked) = &mut connection.session.blocked else { return };
        if let Some(deadline) = blocked.deadline.filter(|_| !blocked.is_noted) {
            self.deadlines.insert((deadline, token));
        }
        blocked.is_noted = true;
    }

    fn stop_waiting(&mut self, connection: &mut Connection, token: usize) {
        let Some(blocked) = blocking::stop_waiting(&mut self.dispatcher.exec, &mut connection.session) else {
            return;
        };
        if let Some(deadline) = blocked.deadline {
            self.deadlines.remove(&(deadline, token));
        }
    }

    /// One of ours waited, and its waiting was ended by whoever has sent this.
    fn answer(&mut self, waiter: &Arc<Waiter>, answer: Answer) {
        let (token, id) = owner(waiter);
        let Some(mut connection) = self.connections.get_mut(token).and_then(Option::take) else { return };
        let blocked = connection.session.blocked.as_ref();
        let is_its = blocked.is_some_and(|blocked| Arc::ptr_eq(&blocked.waiter, waiter));
        if connection.session.id() == id && is_its {
            self.stop_waiting(&mut connection, token);
            let session = &mut connection.session;
            self.dispatcher.exec.clock.begin();
            let reply = match answer {
                Answer::Reply(reply) => reply,
                Answer::Without(how) => {
                    blocking::answer_without(&mut self.dispatcher.exec, session, waiter, how)
                }
            };
            self.dispatcher.answer(session, &reply);
            self.finish(&mut connection);
            if connection.session.shared.is_asked(Attention::KILL) {
                connection.break_off();
            }
            self.run_kept(&mut connection);
        }
        self.settle(connection, token);
    }

    /// Those whose time is over.
    fn end_waiting(&mut self) {
        let now = unix_now();
        for _ in 0..TIMED_OUT_PER_TURN_MAX {
            let Some((deadline, token)) = self.deadlines.first().copied() else { return };
            if deadline > now {
                return;
            }
            self.deadlines.pop_first();
            let connection = self.connections[token].as_ref();
            let blocked = connection.and_then(|connection| connection.session.blocked.as_ref());
            // If it was served in this moment, the letter is under way.
            if let Some(waiter) = blocked.map(|blocked| Arc::clone(&blocked.waiter))
                && waiter.end()
            {
                self.answer(&waiter, Answer::Without(Without::TimedOut));
            }
        }
    }

    /// How long until something is due.
    fn next_in(&self) -> Option<Duration> {
        let now = Instant::now();
        let timer = self.timers.next_in(now);
        let pause = self.waiting.pause_due().map(|due| round_up(due.saturating_duration_since(now)));
        let deadline = self
            .deadlines
            .first()
            .map(|(deadline, _)| Duration::from_millis(deadline.ms_since(unix_now()).max(0) as u64));
        timer.into_iter().chain(pause).chain(deadline).min()
    }

    // ---- letters and timers ----

    /// Another worker has asked for something.
    fn attend(&mut self, token: usize, id: u64) {
        let Some(mut connection) = self.connections.get_mut(token).and_then(Option::take) else { return };
        if connection.session.id() == id && connection.session.shared.is_asked(Attention::KILL) {
            // Behind a reply that is half written nothing else can be said.
            match connection.outbox.is_some() {
                true => connection.break_off(),
                false => connection.closing = true,
            }
        }
        self.settle(connection, token);
    }

    /// What is due now, and what had more to read.
    #[inline]
    fn turn(&mut self) {
        if !self.again.is_empty() {
            for token in std::mem::take(&mut self.again) {
                let Some(mut connection) = self.connections[token].take() else { continue };
                self.run_unrun(&mut connection);
                self.read(&mut connection, token, true);
                self.settle(connection, token);
            }
        }
        if !self.deadlines.is_empty() {
            self.end_waiting();
        }
        if !self.waiting.is_idle() {
            self.resume_waiting();
        }
        for _ in 0..DUE_PER_TURN_MAX {
            let Some(due) = self.timers.take_due(Instant::now()) else { break };
            match due {
                Due::CloseLook => self.look_closely(),
                Due::IdleScan => {
                    self.scan_idle();
                    self.timers.add(Instant::now() + IDLE_SCAN_INTERVAL, Due::IdleScan);
                }
            }
        }
    }

    /// Closes connections that were silent for too long.
    fn scan_idle(&mut self) {
        self.dispatcher.exec.refresh();
        let timeout_ms = self.dispatcher.exec.hot.timeout_seconds as i64 * 1000;
        if timeout_ms == 0 {
            return;
        }
        let now_ms = unix_now().0;
        for token in 0..self.connections.len() {
            let Some(mut connection) = self.connections[token].take() else { continue };
            let silent_ms =
                now_ms - connection.session.shared.seen.last_interaction_ms.load(Ordering::Relaxed);
            let may_be_silent =
                connection.waits.is_some() || connection.is_blocked() || connection.session.may_be_silent();
            if silent_ms > timeout_ms && !may_be_silent {
                log::verbose("Closing idle client");
                connection.break_off();
            }
            self.settle(connection, token);
        }
    }
}

/// The wait for events knows whole milliseconds: a shorter one would end before what it waits for.
fn round_up(left: Duration) -> Duration {
    Duration::from_millis(left.as_micros().div_ceil(1000) as u64)
}

/// There is no memory for what a client sends. The others go on: it is for large requests that it does not suffice.
fn refuse_memory(connection: &mut Connection, more_bytes: usize) {
    log::warning(format!(
        "Closing client: out of memory for its query buffer: id={} (qbuf={}, {more_bytes} more)",
        connection.session.id(),
        connection.input.len()
    ));
    connection.break_off();
}

/// Makes the mailboxes of `workers` workers, so that the node knows them before the first runs.
pub fn mailboxes(workers: usize) -> io::Result<Vec<(Events, Mailbox<Letter>)>> {
    let make = |_| {
        let events = Events::new()?;
        let mailbox = events.mailbox()?;
        Ok((events, mailbox))
    };
    (0..workers).map(make).collect()
}

/// The writers' ends of mailboxes.
pub fn senders(workers: &[(Events, Mailbox<Letter>)]) -> Box<[Sender<Letter>]> {
    workers.iter().map(|(_, mailbox)| mailbox.sender()).collect()
}
