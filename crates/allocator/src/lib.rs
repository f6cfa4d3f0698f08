//! The allocator of the process, and how much it has given out. A program that depends on this crate has it.
//!
//! **What this crate does not know:** what is allocated, and for whom. A request is a size.
//!
//! A cargo feature chooses one of four when building; each has a file here with the same face, so that
//! nothing else knows which one it is.
//!
//! ```text
//!   feature      inner         size classes            says of itself
//!   jemalloc     jemalloc.rs   four to a doubling      everything, by arena and by class; the default
//!   mimalloc     mimalloc.rs   eight to a doubling     what it reserved and committed
//!   tcmalloc     tcmalloc.rs   its own table           heap, caches, unmapped; gperftools' libtcmalloc_minimal
//!   system       system.rs     multiples of 16         arenas, mapped blocks (the C library's)
//! ```
//!
//! The count here does not depend on the allocator: every request, at the size that the allocator takes for
//! it. Each thread counts in a cell of its own and adds that to the common sum when it exceeds 64 KB, so
//! counting costs a few instructions and `allocated_bytes` is off by at most 64 KB x threads, 4 KB for one
//! that rests.

#![allow(unsafe_code)]

use std::alloc::{GlobalAlloc, Layout};
use std::cell::Cell;
use std::sync::atomic::{AtomicI64, Ordering};

#[cfg(any(
    all(feature = "jemalloc", any(feature = "mimalloc", feature = "tcmalloc", feature = "system")),
    all(feature = "mimalloc", any(feature = "tcmalloc", feature = "system")),
    all(feature = "tcmalloc", feature = "system"),
))]
compile_error!(
    "a process has one allocator: build with `--no-default-features --features` and one of jemalloc, mimalloc, tcmalloc, system"
);

#[cfg(feature = "jemalloc")]
mod jemalloc;
#[cfg(feature = "mimalloc")]
mod mimalloc;
#[cfg(not(feature = "jemalloc"))]
mod plain;
mod shrink;
#[cfg(not(any(feature = "jemalloc", feature = "mimalloc", feature = "tcmalloc")))]
mod system;
#[cfg(feature = "tcmalloc")]
mod tcmalloc;
mod untouched;

#[cfg(feature = "jemalloc")]
use jemalloc as inner;
#[cfg(all(feature = "mimalloc", not(feature = "jemalloc")))]
use mimalloc as inner;
#[cfg(not(any(feature = "jemalloc", feature = "mimalloc", feature = "tcmalloc")))]
use system as inner;
#[cfg(all(feature = "tcmalloc", not(any(feature = "jemalloc", feature = "mimalloc"))))]
use tcmalloc as inner;

use inner::INNER;
pub use shrink::shrink;
pub use untouched::Untouched;

pub use inner::{GIVES_BACK, class_bytes, figures, keep_libc_small, name, purge, report, return_freed_pages};
#[cfg(feature = "jemalloc")]
pub use jemalloc::{
    class_uses, classes, complaints, dump_profile, lock_waits, options, own_arena, profile, set_decay,
};
#[cfg(not(feature = "jemalloc"))]
pub use plain::{
    class_uses, classes, complaints, dump_profile, lock_waits, options, own_arena, profile, set_decay,
};

/// Figures that the allocator reports, in bytes. A figure that it does not report is 0.
#[derive(Clone, Copy, Default, Debug)]
pub struct Figures {
    /// Bytes of live blocks.
    pub allocated: u64,
    /// The pages with something alive.
    pub active: u64,
    /// The pages that are there: those, its own metadata, and what it keeps for later.
    pub resident: u64,
    /// Addresses without memory behind them, kept for later.
    pub retained: u64,
    /// Metadata of the allocator.
    pub metadata: u64,
}

/// A size that blocks are given out in, and the run of pages that such blocks are cut from (0 if it is not
/// reported).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Class {
    pub size_bytes: usize,
    pub slab_bytes: usize,
}

/// Contents of a class of jemalloc, and counts of its operations.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ClassUse {
    pub size_bytes: u64,
    pub blocks_per_slab: u64,
    pub blocks: u64,
    pub slabs: u64,
    /// Slabs with room.
    pub nonfull_slabs: u64,
    /// Number of times that a thread's cache took blocks from the arena, and that it gave some back.
    pub fills: u64,
    pub flushes: u64,
    /// Number of times that a thread has waited for the lock of the class.
    pub lock_waits: u64,
}

impl ClassUse {
    pub fn allocated_bytes(&self) -> u64 {
        self.blocks * self.size_bytes
    }

    /// Returns the share of the slabs' blocks that are in use.
    pub fn used_percent(&self) -> f64 {
        self.blocks as f64 * 100.0 / (self.slabs * self.blocks_per_slab).max(1) as f64
    }
}

/// Options of jemalloc, by the names that `MALLOC_CONF` has for them.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Options {
    pub narenas: u32,
    pub tcache: bool,
    pub tcache_max_bytes: usize,
    pub dirty_decay_ms: i64,
    pub muzzy_decay_ms: i64,
    pub background_thread: bool,
    pub profiling: bool,
}

impl std::fmt::Display for Options {
    /// Writes the options as they would stand in `MALLOC_CONF`.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Options { narenas, tcache, tcache_max_bytes, dirty_decay_ms, muzzy_decay_ms, .. } = self;
        let (background, profiling) = (self.background_thread, self.profiling);
        write!(
            f,
            "narenas:{narenas},tcache:{tcache},tcache_max:{tcache_max_bytes},dirty_decay_ms:{dirty_decay_ms},\
             muzzy_decay_ms:{muzzy_decay_ms},background_thread:{background},prof:{profiling}"
        )
    }
}

/// Freed pages that are still there, and those that the kernel may take when it is short.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Decay {
    Dirty,
    Muzzy,
}

/// Why there is no profile.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ProfileError {
    /// The program was built without profiling.
    NotBuilt,
    /// The program was started with `prof:false`.
    Off,
    Failed,
}

/// Format of `report`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Format {
    Text,
    Json,
}

#[global_allocator]
static GLOBAL: Counting = Counting;

/// Maximum difference that only the thread itself knows, while it works and while it rests.
const THREAD_DELTA_MAX: i64 = 64 << 10;
const RESTING_DELTA_MAX: i64 = 4 << 10;

static ALLOCATED: AtomicI64 = AtomicI64::new(0);

thread_local! {
    static DELTA: Cell<i64> = const { Cell::new(0) };
}

/// Bytes given out and not yet returned.
#[inline]
pub fn allocated_bytes() -> u64 {
    ALLOCATED.load(Ordering::Relaxed).max(0) as u64
}

/// Adds what this thread knows alone, if that is worth it: a reader of the sum while this one rests sees it
/// nearly right.
#[inline]
pub fn settle() {
    #[cfg(not(any(feature = "jemalloc", feature = "mimalloc", feature = "tcmalloc")))]
    inner::release_top();
    DELTA.with(|delta| {
        if delta.get().abs() >= RESTING_DELTA_MAX {
            ALLOCATED.fetch_add(delta.take(), Ordering::Relaxed);
        }
    });
}

struct Counting;

#[inline]
fn count(bytes: isize) {
    let bytes = bytes as i64;
    DELTA.with(|delta| {
        let sum = delta.get() + bytes;
        if sum.abs() < THREAD_DELTA_MAX {
            delta.set(sum);
        } else {
            delta.set(0);
            ALLOCATED.fetch_add(sum, Ordering::Relaxed);
        }
    });
}

// SAFETY: every call goes unchanged to an allocator that keeps the contract; counting allocates nothing (the
// cell is `const` and has no destructor).
unsafe impl GlobalAlloc for Counting {
    #[inline]
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        // SAFETY: the caller's obligations are those of the inner allocator.
        let pointer = unsafe { INNER.alloc(layout) };
        if !pointer.is_null() {
            count(class_bytes(layout.size()) as isize);
        }
        pointer
    }

    #[inline]
    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        // SAFETY: the caller's obligations are those of the inner allocator.
        let pointer = unsafe { INNER.alloc_zeroed(layout) };
        if !pointer.is_null() {
            count(class_bytes(layout.size()) as isize);
        }
        pointer
    }

    #[inline]
    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        count(-(class_bytes(layout.size()) as isize));
        // SAFETY: the caller's obligations are those of the inner allocator.
        unsafe { INNER.dealloc(pointer, layout) }
    }

    #[inline]
    unsafe fn realloc(&self, pointer: *mut u8, layout: Layout, new_size: usize) -> *mut u8 {
        // SAFETY: the caller's obligations are those of the inner allocator.
        let moved = unsafe { INNER.realloc(pointer, layout, new_size) };
        if !moved.is_null() {
            count(class_bytes(new_size) as isize - class_bytes(layout.size()) as isize);
        }
        moved
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Tests that look at what the whole process has are alone.
    pub(super) static ALONE: std::sync::Mutex<()> = std::sync::Mutex::new(());

    #[test]
    fn what_is_returned_is_no_longer_counted() {
        let _alone = ALONE.lock();
        let before = allocated_bytes();
        let big = vec![1u8; 8 << 20];
        assert!(allocated_bytes() >= before + (8 << 20) - 2 * THREAD_DELTA_MAX as u64);
        drop(big);
        assert!(allocated_bytes() <= before + (4 << 20));
    }

    #[test]
    fn what_was_never_written_to_is_not_counted() {
        let _alone = ALONE.lock();
        let before = allocated_bytes();
        let announced = Vec::<u8>::with_capacity(64 << 20);
        let mut untouched = Untouched::default();
        untouched.set(64 << 20);
        assert!(allocated_bytes() < before + (4 << 20));
        untouched.set(32 << 20);
        assert!(allocated_bytes() > before + (28 << 20));
        drop((announced, untouched));
        assert!(allocated_bytes() < before + (4 << 20));
    }

    #[test]
    fn a_class_holds_its_request_and_wastes_little() {
        for size in (1..5000).chain([16 << 10, (16 << 10) + 1, 100_000, 1 << 20, (8 << 20) + 1]) {
            let class = class_bytes(size);
            assert!(class >= size && class <= size + size / 4 + (8 << 10), "{size}: {class}");
            assert!(class >= class_bytes(size - 1), "{size}");
        }
    }

    #[test]
    fn it_reports_in_words_and_in_json() {
        let _alone = ALONE.lock();
        let kept = vec![1u8; 3 << 20];
        let figures = figures();
        assert!(figures.allocated >= (3 << 20) - 2 * THREAD_DELTA_MAX as u64, "{figures:?}");
        assert!(figures.active >= figures.allocated && figures.resident >= 3 << 20, "{figures:?}");
        drop(kept);
        assert!(name().starts_with(|c: char| c.is_ascii_lowercase()), "{}", name());
        assert!(report(Format::Text).len() > 40);
        let json = report(Format::Json);
        assert!(json.trim_start().starts_with('{') && json.trim_end().ends_with('}'), "{json}");
    }
}
