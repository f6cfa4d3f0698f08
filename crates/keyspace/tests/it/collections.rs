//! Hashes and sets compared with plain maps: random changes, growth and shrinking, renames and copies, field
//! times, compaction, and snapshots during all of that.

use crate::support::*;
use isotherm_keyspace::*;
use isotherm_stdx::Prng;
use std::collections::{BTreeMap, BTreeSet};

type Bytes = Vec<u8>;

#[derive(Clone, PartialEq, Debug)]
enum Model {
    Hash(BTreeMap<Bytes, (Bytes, Option<i64>)>),
    Set(BTreeSet<Bytes>),
}

type World = BTreeMap<Bytes, Model>;

fn field_name(prng: &mut Prng, fields: u64) -> Bytes {
    let number = prng.below(fields);
    match number % 5 {
        0 => number.to_string().into_bytes(),
        1 if number % 35 == 1 => vec![b'f'; 150 + number as usize % 300],
        _ => format!("field:{number}").into_bytes(),
    }
}

fn some_text(prng: &mut Prng) -> Bytes {
    let len = match prng.below(40) {
        0 => 6000,
        1 => 900,
        2 | 3 => 230,
        _ => prng.below(50) as usize,
    };
    if len < 8 { prng.below(1000).to_string().into_bytes() } else { vec![b'a' + prng.below(26) as u8; len] }
}

/// Does something at random to both.
fn change(keyspace: &Keyspace, world: &mut World, prng: &mut Prng, now: i64, fields: u64) {
    let name = format!("key:{}", prng.below(6)).into_bytes();
    let is_hash = name[4] % 2 == 0;
    match prng.below(100) {
        0..=1 => {
            let removed = txn(keyspace, now, |txn| txn.remove(Db(0), &txn.key(&name)));
            assert_eq!(removed, world.remove(&name).is_some());
        }
        2..=3 => {
            let to = format!("key:{}", prng.below(3) * 2 + u64::from(!is_hash)).into_bytes();
            if to == name || !world.contains_key(&name) {
                return;
            }
            let rename = prng.one_in(2);
            txn(keyspace, now, |txn| {
                let (from, to) = (txn.key(&name), txn.key(&to));
                match rename {
                    true => txn.rename((Db(0), &from), (Db(0), &to)),
                    false => txn.copy((Db(0), &from), (Db(0), &to)),
                }
            })
            .expect("there is room");
            let value = world[&name].clone();
            if rename {
                world.remove(&name);
            }
            world.insert(to, value);
        }
        _ if is_hash => change_hash(keyspace, world, prng, now, fields, &name),
        _ => change_set(keyspace, world, prng, now, fields, &name),
    }
}

fn change_hash(keyspace: &Keyspace, world: &mut World, prng: &mut Prng, now: i64, fields: u64, name: &[u8]) {
    let existed = world.contains_key(name);
    let entry = world.entry(name.to_vec()).or_insert(Model::Hash(BTreeMap::new()));
    let Model::Hash(map) = entry else { panic!("the name implies the type") };
    let grows = prng.below(3) > 0;
    let edited = txn(keyspace, now, |txn| {
        let key = txn.key(name);
        txn.edit_hash(Db(0), &key, &Limits::default(), |edit| {
            for _ in 0..prng.below(40) {
                let field = field_name(prng, fields);
                let old = map.get(&field).cloned();
                let live = old.as_ref().filter(|(_, at)| at.is_none_or(|at| at >= now));
                match prng.below(10) {
                    0..=1 if old.is_some() => {
                        let at = now + 1 + prng.below(500) as i64;
                        let found = edit.set_expiry(&field, Some(UnixMs(at))).expect("there is room");
                        assert_eq!(found, live.is_some());
                        if found {
                            map.get_mut(&field).expect("it is there").1 = Some(at);
                        }
                    }
                    0..=6 if grows => {
                        let value = some_text(prng);
                        let set = edit.set(&field, &value, None, true).expect("there is room");
                        let kept = old.as_ref().and_then(|(_, at)| *at).filter(|at| *at > now);
                        let is_live =
                            old.is_some() && old.as_ref().is_some_and(|(_, at)| at.is_none_or(|at| at > now));
                        assert_eq!(set.is_new, !is_live);
                        map.insert(field, (value, kept));
                    }
                    _ => {
                        assert_eq!(edit.remove(&field, true), old.is_some());
                        map.remove(&field);
                    }
                }
                assert_eq!(edit.len(), map.len() as u64);
            }
        })
    })
    .expect("it is a hash");
    assert_eq!(edited.created, !existed && !map.is_empty());
    assert_eq!(edited.emptied, existed && map.is_empty());
    if map.is_empty() {
        world.remove(name);
    }
}

fn change_set(keyspace: &Keyspace, world: &mut World, prng: &mut Prng, now: i64, fields: u64, name: &[u8]) {
    let entry = world.entry(name.to_vec()).or_insert(Model::Set(BTreeSet::new()));
    let Model::Set(set) = entry else { panic!("the name implies the type") };
    let (grows, ints) = (prng.below(3) > 0, prng.one_in(3));
    txn(keyspace, now, |txn| {
        let key = txn.key(name);
        txn.edit_set(Db(0), &key, &Limits::default(), |edit| {
            for _ in 0..prng.below(40) {
                let member = match ints {
                    true => (prng.below(fields) as i64 - 40).to_string().into_bytes(),
                    false => field_name(prng, fields),
                };
                match prng.below(10) {
                    0..=6 if grows => {
                        assert_eq!(edit.add(&member).expect("there is room"), set.insert(member));
                    }
                    7 if !set.is_empty() => {
                        let popped = edit.pop(&mut |n| prng.below(n));
                        assert!(set.remove(&popped.expect("all is in memory")));
                    }
                    _ => assert_eq!(edit.remove(&member), set.remove(&member)),
                }
                assert_eq!(edit.len(), set.len() as u64);
            }
        })
    })
    .expect("it is a set");
    if set.is_empty() {
        world.remove(name);
    }
}

fn dump_all(keyspace: &Keyspace, now: i64) -> World {
    let mut world = World::new();
    let mut held = Held::new(keyspace);
    held.acquire(Want::All);
    let keep = Conditions { expiry_mode: ExpiryMode::Keep, ..conditions(now) };
    let mut sink = NoEffects;
    let mut txn = Txn::new(&mut held, keep, &mut sink);
    let mut keys = Vec::new();
    txn.for_each_key(Db(0), None, |key| keys.push(key.to_vec()));
    for bytes in keys {
        let key = txn.key(&bytes);
        let entry = txn.find(Db(0), &key, Lookup::Silent).expect("it was just listed");
        let model = match entry.value {
            Value::Hash(view) => {
                let mut map = BTreeMap::new();
                view.for_each_with_expiry(|field, value, at| {
                    map.insert(field.to_vec(), (value.to_vec(), at.map(|at| at.0)));
                });
                assert_eq!(view.len(), map.len() as u64);
                for (field, (value, _)) in &map {
                    assert!(view.get(field).is_some_and(|found| found.is_text(value)));
                }
                Model::Hash(map)
            }
            Value::Set(view) => {
                let mut set = BTreeSet::new();
                view.for_each(|member| assert!(set.insert(member.to_vec())));
                assert_eq!(view.len(), set.len() as u64);
                assert!(set.iter().all(|member| view.contains(member)));
                let (mut scanned, mut cursor) = (BTreeSet::new(), 0);
                loop {
                    cursor = view.scan(cursor, 10, |member| {
                        scanned.insert(member.to_vec());
                    });
                    if cursor == 0 {
                        break;
                    }
                }
                assert_eq!(scanned, set);
                Model::Set(set)
            }
            other => panic!("{other:?}"),
        };
        world.insert(bytes, model);
    }
    world
}

/// Fields past their time leave in both.
fn expire(keyspace: &Keyspace, world: &mut World, now: i64) {
    // Bounds are exact to 256 ms.
    let later = now + 256;
    for partition in 0..keyspace.partition_count() as u16 {
        while keyspace.expire_step(partition, UnixMs(later), 7, &mut NoEffects).more {}
    }
    world.retain(|_, model| match model {
        Model::Hash(map) => {
            map.retain(|_, (_, at)| at.is_none_or(|at| at >= now));
            !map.is_empty()
        }
        Model::Set(_) => true,
    });
}

fn without_due(world: &World, now: i64) -> World {
    let mut world = world.clone();
    world.retain(|_, model| match model {
        Model::Hash(map) => {
            map.retain(|_, (_, at)| at.is_none_or(|at| at >= now + 256));
            !map.is_empty()
        }
        Model::Set(_) => true,
    });
    world
}

fn run(seed: u64, partitions: usize, fields: u64, steps: usize) {
    let keyspace = keyspace(partitions, 1, 64 << 20, seed as u8);
    let (mut world, mut prng, mut now) = (World::new(), Prng::new(seed), START);
    for step in 0..steps {
        now += prng.below(3) as i64;
        change(&keyspace, &mut world, &mut prng, now, fields);
        if step % 50 == 49 {
            compact(&keyspace, 20);
            keyspace.check_invariants();
            assert_eq!(dump_all(&keyspace, now), world, "seed {seed}, step {step}");
        }
        if step % 170 == 169 {
            expire(&keyspace, &mut world, now);
            now += 256;
            let ours = dump_all(&keyspace, now);
            assert_eq!(without_due(&ours, now - 256), without_due(&world, now - 256));
            world = ours;
            keyspace.check_invariants();
        }
    }
    drain(&keyspace, now);
}

fn drain(keyspace: &Keyspace, now: i64) {
    txn(keyspace, now, |txn| txn.flush(None));
    keyspace.free_all();
    for partition in 0..keyspace.partition_count() as u16 {
        while keyspace.free_step(partition, 3) {}
    }
    keyspace.check_invariants();
    assert_eq!(live_bytes(keyspace), 0, "an empty keyspace keeps no objects");
}

#[test]
fn small_and_middling_collections() {
    (0..6).for_each(|seed| run(seed, 1, 60, 600));
}

#[test]
fn large_collections_in_many_partitions() {
    (10..13).for_each(|seed| run(seed, 8, 4000, 900));
}

#[test]
fn a_snapshot_is_the_state_at_its_cut() {
    for seed in 20..28 {
        let keyspace = keyspace(if seed % 2 == 0 { 1 } else { 8 }, 1, 64 << 20, 3);
        let (mut world, mut prng) = (World::new(), Prng::new(seed));
        let fields = [50, 3000][seed as usize / 2 % 2];
        (0..400).for_each(|_| change(&keyspace, &mut world, &mut prng, START, fields));
        for _ in 0..3 {
            let cut = world.clone();
            let mut snapshot = keyspace.snapshot().expect("none is under way");
            let (mut emitted, mut open) = (World::new(), None);
            while snapshot.step(1 + prng.below(90), &mut |item| take(item, &mut emitted, &mut open)) {
                (0..prng.below(8)).for_each(|_| change(&keyspace, &mut world, &mut prng, START, fields));
                compact(&keyspace, 2);
                for partition in 0..keyspace.partition_count() as u16 {
                    keyspace.free_step(partition, 2);
                }
            }
            drop(snapshot);
            assert!(open.is_none());
            assert_eq!(emitted, cut, "seed {seed}");
            keyspace.check_invariants();
        }
        drain(&keyspace, START);
    }
}

fn take(item: SnapshotItem<'_>, emitted: &mut World, open: &mut Option<(Bytes, u64)>) {
    let (key, model) = match item {
        SnapshotItem::Entry(entry) => {
            let model = match entry.value {
                Value::Hash(view) => {
                    let mut map = BTreeMap::new();
                    view.for_each(|field, value| drop(map.insert(field.to_vec(), (value.to_vec(), None))));
                    Model::Hash(map)
                }
                Value::Set(view) => {
                    let mut set = BTreeSet::new();
                    view.for_each(|member| assert!(set.insert(member.to_vec())));
                    Model::Set(set)
                }
                other => panic!("{other:?}"),
            };
            (entry.key.to_vec(), model)
        }
        SnapshotItem::Begin { key, outline, .. } => {
            assert!(open.is_none());
            *open = Some((key.to_vec(), outline.len));
            let empty = match outline.kind {
                Type::Hash => Model::Hash(BTreeMap::new()),
                _ => Model::Set(BTreeSet::new()),
            };
            (key.to_vec(), empty)
        }
        SnapshotItem::Part(part) => {
            let (key, _) = open.as_ref().expect("parts come after a beginning");
            let is_new = match (emitted.get_mut(key).expect("it was begun"), part) {
                (Model::Hash(map), Part::Field(field, value, at)) => {
                    map.insert(field.to_vec(), (value.to_vec(), at.map(|at| at.0))).is_none()
                }
                (Model::Set(set), Part::Member(member)) => set.insert(member.to_vec()),
                other => panic!("{other:?}"),
            };
            assert!(is_new, "an element is emitted once");
            return;
        }
        SnapshotItem::Bundle(_) | SnapshotItem::Node(_) => panic!("nothing left memory"),
        SnapshotItem::End => {
            let (key, len) = open.take().expect("it was begun");
            let emitted = match &emitted[&key] {
                Model::Hash(map) => map.len(),
                Model::Set(set) => set.len(),
            };
            assert_eq!(emitted as u64, len);
            return;
        }
    };
    assert!(emitted.insert(key, model).is_none(), "an entry is emitted once");
}
