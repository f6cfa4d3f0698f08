//! A connection under TLS before its first request: the handshake, which is done by its worker like all else.
//!
//! ```text
//! event --> a step: read, work, write --> an event | the next turn --> ... --> requests
//! ```
//! A step that signs takes as long as hundreds of commands. So in one turn a worker begins steps for some
//! milliseconds, and the others wait behind connections that send requests; a handshake that is not done
//! after ten seconds is broken off.

use isotherm_reactor::stream::Progress;
use isotherm_reactor::tls;
use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use super::Inner;
use super::connection::Connection;
use isotherm_config::{Id, id};
use isotherm_node::tls::user_names;
use isotherm_node::users::noting;
use isotherm_runtime::log;

/// Maximum time of a handshake from its beginning to its end.
const HANDSHAKE_TIME_MAX: Duration = Duration::from_secs(10);
/// Maximum time of handshakes in one turn: no further step begins after it.
const TURN_TIME_MAX: Duration = Duration::from_millis(2);

#[derive(Default)]
pub struct Handshakes {
    /// Handshakes under way, by the number of the client. The number rises, so they are in the order in which
    /// they began.
    begun: BTreeMap<u64, Begun>,
    /// Time that the steps of this turn have taken.
    taken: Duration,
    /// Number of times that sockets took nothing (DEBUG FORCE-TLS-WRITE-ERROR), at the last look.
    took_nothing: u32,
}

#[derive(Clone, Copy)]
struct Begun {
    until: Instant,
    token: usize,
}

impl Handshakes {
    /// A connection has come, which may begin with a handshake.
    pub fn note(&mut self, token: usize, connection: &Connection) {
        if connection.stream.is_handshaking() {
            let until = Instant::now() + HANDSHAKE_TIME_MAX;
            self.begun.insert(connection.session.id(), Begun { until, token });
        }
    }

    /// Removes a connection that has ended, maybe within its handshake.
    #[inline]
    pub fn forget(&mut self, connection: &Connection) {
        if connection.stream.is_handshaking() {
            self.begun.remove(&connection.session.id());
        }
    }

    /// The oldest, if it has taken too long.
    fn take_late(&mut self, now: Instant) -> Option<usize> {
        let oldest = self.begun.first_entry().filter(|oldest| oldest.get().until <= now)?;
        Some(oldest.remove().token)
    }

    #[inline]
    pub fn begin_turn(&mut self) {
        self.taken = Duration::ZERO;
    }
}

impl Inner {
    /// Does a step of the handshake, if this turn has time for it. Whether requests can be read now.
    #[cold]
    pub fn shake_hands(&mut self, connection: &mut Connection) -> bool {
        if self.handshakes.taken >= TURN_TIME_MAX {
            self.go_on_later(connection);
            return false;
        }
        let begun = Instant::now();
        let Some(tls) = connection.stream.tls() else { return true };
        let progress = tls.shake_hands();
        self.handshakes.taken += begun.elapsed();
        match progress {
            Progress::Bytes(_) => {
                self.handshakes.begun.remove(&connection.session.id());
                self.node.tls.counts.note_done(tls.session().is_resumed());
                let names = user_names(&self.node.config, tls.session());
                if !names.is_empty() {
                    self.enter(connection, &names);
                }
                // It may have been given something to say meanwhile.
                if connection.outbox.is_some() {
                    self.write(connection);
                }
                true
            }
            Progress::Later => {
                match tls.is_drained() {
                    true => connection.edge.readable = false,
                    false => self.go_on_later(connection),
                }
                false
            }
            Progress::Ended | Progress::Broken(_) => {
                let failed = tls.take_failed();
                let shared = &connection.session.shared;
                let what = |why: &str| {
                    let (addr, laddr) = (&shared.addr, &shared.laddr);
                    format!("Error accepting a client connection: {why} (addr={addr} laddr={laddr})")
                };
                match failed {
                    Some(failed) => log::warning(what(&failed.to_string())),
                    None => log::verbose(what("the connection ended within its handshake")),
                }
                self.node.tls.counts.note_failed();
                connection.break_off();
                false
            }
        }
    }

    /// The client's certificate has these names: it is the first of them that is a user that may enter, or
    /// the default user.
    fn enter(&self, connection: &mut Connection, names: &[Vec<u8>]) {
        const HIDES_NAMES: Id = id("hide-user-data-from-log");
        let (users, session) = (&self.node.users, &mut connection.session);
        let seen = users.generation();
        let entered = names.iter().find_map(|name| users.admit_by_certificate(&session.shared, name));
        match (entered, names.last()) {
            (Some(user), _) => {
                let name = match self.node.config.flag(HIDES_NAMES) {
                    true => "*redacted*".into(),
                    false => String::from_utf8_lossy(&user.name).into_owned(),
                };
                log::verbose(format!("TLS: Auto-authenticated client as {name}"));
                session.users_seen = seen;
                (session.authenticated, session.was_authenticated) = (true, true);
                session.set_user(user);
            }
            (None, Some(last)) => noting::refused_certificate(self.node, &session.shared, last),
            (None, None) => {}
        }
    }

    /// The socket takes more of what TLS has to say by itself.
    #[cold]
    pub fn write_unsaid(&mut self, connection: &mut Connection) {
        if let Some(tls) = connection.stream.tls() {
            let flushed = tls.flush();
            if matches!(flushed, Progress::Ended | Progress::Broken(_)) {
                return connection.break_off();
            }
            if tls.is_handshaking() {
                self.go_on_later(connection);
            }
        }
    }

    /// Breaks off handshakes that have taken too long.
    pub fn scan_handshakes(&mut self) {
        let took_nothing = tls::took_nothing();
        if std::mem::replace(&mut self.handshakes.took_nothing, took_nothing) != took_nothing {
            self.write_all();
        }
        let now = Instant::now();
        debug_assert!(
            self.handshakes.begun.iter().all(|(id, Begun { token, .. })| self.is_handshaking(*token, *id))
        );
        while let Some(token) = self.handshakes.take_late(now) {
            let Some(mut connection) = self.connections[token].take() else { continue };
            log::verbose("Closing a client whose TLS handshake has taken too long");
            self.node.tls.counts.note_failed();
            connection.break_off();
            self.settle(connection, token);
        }
    }

    /// Returns whether an entry of the list is still a handshake: connections that are done with it, or have
    /// ended, are none.
    fn is_handshaking(&self, token: usize, id: u64) -> bool {
        let connection = self.connections[token].as_ref();
        connection
            .is_some_and(|connection| connection.session.id() == id && connection.stream.is_handshaking())
    }

    /// Sockets take bytes again, which no event says.
    #[cold]
    fn write_all(&mut self) {
        for token in 0..self.connections.len() {
            let waits = |connection: &mut Box<Connection>| connection.outbox.is_some();
            if let Some(mut connection) = self.connections[token].take_if(waits) {
                self.write(&mut connection);
                self.settle(connection, token);
            }
        }
    }
}
