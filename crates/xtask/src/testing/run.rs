//! Test programs, two at a time: those of the server wait more than they work, those of the other crates the
//! other way round.
//!
//! Output of a program is shown when it has ended, so that two do not mix. Each is run as cargo would: in
//! the folder of its crate.

use std::collections::VecDeque;
use std::path::Path;
use std::process::Command;
use std::sync::Mutex;

use super::{Arguments, PROGRAM_LIMIT, Program, Tally};
use crate::child::{self, Cost};

/// Programs that run at the same time.
const LANES: usize = 2;
/// The program that takes longest: it begins first, and its tests start processes and wait for them.
pub const SERVER_TESTS: &str = "server it";
const SERVER_TESTS_THREADS: &str = "4";
/// The program with the simulations of the server.
pub const SIMULATIONS: &str = "server isotherm-server";
/// Lines of a program's output that are shown; of one that fails the last of them matter.
const LINES_MAX: usize = 4000;
const SLOWEST: usize = 10;

/// A program that has run.
pub struct Run {
    pub name: String,
    pub is_good: bool,
    pub cost: Cost,
    pub tally: Tally,
}

pub fn all(mut programs: Vec<Program>, arguments: &Arguments, peer: Option<&Path>) -> Vec<Run> {
    programs.sort_by_key(|program| (program.name != SERVER_TESTS, program.name != SIMULATIONS));
    let count = programs.len();
    let queue = Mutex::new(programs.into_iter().enumerate().collect::<VecDeque<_>>());
    let runs = Mutex::new(Vec::new());
    let lane = || {
        loop {
            let Some((index, program)) = queue.lock().expect("no lane panics").pop_front() else { return };
            println!("== {} of {count}: {}", index + 1, program.name);
            let run = one(&program, arguments, peer, &[]);
            runs.lock().expect("no lane panics").push(run);
        }
    };
    std::thread::scope(|scope| {
        for _ in 0..LANES {
            scope.spawn(lane);
        }
    });
    runs.into_inner().expect("no lane panics")
}

/// Runs a program and shows what matters of its output.
pub fn one(program: &Program, arguments: &Arguments, peer: Option<&Path>, variables: &[(&str, &str)]) -> Run {
    let mut command = Command::new(&program.executable);
    command.current_dir(&program.folder).env("CARGO_MANIFEST_DIR", &program.folder).args(["--show-output"]);
    // Times of tests are an option that the stable test runner has, but only shows if it is asked in this
    // way.
    command.env("RUSTC_BOOTSTRAP", "1").args(["-Z", "unstable-options", "--report-time"]);
    if program.name == SERVER_TESTS && !arguments.of_programs.iter().any(|arg| arg == "--test-threads") {
        command.args(["--test-threads", SERVER_TESTS_THREADS]);
    }
    if program.name == SIMULATIONS && arguments.without_simulations {
        command.args(["--skip", "sim::"]);
    }
    command.args(&arguments.of_programs).envs(variables.iter().copied());
    if let Some(bin) = peer {
        command.env("ISOTHERM_PEER_BIN", bin);
    }
    let mut tally = Tally::default();
    let mut shown = VecDeque::new();
    let ended = child::run(&mut command, PROGRAM_LIMIT, |line| {
        if tally.read(line) {
            if shown.len() == LINES_MAX {
                shown.pop_front();
            }
            shown.push_back(line.to_string());
        }
    });
    let (is_good, cost, why) = match ended {
        Ok(ended) => (ended.is_success(), ended.cost, ended.describe()),
        Err(why) => (false, Cost::default(), why),
    };
    let name = program.name.clone();
    let text: Vec<String> = shown.into_iter().collect();
    let verdict = if is_good { "ok".to_string() } else { format!("FAILED ({why})") };
    println!("== {name}: {verdict}, {:.1} s, {:.1} s of CPU\n{}", cost.wall_s, cost.cpu_s, text.join("\n"));
    Run { name, is_good, cost, tally }
}

pub fn print_slowest(runs: &[Run]) {
    let mut programs: Vec<&Run> = runs.iter().collect();
    programs.sort_by(|a, b| b.cost.wall_s.total_cmp(&a.cost.wall_s));
    println!("slowest test programs: seconds, seconds of CPU");
    for run in programs.iter().take(SLOWEST) {
        println!("{:>8.1} {:>8.1}  {}", run.cost.wall_s, run.cost.cpu_s, run.name);
    }
    let mut tests: Vec<(f64, &str, &str)> = runs
        .iter()
        .flat_map(|run| {
            run.tally.times.iter().map(|(seconds, test)| (*seconds, run.name.as_str(), test.as_str()))
        })
        .collect();
    tests.sort_by(|a, b| b.0.total_cmp(&a.0));
    println!("slowest tests: seconds");
    for (seconds, program, test) in tests.iter().take(SLOWEST) {
        println!("{seconds:>8.1}  {program} {test}");
    }
}
