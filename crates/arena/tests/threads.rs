//! Arena with several owners and a compactor, used as a server does. Each owner has a lock, as a stripe has;
//! only a thread that holds the lock touches the owner's objects.
#![allow(unsafe_code)]

mod common;

use common::{Random, fill, holds};
use isotherm_arena::{Arena, ArenaConfig, Handle, Kind};
use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::Relaxed};
use std::sync::{Mutex, MutexGuard};
use std::time::Duration;

const OWNERS: usize = 4;

struct Object {
    len: usize,
    pattern: u64,
}

type Stripe = Mutex<HashMap<Handle, Object>>;

/// Minimum number of moves that make the test meaningful.
const MOVES_MIN: usize = 100;
/// On a loaded machine the compactor may get no turn while the owners work: they go on until it had one, to
/// this bound.
const ROUNDS_MAX: usize = 20_000_000;

/// Works on one owner's objects for `rounds`, and on until the compactor has moved enough; checks what it
/// finds.
fn work(arena: &Arena, stripe: &Stripe, owner: u16, rounds: usize, moves: &AtomicUsize) {
    let mut random = Random(u64::from(owner) + 1);
    let mut keys: Vec<Handle> = Vec::new();
    for round in 0..ROUNDS_MAX {
        if round >= rounds && (cfg!(miri) || moves.load(Relaxed) > MOVES_MIN) {
            break;
        }
        let mut objects = stripe.lock().unwrap();
        if keys.len() != objects.len() || round % 16 == 0 {
            keys = objects.keys().copied().collect(); // the compactor has moved some
        }
        // Growing and shrinking take turns, so that there is something to compact.
        let growing = round % 4000 < 2000;
        if objects.len() < 30 || random.below(100) < if growing { 70 } else { 30 } {
            let kind = [Kind::Page, Kind::Blob][random.below(2)];
            let len = [100, 300, 640, 2100][random.below(4)];
            let handle = arena.allocate(kind, len, owner).unwrap().handle;
            let pattern = random.next();
            // SAFETY: the object was just allocated, and its owner's lock is held.
            fill(unsafe { arena.bytes_mut(handle, len) }, pattern);
            assert!(objects.insert(handle, Object { len, pattern }).is_none());
            keys.push(handle);
            continue;
        }
        let at = random.below(keys.len());
        let Some(object) = objects.remove(&keys[at]) else { continue };
        let handle = keys.swap_remove(at);
        // SAFETY: the object is in the owner's map, so it is live, and the owner's lock is held.
        assert!(holds(unsafe { arena.bytes(handle, object.len) }, object.pattern));
        arena.release(handle);
    }
}

fn compact(arena: &Arena, stripes: &[Stripe], stop: &AtomicBool, moves: &AtomicUsize) {
    let (mut victims, mut random) = (Vec::new(), Random(17));
    while !stop.load(Relaxed) {
        if !arena.victims(&mut victims, 16) {
            arena.trim(4);
            std::thread::sleep(Duration::from_micros(200));
            continue;
        }
        for victim in victims.drain(..) {
            // Lock order: the owner's lock, then the arena's. A busy owner is skipped, but not for ever:
            // these owners do nothing but hold their lock.
            let stripe = &stripes[victim.owner as usize];
            let Some(mut objects) = stripe.try_lock().ok().or_else(|| patience(&mut random, stripe)) else {
                continue;
            };
            if !arena.is_live(victim.handle, victim.owner) {
                continue;
            }
            let object = objects.remove(&victim.handle).expect("a live object of this owner is in its map");
            // Not of `victim.bytes`: by now another object may be there, of another class.
            let moved = arena.reallocate(victim.handle, victim.owner, object.len, object.len).unwrap().handle;
            // SAFETY: live, and its owner's lock is held.
            assert!(holds(unsafe { arena.bytes(moved, object.len) }, object.pattern));
            assert!(objects.insert(moved, object).is_none());
            moves.fetch_add(1, Relaxed);
        }
    }
}

fn patience<'a>(random: &mut Random, stripe: &'a Stripe) -> Option<MutexGuard<'a, HashMap<Handle, Object>>> {
    (random.below(2) == 0).then(|| stripe.lock().unwrap())
}

/// Runs when it is dropped, also by a failed check: threads of a scope that are not stopped would hang the
/// test.
struct OnDrop<F: FnMut()>(F);

impl<F: FnMut()> Drop for OnDrop<F> {
    fn drop(&mut self) {
        (self.0)();
    }
}

#[test]
fn owners_and_a_compactor_share_an_arena() {
    let arena = Arena::new(ArenaConfig { reserve_bytes: 64 << 20 }).unwrap();
    let stripes: Vec<Stripe> = (0..OWNERS).map(|_| Mutex::default()).collect();
    let (stop, moves) = (AtomicBool::new(false), AtomicUsize::new(0));
    let rounds = if cfg!(miri) { 25 } else { 60_000 };
    std::thread::scope(|scope| {
        let stopping = OnDrop(|| stop.store(true, Relaxed));
        let compactor = scope.spawn(|| compact(&arena, &stripes, &stop, &moves));
        let workers: Vec<_> = (0..OWNERS)
            .map(|owner| {
                let (arena, stripe, moves) = (&arena, &stripes[owner], &moves);
                scope.spawn(move || work(arena, stripe, owner as u16, rounds, moves))
            })
            .collect();
        // Hints go on all the time, and must survive anything. (Under Miri a race is an error even for a
        // hint.)
        let mut random = Random(99);
        while !cfg!(miri) && workers.iter().any(|worker| !worker.is_finished()) {
            let raw = random.below(64 << 16) as u32;
            arena.prefetch(raw, random.below(9000));
            std::hint::black_box(arena.hint::<4>(raw, 4).map(|hint| hint.u32(0)));
            let hint = arena.hint::<8>(raw, random.below(9000) as u32);
            std::hint::black_box(hint.map(|hint| hint.u64(0)));
        }
        for worker in workers {
            worker.join().unwrap();
        }
        drop(stopping);
        compactor.join().unwrap();
    });
    assert!(cfg!(miri) || moves.into_inner() > MOVES_MIN, "the compactor found nothing to do");
    let mut live = 0;
    for (owner, stripe) in stripes.into_iter().enumerate() {
        for (handle, object) in stripe.into_inner().unwrap() {
            assert!(arena.is_live(handle, owner as u16));
            // SAFETY: live, and the threads are gone.
            assert!(holds(unsafe { arena.bytes(handle, object.len) }, object.pattern));
            live += 1;
        }
    }
    assert_eq!(arena.stats().live_objects, live);
    arena.check_invariants();
}
