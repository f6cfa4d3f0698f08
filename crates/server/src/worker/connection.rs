//! Connection of a worker: its socket, its session, and the bytes that wait.
//!
//! A connection owns bytes only while a request is incomplete or a reply cannot be written, and for two
//! seconds after that (`input_buffer`); everything else lies in the worker's two buffers. So an idle
//! connection costs this struct and its `ClientShared`, some 600 bytes together.

use isotherm_log::LogOffset;
use isotherm_reactor::Stream;
use isotherm_reactor::stream::Progress;
use isotherm_resp::reply_parse::BadReply;
use isotherm_resp::{Parser, SharedBytes};
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Instant;

use super::input_buffer::Input;
use super::outbox::Outbox;
use super::parking::Parked;
use isotherm_engine::request::budget::Budget;
use isotherm_node::Node;
use isotherm_node::request::next::Next;
use isotherm_node::session::clients::Taken;
use isotherm_node::session::{ClientShared, Session};

pub struct Connection {
    pub stream: Stream,
    pub session: Session,
    pub parser: Parser,
    /// Bytes from the first one of a request that is not complete, or was not run yet.
    pub input: Input,
    /// Replies that the socket did not take.
    pub outbox: Option<Box<Outbox>>,
    /// The most that lay in `input` since it was looked at last.
    pub input_peak: usize,
    /// Bytes that the unfinished request still wants, as the client says.
    pub wanted: usize,
    /// Bytes at its front that are done with; some only while the connection is parked, or waits for its next
    /// turn.
    pub input_done: usize,
    /// Why no further request of it runs, if that is so.
    pub parked: Option<Parked>,
    pub phase: Phase,
    pub sends: Sends,
    pub listed: Listed,
    /// `input` may hold complete requests: the connection was parked, or its share of the turn was over,
    /// before they were run.
    pub unrun: bool,
    pub edge: Edge,
}

const _: () = assert!(size_of::<Connection>() <= 320, "10,000 idle connections are 3 MB of these");

/// Readiness of a socket that no further event reports: it was not found empty, or not found full.
#[derive(Clone, Copy, Default)]
pub struct Edge {
    /// More may be read.
    pub readable: bool,
    /// More of the outbox may be taken: the budget of the turn has ended the writing.
    pub writable: bool,
}

/// Progress of the end of a connection.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Phase {
    Open,
    /// The peer sends no more: the end follows the bytes that can still be read. Known from the event,
    /// whether or not anything is read now.
    Ended,
    /// The peer sends no more, or nothing more is read; closed when the outbox is empty.
    Closing,
    /// And not even that is waited for: nothing more is written.
    Broken,
}

/// Amount that the client has sent at once, the last time.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Sends {
    /// No more than a member of a group may.
    Little,
    Much,
    /// An argument of the request in `input` is large.
    Large,
}

/// The lists of its worker in which it stands.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct Listed(u8);

impl Listed {
    /// `Inner::close`: those that are looked at often.
    pub const OFTEN: Listed = Listed(1);
    /// `Said`: those that something was pushed to.
    pub const UNWRITTEN: Listed = Listed(2);
    /// `Inner::again`: those that continue in the next turn.
    pub const AGAIN: Listed = Listed(4);
    /// `Inner::held`: those whose replies wait for the log.
    pub const HELD: Listed = Listed(8);
    /// `Node::hangups`: those that have waited for a key, and stay there.
    pub const HANGUPS: Listed = Listed(16);

    /// Adds it to a list. Whether it was not there.
    pub fn add(&mut self, list: Listed) -> bool {
        let is_new = self.0 & list.0 == 0;
        self.0 |= list.0;
        is_new
    }

    /// Returns whether it stands in a list.
    pub fn has(self, list: Listed) -> bool {
        self.0 & list.0 != 0
    }

    /// Takes it out. Whether it was there.
    pub fn remove(&mut self, list: Listed) -> bool {
        let was_there = self.0 & list.0 != 0;
        self.0 &= !list.0;
        was_there
    }
}

impl Connection {
    pub fn new(stream: Stream, session: Session) -> Connection {
        let sends = if stream.is_handshaking() { Sends::Much } else { Sends::Little };
        Connection {
            stream,
            session,
            parser: Parser::new(),
            input: Input::default(),
            input_done: 0,
            input_peak: 0,
            outbox: None,
            wanted: 0,
            parked: None,
            phase: Phase::Open,
            // Under TLS a handshake comes first, alone.
            sends,
            listed: Listed::default(),
            unrun: false,
            edge: Edge::default(),
        }
    }

    /// Returns the number of the connection at its worker.
    pub fn token(&self) -> usize {
        self.session.shared.token.load(Ordering::Relaxed)
    }

    /// Returns whether the connection may be read and run together with others: it has nothing of its own
    /// that comes first.
    #[inline]
    pub fn is_plain(&self) -> bool {
        self.input.is_empty()
            && self.outbox.is_none()
            && self.parked.is_none()
            && self.phase < Phase::Closing
            && self.sends == Sends::Little
    }

    // ---- parked ----

    /// A command has said that the next is not to run now.
    #[cold]
    pub fn stop(&mut self, next: Next) {
        match next {
            Next::Go | Next::Write => {}
            Next::Park(cause) => {
                self.parked = Some(cause.into());
                self.unrun = true;
            }
            Next::Close { after_replies: true } => self.begin_closing(),
            Next::Close { after_replies: false } => self.break_off(),
        }
    }

    /// Ends the parking of the connection: its cause is over. A client that reads too little is parked again
    /// for that.
    pub fn unpark(&mut self) {
        self.parked = None;
        self.note_outbox();
    }

    /// The outbox has changed: a client that leaves much unread is parked until it has read half of that.
    fn note_outbox(&mut self) {
        match self.parked {
            None if self.reads_too_little() => self.parked = Some(Parked::Reader),
            Some(Parked::Reader) if !self.reads_too_little() => self.parked = None,
            _ => {}
        }
    }

    /// Returns whether no further command may run now.
    pub fn is_stopped(&self) -> bool {
        self.parked.is_some() || self.is_closing()
    }

    /// Returns whether the connection has kept requests that may run now.
    #[inline]
    pub fn can_go_on(&self) -> bool {
        self.unrun && !self.is_stopped()
    }

    /// Returns whether nothing is read from the connection now. Blocked and slow clients are read, because
    /// that is how their end is noticed.
    #[inline]
    pub fn is_deaf(&self) -> bool {
        self.parked.is_some_and(Parked::is_deaf) || self.is_closing()
    }

    /// Returns whether the client waits for a key.
    pub fn is_blocked(&self) -> bool {
        self.session.blocked.is_some()
    }

    /// Returns whether the client debugs its script.
    pub fn is_debugging(&self) -> bool {
        matches!(self.parked, Some(Parked::Debugger(_)))
    }

    /// Returns whether so many replies wait for the client that no further command may run.
    pub fn reads_too_little(&self) -> bool {
        self.outbox.as_ref().is_some_and(|outbox| outbox.is_full())
    }

    // ---- the end ----

    #[inline]
    pub fn is_closing(&self) -> bool {
        self.phase >= Phase::Closing
    }

    /// The event says that the peer sends no more.
    pub fn note_end(&mut self) {
        self.phase = self.phase.max(Phase::Ended);
    }

    /// Begins to close the connection: nothing more is read, and it is closed once the waiting replies are
    /// written.
    pub fn begin_closing(&mut self) {
        self.phase = self.phase.max(Phase::Closing);
    }

    /// Closed without a further word.
    #[cold]
    pub fn break_off(&mut self) {
        self.outbox = None;
        self.phase = Phase::Broken;
    }

    /// A client that has left while a pause holds it up: its command and the requests that it has sent after
    /// it are dropped, as Valkey does. The other causes are ours alone, and what came before the end is run
    /// when they are over.
    #[cold]
    pub fn leave_pause(&mut self) {
        if self.phase == Phase::Ended && matches!(self.parked, Some(Parked::Pause(_))) {
            self.begin_closing();
        }
    }

    // ---- writing ----

    /// Puts a message after the bytes that wait; it is written later.
    pub fn say(&mut self, bytes: &[u8], unsent_bytes_max: usize) {
        self.outbox.get_or_insert_default().push_message(bytes, unsent_bytes_max);
        self.note_outbox();
    }

    /// Writes the part `replies` of `out`, after the bytes that wait. Bytes that the socket does not take, or
    /// `budget` does not pay for, are kept, and park the connection if they are more than `unsent_bytes_max`:
    /// copied, or moved if they are many and nothing follows them.
    ///
    /// With `not_before` they are held until the log has come there.
    #[inline]
    pub fn send(
        &mut self,
        out: &mut Vec<u8>,
        replies: Range<usize>,
        not_before: Option<LogOffset>,
        unsent_bytes_max: usize,
        budget: &mut Budget,
    ) -> Result<u64, ()> {
        if let Some(until) = not_before {
            self.outbox.get_or_insert_default().hold(until);
        }
        if self.outbox.is_some() {
            self.keep_replies(out, replies, unsent_bytes_max);
            return self.write_outbox(budget);
        }
        let mut written = replies.start;
        while written < replies.end {
            let piece_bytes = budget.piece_bytes().min(replies.end - written);
            let stopped = match self.stream.write(&out[written..written + piece_bytes]) {
                Progress::Bytes(count) => {
                    written += count;
                    budget.pay(count);
                    self.edge.writable = written < replies.end && budget.is_share_over();
                    self.edge.writable
                }
                Progress::Later => true,
                Progress::Ended | Progress::Broken(_) => return Err(()),
            };
            if stopped {
                self.keep_replies(out, written..replies.end, unsent_bytes_max);
                break;
            }
        }
        Ok((written - replies.start) as u64)
    }

    /// Does the same for a part of a reply that is not copied. After others that wait it is written with them
    /// (`write_outbox`).
    pub fn send_shared(
        &mut self,
        bytes: Arc<SharedBytes>,
        unsent_bytes_max: usize,
        budget: &mut Budget,
    ) -> Result<u64, ()> {
        let mut written = 0;
        while self.outbox.is_none() {
            if written == bytes.len() {
                return Ok(written as u64);
            }
            if written > 0 && budget.is_share_over() {
                self.edge.writable = true;
                break;
            }
            let piece_bytes = budget.piece_bytes().min(bytes.len() - written);
            match self.stream.write(&bytes[written..written + piece_bytes]) {
                Progress::Bytes(count) => {
                    written += count;
                    budget.pay(count);
                }
                Progress::Later => break,
                Progress::Ended | Progress::Broken(_) => return Err(()),
            }
        }
        self.outbox.get_or_insert_default().share(bytes, written, unsent_bytes_max);
        self.note_outbox();
        Ok(written as u64)
    }

    #[cold]
    fn keep_replies(&mut self, out: &mut Vec<u8>, replies: Range<usize>, unsent_bytes_max: usize) {
        self.outbox.get_or_insert_default().take(out, replies, unsent_bytes_max);
        self.note_outbox();
    }

    /// Writes what waits: a piece at least, and no more than `budget` pays for. Returns how much of it was
    /// taken.
    pub fn write_outbox(&mut self, budget: &mut Budget) -> Result<u64, ()> {
        self.edge.writable = false;
        let Some(outbox) = &mut self.outbox else { return Ok(0) };
        let mut written = 0;
        while let Some(bytes) = outbox.front() {
            if written > 0 && budget.is_share_over() {
                self.edge.writable = true;
                self.note_outbox();
                return Ok(written);
            }
            match self.stream.write(&bytes[..budget.piece_bytes().min(bytes.len())]) {
                Progress::Bytes(count) => {
                    outbox.advance(count);
                    budget.pay(count);
                    written += count as u64;
                }
                Progress::Later => {
                    self.note_outbox();
                    return Ok(written);
                }
                Progress::Ended | Progress::Broken(_) => return Err(()),
            }
        }
        // The rest waits for the log.
        if outbox.is_empty() {
            self.outbox = None;
        }
        self.note_outbox();
        Ok(written)
    }

    /// The log has come to `reached`. Returns whether replies still have to wait for it.
    #[inline]
    pub fn let_go(&mut self, reached: LogOffset) -> bool {
        self.outbox.as_mut().is_some_and(|outbox| outbox.let_go(reached))
    }

    /// Replaces each reply that has waited since before `before` for an offset beyond `reached` by an error.
    /// Returns the number of these replies.
    pub fn refuse_held(&mut self, reached: LogOffset, before: Instant, error: &[u8]) -> usize {
        let Some(outbox) = &mut self.outbox else { return 0 };
        match outbox.refuse_held(reached, before, error) {
            Ok(count) => count,
            // The bytes there are no sequence of replies: nothing can be sent after them.
            Err(BadReply { .. }) => {
                self.break_off();
                0
            }
        }
    }

    /// The first place in the log that some of its replies wait for.
    pub fn held_until(&self) -> LogOffset {
        self.outbox.as_ref().and_then(|outbox| outbox.held_until()).unwrap_or_default()
    }

    /// Shows other threads how much it takes. One without buffers mostly had none before.
    #[inline]
    pub fn account(&self, node: &Node) {
        let (session, seen) = (&self.session, &self.session.shared.seen);
        seen.waits.store(self.parked.is_some_and(Parked::is_shown), Ordering::Relaxed);
        let is_bare = self.input.capacity() == 0
            && self.outbox.is_none()
            && self.parser.memory_bytes() == 0
            && self.stream.buffer_bytes() == 0
            && session.multi.is_none()
            && session.watch.is_none()
            && session.listening.is_none()
            && session.blocked.is_none();
        if !is_bare || seen.total_bytes.load(Ordering::Relaxed) != OWN_BYTES {
            self.account_parts(node);
        }
    }

    fn account_parts(&self, node: &Node) {
        let session = &self.session;
        let (parsed_bytes, argument_bytes) = self.parser.seen_bytes();
        let query_bytes = self.input.len().saturating_sub(self.input_done + parsed_bytes);
        let shared_bytes = self.outbox.as_ref().map_or(0, |outbox| outbox.value_bytes());
        let output_bytes = self.outbox.as_ref().map_or(0, |outbox| outbox.memory_bytes())
            + shared_bytes
            + self.stream.buffer_bytes();
        let multi_bytes = session.multi.as_ref().map_or(0, |multi| multi.bytes);
        let blocked = session.blocked.as_ref();
        let argument_bytes = argument_bytes + blocked.map_or(0, |blocked| blocked.argument_bytes);
        let watch_bytes = session.watch.as_ref().map_or(0, |watch| watch.bytes);
        let total_bytes = OWN_BYTES as usize
            + self.input.memory_bytes()
            + self.parser.memory_bytes()
            + output_bytes
            + session.multi.as_ref().map_or(0, |multi| multi.memory_bytes())
            + watch_bytes
            + blocked.map_or(0, |blocked| blocked.bytes)
            + session.shared.listening.bytes() as usize;
        let taken = Taken {
            query_bytes,
            query_free_bytes: self.input.capacity() - self.input.len(),
            argument_bytes,
            output_bytes,
            output_chunks: self.outbox.as_ref().map_or(0, |outbox| outbox.chunks()),
            multi_bytes,
            shared_bytes,
            total_bytes,
        };
        node.clients.account(&session.shared, &taken);
    }
}

/// Bytes that an idle connection takes: this struct, and what other threads see of it in an `Arc` with its
/// two counts.
pub const OWN_BYTES: u64 =
    (size_of::<Connection>() + size_of::<ClientShared>() + 2 * size_of::<usize>()) as u64;

const _: () = assert!(OWN_BYTES <= 700, "an idle connection costs 1 KB, the system's share apart");
