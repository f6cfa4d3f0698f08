//! CLIENT TRACKING: clients that keep values of their own are notified when these are no longer right.
//!
//! ```text
//! GET k, by a session that tracks     k's partition is locked: table { k: 17 at worker 0 }
//! SET k, by any client                the same lock: k leaves the table, message { k, 17 } to worker 0
//! worker 0                            17 tracks still? NOLOOP? redirects? -> >2 invalidate [k]
//! ```
//! Reads of a session are noted under the lock of the key's partition, and every change is reported under it
//! (`Effect::Written`), so none falls between. Partitions report changes only while a session tracks: the
//! flag for that lies next to data that a change looks at anyway, so without trackers it costs nothing.
//!
//! Messages leave when a batch is over, before its replies do. With BCAST a session names prefixes instead of
//! reading: all keys that a batch has changed go to every worker with a session that has named one; it knows
//! which.
//!
//! The table knows names, not databases, as in Valkey. A session that leaves is in it until the key changes,
//! or the cron has looked through the table (`forget_gone`), in steps: it begins when one has left that was
//! noted.

pub mod changes;
mod state;
mod table;

pub use changes::{Author, Changes, changes_bytes, stale_bytes};
pub use state::{Mode, Tracking};
pub use table::Tracker;

use isotherm_keyspace::Held;
use isotherm_stdx::steps;
use std::collections::BTreeMap;
use std::ops::Bound;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError, RwLock};

use crate::effects::pubsub::WorkerCounts;
use crate::mail::Mail;
use crate::mail::message::WorkerMessage;
use crate::observe::holds;
use crate::observe::stats::Stats;
use isotherm_config::{Config, Id, id};
use table::{SHARDS, Table};

/// A key that has changed, and the trackers that have read it.
pub struct Stale {
    key: Arc<[u8]>,
    readers: Vec<Tracker>,
    author: Author,
}

/// Keys that leave a table that is too large, for one that is noted.
const FORGOTTEN_PER_NOTE_MAX: usize = 100;
/// And in one turn of the cron.
const FORGOTTEN_PER_TURN_MAX: usize = 10_000;

/// Keys and readers that one turn of the cron looks at for those that are gone: about a millisecond.
const WALK_LOOKS_PER_TURN_MAX: usize = 10_000;

/// A walk through the table, for readers that are gone.
#[derive(Default)]
struct Walk {
    /// The shard that it is at, if it is under way, and whether it has begun with that.
    at: Option<usize>,
    begun: bool,
}

/// State of client-side caching that all workers share.
#[derive(Default)]
pub struct Trackers {
    table: Table,
    /// Sessions that track.
    sessions: AtomicUsize,
    /// Sessions that have tracked and are gone since the last walk has begun.
    gone: AtomicUsize,
    walk: Mutex<Walk>,
    /// Prefixes, and how many sessions of each worker want them.
    prefixes: RwLock<BTreeMap<Box<[u8]>, WorkerCounts>>,
    prefix_count: AtomicUsize,
}

impl Trackers {
    pub fn sessions(&self) -> usize {
        self.sessions.load(Ordering::Acquire)
    }

    pub fn memory_bytes(&self) -> usize {
        self.table.memory_bytes()
    }

    pub fn keys(&self) -> usize {
        self.table.keys()
    }

    pub fn items(&self) -> usize {
        self.table.items()
    }

    pub fn prefixes(&self) -> usize {
        self.prefix_count.load(Ordering::Acquire)
    }

    /// A key has changed, whose partition is held. Its readers are to be notified, and read it anew.
    pub fn take(&self, key: &[u8], author: Author) -> Option<Stale> {
        self.table.take(key).map(|readers| Stale { key: key.into(), readers, author })
    }

    /// Adds a session that tracks. All partitions report their changes from now on. Everything is held for a
    /// moment also by the second session, so that it reads nothing before the first has turned the reports
    /// on.
    pub fn add(&self, held: &mut Held<'static>, stats: &Stats) {
        let held_before = held.holds_all();
        held.acquire_beside_leases();
        let from = stats.now_ticks();
        if self.sessions.fetch_add(1, Ordering::AcqRel) == 0 {
            held.report_changes(true);
        }
        if !held_before {
            holds::note_gate(from);
            held.release();
        }
    }

    /// Removes a session that tracks, by its own command or at its end. After the last one the changes are
    /// reported no longer.
    pub fn remove(&self, held: &mut Held<'static>, stats: &Stats) {
        if self.sessions.fetch_sub(1, Ordering::AcqRel) > 1 {
            return;
        }
        let held_before = held.holds_all();
        held.acquire_beside_leases();
        let from = stats.now_ticks();
        // A session may have begun meanwhile.
        // COMPAT(pubsub): When the last session that tracks disconnects, the tracking table is emptied at
        // once. Why: no session is left to be notified.
        if self.sessions() == 0 {
            held.report_changes(false);
            self.table.clear();
        }
        if !held_before {
            holds::note_gate(from);
            held.release();
        }
    }

    /// A session has read a key, whose partition is held. `from` is the worker that ran the command: not
    /// always the session's own, as a client that waits is served by whichever worker has what it waits for.
    pub fn note_read(&self, mail: &Mail, config: &Config, from: u16, tracker: Tracker, key: &[u8]) {
        self.table.note(key, tracker);
        self.forget_reads(mail, config, Some(from), FORGOTTEN_PER_NOTE_MAX);
    }

    /// `tracking-table-max-keys`: readers of what is forgotten are notified that it may have changed.
    fn forget_reads(&self, mail: &Mail, config: &Config, from: Option<u16>, count_max: usize) {
        const KEYS_MAX: Id = id("tracking-table-max-keys");
        let keys_max = config.number(KEYS_MAX) as usize;
        for _ in 0..count_max {
            if keys_max == 0 || self.keys() <= keys_max {
                return;
            }
            let Some((key, readers)) = self.table.take_any() else { return };
            self.post_stale(mail, from, Stale { key: key.into(), readers, author: 0 });
        }
    }

    /// Forgets reads beyond the limit from time to time, for a limit that was lowered.
    pub fn forget_some(&self, mail: &Mail, config: &Config) {
        self.table.drop_cleared();
        if self.keys() > 0 {
            // The control thread is no worker: the workers that it notifies are woken.
            self.forget_reads(mail, config, None, FORGOTTEN_PER_TURN_MAX);
        }
    }

    /// A session that has tracked is gone: its client is no longer known.
    pub fn note_gone(&self) {
        self.gone.fetch_add(1, Ordering::AcqRel);
    }

    /// A turn of the walk. `lives` says of the id of a session whether it is there; its answer is asked under
    /// a shard's lock.
    // COMPAT(pubsub): The tracking table forgets sessions that are gone, in the background. Valkey keeps them
    // until the key changes. Why: connections that come and go would leave entries without end.
    pub fn forget_gone(&self, lives: &dyn Fn(u64) -> bool) {
        let mut walk = self.walk.lock().unwrap_or_else(PoisonError::into_inner);
        if walk.at.is_none() && self.gone.swap(0, Ordering::AcqRel) > 0 {
            *walk = Walk { at: Some(0), begun: false };
        }
        let mut left = WALK_LOOKS_PER_TURN_MAX;
        while let Some(at) = walk.at.filter(|_| left > 0) {
            let walked = self.table.forget_gone(at, !walk.begun, &|tracker| lives(tracker.id()));
            left = left.saturating_sub(walked.looks.max(1));
            walk.begun = !walked.is_done;
            if walked.is_done {
                walk.at = Some(at + 1).filter(|next| *next < SHARDS);
            }
        }
    }

    /// Notifies the workers of sessions that have read a key.
    pub fn post_stale(&self, mail: &Mail, from: Option<u16>, stale: Stale) {
        let mut workers: BTreeMap<u16, Vec<u64>> = BTreeMap::new();
        for tracker in stale.readers {
            workers.entry(tracker.worker()).or_default().push(tracker.id());
        }
        for (worker, ids) in workers {
            mail.add_queued(stale_bytes(&stale.key) * ids.len());
            let message =
                WorkerMessage::Stale { key: Arc::clone(&stale.key), ids: ids.into(), author: stale.author };
            mail.post_from(from, worker, message);
        }
    }

    /// All keys have left: nothing that was read is right.
    pub fn keys_flushed(&self, mail: &Mail, from: Option<u16>) {
        self.table.clear();
        if self.sessions() > 0 {
            mail.post_all(from, || WorkerMessage::Flushed);
        }
    }

    /// Posts the changes of a batch to the workers with a session that has named a fitting prefix.
    pub fn broadcast(&self, mail: &Mail, from: Option<u16>, changes: Changes) {
        let prefixes = self.prefixes.read().unwrap_or_else(PoisonError::into_inner);
        // By the order of the keys: very many may have changed, and very many prefixes may be named.
        let fits = |prefix: &[u8]| {
            steps::note(1);
            let mut behind = changes.range::<[u8], _>((Bound::Included(prefix), Bound::Unbounded));
            behind.next().is_some_and(|(key, _)| key.starts_with(prefix))
        };
        let mut workers: BTreeMap<u16, usize> = BTreeMap::new();
        for (_, subscribers) in prefixes.iter().filter(|(prefix, _)| fits(prefix)) {
            for (worker, count) in subscribers.by_worker() {
                *workers.entry(worker).or_default() += count as usize;
            }
        }
        drop(prefixes);
        let bytes = changes_bytes(&changes);
        let changes = Arc::new(changes);
        for (worker, receivers) in workers {
            let weight_bytes = bytes * receivers;
            mail.add_queued(weight_bytes);
            let message = WorkerMessage::Changes { changes: Arc::clone(&changes), weight_bytes };
            mail.post_from(from, worker, message);
        }
    }

    pub fn add_prefix(&self, prefix: &[u8], worker: u16) {
        let mut prefixes = self.prefixes.write().unwrap_or_else(PoisonError::into_inner);
        prefixes.entry(prefix.into()).or_default().add(worker);
        self.prefix_count.store(prefixes.len(), Ordering::Release);
    }

    pub fn remove_prefix(&self, prefix: &[u8], worker: u16) {
        let mut prefixes = self.prefixes.write().unwrap_or_else(PoisonError::into_inner);
        let subscribers = prefixes.get_mut(prefix).expect("the session has named it");
        subscribers.remove(worker);
        if subscribers.total() == 0 {
            prefixes.remove(prefix);
        }
        self.prefix_count.store(prefixes.len(), Ordering::Release);
    }
}
