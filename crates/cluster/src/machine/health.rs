//! Nodes that have failed, and the ability of the cluster to serve (markNodeAsFailing,
//! clearNodeFailureIfNeeded, clusterUpdateState).
//!
//! ```text
//!   no PONG for the node timeout  -->  PFAIL, gossiped  -->  most voting primaries say so within 2 timeouts  -->  FAIL, sent to all
//! ```

use super::change::Change;
use super::node::Nodes;
use super::outputs::Outputs;
use super::slots::Slots;
use super::{Handle, Level, Ms, Now, Settings};
use crate::topology::State;
use crate::{Flags, Slot};

const REJOIN_DELAY_MAX_MS: u64 = 5000;
const REJOIN_DELAY_MIN_MS: u64 = 500;
/// A primary that has started does not serve before the others had time to say what has become of its slots.
const WRITABLE_DELAY_MS: u64 = 2000;
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

    pub fn majority(&self) -> usize {
        self.size / 2 + 1
    }

    /// Looks anew at whether the cluster can serve. Returns whether clients see a difference.
    pub fn update(
        &mut self,
        nodes: &Nodes,
        slots: &Slots,
        settings: &Settings,
        now: Now,
        outputs: &mut Outputs,
    ) -> bool {
        let first = *self.first.get_or_insert(now.ms);
        let was_ok = self.state == State::Ok;
        self.is_safe = !(nodes.my().is_primary() && !was_ok && now.ms.since(first) < WRITABLE_DELAY_MS);
        let reachable = self.count_voters(nodes);
        if !self.is_safe {
            return false;
        }
        let state = if reachable < self.majority() {
            self.minority = Some(now.ms);
            State::Minority
        } else if settings.requires_full_coverage && !is_covered(nodes, slots) {
            State::Uncovered
        } else {
            State::Ok
        };
        if state == State::Ok && !was_ok && self.is_rejoining(nodes, settings, now) {
            return false;
        }
        self.enter(state, outputs)
    }

    /// Returns how many voting nodes are within reach, and stores the number of all voting nodes in `size`.
    fn count_voters(&mut self, nodes: &Nodes) -> usize {
        let down = Flags::FAIL | Flags::PFAIL;
        let voters = || nodes.iter().filter(|(_, node)| node.votes());
        let reachable = voters().filter(|(_, node)| !node.flags.has(down)).count();
        self.size = voters().count();
        reachable
    }

    /// A primary that was cut off with few others waits to hear what has become of its slots.
    fn is_rejoining(&self, nodes: &Nodes, settings: &Settings, now: Now) -> bool {
        let delay_ms = settings.node_timeout_ms.clamp(REJOIN_DELAY_MIN_MS, REJOIN_DELAY_MAX_MS);
        nodes.my().is_primary() && self.minority.is_some_and(|at| now.ms.since(at) < delay_ms)
    }

    /// Returns whether the state is another than before.
    fn enter(&mut self, state: State, outputs: &mut Outputs) -> bool {
        let (was, is) = (self.state == State::Ok, state == State::Ok);
        if was != is {
            let (level, word) = if is { (Level::Notice, "ok") } else { (Level::Warning, "fail") };
            outputs.say(level, format!("Cluster state changed: {word}"));
        }
        let why = match state {
            State::Uncovered => Some(
                "At least one hash slot is not served by any available node. \
                 Please check the 'cluster-require-full-coverage' configuration.",
            ),
            State::Minority => Some("I am part of a minority partition."),
            State::Ok | State::Waiting => None,
        };
        if let Some(why) = why.filter(|_| self.reason != Some(state)) {
            outputs.say(Level::Warning, format!("Cluster is currently down: {why}"));
        }
        self.reason = why.map(|_| state);
        std::mem::replace(&mut self.state, state) != state
    }
}

fn is_covered(nodes: &Nodes, slots: &Slots) -> bool {
    Slot::all().all(|slot| slots.owner(slot).is_some_and(|owner| !nodes[owner].flags.has(Flags::FAIL)))
}

impl Change<'_> {
    pub fn mark_failed(&mut self, node: Handle, now: Now) {
        let failed = &mut self.nodes[node];
        failed.flags.set(Flags::FAIL);
        failed.flags.clear(Flags::PFAIL);
        failed.failed = now.ms;
        if self.nodes.my().primary == Some(node) {
            self.nodes.my_mut().flags.set(Flags::MY_PRIMARY_FAIL);
        }
        self.todo.save();
        self.todo.update_state = true;
    }

    /// Marks a node as failed if most voting primaries report it. Returns whether it was marked, which others
    /// are to hear.
    pub fn mark_failed_if_agreed(&mut self, node: Handle, majority: usize, now: Now) -> bool {
        let valid_ms = self.settings.report_valid_ms();
        let own = usize::from(self.nodes.my().votes());
        let failing = &mut self.nodes[node];
        if !failing.flags.has(Flags::PFAIL) || failing.flags.has(Flags::FAIL) {
            return false;
        }
        if failing.count_reports(valid_ms, now.ms) + own < majority {
            return false;
        }
        self.outputs.notice(format!("Marking node {} as failing (quorum reached).", self.name(node)));
        self.mark_failed(node, now);
        true
    }

    /// A node that is marked as failed has answered.
    pub fn clear_failure_if_due(&mut self, node: Handle, now: Now) {
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
        self.outputs.notice(format!("Clear FAIL state for node {}: {why}.", self.name(node)));
        self.nodes[node].flags.clear(Flags::FAIL);
        if self.nodes.my().primary == Some(node) {
            self.nodes.my_mut().flags.clear(Flags::MY_PRIMARY_FAIL);
        }
        self.todo.save();
        self.todo.update_state = true;
    }
}
