//! Table of `--layout`: the sizes and marks of all formats of ours that lie on disk or on the wire.
//!
//! The tables stand in the files that declare the formats. `layout.txt` beside this file has all of them as
//! they are: a change of a number there is a change of what files and other nodes mean, and asks for a second
//! reader.

use isotherm_stdx::format::{FormatPart, FormatValue};
use std::fmt::Write;

const FORMATS: [&[FormatPart]; 4] = [
    isotherm_keyspace::FORMATS,
    isotherm_tier::FORMATS,
    isotherm_persist::FORMATS,
    isotherm_cluster::wire::FORMATS,
];

/// Returns a line for each row, with its part, its name and its value.
pub fn table() -> String {
    let mut text = String::new();
    for (part, rows) in FORMATS.iter().copied().flatten() {
        for (name, value) in *rows {
            _ = match value {
                FormatValue::Number(value) => writeln!(text, "{part} | {name} | {value}"),
                FormatValue::Text(value) => {
                    writeln!(text, "{part} | {name} | \"{}\"", value.escape_ascii())
                }
            };
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn formats_are_those_that_a_second_reader_has_seen() {
        let known = include_str!("layout.txt");
        let now = table();
        let differs = now.lines().find(|line| !known.lines().any(|other| other == *line));
        assert!(now == known, "layout.txt is another table: {differs:?}. `--layout` prints it anew");
    }
}
