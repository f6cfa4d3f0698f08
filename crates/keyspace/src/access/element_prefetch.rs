//! Prefetching inside a large collection: the lines that the next commands of a batch will need of it.
//!
//! A batch may go to one key: then `prefetch` has fetched its entry once and every command waits for its
//! element alone. So the elements of such a batch are walked together before they are asked for:
//!
//! ```text
//!   hash, set    place in the directory -> page's header and columns -> entry
//!   sorted set   page of the member index -> leaf
//! ```
//!
//! A stream is never packed, and pointers lead to its end: root, chain, block. Where a batch goes to many
//! streams, their ends are walked together (`prefetch_streams`).
//!
//! Unlike `prefetch` this runs under the lock of the partition, which a batch keeps, so what it reads is
//! true. A change between here and the command costs a wait, nothing else.

use crate::access::lock::Held;
use crate::access::prefetch::Intent;
use crate::layout::directory;
use crate::layout::entry::{EntryBytes, Place};
use crate::layout::heap::Heap;
use crate::layout::key::{Key, tag_of};
use crate::layout::kind::Db;
use crate::layout::page::Spot;
use crate::layout::record::{Record, buddy, page_index};
use crate::values::object::Object;
use crate::values::store::Store;
use crate::values::stream;
use isotherm_arena::{Handle, prefetch_value};

/// Elements that are walked together.
pub const PREFETCH_ELEMENTS_MAX: usize = 32;
/// Smaller collections lie in the near caches as a whole: 8192 x 40 B = 320 KB.
const ELEMENTS_MIN: u64 = 8192;
const TYPICAL_PAGE_BYTES: usize = 640;
/// Header and columns of 17 to 24 entries: 8 + 2 x 24.
const COLUMNS_END: usize = 56;
/// Offset of the last byte of an entry of 34 B.
const ENTRY_END: usize = 33;

/// Asks for the lines of these elements of the collection under `key`, whose partition is held.
pub fn prefetch_elements<'b>(
    held: &mut Held<'_>,
    db: Db,
    key: &Key<'_>,
    elements: impl Iterator<Item = &'b [u8]>,
    intent: Intent,
) {
    let partition = held.partition(key.slot);
    let Some(place) = partition.find(db, key) else { return };
    let store = &partition.store;
    let Some(number) = object_at(store, place) else { return };
    let object = &store.objects.get(number).body;
    if object.structure().len() < ELEMENTS_MIN {
        return;
    }
    let (mut hashes, mut count) = ([0; PREFETCH_ELEMENTS_MAX], 0);
    for (hash, element) in hashes.iter_mut().zip(elements) {
        *hash = store.hasher.hash(element);
        count += 1;
    }
    match object {
        Object::Hash(fields) | Object::Set(fields) => {
            prefetch_entries(&store.heap, &fields.record, &hashes[..count], intent);
        }
        Object::Zset(tree) => tree.prefetch(&store.heap, &hashes[..count]),
        Object::List(_) | Object::Stream(_) => {}
    }
}

/// Asks for the lines that XADD to the streams under these keys will touch. Keys whose partition is not
/// held are left out.
pub fn prefetch_streams<'b>(held: &mut Held<'_>, db: Db, keys: impl Iterator<Item = &'b Key<'b>>) {
    let (mut found, mut count) = ([(0, 0); PREFETCH_ELEMENTS_MAX], 0);
    for key in keys.take(PREFETCH_ELEMENTS_MAX) {
        if held.holds(key) {
            let partition = held.partition(key.slot);
            if let Some(number) = partition.find(db, key).and_then(|place| object_at(&partition.store, place))
            {
                partition.store.objects.prefetch(number);
                found[count] = (partition.number, number);
                count += 1;
            }
        }
    }
    for &(partition, number) in &found[..count] {
        prefetch_value(held.numbered(partition).store.objects.get(number));
    }
    for step in 0..stream::PREFETCH_STEPS {
        for &(partition, number) in &found[..count] {
            let store = &held.numbered(partition).store;
            if let Object::Stream(stream) = &store.objects.get(number).body {
                stream.prefetch(&store.heap, step);
            }
        }
    }
}

/// The number of the object that an entry names.
#[inline]
fn object_at(store: &Store, (page, spot): (Handle, Spot)) -> Option<u32> {
    let body = EntryBytes(store.heap.page(page).entry(spot)).body()?;
    (body.place == Place::Object).then_some(body.raw)
}

/// Entries under one record, by their hashes.
fn prefetch_entries(heap: &Heap, record: &Record, hashes: &[u64], intent: Intent) {
    let line = |page: Handle, at: usize| heap.arena().prefetch(page.raw(), at);
    for &hash in hashes {
        directory::prefetch(heap, record, page_index(hash, record.pages));
    }
    if intent.adds {
        // The next to split: 32 new entries split two pages.
        for next in record.pages..record.pages + 2 {
            let page = directory::get(heap, record, buddy(next)).0;
            page.into_iter()
                .for_each(|page| (0..TYPICAL_PAGE_BYTES).step_by(64).for_each(|at| line(page, at)));
        }
    }
    let mut pages = [None; PREFETCH_ELEMENTS_MAX];
    for (page, &hash) in pages.iter_mut().zip(hashes) {
        *page = directory::get(heap, record, page_index(hash, record.pages)).0;
        if let Some(page) = *page {
            line(page, 0);
            line(page, COLUMNS_END - 1);
        }
    }
    for (page, &hash) in pages.iter().zip(hashes) {
        let Some(page) = *page else { continue };
        let view = heap.page(page);
        match view.find(tag_of(hash), |_| true) {
            Some(spot) => [0, ENTRY_END].into_iter().for_each(|at| line(page, spot.offset + at)),
            // A new entry goes where the page ends, and often takes the whole page to a larger place.
            None if intent.adds => (COLUMNS_END..view.used() + 1).step_by(64).for_each(|at| line(page, at)),
            None => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use crate::*;

    /// Any element may be asked for, and nothing else happens. The fetch itself cannot be seen.
    #[test]
    fn any_element_of_any_collection_may_be_asked_for() {
        let (reserve_bytes, hash_secret) = (1 << 30, [7; 16]);
        let config = Config {
            partitions: 1,
            arenas: 1,
            databases: 1,
            reserve_bytes,
            hash_secret,
            class_bytes: |bytes| bytes,
        };
        let keyspace = Keyspace::new(config).expect("a gigabyte of addresses is to be had");
        let mut held = Held::new(&keyspace);
        held.acquire(Want::All);
        let names: Vec<String> = (0..10_000).map(|number| format!("element {number}")).collect();
        let conditions = Conditions { now: UnixMs(1), expiry_mode: ExpiryMode::Delete, no_touch: false };
        let mut sink = NoEffects;
        let mut txn = Txn::new(&mut held, conditions, &mut sink);
        let [hash, zset, list] = ["hash", "zset", "list"].map(|name| keyspace.key(name.as_bytes()));
        let limits = Limits::default();
        for (number, name) in names.iter().map(String::as_bytes).enumerate() {
            let set = |hash: &mut HashEdit<'_, '_>| hash.set(name, b"1", None, false).is_ok();
            assert!(txn.edit_hash(Db(0), &hash, &limits, set).expect("it is a hash").result);
            let set = |zset: &mut ZsetEdit<'_, '_>| zset.set(name, number as f64).is_ok();
            assert!(txn.edit_zset(Db(0), &zset, &limits, set).expect("it is a sorted set").result);
            let push = |list: &mut ListEdit<'_, '_>| list.push(End::Back, [name].into_iter()).is_ok();
            assert!(txn.edit_list(Db(0), &list, &limits, push).expect("it is a list").result);
        }
        for key in [hash, zset, list, keyspace.key(b"absent")] {
            let elements = names.iter().map(String::as_bytes).chain([&b""[..], b"absent"]);
            let elements: Vec<&[u8]> = elements.collect();
            for some in elements.chunks(7).chain([&elements[..]]) {
                let intent = Intent { adds: true, moves: true };
                prefetch_elements(&mut held, Db(0), &key, some.iter().copied(), intent);
            }
        }
        drop(held);
        keyspace.check_invariants();
    }
}
