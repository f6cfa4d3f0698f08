//! Limits on the replies before they are written, and the fate of replies that are not wanted.
//!
//! The replies of a batch, or of a group of sessions, lie in one buffer. While a session's requests run, its
//! own part of that buffer and the replies in its outbox count together.

use isotherm_allocator::class_bytes;
use isotherm_resp::Reply;
use std::sync::atomic::Ordering;

use crate::request::cached_config::{Hot, counted_output_bytes, reply_bytes_limit};
use crate::request::execute::Exec;
use isotherm_config::OutputLimit;
use isotherm_node::session::line;
use isotherm_node::session::{ReplyMode, Session};
use isotherm_runtime::log;
use isotherm_runtime::time::unix_now;

/// Limits on the replies of the session in hand.
#[derive(Default)]
pub struct ReplyLimits {
    /// Replies that wait in its outbox, and what of the reply buffer is not its own.
    unsent_before: usize,
    of_others: usize,
    /// Bytes of the reply buffer at which it is written before more is run; 0 if the batch ends anyway.
    written_at: usize,
    /// True if the replies of the session are checked against their limit before they are written.
    pub are_checked: bool,
}

impl ReplyLimits {
    /// Requests of this session are run from now on.
    #[inline]
    pub fn begin(
        &mut self,
        exec: &Exec,
        session: &Session,
        reply: &mut Reply,
        unsent_before: usize,
        of_others: usize,
    ) {
        (self.unsent_before, self.of_others) = (unsent_before, of_others);
        self.written_at = of_others.saturating_add(exec.hot.reply_bytes_max);
        self.are_checked = exec.hot.judges_replies || session.listening.is_some();
        reply.bytes_max = if self.are_checked { self.reply_bytes_max(&exec.hot, session) } else { 0 };
    }

    /// A handler that would answer more than its client may be sent need not continue.
    #[cold]
    fn reply_bytes_max(&self, hot: &Hot, session: &Session) -> usize {
        let limit = output_limit_of(hot, session).hard_bytes;
        if limit > 0 { reply_bytes_limit(limit).saturating_add(self.of_others) } else { 0 }
    }

    /// Returns whether the session's part of the buffer is to be written before more is run.
    #[inline]
    pub fn is_much(&self, reply: &Reply) -> bool {
        reply.bytes() >= self.written_at
    }

    /// Has the replies so far written after this command, however small they are.
    #[cold]
    pub fn end_batch(&mut self) {
        self.written_at = 0;
    }

    /// Returns whether the replies of this session, written or not, are more than may wait for a client.
    /// Asked before they are written, as in Valkey: a client that would read them fast enough is closed as
    /// well.
    #[cold]
    pub fn are_above(&self, exec: &Exec, session: &Session, reply: &Reply) -> bool {
        let unsent = (reply.bytes() + self.unsent_before).saturating_sub(self.of_others);
        let limit = output_limit_of(&exec.hot, session).hard_bytes;
        let is_unauthenticated = !session.was_authenticated && exec.node.users.auth_required();
        let is_above = limit > 0 && counted_output_bytes(unsent) >= limit
            || is_unauthenticated && exec.hot.reply_lists && unsent > 0;
        if is_above {
            log_output_limit(exec, session);
        }
        is_above
    }
}

/// Returns the output limit of the session's class.
pub fn output_limit_of(hot: &Hot, session: &Session) -> OutputLimit {
    match session.is_subscriber() {
        true => hot.output_of_subscribers,
        false => hot.output,
    }
}

pub fn log_output_limit(exec: &Exec, session: &Session) {
    exec.stats.values.output_buffer_limit_disconnections.add(1);
    let client = line::of_log(exec.node, &session.shared, unix_now());
    log::warning(format!("Client {client} closed for overcoming of output buffer limits."));
}

/// A large reply belongs to its client from now on, not only when a part of it has to wait: eviction must not
/// take a key for it meanwhile.
#[cold]
pub fn account_reply(exec: &Exec, session: &Session, reply: &Reply) {
    let accounted = &session.shared.seen.output_bytes;
    let bytes = class_bytes(reply.out.capacity()) as u64;
    accounted.store(accounted.load(Ordering::Relaxed) + bytes, Ordering::Relaxed);
    let total = session.shared.seen.total_bytes.load(Ordering::Relaxed);
    exec.node.clients.account_total(&session.shared, total + bytes);
}

/// CLIENT REPLY has been used: the replies after `mark` may not be wanted.
#[cold]
pub fn drop_reply(session: &mut Session, reply: &mut Reply, mark: usize) {
    let pushed = std::mem::take(&mut session.pushed);
    match session.reply_mode {
        ReplyMode::On => return,
        ReplyMode::SkipNext => {
            session.reply_mode = ReplyMode::Skip;
            return;
        }
        ReplyMode::Skip => session.reply_mode = ReplyMode::On,
        ReplyMode::Off => {}
    }
    reply.truncate(mark);
    reply.out.extend_from_slice(&pushed);
}
