//! Commands of the session and of the server: what is not about keys alone.

mod acl;
pub mod client;
mod cluster;
mod command;
mod command_log;
mod config;
pub mod connection;
mod debug;
mod errand;
mod hot_keys;
mod latency;
mod memory;
mod migrate;
mod module;
mod monitor;
mod persistence;
mod pubsub;
mod replication;
mod scan_cluster;
pub mod scripting;
mod server;
mod slot_stats;
mod swap;

use isotherm_commands::spec::Command;
use isotherm_commands::{Flags, Outcome};
use isotherm_keyspace::{Conditions, ExpiryMode, Survey, Txn, UnixMs};
use isotherm_resp::{Args, Reply};

use crate::effects::pubsub::Audience;
use crate::node::Node;
use crate::observe::facts::Facts;
use crate::observe::info::{self, Snapshot};
use crate::request::entry::Entry;
use crate::request::execute::Exec;
use crate::request::transaction;
use crate::session::{Queued, Session};
use crate::users::sight::Sight;

pub type AdminHandler = fn(&mut AdminCall<'_>) -> Outcome;

/// Call of a session or server command.
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
    /// State of the worker. Partitions that the declaration asked for (key specs, `Reach::All`) are locked.
    pub exec: &'c mut Exec,
    /// Subscriptions of this worker's clients.
    pub audience: &'c mut Audience,
    /// Inside EXEC, what the system says if a command of it reports that.
    pub facts: Option<&'c Facts>,
    /// EXEC runs others.
    pub handlers: &'c [Option<AdminHandler>],
}

impl AdminCall<'_> {
    /// A transaction over what is held, for commands that also look at keys.
    pub fn txn(&mut self) -> Txn<'_, 'static> {
        Txn::new(&mut self.exec.held, self.conditions, &mut self.exec.pump)
    }

    /// A look at all partitions, for a command that reaches for each (`Reach::Each`).
    pub fn survey(&mut self) -> Survey<'_, 'static> {
        Survey::new(&mut self.exec.held)
    }

    /// The rows of a report about keys that its reader may see.
    pub fn sight(&self) -> Sight<'_> {
        Sight::new(self.node, &self.session.user, self.command)
    }

    /// The figures of this moment.
    pub fn snapshot(&self) -> Snapshot<'static> {
        Snapshot::new(self.node, self.now, self.facts.cloned().unwrap_or_default())
    }

    /// Returns a transaction over the held partitions that leaves no trace: it still finds expired keys, and
    /// marks none as used.
    pub fn debug_txn(&mut self) -> Txn<'_, 'static> {
        let conditions = Conditions { expiry_mode: ExpiryMode::Keep, no_touch: true, ..self.conditions };
        Txn::new(&mut self.exec.held, conditions, &mut self.exec.pump)
    }
}

/// Returns whether a command of a transaction reports facts that only the operating system knows.
pub fn asks_system(queue: &[Queued]) -> bool {
    queue.iter().any(|queued| queued.command.spec.flags.has(Flags::ASKS_SYSTEM))
}

/// Returns whether a command of a transaction changes parameters.
pub fn writes_config(queue: &[Queued]) -> bool {
    queue.iter().any(|queued| config::writes(queued.command))
}

/// Asks the system for a transaction with these commands, before anything is locked: /proc takes its time,
/// with the memory map some ten milliseconds a gigabyte.
pub fn facts_for(node: &Node, queue: &[Queued]) -> Facts {
    let asks_map = |queued: &Queued| {
        let flags = queued.command.spec.flags;
        let sections = || queued.args.args().from(1).iter().collect::<Vec<_>>();
        flags.has(Flags::ASKS_MEMORY_MAP) || flags.has(Flags::ASKS_SYSTEM) && info::wants_map(&sections())
    };
    Facts::ask(&node.keyspace, queue.iter().any(asks_map))
}

/// Every session and server command, by group.
pub const COMMANDS: &[&[Command<AdminHandler>]] = &[
    acl::COMMANDS,
    connection::COMMANDS,
    transaction::COMMANDS,
    client::COMMANDS,
    cluster::COMMANDS,
    command::COMMANDS,
    command_log::COMMANDS,
    config::COMMANDS,
    debug::COMMANDS,
    hot_keys::COMMANDS,
    latency::COMMANDS,
    memory::COMMANDS,
    migrate::COMMANDS,
    module::COMMANDS,
    monitor::COMMANDS,
    persistence::COMMANDS,
    pubsub::COMMANDS,
    replication::COMMANDS,
    scan_cluster::COMMANDS,
    scripting::COMMANDS,
    server::COMMANDS,
    swap::COMMANDS,
];

#[cfg(test)]
mod tests;
