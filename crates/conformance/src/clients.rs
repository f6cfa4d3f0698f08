//! Clients that must work unchanged: Valkey's own command lines and the libraries that applications use.
//!
//! ```text
//! libraries      crates/conformance/clients/<language>/: one small program each, pinned versions
//!                install (pip, go, npm, mvn) --> run against a fresh server --> "ok <step>" for every step of STEPS
//! command lines  valkey-cli, redis-cli, valkey-benchmark: arguments and input in, exact output expected
//! ```
//! A tool that this machine lacks and cannot get is a skip, reported with its reason. A client that was
//! started and does not do as it should is a failure, and so is one that skips a step. All of it ends within
//! `Clock::total`.

mod command_line;
mod library;

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use crate::Fallible;
use crate::bounded::Ended;
use crate::process::Server;

/// Paths of the programs, and of the folder for installed libraries.
pub struct Places {
    pub server: PathBuf,
    /// valkey-cli, valkey-benchmark and redis-cli; those that are not there are skipped.
    pub bin: Option<PathBuf>,
    /// Folder in which libraries are installed, and found again in the next run.
    pub folder: PathBuf,
}

impl Places {
    fn start(&self) -> Fallible<Server> {
        Server::start(&self.server, &[])
    }
}

/// Result of the check of one client.
pub enum Verdict {
    Passed { steps: usize },
    Skipped(String),
    Failed(String),
}

/// The time that is left for everything.
#[derive(Clone, Copy)]
pub struct Clock {
    ends: Instant,
}

impl Clock {
    pub fn total(time: Duration) -> Clock {
        Clock { ends: Instant::now() + time }
    }

    /// At most `time`, and no more than is left.
    fn at_most(self, time: Duration) -> Duration {
        time.min(self.ends.saturating_duration_since(Instant::now()))
    }
}

/// Runs every client, or those that are named, and says how each fared. True if none failed.
pub fn run(places: &Places, named: &[String], clock: Clock) -> Fallible<bool> {
    type Try<'a> = Box<dyn Fn() -> Verdict + 'a>;
    let mut clients: Vec<(&str, Try<'_>)> = Vec::new();
    for name in ["valkey-cli", "redis-cli"] {
        clients.push((name, Box::new(move || command_line::cli(name, places, clock))));
    }
    clients.push(("valkey-benchmark", Box::new(|| command_line::benchmark(places, clock))));
    for library in &library::LIBRARIES {
        clients.push((library.name, Box::new(move || library.check(places, clock))));
    }
    if let Some(unknown) = named.iter().find(|name| clients.iter().all(|(known, _)| known != name)) {
        let known: Vec<&str> = clients.iter().map(|(name, _)| *name).collect();
        return Err(format!("no such client: {unknown}; there are {}", known.join(", ")));
    }
    let mut all_well = true;
    for (name, check) in clients {
        if !named.is_empty() && !named.iter().any(|wanted| wanted == name) {
            continue;
        }
        let begun = Instant::now();
        let verdict = check();
        let seconds = begun.elapsed().as_secs_f64();
        match verdict {
            Verdict::Passed { steps } => println!("{name}: ok, {steps} steps, {seconds:.1} s"),
            Verdict::Skipped(why) => println!("skipped: {name}: {why}"),
            Verdict::Failed(why) => {
                all_well = false;
                println!("{name}: FAILED, {seconds:.1} s\n{why}");
            }
        }
    }
    Ok(all_well)
}

/// The libraries that have a writer for clusters, and what runs it, or why it cannot be installed.
pub fn writers(places: &Places, clock: Clock) -> Vec<(&'static str, Result<Command, String>)> {
    let writer = |library: &library::Library| Some((library.name, library.writer(places, clock)?));
    library::LIBRARIES.iter().filter_map(writer).collect()
}

/// The file called `name` in PATH.
pub fn in_path(name: &str) -> Option<PathBuf> {
    let path = std::env::var_os("PATH")?;
    std::env::split_paths(&path).map(|folder| folder.join(name)).find(|file| file.is_file())
}

pub fn sources() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("clients")
}

/// Returns the last lines of a program's output, in which the reason for a failure can be found.
fn last_lines(ended: &Ended) -> String {
    const LINES: usize = 25;
    let text = format!("{}{}", ended.output, ended.errors);
    let lines: Vec<&str> = text.lines().collect();
    lines[lines.len().saturating_sub(LINES)..].join("\n")
}
