//! The costs of replication: a full sync, the feed of one replica, applying commands that have come together,
//! waiting for an ACK, handing over; and the course of a replica that is slow, restarted or cut off.
//!
//! ```text
//!   load --> primary --> replica        each of the two is Valkey or Isotherm
//! ```
//! Both servers run on the same machine and share its cores with the load, so times are of a pair; CPU time
//! is of one process. Diskless syncs begin at once (`repl-diskless-sync-delay 0`). Isotherm has two workers,
//! Valkey `io-threads 1`.

use crate::Fallible;
use crate::options::Options;
use crate::report::Table;

mod apply;
mod brake;
mod counters;
mod cut;
mod failover;
mod feed;
mod pair;
mod restart;
mod slow;
mod sync;
mod sync_load;
mod wait;

pub use pair::{follow, link_is_up};

pub const ROWS: [&str; 9] =
    ["sync", "sync-load", "feed", "apply", "wait", "failover", "slow", "restart", "cut"];

pub fn measure(options: &Options) -> Fallible<Vec<Table>> {
    let head = ["what", "Valkey", "Isotherm", "Isotherm / Valkey", "aim"];
    let mut table = Table::new("replication", format!("Replication{}", options.scale_note()), &head);
    table.note(format!(
        "Primary and replica on one machine, keys and values of 16 B; {} rounds A B, best of each pair, the ratio is the median of \
         the rounds' ratios. The rows about kills, restarts and a slow replica are measured once.",
        options.rounds
    ));
    type Measure = fn(&Options, &mut Table) -> Fallible;
    let rows: [(&str, Measure); 9] = [
        ("sync", sync::measure),
        ("sync-load", sync_load::measure),
        ("feed", feed::measure),
        ("apply", apply::measure),
        ("wait", wait::measure),
        ("failover", failover::measure),
        ("slow", slow::measure),
        ("restart", restart::measure),
        ("cut", cut::measure),
    ];
    for (row, measure) in rows.into_iter().filter(|(row, _)| options.wants(row)) {
        measure(options, &mut table).map_err(|why| format!("{row}: {why}"))?;
    }
    Ok(vec![table])
}
