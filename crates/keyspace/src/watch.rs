//! WATCH: who is to be told that a key changed.
//!
//! A watcher is one flag per connection. A partition lists, per watched key, the flags to raise; a change raises them
//! under the partition's lock, so an EXEC that takes the same lock afterwards sees it.
//!
//! A key that had expired already when WATCH met it is as good as absent: that it then really leaves is no change.

use crate::value::Db;
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
    pub fn reset(&self) {
        self.dirty.store(false, Ordering::Release);
    }
}

struct Watch {
    watcher: Arc<Watcher>,
    /// The key was there in memory, but past its time, when WATCH met it.
    was_expired: bool,
}

/// The watched keys of one partition.
#[derive(Default)]
pub(crate) struct Watches {
    keys: HashMap<(Db, Box<[u8]>), Vec<Watch>>,
}

impl Watches {
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.keys.is_empty()
    }

    pub fn add(&mut self, db: Db, key: &[u8], watcher: &Arc<Watcher>, was_expired: bool) {
        let watches = self.keys.entry((db, key.into())).or_default();
        if !watches.iter().any(|watch| Arc::ptr_eq(&watch.watcher, watcher)) {
            watches.push(Watch { watcher: Arc::clone(watcher), was_expired });
        }
    }

    pub fn remove(&mut self, db: Db, key: &[u8], watcher: &Arc<Watcher>) {
        let name = (db, Box::from(key));
        let Some(watches) = self.keys.get_mut(&name) else { return };
        watches.retain(|watch| !Arc::ptr_eq(&watch.watcher, watcher));
        if watches.is_empty() {
            self.keys.remove(&name);
        }
    }

    /// Whether `key` was past its time already when `watcher` met it.
    pub fn was_expired(&self, db: Db, key: &[u8], watcher: &Arc<Watcher>) -> bool {
        let watches = self.keys.get(&(db, Box::from(key))).map(Vec::as_slice).unwrap_or_default();
        watches.iter().any(|watch| Arc::ptr_eq(&watch.watcher, watcher) && watch.was_expired)
    }

    /// Somebody changed `key`.
    pub fn touch(&mut self, db: Db, key: &[u8]) {
        if let Some(watches) = self.keys.get(&(db, Box::from(key))) {
            watches.iter().for_each(|watch| watch.watcher.mark_dirty());
        }
    }

    /// `key` leaves because its time has come. Whoever watched it after that moment has lost nothing; from now on the
    /// key is simply absent for him.
    pub fn expire(&mut self, db: Db, key: &[u8]) {
        let Some(watches) = self.keys.get_mut(&(db, Box::from(key))) else { return };
        for watch in watches {
            if watch.was_expired {
                watch.was_expired = false;
            } else {
                watch.watcher.mark_dirty();
            }
        }
    }

    /// All keys of `db` are replaced at once (FLUSHDB, SWAPDB). `before` and `after` tell how a key stands in the
    /// world before and after: absent, alive, or past its time.
    pub fn replace(
        &mut self,
        db: Db,
        mut before: impl FnMut(&[u8]) -> Presence,
        mut after: impl FnMut(&[u8]) -> Presence,
    ) {
        for ((watched_db, key), watches) in &mut self.keys {
            if *watched_db != db {
                continue;
            }
            let (was, is) = (before(key), after(key));
            for watch in watches {
                let was_there = was == Presence::Alive || (was == Presence::Stale && !watch.was_expired);
                if was_there || is == Presence::Alive {
                    watch.watcher.mark_dirty();
                } else {
                    watch.was_expired = is == Presence::Stale;
                }
            }
        }
    }
}

/// How a key stands.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Presence {
    Absent,
    Alive,
    /// In memory, past its time.
    Stale,
}
