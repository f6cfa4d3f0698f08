//! A walk over the entries whose values are not in memory, slot by slot.
//!
//! The walk says where values are; it reads none. A page that is split or merged while the hand stands in its slot may be met twice
//! or not at all in a round.

use crate::access::lock::Held;
use crate::access::partition::Partition;
use crate::layout::cold::ColdRef;
use crate::layout::directory;
use crate::layout::entry::EntryBytes;
use crate::layout::kind::Db;
use isotherm_arena::Handle;
use isotherm_stdx::{Slot, Steps};

/// Where a walk is.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct ColdHand {
    slot: u16,
    db: u16,
    page: u32,
    /// Rounds that are complete.
    pub rounds: u64,
}

impl ColdHand {
    /// The slot that the next step looks at: its partition is to be held.
    pub fn slot(&self) -> Slot {
        Slot::new(self.slot)
    }
}

impl Held<'_> {
    /// Shows cold entries of the hand's slot, until about `looks_max` pages and entries were looked at or the slot is over.
    pub fn cold_step(
        &mut self,
        hand: &mut ColdHand,
        looks_max: u64,
        visit: &mut dyn FnMut(Db, &[u8], ColdRef),
    ) {
        let slot = hand.slot();
        let place = self.keyspace.geometry.place_of(slot);
        let partition = self.partition(slot);
        let mut steps = Steps::new(looks_max);
        while usize::from(hand.db) < partition.databases().len() && partition.has_cold() {
            let db = Db(hand.db);
            let table = partition.table(db).filter(|table| table.keys > 0);
            let record = table.map(|table| table.slot(&partition.store.heap, place).record);
            if let Some(record) = record.filter(|record| hand.page < record.pages) {
                if let (Some(page), _) = directory::get(&partition.store.heap, &record, hand.page) {
                    partition.show_cold(page, &mut steps, &mut |key, reference| visit(db, key, reference));
                }
                hand.page += 1;
            } else {
                (hand.db, hand.page) = (hand.db + 1, 0);
            }
            steps.look(1);
            if steps.is_spent() {
                return;
            }
        }
        let next = hand.slot + 1;
        let is_round = usize::from(next) == Slot::COUNT;
        *hand = ColdHand {
            slot: if is_round { 0 } else { next },
            rounds: hand.rounds + u64::from(is_round),
            ..ColdHand::default()
        };
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
