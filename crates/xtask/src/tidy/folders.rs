//! Folders that import each other: neither can be understood, tested or built without the other.
//!
//! ```text
//! request/gates.rs    use crate::cluster::words;         one pair, though the files form no circle
//! cluster/changes.rs  use crate::request::dispatch;
//! ```
//!
//! Count: a folder is all that is below one module of the crate's root. A module there that is a
//! single file pairs with folders, but two such files are no pair (`circles` counts files), and the root is
//! in none. An import counts as in `circles`, through every re-export to the definition.

use std::collections::BTreeMap;

use super::Measure;
use super::circles::Graph;

/// The pairs of one crate.
pub fn measure(name: &str, graph: &Graph) -> Measure {
    let sources = format!("crates/{name}/src/");
    let folder = |file: usize| {
        let path = graph.files[file].strip_prefix(&sources)?;
        let folder = path.split_once('/').map_or(path, |(folder, _)| folder);
        (!matches!(folder, "lib.rs" | "main.rs")).then_some(folder)
    };
    let mut first: BTreeMap<(&str, &str), String> = BTreeMap::new();
    for ((from, to), (line, _)) in &graph.arrows {
        let (Some(a), Some(b)) = (folder(*from), folder(*to)) else { continue };
        if a != b {
            first.entry((a, b)).or_insert_with(|| format!("{}:{line}", graph.files[*from]));
        }
    }
    let are_files = |a: &str, b: &str| a.ends_with(".rs") && b.ends_with(".rs");
    let both = first.iter().filter(|((a, b), _)| a < b && !are_files(a, b)).filter_map(|((a, b), there)| {
        let back = first.get(&(b, a))?;
        Some(format!("{a} and {b} ({there} and {back})"))
    });
    Measure::of_places(format!("pairs of folders that import each other, {name}"), both.collect())
}

#[cfg(test)]
mod tests {
    use super::super::circles::tests::graph;
    use super::*;

    #[test]
    fn a_pair_needs_imports_both_ways() {
        let tree = [
            ("lib.rs", "mod a; mod b; mod c; use a::x::X; pub const D: u8 = 1;"),
            ("a/mod.rs", "pub mod x; pub mod y;"),
            ("a/x.rs", "use crate::b::B;\nuse super::y::Y;"),
            ("a/y.rs", "use super::x::X; use crate::D;"),
            ("b.rs", "\nfn f() { crate::a::y::g() }\nuse crate::c::C;"),
            ("c.rs", "use crate::a::y::Y; use crate::b::B;"),
        ];
        let measure = measure("a", &graph(&tree));
        assert_eq!(measure.places, ["a and b.rs (crates/a/src/a/x.rs:1 and crates/a/src/b.rs:2)"]);
        assert_eq!(measure.name, "pairs of folders that import each other, a");
    }
}
