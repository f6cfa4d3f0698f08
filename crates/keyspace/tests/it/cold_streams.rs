//! Streams that leave memory, compared with a keyspace in which all stay: the same changes, the same entries,
//! blocks, ids, groups, consumers and pending entries, whatever left in between.

use crate::cold::Keeper;
use crate::support::*;
use isotherm_keyspace::*;
use isotherm_stdx::Prng;
use std::sync::Arc;

const LIMITS: SinkLimits =
    SinkLimits { value_bytes_min: 16, value_bytes_max: (1 << 24) - 1, by_nodes: ByNodes::Large };
const KEYS: u64 = 4;
const GROUPS: u64 = 3;
const CONSUMERS: u64 = 4;

struct Pair {
    /// All stays in memory in the first.
    keyspaces: [Keyspace; 2],
    keeper: Arc<Keeper>,
    prng: Prng,
    now: i64,
    last_ms: u64,
    chilled: u64,
    with_pending: u64,
}

fn word(kind: &str, number: u64) -> Vec<u8> {
    format!("{kind}:{number}").into_bytes()
}

/// Operation on a stream.
#[derive(Clone, Debug)]
enum Work {
    Add(StreamId, Vec<Vec<u8>>),
    Delete(u64),
    Trim(Trim, bool),
    SetState,
    AddGroup(u64),
    RemoveGroup(u64),
    Deliver { group: u64, consumer: u64, entries: u64, at: i64 },
    Acknowledge { group: u64, entry: u64 },
    RemoveConsumer { group: u64, consumer: u64 },
}

/// All that a stream is, as commands can see it.
fn seen(view: StreamView<'_>) -> Vec<String> {
    let mut all = vec![format!("{:?} {}", view.state(), view.len())];
    for block in view.whole_blocks() {
        let names: Vec<_> = block.names().map(Element::to_vec).collect();
        all.push(format!("{block:?} {names:?}"));
        let shared: Vec<bool> = block.entries().map(|entry| entry.shares_names()).collect();
        all.push(format!("{shared:?}"));
    }
    all.push(format!("{:?}", view.blocks().collect::<Vec<_>>()));
    let text = |entry: StreamEntry<'_>| {
        let fields: Vec<_> = entry.fields().map(|(name, value)| (name.to_vec(), value.to_vec())).collect();
        format!("{:?} {fields:?}", entry.id)
    };
    all.extend(view.range(StreamId::MIN, StreamId::MAX).map(text));
    let middle = view.range(StreamId::MIN, StreamId::MAX).nth(view.len() as usize / 2);
    let middle = middle.map_or(StreamId::MIN, |entry| entry.id);
    all.extend(view.range(middle, StreamId::MAX).take(3).map(text));
    all.extend(view.range_back(StreamId::MIN, middle).take(3).map(text));
    for (name, group) in view.groups().iter() {
        all.push(format!("{name:?} {:?} {:?} {}", group.last_id, group.entries_read, group.pending_len()));
        all.extend(group.pending_from(StreamId::MIN).map(|pending| format!("{pending:?}")));
        for (name, consumer) in group.consumers() {
            let ids: Vec<_> = consumer.pending_from(StreamId::MIN).collect();
            all.push(format!("{name:?} {} {} {ids:?}", consumer.seen_ms, consumer.active_ms));
        }
    }
    all
}

fn change(edit: &mut StreamEdit<'_, '_>, work: &Work) {
    let nth = |edit: &StreamEdit<'_, '_>, number: u64| {
        edit.range(StreamId::MIN, StreamId::MAX)
            .nth((number % edit.len().max(1)) as usize)
            .map(|entry| entry.id)
    };
    match work {
        Work::Add(id, fields) => {
            let fields: Vec<&[u8]> = fields.iter().map(Vec::as_slice).collect();
            edit.add(*id, &fields).expect("there is room");
        }
        _ if edit.is_absent() => {}
        Work::Delete(number) => {
            if let Some(id) = nth(edit, *number) {
                assert!(edit.delete(id).expect("there is room"));
                edit.state_mut().max_deleted_id = id;
            }
        }
        Work::Trim(keep, whole) => _ = edit.trim(*keep, *whole, 0).expect("there is room"),
        Work::SetState => edit.state_mut().entries_added += 7,
        Work::AddGroup(group) => {
            let name = word("group", *group);
            if edit.groups().is_some_and(|groups| !groups.contains_key(&name)) {
                let read = (group % 2 == 0).then_some(*group);
                edit.add_group(&name, ConsumerGroup::new(StreamId { ms: *group, seq: 1 }, read));
            }
        }
        Work::RemoveGroup(group) => _ = edit.remove_group(&word("group", *group)),
        Work::Deliver { group, consumer, entries, at } => {
            let ids: Vec<StreamId> =
                edit.range(StreamId::MIN, StreamId::MAX).map(|entry| entry.id).step_by(3).collect();
            let name = word("consumer", *consumer);
            let Some(mut group) = edit.group_mut(&word("group", *group)) else { return };
            if !group.consumers().contains_key(&name[..]) {
                group.add_consumer(&name, Consumer::new(*at));
            }
            group.consumer_mut(&name).expect("it was just added").active_ms = *at + 1;
            for id in ids.into_iter().take(*entries as usize) {
                let consumer: Arc<[u8]> = name.as_slice().into();
                group.deliver(Pending { id, delivered_ms: *at, deliveries: entries % 5, consumer });
                group.last_id = group.last_id.max(id);
            }
        }
        Work::Acknowledge { group, entry } => {
            let Some(id) = nth(edit, *entry) else { return };
            if let Some(mut group) = edit.group_mut(&word("group", *group)) {
                group.acknowledge(id);
            }
        }
        Work::RemoveConsumer { group, consumer } => {
            if let Some(mut group) = edit.group_mut(&word("group", *group)) {
                group.remove_consumer(&word("consumer", *consumer));
            }
        }
    }
}

impl Pair {
    fn new(seed: u64) -> Pair {
        let keyspaces = [1, 2].map(|part| keyspace(2, 1, 1 << 30, seed as u8 ^ part));
        let keeper: Arc<Keeper> = Arc::default();
        let shared: Arc<dyn ColdKeeper> = keeper.clone();
        keyspaces[1].keep_cold(&shared);
        let prng = Prng::new(seed);
        Pair { keyspaces, keeper, prng, now: START, last_ms: 1, chilled: 0, with_pending: 0 }
    }

    fn work(&mut self) -> Work {
        let prng = &mut self.prng;
        let (group, consumer) = (prng.below(GROUPS), prng.below(CONSUMERS));
        match prng.below(24) {
            0..10 => {
                self.last_ms += prng.below(3);
                let id = StreamId { ms: self.last_ms, seq: self.now as u64 };
                let names = ["sensor", "value", "a", "10"];
                let count = prng.below(3) as usize + 1;
                let fields = names[prng.below(2) as usize..].iter().take(count).flat_map(|name| {
                    let value = match prng.below(40) {
                        0 => vec![b'x'; prng.below(9000) as usize],
                        1..20 => prng.below(300).to_string().into_bytes(),
                        _ => vec![b'y'; prng.below(30) as usize],
                    };
                    [name.as_bytes().to_vec(), value]
                });
                Work::Add(id, fields.collect())
            }
            10..12 => Work::Delete(prng.next_u64() >> 8),
            12 => Work::Trim(Trim::Len(prng.below(300)), prng.one_in(2)),
            13 => Work::Trim(Trim::From(StreamId { ms: self.last_ms.saturating_sub(200), seq: 0 }), false),
            14 => Work::SetState,
            15..17 => Work::AddGroup(group),
            17 if prng.one_in(4) => Work::RemoveGroup(group),
            17..21 => Work::Deliver { group, consumer, entries: prng.below(60), at: self.now },
            21..23 => Work::Acknowledge { group, entry: prng.next_u64() >> 8 },
            _ => Work::RemoveConsumer { group, consumer },
        }
    }

    fn txn<R>(&self, index: usize, work: impl FnOnce(&mut Txn<'_, '_>) -> R) -> R {
        let mut held = Held::new(&self.keyspaces[index]);
        held.acquire(Want::All);
        let mut sink = NoEffects;
        let mut txn = Txn::new(&mut held, conditions(self.now), &mut sink);
        txn.on_cold = OnCold::Read;
        let answer = work(&mut txn);
        txn.finish();
        assert!(!held.has_missed());
        answer
    }

    fn change(&mut self) {
        let name = word("stream", self.prng.below(KEYS));
        let limits = Limits { stream_node_max_entries: 40, ..Limits::default() };
        for _ in 0..self.prng.below(30) {
            self.now += 1;
            let work = self.work();
            for index in 0..2 {
                self.txn(index, |txn| {
                    let key = txn.key(&name);
                    txn.edit_stream(Db(0), &key, &limits, |edit| change(edit, &work))
                        .expect("it is a stream");
                });
            }
        }
    }

    fn move_or_remove(&mut self) {
        let (from, to) = (word("stream", self.prng.below(KEYS)), word("stream", self.prng.below(KEYS)));
        let what = self.prng.below(3);
        for index in 0..2 {
            self.txn(index, |txn| {
                let (from, to) = (txn.key(&from), txn.key(&to));
                if what == 0 || from.bytes == to.bytes || !txn.contains(Db(0), &from) {
                    txn.remove(Db(0), &from);
                    return;
                }
                txn.find(Db(0), &from, Lookup::Write).expect("it is there");
                match what {
                    1 => txn.rename((Db(0), &from), (Db(0), &to)).expect("there is room"),
                    _ => txn.copy((Db(0), &from), (Db(0), &to)).expect("there is room"),
                }
            });
        }
    }

    fn sink(&mut self) {
        let (name, now) = (word("stream", self.prng.below(KEYS)), UnixMs(self.now));
        let keyspace = &self.keyspaces[1];
        let key = keyspace.key(&name);
        let mut held = Held::new(keyspace);
        held.acquire(Want::One(keyspace.partition_of(key.slot)));
        let mut room = SinkRoom::default();
        let Some(value) = Sinkable::of(&mut held, Db(0), &key, LIMITS, now) else { return };
        let Payload { form_number, bytes } = value.payload(&mut room);
        let bytes = bytes.to_vec();
        let reference = self.keeper.keep(&bytes);
        let changes = self.prng.one_in(8);
        if changes {
            drop(held);
            self.change();
            held = Held::new(&self.keyspaces[1]);
            held.acquire(Want::One(self.keyspaces[1].partition_of(key.slot)));
        }
        let chilled = held.chill(Db(0), &key, &bytes, form_number, reference, now);
        assert!(chilled == Chilled::Large || changes);
        self.chilled += u64::from(chilled == Chilled::Large);
    }

    /// Read from its image, as a file is written, and brought back as for a command that reads.
    fn read(&mut self) {
        let name = word("stream", self.prng.below(KEYS));
        let (keyspace, now) = (&self.keyspaces[1], UnixMs(self.now));
        let key = keyspace.key(&name);
        let mut held = Held::new(keyspace);
        held.acquire(Want::One(keyspace.partition_of(key.slot)));
        let Some(cold) = held.cold(Db(0), &key) else { return };
        assert_eq!(cold.kind(), Type::Stream);
        let bytes = self.keeper.read(cold.reference);
        let read = cold.with_bytes(&bytes);
        let Value::Stream(view) = read.value() else { panic!("it is a stream") };
        let image = seen(view);
        self.with_pending += u64::from(view.groups().iter().any(|(_, group)| group.pending_len() > 0));
        held.lend(Db(0), &key, Some(&bytes), cold.reference, 1 << 20, now);
        assert!(held.cold(Db(0), &key).is_none(), "it came home");
        drop(held);
        assert_eq!(self.shown(0, &name), Some(image));
    }

    fn shown(&self, index: usize, name: &[u8]) -> Option<Vec<String>> {
        self.txn(index, |txn| {
            let key = txn.key(name);
            let entry = txn.find(Db(0), &key, Lookup::Silent)?;
            assert_eq!(entry.encoding(), Encoding::Stream);
            let Value::Stream(view) = entry.value else { panic!("{:?}", entry.value) };
            Some(seen(view))
        })
    }

    fn check(&self) {
        self.keyspaces.iter().for_each(Keyspace::check_invariants);
        for number in 0..KEYS {
            let name = word("stream", number);
            assert_eq!(self.shown(0, &name), self.shown(1, &name));
        }
    }
}

#[test]
fn streams_that_left_memory_are_what_they_were() {
    for seed in 0..4 {
        let mut pair = Pair::new(seed);
        for step in 0..1200 {
            pair.now += pair.prng.below(50) as i64;
            match pair.prng.below(20) {
                0..8 => pair.change(),
                8 if pair.prng.one_in(3) => pair.move_or_remove(),
                8..15 => pair.sink(),
                15..19 => pair.read(),
                _ => _ = compact(&pair.keyspaces[1], 20),
            }
            if step % 60 == 0 {
                pair.check();
            }
        }
        pair.check();
        assert!(pair.chilled > 60 && pair.with_pending > 20, "{} {}", pair.chilled, pair.with_pending);
        pair.keyspaces.iter().for_each(|keyspace| flush_and_check(keyspace, pair.now));
        assert!(pair.keeper.values.lock().unwrap().is_empty(), "all references went back");
    }
}

/// Without entries there are groups still, and ids.
#[test]
fn a_stream_without_entries_leaves_too() {
    let mut pair = Pair::new(9);
    let id = StreamId { ms: 5, seq: 6 };
    let works = [
        Work::Add(id, vec![b"a".to_vec(), b"b".to_vec()]),
        Work::AddGroup(1),
        Work::Deliver { group: 1, consumer: 2, entries: 1, at: -1 },
        Work::Delete(0),
    ];
    let name = word("stream", 0);
    for (index, work) in [0, 1].into_iter().flat_map(|index| works.iter().map(move |work| (index, work))) {
        pair.txn(index, |txn| {
            let key = txn.key(&name);
            txn.edit_stream(Db(0), &key, &Limits::default(), |edit| change(edit, work)).expect("a stream");
        });
    }
    let chilled = pair.chilled;
    while pair.chilled == chilled {
        pair.sink();
    }
    assert_eq!(pair.shown(0, &name), pair.shown(1, &name));
    pair.check();
}
