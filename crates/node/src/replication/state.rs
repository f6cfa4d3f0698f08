//! State of replication that other threads see: the role, the history, the link.
//!
//! The mutex is held for moments. Commands do not need it: `Tasks::REPLICA` says whether the node follows
//! another, and changes only while everything is held (`role`).

use isotherm_log::{Log, LogOffset};
use isotherm_replication::link::Position;
use isotherm_replication::{History, ReplId};
use std::sync::atomic::Ordering::{AcqRel, Acquire, Relaxed, Release};
use std::sync::atomic::{AtomicBool, AtomicU64};
use std::sync::{Mutex, MutexGuard, PoisonError};

use super::failover::Failover;
use super::link_view::LinkView;
use super::own_keys::OwnKeys;
use super::primary::Primary;
use isotherm_config::{Config, Id, id};
use isotherm_runtime::routines;

pub struct Replication {
    state: Mutex<State>,
    /// The link to the primary is up: what this node has is what the primary had a moment ago.
    is_link_up: AtomicBool,
    /// Moves with each change of the primary that is followed, while everything is held: what was begun for
    /// the one before has no more effect.
    generation: AtomicU64,
    /// Successor of the generation whose link was begun last: each has one link.
    link_begun: AtomicU64,
    /// Held by the link whose primary's snapshot takes the place of the data.
    installing: Mutex<()>,
    /// The node's own files are loaded. A link begins after that.
    is_starting: AtomicBool,
    pub link: LinkView,
    /// Keys that this node expires by itself although it is a replica.
    pub own_keys: OwnKeys,
    /// State of this node as a primary: its replicas.
    pub primary: Primary,
    pub failover: Failover,
}

/// A place in a history of changes.
#[derive(Clone, Copy, Debug)]
pub struct Place {
    pub id: ReplId,
    pub offset: LogOffset,
    /// The database that commands after it are for, until the first SELECT.
    pub db: u32,
}

pub struct State {
    pub history: History,
    pub role: Role,
    /// The data is that of the history at the end of the log: a primary may be asked to continue from there.
    pub has_position: bool,
    /// The data came from the primary that is followed now.
    pub is_synced: bool,
}

pub enum Role {
    Primary,
    Replica(Upstream),
}

/// The primary that is followed.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Upstream {
    pub host: String,
    pub port: u16,
}

impl Replication {
    /// A node that follows none, under a name of its own.
    pub fn new(name: [u8; ReplId::LEN / 2]) -> Replication {
        let state = State {
            history: History::new(ReplId::new(name)),
            role: Role::Primary,
            has_position: false,
            is_synced: false,
        };
        Replication {
            state: Mutex::new(state),
            is_link_up: AtomicBool::new(false),
            generation: AtomicU64::new(0),
            link_begun: AtomicU64::default(),
            installing: Mutex::new(()),
            is_starting: AtomicBool::default(),
            link: LinkView::default(),
            own_keys: OwnKeys::default(),
            primary: Primary::default(),
            failover: Failover::default(),
        }
    }

    /// Held for a moment only.
    pub fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The primary that is followed, if one is.
    pub fn upstream(&self) -> Option<Upstream> {
        match &self.state().role {
            Role::Primary => None,
            Role::Replica(upstream) => Some(upstream.clone()),
        }
    }

    /// The error that sends a client to the primary.
    pub fn redirection(&self) -> Option<String> {
        self.upstream().map(|upstream| format!("REDIRECT {}:{}", upstream.host, upstream.port))
    }

    pub fn generation(&self) -> u64 {
        self.generation.load(Acquire)
    }

    /// Returns whether the link of this generation is to begin now, and notes that it does. The thread that
    /// has loaded the files asks again.
    pub fn begins_link(&self, generation: u64) -> bool {
        !self.is_starting.load(Acquire) && self.link_begun.fetch_max(generation + 1, AcqRel) <= generation
    }

    /// Waits until no link loads a snapshot. The caller holds nothing. A superseded link ends its load when
    /// it has read the next portion.
    pub fn installing(&self) -> MutexGuard<'_, ()> {
        routines::lock(&self.installing)
    }

    pub fn set_starting(&self, is_starting: bool) {
        self.is_starting.store(is_starting, Release);
    }

    /// Another primary is followed from now on, or none. Everything is held.
    pub fn begin_generation(&self) -> u64 {
        self.generation.fetch_add(1, Release) + 1
    }

    /// Returns the place in the history at the end of the log, if others may continue from there. Everything
    /// is held; the log after it begins with its SELECT.
    pub fn place(&self, log: &Log) -> Option<Place> {
        let state = self.state();
        let (is_of_use, db) = match state.role {
            Role::Primary => (self.primary.has_backlog(), 0),
            Role::Replica(_) => (state.has_position, log.stream_database()),
        };
        is_of_use.then(|| Place { id: state.history.id(), offset: log.cut(false), db })
    }

    /// Clients of a replica get no data while its link is down (`replica-serve-stale-data no`). Asked when
    /// the configuration is cached, so what changes the link's state makes a new generation of it.
    pub fn refuses_stale_reads(&self, config: &Config) -> bool {
        const SERVES_STALE: Id = id("replica-serve-stale-data");
        !config.flag(SERVES_STALE) && !self.is_link_up.load(Relaxed)
    }

    pub fn is_link_up(&self) -> bool {
        self.is_link_up.load(Relaxed)
    }

    /// The caller makes a new generation of the configuration.
    pub fn set_link_up(&self, is_up: bool) {
        self.is_link_up.store(is_up, Relaxed);
    }
}

impl State {
    /// Returns the position from which a primary is asked to continue; `end` is the end of the log.
    pub fn position(&self, end: isotherm_log::LogOffset) -> Option<Position> {
        self.has_position.then(|| Position { id: self.history.id(), end })
    }
}
