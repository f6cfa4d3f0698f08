//! The tests: all programs are built by one command, then run two at a time.
//!
//! ```text
//! build     every program of the workspace in one profile, so that nothing is compiled a second time
//! arguments what the command line chooses
//! run       the test programs, on lanes
//! tally     what they print: counts, skips, times
//! load      the tests that wait, again and again beside busy loops
//! ```

use std::process::Command;
use std::time::{Duration, Instant};

use crate::{Fallible, child, needs, peers};

mod arguments;
mod build;
mod load;
mod run;
mod tally;

pub use arguments::Arguments;
pub use build::{PROFILE, Program, everything, program};
pub use run::{SERVER_TESTS, SIMULATIONS, one as run_program};
use tally::Tally;

/// A test program that takes longer has failed.
const PROGRAM_LIMIT: Duration = Duration::from_secs(1500);

/// Every test of the workspace. Tests that compare with Valkey find it through `ISOTHERM_PEER_BIN`; where it
/// cannot be installed they say so, in a line that begins with `skipped: `, and the end of the run repeats
/// those lines.
pub fn test(args: &[String]) -> Fallible {
    if let [flag, rest @ ..] = args
        && flag == "--beside-load"
    {
        return load::command(rest);
    }
    let arguments = Arguments::parse(args)?;
    needs::check()?;
    println!("== building the tests, profile `{}`", build::PROFILE);
    let programs = build::tests(&arguments)?;
    let peer = peers::valkey();
    if let Err(why) = &peer {
        println!("skipped: comparisons with Valkey: {why}");
    }
    let begun = Instant::now();
    let runs = run::all(programs, &arguments, peer.ok().as_deref());
    let mut tally = Tally::default();
    runs.iter().for_each(|run| tally.add(&run.tally));
    run::print_slowest(&runs);
    tally.print_skipped();
    println!("{} test programs in {:.0} s", runs.len(), begun.elapsed().as_secs_f64());
    let failed: Vec<&str> = runs.iter().filter(|run| !run.is_good).map(|run| run.name.as_str()).collect();
    println!("tests: {tally}");
    if !failed.is_empty() {
        return Err(format!("tests failed: {}", failed.join(", ")));
    }
    if tally.passed == 0 { Err("no test was run".to_string()) } else { Ok(()) }
}

/// Runs tests by a command of cargo, shows what matters of their output, and returns how many passed.
pub fn run_tests(command: &mut Command) -> Fallible<u64> {
    let mut tally = Tally::default();
    let ended = child::run(command, PROGRAM_LIMIT, |line| {
        if tally.read(line) {
            println!("{line}");
        }
    })?;
    tally.print_skipped();
    println!("tests: {tally}");
    if ended.is_success() { Ok(tally.passed) } else { Err(format!("tests failed ({})", ended.describe())) }
}
