//! Objects spread over files: a type whose methods stand in many files does many things.

use super::{File, Measure, has_word};

/// Folder of a crate and type.
const TYPES: [(&str, &str); 3] = [("server", "Node"), ("server", "Dispatcher"), ("keyspace", "Store")];

/// Files that hold an `impl Type`; implementations of traits do not count. Takes files without comments and strings.
pub fn measures(code: &[File]) -> Vec<Measure> {
    TYPES
        .into_iter()
        .map(|(name, what)| {
            let folder = format!("crates/{name}/src/");
            let holds = |file: &&File| {
                file.path.starts_with(&folder) && file.text.lines().any(|line| is_impl_of(line, what))
            };
            let places = code.iter().filter(holds).map(|file| file.path.clone()).collect();
            Measure::of_places(format!("files with impl {what}"), places)
        })
        .collect()
}

/// `impl Node {`, `impl<'a> Node<'a> {`, but not `impl Drop for Node {` nor `impl NodeId {`.
fn is_impl_of(line: &str, what: &str) -> bool {
    let Some(rest) = line.trim_start().strip_prefix("impl") else { return false };
    let header = rest.split(" where").next().unwrap_or(rest);
    !has_word(header, "for")
        && without_parameters(header).trim_start().starts_with(what)
        && has_word(header, what)
}

/// `impl<...>` without what stands in the first angle brackets.
fn without_parameters(header: &str) -> &str {
    let mut depth = 0;
    for (at, c) in header.char_indices() {
        match c {
            '<' => depth += 1,
            '>' => depth -= 1,
            _ => {}
        }
        if depth == 0 {
            return if c == '>' { &header[at + 1..] } else { header };
        }
    }
    header
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_methods_of_the_type_itself_count() {
        assert!(is_impl_of("impl Node {", "Node"));
        assert!(is_impl_of("impl<'a, T: Of<u8>> Node<'a, T> {", "Node"));
        assert!(is_impl_of("    impl super::Node {".replace("super::", "").as_str(), "Node"));
        assert!(!is_impl_of("impl Drop for Node {", "Node"));
        assert!(!is_impl_of("impl NodeId {", "Node"));
        assert!(!is_impl_of("fn f() -> impl Node", "Node"));
    }
}
