//! The keyspace compared with a plain map: random operations on keys and values of every shape, in several
//! databases, while the clock runs, compaction moves pages, the access mode is switched and databases are
//! flushed and swapped.

use isotherm_keyspace::*;
use isotherm_stdx::Prng;
use std::collections::BTreeMap;

type Model = BTreeMap<(u16, Vec<u8>), (Stored, Option<i64>)>;

#[derive(Clone, PartialEq, Debug)]
enum Stored {
    Int(i64),
    Bytes(Vec<u8>),
    Raw(Vec<u8>),
}

struct World {
    keyspace: Keyspace,
    model: Model,
    prng: Prng,
    now: i64,
    shape: Shape,
}

#[derive(Clone, Copy)]
struct Shape {
    keys: u64,
    long: bool,
    databases: u16,
}

const START: i64 = 1_800_000_000_000;

fn world(partitions: usize, arenas: usize, seed: u64, shape: Shape) -> World {
    let config = Config {
        partitions,
        arenas,
        databases: 16,
        reserve_bytes: (arenas as u64) << 30,
        hash_secret: [seed as u8; 16],
        class_bytes: |bytes| bytes,
    };
    let keyspace = Keyspace::new(config).expect("a gigabyte of addresses is to be had");
    World { keyspace, model: Model::new(), prng: Prng::new(seed), now: START, shape }
}

fn conditions(now: i64) -> Conditions {
    Conditions { now: UnixMs(now), expiry_mode: ExpiryMode::Delete, no_touch: false }
}

impl World {
    /// Runs `work` in a transaction that holds everything.
    fn txn<T>(&mut self, work: impl FnOnce(&mut Txn<'_, '_>) -> T) -> T {
        let mut held = Held::new(&self.keyspace);
        held.acquire(Want::All);
        let mut sink = NoEffects;
        work(&mut Txn::new(&mut held, conditions(self.now), &mut sink))
    }

    fn random_key(&mut self) -> (u16, Vec<u8>) {
        let number = self.prng.below(self.shape.keys);
        let db = self.prng.below(u64::from(self.shape.databases)) as u16;
        let mut key = format!("key:{number}").into_bytes();
        match number % 7 {
            // A hash tag: many keys in one slot.
            0 | 1 => key = format!("{{tag}}:{number}").into_bytes(),
            2 if self.shape.long => key.resize(180 + number as usize % 40, b'x'),
            3 if self.shape.long => key.resize(1000 + number as usize % 5000, b'y'),
            _ => {}
        }
        (db, key)
    }

    fn random_value(&mut self) -> Stored {
        let long = if self.shape.long { 12 } else { 2 };
        let len = match self.prng.below(long) {
            0 | 1 => self.prng.below(40),
            2..=5 => self.prng.below(260),
            6..=9 => self.prng.below(4200),
            _ => self.prng.below(20_000),
        };
        match self.prng.below(4) {
            0 => Stored::Int(self.prng.next_u64() as i64 >> self.prng.below(63)),
            _ => Stored::Bytes((0..len).map(|at| (at * 7 + len) as u8).collect()),
        }
    }

    fn alive(&mut self, name: &(u16, Vec<u8>)) -> bool {
        if self.model.get(name).is_some_and(|(_, expiry)| expiry.is_some_and(|at| at < self.now)) {
            self.model.remove(name);
        }
        self.model.contains_key(name)
    }

    fn step(&mut self) {
        let name = self.random_key();
        let (db, bytes) = (Db(name.0), name.1.clone());
        let alive = self.alive(&name);
        match self.prng.below(100) {
            0..40 => self.set(name, alive),
            40..55 => {
                let removed = self.txn(|txn| txn.remove(db, &txn.key(&bytes)));
                assert_eq!(removed, alive);
                self.model.remove(&name);
            }
            55..70 => self.check_key(&name),
            70..80 => {
                let at = self.random_expiry();
                let done = self.txn(|txn| txn.set_expiry(db, &txn.key(&bytes), at.map(UnixMs)));
                assert_eq!(done, Ok(alive));
                if let Some(entry) = self.model.get_mut(&name) {
                    entry.1 = at;
                }
            }
            80..88 => self.edit(name),
            88..92 => self.copy(name, alive),
            92 => self.now += self.prng.below(3000) as i64,
            93 => self.expire(),
            94 => self.compact(),
            95 => {
                let mode = [AccessMode::Page, AccessMode::Lru, AccessMode::Lfu][self.prng.below(3) as usize];
                self.keyspace.set_access(mode, 10);
            }
            96 => self.scan(db),
            97 if self.prng.one_in(6) => self.flush_or_swap(db),
            98 => self.random_of(db),
            _ => self.delete_many(),
        }
    }

    fn random_expiry(&mut self) -> Option<i64> {
        match self.prng.below(6) {
            0 => None,
            1 => Some(self.now + 1 + self.prng.next_u64() as i64 % 1_000_000_000_000_000)
                .map(|at| at.max(self.now + 1)),
            _ => Some(self.now + 1 + self.prng.below(4000) as i64),
        }
    }

    fn set(&mut self, name: (u16, Vec<u8>), alive: bool) {
        let value = self.random_value();
        let at = self.random_expiry();
        let (expiry, new_at) = match self.prng.below(3) {
            0 => (Expiry::Clear, None),
            1 => (Expiry::Keep, self.model.get(&name).and_then(|(_, at)| *at)),
            _ => (at.map_or(Expiry::Clear, |at| Expiry::At(UnixMs(at))), at),
        };
        let existed = self.txn(|txn| {
            let new = match &value {
                Stored::Int(int) => NewValue::Int(*int),
                Stored::Bytes(bytes) | Stored::Raw(bytes) => NewValue::Bytes(bytes),
            };
            txn.set(Db(name.0), &txn.key(&name.1), new, expiry)
        });
        assert_eq!(existed, Ok(alive));
        self.model.insert(name, (value, new_at));
    }

    fn edit(&mut self, name: (u16, Vec<u8>)) {
        let (stored, at) = self.model.get(&name).cloned().unwrap_or((Stored::Raw(vec![]), None));
        let mut bytes = match stored {
            Stored::Int(int) => int.to_string().into_bytes(),
            Stored::Bytes(bytes) | Stored::Raw(bytes) => bytes,
        };
        let more = self.prng.below(if self.shape.long { 600 } else { 20 }) as usize;
        let (len, mark) = (bytes.len() + more, self.prng.next_u64() as u8);
        bytes.resize(len, 0);
        if let Some(last) = bytes.last_mut() {
            *last = mark;
        }
        self.txn(|txn| {
            let edited = txn.edit(Db(name.0), &txn.key(&name.1), len).expect("there is room");
            assert_eq!(edited.len(), len);
            if let Some(last) = edited.last_mut() {
                *last = mark;
            }
        });
        self.model.insert(name.clone(), (Stored::Raw(bytes), at));
        self.check_key(&name);
    }

    fn copy(&mut self, from: (u16, Vec<u8>), alive: bool) {
        let to = self.random_key();
        if !alive || from == to {
            return;
        }
        let rename = self.prng.one_in(2);
        let (source, target) = (from.clone(), to.clone());
        self.txn(|txn| {
            let (source_key, target_key) = (txn.key(&source.1), txn.key(&target.1));
            let (source, target) = ((Db(source.0), &source_key), (Db(target.0), &target_key));
            if rename { txn.rename(source, target) } else { txn.copy(source, target) }
                .expect("there is room");
        });
        let entry = if rename { self.model.remove(&from) } else { self.model.get(&from).cloned() };
        self.model.insert(to, entry.expect("it was alive"));
    }

    fn expire(&mut self) {
        let keys_max = 1 + self.prng.below(50);
        for partition in 0..self.keyspace.partition_count() as u16 {
            while self.keyspace.expire_step(partition, UnixMs(self.now), keys_max, &mut NoEffects).more {}
        }
        // Units of 256 ms that have passed whole are gone; what is due in the last one may stay for now.
        let now = self.now;
        self.model.retain(|_, (_, at)| at.is_none_or(|at| at > now - 512));
        let left = self.txn(|txn| (0..16).map(|db| txn.len(Db(db))).sum::<u64>());
        let alive = self.model.values().filter(|(_, at)| at.is_none_or(|at| at >= now)).count() as u64;
        assert!((alive..=self.model.len() as u64).contains(&left), "{left} left, {alive} alive");
    }

    fn compact(&mut self) {
        for arena in 0..self.keyspace.arenas().len() {
            for _ in 0..20 {
                if !self.keyspace.compact_step(arena, 16).more {
                    break;
                }
            }
        }
    }

    fn scan(&mut self, db: Db) {
        let mut seen = std::collections::BTreeSet::new();
        let mut cursor = 0;
        loop {
            let count = 1 + self.prng.below(30);
            cursor = self.txn(|txn| {
                txn.scan(
                    db,
                    cursor,
                    count,
                    None,
                    |_, _| true,
                    |key, _| {
                        seen.insert(key.to_vec());
                    },
                )
            });
            if cursor == 0 {
                break;
            }
        }
        let now = self.now;
        self.model.retain(|name, (_, at)| name.0 != db.0 || at.is_none_or(|at| at >= now));
        let expected: std::collections::BTreeSet<_> =
            self.model.keys().filter(|name| name.0 == db.0).map(|name| name.1.clone()).collect();
        assert_eq!(seen, expected);
    }

    fn flush_or_swap(&mut self, db: Db) {
        let other = Db(self.prng.below(u64::from(self.shape.databases)) as u16);
        if self.prng.one_in(3) {
            self.txn(|txn| txn.flush(Some(db)));
            self.model.retain(|name, _| name.0 != db.0);
        } else {
            self.txn(|txn| txn.swap(db, other));
            let old = std::mem::take(&mut self.model);
            for ((name_db, key), entry) in old {
                let swapped = if name_db == db.0 {
                    other.0
                } else if name_db == other.0 {
                    db.0
                } else {
                    name_db
                };
                self.model.insert((swapped, key), entry);
            }
        }
    }

    fn random_of(&mut self, db: Db) {
        let mut prng = Prng::new(self.prng.next_u64());
        let key = self.txn(|txn| txn.random_key(db, &mut |n| prng.below(n)));
        let now = self.now;
        match key {
            Some(key) => assert!(self.model[&(db.0, key)].1.is_none_or(|at| at >= now)),
            None => assert!(
                !self.model.iter().any(|(name, (_, at))| name.0 == db.0 && at.is_none_or(|at| at >= now))
            ),
        }
    }

    fn delete_many(&mut self) {
        for _ in 0..self.prng.below(60) {
            let name = self.random_key();
            let alive = self.alive(&name);
            assert_eq!(self.txn(|txn| txn.remove(Db(name.0), &txn.key(&name.1))), alive);
            self.model.remove(&name);
        }
    }

    fn check_key(&mut self, name: &(u16, Vec<u8>)) {
        self.alive(name);
        let expected = self.model.get(name).cloned();
        self.txn(|txn| {
            let found = txn.find(Db(name.0), &txn.key(&name.1), Lookup::Read);
            let Some((stored, at)) = expected else { return assert!(found.is_none()) };
            let found = found.expect("it is there");
            assert_eq!(found.expiry, at.map(UnixMs));
            let as_stored = match (found.value, found.encoding()) {
                (Value::Int(int), _) => Stored::Int(int),
                (Value::Bytes(bytes), Encoding::Raw) if matches!(stored, Stored::Raw(_)) => {
                    Stored::Raw(bytes.to_vec())
                }
                (Value::Bytes(bytes), _) => Stored::Bytes(bytes.to_vec()),
                (other, _) => panic!("this test stores strings only, not {other:?}"),
            };
            assert_eq!(as_stored, stored);
            assert!(found.memory_bytes() > name.1.len());
        });
    }

    fn run(&mut self, steps: usize, check_every: usize) {
        for step in 0..steps {
            self.step();
            if step % check_every == 0 {
                self.keyspace.check_invariants();
            }
        }
        let names: Vec<_> = self.model.keys().cloned().collect();
        names.iter().for_each(|name| self.check_key(name));
        self.txn(|txn| txn.flush(None));
        self.keyspace.free_all();
        self.keyspace.check_invariants();
        let live: u64 = self.keyspace.arenas().iter().map(|arena| arena.live_bytes()).sum();
        assert_eq!(live, 0, "an empty keyspace keeps no objects");
    }
}

const STEPS: usize = if cfg!(miri) { 300 } else { 30_000 };

#[test]
fn small_entries_in_one_partition() {
    world(1, 1, 1, Shape { keys: 3000, long: false, databases: 1 }).run(STEPS, 500);
}

#[test]
fn small_entries_in_many_partitions() {
    world(64, 4, 2, Shape { keys: 2000, long: false, databases: 3 }).run(STEPS, 700);
}

#[test]
fn entries_of_every_size() {
    world(1, 1, 3, Shape { keys: 400, long: true, databases: 2 }).run(STEPS, 400);
}

#[test]
fn entries_of_every_size_in_many_partitions() {
    world(8, 2, 4, Shape { keys: 1500, long: true, databases: 16 }).run(STEPS, 900);
}

/// A slot with more pages than a directory node has children gets two levels, and loses them again.
#[test]
#[cfg_attr(miri, ignore = "many keys")]
fn a_giant_slot_grows_and_shrinks() {
    let mut world = world(1, 1, 5, Shape { keys: 1, long: false, databases: 1 });
    const KEYS: u64 = 60_000;
    for number in 0..KEYS {
        let key = format!("{{giant}}{number}");
        world
            .txn(|txn| txn.set(Db(0), &txn.key(key.as_bytes()), NewValue::Int(number as i64), Expiry::Clear))
            .unwrap();
    }
    world.keyspace.check_invariants();
    for number in 0..KEYS {
        let key = format!("{{giant}}{number}");
        let at = (number % 2 == 0).then_some(UnixMs(START + 1000));
        world.txn(|txn| txn.set_expiry(Db(0), &txn.key(key.as_bytes()), at)).unwrap();
    }
    world.keyspace.check_invariants();
    let later = UnixMs(START + 2000);
    while world.keyspace.expire_step(0, later, 500, &mut NoEffects).more {}
    world.keyspace.check_invariants();
    assert_eq!(world.txn(|txn| txn.len(Db(0))), KEYS / 2);
    for number in 0..KEYS {
        let key = format!("{{giant}}{number}");
        let removed = world.txn(|txn| txn.remove(Db(0), &txn.key(key.as_bytes())));
        assert_eq!(removed, number % 2 == 1);
        if number % 10_000 == 0 {
            world.keyspace.check_invariants();
        }
    }
    let live: u64 = world.keyspace.arenas().iter().map(|arena| arena.live_bytes()).sum();
    assert_eq!(live, 0);
}
