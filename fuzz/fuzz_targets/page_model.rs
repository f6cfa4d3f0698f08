//! Any sequence of operations on a keyspace, compared with a plain map: keys and values of every size, hashes
//! with many bits or with few (a flood), memory that suffices or runs out, and between the operations
//! compaction, expiry, eviction, switches of the access mode, SCAN, and snapshots that are walked while all
//! this happens.
#![no_main]

#[path = "../../crates/keyspace/tests/support/mod.rs"]
mod support;

use isotherm_keyspace::*;
use isotherm_stdx::Prng;
use libfuzzer_sys::fuzz_target;
use support::*;

/// Numbers from the fuzzer's bytes: as few as a number needs, so that a small change of the input is a small
/// change.
struct Bytes<'a>(&'a [u8]);

impl Bytes<'_> {
    fn below(&mut self, n: u64) -> u64 {
        let wanted = (64 - n.saturating_sub(1).leading_zeros()).div_ceil(8).max(1) as usize;
        let (now, later) = self.0.split_at(wanted.min(self.0.len()));
        self.0 = later;
        let number = now.iter().fold(0, |number, &byte| number << 8 | u64::from(byte));
        number % n.max(1)
    }
}

struct World<'k, 'b> {
    keyspace: &'k Keyspace,
    bytes: Bytes<'b>,
    state: State,
    shape: Shape,
    now: i64,
    snapshot: Option<Walk<'k>>,
}

/// A snapshot under way: what was there at the cut, and what was emitted of it.
struct Walk<'k> {
    snapshot: Snapshot<'k>,
    cut: State,
    emitted: State,
}

fuzz_target!(|input: &[u8]| {
    let mut bytes = Bytes(input);
    let mask = [u64::MAX, u64::MAX, 0, 0b11, 0xff << 42, 0b1111 | 0b11 << 42][bytes.below(6) as usize];
    let config = Config {
        partitions: [1, 1, 2, 8][bytes.below(4) as usize],
        arenas: 1,
        databases: 16,
        // Enough for everything that an input of some kilobytes can ask for, or soon too little.
        reserve_bytes: [64 << 20, 1 << 20][bytes.below(2) as usize],
        hash_secret: if mask == u64::MAX { [3; 16] } else { KeyHasher::flooded_secret(mask) },
        class_bytes: |bytes| bytes,
    };
    let keyspace = Keyspace::new(config).expect("64 MB of addresses are to be had");
    let shape = Shape {
        keys: [40, 400, 5000][bytes.below(3) as usize],
        long: bytes.below(2) == 1,
        first_db: 0,
        databases: [1, 3][bytes.below(2) as usize],
        whole: bytes.below(2) == 1,
    };
    let mut world =
        World { keyspace: &keyspace, bytes, state: State::new(), shape, now: START, snapshot: None };
    let mut step = 0;
    while !world.bytes.0.is_empty() {
        world.step();
        step += 1;
        if step % 64 == 0 {
            world.check();
        }
    }
    world.end_snapshot();
    world.check();
    let now = world.now;
    flush_and_check(&keyspace, now);
});

impl World<'_, '_> {
    fn step(&mut self) {
        match self.bytes.below(256) {
            0..4 => drop(compact(self.keyspace, 10)),
            4 => drop(self.keyspace.trim(0)),
            5..9 => self.expire(),
            9..13 => self.evict(),
            13..16 => {
                let mode = [AccessMode::Page, AccessMode::Lru, AccessMode::Lfu][self.bytes.below(3) as usize];
                self.keyspace.set_access(mode, 10);
            }
            16..24 => self.now += self.bytes.below(2000) as i64,
            24..28 => self.scan(),
            28..36 => self.walk(),
            36..40 => self.many(),
            40..48 => self.read(),
            _ => {
                let (shape, now) = (self.shape, self.now);
                let op = Op::draw(&mut |n| self.bytes.below(n), &shape, now);
                self.run(&op);
            }
        }
    }

    fn run(&mut self, op: &Op) {
        if let Ok(answer) = run_op(self.keyspace, self.now, op) {
            assert_eq!(op.run_on(&mut self.state, self.now), answer, "{op:?}");
        }
    }

    /// One byte makes or removes many keys of one slot, so that short inputs split and merge.
    fn many(&mut self) {
        let (what, first, count) = (self.bytes.below(3), self.bytes.below(256), self.bytes.below(256));
        for number in first..first + count {
            let name: Name = (0, format!("{{many}}{number}").into_bytes());
            let value = Stored::Bytes(vec![number as u8; number as usize % 50]);
            match what {
                0 => self.run(&Op::Set { name, value, expiry: Expiry::Keep }),
                1 => self.run(&Op::SetExpiry { name, at: Some(self.now + number as i64) }),
                _ => self.run(&Op::Remove { name }),
            }
        }
    }

    fn read(&mut self) {
        let shape = self.shape;
        let name = draw_name(&mut |n| self.bytes.below(n), &shape);
        let expected = alive(&mut self.state, &name, self.now);
        txn(self.keyspace, self.now, |txn| {
            let found = txn.find(Db(name.0), &txn.key(&name.1), Lookup::Read);
            let found = found.map(|entry| (Stored::of(entry.value), entry.expiry.map(|at| at.0)));
            assert_eq!(found, expected);
        });
    }

    fn expire(&mut self) {
        let (partitions, keys_max) = (self.keyspace.partition_count() as u16, 1 + self.bytes.below(40));
        for partition in 0..partitions {
            self.keyspace.expire_step(partition, UnixMs(self.now), keys_max, &mut NoEffects);
        }
    }

    fn evict(&mut self) {
        struct Leaving<'s>(&'s mut State, bool);
        impl EffectSink for Leaving<'_> {
            fn mask(&self) -> EffectMask {
                EffectMask::ALL
            }
            fn effect(&mut self, effect: Effect<'_>) {
                let Effect::Evicted { db, key } = effect else { panic!("{effect:?} is no eviction") };
                let (_, at) = self.0.remove(&(db.0, key.to_vec())).expect("what is evicted was there");
                assert!(!self.1 || at.is_some(), "a volatile policy takes volatile keys");
            }
        }
        const POLICIES: [EvictionPolicy; 7] = [
            EvictionPolicy::AllKeysLru,
            EvictionPolicy::AllKeysLfu,
            EvictionPolicy::AllKeysRandom,
            EvictionPolicy::VolatileLru,
            EvictionPolicy::VolatileLfu,
            EvictionPolicy::VolatileRandom,
            EvictionPolicy::VolatileTtl,
        ];
        // The map may have forgotten stale keys that are still in memory.
        self.state = dump(self.keyspace);
        let at = self.bytes.below(7) as usize;
        let mut prng = Prng::new(self.bytes.below(256));
        let mut sink = Leaving(&mut self.state, at >= 3);
        for _ in 0..self.bytes.below(64) {
            self.keyspace.evict_one(POLICIES[at], UnixMs(self.now), &mut prng, &mut sink);
        }
    }

    /// A whole SCAN, or a step from any cursor.
    fn scan(&mut self) {
        let (db, count) = (Db(self.bytes.below(3) as u16), 1 + self.bytes.below(30));
        if self.bytes.below(2) == 0 {
            let cursor = self.bytes.below(u64::MAX);
            let next =
                txn(self.keyspace, self.now, |txn| txn.scan(db, cursor, count, None, |_, _| true, |_, _| {}));
            return assert!(next < 1 << 53);
        }
        let mut met = std::collections::BTreeSet::new();
        let mut cursor = 0;
        loop {
            cursor = txn(self.keyspace, self.now, |txn| {
                txn.scan(db, cursor, count, None, |_, _| true, |key, _| drop(met.replace(key.to_vec())))
            });
            if cursor == 0 {
                break;
            }
        }
        self.state = at_time(std::mem::take(&mut self.state), self.now);
        let expected = self.state.keys().filter(|name| name.0 == db.0).map(|name| &name.1);
        assert!(met.iter().eq(expected));
    }

    fn walk(&mut self) {
        let Some(walk) = &mut self.snapshot else {
            let cut = dump(self.keyspace);
            let snapshot = self.keyspace.snapshot().expect("none is under way");
            self.snapshot = Some(Walk { snapshot, cut, emitted: State::new() });
            return;
        };
        assert!(self.keyspace.snapshot().is_none());
        let items_max = 1 + self.bytes.below(64);
        if !walk.step(items_max) {
            self.end_snapshot();
        }
    }

    fn end_snapshot(&mut self) {
        let Some(mut walk) = self.snapshot.take() else { return };
        while walk.step(64) {}
        assert!(walk.emitted == walk.cut, "what was emitted is the state at the cut");
    }

    fn check(&self) {
        self.keyspace.check_invariants();
        assert!(at_time(dump(self.keyspace), self.now) == at_time(self.state.clone(), self.now));
    }
}

impl Walk<'_> {
    fn step(&mut self, items_max: u64) -> bool {
        self.snapshot.step(items_max, &mut |item| {
            let SnapshotItem::Entry(entry) = item else { panic!("this target stores strings only") };
            let stored = (Stored::of(entry.value), entry.expiry.map(|at| at.0));
            let old = self.emitted.insert((entry.db.0, entry.key.to_vec()), stored);
            assert!(old.is_none(), "an entry is emitted once");
        })
    }
}
