//! One connection of a worker: its socket, its session, and the bytes that wait.
//!
//! A connection owns bytes only while a request is incomplete or a reply cannot be written, and for two seconds after
//! that (`input_buffer`); everything else lies in the worker's two buffers. So an idle connection costs this struct and its
//! `ClientShared`, some 600 bytes together.

use isotherm_reactor::Stream;
use isotherm_reactor::stream::Progress;
use isotherm_resp::Parser;
use std::sync::atomic::Ordering;

use super::outbox::Outbox;
use crate::node::Node;
use crate::request::next::{Cause, Next};
use crate::session::{ClientShared, Session};
use crate::upkeep::client_memory::Taken;
use isotherm_allocator::class_bytes;

pub struct Connection {
    pub stream: Stream,
    pub session: Session,
    pub parser: Parser,
    /// From the first byte of a request that is not complete, or was not run yet.
    pub input: Vec<u8>,
    /// Replies that the socket did not take.
    pub outbox: Option<Box<Outbox>>,
    /// The most that lay in `input` since somebody last looked.
    pub input_peak: usize,
    /// An argument of the request in `input` is large.
    pub has_large: bool,
    /// It is listed among those that are looked at often (`Inner::close`).
    pub is_close: bool,
    /// Bytes that the unfinished request still wants, as the client says.
    pub wanted: usize,
    /// Bytes at its front that are done with; some only while the connection is stopped.
    pub input_done: usize,
    /// `input` may hold complete requests: the connection was stopped before they were run.
    pub unrun: bool,
    /// The socket may have more to read, without a further event.
    pub readable: bool,
    /// It has sent more at once than the others of a group may.
    pub sends_much: bool,
    /// Its next request waits for this, in the queue of those that do (`waiting`) under this turn; 0: not listed.
    pub waits: Option<Cause>,
    pub turn: u64,
    /// Its next request waits until what lies in the mailbox is handed out.
    pub hears: bool,
    /// It is listed among those that something was said to.
    pub is_spoken_to: bool,
    /// The peer sends no more: behind what can still be read comes the end. Known from the event, whether or not anything
    /// is read now.
    pub ended: bool,
    /// The peer sends no more, or we read no more; closed when the outbox is empty.
    pub closing: bool,
    /// And not even that is waited for: nothing more is written.
    pub broken: bool,
}

const _: () = assert!(size_of::<Connection>() <= 320, "10,000 idle connections are 3 MB of these");

impl Connection {
    pub fn new(stream: Stream, session: Session) -> Connection {
        Connection {
            stream,
            session,
            parser: Parser::new(),
            input: Vec::new(),
            input_done: 0,
            input_peak: 0,
            has_large: false,
            is_close: false,
            outbox: None,
            wanted: 0,
            unrun: false,
            readable: false,
            sends_much: false,
            waits: None,
            turn: 0,
            hears: false,
            is_spoken_to: false,
            ended: false,
            closing: false,
            broken: false,
        }
    }

    /// Whether it may be read and run together with others: it has nothing of its own that comes first.
    #[inline]
    pub fn is_plain(&self) -> bool {
        self.input.is_empty()
            && self.outbox.is_none()
            && self.waits.is_none()
            && !self.hears
            && !self.closing
            && !self.sends_much
    }

    /// A command has said that the next is not to run now.
    #[cold]
    pub fn stop(&mut self, next: Next) {
        match next {
            Next::Go | Next::Write => {}
            Next::Park(Cause::Key) => self.unrun = true,
            Next::Park(Cause::Mailbox) => {
                self.hears = true;
                self.unrun = true;
            }
            Next::Park(cause @ (Cause::Pause | Cause::Backpressure)) => {
                self.waits = Some(cause);
                self.unrun = true;
            }
            Next::Close { after_replies: true } => self.closing = true,
            Next::Close { after_replies: false } => self.break_off(),
        }
    }

    /// Closed without a further word.
    #[cold]
    pub fn break_off(&mut self) {
        self.outbox = None;
        self.closing = true;
        self.broken = true;
    }

    /// Whether no further command may run now.
    pub fn is_stopped(&self) -> bool {
        self.waits.is_some() || self.hears || self.is_blocked() || self.closing || self.reads_too_little()
    }

    /// Whether nothing is read from it now. Blocked and slow clients are read: that is how their end is noticed.
    #[inline]
    pub fn is_deaf(&self) -> bool {
        self.waits.is_some() || self.hears || self.closing
    }

    /// A client that has left while a pause holds it up: its command and what it has sent behind it are dropped, as
    /// Valkey does. The other causes are ours alone, and what came before the end is run when they are over.
    #[cold]
    pub fn leave_pause(&mut self) {
        self.closing |= self.ended && self.waits == Some(Cause::Pause);
    }

    /// Whether it waits for a key.
    pub fn is_blocked(&self) -> bool {
        self.session.blocked.is_some()
    }

    /// Whether so much waits for the client that no further command may run.
    pub fn reads_too_little(&self) -> bool {
        self.outbox.as_ref().is_some_and(|outbox| outbox.is_full())
    }

    /// Puts a message behind what waits; it is written later.
    pub fn say(&mut self, bytes: &[u8], unsent_bytes_max: usize) {
        self.outbox.get_or_insert_default().push(bytes, unsent_bytes_max);
    }

    /// Writes what waits, then `reply` from `start` on; what the socket does not take is kept, and stops the connection
    /// if it is more than `unsent_bytes_max`. `reply` is empty afterwards. What stands before `start` is somebody else's:
    /// a connection whose replies begin behind that has no outbox.
    #[inline]
    pub fn write(&mut self, reply: &mut Vec<u8>, start: usize, unsent_bytes_max: usize) -> Result<u64, ()> {
        if let Some(outbox) = &mut self.outbox {
            assert_eq!(start, 0, "who has an outbox does not share the reply buffer");
            outbox.append(reply, unsent_bytes_max);
            return self.write_outbox();
        }
        let mut written = start;
        while written < reply.len() {
            match self.stream.write(&reply[written..]) {
                Progress::Bytes(count) => written += count,
                Progress::Later => break,
                Progress::Ended | Progress::Broken(_) => return Err(()),
            }
        }
        if written < reply.len() {
            self.outbox = Some(Box::new(Outbox::new(reply, written, unsent_bytes_max)));
        }
        reply.clear();
        Ok((written - start) as u64)
    }

    /// Writes `reply` to a connection without an outbox; what the socket does not take is kept.
    #[inline]
    pub fn write_slice(&mut self, reply: &[u8], unsent_bytes_max: usize) -> Result<u64, ()> {
        if reply.is_empty() {
            return Ok(0);
        }
        match self.stream.write(reply) {
            Progress::Bytes(count) if count == reply.len() => Ok(count as u64),
            Progress::Bytes(count) => {
                let mut left = reply[count..].to_vec();
                self.write(&mut left, 0, unsent_bytes_max).map(|more| more + count as u64)
            }
            Progress::Later => self.write(&mut reply.to_vec(), 0, unsent_bytes_max),
            Progress::Ended | Progress::Broken(_) => Err(()),
        }
    }

    /// Writes what waits. Returns how much of it was taken.
    pub fn write_outbox(&mut self) -> Result<u64, ()> {
        let Some(outbox) = &mut self.outbox else { return Ok(0) };
        let mut written = 0;
        while let Some(bytes) = outbox.front() {
            match self.stream.write(bytes) {
                Progress::Bytes(count) => {
                    outbox.advance(count);
                    written += count as u64;
                }
                Progress::Later => return Ok(written),
                Progress::Ended | Progress::Broken(_) => return Err(()),
            }
        }
        self.outbox = None;
        Ok(written)
    }

    /// Shows other threads how much it takes. Whoever has nothing but himself mostly had nothing before.
    #[inline]
    pub fn book(&self, node: &Node) {
        let (session, seen) = (&self.session, &self.session.shared.seen);
        seen.waits.store(self.waits.is_some(), Ordering::Relaxed);
        let is_bare = self.input.capacity() == 0
            && self.outbox.is_none()
            && self.parser.memory_bytes() == 0
            && session.multi.is_none()
            && session.watch.is_none()
            && session.listening.is_none()
            && session.blocked.is_none();
        if !is_bare || seen.total_bytes.load(Ordering::Relaxed) != OWN_BYTES {
            self.book_parts(node);
        }
    }

    fn book_parts(&self, node: &Node) {
        let session = &self.session;
        let (parsed_bytes, argument_bytes) = self.parser.seen_bytes();
        let query_bytes = self.input.len().saturating_sub(self.input_done + parsed_bytes);
        let output_bytes = self.outbox.as_ref().map_or(0, |outbox| outbox.memory_bytes());
        let multi_bytes = session.multi.as_ref().map_or(0, |multi| multi.bytes);
        let blocked = session.blocked.as_ref();
        let argument_bytes = argument_bytes + blocked.map_or(0, |blocked| blocked.argument_bytes);
        let watch_bytes = session.watch.as_ref().map_or(0, |watch| watch.bytes);
        let total_bytes = OWN_BYTES as usize
            + class_bytes(self.input.capacity())
            + self.parser.memory_bytes()
            + output_bytes
            + multi_bytes
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
            total_bytes,
        };
        node.book(&session.shared, &taken);
    }
}

/// What a connection takes that does nothing: this struct, and what others see of it behind an `Arc` of two counts.
pub const OWN_BYTES: u64 =
    (size_of::<Connection>() + size_of::<ClientShared>() + 2 * size_of::<usize>()) as u64;

const _: () = assert!(OWN_BYTES <= 700, "an idle connection costs 1 KB, the system's share apart");
