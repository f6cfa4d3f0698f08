//! Running a program that may hang, talk too much or start others: it gets its input, its output is
//! collected, and when its time is over it goes with all that it has started.

use std::io::{Read, Write};
use std::os::unix::process::CommandExt;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use crate::Fallible;

/// A client that says more than this is not one of ours.
const OUTPUT_BYTES_MAX: u64 = 16 << 20;
const POLL_INTERVAL: Duration = Duration::from_millis(5);

/// Exit status and output of a program.
pub struct Ended {
    /// Exit status; `None` if the program's time was over.
    pub status: Option<ExitStatus>,
    pub output: String,
    pub errors: String,
}

impl Ended {
    pub fn well(&self) -> bool {
        self.status.is_some_and(|status| status.success())
    }

    pub fn how(&self) -> String {
        match self.status {
            Some(status) => status.to_string(),
            None => "its time was over".to_string(),
        }
    }
}

/// Runs `command` for at most `time`, with `input` as its standard input.
pub fn run(command: &mut Command, input: &[u8], time: Duration) -> Fallible<Ended> {
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).process_group(0);
    let program = command.get_program().to_string_lossy().into_owned();
    let mut child = command.spawn().map_err(|why| format!("cannot run {program}: {why}"))?;
    let output = collect(child.stdout.take().expect("the output is piped"));
    let errors = collect(child.stderr.take().expect("the errors are piped"));
    let mut stdin = child.stdin.take().expect("the input is piped");
    let input = input.to_vec();
    // A program that ends before it has read everything breaks the pipe, and its exit code says so.
    let writer = std::thread::spawn(move || stdin.write_all(&input).ok());
    let status = wait(&mut child, time).map_err(|why| format!("cannot wait for {program}: {why}"))?;
    writer.join().ok();
    let text =
        |bytes: JoinHandle<Vec<u8>>| String::from_utf8_lossy(&bytes.join().unwrap_or_default()).into_owned();
    Ok(Ended { status, output: text(output), errors: text(errors) })
}

fn collect(from: impl Read + Send + 'static) -> JoinHandle<Vec<u8>> {
    std::thread::spawn(move || {
        let mut bytes = Vec::new();
        // A broken pipe is the end.
        from.take(OUTPUT_BYTES_MAX).read_to_end(&mut bytes).ok();
        bytes
    })
}

fn wait(child: &mut Child, time: Duration) -> std::io::Result<Option<ExitStatus>> {
    let begun = Instant::now();
    loop {
        if let Some(status) = child.try_wait()? {
            return Ok(Some(status));
        }
        if begun.elapsed() >= time {
            end_group(child);
            return Ok(None);
        }
        std::thread::sleep(POLL_INTERVAL);
    }
}

/// The child leads a process group of its own, so this meets it and what it has started, and no other
/// process.
fn end_group(child: &mut Child) {
    Command::new("kill").args(["-KILL", "--", &format!("-{}", child.id())]).status().ok();
    child.kill().ok();
    child.wait().ok();
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shell(script: &str) -> Command {
        let mut command = Command::new("sh");
        command.args(["-c", script]);
        command
    }

    #[test]
    fn input_output_and_exit_code_are_seen() {
        let time = Duration::from_secs(10);
        let ended = run(&mut shell("cat; echo oh >&2; exit 3"), b"hello", time).unwrap();
        assert_eq!((ended.output.as_str(), ended.errors.as_str()), ("hello", "oh\n"));
        assert_eq!(ended.status.and_then(|status| status.code()), Some(3));
    }

    #[test]
    fn who_hangs_is_ended_with_all_that_it_started() {
        let begun = Instant::now();
        // The inner sleep holds the output open: without it, too, being ended, collecting would not end.
        let ended = run(&mut shell("sleep 60 & sleep 60"), b"", Duration::from_millis(100)).unwrap();
        assert!(ended.status.is_none() && begun.elapsed() < Duration::from_secs(10));
    }
}
