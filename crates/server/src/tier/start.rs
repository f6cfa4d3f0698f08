//! The tier of a process that has `swap-mode yes`: opened before anything is loaded.

use isotherm_keyspace::{Held, Want};
use std::sync::Arc;

use super::reads::READERS;
use super::sinker::Sinker;
use super::state::Tier;
use crate::mail::message::WorkerMessage;
use crate::node::Node;
use crate::process::listeners::os_text;
use crate::process::{log, routines};

/// What a disk without a limit of its own is filled to, in tenths of what is free.
const FREE_TENTHS: u64 = 9;

pub fn begin(node: &'static Node) -> Result<(), String> {
    let config = &node.config;
    if !config.swaps() {
        return Ok(());
    }
    if config.maxmemory_bytes() == 0 {
        return Err("swap-mode yes needs maxmemory: it says when values leave memory".to_string());
    }
    let folder = config.folder().join(config.swap_folder());
    let disk = Arc::clone(&node.persistence.disk);
    let bytes = match config.swap_disk_bytes() {
        0 => disk.free_bytes(&config.folder()).map_err(|error| os_text(&error))? / 10 * FREE_TENTHS,
        bytes => bytes,
    };
    let (tier, log) = Tier::open(disk, &folder, bytes, config.swap_cache_bytes(), &node.keyspace)?;
    let tier = Arc::new(tier);
    node.cold.set_disk(Arc::clone(&tier));
    let why = |error: std::io::Error| format!("Can't start a thread of swap-mode: {}", os_text(&error));
    start_readers(node, &tier).map_err(why)?;
    routines::start("swap-writer", Sinker::new(node, tier, log)).map_err(why)?;
    log::warning(format!(
        "WARNING: swap-mode is new. What is used least lies in '{}' when memory is short, at most {} MB. They are durable by \
         the append-only file or RDB files alone: this folder is emptied at start.",
        folder.display(),
        bytes >> 20
    ));
    Ok(())
}

/// Threads that read what clients wait for. They end with the process.
fn start_readers(node: &'static Node, tier: &Arc<Tier<WorkerMessage>>) -> std::io::Result<()> {
    for number in 0..READERS {
        let tier = Arc::clone(tier);
        std::thread::Builder::new().name(format!("swap-read-{number}")).spawn(move || {
            loop {
                let Some(done) = tier.reads.help(|cold| tier.read_key(&node.keyspace, cold)) else {
                    continue;
                };
                let end = done.end(|cold, fetched| {
                    let mut held = Held::new(&node.keyspace);
                    held.acquire(Want::One(node.keyspace.partition_of(node.keyspace.key(&cold.key).slot)));
                    tier.hand_over(&mut held, cold, fetched);
                });
                if let Some((worker, message)) = end {
                    node.mail.post(usize::from(worker), message);
                }
            }
        })?;
    }
    Ok(())
}
