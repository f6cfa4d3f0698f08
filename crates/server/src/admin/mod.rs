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
use isotherm_keyspace::{Conditions, EffectSink, ExpiryMode, Held, Survey, Txn, UnixMs};
use isotherm_resp::{Args, Reply};
use isotherm_stdx::Prng;
pub use memory::Mark;

use crate::effects::pubsub::Audience;
use crate::node::Node;
use crate::observe::info::{self, Facts, Snapshot};
use crate::request::registry::Entry;
use crate::session::{Queued, Session};

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
    /// Inside EXEC, what the system says if a command of it tells that.
    pub facts: Option<&'c Facts>,
}

impl AdminCall<'_> {
    /// A transaction over what is held, for commands that also look at keys.
    pub fn txn(&mut self) -> Txn<'_, 'static> {
        Txn::new(self.held, self.conditions, self.sink)
    }

    /// A look at all partitions, for a command that reaches for each (`Reach::Each`).
    pub fn survey(&mut self) -> Survey<'_, 'static> {
        Survey::new(self.held)
    }

    /// The figures of this moment.
    pub fn snapshot(&self) -> Snapshot<'static> {
        Snapshot::new(self.node, self.now, self.facts.cloned().unwrap_or_default())
    }

    /// The same for those that look without leaving a trace: expired keys are still there, and nothing is touched.
    pub fn debug_txn(&mut self) -> Txn<'_, 'static> {
        let conditions = Conditions { expiry_mode: ExpiryMode::Keep, no_touch: true, ..self.conditions };
        Txn::new(self.held, conditions, self.sink)
    }
}

/// Whether a command of a transaction tells what only the system knows.
pub fn tells_facts(queue: &[Queued]) -> bool {
    const TELL_FACTS: [&str; 5] = ["info", "memory|stats", "memory|doctor", "memory|map", "memory|diff"];
    queue.iter().any(|queued| TELL_FACTS.contains(&&*queued.command.name))
}

/// Asks the system for a transaction with these commands, before anything is locked: /proc takes its time, with the memory
/// map some ten milliseconds a gigabyte.
pub fn facts_for(node: &Node, queue: &[Queued]) -> Facts {
    let tells_map = |queued: &Queued| match &*queued.command.name {
        "info" => info::wants_map(&queued.args.args().from(1).iter().collect::<Vec<_>>()),
        name => matches!(name, "memory|map" | "memory|diff"),
    };
    Facts::ask(node, queue.iter().any(tells_map))
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
