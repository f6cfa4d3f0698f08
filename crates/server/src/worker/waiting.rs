//! Connections whose next command has to wait: for the end of CLIENT PAUSE, or until undelivered messages take less memory.
//!
//! ```text
//! queue    turn 7: a | turn 8: b | turn 11: c | turn 12: a           by the order in which they began to wait
//!          \______ this pass: < 12 _________/   \ a had to wait again: it is for the next pass
//! ```
//! A pass gives each connection of a queue one chance, some of them in each turn of the event loop, so that however many
//! wait the mailbox is looked at between. One that has to wait again is listed behind the pass, which therefore ends.
//!
//! There is no timer per connection. One moment is kept for the end of the pause; a pause that was prolonged moves it.
//! For messages there is none at all: the worker whose delivery makes the difference posts `Letter::Uncrowded`.
//!
//! A connection that waits is not read. The event that tells of its end comes once, so it is noted (`Connection::ended`): a
//! client that has left during a pause is closed, and its command dropped, as Valkey does. What it had sent to a crowded
//! server is run, for in Valkey it would have been.
//!
//! Invariants: a token is in the queue of its connection's cause, under the connection's `turn`, exactly while that is not
//! 0; an empty queue has no pass, so that a worker whose last waiting connection has left sleeps.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use super::Inner;
use super::connection::Connection;
use crate::node::unix_now;
use crate::request::next::Cause;
use std::sync::atomic::Ordering;

/// Connections that get their chance in one turn of the event loop. Each may run what it has kept: at most some requests
/// and 64 KB of replies, as a connection that has become readable does.
const RESUMED_PER_TURN_MAX: usize = 32;

/// What is waited for in a queue, in the order of `Cause`.
const CAUSES: [Cause; 2] = [Cause::Pause, Cause::Backpressure];

#[derive(Default)]
struct Queue {
    tokens: BTreeMap<u64, usize>,
    /// Turns below this belong to the pass under way; 0 without one.
    pass_end: u64,
}

impl Queue {
    fn end_if_empty(&mut self) {
        if self.tokens.is_empty() {
            self.pass_end = 0;
        }
    }
}

#[derive(Default)]
pub struct Waiting {
    queues: [Queue; CAUSES.len()],
    last_turn: u64,
    /// When the pause ends, as far as is known; only since a connection waits for it.
    pause_due: Option<Instant>,
}

impl Waiting {
    /// Whether no connection waits, and no moment is to be kept.
    #[inline]
    pub fn is_idle(&self) -> bool {
        self.queues.iter().all(|queue| queue.tokens.is_empty()) && self.pause_due.is_none()
    }

    /// Whether a pass is under way.
    #[inline]
    pub fn has_work(&self) -> bool {
        self.queues.iter().any(|queue| queue.pass_end > 0)
    }

    pub fn pause_due(&self) -> Option<Instant> {
        self.pause_due
    }

    /// Lists a connection, behind all others. Returns its turn.
    fn add(&mut self, cause: Cause, token: usize) -> u64 {
        self.last_turn += 1;
        self.queues[cause as usize].tokens.insert(self.last_turn, token);
        self.last_turn
    }

    /// The connection is gone.
    pub fn remove(&mut self, cause: Cause, turn: u64) {
        let queue = &mut self.queues[cause as usize];
        queue.tokens.remove(&turn);
        queue.end_if_empty();
    }

    /// Begins a pass: all that are listed now get a chance.
    fn start(&mut self, cause: Cause) {
        let queue = &mut self.queues[cause as usize];
        if !queue.tokens.is_empty() {
            queue.pass_end = self.last_turn + 1;
        }
    }

    /// Ends the pass: connections that had no chance yet go on waiting, in front of all others.
    fn stop(&mut self, cause: Cause) {
        self.queues[cause as usize].pass_end = 0;
    }

    fn has_any(&self, cause: Cause) -> bool {
        !self.queues[cause as usize].tokens.is_empty()
    }

    fn is_passing(&self, cause: Cause) -> bool {
        self.queues[cause as usize].pass_end > 0
    }

    /// The next of the pass under way; without one the pass is over.
    fn next(&mut self, cause: Cause) -> Option<usize> {
        let queue = &mut self.queues[cause as usize];
        let next = match queue.tokens.first_entry() {
            Some(first) if *first.key() < queue.pass_end => Some(first.remove()),
            _ => {
                queue.pass_end = 0;
                None
            }
        };
        queue.end_if_empty();
        next
    }

    /// A connection waits for a pause that ends at `due`.
    fn expect_end(&mut self, due: Instant) {
        self.pause_due = Some(self.pause_due.map_or(due, |before| before.min(due)));
    }
}

impl Inner {
    /// A command of this connection was not run.
    #[cold]
    pub fn wait(&mut self, connection: &mut Connection, cause: Cause) {
        if connection.turn == 0 {
            let token = connection.session.shared.token.load(Ordering::Relaxed);
            connection.turn = self.waiting.add(cause, token);
        }
        match cause {
            Cause::Pause => {
                self.expect_pause_end();
                connection.leave_pause();
            }
            // The crowd may be gone since the command was refused, and then no notice of that comes any more.
            Cause::Backpressure if !self.node.awaits_uncrowding(connection.session.shared.worker) => {
                self.waiting.start(cause);
            }
            Cause::Backpressure | Cause::Mailbox | Cause::Key => {}
        }
    }

    fn expect_pause_end(&mut self) {
        let left_ms = (self.node.pause.end_ms() - unix_now().0).max(1);
        // A pause may be as long as the clock can tell: it is looked at again before that.
        const LEFT_MS_MAX: i64 = 24 * 3600 * 1000;
        let left = Duration::from_millis(left_ms.min(LEFT_MS_MAX) as u64);
        self.waiting.expect_end(Instant::now() + left);
    }

    /// The pause is over, or holds up less than before.
    pub fn pause_changed(&mut self) {
        self.waiting.start(Cause::Pause);
    }

    /// Undelivered messages take less.
    pub fn uncrowded(&mut self) {
        self.waiting.start(Cause::Backpressure);
    }

    /// Connections whose cause is over go on, as far as this turn's share reaches.
    #[cold]
    pub fn resume_waiting(&mut self) {
        if self.waiting.pause_due.is_some_and(|due| due <= Instant::now()) {
            self.waiting.pause_due = None;
            let now = unix_now();
            self.node.end_pause_if_over(now);
            match self.node.pause.is_on(now) {
                true if self.waiting.has_any(Cause::Pause) => self.expect_pause_end(),
                true => {}
                false => self.waiting.start(Cause::Pause),
            }
        }
        for cause in CAUSES {
            self.resume(cause);
        }
    }

    fn resume(&mut self, cause: Cause) {
        let worker = self.number;
        for _ in 0..RESUMED_PER_TURN_MAX {
            if !self.waiting.is_passing(cause) {
                return;
            }
            // Those before have published that much: to try the rest would be in vain.
            if cause == Cause::Backpressure && self.node.is_crowded() && self.node.awaits_uncrowding(worker) {
                return self.waiting.stop(cause);
            }
            let Some(token) = self.waiting.next(cause) else { return };
            let Some(mut connection) = self.connections[token].take() else { continue };
            connection.waits = None;
            connection.turn = 0;
            self.run_kept(&mut connection);
            self.settle(connection, token);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pass_visits_each_once_and_ends() {
        let mut waiting = Waiting::default();
        waiting.start(Cause::Pause);
        assert!(waiting.is_idle() && !waiting.has_work());
        let turns: Vec<u64> = (10..15).map(|token| waiting.add(Cause::Pause, token)).collect();
        waiting.add(Cause::Backpressure, 99);
        assert!(!waiting.has_work() && waiting.next(Cause::Pause).is_none(), "no pass has begun");
        waiting.start(Cause::Pause);
        waiting.remove(Cause::Pause, turns[2]);
        let mut visited = Vec::new();
        while let Some(token) = waiting.next(Cause::Pause) {
            visited.push(token);
            // It has to wait again.
            waiting.add(Cause::Pause, token);
        }
        assert_eq!(visited, [10, 11, 13, 14]);
        assert!(!waiting.has_work() && !waiting.is_idle());
    }

    #[test]
    fn a_pass_that_stops_goes_on_where_it_was() {
        let mut waiting = Waiting::default();
        (0..3).for_each(|token| _ = waiting.add(Cause::Backpressure, token));
        waiting.start(Cause::Backpressure);
        assert_eq!(waiting.next(Cause::Backpressure), Some(0));
        waiting.add(Cause::Backpressure, 0);
        waiting.stop(Cause::Backpressure);
        assert!(waiting.next(Cause::Backpressure).is_none());
        waiting.start(Cause::Backpressure);
        let rest: Vec<usize> = std::iter::from_fn(|| waiting.next(Cause::Backpressure)).collect();
        assert_eq!(rest, [1, 2, 0]);
    }

    /// Whatever takes the last connection out ends the pass: a worker with nothing to do would not sleep otherwise.
    #[test]
    fn an_empty_queue_has_no_pass() {
        let mut waiting = Waiting::default();
        let turns: Vec<u64> = (0..2).map(|token| waiting.add(Cause::Backpressure, token)).collect();
        waiting.start(Cause::Backpressure);
        turns.into_iter().for_each(|turn| waiting.remove(Cause::Backpressure, turn));
        assert!(waiting.is_idle() && !waiting.has_work());
        waiting.add(Cause::Pause, 7);
        waiting.start(Cause::Pause);
        assert!(waiting.has_work() && waiting.next(Cause::Pause) == Some(7));
        assert!(waiting.is_idle() && !waiting.has_work());
        waiting.expect_end(Instant::now());
        assert!(!waiting.is_idle(), "the moment is looked at, and then forgotten");
    }

    #[test]
    fn one_moment_serves_all_that_wait_for_a_pause() {
        let mut waiting = Waiting::default();
        let now = Instant::now();
        (1..1000).for_each(|ms| waiting.expect_end(now + Duration::from_millis(ms)));
        assert_eq!(waiting.pause_due(), Some(now + Duration::from_millis(1)));
    }
}
