//! Refusals of commands that are played back: from an append-only file, or a primary.

use std::fmt;

use isotherm_node::scripting::library_head;

/// Why a command of a log cannot be run.
#[derive(Debug)]
pub enum Refused {
    Unknown(Vec<u8>),
    WrongArity(Vec<u8>),
    /// The database's number.
    NoDatabase(Vec<u8>),
    Nested,
    /// EXEC without MULTI.
    NotBegun,
    /// The commands of one transaction take more memory than can be right.
    TransactionTooLarge,
    /// The data does not fit: what the command replied. Nothing was changed.
    OutOfMemory(String),
    /// Out of memory, where a part of the command or its transaction may be in the data: that is no state of
    /// the log any more.
    HalfApplied(String),
    /// A command replied with an error, which it did not where it was recorded. Nothing was changed.
    Failed(CommandFailure),
    /// An error reply, where the commands before it in its transaction are in the data.
    HalfFailed(CommandFailure),
    Library(library_head::Refused),
    /// The primary that has sent this is followed no more.
    Superseded,
}

impl fmt::Display for Refused {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Refused::Unknown(name) => write!(f, "unknown command '{}'", name.escape_ascii()),
            Refused::WrongArity(name) => write!(f, "wrong number of arguments for '{}'", name.escape_ascii()),
            Refused::NoDatabase(db) => write!(f, "database {} does not exist", db.escape_ascii()),
            Refused::Nested => f.write_str("MULTI inside a transaction"),
            Refused::NotBegun => f.write_str("EXEC without MULTI"),
            Refused::TransactionTooLarge => f.write_str("a transaction that is too large"),
            Refused::OutOfMemory(error) => write!(f, "no memory: {error}"),
            Refused::HalfApplied(error) => write!(f, "no memory for all of it: {error}"),
            Refused::Failed(failure) => failure.fmt(f),
            Refused::HalfFailed(failure) => write!(f, "{failure}, in the middle of its transaction"),
            Refused::Library(why) => write!(f, "Failed creating the library: {why}"),
            Refused::Superseded => f.write_str("another primary is followed"),
        }
    }
}

/// A command that replied with an error.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct CommandFailure {
    pub command: &'static str,
    /// The whole reply, without its line end.
    pub reply: String,
}

impl fmt::Display for CommandFailure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "'{}' is answered with '{}'", self.command, self.reply)
    }
}

/// Words of `propagation-error-behavior`.
pub mod behavior {
    use isotherm_config::{Id, id};

    pub const PARAMETER: Id = id("propagation-error-behavior");
    pub const IGNORE: i64 = 0;
    pub const PANIC_ON_REPLICAS: i64 = 2;
    pub const STOP: i64 = 3;
}

impl Refused {
    /// `is_first`: nothing of its transaction ran before what has failed, `is_whole`: and it changes all or
    /// nothing.
    pub fn of_part(self, is_first: bool, is_whole: bool) -> Refused {
        match self {
            Refused::OutOfMemory(error) if !is_whole => Refused::HalfApplied(error),
            Refused::Failed(failure) if !is_first => Refused::HalfFailed(failure),
            other => other,
        }
    }

    /// Returns whether a part of a transaction is in the data, which is that of no place in the log now.
    pub fn is_half(&self) -> bool {
        matches!(self, Refused::HalfApplied(_) | Refused::HalfFailed(_))
    }

    /// Returns whether a command is not run here as it was where it was recorded.
    pub fn is_of_command(&self) -> bool {
        match self {
            Refused::Unknown(_)
            | Refused::WrongArity(_)
            | Refused::Library(_)
            | Refused::Failed(_)
            | Refused::HalfFailed(_) => true,
            Refused::NoDatabase(_)
            | Refused::Nested
            | Refused::NotBegun
            | Refused::TransactionTooLarge
            | Refused::OutOfMemory(_)
            | Refused::HalfApplied(_)
            | Refused::Superseded => false,
        }
    }
}
