//! Pub/sub: who listens to which channel, and how a message gets to all of them.
//!
//! ```text
//! PUBLISH c m, on worker 1                        worker 0                       worker 1
//! shard of c   { c: two at 0, one at 1 } ------ letter { c, m } ---> audience { c: 3, 7 }
//! patterns     { c*: one at 0 }           \----------------------------------------------> { c: 5 }
//! ```
//! The registry knows how many sessions of each worker listen to a name, and a worker's `Audience` knows which. So
//! PUBLISH costs one letter a worker, however many listen, and its answer is a sum. Letters are posted under the lock of
//! the channel's shard: whoever listens to a channel hears its messages in one and the same order, on every worker.
//!
//! **Moments.** A message may lie in the mailbox of a worker while one of its sessions subscribes. The session must not
//! hear it: it was published before. So subscribing moves the moment of the shard (of all patterns together), a message
//! carries the moments that it was published at, and a seat hears what is not older than itself.
//!
//! **The crowd.** Letters that are not delivered yet take memory. When they take much, commands that cause more of them
//! wait (`Tasks::CROWDED`) until half of it is gone: the worker whose delivery makes the difference posts
//! `Letter::Uncrowded` to the workers that have connections waiting.
//!
//! Lock order: partitions, a shard, the patterns, mailboxes. Events of the keyspace are published under partitions.

mod audience;
mod frame;
mod hearers;
mod listening;

pub use audience::Audience;
pub use frame::Frame;
pub use hearers::Hearers;
pub use listening::{Listening, SeenListening};

use std::collections::{BTreeMap, HashMap};
use std::hash::{BuildHasher, RandomState};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, RwLock};

use crate::node::{Node, Tasks};
use crate::upkeep::memory::hash_table_bytes;
use crate::worker::letter::Letter;
use isotherm_allocator::class_bytes;
use isotherm_stdx::{glob_match, steps};

/// The name of a channel or a pattern: one text, shared by the registry, the worker and the sessions.
pub type Name = Arc<[u8]>;

/// What one can listen to. Channels of both kinds may have the same name.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Kind {
    Channel,
    Pattern,
    ShardChannel,
}

impl Kind {
    pub const ALL: [Kind; 3] = [Kind::Channel, Kind::Pattern, Kind::ShardChannel];
    pub const COUNT: usize = Kind::ALL.len();
}

/// Locks of the channels. With a million of them a shard's table doubles within some milliseconds.
const SHARDS: usize = 64;

/// How much undelivered letters may take before whoever causes them waits, and when he goes on.
const CROWD_BYTES_MAX: usize = 64 << 20;
const CROWD_BYTES_LOW: usize = CROWD_BYTES_MAX / 2;
/// What a letter takes beside the bytes of its message.
pub const LETTER_BYTES: usize = 128;

/// When somebody subscribed, in the order of the lock.
type Moment = u64;

/// The registry, shared by all workers.
pub struct PubSub {
    shards: Box<[Mutex<Shard>]>,
    patterns: RwLock<Names>,
    hasher: RandomState,
    /// Names that somebody listens to, by kind.
    counts: [AtomicUsize; Kind::COUNT],
    /// Sessions that listen to something.
    pub sessions: AtomicUsize,
    /// What the names take that somebody listens to.
    name_bytes: AtomicUsize,
    crowd_bytes: AtomicUsize,
}

#[derive(Default)]
struct Shard {
    channels: Names,
    shard_channels: Names,
}

/// Names, and who listens to them.
#[derive(Default)]
struct Names {
    all: HashMap<Name, Hearers>,
    moment: Moment,
}

/// What was published.
pub struct Message {
    pub sharded: bool,
    pub channel: Box<[u8]>,
    pub payload: Box<[u8]>,
    channel_moment: Moment,
    pattern_moment: Moment,
}

impl Message {
    fn bytes(&self) -> usize {
        LETTER_BYTES + self.channel.len() + self.payload.len()
    }
}

/// A name behind two counts.
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
            crowd_bytes: AtomicUsize::new(0),
        }
    }
}

impl PubSub {
    /// One more session of `worker` listens to `name`. Returns the name as it is shared, and since when.
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

    /// One session of `worker` listens no longer.
    pub fn unsubscribe(&self, kind: Kind, name: &[u8], worker: u16) {
        self.with(kind, name, |names| {
            let hearers = names.all.get_mut(name).expect("the session has subscribed");
            hearers.remove(worker);
            if hearers.total() == 0 {
                names.all.remove(name);
                shrink(&mut names.all);
                self.counts[kind as usize].fetch_sub(1, Ordering::AcqRel);
                self.name_bytes.fetch_sub(name_bytes(name), Ordering::Relaxed);
            }
        });
    }

    /// Names that somebody listens to.
    pub fn count(&self, kind: Kind) -> usize {
        self.counts[kind as usize].load(Ordering::Acquire)
    }

    /// Names, the tables that they are in, and messages on their way.
    pub fn memory_bytes(&self) -> usize {
        let table = |names: &Names| hash_table_bytes::<(Name, Hearers)>(names.all.capacity());
        let patterns = table(&self.patterns.read().unwrap_or_else(PoisonError::into_inner));
        let shards: usize = self
            .shards
            .iter()
            .map(|shard| {
                let shard = lock(shard);
                table(&shard.channels) + table(&shard.shard_channels)
            })
            .sum();
        let (names, crowd) = (&self.name_bytes, &self.crowd_bytes);
        patterns + shards + names.load(Ordering::Relaxed) + crowd.load(Ordering::Relaxed)
    }

    /// Sessions that listen to `name`.
    pub fn hearers(&self, kind: Kind, name: &[u8]) -> usize {
        self.with(kind, name, |names| names.all.get(name).map_or(0, Hearers::total))
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

    /// Whether undelivered letters take more than whoever waits for them waits for.
    pub fn is_crowded(&self) -> bool {
        self.crowd_bytes.load(Ordering::SeqCst) > CROWD_BYTES_LOW
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

impl Node {
    /// Sends a message to everybody who listens. `from` is the worker that asks, if it is one: it looks into its mailbox
    /// without being woken. Returns how many will hear it.
    pub fn publish(&self, from: Option<u16>, channel: &[u8], payload: &[u8], sharded: bool) -> usize {
        let kind = if sharded { Kind::ShardChannel } else { Kind::Channel };
        let pubsub = &self.pubsub;
        let has_patterns = !sharded && pubsub.count(Kind::Pattern) > 0;
        if pubsub.count(kind) == 0 && !has_patterns {
            return 0;
        }
        let mut shard = pubsub.shard(channel);
        let names = shard.names(kind);
        let mut receivers = 0;
        let mut workers: BTreeMap<u16, Vec<Name>> = BTreeMap::new();
        for (worker, count) in names.all.get(channel).iter().flat_map(|hearers| hearers.by_worker()) {
            receivers += count as usize;
            workers.entry(worker).or_default();
        }
        let mut pattern_moment = 0;
        if has_patterns {
            let patterns = pubsub.patterns.read().unwrap_or_else(PoisonError::into_inner);
            pattern_moment = patterns.moment;
            for (pattern, hearers) in &patterns.all {
                if glob_match(pattern, channel, false) {
                    receivers += hearers.total();
                    hearers.by_worker().for_each(|(worker, _)| {
                        workers.entry(worker).or_default().push(Arc::clone(pattern));
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
            for (worker, patterns) in workers {
                self.crowd(message.bytes());
                let letter = Letter::Message { message: Arc::clone(&message), patterns: patterns.into() };
                self.post_from(from, worker, letter);
            }
        }
        receivers
    }

    /// A letter of so many bytes is posted that a client's command has caused.
    pub fn crowd(&self, bytes: usize) {
        let before = self.pubsub.crowd_bytes.fetch_add(bytes, Ordering::AcqRel);
        if before + bytes > CROWD_BYTES_MAX {
            self.set_task(Tasks::CROWDED, true);
        }
    }

    /// It was delivered.
    pub fn uncrowd(&self, bytes: usize) {
        let before = self.pubsub.crowd_bytes.fetch_sub(bytes, Ordering::SeqCst);
        if before > CROWD_BYTES_LOW && before - bytes <= CROWD_BYTES_LOW {
            self.set_task(Tasks::CROWDED, false);
            self.post_uncrowded();
        }
    }

    pub fn uncrowd_message(&self, message: &Message) {
        self.uncrowd(message.bytes());
    }
}

#[cfg(test)]
mod tests;
