//! The directory compared with a plain list of pages and bounds, up to three levels, with memory that runs
//! out at every allocation that it makes.

use crate::layout::directory::*;
use crate::layout::heap::Heap;
use crate::layout::kind::Full;
use crate::layout::record::{NEVER, Record};
use isotherm_arena::{Arena, ArenaConfig, Handle, Kind};
use isotherm_stdx::{Prng, Steps};
use std::sync::Arc;

struct World {
    heap: Heap,
    record: Record,
    /// A page's name (never looked into) and its bound.
    pages: Vec<(Option<Handle>, u32)>,
    prng: Prng,
    ballast: Vec<Handle>,
}

impl World {
    fn new(reserve_bytes: u64, seed: u64) -> World {
        let arena =
            Arc::new(Arena::new(ArenaConfig { reserve_bytes }).expect("so many addresses are to be had"));
        World {
            heap: Heap::new(arena, 0),
            record: Record::EMPTY,
            pages: Vec::new(),
            prng: Prng::new(seed),
            ballast: Vec::new(),
        }
    }

    fn random_page(&mut self) -> Option<Handle> {
        // The only page of a slot has bytes, or the slot has no page.
        let some = self.pages.is_empty() || !self.prng.one_in(5);
        some.then(|| Handle::from_raw(1024 + self.prng.below(1 << 30) as u32)).flatten()
    }

    fn random_bound(&mut self) -> u32 {
        if self.prng.one_in(3) { NEVER } else { self.prng.below(1000) as u32 }
    }

    fn push(&mut self) -> Result<(), Full> {
        let (page, bound) = (self.random_page(), self.random_bound());
        let lone_bound = self.record.bound;
        push(&mut self.heap, &mut self.record, page, bound)?;
        if let [lone] = self.pages.as_mut_slice() {
            // Its bound was the record's, which may be too low, and it keeps that.
            lone.1 = lone_bound;
        }
        self.pages.push((page, bound));
        Ok(())
    }

    fn pop(&mut self) {
        if let Some((_, bound)) = self.pages.pop() {
            // As a merge does: the bound goes down to a page that stays.
            if let Some(last) = self.pages.len().checked_sub(1) {
                let into = self.prng.below(last as u64 + 1) as usize;
                lower_bound(&mut self.heap, &mut self.record, into as u32, bound);
                self.pages[into].1 = self.pages[into].1.min(bound);
            }
            pop(&mut self.heap, &mut self.record);
            if self.pages.is_empty() {
                self.record = Record::EMPTY;
            }
        }
    }

    fn change(&mut self) {
        if self.pages.is_empty() {
            return;
        }
        let at = self.prng.below(self.pages.len() as u64) as usize;
        let (index, bound) = (at as u32, self.random_bound());
        match self.prng.below(4) {
            0 => {
                let page = self.random_page();
                set_page(&mut self.heap, &mut self.record, index, page);
                self.pages[at].0 = page;
            }
            1 => {
                lower_bound(&mut self.heap, &mut self.record, index, bound);
                self.pages[at].1 = self.pages[at].1.min(bound);
            }
            2 => {
                set_bound(&mut self.heap, &mut self.record, index, bound);
                self.pages[at].1 = bound;
            }
            _ if self.pages.len() > 1 => {
                forget_bound(&mut self.heap, &self.record, index);
                self.pages[at].1 = NEVER;
            }
            _ => {}
        }
    }

    /// Fills the arena but for some objects of the directory's size.
    fn fill_memory(&mut self) {
        while let Ok((handle, _)) = self.heap.allocate(Kind::Index, 32 << self.prng.below(9)) {
            self.ballast.push(handle);
        }
        for bytes in [32, 256, 2048, 4096, 7200, 8192] {
            while let Ok((handle, _)) = self.heap.allocate(Kind::Index, bytes) {
                self.ballast.push(handle);
            }
        }
        for _ in 0..self.prng.below(3) {
            let at = self.prng.below(self.ballast.len() as u64) as usize;
            self.heap.release(self.ballast.swap_remove(at));
        }
    }

    fn empty_memory(&mut self) {
        self.ballast.drain(..).for_each(|handle| self.heap.release(handle));
    }

    fn check(&mut self) {
        assert_eq!(self.record.pages as usize, self.pages.len());
        let nodes = check_invariants(&self.heap, &self.record);
        let objects = self.heap.arena().stats().live_objects;
        assert_eq!(objects as usize, nodes + self.ballast.len(), "nodes are freed, all of them");
        // A lone page's bound is the record's, which is never raised alone.
        let lone = self.pages.len() == 1;
        for (index, (page, bound)) in self.pages.iter().enumerate() {
            let (got, got_bound) = get(&self.heap, &self.record, index as u32);
            assert_eq!(got, *page);
            assert!(if lone { got_bound <= *bound } else { got_bound == *bound }, "page {index}");
        }
        if !lone {
            for from in [0, 1, self.pages.len() / 2, self.pages.len() * 9 / 10] {
                let wanted = |bound: u32| bound < 20;
                let expected = (from..self.pages.len()).find(|&at| wanted(self.pages[at].1));
                let mut steps = Steps::new(u64::MAX);
                let found = next_bounded(&mut self.heap, &mut self.record, from as u32, &wanted, &mut steps);
                assert_eq!(found, expected.map_or(Bounded::None, |at| Bounded::Page(at as u32)));
                // A search from the start that finds nothing leaves nothing behind that looks as if it did.
                assert!(from > 0 || found != Bounded::None || !wanted(self.record.bound));
            }
        }
    }
}

/// Growth and shrinking around every size at which nodes come and go.
#[test]
fn random_changes_agree_with_a_list() {
    for (seed, target) in [(1, 3), (2, 40), (3, 1024), (4, 1100), (5, 2050), (6, 3100)] {
        let mut world = World::new(1 << 30, seed);
        let target = if cfg!(miri) { target.min(30) } else { target };
        for round in 0..if cfg!(miri) { 2 } else { 6 } {
            // Up to the target and around it, then down, sometimes to nothing.
            while world.pages.len() < target {
                world.push().expect("there is room");
            }
            world.check();
            for step in 0..if cfg!(miri) { 50 } else { 400 } {
                match world.prng.below(4) {
                    0 => world.push().expect("there is room"),
                    1 => world.pop(),
                    _ => world.change(),
                }
                if step % 50 == 0 {
                    world.check();
                }
            }
            let low = if round % 2 == 0 { 0 } else { world.prng.below(target as u64) as usize };
            while world.pages.len() > low {
                world.pop();
            }
            world.check();
            let mut fresh = World::new(1 << 30, seed);
            (0..low).for_each(|_| fresh.push().expect("there is room"));
            let bytes = |world: &World| world.heap.arena().live_bytes();
            assert_eq!(bytes(&world), bytes(&fresh), "what has shrunk is as small as what never grew");
        }
        free(&mut world.heap, &world.record);
        assert_eq!(world.heap.arena().live_bytes(), 0);
    }
}

/// Whichever allocation fails, nothing has changed.
#[test]
fn a_push_without_memory_changes_nothing() {
    let mut refused = 0;
    for seed in 0..if cfg!(miri) { 1 } else { 60 } {
        // 63 chunks: a directory of some 2000 pages and its ballast.
        let mut world = World::new(1 << 20, seed);
        let near = [1, 2, 4, 5, 16, 1023, 1024, 1025, 1900][seed as usize % 9];
        while world.pages.len() < near {
            world.push().expect("there is room");
        }
        for _ in 0..4 {
            world.fill_memory();
            for _ in 0..40 {
                match world.prng.below(3) {
                    0 | 1 => refused += u64::from(world.push().is_err()),
                    _ => world.pop(),
                }
            }
            world.check();
            world.empty_memory();
            world.check();
            while world.pages.len() > near {
                world.pop();
            }
        }
        free(&mut world.heap, &world.record);
        assert_eq!(world.heap.arena().live_bytes(), 0);
    }
    assert!(cfg!(miri) || refused > 100, "{refused}");
}

/// A slot of more than a million pages: three levels.
#[test]
#[cfg_attr(miri, ignore = "a million pages")]
fn three_levels() {
    let mut world = World::new(1 << 30, 7);
    const AROUND: usize = 1 << 20;
    while world.pages.len() < AROUND - 20 {
        world.push().expect("there is room");
    }
    world.check();
    for _ in 0..3 {
        (0..40).for_each(|_| world.push().expect("there is room"));
        (0..2000).for_each(|_| world.change());
        world.check();
        (0..40).for_each(|_| world.pop());
    }
    world.check();
    free(&mut world.heap, &world.record);
    assert_eq!(world.heap.arena().live_bytes(), 0);
}
