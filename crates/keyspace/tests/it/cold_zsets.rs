//! Sorted sets whose leaves leave memory one by one, compared with a model: as a server does it, commands
//! that meet a leaf that is away run again when it was read, and commands that change something have what
//! they need read before, or wait for it.

use crate::cold_snapshots::*;
use crate::cold_world::{ColdWorld, Counts};
use crate::support::conditions;
use isotherm_keyspace::*;
use std::collections::BTreeMap;

const KEYS: u64 = 5;
const MEMBERS: u64 = 1500;

/// Members and scores.
type Members = BTreeMap<Vec<u8>, f64>;

struct World {
    cold: ColdWorld,
    model: Model<Members>,
}

fn name_of(number: u64) -> Vec<u8> {
    format!("zset:{number}").into_bytes()
}

/// All members of this one have one score, so that members decide everywhere.
fn is_even(name: &[u8]) -> bool {
    name == b"zset:0"
}

fn member_of(number: u64) -> Vec<u8> {
    match number % 17 {
        0 => number.to_string().into_bytes(),
        1 => [format!("{number}:").into_bytes(), vec![b'l'; 150]].concat(),
        // Leaves with such a one stay.
        2 if number.is_multiple_of(7) => [format!("{number}:").into_bytes(), vec![b'l'; 400]].concat(),
        _ => format!("member:{number}").into_bytes(),
    }
}

/// Returns the members in the order of the set.
fn ordered(members: &Members) -> Vec<(Vec<u8>, f64)> {
    let mut all: Vec<_> = members.iter().map(|(member, score)| (member.clone(), *score)).collect();
    all.sort_by(|a, b| a.1.partial_cmp(&b.1).expect("no NaN").then_with(|| a.0.cmp(&b.0)));
    all
}

impl World {
    fn score(&mut self, name: &[u8]) -> f64 {
        match self.cold.prng.below(4) {
            _ if is_even(name) => 1.0,
            0 => self.cold.prng.below(10) as f64,
            1 => -(self.cold.prng.below(1 << 30) as f64),
            _ => self.cold.prng.next_u64() as f64 / 2f64.powi(60),
        }
    }

    /// Runs a command that changes elements of a key. Without `need` it waits for the nodes that it does not
    /// want itself.
    fn change<R>(
        &mut self,
        name: &[u8],
        need: Option<NodeNeed<'_>>,
        work: impl FnMut(&mut Txn<'_, '_>) -> R,
    ) -> R {
        if let Some(need) = need {
            self.cold.give_before(name, need);
        }
        self.cold.change(work)
    }

    fn edit(&mut self) {
        let name = name_of(self.cold.prng.below(KEYS));
        let many = if self.cold.prng.one_in(4) { 300 } else { 5 };
        let count = 1 + self.cold.prng.below(many);
        let grows = self.cold.prng.below(5) > 1;
        let words: Vec<(Vec<u8>, f64)> =
            (0..count).map(|_| (member_of(self.cold.prng.below(MEMBERS)), self.score(&name))).collect();
        let texts: Vec<(String, &[u8])> =
            words.iter().map(|(member, score)| (score.to_string(), &member[..])).collect();
        let elements: Vec<&[u8]> = match grows {
            true => texts.iter().flat_map(|(score, member)| [score.as_bytes(), *member]).collect(),
            false => texts.iter().map(|(_, member)| *member).collect(),
        };
        let need = NodeNeed::Of { elements: &elements, reshapes: true };
        let need = (self.cold.prng.below(4) > 0).then_some(need);
        let limits = Limits::default();
        let known = self.model.get(&name).cloned().unwrap_or_default();
        self.change(&name, need, |txn| {
            let (key, mut seen) = (txn.key(&name), known.clone());
            _ = txn.edit_zset(Db(0), &key, &limits, |zset| {
                for (member, score) in &words {
                    let had = seen.get(member).copied();
                    if grows {
                        let expected = ZsetUpdate { old: had, new: Some(*score) };
                        assert_eq!(zset.set(member, *score), Ok(expected));
                        seen.insert(member.clone(), *score);
                    } else {
                        assert_eq!(zset.remove(member), had);
                        seen.remove(member);
                    }
                }
            });
        });
        let members = self.model.entry(name.clone()).or_default();
        for (member, score) in words {
            _ = if grows { members.insert(member, score) } else { members.remove(&member) };
        }
        self.forget_empty(&name);
    }

    fn forget_empty(&mut self, name: &[u8]) {
        if self.model.get(name).is_some_and(BTreeMap::is_empty) {
            self.model.remove(name);
        }
    }

    /// ZPOPMIN, ZPOPMAX, and the like in the middle.
    fn take_range(&mut self) {
        let name = name_of(self.cold.prng.below(KEYS));
        let Some(members) = self.model.get(&name) else { return };
        let all = ordered(members);
        let len = all.len() as u64;
        let count = (1 + self.cold.prng.below(60)).min(len);
        let first = match self.cold.prng.below(3) {
            0 => 0,
            1 => len - count,
            _ => self.cold.prng.below(len - count + 1),
        };
        let (forward, waits) = (self.cold.prng.one_in(2), self.cold.prng.one_in(3));
        let limits = Limits::default();
        let taken = self.change(&name, Some(NodeNeed::Of { elements: &[], reshapes: true }), |txn| {
            let key = txn.key(&name);
            let edited = txn.edit_zset(Db(0), &key, &limits, |zset| {
                let mut taken = Vec::new();
                if waits || zset.wants_range(first, count) {
                    let rank = if forward { first } else { len - count - first };
                    zset.for_each(rank, count, forward, |member, score| taken.push((member.to_vec(), score)));
                    assert_eq!(zset.remove_range(first, count), count);
                }
                taken
            });
            edited.expect("a sorted set").result
        });
        let mut expected = all[first as usize..(first + count) as usize].to_vec();
        if !forward {
            expected.reverse();
        }
        assert_eq!(taken, expected);
        let members = self.model.get_mut(&name).expect("it was there");
        expected.iter().for_each(|(member, _)| _ = members.remove(member));
        self.forget_empty(&name);
    }

    /// ZREMRANGEBYSCORE, or BYLEX.
    fn take_between(&mut self) {
        let name = name_of(self.cold.prng.below(KEYS));
        let Some(members) = self.model.get(&name) else { return };
        let all = ordered(members);
        let (low, high) = (self.cold.prng.below(all.len() as u64) as usize, all.len() - 1);
        let (low, high) = (&all[low], &all[high.min(low + self.cold.prng.below(80) as usize)]);
        let even = is_even(&name);
        let is_taken = |(member, score): &(Vec<u8>, f64)| match even {
            true => *member > low.0 && *member <= high.0,
            false => *score > low.1 && *score <= high.1,
        };
        let expected: Vec<_> = all.iter().filter(|pair| is_taken(pair)).collect();
        let limits = Limits::default();
        let removed = self.change(&name, Some(NodeNeed::Of { elements: &[], reshapes: true }), |txn| {
            let key = txn.key(&name);
            let edited = txn.edit_zset(Db(0), &key, &limits, |zset| {
                let (start, count) = if even {
                    let (low, high) = (ZsetBound::AfterMember(&low.0), ZsetBound::AfterMember(&high.0));
                    zset.lex_range(low, high, true)
                } else {
                    let start = zset.rank_of(ZsetBound::AfterScore(low.1));
                    (start, zset.rank_of(ZsetBound::AfterScore(high.1)).saturating_sub(start))
                };
                if zset.wants_range(start, count) { zset.remove_range(start, count) } else { 0 }
            });
            edited.expect("a sorted set").result
        });
        assert_eq!(removed, expected.len() as u64);
        let members = self.model.get_mut(&name).expect("it was there");
        expected.iter().for_each(|(member, _)| _ = members.remove(member));
        self.forget_empty(&name);
    }

    fn look(&mut self) {
        let name = name_of(self.cold.prng.below(KEYS));
        let Some(members) = self.model.get(&name) else { return };
        let all = ordered(members);
        let member = member_of(self.cold.prng.below(MEMBERS));
        let expected = members
            .get(&member)
            .map(|score| (all.iter().position(|pair| pair.0 == member).expect("it is there") as u64, *score));
        let len = all.len() as u64;
        let (rank, forward) = (self.cold.prng.below(len), self.cold.prng.one_in(2));
        let count = self.cold.prng.below(len - rank + 1).min(100);
        let bound = all[self.cold.prng.below(len) as usize].clone();
        let what = self.cold.prng.below(4);
        let (found, range, below) = self.cold.read(|txn| {
            let key = txn.key(&name);
            let Some(entry) = txn.find(Db(0), &key, Lookup::Read) else { panic!("it is there") };
            let Value::Zset(zset) = entry.value else { panic!("a sorted set") };
            let (mut found, mut range, mut below) = (None, Vec::new(), None);
            match what {
                0 => found = zset.rank(&member),
                1 => found = zset.score(&member).map(|score| (0, score)),
                2 => {
                    zset.for_each(rank, count, forward, |member, score| range.push((member.to_vec(), score)))
                }
                _ if is_even(&name) => below = Some(zset.rank_of(ZsetBound::BeforeMember(&bound.0))),
                _ => below = Some(zset.rank_of(ZsetBound::BeforeScore(bound.1))),
            }
            (found, range, below)
        });
        match what {
            0 => assert_eq!(found, expected),
            1 => assert_eq!(found.map(|it| it.1), expected.map(|it| it.1)),
            2 => {
                let from = if forward { rank } else { len - rank - count } as usize;
                let mut expected = all[from..from + count as usize].to_vec();
                if !forward {
                    expected.reverse();
                }
                assert_eq!(range, expected);
            }
            _ => {
                let is_below = |pair: &&(Vec<u8>, f64)| match is_even(&name) {
                    true => pair.0 < bound.0,
                    false => pair.1 < bound.1,
                };
                assert_eq!(below, Some(all.iter().filter(is_below).count() as u64));
            }
        }
    }

    /// All of a key, in order, and by its scan.
    fn check(&mut self, name: &[u8]) {
        let (all, scanned, len) = self.cold.read(|txn| {
            let key = txn.key(name);
            let (mut all, mut scanned) = (Vec::new(), BTreeMap::new());
            let Some(entry) = txn.find(Db(0), &key, Lookup::Read) else { return (all, scanned, 0) };
            let Value::Zset(zset) = entry.value else { panic!("a sorted set") };
            zset.for_each(0, zset.len(), true, |member, score| all.push((member.to_vec(), score)));
            let mut cursor = 0;
            loop {
                cursor = zset.scan(cursor, 20, |member, score| _ = scanned.insert(member.to_vec(), score));
                if cursor == 0 {
                    return (all, scanned, zset.len());
                }
            }
        });
        let expected = self.model.get(name).cloned().unwrap_or_default();
        assert_eq!(len, expected.len() as u64);
        assert!(all == ordered(&expected), "{}", String::from_utf8_lossy(name));
        assert!(scanned == expected, "{}", String::from_utf8_lossy(name));
    }

    fn move_or_remove(&mut self) {
        let (name, other) = (name_of(self.cold.prng.below(KEYS)), name_of(self.cold.prng.below(KEYS)));
        let what = self.cold.prng.below(3);
        if name == other || is_even(&name) != is_even(&other) || !self.model.contains_key(&name) {
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
                let members = self.model.remove(&name).expect("it was there");
                self.model.insert(other, members);
            }
            _ => {
                let members = self.model[&name].clone();
                self.model.insert(other, members);
            }
        }
    }
}

fn is_recent(node: &SinkableNode<'_>) {
    assert!(node.idle_seconds < 600, "a stamp is its last change");
}

impl Modelled for World {
    type Collection = Members;

    fn new(seed: u64) -> World {
        World { cold: ColdWorld::new(seed), model: Model::new() }
    }

    fn cold(&mut self) -> &mut ColdWorld {
        &mut self.cold
    }

    fn model(&self) -> &Model<Members> {
        &self.model
    }

    fn step(&mut self) {
        self.cold.now += self.cold.prng.below(50) as i64;
        match self.cold.prng.below(40) {
            0..12 => self.edit(),
            12..14 => self.take_range(),
            14 => self.take_between(),
            15..23 => self.look(),
            23 => self.check(&name_of(self.cold.prng.clone().below(KEYS))),
            24 => self.move_or_remove(),
            25 => self.cold.clean(),
            26..39 => self.sink(),
            _ => self.cold.compact(),
        }
    }

    fn sink(&mut self) {
        let shown = self.cold.show_checked(is_recent);
        if self.cold.prng.one_in(5) {
            self.edit();
        }
        self.cold.chill(shown);
    }

    fn check_all(&mut self) {
        (0..KEYS).for_each(|number| self.check(&name_of(number)));
    }

    fn whole(value: Value<'_>) -> Members {
        let Value::Zset(zset) = value else { panic!("a sorted set") };
        let mut members = Members::new();
        zset.for_each(0, zset.len(), true, |member, score| _ = members.insert(member.to_vec(), score));
        members
    }

    fn add_part(members: &mut Members, part: Part<'_>) {
        let Part::Scored(member, score) = part else { panic!("{part:?}") };
        assert!(members.insert(member.to_vec(), score).is_none(), "each comes once");
    }
}

#[test]
fn leaves_that_left_memory_are_what_they_were() {
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
        let Counts { chilled, clean, moved, moved_clean, runs_again, changes_again, waits } =
            world.cold.counts;
        let counts = [chilled, clean, moved, moved_clean, runs_again, changes_again, waits];
        assert!(counts.iter().all(|count| *count > 20), "{counts:?}");
        world.cold.end();
    }
}

/// Among equal scores first members decide, of leaves that may be away. One that cannot be read is no reason
/// to stop half way.
#[test]
fn a_member_moves_though_other_leaves_cannot_be_read() {
    let mut world = World::new(7);
    let (name, limits) = (name_of(0), Limits::default());
    let long = |n: u32| format!("m{n:05}{}", "x".repeat(30)).into_bytes();
    let members: Members = (0..3000).map(|n| (long(n), 1.0)).collect();
    world.change(&name, None, |txn| {
        let key = txn.key(&name);
        let set = |zset: &mut ZsetEdit<'_, '_>| {
            members.iter().for_each(|(member, score)| _ = zset.set(member, *score))
        };
        txn.edit_zset(Db(0), &key, &limits, set).expect("room");
    });
    world.model.insert(name.clone(), members);
    for moved in [777, 778, 100].map(long) {
        for _ in 0..100 {
            let shown = world.cold.show_checked(is_recent);
            world.cold.chill(shown);
        }
        let mut held = Held::new(world.cold.keyspace);
        held.acquire(Want::All);
        let key = world.cold.keyspace.key(&name);
        let elements =
            [&moved[..], &world.model[&name].iter().map(|pair| pair.0.clone()).next_back().unwrap()];
        let need = NodeNeed::Of { elements: &elements, reshapes: false };
        for at in need.away(&mut held, Db(0), &key, 9) {
            let from = HeldNode::of(&mut held, at).reference().expect("it is away");
            let payload = world.cold.keeper.read(from);
            HeldNode::of(&mut held, at).give(Some(&payload), from, false, UnixMs(world.cold.now));
        }
        assert!(NodeNeed::All.away(&mut held, Db(0), &key, 99).len() > 5);
        let aside = std::mem::take(&mut *world.cold.keeper.values.lock().unwrap());
        let mut sink = NoEffects;
        let mut txn = Txn::new(&mut held, conditions(world.cold.now), &mut sink);
        txn.on_cold = OnCold::Read;
        let edited = txn.edit_zset(Db(0), &key, &limits, |zset| {
            let first = zset.set(&moved, 5.0);
            // From here on nothing changes any more.
            assert_eq!((zset.remove(&long(999)), zset.set(b"new", 1.0)), (None, Err(Full)));
            assert_eq!(zset.remove_range(0, 3), 0);
            first
        });
        let expected = ZsetUpdate { old: Some(1.0), new: Some(5.0) };
        assert_eq!(edited.map(|edited| edited.result), Ok(Ok(expected)));
        txn.finish();
        assert!(held.take_missing().iter().any(|missed| !missed.is_readable));
        *world.cold.keeper.values.lock().unwrap() = aside;
        drop(held);
        world.model.get_mut(&name).unwrap().insert(moved, 5.0);
        world.cold.keyspace.check_invariants();
        world.check(&name);
    }
}

#[test]
fn snapshots_have_them_as_they_were_at_the_cut() {
    have_them_as_they_were_at_the_cut::<World>();
}
