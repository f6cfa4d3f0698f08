//! What a snapshot emits that is not in memory: it is read from disk before a file gets it.
//!
//! ```text
//!   entry   its value      bundle   its keys      node   parts of the collection at hand
//! ```

use isotherm_keyspace::{SnapshotEntry, SnapshotItem, Value};

use super::Store;
use crate::process::log;
use crate::tier::in_order::InOrder;
use crate::tier::{ReadError, damaged_text};

/// What reads for one file.
#[derive(Default)]
pub struct Reading {
    in_order: InOrder,
    /// Of the collection whose parts come.
    key: Vec<u8>,
}

impl Reading {
    /// An item comes.
    pub fn note(&mut self, item: &SnapshotItem<'_>) {
        if let SnapshotItem::Begin { key, .. } = item {
            self.key.clear();
            self.key.extend_from_slice(key);
        }
    }

    /// What an item belongs to, for the server's log.
    pub fn owner_of(&self, store: Store<'_>, item: &SnapshotItem<'_>) -> String {
        let key = match item {
            // Which keys these are only their record says.
            SnapshotItem::Bundle(bundle) => {
                return damaged_text((bundle.db, bundle.slot), bundle.reference, bundle.keys());
            }
            SnapshotItem::Entry(entry) => entry.key,
            _ => &self.key,
        };
        log::name_of_key(store.config.hides_user_data(), key)
    }
}

/// An item, with what is not in memory of it. Where that is so, no lock is held.
pub fn with_value(
    store: Store<'_>,
    Reading { in_order: reading, .. }: &mut Reading,
    item: SnapshotItem<'_>,
    mut visit: impl FnMut(SnapshotItem<'_>),
) -> Result<(), ReadError> {
    if let SnapshotItem::Bundle(bundle) = &item {
        let tier = store.cold.disk().expect("keys leave memory to a disk");
        let payload = reading.read(tier, bundle.reference, bundle.name.as_bytes())?;
        let entries = bundle.entries(&payload).ok_or(ReadError::OtherKey)?;
        entries.into_iter().for_each(|entry| visit(SnapshotItem::Entry(entry)));
        return Ok(());
    }
    if let SnapshotItem::Node(node) = &item {
        let tier = store.cold.disk().expect("parts of collections leave memory to a disk");
        let payload = reading.read(tier, node.reference(), node.name().as_bytes())?;
        let is_one = node.parts(&payload, |part| visit(SnapshotItem::Part(part)));
        return if is_one { Ok(()) } else { Err(ReadError::OtherKey) };
    }
    if let SnapshotItem::Entry(entry) = &item
        && let Value::Cold(cold) = entry.value
    {
        let tier = store.cold.disk().expect("values leave memory to a disk");
        let bytes = reading.read(tier, cold.reference, entry.key)?;
        let read = cold.with_bytes(&bytes);
        visit(SnapshotItem::Entry(SnapshotEntry { value: read.value(), ..*entry }));
        return Ok(());
    }
    visit(item);
    Ok(())
}
