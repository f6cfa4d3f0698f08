//! Valkey's own test suite, which starts its servers itself: ours in the place of Valkey's, file by file.
//!
//! ```text
//!   scratch/tests              copied from Valkey's source
//!   scratch/src/valkey-server  -> isotherm-server; valkey-cli, valkey-check-rdb, ... likewise
//!   tclsh tests/test_helper.tcl --single UNIT --durable --skiptest ...
//!     [ok]: name (3 ms)    [err]: name in tests/UNIT.tcl    ...
//! ```
//! `--durable`: a test that fails does not end its file. A file runs alone: the end of one removes the
//! folders of all. The tests of Sentinel have a runner of their own, and sentinels that are Valkey's
//! (`sentinel`).

mod list;
mod sentinel;
mod tls;

use std::collections::BTreeMap;
use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use crate::Fallible;
use crate::bounded::{self, Ended};
use list::Unit;

/// The lists, by the names that `suite` takes.
const LISTS: &[(&str, &str)] = &[
    ("disk", include_str!("suite/disk.txt")),
    ("users", include_str!("suite/users.txt")),
    ("replication", include_str!("suite/replication.txt")),
    (sentinel::LIST, include_str!("suite/sentinel.txt")),
    (tls::LIST, include_str!("suite/tls.txt")),
    (CLUSTER, include_str!("suite/cluster.txt")),
];

/// Name of the list in which only the server is tested. The tools are Valkey's own, because its users have
/// them.
const CLUSTER: &str = "cluster";

/// Maximum time of a file of the suite.
const UNIT_TIME: Duration = Duration::from_secs(1200);
/// Ports of one file's servers.
const PORTS: u16 = 400;
/// Longest part of a failure's text that is shown, in bytes.
const SHOWN_BYTES: usize = 600;

/// The programs that the suite calls, and those that stand in for them: the server first.
const PROGRAMS: [(&str, &str); 5] = [
    ("valkey-server", "isotherm-server"),
    ("valkey-cli", "isotherm-cli"),
    ("valkey-benchmark", "isotherm-benchmark"),
    ("valkey-check-aof", "isotherm-check-aof"),
    ("valkey-check-rdb", "isotherm-check-rdb"),
];

/// Folders of the programs, and of Valkey's source.
pub struct Places {
    /// The folder of our programs.
    pub ours: PathBuf,
    /// Valkey's programs, and `tclsh`.
    pub peers: PathBuf,
    /// Valkey's source.
    pub source: PathBuf,
}

pub struct Options {
    /// Only units whose name has this.
    pub only: Option<String>,
    /// Valkey itself is tested: what it does not pass says nothing about us.
    pub is_valkey: bool,
}

/// Results of the tests of a file.
#[derive(Default, Debug)]
struct Outcome {
    passed: Vec<String>,
    /// And what was said.
    failed: Vec<(String, String)>,
    /// Messages of servers that did not start, either outside of tests or in a test that then fails.
    unstarted: Vec<String>,
    /// Why the file did not come to its end.
    aborted: Option<String>,
}

/// The names of all lists.
pub fn names() -> String {
    LISTS.iter().map(|list| list.0).collect::<Vec<_>>().join(", ")
}

/// Runs the list `name`. True if all passed that is not known to fail.
pub fn run(name: &str, places: &Places, options: &Options) -> Fallible<bool> {
    let text = LISTS.iter().find(|list| list.0 == name).map(|list| list.1);
    let text = text.ok_or_else(|| format!("no list called {name}; there are: {}", names()))?;
    let scratch = std::env::temp_dir().join(format!("isotherm-suite-{}", std::process::id()));
    let run_one = match name {
        sentinel::LIST => sentinel::run_unit,
        tls::LIST => tls::run_unit,
        _ => run_unit,
    };
    // The first of `PROGRAMS` that are ours.
    let ours = if options.is_valkey {
        0
    } else if name == CLUSTER {
        1
    } else {
        PROGRAMS.len()
    };
    let result = prepare(&scratch, places, ours)
        .and_then(|()| run_in(&scratch, &list::parse(text)?, places, options, run_one));
    let _ = std::fs::remove_dir_all(&scratch);
    result
}

/// Runs the tests of one file, in the folder of the suite.
type RunUnit = fn(&Path, &Unit, &Places, &Options) -> Fallible<Outcome>;

fn run_in(
    scratch: &Path,
    units: &[Unit],
    places: &Places,
    options: &Options,
    run_unit: RunUnit,
) -> Fallible<bool> {
    let (mut passed, mut known, mut skipped, mut unexpected) = (0, 0, 0, 0);
    for unit in units.iter().filter(|unit| options.only.as_ref().is_none_or(|part| unit.name.contains(part)))
    {
        let outcome = run_unit(scratch, unit, places, options)?;
        let exceptions: BTreeMap<&str, &str> =
            unit.failing.iter().map(|one| (one.test.as_str(), one.reason.as_str())).collect();
        let is_known = |test: &str| exceptions.get(test).copied().filter(|_| !options.is_valkey);
        println!("{}: {} passed, {} failed", unit.name, outcome.passed.len(), outcome.failed.len());
        passed += outcome.passed.len();
        for (test, said) in &outcome.failed {
            match is_known(test) {
                Some(reason) => {
                    known += 1;
                    println!("  known: {test}: {reason}");
                }
                None => {
                    unexpected += 1;
                    println!("  FAILED: {test}\n{}", shown(said));
                }
            }
        }
        for said in &outcome.unstarted {
            println!("  a server did not start: {said}");
        }
        for test in outcome.passed.iter().filter(|test| is_known(test).is_some()) {
            println!("  passes, though it is known to fail: {test}");
        }
        for one in unit.skipped.iter().filter(|_| !options.is_valkey) {
            skipped += 1;
            println!("  not run: {}: {}", one.test, one.reason);
        }
        let known_abort = unit.aborts.as_ref().filter(|_| !options.is_valkey && outcome.aborted.is_some());
        if let Some(reason) = known_abort {
            println!("  known: the file does not come to its end: {reason}");
        } else if let Some(why) = outcome.aborted {
            unexpected += 1;
            println!("  FAILED: the file did not come to its end\n{}", shown(&why));
        }
    }
    let total = passed + known + unexpected + skipped;
    println!(
        "{passed} of {total} tests pass ({:.1} %); {known} are known to fail, {skipped} not run, {unexpected} failures beside them",
        100.0 * passed as f64 / total.max(1) as f64
    );
    Ok(unexpected == 0)
}

fn shown(text: &str) -> String {
    let text: String = text.chars().take(SHOWN_BYTES).collect();
    text.lines().map(|line| format!("    {line}\n")).collect()
}

/// The folder in which the suite runs, with the programs where it looks for them.
fn prepare(scratch: &Path, places: &Places, ours_count: usize) -> Fallible {
    let failed = |path: &Path, why: std::io::Error| format!("{}: {why}", path.display());
    let src = scratch.join("src");
    std::fs::create_dir_all(&src).map_err(|why| failed(&src, why))?;
    let copied = Command::new("cp").arg("-a").arg(places.source.join("tests")).arg(scratch).status();
    if !copied.is_ok_and(|status| status.success()) {
        return Err(format!("cannot copy {}/tests", places.source.display()));
    }
    let tmp = scratch.join("tests/tmp");
    std::fs::create_dir_all(&tmp).map_err(|why| failed(&tmp, why))?;
    for (number, (theirs, ours)) in PROGRAMS.into_iter().enumerate() {
        let program = if number < ours_count { places.ours.join(ours) } else { places.peers.join(theirs) };
        if !program.is_file() {
            return Err(format!("{} is not there", program.display()));
        }
        link(&program, &src.join(theirs))?;
    }
    // Some tests read these.
    for (name, to) in [("commands", &src), ("version.h", &src)] {
        link(&places.source.join("src").join(name), &to.join(name))?;
    }
    link(&places.source.join("valkey.conf"), &scratch.join("valkey.conf"))
}

fn link(to: &Path, at: &Path) -> Fallible {
    std::os::unix::fs::symlink(to, at).map_err(|why| format!("{}: {why}", at.display()))
}

fn run_unit(scratch: &Path, unit: &Unit, places: &Places, options: &Options) -> Fallible<Outcome> {
    run_unit_with(&[], scratch, unit, places, options)
}

/// With more arguments.
fn run_unit_with(
    arguments: &[&str],
    scratch: &Path,
    unit: &Unit,
    places: &Places,
    options: &Options,
) -> Fallible<Outcome> {
    let mut command = Command::new(places.peers.join("tclsh"));
    let (first, count) = (free_ports()?.to_string(), PORTS.to_string());
    command.args(["tests/test_helper.tcl", "--single", &unit.name, "--clients", "1", "--durable"]);
    command.args(["--baseport", &first, "--portcount", &count]).args(arguments);
    for (name, value) in unit.config.iter().filter(|_| !options.is_valkey) {
        command.args(["--config", name, value]);
    }
    for test in &unit.only {
        command.args(["--only", test]);
    }
    for one in unit.skipped.iter().filter(|_| !options.is_valkey) {
        command.args(["--skiptest", &one.test]);
    }
    command.current_dir(scratch).env("TERM", "dumb").env("LC_ALL", "C.UTF-8");
    let ended = bounded::run(&mut command, b"", UNIT_TIME)?;
    Ok(read(&ended))
}

/// A free port. The ports after it are probably free too.
fn free_ports() -> Fallible<u16> {
    const LAST: u16 = 32_000;
    let is_free = |port: &u16| TcpListener::bind(("127.0.0.1", *port)).is_ok();
    let from = 21_000 + (std::process::id() % 20) as u16 * PORTS;
    let found = (from..LAST).step_by(usize::from(PORTS)).find(is_free);
    found.ok_or_else(|| "no free ports".to_string())
}

/// Reads the output of the suite: a line for each test and, after a failure, the text about it.
fn read(ended: &Ended) -> Outcome {
    let mut outcome = Outcome::default();
    let (mut is_failure, mut is_unstarted) = (false, false);
    for line in ended.output.lines() {
        if let Some(test) = line.strip_prefix("[ok]: ") {
            (is_failure, is_unstarted) = (false, false);
            let end = test.rfind(" (").unwrap_or(test.len());
            outcome.passed.push(test[..end].to_string());
        } else if line.starts_with("[err]: Can't start ") {
            (is_failure, is_unstarted) = (false, true);
        } else if let Some(test) = line.strip_prefix("[err]: ") {
            (is_failure, is_unstarted) = (true, false);
            let end = test.rfind(" in tests/").unwrap_or(test.len());
            outcome.failed.push((test[..end].to_string(), String::new()));
        } else if line.starts_with('[') {
            (is_failure, is_unstarted) = (false, false);
            if let Some(why) = line.strip_prefix("[exception]: ") {
                outcome.aborted = Some(why.to_string());
            }
        } else if line.trim() == "The End" {
            return outcome;
        } else if is_failure && let Some((_, said)) = outcome.failed.last_mut() {
            said.push_str(line);
            said.push('\n');
        } else if is_unstarted && line.starts_with(">>> ") {
            outcome.unstarted.push(line[4..].to_string());
        }
    }
    let how = format!("{}\n{}", ended.how(), ended.errors);
    outcome.aborted.get_or_insert(how);
    outcome
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read_text(output: &str) -> Outcome {
        read(&Ended { status: None, output: output.to_string(), errors: "its errors".to_string() })
    }

    #[test]
    fn each_line_is_a_test() {
        let output = "[ready]: 1\n[ok]: a (b) c (3 ms)\n[err]: d in tests/unit/x.tcl\nwhy\nand where\n[skip]: e\n[err]: Can't start x\nport 1\n>>> 'g h'\n[ok]: f (0 ms)\n\
                      [1/1 done]: unit/x (1 seconds)\n\n  The End\n\n*** [err]: d in tests/unit/x.tcl\nwhy\n";
        let outcome = read_text(output);
        assert_eq!(outcome.passed, ["a (b) c", "f"]);
        assert_eq!(outcome.failed, [("d".to_string(), "why\nand where\n".to_string())]);
        assert_eq!((outcome.unstarted, outcome.aborted), (vec!["'g h'".to_string()], None));
    }

    #[test]
    fn a_file_without_its_end_is_a_failure() {
        assert!(read_text("[ok]: a (3 ms)\n").aborted.unwrap().contains("its errors"));
        assert_eq!(read_text("[exception]: it broke\n").aborted.as_deref(), Some("it broke"));
    }
}
