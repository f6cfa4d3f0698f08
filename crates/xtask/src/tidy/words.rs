//! Words that documents and messages to users no longer use, with what to say instead. `source_words` reads
//! the sources.
//!
//! Standard terms are understood by people who have never seen this project; private ones have to be learned
//! first. Documents are all `*.md`; messages are the texts of parameters, lines of the log, and the output of
//! the tools.

use super::{File, Finding, has_word};

/// Words that are refused, and what to say instead. Whole words, in any case.
pub(super) const RETIRED: [(&[&str], &str); 13] = [
    (&["tell", "tells", "told"], "say what it does: report, notify, emit, send, write, account for"),
    (
        &["whoever", "nobody", "somebody", "everybody"],
        "name the actor: the client, the owning worker, all threads",
    ),
    (&["he", "him", "his"], "name the actor: a client or a thread is not a person"),
    (&["aloud"], "a skip is reported, with its reason"),
    (&["letter", "letters"], "message: mailboxes hold messages; a text has characters"),
    (&["hearer", "hearers"], "subscriber"),
    (&["crowd", "crowded", "uncrowded"], "backpressure, or queued bytes"),
    (&["stranger", "strangers"], "unauthenticated client"),
    (&["books", "booked"], "memory accounting, accounted for"),
    (
        &["of the field", "in the field", "the field's"],
        "Valkey: a field is one of a hash, of INFO or of a struct",
    ),
    (&["last word"], "it overrides the others"),
    (&["in vain"], "without effect"),
    (&["doomed", "untidy"], "pending free, has garbage"),
];

/// Calls and attributes whose texts users read.
const MESSAGES: [&str; 9] = [
    ".works(",
    ".no_effect(",
    ".fixed(",
    "log::debug(",
    "log::verbose(",
    "log::notice(",
    "log::warning(",
    "println!(",
    "print!(",
];

/// Valkey's own texts, which stay as they are.
const VALKEYS: [&str; 1] = ["Possible SECURITY ATTACK detected."];

/// Constants that hold a page of text, to the line that ends it.
const PAGES: [&str; 4] = ["const HELP: &str", "const USAGE: &str", "const ABOUT: &str", "const HEAD: &str"];

/// Number of lines of its call within which a message ends.
const MESSAGE_LINES_MAX: usize = 6;

pub fn check(files: &[File]) -> Vec<Finding> {
    let mut findings = Vec::new();
    for file in files {
        if file.path.ends_with(".md") {
            for (index, line) in file.text.lines().enumerate() {
                findings.extend(retired(file, index, line));
            }
        } else if file.path.starts_with("crates/")
            && file.path.contains("/src/")
            && file.path.ends_with(".rs")
        {
            check_messages(file, &mut findings);
        }
    }
    findings
}

/// The string literals of calls that write messages. Inline tests are read too: what they expect is what
/// users see.
fn check_messages(file: &File, findings: &mut Vec<Finding>) {
    // Lines of the message under way that are still to be read.
    let mut left = 0;
    let mut in_page = false;
    for (index, line) in file.text.lines().enumerate() {
        in_page |= PAGES.iter().any(|page| line.contains(page)) && line.ends_with('\\');
        if in_page {
            findings.extend(retired(file, index, line));
            in_page = line.trim_end() != "\";";
            continue;
        }
        if MESSAGES.iter().any(|call| line.contains(call)) {
            left = MESSAGE_LINES_MAX;
        }
        if left > 0 && !VALKEYS.iter().any(|text| line.contains(text)) {
            findings.extend(retired(file, index, &quoted(line)));
        }
        let ends = line.trim_end().ends_with([';', ',']);
        left = if ends { 0 } else { left.saturating_sub(1) };
    }
}

/// The parts of a line of code that stand between quotes, or the whole line if a text continues there.
fn quoted(line: &str) -> String {
    if !line.contains('"') {
        return String::new();
    }
    line.split('"').skip(1).step_by(2).collect::<Vec<&str>>().join(" ")
}

fn retired(file: &File, index: usize, line: &str) -> Vec<Finding> {
    let lower = line.to_lowercase();
    let found = RETIRED.iter().flat_map(|(words, say)| {
        words.iter().filter(|word| has_word(&lower, word)).map(move |word| (word, say))
    });
    found
        .map(|(word, say)| Finding {
            path: file.path.clone(),
            line: index + 1,
            what: format!("`{word}` is retired; {say}"),
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(path: &str, text: &str) -> usize {
        check(&[File { path: path.to_string(), text: text.to_string() }]).len()
    }

    #[test]
    fn catches_words_of_documents() {
        assert_eq!(found("README.md", "INFO tells what\nwhoever asks"), 2);
        assert_eq!(found("docs/a.md", "The error texts of the field."), 1);
        assert_eq!(found("docs/a.md", "A hash field; the intellect; `unbooked`; bookkeeping"), 0);
    }

    #[test]
    fn catches_words_of_messages() {
        let path = "crates/a/src/lib.rs";
        assert_eq!(found(path, "log::notice(\"nobody asks\");"), 1);
        assert_eq!(found(path, "log::warning(format!(\n    \"told by {}\",\n    name\n));"), 1);
        assert_eq!(found(path, "flag(\"a\", true).works(\"Nobody asks.\"),"), 1);
        assert_eq!(found(path, "const HELP: &str = \"\\\nuse\nnobody\n\";\nlet he = 1;"), 1);
        assert_eq!(found(path, "// nobody reads this\nlet told = tell(\"x\");"), 0);
        assert_eq!(found("crates/a/tests/a.rs", "println!(\"nobody\");"), 0);
    }
}
