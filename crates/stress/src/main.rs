//! Finds what hangs a server and what loses data in it: a random mix of everything at once, drawn from one
//! seed, watched from outside while it runs and audited when it is over. `cargo xtask stress` builds what it
//! needs.
//!
//! ```text
//!   seed --plan--> clients, workers, lanes, disturbances
//!                     |
//!     +---------------+-----------------------------+
//!     v               v                             v
//!   lanes          disturbances                 watchdog
//!   queues,        SLEEP, STOP, PAUSE, KILL,    PING on each worker, the gate, the cron's
//!   streams, ...   CONFIG SET, SWAPDB, RELOAD   tick, a new connection, RSS, the process
//!     |  each keeps a ledger of what it sent         |
//!     v  and of what it was answered                 v
//!   audit: delivered once or still there          faults --> a folder with what was sent, and the command that repeats it
//! ```
//!
//! A fault is a server that keeps a client waiting, a thing that was acknowledged and is gone, or memory and
//! CPU that do not come back. Wrong answers are found elsewhere (`conformance`); here only what waits, what
//! is lost and what stays matter.
//!
//! The exit code is 0 without a fault, 2 if everything wrong was late, which may be the machine's doing, and
//! 1 otherwise.
//!
//! * `options`, `plan`: what is asked for, and what a seed makes of it.
//! * `world` is what the threads of a run share; `allowance` knows which waits do not count; `record` what
//!   was sent.
//! * `connection` is one client; `ledger` holds what was sent against what came; `grammar` draws any command
//!   there is.
//! * `lanes` are the kinds of clients. `watchdog` looks on, `settle` looks when all have left; `threads`
//!   writes down what the server is at while it stalls.
//! * `kills` is another program: what was answered is there after a kill -9.
//! * `liveness` is another: one client's scripts, values and messages leave new connections their answers.
//! * `pressure` is another: memory and the disk of values are short, and nothing is lost by it.
//! * `sentinel` is another: what was answered is at the replica that sentinels promote.
//! * `run` is one seed from start to end; `report` says what became of it.

use std::process::ExitCode;

mod kills;
mod kinds;
mod liveness;
mod options;
mod plan;
mod pressure;
mod sentinel;

mod allowance;
mod connection;
mod record;
mod world;

mod grammar;

mod lanes;
mod ledger;

mod settle;
mod threads;
mod watchdog;

mod report;
mod run;

use options::{HELP, Options};
use world::Severity;

pub use isotherm_probe::Fallible;

fn main() -> ExitCode {
    let args: Vec<String> = std::env::args().skip(1).collect();
    type Program = fn(&[String]) -> Fallible<usize>;
    let other: Option<(&str, Program)> = match args.first().map(String::as_str) {
        Some("kills") => Some((kills::HELP, kills::run)),
        Some("pressure") => Some((pressure::HELP, pressure::run)),
        Some("sentinel") => Some((sentinel::HELP, sentinel::run)),
        _ => None,
    };
    if args.first().is_some_and(|first| first == "liveness") {
        if args.iter().any(|arg| arg == "--help") {
            print!("{}", liveness::HELP);
            return ExitCode::SUCCESS;
        }
        return exit_code(liveness::run(&args[1..]));
    }
    if args.iter().any(|arg| arg == "--help") {
        print!("{}", other.map_or(HELP, |(help, _)| help));
        return ExitCode::SUCCESS;
    }
    if let Some((_, run)) = other {
        return match run(&args[1..]) {
            Ok(0) => ExitCode::SUCCESS,
            Ok(_) => ExitCode::FAILURE,
            Err(why) => {
                eprintln!("stress: {why}");
                ExitCode::FAILURE
            }
        };
    }
    exit_code(Options::parse(&args).and_then(|options| run::all(&options)))
}

fn exit_code(worst: Fallible<Option<Severity>>) -> ExitCode {
    match worst {
        Ok(None) => ExitCode::SUCCESS,
        Ok(Some(Severity::Wrong)) => ExitCode::FAILURE,
        // Asking again may help: the machine may have been busy with something else.
        Ok(Some(Severity::Late)) => ExitCode::from(2),
        Err(why) => {
            eprintln!("stress: {why}");
            ExitCode::FAILURE
        }
    }
}
