//! One stage: its calls one after another, each line of their output with the stage's name in front, and what
//! they cost.

use std::collections::{BTreeSet, VecDeque};
use std::process::Command;
use std::time::Instant;

use super::draw;
use super::stages::Stage;
use crate::child::{self, Cost};

/// Lines that are shown once more, of a stage that failed.
const LAST_LINES_MAX: usize = 60;

/// The end of a stage.
pub struct Outcome {
    pub name: &'static str,
    pub is_good: bool,
    pub cost: Cost,
    /// Crates of ours, and those of others, that its calls compiled, each as often as it was.
    pub compiled_ours: Vec<String>,
    pub compiled_others: usize,
    pub skipped: BTreeSet<String>,
    pub last_lines: VecDeque<String>,
}

impl Outcome {
    fn new(name: &'static str) -> Outcome {
        Outcome {
            name,
            is_good: true,
            cost: Cost::default(),
            compiled_ours: Vec::new(),
            compiled_others: 0,
            skipped: BTreeSet::new(),
            last_lines: VecDeque::new(),
        }
    }

    fn read(&mut self, line: &str) {
        if self.last_lines.len() == LAST_LINES_MAX {
            self.last_lines.pop_front();
        }
        self.last_lines.push_back(line.to_string());
        if line.starts_with("skipped: ") {
            self.skipped.insert(line.to_string());
        }
        match compiled(line) {
            Some((name, true)) => self.compiled_ours.push(name.to_string()),
            Some((_, false)) => self.compiled_others += 1,
            None => {}
        }
    }
}

/// `   Compiling isotherm-stdx v0.1.0 (/a/crates/stdx)`: the package, and whether it is one of ours. Lints
/// check.
fn compiled(line: &str) -> Option<(&str, bool)> {
    let line = line.trim_start();
    let rest = line.strip_prefix("Compiling ").or_else(|| line.strip_prefix("Checking "))?;
    let name = rest.split(' ').next()?;
    rest.contains(" v").then_some((name, rest.ends_with(')')))
}

pub fn run(stage: &Stage, all: bool, commit: &str, begun: Instant) -> Outcome {
    let mut outcome = Outcome::new(stage.name);
    println!("#### {} ({} s since the start)", stage.name, begun.elapsed().as_secs());
    let calls = match stage.one_is_drawn && !all {
        true => &stage.calls[draw::one_of(stage.calls.len(), commit)..][..1],
        false => stage.calls,
    };
    for call in calls {
        let mut code = one_call(call, stage, &mut outcome);
        if code.is_some() && code == stage.late_code {
            println!("#### {}: once more, something was late", stage.name);
            code = one_call(call, stage, &mut outcome);
        }
        if code != Some(0) {
            outcome.is_good = false;
            break;
        }
    }
    let verdict = if outcome.is_good { "ok" } else { "FAILED" };
    let Cost { wall_s, cpu_s } = outcome.cost;
    println!("#### {}: {verdict}, {wall_s:.0} s, {cpu_s:.0} s of CPU", stage.name);
    outcome
}

/// Makes one call and returns its exit code; `None` if it did not end by itself.
fn one_call(call: &str, stage: &Stage, outcome: &mut Outcome) -> Option<i32> {
    println!("#### {}: cargo xtask {call}", stage.name);
    let program = std::env::current_exe().expect("this program has a path");
    let mut command = Command::new(program);
    command.args(call.split(' ')).env("ISOTHERM_PROFILE", crate::testing::PROFILE);
    let ended = child::run(&mut command, stage.limit, |line| {
        println!("{:<12} | {line}", stage.name);
        outcome.read(line);
    });
    match ended {
        Ok(ended) => {
            outcome.cost.wall_s += ended.cost.wall_s;
            outcome.cost.cpu_s += ended.cost.cpu_s;
            if !ended.is_success() {
                outcome.read(&format!("cargo xtask {call}: {}", ended.describe()));
            }
            ended.status.and_then(|status| status.code())
        }
        Err(why) => {
            outcome.read(&why);
            None
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_of_the_compiler_are_counted() {
        let mut outcome = Outcome::new("build");
        outcome.read("   Compiling isotherm-stdx v0.1.0 (/a/crates/stdx)");
        outcome.read("   Compiling libc v0.2.1");
        outcome.read("    Checking isotherm v0.1.0 (/a/crates/server)");
        outcome.read("Compiling takes long");
        assert_eq!(outcome.compiled_ours, ["isotherm-stdx", "isotherm"]);
        assert_eq!(outcome.compiled_others, 1);
    }
}
