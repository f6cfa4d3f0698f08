//! What a snapshot emits that is not in memory: it is read from disk before a file gets it.
//!
//! ```text
//!   entry   its value      bundle   its keys      node   parts of the collection at hand
//! ```

use isotherm_keyspace::{SnapshotEntry, SnapshotItem, Value};

use super::Store;
use crate::tier::ReadError;
use crate::tier::in_order::InOrder;

/// An item, with what is not in memory of it. Where that is so, no lock is held.
pub fn with_value(
    store: Store<'_>,
    reading: &mut InOrder,
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
