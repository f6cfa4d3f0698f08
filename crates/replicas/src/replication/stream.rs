//! The stream of a primary: its bytes are framed, run, and appended to the log as they came.
//!
//! ```text
//!   buffer   [ ran, appended ][ PING | MULTI | INCR a | ... |  SET b ...  | SE      ]
//!            freed            from                          parsed                 end of what came
//! ```
//! Up to 32 commands are framed and looked up, the memory that they touch is fetched, and then they run in
//! order. The bytes of a command are appended while what it has locked is held, so that everything that is
//! held at one moment is the data at the end of the log. Commands that lock nothing (PING, SELECT, a message)
//! are appended with the next one, or at the end of the batch; a transaction is appended as a whole.
//!
//! **No memory.** A command that changes one thing has changed nothing then: the link goes down, and it is
//! asked for again. Where others of its transaction have run, the data is that of no place in the history: it
//! loses its name and its place before others see it, so nothing continues from there, and the next attempt
//! asks for all data. The log, and so the append-only file, has nothing of it.
//!
//! **Errors.** A command that is answered with an error here did something there, so the data differ: the
//! link goes down, and all data is asked for (`link::faults`), unless `propagation-error-behavior` passes
//! over it.
//!
//! Invariants: `from <= parsed <= buffer.len()`; the log ends with what lies before `from`. The bytes of an
//! unfinished transaction or command are bounded (`client-query-buffer-limit`).

use arrayvec::ArrayVec;
use isotherm_log::LogOffset;
use isotherm_resp::{Args, Limits, Parsed, Parser, ProtocolError, Span, errors, limits};
use std::fmt;

use crate::replication::role;
use isotherm_durability::aof::applier::{Applier, CommandFailure, Refused};
use isotherm_durability::aof::thawing;
use isotherm_engine::request::resolve;
use isotherm_engine::request::resolve::Request;
use isotherm_node::Node;
use isotherm_node::tier::{State, pace};

/// Commands of one batch, as in a worker's (`worker::batch`).
const COMMANDS_MAX: usize = 32;
/// A batch ends after the command that passes this.
const BATCH_BYTES_MAX: usize = 64 << 10;
/// Read at once.
pub const READ_BYTES: usize = 256 << 10;

/// Why the stream cannot continue.
#[derive(Debug)]
pub enum Fault {
    /// The bytes are no commands.
    Garbage(Option<ProtocolError>),
    /// A command or a transaction that does not end.
    TooLarge,
    /// A command cannot be run by this node.
    Refused(Refused),
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Fault::Garbage(None) => f.write_str(
                "WARNING: Receiving inline protocol from primary, primary stream corruption? Closing the primary connection.",
            ),
            Fault::Garbage(Some(error)) => write!(f, "The primary's stream is no sequence of commands: {error}"),
            Fault::TooLarge => f.write_str(
                "A command or transaction of the primary exceeds client-query-buffer-limit. Closing the primary connection.",
            ),
            Fault::Refused(why) => write!(f, "A command of the primary cannot be applied: {why}"),
        }
    }
}

impl From<Refused> for Fault {
    fn from(refused: Refused) -> Fault {
        Fault::Refused(refused)
    }
}

/// A command that did not do here what it did there.
#[derive(Debug)]
pub struct Divergence {
    /// Reply that the client of the command would have got.
    pub reply: String,
    pub command: String,
    pub is_unknown: bool,
}

/// Events that were seen while commands were applied.
#[derive(Default, Debug)]
pub struct Seen {
    /// The primary asks for an ACK.
    pub asks_ack: bool,
    pub divergences: Vec<Divergence>,
}

#[derive(Default)]
pub struct Stream {
    buffer: Vec<u8>,
    from: usize,
    parsed: usize,
    parser: Parser,
    spans: Vec<Span>,
    found: Vec<Found>,
}

/// Command in the buffer.
#[derive(Clone, Copy)]
struct Found {
    start: usize,
    end: usize,
    first_span: u32,
    end_span: u32,
}

impl Stream {
    /// Returns the buffer to which the bytes of the stream that come next are appended.
    pub fn buffer(&mut self) -> &mut Vec<u8> {
        &mut self.buffer
    }

    /// Bytes that came and were not applied.
    pub fn unapplied_bytes(&self) -> usize {
        self.buffer.len() - self.from
    }

    /// Drops everything that came before: the stream begins anew after the end of the log.
    pub fn clear(&mut self) {
        *self = Stream::default();
    }

    /// Applies one batch of complete commands. False if there was none.
    pub fn apply_batch(
        &mut self,
        applier: &mut Applier,
        bytes_max: usize,
        seen: &mut Seen,
    ) -> Result<bool, Fault> {
        self.frame()?;
        if self.found.is_empty() {
            self.trim();
            return match self.unapplied_bytes() > bytes_max {
                true => Err(Fault::TooLarge),
                false => Ok(false),
            };
        }
        applier.refresh();
        let ran = self.run(applier, seen);
        if cfg!(debug_assertions) {
            self.check_invariants();
        }
        applier.release();
        applier.node().log.wake_readers();
        ran?;
        Ok(true)
    }

    /// Finds the next complete commands. A fault after some of them is met again when these have run.
    fn frame(&mut self) -> Result<(), Fault> {
        let framed = self.frame_some();
        if self.found.is_empty() { framed } else { Ok(()) }
    }

    fn frame_some(&mut self) -> Result<(), Fault> {
        let Stream { buffer, parsed, parser, spans, found, .. } = self;
        spans.clear();
        found.clear();
        // A value is as long as the primary allows it to be.
        let limits = Limits { bulk_bytes_max: limits::REQUEST_BYTES_MAX, ..Limits::default() };
        let began = *parsed;
        while found.len() < COMMANDS_MAX && *parsed - began < BATCH_BYTES_MAX {
            if parser.is_idle() {
                match buffer.get(*parsed) {
                    None => break,
                    Some(b'*') => {}
                    Some(_) => return Err(Fault::Garbage(None)),
                }
            }
            let first_span = spans.len() as u32;
            match parser.parse(&mut buffer[*parsed..], &limits, spans) {
                Parsed::Request { consumed } => {
                    let (start, end) = (*parsed, *parsed + consumed);
                    found.push(Found { start, end, first_span, end_span: spans.len() as u32 });
                    *parsed = end;
                }
                Parsed::Incomplete { .. } => break,
                Parsed::Empty { .. } => return Err(Fault::Garbage(None)),
                Parsed::Error(error) => {
                    *parser = Parser::new();
                    return Err(Fault::Garbage(Some(error)));
                }
            }
        }
        Ok(())
    }

    fn run(&mut self, applier: &mut Applier, seen: &mut Seen) -> Result<(), Fault> {
        let node = applier.node();
        let Stream { buffer, from, spans, found, .. } = self;
        let mut requests: ArrayVec<Request<'_>, COMMANDS_MAX> = ArrayVec::new();
        for one in found.iter() {
            let spans = &spans[one.first_span as usize..one.end_span as usize];
            let args = Args::new(&buffer[one.start..], spans);
            requests.push(resolve::resolve_logged(&node.commands, &node.keyspace, args));
        }
        let db = applier.db();
        thawing::thaw(applier, requests.iter().filter_map(|request| Some((db, request.key?))));
        applier.prefetch(&requests);
        for (request, one) in requests.iter().zip(found.iter()) {
            seen.asks_ack |= asks_ack(request.args);
            if let Err(refused) = applier.apply_resolved(request) {
                seen.divergences.extend(divergence(request, &refused));
                // Errors that commands were answered with are not among these where they are passed over.
                if !refused.is_of_command() || !applier.passes_over_errors() {
                    // Before others see it.
                    if refused.is_half() {
                        role::lose_place(node);
                    }
                    applier.end_hold();
                    return Err(refused.into());
                }
            }
            if let Some(failure) = applier.failure.take() {
                seen.divergences.push(failed(failure));
            }
            if applier.holds_any() && !applier.is_in_transaction() {
                append(applier, &buffer[*from..one.end]);
                *from = one.end;
                applier.end_hold();
            }
        }
        let end = found.last().map_or(*from, |last| last.end);
        if *from < end && !applier.is_in_transaction() {
            applier.hold_one()?;
            append(applier, &buffer[*from..end]);
            *from = end;
        }
        Ok(())
    }

    /// Frees what was applied.
    fn trim(&mut self) {
        if self.from == self.buffer.len() {
            self.buffer.clear();
            if self.buffer.capacity() > 4 * READ_BYTES {
                self.buffer = Vec::new();
            }
        } else if self.from > 0 {
            self.buffer.drain(..self.from);
        }
        self.parsed -= self.from;
        self.from = 0;
    }

    fn check_invariants(&self) {
        assert!(self.from <= self.parsed && self.parsed <= self.buffer.len());
    }
}

/// Something is held.
fn append(applier: &mut Applier, bytes: &[u8]) {
    let node = applier.node();
    let appended = node.log.append_stream(bytes, u32::from(applier.db().0));
    applier.stamp(appended.end);
}

fn asks_ack(args: Args<'_>) -> bool {
    args.len() >= 2
        && args.get(0).eq_ignore_ascii_case(b"REPLCONF")
        && args.get(1).eq_ignore_ascii_case(b"GETACK")
}

/// Returns what the log says of a command that is not run here as it was there.
fn divergence(request: &Request<'_>, refused: &Refused) -> Option<Divergence> {
    match refused {
        Refused::Unknown(_) | Refused::WrongArity(_) => Some(unknown(request, refused)),
        Refused::Failed(failure) | Refused::HalfFailed(failure) => Some(failed(failure.clone())),
        Refused::Library(_) => Some(Divergence {
            reply: format!("-ERR {refused}"),
            command: "function".into(),
            is_unknown: false,
        }),
        _ => None,
    }
}

fn unknown(request: &Request<'_>, refused: &Refused) -> Divergence {
    let args = request.args;
    let reply = match (refused, request.command()) {
        (Refused::WrongArity(_), Some(command)) => errors::wrong_arity(&command.name).into_bytes(),
        _ => errors::unknown_command(args),
    };
    let reply = format!("-{}", String::from_utf8_lossy(&reply));
    let command = match request.command() {
        Some(command) => command.name.to_string(),
        None => "<unknown>".into(),
    };
    Divergence { reply, command, is_unknown: request.command().is_none() }
}

fn failed(failure: CommandFailure) -> Divergence {
    let CommandFailure { command, reply } = failure;
    Divergence { reply, command: command.to_string(), is_unknown: false }
}

/// Returns whether the writer of the append-only file, a save and the disk of values keep up with the stream.
pub fn has_room(node: &Node) -> bool {
    node.log.has_room() && !node.mail.is_snapshot_full() && !is_ahead_of_disk(node)
}

// COMPAT(replication): With `swap-mode` a replica reads the stream of its primary as fast as values leave
// memory, also with `replica-ignore-maxmemory`, as long as its disk takes them. Why: it is expected to hold
// more than memory.
/// Returns whether too much is in memory, and on its way out of it. Asked between batches.
fn is_ahead_of_disk(node: &Node) -> bool {
    let limit = node.config.maxmemory_bytes();
    let Some(tier) = node.tier() else { return false };
    let is_far_above = limit > 0 && node.pressing_memory_bytes() > pace::waits_above(limit);
    if is_far_above {
        tier.note_used(node.pressing_used_bytes(), limit);
    }
    if !is_far_above || tier.state() != State::Works {
        return false;
    }
    tier.wake();
    pace::hold_writers(&node.mail, tier);
    node.mail.is_sinker_behind()
}

/// The end of the log, as the primary counts.
pub fn applied(node: &Node) -> LogOffset {
    node.log.end()
}
