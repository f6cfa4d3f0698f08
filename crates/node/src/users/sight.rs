//! The rows of a report that its reader may see. A report about keys names those of everyone; a user is shown
//! what the rules allow it, in the selector that permits the command.
//!
//! ```text
//! a key                 in a database that the user may use, and matched by one of its patterns
//! all that begin so     one pattern matches them all, whatever follows; they may lie in any database
//! all keys              ~*
//! ```
//! A name that was cut is the beginning of many, so it counts as one.

use isotherm_acl::{Access, Asked, AskedDatabases, AskedKey, User};
use isotherm_keyspace::{Db, PrefixReport, PrefixShare};

use crate::Node;
use crate::request::entry::Entry;

/// The user that reads a report, and the command that reports.
pub struct Sight<'a> {
    user: &'a User,
    command: &'a Entry,
    databases: u32,
}

impl<'a> Sight<'a> {
    pub fn new(node: &Node, user: &'a User, command: &'a Entry) -> Sight<'a> {
        Sight { user, command, databases: u32::from(node.config.databases()) }
    }

    fn asked(&self, databases: AskedDatabases<'static>) -> Asked<'static> {
        Asked {
            command: self.command.index,
            is_free: false,
            first_argument: None,
            databases,
            keys: &[],
            channels: &[],
            channels_are_patterns: false,
        }
    }

    /// Returns whether nothing need be left out.
    pub fn sees_all(&self) -> bool {
        let asked = self.asked(AskedDatabases::All(self.databases));
        self.user.permits_everything() || self.user.check_with_all_keys(&asked, Access::NONE)
    }

    pub fn sees_database(&self, db: Db) -> bool {
        let asked = self.asked(AskedDatabases::Current(u32::from(db.0)));
        self.user.permits_everything() || self.user.check(&asked).is_ok()
    }

    /// Returns whether it sees a key whose name is `name_bytes` long; the report has `name` of it.
    pub fn sees_key(&self, db: Db, name: &[u8], name_bytes: usize) -> bool {
        if self.user.permits_everything() {
            return true;
        }
        let asked = self.asked(AskedDatabases::Current(u32::from(db.0)));
        if name.len() < name_bytes {
            return self.user.check_with_beginning(&asked, name, Access::NONE);
        }
        let key = AskedKey { at: 0, name, access: Access::NONE };
        self.user.check(&Asked { keys: &[key], ..asked }).is_ok()
    }

    fn sees_beginning(&self, beginning: &[u8]) -> bool {
        let asked = self.asked(AskedDatabases::All(self.databases));
        self.user.check_with_beginning(&asked, beginning, Access::NONE)
    }

    /// Returns whether it sees the keys of a prefix that a separator follows.
    pub fn sees_prefix(&self, share: &PrefixShare, separator: u8) -> bool {
        if self.user.permits_everything() {
            return true;
        }
        match share.name.len() < share.name_bytes {
            true => self.sees_beginning(&share.name),
            false => self.sees_beginning(&[&share.name[..], &[separator]].concat()),
        }
    }

    /// Leaves in a report what it sees. Sums over keys of everyone are zero without a sight of all.
    pub fn narrow(&self, report: &mut PrefixReport) {
        if self.sees_all() {
            return;
        }
        let separator = report.separator;
        report.prefixes.retain(|share| self.sees_prefix(share, separator));
        report.pinned.retain(|share| self.sees_beginning(&share.name));
        report.other = PrefixShare::default();
        report.bare = PrefixShare::default();
    }
}
