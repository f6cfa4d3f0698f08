//! Measures Isotherm compared with Valkey: memory, CPU, hit ratio, expiry. `cargo xtask bench` builds and
//! installs what it needs.
//!
//! Both servers get the same bytes in the same run, and everything is read from outside in the same way: this
//! program knows no more of Isotherm than any client (`threads` alone takes the keyspace without its server).
//! Figures that CPU time enters are taken A B A B, so that a machine which gets slower or faster in between
//! does so for both.
//!
//! * `process` starts the servers (`isotherm-probe` asks and watches them), `load` works one with a `shape`
//!   of commands, `open_loop` does so at a fixed rate.
//! * `elements` is the same for lists, hashes, sets, sorted sets and streams; `audience` publishes and checks
//!   what is heard.
//! * `memory`, `speed`, `collections`, `collections_speed`, `threads`, `hits`, `expiry`, `maxmemory`,
//!   `longest`, `pubsub`, `durability`, `replication`, `cluster`, `scripts`, `script_libraries`,
//!   `instructions`, `tls`, `swap`, `disk` are the kinds of measurement, each a list of rows.
//! * `report` prints the tables and keeps docs/benchmarks.md.

use std::process::ExitCode;

mod options;
mod process;

mod audience;
mod elements;
mod histogram;
mod load;
mod open_loop;
mod reply;
mod shape;
mod zipf;

mod cluster;
mod collections;
mod collections_speed;
mod disk;
mod durability;
mod expiry;
mod hits;
mod instructions;
mod longest;
mod maxmemory;
mod memory;
mod pubsub;
mod replication;
mod script_libraries;
mod scripts;
mod speed;
mod swap;
mod swap_nodes;
mod swap_reads;
mod swap_restart;
mod swap_sync;
mod threads;
mod tls;

mod report;

use options::{HELP, Options};

pub use isotherm_probe::Fallible;

fn main() -> ExitCode {
    let args: Vec<String> = std::env::args().skip(1).collect();
    if args.is_empty() || args.iter().any(|arg| arg == "--help") {
        print!("{HELP}");
        return ExitCode::SUCCESS;
    }
    match run(&args) {
        Ok(()) => ExitCode::SUCCESS,
        Err(why) => {
            eprintln!("bench: {why}");
            ExitCode::FAILURE
        }
    }
}

const KINDS: [&str; 19] = [
    "memory",
    "speed",
    "collections",
    "collections-speed",
    "threads",
    "hits",
    "expiry",
    "maxmemory",
    "longest",
    "pubsub",
    "durability",
    "replication",
    "cluster",
    "scripts",
    "script-libraries",
    "tls",
    "swap",
    "disk",
    instructions::KIND,
];

fn run(args: &[String]) -> Fallible {
    let options = Options::parse(args)?;
    let kinds: Vec<&str> =
        KINDS.into_iter().filter(|kind| options.kind == "all" || options.kind == *kind).collect();
    if kinds.is_empty() {
        return Err(format!("no kind called '{}'\n\n{HELP}", options.kind));
    }
    if options.list {
        kinds.iter().for_each(|kind| println!("{kind}: {}", rows_of(kind).join(" ")));
        return Ok(());
    }
    if let Some(unknown) = options.only.iter().find(|only| !kinds.iter().any(|kind| names_a_row(only, kind)))
    {
        return Err(format!("no row called '{unknown}'; --list names them"));
    }
    options.check_programs()?;
    if let Some(core) = options.load_core
        && !process::pin_this_thread(core)
    {
        eprintln!("bench: cannot pin threads (no taskset?): CPU figures will be noisier");
    }
    let command_line = format!("cargo xtask bench {}", args.join(" ").replace(" --write", ""));
    let result = kinds.into_iter().try_for_each(|kind| {
        let tables = measure(kind, &options)?;
        report::publish(&tables, &options, &command_line)
    });
    let _ = std::fs::remove_dir_all(&options.scratch);
    result
}

fn rows_of(kind: &str) -> Vec<&'static str> {
    match kind {
        "memory" => memory::ROWS.to_vec(),
        "speed" => speed::rows().iter().map(|row| row.name).collect(),
        "collections" => collections::rows().iter().map(|row| row.name).collect(),
        "collections-speed" => collections_speed::rows().iter().map(|row| row.name).collect(),
        "threads" => threads::ROWS.to_vec(),
        "hits" => hits::ROWS.to_vec(),
        "expiry" => expiry::ROWS.to_vec(),
        "maxmemory" => maxmemory::ROWS.to_vec(),
        "longest" => longest::ROWS.to_vec(),
        "durability" => durability::ROWS.to_vec(),
        "replication" => replication::ROWS.to_vec(),
        "cluster" => cluster::ROWS.to_vec(),
        "scripts" => scripts::ROWS.to_vec(),
        "script-libraries" => script_libraries::ROWS.to_vec(),
        "tls" => tls::ROWS.to_vec(),
        "swap" => [&swap::ROWS[..], &swap_reads::ROWS].concat(),
        "disk" => disk::ROWS.to_vec(),
        instructions::KIND => instructions::cases().iter().map(|case| case.name).collect(),
        _ => pubsub::ROWS.to_vec(),
    }
}

fn names_a_row(only: &str, kind: &str) -> bool {
    rows_of(kind).iter().any(|row| *row == only || row.starts_with(&format!("{only}-")))
}

fn measure(kind: &str, options: &Options) -> Fallible<Vec<report::Table>> {
    match kind {
        "memory" => memory::measure(options),
        "speed" => speed::measure(options),
        "collections" => collections::measure(options),
        "collections-speed" => collections_speed::measure(options),
        "threads" => threads::measure(options),
        "hits" => hits::measure(options),
        "expiry" => expiry::measure(options),
        "maxmemory" => maxmemory::measure(options),
        "longest" => longest::measure(options),
        "durability" => durability::measure(options),
        "replication" => replication::measure(options),
        "cluster" => cluster::measure(options),
        "scripts" => scripts::measure(options),
        "script-libraries" => script_libraries::measure(options),
        "tls" => tls::measure(options),
        "swap" => Ok(swap::measure(options)?.into_iter().chain(swap_reads::measure(options)?).collect()),
        "disk" => disk::measure(options),
        instructions::KIND => instructions::measure(options),
        _ => pubsub::measure(options),
    }
}

/// A line of progress, apart from the tables.
pub fn progress(text: &str) {
    eprintln!("  {text}");
}
