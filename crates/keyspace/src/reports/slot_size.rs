//! Size of a slot, read from its records, which every change keeps: no walk is needed.

use crate::access::partition::Partition;
use crate::layout::kind::Db;
use crate::layout::record::UNIT_BYTES;
use isotherm_stdx::Slot;

/// Size of one slot, over all databases.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct SlotSize {
    pub keys: u64,
    /// Number of keys with an expiry.
    pub volatile: u64,
    /// The used bytes of its pages, and what its keys have outside of them. Free room in pages, directories
    /// and the record itself (32 B) belong to no entry.
    pub memory_bytes: u64,
}

impl SlotSize {
    /// Adds what the slot takes in one database. Its partition is held.
    pub(crate) fn add(&mut self, partition: &Partition, db: Db, slot: Slot) {
        let Some(table) = partition.table(db) else { return };
        let place = partition.geometry.place_of(slot);
        let record = table.slot(&partition.store.heap, place).record;
        self.keys += table.slot_len(&partition.store.heap, place);
        self.volatile += u64::from(record.volatile);
        self.memory_bytes += record.page_bytes() + record.outside() * UNIT_BYTES;
    }
}
