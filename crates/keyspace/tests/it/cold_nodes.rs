//! Hashes and sets whose pages leave memory one by one, compared with a model: as a server does it, commands
//! that meet a page that is away run again when it was read, and commands that change something have what
//! they need read before, or wait for it.

use crate::cold_snapshots::*;
use crate::cold_world::{ColdWorld, Counts};
use isotherm_keyspace::*;
use isotherm_stdx::Prng;
use std::collections::BTreeMap;

const KEYS: u64 = 6;
const FIELDS: u64 = 900;

/// Fields and values; of a set no values.
type Fields = BTreeMap<Vec<u8>, Vec<u8>>;

struct World {
    cold: ColdWorld,
    model: Model<Fields>,
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
    fn value(&mut self) -> Vec<u8> {
        match self.cold.prng.below(20) {
            0 => vec![b'x'; 5000 + self.cold.prng.below(100) as usize],
            1..4 => vec![b'm'; 200 + self.cold.prng.below(1000) as usize],
            4..8 => self.cold.prng.below(1 << 40).to_string().into_bytes(),
            _ => format!("value {}", self.cold.prng.below(1000)).into_bytes(),
        }
    }

    fn word(&mut self, name: &[u8]) -> (Vec<u8>, Vec<u8>) {
        let field = field_of(self.cold.prng.below(FIELDS));
        (field, if is_set(name) { Vec::new() } else { self.value() })
    }

    /// Mostly what a change needs for elements is read before it. Returns whether it was.
    fn gives_before(&mut self, name: &[u8], elements: &[&[u8]]) -> bool {
        let gives = self.cold.prng.below(4) > 0;
        if gives {
            let rounds = self.cold.give_before(name, NodeNeed::Of { elements, reshapes: true });
            assert!(rounds <= 1, "what pages are needed is known at once");
        }
        gives
    }

    /// Runs a command that changes something. The command waits for the disk itself, and does not run again.
    fn change<R>(&mut self, work: impl Fn(&mut Txn<'_, '_>) -> R) -> R {
        let again = self.cold.counts.changes_again;
        let answer = self.cold.change(work);
        assert_eq!(self.cold.counts.changes_again, again);
        answer
    }

    fn edit(&mut self) {
        let name = name_of(self.cold.prng.below(KEYS));
        let many = if self.cold.prng.one_in(4) { 300 } else { 5 };
        let count = 1 + self.cold.prng.below(many);
        let grows = self.cold.prng.below(5) > 1;
        let words: Vec<(Vec<u8>, Vec<u8>)> = (0..count).map(|_| self.word(&name)).collect();
        let elements: Vec<&[u8]> = words.iter().map(|(field, _)| &field[..]).collect();
        let limits = Limits::default();
        let known = self.model.get(&name).cloned().unwrap_or_default();
        let (gives, waits) = (self.gives_before(&name, &elements), self.cold.counts.waits);
        self.change(|txn| {
            let (key, known) = (txn.key(&name), known.clone());
            if is_set(&name) {
                _ = txn.edit_set(Db(0), &key, &limits, |set| edit_set(set, &words, grows, known));
            } else {
                _ = txn.edit_hash(Db(0), &key, &limits, |hash| edit_hash(hash, &words, grows, known));
            }
        });
        // Many may split or merge pages more often than what was read before is enough for.
        let may_wait = !gives || words.len() > 1;
        assert!(may_wait || self.cold.counts.waits == waits, "all that it needs was read before");
        let fields = self.model.entry(name.clone()).or_default();
        for (word, value) in words {
            _ = if grows { fields.insert(word, value) } else { fields.remove(&word) };
        }
        if fields.is_empty() {
            self.model.remove(&name);
        }
    }

    fn pop(&mut self) {
        let name = name_of(self.cold.prng.below(KEYS / 2) * 2 + 1);
        let (seed, limits) = (self.cold.prng.next_u64(), Limits::default());
        let Some(left) = self.model.get(&name).map(|members| members.len()) else { return };
        if left < 2 {
            return;
        }
        // Which page it needs is drawn later.
        self.gives_before(&name, &[b"none"]);
        let popped = self.change(|txn| {
            let key = txn.key(&name);
            let mut prng = Prng::new(seed);
            txn.edit_set(Db(0), &key, &limits, |set| set.pop(&mut |n| prng.below(n))).expect("a set").result
        });
        let members = self.model.get_mut(&name).expect("it was there");
        assert!(members.remove(&popped.expect("it can be read")).is_some());
    }

    fn look(&mut self) {
        let name = name_of(self.cold.prng.below(KEYS));
        let (field, seed) = (field_of(self.cold.prng.below(FIELDS)), self.cold.prng.next_u64());
        let expected = self.model.get(&name).and_then(|fields| fields.get(&field)).cloned();
        let draws = self.cold.prng.one_in(3);
        let (found, drawn) = self.cold.read(|txn| {
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
        let (all, scanned, len) = self.cold.read(|txn| {
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
        let (name, other) = (name_of(self.cold.prng.below(KEYS)), name_of(self.cold.prng.below(KEYS)));
        let what = self.cold.prng.below(3);
        if name == other || is_set(&name) != is_set(&other) || !self.model.contains_key(&name) {
            return;
        }
        self.cold.change_whole(&name, |txn| {
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
}

/// Each answer is as what is known says; a word may come twice.
fn edit_set(set: &mut SetEdit<'_, '_>, words: &[(Vec<u8>, Vec<u8>)], grows: bool, mut known: Fields) {
    for (word, _) in words {
        if grows {
            assert_eq!(set.add(word), Ok(known.insert(word.clone(), Vec::new()).is_none()));
        } else {
            assert_eq!(set.remove(word), known.remove(word).is_some());
        }
    }
}

fn edit_hash(hash: &mut HashEdit<'_, '_>, words: &[(Vec<u8>, Vec<u8>)], grows: bool, mut known: Fields) {
    for (word, value) in words {
        if grows {
            let is_new = hash.set(word, value, None, false).map(|set| set.is_new);
            assert_eq!(is_new, Ok(known.insert(word.clone(), value.clone()).is_none()));
        } else {
            assert_eq!(hash.remove(word, false), known.remove(word).is_some());
        }
    }
}

impl Modelled for World {
    type Collection = Fields;

    fn new(seed: u64) -> World {
        World { cold: ColdWorld::new(seed), model: Model::new() }
    }

    fn cold(&mut self) -> &mut ColdWorld {
        &mut self.cold
    }

    fn model(&self) -> &Model<Fields> {
        &self.model
    }

    fn step(&mut self) {
        self.cold.now += self.cold.prng.below(50) as i64;
        match self.cold.prng.below(40) {
            0..12 => self.edit(),
            12..14 => self.pop(),
            14..22 => self.look(),
            22..24 => self.check(&name_of(self.cold.prng.clone().below(KEYS))),
            24 => self.move_or_remove(),
            25 => self.cold.clean(),
            26..39 => self.sink(),
            _ => self.cold.compact(),
        }
    }

    fn sink(&mut self) {
        let shown = self.cold.show();
        if self.cold.prng.one_in(5) {
            self.edit();
        }
        self.cold.chill(shown);
    }

    fn check_all(&mut self) {
        (0..KEYS).for_each(|number| self.check(&name_of(number)));
    }

    fn whole(value: Value<'_>) -> Fields {
        let mut fields = Fields::new();
        match value {
            Value::Hash(hash) => {
                hash.for_each(|field, value| _ = fields.insert(field.to_vec(), value.to_vec()))
            }
            Value::Set(set) => set.for_each(|member| _ = fields.insert(member.to_vec(), Vec::new())),
            other => panic!("{other:?}"),
        }
        fields
    }

    fn add_part(fields: &mut Fields, part: Part<'_>) {
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
                world.cold.keyspace.check_invariants();
            }
        }
        world.check_all();
        let Counts { chilled, clean, moved, moved_clean, runs_again, changes_again: _, waits } =
            world.cold.counts;
        let counts = [chilled, clean, moved, moved_clean, runs_again, waits];
        assert!(counts.iter().all(|count| *count > 50), "{counts:?}");
        world.cold.end();
    }
}

#[test]
fn snapshots_have_them_as_they_were_at_the_cut() {
    have_them_as_they_were_at_the_cut::<World>();
}
