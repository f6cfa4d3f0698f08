//! Memory runs out: an operation that finds none answers `Full` and has changed nothing; nothing leaks,
//! nothing breaks.

use crate::support::*;
use isotherm_keyspace::*;
use isotherm_stdx::Prng;

const MIRI: bool = cfg!(miri);
/// The smallest arena: one commit step, 63 chunks of 16 KB.
const RESERVE_BYTES: u64 = 1 << 20;

struct World {
    keyspace: Keyspace,
    state: State,
    prng: Prng,
    now: i64,
    shape: Shape,
    full: u64,
}

impl World {
    fn new(partitions: usize, arenas: usize, seed: u64, shape: Shape) -> World {
        let keyspace = keyspace(partitions, arenas, arenas as u64 * RESERVE_BYTES, seed as u8);
        World { keyspace, state: State::new(), prng: Prng::new(seed), now: START, shape, full: 0 }
    }

    fn step(&mut self) {
        match self.prng.below(200) {
            0 => drop(compact(&self.keyspace, 50)),
            1 => drop(self.keyspace.trim(0)),
            2 => self.expire(),
            3 => self.now += self.prng.below(300) as i64,
            4 => {
                let mode = [AccessMode::Page, AccessMode::Lru, AccessMode::Lfu][self.prng.below(3) as usize];
                self.keyspace.set_access(mode, 10);
            }
            5 => self.read_some(),
            6 if self.prng.one_in(10) => self.evict(),
            _ => self.run_op(),
        }
    }

    fn run_op(&mut self) {
        let op = Op::random(&mut self.prng, &self.shape, self.now);
        match run_op(&self.keyspace, self.now, &op) {
            Ok(answer) => assert_eq!(op.run_on(&mut self.state, self.now), answer, "{op:?}"),
            Err(Full) => self.full += 1,
        }
    }

    fn expire(&mut self) {
        for partition in 0..self.keyspace.partition_count() as u16 {
            while self.keyspace.expire_step(partition, UnixMs(self.now), 10, &mut NoEffects).more {}
        }
    }

    /// Reads give pages an access column, if there is room for it.
    fn read_some(&mut self) {
        for _ in 0..20 {
            let name = draw_name(&mut |n| self.prng.below(n), &self.shape);
            let found = txn(&self.keyspace, self.now, |txn| {
                txn.find(Db(name.0), &txn.key(&name.1), Lookup::Read).is_some()
            });
            assert_eq!(found, alive(&mut self.state, &name, self.now).is_some());
        }
    }

    /// Room again: eviction needs none.
    fn evict(&mut self) {
        struct Leaving<'s>(&'s mut State);
        impl EffectSink for Leaving<'_> {
            fn mask(&self) -> EffectMask {
                EffectMask::ALL
            }
            fn effect(&mut self, effect: Effect<'_>) {
                let Effect::Evicted { db, key } = effect else { panic!("{effect:?} is no eviction") };
                self.0.remove(&(db.0, key.to_vec()));
            }
        }
        let target = self.state.len() / 2;
        while self.state.len() > target {
            let mut sink = Leaving(&mut self.state);
            let policy = EvictionPolicy::AllKeysRandom;
            if !self.keyspace.evict_one(policy, UnixMs(self.now), &mut self.prng, &mut sink) {
                break;
            }
        }
    }

    fn check(&self) {
        self.keyspace.check_invariants();
        assert!(at_time(dump(&self.keyspace), self.now) == at_time(self.state.clone(), self.now));
    }

    fn run(mut self, steps: usize) {
        for step in 0..if MIRI { steps / 100 } else { steps } {
            self.step();
            if step % 500 == 0 {
                self.check();
            }
        }
        self.check();
        assert!(MIRI || self.full > steps as u64 / 50, "memory ran out only {} times", self.full);
        flush_and_check(&self.keyspace, self.now);
    }
}

#[test]
fn small_entries() {
    let shape = Shape { keys: 60_000, long: false, first_db: 0, databases: 2, whole: false };
    World::new(1, 1, 1, shape).run(120_000);
}

#[test]
fn entries_of_every_size() {
    let shape = Shape { keys: 3000, long: true, first_db: 0, databases: 2, whole: false };
    World::new(1, 1, 2, shape).run(40_000);
}

#[test]
fn one_giant_slot() {
    // Names by sevens: two of seven share a slot.
    let shape = Shape { keys: 100_000, long: false, first_db: 0, databases: 1, whole: false };
    let mut world = World::new(1, 1, 3, shape);
    let mut full = 0;
    for number in 0..if MIRI { 100 } else { 60_000 } {
        let name: Name = (0, format!("{{slot}}{number}").into_bytes());
        let op = Op::Set { name, value: Stored::Int(number), expiry: Expiry::Clear };
        match run_op(&world.keyspace, START, &op) {
            Ok(_) => drop(op.run_on(&mut world.state, START)),
            Err(Full) => full += 1,
        }
    }
    assert!(MIRI || full > 1000);
    world.check();
    world.run(if MIRI { 0 } else { 20_000 });
}

/// Many partitions in one arena: an index and runs of their own, so that these are what finds no room.
#[test]
fn many_partitions_and_databases() {
    let shape = Shape { keys: 20_000, long: true, first_db: 0, databases: 16, whole: true };
    World::new(64, 1, 4, shape).run(40_000);
}

/// A full keyspace lets what is in memory be read, changed in place, and removed.
#[test]
fn a_full_keyspace_still_gives_way() {
    let keyspace = keyspace(1, 1, RESERVE_BYTES, 5);
    let mut count = 0usize;
    loop {
        let name: Name = (0, format!("key:{count}").into_bytes());
        let op = Op::Set { name, value: Stored::Bytes(vec![1; 32]), expiry: Expiry::Clear };
        if run_op(&keyspace, START, &op).is_err() {
            break;
        }
        count += 1;
    }
    assert!(count > 4000, "only {count} keys");
    keyspace.check_invariants();
    for number in 0..count {
        let name: Name = (0, format!("key:{number}").into_bytes());
        let op = Op::Set { name: name.clone(), value: Stored::Bytes(vec![2; 32]), expiry: Expiry::Clear };
        assert_eq!(run_op(&keyspace, START, &op), Ok(true));
        if number % 2 == 0 {
            assert_eq!(run_op(&keyspace, START, &Op::Remove { name }), Ok(true));
        }
    }
    keyspace.check_invariants();
    assert_eq!(dump(&keyspace).len(), count / 2);
    compact(&keyspace, 1000);
    // And what left has made room.
    for number in 0..count / 4 {
        let name: Name = (0, format!("new:{number}").into_bytes());
        let op = Op::Set { name, value: Stored::Bytes(vec![3; 32]), expiry: Expiry::Clear };
        assert_eq!(run_op(&keyspace, START, &op), Ok(false), "{number}");
    }
    flush_and_check(&keyspace, START);
}

/// A snapshot copies into the system's memory, not into the arena: it continues when the arena is full.
#[test]
fn a_snapshot_needs_no_room() {
    let shape = Shape { keys: 3000, long: true, first_db: 0, databases: 2, whole: true };
    let mut world = World::new(2, 1, 6, shape);
    for round in 0..if MIRI { 1 } else { 8 } {
        (0..if MIRI { 50 } else { 3000 }).for_each(|_| world.run_op());
        let cut = dump(&world.keyspace);
        let keyspace = &world.keyspace;
        let mut snapshot = keyspace.snapshot().expect("none is under way");
        let mut emitted = 0;
        let mut more = true;
        while more {
            more = snapshot.step(20, &mut |item| {
                let SnapshotItem::Entry(entry) = item else { panic!("these tests store strings only") };
                let (stored, at) = &cut[&(entry.db.0, entry.key.to_vec())];
                assert_eq!(entry.expiry.map(|at| at.0), *at);
                match entry.value {
                    Value::Int(int) => assert_eq!(*stored, Stored::Int(int)),
                    other => assert_eq!(stored.text(), Stored::of(other).text()),
                }
                emitted += 1;
            });
            for _ in 0..10 {
                let op = Op::random(&mut world.prng, &world.shape, START);
                if let Ok(answer) = run_op(keyspace, START, &op) {
                    assert_eq!(op.run_on(&mut world.state, START), answer);
                }
            }
        }
        drop(snapshot);
        assert_eq!(emitted, cut.len(), "round {round}");
        world.check();
    }
    flush_and_check(&world.keyspace, START);
}
