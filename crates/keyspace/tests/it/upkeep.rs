//! The steps of upkeep are bounded by what they look at, and each makes progress. Every hold here is checked
//! against `HOLD_STEPS_MAX` by `Held` itself.

use crate::support::*;
use isotherm_keyspace::*;
use isotherm_stdx::{Prng, steps};

fn world(partitions: usize, secret: u8) -> Keyspace {
    keyspace(partitions, 1, 1 << 30, secret)
}

/// Steps until nothing is due any more. Fails where they do not end.
fn expire_all(keyspace: &Keyspace, now: i64, steps_max: u64, rounds_max: usize) -> ExpireStep {
    let mut sum = ExpireStep::default();
    for _ in 0..rounds_max {
        let before = steps::looked();
        let step = keyspace.expire_step(0, UnixMs(now), steps_max, &mut NoEffects);
        let looked = steps::looked() - before;
        // A page and what leaves with it may exceed the budget; an item is looked at several times.
        assert!(looked <= 8 * (steps_max + 300), "one step has looked {looked} times");
        (sum.expired, sum.fields) = (sum.expired + step.expired, sum.fields + step.fields);
        if !step.more {
            return sum;
        }
    }
    panic!("after {rounds_max} steps something is still due: {sum:?} have left");
}

fn set_fields(keyspace: &Keyspace, key: &[u8], fields: impl Iterator<Item = (u32, Option<i64>)>) {
    txn(keyspace, START, |txn| {
        let key = txn.key(key);
        let edited = txn.edit_hash(Db(0), &key, &Limits::default(), |hash| {
            for (number, at) in fields {
                let name = format!("field:{number:08}");
                hash.set(name.as_bytes(), b"value", at.map(UnixMs), false).expect("room");
            }
        });
        edited.expect("there is room");
    });
}

/// Half of a large hash is due together, the other half much later. Pages of the first half merge, and took
/// their bounds with them to nodes that then led nowhere: the step never ended, in most hashes (which secret,
/// which pages).
#[test]
fn a_large_hash_of_two_lifetimes_expires() {
    let fields = if cfg!(miri) { 300 } else { 40_000 };
    for secret in 1..=if cfg!(miri) { 1 } else { 12 } {
        for steps_max in [1, 250] {
            let keyspace = world(1, secret);
            let at = |number: u32| Some(START + if number.is_multiple_of(2) { 1_500 } else { 100_000_000 });
            set_fields(&keyspace, b"large", (0..fields).map(|number| (number, at(number))));
            let gone = expire_all(&keyspace, START + 2_000, steps_max, 100_000);
            assert_eq!(gone.fields, u64::from(fields / 2));
            let before = steps::looked();
            assert_eq!(expire_all(&keyspace, START + 2_000, steps_max, 60), ExpireStep::default());
            assert!(steps::looked() - before < 60, "nothing is looked at twice");
            keyspace.check_invariants();
        }
    }
}

/// Half of the keys of a large slot expire together, the other half much later: the step ends there too. The
/// slot's directory has two levels as well.
#[test]
fn a_large_slot_of_two_lifetimes_expires() {
    let keys = if cfg!(miri) { 300 } else { 60_000 };
    for (secret, steps_max) in
        [(1, 250), (2, 250), (3, 1), (4, 7)].into_iter().take(if cfg!(miri) { 1 } else { 4 })
    {
        let keyspace = world(1, secret);
        txn(&keyspace, START, |txn| {
            for number in 0..keys {
                let (name, long) = (format!("{{tag}}:{number:08}"), number % 2 == 1);
                let at = UnixMs(START + if long { 100_000_000 } else { 1_500 });
                let key = txn.key(name.as_bytes());
                txn.set(Db(0), &key, NewValue::Bytes(b"value"), Expiry::At(at)).expect("there is room");
            }
        });
        assert_eq!(expire_all(&keyspace, START + 2_000, steps_max, 100_000).expired, keys / 2);
        let more = keyspace.expire_step(0, UnixMs(START + 2_000), 250, &mut NoEffects);
        assert_eq!(more, ExpireStep::default());
        keyspace.check_invariants();
    }
}

/// Fields of a flushed database leave without being counted: no client sees them any more.
#[test]
fn fields_of_a_flushed_hash_are_not_counted() {
    let keyspace = world(1, 9);
    set_fields(&keyspace, b"hash", (0..500).map(|field| (field, Some(START + 1_000))));
    txn(&keyspace, START, |txn| txn.flush(Some(Db(0))));
    assert_eq!(expire_all(&keyspace, START + 2_000, 250, 100), ExpireStep::default());
    while keyspace.free_step(0, 100) {}
    assert_eq!(keyspace.arenas()[0].stats().live_objects, 0);
    keyspace.check_invariants();
}

/// Times that were prolonged leave their bounds behind: all of them are looked at when those come, a few a
/// step.
#[test]
fn prolonged_times_are_looked_at_in_steps() {
    let many = if cfg!(miri) { 100 } else { 20_000 };
    let keyspace = world(1, 3);
    txn(&keyspace, START, |txn| {
        for number in 0..many {
            let name = format!("key:{number}");
            let key = txn.key(name.as_bytes());
            let soon = Expiry::At(UnixMs(START + 1_000));
            txn.set(Db(0), &key, NewValue::Bytes(b"value"), soon).expect("there is room");
            txn.set_expiry(Db(0), &key, Some(UnixMs(START + 9_000_000))).expect("there is room");
        }
    });
    for number in 0..many / 10 {
        let key = format!("hash:{number}");
        set_fields(&keyspace, key.as_bytes(), (0..20).map(|field| (field, Some(START + 1_000))));
        set_fields(&keyspace, key.as_bytes(), (0..20).map(|field| (field, Some(START + 9_000_000))));
    }
    let gone = expire_all(&keyspace, START + 2_000, 250, 10_000);
    assert_eq!((gone.expired, gone.fields), (0, 0));
    let idle = steps::looked();
    assert_eq!(expire_all(&keyspace, START + 2_000, 250, 1), ExpireStep::default());
    assert!(steps::looked() - idle < 60, "the bounds are exact now");
    keyspace.check_invariants();
}

/// A database that always has more to do does not keep the others from their turn, nor do the fields.
#[test]
fn databases_take_turns() {
    let keyspace = world(1, 4);
    txn(&keyspace, START, |txn| {
        for number in 0..2_000 {
            for db in [Db(0), Db(2)] {
                let name = format!("key:{number}");
                let key = txn.key(name.as_bytes());
                let at = Expiry::At(UnixMs(START + 1_000));
                txn.set(db, &key, NewValue::Bytes(b"value"), at).expect("there is room");
            }
        }
    });
    set_fields(&keyspace, b"hash", (0..2_000).map(|field| (field, Some(START + 1_000))));
    let mut fields = 0;
    for _ in 0..8 {
        fields += keyspace.expire_step(0, UnixMs(START + 2_000), 20, &mut NoEffects).fields;
    }
    let left = |db| txn(&keyspace, START, |txn| txn.len(db));
    assert!(left(Db(0)) < 2_000 && left(Db(2)) < 2_000 && fields > 0);
}

/// Keys that had a time and were persisted leave bounds behind. Eviction of volatile keys looks at some of
/// them at a time, and finds the one that is left.
#[test]
fn eviction_passes_over_persisted_keys_in_steps() {
    let keys: u64 = if cfg!(miri) { 200 } else { 30_000 };
    let keyspace = world(1, 5);
    txn(&keyspace, START, |txn| {
        for number in 0..keys {
            let name = format!("{{tag}}:{number}");
            let key = txn.key(name.as_bytes());
            let at = Expiry::At(UnixMs(START + 1_000_000));
            txn.set(Db(0), &key, NewValue::Bytes(b"value"), at).expect("there is room");
            if number != 777 % keys {
                txn.set_expiry(Db(0), &key, None).expect("there is room");
            }
        }
    });
    let mut prng = Prng::new(1);
    let policy = EvictionPolicy::VolatileLru;
    assert!(keyspace.evict_one(policy, UnixMs(START), &mut prng, &mut NoEffects));
    assert!(!keyspace.evict_one(policy, UnixMs(START), &mut prng, &mut NoEffects));
    assert_eq!(txn(&keyspace, START, |txn| txn.len(Db(0))), keys - 1);
    keyspace.check_invariants();
}

/// A slot of very many pages ages in steps, and a round still ends.
#[test]
fn a_large_slot_ages_in_steps() {
    let keyspace = world(2, 6);
    txn(&keyspace, START, |txn| {
        for number in 0..if cfg!(miri) { 200 } else { 30_000 } {
            let name = format!("{{tag}}:{number}");
            let key = txn.key(name.as_bytes());
            txn.set(Db(0), &key, NewValue::Bytes(b"value"), Expiry::Clear).expect("there is room");
        }
    });
    for pages_max in [100, 1] {
        let (mut hand, mut slots, mut steps) = (AgeHand::default(), 0, 0);
        loop {
            let step = keyspace.age_step(&mut hand, 4, pages_max, UnixMs(START));
            (slots, steps) = (slots + step.slots, steps + 1);
            if step.is_round {
                break;
            }
            assert!(steps < 1_000_000, "a round ends");
        }
        assert_eq!((slots, hand), (Slot::COUNT, AgeHand::default()));
    }
}

/// Keys of a flushed database leave page by page, with a budget of one too.
#[test]
fn a_flushed_database_is_freed_in_steps() {
    for nodes_max in [100, 1] {
        let keyspace = world(1, 8);
        let keys = if cfg!(miri) { 100 } else { 20_000 };
        txn(&keyspace, START, |txn| {
            for number in 0..keys {
                let name = format!("{}:{number}", if number % 2 == 0 { "{tag}" } else { "key" });
                let key = txn.key(name.as_bytes());
                txn.set(Db(0), &key, NewValue::Bytes(b"value"), Expiry::Clear).expect("there is room");
            }
            assert_eq!(txn.flush(Some(Db(0))), keys);
        });
        let mut holds = 0;
        while keyspace.free_step(0, nodes_max) {
            holds += 1;
            // Each frees a page or passes a slot.
            assert!(holds < keys + Slot::COUNT as u64, "it ends");
        }
        keyspace.check_invariants();
        assert_eq!(keyspace.arenas()[0].stats().live_objects, 0);
    }
}

/// Large collections that were removed, and keys of flushed databases unless someone waits for these.
#[test]
fn what_is_freed_for_no_client_is_counted() {
    let keyspace = world(1, 3);
    let delete = |name: &[u8]| {
        txn(&keyspace, START, |txn| {
            let key = txn.key(name);
            assert!(txn.remove(Db(0), &key));
        });
    };
    let fill = || {
        for (name, fields) in [(&b"short"[..], 40), (b"middle", 600), (b"long", 1_500)] {
            set_fields(&keyspace, name, (0..fields).map(|field| (field, None)));
        }
    };
    fill();
    delete(b"short");
    assert_eq!(keyspace.lazy_frees(), (0, 0));
    delete(b"middle");
    assert_eq!(keyspace.lazy_frees(), (0, 1), "freed at once");
    delete(b"long");
    assert_eq!(keyspace.lazy_frees(), (1, 1));
    keyspace.free_all();
    assert_eq!(keyspace.lazy_frees(), (0, 2));
    keyspace.reset_lazy_frees();
    fill();
    txn(&keyspace, START, |txn| txn.flush(Some(Db(0))));
    assert_eq!(keyspace.lazy_frees(), (3, 0));
    keyspace.free_all();
    assert_eq!(keyspace.lazy_frees(), (0, 3));
    fill();
    txn(&keyspace, START, |txn| txn.flush_and_wait(None));
    keyspace.free_all();
    assert_eq!(keyspace.lazy_frees(), (0, 3));
}

/// Collections that leave together are freed in later steps, and removed ones that a snapshot has yet to emit
/// are not looked at again and again.
#[test]
fn removed_collections_are_freed_in_steps() {
    let many = if cfg!(miri) { 5 } else { 300 };
    let keyspace = world(1, 7);
    for number in 0..many {
        set_fields(&keyspace, format!("hash:{number}").as_bytes(), (0..700).map(|field| (field, None)));
        txn(&keyspace, START, |txn| {
            let name = format!("hash:{number}");
            let key = txn.key(name.as_bytes());
            txn.set_expiry(Db(0), &key, Some(UnixMs(START + 1_000))).expect("there is room");
        });
    }
    let snapshot = keyspace.snapshot().expect("there is none yet");
    assert_eq!(expire_all(&keyspace, START + 2_000, 250, 1_000).expired, many);
    let before = steps::looked();
    assert!(!keyspace.free_step(0, 100), "the snapshot has not emitted them");
    assert!(steps::looked() - before <= 64);
    drop(snapshot);
    let (mut freed, mut nodes_max) = (0, 1);
    while keyspace.free_step(0, nodes_max) {
        freed += 1;
        nodes_max = if freed < 100 { 1 } else { 100 };
        assert!(freed < 100 * many, "it ends");
    }
    keyspace.check_invariants();
    assert_eq!(keyspace.arenas()[0].stats().live_objects, 0);
}
