//! The tests of Sentinel: five servers, ours in the place of Valkey's, and five sentinels, which are Valkey's
//! own.
//!
//! ```text
//!   scratch/src/valkey-sentinel   valkey-server --sentinel
//!   tclsh tests/sentinel/run.tcl --single NN-name.tcl
//!     12:00:01> name: OK    12:00:02> name: FAILED: why        behind a failure the file ends
//! ```

use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use super::list::Unit;
use super::{Options, Outcome, Places};
use crate::Fallible;
use crate::bounded::{self, Ended};

/// The name of its list.
pub const LIST: &str = "sentinel";

/// Maximum time of a file: sentinels wait for minutes in some.
const UNIT_TIME: Duration = Duration::from_secs(600);
/// Maximum number of lines of output that are kept after a failure.
const SAID_LINES_MAX: usize = 12;

pub fn run_unit(scratch: &Path, unit: &Unit, places: &Places, _: &Options) -> Fallible<Outcome> {
    write_program(scratch, places)?;
    // An archive of the source may lack the empty folder.
    let _ = std::fs::create_dir_all(scratch.join("tests/sentinel/tmp"));
    let mut command = Command::new(places.peers.join("tclsh"));
    command.args(["tests/sentinel/run.tcl", "--single", &format!("{}.tcl", unit.name)]);
    command.current_dir(scratch).env("TERM", "dumb").env("LC_ALL", "C.UTF-8");
    Ok(read(&bounded::run(&mut command, b"", UNIT_TIME)?))
}

fn write_program(scratch: &Path, places: &Places) -> Fallible {
    let path = scratch.join("src/valkey-sentinel");
    let server = places.peers.join("valkey-server");
    let text = format!("#!/bin/sh\nexec '{}' \"$@\" --sentinel\n", server.display());
    let mode = std::fs::Permissions::from_mode(0o755);
    let written = std::fs::write(&path, text).and_then(|()| std::fs::set_permissions(&path, mode));
    written.map_err(|why| format!("{}: {why}", path.display()))
}

/// Reads the output of the runner.
fn read(ended: &Ended) -> Outcome {
    let mut outcome = Outcome::default();
    let (mut said_lines, mut has_ended) = (0, false);
    for line in ended.output.lines() {
        let line = plain(line);
        if let Some((test, result)) = step(&line) {
            said_lines = 0;
            match result {
                "OK" => outcome.passed.push(test.to_string()),
                why => {
                    said_lines = SAID_LINES_MAX;
                    outcome.failed.push((test.to_string(), format!("{why}\n")));
                }
            }
        } else if line.starts_with("Cleaning up") {
            (has_ended, said_lines) = (true, 0);
        } else if let (1.., Some((_, said))) = (said_lines, outcome.failed.last_mut()) {
            said_lines -= 1;
            said.push_str(&line);
            said.push('\n');
        }
    }
    if !has_ended {
        outcome.aborted = Some(format!("{}\n{}\n{}", ended.how(), ended.errors, ended.output));
    }
    outcome
}

/// Without the codes that make a terminal's colours.
fn plain(line: &str) -> String {
    let mut rest = line;
    let mut text = String::new();
    while let Some((before, behind)) = rest.split_once("\u{1b}[") {
        text.push_str(before);
        rest = behind.split_once('m').map_or("", |(_, rest)| rest);
    }
    text + rest
}

/// `12:00:01> name: result`. An error that is no assertion stands in the place of the result too.
fn step(line: &str) -> Option<(&str, &str)> {
    let (time, rest) = line.split_once("> ")?;
    let is_time = time.len() == 8 && time.bytes().all(|byte| byte.is_ascii_digit() || byte == b':');
    let at = rest.rfind(": FAILED: ").or_else(|| rest.rfind(": "))?;
    is_time.then(|| (&rest[..at], &rest[at + 2..]))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_step_is_a_test_and_a_failure_keeps_what_was_said() {
        let output = "Starting sentinel #0 at port 20000\nTesting unit: 00-base.tcl\n12:00:01> a: b works: \u{1b}[0;32;49mOK\u{1b}[0m\n\
                      12:00:02> c: FAILED: caught an error in the test ERR unknown\nwhile executing\nCleaning up...\nGOOD\n";
        let ended = Ended { status: None, output: output.to_string(), errors: String::new() };
        let outcome = read(&ended);
        assert_eq!(outcome.passed, ["a: b works"]);
        let said = "FAILED: caught an error in the test ERR unknown\nwhile executing\n";
        assert_eq!(outcome.failed, [("c".to_string(), said.to_string())]);
        assert_eq!(outcome.aborted, None);
        let hanging = Ended { status: None, output: "12:00:01> a: ".into(), errors: String::new() };
        assert!(read(&hanging).aborted.is_some());
    }
}
