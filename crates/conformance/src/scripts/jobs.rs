//! The cost of 10,000 jobs of BullMQ for the server: CPU time of its process, compared with Valkey's.
//!
//! `jobs.js` adds jobs with delays, priorities, parents, retries and repeats, and works them off; the servers
//! take turns, A B A B, each time new. The figure is a ratio of medians. The outcome of the jobs has to be
//! the same each time.

use std::path::Path;
use std::process::Command;
use std::time::Duration;

use isotherm_probe::Server;

use super::{Places, packages};
use crate::Fallible;
use crate::bounded;

const RUN_TIME: Duration = Duration::from_secs(300);

/// Prints the ratio. True if the outcome of the jobs was the same each time.
pub fn run(places: &Places, jobs: u64, rounds: u64) -> Fallible<bool> {
    packages::install_node(&places.folder.join("node"))?;
    let scratch = places.folder.join("jobs");
    let (mut ours, mut theirs) = (Vec::new(), Vec::new());
    let mut outcome: Option<String> = None;
    let mut is_same = true;
    println!("{jobs} jobs of BullMQ, CPU time of the server in ms");
    for round in 1..=rounds {
        for (name, binary, times) in
            [("Isotherm", &places.server, &mut ours), ("Valkey", &places.valkey, &mut theirs)]
        {
            let (cpu_ns, said) = once(name, binary, &scratch, places, jobs)?;
            println!("  round {round}: {name} {:.0}", cpu_ns as f64 / 1e6);
            is_same &= *outcome.get_or_insert_with(|| said.clone()) == said;
            if !is_same {
                println!("    it said {said}");
            }
            times.push(cpu_ns);
        }
    }
    let (ours, theirs) = (median(&mut ours), median(&mut theirs));
    println!("{}", outcome.unwrap_or_default().trim());
    println!("Isotherm {ours:.0}, Valkey {theirs:.0}: ratio {:.2}", ours / theirs);
    println!(
        "{}",
        if is_same { "the outcome was the same each time" } else { "FAILED: the outcomes differ" }
    );
    std::fs::remove_dir_all(&scratch).ok();
    Ok(is_same)
}

/// The CPU time of a new server, and what the driver said.
fn once(
    name: &'static str,
    binary: &Path,
    scratch: &Path,
    places: &Places,
    jobs: u64,
) -> Fallible<(u64, String)> {
    let mut server = Server::start(name, Command::new(binary), &[], scratch)?;
    let before = server.cpu_ns()?;
    let mut node = Command::new("node");
    node.arg(packages::scripts().join("jobs.js")).args([server.port.to_string(), jobs.to_string()]);
    node.env("NODE_PATH", places.folder.join("node/node_modules"));
    let ended = bounded::run(&mut node, b"", RUN_TIME)?;
    let cpu_ns = server.cpu_ns()? - before;
    server.kill()?;
    match ended.well() {
        true => Ok((cpu_ns, ended.output)),
        false => Err(format!("jobs.js on {name}: {}\n{}", ended.how(), ended.errors)),
    }
}

/// Returns the median in milliseconds.
fn median(times: &mut [u64]) -> f64 {
    times.sort_unstable();
    let middle = times.len() / 2;
    let sum = if times.len() % 2 == 1 { 2 * times[middle] } else { times[middle - 1] + times[middle] };
    sum as f64 / 2e6
}
