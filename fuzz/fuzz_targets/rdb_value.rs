//! Any bytes as the value of any type: an error, or a value that keeps its promises, comes back when it is
//! written, and takes no more than its bytes justify once it is loaded.
#![no_main]

use isotherm_allocator as allocator;
use isotherm_keyspace::{
    Conditions, Config, Db, ExpiryMode, Held, Keyspace, Limits as Layout, NoEffects, Txn, UnixMs, Want,
};
use isotherm_persist::Limits;
use isotherm_persist::rdb::{Encoding, RdbValue, Shape, Writer, decode, encode};
use libfuzzer_sys::fuzz_target;
use std::sync::LazyLock;

const LIMITS: Limits = Limits { text_bytes_max: 1 << 20, unfolded_bytes_max: 1 << 22 };
/// As in `crates/commands/tests/amplification.rs`.
const FACTOR: u64 = 16;
const SLACK_BYTES: u64 = 1 << 20;

static KEYSPACE: LazyLock<Keyspace> = LazyLock::new(|| {
    let config = Config {
        partitions: 1,
        arenas: 1,
        databases: 1,
        reserve_bytes: 256 << 20,
        hash_secret: [7; 16],
        class_bytes: |bytes| bytes,
    };
    Keyspace::new(config).expect("address space")
});

fn used_bytes() -> u64 {
    allocator::allocated_bytes() + KEYSPACE.arenas().iter().map(|arena| arena.live_bytes()).sum::<u64>()
}

/// `folded` and `unfolded`: the bytes of the value, as they came and without compression.
fn load(code: u8, value: &RdbValue, folded: u64, unfolded: u64) {
    let mut held = Held::new(&KEYSPACE);
    held.acquire(Want::All);
    let conditions = Conditions { now: UnixMs(1), expiry_mode: ExpiryMode::Keep, no_touch: true };
    let mut effects = NoEffects;
    let mut txn = Txn::new(&mut held, conditions, &mut effects);
    let key = txn.key(b"k");
    let before = used_bytes();
    let loaded = isotherm_codec::load(&mut txn, Db(0), &key, (code, value), &Layout::default());
    let used = used_bytes().saturating_sub(before);
    loaded.expect("it is small");
    assert!(used <= (FACTOR * folded).max(unfolded) + SLACK_BYTES, "{used} B of {folded} B");
    txn.remove(Db(0), &key);
}

fuzz_target!(|input: &[u8]| {
    let [code, version, bytes @ ..] = input else { return };
    let Ok((value, taken)) = decode(*code, u16::from(*version), bytes, &LIMITS) else { return };
    assert!(taken <= bytes.len());
    value.check_invariants();
    let mut unfolded = 0;
    for encoding in [Encoding::Plain, Encoding::Listpack] {
        let mut writer = Writer::new(bytes.len() % 2 == 0);
        encode(&mut writer, &value, encoding, &Shape::default());
        let written = writer.into_bytes();
        let (again, taken) = decode(written[0], 80, &written[1..], &Limits::default()).expect("just written");
        assert_eq!(taken, written.len() - 1);
        assert_eq!(again, value);
        let mut plain = Writer::new(false);
        encode(&mut plain, &value, encoding, &Shape::default());
        unfolded = unfolded.max(plain.bytes().len() as u64);
    }
    load(*code, &value, taken as u64, unfolded);
});
