//! Lists whose blocks leave memory one by one, compared with a model.

use crate::cold_snapshots::*;
use crate::cold_world::ColdWorld;
use isotherm_keyspace::*;
use isotherm_stdx::Prng;
use std::collections::VecDeque;

const KEYS: u64 = 4;

type List = VecDeque<Vec<u8>>;

struct World {
    cold: ColdWorld,
    model: Model<List>,
}

fn name_of(number: u64) -> Vec<u8> {
    format!("list:{number}").into_bytes()
}

/// Texts that come again, numbers, long ones, and some too long for a block.
fn text(prng: &mut Prng) -> Vec<u8> {
    match prng.below(60) {
        0 => vec![b'L'; 9000],
        1..4 => [format!("{}:", prng.below(50)).into_bytes(), vec![b'l'; 400]].concat(),
        4..20 => prng.below(30).to_string().into_bytes(),
        20..30 => format!("job:{}", prng.below(20)).into_bytes(),
        _ => format!("element:{:012x}", prng.next_u64() >> 16).into_bytes(),
    }
}

impl World {
    fn pick(&mut self) -> Vec<u8> {
        name_of(self.cold.prng.below(KEYS))
    }

    fn len(&self, name: &[u8]) -> u64 {
        self.model.get(name).map_or(0, |list| list.len() as u64)
    }

    /// Changes a list; what `work` answers when all was there.
    fn edit<R>(&mut self, name: &[u8], mut work: impl FnMut(&mut ListEdit<'_, '_>) -> R) -> R {
        let limits = Limits::default();
        let work = &mut work;
        self.cold.change(|txn| {
            let key = txn.key(name);
            txn.edit_list(Db(0), &key, &limits, |list| work(list)).expect("a list").result
        })
    }

    fn push(&mut self) {
        let name = self.pick();
        let most = if self.len(&name) < 20_000 && self.cold.prng.one_in(3) { 400 } else { 4 };
        let prng = &mut self.cold.prng;
        let texts: Vec<Vec<u8>> = (0..1 + prng.below(most)).map(|_| text(prng)).collect();
        let end = if prng.one_in(2) { End::Front } else { End::Back };
        let again = self.cold.counts.changes_again;
        assert_eq!(self.edit(&name, |list| list.push(end, texts.iter().map(|text| &text[..]))), Ok(()));
        assert_eq!(self.cold.counts.changes_again, again, "a push reads nothing");
        let list = self.model.entry(name).or_default();
        for text in texts {
            if end == End::Front { list.push_front(text) } else { list.push_back(text) }
        }
    }

    fn pop(&mut self) {
        let name = self.pick();
        let len = self.len(&name);
        if len == 0 {
            return;
        }
        let most = if self.cold.prng.one_in(4) { 1500 } else { 3 };
        let count = (1 + self.cold.prng.below(most)).min(len);
        let end = if self.cold.prng.one_in(2) { End::Front } else { End::Back };
        let from = if end == End::Front { 0 } else { len - 1 };
        let popped = self.edit(&name, |list| {
            let popped: Vec<_> = match count {
                1 => list.end(end).into_iter().map(Element::to_vec).collect(),
                _ => list.iter(from, end).take(count as usize).map(Element::to_vec).collect(),
            };
            list.remove(if end == End::Front { 0 } else { len - count }, count).map(|()| popped)
        });
        let popped = popped.unwrap_or_default();
        let list = self.model.get_mut(&name).expect("it is there");
        let pop = |_| if end == End::Front { list.pop_front() } else { list.pop_back() };
        assert!(popped.into_iter().map(Some).eq((0..count).map(pop)));
        self.forget_empty(&name);
    }

    fn forget_empty(&mut self, name: &[u8]) {
        if self.len(name) == 0 {
            self.model.remove(name);
        }
    }

    fn change_one(&mut self) {
        let name = self.pick();
        let len = self.len(&name);
        if len == 0 {
            return;
        }
        let (index, new) = (self.cold.prng.below(len), text(&mut self.cold.prng));
        let sets = self.cold.prng.one_in(2);
        let done = self.edit(&name, |list| match sets {
            true => list.set(index, &new),
            false => list.insert(index, &new),
        });
        assert_eq!(done, Ok(()));
        let list = self.model.get_mut(&name).expect("it is there");
        if sets { list[index as usize] = new } else { list.insert(index as usize, new) }
    }

    /// LINSERT, of what may not be there.
    fn insert_behind(&mut self) {
        let name = self.pick();
        if self.len(&name) == 0 {
            return;
        }
        let (pivot, new) = (text(&mut self.cold.prng), text(&mut self.cold.prng));
        let at = self.edit(&name, |list| {
            let at = list.iter(0, End::Front).search(Element::of(&pivot), u64::MAX).next();
            at.map_or(Ok(None), |at| list.insert(at + 1, &new).map(|()| Some(at as usize)))
        });
        let list = self.model.get_mut(&name).expect("it is there");
        let expected = list.iter().position(|text| *text == pivot);
        assert_eq!(at, Ok(expected));
        if let Some(at) = expected {
            list.insert(at + 1, new);
        }
    }

    fn remove_equal(&mut self) {
        let name = self.pick();
        if self.len(&name) == 0 {
            return;
        }
        let wanted = text(&mut self.cold.prng);
        let from = if self.cold.prng.one_in(2) { End::Front } else { End::Back };
        let count = if self.cold.prng.one_in(4) { u64::MAX } else { 1 + self.cold.prng.below(3) };
        let removed = self.edit(&name, |list| list.remove_equal(from, count, &wanted));
        let list = self.model.get_mut(&name).expect("it is there");
        let mut found: Vec<usize> = (0..list.len()).filter(|at| list[*at] == wanted).collect();
        if from == End::Back {
            found.reverse();
        }
        found.truncate(usize::try_from(count).unwrap_or(usize::MAX));
        assert_eq!(removed, Ok(found.len() as u64));
        found.sort_unstable();
        found.iter().rev().for_each(|at| _ = list.remove(*at));
        self.forget_empty(&name);
    }

    fn trim(&mut self) {
        let name = self.pick();
        let len = self.len(&name);
        if len == 0 {
            return;
        }
        let cut = if self.cold.prng.one_in(6) { len } else { len.min(600) };
        let start = self.cold.prng.below(cut + 1);
        let end = (len - self.cold.prng.below(cut + 1)).max(start);
        assert_eq!(self.edit(&name, |list| list.trim(start..end)), Ok(()));
        let list = self.model.get_mut(&name).expect("it is there");
        list.truncate(end as usize);
        list.drain(..start as usize);
        self.forget_empty(&name);
    }

    fn rotate(&mut self) {
        let (name, other) = (self.pick(), self.pick());
        if self.len(&name) == 0 {
            return;
        }
        let end = |prng: &mut Prng| if prng.one_in(2) { End::Front } else { End::Back };
        let (from, to) = (end(&mut self.cold.prng), end(&mut self.cold.prng));
        let limits = Limits::default();
        // As LMOVE: pushed before it is taken.
        let moved: Result<(), EditError> = self.cold.change(|txn| {
            let (source, target) = (txn.key(&name), txn.key(&other));
            if name == other {
                let edited = txn.edit_list(Db(0), &source, &limits, |list| list.rotate(from, to))?;
                return Ok(edited.result?);
            }
            let read = txn.edit_list(Db(0), &source, &limits, |list| list.end(from).map(Element::to_vec))?;
            let element = read.result.expect("it has elements");
            let push = |list: &mut ListEdit<'_, '_>| list.push(to, std::iter::once(&element[..]));
            txn.edit_list(Db(0), &target, &limits, push)?.result?;
            let take = |list: &mut ListEdit<'_, '_>| {
                let at = if from == End::Front { 0 } else { list.len() - 1 };
                list.remove(at, 1)
            };
            Ok(txn.edit_list(Db(0), &source, &limits, take)?.result?)
        });
        assert_eq!(moved, Ok(()));
        let list = self.model.get_mut(&name).expect("it is there");
        let element = if from == End::Front { list.pop_front() } else { list.pop_back() };
        let list = self.model.entry(other).or_default();
        let element = element.expect("it has elements");
        if to == End::Front {
            list.push_front(element)
        } else {
            list.push_back(element)
        }
        self.forget_empty(&name);
    }

    fn look(&mut self) {
        let name = self.pick();
        let Some(list) = self.model.get(&name) else { return };
        let len = list.len() as u64;
        let index = self.cold.prng.below(len);
        let (count, from) = (self.cold.prng.below(700) as usize, self.cold.prng.one_in(2));
        let from = if from { End::Front } else { End::Back };
        let wanted = text(&mut self.cold.prng);
        let what = self.cold.prng.below(3);
        let (one, range, at) = self.cold.read(|txn| {
            let key = txn.key(&name);
            let Some(entry) = txn.find(Db(0), &key, Lookup::Read) else { panic!("it is there") };
            let Value::List(list) = entry.value else { panic!("a list") };
            match what {
                0 => (list.get(index).map(Element::to_vec), Vec::new(), None),
                1 => (None, list.iter(index, from).take(count).map(Element::to_vec).collect(), None),
                _ => {
                    let mut all = list.iter(0, End::Front).search(Element::of(&wanted), u64::MAX);
                    (None, Vec::new(), all.next().map(|at| at as usize))
                }
            }
        });
        match what {
            0 => assert_eq!(one.as_ref(), list.get(index as usize)),
            1 if from == End::Front => assert!(range.iter().eq(list.iter().skip(index as usize).take(count))),
            1 => assert!(range.iter().eq(list.iter().take(index as usize + 1).rev().take(count))),
            _ => assert_eq!(at, list.iter().position(|text| *text == wanted)),
        }
    }

    fn check(&mut self, name: &[u8]) {
        let all = self.cold.read(|txn| {
            let key = txn.key(name);
            let Some(entry) = txn.find(Db(0), &key, Lookup::Read) else { return VecDeque::new() };
            let Value::List(list) = entry.value else { panic!("a list") };
            list.iter(0, End::Front).map(Element::to_vec).collect()
        });
        assert!(all == self.model.get(name).cloned().unwrap_or_default());
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
        let list = self.model[&name].clone();
        if what < 2 {
            self.model.remove(&name);
        }
        if what > 0 {
            self.model.insert(other, list);
        }
    }
}

impl Modelled for World {
    type Collection = List;

    fn new(seed: u64) -> World {
        World { cold: ColdWorld::new(seed), model: Model::new() }
    }

    fn cold(&mut self) -> &mut ColdWorld {
        &mut self.cold
    }

    fn model(&self) -> &Model<List> {
        &self.model
    }

    fn step(&mut self) {
        self.cold.now += self.cold.prng.below(50) as i64;
        match self.cold.prng.below(60) {
            0..10 => self.push(),
            10..16 => self.pop(),
            16..22 => self.change_one(),
            22..24 => self.insert_behind(),
            24..26 => self.remove_equal(),
            26 => self.trim(),
            27..30 => self.rotate(),
            30..38 => self.look(),
            38 => {
                let name = self.pick();
                self.check(&name);
            }
            39 => self.move_or_remove(),
            40..42 => self.cold.clean(),
            42..59 => self.sink(),
            _ => self.cold.compact(),
        }
    }

    fn sink(&mut self) {
        let shown = self.cold.show();
        if self.cold.prng.one_in(5) {
            self.change_one();
            self.pop();
        }
        self.cold.chill(shown);
    }

    fn check_all(&mut self) {
        (0..KEYS).for_each(|number| self.check(&name_of(number)));
    }

    fn whole(value: Value<'_>) -> List {
        let Value::List(list) = value else { panic!("a list") };
        list.iter(0, End::Front).map(Element::to_vec).collect()
    }

    fn add_part(list: &mut List, part: Part<'_>) {
        match part {
            Part::Node { .. } => {}
            Part::Item(element) => list.push_back(element.to_vec()),
            other => panic!("{other:?}"),
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

/// A list of 200,000: what is read is what is asked for.
#[test]
fn a_command_reads_the_blocks_that_it_needs() {
    let mut world = World::new(7);
    let name = name_of(0);
    let texts: Vec<Vec<u8>> = (0..200_000).map(|n| format!("element:{n:08}").into_bytes()).collect();
    let pushed = world.edit(&name, |list| list.push(End::Back, texts.iter().map(|text| &text[..])));
    assert_eq!(pushed, Ok(()));
    world.model.insert(name.clone(), texts.into());
    let sink = |world: &mut World| (0..40).for_each(|_| world.cold.sink());
    let find = |txn: &mut Txn<'_, '_>, name: &[u8], look: &dyn Fn(ListView<'_>) -> u64| {
        let key = txn.key(name);
        let Some(entry) = txn.find(Db(0), &key, Lookup::Read) else { panic!("it is there") };
        let Value::List(list) = entry.value else { panic!("a list") };
        look(list)
    };
    type Look<'l> = &'l dyn Fn(ListView<'_>) -> u64;
    let looks: [(Look<'_>, u64, u64); 5] = [
        (&|list| u64::from(list.get(123_456).is_some()), 1, 1),
        (&|list| list.iter(100_000, End::Front).take(100).count() as u64, 100, 2),
        (&|list| list.iter(199_999, End::Back).take(10).count() as u64, 10, 1),
        // A block has some 478: the 20th has it.
        (
            &|list| {
                let wanted = Element::of(b"element:00009000");
                list.iter(0, End::Front).search(wanted, u64::MAX).next().unwrap_or_default()
            },
            9000,
            64,
        ),
        // Stand-ins for elements that are away are not found: 64 blocks, then 64, 128 and so on.
        (&|list| list.iter(0, End::Front).search(Element::of(b"0"), 100_000).count() as u64, 0, 220),
    ];
    for (look, expected, nodes_max) in looks {
        sink(&mut world);
        let (found, nodes) = world.cold.read_counted(|txn| find(txn, &name, look));
        assert_eq!(found, expected);
        assert!((1..=nodes_max).contains(&nodes), "{nodes} of {nodes_max}");
    }
    sink(&mut world);
    let again = world.cold.counts.changes_again;
    assert_eq!(world.edit(&name, |list| list.trim(1000..150_000)), Ok(()));
    assert_eq!(world.cold.counts.changes_again, again + 1, "both edges are read at once");
    let list = world.model.get_mut(&name).expect("it is there");
    list.truncate(150_000);
    list.drain(..1000);
    world.check(&name);
    world.cold.end();
}
