//! Keys and fields that are copied in the order of SCAN: an order made by their hashes, in which they share
//! their lowest bits for a long time. Tables of any other database, and any other hash or set, have the same
//! hashes.

use crate::support::*;
use isotherm_keyspace::*;

const MANY: usize = if cfg!(miri) { 600 } else { 150_000 };

fn name(number: usize) -> Vec<u8> {
    format!("{{tag}}:{number}").into_bytes()
}

/// Returns the bytes that keys may take at most. Part of a directory may stay empty: for the first keys of a
/// copy it already has the size for all.
fn live_bytes_max(keys: usize) -> u64 {
    (keys as u64 * 60).max(1 << 20)
}

#[test]
fn keys_are_copied_to_another_database() {
    let keyspace = keyspace(1, 1, 1 << 30, 5);
    txn(&keyspace, START, |txn| {
        for number in 0..MANY {
            let name = name(number);
            txn.set(Db(0), &txn.key(&name), NewValue::Bytes(b"v"), Expiry::Clear).expect("there is room");
        }
    });
    let (mut cursor, mut copied) = (0, 0);
    loop {
        let mut some = Vec::new();
        txn(&keyspace, START, |txn| {
            cursor = txn.scan(Db(0), cursor, 100, None, |_, _| true, |key, _| some.push(key.to_vec()));
            for key in &some {
                let key = txn.key(key);
                txn.copy((Db(0), &key), (Db(1), &key)).expect("no page refuses it");
            }
        });
        copied += some.len();
        assert!(live_bytes(&keyspace) <= live_bytes_max(MANY + copied));
        if cursor == 0 {
            break;
        }
    }
    let counts = txn(&keyspace, START, |txn| [txn.len(Db(0)), txn.len(Db(1))]);
    assert_eq!(counts, [MANY as u64; 2]);
    keyspace.check_invariants();
    flush_and_check(&keyspace, START);
}

#[test]
fn fields_are_copied_to_another_hash_a_set_and_a_sorted_set() {
    let keyspace = keyspace(1, 1, 1 << 30, 6);
    let limits = Limits::default();
    txn(&keyspace, START, |txn| {
        let (hash, set) = (txn.key(b"hash"), txn.key(b"set"));
        for number in 0..MANY {
            let name = name(number);
            let new = txn.edit_hash(Db(0), &hash, &limits, |hash| hash.set(&name, b"value", None, false));
            new.expect("there is room").result.expect("there is room");
            let new = txn.edit_set(Db(0), &set, &limits, |set| set.add(&name));
            new.expect("there is room").result.expect("there is room");
        }
        // Members come in the order of the fields: the same hashes.
        let mut cursor = 0;
        loop {
            let mut some = Vec::new();
            let entry = txn.find(Db(0), &hash, Lookup::Read).expect("it is there");
            let Value::Hash(view) = entry.value else { panic!("it is a hash") };
            cursor = view.scan(cursor, 100, |field, _| {
                let Element::Bytes(field) = field else { panic!("names are bytes") };
                some.push(field.to_vec());
            });
            let (hash, set, zset) = (txn.key(b"hash:2"), txn.key(b"set:2"), txn.key(b"zset"));
            for field in &some {
                let new = txn.edit_hash(Db(0), &hash, &limits, |hash| hash.set(field, b"v", None, false));
                new.expect("there is room").result.expect("no page refuses it");
                let new = txn.edit_set(Db(0), &set, &limits, |set| set.add(field));
                new.expect("there is room").result.expect("no page refuses it");
                let new = txn.edit_zset(Db(0), &zset, &limits, |zset| zset.set(field, 1.0));
                new.expect("there is room").result.expect("no page refuses it");
            }
            if cursor == 0 {
                break;
            }
        }
    });
    keyspace.check_invariants();
    flush_and_check(&keyspace, START);
}
