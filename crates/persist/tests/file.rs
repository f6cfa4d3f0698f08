//! Whole files: read in pieces of any size, cut anywhere, with any bit turned, with lengths that lie.

mod payloads;

use isotherm_persist::rdb::file::{
    self, FileCause, FileError, FileHead, FileReader, FileVersion, Item, Options, PieceValue, Step,
};
use isotherm_persist::rdb::{RdbError, Writer};
use isotherm_persist::{Limits, RdbValue};
use isotherm_stdx::Prng;
use isotherm_stdx::crc64::crc64;

const OPTIONS: Options = Options {
    limits: Limits { text_bytes_max: 1 << 20, unfolded_bytes_max: 1 << 22 },
    strict_version: true,
    checksum: true,
    references: false,
};

/// Magic, fields, what is given, end mark and sum.
fn file(version: FileVersion, body: &[u8]) -> Vec<u8> {
    let mut writer = Writer::new(true);
    let functions: &[&[u8]] = &[b"#!lua name=mylib\nserver.register_function('f', function() return 1 end)"];
    file::head(
        &mut writer,
        &FileHead {
            version,
            valkey_version: "9.1.2",
            created_seconds: 1_700_000_000,
            used_memory_bytes: 1_000_000,
            replication: None,
            log: None,
            is_aof_base: false,
            swap_log: (version.references > 0).then_some(&b"which log"[..]),
            key_secret: version.has_bundles().then_some([3; 16]),
            functions,
        },
    );
    let mut bytes = writer.into_bytes();
    bytes.extend_from_slice(body);
    bytes.push(0xff);
    let sum = crc64(0, &bytes);
    bytes.extend_from_slice(&file::end(sum));
    bytes
}

/// A key for each value, in two databases, some with expiry and stamps.
fn records(values: &[Vec<u8>]) -> Vec<u8> {
    let mut writer = Writer::new(true);
    for (number, value) in values.iter().enumerate() {
        if number == 0 || number == values.len() / 2 {
            writer.raw(&[0xfe, number as u8, 0xfb, values.len() as u8, 1]);
        }
        match number % 4 {
            0 => writer.raw(b"\xfc\x01\0\0\0\0\x01\0\0\xf8\x05"),
            1 => writer.raw(b"\xfd\xff\0\0\0\xf9\x07"),
            _ => {}
        }
        writer.byte(value[0]);
        writer.text(format!("key:{number}").as_bytes());
        writer.raw(&value[1..]);
    }
    writer.into_bytes()
}

/// Everything that a file holds, as text: pieces of one key are put together again.
fn read(bytes: &[u8], piece_bytes: impl Fn() -> usize, options: Options) -> Result<Vec<String>, FileError> {
    let mut reader = FileReader::new(options);
    let (mut seen, mut rest) = (Vec::new(), bytes);
    loop {
        match reader.step()? {
            Step::End => return Ok(seen),
            Step::NeedsMore if rest.is_empty() => reader.end(),
            Step::NeedsMore => {
                let (now, later) = rest.split_at(piece_bytes().min(rest.len()));
                reader.feed(now);
                rest = later;
            }
            Step::Item(Item::Piece(piece)) => {
                let head = format!("{:?} {}", piece.key, piece.code);
                let value = match piece.value {
                    PieceValue::Text(text) => text.escape_ascii().to_string(),
                    PieceValue::Collection(value) => elements(value),
                };
                match piece.is_first {
                    true => seen.push(format!("{head} {value}")),
                    false => seen.last_mut().expect("a first piece came").push_str(&value),
                }
            }
            Step::Item(other) => seen.push(format!("{other:?}")),
        }
    }
}

fn elements(value: &RdbValue) -> String {
    let texts = |texts: &isotherm_persist::Texts| format!("{texts:?}").replace(['[', ']'], "") + ", ";
    match value {
        RdbValue::String(_) => unreachable!("strings come as texts"),
        RdbValue::List(list) => texts(list),
        RdbValue::Set(set) => texts(set),
        RdbValue::Zset(zset) => {
            zset.iter().map(|(m, score)| format!("{} {score}, ", m.escape_ascii())).collect()
        }
        RdbValue::Hash { pairs, expiries_ms } => {
            let one = |(at, (field, value)): (usize, (&[u8], &[u8]))| {
                let expiry = expiries_ms.get(at).copied().unwrap_or(-1);
                format!("{} {} {expiry}, ", field.escape_ascii(), value.escape_ascii())
            };
            pairs.pairs().enumerate().map(one).collect()
        }
        RdbValue::Stream(stream) => {
            let entries = stream.entries().map(|entry| format!("{:?}", entry.id));
            entries.collect::<String>() + &format!("{:?}", stream.groups)
        }
    }
}

fn values() -> Vec<Vec<u8>> {
    let mut values = payloads::bodies();
    values.retain(|value| value.len() < payloads::SHORT_BYTES_MAX);
    values
}

/// Returns a value of each type that is more than a piece.
fn long_values() -> Vec<Vec<u8>> {
    let text = |n: u32| format!("element number {n}");
    let plain = |code: u8, write: &dyn Fn(&mut Writer, u32)| {
        let mut writer = Writer::new(false);
        writer.byte(code);
        writer.length(20_000);
        (0..20_000).for_each(|n| write(&mut writer, n));
        writer.into_bytes()
    };
    vec![
        plain(1, &|writer, n| writer.text(text(n).as_bytes())),
        plain(2, &|writer, n| writer.text(text(n).as_bytes())),
        plain(5, &|writer, n| {
            writer.text(text(n).as_bytes());
            writer.double(f64::from(n));
        }),
        plain(4, &|writer, n| {
            writer.text(text(n).as_bytes());
            writer.text(text(n + 1).as_bytes());
        }),
        plain(18, &|writer, n| {
            writer.length(1);
            writer.text(text(n).as_bytes());
        }),
    ]
}

#[test]
fn pieces_of_every_size_give_the_same() {
    let bytes = file(FileVersion::FIELD_EXPIRY, &records(&values()));
    let whole = read(&bytes, || bytes.len(), OPTIONS).unwrap();
    assert_eq!(whole.iter().filter(|item| item.starts_with("Key")).count(), values().len());
    for size in [1, 2, 3, 7, 64, 1000] {
        assert_eq!(read(&bytes, || size, OPTIONS).unwrap(), whole, "{size} B at a time");
    }
    let long = file(FileVersion::PLAIN, &records(&long_values()));
    let whole = read(&long, || long.len(), OPTIONS).unwrap();
    assert!(whole.iter().any(|item| item.contains("element number 19999")));
    for seed in 0..4 {
        let prng = std::cell::RefCell::new(Prng::new(seed));
        let size = || 1 + prng.borrow_mut().below(90_000) as usize;
        assert_eq!(read(&long, size, OPTIONS).unwrap(), whole, "seed {seed}");
    }
    assert_eq!(read(&long, || 1, OPTIONS).unwrap(), whole, "byte by byte");
}

#[test]
fn a_file_that_is_cut_is_short() {
    let bytes = file(FileVersion::FIELD_EXPIRY, &records(&values()));
    for end in 0..bytes.len() {
        let error = read(&bytes[..end], || 4096, OPTIONS).unwrap_err();
        assert!(error.is_short(), "cut at {end}: {error:?}");
        assert!(error.offset <= end as u64);
    }
    let keyed = read(&bytes[..bytes.len() - 20], || 4096, OPTIONS).unwrap_err();
    assert_eq!(keyed.key, Some(format!("key:{}", values().len() - 1).into_bytes()));
}

#[test]
fn no_bit_turns_unseen() {
    let mut short = values();
    short.truncate(12);
    let bytes = file(FileVersion::FIELD_EXPIRY, &records(&short));
    for bit in 0..bytes.len() * 8 {
        let mut broken = bytes.clone();
        broken[bit / 8] ^= 1 << (bit % 8);
        let error = read(&broken, || 64, OPTIONS).expect_err("the sum is wrong at last");
        // After the magic, the sum may be the first to notice, or the reading of an item.
        assert!(error.offset <= bytes.len() as u64, "bit {bit}");
        let _ = read(&broken, || 64, Options { checksum: false, ..OPTIONS });
    }
}

/// Keys whose values are elsewhere stand between others, with all that may stand in front of a key.
#[test]
fn a_base_refers_to_values() {
    let body = [
        &b"\xfe\x02\xfc\x01\0\0\0\0\x01\0\0\xf9\x07\xe0\x03key\x02"[..],
        &0x0000_0190_1234_5678_u64.to_le_bytes(),
        b"\x00\x01k\x01v\xe0\x05other\xff",
        &u64::MAX.to_le_bytes(),
        b"\xe4\x05timed\x0d",
        &0x0190_1234_5679_u64.to_le_bytes(),
        &(-5_i64).to_le_bytes(),
    ]
    .concat();
    let bytes = file(FileVersion::REFERRING, &body);
    let options = Options { references: true, ..OPTIONS };
    for piece_bytes in 1..40 {
        let mut reader = FileReader::new(options);
        let (mut pieces, mut seen, mut has_log) = (bytes.chunks(piece_bytes), Vec::new(), false);
        loop {
            match reader.step().expect("it is whole") {
                Step::End => break,
                Step::NeedsMore => match pieces.next() {
                    Some(piece) => reader.feed(piece),
                    None => reader.end(),
                },
                Step::Item(Item::Aux { name, value }) if name == file::SWAP_LOG.as_bytes() => {
                    assert_eq!(value, b"which log");
                    has_log = seen.is_empty();
                }
                Step::Item(Item::Cold { key, form_number, reference, due_ms }) => {
                    seen.push((
                        key.name.to_vec(),
                        key.db,
                        key.expiry_ms,
                        key.frequency,
                        form_number,
                        reference,
                    ));
                    assert_eq!(due_ms, (key.name == b"timed").then_some(-5));
                }
                Step::Item(Item::Piece(piece)) => {
                    seen.push((piece.key.name.to_vec(), piece.key.db, piece.key.expiry_ms, None, 0, 0));
                }
                Step::Item(_) => {}
            }
        }
        let expected = [
            (b"key".to_vec(), 2, Some(1), Some(7), 2, 0x0190_1234_5678),
            (b"k".to_vec(), 2, None, None, 0, 0),
            (b"other".to_vec(), 2, None, None, 255, u64::MAX),
            (b"timed".to_vec(), 2, None, None, 13, 0x0190_1234_5679),
        ];
        type Seen = (Vec<u8>, u64, Option<i64>, Option<u8>, u8, u64);
        let names =
            |list: &[Seen]| list.iter().map(|it| (it.0.clone(), it.1, it.3, it.4, it.5)).collect::<Vec<_>>();
        assert!(has_log);
        assert_eq!(names(&seen), names(&expected));
        assert!(seen[0].2.is_some() && seen[1].2.is_none() && seen[2].2.is_none());
    }
    // By itself it is no file, and what is not known yet is refused.
    assert_eq!(read(&bytes, || 64, OPTIONS).unwrap_err().cause, FileCause::Refers);
    let later = [b"ISOTHERM3", &bytes[9..]].concat();
    assert!(matches!(read(&later, || 64, options).unwrap_err().cause, FileCause::Version(_)));
    for code in (0xe1..=0xf2).filter(|code| *code != 0xe4) {
        let body = [0xfe, 0, code, 1, b'k', 1, b'v'];
        let error = read(&file(FileVersion::REFERRING, &body), || 64, options).unwrap_err();
        assert!(matches!(error.cause, FileCause::UnreadType { .. }), "{code}: {error:?}");
    }
    // In a plain file there are no references.
    assert!(read(&file(FileVersion::FIELD_EXPIRY, &body), || 64, options).is_err());
    for cut in 0..bytes.len() {
        assert!(read(&bytes[..cut], || 7, options).is_err(), "{cut}");
    }
}

/// A bundle has no key, and what may stand in front of one is its bound.
#[test]
fn a_base_refers_to_bundles() {
    let reference = 0x0190_1234_5678_u64;
    let bundle =
        [&b"\xe1\x01\0\0\0\x80\x22\x11"[..], &reference.to_le_bytes(), b"\x03\0\x01\0\x01\x02\0\0\xff\xff"]
            .concat();
    let none = [&b"\xe1\0\0\0\0\0\0\0"[..], &u64::MAX.to_le_bytes(), &[0; 4]].concat();
    let body = [&b"\xfe\x02\xfc\x07\0\0\0\0\0\0\0"[..], &bundle, b"\x00\x01k\x01v", &none].concat();
    let bytes = file(FileVersion::REFERRING_TO_BUNDLES, &body);
    let options = Options { references: true, ..OPTIONS };
    for piece_bytes in 1..40 {
        let mut reader = FileReader::new(options);
        let (mut pieces, mut seen, mut has_secret) = (bytes.chunks(piece_bytes), Vec::new(), false);
        loop {
            match reader.step().expect("it is whole") {
                Step::End => break,
                Step::NeedsMore => match pieces.next() {
                    Some(piece) => reader.feed(piece),
                    None => reader.end(),
                },
                Step::Item(Item::Aux { name, value }) if name == file::SWAP_KEY_SECRET.as_bytes() => {
                    assert_eq!(value, [3; 16]);
                    has_secret = true;
                }
                Step::Item(Item::Bundle(found)) => {
                    let (place, prints) = ((found.db, found.name, found.slot), found.prints.to_vec());
                    let volatile = (found.volatile, found.bound_ms);
                    seen.push((place, found.reference, volatile, found.keys(), prints));
                }
                Step::Item(Item::Piece(piece)) => assert_eq!(piece.key.expiry_ms, None),
                Step::Item(_) => {}
            }
        }
        let first = ((2, [1, 0, 0, 0, 0x80], 0x1122), reference, (1, Some(7)), 2);
        let prints = vec![[1, 2], [0, 0], [255, 255]];
        let second = ((2, [0; 5], 0), u64::MAX, (0, None), 0);
        assert!(has_secret);
        assert_eq!(
            seen,
            [(first.0, first.1, first.2, first.3, prints), (second.0, second.1, second.2, second.3, vec![])]
        );
    }
    // A version that only knows values elsewhere does not begin with it.
    let older = file(FileVersion::REFERRING, &body);
    let error = read(&older, || 64, options).unwrap_err();
    assert!(matches!(error.cause, FileCause::UnreadType { code: 0xe1, .. }), "{error:?}");
    assert_eq!(read(&bytes, || 64, OPTIONS).unwrap_err().cause, FileCause::Refers);
    for cut in 0..bytes.len() {
        assert!(read(&bytes[..cut], || 7, options).is_err(), "{cut}");
    }
    for code in (0xe2..=0xf2).filter(|code| *code != 0xe4) {
        let body = [0xfe, 0, code, 1, b'k', 1, b'v'];
        let error = read(&file(FileVersion::REFERRING_TO_BUNDLES, &body), || 64, options).unwrap_err();
        assert!(matches!(error.cause, FileCause::UnreadType { .. }), "{code}: {error:?}");
    }
}

#[test]
fn damaged_files_never_panic() {
    let values = values();
    for seed in 0..5_000 {
        let mut prng = Prng::new(seed);
        let value = payloads::damaged(&mut prng, &values);
        let bytes = file(FileVersion::FIELD_EXPIRY, &records(&[value]));
        let piece = 1 + prng.below(200) as usize;
        let _ = read(&bytes, || piece, OPTIONS);
    }
}

#[test]
fn lengths_that_lie_take_no_memory() {
    let huge = b"\x81\x7f\xff\xff\xff\xff\xff\xff\xff";
    for code in [0u8, 1, 2, 3, 4, 5, 9, 10, 14, 16, 18, 20, 21, 22] {
        let body = [&[0xfe, 0, code, 1, b'k'], huge.as_slice(), &[1, b'a', 1, b'b']].concat();
        let error = read(&file(FileVersion::FIELD_EXPIRY, &body), || 10, OPTIONS).unwrap_err();
        assert_eq!(error.key.as_deref(), Some(b"k".as_slice()), "type {code}");
        assert!(matches!(error.cause, FileCause::Value(_)), "type {code}: {error:?}");
    }
    let key = [&[0xfe, 0, 0], huge.as_slice()].concat();
    let error = read(&file(FileVersion::PLAIN, &key), || 10, OPTIONS).unwrap_err();
    assert_eq!((error.key, error.cause), (None, FileCause::Value(RdbError::TooLarge)));
}

#[test]
fn what_is_not_read_is_named() {
    let error = |bytes: &[u8]| read(bytes, || 7, OPTIONS).unwrap_err();
    let of = |version: FileVersion, body: &[u8]| error(&file(version, body));
    let redis = |number| FileVersion { number, is_valkey: false, references: 0 };
    assert_eq!(error(b"VCS\x01 compressed").cause, FileCause::Envelope);
    assert_eq!(error(b"PK\x03\x04 and more").cause, FileCause::Signature(*b"PK\x03\x04 and "));
    assert_eq!(error(b"REDIS0015\xff").cause, FileCause::Version(redis(15)));
    assert!(error(b"REDIS").is_short());
    let foreign = of(redis(14), b"\xfe\0\x1b\x01k");
    assert!(foreign.cause.to_string().contains("negative acknowledgements"), "{}", foreign.cause);
    assert_eq!(of(redis(13), b"\xfe\0\xf3\x01").cause, FileCause::KeyMetadata);
    assert_eq!(of(FileVersion::FIELD_EXPIRY, b"\xfe\0\xf3\x01").cause, FileCause::SlotImport);
    assert_eq!(of(FileVersion::PLAIN, b"\xf6\x01a").cause, FileCause::OldFunctions);
    let hash = of(FileVersion::PLAIN, b"\xfe\0\x16\x01k\x01\x01f\x01v\xff\xff\xff\xff\xff\xff\xff\xff");
    assert!(matches!(hash.cause, FileCause::UnreadType { code: 22, .. }), "{hash:?}");
    assert!(matches!(
        of(FileVersion::PLAIN, b"\xfe\0\x64\x01k").cause,
        FileCause::UnreadType { code: 100, .. }
    ));
    let id = b"bloomtype".iter().fold(0u64, |id, &byte| id << 6 | u64::from(byte - b'a' + 26)) << 10;
    let module = [b"\xfe\0\x07\x01k\x81".as_slice(), &id.to_be_bytes()].concat();
    let module = of(FileVersion::PLAIN, &module);
    assert_eq!(module.cause, FileCause::Value(RdbError::Module("bloomtype".into())));
    assert_eq!(module.key.as_deref(), Some(b"k".as_slice()));
    let aux = [b"\xf7\x81".as_slice(), &id.to_be_bytes()].concat();
    assert_eq!(of(FileVersion::PLAIN, &aux).cause, FileCause::ModuleAux("bloomtype".into()));
    assert_eq!(of(FileVersion::PLAIN, b"\xfa\x09slot-info\x031,2").cause, FileCause::SlotInfo);
    assert!(read(&file(FileVersion::PLAIN, b"\xfa\x09slot-info\x051,2,3"), || 9, OPTIONS).is_ok());
    let mut unsummed = file(FileVersion::PLAIN, b"");
    let sum_at = unsummed.len() - 8;
    unsummed[sum_at..].fill(0);
    assert_eq!(read(&unsummed, || 9, OPTIONS).unwrap().last().unwrap(), "NoChecksum");
    unsummed[sum_at] = 1;
    assert!(matches!(error(&unsummed).cause, FileCause::Checksum { stored: 1, .. }));
}

#[test]
fn hashes_with_expiry_of_the_other_line() {
    let version = FileVersion { number: 12, is_valkey: false, references: 0 };
    let smallest = 1_900_000_000_000i64.to_le_bytes();
    let body = [b"\xfe\0\x18\x01h".as_slice(), &smallest, b"\x02\x00\x01a\x011\x06\x01b\x012"].concat();
    let items = read(&file(version, &body), || 3, OPTIONS).unwrap();
    assert!(items.last().unwrap().ends_with("a 1 -1, b 2 1900000000005, "), "{items:?}");
}
