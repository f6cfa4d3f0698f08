//! Clusters: what a client that follows redirects knows of one (`topology`), and the cluster manager
//! (`--cluster`).
//!
//! ```text
//!   choices          the options
//!   slots, node      what CLUSTER NODES says
//!   plan/            state in, steps out; no connection          tested with states of all kinds
//!   link, roster     a node, all nodes                           connections
//!   checking, repair, moving, joining, survey, progress          carry out, and show
//!   commands/        create, check, ..: the order of all that
//! ```
//! Lines, questions and exit codes are those of valkey-cli, since scripts look for them. A command that is
//! cut anywhere leaves a state that `fix` repairs.

pub mod topology;

pub mod choices;
pub mod say;

pub mod node;
pub mod slots;

pub mod plan;

pub mod link;
pub mod roster;

mod checking;
mod joining;
mod moving;
mod progress;
mod repair;
mod survey;

mod commands;

use std::time::Duration;

use crate::Fallible;
use crate::options::Options;
use choices::Choices;
use commands::rebalance::Manner;
use commands::{add_delete, backup, call, check, create, help, import, rebalance, reshard};
use link::Way;

/// A node may be silent for as long as a MIGRATE takes that waits twice, and so much more.
const PATIENCE: Duration = Duration::from_secs(60);

/// Command, least number of arguments, and most.
const COMMANDS: [(&str, usize, usize); 13] = [
    ("create", 1, usize::MAX),
    ("check", 1, usize::MAX),
    ("info", 1, usize::MAX),
    ("fix", 1, usize::MAX),
    ("reshard", 1, usize::MAX),
    ("rebalance", 1, usize::MAX),
    ("add-node", 2, 2),
    ("del-node", 2, 2),
    ("call", 2, usize::MAX),
    ("set-timeout", 2, 2),
    ("import", 1, 1),
    ("backup", 2, 2),
    ("help", 0, usize::MAX),
];

/// Runs `--cluster`. Returns the exit code.
pub fn run(options: &Options) -> Fallible<i32> {
    let choices = &options.manager;
    let Some((name, least, most)) = COMMANDS.iter().find(|(name, ..)| *name == choices.command) else {
        return Err("Unknown --cluster subcommand".to_string());
    };
    if !(*least..=*most).contains(&choices.args.len()) {
        return Err("[ERR] Wrong number of arguments for specified --cluster sub command".to_string());
    }
    let migrate = Duration::from_millis(choices.timeout_ms.max(0).unsigned_abs());
    let patience = PATIENCE.saturating_add(migrate.saturating_mul(2));
    let way = Way { dial: options.dial, login: options.login.clone(), patience };
    match command(name, choices, &way, options) {
        Ok(is_well) => Ok(i32::from(!is_well)),
        Err(why) => {
            if !why.is_empty() {
                say::err(why);
            }
            Ok(1)
        }
    }
}

fn command(name: &str, choices: &Choices, way: &Way, options: &Options) -> Fallible<bool> {
    match name {
        "create" => create::create(choices, way),
        "check" => check::check(choices, way),
        "info" => check::info(choices, way),
        "fix" => check::fix(choices, way),
        "reshard" => reshard::reshard(choices, way, options.verbose),
        "rebalance" => {
            let manner = Manner { verbose: options.verbose, interval: options.interval };
            rebalance::rebalance(choices, way, &manner)
        }
        "add-node" => add_delete::add(choices, way),
        "del-node" => add_delete::delete(choices, way),
        "call" => call::call(choices, way),
        "set-timeout" => call::set_timeout(choices, way),
        "import" => import::import(choices, way),
        "backup" => backup::backup(choices, way),
        _ => {
            help::help();
            Ok(true)
        }
    }
}
