//! A snapshot of large collections of every type is the state at its cut, whatever is done to them while they
//! are emitted; and what it keeps meanwhile follows what was written, not how large they are.

use crate::support::*;
use isotherm_keyspace::*;
use isotherm_stdx::Prng;
use std::collections::BTreeMap;
use std::sync::Arc;

/// Facts about the value of each key: in the order of the value, or sorted if it has none.
type Facts = BTreeMap<Vec<u8>, Vec<Vec<u8>>>;

const KINDS: [Type; 5] = [Type::Hash, Type::Set, Type::Zset, Type::List, Type::Stream];
const ELEMENTS: u64 = if cfg!(miri) { 150 } else { 15_000 };

fn key_of(kind: Type, number: u64) -> Vec<u8> {
    format!("{kind:?}:{number}").into_bytes()
}

fn text_of(number: u64) -> Vec<u8> {
    match number % 50 {
        0 => vec![b'l'; 900 + number as usize % 200],
        1 => number.to_string().into_bytes(),
        2 if number % 2000 == 2 => vec![b'L'; 9000],
        _ => format!("element:{number:08}").into_bytes(),
    }
}

// ---- what there is ----

fn pair(first: &[u8], second: &[u8]) -> Vec<u8> {
    [first, b" = ", second].concat()
}

fn field_fact(field: Element<'_>, value: Element<'_>, expiry: Option<UnixMs>) -> Vec<u8> {
    pair(&field.to_vec(), &pair(&value.to_vec(), format!("{expiry:?}").as_bytes()))
}

fn entry_fact(entry: &StreamEntry<'_>) -> Vec<u8> {
    let fields = entry.fields().map(|(name, value)| pair(&name.to_vec(), &value.to_vec()));
    pair(&entry.id.to_text(), &fields.collect::<Vec<_>>().concat())
}

fn part_fact(part: StreamPart<'_>) -> Vec<u8> {
    match part {
        StreamPart::Entry(entry) => entry_fact(&entry),
        other => format!("{other:?}").into_bytes(),
    }
}

fn facts_of_stream(view: StreamView<'_>) -> Vec<Vec<u8>> {
    let mut facts: Vec<Vec<u8>> =
        view.range(StreamId::MIN, StreamId::MAX).map(|entry| entry_fact(&entry)).collect();
    facts.push(part_fact(StreamPart::State { state: view.state(), groups: view.groups().len() }));
    for (name, group) in view.groups().iter() {
        facts.push(part_fact(StreamPart::Group {
            name,
            last_id: group.last_id,
            entries_read: group.entries_read,
            pending: group.pending_len(),
            consumers: group.consumers().len(),
        }));
        facts
            .extend(group.pending_from(StreamId::MIN).map(|pending| part_fact(StreamPart::Pending(pending))));
        for (name, consumer) in group.consumers() {
            let (seen_ms, active_ms) = (consumer.seen_ms, consumer.active_ms);
            let pending = consumer.pending_len();
            facts.push(part_fact(StreamPart::Consumer { name, seen_ms, active_ms, pending }));
            facts.extend(consumer.pending_from(StreamId::MIN).map(|id| part_fact(StreamPart::Owned(id))));
        }
    }
    facts
}

fn facts_of(value: Value<'_>) -> Vec<Vec<u8>> {
    let mut facts = Vec::new();
    match value {
        Value::Hash(view) => {
            view.for_each_with_expiry(|field, value, at| facts.push(field_fact(field, value, at)))
        }
        Value::Set(view) => view.for_each(|member| facts.push(member.to_vec())),
        Value::Zset(view) => view.for_each(0, view.len(), true, |member, score| {
            facts.push(pair(&member.to_vec(), score.to_string().as_bytes()));
        }),
        Value::List(view) => return view.iter(0, End::Front).map(|element| element.to_vec()).collect(),
        Value::Stream(view) => return facts_of_stream(view),
        other => panic!("{other:?}"),
    }
    facts.sort();
    facts
}

fn dump_facts(keyspace: &Keyspace) -> Facts {
    let mut facts = Facts::new();
    txn(keyspace, START, |txn| {
        let mut keys = Vec::new();
        txn.for_each_key(Db(0), None, |key| keys.push(key.to_vec()));
        for bytes in keys {
            let key = txn.key(&bytes);
            let entry = txn.find(Db(0), &key, Lookup::Silent).expect("it was just listed");
            facts.insert(bytes, facts_of(entry.value));
        }
    });
    facts
}

/// Facts that a walk has emitted.
#[derive(Default)]
struct Emitted {
    facts: Facts,
    open: Option<(Vec<u8>, Outline)>,
}

impl Emitted {
    fn take(&mut self, item: SnapshotItem<'_>) {
        match item {
            SnapshotItem::Entry(entry) => {
                assert!(self.open.is_none(), "a collection comes in one piece");
                let old = self.facts.insert(entry.key.to_vec(), facts_of(entry.value));
                assert!(old.is_none(), "an entry is emitted once");
            }
            SnapshotItem::Begin { key, outline, .. } => {
                assert!(self.open.is_none() && !self.facts.contains_key(key));
                self.facts.insert(key.to_vec(), Vec::new());
                self.open = Some((key.to_vec(), outline));
            }
            SnapshotItem::Part(part) => {
                let (key, left) = self.open.as_mut().expect("parts come after a beginning");
                let fact = match part {
                    Part::Node { .. } | Part::Stream(StreamPart::Block(_)) => {
                        left.nodes -= 1;
                        return;
                    }
                    Part::Field(field, value, at) => field_fact(field, value, at),
                    Part::Member(member) => member.to_vec(),
                    Part::Scored(member, score) => pair(&member.to_vec(), score.to_string().as_bytes()),
                    Part::Item(item) => item.to_vec(),
                    Part::Stream(part) => part_fact(part),
                };
                left.len -=
                    u64::from(!matches!(part, Part::Stream(part) if !matches!(part, StreamPart::Entry(_))));
                self.facts.get_mut(key).expect("it was begun").push(fact);
            }
            SnapshotItem::Bundle(_) | SnapshotItem::Node(_) => panic!("nothing left memory"),
            SnapshotItem::End => {
                let (key, left) = self.open.take().expect("it was begun");
                assert_eq!((left.len, left.nodes), (0, 0), "as many elements and nodes as were announced");
                if !matches!(left.kind, Type::List | Type::Stream) {
                    self.facts.get_mut(&key).expect("it was begun").sort();
                }
            }
        }
    }
}

// ---- what is done ----

struct Writer<'k> {
    keyspace: &'k Keyspace,
    prng: Prng,
    limits: Limits,
    last_id: u64,
    /// Elements are named by numbers below this.
    names: u64,
}

impl<'k> Writer<'k> {
    fn new(keyspace: &'k Keyspace, seed: u64, elements: u64) -> Writer<'k> {
        let limits = Limits::default();
        Writer { keyspace, prng: Prng::new(seed), limits, last_id: 0, names: elements * 2 }
    }

    fn fill(&mut self, elements: u64) {
        for kind in KINDS {
            for from in (0..elements).step_by(500) {
                let numbers = from..elements.min(from + 500);
                self.grow(kind, &key_of(kind, 0), numbers);
            }
        }
        self.change_groups(&key_of(Type::Stream, 0), elements / 4);
    }

    fn grow(&mut self, kind: Type, name: &[u8], numbers: std::ops::Range<u64>) {
        let (limits, last_id) = (&self.limits, &mut self.last_id);
        txn(self.keyspace, START, |txn| {
            let key = txn.key(name);
            match kind {
                Type::Hash => {
                    _ = txn.edit_hash(Db(0), &key, limits, |edit| {
                        for n in numbers {
                            let at = (n % 7 == 0).then_some(UnixMs(START + 1_000_000 + n as i64));
                            edit.set(&text_of(n), &text_of(n * 3), at, false).expect("there is room");
                        }
                    })
                }
                Type::Set => {
                    _ = txn.edit_set(Db(0), &key, limits, |edit| {
                        numbers.for_each(|n| _ = edit.add(&text_of(n)).expect("there is room"));
                    })
                }
                Type::Zset => {
                    _ = txn.edit_zset(Db(0), &key, limits, |edit| {
                        numbers.for_each(|n| {
                            _ = edit.set(&text_of(n), (n * 7919 % 10_007) as f64).expect("there is room")
                        });
                    })
                }
                Type::List => {
                    _ = txn.edit_list(Db(0), &key, limits, |edit| {
                        for n in numbers {
                            let end = if n % 3 == 0 { End::Front } else { End::Back };
                            edit.push(end, std::iter::once(&*text_of(n))).expect("there is room");
                        }
                    })
                }
                _ => {
                    _ = txn.edit_stream(Db(0), &key, limits, |edit| {
                        for n in numbers {
                            *last_id += 1 + n % 3;
                            let id = StreamId { ms: *last_id, seq: n % 2 };
                            let own = text_of(n);
                            let fields: [&[u8]; 4] =
                                [b"name", &own, if n % 9 == 0 { b"other" } else { b"field" }, b"1"];
                            edit.add(id, &fields).expect("there is room");
                        }
                    })
                }
            }
        });
    }

    /// Takes `count` elements out of the collection, at random.
    fn shrink(&mut self, kind: Type, name: &[u8], count: u64) {
        let (limits, prng, names) = (&self.limits, &mut self.prng, self.names);
        txn(self.keyspace, START, |txn| {
            let key = txn.key(name);
            match kind {
                Type::Hash => {
                    _ = txn.edit_hash(Db(0), &key, limits, |edit| {
                        (0..count).for_each(|_| _ = edit.remove(&text_of(prng.below(names)), true));
                    })
                }
                Type::Set => {
                    _ = txn.edit_set(Db(0), &key, limits, |edit| {
                        (0..count).for_each(|_| _ = edit.remove(&text_of(prng.below(names))));
                    })
                }
                Type::Zset => {
                    _ = txn.edit_zset(Db(0), &key, limits, |edit| {
                        let rank = prng.below(edit.len() + 1);
                        edit.remove_range(rank, count.min(edit.len() - rank));
                    })
                }
                Type::List => {
                    _ = txn.edit_list(Db(0), &key, limits, |edit| {
                        let index = *prng.pick(&[0, edit.len() / 2, edit.len() - count.min(edit.len())]);
                        edit.remove(index, count.min(edit.len() - index)).expect("taking needs no room");
                    })
                }
                _ => {
                    _ = txn.edit_stream(Db(0), &key, limits, |edit| {
                        if edit.is_absent() {
                            return;
                        }
                        let first = edit.state().first_id;
                        match prng.below(3) {
                            0 => _ = edit.trim(Trim::Len(edit.len().saturating_sub(count)), true, 0),
                            1 => _ = edit.trim(Trim::Len(edit.len().saturating_sub(count)), false, 0),
                            _ => {
                                let ids: Vec<StreamId> = edit
                                    .range(first, StreamId::MAX)
                                    .step_by(3)
                                    .take(count as usize)
                                    .map(|entry| entry.id)
                                    .collect();
                                ids.into_iter().for_each(|id| assert_eq!(edit.delete(id), Ok(true)));
                            }
                        }
                    })
                }
            }
        });
    }

    /// Delivers, acknowledges, removes: consumers and groups come and go.
    fn change_groups(&mut self, name: &[u8], deliveries: u64) {
        let (limits, prng) = (&self.limits, &mut self.prng);
        let group_name = format!("group:{}", prng.below(3)).into_bytes();
        let consumer: Arc<[u8]> = format!("consumer:{}", prng.below(4)).into_bytes().into();
        txn(self.keyspace, START, |txn| {
            let key = txn.key(name);
            txn.edit_stream(Db(0), &key, limits, |edit| {
                edit.create().expect("there is room");
                if prng.one_in(20) {
                    edit.remove_group(&group_name);
                }
                if edit.group_mut(&group_name).is_none() {
                    edit.add_group(&group_name, ConsumerGroup::new(StreamId::MIN, None));
                }
                let from = edit.group_mut(&group_name).expect("it is there").last_id;
                let new =
                    edit.range(from.next().expect("ids are small"), StreamId::MAX).take(deliveries as usize);
                let ids: Vec<StreamId> = new.map(|entry| entry.id).collect();
                let mut group = edit.group_mut(&group_name).expect("it is there");
                if !group.consumers().contains_key(&consumer) {
                    group.add_consumer(&consumer, Consumer::new(START));
                }
                for &id in &ids {
                    group.last_id = id;
                    group.deliver(Pending {
                        id,
                        delivered_ms: START,
                        deliveries: 1,
                        consumer: Arc::clone(&consumer),
                    });
                }
                let done: Vec<StreamId> =
                    group.pending_from(StreamId::MIN).step_by(5).take(9).map(|pending| pending.id).collect();
                done.into_iter().for_each(|id| assert!(group.acknowledge(id)));
                if prng.one_in(10) {
                    group.remove_consumer(&consumer);
                }
            })
            .expect("it is a stream");
        });
    }

    fn disturb(&mut self) {
        let kind = *self.prng.pick(&KINDS);
        let name = key_of(kind, u64::from(self.prng.one_in(4)));
        let most = if self.prng.one_in(30) { ELEMENTS } else { 20 };
        let count = 1 + self.prng.below(most);
        match self.prng.below(40) {
            0 => drop(compact(self.keyspace, 20)),
            1 => {
                let partitions = self.keyspace.partition_count() as u16;
                (0..partitions).for_each(|partition| _ = self.keyspace.free_step(partition, 5));
            }
            2 => {
                let to = key_of(kind, 1 + self.prng.below(2));
                self.move_to(&name, &to);
            }
            3 if self.prng.one_in(4) => {
                _ = txn(self.keyspace, START, |txn| txn.remove(Db(0), &txn.key(&name)))
            }
            4..16 => self.shrink(kind, &name, count),
            16..20 => {
                let name = key_of(Type::Stream, 0);
                self.change_groups(&name, count);
            }
            20 if kind == Type::List => self.edit_list(&name),
            _ => {
                let from = self.prng.below(self.names);
                self.grow(kind, &name, from..from + count);
            }
        }
    }

    fn edit_list(&mut self, name: &[u8]) {
        let (limits, prng) = (&self.limits, &mut self.prng);
        let edited = txn(self.keyspace, START, |txn| {
            txn.edit_list(Db(0), &txn.key(name), limits, |edit| {
                for n in 0..if edit.is_empty() { 0 } else { 10 } {
                    let (at, text) = (prng.below(edit.len()), text_of(prng.below(1000)));
                    if n % 2 == 0 { edit.insert(at, &text) } else { edit.set(at, &text) }
                        .expect("there is room");
                }
            })
        });
        edited.expect("it is a list");
    }

    fn move_to(&mut self, from: &[u8], to: &[u8]) {
        let copies = self.prng.one_in(2);
        txn(self.keyspace, START, |txn| {
            let (from, to) = (txn.key(from), txn.key(to));
            if from.bytes == to.bytes || !txn.contains(Db(0), &from) {
                return;
            }
            match copies {
                true => txn.copy((Db(0), &from), (Db(0), &to)),
                false => txn.rename((Db(0), &from), (Db(0), &to)),
            }
            .expect("there is room");
        });
    }
}

fn drain(keyspace: &Keyspace) {
    txn(keyspace, START, |txn| txn.flush(None));
    for partition in 0..keyspace.partition_count() as u16 {
        while keyspace.free_step(partition, 30) {}
    }
    keyspace.check_invariants();
    assert_eq!(live_bytes(keyspace), 0, "an empty keyspace keeps no objects");
}

#[test]
fn large_collections_are_emitted_as_they_were() {
    for seed in 0..if cfg!(miri) { 1 } else { 4 } {
        let keyspace = keyspace(if seed % 2 == 0 { 1 } else { 8 }, 1, 256 << 20, seed as u8);
        let mut writer = Writer::new(&keyspace, seed, ELEMENTS);
        writer.fill(ELEMENTS);
        for round in 0..if cfg!(miri) { 1 } else { 3 } {
            let cut = dump_facts(&keyspace);
            let mut snapshot = keyspace.snapshot().expect("none is under way");
            let (mut emitted, mut step) = (Emitted::default(), 0);
            let items_max = [60, 300, 900][round];
            while snapshot.step(items_max, &mut |item| emitted.take(item)) {
                (0..writer.prng.below(3)).for_each(|_| writer.disturb());
                if step % 500 == 0 {
                    keyspace.check_invariants();
                }
                step += 1;
            }
            drop(snapshot);
            assert!(emitted.open.is_none());
            assert!(emitted.facts.keys().eq(cut.keys()), "seed {seed}: every key is emitted");
            for (key, facts) in &cut {
                let key = String::from_utf8_lossy(key);
                assert!(
                    emitted.facts[key.as_bytes()] == *facts,
                    "seed {seed}: {key} is emitted as it was at the cut"
                );
            }
            keyspace.check_invariants();
        }
        drain(&keyspace);
    }
}

/// Collections with parts that a snapshot had saved when it ended: the kept parts go, in steps, and the next
/// snapshot is the state at its cut.
#[test]
fn a_snapshot_that_ends_early_is_forgotten() {
    for seed in 0..if cfg!(miri) { 1 } else { 6 } {
        let keyspace = keyspace(if seed % 2 == 0 { 1 } else { 8 }, 1, 256 << 20, seed as u8);
        let mut writer = Writer::new(&keyspace, 100 + seed, ELEMENTS / 3);
        writer.fill(ELEMENTS / 3);
        for round in 0..if cfg!(miri) { 2 } else { 8u64 } {
            let mut snapshot = keyspace.snapshot().expect("none is under way");
            for _ in 0..writer.prng.below(200) {
                snapshot.step(1 + writer.prng.below(300), &mut |_| {});
                (0..writer.prng.below(4)).for_each(|_| writer.disturb());
            }
            snapshot.abort();
            // Some rounds the next snapshot finds everything as it was left, in others writers or upkeep came
            // first.
            if round % 3 != 0 {
                (0..writer.prng.below(30)).for_each(|_| writer.disturb());
            }
            keyspace.check_invariants();
            if round % 3 == 2 {
                keyspace.free_all();
                assert_eq!(keyspace.snapshot_bytes(), 0);
                keyspace.check_invariants();
            }
        }
        let cut = dump_facts(&keyspace);
        let mut snapshot = keyspace.snapshot().expect("none is under way");
        let mut emitted = Emitted::default();
        while snapshot.step(500, &mut |item| emitted.take(item)) {
            writer.disturb();
        }
        drop(snapshot);
        assert!(emitted.facts == cut, "seed {seed}: as it was at the cut");
        drain(&keyspace);
    }
}

/// A collection that is removed while a snapshot is under way goes as soon as it was emitted, not when all is
/// over.
#[test]
fn removed_collections_go_when_they_were_emitted() {
    let keyspace = keyspace(1, 1, 256 << 20, 3);
    let mut writer = Writer::new(&keyspace, 3, ELEMENTS);
    writer.fill(ELEMENTS);
    let before = live_bytes(&keyspace);
    let mut snapshot = keyspace.snapshot().expect("none is under way");
    for kind in KINDS {
        txn(&keyspace, START, |txn| assert!(txn.remove(Db(0), &txn.key(&key_of(kind, 0)))));
    }
    keyspace.free_all();
    assert!(live_bytes(&keyspace) > before / 2, "the snapshot needs them");
    let mut ended = 0;
    while ended < KINDS.len() {
        assert!(snapshot.step(500, &mut |item| ended += usize::from(matches!(item, SnapshotItem::End))));
    }
    keyspace.free_all();
    assert_eq!(live_bytes(&keyspace), 0, "the snapshot is still under way, and needs nothing any more");
    drop(snapshot);
    drain(&keyspace);
}

/// A stream without entries is freed in steps too: as much is pending in it as it had entries, or more.
#[test]
fn a_stream_without_entries_is_freed_in_steps() {
    let keyspace = keyspace(1, 1, 64 << 20, 1);
    let mut writer = Writer::new(&keyspace, 1, ELEMENTS);
    let name = key_of(Type::Stream, 0);
    writer.grow(Type::Stream, &name, 0..ELEMENTS);
    (0..9).for_each(|_| writer.change_groups(&name, ELEMENTS));
    txn(&keyspace, START, |txn| {
        let key = txn.key(&name);
        let trimmed =
            txn.edit_stream(Db(0), &key, &Limits::default(), |edit| edit.trim(Trim::Len(0), false, 0));
        assert!(trimmed.is_ok_and(|edited| edited.result == Ok(ELEMENTS)));
        assert!(txn.remove(Db(0), &key));
    });
    let mut steps = 0;
    while keyspace.free_step(0, 3) {
        steps += 1;
    }
    assert!(cfg!(miri) || steps > 5, "{steps}");
    drain(&keyspace);
}

/// A snapshot keeps a few nodes for each write, with one write in ten thousand elements, and nothing once it
/// is over.
#[test]
fn what_is_kept_follows_what_was_written() {
    const MANY: u64 = if cfg!(miri) { 300 } else { 50_000 };
    const NODE_BYTES_MAX: u64 = 9 << 10;
    let keyspace = keyspace(1, 1, 256 << 20, 1);
    let mut writer = Writer::new(&keyspace, 1, MANY);
    writer.fill(MANY);
    let before = live_bytes(&keyspace);
    let cut = dump_facts(&keyspace);
    let mut snapshot = keyspace.snapshot().expect("none is under way");
    assert_eq!(keyspace.snapshot_bytes(), 0, "a cut takes nothing");
    let mut writes = 0;
    for kind in KINDS {
        for _ in 0..5 {
            let number = writer.prng.below(MANY);
            writer.grow(kind, &key_of(kind, 0), number..number + 1);
            writer.shrink(kind, &key_of(kind, 0), 1);
            writes += 2;
        }
    }
    let kept = keyspace.snapshot_bytes();
    assert!(kept > 0 && kept <= writes * 3 * NODE_BYTES_MAX, "{kept} B for {writes} writes");
    assert!(cfg!(miri) || kept < before / 10, "{kept} B of {before} B");
    // A collection that goes as a whole is kept as it is, not copied.
    for kind in KINDS {
        txn(&keyspace, START, |txn| assert!(txn.remove(Db(0), &txn.key(&key_of(kind, 0)))));
    }
    assert_eq!(keyspace.snapshot_bytes(), kept);
    let mut emitted = Emitted::default();
    while snapshot.step(50, &mut |item| emitted.take(item)) {}
    drop(snapshot);
    assert!(emitted.facts == cut, "everything is emitted as it was at the cut");
    assert_eq!(keyspace.snapshot_bytes(), 0);
    drain(&keyspace);
}

/// A large value that is renamed into the slots of a snapshot is not emitted; one that is renamed out of them
/// is, as it was.
#[test]
fn a_rename_across_the_edge_of_a_snapshot() {
    let keyspace = keyspace(1, 1, 1 << 30, 19);
    let mut writer = Writer::new(&keyspace, 19, 10);
    let (inside, outside): (&[u8], &[u8]) = (b"{a}in", b"{b}out");
    let slot = Slot::of_key(inside).get();
    let elements = if cfg!(miri) { 100 } else { 3000 };
    for kind in [Type::List, Type::Hash, Type::Zset, Type::Stream] {
        writer.grow(kind, inside, 0..elements);
        writer.grow(kind, outside, 0..elements);
        let expected = dump_facts(&keyspace)[inside].clone();
        let mut snapshot = keyspace.snapshot_of(slot..=slot).expect("none is under way");
        for (from, to) in [(inside, b"{b}moved"), (outside, b"{a}moved")] {
            txn(&keyspace, START, |txn| {
                let (from, to) = (txn.key(from), txn.key(to));
                txn.rename((Db(0), &from), (Db(0), &to)).expect("there is room");
            });
        }
        writer.shrink(kind, b"{b}moved", 10);
        writer.shrink(kind, b"{a}moved", 10);
        txn(&keyspace, START, |txn| assert!(txn.remove(Db(0), &txn.key(b"{b}moved"))));
        let mut emitted = Emitted::default();
        while snapshot.step(5, &mut |item| emitted.take(item)) {}
        drop(snapshot);
        assert_eq!(emitted.facts.keys().collect::<Vec<_>>(), [inside], "{kind:?}");
        assert!(emitted.facts.values().all(|facts| *facts == expected), "{kind:?}");
        keyspace.check_invariants();
        txn(&keyspace, START, |txn| assert!(txn.remove(Db(0), &txn.key(b"{a}moved"))));
        drain(&keyspace);
    }
}
