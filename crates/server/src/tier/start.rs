//! The tier of a process that has `swap-mode yes`: opened before anything is loaded.

use isotherm_commands::call::ColdKey;
use isotherm_disk::{Disk, FaultyDisk};
use isotherm_keyspace::{ColdRef, Held, Want};
use std::sync::Arc;

use super::reads::{READERS, Reader};
use super::sinker::Sinker;
use super::state::{Fetched, Tier};
use super::watch::Watch;
use crate::mail::message::WorkerMessage;
use crate::node::Node;
use crate::observe::latency::monitor::{Event, Spikes};
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
    let disk: Arc<dyn Disk> = Arc::new(FaultyDisk::new(disk, Arc::clone(&node.debug.swap_troubles)));
    let (tier, log) = Tier::open(disk, &folder, bytes, config.swap_cache_bytes(), &node.keyspace)?;
    tier.set_read_timeout(config.swap_read_timeout());
    node.cold.set_disk(Arc::clone(&tier));
    let why = |error: std::io::Error| format!("Can't start a thread of swap-mode: {}", os_text(&error));
    start_readers(node, &tier).map_err(why)?;
    routines::start("swap-watch", Watch::new(node, Arc::clone(&tier))).map_err(why)?;
    routines::start("swap-writer", Sinker::new(node, tier, log)).map_err(why)?;
    log::warning(format!(
        "WARNING: swap-mode is new. What is used least lies in '{}' when memory is short, at most {} MB. They are durable by \
         the append-only file or RDB files alone: this folder is emptied at start.",
        folder.display(),
        bytes >> 20
    ));
    Ok(())
}

/// What the threads do that read.
struct TierReader {
    node: &'static Node,
    tier: Arc<Tier<WorkerMessage>>,
}

impl Reader<Fetched> for TierReader {
    fn read_key(&self, cold: &ColdKey) -> Option<Fetched> {
        let spikes = Spikes { monitor: &self.node.latency, config: &self.node.config };
        spikes.time(Event::SwapRead, || self.tier.read_key(&self.node.keyspace, cold))
    }

    fn read_at(&self, reference: ColdRef, key: &[u8]) -> Option<Vec<u8>> {
        let spikes = Spikes { monitor: &self.node.latency, config: &self.node.config };
        spikes.time(Event::SwapRead, || self.tier.read_again(reference, key).ok())
    }

    fn probe(&self) {
        self.tier.probe();
    }
}

/// Threads that read what others wait for. They end with the process.
fn start_readers(node: &'static Node, tier: &Arc<Tier<WorkerMessage>>) -> std::io::Result<()> {
    for number in 0..READERS {
        let reader = TierReader { node, tier: Arc::clone(tier) };
        std::thread::Builder::new().name(format!("swap-read-{number}")).spawn(move || {
            loop {
                let Some(done) = reader.tier.reads.help(&reader) else { continue };
                let end = done.end(|cold, fetched| {
                    let mut held = Held::new(&node.keyspace);
                    held.acquire(Want::One(node.keyspace.partition_of(node.keyspace.key(&cold.key).slot)));
                    reader.tier.hand_over(&mut held, cold, fetched);
                });
                if let Some((worker, message)) = end {
                    node.mail.post(usize::from(worker), message);
                }
            }
        })?;
    }
    Ok(())
}
