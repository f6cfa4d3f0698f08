//! `unsafe` lives in few rooms, and what a crate must not know does not stand in its code.
//!
//! The compiler denies `unsafe` in the whole workspace, but an `#[allow]` is quickly written; this list is
//! where it is decided.

use super::{File, Finding, code_lines};

/// A path that begins with one of these may hold `unsafe`.
const ROOMS: [&str; 6] = [
    "crates/allocator/",
    "crates/arena/",
    "crates/disk/src/ring.rs",
    "crates/keyspace/src/layout/heap.rs",
    "crates/reactor/src/sys",
    "crates/script/src/lua/",
];

/// Names that must not stand in the code of a crate: its absence, as words.
const ABSENT: [(&str, &[&str]); 9] = [
    ("crates/stdx/src/", &["SystemTime::now", "Instant::now", "std::net", "std::fs"]),
    ("crates/arena/src/", &["SystemTime::now", "Instant::now", "std::net"]),
    ("crates/disk/src/", &["SystemTime::now", "Instant::now", "std::net", "std::thread"]),
    ("crates/resp/src/", &["SystemTime::now", "Instant::now", "std::net", "std::fs", "std::thread"]),
    ("crates/script/src/", &["SystemTime::now", "Instant::now", "std::net", "std::fs", "std::thread"]),
    ("crates/keyspace/src/", &["SystemTime::now", "Instant::now", "std::net", "std::fs", "thread_rng"]),
    ("crates/cluster/src/", &["SystemTime::now", "Instant::now", "std::net::Tcp", "std::fs", "std::thread"]),
    ("crates/log/src/", &["SystemTime::now", "Instant::now", "std::net", "std::fs", "std::thread"]),
    ("crates/commands/src/", &["SystemTime::now", "Instant::now", "std::net", "std::fs", "thread_rng"]),
];

pub fn check(files: &[File]) -> Vec<Finding> {
    files
        .iter()
        .filter(|file| file.path.starts_with("crates/") && file.path.ends_with(".rs"))
        .flat_map(check_file)
        .collect()
}

fn check_file(file: &File) -> Vec<Finding> {
    let mut findings = Vec::new();
    let in_room = ROOMS.iter().any(|room| file.path.starts_with(room));
    let test = file.path.ends_with("tests.rs");
    for (line, code) in code_lines(&file.text) {
        let mut found = |what: String| findings.push(Finding { path: file.path.clone(), line, what });
        if !in_room && uses_unsafe(code) {
            found("`unsafe` outside the rooms that tidy lists".to_string());
        }
        for (folder, words) in ABSENT.iter().filter(|(folder, _)| file.path.starts_with(folder) && !test) {
            for word in words.iter().filter(|word| code.contains(**word)) {
                found(format!("{folder} must not know {word}"));
            }
        }
    }
    findings
}

/// The keyword where it means something; in prose and in lints it does no harm.
fn uses_unsafe(code: &str) -> bool {
    let opens = |rest: &str| {
        ["{", "fn ", "impl ", "impl<", "extern ", "trait "].iter().any(|next| rest.starts_with(next))
    };
    code.match_indices("unsafe ").any(|(at, word)| opens(&code[at + word.len()..]))
        || code.trim_end().ends_with(" unsafe")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(path: &str, text: &str) -> usize {
        check(&[File { path: path.to_string(), text: text.to_string() }]).len()
    }

    #[test]
    fn catches_unsafe_outside_its_rooms() {
        let text = "fn f() {\n    unsafe { g() }\n}\n";
        assert_eq!(found("crates/server/src/main.rs", text), 1);
        assert_eq!(found("crates/arena/src/slab.rs", text), 0);
        assert_eq!(found("crates/server/src/main.rs", "// not unsafe at all\n#![deny(unsafe_code)]\n"), 0);
    }

    #[test]
    fn catches_a_clock_where_there_is_none() {
        let text = "fn f() { let now = std::time::SystemTime::now(); }\n";
        assert_eq!(found("crates/keyspace/src/slot.rs", text), 1);
        assert_eq!(found("crates/server/src/request/clock.rs", text), 0);
        assert_eq!(
            found("crates/keyspace/src/slot.rs", &format!("#[cfg(test)]\nmod tests {{\n{text}}}\n")),
            0
        );
    }
}
