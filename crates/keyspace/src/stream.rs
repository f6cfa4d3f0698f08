//! A stream: a packed byte string while it is small, `StreamTree` above.

use crate::collection::{Editing, Stored};
use crate::object::{Object, Structure};
use crate::packed::Packed;
use crate::store::Store;
use crate::value::{Encoding, Full};
use isotherm_arena::Handle;

/// A stream to read.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct StreamView<'a> {
    stored: Stored<'a>,
}

impl<'a> StreamView<'a> {
    #[inline]
    pub(crate) fn new(stored: Stored<'a>) -> StreamView<'a> {
        StreamView { stored }
    }

    #[allow(clippy::len_without_is_empty, reason = "an empty one is absent")]
    pub fn len(&self) -> u64 {
        match self.stored {
            Stored::Packed(bytes) => Packed::new(bytes, 1).len() as u64,
            Stored::Object(root, _) => root.body.structure().len(),
        }
    }
}

/// A stream to change.
pub struct StreamEdit<'c, 'e> {
    pub(crate) editing: &'c mut Editing<'e>,
}

/// The large form. Nobody makes one yet.
pub(crate) enum StreamTree {}

impl Structure for StreamTree {
    fn len(&self) -> u64 {
        match *self {}
    }
    fn memory_bytes(&self) -> u64 {
        match *self {}
    }
    fn encoding(&self) -> Encoding {
        match *self {}
    }
    fn relocate(&mut self, _: &mut Store, _: u32, _: Handle) -> bool {
        match *self {}
    }
    fn free_step(&mut self, _: &mut Store, _: usize) -> bool {
        match *self {}
    }
    fn duplicate(&self, _: &mut Store, _: u32) -> Result<Object, Full> {
        match *self {}
    }
    fn check_invariants(&self, _: &Store, _: u32) -> u64 {
        match *self {}
    }
}
