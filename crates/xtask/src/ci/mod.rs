//! Everything that has to pass before a change lands: `.ci/run` calls this.
//!
//! ```text
//! stages     the table: what runs, beside what, for how long at most
//! lane       one stage at a time: its calls as children, its output, its cost
//! table      the costs, as they are shown at the end
//! draw       a choice that the commit's hash makes
//! documents  a change of documents alone, and the tests that read them
//! ```
//!
//! Stages of a phase run on two lanes, since two cores are what CI has: one waits while the other works. A
//! phase begins when the one before has ended; after a failure none begins.

use std::path::Path;
use std::process::Command;
use std::sync::Mutex;
use std::time::{Duration, Instant};

use crate::{Fallible, place, run};
use documents::Decision;
use lane::Outcome;
use stages::{PHASES, Stage};

mod documents;
mod draw;
mod lane;
mod stages;
mod table;

/// Disk space that a run from a clean clone leaves filled at most, in the target folder and in the folder for
/// temporary files.
const DISK_NEED: u64 = 24 << 30;

const USAGE: &str = "usage: cargo xtask ci [--all] [--record] [--list | STAGE ..]";

/// Choices of the command line.
#[derive(Default)]
struct Options {
    /// Makes all calls of a stage, instead of one that is drawn.
    all: bool,
    /// Writes the commit down as one whose full run was green.
    record: bool,
    list: bool,
    stages: Vec<String>,
}

pub fn command(args: &[String]) -> Fallible {
    let options = options(args)?;
    if options.list {
        print!("{}", stages::list());
        return Ok(());
    }
    enough_disk(&place::target())?;
    let begun = Instant::now();
    let commit = draw::commit();
    let outcomes = if !options.stages.is_empty() {
        println!("only {}", options.stages.join(", "));
        run_all(&|stage| options.stages.iter().any(|name| name == stage.name), &options, &commit)
    } else {
        match documents::decide(&place::root(), options.all)? {
            Decision::All(why) => {
                println!("everything runs: {why}");
                run_all(&|_| true, &options, &commit)
            }
            Decision::Documents(change) => documents::check(&change, &options, &commit)?,
        }
    };
    println!("\n{}", table::text(&outcomes, begun.elapsed()));
    let failed: Vec<&str> =
        outcomes.iter().filter(|outcome| !outcome.is_good).map(|outcome| outcome.name).collect();
    if !failed.is_empty() {
        for outcome in outcomes.iter().filter(|outcome| !outcome.is_good) {
            println!("\n#### last lines of {}", outcome.name);
            outcome.last_lines.iter().for_each(|line| println!("{line}"));
        }
        return Err(format!("failed: {}", failed.join(", ")));
    }
    if options.record {
        documents::record(&place::root(), begun.elapsed())?;
    }
    println!("all green");
    Ok(())
}

fn options(args: &[String]) -> Fallible<Options> {
    let mut options = Options::default();
    for arg in args {
        match arg.as_str() {
            "--all" => options.all = true,
            "--record" => options.record = true,
            "--list" => options.list = true,
            name if stages::is_known(name) => options.stages.push(name.to_string()),
            other => return Err(format!("no stage '{other}'; {USAGE}")),
        }
    }
    Ok(options)
}

/// Runs the chosen stages, phase by phase, and returns how each ended, in the order of the table.
fn run_all(is_chosen: &dyn Fn(&Stage) -> bool, options: &Options, commit: &str) -> Vec<Outcome> {
    let begun = Instant::now();
    let mut all = Vec::new();
    for phase in PHASES {
        let lanes: Vec<Vec<&Stage>> =
            phase.iter().map(|lane| lane.iter().filter(|stage| is_chosen(stage)).collect()).collect();
        let ended = Mutex::new(Vec::new());
        std::thread::scope(|scope| {
            for stages in &lanes {
                let ended = &ended;
                scope.spawn(move || {
                    for stage in stages {
                        let outcome = lane::run(stage, options.all, commit, begun);
                        let is_good = outcome.is_good;
                        ended.lock().expect("no lane panics").push(outcome);
                        if !is_good && stage.others_need_it {
                            return;
                        }
                    }
                });
            }
        });
        let mut ended = ended.into_inner().expect("no lane panics");
        let place =
            |name: &str| phase.iter().flat_map(|lane| lane.iter()).position(|stage| stage.name == name);
        ended.sort_by_key(|outcome| place(outcome.name));
        all.append(&mut ended);
        if all.iter().any(|outcome| !outcome.is_good) {
            break;
        }
    }
    all
}

/// Names what is missing before anything begins: a build that meets a full disk fails in words of its own.
fn enough_disk(folder: &Path) -> Fallible {
    let existing = folder.ancestors().find(|folder| folder.is_dir()).unwrap_or(Path::new("/"));
    let text = run::quiet(Command::new("df").args(["-Pk"]).arg(existing))?;
    let free = text.lines().nth(1).and_then(|line| line.split_whitespace().nth(3)?.parse::<u64>().ok());
    let built = if folder.is_dir() { used(folder) } else { 0 };
    match free.map(|kib| (kib << 10) + built) {
        Some(free) if free < DISK_NEED => Err(format!(
            "{} has {} GB free; a run needs {} GB below the target folder",
            existing.display(),
            free >> 30,
            DISK_NEED >> 30
        )),
        _ => Ok(()),
    }
}

/// Bytes that the target folder has already.
fn used(folder: &Path) -> u64 {
    let text = run::quiet(Command::new("du").args(["-sk"]).arg(folder)).unwrap_or_default();
    text.split_whitespace().next().and_then(|kib| kib.parse::<u64>().ok()).unwrap_or(0) << 10
}

/// Seconds as a limit.
const fn limit(seconds: u64) -> Duration {
    Duration::from_secs(seconds)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_stage_has_to_exist() {
        assert!(options(&["--all".to_string(), "stress".to_string()]).is_ok());
        assert!(options(&["nonsense".to_string()]).is_err());
    }
}
