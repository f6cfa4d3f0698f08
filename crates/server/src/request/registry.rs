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

use isotherm_commands::spec::Command;
use std::collections::HashMap;

use crate::request::entry::{Entry, Handler};
use crate::request::name_word::Word;

#[derive(Clone)]
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

#[cfg(test)]
mod tests {
    use super::*;

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
