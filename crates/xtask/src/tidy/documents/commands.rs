//! Command lines of documents: whether cargo, xtask and the tools know each word.
//!
//! ```text
//! cargo xtask bench speed --scale 1/4 --only new,del
//!             |     |     |              |
//!             |     |     |              rows: texts of the tool's sources
//!             |     |     flags: in the sources of the tool, or in xtask's help
//!             |     a kind: a text of the tool's sources
//!             a line of xtask's help
//! cargo test -p isotherm --test it swap_slots
//!               |               |  |
//!               a crate         |  part of the path of a test
//!                               a program of tests
//! ```

use super::super::File;
use crate::HELP;

/// The sources in which each part of a command line is looked up.
pub struct Checkout<'f> {
    files: &'f [File],
}

impl<'f> Checkout<'f> {
    pub fn of(files: &'f [File]) -> Checkout<'f> {
        Checkout { files }
    }

    /// The first word of a command that nothing knows.
    pub fn fault(&self, command: &str) -> Option<String> {
        let words: Vec<&str> = command.split_whitespace().collect();
        match words.as_slice() {
            ["cargo", "xtask"] => None,
            ["cargo", "xtask", name, rest @ ..] => match is_in_help(name) {
                true => self.fault_of_xtask(name, rest),
                false => Some(format!("`cargo xtask` has no command {name}")),
            },
            ["cargo", verb @ ("test" | "build" | "run"), rest @ ..] => {
                self.fault_of_cargo(rest).or_else(|| self.fault_of_run(verb, rest))
            }
            _ => None,
        }
    }

    fn fault_of_xtask(&self, name: &str, rest: &[&str]) -> Option<String> {
        let tool = match name {
            "bench" | "stress" | "conformance" => name,
            "clients" => "conformance",
            _ => "xtask",
        };
        let mut words = rest.iter().copied().peekable();
        // Kinds stand before the first flag; what is in capitals stands for something.
        while let Some(kind) = words.next_if(|word| is_lower(word)) {
            if !self.has_text(tool, kind) && !HELP.contains(kind) {
                return Some(format!("`cargo xtask {name}` has no {kind}"));
            }
        }
        while let Some(word) = words.next() {
            if word.starts_with("--") && !self.has_flag(name, tool, word) {
                return Some(format!("`cargo xtask {name}` has no {word}"));
            }
            let rows = if word == "--only" { words.peek().copied().unwrap_or_default() } else { "" };
            let unknown = rows.split(',').find(|row| is_lower(row) && !self.has_text(tool, row));
            if let Some(row) = unknown {
                return Some(format!("`cargo xtask {name}` has no row {row}"));
            }
        }
        None
    }

    /// `start` hands parameters on to the server.
    fn has_flag(&self, name: &str, tool: &str, flag: &str) -> bool {
        let parameters = "crates/config/src/table.rs";
        let is_parameter = || {
            let name = format!("\"{}\"", &flag[2..]);
            self.files.iter().any(|file| file.path == parameters && file.text.contains(&name))
        };
        has_whole(HELP, flag)
            || self.sources(tool).any(|text| has_whole(text, flag))
            || name == "start" && is_parameter()
    }

    fn fault_of_cargo(&self, words: &[&str]) -> Option<String> {
        let end = words.iter().position(|word| *word == "--").unwrap_or(words.len());
        let value = |flag: &str| {
            words[..end].iter().position(|word| *word == flag).and_then(|at| words.get(at + 1).copied())
        };
        let package = value("-p");
        let folder = package.map(|name| name.strip_prefix("isotherm-").unwrap_or("server"));
        if let Some(folder) = folder.filter(|folder| !self.has_file(&format!("crates/{folder}/Cargo.toml"))) {
            return Some(format!("no crate {folder}"));
        }
        let profile =
            value("--profile").filter(|name| !self.holds("Cargo.toml", &format!("[profile.{name}]")));
        if let Some(profile) = profile {
            return Some(format!("no profile {profile}"));
        }
        let folder = folder?;
        let manifest = format!("crates/{folder}/Cargo.toml");
        if let Some(feature) = value("--features").filter(|name| !self.holds(&manifest, &format!("{name} =")))
        {
            return Some(format!("{folder} has no feature {feature}"));
        }
        let is_program = |kind: &str, name: &str| {
            self.has_file(&format!("crates/{folder}/{kind}/{name}.rs"))
                || self.has_file(&format!("crates/{folder}/{kind}/{name}/main.rs"))
        };
        for (flag, kind) in [("--test", "tests"), ("--example", "examples")] {
            if let Some(name) = value(flag).filter(|name| !is_program(kind, name)) {
                return Some(format!("{folder} has no {kind}/{name}"));
            }
        }
        let filters = words[..end].iter().enumerate().filter(|(at, word)| is_filter(words, *at, word));
        for (_, filter) in filters {
            let place = match value("--test") {
                Some(name) => format!("crates/{folder}/tests/{name}"),
                None => format!("crates/{folder}/src"),
            };
            if !self.has_test(&place, filter) {
                return Some(format!("no test of {place} has {filter} in its path"));
            }
        }
        None
    }

    /// Returns a fault of the arguments that `cargo run` hands to the program: they are texts of its sources.
    fn fault_of_run(&self, verb: &str, words: &[&str]) -> Option<String> {
        let package = words.iter().find_map(|word| word.strip_prefix("isotherm-"))?;
        let mut given = words.iter().skip_while(|word| **word != "--").skip(1).filter(|_| verb == "run");
        let unknown =
            given.find(|word| is_lower(word.trim_start_matches("--")) && !self.has_text(package, word))?;
        Some(format!("{package} does not know {unknown}"))
    }

    /// Some path of a test, `module::function`, contains the filter.
    fn has_test(&self, place: &str, filter: &str) -> bool {
        let below = |path: &'f str| path.strip_prefix(place)?.strip_suffix(".rs");
        self.files.iter().filter_map(|file| Some((below(&file.path)?, &file.text))).any(|(path, text)| {
            let module = path.trim_start_matches('/').replace("/mod", "").replace('/', "::");
            let mut names =
                text.lines().filter_map(|line| line.trim_start().strip_prefix("fn ")?.split('(').next());
            let inner = if text.contains("mod tests {") { "::tests" } else { "" };
            names.any(|name| format!("{module}{inner}::{name}").contains(filter))
        })
    }

    fn sources(&self, folder: &str) -> impl Iterator<Item = &'f str> {
        let place = format!("crates/{folder}/");
        self.files
            .iter()
            .filter(move |file| file.path.starts_with(&place) && file.path.ends_with(".rs"))
            .map(|file| file.text.as_str())
    }

    /// A literal of the crate is this text.
    fn has_text(&self, folder: &str, text: &str) -> bool {
        let literal = format!("\"{text}\"");
        self.sources(folder).any(|source| source.contains(&literal))
    }

    fn has_file(&self, path: &str) -> bool {
        self.files.iter().any(|file| file.path == path)
    }

    fn holds(&self, path: &str, text: &str) -> bool {
        self.files
            .iter()
            .any(|file| file.path == path && file.text.lines().any(|line| line.starts_with(text)))
    }
}

fn is_in_help(name: &str) -> bool {
    HELP.lines().any(|line| line.strip_prefix("  ").and_then(|line| line.split(' ').next()) == Some(name))
}

/// A word of lower case: not a number, a range, or a name in capitals that stands for another.
fn is_lower(word: &str) -> bool {
    word.starts_with(|c: char| c.is_ascii_lowercase())
        && word.chars().all(|c| c.is_ascii_lowercase() || c.is_ascii_digit() || "-_".contains(c))
}

/// A word that is neither a flag nor the value of one: the filter of tests.
fn is_filter(words: &[&str], at: usize, word: &str) -> bool {
    const BARE: [&str; 6] =
        ["--release", "--bins", "--lib", "--no-default-features", "--all-targets", "--workspace"];
    let is_value = at > 0 && words[at - 1].starts_with('-') && !BARE.contains(&words[at - 1]);
    !word.starts_with('-') && !is_value
}

/// `flag` is in `text` and no part of a longer one.
fn has_whole(text: &str, flag: &str) -> bool {
    text.match_indices(flag).any(|(at, _)| {
        let after = text[at + flag.len()..].chars().next();
        !after.is_some_and(|c| c.is_ascii_alphanumeric() || c == '-')
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn checkout() -> Vec<File> {
        let file = |path: &str, text: &str| File { path: path.to_string(), text: text.to_string() };
        vec![
            file("Cargo.toml", "[profile.fast]\n"),
            file("crates/bench/Cargo.toml", ""),
            file(
                "crates/bench/src/main.rs",
                "const KINDS: [&str; 1] = [\"speed\"];\n\"--scale N\" \"--only\" \"new\"",
            ),
            file("crates/server/Cargo.toml", "mimalloc = []\n"),
            file("crates/config/src/table.rs", "\"port\""),
            file("crates/server/src/tier/crashes/mod.rs", "fn power_fails() {}\n"),
            file("crates/server/tests/it/main.rs", "mod swap;\n"),
            file("crates/server/tests/it/swap.rs", "#[test]\nfn more_than_memory() {}\n"),
            file("crates/memlab/Cargo.toml", ""),
            file("crates/memlab/src/main.rs", "\"keyspace\" \"--peers\""),
        ]
    }

    #[track_caller]
    fn passes(command: &str) {
        assert_eq!(Checkout::of(&checkout()).fault(command), None);
    }

    #[track_caller]
    fn fails(command: &str, word: &str) {
        let fault = Checkout::of(&checkout()).fault(command).expect("a fault");
        assert!(fault.contains(word), "{fault}");
    }

    #[test]
    fn commands_of_xtask() {
        passes("cargo xtask bench speed --scale 1/4 --only new");
        passes("cargo xtask fuzz --seconds 60");
        passes("cargo xtask start --release --port 7000");
        passes("cargo xtask bench speed --scale N");
        fails("cargo xtask brew", "brew");
        fails("cargo xtask bench tea --scale 1/4", "tea");
        fails("cargo xtask bench speed --cups 2", "--cups");
        fails("cargo xtask bench speed --scal 2", "--scal");
        fails("cargo xtask bench speed --only new,old", "old");
        fails("cargo xtask start --harbour 7", "--harbour");
    }

    #[test]
    fn commands_of_cargo() {
        passes("cargo build --profile fast -p isotherm");
        passes("cargo build --release -p isotherm --no-default-features --features mimalloc");
        passes("cargo test -p isotherm --test it swap::");
        passes("cargo test -p isotherm --bins tier::crashes");
        passes("cargo run --release -p isotherm-memlab -- keyspace --peers");
        fails("cargo build --profile slow -p isotherm", "slow");
        fails("cargo build -p isotherm --features tea", "tea");
        fails("cargo test -p isotherm-none", "none");
        fails("cargo test -p isotherm --test at", "tests/at");
        fails("cargo test -p isotherm --test it swop::", "swop");
        fails("cargo test -p isotherm --bins tier::lost", "lost");
        fails("cargo run --release -p isotherm-memlab -- keyspace --pears", "--pears");
    }
}
