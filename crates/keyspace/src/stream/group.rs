//! Consumer groups: who was given what, and has not acknowledged it yet.
//!
//! ```text
//!   ConsumerGroups   name -> group                        groups are shared with a snapshot until they change
//!   group            pending [id, time, count, consumer] in the order of ids      48 B each, a chain (see `chain`)
//!                    consumers  name -> times, pending [id]                       16 B each, another one
//! ```
//!
//! What all of it takes is known at any time: whoever changes a group does so through a `GroupEdit`, which adds up the
//! difference when it is dropped. A group that goes is dropped in steps, however much is pending.

use super::id::StreamId;
use crate::chain::{At, Chain, Counted};
use std::collections::BTreeMap;
use std::ops::{Bound, Deref, DerefMut};
use std::sync::Arc;

/// What a place in a map takes beside key and value, about.
const PLACE_BYTES: usize = 24;

/// By name, in the order of their bytes.
#[derive(Clone, Default)]
pub struct ConsumerGroups {
    by_name: BTreeMap<Vec<u8>, Arc<ConsumerGroup>>,
    bytes: usize,
}

impl ConsumerGroups {
    pub fn len(&self) -> usize {
        self.by_name.len()
    }

    pub fn is_empty(&self) -> bool {
        self.by_name.is_empty()
    }

    pub fn get(&self, name: &[u8]) -> Option<&ConsumerGroup> {
        self.by_name.get(name).map(|group| &**group)
    }

    pub fn contains_key(&self, name: &[u8]) -> bool {
        self.by_name.contains_key(name)
    }

    pub fn iter(&self) -> impl Iterator<Item = (&[u8], &ConsumerGroup)> {
        self.by_name.iter().map(|(name, group)| (&**name, &**group))
    }

    /// The first group behind this name.
    pub(super) fn after(&self, name: Option<&[u8]>) -> Option<(&[u8], &ConsumerGroup)> {
        let (name, group) = self.by_name.range::<[u8], _>(behind(name)).next()?;
        Some((name, group))
    }

    pub(super) fn edit(&mut self, name: &[u8]) -> Option<GroupEdit<'_>> {
        let group = Arc::make_mut(self.by_name.get_mut(name)?);
        Some(GroupEdit { before: group.memory_bytes(), bytes: &mut self.bytes, group })
    }

    /// A new group; there was none of this name.
    pub(super) fn insert(&mut self, name: &[u8], group: ConsumerGroup) {
        self.bytes += place_bytes(name) + group.memory_bytes();
        let old = self.by_name.insert(name.to_vec(), Arc::new(group));
        debug_assert!(old.is_none(), "a group is made once");
    }

    pub(super) fn remove(&mut self, name: &[u8]) -> Option<Arc<ConsumerGroup>> {
        let group = self.by_name.remove(name)?;
        self.bytes -= place_bytes(name) + group.memory_bytes();
        Some(group)
    }

    pub(super) fn into_groups(self) -> impl Iterator<Item = Arc<ConsumerGroup>> {
        self.by_name.into_values()
    }

    /// Bytes in the global allocator, about.
    pub fn memory_bytes(&self) -> usize {
        self.bytes
    }

    pub(super) fn check_invariants(&self) {
        self.by_name.values().for_each(|group| group.check_invariants());
        let each = |(name, group): (&Vec<u8>, &Arc<ConsumerGroup>)| place_bytes(name) + group.memory_bytes();
        assert_eq!(self.bytes, self.by_name.iter().map(each).sum::<usize>());
    }
}

fn place_bytes(name: &[u8]) -> usize {
    name.len() + size_of::<Vec<u8>>() + PLACE_BYTES
}

/// What comes behind a name, or all.
fn behind(name: Option<&[u8]>) -> (Bound<&[u8]>, Bound<&[u8]>) {
    (name.map_or(Bound::Unbounded, Bound::Excluded), Bound::Unbounded)
}

/// A group to change.
pub struct GroupEdit<'a> {
    bytes: &'a mut usize,
    before: usize,
    group: &'a mut ConsumerGroup,
}

impl Deref for GroupEdit<'_> {
    type Target = ConsumerGroup;

    fn deref(&self) -> &ConsumerGroup {
        self.group
    }
}

impl DerefMut for GroupEdit<'_> {
    fn deref_mut(&mut self) -> &mut ConsumerGroup {
        self.group
    }
}

impl Drop for GroupEdit<'_> {
    fn drop(&mut self) {
        *self.bytes = *self.bytes - self.before + self.group.memory_bytes();
    }
}

#[derive(Clone)]
pub struct ConsumerGroup {
    /// The last id that was delivered to any of its consumers.
    pub last_id: StreamId,
    /// How many entries of all ever added it has read; `None` if that is not known.
    pub entries_read: Option<u64>,
    consumers: BTreeMap<Arc<[u8]>, Consumer>,
    /// Of the consumers.
    bytes: usize,
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

    fn memory_bytes(&self, name: &[u8]) -> usize {
        name.len() + 16 + PLACE_BYTES + size_of::<Consumer>() + self.pending.memory_bytes()
    }

    /// Its pending ids from `from` on.
    pub fn pending_from(&self, from: StreamId) -> impl Iterator<Item = StreamId> + '_ {
        walk(&self.pending, self.pending.partition_point(|id| *id < from)).copied()
    }
}

impl ConsumerGroup {
    pub fn new(last_id: StreamId, entries_read: Option<u64>) -> ConsumerGroup {
        ConsumerGroup { last_id, entries_read, consumers: BTreeMap::new(), bytes: 0, pending: Chain::new() }
    }

    pub fn consumers(&self) -> &BTreeMap<Arc<[u8]>, Consumer> {
        &self.consumers
    }

    /// The first consumer behind this name.
    pub(super) fn consumer_after(&self, name: Option<&[u8]>) -> Option<(&Arc<[u8]>, &Consumer)> {
        self.consumers.range::<[u8], _>(behind(name)).next()
    }

    /// To note when it was active.
    pub fn consumer_mut(&mut self, name: &[u8]) -> Option<&mut Consumer> {
        self.consumers.get_mut(name)
    }

    /// A new one, with nothing pending.
    pub fn add_consumer(&mut self, name: Arc<[u8]>, consumer: Consumer) {
        debug_assert_eq!(consumer.pending_len(), 0);
        self.bytes += consumer.memory_bytes(&name);
        let old = self.consumers.insert(name, consumer);
        debug_assert!(old.is_none(), "a consumer is made once");
    }

    /// Changes what is pending with a consumer, who is there.
    fn change_pending(&mut self, name: &[u8], change: impl FnOnce(&mut Chain<StreamId>)) {
        let consumer = self.consumers.get_mut(name).expect("entries are delivered to consumers");
        let before = consumer.pending.memory_bytes();
        change(&mut consumer.pending);
        self.bytes = self.bytes - before + consumer.pending.memory_bytes();
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
        self.change_pending(&owner, |pending| match pending.partition_point(|found| *found < id) {
            Some(at) => _ = pending.insert(at, id),
            None => pending.push_back(id),
        });
    }

    fn take_from(&mut self, consumer: &[u8], id: StreamId) {
        self.change_pending(consumer, |pending| {
            let at = pending.partition_point(|found| *found < id).expect("it has this one");
            let taken = pending.remove(at);
            debug_assert_eq!(taken, id);
        });
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
        self.bytes -= consumer.memory_bytes(name);
        for id in consumer.pending.iter() {
            let at = self.find(*id).expect("what a consumer has is pending");
            self.pending.remove(at);
        }
        Some(consumer.pending.count())
    }

    /// Drops about `groups_max` groups of what is pending. True when nothing is left.
    pub(super) fn drop_step(&mut self, groups_max: usize) -> bool {
        if !self.pending.drop_step(groups_max) {
            return false;
        }
        while let Some(mut last) = self.consumers.last_entry() {
            if !last.get_mut().pending.drop_step(groups_max) {
                return false;
            }
            last.remove();
        }
        true
    }

    /// Bytes in the global allocator, about.
    pub fn memory_bytes(&self) -> usize {
        size_of::<ConsumerGroup>() + self.pending.memory_bytes() + self.bytes
    }

    pub(super) fn check_invariants(&self) {
        self.pending.check_invariants();
        assert!(self.pending.iter().zip(self.pending.iter().skip(1)).all(|(a, b)| a.id < b.id));
        let mut all: Vec<(StreamId, &Arc<[u8]>)> = Vec::new();
        for (name, consumer) in &self.consumers {
            consumer.pending.check_invariants();
            all.extend(consumer.pending.iter().map(|id| (*id, name)));
        }
        let each = |(name, consumer): (&Arc<[u8]>, &Consumer)| consumer.memory_bytes(name);
        assert_eq!(self.bytes, self.consumers.iter().map(each).sum::<usize>());
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
