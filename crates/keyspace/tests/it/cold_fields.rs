//! Hashes whose fields have times, and that leave memory: their fields leave when they are due, as where all
//! stay.

use crate::cold::Keeper;
use crate::support::*;
use isotherm_keyspace::*;
use isotherm_stdx::Prng;
use std::collections::BTreeMap;
use std::sync::Arc;

const LIMITS: SinkLimits =
    SinkLimits { value_bytes_min: 16, value_bytes_max: (1 << 24) - 1, by_nodes: ByNodes::Large };
const KEYS: u64 = 24;

/// Number of fields that left.
#[derive(Default)]
struct Gone(usize);

impl EffectSink for Gone {
    fn mask(&self) -> EffectMask {
        EffectMask::ALL
    }

    fn effect(&mut self, effect: Effect<'_>) {
        if let Effect::FieldsExpired { fields, .. } = effect {
            self.0 += fields.len();
        }
    }
}

struct Pair {
    /// All stays in memory in the first.
    keyspaces: [Keyspace; 2],
    gone: [Gone; 2],
    keeper: Arc<Keeper>,
    prng: Prng,
    now: i64,
    chilled: u64,
    came: u64,
    moved: u64,
}

type Fields = BTreeMap<Vec<u8>, (Vec<u8>, Option<i64>)>;

fn name_of(number: u64) -> Vec<u8> {
    format!("hash:{number}").into_bytes()
}

fn fields_of(view: HashView<'_>) -> Fields {
    let mut all = Fields::new();
    view.for_each_with_expiry(|field, value, at| {
        all.insert(field.to_vec(), (value.to_vec(), at.map(|at| at.0)));
    });
    for (field, (value, at)) in &all {
        let found = view.get_with_expiry(field).expect("it was just shown");
        assert_eq!((found.0.to_vec(), found.1.map(|at| at.0)), (value.clone(), *at));
        assert_eq!(view.get(field).map(Element::to_vec).as_ref(), Some(value));
    }
    let mut prng = Prng::new(1);
    let drawn = view.draws().next(&mut |below| prng.below(below));
    assert_eq!(drawn.is_some(), !all.is_empty());
    assert!(drawn.is_none_or(|(field, _)| all.contains_key(&field.to_vec())));
    all
}

impl Pair {
    fn new(seed: u64) -> Pair {
        let keyspaces = [1, 2].map(|part| keyspace(2, 1, 1 << 30, seed as u8 ^ part));
        let keeper: Arc<Keeper> = Arc::default();
        let shared: Arc<dyn ColdKeeper> = keeper.clone();
        keyspaces[1].keep_cold(&shared);
        let (prng, gone) = (Prng::new(seed), Default::default());
        Pair { keyspaces, gone, keeper, prng, now: START, chilled: 0, came: 0, moved: 0 }
    }

    fn txn<R>(&self, index: usize, work: impl FnOnce(&mut Txn<'_, '_>) -> R) -> R {
        let mut held = Held::new(&self.keyspaces[index]);
        held.acquire(Want::All);
        let mut sink = NoEffects;
        let mut txn = Txn::new(&mut held, conditions(self.now), &mut sink);
        txn.on_cold = OnCold::Read;
        let answer = work(&mut txn);
        txn.finish();
        answer
    }

    /// Fields come, get times, lose them, and go.
    fn change(&mut self) {
        let number = self.prng.below(KEYS);
        let name = name_of(number);
        let fields = if number < KEYS / 2 { 6 } else { 200 };
        let words: Vec<(Vec<u8>, u64, u64)> = (0..self.prng.below(fields))
            .map(|_| {
                let field = format!("field:{}", self.prng.below(fields)).into_bytes();
                (field, self.prng.below(8), self.prng.below(40_000))
            })
            .collect();
        let now = self.now;
        for index in 0..2 {
            self.txn(index, |txn| {
                let key = txn.key(&name);
                txn.edit_hash(Db(0), &key, &Limits::default(), |hash| {
                    for (field, what, ms) in &words {
                        let at = Some(UnixMs(now + 1 + *ms as i64));
                        match what {
                            0..3 => drop(hash.set(field, b"value", None, false).expect("there is room")),
                            3 => drop(hash.set(field, b"77", at, false).expect("there is room")),
                            4..6 => drop(hash.set_expiry(field, at).expect("there is room")),
                            6 => drop(hash.set_expiry(field, None).expect("there is room")),
                            _ => _ = hash.remove(field, false),
                        }
                    }
                })
                .expect("it is a hash");
                if number.is_multiple_of(5) && words.len() % 7 == 3 {
                    let at = Some(UnixMs(now + 5_000 + words.len() as i64));
                    txn.set_expiry(Db(0), &key, at).expect("there is room");
                }
            });
        }
    }

    fn sink(&mut self) {
        let (name, now) = (name_of(self.prng.below(KEYS)), UnixMs(self.now));
        let keyspace = &self.keyspaces[1];
        let key = keyspace.key(&name);
        let mut held = Held::new(keyspace);
        held.acquire(Want::One(keyspace.partition_of(key.slot)));
        let mut room = SinkRoom::default();
        let Some(value) = Sinkable::of(&mut held, Db(0), &key, LIMITS, now) else { return };
        let Payload { form_number, bytes } = value.payload(&mut room);
        let bytes = bytes.to_vec();
        let reference = self.keeper.keep(&bytes);
        assert_ne!(held.chill(Db(0), &key, &bytes, form_number, reference, now), Chilled::No);
        self.chilled += u64::from(form_number == 13);
        // The value as read from a file, and elsewhere.
        let cold = held.cold(Db(0), &key).expect("it just left");
        let again = ColdValue::of_file(form_number, reference.raw(), cold.due()).expect("it is one");
        assert_eq!(again, cold);
        assert!(ColdValue::of_file(form_number, reference.raw(), None).is_none() || form_number != 13);
        let read = cold.with_bytes(&bytes);
        let Value::Hash(view) = read.value() else { panic!("it is a hash") };
        assert_eq!(view.has_volatile(), form_number == 13);
        let seen = fields_of(view);
        assert_eq!(view.len(), seen.len() as u64);
        let first = seen.values().filter_map(|(_, at)| *at).min();
        assert_eq!(cold.due().map(|at| at.0 / 256), first.map(|at| at / 256));
        if self.prng.one_in(3) {
            let to = self.keeper.keep(&bytes);
            assert!(held.move_cold(Db(0), &key, reference, to));
            assert_eq!(held.cold(Db(0), &key).and_then(ColdValue::due), cold.due());
            self.moved += 1;
        }
    }

    /// Runs the active cycle of both: hashes that were asked for come back to memory, and the cycle
    /// continues. Returns whether all of them could be read.
    fn expire(&mut self) -> bool {
        let (now, mut is_all_read) = (UnixMs(self.now), true);
        for round in 0..2 {
            for (keyspace, gone) in self.keyspaces.iter().zip(&mut self.gone) {
                for partition in 0..keyspace.partition_count() as u16 {
                    while keyspace.expire_step(partition, now, 50, gone).more {}
                }
            }
            let asked = std::mem::take(&mut *self.keeper.asked.lock().unwrap());
            assert!(round == 0 || asked.is_empty(), "it is asked for once a second");
            for (db, name) in asked {
                let keyspace = &self.keyspaces[1];
                let key = keyspace.key(&name);
                let mut held = Held::new(keyspace);
                held.acquire(Want::One(keyspace.partition_of(key.slot)));
                let cold = held.cold(db, &key).expect("only what is not here is asked for");
                assert!(cold.due().expect("it has fields with times").0 < self.now);
                if self.prng.one_in(10) {
                    // It cannot be read: the next cycle after a second asks again.
                    is_all_read = false;
                    continue;
                }
                let value = self.keeper.read(cold.reference);
                assert_eq!(held.warm(db, &key, &value, cold.reference, now), Ok(true));
                self.came += 1;
            }
        }
        is_all_read
    }

    fn settle(&mut self) {
        while !self.expire() {
            self.now += 1500;
        }
    }

    fn shown(&self, index: usize, name: &[u8]) -> Option<(Fields, Option<UnixMs>)> {
        self.txn(index, |txn| {
            let key = txn.key(name);
            let entry = txn.find(Db(0), &key, Lookup::Silent)?;
            let Value::Hash(view) = entry.value else { panic!("{:?}", entry.value) };
            let fields = fields_of(view);
            assert!(index == 0 || !view.has_volatile() || entry.encoding() == Encoding::Hashtable);
            Some((fields, entry.expiry))
        })
    }

    /// Hashes that have fields with times.
    fn timed(&self) -> [u64; 2] {
        self.keyspaces.each_ref().map(|keyspace| {
            let mut held = Held::new(keyspace);
            held.acquire(Want::All);
            Survey::new(&mut held).databases().iter().map(|keys| keys.timed_hashes).sum::<u64>()
        })
    }

    fn check(&self) {
        self.keyspaces.iter().for_each(Keyspace::check_invariants);
        for number in 0..KEYS {
            let name = name_of(number);
            assert_eq!(self.shown(0, &name), self.shown(1, &name));
        }
    }
}

#[test]
fn fields_of_hashes_that_left_memory_leave_when_they_are_due() {
    for seed in 0..4 {
        let mut pair = Pair::new(seed);
        for step in 0..4000 {
            pair.now += pair.prng.below(60) as i64;
            match pair.prng.below(20) {
                0..6 => pair.change(),
                6..16 => pair.sink(),
                16..19 => _ = pair.expire(),
                _ => _ = compact(&pair.keyspaces[1], 20),
            }
            if step % 200 == 0 {
                pair.settle();
                pair.check();
            }
        }
        let counts = [pair.chilled, pair.came, pair.moved];
        assert!(counts[0] > 200 && counts[1] > 20 && counts[2] > 50, "{counts:?}");
        // Nothing is asked for any more: all left that was due.
        pair.settle();
        pair.gone = Default::default();
        pair.now += 60_000;
        pair.settle();
        pair.check();
        assert_eq!(pair.timed(), [0, 0]);
        // Fields that were due in the same moment may have left earlier in one of them.
        assert!(pair.gone.iter().all(|gone| gone.0 > 10), "{} {}", pair.gone[0].0, pair.gone[1].0);
        pair.keyspaces.iter().for_each(|keyspace| flush_and_check(keyspace, pair.now));
        assert!(pair.keeper.values.lock().unwrap().is_empty(), "all references went back");
    }
}
