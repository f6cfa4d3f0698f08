//! Sources of the bytes of a snapshot as it is loaded: the file that it was received into, or the connection.

use isotherm_replication::link::{Input, Phase, Position};
use std::collections::VecDeque;
use std::io::{self, Read, Write};
use std::path::Path;
use std::sync::atomic::Ordering::Relaxed;
use std::time::{Duration, Instant};

use super::LinkThread;
use crate::replication::sync::{self, Snapshot, Why};
use isotherm_config::{Id, id};
use isotherm_durability::aof::switch::Received;
use isotherm_durability::persistence::load;
use isotherm_durability::persistence::load::{FilePortions, LoadFailure, Portions};
use isotherm_node::Node;
use isotherm_runtime::log;

/// Bytes that have come of a snapshot which is loaded from the socket, and that were not read yet.
#[derive(Default)]
pub struct Arrived {
    pub bytes: VecDeque<u8>,
    /// All of it has come; the number says how many of the last bytes are no part of it.
    pub mark_bytes: Option<usize>,
}

pub fn loads_from_socket(node: &Node, position: Position) -> bool {
    const LOADS: Id = id("repl-diskless-load");
    // COMPAT(replication): With `repl-diskless-load swapdb` a snapshot is received into a file, while the
    // former data is served, and then loaded as with `disabled`: clients get -LOADING meanwhile. Why: two
    // data sets need not fit into memory.
    const ON_EMPTY_DB: i64 = 1;
    const FLUSH_BEFORE_LOAD: i64 = 3;
    match node.config.number(LOADS) {
        // A snapshot that may have to be refused is looked at first.
        _ if sync::refuses_empty(node, position) => false,
        FLUSH_BEFORE_LOAD => true,
        ON_EMPTY_DB => !node.keyspace.has_keys(),
        _ => false,
    }
}

/// The connection to the primary, as a snapshot comes from it.
pub struct FromSocket<'t> {
    pub thread: &'t mut LinkThread,
}

impl FromSocket<'_> {
    fn arrived(&mut self) -> &mut Arrived {
        self.thread.arrived.get_or_insert_default()
    }

    /// Waits until `count` bytes are there, or nothing more comes. Returns an error if the link is gone.
    fn wait_for(&mut self, count: usize) -> io::Result<()> {
        while self.arrived().bytes.len() < count && self.arrived().mark_bytes.is_none() {
            let thread = &mut *self.thread;
            if thread.link.phase() != Phase::Transfer || !thread.is_current() {
                return Err(io::ErrorKind::ConnectionAborted.into());
            }
            thread.read();
            thread.step(Input::Tick);
        }
        Ok(())
    }

    pub fn check_magic(&mut self) -> Result<(), Why> {
        self.wait_for(load::MAGIC_BYTES).map_err(|_| Why::Unusable)?;
        let head: Vec<u8> = self.arrived().bytes.iter().copied().take(load::MAGIC_BYTES).collect();
        let is_strict = self.thread.node.config.checks_rdb_version();
        load::check_magic(&head, &self.name(), is_strict).map_err(|LoadFailure(lines)| {
            lines.iter().for_each(log::warning);
            log::notice(
                "PRIMARY <-> REPLICA sync: RDB version or signature incompatible, old data preserved",
            );
            Why::Unusable
        })
    }
}

impl Portions for FromSocket<'_> {
    fn read(&mut self, room: &mut [u8]) -> io::Result<usize> {
        self.thread.is_followed()?;
        self.wait_for(1)?;
        // While it is being loaded, the primary sees that this node is still there.
        if self.arrived().mark_bytes.is_some() {
            self.thread.step(Input::Tick);
        }
        self.arrived().bytes.read(room)
    }

    fn bytes_total(&self) -> Option<u64> {
        u64::try_from(self.thread.node.replication.link.sync_bytes.load(Relaxed)).ok()
    }

    fn name(&self) -> String {
        "the socket".into()
    }
}

impl Snapshot for FromSocket<'_> {
    fn mark_bytes(&self) -> usize {
        self.thread.arrived.as_ref().and_then(|arrived| arrived.mark_bytes).unwrap_or(0)
    }

    fn from(&self) -> &'static str {
        "socket"
    }

    fn file(&self) -> Option<&Received> {
        None
    }
}

impl Snapshot for Beating<'_> {
    fn mark_bytes(&self) -> usize {
        0
    }

    fn from(&self) -> &'static str {
        "disk"
    }

    fn file(&self) -> Option<&Received> {
        self.received.as_ref()
    }
}

impl LinkThread {
    /// An error ends the load of what comes from a primary that is followed no longer.
    fn is_followed(&self) -> io::Result<()> {
        if self.is_current() { Ok(()) } else { Err(io::ErrorKind::ConnectionAborted.into()) }
    }

    /// `rdb-del-sync-files`: a node that keeps no data on disk keeps the primary's file no longer than it has
    /// to.
    pub fn remove_file(&self, path: &Path) {
        const REMOVES: Id = id("rdb-del-sync-files");
        const APPENDS: Id = id("appendonly");
        let (config, store) = (&self.node.config, self.node.store());
        if config.flag(REMOVES) && config.save_points().is_empty() && !config.flag(APPENDS) {
            log::notice(
                "Removing the RDB file obtained from the primary. This replica has persistence disabled",
            );
            let _ = store.state.disk.remove(path);
        }
    }
}

/// The file, read by a thread that lets the primary know that it is still there.
pub struct Beating<'t> {
    pub file: FilePortions,
    /// Received file, if it holds the snapshot alone and is durable.
    pub received: Option<Received>,
    pub thread: &'t mut LinkThread,
    pub beaten: Instant,
}

impl Portions for Beating<'_> {
    fn read(&mut self, room: &mut [u8]) -> io::Result<usize> {
        self.thread.is_followed()?;
        if self.beaten.elapsed() >= Duration::from_secs(1) {
            self.beaten = Instant::now();
            if let Some(socket) = &mut self.thread.socket {
                // If it fails, the next read says so.
                let _ = socket.stream.write_all(b"\n");
            }
        }
        self.file.read(room)
    }

    fn bytes_total(&self) -> Option<u64> {
        self.file.bytes_total()
    }

    fn name(&self) -> String {
        self.file.name()
    }
}
