//! Floods: many keys of one slot with equal hashes, which cannot be made without the secret. A page at its
//! limits answers `Full`; nothing is lost, and everything else continues.

#[path = "../../tests/support/mod.rs"]
mod support;

use crate::layout::key::KeyHasher;
use crate::layout::page::{ENTRIES_MAX, PAGE_BYTES_MAX};
use crate::*;
use isotherm_stdx::Prng;
use support::*;

const MIRI: bool = cfg!(miri);

/// A keyspace whose hashes have only the bits of `mask`.
fn flooded(partitions: usize, mask: u64) -> Keyspace {
    let hash_secret = KeyHasher::flooded_secret(mask);
    let config = Config {
        partitions,
        arenas: 1,
        databases: 16,
        reserve_bytes: 1 << 30,
        hash_secret,
        class_bytes: |bytes| bytes,
    };
    Keyspace::new(config).expect("a gigabyte of addresses is to be had")
}

fn name(number: usize) -> Name {
    (0, format!("{{slot}}{number}").into_bytes())
}

fn set(keyspace: &Keyspace, state: &mut State, name: Name, value: Stored) -> Result<bool, Full> {
    let op = Op::Set { name, value, expiry: Expiry::Keep };
    let answer = run_op(keyspace, START, &op)?;
    assert_eq!(op.run_on(state, START), answer);
    Ok(answer)
}

fn check(keyspace: &Keyspace, state: &State) {
    keyspace.check_invariants();
    let stored = dump(keyspace);
    for (k, v) in &stored {
        if state.get(k) != Some(v) {
            println!("{} {}", k.1.len(), String::from_utf8_lossy(&k.1[..10.min(k.1.len())]));
            println!("{v:?}\n {:?}", state.get(k));
            break;
        }
    }
    assert!(dump(keyspace) == *state);
}

/// All hashes are equal: the slot has one page that ever gets a key.
#[test]
fn one_page_takes_what_fits_and_no_more() {
    let (keyspace, mut state) = (flooded(1, 0), State::new());
    let mut refused = 0;
    for number in 0..ENTRIES_MAX + 50 {
        refused += usize::from(set(&keyspace, &mut state, name(number), Stored::Int(5)).is_err());
    }
    assert_eq!((state.len(), refused), (ENTRIES_MAX, 50));
    check(&keyspace, &state);
    // Another slot, another page.
    set(&keyspace, &mut state, (0, b"elsewhere".into()), Stored::Int(1)).expect("it has a page of its own");
    // Everything but a new key still works on the full page, with values of every size.
    for number in 0..ENTRIES_MAX {
        let value = Stored::Bytes(vec![number as u8; number * 40]);
        set(&keyspace, &mut state, name(number), value).expect("what is long lies elsewhere");
        let op = Op::SetExpiry { name: name(number), at: Some(START + 1 + number as i64) };
        if run_op(&keyspace, START, &op).is_ok() {
            op.run_on(&mut state, START);
        }
    }
    check(&keyspace, &state);
    // A page that was full takes keys again.
    for number in 0..20 {
        let op = Op::Remove { name: name(number) };
        assert_eq!(run_op(&keyspace, START, &op), Ok(op.run_on(&mut state, START)));
        set(&keyspace, &mut state, name(1000 + number), Stored::Int(9)).expect("one has left");
    }
    check(&keyspace, &state);
    for number in 0..2000 {
        let op = Op::Remove { name: name(number) };
        assert_eq!(run_op(&keyspace, START, &op), Ok(op.run_on(&mut state, START)));
    }
    check(&keyspace, &state);
    assert_eq!(state.len(), 1);
    flush_and_check(&keyspace, START);
}

/// Bytes run out before entries do.
#[test]
fn long_entries_fill_a_page_by_bytes() {
    for key_bytes in [20, 47, 48, 100, 158, 159, 2000] {
        let (keyspace, mut state) = (flooded(1, 0), State::new());
        let mut refused = 0;
        for number in 0..300 {
            let mut key = format!("{{slot}}{number}").into_bytes();
            key.resize(key_bytes, b'k');
            let value = Stored::Bytes(vec![number as u8; (number * 3) % 190]);
            refused += usize::from(set(&keyspace, &mut state, (0, key), value).is_err());
        }
        assert!(refused > 0, "{key_bytes}");
        // Values that do not fit leave the page for bodies, so that keys are what fills it.
        assert!(state.len() >= PAGE_BYTES_MAX / 254, "{}", state.len());
        check(&keyspace, &state);
        for name in state.keys().cloned().collect::<Vec<_>>() {
            for op in [
                Op::Edit { name: name.clone(), more: 1, mark: 1 },
                Op::SetExpiry { name: name.clone(), at: Some(START + (1 << 45)) },
                Op::Edit { name: name.clone(), more: 300, mark: 2 },
                Op::SetExpiry { name, at: None },
            ] {
                if let Ok(answer) = run_op(&keyspace, START, &op) {
                    assert_eq!(op.run_on(&mut state, START), answer);
                }
            }
        }
        check(&keyspace, &state);
        flush_and_check(&keyspace, START);
    }
}

/// A page at its limits has no room for an access column, whatever makes it want one: a read, a write, a
/// split or a merge around it.
#[test]
fn a_full_page_gets_no_access_column() {
    // Two pages' worth of hashes: one bit.
    for (mask, modes) in [
        (0, [AccessMode::Lru, AccessMode::Lfu, AccessMode::Page]),
        (1, [AccessMode::Lfu, AccessMode::Lru, AccessMode::Page]),
        (1, [AccessMode::Lru, AccessMode::Page, AccessMode::Lfu]),
    ] {
        let (keyspace, mut state) = (flooded(1, mask), State::new());
        let mut number = 0;
        let mut insert = |state: &mut State, count: usize, bytes: usize| {
            for _ in 0..count {
                number += 1;
                let _ = set(&keyspace, state, name(number), Stored::Bytes(vec![number as u8; bytes]));
            }
        };
        insert(&mut state, 400, 12);
        for mode in modes {
            keyspace.set_access(mode, 10);
            let names: Vec<_> = state.keys().cloned().collect();
            for name in &names {
                txn(&keyspace, START, |txn| {
                    assert!(txn.find(Db(0), &txn.key(&name.1), Lookup::Read).is_some());
                });
            }
            check(&keyspace, &state);
            insert(&mut state, 100, 12);
            check(&keyspace, &state);
            for name in names.into_iter().step_by(3) {
                let op = Op::Remove { name };
                assert_eq!(run_op(&keyspace, START, &op), Ok(op.run_on(&mut state, START)));
            }
            insert(&mut state, 200, 20);
            check(&keyspace, &state);
        }
        flush_and_check(&keyspace, START);
    }
}

/// A page at its limit is to be split after the switch to wider columns, and every one of its keys would
/// stay: there is no page for that.
#[test]
fn a_split_that_moves_nothing_finds_no_room_for_wider_columns() {
    let (keyspace, mut state) = (flooded(1, 1), State::new());
    // Names of 30 B entries, by the only bit of their hash.
    let names = |bit: u64| {
        let names = (0..).map(|number| format!("{{slot}}{number:017}").into_bytes());
        names.filter(move |bytes| keyspace_bit(bytes) == bit).map(|bytes| (0, bytes))
    };
    for name in names(0).take(ENTRIES_MAX) {
        let _ = set(&keyspace, &mut state, name, Stored::Bytes(vec![1; 5]));
    }
    assert!(state.len() > 200);
    keyspace.set_access(AccessMode::Lru, 10);
    for name in names(1).take(ENTRIES_MAX) {
        let _ = set(&keyspace, &mut state, name, Stored::Bytes(vec![2; 5]));
    }
    check(&keyspace, &state);
    flush_and_check(&keyspace, START);
}

fn keyspace_bit(bytes: &[u8]) -> u64 {
    KeyHasher::new(KeyHasher::flooded_secret(1)).hash(bytes)
}

/// Random work on hashes with few bits: of the page number only, of the tag only, of both.
#[test]
fn random_work_on_poor_hashes() {
    for (seed, mask) in [(1, 0), (2, 0b111), (3, 0xff << 42), (4, 0b11 | 1 << 42), (5, 0b1100)] {
        let keyspace = flooded(1 << (seed % 3), mask);
        let shape = Shape { keys: 5000, long: true, first_db: 0, databases: 2, whole: false };
        let (mut state, mut prng, mut now, mut full) = (State::new(), Prng::new(seed), START, 0);
        for step in 0..if MIRI { 100 } else { 15_000 } {
            match prng.below(300) {
                0 => drop(compact(&keyspace, 20)),
                1 => {
                    let mode = [AccessMode::Page, AccessMode::Lru, AccessMode::Lfu][prng.below(3) as usize];
                    keyspace.set_access(mode, 10);
                }
                2 => {
                    now += 200;
                    while keyspace.expire_step(0, UnixMs(now), 10, &mut NoEffects).more {}
                }
                _ => {
                    let op = Op::random(&mut prng, &shape, now);
                    match run_op(&keyspace, now, &op) {
                        Ok(answer) => assert_eq!(op.run_on(&mut state, now), answer),
                        Err(Full) => full += 1,
                    }
                }
            }
            if step % 1000 == 0 {
                keyspace.check_invariants();
                assert!(at_time(dump(&keyspace), now) == at_time(state.clone(), now));
            }
        }
        assert!(mask != 0 || MIRI || full > 0);
        flush_and_check(&keyspace, now);
    }
}

/// Walks and choices work in a flooded slot too.
#[test]
fn walks_and_choices_in_a_flooded_slot() {
    let (keyspace, mut state) = (flooded(2, 1 << 42), State::new());
    for number in 0..ENTRIES_MAX {
        set(&keyspace, &mut state, name(number), Stored::Int(number as i64)).expect("it fits");
    }
    let mut met = Vec::new();
    let mut cursor = 0;
    loop {
        let mut visit = |key: &[u8], _: &Entry<'_>| met.push((0, key.to_vec()));
        cursor = txn(&keyspace, START, |txn| txn.scan(Db(0), cursor, 10, None, |_, _| true, &mut visit));
        if cursor == 0 {
            break;
        }
    }
    met.sort();
    assert!(met.iter().eq(state.keys()));
    let mut prng = Prng::new(1);
    let random = txn(&keyspace, START, |txn| txn.random_key(Db(0), &mut |n| prng.below(n)));
    assert!(state.contains_key(&(0, random.expect("it has keys"))));
    let mut snapshot = keyspace.snapshot().expect("none is under way");
    for number in 0..100 {
        let op = Op::Remove { name: name(number) };
        assert_eq!(run_op(&keyspace, START, &op), Ok(true));
    }
    let mut emitted = 0;
    while snapshot.step(1, &mut |_| emitted += 1) {}
    drop(snapshot);
    assert_eq!(emitted, ENTRIES_MAX);
    let mut evicted = 0;
    while keyspace.evict_one(EvictionPolicy::AllKeysLru, UnixMs(START), &mut prng, &mut NoEffects) {
        evicted += 1;
    }
    assert_eq!(evicted, ENTRIES_MAX - 100);
    flush_and_check(&keyspace, START);
}
