//! Commands of replication.

mod failover;
mod role;
mod sync;
mod wait;

use isotherm_commands::spec::Command;

use super::{AdminCall, AdminHandler};

pub const COMMANDS: &[Command<AdminHandler>] = &[
    Command::new(failover::FAILOVER, failover::failover),
    Command::new(role::REPLICAOF, role::replicaof),
    Command::new(role::SLAVEOF, role::replicaof),
    Command::new(role::ROLE, role::role),
    Command::new(sync::REPLCONF, sync::replconf),
    Command::new(sync::PSYNC, sync::psync),
    Command::new(sync::SYNC, sync::psync),
    Command::new(wait::WAIT, wait::wait),
    Command::new(wait::WAITAOF, wait::waitaof),
];
