//! `isotherm-stress sentinel`: the primary is killed again and again, and three sentinels of a real Valkey
//! promote a replica.
//!
//! ```text
//!   writers write --> kill -9 of the primary --> sentinels promote --> writers go on there --> audit --> start it again
//!                     |------- no write is answered -------------------|
//! ```
//! The nodes run with `repl-ack-quorum 1` and two replicas, so an answered write is on one of the two.
//! Sentinels promote the one with the highest offset: it has each of them. Each key is written once, so what
//! is missing at the new primary is lost; each audit looks for the keys of all rounds, before the killed node
//! is back and after. The killed node comes back with its own file, as an empty primary that no client is
//! sent to, and the sentinels make it a replica.
//!
//! A sentinel compares the offsets that its last INFO has shown, and no option of Valkey's changes how often
//! it asks: each 10 s, each second once the primary is down. `--info-period 10000` tests that; less makes the
//! rounds shorter. With `--quorum 0` writes are lost: that is how to see that the audit finds them.

mod deployment;

use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::thread;
use std::time::{Duration, Instant};

use isotherm_probe::{Client, command};
use isotherm_resp::reply_parse::Value;
use isotherm_stdx::Prng;

use crate::Fallible;
use crate::options::number;
use deployment::{DOWN_AFTER_MS, Deployment, named_by};

pub const HELP: &str = "\
isotherm-stress sentinel [options]   (cargo xtask stress sentinel [options]; needs Valkey)

  --rounds N        how often the primary is killed (10)
  --clients N       clients that write (8)
  --seed N          draws when it is killed (1)
  --quorum N        repl-ack-quorum of the nodes; with 0 writes are lost (1)
  --info-period MS  how often sentinels look at nodes that are well (500; Valkey's own is 10000)
  --server FILE     use this server instead of the one that was built
";

struct Options {
    rounds: u64,
    clients: usize,
    seed: u64,
    quorum: u64,
    info_period_ms: u64,
    server: PathBuf,
}

impl Options {
    fn parse(args: &[String]) -> Fallible<Options> {
        let server = std::env::var_os("ISOTHERM_SERVER").map(PathBuf::from).unwrap_or_default();
        let mut options = Options { rounds: 10, clients: 8, seed: 1, quorum: 1, info_period_ms: 500, server };
        let mut args = args.iter();
        while let Some(flag) = args.next() {
            let value = args.next().ok_or_else(|| format!("{flag} wants a value\n\n{HELP}"))?;
            match flag.as_str() {
                "--rounds" => options.rounds = number(value)?,
                "--clients" => options.clients = number(value)?.clamp(1, 1000) as usize,
                "--seed" => options.seed = number(value)?,
                "--quorum" => options.quorum = number(value)?,
                "--info-period" => options.info_period_ms = number(value)?,
                "--server" => options.server = PathBuf::from(value),
                _ => return Err(format!("no option called '{flag} {value}'\n\n{HELP}")),
            }
        }
        Ok(options)
    }
}

/// Shortest and longest time from the first write to the kill, in milliseconds.
const LIFE_MS: (u64, u64) = (50, 400);
/// Time for which writers write at the new primary.
const AFTERWARDS: Duration = Duration::from_millis(100);
const BETWEEN_TRIES: Duration = Duration::from_millis(1);
/// Time for which a write may fail; then the run ends.
const PATIENCE: Duration = Duration::from_secs(60);
const ASKED_AHEAD: usize = 500;

/// Runs all rounds. The number of answered writes that were lost.
pub fn run(args: &[String]) -> Fallible<usize> {
    let options = Options::parse(args)?;
    let folder =
        std::env::var_os("ISOTHERM_PEER_BIN").ok_or("ISOTHERM_PEER_BIN does not say where Valkey is")?;
    let valkey = PathBuf::from(folder).join("valkey-server");
    let scratch = std::env::temp_dir().join(format!("isotherm-sentinel-{}", std::process::id()));
    let result = run_in(&options, &valkey, &scratch);
    if matches!(result, Ok(0)) {
        let _ = std::fs::remove_dir_all(&scratch);
    } else {
        println!("sentinel: the files are in {}", scratch.display());
    }
    result
}

fn run_in(options: &Options, valkey: &std::path::Path, scratch: &std::path::Path) -> Fallible<usize> {
    let mut deployment =
        Deployment::start(&options.server, valkey, scratch, options.quorum, options.info_period_ms)?;
    let mut primary = deployment.ports()[0];
    let mut prng = Prng::new(options.seed);
    let (mut written, mut without_ms, mut lost) = (vec![Written::default(); options.clients], Vec::new(), 0);
    for round in 0..options.rounds {
        let life = Duration::from_millis(LIFE_MS.0 + prng.below(LIFE_MS.1 - LIFE_MS.0));
        let failed = |why| format!("round {round}: {why}");
        let (new, took) = fail_over(&mut deployment, primary, life, &mut written).map_err(failed)?;
        let missing = take_missing(new, &mut written).map_err(failed)?;
        deployment.start_again(primary).map_err(failed)?;
        primary = deployment.settle().map_err(failed)?;
        // On a machine that is too busy they may have taken the new one for down; then it is the data of a
        // third that counts.
        let missing = missing + take_missing(primary, &mut written).map_err(failed)?;
        if primary != new {
            println!("sentinel: round {round}: {primary} was promoted after {new}, which was not killed");
        }
        println!(
            "sentinel: round {round}: a write is answered {:.0} ms after the kill; {missing} lost",
            took.as_secs_f64() * 1e3
        );
        lost += missing;
        without_ms.push(took.as_secs_f64() * 1e3);
    }
    without_ms.sort_by(f64::total_cmp);
    let at = |share: f64| without_ms[((without_ms.len().max(1) - 1) as f64 * share).round() as usize];
    println!(
        "sentinel: {} kills of the primary, repl-ack-quorum {}, down-after-milliseconds {DOWN_AFTER_MS}: {lost} of {} answered \
         writes lost; no write answered: p50 {:.0} ms, max {:.0} ms",
        options.rounds,
        options.quorum,
        written.iter().map(|written| written.next).sum::<u64>(),
        at(0.5),
        at(1.0)
    );
    Ok(lost)
}

/// Kills the primary under writers, waits for another. Returns that, and the time in which no write was
/// answered: from the kill to the first answer to a request that was sent after it.
fn fail_over(
    deployment: &mut Deployment,
    primary: u16,
    life: Duration,
    written: &mut [Written],
) -> Fallible<(u16, Duration)> {
    let (stop, killed) = (AtomicBool::new(false), AtomicBool::new(false));
    let sentinels = deployment.sentinel_ports();
    thread::scope(|scope| {
        let (stop, killed, sentinels) = (&stop, &killed, &sentinels);
        let writers: Vec<_> = written
            .iter_mut()
            .enumerate()
            .map(|(number, written)| {
                scope.spawn(move || Writer { number, sentinels, stop, killed }.write(written))
            })
            .collect();
        thread::sleep(life);
        deployment.kill(primary);
        let begun = Instant::now();
        killed.store(true, Relaxed);
        let new = deployment.wait_for_other_than(primary);
        // Each writer leaves once it has been answered after the kill, and some more.
        thread::sleep(AFTERWARDS);
        stop.store(true, Relaxed);
        let mut first = None;
        for writer in writers {
            let answered: Instant = writer.join().map_err(|_| "a writer panicked".to_string())??;
            first = Some(first.map_or(answered, |first: Instant| first.min(answered)));
        }
        Ok((new?, first.map_or(Duration::ZERO, |first| first.saturating_duration_since(begun))))
    })
}

/// Answered writes of one writer, by the numbers of their keys.
#[derive(Clone, Default)]
struct Written {
    /// Number of the next write, which is also how many were answered.
    next: u64,
    /// Numbers of the answered writes that no audit has found missing.
    there: Vec<u64>,
}

struct Writer<'a> {
    number: usize,
    sentinels: &'a [u16],
    stop: &'a AtomicBool,
    killed: &'a AtomicBool,
}

impl Writer<'_> {
    /// Writes one key after the other at the primary that a sentinel names, notes those that were answered.
    /// Returns when the first was answered that was sent after the kill.
    fn write(&self, written: &mut Written) -> Fallible<Instant> {
        let mut sentinel = Client::connect(self.sentinels[self.number % self.sentinels.len()])?;
        let (mut client, mut after, mut last) = (None, None, Instant::now());
        loop {
            if let Some(after) = after.filter(|_| self.stop.load(Relaxed)) {
                return Ok(after);
            }
            let was_killed = self.killed.load(Relaxed);
            match self.try_one(&mut client, &mut sentinel, written.next) {
                Ok(()) => {
                    written.there.push(written.next);
                    written.next += 1;
                    last = Instant::now();
                    after = after.or(was_killed.then_some(last));
                }
                // No primary yet, one that is none any more, or no replica that acknowledges: the next try
                // asks again.
                Err(why) if last.elapsed() > PATIENCE => {
                    return Err(format!("no write is answered for {PATIENCE:?}: {why}"));
                }
                Err(_) => {
                    client = None;
                    thread::sleep(BETWEEN_TRIES);
                }
            }
        }
    }

    fn try_one(&self, client: &mut Option<Client>, sentinel: &mut Client, number: u64) -> Fallible {
        let connection = match client {
            Some(connection) => connection,
            None => client.insert(Client::connect(named_by(sentinel)?)?),
        };
        connection.call(&["SET", &key(self.number, number), "1"]).map(|_| ())
    }
}

fn key(writer: usize, number: u64) -> String {
    format!("{writer}:{number}")
}

/// Returns how many keys are missing at the primary. A key is counted as lost once: the next audit does not
/// look for it.
fn take_missing(primary: u16, written: &mut [Written]) -> Fallible<usize> {
    let (mut client, mut count) = (Client::connect(primary)?, 0);
    for (writer, written) in written.iter_mut().enumerate() {
        let mut there = Vec::with_capacity(written.there.len());
        for numbers in written.there.chunks(ASKED_AHEAD) {
            let mut request = Vec::new();
            for number in numbers {
                command(&mut request, [&b"EXISTS"[..], key(writer, *number).as_bytes()].into_iter());
            }
            client.send(&request)?;
            for number in numbers {
                if client.read()? == Value::Integer(1) {
                    there.push(*number);
                }
            }
        }
        count += written.there.len() - there.len();
        written.there = there;
    }
    Ok(count)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn options_have_values() {
        let parse =
            |line: &str| Options::parse(&line.split_whitespace().map(str::to_string).collect::<Vec<_>>());
        assert_eq!(
            parse("--rounds 3 --clients 0").map(|options| (options.rounds, options.clients)),
            Ok((3, 1))
        );
        for wrong in ["--rounds", "--rounds x", "--other 1"] {
            assert!(parse(wrong).is_err(), "{wrong}");
        }
    }
}
