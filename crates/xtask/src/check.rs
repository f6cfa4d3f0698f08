//! What has to pass before a change lands, and the counting of tests.

use std::io::{BufRead, BufReader};
use std::process::{Command, Stdio};
use std::time::Instant;

use crate::{Fallible, licences, peers, place, programs, run};

pub fn check() -> Fallible {
    programs::build_needs()?;
    run::step("format", || run::loud(run::cargo().args(["fmt", "--all", "--check"])))?;
    run::step("tidy", || tidy(&[]))?;
    run::step("licences", licences::check)?;
    run::step("lints", || {
        run::loud(run::cargo().args([
            "clippy",
            "--workspace",
            "--all-targets",
            "--locked",
            "--",
            "-D",
            "warnings",
        ]))
    })?;
    run::step("tests", || test(&[]))
}

/// The rules of the house; `--circles [CRATE ..]` shows files that name each other, `--lower` lowers ceilings.
pub fn tidy(args: &[String]) -> Fallible {
    match args {
        [flag, rest @ ..] if flag == "--circles" => {
            print!("{}", crate::tidy::circles(&place::root(), rest));
            return Ok(());
        }
        [flag] if flag == "--lower" => crate::tidy::lower(&place::root())?,
        [] => {}
        _ => return Err("usage: cargo xtask tidy [--lower | --circles [--followed] [CRATE ..]]".to_string()),
    }
    let findings = crate::tidy::findings(&place::root());
    for finding in &findings {
        println!("{finding}");
    }
    if findings.is_empty() { Ok(()) } else { Err(format!("tidy: {} findings", findings.len())) }
}

/// Every test of the workspace. Tests that compare with Valkey find it through `ISOTHERM_PEER_BIN`; where it cannot be
/// installed they say so, in a line that begins with `skipped: `, and the end of the run repeats those lines.
///
/// All programs are built before the first is run: so a line before each says how many there are. (`--tests`: no comment
/// holds code to be run, and the examples are built by the lints.)
pub fn test(args: &[String]) -> Fallible {
    programs::build_needs()?;
    let (of_cargo, of_tests) = match args.iter().position(|arg| arg == "--") {
        Some(at) => args.split_at(at),
        None => (args, &[][..]),
    };
    let cargo = |more: &[&str]| {
        let mut command = run::cargo();
        command.args(["test", "--workspace", "--tests", "--locked"]).args(of_cargo).args(more);
        command
    };
    println!("== building the tests");
    let build = ["--no-run", "--message-format", "json-render-diagnostics"];
    let programs = test_programs(&mut cargo(&build))?;
    let mut command = cargo(&["--no-fail-fast"]);
    if of_tests.is_empty() {
        command.args(["--", "--show-output"]);
    } else {
        command.args(of_tests);
    }
    match peers::valkey() {
        Ok(bin) => drop(command.env("ISOTHERM_PEER_BIN", bin)),
        Err(why) => println!("skipped: comparisons with Valkey: {why}"),
    }
    run_programs(&mut command, programs).map(drop)
}

/// Builds test programs and returns how many there are. What the compiler says goes to standard error, as ever.
fn test_programs(command: &mut Command) -> Fallible<u64> {
    let built =
        command.stderr(Stdio::inherit()).output().map_err(|why| format!("cannot build tests: {why}"))?;
    if !built.status.success() {
        return Err("the tests do not compile".to_string());
    }
    let messages = String::from_utf8_lossy(&built.stdout);
    Ok(messages.lines().filter(|line| is_test_program(line)).count() as u64)
}

/// A message of cargo about an artifact that is a test program, and not one that the tests only start.
fn is_test_program(message: &str) -> bool {
    message.contains(r#""reason":"compiler-artifact""#)
        && message.contains(r#""test":true},"features""#)
        && !message.contains(r#""executable":null"#)
}

/// Runs test programs, shows what matters of their output, and returns how many tests passed.
pub fn run_tests(command: &mut Command) -> Fallible<u64> {
    run_programs(command, 0)
}

/// The same, of a known number of programs, or 0: then what runs is not numbered.
fn run_programs(command: &mut Command, programs: u64) -> Fallible<u64> {
    let begun = Instant::now();
    let mut tally = Tally::default();
    let mut child =
        command.stdout(Stdio::piped()).spawn().map_err(|why| format!("cannot run tests: {why}"))?;
    let output = BufReader::new(child.stdout.take().expect("the output is piped"));
    for line in output.split(b'\n') {
        let line = line.map_err(|why| format!("cannot read the output of tests: {why}"))?;
        let line = String::from_utf8_lossy(&line);
        let shown = tally.read(&line);
        if shown && programs > 0 && is_start(&line) {
            println!("== {} of {programs}, after {} s: {line}", tally.programs, begun.elapsed().as_secs());
        } else if shown {
            println!("{line}");
        }
    }
    let status = child.wait().map_err(|why| format!("cannot wait for tests: {why}"))?;
    for line in &tally.skipped {
        println!("{line}");
    }
    let Tally { passed, failed, ignored, .. } = tally;
    println!("tests: {passed} passed, {failed} failed, {ignored} ignored, {} skipped", tally.skipped.len());
    if status.success() { Ok(passed) } else { Err("tests failed".to_string()) }
}

/// The first line of a test program: "running 3 tests".
fn is_start(line: &str) -> bool {
    line.starts_with("running ") && (line.ends_with(" tests") || line.ends_with(" test"))
}

/// Sums up what the test programs print, and drops the chatter of tests that passed.
#[derive(Default)]
struct Tally {
    /// Test programs that have begun.
    programs: u64,
    passed: u64,
    failed: u64,
    ignored: u64,
    skipped: Vec<String>,
    /// Inside the part that repeats the output of tests that passed.
    in_successes: bool,
}

impl Tally {
    /// Takes one line; true if it is worth showing.
    fn read(&mut self, line: &str) -> bool {
        if line.starts_with("skipped: ") {
            self.skipped.push(line.to_string());
            return false;
        }
        if let Some(result) = line.strip_prefix("test result: ") {
            self.in_successes = false;
            self.passed += count(result, " passed");
            self.failed += count(result, " failed");
            self.ignored += count(result, " ignored");
            return true;
        }
        self.programs += u64::from(!self.in_successes && is_start(line));
        match line {
            "successes:" => self.in_successes = true,
            "failures:" => self.in_successes = false,
            _ => {}
        }
        let passed = line.starts_with("test ") && line.ends_with(" ... ok");
        !self.in_successes && !passed
    }
}

/// The number before a word: 12 of "ok. 12 passed; 0 failed".
fn count(text: &str, word: &str) -> u64 {
    let before = text.find(word).map_or("", |at| &text[..at]);
    let digits = before.rsplit(|c: char| !c.is_ascii_digit()).next().unwrap_or("");
    digits.parse().unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counts_results_and_keeps_what_was_skipped() {
        let mut tally = Tally::default();
        let lines = [
            "running 3 tests",
            "test a ... ok",
            "test b ... FAILED",
            "successes:",
            "---- a stdout ----",
            "chatter",
            "skipped: comparison with Valkey: no network",
            "failures:",
            "---- b stdout ----",
            "test result: FAILED. 12 passed; 1 failed; 2 ignored; 0 measured; 0 filtered out; finished in 0.02s",
            "test result: ok. 30 passed; 0 failed; 0 ignored; 0 measured; 0 filtered out; finished in 0.02s",
        ];
        let shown: Vec<&str> = lines.into_iter().filter(|line| tally.read(line)).collect();
        assert_eq!(tally.programs, 1);
        assert_eq!((tally.passed, tally.failed, tally.ignored, tally.skipped.len()), (42, 1, 2, 1));
        assert!(shown.contains(&"test b ... FAILED") && shown.contains(&"---- b stdout ----"));
        assert!(!shown.contains(&"chatter") && !shown.contains(&"test a ... ok"));
    }

    #[test]
    fn programs_of_tests_are_counted_and_others_are_not() {
        let artifact = |test: &str, executable: &str| {
            format!(
                r#"{{"reason":"compiler-artifact","target":{{"test":true}},"profile":{{"test":{test}}},"features":[],"executable":{executable}}}"#
            )
        };
        assert!(is_test_program(&artifact("true", "\"target/debug/deps/it-1\"")));
        assert!(!is_test_program(&artifact("true", "null")));
        assert!(!is_test_program(&artifact("false", "\"target/debug/isotherm-server\"")));
    }
}
