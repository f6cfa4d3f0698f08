//! The simulations inside the server: its persistence on a disk that crashes and fails, its replica, its
//! values on disk.
//!
//! Each is a test of the server's own; a range of seeds goes to it in `SEEDS`. Two processes run at a time,
//! each with a part of the seeds, since a process keeps some memory of each.

use std::collections::VecDeque;
use std::path::Path;
use std::sync::Mutex;

use crate::testing::{self, Arguments, Program};
use crate::{Fallible, run};

/// Seeds of one process.
const SEEDS_PER_PROCESS: u64 = 100;
/// The simulations and the seeds of each that a landing runs; `None`: the test has no seeds, or those of a
/// landing by itself.
const COURSES: [(&str, Option<(u64, u64)>); 4] = [
    ("sim::seeds::", Some((0, 1_000))),
    ("sim::follower::", Some((0, 60))),
    ("sim::sweep::", None),
    ("sim::swap::", None),
];

/// A simulation, and the seeds that one process runs.
type Part = (&'static str, Option<(u64, u64)>);

/// `cargo xtask sim [--swap] [--seeds A..B]`: all courses with the seeds of a landing, or one with others.
pub fn command(args: &[String]) -> Fallible {
    let usage = "usage: cargo xtask sim [--swap] [--seeds A..B]";
    let courses: Vec<Part> = match args {
        [] => COURSES.to_vec(),
        [flag, range] if flag == "--seeds" && range == "0..1000" => COURSES.to_vec(),
        [flag, range] if flag == "--seeds" => vec![("sim::seeds::", Some(seeds(range)?)), COURSES[2]],
        [swap, flag, range] if swap == "--swap" && flag == "--seeds" => {
            vec![("sim::swap::", Some(seeds(range)?))]
        }
        _ => return Err(usage.to_string()),
    };
    let program = testing::everything()?
        .into_iter()
        .find(|program| program.is_test && program.name == testing::SIMULATIONS)
        .ok_or("the server has no test program")?;
    run::step("the server on a simulated disk", || all(&program, courses))
}

fn all(program: &Program, courses: Vec<Part>) -> Fallible {
    let queue: Mutex<VecDeque<Part>> = Mutex::new(courses.into_iter().flat_map(parts).collect());
    let work = || {
        loop {
            let Some(part) = queue.lock().expect("no lane panics").pop_front() else { return Ok(()) };
            one(program, part)?;
        }
    };
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    std::thread::scope(|scope| {
        let threads: Vec<_> = (0..cores).map(|_| scope.spawn(work)).collect();
        threads.into_iter().try_for_each(|thread| thread.join().map_err(|_| "a panic".to_string())?)
    })
}

/// Cuts the seeds of a course into those of single processes.
fn parts((name, seeds): Part) -> Vec<Part> {
    let Some((from, to)) = seeds else { return vec![(name, None)] };
    let begins = (from..to).step_by(SEEDS_PER_PROCESS as usize);
    begins.map(|at| (name, Some((at, to.min(at + SEEDS_PER_PROCESS))))).collect()
}

fn one(program: &Program, (name, seeds): Part) -> Fallible {
    let of_programs = [name, "--nocapture"].map(str::to_string).to_vec();
    let arguments = Arguments { of_programs, ..Arguments::default() };
    let seeds = seeds.map(|(from, to)| format!("{from}..{to}"));
    let mut variables = vec![("RUST_BACKTRACE", "0")];
    variables.extend(seeds.iter().map(|seeds| ("SEEDS", seeds.as_str())));
    let ran = testing::run_program(program, &arguments, None::<&Path>, &variables);
    let what = format!("{name} {}", seeds.as_deref().unwrap_or("all"));
    match ran.tally.passed {
        _ if !ran.is_good => Err(format!("{what}: failed")),
        0 => Err(format!("{what}: no test was run")),
        _ => Ok(()),
    }
}

fn seeds(range: &str) -> Fallible<(u64, u64)> {
    let numbers = range.split_once("..").and_then(|(from, to)| Some((from.parse().ok()?, to.parse().ok()?)));
    numbers.ok_or_else(|| format!("'{range}' is no range of seeds, as 0..10000 is"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn seeds_are_cut_into_processes_without_a_gap() {
        let ranges: Vec<_> = parts(("a", Some((50, 260)))).into_iter().filter_map(|part| part.1).collect();
        assert_eq!(ranges, [(50, 150), (150, 250), (250, 260)]);
        assert_eq!(parts(("a", None)), [("a", None)]);
        assert!(seeds("1-2").is_err() && seeds("1..2") == Ok((1, 2)));
    }
}
