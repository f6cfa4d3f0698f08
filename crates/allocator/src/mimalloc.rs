//! mimalloc. Its statistics of single requests are off in a release; what it reserved and committed it always
//! knows.

use std::ffi::{CStr, c_char, c_void};
use std::ptr::null_mut;

use libmimalloc_sys as sys;

use super::{Figures, Format};

/// Freed pages go back when a thread allocates later: under a server that rests they stay.
pub const GIVES_BACK: bool = false;

pub const INNER: ::mimalloc::MiMalloc = ::mimalloc::MiMalloc;

/// Option that opens all of an arena's memory at once. The memory then lies on huge pages, 8 MB of them under
/// an empty server; opened as it is needed, that is 0.5 MB. MIMALLOC_ARENA_EAGER_COMMIT overrides it.
#[cfg(all(target_os = "linux", target_env = "gnu"))]
const ARENA_EAGER_COMMIT: sys::mi_option_t = 4;

/// Before anything of the program or of its libraries runs, and so before the first arena. Elsewhere it is as
/// mimalloc has it.
#[cfg(all(target_os = "linux", target_env = "gnu"))]
#[used]
// SAFETY: the C library calls what is listed in this section of a program, once, before other initialisers.
#[unsafe(link_section = ".preinit_array")]
static SET_UP: extern "C" fn() = set_up;

#[cfg(all(target_os = "linux", target_env = "gnu"))]
extern "C" fn set_up() {
    // SAFETY: it changes a number in a table, and there is one thread.
    unsafe { sys::mi_option_set_default(ARENA_EAGER_COMMIT, 0) };
}

/// Returns the name for `mem_allocator` of INFO. mimalloc says 30302 for 3.3.2.
pub fn name() -> String {
    // SAFETY: it reads a constant.
    let version = unsafe { sys::mi_version() };
    format!("mimalloc-{}.{}.{}", version / 10_000, version / 100 % 100, version % 100)
}

/// The size class of a request.
#[inline]
pub fn class_bytes(size: usize) -> usize {
    // SAFETY: arithmetic on a number.
    unsafe { sys::mi_good_size(size) }
}

pub fn figures() -> Figures {
    let json = report(Format::Json);
    let current = |name: &str| current_bytes(&json, name).unwrap_or_default();
    let (reserved, committed) = (current("reserved"), current("committed"));
    // Only the counters of this process know the live bytes.
    Figures {
        allocated: super::allocated_bytes(),
        active: committed.max(super::allocated_bytes()),
        resident: committed,
        retained: reserved.saturating_sub(committed),
        metadata: 0,
    }
}

/// `"name": {"total": .., "peak": .., "current": N}`
fn current_bytes(json: &str, name: &str) -> Option<u64> {
    let (_, rest) = json.split_once(&format!("\"{name}\""))?;
    let (_, rest) = rest.split_once("\"current\"")?;
    let digits = rest.trim_start_matches([':', ' ']);
    digits[..digits.find(|c: char| !c.is_ascii_digit())?].parse().ok()
}

pub fn report(format: Format) -> String {
    extern "C" fn append(part: *const c_char, text: *mut c_void) {
        // SAFETY: `text` is the String below, which no other thread touches meanwhile; `part` ends with NUL.
        let (text, part) = unsafe { (&mut *text.cast::<String>(), CStr::from_ptr(part)) };
        text.push_str(&part.to_string_lossy());
    }
    let mut text = String::new();
    match format {
        // SAFETY: the callback gets the pointer that is passed with it.
        Format::Text => unsafe { sys::mi_stats_print_out(Some(append), (&raw mut text).cast()) },
        Format::Json => {
            // SAFETY: without a buffer it makes one, which ends with NUL and is freed here, once.
            unsafe {
                let json = sys::mi_stats_get_json(0, null_mut());
                if !json.is_null() {
                    text = CStr::from_ptr(json).to_string_lossy().into_owned();
                    sys::mi_free(json.cast());
                }
            }
        }
    }
    text
}

/// Gives freed pages back now.
pub fn purge() {
    // SAFETY: it frees what is unused.
    unsafe { sys::mi_collect(true) };
}

/// Does nothing: mimalloc returns freed pages by itself after a moment, when a thread allocates.
pub fn return_freed_pages(_by_thread: bool) -> Result<(), String> {
    Ok(())
}

/// The C library has an allocator of its own, which a thread meets while it starts. It would reserve 128 MB
/// of addresses for each to begin with; where they are limited (`ulimit -v`), nothing would be left for ours
/// at that moment.
pub fn keep_libc_small() {
    // SAFETY: it only changes a setting of the C library, and no thread runs yet.
    #[cfg(target_env = "gnu")]
    unsafe {
        libc::mallopt(libc::M_ARENA_MAX, 1)
    };
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_field_is_found_in_its_report() {
        let json = r#"{ "pages": {"total": 1, "peak": 2, "current": 3 }, "reserved": { "total": 9, "peak": 8, "current": 7 } }"#;
        assert_eq!(current_bytes(json, "reserved"), Some(7));
        assert_eq!(current_bytes(json, "purged"), None);
    }
}
