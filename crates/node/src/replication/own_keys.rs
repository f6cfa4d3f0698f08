//! The keys that clients have given a TTL on a replica that takes writes (`replica-read-only no`): the
//! primary knows nothing of them, so no DEL of it will ever come, and the replica expires them itself.
//!
//! ```text
//!   by_key   (db, key) -> due         one entry a key, the last one stated
//!   by_due   (due, db, key)           what is due next stands first
//! ```
//! A client's write puts its keys here, or takes out those that have no TTL any more (`own_expiry`).
//!
//! Invariants: both have the same keys; they take no more than `KEYS_MAX` keys of `BYTES_MAX` bytes. On a
//! replica that takes no writes of clients this is empty, and costs nothing.

use isotherm_allocator::class_bytes;
use isotherm_keyspace::{Db, UnixMs};
use std::collections::{BTreeSet, HashMap};
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::sync::{Mutex, MutexGuard, PoisonError};

// COMPAT(replication): A writable replica expires the keys by itself that a client's write has left with a
// TTL, whether that write set the TTL or not, in all databases, up to 65,536 keys of 8 MB; the keys beyond
// stay hidden when their time is over, until the primary removes them. Valkey remembers the keys whose TTL a
// client has set, of databases 0 to 63, without a limit. Why: the memory is bounded.
const KEYS_MAX: usize = 1 << 16;
/// Maximum for the bytes of all keys. Each key is kept twice: 16 MB.
const BYTES_MAX: usize = 8 << 20;

pub type Name = (Db, Box<[u8]>);

#[derive(Default)]
pub struct OwnKeys {
    count: AtomicUsize,
    used_bytes: AtomicUsize,
    inner: Mutex<Inner>,
}

/// Bytes that a key takes in addition to its names: a place in `by_key` (a name, a time, a byte of the table;
/// an eighth is empty at least, a third on the average) and a place in a node of `by_due`, where a third is
/// empty.
const KEY_BYTES: usize = ((size_of::<Name>() + 8 + 1) + (size_of::<Name>() + 8)) * 3 / 2;

#[derive(Default)]
struct Inner {
    by_key: HashMap<Name, UnixMs>,
    by_due: BTreeSet<(UnixMs, Name)>,
    bytes: usize,
    /// With all that is allocated for them.
    used_bytes: usize,
}

/// Both names of a key, and its places.
fn memory_of(name: &Name) -> usize {
    2 * class_bytes(name.1.len()) + KEY_BYTES
}

impl OwnKeys {
    fn lock(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub fn count(&self) -> usize {
        self.count.load(Relaxed)
    }

    /// The memory that it takes.
    pub fn used_bytes(&self) -> u64 {
        self.used_bytes.load(Relaxed) as u64
    }

    fn publish(&self, inner: &Inner) {
        self.count.store(inner.by_key.len(), Relaxed);
        self.used_bytes.store(inner.used_bytes, Relaxed);
    }

    /// The key is due at this moment, or no longer at any.
    pub fn set(&self, db: Db, key: &[u8], due: Option<UnixMs>) {
        if due.is_none() && self.count() == 0 {
            return;
        }
        let mut inner = self.lock();
        inner.set((db, key.into()), due);
        self.publish(&inner);
    }

    pub fn take_due(&self, now: UnixMs) -> Option<Name> {
        let mut inner = self.lock();
        let (due, name) = inner.by_due.first()?.clone();
        if due > now {
            return None;
        }
        inner.set(name.clone(), None);
        self.publish(&inner);
        Some(name)
    }

    /// The role has changed, or all data.
    pub fn clear(&self) {
        let mut inner = self.lock();
        *inner = Inner::default();
        self.publish(&inner);
    }
}

impl Inner {
    fn set(&mut self, name: Name, due: Option<UnixMs>) {
        if let Some(before) = self.by_key.remove(&name) {
            self.bytes -= name.1.len();
            self.used_bytes -= memory_of(&name);
            self.by_due.remove(&(before, name.clone()));
        }
        if let Some(due) = due
            && self.by_key.len() < KEYS_MAX
            && self.bytes + name.1.len() <= BYTES_MAX
        {
            self.bytes += name.1.len();
            self.used_bytes += memory_of(&name);
            self.by_due.insert((due, name.clone()));
            self.by_key.insert(name, due);
        }
        if cfg!(debug_assertions) {
            assert_eq!(self.by_key.len(), self.by_due.len());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_word_on_a_key_holds() {
        let keys = OwnKeys::default();
        keys.set(Db(1), b"a", Some(UnixMs(10)));
        keys.set(Db(0), b"a", Some(UnixMs(20)));
        keys.set(Db(1), b"a", Some(UnixMs(30)));
        keys.set(Db(0), b"b", Some(UnixMs(5)));
        keys.set(Db(0), b"b", None);
        assert_eq!(keys.count(), 2);
        assert_eq!(keys.take_due(UnixMs(19)), None);
        assert_eq!(keys.take_due(UnixMs(40)), Some((Db(0), b"a"[..].into())));
        assert_eq!(keys.take_due(UnixMs(40)), Some((Db(1), b"a"[..].into())));
        assert_eq!((keys.take_due(UnixMs(40)), keys.count(), keys.lock().bytes), (None, 0, 0));
        assert_eq!(keys.used_bytes(), 0);
    }

    #[test]
    fn the_table_is_bounded() {
        let keys = OwnKeys::default();
        let long = vec![0; BYTES_MAX];
        keys.set(Db(0), b"a", Some(UnixMs(1)));
        keys.set(Db(0), &long, Some(UnixMs(1)));
        assert_eq!(keys.count(), 1, "it has no room for the long one");
        for number in 0..KEYS_MAX as u32 + 5 {
            keys.set(Db(0), &number.to_be_bytes(), Some(UnixMs(2)));
        }
        assert_eq!(keys.count(), KEYS_MAX);
        keys.clear();
        assert_eq!((keys.count(), keys.take_due(UnixMs(9))), (0, None));
    }
}
