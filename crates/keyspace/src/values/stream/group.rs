//! Consumer groups: which consumer was given which entries, and has not acknowledged them yet.
//!
//! ```text
//!   ConsumerGroups   name -> group                        groups are shared with a snapshot until they change
//!   group            pending [id, time, count, consumer] in the order of ids      48 B each, a chain (see `chain`)
//!                    consumers  name -> times, pending [id]                       16 B each, another one
//! ```
//!
//! The memory of all groups is known at any time: every change of a group goes through a `GroupEdit`, which
//! adds up the difference when it is dropped. A removed group is dropped in steps, however much is pending.
//!
//! A removed consumer leaves at once too, but the entries pending with it are taken out of the group's chain
//! in steps. Until then they lie there as *ghosts*: they name the allocation of the name of a consumer that
//! is no longer listed (another may be called the same by now), count for no consumer and are passed over.

use super::id::StreamId;
use crate::layout::chain::{At, Chain, Counted};
use std::collections::BTreeMap;
use std::ops::{Bound, Deref, DerefMut};
use std::sync::Arc;

/// Bytes that a place in a map takes in addition to key and value, about.
const PLACE_BYTES: usize = 24;
/// Ghosts that leave with their consumer: some 50 us.
const GHOSTS_AT_ONCE: usize = 256;

/// Groups by name, in the order of the names' bytes.
#[derive(Clone, Default)]
pub struct ConsumerGroups {
    by_name: BTreeMap<Box<[u8]>, Arc<ConsumerGroup>>,
    bytes: usize,
    /// Groups with ghosts.
    with_garbage: usize,
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

    /// The first group after this name.
    pub(super) fn after(&self, name: Option<&[u8]>) -> Option<(&[u8], &ConsumerGroup)> {
        let (name, group) = self.by_name.range::<[u8], _>(behind(name)).next()?;
        Some((name, group))
    }

    pub(super) fn edit(&mut self, name: &[u8]) -> Option<GroupEdit<'_>> {
        let group = Arc::make_mut(self.by_name.get_mut(name)?);
        let before = (group.memory_bytes(), group.has_garbage());
        Some(GroupEdit { before, bytes: &mut self.bytes, with_garbage: &mut self.with_garbage, group })
    }

    /// A new group; there was none of this name.
    pub(super) fn insert(&mut self, name: &[u8], group: ConsumerGroup) {
        self.bytes += place_bytes(name) + group.memory_bytes();
        self.with_garbage += usize::from(group.has_garbage());
        let old = self.by_name.insert(name.into(), Arc::new(group));
        debug_assert!(old.is_none(), "a group is made once");
    }

    /// Groups that come together, in the order of their names: the places of the map are then all in use,
    /// where one by one they would be half.
    pub(super) fn of(groups: impl Iterator<Item = (Box<[u8]>, ConsumerGroup)>) -> ConsumerGroups {
        let by_name: BTreeMap<_, _> = groups.map(|(name, group)| (name, Arc::new(group))).collect();
        let bytes = by_name.iter().map(|(name, group)| place_bytes(name) + group.memory_bytes()).sum();
        ConsumerGroups { by_name, bytes, with_garbage: 0 }
    }

    pub(super) fn remove(&mut self, name: &[u8]) -> Option<Arc<ConsumerGroup>> {
        let group = self.by_name.remove(name)?;
        self.bytes -= place_bytes(name) + group.memory_bytes();
        self.with_garbage -= usize::from(group.has_garbage());
        Some(group)
    }

    pub(super) fn has_garbage(&self) -> bool {
        self.with_garbage > 0
    }

    /// Takes out up to `ghosts_max` ghosts of one group. Returns false if there are none.
    pub(super) fn sweep(&mut self, ghosts_max: usize) -> bool {
        let with_garbage =
            self.by_name.iter().find(|(_, group)| group.has_garbage()).map(|(name, _)| name.clone());
        let Some(mut group) = with_garbage.and_then(|name| self.edit(&name)) else { return false };
        group.sweep(ghosts_max);
        true
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
        let each = |(name, group): (&[u8], &ConsumerGroup)| place_bytes(name) + group.memory_bytes();
        assert_eq!(self.bytes, self.iter().map(each).sum::<usize>());
        assert_eq!(self.with_garbage, self.by_name.values().filter(|group| group.has_garbage()).count());
    }
}

fn place_bytes(name: &[u8]) -> usize {
    name.len() + size_of::<Box<[u8]>>() + PLACE_BYTES
}

/// Returns the range of the names after this one, or of all names.
fn behind(name: Option<&[u8]>) -> (Bound<&[u8]>, Bound<&[u8]>) {
    (name.map_or(Bound::Unbounded, Bound::Excluded), Bound::Unbounded)
}

/// A group to change.
pub struct GroupEdit<'a> {
    bytes: &'a mut usize,
    with_garbage: &'a mut usize,
    before: (usize, bool),
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
        let (bytes, had_garbage) = self.before;
        *self.bytes = *self.bytes - bytes + self.group.memory_bytes();
        *self.with_garbage =
            *self.with_garbage - usize::from(had_garbage) + usize::from(self.group.has_garbage());
    }
}

#[derive(Clone)]
pub struct ConsumerGroup {
    /// The last id that was delivered to any of its consumers.
    pub last_id: StreamId,
    /// Number of entries that the group has read, of all ever added; `None` if that is not known.
    pub entries_read: Option<u64>,
    /// Boxed, because a map takes places for eleven at once, and most groups have few consumers.
    consumers: BTreeMap<Arc<[u8]>, Box<Consumer>>,
    /// Bytes of the consumers.
    bytes: usize,
    pending: Chain<Pending>,
    /// Number of ghosts among the pending entries.
    ghosts: u64,
    /// Consumers that were removed; `None` while no ghosts are left.
    leaving: Option<Box<Leaving>>,
}

/// Consumers that were removed, by their names' allocations, and the ids under which ghosts of theirs may be
/// left.
#[derive(Clone, Default)]
struct Leaving(Vec<(Arc<[u8]>, Chain<StreamId>)>);

#[derive(Clone)]
pub struct Consumer {
    /// Time at which the consumer last tried anything. `active_ms` is the time at which it last got something
    /// (-1: never).
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
        name.len()
            + 16
            + PLACE_BYTES
            + size_of::<Box<Consumer>>()
            + size_of::<Consumer>()
            + self.pending.memory_bytes()
    }

    /// Returns its pending ids from `from` on.
    pub fn pending_from(&self, from: StreamId) -> impl Iterator<Item = StreamId> + '_ {
        walk(&self.pending, self.pending.partition_point(|id| *id < from)).copied()
    }
}

impl ConsumerGroup {
    pub fn new(last_id: StreamId, entries_read: Option<u64>) -> ConsumerGroup {
        ConsumerGroup {
            last_id,
            entries_read,
            consumers: BTreeMap::new(),
            bytes: 0,
            pending: Chain::new(),
            ghosts: 0,
            leaving: None,
        }
    }

    pub fn consumers(&self) -> &BTreeMap<Arc<[u8]>, Box<Consumer>> {
        &self.consumers
    }

    /// The first consumer after this name.
    pub(super) fn consumer_after(&self, name: Option<&[u8]>) -> Option<(&Arc<[u8]>, &Consumer)> {
        self.consumers.range::<[u8], _>(behind(name)).next().map(|(name, consumer)| (name, &**consumer))
    }

    /// Returns a consumer, to note when it was active.
    pub fn consumer_mut(&mut self, name: &[u8]) -> Option<&mut Consumer> {
        self.consumers.get_mut(name).map(|consumer| &mut **consumer)
    }

    /// A new one, with nothing pending.
    pub fn add_consumer(&mut self, name: &[u8], consumer: Consumer) {
        debug_assert_eq!(consumer.pending_len(), 0);
        self.bytes += consumer.memory_bytes(name);
        // An allocation of its own distinguishes it from a former one of this name.
        let old = self.consumers.insert(Arc::from(name), Box::new(consumer));
        debug_assert!(old.is_none(), "a consumer is made once");
    }

    /// Changes the entries pending with a consumer, which exists.
    fn change_pending(&mut self, name: &[u8], change: impl FnOnce(&mut Chain<StreamId>)) {
        let consumer = self.consumers.get_mut(name).expect("entries are delivered to consumers");
        let before = consumer.pending.memory_bytes();
        change(&mut consumer.pending);
        self.bytes = self.bytes - before + consumer.pending.memory_bytes();
    }

    pub fn pending_len(&self) -> u64 {
        self.pending.count() - self.ghosts
    }

    /// Returns the number of pending entries that are to be freed, ghosts included.
    pub(super) fn parts(&self) -> u64 {
        self.pending.count()
    }

    pub fn pending_from(&self, from: StreamId) -> impl Iterator<Item = &Pending> {
        let (all, living) = if self.has_garbage() {
            (None, Some(self.living_from(from)))
        } else {
            let first = self.pending.partition_point(|pending| pending.id < from);
            (Some(walk(&self.pending, first)), None)
        };
        all.into_iter().flatten().chain(living.into_iter().flatten())
    }

    /// Merged from what the consumers have: between two of them may lie any number of ghosts.
    fn living_from(&self, from: StreamId) -> impl Iterator<Item = &Pending> {
        let mut heads = BTreeMap::new();
        for consumer in self.consumers.values() {
            let mut ids = consumer.pending_from(from);
            heads.extend(ids.next().map(|first| (first, ids)));
        }
        std::iter::from_fn(move || {
            let (id, mut ids) = heads.pop_first()?;
            heads.extend(ids.next().map(|next| (next, ids)));
            Some(self.pending(id).expect("what a consumer has is pending"))
        })
    }

    pub fn last_pending(&self) -> Option<&Pending> {
        if !self.has_garbage() {
            return self.pending.last().map(|at| self.pending.get(at));
        }
        let last = |consumer: &Consumer| consumer.pending.last().map(|at| *consumer.pending.get(at));
        self.pending(self.consumers.values().filter_map(|consumer| last(consumer)).max()?)
    }

    /// Returns the place of a pending entry, be it a ghost.
    fn find(&self, id: StreamId) -> Option<At> {
        let at = self.pending.partition_point(|pending| pending.id < id)?;
        (self.pending.get(at).id == id).then_some(at)
    }

    fn find_living(&self, id: StreamId) -> Option<At> {
        self.find(id).filter(|at| !self.is_ghost(self.pending.get(*at)))
    }

    fn is_ghost(&self, pending: &Pending) -> bool {
        let name = &pending.consumer;
        self.ghosts > 0 && self.name_of(name).is_none_or(|living| !Arc::ptr_eq(living, name))
    }

    /// The allocation that stands for a consumer.
    fn name_of(&self, name: &[u8]) -> Option<&Arc<[u8]>> {
        self.consumers.get_key_value(name).map(|(name, _)| name)
    }

    pub fn pending(&self, id: StreamId) -> Option<&Pending> {
        self.find_living(id).map(|at| self.pending.get(at))
    }

    /// An entry is pending with this consumer (which is there) from now on, and with no other.
    pub fn deliver(&mut self, pending: Pending) {
        let id = pending.id;
        let owner = Arc::clone(self.name_of(&pending.consumer).expect("entries are delivered to consumers"));
        let pending = Pending { consumer: Arc::clone(&owner), ..pending };
        match self.find(id) {
            Some(at) => {
                let found = self.pending.get(at);
                let (old, was_ghost) = (Arc::clone(&found.consumer), self.is_ghost(found));
                self.pending.update(at, |found| *found = pending);
                if was_ghost {
                    self.ghosts -= 1;
                } else if old == owner {
                    return;
                } else {
                    self.take_from(&old, id);
                }
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

    /// An entry is no longer pending. Returns whether it was.
    pub fn acknowledge(&mut self, id: StreamId) -> bool {
        let Some(at) = self.find_living(id) else { return false };
        let pending = self.pending.remove(at);
        self.take_from(&pending.consumer, id);
        true
    }

    /// Removes a consumer and its pending entries, and returns the number of these.
    pub fn remove_consumer(&mut self, name: &[u8]) -> Option<u64> {
        self.remove_consumer_with(name, GHOSTS_AT_ONCE)
    }

    pub(super) fn remove_consumer_with(&mut self, name: &[u8], ghosts_max: usize) -> Option<u64> {
        let (name, consumer) = self.consumers.remove_entry(name)?;
        self.bytes -= consumer.memory_bytes(&name);
        let count = consumer.pending.count();
        self.ghosts += count;
        self.leaving.get_or_insert_default().0.push((name, consumer.pending));
        self.sweep(ghosts_max);
        Some(count)
    }

    fn has_garbage(&self) -> bool {
        self.leaving.is_some()
    }

    /// Takes out up to `ghosts_max` ghosts. A removed consumer may not have an entry any more: then it is no
    /// ghost of that consumer.
    pub(super) fn sweep(&mut self, ghosts_max: usize) {
        let mut left = ghosts_max;
        while let Some(leaving) = &mut self.leaving {
            let Some((name, ids)) = leaving.0.last_mut() else {
                self.leaving = None;
                return;
            };
            let Some(last) = ids.last() else {
                leaving.0.pop();
                continue;
            };
            if left == 0 {
                return;
            }
            left -= 1;
            let (name, id) = (Arc::clone(name), ids.remove(last));
            let is_theirs = |at: &At| Arc::ptr_eq(&self.pending.get(*at).consumer, &name);
            if let Some(at) = self.find(id).filter(is_theirs) {
                self.pending.remove(at);
                self.ghosts -= 1;
            }
        }
    }

    /// Drops about `groups_max` groups of what is pending. Returns true when nothing is left.
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
        let Some(leaving) = &mut self.leaving else { return true };
        while let Some((_, ids)) = leaving.0.last_mut() {
            if !ids.drop_step(groups_max) {
                return false;
            }
            leaving.0.pop();
        }
        true
    }

    /// Bytes in the global allocator, about.
    pub fn memory_bytes(&self) -> usize {
        let leaving = self.leaving.iter().flat_map(|leaving| &leaving.0);
        let leaving = leaving.map(|(_, ids)| ids.memory_bytes()).sum::<usize>();
        size_of::<ConsumerGroup>() + self.pending.memory_bytes() + self.bytes + leaving
    }

    pub(super) fn check_invariants(&self) {
        self.pending.check_invariants();
        assert!(self.pending.iter().zip(self.pending.iter().skip(1)).all(|(a, b)| a.id < b.id));
        let mut all: Vec<(StreamId, &Arc<[u8]>)> = Vec::new();
        for (name, consumer) in &self.consumers {
            consumer.pending.check_invariants();
            all.extend(consumer.pending.iter().map(|id| (*id, name)));
        }
        let each = self.consumers.iter().map(|(name, consumer)| consumer.memory_bytes(name));
        assert_eq!(self.bytes, each.sum::<usize>());
        all.sort_unstable();
        let (ghosts, living): (Vec<&Pending>, Vec<&Pending>) =
            self.pending.iter().partition(|pending| self.is_ghost(pending));
        assert!(all.into_iter().eq(living.into_iter().map(|pending| (pending.id, &pending.consumer))));
        assert_eq!(ghosts.len() as u64, self.ghosts);
        for ghost in ghosts {
            let leaving = self.leaving.iter().flat_map(|leaving| &leaving.0);
            let mut leaving = leaving.filter(|(name, _)| Arc::ptr_eq(name, &ghost.consumer));
            assert!(leaving.any(|(_, ids)| ids.iter().any(|id| *id == ghost.id)), "a consumer takes it out");
        }
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
