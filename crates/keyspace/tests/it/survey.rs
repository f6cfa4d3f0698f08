//! Reports that stop no other thread: they wait for one partition at a time, and hold no other meanwhile.

use crate::support::*;
use isotherm_keyspace::*;
use isotherm_stdx::{Prng, steps};
use std::sync::mpsc;

/// Keys of every type in all partitions and some databases.
fn filled(partitions: usize) -> Keyspace {
    let keyspace = keyspace(partitions, 2, 1 << 30, 7);
    let mut prng = Prng::new(7);
    let shape = Shape { keys: 600, long: true, first_db: 0, databases: 3, whole: false };
    for _ in 0..if cfg!(miri) { 60 } else { 6000 } {
        let op = Op::draw(&mut |n| prng.below(n), &shape, START);
        let _ = run_op(&keyspace, START, &op);
    }
    keyspace
}

/// Everything that a survey reports.
fn all(survey: &mut Survey<'_, '_>) -> String {
    let (breakdown, arenas) = survey.breakdown();
    assert_eq!(breakdown.arena_bytes(), arenas.iter().map(|stats| stats.live_bytes).sum::<u64>());
    let idle = [0, 1, 2].map(|db| survey.idle_times(Db(db), Slot::new(77), UnixMs(START)));
    let largest = survey.largest_keys();
    let sizes: Vec<SlotSize> = survey.slot_sizes();
    let (databases, bins, classes) = (survey.databases(), survey.sizes(), survey.classes());
    format!("{breakdown:?} {databases:?} {bins:?} {classes:?} {idle:?} {largest:?} {sizes:?}")
}

#[test]
fn what_is_read_in_turn_is_what_is_read_at_once() {
    for partitions in [1, 16] {
        let keyspace = filled(partitions);
        let mut held = Held::new(&keyspace);
        let in_turn = all(&mut Survey::new(&mut held));
        assert!(!held.holds_any(), "nothing stays locked");
        held.acquire(Want::All);
        assert_eq!(all(&mut Survey::new(&mut held)), in_turn);
        assert!(held.holds_all(), "what was held stays held");
    }
}

/// While a report waits for a busy partition, every other one is free. Were they held, the second lock would
/// never come.
#[test]
fn a_busy_partition_stops_only_the_report() {
    const PARTITIONS: u16 = 16;
    let keyspace = filled(usize::from(PARTITIONS));
    std::thread::scope(|scope| {
        let mut busy = Held::new(&keyspace);
        busy.acquire(Want::One(PARTITIONS / 2));
        let (sender, started) = mpsc::channel();
        let report = scope.spawn({
            let keyspace = &keyspace;
            move || {
                let mut held = Held::new(keyspace);
                sender.send(()).unwrap();
                all(&mut Survey::new(&mut held))
            }
        });
        started.recv().unwrap();
        for round in 0..100 {
            for number in (0..PARTITIONS).filter(|number| *number != PARTITIONS / 2) {
                let mut held = Held::new(&keyspace);
                held.acquire(Want::One(number));
                held.release();
            }
            assert!(!report.is_finished(), "round {round}: it has not seen what is held");
            std::thread::yield_now();
        }
        busy.release();
        assert!(report.join().unwrap().contains("SlotSize"));
    });
}

/// A large slot, to which all keys of one tag belong, is sampled, and not under one lock. The looks of a hold
/// are counted by the lock itself in builds with debug assertions; here those of the whole report are.
#[test]
fn a_large_slot_is_sampled() {
    let keyspace = keyspace(16, 2, 1 << 30, 3);
    let mut held = Held::new(&keyspace);
    let conditions = Conditions { now: UnixMs(START), expiry_mode: ExpiryMode::Delete, no_touch: false };
    let keys = if cfg!(miri) { 200 } else { 60_000 };
    for number in 0..keys {
        let name = format!("{{tag}}:{number}");
        let key = keyspace.key(name.as_bytes());
        held.acquire(Want::One(keyspace.partition_of(key.slot)));
        let mut no_effects = NoEffects;
        let mut txn = Txn::new(&mut held, conditions, &mut no_effects);
        txn.set(Db(0), &key, NewValue::Bytes(b"v"), Expiry::Keep).unwrap();
    }
    held.exempt(steps::looked());
    held.release();
    let before = steps::looked();
    let times = Survey::new(&mut held).idle_times(Db(0), Slot::of_key(b"tag"), UnixMs(START));
    let looked = steps::looked() - before;
    assert!(times.keys > 0 && times.keys <= keys, "{times:?}");
    assert!(cfg!(miri) || times.keys < keys, "{times:?}");
    assert_eq!(times.bins.iter().sum::<u64>(), times.keys);
    if cfg!(debug_assertions) {
        // Each key, each of its pages (512 at most), and each slot; those of the tag once a hold.
        assert!(looked <= times.keys + 512 + 2 * Slot::COUNT as u64, "{looked} were looked at");
    }
}

/// A table of a database but the first has records of slots that have keys, until half of them have.
#[test]
fn few_keys_take_few_records() {
    const KEYS: usize = if cfg!(miri) { 100 } else { 12_000 };
    let keyspace = keyspace(1, 1, 1 << 30, 7);
    let name = |number: usize| format!("key:{number}").into_bytes();
    let set = |db: u16, number: usize| {
        txn(&keyspace, START, |txn| {
            let key = name(number);
            txn.set(Db(db), &txn.key(&key), NewValue::Int(number as i64), Expiry::Clear)
                .expect("there is room");
        });
    };
    let directories = || {
        let mut held = Held::new(&keyspace);
        held.acquire(Want::All);
        held.check_invariants();
        drop(held);
        Survey::new(&mut Held::new(&keyspace)).breakdown().0.directories
    };
    (0..100).for_each(|number| set(1, number));
    let few = directories();
    assert!(few < 100 * 100, "{few}");
    (0..100).for_each(|number| set(0, number));
    assert!(directories() > 100 * 1000, "the first one has whole runs");
    (100..KEYS).for_each(|number| set(1, number));
    if !cfg!(miri) {
        assert!(directories() > 16_384 * 32, "all runs are whole");
    }
    // Two keys at a time, in runs that come and go.
    for number in 0..KEYS {
        txn(&keyspace, START, |txn| {
            let (from, to) = (name(number), name(KEYS + number));
            let (from, to) = (txn.key(&from), txn.key(&to));
            txn.rename((Db(1), &from), (Db(2), &to)).expect("there is room");
        });
    }
    directories();
    for number in KEYS..2 * KEYS {
        assert!(txn(&keyspace, START, |txn| txn.remove(Db(2), &txn.key(&name(number)))));
    }
    assert_eq!(txn(&keyspace, START, |txn| txn.len(Db(1)) + txn.len(Db(2))), 0);
    let before = directories();
    (0..100).for_each(|number| set(1, number));
    assert_eq!(directories() - before, few);
}
