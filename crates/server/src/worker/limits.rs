//! Memory that a connection takes, and the end of connections that take too much, or are silent for too long.

use std::time::{Duration, Instant};

use super::Inner;
use super::connection::Connection;
use super::parking::Parked;
use isotherm_engine::request::cached_config::UNAUTHENTICATED_OUTPUT_BYTES_MAX;
use isotherm_engine::request::reply_limits::{log_output_limit, output_limit_of};
use isotherm_node::session::Attention;
use isotherm_node::session::client_memory;
use isotherm_node::session::line;
use isotherm_runtime::log;
use isotherm_runtime::time::unix_now;

/// An unauthenticated client's request may not be longer.
const UNAUTHENTICATED_BYTES_MAX: usize = 1 << 20;

impl Inner {
    /// Accounts for what a connection takes. If all of them take too much, those that take most are closed:
    /// maybe this one.
    #[inline]
    pub fn account(&mut self, connection: &mut Connection) {
        connection.account(self.node);
        if self.node.clients.bytes() > self.dispatcher.exec.hot.client_bytes_max {
            self.dispatcher.exec.release();
            client_memory::evict_clients(self.node, self.dispatcher.exec.stats);
            // If it waits, the message that has killed it decides (`attend`).
            if connection.session.shared.is_asked(Attention::KILL) && !connection.is_blocked() {
                connection.break_off();
            }
        }
    }

    pub fn check_query(&mut self, connection: &mut Connection) {
        let session = &connection.session;
        let queued = session.multi.as_ref().map_or(0, |multi| multi.bytes);
        let bytes = connection.input.len() - connection.input_done + queued;
        let unauthenticated = !session.authenticated && self.node.users.auth_required();
        if bytes > self.dispatcher.exec.hot.query_bytes_max
            || unauthenticated && bytes > UNAUTHENTICATED_BYTES_MAX
        {
            self.dispatcher.exec.stats.values.query_buffer_limit_disconnections.add(1);
            log::warning(format!(
                "Closing client that reached max query buffer length: {} (qbuf={bytes})",
                line::of_log(self.node, &connection.session.shared, unix_now())
            ));
            connection.break_off();
        }
    }

    pub fn check_output(&mut self, connection: &mut Connection) {
        let limit = output_limit_of(&self.dispatcher.exec.hot, &connection.session);
        let Some(outbox) = &mut connection.outbox else { return };
        let bytes = outbox.bytes() as u64;
        let above = |limit_bytes: u64| limit_bytes > 0 && bytes >= limit_bytes;
        // Not yet known to be left unread: the socket is offered more in the next turn.
        let hard_bytes =
            if connection.edge.writable { limit.hard_bytes.saturating_mul(2) } else { limit.hard_bytes };
        let soft_since = above(limit.soft_bytes).then(|| outbox.soft_since.unwrap_or_else(Instant::now));
        outbox.soft_since = soft_since;
        let patience = Duration::from_secs(limit.soft_seconds);
        let for_too_long = soft_since.is_some_and(|since| since.elapsed() > patience);
        let unauthenticated = !connection.session.was_authenticated && self.node.users.auth_required();
        if above(hard_bytes)
            || for_too_long
            || unauthenticated && bytes > UNAUTHENTICATED_OUTPUT_BYTES_MAX as u64
        {
            log_output_limit(&self.dispatcher.exec, &connection.session);
            connection.break_off();
        } else if soft_since.is_some() {
            self.attend_closely(connection);
        }
    }

    /// Closes connections that were silent for too long.
    pub fn scan_idle(&mut self) {
        self.dispatcher.exec.refresh();
        let timeout_ms = self.dispatcher.exec.hot.timeout_seconds as i64 * 1000;
        if timeout_ms == 0 {
            return;
        }
        let now = unix_now();
        for token in 0..self.connections.len() {
            let Some(mut connection) = self.connections[token].take() else { continue };
            let silent_ms = connection.session.shared.seen.idle_ms(now);
            let may_be_silent = connection.parked.is_some_and(|parked| parked != Parked::Reader)
                || connection.session.may_be_silent();
            if silent_ms > timeout_ms && !may_be_silent {
                log::verbose("Closing idle client");
                connection.break_off();
            }
            self.settle(connection, token);
        }
    }
}
