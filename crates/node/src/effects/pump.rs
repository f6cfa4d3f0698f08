//! The pump: the one place in the server that turns effects of the keyspace into what follows from them.
//!
//! Each thread that changes keys has a pump: the workers and the cron. It receives effects while the
//! partitions are locked, so events of a key are published in the order of its changes. Invalidations are
//! gathered until the batch is over: many keys make one broadcast, and a client that waited for a key gets
//! its reply before its copy of the key is stale. WATCH is served inside the keyspace, and counts (hits,
//! expired keys) come with the transaction. The log of changes is written here too (see `change_log`).

use isotherm_keyspace::{Db, Effect, EffectMask, EffectSink, EventClass};
use isotherm_log::LogOffset;
use isotherm_stdx::Slot;
use std::sync::atomic::Ordering::Relaxed;

use crate::Node;
use crate::effects::change_log::LogWriter;
use crate::effects::events::Events;
use crate::effects::tracking::{Author, Changes, Stale};
use crate::mail::tasks::Tasks;
use isotherm_config::{Id, id};

pub struct Pump {
    node: &'static Node,
    /// The worker whose pump it is.
    pub worker: Option<u16>,
    mask: EffectMask,
    pub log: LogWriter,
    events: Events,
    /// The session whose command runs; 0 if it is none's.
    author: Author,
    /// Messages for sessions that have read a changed key, and changes for sessions that have named a prefix.
    stale: Vec<Stale>,
    changes: Changes,
}

impl Pump {
    pub fn new(node: &'static Node, worker: Option<u16>) -> Pump {
        let (mask, events) = (EffectMask::NONE, Events::default());
        let log = LogWriter::new(&node.log);
        Pump { node, worker, mask, log, events, author: 0, stale: Vec::new(), changes: Changes::new() }
    }

    /// A command of this session begins; 0 if it is no session's.
    #[inline]
    pub fn begin(&mut self, author: Author) {
        self.author = author;
    }

    /// Sets the events that are emitted from now on.
    pub fn listen(&mut self, events: Events) {
        self.events = events;
        self.mask = if events.any() { EffectMask::EVENTS } else { EffectMask::NONE };
        const LAZY: [Id; 2] = [id("lazyfree-lazy-expire"), id("lazyfree-lazy-eviction")];
        let [expires_lazily, evicts_lazily] = LAZY.map(|id| self.node.config.flag(id));
        self.log.set_lazy(expires_lazily, evicts_lazily);
    }

    /// A batch is over, and its replies are not written yet. Nothing is held.
    #[inline]
    pub fn flush(&mut self) {
        self.post_stale();
        self.broadcast();
    }

    /// Posts the changed keys to the workers whose clients have read them. The partitions of the batch may
    /// still be held: a client that waits in one of their lists hears of the change before it can leave that
    /// list.
    #[inline]
    pub fn post_stale(&mut self) {
        if !self.stale.is_empty() {
            let node = self.node;
            self.stale.drain(..).for_each(|stale| node.trackers.post_stale(&node.mail, self.worker, stale));
        }
    }

    /// Sessions that have named prefixes are notified. There may be very many prefixes: nothing is held.
    #[inline]
    pub fn broadcast(&mut self) {
        self.log.settle(&self.node.mail);
        if self.node.keyspace.is_kept_full() {
            self.hold_writers();
        }
        if !self.changes.is_empty() {
            let node = self.node;
            node.trackers.broadcast(&node.mail, self.worker, std::mem::take(&mut self.changes));
        }
    }

    // COMPAT(persistence): While what is kept for a snapshot exceeds `snapshot-memory-limit` (5 % of the used
    // memory, 64 MB or an eighth of `maxmemory` at least), commands that write wait until the save has come
    // on; a save that makes no step for two seconds is waited for no longer. INFO counts that as
    // `snapshot_writer_waits`. Why: a fork may take as much memory again as there is.
    /// Makes commands that write wait until the save has made progress: the values that are kept for a
    /// snapshot take as much memory as they may.
    #[cold]
    fn hold_writers(&self) {
        let (mail, keyspace) = (&self.node.mail, &self.node.keyspace);
        if mail.set_snapshot_full(true) {
            self.node.persistence.progress.writer_waits.fetch_add(1, Relaxed);
        }
        // The save looks at the mark after each step; its last one may have been before.
        if !keyspace.is_kept_full() {
            mail.set_snapshot_full(false);
        }
    }

    /// Returns whether the log has a reader. The caller holds a partition, and while it does this does not
    /// change.
    #[inline]
    pub fn is_logging(&self) -> bool {
        self.node.mail.tasks().has(Tasks::LOGGED)
    }

    /// The key left without a command, and the log has that before `end`: a command that finds it gone waits
    /// for that.
    fn stamp(&self, key: &[u8], end: Option<LogOffset>) {
        if let Some(end) = end {
            self.node.keyspace.stamp_of(Slot::of_key(key)).store(end.0, Relaxed);
        }
    }

    fn event(&self, class: EventClass, name: &str, db: Db, key: &[u8]) {
        if self.events.has(class) {
            let node = self.node;
            for (channel, message) in self.events.messages(name, db, key) {
                node.pubsub.publish(&node.mail, self.worker, &channel, message, false);
            }
        }
    }

    /// The readers of the key are notified.
    fn changed(&mut self, key: &[u8], author: Author) {
        let trackers = &self.node.trackers;
        self.stale.extend(trackers.take(key, author));
        if trackers.prefixes() > 0 {
            // COMPAT(pubsub): CLIENT TRACKING BCAST sends the keys that a batch of commands has changed as
            // one message; Valkey those of one turn of its event loop. Why: a batch is the unit of work of a
            // worker.
            self.changes.insert(key.into(), author);
        }
    }
}

impl EffectSink for Pump {
    #[inline]
    fn mask(&self) -> EffectMask {
        if self.is_logging() { self.mask | EffectMask::LOG } else { self.mask }
    }

    fn effect(&mut self, effect: Effect<'_>) {
        let is_logging = self.is_logging();
        match effect {
            Effect::Event { class, name, db, key } => self.event(class, name, db, key),
            // No client's command: NOLOOP does not hold for them.
            Effect::Expired { db, key } => {
                if is_logging {
                    let end = self.log.expired(db, key);
                    self.stamp(key, end);
                }
                self.event(EventClass::Expired, "expired", db, key);
                self.changed(key, 0);
            }
            Effect::Evicted { db, key } => {
                if is_logging {
                    let end = self.log.evicted(db, key);
                    self.stamp(key, end);
                }
                self.changed(key, 0);
                self.event(EventClass::Evicted, "evicted", db, key);
            }
            Effect::FieldsExpired { db, key, fields, is_emptied } => {
                if is_logging {
                    let end = self.log.fields_expired(db, key, fields);
                    self.stamp(key, end);
                }
                self.event(EventClass::Expired, "hexpired", db, key);
                if is_emptied {
                    self.event(EventClass::Generic, "del", db, key);
                }
                self.changed(key, 0);
            }
            // COMPAT(pubsub): CLIENT TRACKING NOLOOP: a session is notified of a key that expires during one
            // of its own commands too. Why: the session did not change it.
            Effect::Written { key, .. } => self.changed(key, self.author),
            Effect::Flushed { .. } => self.node.trackers.keys_flushed(&self.node.mail, self.worker),
        }
    }
}
