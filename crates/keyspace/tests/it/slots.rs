//! The sizes of slots, against what is there. That the bytes of a slot's record are those of its pages and
//! bodies is `check_invariants`' to say.

use crate::support::*;
use isotherm_keyspace::*;
use isotherm_stdx::Prng;

fn sizes(keyspace: &Keyspace) -> Vec<SlotSize> {
    let mut held = Held::new(keyspace);
    let in_turn = Survey::new(&mut held).slot_sizes();
    held.acquire(Want::All);
    assert_eq!(Survey::new(&mut held).slot_sizes(), in_turn, "held at once and in turn");
    in_turn
}

#[test]
fn every_key_counts_in_its_slot() {
    for (seed, partitions) in [(1, 1), (2, 16), (3, 1024)] {
        let keyspace = keyspace(partitions, 2, 1 << 30, seed as u8);
        let mut prng = Prng::new(seed);
        let shape = Shape { keys: 300, long: true, first_db: 0, databases: 3, whole: true };
        for _ in 0..if cfg!(miri) { 60 } else { 6000 } {
            let op = Op::draw(&mut |n| prng.below(n), &shape, START);
            let _ = run_op(&keyspace, START, &op);
        }
        keyspace.check_invariants();
        let mut counts = vec![(0, 0); Slot::COUNT];
        for ((_, key), (_, expiry)) in dump(&keyspace) {
            let count = &mut counts[Slot::of_key(&key).index()];
            *count = (count.0 + 1, count.1 + u64::from(expiry.is_some()));
        }
        for (slot, (size, count)) in sizes(&keyspace).iter().zip(counts).enumerate() {
            assert_eq!((size.keys, size.volatile), count, "seed {seed}, slot {slot}");
            assert_eq!(size.keys == 0, size.memory_bytes == 0, "seed {seed}, slot {slot}");
        }
    }
}

#[test]
fn bytes_follow_the_values() {
    let keyspace = keyspace(16, 1, 1 << 30, 1);
    let slot = Slot::of_key(b"{a}").index();
    let memory = || sizes(&keyspace)[slot].memory_bytes;
    let run = |op| run_op(&keyspace, START, &op).expect("there is room");
    let set = |key: &str, bytes| {
        let value = Stored::Bytes(vec![b'x'; bytes]);
        run(Op::Set { name: (0, key.into()), value, expiry: Expiry::Clear });
    };
    let mut before = 0;
    // In its page, a blob of the arena, of the allocator: never less than it is, nor much more.
    for (key, bytes) in [("{a}1", 100), ("{a}2", 3000), ("{a}3", 70_000)] {
        set(key, bytes);
        let taken = memory() - before;
        assert!((bytes as u64..bytes as u64 * 5 / 4 + 100).contains(&taken), "{bytes} took {taken}");
        before = memory();
    }
    set("{a}3", 10);
    assert!(memory() < before - 69_000);
    for number in 1..4 {
        run(Op::Remove { name: (0, format!("{{a}}{number}").into()) });
    }
    assert_eq!(memory(), 0);
}

/// Copies share a large body, and each counts it: 701 of 100 MB are more than 32 bits of 16 B units can say.
#[test]
#[cfg_attr(miri, ignore = "100 MB")]
fn copies_count_what_they_share() {
    const BYTES: u64 = 100 << 20;
    const COPIES: u64 = 700;
    let keyspace = keyspace(1, 1, 1 << 30, 1);
    let mut held = Held::new(&keyspace);
    held.acquire(Want::All);
    let conditions = Conditions { now: UnixMs(START), expiry_mode: ExpiryMode::Delete, no_touch: false };
    let mut effects = NoEffects;
    let mut txn = Txn::new(&mut held, conditions, &mut effects);
    let source = txn.key(b"{a}");
    txn.set(Db(0), &source, NewValue::Bytes(&vec![b'x'; BYTES as usize]), Expiry::Clear)
        .expect("there is room");
    for number in 0..COPIES {
        let name = format!("{{a}}{number}");
        let copy = txn.key(name.as_bytes());
        txn.copy((Db(0), &source), (Db(0), &copy)).expect("a body is shared");
    }
    drop(held);
    keyspace.check_invariants();
    let memory_bytes = sizes(&keyspace)[Slot::of_key(b"{a}").index()].memory_bytes;
    let expected = (COPIES + 1) * BYTES;
    assert!((expected..expected + (1 << 20)).contains(&memory_bytes), "{memory_bytes}, not {expected}");
}
