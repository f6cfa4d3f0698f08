//! SCAN and RANDOMKEY on real tables: what is there throughout is always returned, whatever grows, shrinks,
//! splits, merges or moves between two calls; no cursor is dangerous; a random key is uniformly so.

use crate::support::*;
use isotherm_keyspace::*;
use isotherm_stdx::Prng;
use std::collections::{BTreeMap, BTreeSet};

const MIRI: bool = cfg!(miri);
/// Clients keep cursors in doubles.
const CURSOR_LIMIT: u64 = 1 << 53;

fn set(keyspace: &Keyspace, db: u16, key: &str) {
    let name = (db, key.as_bytes().to_vec());
    let op = Op::Set { name, value: Stored::Int(1), expiry: Expiry::Clear };
    run_op(keyspace, START, &op).expect("there is room");
}

fn remove(keyspace: &Keyspace, db: u16, key: &str) {
    let op = Op::Remove { name: (db, key.as_bytes().to_vec()) };
    run_op(keyspace, START, &op).expect("it needs no room");
}

/// Makes one call of SCAN. Returns the next cursor and the keys that the call returned.
fn call(keyspace: &Keyspace, db: u16, cursor: u64, count: u64, slot: Option<Slot>) -> (u64, Vec<Vec<u8>>) {
    let mut keys = Vec::new();
    let visit = |key: &[u8], _: &Entry<'_>| keys.push(key.to_vec());
    let next = txn(keyspace, START, |txn| txn.scan(Db(db), cursor, count, slot, |_, _| true, visit));
    assert!(next < CURSOR_LIMIT);
    (next, keys)
}

/// All keys from a cursor on, and the calls that it took.
fn walk(keyspace: &Keyspace, db: u16, from: u64, count: u64, slot: Option<Slot>) -> (Vec<Vec<u8>>, usize) {
    let (mut cursor, mut all, mut calls) = (from, Vec::new(), 0);
    loop {
        let (next, keys) = call(keyspace, db, cursor, count, slot);
        all.extend(keys);
        calls += 1;
        assert!(calls < 1_000_000, "it ends");
        if next == 0 {
            return (all, calls);
        }
        cursor = next;
    }
}

/// Without changes every key comes exactly once, and no call comes back with less than it was asked for.
#[test]
fn a_quiet_walk_returns_every_key_once() {
    for (partitions, keys) in [(1, 3000), (64, 3000), (1024, 300), (4, 1), (4, 0)] {
        let keys = if MIRI { keys.min(60) } else { keys };
        let keyspace = keyspace(partitions, 1, 1 << 30, 1);
        for number in 0..keys {
            set(&keyspace, 3, &format!("key:{number}"));
            set(&keyspace, 3, &format!("{{tag}}{number}"));
            set(&keyspace, 4, &format!("other:{number}"));
        }
        for count in [1, 10, 100, 1_000_000] {
            let (mut all, calls) = walk(&keyspace, 3, 0, count, None);
            all.sort();
            assert!(all.windows(2).all(|pair| pair[0] != pair[1]));
            assert_eq!(all.len(), 2 * keys);
            assert!(calls <= all.len() / count as usize + 1, "{calls} calls");
        }
        let slot = keyspace.key(b"{tag}").slot;
        let (all, _) = walk(&keyspace, 3, 0, 7, Some(slot));
        let in_slot = all.iter().filter(|key| key.starts_with(b"{tag}")).count();
        assert_eq!(in_slot, keys);
        assert!(all.iter().all(|key| keyspace.key(key).slot == slot));
    }
}

/// Whatever comes and goes between the calls, keys that stay are returned.
#[test]
fn what_stays_is_returned() {
    for seed in 0..if MIRI { 1 } else { 12 } {
        let mut prng = Prng::new(seed);
        let keyspace = keyspace([1, 16, 2][seed as usize % 3], 1, 1 << 30, seed as u8);
        let stays: BTreeSet<Vec<u8>> = (0..if MIRI { 20 } else { 400 })
            .map(|n| if n % 2 == 0 { format!("{{tag{}}}stays{n}", n % 10) } else { format!("stays{n}") })
            .map(String::into_bytes)
            .collect();
        for key in &stays {
            set(&keyspace, 0, std::str::from_utf8(key).expect("it is ASCII"));
        }
        let mut guests = BTreeSet::new();
        let slot = (seed % 4 == 3).then(|| keyspace.key(b"{tag0}").slot);
        for _ in 0..if MIRI { 1 } else { 6 } {
            let (mut cursor, mut met, mut calls) = (0, BTreeSet::new(), 0);
            loop {
                let (next, keys) = call(&keyspace, 0, cursor, 1 + prng.below(12), slot);
                met.extend(keys);
                calls += 1;
                assert!(calls < 100_000, "it ends");
                if next == 0 {
                    break;
                }
                cursor = next;
                change(&keyspace, &mut prng, &mut guests);
            }
            let missed: Vec<_> = stays
                .iter()
                .filter(|key| slot.is_none_or(|slot| keyspace.key(key).slot == slot))
                .filter(|&key| !met.contains(key))
                .collect();
            assert!(missed.is_empty(), "{} keys were there throughout and not returned", missed.len());
        }
        keyspace.check_invariants();
    }
}

/// Guests come in groups, mostly to few slots, and leave in groups.
fn change(keyspace: &Keyspace, prng: &mut Prng, guests: &mut BTreeSet<String>) {
    match prng.below(12) {
        0 => {
            let tag = prng.below(12);
            for _ in 0..prng.below(300) {
                let guest = format!("{{tag{tag}}}{}", prng.below(5000));
                set(keyspace, 0, &guest);
                guests.insert(guest);
            }
        }
        1 => {
            for _ in 0..prng.below(100) {
                let guest = format!("guest{}", prng.below(5000));
                set(keyspace, 0, &guest);
                guests.insert(guest);
            }
        }
        2 => {
            let keep = prng.below(10);
            guests.retain(|guest| {
                let stays = prng.below(10) < keep;
                if !stays {
                    remove(keyspace, 0, guest);
                }
                stays
            });
        }
        3 => drop(compact(keyspace, 10)),
        _ => {}
    }
}

/// A cursor is a number that any client may send: it leads to keys or to the end, and every walk from it
/// ends.
#[test]
fn garbage_cursors_are_harmless() {
    let mut prng = Prng::new(9);
    for partitions in [1, 64] {
        let keyspace = keyspace(partitions, 1, 1 << 30, 9);
        let count = if MIRI { 40 } else { 1000 };
        for number in 0..count {
            set(&keyspace, 0, &format!("{{tag{}}}{number}", number % 5));
        }
        let special =
            [1, (1 << 14) - 1, 1 << 14, (1 << 46) - 1, 1 << 46, 1 << 53, u64::MAX, u64::MAX - 1, 1 << 63];
        let random = (0..if MIRI { 5 } else { 300 }).map(|_| prng.next_u64() >> prng.below(64));
        for cursor in special.into_iter().chain(random.collect::<Vec<_>>()) {
            for slot in [None, Some(Slot::new((cursor % 16384) as u16))] {
                let (keys, _) = walk(&keyspace, 0, cursor, 50, slot);
                assert!(keys.len() <= count);
                assert!(keys.iter().all(|key| key.starts_with(b"{tag")));
            }
            // An empty database too.
            assert_eq!(call(&keyspace, 1, cursor, 10, None), (0, vec![]));
        }
    }
}

/// Cursors of a large table continue in a small one: keys that they had not passed yet are returned.
#[test]
#[cfg_attr(miri, ignore = "many keys")]
fn cursors_outlive_the_table_they_come_from() {
    let keyspace = keyspace(1, 1, 1 << 30, 10);
    let stays: Vec<String> = (0..20).map(|n| format!("{{tag}}stays{n}")).collect();
    stays.iter().for_each(|key| set(&keyspace, 0, key));
    for number in 0..20_000 {
        set(&keyspace, 0, &format!("{{tag}}{number}"));
    }
    // Every cursor of the walk, with what came before it.
    let (mut cursor, mut before, mut points) = (0, BTreeSet::new(), Vec::new());
    loop {
        let (next, keys) = call(&keyspace, 0, cursor, 200, None);
        before.extend(keys);
        if next == 0 {
            break;
        }
        points.push((next, before.clone()));
        cursor = next;
    }
    assert!(points.len() > 50);
    for number in 0..20_000 {
        remove(&keyspace, 0, &format!("{{tag}}{number}"));
    }
    for (cursor, before) in points {
        let (rest, _) = walk(&keyspace, 0, cursor, 3, None);
        let all: BTreeSet<_> = before.into_iter().chain(rest).collect();
        assert!(stays.iter().all(|key| all.contains(key.as_bytes())));
    }
}

/// The slot in which a walk stopped is emptied: the walk continues at the beginning of the next, not in its
/// middle.
#[test]
fn a_slot_that_vanishes_takes_no_other_with_it() {
    let count = if MIRI { 60 } else { 300 };
    for partitions in [1, 64] {
        let keyspace = keyspace(partitions, 1, 1 << 30, 14);
        for tag in 0..6 {
            (0..count).for_each(|number| set(&keyspace, 0, &format!("{{tag{tag}}}{number}")));
        }
        let mut order: Vec<Vec<u8>> = Vec::new();
        for key in walk(&keyspace, 0, 0, 10, None).0 {
            let tag = key[..6].to_vec();
            if order.last() != Some(&tag) {
                order.push(tag);
            }
        }
        assert_eq!(order.len(), 6, "slot by slot");
        // Stop in the middle of the third slot, and empty it.
        let (mut cursor, mut met) = (0, BTreeSet::new());
        while met.iter().filter(|key: &&Vec<u8>| key.starts_with(&order[2])).count() < count / 2 {
            let (next, keys) = call(&keyspace, 0, cursor, 5, None);
            met.extend(keys);
            cursor = next;
        }
        let tag = String::from_utf8(order[2].clone()).expect("it is ASCII");
        (0..count).for_each(|number| remove(&keyspace, 0, &format!("{tag}{number}")));
        met.extend(walk(&keyspace, 0, cursor, 5, None).0);
        let missed = (0..6)
            .filter(|&at| at != 2)
            .find(|&at| met.iter().filter(|key| key.starts_with(&order[at])).count() != count);
        assert_eq!(missed, None);
    }
}

/// COUNT is a wish for work, not for results: a call over many stale entries ends, and they leave by it.
#[test]
fn stale_entries_are_not_returned() {
    let keyspace = keyspace(2, 1, 1 << 30, 11);
    let count = if MIRI { 60 } else { 2000 };
    for number in 0..count {
        let name: Name = (0, format!("{{tag}}{number}").into_bytes());
        let expiry = if number % 10 == 0 { Expiry::Clear } else { Expiry::At(UnixMs(START - 1)) };
        run_op(&keyspace, START - 10, &Op::Set { name, value: Stored::Int(1), expiry })
            .expect("there is room");
    }
    for (expiry_mode, returned, left) in [
        (ExpiryMode::Keep, count, count),
        (ExpiryMode::Hide, count / 10, count),
        (ExpiryMode::Delete, count / 10, count / 10),
    ] {
        let mut held = Held::new(&keyspace);
        held.acquire(Want::All);
        let mut sink = NoEffects;
        let mut txn = Txn::new(&mut held, Conditions { expiry_mode, ..conditions(START) }, &mut sink);
        let (mut cursor, mut met) = (0, BTreeSet::new());
        loop {
            cursor = txn.scan(
                Db(0),
                cursor,
                10,
                None,
                |_, _| true,
                |key, _| {
                    met.insert(key.to_vec());
                },
            );
            if cursor == 0 {
                break;
            }
        }
        assert_eq!((met.len(), txn.len(Db(0)) as usize), (returned, left), "{expiry_mode:?}");
    }
    keyspace.check_invariants();
}

/// Every key is equally likely: those of full slots, of half empty pages and of slots of their own.
#[test]
#[cfg_attr(miri, ignore = "many draws")]
fn random_keys_are_uniform() {
    for partitions in [1, 16] {
        let keyspace = keyspace(partitions, 1, 1 << 30, 12);
        for number in 0..2000 {
            set(&keyspace, 0, &format!("{{tag}}{number}"));
        }
        // Uneven pages: many leave again, none of the buddies of some pages.
        for number in 200..2000 {
            remove(&keyspace, 0, &format!("{{tag}}{number}"));
        }
        for number in 0..200 {
            set(&keyspace, 0, &format!("key:{number}"));
        }
        let mut prng = Prng::new(12);
        let mut draws: BTreeMap<Vec<u8>, u64> = BTreeMap::new();
        const KEYS: u64 = 400;
        const DRAWS: u64 = KEYS * 200;
        txn(&keyspace, START, |txn| {
            for _ in 0..DRAWS {
                let key = txn.random_key(Db(0), &mut |n| prng.below(n)).expect("it has keys");
                *draws.entry(key).or_default() += 1;
            }
        });
        assert_eq!(draws.len() as u64, KEYS);
        let mean = (DRAWS / KEYS) as f64;
        let chi_square: f64 = draws.values().map(|&n| (n as f64 - mean).powi(2) / mean).sum();
        // 399 degrees of freedom: 399 +- 28; five deviations on either side.
        assert!((258.0..540.0).contains(&chi_square), "chi square {chi_square}");
    }
}

#[test]
fn random_key_of_a_database_without_live_keys() {
    let keyspace = keyspace(4, 1, 1 << 30, 13);
    let random = |expiry_mode| {
        let mut prng = Prng::new(13);
        let mut held = Held::new(&keyspace);
        held.acquire(Want::All);
        let conditions = Conditions { expiry_mode, ..conditions(START) };
        Txn::new(&mut held, conditions, &mut NoEffects).random_key(Db(2), &mut |n| prng.below(n))
    };
    assert_eq!(random(ExpiryMode::Delete), None);
    for number in 0..10 {
        let name: Name = (2, format!("key:{number}").into_bytes());
        let expiry = Expiry::At(UnixMs(START - 1));
        run_op(&keyspace, START - 10, &Op::Set { name, value: Stored::Int(1), expiry })
            .expect("there is room");
    }
    // Nothing but stale keys, and they may not leave: one of them, as Valkey does on a replica.
    assert!(random(ExpiryMode::Hide).is_some());
    assert!(random(ExpiryMode::Keep).is_some());
    assert_eq!(random(ExpiryMode::Delete), None);
    assert_eq!(dump(&keyspace).len(), 0);
    flush_and_check(&keyspace, START);
}
