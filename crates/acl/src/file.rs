//! Users as they are written in a file: `user ann on >secret ~app:* +@read`, a line each.

use std::collections::HashSet;

use crate::command_table::CommandTable;
use crate::error::RuleError;
use crate::has_spaces;
use crate::merging::{Unmatched, merge_selectors};
use crate::user::{Defaults, User};

const UNCHANGED: &str =
    "WARNING: ACL errors detected, no change to the previously active ACL rules was performed";

/// The users of an ACL file, or everything that is wrong with it, in one line.
pub fn parse_file(
    text: &[u8],
    name: &str,
    table: &CommandTable,
    defaults: Defaults,
) -> Result<Vec<User>, Vec<u8>> {
    let (mut users, mut names, mut errors) = (Vec::new(), HashSet::new(), Vec::new());
    for (at, line) in text.split(|&byte| byte == b'\n').enumerate() {
        let line = trim(line, b" \t\r\n");
        if line.is_empty() {
            continue;
        }
        let place = format!("{name}:{}", at + 1);
        let words: Vec<&[u8]> = line.split(|&byte| byte == b' ').collect();
        let (b"user", [_, user, rules @ ..]) = (words[0], &words[..]) else {
            let text = format!("{place} should start with user keyword followed by the username. ");
            errors.extend_from_slice(text.as_bytes());
            continue;
        };
        if has_spaces(user) {
            let before = format!("'{place}: username '");
            errors.extend_from_slice(&[before.as_bytes(), user, b"' contains invalid characters. "].concat());
            continue;
        }
        if !names.insert(*user) {
            let after = format!("' found on line {}. ", at + 1);
            errors.extend_from_slice(&[b"WARNING: Duplicate user '", *user, after.as_bytes()].concat());
            continue;
        }
        users.push(read_line(user, rules, &place, &mut errors, table, defaults));
    }
    match errors.is_empty() {
        true => Ok(users),
        false => {
            errors.extend_from_slice(UNCHANGED.as_bytes());
            Err(errors)
        }
    }
}

fn read_line(
    name: &[u8],
    rules: &[&[u8]],
    place: &str,
    errors: &mut Vec<u8>,
    table: &CommandTable,
    defaults: Defaults,
) -> User {
    let mut user = User::new(name, table, defaults);
    let Ok(rules) = merge_selectors(rules.iter().copied()) else {
        let text = format!("{place}: Unmatched parenthesis in selector definition.");
        errors.extend_from_slice(text.as_bytes());
        return user;
    };
    let mut has_failed = false;
    for rule in &rules {
        let rule = trim(rule, b"\t\r\n");
        match user.apply(rule, table, defaults) {
            Ok(()) => {}
            // A command that is not there holds no secret.
            Err(error @ RuleError::UnknownCommand) => {
                let before = format!("{place}: Error in applying operation '");
                let after = format!("': {}. ", error.text());
                errors.extend_from_slice(&[before.as_bytes(), rule, after.as_bytes()].concat());
            }
            // Errors after the first of the others may follow from it.
            Err(error) if !has_failed => {
                errors.extend_from_slice(format!("{place}: {}. ", error.text()).as_bytes());
                has_failed = true;
            }
            Err(_) => {}
        }
    }
    user.compile();
    user
}

fn trim<'a>(bytes: &'a [u8], unwanted: &[u8]) -> &'a [u8] {
    let is_wanted = |byte: &u8| !unwanted.contains(byte);
    let Some(first) = bytes.iter().position(is_wanted) else { return &[] };
    let last = bytes.iter().rposition(is_wanted).expect("there is a first one");
    &bytes[first..=last]
}

/// A `user` line of the configuration, split into words: the user, or what is wrong, and with which of its
/// rules.
pub fn read_definition(
    name: &[u8],
    rules: &[&[u8]],
    table: &CommandTable,
    defaults: Defaults,
) -> Result<User, (usize, Vec<u8>, RuleError)> {
    let merged = merge_selectors(rules.iter().copied())
        .map_err(|Unmatched(at)| (at, rules[at].to_vec(), RuleError::Syntax))?;
    let mut user = User::new(name, table, defaults);
    for (at, rule) in merged.iter().enumerate() {
        user.apply(rule, table, defaults).map_err(|error| (at, rule.clone(), error))?;
    }
    user.compile();
    Ok(user)
}
