//! Connections that wait for a key: their deadlines, and what they are answered.

use isotherm_keyspace::{SteadyMs, Waiter};
use isotherm_log::LogOffset;
use std::os::fd::AsFd;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use super::Inner;
use super::connection::{Connection, Listed};
use isotherm_engine::request::blocking;
use isotherm_engine::request::blocking::owner;
use isotherm_node::mail::message::Without;
use isotherm_node::session::Attention;
use isotherm_runtime::time::unix_now;

/// Maximum number of clients that are answered in one turn because their time is over, each with its own
/// locks.
const TIMED_OUT_PER_TURN_MAX: usize = 256;

/// Answer to a client that waited for a key.
pub enum Answer {
    Reply {
        reply: Vec<u8>,
        /// Offset in the log that the reply waits for.
        not_before: LogOffset,
        /// Offset in the log at which the change of the command ends.
        written: LogOffset,
    },
    Without(Without),
}

impl Inner {
    #[cold]
    pub fn note_deadline(&mut self, connection: &mut Connection) {
        let token = connection.session.shared.token.load(Ordering::Relaxed);
        let Some(blocked) = &mut connection.session.blocked else { return };
        if let Some(deadline) = blocked.deadline.filter(|_| !blocked.is_noted) {
            self.deadlines.insert((deadline, token));
        }
        blocked.is_noted = true;
        // A lone worker serves its clients itself, and reads what came from them before.
        let others_serve = self.node.worker_count() > 1 && !blocked.waiter.keys.is_empty();
        if others_serve && connection.listed.add(Listed::HANGUPS) {
            let (socket, id) = (connection.stream.as_fd(), connection.session.id());
            self.node.hangups.watch(usize::from(self.number), socket, id);
        }
    }

    pub fn stop_waiting(&mut self, connection: &mut Connection, token: usize) {
        let Some(blocked) = blocking::stop_waiting(&mut self.dispatcher.exec, &mut connection.session) else {
            return;
        };
        if let Some(deadline) = blocked.deadline {
            self.deadlines.remove(&(deadline, token));
        }
        connection.unpark();
    }

    /// The keys that one of ours waits for may be there.
    pub fn look_for(&mut self, waiter: &Arc<Waiter>) {
        let how = blocking::look_for(&mut self.dispatcher.exec, waiter);
        how.into_iter().for_each(|how| self.answer(waiter, Answer::Without(how)));
    }

    /// Answers a client of this worker that waited. The sender of the message has ended its wait.
    pub fn answer(&mut self, waiter: &Arc<Waiter>, answer: Answer) {
        let (token, id) = owner(waiter);
        let Some(mut connection) = self.connections.get_mut(token).and_then(Option::take) else { return };
        let blocked = connection.session.blocked.as_ref();
        let is_its = blocked.is_some_and(|blocked| Arc::ptr_eq(&blocked.waiter, waiter));
        if connection.session.id() == id && is_its {
            self.stop_waiting(&mut connection, token);
            let session = &mut connection.session;
            self.dispatcher.exec.clock.begin();
            let reply = match answer {
                Answer::Reply { reply, not_before, written } => {
                    session.written = session.written.max(written);
                    // No request of this worker may have run since a role was taken.
                    self.dispatcher.exec.refresh();
                    self.dispatcher.exec.wait_for(not_before);
                    blocking::count_answer(&mut self.dispatcher.exec, waiter, &reply);
                    reply
                }
                Answer::Without(how) => {
                    blocking::answer_without(&mut self.dispatcher.exec, session, waiter, how)
                }
            };
            self.dispatcher.answer(session, &reply);
            self.finish(&mut connection);
            if connection.session.shared.is_asked(Attention::KILL) {
                connection.break_off();
            }
            self.run_kept(&mut connection);
        }
        self.settle(connection, token);
    }

    /// Ends the waits of clients whose time is over.
    pub fn end_waiting(&mut self) {
        let now = SteadyMs::of(unix_now());
        for number in 0..TIMED_OUT_PER_TURN_MAX {
            if number > 0 && self.dispatcher.budget.is_part_over() {
                return;
            }
            let Some((deadline, token)) = self.deadlines.first().copied() else { return };
            if deadline > now {
                return;
            }
            self.deadlines.pop_first();
            let connection = self.connections[token].as_ref();
            let blocked = connection.and_then(|connection| connection.session.blocked.as_ref());
            // If it was served in this moment, the message is under way.
            if let Some(waiter) = blocked.map(|blocked| Arc::clone(&blocked.waiter))
                && waiter.end()
            {
                self.answer(&waiter, Answer::Without(Without::TimedOut));
            }
        }
    }
}
