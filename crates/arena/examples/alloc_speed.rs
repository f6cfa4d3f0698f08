//! Cost of an allocation: nanoseconds of the thread's CPU per operation, the best of several slices, since
//! the machine is rarely quiet.
//!
//! ```text
//! cargo run --release --example alloc_speed -p isotherm-arena
//! ```

use isotherm_arena::{Arena, ArenaConfig, Block, Handle, Kind};
use std::sync::Barrier;
use std::time::Instant;

fn main() {
    println!("{:<72} ns", "operation");
    hot_pair();
    for live in [10_000, 1_000_000] {
        random_replace(live);
        page_growth(live, "reallocate", reallocate);
        page_growth(live, "allocate, copy, release", by_hand);
    }
    two_threads("reallocate", reallocate);
    two_threads("allocate, copy, release", by_hand);
    fill_and_compact();
    longest_allocate();
}

/// Runs `slices` times `rounds` calls and reports the fastest slice.
fn measure(name: &str, slices: usize, rounds: usize, mut call: impl FnMut()) {
    let slice = |_| {
        let start = thread_cpu_ns();
        (0..rounds).for_each(|_| call());
        thread_cpu_ns() - start
    };
    report(name, (0..slices).map(slice).min().unwrap() as f64 / rounds as f64);
}

fn report(name: &str, ns: f64) {
    println!("{name:<72} {ns:.1}");
}

fn arena() -> Arena {
    Arena::new(ArenaConfig { reserve_bytes: 8 << 30 }).expect("address space")
}

/// xorshift: cheap enough not to be measured.
struct Random(u64);

impl Random {
    fn next(&mut self) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 >> 16) as usize
    }

    fn page_bytes(&mut self) -> usize {
        400 + self.next() % 480
    }
}

fn hot_pair() {
    let arena = arena();
    arena.allocate(Kind::Page, 640, 0).unwrap();
    measure("allocate + release, the same object again and again", 10, 1_000_000, || {
        let block = arena.allocate(Kind::Page, std::hint::black_box(640), 0).unwrap();
        arena.release(std::hint::black_box(block.handle));
    });
}

fn random_replace(live: usize) {
    let (arena, mut random) = (arena(), Random(88172645463325252));
    let allocate = |random: &mut Random| arena.allocate(Kind::Page, random.page_bytes(), 7).unwrap().handle;
    let mut handles: Vec<Handle> = (0..live).map(|_| allocate(&mut random)).collect();
    measure(&format!("release + allocate, one of {live} pages of 400..880 B"), 10, 300_000, || {
        let at = random.next() % live;
        arena.release(handles[at]);
        handles[at] = allocate(&mut random);
    });
}

/// Function that moves a page to its next class.
type Grow = fn(&Arena, Handle, usize, usize) -> Block;

fn reallocate(arena: &Arena, handle: Handle, used: usize, wanted: usize) -> Block {
    arena.reallocate(handle, 0, used, wanted).unwrap()
}

fn by_hand(arena: &Arena, handle: Handle, used: usize, wanted: usize) -> Block {
    let target = arena.allocate(Kind::Page, wanted, 0).unwrap();
    // SAFETY: the calling thread owns both objects; they are different ones of at least `used` bytes.
    #[allow(unsafe_code)]
    unsafe {
        arena.bytes_mut(target.handle, used).copy_from_slice(arena.bytes(handle, used));
    }
    arena.release(handle);
    target
}

/// Pages that grow by a key at a time, and start small again after a split.
struct Pages {
    pages: Vec<(Handle, usize)>,
    random: Random,
}

impl Pages {
    fn new(arena: &Arena, count: usize, seed: u64) -> Pages {
        let mut random = Random(seed);
        let mut page = || {
            let bytes = random.page_bytes();
            (arena.allocate(Kind::Page, bytes, 0).unwrap().handle, bytes)
        };
        Pages { pages: (0..count).map(|_| page()).collect(), random }
    }

    fn grow_any(&mut self, arena: &Arena, grow: Grow) {
        let at = self.random.next() % self.pages.len();
        let (handle, bytes) = &mut self.pages[at];
        let (used, wanted) = if *bytes < 880 { (*bytes, *bytes + 36) } else { (400, 400) };
        (*handle, *bytes) = (grow(arena, *handle, used, wanted).handle, wanted);
    }
}

fn page_growth(live: usize, how: &str, grow: Grow) {
    let arena = arena();
    let mut pages = Pages::new(&arena, live, 88172645463325252);
    measure(&format!("one of {live} pages grows by 36 B: {how}"), 10, 300_000, || {
        pages.grow_any(&arena, grow);
    });
}

/// Measures two threads that do nothing but grow pages: far more growth than a server has, so an upper bound
/// for waiting.
fn two_threads(how: &str, grow: Grow) {
    let (arena, barrier) = (arena(), Barrier::new(2));
    let work = |seed| {
        let mut pages = Pages::new(&arena, 10_000, seed);
        let slice = |_| {
            barrier.wait();
            let start = Instant::now();
            (0..100_000).for_each(|_| pages.grow_any(&arena, grow));
            start.elapsed().as_nanos() as f64 / 100_000.0
        };
        (0..15).map(slice).fold(f64::MAX, f64::min)
    };
    let slower = std::thread::scope(|scope| {
        let workers = [scope.spawn(|| work(3)), scope.spawn(|| work(5))];
        workers.map(|worker| worker.join().unwrap()).into_iter().fold(0.0, f64::max)
    });
    report(&format!("the same by two threads, 10000 pages each: {how}; wall time"), slower);
}

fn fill_and_compact() {
    let (arena, mut random) = (arena(), Random(88172645463325252));
    let count = 1_000_000;
    let mut handles = Vec::with_capacity(count);
    measure("allocate, into memory never touched", 10, count / 10, || {
        handles.push(arena.allocate(Kind::Page, random.page_bytes(), 0).unwrap().handle);
    });
    for at in (1..count).rev() {
        handles.swap(at, random.next() % (at + 1));
    }
    measure("release, half of them at random", 10, count / 20, || arena.release(handles.pop().unwrap()));
    let mut victims = Vec::new();
    let mut moves = 0;
    let start = thread_cpu_ns();
    while arena.victims(&mut victims, 32) {
        for victim in victims.drain(..) {
            assert!(arena.is_live(victim.handle, victim.owner));
            arena.reallocate(victim.handle, victim.owner, victim.bytes, victim.bytes).unwrap();
            moves += 1;
        }
    }
    report(&format!("compaction, {moves} moves, each"), (thread_cpu_ns() - start) as f64 / moves as f64);
    measure("compaction that finds nothing to do", 10, 1000, || {
        arena.victims(&mut victims, 32);
    });
    let pages = arena.stats().free_slab_bytes >> 12;
    let (mut longest, mut total) = (0, 0);
    loop {
        let start = thread_cpu_ns();
        let bytes = arena.trim(0);
        let took = thread_cpu_ns() - start;
        (longest, total) = (longest.max(took), total + took);
        if bytes == 0 {
            break;
        }
    }
    report("trim, a page of 4 KB", total as f64 / pages as f64);
    report("trim, the longest call", longest as f64);
}

fn longest_allocate() {
    let (arena, mut random) = (arena(), Random(88172645463325252));
    let (mut longest, mut nothing) = (0, 0);
    for _ in 0..2_000_000 {
        let bytes = random.page_bytes();
        let start = thread_cpu_ns();
        arena.allocate(Kind::Page, bytes, 0).unwrap();
        longest = longest.max(thread_cpu_ns() - start);
        let start = thread_cpu_ns();
        nothing = nothing.max(thread_cpu_ns() - start);
    }
    report("the longest of 2 M allocates into memory never touched", longest as f64);
    report("the longest of 2 M measurements of nothing (interrupts, the host)", nothing as f64);
}

fn thread_cpu_ns() -> u64 {
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: the call writes one timespec that we own.
    #[allow(unsafe_code)]
    unsafe {
        libc::clock_gettime(libc::CLOCK_THREAD_CPUTIME_ID, &mut time)
    };
    time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64
}
