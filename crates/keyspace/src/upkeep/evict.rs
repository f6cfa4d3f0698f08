//! Eviction: one key leaves, chosen as the policy says.
//!
//! A partition is chosen by its weight (keys, or volatile keys), then a database, then a slot by the same
//! weight, then a random page of it: some 17 candidates for one or two cache misses, where sampling five keys
//! costs five. The worst of two pages leaves (of more, while pages are nearly empty). Under volatile-* the
//! directory's bounds lead to a page that has volatile keys; how many pages are looked at for that is
//! bounded.

use crate::access::effect::EffectSink;
use crate::access::followers::ChangeCause;
use crate::access::keyspace::Keyspace;
use crate::access::lock::Held;
use crate::access::partition::Partition;
use crate::access::scan::{random_entry, weighted_slot};
use crate::layout::bundle::{self, BundleAt};
use crate::layout::cold::ColdRef;
use crate::layout::directory::{self, Bounded};
use crate::layout::entry::EntryBytes;
use crate::layout::key::Key;
use crate::layout::kind::Db;
use crate::layout::page::{Page, Spot};
use crate::layout::record::{NEVER, Record};
use crate::values::store::Store;
use crate::values::value::Entry;
use isotherm_arena::Handle;
use isotherm_stdx::{Prng, Steps, UnixMs, steps};
use std::sync::atomic::Ordering::Relaxed;

/// maxmemory-policy, noeviction aside.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum EvictionPolicy {
    AllKeysLru,
    AllKeysLfu,
    AllKeysRandom,
    VolatileLru,
    VolatileLfu,
    VolatileRandom,
    VolatileTtl,
}

impl EvictionPolicy {
    pub fn is_lru(self) -> bool {
        matches!(self, EvictionPolicy::AllKeysLru | EvictionPolicy::VolatileLru)
    }

    pub fn is_lfu(self) -> bool {
        matches!(self, EvictionPolicy::AllKeysLfu | EvictionPolicy::VolatileLfu)
    }

    fn is_volatile(self) -> bool {
        use EvictionPolicy::*;
        matches!(self, VolatileLru | VolatileLfu | VolatileRandom | VolatileTtl)
    }

    /// Returns whether a key with this expiry may leave.
    pub(crate) fn takes(self, expiry: Option<UnixMs>) -> bool {
        expiry.is_some() || !self.is_volatile()
    }

    fn is_random(self) -> bool {
        matches!(self, EvictionPolicy::AllKeysRandom | EvictionPolicy::VolatileRandom)
    }
}

/// The use of an eviction.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum EvictionGain {
    /// Any key that the policy names.
    Any,
    /// Memory: no key whose value is not there, as some 35 bytes are all that it takes.
    Memory,
}

/// Pages whose entries compete: two, and more while they have few entries. With fewer keys than slots most
/// pages have one, and the worst of two random keys is a poor choice.
const PAGES_SAMPLED: usize = 2;
const PAGES_SAMPLED_MAX: usize = 8;
const CANDIDATES_WANTED: usize = 16;
/// Pages (and nodes of directories) that one choice may look at where bounds lead astray: keys that had a
/// time and were persisted leave theirs behind.
const LOOKED_AT_MAX: u64 = 200;

/// Outcome of an attempt to evict a key from a partition.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Evicted {
    /// A key has left, from this partition.
    Key(u16),
    /// The attempt has looked at as many pages as one hold may, without meeting a key that may leave. The
    /// next attempt continues.
    NotYet,
    /// The key that was chosen is a script's until that is over. The next attempt chooses anew.
    Leased,
    /// No key of this partition may leave.
    Nothing,
}

/// Returns the partition that is to lose a key: chosen by its keys, or volatile keys. `None`: no key may
/// leave. With an arena, only partitions whose objects lie there.
pub(super) fn choose_partition(
    keyspace: &Keyspace,
    policy: EvictionPolicy,
    arena: Option<usize>,
    prng: &mut Prng,
) -> Option<u16> {
    let (weights, arenas) = (&keyspace.shared().counters.weights, keyspace.arenas().len());
    let weight = |at: usize| match arena {
        Some(arena) if at % arenas != arena => 0,
        _ => (if policy.is_volatile() { &weights[at].volatile } else { &weights[at].keys }).load(Relaxed),
    };
    let total: u64 = (0..weights.len()).map(weight).sum();
    if total == 0 {
        return None;
    }
    let mut at = prng.below(total);
    for number in 0..weights.len() {
        let weight = weight(number);
        if at < weight {
            return Some(number as u16);
        }
        at -= weight;
    }
    // The weights changed while they were added up.
    (0..weights.len()).find(|&number| weight(number) > 0).map(|number| number as u16)
}

/// Evicts one key of a partition.
pub(super) fn evict_one(
    partition: &mut Partition,
    (policy, gain): (EvictionPolicy, EvictionGain),
    now: UnixMs,
    prng: &mut Prng,
    sink: &mut dyn EffectSink,
) -> Evicted {
    let hasher = partition.store.hasher;
    let Some(db) = weighted_database(partition, policy.is_volatile(), prng) else {
        return Evicted::Nothing;
    };
    let Some(key) = choose(partition, db, (policy, gain), now, prng) else { return Evicted::NotYet };
    match evict(partition, db, &hasher.key(&key), now, sink) {
        true => Evicted::Key(partition.number),
        false => Evicted::Leased,
    }
}

impl Held<'_> {
    /// Returns how far the policy would have a key leave rather than others: the idler, or the less used, the
    /// more. `None`: it may not leave, or does not refer to its value there.
    pub fn eviction_score(
        &mut self,
        db: Db,
        key: &Key<'_>,
        reference: ColdRef,
        policy: EvictionPolicy,
        now: UnixMs,
    ) -> Option<u64> {
        let partition = self.partition(key.slot);
        let (page, spot) = partition.find(db, key)?;
        let page = partition.store.heap.page(page);
        let entry = EntryBytes(page.entry(spot));
        let may_leave = entry.cold() == Some(reference) && (entry.is_volatile() || !policy.is_volatile());
        may_leave.then(|| score(policy, &partition.store, (page, spot), now))
    }

    /// Evicts a key of a partition that is held. Returns whether it did: not what a script needs.
    pub fn evict_key(&mut self, db: Db, key: &Key<'_>, now: UnixMs, sink: &mut dyn EffectSink) -> bool {
        evict(self.partition(key.slot), db, key, now, sink)
    }
}

/// Removes a key that is there, unless a script needs it.
fn evict(partition: &mut Partition, db: Db, key: &Key<'_>, now: UnixMs, sink: &mut dyn EffectSink) -> bool {
    if partition.leases.has(key.hash) {
        return false;
    }
    let location = partition.locate(db, key).expect("it was just found");
    let was_stale = location.is_stale(&partition.store, now);
    partition.remove_at(db, &location, now);
    let cause = ChangeCause::Evicted { was_stale };
    partition.followers.changed(db, key.bytes, cause, None, sink);
    true
}

/// The higher, the sooner an entry leaves, under a policy that looks at more than whether it may.
fn score(policy: EvictionPolicy, store: &Store, (page, spot): (Page<'_>, Spot), now: UnixMs) -> u64 {
    match policy {
        EvictionPolicy::AllKeysRandom | EvictionPolicy::VolatileRandom => 0,
        EvictionPolicy::VolatileTtl => {
            let expiry = EntryBytes(page.entry(spot)).expiry();
            u64::MAX - expiry.map_or(0, |at| at.0.max(0) as u64)
        }
        EvictionPolicy::AllKeysLru | EvictionPolicy::VolatileLru => {
            Entry::of(store, page, spot, now).idle_seconds()
        }
        EvictionPolicy::AllKeysLfu | EvictionPolicy::VolatileLfu => {
            u64::from(u8::MAX - Entry::of(store, page, spot, now).frequency())
        }
    }
}

impl Held<'_> {
    /// Evicts the keys of a bundle that the policy may take, if its record is still there. Its partition is
    /// held. Returns how many left.
    ///
    /// The record alone says which keys these are: `payload`, which the caller has read while nothing was
    /// held. No key of it was used since it was written, so none is worth more than another.
    pub fn evict_bundle(
        &mut self,
        at: &BundleAt,
        payload: &[u8],
        policy: EvictionPolicy,
        now: UnixMs,
        sink: &mut dyn EffectSink,
    ) -> u64 {
        let BundleAt { db, slot, name, reference } = *at;
        let partition = self.partition(slot);
        let address = partition.bundle_at((db, slot), name, reference);
        let Some((address, items)) = address.zip(bundle::items(payload)) else { return 0 };
        partition.save_bundle(db, slot, &address);
        let hasher = partition.store.hasher;
        let mut evicted = 0;
        // At most as many as a bundle has.
        for ordinal in partition.live_ordinals(db, &address) {
            steps::note(1);
            let Some(item) = items.get(ordinal) else { break };
            let key = hasher.key(item.key);
            // A script needs it.
            if !policy.takes(item.expiry) || partition.leases.has(key.hash) {
                continue;
            }
            partition.leave(db, &address, ordinal, item.expiry.is_some());
            let cause = ChangeCause::Evicted { was_stale: item.is_due(now) };
            partition.followers.changed(db, item.key, cause, None, sink);
            evicted += 1;
        }
        partition.drop_table_if_empty(db);
        evicted
    }
}

fn weighted_database(partition: &Partition, volatile: bool, prng: &mut Prng) -> Option<Db> {
    let weight =
        |db: Db| if volatile { partition.volatile_len_in_pages(db) } else { partition.len_in_pages(db) };
    let total: u64 = partition.used_databases().map(weight).sum();
    let mut at = (total > 0).then(|| prng.below(total))?;
    partition.used_databases().find(|&db| {
        let weight = weight(db);
        let here = at < weight;
        at = at.wrapping_sub(weight);
        here
    })
}

/// The key that is to leave. `None`: the pages that were looked at have none that may.
fn choose(
    partition: &mut Partition,
    db: Db,
    (policy, gain): (EvictionPolicy, EvictionGain),
    now: UnixMs,
    prng: &mut Prng,
) -> Option<Vec<u8>> {
    let table = partition.table(db).expect("it has keys");
    let keys = if policy.is_volatile() { table.volatile } else { table.keys };
    let mut best: Option<(u64, Handle, usize)> = None;
    let (mut pages, mut candidates_seen) = (0, 0);
    let mut steps = Steps::new(LOOKED_AT_MAX);
    while pages < PAGES_SAMPLED || candidates_seen < CANDIDATES_WANTED {
        if pages == if policy.is_random() { 1 } else { PAGES_SAMPLED_MAX } {
            break;
        }
        pages += 1;
        let place = weighted_slot(partition, db, prng.below(keys), policy.is_volatile());
        let (page, at) = if policy.is_volatile() {
            let Some(page) = volatile_page(partition, db, place, prng, &mut steps) else { break };
            (page, None)
        } else {
            let record = record_of(partition, db, place);
            let (page, at) = random_entry(partition, &record, &mut |n| prng.below(n));
            (page, Some(at))
        };
        let candidates = partition.store.heap.page(page);
        for spot in candidates.spots() {
            let entry = EntryBytes(candidates.entry(spot));
            if policy.is_volatile() && !entry.is_volatile() {
                continue;
            }
            if gain == EvictionGain::Memory && entry.cold().is_some() {
                continue;
            }
            candidates_seen += 1;
            let score = match policy {
                EvictionPolicy::AllKeysRandom => u64::from(at == Some(spot.index)),
                EvictionPolicy::VolatileRandom => prng.next_u64(),
                _ => score(policy, &partition.store, (candidates, spot), now),
            };
            if best.is_none_or(|(best, _, _)| score > best) {
                best = Some((score, page, spot.index));
            }
        }
    }
    let (_, page, index) = best?;
    let page = partition.store.heap.page(page);
    Some(partition.store.key_of(EntryBytes(page.entry(page.spot(index)))).to_vec())
}

/// A page of the slot that has volatile entries, from a random one on. A bound that leads astray (its keys
/// left or persist now) does so once. `None`: the budget was spent before one was met.
fn volatile_page(
    partition: &mut Partition,
    db: Db,
    place: usize,
    prng: &mut Prng,
    steps: &mut Steps,
) -> Option<Handle> {
    let pages = record_of(partition, db, place).pages;
    let mut from = prng.below(u64::from(pages)) as u32;
    let mut wrapped = false;
    loop {
        let (table, store) = partition.table_and_store(db).expect("it has keys");
        let index = match table.next_bounded(&mut store.heap, place, from, &|bound| bound != NEVER, steps) {
            Bounded::Page(index) => index,
            Bounded::OutOfBudget => return None,
            Bounded::None => {
                assert!(!wrapped, "the slot has volatile entries");
                (from, wrapped) = (0, true);
                continue;
            }
        };
        if !steps.look(1) {
            return None;
        }
        let record = record_of(partition, db, place);
        let heap = &mut partition.store.heap;
        if let (Some(page), _) = directory::get(heap, &record, index) {
            let view = heap.page(page);
            if view.spots().any(|spot| EntryBytes(view.entry(spot)).is_volatile()) {
                return Some(page);
            }
        }
        directory::forget_bound(heap, &record, index);
        from = index + 1;
    }
}

fn record_of(partition: &Partition, db: Db, place: usize) -> Record {
    partition.table(db).expect("it has keys").slot(&partition.store.heap, place).record
}
