//! Long files of the two large crates and of what was cut from them: past 600 lines a file answers more than
//! one question.

use super::{File, Measure};

const CRATES: [&str; 10] = [
    "config",
    "durability",
    "engine",
    "keyspace",
    "membership",
    "node",
    "replicas",
    "runtime",
    "server",
    "swap",
];

const LINES_MAX: usize = 600;

pub fn measures(files: &[File]) -> Vec<Measure> {
    CRATES
        .into_iter()
        .map(|name| {
            let folder = format!("crates/{name}/src/");
            let lines = |file: &File| file.text.lines().count();
            let long =
                files.iter().filter(|file| file.path.starts_with(&folder) && file.path.ends_with(".rs"));
            let places = long
                .filter(|file| lines(file) > LINES_MAX)
                .map(|file| format!("{} ({})", file.path, lines(file)))
                .collect();
            Measure::of_places(format!("files over {LINES_MAX} lines, {name}"), places)
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counts_what_is_longer() {
        let file = |path: &str, lines: usize| File { path: path.to_string(), text: "x\n".repeat(lines) };
        let files =
            [file("crates/server/src/a.rs", LINES_MAX), file("crates/server/src/b.rs", LINES_MAX + 1)];
        let counts: Vec<usize> = measures(&files).iter().map(Measure::count).collect();
        let at = |name: &str| CRATES.iter().position(|other| *other == name).expect("a name of the list");
        assert_eq!((counts.iter().sum::<usize>(), counts[at("server")]), (1, 1));
    }
}
