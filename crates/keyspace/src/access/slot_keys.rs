//! How many keys a slot has, over all databases.

use crate::access::lock::Held;
use isotherm_stdx::Slot;

impl Held<'_> {
    /// The slot's partition is held.
    pub fn slot_keys(&self, slot: Slot) -> u64 {
        let partition = self.partition_ref(slot);
        let place = partition.geometry.place_of(slot);
        let tables = partition.used_databases().filter_map(|db| partition.table(db));
        tables.map(|table| u64::from(table.slot(&partition.store.heap, place).record.keys)).sum()
    }
}
