//! A transaction: what one command (or one EXEC, one script) may do to the keys whose partitions it holds.
//!
//! A change raises the flags of connections that WATCH its key; the handler reports all else, as effects.

use crate::access::carry::copy_object;
use crate::access::effect::{EffectSink, EventClass};
use crate::access::followers::ChangeCause;
use crate::access::key_events::KeyEvents;
use crate::access::lending::set_lent;
use crate::access::lock::Held;
use crate::access::terms::{ColdAt, Conditions, ExpiryMode, Lookup, OnCold, TxnCounts};
use crate::access::watch::{Presence, Watcher};
use crate::layout::key::Key;
use crate::layout::kind::{Db, Expiry, Form, Full, NewValue};
use crate::layout::last_used::AccessNote;
use crate::layout::page::Spot;
use crate::values::collection::{EditError, Edited, Editing, Limits};
use crate::values::hash::HashEdit;
use crate::values::list::ListEdit;
use crate::values::set::SetEdit;
use crate::values::stream::StreamEdit;
use crate::values::value::{Entry, Value};
use crate::values::zset::ZsetEdit;
use isotherm_arena::Handle;
use isotherm_stdx::{UnixMs, steps};
use std::sync::Arc;

pub struct Txn<'t, 'k> {
    pub(super) held: &'t mut Held<'k>,
    pub conditions: Conditions,
    pub(super) sink: &'t mut dyn EffectSink,
    /// Changes so far (rdb_changes_since_last_save).
    pub dirty: u64,
    pub hits: u64,
    pub misses: u64,
    /// Keys that left in this transaction because their time had come.
    pub expired: u64,
    /// Fields that a command has deleted or replaced because their time is over.
    pub expired_fields: u64,
    pub on_cold: OnCold,
    pub(super) events: KeyEvents,
    /// A key that was removed so that the command can store it anew: that is no new key.
    cleared: Option<(Db, u64)>,
    /// The entry that was just found: storing it is part of the same access, and need not look for it again.
    pub(super) found: Option<Found>,
}

/// Outcome of an attempt to write over an old value.
enum Overwrite {
    Done,
    /// The entry is there, but has to be made anew.
    Misfit(Spot),
    /// No live entry is there.
    Absent,
}

/// Place of an entry, valid until something changes in its partition.
#[derive(Clone, Copy)]
pub(super) struct Found {
    pub(super) db: Db,
    pub(super) hash: u64,
    pub(super) place: (Handle, Spot),
    /// True if the entry's access stamp was refreshed.
    pub(super) touched: bool,
}

impl<'t, 'k> Txn<'t, 'k> {
    pub fn new(held: &'t mut Held<'k>, conditions: Conditions, sink: &'t mut dyn EffectSink) -> Txn<'t, 'k> {
        let mask = sink.mask();
        Txn {
            held,
            conditions,
            sink,
            dirty: 0,
            hits: 0,
            misses: 0,
            expired: 0,
            expired_fields: 0,
            on_cold: OnCold::Show,
            events: KeyEvents::new(mask),
            cleared: None,
            found: None,
        }
    }

    #[inline]
    pub fn now(&self) -> UnixMs {
        self.conditions.now
    }

    #[inline]
    pub fn key<'a>(&self, bytes: &'a [u8]) -> Key<'a> {
        self.held.keyspace.key(bytes)
    }

    pub fn databases(&self) -> u16 {
        self.held.keyspace.config().databases
    }

    /// A keyspace event; `new` and `del` of the key stand around it by themselves.
    #[inline]
    pub fn event(&mut self, class: EventClass, name: &'static str, db: Db, key: &[u8]) {
        self.events.emit(self.sink, class, name, (db, key));
    }

    /// The command is over.
    #[inline]
    pub fn finish(mut self) -> TxnCounts {
        self.events.finish(self.sink);
        TxnCounts {
            dirty: self.dirty,
            hits: self.hits,
            misses: self.misses,
            expired: self.expired,
            expired_fields: self.expired_fields,
        }
    }

    // ---- reading ----

    /// The entry of `key`, if it is there and its time has not come.
    #[inline]
    pub fn find(&mut self, db: Db, key: &Key<'_>, lookup: Lookup) -> Option<Entry<'_>> {
        let Some(mut place) = self.find_counted(db, key, lookup) else { return self.find_shown(db, key) };
        let now = self.conditions.now;
        let keep = self.conditions.expiry_mode == ExpiryMode::Keep;
        if self.on_cold != OnCold::Show && self.held.partition(key.slot).has_cold() {
            self.held.partition(key.slot).store.cold.set_collects(self.on_cold == OnCold::Collect);
            match self.held.partition(key.slot).cold_at(place) {
                ColdAt::Here => {}
                ColdAt::Away if self.on_cold == OnCold::Collect => return self.note_missing(db, key, true),
                ColdAt::Unreadable => return self.note_missing(db, key, false),
                ColdAt::Away => match self.held.partition(key.slot).read_now(db, key, place, now) {
                    Some(read) if read == place => {}
                    Some(home) => (place, self.found) = (home, None),
                    None => return self.note_missing(db, key, false),
                },
            }
        }
        let mut entry = self.held.partition(key.slot).read(place, now);
        // A caller that keeps keys past their time keeps fields too.
        if keep && let Value::Hash(view) = &mut entry.value {
            view.show_all();
        }
        Some(entry)
    }

    /// Returns whether there is such an entry, as [`Txn::find`] would find it, and reads no value from disk.
    #[inline]
    pub fn has(&mut self, db: Db, key: &Key<'_>, lookup: Lookup) -> bool {
        let on_cold = std::mem::replace(&mut self.on_cold, OnCold::Show);
        let is_there = self.find(db, key, lookup).is_some();
        self.on_cold = on_cold;
        is_there
    }

    /// Finds the live entry of a key; counts and touches as `lookup` says.
    fn find_counted(&mut self, db: Db, key: &Key<'_>, lookup: Lookup) -> Option<(Handle, Spot)> {
        let found = self.find_place::<true>(db, key);
        let is_there = found.is_some() || self.is_shown(db, key);
        match lookup {
            Lookup::Read | Lookup::Peek | Lookup::Quiet if is_there => self.hits += 1,
            Lookup::Read | Lookup::Peek => self.miss(db, key),
            Lookup::Quiet => self.misses += 1,
            Lookup::Silent | Lookup::Write => {}
        }
        let mut place = found?;
        let touched = matches!(lookup, Lookup::Read | Lookup::Write) && !self.conditions.no_touch;
        if touched {
            let now = self.conditions.now;
            place = self.held.partition(key.slot).touch_at(db, key, place, now);
        }
        self.found = Some(Found { db, hash: key.hash, place, touched });
        Some(place)
    }

    #[inline]
    fn miss(&mut self, db: Db, key: &Key<'_>) {
        self.misses += 1;
        self.event(EventClass::KeyMiss, "keymiss", db, key.bytes);
    }

    /// Returns whether a live entry of `key` exists.
    #[inline]
    pub fn contains(&mut self, db: Db, key: &Key<'_>) -> bool {
        self.find_place::<true>(db, key).is_some() || self.is_shown(db, key)
    }

    // ---- changing ----

    /// Stores `value` under `key`, whatever was there. Returns whether a live entry was there before.
    #[inline]
    pub fn set(&mut self, db: Db, key: &Key<'_>, value: NewValue<'_>, expiry: Expiry) -> Result<bool, Full> {
        if self.on_cold == OnCold::Read {
            self.refuse_failed()?;
        }
        let spot = match self.overwrite(db, key, value, expiry) {
            Overwrite::Done => {
                self.written(db, key);
                return Ok(true);
            }
            Overwrite::Misfit(spot) => Some(spot),
            Overwrite::Absent => None,
        };
        match self.held.lent.is_some() {
            true => set_lent(self, db, key, value, expiry, spot)?,
            false => self.set_anew(db, key, value, expiry, spot)?,
        }
        if spot.is_none() {
            self.created(db, key);
        }
        Ok(spot.is_some())
    }

    /// Overwrites the value of a key that is there, if it takes the place of the old one: the usual SET.
    #[inline]
    fn overwrite(&mut self, db: Db, key: &Key<'_>, value: NewValue<'_>, expiry: Expiry) -> Overwrite {
        let now = self.conditions.now;
        let (mut place, touched) = match self.find_again(db, key) {
            Some(found) => (found.place, found.touched),
            None => match self.find_place::<false>(db, key) {
                Some(place) => (place, false),
                None => return Overwrite::Absent,
            },
        };
        let touches = !touched && !self.conditions.no_touch;
        let partition = self.held.partition(key.slot);
        if touches {
            place = partition.touch_at(db, key, place, now);
        }
        match partition.store.overwrite(place, value, expiry, now) {
            true => Overwrite::Done,
            false => Overwrite::Misfit(place.1),
        }
    }

    /// Stores a value for which `overwrite` was not enough. `spot` is the place of the live entry, if any.
    pub(super) fn set_anew(
        &mut self,
        db: Db,
        key: &Key<'_>,
        value: NewValue<'_>,
        expiry: Expiry,
        spot: Option<Spot>,
    ) -> Result<(), Full> {
        // An expired entry that stays hidden is replaced; its expiry is not inherited.
        if spot.is_none() {
            self.refuse_frozen(db, key)?;
        }
        let hidden = spot.is_none() && self.conditions.expiry_mode == ExpiryMode::Hide;
        let expiry = if expiry == Expiry::Keep && spot.is_none() { Expiry::Clear } else { expiry };
        let now = self.conditions.now;
        let partition = self.held.partition(key.slot);
        if hidden {
            let location = partition.locate(db, key);
            partition.set_at(db, location, key, value, expiry, now)?;
        } else {
            partition.set_seen(db, spot, key, value, expiry, now)?;
        }
        self.written(db, key);
        Ok(())
    }

    /// Changes the hash under `key`, or an empty one. What `work` leaves is stored; an empty one is absent.
    pub fn edit_hash<R>(
        &mut self,
        db: Db,
        key: &Key<'_>,
        limits: &Limits,
        work: impl FnOnce(&mut HashEdit<'_, '_>) -> R,
    ) -> Result<Edited<R>, EditError> {
        self.edit_collection(db, key, Form::Hash, limits, |editing| work(&mut HashEdit { editing }))
    }

    /// Changes the set under `key`, or an empty one. What `work` leaves is stored; an empty set is absent.
    pub fn edit_set<R>(
        &mut self,
        db: Db,
        key: &Key<'_>,
        limits: &Limits,
        work: impl FnOnce(&mut SetEdit<'_, '_>) -> R,
    ) -> Result<Edited<R>, EditError> {
        self.edit_collection(db, key, Form::Set, limits, |editing| work(&mut SetEdit { editing }))
    }

    /// Changes the sorted set under `key`, or an empty one. What `work` leaves is stored, unless it is empty.
    pub fn edit_zset<R>(
        &mut self,
        db: Db,
        key: &Key<'_>,
        limits: &Limits,
        work: impl FnOnce(&mut ZsetEdit<'_, '_>) -> R,
    ) -> Result<Edited<R>, EditError> {
        self.edit_collection(db, key, Form::Zset, limits, |editing| work(&mut ZsetEdit { editing }))
    }

    /// Changes the list under `key`, or an empty one. What `work` leaves is stored; an empty list is absent.
    pub fn edit_list<R>(
        &mut self,
        db: Db,
        key: &Key<'_>,
        limits: &Limits,
        work: impl FnOnce(&mut ListEdit<'_, '_>) -> R,
    ) -> Result<Edited<R>, EditError> {
        self.edit_collection(db, key, Form::List, limits, |editing| work(&mut ListEdit { editing }))
    }

    /// Changes the stream under `key`, or an empty one. What `work` leaves is stored, an empty stream too.
    pub fn edit_stream<R>(
        &mut self,
        db: Db,
        key: &Key<'_>,
        limits: &Limits,
        work: impl FnOnce(&mut StreamEdit<'_, '_>) -> R,
    ) -> Result<Edited<R>, EditError> {
        self.edit_collection(db, key, Form::Stream, limits, |editing| work(&mut StreamEdit { editing }))
    }

    fn edit_collection<R>(
        &mut self,
        db: Db,
        key: &Key<'_>,
        form: Form,
        limits: &Limits,
        work: impl FnOnce(&mut Editing<'_>) -> R,
    ) -> Result<Edited<R>, EditError> {
        let now = self.conditions.now;
        if self.on_cold != OnCold::Show {
            // It may be missing of another key, in another partition: LMOVE would push what it has not seen.
            self.refuse_failed()?;
            if self.held.partition(key.slot).has_cold() {
                self.held.partition(key.slot).store.cold.set_collects(false);
                self.bring_home(db, key)?;
            }
        }
        let seen = self.find_again(db, key);
        let was_touched = seen.is_some_and(|found| found.touched) || self.conditions.no_touch;
        let live = self.locate_again(db, key, seen);
        self.refuse_frozen(db, key)?;
        let partition = self.held.partition(key.slot);
        let location = match live {
            Some(location) => match location.page.zip(location.spot).filter(|_| !was_touched) {
                // It may have moved for an access column.
                Some(place) if partition.touch_at(db, key, place, now) != place => partition.locate(db, key),
                _ => live,
            },
            None => {
                // An expired entry that stays hidden is replaced.
                let hidden = partition.locate(db, key);
                if let Some(location) = hidden.filter(|location| location.spot.is_some()) {
                    partition.remove_at(db, &location, now);
                }
                partition.locate(db, key)
            }
        };
        let fields_from = match self.conditions.expiry_mode {
            ExpiryMode::Keep => UnixMs(i64::MIN),
            ExpiryMode::Delete | ExpiryMode::Hide => now,
        };
        let terms = crate::access::edit::EditTerms { form, limits, now };
        let edited = partition.edit(db, location, key, terms, |editing| {
            editing.fields_from = fields_from;
            work(editing)
        })?;
        if edited.changed {
            self.written(db, key);
        }
        if edited.created {
            self.created(db, key);
        }
        if edited.emptied {
            self.events.emptied(db, key.bytes);
        }
        Ok(edited)
    }

    /// Takes over what is known from elsewhere about the use of a key that was just stored.
    pub fn note_access(&mut self, db: Db, key: &Key<'_>, note: AccessNote) {
        let now = self.conditions.now;
        let Some(place) = self.find_place::<false>(db, key) else { return };
        let partition = self.held.partition(key.slot);
        // Touching it gives its page the access column, if that has none yet.
        let (page, spot) = partition.touch_at(db, key, place, now);
        partition.store.note_access(page, spot.index, note, now);
    }

    /// Removes `key`. Returns whether a live entry was there.
    pub fn remove(&mut self, db: Db, key: &Key<'_>) -> bool {
        let Some(location) = self.locate(db, key).filter(|location| location.spot.is_some()) else {
            return false;
        };
        self.found = None;
        let now = self.conditions.now;
        self.held.partition(key.slot).remove_at(db, &location, now);
        self.events.removed(db, key.bytes);
        self.written(db, key);
        true
    }

    /// Removes `key`, so that the command can store another value there: for events that is no new key.
    /// Returns whether a live entry was there.
    pub fn clear(&mut self, db: Db, key: &Key<'_>) -> bool {
        let was_there = self.remove(db, key);
        self.cleared = was_there.then_some((db, key.hash));
        was_there
    }

    /// Removes a key that is there and was given a time that is over: it leaves as an expired key.
    pub fn expire(&mut self, db: Db, key: &Key<'_>) {
        self.held.check_changed(key);
        let location = self.locate(db, key).expect("the key was found under the same lock");
        self.found = None;
        let now = self.conditions.now;
        self.held.partition(key.slot).remove_at(db, &location, now);
        let (partition, ready) = self.held.partition_and_ready(key.slot);
        // For watches it is a command's change: the key was alive.
        partition.followers.changed(db, key.bytes, ChangeCause::ExpiredByCommand, Some(ready), self.sink);
        self.expired += 1;
    }

    /// Sets or clears (`None`) the expiry. Returns whether the key exists.
    pub fn set_expiry(&mut self, db: Db, key: &Key<'_>, expiry: Option<UnixMs>) -> Result<bool, Full> {
        let seen = self.find_again(db, key);
        let Some(mut location) = self.locate_again(db, key, seen).filter(|location| location.spot.is_some())
        else {
            return Ok(false);
        };
        let now = self.conditions.now;
        let (table, store) = self.held.partition(key.slot).table_and_store(db).expect("it was found");
        table.set_expiry(store, &mut location, key, expiry, now)?;
        self.written(db, key);
        Ok(true)
    }

    /// The bytes of a string that is now `len` long (not shorter than before), for writing in place: what was
    /// there is kept, the rest is zero. An absent key is created without expiry; an integer becomes text. Raw
    /// from now on. [`Full`] also where no entry can state the length.
    pub fn edit(&mut self, db: Db, key: &Key<'_>, len: usize) -> Result<&mut [u8], Full> {
        self.touch(db, key);
        self.room(db, key, len)
    }

    /// Returns the bytes that `edit` does, without notice to watchers: a change needs `touch`.
    pub fn room(&mut self, db: Db, key: &Key<'_>, len: usize) -> Result<&mut [u8], Full> {
        let live = match self.find_again(db, key) {
            Some(found) => self.held.partition(key.slot).locate_seen(db, key, Some(found.place.1)),
            None => self.locate(db, key),
        };
        self.found = None;
        self.refuse_frozen(db, key)?;
        let now = self.conditions.now;
        let location = match live {
            Some(location) if location.spot.is_some() => live,
            _ => {
                let partition = self.held.partition(key.slot);
                let hidden = partition.locate(db, key);
                if let Some(location) = hidden.filter(|location| location.spot.is_some()) {
                    partition.remove_at(db, &location, now);
                }
                self.held.partition(key.slot).locate(db, key)
            }
        };
        let is_new = location.is_none_or(|location| location.spot.is_none());
        let bytes = self.held.partition(key.slot).edit_at(db, location, key, len, now)?;
        if is_new {
            self.events.created(db, key.bytes);
        }
        Ok(bytes)
    }

    /// Flags clients that watch `key`: it was changed.
    pub fn touch(&mut self, db: Db, key: &Key<'_>) {
        self.written(db, key);
    }

    /// Moves value and expiry to another name (and database), replacing what is there: for events the name
    /// is new. [`Full`] also without a source in memory. It is another entry than the target.
    pub fn rename(&mut self, from: (Db, &Key<'_>), to: (Db, &Key<'_>)) -> Result<(), Full> {
        self.found = None;
        self.meet_frozen(to.0, to.1)?;
        let now = self.conditions.now;
        let source = self.locate_source(from)?;
        let home = self.held.partition(from.1.slot).number;
        let target = self.held.partition(to.1.slot);
        if target.number == home && target.share_object(&source, to, now)? {
            self.written(to.0, to.1);
            self.event(EventClass::New, "new", to.0, to.1.bytes);
        } else {
            self.copy(from, to)?;
        }
        let removed = self.remove(from.0, from.1);
        assert!(removed, "it was found above, under the same locks, and only the target has changed since");
        Ok(())
    }

    /// Copies value and expiry to another name (and database), replacing what is there: for events the name
    /// is new. [`Full`] also where there is no source in memory.
    pub fn copy(&mut self, from: (Db, &Key<'_>), to: (Db, &Key<'_>)) -> Result<(), Full> {
        self.found = None;
        self.meet_frozen(to.0, to.1)?;
        let now = self.conditions.now;
        let source = self.locate_source(from)?;
        if source.object(&self.held.partition(from.1.slot).store).is_some() {
            let expiry = source.expiry(&self.held.partition(from.1.slot).store);
            copy_object(self.held, (from.1, &source), to, expiry, now)?;
        } else {
            let carried = self.held.partition(from.1.slot).carry(&source);
            self.held.partition(to.1.slot).put_carried(to.0, to.1, carried, now)?;
        }
        self.written(to.0, to.1);
        self.event(EventClass::New, "new", to.0, to.1.bytes);
        Ok(())
    }

    /// Copies a large collection, without its expiry, to a key that is absent. Returns whether it is one.
    pub fn take_over(&mut self, db: Db, from: &Key<'_>, to: &Key<'_>) -> Result<bool, Full> {
        self.found = None;
        self.meet_frozen(db, to)?;
        let source = self.locate(db, from).filter(|location| location.spot.is_some());
        let store = &self.held.partition(from.slot).store;
        let Some(source) = source.filter(|source| source.object(store).is_some()) else { return Ok(false) };
        let now = self.conditions.now;
        copy_object(self.held, (from, &source), (db, to), None, now)?;
        self.written(db, to);
        self.created(db, to);
        Ok(true)
    }

    // ---- waiting ----

    /// Returns whether the key can be looked at. A client that is served by another client's push sees the
    /// keys whose partitions that client holds.
    pub fn holds(&self, key: &Key<'_>) -> bool {
        self.held.holds(key)
    }

    // ---- watching ----

    /// Lists `watcher` under a key; its name is shared with the list.
    pub fn watch(&mut self, db: Db, name: &Arc<[u8]>, watcher: &Arc<Watcher>) {
        steps::note(1);
        let now = self.conditions.now;
        let key = self.key(name);
        self.thaw_if_due(db, &key);
        let partition = self.held.partition(key.slot);
        let stale = partition.presence(db, &key, now) == Presence::Stale;
        partition.followers.watches.add(db, name, watcher, stale);
    }

    pub fn unwatch(&mut self, db: Db, key: &Key<'_>, watcher: &Arc<Watcher>) {
        steps::note(1);
        self.held.partition(key.slot).followers.watches.remove(db, key.bytes, watcher);
    }

    /// Returns whether a watched key that was alive at WATCH is past its time now. Used by EXEC.
    pub fn watched_key_expired(&mut self, db: Db, key: &Key<'_>, watcher: &Arc<Watcher>) -> bool {
        steps::note(1);
        let now = self.conditions.now;
        self.thaw_if_due(db, key);
        let partition = self.held.partition(key.slot);
        partition.presence(db, key, now) == Presence::Stale
            && !partition.followers.watches.was_expired(db, key.bytes, watcher)
    }

    // ---- helpers ----

    /// A live key was written or removed.
    #[inline]
    fn written(&mut self, db: Db, key: &Key<'_>) {
        self.held.check_changed(key);
        let (partition, ready) = self.held.partition_and_ready(key.slot);
        if partition.followers.any() {
            partition.followers.changed(db, key.bytes, ChangeCause::Written, Some(ready), self.sink);
        }
    }

    /// A key is there that was not.
    #[inline]
    fn created(&mut self, db: Db, key: &Key<'_>) {
        if self.cleared == Some((db, key.hash)) {
            self.cleared = None;
        } else {
            self.events.created(db, key.bytes);
        }
    }

    /// The waiters of `key` look again. Every change does so by itself; a handler asks for it where Valkey
    /// wakes waiters and leaves watches alone (XGROUP DESTROY).
    #[cold]
    pub fn note_waiters(&mut self, db: Db, key: &Key<'_>) {
        let (partition, ready) = self.held.partition_and_ready(key.slot);
        partition.followers.note_ready(db, key.bytes, false, ready);
    }

    /// All keys of a database are others now.
    pub(super) fn note_all_waiters(&mut self, db: Db) {
        let now = self.conditions.now;
        self.held.note_all_ready(db, |partition, key| partition.presence(db, key, now) == Presence::Alive);
    }
}
