//! Invalidations that are sent to tracking sessions: keys have changed, or all have left.
//!
//! ```text
//! RESP3                       >2 invalidate [k]
//! redirected to RESP3         >2 invalidate [k]                        on the other connection
//! redirected to RESP2         *3 message __redis__:invalidate [k]      there, if it is subscribed to anything
//! redirected to no session    >2 tracking-redir-broken 17              RESP3 only
//! ```

use isotherm_resp::{Protocol, Reply};
use std::sync::Arc;
use std::sync::atomic::Ordering;

use super::Inner;
use isotherm_node::effects::tracking::{Author, Changes, Mode, stale_bytes};
use isotherm_node::mail::message::{Body, WorkerMessage, carried_bytes};
use isotherm_node::session::{Attention, ClientShared, Seen};

const CHANNEL: &[u8] = b"__redis__:invalidate";

impl Inner {
    /// Sessions that have read a key are notified that it has changed.
    pub fn send_stale(&mut self, key: &[u8], ids: &[u64], author: Author) {
        let body = body_of([key].into_iter());
        for &id in ids {
            let Some(token) = self.dispatcher.audience.tracker(id) else { continue };
            let tracking =
                self.connections[token].as_ref().and_then(|connection| connection.session.tracking());
            let wants = tracking.is_some_and(|tracking| {
                tracking.mode != Mode::Broadcast && !(tracking.noloop && author == id)
            });
            if wants {
                self.invalidate(token, &body);
            }
        }
        self.node.mail.subtract_queued(stale_bytes(key) * ids.len());
        self.dispatcher.budget.pay_units(1 + ids.len());
    }

    /// Sessions with a prefix are notified of what has changed under it.
    pub fn send_changes(&mut self, changes: &Changes) {
        for (prefix, tokens) in self.dispatcher.audience.prefixes() {
            let keys: Vec<_> =
                changes.range(prefix.clone()..).take_while(|(key, _)| key.starts_with(&prefix)).collect();
            if keys.is_empty() {
                continue;
            }
            let all = body_of(keys.iter().map(|(key, _)| &***key));
            for token in tokens {
                let Some(connection) = &self.connections[token] else { continue };
                let id = connection.session.id();
                // COMPAT(pubsub): CLIENT TRACKING BCAST NOLOOP leaves out keys that a script of the session
                // has changed; Valkey those of its other commands alone. Why: the session has changed them.
                if connection.session.tracking().is_some_and(|tracking| tracking.noloop) {
                    let others: Vec<_> = keys.iter().filter(|(_, author)| **author != id).collect();
                    if !others.is_empty() {
                        self.invalidate(token, &body_of(others.iter().map(|(key, _)| &***key)));
                    }
                } else {
                    self.invalidate(token, &all);
                }
                self.dispatcher.budget.pay_units(1 + keys.len());
            }
        }
        self.dispatcher.budget.pay_units(1);
    }

    /// All sessions that track are notified that all keys have left.
    pub fn send_flushed(&mut self) {
        for token in self.dispatcher.audience.trackers() {
            let Some(connection) = &self.connections[token] else { continue };
            let mut null = Reply::new(connection.session.proto);
            null.null();
            self.invalidate(token, &null.out.into());
            self.dispatcher.budget.pay_units(1);
        }
    }

    /// Delivers an invalidation to a client of this worker to which a client of another worker redirects.
    pub fn deliver_redirected(&mut self, token: usize, id: u64, body: &[u8]) {
        self.send_redirected(token, id, body);
        self.node.mail.subtract_queued(carried_bytes(body));
        self.dispatcher.budget.pay_units(1);
    }

    /// Sends an invalidation to a client of this worker to which another client redirects.
    fn send_redirected(&mut self, token: usize, id: u64, body: &[u8]) {
        let connection = self.connections.get(token).and_then(Option::as_ref);
        let Some(session) = connection.map(|connection| &connection.session).filter(|its| its.id() == id)
        else {
            return;
        };
        match session.proto {
            Protocol::Resp3 => self.say_to(token, &push_of(body)),
            Protocol::Resp2 if session.is_subscriber() => {
                let mut reply = Reply::new(Protocol::Resp2);
                reply.push(3);
                reply.bulk(b"message");
                reply.bulk(CHANNEL);
                reply.raw(body);
                self.say_to(token, &reply.out);
            }
            Protocol::Resp2 => {}
        }
    }

    /// Notifies a session that tracks, or the one that is notified in its place.
    fn invalidate(&mut self, token: usize, body: &Body) {
        let Some(connection) = &mut self.connections[token] else { return };
        let session = &mut connection.session;
        let Some(redirect) = session.tracking().map(|tracking| tracking.redirect) else { return };
        if redirect == 0 {
            if session.proto == Protocol::Resp3 {
                self.say_to(token, &push_of(body));
            }
            return;
        }
        match self.node.clients.get(redirect).filter(|target| !is_leaving(target)) {
            Some(target) if target.worker == session.shared.worker => {
                self.send_redirected(target.token.load(Ordering::Acquire), redirect, body);
            }
            Some(target) => {
                let token = target.token.load(Ordering::Acquire);
                let message = WorkerMessage::Redirected { token, id: redirect, body: Arc::clone(body) };
                self.node.mail.add_queued(carried_bytes(body));
                self.node.mail.post(usize::from(target.worker), message);
            }
            None => {
                session.redirect_is_broken();
                if session.proto == Protocol::Resp3 {
                    let mut reply = Reply::new(Protocol::Resp3);
                    reply.push(2);
                    reply.bulk(b"tracking-redir-broken");
                    reply.integer(redirect as i64);
                    self.say_to(token, &reply.out);
                }
            }
        }
    }
}

fn is_leaving(client: &ClientShared) -> bool {
    client.is_asked(Attention::KILL) || client.seen.marks.load(Ordering::Relaxed) & Seen::CLOSES != 0
}

fn body_of<'k>(keys: impl ExactSizeIterator<Item = &'k [u8]>) -> Body {
    let mut reply = Reply::default();
    reply.array(keys.len());
    keys.for_each(|key| reply.bulk(key));
    reply.out.into()
}

fn push_of(body: &[u8]) -> Vec<u8> {
    let mut reply = Reply::new(Protocol::Resp3);
    reply.push(2);
    reply.bulk(b"invalidate");
    reply.raw(body);
    reply.out
}
