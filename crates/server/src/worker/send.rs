//! Replies leave: when, how much may wait for a client, and what is counted when bytes come and go.

use isotherm_keyspace::UnixMs;
use isotherm_log::LogOffset;
use isotherm_resp::Reply;
use std::ops::Range;

use super::connection::Connection;
use isotherm_engine::request::budget::Budget;
use isotherm_engine::request::dispatch::Dispatcher;
use isotherm_node::observe::stats::ThreadStats;
use isotherm_node::session::Session;
use std::sync::atomic::Ordering;

// COMPAT(persistence): Under `appendfsync always` messages of subscribers, keyspace events and invalidations
// leave before the change that caused them is durable; Valkey sends them behind its fsync. Why: only replies
// are held; a client that then reads the key waits.
/// Sends a connection its part of the reply buffer, not before the gate is open up to `not_before`. False if
/// the connection is broken. The only way on which replies leave.
#[inline]
pub fn send(
    dispatcher: &mut Dispatcher,
    connection: &mut Connection,
    replies: Range<usize>,
    not_before: LogOffset,
) -> bool {
    let waits = not_before > dispatcher.exec.node.gate.reached()
        // The gate was opened by what refuses all that waits, since the command has run.
        || (not_before != LogOffset::default() && dispatcher.exec.has_lost_quorum());
    let not_before = waits.then_some(not_before);
    // Before its client reads a reply, others see that it was answered.
    connection.session.publish(dispatcher.exec.clock.now());
    let unsent_bytes_max = unsent_bytes_max(dispatcher);
    let (reply, budget) = (&mut dispatcher.reply, &mut dispatcher.budget);
    let sent = match reply.has_shared() {
        false => connection.send(&mut reply.out, replies, not_before, unsent_bytes_max, budget),
        true => send_in_parts(connection, reply, replies, not_before, unsent_bytes_max, budget),
    };
    match sent {
        Ok(written) => {
            count_written(dispatcher.exec.stats, &connection.session, written);
            true
        }
        Err(()) => {
            connection.break_off();
            false
        }
    }
}

/// Sends replies that have parts in the buffer which are not copied.
#[cold]
fn send_in_parts(
    connection: &mut Connection,
    reply: &mut Reply,
    replies: Range<usize>,
    mut not_before: Option<LogOffset>,
    unsent_bytes_max: usize,
    budget: &mut Budget,
) -> Result<u64, ()> {
    let (mut at, mut written) = (replies.start, 0);
    for part in reply.take_shared(replies.end) {
        if at < part.at {
            let before = at..part.at;
            written +=
                connection.send(&mut reply.out, before, not_before.take(), unsent_bytes_max, budget)?;
        }
        at = part.at;
        written += connection.send_shared(part.bytes, unsent_bytes_max, budget)?;
    }
    if at < replies.end {
        written += connection.send(&mut reply.out, at..replies.end, not_before, unsent_bytes_max, budget)?;
    }
    Ok(written + connection.write_outbox(budget)?)
}

/// The reply buffer is sent, all of it.
#[inline]
pub fn clear_replies(dispatcher: &mut Dispatcher) {
    dispatcher.reply.clear();
    dispatcher.reply.give_back();
}

/// Returns whether replies should be written now.
#[inline]
pub fn has_much_to_write(dispatcher: &Dispatcher) -> bool {
    dispatcher.reply.bytes() >= dispatcher.exec.hot.reply_bytes_max
}

/// Returns the number of bytes that a client may leave unread before it is stopped. While all clients
/// together take little it may be more.
#[inline]
pub fn unsent_bytes_max(dispatcher: &Dispatcher) -> usize {
    let exec = &dispatcher.exec;
    match exec.node.clients.bytes() < exec.hot.clients_little_bytes {
        true => exec.hot.unsent_generous_bytes_max,
        false => exec.hot.unsent_bytes_max,
    }
}

/// Replies of a client that is gone are given up, with the memory that many of them took.
pub fn drop_replies(dispatcher: &mut Dispatcher) {
    dispatcher.reply.clear();
    if dispatcher.reply.out.capacity() > dispatcher.exec.hot.reply_bytes_max {
        dispatcher.reply.out = Vec::new();
    }
}

#[inline]
pub fn count_read(stats: &ThreadStats, session: &Session, bytes: usize) {
    stats.values.net_input_bytes.add(bytes as u64);
    stats.values.reads_processed.add(1);
    let total = &session.shared.seen.input_total_bytes;
    total.store(total.load(Ordering::Relaxed) + bytes as u64, Ordering::Relaxed);
}

/// Counts bytes that the client has taken from the outbox: a client that reads these now is not idle.
pub fn count_taken(stats: &ThreadStats, session: &Session, bytes: u64, now: UnixMs) {
    if bytes > 0 {
        session.shared.seen.note_interaction(now);
    }
    count_written(stats, session, bytes);
}

#[inline]
pub fn count_written(stats: &ThreadStats, session: &Session, bytes: u64) {
    stats.values.net_output_bytes.add(bytes);
    stats.values.writes_processed.add(1);
    let total = &session.shared.seen.output_total_bytes;
    total.store(total.load(Ordering::Relaxed) + bytes, Ordering::Relaxed);
}
