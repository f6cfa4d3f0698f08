//! Commands that a selector permits: bits, and the rules that made them in the order in which they are shown.
//!
//! ```text
//! rules   -@all +@read -keys +select|0      what is shown, in the order given; naming a command again replaces its rule
//! bits    [get 1][set 0][keys 0] ... [future]     by number; the last one stands for commands that are not there yet
//! first   select: {"0"}                     first arguments that permit a command without its bit
//! ```
//! No list is gone through for one more rule.

use std::collections::{HashMap, HashSet};

use crate::command_table::CommandTable;
use crate::error::RuleError;
use crate::ordered::Ordered;
use crate::until_nul;

#[derive(Clone, Debug)]
pub struct CommandRules {
    bits: Box<[u64]>,
    /// Every command, without looking at bits.
    all: bool,
    /// Commands that are not there yet too: the rules begin with +@all.
    future: bool,
    first_arguments: HashMap<u16, FirstArguments>,
    /// "get", "config|get", "select|0", "@read", in lower case; and whether it permits.
    shown: Ordered<Box<[u8]>, bool>,
}

/// First arguments, in lower case.
#[derive(Clone, Default, Debug)]
struct FirstArguments {
    all: HashSet<Box<[u8]>>,
    bytes_max: usize,
}

impl FirstArguments {
    fn add(&mut self, argument: &[u8]) {
        self.bytes_max = self.bytes_max.max(argument.len());
        self.all.insert(argument.to_ascii_lowercase().into());
    }

    fn has(&self, argument: &[u8]) -> bool {
        argument.len() <= self.bytes_max && self.all.contains(&argument.to_ascii_lowercase()[..])
    }
}

impl CommandRules {
    pub fn none(table: &CommandTable) -> CommandRules {
        let bits = vec![0; table.len().div_ceil(64)].into_boxed_slice();
        CommandRules {
            bits,
            all: false,
            future: false,
            first_arguments: HashMap::new(),
            shown: Ordered::default(),
        }
    }

    /// +@all or -@all.
    pub fn set_all(&mut self, permits: bool) {
        self.bits.fill(if permits { u64::MAX } else { 0 });
        (self.all, self.future) = (permits, permits);
        self.first_arguments.clear();
        self.shown.clear();
    }

    #[inline]
    pub fn permit_all(&self) -> bool {
        self.all
    }

    #[inline]
    pub fn permit(&self, command: u16, first_argument: Option<&[u8]>) -> bool {
        self.all || self.bit(command) || self.permit_first(command, first_argument)
    }

    fn bit(&self, command: u16) -> bool {
        self.bits[usize::from(command / 64)] & 1 << (command % 64) != 0
    }

    fn permit_first(&self, command: u16, first_argument: Option<&[u8]>) -> bool {
        let Some(permitted) = self.first_arguments.get(&command) else { return false };
        first_argument.is_some_and(|asked| permitted.has(until_nul(asked)))
    }

    /// A rule with + or -.
    pub fn apply(&mut self, rule: &[u8], table: &CommandTable) -> Result<(), RuleError> {
        let (permits, name) = (rule[0] == b'+', until_nul(&rule[1..]));
        match name.strip_prefix(b"@") {
            Some(category) => {
                let category = table.category(category).ok_or(RuleError::UnknownCommand)?;
                self.note(name, permits);
                for command in table.of_category(category) {
                    self.set_family(command, permits, table);
                }
            }
            None if permits && name.contains(&b'|') => self.permit_part(name, table)?,
            None => {
                let command = table.find(name).ok_or(RuleError::UnknownCommand)?;
                self.set_family(command, permits, table);
                self.note(table.row(command).name.as_bytes(), permits);
            }
        }
        Ok(())
    }

    /// "config|get", or "select|0".
    fn permit_part(&mut self, name: &[u8], table: &CommandTable) -> Result<(), RuleError> {
        let bar = name.iter().rposition(|&byte| byte == b'|').ok_or(RuleError::Syntax)?;
        let (command, part) = (&name[..bar], &name[bar + 1..]);
        let command = table.find(command).ok_or(RuleError::UnknownCommand)?;
        if table.row(command).is_subcommand {
            return Err(RuleError::ArgumentOfSubcommand);
        }
        if part.is_empty() {
            return Err(RuleError::Syntax);
        }
        if table.row(command).subcommands > 0 {
            let subcommand = table.find(name).ok_or(RuleError::UnknownCommand)?;
            self.set_family(subcommand, true, table);
        } else {
            self.first_arguments.entry(command).or_default().add(part);
        }
        self.note(name, true);
        Ok(())
    }

    fn set_family(&mut self, command: u16, permits: bool, table: &CommandTable) {
        self.first_arguments.remove(&command);
        for command in table.family(command) {
            let (word, bit) = (usize::from(command / 64), 1 << (command % 64));
            match permits {
                true => self.bits[word] |= bit,
                false => {
                    self.bits[word] &= !bit;
                    self.all = false;
                }
            }
        }
    }

    /// Takes the place of what was said of the same before, and of its parts.
    fn note(&mut self, text: &[u8], permits: bool) {
        let text: Box<[u8]> = text.to_ascii_lowercase().into();
        let parts: Box<[u8]> = [&text[..], b"|"].concat().into();
        while let Some(part) = self.shown.next_from(&parts).filter(|next| next.starts_with(&parts)).cloned() {
            self.shown.remove(&part);
        }
        self.shown.put_last(text, permits);
    }

    /// "+@all -keys"
    pub fn show(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(if self.future { b"+@all" } else { b"-@all" });
        for (text, permits) in self.shown.iter() {
            out.extend_from_slice(if *permits { b" +" } else { b" -" });
            out.extend_from_slice(text);
        }
    }
}
