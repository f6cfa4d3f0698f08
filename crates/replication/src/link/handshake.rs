//! The messages of a replica before the stream, and its reading of the answers.

use super::Position;
use super::failure::Failure;
use super::lines::text;
use crate::ReplId;
use isotherm_log::LogOffset;
use isotherm_stdx::{parse_i64, push_u64};

/// Announcements of this node to its primary, and its timeout.
#[derive(Clone, Default, Debug)]
pub struct Settings {
    /// `primaryauth`, with `primaryuser` if that is set.
    pub password: Option<(Option<Vec<u8>>, Vec<u8>)>,
    /// `replica-announce-port`, or the port that it listens on.
    pub port: u16,
    /// `replica-announce-ip`
    pub address: Option<Vec<u8>>,
    /// The id of a node of a cluster that may take its primary's place: a Valkey that shuts down hands over
    /// to a replica that has said one.
    pub node_id: Option<Vec<u8>>,
    /// The Valkey whose formats it reads.
    pub version: &'static str,
    /// `repl-timeout`
    pub timeout_ms: u64,
    /// The node that is asked is to take the place of this one (PSYNC ... FAILOVER).
    pub hands_over: bool,
}

/// Question to the primary whose answer comes next.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Step {
    Ping,
    Auth,
    Port,
    Address,
    Capa,
    Version,
    NodeId,
    Psync,
}

impl Step {
    pub fn next(self, settings: &Settings) -> Step {
        match self {
            Step::Ping if settings.password.is_some() => Step::Auth,
            Step::Ping | Step::Auth => Step::Port,
            Step::Port if settings.address.is_some() => Step::Address,
            Step::Port | Step::Address => Step::Capa,
            Step::Capa => Step::Version,
            Step::Version if settings.node_id.is_some() => Step::NodeId,
            Step::Version | Step::NodeId | Step::Psync => Step::Psync,
        }
    }

    /// Returns the option of REPLCONF that the step sends, or an empty text if it sends none.
    pub fn option(self) -> &'static str {
        match self {
            Step::Port => "listening-port",
            Step::Address => "ip-address",
            Step::Capa => "capa",
            Step::Version => "version",
            Step::NodeId => "set-cluster-node-id",
            Step::Ping | Step::Auth | Step::Psync => "",
        }
    }
}

pub fn ping() -> Vec<u8> {
    command(&[b"PING"])
}

/// All that stands between PING and PSYNC, at once.
pub fn introduction(settings: &Settings) -> Vec<u8> {
    let mut bytes = match &settings.password {
        Some((Some(user), password)) => command(&[b"AUTH", user, password]),
        Some((None, password)) => command(&[b"AUTH", password]),
        None => Vec::new(),
    };
    let port = settings.port.to_string();
    bytes.extend(command(&[b"REPLCONF", b"listening-port", port.as_bytes()]));
    if let Some(address) = &settings.address {
        bytes.extend(command(&[b"REPLCONF", b"ip-address", address]));
    }
    bytes.extend(command(&[b"REPLCONF", b"capa", b"eof", b"capa", b"psync2"]));
    bytes.extend(command(&[b"REPLCONF", b"version", settings.version.as_bytes()]));
    if let Some(id) = &settings.node_id {
        bytes.extend(command(&[b"REPLCONF", b"set-cluster-node-id", id]));
    }
    bytes
}

pub fn psync(position: Option<Position>, hands_over: bool) -> Vec<u8> {
    match position {
        Some(Position { id, end }) => {
            let from = (end.0 + 1).to_string();
            let words: [&[u8]; 4] = [b"PSYNC", id.as_bytes(), from.as_bytes(), b"FAILOVER"];
            command(if hands_over { &words } else { &words[..3] })
        }
        None => command(&[b"PSYNC", b"?", b"-1"]),
    }
}

/// Builds an acknowledgement: the offset up to which the stream was applied and, if there is an append-only
/// file, the offset up to which it is durable.
pub fn ack(applied: LogOffset, durable: Option<LogOffset>) -> Vec<u8> {
    let applied = applied.0.to_string();
    match durable {
        None => command(&[b"REPLCONF", b"ACK", applied.as_bytes()]),
        Some(durable) => {
            let durable = durable.0.to_string();
            command(&[b"REPLCONF", b"ACK", applied.as_bytes(), b"FACK", durable.as_bytes()])
        }
    }
}

fn command(words: &[&[u8]]) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(64);
    bytes.push(b'*');
    push_u64(&mut bytes, words.len() as u64);
    bytes.extend_from_slice(b"\r\n");
    for word in words {
        bytes.push(b'$');
        push_u64(&mut bytes, word.len() as u64);
        bytes.extend_from_slice(b"\r\n");
        bytes.extend_from_slice(word);
        bytes.extend_from_slice(b"\r\n");
    }
    bytes
}

/// A primary with a password refuses a PING, which is as good as an answer.
pub fn judge_ping(line: &[u8]) -> Result<(), Failure> {
    let is_fine = [&b"+"[..], b"-NOAUTH", b"-NOPERM", b"-ERR operation not permitted"]
        .iter()
        .any(|start| line.starts_with(start));
    if is_fine { Ok(()) } else { Err(Failure::Ping(text(line))) }
}

/// Largest offset at which a primary may begin. A stream of 1 GB a second comes from there to the end of what
/// files can say, 2^63, in 146 years.
const OFFSET_MAX: u64 = 1 << 62;

pub enum Answer {
    Full(Position),
    Continue(Option<ReplId>),
}

// COMPAT(replication): A primary that answers PSYNC with an error is asked again later; Valkey tries SYNC
// then, and goes on without a history after a +FULLRESYNC that it cannot read. Why: every server since 2.8
// knows PSYNC, and a stream without a place in a history cannot be followed after a restart.
pub fn judge_psync(line: &[u8], asked: Option<Position>) -> Result<Answer, Failure> {
    if let Some(rest) = line.strip_prefix(b"+FULLRESYNC") {
        return full(rest).map(Answer::Full).ok_or_else(|| Failure::BadFull(text(line)));
    }
    if let Some(rest) = line.strip_prefix(b"+CONTINUE") {
        let bad = || Failure::BadContinue(text(line));
        if asked.is_none() {
            return Err(bad());
        }
        return match rest {
            [] => Ok(Answer::Continue(None)),
            [b' ', id @ ..] => ReplId::parse(id).map(Some).map(Answer::Continue).ok_or_else(bad),
            _ => Err(bad()),
        };
    }
    let reply = text(line);
    Err(match () {
        () if line.starts_with(b"-NOMASTERLINK") || line.starts_with(b"-LOADING") => Failure::Later(reply),
        () if line.starts_with(b"-ERR") => Failure::NoPsync(reply),
        () => Failure::Unexpected(reply),
    })
}

fn full(rest: &[u8]) -> Option<Position> {
    let rest = rest.strip_prefix(b" ")?;
    let (id, offset) = rest.split_at_checked(ReplId::LEN)?;
    let offset = parse_i64(offset.strip_prefix(b" ")?).and_then(|offset| u64::try_from(offset).ok());
    let end = LogOffset(offset.filter(|offset| *offset <= OFFSET_MAX)?);
    Some(Position { id: ReplId::parse(id)?, end })
}
