//! Resident memory as the kernel sees it: RSS follows the live bytes. The test is alone in its file, so that
//! no other test moves the figure.
#![cfg(not(miri))]

mod common;

use common::Random;
use isotherm_arena::{Arena, ArenaConfig, Handle, Kind};
use std::collections::HashMap;

const MB: i64 = 1 << 20;

fn resident_bytes() -> i64 {
    let statm = std::fs::read_to_string("/proc/self/statm").unwrap();
    statm.split(' ').nth(1).unwrap().parse::<i64>().unwrap() * 4096
}

/// Moves everything that compaction wants to move.
fn settle(arena: &Arena, moved: &mut HashMap<Handle, Handle>) {
    let mut victims = Vec::new();
    while arena.victims(&mut victims, 64) {
        for victim in victims.drain(..) {
            let to =
                arena.reallocate(victim.handle, victim.owner, victim.bytes, victim.bytes).unwrap().handle;
            let from = moved.remove(&victim.handle).unwrap();
            moved.insert(to, from);
        }
    }
}

#[test]
fn resident_memory_follows_the_live_bytes() {
    let before = resident_bytes();
    let arena = Arena::new(ArenaConfig { reserve_bytes: 64 << 30 }).unwrap();
    assert_eq!(arena.reservation_bytes(), 64 << 30);
    assert!(resident_bytes() - before < MB / 2, "an empty arena of 64 GB takes next to nothing");

    let mut random = Random(5);
    let mut handles = Vec::new();
    while (arena.live_bytes() as i64) < 100 * MB {
        let bytes = 320 + random.below(640);
        handles.push(arena.allocate(Kind::Page, bytes, 0).unwrap().handle);
        arena.pointer(handles[handles.len() - 1]); // only an address
    }
    touch(&arena, &handles);
    let full = resident_bytes() - before;
    let stats = arena.stats();
    let accounted = (stats.slab_bytes + stats.free_slab_bytes + stats.metadata_bytes) as i64;
    assert!(full <= accounted + 4 * MB, "RSS {full}, accounted {accounted}");
    assert!(full >= 100 * MB);

    while arena.collapse() > 0 {}
    let huge = resident_bytes() - before;
    assert!(huge <= full + MB, "RSS was {full}, on huge pages {huge}");

    // Half of the objects go, at random: no slab is empty, so only compaction can give memory back.
    let kept: Vec<Handle> = handles.into_iter().filter(|&handle| keep(&arena, handle, &mut random)).collect();
    assert!(arena.stats().free_slab_bytes == 0);
    let mut moved: HashMap<Handle, Handle> = kept.iter().map(|&handle| (handle, handle)).collect();
    settle(&arena, &mut moved);
    let mut returned = 0;
    loop {
        match arena.trim(8) {
            0 => break,
            bytes => returned += bytes as i64,
        }
    }
    assert!(returned > 40 * MB, "only {returned} B were given back");
    assert_eq!(arena.stats().free_slab_bytes, 8 * 16384);
    let half = resident_bytes() - before;
    let live = arena.live_bytes() as i64;
    // The map of this test itself takes some MB.
    assert!(half < live * 104 / 100 + 14 * MB, "RSS {half} for {live} live bytes");
    assert!(half < full - 30 * MB);
    arena.check_invariants();

    for handle in moved.into_keys() {
        arena.release(handle);
    }
    while arena.trim(0) > 0 {}
    assert!(resident_bytes() - before < 16 * MB, "an emptied arena is small again");
    drop(arena);
}

fn keep(arena: &Arena, handle: Handle, random: &mut Random) -> bool {
    let keep = random.below(2) == 0;
    if !keep {
        arena.release(handle);
    }
    keep
}

fn touch(arena: &Arena, handles: &[Handle]) {
    for &handle in handles {
        // SAFETY: live objects of at least 320 B, all of this thread.
        #[allow(unsafe_code)]
        unsafe { arena.bytes_mut(handle, 320) }.fill(1);
    }
}
