//! What other threads see of replication: the role, the history, the link.
//!
//! The mutex is held for moments. What commands ask is beside it: `Tasks::REPLICA` says whether the node follows another, and
//! changes only while everything is held (`role`).

use isotherm_replication::{History, ReplId};
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::{Mutex, MutexGuard, PoisonError};

use crate::config::{Config, Id, id};

pub struct Replication {
    state: Mutex<State>,
    /// The link to the primary is up: what this node has is what the primary had a moment ago.
    is_link_up: AtomicBool,
}

pub struct State {
    pub history: History,
    pub role: Role,
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
        let state = State { history: History::new(ReplId::new(name)), role: Role::Primary };
        Replication { state: Mutex::new(state), is_link_up: AtomicBool::new(false) }
    }

    /// Held for a moment only.
    pub fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Clients of a replica get no data while its link is down (`replica-serve-stale-data no`). Asked when the configuration is
    /// cached, so what changes the link's state makes a new generation of it.
    pub fn refuses_stale_reads(&self, config: &Config) -> bool {
        const SERVES_STALE: Id = id("replica-serve-stale-data");
        !config.flag(SERVES_STALE) && !self.is_link_up.load(Relaxed)
    }

    /// The caller makes a new generation of the configuration.
    pub fn set_link_up(&self, is_up: bool) {
        self.is_link_up.store(is_up, Relaxed);
    }
}
