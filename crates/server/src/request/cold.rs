//! Values that are not in memory, and their fetches.
//!
//! ```text
//! a command needs k   k is cold: nothing was changed    fetch begins    its connection is parked, others are served
//! fetch is over       k is in memory                    message         the command runs again
//! ```
//! With `swap-mode` values lie on disk (`tier`), and entries say which. In builds with debug assertions a test can also name keys
//! that are cold once (DEBUG COLD), and end their fetches (DEBUG FETCH): what a command does that meets one needs no disk.

use isotherm_commands::call::{ColdKey, ColdKeys};
use isotherm_keyspace::{Db, Held, Whereabouts};
use std::collections::HashSet;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};

use crate::tier::Tier;

/// Keys that are cold, and fetches under way. `M` is the message that ends one.
pub struct ColdTier<M> {
    in_use: AtomicBool,
    state: Mutex<State<M>>,
    disk: OnceLock<Arc<Tier<M>>>,
}

/// Whether a command has what it needs.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Has {
    All,
    /// It is to be fetched.
    Cold,
    /// It could not be read.
    Unreadable,
}

struct State<M> {
    keys: HashSet<(Db, Box<[u8]>)>,
    fetches: Vec<Fetch<M>>,
}

#[cfg_attr(
    not(debug_assertions),
    allow(dead_code, reason = "only a test ends fetches, as long as there is no tier")
)]
struct Fetch<M> {
    keys: ColdKeys,
    worker: u16,
    message: M,
}

impl<M> State<M> {
    /// The value is in memory, all of it: the tests' tier knows no parts.
    fn end(&mut self, cold: &ColdKey) {
        self.keys.remove(&(cold.db, cold.key.clone()));
    }
}

impl<M> Default for ColdTier<M> {
    fn default() -> ColdTier<M> {
        let state = State { keys: HashSet::new(), fetches: Vec::new() };
        ColdTier { in_use: AtomicBool::new(false), state: Mutex::new(state), disk: OnceLock::new() }
    }
}

impl<M> ColdTier<M> {
    fn state(&self) -> MutexGuard<'_, State<M>> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether any value can be cold.
    #[inline]
    pub fn is_in_use(&self) -> bool {
        self.in_use.load(Ordering::Relaxed)
    }

    /// Values leave memory from now on. Before any command runs.
    pub fn set_disk(&self, disk: Arc<Tier<M>>) {
        assert!(self.disk.set(disk).is_ok(), "there is one");
        self.in_use.store(true, Ordering::Relaxed);
    }

    pub fn disk(&self) -> Option<&Arc<Tier<M>>> {
        self.disk.get()
    }

    /// Whether what is cold cannot be had at present.
    pub fn has_failed(&self) -> bool {
        self.disk.get().is_some_and(|tier| tier.state() == crate::tier::State::Failed)
    }

    /// Asks the tier, if there is one.
    pub fn makes_room(&self, ask: impl FnOnce(&Tier<M>) -> bool) -> bool {
        self.disk.get().is_some_and(|tier| ask(tier))
    }

    /// The partition of the key is held.
    pub fn look(&self, held: &mut Held<'_>, db: Db, key: &[u8], home: bool) -> Has {
        if cfg!(debug_assertions) && self.disk.get().is_none() {
            let is_cold = self.state().keys.contains(&(db, key.into()));
            return if is_cold { Has::Cold } else { Has::All };
        }
        let key = held.keyspace().key(key);
        match held.whereabouts(db, &key, home) {
            Whereabouts::Here => Has::All,
            Whereabouts::Away(_) | Whereabouts::Frozen(..) => Has::Cold,
            Whereabouts::Unreadable => Has::Unreadable,
        }
    }

    #[cfg(debug_assertions)]
    /// The values of these keys are cold from now on, until they are fetched.
    pub fn add<'k>(&self, db: Db, keys: impl Iterator<Item = &'k [u8]>) {
        self.state().keys.extend(keys.map(|key| (db, key.into())));
        self.in_use.store(true, Ordering::Relaxed);
    }

    /// Begins to fetch; the message goes to the worker when all of it is there.
    pub fn fetch(&self, keys: ColdKeys, worker: u16, message: M) {
        match self.disk.get() {
            Some(disk) => disk.reads.add(keys, worker, message),
            None => self.state().fetches.push(Fetch { keys, worker, message }),
        }
    }

    /// The same for a command that cannot be interrupted any more: it waits for the values. `is_first`: it has not done so yet. Whether
    /// all could be read.
    pub fn fetch_now(&self, held: &mut Held<'_>, keys: &ColdKeys, is_first: bool) -> bool {
        if let Some(disk) = self.disk.get() {
            return disk.fetch_held(held, keys, is_first);
        }
        let mut state = self.state();
        keys.keys.iter().for_each(|cold| state.end(cold));
        true
    }

    #[cfg(debug_assertions)]
    pub fn fetches(&self) -> usize {
        self.state().fetches.len()
    }

    #[cfg(debug_assertions)]
    /// All fetches under way are over: their messages, and for which workers.
    pub fn finish(&self) -> Vec<(u16, M)> {
        let mut state = self.state();
        let fetches = std::mem::take(&mut state.fetches);
        fetches.iter().flat_map(|fetch| &fetch.keys.keys).for_each(|cold| state.end(cold));
        fetches.into_iter().map(|fetch| (fetch.worker, fetch.message)).collect()
    }
}
