//! `isotherm-stress liveness`: what one client does does not keep a new one from being answered.
//!
//! ```text
//!   for 1, 2 and 8 workers, for each mix:
//!     server <-- load: endless scripts, uploads, downloads, messages to many   (mix)
//!            <-- probes: connect, PING, leave, again and again                 (probe)
//! ```
//! A mix has half a second by default and a server of its own. Each probe is a new connection, as an
//! orchestrator's are: it needs the thread that accepts, and a worker that is not lost in something else.
//! PONG and -BUSY are answers.
//!
//! A server without assertions has no clock that can be stepped: `clock` and `all` need one with them.

mod mix;
mod probe;

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use isotherm_probe::{Fallible, Server};

use crate::options::number;
use crate::world::Severity;
use mix::Mix;

pub const HELP: &str = "\
isotherm-stress liveness [options]   (cargo xtask stress liveness [options])

  --millis N        time for each mix with each number of workers (500)
  --mix NAME        script, exec, written, upload, download, fan-out, clock or all; without it each of them
  --workers N       so many workers; without it 1, 2 and 8
  --server FILE     use this server instead of the one that was built

Exit code: 0 without a fault; 2 if all faults were delays, which the machine may have caused; 1 otherwise.
";

const WORKERS: [usize; 3] = [1, 2, 8];

struct Options {
    time: Duration,
    mix: Option<Mix>,
    workers: Option<usize>,
    server: PathBuf,
}

impl Options {
    fn parse(args: &[String]) -> Fallible<Options> {
        let mut options = Options {
            time: Duration::from_millis(500),
            mix: None,
            workers: None,
            server: std::env::var_os("ISOTHERM_SERVER").map(PathBuf::from).unwrap_or_default(),
        };
        let mut args = args.iter();
        while let Some(flag) = args.next() {
            let value = args.next().ok_or_else(|| format!("{flag} wants a value\n\n{HELP}"))?;
            match flag.as_str() {
                "--millis" => options.time = Duration::from_millis(number(value)?),
                "--mix" => options.mix = Some(Mix::parse(value)?),
                "--workers" => options.workers = Some(number(value)?.clamp(1, 128) as usize),
                "--server" => options.server = PathBuf::from(value),
                _ => return Err(format!("no option called '{flag}'\n\n{HELP}")),
            }
        }
        Ok(options)
    }
}

/// The worst fault of all mixes.
pub fn run(args: &[String]) -> Fallible<Option<Severity>> {
    let options = Options::parse(args)?;
    let begun = Instant::now();
    let scratch = std::env::temp_dir().join(format!("isotherm-liveness-{}", std::process::id()));
    let mut worst = None;
    for workers in options.workers.map_or(WORKERS.to_vec(), |workers| vec![workers]) {
        for mix in options.mix.map_or(Mix::ALL.to_vec(), |mix| vec![mix]) {
            worst = worst.max(one(mix, workers, &options, &scratch)?);
        }
    }
    // Nothing is in it any more.
    std::fs::remove_dir(&scratch).ok();
    println!(
        "liveness: {:.1} s, {}",
        begun.elapsed().as_secs_f64(),
        match worst {
            None => "no fault",
            Some(Severity::Late) => "answers were late",
            Some(Severity::Wrong) => "FAULTS",
        }
    );
    Ok(worst)
}

fn one(mix: Mix, workers: usize, options: &Options, scratch: &Path) -> Fallible<Option<Severity>> {
    let pairs = [
        ("io-threads", workers.to_string()),
        // Scripts give way early, so that a mix sees it often.
        ("busy-reply-threshold", "50".to_string()),
        ("enable-debug-command", "yes".to_string()),
    ];
    let arguments: Vec<String> =
        pairs.into_iter().flat_map(|(name, value)| [format!("--{name}"), value]).collect();
    let program = std::path::absolute(&options.server).map_err(|why| why.to_string())?;
    let mut server = Server::start("Isotherm", Command::new(program), &arguments, scratch)?;
    let outcome = mix::run(mix, &mut server, options.time);
    println!("  {:>8} with {workers} workers: {}", mix.name(), outcome.summary());
    for (severity, fault) in &outcome.faults {
        let word = if *severity == Severity::Late { "late" } else { "FAULT" };
        println!("    {word}: {fault}");
    }
    if !outcome.faults.is_empty() {
        println!(
            "    to repeat it: cargo xtask stress liveness --mix {} --workers {workers} --millis {}",
            mix.name(),
            options.time.as_millis()
        );
    }
    Ok(outcome.faults.iter().map(|(severity, _)| *severity).max())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_mix_has_a_name() {
        for mix in Mix::ALL {
            assert_eq!(Mix::parse(mix.name()), Ok(mix));
        }
        let parse =
            |line: &str| Options::parse(&line.split_whitespace().map(str::to_string).collect::<Vec<_>>());
        assert!(parse("--mix nothing").is_err() && parse("--millis").is_err());
        assert_eq!(parse("--workers 3 --mix exec").unwrap().workers, Some(3));
    }
}
