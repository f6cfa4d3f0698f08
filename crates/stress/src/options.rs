//! The options of the command line, and the line that repeats them.

use std::path::PathBuf;
use std::time::Duration;

use isotherm_probe::Scale;

use crate::Fallible;
use crate::kinds::{disturbance_names, lane_names};

pub const HELP: &str = "\
isotherm-stress [options]     (cargo xtask stress [options] builds the server with its assertions and runs this)

  --seconds N       time for all seeds together (90); with --seed, for that seed (15)
  --seeds N         the first N seeds, 15 s each; --seconds is the limit then: after it no seed begins, and seeds that did
                    not run count as a fault that may be the machine's
  --hours N         --seconds in hours, for long runs
  --seed N          this seed only; without it a fixed list, then all others
  --clients N       number of clients (default: drawn from the seed, 8 to 200)
  --workers N       number of workers (default: drawn from the seed: 1, 2 or 8)
  --lanes A,B       these kinds of clients only
  --disturb A,B     these disturbances only
  --without A,B     none of these disturbances
  --scale 1/10      a tenth of the elements, fields and messages of each burst
  --server FILE     use this server instead of the one that was built
  --keep FOLDER     where a failed run stores what it sent (target/stress-runs)

isotherm-stress kills [options]: kill -9 and restart, with an append-only file (`kills --help`)
isotherm-stress liveness [options]: new connections are answered beside endless scripts and large values (`liveness --help`)
isotherm-stress pressure [options]: memory and the disk of values are short (`pressure --help`)
isotherm-stress sentinel [options]: kill -9 of the primary, sentinels promote a replica (`sentinel --help`)

Exit code: 0 without a fault; 2 if all faults were delays, which the machine may have caused; 1 otherwise.
";

/// Seeds that are run first, in this order: together they draw every lane and every disturbance, with the
/// options of CI and without any (a test asks).
pub const SEEDS: [u64; 6] = [60, 29, 16, 12, 62, 48];
/// Time of one seed: long enough for the slowest round of a lane (four seconds) to come several times.
const SECONDS_PER_SEED: u64 = 15;
const SECONDS_DEFAULT: u64 = 90;

#[derive(Clone)]
pub struct Options {
    pub total: Duration,
    pub seed: Option<u64>,
    pub seeds: Option<usize>,
    pub clients: Option<usize>,
    pub workers: Option<usize>,
    pub lanes: Vec<String>,
    pub disturb: Vec<String>,
    pub without: Vec<String>,
    pub scale: Scale,
    pub server: PathBuf,
    pub keep: PathBuf,
    server_named: bool,
}

impl Options {
    pub fn parse(args: &[String]) -> Fallible<Options> {
        let mut options = Options {
            total: Duration::ZERO,
            seed: None,
            seeds: None,
            clients: None,
            workers: None,
            lanes: Vec::new(),
            disturb: Vec::new(),
            without: Vec::new(),
            scale: Scale::FULL,
            server: std::env::var_os("ISOTHERM_SERVER").map(PathBuf::from).unwrap_or_default(),
            keep: PathBuf::from("target/stress-runs"),
            server_named: false,
        };
        let mut args = args.iter();
        while let Some(flag) = args.next() {
            let mut value = || args.next().ok_or_else(|| format!("{flag} wants a value"));
            match flag.as_str() {
                "--seconds" => options.total = Duration::from_secs(number(value()?)?),
                "--hours" => options.total = Duration::from_secs(number(value()?)?.saturating_mul(3600)),
                "--seed" => options.seed = Some(number(value()?)?),
                "--seeds" => options.seeds = Some(number(value()?)?.clamp(1, 100_000) as usize),
                "--clients" => options.clients = Some(number(value()?)?.clamp(8, 1000) as usize),
                "--workers" => options.workers = Some(number(value()?)?.clamp(1, 128) as usize),
                "--lanes" => options.lanes = names(value()?, "lane", lane_names())?,
                "--disturb" => options.disturb = names(value()?, "disturbance", disturbance_names())?,
                "--without" => options.without = names(value()?, "disturbance", disturbance_names())?,
                "--scale" => options.scale = Scale::parse(value()?)?,
                "--server" => (options.server, options.server_named) = (PathBuf::from(value()?), true),
                "--keep" => options.keep = PathBuf::from(value()?),
                other => return Err(format!("no option called '{other}'\n\n{HELP}")),
            }
        }
        if options.seed.is_some() && options.seeds.is_some() {
            return Err("--seed is one seed: --seeds has no meaning beside it".to_string());
        }
        if options.total.is_zero() {
            let seconds = if options.seed.is_some() { SECONDS_PER_SEED } else { SECONDS_DEFAULT };
            options.total = Duration::from_secs(seconds);
        }
        Ok(options)
    }

    pub fn check_server(&self) -> Fallible {
        if self.server.is_file() {
            return Ok(());
        }
        Err(format!(
            "no program '{}': name it with --server, or use `cargo xtask stress`",
            self.server.display()
        ))
    }

    /// Returns how long one seed runs.
    pub fn per_seed(&self) -> Duration {
        if self.seed.is_some() { self.total } else { self.total.min(Duration::from_secs(SECONDS_PER_SEED)) }
    }

    /// The one command that repeats a run.
    pub fn command(&self, seed: u64) -> String {
        let mut line = format!("cargo xtask stress --seed {seed} --seconds {}", self.per_seed().as_secs());
        for (name, given) in [("--clients", self.clients), ("--workers", self.workers)] {
            line += &given.map_or(String::new(), |value| format!(" {name} {value}"));
        }
        let lists = [("--lanes", &self.lanes), ("--disturb", &self.disturb), ("--without", &self.without)];
        for (name, given) in lists {
            if !given.is_empty() {
                line += &format!(" {name} {}", given.join(","));
            }
        }
        line += &self.scale.option();
        if self.server_named {
            line += &format!(" --server {}", self.server.display());
        }
        line
    }
}

/// The names in a list, each one of those that are known.
fn names(list: &str, what: &str, known: impl Iterator<Item = &'static str>) -> Fallible<Vec<String>> {
    let known: Vec<&str> = known.collect();
    let names: Vec<String> = list.split(',').map(str::to_string).collect();
    match names.iter().find(|name| !known.contains(&name.as_str())) {
        Some(name) => Err(format!("no {what} called '{name}': there are {}", known.join(", "))),
        None => Ok(names),
    }
}

pub fn number(text: &str) -> Fallible<u64> {
    text.parse().map_err(|_| format!("'{text}' is no number"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(line: &str) -> Fallible<Options> {
        Options::parse(&line.split_whitespace().map(str::to_string).collect::<Vec<_>>())
    }

    #[test]
    fn a_run_is_repeated_by_its_command() {
        let line = "--seed 7 --seconds 20 --clients 50 --lanes queues,streams --without hup,stop --scale 1/2";
        let command = parse(line).unwrap().command(7);
        let again = command.strip_prefix("cargo xtask stress ").unwrap();
        assert_eq!(parse(again).unwrap().command(7), command);
        assert!(command.contains("--clients 50") && command.contains("--without hup,stop"), "{command}");
        assert_eq!(parse("").unwrap().total.as_secs(), 90);
        assert_eq!(parse("--seed 3").unwrap().per_seed().as_secs(), 15);
        assert_eq!(parse("--hours 2").unwrap().per_seed().as_secs(), 15);
        for wrong in ["--seed", "--seed x", "--other", "--seed 1 --seeds 2"] {
            assert!(parse(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn unknown_names_are_refused_with_those_that_are_known() {
        for wrong in ["--lanes queue", "--lanes queues,", "--disturb queues", "--without sleep,nap"] {
            let why = parse(wrong).err().expect(wrong);
            assert!(why.contains(if wrong.contains("lanes") { "streams" } else { "kill-all" }), "{why}");
        }
        assert_eq!(parse("--lanes queues,wide --without sleep").unwrap().lanes, ["queues", "wide"]);
    }
}
