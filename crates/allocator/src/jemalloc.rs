//! jemalloc, under the names of the C library: whatever the process allocates is in its books, and `MALLOC_CONF` is read.
//!
//! A control is a name and a value (`mallctl`); those of one size class are read one by one into a table.

use std::ffi::{CStr, CString, c_char, c_void};
use std::fmt::Write as _;
use std::ptr::null_mut;

use tikv_jemalloc_ctl::{epoch, stats};

use super::{Class, Figures, Format};

pub const INNER: tikv_jemallocator::Jemalloc = tikv_jemallocator::Jemalloc;

/// Stands for all arenas together in the name of a control (MALLCTL_ARENAS_ALL).
const ALL_ARENAS: u32 = 4096;

/// As `mem_allocator` of INFO: jemalloc says "5.3.1-0-g81034ce1f137...".
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

/// Whether freed pages go back to the kernel after some seconds, whoever sleeps then: a thread of the allocator's own sees
/// to it. Without it only threads that allocate do, and an idle server keeps what a burst has left behind.
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
        // SAFETY: `text` is the String below, which nobody else touches meanwhile; `part` ends with NUL.
        let (text, part) = unsafe { (&mut *text.cast::<String>(), CStr::from_ptr(part)) };
        text.push_str(&part.to_string_lossy());
    }
    let options = match format {
        Format::Text => c"",
        Format::Json => c"J",
    };
    let mut text = String::new();
    // SAFETY: the callback gets the pointer that stands beside it; the options end with NUL.
    unsafe {
        tikv_jemalloc_sys::malloc_stats_print(Some(append), (&raw mut text).cast(), options.as_ptr());
    }
    if format == Format::Text {
        text.push_str(&class_table());
    }
    text
}

/// Gives freed pages back now.
pub fn purge() {
    let name = control_name(&format!("arena.{ALL_ARENAS}.purge"));
    // SAFETY: the name ends with NUL, and this control takes and gives no value.
    let result = unsafe { tikv_jemalloc_sys::mallctl(name.as_ptr(), null_mut(), null_mut(), null_mut(), 0) };
    assert_eq!(result, 0, "jemalloc knows this control");
}

/// Nothing is left for the C library's own allocator.
pub fn keep_libc_small() {}

/// The small classes: what is larger is a multiple of pages by itself.
pub fn classes() -> Vec<Class> {
    let class = |number: u32| {
        Some(Class {
            size_bytes: read_usize(&format!("arenas.bin.{number}.size"))?,
            slab_bytes: read_usize(&format!("arenas.bin.{number}.slab_size"))?,
        })
    };
    (0..read_u32("arenas.nbins").unwrap_or(0)).filter_map(class).collect()
}

/// From now on this thread allocates from an arena that no other thread has.
pub fn own_arena() -> Result<(), String> {
    let arena = read_u32("arenas.create").ok_or("jemalloc has no arena left")?;
    let (name, mut arena) = (control_name("thread.arena"), arena);
    // SAFETY: the value has the size that is told beside it.
    let result = unsafe {
        tikv_jemalloc_sys::mallctl(
            name.as_ptr(),
            null_mut(),
            null_mut(),
            (&raw mut arena).cast(),
            size_of::<u32>(),
        )
    };
    if result == 0 { Ok(()) } else { Err(format!("jemalloc refused arena {arena}")) }
}

/// How often a thread has waited for a lock of the allocator.
pub fn lock_waits() -> Option<u64> {
    let _ = epoch::advance();
    let of = |name: String| read_u64(&format!("stats.arenas.{ALL_ARENAS}.{name}.num_wait")).unwrap_or(0);
    let locks = ["large", "extent_avail", "extents_dirty", "extents_muzzy", "extents_retained"];
    let more = ["decay_dirty", "decay_muzzy", "base", "tcache_list"];
    let arenas: u64 = locks.iter().chain(&more).map(|lock| of(format!("mutexes.{lock}"))).sum();
    let bins = read_u32("arenas.nbins").unwrap_or(0);
    Some(arenas + (0..bins).map(|bin| of(format!("bins.{bin}.mutex"))).sum::<u64>())
}

/// What each small class holds in all arenas: a line a class in use.
fn class_table() -> String {
    let _ = epoch::advance();
    let mut text = String::from(
        "--- Size classes in use ---\n    size  regions  allocated_bytes      live    slabs  nonfull  used%      fills    flushes  lock_waits\n",
    );
    for class in 0..read_u32("arenas.nbins").unwrap_or(0) {
        // A control that this jemalloc does not have ends the table rather than telling zeros.
        let Some(line) = class_line(class) else { break };
        text.push_str(&line);
    }
    text
}

fn class_line(class: u32) -> Option<String> {
    let size = read_usize(&format!("arenas.bin.{class}.size"))?;
    let regions = u64::from(read_u32(&format!("arenas.bin.{class}.nregs"))?);
    let of = |field: &str| format!("stats.arenas.{ALL_ARENAS}.bins.{class}.{field}");
    let (live, slabs) = (read_usize(&of("curregs"))? as u64, read_usize(&of("curslabs"))? as u64);
    let nonfull = read_usize(&of("nonfull_slabs"))?;
    let (fills, flushes) = (read_u64(&of("nfills"))?, read_u64(&of("nflushes"))?);
    let waits = read_u64(&of("mutex.num_wait"))?;
    if slabs == 0 {
        return Some(String::new());
    }
    let mut line = String::new();
    let (allocated, used) = (live * size as u64, live as f64 * 100.0 / (slabs * regions) as f64);
    let _ = writeln!(
        line,
        "{size:8} {regions:8} {allocated:16} {live:9} {slabs:8} {nonfull:8} {used:6.1} {fills:10} {flushes:10} {waits:11}"
    );
    Some(line)
}

fn control_name(name: &str) -> CString {
    CString::new(name).expect("no control has a NUL in its name")
}

/// Reads a control of type `$kind`; nothing if there is none of this name and size.
macro_rules! reader {
    ($function:ident, $kind:ty) => {
        fn $function(name: &str) -> Option<$kind> {
            let name = control_name(name);
            let (mut value, mut size): ($kind, usize) = (0, size_of::<$kind>());
            // SAFETY: the value has the size that is told beside it, and jemalloc compares that with its own.
            let result = unsafe {
                tikv_jemalloc_sys::mallctl(
                    name.as_ptr(),
                    (&raw mut value).cast(),
                    &raw mut size,
                    null_mut(),
                    0,
                )
            };
            (result == 0).then_some(value)
        }
    };
}

reader!(read_u32, u32);
reader!(read_u64, u64);
reader!(read_usize, usize);

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
        for class in 0..read_u32("arenas.nbins").unwrap() {
            let size = read_usize(&format!("arenas.bin.{class}.size")).unwrap();
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
    fn a_class_in_use_is_told() {
        let _alone = ALONE.lock();
        let blocks: Vec<Vec<u8>> = (0..1000).map(|_| vec![1; 640]).collect();
        epoch::advance().unwrap();
        let line = class_line(
            (0..).find(|class| read_usize(&format!("arenas.bin.{class}.size")) == Some(640)).unwrap(),
        );
        let fields: Vec<u64> =
            line.unwrap().split_whitespace().filter_map(|word| word.parse().ok()).collect();
        assert!(fields[0] == 640 && fields[3] >= 1000 && fields[2] == 640 * fields[3], "{fields:?}");
        drop(blocks);
    }

    #[test]
    fn a_thread_has_an_arena_of_its_own() {
        let arenas = || read_u32("arenas.narenas").unwrap();
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
