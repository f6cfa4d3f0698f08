//! A change of documents alone: format, tidy, and the tests that read the documents.
//!
//! The change is what differs from the last commit whose full run is recorded in the tree, in `.ci/full-run`.
//! Everything in between was run then, so only documents have not been. Which tests read a document is found
//! in the sources: a file that names the document in a string. Where the product itself contains a document,
//! or where no record is found, all runs.

use std::fs;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use super::Options;
use super::lane::{self, Outcome};
use super::stages::{PHASES, Stage};
use crate::{Fallible, run};

const RECORD: &str = ".ci/full-run";
/// Documents by their names, besides all `*.md`.
const NAMES: [&str; 3] = ["LICENSE", "NOTICE", RECORD];
/// Stages that read documents: tidy is one of the calls of the first.
const ALWAYS: [&str; 1] = ["house"];
/// The rules about documents, and their tests; they run in any case.
const OWN_CRATE: &str = "crates/xtask/";

pub enum Decision {
    /// All runs, for this reason.
    All(String),
    Documents(Change),
}

/// Documents that have changed, and the tests that read them.
#[derive(Debug)]
pub struct Change {
    pub since: String,
    pub documents: Vec<String>,
    pub readers: Vec<Reader>,
}

/// A file of sources that names a document.
#[derive(Debug, PartialEq)]
pub struct Reader {
    /// Folder below `crates`.
    pub folder: String,
    /// Modules of the file among the crate's sources, `config::docs`; or the name of a test program.
    pub tests: String,
}

pub fn decide(root: &Path, all: bool) -> Fallible<Decision> {
    if all {
        return Ok(Decision::All("--all".to_string()));
    }
    let text = fs::read_to_string(root.join(RECORD)).unwrap_or_default();
    let Some(since) = text.lines().find_map(|line| line.strip_prefix("commit ")) else {
        return Ok(Decision::All(format!("no full run is recorded in {RECORD}")));
    };
    let git = |args: &[&str]| run::quiet(Command::new("git").args(args).current_dir(root));
    let Ok(changed) = git(&["diff", "--name-only", since]) else {
        return Ok(Decision::All(format!(
            "the commit of the recorded full run, {since}, is not in this clone"
        )));
    };
    if git(&["merge-base", "--is-ancestor", since, "HEAD"]).is_err() {
        return Ok(Decision::All(format!(
            "{since}, whose full run is recorded, is no ancestor of this commit"
        )));
    }
    let untracked = git(&["ls-files", "--others", "--exclude-standard"])?;
    let changed: Vec<String> = changed.lines().chain(untracked.lines()).map(str::to_string).collect();
    let sources = sources(root)?;
    Ok(judge(since, changed, &sources))
}

/// Paths and texts of what is compiled or run: Rust, and what describes builds.
fn sources(root: &Path) -> Fallible<Vec<(String, String)>> {
    let listed =
        run::quiet(Command::new("git").args(["ls-files", "crates", "fuzz", "packaging"]).current_dir(root))?;
    let is_source = |path: &&str| [".rs", ".toml", ".sh"].iter().any(|end| path.ends_with(end));
    let read = |path: &str| Some((path.to_string(), fs::read_to_string(root.join(path)).ok()?));
    Ok(listed.lines().filter(is_source).filter_map(read).collect())
}

fn judge(since: &str, changed: Vec<String>, sources: &[(String, String)]) -> Decision {
    if let Some(other) = changed.iter().find(|path| !is_document(path)) {
        return Decision::All(format!("{other} has changed since the full run of {since}"));
    }
    let mut readers = Vec::new();
    for document in changed.iter().filter(|path| *path != RECORD) {
        for (path, text) in sources.iter().filter(|(path, _)| !path.starts_with(OWN_CRATE)) {
            if !names(text, document) {
                continue;
            }
            match reader(path, text) {
                Some(reader) if !readers.contains(&reader) => readers.push(reader),
                Some(_) => {}
                None => {
                    return Decision::All(format!("{path} contains or reads {document}, which has changed"));
                }
            }
        }
    }
    Decision::Documents(Change { since: since.to_string(), documents: changed, readers })
}

fn is_document(path: &str) -> bool {
    path.ends_with(".md") || NAMES.contains(&path)
}

/// Returns whether a text names the document as a string ends: `"docs/config.md"`, `"../../../README.md"`.
fn names(text: &str, document: &str) -> bool {
    let file = document.rsplit('/').next().unwrap_or(document);
    [format!("/{file}\""), format!("\"{file}\"")].iter().any(|end| text.contains(end.as_str()))
}

/// The tests of a file that reads a document; `None` if what reads it is no test that could be named.
fn reader(path: &str, text: &str) -> Option<Reader> {
    let (folder, rest) = path.strip_prefix("crates/")?.split_once('/')?;
    if text.contains("include_str!") && !text.contains("#[test]") {
        return None;
    }
    let file = rest.strip_suffix(".rs")?;
    let modules = file.strip_prefix("src/").or_else(|| file.strip_prefix("tests/it/"))?;
    Some(Reader { folder: folder.to_string(), tests: modules.trim_end_matches("/mod").replace('/', "::") })
}

/// Runs what a change of documents calls for, and says what does not run.
pub fn check(change: &Change, options: &Options, commit: &str) -> Fallible<Vec<Outcome>> {
    println!("documents alone have changed since {}, whose full run is recorded in {RECORD}:", change.since);
    change.documents.iter().for_each(|document| println!("    {document}"));
    let (mut run, mut skipped) = (Vec::new(), Vec::new());
    for stage in PHASES.iter().flat_map(|phase| phase.iter()).flat_map(|lane| lane.iter()) {
        if ALWAYS.contains(&stage.name) { run.push(stage) } else { skipped.push(stage.name) }
    }
    println!("skipped: {}: they read no document", skipped.join(", "));
    let tests = Stage { name: "documents", calls: leaked(calls(&change.readers)), ..super::stages::TESTS };
    run.push(&tests);
    let begun = std::time::Instant::now();
    Ok(run.iter().map(|stage| lane::run(stage, options.all, commit, begun)).collect())
}

/// Returns one call of `cargo xtask test` a crate; that of the rules about documents is always one of them.
fn calls(readers: &[Reader]) -> Vec<String> {
    let mut calls = vec!["test -p isotherm-xtask".to_string()];
    let mut folders: Vec<&str> = readers.iter().map(|reader| reader.folder.as_str()).collect();
    folders.sort_unstable();
    folders.dedup();
    for folder in folders {
        let package = if folder == "server" { "isotherm".to_string() } else { format!("isotherm-{folder}") };
        let tests: Vec<&str> = readers
            .iter()
            .filter(|reader| reader.folder == folder)
            .map(|reader| reader.tests.as_str())
            .collect();
        calls.push(format!("test -p {package} {}", tests.join(" ")));
    }
    calls
}

/// Writes down that everything was run at the commit that is checked out. It counts once it is committed.
pub fn record(root: &Path, took: Duration) -> Fallible {
    let git = |args: &[&str]| run::quiet(Command::new("git").args(args).current_dir(root));
    let changed = git(&["status", "--porcelain"])?;
    if !changed.is_empty() {
        return Err("files have changed since the commit: nothing is recorded".to_string());
    }
    let commit = git(&["rev-parse", "HEAD"])?;
    let text = format!(
        "# The last commit at which everything passed (`.ci/run --record`): what differs from it in documents alone is checked\n\
         # as documents. See crates/xtask/src/ci/documents.rs.\n\
         commit {}\nseconds {}\n",
        commit.trim(),
        took.as_secs()
    );
    fs::write(root.join(RECORD), text).map_err(|why| format!("cannot write {RECORD}: {why}"))?;
    println!("recorded in {RECORD}; commit it");
    Ok(())
}

/// A list that lives as long as the process, as those of the table of stages do.
fn leaked(calls: Vec<String>) -> &'static [&'static str] {
    calls.into_iter().map(|call| &*call.leak()).collect::<Vec<&'static str>>().leak()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sources() -> Vec<(String, String)> {
        [
            ("crates/config/src/docs.rs", "#[test] check_fresh(\"docs/config.md\")"),
            ("crates/server/src/observe/map/mod.rs", "#[test] check_fresh(\"docs/memory.md\")"),
            ("crates/cli/src/help.rs", "include_str!(\"../../../docs/help.md\")"),
            ("crates/xtask/src/tidy.rs", "\"README.md\""),
        ]
        .map(|(path, text)| (path.to_string(), text.to_string()))
        .to_vec()
    }

    fn judged(changed: &[&str]) -> Decision {
        judge("abc", changed.iter().map(|path| path.to_string()).collect(), &sources())
    }

    #[test]
    fn the_tests_of_a_document_are_those_that_name_it() {
        let Decision::Documents(change) = judged(&["docs/config.md", "docs/memory.md", "README.md"]) else {
            panic!("documents alone have changed")
        };
        assert_eq!(
            calls(&change.readers),
            ["test -p isotherm-xtask", "test -p isotherm-config docs", "test -p isotherm observe::map"]
        );
    }

    #[test]
    fn code_and_documents_in_the_product_make_all_run() {
        assert!(matches!(judged(&["README.md", "crates/cli/src/help.rs"]), Decision::All(_)));
        assert!(matches!(judged(&["docs/help.md"]), Decision::All(_)));
        assert!(matches!(judged(&["LICENSE"]), Decision::Documents(_)));
        assert!(matches!(judged(&["isotherm.conf"]), Decision::All(_)));
    }
}
