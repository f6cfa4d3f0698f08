//! Values leave memory, move where they are kept, and come back to memory: one entry at a time, under the
//! lock of its partition.
//!
//! ```text
//!   HOT  --chill: its bytes are still those that were written out-->  COLD(reference)
//!   COLD(a)  --move_cold: the keeper has it at b now-->               COLD(b)
//!   COLD  --warm: its bytes were read back-->                         HOT
//! ```
//! ```text
//!   no such key  --put_cold: a file refers to its value-->         COLD
//! ```
//! Moves to and from disk change no data: no effect, no WATCH, no count of changes, and no use of the key. A
//! page that a snapshot has not seen yet is saved before, as for any change. A reference that an entry does
//! not take, or no longer has, goes back to the keeper at once.

use crate::access::carry::as_form;
use crate::access::lock::Held;
use crate::access::partition::Partition;
use crate::access::terms::{Chilled, ColdAt, Missing, Whereabouts};
use crate::access::txn::Txn;
use crate::layout::cold::{ColdRef, ColdValue};
use crate::layout::entry::{Draft, EntryBytes, INLINE_KEY_BYTES_MAX, Place};
use crate::layout::key::{Key, slot_of_blob_head};
use crate::layout::kind::{Db, Expiry, Form, Full};
use crate::layout::node_name::NodeAt;
use crate::layout::page::{self, Spot};
use crate::tables::location::Location;
use crate::values::collection::EditError;
use crate::values::image::{self, ImageRoom, is_image};
use crate::values::lent::Lent;
use crate::values::stream::image as stream_image;
use crate::values::timed::due_of;
use crate::values::value::Entry;
use isotherm_arena::Handle;
use isotherm_stdx::{Slot, UnixMs};

/// Lent values that go when one more is lent.
const DROPPED_PER_LEND_MAX: usize = 4;

/// Why a key with a value that is not in memory cannot be stored.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum NotPut {
    Full,
    /// The key is there already.
    Repeated,
    /// No key of this length has its value elsewhere.
    Unsuited,
}

impl Held<'_> {
    /// Returns whether any value of what is held is not in memory.
    pub fn has_cold(&self) -> bool {
        self.guarded().any(Partition::has_cold)
    }

    /// Returns whether a command that needs a key's value can have it. `home`: the command is going to change
    /// the value, so a lent one is not enough.
    pub fn whereabouts(&mut self, db: Db, key: &Key<'_>, home: bool) -> Whereabouts {
        let partition = self.partition(key.slot);
        if !partition.store.cold.any() {
            return Whereabouts::Here;
        }
        let Some(cold) = partition.cold_of(db, key) else {
            return partition.frozen_whereabouts(db, key, home);
        };
        match partition.store.cold.lent(cold.reference) {
            Some(lent) if lent.value.is_none() => Whereabouts::Unreadable,
            Some(_) if !home => Whereabouts::Here,
            _ => Whereabouts::Away(cold),
        }
    }

    /// Notes, after a command, that values lent to it for want of room are dropped when its locks are
    /// released.
    #[inline]
    pub fn note_passed(&mut self) {
        let has_passed = self.guarded().any(|partition| partition.store.cold.has_passed());
        self.drops_passed |= has_passed;
    }

    /// Keeps all that was lent to a command that runs again.
    #[cold]
    pub fn keep_passed(&mut self) {
        self.guarded_mut().for_each(|partition| partition.store.cold.keep_passed());
    }

    #[cold]
    pub(super) fn drop_passed(&mut self) {
        self.drops_passed = false;
        self.guarded_mut().for_each(|partition| partition.store.cold.drop_passed());
    }

    /// Returns whether the last command has met values that are not in memory (`OnCold::Collect`).
    #[inline]
    pub fn has_missed(&self) -> bool {
        !self.missing.is_empty() || self.has_missed_nodes()
    }

    pub fn take_missing(&mut self) -> Vec<Missing> {
        let mut missing = std::mem::take(&mut self.missing);
        self.take_missed_nodes(&mut missing);
        missing
    }

    fn has_missed_nodes(&self) -> bool {
        self.guarded().any(|partition| partition.store.cold.has_missed())
    }

    /// Takes the nodes that the current command has met and that are not in memory, and adds them to
    /// `missing`.
    fn take_missed_nodes(&mut self, missing: &mut Vec<Missing>) {
        let has_missed = |partition: &&Partition| partition.store.cold.has_missed();
        let numbers: Vec<u16> = self.guarded().filter(has_missed).map(|partition| partition.number).collect();
        for number in numbers {
            let partition = self.numbered(number);
            for (name, is_readable) in partition.store.cold.take_missed() {
                let root = partition.store.objects.find(name.object());
                let node = root.map(|root| NodeAt { slot: slot_of_blob_head(root.home), name });
                // Of one that the command itself has removed nothing can be read any more.
                let is_readable = is_readable && node.is_some();
                missing.push(Missing { db: Db(0), key: Box::default(), node, is_readable });
            }
        }
    }

    /// Returns the references to the records of nodes that have come back and were not changed since, in the
    /// held partitions.
    pub fn clean_nodes(&mut self) -> Vec<ColdRef> {
        self.partitions().flat_map(|partition| partition.store.cold.all_clean()).collect()
    }

    /// The bytes of a value that is lent: one that is to come back to memory needs no second read.
    pub fn lent(&mut self, db: Db, key: &Key<'_>) -> Option<Box<[u8]>> {
        let partition = self.partition(key.slot);
        let cold = partition.cold_of(db, key)?;
        partition.store.cold.lent(cold.reference)?.value.clone()
    }

    /// Lends the bytes of a value that were read, or says that it cannot be read (`None`). Nothing happens if
    /// it is elsewhere by now. Older ones are dropped, or come back to memory, if more than `bytes_max` are
    /// lent.
    pub fn lend(
        &mut self,
        db: Db,
        key: &Key<'_>,
        value: Option<&[u8]>,
        from: ColdRef,
        bytes_max: usize,
        now: UnixMs,
    ) {
        let partition = self.partition(key.slot);
        if let Some(cold) = partition.cold_of(db, key).filter(|cold| cold.reference == from) {
            // Without memory it is lent, and read slowly.
            let has_room = partition.store.cold.has_room();
            let is_home = value.is_some_and(|value| {
                has_room
                    && !image::can_be_lent(cold.form, value.len())
                    && partition.warm(db, key, value, from, now) == Ok(true)
            });
            if !is_home {
                let lent = Lent::new(db, key.bytes, value, now);
                let stays = has_room || partition.store.cold.keeps_when_short(&lent, bytes_max);
                let lent = lent.passing(!stays);
                partition.store.cold.lend(from, lent.with_image(stream_image::of_form(cold.form, value)));
            }
        }
        self.trim_lent(key.slot, bytes_max, DROPPED_PER_LEND_MAX, now);
    }

    /// Drops the oldest of the values that are lent in the partition of a slot, if they are more than
    /// `bytes_max`; those that are used often come back to memory. Returns whether there may be more to drop.
    pub fn trim_lent(&mut self, slot: Slot, bytes_max: usize, dropped_max: usize, now: UnixMs) -> bool {
        let keyspace = self.keyspace;
        for _ in 0..dropped_max {
            let cold = &mut self.partition(slot).store.cold;
            let hits = cold.take_new_hits();
            let takes_home = cold.keeper.as_ref().is_some_and(|it| it.takes_home(hits));
            let Some((reference, lent)) = cold.take_oldest(bytes_max, now) else { return false };
            if let Some(value) = lent.value.as_deref().filter(|_| takes_home && lent.is_wanted_home()) {
                let key = keyspace.key(&lent.key);
                // Without memory it stays where it is.
                _ = self.warm(lent.db, &key, value, reference, now);
            }
        }
        true
    }

    /// The next command tries to read it again.
    pub fn forget_failure(&mut self, db: Db, key: &Key<'_>) {
        let partition = self.partition(key.slot);
        let reference = match partition.cold_of(db, key) {
            Some(cold) => Some(cold.reference),
            None => partition.proposal(db, key).map(|(_, reference)| reference),
        };
        if let Some(reference) = reference {
            partition.store.cold.forget_failure(reference);
        }
    }

    /// The value of a key if it is not in memory. Its partition is held.
    pub fn cold(&mut self, db: Db, key: &Key<'_>) -> Option<ColdValue> {
        self.partition(key.slot).cold_of(db, key)
    }

    /// The database in which a key refers to its value at `reference`: mostly `db`, until SWAPDB.
    pub fn database_of(&mut self, db: Db, key: &Key<'_>, reference: ColdRef) -> Option<Db> {
        let partition = self.partition(key.slot);
        let refers = |db: &Db| partition.cold_of(*db, key).is_some_and(|cold| cold.reference == reference);
        if refers(&db) { Some(db) } else { partition.used_databases().find(refers) }
    }

    /// Lets the entry of a key refer to its value where it was written to, if the value is still these bytes.
    pub fn chill(
        &mut self,
        db: Db,
        key: &Key<'_>,
        value: &[u8],
        form_number: u8,
        reference: ColdRef,
        now: UnixMs,
    ) -> Chilled {
        let partition = self.partition(key.slot);
        let found = partition.locate(db, key);
        let Some((location, form)) =
            found.and_then(|at| Some((at, partition.form_if_still(&at, value, form_number)?)))
        else {
            partition.store.cold.give_back(reference);
            return Chilled::No;
        };
        let is_large = location.object(&partition.store).is_some();
        let cold = ColdValue { form, reference, due: due_of(form, value) };
        match partition.chill_at(db, key, location, cold, now) {
            true if is_large => Chilled::Large,
            true => Chilled::Small,
            false => Chilled::No,
        }
    }

    /// Stores a key whose value the keeper has, and has counted already. Its partition is held. Where there
    /// is no memory, the keeper gets the reference back.
    pub fn put_cold(
        &mut self,
        db: Db,
        key: &Key<'_>,
        value: ColdValue,
        expiry: Option<UnixMs>,
        now: UnixMs,
    ) -> Result<(), NotPut> {
        if key.bytes.len() > INLINE_KEY_BYTES_MAX {
            return Err(NotPut::Unsuited);
        }
        self.partition(key.slot).put_cold(db, key, value, expiry, now)
    }

    /// The keeper has a value elsewhere now. Returns whether an entry refers to it; else the new place goes
    /// back.
    pub fn move_cold(&mut self, db: Db, key: &Key<'_>, from: ColdRef, to: ColdRef) -> bool {
        assert_eq!(from.value_bytes(), to.value_bytes(), "it is the same value");
        let partition = self.partition(key.slot);
        let refers = |location: &Location| {
            location.spot.is_some() && location.entry(&partition.store).cold() == Some(from)
        };
        match partition.locate(db, key).filter(refers) {
            Some(location) => {
                partition.refer_at(db, &location, to);
                partition.store.cold.take_back(from);
                partition.store.cold.give_back(from);
                true
            }
            None => {
                partition.store.cold.give_back(to);
                false
            }
        }
    }

    /// The value of a key comes back to memory, if it is still where it was read. Returns whether it did.
    /// Without memory it stays where it is.
    pub fn warm(
        &mut self,
        db: Db,
        key: &Key<'_>,
        value: &[u8],
        from: ColdRef,
        now: UnixMs,
    ) -> Result<bool, Full> {
        self.partition(key.slot).warm(db, key, value, from, now)
    }
}

impl Txn<'_, '_> {
    #[cold]
    pub(super) fn note_missing(&mut self, db: Db, key: &Key<'_>, is_readable: bool) -> Option<Entry<'_>> {
        self.held.missing.push(Missing { db, key: key.bytes.into(), node: None, is_readable });
        None
    }

    /// Returns whether any value of what is held is not in memory.
    pub fn has_cold(&self) -> bool {
        self.held.has_cold()
    }

    /// Returns whether the value of a key that no declaration names can be had.
    pub fn whereabouts(&mut self, db: Db, key: &Key<'_>) -> Whereabouts {
        self.held.whereabouts(db, key, false)
    }

    /// A value that is to be changed is in memory. As a rule it was fetched before.
    #[cold]
    pub(super) fn bring_home(&mut self, db: Db, key: &Key<'_>) -> Result<(), EditError> {
        let (now, found) = (self.conditions.now, self.find_again(db, key));
        let partition = self.held.partition(key.slot);
        match partition.bring_home(db, key, found.map(|found| found.place), now) {
            Some(false) => return Ok(()),
            Some(true) => self.found = None,
            None => {
                self.note_missing(db, key, false);
                return Err(EditError::Full);
            }
        }
        Ok(())
    }
}

impl Partition {
    #[inline]
    pub(crate) fn has_cold(&self) -> bool {
        self.store.cold.any()
    }

    #[inline]
    pub(crate) fn cold_at(&self, (page, spot): (Handle, Spot)) -> ColdAt {
        let entry = EntryBytes(self.store.heap.page(page).entry(spot));
        match entry.cold().map(|reference| self.store.cold.lent(reference)) {
            None => ColdAt::Here,
            Some(None) => ColdAt::Away,
            Some(Some(lent)) if lent.value.is_none() => ColdAt::Unreadable,
            Some(Some(_)) => ColdAt::Here,
        }
    }

    /// A command is in the middle of its work, and may need a value that was not fetched: then it is read,
    /// and waited for. Where its entry is; `None` if it cannot be read.
    pub(crate) fn read_now(
        &mut self,
        db: Db,
        key: &Key<'_>,
        (page, spot): (Handle, Spot),
        now: UnixMs,
    ) -> Option<(Handle, Spot)> {
        let entry = EntryBytes(self.store.heap.page(page).entry(spot));
        let Some(reference) = entry.cold() else { return Some((page, spot)) };
        let (form, cold) = (entry.form(), &mut self.store.cold);
        if let Some(lent) = cold.lent(reference) {
            return lent.value.is_some().then_some((page, spot));
        }
        let keeper = cold.keeper.as_ref().expect("what is cold has a keeper");
        let value = keeper.read(reference, key.bytes)?;
        let has_room = cold.has_room();
        if has_room
            && !image::can_be_lent(form, value.len())
            && self.warm(db, key, &value, reference, now) == Ok(true)
        {
            return self.find(db, key);
        }
        let lent = Lent::new(db, key.bytes, Some(&value), now).passing(!has_room);
        self.store.cold.lend(reference, lent.with_image(stream_image::of_form(form, Some(&value))));
        Some((page, spot))
    }

    /// A value that is about to be changed comes to memory, if it is not there. Returns whether it came;
    /// `None` if it cannot be read, or there is no memory. `place`: where its entry is, if that is known.
    pub(crate) fn bring_home(
        &mut self,
        db: Db,
        key: &Key<'_>,
        place: Option<(Handle, Spot)>,
        now: UnixMs,
    ) -> Option<bool> {
        let reference = place
            .or_else(|| self.find(db, key))
            .and_then(|(page, spot)| EntryBytes(self.store.heap.page(page).entry(spot)).cold());
        let Some(reference) = reference else { return Some(false) };
        let cold = &self.store.cold;
        let value = match cold.lent(reference) {
            Some(lent) => lent.value.as_deref().map(Vec::from),
            None => cold.keeper.as_ref().expect("what is cold has a keeper").read(reference, key.bytes),
        };
        (self.warm(db, key, &value?, reference, now) == Ok(true)).then_some(true)
    }

    /// The value of a key comes back to memory, if it is still where it was read. Returns whether it did.
    fn warm(
        &mut self,
        db: Db,
        key: &Key<'_>,
        value: &[u8],
        from: ColdRef,
        now: UnixMs,
    ) -> Result<bool, Full> {
        let refers =
            |location: &Location| location.spot.is_some() && location.entry(&self.store).cold() == Some(from);
        let Some(location) = self.locate(db, key).filter(refers) else { return Ok(false) };
        let entry = location.entry(&self.store);
        let (form, expiry) = (entry.form(), entry.expiry());
        match is_image(form, value.len()) {
            true => self.put_image(db, key, form, value, expiry, now)?,
            false => self.set_at(db, Some(location), key, as_form(form, value), Expiry::Keep, now)?,
        }
        self.store.cold.note_home(from);
        Ok(true)
    }

    fn cold_of(&self, db: Db, key: &Key<'_>) -> Option<ColdValue> {
        let (page, spot) = self.find(db, key)?;
        EntryBytes(self.store.heap.page(page).entry(spot)).cold_value()
    }

    /// The form of the value at a location, if it is these bytes in this form, and in memory: of an object,
    /// if they are its image.
    fn form_if_still(&self, location: &Location, value: &[u8], form_number: u8) -> Option<Form> {
        location.spot?;
        let entry = location.entry(&self.store);
        let (form, is_same) = match entry.place() {
            _ if entry.inline_key().is_none() => return None,
            Place::Cold => return None,
            Place::Object => {
                let root = self.store.objects.get(entry.parts().object().expect("it is an object"));
                let mut room = ImageRoom::default();
                let form = image::has_image(root).then(|| image::write(root, &self.store, &mut room))?;
                (form, room.bytes == value)
            }
            _ => (entry.form(), self.store.value_bytes_of(entry) == value),
        };
        (is_same && form as u8 == form_number).then_some(form)
    }

    fn chill_at(
        &mut self,
        db: Db,
        key: &Key<'_>,
        mut location: Location,
        value: ColdValue,
        now: UnixMs,
    ) -> bool {
        let entry = location.entry(&self.store);
        let draft = Draft::cold(key.bytes, value, entry.expiry());
        let stamp = location.page.map(|page| self.store.heap.page(page).stamp());
        self.store.cold.note(value.reference);
        let (table, store) = self.table_and_store(db).expect("the key was found");
        // A failure has given the reference back: the entry is as it was.
        if table.put(store, &mut location, key, &draft, now).is_err() {
            return false;
        }
        // The key was not used. Where the page was split, its entries look as if they had been.
        if let Some((page, stamp)) = location.page.zip(stamp) {
            page::set_stamp(store.heap.page_mut(page), stamp);
        }
        table.shrink_if_sparse(store, location.slot.at, now);
        true
    }

    fn put_cold(
        &mut self,
        db: Db,
        key: &Key<'_>,
        value: ColdValue,
        expiry: Option<UnixMs>,
        now: UnixMs,
    ) -> Result<(), NotPut> {
        let location = self.locate(db, key);
        if location.as_ref().is_some_and(|location| location.spot.is_some()) {
            return Err(NotPut::Repeated);
        }
        let mut location = self.make_location(db, location, key).map_err(|Full| {
            self.store.cold.give_back(value.reference);
            NotPut::Full
        })?;
        let draft = Draft::cold(key.bytes, value, expiry);
        self.store.cold.note(value.reference);
        let (table, store) = self.table_and_store(db).expect("the table is there");
        // A failure has given the reference back.
        let put = table.put(store, &mut location, key, &draft, now);
        if put.is_err() {
            self.drop_table_if_empty(db);
        }
        put.map_err(|Full| NotPut::Full)
    }

    fn refer_at(&mut self, db: Db, location: &Location, to: ColdRef) {
        let (page, spot) = location.page.zip(location.spot).expect("it was found");
        let snapshot_db = self.table(db).expect("the key was found").snapshot_db;
        self.store.before_change(snapshot_db, page);
        let at = spot.offset + location.entry(&self.store).cold_at();
        self.store.heap.page_mut(page)[at..at + 8].copy_from_slice(&to.raw().to_le_bytes());
    }
}
