//! Keys that are gathered and built together are there as if each had been stored by itself.

use crate::support::*;
use isotherm_keyspace::*;
use isotherm_stdx::Prng;
use std::collections::BTreeMap;

const KEYS: u32 = if cfg!(miri) { 300 } else { 60_000 };

type Text = (Vec<u8>, Option<i64>);
type Strings = BTreeMap<Vec<u8>, Text>;

/// Names of all lengths that are gathered, some with one hash tag.
fn strings(seed: u64, tagged: bool) -> Strings {
    let mut prng = Prng::new(seed);
    (0..KEYS)
        .map(|number| {
            let tag = if tagged && prng.below(3) > 0 { "{tag}" } else { "" };
            let name = format!("{tag}{number:0width$}", width = 1 + prng.below(40) as usize);
            let text = match prng.below(3) {
                0 => prng.next_u64().to_string().into_bytes(),
                _ => vec![b'v'; prng.below(150) as usize],
            };
            let expiry = prng.one_in(4).then(|| START + prng.below(1 << 45) as i64);
            (name.into_bytes(), (text, expiry))
        })
        .collect()
}

fn new_string<'a>((key, (text, expiry)): &'a (Vec<u8>, (Vec<u8>, Option<i64>))) -> NewString<'a> {
    NewString { key, text, expiry: expiry.map(UnixMs), note: None }
}

/// Gathers all, in batches, and builds them.
fn load(keyspace: &Keyspace, db: Db, strings: &Strings) -> Result<(), BuildError> {
    let mut all: Vec<_> = strings.clone().into_iter().collect();
    let mut prng = Prng::new(1);
    (1..all.len()).for_each(|at| all.swap(at, prng.below(at as u64 + 1) as usize));
    let (mut staging, mut builder) =
        (Staging::new(keyspace, db, UnixMs(START), Repeats::Refused), Builder::default());
    let mut built = Ok(());
    for batch in all.chunks(5000) {
        for number in staging.add(batch.len(), |number| new_string(&batch[number])).to_vec() {
            let group = staging.take(number);
            built = built.and_then(|()| keyspace.build(&group, &mut builder, UnixMs(START)));
        }
    }
    for number in 0..STAGED_GROUPS {
        let group = staging.take(number);
        built = built.and_then(|()| keyspace.build(&group, &mut builder, UnixMs(START)));
    }
    assert_eq!(staging.bytes(), 0);
    built
}

fn check(keyspace: &Keyspace, strings: &Strings) {
    keyspace.check_invariants();
    let expected: State = strings
        .iter()
        .map(|(name, (text, expiry))| {
            let stored = match std::str::from_utf8(text).ok().and_then(|text| text.parse().ok()) {
                Some(int) => Stored::Int(int),
                None => Stored::Bytes(text.clone()),
            };
            ((0, name.clone()), (stored, *expiry))
        })
        .collect();
    assert!(dump(keyspace) == expected, "the same keys with the same values");
}

#[test]
fn what_is_gathered_is_there() {
    for (partitions, tagged) in [(1, false), (32, false), (32, true)] {
        for access in [AccessMode::Page, AccessMode::Lru, AccessMode::Lfu] {
            let keyspace = keyspace(partitions, 1, 1 << 30, 3);
            keyspace.set_access(access, 10);
            let strings = strings(5, tagged);
            load(&keyspace, Db(0), &strings).unwrap();
            check(&keyspace, &strings);
            flush_and_check(&keyspace, START);
        }
    }
}

/// Pages that were built take no more memory than keys that were inserted, within the room that pages have
/// for the next entry.
#[test]
#[cfg_attr(miri, ignore)]
fn what_is_built_is_no_larger() {
    let strings = strings(7, false);
    let inserted = keyspace(32, 1, 1 << 30, 3);
    for (name, (text, expiry)) in &strings {
        txn(&inserted, START, |txn| {
            let key = txn.key(name);
            let expiry = expiry.map_or(Expiry::Clear, |at| Expiry::At(UnixMs(at)));
            txn.set(Db(0), &key, NewValue::encode(text), expiry).unwrap();
        });
    }
    let built = keyspace(32, 1, 1 << 30, 3);
    load(&built, Db(0), &strings).unwrap();
    let [inserted, built] = [&inserted, &built].map(live_bytes);
    assert!(built <= inserted + inserted / 50, "{built} B built, {inserted} B inserted");
}

#[test]
fn slots_with_keys_get_more() {
    let keyspace = keyspace(4, 1, 1 << 30, 3);
    let strings = strings(9, true);
    let (first, second): (Strings, Strings) =
        strings.clone().into_iter().partition(|(name, _)| name.len() % 2 == 0);
    load(&keyspace, Db(0), &first).unwrap();
    load(&keyspace, Db(0), &second).unwrap();
    check(&keyspace, &strings);
}

#[test]
fn a_key_that_comes_twice_is_named() {
    let keyspace = keyspace(4, 1, 1 << 30, 3);
    let (mut staging, mut builder) =
        (Staging::new(&keyspace, Db(0), UnixMs(START), Repeats::Refused), Builder::default());
    let string = NewString { key: b"twice", text: b"text", expiry: None, note: None };
    staging.add(2, |_| string);
    let built: Vec<_> = (0..STAGED_GROUPS)
        .map(|number| keyspace.build(&staging.take(number), &mut builder, UnixMs(START)))
        .filter(|built| built.is_err())
        .collect();
    assert_eq!(built, [Err(BuildError::Repeated(b"twice".to_vec()))]);
    keyspace.check_invariants();
    // Once it is there it is refused as well.
    staging.add(1, |_| string);
    (0..STAGED_GROUPS)
        .try_for_each(|n| keyspace.build(&staging.take(n), &mut builder, UnixMs(START)))
        .unwrap();
    staging.add(1, |_| string);
    let again =
        (0..STAGED_GROUPS).try_for_each(|n| keyspace.build(&staging.take(n), &mut builder, UnixMs(START)));
    assert_eq!(again, Err(BuildError::Repeated(b"twice".to_vec())));
}

#[test]
fn what_is_known_of_their_use_is_kept() {
    for (access, note) in
        [(AccessMode::Lru, AccessNote::IdleSeconds(500)), (AccessMode::Lfu, AccessNote::Frequency(77))]
    {
        let keyspace = keyspace(4, 1, 1 << 30, 3);
        keyspace.set_access(access, 10);
        let (mut staging, mut builder) =
            (Staging::new(&keyspace, Db(0), UnixMs(START), Repeats::Refused), Builder::default());
        staging.add(1, |_| NewString { key: b"key", text: b"text", expiry: None, note: Some(note) });
        (0..STAGED_GROUPS)
            .try_for_each(|n| keyspace.build(&staging.take(n), &mut builder, UnixMs(START)))
            .unwrap();
        txn(&keyspace, START, |txn| {
            let key = txn.key(b"key");
            let entry = txn.find(Db(0), &key, Lookup::Silent).expect("it was built");
            match access {
                AccessMode::Lru => assert_eq!(entry.idle_seconds(), 500),
                _ => assert_eq!(entry.frequency(), 77),
            }
        });
    }
}

/// The last value counts of a key that is set again and again, as in a log, and what came before takes no
/// memory for long.
#[test]
fn the_last_value_of_a_key_counts() {
    let rounds = if cfg!(miri) { 3 } else { 20 };
    for tagged in [false, true] {
        let keyspace = keyspace(32, 1, 1 << 30, 3);
        let mut prng = Prng::new(21);
        let (mut names, count) = (strings(21, tagged), if tagged { 9_000 } else { 30_000 });
        names.retain(|name, _| name.starts_with(b"{tag}") == tagged);
        let names: Vec<_> = names.into_keys().take(count).collect();
        let (mut staging, mut builder) =
            (Staging::new(&keyspace, Db(0), UnixMs(START), Repeats::LastCounts), Builder::default());
        let mut last = Strings::new();
        let mut bytes_max = 0;
        for round in 0..rounds {
            let batch: Vec<(Vec<u8>, Text)> = (0..names.len())
                .map(|_| {
                    let name = names[prng.below(names.len() as u64) as usize].clone();
                    let text = format!("{round}:{}", prng.below(1 << 40)).into_bytes();
                    (name, (text, prng.one_in(3).then(|| START + prng.below(1 << 45) as i64)))
                })
                .collect();
            for some in batch.chunks(1000) {
                // A group of many more keys than others is gathered on: that is for the caller to decide.
                staging.add(some.len(), |number| new_string(&some[number]));
                bytes_max = bytes_max.max(staging.bytes());
            }
            last.extend(batch);
        }
        for number in 0..STAGED_GROUPS {
            keyspace.build(&staging.take(number), &mut builder, UnixMs(START)).unwrap();
        }
        let once: usize = last.iter().map(|(name, (text, _))| name.len() + text.len() + 16).sum();
        let room = STAGED_GROUPS as u64 * (32 << 10);
        assert!(bytes_max < 4 * once as u64 + if tagged { 64 << 10 } else { room }, "{bytes_max} of {once}");
        check(&keyspace, &last);
    }
}

/// Without memory for all of it the keyspace has a part, and is sound.
#[test]
fn memory_runs_out_while_it_is_built() {
    let keyspace = keyspace(1, 1, 1 << 20, 3);
    let strings = strings(11, false);
    let loaded = load(&keyspace, Db(0), &strings);
    if !cfg!(miri) {
        assert_eq!(loaded, Err(BuildError::Full));
    }
    keyspace.check_invariants();
    flush_and_check(&keyspace, START);
}
