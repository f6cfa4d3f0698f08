//! The differential tester: the same random commands to Isotherm and to Valkey, and every reply compared.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::time::{SystemTime, UNIX_EPOCH};

use isotherm_resp::reply_parse::Value;
use isotherm_stdx::Prng;

use crate::Fallible;
use crate::client::Client;
use crate::faults::Fault;
use crate::grammar::Grammar;
use crate::process::Server;
use crate::runner::{Difference, Pair, shown};
use crate::session::{Step, generate};
use crate::shrink::shrink;
use crate::vocabulary::Vocabulary;

/// Server to be compared: the port of a running one, or a program to start.
#[derive(Clone, Debug)]
pub enum Target {
    Port(u16),
    Binary(PathBuf, Vec<String>),
}

#[derive(Clone, Debug)]
pub struct Options {
    pub ours: Target,
    pub theirs: Target,
    pub commands: u64,
    pub seed: u64,
    /// Only this session of the seed.
    pub session: Option<u64>,
    pub groups: Vec<String>,
    pub fault: Option<Fault>,
    /// Distinct differences that are shown; the rest is counted.
    pub shown_max: usize,
    /// Values leave our server's memory whenever they can.
    pub swap_chaos: bool,
}

#[derive(Debug, Default)]
pub struct Report {
    pub compared: u64,
    pub sessions: u64,
    /// Number of times that each kind of difference was met.
    pub differences: BTreeMap<String, u64>,
    /// The steps that the last shown difference needed.
    pub transcript_len: usize,
    /// Values that left our server's memory (`swap_chaos`).
    pub swapped: u64,
}

pub fn run(options: &Options) -> Fallible<Report> {
    let (ours, theirs) = (attach(&options.ours)?, attach(&options.theirs)?);
    if options.swap_chaos {
        begin_chaos(ours.port)?;
    }
    let grammar = Grammar::of_groups(&options.groups)?;
    let now = SystemTime::now().duration_since(UNIX_EPOCH).map_err(|why| why.to_string())?;
    let vocabulary = Vocabulary::new(now.as_millis() as i64);
    let run = Run { options, ours: ours.port, theirs: theirs.port };
    let mut report = Report::default();
    for session in options.session.map_or(0.., |only| only..) {
        if report.compared >= options.commands || (options.session.is_some() && report.sessions == 1) {
            break;
        }
        report.sessions += 1;
        let steps = generate(session_seed(options.seed, session), &grammar, &vocabulary);
        match run.once(&steps)? {
            Ok(compared) => report.compared += compared,
            Err(difference) => {
                report.compared += difference.step as u64;
                run.explain(session, steps, difference, &mut report)?;
            }
        }
    }
    if options.swap_chaos {
        report.swapped = swapped(ours.port)?;
    }
    Ok(report)
}

fn begin_chaos(port: u16) -> Fallible {
    let answer = Client::connect(port).and_then(|mut client| client.call(&["DEBUG", "SWAP-CHAOS", "2"]));
    match answer {
        Ok(Value::Simple(_)) => Ok(()),
        other => Err(format!("DEBUG SWAP-CHAOS: {other:?}")),
    }
}

/// Returns how many values have left memory.
fn swapped(port: u16) -> Fallible<u64> {
    let answer = Client::connect(port).and_then(|mut client| client.call(&["INFO", "swap"]));
    let Ok(Value::Bulk(text)) = answer else { return Err(format!("INFO swap: {answer:?}")) };
    let text = String::from_utf8_lossy(&text);
    let count = text.lines().find_map(|line| line.strip_prefix("swap_sunk_values:"));
    count.and_then(|count| count.parse().ok()).ok_or_else(|| format!("INFO swap: {text}"))
}

struct Run<'a> {
    options: &'a Options,
    ours: u16,
    theirs: u16,
}

impl Run<'_> {
    fn once(&self, steps: &[Step]) -> Fallible<Result<u64, Difference>> {
        let lost = |why: std::io::Error| format!("a server is gone: {why}");
        Pair::fresh(self.ours, self.theirs, self.options.fault).map_err(lost)?.run(steps).map_err(lost)
    }

    /// Counts a difference; a new kind is shrunk and shown.
    fn explain(&self, session: u64, steps: Vec<Step>, found: Difference, report: &mut Report) -> Fallible {
        let count = report.differences.entry(found.signature.clone()).or_default();
        *count += 1;
        if *count > 1 || report.differences.len() > self.options.shown_max {
            return Ok(());
        }
        println!("difference in session {session} (--seed {} --session {session})", self.options.seed);
        let signature = found.signature.clone();
        let shortest = shrink(steps[..=found.step].to_vec(), |steps| {
            let difference = self.once(steps).ok()?.err()?;
            (difference.signature == signature).then_some(difference.step)
        });
        // The shortest run's own replies, where it repeats.
        let last = self.once(&shortest)?.err().unwrap_or(found);
        for step in &shortest {
            println!("  {}", describe(step));
        }
        println!("  at: {}\n  ours:   {}\n  valkey: {}\n", last.command, last.ours, last.theirs);
        report.transcript_len = shortest.len();
        Ok(())
    }
}

fn describe(step: &Step) -> String {
    match step {
        Step::Commands { connection, commands } => {
            let commands: Vec<String> = commands.iter().map(shown).collect();
            format!("[{connection}] {}", commands.join("  ;  "))
        }
        Step::ShortExpiry { db, key } => {
            format!("[control] SELECT {db} ; SET {} x PX 1 ; wait", key.escape_ascii())
        }
        Step::FullScan { db, scan, options } => {
            format!("[control] SELECT {db} ; whole {} {}", shown(scan), shown(options))
        }
        Step::Setting { name, value } => format!("[control] CONFIG SET {name} {value}"),
        Step::Transfer { db, from, to } => format!(
            "[control] SELECT {db} ; {} dumped, restored by the other server as {}",
            from.escape_ascii(),
            to.escape_ascii()
        ),
        Step::Damage { db, from, to, seed } => format!(
            "[control] SELECT {db} ; {} dumped, damaged ({seed}), restored by both as {}",
            from.escape_ascii(),
            to.escape_ascii()
        ),
        Step::Reload => "[control] DEBUG RELOAD".to_string(),
        Step::Raw { pieces } => {
            let pieces: Vec<String> = pieces.iter().map(|piece| piece.escape_ascii().to_string()).collect();
            format!("[new] {:.300}", pieces.join(" | "))
        }
        Step::Audit => "[control] audit".to_string(),
    }
}

/// Neighbouring seeds and sessions have nothing in common.
fn session_seed(seed: u64, session: u64) -> u64 {
    Prng::new(seed ^ session.wrapping_mul(0x9e37_79b9_7f4a_7c15)).next_u64()
}

/// A server that was there, or one that ends with this value.
pub struct Attached {
    pub port: u16,
    _server: Option<Server>,
}

pub fn attach(target: &Target) -> Fallible<Attached> {
    match target {
        Target::Port(port) => Ok(Attached { port: *port, _server: None }),
        Target::Binary(binary, more) => {
            let server = Server::start(binary, more)?;
            Ok(Attached { port: server.port, _server: Some(server) })
        }
    }
}

impl Report {
    pub fn print(&self) {
        let count: u64 = self.differences.values().sum();
        println!("{} commands in {} sessions compared, {count} differences", self.compared, self.sessions);
        if self.swapped > 0 {
            println!("  values left memory {} times", self.swapped);
        }
        for (signature, count) in &self.differences {
            println!("  {count:6}  {signature}");
        }
    }
}
