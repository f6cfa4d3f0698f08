//! The allocator of the process, and how much it has given out.
//!
//! Each thread counts in a cell of its own and adds that to the common sum when it exceeds 64 KB, so counting costs a
//! few instructions and `allocated_bytes` is off by at most 64 KB x threads. What is counted is the size class that
//! jemalloc takes for a request, not the request itself.

use std::alloc::{GlobalAlloc, Layout};
use std::cell::Cell;
use std::sync::atomic::{AtomicI64, Ordering};

#[cfg(not(feature = "jemalloc"))]
type Inner = std::alloc::System;
#[cfg(feature = "jemalloc")]
type Inner = tikv_jemallocator::Jemalloc;

#[cfg(not(feature = "jemalloc"))]
const INNER: Inner = std::alloc::System;
#[cfg(feature = "jemalloc")]
const INNER: Inner = tikv_jemallocator::Jemalloc;

/// As `mem_allocator` of INFO.
#[cfg(feature = "jemalloc")]
pub const NAME: &str = "jemalloc-5.3.0";
#[cfg(not(feature = "jemalloc"))]
pub const NAME: &str = "libc";

#[global_allocator]
static GLOBAL: Counting = Counting;

/// What a thread may know alone.
const THREAD_DELTA_MAX: i64 = 64 << 10;

static ALLOCATED: AtomicI64 = AtomicI64::new(0);

thread_local! {
    static DELTA: Cell<i64> = const { Cell::new(0) };
}

/// Bytes given out and not yet returned.
pub fn allocated_bytes() -> u64 {
    ALLOCATED.load(Ordering::Relaxed).max(0) as u64
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

/// The size class of a request: 8, multiples of 16 to 128, then four steps to each doubling.
#[inline]
pub fn class_bytes(size: usize) -> usize {
    let step = match size {
        0..=8 => 8,
        9..=128 => 16,
        _ => 1usize << ((size - 1).ilog2() - 2),
    };
    size.div_ceil(step) * step
}

// SAFETY: every call goes unchanged to an allocator that keeps the contract; counting allocates nothing (the cell is
// `const` and has no destructor).
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

/// Whether freed pages go back to the kernel after some seconds, whoever sleeps then: a thread of the allocator's own sees
/// to it. Without it only threads that allocate do, and an idle server keeps what a burst has left behind.
#[cfg(feature = "jemalloc")]
pub fn return_freed_pages(by_thread: bool) -> Result<(), String> {
    // One is enough for all arenas; the default is one a CPU.
    tikv_jemalloc_ctl::max_background_threads::write(1)
        .and_then(|()| tikv_jemalloc_ctl::background_thread::write(by_thread))
        .map_err(|error| error.to_string())
}

/// The C library's allocator gives back what lies on top, by itself.
#[cfg(not(feature = "jemalloc"))]
pub fn return_freed_pages(_by_thread: bool) -> Result<(), String> {
    Ok(())
}

/// What the allocator says of itself, in bytes: what lives, the pages with something alive, and the pages that are there.
#[derive(Clone, Copy, Default, Debug)]
pub struct Figures {
    pub allocated: u64,
    pub active: u64,
    pub resident: u64,
}

#[cfg(feature = "jemalloc")]
pub fn figures() -> Figures {
    use tikv_jemalloc_ctl::{epoch, stats};
    // The figures are those of the last epoch. An allocator without statistics has none.
    let _ = epoch::advance();
    let bytes = |read: Result<usize, tikv_jemalloc_ctl::Error>| read.unwrap_or_default() as u64;
    Figures {
        allocated: bytes(stats::allocated::read()),
        active: bytes(stats::active::read()),
        resident: bytes(stats::resident::read()),
    }
}

/// The C library's allocator has no such figures.
#[cfg(not(feature = "jemalloc"))]
pub fn figures() -> Figures {
    let allocated = allocated_bytes();
    Figures { allocated, active: allocated, resident: allocated }
}

/// The allocator's own report.
#[cfg(feature = "jemalloc")]
pub fn report() -> String {
    use std::ffi::{CStr, c_char, c_void};
    extern "C" fn append(text: *mut c_void, part: *const c_char) {
        // SAFETY: `text` is the String below, which nobody else touches meanwhile; `part` ends with NUL.
        let (text, part) = unsafe { (&mut *text.cast::<String>(), CStr::from_ptr(part)) };
        text.push_str(&part.to_string_lossy());
    }
    let mut text = String::new();
    // SAFETY: the callback gets the pointer that stands beside it, and the options may be none.
    unsafe {
        tikv_jemalloc_sys::malloc_stats_print(Some(append), (&raw mut text).cast(), std::ptr::null());
    }
    text
}

#[cfg(not(feature = "jemalloc"))]
pub fn report() -> String {
    "Stats not supported for the current allocator".into()
}

/// Gives freed pages back now.
#[cfg(feature = "jemalloc")]
pub fn purge() {
    use std::ptr::null_mut;
    /// 4096 stands for all arenas (MALLCTL_ARENAS_ALL).
    const PURGE_ALL: &std::ffi::CStr = c"arena.4096.purge";
    // SAFETY: the name ends with NUL, and this control takes and gives no value.
    let result =
        unsafe { tikv_jemalloc_sys::mallctl(PURGE_ALL.as_ptr(), null_mut(), null_mut(), null_mut(), 0) };
    assert_eq!(result, 0, "jemalloc knows this control");
}

#[cfg(not(feature = "jemalloc"))]
pub fn purge() {}

/// The C library has an allocator of its own, which a thread meets while it starts. It would reserve 128 MB of addresses
/// for each to begin with; where they are limited (`ulimit -v`), nothing would be left for ours at that moment.
#[cfg(all(feature = "jemalloc", target_env = "gnu"))]
pub fn keep_libc_small() {
    // SAFETY: it only changes a setting of the C library, and no thread runs yet.
    unsafe { libc::mallopt(libc::M_ARENA_MAX, 1) };
}

#[cfg(not(all(feature = "jemalloc", target_env = "gnu")))]
pub fn keep_libc_small() {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn size_classes_are_those_of_jemalloc() {
        for (size, class) in
            [(1, 8), (9, 16), (16, 16), (17, 32), (128, 128), (129, 160), (160, 160), (161, 192), (256, 256)]
        {
            assert_eq!(class_bytes(size), class, "{size}");
        }
        for (size, class) in
            [(257, 320), (513, 640), (4097, 5120), (16 << 10, 16 << 10), ((16 << 10) + 1, 20 << 10)]
        {
            assert_eq!(class_bytes(size), class, "{size}");
        }
    }

    /// Both look at what the whole process has.
    static ALONE: std::sync::Mutex<()> = std::sync::Mutex::new(());

    #[cfg(feature = "jemalloc")]
    #[test]
    fn freed_pages_go_back() {
        let _alone = ALONE.lock();
        let resident = || {
            tikv_jemalloc_ctl::epoch::advance().unwrap();
            tikv_jemalloc_ctl::stats::resident::read().unwrap()
        };
        let blocks: Vec<Vec<u8>> = (0..8000).map(|_| vec![1; 8 << 10]).collect();
        let full = resident();
        drop(blocks);
        purge();
        assert!(resident() + (50 << 20) < full, "{} of {full} bytes are resident", resident());
        return_freed_pages(true).unwrap();
        assert!(tikv_jemalloc_ctl::background_thread::read().unwrap());
        return_freed_pages(false).unwrap();
    }

    #[test]
    fn what_is_returned_is_no_longer_counted() {
        let _alone = ALONE.lock();
        let before = allocated_bytes();
        let big = vec![1u8; 8 << 20];
        assert!(allocated_bytes() >= before + (8 << 20) - 2 * THREAD_DELTA_MAX as u64);
        drop(big);
        assert!(allocated_bytes() <= before + (4 << 20));
    }
}
