//! Circles of files: those of a crate that name each other by `crate::` or `super::`, directly or through
//! others.
//!
//! Cargo keeps circles between crates out; inside a crate the compiler does not. To understand one file of a
//! circle is to understand them all, so the largest circle of each crate has a ceiling, and the ceiling only
//! falls.
//!
//! ```text
//! txn.rs -> partition.rs -> table.rs        the largest circle of this crate has 3 files;
//!   ^                          |            without the arrow table.rs -> txn.rs it has none
//!   +--------------------------+
//! ```
//!
//! Count: comments, strings and `#[cfg(test)]` items are blank. A path that begins with `crate` or
//! `super` is an arrow to the file of the module that it leads to; what `lib.rs` re-exports is followed to
//! where it comes from. A file that names the module it is declared in (its folder's `mod.rs`) is kept apart,
//! and so is a module that names its children by a relative path: so to make a folder of a file changes
//! nothing.
//!
//! A folder whose `mod.rs` re-exports what its files define hides arrows from that count. For the two large
//! crates there is a second one, `followed`: through every re-export to the file of the definition, and also
//! from names that an import of a module makes short.

use std::collections::{BTreeMap, BTreeSet};

use super::modules::{Modules, Reexports};
use super::{File, Measure, folders};

/// The files of one crate, with the arrows between them.
pub struct Graph {
    pub files: Vec<String>,
    /// The names by which one file names another, with the line of the first.
    pub arrows: BTreeMap<(usize, usize), (usize, BTreeSet<String>)>,
}

/// The crates of the checkout: folder and root file.
pub fn roots(files: &[File]) -> Vec<(String, String)> {
    let has = |path: &str| files.iter().any(|file| file.path == path);
    let mut roots = Vec::new();
    for file in files {
        let Some(name) = file.path.strip_prefix("crates/").and_then(|path| path.strip_suffix("/Cargo.toml"))
        else {
            continue;
        };
        let candidates = ["lib.rs", "main.rs"].map(|root| format!("crates/{name}/src/{root}"));
        if let Some(root) = candidates.into_iter().find(|root| has(root)) {
            roots.push((name.to_string(), root));
        }
    }
    roots
}

/// Crates with ceilings of their own: large enough to have folders that re-export.
const LARGE: [&str; 3] = ["keyspace", "node", "server"];

/// The largest circle of each large crate, and the largest of all others; the folders of each crate, by the
/// same arrows. Takes files without comments and strings.
pub fn measures(files: &[File]) -> Vec<Measure> {
    let mut measures = Vec::new();
    let mut elsewhere = Measure::of_places("circle elsewhere".to_string(), Vec::new());
    for (name, root) in roots(files) {
        let modules = Modules::read(files, &root);
        let measure = Graph::of(&modules, Reexports::AsWritten).measure(format!("circle {name}"));
        let followed = Graph::of(&modules, Reexports::Followed);
        if LARGE.contains(&name.as_str()) {
            measures.push(measure);
            measures.push(followed.measure(format!("circle {name} followed")));
        } else if measure.count() > elsewhere.count() {
            elsewhere = Measure { name: elsewhere.name, ..measure };
        }
        measures.push(folders::measure(&name, &followed));
    }
    measures.push(elsewhere);
    measures
}

/// Returns the text of `tidy --circles`: each crate's largest circle, its arrows, and what the circle is
/// without each of them.
pub fn report(files: &[File], crates: &[String], reexports: Reexports) -> String {
    let asked = |name: &String| crates.is_empty() || crates.contains(name);
    let crates = roots(files).into_iter().filter(|(name, _)| asked(name));
    crates.map(|(name, root)| Graph::of(&Modules::read(files, &root), reexports).report(&name)).collect()
}

impl Graph {
    fn of(modules: &Modules, reexports: Reexports) -> Graph {
        let mut arrows: BTreeMap<(usize, usize), (usize, BTreeSet<String>)> = BTreeMap::new();
        for mention in &modules.mentions {
            let Some(to) = modules.file_of(mention, reexports) else { continue };
            if to == mention.file || modules.folder_of(mention.file) == Some(to) {
                continue;
            }
            let (_, names) = arrows.entry((mention.file, to)).or_insert((mention.line, BTreeSet::new()));
            names.extend(mention.path.last().cloned());
        }
        Graph { files: modules.files.clone(), arrows }
    }

    fn measure(&self, name: String) -> Measure {
        let circle = self.largest_circle(None);
        let places: Vec<String> = circle.iter().map(|file| self.files[*file].clone()).collect();
        // A file by itself is no circle.
        Measure::of_places(name, if places.len() > 1 { places } else { Vec::new() })
    }

    /// The files of the largest circle, if one arrow were not there.
    fn largest_circle(&self, without: Option<(usize, usize)>) -> Vec<usize> {
        let mut next: Vec<Vec<usize>> = vec![Vec::new(); self.files.len()];
        let mut previous = next.clone();
        for (from, to) in self.arrows.keys().filter(|arrow| Some(**arrow) != without) {
            next[*from].push(*to);
            previous[*to].push(*from);
        }
        let mut seen = vec![false; self.files.len()];
        let mut largest = Vec::new();
        for file in 0..self.files.len() {
            if seen[file] {
                continue;
            }
            let before = reached(&previous, file);
            let circle: Vec<usize> = reached(&next, file).intersection(&before).copied().collect();
            for file in &circle {
                seen[*file] = true;
            }
            if circle.len() > largest.len() {
                largest = circle;
            }
        }
        largest
    }

    fn report(&self, name: &str) -> String {
        let circle = self.largest_circle(None);
        if circle.len() < 2 {
            return format!("{name}: no circle among {} files\n", self.files.len());
        }
        let inside: Vec<(usize, usize)> = self
            .arrows
            .keys()
            .copied()
            .filter(|(from, to)| circle.contains(from) && circle.contains(to))
            .collect();
        let mut report = format!(
            "{name}: a circle of {} files, of {}, with {} arrows\n",
            circle.len(),
            self.files.len(),
            inside.len()
        );
        for file in &circle {
            report.push_str(&format!("  {}\n", self.files[*file]));
            for (from, to) in inside.iter().filter(|(from, _)| from == file) {
                let (line, names) = &self.arrows[&(*from, *to)];
                let names: Vec<&str> = names.iter().map(String::as_str).collect();
                report.push_str(&format!("    {line}: {}: {}\n", self.files[*to], names.join(", ")));
            }
        }
        let mut cuts: Vec<(usize, (usize, usize))> =
            inside.iter().map(|arrow| (self.largest_circle(Some(*arrow)).len(), *arrow)).collect();
        cuts.sort_unstable();
        for (size, (from, to)) in cuts.into_iter().take_while(|(size, _)| *size < circle.len()) {
            report.push_str(&format!("  {size} without {} -> {}\n", self.files[from], self.files[to]));
        }
        report
    }
}

fn reached(next: &[Vec<usize>], from: usize) -> BTreeSet<usize> {
    let mut reached = BTreeSet::from([from]);
    let mut queue = vec![from];
    while let Some(file) = queue.pop() {
        queue.extend(next[file].iter().filter(|file| reached.insert(**file)));
    }
    reached
}

#[cfg(test)]
pub mod tests {
    use super::super::source;
    use super::*;

    /// The files of a crate `a`, by their paths below its sources.
    fn tree(files: &[(&str, &str)]) -> Vec<File> {
        let file = |(path, text): &(&str, &str)| File {
            path: format!("crates/a/src/{path}"),
            text: text.to_string(),
        };
        let mut tree: Vec<File> = files.iter().map(file).collect();
        tree.push(File { path: "crates/a/Cargo.toml".to_string(), text: String::new() });
        source::files(&tree)
    }

    pub fn graph(files: &[(&str, &str)]) -> Graph {
        Graph::of(&Modules::read(&tree(files), "crates/a/src/lib.rs"), Reexports::Followed)
    }

    fn circle(files: &[(&str, &str)]) -> Vec<String> {
        measures(&tree(files)).pop().expect("a measure of all small crates").places
    }

    #[test]
    fn finds_the_files_that_name_each_other() {
        let tree = [
            ("lib.rs", "mod a; mod b; mod c; mod d; pub use c::C;"),
            ("a.rs", "use crate::b::B;"),
            ("b.rs", "fn f() -> crate::C { panic!() }"),
            ("c.rs", "use super::a::A;"),
            ("d.rs", "use crate::a::A;"),
        ];
        assert_eq!(circle(&tree), ["crates/a/src/a.rs", "crates/a/src/b.rs", "crates/a/src/c.rs"]);
        let mut opened = tree;
        opened[3].1 = "// use super::a::A;\n#[cfg(test)]\nmod tests { use super::a::A; }";
        assert_eq!(circle(&opened), [""; 0]);
    }

    #[test]
    fn a_child_that_names_its_folder_is_kept_apart() {
        let tree = [
            ("lib.rs", "mod a;"),
            ("a/mod.rs", "mod b; mod c; use b::B;"),
            ("a/b.rs", "use super::A;"),
            ("a/c.rs", "use super::{A, b::B};"),
        ];
        assert_eq!(circle(&tree), [""; 0]);
    }
}
