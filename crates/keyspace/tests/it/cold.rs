//! Values that leave memory: whatever happens to their keys, what is read is what was stored, and each
//! reference that an entry no longer has goes back to its keeper, once.

use crate::support::*;
use isotherm_keyspace::*;
use isotherm_stdx::Prng;
use std::collections::HashMap;
use std::sync::atomic::{AtomicI64, AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex};

/// Keeps values by their reference, and checks that each goes back once.
#[derive(Default)]
pub struct Keeper {
    pub values: Mutex<HashMap<u64, Vec<u8>>>,
    /// While a snapshot is under way, what went back since its cut: the snapshot may refer to it, and to
    /// nothing that went back before.
    since_cut: Mutex<Option<HashMap<u64, Vec<u8>>>>,
    next: Mutex<u64>,
    /// Number of times that the keyspace waited for a value or a part of one.
    pub waits: AtomicU64,
    /// Number of the next reads that fail.
    pub failures: AtomicU64,
    /// Hashes that were asked for.
    pub asked: Mutex<Vec<(Db, Vec<u8>)>>,
    /// Bytes that are lent.
    pub lent_bytes: AtomicI64,
}

impl ColdKeeper for Keeper {
    fn read(&self, reference: ColdRef, _key: &[u8]) -> Option<Vec<u8>> {
        self.waits.fetch_add(1, Relaxed);
        if self.failures.load(Relaxed) > 0 {
            self.failures.fetch_sub(1, Relaxed);
            return None;
        }
        self.values.lock().unwrap().get(&reference.raw()).cloned()
    }

    fn lent_more(&self, bytes: i64) {
        let sum = self.lent_bytes.fetch_add(bytes, Relaxed) + bytes;
        assert!(sum >= 0, "{sum}");
    }

    fn fields_are_due(&self, db: Db, key: &[u8]) {
        self.asked.lock().unwrap().push((db, key.to_vec()));
    }

    fn retire(&self, reference: ColdRef) {
        let known = self.values.lock().unwrap().remove(&reference.raw());
        let Some(value) = known else { panic!("{reference:?} goes back twice, or was never given") };
        if let Some(kept) = &mut *self.since_cut.lock().unwrap() {
            kept.insert(reference.raw(), value);
        }
    }
}

impl Keeper {
    pub fn keep(&self, value: &[u8]) -> ColdRef {
        let mut next = self.next.lock().unwrap();
        *next += 1;
        let raw = (value.len() as u64) << 40 | *next;
        self.values.lock().unwrap().insert(raw, value.to_vec());
        ColdRef::new(raw)
    }

    pub fn read(&self, reference: ColdRef) -> Vec<u8> {
        self.values.lock().unwrap()[&reference.raw()].clone()
    }

    /// Returns whether the value of a reference is still kept: it has not gone back.
    pub fn has(&self, reference: ColdRef) -> bool {
        self.values.lock().unwrap().contains_key(&reference.raw())
    }

    /// A snapshot was cut.
    pub fn begin_snapshot(&self) {
        let old = self.since_cut.lock().unwrap().replace(HashMap::new());
        assert!(old.is_none(), "there is one at a time");
    }

    pub fn end_snapshot(&self) {
        assert!(self.since_cut.lock().unwrap().take().is_some(), "it was begun");
    }

    /// Reads a value for the snapshot under way.
    pub fn read_for_snapshot(&self, reference: ColdRef) -> Vec<u8> {
        let raw = reference.raw();
        if let Some(value) = self.values.lock().unwrap().get(&raw) {
            return value.clone();
        }
        let kept = self.since_cut.lock().unwrap();
        let kept = kept.as_ref().expect("a snapshot is under way");
        kept.get(&raw).unwrap_or_else(|| panic!("{reference:?} went back before the cut")).clone()
    }

    fn resolve(&self, value: Value<'_>) -> Stored {
        match value {
            Value::Cold(cold) => Stored::Bytes(self.read(cold.reference)),
            other => Stored::of(other),
        }
    }
}

struct World {
    keyspace: Keyspace,
    keeper: Arc<Keeper>,
    prng: Prng,
    state: State,
    hand: SlotHand,
    now: i64,
    chilled: u64,
    moved: u64,
    warmed: u64,
    lent: u64,
}

const SHAPE: Shape = Shape { keys: 400, long: true, first_db: 0, databases: 3, whole: true };
/// Some values, of each partition.
const LENT_BYTES_MAX: usize = 2000;
const LIMITS: SinkLimits =
    SinkLimits { value_bytes_min: 64, value_bytes_max: (1 << 24) - 1, by_nodes: ByNodes::Large };

impl World {
    fn new(seed: u64) -> World {
        let keyspace = keyspace(4, 2, 1 << 30, seed as u8);
        let keeper: Arc<Keeper> = Arc::default();
        let shared: Arc<dyn ColdKeeper> = keeper.clone();
        keyspace.keep_cold(&shared);
        let (state, hand) = (State::new(), SlotHand::default());
        let prng = Prng::new(seed);
        World { keyspace, keeper, prng, state, hand, now: START, chilled: 0, moved: 0, warmed: 0, lent: 0 }
    }

    fn held(&self, key: &[u8]) -> Held<'_> {
        let mut held = Held::new(&self.keyspace);
        held.acquire(Want::One(self.keyspace.partition_of(self.keyspace.key(key).slot)));
        held
    }

    /// Lets what the hand shows leave memory; sometimes the value has changed meanwhile.
    fn sink(&mut self) {
        let (mut shown, mut room) = (Vec::new(), SinkRoom::default());
        // Of 16384 slots most have no key here: one that has.
        if self.prng.one_in(2) {
            let (_, key) = draw_name(&mut |n| self.prng.below(n), &SHAPE);
            self.hand = SlotHand::at(Slot::of_key(&key));
        }
        {
            let mut held = Held::new(&self.keyspace);
            held.acquire(Want::One(self.keyspace.partition_of(self.hand.slot())));
            self.hand.show_sinkable(&mut held, LIMITS, 40, UnixMs(self.now), &mut |value| {
                assert!(LIMITS.value_bytes_min <= value.bytes);
                let Payload { form_number, bytes } = value.payload(&mut room);
                shown.push((value.db, value.key.to_vec(), bytes.to_vec(), form_number, value.expiry));
            });
        }
        for (db, key, value, form, expiry) in shown {
            if self.prng.one_in(3) {
                continue;
            }
            if self.prng.one_in(6) {
                self.op();
            }
            let reference = self.keeper.keep(&value);
            let name = (db.0, key);
            let is_same = self
                .state
                .get(&name)
                .is_some_and(|(stored, _)| !matches!(stored, Stored::Int(_)) && stored.text() == value);
            let chilled = {
                let mut held = self.held(&name.1);
                let key = self.keyspace.key(&name.1);
                held.chill(db, &key, &value, form, reference, UnixMs(self.now)) != Chilled::No
            };
            assert!(is_same || !chilled, "{name:?} {expiry:?}");
            self.chilled += u64::from(chilled);
        }
    }

    fn cold_of(&self, name: &Name) -> Option<ColdValue> {
        self.held(&name.1).cold(Db(name.0), &self.keyspace.key(&name.1))
    }

    fn warm(&mut self, name: &Name) {
        let Some(cold) = self.cold_of(name) else { return };
        let value = self.keeper.read(cold.reference);
        let key = self.keyspace.key(&name.1);
        let done = self.held(&name.1).warm(Db(name.0), &key, &value, cold.reference, UnixMs(self.now));
        assert_eq!(done, Ok(true));
        self.warmed += 1;
    }

    /// Lends a value: its bytes lie next to the entry for a while. Some that were lent before are dropped, or
    /// come back to memory.
    fn lend(&mut self) {
        let name = draw_name(&mut |n| self.prng.below(n), &SHAPE);
        let Some(cold) = self.cold_of(&name) else { return };
        let (key, value) = (self.keyspace.key(&name.1), self.keeper.read(cold.reference));
        let (db, now) = (Db(name.0), UnixMs(self.now));
        let is_readable = !self.prng.one_in(8);
        self.lent += u64::from(is_readable);
        let mut held = self.held(&name.1);
        assert_eq!(held.whereabouts(db, &key, true), Whereabouts::Away(cold));
        held.lend(db, &key, is_readable.then_some(&value[..]), cold.reference, LENT_BYTES_MAX, now);
        match is_readable {
            true => {
                assert_eq!(held.whereabouts(db, &key, false), Whereabouts::Here);
                assert_eq!(held.lent(db, &key).as_deref(), Some(&value[..]));
            }
            false => {
                assert_eq!(held.whereabouts(db, &key, false), Whereabouts::Unreadable);
                held.forget_failure(db, &key);
                assert_eq!(held.whereabouts(db, &key, false), Whereabouts::Away(cold));
            }
        }
    }

    /// The keeper cleans: the value lies elsewhere.
    fn relocate(&mut self) {
        let name = draw_name(&mut |n| self.prng.below(n), &SHAPE);
        let Some(cold) = self.cold_of(&name) else { return };
        let to = self.keeper.keep(&self.keeper.read(cold.reference));
        let key = self.keyspace.key(&name.1);
        if self.prng.one_in(4) {
            let op = Op::Remove { name: name.clone() };
            self.run(&op);
        }
        let is_there = self.cold_of(&name).is_some();
        let moved = self.held(&name.1).move_cold(Db(name.0), &key, cold.reference, to);
        assert_eq!(moved, is_there);
        self.moved += u64::from(moved);
    }

    fn op(&mut self) {
        let op = Op::random(&mut self.prng, &SHAPE, self.now);
        self.run(&op);
    }

    /// Runs an op as dispatch does: what it needs whole is brought to memory first.
    fn run(&mut self, op: &Op) {
        match op {
            Op::Edit { name, .. } => self.warm(&name.clone()),
            Op::Copy { from, .. } | Op::Rename { from, .. } => self.warm(&from.clone()),
            _ => {}
        }
        let answer = run_op(&self.keyspace, self.now, op).expect("there is room");
        assert_eq!(answer, op.run_on(&mut self.state, self.now), "{op:?}");
    }

    fn dump(&self) -> State {
        let mut held = Held::new(&self.keyspace);
        held.acquire(Want::All);
        let keep = Conditions { expiry_mode: ExpiryMode::Keep, no_touch: true, ..conditions(START) };
        let mut sink = NoEffects;
        let mut txn = Txn::new(&mut held, keep, &mut sink);
        let mut state = State::new();
        for db in 0..txn.databases() {
            let mut keys = Vec::new();
            txn.for_each_key(Db(db), None, |key| keys.push(key.to_vec()));
            for bytes in keys {
                let key = txn.key(&bytes);
                let entry = txn.find(Db(db), &key, Lookup::Silent).expect("it was just listed");
                let kept = (self.keeper.resolve(entry.value), entry.expiry.map(|at| at.0));
                state.insert((db, bytes), kept);
            }
        }
        state
    }

    fn check(&self) {
        self.keyspace.check_invariants();
        assert_eq!(at_time(self.dump(), self.now), at_time(self.state.clone(), self.now));
        let ColdCounts { keys, bytes, .. } = Survey::new(&mut Held::new(&self.keyspace)).cold();
        let values = self.keeper.values.lock().unwrap();
        assert_eq!(keys, values.len() as u64, "each reference is an entry's");
        assert_eq!(bytes, values.values().map(|value| value.len() as u64).sum());
    }

    /// All copies give way, once they had their time. The keeper hears of each.
    fn drop_copies(&self) {
        let later = UnixMs(self.now + 60_000);
        for number in 0..self.keyspace.partition_count() as u16 {
            let mut held = Held::new(&self.keyspace);
            held.acquire(Want::One(number));
            let limits = DropLimits { lent_bytes_max: 0, count_max: usize::MAX, given_ms: 0 };
            limits.drop_copies(&mut held, number, later);
        }
        assert_eq!(self.keeper.lent_bytes.load(Relaxed), 0);
        let ColdCounts { lent_values, .. } = Survey::new(&mut Held::new(&self.keyspace)).cold();
        assert_eq!(lent_values, 0);
    }

    fn step(&mut self) {
        self.now += self.prng.below(5) as i64;
        match self.prng.below(20) {
            0..9 => self.op(),
            9..14 => self.sink(),
            14..16 => {
                let name = draw_name(&mut |n| self.prng.below(n), &SHAPE);
                self.warm(&name);
            }
            16 => self.relocate(),
            17 => self.lend(),
            18 => _ = compact(&self.keyspace, 20),
            _ => {
                let mode = [AccessMode::Page, AccessMode::Lru, AccessMode::Lfu][self.prng.below(3) as usize];
                self.keyspace.set_access(mode, 10);
            }
        }
    }
}

#[test]
fn what_left_memory_is_what_was_stored() {
    for seed in 0..6 {
        let mut world = World::new(seed);
        for step in 0..8000 {
            world.step();
            if step % 200 == 0 {
                world.check();
            }
        }
        world.check();
        world.drop_copies();
        world.check();
        let (chilled, moved, warmed) = (world.chilled, world.moved, world.warmed);
        assert!(chilled > 100 && moved > 5 && warmed > 15, "{chilled} {moved} {warmed}");
        assert!(world.lent > 15, "{}", world.lent);
        flush_and_check(&world.keyspace, world.now);
        assert!(world.keeper.values.lock().unwrap().is_empty(), "all references went back");
    }
}

/// Returns whether another thread cannot have the partition of a key at this moment.
fn is_held(keyspace: &Arc<Keyspace>, key: &[u8]) -> bool {
    let (done, is_done) = std::sync::mpsc::channel();
    let (keyspace, key) = (Arc::clone(keyspace), key.to_vec());
    std::thread::spawn(move || {
        let mut held = Held::new(&keyspace);
        held.acquire(Want::One(keyspace.partition_of(keyspace.key(&key).slot)));
        _ = done.send(());
    });
    is_done.recv_timeout(std::time::Duration::from_secs(20)).is_err()
}

/// References are in a snapshot as they were at its cut, and their values may not be thrown away before it
/// was written: that is the keeper's part, which here keeps them all.
#[test]
fn a_snapshot_has_the_references_of_its_cut() {
    for seed in 0..6 {
        let mut world = World::new(100 + seed);
        for _ in 0..3000 {
            world.step();
        }
        let expected = world.dump();
        let kept = world.keeper.values.lock().unwrap().clone();
        let keyspace = Arc::new(std::mem::replace(&mut world.keyspace, keyspace(1, 1, 1 << 26, 1)));
        let mut snapshot = keyspace.snapshot().expect("there is none");
        let mut emitted = State::new();
        let mut colds = 0;
        let mut take = |item: SnapshotItem<'_>| {
            let SnapshotItem::Entry(entry) = item else { panic!("these tests store strings only") };
            let value = match entry.value {
                Value::Cold(cold) => {
                    colds += 1;
                    // Here a save reads from disk: others continue meanwhile.
                    assert!(!is_held(&keyspace, entry.key), "the partition is held");
                    Stored::Bytes(kept[&cold.reference.raw()].clone())
                }
                other => Stored::of(other),
            };
            let name = (entry.db.0, entry.key.to_vec());
            assert!(emitted.insert(name, (value, entry.expiry.map(|at| at.0))).is_none());
        };
        let names: Vec<Name> = expected.keys().cloned().collect();
        while snapshot.step(5, &mut take) {
            // Meanwhile keys are written over, deleted, and brought back.
            let name = world.prng.pick(&names).clone();
            let (db, key) = (Db(name.0), keyspace.key(&name.1));
            let mut held = Held::new(&keyspace);
            held.acquire(Want::One(keyspace.partition_of(key.slot)));
            match (world.prng.below(3), held.cold(db, &key)) {
                (0, Some(cold)) => {
                    let value = world.keeper.read(cold.reference);
                    assert_eq!(held.warm(db, &key, &value, cold.reference, UnixMs(world.now)), Ok(true));
                }
                (1, _) => {
                    let mut sink = NoEffects;
                    let mut txn = Txn::new(&mut held, conditions(world.now), &mut sink);
                    txn.set(db, &key, NewValue::Bytes(b"new"), Expiry::Clear).expect("there is room");
                }
                _ => _ = Txn::new(&mut held, conditions(world.now), &mut NoEffects).remove(db, &key),
            }
        }
        drop(snapshot);
        assert_eq!(emitted, expected);
        assert!(colds > 10, "{colds}");
        keyspace.check_invariants();
    }
}

/// Keys that are evicted for memory are in memory, as long as the pages looked at have some.
#[test]
fn a_cold_key_is_not_evicted_for_memory() {
    for policy in [EvictionPolicy::AllKeysLru, EvictionPolicy::AllKeysLfu, EvictionPolicy::AllKeysRandom] {
        let mut world = World::new(5);
        while world.chilled < 300 {
            world.step();
        }
        let cold = |world: &World| Survey::new(&mut Held::new(&world.keyspace)).cold().keys;
        let (before, mut evicted) = (cold(&world), 0);
        for _ in 0..200 {
            let (prng, now) = (&mut world.prng, UnixMs(world.now));
            let which = (policy, EvictionGain::Memory);
            evicted += u64::from(matches!(
                world.keyspace.try_evict(which, None, now, prng, &mut NoEffects),
                Evicted::Key(_)
            ));
        }
        assert!(evicted > 0, "{policy:?}");
        assert_eq!(cold(&world), before, "{policy:?}");
        for _ in 0..200 {
            let (prng, now) = (&mut world.prng, UnixMs(world.now));
            world.keyspace.evict_one(policy, now, prng, &mut NoEffects);
        }
        assert!(cold(&world) < before, "{policy:?}");
    }
}
