//! Counts and times in what test programs print.
//!
//! ```text
//! running 3 tests
//! test a::b ... ok <0.012s>
//! skipped: comparisons with Valkey: no network
//! test result: ok. 3 passed; 0 failed; 0 ignored; 0 measured; 0 filtered out; finished in 0.02s
//! ```

use std::collections::BTreeSet;
use std::fmt;

/// Sums up the output of test programs, and drops the chatter of tests that passed.
#[derive(Default)]
pub struct Tally {
    pub passed: u64,
    pub failed: u64,
    pub ignored: u64,
    pub skipped: BTreeSet<String>,
    /// Seconds and names of tests that passed.
    pub times: Vec<(f64, String)>,
    /// Names of tests that failed.
    pub failures: BTreeSet<String>,
    /// Inside the part that repeats the output of tests that passed.
    in_successes: bool,
}

impl Tally {
    /// Takes one line; true if it is worth showing.
    pub fn read(&mut self, line: &str) -> bool {
        if line.starts_with("skipped: ") {
            self.skipped.insert(line.to_string());
            return false;
        }
        if let Some(result) = line.strip_prefix("test result: ") {
            self.in_successes = false;
            self.passed += count(result, " passed");
            self.failed += count(result, " failed");
            self.ignored += count(result, " ignored");
            return true;
        }
        match line {
            "successes:" => self.in_successes = true,
            "failures:" => self.in_successes = false,
            _ => {}
        }
        let Some((name, end)) = line.strip_prefix("test ").and_then(|test| test.split_once(" ... ")) else {
            return !self.in_successes && !line.trim().is_empty();
        };
        if end.starts_with("FAILED") {
            self.failures.insert(name.to_string());
        }
        let Some(rest) = end.strip_prefix("ok") else { return !self.in_successes };
        if let Some(seconds) = rest.trim().strip_prefix('<').and_then(|time| time.strip_suffix("s>")) {
            self.times.push((seconds.parse().unwrap_or(0.0), name.to_string()));
        }
        false
    }

    pub fn add(&mut self, other: &Tally) {
        self.passed += other.passed;
        self.failed += other.failed;
        self.ignored += other.ignored;
        self.skipped.extend(other.skipped.iter().cloned());
    }

    pub fn print_skipped(&self) {
        self.skipped.iter().for_each(|line| println!("{line}"));
    }
}

impl fmt::Display for Tally {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Tally { passed, failed, ignored, skipped, .. } = self;
        write!(f, "{passed} passed, {failed} failed, {ignored} ignored, {} skipped", skipped.len())
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
            "test a ... ok <0.125s>",
            "test b::c ... FAILED <0.001s>",
            "successes:",
            "---- a stdout ----",
            "chatter",
            "skipped: comparison with Valkey: no network",
            "failures:",
            "---- b::c stdout ----",
            "test result: FAILED. 12 passed; 1 failed; 2 ignored; 0 measured; 0 filtered out; finished in 0.02s",
            "test result: ok. 30 passed; 0 failed; 0 ignored; 0 measured; 0 filtered out; finished in 0.02s",
        ];
        let shown: Vec<&str> = lines.into_iter().filter(|line| tally.read(line)).collect();
        assert_eq!(tally.to_string(), "42 passed, 1 failed, 2 ignored, 1 skipped");
        assert_eq!(tally.times, [(0.125, "a".to_string())]);
        assert_eq!(tally.failures.first().unwrap(), "b::c");
        assert!(shown.contains(&"test b::c ... FAILED <0.001s>") && shown.contains(&"---- b::c stdout ----"));
        assert!(!shown.contains(&"chatter") && !shown.iter().any(|line| line.starts_with("test a ")));
    }
}
