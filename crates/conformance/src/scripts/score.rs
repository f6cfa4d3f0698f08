//! The output of a suite or a driver, as one outcome a test: by name, so that two runs can be compared.

use std::collections::{BTreeMap, BTreeSet};

use crate::bounded::Ended;

/// Format of the output.
#[derive(Clone, Copy, PartialEq, Debug)]
pub enum Kind {
    /// `go test -json`: one object a line. Parts of tests are not counted: their names hold dates.
    Go,
    /// `pytest -rA`: "PASSED tests/test_job.py::TestJob::test_create".
    Python,
    /// A driver of ours: "ok step", a tab, what came of it.
    Driver,
}

/// Outcomes by the name of a test. For a driver, the text that each step printed.
pub type Outcomes = BTreeMap<String, String>;

const PASSED: &str = "passed";

pub fn read(kind: Kind, ended: &Ended) -> Outcomes {
    let lines = ended.output.lines();
    match kind {
        Kind::Go => lines.filter_map(go_outcome).collect(),
        Kind::Python => lines.filter_map(python_outcome).collect(),
        Kind::Driver => {
            let mut outcomes: Outcomes = lines.filter_map(step).collect();
            let end = if ended.well() { PASSED.to_string() } else { last_words(&ended.errors, ended.how()) };
            outcomes.insert("its end".to_string(), end);
            outcomes
        }
    }
}

fn go_outcome(line: &str) -> Option<(String, String)> {
    let outcome = match field(line, "Action")? {
        "pass" => PASSED,
        "fail" => "failed",
        "skip" => "skipped",
        _ => return None,
    };
    let (package, test) = (field(line, "Package")?, field(line, "Test")?);
    (!test.contains('/')).then(|| (format!("{package} {test}"), outcome.to_string()))
}

/// The text of a field of one line of `go test -json`; none of those read here holds an escape.
fn field<'a>(line: &'a str, name: &str) -> Option<&'a str> {
    let (_, rest) = line.split_once(&format!("\"{name}\":\""))?;
    rest.split('"').next()
}

fn python_outcome(line: &str) -> Option<(String, String)> {
    let (word, rest) = line.split_once(' ')?;
    let outcome = match word {
        "PASSED" | "XFAIL" => PASSED,
        "FAILED" | "ERROR" | "XPASS" => "failed",
        _ => return None,
    };
    let name = rest.split(" - ").next()?.trim();
    name.contains("::").then(|| (name.to_string(), outcome.to_string()))
}

fn step(line: &str) -> Option<(String, String)> {
    let (name, outcome) = line.strip_prefix("ok ")?.split_once('\t')?;
    Some((name.to_string(), outcome.to_string()))
}

fn last_words(errors: &str, how: String) -> String {
    errors.lines().find(|line| line.contains("Error")).map_or(how, str::to_string)
}

/// Returns the tests whose outcome differs from that on Valkey, although they neither failed nor were skipped
/// there.
pub fn worse(ours: &Outcomes, theirs: &Outcomes) -> Vec<String> {
    let failed_there = |outcome: &str| outcome == "failed" || outcome == "skipped";
    let differs = |(name, theirs): (&String, &String)| match ours.get(name) {
        Some(ours) if ours == theirs || failed_there(theirs) => None,
        ours => Some(format!(
            "{name}: {} here, {theirs} on Valkey",
            ours.map_or("nothing", |outcome| outcome.as_str())
        )),
    };
    theirs.iter().filter_map(differs).collect()
}

/// Returns the tests that passed here and failed on Valkey.
pub fn only_there(ours: &Outcomes, theirs: &Outcomes) -> Vec<String> {
    let fails = |name: &&String| {
        ours.get(*name).is_some_and(|outcome| outcome == PASSED) && theirs[*name] == "failed"
    };
    theirs.keys().filter(fails).map(|name| format!("{name}: failed on Valkey only")).collect()
}

/// Returns, of two runs of one suite, the better outcome of each test: one that passed, or is that on Valkey.
/// If neither does, the test has the second one.
pub fn better(first: Outcomes, second: Outcomes, theirs: &Outcomes) -> Outcomes {
    let names: BTreeSet<String> = first.keys().chain(second.keys()).cloned().collect();
    let of = |name: String| {
        let is_well = |outcome: &String| outcome == PASSED || theirs.get(&name) == Some(outcome);
        let outcome = match (first.get(&name), second.get(&name)) {
            (Some(first), _) if is_well(first) => first,
            (_, Some(second)) => second,
            (first, None) => first?,
        };
        Some((name, outcome.clone()))
    };
    names.into_iter().filter_map(of).collect()
}

/// "17 passed, 2 failed"; of a driver, whose steps have words of their own, "13 steps".
pub fn counts(outcomes: &Outcomes) -> String {
    let count = |word: &str| outcomes.values().filter(|outcome| *outcome == word).count();
    let (passed, failed, skipped) = (count(PASSED), count("failed"), count("skipped"));
    if passed + failed + skipped < outcomes.len() {
        return format!("{} steps", outcomes.len());
    }
    let parts = [(passed, PASSED), (failed, "failed"), (skipped, "skipped")];
    let some = |(count, word): &(usize, &str)| (*count > 0).then(|| format!("{count} {word}"));
    match parts.iter().filter_map(some).collect::<Vec<_>>().join(", ") {
        none if none.is_empty() => "nothing".to_string(),
        some => some,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ended(output: &str) -> Ended {
        Ended { status: None, output: output.to_string(), errors: String::new() }
    }

    #[test]
    fn outcomes_are_read_from_what_suites_say() {
        let go = r#"{"Time":"x","Action":"run","Package":"a/b","Test":"TestOne"}
{"Time":"x","Action":"pass","Package":"a/b","Test":"TestOne","Elapsed":0}
{"Time":"x","Action":"fail","Package":"a/b","Test":"TestTwo","Elapsed":0}
{"Time":"x","Action":"fail","Package":"a/b","Test":"TestTwo/part","Elapsed":0}
{"Time":"x","Action":"fail","Package":"a/b","Elapsed":0}"#;
        let outcomes = read(Kind::Go, &ended(go));
        assert_eq!(counts(&outcomes), "1 passed, 1 failed");
        assert_eq!(outcomes["a/b TestTwo"], "failed");
        let python =
            "PASSED tests/a.py::A::one\nFAILED tests/a.py::A::two - AssertionError: 1 - 2\nSKIPPED [1] x";
        let outcomes = read(Kind::Python, &ended(python));
        assert_eq!((outcomes.len(), outcomes["tests/a.py::A::two"].as_str()), (2, "failed"));
        let outcomes = read(Kind::Driver, &ended("ok order of jobs\t[\"a b\"]\nok at most\t1\n"));
        assert_eq!(outcomes["order of jobs"], "[\"a b\"]");
        assert_eq!((outcomes["at most"].as_str(), outcomes["its end"].as_str()), ("1", "its time was over"));
    }

    #[test]
    fn what_passes_there_and_not_here_is_a_fault() {
        let of = |pairs: &[(&str, &str)]| -> Outcomes {
            pairs.iter().map(|(name, outcome)| (name.to_string(), outcome.to_string())).collect()
        };
        let theirs = of(&[("a", "passed"), ("b", "failed"), ("c", "passed"), ("d", "failed")]);
        let ours = of(&[("a", "failed"), ("b", "failed"), ("d", "passed")]);
        assert_eq!(
            worse(&ours, &theirs),
            ["a: failed here, passed on Valkey", "c: nothing here, passed on Valkey"]
        );
        assert_eq!(only_there(&ours, &theirs), ["d: failed on Valkey only"]);
        let again = of(&[("a", "passed"), ("c", "passed"), ("d", "failed")]);
        assert!(worse(&better(ours, again, &theirs), &theirs).is_empty());
        // Steps of a driver: each is well in one of the runs.
        let theirs = of(&[("order", "[1,2]"), ("count", "7")]);
        let (ours, again) =
            (of(&[("order", "[1,2]"), ("count", "6")]), of(&[("order", "[2,1]"), ("count", "7")]));
        assert_eq!(better(ours, again, &theirs), theirs);
    }
}
