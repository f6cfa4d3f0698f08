//! Batches: up to 32 ready requests of one connection are parsed, looked up and hashed, then the memory that
//! they will touch is fetched for all of them at once, and then they run in order.
//!
//! The waits for memory overlap instead of adding up, which is what makes a pipeline fast; and the lock of a
//! partition is kept while consecutive commands fall on it.
//!
//! ```text
//! found     GET a | GET b | GET c | GET d       a batch of four, all parsed
//! run       64 KB of replies after b: write     the socket takes them all: c is next
//!                                               it does not: c and d wait as bytes, to be parsed again
//! ```
//! The bytes that a batch leaves unwritten are 64 KB and one reply, however many requests it has. A batch
//! whose commands take long, or whose replies are much, ends early as well (`Dispatcher::begin_share`).

use arrayvec::ArrayVec;
use isotherm_resp::{Args, Limits, Parsed, Parser, ProtocolError, Span};
use std::ops::Range;

use super::connection::Connection;
use super::send::{clear_replies, drop_replies, has_much_to_write, send};
use isotherm_engine::request::dispatch::Dispatcher;
use isotherm_engine::request::resolve::Request;
use isotherm_node::request::next::Next;

/// Requests of a batch. Larger ones gain nothing: 32 x 4 lines of cache are what the first level holds.
pub const REQUESTS_MAX: usize = 32;
/// A batch ends after the request that passes this: its arguments should still lie in the cache when it runs.
const REQUEST_BYTES_MAX: usize = 64 << 10;
/// Request in the bytes that were read.
#[derive(Clone, Copy)]
pub struct Found {
    pub start: usize,
    first_span: u32,
    end_span: u32,
}

impl Found {
    #[inline]
    fn spans(self, spans: &[Span]) -> &[Span] {
        &spans[self.first_span as usize..self.end_span as usize]
    }
}

/// Requests that were found in the bytes of a batch; kept between batches for their memory.
#[derive(Default)]
pub struct Requests {
    pub found: Vec<Found>,
    spans: Vec<Span>,
    /// Lines in which quotes were decoded where they lay, as they came.
    quoted: Vec<Quoted>,
}

struct Quoted {
    /// Index of the request in `found`.
    request: usize,
    line: Box<[u8]>,
}

impl Requests {
    /// Spans kept between batches: 64 requests of some arguments.
    const SPANS_CAPACITY_MAX: usize = 4096;

    pub fn clear(&mut self) {
        self.found.clear();
        self.spans.clear();
        self.quoted.clear();
    }

    /// A request of very many arguments does not leave its memory behind.
    pub fn trim(&mut self) {
        if self.spans.capacity() > Self::SPANS_CAPACITY_MAX {
            self.spans = Vec::new();
        }
    }

    /// The arguments of one request. `bytes` are those that it was found in.
    #[inline]
    pub fn args<'b>(&'b self, request: usize, bytes: &'b [u8]) -> Args<'b> {
        let found = self.found[request];
        Args::new(&bytes[found.start..], found.spans(&self.spans))
    }

    /// Makes the bytes of these requests what they were, so that they can be parsed again.
    pub fn undo(&self, requests: Range<usize>, bytes: &mut [u8]) {
        for quoted in self.quoted.iter().filter(|quoted| requests.contains(&quoted.request)) {
            let start = self.found[quoted.request].start;
            bytes[start..start + quoted.line.len()].copy_from_slice(&quoted.line);
        }
    }
}

/// Why a batch ended.
pub enum Ended {
    Full,
    Incomplete { wanted: usize },
    Wrong(ProtocolError),
}

/// Runs all complete requests of `bytes`, or as many as the connection's share of this turn allows. Returns
/// how many bytes are done with; the rest begins with a request that is incomplete or has to wait, as the
/// connection's fields say. Replies that are not written yet stay in the dispatcher.
pub fn run_requests(
    dispatcher: &mut Dispatcher,
    connection: &mut Connection,
    bytes: &mut [u8],
    requests: &mut Requests,
) -> usize {
    let mut done = 0;
    connection.unrun = false;
    // Found anew below, if the last request is incomplete: what an earlier one still lacked says nothing
    // about it.
    connection.wanted = 0;
    while !connection.is_stopped() && !connection.edge.writable {
        requests.clear();
        let (end, ended) = parse(dispatcher, connection, bytes, done, requests);
        if let Some(unrun) = run_found(dispatcher, connection, bytes, requests) {
            // Requests that were parsed after the last that ran are parsed again, if ever.
            connection.parser = Parser::new();
            if connection.is_closing() {
                return bytes.len();
            }
            requests.undo(unrun..requests.found.len(), bytes);
            connection.unrun = true;
            return requests.found.get(unrun).map_or(end, |found| found.start);
        }
        done = end;
        match ended {
            Ended::Full => {}
            Ended::Incomplete { wanted } => {
                connection.wanted = wanted;
                return done;
            }
            Ended::Wrong(error) => {
                dispatcher.protocol_error(&mut connection.session, error);
                connection.begin_closing();
                return bytes.len();
            }
        }
        if has_much_to_write(dispatcher) && !write_replies(dispatcher, connection) {
            return bytes.len();
        }
        if dispatcher.share_is_exceeded() {
            break;
        }
    }
    connection.unrun = done < bytes.len() && !connection.is_closing();
    done
}

/// Runs what was found, and writes in between. If the connection was stopped before the end, returns the
/// number of the first request that did not run.
#[inline]
pub fn run_found(
    dispatcher: &mut Dispatcher,
    connection: &mut Connection,
    bytes: &[u8],
    requests: &Requests,
) -> Option<usize> {
    let mut ran = 0;
    loop {
        let (count, next) = run_batch(dispatcher, connection, bytes, requests, ran);
        ran += count;
        match next {
            Next::Go => return None,
            Next::Write => {
                let goes_on = write_replies(dispatcher, connection) && !connection.is_stopped();
                if !goes_on || dispatcher.share_is_exceeded() || connection.edge.writable {
                    return Some(ran);
                }
            }
            Next::Park(_) | Next::Close { .. } => {
                if next == (Next::Close { after_replies: false }) {
                    drop_replies(dispatcher);
                }
                connection.stop(next);
                return Some(ran);
            }
        }
    }
}

/// Writes what has been answered so far. False if the connection is broken.
pub fn write_replies(dispatcher: &mut Dispatcher, connection: &mut Connection) -> bool {
    if dispatcher.reply.is_empty() {
        return true;
    }
    let is_much = has_much_to_write(dispatcher);
    let all = 0..dispatcher.reply.len();
    let not_before = dispatcher.exec.take_not_before();
    let is_sent = send(dispatcher, connection, all, not_before);
    clear_replies(dispatcher);
    if is_sent && is_much {
        connection.account(dispatcher.exec.node);
    }
    is_sent
}

/// Finds requests from `at` on. Returns where what was found ends, and why no more was.
#[inline]
pub fn parse(
    dispatcher: &mut Dispatcher,
    connection: &mut Connection,
    bytes: &mut [u8],
    mut at: usize,
    requests: &mut Requests,
) -> (usize, Ended) {
    dispatcher.exec.refresh();
    let unauthenticated;
    let (limits, requests_max) =
        match connection.session.authenticated || !dispatcher.exec.node.users.auth_required() {
            true => (&dispatcher.exec.hot.limits, REQUESTS_MAX),
            // The first of them may be the AUTH that lifts the limits.
            false => {
                unauthenticated = Limits { authenticated: false, ..dispatcher.exec.hot.limits.clone() };
                (&unauthenticated, 1)
            }
        };
    let Requests { found, spans, quoted } = requests;
    let (began, found_max) = (at, found.len() + requests_max);
    while found.len() < found_max && at - began < REQUEST_BYTES_MAX {
        if at == bytes.len() {
            return (at, Ended::Incomplete { wanted: 0 });
        }
        let first_span = spans.len() as u32;
        let line: Option<Box<[u8]>> = connection.parser.quoted_line(&bytes[at..]).map(Box::from);
        match connection.parser.parse(&mut bytes[at..], limits, spans) {
            Parsed::Request { consumed } => {
                if let Some(line) = line {
                    quoted.push(Quoted { request: found.len(), line });
                }
                found.push(Found { start: at, first_span, end_span: spans.len() as u32 });
                at += consumed;
            }
            Parsed::Empty { consumed } => at += consumed,
            Parsed::Incomplete { wanted } => return (at, Ended::Incomplete { wanted }),
            Parsed::Error(error) => return (at, Ended::Wrong(error)),
        }
    }
    (at, Ended::Full)
}

/// Runs requests from the one with the number `first` on. Returns how many ran, and what comes next: `Go` if
/// all did.
fn run_batch(
    dispatcher: &mut Dispatcher,
    connection: &mut Connection,
    bytes: &[u8],
    requests: &Requests,
    first: usize,
) -> (usize, Next) {
    let mut resolved: ArrayVec<Request<'_>, REQUESTS_MAX> = ArrayVec::new();
    for request in first..requests.found.len() {
        resolved.push(dispatcher.resolve(requests.args(request, bytes)));
    }
    dispatcher.prefetch_batch(connection.session.db, &resolved);
    dispatcher.exec.clock.begin();
    let waiting = connection.outbox.as_ref().map_or(0, |outbox| outbox.bytes());
    let ran = dispatcher.run_all(&mut connection.session, &resolved, waiting, 0);
    dispatcher.exec.release();
    ran
}
