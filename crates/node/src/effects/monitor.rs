//! MONITOR: a line for every command that ran.
//!
//! ```text
//! +1700000000.123456 [0 127.0.0.1:4711] "set" "k" "v\x00"
//! ```
//! The workers that have sessions which monitor get the line by mailbox, under one lock, so that all see one
//! and the same order. Without one nothing is ever formatted: sessions leave the usual way of a command only
//! while `Tasks::MONITORED` is set.

use isotherm_commands::Flags;
use isotherm_commands::spec::Spec;
use isotherm_resp::Args;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{SystemTime, UNIX_EPOCH};

use crate::effects::pubsub::WorkerCounts;
use crate::mail::Mail;
use crate::mail::message::WorkerMessage;
use crate::mail::tasks::Tasks;
use crate::session::client::ClientShared;
use isotherm_config::Config;
use isotherm_keyspace::Db;

/// Origin of a command: its client, and the worker that ran it. A replica runs the commands of its primary on
/// no worker.
pub struct From<'f> {
    pub client: &'f ClientShared,
    pub worker: Option<u16>,
    /// A script of the client's has called it.
    pub is_script: bool,
}

/// Returns whether a command is shown at all: those of administrators are not.
pub fn shows(spec: &Spec) -> bool {
    const HIDDEN: Flags = Flags::ADMIN.or(Flags::SKIP_MONITOR);
    !spec.flags.has(HIDDEN)
}

/// Numbers of sessions of each worker that monitor.
#[derive(Default)]
pub struct Monitors {
    workers: Mutex<WorkerCounts>,
}

impl Monitors {
    fn lock(&self) -> MutexGuard<'_, WorkerCounts> {
        self.workers.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub fn add(&self, mail: &Mail, worker: u16) {
        let mut workers = self.lock();
        workers.add(worker);
        mail.set_tasks(Tasks::MONITORED, Tasks::MONITORED);
    }

    pub fn remove(&self, mail: &Mail, worker: u16) {
        let mut workers = self.lock();
        workers.remove(worker);
        mail.set_tasks(Tasks::MONITORED, if workers.total() > 0 { Tasks::MONITORED } else { Tasks(0) });
    }

    /// A command of this client has run in `db`: every session that monitors gets a line.
    #[cold]
    pub fn feed(&self, mail: &Mail, config: &Config, from: From<'_>, db: Db, spec: &Spec, args: Args<'_>) {
        let From { client: shared, worker: own_worker, is_script } = from;
        let from = match shared.is_unix() {
            _ if is_script => "lua".to_string(),
            true => format!("unix:{}", config.unix_socket().unwrap_or_default().display()),
            false => shared.addr.to_string(),
        };
        let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        let mut line =
            format!("+{}.{:06} [{} {from}]", since.as_secs(), since.subsec_micros(), db.0).into_bytes();
        for (at, argument) in args.iter().enumerate() {
            line.push(b' ');
            push_quoted(&mut line, if spec.is_secret(args, at) { b"(redacted)" } else { argument });
        }
        line.extend_from_slice(b"\r\n");
        let line: Arc<[u8]> = line.into();
        let workers = self.lock();
        for (worker, count) in workers.by_worker() {
            let weight_bytes = line.len() * count as usize;
            mail.add_queued(weight_bytes);
            mail.post_from(own_worker, worker, WorkerMessage::Line { line: Arc::clone(&line), weight_bytes });
        }
    }
}

/// Appends `text` in quotes, with every byte escaped that is not visible ASCII.
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

    #[test]
    fn quotes() {
        let mut out = Vec::new();
        push_quoted(&mut out, b"a\"\\\n\r\t\x07\x08\x00\xff z");
        assert_eq!(out, br#""a\"\\\n\r\t\a\b\x00\xff z""#);
    }
}
