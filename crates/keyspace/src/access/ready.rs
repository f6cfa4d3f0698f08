//! Keys that were changed while a client waits for them, in the order of their first change, each once.
//!
//! ```text
//! queue    k3 | k1 | k7            taken from the front
//! behind   k3: 0, k1: 0, k7: 12    of k7 only waiters whose turn is after 12 are concerned
//! ```
//! A change concerns all waiters of its key: `behind` is 0. A key that a woken waiter passes on concerns only
//! those behind it. A try that finds nothing for its waiter has changed nothing, and the keys that it noted
//! are forgotten; a key that it met after its time has left for good, and stays noted.
//!
//! Invariant: both hold the same keys.

use crate::layout::kind::Db;
use std::collections::{HashMap, VecDeque};
use std::sync::Arc;

/// A key that has waiters, and was changed.
pub(crate) struct ReadyKey {
    pub db: Db,
    pub name: Arc<[u8]>,
    pub behind: u64,
}

#[derive(Default)]
pub(crate) struct Ready {
    queue: VecDeque<(Db, Arc<[u8]>)>,
    behind: HashMap<(Db, Arc<[u8]>), Noted>,
}

#[derive(Clone, Copy)]
struct Noted {
    behind: u64,
    is_removed: bool,
}

impl Ready {
    pub fn note(&mut self, db: Db, name: &Arc<[u8]>, behind: u64) {
        self.entry(db, name, behind);
    }

    /// The key has left because its time had come.
    pub fn note_removed(&mut self, db: Db, name: &Arc<[u8]>) {
        self.entry(db, name, 0).is_removed = true;
    }

    fn entry(&mut self, db: Db, name: &Arc<[u8]>, behind: u64) -> &mut Noted {
        let known = self.behind.entry((db, Arc::clone(name))).or_insert_with(|| {
            self.queue.push_back((db, Arc::clone(name)));
            Noted { behind, is_removed: false }
        });
        known.behind = behind.min(known.behind);
        known
    }

    pub fn take(&mut self) -> Option<ReadyKey> {
        let key = self.queue.pop_front()?;
        let noted = self.behind.remove(&key).expect("both hold the same keys");
        Some(ReadyKey { db: key.0, name: key.1, behind: noted.behind })
    }

    #[inline]
    pub fn is_empty(&self) -> bool {
        self.queue.is_empty()
    }

    pub fn len(&self) -> usize {
        self.queue.len()
    }

    /// Forgets what was noted after the first `len`, removed keys apart.
    pub fn truncate(&mut self, len: usize) {
        if self.queue.len() <= len {
            return;
        }
        for key in self.queue.split_off(len) {
            match self.behind[&key].is_removed {
                true => self.queue.push_back(key),
                false => _ = self.behind.remove(&key),
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_come_once_in_order_with_the_least_turn() {
        let mut ready = Ready::default();
        let name = |number: u32| Arc::<[u8]>::from(number.to_string().into_bytes());
        for (number, behind) in [(1, 5), (2, 0), (1, 3), (3, 9), (1, 4), (3, 10)] {
            ready.note(Db(0), &name(number), behind);
        }
        ready.note(Db(1), &name(1), 7);
        assert_eq!(ready.len(), 4);
        ready.truncate(3);
        assert_eq!(ready.len(), 3);
        // A key that was forgotten can be noted again.
        ready.note(Db(1), &name(1), 8);
        let taken = std::iter::from_fn(|| ready.take()).map(|key| (key.db.0, key.name, key.behind));
        assert!(taken.eq([(0, name(1), 3), (0, name(2), 0), (0, name(3), 9), (1, name(1), 8)]));
        assert!(ready.is_empty());
        // A key that has left stays noted.
        ready.note(Db(0), &name(1), 0);
        ready.note_removed(Db(0), &name(2));
        ready.note(Db(0), &name(3), 0);
        ready.truncate(1);
        let taken = std::iter::from_fn(|| ready.take()).map(|key| key.name);
        assert!(taken.eq([name(1), name(2)]));
    }
}
