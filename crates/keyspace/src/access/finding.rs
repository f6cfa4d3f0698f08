//! Lookup of a key in a transaction: its entry to read, or the place where it is or would be to change it.
//!
//! ```text
//!   find_place     page and spot of a live entry            in registers: what reading takes
//!   locate         the same with slot and record            what changing takes; also where an absent key would be
//!   locate_again   the same behind `find`                   reads the record again, but does not search
//! ```
//! An entry whose time has come is removed, hidden or kept here, as the expiry mode says.

use crate::access::followers::ChangeCause;
use crate::access::terms::ExpiryMode;
use crate::access::txn::{Found, Txn};
use crate::layout::entry::EntryBytes;
use crate::layout::key::Key;
use crate::layout::kind::{Db, Full};
use crate::layout::page::Spot;
use crate::tables::location::Location;
use isotherm_arena::Handle;

impl Txn<'_, '_> {
    /// Takes the result of the last `find`, if it was for this key.
    #[inline]
    pub(super) fn find_again(&mut self, db: Db, key: &Key<'_>) -> Option<Found> {
        self.held.check_named(key);
        let found = self.found.take().filter(|found| found.hash == key.hash && found.db == db)?;
        let (page, spot) = found.place;
        let store = &self.held.partition(key.slot).store;
        let entry = EntryBytes(store.heap.page(page).entry(spot));
        store.is_key(entry, key.bytes).then_some(found)
    }

    /// Returns the location of a key, or the one that it would have. `seen` is the place where `find` has
    /// just found it.
    #[inline]
    pub(super) fn locate_again(&mut self, db: Db, key: &Key<'_>, seen: Option<Found>) -> Option<Location> {
        match seen {
            Some(found) => self.held.partition(key.slot).locate_seen(db, key, Some(found.place.1)),
            None => self.locate(db, key),
        }
    }

    /// Finds the entry of a key, unless its time has come and the expiry mode does not keep it. `READS`:
    /// one that is shown from its record stays there, and has no place.
    #[inline(always)]
    pub(super) fn find_place<const READS: bool>(&mut self, db: Db, key: &Key<'_>) -> Option<(Handle, Spot)> {
        self.held.check_named(key);
        let now = self.conditions.now;
        let partition = self.held.partition(key.slot);
        let place = match partition.find(db, key) {
            Some(place) => place,
            None if partition.has_frozen()
                && !(READS && self.is_shown(db, key))
                && self.thaw_now(db, key) =>
            {
                return self.find_thawed(db, key);
            }
            None => return None,
        };
        if !partition.is_stale(place, now) {
            return Some(place);
        }
        let location = partition.locate(db, key).expect("it was just found");
        self.meet_stale(db, key, location).map(|_| place)
    }

    /// Returns the location of the key, or the one that it would have, after the expiry mode was applied.
    /// `None` if the database has no keys in this partition, or if the entry is past its time and not kept.
    pub(super) fn locate(&mut self, db: Db, key: &Key<'_>) -> Option<Location> {
        self.held.check_named(key);
        let now = self.conditions.now;
        let partition = self.held.partition(key.slot);
        let mut location = partition.locate_in_place(db, key)?;
        if location.spot.is_none() && partition.has_frozen() && self.thaw_now(db, key) {
            location = self.held.partition(key.slot).locate(db, key)?;
        }
        let partition = self.held.partition(key.slot);
        if !location.is_stale(&partition.store, now) {
            return Some(location);
        }
        self.meet_stale(db, key, location)
    }

    /// Finds the entry whose value goes elsewhere. One shown from its record may find no room in memory.
    pub(super) fn locate_source(&mut self, (db, key): (Db, &Key<'_>)) -> Result<Location, Full> {
        self.locate(db, key).filter(|location| location.spot.is_some()).ok_or(Full)
    }

    /// Finds an entry that has just come to memory, unless its time has come and the expiry mode does not
    /// keep it.
    #[cold]
    fn find_thawed(&mut self, db: Db, key: &Key<'_>) -> Option<(Handle, Spot)> {
        let now = self.conditions.now;
        let partition = self.held.partition(key.slot);
        let place = partition.find(db, key)?;
        if !partition.is_stale(place, now) {
            return Some(place);
        }
        let location = partition.locate(db, key)?;
        self.meet_stale(db, key, location).map(|_| place)
    }

    #[cold]
    fn meet_stale(&mut self, db: Db, key: &Key<'_>, location: Location) -> Option<Location> {
        match self.conditions.expiry_mode {
            ExpiryMode::Keep => return Some(location),
            ExpiryMode::Hide => return None,
            ExpiryMode::Delete => {}
        }
        self.found = None;
        let now = self.conditions.now;
        let (partition, ready) = self.held.partition_and_ready(key.slot);
        partition.remove_at(db, &location, now);
        partition.followers.changed(db, key.bytes, ChangeCause::Expired, Some(ready), self.sink);
        self.expired += 1;
        let partition = self.held.partition(key.slot);
        if partition.has_frozen() {
            partition.note_in_no_bundle(db, key);
        }
        None
    }
}
