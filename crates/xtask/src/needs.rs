//! Programs that builds call besides Rust's own: a missing one is named before anything is compiled.

use crate::{Fallible, place};

/// A program that a dependency's build calls, why, and how to get it. Asked for before the build, by name.
struct Need {
    program: &'static str,
    wanted_by: &'static str,
    install: &'static str,
}

const BUILD_NEEDS: [Need; 2] = [
    Need { program: "cc", wanted_by: "Rust's linker and jemalloc", install: "apt-get install gcc" },
    Need { program: "make", wanted_by: "jemalloc's build", install: "apt-get install make" },
];

/// Fails with one line that names everything that is missing.
pub fn check() -> Fallible {
    missing(|program| place::in_path(program).is_some())
}

fn missing(present: impl Fn(&str) -> bool) -> Fallible {
    let lines: Vec<String> = BUILD_NEEDS
        .iter()
        .filter(|need| !present(need.program))
        .map(|need| format!("`{}` is missing ({} needs it): {}", need.program, need.wanted_by, need.install))
        .collect();
    if lines.is_empty() { Ok(()) } else { Err(lines.join("; ")) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_missing_program_is_asked_for_by_name_in_one_line() {
        let why = missing(|program| program != "make").unwrap_err();
        assert_eq!(why, "`make` is missing (jemalloc's build needs it): apt-get install make");
        assert_eq!(missing(|_| true), Ok(()));
    }
}
