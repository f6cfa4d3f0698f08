//! Pub/sub: the sessions that listen to each channel, and how a message gets to all of them.
//!
//! ```text
//! PUBLISH c m, on worker 1                        worker 0                       worker 1
//! shard of c   { c: two at 0, one at 1 } ------ message { c, m } ---> audience { c: 3, 7 }
//! patterns     { c*: one at 0 }           \----------------------------------------------> { c: 5 }
//! ```
//! The registry knows how many sessions of each worker listen to a name, and a worker's `Audience` knows
//! which. So PUBLISH costs one message a worker, however many listen, and its answer is a sum. Messages are
//! posted under the lock of the channel's shard: every subscriber of a channel gets its messages in one and
//! the same order, on every worker.
//!
//! **Moments.** A message may lie in the mailbox of a worker while one of its sessions subscribes. The
//! session must not hear it: it was published before. So subscribing moves the moment of the shard (of all
//! patterns together), a message carries the moments that it was published at, and a seat hears what is not
//! older than itself.
//!
//! Lock order: partitions, a shard, the patterns, mailboxes. Events of the keyspace are published under
//! partitions.

mod audience;
mod frame;
pub mod message;
mod worker_counts;

pub use audience::Audience;
pub use frame::Frame;
pub use message::{Kind, Message, Name};
pub use worker_counts::WorkerCounts;

use std::collections::{BTreeMap, HashMap};
use std::hash::{BuildHasher, RandomState};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, RwLock};

use crate::mail::Mail;
use crate::mail::message::WorkerMessage;
use crate::room::memory::hash_table_bytes;
use isotherm_allocator::class_bytes;
use isotherm_stdx::{glob_match, steps};
use message::Moment;

/// Locks of the channels. With a million of them a shard's table doubles within some milliseconds.
const SHARDS: usize = 64;

/// The registry, shared by all workers.
pub struct PubSub {
    shards: Box<[Mutex<Shard>]>,
    patterns: RwLock<Names>,
    hasher: RandomState,
    /// Names with subscribers, by kind.
    counts: [AtomicUsize; Kind::COUNT],
    /// Sessions that listen to something.
    pub sessions: AtomicUsize,
    /// Bytes that the names with subscribers take.
    name_bytes: AtomicUsize,
}

#[derive(Default)]
struct Shard {
    channels: Names,
    shard_channels: Names,
}

/// Names, and the workers whose sessions listen to them.
#[derive(Default)]
struct Names {
    all: HashMap<Name, WorkerCounts>,
    moment: Moment,
}

/// Returns the bytes of a name with the two counts in front of it.
fn name_bytes(name: &[u8]) -> usize {
    class_bytes(2 * size_of::<usize>() + name.len())
}

impl Default for PubSub {
    fn default() -> PubSub {
        PubSub {
            shards: (0..SHARDS).map(|_| Mutex::default()).collect(),
            patterns: RwLock::default(),
            hasher: RandomState::new(),
            counts: Default::default(),
            sessions: AtomicUsize::new(0),
            name_bytes: AtomicUsize::new(0),
        }
    }
}

impl PubSub {
    /// Subscribes one more session of `worker` to `name`. Returns the name as it is shared, and the moment of
    /// the subscription.
    pub fn subscribe(&self, kind: Kind, name: &[u8], worker: u16) -> (Name, Moment) {
        self.with(kind, name, |names| {
            let shared = match names.all.get_key_value(name) {
                Some((shared, _)) => Arc::clone(shared),
                None => {
                    self.counts[kind as usize].fetch_add(1, Ordering::AcqRel);
                    self.name_bytes.fetch_add(name_bytes(name), Ordering::Relaxed);
                    Arc::from(name)
                }
            };
            names.all.entry(Arc::clone(&shared)).or_default().add(worker);
            names.moment += 1;
            (shared, names.moment)
        })
    }

    /// Ends the subscription of one session of `worker` to `name`.
    pub fn unsubscribe(&self, kind: Kind, name: &[u8], worker: u16) {
        self.with(kind, name, |names| {
            let subscribers = names.all.get_mut(name).expect("the session has subscribed");
            subscribers.remove(worker);
            if subscribers.total() == 0 {
                names.all.remove(name);
                shrink(&mut names.all);
                self.counts[kind as usize].fetch_sub(1, Ordering::AcqRel);
                self.name_bytes.fetch_sub(name_bytes(name), Ordering::Relaxed);
            }
        });
    }

    /// Names with subscribers.
    pub fn count(&self, kind: Kind) -> usize {
        self.counts[kind as usize].load(Ordering::Acquire)
    }

    /// Names, and the tables that they are in; messages on their way are the mail's.
    pub fn memory_bytes(&self) -> usize {
        let table = |names: &Names| hash_table_bytes::<(Name, WorkerCounts)>(names.all.capacity());
        let patterns = table(&self.patterns.read().unwrap_or_else(PoisonError::into_inner));
        let shards: usize = self
            .shards
            .iter()
            .map(|shard| {
                let shard = lock(shard);
                table(&shard.channels) + table(&shard.shard_channels)
            })
            .sum();
        patterns + shards + self.name_bytes.load(Ordering::Relaxed)
    }

    /// Sessions that listen to `name`.
    pub fn subscribers(&self, kind: Kind, name: &[u8]) -> usize {
        self.with(kind, name, |names| names.all.get(name).map_or(0, WorkerCounts::total))
    }

    /// The channels that match `pattern`.
    pub fn channels(&self, kind: Kind, pattern: Option<&[u8]>) -> Vec<Name> {
        let fits = |name: &&Name| pattern.is_none_or(|pattern| glob_match(pattern, name, false));
        let mut found = Vec::new();
        for shard in &self.shards {
            found.extend(lock(shard).names(kind).all.keys().filter(fits).cloned());
        }
        found
    }

    /// Sends a message to all subscribers. `from` is the worker that asks, if it is one: it looks into its
    /// mailbox without being woken. Returns how many sessions get it.
    pub fn publish(
        &self,
        mail: &Mail,
        from: Option<u16>,
        channel: &[u8],
        payload: &[u8],
        sharded: bool,
    ) -> usize {
        let kind = if sharded { Kind::ShardChannel } else { Kind::Channel };
        let has_patterns = !sharded && self.count(Kind::Pattern) > 0;
        if self.count(kind) == 0 && !has_patterns {
            return 0;
        }
        let mut shard = self.shard(channel);
        let names = shard.names(kind);
        let mut receivers = 0;
        // By worker: its patterns that match, and how many sessions get the message, once for each name.
        let mut workers: BTreeMap<u16, (Vec<Name>, usize)> = BTreeMap::new();
        for (worker, count) in names.all.get(channel).iter().flat_map(|subscribers| subscribers.by_worker()) {
            receivers += count as usize;
            workers.entry(worker).or_default().1 += count as usize;
        }
        let mut pattern_moment = 0;
        if has_patterns {
            let patterns = self.patterns.read().unwrap_or_else(PoisonError::into_inner);
            pattern_moment = patterns.moment;
            for (pattern, subscribers) in &patterns.all {
                if glob_match(pattern, channel, false) {
                    receivers += subscribers.total();
                    subscribers.by_worker().for_each(|(worker, count)| {
                        let (patterns, receivers) = workers.entry(worker).or_default();
                        patterns.push(Arc::clone(pattern));
                        *receivers += count as usize;
                    });
                }
            }
        }
        if !workers.is_empty() {
            let message = Arc::new(Message {
                sharded,
                channel: channel.into(),
                payload: payload.into(),
                channel_moment: names.moment,
                pattern_moment,
            });
            for (worker, (patterns, receivers)) in workers {
                let weight_bytes = message.weight_bytes(patterns.len(), receivers);
                mail.add_queued(weight_bytes);
                let message = Arc::clone(&message);
                let published = WorkerMessage::Published { message, patterns: patterns.into(), weight_bytes };
                mail.post_from(from, worker, published);
            }
        }
        receivers
    }

    fn with<R>(&self, kind: Kind, name: &[u8], work: impl FnOnce(&mut Names) -> R) -> R {
        steps::note(1);
        match kind {
            Kind::Pattern => work(&mut self.patterns.write().unwrap_or_else(PoisonError::into_inner)),
            Kind::Channel | Kind::ShardChannel => work(self.shard(name).names(kind)),
        }
    }

    fn shard(&self, name: &[u8]) -> MutexGuard<'_, Shard> {
        lock(&self.shards[self.hasher.hash_one(name) as usize % SHARDS])
    }
}

impl Shard {
    fn names(&mut self, kind: Kind) -> &mut Names {
        match kind {
            Kind::Channel => &mut self.channels,
            Kind::ShardChannel => &mut self.shard_channels,
            Kind::Pattern => unreachable!("patterns have no shards"),
        }
    }
}

fn lock(shard: &Mutex<Shard>) -> MutexGuard<'_, Shard> {
    shard.lock().unwrap_or_else(PoisonError::into_inner)
}

/// A table from which most has been removed returns its memory.
fn shrink<V>(table: &mut HashMap<Name, V>) {
    if table.capacity() > 64 && table.len() < table.capacity() / 8 {
        table.shrink_to(table.len() * 2);
    }
}

#[cfg(test)]
mod tests;
