//! Random operations against a map from handle to what the object should hold: contents survive, never
//! overlap, and the accounting is right. Every failure names its seed.
#![allow(unsafe_code)]

mod common;

use common::{Random, bytes_max, fill, holds};
use isotherm_arena::{Arena, ArenaConfig, Exhausted, Handle, Kind, class_bytes};
use std::collections::BTreeMap;

#[derive(Copy, Clone)]
struct Object {
    kind: Kind,
    len: usize,
    owner: u16,
    pattern: u64,
}

struct Model {
    arena: Arena,
    objects: BTreeMap<Handle, Object>,
    random: Random,
    next_pattern: u64,
    moves: usize,
}

impl Model {
    fn new(seed: u64, reserve_bytes: u64) -> Model {
        let arena = Arena::new(ArenaConfig { reserve_bytes }).unwrap();
        Model { arena, objects: BTreeMap::new(), random: Random(seed), next_pattern: 0, moves: 0 }
    }

    fn len(&mut self, kind: Kind) -> usize {
        // Mostly few classes, so that slabs fill and empty; sometimes any size.
        match self.random.below(8) {
            0 => self.random.below(bytes_max(kind) + 1),
            1 => [0, 1, 31, 32, 33, bytes_max(kind)][self.random.below(6)],
            _ => [24, 64, 600, 640, 1032, 2100][self.random.below(6)],
        }
    }

    fn allocate(&mut self) {
        let kind =
            [Kind::Page, Kind::Page, Kind::Blob, Kind::Blob, Kind::Index, Kind::Node][self.random.below(6)];
        let len = self.len(kind);
        let owner = self.random.below(65536) as u16;
        let Ok(block) = self.arena.allocate(kind, len, owner) else { return };
        assert_eq!(block.bytes, class_bytes(kind, len));
        self.next_pattern += 1;
        let object = Object { kind, len, owner, pattern: self.next_pattern };
        // SAFETY: the object was just allocated, and this thread owns them all.
        fill(unsafe { self.arena.bytes_mut(block.handle, len) }, object.pattern);
        assert!(self.objects.insert(block.handle, object).is_none(), "a live object was given out again");
    }

    fn pick(&mut self) -> Option<(Handle, Object)> {
        let start = Handle::from_raw(self.random.next() as u32 % 500_000 + 1)?;
        let found = self.objects.range(start..).next().or_else(|| self.objects.iter().next());
        found.map(|(&handle, &object)| (handle, object))
    }

    fn check(&self, handle: Handle, object: &Object, len: usize) {
        // SAFETY: the object is in the model, so it is live, and this thread owns them all.
        let bytes = unsafe { self.arena.bytes(handle, len) };
        assert!(holds(bytes, object.pattern), "contents of {handle:?} differ");
        assert_eq!(self.arena.owner(handle), object.owner);
    }

    fn release(&mut self) {
        let Some((handle, object)) = self.pick() else { return };
        self.check(handle, &object, object.len);
        self.arena.release(handle);
        self.objects.remove(&handle);
        assert!(!self.arena.is_live(handle, object.owner));
    }

    fn reallocate(&mut self) {
        let Some((handle, mut object)) = self.pick() else { return };
        let new_len = self.len(object.kind);
        let used = object.len.min(new_len);
        let Ok(block) = self.arena.reallocate(handle, object.owner, used, new_len) else {
            self.check(handle, &object, object.len);
            return;
        };
        assert_eq!(block.bytes, class_bytes(object.kind, new_len));
        self.check(block.handle, &object, used);
        self.objects.remove(&handle);
        self.next_pattern += 1;
        (object.len, object.pattern) = (new_len, self.next_pattern);
        // SAFETY: live, and this thread owns them all.
        fill(unsafe { self.arena.bytes_mut(block.handle, new_len) }, object.pattern);
        assert!(self.objects.insert(block.handle, object).is_none());
    }

    fn evacuate(&mut self) {
        let mut victims = Vec::new();
        let listed_max = 1 + self.random.below(20);
        if !self.arena.victims(&mut victims, listed_max) {
            return;
        }
        assert!(!victims.is_empty() && victims.len() <= listed_max);
        for victim in victims {
            let object = self.objects[&victim.handle];
            assert_eq!((victim.kind, victim.owner), (object.kind, object.owner));
            assert_eq!(victim.bytes, class_bytes(object.kind, object.len));
            assert!(object.kind != Kind::Index, "index objects are never moved");
            assert!(self.arena.is_live(victim.handle, victim.owner));
            if self.random.below(10) == 0 {
                continue; // its owner is busy
            }
            let block = self.arena.reallocate(victim.handle, victim.owner, object.len, victim.bytes);
            let block = block.expect("moving within a class needs no new slab");
            if block.handle == victim.handle {
                continue; // other allocations took the room meanwhile, and the slab is back in service
            }
            self.check(block.handle, &object, object.len);
            self.objects.remove(&victim.handle);
            assert!(self.objects.insert(block.handle, object).is_none());
            self.moves += 1;
        }
    }

    fn step(&mut self, growing: bool) {
        match self.random.below(100) {
            0..30 => self.allocate(),
            30..40 if growing => self.allocate(),
            30..60 => self.release(),
            60..85 => self.reallocate(),
            85..97 => self.evacuate(),
            97 => self.arena.finish_evacuation(),
            98 => drop(self.arena.trim(self.random.below(8))),
            _ => {
                let raw = self.random.next() as u32;
                let hint = self.arena.hint::<8>(raw, self.random.below(9000) as u32);
                std::hint::black_box(hint.map(|hint| hint.u64(0)));
            }
        }
    }

    fn check_all(&self) {
        self.arena.check_invariants();
        let mut end = 0;
        let mut live_bytes = 0;
        for (handle, object) in &self.objects {
            let start = handle.raw() as usize * 16;
            assert!(start >= end, "two objects overlap");
            end = start + class_bytes(object.kind, object.len);
            live_bytes += class_bytes(object.kind, object.len) as u64;
            self.check(*handle, object, object.len);
        }
        let stats = self.arena.stats();
        assert_eq!((stats.live_objects, stats.live_bytes), (self.objects.len() as u64, live_bytes));
    }
}

fn run(seed: u64, steps: usize, reserve_bytes: u64) {
    println!("seed {seed}");
    let mut model = Model::new(seed, reserve_bytes);
    for step in 0..steps {
        model.step(step % 4000 < 2500);
        if step % 300 == 0 {
            model.check_all();
        }
    }
    model.check_all();
    assert!(model.moves > 0 || steps < 5000, "compaction never moved anything");
    for handle in std::mem::take(&mut model.objects).into_keys() {
        model.arena.release(handle);
    }
    model.check_all();
    let stats = model.arena.stats();
    assert_eq!((stats.slab_bytes, stats.live_bytes), (0, 0), "an empty arena keeps no slab");
    while model.arena.trim(0) > 0 {}
    assert_eq!(model.arena.stats().free_slab_bytes, 0);
}

#[test]
fn contents_survive_random_operations() {
    let (seeds, steps) = if cfg!(miri) { (1, 150) } else { (8, 20_000) };
    for seed in 1..=seeds {
        run(seed, steps, 256 << 20);
    }
}

#[test]
fn contents_survive_in_an_arena_that_is_always_full() {
    let (seeds, steps) = if cfg!(miri) { (1, 125) } else { (6, 20_000) };
    for seed in 1..=seeds {
        run(seed, steps, 1 << 20);
    }
}

#[test]
fn exhaustion_is_an_error_and_freeing_cures_it() {
    let arena =
        Arena::new(ArenaConfig { reserve_bytes: if cfg!(miri) { 128 << 10 } else { 1 << 20 } }).unwrap();
    let mut handles = Vec::new();
    let error = loop {
        match arena.allocate(Kind::Page, 700, 3) {
            Ok(block) => handles.push(block.handle),
            Err(error) => break error,
        }
    };
    assert_eq!(error, Exhausted);
    // 63 chunks (chunk 0 is never given out) of 22 or 23 pages of 704 B.
    if !cfg!(miri) {
        assert!(handles.len() > 63 * 22, "only {} objects fit", handles.len());
    }
    assert_eq!(arena.allocate(Kind::Blob, 100, 3), Err(Exhausted));
    assert_eq!(arena.reallocate(handles[0], 3, 700, 800), Err(Exhausted));
    assert!(arena.is_live(handles[0], 3), "a failed move leaves the object where it was");
    arena.check_invariants();
    arena.release(handles.pop().unwrap());
    handles.push(arena.allocate(Kind::Page, 700, 3).unwrap().handle);
    for handle in handles {
        arena.release(handle);
    }
    arena.check_invariants();
    assert_eq!(arena.live_bytes(), 0);
    arena.allocate(Kind::Blob, 4112, 0).unwrap();
}

#[test]
fn memory_that_is_still_resident_is_used_before_memory_that_was_given_back() {
    let arena = Arena::new(ArenaConfig { reserve_bytes: 4 << 20 }).unwrap();
    let mut handles: Vec<Handle> =
        (0..400).map(|_| arena.allocate(Kind::Page, 1024, 0).unwrap().handle).collect();
    handles.drain(..).for_each(|handle| arena.release(handle));
    while arena.trim(6) > 0 {}
    let kept = arena.stats().free_slab_bytes;
    assert!(kept > 0 && kept <= 6 * 16384);
    while arena.stats().free_slab_bytes > 0 {
        let before = arena.stats();
        arena.allocate(Kind::Page, 1024, 0).unwrap();
        let after = arena.stats();
        let opened = after.slab_bytes - before.slab_bytes;
        assert_eq!(before.free_slab_bytes - after.free_slab_bytes, opened.min(before.free_slab_bytes));
    }
    arena.check_invariants();
}

#[test]
fn wrong_handles_are_found() {
    let arena = Arena::new(ArenaConfig { reserve_bytes: 1 << 20 }).unwrap();
    let keep = arena.allocate(Kind::Page, 64, 0).unwrap().handle;
    let freed = arena.allocate(Kind::Page, 64, 0).unwrap().handle;
    arena.release(freed);
    assert!(!arena.is_live(freed, 0));
    assert!(arena.is_live(keep, 0) && !arena.is_live(keep, 1));
    for raw in [1, keep.raw() - 1, keep.raw() + 1, 1 << 20, u32::MAX] {
        assert!(!arena.is_live(Handle::from_raw(raw).unwrap(), 0));
    }
    let twice = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| arena.release(freed)));
    assert!(twice.is_err(), "a double free is our bug and must not pass");
}

#[test]
fn hints_take_any_argument() {
    let arena = Arena::new(ArenaConfig { reserve_bytes: 4 << 20 }).unwrap();
    assert!(arena.hint::<4>(5, 0).is_none(), "nothing is committed yet");
    let handle = arena.allocate(Kind::Page, 640, 0).unwrap().handle;
    // SAFETY: just allocated.
    unsafe { arena.bytes_mut(handle, 16) }
        .copy_from_slice(&[1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16]);
    let hint = arena.hint::<13>(handle.raw(), 0).unwrap();
    assert_eq!(
        (hint.u32(0), hint.u32(3)),
        (u32::from_le_bytes([1, 2, 3, 4]), u32::from_le_bytes([4, 5, 6, 7]))
    );
    assert_eq!(hint.u64(5), u64::from_le_bytes([6, 7, 8, 9, 10, 11, 12, 13]));
    assert_eq!(arena.hint::<4>(handle.raw(), 3).unwrap().u32(0), hint.u32(3));
    let numbers = [0, 1, handle.raw(), 1 << 16, (1 << 18) - 1, 1 << 18, 1 << 31, u32::MAX - 1, u32::MAX];
    let offsets = [0, 1, 7, 4095, 1 << 16, (4 << 20) - 1, u32::MAX - 8, u32::MAX - 1, u32::MAX];
    let look = |raw: u32, offset: u32| {
        arena.prefetch(raw, offset as usize);
        std::hint::black_box(arena.hint::<4>(raw, offset).map(|hint| hint.u32(0)));
        std::hint::black_box(arena.hint::<504>(raw, offset).map(|hint| hint.u64(496)));
    };
    numbers.into_iter().for_each(|raw| offsets.into_iter().for_each(|offset| look(raw, offset)));
    let mut random = Random(7);
    for _ in 0..if cfg!(miri) { 100 } else { 200_000 } {
        look(random.next() as u32, random.next() as u32 >> (random.next() % 32));
    }
    [1 << 40, usize::MAX - 8, usize::MAX].into_iter().for_each(|offset| arena.prefetch(1, offset));
    let end = arena.stats().committed_bytes as u32;
    assert!(arena.hint::<8>(0, end - 7).is_none(), "the last seven bytes are not eight");
    arena.hint::<8>(0, end - 8).unwrap().u64(0);
}
