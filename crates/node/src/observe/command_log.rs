//! The logs of commands that were slow, of large requests and of large replies: SLOWLOG and COMMANDLOG.
//!
//! A worker compares what a command took with plain numbers of its own; only what exceeds one of them comes
//! here, under a lock. Arguments and the client's name are cut, so that an entry
//! is at most 33 x 128 B and some words.

use isotherm_resp::Args;
use std::collections::VecDeque;
use std::sync::{Mutex, MutexGuard, PoisonError};

use crate::request::entry::Entry as CommandEntry;
use isotherm_config::{Config, Id, id};

/// Arguments that an entry keeps at most; the last one may say how many more there were.
const ARGUMENTS_MAX: usize = 32;
/// Bytes that are kept of each.
const ARGUMENT_BYTES_MAX: usize = 128;
const REDACTED: &[u8] = b"(redacted)";

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Kind {
    Slow,
    LargeRequest,
    LargeReply,
}

impl Kind {
    pub const ALL: [Kind; 3] = [Kind::Slow, Kind::LargeRequest, Kind::LargeReply];

    pub fn named(word: &[u8]) -> Option<Kind> {
        let words: [&[u8]; 3] = [b"slow", b"large-request", b"large-reply"];
        words.iter().position(|known| known.eq_ignore_ascii_case(word)).map(|at| Kind::ALL[at])
    }

    /// Returns the parameters of its threshold and of its length.
    fn parameters(self) -> (Id, Id) {
        const OF_ALL: [(Id, Id); Kind::ALL.len()] = [
            (id("commandlog-execution-slower-than"), id("commandlog-slow-execution-max-len")),
            (id("commandlog-request-larger-than"), id("commandlog-large-request-max-len")),
            (id("commandlog-reply-larger-than"), id("commandlog-large-reply-max-len")),
        ];
        OF_ALL[self as usize]
    }

    /// Returns the smallest value (microseconds or bytes) of a command that is logged; `None` if none is
    /// logged.
    pub fn threshold(self, config: &Config) -> Option<u64> {
        let (threshold, len) = self.parameters();
        u64::try_from(config.number(threshold)).ok().filter(|_| config.number(len) != 0)
    }

    fn len_max(self, config: &Config) -> usize {
        usize::try_from(config.number(self.parameters().1)).unwrap_or(usize::MAX)
    }
}

/// Command in a log.
#[derive(Clone, Debug)]
pub struct Logged {
    pub id: u64,
    pub unix_seconds: i64,
    /// Microseconds or bytes.
    pub value: u64,
    pub arguments: Vec<Box<[u8]>>,
    pub addr: Box<str>,
    pub name: Box<str>,
}

#[derive(Default)]
pub struct CommandLog {
    logs: [Mutex<Log>; 3],
}

#[derive(Default)]
struct Log {
    /// Newest first.
    entries: VecDeque<Logged>,
    next_id: u64,
}

/// Command that has run, and its client.
pub struct Ran<'a> {
    pub command: &'static CommandEntry,
    pub args: Args<'a>,
    pub addr: &'a str,
    pub name: &'a str,
    pub unix_seconds: i64,
}

impl CommandLog {
    /// Notes a command if `value` is above the threshold of `kind`.
    pub fn note(&self, config: &Config, kind: Kind, value: u64, ran: &Ran<'_>) {
        let Some(threshold) = kind.threshold(config) else { return };
        let mut log = self.lock(kind);
        if value >= threshold {
            let id = log.next_id;
            log.next_id += 1;
            log.entries.push_front(Logged {
                id,
                unix_seconds: ran.unix_seconds,
                value,
                arguments: kept_arguments(ran.command, ran.args),
                addr: ran.addr.into(),
                // COMPAT(observability): SLOWLOG and COMMANDLOG keep the first 128 bytes of a client's name;
                // Valkey keeps it whole. Why: a name may have 512 MB, and the log has 128 entries.
                name: ran.name[..ran.name.floor_char_boundary(ARGUMENT_BYTES_MAX)].into(),
            });
        }
        log.entries.truncate(kind.len_max(config));
    }

    /// Returns the bytes of the entries, and of the room for them.
    pub fn memory_bytes(&self) -> usize {
        let texts = |entry: &Logged| {
            let arguments: usize =
                entry.arguments.iter().map(|argument| argument.len() + size_of::<Box<[u8]>>()).sum();
            arguments + entry.addr.len() + entry.name.len()
        };
        let log = |kind: &Mutex<Log>| {
            let log = kind.lock().unwrap_or_else(PoisonError::into_inner);
            log.entries.capacity() * size_of::<Logged>() + log.entries.iter().map(texts).sum::<usize>()
        };
        self.logs.iter().map(log).sum()
    }

    pub fn len(&self, config: &Config, kind: Kind) -> usize {
        self.trimmed(config, kind).entries.len()
    }

    /// The newest `count` of them.
    pub fn newest(&self, config: &Config, kind: Kind, count: usize) -> Vec<Logged> {
        self.trimmed(config, kind).entries.iter().take(count).cloned().collect()
    }

    /// A smaller limit holds for what is there, unless the log is off.
    fn trimmed(&self, config: &Config, kind: Kind) -> MutexGuard<'_, Log> {
        let mut log = self.lock(kind);
        if kind.threshold(config).is_some() {
            log.entries.truncate(kind.len_max(config));
        }
        log
    }

    pub fn reset(&self, kind: Kind) {
        self.lock(kind).entries.clear();
    }

    fn lock(&self, kind: Kind) -> MutexGuard<'_, Log> {
        self.logs[kind as usize].lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Returns the arguments as the log keeps them: cut, and without secrets.
pub fn kept_arguments(command: &CommandEntry, args: Args<'_>) -> Vec<Box<[u8]>> {
    let cut = args.len() > ARGUMENTS_MAX;
    let count = if cut { ARGUMENTS_MAX - 1 } else { args.len() };
    let mut kept: Vec<Box<[u8]>> = args
        .iter()
        .take(count)
        .enumerate()
        .map(
            |(at, argument)| {
                if command.spec.is_secret(args, at) { REDACTED.into() } else { shortened(argument) }
            },
        )
        .collect();
    if cut {
        kept.push(format!("... ({} more arguments)", args.len() - count).into_bytes().into());
    }
    kept
}

fn shortened(argument: &[u8]) -> Box<[u8]> {
    if argument.len() <= ARGUMENT_BYTES_MAX {
        return argument.into();
    }
    let more = format!("... ({} more bytes)", argument.len() - ARGUMENT_BYTES_MAX);
    [&argument[..ARGUMENT_BYTES_MAX], more.as_bytes()].concat().into()
}
