//! Nodes that have failed, and the ability of the cluster to serve (markNodeAsFailing,
//! clearNodeFailureIfNeeded, clusterUpdateState).
//!
//! ```text
//!   no PONG for the node timeout  -->  PFAIL, gossiped  -->  most voting primaries say so within 2 timeouts  -->  FAIL, sent to all
//! ```

use super::{Handle, Level, Machine, Ms, Now};
use crate::topology::State;
use crate::wire::Body;
use crate::{Flags, Slot};

const REJOIN_DELAY_MAX_MS: u64 = 5000;
const REJOIN_DELAY_MIN_MS: u64 = 500;
/// A primary that has started does not serve before the others had time to say what has become of its slots.
const WRITABLE_DELAY_MS: u64 = 2000;
/// Number of node timeouts for which a report of a failure counts.
const REPORT_TIMEOUTS: u64 = 2;
/// Number of node timeouts after which a primary that is back is taken as alive, if its slots are still its
/// own.
const UNDO_TIMEOUTS: u64 = 2;

pub(super) struct Health {
    pub state: State,
    /// Why it last failed, for the log.
    reason: Option<State>,
    /// Time at which the state was first evaluated.
    first: Option<Ms>,
    minority: Option<Ms>,
    /// Primaries with slots.
    pub size: usize,
    /// True if this node may vote.
    pub is_safe: bool,
    /// Number of nodes that are PFAIL. A ping carries all of them.
    pub pfail_count: usize,
}

impl Health {
    pub fn new() -> Health {
        Health {
            state: State::Waiting,
            reason: None,
            first: None,
            minority: None,
            size: 0,
            is_safe: false,
            pfail_count: 0,
        }
    }

    fn majority(&self) -> usize {
        self.size / 2 + 1
    }
}

impl Machine {
    /// Records that `sender` reports `failing` as failing. Returns whether the report is a new one.
    pub(super) fn add_report(&mut self, failing: Handle, sender: Handle, now: Now) -> bool {
        if self.nodes[failing].flags.has(Flags::FAIL) {
            return false;
        }
        let reports = &mut self.nodes[failing].reports;
        match reports.iter_mut().find(|(node, _)| *node == sender) {
            Some((_, at)) => {
                *at = now.ms;
                false
            }
            None => {
                reports.push((sender, now.ms));
                true
            }
        }
    }

    pub(super) fn remove_report(&mut self, failing: Handle, sender: Handle) -> bool {
        let reports = &mut self.nodes[failing].reports;
        let count = reports.len();
        reports.retain(|(node, _)| *node != sender);
        reports.len() < count
    }

    pub(super) fn count_reports(&mut self, node: Handle, now: Now) -> usize {
        let valid_ms = self.settings.node_timeout_ms.saturating_mul(REPORT_TIMEOUTS);
        let reports = &mut self.nodes[node].reports;
        reports.retain(|(_, at)| now.ms.since(*at) < valid_ms);
        reports.len()
    }

    pub(super) fn mark_failed(&mut self, node: Handle, now: Now) {
        let failed = &mut self.nodes[node];
        failed.flags.set(Flags::FAIL);
        failed.flags.clear(Flags::PFAIL);
        failed.failed = now.ms;
        if self.my().primary == Some(node) {
            self.my_mut().flags.set(Flags::MY_PRIMARY_FAIL);
        }
        self.todo.save();
        self.todo.update_state = true;
    }

    pub(super) fn mark_failed_if_agreed(&mut self, node: Handle, now: Now) {
        if !self.nodes[node].flags.has(Flags::PFAIL) || self.nodes[node].flags.has(Flags::FAIL) {
            return;
        }
        let reports = self.count_reports(node, now) + usize::from(self.my().votes());
        if reports < self.health.majority() {
            return;
        }
        self.notice(format!("Marking node {} as failing (quorum reached).", self.name(node)));
        self.mark_failed(node, now);
        self.broadcast(Body::Fail(self.nodes[node].id));
    }

    /// A node that is marked as failed has answered.
    pub(super) fn clear_failure_if_due(&mut self, node: Handle, now: Now) {
        let is_old = now.ms.since(self.nodes[node].failed)
            > self.settings.node_timeout_ms.saturating_mul(UNDO_TIMEOUTS);
        let why = match &self.nodes[node] {
            failed if failed.votes() && is_old => {
                "is reachable again and nobody is serving its slots after some time"
            }
            failed if failed.votes() => return,
            failed if failed.is_replica() => "replica is reachable again",
            _ => "primary without slots is reachable again",
        };
        self.notice(format!("Clear FAIL state for node {}: {why}.", self.name(node)));
        self.nodes[node].flags.clear(Flags::FAIL);
        if self.my().primary == Some(node) {
            self.my_mut().flags.clear(Flags::MY_PRIMARY_FAIL);
        }
        self.todo.save();
        self.todo.update_state = true;
    }

    pub(super) fn update_state(&mut self, now: Now) {
        self.todo.update_state = false;
        let first = *self.health.first.get_or_insert(now.ms);
        let was_ok = self.health.state == State::Ok;
        if self.my().is_primary() && !was_ok && now.ms.since(first) < WRITABLE_DELAY_MS {
            self.health.is_safe = false;
            self.count_voters();
            return;
        }
        self.health.is_safe = true;
        let reachable = self.count_voters();
        let state = if reachable < self.health.majority() {
            self.health.minority = Some(now.ms);
            State::Minority
        } else if self.settings.requires_full_coverage && !self.is_covered() {
            State::Uncovered
        } else {
            State::Ok
        };
        if state == State::Ok && !was_ok && self.is_rejoining(now) {
            return;
        }
        self.enter(state);
    }

    /// Returns how many voting nodes are within reach, and stores the number of all voting nodes in `size`.
    fn count_voters(&mut self) -> usize {
        let down = Flags::FAIL | Flags::PFAIL;
        let voters = || self.nodes.iter().filter(|(_, node)| node.votes());
        let reachable = voters().filter(|(_, node)| !node.flags.has(down)).count();
        self.health.size = voters().count();
        reachable
    }

    fn is_covered(&self) -> bool {
        Slot::all()
            .all(|slot| self.owner(slot).is_some_and(|owner| !self.nodes[owner].flags.has(Flags::FAIL)))
    }

    /// A primary that was cut off with few others waits to hear what has become of its slots.
    fn is_rejoining(&self, now: Now) -> bool {
        let delay_ms = self.settings.node_timeout_ms.clamp(REJOIN_DELAY_MIN_MS, REJOIN_DELAY_MAX_MS);
        self.my().is_primary() && self.health.minority.is_some_and(|at| now.ms.since(at) < delay_ms)
    }

    fn enter(&mut self, state: State) {
        let (was, is) = (self.health.state == State::Ok, state == State::Ok);
        if was != is {
            let (level, word) = if is { (Level::Notice, "ok") } else { (Level::Warning, "fail") };
            self.say(level, format!("Cluster state changed: {word}"));
        }
        let why = match state {
            State::Uncovered => Some(
                "At least one hash slot is not served by any available node. \
                 Please check the 'cluster-require-full-coverage' configuration.",
            ),
            State::Minority => Some("I am part of a minority partition."),
            State::Ok | State::Waiting => None,
        };
        if let Some(why) = why.filter(|_| self.health.reason != Some(state)) {
            self.say(Level::Warning, format!("Cluster is currently down: {why}"));
        }
        self.health.reason = why.map(|_| state);
        if self.health.state != state {
            self.health.state = state;
            self.todo.view = true;
        }
    }
}
