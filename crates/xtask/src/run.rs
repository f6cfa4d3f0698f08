//! Running other programs: quietly, loudly, or step by step with the time each took.

use std::fs::File;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

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

/// Runs a program with its output in a file, and ends it once it has taken longer than `limit`.
pub fn bounded(command: &mut Command, output: &Path, limit: Duration) -> Fallible {
    let file = File::create(output).and_then(|file| Ok((file.try_clone()?, file)));
    let (stdout, stderr) = file.map_err(|why| format!("cannot write {}: {why}", output.display()))?;
    let begun = Instant::now();
    let child = command.stdin(Stdio::null()).stdout(stdout).stderr(stderr).spawn();
    let mut child = child.map_err(|why| format!("cannot run {}: {why}", name(command)))?;
    let status = loop {
        match child.try_wait().map_err(|why| format!("cannot wait for {}: {why}", name(command)))? {
            Some(status) => break status,
            None if begun.elapsed() < limit => std::thread::sleep(Duration::from_millis(50)),
            None => {
                let _ = child.kill();
                let _ = child.wait();
                return Err(format!("{} was ended after {} s", line(command), limit.as_secs()));
            }
        }
    };
    if status.success() { Ok(()) } else { Err(format!("{} failed ({status})", line(command))) }
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_bounded_program_ends() {
        let output = std::env::temp_dir().join(format!("isotherm-xtask-bounded-{}", std::process::id()));
        let shell =
            |script: &str, limit: Duration| bounded(Command::new("sh").args(["-c", script]), &output, limit);
        let minute = Duration::from_secs(60);
        assert_eq!(shell("echo out; echo err >&2", minute), Ok(()));
        assert_eq!(std::fs::read_to_string(&output).expect("it was written"), "out\nerr\n");
        assert!(shell("exit 3", minute).is_err_and(|why| why.contains("exit status: 3")));
        assert!(
            shell("exec sleep 60", Duration::ZERO).is_err_and(|why| why.ends_with("was ended after 0 s"))
        );
        let _ = std::fs::remove_file(&output);
    }
}
