//! A handover to a replica: its plan, and how far it has come. `handover` carries it out.
//!
//! ```text
//!   NONE --FAILOVER--> WAITS --a replica has all, or FORCE--> IN_PROGRESS --the replica is the primary--> NONE
//!     <----------------------- time limit, ABORT, the replica refuses -----------------'
//! ```

use isotherm_keyspace::SteadyMs;
use isotherm_log::LogOffset;
use std::sync::atomic::{AtomicU8, Ordering::SeqCst};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use super::primary::{Primary, ReplicaShared};

#[derive(Default)]
pub struct Failover {
    phase: AtomicU8,
    plan: Mutex<Plan>,
}

/// Replica that is to be the primary, and the deadline until which it may catch up.
#[derive(Clone, Default)]
pub struct Plan {
    /// Any replica, if it is not stated.
    pub target: Option<Target>,
    pub deadline: Option<SteadyMs>,
    pub is_forced: bool,
}

/// A node, by the address that it has announced.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Target {
    pub host: String,
    pub port: u16,
}

/// Next action of a failover.
pub enum Due {
    /// The replica has the whole log, and takes over.
    Synced(Arc<ReplicaShared>),
    /// The time is over, and it takes over with what it has.
    Forced(Target),
    TimedOut,
    /// The log has grown since ACKs were asked for.
    Ask,
}

pub const NONE: u8 = 0;
pub const WAITS: u8 = 1;
pub const IN_PROGRESS: u8 = 2;

impl Failover {
    /// Returns the state as INFO shows it.
    pub fn name(&self) -> &'static str {
        match self.phase.load(SeqCst) {
            NONE => "no-failover",
            WAITS => "waiting-for-sync",
            _ => "failover-in-progress",
        }
    }

    pub fn is_under_way(&self) -> bool {
        self.phase.load(SeqCst) != NONE
    }

    /// The replica was found, and is asked.
    pub fn is_in_progress(&self) -> bool {
        self.phase.load(SeqCst) == IN_PROGRESS
    }

    /// A PING would move the end that a replica has to reach in time.
    pub fn holds_pings(&self) -> bool {
        self.is_under_way() && self.plan().deadline.is_some()
    }

    pub fn plan(&self) -> MutexGuard<'_, Plan> {
        self.plan.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Changes the phase from `from` to `to`. Returns whether it was `from`.
    pub fn change(&self, from: u8, to: u8) -> bool {
        self.phase.compare_exchange(from, to, SeqCst, SeqCst).is_ok()
    }

    /// Ends the failover. Returns the phase that it was in.
    pub fn end(&self) -> u8 {
        self.phase.swap(NONE, SeqCst)
    }

    /// Returns the next action, if there is one: a replica has the log to its `end`, the time is over, or the
    /// log has grown since ACKs were asked for.
    pub fn due(&self, primary: &Primary, end: LogOffset, now: SteadyMs) -> Option<Due> {
        if self.phase.load(SeqCst) != WAITS {
            return None;
        }
        let plan = self.plan().clone();
        if plan.deadline.is_some_and(|deadline| deadline <= now) {
            return Some(plan.target.filter(|_| plan.is_forced).map_or(Due::TimedOut, Due::Forced));
        }
        let replicas = primary.replicas();
        let is_meant = |replica: &Arc<ReplicaShared>| match &plan.target {
            Some(target) => target.is(replica),
            None => replica.seen.state().is_online(),
        };
        let synced = replicas.iter().find(|replica| is_meant(replica) && primary.has_all(replica, end));
        match synced {
            Some(replica) => Some(Due::Synced(Arc::clone(replica))),
            None if primary.acks_asked_to() != end => Some(Due::Ask),
            None => None,
        }
    }
}

impl Target {
    fn is(&self, replica: &ReplicaShared) -> bool {
        replica.address.eq_ignore_ascii_case(&self.host) && replica.port == i64::from(self.port)
    }

    /// The replica with this address.
    pub fn find(&self, primary: &Primary) -> Option<Arc<ReplicaShared>> {
        primary.replicas().iter().find(|replica| self.is(replica)).cloned()
    }
}
