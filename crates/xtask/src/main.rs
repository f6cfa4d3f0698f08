//! `cargo xtask`: the commands of daily work, in Rust so that a machine with Rust has them all.
//!
//! No part of the server is here. This crate has no dependencies, so that the first command a newcomer
//! types answers in seconds, and so that a missing tool is named here, in one line, before a dependency's
//! build stumbles over it.
//!
//! A command reports a part that it cannot do on this machine as skipped, with the reason; the part never
//! passes silently.

use std::process::ExitCode;

mod allocators;
mod check;
mod child;
mod ci;
mod deep;
mod fuzz;
mod licences;
mod needs;
mod nightly;
mod peers;
mod place;
mod programs;
mod run;
mod sim;
mod testing;
mod tidy;

const HELP: &str = "\
cargo xtask <command>

  start [--release] [ARGS]  builds the server (without --release: quickly) and starts it; ARGS go to isotherm-server
  check [PART ..]      format, tidy, licences, lints, tests: all, or these parts
  test [ARGS]          all tests, and the skipped ones with reasons; -p, --test and the like choose programs as in cargo
                       test, other words and what stands after -- choose tests;
                       `test --beside-load N [NAME ..]`: the tests that wait, N times, beside three busy loops
  build                all programs and test programs in the profile of the tests
  ci [--all] [--record] [--list | STAGE ..]  all that has to pass before a change lands, as .ci/run does it: with a table
                       of what it cost; --all: what is drawn for a landing otherwise; --record: notes a green run
  tidy                 the project's own rules only; `--circles [CRATE ..]` lists files that name each other,
                       `--places NAME` shows each place that a ceiling counts (NAME: a part of its name),
                       `--lower` lowers each ceiling to what is counted, `--new` adds those that are missing
  compat [list]        writes the differences from Valkey into COMPAT.md, from the markers in the code (list: where)
  fuzz [--minimise] [--seconds N] [TARGET ..]   each fuzz target for N seconds, as many at a time as cores (needs a
                       nightly toolchain); `--minimise`: packs what was found into fuzz/corpus
  miri [ROOM ..]       the modules with unsafe code under Miri (needs a nightly toolchain)
  locks                interleavings of the locks and of the log, explored by a model checker
  sim [--swap] [--seeds A..B]  the server on a simulated disk that crashes and fails (0..1000)
  allocators [NAME ..] builds the server with each allocator, fills and empties it
  peers                installs Valkey to compare with, and prints where; `peers source`: its sources and tclsh
                       (`peers bin`, `peers redis`: where Valkey's programs and Redis' server are, for scripts)
  bench KIND [ARGS]    measures Isotherm beside Valkey: memory, speed, ... (`bench --help`)
  stress [ARGS]        a random mix of all commands from one seed; finds hangs and lost data (`stress --help`);
                       `stress kills`: kill -9 and restart with an append-only file;
                       `stress pressure`: memory and the disk of values are short: nothing is lost, all goes on;
                       `stress sentinel`: kill -9 of the primary, Valkey's sentinels promote a replica
  clients [NAME ..]    runs valkey-cli, redis-cli, redis-py, go-redis, ioredis, Jedis, ... against our server;
                       `clients scripts [NAME ..]`: libraries that work by scripts (BullMQ, asynq, rq, ...), beside
                       Valkey, `--quick yes` those that take seconds; `clients jobs`: the CPU time of 10,000 jobs;
                       `clients cluster`: slots move for many loops while libraries write, `--quick yes` for seconds,
                       `reloads`: how often they load the topology
  conformance [ARGS]   sends the same commands to Isotherm and Valkey and compares; runs Valkey's own tests
";

/// Why a command did not end well; `Display` is what the user reads.
pub type Fallible<T = ()> = Result<T, String>;

fn main() -> ExitCode {
    let args: Vec<String> = std::env::args().skip(1).collect();
    match command(&args) {
        Ok(()) => ExitCode::SUCCESS,
        Err(why) => {
            eprintln!("xtask: {why}");
            ExitCode::FAILURE
        }
    }
}

fn command(args: &[String]) -> Fallible {
    let Some((name, rest)) = args.split_first() else {
        print!("{HELP}");
        return Ok(());
    };
    match name.as_str() {
        "start" => programs::start(rest),
        "check" => check::check(rest),
        "ci" => ci::command(rest),
        "build" => testing::everything().map(drop),
        "test" => testing::test(rest),
        "tidy" => check::tidy(rest),
        "compat" => tidy::compat::command(&place::root(), rest),
        "allocators" => allocators::command(rest),
        "fuzz" => fuzz::fuzz(rest),
        "miri" => deep::miri(rest),
        "locks" => deep::locks(),
        "sim" => sim::command(rest),
        "peers" => peers::command(rest),
        "bench" => programs::bench(rest),
        "stress" => programs::stress(rest),
        "clients" => programs::clients(rest),
        "conformance" => programs::conformance(rest),
        "help" | "--help" | "-h" => {
            print!("{HELP}");
            Ok(())
        }
        other => Err(format!("no command called '{other}'\n\n{HELP}")),
    }
}
