//! Items of a snapshot that are not in memory: they are read from disk before a file gets them.
//!
//! ```text
//!   entry   its value      bundle   its keys      node   parts of the collection at hand
//! ```

use isotherm_keyspace::{ColdRef, SnapshotEntry, SnapshotItem, Value};
use std::borrow::Cow;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

use isotherm_node::persistence::Store;
use isotherm_node::persistence::state::{Asker, Job, READ_MAX};
use isotherm_node::tier::in_order::InOrder;
use isotherm_node::tier::reads::GivesUp;
use isotherm_node::tier::{ReadError, damaged_text};
use isotherm_runtime::log;

/// Reader of records on disk, for one file.
pub struct Reading {
    in_order: InOrder,
    job: Job,
    /// Key of the collection whose parts are being read.
    key: Vec<u8>,
}

impl Reading {
    /// Reads for the walk that is under way.
    pub fn of_walk(store: Store<'_>) -> Reading {
        let running = store.state.saving().running;
        let job = running.map_or(Job::BackgroundSave, |running| running.job);
        Reading { in_order: InOrder::default(), job, key: Vec::new() }
    }

    /// A record on disk, unless the file is cancelled or the disk does not answer.
    fn read(
        &mut self,
        store: Store<'_>,
        reference: ColdRef,
        name: &[u8],
    ) -> Result<Cow<'_, [u8]>, ReadError> {
        let tier = store.tier.expect("keys, values and nodes leave memory to a disk");
        let read_max = match self.job {
            Job::Save(Asker::Client) => store.config.swap_read_timeout().unwrap_or(READ_MAX),
            // The process ends without the file (`guard`).
            Job::Save(Asker::Signal | Asker::Holder) => Duration::MAX,
            Job::BackgroundSave | Job::Rewrite | Job::Stream => READ_MAX,
        };
        let gives_up = |waited| waited > read_max || store.state.is_cancelled.load(Relaxed);
        let is_held = self.job == Job::Save(Asker::Holder);
        let gives_up = Some(&gives_up as &GivesUp<'_>).filter(|_| !is_held);
        store.state.progress.moves.fetch_add(1, Relaxed);
        self.in_order.read(tier, reference, name, gives_up)
    }

    /// An item comes.
    pub fn note(&mut self, item: &SnapshotItem<'_>) {
        if let SnapshotItem::Begin { key, .. } = item {
            self.key.clear();
            self.key.extend_from_slice(key);
        }
    }

    /// Returns the owner of an item, for the server's log.
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
    reading: &mut Reading,
    item: SnapshotItem<'_>,
    mut visit: impl FnMut(SnapshotItem<'_>),
) -> Result<(), ReadError> {
    if let SnapshotItem::Bundle(bundle) = &item {
        let payload = reading.read(store, bundle.reference, bundle.name.as_bytes())?;
        let entries = bundle.entries(&payload).ok_or(ReadError::OtherKey)?;
        entries.into_iter().for_each(|entry| visit(SnapshotItem::Entry(entry)));
        return Ok(());
    }
    if let SnapshotItem::Node(node) = &item {
        let payload = reading.read(store, node.reference(), node.name().as_bytes())?;
        let is_one = node.parts(&payload, |part| visit(SnapshotItem::Part(part)));
        return if is_one { Ok(()) } else { Err(ReadError::OtherKey) };
    }
    if let SnapshotItem::Entry(entry) = &item
        && let Value::Cold(cold) = entry.value
    {
        let bytes = reading.read(store, cold.reference, entry.key)?;
        let read = cold.with_bytes(&bytes);
        visit(SnapshotItem::Entry(SnapshotEntry { value: read.value(), ..*entry }));
        return Ok(());
    }
    visit(item);
    Ok(())
}
