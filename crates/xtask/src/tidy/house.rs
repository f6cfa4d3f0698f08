//! Files that every checkout has: the documents of the project, a first sentence in every source file, links
//! that resolve.

use std::collections::HashSet;

use super::{File, Finding, whole};

const PAPERS: [&str; 15] = [
    "ARCHITECTURE.md",
    "CHANGELOG.md",
    "COMPARE.md",
    "COMPAT.md",
    "CONTRIBUTING.md",
    "Cargo.lock",
    "Cargo.toml",
    "LICENSE",
    "NOTICE",
    "README.md",
    ".cargo/config.toml",
    ".ci/run",
    "deny.toml",
    "docs/glossary.md",
    "rust-toolchain.toml",
];

pub fn check(files: &[File]) -> Vec<Finding> {
    let paths: HashSet<&str> = files.iter().map(|file| file.path.as_str()).collect();
    let mut findings: Vec<Finding> =
        PAPERS.iter().filter(|paper| !paths.contains(**paper)).map(|paper| whole(paper, "missing")).collect();
    let map = files.iter().find(|file| file.path == "ARCHITECTURE.md").map_or("", |file| file.text.as_str());
    for file in files {
        findings.extend(check_opening(file));
        findings.extend(check_place_in_map(file, map));
        findings.extend(check_links(file, &paths));
    }
    findings
}

/// A source file opens with its idea.
fn check_opening(file: &File) -> Option<Finding> {
    let source =
        file.path.starts_with("crates/") && file.path.contains("/src/") && file.path.ends_with(".rs");
    let opens = file.text.starts_with("//!") || file.path.ends_with("tests.rs");
    (source && !opens).then(|| whole(&file.path, "does not open with its idea (`//! ...`)"))
}

/// Every crate stands in ARCHITECTURE.md's code map.
fn check_place_in_map(file: &File, map: &str) -> Option<Finding> {
    let folder = file.path.strip_suffix("/Cargo.toml").filter(|folder| folder.starts_with("crates/"))?;
    (!map.contains(&format!("`{folder}`")))
        .then(|| whole(&file.path, format!("ARCHITECTURE.md does not place `{folder}`")))
}

/// `[text](file)` in Markdown leads to a file or folder of the checkout.
fn check_links(file: &File, paths: &HashSet<&str>) -> Vec<Finding> {
    if !file.path.ends_with(".md") {
        return Vec::new();
    }
    let folder = file.path.rsplit_once('/').map_or("", |(folder, _)| folder);
    let mut findings = Vec::new();
    for (index, line) in file.text.lines().enumerate() {
        for link in line.split("](").skip(1).filter_map(|rest| rest.split([')', '#']).next()) {
            if link.is_empty() || link.contains("://") || link.starts_with("mailto:") {
                continue;
            }
            let target = resolve(folder, link);
            let inside = format!("{target}/");
            if !paths.contains(target.as_str()) && !paths.iter().any(|path| path.starts_with(&inside)) {
                findings.push(Finding {
                    path: file.path.clone(),
                    line: index + 1,
                    what: format!("a link to nowhere: {link}"),
                });
            }
        }
    }
    findings
}

/// The path of `link` as seen from `folder`, without `.` and `..`.
pub fn resolve(folder: &str, link: &str) -> String {
    let mut parts: Vec<&str> = folder.split('/').filter(|part| !part.is_empty()).collect();
    for part in link.split('/') {
        match part {
            "" | "." => {}
            ".." => drop(parts.pop()),
            part => parts.push(part),
        }
    }
    parts.join("/")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(path: &str, text: &str) -> Vec<String> {
        let papers = PAPERS.iter().map(|paper| File { path: paper.to_string(), text: String::new() });
        let mut files: Vec<File> = papers.filter(|file| file.path != path).collect();
        files.push(File { path: path.to_string(), text: text.to_string() });
        check(&files).into_iter().map(|finding| finding.what).collect()
    }

    #[test]
    fn catches_links_to_nowhere() {
        assert_eq!(found("README.md", "see [map](ARCHITECTURE.md#code-map)"), [""; 0]);
        assert_eq!(found("docs/a.md", "see [map](../ARCHITECTURE.md), [site](https://example.org)"), [""; 0]);
        assert_eq!(found("docs/a.md", "see [map](ARCHITECTURE.md)"), ["a link to nowhere: ARCHITECTURE.md"]);
    }

    #[test]
    fn catches_files_without_an_idea_and_crates_without_a_place() {
        assert_eq!(found("crates/a/src/lib.rs", "use x;\n").len(), 1);
        assert_eq!(found("crates/a/src/lib.rs", "//! Idea.\n").len(), 0);
        assert_eq!(found("crates/a/Cargo.toml", "").len(), 1);
        assert_eq!(check(&[]).len(), PAPERS.len());
    }
}
