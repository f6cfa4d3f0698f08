//! What a partition keeps for the snapshot under way: entries and fields as they were before their page changed.

use crate::layout::entry::EntryBytes;
use crate::layout::kind::{Db, Form};
use crate::layout::large::Shared;
use crate::layout::pile::Pile;
use isotherm_stdx::UnixMs;
use std::collections::{HashMap, VecDeque};

/// What a partition knows of the snapshot under way.
#[derive(Default)]
pub(crate) struct SnapshotState {
    pub epoch: u8,
    pub active: bool,
    /// Entries that were saved before their page changed.
    pub saved: Pile<Saved>,
    /// Objects whose entries were met or saved, still to be told.
    pub pending: VecDeque<Pending>,
    /// Fields and members of objects that were saved before their page changed.
    pub fields: HashMap<u32, Pile<SavedField>>,
}

pub(crate) struct Pending {
    pub db: Db,
    pub key: Box<[u8]>,
    pub expiry: Option<UnixMs>,
    pub number: u32,
    /// Where `tell_step` goes on; `None` before the first.
    pub cursor: Option<u64>,
}

pub(crate) struct Saved {
    pub db: Db,
    pub key: Box<[u8]>,
    pub value: SavedValue,
    pub expiry: Option<UnixMs>,
}

impl Saved {
    pub fn memory_bytes(&self) -> usize {
        let value = if let SavedValue::Bytes(_, bytes) = &self.value { bytes.len() } else { 0 };
        size_of::<Saved>() + self.key.len() + value
    }
}

pub(crate) enum SavedValue {
    Int(i64),
    /// Of a string or a small collection.
    Bytes(Form, Box<[u8]>),
    /// A large body, shared; the value begins behind `skip` bytes.
    Shared(Form, Shared, usize),
}

impl SnapshotState {
    #[inline]
    pub fn is_active(&self) -> bool {
        self.active
    }
    /// The version that pages are born with.
    #[inline]
    pub fn version(&self) -> u8 {
        self.epoch
    }
    pub fn fields_of(&mut self, number: u32) -> &mut Pile<SavedField> {
        self.fields.entry(number).or_default()
    }
    /// Some of the fields that were saved of an object; `None` if there are no more.
    pub fn take_fields(&mut self, number: u32) -> Option<Vec<SavedField>> {
        let some = self.fields.get_mut(&number)?.take_some();
        if some.is_none() {
            self.fields.remove(&number);
        }
        some
    }
    /// Outside a snapshot all pages carry the same version; during one, those that were not seen the one before.
    pub fn check_version(&self, version: u8) {
        let unseen = self.active && version == self.epoch.wrapping_sub(1);
        assert!(version == self.epoch || unseen, "a page has a version of long ago");
    }
}

impl Pending {
    pub fn new(db: Db, key: &[u8], entry: EntryBytes<'_>, number: u32) -> Pending {
        Pending { db, key: key.into(), expiry: entry.expiry(), number, cursor: None }
    }
}

/// A field that was saved before its page changed.
pub(crate) struct SavedField {
    pub name: Box<[u8]>,
    pub value: SavedText,
    pub expiry: Option<UnixMs>,
}

pub(crate) enum SavedText {
    Int(i64),
    Bytes(Box<[u8]>),
    /// A large value, shared; it begins behind so many bytes.
    Shared(Shared, usize),
}

impl SavedField {
    pub fn memory_bytes(&self) -> usize {
        let value = if let SavedText::Bytes(bytes) = &self.value { bytes.len() } else { 0 };
        size_of::<SavedField>() + self.name.len() + value
    }
}
