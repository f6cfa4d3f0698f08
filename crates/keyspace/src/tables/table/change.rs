//! Changing a table: storing and removing entries, what is counted for them, and the growth of their slot.

use super::Table;
use crate::accounting::attribution::{Change, Size};
use crate::accounting::tally::{Account, Class, InlineAccount};
use crate::layout::directory;
use crate::layout::entry::{Draft, EntryBytes, INLINE_BYTES_MAX, Place, Plan, form_of, value_bytes};
use crate::layout::key::{Key, tag_of};
use crate::layout::kind::{Expiry, Form, Full, NewValue, PackedValue};
use crate::layout::page::{self, ENTRY_BYTES_MAX, Spot};
use crate::layout::record::{NEVER, Record, UNIT_BYTES, bound_of};
use crate::tables::location::{Location, OldEntry, SlotRef};
use crate::values::linear::{self, PagePlace};
use crate::values::store::{Store, inline_account};
use isotherm_arena::Handle;
use isotherm_stdx::UnixMs;

impl Table {
    /// Stores a value where its key is or would be (`location` was just looked up), whatever was there. The
    /// location is then where the entry lies, unless a page was split: then it is none.
    pub fn set(
        &mut self,
        store: &mut Store,
        location: &mut Location,
        key: &Key<'_>,
        value: NewValue<'_>,
        expiry: Expiry,
        now: UnixMs,
    ) -> Result<(), Full> {
        if let NewValue::Bytes(bytes) = value
            && keeps_expiry(store, location, expiry)
            && self.set_inline(store, location, key, PackedValue { form: Form::Bytes, bytes }, now)?
        {
            return Ok(());
        }
        let old = location.old_entry(store);
        let expiry = match expiry {
            Expiry::Clear => None,
            Expiry::Keep => location.expiry(store),
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
            Place::Cold => unreachable!("a value that is written is in memory"),
        };
        self.put_over(store, location, key, &draft, old, now)
    }

    /// Gives the inline entry at `location`, just looked up, another inline value; head and key stay as they
    /// are. Returns false if there is none such, or if they would not. The location is as after `set`.
    pub fn set_inline(
        &mut self,
        store: &mut Store,
        location: &mut Location,
        key: &Key<'_>,
        value: PackedValue<'_>,
        now: UnixMs,
    ) -> Result<bool, Full> {
        let Some((page, spot)) = location.page.zip(location.spot) else { return Ok(false) };
        let view = store.heap.page(page);
        let (used, entry) = (view.used() as u64, EntryBytes(view.entry(spot)));
        let (parts, entry_bytes) = (entry.parts(), entry.0.len());
        let (old_form, plan) = (parts.form(), Plan::new(key.bytes.len(), value.bytes.len(), false));
        let stays = parts.is_inline() && plan.place == Place::Inline && !location.is_tight(store);
        if !stays || old_form != value.form && !entry.keeps_head(value.form) {
            return Ok(false);
        }
        let (old, kept) = (InlineAccount::of(&parts, entry_bytes), entry_bytes - parts.tail.len());
        store.before_change(self.snapshot_db, page);
        let (moved, spot) = store.replace_behind(page, spot, kept, value.bytes, now)?;
        if value.form != old_form {
            store.set_form(moved, spot, value.form);
        }
        let new = old.with_value(value.form, value.bytes, kept + value.bytes.len());
        self.count_inline(key.bytes, tag_of(key.hash), Some(old), Some(new));
        self.settle_length(store, location, (page, used), (moved, spot), now);
        Ok(true)
    }

    /// An entry has another length, in the same page or in that which it has moved to.
    #[inline(always)]
    fn settle_length(
        &mut self,
        store: &mut Store,
        location: &mut Location,
        (page, used): (Handle, u64),
        (moved, spot): (Handle, Spot),
        now: UnixMs,
    ) {
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
    }

    /// Makes the raw text in the entry at `location`, just looked up, longer by `added` zeros. Returns false
    /// if there is none such, or if it would no longer lie there. The location is as after `set`.
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
        let added = len.checked_sub(parts.tail.len()).expect("rewrite_longer takes the longer length");
        let old = InlineAccount::of(&parts, entry_bytes);
        store.before_change(self.snapshot_db, page);
        let (moved, spot) = store.replace_behind(page, spot, entry_bytes, &ZEROS[..added], now)?;
        self.count_inline(key.bytes, tag_of(key.hash), Some(old), Some(old.with_longer_text(added)));
        self.settle_length(store, location, (page, used), (moved, spot), now);
        Ok(true)
    }

    /// Puts an entry where the key is or would be. Its body, if it has one, is made already and is freed on
    /// an error; the old entry's is freed on success. The location is as after `set`.
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
        let tag = tag_of(key.hash);
        let record = &mut location.slot.record;
        record.keys += u32::from(old.is_none());
        record.volatile -= u32::from(old.as_ref().is_some_and(OldEntry::is_volatile));
        match (&old, inline_account(entry)) {
            (None, Some(new)) => self.count_inline(key.bytes, tag, None, Some(new)),
            (Some(OldEntry::Inline(old)), Some(new)) => {
                self.count_inline(key.bytes, tag, Some(*old), Some(new));
            }
            _ => self.count_outside(store, record, key, entry, old.as_ref()),
        }
        // Nothing of a plain one comes due.
        if !entry.is_plain() {
            record.volatile += u32::from(entry.is_volatile());
            let bound = entry.bound();
            if bound != NEVER {
                directory::lower_bound(&mut store.heap, record, location.page_index, bound);
            }
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

    /// An entry has come or has become another, and the value of one of them lies outside: the old one's is
    /// freed.
    #[inline(never)]
    fn count_outside(
        &mut self,
        store: &mut Store,
        record: &mut Record,
        key: &Key<'_>,
        entry: EntryBytes<'_>,
        old: Option<&OldEntry>,
    ) {
        let account = store.account(entry);
        if let Some(body) = entry.body() {
            record.change_outside(0, store.body_units(body));
            self.timed_hashes += u64::from(store.is_timed(body));
        }
        self.account_change(key.bytes, tag_of(key.hash), old.map(OldEntry::account).as_ref(), Some(&account));
        if let Some(OldEntry::Outside(body, _)) = old {
            record.change_outside(store.body_units(*body), 0);
            self.timed_hashes -= u64::from(store.is_timed(*body));
            store.free_body(*body);
        }
    }

    /// Writes the bytes of an entry into its page, which may move to another class. The record knows the new
    /// place, but is not stored yet; after an error it is as it was, and so is everything else.
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
        let view = store.heap.page(page);
        let (entry, tag, used) = (EntryBytes(view.entry(spot)), view.tag(spot.index), view.used() as u64);
        let parts = entry.parts();
        let (volatile, body) = (parts.expiry_bytes() > 0, entry.body());
        match parts.key.filter(|_| parts.is_inline()) {
            Some(key) => self.count_inline(key, tag, Some(InlineAccount::of(&parts, entry.0.len())), None),
            None => self.account_change(store.key_of(entry), tag, Some(&store.account(entry)), None),
        }
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

    /// Takes those entries out of page `index` that are `dead` (all of them volatile); `bound` is that of the
    /// rest.
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
        match expiry {
            Some(at) if self.move_expiry(store, location, at, now) => Ok(()),
            _ => self.set_another_expiry(store, location, key, expiry, now),
        }
    }

    /// Writes the new expiry over an old one of the same width, if the entry has one: nothing moves, and no
    /// count changes. Returns false if it has none.
    #[inline]
    fn move_expiry(&mut self, store: &mut Store, location: &mut Location, at: UnixMs, now: UnixMs) -> bool {
        let Some((offset, bytes)) = location.entry(store).expiry_in_place(at) else { return false };
        let (page, spot) = location.page.zip(location.spot).expect("it was found");
        store.before_change(self.snapshot_db, page);
        store.write_in_place(page, spot.offset + offset, &bytes, now);
        let before = location.slot.record;
        directory::lower_bound(&mut store.heap, &mut location.slot.record, location.page_index, bound_of(at));
        if location.slot.record != before {
            self.store(&mut store.heap, &location.slot, &before);
        }
        true
    }

    fn set_another_expiry(
        &mut self,
        store: &mut Store,
        location: &mut Location,
        key: &Key<'_>,
        expiry: Option<UnixMs>,
        now: UnixMs,
    ) -> Result<(), Full> {
        let old = location.old_entry(store).expect("it was found");
        let entry = location.entry(store);
        let draft = Draft::with_expiry(entry, expiry);
        let before = location.slot.record;
        self.put_bytes(store, location, key, draft.as_bytes(), now)?;
        let (entry, tag) = (EntryBytes(draft.as_bytes()), tag_of(key.hash));
        match (&old, inline_account(entry)) {
            (OldEntry::Inline(old), Some(new)) => self.count_inline(key.bytes, tag, Some(*old), Some(new)),
            _ => self.account_change(key.bytes, tag, Some(&old.account()), Some(&store.account(entry))),
        }
        let record = &mut location.slot.record;
        record.volatile = record.volatile - u32::from(old.is_volatile()) + u32::from(expiry.is_some());
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
    #[inline(never)]
    pub fn account_change(&mut self, key: &[u8], tag: u8, old: Option<&Account>, new: Option<&Account>) {
        if old != new {
            self.count_change(key, tag, old, new);
        }
    }

    /// Counts a change of an entry whose value lies in it, as in most changes. Inlined: what is known of the
    /// sizes at the call leaves little code.
    #[inline(always)]
    pub(super) fn count_inline(
        &mut self,
        key: &[u8],
        tag: u8,
        old: Option<InlineAccount>,
        new: Option<InlineAccount>,
    ) {
        let (old, new) = (old.map(Account::from), new.map(Account::from));
        self.count_change(key, tag, old.as_ref(), new.as_ref());
    }

    #[inline(always)]
    fn count_change(&mut self, key: &[u8], tag: u8, old: Option<&Account>, new: Option<&Account>) {
        match (old, new) {
            (Some(old), Some(new)) => self.tally.replace(old, new),
            (None, Some(new)) => self.tally.add(new),
            (Some(old), None) => self.tally.remove(old),
            (None, None) => unreachable!("something has changed"),
        }
        self.sizes.note(old, new);
        let (old, new) = (old.map(Size::of), new.map(Size::of));
        self.counters.attribution.note(&Change { table: self.number, key, tag, old, new });
    }

    /// An object of this class takes another number of units, and nothing else of it has changed. Its entry,
    /// whose tag this is, and its key are asked for only where they matter.
    #[inline(always)]
    pub fn count_units<'a>(
        &mut self,
        class: Class,
        tag: u8,
        units: [u64; 2],
        entry: impl FnOnce() -> (EntryBytes<'a>, &'a [u8]),
    ) {
        let bytes = units.map(|units| units * UNIT_BYTES);
        self.tally.change_object(class, bytes);
        let attribution = &self.counters.attribution;
        if attribution.is_concerned(tag, bytes[0].max(bytes[1]) + ENTRY_BYTES_MAX as u64) {
            let (entry, key) = entry();
            let is_volatile = entry.is_volatile();
            let [old, new] =
                bytes.map(|bytes| Some(Size { bytes: bytes + entry.0.len() as u64, is_volatile }));
            attribution.note(&Change { table: self.number, key, tag, old, new });
        }
    }

    /// Removes the table's keys from the largest ones that are shown: they cannot be found any more.
    pub fn forget_largest(&self) {
        self.counters.attribution.largest.forget_table(self.number);
    }

    /// An entry leaves a table that was flushed.
    pub fn forget_entry(&mut self, old: &Account) {
        self.tally.remove(old);
        self.sizes.note(Some(old), None);
    }

    /// Takes an entry that leaves a flushed table off the prefixes that counted it.
    pub fn forget_share(&self, change: &Change<'_>) {
        self.counters.attribution.prefixes.note(change);
    }

    // ---- growth ----

    /// Splits one page if the slot's pages have become too full. Returns whether it did.
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

    /// Splits pages until the entries of one that is dense part. Returns whether it did.
    fn spread(&mut self, store: &mut Store, mut slot: SlotRef, page: Handle, now: UnixMs) -> bool {
        let (before, db) = (slot.record, self.snapshot_db);
        let before_change = |store: &mut Store, page| store.before_change(db, page);
        let is_split = linear::spread(store, &mut slot.record, page, before_change, now);
        self.store(&mut store.heap, &slot, &before);
        is_split
    }

    /// Merges the last page into its buddy if the slot's pages have become too empty. Returns whether it did.
    fn shrink(&mut self, store: &mut Store, at: usize, now: UnixMs) -> bool {
        let mut slot = self.slot(&store.heap, at);
        linear::is_sparse(&slot.record) && self.merge(store, &mut slot, now).is_ok()
    }

    /// Merges the last page into its buddy if the slot has become too empty, after an entry has become
    /// shorter.
    pub fn shrink_if_sparse(&mut self, store: &mut Store, at: usize, now: UnixMs) {
        self.shrink(store, at, now);
    }

    fn merge(&mut self, store: &mut Store, slot: &mut SlotRef, now: UnixMs) -> Result<(), Full> {
        let (before, db) = (slot.record, self.snapshot_db);
        linear::merge(store, &mut slot.record, |store, page| store.before_change(db, page), now)?;
        self.store(&mut store.heap, slot, &before);
        Ok(())
    }
}

/// Returns whether there is an entry whose expiry stays the same under a change that asks for `expiry`.
#[inline]
fn keeps_expiry(store: &Store, location: &Location, expiry: Expiry) -> bool {
    location.spot.is_some()
        && match expiry {
            Expiry::Keep => true,
            Expiry::Clear => !location.entry(store).is_volatile(),
            Expiry::At(_) => false,
        }
}
