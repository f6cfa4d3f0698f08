//! Running other programs: quietly, loudly, or step by step with the time each took.

use std::process::{Command, Stdio};
use std::time::Instant;

use crate::Fallible;

/// Runs a program with its output on ours.
pub fn loud(command: &mut Command) -> Fallible {
    let status = command.status().map_err(|why| format!("cannot run {}: {why}", name(command)))?;
    if status.success() { Ok(()) } else { Err(format!("{} failed ({status})", line(command))) }
}

/// Runs a program and returns its standard output; what it wrote to standard error is part of the failure.
pub fn quiet(command: &mut Command) -> Fallible<String> {
    let output = command
        .stdin(Stdio::null())
        .output()
        .map_err(|why| format!("cannot run {}: {why}", name(command)))?;
    if output.status.success() {
        return Ok(String::from_utf8_lossy(&output.stdout).into_owned());
    }
    let said = String::from_utf8_lossy(&output.stderr);
    let last: Vec<&str> = said.lines().rev().take(5).collect();
    let last: Vec<&str> = last.into_iter().rev().collect();
    Err(format!("{} failed ({}): {}", line(command), output.status, last.join("\n")))
}

/// Runs one step of many; prints its name before, its time after.
pub fn step(name: &str, work: impl FnOnce() -> Fallible) -> Fallible {
    println!("== {name}");
    let start = Instant::now();
    let result = work();
    let seconds = start.elapsed().as_secs_f64();
    match &result {
        Ok(()) => println!("== {name}: ok, {seconds:.1} s"),
        Err(_) => println!("== {name}: FAILED, {seconds:.1} s"),
    }
    result
}

/// The cargo that runs us, in the root of the checkout.
pub fn cargo() -> Command {
    let program = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let mut command = Command::new(program);
    command.current_dir(crate::place::root());
    command
}

fn name(command: &Command) -> String {
    command.get_program().to_string_lossy().into_owned()
}

fn line(command: &Command) -> String {
    let mut words = vec![name(command)];
    words.extend(command.get_args().map(|word| word.to_string_lossy().into_owned()));
    words.join(" ")
}
