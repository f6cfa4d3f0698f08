//! The memory of a keyspace broken down: where its memory is, by purpose, and what its entries are, by type
//! and encoding.
//!
//! ```text
//!   arenas, what lives there
//!     pages    keys + values + expiries + heads | page overhead | pages of collections | rounding
//!     blobs    (parts of entries, as above)                                            | rounding
//!     index    directories
//!     nodes    nodes of collections
//!   global allocator
//!     large bodies | roots and tables of collections | tables of the keyspace | kept for a snapshot
//! ```
//!
//! Everything is a sum that was kept when bytes were taken and given back; rounding is what the arena counts
//! by classes less what its users count by bytes. Reading it is a few additions per partition (`survey`).
//! While nothing changes, the first four lines are exactly what lives in the arenas.

use crate::access::keyspace::Keyspace;
use crate::access::lock::{Held, Want};
use crate::access::partition::Partition;
use crate::accounting::tally::{CLASSES, Class, ClassSums};
use crate::layout::entry::EntryBytes;
use crate::layout::kind::{Db, Encoding, Type};
use crate::layout::page::Page;
use crate::reports::prefixes;
use crate::reports::survey::Survey;
use crate::tables::table::Table;
use crate::values::object::{Footprint, Object};
use crate::values::store::Store;
use isotherm_arena::{ArenaStats, Kind, class_bytes};
use std::collections::BTreeMap;

/// Memory of a keyspace by its use, in bytes.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct Breakdown {
    /// Keys in pages and blobs.
    pub keys: u64,
    /// Values in pages and blobs: strings and small collections.
    pub values: u64,
    pub expiries: u64,
    /// Other bytes of entries: lengths, marks, references, hashes of blobs.
    pub heads: u64,
    /// Headers and columns of pages.
    pub page_overhead: u64,
    /// Slot records and where pages are.
    pub directories: u64,
    /// Nodes of large collections, pages of large hashes and sets.
    pub nodes: u64,
    /// Pages and blobs: their classes less what is in use of them.
    pub rounding: u64,
    /// Strings and elements above 4 KB.
    pub large: u64,
    /// Roots and tables of large collections.
    pub roots: u64,
    /// Tables of the keyspace itself, in the global allocator.
    pub tables: u64,
    /// Kept for a snapshot because it was written since the cut.
    pub snapshot: u64,
}

impl Breakdown {
    /// Returns the bytes that live in the arenas.
    pub fn arena_bytes(&self) -> u64 {
        self.keys
            + self.values
            + self.expiries
            + self.heads
            + self.page_overhead
            + self.directories
            + self.nodes
            + self.rounding
    }

    /// Adds a table, and what is in use in its pages and blobs to `used`.
    pub(crate) fn add_table(&mut self, table: &Table, used: &mut u64) {
        let (tally, totals) = (&table.tally, table.tally.totals);
        let keys = tally.key_bytes() - totals.elsewhere[0];
        let values = tally.value_bytes() - totals.elsewhere[1];
        self.keys += keys;
        self.values += values;
        self.expiries += totals.expiry_bytes;
        self.heads += tally.entry_bytes() + totals.blob_bytes - keys - values - totals.expiry_bytes;
        self.page_overhead += table.page_bytes - tally.entry_bytes();
        self.tables += table.malloc_bytes() as u64;
        *used += table.page_bytes + totals.blob_bytes;
    }

    /// Adds what a partition has in addition to the tables of its databases.
    pub(crate) fn add_partition(&mut self, partition: &Partition, used: &mut u64) {
        partition.flushed_tables().for_each(|table| self.add_table(table, used));
        let store = &partition.store;
        let Footprint { page_bytes, malloc_bytes, .. } = store.objects.footprint();
        self.nodes += page_bytes;
        self.roots += malloc_bytes;
        *used += page_bytes;
        self.tables += (store.objects.table_bytes() + store.large.table_bytes()) as u64;
        self.tables += partition.malloc_bytes() as u64;
        self.snapshot += partition.snapshot_bytes();
    }

    /// Adds the figures of the arenas and those of the keyspace as a whole. Pages and blobs counted in `used`
    /// may have been given back since.
    pub(crate) fn close(&mut self, keyspace: &Keyspace, arenas: &[ArenaStats], used: u64) {
        arenas.iter().for_each(|stats| self.add_arena(stats));
        self.rounding = self.rounding.saturating_sub(used);
        self.large = keyspace.shared().large.bytes();
        self.tables += keyspace.shared().counters.attribution.memory_bytes() as u64;
    }

    fn add_arena(&mut self, stats: &ArenaStats) {
        let live = |kind: Kind| stats.by_kind[kind as usize].live_bytes;
        self.directories += live(Kind::Index);
        self.nodes += live(Kind::Node);
        self.rounding += live(Kind::Page) + live(Kind::Blob);
    }
}

/// A type in one of its encodings in one database.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ClassBreakdown {
    pub db: Db,
    pub kind: Type,
    pub encoding: Encoding,
    pub sums: ClassSums,
}

/// Returns the bytes that pages and blobs lose to their classes, counted one by one.
fn counted_rounding(partition: &Partition) -> u64 {
    let (store, mut rounding) = (&partition.store, 0);
    for root in store.objects.iter().map(|(_, root)| root) {
        if let Object::Hash(fields) | Object::Set(fields) = &root.body {
            let mut add = |page: Page<'_>| rounding += (page.0.len() - page.used()) as u64;
            fields.for_each_page(&store.heap, &mut add);
        }
    }
    for table in partition.all_tables() {
        for at in table.slots_with_keys(&store.heap) {
            table.for_each_page(&store.heap, at, |_, page| {
                let page = store.heap.page(page);
                rounding += (page.0.len() - page.used()) as u64;
                rounding += page.spots().map(|spot| blob_rounding(store, page.entry(spot))).sum::<u64>();
            });
        }
    }
    rounding
}

fn blob_rounding(store: &Store, entry: &[u8]) -> u64 {
    match store.account(EntryBytes(entry)).blob_bytes as usize {
        0 => 0,
        bytes => (class_bytes(Kind::Blob, bytes) - bytes) as u64,
    }
}

impl Keyspace {
    /// Asserts everything that the files of this crate call an invariant. Takes the gate.
    pub fn check_invariants(&self) {
        let mut held = Held::new(self);
        held.acquire(Want::All);
        held.check_invariants();
    }

    /// Asserts that what is reported is that of what is there.
    pub(crate) fn check_reports(&self, held: &mut Held<'_>) {
        prefixes::check(held);
        let (breakdown, _) = Survey::new(held).breakdown();
        assert_eq!(breakdown.rounding, held.all().map(counted_rounding).sum::<u64>());
        assert_eq!(
            breakdown.arena_bytes(),
            self.arenas().iter().map(|arena| arena.live_bytes()).sum::<u64>()
        );
    }
}

/// Classes of all tables, added up.
#[derive(Default)]
pub(crate) struct ClassList(BTreeMap<(Db, Class), ClassSums>);

impl ClassList {
    pub fn add(&mut self, db: Db, table: &Table) {
        for (kind, encoding, sums) in table.tally.classes() {
            self.0.entry((db, Class::new(kind, encoding))).or_default().merge(sums);
        }
    }

    pub fn sorted(self) -> Vec<ClassBreakdown> {
        let class = |((db, class), sums): ((Db, Class), ClassSums)| {
            let (kind, encoding) = CLASSES[class.number()];
            ClassBreakdown { db, kind, encoding, sums }
        };
        self.0.into_iter().map(class).collect()
    }
}
