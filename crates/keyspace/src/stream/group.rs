//! Consumer groups: who was given what, and has not acknowledged it yet.
//!
//! Pending entries are a chain in the order of their ids (see `chain`), 48 B each, and once more, 16 B each, with the
//! consumer that has them. A snapshot shares all of it until it changes.

use super::id::StreamId;
use crate::chain::{At, Chain, Counted};
use std::collections::BTreeMap;
use std::sync::Arc;

/// By name, in the order of their bytes.
pub type ConsumerGroups = BTreeMap<Vec<u8>, ConsumerGroup>;

#[derive(Clone)]
pub struct ConsumerGroup {
    /// The last id that was delivered to any of its consumers.
    pub last_id: StreamId,
    /// How many entries of all ever added it has read; `None` if that is not known.
    pub entries_read: Option<u64>,
    pub consumers: BTreeMap<Arc<[u8]>, Consumer>,
    pending: Chain<Pending>,
}

#[derive(Clone)]
pub struct Consumer {
    /// When it last tried anything, and when it last got something (-1: never).
    pub seen_ms: i64,
    pub active_ms: i64,
    pending: Chain<StreamId>,
}

/// An entry that was delivered and not acknowledged.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Pending {
    pub id: StreamId,
    pub delivered_ms: i64,
    pub deliveries: u64,
    pub consumer: Arc<[u8]>,
}

impl Counted for Pending {
    fn count(&self) -> u64 {
        1
    }
}

impl Counted for StreamId {
    fn count(&self) -> u64 {
        1
    }
}

impl Consumer {
    pub fn new(now_ms: i64) -> Consumer {
        Consumer { seen_ms: now_ms, active_ms: -1, pending: Chain::new() }
    }

    pub fn pending_len(&self) -> u64 {
        self.pending.count()
    }

    /// Its pending ids from `from` on.
    pub fn pending_from(&self, from: StreamId) -> impl Iterator<Item = StreamId> + '_ {
        walk(&self.pending, self.pending.partition_point(|id| *id < from)).copied()
    }
}

impl ConsumerGroup {
    pub fn new(last_id: StreamId, entries_read: Option<u64>) -> ConsumerGroup {
        ConsumerGroup { last_id, entries_read, consumers: BTreeMap::new(), pending: Chain::new() }
    }

    pub fn pending_len(&self) -> u64 {
        self.pending.count()
    }

    pub fn pending_from(&self, from: StreamId) -> impl Iterator<Item = &Pending> {
        walk(&self.pending, self.pending.partition_point(|pending| pending.id < from))
    }

    pub fn last_pending(&self) -> Option<&Pending> {
        self.pending.last().map(|at| self.pending.get(at))
    }

    fn find(&self, id: StreamId) -> Option<At> {
        let at = self.pending.partition_point(|pending| pending.id < id)?;
        (self.pending.get(at).id == id).then_some(at)
    }

    pub fn pending(&self, id: StreamId) -> Option<&Pending> {
        self.find(id).map(|at| self.pending.get(at))
    }

    /// An entry is pending with this consumer (which is there) from now on, whoever had it before.
    pub fn deliver(&mut self, pending: Pending) {
        let id = pending.id;
        let owner = Arc::clone(&pending.consumer);
        match self.find(id) {
            Some(at) => {
                let old = Arc::clone(&self.pending.get(at).consumer);
                self.pending.update(at, |found| *found = pending);
                if old == owner {
                    return;
                }
                self.take_from(&old, id);
            }
            None => match self.pending.partition_point(|found| found.id < id) {
                Some(at) => _ = self.pending.insert(at, pending),
                None => self.pending.push_back(pending),
            },
        }
        let consumer = self.consumers.get_mut(&owner).expect("entries are delivered to consumers");
        match consumer.pending.partition_point(|found| *found < id) {
            Some(at) => _ = consumer.pending.insert(at, id),
            None => consumer.pending.push_back(id),
        }
    }

    fn take_from(&mut self, consumer: &Arc<[u8]>, id: StreamId) {
        let consumer = self.consumers.get_mut(consumer).expect("it has pending entries");
        let at = consumer.pending.partition_point(|found| *found < id).expect("it has this one");
        let taken = consumer.pending.remove(at);
        debug_assert_eq!(taken, id);
    }

    /// An entry is no longer pending. Whether it was.
    pub fn acknowledge(&mut self, id: StreamId) -> bool {
        let Some(at) = self.find(id) else { return false };
        let pending = self.pending.remove(at);
        self.take_from(&pending.consumer, id);
        true
    }

    /// Removes a consumer and its pending entries, of which it tells the number.
    pub fn remove_consumer(&mut self, name: &[u8]) -> Option<u64> {
        let consumer = self.consumers.remove(name)?;
        for id in consumer.pending.iter() {
            let at = self.find(*id).expect("what a consumer has is pending");
            self.pending.remove(at);
        }
        Some(consumer.pending.count())
    }

    /// Bytes in the global allocator, about.
    pub fn memory_bytes(&self) -> usize {
        let consumers = self.consumers.iter();
        let each = |(name, consumer): (&Arc<[u8]>, &Consumer)| {
            name.len() + 16 + size_of::<Consumer>() + 40 + consumer.pending.memory_bytes()
        };
        size_of::<ConsumerGroup>() + self.pending.memory_bytes() + consumers.map(each).sum::<usize>()
    }

    pub(super) fn check_invariants(&self) {
        self.pending.check_invariants();
        assert!(self.pending.iter().zip(self.pending.iter().skip(1)).all(|(a, b)| a.id < b.id));
        let mut all: Vec<(StreamId, &Arc<[u8]>)> = Vec::new();
        for (name, consumer) in &self.consumers {
            consumer.pending.check_invariants();
            all.extend(consumer.pending.iter().map(|id| (*id, name)));
        }
        all.sort_unstable();
        assert!(all.into_iter().eq(self.pending.iter().map(|pending| (pending.id, &pending.consumer))));
    }
}

fn walk<T: Counted>(chain: &Chain<T>, from: Option<At>) -> impl Iterator<Item = &T> {
    let mut next = from;
    std::iter::from_fn(move || {
        let at = next?;
        next = chain.next(at);
        Some(chain.get(at))
    })
}
