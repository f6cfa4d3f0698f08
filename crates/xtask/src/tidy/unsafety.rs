//! `unsafe` lives in few rooms, and what a crate must not know does not stand in its code.
//!
//! The compiler denies `unsafe` in the whole workspace, but an `#[allow]` is quickly written; this list is
//! where it is decided.

use super::{File, Finding, code_lines};

/// A path that begins with one of these may hold `unsafe`. One of its files does.
const ROOMS: [&str; 5] = [
    "crates/allocator/",
    "crates/arena/",
    "crates/disk/src/ring.rs",
    "crates/keyspace/src/layout/heap.rs",
    "crates/script/src/lua/",
];

/// The path of these lists, where a stale place is struck out.
const LIST: &str = "crates/xtask/src/tidy/unsafety.rs";

/// Names that must not stand in the code of a crate: its absence, as words.
const ABSENT: [(&str, &[&str]); 12] = [
    ("crates/stdx/src/", &["SystemTime::now", "Instant::now", "std::net", "std::fs"]),
    ("crates/arena/src/", &["SystemTime::now", "Instant::now", "std::net"]),
    ("crates/disk/src/", &["SystemTime::now", "Instant::now", "std::net", "std::thread"]),
    ("crates/resp/src/", &["SystemTime::now", "Instant::now", "std::net", "std::fs", "std::thread"]),
    ("crates/script/src/", &["SystemTime::now", "Instant::now", "std::net", "std::fs", "std::thread"]),
    ("crates/keyspace/src/", &["SystemTime::now", "Instant::now", "std::net", "std::fs", "thread_rng"]),
    ("crates/cluster/src/", &["SystemTime::now", "Instant::now", "std::net::Tcp", "std::fs", "std::thread"]),
    ("crates/log/src/", &["SystemTime::now", "Instant::now", "std::net", "std::fs", "std::thread"]),
    ("crates/engine/src/", &["SystemTime::now", "std::net"]),
    ("crates/swap/src/", &["std::net", "Session"]),
    ("crates/durability/src/", &["std::net", "Session"]),
    ("crates/commands/src/", &["SystemTime::now", "Instant::now", "std::net", "std::fs", "thread_rng"]),
];

pub fn check(files: &[File]) -> Vec<Finding> {
    let rust = || files.iter().filter(|file| file.path.starts_with("crates/") && file.path.ends_with(".rs"));
    let mut findings: Vec<Finding> = rust().flat_map(check_file).collect();
    findings.extend(stale(&ROOMS, |room| rust().any(|file| file.path.starts_with(room) && has_unsafe(file))));
    let folders = ABSENT.map(|(folder, _)| folder);
    findings.extend(stale(&folders, |folder| rust().any(|file| file.path.starts_with(folder))));
    findings
}

/// Listed places that there is no reason to list: new code there would be let through.
fn stale(places: &[&str], is_needed: impl Fn(&str) -> bool) -> Vec<Finding> {
    let of = |place: &&str| Finding {
        path: LIST.to_string(),
        line: 1,
        what: format!("{place} is listed, and there is nothing that needs it"),
    };
    places.iter().filter(|place| !is_needed(place)).map(of).collect()
}

fn has_unsafe(file: &File) -> bool {
    code_lines(&file.text).any(|(_, code)| uses_unsafe(code))
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
        check_file(&File { path: path.to_string(), text: text.to_string() }).len()
    }

    #[test]
    fn catches_unsafe_outside_its_rooms() {
        let text = "fn f() {\n    unsafe { g() }\n}\n";
        assert_eq!(found("crates/server/src/main.rs", text), 1);
        assert_eq!(found("crates/arena/src/slab.rs", text), 0);
        assert_eq!(found("crates/server/src/main.rs", "// not unsafe at all\n#![deny(unsafe_code)]\n"), 0);
    }

    #[test]
    fn catches_a_place_without_a_reason() {
        let file = |path: &str, text: &str| File { path: path.to_string(), text: text.to_string() };
        let all = |list: &[&str], text: &str| -> Vec<File> {
            list.iter().map(|place| file(&format!("{place}x.rs"), text)).collect()
        };
        let mut files = all(&ROOMS, "unsafe { g() }\n");
        files.extend(all(&ABSENT.map(|(folder, _)| folder), "fn f() {}\n"));
        assert_eq!(check(&files).len(), 0);
        files[0].text = "fn f() {}\n".to_string();
        let last = files.pop().expect("a file of the last folder");
        let found: Vec<String> = check(&files).into_iter().map(|finding| finding.what).collect();
        assert!(found.len() == 2 && found[0].starts_with(ROOMS[0]), "{found:?}");
        assert!(
            last.path.starts_with(ABSENT[ABSENT.len() - 1].0) && found[1].starts_with("crates/commands/")
        );
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
