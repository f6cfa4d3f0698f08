//! Against a model: a deque of strings, with snapshots and compaction in between.

use super::*;
use crate::layout::heap::Heap;
use crate::layout::large::Large;
use crate::values::cold::Cold;
use crate::values::nodes::Room;
use crate::values::parts::Part;
use isotherm_arena::{Arena, ArenaConfig};
use isotherm_stdx::{Prng, UnixMs};
use std::collections::VecDeque;
use std::sync::Arc;

struct World {
    heap: Heap,
    large: Large,
    cold: Cold,
    epoch: u8,
    list: List,
}

impl World {
    fn new() -> World {
        let arena = Arena::new(ArenaConfig { reserve_bytes: 256 << 20 }).expect("address space");
        let (heap, large) = (
            Heap::new(Arc::new(arena), 0),
            Large::new(&Arc::new(crate::layout::large::LargeAccount::new(|bytes| bytes))),
        );
        World { heap, large, cold: Cold::default(), epoch: 1, list: List::new(7) }
    }

    fn with<R>(&mut self, work: impl FnOnce(&mut List, &mut Room<'_>) -> R) -> R {
        let World { heap, large, cold, epoch, .. } = self;
        let mut room = Room { heap, large, cold, now: UnixMs(0), epoch: *epoch };
        work(&mut self.list, &mut room)
    }

    fn reading(&self) -> Reading<'_> {
        Reading { heap: &self.heap, large: &self.large, cold: &self.cold, wants: false }
    }

    fn texts(&self, from: End) -> Vec<Vec<u8>> {
        let index = if from == End::Front { 0 } else { self.list.len().saturating_sub(1) };
        self.list.iter(self.reading(), index, from).map(|element| element.to_vec()).collect()
    }

    fn check(&self, model: &VecDeque<Vec<u8>>) {
        self.list.check_invariants(self.reading());
        assert_eq!(self.list.len(), model.len() as u64);
        assert!(self.texts(End::Front).iter().eq(model.iter()));
        assert!(self.texts(End::Back).iter().eq(model.iter().rev()));
    }

    /// Moves whatever the arena wants moved.
    fn compact(&mut self) {
        let mut victims = Vec::new();
        self.heap.arena().victims(&mut victims, 8);
        for victim in victims {
            let (object, node) = Nodes::owner(&self.heap, victim.handle);
            assert_eq!(object, 7);
            let (moved, _) =
                self.heap.reallocate(victim.handle, victim.bytes, victim.bytes).expect("there is room");
            if moved != victim.handle {
                self.list.moved(node, victim.handle, moved);
            }
        }
    }
}

/// Texts of every form; `style` makes some blocks of one kind.
fn random_text(prng: &mut Prng, style: u64) -> Vec<u8> {
    match if style < 4 { style } else { prng.below(40) } {
        0 => (prng.next_u64() as i64 >> prng.below(64)).to_string().into_bytes(),
        1 => format!("{:016x}", prng.next_u64()).into_bytes(),
        2 => prng.below(50).to_string().into_bytes(),
        3 => vec![b'a' + prng.below(3) as u8; 192 + prng.below(700) as usize],
        4 => vec![b'z'; 7000 + prng.below(1500) as usize],
        5..20 => vec![b'm'; prng.below(60) as usize],
        _ => prng.below(5).to_string().into_bytes(),
    }
}

/// Elements that a snapshot should see, and those that it has seen.
#[derive(Default)]
struct Seen {
    wanted: Vec<Vec<u8>>,
    seen: Vec<Vec<u8>>,
}

struct Run {
    world: World,
    model: VecDeque<Vec<u8>>,
    prng: Prng,
    style: u64,
    cut: Option<Seen>,
}

impl Run {
    fn position(&mut self) -> u64 {
        self.prng.below(self.model.len() as u64)
    }

    fn step(&mut self, grows: bool) {
        let text = random_text(&mut self.prng, self.style);
        let element = Element::of(&text);
        match self.prng.below(if grows { 6 } else { 12 }) {
            0 | 1 => {
                self.world.with(|list, room| list.push(room, End::Back, element)).expect("there is room");
                self.model.push_back(text);
            }
            2 | 3 => {
                self.world.with(|list, room| list.push(room, End::Front, element)).expect("there is room");
                self.model.push_front(text);
            }
            _ if self.model.is_empty() => {}
            4 => {
                let at = self.prng.below(self.model.len() as u64 + 1);
                self.world.with(|list, room| list.insert(room, at, element)).expect("there is room");
                self.model.insert(at as usize, text);
            }
            5 => {
                let at = self.position();
                self.world.with(|list, room| list.set(room, at, element)).expect("there is room");
                self.model[at as usize] = text;
            }
            6 | 7 => self.remove(0, 1),
            8 => self.remove(self.model.len() as u64 - 1, 1),
            9 => {
                let at = self.position();
                self.remove(at, 1);
            }
            10 if self.prng.one_in(4) => {
                let at = self.position();
                let most = if self.prng.one_in(10) { 2000 } else { 60 };
                let count = self.prng.below((self.model.len() as u64 - at).min(most) + 1);
                self.remove(at, count);
            }
            11 if self.prng.one_in(8) => {
                let at = self.position() as usize;
                let text = self.model[at].clone();
                self.remove_equal(&text);
            }
            _ => {}
        }
    }

    fn remove(&mut self, at: u64, count: u64) {
        self.world.with(|list, room| list.remove(room, at, count)).expect("there is room");
        self.model.drain(at as usize..(at + count) as usize);
    }

    fn remove_equal(&mut self, text: &[u8]) {
        let (from, most) = (*self.prng.pick(&[End::Front, End::Back]), 1 + self.prng.below(20));
        let found = |(at, found): (usize, &Vec<u8>)| (found == text).then_some(at);
        let mut equal: Vec<usize> = self.model.iter().enumerate().filter_map(found).collect();
        if from == End::Back {
            equal.reverse();
        }
        equal.truncate(most as usize);
        equal.sort_unstable();
        let element = Element::of(text);
        let removed = self.world.with(|list, room| list.remove_equal(room, from, most, element));
        assert_eq!(removed, Ok(equal.len() as u64));
        equal.into_iter().rev().for_each(|at| _ = self.model.remove(at));
    }

    fn snapshot(&mut self) {
        match &mut self.cut {
            None => {
                self.world.epoch += 1;
                self.cut = Some(Seen { wanted: self.model.iter().cloned().collect(), seen: Vec::new() });
                self.world.list.keep_cut(true);
            }
            Some(Seen { wanted, seen }) => {
                let done = self.world.with(|list, room| {
                    list.emit_cut(room, &mut |part: Part<'_>| {
                        if let Part::Item(element) = part {
                            seen.push(element.to_vec());
                        }
                    })
                });
                if done {
                    assert!(wanted == seen, "the snapshot shows the list as it was at the cut");
                    self.cut = None;
                }
            }
        }
    }
}

#[test]
fn a_list_is_a_deque_of_strings() {
    for seed in 0..if cfg!(miri) { 1 } else { 24 } {
        let mut run = Run {
            world: World::new(),
            model: VecDeque::new(),
            prng: Prng::new(seed),
            style: seed % 8,
            cut: None,
        };
        for step in 0..if cfg!(miri) { 100 } else { 6000u64 } {
            run.step(step % 3000 < 1800);
            if step % 37 == 0 {
                run.world.compact();
            }
            if step % 61 == 0 {
                run.snapshot();
            }
            if step % 100 == 0 {
                run.world.check(&run.model);
                let at = run.prng.below(run.model.len() as u64 + 1);
                let found = run.world.list.get(run.world.reading(), at).map(Element::to_vec);
                assert_eq!(found.as_ref(), run.model.get(at as usize));
            }
        }
        while run.cut.is_some() {
            run.snapshot();
        }
        while !run.world.with(|list, room| list.free_pieces(room, 3)) {}
        assert_eq!((run.world.heap.arena().live_bytes(), run.world.large.live()), (0, 0), "seed {seed}");
    }
}

/// The figure of the design: 16-byte elements, however they come, and as a queue.
#[test]
fn elements_take_little_more_than_their_bytes() {
    const ELEMENTS: u64 = if cfg!(miri) { 2000 } else { 100_000 };
    for pushes in [[End::Back, End::Back], [End::Front, End::Front], [End::Front, End::Back]] {
        let mut world = World::new();
        let mut prng = Prng::new(3);
        for n in 0..ELEMENTS {
            let text = format!("{:016x}", prng.next_u64() | 0xa << 60);
            let end = pushes[(n % 2) as usize];
            world
                .with(|list, room| list.push(room, end, Element::of(text.as_bytes())))
                .expect("there is room");
        }
        let per_element = world.list.memory_bytes() as f64 / ELEMENTS as f64;
        assert!(cfg!(miri) || per_element < 16.4, "{per_element} B for 16 B");
        // A queue that is as long as before has as many bytes as before.
        for n in 0..ELEMENTS {
            let text = format!("{:016x}", n | 0xb << 60);
            world.with(|list, room| {
                list.push(room, End::Front, Element::of(text.as_bytes())).expect("there is room");
                list.remove(room, list.len() - 1, 1).expect("taking needs no room");
            });
        }
        let per_element = world.list.memory_bytes() as f64 / ELEMENTS as f64;
        assert!(cfg!(miri) || per_element < 16.5, "{per_element} B for 16 B");
    }
}

/// Cutting nearly everything off is not felt: the rest is freed in steps.
#[test]
#[cfg_attr(miri, ignore = "it is about many blocks")]
fn what_is_cut_off_goes_in_steps() {
    let mut world = World::new();
    for n in 0..200_000u64 {
        let text = format!("element {n}, which is not a number");
        world
            .with(|list, room| list.push(room, End::Back, Element::of(text.as_bytes())))
            .expect("there is room");
    }
    let before = world.list.memory_bytes();
    world.with(|list, room| list.remove(room, 1, 199_998)).expect("taking needs no room");
    assert_eq!(world.list.len(), 2);
    assert!(world.list.memory_bytes() > before / 2);
    let mut steps = 0;
    while !world.with(|list, room| list.sweep(room, 100)) {
        steps += 1;
    }
    assert!(steps > 3);
    world.list.check_invariants(world.reading());
    assert!(world.list.memory_bytes() < 10_000, "{}", world.list.memory_bytes());
}
