//! Tables whose databases were flushed: taken out of sight at once, freed in steps.
//!
//! ```text
//!   FLUSHDB    database -> (none)          under the gate: some loads and stores a partition
//!              flushed  += its table       freed by `free_step`, a page at a time from the last of each slot,
//!                                          each in some hold of its partition's lock
//! ```
//!
//! The memory of a flushed table is in the memory accounts until it is freed. A table that was there at the
//! cut of the snapshot under way stays until that is over: the walk has yet to see it. No command finds its
//! keys, and eviction does not count them.

use crate::accounting::attribution::{Change, Size};
use crate::layout::directory;
use crate::layout::entry::{BodyRef, EntryBytes};
use crate::layout::kind::Db;
use crate::layout::record::Record;
use crate::tables::location::SlotRef;
use crate::tables::table::Table;
use crate::values::object::{FREED_AT_ONCE_MAX, FREED_AT_ONCE_MAX_BY_EXPIRY};
use crate::values::store::Store;
use isotherm_arena::Handle;
use isotherm_stdx::Steps;

pub(crate) struct Flushed {
    table: Table,
    /// True while the keys of the table are counted among the prefixes.
    pub is_attributed: bool,
    /// True if the keys of the table are counted in `LazyFrees`.
    is_lazy: bool,
    /// The slots before this one are empty.
    place: usize,
}

impl Flushed {
    /// A table that is flushed now. `is_attributed`: prefixes and the largest keys lose each key when it is
    /// freed.
    pub fn new(table: Table, is_attributed: bool, is_lazy: bool) -> Flushed {
        Flushed { table, is_attributed, is_lazy, place: 0 }
    }

    pub fn table(&self) -> &Table {
        &self.table
    }

    pub fn table_mut(&mut self) -> &mut Table {
        &mut self.table
    }

    /// Gives back what it has when all its keys are freed.
    pub fn free_empty(self, store: &mut Store) {
        self.table.free_empty(store);
    }

    /// A snapshot that begins now does not see it.
    pub fn hide_from_snapshot(&mut self) {
        self.table.snapshot_db = Db::HIDDEN;
    }

    pub fn is_hidden_from_snapshot(&self) -> bool {
        self.table.snapshot_db == Db::HIDDEN
    }
}

impl Flushed {
    /// True if nothing is left in it.
    pub fn free_step(&mut self, store: &mut Store, steps: &mut Steps) -> bool {
        let slots = self.table.sums.len() * self.table.run_slots();
        while self.place < slots {
            let run = self.place / self.table.run_slots();
            if self.table.sums[run].keys == 0 {
                self.place = (run + 1) * self.table.run_slots();
                continue;
            }
            let is_empty = self.free_slot(store, steps);
            self.place += usize::from(is_empty);
            // A slot costs a step even if nothing is in it.
            steps.look(1);
            if steps.is_spent() {
                return self.place == slots && self.table.frozen.is_none();
            }
        }
        self.free_bundles(store, steps)
    }

    /// True if none is left. Their keys count nowhere else.
    fn free_bundles(&mut self, store: &mut Store, steps: &mut Steps) -> bool {
        let Some(frozen) = &mut self.table.frozen else { return true };
        while let Some(bundle) = frozen.pop() {
            if self.is_lazy {
                store.lazy.free(bundle.live());
            }
            store.cold.frozen_keys -= bundle.live();
            store.cold.retire_bundle(bundle.reference);
            steps.look(1);
            if steps.is_spent() && !frozen.is_empty() {
                return false;
            }
        }
        self.table.frozen = None;
        true
    }

    /// Frees pages of the current slot, the last ones first, one at least. Returns true if it is empty.
    fn free_slot(&mut self, store: &mut Store, steps: &mut Steps) -> bool {
        let mut slot = self.table.slot(&store.heap, self.place);
        let before = slot.record;
        while slot.record.pages > 0 {
            let last = slot.record.pages - 1;
            if let (Some(page), _) = directory::get(&store.heap, &slot.record, last) {
                steps.look(store.heap.page(page).len() as u64);
                self.free_page(store, &mut slot, page);
            }
            directory::pop(&mut store.heap, &mut slot.record);
            steps.look(1);
            if steps.is_spent() {
                break;
            }
        }
        if slot.record.pages == 0 {
            slot.record = Record::EMPTY;
        }
        if slot.record != before {
            self.table.store(&mut store.heap, &slot, &before);
            self.table.release_run_if_empty(&mut store.heap, &slot);
        }
        slot.record.pages == 0
    }

    fn free_page(&mut self, store: &mut Store, slot: &mut SlotRef, page: Handle) {
        let view = store.heap.page(page);
        let record = &mut slot.record;
        if self.is_lazy {
            store.lazy.free(view.spots().count() as u64);
        }
        for spot in view.spots() {
            let entry = EntryBytes(view.entry(spot));
            let old = store.account(entry);
            self.table.forget_entry(&old);
            if self.is_attributed {
                let (key, tag) = (store.key_of(entry), view.tag(spot.index));
                let change =
                    Change { table: self.table.number, key, tag, old: Some(Size::of(&old)), new: None };
                self.table.forget_share(&change);
            }
            record.keys -= 1;
            record.volatile -= u32::from(entry.is_volatile());
        }
        record.change_page_bytes(view.used() as u64, 0);
        let bodies: Vec<BodyRef> =
            view.spots().filter_map(|spot| EntryBytes(view.entry(spot)).body()).collect();
        // Of collections all but the smallest are left to later steps: a page may hold some 200 of them.
        store.freed_at_once_max = FREED_AT_ONCE_MAX_BY_EXPIRY;
        store.counts_lazy = false;
        for body in bodies {
            record.change_outside(store.body_units(body), 0);
            self.table.timed_hashes -= u64::from(store.is_timed(body));
            store.free_body(body);
        }
        store.freed_at_once_max = FREED_AT_ONCE_MAX;
        store.counts_lazy = true;
        directory::set_page(&mut store.heap, record, record.pages - 1, None);
        store.heap.release(page);
    }
}
