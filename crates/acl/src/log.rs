//! The security log: what was denied, newest first. Repeats within a minute share one entry.

use std::collections::VecDeque;

use crate::decision::Reason;

/// Entries that are further back are not looked at.
const LOOKS_MAX: usize = 10;
const GROUPING_MS: i64 = 60_000;
/// Bytes of a name that are kept,
const NAME_BYTES_MAX: usize = 256;
/// and of the line of a client, which has names of its own.
const CLIENT_BYTES_MAX: usize = 1024;

/// Origin of a command.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Context {
    TopLevel,
    Multi,
    Lua,
}

impl Context {
    pub const fn name(self) -> &'static str {
        match self {
            Context::TopLevel => "toplevel",
            Context::Multi => "multi",
            Context::Lua => "lua",
        }
    }
}

/// Why something was denied.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Noted {
    Denied(Reason),
    /// A wrong password.
    Auth,
    /// A certificate names a user who may not enter.
    TlsCertificate,
}

impl Noted {
    pub const fn name(self) -> &'static str {
        match self {
            Noted::Denied(Reason::Command) => "command",
            Noted::Denied(Reason::Key) => "key",
            Noted::Denied(Reason::Channel) => "channel",
            Noted::Denied(Reason::Database) => "database",
            Noted::Auth => "auth",
            Noted::TlsCertificate => "tls-cert",
        }
    }
}

#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Entry {
    pub noted: Noted,
    pub context: Context,
    /// The command, key, channel or database.
    pub object: Vec<u8>,
    pub user: Vec<u8>,
    /// The line of the client, of the last time.
    pub client: Vec<u8>,
    pub count: u64,
    pub id: u64,
    pub created_ms: i64,
    pub updated_ms: i64,
}

impl Entry {
    pub fn new(noted: Noted, context: Context, object: &[u8], user: &[u8], now_ms: i64) -> Entry {
        let (object, user) = (kept(object, NAME_BYTES_MAX), kept(user, NAME_BYTES_MAX));
        Entry {
            noted,
            context,
            object,
            user,
            client: Vec::new(),
            count: 1,
            id: 0,
            created_ms: now_ms,
            updated_ms: now_ms,
        }
    }

    fn is_same(&self, other: &Entry) -> bool {
        (self.noted, self.context) == (other.noted, other.context)
            && self.updated_ms.abs_diff(other.updated_ms) <= GROUPING_MS as u64
            && self.object == other.object
            && self.user == other.user
    }
}

// COMPAT(users): Names in ACL LOG are cut after 256 bytes. Valkey keeps them whole. Why: 128 entries with
// names of 512 MB would fit the protocol, and a client without rights chooses them.
/// Returns a name, or a line, as it is kept.
fn kept(name: &[u8], bytes_max: usize) -> Vec<u8> {
    match name.split_at_checked(bytes_max) {
        Some((kept, rest)) if !rest.is_empty() => {
            [kept, format!("... ({} more bytes)", rest.len()).as_bytes()].concat()
        }
        _ => name.to_vec(),
    }
}

#[derive(Default, Debug)]
pub struct Log {
    entries: VecDeque<Entry>,
    next_id: u64,
}

impl Log {
    /// At most `max` entries are kept.
    pub fn note(&mut self, mut entry: Entry, max: usize) {
        entry.client = kept(&entry.client, CLIENT_BYTES_MAX);
        if max > 0 {
            let same = self.entries.iter().take(LOOKS_MAX).position(|known| known.is_same(&entry));
            match same.and_then(|at| self.entries.remove(at)) {
                Some(known) => {
                    let (count, Entry { id, created_ms, .. }) = (known.count + 1, known);
                    entry = Entry { count, id, created_ms, ..entry };
                }
                None => {
                    entry.id = self.next_id;
                    self.next_id += 1;
                }
            }
            self.entries.push_front(entry);
        }
        self.entries.truncate(max);
    }

    pub fn clear(&mut self) {
        self.entries.clear();
    }

    /// Newest first.
    pub fn iter(&self) -> impl ExactSizeIterator<Item = &Entry> {
        self.entries.iter()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn entry(object: &str, now_ms: i64) -> Entry {
        Entry::new(Noted::Denied(Reason::Key), Context::TopLevel, object.as_bytes(), b"ann", now_ms)
    }

    #[test]
    fn the_same_within_a_minute_is_one_entry() {
        let mut log = Log::default();
        for (object, now_ms) in [("a", 0), ("b", 1), ("a", 60_000), ("a", 120_001)] {
            log.note(entry(object, now_ms), 128);
        }
        let shown: Vec<_> =
            log.iter().map(|one| (&one.object[..], one.count, one.id, one.created_ms)).collect();
        assert_eq!(shown, [(&b"a"[..], 1, 2, 120_001), (b"a", 2, 0, 0), (b"b", 1, 1, 1)]);
    }

    #[test]
    fn long_names_are_cut() {
        let mut log = Log::default();
        let short = "k".repeat(NAME_BYTES_MAX);
        log.note(entry(&short, 0), 3);
        let client = vec![b'c'; CLIENT_BYTES_MAX + 1];
        log.note(Entry { client, ..entry(&format!("{short}12"), 0) }, 3);
        let shown: Vec<_> = log.iter().map(|one| String::from_utf8_lossy(&one.object)).collect();
        assert_eq!(shown, [format!("{short}... (2 more bytes)"), short]);
        assert!(log.iter().all(|one| one.client.len() < CLIENT_BYTES_MAX + 30));
    }

    #[test]
    fn it_is_bounded() {
        let mut log = Log::default();
        for number in 0..100_000 {
            log.note(entry(&number.to_string(), 0), 3);
        }
        assert_eq!(log.iter().len(), 3);
        log.note(entry("x", 0), 0);
        assert_eq!(log.iter().len(), 0);
    }
}
