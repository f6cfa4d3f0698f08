//! The allocator that the server was built with: it starts, its figures are there, and what is freed goes
//! back.
//!
//! `cargo xtask allocators` runs this for each of the four.

use crate::common;
use crate::common::{Server, encode, field, wait_until};

#[test]
fn values_of_all_sizes_come_and_go() {
    const KEYS: usize = 3000;
    let server = Server::with_workers(2, &["--jemalloc-bg-thread", "no"]);
    let mut client = server.client();
    let empty = server.resident_bytes();
    for key in 0..KEYS {
        // To 45 KB: the larger ones are the allocator's.
        let value = vec![b'x'; key * 15];
        client.send(encode(&[b"SET".as_slice(), format!("key:{key}").as_bytes(), &value]));
        client.expect("+OK\r\n");
    }
    let payload: u64 = (0..KEYS as u64).map(|key| key * 15).sum();
    let (info, full) = (client.ask("INFO memory"), server.resident_bytes());
    let used = field(&info, "used_memory");
    assert!(used > payload && used < payload * 5 / 4, "{used} for {payload}");
    for name in ["allocator_allocated", "allocator_active", "allocator_resident"] {
        assert!(field(&info, name) > payload, "{name} in {info}");
    }
    assert!(full > empty + payload, "{full} after {empty}");
    let text = client.ask("MEMORY MALLOC-STATS");
    assert!(text.len() > 60, "{text}");
    assert!(client.ask("MEMORY MALLOC-STATS json").contains('{'));
    client.check("MEMORY MALLOC-STATS xml", "-ERR syntax error\r\n");
    client.check("MEMORY MALLOC-STATS json now", "-ERR syntax error\r\n");
    client.check("FLUSHALL", "+OK\r\n");
    client.check("MEMORY PURGE", "+OK\r\n");
    let after = server.resident_bytes();
    assert!(after < empty + (full - empty) / 2, "{after} after {full}, {empty} when empty");
    assert!(field(&client.ask("INFO memory"), "used_memory") < used / 4);
}

#[test]
fn what_is_freed_goes_back_without_requests() {
    const KEYS: usize = 2000;
    let server = start_with("", &["--jemalloc-dirty-decay-ms", "500"]);
    let mut client = server.client();
    for key in 0..KEYS {
        client.send(encode(&[b"SET".as_slice(), format!("key:{key}").as_bytes(), &vec![b'x'; 30_000]]));
        client.expect("+OK\r\n");
    }
    let full = server.resident_bytes();
    // The server looks ten times a second at how much there is.
    std::thread::sleep(std::time::Duration::from_millis(300));
    // The first tenth stays. One of ten between the others would hold all of mimalloc's pages, of 16 such
    // blocks each.
    for key in KEYS / 10..KEYS {
        client.send(encode(&["DEL", &format!("key:{key}")]));
        client.expect(":1\r\n");
    }
    let is_libc = client.ask("INFO memory").contains("mem_allocator:libc");
    wait_until(&format!("less than half of {full} resident bytes"), || {
        if is_libc {
            // A thread's heap can shrink at its top only when that thread runs.
            client.check("PING", "+PONG\r\n");
        }
        server.resident_bytes() <= full / 2
    });
}

/// A server with this MALLOC_CONF, and what its log says.
fn start_with(conf: &str, arguments: &[&str]) -> Server {
    let port = common::free_port();
    let mut command = common::command(&["--io-threads", "2", "--bind", "127.0.0.1"]);
    command.args(["--port", &port.to_string()]).args(arguments).env("MALLOC_CONF", conf);
    let server = Server::spawn(port, command);
    server.wait_for_log("Ready to accept connections");
    server
}

fn has_jemalloc(server: &Server) -> bool {
    server.client().ask("INFO memory").contains("mem_allocator:jemalloc")
}

/// The options in force, and what CONFIG GET says of a parameter.
#[track_caller]
fn check_options(server: &Server, options: &[&str], parameters: &[(&str, &str)]) {
    let mut client = server.client();
    let info = client.ask("INFO memory");
    let line = info.lines().find(|line| line.starts_with("isotherm_allocator_options:")).expect(&info);
    for option in options {
        assert!(
            line.split([':', ',']).collect::<Vec<_>>().windows(2).any(|pair| pair.join(":") == *option),
            "{line}"
        );
        assert!(server.log().contains(option), "{option} is not in the log:\n{}", server.log());
    }
    for (name, value) in parameters {
        let reply = format!("*2\r\n${}\r\n{name}\r\n${}\r\n{value}\r\n", name.len(), value.len());
        client.check(&format!("CONFIG GET {name}"), &reply);
    }
}

/// MEMORY DOCTOR finds no issue with servers that have none: a small one, a large one, and one that has had a
/// peak, once what it needed is returned. Once it counted the program itself, and every peak for good.
#[test]
fn the_doctor_is_silent_about_healthy_servers() {
    const WELL: &str = "No issue was found.";
    let server = Server::with_workers(2, &["--enable-debug-command", "yes"]);
    let mut client = server.client();
    // 9 MB, then some 60 MB.
    client.check("DEBUG POPULATE 60000 small 100", "+OK\r\n");
    let report = client.ask("MEMORY DOCTOR");
    assert!(report.contains(WELL), "{report}");
    client.check("DEBUG POPULATE 15000 large 4000", "+OK\r\n");
    let report = client.ask("MEMORY DOCTOR");
    assert!(report.contains(WELL), "{report}");
    // A peak is noted by the cron, now and then.
    let extra = format!("SET extra {}", "x".repeat(200_000));
    wait_until("the peak is noted", || {
        client.check(&extra, "+OK\r\n");
        client.check("DEBUG SLEEP 0.15", "+OK\r\n");
        client.check("DEL extra", ":1\r\n");
        let memory = client.ask("INFO memory");
        field(&memory, "used_memory_peak") > field(&memory, "used_memory") + 100_000
    });
    for first in (0..15_000).step_by(500) {
        let names: Vec<String> = (first..first + 500).map(|at| format!("large:{at}")).collect();
        assert_eq!(client.ask_number(&format!("DEL {}", names.join(" "))), 500);
    }
    let mut report = String::new();
    wait_until("what the peak has needed is returned", || {
        report = client.ask("MEMORY DOCTOR");
        report.contains(WELL)
    });
    let memory = client.ask("INFO memory");
    let number = |name: &str| field(&memory, name);
    assert!(number("used_memory_peak") > 3 * number("used_memory"), "{memory}");
}

#[test]
fn nonsense_in_malloc_conf_is_said_once_and_no_reason_to_end() {
    let server = start_with("nonsense:1,narenas:3,tcache_max:many,key", &[]);
    // The others have no such variable.
    if has_jemalloc(&server) {
        let log = server.log();
        assert_eq!(log.matches("MALLOC_CONF: Invalid conf pair: nonsense:1").count(), 1, "{log}");
        assert_eq!((log.matches("nonsense").count(), log.matches("many").count()), (1, 1), "{log}");
        assert_eq!(log.matches("ends with key").count(), 1, "{log}");
        check_options(&server, &["narenas:3"], &[("jemalloc-narenas", "3")]);
        let report = server.client().ask("MEMORY MALLOC-STATS");
        assert!(report.contains("opt.narenas: 3"), "{report}");
    }
}

#[test]
fn parameters_of_the_start_are_in_force() {
    let parameters =
        ["--jemalloc-narenas", "2", "--jemalloc-tcache-max", "4kb", "--jemalloc-slab-sizes", "640-640:8"];
    let server = start_with("tcache_max:2048", &parameters);
    let log = server.log();
    if !has_jemalloc(&server) {
        let said = log.matches("jemalloc-narenas, jemalloc-slab-sizes, jemalloc-tcache-max").count();
        assert_eq!(said, 1, "{log}");
        return;
    }
    // A setting that is in both is taken from the variable.
    let values =
        [("jemalloc-narenas", "2"), ("jemalloc-tcache-max", "2048"), ("jemalloc-dirty-decay-ms", "10000")];
    check_options(&server, &["narenas:2", "tcache_max:2048"], &values);
    assert_eq!(log.matches("Isotherm is starting").count(), 1, "{log}");
    let report = server.client().ask("MEMORY MALLOC-STATS json");
    let class = report
        .split("\"size\"")
        .find(|class| class.trim_start_matches([':', ' ']).starts_with("640,"))
        .unwrap();
    assert!(class.contains("\"slab_size\": 32768") || class.contains("\"slab_size\":32768"), "{class}");
}

#[test]
fn a_configuration_on_standard_input_is_read_again() {
    use std::io::Write;
    let port = common::free_port();
    let folder = std::env::temp_dir().join(format!("isotherm-stdin-{port}"));
    std::fs::create_dir_all(&folder).unwrap();
    let mut child = common::command(&["-"])
        .current_dir(&folder)
        .stdin(std::process::Stdio::piped())
        .stdout(std::process::Stdio::null())
        .spawn()
        .unwrap();
    let text = format!("port {port}\nbind 127.0.0.1\nio-threads 1\njemalloc-narenas 5\nlogfile log\n");
    child.stdin.take().unwrap().write_all(text.as_bytes()).unwrap();
    wait_until("it listens", || std::net::TcpStream::connect(("127.0.0.1", port)).is_ok());
    let mut client = common::Client::over(std::net::TcpStream::connect(("127.0.0.1", port)).unwrap());
    let info = client.ask("INFO memory");
    assert!(!info.contains("mem_allocator:jemalloc") || info.contains("options:narenas:5,"), "{info}");
    // It is still the process that was started.
    assert_eq!(field(&client.ask("INFO server"), "process_id"), u64::from(child.id()));
    child.kill().unwrap();
    child.wait().unwrap();
    std::fs::remove_dir_all(&folder).unwrap();
}

#[test]
fn decay_times_change_while_it_runs() {
    let server = start_with("muzzy_decay_ms:77", &["--jemalloc-arena-per-worker", "yes"]);
    let mut client = server.client();
    if !has_jemalloc(&server) {
        let refused = client.ask("CONFIG SET jemalloc-dirty-decay-ms 500");
        assert!(
            refused.contains("this server was built with") && refused.starts_with("-ERR CONFIG SET failed"),
            "{refused}"
        );
        client.check("CONFIG SET jemalloc-bg-thread no", "+OK\r\n");
        return;
    }
    check_options(&server, &["muzzy_decay_ms:77"], &[("jemalloc-muzzy-decay-ms", "77")]);
    client.check("CONFIG SET jemalloc-dirty-decay-ms 500 jemalloc-muzzy-decay-ms -1", "+OK\r\n");
    let info = client.ask("INFO memory");
    assert!(info.contains("dirty_decay_ms:500,muzzy_decay_ms:-1"), "{info}");
    let report = client.ask("MEMORY MALLOC-STATS json");
    assert!(
        report.matches("\"dirty_decay_ms\": 500").count() > 2
            || report.matches("\"dirty_decay_ms\":500").count() > 2
    );
    let out_of_range = client.ask("CONFIG SET jemalloc-dirty-decay-ms -2");
    assert!(out_of_range.contains("argument must be between -1 and"), "{out_of_range}");
}

#[test]
fn statistics_at_the_end() {
    let mut server = start_with("", &["--allocator-stats-at-exit", "yes"]);
    server.signal("TERM");
    assert!(server.wait().success());
    let log = server.log();
    let (_, report) = log.split_once("Allocator statistics at exit:\n").expect(&log);
    assert!(report.lines().count() > 5 && report.contains("bye bye"), "{report}");
}

#[test]
fn profiles_need_a_build_for_them() {
    let server = start_with("", &[]);
    let mut client = server.client();
    let reply = client.ask("MEMORY PROFILE ON");
    client.check("MEMORY PROFILE", "-ERR wrong number of arguments for 'memory|profile' command\r\n");
    client.check("MEMORY PROFILE maybe", "-ERR syntax error\r\n");
    client.check("MEMORY PROFILE on now", "-ERR syntax error\r\n");
    if reply != "+OK\r\n" {
        assert!(
            reply.starts_with("-ERR This server was built without heap profiles: cargo build"),
            "{reply}"
        );
        assert_eq!(client.ask("MEMORY PROFILE OFF"), reply);
        assert_eq!(client.ask("MEMORY PROFILE DUMP"), reply);
        return;
    }
    client.send(encode(&[b"SET".as_slice(), b"large", &vec![b'x'; 8 << 20]]));
    client.expect("+OK\r\n");
    client.check("MEMORY PROFILE DUMP a.heap", "$6\r\na.heap\r\n");
    let profile = std::fs::read_to_string(server.folder.join("a.heap")).unwrap();
    assert!(profile.starts_with("heap_v2/") && profile.contains("MAPPED_LIBRARIES"), "{profile}");
    assert!(client.ask("MEMORY PROFILE DUMP").contains(".heap\r\n"));
    assert!(client.ask("MEMORY PROFILE DUMP /etc/a.heap").starts_with("-ERR A profile is written to a file"));
    client.check("MEMORY PROFILE off", "+OK\r\n");
}
