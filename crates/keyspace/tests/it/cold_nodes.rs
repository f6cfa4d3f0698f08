//! Hashes and sets whose pages leave memory one by one, beside a model: as a server does it, commands that meet a page that is away run
//! again when it was read, and commands that change something have what they need read before.

use crate::cold::Keeper;
use crate::support::*;
use isotherm_keyspace::*;
use isotherm_stdx::Prng;
use std::collections::BTreeMap;
use std::sync::Arc;

const KEYS: u64 = 6;
const FIELDS: u64 = 900;

/// Fields and values; of a set no values. By key.
type Model = BTreeMap<Vec<u8>, BTreeMap<Vec<u8>, Vec<u8>>>;

struct World {
    keyspace: &'static Keyspace,
    keeper: Arc<Keeper>,
    prng: Prng,
    model: Model,
    hand: NodeHand,
    now: i64,
    chilled: u64,
    clean: u64,
    moved_clean: u64,
    given: Vec<(NodeAt, ColdRef)>,
    moved: u64,
    runs_again: u64,
    waits: u64,
}

fn name_of(number: u64) -> Vec<u8> {
    format!("{}:{number}", ["hash", "set"][number as usize % 2]).into_bytes()
}

fn is_set(name: &[u8]) -> bool {
    name[0] == b's'
}

fn field_of(number: u64) -> Vec<u8> {
    match number % 11 {
        0 => number.to_string().into_bytes(),
        1 => [format!("{number}:").into_bytes(), vec![b'l'; 170]].concat(),
        _ => format!("field:{number}").into_bytes(),
    }
}

impl World {
    fn new(seed: u64) -> World {
        let keyspace: &'static Keyspace = Box::leak(Box::new(keyspace(2, 1, 1 << 30, seed as u8)));
        let keeper: Arc<Keeper> = Arc::default();
        let shared: Arc<dyn ColdKeeper> = keeper.clone();
        keyspace.keep_cold(&shared);
        World {
            keyspace,
            keeper,
            prng: Prng::new(seed),
            model: Model::new(),
            hand: NodeHand::default(),
            now: START,
            chilled: 0,
            clean: 0,
            moved_clean: 0,
            given: Vec::new(),
            moved: 0,
            runs_again: 0,
            waits: 0,
        }
    }

    fn value(&mut self) -> Vec<u8> {
        match self.prng.below(20) {
            0 => vec![b'x'; 5000 + self.prng.below(100) as usize],
            1..4 => vec![b'm'; 200 + self.prng.below(1000) as usize],
            4..8 => self.prng.below(1 << 40).to_string().into_bytes(),
            _ => format!("value {}", self.prng.below(1000)).into_bytes(),
        }
    }

    /// A command that only reads: what it meets is read, and it runs again.
    fn read<R>(&mut self, work: impl Fn(&mut Txn<'_, '_>) -> R) -> R {
        loop {
            let mut held = Held::new(self.keyspace);
            held.acquire(Want::All);
            let mut sink = NoEffects;
            let mut txn = Txn::new(&mut held, conditions(self.now), &mut sink);
            txn.on_cold = OnCold::Collect;
            let answer = work(&mut txn);
            txn.finish();
            let missing = held.take_missing();
            if missing.is_empty() {
                return answer;
            }
            self.runs_again += 1;
            for missed in missing {
                assert!(missed.is_readable);
                let node = missed.node.expect("no value is away as a whole");
                self.given.extend(give(&self.keeper, &mut held, node, self.now));
            }
        }
    }

    /// One that changes elements of a key.
    fn change<R>(&mut self, name: &[u8], elements: &[&[u8]], work: impl Fn(&mut Txn<'_, '_>) -> R) -> R {
        let mut held = Held::new(self.keyspace);
        held.acquire(Want::All);
        // Without it a change of elements waits for the disk itself.
        if elements.is_empty() || self.prng.below(4) > 0 {
            let need = match elements {
                [] => NodeNeed::All,
                _ => NodeNeed::Of { elements, reshapes: true },
            };
            let key = self.keyspace.key(name);
            for node in held.away_nodes(Db(0), &key, need, usize::MAX) {
                give(&self.keeper, &mut held, node, self.now);
            }
        } else {
            self.waits += 1;
        }
        let mut sink = NoEffects;
        let mut txn = Txn::new(&mut held, conditions(self.now), &mut sink);
        txn.on_cold = OnCold::Read;
        let answer = work(&mut txn);
        txn.finish();
        assert!(!held.has_missed());
        answer
    }

    fn edit(&mut self) {
        let name = name_of(self.prng.below(KEYS));
        let many = if self.prng.one_in(4) { 300 } else { 5 };
        let count = 1 + self.prng.below(many);
        let grows = self.prng.below(5) > 1;
        let words: Vec<(Vec<u8>, Vec<u8>)> = (0..count)
            .map(|_| {
                (field_of(self.prng.below(FIELDS)), if is_set(&name) { Vec::new() } else { self.value() })
            })
            .collect();
        let elements: Vec<&[u8]> = words.iter().map(|(field, _)| &field[..]).collect();
        let limits = Limits::default();
        let known = self.model.get(&name).cloned().unwrap_or_default();
        self.change(&name, &elements, |txn| {
            let key = txn.key(&name);
            let mut seen = known.clone();
            if is_set(&name) {
                _ = txn.edit_set(Db(0), &key, &limits, |set| {
                    for (word, _) in &words {
                        let had = seen.contains_key(word);
                        match grows {
                            true => assert_eq!(set.add(word), Ok(!had)),
                            false => assert_eq!(set.remove(word), had),
                        }
                        _ = if grows { seen.insert(word.clone(), Vec::new()) } else { seen.remove(word) };
                    }
                });
            } else {
                _ = txn.edit_hash(Db(0), &key, &limits, |hash| {
                    for (word, value) in &words {
                        let had = seen.contains_key(word);
                        match grows {
                            true => {
                                assert_eq!(
                                    hash.set(word, value, None, false).map(|set| set.is_new),
                                    Ok(!had)
                                );
                            }
                            false => assert_eq!(hash.remove(word, false), had),
                        }
                        _ = if grows { seen.insert(word.clone(), value.clone()) } else { seen.remove(word) };
                    }
                });
            }
        });
        let fields = self.model.entry(name.clone()).or_default();
        for (word, value) in words {
            _ = if grows { fields.insert(word, value) } else { fields.remove(&word) };
        }
        if fields.is_empty() {
            self.model.remove(&name);
        }
    }

    fn pop(&mut self) {
        let name = name_of(self.prng.below(KEYS / 2) * 2 + 1);
        let (seed, limits) = (self.prng.next_u64(), Limits::default());
        let Some(left) = self.model.get(&name).map(|members| members.len()) else { return };
        if left < 2 {
            return;
        }
        self.waits += 1;
        let popped = self.change(&name, &[b"none"], |txn| {
            let key = txn.key(&name);
            let mut prng = Prng::new(seed);
            txn.edit_set(Db(0), &key, &limits, |set| set.pop(&mut |n| prng.below(n))).expect("a set").result
        });
        let members = self.model.get_mut(&name).expect("it was there");
        assert!(members.remove(&popped.expect("it can be read")).is_some());
    }

    fn look(&mut self) {
        let name = name_of(self.prng.below(KEYS));
        let (field, seed) = (field_of(self.prng.below(FIELDS)), self.prng.next_u64());
        let expected = self.model.get(&name).and_then(|fields| fields.get(&field)).cloned();
        let draws = self.prng.one_in(3);
        let (found, drawn) = self.read(|txn| {
            let key = txn.key(&name);
            let mut prng = Prng::new(seed);
            let Some(entry) = txn.find(Db(0), &key, Lookup::Read) else { return (None, None) };
            let mut random = |n| prng.below(n);
            match entry.value {
                Value::Set(set) => (
                    set.contains(&field).then(Vec::new),
                    set.random(&mut random).filter(|_| draws).map(|member| member.to_vec()),
                ),
                Value::Hash(hash) => (
                    hash.get(&field).map(|value| value.to_vec()),
                    hash.draws().next(&mut random).filter(|_| draws).map(|(field, _)| field.to_vec()),
                ),
                other => panic!("{other:?}"),
            }
        });
        assert_eq!(found, expected);
        if let Some(drawn) = drawn {
            assert!(self.model[&name].contains_key(&drawn));
        }
    }

    /// All of a key, by its iterator and by its scan.
    fn check(&mut self, name: &[u8]) {
        let (all, scanned, len) = self.read(|txn| {
            let key = txn.key(name);
            let (mut all, mut scanned) = (BTreeMap::new(), BTreeMap::new());
            let Some(entry) = txn.find(Db(0), &key, Lookup::Read) else { return (all, scanned, 0) };
            let mut cursor = 0;
            let len = match entry.value {
                Value::Set(set) => {
                    set.for_each(|member| _ = all.insert(member.to_vec(), Vec::new()));
                    loop {
                        cursor =
                            set.scan(cursor, 20, |member| _ = scanned.insert(member.to_vec(), Vec::new()));
                        if cursor == 0 {
                            break set.len();
                        }
                    }
                }
                Value::Hash(hash) => {
                    hash.for_each(|field, value| _ = all.insert(field.to_vec(), value.to_vec()));
                    loop {
                        cursor = hash.scan(cursor, 20, |field, value| {
                            _ = scanned.insert(field.to_vec(), value.to_vec());
                        });
                        if cursor == 0 {
                            break hash.len();
                        }
                    }
                }
                other => panic!("{other:?}"),
            };
            (all, scanned, len)
        });
        let expected = self.model.get(name).cloned().unwrap_or_default();
        assert_eq!(len, expected.len() as u64);
        assert!(all == expected, "{}", String::from_utf8_lossy(name));
        assert!(scanned == expected, "{}", String::from_utf8_lossy(name));
    }

    fn move_or_remove(&mut self) {
        let (name, other) = (name_of(self.prng.below(KEYS)), name_of(self.prng.below(KEYS)));
        let what = self.prng.below(3);
        if name == other || is_set(&name) != is_set(&other) || !self.model.contains_key(&name) {
            return;
        }
        self.change(&name, &[], |txn| {
            let (from, to) = (txn.key(&name), txn.key(&other));
            match what {
                0 => _ = txn.remove(Db(0), &from),
                1 => txn.rename((Db(0), &from), (Db(0), &to)).expect("there is room"),
                _ => txn.copy((Db(0), &from), (Db(0), &to)).expect("there is room"),
            }
        });
        match what {
            0 => _ = self.model.remove(&name),
            1 => {
                let fields = self.model.remove(&name).expect("it was there");
                self.model.insert(other, fields);
            }
            _ => {
                let fields = self.model[&name].clone();
                self.model.insert(other, fields);
            }
        }
    }

    /// What the hand shows leaves memory; sometimes it has changed since it was shown.
    fn sink(&mut self) {
        let (mut shown, mut clean) = (Vec::new(), Vec::new());
        let keyspace = self.keyspace;
        {
            let mut held = Held::new(keyspace);
            held.acquire(Want::One(self.hand.partition()));
            let now = UnixMs(self.now + 1000);
            held.sink_nodes_step(&mut self.hand, ByNodes::Some, 60, now, &mut |node| {
                assert!(!node.is_awaited, "a second has passed");
                if node.is_clean {
                    return clean.push(node.at);
                }
                let mut payload = Vec::new();
                node.write_payload(&mut payload);
                assert_eq!(payload.len(), node.bytes);
                shown.push((node.at, payload));
            });
        }
        if self.prng.one_in(5) {
            self.edit();
        }
        for at in clean {
            let mut held = Held::new(self.keyspace);
            held.acquire(Want::One(self.keyspace.partition_of(at.slot)));
            // Unless it has changed meanwhile.
            self.clean += u64::from(held.chill_clean_node(at, UnixMs(self.now)));
        }
        for (at, payload) in shown {
            let reference = self.keeper.keep(&payload);
            let mut held = Held::new(self.keyspace);
            held.acquire(Want::One(self.keyspace.partition_of(at.slot)));
            self.chilled += u64::from(held.chill_node(at, &payload, reference, UnixMs(self.now)));
        }
    }

    fn clean(&mut self) {
        let mut hand = NodeHand::default();
        while hand.rounds == 0 {
            let mut held = Held::new(self.keyspace);
            held.acquire(Want::One(hand.partition()));
            let mut found = Vec::new();
            held.away_nodes_step(&mut hand, 500, &mut |node, reference| found.push((node, reference)));
            for (node, reference) in found.into_iter().filter(|_| self.prng.one_in(4)) {
                let to = self.keeper.keep(&self.keeper.read(reference));
                assert!(held.move_node(node, reference, to));
                self.moved += 1;
            }
        }
        // Those that have come back too, if they were not changed since.
        for (node, reference) in std::mem::take(&mut self.given) {
            let Some(payload) = self.keeper.ever.lock().unwrap().get(&reference.raw()).cloned() else {
                continue;
            };
            let to = self.keeper.keep(&payload);
            let mut held = Held::new(self.keyspace);
            held.acquire(Want::One(self.keyspace.partition_of(node.slot)));
            let is_referred = held.refers_to_node(node, reference);
            assert_eq!(held.move_node(node, reference, to), is_referred);
            self.moved_clean += u64::from(is_referred);
        }
    }

    fn step(&mut self) {
        self.now += self.prng.below(50) as i64;
        match self.prng.below(40) {
            0..12 => self.edit(),
            12..14 => self.pop(),
            14..22 => self.look(),
            22..24 => self.check(&name_of(self.prng.clone().below(KEYS))),
            24 => self.move_or_remove(),
            25 => self.clean(),
            26..39 => self.sink(),
            _ => _ = compact(self.keyspace, 20),
        }
    }
}

/// The node, and where it was.
fn give(keeper: &Keeper, held: &mut Held<'_>, node: NodeAt, now: i64) -> Option<(NodeAt, ColdRef)> {
    let from = held.node_reference(node)?;
    let payload = keeper.read(from);
    held.give_node(node, Some(&payload), from, true, UnixMs(now));
    Some((node, from))
}

/// Takes what a snapshot emits.
#[derive(Default)]
struct Taken {
    model: Model,
    key: Vec<u8>,
    nodes: u64,
}

impl Taken {
    fn take(&mut self, keeper: &Keeper, item: SnapshotItem<'_>) {
        match item {
            SnapshotItem::Begin { key, .. } => {
                assert!(self.model.insert(key.to_vec(), BTreeMap::new()).is_none());
                self.key = key.to_vec();
            }
            SnapshotItem::Part(part) => self.part(part),
            SnapshotItem::Node(node) => {
                self.nodes += 1;
                let payload = keeper.ever.lock().unwrap()[&node.reference().raw()].clone();
                assert!(node.parts(&payload, |part| self.part(part)));
            }
            SnapshotItem::Entry(entry) => {
                let fields = self.model.entry(entry.key.to_vec()).or_default();
                match entry.value {
                    Value::Hash(view) => {
                        view.for_each(|field, value| _ = fields.insert(field.to_vec(), value.to_vec()))
                    }
                    Value::Set(view) => {
                        view.for_each(|member| _ = fields.insert(member.to_vec(), Vec::new()))
                    }
                    other => panic!("{other:?}"),
                }
            }
            SnapshotItem::End => {}
            SnapshotItem::Bundle(_) => panic!("nothing is frozen"),
        }
    }

    fn part(&mut self, part: Part<'_>) {
        let fields = self.model.get_mut(&self.key).expect("it was begun");
        let old = match part {
            Part::Field(field, value, _) => fields.insert(field.to_vec(), value.to_vec()),
            Part::Member(member) => fields.insert(member.to_vec(), Vec::new()),
            other => panic!("{other:?}"),
        };
        assert!(old.is_none(), "each comes once");
    }
}

#[test]
fn pages_that_left_memory_are_what_they_were() {
    for seed in 0..6 {
        let mut world = World::new(seed);
        for step in 0..1500 {
            world.step();
            if step % 50 == 0 {
                world.keyspace.check_invariants();
            }
        }
        (0..KEYS).for_each(|number| world.check(&name_of(number)));
        let counts =
            [world.chilled, world.clean, world.moved, world.moved_clean, world.runs_again, world.waits];
        assert!(counts.iter().all(|count| *count > 50), "{counts:?}");
        flush_and_check(world.keyspace, world.now);
        assert!(world.keeper.values.lock().unwrap().is_empty(), "all references went back");
    }
}

#[test]
fn snapshots_have_them_as_they_were_at_the_cut() {
    let mut nodes = 0;
    for seed in 0..8 {
        let mut world = World::new(100 + seed);
        (0..300).for_each(|_| world.step());
        for _ in 0..6 {
            (0..10).for_each(|_| world.sink());
            let keyspace = world.keyspace;
            let expected = world.model.clone();
            let mut snapshot = keyspace.snapshot().expect("there is one at a time");
            let (mut taken, keeper) = (Taken::default(), Arc::clone(&world.keeper));
            while snapshot.step(40, &mut |item| taken.take(&keeper, item)) {
                if world.prng.one_in(2) {
                    world.step();
                }
            }
            assert!(taken.model == expected);
            nodes += taken.nodes;
            world.keyspace.check_invariants();
        }
        flush_and_check(world.keyspace, world.now);
        assert!(world.keeper.values.lock().unwrap().is_empty(), "all references went back");
    }
    assert!(nodes > 100, "{nodes}");
}
