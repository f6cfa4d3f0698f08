//! Transactions on whole databases: their sizes, walks over their keys, a random key, emptying and swapping
//! them. These hold every partition (the gate).

use crate::access::effect::Effect;
use crate::access::partition::Partition;
use crate::access::scan::{
    CURSORS, Scanned, Source, cursor_of, position_in, random_entry, random_frozen, scan, weighted_slot,
};
use crate::access::terms::{ExpiryMode, OnCold};
use crate::access::txn::Txn;
use crate::access::walk::{Walk, WalkProgress};
use crate::layout::entry::EntryBytes;
use crate::layout::kind::Db;
use crate::values::value::Entry;
use isotherm_stdx::{Slot, Steps};
use std::sync::atomic::Ordering::Release;

impl Txn<'_, '_> {
    /// Keys in `db`, expired ones that have not left yet included.
    pub fn len(&mut self, db: Db) -> u64 {
        self.held.partitions().map(|partition| partition.len(db)).sum()
    }

    pub fn is_empty(&mut self, db: Db) -> bool {
        self.len(db) == 0
    }

    /// Keys with an expiry in `db`.
    pub fn volatile_len(&mut self, db: Db) -> u64 {
        self.held.partitions().map(|partition| partition.volatile_len(db)).sum()
    }

    /// Calls `visit` with every live key of `db`; in one slot only if it is given.
    pub fn for_each_key(&mut self, db: Db, slot: Option<Slot>, mut visit: impl FnMut(&[u8])) {
        let now = self.conditions.now;
        let hide = self.conditions.expiry_mode != ExpiryMode::Keep;
        let mut is_whole = true;
        for partition in self.held.partitions() {
            is_whole &= partition.for_each(db, slot, now, &mut |key, entry| {
                if !(hide && entry.expiry.is_some_and(|at| at < now)) {
                    visit(key);
                }
            });
        }
        if !is_whole {
            self.held.note_lost_keys(db);
        }
    }

    /// SCAN: continues at `cursor` until `count` entries were seen, and returns the next cursor, 0 at the
    /// end. Entries past their time are not visited, and leave where the mode says so. With a slot, only that
    /// slot.
    pub fn scan(
        &mut self,
        db: Db,
        cursor: u64,
        count: u64,
        slot: Option<Slot>,
        wanted: impl Fn(&[u8], &Entry<'_>) -> bool,
        mut visit: impl FnMut(&[u8], &Entry<'_>),
    ) -> u64 {
        let scanned = Scanned { db, only: slot, now: self.conditions.now, is_exact: false };
        self.scan_as(scanned, cursor, count, &wanted, &mut visit)
    }

    /// Returns whether keys lie outside memory that a walk of this command does not wait for: it continues
    /// with [`Txn::walk`].
    pub fn walks_in_steps(&self) -> bool {
        self.on_cold == OnCold::Collect && self.held.has_frozen()
    }

    /// Walks over up to `most` keys of `db`, each once, for a command that may run in several steps, between
    /// which keys come and go: `write` adds the answer for a key. `None`: a record is missing, and the
    /// command runs again.
    pub fn walk(
        &mut self,
        db: Db,
        slot: Option<Slot>,
        most: usize,
        mut write: impl FnMut(&mut Vec<u8>, &[u8]) -> bool,
    ) -> Option<WalkProgress> {
        let scanned = Scanned { db, only: slot, now: self.conditions.now, is_exact: true };
        let mut progress = self.held.walk.take_progress();
        let from = progress.cursor;
        loop {
            let (bytes, count) = (progress.found.len(), progress.count);
            if count >= most {
                return Some(progress);
            }
            let (found, number) = (&mut progress.found, &mut progress.count);
            let mut visit = |key: &[u8], _: &Entry<'_>| {
                if *number < most {
                    *number += usize::from(write(found, key));
                }
            };
            let wanted = (most - count) as u64;
            let next = self.scan_as(scanned, progress.cursor, wanted, &|_, _| true, &mut visit);
            if self.held.walk.is_wanting() {
                progress.found.truncate(bytes);
                progress.count = count;
                let has_advanced = progress.cursor != from;
                self.held.walk.keep_progress(progress, has_advanced);
                return None;
            }
            progress.cursor = next;
            if next == 0 {
                return Some(progress);
            }
        }
    }

    /// Visits entries from a cursor on until `count` were seen, for a walk that looks at values too: each key
    /// is met once. Returns the next cursor, 0 at the end. Values and parts of values on disk are not shown;
    /// such parts are noted (`Held::take_missing`).
    pub fn walk_values(
        &mut self,
        db: Db,
        cursor: u64,
        count: u64,
        mut visit: impl FnMut(&[u8], &Entry<'_>),
    ) -> u64 {
        self.held.partitions().for_each(|partition| partition.store.cold.set_collects(true));
        let scanned = Scanned { db, only: None, now: self.conditions.now, is_exact: true };
        self.scan_as(scanned, cursor, count, &|_, _| true, &mut visit)
    }

    fn scan_as(
        &mut self,
        scanned: Scanned,
        cursor: u64,
        count: u64,
        wanted: &dyn Fn(&[u8], &Entry<'_>) -> bool,
        visit: &mut dyn FnMut(&[u8], &Entry<'_>),
    ) -> u64 {
        let Scanned { db, now, .. } = scanned;
        let keep = self.conditions.expiry_mode == ExpiryMode::Keep;
        let mut stale: Vec<Vec<u8>> = Vec::new();
        let mut walk = std::mem::take(&mut self.held.walk);
        let mut source = self.source_of_records(&mut walk);
        let next = scan(self.held, scanned, cursor, count, &mut source, &mut |key, entry| {
            if !wanted(key, entry) {
                return;
            }
            if keep || entry.expiry.is_none_or(|at| at >= now) {
                visit(key, entry);
            } else {
                stale.push(key.to_vec());
            }
        });
        self.held.walk = walk;
        for key in stale {
            let key = self.held.keyspace.key(&key);
            // A frozen one leaves by itself (`due`).
            if !self.held.may_be_frozen(db, &key) {
                self.locate(db, &key);
            }
        }
        next
    }

    fn source_of_records<'w>(&self, walk: &'w mut Walk) -> Source<'w> {
        if self.on_cold == OnCold::Collect { Source::Walk(walk) } else { Source::Disk }
    }

    /// SCAN of one slot, where a place in it is known by itself: continues at `position`, 0 at the beginning
    /// and at the end.
    pub fn scan_slot(
        &mut self,
        db: Db,
        (slot, position): (Slot, u32),
        count: u64,
        wanted: impl Fn(&[u8], &Entry<'_>) -> bool,
        visit: impl FnMut(&[u8], &Entry<'_>),
    ) -> u32 {
        position_in(self.scan(db, cursor_of(slot, position), count, Some(slot), wanted, visit))
    }

    /// A random live key of `db`; `random` gives random numbers below its argument. Each is equally likely
    /// while a hundred tries meet one; else it is one of the next page that has any, from a random place on.
    /// If all keys have expired: none, or under a mode that keeps them the last that was met.
    pub fn random_key(&mut self, db: Db, random: &mut dyn FnMut(u64) -> u64) -> Option<Vec<u8>> {
        let mut walk = std::mem::take(&mut self.held.walk);
        let found = self.random_key_by(db, &mut walk, random);
        self.held.walk = walk;
        found
    }

    fn random_key_by(
        &mut self,
        db: Db,
        walk: &mut Walk,
        random: &mut dyn FnMut(u64) -> u64,
    ) -> Option<Vec<u8>> {
        const TRIES_MAX: usize = 100;
        let now = self.now();
        let mut source = self.source_of_records(walk);
        let mut last = None;
        for _ in 0..TRIES_MAX {
            let total = self.len(db);
            if total == 0 {
                return None;
            }
            let mut at = random(total);
            let partition = self.held.partitions().find(|partition| {
                let len = partition.len(db);
                let here = at < len;
                at = at.wrapping_sub(if here { 0 } else { len });
                here
            });
            let partition = partition.expect("the lengths add up to the total");
            if at >= partition.len_in_pages(db) {
                match random_frozen(partition, db, &mut source, random) {
                    Some((key, expiry)) if expiry.is_none_or(|at| at >= now) => return Some(key),
                    None if source.is_wanting() && !source.has_others() => return None,
                    found => last = found.map(|(key, _)| key).or(last),
                }
                continue;
            }
            let place = weighted_slot(partition, db, at, false);
            let record = partition.table(db).expect("it has keys").slot(&partition.store.heap, place).record;
            let (page, index) = random_entry(partition, &record, random);
            let page = partition.store.heap.page(page);
            let entry = EntryBytes(page.entry(page.spot(index)));
            let key = partition.store.key_of(entry).to_vec();
            if self.contains(db, &self.held.keyspace.key(&key)) {
                return Some(key);
            }
            last = Some(key);
        }
        let found = self.next_live_key(db, &mut source, random(CURSORS), random);
        let is_kept = self.conditions.expiry_mode != ExpiryMode::Delete;
        found.or(last.filter(|_| is_kept))
    }

    /// A live key of the first page from a cursor of SCAN on that has one; after the last slot comes the
    /// first. Expired keys are passed over, not collected: a look costs a hundredth. This is done under the
    /// gate, so it ends after 1,500 pages; a database with a live key has 1,500 pages without one only while
    /// expiry is paused.
    fn next_live_key(
        &mut self,
        db: Db,
        source: &mut Source<'_>,
        from: u64,
        random: &mut dyn FnMut(u64) -> u64,
    ) -> Option<Vec<u8>> {
        // COMPAT(keys): RANDOMKEY looks at no more than 1,500 pages for a key that has not expired, which
        // matters only under CLIENT PAUSE; after that it returns an expired one. Why: work under locks has a
        // bound.
        const PAGES_MAX: u64 = 1500;
        let now = self.now();
        let scanned = Scanned { db, only: None, now, is_exact: false };
        let mut steps = Steps::new(PAGES_MAX);
        for mut cursor in [from, 0] {
            while steps.look(1) {
                let mut live: Vec<Vec<u8>> = Vec::new();
                cursor = scan(self.held, scanned, cursor, 1, source, &mut |key, entry| {
                    if entry.expiry.is_none_or(|at| at >= now) {
                        live.push(key.to_vec());
                    }
                });
                if !live.is_empty() {
                    let at = random(live.len() as u64) as usize;
                    return Some(live.swap_remove(at));
                }
                if source.is_wanting() {
                    return None;
                }
                if cursor == 0 {
                    break;
                }
            }
        }
        None
    }

    /// Empties one database, or all. Returns how many keys left. Their memory is freed afterwards, by
    /// `Partition::free_step`.
    pub fn flush(&mut self, db: Option<Db>) -> u64 {
        self.flush_as(db, true)
    }

    /// Empties one database, or all, for a client that waits until all is freed. Returns how many keys left.
    /// Their memory is freed afterwards, before the client is answered.
    pub fn flush_and_wait(&mut self, db: Option<Db>) -> u64 {
        let removed = self.flush_as(db, false);
        self.free_afterwards(u64::MAX);
        removed
    }

    fn flush_as(&mut self, db: Option<Db>, is_lazy: bool) -> u64 {
        self.found = None;
        if self.held.partitions().any(|partition| partition.followers.reports_changes) {
            self.sink.effect(Effect::Flushed { db });
        }
        let now = self.conditions.now;
        let targets = match db {
            Some(db) => db.0..db.0 + 1,
            None => 0..self.databases(),
        };
        let is_gone = |db: &Db| targets.contains(&db.0);
        let has_others = |partition: &Partition| partition.used_databases().any(|db| !is_gone(&db));
        let others_stay = self.held.all().any(has_others);
        let mut removed = 0;
        for partition in self.held.partitions() {
            for db in targets.clone().map(Db) {
                partition.touch_flushed(db, now);
                removed += partition.flush(db, others_stay, is_lazy);
            }
        }
        if !others_stay {
            self.held.keyspace.shared().counters.attribution.clear();
            self.held.partitions().for_each(Partition::forget_attribution);
        }
        targets.map(Db).for_each(|db| self.note_all_waiters(db));
        removed
    }

    /// Up to `steps_max` entries of what was flushed are to be freed before the client is answered, in later
    /// holds.
    pub fn free_afterwards(&mut self, steps_max: u64) {
        self.held.free_afterwards = self.held.free_afterwards.max(steps_max);
    }

    /// Frees all that was flushed, in this hold. For DEBUG.
    pub fn free_flushed_now(&mut self) {
        for partition in self.held.partitions() {
            while partition.free_flushed(&mut Steps::new(u64::MAX)) {}
        }
    }

    /// SWAPDB.
    pub fn swap(&mut self, a: Db, b: Db) {
        self.found = None;
        let now = self.conditions.now;
        if a != b {
            self.held.partitions().for_each(|partition| partition.swap(a, b, now));
            self.held.keyspace.shared().swaps.fetch_add(1, Release);
            self.note_all_waiters(a);
            self.note_all_waiters(b);
        }
    }
}
