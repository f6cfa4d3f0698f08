//! The replica's side of the link to its primary: what is sent when, what is made of each answer, when
//! silence is too long, and when the next attempt begins.
//!
//! ```text
//!   begin --> Connect
//!   Connected        PING            -->   +PONG | -NOAUTH | -NOPERM
//!                    AUTH?, REPLCONF listening-port, ip-address?, capa, version, node id?
//!                                    -->   a line each, errors but AUTH's do no harm
//!                    PSYNC id from+1 -->   +FULLRESYNC id off | +CONTINUE id? | error | empty lines while the primary prepares
//!
//!   +FULLRESYNC      $<length> | $EOF:<mark>    [snapshot][mark?]   --> SnapshotEnds, and when it is loaded: the stream
//!   +CONTINUE        the stream
//!   stream           commands of the primary <--, REPLCONF ACK each second -->
//!
//!   anything else, silence, the end of the connection   -->  Close, and another attempt after a pause
//! ```
//! Bytes are not copied: a part of the snapshot or of the stream is a range of the bytes that came. Framing
//! the stream's commands, keeping what was received, and the offset of what was applied are the caller's.
//!
//! Invariants: between `Close` and `Connect` no bytes are taken; nothing of a snapshot is announced whose end
//! was not seen (`SnapshotEnds`); a line from the primary is bounded.

mod failure;
mod handshake;
mod lines;
mod transfer;

#[cfg(test)]
mod tests;

pub use failure::{Failure, Line, Timeout};
pub use handshake::{Settings, ack};
pub use transfer::MARK_BYTES;

use crate::ReplId;
use handshake::Step;
use isotherm_log::LogOffset;
use isotherm_log::writer::Ms;
use lines::Lines;
use std::ops::Range;
use transfer::Transfer;

/// Interval of acknowledgements of a stream, and of empty lines that show the primary that a load is under
/// way.
const BEAT_MS: u64 = 1000;
/// After a handshake that failed.
const RETRY_MS: u64 = 1000;
/// After a failure of this machine (its disk, its memory), doubled each time to the maximum.
const LOCAL_RETRY_MS: u64 = 1000;
const LOCAL_RETRY_MAX_MS: u64 = 16_000;
/// A snapshot that broke off, or that cannot be read, is asked for again at once the first time, then after a
/// pause that is doubled to a maximum.
const BROKEN_RETRY_MS: u64 = 50;
const BROKEN_RETRY_MAX_MS: u64 = 400;

/// Up to where the replica has a history, and its name.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Position {
    pub id: ReplId,
    pub end: LogOffset,
}

pub enum Input<'b> {
    Connected,
    /// No connection, or no longer; the system's words.
    Broken(&'b str),
    /// The primary has closed the connection.
    Ended,
    Bytes(&'b [u8]),
    /// The snapshot is loaded.
    Loaded,
    /// Received data that cannot be used. The node has logged the reason.
    Unusable,
    /// Attempt that this node cannot continue. It has logged the reason.
    GivenUp,
    /// Read timeout: no data has come for a while.
    Quiet,
    /// Another look at the clock.
    Tick,
}

#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Output {
    Connect,
    Send(Vec<u8>),
    Say(Line),
    /// All data is to be replaced: a snapshot follows, taken at this place of this history.
    Full(Position),
    /// The bytes of the snapshot follow: `bytes` of them, or until a mark.
    Snapshot {
        bytes: Option<u64>,
    },
    /// Range of the input that is part of the snapshot.
    SnapshotBytes(Range<usize>),
    /// All of it was given. The last `mark_bytes` bytes are the mark, and no part of it.
    SnapshotEnds {
        mark_bytes: usize,
    },
    /// The stream continues at the place that was asked for. `id`: the new name of the history, if that is
    /// said.
    Continue {
        id: Option<ReplId>,
    },
    /// Range of the input that is part of the stream.
    Stream(Range<usize>),
    /// The primary is to hear how far the stream was applied.
    AckDue,
    /// The attempt has failed, and its connection is of no more use.
    Close(Failure),
}

/// Phase of the link as ROLE and INFO show it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Phase {
    /// No attempt is under way.
    Resting,
    Connecting,
    Handshake,
    /// A snapshot is awaited, received or loaded.
    Transfer,
    Connected,
}

enum State {
    Resting,
    Connecting,
    /// The reply to this is awaited.
    Handshake(Step),
    Snapshot(Transfer),
    Loading,
    Streaming,
}

pub struct Link {
    settings: Settings,
    position: Option<Position>,
    state: State,
    lines: Lines,
    /// Time when data last came, or the attempt began.
    heard: Ms,
    /// Time when an ACK or an empty line is due.
    beat: Ms,
    retry: Ms,
    /// Something of the stream has come since it was quiet.
    has_news: bool,
    /// Attempts in a row that broke off in a snapshot, and that failed here.
    broken: u32,
    given_up: u32,
}

impl Link {
    pub fn new(settings: Settings) -> Link {
        Link {
            settings,
            position: None,
            state: State::Resting,
            lines: Lines::default(),
            heard: Ms(0),
            beat: Ms(0),
            retry: Ms(0),
            has_news: false,
            broken: 0,
            given_up: 0,
        }
    }

    /// Begins an attempt. `settings` may have changed since the last; with `position` the stream may go on
    /// there.
    pub fn begin(&mut self, settings: Settings, position: Option<Position>, now: Ms, out: &mut Vec<Output>) {
        assert!(matches!(self.state, State::Resting), "one attempt at a time");
        (self.settings, self.position) = (settings, position);
        self.lines = Lines::default();
        self.state = State::Connecting;
        self.heard = now;
        out.push(Output::Connect);
    }

    pub fn phase(&self) -> Phase {
        match self.state {
            State::Resting => Phase::Resting,
            State::Connecting => Phase::Connecting,
            State::Handshake(_) => Phase::Handshake,
            State::Snapshot(_) | State::Loading => Phase::Transfer,
            State::Streaming => Phase::Connected,
        }
    }

    /// Returns the time when data last came from the primary.
    pub fn heard(&self) -> Ms {
        self.heard
    }

    /// Returns the time when the next attempt may begin or, during an attempt, when the clock is to be looked
    /// at again.
    pub fn next_tick(&self) -> Ms {
        let silence = Ms(self.heard.0 + self.settings.timeout_ms + 1);
        match self.state {
            State::Resting => self.retry,
            State::Loading => self.beat,
            State::Streaming => Ms(self.beat.0.min(silence.0)),
            State::Connecting | State::Handshake(_) | State::Snapshot(_) => silence,
        }
    }

    pub fn is_due(&self, now: Ms) -> bool {
        matches!(self.state, State::Resting) && self.retry <= now
    }

    pub fn step(&mut self, input: Input<'_>, now: Ms, out: &mut Vec<Output>) {
        match input {
            Input::Connected => self.connected(now, out),
            Input::Broken(why) => {
                let failure = match self.state {
                    State::Connecting => Failure::NotConnected(why.to_string()),
                    _ => Failure::Broken(why.to_string()),
                };
                self.fail(failure, now, out);
            }
            Input::Ended => self.fail(Failure::Ended, now, out),
            Input::Bytes(bytes) => self.take(bytes, now, out),
            Input::Loaded => self.loaded(now, out),
            Input::Unusable => self.fail(Failure::Unusable, now, out),
            Input::GivenUp => self.fail(Failure::GivenUp, now, out),
            Input::Quiet => self.quiet(now, out),
            Input::Tick => self.tick(now, out),
        }
    }

    fn connected(&mut self, now: Ms, out: &mut Vec<Output>) {
        if let State::Connecting = self.state {
            self.heard = now;
            out.push(Output::Say(Line::Connected));
            out.push(Output::Send(handshake::ping()));
            self.state = State::Handshake(Step::Ping);
        }
    }

    fn tick(&mut self, now: Ms, out: &mut Vec<Output>) {
        let is_silent = now.0 > self.heard.0 + self.settings.timeout_ms;
        match self.state {
            State::Resting => {}
            State::Connecting | State::Handshake(_) if is_silent => {
                self.fail(Failure::Silence(Timeout::Connecting), now, out);
            }
            State::Snapshot(_) if is_silent => self.fail(Failure::Silence(Timeout::Snapshot), now, out),
            State::Streaming if is_silent => self.fail(Failure::Silence(Timeout::Stream), now, out),
            State::Connecting | State::Handshake(_) | State::Snapshot(_) => {}
            State::Loading => {
                if now >= self.beat {
                    // While it is loading, an empty line keeps the primary from giving it up.
                    out.push(Output::Send(b"\n".to_vec()));
                    self.beat = Ms(now.0 + BEAT_MS);
                }
            }
            State::Streaming => {
                if now >= self.beat {
                    out.push(Output::AckDue);
                    self.beat = Ms(now.0 + BEAT_MS);
                }
            }
        }
    }

    /// A primary that hands over sends nothing more, and waits for the ACK of the bytes that it has sent.
    fn quiet(&mut self, now: Ms, out: &mut Vec<Output>) {
        if matches!(self.state, State::Streaming) && self.has_news {
            self.has_news = false;
            out.push(Output::AckDue);
            self.beat = Ms(now.0 + BEAT_MS);
        }
    }

    fn loaded(&mut self, now: Ms, out: &mut Vec<Output>) {
        assert!(matches!(self.state, State::Loading), "a snapshot is loaded whose end was seen");
        self.stream(now);
        out.push(Output::AckDue);
    }

    fn stream(&mut self, now: Ms) {
        self.state = State::Streaming;
        self.heard = now;
        self.beat = Ms(now.0 + BEAT_MS);
        (self.broken, self.given_up) = (0, 0);
    }

    fn take(&mut self, bytes: &[u8], now: Ms, out: &mut Vec<Output>) {
        self.heard = now;
        let mut at = 0;
        while at < bytes.len() {
            at += match &mut self.state {
                State::Resting | State::Connecting => return,
                // Bytes that come ahead of their time are a part of the stream.
                State::Loading | State::Streaming => {
                    self.has_news = true;
                    out.push(Output::Stream(at..bytes.len()));
                    return;
                }
                State::Snapshot(transfer) if transfer.has_begun() => {
                    let (count, ends) = transfer.take(&bytes[at..]);
                    out.push(Output::SnapshotBytes(at..at + count));
                    if let Some(mark_bytes) = ends {
                        self.end_snapshot(mark_bytes, now, out);
                    }
                    count
                }
                State::Handshake(_) | State::Snapshot(_) => match self.take_line(&bytes[at..], now, out) {
                    Ok(count) => count,
                    Err(failure) => return self.fail(failure, now, out),
                },
            };
        }
    }

    fn end_snapshot(&mut self, mark_bytes: usize, now: Ms, out: &mut Vec<Output>) {
        out.push(Output::SnapshotEnds { mark_bytes });
        self.state = State::Loading;
        self.beat = Ms(now.0 + BEAT_MS);
    }

    /// Takes bytes up to the end of a line, and what the line says.
    fn take_line(&mut self, bytes: &[u8], now: Ms, out: &mut Vec<Output>) -> Result<usize, Failure> {
        let (count, line) = self.lines.take(bytes)?;
        if let Some(line) = line {
            match &mut self.state {
                State::Handshake(step) => {
                    let step = *step;
                    self.judge_reply(step, &line, now, out)?;
                }
                State::Snapshot(transfer) => {
                    if let Some(bytes) = transfer.begin(&line)? {
                        out.push(Output::Snapshot { bytes: bytes.known() });
                        if bytes.known() == Some(0) {
                            self.end_snapshot(0, now, out);
                        }
                    }
                }
                _ => unreachable!("lines are awaited in two states"),
            }
        }
        Ok(count)
    }

    fn judge_reply(
        &mut self,
        step: Step,
        line: &[u8],
        now: Ms,
        out: &mut Vec<Output>,
    ) -> Result<(), Failure> {
        let settings = &self.settings;
        self.state = match step {
            Step::Ping => {
                handshake::judge_ping(line)?;
                out.push(Output::Say(Line::PingReplied));
                out.push(Output::Send(handshake::introduction(settings)));
                State::Handshake(Step::Ping.next(settings))
            }
            Step::Auth if line.starts_with(b"-") => return Err(Failure::Refused(lines::text(line))),
            Step::Port | Step::Address | Step::Capa | Step::Version | Step::NodeId | Step::Auth => {
                if line.starts_with(b"-") {
                    out.push(Output::Say(Line::NotUnderstood(step.option(), lines::text(line))));
                }
                let next = step.next(settings);
                if next == Step::Psync {
                    out.push(Output::Say(Line::Asking(self.position)));
                    out.push(Output::Send(handshake::psync(self.position, self.settings.hands_over)));
                }
                State::Handshake(next)
            }
            Step::Psync if line.is_empty() => return Ok(()),
            Step::Psync => match handshake::judge_psync(line, self.position)? {
                handshake::Answer::Full(position) => {
                    out.push(Output::Say(Line::Full(position)));
                    out.push(Output::Full(position));
                    State::Snapshot(Transfer::default())
                }
                handshake::Answer::Continue(id) => {
                    out.push(Output::Say(Line::Continues));
                    let known = self.position.map(|position| position.id);
                    if let Some(id) = id.filter(|id| Some(*id) != known) {
                        out.push(Output::Say(Line::Renamed(id)));
                    }
                    out.push(Output::Continue { id });
                    out.push(Output::Say(Line::PartialAccepted));
                    self.stream(now);
                    return Ok(());
                }
            },
        };
        Ok(())
    }

    /// Ends the attempt. When the next one begins depends on how far this one came.
    fn fail(&mut self, failure: Failure, now: Ms, out: &mut Vec<Output>) {
        let pause_ms = match (&self.state, &failure) {
            (State::Resting, _) => return,
            (_, Failure::GivenUp) => {
                let doubled = LOCAL_RETRY_MS << self.given_up.min(8);
                self.given_up += 1;
                doubled.min(LOCAL_RETRY_MAX_MS)
            }
            (State::Streaming, Failure::Unusable) => BROKEN_RETRY_MAX_MS,
            (State::Streaming, _) => 0,
            (State::Snapshot(_) | State::Loading, _) => {
                let before = self.broken;
                self.broken = before.saturating_add(1);
                let pause_ms = if before == 0 { 0 } else { BROKEN_RETRY_MS << before.min(8) };
                pause_ms.min(BROKEN_RETRY_MAX_MS)
            }
            (State::Connecting | State::Handshake(_), _) => RETRY_MS,
        };
        self.state = State::Resting;
        self.retry = Ms(now.0 + pause_ms);
        out.push(Output::Close(failure));
    }

    pub fn check_invariants(&self) {
        self.lines.check_invariants();
        if let State::Snapshot(transfer) = &self.state {
            transfer.check_invariants();
        }
    }
}
