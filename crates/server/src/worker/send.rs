//! Replies leave: how much may wait for a client, and what is counted when bytes come and go.

use crate::observe::stats::ThreadStats;
use crate::request::dispatch::Dispatcher;
use crate::session::Session;
use std::sync::atomic::Ordering;

/// Kept between batches.
const REPLY_CAPACITY_MAX: usize = 1 << 20;

/// Whether replies should be written now.
#[inline]
pub fn has_much_to_write(dispatcher: &Dispatcher) -> bool {
    dispatcher.reply.len() >= dispatcher.exec.hot.reply_bytes_max
}

/// What a client may leave unread before it is stopped. While all of them take little it may be more.
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
    dispatcher.reply.out.clear();
    if dispatcher.reply.out.capacity() > dispatcher.exec.hot.reply_bytes_max {
        dispatcher.reply.out = Vec::new();
    }
}

/// A large reply's memory is returned; what usual replies need is kept.
#[inline]
pub fn trim_reply(dispatcher: &mut Dispatcher) {
    if dispatcher.reply.out.capacity() > REPLY_CAPACITY_MAX {
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

#[inline]
pub fn count_written(stats: &ThreadStats, session: &Session, bytes: u64) {
    stats.values.net_output_bytes.add(bytes);
    stats.values.writes_processed.add(1);
    let total = &session.shared.seen.output_total_bytes;
    total.store(total.load(Ordering::Relaxed) + bytes, Ordering::Relaxed);
}
