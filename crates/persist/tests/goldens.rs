//! DUMPs of a real Valkey 9.1.2: each is read, and written again to the same bytes.

mod payloads;

use isotherm_persist::dump::{self, Checks, Dump};
use isotherm_persist::rdb::{Encoding, RdbType, RdbValue, Shape, Writer, encode};
use isotherm_persist::{Limits, Texts};
use payloads::{Golden, bytes, goldens};

fn read(payload: &[u8]) -> RdbValue {
    let dump = Dump::open(payload, Checks::default()).expect("a sound envelope");
    let value = dump.value(&Limits::default()).expect("a sound value");
    value.check_invariants();
    value
}

fn golden(name: &str) -> RdbValue {
    read(&goldens().into_iter().find(|golden| golden.name == name).expect("a golden of this name").payload)
}

fn encoding_of(code: u8) -> Encoding {
    let listpacks = [RdbType::SetListpack, RdbType::ZsetListpack, RdbType::HashListpack];
    if code == RdbType::SetIntset as u8 {
        Encoding::Intset
    } else if listpacks.iter().any(|&kind| kind as u8 == code) {
        Encoding::Listpack
    } else {
        Encoding::Plain
    }
}

#[test]
fn what_is_read_is_written_to_the_same_bytes() {
    let mut writer = Writer::new(true);
    for golden in goldens() {
        let (name, payload) = (golden.name, &golden.payload);
        let value = read(payload);
        let list_size = if name == "list-by-count" { 3 } else { -2 };
        writer.clear();
        encode(&mut writer, &value, encoding_of(payload[0]), &Shape { list_size });
        let body = golden.body();
        // Entries that were deleted from this one leave marks in Valkey's bytes.
        if name != "stream-groups" {
            assert_eq!(hex(writer.bytes()), hex(body), "{name}");
        }
        assert_eq!(read(&dump::seal(writer.bytes().to_vec())), value, "{name}");
    }
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

#[test]
fn versions_are_the_lowest_that_will_do() {
    let mut writer = Writer::new(true);
    for Golden { name, payload } in goldens() {
        writer.clear();
        encode(&mut writer, &read(&payload), encoding_of(payload[0]), &Shape::default());
        let sealed = dump::seal(writer.bytes().to_vec());
        let version = Dump::open(&sealed, Checks::default()).expect("just sealed").version();
        assert_eq!(version, if name == "hash-expiry" { 80 } else { 11 }, "{name}");
    }
}

#[test]
fn every_version_of_the_format_that_knows_a_value_writes_it_alike() {
    // Without compression and packing the bytes differ, and what they say does not.
    for golden in goldens() {
        let (name, payload) = (golden.name, &golden.payload);
        let value = read(payload);
        for encoding in [Encoding::Plain, Encoding::Listpack] {
            let mut writer = Writer::new(false);
            encode(&mut writer, &value, encoding, &Shape { list_size: 1 });
            assert_eq!(read(&dump::seal(writer.into_bytes())), value, "{name}");
        }
    }
}

fn texts(texts: &[&[u8]]) -> Texts {
    texts.iter().copied().collect()
}

#[test]
fn values_are_what_they_were() {
    assert_eq!(golden("string-i32"), RdbValue::String(b"-2147483648".to_vec()));
    assert_eq!(golden("string-repeated"), RdbValue::String(b"ab".repeat(200)));
    assert_eq!(
        golden("list-small"),
        RdbValue::List(texts(&[b"a", b"b", b"1", b"-5", b"300", b"100000", b"10000000000", b""]))
    );
    assert_eq!(golden("set-ints64"), RdbValue::Set(texts(&[b"-10000000000", b"2", b"3"])));
    let RdbValue::Zset(zset) = golden("zset-small") else { panic!("a sorted set") };
    let scores: Vec<f64> = zset.iter().map(|(_, score)| score).collect();
    assert_eq!(scores, [f64::NEG_INFINITY, 0.0, 0.1, 1.0, 2.5, 3.0, 123456789012345.0, 1e300, f64::INFINITY]);
    let RdbValue::Hash { pairs, expiries_ms } = golden("hash-expiry") else { panic!("a hash") };
    let mut fields: Vec<_> = pairs.pairs().zip(expiries_ms).collect();
    fields.sort_by_key(|((field, _), _)| field.to_vec());
    let pair = |field: &'static [u8], value: &'static [u8], expiry_ms| ((field, value), expiry_ms);
    assert_eq!(fields, [pair(b"a", b"1", -1), pair(b"b", b"2", 4102444800000), pair(b"c", b"three", -1)]);
}

#[test]
fn groups_are_what_they_were() {
    let RdbValue::Stream(stream) = golden("stream-groups") else { panic!("a stream") };
    let ids: Vec<u64> = stream.entries().map(|entry| entry.id.ms).collect();
    assert_eq!(ids, [1, 3, 4, 5]);
    assert_eq!((stream.entries_added, stream.max_deleted_id.ms, stream.last_id.ms), (6, 6, 6));
    let [ape, zoo] = stream.groups.as_slice() else { panic!("two groups") };
    assert_eq!((ape.name.as_slice(), ape.last_id.ms, ape.entries_read), (b"ape".as_slice(), 3, -1));
    assert_eq!((zoo.last_id.ms, zoo.entries_read), (5, 5));
    let names: Vec<&[u8]> = zoo.consumers.iter().map(|consumer| consumer.name.as_slice()).collect();
    assert_eq!(names, [b"ann".as_slice(), b"bob", b"idle"]);
    let pending: Vec<(u64, usize)> = zoo.pending.iter().map(|entry| (entry.id.ms, entry.consumer)).collect();
    assert_eq!(pending, [(1, 1), (2, 1), (3, 0), (5, 0)]);
    assert_eq!(zoo.consumers[2].active_ms, -1);
}

/// Field expiries of Redis 8.0.6 are read: its version 12 counts them from the smallest one.
#[test]
fn field_expiry_of_the_other_line() {
    let check = |hex: &str, expected: &[((&str, &str), i64)]| {
        let RdbValue::Hash { pairs, expiries_ms } = read(&bytes(hex)) else { panic!("a hash") };
        let utf8 = |text: &[u8]| String::from_utf8(text.to_vec()).expect("characters");
        let mut fields: Vec<((String, String), i64)> =
            pairs.pairs().map(|(field, value)| (utf8(field), utf8(value))).zip(expiries_ms).collect();
        fields.sort();
        let fields: Vec<((&str, &str), i64)> =
            fields.iter().map(|((field, value), expiry_ms)| ((&**field, &**value), *expiry_ms)).collect();
        assert_eq!(fields, expected);
    };
    const DUE_MS: i64 = 4102444800000;
    check(
        "1900d8c32cbb030000292900000009008162020201f400d8c32cbb0300000981610201010001816302857468726565060001ff\
         0c0086da816edba816ba",
        &[(("a", "1"), -1), (("b", "2"), DUE_MS), (("c", "three"), -1)],
    );
    check(
        "1800d8c32cbb03000003000161c001060163057468726565010162c0020c00a07f5a0abeb38ee6",
        &[(("a", "1"), -1), (("b", "2"), DUE_MS), (("c", "three"), DUE_MS + 5)],
    );
}
