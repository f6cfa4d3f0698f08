//! Values of a partition that are not in memory: how many there are, their keeper, and those that are lent.
//!
//! ```text
//!   lend   bytes that were read lie beside the entry, by its reference; the entry stays as it is
//!   find   shows them as the value                                       (a use is counted)
//!   drop   the oldest go when they are too many and had their time       (those used often come back instead)
//! ```
//! Values that are lent while memory has no room go as soon as their command releases its locks.
//!
//! A scan of all keys displaces no value and writes nothing. Invariants: each lent value belongs to a
//! reference that an entry has; `bytes` is their sum.

use crate::layout::cold::{ColdKeeper, ColdRef};
use crate::layout::entry::BodyRef;
use crate::layout::node_name::NodeName;
use crate::values::lent::Lent;
use crate::values::shown::ShownKeys;
use isotherm_stdx::{SteadyMs, UnixMs};
use std::cell::{Cell, RefCell};
use std::collections::{BTreeSet, HashMap, VecDeque};
use std::sync::Arc;

/// Tables with more places go when nothing is lent.
const TABLE_MIN: usize = 64;
/// Time for which a value is lent in any case: its command is on its way, and may use it more than once.
const LENT_MS_MIN: i64 = 100;
/// Time for which a value that was not used yet is lent in any case. A command that needs thousands may wait
/// for its turn. If some of them went meanwhile it would begin again, on a busy machine for ever.
const UNUSED_MS_MIN: i64 = 5000;
/// Bytes of such values in a partition above which they stay no longer than others: their clients are gone.
const UNUSED_BYTES_MAX: usize = 4 << 20;
/// Oldest values that are looked at for one that may go.
const OLDEST_LOOKS_MAX: usize = 16;
/// Partitions up to which each has the bounds below. Of more each has less: all come to 450 MB at most.
const BOUND_PARTITIONS: usize = 64;
/// Limit of the keys of a partition for which a record was read that did not have them: 2 MB. It is more than
/// one command looks for: of a million keys that do not exist some thousands seem to be in a record.
const ABSENT_MAX: usize = 1 << 16;
/// Time for which a node stays that came back for a command: the command is about to run.
pub const GIVEN_MS: i64 = 500;
/// Limit of the records of a partition that are kept for nodes that came back: 2 MB.
const CLEAN_MAX: usize = 1 << 16;
/// Limit of the nodes of a partition that came back for a command and are remembered: 3 MB.
const GIVEN_MAX: usize = 1 << 17;
/// Divisor of the bytes that may be lent, for what is kept while memory has no room: a value that many
/// clients ask for at once is not read for each of them.
const SHORT_DIVISOR: usize = 16;

/// State of a partition's values that are not in memory. Without a keeper no value ever leaves memory.
#[derive(Default)]
pub(crate) struct Cold {
    pub keeper: Option<Arc<dyn ColdKeeper>>,
    /// Number of partitions of the keyspace.
    pub partitions: usize,
    /// Entries whose value is not in memory, and the bytes of these values.
    pub keys: u64,
    pub bytes: u64,
    /// Keys that lie outside memory with their values, and the records that they are in.
    pub frozen_keys: u64,
    pub bundles: u64,
    /// Nodes of collections that are not in memory, and the bytes of their records.
    pub nodes: u64,
    pub node_bytes: u64,
    /// Nodes that came back to memory.
    pub nodes_home: u64,
    /// Records of nodes that came back and were not changed since: the nodes can leave again unwritten.
    clean: HashMap<NodeName, ColdRef>,
    /// Nodes that came back lately because a command needs them, and the time at which each came.
    given: HashMap<NodeName, SteadyMs>,
    /// Nodes outside memory that a command has met, and whether each can be read.
    missed: RefCell<Vec<(NodeName, bool)>>,
    /// True if one could not be shown: the command must not change anything.
    failed: Cell<bool>,
    /// True if nodes that are met are read before the command runs again.
    collects: Cell<bool>,
    /// Bundles in which a key was not found, with its hash. That stays true as long as the bundle is there.
    absent: BTreeSet<(u64, u64)>,
    lent: HashMap<ColdRef, Lent>,
    /// Values in the order of their loans; some were given back since.
    order: VecDeque<ColdRef>,
    /// Values that go once their command has run.
    passing: VecDeque<ColdRef>,
    /// References out of `passing` that commands have used.
    passed: RefCell<Vec<ColdRef>>,
    pub shown: ShownKeys,
    lent_bytes: usize,
    lent_heap_bytes: usize,
    /// Uses of what was lent.
    hits: Cell<u64>,
    /// Uses that the keeper knows of.
    hits_known: u64,
    /// Values that came back to memory.
    came_home: u64,
    /// Frozen keys that came back to memory.
    pub thawed: u64,
    /// Frozen keys that were given up, as their record could not be read.
    pub lost: u64,
}

/// Counts of the values that are not in memory, over all partitions.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct ColdCounts {
    pub keys: u64,
    /// Bytes of the values of these keys.
    pub bytes: u64,
    pub frozen_keys: u64,
    pub bundles: u64,
    /// Parts of large collections.
    pub nodes: u64,
    pub node_bytes: u64,
    pub nodes_home: u64,
    pub lent_values: u64,
    /// Bytes that lent values take in memory, with their tables.
    pub lent_bytes: u64,
    pub lent_hits: u64,
    pub came_home: u64,
    pub thawed: u64,
    pub lost: u64,
}

impl ColdCounts {
    pub fn add(&mut self, other: &ColdCounts) {
        self.keys += other.keys;
        self.bytes += other.bytes;
        self.lent_values += other.lent_values;
        self.lent_bytes += other.lent_bytes;
        self.lent_hits += other.lent_hits;
        self.came_home += other.came_home;
        self.frozen_keys += other.frozen_keys;
        self.bundles += other.bundles;
        self.thawed += other.thawed;
        self.nodes += other.nodes;
        self.node_bytes += other.node_bytes;
        self.nodes_home += other.nodes_home;
        self.lost += other.lost;
    }
}

/// Returns the bytes of a map with room for `capacity` pairs: filled to seven eighths, and a byte a place.
fn map_bytes(capacity: usize, pair_bytes: usize) -> usize {
    if capacity == 0 { 0 } else { (capacity * 8 / 7).next_power_of_two() * (pair_bytes + 1) }
}

impl Cold {
    /// Returns the part of a bound that this partition may have.
    fn share_of(&self, bound: usize) -> usize {
        bound * BOUND_PARTITIONS / self.partitions.max(BOUND_PARTITIONS)
    }

    /// An entry refers to `reference` now.
    pub fn note(&mut self, reference: ColdRef) {
        self.keys += 1;
        self.bytes += reference.value_bytes() as u64;
    }

    /// No entry refers to it.
    pub fn give_back(&self, reference: ColdRef) {
        self.keeper.as_ref().expect("what is cold has a keeper").retire(reference);
    }

    /// A value came back to memory from there.
    pub fn note_home(&mut self, reference: ColdRef) {
        self.came_home += 1;
        self.keeper.as_ref().expect("what is cold has a keeper").came_home(reference);
    }

    /// An entry no longer refers to its value.
    pub fn retire(&mut self, body: BodyRef) {
        let reference = body.cold().expect("it is cold");
        self.keys -= 1;
        self.bytes -= reference.value_bytes() as u64;
        self.take_back(reference);
        self.give_back(reference);
    }

    // ---- what is frozen ----

    /// A bundle is no longer referred to.
    pub fn retire_bundle(&mut self, reference: ColdRef) {
        self.bundles -= 1;
        self.take_back(reference);
        let of_bundle = (reference.raw(), 0)..=(reference.raw(), u64::MAX);
        let gone: Vec<_> = self.absent.range(of_bundle).copied().collect();
        gone.iter().for_each(|pair| _ = self.absent.remove(pair));
        self.give_back(reference);
    }

    /// A bundle was read, and has no key of this hash that was looked for.
    pub fn note_absent(&mut self, reference: ColdRef, hash: u64) {
        if self.absent.len() >= self.share_of(ABSENT_MAX) {
            self.absent.clear();
        }
        self.absent.insert((reference.raw(), hash));
    }

    pub fn is_absent(&self, reference: ColdRef, hash: u64) -> bool {
        self.absent.contains(&(reference.raw(), hash))
    }

    // ---- nodes of collections ----

    /// A stub refers to a node now.
    pub fn note_node(&mut self, reference: ColdRef) {
        self.nodes += 1;
        self.node_bytes += reference.value_bytes() as u64;
    }

    /// No stub refers to it.
    pub fn retire_node(&mut self, reference: ColdRef) {
        self.nodes -= 1;
        self.node_bytes -= reference.value_bytes() as u64;
        self.take_back(reference);
        self.give_back(reference);
    }

    /// Notes that a node came back, to whose record no stub refers. With `keeps` that stays until it changes.
    pub fn node_came_home(&mut self, name: NodeName, reference: ColdRef, keeps: bool) {
        self.nodes -= 1;
        self.node_bytes -= reference.value_bytes() as u64;
        self.nodes_home += 1;
        self.take_back(reference);
        if keeps && self.clean.len() < self.share_of(CLEAN_MAX) {
            let old = self.clean.insert(name, reference);
            debug_assert!(old.is_none(), "what was away has no other record");
        } else {
            self.give_back(reference);
        }
    }

    /// Returns the reference to the record of a node in memory that was not changed since it was read.
    pub fn clean(&self, name: NodeName) -> Option<ColdRef> {
        self.clean.get(&name).copied()
    }

    /// Nodes that could leave without being written, and that came back more than `given_ms` ago.
    pub fn some_clean(&self, count_max: usize, given_ms: i64, now: UnixMs) -> Vec<NodeName> {
        let is_free = |name: &NodeName| !self.was_given(*name, given_ms, now);
        self.clean.keys().copied().filter(is_free).take(count_max).collect()
    }

    /// Returns the references to the records of all such nodes.
    pub fn all_clean(&self) -> impl Iterator<Item = ColdRef> {
        self.clean.values().copied()
    }

    #[inline]
    pub fn has_clean(&self) -> bool {
        !self.clean.is_empty()
    }

    /// A node that is in memory is about to change, or to go.
    pub fn drop_clean(&mut self, name: NodeName) {
        if let Some(reference) = self.clean.remove(&name) {
            self.give_back(reference);
        }
    }

    /// Takes out the record of a node that is about to change or to go. The record stays, for a stub.
    pub fn take_clean(&mut self, name: NodeName) -> Option<ColdRef> {
        self.clean.remove(&name)
    }

    /// The keeper has the record of a node in memory elsewhere. Returns whether it was there.
    pub fn move_clean(&mut self, name: NodeName, from: ColdRef, to: ColdRef) -> bool {
        let Some(reference) = self.clean.get_mut(&name).filter(|reference| **reference == from) else {
            return false;
        };
        *reference = to;
        self.give_back(from);
        true
    }

    /// A node came back because a command needs it.
    pub fn note_given(&mut self, name: NodeName, now: UnixMs) {
        let now = SteadyMs::of(now);
        let given_max = self.share_of(GIVEN_MAX);
        if self.given.len() >= given_max {
            self.given.retain(|_, at| now.ms_since(*at) < GIVEN_MS);
            if self.given.len() >= given_max {
                self.given.clear();
            }
        }
        self.given.insert(name, now);
    }

    /// Returns whether a node came back so recently that its command may not have run yet.
    pub fn was_given(&self, name: NodeName, given_ms: i64, now: UnixMs) -> bool {
        let now = SteadyMs::of(now);
        self.given.get(&name).is_some_and(|at| now.ms_since(*at) < given_ms)
    }

    /// Waits for the disk, under the lock. `None`: it cannot be read.
    pub fn read_node(&self, reference: ColdRef, name: NodeName) -> Option<Vec<u8>> {
        self.keeper.as_ref().expect("what is cold has a keeper").read(reference, name.as_bytes())
    }

    /// A reader has met a node that is not in memory.
    pub fn note_missed(&self, name: NodeName, reference: ColdRef) {
        let is_readable = self.collects.get() && !self.is_unreadable(reference);
        let mut missed = self.missed.borrow_mut();
        if missed.last() != Some(&(name, is_readable)) {
            // A walk or a draw may meet a node as often as it has elements: of those each is kept once.
            if missed.len() == missed.capacity() {
                missed.sort_unstable();
                missed.dedup();
                // Half of it is free for others then, or each of a few would sort all again.
                let more = missed.len();
                missed.reserve(more);
            }
            missed.push((name, is_readable));
        }
        self.failed.set(self.failed.get() || !is_readable);
    }

    /// Notes a node that has to be read before the command, which must have changed nothing yet, runs again.
    pub fn note_wanted(&self, name: NodeName, reference: ColdRef) {
        let wanted = (name, !self.is_unreadable(reference));
        let mut missed = self.missed.borrow_mut();
        if missed.last() != Some(&wanted) {
            missed.push(wanted);
        }
        self.failed.set(true);
    }

    fn is_unreadable(&self, reference: ColdRef) -> bool {
        self.lent.get(&reference).is_some_and(|lent| lent.value.is_none())
    }

    /// Forgets that a record could not be read, so that it is tried again. A lent value stays.
    pub fn forget_failure(&mut self, reference: ColdRef) {
        if self.is_unreadable(reference) {
            self.take_back(reference);
        }
    }

    /// Notes that a node could not be brought back to memory.
    pub fn note_failed(&self, name: NodeName) {
        self.missed.borrow_mut().push((name, false));
        self.failed.set(true);
    }

    /// Returns whether the current command was not shown something that it met: it must change nothing then.
    pub fn has_failed(&self) -> bool {
        self.failed.get()
    }

    /// Sets whether the nodes that the current command meets are read, and the command runs again.
    pub fn set_collects(&self, collects: bool) {
        self.collects.set(collects);
    }

    pub fn has_missed(&self) -> bool {
        !self.missed.borrow().is_empty()
    }

    pub fn take_missed(&mut self) -> Vec<(NodeName, bool)> {
        self.failed.set(false);
        let mut missed = std::mem::take(self.missed.get_mut());
        missed.sort_unstable();
        missed.dedup();
        missed
    }

    // ---- what is lent ----

    /// Keeps what the current command has used: it runs again.
    pub fn keep_passed(&mut self) {
        for reference in self.passed.take() {
            if let Some(lent) = self.lent.get(&reference) {
                lent.uses.set(0);
            }
        }
        self.shown.keep_used();
    }

    pub fn lend(&mut self, reference: ColdRef, lent: Lent) {
        self.take_back(reference);
        self.lent_bytes += lent.bytes();
        self.lent_heap_bytes += lent.heap_bytes();
        self.note_lent(lent.bytes() as i64);
        let is_passing = lent.is_passing;
        self.lent.insert(reference, lent);
        let (lent, order) = (&self.lent, if is_passing { &mut self.passing } else { &mut self.order });
        // Values that were taken back stay in the order: not more of them than of the others.
        if order.len() > 64 + 2 * lent.len() {
            order.retain(|reference| lent.get(reference).is_some_and(|lent| lent.is_passing == is_passing));
        }
        order.push_back(reference);
    }

    /// Returns whether memory has room for values that are only read.
    pub fn has_room(&self) -> bool {
        self.keeper.as_ref().is_none_or(|keeper| keeper.has_room())
    }

    /// Returns whether a value may be lent for longer than its command takes while memory has no room.
    pub fn keeps_when_short(&self, lent: &Lent, bytes_max: usize) -> bool {
        self.lent_bytes + lent.bytes() <= bytes_max / SHORT_DIVISOR
    }

    /// Returns whether a command has used something that goes with its locks.
    #[inline]
    pub fn has_passed(&self) -> bool {
        !self.passed.borrow().is_empty() || self.shown.has_used()
    }

    #[cold]
    pub fn drop_passed(&mut self) {
        for reference in std::mem::take(self.passed.get_mut()) {
            if self.lent.get(&reference).is_some_and(|lent| lent.is_passing) {
                self.take_back(reference);
            }
        }
        self.shown.drop_used();
    }

    fn note_lent(&self, bytes: i64) {
        if let Some(keeper) = &self.keeper {
            keeper.lent_more(bytes);
        }
    }

    pub fn lent(&self, reference: ColdRef) -> Option<&Lent> {
        self.lent.get(&reference)
    }

    /// Uses that the keeper does not know of yet.
    pub fn take_new_hits(&mut self) -> u64 {
        let hits = self.hits.get();
        hits - std::mem::replace(&mut self.hits_known, hits)
    }

    /// The bytes of a value that is lent, for a command that uses them.
    pub fn used(&self, reference: ColdRef) -> Option<&[u8]> {
        let lent = self.lent.get(&reference)?;
        if lent.is_passing && lent.uses.get() == 0 {
            self.passed.borrow_mut().push(reference);
        }
        lent.uses.set(lent.uses.get().saturating_add(1));
        self.hits.set(self.hits.get() + 1);
        lent.value.as_deref()
    }

    /// Returns the image of a lent value, which leads through its bytes, and the bytes.
    pub fn image<T: 'static>(&self, reference: ColdRef) -> Option<(&T, &[u8])> {
        let bytes = self.used(reference)?;
        Some((self.lent.get(&reference)?.image.as_ref()?.as_any().downcast_ref()?, bytes))
    }

    /// Returns whether any key or value is not in memory.
    #[inline]
    pub fn any(&self) -> bool {
        self.keys + self.frozen_keys + self.nodes > 0
    }

    fn table_bytes(&self, class_bytes: fn(usize) -> usize) -> usize {
        let tables = [
            map_bytes(self.lent.capacity(), size_of::<(ColdRef, Lent)>()),
            map_bytes(self.clean.capacity(), size_of::<(NodeName, ColdRef)>()),
            map_bytes(self.given.capacity(), size_of::<(NodeName, SteadyMs)>()),
            (self.order.capacity() + self.passing.capacity()) * size_of::<ColdRef>(),
        ];
        // Its nodes are two thirds full.
        let absent_bytes = self.absent.len() * size_of::<(u64, u64)>() * 3 / 2;
        tables.into_iter().filter(|bytes| *bytes > 0).map(class_bytes).sum::<usize>() + absent_bytes
    }

    /// `class_bytes`: bytes that the allocator gives for a number of bytes.
    pub fn counts(&self, class_bytes: fn(usize) -> usize) -> ColdCounts {
        ColdCounts {
            keys: self.keys,
            bytes: self.bytes,
            lent_values: self.lent.len() as u64,
            lent_bytes: (self.lent_heap_bytes + self.table_bytes(class_bytes) + self.shown.bytes()) as u64,
            lent_hits: self.hits.get(),
            came_home: self.came_home,
            frozen_keys: self.frozen_keys,
            bundles: self.bundles,
            thawed: self.thawed,
            nodes: self.nodes,
            node_bytes: self.node_bytes,
            nodes_home: self.nodes_home,
            lost: self.lost,
        }
    }

    pub fn take_back(&mut self, reference: ColdRef) -> Option<Lent> {
        let lent = self.lent.remove(&reference)?;
        self.lent_bytes -= lent.bytes();
        self.lent_heap_bytes -= lent.heap_bytes();
        self.note_lent(-(lent.bytes() as i64));
        if self.lent.is_empty() && self.lent.capacity() > TABLE_MIN {
            (self.lent, self.order, self.passing) = Default::default();
        }
        Some(lent)
    }

    /// Frees the tables of what is lent, which a partition keeps at a size of up to `TABLE_MIN` for the next
    /// loan: nothing that could be lent is left.
    pub fn free_unused_tables(&mut self) {
        if self.any() || self.bundles > 0 || !self.lent.is_empty() {
            return;
        }
        (self.lent, self.order, self.passing) = Default::default();
        self.clean.shrink_to_fit();
        self.given.shrink_to_fit();
    }

    /// The oldest one, if there is more than `bytes_max` and it had its time; of those that are dropped after
    /// their command, one that no command has come for.
    pub fn take_oldest(&mut self, bytes_max: usize, now: UnixMs) -> Option<(ColdRef, Lent)> {
        if let Some(passing) = self.take_oldest_passing(SteadyMs::of(now)) {
            return Some(passing);
        }
        while self.order.front().is_some_and(|reference| !self.lent.contains_key(reference)) {
            self.order.pop_front();
        }
        if self.lent_bytes <= bytes_max {
            return None;
        }
        let now = SteadyMs::of(now);
        let spares_unused = self.lent_bytes <= bytes_max.max(UNUSED_BYTES_MAX);
        let had_its_time = |reference: &ColdRef| {
            self.lent.get(reference).is_some_and(|lent| {
                let is_awaited = lent.value.is_some() && lent.uses.get() == 0 && spares_unused;
                let ms_min = if is_awaited { UNUSED_MS_MIN } else { LENT_MS_MIN };
                now.ms_since(lent.since) >= ms_min
            })
        };
        let at = self.order.iter().take(OLDEST_LOOKS_MAX).position(had_its_time)?;
        let reference = self.order.remove(at).expect("it was just found");
        self.take_back(reference).map(|lent| (reference, lent))
    }

    fn take_oldest_passing(&mut self, now: SteadyMs) -> Option<(ColdRef, Lent)> {
        self.shown.drop_older(now, UNUSED_MS_MIN);
        while let Some(reference) = self.passing.front().copied() {
            match self.lent.get(&reference).filter(|lent| lent.is_passing) {
                Some(lent) if now.ms_since(lent.since) < UNUSED_MS_MIN => return None,
                lent => {
                    let is_there = lent.is_some();
                    self.passing.pop_front();
                    if is_there {
                        return self.take_back(reference).map(|lent| (reference, lent));
                    }
                }
            }
        }
        None
    }

    pub fn check_invariants(&self) {
        self.shown.check_invariants();
        assert!(
            self.lent.len() as u64 <= self.keys + self.bundles + self.nodes,
            "each belongs to an entry, a bundle or a node"
        );
        assert_eq!(self.lent_bytes, self.lent.values().map(Lent::bytes).sum());
        assert_eq!(self.lent_heap_bytes, self.lent.values().map(Lent::heap_bytes).sum());
        let is_listed = |(reference, lent): (&ColdRef, &Lent)| match lent.is_passing {
            true => self.passing.contains(reference),
            false => self.order.contains(reference),
        };
        assert!(self.lent.iter().all(is_listed));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::layout::kind::Db;

    /// Whatever the number of workers, tables of a node stay below a bound.
    #[test]
    fn bounds_of_all_partitions_have_one() {
        for (partitions, share) in
            [(1, CLEAN_MAX), (64, CLEAN_MAX), (128, CLEAN_MAX / 2), (1024, CLEAN_MAX / 16)]
        {
            let cold = Cold { partitions, ..Cold::default() };
            assert_eq!(cold.share_of(CLEAN_MAX), share);
            for bound in [CLEAN_MAX, GIVEN_MAX, ABSENT_MAX] {
                assert!(cold.share_of(bound) * partitions <= bound * BOUND_PARTITIONS);
            }
        }
    }

    /// Few loans keep their tables until the partition has nothing that could be lent.
    #[test]
    fn what_is_flushed_leaves_no_tables() {
        let mut cold = Cold { keys: 1, ..Cold::default() };
        let reference = ColdRef::new(1 << 40);
        cold.lend(reference, Lent::new(Db(0), b"key", Some(b"value"), UnixMs(1)));
        assert!(cold.take_back(reference).is_some());
        cold.free_unused_tables();
        assert!(cold.counts(|bytes| bytes).lent_bytes > 0, "a key is cold");
        cold.keys = 0;
        cold.free_unused_tables();
        assert_eq!(cold.counts(|bytes| bytes).lent_bytes, 0);
    }
}
