//! Changing a table: storing and removing entries, what is counted for them, and the growth of their slot.

use super::Table;
use crate::accounting::attribution::{Change, Size};
use crate::accounting::tally::Account;
use crate::layout::directory;
use crate::layout::entry::{Draft, EntryBytes, INLINE_BYTES_MAX, Place, Plan, form_of, value_bytes};
use crate::layout::key::{Key, tag_of};
use crate::layout::kind::{Expiry, Form, Full, NewValue, PackedValue};
use crate::layout::page::{self};
use crate::layout::record::{Record, bound_of};
use crate::tables::location::{Location, OldEntry, SlotRef};
use crate::values::linear::{self, PagePlace};
use crate::values::store::Store;
use isotherm_arena::Handle;
use isotherm_stdx::UnixMs;

impl Table {
    /// Stores a value where its key is or would be (`location` was just looked up), whatever was there. The location is
    /// then where the entry lies, unless a page was split: then it is none.
    pub fn set(
        &mut self,
        store: &mut Store,
        location: &mut Location,
        key: &Key<'_>,
        value: NewValue<'_>,
        expiry: Expiry,
        now: UnixMs,
    ) -> Result<(), Full> {
        let old = location.old_entry(store);
        let expiry = match expiry {
            Expiry::Clear => None,
            Expiry::Keep => old.as_ref().and_then(|old| old.expiry),
            Expiry::At(at) => Some(at),
        };
        let tight = location.is_tight(store);
        let plan = Plan::new(key.bytes.len(), value_bytes(value), tight);
        let draft = match plan.place {
            Place::Inline => Draft::inline(key.bytes, value, expiry),
            Place::Blob | Place::Large => {
                let body = store.new_body(plan, key, value)?;
                Draft::outside(key.bytes, form_of(value), body, expiry)
            }
            Place::Object => unreachable!("an object is made by the change of a collection"),
        };
        self.put_over(store, location, key, &draft, old, now)
    }

    /// Gives the inline entry at `location`, just looked up, another inline value; head and key stay as they are.
    pub fn set_inline(
        &mut self,
        store: &mut Store,
        location: Location,
        key: &Key<'_>,
        value: PackedValue<'_>,
        now: UnixMs,
    ) -> Result<(), Full> {
        let (page, spot) = location.page.zip(location.spot).expect("it was found");
        let (mut slot, before) = (location.slot, location.slot.record);
        store.before_change(self.snapshot_db, page);
        let view = store.heap.page(page);
        let (used, entry) = (view.used() as u64, EntryBytes(view.entry(spot)));
        let (old_form, old) = (entry.form(), store.account(entry));
        let kept = entry.0.len() - old.value_bytes as usize;
        let (moved, spot) = store.replace_behind(page, spot, kept, value.bytes, now)?;
        if value.form != old_form {
            store.set_form(moved, spot, value.form);
        }
        let new = old.with_inline_value(value.form, value.bytes, kept + value.bytes.len());
        self.count_change(key.bytes, tag_of(key.hash), Some(&old), Some(&new));
        if moved != page {
            directory::set_page(&mut store.heap, &mut slot.record, location.page_index, Some(moved));
        }
        slot.record.change_page_bytes(used, store.heap.page(moved).used() as u64);
        self.store(&mut store.heap, &slot, &before);
        self.grow(store, &slot, now);
        Ok(())
    }

    /// Makes the raw text in the entry at `location`, just looked up, longer by `added` zeros. False if there is none
    /// such, or if it would no longer lie there. The location is as after `set`.
    pub fn stretch_inline(
        &mut self,
        store: &mut Store,
        location: &mut Location,
        key: &Key<'_>,
        len: usize,
        now: UnixMs,
    ) -> Result<bool, Full> {
        const ZEROS: [u8; INLINE_BYTES_MAX] = [0; INLINE_BYTES_MAX];
        let Some((page, spot)) = location.page.zip(location.spot) else { return Ok(false) };
        let view = store.heap.page(page);
        let (used, entry) = (view.used() as u64, EntryBytes(view.entry(spot)));
        let (parts, entry_bytes) = (entry.parts(), entry.0.len());
        let stays = parts.is_inline() && parts.form() == Form::Raw && !location.is_tight(store);
        if !stays || Plan::new(key.bytes.len(), len, false).place != Place::Inline {
            return Ok(false);
        }
        let added = len.checked_sub(parts.tail.len()).expect("an edit never shortens");
        let old = store.account(entry);
        store.before_change(self.snapshot_db, page);
        let (moved, spot) = store.replace_behind(page, spot, entry_bytes, &ZEROS[..added], now)?;
        self.count_change(key.bytes, tag_of(key.hash), Some(&old), Some(&old.with_longer_text(added)));
        let before = location.slot.record;
        let record = &mut location.slot.record;
        if moved != page {
            directory::set_page(&mut store.heap, record, location.page_index, Some(moved));
        }
        record.change_page_bytes(used, store.heap.page(moved).used() as u64);
        self.store(&mut store.heap, &location.slot, &before);
        (location.page, location.spot) = (Some(moved), Some(spot));
        if self.grow(store, &location.slot, now) {
            (location.page, location.spot) = (None, None);
        }
        Ok(true)
    }

    /// Puts an entry where the key is or would be. Its body, if it has one, is made already and is freed on an error;
    /// the old entry's is freed on success. The location is as after `set`.
    pub fn put(
        &mut self,
        store: &mut Store,
        location: &mut Location,
        key: &Key<'_>,
        draft: &Draft,
        now: UnixMs,
    ) -> Result<(), Full> {
        let old = location.old_entry(store);
        self.put_over(store, location, key, draft, old, now)
    }

    fn put_over(
        &mut self,
        store: &mut Store,
        location: &mut Location,
        key: &Key<'_>,
        draft: &Draft,
        old: Option<OldEntry>,
        now: UnixMs,
    ) -> Result<(), Full> {
        let before = location.slot.record;
        let entry = EntryBytes(draft.as_bytes());
        if let Err(full) = self.put_bytes(store, location, key, draft.as_bytes(), now) {
            if let Some(body) = entry.body() {
                store.free_body(body);
            }
            self.release_run_if_empty(&mut store.heap, &location.slot);
            return Err(full);
        }
        let account = store.account(entry);
        let tag = tag_of(key.hash);
        let record = &mut location.slot.record;
        if let Some(body) = entry.body() {
            record.change_outside(0, store.body_units(body));
            self.timed_hashes += u64::from(store.is_timed(body));
        }
        match &old {
            None => {
                self.count_change(key.bytes, tag, None, Some(&account));
                record.keys += 1;
            }
            Some(old) => {
                self.account_change(key.bytes, tag, Some(&old.account), Some(&account));
                if let Some(body) = old.body {
                    record.change_outside(store.body_units(body), 0);
                    self.timed_hashes -= u64::from(store.is_timed(body));
                    store.free_body(body);
                }
                record.volatile -= u32::from(old.expiry.is_some());
            }
        }
        if let Some(at) = entry.expiry() {
            record.volatile += 1;
            directory::lower_bound(&mut store.heap, record, location.page_index, bound_of(at));
        }
        self.store(&mut store.heap, &location.slot, &before);
        let dense = location.page.filter(|page| linear::is_dense(store.heap.page(*page)));
        let is_split = match dense {
            Some(page) if self.spread(store, location.slot, page, now) => true,
            _ => self.grow(store, &location.slot, now),
        };
        if is_split {
            (location.page, location.spot) = (None, None);
        }
        Ok(())
    }

    /// Writes the bytes of an entry into its page, which may move to another class. The record knows the new place, but
    /// is not stored yet; after an error it is as it was, and so is everything else.
    fn put_bytes(
        &mut self,
        store: &mut Store,
        location: &mut Location,
        key: &Key<'_>,
        entry: &[u8],
        now: UnixMs,
    ) -> Result<(), Full> {
        self.materialise(&mut store.heap, &mut location.slot)?;
        let place = PagePlace { index: location.page_index, page: location.page, spot: location.spot };
        let db = self.snapshot_db;
        let (page, spot) = linear::put(
            store,
            &mut location.slot.record,
            place,
            (key.hash, entry),
            |store| store.first_page(key, entry, now),
            |store, page| store.before_change(db, page),
            now,
        )?;
        (location.page, location.spot) = (Some(page), Some(spot));
        Ok(())
    }

    /// Takes an entry out. The location is one that was just found.
    pub fn remove(&mut self, store: &mut Store, location: &Location, now: UnixMs) {
        let (page, spot) = (location.page.expect("it was found"), location.spot.expect("it was found"));
        store.before_change(self.snapshot_db, page);
        let mut slot = location.slot;
        let before = slot.record;
        let (volatile, body, used) = {
            let page = store.heap.page(page);
            let entry = EntryBytes(page.entry(spot));
            let (tag, account) = (page.tag(spot.index), store.account(entry));
            self.count_change(store.key_of(entry), tag, Some(&account), None);
            (account.expiry_bytes > 0, entry.body(), page.used() as u64)
        };
        if let Some(body) = body {
            slot.record.change_outside(store.body_units(body), 0);
            self.timed_hashes -= u64::from(store.is_timed(body));
            store.free_body(body);
        }
        slot.record.keys -= 1;
        slot.record.volatile -= u32::from(volatile);
        let left = store.remove_entry(page, spot);
        self.settle_removal(store, &mut slot, &before, location.page_index, (page, used), left);
        if slot.record.keys > 0 && linear::is_sparse(&slot.record) {
            self.shrink(store, slot.at, now);
        }
    }

    /// Takes those entries out of page `index` that are `dead` (all of them volatile); `bound` is that of the rest.
    pub fn remove_dead(
        &mut self,
        store: &mut Store,
        at: usize,
        index: u32,
        dead: &[bool; page::ENTRIES_MAX],
        bound: u32,
        now: UnixMs,
    ) {
        let mut slot = self.slot(&store.heap, at);
        let before = slot.record;
        let page = directory::get(&store.heap, &slot.record, index).0.expect("the page has dead entries");
        store.before_change(self.snapshot_db, page);
        let mut bodies = Vec::new();
        let view = store.heap.page(page);
        let (used, mut gone) = (view.used() as u64, 0);
        for spot in view.spots().filter(|spot| dead[spot.index]) {
            let entry = EntryBytes(view.entry(spot));
            let tag = view.tag(spot.index);
            self.account_change(store.key_of(entry), tag, Some(&store.account(entry)), None);
            bodies.extend(entry.body());
            gone += 1;
        }
        for body in bodies {
            slot.record.change_outside(store.body_units(body), 0);
            self.timed_hashes -= u64::from(store.is_timed(body));
            store.free_body(body);
        }
        slot.record.keys -= gone;
        slot.record.volatile -= gone;
        directory::set_bound(&mut store.heap, &mut slot.record, index, bound);
        let left = store.remove_entries(page, dead);
        self.settle_removal(store, &mut slot, &before, index, (page, used), left);
        // As many merges at most as single removals could have led to.
        while slot.record.keys > 0 && gone > 0 && self.shrink(store, at, now) {
            gone -= 1;
        }
    }

    /// Records what is left of a page that lost entries; a slot without keys gives everything back.
    fn settle_removal(
        &mut self,
        store: &mut Store,
        slot: &mut SlotRef,
        before: &Record,
        index: u32,
        page: (Handle, u64),
        left: Option<Handle>,
    ) {
        linear::settle_removal(store, &mut slot.record, index, page, left);
        self.store(&mut store.heap, slot, before);
        if slot.record.keys == 0 {
            self.release_run_if_empty(&mut store.heap, slot);
        }
    }

    /// Sets or clears the expiry of an entry that was just found.
    pub fn set_expiry(
        &mut self,
        store: &mut Store,
        location: &mut Location,
        key: &Key<'_>,
        expiry: Option<UnixMs>,
        now: UnixMs,
    ) -> Result<(), Full> {
        let page = location.page.expect("it was found");
        let entry = EntryBytes(store.heap.page(page).entry(location.spot.expect("it was found")));
        let (was_volatile, old) = (entry.is_volatile(), store.account(entry));
        let draft = Draft::with_expiry(entry, expiry);
        let before = location.slot.record;
        self.put_bytes(store, location, key, draft.as_bytes(), now)?;
        let new = store.account(EntryBytes(draft.as_bytes()));
        self.account_change(key.bytes, tag_of(key.hash), Some(&old), Some(&new));
        let record = &mut location.slot.record;
        record.volatile = record.volatile - u32::from(was_volatile) + u32::from(expiry.is_some());
        if let Some(at) = expiry {
            directory::lower_bound(&mut store.heap, record, location.page_index, bound_of(at));
        }
        self.store(&mut store.heap, &location.slot, &before);
        Ok(())
    }

    /// Gives the page of a location the access column of the mode in force.
    pub fn convert_page(&mut self, store: &mut Store, location: &Location, now: UnixMs) -> Result<(), Full> {
        let page = location.page.expect("it was found");
        let mut slot = location.slot;
        let before = slot.record;
        let used = store.heap.page(page).used();
        let moved = store.convert_access(page, now)?;
        slot.record.change_page_bytes(used as u64, store.heap.page(moved).used() as u64);
        directory::set_page(&mut store.heap, &mut slot.record, location.page_index, Some(moved));
        self.store(&mut store.heap, &slot, &before);
        Ok(())
    }

    // ---- what is counted ----

    /// An entry with this key has come, has gone, or is another now.
    pub fn account_change(&mut self, key: &[u8], tag: u8, old: Option<&Account>, new: Option<&Account>) {
        self.count_change(key, tag, old, new);
    }

    /// The same in place, where most changes come from.
    #[inline(always)]
    fn count_change(&mut self, key: &[u8], tag: u8, old: Option<&Account>, new: Option<&Account>) {
        match (old, new) {
            (Some(old), Some(new)) if old == new => return,
            (Some(old), Some(new)) => self.tally.replace(old, new),
            (None, Some(new)) => self.tally.add(new),
            (Some(old), None) => self.tally.remove(old),
            (None, None) => unreachable!("something has changed"),
        }
        self.sizes.note(old, new);
        let (old, new) = (old.map(Size::of), new.map(Size::of));
        self.counters.attribution.note(&Change { table: self.number, key, tag, old, new });
    }

    /// None of its keys is shown as one of the largest any more: they cannot be found.
    pub fn forget_largest(&self) {
        self.counters.attribution.largest.forget_table(self.number);
    }

    /// An entry leaves a table that was flushed.
    pub fn forget_entry(&mut self, old: &Account) {
        self.tally.remove(old);
        self.sizes.note(Some(old), None);
    }

    /// And the prefixes that counted it.
    pub fn forget_share(&self, change: &Change<'_>) {
        self.counters.attribution.prefixes.note(change);
    }

    // ---- growth ----

    /// Splits one page if the slot's pages have become too full. Whether it did.
    #[inline]
    fn grow(&mut self, store: &mut Store, slot: &SlotRef, now: UnixMs) -> bool {
        // A split that finds no memory is left for the next insert: pages may be larger.
        linear::is_overfull(&slot.record) && self.split(store, *slot, now).is_ok()
    }

    fn split(&mut self, store: &mut Store, mut slot: SlotRef, now: UnixMs) -> Result<(), Full> {
        let (before, db) = (slot.record, self.snapshot_db);
        linear::split(store, &mut slot.record, |store, page| store.before_change(db, page), now)?;
        self.store(&mut store.heap, &slot, &before);
        Ok(())
    }

    /// Splits pages until the entries of one that is dense part. Whether it did.
    fn spread(&mut self, store: &mut Store, mut slot: SlotRef, page: Handle, now: UnixMs) -> bool {
        let (before, db) = (slot.record, self.snapshot_db);
        let before_change = |store: &mut Store, page| store.before_change(db, page);
        let is_split = linear::spread(store, &mut slot.record, page, before_change, now);
        self.store(&mut store.heap, &slot, &before);
        is_split
    }

    /// Merges the last page into its buddy if the slot's pages have become too empty. Whether it did.
    fn shrink(&mut self, store: &mut Store, at: usize, now: UnixMs) -> bool {
        let mut slot = self.slot(&store.heap, at);
        linear::is_sparse(&slot.record) && self.merge(store, &mut slot, now).is_ok()
    }

    fn merge(&mut self, store: &mut Store, slot: &mut SlotRef, now: UnixMs) -> Result<(), Full> {
        let (before, db) = (slot.record, self.snapshot_db);
        linear::merge(store, &mut slot.record, |store, page| store.before_change(db, page), now)?;
        self.store(&mut store.heap, slot, &before);
        Ok(())
    }
}
