//! State of this node's replicas, and of the log that is kept for them, as other threads see it.
//!
//! The thread that feeds replicas writes it, including the figures of each replica as they change. Others
//! read it: INFO, ROLE, WAIT, the gates.

use isotherm_keyspace::SteadyMs;
use isotherm_log::LogOffset;
use isotherm_replication::feed::FeedState;
use std::sync::atomic::{
    AtomicBool, AtomicI64, AtomicU8, AtomicU64, AtomicUsize, Ordering::Relaxed, Ordering::SeqCst,
};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use super::waits::Waits;
use crate::session::ClientShared;
use isotherm_config::{Config, Id, id};
use isotherm_runtime::time::steady_now;

/// Asks each replica for an ACK.
pub const GETACK: &[u8] = b"*3\r\n$8\r\nREPLCONF\r\n$6\r\nGETACK\r\n$1\r\n*\r\n";

#[derive(Default)]
pub struct Primary {
    /// Replicas in the order in which they came.
    replicas: Mutex<Vec<Arc<ReplicaShared>>>,
    /// The thread runs, or was begun.
    is_begun: Mutex<bool>,
    backlog: Backlog,
    pub counts: SyncCounts,
    pub waits: Waits,
    /// A client waits for ACKs: replicas are asked for one after the bytes that are sent next.
    is_ack_wanted: AtomicBool,
    /// The last request for ACKs ends here in the log.
    acks_asked_to: AtomicU64,
    /// Number of replicas that were heard of within `min-replicas-max-lag`.
    pub good_replicas: AtomicUsize,
    /// Bytes of snapshots for replicas in memory.
    pub spool_bytes: Arc<AtomicU64>,
    /// First offset and number of bytes of the log on disk, apart from the append-only file.
    pub ring_first: AtomicU64,
    pub ring_bytes: AtomicU64,
}

#[derive(Default)]
struct Backlog {
    is_kept: AtomicBool,
    /// Offset at which the log of the current history begins; the log before it is of another history.
    start: AtomicU64,
}

/// Requests for the stream since the start, by what came of them.
#[derive(Default)]
pub struct SyncCounts {
    pub full: AtomicU64,
    pub partial: AtomicU64,
    pub partial_refused: AtomicU64,
    /// To and from replicas.
    pub sent_bytes: AtomicU64,
    pub heard_bytes: AtomicU64,
}

impl SyncCounts {
    /// CONFIG RESETSTAT.
    pub fn reset(&self) {
        let SyncCounts { full, partial, partial_refused, sent_bytes, heard_bytes } = self;
        [full, partial, partial_refused, sent_bytes, heard_bytes]
            .into_iter()
            .for_each(|count| count.store(0, Relaxed));
    }
}

/// State of one replica that other threads see.
pub struct ReplicaShared {
    pub client: Arc<ClientShared>,
    /// Address at which the replica listens, as far as it has announced it.
    pub address: Box<str>,
    pub port: i64,
    pub seen: ReplicaSeen,
}

#[derive(Default)]
pub struct ReplicaSeen {
    state: AtomicU8,
    acked: AtomicU64,
    synced: AtomicU64,
    /// Moment at which it was heard of last, as a `SteadyMs`.
    heard_ms: AtomicI64,
    /// Offset in the log up to which it was sent.
    sent: AtomicU64,
}

/// The states by number.
const STATES: [FeedState; 7] = [
    FeedState::AwaitsCut,
    FeedState::AwaitsFile,
    FeedState::SendsFile,
    FeedState::Streams,
    FeedState::AwaitsAck,
    FeedState::Online,
    FeedState::Sent,
];

impl ReplicaSeen {
    pub fn note(&self, state: FeedState, acked: LogOffset, synced: LogOffset, heard: SteadyMs) {
        let number = STATES.iter().position(|other| *other == state).expect("each state has a number");
        self.state.store(number as u8, Relaxed);
        self.synced.store(synced.0, Relaxed);
        self.heard_ms.store(heard.0, Relaxed);
        self.acked.store(acked.0, SeqCst);
    }

    pub fn sent(&self) -> LogOffset {
        LogOffset(self.sent.load(Relaxed))
    }

    pub fn note_sent(&self, sent: LogOffset) {
        self.sent.store(sent.0, Relaxed);
    }

    pub fn state(&self) -> FeedState {
        STATES[usize::from(self.state.load(Relaxed))]
    }

    pub fn acked(&self) -> LogOffset {
        LogOffset(self.acked.load(SeqCst))
    }

    pub fn synced(&self) -> LogOffset {
        LogOffset(self.synced.load(Relaxed))
    }

    /// Returns how many seconds of the clock have begun since it was heard of; 0 of one that is not online.
    pub fn lag_seconds(&self, now: SteadyMs) -> i64 {
        let heard_ms = self.heard_ms.load(Relaxed);
        let lag_seconds = now.0.div_euclid(1000) - heard_ms.div_euclid(1000);
        if self.state().is_online() { lag_seconds.max(0) } else { 0 }
    }
}

impl Primary {
    /// Held for a moment only.
    pub fn replicas(&self) -> MutexGuard<'_, Vec<Arc<ReplicaShared>>> {
        self.replicas.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Begins the thread that feeds replicas, unless it was begun.
    pub fn begin_once<E>(&self, begin: impl FnOnce() -> Result<(), E>) -> Result<(), E> {
        let mut is_begun = self.is_begun.lock().unwrap_or_else(PoisonError::into_inner);
        if !*is_begun {
            begin()?;
            *is_begun = true;
        }
        Ok(())
    }

    /// Returns whether the log is kept for replicas.
    pub fn has_backlog(&self) -> bool {
        self.backlog.is_kept.load(SeqCst)
    }

    /// The log is kept from here on, or no longer.
    pub fn set_backlog(&self, start: Option<LogOffset>) {
        self.backlog.start.store(start.unwrap_or_default().0, SeqCst);
        self.backlog.is_kept.store(start.is_some(), SeqCst);
    }

    /// Returns the first place that a replica may continue from, of a log that has its bytes from `first` on.
    pub fn backlog_first(&self, first: LogOffset) -> LogOffset {
        first.max(LogOffset(self.backlog.start.load(SeqCst)))
    }

    /// Counts the replicas that were heard of within `min-replicas-max-lag`, in whole seconds as Valkey does.
    /// Threads read their configuration again where it changes whether there are enough of them.
    pub fn count_good(&self, config: &Config) -> usize {
        const LEAST: Id = id("min-replicas-to-write");
        const LAG_MAX: Id = id("min-replicas-max-lag");
        let (least, lag_max_seconds) = (config.number(LEAST), config.number(LAG_MAX));
        let now = steady_now();
        let is_good = |replica: &&Arc<ReplicaShared>| {
            let seen = &replica.seen;
            seen.state().is_online() && seen.lag_seconds(now) <= lag_max_seconds
        };
        let good = self.replicas().iter().filter(is_good).count();
        let before = self.good_replicas.swap(good, Relaxed);
        if (good as i64 >= least) != (before as i64 >= least) {
            config.touch();
        }
        good
    }

    /// An ACK is wanted of each replica. Whether the thread that asks for it has to be woken.
    pub fn want_acks(&self) -> bool {
        !self.replicas().is_empty() && !self.is_ack_wanted.swap(true, SeqCst)
    }

    /// The log has a request for ACKs that ends here.
    pub fn note_asked(&self, end: LogOffset) {
        self.acks_asked_to.store(end.0, SeqCst);
    }

    pub fn acks_asked_to(&self) -> LogOffset {
        LogOffset(self.acks_asked_to.load(SeqCst))
    }

    /// Returns whether the replica has the log to its `end`. An ACK that answers a request states the offset
    /// at which the request began. So an ACK of that offset is enough if only the request follows it and was
    /// sent to the replica.
    pub fn has_all(&self, replica: &ReplicaShared, end: LogOffset) -> bool {
        let seen = &replica.seen;
        let acked = seen.acked();
        acked == end
            || self.acks_asked_to() == end
                && seen.sent() >= end
                && acked + GETACK.len() as u64 >= end
                && acked <= end
    }

    /// Returns the replicas that lack a part of the log to its `end`.
    pub fn lagging(&self, end: LogOffset) -> Vec<Arc<ReplicaShared>> {
        self.replicas().iter().filter(|replica| !self.has_all(replica, end)).cloned().collect()
    }

    pub fn take_ack_wanted(&self) -> bool {
        self.is_ack_wanted.load(Relaxed) && self.is_ack_wanted.swap(false, SeqCst)
    }
}
