//! The large form of hashes and sets: pages of entries, as the keyspace's own, under one record.
//!
//! ```text
//!   Root -> Fields { record } -> page | directory -> pages       entry: see `entry`
//! ```
//!
//! Entries, pages, directory and linear hashing (`linear`) are those of a slot, so is the cost: 1 B in the
//! entry, 2 B of columns. A field's time is its entry's expiry; bounds lead to fields that are due. The
//! differences: a page names its owner (the object) after its columns, has no access column, and long values
//! are nodes of the arena, so that compaction finds the way back. A member of a set is a field without a
//! value.
//!
//! A snapshot under way gets the entries of a page before its first change (`before_change`, the one choke
//! point).

mod cold;
mod copy;
mod structure;

pub(crate) use cold::ReadPage;

use crate::layout::directory::{self, Bounded, PAGE_STEPS};
use crate::layout::entry::{
    BodyRef, Draft, EntryBytes, Place, Plan, body_head_bytes, form_of, read_int, value_bytes,
};
use crate::layout::heap::Heap;
use crate::layout::key::{Key, tag_of};
use crate::layout::kind::{Encoding, Form, Full, NewValue};
use crate::layout::packed::Element;
use crate::layout::page::{self, ENTRIES_MAX, Page};
use crate::layout::record::{NEVER, Record, advance, bound_of, buddy, is_due, page_index};
use crate::values::linear::{self, PagePlace};
use crate::values::saved::SavedField;
use crate::values::store::Store;
use cold::Away;
use isotherm_arena::Handle;
use isotherm_stdx::{Slot, Steps, UnixMs, steps};

/// Bytes that a page takes beyond its used bytes: half a step of its size class, and its place in the
/// directory.
const PAGE_ROUNDING_BYTES: u64 = 16 + directory::CHILD_BYTES as u64;

pub(crate) struct Fields {
    number: u32,
    /// `keys` are the fields, `volatile` those with a time.
    pub record: Record,
    /// Encoding that OBJECT ENCODING reports: listpack or intset while the limits were never crossed.
    pub encoding: Encoding,
    is_set: bool,
    /// The bound under which the store lists it for the active cycle.
    pub listed: u32,
    /// A snapshot has yet to emit it: pages are saved before they change.
    pub saving: bool,
    /// Page at which a freeing or emitting walk continues.
    next_page: u32,
    /// Pages that are not in memory.
    away: Away,
}

/// A field, its value and its time.
#[derive(Clone, Copy)]
pub(crate) struct Field<'a> {
    pub name: &'a [u8],
    pub value: Element<'a>,
    pub expiry: Option<UnixMs>,
}

impl Fields {
    pub fn new(number: u32, is_set: bool, encoding: Encoding) -> Fields {
        Fields {
            number,
            record: Record::EMPTY,
            encoding,
            is_set,
            listed: NEVER,
            saving: false,
            next_page: 0,
            away: Away::default(),
        }
    }

    // ---- reading ----

    fn locate(&self, store: &Store, field: &[u8], hash: u64) -> PagePlace {
        if self.record.pages == 0 {
            return PagePlace { index: 0, page: None, spot: None };
        }
        let index = page_index(hash, self.record.pages);
        let (page, _) = directory::get(&store.heap, &self.record, index);
        let spot = page.and_then(|page| {
            self.shown(store, page)?.find(tag_of(hash), |entry| store.is_key(EntryBytes(entry), field))
        });
        PagePlace { index, page, spot }
    }

    /// Returns the place of a field to change it. Its page is brought to memory first.
    fn locate_home(
        &mut self,
        store: &mut Store,
        field: &[u8],
        hash: u64,
        now: UnixMs,
    ) -> Result<PagePlace, Full> {
        if self.record.pages > 0 {
            self.bring_home(store, page_index(hash, self.record.pages), now)?;
        }
        Ok(self.locate(store, field, hash))
    }

    pub fn get<'a>(&self, store: &'a Store, field: &[u8]) -> Option<Field<'a>> {
        let place = self.locate(store, field, store.hasher.hash(field));
        let (page, spot) = place.page.zip(place.spot)?;
        Some(field_of(store, store.heap.page(page).entry(spot)))
    }

    /// Fields of page `index`.
    pub fn for_each_in<'a>(&self, store: &'a Store, index: u32, mut visit: impl FnMut(Field<'a>)) -> u64 {
        let (Some(page), _) = directory::get(&store.heap, &self.record, index) else { return 0 };
        let Some(page) = self.shown(store, page) else { return store.heap.page(page).away_entries() as u64 };
        steps::note(page.len() as u64);
        page.spots().for_each(|spot| visit(field_of(store, page.entry(spot))));
        page.len() as u64
    }

    pub fn for_each<'a>(&self, store: &'a Store, mut visit: impl FnMut(Field<'a>)) {
        for index in 0..self.record.pages {
            self.for_each_in(store, index, &mut visit);
        }
    }

    /// Continues at `cursor` until `count` were seen; the next cursor, 0 at the end. As SCAN does (see
    /// `scan`).
    pub fn scan<'a>(
        &self,
        store: &'a Store,
        cursor: u64,
        count: u64,
        mut visit: impl FnMut(Field<'a>),
    ) -> u64 {
        let mut position = cursor as u32;
        let mut seen = 0;
        if self.record.pages == 0 {
            return cursor;
        }
        loop {
            let (page, next) = advance(position, self.record.pages);
            seen += self.for_each_in(store, page, &mut visit);
            position = next;
            if position == 0 || seen >= count {
                return u64::from(position);
            }
        }
    }

    /// A random field, each equally likely. `None`: it is in a page that is not in memory, which was noted.
    pub fn random<'a>(&self, store: &'a Store, random: &mut dyn FnMut(u64) -> u64) -> Option<Field<'a>> {
        let (page, at) = self.draw(store, random);
        let page = self.shown(store, page)?;
        Some(field_of(store, page.entry(page.spot(at))))
    }

    /// Returns a random field to change it, each equally likely; `None` if its page cannot be read.
    pub fn random_home<'a>(
        &mut self,
        store: &'a mut Store,
        random: &mut dyn FnMut(u64) -> u64,
        now: UnixMs,
    ) -> Option<Field<'a>> {
        let (mut page, at) = self.draw(store, random);
        if self.away.pages > 0 && store.heap.page(page).away().is_some() {
            let index = store.heap.page(page).away_index();
            self.bring_home(store, index, now).ok()?;
            page = directory::get(&store.heap, &self.record, index).0?;
        }
        let page = store.heap.page(page);
        Some(field_of(store, page.entry(page.spot(at))))
    }

    /// The page of a random field, and which of its entries it is.
    fn draw(&self, store: &Store, random: &mut dyn FnMut(u64) -> u64) -> (Handle, usize) {
        loop {
            let index = random(u64::from(self.record.pages)) as u32;
            let (Some(handle), _) = directory::get(&store.heap, &self.record, index) else { continue };
            let page = store.heap.page(handle);
            let entries = if page.away().is_some() { page.away_entries() } else { page.len() };
            // Most pages have fewer than 64; a page with more is drawn again as often as its weight asks.
            let at = random(ENTRIES_MAX as u64) as usize;
            if at < entries {
                return (handle, at);
            }
        }
    }

    // ---- changing ----

    /// Stores a field. `keep`: one that is there keeps its time. Returns whether it is new.
    pub fn set(
        &mut self,
        store: &mut Store,
        field: &[u8],
        value: NewValue<'_>,
        expiry: Option<UnixMs>,
        keep: bool,
        now: UnixMs,
    ) -> Result<bool, Full> {
        let key = self.key(store, field);
        let place = self.locate_home(store, field, key.hash, now)?;
        self.put(store, &key, place, value, (expiry, keep), now)
    }

    /// Stores a field without a value, unless it is there. Returns whether it is new.
    pub fn add(&mut self, store: &mut Store, field: &[u8], now: UnixMs) -> Result<bool, Full> {
        let key = self.key(store, field);
        let place = self.locate_home(store, field, key.hash, now)?;
        if place.spot.is_some() {
            return Ok(false);
        }
        self.put(store, &key, place, NewValue::Bytes(b""), (None, false), now)
    }

    /// `set`, where the field was found, or would have been.
    fn put(
        &mut self,
        store: &mut Store,
        key: &Key<'_>,
        place: PagePlace,
        value: NewValue<'_>,
        (expiry, keep): (Option<UnixMs>, bool),
        now: UnixMs,
    ) -> Result<bool, Full> {
        let old = place.page.zip(place.spot).map(|(page, spot)| {
            let entry = EntryBytes(store.heap.page(page).entry(spot));
            (entry.expiry(), entry.body())
        });
        let expiry = if keep { old.and_then(|(expiry, _)| expiry) } else { expiry };
        let draft = self.draft(store, key, place.page, value, expiry)?;
        let entry = EntryBytes(draft.as_bytes());
        let page = self.put_bytes(store, &place, key, draft.as_bytes(), now).inspect_err(|_| {
            entry.body().into_iter().for_each(|body| store.free_body(body));
        })?;
        if let Some(body) = entry.body() {
            self.record.change_outside(0, store.body_units(body));
        }
        match old {
            None => self.record.keys += 1,
            Some((old_expiry, old_body)) => {
                self.record.volatile -= u32::from(old_expiry.is_some());
                self.free_body(store, old_body);
            }
        }
        if let Some(at) = expiry {
            self.record.volatile += 1;
            directory::lower_bound(&mut store.heap, &mut self.record, place.index, bound_of(at));
        }
        self.grow(store, page, now);
        Ok(old.is_none())
    }

    /// Sets or clears the time of a field. Returns whether it is there.
    pub fn set_expiry(
        &mut self,
        store: &mut Store,
        field: &[u8],
        expiry: Option<UnixMs>,
        now: UnixMs,
    ) -> Result<bool, Full> {
        let key = self.key(store, field);
        let place = self.locate_home(store, field, key.hash, now)?;
        let Some((page, spot)) = place.page.zip(place.spot) else { return Ok(false) };
        let entry = EntryBytes(store.heap.page(page).entry(spot));
        let was_volatile = entry.is_volatile();
        let draft = Draft::with_expiry(entry, expiry);
        self.put_bytes(store, &place, &key, draft.as_bytes(), now)?;
        self.record.volatile = self.record.volatile - u32::from(was_volatile) + u32::from(expiry.is_some());
        if let Some(at) = expiry {
            directory::lower_bound(&mut store.heap, &mut self.record, place.index, bound_of(at));
        }
        Ok(true)
    }

    pub fn remove(&mut self, store: &mut Store, field: &[u8], now: UnixMs) -> bool {
        let hash = store.hasher.hash(field);
        // If the page cannot be brought back, that is noted, and the command fails.
        let Ok(place) = self.locate_home(store, field, hash, now) else { return false };
        let Some((page, spot)) = place.page.zip(place.spot) else { return false };
        self.before_change(store, page);
        let view = store.heap.page(page);
        let entry = EntryBytes(view.entry(spot));
        let (volatile, body, used) = (entry.is_volatile(), entry.body(), view.used() as u64);
        self.free_body(store, body);
        self.record.keys -= 1;
        self.record.volatile -= u32::from(volatile);
        let left = store.remove_entry(page, spot);
        linear::settle_removal(store, &mut self.record, place.index, (page, used), left);
        if self.record.keys > 0 {
            self.shrink(store, now);
        }
        true
    }

    /// Removes fields whose time has come until the budget is spent; `gone` gets their names. If the budget
    /// lasts, the bound is exact afterwards.
    pub fn expire(&mut self, store: &mut Store, now: UnixMs, steps: &mut Steps, gone: &mut Vec<Vec<u8>>) {
        let (mut from, due) = (0, |bound| is_due(bound, now));
        loop {
            from = match directory::next_bounded(&mut store.heap, &mut self.record, from, &due, steps) {
                Bounded::Page(index) => {
                    let removed = self.expire_page(store, index, now, gone);
                    steps.look(PAGE_STEPS + u64::from(removed));
                    if removed == 0 { index + 1 } else { 0 }
                }
                // Only a search from the start makes the record's bound exact.
                Bounded::None if from > 0 => 0,
                Bounded::None | Bounded::OutOfBudget => break,
            };
            if steps.is_spent() {
                break;
            }
        }
        if self.record.volatile == 0 {
            self.record.bound = NEVER;
        }
    }

    fn expire_page(&mut self, store: &mut Store, index: u32, now: UnixMs, gone: &mut Vec<Vec<u8>>) -> u32 {
        let (Some(handle), _) = directory::get(&store.heap, &self.record, index) else {
            directory::set_bound(&mut store.heap, &mut self.record, index, NEVER);
            return 0;
        };
        let page = store.heap.page(handle);
        if page.away().is_some() {
            // No entry of it has a time.
            directory::set_bound(&mut store.heap, &mut self.record, index, NEVER);
            return 0;
        }
        let used = page.used() as u64;
        let (mut dead, mut count, mut bound, mut bodies) = ([false; ENTRIES_MAX], 0, NEVER, Vec::new());
        for spot in page.spots() {
            let entry = EntryBytes(page.entry(spot));
            match entry.expiry() {
                Some(at) if at < now => {
                    gone.push(store.key_of(entry).to_vec());
                    bodies.extend(entry.body());
                    dead[spot.index] = true;
                    count += 1;
                }
                Some(at) => bound = bound.min(bound_of(at)),
                None => {}
            }
        }
        if count > 0 {
            self.before_change(store, handle);
            bodies.into_iter().for_each(|body| self.free_body(store, Some(body)));
            self.record.keys -= count;
            self.record.volatile -= count;
        }
        directory::set_bound(&mut store.heap, &mut self.record, index, bound);
        if count > 0 {
            let left = store.remove_entries(handle, &dead);
            linear::settle_removal(store, &mut self.record, index, (handle, used), left);
            let mut merges = count;
            // This is no command's work: no page is read for it.
            while self.record.keys > 0 && merges > 0 && self.has_last_pages(store) && self.shrink(store, now)
            {
                merges -= 1;
            }
        }
        count
    }

    fn key<'k>(&self, store: &Store, field: &'k [u8]) -> Key<'k> {
        Key { bytes: field, slot: Slot::new(0), hash: store.hasher.hash(field) }
    }

    /// An entry for a field, with its body made if it has one.
    fn draft(
        &self,
        store: &mut Store,
        key: &Key<'_>,
        page: Option<Handle>,
        value: NewValue<'_>,
        expiry: Option<UnixMs>,
    ) -> Result<Draft, Full> {
        let tight = page.is_some_and(|page| store.heap.page(page).used() > page::PAGE_BYTES_MAX - 512);
        let len = value_bytes(value);
        let plan = Plan::new(key.bytes.len(), len, tight);
        if plan.place == Place::Inline {
            return Ok(Draft::inline(key.bytes, value, expiry));
        }
        let head = body_head_bytes(plan.keyed, key.bytes.len());
        let raw = match plan.place {
            Place::Blob => store.heap.new_node_body(self.number, key.hash as u32, head + len)?.raw(),
            _ => store.large.insert(head + len)?,
        };
        let len_all = (head + len) as u32;
        let body = BodyRef { place: plan.place, raw, len: len_all, keyed: plan.keyed, timed: false };
        let bytes = store.body_mut(body);
        if plan.keyed {
            bytes[..4].copy_from_slice(&(key.bytes.len() as u32).to_le_bytes());
            bytes[4..head].copy_from_slice(key.bytes);
        }
        match value {
            NewValue::Int(int) => bytes[head..].copy_from_slice(&int.to_le_bytes()[..len]),
            NewValue::Bytes(text) | NewValue::Raw(text) => bytes[head..].copy_from_slice(text),
            NewValue::Packed(_) => unreachable!("a field's value is text"),
        }
        Ok(Draft::outside(key.bytes, form_of(value), body, expiry))
    }

    fn free_body(&mut self, store: &mut Store, body: Option<BodyRef>) {
        if let Some(body) = body {
            self.record.change_outside(store.body_units(body), 0);
            store.free_body(body);
        }
    }

    fn put_bytes(
        &mut self,
        store: &mut Store,
        place: &PagePlace,
        key: &Key<'_>,
        entry: &[u8],
        now: UnixMs,
    ) -> Result<Handle, Full> {
        let mut record = self.record;
        let (number, hash) = (self.number, key.hash);
        let put = linear::put(
            store,
            &mut record,
            *place,
            (hash, entry),
            |store| {
                let page = store.heap.new_owned_page(number, 1, entry.len(), store.snapshot.version())?;
                let spot = page::append(store.heap.page_mut(page), tag_of(hash), entry, 0);
                Ok((page, spot))
            },
            |store, page| self.before_change(store, page),
            now,
        );
        self.record = record;
        put.map(|(page, _)| page)
    }

    /// Has to be called before a page changes: a snapshot that has not emitted it yet gets its entries first,
    /// and what was read from disk is no longer what it is.
    fn before_change(&self, store: &mut Store, page: Handle) {
        if self.saving && store.heap.page(page).version() != store.snapshot.version() {
            self.save_page(store, page);
        }
        if store.cold.has_clean() {
            self.note_change(store, page);
        }
    }

    /// Copies the entries of a page aside.
    #[cold]
    fn save_page(&self, store: &mut Store, page: Handle) {
        let mut saved = std::mem::take(store.snapshot.fields_of(self.number));
        let view = store.heap.page(page);
        let mut bytes = 0;
        for spot in view.spots() {
            let field = SavedField::of_entry(store, EntryBytes(view.entry(spot)));
            bytes += field.memory_bytes();
            saved.push(field);
        }
        *store.snapshot.fields_of(self.number) = saved;
        store.snapshot.note_kept(bytes);
        let epoch = store.snapshot.version();
        page::set_version(store.heap.page_mut(page), epoch);
    }

    // ---- growth ----

    /// `page` is where something was put.
    fn grow(&mut self, store: &mut Store, page: Handle, now: UnixMs) {
        let is_dense = linear::is_dense(store.heap.page(page));
        if !is_dense && !linear::is_overfull(&self.record) {
            return;
        }
        let is_away = !self.is_brought_home(store, buddy(self.record.pages), now);
        let mut record = self.record;
        let before_change = |store: &mut Store, page| self.before_change(store, page);
        // Without a page that is to be split and cannot be read all stays as it is, as without memory.
        let has_parted = is_dense && !is_away && linear::spread(store, &mut record, page, before_change, now);
        if !has_parted && linear::is_overfull(&record) && !is_away {
            // A split that finds no memory is left for the next insert: pages may be larger.
            let _ = linear::split(store, &mut record, before_change, now);
        }
        self.record = record;
    }

    fn shrink(&mut self, store: &mut Store, now: UnixMs) -> bool {
        if !linear::is_sparse(&self.record) {
            return false;
        }
        // A merge that cannot be done is left for the next removal.
        let last = self.record.pages - 1;
        if !self.is_brought_home(store, last, now) || !self.is_brought_home(store, buddy(last), now) {
            return false;
        }
        let mut record = self.record;
        let merged = linear::merge(store, &mut record, |store, page| self.before_change(store, page), now);
        self.record = record;
        merged.is_ok()
    }
}

fn field_of<'a>(store: &'a Store, bytes: &'a [u8]) -> Field<'a> {
    let entry = EntryBytes(bytes);
    let value = store.value_bytes_of(entry);
    let value = if entry.form() == Form::Int { Element::Int(read_int(value)) } else { Element::Bytes(value) };
    Field { name: store.key_of(entry), value, expiry: entry.expiry() }
}

impl Fields {
    /// Stubs of pages that are not in memory too: they have no entries.
    pub fn for_each_page(&self, heap: &Heap, visit: &mut dyn FnMut(Page<'_>)) {
        let pages = (0..self.record.pages).filter_map(|index| directory::get(heap, &self.record, index).0);
        pages.for_each(|page| visit(heap.page(page)));
    }
}
