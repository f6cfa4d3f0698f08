//! Pages as runs of entries: entries come, are replaced and leave; pages split, merge and get smaller.
//!
//! A page is changed here without knowing which slot or object it belongs to. Every function that may move a
//! page to another size class returns its handle.

use crate::layout::entry::{EntryBytes, Place, set_form};
use crate::layout::key::{Key, tag_of};
use crate::layout::kind::{Db, Form, Full};
use crate::layout::last_used::{self, AccessStamp};
use crate::layout::page::{self, Page, Spot};
use crate::layout::record::NEVER;
use crate::values::saved::{Pending, Saved, SavedValue};
use crate::values::store::Store;
use isotherm_arena::{Handle, Kind, class_bytes};
use isotherm_stdx::{Slot, UnixMs};

impl Store {
    pub fn first_page(&mut self, key: &Key<'_>, entry: &[u8], now: UnixMs) -> Result<(Handle, Spot), Full> {
        let (width, version) = (self.access.width(), self.snapshot.version());
        let page = self.heap.new_page(1, width, entry.len(), version, last_used::stamp(now))?;
        let fresh = last_used::fresh(self.access, now);
        let spot = page::append(self.heap.page_mut(page), tag_of(key.hash), entry, fresh);
        Ok((page, spot))
    }

    /// The width of the access column that a page should have. Those of objects have none.
    #[inline]
    fn width_for(&self, page: Page<'_>) -> usize {
        if page.owner_bytes() == 0 { self.access.width() } else { 0 }
    }

    pub fn append_entry(
        &mut self,
        handle: Handle,
        hash: u64,
        entry: &[u8],
        now: UnixMs,
    ) -> Result<(Handle, Spot), Full> {
        let page = self.heap.page(handle);
        let (width, fresh) = (self.width_for(page), last_used::fresh(self.access, now));
        let (n, cap, used) = (page.len(), page.cap(), page.used());
        let bytes = page.owner_bytes() + page::entry_bytes(page) + entry.len();
        let (mut new_cap, mut need) = page::size_for(n + 1, width, bytes);
        if new_cap < cap {
            (new_cap, need) = (cap, need + (cap - new_cap) * (2 + width));
        }
        let wider = new_cap != cap || page.width() != width;
        if n == page::ENTRIES_MAX || need > page::PAGE_BYTES_MAX {
            return Err(Full);
        }
        let mut handle = handle;
        if need > page.0.len() {
            handle = self.heap.resize_page(handle, used, need)?;
        }
        let bytes = self.heap.page_mut(handle);
        if wider {
            page::widen(bytes, new_cap, width, fresh);
        }
        let spot = page::append(bytes, tag_of(hash), entry, fresh);
        page::set_stamp(bytes, last_used::stamp(now));
        Ok((handle, spot))
    }

    /// Rewrites a page with the access column of the mode in force; every entry counts as just used.
    pub fn convert_access(&mut self, handle: Handle, now: UnixMs) -> Result<Handle, Full> {
        let page = self.heap.page(handle);
        let (width, used, cap) = (self.access.width(), page.used(), page.cap());
        let need = used + cap * width - cap * page.width();
        if need > page::PAGE_BYTES_MAX {
            return Err(Full);
        }
        let handle = if need > page.0.len() { self.heap.resize_page(handle, used, need)? } else { handle };
        page::widen(self.heap.page_mut(handle), cap, width, last_used::fresh(self.access, now));
        Ok(handle)
    }

    pub fn replace_entry(
        &mut self,
        handle: Handle,
        spot: Spot,
        entry: &[u8],
        now: UnixMs,
    ) -> Result<(Handle, Spot), Full> {
        self.replace_behind(handle, spot, 0, entry, now)
    }

    /// Replaces the bytes after the first `kept` ones of an entry.
    pub fn replace_behind(
        &mut self,
        handle: Handle,
        spot: Spot,
        kept: usize,
        tail: &[u8],
        now: UnixMs,
    ) -> Result<(Handle, Spot), Full> {
        let page = self.heap.page(handle);
        let used = page.used();
        let need = used - page.entry(spot).len() + kept + tail.len();
        if need > page::PAGE_BYTES_MAX {
            return Err(Full);
        }
        let mut handle = handle;
        if need > page.0.len() {
            handle = self.heap.resize_page(handle, used, need)?;
        }
        let bytes = self.heap.page_mut(handle);
        page::replace_behind(bytes, spot, kept, tail);
        let stamp = last_used::stamp(now);
        if Page(bytes).stamp() != stamp {
            page::set_stamp(bytes, stamp);
        }
        if need >= used {
            return Ok((handle, spot));
        }
        // Narrower columns move the entries.
        let handle = self.tighten(handle);
        Ok((handle, self.heap.page(handle).spot(spot.index)))
    }

    /// Gives an entry's value another form, under which it `keeps_head`.
    #[inline]
    pub fn set_form(&mut self, page: Handle, spot: Spot, form: Form) {
        let bytes = self.heap.page_mut(page);
        let len = Page(bytes).entry(spot).len();
        set_form(&mut bytes[spot.offset..spot.offset + len], form);
    }

    /// Returns the page that is left, if any.
    pub fn remove_entry(&mut self, handle: Handle, spot: Spot) -> Option<Handle> {
        if self.heap.page(handle).len() == 1 {
            self.heap.release(handle);
            return None;
        }
        page::remove(self.heap.page_mut(handle), spot);
        Some(self.tighten(handle))
    }

    /// Takes out those entries that are `dead`. Returns the page that is left, if any.
    pub fn remove_entries(&mut self, handle: Handle, dead: &[bool; page::ENTRIES_MAX]) -> Option<Handle> {
        let len = self.heap.page(handle).len();
        if dead[..len].iter().all(|&dead| dead) {
            self.heap.release(handle);
            return None;
        }
        // From the back, so that what is still to be taken out stays where it is.
        for index in (0..len).rev().filter(|&index| dead[index]) {
            let spot = self.heap.page(handle).spot(index);
            page::remove(self.heap.page_mut(handle), spot);
        }
        Some(self.tighten(handle))
    }

    /// Moves a page that has lost entries to a smaller class, once that saves enough to be worth a copy.
    fn tighten(&mut self, handle: Handle) -> Handle {
        let page = self.heap.page(handle);
        let bytes = page.owner_bytes() + page::entry_bytes(page);
        let (need_cap, need) = page::size_for(page.len(), page.width(), bytes);
        if !is_worth_tightening(class_bytes(Kind::Page, need), page.0.len()) {
            return handle;
        }
        if need_cap < page.cap() {
            page::narrow(self.heap.page_mut(handle), need_cap);
        }
        let used = self.heap.page(handle).used();
        // A smaller class that finds no chunk is no loss: the page stays where it is.
        self.heap.resize_page(handle, used, used).unwrap_or(handle)
    }

    /// Two new pages from one: entries that stay, and those that `moves` sends to the new page, with their
    /// bounds.
    pub fn split_page(
        &mut self,
        source: Handle,
        moves: impl Fn(u64) -> bool,
        now: UnixMs,
    ) -> Result<[(Option<Handle>, u32); 2], Full> {
        let page = self.heap.page(source);
        let mut goes = [false; page::ENTRIES_MAX];
        let (mut count, mut bytes) = ([0; 2], [0; 2]);
        for spot in page.spots() {
            let entry = page.entry(spot);
            let side = moves(self.hasher.hash(self.key_of(EntryBytes(entry))));
            goes[spot.index] = side;
            count[usize::from(side)] += 1;
            bytes[usize::from(side)] += entry.len();
        }
        let mut halves = [(None, NEVER); 2];
        for side in 0..2 {
            if count[side] == 0 {
                continue;
            }
            match self.new_page_like(source, count[side], bytes[side]) {
                Ok(new) => halves[side].0 = Some(new),
                Err(full) => {
                    halves.iter().filter_map(|half| half.0).for_each(|page| self.heap.release(page));
                    return Err(full);
                }
            }
        }
        let (width, fresh) = (self.access.width(), last_used::fresh(self.access, now));
        for (side, (target, bound)) in halves.iter_mut().enumerate() {
            let Some(target) = *target else { continue };
            let (page, target) = self.heap.page_pair(source, target);
            for spot in page.spots().filter(|spot| usize::from(goes[spot.index]) == side) {
                let (entry, tag) = (page.entry(spot), page.tag(spot.index));
                page::append(target, tag, entry, page.access(spot.index, width).unwrap_or(fresh));
                *bound = EntryBytes(entry).bound().min(*bound);
            }
        }
        Ok(halves)
    }

    /// An empty page that belongs to whom page `like` does.
    fn new_page_like(&mut self, like: Handle, entries: usize, bytes: usize) -> Result<Handle, Full> {
        let version = self.snapshot.version();
        let page = self.heap.page(like);
        if let Some(owner) = page.owner() {
            return self.heap.new_owned_page(owner, entries, bytes, version);
        }
        // Where (nearly) all entries stay in a page at its limit, columns that have become wider find no
        // room.
        let (_, need) = page::size_for(entries, self.access.width(), bytes);
        let width = if need > page::PAGE_BYTES_MAX { page.width() } else { self.access.width() };
        let stamp = page.stamp();
        self.heap.new_page(entries, width, bytes, version, stamp)
    }

    /// All entries of two pages in one new one; both are freed.
    pub fn merge_pages(&mut self, into: Handle, from: Handle, now: UnixMs) -> Result<Handle, Full> {
        let (first, second) = (self.heap.page(into), self.heap.page(from));
        let entries = first.len() + second.len();
        let bytes = page::entry_bytes(first) + page::entry_bytes(second);
        let (_, need) = page::size_for(entries, self.access.width(), bytes + first.owner_bytes());
        if entries > page::ENTRIES_MAX || need > page::PAGE_BYTES_MAX {
            return Err(Full);
        }
        let merged = self.new_page_like(into, entries, bytes)?;
        let fresh = last_used::fresh(self.access, now);
        for source in [into, from] {
            let (page, target) = self.heap.page_pair(source, merged);
            page::append_all(target, page, fresh);
            self.heap.release(source);
        }
        Ok(merged)
    }

    /// Has to be called before a page changes: a snapshot that has not seen it yet gets its entries first.
    #[inline]
    pub fn before_change(&mut self, db: Db, page: Handle) {
        if self.snapshot.is_active() && self.heap.page(page).version() != self.snapshot.version() {
            self.save_page(db, page);
        }
    }

    /// Copies the entries of a page aside, because it is about to change.
    #[cold]
    pub fn save_page(&mut self, db: Db, page: Handle) {
        let epoch = self.snapshot.epoch;
        if !self.snapshot.covers(|| self.slot_of_page(page)) {
            return page::set_version(self.heap.page_mut(page), epoch);
        }
        debug_assert_ne!(db, Db::HIDDEN, "its pages were born after the cut");
        let (mut saved, mut bytes) = (std::mem::take(&mut self.snapshot.saved), 0);
        let view = self.heap.page(page);
        for spot in view.spots() {
            let (entry, access) =
                (EntryBytes(view.entry(spot)), AccessStamp::of(self.access, view, spot.index));
            match entry.body().filter(|body| body.place == Place::Object) {
                Some(object) => {
                    self.snapshot.pending.push(Pending::new(
                        db,
                        self.key_of(entry),
                        entry,
                        access,
                        object.raw,
                    ));
                }
                None => {
                    let entry = self.saved_entry(db, entry, access);
                    bytes += entry.memory_bytes();
                    saved.push(entry);
                }
            }
        }
        self.snapshot.saved = saved;
        self.snapshot.note_kept(bytes);
        page::set_version(self.heap.page_mut(page), epoch);
    }

    /// An entry whose value is no object, as it is.
    pub fn saved_entry(&self, db: Db, entry: EntryBytes<'_>, access: Option<AccessStamp>) -> Saved {
        let (form, expiry) = (entry.form(), entry.expiry());
        if let Some(value) = entry.cold_value() {
            let key = self.key_of(entry).into();
            return Saved { db, key, value: SavedValue::Cold(value), expiry, access };
        }
        let (key, value) = match entry.body().filter(|body| body.place == Place::Large) {
            Some(body) => {
                let key = entry.inline_key().unwrap_or_default();
                (key, SavedValue::Shared(form, self.large.share(body.raw), body.keyed))
            }
            None => (self.key_of(entry), SavedValue::Bytes(form, self.value_bytes_of(entry).into())),
        };
        Saved { db, key: key.into(), value, expiry, access }
    }

    /// All entries of a page are of one slot.
    fn slot_of_page(&self, page: Handle) -> Slot {
        let view = self.heap.page(page);
        Slot::of_key(self.key_of(EntryBytes(view.entry(view.spot(0)))))
    }
}

/// Returns whether a page of `bytes` that needs only `need` is to move to a smaller place.
#[inline]
pub(crate) fn is_worth_tightening(need: usize, bytes: usize) -> bool {
    /// Divisor of a page's bytes: this share of them has to be saved. Deleting entries of 36 B then copies a
    /// page of 640 B every third time.
    const SAVING_SHARE_MIN: usize = 6;
    const SAVING_BYTES_MIN: usize = 64;
    need + SAVING_BYTES_MIN.max(bytes / SAVING_SHARE_MIN) <= bytes
}
