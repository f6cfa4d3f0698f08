//! Reports of the prefixes and keys that take the memory, and the test that the counts kept for them are
//! those of the keys that exist.

use crate::access::keyspace::Keyspace;
use crate::access::lock::Held;
use crate::accounting::attribution::{Counted, PrefixError, PrefixReport, PrefixSettings, Size};
use crate::layout::entry::EntryBytes;
use crate::tables::table::Table;
use crate::values::store::Store;
use std::sync::atomic::Ordering::Relaxed;

impl Keyspace {
    /// Sets how prefixes of keys are counted from now on. Called once, before there are keys.
    pub fn plan_prefixes(&self, settings: PrefixSettings) -> Result<(), PrefixError> {
        if self.shared().counters.weights.iter().any(|weight| weight.keys.load(Relaxed) > 0) {
            return Err(PrefixError::HasKeys);
        }
        self.shared().counters.attribution.prefixes.plan(settings)
    }

    /// Returns the keys and memory under the prefixes that have `depth` separators, the one after them
    /// counted (from 1 to `PREFIX_DEPTH_MAX`). `None` if that is not counted.
    pub fn prefixes(&self, depth: usize) -> Option<PrefixReport> {
        self.shared().counters.attribution.prefixes.report(depth)
    }
}

impl Held<'_> {
    /// Asserts that what is kept is that of the keys that there are.
    pub(crate) fn check_attribution(&self) {
        let mut all = Vec::new();
        for partition in self.all() {
            for table in partition.used_databases().filter_map(|db| partition.table(db)) {
                table.count_all(&partition.store, &mut all);
            }
        }
        let attribution = &self.keyspace.shared().counters.attribution;
        attribution.largest.check_invariants(&all);
        for partition in self.all() {
            for flushed in partition
                .flushed
                .iter()
                .chain(&partition.flushed_since)
                .filter(|flushed| flushed.is_attributed)
            {
                flushed.table().count_all(&partition.store, &mut all);
            }
        }
        attribution.prefixes.check_invariants(&all);
    }
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
