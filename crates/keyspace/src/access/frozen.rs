//! Keys leave memory together with their values, and come back one by one, under the lock of their partition.
//!
//! ```text
//!   HOT x n  --freeze: their bytes are still those that were written out-->  a bundle
//!   a bundle at a  --move_bundle: the keeper has it at b now-->              the same bundle
//!   in a bundle  --thaw: the record was read-->                              HOT
//!   no such keys  --put_bundle: a file refers to their record-->             a bundle
//! ```
//! Freezing and thawing change no data and use no key. A command that names a frozen key has it thawed
//! before it runs; what a command looks up beyond that is read by the lookup itself, which waits for the disk
//! under the lock.
//!
//! While memory has no room a command that only reads is shown the key as its record has it
//! (`values::shown`), and it stays where it is.
//!
//! A proposal of a key by a bundle says little: it was in it, or another one has the same bits. When its
//! record does not have the key, that is remembered until the command has run.

use crate::access::carry::as_form;
use crate::access::cold::NotPut;
use crate::access::lock::Held;
use crate::access::partition::Partition;
use crate::access::terms::{Missing, Whereabouts};
use crate::access::txn::Txn;
use crate::layout::bundle::{self, BUNDLE_KEYS_MAX, BundleAt, BundleName, Expiring, Item};
use crate::layout::cold::ColdRef;
use crate::layout::entry::{Place, read_int};
use crate::layout::key::Key;
use crate::layout::kind::{Db, Expiry, Form, Full, NewValue};
use crate::layout::last_used;
use crate::tables::frozen::{Bundle, BundleAddress};
use crate::tables::location::Location;
use crate::values::lent::Lent;
use crate::values::saved::SavedBundle;
use crate::values::shown::Shown;
use crate::values::value::Entry;
use isotherm_stdx::{Slot, UnixMs};

/// Records that a lookup reads for one key: each has a key with the same 16 bits.
const READS_PER_KEY_MAX: usize = 64;

/// Divisor of a bundle's keys: with fewer than that part left it comes to memory as a whole, 64 keys of 256
/// at most.
const SPARSE_DIVISOR: usize = 4;

/// Keys outside memory, as a file has them.
#[derive(Clone, Copy, Debug)]
pub struct StoredBundle<'a> {
    pub name: BundleName,
    pub reference: ColdRef,
    /// Hash bits of each key in the order of the record, little endian; 0 for a key that has left.
    pub prints: &'a [[u8; 2]],
    pub expiring: Option<Expiring>,
}

/// Failure to bring a frozen key to memory: its record could not be read, or there was no memory.
struct NotThawed;

impl Held<'_> {
    /// Returns whether any key of the held partitions is itself outside memory.
    pub fn has_frozen(&self) -> bool {
        self.guarded().any(Partition::has_frozen)
    }

    /// Lets keys that were written out leave memory, those whose values are still these bytes; none if they
    /// are fewer than `keys_min`. Returns how many did.
    pub fn freeze(
        &mut self,
        (db, slot): (Db, Slot),
        name: BundleName,
        payload: &[u8],
        reference: ColdRef,
        keys_min: usize,
        now: UnixMs,
    ) -> usize {
        let partition = self.partition(slot);
        let frozen = partition.freeze((db, slot), name, payload, reference, keys_min, now);
        if frozen == 0 {
            partition.store.cold.give_back(reference);
        }
        frozen
    }

    /// The database that has the bundle whose record is there: mostly `db`, until SWAPDB.
    pub fn database_of_bundle(
        &mut self,
        (db, slot): (Db, Slot),
        name: BundleName,
        reference: ColdRef,
    ) -> Option<Db> {
        let partition = self.partition(slot);
        let refers = |db: &Db| partition.bundle_at((*db, slot), name, reference).is_some();
        if refers(&db) { Some(db) } else { partition.used_databases().find(refers) }
    }

    /// Returns how many keys live in a bundle, if its record is still there.
    pub fn bundle_keys(&mut self, at: &BundleAt) -> Option<u64> {
        let partition = self.partition(at.slot);
        let address = partition.bundle_at((at.db, at.slot), at.name, at.reference)?;
        Some(partition.table(at.db)?.frozen.as_ref()?.get(&address)?.live())
    }

    /// The keeper has a record elsewhere now. Returns whether a bundle refers to it; else the new place goes
    /// back.
    pub fn move_bundle(
        &mut self,
        (db, slot): (Db, Slot),
        name: BundleName,
        from: ColdRef,
        to: ColdRef,
    ) -> bool {
        let partition = self.partition(slot);
        let Some(address) = partition.bundle_at((db, slot), name, from) else {
            partition.store.cold.give_back(to);
            return false;
        };
        // A snapshot may refer to the record: to where it was at the cut.
        partition.save_bundle(db, slot, &address);
        let (table, store) = partition.table_and_store(db).expect("the bundle was found");
        let bundle = table.frozen.as_mut().and_then(|frozen| frozen.get_mut(&address));
        bundle.expect("it was found").reference = to;
        store.cold.bundles += 1;
        store.cold.retire_bundle(from);
        true
    }

    /// Stores keys whose record the keeper has, and has counted already. Their partition is held. Returns how
    /// many they are; else the keeper gets the record back.
    pub fn put_bundle(&mut self, (db, slot): (Db, Slot), stored: &StoredBundle<'_>) -> Result<u64, NotPut> {
        let partition = self.partition(slot);
        let put = partition.put_bundle((db, slot), stored);
        if put.is_err() {
            partition.store.cold.give_back(stored.reference);
        }
        put
    }

    /// A key comes to memory, if it is in the record that was read and has not left it. Returns whether it
    /// did.
    pub fn thaw(
        &mut self,
        db: Db,
        key: &Key<'_>,
        payload: &[u8],
        from: ColdRef,
        now: UnixMs,
    ) -> Result<bool, Full> {
        self.partition(key.slot).thaw(db, key, payload, from, now)
    }

    /// Thaws a key for a command that only reads. Without room in memory it is shown the key, which stays in
    /// the record. Returns whether the record has it.
    pub fn thaw_or_show(
        &mut self,
        db: Db,
        key: &Key<'_>,
        payload: &[u8],
        from: ColdRef,
        now: UnixMs,
    ) -> Result<bool, Full> {
        self.partition(key.slot).thaw_or_show(db, key, payload, from, now)
    }

    /// All keys of a bundle come to memory, as far as there is room. Returns whether they did.
    pub fn thaw_all(
        &mut self,
        (db, slot): (Db, Slot),
        name: BundleName,
        payload: &[u8],
        from: ColdRef,
        now: UnixMs,
    ) -> bool {
        let hasher = self.keyspace.hasher();
        let partition = self.partition(slot);
        let Some(items) = bundle::items(payload) else { return false };
        items.iter().all(|item| {
            let is_there = partition.bundle_at((db, slot), name, from).is_some();
            !is_there || partition.thaw(db, &hasher.key(item.key), payload, from, now).is_ok()
        })
    }

    /// A record cannot be read: commands that need a key of it fail until the next one tries again
    /// (`forget_failure`).
    pub fn note_unreadable_bundle(&mut self, db: Db, key: &Key<'_>, from: ColdRef, now: UnixMs) {
        let partition = self.partition(key.slot);
        if partition.proposal(db, key).is_some_and(|(_, reference)| reference == from) {
            partition.store.cold.lend(from, Lent::new(db, key.bytes, None, now));
        }
    }

    /// A command walks over keys, and some cannot be read: none of those is named.
    pub(crate) fn note_lost_keys(&mut self, db: Db) {
        self.missing.push(Missing { db, key: Box::default(), node: None, is_readable: false });
    }

    /// Returns whether a key may itself lie outside memory.
    pub fn may_be_frozen(&mut self, db: Db, key: &Key<'_>) -> bool {
        let partition = self.partition(key.slot);
        partition.has_frozen() && partition.find(db, key).is_none() && partition.proposal(db, key).is_some()
    }
}

impl Txn<'_, '_> {
    /// A key that no page has comes to memory if it is frozen; a reader of the disk is waited for. Returns
    /// whether it came.
    #[cold]
    pub(super) fn thaw_now(&mut self, db: Db, key: &Key<'_>) -> bool {
        // The command has acted as if it were not there: a second read that succeeds would have it written
        // over.
        let is_this = |lost: &Missing| !lost.is_readable && lost.db == db && *lost.key == *key.bytes;
        if self.held.missing.iter().any(is_this) {
            return false;
        }
        let now = self.conditions.now;
        match self.held.partition(key.slot).thaw_now(db, key, now) {
            Ok(came) => {
                if came {
                    self.found = None;
                }
                came
            }
            Err(NotThawed) => {
                self.note_missing(db, key, false);
                false
            }
        }
    }

    /// Brings a frozen key to memory if its bundle may have keys past their time: only the record says
    /// whether this key is one of them.
    pub(super) fn thaw_if_due(&mut self, db: Db, key: &Key<'_>) {
        let now = self.conditions.now;
        if self.held.partition(key.slot).may_be_due(db, key, now) {
            self.thaw_now(db, key);
        }
    }

    /// Brings a frozen key to memory that is about to be written over. Returns an error if it may still be
    /// frozen then.
    pub(super) fn meet_frozen(&mut self, db: Db, key: &Key<'_>) -> Result<(), Full> {
        if self.held.may_be_frozen(db, key) {
            self.thaw_now(db, key);
        }
        self.refuse_frozen(db, key)
    }

    /// Refuses a new entry for a key that may still be in a bundle, because that could not be read: the old
    /// value would be there again when the new one is deleted. Bundles that could be read and do not have the
    /// key are remembered, and do not count.
    #[inline]
    pub(super) fn refuse_frozen(&mut self, db: Db, key: &Key<'_>) -> Result<(), Full> {
        let has_frozen = self.held.partition(key.slot).has_frozen();
        if has_frozen && self.held.may_be_frozen(db, key) { Err(Full) } else { Ok(()) }
    }
}

impl Txn<'_, '_> {
    /// Returns whether a key that no page has is shown to commands that only read.
    #[inline]
    pub(super) fn is_shown(&mut self, db: Db, key: &Key<'_>) -> bool {
        let now = self.conditions.now;
        let partition = self.held.partition(key.slot);
        partition.has_frozen() && partition.shown(db, key, now).is_some()
    }

    /// Finds the entry that it is shown as.
    #[inline]
    pub(super) fn find_shown(&mut self, db: Db, key: &Key<'_>) -> Option<Entry<'_>> {
        let now = self.conditions.now;
        let partition = self.held.partition(key.slot);
        if !partition.has_frozen() {
            return None;
        }
        let shown = partition.shown(db, key, now)?;
        partition.store.cold.shown.note_use(db, key, shown);
        Some(Entry::of_shown(&partition.store, shown, now))
    }
}

impl Partition {
    /// Finds a key that is shown from its record, if that has it still and its time has not come.
    #[cold]
    fn shown(&self, db: Db, key: &Key<'_>, now: UnixMs) -> Option<&Shown> {
        let shown = self.store.cold.shown.find(db, key).filter(|it| it.expiry.is_none_or(|at| at >= now))?;
        let frozen = self.table(db)?.frozen.as_ref()?;
        let is_its = |bundle: &Bundle| bundle.reference == shown.from;
        let (_, bundle) = frozen.propose(self.geometry.place_of(key.slot), key.hash, is_its)?;
        bundle.is_live(shown.ordinal).then_some(shown)
    }

    #[inline]
    pub(crate) fn has_frozen(&self) -> bool {
        self.store.cold.frozen_keys > 0
    }

    /// A bundle that may have a key that no page has.
    pub(crate) fn proposal(&self, db: Db, key: &Key<'_>) -> Option<(BundleAddress, ColdRef)> {
        let frozen = self.table(db)?.frozen.as_ref()?;
        let is_open = |bundle: &Bundle| !self.store.cold.is_absent(bundle.reference, key.hash);
        let (address, bundle) = frozen.propose(self.geometry.place_of(key.slot), key.hash, is_open)?;
        Some((address, bundle.reference))
    }

    /// The entry of a key goes. As long as it was there no bundle had the key, so none that seems to have it
    /// needs to be read before a new entry comes (`refuse_frozen`).
    pub(super) fn note_in_no_bundle(&mut self, db: Db, key: &Key<'_>) {
        for _ in 0..READS_PER_KEY_MAX {
            let Some((_, reference)) = self.proposal(db, key) else { return };
            self.store.cold.note_absent(reference, key.hash);
        }
    }

    /// Returns where a key is. The entry of the key, if there is one, has its value.
    pub(crate) fn frozen_whereabouts(&self, db: Db, key: &Key<'_>, home: bool) -> Whereabouts {
        if !self.has_frozen() || self.find(db, key).is_some() {
            return Whereabouts::Here;
        }
        if !home && self.shown(db, key, UnixMs(i64::MIN)).is_some() {
            return Whereabouts::Here;
        }
        match self.proposal(db, key) {
            None => Whereabouts::Here,
            // It is there if it could not be read.
            Some((_, reference)) if self.store.cold.lent(reference).is_some() => Whereabouts::Unreadable,
            Some((address, reference)) => Whereabouts::Frozen(reference, address.name()),
        }
    }

    pub(crate) fn bundle_at(
        &self,
        (db, slot): (Db, Slot),
        name: BundleName,
        reference: ColdRef,
    ) -> Option<BundleAddress> {
        let frozen = self.table(db)?.frozen.as_ref()?;
        frozen.at(self.geometry.place_of(slot), name.interval()?, reference)
    }

    fn thaw_now(&mut self, db: Db, key: &Key<'_>, now: UnixMs) -> Result<bool, NotThawed> {
        for _ in 0..READS_PER_KEY_MAX {
            let Some((address, reference)) = self.proposal(db, key) else { return Ok(false) };
            let cold = &self.store.cold;
            if cold.lent(reference).is_some() {
                return Err(NotThawed);
            }
            let keeper = cold.keeper.as_ref().expect("what is frozen has a keeper");
            let payload = keeper.read(reference, address.name().as_bytes()).ok_or(NotThawed)?;
            if self.thaw(db, key, &payload, reference, now).map_err(|_| NotThawed)? {
                return Ok(true);
            }
        }
        Err(NotThawed)
    }

    fn thaw_or_show(
        &mut self,
        db: Db,
        key: &Key<'_>,
        payload: &[u8],
        from: ColdRef,
        now: UnixMs,
    ) -> Result<bool, Full> {
        if self.store.cold.has_room() {
            return self.thaw(db, key, payload, from, now);
        }
        let frozen = self.table(db).and_then(|table| table.frozen.as_ref());
        let place = self.geometry.place_of(key.slot);
        let proposed = frozen.and_then(|it| it.propose(place, key.hash, |bundle| bundle.reference == from));
        let Some((_, bundle)) = proposed else { return Ok(false) };
        let items = bundle::items(payload).unwrap_or_default();
        let found = items.iter().enumerate().find(|(_, item)| item.key == key.bytes);
        let found = found.filter(|(ordinal, _)| bundle.is_live(*ordinal));
        match found {
            // One whose time has come leaves by the lookup that meets it.
            Some((ordinal, item)) if item.expiry.is_none_or(|at| at >= now) => {
                let shown = Shown::new(item, from, ordinal, last_used::stamp(now), now);
                self.store.cold.shown.add(db, key, shown);
                Ok(true)
            }
            _ => self.thaw(db, key, payload, from, now),
        }
    }

    pub(crate) fn thaw(
        &mut self,
        db: Db,
        key: &Key<'_>,
        payload: &[u8],
        from: ColdRef,
        now: UnixMs,
    ) -> Result<bool, Full> {
        let frozen = self.table(db).and_then(|table| table.frozen.as_ref());
        let place = self.geometry.place_of(key.slot);
        let proposed = frozen.and_then(|it| it.propose(place, key.hash, |bundle| bundle.reference == from));
        let Some((address, bundle)) = proposed else { return Ok(false) };
        let items = bundle::items(payload).unwrap_or_default();
        let found = items.iter().position(|item| item.key == key.bytes);
        let Some(ordinal) = found.filter(|ordinal| bundle.is_live(*ordinal)) else {
            self.store.cold.note_absent(from, key.hash);
            return Ok(false);
        };
        self.save_bundle(db, key.slot, &address);
        self.come_home(db, &address, (key, ordinal), &items[ordinal], now)?;
        self.store.cold.thawed += 1;
        self.thaw_sparse(db, key.slot, &address, &items, now);
        Ok(true)
    }

    /// Brings the rest of a bundle to memory too once most of its keys have left: else the place of its
    /// record, and the bits of those that left, would be kept for few. Without memory for it, the rest stays.
    pub(crate) fn thaw_sparse(
        &mut self,
        db: Db,
        slot: Slot,
        address: &BundleAddress,
        items: &[Item<'_>],
        now: UnixMs,
    ) {
        let live = self.live_ordinals(db, address);
        if live.is_empty() || live.len() * SPARSE_DIVISOR >= items.len() || !self.store.cold.has_room() {
            return;
        }
        self.save_bundle(db, slot, address);
        let hasher = self.store.hasher;
        for ordinal in live {
            let key = hasher.key(items[ordinal].key);
            if self.come_home(db, address, (&key, ordinal), &items[ordinal], now).is_err() {
                return;
            }
        }
    }

    /// Keys of a bundle that have not left, by their place in the record; none if it is gone.
    pub(crate) fn live_ordinals(&self, db: Db, address: &BundleAddress) -> Vec<usize> {
        let frozen = self.table(db).and_then(|table| table.frozen.as_ref());
        let prints = frozen.and_then(|frozen| frozen.get(address)).map_or(&[][..], Bundle::prints);
        (0..prints.len()).filter(|ordinal| prints[*ordinal] != 0).collect()
    }

    /// Returns whether a key may itself lie outside memory, in a bundle with keys that may be past their
    /// time.
    pub(crate) fn may_be_due(&self, db: Db, key: &Key<'_>, now: UnixMs) -> bool {
        if !self.has_frozen() || self.find(db, key).is_some() {
            return false;
        }
        let proposed = self.proposal(db, key);
        let frozen = self.table(db).and_then(|table| table.frozen.as_ref());
        let expiring = proposed.zip(frozen).and_then(|((address, _), frozen)| frozen.expiring(&address));
        expiring.is_some_and(|expiring| expiring.bound < now)
    }

    /// A key of a bundle, which was saved for a snapshot, comes to memory.
    pub(crate) fn come_home(
        &mut self,
        db: Db,
        address: &BundleAddress,
        (key, ordinal): (&Key<'_>, usize),
        item: &Item<'_>,
        now: UnixMs,
    ) -> Result<(), Full> {
        let expiry = item.expiry.map_or(Expiry::Clear, Expiry::At);
        self.set_at(db, self.locate(db, key), key, value_of(item), expiry, now)?;
        self.leave(db, address, ordinal, item.expiry.is_some());
        Ok(())
    }

    /// A key is no longer in its bundle.
    pub(crate) fn leave(&mut self, db: Db, address: &BundleAddress, ordinal: usize, is_volatile: bool) {
        let (table, store) = self.table_and_store(db).expect("the bundle was found");
        let frozen = table.frozen.as_mut().expect("the bundle was found");
        if let Some(reference) = frozen.leave(address, ordinal, is_volatile) {
            store.cold.retire_bundle(reference);
        }
        store.cold.frozen_keys -= 1;
        if frozen.is_empty() {
            table.frozen = None;
        }
    }

    fn freeze(
        &mut self,
        (db, slot): (Db, Slot),
        name: BundleName,
        payload: &[u8],
        reference: ColdRef,
        keys_min: usize,
        now: UnixMs,
    ) -> usize {
        let items = bundle::items(payload).expect("it was written by `show_freezable`");
        let hasher = self.store.hasher;
        let keys: Vec<Option<Key<'_>>> = items
            .iter()
            .map(|item| Some(hasher.key(item.key)).filter(|key| self.is_still(db, key, item).is_some()))
            .collect();
        let count = keys.iter().flatten().count();
        if count < keys_min.max(1) || count * SPARSE_DIVISOR < items.len() {
            return 0;
        }
        let version = self.store.snapshot.version();
        let hashes = keys.iter().map(|key| key.map(|key| key.hash));
        let bundle = Bundle::new(reference, version, hashes);
        let came = items.iter().zip(&keys).filter(|(_, key)| key.is_some());
        let expiring = Expiring::of(came.filter_map(|(item, _)| item.expiry));
        let place = self.geometry.place_of(slot);
        let part = name.interval().expect("it was made by `show_freezable`");
        let (table, store) = self.table_and_store(db).expect("the keys were found");
        if table.frozen.get_or_insert_default().add(place, part, bundle, expiring).is_none() {
            table.frozen.take_if(|frozen| frozen.is_empty());
            return 0;
        }
        (store.cold.frozen_keys, store.cold.bundles) =
            (store.cold.frozen_keys + count as u64, store.cold.bundles + 1);
        for key in keys.iter().flatten() {
            // Each removal may have moved the others.
            let location = self.locate(db, key).expect("the table is there");
            self.remove_at(db, &location, now);
        }
        count
    }

    fn put_bundle(&mut self, (db, slot): (Db, Slot), stored: &StoredBundle<'_>) -> Result<u64, NotPut> {
        let StoredBundle { name, reference, prints, expiring } = *stored;
        let bundle = Bundle::restored(reference, self.store.snapshot.version(), prints);
        let keys = bundle.live();
        let is_possible = expiring.is_none_or(|it| it.keys > 0 && u64::from(it.keys) <= keys);
        let part = name.interval().filter(|_| is_possible && keys > 0 && prints.len() <= BUNDLE_KEYS_MAX);
        let part = part.ok_or(NotPut::Unsuited)?;
        if self.bundle_at((db, slot), name, reference).is_some() {
            return Err(NotPut::Repeated);
        }
        self.make_table(db).map_err(|Full| NotPut::Full)?;
        let place = self.geometry.place_of(slot);
        let (table, store) = self.table_and_store(db).expect("it was made");
        if table.frozen.get_or_insert_default().add(place, part, bundle, expiring).is_none() {
            return Err(NotPut::Unsuited);
        }
        (store.cold.frozen_keys, store.cold.bundles) =
            (store.cold.frozen_keys + keys, store.cold.bundles + 1);
        Ok(keys)
    }

    /// Returns the location of a key, if its value is in memory and equal to the item's, and nothing keeps it
    /// there.
    fn is_still(&self, db: Db, key: &Key<'_>, item: &Item<'_>) -> Option<Location> {
        let location = self.locate(db, key).filter(|location| location.spot.is_some())?;
        let entry = location.entry(&self.store);
        let may_leave = entry.inline_key().is_some() && entry.expiry() == item.expiry;
        let is_small = matches!(entry.place(), Place::Inline | Place::Blob);
        let is_same = may_leave
            && is_small
            && entry.form() == item.form
            && self.store.value_bytes_of(entry) == item.value;
        is_same.then_some(location)
    }

    /// Has to be called before a bundle changes: a snapshot that has not seen it yet gets it first.
    pub(crate) fn save_bundle(&mut self, db: Db, slot: Slot, address: &BundleAddress) {
        let snapshot = &self.store.snapshot;
        if !snapshot.is_active() {
            return;
        }
        let (epoch, covers) = (snapshot.version(), snapshot.covers(|| slot));
        let (table, store) = self.table_and_store(db).expect("the bundle was found");
        let (db, frozen) = (table.snapshot_db, table.frozen.as_mut().expect("the bundle was found"));
        let expiring = frozen.expiring(address);
        let bundle = frozen.get_mut(address).expect("the bundle was found");
        if std::mem::replace(&mut bundle.version, epoch) != epoch && covers {
            let (name, reference, prints) = (address.name(), bundle.reference, bundle.prints().into());
            store.snapshot.save_bundle(SavedBundle { db, slot, name, reference, prints, expiring });
        }
    }
}

fn value_of<'a>(item: &Item<'a>) -> NewValue<'a> {
    match item.form {
        Form::Int => NewValue::Int(read_int(item.value)),
        form => as_form(form, item.value),
    }
}
