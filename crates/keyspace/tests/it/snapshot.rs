//! A snapshot is the state at its cut, whatever happens while it is walked.

use crate::support::*;
use isotherm_keyspace::*;
use isotherm_stdx::Prng;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::{Duration, Instant};

/// State that a walk has emitted so far, as it was emitted.
#[derive(Default)]
struct Emitted {
    state: State,
}

impl Emitted {
    fn take(&mut self, item: SnapshotItem<'_>) {
        let SnapshotItem::Entry(entry) = item else { panic!("these tests store strings only") };
        let value = Stored::of(entry.value);
        let name = (entry.db.0, entry.key.to_vec());
        let old = self.state.insert(name, (value, entry.expiry.map(|at| at.0)));
        assert!(old.is_none(), "an entry is emitted once");
    }
}

/// Does whatever may happen between two steps of a walk.
struct Disturber<'k> {
    keyspace: &'k Keyspace,
    prng: Prng,
    now: i64,
    shape: Shape,
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

impl<'k> Disturber<'k> {
    fn new(keyspace: &'k Keyspace, seed: u64, shape: Shape) -> Disturber<'k> {
        Disturber { keyspace, prng: Prng::new(seed), now: START, shape }
    }

    fn disturb(&mut self) {
        self.now += self.prng.below(20) as i64;
        match self.prng.below(40) {
            0 => drop(compact(self.keyspace, 20)),
            1 => drop(self.keyspace.trim(0)),
            2 => self.expire(),
            3 => self.evict(),
            4 => {
                let mode = [AccessMode::Page, AccessMode::Lru, AccessMode::Lfu][self.prng.below(3) as usize];
                self.keyspace.set_access(mode, 10);
            }
            5 => self.read_all(),
            6 => self.grow_one_slot(),
            7 if self.prng.one_in(8) => self.run(&Op::Flush { db: None }),
            _ => {
                let op = Op::random(&mut self.prng, &self.shape, self.now);
                self.run(&op);
            }
        }
    }

    fn run(&self, op: &Op) {
        run_op(self.keyspace, self.now, op).expect("there is room");
    }

    fn fill(&mut self, ops: usize) {
        for _ in 0..ops {
            let op = Op::random(&mut self.prng, &self.shape, self.now);
            self.run(&op);
        }
    }

    fn expire(&mut self) {
        for partition in 0..self.keyspace.partition_count() as u16 {
            let keys_max = 1 + self.prng.below(50);
            self.keyspace.expire_step(partition, UnixMs(self.now), keys_max, &mut NoEffects);
        }
    }

    fn evict(&mut self) {
        let policy = *self.prng.pick(&POLICIES);
        for _ in 0..self.prng.below(20) {
            self.keyspace.evict_one(policy, UnixMs(self.now), &mut self.prng, &mut NoEffects);
        }
    }

    /// Reads touch stamps, and give pages an access column.
    fn read_all(&mut self) {
        let db = Db(self.prng.below(u64::from(self.shape.databases)) as u16);
        let mut keys = Vec::new();
        txn(self.keyspace, self.now, |txn| {
            txn.for_each_key(db, None, |key| keys.push(key.to_vec()));
            for key in keys {
                assert!(txn.find(db, &txn.key(&key), Lookup::Read).is_some());
            }
        });
    }

    /// Splits and merges in a slot that the walk may be about to enter.
    fn grow_one_slot(&mut self) {
        let delete = self.prng.one_in(2);
        txn(self.keyspace, self.now, |txn| {
            for number in 0..150 {
                let bytes = format!("{{tag}}:more:{number}");
                let key = txn.key(bytes.as_bytes());
                if delete {
                    txn.remove(Db(0), &key);
                } else {
                    txn.set(Db(0), &key, NewValue::Int(number), Expiry::Clear).expect("there is room");
                }
            }
        });
    }

    /// Checks a snapshot that is disturbed up to `disturbances` times after each step.
    fn check_snapshot(&mut self, items_max: u64, disturbances: u64) {
        let cut = dump(self.keyspace);
        let mut snapshot = self.keyspace.snapshot().expect("none is under way");
        let mut emitted = Emitted::default();
        let mut step = 0;
        while snapshot.step(items_max, &mut |entry| emitted.take(entry)) {
            (0..self.prng.below(disturbances + 1)).for_each(|_| self.disturb());
            if step % 64 == 0 {
                assert!(self.keyspace.snapshot().is_none(), "one snapshot at a time");
            }
            if step % 256 == 0 {
                self.keyspace.check_invariants();
            }
            step += 1;
        }
        assert_eq!(emitted.state.len(), cut.len());
        assert!(emitted.state == cut, "what was emitted is the state at the cut");
        assert!(!snapshot.step(1, &mut |_| unreachable!("it is over")));
    }
}

impl Disturber<'_> {
    /// A snapshot with one op between its cut and its walk.
    fn check_snapshot_around(&self, op: &Op) {
        let cut = dump(self.keyspace);
        let mut snapshot = self.keyspace.snapshot().expect("none is under way");
        self.run(op);
        let mut emitted = Emitted::default();
        while snapshot.step(u64::MAX, &mut |entry| emitted.take(entry)) {}
        assert!(emitted.state == cut, "what was emitted is the state before {op:?}");
    }
}

const MIRI: bool = cfg!(miri);

fn walk_under_change(partitions: usize, arenas: usize, rounds: usize, seed: u64, shape: Shape) {
    let keyspace = keyspace(partitions, arenas, (arenas as u64) << 30, seed as u8);
    let mut disturber = Disturber::new(&keyspace, seed, shape);
    disturber.fill(if MIRI { 100 } else { 3000 });
    for round in 0..if MIRI { 2 } else { rounds } {
        let items_max = [100, 1000, 200, 400][round % 4];
        disturber.check_snapshot(items_max, [6, 60, 2][round % 3]);
        keyspace.check_invariants();
        disturber.fill(if MIRI { 20 } else { 300 });
        if round % 5 == 4 {
            // One that is given up early leaves everything in order for the next.
            let mut snapshot = keyspace.snapshot().expect("none is under way");
            snapshot.step(2, &mut |_| {});
            disturber.fill(50);
            drop(snapshot);
            keyspace.check_invariants();
        }
    }
    flush_and_check(&keyspace, disturber.now);
}

#[test]
fn small_entries_in_one_partition() {
    walk_under_change(1, 1, 25, 1, Shape { keys: 1500, long: false, first_db: 0, databases: 2, whole: true });
}

#[test]
fn entries_of_every_size_in_one_partition() {
    walk_under_change(1, 1, 25, 2, Shape { keys: 400, long: true, first_db: 0, databases: 2, whole: true });
}

#[test]
fn many_partitions_and_databases() {
    walk_under_change(16, 2, 8, 3, Shape { keys: 700, long: true, first_db: 0, databases: 16, whole: true });
}

/// A snapshot for every single op, so that each split, merge and move meets pages that were not saved yet.
#[test]
fn each_op_meets_pages_that_are_not_saved() {
    let keyspace = keyspace(1, 1, 1 << 30, 8);
    let shape = Shape { keys: 1, long: true, first_db: 0, databases: 1, whole: false };
    let disturber = Disturber::new(&keyspace, 8, shape);
    let mut prng = Prng::new(8);
    let count = if MIRI { 24 } else { 250 };
    // The slot grows to some fifteen pages and shrinks to nothing again, in random order.
    let mut names: Vec<Name> = (0..count).map(|n| (0, format!("{{slot}}{n}").into_bytes())).collect();
    for grow in [true, false] {
        for at in (1..names.len()).rev() {
            names.swap(at, prng.below(at as u64 + 1) as usize);
        }
        for name in &names {
            let name = name.clone();
            let len = prng.below(60) as usize + prng.below(20) as usize / 19 * 5000;
            let op = match grow {
                true => Op::Set { name, value: Stored::Raw(vec![len as u8; len]), expiry: Expiry::Clear },
                false => Op::Remove { name },
            };
            disturber.check_snapshot_around(&op);
            let name = prng.pick(&names).clone();
            let op = match prng.below(if grow { 4 } else { 2 }) {
                0 => Op::SetExpiry { name, at: Some(START + 1_000_000) },
                1 => Op::SetExpiry { name, at: None },
                2 => Op::Edit { name, more: 0, mark: 77 },
                _ => Op::Edit { name, more: 1, mark: 78 },
            };
            disturber.check_snapshot_around(&op);
        }
        keyspace.check_invariants();
    }
    assert_eq!(live_bytes(&keyspace), 0, "every name was removed");
}

/// The version of a page is one byte: a page that is not touched for 256 snapshots looks like new again, and
/// must not.
#[test]
fn versions_wrap() {
    let keyspace = keyspace(2, 1, 1 << 30, 4);
    let shape = Shape { keys: 60, long: false, first_db: 0, databases: 2, whole: true };
    let mut disturber = Disturber::new(&keyspace, 4, shape);
    disturber.fill(100);
    run_op(
        &keyspace,
        START,
        &Op::Set { name: (9, b"quiet".into()), value: Stored::Int(7), expiry: Expiry::Clear },
    )
    .expect("there is room");
    for round in 0..if MIRI { 3 } else { 600 } {
        disturber.check_snapshot(64, u64::from(round % 7 == 0) * 3);
        if round % 3 == 0 {
            disturber.fill(5);
        }
    }
    keyspace.check_invariants();
}

/// Snapshots that end early leave versions behind, more of them than a byte can distinguish: those that
/// follow are still the state at their cut.
#[test]
fn versions_of_snapshots_that_ended_early() {
    let keyspace = keyspace(2, 1, 1 << 30, 14);
    let shape = Shape { keys: 200, long: true, first_db: 0, databases: 2, whole: true };
    let mut disturber = Disturber::new(&keyspace, 14, shape);
    disturber.fill(400);
    for round in 0..if MIRI { 3 } else { 700 } {
        let mut snapshot = keyspace.snapshot().expect("none is under way");
        snapshot.step(1 + disturber.prng.below(20), &mut |_| {});
        disturber.disturb();
        snapshot.abort();
        assert_eq!(keyspace.snapshot_bytes(), 0, "what was saved is given back");
        if round % 97 == 96 {
            keyspace.check_invariants();
        }
        if round == 300 {
            disturber.check_snapshot(17, 4);
        }
    }
    disturber.check_snapshot(17, 4);
    flush_and_check(&keyspace, disturber.now);
}

/// A snapshot of some slots emits the keys of these, whatever happens to all keys, and leaves the other slots
/// to the next one.
#[test]
fn a_range_of_slots() {
    let keyspace = keyspace(4, 1, 1 << 30, 15);
    let shape = Shape { keys: 600, long: true, first_db: 0, databases: 2, whole: true };
    let mut disturber = Disturber::new(&keyspace, 15, shape);
    disturber.fill(if MIRI { 100 } else { 2000 });
    for round in 0..if MIRI { 2 } else { 30u16 } {
        let first = disturber.prng.below(16384) as u16;
        let last = first.saturating_add([0, 50, 5000][usize::from(round) % 3]).min(16383);
        let slots = if round == 7 { 0..=16383 } else { first..=last };
        let is_meant = |name: &Name| slots.contains(&isotherm_keyspace::Slot::of_key(&name.1).get());
        let cut: State = dump(&keyspace).into_iter().filter(|(name, _)| is_meant(name)).collect();
        let mut snapshot = keyspace.snapshot_of(slots.clone()).expect("none is under way");
        let mut emitted = Emitted::default();
        while snapshot.step(1 + disturber.prng.below(30), &mut |item| emitted.take(item)) {
            (0..disturber.prng.below(20)).for_each(|_| disturber.disturb());
        }
        drop(snapshot);
        assert!(emitted.state == cut, "slots {slots:?} as they were at the cut");
        keyspace.check_invariants();
    }
    disturber.check_snapshot(17, 4);
    flush_and_check(&keyspace, disturber.now);
}

/// Pages and bodies of a database that was flushed under a snapshot are live, but no database's: compaction
/// meets them and leaves them alone.
#[test]
fn compaction_meets_a_flushed_database() {
    let keyspace = keyspace(1, 1, 1 << 30, 5);
    let count = if MIRI { 60 } else { 6000 };
    let put = |db: u16, from: usize| {
        for number in from..count {
            let name = (db, format!("key:{number}").into_bytes());
            let value = Stored::Bytes(vec![number as u8; 10 + number % 1000]);
            run_op(&keyspace, START, &Op::Set { name, value, expiry: Expiry::Clear }).expect("there is room");
        }
    };
    put(0, 0);
    put(1, 0);
    // Sparse slabs, so that there is something to compact.
    for number in (0..count).filter(|number| number % 8 != 0) {
        let name = (0, format!("key:{number}").into_bytes());
        run_op(&keyspace, START, &Op::Remove { name }).expect("it needs no room");
    }
    let cut = dump(&keyspace);
    let mut snapshot = keyspace.snapshot().expect("none is under way");
    let mut emitted = Emitted::default();
    assert!(snapshot.step(3, &mut |entry| emitted.take(entry)));
    run_op(&keyspace, START, &Op::Flush { db: Some(0) }).expect("it needs no room");
    run_op(&keyspace, START, &Op::Swap { a: 0, b: 1 }).expect("it needs no room");
    compact(&keyspace, 200);
    put(1, count / 2);
    compact(&keyspace, 200);
    assert!(snapshot.step(5, &mut |entry| emitted.take(entry)));
    run_op(&keyspace, START, &Op::Flush { db: None }).expect("it needs no room");
    compact(&keyspace, 200);
    keyspace.check_invariants();
    while snapshot.step(7, &mut |entry| emitted.take(entry)) {}
    drop(snapshot);
    assert!(emitted.state == cut);
    keyspace.free_all();
    keyspace.check_invariants();
    assert_eq!(live_bytes(&keyspace), 0);
}

/// A large body is shared with the snapshot, not copied; an edit in place still leaves the snapshot its own.
#[test]
fn large_values_are_emitted_as_they_were() {
    let keyspace = keyspace(1, 1, 1 << 30, 6);
    let name: Name = (0, b"{tag}large".into());
    let old = vec![1u8; if MIRI { 5000 } else { 300_000 }];
    let set = Op::Set { name: name.clone(), value: Stored::Bytes(old.clone()), expiry: Expiry::Clear };
    let edit = |more: usize, mark: u8| Op::Edit { name: name.clone(), more, mark };
    for first in [&edit(0, 9), &edit(10, 9), &set, &Op::Remove { name: name.clone() }] {
        for raw in [false, true] {
            run_op(&keyspace, START, &set).expect("there is room");
            let mut expected = old.clone();
            if raw {
                // Edited once, the value is raw and edited in place from then on.
                run_op(&keyspace, START, &edit(0, 7)).expect("there is room");
                *expected.last_mut().expect("it is long") = 7;
            }
            let mut snapshot = keyspace.snapshot().expect("none is under way");
            run_op(&keyspace, START, first).expect("there is room");
            run_op(&keyspace, START, &edit(3, 8)).expect("there is room");
            let mut emitted = 0;
            while snapshot.step(1, &mut |item| {
                let SnapshotItem::Entry(entry) = item else { panic!("it is a string") };
                emitted += 1;
                assert_eq!(entry.value, Value::Bytes(&expected));
            }) {}
            assert_eq!(emitted, 1);
        }
    }
    flush_and_check(&keyspace, START);
}

/// Databases that are filled and flushed again and again while a snapshot stands still take no more than what
/// was there at its cut and what is there now.
#[test]
fn flushes_under_a_snapshot_give_their_memory_back() {
    let keyspace = keyspace(4, 1, 1 << 30, 16);
    let count = if MIRI { 30 } else { 3000 };
    let fill = |round: usize| {
        for number in 0..count {
            let name = ((number % 3) as u16, format!("key:{number}").into_bytes());
            let value = Stored::Bytes(vec![round as u8; 10 + number % 500]);
            run_op(&keyspace, START, &Op::Set { name, value, expiry: Expiry::Clear }).expect("there is room");
        }
    };
    fill(0);
    let (cut, cut_bytes) = (dump(&keyspace), live_bytes(&keyspace));
    let mut snapshot = keyspace.snapshot().expect("none is under way");
    let mut emitted = Emitted::default();
    for round in 1..40 {
        run_op(&keyspace, START, &Op::Flush { db: (round % 4 < 3).then_some((round % 4) as u16) })
            .expect("it needs no room");
        keyspace.free_all();
        fill(round);
        if round % 8 == 0 {
            run_op(&keyspace, START, &Op::Swap { a: 0, b: 2 }).expect("it needs no room");
            keyspace.check_invariants();
        }
        assert!(snapshot.step(1, &mut |entry| emitted.take(entry)));
        let live = live_bytes(&keyspace);
        assert!(live <= cut_bytes * 3, "{live} bytes are live, {cut_bytes} were at the cut");
    }
    while snapshot.step(100, &mut |entry| emitted.take(entry)) {}
    drop(snapshot);
    assert!(emitted.state == cut);
    assert_eq!(keyspace.kept_bytes(), 0);
    flush_and_check(&keyspace, START);
}

/// The walk goes round over the partitions: what writers save anywhere is emitted soon, and little is kept at
/// a time.
#[test]
#[cfg_attr(miri, ignore = "it needs many pages")]
fn what_writers_save_is_kept_for_a_round() {
    const KEYS: u64 = 200_000;
    const WRITES_PER_STEP: u64 = 20;
    let keyspace = keyspace(16, 1, 1 << 30, 17);
    let mut prng = Prng::new(17);
    let set = |number: u64, value: i64| {
        let name = (0, format!("key:{number}").into_bytes());
        run_op(&keyspace, START, &Op::Set { name, value: Stored::Int(value), expiry: Expiry::Clear })
    };
    (0..KEYS).for_each(|number| _ = set(number, 0).expect("there is room"));
    let mut snapshot = keyspace.snapshot().expect("none is under way");
    let (mut emitted, mut most) = (0, 0);
    let mut take = |item: SnapshotItem<'_>| {
        let SnapshotItem::Entry(entry) = item else { panic!("there are strings only") };
        assert_eq!(entry.value, Value::Int(0), "as it was at the cut");
        emitted += 1;
    };
    while snapshot.step(500, &mut take) {
        (0..WRITES_PER_STEP).for_each(|_| _ = set(prng.below(KEYS), 1).expect("there is room"));
        assert_eq!(keyspace.kept_bytes(), keyspace.snapshot_bytes(), "both count the same");
        most = most.max(keyspace.kept_bytes());
    }
    drop(snapshot);
    assert_eq!(emitted, KEYS);
    assert_eq!(keyspace.kept_bytes(), 0);
    // A write saves a page of some 17 entries, of 100 B each as they are kept; a round is 16 steps.
    let of_a_round = 16 * WRITES_PER_STEP * 25 * 110;
    assert!((1..=of_a_round).contains(&most), "{most} bytes were kept at a time, of a round {of_a_round}");
}

/// While as much is kept as may be, a walk emits what is kept and nothing else, and writers continue when a
/// little of it is gone.
#[test]
#[cfg_attr(miri, ignore = "it needs many pages")]
fn what_is_kept_is_emitted_first_when_it_is_much() {
    const KEYS: u64 = 100_000;
    const LIMIT_BYTES: u64 = 2 << 20;
    let keyspace = keyspace(16, 1, 1 << 30, 17);
    let mut prng = Prng::new(17);
    let set = |number: u64, value: i64| {
        let name = (0, format!("key:{number}").into_bytes());
        run_op(&keyspace, START, &Op::Set { name, value: Stored::Int(value), expiry: Expiry::Clear })
    };
    (0..KEYS).for_each(|number| _ = set(number, 0).expect("there is room"));
    let mut snapshot = keyspace.snapshot().expect("none is under way");
    keyspace.limit_kept(LIMIT_BYTES);
    let (mut emitted, mut times_full) = (0, 0);
    let mut more = true;
    while more {
        while !keyspace.is_kept_full() && prng.below(5_000) > 0 {
            set(prng.below(KEYS), 1).expect("there is room");
        }
        let emitted_before = emitted;
        times_full += u64::from(keyspace.is_kept_full());
        let was_full = keyspace.is_kept_full();
        while more {
            more = snapshot.step(500, &mut |item| {
                let SnapshotItem::Entry(entry) = item else { panic!("there are strings only") };
                assert_eq!(entry.value, Value::Int(0), "as it was at the cut");
                emitted += 1;
            });
            if !keyspace.is_kept_full() {
                break;
            }
        }
        // Some 100 B each: 32 KB, and what a step has emitted beyond that.
        let waited_for = emitted - emitted_before;
        assert!(!was_full || waited_for <= 1_200, "{waited_for} entries were emitted before writers went on");
    }
    drop(snapshot);
    assert_eq!(emitted, KEYS);
    assert!(times_full > 20, "{times_full}");
    assert_eq!(keyspace.kept_bytes(), 0);
    flush_and_check(&keyspace, START);
}

// ---- with real writers ----

/// Database in which a writer counts its ops, in the same transaction as the op.
const COUNTERS_DB: u16 = 15;

fn counter(writer: u16) -> Name {
    (COUNTERS_DB, format!("counter:{writer}").into_bytes())
}

fn shape_of(writer: u16) -> Shape {
    Shape { keys: 150, long: true, first_db: writer * 3, databases: 3, whole: true }
}

/// Op number `at` of a writer: a replay draws the same.
fn next_op(prng: &mut Prng, writer: u16) -> Op {
    Op::random(prng, &shape_of(writer), START)
}

fn write_until(keyspace: &Keyspace, writer: u16, stop: &AtomicBool) -> u64 {
    let mut prng = Prng::new(u64::from(writer));
    let mut done = 0;
    while !stop.load(Relaxed) {
        let op = next_op(&mut prng, writer);
        let count = Op::Set { name: counter(writer), value: Stored::Int(done + 1), expiry: Expiry::Clear };
        let mut held = Held::new(keyspace);
        match op.partitions(keyspace) {
            None => held.acquire(Want::All),
            Some(mut partitions) => {
                partitions.extend(count.partitions(keyspace).expect("it is one key"));
                partitions.sort_unstable();
                partitions.dedup();
                held.acquire(Want::Many(&partitions))
            }
        };
        let mut sink = NoEffects;
        let mut txn = Txn::new(&mut held, conditions(START), &mut sink);
        op.run(&mut txn).expect("there is room");
        count.run(&mut txn).expect("there is room");
        done += 1;
        drop(held);
        // Workers wait for sockets now and then; one that never does starves the others on a small machine.
        if done % 128 == 0 {
            std::thread::sleep(Duration::from_micros(100));
        }
    }
    done as u64
}

/// State of a writer's databases after its first ops.
struct Replay {
    writer: u16,
    prng: Prng,
    done: i64,
    state: State,
}

impl Replay {
    fn new(writer: u16) -> Replay {
        Replay { writer, prng: Prng::new(u64::from(writer)), done: 0, state: State::new() }
    }

    fn advance_to(&mut self, ops: i64) -> &State {
        while self.done < ops {
            let op = next_op(&mut self.prng, self.writer);
            op.run_on(&mut self.state, START);
            self.done += 1;
        }
        &self.state
    }
}

/// Writers at full speed in several threads: the snapshot holds of each of them exactly a prefix of its ops,
/// the one that its counter shows. Compaction, ageing and expiry run too.
#[test]
#[cfg_attr(miri, ignore = "it runs against the clock")]
fn threads_write_while_it_is_walked() {
    const WRITERS: u16 = 3;
    let keyspace = keyspace(32, 2, 2 << 30, 7);
    let stop = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let writers: Vec<_> = (0..WRITERS)
            .map(|writer| {
                let (keyspace, stop) = (&keyspace, &stop);
                scope.spawn(move || write_until(keyspace, writer, stop))
            })
            .collect();
        scope.spawn(|| {
            let mut hand = AgeHand::default();
            while !stop.load(Relaxed) {
                compact(&keyspace, 5);
                keyspace.trim(1);
                keyspace.age_step(&mut hand, 64, 500, UnixMs(START));
                (0..32).for_each(|partition| {
                    keyspace.expire_step(partition, UnixMs(START), 100, &mut NoEffects);
                });
            }
        });
        let stopping = OnDrop(|| stop.store(true, Relaxed));
        let mut replays: Vec<_> = (0..WRITERS).map(Replay::new).collect();
        let end = Instant::now() + Duration::from_secs(5);
        let mut rounds = 0;
        while rounds < 2 || Instant::now() < end && rounds < 60 {
            check_threaded_snapshot(&keyspace, &mut replays, [40, 8, 300][rounds % 3]);
            rounds += 1;
        }
        drop(stopping);
        let done: u64 = writers.into_iter().map(|writer| writer.join().expect("writers do not fail")).sum();
        println!("{rounds} snapshots beside {done} ops");
        assert!(done > 1000);
    });
    keyspace.check_invariants();
    flush_and_check(&keyspace, START);
}

fn check_threaded_snapshot(keyspace: &Keyspace, replays: &mut [Replay], items_max: u64) {
    let mut emitted = Emitted::default();
    let mut snapshot = keyspace.snapshot().expect("none is under way");
    while snapshot.step(items_max, &mut |entry| emitted.take(entry)) {
        std::thread::yield_now();
    }
    drop(snapshot);
    for replay in replays {
        let done = match emitted.state.get(&counter(replay.writer)) {
            Some((Stored::Int(done), _)) => *done,
            _ => 0,
        };
        let shape = shape_of(replay.writer);
        let mine = shape.first_db..shape.first_db + shape.databases;
        let mine: State = emitted
            .state
            .iter()
            .filter(|(name, _)| mine.contains(&name.0))
            .map(|(name, entry)| (name.clone(), entry.clone()))
            .collect();
        let expected = at_time(replay.advance_to(done).clone(), START);
        assert_eq!(mine.len(), expected.len());
        assert!(mine == expected, "of writer {} exactly the first {done} ops are emitted", replay.writer);
    }
}
