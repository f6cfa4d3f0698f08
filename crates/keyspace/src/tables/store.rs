//! What the databases of a partition share: memory, bodies, and the pages as runs of entries.
//!
//! A table knows slots, records and directories; here a page is changed without knowing which slot it belongs to. Every
//! function that may move a page to another size class returns its handle.

use crate::accounting::tally::{Account, is_embstr};
use crate::layout::directory;
use crate::layout::entry::{
    BodyRef, EntryBytes, Place, Plan, body_head_bytes, form_of, read_int, set_form, split_keyed, value_bytes,
};
use crate::layout::heap::Heap;
use crate::layout::key::{Key, blob_head, tag_of};
use crate::layout::kind::{Encoding, Expiry, Form, Full, NewValue, packed_encoding};
use crate::layout::large::Large;
use crate::layout::last_used::{self, AccessMode};
use crate::layout::packed::PackedBuf;
use crate::layout::page::{self, Page, Spot};
use crate::layout::record::{NEVER, UNIT_BYTES, bound_of};
use crate::tables::location::Location;
use crate::upkeep::snapshot::SnapshotState;
use crate::values::collection::Stored;
use crate::values::object::Objects;
use crate::values::value::{Entry, Value};
use isotherm_arena::{Handle, Kind, class_bytes};
use isotherm_stdx::{Prng, UnixMs};
use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::sync::atomic::Ordering::Relaxed;

/// What all databases of a partition share.
pub(crate) struct Store {
    pub heap: Heap,
    pub large: Large,
    pub access: AccessMode,
    pub lfu_log_factor: u32,
    pub prng: Prng,
    pub hasher: crate::layout::key::KeyHasher,
    pub snapshot: SnapshotState,
    pub objects: Objects,
    /// A removed object of no more elements is freed at once.
    pub freed_at_once_max: u64,
    /// What was removed may wait for `free_step`: read without the lock.
    pub unfreed: Arc<AtomicBool>,
    /// Hashes that have fields with a time, by the lower bound of these.
    pub field_bounds: BTreeSet<(u32, u32)>,
    /// Where a small collection is changed, and what becomes of it: kept for the next one.
    pub scratch: PackedBuf,
    pub scratch_bytes: Vec<u8>,
}

/// What the entry at a location is before it changes.
pub(crate) struct OldEntry {
    pub expiry: Option<UnixMs>,
    pub body: Option<BodyRef>,
    pub account: Account,
}

impl Store {
    #[inline]
    pub fn old_entry(&self, location: &Location) -> Option<OldEntry> {
        let entry = EntryBytes(self.heap.page(location.page?).entry(location.spot?));
        Some(OldEntry { expiry: entry.expiry(), body: entry.body(), account: self.account(entry) })
    }

    /// Something waits for `free_step`: `Keyspace::has_unfreed` says so until a step has found nothing.
    pub fn note_unfreed(&self) {
        self.unfreed.store(true, Relaxed);
    }

    // ---- bodies ----

    pub fn body(&self, body: BodyRef) -> &[u8] {
        match body.place {
            Place::Blob => self.heap.blob(blob(body), body.len as usize),
            Place::Large => &self.large.get(body.raw)[..body.len as usize],
            Place::Inline | Place::Object => unreachable!("neither an inline value nor an object has a body"),
        }
    }

    pub fn body_mut(&mut self, body: BodyRef) -> &mut [u8] {
        match body.place {
            Place::Blob => self.heap.blob_mut(blob(body), body.len as usize),
            Place::Large => self.large.grow(body.raw, 0).expect("nothing grows"),
            Place::Inline | Place::Object => unreachable!("neither an inline value nor an object has a body"),
        }
    }

    pub fn free_body(&mut self, body: BodyRef) {
        match body.place {
            Place::Blob => self.heap.release(blob(body)),
            Place::Large => self.large.remove(body.raw),
            Place::Object => self.release_object(body.raw),
            Place::Inline => unreachable!("an inline value has no body"),
        }
    }

    /// Whether a body is a hash that has fields with a time, as its table counts it.
    pub fn is_timed(&self, body: BodyRef) -> bool {
        body.place == Place::Object && self.objects.get(body.raw).timed
    }

    /// What a body takes, in units of 16 B.
    pub fn body_units(&self, body: BodyRef) -> u64 {
        let bytes = match body.place {
            Place::Object => return self.objects.get(body.raw).tallied.units.get(),
            Place::Blob => class_bytes(Kind::Blob, crate::layout::entry::BLOB_HEAD_BYTES + body.len as usize),
            Place::Large => body.len as usize,
            Place::Inline => unreachable!("an inline value has no body"),
        };
        (bytes as u64).div_ceil(UNIT_BYTES)
    }

    /// A body with room for a value of `value_bytes`, its key written if it belongs there, the value not yet.
    pub fn empty_body(&mut self, plan: Plan, key: &Key<'_>, value_bytes: usize) -> Result<BodyRef, Full> {
        let head = body_head_bytes(plan.keyed, key.bytes.len());
        let len = head + value_bytes;
        let raw = match plan.place {
            Place::Blob => self.heap.new_blob(blob_head(key), len)?.raw(),
            Place::Large => self.large.insert(len)?,
            Place::Object => unreachable!("an object has no body"),
            Place::Inline => unreachable!("an inline value has no body"),
        };
        let body = BodyRef { place: plan.place, raw, len: len as u32, keyed: plan.keyed };
        if plan.keyed {
            let bytes = self.body_mut(body);
            bytes[..4].copy_from_slice(&(key.bytes.len() as u32).to_le_bytes());
            bytes[4..head].copy_from_slice(key.bytes);
        }
        Ok(body)
    }

    pub fn new_body(&mut self, plan: Plan, key: &Key<'_>, value: NewValue<'_>) -> Result<BodyRef, Full> {
        let body = self.empty_body(plan, key, value_bytes(value))?;
        let head = body_head_bytes(plan.keyed, key.bytes.len());
        let target = &mut self.body_mut(body)[head..];
        match value {
            NewValue::Int(int) => target.copy_from_slice(&int.to_le_bytes()[..target.len()]),
            NewValue::Bytes(bytes) | NewValue::Raw(bytes) => target.copy_from_slice(bytes),
            NewValue::Packed(packed) => target.copy_from_slice(packed.bytes),
        }
        Ok(body)
    }

    // ---- entries ----

    /// The entry of a key in its page.
    #[inline(always)]
    pub fn find(&self, page: Handle, key: &Key<'_>) -> Option<Spot> {
        self.heap.page(page).find(tag_of(key.hash), |entry| self.is_key(EntryBytes(entry), key.bytes))
    }

    #[inline]
    pub fn is_key(&self, entry: EntryBytes<'_>, key: &[u8]) -> bool {
        match entry.inline_key() {
            Some(inline) => inline == key,
            None => self.key_of(entry) == key,
        }
    }

    #[inline]
    pub fn key_of<'a>(&'a self, entry: EntryBytes<'a>) -> &'a [u8] {
        match entry.inline_key() {
            Some(key) => key,
            None => {
                let body = entry.body().expect("a key that is not inline lies in the body");
                if body.place == Place::Object {
                    return self.objects.get(body.raw).key.as_deref().expect("the object has the key");
                }
                split_keyed(self.body(body)).0
            }
        }
    }

    /// The bytes of the value, in whatever form.
    #[inline]
    pub fn value_bytes_of<'a>(&'a self, entry: EntryBytes<'a>) -> &'a [u8] {
        match entry.body() {
            None => entry.tail(),
            Some(body) if body.keyed => split_keyed(self.body(body)).1,
            Some(body) => self.body(body),
        }
    }

    #[inline]
    pub fn value_of<'a>(&'a self, entry: EntryBytes<'a>, now: UnixMs) -> Value<'a> {
        let form = entry.form();
        if form.is_collection() {
            return self.collection_of(entry, form, now);
        }
        let bytes = self.value_bytes_of(entry);
        if form == Form::Int { Value::Int(read_int(bytes)) } else { Value::Bytes(bytes) }
    }

    fn collection_of<'a>(&'a self, entry: EntryBytes<'a>, form: Form, now: UnixMs) -> Value<'a> {
        let stored = match entry.body() {
            Some(body) if body.place == Place::Object => Stored::Object(self.objects.get(body.raw), self),
            _ => Stored::Packed(self.value_bytes_of(entry)),
        };
        Value::collection(form, stored, now)
    }

    /// An entry as commands see it.
    #[inline]
    pub fn view<'a>(&'a self, page: Page<'a>, spot: Spot, now: UnixMs) -> Entry<'a> {
        let entry = EntryBytes(page.entry(spot));
        let value = self.value_of(entry, now);
        Entry { value, expiry: entry.expiry(), meta: EntryMeta { store: self, page, spot, now } }
    }

    // ---- pages ----

    /// Whether the page has so little room that a new entry is to lie outside of it. Only a flood of equal hashes, or
    /// very bad luck with long entries, gets there.
    #[inline]
    pub fn is_tight(&self, location: &Location) -> bool {
        location.page.is_some_and(|page| self.heap.page(page).used() > page::PAGE_BYTES_MAX - 512)
    }

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

    /// Replaces what is behind the first `kept` bytes of an entry.
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

    /// Puts a value over an inline one of the same form and length, expiry and all else staying as they are: nothing
    /// moves, and nothing is to be counted. False if it does not fit so, or if a snapshot has to see the old one first.
    #[inline]
    pub fn overwrite(
        &mut self,
        (page, spot): (Handle, Spot),
        value: NewValue<'_>,
        expiry: Expiry,
        now: UnixMs,
    ) -> bool {
        let view = self.heap.page(page);
        let (old_stamp, entry) = (view.stamp(), EntryBytes(view.entry(spot)));
        let stays = match expiry {
            Expiry::Clear => !entry.is_volatile(),
            Expiry::Keep => true,
            Expiry::At(_) => false,
        };
        let (end, old_len) = (spot.offset + entry.0.len(), entry.tail().len());
        if !stays
            || self.snapshot.is_active()
            || entry.place() != Place::Inline
            || old_len != value_bytes(value)
            || entry.form() != form_of(value)
        {
            return false;
        }
        let stamp = last_used::stamp(now);
        let bytes = self.heap.page_mut(page);
        let target = &mut bytes[end - old_len..end];
        match value {
            NewValue::Int(int) => target.copy_from_slice(&int.to_le_bytes()[..old_len]),
            NewValue::Bytes(new) | NewValue::Raw(new) => target.copy_from_slice(new),
            NewValue::Packed(packed) => target.copy_from_slice(packed.bytes),
        }
        if old_stamp != stamp {
            page::set_stamp(bytes, stamp);
        }
        true
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

    /// Two new pages from one: entries that stay, and those that `moves` sends to the new page, with their bounds.
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
                *bound = EntryBytes(entry).expiry().map_or(*bound, |at| bound_of(at).min(*bound));
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
        // Where (nearly) all entries stay in a page at its limit, columns that have become wider find no room.
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
    pub fn before_change(&mut self, db: crate::layout::kind::Db, at: usize, page: Handle) {
        if self.snapshot.is_active() && self.heap.page(page).version() != self.snapshot.version() {
            crate::upkeep::snapshot::save_page(self, db, at, page);
        }
    }
}

/// Whether a page of `bytes` that needs only `need` is to move to a smaller place.
#[inline]
pub(crate) fn is_worth_tightening(need: usize, bytes: usize) -> bool {
    /// Of a page: deleting entries of 36 B copies one of 640 B every third time.
    const SAVING_SHARE_MIN: usize = 6;
    const SAVING_BYTES_MIN: usize = 64;
    need + SAVING_BYTES_MIN.max(bytes / SAVING_SHARE_MIN) <= bytes
}

/// What an entry view needs to tell its access stamp and its memory, when asked.
#[derive(Clone, Copy)]
pub(crate) struct EntryMeta<'a> {
    store: &'a Store,
    page: Page<'a>,
    spot: Spot,
    now: UnixMs,
}

impl EntryMeta<'_> {
    /// The field's names follow from its own layout.
    pub fn encoding(&self) -> Encoding {
        let entry = EntryBytes(self.page.entry(self.spot));
        match entry.form() {
            Form::Int => Encoding::Int,
            Form::Raw => Encoding::Raw,
            Form::Bytes => {
                let (key, value) = (self.store.key_of(entry).len(), self.store.value_bytes_of(entry).len());
                // COMPAT(keys): OBJECT ENCODING of a string of some 100 bytes that had a TTL, or replaced a string
                // with one, is `embstr`; Valkey may report `raw`. Why: Valkey keeps the room of a removed TTL, here
                // there is none to keep.
                if is_embstr(key, value, entry.is_volatile()) { Encoding::Embstr } else { Encoding::Raw }
            }
            form => match entry.body() {
                Some(body) if body.place == Place::Object => {
                    self.store.objects.get(body.raw).body.structure().encoding()
                }
                _ => packed_encoding(form),
            },
        }
    }

    pub fn idle_seconds(&self) -> u64 {
        let own = self.page.access(self.spot.index, AccessMode::Lru.width());
        u64::from(last_used::idle_seconds(own.unwrap_or(self.page.stamp()), self.now))
    }

    pub fn frequency(&self) -> u8 {
        self.page.access(self.spot.index, AccessMode::Lfu.width()).map_or(0, |counter| counter as u8)
    }

    /// The entry, its columns, its share of page and directory, and its body.
    pub fn memory_bytes(&self) -> usize {
        let bytes = self.page.entry(self.spot);
        let shared = self.page.0.len() - page::entry_bytes(self.page) + directory::CHILD_BYTES;
        let body = match EntryBytes(bytes).body() {
            None => 0,
            Some(body @ BodyRef { place: Place::Large, .. }) => self.store.large.capacity(body.raw),
            Some(BodyRef { place: Place::Object, raw, .. }) => {
                self.store.objects.get(raw).memory_bytes() as usize
            }
            Some(body) => (self.store.body_units(body) * UNIT_BYTES) as usize,
        };
        bytes.len() + shared.div_ceil(self.page.len()) + body
    }
}

impl std::fmt::Debug for EntryMeta<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("EntryMeta").field("spot", &self.spot).finish_non_exhaustive()
    }
}

fn blob(body: BodyRef) -> Handle {
    Handle::from_raw(body.raw).expect("a blob's handle is one")
}
