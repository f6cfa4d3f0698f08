//! Batches: up to 32 ready requests of one connection are parsed, looked up and hashed, then the memory that they will
//! touch is fetched for all of them at once, and then they run in order.
//!
//! The waits for memory overlap instead of adding up, which is what makes a pipeline fast; and the lock of a partition
//! is kept while consecutive commands fall on it.

use arrayvec::ArrayVec;
use isotherm_resp::{Args, Limits, Parsed, Parser, ProtocolError, Span};

use super::connection::Connection;
use crate::dispatch::{Dispatcher, Next, Request};

/// Requests of a batch. Larger ones gain nothing: 32 x 4 lines of cache are what the first level holds.
pub const REQUESTS_MAX: usize = 32;
/// A batch ends behind the request that passes this: its arguments should still lie in the cache when it runs.
const REQUEST_BYTES_MAX: usize = 64 << 10;
/// Replies are written when so many bytes have come together, and at the end of what was read.
const REPLY_BYTES_MAX: usize = 64 << 10;

/// One request in the bytes that were read.
#[derive(Clone, Copy)]
pub struct Found {
    pub start: usize,
    first_span: u32,
    end_span: u32,
}

impl Found {
    #[inline]
    pub fn spans(self, spans: &[Span]) -> &[Span] {
        &spans[self.first_span as usize..self.end_span as usize]
    }
}

/// Why a batch ended.
pub enum Ended {
    Full,
    Incomplete { wanted: usize },
    Wrong(ProtocolError),
}

/// Runs all complete requests of `bytes`. Returns how many bytes are done with; the rest begins with a request that is
/// incomplete or has to wait, as the connection's fields say. Replies that are not written yet stay in the dispatcher.
pub fn run_requests(
    dispatcher: &mut Dispatcher,
    connection: &mut Connection,
    bytes: &mut [u8],
    spans: &mut Vec<Span>,
) -> usize {
    let mut done = 0;
    let mut found = Vec::with_capacity(REQUESTS_MAX);
    connection.unrun = false;
    while !connection.is_stopped() {
        spans.clear();
        found.clear();
        let (end, ended) = parse(dispatcher, connection, bytes, done, &mut found, spans);
        let (ran, next) = run_batch(dispatcher, connection, bytes, &found, spans);
        if next != Next::Go {
            // What was parsed behind it is parsed again, if ever.
            connection.parser = Parser::new();
            if next == (Next::Close { after_replies: false }) {
                dispatcher.reply.out.clear();
            }
            connection.stop(next);
            return if connection.waits { found[ran].start } else { bytes.len() };
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
                connection.closing = true;
                return bytes.len();
            }
        }
        if dispatcher.reply.len() >= REPLY_BYTES_MAX && !write_replies(dispatcher, connection) {
            return bytes.len();
        }
    }
    connection.unrun = done < bytes.len() && !connection.closing;
    done
}

/// Writes what has been answered so far. False if the connection is broken.
pub fn write_replies(dispatcher: &mut Dispatcher, connection: &mut Connection) -> bool {
    if dispatcher.reply.is_empty() {
        return true;
    }
    connection.session.publish(dispatcher.clock.now().0);
    match connection.write(&mut dispatcher.reply.out) {
        Ok(written) => {
            dispatcher.count_written(&connection.session, written);
            dispatcher.trim_reply();
            true
        }
        Err(()) => {
            dispatcher.reply.out.clear();
            connection.break_off();
            false
        }
    }
}

/// Finds requests from `at` on. Returns where what was found ends, and why no more was.
#[inline]
pub fn parse(
    dispatcher: &mut Dispatcher,
    connection: &mut Connection,
    bytes: &mut [u8],
    mut at: usize,
    found: &mut Vec<Found>,
    spans: &mut Vec<Span>,
) -> (usize, Ended) {
    dispatcher.hot.refresh(dispatcher.node);
    let stranger;
    let (limits, requests_max) = match connection.session.authenticated || !dispatcher.node.auth_required() {
        true => (&dispatcher.hot.limits, REQUESTS_MAX),
        // The first of them may be the AUTH that lifts the limits.
        false => {
            stranger = Limits { authenticated: false, ..dispatcher.hot.limits.clone() };
            (&stranger, 1)
        }
    };
    let (began, found_max) = (at, found.len() + requests_max);
    while found.len() < found_max && at - began < REQUEST_BYTES_MAX {
        if at == bytes.len() {
            return (at, Ended::Incomplete { wanted: 0 });
        }
        let first_span = spans.len() as u32;
        match connection.parser.parse(&mut bytes[at..], limits, spans) {
            Parsed::Request { consumed } => {
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

/// Returns how many requests ran, and what comes next: `Go` if all of them did.
fn run_batch(
    dispatcher: &mut Dispatcher,
    connection: &mut Connection,
    bytes: &[u8],
    found: &[Found],
    spans: &[Span],
) -> (usize, Next) {
    let mut resolved: ArrayVec<Request<'_>, REQUESTS_MAX> = ArrayVec::new();
    for found in found {
        resolved.push(dispatcher.resolve(Args::new(&bytes[found.start..], found.spans(spans))));
    }
    dispatcher.prefetch_batch(connection.session.db, &resolved);
    dispatcher.clock.begin();
    let waiting = connection.outbox.as_ref().map_or(0, |outbox| outbox.bytes());
    let ran = dispatcher.run_all(&mut connection.session, &resolved, waiting, 0);
    dispatcher.held.release();
    ran
}
