//! Memory that the node uses for replicas, in INFO and in the memory map.

use std::sync::atomic::Ordering::Relaxed;

use isotherm_config::{Id, id};
use isotherm_node::Node;

/// Bytes by purpose.
pub struct Buffers {
    /// The bytes of the log, if they are kept for replicas.
    pub log: u64,
    /// Bytes of `log` that are within `repl-backlog-size`.
    pub backlog: u64,
    /// Snapshots on their way.
    pub spools: u64,
    /// The keys that a writable replica expires itself.
    pub own_keys: u64,
}

impl Buffers {
    pub fn of(node: &Node) -> Buffers {
        const BACKLOG_BYTES: Id = id("repl-backlog-size");
        let primary = &node.replication.primary;
        let log = if primary.has_backlog() { node.log.memory_bytes() } else { 0 };
        let backlog = log.min(node.config.number(BACKLOG_BYTES) as u64);
        let own_keys = node.replication.own_keys.used_bytes();
        Buffers { log, backlog, spools: primary.spool_bytes.load(Relaxed), own_keys }
    }

    pub fn total(&self) -> u64 {
        self.log + self.spools + self.own_keys
    }

    /// Returns the bytes apart from the backlog.
    pub fn of_replicas(&self) -> u64 {
        self.log + self.spools - self.backlog
    }

    // COMPAT(observability): `mem_aof_buffer` and `aof.buffer` are 0 while there is a backlog, and with
    // `mem_clients_slaves` the snapshots on their way to replicas are counted. Why: the append-only file and
    // replicas read the same bytes of the log.
    /// The log, where no replica reads it.
    pub fn of_aof(&self, node: &Node) -> u64 {
        node.log.memory_bytes().saturating_sub(self.log)
    }
}
