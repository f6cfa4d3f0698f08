//! Why an attempt ended, and what the log says of the link. The words are Valkey's where it has some: tools
//! wait for them.

use super::Position;
use crate::ReplId;
use std::fmt;

/// Why an attempt ended.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Failure {
    NotConnected(String),
    Broken(String),
    Ended,
    Silence(Timeout),
    LongLine,
    /// An error in answer to PING.
    Ping(String),
    /// The password is wrong.
    Refused(String),
    /// Not now: the primary is loading, or has no primary itself.
    Later(String),
    /// The primary does not know PSYNC, or refuses it.
    NoPsync(String),
    /// An answer to PSYNC that is none.
    Unexpected(String),
    BadFull(String),
    /// A continuation that was not asked for, or of no history.
    BadContinue(String),
    /// An error where a snapshot was to begin.
    Aborted(String),
    BadHead(String),
    /// Received data that cannot be used; the node has logged the reason.
    Unusable,
    /// Attempt that this node gave up; it has logged the reason.
    GivenUp,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Timeout {
    Connecting,
    Snapshot,
    Stream,
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Failure::NotConnected(why) => write!(f, "Error condition on socket for SYNC: {why}"),
            Failure::Broken(why) => write!(f, "Connection with primary lost: {why}"),
            Failure::Ended => f.write_str("Connection with primary lost."),
            Failure::Silence(Timeout::Connecting) => f.write_str("Timeout connecting to the PRIMARY..."),
            Failure::Silence(Timeout::Snapshot) => f.write_str(
                "Timeout receiving bulk data from PRIMARY... If the problem persists try to set the 'repl-timeout' \
                 parameter in valkey.conf to a larger value.",
            ),
            Failure::Silence(Timeout::Stream) => f.write_str("PRIMARY timeout: no data nor PING received..."),
            Failure::LongLine => f.write_str("The primary has sent a line that is too long"),
            Failure::Ping(reply) => write!(f, "Error reply to PING from primary: '{reply}'"),
            Failure::Refused(reply) => write!(f, "Unable to AUTH to PRIMARY: {reply}"),
            Failure::Later(reply) => {
                write!(f, "Primary is currently unable to PSYNC but should be in the future: {reply}")
            }
            Failure::NoPsync(reply) => {
                write!(f, "Primary does not support PSYNC or is in error state (reply: {reply})")
            }
            Failure::Unexpected(reply) => write!(f, "Unexpected reply to PSYNC from primary: {reply}"),
            Failure::BadFull(reply) => write!(f, "Primary replied with wrong +FULLRESYNC syntax: {reply}"),
            Failure::BadContinue(reply) => write!(f, "Primary replied with wrong +CONTINUE syntax: {reply}"),
            Failure::Aborted(reply) => write!(f, "PRIMARY aborted replication with an error: {reply}"),
            Failure::BadHead(line) => write!(
                f,
                "Bad protocol from PRIMARY, the first byte is not '$' (we received '{line}'), are you sure the host and \
                 port are right?"
            ),
            Failure::Unusable => f.write_str("What the primary has sent cannot be used"),
            Failure::GivenUp => f.write_str("The attempt to synchronize with the primary was given up"),
        }
    }
}

impl Failure {
    /// Things of the usual course, which are no reason to worry.
    pub fn is_notice(&self) -> bool {
        matches!(self, Failure::Later(_) | Failure::NoPsync(_))
    }
}

/// Line of the log about an attempt that is in progress.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Line {
    Connected,
    PingReplied,
    /// An error in answer to this option of REPLCONF.
    NotUnderstood(&'static str, String),
    Asking(Option<Position>),
    Full(Position),
    Continues,
    Renamed(ReplId),
    PartialAccepted,
}

impl fmt::Display for Line {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Line::Connected => f.write_str("Non blocking connect for SYNC fired the event."),
            Line::PingReplied => f.write_str("Primary replied to PING, replication can continue..."),
            Line::NotUnderstood(option, reply) => {
                write!(f, "(Non critical) Primary does not understand REPLCONF {option}: {reply}")
            }
            Line::Asking(Some(position)) => {
                let Position { id, end } = position;
                write!(f, "Trying a partial resynchronization (request {id}:{}).", end.0 + 1)
            }
            Line::Asking(None) => f.write_str("Partial resynchronization not possible (no cached primary)"),
            Line::Full(Position { id, end }) => write!(f, "Full resync from primary: {id}:{}", end.0),
            Line::Continues => f.write_str("Successful partial resynchronization with primary."),
            Line::Renamed(id) => write!(f, "Primary replication ID changed to {id}"),
            Line::PartialAccepted => {
                f.write_str("PRIMARY <-> REPLICA sync: Primary accepted a Partial Resynchronization.")
            }
        }
    }
}
