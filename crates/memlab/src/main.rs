//! `isotherm-memlab`: what structures and allocators do to memory, by small honest models, one table a command.
//!
//! The five documents that Isotherm started from published such tables; each is made again here, beside their figures.
//!
//! ```text
//!   isotherm-memlab TABLE                         the one that is asked: plans, prints, writes
//!       |  for each allocator, each case
//!       v
//!   isotherm-memlab-jemalloc --work CASE ARGS     builds one structure and prints `name value` lines
//! ```
//!
//! A case has a process of its own, so what one case leaves behind is not in the figures of the next; and a binary has one
//! allocator, so there are four of them.

mod arenas;
mod figures;
mod fragmentation;
mod options;
mod output;
mod probe;
mod server;
mod size_classes;
mod slot_index;
mod svg;
mod variants;

use std::process::ExitCode;

use figures::Figures;
use options::Options;

/// Why nothing came of it; `Display` is what the user reads.
pub type Fallible<T = ()> = Result<T, String>;

fn main() -> ExitCode {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let done = match args.split_first() {
        Some((flag, case)) if flag == "--work" => work(case),
        _ => Options::parse(&args).and_then(|options| run(&options)),
    };
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(why) => {
            eprintln!("isotherm-memlab: {why}");
            ExitCode::FAILURE
        }
    }
}

/// The table is printed and written when it is whole; whoever is stopped before leaves none.
fn run(options: &Options) -> Fallible {
    let tables = match options.table.as_str() {
        "slot-index" => slot_index::table(options)?,
        "size-classes" => size_classes::tables(options)?,
        "arenas" => arenas::table(options)?,
        "fragmentation" => fragmentation::tables(options)?,
        other => return Err(format!("no table called '{other}'\n\n{}", options::HELP)),
    };
    output::publish(&tables, options)
}

/// One case, in a process of its own.
fn work(case: &[String]) -> Fallible {
    let Some((name, args)) = case.split_first() else { return Err("no case".to_string()) };
    let figures: Figures = match name.as_str() {
        "slot-index" => slot_index::work(args)?,
        "blocks" => size_classes::work_blocks(args)?,
        "classes" => size_classes::work_classes(args)?,
        "times" => size_classes::work_times(args)?,
        "arenas" => arenas::work(args)?,
        other => return Err(format!("no case called '{other}'")),
    };
    print!("{figures}");
    Ok(())
}
