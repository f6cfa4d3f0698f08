//! The commands that this server knows, by name.
//!
//! Data commands come from `isotherm_commands::COMMANDS`, those of the session and the server from the
//! process that is started. Every command and subcommand gets an index, under which its statistics are kept.
//!
//! A name of up to 16 bytes, which is nearly all of them, is looked up as two overlapping words, in lower
//! case:
//!
//! ```text
//!   EXPIRE     (exp.. = "expi" | "pire" << 32, 0, length 6)      4..8 bytes: first and last four
//!   INCRBYFLOAT ("incrbyfl", "rbyfloat", length 11)              8..16: first and last eight
//! ```
//! Both words and the length say exactly which name it is, so no bytes are compared after them.
//!
//! `rename-command` moves a command to another name, or to none, before the first request. Only requests are
//! looked up by the names of today; rules, statistics and replies keep the declared one. A command from a log
//! or a primary may have been written under either (`find_logged`).

use isotherm_commands::spec::Command;
use std::collections::{HashMap, HashSet};

use crate::request::entry::{Entry, Handler};
use crate::request::name_word::Word;

#[derive(Clone)]
pub struct Commands {
    /// Commands by `Entry::index`; a container's subcommands follow it.
    all: Vec<&'static Entry>,
    /// Commands by name, in lower case.
    by_name: HashMap<Box<[u8]>, &'static Entry>,
    table: Box<[Option<(Word, &'static Entry)>; TABLE_LEN]>,
    /// The commands that have lost their declared names, by these. Usually none.
    originals: HashMap<&'static str, &'static Entry>,
    /// Commands that have no name any more, by `Entry::index`.
    removed: HashSet<u16>,
}

/// Why a command cannot be renamed.
pub const NO_SUCH_COMMAND: &str = "No such command in rename-command";
pub const NAME_IS_TAKEN: &str = "Target command name already exists";

/// A power of two, at least twice the number of commands, so that a search seldom takes a second step.
const TABLE_LEN: usize = 1024;

impl Commands {
    /// Builds the tables. They live as long as the process, so commands are handed around as `&'static
    /// Entry`. `admin` are those of the session and the server, by group.
    pub fn build<H: Copy>(admin: &[&'static [Command<H>]]) -> Commands {
        let mut commands = Commands {
            all: Vec::new(),
            by_name: HashMap::new(),
            table: Box::new([None; TABLE_LEN]),
            originals: HashMap::new(),
            removed: HashSet::new(),
        };
        for command in isotherm_commands::COMMANDS.iter().copied().flatten() {
            commands.add(command, Handler::Data);
        }
        for command in admin.iter().copied().flatten() {
            commands.add(command, |_| Handler::Admin);
        }
        assert!(commands.by_name.len() * 2 <= TABLE_LEN, "the table of names is too small");
        commands.fill_table();
        commands
    }

    fn fill_table(&mut self) {
        self.table.fill(None);
        for (name, entry) in &self.by_name {
            let Some(word) = Word::of(name) else { continue };
            let free = (word.hash()..).find(|at| self.table[at % TABLE_LEN].is_none());
            self.table[free.expect("the table is not full") % TABLE_LEN] = Some((word, *entry));
        }
    }

    // ---- other names ----

    /// Requests reach the command `from` by the name `to` only; by none if that is empty.
    // COMPAT(server): `rename-command` of a subcommand is an error of the configuration; Valkey ends by an
    // assertion. Why: subcommands have no names of their own.
    pub fn rename(&mut self, from: &[u8], to: &[u8]) -> Result<(), &'static str> {
        let entry = self.by_name.remove(from.to_ascii_lowercase().as_slice()).ok_or(NO_SUCH_COMMAND)?;
        self.originals.insert(entry.spec.name, entry);
        if to.is_empty() {
            self.removed.extend(entry.subcommands.iter().map(|subcommand| subcommand.index));
            self.removed.insert(entry.index);
        } else if self.by_name.insert(to.to_ascii_lowercase().into(), entry).is_some() {
            return Err(NAME_IS_TAKEN);
        }
        self.fill_table();
        Ok(())
    }

    /// A command of a log or of a primary: by its name of today, else by the one that it is declared with.
    // COMPAT(server): Commands that come from an append-only file or from a primary are known by their own
    // names too when `rename-command` has given them others, or none. Valkey does not start with such a file,
    // and a replica of it loses such a change. Why: the names are for clients; the data would be lost.
    #[inline]
    pub fn find_logged(&self, name: &[u8]) -> Option<&'static Entry> {
        self.find(name).or_else(|| self.find_original(name))
    }

    /// Finds a command by its declared name, even if requests have to use another name.
    #[inline]
    pub fn find_original(&self, name: &[u8]) -> Option<&'static Entry> {
        if self.originals.is_empty() { self.find(name) } else { self.find_renamed(name) }
    }

    #[cold]
    fn find_renamed(&self, name: &[u8]) -> Option<&'static Entry> {
        let name = String::from_utf8(name.to_ascii_lowercase()).ok()?;
        let has_its_own = |entry: &&Entry| !self.originals.contains_key(entry.spec.name);
        let renamed = self.originals.get(name.as_str()).copied();
        renamed.or_else(|| self.find(name.as_bytes()).filter(has_its_own))
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
        let before = self.by_name.insert(spec.name.as_bytes().into(), entry);
        assert!(before.is_none(), "{} is declared twice", spec.name);
    }

    /// The handlers of these commands, by `Entry::index`.
    pub fn table<H: Copy>(&self, commands: &[&'static [Command<H>]]) -> Box<[Option<H>]> {
        let mut table = vec![None; self.all.len()].into_boxed_slice();
        for command in commands.iter().copied().flatten() {
            let entry =
                self.find_original(command.spec.name.as_bytes()).expect("it was built from the same lists");
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

    /// All commands that requests can name, and their subcommands.
    pub fn listed(&self) -> impl Iterator<Item = &'static Entry> + '_ {
        self.all.iter().copied().filter(|entry| !self.removed.contains(&entry.index) && !entry.is_hidden())
    }

    /// The top-level commands that have a name.
    pub fn top(&self) -> impl Iterator<Item = &'static Entry> + '_ {
        self.listed().filter(|entry| entry.parent.is_none())
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
        /// Longer than any command's name, unless one was renamed; what is longer need not be copied.
        const NAME_BYTES_MAX: usize = 64;
        if name.len() > NAME_BYTES_MAX && self.originals.is_empty() {
            return None;
        }
        self.by_name.get(name.to_ascii_lowercase().as_slice()).copied()
    }
}
