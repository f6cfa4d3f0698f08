//! Any bytes as rules of a user: refused, or a user whose shown form makes the same user again, and decides
//! the same.
//!
//! ```text
//!   rule LF rule LF ... NUL key      bytes that are no ASCII stand for pieces of rules
//! ```
#![no_main]

use isotherm_acl::{
    Access, Asked, AskedDatabases, AskedKey, CommandRow, CommandTable, Defaults, User, parse_file,
};
use libfuzzer_sys::fuzz_target;

const PIECES: [&str; 30] = [
    "+get",
    "-get",
    "+@read",
    "-@read",
    "+@all",
    "-@all",
    "+config|get",
    "+select|0",
    "~a*",
    "%R~b",
    "%W~[ab]",
    "~a\\",
    "&c*",
    "&*",
    "resetchannels",
    "db=0,2",
    "resetdbs",
    "alldbs",
    "(",
    ")",
    " ",
    "\n",
    "allkeys",
    "resetkeys",
    ">secret",
    "<secret",
    "nopass",
    "on",
    "reset",
    "clearselectors",
];

fn expanded(bytes: &[u8]) -> Vec<u8> {
    let mut text = Vec::with_capacity(bytes.len() * 4);
    for &byte in bytes {
        match byte.checked_sub(0x80) {
            Some(piece) => text.extend_from_slice(PIECES[usize::from(piece) % PIECES.len()].as_bytes()),
            None => text.push(byte),
        }
    }
    text
}

fn table() -> CommandTable {
    let row = |name: &str, categories, subcommands| CommandRow {
        name: name.into(),
        categories,
        subcommands,
        is_subcommand: name.contains('|'),
    };
    let rows = vec![row("get", 1, 0), row("config", 2, 1), row("config|get", 2, 0), row("select", 2, 0)];
    CommandTable::new(rows, &[(1, "read"), (2, "slow")])
}

fn decisions(user: &User, key: &[u8]) -> Vec<bool> {
    let mut all = Vec::new();
    for command in 0..4 {
        for access in [Access::NONE, Access::READ, Access::WRITE, Access::ALL] {
            let keys = [AskedKey { at: 1, name: key, access }];
            let asked = Asked {
                command,
                is_free: false,
                first_argument: Some(key),
                databases: AskedDatabases::Current(2),
                keys: &keys,
                channels: &[(1, key)],
                channels_are_patterns: access == Access::NONE,
            };
            all.push(user.check(&asked).is_ok());
        }
    }
    all
}

fuzz_target!(|input: &[u8]| {
    let text = expanded(input);
    let (rules, key) = match text.iter().position(|&byte| byte == 0) {
        Some(end) => (&text[..end], &text[end + 1..]),
        None => (&text[..], &b"ab"[..]),
    };
    let (table, defaults) = (table(), Defaults { all_channels: false });
    // Whatever it is, it has an end.
    let _ = parse_file(&text, "file", &table, defaults);
    let mut user = User::new(b"ann", &table, defaults);
    for rule in rules.split(|&byte| byte == b'\n') {
        if let Ok(changed) = user.changed([rule], &table, defaults) {
            user = changed;
        }
    }
    let shown = user.show();
    // A lone star that was given by `%RW~*` is shown as `~*`, which says more: every key, the empty one too,
    // and nothing may follow. Quotes and brackets of patterns mean something else when they are read again
    // within a selector. So does a space in a first argument, which Valkey takes and shows as it came; within
    // a selector quotes make one.
    let has_space = |rule: &[u8]| matches!(rule, [b'+' | b'-', ..]) && rule.contains(&b' ');
    let is_quoted = rules.iter().any(|byte| b"\"'".contains(byte));
    if is_quoted || rules.split(|&byte| byte == b'\n').any(has_space) {
        return;
    }
    let brackets = shown.iter().filter(|byte| **byte == b')').count();
    let has_quotes = shown.iter().any(|byte| b"\"'".contains(byte));
    if rules.windows(2).any(|pair| pair == b"~*") || has_quotes || brackets != user.other_selectors().len() {
        return;
    }
    let words: Vec<&[u8]> = shown.split(|&byte| byte == b' ').collect();
    let again = User::new(b"ann", &table, defaults).changed(words, &table, defaults);
    let again = again.expect("what is shown is right");
    assert_eq!(again.show(), shown);
    assert_eq!(decisions(&again, key), decisions(&user, key));
    assert!(!user.permits_everything() || decisions(&user, key).iter().all(|is| *is));
});
