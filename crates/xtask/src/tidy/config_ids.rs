//! Parameters looked up by name while the server runs.
//!
//! `id("maxmemory")` compares the name with all that there are. In a constant the compiler does that, once,
//! and a misspelt name does not compile; elsewhere each call does it, and a misspelt name ends the process
//! when the call is reached.

use super::{File, Measure, source};

const SOURCES: [&str; 8] = [
    "crates/config/src/",
    "crates/durability/src/",
    "crates/engine/src/",
    "crates/membership/src/",
    "crates/node/src/",
    "crates/replicas/src/",
    "crates/server/src/",
    "crates/swap/src/",
];

pub fn measures(files: &[File]) -> Vec<Measure> {
    let is_ours = |path: &str| SOURCES.iter().any(|folder| path.starts_with(folder)) && path.ends_with(".rs");
    let server = files.iter().filter(|file| is_ours(&file.path));
    let mut places = Vec::new();
    for file in server.filter(|file| file.text.contains("id(\"")) {
        places.extend(lookups(&file.text).into_iter().map(|line| format!("{}:{line}", file.path)));
    }
    vec![Measure::of_places("config parameters looked up outside of a const".to_string(), places)]
}

/// Lines of `id("..")` in code that is neither in a constant nor only in tests.
fn lookups(text: &str) -> Vec<usize> {
    let code = source::code(text);
    let constants = constants(&code);
    let called = code.match_indices("id(").map(|(at, _)| at);
    let counted = called.filter(|at| {
        let is_name = *at == 0 || !source::is_name(code.as_bytes()[at - 1]);
        let inside = constants.iter().any(|(start, end)| (*start..*end).contains(at));
        is_name && text.as_bytes().get(at + 3) == Some(&b'"') && !inside
    });
    counted.map(|at| text[..at].matches('\n').count() + 1).collect()
}

/// Start and end of each `const X .. ;`, `static X .. ;` and `const { .. }`.
fn constants(code: &str) -> Vec<(usize, usize)> {
    let mut found = Vec::new();
    for word in ["const ", "static "] {
        for (at, _) in code.match_indices(word) {
            let before = code[..at].trim_end().as_bytes().last();
            // A type after a pointer, a parameter, or a part of a name.
            let is_other = matches!(before, Some(b'*' | b'<' | b',' | b'\''))
                || at > 0 && source::is_name(code.as_bytes()[at - 1]);
            let after = code[at + word.len()..].trim_start();
            let is_function = ["fn ", "unsafe ", "extern "].iter().any(|word| after.starts_with(word));
            if !is_other && !is_function {
                found.push((at, at + source::item_length(&code.as_bytes()[at..])));
            }
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_lookup_in_a_function_counts() {
        assert_eq!(lookups("fn f() {\n    g(id(\"a\"), config::table::id(\"b\"))\n}\n"), [2, 2]);
        assert_eq!(lookups("const fn f() -> Id {\n    id(\"a\")\n}\n"), [2]);
        assert_eq!(
            lookups("fn f<const N: usize>() { id(\"a\") }\nfn g(a: *const u8) { id(\"b\") }\n"),
            [1, 2]
        );
    }

    #[test]
    fn constants_tests_and_other_names_do_not() {
        assert_eq!(lookups("const A: [Id; 2] = [id(\"a\"), id(\"b\")];\nstatic B: Id = id(\"c\");\n"), []);
        assert_eq!(lookups("fn f() { const A: Id = id(\"a\"); const { id(\"b\") } }\n"), []);
        assert_eq!(lookups("// id(\"a\")\nfn f() { paid(\"a\"); id(name); \"id(\\\"a\" }\n"), []);
        assert_eq!(lookups("#[cfg(test)]\nmod tests { fn f() { id(\"a\") } }\n"), []);
    }
}
