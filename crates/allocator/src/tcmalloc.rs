//! gperftools' tcmalloc, the small library (`libtcmalloc_minimal`) of the system's packages: document 2's
//! own.
//!
//! tcmalloc takes the C library's names when linked, so all of the process is counted by it. `tc_nallocx`
//! says which class a request falls into; the rest are numbers by name, and one text.

use std::alloc::{GlobalAlloc, Layout};
use std::ffi::{CStr, c_char, c_int, c_void};
use std::fmt::Write as _;

use super::{Figures, Format};

unsafe extern "C" {
    fn tc_malloc(size: usize) -> *mut c_void;
    fn tc_calloc(count: usize, size: usize) -> *mut c_void;
    fn tc_memalign(align: usize, size: usize) -> *mut c_void;
    fn tc_realloc(block: *mut c_void, size: usize) -> *mut c_void;
    fn tc_free(block: *mut c_void);
    fn tc_nallocx(size: usize, flags: c_int) -> usize;
    fn tc_version(major: *mut c_int, minor: *mut c_int, patch: *mut *const c_char) -> *const c_char;
    fn MallocExtension_GetNumericProperty(name: *const c_char, value: *mut usize) -> c_int;
    fn MallocExtension_GetStats(buffer: *mut c_char, length: c_int);
    fn MallocExtension_ReleaseFreeMemory();
}

/// Freed pages return to the system step by step, while others are freed.
pub const GIVES_BACK: bool = false;

pub const INNER: Tcmalloc = Tcmalloc;

pub struct Tcmalloc;

/// Alignment of every block of at least this size.
const ALIGN_BYTES: usize = 16;

/// Returns whether a plain request is aligned enough: blocks below 16 B are aligned to 8.
#[inline]
fn is_plain(layout: Layout) -> bool {
    layout.align() <= 8 || (layout.align() <= ALIGN_BYTES && layout.size() >= ALIGN_BYTES)
}

// SAFETY: each call goes to the function of the C face that does the same; alignment is asked for where a
// plain block would not have it, and blocks of both kinds are freed by the same function.
unsafe impl GlobalAlloc for Tcmalloc {
    #[inline]
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        // SAFETY: sizes are not 0, alignments are powers of two (`Layout`).
        let block = unsafe {
            if is_plain(layout) {
                tc_malloc(layout.size())
            } else {
                tc_memalign(layout.align(), layout.size())
            }
        };
        block.cast()
    }

    #[inline]
    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        if is_plain(layout) {
            // SAFETY: as above.
            return unsafe { tc_calloc(1, layout.size()) }.cast();
        }
        // SAFETY: as above; the block is as long as the layout says.
        unsafe {
            let block = self.alloc(layout);
            if !block.is_null() {
                block.write_bytes(0, layout.size());
            }
            block
        }
    }

    #[inline]
    unsafe fn dealloc(&self, block: *mut u8, _: Layout) {
        // SAFETY: the block is from here, and the caller's no longer.
        unsafe { tc_free(block.cast()) }
    }

    #[inline]
    unsafe fn realloc(&self, block: *mut u8, layout: Layout, new_size: usize) -> *mut u8 {
        // SAFETY: the caller promises a size that a layout can have.
        let new_layout = unsafe { Layout::from_size_align_unchecked(new_size, layout.align()) };
        if is_plain(new_layout) {
            // SAFETY: the block is from here.
            return unsafe { tc_realloc(block.cast(), new_size) }.cast();
        }
        // SAFETY: two blocks, both at least as long as what is copied.
        unsafe {
            let moved = self.alloc(new_layout);
            if !moved.is_null() {
                std::ptr::copy_nonoverlapping(block, moved, layout.size().min(new_size));
                self.dealloc(block, layout);
            }
            moved
        }
    }
}

/// Returns the name for `mem_allocator` of INFO.
pub fn name() -> String {
    let (mut major, mut minor, mut patch) = (0, 0, std::ptr::null());
    // SAFETY: it writes two numbers and the address of a constant text.
    unsafe { tc_version(&mut major, &mut minor, &mut patch) };
    format!("tcmalloc-{major}.{minor}")
}

/// The size class of a request.
#[inline]
pub fn class_bytes(size: usize) -> usize {
    // SAFETY: arithmetic on a number.
    unsafe { tc_nallocx(size.max(1), 0) }
}

fn property(name: &CStr) -> u64 {
    let mut value = 0;
    // SAFETY: the name ends with NUL; the value is written only where the name is known.
    let known = unsafe { MallocExtension_GetNumericProperty(name.as_ptr(), &mut value) };
    if known == 0 { 0 } else { value as u64 }
}

pub fn figures() -> Figures {
    let (heap, unmapped) = (property(c"generic.heap_size"), property(c"tcmalloc.pageheap_unmapped_bytes"));
    let resident = property(c"generic.total_physical_bytes");
    Figures {
        allocated: property(c"generic.current_allocated_bytes"),
        active: heap.saturating_sub(unmapped + property(c"tcmalloc.pageheap_free_bytes")),
        resident,
        retained: unmapped,
        metadata: resident.saturating_sub(heap.saturating_sub(unmapped)),
    }
}

/// More than its text ever has.
const REPORT_BYTES_MAX: usize = 16 << 10;

pub fn report(format: Format) -> String {
    match format {
        Format::Text => {
            let mut buffer = vec![0u8; REPORT_BYTES_MAX];
            // SAFETY: it writes at most the length that is passed, and ends with NUL.
            unsafe { MallocExtension_GetStats(buffer.as_mut_ptr().cast(), REPORT_BYTES_MAX as c_int) };
            let text = CStr::from_bytes_until_nul(&buffer).unwrap_or_default();
            text.to_string_lossy().into_owned()
        }
        Format::Json => {
            const NAMES: [&CStr; 9] = [
                c"generic.current_allocated_bytes",
                c"generic.heap_size",
                c"generic.total_physical_bytes",
                c"tcmalloc.pageheap_free_bytes",
                c"tcmalloc.pageheap_unmapped_bytes",
                c"tcmalloc.central_cache_free_bytes",
                c"tcmalloc.transfer_cache_free_bytes",
                c"tcmalloc.thread_cache_free_bytes",
                c"tcmalloc.max_total_thread_cache_bytes",
            ];
            let mut text = String::from("{");
            for name in NAMES {
                let comma = if text.len() > 1 { ", " } else { "" };
                let _ = write!(text, "{comma}\"{}\": {}", name.to_string_lossy(), property(name));
            }
            text + "}"
        }
    }
}

/// Gives freed pages back now.
pub fn purge() {
    // SAFETY: it frees what is unused.
    unsafe { MallocExtension_ReleaseFreeMemory() };
}

/// Does nothing: tcmalloc returns freed pages by itself, one for each fixed number of freed pages.
pub fn return_freed_pages(_by_thread: bool) -> Result<(), String> {
    Ok(())
}

/// Does nothing: no requests are left for the C library's own allocator.
pub fn keep_libc_small() {}
