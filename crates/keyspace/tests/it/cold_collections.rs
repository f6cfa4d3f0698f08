//! Collections that leave memory as a whole, compared with a keyspace in which all stay: the same changes,
//! the same elements, the same encodings.

use crate::cold::Keeper;
use crate::support::*;
use isotherm_keyspace::*;
use isotherm_stdx::Prng;
use std::collections::HashMap;
use std::sync::Arc;

const LIMITS: SinkLimits =
    SinkLimits { value_bytes_min: 16, value_bytes_max: (1 << 24) - 1, by_nodes: ByNodes::Large };
const KEYS: u64 = 16;
/// Limit of the bytes that are lent, in each partition.
const LENT_BYTES_MAX: usize = 3000;

struct Pair {
    /// All stays in memory in the first.
    keyspaces: [Keyspace; 2],
    keeper: Arc<Keeper>,
    prng: Prng,
    now: i64,
    chilled: [u64; 4],
    forms: HashMap<(&'static str, &'static str), u64>,
}

/// Returns the name of a key of one of four types, by the key's number.
fn name_of(number: u64) -> Vec<u8> {
    format!("{}:{number}", ["hash", "set", "zset", "list"][number as usize % 4]).into_bytes()
}

fn text(prng: &mut Prng, elements: u64) -> Vec<u8> {
    let number = prng.below(elements);
    match number % 7 {
        0 | 1 => (number as i64 - 20).to_string().into_bytes(),
        2 if number.is_multiple_of(5) => vec![b'x'; 70 + number as usize % 300],
        _ => format!("element:{number}").into_bytes(),
    }
}

impl Pair {
    fn new(seed: u64) -> Pair {
        let keyspaces = [1, 2].map(|part| keyspace(2, 1, 1 << 30, seed as u8 ^ part));
        let keeper: Arc<Keeper> = Arc::default();
        let shared: Arc<dyn ColdKeeper> = keeper.clone();
        keyspaces[1].keep_cold(&shared);
        Pair { keyspaces, keeper, prng: Prng::new(seed), now: START, chilled: [0; 4], forms: HashMap::new() }
    }

    /// Does the same work on both, and checks that both answer the same.
    fn both<R: PartialEq + std::fmt::Debug>(&mut self, work: impl Fn(&mut Txn<'_, '_>) -> R) -> R {
        let now = self.now;
        let [hot, cold] = self.keyspaces.each_ref().map(|keyspace| {
            let mut held = Held::new(keyspace);
            held.acquire(Want::All);
            let mut sink = NoEffects;
            let mut txn = Txn::new(&mut held, conditions(now), &mut sink);
            txn.on_cold = OnCold::Read;
            let answer = work(&mut txn);
            txn.finish();
            assert!(!held.has_missed());
            answer
        });
        assert_eq!(hot, cold);
        hot
    }

    /// Some elements come or go. With few kinds of elements a collection stays small.
    fn change(&mut self) {
        let number = self.prng.below(KEYS);
        let (name, elements) = (name_of(number), if number < KEYS / 2 { 30 } else { 900 });
        let grows = self.prng.below(3) > 0;
        let ints = number % 8 == 1;
        let words: Vec<Vec<u8>> = (0..self.prng.below(60)).map(|_| text(&mut self.prng, elements)).collect();
        let words: Vec<Vec<u8>> = match ints {
            true => words.iter().map(|_| self.prng.below(450).to_string().into_bytes()).collect(),
            false => words,
        };
        self.both(|txn| {
            let (key, limits) = (txn.key(&name), Limits::default());
            let words = words.iter().map(Vec::as_slice);
            match number % 4 {
                0 => drop(txn.edit_hash(Db(0), &key, &limits, |hash| {
                    words.for_each(|word| match grows {
                        true => _ = hash.set(word, word, None, false).expect("there is room"),
                        false => _ = hash.remove(word, false),
                    });
                })),
                1 => drop(txn.edit_set(Db(0), &key, &limits, |set| {
                    if let Some(first) = words.clone().next().filter(|_| grows) {
                        set.expect(first, words.len()).expect("there is room");
                    }
                    words.for_each(|word| match grows {
                        true => _ = set.add(word).expect("there is room"),
                        false => _ = set.remove(word),
                    });
                })),
                2 => drop(txn.edit_zset(Db(0), &key, &limits, |zset| {
                    words.for_each(|word| match grows {
                        true => _ = zset.set(word, word.len() as f64 / 4.0).expect("there is room"),
                        false => _ = zset.remove(word),
                    });
                })),
                _ => drop(txn.edit_list(Db(0), &key, &limits, |list| match grows {
                    true => {
                        let all: Vec<&[u8]> = words.collect();
                        list.before_growth(all.iter().copied()).expect("there is room");
                        list.push(End::Back, all.into_iter()).expect("there is room");
                    }
                    false => {
                        let count = list.len().min(words.len() as u64);
                        list.remove(0, count).expect("nothing grows");
                    }
                })),
            }
        });
    }

    fn move_or_remove(&mut self) {
        let number = self.prng.below(KEYS);
        let (name, other) = (name_of(number), name_of((number + 4 * self.prng.below(KEYS / 4)) % KEYS));
        let what = self.prng.below(3);
        // Sets of integers stay such.
        if name == other && what > 0 || number % 4 == 1 {
            return;
        }
        self.both(|txn| {
            let (from, to) = (txn.key(&name), txn.key(&other));
            if what == 0 || !txn.contains(Db(0), &from) {
                return txn.remove(Db(0), &from);
            }
            // As its command does, which needs the value.
            txn.find(Db(0), &from, Lookup::Write).expect("it is there");
            match what {
                1 => txn.rename((Db(0), &from), (Db(0), &to)).expect("there is room"),
                _ => txn.copy((Db(0), &from), (Db(0), &to)).expect("there is room"),
            }
            true
        });
    }

    /// Moves what the hand shows of a key's slot out of memory; sometimes it has changed since it was shown.
    fn sink(&mut self) {
        let name = name_of(self.prng.below(KEYS));
        let mut hand = SlotHand::at(Slot::of_key(&name));
        let (mut shown, mut room, now) = (Vec::new(), SinkRoom::default(), UnixMs(self.now));
        let keyspace = &self.keyspaces[1];
        let hold = |held: &mut Held<'_>| held.acquire(Want::One(keyspace.partition_of(Slot::of_key(&name))));
        {
            let mut held = Held::new(keyspace);
            hold(&mut held);
            hand.show_sinkable(&mut held, LIMITS, 1000, now, &mut |value| {
                let payload = value.payload(&mut room);
                shown.push((value.key.to_vec(), payload.bytes.to_vec(), payload.form_number));
            });
        }
        let changes = self.prng.one_in(8);
        if changes {
            self.change();
        }
        for (key, value, form) in shown {
            let reference = self.keeper.keep(&value);
            let keyspace = &self.keyspaces[1];
            let mut held = Held::new(keyspace);
            held.acquire(Want::One(keyspace.partition_of(Slot::of_key(&key))));
            let is_cold = held.chill(Db(0), &keyspace.key(&key), &value, form, reference, now) != Chilled::No;
            assert!(is_cold || changes, "{:?}", String::from_utf8_lossy(&key));
            self.chilled
                [[b'h', b's', b'z', b'l'].iter().position(|first| *first == key[0]).expect("one of four")] +=
                u64::from(is_cold);
        }
    }

    /// Lends a value as for a command that only reads.
    fn lend(&mut self) {
        let name = name_of(self.prng.below(KEYS));
        let keyspace = &self.keyspaces[1];
        let key = keyspace.key(&name);
        let mut held = Held::new(keyspace);
        held.acquire(Want::One(keyspace.partition_of(key.slot)));
        let Some(cold) = held.cold(Db(0), &key) else { return };
        let value = self.keeper.read(cold.reference);
        held.lend(Db(0), &key, Some(&value), cold.reference, LENT_BYTES_MAX, UnixMs(self.now));
        assert_eq!(held.whereabouts(Db(0), &key, false), Whereabouts::Here);
    }

    /// Elements, in the order in which that type has them, and the encoding.
    fn check(&mut self) {
        self.keyspaces.iter().for_each(Keyspace::check_invariants);
        for number in 0..KEYS {
            let name = name_of(number);
            let seen = self.both(|txn| {
                let key = txn.key(&name);
                let entry = txn.find(Db(0), &key, Lookup::Silent)?;
                let (kind, encoding) = (entry.kind().name(), entry.encoding().name());
                let mut elements = Vec::new();
                match entry.value {
                    Value::Hash(view) => {
                        assert_eq!(view.encoding(), entry.encoding());
                        view.for_each(|field, value| {
                            elements.push([field.to_vec(), value.to_vec()].concat())
                        });
                        elements.sort();
                    }
                    Value::Set(view) => {
                        assert_eq!(view.encoding(), entry.encoding());
                        view.for_each(|member| elements.push(member.to_vec()));
                        elements.sort();
                        assert!(elements.iter().all(|member| view.contains(member)));
                    }
                    Value::Zset(view) => view.for_each(0, view.len(), true, |member, score| {
                        elements.push([&member.to_vec()[..], &score.to_le_bytes()].concat());
                    }),
                    Value::List(view) => {
                        assert_eq!(view.encoding(), entry.encoding());
                        elements.extend(view.iter(0, End::Front).map(Element::to_vec));
                    }
                    other => panic!("{other:?}"),
                }
                Some((kind, encoding, elements))
            });
            if let Some((kind, encoding, _)) = seen {
                *self.forms.entry((kind, encoding)).or_default() += 1;
            }
        }
    }

    fn step(&mut self) {
        self.now += self.prng.below(50) as i64;
        match self.prng.below(20) {
            0..8 => self.change(),
            8 => self.move_or_remove(),
            9..17 => self.sink(),
            17..19 => self.lend(),
            _ => _ = compact(&self.keyspaces[1], 20),
        }
    }
}

#[test]
fn collections_that_left_memory_are_what_they_were() {
    let mut forms = HashMap::new();
    for seed in 0..4 {
        let mut pair = Pair::new(seed);
        for step in 0..2500 {
            pair.step();
            if step % 100 == 0 {
                pair.check();
            }
        }
        pair.check();
        assert!(pair.chilled.iter().all(|count| *count > 30), "{:?}", pair.chilled);
        pair.forms.iter().for_each(|(form, count)| *forms.entry(*form).or_insert(0) += count);
        pair.keyspaces.iter().for_each(|keyspace| flush_and_check(keyspace, pair.now));
        assert!(pair.keeper.values.lock().unwrap().is_empty(), "all references went back");
    }
    let expected = [("hash", "hashtable"), ("set", "hashtable"), ("set", "intset"), ("zset", "skiplist")];
    let others = [("list", "listpack"), ("list", "quicklist"), ("hash", "listpack"), ("zset", "listpack")];
    for form in expected.iter().chain(&others) {
        assert!(forms.contains_key(form), "{form:?} of {forms:?}");
    }
}
