//! The process: arguments, then configuration, then a node that runs until it is told to end.

mod log;

mod detach;
mod logo;
mod node;
mod start;
mod start_options;
mod supervisor;
mod system;

mod control;
mod cron;
mod listeners;
mod worker;

mod clock;
mod hot;
mod hot_keys;

mod command_log;
mod latency;

mod blocking;
mod dispatch;
mod sample;
mod session;
mod shutdown;
mod transaction;
mod wanted;

mod events;
mod monitor;
mod prefetch;
mod pubsub;
mod pump;
mod registry;
mod slot_stats;
mod stats;
mod tracking;

mod client_memory;
mod compaction;
mod holds;
mod memory;
mod memory_map;
mod outside;

mod admin;
mod config;
mod info;
mod metrics;

use std::process::ExitCode;

fn main() -> ExitCode {
    let arguments: Vec<_> = std::env::args_os().skip(1).collect();
    start::run(&arguments)
}
