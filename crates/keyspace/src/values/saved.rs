//! Data that a partition keeps for the snapshot under way: entries and fields as they were before their page
//! changed.

use crate::layout::bundle::{BundleName, Expiring};
use crate::layout::cold::{ColdRef, ColdValue};
use crate::layout::entry::{EntryBytes, split_keyed};
use crate::layout::kind::{Db, Form};
use crate::layout::large::Shared;
use crate::layout::last_used::AccessStamp;
use crate::layout::pile::Pile;
use crate::values::kept::KeptAccount;
use isotherm_stdx::{Slot, UnixMs};
use std::collections::HashMap;
use std::ops::RangeInclusive;
use std::sync::Arc;

/// State of the snapshot under way in a partition.
pub(crate) struct SnapshotState {
    pub epoch: u8,
    /// The last epoch that every page was stamped with.
    pub complete: u8,
    pub active: bool,
    /// Slots that the snapshot is of, if not all.
    pub slots: Option<RangeInclusive<u16>>,
    /// Entries that were saved before their page changed.
    pub saved: Pile<Saved>,
    /// Bundles that were saved before they changed.
    pub bundles: Pile<SavedBundle>,
    /// The collection that is being emitted, and objects whose entries were met or saved, still to be
    /// emitted.
    pub collection: Option<Pending>,
    pub pending: Pile<Pending>,
    /// Fields and members of objects that were saved before their page changed.
    pub fields: HashMap<u32, Pile<SavedField>>,
    /// Objects that may keep something for it, or for one that ended early.
    pub keeping: Pile<u32>,
    /// Bytes that `saved` and `fields` take. `kept_total` counts these of all partitions, and what objects
    /// keep.
    kept_bytes: u64,
    kept_total: Arc<KeptAccount>,
}

/// Data saved for a snapshot that ended: dropped without the lock.
pub(crate) type Leftovers = (Pile<Saved>, Pile<SavedBundle>, Pile<Pending>, HashMap<u32, Pile<SavedField>>);

/// Epochs whose versions may be on pages of a partition at once. One byte distinguishes 256.
pub(crate) const EPOCHS_BEHIND_MAX: u8 = 250;

pub(crate) struct Pending {
    pub db: Db,
    pub key: Box<[u8]>,
    pub expiry: Option<UnixMs>,
    pub access: Option<AccessStamp>,
    pub number: u32,
    /// Position at which the collection continues.
    pub cursor: u64,
}

pub(crate) struct Saved {
    pub db: Db,
    /// Empty if it lies in the value's body.
    pub key: Box<[u8]>,
    pub value: SavedValue,
    pub expiry: Option<UnixMs>,
    pub access: Option<AccessStamp>,
}

impl Saved {
    pub fn key(&self) -> &[u8] {
        match &self.value {
            SavedValue::Shared(_, body, true) => split_keyed(body).0,
            _ => &self.key,
        }
    }

    /// Returns the form of the value, and its bytes if they are in memory.
    pub fn value(&self) -> (Form, Result<&[u8], ColdValue>) {
        match &self.value {
            SavedValue::Cold(value) => (value.form, Err(*value)),
            SavedValue::Bytes(form, bytes) => (*form, Ok(bytes)),
            SavedValue::Shared(form, body, false) => (*form, Ok(body)),
            SavedValue::Shared(form, body, true) => (*form, Ok(split_keyed(body).1)),
        }
    }

    /// Returns the weight by a rule over the form, the bytes of the key and those of the value. A shared
    /// value weighs 1.
    pub fn weight(&self, rule: impl Fn(Form, usize, usize) -> u64) -> u64 {
        match &self.value {
            SavedValue::Bytes(form, bytes) => rule(*form, self.key.len(), bytes.len()),
            SavedValue::Cold(value) => rule(value.form, self.key.len(), 0),
            SavedValue::Shared(..) => 1,
        }
    }

    /// Returns whether it is to be handed on after the lock was released.
    pub fn is_long(&self) -> bool {
        // Of what is not in memory the visitor reads the value from disk.
        matches!(self.value, SavedValue::Shared(..) | SavedValue::Cold(..))
    }

    pub fn memory_bytes(&self) -> usize {
        let value = if let SavedValue::Bytes(_, bytes) = &self.value { bytes.len() } else { 0 };
        size_of::<Saved>() + self.key.len() + value
    }
}

/// Keys outside memory that were to be emitted, and where their record is.
pub(crate) struct SavedBundle {
    pub db: Db,
    pub slot: Slot,
    pub name: BundleName,
    pub reference: ColdRef,
    /// Hash bits of each key in the order of the record; 0 for a key that has left.
    pub prints: Box<[u16]>,
    pub expiring: Option<Expiring>,
}

impl SavedBundle {
    pub fn memory_bytes(&self) -> usize {
        size_of::<SavedBundle>() + self.prints.len() * 2
    }
}

pub(crate) enum SavedValue {
    /// Bytes of a string or a small collection.
    Bytes(Form, Box<[u8]>),
    /// Not in memory.
    Cold(ColdValue),
    /// A large body, shared, and whether it begins with the key.
    Shared(Form, Shared, bool),
}

impl SnapshotState {
    pub fn new(kept_total: &Arc<KeptAccount>) -> SnapshotState {
        SnapshotState {
            epoch: 0,
            complete: 0,
            active: false,
            slots: None,
            saved: Pile::default(),
            bundles: Pile::default(),
            collection: None,
            pending: Pile::default(),
            fields: HashMap::new(),
            keeping: Pile::default(),
            kept_bytes: 0,
            kept_total: Arc::clone(kept_total),
        }
    }

    /// Returns the bytes that `saved` and `fields` take.
    pub fn kept_bytes(&self) -> u64 {
        self.kept_bytes
    }

    /// Counts `bytes` more as kept.
    pub fn note_kept(&mut self, bytes: usize) {
        self.kept_bytes += bytes as u64;
        self.kept_total.add(bytes as u64);
    }

    /// Counts `bytes` as no longer kept.
    pub fn note_given(&mut self, bytes: usize) {
        self.kept_bytes -= bytes as u64;
        self.kept_total.subtract(bytes as u64);
    }

    /// Returns whether something is to be emitted before the next page.
    pub fn has_saved(&self) -> bool {
        !self.saved.is_empty() || !self.bundles.is_empty()
    }

    pub fn pop_saved(&mut self) -> Option<Saved> {
        let saved = self.saved.pop()?;
        self.note_given(saved.memory_bytes());
        Some(saved)
    }

    /// A bundle as it is now.
    pub fn save_bundle(&mut self, saved: SavedBundle) {
        self.note_kept(saved.memory_bytes());
        self.bundles.push(saved);
    }

    pub fn pop_bundle(&mut self) -> Option<SavedBundle> {
        let saved = self.bundles.pop()?;
        self.note_given(saved.memory_bytes());
        Some(saved)
    }

    /// Ends the snapshot early: no item of it is to be emitted any more. The caller drops what was saved,
    /// which is returned.
    pub fn abort(&mut self) -> Leftovers {
        (self.active, self.collection) = (false, None);
        self.note_given(self.kept_bytes as usize);
        let (saved, pending) = (std::mem::take(&mut self.saved), std::mem::take(&mut self.pending));
        (saved, std::mem::take(&mut self.bundles), pending, std::mem::take(&mut self.fields))
    }

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
    /// Takes one of the fields that were saved of an object; `None` if there are no more.
    pub fn pop_field(&mut self, number: u32) -> Option<SavedField> {
        let one = self.fields.get_mut(&number)?.pop();
        match &one {
            Some(field) => self.note_given(field.memory_bytes()),
            None => _ = self.fields.remove(&number),
        }
        one
    }
    /// Pages carry the epoch, or one of those since the last that was on all of them.
    pub fn check_version(&self, version: u8) {
        let behind = self.epoch.wrapping_sub(version);
        assert!(behind <= self.epoch.wrapping_sub(self.complete), "a page has a version of long ago");
    }

    pub fn covers(&self, slot: impl FnOnce() -> Slot) -> bool {
        self.slots.as_ref().is_none_or(|slots| slots.contains(&slot().get()))
    }

    pub fn is_worn(&self) -> bool {
        self.epoch.wrapping_sub(self.complete) >= EPOCHS_BEHIND_MAX
    }
}

impl Pending {
    pub fn new(
        db: Db,
        key: &[u8],
        entry: EntryBytes<'_>,
        access: Option<AccessStamp>,
        number: u32,
    ) -> Pending {
        Pending { db, key: key.into(), expiry: entry.expiry(), access, number, cursor: 0 }
    }
}

/// A field that was saved before its page changed.
pub(crate) struct SavedField {
    /// Empty if it lies in the value's body.
    pub name: Box<[u8]>,
    pub value: SavedText,
    pub expiry: Option<UnixMs>,
}

pub(crate) enum SavedText {
    Int(i64),
    Bytes(Box<[u8]>),
    /// A large body, shared, and whether it begins with the name.
    Shared(Form, Shared, bool),
}

impl SavedField {
    pub fn memory_bytes(&self) -> usize {
        let value = if let SavedText::Bytes(bytes) = &self.value { bytes.len() } else { 0 };
        size_of::<SavedField>() + self.name.len() + value
    }
}
