//! The commands that this server knows, by name.
//!
//! Data commands come from `isotherm_commands::COMMANDS`, those of the session and the server from the process that is
//! started. Every command and subcommand gets an index, under which its
//! statistics are kept.
//!
//! A name of up to 16 bytes, which is nearly all of them, is looked up as two overlapping words, in lower case:
//!
//! ```text
//!   EXPIRE     (exp.. = "expi" | "pire" << 32, 0, length 6)      4..8 bytes: first and last four
//!   INCRBYFLOAT ("incrbyfl", "rbyfloat", length 11)              8..16: first and last eight
//! ```
//! Both words and the length say exactly which name it is, so no bytes are compared behind them.

use isotherm_commands::spec::{Begin, Command, Find, Flags, Group, KeyFlags, KeySpec, Reach, Spec};
use isotherm_keyspace::Intent;
use std::collections::HashMap;

use crate::request::gate_bits::{Gates, gates_of};

#[derive(Clone, Copy)]
pub enum Handler {
    Data(isotherm_commands::Handler),
    /// One of the session or the server, which its table has under this command's index (`Commands::table`).
    Admin,
}

/// Which partitions a command locks, as its declaration says, in the form that dispatch wants.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Locks {
    None,
    /// That of the key at `first_key`.
    One,
    /// Those of its keys, which are several or not easily found.
    Keys,
    All,
    /// None, and the handler locks one after the other.
    Each,
    /// What the commands of the session's queue need, and what it watches.
    Queue,
}

/// A command or a subcommand.
pub struct Entry {
    /// Its place in the statistics.
    pub index: u16,
    /// "get", "config|get".
    pub name: Box<str>,
    pub spec: &'static Spec,
    /// `None` only for a container that cannot be called by itself.
    pub handler: Option<Handler>,
    /// In the order of their declaration; empty for what is no container.
    pub subcommands: Vec<&'static Entry>,
    pub parent: Option<&'static str>,
    pub locks: Locks,
    /// The argument that is its first key, if that is known without looking; else 0.
    pub first_key: u16,
    /// All arguments from `first_key` on, every so many, are its keys (DEL, MGET: 1; MSET: 2); else 0.
    pub key_step: u16,
    /// What it may do to its keys.
    pub intent: Intent,
    /// Each of its holds is measured: it is not among those that are over in a moment.
    pub is_measured: bool,
    /// The argument that is the first field or member which it names of its one key's collection; else 0.
    pub element: u16,
    /// The gates that can matter for it.
    pub gates: Gates,
    /// CLIENT CACHING holds beyond it.
    pub keeps_caching: bool,
}

pub struct Commands {
    /// By `Entry::index`; a container's subcommands follow it.
    all: Vec<&'static Entry>,
    by_name: HashMap<&'static str, &'static Entry>,
    table: Box<[Option<(Word, &'static Entry)>; TABLE_LEN]>,
}

/// A power of two, at least twice the number of commands, so that a search seldom takes a second step.
const TABLE_LEN: usize = 1024;

impl Commands {
    /// Builds the tables. They live as long as the process, so commands are handed around as `&'static Entry`.
    /// `admin` are those of the session and the server, by group.
    pub fn build<H: Copy>(admin: &[&'static [Command<H>]]) -> Commands {
        let mut commands =
            Commands { all: Vec::new(), by_name: HashMap::new(), table: Box::new([None; TABLE_LEN]) };
        for command in isotherm_commands::COMMANDS.iter().copied().flatten() {
            commands.add(command, Handler::Data);
        }
        for command in admin.iter().copied().flatten() {
            commands.add(command, |_| Handler::Admin);
        }
        assert!(commands.by_name.len() * 2 <= TABLE_LEN, "the table of names is too small");
        commands
    }

    fn add<H: Copy>(&mut self, command: &'static Command<H>, wrap: impl Fn(H) -> Handler + Copy) {
        let spec = &command.spec;
        let first = self.all.len();
        let subcommands: Vec<&'static Entry> = command
            .subcommands
            .iter()
            .enumerate()
            .map(|(at, sub)| {
                let name = format!("{}|{}", spec.name, sub.spec.name);
                Entry::leak(first + 1 + at, name, &sub.spec, sub.handler.map(wrap), Vec::new(), Some(spec))
            })
            .collect();
        let handler = command.handler.map(wrap);
        let entry = Entry::leak(first, spec.name.to_string(), spec, handler, subcommands.clone(), None);
        self.all.push(entry);
        self.all.extend(subcommands);
        let before = self.by_name.insert(spec.name, entry);
        assert!(before.is_none(), "{} is declared twice", spec.name);
        if let Some(word) = Word::of(spec.name.as_bytes()) {
            let free = (word.hash()..).find(|at| self.table[at % TABLE_LEN].is_none());
            self.table[free.expect("the table is not full") % TABLE_LEN] = Some((word, entry));
        }
    }

    /// The handlers of these commands, by `Entry::index`.
    pub fn table<H: Copy>(&self, commands: &[&'static [Command<H>]]) -> Box<[Option<H>]> {
        let mut table = vec![None; self.all.len()].into_boxed_slice();
        for command in commands.iter().copied().flatten() {
            let entry = self.find(command.spec.name.as_bytes()).expect("it was built from the same lists");
            table[usize::from(entry.index)] = command.handler;
            for (entry, subcommand) in entry.subcommands.iter().zip(command.subcommands) {
                table[usize::from(entry.index)] = subcommand.handler;
            }
        }
        table
    }

    /// All commands and subcommands, by index.
    pub fn all(&self) -> &[&'static Entry] {
        &self.all
    }

    /// The top-level commands.
    pub fn top(&self) -> impl Iterator<Item = &'static Entry> + '_ {
        self.all.iter().copied().filter(|entry| entry.parent.is_none())
    }

    /// A top-level command, in any case.
    #[inline]
    pub fn find(&self, name: &[u8]) -> Option<&'static Entry> {
        let Some(word) = Word::of(name) else {
            return self.find_long(name);
        };
        let mut at = word.hash();
        while let Some((found, entry)) = self.table[at % TABLE_LEN] {
            if found == word {
                return Some(entry);
            }
            at += 1;
        }
        None
    }

    /// A command or a subcommand ("config|get") by its full name, in any case.
    pub fn find_full(&self, name: &[u8]) -> Option<&'static Entry> {
        match name.iter().position(|&byte| byte == b'|') {
            Some(bar) => self.find(&name[..bar])?.subcommand(&name[bar + 1..]),
            None => self.find(name),
        }
    }

    #[cold]
    fn find_long(&self, name: &[u8]) -> Option<&'static Entry> {
        /// Longer than any command's name; what is longer need not be copied.
        const NAME_BYTES_MAX: usize = 64;
        let name =
            String::from_utf8(name.get(..name.len().min(NAME_BYTES_MAX))?.to_ascii_lowercase()).ok()?;
        self.by_name.get(name.as_str()).copied()
    }
}

impl Entry {
    fn leak(
        index: usize,
        name: String,
        spec: &'static Spec,
        handler: Option<Handler>,
        subcommands: Vec<&'static Entry>,
        parent: Option<&'static Spec>,
    ) -> &'static Entry {
        let (locks, first_key) = locks_of(spec);
        let key_step = step_of(spec);
        let element = if locks == Locks::One { element_of(spec) } else { 0 };
        let index = u16::try_from(index).expect("some hundreds of commands");
        let name = name.into();
        Box::leak(Box::new(Entry {
            index,
            name,
            spec,
            handler,
            subcommands,
            parent: parent.map(|parent| parent.name),
            locks,
            first_key,
            key_step,
            intent: intent_of(spec),
            is_measured: is_measured(spec, locks),
            element,
            gates: gates_of(spec),
            keeps_caching: parent.is_some_and(|parent| parent.flags.has(Flags::KEEPS_CACHING)),
        }))
    }

    pub fn subcommand(&self, name: &[u8]) -> Option<&'static Entry> {
        self.subcommands.iter().copied().find(|entry| entry.spec.name.as_bytes().eq_ignore_ascii_case(name))
    }

    pub fn is_container(&self) -> bool {
        !self.subcommands.is_empty()
    }

    /// Whether a call with so many arguments has one key, that at `first_key`.
    #[inline]
    pub fn has_one_key(&self, arguments: usize) -> bool {
        self.locks == Locks::One || arguments <= usize::from(self.first_key + self.key_step)
    }

    /// Whether so many arguments, the name(s) among them, are right.
    #[inline]
    pub fn takes(&self, arguments: usize) -> bool {
        let arity = self.spec.arity;
        if arity >= 0 { arguments == arity as usize } else { arguments >= arity.unsigned_abs() as usize }
    }
}

/// What may take memory may add a key. What writes and takes none removes or shortens, or is about expiry; of what takes
/// some, the declared flags distinguish what makes a value longer (APPEND) from what writes over it (SET). A small collection changes
/// its length with nearly every change.
fn intent_of(spec: &Spec) -> Intent {
    let (writes, adds) = (spec.flags.has(Flags::WRITE), spec.flags.has(Flags::DENYOOM));
    let declared = |flag| spec.key_specs.iter().any(|key_spec| key_spec.flags.has(flag));
    let collection = matches!(spec.group, Group::List | Group::Hash | Group::Set | Group::SortedSet);
    let longer = collection || declared(KeyFlags::INSERT) || declared(KeyFlags::DELETE);
    Intent { adds, moves: writes && (!adds || longer) }
}

fn is_measured(spec: &Spec, locks: Locks) -> bool {
    match locks {
        // What a handler locks by itself is reported by the keyspace.
        Locks::None | Locks::Each => false,
        Locks::All | Locks::Queue => true,
        Locks::One | Locks::Keys => !spec.flags.has(Flags::FAST) && !spec.is_constant_time(),
    }
}

/// Its keys; the channels of SPUBLISH are none.
fn keys_of(spec: &Spec) -> &[KeySpec] {
    let are_keys = spec.key_specs.iter().all(|keys| !keys.flags.has(KeyFlags::NOT_KEY));
    if are_keys { spec.key_specs } else { &[] }
}

fn step_of(spec: &Spec) -> u16 {
    let [KeySpec { begin: Begin::Index(_), find: Find::Range { last: -1, step, limit: 0 }, .. }] =
        keys_of(spec)
    else {
        return 0;
    };
    assert!(matches!(step, 1 | 2), "HashedKeys takes half the distance");
    *step as u16
}

/// Options come in front of it too, seldom: who uses this only guesses what will be asked for.
fn element_of(spec: &Spec) -> u16 {
    if !matches!(spec.group, Group::Hash | Group::Set | Group::SortedSet) {
        return 0;
    }
    let needed = spec.arguments.iter().filter(|argument| !argument.optional);
    let words = needed.flat_map(|argument| match argument.arguments {
        [] => std::slice::from_ref(argument),
        parts => parts,
    });
    let at = words.map(|word| word.name).position(|name| matches!(name, "field" | "member"));
    at.map_or(0, |at| at as u16 + 1)
}

fn locks_of(spec: &Spec) -> (Locks, u16) {
    let first_key = match keys_of(spec).first().map(|keys| (keys.begin, keys.find)) {
        Some((Begin::Index(at), Find::Range { .. })) => {
            u16::try_from(at).expect("few arguments precede a key")
        }
        _ => 0,
    };
    let single = |spec: &Spec| {
        matches!(keys_of(spec), [only] if matches!(only.find, Find::Range { last: 0, .. })) && first_key > 0
    };
    let locks = match spec.reach {
        Reach::All => Locks::All,
        Reach::Each => Locks::Each,
        Reach::Queue => Locks::Queue,
        Reach::Parts => return (Locks::None, 0),
        Reach::Keys if keys_of(spec).is_empty() => Locks::None,
        Reach::Keys if single(spec) => Locks::One,
        Reach::Keys => Locks::Keys,
    };
    (locks, first_key)
}

/// A name of 1 to 16 bytes in lower case; equal exactly if the names are.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Word {
    first: u64,
    last: u64,
    len: u8,
}

impl Word {
    #[inline]
    fn of(name: &[u8]) -> Option<Word> {
        let len = name.len();
        let eight = |at: usize| u64::from_le_bytes(name[at..at + 8].try_into().expect("eight bytes"));
        let four =
            |at: usize| u64::from(u32::from_le_bytes(name[at..at + 4].try_into().expect("four bytes")));
        let (first, last) = match len {
            8..=16 => (eight(0), eight(len - 8)),
            4..=7 => (four(0) | four(len - 4) << 32, 0),
            1..=3 => (u64::from(name[0]) | u64::from(name[len / 2]) << 8 | u64::from(name[len - 1]) << 16, 0),
            _ => return None,
        };
        Some(Word { first: lower(first), last: lower(last), len: len as u8 })
    }

    #[inline]
    fn hash(self) -> usize {
        let mixed = (self.first ^ self.last.rotate_left(29)).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        (mixed >> 48) as usize ^ usize::from(self.len)
    }
}

/// Eight ASCII characters at once in lower case. A byte is a capital if adding 0x3f reaches 0x80 (from 'A' on) and adding
/// 0x25 does not (to 'Z'), looking at seven bits; bytes above 0x7f stay as they are.
#[inline]
fn lower(word: u64) -> u64 {
    const EACH: u64 = 0x0101_0101_0101_0101;
    let seven = word & (EACH * 0x7f);
    let from_a = seven + EACH * 0x3f;
    let past_z = seven + EACH * 0x25;
    let capital = (from_a & !past_z) & !word & (EACH * 0x80);
    word | capital >> 2
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lower_case_is_that_of_ascii() {
        for byte in 0..=255u8 {
            let expected = u64::from_le_bytes([byte.to_ascii_lowercase(); 8]);
            assert_eq!(lower(u64::from_le_bytes([byte; 8])), expected, "{byte}");
        }
    }

    /// Whose time is bounded by its documentation: how long these hold a lock is what INFO locks shows as `longest_cpu_us`.
    #[test]
    fn bounded_commands() {
        let commands = Commands::build(crate::admin::COMMANDS);
        let mut names: Vec<&str> =
            commands.all().iter().filter(|e| e.spec.is_constant_time()).map(|e| &*e.name).collect();
        names.sort_unstable();
        for (name, bounded) in
            [("get", true), ("zadd", true), ("lpush", true), ("scan", true), ("info", true)]
        {
            assert_eq!(names.contains(&name), bounded, "{name}");
        }
        for name in ["del", "lrange", "exec", "flushall", "keys", "client|kill", "debug", "zrange", "dump"] {
            assert!(!names.contains(&name), "{name}");
        }
        crate::config::check_fresh(
            "crates/server/src/request/bounded_commands.txt",
            &(names.join("\n") + "\n"),
        );
    }

    /// The clock is read for a hold only where it is not over in a moment.
    #[test]
    fn holds_are_measured_where_they_may_be_long() {
        let commands = Commands::build(crate::admin::COMMANDS);
        let check = |name: &str, expected: bool| {
            let entry = commands.find_full(name.as_bytes()).expect(name);
            assert_eq!(entry.is_measured, expected, "{name}");
        };
        for name in ["get", "set", "mget", "lpush", "hset", "zadd", "setex", "ping", "info", "watch"] {
            check(name, false);
        }
        for name in ["lrange", "mset", "del", "sort", "exec", "dbsize", "flushall", "debug", "client|pause"] {
            check(name, true);
        }
    }

    #[test]
    fn words_distinguish_names() {
        let names =
            ["a", "aa", "aba", "aaa", "abca", "abcda", "get", "getset", "incrbyfloat", "incrbyfloats"];
        for a in names {
            for b in names {
                assert_eq!(
                    Word::of(a.as_bytes()) == Word::of(b.to_uppercase().as_bytes()),
                    a == b,
                    "{a} {b}"
                );
            }
        }
        assert_eq!(Word::of(b""), None);
        assert_eq!(Word::of(&[b'a'; 17]), None);
    }

    #[test]
    fn every_command_is_found_by_its_name_only() {
        let commands = Commands::build(crate::admin::COMMANDS);
        for entry in commands.top() {
            assert!(std::ptr::eq(commands.find(entry.name.as_bytes()).unwrap(), entry));
            assert!(std::ptr::eq(commands.find(entry.name.to_uppercase().as_bytes()).unwrap(), entry));
            let longer = format!("{}x", entry.name);
            assert!(commands.find(longer.as_bytes()).is_none_or(|other| *other.name == longer));
        }
        for (at, entry) in commands.all().iter().enumerate() {
            assert_eq!(usize::from(entry.index), at);
        }
        for unknown in [&b""[..], b"nonsense", b"get\0", b"config|get", &[0xff; 12], &[b'x'; 1000]] {
            assert!(commands.find(unknown).is_none());
        }
    }
}
