//! Libraries whose work is done by scripts in the server: queues, locks, limiters.
//!
//! ```text
//! suites    tests of others, unchanged: Go modules, Python source packages; `go test`, `pytest`
//! drivers   programs of ours (crates/conformance/clients/scripts) on npm packages, which come without tests
//!             each against a new Valkey and a new Isotherm --> one outcome a test or step --> compared
//! jobs      the CPU time that 10,000 jobs of BullMQ cost each server
//! ```
//! The measure is Valkey: a test that passes there has to pass here, and the output of a driver has to be the
//! same. A test that fails on both is counted and said, for it is the machine's or the suite's. Tests have
//! clocks, so a test that fails is run once more before it counts. A suite or driver that cannot be installed
//! is a reported skip.
//!
//! Reading order: the packages (`packages`), a server of their own on the port that suites expect (`alone`),
//! outcomes (`score`), the benchmark (`jobs`).

mod alone;
pub mod jobs;
mod packages;
mod score;

pub use alone::with_server;

use std::path::PathBuf;
use std::time::{Duration, Instant};

use crate::Fallible;
use crate::bounded;
use packages::{PACKAGES, Package};
use score::Outcomes;

/// Paths of the programs, and of the folder for installed packages.
pub struct Places {
    pub server: PathBuf,
    pub valkey: PathBuf,
    /// Folder in which packages are installed, and in which the logs of their runs are written.
    pub folder: PathBuf,
}

/// Runs the packages that are named, or all; `quick`: those that take seconds. True if none does worse than
/// on Valkey.
pub fn run(places: &Places, named: &[String], quick: bool) -> Fallible<bool> {
    if let Some(unknown) = named.iter().find(|name| PACKAGES.iter().all(|known| known.name != *name)) {
        let known: Vec<&str> = PACKAGES.iter().map(|package| package.name).collect();
        return Err(format!("no such package: {unknown}; there are {}", known.join(", ")));
    }
    let wanted = |package: &&Package| match named.is_empty() {
        true => package.is_quick || !quick,
        false => named.iter().any(|name| name == package.name),
    };
    let mut all_well = true;
    for package in PACKAGES.iter().filter(wanted) {
        let begun = Instant::now();
        match compare(package, places) {
            Ok(report) => {
                println!("{}: {}, {:.0} s", package.name, report.line, begun.elapsed().as_secs_f64());
                report.details.iter().for_each(|detail| println!("    {detail}"));
                all_well &= report.is_well;
            }
            Err(why) => println!("skipped: {}: {why}", package.name),
        }
    }
    Ok(all_well)
}

/// Result of a package on both servers.
struct Report {
    line: String,
    details: Vec<String>,
    is_well: bool,
}

/// An error is a reason to skip.
fn compare(package: &Package, places: &Places) -> Fallible<Report> {
    package.install(&places.folder)?;
    let theirs = attempt(package, places, "valkey")?;
    let mut ours = attempt(package, places, "isotherm")?;
    let mut tries = 1;
    if !score::worse(&ours, &theirs).is_empty() {
        ours = score::better(ours, attempt(package, places, "isotherm")?, &theirs);
        tries = 2;
    }
    let worse = score::worse(&ours, &theirs);
    let is_well = worse.is_empty() && !theirs.is_empty();
    let word = if is_well { "ok" } else { "FAILED" };
    let again = if tries == 2 { ", run twice" } else { "" };
    let line = format!("{word}: {} here, {} on Valkey{again}", score::counts(&ours), score::counts(&theirs));
    let mut details = worse;
    details.extend(score::only_there(&ours, &theirs));
    if theirs.is_empty() {
        details.push(format!("nothing ran; see {}", log_of(package, places, "valkey").display()));
    }
    Ok(Report { line, details, is_well })
}

fn log_of(package: &Package, places: &Places, maker: &str) -> PathBuf {
    places.folder.join("logs").join(format!("{}-{maker}.txt", package.name))
}

/// Runs a package once on a new server. The output of the program is kept in a file.
fn attempt(package: &Package, places: &Places, maker: &str) -> Fallible<Outcomes> {
    let server = if maker == "valkey" { &places.valkey } else { &places.server };
    let mut command = alone::command(server, &package.command(&places.folder, server)?)?;
    let ended = bounded::run(&mut command, b"", Duration::from_secs(package.seconds))?;
    let log = log_of(package, places, maker);
    let text = format!("{}\n{}\n{}\n", ended.output, ended.errors, ended.how());
    std::fs::create_dir_all(places.folder.join("logs"))
        .and_then(|()| std::fs::write(&log, text))
        .map_err(|why| format!("cannot write {}: {why}", log.display()))?;
    Ok(score::read(package.kind, &ended))
}
