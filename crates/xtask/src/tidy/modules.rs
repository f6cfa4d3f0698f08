//! The modules of a crate: which file holds which, what each imports, and which names it writes with a path.
//!
//! ```text
//! lib.rs   mod table;  pub use table::Table;        module ""        imports Table = table::Table
//! table.rs use crate::page::{Page, LEN};            module "table"   imports Page, LEN
//!          fn f() { super::lock::take() }                            mentions super::lock::take
//! ```
//!
//! [`Modules::file_of`] follows a path from module to module, through re-exports where that is asked for, to
//! a file. Imports with `*` are taken as naming the module in front of them, and what macros define is not
//! seen.

use std::collections::HashMap;

use super::File;
use super::source;

/// A module, in a file of its own or in braces.
struct Module {
    file: usize,
    parent: Option<usize>,
    children: HashMap<String, usize>,
    /// The paths of imports as written, by the name that they have here.
    imports: HashMap<String, Vec<String>>,
}

/// A path with at least two names, or the path of an import.
pub struct Mention {
    /// The index of the file in which it stands.
    pub file: usize,
    pub line: usize,
    pub path: Vec<String>,
    /// The name that an import gives to what it names.
    pub imported_as: Option<String>,
    module: usize,
}

/// The files of one crate, its modules and paths.
#[derive(Default)]
pub struct Modules {
    /// Paths of the files, the root first. Files that only tests have are not among them.
    pub files: Vec<String>,
    pub mentions: Vec<Mention>,
    modules: Vec<Module>,
    /// The module that a file is, by file.
    module_of_file: Vec<usize>,
}

/// The treatment of `pub use` in the file of a folder. In the root of the crate it is always followed.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Reexports {
    AsWritten,
    Followed,
}

/// The target of a path.
enum Target {
    Module(usize),
    /// Something that this module defines.
    Item(usize),
    /// Something of another crate, or a name that no module has.
    Elsewhere,
}

/// The module of `lib.rs` or `main.rs`.
const ROOT: usize = 0;

/// Imports that lead to imports that lead to ...: more than this is a circle.
const STEPS_MAX: usize = 32;

impl Modules {
    /// The modules below `root`, a `lib.rs` or `main.rs`. Takes files without comments and strings.
    pub fn read(files: &[File], root: &str) -> Modules {
        let texts: HashMap<&str, &str> =
            files.iter().map(|file| (file.path.as_str(), file.text.as_str())).collect();
        let mut modules = Modules::default();
        modules.add_file(&texts, root, None);
        modules
    }

    fn add_file(&mut self, texts: &HashMap<&str, &str>, path: &str, parent: Option<usize>) -> usize {
        let file = self.files.len();
        self.files.push(path.to_string());
        let module = self.add_module(file, parent);
        self.module_of_file.push(module);
        let declared = self.read_file(file, module, texts[path]);
        for (parent, folder, name) in declared {
            let base = folder_of_children(path);
            let folder: String = std::iter::once(base.as_str())
                .chain(folder.iter().map(String::as_str))
                .fold(String::new(), |path, part| {
                    if path.is_empty() { part.to_string() } else { format!("{path}/{part}") }
                });
            let candidates = [format!("{folder}/{name}.rs"), format!("{folder}/{name}/mod.rs")];
            if let Some(path) = candidates.iter().find(|path| texts.contains_key(path.as_str())) {
                let child = self.add_file(texts, path, Some(parent));
                self.modules[parent].children.insert(name, child);
            }
        }
        module
    }

    fn add_module(&mut self, file: usize, parent: Option<usize>) -> usize {
        self.modules.push(Module { file, parent, children: HashMap::new(), imports: HashMap::new() });
        self.modules.len() - 1
    }

    /// Reads one file; returns the modules that it declares in other files: the parent, the modules in braces
    /// on the way from the file's own, and the name.
    fn read_file(&mut self, file: usize, module: usize, code: &str) -> Vec<(usize, Vec<String>, String)> {
        let tokens = tokens(code);
        let mut declared = Vec::new();
        // Modules in braces that are open: the module, its name, the depth outside of it.
        let mut open: Vec<(usize, String, usize)> = Vec::new();
        let mut depth = 0;
        let mut at = 0;
        while at < tokens.len() {
            let here = open.last().map_or(module, |(module, ..)| *module);
            let word = |ahead: usize| tokens.get(at + ahead).map_or("", |token: &Token<'_>| token.text);
            match word(0) {
                "mod" if word(2) == ";" => {
                    let folder = open.iter().map(|(_, name, _)| name.clone()).collect();
                    declared.push((here, folder, word(1).to_string()));
                    at += 3;
                }
                "mod" if word(2) == "{" => {
                    let child = self.add_module(file, Some(here));
                    self.modules[here].children.insert(word(1).to_string(), child);
                    open.push((child, word(1).to_string(), depth));
                    depth += 1;
                    at += 3;
                }
                "use" => {
                    let line = tokens[at].line;
                    at += 1;
                    for (path, name) in use_tree(&tokens, &mut at, &[]) {
                        let imported_as = Some(name.clone());
                        self.mentions.push(Mention {
                            file,
                            line,
                            path: path.clone(),
                            imported_as,
                            module: here,
                        });
                        self.modules[here].imports.insert(name, path);
                    }
                }
                "{" => {
                    depth += 1;
                    at += 1;
                }
                "}" => {
                    depth -= 1;
                    open.pop_if(|(.., outside)| *outside == depth);
                    at += 1;
                }
                text if is_name(text) && word(1) == "::" => {
                    let line = tokens[at].line;
                    let visibility = at >= 2 && tokens[at - 1].text == "in" && tokens[at - 2].text == "(";
                    let inside = at >= 1 && tokens[at - 1].text == "::";
                    let path = plain_path(&tokens, &mut at);
                    if !visibility && !inside {
                        self.mentions.push(Mention { file, line, path, imported_as: None, module: here });
                    }
                }
                _ => at += 1,
            }
        }
        declared
    }

    /// The file that a mention leads to, if it begins with `crate` or `super`.
    ///
    /// `crate::list::View` as written leads to the file of `list`, even if that only passes on what
    /// `list/view.rs` defines, and so does an import of `crate::list`. Followed, each path leads to the file
    /// of the definition, and a name that is imported as a module is what its items are.
    pub fn file_of(&self, mention: &Mention, reexports: Reexports) -> Option<usize> {
        if !self.starts_outside(mention, reexports) {
            return None;
        }
        match self.follow(mention.module, &mention.path, reexports, 0) {
            Target::Module(module) => {
                let one_by_one = reexports == Reexports::Followed && self.is_used_as_module(mention);
                (!one_by_one).then_some(self.modules[module].file)
            }
            Target::Item(module) => Some(self.modules[module].file),
            Target::Elsewhere => None,
        }
    }

    /// The file of the definition that a path in this file leads to.
    pub fn definition(&self, file: &str, path: &[String]) -> Option<&str> {
        let file = self.files.iter().position(|path| path == file)?;
        match self.follow(self.module_of_file[file], path, Reexports::Followed, 0) {
            Target::Item(module) => Some(&self.files[self.modules[module].file]),
            Target::Module(_) | Target::Elsewhere => None,
        }
    }

    /// True for the import of a module whose items are named through it.
    fn is_used_as_module(&self, import: &Mention) -> bool {
        let through = |other: &Mention| {
            other.imported_as.is_none()
                && other.module == import.module
                && import.imported_as.as_ref() == other.path.first()
        };
        self.mentions.iter().any(through)
    }

    /// The file of the module that declares this file's.
    pub fn folder_of(&self, file: usize) -> Option<usize> {
        let parent = self.modules[self.module_of_file[file]].parent?;
        Some(self.modules[parent].file)
    }

    fn starts_outside(&self, mention: &Mention, reexports: Reexports) -> bool {
        let outside = |path: &[String]| matches!(path[0].as_str(), "crate" | "super");
        let import = self.modules[mention.module].imports.get(&mention.path[0]);
        outside(&mention.path)
            || (reexports == Reexports::Followed && import.is_some_and(|path| outside(path)))
    }

    fn follow(&self, mut module: usize, path: &[String], reexports: Reexports, steps: usize) -> Target {
        if steps > STEPS_MAX {
            return Target::Elsewhere;
        }
        for (index, name) in path.iter().enumerate() {
            let here = &self.modules[module];
            let import = here.imports.get(name).filter(|import| *import != path);
            // The root only passes on what others define; a folder's own file is what the folder shows.
            let followed = index == 0 || module == ROOT || reexports == Reexports::Followed;
            match name.as_str() {
                "crate" => module = ROOT,
                "self" => {}
                "super" => match here.parent {
                    Some(parent) => module = parent,
                    None => return Target::Elsewhere,
                },
                "*" => return Target::Item(module),
                name => match (here.children.get(name), import) {
                    (Some(child), _) => module = *child,
                    (None, Some(import)) if followed => {
                        match self.follow(module, import, reexports, steps + 1) {
                            Target::Module(found) => module = found,
                            found => return found,
                        }
                    }
                    _ if index == 0 => return Target::Elsewhere,
                    _ => return Target::Item(module),
                },
            }
        }
        Target::Module(module)
    }
}

/// Returns the folder that holds the files of a file's modules.
fn folder_of_children(path: &str) -> String {
    let (folder, name) = path.rsplit_once('/').expect("a path below crates/");
    match name {
        "lib.rs" | "main.rs" | "mod.rs" => folder.to_string(),
        name => format!("{folder}/{}", name.trim_end_matches(".rs")),
    }
}

struct Token<'a> {
    line: usize,
    text: &'a str,
}

/// Names, `::`, and each other character by itself.
fn tokens(code: &str) -> Vec<Token<'_>> {
    let bytes = code.as_bytes();
    let (mut at, mut line) = (0, 1);
    let mut tokens = Vec::new();
    while at < bytes.len() {
        let length = match bytes[at] {
            b':' if bytes.get(at + 1) == Some(&b':') => 2,
            byte if source::is_name(byte) => source::name_length(&bytes[at..]),
            _ => 1,
        };
        if bytes[at] == b'\n' {
            line += 1;
        }
        if !bytes[at].is_ascii_whitespace() {
            tokens.push(Token { line, text: &code[at..at + length] });
        }
        at += length;
    }
    tokens
}

fn is_name(text: &str) -> bool {
    source::is_name(text.as_bytes()[0])
}

/// `a::b::c` from `at` on, which is left after it.
fn plain_path(tokens: &[Token<'_>], at: &mut usize) -> Vec<String> {
    let mut path = vec![tokens[*at].text.to_string()];
    *at += 1;
    while *at + 1 < tokens.len() && tokens[*at].text == "::" && is_name(tokens[*at + 1].text) {
        path.push(tokens[*at + 1].text.to_string());
        *at += 2;
    }
    path
}

/// The paths of `a::{b, c::d as e};` from `at` on, each with the name that it gives; `at` is left after it.
fn use_tree(tokens: &[Token<'_>], at: &mut usize, before: &[String]) -> Vec<(Vec<String>, String)> {
    let mut path = before.to_vec();
    let mut found = Vec::new();
    let mut name: Option<String> = None;
    while *at < tokens.len() {
        let text = tokens[*at].text;
        *at += 1;
        match text {
            ";" => break,
            "," | "}" => {
                // The caller that reads the braces sees where they end.
                *at -= 1;
                break;
            }
            "::" => {}
            "{" => {
                while *at < tokens.len() && tokens[*at].text != "}" {
                    found.extend(use_tree(tokens, at, &path));
                    if tokens.get(*at).is_some_and(|token| token.text == ",") {
                        *at += 1;
                    }
                }
                *at += 1;
                // To the end of what encloses the braces.
                if before.is_empty() && tokens.get(*at).is_some_and(|token| token.text == ";") {
                    *at += 1;
                }
                return found;
            }
            "as" => {
                name = tokens.get(*at).map(|token| token.text.to_string());
                *at += 1;
            }
            "self" if !path.is_empty() => {}
            text => path.push(text.to_string()),
        }
    }
    if let Some(last) = path.last() {
        let name = name.unwrap_or_else(|| last.clone());
        found.push((path, name));
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(files: &[(&str, &str)]) -> Modules {
        let files: Vec<File> = files
            .iter()
            .map(|(path, text)| File { path: format!("crates/a/src/{path}"), text: text.to_string() })
            .collect();
        Modules::read(&source::files(&files), "crates/a/src/lib.rs")
    }

    /// "a.rs -> b.rs" for each mention that leads to a file.
    fn named(files: &[(&str, &str)], reexports: Reexports) -> Vec<String> {
        let modules = read(files);
        let short = |file: usize| modules.files[file].trim_start_matches("crates/a/src/").to_string();
        let named = modules.mentions.iter().filter_map(|mention| {
            Some(format!("{} -> {}", short(mention.file), short(modules.file_of(mention, reexports)?)))
        });
        named.collect()
    }

    #[test]
    fn trees_of_imports_lead_to_files() {
        let tree = [
            ("lib.rs", "mod a; mod b; mod c; pub use c::Deep as Shown;"),
            (
                "a.rs",
                "use crate::{b::{One, Two as Other}, c, Shown};\nfn f() { c::inner::g(); Shown::new() }",
            ),
            ("b.rs", "use std::fmt;\nfn f() { super::a::f(); fmt::x() }"),
            ("c/mod.rs", "pub mod inner; pub use inner::Deep; use inner::x;"),
            ("c/inner.rs", "pub(in crate::c) fn g() { super::Deep::new() }"),
        ];
        let mut followed = named(&tree, Reexports::Followed);
        followed.dedup();
        assert_eq!(
            followed,
            ["a.rs -> b.rs", "a.rs -> c/inner.rs", "b.rs -> a.rs", "c/inner.rs -> c/inner.rs"]
        );
        let mut written = named(&tree, Reexports::AsWritten);
        written.dedup();
        assert_eq!(written, ["a.rs -> b.rs", "a.rs -> c/mod.rs", "b.rs -> a.rs", "c/inner.rs -> c/mod.rs"]);
    }

    #[test]
    fn modules_in_braces_belong_to_their_file() {
        let tree = [
            ("lib.rs", "mod a; mod b;"),
            ("a.rs", "mod inner { use super::X; fn f() { super::super::b::g() } }\nfn h() { crate::b::g() }"),
            ("b.rs", "use crate::a::inner::f;"),
        ];
        assert_eq!(
            named(&tree, Reexports::AsWritten),
            ["a.rs -> a.rs", "a.rs -> b.rs", "a.rs -> b.rs", "b.rs -> a.rs"]
        );
    }

    #[test]
    fn files_of_tests_are_not_read() {
        let tree =
            [("lib.rs", "mod a;\n#[cfg(test)]\nmod tests;"), ("a.rs", ""), ("tests.rs", "use crate::a::f;")];
        assert_eq!(read(&tree).files.len(), 2);
    }
}
