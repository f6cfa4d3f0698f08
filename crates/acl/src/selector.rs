//! A selector: commands, keys, channels and databases that are permitted together.

use isotherm_stdx::args_split::{Dialect, args_split};
use std::collections::BTreeSet;

use crate::command_rules::CommandRules;
use crate::command_table::CommandTable;
use crate::decision::{Asked, AskedDatabases, Denial, Reason};
use crate::error::RuleError;
use crate::key_patterns::{Access, ChannelPatterns, KeyPatterns};
use crate::user::Defaults;
use crate::{has_spaces, until_nul};

#[derive(Clone, Debug)]
pub struct Selector {
    pub(crate) commands: CommandRules,
    pub(crate) keys: Scope<KeyPatterns>,
    pub(crate) channels: Scope<ChannelPatterns>,
    pub(crate) databases: Scope<BTreeSet<u32>>,
}

/// Everything, or what is listed.
#[derive(Clone, Debug)]
pub(crate) struct Scope<T> {
    pub all: bool,
    pub listed: T,
}

impl<T: Default> Scope<T> {
    fn new(all: bool) -> Scope<T> {
        Scope { all, listed: T::default() }
    }
}

impl Selector {
    /// No command, no key, every database, and channels as the configuration says.
    pub(crate) fn new(table: &CommandTable, defaults: Defaults) -> Selector {
        Selector {
            commands: CommandRules::none(table),
            keys: Scope::new(false),
            channels: Scope::new(defaults.all_channels),
            databases: Scope::new(true),
        }
    }

    /// "(+get ~a)"
    pub(crate) fn read(rule: &[u8], table: &CommandTable, defaults: Defaults) -> Result<Selector, RuleError> {
        let mut selector = Selector::new(table, defaults);
        let inside = rule.get(1..rule.len() - 1).unwrap_or_default();
        // With a quote that does not end there are no words at all, as Valkey has it.
        for word in args_split(inside, Dialect::File).unwrap_or_default() {
            selector.apply(&word, table)?;
        }
        selector.compile();
        Ok(selector)
    }

    pub(crate) fn compile(&mut self) {
        self.keys.listed.compile();
    }

    pub(crate) fn permits_everything(&self) -> bool {
        self.commands.permit_all() && self.keys.all && self.channels.all && self.databases.all
    }

    /// Applies a rule. After the last rule the selector is compiled.
    pub(crate) fn apply(&mut self, rule: &[u8], table: &CommandTable) -> Result<(), RuleError> {
        let word = until_nul(rule).to_ascii_lowercase();
        match &word[..] {
            b"allkeys" | b"~*" => self.keys = Scope::new(true),
            b"resetkeys" => self.keys = Scope::new(false),
            b"allchannels" | b"&*" => self.channels = Scope::new(true),
            b"resetchannels" => self.channels = Scope::new(false),
            b"alldbs" => self.databases = Scope::new(true),
            b"resetdbs" => self.databases = Scope::new(false),
            b"allcommands" | b"+@all" => self.commands.set_all(true),
            b"nocommands" | b"-@all" => self.commands.set_all(false),
            [b'd', b'b', b'=', ..] => self.set_databases(&word[3..])?,
            [b'~' | b'%', ..] => self.add_key_pattern(rule)?,
            [b'&', ..] => self.add_channel(&rule[1..])?,
            [b'+' | b'-', ..] => self.commands.apply(rule, table)?,
            _ => return Err(RuleError::Syntax),
        }
        Ok(())
    }

    fn add_key_pattern(&mut self, rule: &[u8]) -> Result<(), RuleError> {
        if self.keys.all {
            return Err(RuleError::PatternAfterAll);
        }
        let (access, pattern) = read_key_rule(rule).ok_or(RuleError::Syntax)?;
        if has_spaces(pattern) {
            return Err(RuleError::Syntax);
        }
        self.keys.listed.add(pattern, access);
        Ok(())
    }

    fn add_channel(&mut self, pattern: &[u8]) -> Result<(), RuleError> {
        if self.channels.all {
            return Err(RuleError::ChannelAfterAll);
        }
        if has_spaces(pattern) {
            return Err(RuleError::Syntax);
        }
        self.channels.listed.add(pattern);
        Ok(())
    }

    /// "0,2"
    fn set_databases(&mut self, list: &[u8]) -> Result<(), RuleError> {
        let mut databases = BTreeSet::new();
        for number in list.split(|&byte| byte == b',') {
            databases.insert(read_database(number)?);
        }
        self.databases = Scope { all: false, listed: databases };
        Ok(())
    }

    // ---- decisions ----

    /// Makes the checks of Valkey, in its order.
    pub(crate) fn check(&self, asked: &Asked<'_>) -> Result<(), Denial> {
        if !self.databases.all {
            self.check_databases(&asked.databases)?;
        }
        if !asked.is_free && !self.commands.permit(asked.command, asked.first_argument) {
            return Err(Denial { reason: Reason::Command, at: 0 });
        }
        if !self.keys.all {
            for key in asked.keys {
                if !self.keys.listed.permit(key.name, key.access) {
                    return Err(Denial { reason: Reason::Key, at: key.at });
                }
            }
        }
        if !self.channels.all {
            for &(at, channel) in asked.channels {
                if !self.channels.listed.permit(channel, asked.channels_are_patterns) {
                    return Err(Denial { reason: Reason::Channel, at });
                }
            }
        }
        Ok(())
    }

    fn check_databases(&self, asked: &AskedDatabases<'_>) -> Result<(), Denial> {
        let check = |at: usize, database: u32| match self.databases.listed.contains(&database) {
            true => Ok(()),
            false => Err(Denial { reason: Reason::Database, at }),
        };
        match asked {
            AskedDatabases::None => Ok(()),
            AskedDatabases::Current(database) => check(0, *database),
            AskedDatabases::All(count) => (0..*count).try_for_each(|database| check(0, database)),
            AskedDatabases::Named { named, current } => {
                named.iter().try_for_each(|(at, database)| check(*at, *database))?;
                current.map_or(Ok(()), |database| check(0, database))
            }
        }
    }

    /// Returns whether the selector permits this access to every key.
    pub(crate) fn permits_all_keys(&self, access: Access) -> bool {
        self.keys.all || self.keys.listed.permit_all(access)
    }

    /// Returns whether it can access in this way every key that begins so.
    pub(crate) fn permits_beginning(&self, beginning: &[u8], access: Access) -> bool {
        self.keys.all || self.keys.listed.permit_beginning(beginning, access)
    }

    // ---- as it is shown ----

    pub fn show_commands(&self) -> Vec<u8> {
        let mut out = Vec::new();
        self.commands.show(&mut out);
        out
    }

    pub fn show_keys(&self) -> Vec<u8> {
        let mut out = Vec::new();
        match self.keys.all {
            true => out.extend_from_slice(b"~*"),
            false => self.keys.listed.show(&mut out),
        }
        out
    }

    pub fn show_channels(&self) -> Vec<u8> {
        let mut out = Vec::new();
        match self.channels.all {
            true => out.extend_from_slice(b"&*"),
            false => self.channels.listed.show(&mut out),
        }
        out
    }

    /// Returns the databases as GETUSER shows them.
    pub fn show_databases(&self) -> Vec<u8> {
        match () {
            () if self.databases.all => b"alldbs".to_vec(),
            () if self.databases.listed.is_empty() => Vec::new(),
            () => {
                let numbers: Vec<String> = self.databases.listed.iter().map(u32::to_string).collect();
                format!("db={}", numbers.join(",")).into_bytes()
            }
        }
    }

    /// Writes the rules that make this selector.
    pub(crate) fn show(&self, out: &mut Vec<u8>) {
        let mut part = |part: &[u8]| {
            out.extend_from_slice(part);
            out.push(b' ');
        };
        if self.keys.all || !self.keys.listed.is_empty() {
            part(&self.show_keys());
        }
        if !self.channels.all {
            part(b"resetchannels");
        }
        if self.channels.all || !self.channels.listed.is_empty() {
            part(&self.show_channels());
        }
        match (self.databases.all, self.databases.listed.is_empty()) {
            (true, _) => {}
            (false, true) => part(b"resetdbs"),
            (false, false) => part(&self.show_databases()),
        }
        self.commands.show(out);
    }
}

/// "~pattern", "%R~pattern", "%RW~pattern". Without a `~` the rest is no pattern, and there is none.
fn read_key_rule(rule: &[u8]) -> Option<(Access, &[u8])> {
    if let Some(pattern) = rule.strip_prefix(b"~") {
        return Some((Access::ALL, pattern));
    }
    let (mut access, mut at) = (Access::NONE, 1);
    loop {
        let sign = match rule.get(at) {
            Some(b'r' | b'R') => Access::READ,
            Some(b'w' | b'W') => Access::WRITE,
            Some(b'~') => break,
            Some(_) => return None,
            None => return (access != Access::NONE).then_some((access, &[])),
        };
        if access.covers(sign) {
            return None;
        }
        access = access.or(sign);
        at += 1;
    }
    (access != Access::NONE).then_some((access, &rule[at + 1..]))
}

/// Parses a number as `strtoll` does: blanks and a sign may stand in front.
fn read_database(text: &[u8]) -> Result<u32, RuleError> {
    if text.is_empty() {
        return Err(RuleError::Syntax);
    }
    let digits = text.trim_ascii_start();
    let (negative, digits) = match digits {
        [b'-', rest @ ..] => (true, rest),
        [b'+', rest @ ..] => (false, rest),
        _ => (false, digits),
    };
    if digits.is_empty() || !digits.iter().all(u8::is_ascii_digit) {
        return Err(RuleError::Syntax);
    }
    let add = |number: u64, digit: &u8| number.saturating_mul(10).saturating_add(u64::from(digit - b'0'));
    let number = digits.iter().fold(0, add);
    match number <= i32::MAX as u64 && !(negative && number > 0) {
        true => Ok(number as u32),
        false => Err(RuleError::DatabaseRange),
    }
}
