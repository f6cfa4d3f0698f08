//! Profile of memory: a sample of the allocations that live, with their stacks, for jemalloc's own `jeprof`.
//!
//! A profile takes a build with the feature `profiling`, and `prof:true` among the options at start, which
//! such a build has by itself (inactive: no allocation is sampled until it is switched on). Memory that was
//! allocated before is not in the sample.

use std::ffi::CString;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use super::control::{is_on, write};
use crate::ProfileError;

/// The options of a build for profiling. Read by jemalloc before /etc/malloc.conf and MALLOC_CONF, whose word
/// is the last.
#[cfg(feature = "profiling")]
mod at_start {
    #[repr(transparent)]
    pub struct Conf(*const std::ffi::c_char);
    // SAFETY: what it points at never changes.
    unsafe impl Sync for Conf {}

    // SAFETY: jemalloc declares a weak pointer of this name, which this one replaces.
    #[unsafe(export_name = "malloc_conf")]
    pub static CONF: Conf = Conf(c"prof:true,prof_active:false".as_ptr());
}

fn check() -> Result<(), ProfileError> {
    match (is_on("config.prof"), is_on("opt.prof")) {
        (false, _) => Err(ProfileError::NotBuilt),
        (true, false) => Err(ProfileError::Off),
        (true, true) => Ok(()),
    }
}

/// Starts or ends the sampling of allocations.
pub fn profile(on: bool) -> Result<(), ProfileError> {
    check()?;
    write("prof.active", on).map_err(|_| ProfileError::Failed)
}

/// Writes the sample to a file.
pub fn dump_profile(file: &Path) -> Result<(), ProfileError> {
    check()?;
    let name = CString::new(file.as_os_str().as_bytes()).map_err(|_| ProfileError::Failed)?;
    write("prof.dump", name.as_ptr()).map_err(|_| ProfileError::Failed)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_profile_is_written_or_it_is_said_why_not() {
        let file = std::env::temp_dir().join(format!("isotherm-profile-{}.heap", std::process::id()));
        if !cfg!(feature = "profiling") {
            assert_eq!(profile(true), Err(ProfileError::NotBuilt));
            assert_eq!(dump_profile(&file), Err(ProfileError::NotBuilt));
            return;
        }
        profile(true).unwrap();
        let kept: Vec<Vec<u8>> = (0..64).map(|_| vec![1; 1 << 20]).collect();
        dump_profile(&file).unwrap();
        profile(false).unwrap();
        drop(kept);
        assert!(std::fs::read_to_string(&file).unwrap().starts_with("heap_v2/"));
        std::fs::remove_file(&file).unwrap();
        assert_eq!(dump_profile(Path::new("/nowhere/at/all.heap")), Err(ProfileError::Failed));
    }
}
