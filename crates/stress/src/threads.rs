//! The threads of a server while it stalls: their states at once, then their stacks, if a debugger is there.

use std::fmt::Write as _;
use std::fs;
use std::io;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

/// Longest time that the debugger may take. It stops the server meanwhile.
pub const DEBUGGER_MAX: Duration = Duration::from_secs(20);

/// Into `threads.txt` in this folder: the states are in the file before the debugger starts.
pub fn write(process: u32, folder: &Path) -> io::Result<()> {
    fs::create_dir_all(folder)?;
    let file = folder.join("threads.txt");
    let mut text = states(process);
    fs::write(&file, &text)?;
    let arguments = ["-p", &process.to_string(), "-batch", "-ex", "thread apply all bt 14"];
    let seconds = DEBUGGER_MAX.as_secs().to_string();
    // A debugger is a convenience: without one the states have to do.
    if let Ok(output) = Command::new("timeout").arg(seconds).arg("gdb").args(arguments).output() {
        text += &String::from_utf8_lossy(&output.stdout);
    }
    fs::write(file, text)
}

/// A line for each thread: name, state, where it waits in the kernel, CPU time, time without a core, slices.
fn states(process: u32) -> String {
    let mut text = String::new();
    let tasks = fs::read_dir(format!("/proc/{process}/task")).into_iter().flatten().flatten();
    for task in tasks.map(|task| task.path()) {
        let read = |name: &str| fs::read_to_string(task.join(name)).unwrap_or_default();
        let (name, stat, place, times) = (read("comm"), read("stat"), read("wchan"), read("schedstat"));
        let state = stat.rsplit(')').next().and_then(|rest| rest.trim().chars().next()).unwrap_or('?');
        let _ = writeln!(text, "{:<20} {state} {place} {}", name.trim(), times.trim());
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_thread_has_a_line_with_its_state() {
        let text = states(std::process::id());
        assert!(text.lines().count() >= 2, "this thread and the main one: {text}");
        let is_state = |line: &str| line.get(21..22).is_some_and(|state| "RSDT".contains(state));
        assert!(text.lines().all(is_state), "{text}");
    }
}
