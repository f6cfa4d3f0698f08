//! Too few addresses, too little memory, or a clock that steps. The server logs the reason and ends with an
//! exit code, or it refuses the request that it cannot serve and continues; it never crashes.

use crate::common::{Client, Server, binary, encode, free_port, wait_until};
use std::io::{Read, Write};
use std::net::TcpStream;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

const OK: &str = "+OK\r\n";
const OOM: &str = "-OOM command not allowed: no memory available for this key.\r\n";
const MB: usize = 1 << 20;

/// The server under limits that a shell sets.
pub fn limited(limits: &str, arguments: &str) -> Server {
    let port = free_port();
    let mut shell = Command::new("sh");
    let binary = binary().display();
    shell.args(["-c", &format!("{limits} exec {binary} --port {port} --bind 127.0.0.1 {arguments}")]);
    Server::spawn(port, shell)
}

fn answers(mut stream: TcpStream) -> bool {
    let mut reply = [0; 7];
    let asked = stream.write_all(b"PING\r\n").and_then(|()| stream.read_exact(&mut reply));
    asked.is_ok() && reply == *b"+PONG\r\n"
}

/// Whether it answers (true) or has ended (false).
fn starts(server: &mut Server) -> bool {
    let mut answered = false;
    wait_until("it answers or ends", || {
        answered = TcpStream::connect(("127.0.0.1", server.port)).is_ok_and(answers);
        answered || !server.is_alive()
    });
    answered
}

// ---- addresses ----

/// `ulimit -v` from far too little to plenty: each server works, or ends with exit code 1 and a reason. Below
/// some 30 MB the program, its allocator's first pages and its table of commands do not fit, and the process
/// is aborted.
#[test]
fn any_limit_on_addresses() {
    let (mut working, mut refused) = (0, 0);
    for limit_kb in
        [31_000, 34_000, 40_000, 60_000, 100_000, 150_000, 200_000, 300_000, 310_000, 600_000, 3_000_000]
    {
        let mut server = limited(&format!("ulimit -v {limit_kb};"), "--io-threads 4");
        if starts(&mut server) {
            server.client().check(&format!("SET k {}", "v".repeat(100_000)), OK);
            working += 1;
            continue;
        }
        let (status, log) = (server.wait(), server.log());
        let code = status.code().unwrap_or_else(|| panic!("{status} under {limit_kb} KB:\n{log}"));
        // Below some limit not even the loader finds room for the libraries.
        let reasons = [
            (1, "limit on address space"),
            (1, "cannot reserve"),
            (127, "error while loading shared libraries"),
            (127, "cannot"),
        ];
        let has_reason = reasons.iter().any(|(with, reason)| code == *with && log.contains(reason));
        assert!(has_reason, "{code} under {limit_kb} KB:\n{log}");
        refused += 1;
    }
    assert!(working >= 5 && refused >= 2, "{working} worked, {refused} did not");
}

// ---- memory ----

/// Writes until memory runs out. Returns how many keys were stored.
fn fill(client: &mut Client, value: &str) -> usize {
    let mut stored = 0;
    for batch in 0..1000 {
        let requests: Vec<u8> =
            (0..100).flat_map(|number| encode(&["SET", &format!("k:{batch}:{number}"), value])).collect();
        client.send(&requests);
        let replies: Vec<Vec<u8>> = (0..100).map(|_| client.read_reply()).collect();
        let refused = replies.iter().filter(|reply| *reply == OOM.as_bytes()).count();
        assert!(replies.iter().all(|reply| reply == OK.as_bytes() || reply == OOM.as_bytes()));
        stored += 100 - refused;
        if refused == 100 {
            return stored;
        }
    }
    panic!("{stored} keys, and memory has not run out");
}

/// The data segment is limited: the kernel refuses the same requests as under vm.overcommit_memory=2.
#[test]
fn memory_that_runs_out() {
    let mut server = limited("ulimit -d 100000;", "--io-threads 2");
    assert!(starts(&mut server), "{}", server.log());
    let (mut writer, mut other) = (server.client(), server.client());
    let stored = fill(&mut writer, &"v".repeat(1000));
    assert!(stored > 30_000, "only {stored} keys in 100 MB");
    // Reads are served, and writes are again once some keys are deleted.
    other.check("GET k:0:0", &format!("$1000\r\n{}\r\n", "v".repeat(1000)));
    let gone: Vec<String> = (0..100).map(|number| format!("k:0:{number}")).collect();
    other.check(&format!("DEL {}", gone.join(" ")), ":100\r\n");
    other.check(&format!("SET again {}", "w".repeat(1000)), OK);
    // A value for which the query buffer has no memory closes its connection or is refused; other connections
    // go on.
    let mut large = server.client();
    let mut request = b"*3\r\n$3\r\nSET\r\n$5\r\nlarge\r\n$209715200\r\n".to_vec();
    request.resize(request.len() + 200 * MB, b'x');
    request.extend_from_slice(b"\r\n");
    if large.stream.write_all(&request).is_ok() {
        let said = large.read_to_end();
        assert!(said.is_empty() || said == OOM.as_bytes(), "{:?}", String::from_utf8_lossy(&said));
    }
    server.wait_for_log("out of memory");
    other.check("GET again", &format!("$1000\r\n{}\r\n", "w".repeat(1000)));
    other.check("SETRANGE new 300000000 x", OOM);
    other.check("FLUSHALL SYNC", OK);
    assert!(
        fill(&mut writer, &"v".repeat(1000)) > stored / 2,
        "the memory of flushed keys is not used again"
    );
    assert!(server.is_alive());
}

/// Memory for small values ends far below `maxmemory`: keys are evicted, as above the limit, and writes are
/// served.
#[test]
fn memory_that_runs_out_evicts() {
    let mut server = limited(
        "ulimit -v 700000;",
        "--io-threads 2 --maxmemory 4gb --maxmemory-policy allkeys-lru --maxmemory-clients 0",
    );
    assert!(starts(&mut server), "{}", server.log());
    let (mut client, value) = (server.client(), "v".repeat(1000));
    // All keys of a tag lie in one partition, and so in one arena.
    let (mut refused, mut refused_late) = (0, 0);
    for batch in 0..4000 {
        let requests: Vec<u8> = (0..100)
            .flat_map(|number| encode(&["SET", &format!("{{tag}}:{batch}:{number}"), &value]))
            .collect();
        client.send(&requests);
        for _ in 0..100 {
            let reply = client.read_reply();
            assert!(reply == OK.as_bytes() || reply == OOM.as_bytes());
            refused += u32::from(reply == OOM.as_bytes());
            refused_late += u32::from(batch >= 3900 && reply == OOM.as_bytes());
        }
    }
    let evicted = client.info("stats", "evicted_keys");
    assert!(evicted > 100_000, "{evicted} keys were evicted, {refused} writes were refused");
    assert!(refused < 4000 && refused_late < 100, "{refused} writes were refused, {refused_late} at the end");
}

/// Under strict accounting the reserved addresses must not count. The test runs only where the machine has
/// this setting.
#[test]
fn strict_accounting_of_memory() {
    let setting = std::fs::read_to_string("/proc/sys/vm/overcommit_memory").unwrap_or_default();
    if setting.trim() != "2" {
        println!("skipped: a start under vm.overcommit_memory=2: here it is {}", setting.trim());
        return;
    }
    let mut server = limited("", "--io-threads 4");
    assert!(starts(&mut server), "{}", server.log());
    server.client().check("SET k v", OK);
}

/// In a control group of 512 MB, eviction keeps the server below the size at which the kernel would end it.
#[test]
fn a_small_control_group() {
    let group = match Group::new(512 * MB) {
        Ok(group) => group,
        Err(why) => return println!("skipped: a control group of 512 MB: {why}"),
    };
    let enter = format!("echo $$ > {}/cgroup.procs;", group.folder.display());
    let arguments = "--io-threads 2 --maxmemory 400mb --maxmemory-policy allkeys-random";
    let mut server = limited(&enter, arguments);
    assert!(starts(&mut server), "{}", server.log());
    let mut client = server.client();
    let value = "v".repeat(4000);
    for batch in 0..1500 {
        let requests: Vec<u8> =
            (0..100).flat_map(|number| encode(&["SET", &format!("k:{batch}:{number}"), &value])).collect();
        client.send(&requests);
        (0..100).for_each(|_| client.expect(OK));
    }
    assert!(server.is_alive() && server.resident_bytes() < 512 * MB as u64);
    assert!(client.ask("INFO stats").contains("\nevicted_keys:"));
    drop(server);
}

/// A control group that is made for one test, and removed when this value is dropped.
struct Group {
    folder: PathBuf,
}

impl Group {
    fn new(limit_bytes: usize) -> Result<Group, String> {
        let name = format!("isotherm-test-{}", std::process::id());
        // The second version of the kernel's interface, or the first.
        let unified = Path::new("/sys/fs/cgroup/cgroup.controllers").exists();
        let (root, file) = match unified {
            true => ("/sys/fs/cgroup", "memory.max"),
            false => ("/sys/fs/cgroup/memory", "memory.limit_in_bytes"),
        };
        let folder = Path::new(root).join(name);
        std::fs::create_dir(&folder).map_err(|why| format!("{}: {why}", folder.display()))?;
        let group = Group { folder };
        let limit = group.folder.join(file);
        std::fs::write(&limit, limit_bytes.to_string())
            .map_err(|why| format!("{}: {why}", limit.display()))?;
        Ok(group)
    }
}

impl Drop for Group {
    fn drop(&mut self) {
        // The group is busy until the kernel has removed the last process from it.
        for _ in 0..100 {
            if std::fs::remove_dir(&self.folder).is_ok() {
                return;
            }
            std::thread::sleep(Duration::from_millis(10));
        }
    }
}

// ---- time ----

/// Preloaded between the server and the C library: adds the seconds that stand in a file to the wall clock.
const CLOCK: &str = r#"
#define _GNU_SOURCE
#include <stdio.h>
#include <stdlib.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

int clock_gettime(clockid_t clock, struct timespec *time) {
    long result = syscall(SYS_clock_gettime, clock, time);
    const char *path = getenv("TEST_CLOCK");
    FILE *file = clock == CLOCK_REALTIME && path ? fopen(path, "r") : NULL;
    long seconds = 0;
    if (file) {
        if (fscanf(file, "%ld", &seconds) == 1) time->tv_sec += seconds;
        fclose(file);
    }
    return (int)result;
}
"#;

#[test]
fn a_clock_that_steps() {
    let folder = std::env::temp_dir().join(format!("isotherm-clock-{}", std::process::id()));
    std::fs::create_dir_all(&folder).unwrap();
    std::fs::write(folder.join("clock.c"), CLOCK).unwrap();
    let compiled = Command::new("cc")
        .args(["-shared", "-fPIC", "-O1", "-o", "clock.so", "clock.c"])
        .current_dir(&folder)
        .status();
    if !compiled.is_ok_and(|status| status.success()) {
        return println!("skipped: a wall clock that steps: no C compiler");
    }
    let step_to = |seconds: i64| {
        // Renamed, so that the server never reads a part of the number.
        std::fs::write(folder.join("new"), seconds.to_string()).unwrap();
        std::fs::rename(folder.join("new"), folder.join("seconds")).unwrap();
        std::thread::sleep(Duration::from_millis(20));
    };
    step_to(0);
    let limits = format!("export LD_PRELOAD={0}/clock.so TEST_CLOCK={0}/seconds;", folder.display());
    let mut server = limited(&limits, "--io-threads 2 --enable-debug-command yes");
    assert!(starts(&mut server), "{}", server.log());
    let mut client = server.client();
    let time = |client: &mut Client| number_in(client.ask("TIME").split("\r\n").nth(2).unwrap());
    let ttl = |client: &mut Client, key: &str| number_in(client.ask(&format!("TTL {key}")).trim());
    let mut idle = server.client();
    idle.check("PING", "+PONG\r\n");
    client.check("SET long v EX 100", OK);
    client.check("SET short v EX 2", OK);
    let before = time(&mut client);

    // An hour back: keys live an hour longer, and new keys expire by the new time.
    step_to(-3600);
    assert!((before - 3600..before - 3590).contains(&time(&mut client)), "the server sees another clock");
    assert!((3690..=3700).contains(&ttl(&mut client, "long")));
    client.check("SET new v PX 30", OK);
    wait_until("the expiry cycle removes the new key", || client.ask("DBSIZE") == ":2\r\n");
    let list = client.ask("CLIENT LIST");
    assert!(!list.contains("age=-") && !list.contains("idle=-"), "{list}");
    assert!(!client.ask("INFO server").contains("uptime_in_seconds:-"));
    // The true time runs on: a second may have begun since.
    let idle_seconds = client.ask_number("OBJECT IDLETIME long");
    assert!((0..1800).contains(&idle_seconds), "{idle_seconds} seconds");
    idle.check("PING", "+PONG\r\n");

    // Back to the true time, then two hours on: keys that are due are removed without a command.
    step_to(0);
    assert!(ttl(&mut client, "long") <= 100);
    step_to(7200);
    wait_until("all keys expire", || client.ask("DBSIZE") == ":0\r\n");
    server.signal("TERM");
    assert_eq!(server.wait().code(), Some(0));
    std::fs::remove_dir_all(folder).unwrap();
}

fn number_in(text: &str) -> i64 {
    text.trim_start_matches([':', '$', '+']).parse().unwrap_or_else(|_| panic!("{text:?} is no number"))
}
