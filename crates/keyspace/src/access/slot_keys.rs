//! The keys of one slot, straight from its records and pages. The slot's partition is held.

use crate::access::lock::Held;
use crate::access::partition::Partition;
use crate::access::scan::visit_page;
use crate::access::walk::WalkRecord;
use crate::layout::bundle::{self, BundleName};
use crate::layout::cold::ColdRef;
use crate::layout::kind::Db;
use crate::tables::frozen::BundleAddress;
use crate::tables::table::Table;
use isotherm_stdx::{Slot, UnixMs, steps};

/// Result of a look at frozen keys of a slot.
#[derive(Default, PartialEq, Eq, Debug)]
pub struct Thawed {
    /// A bundle has come to memory.
    pub is_any: bool,
    /// Keys that stay, since they could not be read or had no room.
    pub lost: u64,
}

/// Keys of one slot, in a partition that is held.
#[derive(Clone, Copy)]
pub struct SlotKeys<'h> {
    partition: &'h Partition,
    /// The slot's place in the partition.
    place: usize,
}

impl<'h> SlotKeys<'h> {
    pub fn of(held: &'h Held<'_>, slot: Slot) -> SlotKeys<'h> {
        let partition = held.partition_ref(slot);
        SlotKeys { partition, place: partition.geometry.place_of(slot) }
    }

    /// Returns the number of keys in one database, those past their time included.
    pub fn len_in(self, db: Db) -> u64 {
        let table = self.partition.table(db);
        table.map_or(0, |table| table.slot_len(&self.partition.store.heap, self.place))
    }

    /// Returns whether there are no keys in any database, nor any past their time. Frozen ones are not
    /// counted for it.
    pub fn is_empty(self) -> bool {
        let is_empty = |table: &Table| table.slot(&self.partition.store.heap, self.place).record.keys == 0;
        self.tables().all(|(_, table)| is_empty(table)) && !self.has_frozen()
    }

    /// Returns whether keys lie outside memory themselves.
    pub fn has_frozen(self) -> bool {
        let first = BundleAddress::first_of(self.place);
        let mut tables = self.tables().filter_map(|(_, table)| table.frozen.as_ref());
        tables.any(|frozen| frozen.from(first).next().is_some())
    }

    /// Shows the bundles, each with its database.
    pub fn bundles(self, visit: &mut dyn FnMut(Db, BundleName, ColdRef)) {
        for (db, table) in self.tables() {
            for (address, bundle) in table.bundles_from(BundleAddress::first_of(self.place)) {
                steps::note(1);
                visit(db, address.name(), bundle.reference);
            }
        }
    }

    /// Returns the names of the keys that lie in memory, `count` at most.
    pub fn names_in_memory(self, db: Db, count: usize) -> Vec<Vec<u8>> {
        let partition = self.partition;
        let Some(table) = partition.table(db) else { return Vec::new() };
        let record = table.slot(&partition.store.heap, self.place).record;
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

    fn tables(self) -> impl Iterator<Item = (Db, &'h Table)> {
        let partition = self.partition;
        partition.used_databases().filter_map(|db| Some((db, partition.table(db)?)))
    }
}

/// Moves the keys of one bundle to memory, among those that have the first `count` frozen keys of a slot,
/// from a record that was read for it (`Held::walk`); the walk names the records of the others that are
/// missing. Keys of several bundles are neighbours in one page, which would be split until they part: in
/// a slot of half a million keys thousands of times.
pub fn thaw_slot(held: &mut Held<'_>, db: Db, slot: Slot, count: u64, now: UnixMs) -> Thawed {
    let hasher = held.keyspace.hasher();
    let mut walk = std::mem::take(&mut held.walk);
    let partition = held.partition(slot);
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
    held.walk = walk;
    thawed
}
