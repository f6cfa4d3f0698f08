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

use isotherm_acl::CommandTable;
use isotherm_commands::Flags;
use isotherm_commands::spec::Command;
use std::sync::LazyLock;

use crate::observe::info::{self, Snapshot};
use isotherm_config::Config;
use isotherm_engine::request::admin_call::{AdminCall, AdminHandler, AdminTable};
use isotherm_engine::request::transaction;
use isotherm_node::Node;
use isotherm_node::observe::facts::Facts;
use isotherm_node::request::registry::Commands;
use isotherm_node::session::Queued;
use isotherm_node::users;

/// Part of the request path that is of these commands.
pub const TABLE: AdminTable = AdminTable { commands: COMMANDS, writes_config, facts_for };

/// Returns the figures of this moment.
fn snapshot(call: &AdminCall<'_>) -> Snapshot<'static> {
    Snapshot::new(call.node, call.now, call.facts.cloned().unwrap_or_default())
}

/// Returns whether a command of a transaction changes parameters.
fn writes_config(queue: &[Queued]) -> bool {
    queue.iter().any(|queued| config::writes(queued.command))
}

/// Asks the system for a transaction with these commands, before anything is locked: /proc takes its time,
/// with the memory map some ten milliseconds a gigabyte.
fn facts_for(node: &Node, queue: &[Queued]) -> Facts {
    let asks_map = |queued: &Queued| {
        let flags = queued.command.spec.flags;
        let sections = || queued.args.args().from(1).iter().collect::<Vec<_>>();
        flags.has(Flags::ASKS_MEMORY_MAP) || flags.has(Flags::ASKS_SYSTEM) && info::wants_map(&sections())
    };
    Facts::ask(&node.keyspace, queue.iter().any(asks_map))
}

/// Returns the fault of a `user` line, in the words of the configuration. It is asked before there is a node.
pub fn check_user_line(words: &[&[u8]], config: &Config) -> Result<(), String> {
    static TABLE: LazyLock<CommandTable> = LazyLock::new(|| users::command_table(&Commands::build(COMMANDS)));
    users::file::check_line(words, config, &TABLE)
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
