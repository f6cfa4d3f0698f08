//! Words that must not stand in the tree, and files that have grown too long.

use super::{File, Finding, has_word, whole};

/// Folders of a developer's machine. Split, so that this file passes its own rule.
const MACHINE_PATHS: [&str; 5] = [
    concat!("/wo", "rk/"),
    concat!("/va", "r/tm", "p/"),
    concat!("/ro", "ot/"),
    concat!("/ho", "me/"),
    concat!("/tm", "p/"),
];

/// Marks of work that is not done, and of debugging.
const UNFINISHED: [&str; 5] = [
    concat!("db", "g!"),
    concat!("to", "do!"),
    concat!("un", "implemented!"),
    concat!("FIX", "ME"),
    concat!("XX", "X:"),
];

/// A file past this is an invitation to look for its second noun.
const LINES_MAX: usize = 1000;

/// Flat tables, which are not read from top to bottom: only these may be longer.
const LONG_TABLES: [&str; 0] = [];

pub fn check(files: &[File]) -> Vec<Finding> {
    files.iter().filter(|file| file.path != "Cargo.lock").flat_map(check_file).collect()
}

fn check_file(file: &File) -> Vec<Finding> {
    let mut findings = Vec::new();
    let rust = file.path.ends_with(".rs");
    // A test may need a folder that every machine has.
    let test = file.path.contains("/tests/") || file.path.ends_with("tests.rs");
    for (index, line) in file.text.lines().enumerate() {
        let mut found =
            |what: String| findings.push(Finding { path: file.path.clone(), line: index + 1, what });
        for path in MACHINE_PATHS.into_iter().filter(|path| line.contains(path)) {
            if !(test && path == MACHINE_PATHS[4]) {
                found(format!("a path of a machine: {path}"));
            }
        }
        if rust {
            for word in UNFINISHED
                .into_iter()
                .filter(|word| has_word(line, word.trim_end_matches(['!', ':'])) && line.contains(word))
            {
                found(format!("unfinished: {word}"));
            }
        }
    }
    let lines = file.text.lines().count();
    if rust && lines > LINES_MAX && !LONG_TABLES.contains(&file.path.as_str()) {
        findings.push(whole(&file.path, format!("{lines} lines; past {LINES_MAX} a file has a second noun")));
    }
    findings
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(path: &str, text: &str) -> Vec<String> {
        check(&[File { path: path.to_string(), text: text.to_string() }])
            .into_iter()
            .map(|finding| finding.what)
            .collect()
    }

    #[test]
    fn catches_words_and_paths() {
        let debugging = format!("let x = 1;\n{}(x);\n", UNFINISHED[0]);
        assert_eq!(found("crates/a/src/lib.rs", &debugging).len(), 1);
        assert_eq!(found("README.md", &debugging).len(), 0);
        assert_eq!(found("README.md", &format!("see {}main", MACHINE_PATHS[0])).len(), 1);
        assert_eq!(found("crates/a/tests/x.rs", &format!("{}socket", MACHINE_PATHS[4])).len(), 0);
        assert_eq!(found("crates/a/src/lib.rs", "dbg_macro, todo list").len(), 0);
    }

    #[test]
    fn catches_long_files() {
        assert_eq!(found("crates/a/src/lib.rs", &"x\n".repeat(LINES_MAX)).len(), 0);
        assert_eq!(found("crates/a/src/lib.rs", &"x\n".repeat(LINES_MAX + 1)).len(), 1);
        assert_eq!(found("docs/long.md", &"x\n".repeat(LINES_MAX + 1)).len(), 0);
    }
}
