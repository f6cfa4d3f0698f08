//! Keys that were named to a thread of the tier and wait for it: a few, in the order in which they came.

use isotherm_keyspace::Db;
use std::collections::VecDeque;
use std::sync::atomic::AtomicUsize;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::{Condvar, Mutex, PoisonError};
use std::time::Duration;

pub struct Asked {
    keys: Mutex<VecDeque<(Db, Box<[u8]>)>>,
    /// Length of `keys`.
    len: AtomicUsize,
    came: Condvar,
    keys_max: usize,
}

impl Asked {
    pub fn new(keys_max: usize) -> Asked {
        let (keys, came) = (Mutex::new(VecDeque::new()), Condvar::new());
        Asked { keys, len: AtomicUsize::new(0), came, keys_max }
    }

    /// Notes a key. Returns whether it was noted: it is not if too many are.
    pub fn push(&self, db: Db, key: &[u8]) -> bool {
        let mut keys = self.keys.lock().unwrap_or_else(PoisonError::into_inner);
        let has_room = keys.len() < self.keys_max;
        if has_room {
            keys.push_back((db, key.into()));
        }
        self.len.store(keys.len(), Relaxed);
        drop(keys);
        self.came.notify_one();
        has_room
    }

    /// Waits for one, no longer than `at_most`.
    pub fn wait(&self, at_most: Duration) {
        let keys = self.keys.lock().unwrap_or_else(PoisonError::into_inner);
        drop(self.came.wait_timeout_while(keys, at_most, |keys| keys.is_empty()));
    }

    /// The first of them.
    pub fn take(&self, keys_max: usize) -> VecDeque<(Db, Box<[u8]>)> {
        if self.count() == 0 {
            return VecDeque::new();
        }
        let mut keys = self.keys.lock().unwrap_or_else(PoisonError::into_inner);
        let count = keys.len().min(keys_max);
        let rest = keys.split_off(count);
        self.len.store(rest.len(), Relaxed);
        std::mem::replace(&mut *keys, rest)
    }

    pub fn count(&self) -> usize {
        self.len.load(Relaxed)
    }
}
