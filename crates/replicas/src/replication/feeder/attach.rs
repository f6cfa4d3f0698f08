//! A replica has come: may it continue where it was, or does it need a snapshot?

use isotherm_keyspace::Held;
use isotherm_log::ReaderKind;
use isotherm_reactor::Token;
use isotherm_replication::feed::{Announced, Capabilities, Feed, SyncRequest, Transfer};
use isotherm_replication::{Continuation, History, Refusal, ReplId};
use std::os::fd::AsFd;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;

use super::replica::Replica;
use super::{Feeder, Kept};
use isotherm_config::{Id, id};
use isotherm_engine::request::leases::try_gate;
use isotherm_node::effects::change_log::LogReader;
use isotherm_node::mail::message::Arrival;
use isotherm_node::mail::tasks::Tasks;
use isotherm_node::persistence::state::Job;
use isotherm_node::replication::primary::{ReplicaSeen, ReplicaShared};
use isotherm_node::session::{Attention, ClientShared};
use isotherm_runtime::log;
use isotherm_runtime::random::random_bytes;

pub const BACKLOG_BYTES: Id = id("repl-backlog-size");

/// Returns the name of a replica in the log of the process.
pub fn name_of(announced: &Announced, client: &ClientShared) -> Box<str> {
    let address = address_of(announced, client);
    match announced.listening_port {
        _ if client.is_unix() => format!("client id #{}", client.id),
        0 => format!("{address}:<unknown-replica-port>"),
        port if address.contains(':') => format!("[{address}]:{port}"),
        port => format!("{address}:{port}"),
    }
    .into()
}

fn address_of(announced: &Announced, client: &ClientShared) -> Box<str> {
    let peer = || client.addr.rsplit_once(':').map_or("", |(host, _)| host).trim_matches(['[', ']']).into();
    announced.address.clone().filter(|address| !address.is_empty()).unwrap_or_else(peer)
}

impl Feeder {
    pub(super) fn attach(&mut self, arrival: Arrival) {
        let Arrival { stream, client, announced, request, input } = arrival;
        let now = self.now();
        let name = name_of(&announced, &client);
        let (address, port) = (address_of(&announced, &client), announced.listening_port);
        let shared = Arc::new(ReplicaShared { client, address, port, seen: ReplicaSeen::default() });
        self.forget(&shared.address, port);
        let feed = Feed::full(&announced, &request, now);
        let mut replica = Replica::new(stream, shared, announced, feed, name, now);
        replica.input = input;
        let token = self.replicas.iter().position(Option::is_none).unwrap_or_else(|| {
            self.replicas.push(None);
            self.replicas.len() - 1
        });
        let is_killed = replica.shared.client.is_asked(Attention::KILL);
        // The data that it has asked for may have gone while the request was on its way here.
        let has_no_data = self.node.mail.tasks().has(Tasks::REPLICA) && !self.node.replication.is_link_up();
        if is_killed || has_no_data || self.events.watch(replica.stream.as_fd(), Token(token)).is_err() {
            return self.lose(replica);
        }
        let continues = match &request {
            SyncRequest::Sync => false,
            SyncRequest::Psync { .. } => self.resume(&mut replica, &request),
        };
        if !continues && !self.begin_full(&mut replica) {
            // A script has begun meanwhile that takes long: the replica comes back.
            return self.lose(replica);
        }
        self.publish(&replica);
        self.node.replication.primary.replicas().push(Arc::clone(&replica.shared));
        let mut replica = Box::new(replica);
        let stays = self.run_input(&mut replica);
        self.settle(token, replica, stays);
        self.note_good_replicas();
        if !continues {
            self.cut_if_due();
        }
    }

    // ---- it continues ----

    fn resume(&mut self, replica: &mut Replica, request: &SyncRequest) -> bool {
        let SyncRequest::Psync { from, .. } = request else { return false };
        let counts = &self.node.replication.primary.counts;
        let (continuation, end) = match self.decide(request) {
            Ok(decided) => decided,
            Err(refusal) => {
                if !request.asks_for_snapshot() {
                    counts.partial_refused.fetch_add(1, Relaxed);
                }
                self.say_refused(replica, request, refusal);
                return false;
            }
        };
        counts.partial.fetch_add(1, Relaxed);
        log::notice(format!(
            "Partial resynchronization request from {} accepted. Sending {} bytes of backlog starting from offset {from}.",
            replica.name,
            end - continuation.from
        ));
        match replica.announced.capabilities.has(Capabilities::PSYNC2) {
            true => replica.say(&format!("+CONTINUE {}\r\n", continuation.id)),
            false => replica.say("+CONTINUE\r\n"),
        }
        replica.feed = Feed::resumed(&replica.announced, request, self.now());
        replica.begin_at(continuation.from);
        replica.gets_log = true;
        true
    }

    fn decide(&mut self, request: &SyncRequest) -> Result<(Continuation, isotherm_log::LogOffset), Refusal> {
        let node = self.node;
        let (id, from) = request.place().ok_or(Refusal::OtherHistory)?;
        let (history, end) = (node.replication.state().history, node.log.end());
        let primary = &node.replication.primary;
        // Without a backlog nothing can be read, but the name is looked at first.
        let first = match primary.has_backlog() {
            true => self.first(),
            false => end + 1,
        };
        let continuation = history.resume(id, from, first, end)?;
        // Bytes that are appended or given back meanwhile change nothing from here on.
        match self.keep_from(from) {
            true => Ok((continuation, end)),
            false => Err(Refusal::Gone { first: self.first(), end }),
        }
    }

    fn say_refused(&self, replica: &Replica, request: &SyncRequest, refusal: Refusal) {
        let SyncRequest::Psync { text, from, .. } = request else { return };
        let (node, name) = (self.node, &replica.name);
        let history: History = node.replication.state().history;
        let asked = text.escape_ascii();
        let second = history.second().map_or(ReplId::NONE, |(id, _)| id);
        if request.asks_for_snapshot() {
            return log::notice(format!("Full resync requested by replica {name}"));
        }
        match refusal {
            Refusal::OtherHistory => log::notice(format!(
                "Partial resynchronization not accepted: Replication ID mismatch (Replica asked for '{asked}', my \
                 replication IDs are '{}' and '{second}')",
                history.id()
            )),
            Refusal::BeyondSecond { end } => log::notice(format!(
                "Partial resynchronization not accepted: Requested offset for second ID was {from}, but I can reply up to {}",
                end.0 + 1
            )),
            Refusal::Gone { .. } if !node.replication.primary.has_backlog() => log::notice(format!(
                "Unable to partial resync with replica {name} for lack of backlog (Replica request was: {asked}:{from})."
            )),
            Refusal::Gone { first, end } => log::notice(format!(
                "Unable to partial resync with replica {name} for lack of backlog (Replica request was {asked}:{from}, and I \
                 can only reply with the range [{}, {}]).",
                first.0 + 1,
                end.0 + 1
            )),
        }
        let end = node.log.end().0 as i64;
        if matches!(refusal, Refusal::Gone { .. }) && *from > end {
            log::warning(format!(
                "Warning: replica {name} tried to PSYNC with an offset ({from}) that is greater than the primary replication \
                 offset ({end})"
            ));
        }
    }

    // ---- it needs a snapshot ----

    /// Returns false if a script stands in the way.
    fn begin_full(&mut self, replica: &mut Replica) -> bool {
        if !self.open_backlog() {
            return false;
        }
        self.node.replication.primary.counts.full.fetch_add(1, Relaxed);
        let running = self.node.persistence.saving().running.map(|running| running.job);
        match running {
            Some(Job::Stream) => {
                log::notice("Current BGSAVE has socket target. Waiting for next BGSAVE for SYNC");
            }
            Some(Job::BackgroundSave) => match self.sync_to_join(replica) {
                Some(sync) => {
                    replica.begin_sync(&sync);
                    log::notice("Waiting for end of BGSAVE for SYNC");
                }
                None => log::notice(
                    "Can't attach the replica to the current BGSAVE. Waiting for next BGSAVE for SYNC",
                ),
            },
            Some(Job::Save(_) | Job::Rewrite) => log::notice(
                "No BGSAVE in progress, but another BG operation is active. BGSAVE for replication delayed",
            ),
            None => {
                let terms = self.terms();
                let reads_mark = replica.announced.capabilities.has(Capabilities::EOF);
                if terms.streams && reads_mark && terms.delay_ms > 0 {
                    log::notice("Delay next BGSAVE for diskless SYNC");
                }
            }
        }
        true
    }

    /// A snapshot that is being written to disk serves another one that wants the same, while all of the log
    /// after it is there.
    fn sync_to_join(&self, replica: &Replica) -> Option<Arc<crate::replication::full_sync::FullSync>> {
        let of_others = self.replicas.iter().flatten();
        let awaiting = of_others.filter(|other| {
            other.feed.state() == isotherm_replication::feed::FeedState::AwaitsFile
                && (!other.announced.wants_snapshot_only || replica.announced.wants_snapshot_only)
        });
        let syncs = awaiting.filter_map(|other| other.sync.clone().map(|sync| (other, sync)));
        syncs
            .filter(|(other, sync)| {
                let theirs = other.announced.capabilities;
                sync.group.transfer == Transfer::File
                    && replica.announced.capabilities.has(theirs)
                    && replica.announced.filter == sync.group.filter
            })
            .map(|(_, sync)| sync)
            .next()
    }

    /// Keeps the log from now on. A primary that has not logged all of its history takes a new name for it:
    /// no other log contains the changes that were not logged until now. Returns false, and does nothing,
    /// while a script is in its middle, because only the rest of it would be logged. Returns true also if
    /// there are no random bytes: then it logs why and keeps nothing.
    pub(super) fn open_backlog(&mut self) -> bool {
        let node = self.node;
        if self.kept.is_some() {
            return true;
        }
        let random = match random_bytes() {
            Ok(random) => random,
            Err(why) => {
                log::warning(why);
                return true;
            }
        };
        let mut held = Held::new(&node.keyspace);
        if !try_gate(node, &mut held) {
            return false;
        }
        node.log.set_backlog_bytes(node.config.number(BACKLOG_BYTES) as u64);
        // A replica has the history of its primary, and keeps it; so does a node that has logged all of its
        // own.
        let is_renamed = !node.mail.tasks().has(Tasks::REPLICA) && node.log.has_gap();
        if is_renamed {
            node.log.close_gap();
            let mut state = node.replication.state();
            state.history.replace(ReplId::new(random));
            log::notice(format!(
                "Replication backlog created, my new replication IDs are '{}' and '{}'",
                state.history.id(),
                ReplId::NONE
            ));
        }
        let start = node.log.cut(is_renamed && node.log.is_read_by(LogReader::Aof));
        node.log.wake(LogReader::Aof);
        node.log.gather();
        let reader = node.log.add_reader(ReaderKind::Follower, start).expect("it ends there");
        self.kept = Some(Kept { reader, from: start });
        if !node.replication.primary.has_backlog() {
            node.replication.primary.set_backlog(Some(start));
        }
        node.log.set_read_by(&node.mail, LogReader::Feeder, true);
        true
    }

    /// Gives up the log that was kept for replicas, since none has come for long enough; a new history
    /// begins. Returns false, and does nothing, while a script holds the keyspace.
    pub(super) fn close_backlog(&mut self) -> bool {
        match random_bytes() {
            Ok(random) => self.end_backlog(Some(ReplId::new(random))),
            Err(why) => {
                log::warning(why);
                false
            }
        }
    }

    /// Gives up all of the log, which is about to be replaced. Returns false as [`Self::close_backlog`] does.
    pub(super) fn let_go(&mut self) -> bool {
        self.end_backlog(None)
    }

    fn end_backlog(&mut self, name: Option<ReplId>) -> bool {
        let node = self.node;
        let Some(kept) = self.kept.take() else { return true };
        let mut held = Held::new(&node.keyspace);
        if !try_gate(node, &mut held) {
            self.kept = Some(kept);
            return false;
        }
        node.log.set_read_by(&node.mail, LogReader::Feeder, false);
        node.replication.primary.set_backlog(None);
        if let Some(name) = name {
            node.replication.state().history.replace(name);
        }
        held.release();
        node.log.remove_reader(kept.reader);
        node.log.set_backlog_bytes(0);
        self.ring.clear();
        self.departed.clear();
        self.publish_ring();
        true
    }
}
