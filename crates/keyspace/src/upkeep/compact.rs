//! Compaction: emptying sparse slabs, from cron, a few objects at a time.
//!
//! The arena names objects and their owners; here the owner's lock is tried (a busy partition is skipped),
//! the object's place in its directory is found - of a page by the hash of its first key, of a blob by the
//! hash in front of it - and the one reference to it is changed. Nothing else ever points at an object.

use crate::access::keyspace::Keyspace;
use crate::access::partition::Partition;
use crate::layout::directory;
use crate::layout::entry::{EntryBytes, Place};
use crate::layout::key::{slot_of_blob_head, tag_of};
use crate::layout::kind::Db;
use crate::layout::record::page_index;
use isotherm_arena::{Handle, Kind, Victim};
use isotherm_stdx::Slot;

/// Outcome of one step.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct CompactStep {
    pub moved: u64,
    /// Objects whose partition was busy, and those that left meanwhile.
    pub stayed: u64,
    /// The keys that lie in pages and blobs that were moved.
    pub keys: u64,
    /// True if there is more to do.
    pub more: bool,
}

impl Keyspace {
    /// Moves up to `objects_max` objects out of the sparsest slab of an arena.
    pub fn compact_step(&self, arena: usize, objects_max: usize) -> CompactStep {
        let arena = &self.arenas()[arena];
        let mut victims: Vec<Victim> = Vec::with_capacity(objects_max);
        let mut step =
            CompactStep { more: arena.victims(&mut victims, objects_max), ..CompactStep::default() };
        for victim in victims {
            match self.try_lock(victim.owner).and_then(|mut partition| relocate(&mut partition, &victim)) {
                Some(keys) => {
                    step.moved += 1;
                    step.keys += keys;
                }
                None => step.stayed += 1,
            }
        }
        step
    }

    /// Gives free memory of an arena back to the system, but `keep_chunks` of 16 KB. The bytes.
    pub fn trim(&self, keep_chunks: usize) -> usize {
        let mut bytes = 0;
        for arena in self.arenas() {
            loop {
                match arena.trim(keep_chunks) {
                    0 => break,
                    given => bytes += given,
                }
            }
        }
        bytes
    }
}

/// Moves an object that the arena wants moved; how many keys lie in it. Nothing if it has gone meanwhile,
/// or there is no room.
fn relocate(partition: &mut Partition, victim: &Victim) -> Option<u64> {
    if !partition.store.heap.arena().is_still(victim) {
        return None;
    }
    match victim.kind {
        Kind::Page => {
            let page = partition.store.heap.page(victim.handle);
            let keys = if page.owner().is_none() { page.len() as u64 } else { 0 };
            relocate_page(partition, victim.handle).then_some(keys)
        }
        Kind::Blob => relocate_blob(partition, victim.handle).then_some(1),
        Kind::Index => unreachable!("the arena never asks for these"),
        Kind::Node => partition.store.relocate_node(victim.handle).then_some(0),
    }
}

fn relocate_page(partition: &mut Partition, handle: Handle) -> bool {
    let (place, hash) = {
        let page = partition.store.heap.page(handle);
        if let Some(number) = page.owner() {
            return partition.store.relocate_page_of(number, handle);
        }
        let key = partition.store.key_of(EntryBytes(page.entry(page.spot(0))));
        (partition.geometry.place_of(Slot::of_key(key)), partition.store.hasher.hash(key))
    };
    let Some((db, index)) = find_page(partition, place, hash, handle) else {
        return relocate_flushed(partition);
    };
    let size = partition.store.heap.page(handle).0.len();
    let Ok((moved, _)) = partition.store.heap.reallocate(handle, size, size) else { return false };
    if moved == handle {
        return false;
    }
    let (table, store) = partition.table_and_store(db).expect("the page was found in it");
    let mut slot = table.slot(&store.heap, place);
    let before = slot.record;
    directory::set_page(&mut store.heap, &mut slot.record, index, Some(moved));
    table.store(&mut store.heap, &slot, &before);
    true
}

fn relocate_blob(partition: &mut Partition, handle: Handle) -> bool {
    let head = partition.store.heap.blob_hash(handle);
    let place = partition.geometry.place_of(slot_of_blob_head(head));
    let found = partition.used_databases().find_map(|db| {
        let table = partition.table(db)?;
        let record = table.slot(&partition.store.heap, place).record;
        if record.pages == 0 {
            return None;
        }
        let page = directory::get(&partition.store.heap, &record, page_index(head, record.pages)).0?;
        let spot = partition.store.heap.page(page).find(tag_of(head), |entry| refers_to(entry, handle))?;
        Some((page, spot))
    });
    let Some((page, spot)) = found else { return relocate_flushed(partition) };
    let mut bytes = partition.store.heap.page(page).entry(spot).to_vec();
    let body = EntryBytes(&bytes).body().expect("it refers to the blob");
    let size = crate::layout::entry::BLOB_HEAD_BYTES + body.len as usize;
    let Ok((moved, _)) = partition.store.heap.reallocate(handle, size, size) else { return false };
    let at = bytes.len() - 8;
    bytes[at..at + 4].copy_from_slice(&moved.raw().to_le_bytes());
    crate::layout::page::replace(partition.store.heap.page_mut(page), spot, &bytes);
    moved != handle
}

/// The object belongs to a database that was flushed: it goes soon, and stays where it is.
fn relocate_flushed(partition: &Partition) -> bool {
    assert!(partition.flushed_tables().next().is_some(), "every object is referred to");
    false
}

fn find_page(partition: &Partition, place: usize, hash: u64, handle: Handle) -> Option<(Db, u32)> {
    partition.used_databases().find_map(|db| {
        let record = partition.table(db)?.slot(&partition.store.heap, place).record;
        if record.pages == 0 {
            return None;
        }
        let index = page_index(hash, record.pages);
        (directory::get(&partition.store.heap, &record, index).0 == Some(handle)).then_some((db, index))
    })
}

fn refers_to(entry: &[u8], handle: Handle) -> bool {
    EntryBytes(entry).body().is_some_and(|body| body.place == Place::Blob && body.raw == handle.raw())
}

#[cfg(test)]
mod tests {
    use crate::*;
    use isotherm_arena::{Kind, Victim};

    /// Between `victims` and the partition's lock a slab may be emptied and made anew with objects of another
    /// kind.
    #[test]
    fn a_place_that_has_become_something_else_is_left_alone() {
        let config = Config {
            partitions: 1,
            arenas: 1,
            databases: 1,
            reserve_bytes: 1 << 20,
            hash_secret: [1; 16],
            class_bytes: |bytes| bytes,
        };
        let keyspace = Keyspace::new(config).expect("a megabyte of addresses is to be had");
        let mut partition = keyspace.lock(0);
        let kinds = [Kind::Page, Kind::Blob, Kind::Index];
        for listed_as in [Kind::Page, Kind::Blob] {
            for kind in kinds.into_iter().filter(|&kind| kind != listed_as) {
                let block = keyspace.arenas()[0].allocate(kind, 640, 0).expect("there is room");
                partition.store.heap.bytes_mut(block.handle, 640).fill(0xff);
                let victim = Victim { handle: block.handle, kind: listed_as, bytes: block.bytes, owner: 0 };
                assert_eq!(super::relocate(&mut partition, &victim), None);
                keyspace.arenas()[0].release(block.handle);
                assert_eq!(super::relocate(&mut partition, &victim), None);
            }
        }
    }
}
