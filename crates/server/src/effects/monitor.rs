//! MONITOR: a line for every command that ran.
//!
//! ```text
//! +1700000000.123456 [0 127.0.0.1:4711] "set" "k" "v\x00"
//! ```
//! The workers that have somebody who monitors get the line by mailbox, under one lock, so that all see one and the same
//! order. Without one nothing is ever formatted: sessions leave the usual way of a command only while
//! `Tasks::MONITORED` is set.

use isotherm_resp::Args;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{SystemTime, UNIX_EPOCH};

use crate::effects::pubsub::Hearers;
use crate::node::{Node, Tasks};
use crate::session::Session;
use crate::worker::letter::Letter;

/// How many sessions of each worker monitor.
#[derive(Default)]
pub struct Monitors {
    workers: Mutex<Hearers>,
}

impl Monitors {
    fn lock(&self) -> MutexGuard<'_, Hearers> {
        self.workers.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Node {
    pub fn add_monitor(&self, worker: u16) {
        let mut workers = self.monitors.lock();
        workers.add(worker);
        self.set_task(Tasks::MONITORED, true);
    }

    pub fn remove_monitor(&self, worker: u16) {
        let mut workers = self.monitors.lock();
        workers.remove(worker);
        self.set_task(Tasks::MONITORED, workers.total() > 0);
    }

    /// Tells whoever monitors that `session` has run a command.
    #[cold]
    pub fn feed_monitors(&self, session: &Session, command: &str, args: Args<'_>) {
        let shared = &session.shared;
        let from = match shared.is_unix {
            true => format!("unix:{}", self.config.unix_socket().unwrap_or_default().display()),
            false => shared.addr.to_string(),
        };
        let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        let mut line = format!("+{}.{:06} [{} {from}]", since.as_secs(), since.subsec_micros(), session.db.0)
            .into_bytes();
        for (at, argument) in args.iter().enumerate() {
            line.push(b' ');
            push_quoted(&mut line, if is_secret(command, args, at) { b"(redacted)" } else { argument });
        }
        line.extend_from_slice(b"\r\n");
        let line: Arc<[u8]> = line.into();
        let workers = self.monitors.lock();
        for (worker, _) in workers.by_worker() {
            self.crowd(line.len());
            self.post_from(Some(shared.worker), worker, Letter::Line(Arc::clone(&line)));
        }
    }
}

/// Passwords, and who they belong to.
fn is_secret(command: &str, args: Args<'_>, at: usize) -> bool {
    let is_auth = |at: usize| {
        let word = at.checked_sub(1).filter(|at| *at > 0).map(|at| args.get(at));
        word.is_some_and(|word| word.eq_ignore_ascii_case(b"auth"))
    };
    match command {
        "auth" => at > 0,
        "hello" => is_auth(at) && at + 1 < args.len() || at > 1 && is_auth(at - 1),
        _ => false,
    }
}

/// In quotes, with what is no visible ASCII escaped.
fn push_quoted(out: &mut Vec<u8>, text: &[u8]) {
    out.push(b'"');
    for &byte in text {
        match byte {
            b'"' | b'\\' => out.extend_from_slice(&[b'\\', byte]),
            b'\n' => out.extend_from_slice(b"\\n"),
            b'\r' => out.extend_from_slice(b"\\r"),
            b'\t' => out.extend_from_slice(b"\\t"),
            0x07 => out.extend_from_slice(b"\\a"),
            0x08 => out.extend_from_slice(b"\\b"),
            b' '..=b'~' => out.push(byte),
            _ => out.extend_from_slice(format!("\\x{byte:02x}").as_bytes()),
        }
    }
    out.push(b'"');
}

#[cfg(test)]
mod tests {
    use super::*;
    use isotherm_resp::ArgsBuf;

    #[test]
    fn quotes() {
        let mut out = Vec::new();
        push_quoted(&mut out, b"a\"\\\n\r\t\x07\x08\x00\xff z");
        assert_eq!(out, br#""a\"\\\n\r\t\a\b\x00\xff z""#);
    }

    #[test]
    fn secrets() {
        let check = |words: &str, hidden: &[usize]| {
            let args: ArgsBuf = words.split(' ').map(str::as_bytes).collect();
            let command = words.split(' ').next().unwrap();
            let secret = (0..args.args().len()).filter(|at| is_secret(command, args.args(), *at));
            assert_eq!(secret.collect::<Vec<_>>(), hidden, "{words}");
        };
        check("auth secret", &[1]);
        check("auth user secret", &[1, 2]);
        check("hello 3 auth user secret setname me", &[3, 4]);
        check("hello 3 setname me", &[]);
        check("hello 3 auth user", &[]);
        check("set auth secret x", &[]);
    }
}
