//! The options of jemalloc: read once before `main` (`MALLOC_CONF` among others), and what can be set later.
//!
//! ```text
//!   .preinit_array: listen()   jemalloc starts: reads its options,    main: complaints()
//!                              says what it does not understand  -->  the log has them, once
//! ```
//! jemalloc would write its complaints to standard error, which a log does not have. They are kept here until
//! they are read.

use std::ffi::{CStr, c_char, c_void};
use std::sync::{Mutex, PoisonError};

use super::control::{is_on, read, write};
use crate::{Decay, Options};

const KEPT_BYTES_MAX: usize = 4 << 10;

struct Kept {
    bytes: [u8; KEPT_BYTES_MAX],
    len: usize,
}

static KEPT: Mutex<Kept> = Mutex::new(Kept { bytes: [0; KEPT_BYTES_MAX], len: 0 });

/// Before anything of the program or of its libraries runs. Where there is no such list of functions,
/// jemalloc writes to standard error as it always does.
#[cfg(all(target_os = "linux", target_env = "gnu"))]
#[used]
// SAFETY: the C library calls what is listed in this section of a program, once, before other initialisers.
#[unsafe(link_section = ".preinit_array")]
static LISTEN: extern "C" fn() = listen;

#[cfg(all(target_os = "linux", target_env = "gnu"))]
extern "C" fn listen() {
    // SAFETY: there is one thread, and jemalloc has not started.
    unsafe { tikv_jemalloc_sys::malloc_message = Some(keep) };
}

/// Allocates nothing: jemalloc is in the middle of its start.
extern "C" fn keep(_: *mut c_void, part: *const c_char) {
    // SAFETY: what jemalloc says ends with NUL.
    let part = unsafe { CStr::from_ptr(part) }.to_bytes();
    let mut kept = KEPT.lock().unwrap_or_else(PoisonError::into_inner);
    let len = kept.len;
    let taken = part.len().min(KEPT_BYTES_MAX - len);
    kept.bytes[len..len + taken].copy_from_slice(&part[..taken]);
    kept.len += taken;
    // It will not be read: with `abort_conf:true` this is its last output.
    if part.windows(11).any(|words| words == b"Abort (abor") {
        // SAFETY: the bytes are there.
        unsafe { libc::write(libc::STDERR_FILENO, kept.bytes.as_ptr().cast(), kept.len) };
    }
}

/// Returns the messages of jemalloc's start, a line each, without repetitions: it reads its options twice,
/// and says some things twice. From now on it writes to standard error.
pub fn complaints() -> Vec<String> {
    // SAFETY: a word is replaced by another that is valid too, for any reader meanwhile.
    unsafe { tikv_jemalloc_sys::malloc_message = None };
    let mut kept = KEPT.lock().unwrap_or_else(PoisonError::into_inner);
    let text = String::from_utf8_lossy(&kept.bytes[..kept.len]).into_owned();
    kept.len = 0;
    let mut said: Vec<String> = Vec::new();
    for line in text.lines().map(|line| line.trim_start_matches("<jemalloc>: ")) {
        if !said.iter().any(|known| known == line) {
            said.push(line.to_string());
        }
    }
    said
}

/// The options in force.
pub fn options() -> Option<Options> {
    let ms = |name: &str| read::<isize>(name).map_or(0, |ms| ms as i64);
    Some(Options {
        narenas: read("opt.narenas").unwrap_or(0),
        tcache: is_on("opt.tcache"),
        tcache_max_bytes: read("arenas.tcache_max").unwrap_or(0),
        dirty_decay_ms: ms("arenas.dirty_decay_ms"),
        muzzy_decay_ms: ms("arenas.muzzy_decay_ms"),
        background_thread: is_on("background_thread"),
        profiling: is_on("opt.prof"),
    })
}

/// Sets how long freed pages stay, in the existing arenas and in new ones. -1: without limit.
pub fn set_decay(decay: Decay, ms: i64) -> Result<(), String> {
    let name = match decay {
        Decay::Dirty => "dirty_decay_ms",
        Decay::Muzzy => "muzzy_decay_ms",
    };
    let refused = |_| format!("jemalloc does not take {ms} ms");
    write(&format!("arenas.{name}"), ms as isize).map_err(refused)?;
    for arena in 0..read::<u32>("arenas.narenas").unwrap_or(0) {
        if is_on(&format!("arena.{arena}.initialized")) {
            write(&format!("arena.{arena}.{name}"), ms as isize).map_err(refused)?;
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tests::ALONE;

    #[test]
    fn decay_times_are_those_that_were_set() {
        let _alone = ALONE.lock();
        let before = options().unwrap();
        assert!(before.narenas > 0 && before.tcache && before.tcache_max_bytes >= 1024, "{before:?}");
        set_decay(Decay::Dirty, 1234).unwrap();
        set_decay(Decay::Muzzy, -1).unwrap();
        let after = options().unwrap();
        assert_eq!((after.dirty_decay_ms, after.muzzy_decay_ms), (1234, -1));
        assert_eq!(read::<isize>("arena.0.dirty_decay_ms"), Some(1234));
        assert!(set_decay(Decay::Dirty, -2).is_err());
        set_decay(Decay::Dirty, before.dirty_decay_ms).unwrap();
        set_decay(Decay::Muzzy, before.muzzy_decay_ms).unwrap();
    }

    #[test]
    fn what_is_said_while_it_starts_is_kept_until_it_is_asked_for() {
        complaints();
        let say = |text: &CStr| keep(std::ptr::null_mut(), text.as_ptr());
        say(c"<jemalloc>: Invalid conf pair: ");
        say(c"a:1\n<jemalloc>: Invalid conf value: b:2\n");
        assert_eq!(complaints(), ["Invalid conf pair: a:1", "Invalid conf value: b:2"]);
        assert!(complaints().is_empty());
        say(c"<jemalloc>: twice\n<jemalloc>: twice\n");
        assert_eq!(complaints(), ["twice"]);
        let long = std::ffi::CString::new("x".repeat(KEPT_BYTES_MAX)).unwrap();
        say(&long);
        say(&long);
        assert_eq!(complaints()[0].len(), KEPT_BYTES_MAX);
    }
}
