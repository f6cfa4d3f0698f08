//! Values that are not in memory, and their fetches.
//!
//! ```text
//! a command needs k   k is cold: nothing was changed    fetch begins    its connection is parked, others are served
//! fetch is over       k is in memory                    message         the command runs again
//! ```
//! There is no tier below memory yet. In builds with debug assertions a test names keys that are cold once (DEBUG COLD), and
//! ends their fetches (DEBUG FETCH), so that what a command does that meets one is tested before there is a disk.

use isotherm_commands::call::{ColdKey, ColdKeys};
use isotherm_keyspace::Db;
use std::collections::HashSet;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

/// Keys that are cold, and fetches under way. `M` is the message that ends one.
pub struct ColdTier<M> {
    in_use: AtomicBool,
    state: Mutex<State<M>>,
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
        ColdTier { in_use: AtomicBool::new(false), state: Mutex::new(state) }
    }
}

impl<M> ColdTier<M> {
    fn state(&self) -> MutexGuard<'_, State<M>> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether any value can be cold. Other builds have no code for it.
    #[inline]
    pub fn is_in_use(&self) -> bool {
        cfg!(debug_assertions) && self.in_use.load(Ordering::Acquire)
    }

    pub fn has(&self, db: Db, key: &[u8]) -> bool {
        self.state().keys.contains(&(db, key.into()))
    }

    #[cfg(debug_assertions)]
    /// The values of these keys are cold from now on, until they are fetched.
    pub fn add<'k>(&self, db: Db, keys: impl Iterator<Item = &'k [u8]>) {
        self.state().keys.extend(keys.map(|key| (db, key.into())));
        self.in_use.store(true, Ordering::Release);
    }

    /// Begins to fetch; the message goes to the worker when all of it is there.
    pub fn fetch(&self, keys: ColdKeys, worker: u16, message: M) {
        self.state().fetches.push(Fetch { keys, worker, message });
    }

    /// The same for a command that cannot be interrupted any more: it waits for the values.
    pub fn fetch_now(&self, keys: &ColdKeys) {
        let mut state = self.state();
        keys.keys.iter().for_each(|cold| state.end(cold));
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
