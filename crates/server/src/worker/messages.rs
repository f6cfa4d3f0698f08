//! Messages from the mailbox, handed out in their order over as many turns as they take.
//!
//! ```text
//! mailbox --take--> taken     orders (a new connection, a served client)   are carried out
//!                     |
//!                     +------ deliveries (published, stale, ...)    to outboxes, while the budget lasts
//!                                 |
//!                                 +--> queue, in their order ---------> in the next part, or a later turn
//! ```
//! Orders alone overtake a delivery, and only once deliveries wait: clients that are served, and
//! new ones, do not wait for all that is published. The mailbox is emptied again when all that was taken has
//! been looked at.
//!
//! A session that listens runs a request when all that came before it has been handed out
//! (`WaitReason::Mailbox`). Deliveries are counted for that: a `Mark` says up to which number they came
//! before the connections that wait by a turn of parking.

use std::collections::VecDeque;

use isotherm_reactor::Token;
use std::os::fd::AsFd;

use super::Worker;
use super::keys::Answer;
use isotherm_node::mail::message::{WorkerMessage, carried_bytes};
use isotherm_runtime::log;

/// Units of an order, which may run requests: the clock is looked at after it.
const ORDER_UNITS: usize = 64;
/// Number of deliveries for which the queue keeps room when it is empty.
const QUEUE_KEPT_MAX: usize = 1024;

/// Messages that were taken out of the mailbox and are not carried out or handed out.
#[derive(Default)]
pub struct Incoming {
    taken: std::vec::IntoIter<WorkerMessage>,
    queue: VecDeque<Delivery>,
    /// Deliveries that were ever put into the queue, and those that have left it.
    queued: u64,
    handed_out: u64,
    /// The last that was parked to wait for messages when `taken` was taken.
    taken_turn: u64,
    marks: VecDeque<Mark>,
}

struct Delivery {
    message: WorkerMessage,
    /// Number of its names that have been dealt with.
    done: usize,
}

/// Connections that wait by this turn at the latest continue when `queued` deliveries of the queue are handed
/// out.
struct Mark {
    turn: u64,
    queued: u64,
}

impl Incoming {
    #[inline]
    pub fn has_work(&self) -> bool {
        !self.queue.is_empty() || self.taken.len() > 0
    }
}

impl Worker {
    /// Carries out and hands out what lies in the mailbox, as far as the budget of this turn reaches.
    pub(super) fn read_messages(&mut self) {
        self.inner.dispatcher.begin_part();
        if self.inner.incoming.taken.len() == 0 {
            self.inner.incoming.taken_turn = self.inner.parking.last_turn();
            self.inner.incoming.taken = self.mailbox.take().into_iter();
        }
        let waited = self.has_deliveries();
        self.look_at_taken();
        if waited {
            self.inner.dispatcher.begin_part();
            self.deliver_queued();
        }
        self.inner.write_said();
        self.note_handed_out();
    }

    /// Deliveries are handed out at once while none waits; once one waits, only orders are carried out, for
    /// another part.
    fn look_at_taken(&mut self) {
        let mut queues = self.has_deliveries();
        loop {
            if self.inner.dispatcher.budget.is_part_spent() {
                if queues {
                    return;
                }
                queues = true;
                self.inner.dispatcher.begin_part();
            }
            let Some(message) = self.inner.incoming.taken.next() else { return };
            match message.is_delivery() {
                true if queues => self.queue(message),
                true => queues = !self.deliver_now(Delivery { message, done: 0 }),
                false => {
                    self.carry_out(message);
                    self.inner.dispatcher.budget.pay_units(ORDER_UNITS);
                }
            }
        }
    }

    fn carry_out(&mut self, message: WorkerMessage) {
        match message {
            WorkerMessage::Connect(new) => {
                // It may be of another worker by now.
                let Some((stream, shared)) = new.take() else { return };
                let token = self.inner.add(stream, shared.into());
                let watched = match &self.inner.connections[token] {
                    Some(connection) => self
                        .events
                        .watch(connection.stream.as_fd(), Token(token))
                        .map_err(|why| why.to_string()),
                    None => Ok(()),
                };
                if let Err(why) = watched {
                    log::warning(format!("Error registering fd event for the new client connection: {why}"));
                    self.inner.close(token);
                }
            }
            WorkerMessage::Attend { token, id } => self.inner.attend(token, id),
            WorkerMessage::PauseChanged => self.inner.pause_changed(),
            WorkerMessage::Drained => self.inner.drained(),
            WorkerMessage::ScriptsChanged => self.inner.scripts_changed(),
            WorkerMessage::ScriptsFlushed => self.inner.dispatcher.exec.drop_old_engine(),
            WorkerMessage::Served { waiter, reply, not_before, written } => {
                self.inner.node.mail.subtract_queued(carried_bytes(&reply));
                self.inner.answer(&waiter, Answer::Reply { reply, not_before, written });
            }
            WorkerMessage::Durable => self.inner.send_held(),
            WorkerMessage::Unblocked { waiter, how } => self.inner.answer(&waiter, Answer::Without(how)),
            WorkerMessage::Look { waiter } => self.inner.look_for(&waiter),
            WorkerMessage::Fetch { waiter, keys } => self.inner.fetch_for(waiter, *keys),
            WorkerMessage::ReadsEnded => {}
            WorkerMessage::Beat(beat) => beat.answer(),
            WorkerMessage::Published { .. }
            | WorkerMessage::Line { .. }
            | WorkerMessage::Stale { .. }
            | WorkerMessage::Changes { .. }
            | WorkerMessage::Flushed
            | WorkerMessage::Redirected { .. }
            | WorkerMessage::SlotsLost(_)
            | WorkerMessage::SlotNews(_) => unreachable!("a delivery is handed out"),
        }
    }
}

impl Worker {
    /// Returns whether messages, or connections that wait for them, are to be looked at although none has
    /// come.
    #[inline]
    pub(super) fn awaits_messages(&self) -> bool {
        self.inner.incoming.has_work() || !self.inner.said.is_empty() || self.inner.parking.awaits_messages()
    }

    /// Returns whether a delivery that comes now has to wait for others.
    fn has_deliveries(&self) -> bool {
        !self.inner.incoming.queue.is_empty() || !self.inner.said.is_empty()
    }

    fn queue(&mut self, message: WorkerMessage) {
        self.put(Delivery { message, done: 0 });
        self.inner.dispatcher.budget.pay_units(1);
    }

    fn put(&mut self, delivery: Delivery) {
        self.inner.incoming.queued += 1;
        self.inner.incoming.queue.push_back(delivery);
        self.inner.dispatcher.exec.has_undelivered = true;
    }

    /// Hands out a delivery where no other waits. Returns whether the next may follow it.
    fn deliver_now(&mut self, delivery: Delivery) -> bool {
        let mut rest = self.hand_out(delivery);
        self.inner.write_said_if_much();
        while let Some(delivery) = rest.take() {
            if self.inner.dispatcher.budget.is_part_spent() || self.inner.has_unwritten_much() {
                self.put(delivery);
                return false;
            }
            rest = self.hand_out(delivery);
            self.inner.write_said_if_much();
        }
        !self.inner.has_unwritten_much()
    }

    /// Hands out the deliveries that wait, in their order. Messages that are said are written before more
    /// are.
    fn deliver_queued(&mut self) {
        self.inner.write_said();
        if !self.inner.said.is_empty() {
            return;
        }
        loop {
            self.inner.write_said_if_much();
            if self.inner.has_unwritten_much() {
                return;
            }
            if self.inner.dispatcher.budget.is_part_spent() {
                return;
            }
            let Some(delivery) = self.inner.incoming.queue.pop_front() else { break };
            match self.hand_out(delivery) {
                Some(rest) => self.inner.incoming.queue.push_front(rest),
                None => self.inner.incoming.handed_out += 1,
            }
        }
        if self.inner.incoming.queue.capacity() > QUEUE_KEPT_MAX {
            self.inner.incoming.queue = VecDeque::new();
        }
    }

    /// Hands out one. Returns what is left of it when the budget is spent.
    fn hand_out(&mut self, Delivery { message, done }: Delivery) -> Option<Delivery> {
        match message {
            WorkerMessage::Published { message, patterns, weight_bytes } => {
                match self.inner.deliver(&message, &patterns, done) {
                    Some(done) => {
                        let message = WorkerMessage::Published { message, patterns, weight_bytes };
                        return Some(Delivery { message, done });
                    }
                    None => self.inner.node.mail.subtract_queued(weight_bytes),
                }
            }
            WorkerMessage::Line { line, weight_bytes } => {
                self.inner.send_to_monitors(&line);
                self.inner.node.mail.subtract_queued(weight_bytes);
            }
            WorkerMessage::Stale { key, ids, author } => self.inner.send_stale(&key, &ids, author),
            WorkerMessage::Changes { changes, weight_bytes } => {
                self.inner.send_changes(&changes);
                self.inner.node.mail.subtract_queued(weight_bytes);
            }
            WorkerMessage::Flushed => self.inner.send_flushed(),
            WorkerMessage::Redirected { token, id, body } => self.inner.deliver_redirected(token, id, &body),
            WorkerMessage::SlotsLost(slots) => self.inner.end_shard_channels(&slots),
            WorkerMessage::SlotNews(news) => self.inner.send_slot_news(&news),
            _ => unreachable!("an order is carried out"),
        }
        None
    }

    /// Connections that waited for messages continue when all that came before their requests are handed out.
    fn note_handed_out(&mut self) {
        let incoming = &mut self.inner.incoming;
        self.inner.dispatcher.exec.has_undelivered = incoming.has_work();
        if !self.inner.parking.awaits_messages() {
            return incoming.marks.clear();
        }
        if incoming.taken.len() == 0
            && incoming.marks.back().is_none_or(|last| last.turn < incoming.taken_turn)
        {
            incoming.marks.push_back(Mark { turn: incoming.taken_turn, queued: incoming.queued });
        }
        while let Some(mark) = incoming.marks.pop_front_if(|mark| mark.queued <= incoming.handed_out) {
            self.inner.parking.messages_handed_out(mark.turn);
        }
    }
}
