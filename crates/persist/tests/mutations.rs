//! Damaged payloads: each gives an error or a value that holds what values promise, and never a panic
//! or memory that nothing backs. Seeded; a failure names its seed.

mod payloads;

use std::panic::{AssertUnwindSafe, catch_unwind};

use isotherm_persist::dump::{self, Checks, Dump};
use isotherm_persist::rdb::{Encoding, RdbValue, Shape, Writer, encode};
use isotherm_persist::{Limits, Texts};
use isotherm_stdx::Prng;
use payloads::OLD;

/// Returns payloads that Valkey writes, the same in the plain encoding of their types, and forms that it
/// wrote once.
fn payloads() -> Vec<Vec<u8>> {
    let plain = payloads::goldens().into_iter().filter_map(|golden| {
        let payload = dump::seal(golden.body().to_vec());
        let value = Dump::open(&payload, Checks::default()).ok()?.value(&Limits::default()).ok()?;
        let mut writer = Writer::new(false);
        encode(&mut writer, &value, Encoding::Plain, &Shape { list_size: 2 });
        Some(writer.into_bytes())
    });
    let mut all: Vec<Vec<u8>> = payloads::bodies().into_iter().chain(plain).collect();
    all.retain(|bytes| bytes.len() < payloads::SHORT_BYTES_MAX);
    all
}

/// True if the damage went unnoticed.
fn survive(bytes: Vec<u8>) -> bool {
    let payload = dump::seal(bytes);
    let limits = Limits { text_bytes_max: 1 << 20, unfolded_bytes_max: 1 << 22 };
    let Ok(dump) = Dump::open(&payload, Checks { version: false, checksum: true }) else { return false };
    let Ok(value) = dump.value(&limits) else { return false };
    value.check_invariants();
    // A value that was accepted is written and read like any other value.
    let mut writer = Writer::new(true);
    encode(&mut writer, &value, Encoding::Plain, &Shape::default());
    let again = dump::seal(writer.into_bytes());
    let read = Dump::open(&again, Checks::default()).expect("a sound envelope").value(&Limits::default());
    assert_eq!(read.expect("what was written is sound"), value);
    true
}

fn damage(payloads: &[Vec<u8>], seeds: std::ops::Range<u64>) -> u64 {
    let mut unnoticed = 0;
    for seed in seeds {
        let bytes = payloads::damaged(&mut Prng::new(seed), payloads);
        let survived = catch_unwind(AssertUnwindSafe(|| survive(bytes.clone())));
        unnoticed += u64::from(survived.unwrap_or_else(|_| panic!("seed {seed}: {}", bytes.escape_ascii())));
    }
    unnoticed
}

#[test]
fn thousands_of_damaged_payloads() {
    let unnoticed = damage(&payloads(), 0..20_000);
    assert!(unnoticed > 1_000, "too few mutations reach the depths: {unnoticed}");
}

/// `cargo test --release -p isotherm-persist --test mutations -- --ignored`
#[test]
#[ignore = "seconds, with --release"]
fn a_million_damaged_payloads() {
    damage(&payloads(), 1_000_000..2_000_000);
}

#[test]
fn what_every_old_encoding_holds() {
    let check = |bytes: &[u8], expected: RdbValue| {
        let payload = dump::seal(bytes.to_vec());
        let value = Dump::open(&payload, Checks::default()).unwrap().value(&Limits::default());
        assert_eq!(value, Ok(expected), "{}", bytes.escape_ascii());
    };
    let texts = |texts: &[&[u8]]| texts.iter().copied().collect::<Texts>();
    check(OLD[0], RdbValue::List(texts(&[b"a", b"5"])));
    let RdbValue::Zset(zset) = decoded(OLD[1]) else { panic!("a sorted set") };
    assert_eq!(zset.iter().collect::<Vec<_>>(), [(b"a".as_slice(), 1.5), (b"b", f64::INFINITY)]);
    let hash = |pairs: &[&[u8]]| RdbValue::Hash { pairs: texts(pairs), expiries_ms: Vec::new() };
    check(OLD[2], hash(&[b"keel", b"elm", b"mast", b"oak"]));
    check(OLD[3], RdbValue::List(texts(&[b"7", b"11"])));
    let RdbValue::Zset(zset) = decoded(OLD[4]) else { panic!("a sorted set") };
    assert_eq!(zset.iter().collect::<Vec<_>>(), [(b"7".as_slice(), 11.0)]);
    check(OLD[5], hash(&[b"7", b"11"]));
    check(OLD[6], RdbValue::List(texts(&[b"7", b"11"])));
}

fn decoded(bytes: &[u8]) -> RdbValue {
    let payload = dump::seal(bytes.to_vec());
    Dump::open(&payload, Checks::default()).unwrap().value(&Limits::default()).unwrap()
}

#[test]
fn values_that_no_key_can_hold() {
    use isotherm_persist::RdbError;
    use isotherm_persist::dump::DumpError;
    let refused = |bytes: &[u8]| {
        let payload = dump::seal(bytes.to_vec());
        match Dump::open(&payload, Checks::default()).and_then(|dump| dump.value(&Limits::default())) {
            Err(DumpError::Value(error)) => error,
            other => panic!("{other:?}"),
        }
    };
    for bytes in [
        b"\x01\0".as_slice(),
        b"\x02\0",
        b"\x03\0",
        b"\x04\0",
        b"\x05\0",
        b"\x12\0",
        b"\x14\x07\x07\0\0\0\0\0\xff",
    ] {
        assert_eq!(refused(bytes), RdbError::Empty, "{bytes:x?}");
    }
    assert!(matches!(refused(b"\x02\x02\x01a\x01a"), RdbError::Corrupt(_)));
    assert!(matches!(refused(b"\x05\x01\x01a\0\0\0\0\0\0\xf8\x7f"), RdbError::Corrupt(_)), "NaN");
    assert!(matches!(refused(b"\x03\x01\x01a\xfd"), RdbError::Corrupt(_)), "NaN");
    assert_eq!(refused(b"\x08\0"), RdbError::UnknownType(8));
    let mut module = b"\x07\x81".to_vec();
    module.extend_from_slice(
        &(b"bloomtype".iter().fold(0, |id, &character| id << 6 | u64::from(character - b'a' + 26)) << 10)
            .to_be_bytes(),
    );
    assert_eq!(refused(&module), RdbError::Module("bloomtype".to_string()));
    assert_eq!(refused(b"\x02\x81\x0f\xff\xff\xff\xff\xff\xff\xff\x01a"), RdbError::Short);
}
