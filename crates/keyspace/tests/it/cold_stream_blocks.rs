//! Streams whose blocks leave memory one by one, compared with a model.

use crate::cold_snapshots::*;
use crate::cold_world::ColdWorld;
use isotherm_keyspace::*;
use isotherm_stdx::Prng;
use std::collections::BTreeMap;

const KEYS: u64 = 4;

type Fields = Vec<Vec<u8>>;
type Entries = BTreeMap<StreamId, Fields>;

struct World {
    cold: ColdWorld,
    model: Model<Entries>,
    last_ms: u64,
}

fn name_of(number: u64) -> Vec<u8> {
    format!("stream:{number}").into_bytes()
}

fn fields(prng: &mut Prng) -> Fields {
    let value = |prng: &mut Prng| match prng.below(300) {
        0 => vec![b'L'; 20_000],
        1..30 => vec![b'v'; 300],
        30..150 => prng.below(1000).to_string().into_bytes(),
        _ => format!("value:{:012x}", prng.next_u64() >> 16).into_bytes(),
    };
    let names: &[&[u8]] = if prng.one_in(10) { &[b"other"] } else { &[b"field", b"name"] };
    names.iter().flat_map(|name| [name.to_vec(), value(prng)]).collect()
}

fn owned(entry: StreamEntry<'_>) -> (StreamId, Fields) {
    (entry.id, entry.fields().flat_map(|(name, value)| [name.to_vec(), value.to_vec()]).collect())
}

impl World {
    fn pick(&mut self) -> Vec<u8> {
        name_of(self.cold.prng.below(KEYS))
    }

    /// An id of a stream, or one that is not there.
    fn pick_id(&mut self, name: &[u8]) -> StreamId {
        let ms = 1000 + self.cold.prng.below(self.last_ms - 990);
        let wanted = StreamId { ms, seq: self.cold.prng.below(3) };
        if self.cold.prng.one_in(5) {
            return wanted;
        }
        let found = self.model.get(name).and_then(|entries| entries.range(wanted..).next());
        found.map_or(wanted, |(id, _)| *id)
    }

    fn edit<R>(&mut self, name: &[u8], mut work: impl FnMut(&mut StreamEdit<'_, '_>) -> R) -> R {
        let limits = Limits { stream_node_max_bytes: 1500, ..Limits::default() };
        let work = &mut work;
        self.cold.change(|txn| {
            let key = txn.key(name);
            txn.edit_stream(Db(0), &key, &limits, |stream| work(stream)).expect("a stream").result
        })
    }

    /// XADD, with MAXLEN or MINID at times.
    fn add(&mut self) {
        let name = self.pick();
        let terms = self.cold.prng.one_in(8).then(|| self.terms(&name));
        let count = if terms.is_none() && self.cold.prng.one_in(4) { 120 } else { 1 };
        for _ in 0..count {
            // Ids with gaps between them too: a bound may lie between two blocks.
            self.last_ms += self.cold.prng.below(if name == name_of(0) { 40 } else { 3 });
            let seq = self.model.get(&name).and_then(|entries| entries.last_key_value());
            let seq = seq.filter(|(id, _)| id.ms == self.last_ms).map_or(0, |(id, _)| id.seq + 1);
            let id = StreamId { ms: self.last_ms.max(1), seq };
            let new = fields(&mut self.cold.prng);
            let texts: Vec<&[u8]> = new.iter().map(|text| &text[..]).collect();
            let mut is_behind = false;
            let added = self.edit(&name, |stream| {
                is_behind = id <= stream.state().last_id;
                if is_behind {
                    return Ok(0);
                }
                stream.want_add(terms)?;
                stream.add(id, &texts)?;
                terms.map_or(Ok(0), |(keep, whole, limit)| stream.trim(keep, whole, limit))
            });
            if is_behind {
                continue;
            }
            self.model.entry(name.clone()).or_default().insert(id, new);
            self.trimmed(&name, added, terms);
        }
    }

    fn terms(&mut self, name: &[u8]) -> (Trim, bool, u64) {
        let (whole, limit) = (self.cold.prng.one_in(2), [0, 0, 250][self.cold.prng.below(3) as usize]);
        let len = self.model.get(name).map_or(0, |entries| entries.len()) as u64;
        let keep = match self.cold.prng.below(3) {
            0 => Trim::From(self.pick_id(name)),
            1 => Trim::Len(len.saturating_sub(self.cold.prng.below(300))),
            _ => Trim::Len(len + 10),
        };
        (keep, whole, if whole { limit } else { 0 })
    }

    /// Removes the trimmed entries from the model. They are the first ones, as many as may be.
    fn trimmed(&mut self, name: &[u8], gone: Result<u64, Full>, terms: Option<(Trim, bool, u64)>) {
        let gone = gone.expect("there is room");
        let entries = self.model.entry(name.to_vec()).or_default();
        if let Some((keep, whole, limit)) = terms {
            let due = match keep {
                Trim::Len(len) => (entries.len() as u64).saturating_sub(len),
                Trim::From(id) => entries.range(..id).count() as u64,
            };
            assert!(if whole { gone <= due && (limit == 0 || gone <= limit) } else { gone == due });
        }
        (0..gone).for_each(|_| _ = entries.pop_first());
    }

    fn trim(&mut self) {
        let name = self.pick();
        if !self.model.contains_key(&name) {
            return;
        }
        let terms = self.terms(&name);
        let (keep, whole, limit) = terms;
        let gone = self.edit(&name, |stream| stream.trim(keep, whole, limit));
        self.trimmed(&name, gone, Some(terms));
    }

    fn delete(&mut self) {
        let name = self.pick();
        if !self.model.contains_key(&name) {
            return;
        }
        let mut ids: Vec<StreamId> = (0..1 + self.cold.prng.below(4)).map(|_| self.pick_id(&name)).collect();
        match self.cold.prng.below(8) {
            // Whole blocks, from the front.
            0 => ids = self.model[&name].keys().take(150).copied().collect(),
            // Many here and there, so that blocks end in what was deleted, and have few left.
            1 => {
                ids = self.model[&name]
                    .keys()
                    .filter(|_| !self.cold.prng.one_in(4))
                    .take(400)
                    .copied()
                    .collect()
            }
            _ => {}
        }
        if self.cold.prng.one_in(3) {
            // Some twice.
            ids.extend_from_within(..ids.len().min(5));
        }
        let deleted = self.edit(&name, |stream| {
            stream.want_ids(&ids)?;
            Ok::<_, Full>(ids.iter().filter(|id| stream.delete(**id) == Ok(true)).count())
        });
        let entries = self.model.get_mut(&name).expect("it is there");
        let there = ids.iter().filter(|id| entries.remove(*id).is_some()).count();
        assert_eq!(deleted, Ok(there));
    }

    fn look(&mut self) {
        let name = self.pick();
        if !self.model.contains_key(&name) {
            return;
        }
        let (from, to) = (self.pick_id(&name), self.pick_id(&name));
        let count = if self.cold.prng.one_in(4) { usize::MAX } else { self.cold.prng.below(200) as usize };
        let backwards = self.cold.prng.one_in(2);
        let (found, first) = self.cold.read(|txn| {
            let key = txn.key(&name);
            let Some(entry) = txn.find(Db(0), &key, Lookup::Read) else { panic!("it is there") };
            let Value::Stream(stream) = entry.value else { panic!("a stream") };
            let found: Vec<_> = match backwards {
                true => stream.range_back(from, to).at_most(count).map(owned).collect(),
                false => stream.range(from, to).at_most(count).map(owned).collect(),
            };
            (found, stream.state().first_id)
        });
        let entries = &self.model[&name];
        assert_eq!(first, entries.keys().next().copied().unwrap_or(StreamId::MIN));
        let pairs = |(id, fields): (&StreamId, &Fields)| (*id, fields.clone());
        let expected: Vec<_> = match backwards {
            _ if from > to => Vec::new(),
            true => entries.range(from..=to).rev().take(count).map(pairs).collect(),
            false => entries.range(from..=to).take(count).map(pairs).collect(),
        };
        assert!(found == expected);
    }

    /// Looks entries up by their ids, as a consumer does before it claims them.
    fn look_up(&mut self) {
        let name = self.pick();
        if !self.model.contains_key(&name) {
            return;
        }
        let ids: Vec<StreamId> = (0..5).map(|_| self.pick_id(&name)).collect();
        let found = self.edit(&name, |stream| {
            if !stream.wants(ids.iter().copied()) {
                return None;
            }
            Some(ids.iter().map(|id| stream.range(*id, *id).next().map(owned)).collect::<Vec<_>>())
        });
        let entries = &self.model[&name];
        let expected: Vec<_> = ids.iter().map(|id| Some((*id, entries.get(id)?.clone()))).collect();
        assert!(found == Some(expected));
    }

    fn check(&mut self, name: &[u8]) {
        let (all, len) = self.cold.read(|txn| {
            let key = txn.key(name);
            let Some(entry) = txn.find(Db(0), &key, Lookup::Read) else { return (Entries::new(), 0) };
            let Value::Stream(stream) = entry.value else { panic!("a stream") };
            (stream.range(StreamId::MIN, StreamId::MAX).map(owned).collect(), stream.len())
        });
        let expected = self.model.get(name).cloned().unwrap_or_default();
        assert_eq!(len, expected.len() as u64);
        assert!(all == expected);
    }

    fn move_or_remove(&mut self) {
        let (name, other) = (self.pick(), self.pick());
        let what = self.cold.prng.below(4);
        if name == other || !self.model.contains_key(&name) {
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
        let entries = self.model[&name].clone();
        if what < 2 {
            self.model.remove(&name);
        }
        if what > 0 {
            self.model.insert(other, entries);
        }
    }
}

impl Modelled for World {
    type Collection = Entries;

    fn new(seed: u64) -> World {
        World { cold: ColdWorld::new(seed), model: Model::new(), last_ms: 1000 }
    }

    fn cold(&mut self) -> &mut ColdWorld {
        &mut self.cold
    }

    fn model(&self) -> &Model<Entries> {
        &self.model
    }

    fn step(&mut self) {
        self.cold.now += self.cold.prng.below(50) as i64;
        match self.cold.prng.below(60) {
            0..14 => self.add(),
            14..17 => self.trim(),
            17..24 => self.delete(),
            24..33 => self.look(),
            33..37 => self.look_up(),
            37 => {
                let name = self.pick();
                self.check(&name);
            }
            38 => self.move_or_remove(),
            39..41 => self.cold.clean(),
            41..59 => self.sink(),
            _ => self.cold.compact(),
        }
    }

    fn sink(&mut self) {
        let shown = self.cold.show();
        if self.cold.prng.one_in(5) {
            self.delete();
            self.add();
        }
        self.cold.chill(shown);
    }

    fn check_all(&mut self) {
        (0..KEYS).for_each(|number| self.check(&name_of(number)));
    }

    fn whole(_: Value<'_>) -> Entries {
        panic!("a stream comes in parts")
    }

    fn add_part(entries: &mut Entries, part: Part<'_>) {
        let Part::Stream(part) = part else { panic!("{part:?}") };
        if let StreamPart::Entry(entry) = part {
            let (id, fields) = owned(entry);
            assert!(entries.insert(id, fields).is_none(), "each comes once");
        }
    }
}

#[test]
fn blocks_that_left_memory_are_what_they_were() {
    for seed in 0..6 {
        println!("seed {seed}");
        let mut world = World::new(seed);
        for step in 0..1500 {
            world.step();
            if step % 50 == 0 {
                world.cold.keyspace.check_invariants();
            }
        }
        world.check_all();
        let counts = world.cold.counts.all();
        assert!(counts.iter().all(|count| *count > 20), "{:?}", world.cold.counts);
        world.cold.end();
    }
}

#[test]
fn snapshots_have_them_as_they_were_at_the_cut() {
    have_them_as_they_were_at_the_cut::<World>();
}

/// A stream of 100,000: what is read is what is asked for.
#[test]
fn a_command_reads_the_blocks_that_it_needs() {
    let mut world = World::new(7);
    let (name, key_limits) = (name_of(0), Limits::default());
    let id = |n: u64| StreamId { ms: 1000 + n, seq: 0 };
    world.cold.change(|txn| {
        let key = txn.key(&name);
        let add = |stream: &mut StreamEdit<'_, '_>| {
            (0..100_000).for_each(|n| stream.add(id(n), &[b"field", b"value"]).expect("there is room"));
        };
        txn.edit_stream(Db(0), &key, &key_limits, add).expect("there is room");
    });
    let sink = |world: &mut World| (0..40).for_each(|_| world.cold.sink());
    type Look<'l> = &'l dyn Fn(StreamView<'_>) -> usize;
    let looks: [(Look<'_>, usize, u64); 4] = [
        (&|stream| stream.range(id(55_555), id(55_555)).count(), 1, 1),
        (&|stream| stream.range(StreamId::MIN, StreamId::MAX).at_most(10).count(), 10, 1),
        (&|stream| stream.range_back(StreamId::MIN, StreamId::MAX).at_most(10).count(), 10, 1),
        // Blocks have 100 entries.
        (&|stream| stream.range(id(10_050), StreamId::MAX).at_most(1000).count(), 1000, 12),
    ];
    for (look, expected, nodes_max) in looks {
        sink(&mut world);
        let (found, nodes) = world.cold.read_counted(|txn| {
            let key = txn.key(&name);
            let Some(entry) = txn.find(Db(0), &key, Lookup::Read) else { panic!("it is there") };
            let Value::Stream(stream) = entry.value else { panic!("a stream") };
            look(stream)
        });
        assert_eq!(found, expected);
        assert!((1..=nodes_max).contains(&nodes), "{nodes} of {nodes_max}");
    }
    sink(&mut world);
    let again = world.cold.counts.changes_again;
    let gone = world.edit(&name, |stream| {
        stream.want_add(Some((Trim::Len(50_000), false, 0)))?;
        stream.add(id(100_000), &[b"field", b"value"])?;
        stream.trim(Trim::Len(50_000), false, 0)
    });
    assert_eq!((gone, world.cold.counts.changes_again), (Ok(50_001), again + 1));
    sink(&mut world);
    let (again, home) = (world.cold.counts.changes_again, world.cold.given());
    let gone = world.edit(&name, |stream| stream.trim(Trim::From(id(90_050)), false, 0));
    assert_eq!(gone, Ok(40_049));
    let reads = world.cold.given() - home;
    assert!(
        world.cold.counts.changes_again == again + 1 && reads <= 2,
        "blocks that go are not read: {reads}"
    );
    world.cold.end();
}
