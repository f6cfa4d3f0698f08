//! The commands that rules can name: by number, with their categories.

use std::collections::HashMap;

/// A command or a subcommand. A container's subcommands follow it.
pub struct CommandRow {
    /// "get", "config|get".
    pub name: Box<str>,
    pub categories: u32,
    /// Number of rows after this one that are its subcommands.
    pub subcommands: u16,
    pub is_subcommand: bool,
}

pub struct CommandTable {
    rows: Vec<CommandRow>,
    by_name: HashMap<Box<str>, u16>,
    /// Each with its bit, in the order in which they are shown.
    categories: &'static [(u32, &'static str)],
}

impl CommandTable {
    pub fn new(rows: Vec<CommandRow>, categories: &'static [(u32, &'static str)]) -> CommandTable {
        let by_name = rows.iter().enumerate().map(|(at, row)| (row.name.clone(), at as u16)).collect();
        CommandTable { rows, by_name, categories }
    }

    pub fn len(&self) -> usize {
        self.rows.len()
    }

    pub fn is_empty(&self) -> bool {
        self.rows.is_empty()
    }

    pub fn row(&self, command: u16) -> &CommandRow {
        &self.rows[usize::from(command)]
    }

    /// Returns the number of the command with this name, in any case; "config|get" for a subcommand.
    pub fn find(&self, name: &[u8]) -> Option<u16> {
        /// No name is longer; what is longer need not be copied.
        const NAME_BYTES_MAX: usize = 64;
        let name = std::str::from_utf8(name.get(..name.len().min(NAME_BYTES_MAX + 1))?).ok()?;
        self.by_name.get(name.to_ascii_lowercase().as_str()).copied()
    }

    pub fn category(&self, name: &[u8]) -> Option<u32> {
        let named = |entry: &&(u32, &str)| entry.1.as_bytes().eq_ignore_ascii_case(name);
        self.categories.iter().find(named).map(|(category, _)| *category)
    }

    /// The command and its subcommands.
    pub fn family(&self, command: u16) -> std::ops::RangeInclusive<u16> {
        command..=command + self.row(command).subcommands
    }

    /// Returns the commands of a category, each with its subcommands.
    pub fn of_category(&self, category: u32) -> impl Iterator<Item = u16> + '_ {
        let has = move |command: &u16| self.row(*command).categories & category != 0;
        (0..self.rows.len() as u16).filter(has)
    }
}
