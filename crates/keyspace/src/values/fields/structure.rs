//! Fields as one of the large collections of a partition: what is moved, copied, freed and saved of them.

use super::cold::Away;
use super::{Field, Fields, PAGE_ROUNDING_BYTES, field_of};
use crate::layout::directory;
use crate::layout::entry::{BodyRef, EntryBytes, Place, read_int, split_keyed};
use crate::layout::key::tag_of;
use crate::layout::kind::{Encoding, Form, Full};
use crate::layout::node_name::NodeName;
use crate::layout::packed::Element;
use crate::layout::page::{self, Spot};
use crate::layout::record::{Record, UNIT_BYTES, bound_of, page_index};
use crate::values::object::{Footprint, Object, Structure};
use crate::values::parts::Part;
use crate::values::receiver::{LongPart, NodeOf, NodePart, PAGE_WEIGHT_MAX, Receiver, weight_of};
use crate::values::saved::{SavedField, SavedText};
use crate::values::store::Store;
use isotherm_arena::Handle;

impl Fields {
    /// Gives everything back at once: of one that was never stored.
    pub fn free_all(&mut self, store: &mut Store) {
        while !self.free_step(store, usize::MAX) {}
    }

    /// Moves a page of this object.
    pub fn relocate_page(&mut self, store: &mut Store, handle: Handle) -> bool {
        let view = store.heap.page(handle);
        let size = view.0.len();
        let index = match view.away() {
            Some(_) => view.away_index(),
            None => {
                let hash = store.hasher.hash(store.key_of(EntryBytes(view.entry(view.spot(0)))));
                page_index(hash, self.record.pages)
            }
        };
        assert_eq!(
            directory::get(&store.heap, &self.record, index).0,
            Some(handle),
            "its owner refers to it"
        );
        let Ok((moved, _)) = store.heap.reallocate(handle, size, size) else { return false };
        directory::set_page(&mut store.heap, &mut self.record, index, Some(moved));
        moved != handle
    }

    /// Emits the fields of one page as they are, or has them saved if they weigh too much to be emitted at
    /// once.
    fn emit_page(&self, store: &mut Store, page: Handle, receiver: &mut dyn Receiver) {
        let view = store.heap.page(page);
        if let Some(reference) = view.away() {
            let name = NodeName::new(self.number, view.away_index());
            let of = if self.is_set { NodeOf::Set } else { NodeOf::Hash };
            receiver.long(LongPart::Node(NodePart { name, reference, of }));
            let epoch = store.snapshot.version();
            return page::set_version(store.heap.page_mut(page), epoch);
        }
        let entries = || view.spots().map(|spot| EntryBytes(view.entry(spot)));
        let is_large = |entry: EntryBytes<'_>| entry.place() == Place::Large;
        let bytes = |entry: EntryBytes<'_>| store.key_of(entry).len() + store.value_bytes_of(entry).len();
        let weight = |entry| if is_large(entry) { 1 } else { weight_of(bytes(entry)) };
        if entries().map(weight).sum::<u64>() > PAGE_WEIGHT_MAX {
            return self.save_page(store, page);
        }
        for entry in entries() {
            if is_large(entry) {
                receiver.long(self.long_part(SavedField::of_entry(store, entry)));
            } else {
                receiver.part(self.part_of(field_of(store, entry.0)));
            }
        }
        let epoch = store.snapshot.version();
        page::set_version(store.heap.page_mut(page), epoch);
    }

    fn emit_saved(&self, saved: SavedField, receiver: &mut dyn Receiver) {
        if matches!(saved.value, SavedText::Shared(..)) {
            receiver.long(self.long_part(saved));
        } else {
            receiver.part(self.part_of(saved.field()));
        }
    }

    fn long_part(&self, saved: SavedField) -> LongPart {
        if self.is_set { LongPart::Member(saved) } else { LongPart::Field(saved) }
    }

    fn part_of<'a>(&self, field: Field<'a>) -> Part<'a> {
        match Element::Bytes(field.name) {
            name if self.is_set => Part::Member(name),
            name => Part::Field(name, field.value, field.expiry),
        }
    }
}

impl SavedField {
    fn of(field: Field<'_>) -> SavedField {
        let value = match field.value {
            Element::Int(int) => SavedText::Int(int),
            Element::Bytes(bytes) => SavedText::Bytes(bytes.into()),
        };
        SavedField { name: field.name.into(), value, expiry: field.expiry }
    }

    /// A large value is shared, not copied.
    pub(super) fn of_entry(store: &Store, entry: EntryBytes<'_>) -> SavedField {
        match entry.body() {
            Some(body) if body.place == Place::Large => {
                let name = entry.inline_key().unwrap_or_default().into();
                let value = SavedText::Shared(entry.form(), store.large.share(body.raw), body.keyed);
                SavedField { name, value, expiry: entry.expiry() }
            }
            _ => SavedField::of(field_of(store, entry.0)),
        }
    }

    pub fn field(&self) -> Field<'_> {
        let (name, value) = match &self.value {
            SavedText::Int(int) => (&*self.name, Element::Int(*int)),
            SavedText::Bytes(bytes) => (&*self.name, Element::Bytes(bytes)),
            SavedText::Shared(form, body, is_keyed) => {
                let (name, bytes) = if *is_keyed { split_keyed(body) } else { (&*self.name, &body[..]) };
                let is_int = *form == Form::Int;
                (name, if is_int { Element::Int(read_int(bytes)) } else { Element::Bytes(bytes) })
            }
        };
        Field { name, value, expiry: self.expiry }
    }
}

impl Structure for Fields {
    fn len(&self) -> u64 {
        u64::from(self.record.keys)
    }

    fn nodes(&self) -> u64 {
        0
    }

    fn memory_bytes(&self) -> u64 {
        let pages = u64::from(self.record.pages) * PAGE_ROUNDING_BYTES;
        self.away.of(self.record.page_bytes()) + pages + self.record.outside() * UNIT_BYTES
    }

    fn footprint(&self) -> Footprint {
        Footprint { page_bytes: self.away.of(self.record.page_bytes()), ..Footprint::default() }
    }

    fn encoding(&self) -> Encoding {
        self.encoding
    }

    /// Moves a body: the nodes of this structure are bodies, and `id` is the lower half of the field's hash.
    fn relocate(&mut self, store: &mut Store, id: u32, handle: Handle) -> bool {
        let index = page_index(u64::from(id), self.record.pages);
        let page = directory::get(&store.heap, &self.record, index).0.expect("a body's page is there");
        let view = store.heap.page(page);
        let refers = |entry: &[u8]| {
            let body = EntryBytes(entry).body();
            body.is_some_and(|body| body.place == Place::Blob && body.raw == handle.raw())
        };
        let spot = view.spots().find(|spot| refers(view.entry(*spot))).expect("a body is referred to");
        let mut bytes = view.entry(spot).to_vec();
        let body = EntryBytes(&bytes).body().expect("it refers to the body");
        let size = crate::layout::entry::BLOB_HEAD_BYTES + body.len as usize;
        let Ok((moved, _)) = store.heap.reallocate(handle, size, size) else { return false };
        let at = bytes.len() - 8;
        bytes[at..at + 4].copy_from_slice(&moved.raw().to_le_bytes());
        page::replace(store.heap.page_mut(page), spot, &bytes);
        moved != handle
    }

    fn free_step(&mut self, store: &mut Store, nodes_max: usize) -> bool {
        let mut budget = nodes_max;
        while self.next_page < self.record.pages {
            if budget == 0 {
                return false;
            }
            budget -= 1;
            let index = self.next_page;
            self.next_page += 1;
            let (Some(page), _) = directory::get(&store.heap, &self.record, index) else { continue };
            directory::set_page(&mut store.heap, &mut self.record, index, None);
            if store.heap.page(page).away().is_some() {
                self.drop_stub(store, page);
                continue;
            }
            if store.cold.has_clean() {
                store.cold.drop_clean(NodeName::new(self.number, index));
            }
            if self.record.outside() > 0 {
                let view = store.heap.page(page);
                let bodies: Vec<BodyRef> =
                    view.spots().filter_map(|spot| EntryBytes(view.entry(spot)).body()).collect();
                bodies.into_iter().for_each(|body| self.free_body(store, Some(body)));
            }
            self.record.change_page_bytes(store.heap.page(page).used() as u64, 0);
            store.heap.release(page);
        }
        directory::free(&mut store.heap, &self.record);
        self.record = Record::EMPTY;
        self.next_page = 0;
        true
    }

    /// Forgets nothing and returns true: what the structure saved belongs to the store.
    fn forget_step(&mut self, _: &mut Store, _: usize) -> bool {
        true
    }

    fn set_saving(&mut self, saving: bool) {
        self.saving = saving;
    }

    /// The cursor is the next page: a page changes its number only by a split or a merge, which save it.
    fn emit_step(&mut self, store: &mut Store, cursor: &mut u64, receiver: &mut dyn Receiver) -> bool {
        if let Some(saved) = store.snapshot.pop_field(self.number) {
            self.emit_saved(saved, receiver);
            return false;
        }
        let index = *cursor as u32;
        if index >= self.record.pages {
            return true;
        }
        if let (Some(page), _) = directory::get(&store.heap, &self.record, index)
            && store.heap.page(page).version() != store.snapshot.version()
        {
            self.emit_page(store, page, receiver);
        }
        *cursor += 1;
        false
    }

    fn duplicate(&self, store: &mut Store, number: u32) -> Result<Object, Full> {
        self.copied(None, store, number)
    }

    fn duplicate_from(&self, from: &Store, store: &mut Store, number: u32) -> Result<Object, Full> {
        self.copied(Some(from), store, number)
    }

    fn away_nodes(&self) -> u64 {
        u64::from(self.away.pages)
    }

    /// Returns 0: what the structure saves lies with the snapshot.
    fn kept_bytes(&self) -> u64 {
        0
    }

    fn parts(&self) -> u64 {
        Structure::len(self)
    }

    /// Returns false: parts are never cut off the structure, but freed at once when they leave.
    fn has_garbage(&self) -> bool {
        false
    }

    fn sweep_step(&mut self, _: &mut Store, _: usize) -> bool {
        true
    }

    fn large_bodies(&self, store: &Store) -> u64 {
        let mut count = 0;
        for index in 0..self.record.pages {
            let (Some(page), _) = directory::get(&store.heap, &self.record, index) else { continue };
            let page = store.heap.page(page);
            let is_large = |spot: &Spot| EntryBytes(page.entry(*spot)).place() == Place::Large;
            count += page.spots().filter(is_large).count() as u64;
        }
        count
    }

    fn check_invariants(&self, store: &Store, number: u32) -> u64 {
        assert_eq!(self.number, number);
        let mut referred = directory::check_invariants(&store.heap, &self.record) as u64;
        let (mut keys, mut volatile, mut bytes, mut outside) = (0, 0, 0, 0);
        let mut away = Away::default();
        for index in 0..self.record.pages {
            let (Some(handle), bound) = directory::get(&store.heap, &self.record, index) else { continue };
            let page = store.heap.page(handle);
            page.check_invariants();
            assert_eq!(page.owner(), Some(number));
            if page.away().is_some() {
                assert_eq!(page.away_index(), index);
                referred += 1;
                bytes += page.away_used() as u64;
                keys += page.away_entries() as u32;
                away.add(page.away_used(), page.used());
                continue;
            }
            assert!(page.len() > 0, "a page without entries has no bytes");
            referred += 1;
            bytes += page.used() as u64;
            for spot in page.spots() {
                let entry = EntryBytes(page.entry(spot));
                let hash = store.hasher.hash(store.key_of(entry));
                assert_eq!(
                    (page_index(hash, self.record.pages), tag_of(hash)),
                    (index, page.tag(spot.index))
                );
                keys += 1;
                if let Some(expiry) = entry.expiry() {
                    volatile += 1;
                    assert!(bound_of(expiry) >= bound, "a page's bound is a lower bound");
                }
                outside += entry.body().map_or(0, |body| store.body_units(body));
                referred += u64::from(entry.place() == Place::Blob);
            }
        }
        let counted = (keys, volatile, outside);
        let record = &self.record;
        assert_eq!((record.page_bytes(), self.away), (bytes, away));
        // While it is being freed, entries are no longer counted.
        if self.next_page == 0 {
            assert_eq!(counted, (record.keys, record.volatile, record.outside()));
        }
        referred
    }
}
