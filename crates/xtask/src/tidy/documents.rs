//! Claims of documents that the checkout proves: commands that can be typed, paths that exist, links to parts
//! of a page.
//!
//! ```text
//! `cargo xtask bench speed --only new`    a command of xtask, a kind of bench, a row of that kind     -> commands
//! `crates/tier/src/log.rs`                a file or a folder                                          -> paths
//! [the log](durability.md#the-log)        a heading of that page                                      -> parts
//! ```
//! Commands, parameters, fields of INFO and metrics need a running server:
//! `crates/server/tests/it/documents.rs` asks one.

use std::collections::HashSet;

use super::house::resolve;
use super::{File, Finding};

mod commands;

/// Folders of the checkout whose paths documents write in full.
const FOLDERS: [&str; 4] = ["crates/", "docs/", "fuzz/", "packaging/"];

pub fn check(files: &[File]) -> Vec<Finding> {
    let checkout = commands::Checkout::of(files);
    let paths: HashSet<&str> = files.iter().map(|file| file.path.as_str()).collect();
    let mut findings = Vec::new();
    for page in files.iter().filter(|file| file.path.ends_with(".md")) {
        for Span { at, text } in spans(&page.text) {
            let what = match (command_of(&text), is_path(&text)) {
                (Some(command), _) => checkout.fault(command),
                (None, true) if !exists(&text, &paths) => Some(format!("no file or folder: {text}")),
                _ => None,
            };
            findings.extend(what.map(|what| finding(page, at, what)));
        }
        findings.extend(check_parts(page, files));
    }
    findings
}

fn finding(page: &File, at: usize, what: String) -> Finding {
    let line = page.text[..at].matches('\n').count() + 1;
    Finding { path: page.path.clone(), line, what }
}

/// A text in backticks, or a line of a block of code.
#[derive(Debug, PartialEq)]
struct Span {
    /// Byte of the page.
    at: usize,
    text: String,
}

/// The spans of a page, with one space where a line ends inside of one.
fn spans(page: &str) -> Vec<Span> {
    let mut found = Vec::new();
    let (mut at, mut is_fenced) = (0, false);
    let mut prose = String::new();
    for line in page.split_inclusive('\n') {
        let is_fence = line.trim_start().starts_with("```");
        is_fenced ^= is_fence;
        let is_code = is_fence || is_fenced || line.starts_with("    ");
        if is_code && !is_fence {
            found.push(Span { at, text: line.trim().to_string() });
        }
        // Code and the ends of paragraphs are as long in `prose` as in the page, and close an open backtick.
        match is_code || line.trim().is_empty() {
            true => prose.push_str(&"\n".repeat(line.len())),
            false => prose.push_str(line),
        }
        at += line.len();
    }
    let mut start = 0;
    for paragraph in prose.split_inclusive("\n\n") {
        let mut at = start;
        for (index, part) in paragraph.split('`').enumerate() {
            if index % 2 == 1 {
                let text = part.split_whitespace().collect::<Vec<_>>().join(" ");
                found.push(Span { at, text });
            }
            at += part.len() + 1;
        }
        start += paragraph.len();
    }
    found
}

/// The command of a span that runs cargo, without variables of the environment in front and a comment after
/// it.
fn command_of(span: &str) -> Option<&str> {
    let start = match span.find("cargo ")? {
        0 => 0,
        at if span[..at].split_whitespace().all(|word| word.contains('=')) => at,
        _ => return None,
    };
    span[start..].split(['#', '|', '>']).next().map(str::trim)
}

/// True if the span is a path of the checkout and no pattern of paths.
fn is_path(span: &str) -> bool {
    FOLDERS.iter().any(|folder| span.starts_with(folder) && span.len() > folder.len())
        && !span.contains([' ', '*', '<', '{', '|'])
}

fn exists(path: &str, paths: &HashSet<&str>) -> bool {
    let path = path.split(':').next().unwrap_or(path).trim_end_matches('/');
    let inside = format!("{path}/");
    paths.contains(path) || paths.iter().any(|file| file.starts_with(&inside))
}

/// `[text](page.md#part)`: the page has such a heading. Whether the page exists is checked by `house`.
fn check_parts(page: &File, files: &[File]) -> Vec<Finding> {
    let folder = page.path.rsplit_once('/').map_or("", |(folder, _)| folder);
    let mut findings = Vec::new();
    for (at, _) in page.text.match_indices("](") {
        let link = page.text[at + 2..].split(')').next().unwrap_or_default();
        let Some((target, part)) = link.split_once('#').filter(|_| !link.contains("://")) else { continue };
        let target = if target.is_empty() { page.path.clone() } else { resolve(folder, target) };
        let Some(target) = files.iter().find(|file| file.path == target) else { continue };
        if !headings(&target.text).any(|heading| heading == part) {
            findings.push(finding(page, at, format!("no such heading: {link}")));
        }
    }
    findings
}

/// The headings of a page, as links name them.
fn headings(page: &str) -> impl Iterator<Item = String> {
    page.lines().filter(|line| line.starts_with('#')).map(|line| {
        let text = line.trim_start_matches('#').trim().to_lowercase();
        let kept = text.chars().filter(|c| c.is_alphanumeric() || [' ', '-', '_'].contains(c));
        kept.map(|c| if c == ' ' { '-' } else { c }).collect()
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn file(path: &str, text: &str) -> File {
        File { path: path.to_string(), text: text.to_string() }
    }

    fn texts(page: &str) -> Vec<String> {
        spans(page).into_iter().map(|span| span.text).collect()
    }

    #[test]
    fn spans_of_prose_and_code() {
        assert_eq!(texts("a `b\nc` d\n"), ["b c"]);
        assert_eq!(texts("x\n\n    cargo test    # all\n\ny `z`\n"), ["cargo test    # all", "z"]);
        assert_eq!(texts("```\ncargo run\n```\n`q`\n"), ["cargo run", "q"]);
        assert_eq!(texts("an open ` here\n\nends `there`\n"), [" here".trim(), "there"]);
        let page = "one\n`two`\n";
        assert_eq!(finding(&file("a.md", page), spans(page)[0].at, String::new()).line, 2);
    }

    #[test]
    fn commands_behind_variables() {
        assert_eq!(command_of("SEEDS=0..5 cargo test -p x"), Some("cargo test -p x"));
        assert_eq!(command_of("cargo xtask start   # builds"), Some("cargo xtask start"));
        assert_eq!(command_of("the cargo of a ship"), None);
    }

    #[test]
    fn catches_paths_to_nowhere() {
        let source = file("crates/a/src/lib.rs", "");
        let found = |text: &str| check(&[source_of(&source), file("a.md", text)]).len();
        assert_eq!(found("`crates/a/src/lib.rs`, `crates/a`, `crates/*/src`, `crates/a/src/lib.rs:7`"), 0);
        assert_eq!(found("`crates/b`"), 1);
        assert_eq!(found("`docs/none.md`"), 1);
    }

    fn source_of(file: &File) -> File {
        File { path: file.path.clone(), text: file.text.clone() }
    }

    #[test]
    fn catches_links_to_missing_parts() {
        let page = || file("docs/b.md", "# Top\n\n## The log, in parts\n");
        let found = |link: &str| check(&[page(), file("docs/a.md", link)]);
        assert_eq!(found("[x](b.md#the-log-in-parts), [y](https://a.b/#c)"), []);
        assert_eq!(found("[x](b.md#the-logs)").len(), 1);
        assert_eq!(found("## Own\n\n[x](#own)"), []);
        assert_eq!(found("## Own\n\n[x](#owns)").len(), 1);
    }
}
