//! One partition: the databases' share of its slots, and who watches its keys.

use crate::access::shared;
use crate::access::shared::Config;
use crate::access::waiter::Waiters;
use crate::access::watch::{Presence, Watches};
use crate::layout::directory::{self, Bounded};
use crate::layout::entry::{
    BodyRef, Draft, EntryBytes, INLINE_BYTES_MAX, Place, Plan, body_head_bytes, read_int,
};
use crate::layout::heap::Heap;
use crate::layout::key::Key;
use crate::layout::kind::{Db, Expiry, Form, Full, NewValue, PackedValue};
use crate::layout::large::{Large, Shared};
use crate::layout::last_used::{self, AccessMode};
use crate::layout::packed::PackedBuf;
use crate::layout::page::{self, Spot};
use crate::tables::flushed::Flushed;
use crate::tables::geometry::Geometry;
use crate::tables::location::{Location, SlotRef};
use crate::tables::store::Store;
use crate::tables::table::Table;
use crate::upkeep::snapshot::SnapshotState;
use crate::values::object::Objects;
use crate::values::value::{Entry, Value};
use isotherm_arena::{Arena, Handle};
use isotherm_stdx::{Prng, Slot, Steps, UnixMs, write_i64};
use std::collections::{BTreeSet, VecDeque};
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;

pub(crate) struct Partition {
    pub store: Store,
    pub number: u16,
    pub geometry: Geometry,
    tables: Vec<Option<Box<Table>>>,
    /// Those of databases that were flushed, still to be freed.
    pub flushed: VecDeque<Flushed>,
    pub watches: Watches,
    pub waiters: Waiters,
    /// Every change of a key is told.
    pub tells_changes: bool,
    pub expiry_turn: ExpiryTurn,
    shared: Arc<shared::Shared>,
}

/// Where the expiry cycle of a partition goes on.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct ExpiryTurn {
    /// A database, or behind the last the fields of hashes.
    pub at: usize,
    /// How many turns in a row have left nothing that is due.
    pub done: usize,
}

/// What COPY and RENAME carry from one partition to another.
pub(crate) struct Carried {
    value: CarriedValue,
    expiry: Option<UnixMs>,
}

enum CarriedValue {
    Int(i64),
    Bytes(Vec<u8>, Form),
    /// A large body without its key: not copied, but shared.
    Body(Shared, Form),
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
            snapshot: SnapshotState::default(),
            objects: Objects::default(),
            freed_at_once_max: crate::values::object::FREED_AT_ONCE_MAX,
            unfreed: Arc::clone(&shared.unfreed[usize::from(number)]),
            field_bounds: BTreeSet::new(),
            scratch: PackedBuf::default(),
            scratch_bytes: Vec::new(),
        };
        let tables = (0..config.databases).map(|_| None).collect();
        Partition {
            store,
            number,
            geometry,
            tables,
            flushed: VecDeque::new(),
            watches: Watches::default(),
            waiters: Waiters::default(),
            tells_changes: false,
            expiry_turn: ExpiryTurn::default(),
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

    /// Where the entry of a key is.
    #[inline(always)]
    pub fn look_up(&self, db: Db, key: &Key<'_>) -> Option<(Handle, Spot)> {
        self.table(db)?.look_up(&self.store, self.geometry.place_of(key.slot), key)
    }

    /// Whether the entry there is that of the key.
    #[inline]
    pub fn is_at(&self, (page, spot): (Handle, Spot), key: &Key<'_>) -> bool {
        self.store.is_key(EntryBytes(self.store.heap.page(page).entry(spot)), key.bytes)
    }

    #[inline(always)]
    pub fn is_stale(&self, (page, spot): (Handle, Spot), now: UnixMs) -> bool {
        EntryBytes(self.store.heap.page(page).entry(spot)).expiry().is_some_and(|at| at < now)
    }

    #[inline]
    pub fn locate(&self, db: Db, key: &Key<'_>) -> Option<Location> {
        let table = self.table(db)?;
        Some(table.locate(&self.store, self.geometry.place_of(key.slot), key))
    }

    /// The same for a key that was just looked up: its entry is at `spot`, or it has none.
    #[inline]
    pub fn locate_seen(&self, db: Db, key: &Key<'_>, spot: Option<Spot>) -> Option<Location> {
        let table = self.table(db)?;
        Some(table.locate_seen(&self.store, self.geometry.place_of(key.slot), key, spot))
    }

    #[inline]
    pub fn presence_at(&self, location: Option<&Location>, now: UnixMs) -> Presence {
        let Some((page, spot)) = location.and_then(|location| location.page.zip(location.spot)) else {
            return Presence::Absent;
        };
        if self.is_stale((page, spot), now) { Presence::Stale } else { Presence::Alive }
    }

    pub fn presence(&self, db: Db, key: &Key<'_>, now: UnixMs) -> Presence {
        self.presence_at(self.locate(db, key).as_ref(), now)
    }

    /// An entry that was just found, to read.
    #[inline]
    pub fn read(&self, (page, spot): (Handle, Spot), now: UnixMs) -> Entry<'_> {
        self.store.view(self.store.heap.page(page), spot, now)
    }

    /// Refreshes the access stamp of an entry that was just found. Where it is then.
    #[inline]
    pub fn touch_at(&mut self, db: Db, key: &Key<'_>, place: (Handle, Spot), now: UnixMs) -> (Handle, Spot) {
        if self.store.touch(place.0, place.1.index, now) {
            return place;
        }
        self.give_access_column(db, key, now);
        self.look_up(db, key).expect("it was found")
    }

    /// The page has no access column of the width in force (the policy was switched): it gets one.
    #[cold]
    fn give_access_column(&mut self, db: Db, key: &Key<'_>, now: UnixMs) {
        let location = self.locate(db, key).expect("it was found");
        let (table, store) = self.table_and_store(db).expect("it was found");
        // Without memory for a larger page it goes on without: as if just used.
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
        let mut location = self.location_in_table(db, location, key)?;
        let (table, store) = self.table_and_store(db).expect("the table is there");
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
        if table.keys == 0 {
            self.drop_table(db);
        }
    }

    /// Removes the entry at a location that was just found.
    pub fn remove_at(&mut self, db: Db, location: &Location, now: UnixMs) {
        let (table, store) = self.table_and_store(db).expect("it was found");
        table.remove(store, location, now);
        self.drop_table_if_empty(db);
    }

    pub fn set_expiry_at(
        &mut self,
        db: Db,
        mut location: Location,
        key: &Key<'_>,
        expiry: Option<UnixMs>,
        now: UnixMs,
    ) -> Result<(), Full> {
        let (table, store) = self.table_and_store(db).expect("it was found");
        table.set_expiry(store, &mut location, key, expiry, now)
    }

    /// The bytes of a string that is `len` long from now on, and raw; what was there is kept, the rest is zero.
    pub fn edit_at(
        &mut self,
        db: Db,
        location: Option<Location>,
        key: &Key<'_>,
        len: usize,
        now: UnixMs,
    ) -> Result<&mut [u8], Full> {
        let found = location.filter(|location| location.spot.is_some());
        let location = match found {
            Some(location) if self.grows_in_place(&location, len) => {
                self.grow_in_place(db, &location, len)?;
                location
            }
            _ => self.rewrite_longer(db, location, key, len, now).inspect_err(|_| {
                self.drop_table_if_empty(db);
            })?,
        };
        let place = location.page.zip(location.spot);
        let (page, spot) = place.or_else(|| self.look_up(db, key)).expect("it was just written");
        if let Some((table, store)) = self.table_and_store(db) {
            // The bytes are about to change: a snapshot needs them as they are.
            store.before_change(table.snapshot_db, location.slot.at, page);
        }
        Ok(self.store.value_mut(page, spot))
    }

    /// A large raw body that stays one.
    fn grows_in_place(&self, location: &Location, len: usize) -> bool {
        let (Some(page), Some(spot)) = (location.page, location.spot) else { return false };
        let entry = EntryBytes(self.store.heap.page(page).entry(spot));
        let value_bytes = self.store.value_bytes_of(entry).len();
        entry.form() == Form::Raw
            && (entry.place() == Place::Large || value_bytes == len)
            && value_bytes <= len
    }

    fn grow_in_place(&mut self, db: Db, location: &Location, len: usize) -> Result<(), Full> {
        let (page, spot) = location.page.zip(location.spot).expect("it was found");
        let (table, store) = self.table_and_store(db).expect("it was found");
        store.before_change(table.snapshot_db, location.slot.at, page);
        let view = store.heap.page(page);
        let entry = EntryBytes(view.entry(spot));
        let Some(body @ BodyRef { place: Place::Large, .. }) = entry.body() else { return Ok(()) };
        let key_bytes = store.key_of(entry).len();
        let body_len = body_head_bytes(body.keyed, key_bytes) + len;
        let grown = BodyRef { len: body_len as u32, ..body };
        let mut bytes = view.entry(spot).to_vec();
        let tail = bytes.len() - 4;
        bytes[tail..].copy_from_slice(&grown.len.to_le_bytes());
        let old = store.account(entry);
        store.large.grow(body.raw, body_len)?;
        page::replace(store.heap.page_mut(page), spot, &bytes);
        let grown_page = store.heap.page(page);
        let entry = EntryBytes(grown_page.entry(spot));
        let (tag, new) = (grown_page.tag(spot.index), store.account(entry));
        table.tell(store.key_of(entry), tag, Some(&old), Some(&new));
        let mut slot = location.slot;
        let before = slot.record;
        slot.record.change_outside(store.body_units(body), store.body_units(grown));
        table.store(&mut store.heap, &slot, &before);
        Ok(())
    }

    /// Stores the value again, `len` long and raw, with the expiry it had. The location is as after `Table::set`.
    fn rewrite_longer(
        &mut self,
        db: Db,
        location: Option<Location>,
        key: &Key<'_>,
        len: usize,
        now: UnixMs,
    ) -> Result<Location, Full> {
        let mut integer = [0; 20];
        let mut location = self.location_in_table(db, location, key)?;
        let (table, store) = self.table_and_store(db).expect("the table is there");
        if let Some(draft) = store.stretched(&location, len) {
            table.put(store, &mut location, key, &draft, now)?;
            return Ok(location);
        }
        let old: &[u8] = match location.page.zip(location.spot) {
            None => &[],
            Some((page, spot)) => match store.value_of(EntryBytes(store.heap.page(page).entry(spot)), now) {
                Value::Int(int) => write_i64(int, &mut integer),
                Value::Bytes(bytes) => bytes,
                _ => unreachable!("the caller edits only strings"),
            },
        };
        assert!(old.len() <= len, "an edit never shortens");
        if len <= INLINE_BYTES_MAX {
            let mut value = [0; INLINE_BYTES_MAX];
            value[..old.len()].copy_from_slice(old);
            table.set(store, &mut location, key, NewValue::Raw(&value[..len]), Expiry::Keep, now)?;
            return Ok(location);
        }
        let mut old = old.to_vec();
        let plan = Plan::new(key.bytes.len(), len, false);
        if plan.place != Place::Large {
            // Below 4 KB: a copy on the side is the simple way.
            old.resize(len, 0);
            table.set(store, &mut location, key, NewValue::Raw(&old), Expiry::Keep, now)?;
            return Ok(location);
        }
        let expiry = store.old_entry(&location).and_then(|old| old.expiry);
        let body = store.empty_body(plan, key, len)?;
        let head = body_head_bytes(body.keyed, key.bytes.len());
        store.body_mut(body)[head..head + old.len()].copy_from_slice(&old);
        let draft = Draft::outside(key.bytes, Form::Raw, body, expiry);
        table.put(store, &mut location, key, &draft, now)?;
        Ok(location)
    }

    pub fn carry(&self, location: &Location) -> Carried {
        let (page, spot) = location.page.zip(location.spot).expect("it was found");
        let entry = EntryBytes(self.store.heap.page(page).entry(spot));
        if let Some(body @ BodyRef { place: Place::Large, keyed: false, .. }) = entry.body() {
            let value = CarriedValue::Body(self.store.large.share(body.raw), entry.form());
            return Carried { value, expiry: entry.expiry() };
        }
        let bytes = self.store.value_bytes_of(entry);
        let value = match entry.form() {
            Form::Int => CarriedValue::Int(read_int(bytes)),
            form => CarriedValue::Bytes(bytes.to_vec(), form),
        };
        Carried { value, expiry: entry.expiry() }
    }

    pub fn put_carried(&mut self, db: Db, key: &Key<'_>, carried: Carried, now: UnixMs) -> Result<(), Full> {
        let value = match &carried.value {
            CarriedValue::Body(body, form) => {
                return self.put_body(db, key, body, *form, carried.expiry, now);
            }
            CarriedValue::Int(int) => NewValue::Int(*int),
            CarriedValue::Bytes(bytes, form) => as_form(*form, bytes),
        };
        let expiry = carried.expiry.map_or(Expiry::Clear, Expiry::At);
        self.set_at(db, self.locate(db, key), key, value, expiry, now)
    }

    fn put_body(
        &mut self,
        db: Db,
        key: &Key<'_>,
        body: &Shared,
        form: Form,
        expiry: Option<UnixMs>,
        now: UnixMs,
    ) -> Result<(), Full> {
        if Plan::new(key.bytes.len(), body.len(), false).keyed {
            let value = as_form(form, body);
            let expiry = expiry.map_or(Expiry::Clear, Expiry::At);
            return self.set_at(db, self.locate(db, key), key, value, expiry, now);
        }
        self.make_table(db)?;
        let mut location = self.locate(db, key).expect("the table is there");
        let raw = self.store.large.adopt(Shared::clone(body));
        let body = BodyRef { place: Place::Large, raw, len: body.len() as u32, keyed: false };
        let draft = Draft::outside(key.bytes, form, body, expiry);
        let (table, store) = self.table_and_store(db).expect("the table is there");
        let done = table.put(store, &mut location, key, &draft, now);
        self.drop_table_if_empty(db);
        done
    }

    /// Where a key is or would be, in a table that is there.
    #[inline]
    pub fn location_in_table(
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
        self.table(db).map_or(0, |table| table.keys)
    }

    pub fn volatile_len(&self, db: Db) -> u64 {
        self.table(db).map_or(0, |table| table.volatile)
    }

    /// Calls `visit` with every entry of a slot, or of all slots.
    pub fn for_each(
        &self,
        db: Db,
        slot: Option<Slot>,
        now: UnixMs,
        visit: &mut dyn FnMut(&[u8], &Entry<'_>),
    ) {
        let Some(table) = self.table(db) else { return };
        match slot {
            Some(slot) if self.geometry.partition_of(slot) != self.number => {}
            Some(slot) => self.for_each_in(table, self.geometry.place_of(slot), now, visit),
            None => {
                table.slots_with_keys(&self.store.heap).for_each(|at| self.for_each_in(table, at, now, visit))
            }
        }
    }

    fn for_each_in(&self, table: &Table, at: usize, now: UnixMs, visit: &mut dyn FnMut(&[u8], &Entry<'_>)) {
        table.for_each_page(&self.store.heap, at, |_, page| self.visit_page(page, now, visit));
    }

    pub fn visit_page(&self, page: Handle, now: UnixMs, visit: &mut dyn FnMut(&[u8], &Entry<'_>)) {
        let page = self.store.heap.page(page);
        for spot in page.spots() {
            visit(self.store.key_of(EntryBytes(page.entry(spot))), &self.store.view(page, spot, now));
        }
    }

    pub fn swap(&mut self, a: Db, b: Db, now: UnixMs) {
        let mut watches = std::mem::take(&mut self.watches);
        for (db, other) in [(a, b), (b, a)] {
            let presence = |db: Db, key: &[u8]| self.presence(db, &self.store.hasher.key(key), now);
            watches.replace(db, |key| presence(db, key), |key| presence(other, key));
        }
        self.watches = watches;
        self.tables.swap(usize::from(a.0), usize::from(b.0));
        self.publish_root(a);
        self.publish_root(b);
    }

    /// Tells those who watch keys of a database that it is being emptied.
    pub fn touch_flushed(&mut self, db: Db, now: UnixMs) {
        let mut watches = std::mem::take(&mut self.watches);
        watches.replace(db, |key| self.presence(db, &self.store.hasher.key(key), now), |_| Presence::Absent);
        self.watches = watches;
    }

    fn make_table(&mut self, db: Db) -> Result<(), Full> {
        if self.table(db).is_none() {
            let mut table = Table::new(
                &mut self.store.heap,
                self.geometry.slots_per_partition(),
                self.number,
                &self.shared.counters,
            )?;
            table.snapshot_db = db;
            self.tables[usize::from(db.0)] = Some(Box::new(table));
            self.publish_root(db);
        }
        Ok(())
    }

    /// After its last key has left, or its first has found no room.
    #[inline]
    pub fn drop_table_if_empty(&mut self, db: Db) {
        if self.table(db).is_some_and(|table| table.keys == 0) {
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
        self.publish_root(db);
        table
    }

    /// Where prefetch hints begin.
    fn publish_root(&self, db: Db) {
        let raw = self.table(db).map_or(0, |table| table.index().raw());
        self.shared.root(self.number, db).store(raw, Relaxed);
    }

    // ---- for snapshots ----

    pub fn name_tables_for_snapshot(&mut self) {
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

    /// Those of databases, and those that are still to be freed.
    pub fn all_tables(&self) -> impl Iterator<Item = &Table> {
        self.tables.iter().flatten().map(|table| &**table).chain(self.flushed_tables())
    }

    pub fn flushed_tables(&self) -> impl Iterator<Item = &Table> {
        self.flushed.iter().map(Flushed::table)
    }

    /// What the partition has of the global allocator, its tables' and its bodies' apart.
    pub fn malloc_bytes(&self) -> usize {
        let tables = self.tables.capacity() * size_of::<Option<Box<Table>>>();
        let scratch = self.store.scratch_bytes.capacity() + self.store.scratch.capacity_bytes();
        size_of::<Partition>() + tables + scratch + self.store.field_bounds.len() * size_of::<(u32, u32)>()
    }

    /// The first slot from `from` on that has keys.
    pub fn next_slot_in(&self, table: &Table, from: usize) -> Option<usize> {
        let runs = table.run_slots();
        let mut at = from;
        while at < table.sums.len() * runs {
            if table.sums[at / runs].keys == 0 {
                at = (at / runs + 1) * runs;
            } else if table.slot(&self.store.heap, at).record.keys > 0 {
                return Some(at);
            } else {
                at += 1;
            }
        }
        None
    }

    /// The first page of a slot from `from` on whose bound is a wanted one (see `directory`).
    pub fn next_bounded(
        &mut self,
        db: Db,
        place: usize,
        from: u32,
        wanted: &dyn Fn(u32) -> bool,
        steps: &mut Steps,
    ) -> Bounded {
        let Some((table, store)) = self.table_and_store(db) else { return Bounded::None };
        let mut slot = table.slot(&store.heap, place);
        let before = slot.record;
        let found = directory::next_bounded(&mut store.heap, &mut slot.record, from, wanted, steps);
        if slot.record != before {
            table.store(&mut store.heap, &slot, &before);
        }
        found
    }

    pub fn slot(&self, table: &Table, at: usize) -> SlotRef {
        table.slot(&self.store.heap, at)
    }

    /// Databases that have keys here.
    pub fn used_databases(&self) -> impl Iterator<Item = Db> {
        self.databases().filter(|&db| self.table(db).is_some())
    }

    pub fn databases(&self) -> impl ExactSizeIterator<Item = Db> + use<> {
        (0..self.tables.len() as u16).map(Db)
    }

    /// Returns how many objects of the arena the partition refers to.
    pub fn check_invariants(&self) -> u64 {
        let (mut objects, mut large, mut keys, mut volatile) = (0, 0, 0, 0);
        for table in self.tables.iter().flatten() {
            assert!(table.keys > 0, "an empty database has no table");
            (keys, volatile) = (keys + table.keys, volatile + table.volatile);
        }
        let weight = &self.shared.counters.weights[usize::from(self.number)];
        assert_eq!((weight.keys.load(Relaxed), weight.volatile.load(Relaxed)), (keys, volatile));
        for table in self.all_tables() {
            let referred = table.check_invariants(&self.store, |key| {
                let slot = Slot::of_key(key);
                assert_eq!(self.geometry.partition_of(slot), self.number);
                self.geometry.place_of(slot)
            });
            (objects, large) = (objects + referred[0], large + referred[1]);
        }
        for (number, root) in self.store.objects.iter() {
            let structure = root.body.structure();
            objects += structure.check_invariants(&self.store, number);
            large += structure.large_bodies(&self.store);
        }
        self.store.objects.check_invariants();
        assert_eq!(self.store.large.live(), large, "every large value is referred to, once");
        self.waiters.check_invariants();
        objects
    }
}

/// Bytes to store again as they were.
fn as_form(form: Form, bytes: &[u8]) -> NewValue<'_> {
    match form {
        Form::Raw => NewValue::Raw(bytes),
        Form::Bytes => NewValue::Bytes(bytes),
        form => NewValue::Packed(PackedValue { form, bytes }),
    }
}

impl Store {
    /// Refreshes an entry's access stamp. False if its page has no column for it.
    #[inline]
    pub fn touch(&mut self, page: Handle, index: usize, now: UnixMs) -> bool {
        let view = self.heap.page(page);
        match self.access {
            AccessMode::Page => {
                let stamp = last_used::stamp(now);
                if view.stamp() != stamp {
                    page::set_stamp(self.heap.page_mut(page), stamp);
                }
            }
            AccessMode::Lru => {
                let Some(old) = view.access(index, AccessMode::Lru.width()) else { return false };
                let stamp = last_used::stamp(now);
                if old != stamp {
                    page::set_access(self.heap.page_mut(page), index, stamp);
                }
            }
            AccessMode::Lfu => {
                let Some(old) = view.access(index, AccessMode::Lfu.width()) else { return false };
                let counter = last_used::lfu_increment(old, self.lfu_log_factor, &mut self.prng);
                if counter != old {
                    page::set_access(self.heap.page_mut(page), index, counter);
                }
            }
        }
        true
    }

    /// Writes a stamp that is known from elsewhere, if the mode in force keeps such stamps.
    pub fn note_access(&mut self, page: Handle, index: usize, note: last_used::AccessNote, now: UnixMs) {
        let has_column = self.heap.page(page).access(index, self.access.width()).is_some();
        if let Some(stamp) = note.stamp(self.access, now).filter(|_| has_column) {
            page::set_access(self.heap.page_mut(page), index, stamp);
        }
    }

    /// The entry at a location with zeros behind its value, raw: where a text lies in the page and may stay there.
    fn stretched(&self, location: &Location, len: usize) -> Option<Draft> {
        let entry = EntryBytes(self.heap.page(location.page?).entry(location.spot?));
        let stays = entry.place() == Place::Inline && entry.form() != Form::Int;
        let plan = Plan::new(entry.inline_key()?.len(), len, self.is_tight(location));
        (stays && plan.place == Place::Inline).then(|| Draft::stretched(entry, len))
    }

    /// The bytes of a string's value, to write. Not of an integer.
    pub fn value_mut(&mut self, page: Handle, spot: Spot) -> &mut [u8] {
        let view = self.heap.page(page);
        let bytes = view.entry(spot);
        let entry = EntryBytes(bytes);
        debug_assert_ne!(entry.form(), Form::Int);
        match entry.body() {
            None => {
                let (end, len) = (spot.offset + bytes.len(), entry.tail().len());
                &mut self.heap.page_mut(page)[end - len..end]
            }
            Some(body) => {
                let value = self.value_bytes_of(entry).len();
                let body_len = body.len as usize;
                &mut self.body_mut(body)[body_len - value..body_len]
            }
        }
    }
}
