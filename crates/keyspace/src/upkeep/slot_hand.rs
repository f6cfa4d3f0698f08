//! A hand that goes round the slots, and shows the pages of each.
//!
//! A page that is split or merged while the hand stands in its slot may be met twice or not at all in a
//! round.

use crate::access::lock::Held;
use crate::layout::directory;
use crate::layout::kind::Db;
use crate::values::store::Store;
use isotherm_arena::Handle;
use isotherm_stdx::{Slot, Steps};

/// Position of the hand.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct SlotHand {
    slot: u16,
    pub(super) db: u16,
    /// The page, or another part of the slot, of the one that goes round.
    pub(super) step: u32,
    /// Rounds that are complete.
    pub rounds: u64,
}

impl SlotHand {
    /// A round that begins at this slot.
    pub fn at(slot: Slot) -> SlotHand {
        SlotHand { slot: slot.get(), ..SlotHand::default() }
    }

    /// The slot that the next step looks at: its partition is to be held.
    pub fn slot(&self) -> Slot {
        Slot::new(self.slot)
    }

    /// Moves on to a database, unless the hand is in it.
    pub(super) fn enter_database(&mut self, db: Db) {
        if self.db != db.0 {
            (self.db, self.step) = (db.0, 0);
        }
    }

    pub(super) fn pass_database(&mut self) {
        (self.db, self.step) = (self.db + 1, 0);
    }

    pub(crate) fn pass_slot(&mut self) {
        let next = self.slot + 1;
        let is_round = usize::from(next) == Slot::COUNT;
        *self = SlotHand {
            slot: if is_round { 0 } else { next },
            rounds: self.rounds + u64::from(is_round),
            ..SlotHand::default()
        };
    }

    /// Shows the pages of the slot, until `steps` are spent or the slot is over.
    pub(super) fn walk_pages(
        &mut self,
        held: &mut Held<'_>,
        mut steps: Steps,
        visit: &mut dyn FnMut(&Store, Db, Handle, &mut Steps),
    ) {
        let slot = self.slot();
        let place = held.keyspace.geometry.place_of(slot);
        let partition = held.partition(slot);
        while let Some(db) = partition.next_used_at(self.db, place, &mut steps) {
            self.enter_database(db);
            if steps.is_spent() {
                return;
            }
            let table = partition.table(db).filter(|table| table.keys > 0);
            let record = table.map(|table| table.slot(&partition.store.heap, place).record);
            if let Some(record) = record.filter(|record| self.step < record.pages) {
                if let (Some(page), _) = directory::get(&partition.store.heap, &record, self.step) {
                    visit(&partition.store, db, page, &mut steps);
                }
                self.step += 1;
            } else {
                self.pass_database();
            }
            steps.look(1);
            if steps.is_spent() {
                return;
            }
        }
        self.pass_slot();
    }
}
