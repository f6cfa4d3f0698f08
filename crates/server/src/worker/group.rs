//! Groups: connections that are ready at the same time are served together.
//!
//! ```text
//!            region 0        region 1        region 2
//! buffer   [ GET a .......][ SET b 1 .....][ GET c GET d ]
//!
//! read 0, read 1, read 2  ->  parse, fetch a b c d ahead  ->  run a b c d  ->  write 0, write 1, write 2
//! ```
//! Without a pipeline a batch has one request, and its waits for memory - some four, one after the other -
//! are a sixth of what it costs. Those of a group overlap. Only small requests join; a connection that sends
//! more is served alone, in a larger buffer.
//!
//! Between two groups this struct is empty.

use arrayvec::ArrayVec;
use isotherm_log::LogOffset;
use isotherm_reactor::stream::Progress;
use isotherm_resp::Parser;
use std::ops::Range;

use super::batch::{Ended, REQUESTS_MAX, Requests, parse, run_requests, write_replies};
use super::connection::Connection;
use super::parking::Parked;
use super::send::{clear_replies, count_read, has_much_to_write, send};
use isotherm_engine::request::dispatch::Dispatcher;
use isotherm_engine::request::resolve::Request;
use isotherm_node::request::next::Next;

const CONNECTIONS_MAX: usize = 32;
/// Bytes that one connection may bring into a group: a pipeline of some 32 small requests.
pub const REGION_BYTES: usize = 2 << 10;

pub struct Group {
    buffer: Box<[u8]>,
    members: ArrayVec<Member, CONNECTIONS_MAX>,
    requests: Requests,
    /// Outcomes of the members' requests, and the connections that were served, the first last. They are
    /// fields because the whole of such an array is copied wherever it is moved, however little is in it.
    ran: ArrayVec<Ran, CONNECTIONS_MAX>,
    done: ArrayVec<(Box<Connection>, usize), CONNECTIONS_MAX>,
}

struct Member {
    connection: Box<Connection>,
    token: usize,
    /// Their numbers in `Group::requests`.
    requests: Range<usize>,
    /// Bytes of its region, and where what was found in them ends.
    len: usize,
    end: usize,
    ended: Ended,
}

/// Outcome of a member's requests.
struct Ran {
    /// Number of requests that ran, and the next action.
    requests: usize,
    next: Next,
    /// Offset in the log that the replies wait for.
    not_before: LogOffset,
    /// End of the replies in the reply buffer, until that is written.
    replies_end: usize,
}

/// Outcome of the attempt of a connection to join.
pub enum Join {
    Joined,
    /// The connection had nothing to read, or has ended.
    Not(Box<Connection>, Progress),
    /// The connection has sent more than fits; the vector holds the bytes that were read.
    TooMuch(Box<Connection>, Vec<u8>),
}

impl Group {
    pub fn new() -> Group {
        Group {
            buffer: vec![0; CONNECTIONS_MAX * REGION_BYTES].into_boxed_slice(),
            members: ArrayVec::new(),
            requests: Requests::default(),
            ran: ArrayVec::new(),
            done: ArrayVec::new(),
        }
    }

    pub fn is_empty(&self) -> bool {
        self.members.is_empty()
    }

    /// Returns whether the group is to be run before the next connection joins: more requests would push each
    /// other out of the cache.
    pub fn is_full(&self) -> bool {
        self.members.is_full() || self.requests.found.len() >= REQUESTS_MAX
    }

    /// Reads what a connection has sent. It has kept nothing, and there is room.
    #[inline]
    pub fn join(
        &mut self,
        dispatcher: &mut Dispatcher,
        mut connection: Box<Connection>,
        token: usize,
    ) -> Join {
        let start = self.members.len() * REGION_BYTES;
        let region = &mut self.buffer[start..start + REGION_BYTES];
        let len = match connection.stream.read(region) {
            Progress::Bytes(len) if !connection.stream.is_drained(len, REGION_BYTES) => {
                return Join::TooMuch(connection, region[..len].to_vec());
            }
            Progress::Bytes(len) => len,
            other => return Join::Not(connection, other),
        };
        count_read(dispatcher.exec.stats, &connection.session, len);
        let first = self.requests.found.len();
        let bytes = &mut region[..len];
        let (end, ended) = parse(dispatcher, &mut connection, bytes, 0, &mut self.requests);
        let requests = first..self.requests.found.len();
        self.members.push(Member { connection, token, requests, len, end, ended });
        Join::Joined
    }

    /// Runs all requests and writes the replies. `take_done` gives the connections back.
    pub fn run(&mut self, dispatcher: &mut Dispatcher) {
        self.run_found(dispatcher);
        let Group { buffer, members, requests, ran, done } = self;
        let mut alone = Requests::default();
        for (at, (mut member, ran)) in members.drain(..).zip(&*ran).enumerate() {
            let region = &mut buffer[at * REGION_BYTES..][..member.len];
            let end = go_on(dispatcher, &mut member, region, ran, requests, &mut alone);
            member.connection.keep(&region[end..]);
            write_replies(dispatcher, &mut member.connection);
            done.push((member.connection, member.token));
        }
        done.reverse();
        ran.clear();
        requests.clear();
        requests.trim();
    }

    /// The next connection that was served, with what it needs to continue.
    #[inline]
    pub fn take_done(&mut self) -> Option<(Box<Connection>, usize)> {
        self.done.pop()
    }

    /// Runs what all members have sent. Replies are written at the end, or when much has come together.
    fn run_found(&mut self, dispatcher: &mut Dispatcher) {
        let mut resolved: ArrayVec<Request<'_>, { 2 * REQUESTS_MAX }> = ArrayVec::new();
        for (at, member) in self.members.iter().enumerate() {
            let region = &self.buffer[at * REGION_BYTES..];
            for request in member.requests.clone() {
                resolved.push(dispatcher.resolve(self.requests.args(request, region)));
            }
        }
        if let Some(first) = self.members.first() {
            dispatcher.prefetch_batch(first.connection.session.db, &resolved);
        }
        let mut written = 0;
        dispatcher.begin_share();
        for at in 0..self.members.len() {
            let member = &mut self.members[at];
            let requests = &resolved[member.requests.clone()];
            let mark = dispatcher.reply.len();
            let (requests, next) = dispatcher.run_all(&mut member.connection.session, requests, 0, mark);
            if next == (Next::Close { after_replies: false }) {
                dispatcher.reply.truncate(mark);
            }
            let not_before = dispatcher.exec.take_not_before();
            self.ran.push(Ran { requests, next, not_before, replies_end: dispatcher.reply.len() });
            if has_much_to_write(dispatcher) {
                dispatcher.exec.release();
                write_members(dispatcher, &mut self.members[written..=at], &self.ran[written..]);
                written = at + 1;
                dispatcher.exec.clock.begin();
            }
        }
        dispatcher.exec.release();
        write_members(dispatcher, &mut self.members[written..], &self.ran[written..]);
    }
}

/// Writes the reply buffer, which holds what these members were answered, one after the other.
fn write_members(dispatcher: &mut Dispatcher, members: &mut [Member], ran: &[Ran]) {
    let is_much = has_much_to_write(dispatcher);
    let mut start = 0;
    for (member, ran) in members.iter_mut().zip(ran) {
        let connection = &mut *member.connection;
        send(dispatcher, connection, start..ran.replies_end, ran.not_before);
        start = ran.replies_end;
        if is_much {
            connection.account(dispatcher.exec.node);
        }
    }
    clear_replies(dispatcher);
}

/// Runs the rest of a member's bytes after its first requests, alone. Returns the number of bytes that are
/// done with.
fn go_on(
    dispatcher: &mut Dispatcher,
    member: &mut Member,
    region: &mut [u8],
    ran: &Ran,
    requests: &Requests,
    alone: &mut Requests,
) -> usize {
    let connection = &mut *member.connection;
    if connection.is_closing() {
        return region.len();
    }
    match (ran.next, &member.ended) {
        (Next::Go, Ended::Incomplete { wanted }) => {
            connection.wanted = *wanted;
            member.end
        }
        (Next::Go, Ended::Full) => {
            member.end + run_requests(dispatcher, connection, &mut region[member.end..], alone)
        }
        (Next::Go, Ended::Wrong(error)) => {
            dispatcher.protocol_error(&mut connection.session, *error);
            connection.begin_closing();
            region.len()
        }
        (next, _) => {
            // Requests that were parsed after the last that ran are parsed again, if ever.
            connection.parser = Parser::new();
            connection.stop(next);
            if connection.is_closing() {
                return region.len();
            }
            let unrun = member.requests.start + ran.requests..member.requests.end;
            requests.undo(unrun.clone(), region);
            let start = if unrun.is_empty() { member.end } else { requests.found[unrun.start].start };
            match connection.parked {
                None | Some(Parked::Reader) => {
                    start + run_requests(dispatcher, connection, &mut region[start..], alone)
                }
                Some(_) => start,
            }
        }
    }
}
