//! Doc comments that begin as a fragment: with a relative clause, a pronoun, or a preposition.
//!
//! A doc comment is read alone, in an editor or in rustdoc, so the sentence before it cannot supply its noun.
//! Data begins with a noun phrase, a function with a verb:
//!
//! ```text
//! /// What is not written yet.            /// Bytes not yet written.
//! /// Whether it was so.                  /// Moves from `from` to `to`; false in any other phase.
//! ```
//!
//! Count: consecutive lines of `///` are one comment. Its first word is looked at, without Markdown
//! around it. All files below `crates/*/src/` are read, inline tests included; `tests/` and `fuzz/` are not,
//! and neither is `//!`, whose subject is the file.

use std::collections::BTreeMap;

use super::{File, Measure};

/// Words that no doc comment begins with; only in this case, and as whole words.
const OPENINGS: [&str; 28] = [
    "What", "Whether", "Who", "Whose", "How", "Where", "When", "Which", "That", "If", "It", "Its", "They",
    "Those", "These", "This", "One", "None", "Nothing", "There", "The same", "Of", "As", "So", "By", "In",
    "For", "From",
];

/// Markdown before the first word.
const MARKUP: [char; 6] = ['`', '*', '_', '[', '(', '"'];

/// Counts the comments of each crate.
pub fn measures(files: &[File]) -> Vec<Measure> {
    let mut places: BTreeMap<&str, Vec<String>> = BTreeMap::new();
    for file in files {
        let Some((name, path)) = file.path.strip_prefix("crates/").and_then(|path| path.split_once('/'))
        else {
            continue;
        };
        if path.starts_with("src/") && path.ends_with(".rs") {
            let found = fragments(&file.text);
            let found = found.into_iter().map(|(line, word)| format!("{}:{line} ({word})", file.path));
            places.entry(name).or_default().extend(found);
        }
    }
    let measure =
        |(name, places)| Measure::of_places(format!("doc comments that begin as a fragment, {name}"), places);
    places.into_iter().map(measure).collect()
}

/// Line and first word of each comment that begins with one of the words.
fn fragments(text: &str) -> Vec<(usize, &'static str)> {
    let mut found = Vec::new();
    let mut inside = false;
    for (index, line) in text.lines().enumerate() {
        let comment = doc_comment(line);
        if let Some(word) = comment.filter(|_| !inside).and_then(opening) {
            found.push((index + 1, word));
        }
        inside = comment.is_some();
    }
    found
}

/// The text of a line of `///`; four slashes are a plain comment.
fn doc_comment(line: &str) -> Option<&str> {
    line.trim_start().strip_prefix("///").filter(|text| !text.starts_with('/'))
}

fn opening(comment: &str) -> Option<&'static str> {
    let text = comment.trim_start().trim_start_matches(MARKUP);
    let ends = |rest: &str| !rest.starts_with(|c: char| c.is_alphanumeric() || matches!(c, '_' | '-'));
    OPENINGS.into_iter().find(|word| text.strip_prefix(word).is_some_and(ends))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_word_of_each_comment_counts() {
        let text = "/// What waits.\nstruct A {\n    /// Bytes.\n    /// Whether they wait.\n    a: u8,\n    /// `None`: empty.\n    b: u8,\n}\n";
        assert_eq!(fragments(text), [(1, "What"), (6, "None")]);
        assert_eq!(
            fragments("/// The same\nfn a() {}\n/// The same again.\n"),
            [(1, "The same"), (3, "The same")]
        );
        assert_eq!(fragments("//! What.\n// What.\n//// What.\nlet a = \"/// What\";\n"), []);
    }

    #[test]
    fn longer_words_and_lower_case_are_others() {
        for text in ["Items.", "In-memory lists.", "Forgets.", "Onetime.", "Asks what waits.", "it", ""] {
            assert_eq!(opening(text), None, "{text}");
        }
        assert_eq!(opening(" **So many** entries."), Some("So"));
        assert_eq!(opening(" It's full."), Some("It"));
    }

    #[test]
    fn each_crate_has_its_own_measure() {
        let file = |path: &str| File { path: path.to_string(), text: "/// If.\n".to_string() };
        let files =
            ["crates/a/src/a.rs", "crates/b/src/b/c.rs", "crates/b/tests/d.rs", "fuzz/e.rs"].map(file);
        let found: Vec<(String, Vec<String>)> =
            measures(&files).into_iter().map(|measure| (measure.name, measure.places)).collect();
        assert_eq!(
            found,
            ["a/src/a.rs", "b/src/b/c.rs"].map(|path| (
                format!("doc comments that begin as a fragment, {}", &path[..1]),
                vec![format!("crates/{path}:1 (If)")]
            ))
        );
    }
}
