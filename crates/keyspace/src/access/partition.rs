//! Partition: the databases' share of its slots, and the clients that watch its keys.

use crate::access::followers::Followers;
use crate::access::lease::Leases;
use crate::access::shared;
use crate::access::shared::Config;
use crate::access::watch::Presence;
use crate::layout::bundle::BundleAt;
use crate::layout::cold::ColdRef;
use crate::layout::entry::EntryBytes;
use crate::layout::heap::Heap;
use crate::layout::key::Key;
use crate::layout::kind::{Db, Expiry, Full, NewValue};
use crate::layout::large::Large;
use crate::layout::last_used::AccessMode;
use crate::layout::packed::PackedBuf;
use crate::layout::page::{self, Spot};
use crate::tables::flushed::Flushed;
use crate::tables::frozen::BundleAddress;
use crate::tables::geometry::Geometry;
use crate::tables::location::Location;
use crate::tables::table::{Layout, Table};
use crate::values::cold::Cold;
use crate::values::object::Objects;
use crate::values::saved::SnapshotState;
use crate::values::store::Store;
use crate::values::value::Entry;
use isotherm_arena::{Arena, Handle};
use isotherm_stdx::{Prng, Slot, Steps, UnixMs};
use std::collections::{BTreeSet, VecDeque};
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;

pub(crate) struct Partition {
    pub store: Store,
    pub number: u16,
    pub geometry: Geometry,
    tables: Vec<Option<Box<Table>>>,
    /// Databases that have a table, ascending: one configured is not one used.
    used: Vec<u16>,
    /// Tables of databases that were flushed, still to be freed.
    pub flushed: VecDeque<Flushed>,
    /// Flushed tables that were there at the cut of the snapshot under way: they stay until it is over.
    pub flushed_since: Vec<Flushed>,
    pub followers: Followers,
    pub expiry_turn: ExpiryTurn,
    /// Leases of keys. The field lies after those that each command touches.
    pub leases: Leases,
    shared: Arc<shared::Shared>,
}

/// Position at which the expiry cycle of a partition continues.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct ExpiryTurn {
    /// The number of a database; the one after the last stands for the fields of hashes.
    pub at: usize,
    /// Number of turns in a row that have left nothing that is due.
    pub done: usize,
}

impl Partition {
    pub fn new(
        number: u16,
        geometry: Geometry,
        config: &Config,
        arena: Arc<Arena>,
        shared: Arc<shared::Shared>,
    ) -> Partition {
        let secret = u64::from_le_bytes(config.hash_secret[..8].try_into().expect("eight of sixteen bytes"));
        let store = Store {
            heap: Heap::new(arena, number),
            large: Large::new(&shared.large),
            access: AccessMode::Page,
            lfu_log_factor: 10,
            prng: Prng::new(secret ^ u64::from(number)),
            hasher: crate::layout::key::KeyHasher::new(config.hash_secret),
            snapshot: SnapshotState::new(&shared.kept),
            objects: Objects::new(&shared.kept),
            freed_at_once_max: crate::values::object::FREED_AT_ONCE_MAX,
            unfreed: Arc::clone(&shared.unfreed[usize::from(number)]),
            lazy: Arc::clone(&shared.lazy),
            counts_lazy: true,
            field_bounds: BTreeSet::new(),
            scratch: PackedBuf::default(),
            scratch_bytes: Vec::new(),
            cold: Cold::default(),
            lent: None,
        };
        let tables = (0..config.databases).map(|_| None).collect();
        Partition {
            store,
            number,
            geometry,
            tables,
            used: Vec::new(),
            flushed: VecDeque::new(),
            flushed_since: Vec::new(),
            followers: Followers::default(),
            expiry_turn: ExpiryTurn::default(),
            leases: Leases::default(),
            shared,
        }
    }

    #[inline]
    pub fn table(&self, db: Db) -> Option<&Table> {
        self.tables[usize::from(db.0)].as_deref()
    }

    /// A table and the store it lies in, to change both.
    #[inline]
    pub fn table_and_store(&mut self, db: Db) -> Option<(&mut Table, &mut Store)> {
        Some((self.tables[usize::from(db.0)].as_deref_mut()?, &mut self.store))
    }

    // ---- one key ----

    /// Returns the page and the spot of a key's entry.
    #[inline(always)]
    pub fn find(&self, db: Db, key: &Key<'_>) -> Option<(Handle, Spot)> {
        self.table(db)?.find(&self.store, self.geometry.place_of(key.slot), key)
    }

    #[inline(always)]
    pub fn is_stale(&self, (page, spot): (Handle, Spot), now: UnixMs) -> bool {
        EntryBytes(self.store.heap.page(page).entry(spot)).expiry().is_some_and(|at| at < now)
    }

    pub fn locate(&self, db: Db, key: &Key<'_>) -> Option<Location> {
        self.locate_in_place(db, key)
    }

    /// Returns the location of a key, or the one that it would have. Inlined for the one caller that most
    /// commands come through: a location is large, and copied where it is returned.
    #[inline(always)]
    pub fn locate_in_place(&self, db: Db, key: &Key<'_>) -> Option<Location> {
        let table = self.table(db)?;
        Some(table.locate(&self.store, self.geometry.place_of(key.slot), key))
    }

    /// Returns the location of a key that was just looked for: its entry is at `spot`, or it has none.
    #[inline]
    pub fn locate_seen(&self, db: Db, key: &Key<'_>, spot: Option<Spot>) -> Option<Location> {
        let table = self.table(db)?;
        let location = table.locate_seen(&self.store, self.geometry.place_of(key.slot), key, spot);
        debug_assert_eq!(location.page.and_then(|page| self.store.find(page, key)), spot);
        Some(location)
    }

    pub fn presence(&self, db: Db, key: &Key<'_>, now: UnixMs) -> Presence {
        match self.find(db, key) {
            // Whether it really is there only its record would say.
            None if self.has_frozen() && self.proposal(db, key).is_some() => Presence::Alive,
            None => Presence::Absent,
            Some(place) if self.is_stale(place, now) => Presence::Stale,
            Some(_) => Presence::Alive,
        }
    }

    /// An entry that was just found, to read.
    #[inline]
    pub fn read(&self, (page, spot): (Handle, Spot), now: UnixMs) -> Entry<'_> {
        Entry::of(&self.store, self.store.heap.page(page), spot, now)
    }

    /// Refreshes the access stamp of an entry that was just found. Where it is then.
    #[inline]
    pub fn touch_at(&mut self, db: Db, key: &Key<'_>, place: (Handle, Spot), now: UnixMs) -> (Handle, Spot) {
        if self.store.touch(place.0, place.1.index, now) {
            return place;
        }
        self.give_access_column(db, key, now);
        self.find(db, key).expect("it was found")
    }

    /// The page has no access column of the width in force (the policy was switched): it gets one.
    #[cold]
    fn give_access_column(&mut self, db: Db, key: &Key<'_>, now: UnixMs) {
        let location = self.locate(db, key).expect("it was found");
        let (table, store) = self.table_and_store(db).expect("it was found");
        // Without memory for a larger page it stays without a column: its entries count as just used.
        let _ = table.convert_page(store, &location, now);
    }

    pub fn set_at(
        &mut self,
        db: Db,
        location: Option<Location>,
        key: &Key<'_>,
        value: NewValue<'_>,
        expiry: Expiry,
        now: UnixMs,
    ) -> Result<(), Full> {
        let mut location = self.make_location(db, location, key)?;
        let (table, store) = self.table_and_store(db).expect("the table is there");
        let done = table.set(store, &mut location, key, value, expiry, now);
        if done.is_err() {
            self.drop_table_if_empty(db);
        }
        done
    }

    /// Stores the value of a key that was just looked for: its entry is at `spot`, or it has none.
    #[inline]
    pub fn set_seen(
        &mut self,
        db: Db,
        spot: Option<Spot>,
        key: &Key<'_>,
        value: NewValue<'_>,
        expiry: Expiry,
        now: UnixMs,
    ) -> Result<(), Full> {
        let place = self.geometry.place_of(key.slot);
        let Some((table, store)) = self.table_and_store(db) else {
            return self.set_at(db, None, key, value, expiry, now);
        };
        // Where it is built it is changed: a location is large, and each return would copy it.
        let mut location = table.locate_seen(store, place, key, spot);
        debug_assert_eq!(location.page.and_then(|page| store.find(page, key)), spot);
        let done = table.set(store, &mut location, key, value, expiry, now);
        if done.is_err() {
            self.drop_table_if_empty(db);
        }
        done
    }

    /// Removes the `dead` entries of a page (all of them volatile); `bound` is that of the rest.
    pub fn remove_dead(
        &mut self,
        db: Db,
        place: usize,
        index: u32,
        dead: &[bool; page::ENTRIES_MAX],
        bound: u32,
        now: UnixMs,
    ) {
        let (table, store) = self.table_and_store(db).expect("the slot has pages");
        table.remove_dead(store, place, index, dead, bound, now);
        if table.is_empty() {
            self.drop_table(db);
        }
    }

    /// Removes the entry at a location that was just found.
    pub fn remove_at(&mut self, db: Db, location: &Location, now: UnixMs) {
        let (table, store) = self.table_and_store(db).expect("it was found");
        table.remove(store, location, now);
        self.drop_table_if_empty(db);
    }

    /// `location`, or that of the key in a table that is made now.
    #[inline]
    pub fn make_location(
        &mut self,
        db: Db,
        location: Option<Location>,
        key: &Key<'_>,
    ) -> Result<Location, Full> {
        match location {
            Some(location) => Ok(location),
            None => {
                self.make_table(db)?;
                Ok(self.locate(db, key).expect("the table is there"))
            }
        }
    }

    // ---- whole databases ----

    pub fn len(&self, db: Db) -> u64 {
        self.table(db).map_or(0, Table::len)
    }

    /// Returns the number of keys in pages.
    pub fn len_in_pages(&self, db: Db) -> u64 {
        self.table(db).map_or(0, |table| table.keys)
    }

    pub fn volatile_len(&self, db: Db) -> u64 {
        self.table(db).map_or(0, Table::volatile_len)
    }

    /// Returns the number of keys in pages that expire.
    pub fn volatile_len_in_pages(&self, db: Db) -> u64 {
        self.table(db).map_or(0, |table| table.volatile)
    }

    /// Calls `visit` with every entry of a slot, or of all slots. Returns false if frozen ones could not be
    /// read.
    pub fn for_each(
        &self,
        db: Db,
        slot: Option<Slot>,
        now: UnixMs,
        visit: &mut dyn FnMut(&[u8], &Entry<'_>),
    ) -> bool {
        let Some(table) = self.table(db) else { return true };
        let mut is_whole = true;
        match slot {
            Some(slot) if self.geometry.partition_of(slot) != self.number => {}
            Some(slot) => {
                let place = self.geometry.place_of(slot);
                self.for_each_in(table, place, now, visit);
                is_whole = self.for_each_frozen(table, place, visit);
            }
            None => {
                table
                    .slots_with_keys(&self.store.heap)
                    .for_each(|at| self.for_each_in(table, at, now, visit));
                let frozen = || table.frozen.as_ref();
                let mut next = frozen().and_then(|frozen| frozen.next_slot(0));
                while let Some(place) = next {
                    is_whole &= self.for_each_frozen(table, place, visit);
                    next = frozen().and_then(|frozen| frozen.next_slot(place + 1));
                }
            }
        }
        is_whole
    }

    fn for_each_in(&self, table: &Table, at: usize, now: UnixMs, visit: &mut dyn FnMut(&[u8], &Entry<'_>)) {
        table.for_each_page(&self.store.heap, at, |_, page| self.visit_page(page, now, visit));
    }

    fn for_each_frozen(&self, table: &Table, place: usize, visit: &mut dyn FnMut(&[u8], &Entry<'_>)) -> bool {
        let mut bundles = table.bundles_from(BundleAddress::first_of(place));
        bundles.all(|(address, bundle)| {
            bundle.visit(&self.store, &address, &mut |_, key, entry| visit(key, entry))
        })
    }

    /// Returns what names a bundle of a table for others.
    pub fn bundle_of(&self, db: Db, address: &BundleAddress, reference: ColdRef) -> BundleAt {
        let spread = self.geometry.spread_of(self.number, address.place());
        BundleAt { db, slot: Geometry::slot_at(spread), name: address.name(), reference }
    }

    pub fn visit_page(&self, page: Handle, now: UnixMs, visit: &mut dyn FnMut(&[u8], &Entry<'_>)) {
        let page = self.store.heap.page(page);
        for spot in page.spots() {
            visit(self.store.key_of(EntryBytes(page.entry(spot))), &Entry::of(&self.store, page, spot, now));
        }
    }

    pub fn swap(&mut self, a: Db, b: Db, now: UnixMs) {
        let mut watches = std::mem::take(&mut self.followers.watches);
        for (db, other) in [(a, b), (b, a)] {
            let presence = |db: Db, key: &[u8]| self.presence(db, &self.store.hasher.key(key), now);
            watches.replace(db, |key| presence(db, key), |key| presence(other, key));
        }
        self.followers.watches = watches;
        self.tables.swap(usize::from(a.0), usize::from(b.0));
        for db in [a, b] {
            self.note_used(db);
            self.publish_root(db);
        }
    }

    /// Flags clients that watch keys of a database: it is being emptied.
    pub fn touch_flushed(&mut self, db: Db, now: UnixMs) {
        let mut watches = std::mem::take(&mut self.followers.watches);
        watches.replace(db, |key| self.presence(db, &self.store.hasher.key(key), now), |_| Presence::Absent);
        self.followers.watches = watches;
    }

    pub fn make_table(&mut self, db: Db) -> Result<(), Full> {
        if self.table(db).is_none() {
            let mut table = Table::new(
                &mut self.store.heap,
                self.geometry.slots_per_partition(),
                if db == Db(0) { Layout::Whole } else { Layout::Sparse },
                self.number,
                &self.shared.counters,
            )?;
            // A table that is made after the cut is not part of the snapshot.
            table.snapshot_db = if self.store.snapshot.is_active() { Db::HIDDEN } else { db };
            self.tables[usize::from(db.0)] = Some(Box::new(table));
            self.note_used(db);
            self.publish_root(db);
        }
        Ok(())
    }

    /// Drops the table of a database after its last key has left, or its first has found no room.
    #[inline]
    pub fn drop_table_if_empty(&mut self, db: Db) {
        if self.table(db).is_some_and(Table::is_empty) {
            self.drop_table(db);
        }
    }

    fn drop_table(&mut self, db: Db) {
        let table = self.take_table(db).expect("it is there");
        table.free_empty(&mut self.store);
    }

    /// The database has no keys here from now on.
    pub fn take_table(&mut self, db: Db) -> Option<Box<Table>> {
        let table = self.tables[usize::from(db.0)].take();
        self.note_used(db);
        self.publish_root(db);
        table
    }

    /// A database has got a table, or lost it.
    fn note_used(&mut self, db: Db) {
        match (self.used.binary_search(&db.0), self.table(db).is_some()) {
            (Err(at), true) => self.used.insert(at, db.0),
            (Ok(at), false) => _ = self.used.remove(at),
            _ => {}
        }
    }

    /// Publishes the root of a database's table, where prefetch hints begin.
    fn publish_root(&self, db: Db) {
        let raw = self.table(db).map_or(0, |table| table.index().raw());
        self.shared.root(self.number, db).store(raw, Relaxed);
    }

    /// Takes a database's keys out of sight; how many. Prefixes and the largest keys, which are counted over
    /// all databases, lose each key when it is freed, or all at once if no other database has keys.
    /// `is_lazy`: no client waits for that.
    pub fn flush(&mut self, db: Db, others_stay: bool, is_lazy: bool) -> u64 {
        let Some(mut table) = self.take_table(db) else { return 0 };
        table.mark_flushed();
        if others_stay {
            table.forget_largest();
        }
        let keys = table.len();
        if is_lazy {
            self.store.lazy.remove(keys);
        }
        let flushed = Flushed::new(*table, others_stay, is_lazy);
        if self.store.snapshot.is_active() && !flushed.is_hidden_from_snapshot() {
            self.flushed_since.push(flushed);
        } else {
            self.flushed.push_back(flushed);
        }
        self.store.note_unfreed();
        keys
    }

    /// Marks flushed tables as not attributed: the counts of prefixes have forgotten all keys.
    pub fn forget_attribution(&mut self) {
        let flushed = self.flushed.iter_mut().chain(&mut self.flushed_since);
        flushed.for_each(|flushed| flushed.is_attributed = false);
    }

    /// Frees pages of flushed tables until the budget is spent. Returns false if there is none that may go.
    pub fn free_flushed(&mut self, steps: &mut Steps) -> bool {
        let Some(flushed) = self.flushed.front_mut() else { return false };
        if flushed.free_step(&mut self.store, steps) {
            let flushed = self.flushed.pop_front().expect("it is the first");
            flushed.free_empty(&mut self.store);
            self.store.cold.free_unused_tables();
        }
        true
    }

    // ---- for snapshots ----

    pub fn name_tables_for_snapshot(&mut self) {
        debug_assert!(self.flushed_since.is_empty(), "one snapshot at a time");
        self.flushed.iter_mut().for_each(Flushed::hide_from_snapshot);
        for (db, table) in self.tables.iter_mut().enumerate() {
            if let Some(table) = table {
                table.snapshot_db = Db(db as u16);
            }
        }
    }

    pub fn snapshot_tables(&self, db: Db) -> impl Iterator<Item = &Table> {
        self.all_tables().filter(move |table| table.snapshot_db == db)
    }

    /// Returns the tables of databases, and those that are still to be freed.
    pub fn all_tables(&self) -> impl Iterator<Item = &Table> {
        self.tables.iter().flatten().map(|table| &**table).chain(self.flushed_tables())
    }

    pub fn all_tables_mut(&mut self) -> impl Iterator<Item = &mut Table> {
        let tables = self.tables.iter_mut().flatten().map(|table| &mut **table);
        let flushed = self.flushed.iter_mut().chain(&mut self.flushed_since);
        tables.chain(flushed.map(Flushed::table_mut))
    }

    pub fn flushed_tables(&self) -> impl Iterator<Item = &Table> {
        self.flushed.iter().chain(&self.flushed_since).map(Flushed::table)
    }

    /// Returns the bytes that the partition takes from the global allocator, without those of its tables and
    /// bodies.
    pub fn malloc_bytes(&self) -> usize {
        let tables = self.tables.capacity() * size_of::<Option<Box<Table>>>();
        let scratch = self.store.scratch_bytes.capacity() + self.store.scratch.capacity_bytes();
        let used = self.used.capacity() * size_of::<u16>();
        size_of::<Partition>()
            + tables
            + used
            + scratch
            + self.store.field_bounds.len() * size_of::<(u32, u32)>()
    }

    /// Databases that have keys here.
    pub fn used_databases(&self) -> impl Iterator<Item = Db> {
        self.used.iter().copied().map(Db)
    }

    /// The first database from one on that has keys here.
    pub fn next_used(&self, from: u16) -> Option<Db> {
        let at = self.used.partition_point(|used| *used < from);
        self.used.get(at).copied().map(Db)
    }

    /// The first database from one on that may have keys in pages of the slot at this place, as far as
    /// `steps` go: an eighth of one for each that has none. Without steps, the next that was not looked at.
    pub fn next_used_at(&self, from: u16, place: usize, steps: &mut Steps) -> Option<Db> {
        const LOOKS_PER_STEP: usize = 8;
        let at = self.used.partition_point(|used| *used < from);
        for some in self.used[at..].chunks(LOOKS_PER_STEP) {
            let may_have = |db: &u16| self.table(Db(*db)).is_some_and(|table| table.may_have(place));
            if let Some(db) = some.iter().copied().find(may_have) {
                return Some(Db(db));
            }
            steps.look(1);
            if steps.is_spent() {
                return self.next_used(some[some.len() - 1] + 1);
            }
        }
        None
    }

    pub fn databases(&self) -> impl ExactSizeIterator<Item = Db> + use<> {
        (0..self.tables.len() as u16).map(Db)
    }

    /// Returns how many objects of the arena the partition refers to.
    pub fn check_invariants(&self) -> u64 {
        let (mut objects, mut large, mut cold, mut keys, mut volatile) = (0, 0, 0, 0, 0);
        for table in self.tables.iter().flatten() {
            assert!(!table.is_empty(), "an empty database has no table");
            (keys, volatile) = (keys + table.keys, volatile + table.volatile);
        }
        let used = self.databases().filter(|db| self.table(*db).is_some());
        assert!(used.eq(self.used_databases()), "each database that has a table is listed");
        let weight = &self.shared.counters.weights[usize::from(self.number)];
        assert_eq!((weight.keys.load(Relaxed), weight.volatile.load(Relaxed)), (keys, volatile));
        for table in self.all_tables() {
            let referred = table.check_invariants(&self.store, |key| {
                let slot = Slot::of_key(key);
                assert_eq!(self.geometry.partition_of(slot), self.number);
                self.geometry.place_of(slot)
            });
            (objects, large, cold) = (objects + referred[0], large + referred[1], cold + referred[2]);
        }
        for (number, root) in self.store.objects.iter() {
            let structure = root.body.structure();
            objects += structure.check_invariants(&self.store, number);
            large += structure.large_bodies(&self.store);
        }
        self.store.objects.check_invariants();
        assert_eq!(self.store.large.live(), large, "every large value is referred to, once");
        assert_eq!(self.store.cold.keys, cold, "every reference is counted");
        let frozen = self.all_tables().filter_map(|table| table.frozen.as_ref());
        let frozen = frozen.map(|frozen| frozen.check_invariants());
        let frozen = frozen.fold([0, 0], |[a, b], [keys, bundles]| [a + keys, b + bundles]);
        assert_eq!([self.store.cold.frozen_keys, self.store.cold.bundles], frozen);
        self.store.cold.check_invariants();
        self.followers.waiters.check_invariants();
        objects
    }
}
