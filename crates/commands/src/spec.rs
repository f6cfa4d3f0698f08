//! Declaration of a command. Lookup, COMMAND and its subcommands, routing (keys, locks), ACL and the
//! generated docs are all derived from it.
//!
//! A declaration is a `const` next to the handler and states only what does not follow from the rest: the
//! categories that flags imply are not repeated (`Spec::acl_categories`), nor is `movablekeys`
//! (`Spec::shown_flags`).

mod argument;
mod channels;
mod database;
mod flags;
mod group;
mod keys;
mod need;
mod row;

pub use argument::{Argument, ArgumentKind};
pub use channels::Channels;
pub use database::{Databases, FindDatabases, number_at};
pub use flags::{AclCategories, Flags, KeyFlags};
pub use group::Group;
pub use keys::{Begin, Find, FindKeys, InvalidKeys, KeySpec, first_key_range, key_positions, slot_positions};
pub use need::{Need, NeedFrom};

use isotherm_resp::Args;

/// A command: what is said of it, and its code. `H` is the kind of handler: data commands have
/// [`crate::Handler`], commands of a session or the server have kinds of their own.
#[derive(Clone, Copy, Debug)]
pub struct Command<H: 'static> {
    pub spec: Spec,
    /// Function that runs the command. `None` only for a container (CLIENT, CONFIG, ...) that cannot be
    /// called by itself.
    pub handler: Option<H>,
    pub subcommands: &'static [Command<H>],
}

impl<H: Copy + 'static> Command<H> {
    pub const fn new(spec: Spec, handler: H) -> Command<H> {
        Command { spec, handler: Some(handler), subcommands: &[] }
    }

    /// A command that only has subcommands.
    pub const fn container(spec: Spec, subcommands: &'static [Command<H>]) -> Command<H> {
        Command { spec, handler: None, subcommands }
    }
}

/// Function that returns whether the argument at this place is secret.
pub type IsSecret = fn(Args<'_>, usize) -> bool;

#[derive(Clone, Copy, Debug)]
pub struct Spec {
    /// Name in lower case; for a subcommand only its own word ("get" of "config get").
    pub name: &'static str,
    pub summary: &'static str,
    pub since: &'static str,
    pub group: Group,
    /// Empty if nothing is said of it.
    pub complexity: &'static str,
    /// Valkey's arity: the number of arguments with the name(s), negative for "at least".
    pub arity: i32,
    pub flags: Flags,
    /// The categories that are stated; those that follow from flags are derived (`acl_categories`).
    pub acl: AclCategories,
    pub key_specs: &'static [KeySpec],
    /// Function that finds the keys of a command whose key specs do not find them.
    pub key_positions: Option<FindKeys>,
    /// Function that returns the use of the one key by its arguments, for a command whose key specs say
    /// VARIABLE_FLAGS.
    pub variable_key_flags: Option<fn(Args<'_>) -> KeyFlags>,
    /// Function that returns the databases that a command names, for a session in the database of the given
    /// number.
    pub databases: Option<fn(Args<'_>, u16) -> Databases>,
    /// Function that finds the arguments that name databases, if all of them are valid. The check of a user's
    /// rights uses it.
    pub database_arguments: Option<FindDatabases>,
    /// The channels that it publishes to or subscribes to.
    pub channels: Channels,
    /// Part of the values of its keys that the command needs.
    pub need: NeedFrom,
    /// Partitions that the command locks, in addition to or instead of those of its keys.
    pub reach: Reach,
    /// Function that returns whether the argument at a place is secret, for a command with secrets among its
    /// arguments (passwords, and the users whose they are). The command log and MONITOR do not show secrets.
    pub secrets: Option<IsSecret>,
    pub tips: &'static [&'static str],
    pub doc_flags: &'static [&'static str],
    pub deprecated_since: Option<&'static str>,
    pub replaced_by: Option<&'static str>,
    /// (version, what changed)
    pub history: &'static [(&'static str, &'static str)],
    pub arguments: &'static [Argument],
}

impl Spec {
    /// A base for `const` declarations: `Spec { name: "get", ..Spec::BASE }`.
    pub const BASE: Spec = Spec {
        name: "",
        summary: "",
        since: "1.0.0",
        group: Group::Generic,
        complexity: "",
        arity: 1,
        flags: Flags(0),
        acl: AclCategories(0),
        key_specs: &[],
        key_positions: None,
        variable_key_flags: None,
        databases: None,
        database_arguments: None,
        channels: Channels::None,
        need: NeedFrom::KeyFlags,
        reach: Reach::Keys,
        secrets: None,
        tips: &[],
        doc_flags: &[],
        deprecated_since: None,
        replaced_by: None,
        history: &[],
        arguments: &[],
    };

    /// A base for the declaration of a container's HELP.
    pub const HELP: Spec = Spec {
        name: "help",
        summary: "Returns the subcommands of a container, each with a sentence.",
        complexity: "O(1)",
        arity: 2,
        flags: Flags::LOADING.or(Flags::STALE),
        ..Spec::BASE
    };

    /// The categories that are stated and those that the flags imply.
    pub const fn acl_categories(&self) -> AclCategories {
        self.acl.or(AclCategories::implied(self.flags, self.acl))
    }

    /// The flags as COMMAND INFO shows them: `movablekeys` follows from the key specs.
    pub fn shown_flags(&self) -> Flags {
        if keys::are_movable(self.key_specs) { self.flags.or(Flags::MOVABLE_KEYS) } else { self.flags }
    }

    /// Returns whether the argument at `at` must not be shown to others.
    pub fn is_secret(&self, args: Args<'_>, at: usize) -> bool {
        self.secrets.is_some_and(|is_secret| is_secret(args, at))
    }

    /// Returns whether the command's time does not grow with the data, as far as `complexity` states it. The
    /// first term has to be O(1), or a logarithm and nothing else, and no further term may be added to it.
    /// "O(1) for each element" counts: the client has sent the elements. "O(1) if COUNT is small" does not
    /// count: XAUTOCLAIM looks at ten entries for each requested one.
    pub fn is_constant_time(&self) -> bool {
        let complexity = self.complexity.to_ascii_lowercase();
        let mut depth = 0;
        let end = complexity.find(|character| {
            depth += i32::from(character == '(') - i32::from(character == ')');
            character == ')' && depth == 0
        });
        let term = end.map_or("", |end| &complexity[..=end]);
        let is_bounded = term == "o(1)" || term.starts_with("o(log") && !term.contains(['+', '*']);
        is_bounded && !complexity.contains("additional o(") && !complexity.contains(" if ")
    }

    /// Returns whether the command may have `len` arguments, the name(s) included.
    #[inline]
    pub const fn takes(&self, len: usize) -> bool {
        let arity = self.arity.unsigned_abs() as usize;
        if self.arity < 0 { len >= arity } else { len == arity }
    }
}

/// Partitions that a command locks.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Reach {
    /// Partitions of the command's keys; none if it has no keys.
    Keys,
    /// All: the gate (KEYS, SCAN, DBSIZE, FLUSHALL, ...).
    All,
    /// Every partition in turn, each for a moment: for reports about the whole (INFO, MEMORY MAP, ...), and
    /// for a command that waits until no command is running that began before it (CLIENT KILL). The handler
    /// locks them; inside EXEC all are held.
    Each,
    /// Partitions that the session's queued commands need, and those of the keys that it watches (EXEC).
    Queue,
    /// Partitions of the command's keys, but not all at once: the handler itself locks a part at a time
    /// (WATCH).
    Parts,
    /// Partitions of the command's keys, and later those that its script asks for (EVAL). Inside EXEC all are
    /// held.
    Script,
}
