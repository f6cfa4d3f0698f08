//! Basis of all collections: where one is stored, the limits that name its encoding, and how one is changed.
//!
//! ```text
//!   entry --(packed bytes)--> PackedBuf --+                             +--> the same, or a longer entry
//!         --(object number)-> Root      --+--> Editing --(handler)-->  -+--> object: its entry stays as it is
//!         --(absent)--------> empty     --+                             +--> empty: the key leaves
//! ```
//!
//! Reading goes by views (`Value::Hash(view)` and so on), which never copy. A change is one closure on an
//! [`Editing`], wrapped for its type (`HashEdit`, ...); whatever the closure leaves is stored when it
//! returns.

use crate::layout::kind::{Form, Full};
use crate::layout::packed::PackedBuf;
use crate::values::object::{Object, Root};
use crate::values::store::Store;
use isotherm_stdx::UnixMs;

/// Up to this many bytes a collection is packed; each change copies it.
pub(crate) const PACKED_BYTES_MAX: usize = 1024;

/// Limits from the configuration for the encodings of collections, under the names of its parameters.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Limits {
    pub hash_max_listpack_entries: usize,
    pub hash_max_listpack_value: usize,
    pub set_max_intset_entries: usize,
    pub set_max_listpack_entries: usize,
    pub set_max_listpack_value: usize,
    pub zset_max_listpack_entries: usize,
    pub zset_max_listpack_value: usize,
    /// Entries of a list's node, or, if negative, one of five sizes.
    pub list_max_listpack_size: i32,
    pub stream_node_max_bytes: usize,
    pub stream_node_max_entries: usize,
}

impl Default for Limits {
    fn default() -> Limits {
        Limits {
            hash_max_listpack_entries: 512,
            hash_max_listpack_value: 64,
            set_max_intset_entries: 512,
            set_max_listpack_entries: 128,
            set_max_listpack_value: 64,
            zset_max_listpack_entries: 128,
            zset_max_listpack_value: 64,
            list_max_listpack_size: -2,
            stream_node_max_bytes: 4096,
            stream_node_max_entries: 100,
        }
    }
}

/// Place at which a collection is stored, to read it.
#[derive(Clone, Copy)]
pub(crate) enum Stored<'a> {
    Packed(&'a [u8], Form),
    Object(&'a Root, &'a Store),
}

impl PartialEq for Stored<'_> {
    /// Returns whether both are the same object, or have equal packed bytes.
    fn eq(&self, other: &Self) -> bool {
        match (self, other) {
            (Stored::Packed(a, _), Stored::Packed(b, _)) => a == b,
            (Stored::Object(a, _), Stored::Object(b, _)) => std::ptr::eq(*a, *b),
            _ => false,
        }
    }
}

impl Eq for Stored<'_> {}

impl std::fmt::Debug for Stored<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Stored::Packed(bytes, _) => f.debug_tuple("Packed").field(&bytes.len()).finish(),
            Stored::Object(root, _) => f.debug_tuple("Object").field(&root.body.structure().len()).finish(),
        }
    }
}

/// Why a collection could not be changed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum EditError {
    /// The key holds something of another type.
    WrongType,
    /// No memory for what was to be stored: the collection is as it was before.
    Full,
}

impl From<Full> for EditError {
    fn from(_: Full) -> EditError {
        EditError::Full
    }
}

/// Outcome of a change for its key.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Edited<R> {
    /// Result of the closure.
    pub result: R,
    pub changed: bool,
    /// The key was not there before, and is now.
    pub created: bool,
    /// The key was there before, and has left because its last element did.
    pub emptied: bool,
}

/// A collection under change.
pub(crate) struct Editing<'e> {
    pub store: &'e mut Store,
    pub limits: &'e Limits,
    pub now: UnixMs,
    /// Fields whose time was before this are hidden: the transaction's moment, or none are.
    pub fields_from: UnixMs,
    /// The form to store; set conversions change it.
    pub form: Form,
    pub body: EditBody,
    /// Set by any change.
    pub changed: bool,
    /// Absent until now: it leaves without a trace if it stays empty.
    pub absent: bool,
    /// The hash and slot of the key: an object's home.
    pub home: u64,
    /// True if the collection has become so small that it may be packed again: that is tried when the change
    /// is done.
    pub has_shrunk: bool,
}

pub(crate) enum EditBody {
    Packed(PackedBuf),
    /// A number and what it names, taken out of the table meanwhile.
    Object(u32, Box<Root>),
}

impl Editing<'_> {
    pub fn len(&self, stride: usize) -> u64 {
        match &self.body {
            EditBody::Packed(buf) => (buf.len() / stride) as u64,
            EditBody::Object(_, root) => root.body.structure().len(),
        }
    }

    /// The packed elements; only where there are some, and no object.
    pub fn buf(&mut self) -> Option<&mut PackedBuf> {
        match &mut self.body {
            EditBody::Packed(buf) => Some(buf),
            EditBody::Object(..) => None,
        }
    }

    /// Makes the collection an object. `make` gets the store, the object's number and the packed elements. If
    /// it finds no memory, all stays as it was.
    pub fn promote(
        &mut self,
        make: impl FnOnce(&mut Store, u32, &PackedBuf) -> Result<Object, Full>,
    ) -> Result<(), Full> {
        let EditBody::Packed(buf) = &mut self.body else { return Ok(()) };
        let number = self.store.objects.reserve();
        let body = match make(self.store, number, buf) {
            Ok(body) => body,
            Err(full) => {
                self.store.objects.give_back(number);
                return Err(full);
            }
        };
        let seen = self.store.snapshot.version();
        let mut root = Root::new(body, seen);
        root.home = self.home;
        let buf = std::mem::replace(&mut self.body, EditBody::Object(number, root));
        if let EditBody::Packed(buf) = buf {
            self.store.scratch = buf;
        }
        Ok(())
    }

    /// An object that this change has made of nothing, and that got no element, goes again.
    #[cold]
    pub fn demote(&mut self) {
        let mut buf = std::mem::take(&mut self.store.scratch);
        buf.clear(1);
        let EditBody::Object(number, mut root) = std::mem::replace(&mut self.body, EditBody::Packed(buf))
        else {
            unreachable!("it was made an object")
        };
        debug_assert_eq!(root.references, 0);
        while !root.body.structure_mut().free_step(self.store, usize::MAX) {}
        self.store.objects.give_back(number);
    }
}
