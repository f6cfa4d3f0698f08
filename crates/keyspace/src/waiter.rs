//! Waiters: clients that wait until a key is there (BLPOP and its kin).
//!
//! A partition lists, per key, who waits for it, the oldest first. A change of such a key is noted by whoever makes it
//! (`Held`); when his command is done, and before he lets go of the partition, he runs the waiters' commands for them.
//! So a log gets the push before the pop, and the one who pushed finds his list already emptied.
//!
//! ```text
//! who pushes          who owns the connection
//!   claim  ------------ end: waits while it is claimed
//!   run its command
//!   finish, or release: there was nothing for it after all
//! ```
//! A waiter is ended once: by being served, or by its owner (its time is over, CLIENT UNBLOCK, the connection is gone).
//! Both exchange one byte; the locks of partitions are not needed for it. A waiter that was ended may still be listed in
//! partitions that the server of it does not hold: it is passed over, and its owner takes it out.

use crate::value::{Db, Type};
use std::any::Any;
use std::collections::HashMap;
use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU64, Ordering};

pub struct Waiter {
    /// Only a key of this type is worth a try.
    pub kind: Type,
    /// And the key's absence: its command then says what is wrong (XREADGROUP, whose group is gone).
    pub on_removal: bool,
    /// Without repetitions.
    pub keys: Box<[(Db, Box<[u8]>)]>,
    state: AtomicU8,
    woken: AtomicBool,
    wake: fn(&Arc<Waiter>),
    /// Whose it is; the keyspace does not look.
    pub client: Box<dyn Any + Send + Sync>,
}

const WAITING: u8 = 0;
const CLAIMED: u8 = 1;
const ENDED: u8 = 2;

impl Waiter {
    /// `wake` tells the owner to look by itself. It is called under the lock of a partition, so it may queue, never wait.
    pub fn new(
        kind: Type,
        on_removal: bool,
        mut keys: Vec<(Db, Box<[u8]>)>,
        wake: fn(&Arc<Waiter>),
        client: Box<dyn Any + Send + Sync>,
    ) -> Arc<Waiter> {
        let mut seen = std::collections::HashSet::new();
        keys.retain(|key| seen.insert(key.clone()));
        let keys = keys.into_boxed_slice();
        let (state, woken) = (AtomicU8::new(WAITING), AtomicBool::new(false));
        Arc::new(Waiter { kind, on_removal, keys, state, woken, wake, client })
    }

    fn change(&self, from: u8, to: u8) -> bool {
        self.state.compare_exchange(from, to, Ordering::AcqRel, Ordering::Acquire).is_ok()
    }

    /// Whoever holds one of its partitions may try to serve it: nobody else does meanwhile. False if it has ended.
    pub fn claim(&self) -> bool {
        self.change(WAITING, CLAIMED)
    }

    /// There was nothing for it: it goes on waiting.
    pub fn release(&self) {
        assert!(self.change(CLAIMED, WAITING), "only who has claimed a waiter releases it");
    }

    /// It was served.
    pub fn finish(&self) {
        assert!(self.change(CLAIMED, ENDED), "only who has claimed a waiter finishes it");
    }

    /// Its owner waits no longer. False if it was served before. Not to be called under a lock: who has claimed it may
    /// be about to finish.
    pub fn end(&self) -> bool {
        while !self.change(WAITING, ENDED) {
            if self.has_ended() {
                return false;
            }
            std::thread::yield_now();
        }
        true
    }

    pub fn has_ended(&self) -> bool {
        self.state.load(Ordering::Acquire) == ENDED
    }

    /// Tells the owner to run the command itself, with all locks that it needs. Until it has, nobody behind this waiter
    /// is served with what it was woken for.
    pub fn wake(self: &Arc<Waiter>) {
        if !self.woken.swap(true, Ordering::AcqRel) {
            (self.wake)(self);
        }
    }

    pub fn is_woken(&self) -> bool {
        self.woken.load(Ordering::Acquire)
    }

    /// The owner has heard it.
    pub fn has_heard(&self) {
        self.woken.store(false, Ordering::Release);
    }
}

impl fmt::Debug for Waiter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Waiter").field("kind", &self.kind).field("keys", &self.keys.len()).finish()
    }
}

/// How many keys are waited for, and how many of them by somebody who waits for their removal too; of all partitions.
#[derive(Default)]
pub(crate) struct WaitedKeys([AtomicU64; 2]);

impl WaitedKeys {
    /// What one key adds.
    fn of(waiters: &[Arc<Waiter>]) -> [u64; 2] {
        [!waiters.is_empty(), waiters.iter().any(|waiter| waiter.on_removal)].map(u64::from)
    }

    fn change(&self, before: [u64; 2], after: [u64; 2]) {
        for (count, (before, after)) in self.0.iter().zip(before.into_iter().zip(after)) {
            count.fetch_add(after.wrapping_sub(before), Ordering::Relaxed);
        }
    }

    pub fn get(&self) -> [u64; 2] {
        [0, 1].map(|at: usize| self.0[at].load(Ordering::Relaxed))
    }
}

type WaitersOfKeys = HashMap<Box<[u8]>, Vec<Arc<Waiter>>>;

/// The waiters of one partition.
#[derive(Default)]
pub(crate) struct Waiters {
    databases: HashMap<Db, WaitersOfKeys>,
}

impl Waiters {
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.databases.is_empty()
    }

    pub fn has(&self, db: Db, key: &[u8]) -> bool {
        self.databases.get(&db).is_some_and(|keys| keys.contains_key(key))
    }

    /// Those who wait for `key`, the oldest first.
    pub fn of(&self, db: Db, key: &[u8]) -> &[Arc<Waiter>] {
        self.databases.get(&db).and_then(|keys| keys.get(key)).map_or(&[], Vec::as_slice)
    }

    /// The keys of a database that somebody waits for.
    pub fn keys(&self, db: Db) -> impl Iterator<Item = &[u8]> {
        self.databases.get(&db).into_iter().flat_map(|keys| keys.keys().map(|key| &**key))
    }

    pub fn add(&mut self, db: Db, key: &[u8], waiter: &Arc<Waiter>, counts: &WaitedKeys) {
        let waiters = self.databases.entry(db).or_default().entry(key.into()).or_default();
        let before = WaitedKeys::of(waiters);
        waiters.push(Arc::clone(waiter));
        counts.change(before, WaitedKeys::of(waiters));
    }

    pub fn remove(&mut self, db: Db, key: &[u8], waiter: &Arc<Waiter>, counts: &WaitedKeys) {
        let Some(keys) = self.databases.get_mut(&db) else { return };
        let Some(waiters) = keys.get_mut(key) else { return };
        let before = WaitedKeys::of(waiters);
        waiters.retain(|other| !Arc::ptr_eq(other, waiter));
        counts.change(before, WaitedKeys::of(waiters));
        if waiters.is_empty() {
            keys.remove(key);
            if keys.is_empty() {
                self.databases.remove(&db);
            }
        }
    }

    /// `key` leaves by itself (its time, a lack of memory): nobody runs a command now, so whoever waits for that looks
    /// himself.
    pub fn wake_removed(&self, db: Db, key: &[u8]) {
        self.of(db, key).iter().filter(|waiter| waiter.on_removal).for_each(Waiter::wake);
    }

    /// What `WaitedKeys` has counted for this partition.
    pub fn counts(&self) -> [u64; 2] {
        let lists = self.databases.values().flat_map(HashMap::values);
        lists.map(|list| WaitedKeys::of(list)).fold([0; 2], |sum, one| [sum[0] + one[0], sum[1] + one[1]])
    }

    pub fn check_invariants(&self) {
        for (db, keys) in &self.databases {
            assert!(!keys.is_empty(), "a database is listed while somebody waits in it");
            for (key, waiters) in keys {
                assert!(!waiters.is_empty(), "a key is listed while somebody waits for it");
                for (at, waiter) in waiters.iter().enumerate() {
                    assert!(waiter.keys.iter().any(|(other, name)| other == db && name == key));
                    assert!(!waiters[..at].iter().any(|other| Arc::ptr_eq(other, waiter)), "once");
                }
            }
        }
    }
}
