//! The keys of one slot, straight from its records and pages. The slot's partition is held.

use crate::access::lock::Held;
use crate::access::scan::scan;
use crate::layout::kind::Db;
use isotherm_stdx::{Slot, UnixMs, steps};

impl Held<'_> {
    /// How many keys a slot has over all databases, those past their time included.
    pub fn slot_keys(&self, slot: Slot) -> u64 {
        let partition = self.partition_ref(slot);
        partition.used_databases().map(|db| self.slot_keys_of(db, slot)).sum()
    }

    /// The same in one database.
    pub fn slot_keys_of(&self, db: Db, slot: Slot) -> u64 {
        let partition = self.partition_ref(slot);
        let place = partition.geometry.place_of(slot);
        let table = partition.table(db);
        table.map_or(0, |table| table.slot_len(&partition.store.heap, place))
    }

    /// The names of so many of them, at most.
    pub fn slot_names(&mut self, db: Db, slot: Slot, count: usize) -> Vec<Vec<u8>> {
        let mut names = Vec::new();
        let mut cursor = 0;
        while names.len() < count {
            let wanted = (count - names.len()) as u64;
            cursor = scan(self, db, cursor, wanted, Some(slot), UnixMs(0), &mut |name, _| {
                steps::note(1);
                if names.len() < count {
                    names.push(name.to_vec());
                }
            });
            if cursor == 0 {
                break;
            }
        }
        names
    }
}
