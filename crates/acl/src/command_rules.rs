//! Which commands a selector permits: bits, and the rules that made them in the order in which they are shown.
//!
//! ```text
//! rules   -@all +@read -keys +select|0      what is shown, in the order given; naming a command again replaces its rule
//! bits    [get 1][set 0][keys 0] ... [future]     by number; the last one stands for commands that are not there yet
//! first   select: ["0"]                     without its bit a command is permitted with one of these as its first argument
//! ```

use std::collections::HashMap;

use crate::command_table::CommandTable;
use crate::error::RuleError;
use crate::until_nul;

#[derive(Clone, Debug)]
pub struct CommandRules {
    bits: Box<[u64]>,
    /// Every command, without looking at bits.
    all: bool,
    /// Commands that are not there yet too: the rules begin with +@all.
    future: bool,
    first_arguments: HashMap<u16, Vec<Box<[u8]>>>,
    shown: Vec<Shown>,
}

#[derive(Clone, PartialEq, Eq, Debug)]
struct Shown {
    permits: bool,
    /// "get", "config|get", "select|0", "@read": in lower case.
    text: Box<[u8]>,
}

impl CommandRules {
    pub fn none(table: &CommandTable) -> CommandRules {
        let bits = vec![0; table.len().div_ceil(64)].into_boxed_slice();
        CommandRules { bits, all: false, future: false, first_arguments: HashMap::new(), shown: Vec::new() }
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
        let is_same = |asked: &[u8]| permitted.iter().any(|one| one.eq_ignore_ascii_case(until_nul(asked)));
        first_argument.is_some_and(is_same)
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
            let permitted = self.first_arguments.entry(command).or_default();
            if !permitted.iter().any(|one| one.eq_ignore_ascii_case(part)) {
                permitted.push(part.into());
            }
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
        let text = text.to_ascii_lowercase();
        self.shown.retain(|shown| !matches!(shown.text.strip_prefix(&text[..]), Some([]) | Some([b'|', ..])));
        self.shown.push(Shown { permits, text: text.into() });
    }

    /// "+@all -keys"
    pub fn show(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(if self.future { b"+@all" } else { b"-@all" });
        for Shown { permits, text } in &self.shown {
            out.extend_from_slice(if *permits { b" +" } else { b" -" });
            out.extend_from_slice(text);
        }
    }
}
