//! A walk over the entries whose values are not in memory, slot by slot.
//!
//! The walk says where values are; it reads none.

use crate::access::lock::Held;
use crate::layout::cold::ColdRef;
use crate::layout::entry::EntryBytes;
use crate::layout::kind::Db;
use crate::upkeep::slot_hand::SlotHand;
use isotherm_stdx::Steps;

impl SlotHand {
    /// Shows cold entries of the hand's slot, until about `looks_max` pages and entries were looked at or the
    /// slot is over.
    pub fn show_cold(
        &mut self,
        held: &mut Held<'_>,
        looks_max: u64,
        visit: &mut dyn FnMut(Db, &[u8], ColdRef),
    ) {
        if !held.partition(self.slot()).has_cold() {
            return self.pass_slot();
        }
        self.walk_pages(held, Steps::new(looks_max), &mut |store, db, page, steps| {
            let view = store.heap.page(page);
            for spot in view.spots() {
                steps.look(1);
                let entry = EntryBytes(view.entry(spot));
                if let (Some(reference), Some(key)) = (entry.cold(), entry.inline_key()) {
                    visit(db, key, reference);
                }
            }
        });
    }
}
