//! Pages of a large hash or set that leave memory one by one, and come back.
//!
//! ```text
//!   payload   [page: its used bytes, bare (see `page::stub`)][bodies of its entries, in their order]
//!             an entry with a body has in place of the body's handle where that begins in the payload
//!   memory    a stub of 32 B in the page's place in the directory
//! ```
//! The record (`Record`) counts a page that is away as if it were there, so that the collection splits and
//! merges as it would; the bytes that it takes less are counted separately (`Away`). Bodies are counted by
//! what is in memory.
//!
//! A reader that meets a stub notes it and is shown nothing: its command runs again when the page is back
//! (`Cold::note_missed`). A change of a page has it brought back first, and waits for the disk if it was not
//! read before.

use super::Fields;
use crate::layout::cold::ColdRef;
use crate::layout::directory;
use crate::layout::entry::{BodyRef, EntryBytes, Place, split_keyed};
use crate::layout::kind::{Form, Full};
use crate::layout::last_used;
use crate::layout::node_name::NodeName;
use crate::layout::page::{self, Page, Spot, stub};
use crate::layout::record::{buddy, page_index};
use crate::values::nodewise::Nodewise;
use crate::values::store::Store;
use isotherm_arena::{Handle, Kind};
use isotherm_stdx::UnixMs;

/// A payload is no longer: a page of larger values stays.
const NODE_BYTES_MAX: usize = 256 << 10;

/// Pages that are not in memory.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub(crate) struct Away {
    pub pages: u32,
    /// `used` of these pages, and of their stubs.
    used_bytes: u64,
    stub_bytes: u64,
}

impl Away {
    pub(super) fn add(&mut self, used: usize, stub: usize) {
        self.pages += 1;
        self.used_bytes += used as u64;
        self.stub_bytes += stub as u64;
    }

    fn remove(&mut self, used: usize, stub: usize) {
        self.pages -= 1;
        self.used_bytes -= used as u64;
        self.stub_bytes -= stub as u64;
    }

    /// Returns the bytes in memory of pages that have `page_bytes` bytes in use: stubs count in place of
    /// pages that are away.
    pub fn of(&self, page_bytes: u64) -> u64 {
        page_bytes - self.used_bytes + self.stub_bytes
    }
}

/// Returns the offset in a payload at which the page ends and its bodies begin.
fn used_of(payload: &[u8]) -> usize {
    Page(payload).used()
}

impl Fields {
    /// The page that an element is in, or would be.
    pub fn page_of(&self, store: &Store, element: &[u8]) -> u32 {
        page_index(store.hasher.hash(element), self.record.pages)
    }

    /// The page with this first entry is about to change, or to go.
    #[cold]
    pub(super) fn note_change(&self, store: &mut Store, page: Handle) {
        let view = store.heap.page(page);
        if view.len() == 0 {
            return;
        }
        let hash = store.hasher.hash(store.key_of(EntryBytes(view.entry(view.spot(0)))));
        store.cold.drop_clean(NodeName::new(self.number, page_index(hash, self.record.pages)));
    }

    /// Makes the bodies of the entries of a page anew, which has their places in the payload. On an error
    /// nothing is left of them.
    fn place_bodies(&mut self, store: &mut Store, bare: &mut [u8], payload: &[u8]) -> Result<(), Full> {
        let mut made = Vec::new();
        for (spot, body) in bodies_of(Page(bare)) {
            let bytes = &payload[body.raw as usize..][..body.len as usize];
            let entry = EntryBytes(Page(bare).entry(spot));
            let name = entry.inline_key().unwrap_or_else(|| split_keyed(bytes).0);
            let hash = store.hasher.hash(name);
            let raw = match body.place {
                Place::Blob => {
                    store.heap.new_node_body(self.number, hash as u32, bytes.len()).map(Handle::raw)
                }
                _ => store.large.insert(bytes.len()),
            };
            let Ok(raw) = raw else {
                made.into_iter().for_each(|body| self.free_body(store, Some(body)));
                return Err(Full);
            };
            let body = BodyRef { raw, ..body };
            store.body_mut(body).copy_from_slice(bytes);
            self.record.change_outside(0, store.body_units(body));
            made.push(body);
            let end = spot.offset + Page(bare).entry(spot).len();
            bare[end - 8..end - 4].copy_from_slice(&raw.to_le_bytes());
        }
        Ok(())
    }

    /// Brings back the page of an element that a change is about to look at. If it cannot be brought back,
    /// that is noted, and the command fails.
    pub fn bring_element_home(&mut self, store: &mut Store, element: &[u8], now: UnixMs) {
        if self.away.pages > 0 {
            let index = self.page_of(store, element);
            _ = self.bring_home(store, index, now);
        }
    }

    /// A page that is about to change is in memory: the command waits for the disk. As a rule it was read
    /// before.
    #[inline]
    pub(super) fn bring_home(&mut self, store: &mut Store, index: u32, now: UnixMs) -> Result<(), Full> {
        if self.away.pages == 0 {
            return Ok(());
        }
        self.bring_home_slowly(store, index, now)
    }

    /// Brings a page to memory for a change that can be left for later. Returns whether the page is in
    /// memory.
    #[inline]
    pub(super) fn is_brought_home(&mut self, store: &mut Store, index: u32, now: UnixMs) -> bool {
        self.away.pages == 0 || self.is_brought_home_slowly(store, index, now)
    }

    #[cold]
    fn is_brought_home_slowly(&mut self, store: &mut Store, index: u32, now: UnixMs) -> bool {
        let Some(from) = self.away_at(store, index) else { return true };
        if store.cold.has_failed() {
            return false;
        }
        let payload = store.cold.read_node(from, NodeName::new(self.number, index));
        payload.is_some_and(|payload| self.warm(store, index, &payload, from, false, now) == Ok(true))
    }

    /// Returns whether the pages that the next merge joins are in memory.
    pub(super) fn has_last_pages(&self, store: &Store) -> bool {
        let last = self.record.pages.saturating_sub(1);
        self.away_at(store, last).is_none() && self.away_at(store, buddy(last.max(1))).is_none()
    }

    #[cold]
    fn bring_home_slowly(&mut self, store: &mut Store, index: u32, now: UnixMs) -> Result<(), Full> {
        if store.cold.has_failed() {
            // All that the command has seen so far may be wrong.
            return Err(Full);
        }
        let Some(from) = self.away_at(store, index) else { return Ok(()) };
        let name = NodeName::new(self.number, index);
        let Some(payload) = store.cold.read_node(from, name) else {
            store.cold.note_failed(name);
            return Err(Full);
        };
        self.warm(store, index, &payload, from, false, now).map(|_| ())
    }

    /// A page's entries, for a reader. `None`: the page is away, which was noted.
    #[inline]
    pub(super) fn shown<'a>(&self, store: &'a Store, page: Handle) -> Option<Page<'a>> {
        let page = store.heap.page(page);
        if self.away.pages > 0
            && let Some(reference) = page.away()
        {
            store.cold.note_missed(NodeName::new(self.number, page.away_index()), reference);
            return None;
        }
        Some(page)
    }

    /// The page is dropped, wherever it is.
    pub(super) fn drop_stub(&mut self, store: &mut Store, stub: Handle) {
        let page = store.heap.page(stub);
        let reference = page.away().expect("it is a stub");
        let used = page.away_used();
        self.away.remove(used, page.used());
        self.record.change_page_bytes(used as u64, 0);
        store.cold.retire_node(reference);
        store.heap.release(stub);
    }
}

impl Nodewise for Fields {
    fn node_count(&self) -> u32 {
        self.record.pages
    }

    fn name(&self, index: u32) -> NodeName {
        NodeName::new(self.number, index)
    }

    /// Returns the reference to page `index`, if it is not in memory.
    fn away_at(&self, store: &Store, index: u32) -> Option<ColdRef> {
        if self.away.pages == 0 || index >= self.record.pages {
            return None;
        }
        store.heap.page(directory::get(&store.heap, &self.record, index).0?).away()
    }

    /// The pages of the elements; the next to split, and those that would be merged.
    fn needed(&self, store: &Store, elements: &[&[u8]], reshapes: bool) -> Vec<u32> {
        let pages = self.record.pages;
        let mut needed: Vec<u32> = elements.iter().map(|element| self.page_of(store, element)).collect();
        let to_reshape = [buddy(pages), pages - 1, buddy((pages - 1).max(1))];
        needed.extend(to_reshape.iter().filter(|_| reshapes));
        needed
    }

    /// Returns the bytes of the page's payload and the seconds since its last change, if the page may leave.
    fn leaving(&self, store: &Store, index: u32, now: UnixMs) -> Option<(usize, u32)> {
        let page = store.heap.page(directory::get(&store.heap, &self.record, index).0?);
        let snapshot = &store.snapshot;
        if page.away().is_some() || snapshot.is_active() && page.version() != snapshot.version() {
            return None;
        }
        let mut bytes = page.used();
        for spot in page.spots() {
            let entry = EntryBytes(page.entry(spot));
            if entry.is_volatile() {
                return None;
            }
            bytes += entry.body().map_or(0, |body| body.len as usize);
        }
        (bytes <= NODE_BYTES_MAX).then(|| (bytes, u32::from(last_used::idle_seconds(page.stamp(), now))))
    }

    /// Writes the payload of a page that may leave.
    fn write_payload(&self, store: &Store, index: u32, into: &mut Vec<u8>) {
        let page = directory::get(&store.heap, &self.record, index).0.expect("it may leave");
        let page = store.heap.page(page);
        stub::bare(page, into);
        for spot in page.spots() {
            if let Some(body) = EntryBytes(page.entry(spot)).body() {
                let end = spot.offset + page.entry(spot).len();
                let at = into.len() as u32;
                into[end - 8..end - 4].copy_from_slice(&at.to_le_bytes());
                into.extend_from_slice(store.body(body));
            }
        }
    }

    /// Puts a stub in the place of a page. Returns whether there was memory for it.
    fn leave(&mut self, store: &mut Store, index: u32, reference: ColdRef) -> bool {
        let Ok((stub, stub_bytes)) = store.heap.allocate(Kind::Page, stub::STUB_BYTES) else { return false };
        let old = directory::get(&store.heap, &self.record, index).0.expect("it may leave");
        let page = store.heap.page(old);
        let used = page.used();
        let bodies: Vec<BodyRef> =
            page.spots().filter_map(|spot| EntryBytes(page.entry(spot)).body()).collect();
        bodies.into_iter().for_each(|body| self.free_body(store, Some(body)));
        let (page, target) = store.heap.bytes_pair((old, used), (stub, stub_bytes));
        stub::write(target, self.number, Page(page), reference, index);
        store.heap.release(old);
        directory::set_page(&mut store.heap, &mut self.record, index, Some(stub));
        self.away.add(used, store.heap.page(stub).used());
        store.cold.drop_clean(NodeName::new(self.number, index));
        store.cold.note_node(reference);
        true
    }

    fn set_reference(&self, store: &mut Store, index: u32, to: ColdRef) {
        let stub = directory::get(&store.heap, &self.record, index).0.expect("it is away");
        stub::set_reference(store.heap.page_mut(stub), to);
    }

    /// A page comes back, if it still is where its payload was read. Returns whether it did. `keeps`: its
    /// record stays until it changes.
    fn warm(
        &mut self,
        store: &mut Store,
        index: u32,
        payload: &[u8],
        from: ColdRef,
        keeps: bool,
        now: UnixMs,
    ) -> Result<bool, Full> {
        if self.away_at(store, index) != Some(from) {
            return Ok(false);
        }
        let stub = directory::get(&store.heap, &self.record, index).0.expect("it is away");
        let used = used_of(payload);
        let mut bare = payload[..used].to_vec();
        self.place_bodies(store, &mut bare, payload)?;
        let allocated = store.heap.allocate(Kind::Page, used);
        let Ok((page, size)) = allocated else {
            let page = Page(&bare);
            bodies_of(page).into_iter().for_each(|(_, body)| self.free_body(store, Some(body)));
            return Err(Full);
        };
        let version = store.heap.page(stub).version();
        let stub_used = store.heap.page(stub).used();
        stub::restore(store.heap.bytes_mut(page, size), &bare, self.number, version, last_used::stamp(now));
        store.heap.release(stub);
        directory::set_page(&mut store.heap, &mut self.record, index, Some(page));
        self.away.remove(used, stub_used);
        store.cold.node_came_home(NodeName::new(self.number, index), from, keeps);
        Ok(true)
    }
}

/// The entries of a page that have bodies, and where these are.
fn bodies_of(page: Page<'_>) -> Vec<(Spot, BodyRef)> {
    page.spots().filter_map(|spot| Some((spot, EntryBytes(page.entry(spot)).body()?))).collect()
}

/// A page that was read: what a snapshot emits of it without having it in memory.
#[derive(Clone, Copy)]
pub(crate) struct ReadPage<'p> {
    payload: &'p [u8],
    page: Page<'p>,
}

impl<'p> ReadPage<'p> {
    /// Returns the page of a payload, or `None` if the bytes are no page.
    pub fn of(payload: &'p [u8]) -> Option<ReadPage<'p>> {
        if payload.len() < page::HEADER_BYTES {
            return None;
        }
        let used = used_of(payload);
        (used <= payload.len()).then(|| ReadPage { payload, page: Page(&payload[..used]) })
    }

    /// Names, forms and values.
    pub fn entries(self) -> impl Iterator<Item = (&'p [u8], Form, &'p [u8])> {
        self.page.spots().map(move |spot| {
            let entry = EntryBytes(self.page.entry(spot));
            let Some(body) = entry.body() else {
                return (entry.inline_key().unwrap_or_default(), entry.form(), entry.tail());
            };
            let bytes = &self.payload[body.raw as usize..][..body.len as usize];
            match entry.inline_key() {
                Some(name) => (name, entry.form(), bytes),
                None => {
                    let (name, value) = split_keyed(bytes);
                    (name, entry.form(), value)
                }
            }
        })
    }
}
