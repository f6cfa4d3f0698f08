//! Sorted sets compared with a plain ordered set, with random operations from printed seeds.

use super::*;
use crate::layout::key::KeyHasher;
use crate::layout::packed::Element;
use crate::values::cold::Cold;
use crate::values::parts::Part;
use isotherm_arena::{Arena, ArenaConfig};
use isotherm_stdx::{Prng, UnixMs};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

const OBJECT: u32 = 7;

/// The model's order: doubles that are not NaN, the two zeros equal.
#[derive(Clone, Copy, PartialEq, Debug)]
struct Score(f64);

impl Eq for Score {}
impl Ord for Score {
    fn cmp(&self, other: &Score) -> std::cmp::Ordering {
        self.0.partial_cmp(&other.0).expect("no score is NaN")
    }
}
impl PartialOrd for Score {
    fn partial_cmp(&self, other: &Score) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}

#[derive(Default)]
struct Model {
    scores: BTreeMap<Vec<u8>, f64>,
    order: BTreeSet<(Score, Vec<u8>)>,
}

impl Model {
    fn set(&mut self, member: &[u8], score: f64) {
        self.remove(member);
        self.scores.insert(member.to_vec(), score);
        self.order.insert((Score(score), member.to_vec()));
    }
    fn remove(&mut self, member: &[u8]) -> Option<f64> {
        let score = self.scores.remove(member)?;
        assert!(self.order.remove(&(Score(score), member.to_vec())));
        Some(score)
    }
    fn rank(&self, member: &[u8]) -> Option<u64> {
        let score = self.scores.get(member)?;
        Some(self.order.range(..(Score(*score), member.to_vec())).count() as u64)
    }
}

struct Bench {
    heap: Heap,
    hasher: KeyHasher,
    cold: Cold,
    version: u8,
    zset: ZsetTree,
    model: Model,
}

impl Bench {
    fn new(reserve_bytes: u64, secret: [u8; 16]) -> Bench {
        let arena = Arc::new(Arena::new(ArenaConfig { reserve_bytes }).expect("address space"));
        let heap = Heap::new(arena, 0);
        let hasher = KeyHasher::new(secret);
        Bench {
            heap,
            hasher,
            cold: Cold::default(),
            version: 0,
            zset: ZsetTree::new(OBJECT),
            model: Model::default(),
        }
    }

    fn change<R>(&mut self, change: impl FnOnce(&mut ZsetTree, &mut Room<'_>) -> R) -> R {
        let Bench { heap, hasher, cold, version, .. } = self;
        let mut room = Room { heap, hasher, cold, version: *version, now: UnixMs(0) };
        change(&mut self.zset, &mut room)
    }

    fn reading(&self) -> Reading<'_> {
        Reading { heap: &self.heap, hasher: &self.hasher, cold: &self.cold }
    }

    fn set(&mut self, member: &[u8], score: f64) -> Result<(), Full> {
        let old = self.zset.score(self.reading(), member);
        assert_eq!(old, self.model.scores.get(member).copied());
        match old {
            None => self.change(|zset, room| zset.insert(room, member, score))?,
            Some(old) if old == score => return Ok(()),
            Some(_) => self.change(|zset, room| zset.update(room, member, score))?,
        }
        self.model.set(member, score);
        Ok(())
    }

    fn remove(&mut self, member: &[u8]) {
        let removed = self.change(|zset, room| zset.remove(room, member));
        assert_eq!(removed, self.model.remove(member));
    }

    fn check(&self) {
        check::check_tree(&self.zset, self.reading());
        assert_eq!(self.zset.len(), self.model.scores.len() as u64);
        let members = self.zset.members(self.reading(), 0, self.zset.len(), true);
        for ((member, score), (model_score, model_member)) in members.zip(&self.model.order) {
            assert_eq!((member, score.to_bits()), (&model_member[..], model_score.0.to_bits()));
        }
    }

    fn check_reads(&self, prng: &mut Prng, member: &[u8]) {
        let rank = self.zset.rank(self.reading(), member);
        assert_eq!(rank.map(|(rank, _)| rank), self.model.rank(member));
        if self.zset.len() == 0 {
            return;
        }
        let from = prng.below(self.zset.len());
        let count = prng.below(self.zset.len() - from + 1).min(200);
        let forward = prng.one_in(2);
        let got: Vec<_> = self.zset.members(self.reading(), from, count, forward).map(|(m, _)| m).collect();
        let all: Vec<&[u8]> = self.model.order.iter().map(|(_, member)| &member[..]).collect();
        let want: Vec<_> = match forward {
            true => all.into_iter().skip(from as usize).take(count as usize).collect(),
            false => all.into_iter().rev().skip(from as usize).take(count as usize).collect(),
        };
        assert_eq!(got, want);
        let bound = draw_score(prng);
        let below = self.model.order.iter().filter(|(score, _)| score.0 < bound).count() as u64;
        let up_to = self.model.order.iter().filter(|(score, _)| score.0 <= bound).count() as u64;
        assert_eq!(self.zset.rank_of(self.reading(), ZsetBound::BeforeScore(bound)), below);
        assert_eq!(self.zset.rank_of(self.reading(), ZsetBound::AfterScore(bound)), up_to);
    }

    fn compact(&mut self) {
        let mut victims = Vec::new();
        while self.heap.arena().victims(&mut victims, 64) {
            for victim in victims.drain(..) {
                let handle = victim.handle;
                let size = node::bytes(&self.heap, handle).len();
                let (object, number) = node::identity(self.heap.bytes(handle, size));
                assert_eq!(object, OBJECT);
                if let Ok((moved, _)) = self.heap.reallocate(handle, size, size) {
                    self.zset.moved(number, moved);
                }
            }
        }
    }

    fn free(&mut self) {
        while !self.change(|zset, room| zset.free_nodes(room, 5)) {}
        assert_eq!(self.zset.nodes.live_bytes, 0);
        assert_eq!(self.heap.arena().live_bytes(), 0);
    }
}

fn draw_score(prng: &mut Prng) -> f64 {
    match prng.below(10) {
        0 => [0.0, -0.0, f64::INFINITY, f64::NEG_INFINITY, 5e-324, -1.5][prng.below(6) as usize],
        1..4 => prng.below(20) as f64 - 10.0,
        4..6 => prng.below(1 << 40) as f64,
        _ => prng.next_u64() as f64 / 2f64.powi(64),
    }
}

fn draw_member(prng: &mut Prng, members: u64, long: bool) -> Vec<u8> {
    let number = prng.below(members);
    let mut member = number.to_string().into_bytes();
    // The length is the member's own, so that the same number is the same member.
    match number % 16 {
        0 if long => member.resize(150 + (number % 150) as usize, b'x'),
        1 => member.resize(member.len() + 30, b'y'),
        2 if number == 2 => member.clear(),
        _ => member.splice(0..0, *b"member:").for_each(drop),
    }
    member
}

fn run(seed: u64, steps: usize, members: u64, long: bool, reserve_bytes: u64, secret: [u8; 16]) -> u32 {
    println!("seed {seed}");
    let mut prng = Prng::new(seed);
    let mut bench = Bench::new(reserve_bytes, secret);
    let mut refused = 0;
    for step in 0..steps {
        let growing = (step / (steps / 4)).is_multiple_of(2);
        let member = draw_member(&mut prng, members, long);
        if prng.below(100) < if growing { 80 } else { 25 } {
            let score = draw_score(&mut prng);
            if bench.set(&member, score).is_err() {
                refused += 1;
                if refused % 100 == 1 {
                    bench.check();
                }
            }
        } else {
            bench.remove(&member);
        }
        if prng.one_in(97) {
            bench.check_reads(&mut prng, &member);
        }
        if step % (steps / 10) == 0 {
            bench.check();
            bench.compact();
            bench.check();
        }
    }
    let members: Vec<_> = bench.model.scores.keys().cloned().collect();
    for (at, member) in members.iter().enumerate() {
        bench.remove(member);
        if at % 500 == 0 {
            bench.check();
        }
    }
    bench.check();
    assert_eq!(bench.heap.arena().live_bytes(), 0, "an empty set takes nothing");
    refused
}

#[test]
fn random_operations_agree_with_a_model() {
    for seed in 0..if cfg!(miri) { 1 } else { 6 } {
        let steps = if cfg!(miri) { 120 } else { 12_000 };
        let members = [300, 3_000, 9_000][seed as usize % 3];
        assert_eq!(run(seed, steps, members, seed % 2 == 0, 64 << 20, [9; 16]), 0);
    }
}

#[test]
fn a_lack_of_memory_changes_nothing() {
    for seed in 100..if cfg!(miri) { 101 } else { 102 } {
        let steps = if cfg!(miri) { 300 } else { 140_000 };
        // The smallest reservation is 1 MB: some 22,000 members.
        let refused = run(seed, steps, 200_000, false, 1 << 19, [9; 16]);
        assert!(refused > 0 || cfg!(miri), "the memory was enough");
    }
}

/// Hashes that differ in few bits: every lookup proposes several leaves, and equal entries are common.
#[test]
fn colliding_members_are_distinguished() {
    run(7, if cfg!(miri) { 300 } else { 6_000 }, 1_500, true, 64 << 20, KeyHasher::flooded_secret(0x3f));
}

#[test]
fn equal_scores_are_ordered_by_member() {
    let mut bench = Bench::new(64 << 20, [1; 16]);
    let mut prng = Prng::new(5);
    for _ in 0..if cfg!(miri) { 200 } else { 8_000 } {
        let member = draw_member(&mut prng, 50_000, false);
        bench.set(&member, 1.0).expect("room");
    }
    bench.check();
    let all: Vec<_> = bench.model.scores.keys().cloned().collect();
    for _ in 0..200 {
        let member = draw_member(&mut prng, 50_000, false);
        let below = all.partition_point(|other| other < &member) as u64;
        let up_to = all.partition_point(|other| other <= &member) as u64;
        assert_eq!(bench.zset.rank_of(bench.reading(), ZsetBound::BeforeMember(&member)), below);
        assert_eq!(bench.zset.rank_of(bench.reading(), ZsetBound::AfterMember(&member)), up_to);
    }
    for member in all {
        bench.remove(&member);
    }
    bench.check();
}

#[test]
fn rising_and_falling_scores_fill_their_leaves() {
    for falling in [false, true] {
        let mut bench = Bench::new(64 << 20, [1; 16]);
        let members = if cfg!(miri) { 500 } else { 20_000 };
        for number in 0..members {
            let score = f64::from(number) * if falling { -1.0 } else { 1.0 };
            bench.set(format!("member:{number:09}").as_bytes(), score).expect("room");
        }
        bench.check();
        assert!(bench.zset.leaves.live() <= members as usize / 45, "leaves stay full");
        bench.compact();
        bench.check();
        bench.free();
    }
}

/// The index outgrows the hash bits in its entries (level 8 at 10 k members), and comes back.
#[test]
fn index_pages_are_made_anew_from_their_leaves() {
    let mut bench = Bench::new(64 << 20, [3; 16]);
    let members = if cfg!(miri) { 300 } else { 40_000u32 };
    let name = |number: u32| (u64::from(number).wrapping_mul(0x9e37_79b9_7f4a_7c15)).to_le_bytes();
    for number in 0..members {
        bench.set(&name(number), f64::from(number % 977)).expect("room");
    }
    bench.check();
    for round in 0..2 {
        for number in (0..members).filter(|number| number % 16 != 0) {
            if round == 0 {
                bench.remove(&name(number))
            } else {
                bench.set(&name(number), 2.0).expect("room")
            }
        }
        bench.check();
    }
}

#[test]
fn a_scan_meets_every_member_once() {
    let mut bench = Bench::new(64 << 20, [3; 16]);
    let mut prng = Prng::new(3);
    for _ in 0..if cfg!(miri) { 200 } else { 5_000 } {
        let member = draw_member(&mut prng, 20_000, true);
        bench.set(&member, draw_score(&mut prng)).expect("room");
    }
    let mut met = BTreeMap::new();
    for page in 0..bench.zset.scan_pages() {
        bench.zset.scan_page(bench.reading(), page, &mut |member, score| {
            assert!(met.insert(member.to_vec(), score).is_none());
        });
    }
    assert_eq!(met, bench.model.scores);
}

#[test]
fn a_snapshot_is_the_state_at_its_cut() {
    for seed in 0..if cfg!(miri) { 1 } else { 8 } {
        println!("seed {seed}");
        let mut prng = Prng::new(seed);
        let mut bench = Bench::new(64 << 20, [4; 16]);
        for round in 0..4 {
            for _ in 0..if cfg!(miri) { 50 } else { 2_000 } {
                let member = draw_member(&mut prng, 6_000, true);
                bench.set(&member, draw_score(&mut prng)).expect("room");
            }
            (bench.version, bench.zset.saving) = (bench.version.wrapping_add(1), true);
            let expected = bench.model.scores.clone();
            let (mut emitted, mut at, mut done) = (BTreeMap::new(), 0, false);
            while !done {
                for _ in 0..prng.below(if round == 3 { 2_000 } else { 200 }) {
                    let member = draw_member(&mut prng, 6_000, true);
                    match prng.below(3) {
                        0 => bench.set(&member, draw_score(&mut prng)).expect("room"),
                        _ => bench.remove(&member),
                    }
                }
                done = bench.change(|zset, room| {
                    zset.emit_leaf(room, &mut at, &mut |part: Part<'_>| {
                        let Part::Scored(Element::Bytes(member), score) = part else { unreachable!() };
                        assert!(emitted.insert(member.to_vec(), score).is_none(), "emitted twice");
                    })
                });
            }
            bench.zset.saving = false;
            assert_eq!(emitted, expected);
            bench.check();
        }
        bench.free();
    }
}
