//! A copy of fields: page by page as they are, since a field lies in the page that its hash chooses, and all
//! stores hash under one secret.
//!
//! ```text
//!   page of the source     -> bytes on the side     -> page of the copy, with its owner's number
//!   body of an entry          large: shared         otherwise: copied, and the entry refers to the copy
//! ```

use super::Fields;
use crate::layout::directory;
use crate::layout::entry::{BodyRef, EntryBytes, Place};
use crate::layout::kind::Full;
use crate::layout::page::{PAGE_BYTES_MAX, Page};
use crate::layout::record::Record;
use crate::values::object::Object;
use crate::values::store::Store;
use isotherm_arena::Handle;
use isotherm_stdx::steps;

/// An entry whose value is outside ends with the number of the body and its length.
const REFERENCE_BYTES: usize = 8;

/// A body that an entry of a page refers to.
struct Reference {
    /// Offset in the page of the body's number.
    at: usize,
    body: BodyRef,
    hash: u64,
}

impl Fields {
    /// Makes the same again in `store`, under another number. `from`: where it lies, if that is another
    /// store.
    pub(super) fn copied(
        &self,
        from: Option<&Store>,
        store: &mut Store,
        number: u32,
    ) -> Result<Object, Full> {
        self.refuse_away(from.unwrap_or(store))?;
        let mut copy = Fields::new(number, self.is_set, self.encoding);
        let mut bytes = Vec::with_capacity(PAGE_BYTES_MAX);
        for index in 0..self.record.pages {
            if let Err(full) = copy.push_copy(from, store, (&self.record, index), &mut bytes) {
                copy.free_all(store);
                return Err(full);
            }
        }
        copy.record.volatile = self.record.volatile;
        debug_assert_eq!(
            (copy.record.keys, copy.record.outside()),
            (self.record.keys, self.record.outside())
        );
        Ok(if self.is_set { Object::Set(copy) } else { Object::Hash(copy) })
    }

    /// Notes each page that is not in memory.
    fn refuse_away(&self, store: &Store) -> Result<(), Full> {
        if self.away.pages == 0 {
            return Ok(());
        }
        let pages =
            (0..self.record.pages).filter_map(|index| directory::get(&store.heap, &self.record, index).0);
        let missed = pages.filter(|page| self.shown(store, *page).is_none()).count();
        if missed == 0 { Ok(()) } else { Err(Full) }
    }

    /// Adds a copy of the next page of a record. `bytes`: room for a page.
    fn push_copy(
        &mut self,
        from: Option<&Store>,
        store: &mut Store,
        (record, index): (&Record, u32),
        bytes: &mut Vec<u8>,
    ) -> Result<(), Full> {
        let source = from.unwrap_or(store);
        let (page, bound) = directory::get(&source.heap, record, index);
        let Some(page) = page else {
            return directory::push(&mut store.heap, &mut self.record, None, bound);
        };
        let page = source.heap.page(page);
        steps::note(page.len() as u64);
        bytes.clear();
        bytes.extend_from_slice(&page.0[..page.used()]);
        let references = if record.outside() > 0 { references(source, page) } else { Vec::new() };
        let entries = page.len() as u32;
        let mut made = Vec::with_capacity(references.len());
        let done = copy_bodies(from, store, self.number, &references, bytes, &mut made)
            .and_then(|()| self.push_bytes(store, bytes, bound));
        match done {
            Ok(()) => {
                let units: u64 = made.iter().map(|body| store.body_units(*body)).sum();
                self.record.change_outside(0, units);
                self.record.keys += entries;
            }
            Err(_) => made.into_iter().for_each(|body| store.free_body(body)),
        }
        done
    }

    fn push_bytes(&mut self, store: &mut Store, bytes: &[u8], bound: u32) -> Result<(), Full> {
        let version = store.snapshot.version();
        let page = store.heap.new_page_of(self.number, bytes, version)?;
        directory::push(&mut store.heap, &mut self.record, Some(page), bound)
            .inspect_err(|_| store.heap.release(page))?;
        self.record.change_page_bytes(0, bytes.len() as u64);
        Ok(())
    }
}

fn references(store: &Store, page: Page<'_>) -> Vec<Reference> {
    let reference = |spot| {
        let entry = page.entry(spot);
        let at = spot.offset + entry.len() - REFERENCE_BYTES;
        let entry = EntryBytes(entry);
        Some(Reference { at, body: entry.body()?, hash: store.hasher.hash(store.key_of(entry)) })
    };
    page.spots().filter_map(reference).collect()
}

/// Copies what a page refers to, and has the bytes of its copy refer to that. `made` has what was made, also
/// after an error.
fn copy_bodies(
    from: Option<&Store>,
    store: &mut Store,
    number: u32,
    references: &[Reference],
    bytes: &mut [u8],
    made: &mut Vec<BodyRef>,
) -> Result<(), Full> {
    for &Reference { at, body, hash } in references {
        let raw = match body.place {
            Place::Large => {
                let shared = from.unwrap_or(store).large.share(body.raw);
                store.large.adopt(shared)
            }
            _ => {
                let text = from.unwrap_or(store).body(body).to_vec();
                let copy: Handle = store.heap.new_node_body(number, hash as u32, text.len())?;
                store.heap.blob_mut(copy, text.len()).copy_from_slice(&text);
                copy.raw()
            }
        };
        made.push(BodyRef { raw, ..body });
        bytes[at..at + 4].copy_from_slice(&raw.to_le_bytes());
    }
    Ok(())
}
