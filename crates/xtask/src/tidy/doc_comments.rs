//! Doc comments that begin as a fragment: with a relative clause, a pronoun, or a preposition.
//!
//! A doc comment is read alone, in an editor or in rustdoc, so the sentence before it cannot supply its noun.
//! Data begins with a noun phrase, a function with a verb, and a paragraph with its subject:
//!
//! ```text
//! /// What is not written yet.            /// Bytes not yet written.
//! /// Whether it was so.                  /// Moves from `from` to `to`; false in any other phase.
//! ```
//!
//! Count: consecutive lines of `///` or of `//!` are one comment. The first word of each paragraph is looked
//! at, without Markdown around it. Drawings between fences are left out, and so is a title in asterisks; in
//! `//!` and behind the first paragraph "One" is a number. All files below `crates/*/src/` are read, inline
//! tests included; `tests/` and `fuzz/` are not.

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

/// Kind of a doc comment: of the item below it, or of the file.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Kind {
    Item,
    File,
}

/// Place within a comment.
#[derive(Clone, Copy, PartialEq, Eq)]
enum At {
    First,
    Paragraph,
    Inside,
    Drawing,
}

/// Line and first word of each paragraph of a comment that begins with one of the words.
fn fragments(text: &str) -> Vec<(usize, &'static str)> {
    let mut found = Vec::new();
    let (mut before, mut at) = (None, At::First);
    for (index, line) in text.lines().enumerate() {
        let Some((kind, comment)) = doc_comment(line) else {
            before = None;
            continue;
        };
        if before.replace(kind) != Some(kind) {
            at = At::First;
        }
        let comment = comment.trim_start();
        at = match at {
            At::Drawing if comment.starts_with("```") => At::Paragraph,
            At::Drawing => At::Drawing,
            _ if comment.starts_with("```") => At::Drawing,
            _ if comment.is_empty() => At::Paragraph,
            At::Inside => At::Inside,
            At::First | At::Paragraph => {
                let is_name = kind == Kind::Item && at == At::First;
                let word =
                    opening(comment).filter(|word| is_name || *word != "One" && !comment.starts_with('*'));
                found.extend(word.map(|word| (index + 1, word)));
                At::Inside
            }
        };
    }
    found
}

/// The kind and text of a line of `///` or `//!`; four slashes are a plain comment.
fn doc_comment(line: &str) -> Option<(Kind, &str)> {
    let line = line.trim_start();
    let of_item = line.strip_prefix("///").filter(|text| !text.starts_with('/'));
    of_item.map(|text| (Kind::Item, text)).or_else(|| Some((Kind::File, line.strip_prefix("//!")?)))
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
        assert_eq!(fragments("// What.\n//// What.\nlet a = \"/// What\";\n"), []);
    }

    #[test]
    fn each_paragraph_counts() {
        let text = "//! Items.\n//!\n//! ```text\n//! If\n//! ```\n//! They wait.\n//! It is.\n//!\n//! **Who waits.** One.\n";
        assert_eq!(fragments(text), [(6, "They")]);
        assert_eq!(fragments("/// Waits.\n///\n/// One of 16. It is.\n///\n/// So it waits.\n"), [(5, "So")]);
        assert_eq!(fragments("//! What it is.\n/// Bytes.\n"), [(1, "What")]);
        assert_eq!(fragments("//! One client.\n"), []);
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
