//! The logs of commands that were slow, of large requests and of large replies: SLOWLOG and COMMANDLOG.
//!
//! A worker compares what a command took with plain numbers of its own; only what exceeds one of them comes
//! here, under a lock. Arguments are cut, so that an entry is at most 32 x 128 B and some words.

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

    fn parameters(self) -> (Id, Id) {
        match self {
            Kind::Slow => (id("commandlog-execution-slower-than"), id("commandlog-slow-execution-max-len")),
            Kind::LargeRequest => {
                (id("commandlog-request-larger-than"), id("commandlog-large-request-max-len"))
            }
            Kind::LargeReply => (id("commandlog-reply-larger-than"), id("commandlog-large-reply-max-len")),
        }
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
                name: ran.name.into(),
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

fn kept_arguments(command: &CommandEntry, args: Args<'_>) -> Vec<Box<[u8]>> {
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::request::registry::Commands;
    use isotherm_resp::ArgsBuf;
    use std::time::Duration;

    fn kept(request: &[&str]) -> Vec<String> {
        let commands = Commands::build(crate::admin::COMMANDS);
        let command = commands.find(request[0].as_bytes()).expect("a command");
        let sub = request.get(1).and_then(|word| command.subcommand(word.as_bytes()));
        let words: Vec<&[u8]> = request.iter().map(|word| word.as_bytes()).collect();
        let args = ArgsBuf::from_slices(&words);
        let kept = kept_arguments(sub.unwrap_or(command), args.args());
        kept.into_iter().map(|word| String::from_utf8(word.into()).expect("text")).collect()
    }

    #[test]
    fn arguments_are_cut() {
        let long = "a".repeat(130);
        assert_eq!(kept(&["set", "k", &long])[2], format!("{}... (2 more bytes)", "a".repeat(128)));
        assert_eq!(kept(&["set", "k", &long[..128]])[2], "a".repeat(128));
        let many: Vec<&str> = std::iter::repeat_n("del", 33).collect();
        let kept_many = kept(&many);
        assert_eq!((kept_many.len(), &*kept_many[31]), (32, "... (2 more arguments)"));
        assert_eq!(kept(&many[..32])[31], "del");
    }

    #[test]
    fn secrets_are_not_kept() {
        let check = |request: &str, expected: &str| {
            let words: Vec<&str> = request.split(' ').collect();
            assert_eq!(kept(&words).join(" "), expected);
        };
        check("auth a", "auth (redacted)");
        check("AUTH a b", "AUTH (redacted) (redacted)");
        check("hello 3 AUTH a b SETNAME c", "hello 3 AUTH (redacted) (redacted) SETNAME c");
        check("config set requirepass x hz 10", "config set requirepass (redacted) hz 10");
        check("config set hz 10 masterauth x", "config set hz 10 masterauth (redacted)");
        check("get auth", "get auth");
        check("hello 3 auth user", "hello 3 auth user");
        check("hello 3 setname me", "hello 3 setname me");
        check("set auth secret x", "set auth secret x");
    }

    #[test]
    fn the_newest_stay() {
        let (config, log) = (Config::default(), CommandLog::default());
        let set = |name: &[u8], value: &[u8]| {
            config
                .set(&config.begin_writing(Duration::ZERO).unwrap(), &[(name, value)], false, &mut |_| Ok(()))
                .unwrap()
        };
        let commands = Commands::build(crate::admin::COMMANDS);
        let args = ArgsBuf::from_slices(&[b"ping"]);
        let note = |value| {
            let command = commands.find(b"ping").expect("a command");
            let ran = Ran { command, args: args.args(), addr: "a", name: "n", unix_seconds: 7 };
            log.note(&config, Kind::Slow, value, &ran);
        };
        let ids = || log.newest(&config, Kind::Slow, 9).iter().map(|logged| logged.id).collect::<Vec<_>>();
        set(b"slowlog-log-slower-than", b"5");
        set(b"slowlog-max-len", b"2");
        [4, 5, 6, 7].into_iter().for_each(note);
        assert_eq!(ids(), [2, 1]);
        log.reset(Kind::Slow);
        note(8);
        assert_eq!(ids(), [3]);
        set(b"slowlog-max-len", b"0");
        note(9);
        assert_eq!((ids(), log.len(&config, Kind::LargeReply)), (vec![3], 0));
    }
}
