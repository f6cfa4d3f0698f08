//! `isotherm-stress pressure`: memory and the disk of values are short, and data is the last thing to go.
//!
//! ```text
//!   cell = workload (fill, overwrite, read, scan, collections, expiry, replica, save, rewrite)
//!        x policy   (noeviction, allkeys-lru, allkeys-lfu, volatile-ttl)
//!        x disk     (fast, slow, hung-write, hung-read, full, failing, unreadable, few-files, small)
//!        + what the seed draws: maxmemory, workers, values, the append-only file, kill -9, length
//! ```
//! Each cell has a real server of 20 to 60 MB with more data than memory. Clients go on while its disk is in
//! trouble for one to three seconds. Meanwhile and afterwards the invariants of `verdict` hold:
//!
//! * nothing is evicted or refused while copies of what is on disk could go instead;
//! * keys are evicted for want of disk only, writes are refused only while the disk takes nothing;
//! * `used_memory` less `mem_not_counted_for_evict`, and RSS, keep to `maxmemory`;
//! * a GET of a key in memory is answered at once, by each worker;
//! * soon after the trouble all is as before;
//! * each acknowledged key that no policy may drop is there with its value, after kill -9 too.
//!
//! A seed is a cell; CI runs a fixed list of seeds. A cell that is late, and nothing else, is run once more.
//!
//! * `cell`: the cells.
//! * `deployment`, `data`, `client`: servers and their disk; keys and versions; the clients that write and
//!   look for them.
//! * `watch`, `course`: what is looked at meanwhile; a cell from start to end.
//! * `verdict`, `table`: what has to hold; what a reader sees.

mod cell;
mod client;
mod course;
mod data;
mod deployment;
mod table;
mod verdict;
mod watch;

use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use isotherm_probe::Fallible;

use cell::{Cell, Chosen, Disk, Policy, Workload};
use verdict::{Bounds, Fault, Figures};

pub const HELP: &str = "\
isotherm-stress pressure [options]   (cargo xtask stress pressure [options])

  --seconds N       behind the fixed list all other seeds; none begins after so many seconds (90)
  --seed N          the cell of this seed only
  --workload NAME   fill, overwrite, read, scan, collections, expiry, replica, save, rewrite (the seed's)
  --policy NAME     noeviction, allkeys-lru, allkeys-lfu or volatile-ttl
  --disk NAME       fast, slow, hung-write, hung-read, full, failing, unreadable, few-files or small
  --every yes       each workload with each state of the disk, instead of seeds
  --strict yes      the limits themselves; otherwise ten times what is allowed beyond them
  --server FILE     use this server instead of the one that was built

Exit code: 0 without a fault; 1 otherwise. A cell that was late, and nothing else, is run once more.
";

/// Seeds that are run first, in this order: together they draw every workload and every state of the disk (a
/// test asks).
const SEEDS: &[u64] = &[1477, 1212, 4281, 941, 362, 2237, 5062, 43, 67, 838, 283, 2202];

/// No cell of the list begins later.
const LIST_MAX: Duration = Duration::from_secs(90);

struct Options {
    /// Without it the fixed list is all.
    total: Option<Duration>,
    seed: Option<u64>,
    chosen: Chosen,
    every: bool,
    strict: bool,
    server: PathBuf,
    server_named: bool,
}

impl Options {
    fn parse(args: &[String]) -> Fallible<Options> {
        let mut options = Options {
            total: None,
            seed: None,
            chosen: Chosen::default(),
            every: false,
            strict: false,
            server: std::env::var_os("ISOTHERM_SERVER").map(PathBuf::from).unwrap_or_default(),
            server_named: false,
        };
        let mut args = args.iter();
        while let Some(flag) = args.next() {
            let value = args.next().ok_or_else(|| format!("{flag} wants a value\n\n{HELP}"))?;
            match flag.as_str() {
                "--seconds" => options.total = Some(Duration::from_secs(number(value)?)),
                "--seed" => options.seed = Some(number(value)?),
                "--workload" => options.chosen.workload = Some(Workload::parse(value)?),
                "--policy" => options.chosen.policy = Some(Policy::parse(value)?),
                "--disk" => options.chosen.disk = Some(Disk::parse(value)?),
                "--every" => options.every = yes_or_no(value)?,
                "--strict" => options.strict = yes_or_no(value)?,
                "--server" => (options.server, options.server_named) = (PathBuf::from(value), true),
                _ => return Err(format!("no option called '{flag} {value}'\n\n{HELP}")),
            }
        }
        Ok(options)
    }

    fn bounds(&self) -> Bounds {
        if self.strict { Bounds::STRICT } else { Bounds::CI }
    }

    /// Options that repeat a cell, besides those of the cell.
    fn repeated(&self) -> String {
        let mut line = if self.strict { " --strict yes" } else { "" }.to_string();
        if self.server_named {
            line += &format!(" --server {}", self.server.display());
        }
        line
    }

    fn cells(&self) -> Box<dyn Iterator<Item = Cell>> {
        let chosen = self.chosen;
        if let Some(seed) = self.seed {
            return Box::new(std::iter::once(Cell::draw(seed, chosen)));
        }
        if self.every {
            return Box::new(every(chosen));
        }
        let is_long = self.total.is_some();
        let others = (1..if is_long { u64::MAX } else { 1 }).filter(|seed| !SEEDS.contains(seed));
        Box::new(SEEDS.iter().copied().chain(others).map(move |seed| Cell::draw(seed, chosen)))
    }
}

fn number(text: &str) -> Fallible<u64> {
    text.parse().map_err(|_| format!("'{text}' is no number"))
}

fn yes_or_no(text: &str) -> Fallible<bool> {
    match text {
        "yes" => Ok(true),
        "no" => Ok(false),
        _ => Err(format!("'{text}' is neither yes nor no")),
    }
}

/// Each workload with each state of the disk, or those that were chosen; the rest the number of the pair
/// draws.
fn every(chosen: Chosen) -> impl Iterator<Item = Cell> {
    let pairs =
        Workload::ALL.iter().flat_map(|workload| Disk::ALL.iter().map(move |disk| (*workload, *disk)));
    pairs
        .enumerate()
        .filter(move |(_, (workload, disk))| {
            chosen.workload.is_none_or(|chosen| chosen == *workload)
                && chosen.disk.is_none_or(|chosen| chosen == *disk)
        })
        .map(move |(pair, (workload, disk))| {
            let chosen = Chosen { workload: Some(workload), disk: Some(disk), ..chosen };
            Cell::draw(pair as u64, chosen)
        })
}

/// Runs cells until the time is over. The number of those that failed.
pub fn run(args: &[String]) -> Fallible<usize> {
    let options = Options::parse(args)?;
    let program = std::path::absolute(&options.server).map_err(|why| why.to_string())?;
    if !program.is_file() {
        return Err(format!("no program '{}': name it with --server", program.display()));
    }
    let scratch = std::env::temp_dir().join(format!("isotherm-pressure-{}", std::process::id()));
    let (begun, mut failed, mut held) = (Instant::now(), Vec::new(), 0);
    let mut is_cut = false;
    println!("{}", table::head());
    for cell in options.cells() {
        // A cell that was asked for by its seed runs in any case.
        if begun.elapsed() >= options.total.unwrap_or(LIST_MAX) && options.seed.is_none() {
            is_cut = options.every || SEEDS.contains(&cell.seed);
            break;
        }
        match holds(&program, &cell, &scratch, &options)? {
            true => held += 1,
            false => failed.push(cell.seed),
        }
    }
    let _ = std::fs::remove_dir_all(&scratch);
    let seconds = begun.elapsed().as_secs();
    let cut = if is_cut { "; the time was over before the last of the list" } else { "" };
    let count = failed.len();
    println!("pressure: {held} cells held, {count} failed {failed:?}; {seconds} s{cut}");
    Ok(count)
}

/// Runs a cell, once more if it was late, and prints its lines. Returns whether all held.
fn holds(program: &Path, cell: &Cell, scratch: &Path, options: &Options) -> Fallible<bool> {
    let once = || -> Fallible<(Figures, Vec<Fault>)> {
        let seen = course::run(program, cell, scratch)?;
        let faults = verdict::judge(cell, &seen, &options.bounds());
        Ok((seen, faults))
    };
    let (mut seen, mut faults) = once()?;
    let is_late = |faults: &[Fault]| faults.iter().all(|fault| fault.invariant.is_of_time());
    let mut verdict = "holds";
    if !faults.is_empty() && is_late(&faults) {
        println!("{}", table::line(cell, &seen, "late; once more"));
        (seen, faults) = once()?;
        verdict = "holds the second time";
    }
    if faults.is_empty() {
        println!("{}", table::line(cell, &seen, verdict));
        return Ok(true);
    }
    let names: Vec<&str> = faults.iter().map(|fault| fault.invariant.name()).collect();
    println!("{}", table::line(cell, &seen, &format!("FAILS: {}", names.join(", "))));
    println!("{}", table::faults(cell, &seen, &faults, &options.repeated()));
    Ok(false)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(line: &str) -> Fallible<Options> {
        Options::parse(&line.split_whitespace().map(str::to_string).collect::<Vec<_>>())
    }

    #[test]
    fn a_cell_is_repeated_by_its_command() {
        let options = parse("--seed 7 --disk full --strict yes --server a").unwrap();
        let cell = options.cells().next().unwrap();
        let line = format!("{}{}", cell.options(), options.repeated());
        let again = parse(&line).unwrap();
        assert_eq!(again.cells().collect::<Vec<_>>(), [cell]);
        assert!(again.strict && again.server_named);
        for wrong in ["--seed", "--seed x", "--disk none", "--strict 1", "--other 1"] {
            assert!(parse(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn other_seeds_come_only_where_there_is_time() {
        assert_eq!(parse("").unwrap().cells().count(), SEEDS.len());
        assert_eq!(parse("--seconds 60").unwrap().cells().take(100).count(), 100);
        assert_eq!(parse("--seconds 60 --seed 3").unwrap().cells().count(), 1);
    }

    #[test]
    fn the_fixed_list_draws_every_workload_policy_and_disk() {
        let cells: Vec<Cell> = SEEDS.iter().map(|seed| Cell::draw(*seed, Chosen::default())).collect();
        for workload in Workload::ALL {
            assert!(cells.iter().any(|cell| cell.workload == *workload), "{workload:?}");
        }
        for disk in Disk::ALL {
            assert!(cells.iter().any(|cell| cell.disk == *disk), "{disk:?}");
        }
        for policy in Policy::ALL {
            assert!(cells.iter().any(|cell| cell.policy == *policy), "{policy:?}");
        }
        assert!(cells.iter().any(|cell| cell.is_killed));
    }

    #[test]
    fn every_pair_is_a_cell() {
        let cells: Vec<Cell> = every(Chosen::default()).collect();
        assert_eq!(cells.len(), Workload::ALL.len() * Disk::ALL.len());
        let one = Chosen { disk: Some(Disk::Full), ..Chosen::default() };
        assert_eq!(every(one).count(), Workload::ALL.len());
        assert!(cells.iter().all(|cell| cells.iter().filter(|other| *other == cell).count() == 1));
    }
}
