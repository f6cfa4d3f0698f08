//! Retired words in sources: in names and comments. Texts of messages are read by `words`.
//!
//! ```text
//! read_letters(WorkerLetter)    // nobody reads     ->     read letters worker letter    nobody reads
//! ```
//! A name is read as its words. No file is excused: where one of these words has a proper sense (letters of a
//! text), another word has it too (characters).

use super::words::RETIRED;
use super::{File, Finding, has_word, source};

/// Words that only documents do not use: sources have last words of bit sets, and fields of hashes.
const OF_DOCUMENTS: [&str; 4] = ["last word", "of the field", "in the field", "the field's"];

/// Words that take the place of those in sources.
const OF_SOURCES: [(&[&str], &str); 1] = [(
    &["as the field", "the field does", "the field would", "the field keeps", "the field has"],
    "Valkey: a field is one of a hash, of INFO or of a struct",
)];

pub fn check(files: &[File]) -> Vec<Finding> {
    let mut findings = Vec::new();
    for file in files.iter().filter(|file| is_read(&file.path)) {
        let text = source::names_and_comments(&file.text);
        for (index, line) in text.lines().enumerate() {
            let line = as_words(line);
            findings.extend(retired().filter(|(word, _)| has_word(&line, word)).map(|(word, say)| Finding {
                path: file.path.clone(),
                line: index + 1,
                what: format!("`{word}` is retired; {say}"),
            }));
        }
    }
    findings
}

/// All sources, but for this folder's lists of words.
fn is_read(path: &str) -> bool {
    let is_ours = path.starts_with("crates/") || path.starts_with("fuzz/");
    let holds_the_list = path.ends_with("/tidy/words.rs") || path.ends_with("/tidy/source_words.rs");
    is_ours && path.ends_with(".rs") && !holds_the_list
}

fn retired() -> impl Iterator<Item = (&'static str, &'static str)> {
    let all = RETIRED.iter().chain(&OF_SOURCES);
    let each = all.flat_map(|(words, say)| words.iter().map(move |word| (*word, *say)));
    each.filter(|(word, _)| !OF_DOCUMENTS.contains(word))
}

/// A line in lower case, its names as separate words.
fn as_words(line: &str) -> String {
    let mut words = String::with_capacity(line.len() + 16);
    let mut before = ' ';
    for c in line.chars() {
        if c.is_uppercase() && before.is_lowercase() {
            words.push(' ');
        }
        words.extend(if c == '_' { ' ' } else { c }.to_lowercase());
        before = c;
    }
    words
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(text: &str) -> usize {
        check(&[File { path: "crates/a/src/lib.rs".to_string(), text: text.to_string() }]).len()
    }

    #[test]
    fn catches_words_of_comments() {
        assert_eq!(found("//! INFO tells what\n/// whoever asks\nlet a = 1; // nobody\n"), 3);
        assert_eq!(found("// as the field does; the field's time, in the field"), 2);
        assert_eq!(found("// bookkeeping, the intellect, `unbooked`"), 0);
    }

    #[test]
    fn catches_words_of_names() {
        assert_eq!(found("fn tell_all() {}\nstruct WorkerLetter;\nconst BOOKS_MAX: u8 = 0;"), 3);
        assert_eq!(found("fn intelligence() { stall(UNBOOKED) }"), 0);
    }

    #[test]
    fn leaves_texts_alone() {
        assert_eq!(found("let a = \"nobody // tells\"; let b = br#\"books\"#;"), 0);
    }
}
