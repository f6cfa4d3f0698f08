//! WATCH: a flag is raised exactly when Valkey would raise it. The model is Valkey's algorithm
//! (touchWatchedKey, touchAllWatchedKeysInDb, isWatchedKeyExpired) over a plain map.

use crate::support::*;
use isotherm_keyspace::*;
use isotherm_stdx::Prng;
use std::collections::BTreeMap;
use std::sync::Arc;

const DATABASES: u64 = 3;

struct Client {
    watcher: Arc<Watcher>,
    /// Keys that are watched, and whether each was past its time at WATCH.
    watched: BTreeMap<Name, bool>,
    dirty: bool,
}

struct World {
    keyspace: Keyspace,
    /// Keys in memory, stale ones included, with their expiry.
    stored: BTreeMap<Name, Option<i64>>,
    clients: Vec<Client>,
    prng: Prng,
    now: i64,
}

/// Keys that expired or were evicted.
#[derive(Default)]
struct Gone(Vec<Name>);

impl EffectSink for Gone {
    fn mask(&self) -> EffectMask {
        EffectMask::ALL
    }
    fn effect(&mut self, effect: Effect<'_>) {
        if let Effect::Expired { db, key } | Effect::Evicted { db, key } = effect {
            self.0.push((db.0, key.to_vec()));
        }
    }
}

impl World {
    fn new(partitions: usize, seed: u64) -> World {
        let client = || Client { watcher: Arc::default(), watched: BTreeMap::new(), dirty: false };
        World {
            keyspace: keyspace(partitions, 1, 1 << 30, seed as u8),
            stored: BTreeMap::new(),
            clients: (0..4).map(|_| client()).collect(),
            prng: Prng::new(seed),
            now: START,
        }
    }

    fn is_stale(&self, name: &Name) -> bool {
        self.stored.get(name).is_some_and(|at| at.is_some_and(|at| at < self.now))
    }

    // ---- Valkey's side ----

    fn touch(&mut self, name: &Name) {
        let exists = self.stored.contains_key(name);
        for client in self.clients.iter_mut().filter(|client| !client.dirty) {
            match client.watched.get_mut(name) {
                None => {}
                Some(expired) if *expired => *expired = exists,
                Some(_) => client.dirty = true,
            }
        }
    }

    /// `replaced_with` of a database: what its keys are from now on; absent all of them without it.
    fn touch_all(&mut self, emptied: u16, replaced_with: Option<u16>) {
        for at in 0..self.clients.len() {
            if self.clients[at].dirty {
                continue;
            }
            let names: Vec<Name> =
                self.clients[at].watched.keys().filter(|name| name.0 == emptied).cloned().collect();
            for name in names {
                let other = replaced_with.map(|db| (db, name.1.clone()));
                let exists = self.stored.contains_key(&name);
                let exists_then = other.as_ref().is_some_and(|other| self.stored.contains_key(other));
                let stale_then = other.as_ref().is_some_and(|other| self.is_stale(other));
                let client = &mut self.clients[at];
                let expired = client.watched.get_mut(&name).expect("it was just listed");
                if !exists && !exists_then {
                    continue;
                }
                if *expired {
                    if !exists_then {
                        *expired = false;
                        continue;
                    } else if stale_then {
                        continue;
                    }
                } else if !exists && stale_then {
                    *expired = true;
                    continue;
                }
                client.dirty = true;
            }
        }
    }

    // ---- both sides ----

    fn txn<T>(&mut self, work: impl FnOnce(&mut Txn<'_, '_>) -> T) -> T {
        let mut gone = Gone::default();
        let result = {
            let mut held = Held::new(&self.keyspace);
            held.acquire(Want::All);
            work(&mut Txn::new(&mut held, conditions(self.now), &mut gone))
        };
        self.left(gone);
        result
    }

    fn left(&mut self, gone: Gone) {
        for name in gone.0 {
            assert!(self.stored.remove(&name).is_some(), "what leaves was there");
            self.touch(&name);
        }
    }

    fn name(&mut self) -> Name {
        let number = self.prng.below(5);
        let key = if number < 2 { format!("{{tag}}{number}") } else { format!("key:{number}") };
        (self.prng.below(DATABASES) as u16, key.into_bytes())
    }

    fn step(&mut self) {
        let name = self.name();
        let (db, bytes) = (Db(name.0), name.1.clone());
        match self.prng.below(34) {
            0..8 => {
                let at = match self.prng.below(3) {
                    0 => None,
                    // Also in the past, as import mode stores it.
                    _ => Some(self.now + self.prng.below(600) as i64 - 100),
                };
                let expiry = at.map_or(Expiry::Clear, |at| Expiry::At(UnixMs(at)));
                self.txn(|txn| txn.set(db, &txn.key(&bytes), NewValue::Int(1), expiry))
                    .expect("there is room");
                self.stored.insert(name.clone(), at);
                self.touch(&name);
            }
            8..11 => {
                let removed = self.txn(|txn| txn.remove(db, &txn.key(&bytes)));
                if removed {
                    assert!(self.stored.remove(&name).is_some());
                    self.touch(&name);
                }
            }
            11..14 => {
                let at = (!self.prng.one_in(4)).then(|| self.now + self.prng.below(400) as i64);
                let done = self.txn(|txn| txn.set_expiry(db, &txn.key(&bytes), at.map(UnixMs)));
                if done.expect("there is room") {
                    *self.stored.get_mut(&name).expect("it was there") = at;
                    self.touch(&name);
                }
            }
            14 => drop(self.txn(|txn| txn.contains(db, &txn.key(&bytes)))),
            15 => self.rename(name),
            16 => {
                self.touch_all(name.0, None);
                self.txn(|txn| txn.flush(Some(db)));
                self.stored.retain(|stored, _| stored.0 != name.0);
            }
            17 if self.prng.one_in(3) => {
                (0..DATABASES as u16).for_each(|db| self.touch_all(db, None));
                self.txn(|txn| txn.flush(None));
                self.stored.clear();
            }
            18 | 19 => self.swap(name.0),
            20 => self.now += self.prng.below(400) as i64,
            21 => {
                let (mut gone, now) = (Gone::default(), UnixMs(self.now));
                for partition in 0..self.keyspace.partition_count() as u16 {
                    while self.keyspace.expire_step(partition, now, 2, &mut gone).more {}
                }
                self.left(gone);
            }
            22 if self.prng.one_in(3) => {
                let mut gone = Gone::default();
                let policy = EvictionPolicy::AllKeysRandom;
                self.keyspace.evict_one(policy, UnixMs(self.now), &mut self.prng, &mut gone);
                self.left(gone);
            }
            23..29 => self.watch(name),
            29 => {
                let at = self.prng.below(4) as usize;
                self.unwatch(at);
            }
            _ => {}
        }
        self.check();
    }

    fn rename(&mut self, from: Name) {
        let to = self.name();
        let done = self.txn(|txn| {
            let (from_key, to_key) = (txn.key(&from.1), txn.key(&to.1));
            let done = from != to && txn.contains(Db(from.0), &from_key);
            if done {
                // As the command does: what is stale under the target's name leaves first.
                txn.contains(Db(to.0), &to_key);
                txn.rename((Db(from.0), &from_key), (Db(to.0), &to_key)).expect("there is room");
            }
            done
        });
        if done {
            let at = self.stored.remove(&from).expect("it was there");
            self.stored.insert(to.clone(), at);
            self.touch(&from);
            self.touch(&to);
        }
    }

    fn swap(&mut self, a: u16) {
        let b = self.prng.below(DATABASES) as u16;
        if a != b {
            self.touch_all(a, Some(b));
            self.touch_all(b, Some(a));
            let other = |db: u16| {
                if db == a {
                    b
                } else if db == b {
                    a
                } else {
                    db
                }
            };
            let old = std::mem::take(&mut self.stored);
            self.stored = old.into_iter().map(|((db, key), at)| ((other(db), key), at)).collect();
        }
        self.txn(|txn| txn.swap(Db(a), Db(b)));
    }

    fn watch(&mut self, name: Name) {
        let at = self.prng.below(4) as usize;
        if self.clients[at].dirty {
            return;
        }
        let watcher = Arc::clone(&self.clients[at].watcher);
        self.txn(|txn| txn.watch(Db(name.0), &Arc::from(&*name.1), &watcher));
        let stale = self.is_stale(&name);
        self.clients[at].watched.entry(name).or_insert(stale);
    }

    /// UNWATCH, or the end of an EXEC.
    fn unwatch(&mut self, at: usize) {
        let watcher = Arc::clone(&self.clients[at].watcher);
        let watched = std::mem::take(&mut self.clients[at].watched);
        self.txn(|txn| {
            for name in watched.keys() {
                txn.unwatch(Db(name.0), &txn.key(&name.1), &watcher);
            }
        });
        // Flags are not lowered: the next WATCH has another.
        self.clients[at].watcher = Arc::default();
        self.clients[at].dirty = false;
    }

    /// The flags, and what EXEC would say of keys that are past their time by now.
    fn check(&mut self) {
        for at in 0..self.clients.len() {
            assert_eq!(self.clients[at].watcher.is_dirty(), self.clients[at].dirty, "client {at}");
            if self.clients[at].dirty {
                continue;
            }
            let watcher = Arc::clone(&self.clients[at].watcher);
            for (name, expired) in self.clients[at].watched.clone() {
                let is_over = !expired && self.is_stale(&name);
                let is_expired =
                    self.txn(|txn| txn.watched_key_expired(Db(name.0), &txn.key(&name.1), &watcher));
                assert_eq!(is_expired, is_over);
            }
        }
    }
}

#[test]
fn flags_are_raised_as_valkey_raises_them() {
    for (partitions, seed) in [(1, 1), (8, 2), (2, 3)] {
        let mut world = World::new(partitions, seed);
        let mut raised = 0;
        for _ in 0..if cfg!(miri) { 150 } else { 40_000 } {
            world.step();
            // Dirty clients start anew now and then, or soon all are.
            if let Some(at) = world.clients.iter().position(|client| client.dirty)
                && world.prng.one_in(4)
            {
                raised += 1;
                world.unwatch(at);
            }
        }
        assert!(cfg!(miri) || raised > 1000);
        world.keyspace.check_invariants();
        (0..4).for_each(|at| world.unwatch(at));
        let now = world.now;
        flush_and_check(&world.keyspace, now);
    }
}

/// Several clients may watch the same key, in several databases, and one client may watch it twice.
#[test]
fn several_watchers() {
    let keyspace = keyspace(4, 1, 1 << 30, 4);
    let [first, second, elsewhere]: [Arc<Watcher>; 3] = Default::default();
    txn(&keyspace, START, |txn| {
        let (key, name) = (txn.key(b"key"), Arc::from(&b"key"[..]));
        txn.watch(Db(0), &name, &first);
        txn.watch(Db(0), &name, &first);
        txn.watch(Db(0), &name, &second);
        txn.watch(Db(1), &name, &elsewhere);
        let other = txn.key(b"other");
        txn.set(Db(0), &other, NewValue::Int(1), Expiry::Clear).expect("there is room");
        assert!(!first.is_dirty() && !second.is_dirty() && !elsewhere.is_dirty());
        txn.unwatch(Db(0), &key, &first);
        txn.unwatch(Db(0), &other, &second);
        txn.set(Db(0), &key, NewValue::Int(1), Expiry::Clear).expect("there is room");
        assert!(!first.is_dirty() && second.is_dirty() && !elsewhere.is_dirty());
        let second = Arc::new(Watcher::default());
        txn.watch(Db(0), &name, &second);
        txn.edit(Db(0), &key, 5).expect("there is room");
        assert!(second.is_dirty());
        let second = Arc::new(Watcher::default());
        txn.watch(Db(0), &name, &second);
        // Calls that change nothing raise nothing.
        assert!(!txn.remove(Db(1), &key));
        assert_eq!(txn.set_expiry(Db(1), &key, None), Ok(false));
        txn.flush(Some(Db(1)));
        txn.swap(Db(1), Db(2));
        assert!(!second.is_dirty() && !elsewhere.is_dirty());
        txn.swap(Db(0), Db(1));
        assert!(second.is_dirty() && elsewhere.is_dirty());
    });
}

/// Many clients watch one key: each is looked at once for its WATCH, and once for its UNWATCH or for the
/// first change.
#[test]
fn many_watchers_of_one_key_are_no_scan() {
    let work = |clients: u64| {
        let keyspace = keyspace(4, 1, 1 << 30, 4);
        let watchers: Vec<Arc<Watcher>> = (0..clients).map(|_| Arc::default()).collect();
        let name = Arc::from(&b"key"[..]);
        let before = isotherm_stdx::steps::looked();
        txn(&keyspace, START, |txn| {
            let key = txn.key(b"key");
            watchers.iter().for_each(|watcher| txn.watch(Db(0), &name, watcher));
            watchers.iter().step_by(2).for_each(|watcher| txn.unwatch(Db(0), &key, watcher));
            for _ in 0..clients {
                txn.set(Db(0), &key, NewValue::Int(1), Expiry::Clear).expect("there is room");
            }
            let is_dirty = |(at, watcher): (usize, &Arc<Watcher>)| watcher.is_dirty() == (at % 2 == 1);
            assert!(watchers.iter().enumerate().all(is_dirty));
            watchers.iter().for_each(|watcher| txn.unwatch(Db(0), &key, watcher));
        });
        keyspace.check_invariants();
        isotherm_stdx::steps::looked() - before
    };
    let (few, many) = (work(1000), work(16_000));
    assert!(!cfg!(debug_assertions) || few >= 3000 && many <= 17 * few, "{few} {many}");
}
