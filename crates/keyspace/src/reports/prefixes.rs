//! Test that the counts kept for prefixes and the largest keys are those of the keys that exist.

use crate::access::lock::Held;
use crate::accounting::attribution::{Counted, Size};
use crate::layout::entry::EntryBytes;
use crate::tables::table::Table;
use crate::values::store::Store;

/// Asserts that what is kept is that of the keys that there are.
pub(super) fn check(held: &Held<'_>) {
    let mut all = Vec::new();
    for partition in held.all() {
        for table in partition.used_databases().filter_map(|db| partition.table(db)) {
            table.count_all(&partition.store, &mut all);
        }
    }
    let attribution = &held.keyspace.shared().counters.attribution;
    attribution.largest.check_invariants(&all);
    for partition in held.all() {
        for flushed in
            partition.flushed.iter().chain(&partition.flushed_since).filter(|flushed| flushed.is_attributed)
        {
            flushed.table().count_all(&partition.store, &mut all);
        }
    }
    attribution.prefixes.check_invariants(&all);
}

impl Table {
    fn count_all<'a>(&self, store: &'a Store, all: &mut Vec<Counted<'a>>) {
        for at in self.slots_with_keys(&store.heap) {
            self.for_each_page(&store.heap, at, |_, page| {
                let page = store.heap.page(page);
                all.extend(page.spots().map(|spot| {
                    let entry = EntryBytes(page.entry(spot));
                    let (key, size) = (store.key_of(entry), Size::of(&store.account(entry)));
                    Counted { table: self.number, key, tag: page.tag(spot.index), size }
                }));
            });
        }
    }
}
