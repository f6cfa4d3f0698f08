//! Records that cannot be read are given up, by an operator who has no other use for their keys (SWAP
//! FORGET).
//!
//! Only the record itself says what keys it has: those that left with it are lost, and their names are not
//! known. Nothing is reported of them, to the log or to replicas, which may still have them. A transaction
//! that watches a key that may have been one of them fails.

use crate::access::lock::Held;
use crate::access::partition::Partition;
use crate::layout::bundle::{BundleAt, print_of};
use crate::layout::cold::ColdRef;
use crate::layout::key::Key;
use crate::layout::kind::Db;
use crate::tables::frozen::BundleAddress;
use isotherm_stdx::{Slot, UnixMs, steps};

/// Records that are read for one key.
const READS_MAX: usize = 64;

/// Result of the read of a record before it is given up.
pub enum LastRead {
    Value(Vec<u8>),
    /// The record cannot be read, and others can.
    Lost,
    /// The record cannot be read now.
    Unknown,
}

/// Result of giving up the records that may have a key.
#[derive(PartialEq, Eq, Debug)]
pub struct Forgotten {
    /// Keys that are lost.
    pub keys: u64,
    /// A record that may have the key cannot be read now, and stays.
    pub is_unknown: bool,
}

/// Records of one partition, which is held, that cannot be read.
pub struct LostRecords<'h>(&'h mut Partition);

impl<'h> LostRecords<'h> {
    pub fn of(held: &'h mut Held<'_>, slot: Slot) -> LostRecords<'h> {
        LostRecords(held.partition(slot))
    }

    /// Gives up the records that may have a key and are lost; each is read once more, and waited for. If one
    /// can be read and has the key, that comes to memory, and all others stay as they are.
    pub fn forget_those_of(
        &mut self,
        db: Db,
        key: &Key<'_>,
        now: UnixMs,
        read: &mut dyn FnMut(ColdRef, &[u8]) -> LastRead,
    ) -> Forgotten {
        let mut forgotten = Forgotten { keys: 0, is_unknown: false };
        for _ in 0..READS_MAX {
            if !self.0.has_frozen() || self.0.find(db, key).is_some() {
                break;
            }
            let Some((address, reference)) = self.0.proposal(db, key) else { break };
            self.0.store.cold.take_back(reference);
            match read(reference, address.name().as_bytes()) {
                LastRead::Value(payload) => {
                    if self.0.thaw(db, key, &payload, reference, now) != Ok(false) {
                        break;
                    }
                }
                LastRead::Lost => forgotten.keys += self.drop_bundle(db, (&address, reference)),
                LastRead::Unknown => {
                    forgotten.is_unknown = true;
                    break;
                }
            }
        }
        self.0.store.cold.lost += forgotten.keys;
        forgotten
    }

    /// Gives up a record that is lost. Returns how many keys it had.
    pub fn forget(&mut self, at: &BundleAt) -> u64 {
        let Some(address) = self.0.bundle_at((at.db, at.slot), at.name, at.reference) else { return 0 };
        let keys = self.drop_bundle(at.db, (&address, at.reference));
        self.0.store.cold.lost += keys;
        keys
    }

    /// Gives up the first `count` frozen keys of a slot or some more, which were to be deleted and could not
    /// be read.
    pub fn drop_frozen(&mut self, slot: Slot, count: u64) {
        let first = BundleAddress::first_of(self.0.geometry.place_of(slot));
        let next = |partition: &Partition| {
            let mut tables =
                partition.used_databases().filter_map(|db| Some((db, partition.table(db)?.frozen.as_ref()?)));
            tables.find_map(|(db, frozen)| frozen.from(first).next().map(|(at, it)| (db, at, it.reference)))
        };
        let mut left = count;
        while left > 0
            && let Some((db, address, reference)) = next(self.0)
        {
            self.0.store.cold.take_back(reference);
            left = left.saturating_sub(self.drop_bundle(db, (&address, reference)));
        }
    }

    /// Drops a bundle and returns how many keys it had. A snapshot under way that has not come to the bundle
    /// loses its keys too.
    fn drop_bundle(&mut self, db: Db, (address, reference): (&BundleAddress, ColdRef)) -> u64 {
        let partition = &mut *self.0;
        let mut watches = std::mem::take(&mut partition.followers.watches);
        let frozen = partition.table(db).and_then(|table| table.frozen.as_ref());
        let bundle = frozen.and_then(|frozen| frozen.get(address)).expect("it was proposed");
        let may_have = |name: &[u8]| {
            let key = partition.store.hasher.key(name);
            partition.find(db, &key).is_none() && bundle.proposes(print_of(key.hash))
        };
        watches.touch_some(db, may_have);
        partition.followers.watches = watches;
        let (table, store) = partition.table_and_store(db).expect("it was proposed");
        let frozen = table.frozen.as_mut().expect("it was proposed");
        let keys = frozen.take(address).expect("it was proposed").live();
        if frozen.is_empty() {
            table.frozen = None;
        }
        steps::note(1);
        store.cold.frozen_keys -= keys;
        store.cold.retire_bundle(reference);
        partition.drop_table_if_empty(db);
        keys
    }
}
