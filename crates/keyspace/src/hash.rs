//! A hash: fields and their values, and a time of its own for each field that has one.
//!
//! ```text
//!   small   packed: field, value, field, value, ...   in the order they came; no field has a time
//!   large   `fields`: pages of entries, as the keyspace's own
//! ```

use crate::collection::{EditBody, Editing, Stored, packed_encoding};
use crate::entry::Form;
use crate::packed::{Element, Packed};
use crate::value::{Encoding, Full};
use isotherm_stdx::UnixMs;

/// A hash to read.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct HashView<'a> {
    stored: Stored<'a>,
    now: UnixMs,
}

impl<'a> HashView<'a> {
    #[inline]
    pub(crate) fn new(stored: Stored<'a>, now: UnixMs) -> HashView<'a> {
        HashView { stored, now }
    }

    /// Fields.
    #[allow(clippy::len_without_is_empty, reason = "an empty hash is absent")]
    pub fn len(&self) -> u64 {
        match self.stored {
            Stored::Packed(bytes) => (Packed::new(bytes, 2).len() / 2) as u64,
            Stored::Object(root, _) => root.body.structure().len(),
        }
    }

    pub fn encoding(&self) -> Encoding {
        match self.stored {
            Stored::Packed(_) => packed_encoding(Form::Hash),
            Stored::Object(root, _) => root.body.structure().encoding(),
        }
    }

    #[inline]
    pub fn get(&self, field: &[u8]) -> Option<Element<'a>> {
        let packed = self.stored.packed(2)?;
        packed.find_row(0, Element::of(field)).and_then(|(_, value)| Some(value?.element()))
    }

    /// Calls `visit` with every field and value.
    pub fn for_each(&self, mut visit: impl FnMut(Element<'a>, Element<'a>)) {
        let Some(packed) = self.stored.packed(2) else { return };
        let mut cells = packed.cells();
        while let (Some(field), Some(value)) = (cells.next(), cells.next()) {
            visit(field.element(), value.element());
        }
    }

    pub fn now(&self) -> UnixMs {
        self.now
    }
}

/// A hash to change.
pub struct HashEdit<'c, 'e> {
    pub(crate) editing: &'c mut Editing<'e>,
}

impl HashEdit<'_, '_> {
    pub fn len(&self) -> u64 {
        self.editing.len(2)
    }

    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    pub fn get(&self, field: &[u8]) -> Option<Element<'_>> {
        let EditBody::Packed(buf) = &self.editing.body else { return None };
        buf.view().find_row(0, Element::of(field)).and_then(|(_, value)| Some(value?.element()))
    }

    /// Stores a field. Returns whether it is new.
    pub fn set(&mut self, field: &[u8], value: &[u8]) -> Result<bool, Full> {
        self.editing.changed = true;
        let Some(buf) = self.editing.buf() else { return Err(Full) };
        let (field, value) = (Element::of(field), Element::of(value));
        if let Some(at) = buf.view().find(0, field) {
            buf.replace(at + 1, value);
            return Ok(false);
        }
        buf.push(field);
        buf.push(value);
        Ok(true)
    }

    /// Removes a field. Returns whether it was there.
    pub fn remove(&mut self, field: &[u8]) -> bool {
        let Some(buf) = self.editing.buf() else { return false };
        let Some(at) = buf.view().find(0, Element::of(field)) else { return false };
        buf.remove(at, 2);
        self.editing.changed = true;
        true
    }
}
