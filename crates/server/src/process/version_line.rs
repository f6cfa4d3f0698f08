//! Sources that the server was built from, and the line of `--version`.

use isotherm_stdx::crc64::crc64;
use std::ffi::OsStr;
use std::path::Path;

use isotherm_config::file::VERSION;
use isotherm_node::process::version::VALKEY_VERSION;

/// The commit that this was built from, and whether its sources differ from it ("1") or not ("0").
pub const COMMIT: &str = env!("ISOTHERM_COMMIT");
pub const CHANGED: &str = env!("ISOTHERM_CHANGED");

/// Names of files of this program that stand for Valkey's: what starts these reads the version out of its
/// line.
const THEIR_NAMES: [&str; 4] = ["valkey-server", "redis-server", "valkey-sentinel", "redis-sentinel"];

// COMPAT(server): `--version` prints Valkey's line where the file of the program is called `valkey-server`,
// `redis-server`, `valkey-sentinel` or `redis-sentinel`, with `isotherm=` and the own version at its end, and
// a line of Isotherm's under any other name. Why: scripts and test tools compare that version, and under its
// own name the program says what it is.
/// Returns the line of `--version`. `program`: as it was called.
pub fn line(program: &OsStr) -> String {
    let allocator = isotherm_allocator::name();
    let is_theirs =
        Path::new(program).file_name().is_some_and(|name| THEIR_NAMES.iter().any(|theirs| name == *theirs));
    match is_theirs {
        true => format!(
            "Valkey server v={VALKEY_VERSION} sha={COMMIT}:{CHANGED} malloc={allocator} bits={} build={:x} \
             isotherm={VERSION}\n",
            usize::BITS,
            build_id()
        ),
        false => format!("Isotherm server v={VERSION} sha={COMMIT}:{CHANGED} malloc={allocator}\n"),
    }
}

/// Returns a number that differs between builds of different sources.
fn build_id() -> u64 {
    crc64(0, format!("{VERSION} {COMMIT} {CHANGED}").as_bytes())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn under_its_names_it_says_what_valkey_says() {
        for name in ["valkey-server", "redis-server", "/usr/bin/redis-server", "../valkey-sentinel"] {
            let line = line(name.as_ref());
            let words: Vec<&str> = line.trim_end().split(' ').collect();
            let names: Vec<&str> = words.iter().map(|word| word.split('=').next().unwrap()).collect();
            assert_eq!(names, ["Valkey", "server", "v", "sha", "malloc", "bits", "build", "isotherm"]);
            assert_eq!((words[2], words[5]), ("v=9.1.2", "bits=64"));
            let build = words[6].strip_prefix("build=").unwrap();
            assert!(u64::from_str_radix(build, 16).is_ok(), "{build}");
            assert_eq!(words[7], format!("isotherm={VERSION}"));
        }
        for name in ["isotherm-server", "redis-server/isotherm-server", "my-redis-server", ""] {
            assert!(line(name.as_ref()).starts_with("Isotherm server v="), "{name}");
        }
    }
}
