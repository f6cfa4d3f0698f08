//! The kernel says no: to the reservation (`ulimit -v`), and to a commit. Alone in its file, because the
//! limit holds for the whole process.
#![cfg(not(miri))]
#![allow(unsafe_code)]

use isotherm_arena::{Arena, ArenaConfig, Exhausted, Kind};

fn limit_address_space(bytes: u64) {
    let limit = libc::rlimit { rlim_cur: bytes, rlim_max: libc::RLIM_INFINITY };
    // SAFETY: the call reads one rlimit that we own.
    assert_eq!(unsafe { libc::setrlimit(libc::RLIMIT_AS, &limit) }, 0);
}

fn address_space_bytes() -> u64 {
    let statm = std::fs::read_to_string("/proc/self/statm").unwrap();
    statm.split(' ').next().unwrap().parse::<u64>().unwrap() * 4096
}

#[test]
fn a_refused_reservation_is_halved_and_a_refused_commit_is_an_error() {
    let used = address_space_bytes();
    limit_address_space(used + (400 << 20));
    let arena = Arena::new(ArenaConfig { reserve_bytes: 4 << 30 }).expect("256 MB fit under the limit");
    assert_eq!((arena.reservation_bytes(), arena.halvings()), (256 << 20, 4));
    let block = arena.allocate(Kind::Page, 640, 0).unwrap();
    // SAFETY: just allocated.
    unsafe { arena.bytes_mut(block.handle, 640) }.fill(1);
    arena.check_invariants();

    // A second one finds only 144 MB and takes 128 of them; for a third one the smallest size is too large.
    let second = Arena::new(ArenaConfig { reserve_bytes: 4 << 30 }).unwrap();
    assert_eq!((second.reservation_bytes(), second.halvings()), (128 << 20, 5));
    let error = Arena::new(ArenaConfig { reserve_bytes: 4 << 30 }).err().expect("16 MB are too little");
    assert_eq!(error.errno, libc::ENOMEM);
    assert!(error.to_string().starts_with("cannot reserve 67108864 bytes of address space"));
    drop(second);
    drop(arena);

    // RLIMIT_DATA counts what mprotect opens for writing, as overcommit_memory=2 does.
    let arena = Arena::new(ArenaConfig { reserve_bytes: 128 << 20 }).unwrap();
    arena.allocate(Kind::Page, 640, 0).unwrap();
    let limit = libc::rlimit { rlim_cur: 1 << 20, rlim_max: libc::RLIM_INFINITY };
    // SAFETY: the call reads one rlimit that we own.
    assert_eq!(unsafe { libc::setrlimit(libc::RLIMIT_DATA, &limit) }, 0);
    let error = (0..10_000).find_map(|_| arena.allocate(Kind::Page, 640, 0).err());
    assert_eq!(error, Some(Exhausted), "the kernel refused to open more memory");
    arena.check_invariants();
    let unlimited = libc::rlimit { rlim_cur: libc::RLIM_INFINITY, rlim_max: libc::RLIM_INFINITY };
    // SAFETY: as above.
    assert_eq!(unsafe { libc::setrlimit(libc::RLIMIT_DATA, &unlimited) }, 0);
    arena.allocate(Kind::Page, 640, 0).expect("and it recovers");
    arena.check_invariants();
}
