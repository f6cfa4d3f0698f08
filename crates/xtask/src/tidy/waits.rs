//! Waits without a deadline in the server: a worker, the control thread, the cron, the bus and the feeder
//! have others to serve.
//!
//! A thread that waits for a disk, or for another thread that does, waits for a bounded time, and has a way
//! out then. Threads that no other waits for may wait as long as they like; each of their files is in the
//! list, with the reason.

use super::{File, Finding, source, whole};

const FOLDER: &str = "crates/server/src/";
/// Crates that were cut out of it, whose paths stand in the list as `runtime/routines.rs`.
const BELOW: [&str; 8] =
    ["config", "durability", "engine", "membership", "node", "replicas", "runtime", "swap"];

/// Calls that wait, however long it takes, for a script too, and the sleeps that loops are made of. Calls
/// that take a time (`recv_timeout`, `wait_timeout_while`, `park_timeout`) are not among them.
const CALLS: [&str; 8] = [
    "acquire(Want::All)",
    "thread::sleep(",
    "routines::pause(",
    "routines::lock(",
    "thread::park()",
    ".wait_while(",
    ".join()",
    ".recv()",
];

/// A file of threads that others do not wait for, or not without a deadline.
const ANY: usize = usize::MAX;

/// Calls that a file may have, and the reason.
const ALLOWED: [(&str, usize, &str); 42] = [
    ("admin/debug/mod.rs", 1, "DEBUG SLEEP is asked for"),
    ("durability/aof/driver.rs", ANY, "the writer's thread"),
    ("durability/aof/prepare.rs", ANY, "the writer's thread"),
    ("durability/aof/reference.rs", 1, "the thread of a rewrite, for 10 s"),
    ("durability/aof/reload.rs", 1, "DEBUG LOADAOF, for 10 s"),
    ("durability/aof/replay.rs", ANY, "the thread that loads"),
    ("durability/aof/switch.rs", 3, "two have PATIENCE, one is a thread of its own"),
    ("durability/aof/syncs.rs", 1, "the sync thread, without work"),
    ("membership/cluster/bus/deleter.rs", 1, "a thread of its own, without work"),
    ("membership/cluster/bus/hands.rs", 1, "the bus's helper, without work"),
    ("membership/cluster/bus/mod.rs", 1, "a part of a tick"),
    ("membership/cluster/bus/names.rs", 1, "a thread of its own, without work"),
    ("membership/cluster/bus/replicas_first.rs", ANY, "a thread of its own"),
    ("membership/cluster/bus/saver.rs", 1, "a thread of its own, without work"),
    ("replicas/migration/course.rs", ANY, "a thread of MIGRATE"),
    ("node/migration/flights.rs", 1, "a thread of MIGRATE"),
    ("node/migration/state.rs", 1, "a thread of MIGRATE, without work"),
    ("observe/metrics/http.rs", 1, "threads of its own, without a page to make"),
    ("durability/persistence/delay.rs", 1, "rdb-key-save-delay is asked for, and looks at the cancellation"),
    ("durability/persistence/load/gathering.rs", ANY, "the thread that loads"),
    ("durability/persistence/load/mod.rs", 1, "key-load-delay is asked for"),
    ("durability/persistence/load/room.rs", 1, "the thread that loads"),
    ("node/persistence/state.rs", 1, "`end` has a deadline"),
    ("process/guard.rs", 1, "has SYNC_MAX, and is not waited for longer than MESSAGE_MAX"),
    ("node/process/hold_all.rs", 1, "the guard's deadline, or SHUTDOWN NOSAVE"),
    ("process/leaving.rs", 1, "the guard's deadline, or ATTEMPTS"),
    ("runtime/routines.rs", 1, "`pause` is the sleep that the others are made of"),
    ("process/shutdown.rs", 1, "the guard's deadline, or ATTEMPTS"),
    ("process/start.rs", 1, "the process is over, and starts again later"),
    ("replicas/replication/feeder/mod.rs", 3, "threads of a link; the feeder waits for no disk"),
    ("replicas/replication/full_sync.rs", 1, "the thread of a snapshot, which looks at its cancellation"),
    ("replicas/replication/link/mod.rs", 2, "the thread of a link"),
    ("replicas/replication/role.rs", 2, "the thread that loads, before a script runs"),
    ("node/replication/state.rs", 1, "the threads of a link and of the bus's helper"),
    ("node/aof/state.rs", 1, "the thread of a link; the holder has deadlines"),
    ("engine/request/leases.rs", 1, "threads of a link and of the bus's helper, as long as that is wanted"),
    ("swap/tier/due.rs", 1, "a thread of its own"),
    ("node/tier/reads.rs", 2, "readers without work"),
    ("swap/tier/round.rs", ANY, "a thread of its own"),
    ("swap/tier/sinker.rs", ANY, "a thread of its own"),
    ("swap/tier/watch.rs", 1, "a thread of its own"),
    ("upkeep/cron.rs", 1, "has PATIENCE"),
];

pub fn check(files: &[File]) -> Vec<Finding> {
    compare(&source::files(files), &ALLOWED)
}

fn compare(code: &[File], allowed: &[(&str, usize, &str)]) -> Vec<Finding> {
    let files = code.iter().filter(|file| !is_test(&file.path));
    let named: Vec<(String, &File)> = files.filter_map(|file| Some((name_of(&file.path)?, file))).collect();
    let mut findings = Vec::new();
    for (name, file) in &named {
        let count = allowed.iter().find(|(path, ..)| *path == name).map_or(0, |(_, count, _)| *count);
        let lines: Vec<usize> =
            (1..).zip(file.text.lines()).filter(|(_, line)| waits(line)).map(|(number, _)| number).collect();
        if lines.len() > count {
            let what = "waits without a deadline (tidy/waits.rs lists those that may, and why)";
            findings
                .extend(lines[count..].iter().map(|line| Finding { line: *line, ..whole(&file.path, what) }));
        } else if lines.len() < count && (count != ANY || lines.is_empty()) {
            let what = format!("tidy/waits.rs allows more than the {} waits that there are", lines.len());
            findings.push(whole(&file.path, what));
        }
    }
    let is_there = |name: &str| named.iter().any(|(there, _)| there == name);
    let gone = allowed.iter().filter(|(name, ..)| !is_there(name));
    findings.extend(
        gone.map(|(name, ..)| whole(&format!("{FOLDER}{name}"), "tidy/waits.rs lists a file that is gone")),
    );
    findings
}

/// The path below the sources of the server; of a crate below it, with the crate's name.
fn name_of(path: &str) -> Option<String> {
    let below = || {
        let (name, rest) = path.strip_prefix("crates/")?.split_once("/src/")?;
        BELOW.contains(&name).then(|| format!("{name}/{rest}"))
    };
    path.strip_prefix(FOLDER).map(str::to_string).or_else(below)
}

fn is_test(path: &str) -> bool {
    path.starts_with("crates/server/src/sim/") || path.ends_with("tests.rs") || path.contains("/tests/")
}

/// A condition variable's `wait` returns what has to be unwrapped, that of an event loop takes a time.
fn waits(line: &str) -> bool {
    CALLS.iter().any(|call| line.contains(call)) || line.contains(".wait(") && line.contains(").unwrap")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn file(name: &str, text: &str) -> File {
        File { path: format!("{FOLDER}{name}"), text: text.to_string() }
    }

    #[test]
    fn a_wait_needs_a_deadline_or_a_reason() {
        assert!(waits("while !is_over { std::thread::sleep(LOOK) }"));
        assert!(waits("guard = condvar.wait(guard).unwrap();"));
        assert!(waits("let done = receiver.recv();"));
        assert!(!waits("self.events.wait(Some(timeout))?; receiver.recv_timeout(PATIENCE)"));
        assert!(!waits("folder.join(name); let x = condvar.wait_timeout_while(a, b, c);"));
        let files = [file("a.rs", "x.recv()\ny.recv()\n"), file("b.rs", ""), file("tests.rs", "x.recv()")];
        let lines = |allowed: &[(&str, usize, &str)]| {
            compare(&files, allowed).iter().map(|finding| finding.line).collect::<Vec<_>>()
        };
        assert_eq!(lines(&[]), [1, 2]);
        assert_eq!(lines(&[("a.rs", 1, "why")]), [2]);
        assert_eq!(lines(&[("a.rs", 2, "why")]), [0; 0]);
        assert_eq!(lines(&[("a.rs", 2, "why"), ("b.rs", 1, "why"), ("c.rs", 1, "why")]), [0, 0]);
    }
}
