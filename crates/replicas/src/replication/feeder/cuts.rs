//! Cuts of the log for replicas: when one is made and for which replicas, and the steps once a snapshot is on
//! its way.

use isotherm_replication::feed::{FeedState, Terms, Waiting, next_group};
use std::sync::Arc;

use super::Feeder;
use super::replica::Replica;
use crate::replication::full_sync::{self, Begun};
use isotherm_config::{Id, id};
use isotherm_runtime::log;

impl Feeder {
    pub(super) fn terms(&self) -> Terms {
        const STREAMS: Id = id("repl-diskless-sync");
        const DELAY: Id = id("repl-diskless-sync-delay");
        const REPLICAS_MAX: Id = id("repl-diskless-sync-max-replicas");
        let config = &self.node.config;
        Terms {
            streams: config.flag(STREAMS),
            delay_ms: config.number(DELAY) as u64 * 1000,
            replicas_max: config.number(REPLICAS_MAX) as usize,
        }
    }

    /// Makes the next cut, if enough replicas wait for one, or one waits long enough.
    pub(super) fn cut_if_due(&mut self) {
        let mut waiting: Vec<(Waiting, u64, usize)> = Vec::new();
        for (token, replica) in self.replicas.iter().enumerate() {
            if let Some(replica) = replica
                && replica.feed.state() == FeedState::AwaitsCut
            {
                waiting.push((replica.waiting, replica.shared.client.id, token));
            }
        }
        if waiting.is_empty() || self.node.persistence.saving().running.is_some() {
            return;
        }
        waiting.sort_by_key(|(waiting, client, _)| (waiting.since, *client));
        let wishes: Vec<Waiting> = waiting.iter().map(|(waiting, ..)| *waiting).collect();
        let Some(group) = next_group(&wishes, &self.terms(), self.now()) else { return };
        let tokens: Vec<usize> = group.members.iter().map(|at| waiting[*at].2).collect();
        match full_sync::begin(self.node, group) {
            Begun::Started(sync) => {
                let sync = Arc::new(sync);
                for token in tokens {
                    if let Some(replica) = &mut self.replicas[token] {
                        replica.begin_sync(&sync);
                    }
                }
            }
            Begun::Busy => {}
            Begun::Failed => {
                for token in tokens {
                    if let Some(mut replica) = self.replicas[token].take() {
                        replica.say("-ERR BGSAVE failed, replication can't continue\r\n");
                        let _ = self
                            .send_to(replica, self.node.log.collected())
                            .map(|replica| self.lose(*replica));
                    }
                }
            }
        }
    }

    /// Sending has brought the replica into another state.
    pub(super) fn note_sync_step(&mut self, replica: &mut Replica) {
        let name = &replica.name;
        match replica.feed.state() {
            FeedState::AwaitsAck => {
                log::notice(format!(
                    "Streamed RDB transfer with replica {name} succeeded (socket). Waiting for REPLCONF ACK from replica to \
                     enable streaming"
                ));
                log::notice(format!("Synchronization with replica {name} succeeded"));
            }
            FeedState::Online => {
                log::notice(format!("Synchronization with replica {name} succeeded"));
                self.begin_stream();
            }
            FeedState::Sent => log::notice(format!(
                "RDB transfer completed, rdb only replica ({name}) should be disconnected asap"
            )),
            _ => {}
        }
        self.publish(replica);
        self.note_good_replicas();
    }

    /// Lets an empty log grow before the first replica continues from there: its offset says nothing.
    pub(super) fn begin_stream(&mut self) {
        if self.node.log.end().0 == 0 {
            self.append(super::PING);
        }
    }

    /// Replicas that were heard of lately count for `min-replicas-to-write`.
    pub(super) fn note_good_replicas(&self) {
        self.node.replication.primary.count_good(&self.node.config);
    }
}
