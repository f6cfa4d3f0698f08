//! Objects spread over files: a type whose methods stand in many files does many things.
//!
//! ```text
//! impl Held {  in reading.rs, writing.rs, expiry.rs, rename.rs, copy.rs:  five, so it needs a ceiling
//! ```
//!
//! Count: files below a crate's sources with an `impl Type`; implementations of traits do not count.
//! Types of one name in one crate are kept apart by the file that an import leads to. Methods that a macro
//! writes are not seen.

use std::collections::{BTreeMap, BTreeSet};

use super::modules::Modules;
use super::{File, Measure, circles, has_word};

/// Files that the methods of a type may stand in.
const FILES_MAX: usize = 4;

/// Types that are watched below that too, by folder of the crate.
const WATCHED: [(&str, &str); 3] = [("node", "Node"), ("engine", "Dispatcher"), ("keyspace", "Store")];

/// An `impl` of a type's own methods.
struct Impl<'a> {
    file: &'a File,
    line: usize,
    /// The type, with the modules that are named before it.
    path: Vec<String>,
}

/// Counts the files of each type that has too many, and of each that is watched. Takes files without comments
/// and strings.
pub fn measures(code: &[File]) -> Vec<Measure> {
    circles::roots(code).iter().flat_map(|(name, root)| measures_of(code, name, root)).collect()
}

fn measures_of(code: &[File], name: &str, root: &str) -> Vec<Measure> {
    let folder = format!("crates/{name}/src/");
    let files: Vec<&File> =
        code.iter().filter(|file| file.path.starts_with(&folder) && file.path.ends_with(".rs")).collect();
    let mut impls: BTreeMap<String, Vec<Impl<'_>>> = BTreeMap::new();
    for found in files.iter().flat_map(|file| impls_in(file)) {
        impls.entry(found.path.last().cloned().unwrap_or_default()).or_default().push(found);
    }
    let mut measures = Vec::new();
    for (what, impls) in impls {
        let is_watched = WATCHED.contains(&(name, what.as_str()));
        if !is_watched && files_of(&impls).len() <= FILES_MAX {
            continue;
        }
        for (definition, impls) in by_definition(code, root, &files, &what, impls) {
            let places = files_of(&impls);
            if is_watched || places.len() > FILES_MAX {
                let which = definition.map_or(String::new(), |path| format!(" of {}", &path[folder.len()..]));
                let allowed = if is_watched { 0 } else { FILES_MAX };
                measures.push(Measure {
                    name: format!("files with impl {what}{which}, {name}"),
                    places,
                    allowed,
                });
            }
        }
    }
    measures
}

/// The implementations of types of one name, apart; with the file of each type if there are several.
fn by_definition<'a>(
    code: &[File],
    root: &str,
    files: &[&'a File],
    what: &str,
    impls: Vec<Impl<'a>>,
) -> Vec<(Option<String>, Vec<Impl<'a>>)> {
    let defining: BTreeSet<&str> =
        files.iter().filter(|file| defines(&file.text, what)).map(|file| file.path.as_str()).collect();
    if defining.len() < 2 {
        return vec![(None, impls)];
    }
    let modules = Modules::read(code, root);
    let mut groups: BTreeMap<String, Vec<Impl<'a>>> = BTreeMap::new();
    for found in impls {
        let own = found.file.path.as_str();
        let is_own = found.path.len() == 1 && defining.contains(own);
        let definition = if is_own { own } else { modules.definition(own, &found.path).unwrap_or(own) };
        groups.entry(definition.to_string()).or_default().push(found);
    }
    groups.into_iter().map(|(path, impls)| (Some(path), impls)).collect()
}

/// The first place in each file.
fn files_of(impls: &[Impl<'_>]) -> Vec<String> {
    let mut first: BTreeMap<&str, usize> = BTreeMap::new();
    for found in impls {
        first.entry(&found.file.path).or_insert(found.line);
    }
    first.into_iter().map(|(path, line)| format!("{path}:{line}")).collect()
}

fn defines(text: &str, what: &str) -> bool {
    let words = ["struct", "enum", "union"];
    text.lines().any(|line| has_word(line, what) && words.iter().any(|word| is_named(line, word, what)))
}

/// `struct Node<T> {`: the word, then the name.
fn is_named(line: &str, word: &str, what: &str) -> bool {
    let rest = line.split_once(word).and_then(|(_, rest)| rest.trim_start().strip_prefix(what));
    rest.is_some_and(|rest| !rest.starts_with(|c: char| c.is_alphanumeric() || c == '_'))
}

fn impls_in(file: &File) -> Vec<Impl<'_>> {
    let mut found = Vec::new();
    let mut at = 0;
    for (index, line) in file.text.split_inclusive('\n').enumerate() {
        let indent = line.len() - line.trim_start().len();
        if let Some(path) =
            line[indent..].strip_prefix("impl").and_then(|_| path(&file.text[at + indent + 4..]))
        {
            found.push(Impl { file, line: index + 1, path });
        }
        at += line.len();
    }
    found
}

/// The type of `<'a, T> a::Node<'a, T> where .. {`, which follows an `impl`; none of `Drop for Node {`.
fn path(rest: &str) -> Option<Vec<String>> {
    let header = &rest[..rest.find('{')?];
    if !header.starts_with([' ', '<', '\n']) {
        return None;
    }
    let header = without_parameters(header).trim_start();
    let header = header.split("where").next().unwrap_or(header);
    let end = header.find(|c: char| !c.is_alphanumeric() && c != '_' && c != ':').unwrap_or(header.len());
    let path = &header[..end];
    (!has_word(header, "for") && !path.is_empty()).then(|| path.split("::").map(str::to_string).collect())
}

/// A header without the angle brackets that it begins with.
fn without_parameters(header: &str) -> &str {
    let mut depth = 0;
    let mut before = ' ';
    for (at, c) in header.char_indices() {
        match c {
            '<' => depth += 1,
            '>' if before != '-' => depth -= 1,
            _ => {}
        }
        if depth == 0 {
            return if c == '>' { &header[at + 1..] } else { header };
        }
        before = c;
    }
    header
}

#[cfg(test)]
mod tests {
    use super::*;

    fn type_of(line: &str) -> Option<String> {
        path(line.strip_prefix("impl")?).map(|path| path.join("::"))
    }

    #[test]
    fn only_the_methods_of_the_type_itself_count() {
        assert_eq!(type_of("impl Node {").as_deref(), Some("Node"));
        assert_eq!(type_of("impl<'a, T: Of<u8>> Node<'a, T>\nwhere\n    T: X,\n{").as_deref(), Some("Node"));
        assert_eq!(type_of("impl<F: Fn(u8) -> u8> super::Node<F> {").as_deref(), Some("super::Node"));
        assert_eq!(type_of("impl Drop\n    for Node {"), None);
        assert_eq!(type_of("implement! {"), None);
    }

    /// Name, count and count that needs no line, in a crate of five files of methods.
    fn counted_in(name: &str, lib: &str, header: &str) -> Vec<(String, usize, usize)> {
        let text = format!("use super::Kept;\n{header} {{}}\nimpl Drop for Other {{}}\n");
        let mut tree = vec![("Cargo.toml", String::new()), ("src/lib.rs", lib.to_string())];
        tree.push(("src/kept.rs", "pub struct Kept<T>(T);\nimpl<T> Kept<T> {}\n".to_string()));
        tree.extend(["a", "b", "c", "d"].map(|name| (name, text.clone())));
        let file = |(path, text): (&str, String)| {
            let path = if path.len() == 1 { format!("src/{path}.rs") } else { path.to_string() };
            File { path: format!("crates/{name}/{path}"), text }
        };
        let files: Vec<File> = tree.into_iter().map(file).collect();
        measures(&files).into_iter().map(|found| (found.name.clone(), found.count(), found.allowed)).collect()
    }

    fn counted(lib: &str, header: &str) -> Vec<(String, usize, usize)> {
        counted_in("server", lib, header)
    }

    const LIB: &str = "mod a; mod b; mod c; mod d; mod kept; use kept::Kept;\n";

    #[test]
    fn a_type_in_more_than_four_files_is_measured() {
        assert_eq!(counted(LIB, "impl Kept<u8>"), [("files with impl Kept, server".to_string(), 5, 4)]);
        assert_eq!(counted(LIB, "impl Other"), []);
        assert_eq!(counted(LIB, "impl Node"), []);
        let of_node = counted_in("node", LIB, "impl Node");
        assert_eq!(of_node, [("files with impl Node, node".to_string(), 4, 0)]);
    }

    #[test]
    fn types_of_one_name_are_kept_apart() {
        let lib = format!("{LIB}enum Deep {{ A }}\nmod deep {{ struct Kept; impl Kept {{}} }}\n");
        let name = "files with impl Kept of kept.rs, server".to_string();
        assert_eq!(counted(&lib, "impl Kept<u8>"), [(name, 5, 4)]);
    }
}
