//! Users, and what their rules permit.
//!
//! ```text
//! rules, as they are written       SETUSER ann on >secret +@read -keys ~app:* %R~log:* (+publish &news:* resetkeys)
//!    |  user, selector, command_rules
//! a user                           passwords; a root selector and others, each with commands, keys, channels, databases
//!    |  compiled with each change: a bit for each command, patterns sorted by kind
//! a decision                       may this user run command 17 with these keys and channels in database 3?   decision
//! ```
//! A user never changes: a change makes another one, which takes the first one's place (`users`). So any
//! thread that holds one can ask it without a lock.
//!
//! The shown form (`User::show`) consists of rules again, in Valkey's form, and they make the same user when
//! they are read.
//!
//! **What this crate does not know:** sockets, sessions, the keyspace, the clock. A command is a number here,
//! with a name and categories from a table that is given (`CommandTable`).

mod command_rules;
mod command_table;
mod decision;
mod error;
mod file;
mod key_patterns;
mod log;
mod merging;
mod ordered;
mod password;
mod prefixes;
mod selector;
mod user;
mod users;

pub use command_table::{CommandRow, CommandTable};
pub use decision::{Asked, AskedDatabases, AskedKey, Denial, Reason};
pub use error::{RuleError, SetUserError};
pub use file::{parse_file, read_definition};
pub use key_patterns::Access;
pub use log::{Context, Entry, Log, Noted};
pub use merging::{Unmatched, merge_selectors};
pub use password::PasswordHash;
pub use selector::Selector;
pub use user::{Defaults, User};
pub use users::{DEFAULT_USER, Users};

/// Up to the first NUL: what Valkey takes for the whole where it compares words.
fn until_nul(bytes: &[u8]) -> &[u8] {
    let end = bytes.iter().position(|&byte| byte == 0).unwrap_or(bytes.len());
    &bytes[..end]
}

/// Returns whether a name or a pattern has a byte that would break a line of rules.
pub fn has_spaces(bytes: &[u8]) -> bool {
    bytes.iter().any(|&byte| byte == 0 || isotherm_stdx::number::is_c_space(byte))
}

#[cfg(test)]
mod tests;
