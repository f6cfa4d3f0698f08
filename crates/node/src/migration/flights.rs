//! Keys that are on their way to another server.
//!
//! A key is on its way in one MIGRATE only: another one that names it waits. In a member of a cluster a
//! client is not sent on to the target (ASK) for a key that is on its way and missing here: it was deleted
//! after it was sent, and until the target has heard of that the client would find it there, or its new value
//! would be taken for the old one. It waits until the MIGRATE is over.

use isotherm_keyspace::Db;
use std::collections::{HashMap, HashSet};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};

#[derive(Default)]
pub struct Flights {
    keys: Mutex<Keys>,
    ended: Condvar,
}

#[derive(Default)]
struct Keys {
    of: HashMap<Db, HashSet<Arc<[u8]>>>,
    /// A client waits for the end of one of them.
    is_awaited: bool,
}

impl Keys {
    fn has(&self, db: Db, key: &[u8]) -> bool {
        self.of.get(&db).is_some_and(|keys| keys.contains(key))
    }
}

impl Flights {
    fn keys(&self) -> MutexGuard<'_, Keys> {
        self.keys.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Marks these keys as on their way, all of them at once. Waits while another MIGRATE has one of them;
    /// none is marked until then. The caller holds nothing.
    pub fn begin<'n>(&self, db: Db, names: impl Iterator<Item = &'n Arc<[u8]>> + Clone) {
        let mut keys = self.keys();
        while names.clone().any(|name| keys.has(db, name)) {
            keys = self.ended.wait(keys).unwrap_or_else(PoisonError::into_inner);
        }
        keys.of.entry(db).or_default().extend(names.cloned());
    }

    /// Ends what `begin` has marked. Returns whether a client has waited for the end of some key.
    pub fn end<'n>(&self, db: Db, names: impl Iterator<Item = &'n Arc<[u8]>>) -> bool {
        let mut keys = self.keys();
        if let Some(of_db) = keys.of.get_mut(&db) {
            names.for_each(|name| _ = of_db.remove(name));
            if of_db.is_empty() {
                keys.of.remove(&db);
            }
        }
        self.ended.notify_all();
        std::mem::take(&mut keys.is_awaited)
    }

    /// Returns whether a key that is missing here is on its way. The lock of its partition is held, and the
    /// caller is going to wait until its worker hears of the end (`WorkerMessage::ScriptsChanged`).
    pub fn await_end(&self, db: Db, key: &[u8]) -> bool {
        let mut keys = self.keys();
        let is_under_way = keys.has(db, key);
        keys.is_awaited |= is_under_way;
        is_under_way
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    #[test]
    fn a_key_is_on_its_way_once() {
        let flights = Flights::default();
        let [a, b]: [Arc<[u8]>; 2] = [Arc::from(&b"a"[..]), Arc::from(&b"b"[..])];
        flights.begin(Db(0), [&a, &b].into_iter());
        assert!(flights.await_end(Db(0), b"a") && !flights.await_end(Db(1), b"a"));
        flights.begin(Db(1), [&a].into_iter());
        std::thread::scope(|scope| {
            let waits = scope.spawn(|| flights.begin(Db(0), [&b].into_iter()));
            std::thread::sleep(Duration::from_millis(20));
            assert!(!waits.is_finished());
            assert!(flights.end(Db(0), [&a, &b].into_iter()));
        });
        assert!(!flights.await_end(Db(0), b"a"));
        assert!(!flights.end(Db(0), [&b].into_iter()) && !flights.end(Db(1), [&a].into_iter()));
        assert!(flights.keys().of.is_empty());
    }
}
