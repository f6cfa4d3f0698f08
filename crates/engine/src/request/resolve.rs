//! Resolving: which command a request is, and its first key. Nothing is decided here; a whole batch is
//! resolved before the first of it runs, so that its memory can be fetched ahead.

use isotherm_keyspace::{Key, Keyspace};
use isotherm_resp::Args;

use isotherm_node::request::entry::{Entry, Locks};
use isotherm_node::request::registry::Commands;

/// Request of a batch, looked up but not run.
#[derive(Clone, Copy)]
pub struct Request<'b> {
    pub args: Args<'b>,
    pub found: Found,
    /// The key at `Entry::first_key`, or the first that a script is called with.
    pub key: Option<Key<'b>>,
}

#[derive(Clone, Copy)]
pub enum Found {
    Command(&'static Entry),
    WrongArity(&'static Entry),
    UnknownSubcommand,
    Unknown,
}

impl Request<'_> {
    /// The command that is meant, with whatever arguments.
    pub fn command(&self) -> Option<&'static Entry> {
        match self.found {
            Found::Command(command) | Found::WrongArity(command) => Some(command),
            Found::UnknownSubcommand | Found::Unknown => None,
        }
    }
}

/// Looks up command and first key.
#[inline]
pub fn resolve<'b>(commands: &Commands, keyspace: &Keyspace, args: Args<'b>) -> Request<'b> {
    of_found(look_up(commands.find(args.get(0)), args), keyspace, args)
}

/// Looks up command and first key of a request that comes from a log or from a primary.
#[inline]
pub fn resolve_logged<'b>(commands: &Commands, keyspace: &Keyspace, args: Args<'b>) -> Request<'b> {
    of_found(look_up(commands.find_logged(args.get(0)), args), keyspace, args)
}

#[inline]
fn of_found<'b>(found: Found, keyspace: &Keyspace, args: Args<'b>) -> Request<'b> {
    let key = match found {
        Found::Command(command) if command.first_key > 0 => {
            args.try_get(usize::from(command.first_key)).map(|name| keyspace.key(name))
        }
        // The first of the keys that a script is called with, after their number: for the prefetch alone.
        Found::Command(command) if command.locks == Locks::Script && args.get(2) != b"0" => {
            args.try_get(3).map(|name| keyspace.key(name))
        }
        _ => None,
    };
    Request { args, found, key }
}

#[inline]
fn look_up(command: Option<&'static Entry>, args: Args<'_>) -> Found {
    let Some(mut command) = command else { return Found::Unknown };
    if command.is_container() && args.len() > 1 {
        match command.subcommand(args.get(1)) {
            Some(subcommand) => command = subcommand,
            None => return Found::UnknownSubcommand,
        }
    }
    if command.spec.takes(args.len()) { Found::Command(command) } else { Found::WrongArity(command) }
}
