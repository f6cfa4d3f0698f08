//! Every data command: one declaration and one handler each, side by side.
//!
//! **Architecture invariant:** `commands` knows no sessions, no AOF, no replication, no pub/sub and no users.
//! A handler reads its arguments, changes the keyspace through a [`Txn`](isotherm_keyspace::Txn), writes a
//! reply and emits effects; nothing else.

pub mod call;
pub mod help;
pub mod naming;
pub mod spec;

mod arguments;
mod element;
mod scanning;
mod several;
mod text;
mod texts;

pub mod bitmap;
pub mod database;
pub mod generic;
pub mod geo;
pub mod hash;
pub mod hyperloglog;
pub mod list;
pub mod record;
pub mod set;
pub mod sorted_set;
pub mod stream;
pub mod string;
pub mod wait;

pub use call::{Call, CallSettings, Outcome, TransferSettings};
pub use record::{Record, Records};
pub use spec::{Command, Flags, KeySpec, Spec};

/// A data command's code.
pub type Handler = fn(&mut Call<'_, '_, '_>) -> Outcome;

/// Every data command, by group.
pub const COMMANDS: &[&[Command<Handler>]] = &[
    string::COMMANDS,
    bitmap::COMMANDS,
    hyperloglog::COMMANDS,
    list::COMMANDS,
    sorted_set::COMMANDS,
    geo::COMMANDS,
    hash::COMMANDS,
    set::COMMANDS,
    stream::COMMANDS,
    generic::COMMANDS,
    database::COMMANDS,
];
