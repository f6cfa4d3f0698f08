//! Building a slot's pages at once, from all of its keys.
//!
//! ```text
//!   entries in any order --> counted by page --> each page made in its final size, and filled --> directory, record
//! ```
//! No page is made larger and none is split on the way, so a key costs a third of what it costs by itself.
//! The result is what inserts would have made, except for the page that is split next.

use super::Table;
use crate::layout::directory;
use crate::layout::entry::EntryBytes;
use crate::layout::key::tag_of;
use crate::layout::kind::Full;
use crate::layout::last_used;
use crate::layout::page;
use crate::layout::record::{NEVER, Record, bound_of, page_index};
use crate::tables::location::SlotRef;
use crate::values::linear;
use crate::values::store::{Store, inline_account};
use isotherm_arena::Handle;
use isotherm_stdx::UnixMs;

/// An entry with its value in it, and what else is known of its key.
#[derive(Clone, Copy)]
pub(crate) struct NewEntry<'a> {
    pub hash: u64,
    pub bytes: EntryBytes<'a>,
    /// Access stamp; `None` if the entry counts as just used.
    pub access: Option<u16>,
}

impl<'a> NewEntry<'a> {
    pub fn key(&self) -> &'a [u8] {
        self.bytes.inline_key().expect("the key of an entry with its value lies in it")
    }
}

/// Why a slot was not built. It is as it was.
pub(crate) enum NotBuilt {
    Full,
    /// Two entries have the key of this one.
    Repeated(usize),
    /// Keys are in the slot already, or a page would get more than its share. Inserts handle both cases.
    Unsuited,
}

impl From<Full> for NotBuilt {
    fn from(_: Full) -> NotBuilt {
        NotBuilt::Full
    }
}

/// Scratch memory of a build, kept for the next slot.
#[derive(Default)]
pub(crate) struct BuildRoom {
    /// Index in `order` at which the entries of each page begin. `bytes` has the size of these entries.
    begins: Vec<u32>,
    bytes: Vec<u32>,
    /// Entries by page.
    order: Vec<u32>,
    pages: Vec<(Option<Handle>, u32)>,
}

/// Fuller pages are made by inserts, which know what to do with the next entry.
const ENTRIES_MAX: usize = page::ENTRIES_MAX / 2;
const BYTES_MAX: usize = page::PAGE_BYTES_MAX / 2;

impl Table {
    /// Makes the pages of a slot without keys.
    pub fn build_slot(
        &mut self,
        store: &mut Store,
        at: usize,
        entries: &[NewEntry<'_>],
        room: &mut BuildRoom,
        now: UnixMs,
    ) -> Result<(), NotBuilt> {
        let mut slot = self.slot(&store.heap, at);
        if slot.record.keys > 0 || entries.is_empty() {
            return Err(NotBuilt::Unsuited);
        }
        let before = slot.record;
        let width = store.access.width();
        let entry_bytes: usize = entries.iter().map(|entry| entry.bytes.0.len()).sum();
        let pages = linear::pages_for(entries.len() as u64, entry_bytes as u64, width as u64);
        if !room.sort(entries, pages, width) {
            return Err(NotBuilt::Unsuited);
        }
        self.materialise(&mut store.heap, &mut slot)?;
        let built = room.make_pages(store, entries, width, now).and_then(|page_bytes| {
            let record = &mut slot.record;
            room.list_pages(store, record)?;
            record.change_page_bytes(0, page_bytes);
            Ok(())
        });
        if let Err(error) = built {
            room.pages.drain(..).filter_map(|(page, _)| page).for_each(|page| store.heap.release(page));
            self.release_run_if_empty(&mut store.heap, &slot);
            return Err(error);
        }
        slot.record.keys = entries.len() as u32;
        slot.record.volatile = entries.iter().filter(|entry| entry.bytes.is_volatile()).count() as u32;
        self.count_built(store, &slot, &before, entries);
        Ok(())
    }

    fn count_built(&mut self, store: &mut Store, slot: &SlotRef, before: &Record, entries: &[NewEntry<'_>]) {
        self.store(&mut store.heap, slot, before);
        for entry in entries {
            let account = inline_account(entry.bytes);
            debug_assert!(account.is_some(), "its value lies in it");
            self.count_inline(entry.key(), tag_of(entry.hash), None, account);
        }
    }
}

impl BuildRoom {
    /// Puts the entries in the order of their pages. Returns false if a page would be too full.
    fn sort(&mut self, entries: &[NewEntry<'_>], pages: u32, width: usize) -> bool {
        let BuildRoom { begins, bytes, order, .. } = self;
        begins.clear();
        begins.resize(pages as usize + 1, 0);
        bytes.clear();
        bytes.resize(pages as usize, 0);
        for entry in entries {
            let index = page_index(entry.hash, pages) as usize;
            begins[index + 1] += 1;
            bytes[index] += entry.bytes.0.len() as u32;
        }
        let fits = begins[1..].iter().zip(bytes.iter()).all(|(&count, &bytes)| {
            let (count, bytes) = (count as usize, bytes as usize);
            count <= ENTRIES_MAX && page::size_for(count, width, bytes).1 <= BYTES_MAX
        });
        if !fits {
            return false;
        }
        (1..begins.len()).for_each(|index| begins[index] += begins[index - 1]);
        order.clear();
        order.resize(entries.len(), 0);
        for (number, entry) in entries.iter().enumerate() {
            let next = &mut begins[page_index(entry.hash, pages) as usize];
            order[*next as usize] = number as u32;
            *next += 1;
        }
        // Each has moved to where the next one begins.
        begins.rotate_right(1);
        begins[0] = 0;
        true
    }

    /// Makes the pages that have entries. Returns what they have in use together.
    fn make_pages(
        &mut self,
        store: &mut Store,
        entries: &[NewEntry<'_>],
        width: usize,
        now: UnixMs,
    ) -> Result<u64, NotBuilt> {
        let (version, stamp) = (store.snapshot.version(), last_used::stamp(now));
        let fresh = last_used::fresh(store.access, now);
        self.pages.clear();
        let mut used = 0;
        for (index, &bytes) in self.bytes.iter().enumerate() {
            let numbers = &self.order[self.begins[index] as usize..self.begins[index + 1] as usize];
            if numbers.is_empty() {
                self.pages.push((None, NEVER));
                continue;
            }
            let page = store.heap.new_page(numbers.len(), width, bytes as usize, version, stamp)?;
            self.pages.push((Some(page), NEVER));
            let mut bound = NEVER;
            let room = store.heap.page_mut(page);
            for &number in numbers {
                let entry = &entries[number as usize];
                let (tag, key) = (tag_of(entry.hash), entry.key());
                if page::Page(room).find(tag, |other| EntryBytes(other).inline_key() == Some(key)).is_some() {
                    return Err(NotBuilt::Repeated(number as usize));
                }
                page::append(room, tag, entry.bytes.0, entry.access.unwrap_or(fresh));
                bound = entry.bytes.expiry().map_or(bound, |at| bound_of(at).min(bound));
            }
            used += page::Page(room).used() as u64;
            self.pages.last_mut().expect("it was pushed").1 = bound;
        }
        Ok(used)
    }

    /// Gives the record its directory. After an error it has none.
    fn list_pages(&self, store: &mut Store, record: &mut Record) -> Result<(), NotBuilt> {
        for &(page, bound) in &self.pages {
            if let Err(full) = directory::push(&mut store.heap, record, page, bound) {
                directory::free(&mut store.heap, record);
                *record = Record::EMPTY;
                return Err(full.into());
            }
        }
        Ok(())
    }
}
