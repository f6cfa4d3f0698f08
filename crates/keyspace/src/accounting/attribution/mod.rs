//! Who takes the memory: which prefixes of keys, which single keys. Told every change of an entry that changes its size or
//! whether it has an expiry, under the lock of its partition; kept for the whole keyspace, at a fixed size.
//!
//! ```text
//!   change  ->  sizes      histograms of the table itself                                   (`sizes`)
//!           ->  largest    a comparison; only those that enter or leave go on, to a lock    (`largest`)
//!           ->  prefixes   one key of 16 by its tag, and the large; only those go on        (`prefixes`)
//! ```
//! Which entries go on depends on the entry alone, never on when it is looked at, so what is added when it comes is
//! what is taken off when it leaves.

mod largest;
mod prefixes;
mod sketch;

use crate::access::lock::{Held, Keyspace};
use crate::accounting::tally::Account;
use crate::layout::entry::EntryBytes;
use crate::layout::key::KeyHasher;
use crate::tables::store::Store;
use crate::tables::table::Table;
use std::sync::atomic::Ordering::Relaxed;

pub(crate) use largest::Largest;
pub use largest::{LargeKey, LargestKeys};
pub(crate) use prefixes::Prefixes;
pub use prefixes::{
    PREFIX_DEPTH_MAX, PREFIX_PINS_MAX, PrefixError, PrefixReport, PrefixSettings, PrefixShare,
};

pub(crate) struct Attribution {
    pub largest: Largest,
    pub prefixes: Prefixes,
}

/// What an entry takes, as far as it matters here.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Size {
    pub bytes: u64,
    pub is_volatile: bool,
}

impl Size {
    #[inline]
    pub fn of(account: &Account) -> Size {
        Size { bytes: account.memory_bytes(), is_volatile: account.expiry_bytes > 0 }
    }
}

/// An entry whose size is another now, or that was not there, or is no longer.
#[derive(Clone, Copy)]
pub(crate) struct Change<'a> {
    /// Which table it is in: `Table::number`.
    pub table: u32,
    pub key: &'a [u8],
    /// The tag of its hash.
    pub tag: u8,
    pub old: Option<Size>,
    pub new: Option<Size>,
}

impl Attribution {
    pub fn new(hasher: KeyHasher) -> Attribution {
        Attribution { largest: Largest::new(hasher), prefixes: Prefixes::new(hasher) }
    }

    #[inline]
    pub fn note(&self, change: &Change<'_>) {
        if change.old == change.new {
            return;
        }
        self.largest.note(change);
        self.prefixes.note(change);
    }

    /// All keys are gone.
    pub fn clear(&self) {
        self.largest.clear();
        self.prefixes.clear();
    }

    /// What it has of the global allocator.
    pub fn memory_bytes(&self) -> usize {
        self.largest.memory_bytes() + self.prefixes.memory_bytes()
    }
}

/// A key that is there, with what its entry takes.
pub(crate) struct Counted<'a> {
    pub table: u32,
    pub key: &'a [u8],
    pub tag: u8,
    pub size: Size,
}

impl Keyspace {
    /// How prefixes of keys are counted from now on. Said once, before there are keys.
    pub fn plan_prefixes(&self, settings: PrefixSettings) -> Result<(), PrefixError> {
        if self.shared().weights.iter().any(|weight| weight.keys.load(Relaxed) > 0) {
            return Err(PrefixError::HasKeys);
        }
        self.shared().attribution.prefixes.plan(settings)
    }

    /// What the prefixes of keys take that have `depth` separators, the one behind them counted (from 1 to
    /// `PREFIX_DEPTH_MAX`). `None` if that is not counted.
    pub fn prefixes(&self, depth: usize) -> Option<PrefixReport> {
        self.shared().attribution.prefixes.report(depth)
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
        let attribution = &self.keyspace.shared().attribution;
        attribution.largest.check_invariants(&all);
        for partition in self.all() {
            for flushed in partition.flushed.iter().filter(|flushed| flushed.is_attributed) {
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
