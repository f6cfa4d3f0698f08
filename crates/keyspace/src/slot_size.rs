//! What a slot takes: read from its records, which every change keeps, so nothing is walked.

use crate::lock::Held;
use crate::partition::Partition;
use isotherm_stdx::Slot;

/// One slot, in all databases.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct SlotSize {
    pub keys: u64,
    /// Those with an expiry.
    pub volatile: u64,
    /// The used bytes of its pages, and what its keys have outside of them. Free room in pages, directories and the
    /// record itself (32 B) are nobody's own.
    pub memory_bytes: u64,
}

impl SlotSize {
    fn of(partition: &Partition, slot: Slot) -> SlotSize {
        /// The unit of `Record::outside`.
        const UNIT_BYTES: u64 = 16;
        let mut size = SlotSize::default();
        let place = partition.geometry.place_of(slot);
        for table in partition.databases().filter_map(|db| partition.table(db)) {
            let record = partition.slot(table, place).record;
            size.keys += u64::from(record.keys);
            size.volatile += u64::from(record.volatile);
            size.memory_bytes += record.page_bytes + u64::from(record.outside) * UNIT_BYTES;
        }
        size
    }
}

impl Held<'_> {
    /// The size of every slot, by its number. Every partition is held.
    pub fn slot_sizes(&mut self) -> Vec<SlotSize> {
        assert!(self.holds_all(), "whoever asks for all slots holds the gate");
        Slot::all().map(|slot| SlotSize::of(self.partition(slot), slot)).collect()
    }
}
