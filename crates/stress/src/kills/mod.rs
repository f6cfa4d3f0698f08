//! `isotherm-stress kills`: a server with an append-only file is killed at random moments, and started again
//! on its files.
//!
//! ```text
//!   start --> audit: what was answered is there --> 50 clients write --> kill -9 --> start --> audit ...
//! ```
//! A client writes one thing after the other, numbered, to keys of its own; the numbers go around all types
//! and a transaction (`writing`). So after a start its keys say up to which number its writes are there
//! (`audit`), and:
//!
//! * under `always` that is the last number that was answered, or the one that was under way;
//! * under `everysec` nothing is missing that was answered more than a second and an fsync before the kill;
//! * it is a prefix: no number of a client is missing below one that is there, no transaction is there in
//!   part, and what was answered before something else was sent is there if that is.
//!
//! The file of some rounds is rewritten while the server is killed. With `--swap yes` all that may leave
//! memory does so all the time, and the file is rewritten again and again, to bases that refer to what is on
//! disk (`swap-checkpoint`).

mod audit;
mod writing;

use std::io::Read;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::thread;
use std::time::{Duration, Instant};

use isotherm_probe::{Client, Server};
use isotherm_resp::reply_parse::Value;
use isotherm_stdx::Prng;

use crate::Fallible;
use crate::options::number;
use writing::Writer;

pub const HELP: &str = "\
isotherm-stress kills [options]   (cargo xtask stress kills [options])

  --rounds N        how often the server is killed (20)
  --policy NAME     appendfsync: always or everysec (always)
  --clients N       clients that write (50)
  --workers N       workers of the server (2)
  --seed N          draws when the server is killed (1)
  --swap yes|no     values leave memory, and bases refer to them (no)
  --freeze yes|no   small keys leave memory with their values; with --swap (no)
  --server FILE     use this server instead of the one that was built
";

struct Options {
    rounds: u64,
    policy: String,
    clients: usize,
    workers: usize,
    seed: u64,
    swaps: bool,
    freezes: bool,
    server: PathBuf,
}

impl Options {
    fn parse(args: &[String]) -> Fallible<Options> {
        let mut options = Options {
            rounds: 20,
            policy: "always".to_string(),
            clients: 50,
            workers: 2,
            seed: 1,
            swaps: false,
            freezes: false,
            server: std::env::var_os("ISOTHERM_SERVER").map(PathBuf::from).unwrap_or_default(),
        };
        let mut args = args.iter();
        while let Some(flag) = args.next() {
            let value = args.next().ok_or_else(|| format!("{flag} wants a value\n\n{HELP}"))?;
            match flag.as_str() {
                "--rounds" => options.rounds = number(value)?,
                "--policy" if ["always", "everysec"].contains(&value.as_str()) => {
                    options.policy.clone_from(value);
                }
                "--clients" => options.clients = number(value)?.clamp(1, 1000) as usize,
                "--workers" => options.workers = number(value)?.clamp(1, 128) as usize,
                "--seed" => options.seed = number(value)?,
                "--freeze" if ["yes", "no"].contains(&value.as_str()) => options.freezes = value == "yes",
                "--swap" if ["yes", "no"].contains(&value.as_str()) => options.swaps = value == "yes",
                "--server" => options.server = PathBuf::from(value),
                _ => return Err(format!("no option called '{flag} {value}'\n\n{HELP}")),
            }
        }
        Ok(options)
    }

    /// Returns the greatest age, at the kill, of an answered write that may be lost; `None` if no answered
    /// write may be lost. It includes a second for an fsync on a busy machine.
    fn may_lose(&self) -> Option<Duration> {
        (self.policy == "everysec").then_some(Duration::from_secs(2))
    }
}

/// Shortest and longest time from the first write to the kill, in milliseconds.
const LIFE_MS: (u64, u64) = (50, 400);
/// Interval of rewrites: one of this many rounds has one.
const REWRITE_ONE_IN: u64 = 4;
/// Interval at which one is asked for with `--swap`.
const REWRITE_EACH: Duration = Duration::from_millis(10);

/// Runs all rounds. The number of faults.
pub fn run(args: &[String]) -> Fallible<usize> {
    let options = Options::parse(args)?;
    let scratch = std::env::temp_dir().join(format!("isotherm-kills-{}", std::process::id()));
    let data = scratch.join("data");
    std::fs::create_dir_all(&data).map_err(|why| format!("cannot make {}: {why}", data.display()))?;
    let mut writers: Vec<Writer> = (0..options.clients).map(Writer::new).collect();
    let mut prng = Prng::new(options.seed);
    let (mut answered, mut oldest_lost, mut killed) = (0, Duration::ZERO, None);
    let (mut referred, mut cold_keys, mut frozen_keys) = (0, 0, 0);
    for round in 0..=options.rounds {
        let server = start(&options, &scratch, &data).map_err(|why| format!("round {round}: {why}"))?;
        let mut client = server.client()?;
        if options.swaps {
            referred += u64::from(base_refers(&data));
            cold_keys += swap_field(&mut client, "swap_keys:")?;
        }
        let (faults, lost) = audit::audit(&mut client, &mut writers, killed, options.may_lose())?;
        oldest_lost = oldest_lost.max(lost);
        if !faults.is_empty() {
            println!("kills: round {round} of {}, seed {}:", options.policy, options.seed);
            faults.iter().for_each(|fault| println!("  {fault}"));
            println!("  the files are in {}", data.display());
            return Ok(faults.len());
        }
        if round == options.rounds {
            break;
        }
        let life = Duration::from_millis(LIFE_MS.0 + prng.below(LIFE_MS.1 - LIFE_MS.0));
        let rewrites = match (options.swaps, prng.one_in(REWRITE_ONE_IN)) {
            (true, _) => Rewrites::Always,
            (false, true) => Rewrites::Once,
            (false, false) => Rewrites::Never,
        };
        if options.swaps {
            client.call(&["DEBUG", "SWAP-CHAOS", "2"])?;
        }
        let before: u64 = writers.iter().map(Writer::answered).sum();
        let (at, frozen) = live(server, &mut client, &mut writers, life, rewrites)?;
        killed = Some(at);
        frozen_keys += frozen;
        answered += writers.iter().map(Writer::answered).sum::<u64>() - before;
    }
    let _ = std::fs::remove_dir_all(&scratch);
    println!(
        "kills: {}, {} rounds, {} clients: {answered} writes answered, {} starts, no fault; the oldest answer that was \
         lost came {:.1} ms before its kill",
        options.policy,
        options.rounds,
        options.clients,
        options.rounds + 1,
        oldest_lost.as_secs_f64() * 1e3
    );
    if options.swaps {
        println!(
            "kills: {referred} starts from a base that refers, with {cold_keys} cold keys in all; {frozen_keys} keys were outside \
             memory with their values when they were killed"
        );
    }
    Ok(0)
}

/// Returns whether the base file, or one that was left over, refers to data on disk.
fn base_refers(data: &Path) -> bool {
    let files = std::fs::read_dir(data.join("appendonlydir")).into_iter().flatten().flatten();
    let is_base = |path: &PathBuf| path.to_string_lossy().contains(".base.");
    let begins = |path: PathBuf| {
        let mut magic = [0; 8];
        let read = std::fs::File::open(path).and_then(|mut file| file.read_exact(&mut magic));
        read.is_ok() && magic == *b"ISOTHERM"
    };
    files.map(|file| file.path()).filter(is_base).any(begins)
}

fn swap_field(client: &mut Client, field: &str) -> Fallible<u64> {
    let Value::Bulk(text) = client.call(&["INFO", "swap"])? else { return Err("no INFO".into()) };
    let text = String::from_utf8_lossy(&text);
    let keys = text.lines().find_map(|line| line.strip_prefix(field));
    keys.and_then(|keys| keys.trim().parse().ok()).ok_or_else(|| format!("no {field}"))
}

/// Number of rewrites of the file while clients write.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Rewrites {
    Never,
    Once,
    Always,
}

fn start(options: &Options, scratch: &Path, data: &Path) -> Fallible<Server> {
    let (folder, workers) = (data.display().to_string(), options.workers.to_string());
    let arguments = [
        ["--dir", &folder],
        ["--appendonly", "yes"],
        ["--appendfsync", &options.policy],
        ["--io-threads", &workers],
    ];
    let freezes = if options.freezes { "yes" } else { "no" };
    let swaps: [[&str; 2]; 7] = [
        ["--swap-mode", "yes"],
        ["--swap-checkpoint", "yes"],
        ["--swap-min-value", "16"],
        ["--swap-max-disk", "512mb"],
        ["--maxmemory", "512mb"],
        ["--enable-debug-command", "yes"],
        ["--swap-freeze", freezes],
    ];
    let more = if options.swaps { &swaps[..] } else { &[] };
    let arguments: Vec<String> =
        arguments.iter().chain(more).flatten().map(|word| word.to_string()).collect();
    Server::start("Isotherm", Command::new(&options.server), &arguments, scratch)
}

/// Lets the clients write for a time, and kills the server. Returns the moment of that, and how many keys
/// were frozen shortly before.
fn live(
    server: Server,
    client: &mut Client,
    writers: &mut [Writer],
    life: Duration,
    rewrites: Rewrites,
) -> Fallible<(Instant, u64)> {
    let (port, mut frozen_keys) = (server.port, 0);
    thread::scope(|scope| {
        let threads: Vec<_> =
            writers.iter_mut().map(|writer| scope.spawn(move || writer.work(port))).collect();
        let began = Instant::now();
        match rewrites {
            Rewrites::Never => thread::sleep(life),
            Rewrites::Once => {
                thread::sleep(life / 2);
                // A server that cannot rewrite says so, and is killed all the same.
                let _ = client.call(&["BGREWRITEAOF"]);
                thread::sleep(life / 2);
            }
            Rewrites::Always => {
                while began.elapsed() < life {
                    let _ = client.call(&["BGREWRITEAOF"]);
                    frozen_keys = swap_field(client, "swap_frozen_keys:").unwrap_or(frozen_keys);
                    thread::sleep(REWRITE_EACH.min(life.saturating_sub(began.elapsed())));
                }
            }
        }
        let killed = Instant::now();
        drop(server);
        for thread in threads {
            thread.join().expect("a client does not panic")?;
        }
        Ok((killed, frozen_keys))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn options_have_values() {
        let parse =
            |line: &str| Options::parse(&line.split_whitespace().map(str::to_string).collect::<Vec<_>>());
        let options = parse("--rounds 3 --policy everysec").unwrap();
        assert_eq!((options.rounds, options.may_lose()), (3, Some(Duration::from_secs(2))));
        assert_eq!(parse("").unwrap().may_lose(), None);
        for wrong in ["--rounds", "--rounds x", "--policy no", "--other 1"] {
            assert!(parse(wrong).is_err(), "{wrong}");
        }
    }
}
