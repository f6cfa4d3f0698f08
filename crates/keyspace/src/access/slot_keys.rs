//! The keys of one slot, straight from its records and pages. The slot's partition is held.

use crate::access::lock::Held;
use crate::access::scan::visit_page;
use crate::access::walk::WalkRecord;
use crate::layout::bundle;
use crate::layout::kind::Db;
use crate::tables::frozen::BundleAddress;
use isotherm_stdx::{Slot, UnixMs, steps};

/// Result of a look at frozen keys of a slot.
#[derive(Default, PartialEq, Eq, Debug)]
pub struct Thawed {
    /// A bundle has come to memory.
    pub is_any: bool,
    /// Keys that stay, since they could not be read or had no room.
    pub lost: u64,
}

impl Held<'_> {
    /// Returns the number of keys of a slot in all databases, those past their time included.
    pub fn slot_keys(&self, slot: Slot) -> u64 {
        let partition = self.partition_ref(slot);
        partition.used_databases().map(|db| self.slot_keys_of(db, slot)).sum()
    }

    /// Returns the number of keys of a slot in one database, those past their time included.
    pub fn slot_keys_of(&self, db: Db, slot: Slot) -> u64 {
        let partition = self.partition_ref(slot);
        let place = partition.geometry.place_of(slot);
        let table = partition.table(db);
        table.map_or(0, |table| table.slot_len(&partition.store.heap, place))
    }

    /// Returns whether the slot has keys, those past their time included. It takes no count of frozen ones.
    pub fn has_keys_in(&self, slot: Slot) -> bool {
        let partition = self.partition_ref(slot);
        let place = partition.geometry.place_of(slot);
        let mut tables = partition.used_databases().filter_map(|db| partition.table(db));
        let in_memory = tables.any(|table| table.slot(&partition.store.heap, place).record.keys > 0);
        in_memory || self.has_frozen_in(slot)
    }

    /// Returns whether keys of the slot lie outside memory themselves.
    pub fn has_frozen_in(&self, slot: Slot) -> bool {
        let partition = self.partition_ref(slot);
        let first = BundleAddress::first_of(partition.geometry.place_of(slot));
        let mut tables = partition.used_databases().filter_map(|db| partition.table(db)?.frozen.as_ref());
        tables.any(|frozen| frozen.from(first).next().is_some())
    }

    /// Returns the names of the keys that lie in memory, `count` at most.
    pub fn slot_names_in_memory(&self, db: Db, slot: Slot, count: usize) -> Vec<Vec<u8>> {
        let partition = self.partition_ref(slot);
        let place = partition.geometry.place_of(slot);
        let Some(table) = partition.table(db) else { return Vec::new() };
        let record = table.slot(&partition.store.heap, place).record;
        let count = count.min(record.keys as usize);
        let mut names = Vec::new();
        for index in 0..record.pages {
            if names.len() >= count {
                break;
            }
            visit_page(partition, &record, index, UnixMs(0), &mut |name, _| {
                steps::note(1);
                names.push(name.to_vec());
            });
        }
        names.truncate(count);
        names
    }

    /// Moves the keys of one bundle to memory, among those that have the first `count` frozen keys of a slot,
    /// from a record that was read for it (`Held::walk`); the walk names the records of the others that are
    /// missing. Keys of several bundles are neighbours in one page, which would be split until they part: in
    /// a slot of half a million keys thousands of times.
    pub fn thaw_slot(&mut self, db: Db, slot: Slot, count: u64, now: UnixMs) -> Thawed {
        let hasher = self.keyspace.hasher();
        let mut walk = std::mem::take(&mut self.walk);
        let partition = self.partition(slot);
        let place = partition.geometry.place_of(slot);
        let frozen = partition.table(db).and_then(|table| table.frozen.as_ref());
        let mut left = count;
        let bundles = frozen.into_iter().flat_map(|frozen| frozen.from(BundleAddress::first_of(place)));
        let wanted = bundles.map_while(|(address, bundle)| {
            let is_wanted = left > 0;
            left = left.saturating_sub(bundle.live());
            is_wanted.then_some((address, bundle.reference, bundle.live()))
        });
        let mut thawed = Thawed::default();
        for (address, from, live) in wanted.collect::<Vec<_>>() {
            // One that is lost is not read for each step.
            if walk.get(from) == Some(&WalkRecord::Lost) {
                thawed.lost += live;
                continue;
            }
            if thawed.is_any && walk.get(from).is_some() {
                continue;
            }
            let Some(WalkRecord::Payload(payload)) = walk.take(from) else {
                walk.want(partition.bundle_of(db, &address, from));
                continue;
            };
            let items = bundle::items(&payload);
            let is_home = items.is_some_and(|items| {
                items
                    .into_iter()
                    .all(|item| partition.thaw(db, &hasher.key(item.key), &payload, from, now).is_ok())
            });
            match is_home {
                true => thawed.is_any = true,
                false => thawed.lost += live,
            }
        }
        self.walk = walk;
        thawed
    }
}
