//! Costs of a member of a cluster: the replies that show the cluster, commands compared with those of a lone
//! server, MOVED, memory.
//!
//! The cluster is on paper (`conf`): 80 or 100 primaries, and only the server itself is there (but for
//! `members`). Times of a call are counted by the servers themselves (INFO commandstats, without parsing and
//! writing); CPU is that of all threads, from the kernel's scheduler.

use crate::Fallible;
use crate::options::Options;
use crate::report::Table;

mod commands;
mod conf;
mod members;
mod memory;
mod others;
mod replies;

pub const ROWS: [&str; 11] = [
    "slots",
    "change",
    "shards-nodes",
    "plain",
    "moved",
    "memory",
    "linked",
    "slow-readers",
    "herd",
    "slow-files",
    "members",
];

pub fn measure(options: &Options) -> Fallible<Vec<Table>> {
    let head = ["what", "Valkey", "Isotherm", "Isotherm / Valkey", "aim"];
    let mut table = Table::new("cluster", format!("A member of a cluster{}", options.scale_note()), &head);
    table.note(format!(
        "One worker; a cluster of primaries that are not there, read from nodes.conf by both, but for the 30 nodes, which are; {} rounds \
         A B, the median of each, the ratio is the median of the rounds' ratios. Times of a call are those of INFO commandstats.",
        options.rounds
    ));
    type Measure = fn(&Options, &mut Table) -> Fallible;
    let rows: [(&str, Measure); 11] = [
        ("slots", replies::slots),
        ("change", replies::change),
        ("shards-nodes", replies::shards_and_nodes),
        ("plain", commands::plain),
        ("moved", commands::moved),
        ("memory", memory::measure),
        ("linked", memory::linked),
        ("slow-readers", memory::slow_readers),
        ("herd", others::herd),
        ("slow-files", others::slow_files),
        ("members", members::measure),
    ];
    for (row, measure) in rows.into_iter().filter(|(row, _)| options.wants(row)) {
        measure(options, &mut table).map_err(|why| format!("{row}: {why}"))?;
    }
    Ok(vec![table])
}
