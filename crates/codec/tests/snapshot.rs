//! A snapshot that is walked while everything changes, written and loaded again, is the state at its cut; and
//! what the writer holds meanwhile does not follow the size of a value.

use isotherm_allocator as allocator;
use isotherm_codec::{FileTerms, ItemWriter, Portions, add_value, dump, load_piece, mix, xor};
use isotherm_keyspace::*;
use isotherm_persist::dump::Checks;
use isotherm_persist::rdb::Writer;
use isotherm_persist::rdb::file::{FileReader, FileVersion, Item, Options, Step};
use isotherm_persist::{Chunks, Dump, Limits as ReadLimits};
use isotherm_stdx::Prng;
use isotherm_stdx::sha1::Digest;
use std::sync::{Mutex, PoisonError};

/// Memory is counted for the whole process: one test after the other.
static TURN: Mutex<()> = Mutex::new(());

const DATABASES: u16 = 3;
const START: i64 = 1_700_000_000_000;
const LATER: UnixMs = UnixMs(START + 1_000_000_000);

fn keyspace(partitions: usize) -> Keyspace {
    let config = Config {
        partitions,
        arenas: 1,
        databases: DATABASES,
        reserve_bytes: 2 << 30,
        hash_secret: [7; 16],
        class_bytes: |bytes| bytes,
    };
    Keyspace::new(config).expect("address space")
}

fn with_txn<R>(keyspace: &Keyspace, work: impl FnOnce(&mut Txn<'_, '_>) -> R) -> R {
    let mut held = Held::new(keyspace);
    held.acquire(Want::All);
    let conditions = Conditions { now: UnixMs(START), expiry_mode: ExpiryMode::Keep, no_touch: true };
    let mut effects = NoEffects;
    work(&mut Txn::new(&mut held, conditions, &mut effects))
}

/// Returns the DEBUG DIGEST of the keys that `is_meant` selects.
fn digest(keyspace: &Keyspace, is_meant: impl Fn(&[u8]) -> bool) -> Digest {
    let mut all = Digest::default();
    with_txn(keyspace, |txn| {
        for db in (0..DATABASES).map(Db) {
            let mut keys = Vec::new();
            txn.for_each_key(db, None, |key| keys.push(key.to_vec()));
            for bytes in keys.into_iter().filter(|key| is_meant(key)) {
                let key = txn.key(&bytes);
                let entry = txn.find(db, &key, Lookup::Silent).expect("it was just listed");
                let mut own = Digest::default();
                mix(&mut own, &db.0.to_be_bytes());
                mix(&mut own, &bytes);
                add_value(&mut own, &entry);
                xor(&mut all, &own);
            }
        }
    });
    all
}

fn text_of(number: u64) -> Vec<u8> {
    match number % 40 {
        0 => vec![b'l'; 600 + number as usize % 900],
        1 if number % 400 == 1 => vec![b'L'; 9000],
        2..20 => number.to_string().into_bytes(),
        _ => format!("element:{number}").into_bytes(),
    }
}

/// Makes a random change: of a string or a collection of any type and size, or of a whole database.
fn change(keyspace: &Keyspace, prng: &mut Prng, names: u64) {
    let db = Db(prng.below(u64::from(DATABASES)) as u16);
    let kind = prng.below(6);
    let name = format!("{{{}}}{kind}:{}", prng.below(40), prng.below(4)).into_bytes();
    let count = *prng.pick(&[1, 3, 20, 200]);
    let from = prng.below(names);
    let limits = Limits::default();
    with_txn(keyspace, |txn| {
        let key = txn.key(&name);
        match prng.below(60) {
            0 => _ = txn.remove(db, &key),
            1 => _ = txn.set_expiry(db, &key, prng.one_in(2).then_some(LATER)),
            2 if prng.one_in(30) => _ = txn.flush(Some(db)),
            _ => edit(txn, db, &key, kind, &limits, from..from + count, prng),
        }
    });
}

fn edit(
    txn: &mut Txn<'_, '_>,
    db: Db,
    key: &Key<'_>,
    kind: u64,
    limits: &Limits,
    mut numbers: std::ops::Range<u64>,
    prng: &mut Prng,
) {
    let removes = prng.one_in(3);
    match kind {
        0 => _ = txn.set(db, key, NewValue::encode(&text_of(numbers.start)), Expiry::Keep).expect("room"),
        1 => {
            _ = txn
                .edit_hash(db, key, limits, |hash| {
                    numbers.for_each(|n| match removes {
                        true => _ = hash.remove(&text_of(n), true),
                        false => {
                            let at = (n % 11 == 0).then_some(LATER);
                            hash.set(&text_of(n), &text_of(n * 3), at, false).expect("room");
                        }
                    });
                })
                .expect("a hash")
        }
        2 => {
            _ = txn
                .edit_set(db, key, limits, |set| {
                    numbers.for_each(|n| match removes {
                        true => _ = set.remove(&text_of(n)),
                        false => _ = set.add(&text_of(n)).expect("room"),
                    });
                })
                .expect("a set")
        }
        3 => {
            _ = txn
                .edit_zset(db, key, limits, |zset| match removes {
                    true => {
                        let rank = prng.below(zset.len() + 1);
                        zset.remove_range(rank, (numbers.end - numbers.start).min(zset.len() - rank));
                    }
                    false => {
                        numbers.for_each(|n| _ = zset.set(&text_of(n), (n % 97) as f64 / 2.0).expect("room"))
                    }
                })
                .expect("a sorted set")
        }
        4 => {
            _ = txn
                .edit_list(db, key, limits, |list| match removes {
                    true => {
                        let count = (numbers.end - numbers.start).min(list.len());
                        list.remove(prng.below(list.len() - count + 1), count).expect("room");
                    }
                    false => numbers.for_each(|n| {
                        let end = if n % 3 == 0 { End::Front } else { End::Back };
                        list.push(end, std::iter::once(&*text_of(n))).expect("room");
                    }),
                })
                .expect("a list")
        }
        _ => {
            _ = txn
                .edit_stream(db, key, limits, |stream| {
                    if removes && !stream.is_absent() {
                        let kept = stream.len().saturating_sub(numbers.end - numbers.start);
                        stream.trim(Trim::Len(kept), false, 0).expect("room");
                        return;
                    }
                    stream.create().expect("room");
                    if stream.group_mut(b"g").is_none() {
                        stream.add_group(b"g", ConsumerGroup::new(StreamId::MIN, Some(0)));
                    }
                    let first = stream.state().last_id.ms + 1;
                    for (at, n) in numbers.by_ref().enumerate() {
                        let other: &[u8] = if n % 9 == 0 { b"other" } else { b"field" };
                        let id = StreamId { ms: first + at as u64, seq: 0 };
                        stream.add(id, &[b"name", &text_of(n), other, b"1"]).expect("room");
                    }
                })
                .expect("a stream")
        }
    }
}

/// Passes items on, and asserts that a collection comes in one piece.
#[derive(Default)]
struct Contiguity {
    is_open: bool,
    collections: u64,
}

impl Contiguity {
    fn see(&mut self, item: &SnapshotItem<'_>) {
        match item {
            SnapshotItem::Entry(_) => assert!(!self.is_open, "an entry within a collection"),
            SnapshotItem::Begin { .. } => {
                assert!(!std::mem::replace(&mut self.is_open, true), "a collection within a collection");
                self.collections += 1;
            }
            SnapshotItem::Part(_) => assert!(self.is_open, "a part of nothing"),
            SnapshotItem::Bundle(_) | SnapshotItem::Node(_) => panic!("nothing left memory"),
            SnapshotItem::End => assert!(std::mem::replace(&mut self.is_open, false)),
        }
    }
}

/// `bytes` are a file but for its magic and its sum.
fn load(bytes: &[u8], partitions: usize) -> Keyspace {
    let loaded = keyspace(partitions);
    let options =
        Options { limits: ReadLimits::default(), strict_version: true, checksum: false, references: false };
    let mut reader = FileReader::new(options);
    reader.feed(&FileVersion::FIELD_EXPIRY.magic());
    let mut parts = bytes.chunks(10_000);
    let limits = Limits::default();
    let terms = FileTerms { limits: &limits, keeps_from: Some(UnixMs(START)), replaces: false };
    with_txn(&loaded, |txn| {
        loop {
            match reader.step().expect("it was just written") {
                Step::End => break,
                Step::NeedsMore => match parts.next() {
                    Some(part) => reader.feed(part),
                    None => reader.feed(&[0; 8]),
                },
                Step::Item(Item::Piece(piece)) => {
                    let db = Db(piece.key.db as u16);
                    load_piece(txn, db, &piece, &terms).expect("there is room, and a key is written once");
                }
                Step::Item(_) => {}
            }
        }
    });
    loaded
}

#[test]
fn what_is_loaded_is_the_state_at_the_cut() {
    let _turn = TURN.lock().unwrap_or_else(PoisonError::into_inner);
    let mut collections = 0;
    for seed in 0..8 {
        let (source, mut prng) = (keyspace(if seed % 2 == 0 { 1 } else { 8 }), Prng::new(seed));
        let names = [60, 2000][seed as usize / 2 % 2];
        (0..1500).for_each(|_| change(&source, &mut prng, names));
        for round in 0..4 {
            let first = if round < 2 { 0 } else { prng.below(16000) as u16 };
            let slots = first..=if round < 2 { 16383 } else { (first + 3000).min(16383) };
            let is_meant = |key: &[u8]| slots.contains(&Slot::of_key(key).get());
            let cut = digest(&source, is_meant);
            let mut snapshot = source.snapshot_of(slots.clone()).expect("none is under way");
            let mut writer = ItemWriter::new(Writer::new(seed % 3 == 0), -2);
            let (mut contiguity, mut steps) = (Contiguity::default(), 0);
            let items_max = 1 + prng.below(400);
            let aborts = round == 1;
            while snapshot.step(items_max, &mut |item| {
                contiguity.see(&item);
                writer.item(item);
            }) && !(aborts && steps == 20)
            {
                (0..prng.below(6)).for_each(|_| change(&source, &mut prng, names));
                steps += 1;
            }
            if aborts {
                snapshot.abort();
                continue;
            }
            assert!(!contiguity.is_open);
            collections += contiguity.collections;
            let loaded = load(&writer.finish(), if seed % 3 == 0 { 1 } else { 4 });
            assert_eq!(digest(&loaded, |_| true), cut, "seed {seed}, round {round}");
            loaded.check_invariants();
        }
        source.check_invariants();
    }
    assert!(collections > 50, "large collections were among them: {collections}");
}

/// A payload in portions is the value: it has the same bytes as in one go, where elements have an order, else
/// the same value.
#[test]
fn a_payload_in_portions_is_the_value() {
    let _turn = TURN.lock().unwrap_or_else(PoisonError::into_inner);
    let (source, mut prng) = (keyspace(1), Prng::new(77));
    (0..4000).for_each(|_| change(&source, &mut prng, 30_000));
    let limits = Limits::default();
    with_txn(&source, |txn| {
        let key = txn.key(b"long");
        txn.set(Db(0), &key, NewValue::encode(&[b'x'; 500_000]), Expiry::Keep).expect("there is room");
    });
    for kind in (0..6).flat_map(|kind| [kind; 4]) {
        with_txn(&source, |txn| {
            let name = format!("large:{kind}");
            let key = txn.key(name.as_bytes());
            edit(txn, Db(0), &key, kind, &limits, 0..20_000, &mut prng);
        });
    }
    let (mut portions, mut written, mut holds) = (Portions::new(&limits, true), 0, 0);
    for db in (0..DATABASES).map(Db) {
        let mut keys = Vec::new();
        with_txn(&source, |txn| txn.for_each_key(db, None, |key| keys.push(key.to_vec())));
        for name in keys {
            let write = |portions: &mut Portions| {
                with_txn(&source, |txn| {
                    let key = txn.key(&name);
                    portions.write(&txn.find(db, &key, Lookup::Silent).expect("it is there").value)
                })
            };
            if prng.one_in(5) {
                write(&mut portions);
                portions.abandon();
            }
            while !write(&mut portions) {
                holds += 1;
            }
            let payload = portions.take().expect("no field has expired").concat();
            with_txn(&source, |txn| {
                let key = txn.key(&name);
                let entry = txn.find(db, &key, Lookup::Silent).expect("it is there");
                let whole = dump(&entry, &limits, true).expect("it is not empty");
                if !matches!(entry.kind(), Type::Hash | Type::Set) {
                    assert!(payload == whole, "{}", name.escape_ascii());
                }
                assert_eq!(payload.len(), whole.len());
                // The digest says of a key that it expires.
                let expiry = entry.expiry;
                let mut before = Digest::default();
                add_value(&mut before, &entry);
                let opened = Dump::open(&payload, Checks::default()).expect("it is sealed");
                let value = opened.value(&ReadLimits::default()).expect("it is whole");
                let copy = txn.key(b"copy");
                txn.remove(db, &copy);
                isotherm_codec::load(txn, db, &copy, (opened.code(), &value), &limits)
                    .expect("there is room");
                txn.set_expiry(db, &copy, expiry).expect("there is room");
                let mut after = Digest::default();
                add_value(&mut after, &txn.find(db, &copy, Lookup::Silent).expect("it was loaded"));
                assert!(before == after, "{}", name.escape_ascii());
                txn.remove(db, &copy);
            });
            written += 1;
        }
    }
    assert!(written > 200 && holds > 50, "{written} {holds}");
}

/// A list of 64 MB, or of as many as ISOTHERM_LIST_MB says, is written in little memory.
#[test]
fn a_list_is_written_in_little_memory() {
    let _turn = TURN.lock().unwrap_or_else(PoisonError::into_inner);
    let megabytes: u64 =
        std::env::var("ISOTHERM_LIST_MB").ok().map_or(64, |text| text.parse().expect("a number"));
    let source = keyspace(1);
    let element = |n: u64| format!("{n:08}:{}", "x".repeat(991)).into_bytes();
    with_txn(&source, |txn| {
        let key = txn.key(b"list");
        let pushed = txn.edit_list(Db(0), &key, &Limits::default(), |list| {
            for n in 0..megabytes * 1000 {
                list.push(End::Back, std::iter::once(&*element(n))).expect("there is room");
            }
        });
        pushed.expect("it is a list");
    });
    for as_view in [false, true] {
        let (mut bytes, mut peak) = (0, 0);
        let before = allocator::allocated_bytes();
        let sink = Chunks::new(|chunk: &[u8]| {
            bytes += chunk.len() as u64;
            peak = peak.max(allocator::allocated_bytes().saturating_sub(before));
        });
        let mut writer = ItemWriter::new(Writer::over(sink, true), -2);
        if as_view {
            with_txn(&source, |txn| {
                let key = txn.key(b"list");
                writer.value(&txn.find(Db(0), &key, Lookup::Silent).expect("it is there").value);
            });
        } else {
            let mut snapshot = source.snapshot().expect("none is under way");
            while snapshot.step(500, &mut |item| writer.item(item)) {}
        }
        writer.finish().flush();
        println!("{megabytes} MB, as a view {as_view}: {bytes} B, at most {peak} B beside them");
        assert!(bytes > megabytes * 10_000, "all of it was written: {bytes}");
        assert!(peak > 0 && peak < 1 << 20, "{peak} B");
    }
}
