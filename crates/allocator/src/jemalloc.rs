//! jemalloc, under the names of the C library: whatever the process allocates is counted by it, and
//! `MALLOC_CONF` is read.

mod classes;
mod conf;
mod control;
mod profile;

use std::ffi::{CStr, c_char, c_void};

use tikv_jemalloc_ctl::{epoch, stats};

use super::{Figures, Format};
use control::{ALL_ARENAS, call, read, write};

pub use classes::{class_uses, classes, lock_waits};
pub use conf::{complaints, options, set_decay};
pub use profile::{dump_profile, profile};

/// Freed pages go back by themselves, whether threads allocate or not.
pub const GIVES_BACK: bool = true;

pub const INNER: tikv_jemallocator::Jemalloc = tikv_jemallocator::Jemalloc;

/// Returns the name for `mem_allocator` of INFO: jemalloc says "5.3.1-0-g81034ce1f137...".
pub fn name() -> String {
    let version = tikv_jemalloc_ctl::version::read().unwrap_or_default();
    format!("jemalloc-{}", version.split('-').next().unwrap_or_default())
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

/// Sets whether freed pages go back to the kernel after some seconds even if threads sleep: a thread of the
/// allocator's own does it. Without it only threads that allocate do, and an idle server keeps the memory of
/// a burst.
pub fn return_freed_pages(by_thread: bool) -> Result<(), String> {
    // One is enough for all arenas; the default is one a CPU.
    tikv_jemalloc_ctl::max_background_threads::write(1)
        .and_then(|()| tikv_jemalloc_ctl::background_thread::write(by_thread))
        .map_err(|error| error.to_string())
}

pub fn figures() -> Figures {
    // The figures are those of the last epoch. An allocator without statistics has none.
    let _ = epoch::advance();
    let bytes = |read: Result<usize, tikv_jemalloc_ctl::Error>| read.unwrap_or_default() as u64;
    Figures {
        allocated: bytes(stats::allocated::read()),
        active: bytes(stats::active::read()),
        resident: bytes(stats::resident::read()),
        retained: bytes(stats::retained::read()),
        metadata: bytes(stats::metadata::read()),
    }
}

/// The allocator's own report, and below its text the classes that hold something.
pub fn report(format: Format) -> String {
    extern "C" fn append(text: *mut c_void, part: *const c_char) {
        // SAFETY: `text` is the String below, which no other thread touches meanwhile; `part` ends with NUL.
        let (text, part) = unsafe { (&mut *text.cast::<String>(), CStr::from_ptr(part)) };
        text.push_str(&part.to_string_lossy());
    }
    let options = match format {
        Format::Text => c"",
        Format::Json => c"J",
    };
    let mut text = String::new();
    // SAFETY: the callback gets the pointer that is passed with it; the options end with NUL.
    unsafe {
        tikv_jemalloc_sys::malloc_stats_print(Some(append), (&raw mut text).cast(), options.as_ptr());
    }
    if format == Format::Text {
        text.push_str(&classes::class_table());
    }
    text
}

/// Gives freed pages back now.
pub fn purge() {
    call(&format!("arena.{ALL_ARENAS}.purge")).expect("jemalloc knows this control");
}

/// Does nothing: no requests are left for the C library's own allocator.
pub fn keep_libc_small() {}

/// Lets this thread allocate from an arena that no other thread has.
pub fn own_arena() -> Result<(), String> {
    let arena: u32 = read("arenas.create").ok_or("jemalloc has no arena left")?;
    write("thread.arena", arena).map_err(|_| format!("jemalloc refused arena {arena}"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tests::ALONE;

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
        for class in 0..read::<u32>("arenas.nbins").unwrap() {
            let size = read::<usize>(&format!("arenas.bin.{class}.size")).unwrap();
            assert_eq!(class_bytes(size), size);
        }
    }

    #[test]
    fn freed_pages_go_back() {
        let _alone = ALONE.lock();
        let blocks: Vec<Vec<u8>> = (0..8000).map(|_| vec![1; 8 << 10]).collect();
        let full = figures().resident;
        drop(blocks);
        purge();
        let resident = figures().resident;
        assert!(resident + (50 << 20) < full, "{resident} of {full} bytes are resident");
        return_freed_pages(true).unwrap();
        assert!(tikv_jemalloc_ctl::background_thread::read().unwrap());
        return_freed_pages(false).unwrap();
    }

    #[test]
    fn a_thread_has_an_arena_of_its_own() {
        let arenas = || read::<u32>("arenas.narenas").unwrap();
        let before = arenas();
        std::thread::spawn(|| own_arena().unwrap()).join().unwrap();
        assert_eq!(arenas(), before + 1);
        assert!(lock_waits().is_some() && classes().iter().any(|class| class.size_bytes == 640));
    }

    #[test]
    fn the_c_library_allocates_here_too() {
        let _alone = ALONE.lock();
        let before = figures().allocated;
        // SAFETY: what is taken is given back, and not used between.
        let block = std::hint::black_box(unsafe { libc::malloc(64 << 20) });
        assert!(!block.is_null() && figures().allocated >= before + (48 << 20));
        // SAFETY: from malloc, once.
        unsafe { libc::free(block) };
    }
}
