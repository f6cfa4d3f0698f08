//! Wide lines: rustfmt wraps code and leaves comments and documents to their authors.
//!
//! A row of a Markdown table cannot be wrapped, so it does not count.

use super::{File, Measure};

/// The width of code (`max_width` in rustfmt.toml).
const COMMENT_COLUMNS_MAX: usize = 110;

const DOCUMENT_COLUMNS_MAX: usize = 132;

pub fn measures(files: &[File]) -> Vec<Measure> {
    let is_source = |file: &File| {
        (file.path.starts_with("crates/") || file.path.starts_with("fuzz/")) && file.path.ends_with(".rs")
    };
    let comments = places(files, is_source, |line| {
        line.trim_start().starts_with("//") && is_wider(line, COMMENT_COLUMNS_MAX)
    });
    let documents = places(
        files,
        |file| file.path.ends_with(".md"),
        |line| !line.trim_start().starts_with('|') && is_wider(line, DOCUMENT_COLUMNS_MAX),
    );
    vec![
        Measure::of_places(format!("comment lines over {COMMENT_COLUMNS_MAX} columns"), comments),
        Measure::of_places(format!("document lines over {DOCUMENT_COLUMNS_MAX} columns"), documents),
    ]
}

fn places(files: &[File], is_read: fn(&File) -> bool, counts: fn(&str) -> bool) -> Vec<String> {
    let mut places = Vec::new();
    for file in files.iter().filter(|file| is_read(file)) {
        let found = file.text.lines().enumerate().filter(|(_, line)| counts(line));
        places.extend(found.map(|(index, _)| format!("{}:{}", file.path, index + 1)));
    }
    places
}

/// A line has at least as many bytes as columns.
fn is_wider(line: &str, columns: usize) -> bool {
    line.len() > columns && line.chars().count() > columns
}

#[cfg(test)]
mod tests {
    use super::*;

    fn counts(path: &str, text: String) -> Vec<usize> {
        measures(&[File { path: path.to_string(), text }]).iter().map(Measure::count).collect()
    }

    #[test]
    fn comments_of_sources_and_lines_of_documents_count() {
        let wide = |start: &str, columns: usize| format!("{start}{}\n", "ä".repeat(columns - start.len()));
        let (comment, document) = (COMMENT_COLUMNS_MAX, DOCUMENT_COLUMNS_MAX);
        assert_eq!(counts("crates/a/src/a.rs", wide("    /// ", comment)), [0, 0]);
        assert_eq!(counts("crates/a/src/a.rs", wide("    /// ", comment + 1)), [1, 0]);
        assert_eq!(counts("crates/a/src/a.rs", wide("let a = 1; // ", comment + 1)), [0, 0]);
        assert_eq!(counts("docs/a.md", wide("", document)), [0, 0]);
        assert_eq!(counts("docs/a.md", wide("// ", document + 1)), [0, 1]);
        assert_eq!(counts("docs/a.md", wide("| a | ", document + 1)), [0, 0]);
    }
}
