//! Connections that become replicas leave their worker: socket and session go to the thread that feeds
//! replicas.
//!
//! Replies from before are written first. The bytes that the replica has sent after its request go with it.

use std::os::fd::AsFd;

use super::connection::{OWN_BYTES, Phase};
use super::parking::Parked;
use super::{Inner, Worker};
use isotherm_engine::request::transaction;
use isotherm_node::mail::message::{Arrival, FeederMessage};
use isotherm_node::session::{Attention, Seen};
use std::sync::atomic::Ordering;

impl Worker {
    #[cold]
    pub(super) fn hand_over(&mut self) {
        for token in std::mem::take(&mut self.inner.leaving) {
            if let Some(arrival) = self.inner.take_out(token) {
                self.events.forget(arrival.stream.as_fd());
                self.inner.node.mail.post_feeder(FeederMessage::Attach(Box::new(arrival)));
            }
        }
    }
}

impl Inner {
    /// Takes out a connection that leaves, once it has been answered.
    fn take_out(&mut self, token: usize) -> Option<Arrival> {
        let slot = self.connections.get_mut(token)?;
        let connection = slot.as_ref().filter(|connection| connection.parked == Some(Parked::Leaving))?;
        if connection.outbox.is_some() {
            // COMPAT(replication): PSYNC behind requests whose replies are not written yet waits until they
            // are; Valkey refuses it ("SYNC and PSYNC are invalid with pending output"). Why: nothing needs
            // the refusal here.
            self.leaving.push(token);
            return None;
        }
        let mut connection = *slot.take()?;
        let is_gone =
            connection.phase >= Phase::Closing || connection.session.shared.is_asked(Attention::KILL);
        if is_gone {
            self.forget(connection, token);
            return None;
        }
        transaction::leave(&mut connection.session, &mut self.dispatcher.exec.held);
        self.dispatcher.exec.held.release();
        connection.session.stop_listening(
            self.node,
            &mut self.dispatcher.exec.held,
            &mut self.dispatcher.audience,
        );
        self.dispatcher.exec.held.release();
        self.free.push(token);
        let input = connection.input.split_off(connection.input_done);
        let talk = *connection.session.replica.take()?;
        let client = connection.session.shared;
        client.seen.marks.fetch_or(Seen::REPLICA, Ordering::Relaxed);
        self.node.clients.account_shared(&client, 0);
        self.node.clients.account_total(&client, OWN_BYTES);
        let (announced, request) = (talk.announced, talk.request?);
        Some(Arrival { stream: connection.stream, client, announced, request, input })
    }
}
