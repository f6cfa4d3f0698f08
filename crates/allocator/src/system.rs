//! The C library's allocator.
//!
//! glibc writes 8 B before each block and gives out multiples of 16, 32 at least; from 128 KB on (the limit
//! moves up with use) a block is mapped by itself, in whole pages. Other C libraries report nothing: there
//! the counters of this process do.

use super::{Figures, Format};
use std::cell::Cell;
use std::sync::atomic::{AtomicU32, Ordering};

/// Below 128 KB, from where on a block is mapped by itself, and enough for `free` to trim (64 KB).
const TRIMMING_BLOCK_BYTES: usize = 96 << 10;

static PURGES: AtomicU32 = AtomicU32::new(0);

thread_local! {
    static SEEN_PURGES: Cell<u32> = const { Cell::new(0) };
}

/// Only what lies on top of a heap goes back.
pub const GIVES_BACK: bool = false;

pub const INNER: std::alloc::System = std::alloc::System;

/// Returns the name for `mem_allocator` of INFO.
pub fn name() -> String {
    "libc".to_string()
}

/// Returns the bytes that a block takes: `malloc_usable_size` and the 8 bytes before it.
#[inline]
pub fn class_bytes(size: usize) -> usize {
    (size + 8).next_multiple_of(16).max(32)
}

#[cfg(target_env = "gnu")]
fn info() -> libc::mallinfo2 {
    // SAFETY: it only reads the allocator's counters, under their locks.
    unsafe { libc::mallinfo2() }
}

#[cfg(target_env = "gnu")]
pub fn figures() -> Figures {
    let info = info();
    let (heaps, mapped, used) = (info.arena as u64, info.hblkhd as u64, info.uordblks as u64);
    // It does not say which part of a trimmed heap is no longer in memory.
    Figures {
        allocated: used + mapped,
        active: heaps + mapped,
        resident: heaps + mapped,
        retained: 0,
        metadata: 0,
    }
}

#[cfg(not(target_env = "gnu"))]
pub fn figures() -> Figures {
    let allocated = super::allocated_bytes();
    Figures { allocated, active: allocated, resident: allocated, ..Figures::default() }
}

#[cfg(target_env = "gnu")]
fn fields() -> Vec<(&'static str, usize)> {
    let info = info();
    vec![
        ("heap_bytes", info.arena),
        ("heap_used_bytes", info.uordblks),
        ("heap_free_bytes", info.fordblks),
        ("heap_free_blocks", info.ordblks),
        ("heap_top_bytes", info.keepcost),
        ("fast_free_blocks", info.smblks),
        ("fast_free_bytes", info.fsmblks),
        ("mapped_blocks", info.hblks),
        ("mapped_bytes", info.hblkhd),
    ]
}

#[cfg(not(target_env = "gnu"))]
fn fields() -> Vec<(&'static str, usize)> {
    vec![("allocated_bytes", super::allocated_bytes() as usize)]
}

pub fn report(format: Format) -> String {
    let lines = fields().into_iter();
    match format {
        Format::Text => {
            let lines = lines.map(|(name, value)| format!("{name}: {value}\n"));
            "___ The C library's allocator ___\n".to_string() + &lines.collect::<String>()
        }
        Format::Json => {
            let parts: Vec<String> = lines.map(|(name, value)| format!("\"{name}\": {value}")).collect();
            format!("{{{}}}", parts.join(", "))
        }
    }
}

/// Gives freed pages back now; what lies on top of other threads' heaps goes when they come to `release_top`.
pub fn purge() {
    PURGES.fetch_add(1, Ordering::Relaxed);
    #[cfg(target_env = "gnu")]
    // SAFETY: it frees what is unused.
    unsafe {
        libc::malloc_trim(0)
    };
}

/// Gives back what is free on top of this thread's heap, once after each `purge`. glibc's `malloc_trim`
/// leaves that part; it goes back when the thread itself frees a block that, with its free neighbours, has 64
/// KB.
pub fn release_top() {
    let purges = PURGES.load(Ordering::Relaxed);
    if SEEN_PURGES.replace(purges) != purges {
        // SAFETY: a block that is asked for and freed; `free` bears a null.
        unsafe { libc::free(std::hint::black_box(libc::malloc(TRIMMING_BLOCK_BYTES))) };
    }
}

/// Does nothing: the C library gives back memory at the top of the heap by itself.
pub fn return_freed_pages(_by_thread: bool) -> Result<(), String> {
    Ok(())
}

/// Does nothing: the C library's allocator is the one in use, and its arenas may grow.
pub fn keep_libc_small() {}

#[cfg(all(test, target_env = "gnu"))]
mod tests {
    use super::*;

    #[test]
    fn a_block_takes_what_its_class_says() {
        for size in [1, 8, 24, 25, 40, 41, 1000, 4000, 100_000] {
            // SAFETY: a block that is asked for its length and freed.
            let usable = unsafe {
                let block = libc::malloc(size);
                let usable = libc::malloc_usable_size(block);
                libc::free(block);
                usable
            };
            assert_eq!(class_bytes(size), usable + 8, "{size}");
        }
    }
}
