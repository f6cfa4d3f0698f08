//! A walk over the entries whose values are not in memory, slot by slot.
//!
//! The walk says where values are; it reads none.

use crate::access::lock::Held;
use crate::access::partition::Partition;
use crate::layout::cold::ColdRef;
use crate::layout::entry::EntryBytes;
use crate::layout::kind::Db;
use crate::upkeep::slot_hand::SlotHand;
use isotherm_arena::Handle;
use isotherm_stdx::Steps;

impl Held<'_> {
    /// Shows cold entries of the hand's slot, until about `looks_max` pages and entries were looked at or the
    /// slot is over.
    pub fn cold_step(
        &mut self,
        hand: &mut SlotHand,
        looks_max: u64,
        visit: &mut dyn FnMut(Db, &[u8], ColdRef),
    ) {
        if !self.partition(hand.slot()).has_cold() {
            return hand.pass_slot();
        }
        self.walk_pages(hand, Steps::new(looks_max), &mut |partition, db, page, steps| {
            partition.show_cold(page, steps, &mut |key, reference| visit(db, key, reference));
        });
    }
}

impl Partition {
    fn show_cold(&self, page: Handle, steps: &mut Steps, visit: &mut dyn FnMut(&[u8], ColdRef)) {
        let view = self.store.heap.page(page);
        for spot in view.spots() {
            steps.look(1);
            let entry = EntryBytes(view.entry(spot));
            if let (Some(reference), Some(key)) = (entry.cold(), entry.inline_key()) {
                visit(key, reference);
            }
        }
    }
}
