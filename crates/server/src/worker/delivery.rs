//! Deliveries: messages that come by mailbox, handed to the connections of this worker.
//!
//! ```text
//! replies of a batch    all written, or in the outbox          no batch is under way while messages are read,
//! message, message      behind them, in the outbox             so a push never tears a reply
//! written               when the messages are read, or are 1 MB; no more are handed out before they are
//! ```
//! A session that listens runs a request only after what was in the mailbox when the request was read has
//! been handed out (`WaitReason::Mailbox`): a client that knows that a message was published, and then
//! unsubscribes, has got it before.

use isotherm_cluster::topology::replies::Asker;
use isotherm_cluster::{Slot, SlotSet};
use isotherm_resp::{Protocol, Reply};
use std::collections::VecDeque;
use std::sync::Arc;

use super::Inner;
use super::connection::{Connection, Listed};
use super::send::{count_taken, unsent_bytes_max};
use isotherm_engine::request::slots::endpoint::asker_of;
use isotherm_node::cluster::herald::News;
use isotherm_node::effects::pubsub::{Frame, Kind, Message, Name};
use isotherm_node::session::ReplyMode;
use isotherm_runtime::time::unix_now;

// COMPAT(pubsub): Messages of a session's own commands (PUBLISH to itself, invalidations of its own changes)
// arrive after the replies to all commands that were read with them from its socket; in Valkey right behind
// the one command. Why: replies of a batch are written at once, and messages after them.
/// Maximum of message bytes that are handed out before they are written. With more, the outboxes of
/// connections that read would grow for nothing.
const SAID_BYTES_MAX: usize = 1 << 20;

/// Units of a connection that is written to: as many as those of some messages.
const WRITE_UNITS: usize = 16;

/// Connections that something was said to since they were written to.
#[derive(Default)]
pub struct Said {
    tokens: VecDeque<usize>,
    /// Bytes that were said since all were written to.
    bytes: usize,
}

impl Said {
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.tokens.is_empty()
    }
}

impl Inner {
    /// Hands out a message of a channel, to the sessions that listen to it and then to the patterns among
    /// this worker's that match it: of these names `done` are done with. Returns how many are when the budget
    /// is spent before the end.
    pub fn deliver(&mut self, message: &Arc<Message>, patterns: &[Name], done: usize) -> Option<usize> {
        let (channel, payload) = (&*message.channel, &*message.payload);
        let (kind, word) = match message.sharded {
            true => (Kind::ShardChannel, &b"smessage"[..]),
            false => (Kind::Channel, &b"message"[..]),
        };
        for name in done..=patterns.len() {
            match name.checked_sub(1).map(|at| &patterns[at]) {
                None => self.send_to_subscribers(kind, channel, message, &[word, channel, payload]),
                Some(pattern) => {
                    let parts: [&[u8]; 4] = [b"pmessage", pattern, channel, payload];
                    self.send_to_subscribers(Kind::Pattern, pattern, message, &parts);
                }
            }
            let is_last = name == patterns.len();
            if !is_last && (self.dispatcher.budget.is_part_spent() || self.has_unwritten_much()) {
                return Some(name + 1);
            }
        }
        None
    }

    fn send_to_subscribers(&mut self, kind: Kind, name: &[u8], message: &Message, parts: &[&[u8]]) {
        let mut frame = None;
        let mut receivers = 0;
        let unsent_bytes_max = unsent_bytes_max(&self.dispatcher);
        for token in self.dispatcher.audience.subscribers(kind, name, message) {
            let frame = frame.get_or_insert_with(|| Frame::new(parts));
            let Some(connection) = &mut self.connections[token] else { continue };
            let bytes = frame.bytes(connection.session.proto);
            say(connection, token, bytes, unsent_bytes_max, &mut self.said);
            receivers += 1;
        }
        self.dispatcher.budget.pay_units(1 + receivers);
    }

    /// Slots are another node's: sessions that listen to a shard channel of one hear that it is over.
    /// Channels of a slot that is this node's again meanwhile stay.
    pub fn end_shard_channels(&mut self, slots: &SlotSet) {
        let Some(member) = self.node.cluster.get() else { return };
        let is_over = |channel: &[u8]| {
            let slot = Slot::of_key(channel);
            slots.has(slot) && !member.serves_channels(slot)
        };
        for (channel, tokens) in self.dispatcher.audience.shard_channels(is_over) {
            for token in tokens {
                self.end_shard_channel(token, &channel);
                self.dispatcher.budget.pay_units(1);
            }
        }
    }

    fn end_shard_channel(&mut self, token: usize, channel: &[u8]) {
        let Some(connection) = &mut self.connections[token] else { return };
        let (session, audience) = (&mut connection.session, &mut self.dispatcher.audience);
        session.unsubscribe(self.node, audience, Kind::ShardChannel, channel);
        session.note_gates();
        let mut reply = Reply::new(session.proto);
        reply.push(3);
        reply.bulk(b"sunsubscribe");
        reply.bulk(channel);
        reply.integer(session.subscriptions(Kind::ShardChannel) as i64);
        self.say_to(token, &reply.out);
    }

    /// The line of a command.
    pub fn send_to_monitors(&mut self, line: &[u8]) {
        for token in self.dispatcher.audience.monitors().to_vec() {
            let connection = self.connections[token].as_ref();
            // A line is a reply to MONITOR, and no push.
            if connection.is_some_and(|connection| connection.session.reply_mode == ReplyMode::On) {
                self.say_to(token, line);
            }
            self.dispatcher.budget.pay_units(1);
        }
    }

    /// Sends `news` to the sessions that have asked for it. The text depends on how the client is connected.
    pub fn send_slot_news(&mut self, news: &News) {
        let mut made: Vec<(Asker, Vec<u8>)> = Vec::new();
        for token in self.dispatcher.audience.slot_listeners().to_vec() {
            let Some(connection) = &self.connections[token] else { continue };
            if connection.session.proto != Protocol::Resp3 {
                continue;
            }
            let asker = asker_of(&connection.session.shared, &self.node.config);
            let at = made.iter().position(|(other, _)| *other == asker).unwrap_or_else(|| {
                made.push((asker, news.push(asker)));
                made.len() - 1
            });
            self.say_to(token, &made[at].1);
            self.dispatcher.budget.pay_units(1);
        }
    }

    pub fn say_to(&mut self, token: usize, bytes: &[u8]) {
        let unsent_bytes_max = unsent_bytes_max(&self.dispatcher);
        if let Some(connection) = &mut self.connections[token] {
            say(connection, token, bytes, unsent_bytes_max, &mut self.said);
        }
    }

    // ---- writing ----

    /// Returns whether no more is to be said before what was said is written.
    #[inline]
    pub fn has_unwritten_much(&self) -> bool {
        self.said.bytes >= SAID_BYTES_MAX
    }

    pub fn write_said_if_much(&mut self) {
        if self.has_unwritten_much() {
            self.write_said();
        }
    }

    /// Writes what was said, and looks at the limits of clients that do not read it: to one connection at
    /// least, and to the others as far as the budget reaches.
    pub fn write_said(&mut self) {
        if self.said.is_empty() {
            self.said.bytes = 0;
            return;
        }
        let now = unix_now();
        while let Some(token) = self.said.tokens.pop_front() {
            let Some(mut connection) = self.connections[token].take() else { continue };
            connection.listed.remove(Listed::UNWRITTEN);
            self.dispatcher.budget.begin_share_of_part();
            match connection.write_outbox(&mut self.dispatcher.budget) {
                Ok(written) => count_taken(self.dispatcher.exec.stats, &connection.session, written, now),
                Err(()) => connection.break_off(),
            }
            self.check_output(&mut connection);
            self.account(&mut connection);
            // No event reports that the socket takes more once everything is written: a connection that was
            // stopped by that runs in this turn, after the messages. So does one that is written in pieces.
            if connection.can_go_on() || connection.edge.writable {
                self.go_on_later(&mut connection);
            }
            self.settle(connection, token);
            self.dispatcher.budget.pay_units(WRITE_UNITS);
            if self.dispatcher.budget.is_part_spent() && !self.said.is_empty() {
                return;
            }
        }
        self.said.bytes = 0;
        // The list keeps its memory, unless many were spoken to.
        if self.said.tokens.capacity() > TOKENS_KEPT_MAX {
            self.said.tokens = VecDeque::new();
        }
    }
}

const TOKENS_KEPT_MAX: usize = 1024;

fn say(connection: &mut Connection, token: usize, bytes: &[u8], unsent_bytes_max: usize, said: &mut Said) {
    // A connection that is about to close gets nothing more.
    if connection.is_closing() {
        return;
    }
    connection.say(bytes, unsent_bytes_max);
    said.bytes += bytes.len();
    if connection.listed.add(Listed::UNWRITTEN) {
        said.tokens.push_back(token);
    }
}
