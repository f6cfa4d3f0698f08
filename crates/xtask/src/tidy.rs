//! The rules of the house that a compiler does not know, as a test.
//!
//! A rule is a function from files to findings. Each has a small test that shows what it catches: a rule that
//! cannot fail guards nothing. Exemptions are listed by name next to the rule, so that a new one is seen in
//! review.

use std::fmt;
use std::fs;
use std::path::Path;

use crate::Fallible;
use modules::Reexports;

mod arrows;
mod ceilings;
mod circles;
pub mod compat;
mod config_ids;
mod dead;
mod doc_comments;
mod documents;
mod folders;
mod hand_calls;
mod house;
mod impls;
mod layers;
mod long;
mod modules;
mod request_path;
mod source;
mod source_words;
mod text;
mod unsafety;
mod waits;
mod wide;
mod words;

/// A file of the checkout: its path from the root, with `/`, and its text.
pub struct File {
    pub path: String,
    pub text: String,
}

/// Something to mend, in the form that editors jump to.
#[derive(Debug, PartialEq)]
pub struct Finding {
    pub path: String,
    /// The number of the line, from 1; 0 if it is about the file as a whole.
    pub line: usize,
    pub what: String,
}

impl fmt::Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.line {
            0 => write!(f, "{}: {}", self.path, self.what),
            line => write!(f, "{}:{line}: {}", self.path, self.what),
        }
    }
}

/// Something counted, by the name that it has in the table.
pub struct Measure {
    pub name: String,
    /// Places that were counted; shown when there are too many.
    pub places: Vec<String>,
    /// Count up to which it needs no line in the table.
    pub allowed: usize,
}

impl Measure {
    fn of_places(name: String, places: Vec<String>) -> Measure {
        Measure { name, places, allowed: 0 }
    }

    fn count(&self) -> usize {
        self.places.len()
    }
}

fn whole(path: &str, what: impl Into<String>) -> Finding {
    Finding { path: path.to_string(), line: 0, what: what.into() }
}

pub fn findings(root: &Path) -> Vec<Finding> {
    let files = read(root);
    let rules = [
        text::check,
        house::check,
        documents::check,
        dead::check,
        unsafety::check,
        arrows::check,
        layers::check,
        ceilings::check,
        compat::check,
        words::check,
        source_words::check,
        waits::check,
    ];
    let mut findings: Vec<Finding> = rules.iter().flat_map(|rule| rule(&files)).collect();
    findings.sort_by(|a, b| (&a.path, a.line).cmp(&(&b.path, b.line)));
    findings
}

/// The largest circle of each of these crates, or of all, as a text; `--followed`: through every re-export.
pub fn circles(root: &Path, args: &[String]) -> String {
    let (reexports, crates) = match args {
        [flag, crates @ ..] if flag == "--followed" => (Reexports::Followed, crates),
        crates => (Reexports::AsWritten, crates),
    };
    circles::report(&source::files(&read(root)), crates, reexports)
}

/// Lowers each ceiling to what is counted, and deletes those that nothing counts.
pub fn lower(root: &Path) -> Fallible {
    rewrite(root, ceilings::lowered)
}

/// Gives a ceiling to each measure that has none.
pub fn add_new(root: &Path) -> Fallible {
    rewrite(root, ceilings::with_new)
}

fn rewrite(root: &Path, change: fn(&str, &[Measure]) -> String) -> Fallible {
    let files = read(root);
    let path = root.join(ceilings::TABLE);
    let table = fs::read_to_string(&path).map_err(|why| format!("cannot read {}: {why}", ceilings::TABLE))?;
    fs::write(&path, change(&table, &ceilings::measures(&files)))
        .map_err(|why| format!("cannot write {}: {why}", ceilings::TABLE))
}

/// Each place that counts for the measures whose names contain `part`.
pub fn places(root: &Path, part: &str) -> String {
    ceilings::places_of(part, &ceilings::measures(&read(root)))
}

/// Folders that hold nothing written by hand; in a second checkout of the same repository, `.git` is a file.
const NOT_OURS: [&str; 5] = ["target", ".git", "corpus", "artifacts", "node_modules"];

/// Every text file of the checkout, ordered by path.
fn read(root: &Path) -> Vec<File> {
    let mut files = Vec::new();
    let mut folders = vec![root.to_path_buf()];
    while let Some(folder) = folders.pop() {
        let Ok(entries) = fs::read_dir(&folder) else { continue };
        for path in entries.flatten().map(|entry| entry.path()) {
            let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
            if NOT_OURS.contains(&name.as_str()) {
                continue;
            }
            if path.is_dir() {
                folders.push(path);
            } else if let Ok(text) = fs::read_to_string(&path) {
                let path =
                    path.strip_prefix(root).expect("found below the root").to_string_lossy().into_owned();
                files.push(File { path, text });
            }
        }
    }
    files.sort_by(|a, b| a.path.cmp(&b.path));
    files
}

/// The part of a source file before its inline tests, and without comments: what runs in the server.
fn code_lines(text: &str) -> impl Iterator<Item = (usize, &str)> {
    text.lines()
        .enumerate()
        .take_while(|(_, line)| !line.trim_start().starts_with("#[cfg(test)]") || line.starts_with(' '))
        .map(|(index, line)| (index + 1, line.find("//").map_or(line, |at| &line[..at])))
}

/// True if `word` stands in `line` with no character, digit or underscore next to it.
fn has_word(line: &str, word: &str) -> bool {
    let part_of_name = |c: char| c.is_alphanumeric() || c == '_';
    line.match_indices(word).any(|(at, _)| {
        let before = line[..at].chars().next_back();
        let after = line[at + word.len()..].chars().next();
        !before.is_some_and(part_of_name) && !after.is_some_and(part_of_name)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_checkout_is_tidy() {
        let findings = findings(&crate::place::root());
        let lines: Vec<String> = findings.iter().map(ToString::to_string).collect();
        assert!(lines.is_empty(), "\n{}", lines.join("\n"));
    }

    #[test]
    fn words_end_where_names_end() {
        assert!(has_word("a word, here", "word"));
        assert!(!has_word("a password, words", "word"));
    }
}
