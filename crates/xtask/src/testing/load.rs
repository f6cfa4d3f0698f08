//! Tests that wait, again and again while busy loops run: a test that a slow machine breaks shows it here.
//!
//! A test waits if its body, or a function of its file that it may call, sleeps, waits for a state, or looks
//! at the time. That is decided by file: the list is read from the sources at each call, so it cannot go
//! stale.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use super::{Arguments, Program, build, run};
use crate::{Fallible, needs, peers};

/// Words of a file whose tests wait for something.
const WAITING: [&str; 6] = ["sleep(", "wait_", "Instant::now", "PATIENCE", "expect_silence", "timeout"];
/// Busy loops: one more than the machine of CI has cores.
const LOOPS: usize = 3;
/// Threads of each test program: what waits needs no core.
const THREADS: &str = "6";

/// `cargo xtask test --beside-load N [NAME ..]`: runs the tests that wait N times, or only those whose names
/// contain a NAME.
pub fn command(args: &[String]) -> Fallible {
    let usage = "usage: cargo xtask test --beside-load N [NAME ..]";
    let (rounds, names) = args.split_first().ok_or(usage)?;
    let rounds: usize = rounds.parse().map_err(|_| usage)?;
    needs::check()?;
    let chosen: Vec<(Program, Vec<String>)> = build::everything()?
        .into_iter()
        .filter(|program| program.is_test)
        .filter_map(|program| {
            let tests = waiting_tests(&program, names);
            (!tests.is_empty()).then_some((program, tests))
        })
        .collect();
    let count: usize = chosen.iter().map(|(_, tests)| tests.len()).sum();
    if count == 0 {
        return Err("no test that waits has such a name".to_string());
    }
    println!("{count} tests that wait, {rounds} times, beside {LOOPS} busy loops");
    let peer = peers::valkey().ok();
    let _loops = BusyLoops::start()?;
    let mut failures: BTreeMap<String, usize> = BTreeMap::new();
    for round in 1..=rounds {
        for (program, tests) in &chosen {
            let mut of_programs =
                vec!["--exact".to_string(), "--test-threads".to_string(), THREADS.to_string()];
            of_programs.extend(tests.iter().cloned());
            let arguments = Arguments { of_programs, ..Arguments::default() };
            let ran = run::one(program, &arguments, peer.as_deref(), &[]);
            for test in &ran.tally.failures {
                *failures.entry(format!("{} {test}", program.name)).or_default() += 1;
            }
            if !ran.is_good && ran.tally.failures.is_empty() {
                *failures.entry(program.name.clone()).or_default() += 1;
            }
        }
        println!("== round {round} of {rounds}: {} tests have failed so far", failures.len());
    }
    for (test, times) in &failures {
        println!("failed {times} of {rounds} times: {test}");
    }
    if failures.is_empty() { Ok(()) } else { Err(format!("{} tests fail beside load", failures.len())) }
}

/// Names of the tests of a program that wait, as `--list` prints them.
fn waiting_tests(program: &Program, names: &[String]) -> Vec<String> {
    let Ok(output) = Command::new(&program.executable).arg("--list").stderr(Stdio::null()).output() else {
        return Vec::new();
    };
    let mut sources = Sources::default();
    String::from_utf8_lossy(&output.stdout)
        .lines()
        .filter_map(|line| line.strip_suffix(": test"))
        .filter(|test| names.is_empty() || names.iter().any(|name| test.contains(name.as_str())))
        .filter(|test| sources.waits(program, test))
        .map(str::to_string)
        .collect()
}

/// Files of tests that were looked at.
#[derive(Default)]
struct Sources {
    waits: BTreeMap<PathBuf, bool>,
}

impl Sources {
    /// Returns whether the file of a test waits. The file is found by the modules in the test's name; the
    /// modules that stand inside a file lead to that file. A test whose file is not found counts as one that
    /// waits.
    fn waits(&mut self, program: &Program, test: &str) -> bool {
        let target = program.name.rsplit(' ').next().unwrap_or_default();
        let roots = [program.folder.join("tests").join(target), program.folder.join("src")];
        let single = program.folder.join("tests").join(format!("{target}.rs"));
        let mut modules: Vec<&str> = test.split("::").collect();
        modules.pop();
        let found = roots.iter().find_map(|root| file_of(root, &modules));
        let Some(file) = found.or_else(|| single.is_file().then_some(single)) else { return true };
        *self.waits.entry(file).or_insert_with_key(|file| {
            let text = fs::read_to_string(file).unwrap_or_default();
            WAITING.iter().any(|word| text.contains(word))
        })
    }
}

/// The file of the deepest module that has one of its own.
fn file_of(root: &Path, modules: &[&str]) -> Option<PathBuf> {
    (1..=modules.len()).rev().find_map(|depth| {
        let path: PathBuf = modules[..depth].iter().collect();
        let (flat, folder) = (root.join(&path).with_extension("rs"), root.join(&path).join("mod.rs"));
        [flat, folder].into_iter().find(|file| file.is_file())
    })
}

/// Processes that use all the CPU they are given, until this is dropped.
struct BusyLoops(Vec<Child>);

impl BusyLoops {
    fn start() -> Fallible<BusyLoops> {
        let mut loops = BusyLoops(Vec::new());
        for _ in 0..LOOPS {
            // Ends by itself within an hour or so, should this process be killed.
            let script = "i=0; while [ $i -lt 4000000000 ] && kill -0 $PPID 2>/dev/null; do \
                          j=0; while [ $j -lt 100000 ]; do j=$((j+1)); done; i=$((i+1)); done";
            let child = Command::new("sh").args(["-c", script]).stdin(Stdio::null()).spawn();
            loops.0.push(child.map_err(|why| format!("cannot start a busy loop: {why}"))?);
        }
        Ok(loops)
    }
}

impl Drop for BusyLoops {
    fn drop(&mut self) {
        for child in &mut self.0 {
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_file_of_a_test_is_that_of_its_deepest_module() {
        let root = crate::place::root().join("crates/xtask/src");
        let file = |modules: &[&str]| {
            file_of(&root, modules).map(|file| file.strip_prefix(&root).unwrap().to_path_buf())
        };
        assert_eq!(file(&["testing", "load", "tests"]), Some("testing/load.rs".into()));
        assert_eq!(file(&["testing", "tests"]), Some("testing/mod.rs".into()));
        assert_eq!(file(&["nowhere"]), None);
    }

    #[test]
    fn busy_loops_end_when_they_are_dropped() {
        let loops = BusyLoops::start().unwrap();
        let pids: Vec<u32> = loops.0.iter().map(Child::id).collect();
        drop(loops);
        assert!(pids.iter().all(|pid| !Path::new(&format!("/proc/{pid}")).exists()));
    }
}
