//! Replies that wait for the log to be durable, or for replicas to have it.
//!
//! ```text
//!   note_held        the connection is listed, the gate knows how many wait
//!   send_held        the log has come further (`WorkerMessage::Durable`): what waited for that is sent
//!   look_at_held     with a quorum, each 50 ms: what has waited for `repl-ack-timeout` leaves as an error
//!   let_go           the disk has been full for long, or this node is a replica now: what waited for that
//!                    leaves as an error
//! ```

use isotherm_log::LogOffset;
use std::time::{Duration, Instant};

use super::connection::{Connection, Listed};
use super::{Due, Inner};
use isotherm_config::{Id, id};
use isotherm_node::mail::message::{FeederMessage, WorkerMessage};
use isotherm_node::request::reply_gate::Part;

/// Interval of the looks for replies that have waited for replicas for too long.
const HELD_LOOK_INTERVAL: Duration = Duration::from_millis(50);
// COMPAT(replication): With `repl-ack-quorum` replies wait until so many replicas have acknowledged what they
// show; after `repl-ack-timeout` each is replaced by the error NOREPLICAS, and the change stays. Valkey has
// WAIT only, which each client has to call. Why: no answered write is lost with one machine, without a change
// in any client.
const NOT_ACKNOWLEDGED: &[u8] =
    b"-NOREPLICAS Not enough replicas acknowledged the change in time: applied, not acknowledged\r\n";
/// Refusal of a node that has become a replica: what its primary does not have is lost.
const DEMOTED: &[u8] = b"-NOREPLICAS This node is a replica now: applied, not acknowledged\r\n";

// COMPAT(persistence): Under `appendfsync always`, when the disk has been full for ten seconds, replies that
// wait for it, but errors, are replaced by the error NOTDURABLE; reads are answered, writes get MISCONF, and
// what was applied is written when there is room. Until then a reply may show what a crash takes back. Valkey
// ends. Why: another start would find no room either, and no client could read.
const NOT_DURABLE: &[u8] = b"-NOTDURABLE The disk of the append-only file is full: applied, not durable\r\n";

impl Inner {
    /// Lists a connection whose replies wait for the log, so that they are sent when it has come there.
    pub(super) fn note_held(&mut self, connection: &mut Connection) {
        let node = self.node;
        let (gate, until) = (&node.gate, connection.held_until());
        if until == LogOffset::default() {
            return;
        }
        if self.held.is_empty() {
            // None of its replies waited then; one may have been about to.
            self.given_up = gate.given_up();
            self.given_up[Part::Quorum as usize] = self.dispatcher.exec.hot.quorums_given_up;
        }
        if connection.listed.add(Listed::HELD) {
            self.held.push(connection.token());
        }
        gate.note_held(self.number, self.held.len());
        if gate.has_quorum() {
            self.await_acks();
        }
        // It may have come there meanwhile: then no message will say so, and nothing else would send what
        // waits.
        if !self.let_go(connection) || gate.is_reached_after_asking(self.number, until) {
            self.node.mail.post_from(Some(self.number), self.number, WorkerMessage::Durable);
        }
    }

    /// Replies wait for replicas: these are asked for an ACK, and not waited for for ever.
    #[cold]
    fn await_acks(&mut self) {
        if self.node.replication.primary.want_acks() {
            self.node.mail.post_feeder(FeederMessage::Look);
        }
        if !std::mem::replace(&mut self.looks_at_held, true) {
            self.timers.add(Instant::now() + HELD_LOOK_INTERVAL, Due::HeldLook);
        }
    }

    /// Replies that have waited for replicas for too long leave as errors.
    pub(super) fn look_at_held(&mut self) {
        const TIMEOUT: Id = id("repl-ack-timeout");
        self.looks_at_held = false;
        let gate = &self.node.gate;
        if self.held.is_empty() || !gate.has_quorum() {
            return;
        }
        let timeout = Duration::from_millis(self.node.config.number(TIMEOUT).unsigned_abs());
        // A clock that has run for less than the timeout: nothing has waited too long.
        if let Some(before) = Instant::now().checked_sub(timeout) {
            let acknowledged = gate.quorum();
            for at in 0..self.held.len() {
                let token = self.held[at];
                let Some(mut connection) = self.connections.get_mut(token).and_then(Option::take) else {
                    continue;
                };
                let refused = connection.refuse_held(acknowledged, before, NOT_ACKNOWLEDGED);
                if refused > 0 {
                    (0..refused).for_each(|_| self.dispatcher.exec.stats.count_error(b"NOREPLICAS"));
                    self.write(&mut connection);
                }
                self.settle(connection, token);
            }
        }
        self.looks_at_held = true;
        self.timers.add(Instant::now() + HELD_LOOK_INTERVAL, Due::HeldLook);
    }

    /// More of the log is durable: replies that have waited for that are sent.
    pub(super) fn send_held(&mut self) {
        let given_up = self.node.gate.given_up();
        for token in std::mem::take(&mut self.held) {
            let Some(mut connection) = self.connections.get_mut(token).and_then(Option::take) else {
                continue;
            };
            connection.listed.remove(Listed::HELD);
            self.let_go(&mut connection);
            self.write_or_wait(&mut connection);
            if connection.outbox.is_some() {
                self.note_held(&mut connection);
            }
            self.settle(connection, token);
        }
        self.given_up = given_up;
        self.node.gate.note_held(self.number, self.held.len());
    }

    /// Releases the replies of a connection that the gate is open for. Returns whether others have to wait.
    fn let_go(&mut self, connection: &mut Connection) -> bool {
        let gate = &self.node.gate;
        let reached = gate.reached();
        let [durable, quorum] = gate.given_up();
        let now = Instant::now();
        if durable != self.given_up[Part::Durable as usize] {
            let refused = connection.refuse_held(gate.durable(), now, NOT_DURABLE);
            (0..refused).for_each(|_| self.dispatcher.exec.stats.count_error(b"NOTDURABLE"));
        }
        if quorum != self.given_up[Part::Quorum as usize] {
            let refused = connection.refuse_held(gate.quorum(), now, DEMOTED);
            (0..refused).for_each(|_| self.dispatcher.exec.stats.count_error(b"NOREPLICAS"));
        }
        connection.let_go(reached)
    }
}
