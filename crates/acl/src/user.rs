//! A user: whether it may enter, and what it may do.

use std::sync::Arc;

use crate::command_table::CommandTable;
use crate::decision::{Asked, Denial, Reason};
use crate::error::{RuleError, SetUserError};
use crate::key_patterns::{Access, KeyPatterns};
use crate::merging::{Unmatched, merge_selectors};
use crate::ordered::Ordered;
use crate::password::PasswordHash;
use crate::selector::Selector;
use crate::until_nul;

/// Initial rights of a new user, of a new selector and after `reset`.
#[derive(Clone, Copy, Debug)]
pub struct Defaults {
    /// `acl-pubsub-default`.
    pub all_channels: bool,
}

#[derive(Clone, Debug)]
pub struct User {
    pub name: Arc<[u8]>,
    pub is_on: bool,
    /// Any password will do.
    pub needs_no_password: bool,
    passwords: Ordered<PasswordHash>,
    /// The root selector, and those in brackets.
    selectors: Vec<Selector>,
    permits_everything: bool,
    /// Bits by command: those of the first eight selectors that permit it whatever its arguments, in every
    /// database.
    permitting: Box<[u8]>,
}

impl User {
    /// Creates a user that may do nothing.
    pub fn new(name: &[u8], table: &CommandTable, defaults: Defaults) -> User {
        User {
            name: name.into(),
            is_on: false,
            needs_no_password: false,
            passwords: Ordered::default(),
            selectors: vec![Selector::new(table, defaults)],
            permits_everything: false,
            permitting: vec![0; table.len()].into_boxed_slice(),
        }
    }

    /// Creates a user that may do everything, without a password.
    pub fn all_powerful(name: &[u8], table: &CommandTable) -> User {
        let mut user = User::new(name, table, Defaults { all_channels: true });
        for rule in [&b"+@all"[..], b"~*", b"&*", b"on", b"nopass"] {
            user.apply(rule, table, Defaults { all_channels: true }).expect("they are right");
        }
        user.compile();
        user
    }

    /// Returns the user with these rules applied. Selectors that are spread over several words are joined
    /// first.
    pub fn changed<'a>(
        &self,
        words: impl IntoIterator<Item = &'a [u8]> + Clone,
        table: &CommandTable,
        defaults: Defaults,
    ) -> Result<User, SetUserError> {
        let merged = merge_selectors(words.clone()).map_err(|Unmatched(at)| {
            let word = words.into_iter().nth(at).expect("it is one of them");
            SetUserError::Unmatched(until_nul(word).to_vec())
        })?;
        let mut user = self.clone();
        for rule in merged {
            let wrong = |error| SetUserError::Rule(until_nul(&rule).to_vec(), error);
            user.apply(&rule, table, defaults).map_err(wrong)?;
        }
        user.compile();
        Ok(user)
    }

    /// Applies a rule. After the last rule the user is compiled.
    pub(crate) fn apply(
        &mut self,
        rule: &[u8],
        table: &CommandTable,
        defaults: Defaults,
    ) -> Result<(), RuleError> {
        let word = until_nul(rule).to_ascii_lowercase();
        match (&word[..], rule) {
            (_, []) => {}
            (b"on", _) => self.is_on = true,
            (b"off", _) => self.is_on = false,
            // Without an effect for years.
            (b"skip-sanitize-payload" | b"sanitize-payload", _) => {}
            (b"nopass", _) => self.set_password_need(true),
            (b"resetpass", _) => self.set_password_need(false),
            (_, [b'>', password @ ..]) => self.add_password(PasswordHash::of(password)),
            (_, [b'#', digits @ ..]) => {
                self.add_password(PasswordHash::from_hex(digits).ok_or(RuleError::BadHash)?);
            }
            (_, [b'<', password @ ..]) => self.remove_password(&PasswordHash::of(password))?,
            (_, [b'!', digits @ ..]) => {
                self.remove_password(&PasswordHash::from_hex(digits).ok_or(RuleError::BadHash)?)?;
            }
            (_, [b'(', .., b')']) => self.selectors.push(Selector::read(rule, table, defaults)?),
            (b"clearselectors", _) => self.selectors.truncate(1),
            (b"reset", _) => {
                *self = User { name: Arc::clone(&self.name), ..User::new(b"", table, defaults) };
            }
            _ => self.selectors[0].apply(rule, table)?,
        }
        Ok(())
    }

    pub(crate) fn compile(&mut self) {
        self.selectors[0].compile();
        self.permits_everything = self.selectors.iter().any(Selector::permits_everything);
        self.permitting.fill(0);
        for (at, selector) in self.selectors.iter().enumerate().take(8).filter(|(_, one)| one.databases.all) {
            for (command, permitting) in self.permitting.iter_mut().enumerate() {
                *permitting |= u8::from(selector.commands.permit(command as u16, None)) << at;
            }
        }
    }

    fn set_password_need(&mut self, needs_no_password: bool) {
        self.needs_no_password = needs_no_password;
        self.passwords.clear();
    }

    fn add_password(&mut self, hash: PasswordHash) {
        if !self.passwords.contains(&hash) {
            self.passwords.put_last(hash, ());
        }
        self.needs_no_password = false;
    }

    fn remove_password(&mut self, hash: &PasswordHash) -> Result<(), RuleError> {
        if self.passwords.remove(hash) { Ok(()) } else { Err(RuleError::NoSuchPassword) }
    }

    /// Returns the user with this password and no other. With an empty one, any password will do.
    pub fn with_password(&self, password: &[u8]) -> User {
        let mut user = self.clone();
        user.set_password_need(password.is_empty());
        if !password.is_empty() {
            user.add_password(PasswordHash::of(password));
        }
        user
    }

    // ---- decisions ----

    /// Returns whether the user may do everything, so that no check is needed.
    #[inline]
    pub fn permits_everything(&self) -> bool {
        self.permits_everything
    }

    /// Returns whether the user is on and this password is right for it.
    pub fn admits(&self, password: &[u8]) -> bool {
        if !self.is_on || self.needs_no_password {
            return self.is_on;
        }
        let hash = PasswordHash::of(password);
        self.passwords().any(|known| known.is_same(&hash))
    }

    /// Returns whether a lone prefix permits the user to run this command, which has one key and no channels.
    /// False does not mean that it is denied: `check` decides.
    #[inline]
    pub fn permits_by_prefix(&self, command: u16, key: &[u8], access: Access) -> bool {
        self.permits_where(command, |keys| keys.permit_by_prefix(key, access))
    }

    /// Returns whether any pattern permits the user to run this command, which has one key and no channels.
    /// False does not mean that it is denied, since rules of first arguments and of databases are not looked
    /// at.
    #[inline]
    pub fn permits_by_pattern(&self, command: u16, key: &[u8], access: Access) -> bool {
        self.permits_where(command, |keys| keys.permit(key, access))
    }

    #[inline(always)]
    fn permits_where(&self, command: u16, permits: impl Fn(&KeyPatterns) -> bool) -> bool {
        let mut left = self.permitting.get(usize::from(command)).copied().unwrap_or_default();
        while left != 0 {
            let keys = &self.selectors[left.trailing_zeros() as usize].keys;
            if keys.all || permits(&keys.listed) {
                return true;
            }
            left &= left - 1;
        }
        false
    }

    #[inline]
    pub fn check(&self, asked: &Asked<'_>) -> Result<(), Denial> {
        let mut worst = Denial { reason: Reason::Database, at: 0 };
        for selector in &self.selectors {
            match selector.check(asked) {
                Ok(()) => return Ok(()),
                Err(denial) => worst = worst.max(denial),
            }
        }
        Err(worst)
    }

    /// Returns whether a single selector permits both the command and this access to every key.
    pub fn check_with_all_keys(&self, asked: &Asked<'_>, access: Access) -> bool {
        let permits =
            |selector: &Selector| selector.permits_all_keys(access) && selector.check(asked).is_ok();
        self.selectors.iter().any(permits)
    }

    /// Returns whether one of its selectors permits the command, and access to every key that begins so
    /// besides.
    pub fn check_with_beginning(&self, asked: &Asked<'_>, beginning: &[u8], access: Access) -> bool {
        let permits = |selector: &Selector| {
            selector.permits_beginning(beginning, access) && selector.check(asked).is_ok()
        };
        self.selectors.iter().any(permits)
    }

    /// Returns whether every selector permits all keys, so that the keys of a command do not matter.
    pub fn permits_all_keys(&self) -> bool {
        self.selectors.iter().all(|selector| selector.keys.all)
    }

    // ---- channels ----

    /// Returns whether the user may listen to every channel that `before` might listen to, as far as their
    /// rules say.
    pub fn keeps_channels_of(&self, before: &User) -> bool {
        if self.selectors.iter().any(|selector| selector.channels.all) {
            return true;
        }
        let is_kept = |pattern: &[u8]| self.selectors.iter().any(|one| one.channels.listed.has(pattern));
        before
            .selectors
            .iter()
            .all(|selector| !selector.channels.all && selector.channels.listed.iter().all(is_kept))
    }

    /// Returns whether the user may listen to this channel, or to all that match this pattern.
    pub fn may_listen(&self, channel: &[u8], is_pattern: bool) -> bool {
        let permits = |one: &Selector| one.channels.all || one.channels.listed.permit(channel, is_pattern);
        self.selectors.iter().any(permits)
    }

    // ---- as it is shown ----

    /// Passwords, in the order in which they were given.
    pub fn passwords(&self) -> impl Iterator<Item = &PasswordHash> {
        self.passwords.iter().map(|(password, ())| password)
    }

    pub fn password_count(&self) -> usize {
        self.passwords.len()
    }

    pub fn flags(&self) -> impl Iterator<Item = &'static str> {
        let nopass = self.needs_no_password.then_some("nopass");
        [if self.is_on { "on" } else { "off" }].into_iter().chain(nopass)
    }

    pub fn root(&self) -> &Selector {
        &self.selectors[0]
    }

    /// Returns the selectors in brackets.
    pub fn other_selectors(&self) -> &[Selector] {
        &self.selectors[1..]
    }

    /// Rules that make it, as ACL LIST shows them after its name.
    pub fn show(&self) -> Vec<u8> {
        let mut out = Vec::new();
        for flag in self.flags() {
            out.extend_from_slice(flag.as_bytes());
            out.push(b' ');
        }
        for password in self.passwords() {
            out.push(b'#');
            out.extend_from_slice(password.hex().as_bytes());
            out.push(b' ');
        }
        self.root().show(&mut out);
        for selector in self.other_selectors() {
            out.extend_from_slice(b" (");
            selector.show(&mut out);
            out.push(b')');
        }
        out
    }

    /// "user ann on ..."
    pub fn line(&self) -> Vec<u8> {
        [b"user ", &self.name[..], b" ", &self.show()].concat()
    }
}
