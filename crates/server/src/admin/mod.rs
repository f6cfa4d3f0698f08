//! Commands of the session and of the server: what is not about keys alone.

pub mod specs;

mod client;
mod cluster;
mod command;
mod command_log;
mod config;
pub mod connection;
mod debug;
mod hot_keys;
mod latency;
mod memory;
mod monitor;
mod pubsub;
mod server;
mod slot_stats;

pub use client::{client_line, client_name_line};
use isotherm_commands::Outcome;
use isotherm_commands::spec::Command;
use isotherm_keyspace::{Conditions, EffectSink, ExpiryMode, Held, Txn, UnixMs};
use isotherm_resp::{Args, Reply};
use isotherm_stdx::Prng;
pub use memory::Mark;

use crate::node::Node;
use crate::pubsub::Audience;
use crate::registry::Entry;
use crate::session::Session;

pub type AdminHandler = fn(&mut AdminCall<'_>) -> Outcome;

/// One call of a session or server command.
pub struct AdminCall<'c> {
    pub node: &'static Node,
    pub session: &'c mut Session,
    /// With the command's name at 0.
    pub args: Args<'c>,
    pub command: &'static Entry,
    pub reply: &'c mut Reply,
    /// Read once for this command (or EXEC).
    pub now: UnixMs,
    pub conditions: Conditions,
    /// What the declaration asked for (key specs, `Reach::All`) is held.
    pub held: &'c mut Held<'static>,
    pub sink: &'c mut dyn EffectSink,
    pub prng: &'c mut Prng,
    /// Who of this worker listens to what.
    pub audience: &'c mut Audience,
}

impl AdminCall<'_> {
    /// A transaction over what is held, for commands that also look at keys.
    pub fn txn(&mut self) -> Txn<'_, 'static> {
        Txn::new(self.held, self.conditions, self.sink)
    }

    /// The same for those that look without leaving a trace: expired keys are still there, and nothing is touched.
    pub fn debug_txn(&mut self) -> Txn<'_, 'static> {
        let conditions = Conditions { expiry_mode: ExpiryMode::Keep, no_touch: true, ..self.conditions };
        Txn::new(self.held, conditions, self.sink)
    }
}

/// Every session and server command, by group.
pub const COMMANDS: &[&[Command<AdminHandler>]] = &[
    connection::COMMANDS,
    client::COMMANDS,
    cluster::COMMANDS,
    command::COMMANDS,
    command_log::COMMANDS,
    config::COMMANDS,
    debug::COMMANDS,
    hot_keys::COMMANDS,
    latency::COMMANDS,
    memory::COMMANDS,
    monitor::COMMANDS,
    pubsub::COMMANDS,
    server::COMMANDS,
];
