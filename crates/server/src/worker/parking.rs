//! Parked connections: those whose next command does not run now, and how they continue.
//!
//! ```text
//! why            listed                       goes on
//! pause          queue, by turn               when the pause ends or concerns less: a pass
//! backpressure   queue, by turn               when undelivered messages take less memory: a pass
//! writers        queue, by turn               when log, snapshot, disk of values have come on: a pass
//! mailbox        queue, by turn               when what lay in the mailbox is handed out: a pass
//! key            with its waiter              when the waiter is answered; at its deadline
//! lease          queue, by turn               when scripts, or a MIGRATE, have ended: a pass
//! cold, script   by ticket                    when the fetch is over, or the script
//! exec           by ticket                    when a script of its transaction is over: the queue goes on
//! debugger       by ticket                    when its script has ended; what it sends is the debugger's
//! reader         -                            when the socket takes more (an event)
//! leaving        `Inner::leaving`             never: it is handed over to the thread that feeds replicas
//!
//! queue    turn 7: a | turn 8: b | turn 11: c | turn 12: a           by the order in which they began to wait
//!          \______ this pass: < 12 _________/   \ a had to wait again: it is for the next pass
//! ```
//! A pass gives each connection of a queue one chance, some of them in each turn of the event loop, so that
//! however many wait the mailbox is looked at between. One that has to wait again is listed after the pass,
//! which therefore ends.
//!
//! No connection has a timer. One moment is kept for the end of the pause; a pause that was prolonged
//! moves it. For messages there is none at all: the worker whose delivery makes the difference posts
//! `WorkerMessage::Drained`.
//!
//! A connection in a queue is not read. The event that reports its end comes once, so it is noted
//! (`Phase::Ended`): a client that has left during a pause is closed, and its command dropped, as Valkey
//! does. Requests that it had sent under backpressure are run, for in Valkey they would have been.
//!
//! Invariants: a token is in the queue of its connection's cause, under the turn that `Parked` says, exactly
//! while that is not 0; an empty queue has no pass, so that a worker whose last parked connection has left
//! sleeps.

use isotherm_keyspace::Walk;
use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use super::Inner;
use super::connection::Connection;
use isotherm_node::request::next::{Came, Ticket, WaitReason};
use isotherm_runtime::time::unix_now;

/// Connections of a queue that get their chance in one turn of the event loop. Each may run what it has kept:
/// at most some requests and 64 KB of replies, as a connection that has become readable does.
const RESUMED_PER_TURN_MAX: usize = 32;

/// Why no further request of a connection runs. A number is its turn in the queue of that cause; 0 until it
/// is listed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Parked {
    Pause(u64),
    Backpressure(u64),
    Writers(u64),
    Mailbox(u64),
    /// A script, or a MIGRATE, is to end first.
    Lease(u64),
    /// The client waits for a key.
    Key,
    /// Values are fetched.
    Cold(Ticket),
    /// The script of the connection runs.
    Script(Ticket),
    /// A script of its transaction runs: it stays until that is over, however it ends.
    Exec(Ticket),
    /// A client that debugs its script, which takes long.
    Debugger(Ticket),
    /// The client leaves too much unread.
    Reader,
    /// The connection has become a replica.
    Leaving,
}

impl From<WaitReason> for Parked {
    fn from(cause: WaitReason) -> Parked {
        match cause {
            WaitReason::Pause => Parked::Pause(0),
            WaitReason::Backpressure => Parked::Backpressure(0),
            WaitReason::Writers => Parked::Writers(0),
            WaitReason::Mailbox => Parked::Mailbox(0),
            WaitReason::Key => Parked::Key,
            WaitReason::Cold(ticket) => Parked::Cold(ticket),
            WaitReason::Lease => Parked::Lease(0),
            WaitReason::Script(ticket) => Parked::Script(ticket),
            WaitReason::Exec(ticket) => Parked::Exec(ticket),
            WaitReason::Debugger(ticket) => Parked::Debugger(ticket),
            WaitReason::Leaving => Parked::Leaving,
        }
    }
}

impl Parked {
    /// Returns whether nothing is read while the connection is parked. Blocked and slow clients are read,
    /// because that is how their end is noticed. So are clients that debug: their input is waited for.
    pub fn is_deaf(self) -> bool {
        !matches!(self, Parked::Key | Parked::Reader | Parked::Debugger(_))
    }

    /// Returns whether CLIENT LIST shows the connection as blocked. Clients that wait for a key are not
    /// included: their waiters show that.
    pub fn is_shown(self) -> bool {
        matches!(self, Parked::Pause(_) | Parked::Backpressure(_) | Parked::Writers(_) | Parked::Cold(_))
    }

    fn place(&mut self) -> Option<(Line, &mut u64)> {
        match self {
            Parked::Pause(turn) => Some((Line::Pause, turn)),
            Parked::Backpressure(turn) => Some((Line::Backpressure, turn)),
            Parked::Writers(turn) => Some((Line::Writers, turn)),
            Parked::Mailbox(turn) => Some((Line::Mailbox, turn)),
            Parked::Lease(turn) => Some((Line::Lease, turn)),
            Parked::Key
            | Parked::Cold(_)
            | Parked::Script(_)
            | Parked::Exec(_)
            | Parked::Debugger(_)
            | Parked::Reader
            | Parked::Leaving => None,
        }
    }
}

/// The queues.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Line {
    Pause,
    Backpressure,
    Writers,
    Mailbox,
    Lease,
}

const LINES: [Line; 5] = [Line::Pause, Line::Backpressure, Line::Writers, Line::Mailbox, Line::Lease];

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
pub struct Parking {
    queues: [Queue; LINES.len()],
    last_turn: u64,
    /// Connections whose values are fetched, or whose scripts run.
    tickets: BTreeMap<Ticket, usize>,
    /// End of the pause, as far as is known; only since a connection waits for it.
    pause_due: Option<Instant>,
}

impl Parking {
    /// Returns whether no connection waits in a queue, and no moment is to be kept.
    #[inline]
    pub fn is_idle(&self) -> bool {
        self.queues.iter().all(|queue| queue.tokens.is_empty()) && self.pause_due.is_none()
    }

    /// Returns whether a pass is under way, or the next turn begins one.
    #[inline]
    pub fn has_work(&self) -> bool {
        self.queues.iter().any(|queue| queue.pass_end > 0) || self.has_any(Line::Mailbox)
    }

    pub fn pause_due(&self) -> Option<Instant> {
        self.pause_due
    }

    /// Lists a connection, behind all others. Returns its turn.
    fn add(&mut self, line: Line, token: usize) -> u64 {
        self.last_turn += 1;
        self.queues[line as usize].tokens.insert(self.last_turn, token);
        self.last_turn
    }

    /// The connection is gone.
    pub fn remove(&mut self, mut parked: Parked) {
        if let Parked::Cold(ticket)
        | Parked::Script(ticket)
        | Parked::Exec(ticket)
        | Parked::Debugger(ticket) = parked
        {
            self.tickets.remove(&ticket);
        }
        if let Some((line, turn)) = parked.place() {
            let queue = &mut self.queues[line as usize];
            queue.tokens.remove(turn);
            queue.end_if_empty();
        }
    }

    /// Begins a pass: all that are listed now get a chance.
    fn start(&mut self, line: Line) {
        let queue = &mut self.queues[line as usize];
        if !queue.tokens.is_empty() {
            queue.pass_end = self.last_turn + 1;
        }
    }

    /// Returns whether a connection waits for messages to be handed out.
    #[inline]
    pub fn awaits_messages(&self) -> bool {
        self.has_any(Line::Mailbox)
    }

    /// Returns the turn of the connection that was listed last.
    #[inline]
    pub fn last_turn(&self) -> u64 {
        self.last_turn
    }

    /// Lets the connections up to `turn` continue: the messages that lay in the mailbox when they were parked
    /// have been handed out.
    pub fn messages_handed_out(&mut self, turn: u64) {
        let queue = &mut self.queues[Line::Mailbox as usize];
        if !queue.tokens.is_empty() {
            queue.pass_end = queue.pass_end.max(turn + 1);
        }
    }

    /// Ends the pass: connections that had no chance yet continue waiting, in front of all others.
    fn stop(&mut self, line: Line) {
        self.queues[line as usize].pass_end = 0;
    }

    fn has_any(&self, line: Line) -> bool {
        !self.queues[line as usize].tokens.is_empty()
    }

    fn is_passing(&self, line: Line) -> bool {
        self.queues[line as usize].pass_end > 0
    }

    /// The next of the pass under way; without one the pass is over.
    fn next(&mut self, line: Line) -> Option<usize> {
        let queue = &mut self.queues[line as usize];
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

    /// The connection that waits for what this ticket stands for, which is over.
    pub fn take_ticket(&mut self, ticket: Ticket) -> Option<usize> {
        self.tickets.remove(&ticket)
    }

    /// The connection that waits for what this ticket stands for.
    pub fn token_of(&self, ticket: Ticket) -> Option<usize> {
        self.tickets.get(&ticket).copied()
    }

    /// A connection waits for a pause that ends at `due`.
    fn expect_end(&mut self, due: Instant) {
        self.pause_due = Some(self.pause_due.map_or(due, |before| before.min(due)));
    }
}

impl Inner {
    /// The connection is parked: it is listed where it is found when that is over.
    #[cold]
    pub fn park(&mut self, connection: &mut Connection) {
        let token = connection.token();
        let Some(parked) = &mut connection.parked else { return };
        if let Some((line, turn)) = parked.place().filter(|(_, turn)| **turn == 0) {
            *turn = self.parking.add(line, token);
        }
        let parked = *parked;
        match parked {
            Parked::Pause(_) => {
                self.expect_pause_end();
                connection.leave_pause();
            }
            // It may be over since the command was refused, and then no notice of that comes any more.
            Parked::Backpressure(_) if !self.node.mail.awaits_drain(self.number, false) => {
                self.parking.start(Line::Backpressure);
            }
            Parked::Writers(_) if !self.node.mail.awaits_drain(self.number, true) => {
                self.parking.start(Line::Writers);
            }
            Parked::Key => self.note_deadline(connection),
            Parked::Debugger(ticket) => {
                self.parking.tickets.insert(ticket, token);
                self.feed_debugger(connection);
            }
            Parked::Cold(ticket) | Parked::Script(ticket) | Parked::Exec(ticket) => {
                self.parking.tickets.insert(ticket, token);
            }
            Parked::Leaving => self.leaving.push(token),
            Parked::Backpressure(_)
            | Parked::Writers(_)
            | Parked::Mailbox(_)
            | Parked::Lease(_)
            | Parked::Reader => {}
        }
    }

    /// Resumes a connection whose cause for parking is over, and runs the requests that it has kept.
    pub fn resume(&mut self, token: usize) {
        let Some(mut connection) = self.connections[token].take() else { return };
        connection.unpark();
        self.run_kept(&mut connection);
        self.settle(connection, token);
    }

    /// A fetch is over, or was given up: then its command waits for no other. Its connection may be gone.
    pub fn fetched(&mut self, ticket: Ticket, came: Came) {
        let exec = &mut self.dispatcher.exec;
        let walk = exec.walks.remove(&ticket).unwrap_or_default();
        if let Some(token) = self.parking.take_ticket(ticket) {
            (exec.has_waited, exec.was_late) = (came != Came::All, came == Came::Late);
            exec.held.walk = walk;
            self.resume(token);
            let exec = &mut self.dispatcher.exec;
            (exec.has_waited, exec.was_late) = (false, false);
            exec.held.walk = Walk::default();
        }
    }

    /// Scripts have ended that others waited for.
    pub fn scripts_changed(&mut self) {
        self.dispatcher.exec.runs.retry();
        self.parking.start(Line::Lease);
    }

    fn expect_pause_end(&mut self) {
        let left_ms = self.node.pause.left_ms(unix_now()).max(1);
        // A pause may be as long as the clock can hold: it is looked at again before that.
        const LEFT_MS_MAX: i64 = 24 * 3600 * 1000;
        let left = Duration::from_millis(left_ms.min(LEFT_MS_MAX) as u64);
        self.parking.expect_end(Instant::now() + left);
    }

    /// The pause is over, or holds up less than before.
    pub fn pause_changed(&mut self) {
        self.parking.start(Line::Pause);
    }

    /// Undelivered messages take less, or writers may continue.
    pub fn drained(&mut self) {
        self.parking.start(Line::Backpressure);
        self.parking.start(Line::Writers);
    }

    /// Connections whose cause is over continue, as far as this turn's share reaches.
    #[cold]
    pub fn resume_parked(&mut self) {
        if self.parking.pause_due.is_some_and(|due| due <= Instant::now()) {
            self.parking.pause_due = None;
            let now = unix_now();
            self.node.end_pause_if_over(now);
            match self.node.pause.is_on(now) {
                true if self.parking.has_any(Line::Pause) => self.expect_pause_end(),
                true => {}
                false => self.parking.start(Line::Pause),
            }
        }
        LINES.into_iter().for_each(|line| self.resume_line(line));
    }

    fn resume_line(&mut self, line: Line) {
        let worker = self.number;
        for number in 0..RESUMED_PER_TURN_MAX {
            if !self.parking.is_passing(line) || number > 0 && self.dispatcher.budget.is_part_over() {
                return;
            }
            // Those before have published or written that much: to try the rest would be useless.
            let mail = &self.node.mail;
            let is_behind = match line {
                Line::Backpressure => mail.has_backpressure() && mail.awaits_drain(worker, false),
                Line::Writers => mail.makes_writers_wait() && mail.awaits_drain(worker, true),
                Line::Pause | Line::Mailbox | Line::Lease => false,
            };
            if is_behind {
                return self.parking.stop(line);
            }
            let Some(token) = self.parking.next(line) else { return };
            if line == Line::Mailbox
                && let Some(connection) = &mut self.connections[token]
                && let Some(listening) = &mut connection.session.listening
            {
                listening.heard = true;
            }
            self.resume(token);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pass_visits_each_once_and_ends() {
        let mut parking = Parking::default();
        parking.start(Line::Pause);
        assert!(parking.is_idle() && !parking.has_work());
        let turns: Vec<u64> = (10..15).map(|token| parking.add(Line::Pause, token)).collect();
        parking.add(Line::Backpressure, 99);
        assert!(!parking.has_work() && parking.next(Line::Pause).is_none(), "no pass has begun");
        parking.start(Line::Pause);
        parking.remove(Parked::Pause(turns[2]));
        let mut visited = Vec::new();
        while let Some(token) = parking.next(Line::Pause) {
            visited.push(token);
            // It has to wait again.
            parking.add(Line::Pause, token);
        }
        assert_eq!(visited, [10, 11, 13, 14]);
        assert!(!parking.has_work() && !parking.is_idle());
    }

    #[test]
    fn a_pass_that_stops_goes_on_where_it_was() {
        let mut parking = Parking::default();
        (0..3).for_each(|token| _ = parking.add(Line::Backpressure, token));
        parking.start(Line::Backpressure);
        assert_eq!(parking.next(Line::Backpressure), Some(0));
        parking.add(Line::Backpressure, 0);
        parking.stop(Line::Backpressure);
        assert!(parking.next(Line::Backpressure).is_none());
        parking.start(Line::Backpressure);
        let rest: Vec<usize> = std::iter::from_fn(|| parking.next(Line::Backpressure)).collect();
        assert_eq!(rest, [1, 2, 0]);
    }

    /// Whatever takes the last connection out ends the pass: a worker with nothing to do would not sleep
    /// otherwise.
    #[test]
    fn an_empty_queue_has_no_pass() {
        let mut parking = Parking::default();
        let turns: Vec<u64> = (0..2).map(|token| parking.add(Line::Backpressure, token)).collect();
        parking.start(Line::Backpressure);
        turns.into_iter().for_each(|turn| parking.remove(Parked::Backpressure(turn)));
        assert!(parking.is_idle() && !parking.has_work());
        parking.add(Line::Pause, 7);
        parking.start(Line::Pause);
        assert!(parking.has_work() && parking.next(Line::Pause) == Some(7));
        assert!(parking.is_idle() && !parking.has_work());
        parking.expect_end(Instant::now());
        assert!(!parking.is_idle(), "the moment is looked at, and then forgotten");
    }

    #[test]
    fn one_moment_serves_all_that_wait_for_a_pause() {
        let mut parking = Parking::default();
        let now = Instant::now();
        (1..1000).for_each(|ms| parking.expect_end(now + Duration::from_millis(ms)));
        assert_eq!(parking.pause_due(), Some(now + Duration::from_millis(1)));
    }
}
