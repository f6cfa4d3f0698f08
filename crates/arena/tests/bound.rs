//! The bound of the memory plan: after compaction has come to rest, free room in slabs and tails take at most
//! 1.5 MB + 2 % of the live bytes of an arena, after any mixture of sizes was stored and deleted before.
//!
//! The fixed part is half a slab of 16 KB for each of the some 160 classes that pages of a keyspace (320 B to
//! 2 KB) and blobs (200 B to 4 KB) are in: 160 x 8 KB = 1.25 MB. Where it is tight the worst case is above
//! it: an arena that holds a single object of each class takes 160 x 16 KB.
#![cfg(not(miri))]

mod common;

use common::Random;
use isotherm_arena::{Arena, ArenaConfig, ArenaStats, Handle, Kind};

const FIXED_BYTES: u64 = 3 << 19;
const SHARE_PERCENT: u64 = 2;

struct Store {
    arena: Arena,
    /// Handles by position, and positions by handle, as a directory would know them.
    handles: Vec<Handle>,
    position: std::collections::HashMap<Handle, usize>,
    random: Random,
}

impl Store {
    fn new(seed: u64) -> Store {
        let arena = Arena::new(ArenaConfig { reserve_bytes: 2 << 30 }).unwrap();
        Store { arena, handles: Vec::new(), position: Default::default(), random: Random(seed) }
    }

    fn add(&mut self, kind: Kind, bytes: usize) {
        let handle = self.arena.allocate(kind, bytes, 0).unwrap().handle;
        self.position.insert(handle, self.handles.len());
        self.handles.push(handle);
    }

    fn delete_any(&mut self) {
        let at = self.random.below(self.handles.len());
        let handle = self.handles.swap_remove(at);
        self.position.remove(&handle);
        if let Some(&moved) = self.handles.get(at) {
            self.position.insert(moved, at);
        }
        self.arena.release(handle);
    }

    /// Runs compaction until it finds nothing more to do; the objects moved.
    fn settle(&mut self) -> usize {
        let (mut victims, mut moves) = (Vec::new(), 0);
        while self.arena.victims(&mut victims, 64) {
            for victim in victims.drain(..) {
                let moved = self
                    .arena
                    .reallocate(victim.handle, victim.owner, victim.bytes, victim.bytes)
                    .unwrap()
                    .handle;
                let at = self.position.remove(&victim.handle).unwrap();
                self.position.insert(moved, at);
                self.handles[at] = moved;
                moves += 1;
                assert!(moves <= 2 * self.handles.len(), "compaction comes to rest");
            }
        }
        self.arena.check_invariants();
        moves
    }

    fn check(&mut self, name: &str) {
        let before = self.arena.stats();
        let moves = self.settle();
        let after = self.arena.stats();
        assert_eq!(after.live_bytes, before.live_bytes);
        let lost = after.partial_free_bytes + after.tail_bytes;
        let bound = FIXED_BYTES + after.live_bytes * SHARE_PERCENT / 100;
        println!("{name}: {moves} moves, {}", shares(&after));
        assert!(lost <= bound, "{name}: {lost} B lost, the bound is {bound} B");
    }
}

fn shares(stats: &ArenaStats) -> String {
    let percent = |bytes: u64| bytes as f64 * 100.0 / stats.live_bytes as f64;
    format!(
        "live {:.1} MB, partial {:.2} MB, tails {:.2} MB ({:.2} %), metadata {:.2} %",
        stats.live_bytes as f64 / 1048576.0,
        stats.partial_free_bytes as f64 / 1048576.0,
        stats.tail_bytes as f64 / 1048576.0,
        percent(stats.tail_bytes),
        percent(stats.metadata_bytes),
    )
}

/// Fills, deletes at random, and refills with another mixture, checking the bound each time.
fn churn(
    name: &str,
    live_bytes: u64,
    first: fn(&mut Random) -> (Kind, usize),
    second: fn(&mut Random) -> (Kind, usize),
) {
    for seed in 1..=3 {
        let mut store = Store::new(seed);
        while store.arena.live_bytes() < live_bytes {
            let (kind, bytes) = first(&mut store.random);
            store.add(kind, bytes);
        }
        store.check(&format!("{name}, seed {seed}, filled"));
        while store.arena.live_bytes() > live_bytes / 2 {
            store.delete_any();
        }
        store.check(&format!("{name}, seed {seed}, half deleted"));
        while store.arena.live_bytes() < live_bytes {
            let (kind, bytes) = second(&mut store.random);
            store.add(kind, bytes);
        }
        store.check(&format!("{name}, seed {seed}, refilled"));
        while store.arena.live_bytes() > live_bytes / 20 {
            store.delete_any();
        }
        store.check(&format!("{name}, seed {seed}, nearly empty"));
    }
}

/// Around 640 B, as linear hashing leaves them; a few are far larger.
fn page(random: &mut Random) -> (Kind, usize) {
    match random.below(50) {
        0 => (Kind::Page, 900 + random.below(1000)),
        _ => (Kind::Page, 320 + random.below(700)),
    }
}

fn small_blob(random: &mut Random) -> (Kind, usize) {
    (Kind::Blob, 200 + random.below(900))
}

fn large_blob(random: &mut Random) -> (Kind, usize) {
    (Kind::Blob, 1100 + random.below(950))
}

fn any_blob(random: &mut Random) -> (Kind, usize) {
    (Kind::Blob, 200 + random.below(3912))
}

fn mixed(random: &mut Random) -> (Kind, usize) {
    match random.below(4) {
        0 => any_blob(random),
        1 => small_blob(random),
        _ => page(random),
    }
}

#[test]
fn pages() {
    churn("pages", 40 << 20, page, page);
}

#[test]
fn blobs_of_any_size() {
    churn("blobs", 60 << 20, any_blob, any_blob);
}

#[test]
fn small_blobs_then_large_ones() {
    churn("small to large blobs", 60 << 20, small_blob, large_blob);
}

#[test]
fn everything_mixed_in_a_small_arena() {
    churn("mixed, small", 10 << 20, mixed, mixed);
}

#[test]
fn everything_mixed_in_a_larger_arena() {
    churn("mixed, larger", 150 << 20, mixed, mixed);
}
