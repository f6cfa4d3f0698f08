//! Files that are not compiled: a `.rs` below `src` that no `mod` names.

use std::collections::{HashMap, HashSet};

use super::house::resolve;
use super::{File, Finding, whole};

pub fn check(files: &[File]) -> Vec<Finding> {
    let sources: HashMap<&str, &str> = files
        .iter()
        .filter(|file| file.path.starts_with("crates/") && file.path.ends_with(".rs"))
        .map(|file| (file.path.as_str(), file.text.as_str()))
        .collect();
    let mut living: HashSet<String> = HashSet::new();
    let mut queue: Vec<String> =
        sources.keys().filter(|path| is_root(path)).map(|path| path.to_string()).collect();
    while let Some(path) = queue.pop() {
        let Some(text) = sources.get(path.as_str()) else { continue };
        if living.insert(path.clone()) {
            queue
                .extend(named_by(&path, text).into_iter().filter(|file| sources.contains_key(file.as_str())));
        }
    }
    let mut dead: Vec<&str> = sources.into_keys().filter(|path| !living.contains(*path)).collect();
    dead.sort_unstable();
    dead.into_iter().map(|path| whole(path, "dead: no `mod` names this file")).collect()
}

/// Returns whether Cargo compiles the file by itself: crates/NAME/build.rs, build/main.rs, src/lib.rs,
/// src/main.rs, src/bin/x.rs, tests/x.rs, tests/x/main.rs, and the same for benches and examples.
fn is_root(path: &str) -> bool {
    let parts: Vec<&str> = path.split('/').skip(2).collect();
    matches!(
        parts.as_slice(),
        ["build.rs"]
            | ["build", "main.rs"]
            | ["src", "lib.rs" | "main.rs"]
            | ["src", "bin", _]
            | ["tests" | "benches" | "examples", _]
            | ["tests" | "benches" | "examples", _, "main.rs"]
    )
}

/// The files that the `mod x;` lines and `include!`s of a file may mean.
fn named_by(path: &str, text: &str) -> Vec<String> {
    let (folder, name) = path.rsplit_once('/').expect("a path below crates/");
    // The modules of lib.rs, main.rs and mod.rs lie next to them; those of x.rs lie in x/.
    let beside = is_root(path) || name == "mod.rs";
    let inner =
        if beside { folder.to_string() } else { format!("{folder}/{}", name.trim_end_matches(".rs")) };
    let mut named = Vec::new();
    let mut given_path: Option<&str> = None;
    for line in text.lines().map(str::trim) {
        if let Some(file) = line.strip_prefix("#[path = \"").and_then(|rest| rest.split('"').next()) {
            given_path = Some(file);
        } else if let Some(module) = module(line) {
            match given_path.take() {
                Some(file) => named.push(resolve(folder, file)),
                None => named.extend([format!("{inner}/{module}.rs"), format!("{inner}/{module}/mod.rs")]),
            }
        } else if let Some(at) = line.find("include!(\"") {
            named.extend(line[at + 10..].split('"').next().map(|file| format!("{folder}/{file}")));
        }
    }
    named
}

/// `x`, if the line reads `mod x;`, `pub mod x;` or `pub(crate) mod x;`.
fn module(line: &str) -> Option<&str> {
    let declaration = line.split("//").next()?.trim_end().strip_suffix(';')?;
    let (before, name) = declaration.rsplit_once("mod ")?;
    let before = before.trim();
    let visible = before.is_empty() || before.starts_with("pub") || before.ends_with(']');
    (visible && name.chars().all(|c| c.is_alphanumeric() || c == '_')).then_some(name)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn dead(files: &[(&str, &str)]) -> Vec<String> {
        let files: Vec<File> = files
            .iter()
            .map(|(path, text)| File { path: path.to_string(), text: text.to_string() })
            .collect();
        check(&files).into_iter().map(|finding| finding.path).collect()
    }

    #[test]
    fn catches_a_file_without_a_mod() {
        let tree = [
            ("crates/a/src/lib.rs", "mod page;\npub(crate) mod slot;\n"),
            ("crates/a/src/page.rs", "#[cfg(test)]\nmod tests;\n"),
            ("crates/a/src/page/tests.rs", ""),
            ("crates/a/src/slot/mod.rs", "mod inner;"),
            ("crates/a/src/slot/inner.rs", ""),
            ("crates/a/tests/it.rs", "mod helper;"),
            ("crates/a/tests/helper/mod.rs", ""),
        ];
        assert_eq!(dead(&tree), [""; 0]);
        let mut with_dead = tree.to_vec();
        with_dead.push(("crates/a/src/old.rs", ""));
        assert_eq!(dead(&with_dead), ["crates/a/src/old.rs"]);
    }
}
