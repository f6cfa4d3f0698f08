//! A child process that has a deadline, whose output is read line by line, and whose CPU time is known.
//!
//! The CPU time of a child includes that of its own children, as far as it has waited for them. The system
//! adds it up in `/proc/PID/stat`, which stays readable until the child is reaped: so a child is watched
//! until it is a zombie, read once more, and reaped then.
//!
//! A child is marked by an environment variable, which its descendants inherit, in whatever process group
//! they are. When a child has ended, or has to end, every process with its mark is killed: no server outlives
//! the test that started it. Marks are paths (`ci/tests/12`), so the mark of a child covers the marks that
//! the child gives.

use std::fs;
use std::io::{BufRead, BufReader, PipeReader};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use crate::Fallible;

/// The variable that carries the mark.
const MARK: &str = "ISOTHERM_RUN";
/// Interval between two looks at a child; its price is a delay of each child's end.
const LOOK: Duration = Duration::from_millis(20);
/// Ticks a second of `/proc/PID/stat`: USER_HZ, a constant of Linux on each machine that this project
/// supports.
const TICKS_PER_S: f64 = 100.0;

/// Time that a child took.
#[derive(Clone, Copy, Debug, Default)]
pub struct Cost {
    pub wall_s: f64,
    pub cpu_s: f64,
}

/// A child that has ended: `None` where its deadline ended it.
pub struct Ended {
    pub status: Option<ExitStatus>,
    pub cost: Cost,
}

impl Ended {
    pub fn is_success(&self) -> bool {
        self.status.is_some_and(|status| status.success())
    }

    /// Describes the end for a message: "exit status: 1", "no end within its time".
    pub fn describe(&self) -> String {
        self.status.map_or("no end within its time".to_string(), |status| status.to_string())
    }
}

/// Runs `command` until it ends, or until `limit`. Each line of its output, of both kinds, goes to `line`.
pub fn run(command: &mut Command, limit: Duration, line: impl FnMut(&str) + Send) -> Fallible<Ended> {
    let mark = next_mark();
    command.env(MARK, &mark);
    let name = command.get_program().to_string_lossy().into_owned();
    let cannot = |why: std::io::Error| format!("cannot run {name}: {why}");
    let (output, input) = std::io::pipe().map_err(cannot)?;
    command.stdin(Stdio::null()).stdout(input.try_clone().map_err(cannot)?).stderr(input);
    let begun = Instant::now();
    let mut child = command.spawn().map_err(cannot)?;
    // The command keeps its ends of the pipe, and the reader waits until all are closed.
    command.stdout(Stdio::null()).stderr(Stdio::null());
    std::thread::scope(|scope| {
        scope.spawn(|| read_lines(output, line));
        let ended = watch(&mut child, begun, limit);
        // Descendants that are left hold the pipe open too.
        end_marked(&mark);
        ended.map_err(cannot)
    })
}

fn watch(child: &mut Child, begun: Instant, limit: Duration) -> std::io::Result<Ended> {
    let mut cpu_s = 0.0;
    loop {
        let stat = Stat::of(child.id());
        cpu_s = stat.as_ref().map_or(cpu_s, |stat| stat.cpu_s);
        let is_late = begun.elapsed() > limit;
        if is_late {
            child.kill()?;
        }
        if is_late || stat.is_none_or(|stat| stat.is_zombie) {
            let status = child.wait()?;
            let cost = Cost { wall_s: begun.elapsed().as_secs_f64(), cpu_s };
            return Ok(Ended { status: (!is_late).then_some(status), cost });
        }
        std::thread::sleep(LOOK);
    }
}

fn read_lines(output: PipeReader, mut line: impl FnMut(&str)) {
    for text in BufReader::new(output).split(b'\n').map_while(Result::ok) {
        line(String::from_utf8_lossy(&text).trim_end_matches('\r'));
    }
}

/// A process in `/proc/PID/stat`.
struct Stat {
    is_zombie: bool,
    cpu_s: f64,
}

impl Stat {
    fn of(pid: u32) -> Option<Stat> {
        Stat::parse(&fs::read_to_string(format!("/proc/{pid}/stat")).ok()?)
    }

    /// `pid (name) state ppid ..`: the name may hold spaces and parentheses. Fields 14 to 17, counted from 1,
    /// are the CPU time of the process and of its children: utime, stime, cutime, cstime.
    fn parse(text: &str) -> Option<Stat> {
        let (_, rest) = text.rsplit_once(") ")?;
        let fields: Vec<&str> = rest.split_whitespace().collect();
        let ticks: u64 = fields.get(11..15)?.iter().map(|field| field.parse().unwrap_or(0)).sum();
        Some(Stat { is_zombie: matches!(fields[0], "Z" | "X"), cpu_s: ticks as f64 / TICKS_PER_S })
    }
}

fn next_mark() -> String {
    static CHILDREN: AtomicU64 = AtomicU64::new(0);
    let above = std::env::var(MARK).unwrap_or_else(|_| format!("{}", std::process::id()));
    format!("{above}/{}", CHILDREN.fetch_add(1, Ordering::Relaxed))
}

/// Kills every process that carries `mark`, or a mark below it.
fn end_marked(mark: &str) {
    let wanted = format!("{MARK}={mark}");
    let Ok(processes) = fs::read_dir("/proc") else { return };
    let pids: Vec<String> = processes
        .flatten()
        .filter_map(|entry| entry.file_name().into_string().ok())
        .filter(|name| name.bytes().all(|byte| byte.is_ascii_digit()))
        .filter(|pid| {
            fs::read(format!("/proc/{pid}/environ")).is_ok_and(|environ| carries(&environ, &wanted))
        })
        .collect();
    if !pids.is_empty() {
        // A process that ended meanwhile is no failure.
        let kill = format!("kill -KILL {} 2>/dev/null", pids.join(" "));
        let _ = Command::new("sh").args(["-c", &kill]).stdin(Stdio::null()).status();
    }
}

fn carries(environ: &[u8], wanted: &str) -> bool {
    environ.split(|byte| *byte == 0).any(|variable| {
        variable.strip_prefix(wanted.as_bytes()).is_some_and(|rest| rest.is_empty() || rest[0] == b'/')
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shell(script: &str, limit: Duration) -> (Ended, Vec<String>) {
        let mut lines = Vec::new();
        let ended = run(Command::new("sh").args(["-c", script]), limit, |line| lines.push(line.to_string()));
        (ended.unwrap(), lines)
    }

    const LONG: Duration = Duration::from_secs(60);

    #[test]
    fn lines_of_both_kinds_and_the_exit_code_are_seen() {
        let (ended, lines) = shell("echo a; echo b >&2; exit 3", LONG);
        assert_eq!(lines, ["a", "b"]);
        assert_eq!(ended.describe(), "exit status: 3");
    }

    #[test]
    fn cpu_time_includes_that_of_children() {
        let (ended, _) = shell("sh -c 'i=0; while [ $i -lt 300000 ]; do i=$((i+1)); done'; true", LONG);
        assert!(ended.is_success() && ended.cost.cpu_s > 0.05, "{:?}", ended.cost);
    }

    #[test]
    fn a_child_past_its_time_is_ended_with_its_descendants() {
        let (ended, lines) = shell("setsid sleep 1000 & echo $!; sleep 1000", Duration::from_millis(300));
        assert_eq!(ended.describe(), "no end within its time");
        let stat = Stat::of(lines[0].parse().unwrap());
        assert!(stat.is_none_or(|stat| stat.is_zombie), "the sleep lives on");
    }

    #[test]
    fn a_mark_covers_those_below_it_and_no_others() {
        assert!(carries(b"A=1\0ISOTHERM_RUN=7/1\0B=2", "ISOTHERM_RUN=7/1"));
        assert!(carries(b"ISOTHERM_RUN=7/1/4", "ISOTHERM_RUN=7/1"));
        assert!(!carries(b"ISOTHERM_RUN=7/12", "ISOTHERM_RUN=7/1"));
    }

    #[test]
    fn a_stat_is_read_whatever_the_name_of_the_process() {
        let stat = Stat::parse("7 (a) b (c) Z 1 7 7 0 -1 4 1 2 3 4 100 50 25 25 20 0 1").unwrap();
        assert!(stat.is_zombie && stat.cpu_s == 2.0);
    }
}
