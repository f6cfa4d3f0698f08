//! A disk of cold values that is full, fails, hangs or is gone: nothing is lost, no other value is answered,
//! and it comes back by itself.

use crate::aof::kill;
use crate::common::{Client, Server, encode, field, text_field, wait_until};
use crate::migrate::migrate;
use crate::swap::{Folder, check, name, set, swap, value, wait_until_loaded};
use crate::swap_frozen;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

pub const UNREADABLE: &str = "-SWAPERR A value that this command needs cannot be read from disk\r\n";
pub const TOO_SLOW: &str =
    "-SWAPERR The disk brought nothing of what this command needs for longer than swap-read-timeout\r\n";
/// Of the tests that have more data than memory: 1.0 KB each, 24 MB of memory.
const MANY: usize = 40_000;

pub fn state(client: &mut Client) -> String {
    text_field(&client.ask("INFO swap"), "swap_state").to_string()
}

pub fn fault(client: &mut Client, what: &str) {
    client.check(&format!("DEBUG SWAP-FAULT {what}"), "+OK\r\n");
}

/// A server some of whose keys are cold, and stay so.
pub fn with_cold(folder: &Folder, keys: usize, more: &[&str]) -> Server {
    let server = folder.start(more);
    let mut client = server.client();
    wait_until_loaded(&mut client);
    client.check("DEBUG SWAP-CHAOS 1", "+OK\r\n");
    set(&mut client, 0..keys, 0);
    wait_until("all values leave memory", || swap(&mut client, "swap_keys") == keys as u64);
    client.check("DEBUG SWAP-CHAOS 0", "+OK\r\n");
    client.check("SET hot here", "+OK\r\n");
    server
}

/// Sends SETs of these numbers, in batches. Returns how many were refused for want of memory.
pub fn set_or_oom(client: &mut Client, numbers: std::ops::Range<usize>) -> usize {
    let mut refused = 0;
    for first in numbers.clone().step_by(100) {
        let some = first..(first + 100).min(numbers.end);
        let requests: Vec<_> = some.clone().map(|n| encode(&["SET", &name(n), &value(n, 0)])).collect();
        client.send(requests.concat());
        for _ in some {
            match client.read_reply().as_slice() {
                b"+OK\r\n" => {}
                reply if reply.starts_with(b"-OOM") => refused += 1,
                reply => panic!("{}", String::from_utf8_lossy(reply)),
            }
        }
    }
    refused
}

#[test]
fn a_write_that_fails_is_written_elsewhere() {
    let folder = Folder::new("elsewhere");
    let server = folder.start(&[]);
    let mut client = server.client();
    for what in ["io", "short"] {
        fault(&mut client, &format!("write {what} 2"));
        set(&mut client, 0..MANY, 0);
        assert_eq!(state(&mut client), "ok");
    }
    assert_eq!(swap(&mut client, "swap_write_errors"), 4);
    check(&mut client, (0..MANY).step_by(7), 0);
    client.check("DEBUG CHECK-INVARIANTS", "+OK\r\n");
}

#[test]
fn a_disk_that_cannot_be_written_is_read_only() {
    let folder = Folder::new("degraded");
    let server = folder.start(&[]);
    let mut client = server.client();
    set(&mut client, 0..MANY, 0);
    let cold = swap(&mut client, "swap_keys");
    assert!(cold > MANY as u64 / 4, "{cold}");
    fault(&mut client, "write io");
    let refused = set_or_oom(&mut client, MANY..2 * MANY);
    assert!(refused > MANY / 2, "{refused}");
    assert_eq!(state(&mut client), "degraded");
    // Values on disk are read, written over and deleted.
    check(&mut client, (0..MANY).step_by(7), 0);
    client.check(&format!("DEL {} {}", name(0), name(1)), ":2\r\n");
    fault(&mut client, "write none");
    wait_until("it comes back by itself", || {
        set_or_oom(&mut client, 0..2) == 0 && state(&mut client) == "ok"
    });
    assert_eq!(set_or_oom(&mut client, MANY..2 * MANY), 0);
    check(&mut client, (0..2 * MANY).step_by(7), 0);
    client.check("DEBUG CHECK-INVARIANTS", "+OK\r\n");
}

#[test]
fn a_disk_without_room_leaves_it_to_the_policy() {
    let folder = Folder::new("full");
    let server = folder.start(&["--maxmemory-policy", "allkeys-lru"]);
    let mut client = server.client();
    set(&mut client, 0..MANY, 0);
    assert_eq!(field(&client.ask("INFO stats"), "evicted_keys"), 0);
    fault(&mut client, "write full");
    assert_eq!(set_or_oom(&mut client, MANY..2 * MANY), 0);
    assert_eq!(state(&mut client), "full");
    assert!(field(&client.ask("INFO stats"), "evicted_keys") > 1000);
    client.check("CONFIG SET maxmemory-policy noeviction", "+OK\r\n");
    assert!(set_or_oom(&mut client, 2 * MANY..3 * MANY) > MANY / 2);
    fault(&mut client, "write none");
    wait_until("it comes back by itself", || state(&mut client) == "ok");
    assert_eq!(set_or_oom(&mut client, 2 * MANY..3 * MANY), 0);
    check(&mut client, (2 * MANY..3 * MANY).step_by(7), 0);
}

/// A writer is not held up by a write that never ends.
#[test]
fn a_write_that_hangs_holds_up_no_writer_for_long() {
    let folder = Folder::new("hang-write");
    let server = folder.start(&[]);
    let mut client = server.client();
    set(&mut client, 0..MANY, 0);
    fault(&mut client, "write hang");
    assert!(set_or_oom(&mut client, MANY..2 * MANY) > MANY / 2);
    assert_eq!(state(&mut client), "degraded");
    check(&mut client, (0..MANY).step_by(7), 0);
    fault(&mut client, "write none");
    wait_until("it comes back by itself", || state(&mut client) == "ok");
    assert_eq!(set_or_oom(&mut client, MANY..2 * MANY), 0);
    check(&mut client, (0..2 * MANY).step_by(7), 0);
}

#[test]
fn a_read_that_hangs_is_given_up_and_hot_keys_feel_nothing() {
    let folder = Folder::new("hang-read");
    let server = with_cold(&folder, 40, &["--swap-read-timeout", "0"]);
    let (mut client, mut other) = (server.client(), server.client());
    fault(&mut other, "read hang");
    let began = Instant::now();
    client.send(encode(&["GET", &name(1)]));
    client.send(encode(&["GET", "hot"]));
    for _ in 0..100 {
        other.check("GET hot", "$4\r\nhere\r\n");
    }
    // It waits as long as it takes, and then no longer.
    wait_until("it is parked", || other.ask("CLIENT LIST").contains("flags=b"));
    other.check("CONFIG SET swap-read-timeout 300", "+OK\r\n");
    client.expect(TOO_SLOW);
    client.expect("$4\r\nhere\r\n");
    assert!(began.elapsed() >= Duration::from_millis(300));
    assert_eq!((swap(&mut other, "swap_timeouts"), state(&mut other)), (1, "ok".to_string()));
    // In a transaction it is an error of its element, in a script one that it can see; both wait under their
    // locks for a bounded time.
    client.check("MULTI", "+OK\r\n");
    client.check("SET hot there", "+QUEUED\r\n");
    client.check(&format!("GET {}", name(2)), "+QUEUED\r\n");
    client.check(&format!("STRLEN {}", name(2)), "+QUEUED\r\n");
    client.check("EXEC", &format!("*3\r\n+OK\r\n{TOO_SLOW}:1000\r\n"));
    let script = format!("return redis.pcall('GET', '{}')", name(3));
    client.send(encode(&["EVAL", &script, "0"]));
    assert!(String::from_utf8_lossy(&client.read_reply()).starts_with("-SWAPERR"));
    // A read that was given up is not remembered against the key.
    fault(&mut other, "read none");
    check(&mut client, 0..40, 0);
    assert_eq!(swap(&mut other, "swap_reads_waiting"), 0);
    client.check("DEBUG CHECK-INVARIANTS", "+OK\r\n");
}

/// All readers wait for locks that a transaction has, which waits for a value under them: one more thread
/// reads for such as that one alone.
#[test]
fn a_read_under_locks_needs_no_reader_that_waits_for_them() {
    let folder = Folder::new("read-now");
    let server = with_cold(&folder, 200, &["--swap-read-timeout", "60000"]);
    let (mut client, mut other) = (server.client(), server.client());
    fault(&mut client, "read hang");
    // More keys than readers: each is about to look for its next one.
    let keys: Vec<String> = (0..150).map(name).collect();
    let words: Vec<&str> = std::iter::once("MGET").chain(keys.iter().map(String::as_str)).collect();
    other.send(encode(&words));
    wait_until("it is parked", || client.ask("CLIENT LIST").contains("flags=b"));
    client.check("MULTI", "+OK\r\n");
    client.check("DEBUG SWAP-FAULT read none", "+QUEUED\r\n");
    client.check("DEBUG SLEEP 0.3", "+QUEUED\r\n");
    let script = format!("return redis.call('GET', '{}')", name(180));
    client.send(encode(&["EVAL", &script, "0"]));
    client.expect("+QUEUED\r\n");
    client.check("EXEC", &format!("*3\r\n+OK\r\n+OK\r\n$1000\r\n{}\r\n", value(180, 0)));
    let all: String = (0..150).map(|n| format!("$1000\r\n{}\r\n", value(n, 0))).collect();
    other.expect(&format!("*150\r\n{all}"));
    assert_eq!(swap(&mut other, "swap_timeouts"), 0);
    client.check("DEBUG CHECK-INVARIANTS", "+OK\r\n");
}

/// A script reads a thousand values under its locks, one after the other, and more than may be lent. None of
/// them goes before the command runs that needs all: it would begin again for ever.
#[test]
fn what_a_command_reads_under_its_locks_stays_until_it_has_run() {
    const VALUES: usize = 1000;
    let folder = Folder::new("held-many");
    let server = folder.start(&["--swap-cache", "0"]);
    let (mut client, mut other) = (server.client(), server.client());
    client.check("DEBUG SWAP-CHAOS 1", "+OK\r\n");
    let (name, value) = (|n: usize| format!("{{t}}{n}"), "v".repeat(5000));
    (0..VALUES).for_each(|n| client.check(&format!("SET {} {value}", name(n)), "+OK\r\n"));
    wait_until("all values leave memory", || swap(&mut client, "swap_keys") == VALUES as u64);
    client.check("DEBUG SWAP-CHAOS 0", "+OK\r\n");
    fault(&mut client, "read slow");
    let script = "local k = {} for n = 0, tonumber(ARGV[1]) - 1 do k[#k + 1] = '{t}' .. n end \
                  local sum = 0 for _, v in ipairs(redis.call('MGET', unpack(k))) do sum = sum + #v end return sum";
    client.send(encode(&["EVAL", script, "0", &VALUES.to_string()]));
    client.expect(&format!(":{}\r\n", VALUES * 5000));
    // Each was read once.
    assert_eq!(swap(&mut other, "swap_reads_in_commands"), VALUES as u64);
    client.check("DEBUG CHECK-INVARIANTS", "+OK\r\n");
}

#[test]
fn a_disk_that_never_answers_is_not_waited_for() {
    let folder = Folder::new("gone");
    let server = with_cold(&folder, 40, &["--swap-read-timeout", "200"]);
    let (mut client, mut other) = (server.client(), server.client());
    fault(&mut other, "read hang");
    for n in 0..8 {
        client.check(&format!("GET {}", name(n)), TOO_SLOW);
    }
    assert_eq!(state(&mut other), "failed");
    let began = Instant::now();
    for n in 0..40 {
        client.check(&format!("GET {}", name(n)), UNREADABLE);
        client.check(&format!("STRLEN {}", name(n)), ":1000\r\n");
        client.check(&format!("APPEND {} x", name(n)), UNREADABLE);
    }
    assert!(began.elapsed() < Duration::from_secs(5), "{:?}", began.elapsed());
    // Keys can be written over and deleted.
    client.check(&format!("SET {} new", name(0)), "+OK\r\n");
    client.check(&format!("GET {}", name(0)), "$3\r\nnew\r\n");
    client.check(&format!("DEL {}", name(1)), ":1\r\n");
    fault(&mut other, "read none");
    wait_until("it comes back by itself", || state(&mut other) == "ok");
    check(&mut client, 2..40, 0);
}

#[test]
fn reads_that_fail_are_errors_until_they_do_not() {
    let folder = Folder::new("read-error");
    let server = with_cold(&folder, 40, &[]);
    let mut client = server.client();
    // A read that no command has waited for is not noted against its key.
    fault(&mut client, "read io 3");
    client.check(&format!("DUMPFROMSSDB {}", name(0)), "+OK\r\n");
    wait_until("it was tried", || swap(&mut client, "swap_unreadable") == 1);
    std::thread::sleep(Duration::from_millis(50));
    check(&mut client, 0..1, 0);
    // Two more tries.
    fault(&mut client, "read io 2");
    check(&mut client, 1..2, 0);
    fault(&mut client, "read io");
    for n in 2..40 {
        client.check(&format!("GET {}", name(n)), UNREADABLE);
    }
    wait_until("no probe succeeds", || state(&mut client) == "failed");
    let errors = swap(&mut client, "swap_read_errors");
    client.check(&format!("MGET {} {}", name(2), name(3)), UNREADABLE);
    assert!(swap(&mut client, "swap_read_errors") <= errors + 2, "no reads but probes");
    fault(&mut client, "read none");
    wait_until("it comes back by itself", || state(&mut client) == "ok");
    check(&mut client, 0..40, 0);
    assert!(client.ask("INFO errorstats").contains("errorstat_SWAPERR"));
}

/// A command that could not read several values under its locks leaves no note of any.
#[test]
fn what_failed_under_locks_is_tried_again() {
    let folder = Folder::new("notes");
    let server = with_cold(&folder, 20, &[]);
    let mut client = server.client();
    let keys: Vec<String> = (0..10).map(name).collect();
    client.check("RPUSH numbers 0 1 2", ":3\r\n");
    let scripts = [
        format!("return redis.pcall('MGET', '{}')", keys.join("','")),
        "return redis.pcall('SORT', 'numbers', 'BY', 'key:000000000*', 'GET', 'key:000000000*')".to_string(),
    ];
    for script in scripts {
        fault(&mut client, "read io 30");
        client.send(encode(&["EVAL", &script, "0"]));
        assert!(client.read_reply().starts_with(b"-SWAPERR"), "{script}");
        fault(&mut client, "read none");
        wait_until("the disk counts as healthy", || state(&mut client) == "ok");
    }
    check(&mut client, 0..20, 0);
}

/// A condition of EXEC on a value that cannot be read aborts the transaction; whether a key is there is known
/// without its value.
#[test]
fn conditions_on_what_cannot_be_read_abort() {
    let folder = Folder::new("conditions");
    let server = with_cold(&folder, 20, &[]);
    let mut client = server.client();
    fault(&mut client, "read io");
    // The second time it is not even tried: the disk has failed, or the command has waited.
    for _ in 0..2 {
        for (condition, expected) in
            [("IFEQ", ABORT), ("IFNE", ABORT), ("NX", "*-1\r\n"), ("XX", "*1\r\n+OK\r\n")]
        {
            let value = if condition.starts_with("IF") { " x" } else { "" };
            exec(&mut client, &format!("EXEC {condition} {}{value}", name(3)), expected);
        }
    }
    fault(&mut client, "read none");
    wait_until("the disk counts as healthy", || state(&mut client) == "ok");
    check(&mut client, 0..20, 0);
}

/// Of a frozen key not even that is known.
#[test]
fn conditions_on_frozen_keys_that_cannot_be_read_abort() {
    let folder = Folder::new("frozen-conditions");
    let server = folder.start(&["--swap-freeze", "yes", "--save", ""]);
    let mut client = server.client();
    swap_frozen::set(&mut client, 0..3000);
    swap_frozen::freeze(&mut client, 3000);
    fault(&mut client, "read io");
    for condition in ["IFEQ", "IFNE", "NX", "XX"] {
        let value = if condition.starts_with("IF") { " x" } else { "" };
        exec(&mut client, &format!("EXEC {condition} {}{value}", swap_frozen::name(7)), ABORT);
    }
    fault(&mut client, "read none");
    wait_until("the disk counts as healthy", || state(&mut client) == "ok");
    swap_frozen::check(&mut client, 0..3000);
}

const ABORT: &str = "-EXECABORT Transaction discarded because of: SWAPERR A value that this command needs cannot be \
                     read from disk\r\n";

fn exec(client: &mut Client, request: &str, expected: &str) {
    client.check("MULTI", "+OK\r\n");
    client.check("SET other 1", "+QUEUED\r\n");
    client.check(request, expected);
}

/// A server that cannot do what its primary did is no replica of it: the link breaks, and comes back with the
/// disk.
#[test]
fn a_replica_that_cannot_read_skips_no_command() {
    let folder = Folder::new("replica");
    let primary = Server::start(&["--enable-debug-command", "yes"]);
    let replica = folder.start(&["--replica-ignore-maxmemory", "no"]);
    let (mut client, mut other) = (primary.client(), replica.client());
    set(&mut client, 0..20, 0);
    other.check("DEBUG SWAP-CHAOS 1", "+OK\r\n");
    other.check(&format!("REPLICAOF 127.0.0.1 {}", primary.port), "+OK\r\n");
    wait_until("all values leave its memory", || swap(&mut other, "swap_keys") == 20);
    fault(&mut other, "read io");
    let refused = |other: &mut Client| swap(other, "swap_unreadable") > 0;
    for n in 0..20 {
        client.check(&format!("APPEND {} x", name(n)), ":1001\r\n");
    }
    wait_until("it cannot read", || refused(&mut other));
    client.check("SET last 1", "+OK\r\n");
    std::thread::sleep(Duration::from_millis(300));
    other.check("EXISTS last", ":0\r\n");
    fault(&mut other, "read none");
    wait_until("it follows again", || other.ask("EXISTS last") == ":1\r\n");
    other.check("DEBUG SWAP-CHAOS 0", "+OK\r\n");
    assert_eq!(client.ask("DEBUG DIGEST"), other.ask("DEBUG DIGEST"));
}

fn run(program: &str, arguments: &[&str], folder: &Path) -> bool {
    let mut command = Command::new(program);
    command.args(arguments).arg(folder).stdout(Stdio::null()).stderr(Stdio::null());
    command.status().is_ok_and(|status| status.success())
}

#[test]
fn a_file_system_that_is_full_is_no_end() {
    let folder = Folder::new("small");
    let disk = folder.0.join("disk");
    std::fs::create_dir_all(&disk).expect("a folder");
    if !run("mount", &["-t", "tmpfs", "-o", "size=40m", "tmpfs"], &disk) {
        println!("no file system can be mounted here: a full one is not tried");
        return;
    }
    let _end = Unmount(&disk);
    let server = folder.start(&[
        "--swap-dir",
        "disk/swap",
        "--swap-max-disk",
        "1gb",
        "--maxmemory-policy",
        "allkeys-lru",
    ]);
    let mut client = server.client();
    assert_eq!(set_or_oom(&mut client, 0..2 * MANY), 0);
    assert_eq!(state(&mut client), "full");
    assert!(field(&client.ask("INFO stats"), "evicted_keys") > 1000);
    assert_eq!(swap(&mut client, "swap_read_errors"), 0);
    // Those that are left are right.
    for n in (0..2 * MANY).step_by(7) {
        let reply = client.ask(&format!("GET {}", name(n)));
        assert!(reply == "$-1\r\n" || reply == format!("$1000\r\n{}\r\n", value(n, 0)), "{reply}");
    }
    assert!(run("mount", &["-o", "remount,size=400m"], &disk));
    wait_until("it comes back by itself", || {
        set_or_oom(&mut client, 0..100);
        state(&mut client) == "ok"
    });
    client.check("CONFIG SET maxmemory-policy noeviction", "+OK\r\n");
    assert_eq!(set_or_oom(&mut client, 0..2 * MANY), 0);
    check(&mut client, (0..2 * MANY).step_by(7), 0);
    client.check("DEBUG CHECK-INVARIANTS", "+OK\r\n");
}

struct Unmount<'p>(&'p Path);

impl Drop for Unmount<'_> {
    fn drop(&mut self) {
        // The server may still have it as its own.
        run("umount", &["-l"], self.0);
    }
}

/// A key whose value cannot be read does not pass for one that is not there, and stays; others of the same
/// command leave.
#[test]
fn what_cannot_be_read_is_not_migrated() {
    let folder = Folder::new("migrate");
    let server = with_cold(&folder, 20, &[]);
    let target = Server::start(&[]);
    let (mut client, mut there) = (server.client(), target.client());
    fault(&mut client, "read io");
    assert_eq!(migrate(&mut client, target.port, &format!("{} 0 1000", name(0))), UNREADABLE);
    let words = format!("'' 0 1000 KEYS {} hot nokey", name(1));
    assert_eq!(migrate(&mut client, target.port, &words), UNREADABLE);
    client.check(&format!("EXISTS {} {} hot", name(0), name(1)), ":2\r\n");
    there.check(&format!("EXISTS {} {} hot", name(0), name(1)), ":1\r\n");
    fault(&mut client, "read none");
    wait_until("it comes back by itself", || state(&mut client) == "ok");
    check(&mut client, 0..20, 0);
    let words = format!("'' 0 1000 KEYS {} {}", name(0), name(1));
    assert_eq!(migrate(&mut client, target.port, &words), "+OK\r\n");
    check(&mut there, 0..2, 0);
    client.check(&format!("EXISTS {} {}", name(0), name(1)), ":0\r\n");
    client.check("DEBUG CHECK-INVARIANTS", "+OK\r\n");
}

/// MIGRATE reads while nothing is locked: others of the same slot are answered meanwhile. A disk that is
/// silent is waited for once, and all that lies there stays.
#[test]
fn a_migration_that_waits_for_the_disk_holds_up_no_other_client() {
    const KEYS: usize = 12;
    let (folder, name) = (Folder::new("migrate-hang"), |n: usize| format!("{{m}}{n}"));
    let more = ["--io-threads", "1", "--swap-read-timeout", "0", "--swap-freeze", "no"];
    let (server, target) = (folder.start(&more), Server::start(&[]));
    let (mut client, mut other, mut there) = (server.client(), server.client(), target.client());
    client.check("DEBUG SWAP-CHAOS 1", "+OK\r\n");
    (0..KEYS).for_each(|n| client.check(&format!("SET {} {}", name(n), value(n, 0)), "+OK\r\n"));
    wait_until("all values leave memory", || swap(&mut client, "swap_keys") == KEYS as u64);
    client.check("DEBUG SWAP-CHAOS 0", "+OK\r\n");
    client.check("MSET {m}hot here {m}leaves 1", "+OK\r\n");
    fault(&mut other, "read hang");
    let (port, first, second) = (target.port.to_string(), name(0), name(1));
    client.send(encode(&["MIGRATE", "127.0.0.1", &port, "", "0", "10000", "KEYS", &first, &second]));
    wait_until("it is parked", || other.ask("CLIENT LIST").contains("flags=b"));
    (0..200).for_each(|_| other.check("GET {m}hot", "$4\r\nhere\r\n"));
    fault(&mut other, "read none");
    client.expect("+OK\r\n");
    there.check("DBSIZE", ":2\r\n");
    other.check("CONFIG SET swap-read-timeout 200", "+OK\r\n");
    fault(&mut other, "read hang");
    let rest: Vec<String> = (2..KEYS).map(name).collect();
    let words = format!("'' 0 10000 KEYS {} {{m}}leaves", rest.join(" "));
    assert_eq!(migrate(&mut client, target.port, &words), UNREADABLE);
    assert_eq!(swap(&mut other, "swap_timeouts"), 1);
    other.check(&format!("EXISTS {} {{m}}leaves", rest.join(" ")), ":10\r\n");
    there.check("DBSIZE", ":3\r\n");
    fault(&mut other, "read none");
    other.check("CONFIG SET swap-read-timeout 60000", "+OK\r\n");
    assert_eq!(migrate(&mut client, target.port, &words), "+OK\r\n");
    for n in 0..KEYS {
        there.check(&format!("GET {}", name(n)), &format!("$1000\r\n{}\r\n", value(n, 0)));
    }
    assert_eq!(swap(&mut other, "swap_reads_in_commands"), 0);
    client.check("DEBUG CHECK-INVARIANTS", "+OK\r\n");
}

/// Keys that leave memory at each moment, whole or by parts, are read under no lock either.
#[test]
fn a_migration_of_frozen_keys_reads_under_no_lock() {
    const KEYS: usize = 300;
    let (folder, name) = (Folder::new("migrate-frozen"), |n: usize| format!("{{m}}{n}"));
    let more = ["--swap-freeze", "yes", "--save", ""];
    let (server, target) = (folder.start(&more), Server::start(&[]));
    let (mut client, mut there) = (server.client(), target.client());
    (0..KEYS).for_each(|n| client.check(&format!("SET {} value-{n}", name(n)), "+OK\r\n"));
    swap_frozen::freeze(&mut client, KEYS as u64);
    client.check("DEBUG SWAP-CHAOS 2", "+OK\r\n");
    for n in 0..2000 {
        client.check(&format!("HSET {{m}}hash f{n} {}", "v".repeat(100)), ":1\r\n");
    }
    let names: Vec<String> = (0..KEYS).map(name).chain(["{m}hash".to_string()]).collect();
    for some in names.chunks(60) {
        let words = format!("'' 0 10000 KEYS {}", some.join(" "));
        assert_eq!(migrate(&mut client, target.port, &words), "+OK\r\n");
    }
    client.check("DBSIZE", ":0\r\n");
    (0..KEYS).for_each(|n| {
        let text = format!("value-{n}");
        there.check(&format!("GET {}", name(n)), &format!("${}\r\n{text}\r\n", text.len()));
    });
    there.check("HLEN {m}hash", ":2000\r\n");
    let held = ["swap_reads_in_commands", "swap_reads_undeclared"].map(|field| swap(&mut client, field));
    assert_eq!(held, [0, 0]);
    client.check("DEBUG CHECK-INVARIANTS", "+OK\r\n");
}

/// A key whose value cannot be read is there: no other key takes its name, and memory, log and the next start
/// agree.
#[test]
fn a_name_whose_value_cannot_be_read_is_taken() {
    let folder = Folder::new("taken");
    let more = ["--appendonly", "yes", "--appendfsync", "always", "--swap-freeze", "no"];
    let mut server = with_cold(&folder, 100, &more);
    let mut client = server.client();
    fault(&mut client, "READ IO");
    for (request, taken) in [
        (format!("RENAMENX hot {}", name(1)), ":0\r\n"),
        (format!("COPY hot {}", name(2)), ":0\r\n"),
        (format!("RENAMENX {} hot", name(3)), UNREADABLE),
        (format!("COPY {} other", name(4)), UNREADABLE),
    ] {
        client.check(&request, taken);
    }
    client.check("SELECT 1", "+OK\r\n");
    client.check(&format!("SET {} other", name(5)), "+OK\r\n");
    client.check(&format!("MOVE {} 0", name(5)), ":0\r\n");
    client.check("SELECT 0", "+OK\r\n");
    // What it replaces is not read.
    client.check(&format!("RENAME hot {}", name(6)), "+OK\r\n");
    fault(&mut client, "READ NONE");
    wait_until("the disk is back", || !client.ask(&format!("GET {}", name(0))).starts_with("-SWAPERR"));
    check(&mut client, (0..100).filter(|number| *number != 6), 0);
    let digest = client.ask("DEBUG DIGEST");
    drop(client);
    kill(&mut server);
    let server = folder.start(&more);
    let mut client = server.client();
    wait_until_loaded(&mut client);
    assert_eq!(client.ask("DEBUG DIGEST"), digest);
}
