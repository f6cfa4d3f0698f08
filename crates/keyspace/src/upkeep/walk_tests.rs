//! Bounds, in bytes, of what a step of a snapshot hands on under the lock, whatever is stored.

use crate::upkeep::snapshot::SnapshotItem;
use crate::upkeep::walk::bytes_of;
use crate::values::receiver::{ITEM_BYTES, PAGE_WEIGHT_MAX, SHORT_BYTES_MAX};
use crate::*;

const STEP_ITEMS: u64 = 500;
/// The heaviest node of a collection.
const NODE_BYTES_MAX: usize = 8192;
const COUNT: usize = if cfg!(miri) { 20 } else { 400 };

fn keyspace() -> Keyspace {
    let config = Config {
        partitions: 1,
        arenas: 1,
        databases: 1,
        reserve_bytes: 1 << 30,
        hash_secret: [3; 16],
        class_bytes: |bytes| bytes,
    };
    Keyspace::new(config).expect("address space")
}

fn with_txn<R>(keyspace: &Keyspace, work: impl FnOnce(&mut Txn<'_, '_>) -> R) -> R {
    let mut held = Held::new(keyspace);
    held.acquire(Want::All);
    let conditions = Conditions { now: UnixMs(1), expiry_mode: ExpiryMode::Keep, no_touch: true };
    work(&mut Txn::new(&mut held, conditions, &mut NoEffects))
}

fn text(number: usize, len: usize) -> Vec<u8> {
    let mut text = number.to_string().into_bytes();
    text.resize(len.max(text.len()), b'x');
    text
}

/// Many strings in few pages, and a collection of each type, all of one hash tag; `len` is that of a value.
fn fill(keyspace: &Keyspace, len: usize) {
    let limits = Limits::default();
    with_txn(keyspace, |txn| {
        for number in 0..COUNT {
            let (name, value) = (text(number, 8), text(number, len));
            let key_name = format!("{{t}}{number}:{len}");
            let value = NewValue::Bytes(&value);
            txn.set(Db(0), &txn.key(key_name.as_bytes()), value, Expiry::Clear).expect("room");
            let key = |kind: &str| format!("{{t}}{kind}:{len}").into_bytes();
            let (NewValue::Bytes(value) | NewValue::Raw(value)) = value else { unreachable!() };
            let hash = txn.edit_hash(Db(0), &txn.key(&key("hash")), &limits, |hash| {
                hash.set(&name, value, None, false)
            });
            hash.expect("a hash").result.expect("room");
            let set = txn.edit_set(Db(0), &txn.key(&key("set")), &limits, |set| set.add(value));
            set.expect("a set").result.expect("room");
            let zset =
                txn.edit_zset(Db(0), &txn.key(&key("zset")), &limits, |zset| zset.set(value, number as f64));
            zset.expect("a zset").result.expect("room");
            let list = txn.edit_list(Db(0), &txn.key(&key("list")), &limits, |list| {
                list.push(End::Back, std::iter::once(value))
            });
            list.expect("a list").result.expect("room");
            let stream = txn.edit_stream(Db(0), &txn.key(&key("stream")), &limits, |stream| {
                stream.add(StreamId { ms: number as u64 + 1, seq: 0 }, &[b"field", value])
            });
            stream.expect("a stream").result.expect("room");
        }
    });
}

/// Removes every other key and element, so that pages are saved.
fn change(keyspace: &Keyspace, len: usize) {
    let limits = Limits::default();
    with_txn(keyspace, |txn| {
        for number in (0..COUNT).step_by(2) {
            txn.remove(Db(0), &txn.key(format!("{{t}}{number}:{len}").as_bytes()));
            let [hash, zset] = ["hash", "zset"].map(|kind| format!("{{t}}{kind}:{len}").into_bytes());
            let hash = txn.key(&hash);
            txn.edit_hash(Db(0), &hash, &limits, |hash| hash.remove(&text(number, 8), false))
                .expect("a hash");
            let zset = txn.key(&zset);
            txn.edit_zset(Db(0), &zset, &limits, |zset| zset.remove(&text(number, len))).expect("a zset");
        }
    });
}

fn item_bytes(item: &SnapshotItem<'_>) -> usize {
    match item {
        SnapshotItem::Entry(entry) => {
            let value = if let Value::Bytes(bytes) = entry.value { bytes.len() } else { 8 };
            entry.key.len() + value
        }
        SnapshotItem::Begin { key, .. } => key.len(),
        SnapshotItem::Part(part) => bytes_of(part),
        SnapshotItem::Bundle(_) | SnapshotItem::Node(_) => panic!("nothing left memory"),
        SnapshotItem::End => 0,
    }
}

/// Walks a whole snapshot. Returns the most bytes of one step under the lock, all bytes under the lock, and
/// all bytes after the lock was released.
fn walk(keyspace: &Keyspace, is_changed: bool, len: usize) -> [usize; 3] {
    let mut snapshot = keyspace.snapshot().expect("none is under way");
    if is_changed {
        change(keyspace, len);
    }
    let [mut most, mut locked, mut unlocked] = [0; 3];
    loop {
        let mut in_step = 0;
        let more = snapshot.step(STEP_ITEMS, &mut |item| {
            let bytes = item_bytes(&item);
            match keyspace.try_lock(0) {
                None => in_step += bytes,
                Some(_) => unlocked += bytes,
            }
        });
        (most, locked) = (most.max(in_step), locked + in_step);
        if !more {
            return [most, locked, unlocked];
        }
    }
}

#[test]
fn steps_are_bounded_in_bytes() {
    let bound = (STEP_ITEMS + PAGE_WEIGHT_MAX) as usize * ITEM_BYTES + NODE_BYTES_MAX;
    for len in [20, 300, 2000, SHORT_BYTES_MAX - 50, SHORT_BYTES_MAX + 100, 200_000] {
        for is_changed in [false, true] {
            let keyspace = keyspace();
            fill(&keyspace, len);
            let [most, locked, unlocked] = walk(&keyspace, is_changed, len);
            assert!(most <= bound, "{most} bytes in one step of values of {len}");
            // Strings and collections of five types.
            assert!(locked + unlocked >= 6 * COUNT * len, "all is emitted");
            if len > NODE_BYTES_MAX {
                assert!(locked < 6 * COUNT * 100, "{locked} bytes of long values under the lock");
            }
            keyspace.check_invariants();
        }
    }
}
