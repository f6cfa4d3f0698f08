//! May this user run this command? The keys, channels and databases of the request are found once, and asked
//! of the user's rules.
//!
//! ```text
//! one key, in its usual place     a bit and a prefix, most often      GET, SET, DEL with one key
//! other keys                      found by the key specifications     MGET, EVAL, XREAD
//! channels, databases             only of the commands that name some
//! ```
//! Names that cannot be found, for the arguments are wrong, are not asked about: the command itself refuses
//! them.

use isotherm_acl::{Access, Asked, AskedDatabases, AskedKey, Denial, Reason, User};
use isotherm_commands::spec::{Channels, Reach, key_positions};
use isotherm_keyspace::Db;
use isotherm_resp::Args;

use super::Users;
use super::traits::{Traits, access_of};
use crate::Node;
use crate::request::entry::Entry;
use crate::session::Session;

/// The database that commands of the session look at: within a transaction, the one that it will have
/// selected until then.
pub fn database_of(session: &Session) -> Db {
    session.multi.as_ref().map_or(session.db, |multi| multi.db)
}

/// Checks that the session may run the command. The error is the denial.
#[inline(never)]
pub fn check_session(
    node: &Node,
    session: &mut Session,
    command: &Entry,
    args: Args<'_>,
    db: Db,
) -> Result<(), Denial> {
    let user = &session.user;
    if user.permits_everything() {
        return Ok(());
    }
    let users = &node.users;
    let traits = &users.traits[usize::from(command.index)];
    // The usual command: one key. Why it is denied, if it is, is found below.
    if command.has_one_key(args.len())
        && let Some(access) = traits.plain.access(args)
        && let Some(key) = args.try_get(usize::from(command.first_key))
        && user.permits_by_pattern(command.index, key, access)
    {
        return Ok(());
    }
    let checked = check(node, user, command, args, db);
    if checked.is_ok() && traits.reads_by_pattern {
        session.may_read_all = ask(users, command, args, db, node.config.databases(), &mut |asked| {
            user.check_with_all_keys(asked, Access::READ)
        });
    }
    checked
}

#[inline]
pub fn check(node: &Node, user: &User, command: &Entry, args: Args<'_>, db: Db) -> Result<(), Denial> {
    ask(&node.users, command, args, db, node.config.databases(), &mut |asked| user.check(asked))
}

/// Returns whether the user may run the command, whatever it touches.
pub fn may_run(node: &Node, user: &User, command: &Entry, args: Args<'_>, db: Db) -> bool {
    let traits = &node.users.traits[usize::from(command.index)];
    user.check(&base(command, traits, args, db)).is_ok()
}

/// The question about the command alone.
fn base<'a>(command: &Entry, traits: &Traits, args: Args<'a>, db: Db) -> Asked<'a> {
    Asked {
        command: command.index,
        is_free: traits.is_free,
        first_argument: args.try_get(1),
        databases: match traits.is_of_database {
            true => AskedDatabases::Current(u32::from(db.0)),
            false => AskedDatabases::None,
        },
        keys: &[],
        channels: &[],
        channels_are_patterns: false,
    }
}

/// Finds what the request touches, and asks about it.
fn ask<T>(
    users: &Users,
    command: &Entry,
    args: Args<'_>,
    db: Db,
    databases: u16,
    decide: &mut dyn FnMut(&Asked<'_>) -> T,
) -> T {
    let traits = &users.traits[usize::from(command.index)];
    let base = base(command, traits, args, db);
    if command.has_one_key(args.len())
        && let Some(access) = traits.plain.access(args)
    {
        let at = usize::from(command.first_key);
        let keys = args.try_get(at).map(|name| AskedKey { at, name, access });
        return decide(&Asked { keys: keys.as_slice(), ..base });
    }
    ask_in_full(command, traits, args, (db, databases), base, decide)
}

#[inline(never)]
fn ask_in_full<T>(
    command: &Entry,
    traits: &Traits,
    args: Args<'_>,
    (db, databases): (Db, u16),
    base: Asked<'_>,
    decide: &mut dyn FnMut(&Asked<'_>) -> T,
) -> T {
    let mut named = Vec::new();
    if let Some(find) = command.spec.database_arguments {
        find(args, databases, &mut named);
    }
    let mut positions = Vec::new();
    if traits.has_keys {
        // Where they cannot be found the command will fail.
        let _ = key_positions(command.spec, args, &mut positions);
    }
    let key = |&(at, flags): &(usize, _)| AskedKey { at, name: args.get(at), access: access_of(flags) };
    let keys: Vec<AskedKey<'_>> = positions.iter().map(key).collect();
    let channels = match command.spec.channels {
        Channels::None => 1..1,
        Channels::One => 1..args.len().min(2),
        Channels::All | Channels::Patterns => 1..args.len(),
    };
    let channels: Vec<(usize, &[u8])> = channels.map(|at| (at, args.get(at))).collect();
    let databases = match command.spec.database_arguments {
        Some(_) => {
            AskedDatabases::Named { named: &named, current: traits.has_keys.then_some(u32::from(db.0)) }
        }
        // EXEC has a key only where it has a condition, and its queue may begin with SELECT.
        None if command.spec.reach == Reach::Queue && keys.is_empty() => AskedDatabases::None,
        None if traits.is_of_all_databases => AskedDatabases::All(u32::from(databases)),
        None => base.databases,
    };
    decide(&Asked {
        databases,
        keys: &keys,
        channels: &channels,
        channels_are_patterns: command.spec.channels == Channels::Patterns,
        ..base
    })
}

/// Returns the text about a denial. `is_verbose`: the client asks about another user (ACL DRYRUN), and is
/// shown the denied object.
pub fn text(user: &User, command: &Entry, args: Args<'_>, denial: Denial, is_verbose: bool) -> Vec<u8> {
    let name = &user.name[..];
    let object = args.try_get(denial.at).unwrap_or_default();
    let access = |what: &[u8], end: &[u8]| {
        [b"User ", name, b" has no permissions to access ", what, object, end].concat()
    };
    match (denial.reason, is_verbose) {
        (Reason::Command, _) => {
            let command = command.name.as_bytes();
            [b"User ", name, b" has no permissions to run the '", command, b"' command"].concat()
        }
        (Reason::Key, true) => access(b"the '", b"' key"),
        (Reason::Channel, true) => access(b"the '", b"' channel"),
        (Reason::Database, true) => access(b"database ", b""),
        (Reason::Key, false) => b"No permissions to access a key".to_vec(),
        (Reason::Channel, false) => b"No permissions to access a channel".to_vec(),
        (Reason::Database, false) => b"No permissions to access database".to_vec(),
    }
}

/// Returns the text about a denial as an error reply.
pub fn error(user: &User, command: &Entry, args: Args<'_>, denial: Denial) -> Vec<u8> {
    [b"NOPERM ", &text(user, command, args, denial, false)[..]].concat()
}
