//! Commands that belong to a cluster, for those who ask whether this is one: valkey-cli sends READONLY before it looks for
//! big keys, and goes on only if it is told that there is no cluster.

use isotherm_commands::Outcome;
use isotherm_commands::spec::Command;
use isotherm_resp::errors;

use super::{AdminCall, AdminHandler, specs};

pub const COMMANDS: &[Command<AdminHandler>] = &[
    Command::new(specs::ASKING, no_cluster),
    Command::new(specs::READONLY, no_cluster),
    Command::new(specs::READWRITE, no_cluster),
];

fn no_cluster(call: &mut AdminCall<'_>) -> Outcome {
    call.reply.error(errors::CLUSTER_DISABLED);
    Outcome::Done
}
