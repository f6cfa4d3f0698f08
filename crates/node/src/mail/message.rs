//! The messages themselves: to a worker, and to the control thread.

use isotherm_cluster::{Slot, SlotSet};
use isotherm_commands::call::ColdKeys;
use isotherm_disk::File;
use isotherm_keyspace::Waiter;
use isotherm_log::LogOffset;
use isotherm_reactor::Stream;
use isotherm_replication::feed::{Announced, SyncRequest};
use std::io;
use std::sync::{Arc, Mutex, PoisonError};

use crate::cluster::herald::News;
use crate::effects::pubsub::message::{MESSAGE_BYTES, Message, Name};
use crate::effects::tracking::changes::{Author, Changes};
use crate::mail::beat::Beat;
use crate::session::client::ClientShared;

/// An array of keys, or a null for all of them, as it is sent.
pub type Body = Arc<[u8]>;

/// Returns the bytes that a message to one session takes that carries `body`.
pub fn carried_bytes(body: &[u8]) -> usize {
    MESSAGE_BYTES + body.len()
}

/// Answer to a client whose keys did not come.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Without {
    TimedOut,
    /// CLIENT UNBLOCK ... ERROR
    Error,
    /// Answer after a wait for ACKs, which have come.
    Acknowledged,
    /// Answer after a wait for the append-only file, which is off now.
    NothingSynced,
    /// The node has begun to follow a primary.
    RoleChanged,
    /// Answer after a wait for the end of the process, which does not come.
    NoEnd,
    /// The slot of its keys is another node's from now on.
    SlotLost(Slot),
    /// The cluster that the node is a member of is down.
    ClusterDown,
}

/// A message to a worker.
pub enum WorkerMessage {
    Connect(Arc<Newcomer>),
    /// The session with this number may have been asked something (`Attention`).
    Attend {
        token: usize,
        id: u64,
    },
    /// A pause may be over, or concern fewer commands.
    PauseChanged,
    /// Undelivered messages take less memory: commands that waited for that may run.
    Drained,
    /// Reply for a client of this worker that waited for a key.
    Served {
        waiter: Arc<Waiter>,
        reply: Vec<u8>,
        /// The place in the log that the reply waits for.
        not_before: LogOffset,
        /// Offset in the log at which the change of the command ends.
        written: LogOffset,
    },
    /// More of the log is durable.
    Durable,
    /// End of a client's wait without its key.
    Unblocked {
        waiter: Arc<Waiter>,
        how: Without,
    },
    /// Request to look for the key of a waiting client: the thread that saw the key does not hold all
    /// partitions that the command needs.
    Look {
        waiter: Arc<Waiter>,
    },
    /// Scripts that took long are over, or take longer than others are to wait for.
    ScriptsChanged,
    /// SCRIPT FLUSH: an interpreter that knows the scripts from before is of no use.
    ScriptsFlushed,
    /// Values that one of yours needs, which waits for a key. It looks again when they have come.
    Fetch {
        waiter: Arc<Waiter>,
        keys: Box<ColdKeys>,
    },
    /// Threads have read for you: you look at it at the end of your turn.
    ReadsEnded,
    /// Some of yours listen to its channel, or to these patterns.
    Published {
        message: Arc<Message>,
        patterns: Box<[Name]>,
        weight_bytes: usize,
    },
    /// Line for the sessions of this worker that monitor.
    Line {
        line: Arc<[u8]>,
        weight_bytes: usize,
    },
    /// A key has changed that these have read.
    Stale {
        key: Arc<[u8]>,
        ids: Box<[u64]>,
        author: Author,
    },
    /// Keys that have changed. Sessions of this worker may have named their prefixes.
    Changes {
        changes: Arc<Changes>,
        weight_bytes: usize,
    },
    /// All keys have left.
    Flushed,
    /// Invalidation for a session to which another redirects.
    Redirected {
        token: usize,
        id: u64,
        body: Body,
    },
    /// Slots that are no longer this node's. Sessions that listen to their channels are notified.
    SlotsLost(Arc<SlotSet>),
    /// News for the sessions of this worker that get notices of slots that leave this node.
    SlotNews(Arc<News>),
    /// Request to show that the worker serves clients.
    Beat(Beat),
}

impl WorkerMessage {
    /// Returns whether it is sent to clients, after what was sent to them before. The others may overtake it.
    pub fn is_delivery(&self) -> bool {
        match self {
            WorkerMessage::Published { .. }
            | WorkerMessage::Line { .. }
            | WorkerMessage::Stale { .. }
            | WorkerMessage::Changes { .. }
            | WorkerMessage::Flushed
            | WorkerMessage::Redirected { .. }
            | WorkerMessage::SlotsLost(_)
            | WorkerMessage::SlotNews(_) => true,
            WorkerMessage::Connect(_)
            | WorkerMessage::Attend { .. }
            | WorkerMessage::PauseChanged
            | WorkerMessage::Drained
            | WorkerMessage::Served { .. }
            | WorkerMessage::Durable
            | WorkerMessage::Unblocked { .. }
            | WorkerMessage::Look { .. }
            | WorkerMessage::ScriptsChanged
            | WorkerMessage::ScriptsFlushed
            | WorkerMessage::Fetch { .. }
            | WorkerMessage::ReadsEnded
            | WorkerMessage::Beat(_) => false,
        }
    }
}

/// A connection that was accepted: of its worker as soon as that takes it, and until then of the thread that
/// accepts, which may send it to another.
pub struct Newcomer(Mutex<Option<(Stream, ClientShared)>>);

impl Newcomer {
    pub fn new(stream: Stream, shared: ClientShared) -> Arc<Newcomer> {
        Arc::new(Newcomer(Mutex::new(Some((stream, shared)))))
    }

    /// Takes it, if no other thread has.
    pub fn take(&self) -> Option<(Stream, ClientShared)> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).take()
    }

    pub fn is_taken(&self) -> bool {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).is_none()
    }
}

/// A connection that has become a replica.
pub struct Arrival {
    pub stream: Stream,
    pub client: Arc<ClientShared>,
    pub announced: Announced,
    pub request: SyncRequest,
    /// Bytes that the replica has sent after its request.
    pub input: Vec<u8>,
}

/// A message to the thread that feeds replicas.
pub enum FeederMessage {
    Attach(Box<Arrival>),
    /// The replica with this number may have been asked something (`Attention`).
    Attend {
        id: u64,
    },
    /// The log has grown, or an ACK is wanted.
    Look,
    /// Progress of a snapshot: there is more of it.
    Walked,
    /// Bytes that were read from a file for this client, or the error. `read` is the number of the read.
    Read {
        client: u64,
        read: u64,
        bytes: io::Result<Vec<u8>>,
    },
    /// Outcome of a write to the ring: the file, or the error.
    Written {
        generation: u64,
        file: io::Result<Arc<dyn File>>,
    },
    /// All replicas are to be disconnected: they come back and hear what the history is called now.
    Disconnect,
    /// The log is to be kept, with replicas or without: this node follows a primary.
    Keep(Option<std::sync::mpsc::Sender<()>>),
    /// Request to send all that sockets take, because the process ends.
    Flush(std::sync::mpsc::Sender<()>),
    /// All replicas are to be disconnected, and the log is to be released.
    LetGo(std::sync::mpsc::Sender<()>),
}

/// A message to the control thread.
pub enum ControlMessage {
    /// The access stamps are to be kept as the policy says.
    EvictionPolicy,
    /// The append-only file is to be as the configuration says.
    Aof,
    /// Replicas have come as far as was waited for.
    Look,
    /// A handover to a replica has come to its next step.
    HandOver,
    /// Request to make replies wait for what the configuration says now.
    ReplyGate,
    ShutDown,
}
