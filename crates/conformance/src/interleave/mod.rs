//! Five connections in a fixed order, compared with Valkey: everything that each of them is sent, asked for
//! or not, is compared after every step, and so are the statements of both servers about the connections and
//! the data.
//!
//! ```text
//!   step --send--> a connection of ours   --+                       +-- lines arrived, in their order
//!          \-----> that of Valkey         --+-- fences, drain -->---+-- CLIENT LIST of the six connections
//!                                                                   +-- DEBUG DIGEST, now and then
//! ```
//! The test waits for fences (`side`), never for a time: they say that all has arrived. A message that one
//! server has sent is awaited from the other, so that a late thread makes no difference. The steps (`steps`)
//! come from a seed and `grammar.txt`; `compare` lists the parts of replies that are not compared, and why.

mod compare;
mod side;
mod steps;

use std::collections::BTreeMap;
use std::io;
use std::time::{Duration, Instant};

use isotherm_stdx::Prng;

use crate::Fallible;
use crate::differential::{Target, attach};
use crate::grammar::Command;
use crate::runner::{Difference, shown};
use crate::shrink::shorten;

use compare::{Freedom, comparable, is_batch, is_unordered};
use side::{Side, State, fence, has_flag};
use steps::{CONNECTIONS, OPERATOR, Source, Step, split};

/// Time in which one server sends what the other has sent, if it does.
pub const PATIENCE: Duration = Duration::from_secs(10);
/// Patience while a known difference is shortened: most attempts that differ take this long.
const PATIENCE_OF_ATTEMPTS: Duration = Duration::from_millis(200);
const ATTEMPTS_MAX: usize = 250;
/// Steps between two looks at all data.
const DIGEST_STEPS: usize = 8;

pub struct Options {
    pub ours: Target,
    pub theirs: Target,
    pub steps: u64,
    pub seed: u64,
    /// Session of the seed that is run alone.
    pub session: Option<u64>,
    /// Distinct differences that are shown; the rest is counted.
    pub shown_max: usize,
    pub patience: Duration,
}

#[derive(Default)]
pub struct Report {
    pub steps: u64,
    pub sessions: u64,
    pub differences: BTreeMap<String, u64>,
}

pub fn run(options: &Options) -> Fallible<Report> {
    let (ours, theirs) = (attach(&options.ours)?, attach(&options.theirs)?);
    let lost = |why: io::Error| format!("a server is gone: {why}");
    let mut pair = Pair::new(ours.port, theirs.port).map_err(lost)?;
    let source = Source::new()?;
    let mut report = Report::default();
    for session in options.session.map_or(0.., |only| only..) {
        if report.steps >= options.steps || (options.session.is_some() && report.sessions == 1) {
            break;
        }
        report.sessions += 1;
        let seed = Prng::new(options.seed ^ session.wrapping_mul(0x9e37_79b9_7f4a_7c15)).next_u64();
        let steps = source.generate(seed);
        pair.patience = options.patience;
        let outcome = pair.session(&steps).map_err(|why| why.to_string());
        match outcome {
            Ok(None) => report.steps += steps.len() as u64,
            Ok(Some(found)) => {
                report.steps += found.step as u64 + 1;
                explain(options, session, &mut pair, steps, found, &mut report)?;
            }
            Err(why) => return Err(format!("session {session}, {}: {why}", pair.command)),
        }
    }
    Ok(report)
}

/// Counts a difference; a new kind is shortened and shown.
fn explain(
    options: &Options,
    session: u64,
    pair: &mut Pair,
    steps: Vec<Step>,
    found: Difference,
    report: &mut Report,
) -> Fallible {
    let count = report.differences.entry(found.signature.clone()).or_default();
    *count += 1;
    if *count > 1 || report.differences.len() > options.shown_max {
        return Ok(());
    }
    println!("difference in session {session} (--seed {} --session {session})", options.seed);
    println!(
        "  at step {}: {}\n  ours:   {}\n  valkey: {}",
        found.step, found.command, found.ours, found.theirs
    );
    let signature = found.signature.clone();
    let steps = steps[..=found.step].to_vec();
    pair.patience = PATIENCE_OF_ATTEMPTS;
    let shortest = shorten(split(&steps), steps.clone(), ATTEMPTS_MAX, |steps| {
        let difference = pair.session(steps).ok()??;
        (difference.signature == signature).then_some(difference.step)
    });
    let last = pair.session(&shortest).map_err(|why| why.to_string())?;
    const SHOWN_STEPS: usize = 40;
    println!("  the last of {} steps that show it:", shortest.len());
    for step in shortest.iter().skip(shortest.len().saturating_sub(SHOWN_STEPS)) {
        println!("    {}", describe(step));
    }
    match last {
        Some(last) => println!("  {}\n  ours:   {}\n  valkey: {}\n", last.command, last.ours, last.theirs),
        None => println!("  it did not show again\n"),
    }
    Ok(())
}

fn describe(step: &Step) -> String {
    let commands: Vec<String> = step.commands.iter().map(shown).collect();
    let connection =
        if step.connection == OPERATOR { "operator".to_string() } else { step.connection.to_string() };
    let insists = if step.insists { " (even if blocked)" } else { "" };
    let expires = if step.expires { " ; 3 ms" } else { "" };
    format!("[{connection}] {}{expires}{insists}", commands.join("  ;  "))
}

struct Pair {
    ours: Side,
    theirs: Side,
    patience: Duration,
    /// Connections that are owed a reply without an order.
    loose: [bool; CONNECTIONS + 1],
    /// Connections for which a script or EXEC runs.
    nested: [bool; CONNECTIONS + 1],
    /// Connections with commands after the one in which they wait.
    behind: [bool; CONNECTIONS + 1],
    /// Connections whose replies are off.
    muted: [bool; CONNECTIONS + 1],
    /// The step has more than one command.
    is_batch: bool,
    states: Vec<State>,
    /// The last step that was sent, in words.
    command: String,
}

impl Pair {
    fn new(ours: u16, theirs: u16) -> io::Result<Pair> {
        let (ours, theirs) = (Side::new(ours)?, Side::new(theirs)?);
        Ok(Pair {
            ours,
            theirs,
            patience: PATIENCE,
            loose: Default::default(),
            nested: Default::default(),
            muted: Default::default(),
            behind: Default::default(),
            is_batch: false,
            states: Vec::new(),
            command: String::new(),
        })
    }

    /// Runs steps from empty servers, up to the first difference.
    fn session(&mut self, steps: &[Step]) -> io::Result<Option<Difference>> {
        self.ours.reset()?;
        self.theirs.reset()?;
        for at in 0..=OPERATOR {
            self.connect(at)?;
        }
        (self.loose, self.nested, self.muted, self.behind) = Default::default();
        self.command = "the beginning".to_string();
        if let Some(difference) = self.settle(None)? {
            return Ok(Some(difference));
        }
        for (at, step) in steps.iter().enumerate() {
            // Several connections that continue after their waits would race; one, with the rest of a
            // pipeline.
            let is_one_behind = self.behind.contains(&true);
            let is_blocked = has_flag(&self.states[step.connection], 'b');
            let is_sent = !is_blocked || step.insists && !step.ends && !is_one_behind;
            if is_sent && !self.ends_in_silence(step) && !self.sees_itself(step) {
                let commands = if is_one_behind { &step.commands[..1] } else { &step.commands[..] };
                let sent = Step { commands: commands.to_vec(), ..step.clone() };
                self.command = describe(&sent);
                self.send(&sent);
            }
            let is_last = at + 1 == steps.len();
            let ending = (step.ends && !is_blocked).then_some(step.connection);
            let mut outcome = self.settle(ending)?;
            if outcome.is_none() && (is_last || at % DIGEST_STEPS == 0) {
                outcome = self.compare_data()?;
            }
            if let Some(difference) = outcome {
                return Ok(Some(Difference { step: at, ..difference }));
            }
            if step.expires {
                self.expire(&step.commands[0][1])?;
            }
        }
        Ok(None)
    }

    /// Waits for the clock, longer than a key lives that both servers have, and has both find that it is
    /// over: when they would find it by themselves is not promised.
    fn expire(&mut self, key: &[u8]) -> io::Result<()> {
        std::thread::sleep(Duration::from_millis(3));
        self.ours.ask(&[b"EXISTS", key])?;
        self.theirs.ask(&[b"EXISTS", key]).map(drop)
    }

    /// Returns whether a connection may close itself while its replies are off: Valkey closes it with the
    /// next reply (COMPAT.md).
    fn ends_in_silence(&self, step: &Step) -> bool {
        let ends = |command| is_command(command, &["CLIENT", "KILL"]) || is_command(command, &["QUIT"]);
        let kills = step.commands.iter().any(ends);
        let mutes = step.commands.iter().any(|command| is_command(command, &["CLIENT", "REPLY"]));
        kills && (mutes || self.muted[step.connection])
    }

    /// Returns whether Valkey would write lines of MONITOR into the reply to EXEC.
    fn sees_itself(&self, step: &Step) -> bool {
        let is_exec = step.commands.iter().any(|command| is_command(command, &["EXEC"]));
        let monitors = step.commands.iter().any(|command| is_command(command, &["MONITOR"]));
        is_exec && (monitors || has_flag(&self.states[step.connection], 'O'))
    }

    fn send(&mut self, step: &Step) {
        let at = step.connection;
        let mutes = |command: &Command| is_command(command, &["CLIENT", "REPLY", "OFF"]);
        let speaks = |command: &Command| is_command(command, &["CLIENT", "REPLY", "ON"]);
        for command in &step.commands {
            self.muted[at] = !speaks(command) && (self.muted[at] || mutes(command));
        }
        let is_owed = ['b', 'x'].iter().any(|flag| has_flag(&self.states[at], *flag));
        self.behind[at] |= has_flag(&self.states[at], 'b');
        self.is_batch = step.commands.len() > 1 || step.commands.iter().any(is_batch);
        self.loose[at] = step.commands.iter().any(is_unordered) || self.loose[at] && is_owed;
        self.nested[at] = step.commands.iter().any(is_batch) || self.nested[at] && is_owed;
        self.ours.send(at, &step.commands);
        self.theirs.send(at, &step.commands);
    }

    /// A new connection in this place, with the same number at both servers.
    fn connect(&mut self, at: usize) -> io::Result<()> {
        loop {
            let (ours, theirs) = (self.ours.add(at)?, self.theirs.add(at)?);
            match ours - theirs {
                0 => return Ok(()),
                ahead @ 1.. => self.theirs.skip(ahead)?,
                behind => self.ours.skip(-behind)?,
            }
        }
    }

    /// Waits until both servers have said the same; a difference if they do not. `ending`: a connection that
    /// will wait for nothing any more.
    fn settle(&mut self, ending: Option<usize>) -> io::Result<Option<Difference>> {
        let begun = Instant::now();
        loop {
            fence(&mut self.ours, &mut self.theirs)?;
            self.ours.begin_states()?;
            self.theirs.begin_states()?;
            let ours = self.ours.end_states()?;
            let theirs = self.theirs.end_states()?;
            let difference = self.difference(&ours, &theirs);
            let waits = ending.is_some_and(|at| has_flag(&ours[at], 'b') || has_flag(&theirs[at], 'b'));
            if begun.elapsed() > self.patience || difference.is_none() && !waits {
                self.states = theirs;
                return match difference {
                    None => self.renew().map(|()| None),
                    difference => Ok(difference),
                };
            }
            std::thread::sleep(Duration::from_millis(1));
        }
    }

    /// Forgets what was equal; what was closed is connected again.
    fn renew(&mut self) -> io::Result<()> {
        for at in 0..=OPERATOR {
            let is_closed = self.theirs.lines[at].is_closed();
            self.ours.lines[at].arrived.clear();
            self.theirs.lines[at].arrived.clear();
            self.behind[at] &= has_flag(&self.states[at], 'b');
            self.nested[at] &= ['b', 'x'].iter().any(|flag| has_flag(&self.states[at], *flag));
            if is_closed {
                self.connect(at)?;
                (self.loose[at], self.nested[at], self.muted[at]) = (false, false, false);
                self.states[at] = State::new();
            }
        }
        Ok(())
    }

    fn difference(&self, ours: &[State], theirs: &[State]) -> Option<Difference> {
        for at in 0..=OPERATOR {
            let wakes = self.states.get(at).is_some_and(|state| has_flag(state, 'b'));
            let is_batch = self.is_batch || wakes || self.behind.contains(&true);
            let (is_loose, is_nested) = (self.loose[at], self.nested.contains(&true));
            let freedom = Freedom { own: at, is_loose, is_batch, is_nested };
            let of =
                |side: &Side| comparable(&side.lines[at].arrived, freedom, |address| side.index_of(address));
            let (a, b) = (of(&self.ours), of(&self.theirs));
            if a != b {
                return Some(found(&self.command, &format!("arrived at {at}"), &a, &b));
            }
        }
        for at in 0..=OPERATOR {
            if ours[at] != theirs[at] {
                let facts = |state: &State, other: &State| -> Vec<String> {
                    let own = state.iter().filter(|fact| !other.contains(fact));
                    own.map(|(name, value)| format!("{name}={value}")).collect()
                };
                let (a, b) = (facts(&ours[at], &theirs[at]), facts(&theirs[at], &ours[at]));
                return Some(found(&self.command, &format!("state of {at}"), &a, &b));
            }
        }
        None
    }

    fn compare_data(&mut self) -> io::Result<Option<Difference>> {
        let words = ["DEBUG", "DIGEST"];
        let (ours, theirs) = (self.ours.ask(&words)?, self.theirs.ask(&words)?);
        Ok((ours != theirs).then(|| found(&self.command, "data", &[ours.to_string()], &[theirs.to_string()])))
    }
}

fn is_command(command: &Command, words: &[&str]) -> bool {
    words.len() <= command.len()
        && words.iter().zip(command).all(|(word, arg)| arg.eq_ignore_ascii_case(word.as_bytes()))
}

/// The signature: where, and the first lines that differ, without numbers of connections.
fn found(command: &str, place: &str, ours: &[String], theirs: &[String]) -> Difference {
    let same = ours.iter().zip(theirs).take_while(|(a, b)| a == b).count();
    let first = |lines: &[String]| lines.get(same).cloned().unwrap_or_else(|| "<nothing>".to_string());
    let of = Difference::new(String::new(), first(ours), first(theirs));
    let place_kind: String = place.chars().filter(|char| !char.is_ascii_digit()).collect();
    Difference {
        command: format!("{command} ({place})"),
        ours: ours.join(" ; "),
        theirs: theirs.join(" ; "),
        signature: format!("{place_kind}{}", of.signature),
        step: 0,
    }
}

impl Report {
    pub fn print(&self) {
        let count: u64 = self.differences.values().sum();
        println!("{} steps in {} sessions compared, {count} differences", self.steps, self.sessions);
        for (signature, count) in &self.differences {
            println!("  {count:6}  {signature}");
        }
    }
}
