//! Parts of the log that are kept for replicas, and their places.
//!
//! ```text
//!   offset      ring.first           kept.from           end - repl-backlog-size        end
//!               [ ring, on disk      ][ in memory, to be looked at ][ in memory          ]
//!                     ^ a slow replica             ^ needed           ^ others
//! ```
//! `repl-backlog-size` bytes stay in memory. The part that leaves memory goes to the ring if a replica may
//! lack it: one that is connected and has not acknowledged it, or one that left less than `repl-backlog-ttl`
//! ago. The courier writes it, and memory keeps it until that is done. Without a ring, or where the disk
//! refuses it or does not answer, memory keeps the part that connected replicas lack, as Valkey does, and
//! `client-output-buffer-limit replica` bounds that.

use isotherm_disk::File;
use isotherm_log::{LogOffset, ReaderKind};
use std::io;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::time::{Duration, Instant};

use super::attach::BACKLOG_BYTES;
use super::replica::Replica;
use super::{Feeder, Kept};
use crate::replication::full_sync::Source;
use crate::replication::spool::Spool;
use isotherm_config::{Id, id};
use isotherm_runtime::log::{self, os_text};

/// Bytes that are looked at, and written to the ring, at once.
const STEP_BYTES: u64 = 1 << 20;
/// Replicas that left and are remembered.
const DEPARTED_MAX: usize = 64;
/// Maximum of bytes that one job writes. The log keeps them in memory meanwhile.
const WRITE_BYTES_MAX: u64 = 8 << 20;
/// Time after which a disk that has refused the ring is tried again.
const REFUSED_REST: Duration = Duration::from_secs(1);
/// A write that takes longer is not waited for: memory would grow meanwhile.
const WRITE_PATIENCE: Duration = Duration::from_secs(2);

/// A replica that has left, and may come back.
pub struct Departed {
    address: Box<str>,
    port: i64,
    lacks: LogOffset,
    left: Instant,
}

impl Feeder {
    /// Gives back the parts of the log and the snapshots that no replica needs any more.
    pub(super) fn release(&mut self, end: LogOffset) {
        self.release_spools();
        let attached = || self.replicas.iter().flatten().filter(|replica| replica.needs_log());
        let Some(kept) = &self.kept else { return };
        let size = self.node.config.number(RING_BYTES) as u64;
        let pinned = attached().map(|replica| replica.at).min().unwrap_or(end).min(end);
        if let Some(since) = self.ring.writing_since() {
            if since.elapsed() > WRITE_PATIENCE {
                self.refuse_ring("the disk does not answer");
            }
            return;
        }
        let is_refused =
            self.courier.is_writing() || self.ring_refused.is_some_and(|at| at.elapsed() < REFUSED_REST);
        if size == 0 || is_refused {
            // Memory continues where the ring ends, as long as that is so.
            let from = if self.ring.is_empty() { pinned } else { pinned.max(self.ring.end()) };
            return self.advance(from.max(kept.from));
        }
        let backlog_bytes = self.node.config.number(BACKLOG_BYTES) as u64;
        let leaves = LogOffset(end.0.saturating_sub(backlog_bytes));
        if leaves.0 < kept.from.0 + STEP_BYTES.min(backlog_bytes) {
            return;
        }
        let lacked = attached()
            .map(|replica| replica.lacks())
            .chain(self.departed.iter().map(|departed| departed.lacks));
        let lacked = lacked.min().unwrap_or(end);
        if lacked >= leaves {
            self.ring.clear();
            self.publish_ring();
            return self.advance(leaves);
        }
        let from = kept.from;
        let to = leaves.min(from + WRITE_BYTES_MAX.min(size));
        let pieces = self.node.log.read(from, to).expect("it is kept");
        self.courier.write(self.ring.begin_write(size, from, pieces));
        self.publish_ring();
    }

    /// A write to the ring has come to its end: what it has written can leave memory.
    pub(super) fn note_ring_written(&mut self, generation: u64, file: io::Result<Arc<dyn File>>) {
        self.courier.note_written();
        if generation != self.ring.generation() {
            return;
        }
        match file {
            Ok(file) => {
                self.ring.written(file);
                self.advance(self.ring.end());
                self.publish_ring();
            }
            Err(error) => self.refuse_ring(&os_text(&error)),
        }
    }

    fn refuse_ring(&mut self, why: &str) {
        log::warning(format!(
            "What replicas lack of the log can't be written to disk: {why}. It stays in memory."
        ));
        self.ring.clear();
        self.ring_refused = Some(Instant::now());
        self.publish_ring();
    }

    /// A snapshot is on its way to few groups of replicas at a time: mostly to one.
    fn release_spools(&self) {
        let mut needed: Vec<(&Arc<Spool>, u64)> = Vec::new();
        for replica in self.replicas.iter().flatten() {
            let Some(Source::Spool(spool)) = replica.sync.as_ref().map(|sync| &sync.source) else { continue };
            match needed.iter_mut().find(|(other, _)| Arc::ptr_eq(other, spool)) {
                Some((_, at)) => *at = replica.sync_at().min(*at),
                None => needed.push((spool, replica.sync_at())),
            }
        }
        needed.into_iter().for_each(|(spool, at)| spool.release(at));
    }

    fn advance(&mut self, from: LogOffset) {
        if let Some(kept) = &mut self.kept
            && from > kept.from
        {
            kept.from = from;
            self.node.log.advance(kept.reader, from);
        }
    }

    pub(super) fn publish_ring(&self) {
        let primary = &self.node.replication.primary;
        primary.ring_first.store(self.ring.first().0, Relaxed);
        primary.ring_bytes.store(self.ring.end() - self.ring.first(), Relaxed);
    }

    /// The first byte of the log that can be sent.
    pub(super) fn first(&self) -> LogOffset {
        let memory = self.node.replication.primary.backlog_first(self.node.log.first());
        if self.ring.is_empty() { memory } else { memory.min(self.ring.first()) }
    }

    /// Keeps the log from `from` on, if it is still there. Returns whether it is.
    pub(super) fn keep_from(&mut self, from: LogOffset) -> bool {
        let is_in_ring = self.ring.covers(from);
        match &mut self.kept {
            None => false,
            Some(kept) if kept.from <= from || is_in_ring => true,
            Some(kept) => match self.node.log.add_reader(ReaderKind::Follower, from) {
                Ok(reader) => {
                    self.node.log.remove_reader(kept.reader);
                    *kept = Kept { reader, from };
                    // It is contiguous with memory, or nothing.
                    self.ring.clear();
                    true
                }
                Err(_) => false,
            },
        }
    }

    // ---- replicas that left ----

    pub(super) fn remember(&mut self, replica: &Replica) {
        if !replica.needs_log() || replica.feed.is_old() {
            return;
        }
        let (address, port) = (replica.shared.address.clone(), replica.shared.port);
        self.forget(&address, port);
        if self.departed.len() < DEPARTED_MAX {
            self.departed.push(Departed { address, port, lacks: replica.lacks(), left: Instant::now() });
        }
    }

    /// Forgets a replica that has come back.
    pub(super) fn forget(&mut self, address: &str, port: i64) {
        self.departed.retain(|departed| *departed.address != *address || departed.port != port);
    }

    pub(super) fn forget_lost(&mut self, ttl_seconds: u64) {
        self.departed.retain(|departed| ttl_seconds == 0 || departed.left.elapsed().as_secs() <= ttl_seconds);
    }

    // ---- what a replica may take ----

    /// Returns whether the replica takes more memory than it may. The log that memory keeps for it counts,
    /// and not the part that the ring has.
    pub(super) fn is_above_limit(&self, replica: &mut Replica, end: LogOffset) -> bool {
        if !replica.needs_log() {
            return false;
        }
        if replica.at < self.first() {
            // The ring has come round.
            return true;
        }
        let [_, limit, _] = self.node.config.output_limits();
        let backlog_bytes = self.node.config.number(BACKLOG_BYTES) as u64;
        let bytes = end.0.saturating_sub(replica.at.max(self.node.log.first()).0);
        // The backlog is kept anyway.
        let above = |limit_bytes: u64| limit_bytes > 0 && bytes > limit_bytes.max(backlog_bytes + STEP_BYTES);
        match above(limit.soft_bytes) {
            true => _ = replica.soft_since.get_or_insert_with(Instant::now),
            false => replica.soft_since = None,
        }
        let patience = Duration::from_secs(limit.soft_seconds);
        above(limit.hard_bytes) || replica.soft_since.is_some_and(|since| since.elapsed() > patience)
    }
}

pub const RING_BYTES: Id = id("repl-backlog-disk-size");
