//! `isotherm-memlab`: what structures and allocators do to memory, by small honest models, one table a
//! command.
//!
//! The five documents that Isotherm started from published such tables; each is made again here, next to
//! their figures.
//!
//! ```text
//!   isotherm-memlab TABLE                         the one that is asked: plans, prints, writes
//!       |  for each allocator, each case
//!       v
//!   isotherm-memlab-jemalloc --work CASE ARGS     builds one structure and prints `name value` lines
//!   isotherm-server-jemalloc                      or the real server, filled over a socket
//! ```
//!
//! A case has a process of its own, so memory that one case leaves behind is not in the figures of the next;
//! and a binary has one allocator, so there are four of them. A table is printed and written when all of its
//! rows are there, and not before.

mod arenas;
mod cluster_slots;
mod course;
mod figures;
mod fragmentation;
mod kept;
mod keyspace;
mod meter;
mod options;
mod output;
mod servers;
mod size_classes;
mod slot_index;
mod svg;
mod variants;

use std::process::ExitCode;

use figures::Figures;
use isotherm_probe::Fallible;
use options::{HELP, Options};
use output::Table;

/// Subject of measurements. Adding a subject touches this list and a file of its own.
pub struct Subject {
    pub name: &'static str,
    /// Names of its tables, for `--only`.
    pub tables: &'static [&'static str],
    /// The most that it takes at a time, by arithmetic.
    need_bytes: fn(&Options) -> u64,
    make: fn(&Options) -> Fallible<Vec<Table>>,
}

pub const SUBJECTS: [Subject; 6] = [
    slot_index::SUBJECT,
    size_classes::SUBJECT,
    fragmentation::SUBJECT,
    keyspace::SUBJECT,
    arenas::SUBJECT,
    cluster_slots::SUBJECT,
];

/// Exit code for invalid words, as of `ls` and `grep`: they are not a failure of the measurement.
const EXIT_BAD_WORDS: u8 = 2;

fn main() -> ExitCode {
    let args: Vec<String> = std::env::args().skip(1).collect();
    if args.is_empty() || args.iter().any(|arg| arg == "--help") {
        print!("{HELP}");
        return ExitCode::SUCCESS;
    }
    let done = match args.split_first() {
        Some((flag, case)) if flag == "--work" => work(case),
        _ => match Options::parse(&args) {
            Ok(options) => run(&options),
            Err(why) => {
                eprintln!("isotherm-memlab: {why}");
                return ExitCode::from(EXIT_BAD_WORDS);
            }
        },
    };
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(why) => {
            eprintln!("isotherm-memlab: {why}");
            ExitCode::FAILURE
        }
    }
}

fn run(options: &Options) -> Fallible {
    meter::check_memory((options.subject.need_bytes)(options))?;
    course::listen_for_the_end()?;
    let tables = (options.subject.make)(options);
    servers::remove_scratch();
    output::publish(&tables?, options)
}

/// Runs a case in a process of its own.
fn work(case: &[String]) -> Fallible {
    let Some((name, args)) = case.split_first() else { return Err("no case".to_string()) };
    let figures: Figures = match name.as_str() {
        "slot-index" => slot_index::work(args)?,
        "blocks" => size_classes::work_blocks(args)?,
        "classes" => size_classes::work_classes(args)?,
        "times" => size_classes::work_times(args)?,
        "arenas" => arenas::work(args)?,
        "cluster-slots" => cluster_slots::work(args)?,
        other => return Err(format!("no case called '{other}'")),
    };
    print!("{figures}");
    Ok(())
}
