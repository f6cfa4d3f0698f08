//! WATCH: whose transaction fails because a key changed.
//!
//! A watcher is one flag per connection. A partition lists, per watched key, the flags to raise; a change
//! raises them under the partition's lock, so an EXEC that takes the same lock afterwards sees it.
//!
//! A flag that is raised stays so until its connection watches anew, with another flag. So a change takes the
//! flags that it raises out of the list: each is visited once for the WATCH that has listed it, however often
//! the key changes. A connection finds its place in a list by its flag's address, without a scan.
//!
//! A key that had expired already when WATCH met it is as good as absent: that it then really leaves is no
//! change.

use crate::layout::kind::Db;
use isotherm_stdx::steps;
use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// The flag of one connection: raised when something that it watches has changed.
#[derive(Debug, Default)]
pub struct Watcher {
    dirty: AtomicBool,
}

impl Watcher {
    pub fn is_dirty(&self) -> bool {
        self.dirty.load(Ordering::Acquire)
    }
    pub fn mark_dirty(&self) {
        self.dirty.store(true, Ordering::Release);
    }
}

#[derive(Clone)]
struct Watch {
    watcher: Arc<Watcher>,
    /// The key was there in memory, but past its time, when WATCH met it.
    was_expired: bool,
}

/// The watches of one key: mostly it is one, and takes nothing besides the key's entry.
enum List {
    One(Watch),
    /// Watches by the address of their flag.
    #[expect(clippy::box_collection, reason = "a key's entry stays small")]
    Several(Box<HashMap<usize, Watch>>),
}

fn address(watcher: &Arc<Watcher>) -> usize {
    Arc::as_ptr(watcher).addr()
}

impl List {
    fn get(&self, watcher: &Arc<Watcher>) -> Option<&Watch> {
        match self {
            List::One(only) => Some(only).filter(|only| Arc::ptr_eq(&only.watcher, watcher)),
            List::Several(several) => several.get(&address(watcher)),
        }
    }

    fn add(&mut self, watch: Watch) {
        if self.get(&watch.watcher).is_some() {
            return;
        }
        if let List::One(first) = self {
            let first = (address(&first.watcher), first.clone());
            *self = List::Several(Box::new(HashMap::from([first])));
        }
        if let List::Several(several) = self {
            several.insert(address(&watch.watcher), watch);
        }
    }

    /// Removes a watcher. Returns whether none is left.
    fn remove(&mut self, watcher: &Arc<Watcher>) -> bool {
        match self {
            List::One(only) => Arc::ptr_eq(&only.watcher, watcher),
            List::Several(several) => {
                several.remove(&address(watcher));
                several.is_empty()
            }
        }
    }

    /// Keeps the watches for which `keep` returns true. Returns whether none is left.
    fn retain(&mut self, mut keep: impl FnMut(&mut Watch) -> bool) -> bool {
        match self {
            List::One(only) => {
                steps::note(1);
                !keep(only)
            }
            List::Several(several) => {
                steps::note(several.len() as u64);
                several.retain(|_, watch| keep(watch));
                several.is_empty()
            }
        }
    }
}

/// The watched keys of one partition.
#[derive(Default)]
pub(crate) struct Watches {
    databases: HashMap<Db, HashMap<Arc<[u8]>, List>>,
}

impl Watches {
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.databases.is_empty()
    }

    pub fn add(&mut self, db: Db, key: &Arc<[u8]>, watcher: &Arc<Watcher>, was_expired: bool) {
        let watch = Watch { watcher: Arc::clone(watcher), was_expired };
        match self.databases.entry(db).or_default().entry(Arc::clone(key)) {
            std::collections::hash_map::Entry::Occupied(mut list) => list.get_mut().add(watch),
            std::collections::hash_map::Entry::Vacant(place) => drop(place.insert(List::One(watch))),
        }
    }

    /// Changes the list of a key, if there is one, by a function that returns whether none is left of it.
    fn change(&mut self, db: Db, key: &[u8], change: impl FnOnce(&mut List) -> bool) {
        let Some(keys) = self.databases.get_mut(&db) else { return };
        let Some(list) = keys.get_mut(key) else { return };
        if change(list) {
            keys.remove(key);
            if keys.is_empty() {
                self.databases.remove(&db);
            }
        }
    }

    /// Removes a watcher from a key's list. Nothing happens if it is listed no longer.
    pub fn remove(&mut self, db: Db, key: &[u8], watcher: &Arc<Watcher>) {
        self.change(db, key, |list| list.remove(watcher));
    }

    /// Returns whether `key` was past its time already when `watcher` met it.
    pub fn was_expired(&self, db: Db, key: &[u8], watcher: &Arc<Watcher>) -> bool {
        let list = self.databases.get(&db).and_then(|keys| keys.get(key));
        list.and_then(|list| list.get(watcher)).is_some_and(|watch| watch.was_expired)
    }

    /// `key` was changed.
    pub fn touch(&mut self, db: Db, key: &[u8]) {
        self.change(db, key, |list| list.retain(Watch::fail));
    }

    /// Notes that keys of a database were changed, those for which `is_changed` returns true.
    pub fn touch_some(&mut self, db: Db, is_changed: impl Fn(&[u8]) -> bool) {
        let Some(keys) = self.databases.get(&db) else { return };
        steps::note(keys.len() as u64);
        let changed: Vec<Arc<[u8]>> = keys.keys().filter(|key| is_changed(key)).cloned().collect();
        changed.iter().for_each(|key| self.touch(db, key));
    }

    /// `key` leaves because its time has come. Watches that began after that moment have lost nothing; from
    /// now on the key is simply absent for them.
    pub fn expire(&mut self, db: Db, key: &[u8]) {
        self.change(db, key, |list| {
            list.retain(|watch| std::mem::take(&mut watch.was_expired) || watch.fail())
        });
    }

    /// Fails the watches of keys that leave this node, those for which `leaves` returns true. Returns how
    /// many were asked about.
    pub fn fail_where(&mut self, leaves: impl Fn(&[u8]) -> bool) -> usize {
        let mut asked = 0;
        self.databases.retain(|_, keys| {
            asked += keys.len();
            keys.retain(|key, list| !leaves(key) || !list.retain(Watch::fail));
            !keys.is_empty()
        });
        steps::note(asked as u64);
        asked
    }

    /// All keys of `db` are replaced at once (FLUSHDB, SWAPDB). `before` and `after` say how a key stands in
    /// the world before and after: absent, alive, or past its time.
    pub fn replace(
        &mut self,
        db: Db,
        mut before: impl FnMut(&[u8]) -> Presence,
        mut after: impl FnMut(&[u8]) -> Presence,
    ) {
        let Some(keys) = self.databases.get_mut(&db) else { return };
        keys.retain(|key, list| {
            let (was, is) = (before(key), after(key));
            !list.retain(|watch| {
                let was_there = was == Presence::Alive || (was == Presence::Stale && !watch.was_expired);
                if was_there || is == Presence::Alive {
                    return watch.fail();
                }
                watch.was_expired = is == Presence::Stale;
                true
            })
        });
        if keys.is_empty() {
            self.databases.remove(&db);
        }
    }
}

impl Watch {
    /// The transaction fails, and nothing more need be noted for it.
    fn fail(&mut self) -> bool {
        self.watcher.mark_dirty();
        false
    }
}

/// Presence of a key.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Presence {
    Absent,
    Alive,
    /// A key in memory that is past its time.
    Stale,
}
