//! Lines of the cluster manager on standard output, where scripts look for them, and questions.

use std::io::{BufRead, stdin};

use crate::terminal::{has_color, out_is_terminal, put};

const BOLD: &str = "29;1m";
const GREEN: &str = "32;1m";
const YELLOW: &str = "33;1m";
const RED: &str = "31;1m";
/// Longer than any answer: an id, a number, yes.
const ANSWER_BYTES_MAX: u64 = 4096;

pub fn info(line: impl AsRef<str>) {
    colored(BOLD, line.as_ref());
}

pub fn ok(line: impl AsRef<str>) {
    colored(GREEN, line.as_ref());
}

pub fn warn(line: impl AsRef<str>) {
    colored(YELLOW, line.as_ref());
}

pub fn err(line: impl AsRef<str>) {
    colored(RED, line.as_ref());
}

pub fn line(line: impl AsRef<str>) {
    put(format!("{}\n", line.as_ref()));
}

// COMPAT(tools): isotherm-cli --cluster colors its lines at a terminal only; valkey-cli wherever TERM names
// an xterm. Why: a script that compares lines runs in such a shell too.
fn colored(color: &str, line: &str) {
    if has_color() && out_is_terminal() {
        put(format!("\x1b[{color}{line}\n\x1b[0m"));
    } else {
        put(format!("{line}\n"));
    }
}

/// The next line of standard input; `None` at its end.
pub fn answer(question: &str) -> Option<String> {
    put(question);
    let mut line = Vec::new();
    let count = std::io::Read::take(stdin().lock(), ANSWER_BYTES_MAX).read_until(b'\n', &mut line).ok()?;
    (count > 0).then(|| String::from_utf8_lossy(&line).trim_end().to_string())
}

pub fn confirmed(question: &str) -> bool {
    answer(&format!("{question} (type 'yes' to accept): ")).is_some_and(|answer| answer == "yes")
}
