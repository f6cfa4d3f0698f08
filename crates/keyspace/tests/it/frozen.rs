//! Keys that leave memory with their values, several to a record: whatever is looked up, stored, removed,
//! walked over or saved is what would be there if nothing had left, and each record goes back to its keeper,
//! once.

use crate::cold::Keeper;
use crate::support::*;
use isotherm_keyspace::*;
use isotherm_stdx::Prng;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;

type Model = BTreeMap<(u16, Vec<u8>), (Stored, Option<i64>)>;

const DATABASES: u64 = 2;
const KEYS: u64 = 300;
/// Number of keys for walks: a slot then has many parts.
const MANY_KEYS: u64 = 4000;

struct World {
    keyspace: Arc<Keyspace>,
    keeper: Arc<Keeper>,
    prng: Prng,
    keys: u64,
    model: Model,
    frozen: u64,
    moved: u64,
    /// Time of the world, which advances, so that keys are due.
    now: i64,
    due: u64,
    evicted: u64,
    hand: DueHand,
}

impl World {
    fn new(seed: u64, keys: u64) -> World {
        let keyspace = keyspace(4, 2, 1 << 30, seed as u8);
        let keeper: Arc<Keeper> = Arc::default();
        let shared: Arc<dyn ColdKeeper> = keeper.clone();
        keyspace.keep_cold(&shared);
        World {
            keyspace: Arc::new(keyspace),
            keeper,
            prng: Prng::new(seed),
            keys,
            model: Model::new(),
            frozen: 0,
            moved: 0,
            now: START,
            due: 0,
            evicted: 0,
            hand: DueHand::default(),
        }
    }

    /// Few slots with many keys, so that these lie in parts; some that are alone.
    fn draw_name(&mut self) -> Name {
        let (db, number) = (self.prng.below(DATABASES) as u16, self.prng.below(self.keys));
        let key = match self.prng.below(8) {
            0 => format!("alone:{}", number % 20),
            1 => format!("{{b}}{}", number % 30),
            _ => format!("{{a}}key:{number}"),
        };
        (db, key.into_bytes())
    }

    fn draw_value(&mut self) -> Stored {
        match self.prng.below(6) {
            0 => Stored::Int(self.prng.next_u64() as i64 >> self.prng.below(60)),
            1 => Stored::Bytes(vec![b'v'; 150 + self.prng.below(400) as usize]),
            _ => Stored::Bytes(format!("value {}", self.prng.below(1000)).into_bytes()),
        }
    }

    fn held(&self, slot: Slot) -> Held<'_> {
        let mut held = Held::new(&self.keyspace);
        held.acquire(Want::One(self.keyspace.partition_of(slot)));
        held
    }

    fn slot(&mut self) -> Slot {
        let name = self.draw_name();
        self.keyspace.key(&name.1).slot
    }

    /// Writes out what may freeze of a slot; sometimes something changes before it turns.
    fn freeze(&mut self) {
        let slot = self.slot();
        let keys_min = 1 + self.prng.below(4) as usize;
        let limits = FreezeLimits {
            value_bytes_max: 450,
            idle_seconds_min: 0,
            keys_min,
            expiry_min: UnixMs(self.now + 2),
        };
        let mut hand = SlotHand::at(slot);
        let mut shown = Vec::new();
        while hand.slot() == slot {
            hand.show_freezable(&mut self.held(slot), limits, UnixMs(self.now), &mut |it| {
                assert!(it.keys >= keys_min);
                shown.push((it.db, it.name, it.payload.to_vec(), it.keys));
            });
        }
        for (db, name, payload, keys) in shown {
            if self.prng.one_in(3) {
                continue;
            }
            if self.prng.one_in(4) {
                (0..20).for_each(|_| self.op());
            }
            let reference = self.keeper.keep(&payload);
            let count =
                self.held(slot).freeze((db, slot), name, &payload, reference, keys_min, UnixMs(self.now));
            assert!(count == 0 || (keys_min..=keys).contains(&count));
            self.frozen += count as u64;
        }
    }

    /// The bundles of a slot, with what they hold.
    fn bundles(&self, slot: Slot) -> Vec<(Db, BundleName, ColdRef)> {
        let mut all = Vec::new();
        SlotKeys::of(&self.held(slot), slot)
            .bundles(&mut |db, name, reference| all.push((db, name, reference)));
        all
    }

    fn relocate(&mut self) {
        let slot = self.slot();
        for (db, name, from) in self.bundles(slot) {
            if !self.bundles(slot).contains(&(db, name, from)) {
                continue;
            }
            let to = self.keeper.keep(&self.keeper.read(from));
            if self.prng.one_in(3) {
                (0..10).for_each(|_| self.op());
            }
            let is_there = self.bundles(slot).contains(&(db, name, from));
            assert_eq!(
                self.held(slot).database_of_bundle((Db(1 - db.0), slot), name, from),
                is_there.then_some(db)
            );
            assert_eq!(self.held(slot).move_bundle((db, slot), name, from, to), is_there);
            self.moved += u64::from(is_there);
        }
    }

    /// Fetches a key as dispatch does: what a command is about to name is read, and comes to memory.
    fn fetch(&mut self) {
        let (db, name) = self.draw_name();
        let key = self.keyspace.key(&name);
        loop {
            let place = self.held(key.slot).whereabouts(Db(db), &key, false);
            let Whereabouts::Frozen(reference, _) = place else { break };
            assert!(self.held(key.slot).may_be_frozen(Db(db), &key));
            let payload = self.keeper.read(reference);
            let came = self.held(key.slot).thaw(Db(db), &key, &payload, reference, UnixMs(self.now));
            if came == Ok(true) {
                let is_seen = txn(&self.keyspace, self.now, |txn| txn.contains(Db(db), &txn.key(&name)));
                assert_eq!(is_seen, self.model.contains_key(&(db, name.clone())), "it may be due");
                break;
            }
        }
    }

    fn op(&mut self) {
        let (db, name) = self.draw_name();
        let (other_db, other) = self.draw_name();
        let id = (db, name.clone());
        let (value, choice) = (self.draw_value(), self.prng.below(12));
        let seconds = if self.prng.one_in(2) { 1000 } else { 1 + self.prng.below(60) as i64 };
        // Between two moments of the test: the expiry cycle finds what was due a quarter of a second ago.
        let expires_at = self.now + seconds * 1000 - 500;
        let expected = self.model.get(&id).cloned();
        let model = &mut self.model;
        txn(&self.keyspace, self.now, |txn| {
            let key = txn.key(&name);
            let other_key = txn.key(&other);
            match choice {
                0..4 => {
                    let new = match &value {
                        Stored::Int(int) => NewValue::Int(*int),
                        Stored::Bytes(bytes) | Stored::Raw(bytes) => NewValue::Bytes(bytes),
                    };
                    let was = txn.set(Db(db), &key, new, Expiry::Clear).expect("there is room");
                    assert_eq!(was, expected.is_some());
                    model.insert(id, (value, None));
                }
                4 | 5 => {
                    assert_eq!(txn.remove(Db(db), &key), expected.is_some());
                    model.remove(&id);
                }
                6 if expected.is_some() && (db, &name) != (other_db, &other) => {
                    txn.rename((Db(db), &key), (Db(other_db), &other_key)).expect("there is room");
                    let moved = model.remove(&id).expect("it is there");
                    model.insert((other_db, other), moved);
                }
                7 if expected.is_some() && (db, &name) != (other_db, &other) => {
                    txn.copy((Db(db), &key), (Db(other_db), &other_key)).expect("there is room");
                    model.insert((other_db, other), expected.expect("it is there"));
                }
                8 => {
                    let at = UnixMs(expires_at);
                    assert_eq!(txn.set_expiry(Db(db), &key, Some(at)), Ok(expected.is_some()));
                    model.entry(id).and_modify(|kept| kept.1 = Some(at.0));
                }
                9 => assert_eq!(txn.contains(Db(db), &key), expected.is_some()),
                _ => {
                    let found = txn.find(Db(db), &key, Lookup::Read);
                    let found = found.map(|entry| (Stored::of(entry.value), entry.expiry.map(|at| at.0)));
                    assert_eq!(found, expected);
                }
            }
        });
    }

    /// Some keys are due: they are seen no more. Later their records are read, and the expiry cycle removes
    /// them.
    fn pass_time(&mut self) {
        self.now += self.prng.below(30) as i64 * 1000;
        let now = self.now;
        self.model.retain(|_, (_, expiry)| expiry.is_none_or(|at| at >= now));
        if self.prng.one_in(2) {
            self.remove_due();
        }
    }

    /// All that is due leaves, as the server does it.
    fn remove_due(&mut self) {
        let end = self.hand.rounds + 2;
        while self.hand.rounds < end {
            let mut held = Held::new(&self.keyspace);
            held.acquire(Want::One(self.hand.partition()));
            let found = self.hand.step(&mut held, UnixMs(self.now));
            drop(held);
            for due in found {
                let payload = self.keeper.read(due.reference);
                let came = thaw_due(&mut self.held(due.slot), &due, &payload, UnixMs(self.now));
                self.due += came.expect("there is room") as u64;
            }
        }
        for partition in 0..self.keyspace.partition_count() as u16 {
            while self.keyspace.expire_step(partition, UnixMs(self.now), 50, &mut NoEffects).more {}
        }
    }

    /// Keys of a bundle that the policy takes leave, each key with its effect.
    fn evict(&mut self) {
        struct Names(Vec<Name>);
        impl EffectSink for Names {
            fn mask(&self) -> EffectMask {
                EffectMask::ALL
            }
            fn effect(&mut self, effect: Effect<'_>) {
                let Effect::Evicted { db, key } = effect else { panic!("{effect:?} is no eviction") };
                self.0.push((db.0, key.to_vec()));
            }
        }
        let slot = self.slot();
        let Some((db, name, reference)) = self.bundles(slot).pop() else { return };
        let is_volatile = self.prng.one_in(3);
        let policy = if is_volatile { EvictionPolicy::VolatileTtl } else { EvictionPolicy::AllKeysLru };
        let bundle = BundleAt { db, slot, name, reference };
        let (payload, now) = (self.keeper.read(reference), UnixMs(self.now));
        let keys = self.held(slot).bundle_keys(&bundle).expect("it is there");
        let mut sink = Names(Vec::new());
        let evicted = self.held(slot).evict_bundle(&bundle, &payload, policy, now, &mut sink);
        assert_eq!(sink.0.len() as u64, evicted);
        assert!(is_volatile || evicted == keys);
        self.evicted += evicted;
        for name in sink.0 {
            // Some of them were due, and seen by none.
            let gone = self.model.remove(&name);
            assert!(!is_volatile || gone.is_none_or(|(_, expiry)| expiry.is_some()));
        }
        let left = self.held(slot).bundle_keys(&bundle);
        assert_eq!(left, Some(keys - evicted).filter(|left| *left > 0), "its record goes with its last key");
    }

    fn step(&mut self) {
        match self.prng.below(30) {
            0..20 => self.op(),
            20..22 => self.freeze(),
            22 => self.freeze_only(),
            23 => self.pass_time(),
            24 if self.prng.one_in(4) => self.evict(),
            24 => self.relocate(),
            25..28 => self.fetch(),
            28 if self.prng.one_in(15) => {
                self.remove_due();
                let db = self.prng.below(DATABASES) as u16;
                let removed = txn(&self.keyspace, self.now, |txn| txn.flush(Some(Db(db))));
                let before = self.model.len();
                self.model.retain(|(of, _), _| *of != db);
                assert_eq!(removed, (before - self.model.len()) as u64);
                if self.prng.one_in(2) {
                    txn(&self.keyspace, self.now, |txn| txn.free_flushed_now());
                }
            }
            28 => _ = compact(&self.keyspace, 20),
            _ => {
                txn(&self.keyspace, self.now, |txn| txn.swap(Db(0), Db(1)));
                let swapped = std::mem::take(&mut self.model);
                self.model = swapped.into_iter().map(|((db, key), kept)| ((1 - db, key), kept)).collect();
            }
        }
    }

    fn frozen_keys(&self) -> u64 {
        let counts = Survey::new(&mut Held::new(&self.keyspace)).cold();
        assert_eq!(counts.bundles, self.keeper.values.lock().unwrap().len() as u64, "each is a bundle's");
        counts.frozen_keys
    }

    fn check(&mut self) {
        self.keyspace.check_invariants();
        self.check_names();
        self.remove_due();
        self.check_names();
        self.keyspace.check_invariants();
        self.frozen_keys();
        self.check_counts();
    }

    /// Compares counts with the model: keys of a database, of a slot, and with an expiry, wherever they lie.
    fn check_counts(&self) {
        let mut held = Held::new(&self.keyspace);
        let listed = Survey::new(&mut held).databases();
        let sizes = Survey::new(&mut held).slot_sizes();
        for db in 0..DATABASES as u16 {
            let of_db = || self.model.iter().filter(|((of, _), _)| *of == db);
            let volatile = of_db().filter(|(_, (_, expiry))| expiry.is_some()).count() as u64;
            let counted = (of_db().count() as u64, volatile);
            txn(&self.keyspace, self.now, |txn| {
                assert_eq!((txn.len(Db(db)), txn.volatile_len(Db(db))), counted);
            });
            let shown = &listed[usize::from(db)];
            assert_eq!((shown.keys, shown.volatile), counted);
            let mut slots: BTreeMap<Slot, u64> = BTreeMap::new();
            of_db().for_each(|((_, key), _)| *slots.entry(Slot::of_key(key)).or_default() += 1);
            for (slot, keys) in slots {
                held.acquire(Want::One(self.keyspace.partition_of(slot)));
                assert_eq!(SlotKeys::of(&held, slot).len_in(Db(db)), keys);
                held.release();
            }
        }
        assert_eq!(sizes.iter().map(|size| size.keys).sum::<u64>(), self.model.len() as u64);
    }

    /// Checks what readers see, whether what is due has left or not.
    fn check_names(&self) {
        for db in 0..DATABASES as u16 {
            let names: BTreeSet<&[u8]> =
                self.model.keys().filter(|(of, _)| *of == db).map(|(_, key)| &key[..]).collect();
            txn(&self.keyspace, self.now, |txn| {
                let mut listed = Vec::new();
                txn.for_each_key(Db(db), None, |key| listed.push(key.to_vec()));
                assert_eq!(listed.len(), names.len());
                assert_eq!(listed.iter().map(Vec::as_slice).collect::<BTreeSet<_>>(), names);
                if let Some(key) = txn.random_key(Db(db), &mut |n| n / 2) {
                    assert!(names.contains(&key[..]));
                }
            });
        }
    }
}

#[test]
fn what_is_frozen_is_what_was_stored() {
    for seed in 0..4 {
        let mut world = World::new(seed, KEYS);
        for step in 0..6000 {
            world.step();
            if step % 150 == 0 {
                world.check();
            }
        }
        world.check();
        let World { frozen, moved, due, evicted, .. } = world;
        assert!(frozen > 2000 && moved > 20 && due > 50 && evicted > 50, "{frozen} {moved} {due} {evicted}");
        world.remove_due();
        txn(&world.keyspace, world.now, |txn| txn.free_flushed_now());
        let model = std::mem::take(&mut world.model);
        for ((db, name), expected) in &model {
            txn(&world.keyspace, world.now, |txn| {
                let key = txn.key(name);
                let entry = txn.find(Db(*db), &key, Lookup::Silent).expect("it is there");
                let found = (Stored::of(entry.value), entry.expiry.map(|at| at.0));
                assert_eq!(&found, expected);
            });
        }
        assert_eq!(world.frozen_keys(), 0, "all were looked up");
        world.model = model;
        (0..10).for_each(|_| world.freeze());
        assert!(world.frozen_keys() > 0);
        flush_and_check(&world.keyspace, world.now);
        assert!(world.keeper.values.lock().unwrap().is_empty(), "all records went back");
    }
}

/// A key that is there throughout is returned, whatever freezes and thaws between the calls.
#[test]
fn a_walk_misses_no_key_that_freezes_or_thaws() {
    let mut calls = 0;
    for seed in 0..8 {
        let mut world = World::new(50 + seed, MANY_KEYS);
        (0..20_000).for_each(|_| world.op());
        (0..400).for_each(|_| world.step());
        let before = world.model.clone();
        for db in 0..DATABASES as u16 {
            let mut seen = BTreeSet::new();
            let mut cursor = 0;
            loop {
                let visit = |key: &[u8], _: &Entry<'_>| _ = seen.insert(key.to_vec());
                cursor = txn(&world.keyspace, world.now, |txn| {
                    txn.scan(Db(db), cursor, 5, None, |_, _| true, visit)
                });
                if cursor == 0 {
                    break;
                }
                calls += 1;
                match world.prng.below(3) {
                    0 => world.freeze_only(),
                    1 => (0..10).for_each(|_| world.fetch()),
                    _ => world.relocate_only(),
                }
            }
            let names: BTreeSet<Vec<u8>> =
                before.keys().filter(|(of, _)| *of == db).map(|(_, key)| key.clone()).collect();
            assert!(names.is_subset(&seen) && seen.is_subset(&names), "seed {seed}");
        }
    }
    assert!(calls > 200, "{calls}");
}

impl World {
    /// Without changes in between.
    fn freeze_only(&mut self) {
        let slot = self.slot();
        let limits = FreezeLimits {
            value_bytes_max: 450,
            idle_seconds_min: 0,
            keys_min: 1,
            expiry_min: UnixMs(self.now + 2),
        };
        let mut hand = SlotHand::at(slot);
        let mut shown = Vec::new();
        while hand.slot() == slot {
            hand.show_freezable(&mut self.held(slot), limits, UnixMs(self.now), &mut |it| {
                shown.push((it.db, it.name, it.payload.to_vec()));
            });
        }
        for (db, name, payload) in shown {
            let reference = self.keeper.keep(&payload);
            self.held(slot).freeze((db, slot), name, &payload, reference, 1, UnixMs(self.now));
        }
    }

    fn relocate_only(&mut self) {
        let slot = self.slot();
        for (db, name, from) in self.bundles(slot) {
            let to = self.keeper.keep(&self.keeper.read(from));
            assert!(self.held(slot).move_bundle((db, slot), name, from, to));
        }
    }
}

/// Data that a file has of a bundle, and the record that it refers to.
struct FileBundle {
    db: Db,
    slot: Slot,
    name: BundleName,
    reference: ColdRef,
    prints: Vec<[u8; 2]>,
    expiring: Option<Expiring>,
    payload: Vec<u8>,
}

impl FileBundle {
    fn of(bundle: &SnapshotBundle<'_>, payload: Vec<u8>) -> FileBundle {
        let SnapshotBundle { db, slot, name, reference, expiring, .. } = *bundle;
        let prints = bundle.prints().iter().map(|print| print.to_le_bytes()).collect();
        FileBundle { db, slot, name, reference, prints, expiring, payload }
    }

    fn put(&self, keyspace: &Keyspace) -> Result<u64, NotPut> {
        let FileBundle { db, slot, name, reference, ref prints, expiring, .. } = *self;
        let mut held = Held::new(keyspace);
        held.acquire(Want::One(keyspace.partition_of(slot)));
        held.put_bundle((db, slot), &StoredBundle { name, reference, prints, expiring })
    }
}

/// A snapshot has each key once, as it was at the cut, whatever freezes, thaws and is moved meanwhile; and of
/// its bundles, where they lay at the cut, another process of the same secret has the same keys without a
/// look at them.
#[test]
fn a_snapshot_has_frozen_keys_as_they_were() {
    for seed in 0..10 {
        let mut world = World::new(90 + seed, KEYS);
        (0..800).for_each(|_| world.step());
        (0..6).for_each(|_| world.freeze_only());
        world.remove_due();
        let expected = world.model.clone();
        let keeper = Arc::clone(&world.keeper);
        let keyspace = Arc::clone(&world.keyspace);
        let now = world.now;
        let at_cut: BTreeSet<u64> = keeper.values.lock().unwrap().keys().copied().collect();
        let mut snapshot = keyspace.snapshot().expect("there is none");
        keeper.begin_snapshot();
        let (mut emitted, mut bundles, mut hot) = (Model::new(), Vec::new(), Vec::new());
        loop {
            let mut put = |entry: &SnapshotEntry<'_>| {
                let kept = (Stored::of(entry.value), entry.expiry.map(|at| at.0));
                let name = (entry.db.0, entry.key.to_vec());
                assert!(emitted.insert(name.clone(), kept).is_none());
                name
            };
            let more = snapshot.step(3, &mut |item| match item {
                SnapshotItem::Entry(entry) => hot.push(put(&entry)),
                SnapshotItem::Bundle(bundle) => {
                    assert!(at_cut.contains(&bundle.reference.raw()), "it was there at the cut");
                    // Its record lies where it lay at the cut: the keeper frees nothing meanwhile.
                    let payload = keeper.read_for_snapshot(bundle.reference);
                    let entries = bundle.entries(&payload).expect("it is one");
                    assert_eq!(entries.len() as u64, bundle.keys());
                    entries.iter().for_each(|entry| _ = put(entry));
                    bundles.push(FileBundle::of(&bundle, payload));
                }
                _ => panic!("there are strings only"),
            });
            if !more {
                break;
            }
            if world.prng.one_in(3) {
                world.relocate();
            }
            (0..3).for_each(|_| world.step());
        }
        drop(snapshot);
        assert_eq!(emitted, expected);
        assert!(bundles.len() > 3, "{}", bundles.len());
        keyspace.check_invariants();
        restart((90 + seed, now), &bundles, &hot, &expected);
    }
}

/// The entry of a key is in memory and due, and a record has another key of the same sixteen bits: that is no
/// reason to refuse a new value.
#[test]
fn what_was_due_is_stored_anew_beside_a_key_like_it() {
    let mut world = World::new(5, KEYS);
    (0..800).for_each(|_| world.step());
    (0..6).for_each(|_| world.freeze_only());
    let is_like_another = |name: &Vec<u8>| {
        let key = world.keyspace.key(name);
        world.held(key.slot).may_be_frozen(Db(0), &key)
    };
    let mut names = (0..1 << 20).map(|n| format!("{{a}}new:{n}").into_bytes());
    let name = names.find(is_like_another).expect("sixteen bits are not many");
    let set = |world: &World, expiry| {
        let value = NewValue::Bytes(b"value");
        txn(&world.keyspace, world.now, |txn| txn.set(Db(0), &txn.key(&name), value, expiry))
    };
    assert_eq!(set(&world, Expiry::At(UnixMs(world.now + 1000))), Ok(false));
    // Where a record lies now it was not read yet.
    (0..20).for_each(|_| world.relocate_only());
    world.now += 2000;
    let waits = world.keeper.waits.load(Relaxed);
    assert_eq!(set(&world, Expiry::Clear), Ok(false));
    assert_eq!(
        world.keeper.waits.load(Relaxed),
        waits,
        "it was in memory, so no record has it: none is read"
    );
}

/// Many absent keys are known at the same time. A command names hundreds of keys that are not there, and
/// records seem to have them: when the last of these records was read, it is still known what the first one
/// did not have, or the command would begin again for ever.
#[test]
fn many_absent_keys_are_known_at_the_same_time() {
    const ABSENT: usize = 1000;
    let mut world = World::new(6, KEYS);
    (0..800).for_each(|_| world.step());
    let is_proposed = |world: &World, name: &[u8]| {
        let key = world.keyspace.key(name);
        world.held(key.slot).whereabouts(Db(0), &key, false) != Whereabouts::Here
    };
    let names = |count: usize| (0..count).map(|n| format!("{{a}}none:{n}").into_bytes());
    // Until there are records of many keys in the slot: of each key they propose one name in 65,536.
    let is_ripe = |world: &World| names(1 << 17).filter(|name| is_proposed(world, name)).nth(30).is_some();
    for _ in 0..200 {
        (0..6).for_each(|_| world.freeze_only());
        if is_ripe(&world) {
            break;
        }
        (0..20).for_each(|_| world.step());
    }
    let place = |name: &[u8]| {
        let key = world.keyspace.key(name);
        world.held(key.slot).whereabouts(Db(0), &key, false)
    };
    let names: Vec<Vec<u8>> = names(1 << 23).filter(|name| is_proposed(&world, name)).take(ABSENT).collect();
    assert_eq!(names.len(), ABSENT);
    for name in &names {
        let key = world.keyspace.key(name);
        while let Whereabouts::Frozen(reference, _) = place(name) {
            let payload = world.keeper.read(reference);
            let came = world.held(key.slot).thaw(Db(0), &key, &payload, reference, UnixMs(world.now));
            assert_eq!(came, Ok(false));
        }
    }
    assert!(names.iter().all(|name| place(name) == Whereabouts::Here));
    world.keyspace.check_invariants();
}

/// A command that could not read a key has taken it for absent: that it can be read a moment later does not
/// let it be written over.
#[test]
fn what_could_not_be_read_is_not_written_over_by_the_same_command() {
    let mut world = World::new(6, KEYS);
    let name: &[u8] = b"{a}key:1";
    let slot = world.keyspace.key(name).slot;
    txn(&world.keyspace, world.now, |txn| {
        txn.set(Db(1), &txn.key(name), NewValue::Bytes(b"kept"), Expiry::Clear).expect("there is room");
    });
    while world.bundles(slot).is_empty() {
        world.freeze_only();
    }
    txn(&world.keyspace, world.now, |txn| {
        let (from, key) = (txn.key(b"{b}other"), txn.key(name));
        txn.set(Db(0), &from, NewValue::Bytes(b"other"), Expiry::Clear).expect("there is room");
        world.keeper.failures.store(1, Relaxed);
        assert!(txn.find(Db(1), &key, Lookup::Write).is_none(), "it cannot be read");
        assert_eq!(txn.rename((Db(0), &from), (Db(1), &key)), Err(Full));
    });
    txn(&world.keyspace, world.now, |txn| {
        let entry = txn.find(Db(1), &txn.key(name), Lookup::Silent).expect("it is there");
        assert_eq!(Stored::of(entry.value), Stored::Bytes(b"kept".to_vec()));
    });
}

/// Another process has the bundles of a file, and its other keys.
fn restart((seed, now): (u64, i64), bundles: &[FileBundle], hot: &[Name], expected: &Model) {
    let mut world = World::new(seed, KEYS);
    world.now = now;
    let refer = |bundle: &FileBundle| {
        world.keeper.values.lock().unwrap().insert(bundle.reference.raw(), bundle.payload.clone());
    };
    for bundle in bundles {
        refer(bundle);
        let keys = bundle.prints.iter().filter(|print| **print != [0, 0]).count() as u64;
        assert_eq!(bundle.put(&world.keyspace), Ok(keys));
        // Twice is damage, and so is one without keys; the keeper gets the record back.
        if bundle.slot.get().is_multiple_of(3) {
            let known = world.keeper.values.lock().unwrap().len();
            let empty = FileBundle {
                reference: ColdRef::new(1 << 40),
                prints: vec![[0, 0]; 3],
                payload: Vec::new(),
                ..*bundle
            };
            world.keeper.values.lock().unwrap().insert(empty.reference.raw(), vec![0]);
            assert_eq!(empty.put(&world.keyspace), Err(NotPut::Unsuited));
            assert_eq!(world.keeper.values.lock().unwrap().len(), known);
            assert_eq!(bundle.put(&world.keyspace), Err(NotPut::Repeated));
            refer(bundle);
        }
    }
    for (db, name) in hot {
        let (value, expiry) = &expected[&(*db, name.clone())];
        txn(&world.keyspace, world.now, |txn| {
            let new = match value {
                Stored::Int(int) => NewValue::Int(*int),
                Stored::Bytes(bytes) | Stored::Raw(bytes) => NewValue::Bytes(bytes),
            };
            let expiry = expiry.map_or(Expiry::Clear, |at| Expiry::At(UnixMs(at)));
            assert_eq!(txn.set(Db(*db), &txn.key(name), new, expiry), Ok(false));
        });
    }
    world.model = expected.clone();
    world.check();
    (0..500).for_each(|_| world.step());
    world.check();
}

/// Many databases may be there, and few of them have keys: the hands that go round go over those.
#[test]
fn databases_without_keys_cost_no_step() {
    let keyspace = Keyspace::new(Config {
        partitions: 1,
        arenas: 1,
        databases: 16_000,
        reserve_bytes: 64 << 20,
        hash_secret: [3; 16],
        class_bytes: |bytes| bytes,
    });
    let keyspace = keyspace.expect("so many addresses are to be had");
    let slot = txn(&keyspace, START, |txn| {
        txn.set(Db(0), &txn.key(b"{a}first"), NewValue::Bytes(b"value"), Expiry::Clear).unwrap();
        txn.set(Db(15_999), &txn.key(b"{a}last"), NewValue::Bytes(b"value"), Expiry::Clear).unwrap();
        txn.key(b"{a}").slot
    });
    let mut held = Held::new(&keyspace);
    held.acquire(Want::All);
    let limits =
        FreezeLimits { value_bytes_max: 450, idle_seconds_min: 0, keys_min: 1, expiry_min: UnixMs(0) };
    let (mut hand, mut steps, mut shown) = (SlotHand::at(slot), 0, Vec::new());
    while hand.slot() == slot {
        hand.show_freezable(&mut held, limits, UnixMs(START), &mut |it| shown.push((it.db, it.keys)));
        steps += 1;
    }
    assert_eq!(shown, [(Db(0), 1), (Db(15_999), 1)]);
    // Of each its page and its end, and that of the slot.
    assert!(steps <= 5, "{steps}");
    let limits = SinkLimits { value_bytes_min: 1, value_bytes_max: 450, by_nodes: ByNodes::Large };
    let (mut hand, mut shown) = (SlotHand::at(slot), Vec::new());
    hand.show_sinkable(&mut held, limits, 20, UnixMs(START), &mut |it| shown.push(it.db));
    assert_eq!(shown, [Db(0), Db(15_999)]);
    assert_ne!(hand.slot(), slot, "in one hold");
    held.check_invariants();
}
