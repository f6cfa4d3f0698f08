//! Reports of the server on its commands over a socket: the logs of slow and large ones, how long they take,
//! the counts.

use crate::common;
use crate::common::{Client, Server, encode, wait_until};

const OK: &str = "+OK\r\n";

#[track_caller]
fn contains(client: &mut Client, request: &str, parts: &[&str]) {
    let reply = client.ask(request);
    for part in parts {
        assert!(reply.contains(part), "{request}: {part:?} is not in {reply:?}");
    }
}

#[test]
fn slow_commands_are_logged_with_their_client() {
    let server = Server::start(&["--slowlog-log-slower-than", "-1", "--slowlog-max-len", "3"]);
    let mut client = server.client();
    client.check("CLIENT SETNAME ann", OK);
    client.check("SLOWLOG LEN", ":0\r\n");
    // The threshold holds for the command that sets it: this is the first entry.
    client.check("CONFIG SET slowlog-log-slower-than 0", OK);
    client.check("SET k v", OK);
    client.check("MULTI", OK);
    client.check("INCR n", "+QUEUED\r\n");
    client.check("EXEC", "*1\r\n:1\r\n");
    client.check("CONFIG SET slowlog-log-slower-than -1", OK);
    client.check("SLOWLOG LEN", ":3\r\n");
    // EXEC has no entry, the command inside has one.
    let words = [
        "*2\r\n$4\r\nINCR\r\n$1\r\nn\r\n",
        "$5\r\nMULTI\r\n",
        "*3\r\n$3\r\nSET\r\n",
        "$3\r\nann\r\n",
        "127.0.0.1:",
    ];
    contains(&mut client, "SLOWLOG GET", &words);
    contains(&mut client, "SLOWLOG GET 1", &["*1\r\n*6\r\n:3\r\n"]);
    client.check("SLOWLOG GET -2", "-ERR count should be greater than or equal to -1\r\n");
    client.check("SLOWLOG GET x", "-ERR count should be greater than or equal to -1\r\n");
    client.check(
        "slowlog get 1 2",
        "-ERR unknown subcommand or wrong number of arguments for 'get'. Try SLOWLOG HELP.\r\n",
    );
    client.check("CONFIG SET slowlog-max-len 1 slowlog-log-slower-than 1000000", OK);
    client.check("COMMANDLOG LEN slow", ":1\r\n");
    // Of a long name a part is kept.
    client.check(&format!("CLIENT SETNAME {}", "n".repeat(200)), OK);
    client.check("CONFIG SET slowlog-log-slower-than 0", OK);
    contains(&mut client, "SLOWLOG GET 1", &[&format!("$128\r\n{}\r\n", "n".repeat(128))]);
    client.check("CONFIG SET slowlog-log-slower-than 1000000", OK);
    client.check("SLOWLOG RESET", OK);
    client.check("SLOWLOG GET", "*0\r\n");
}

#[test]
fn large_requests_and_replies_are_logged() {
    let server = Server::start(&[
        "--commandlog-request-larger-than",
        "1024",
        "--commandlog-reply-larger-than",
        "1000",
    ]);
    let mut client = server.client();
    let value = "x".repeat(1000);
    client.check(&format!("SET k {value}"), OK);
    client.check("COMMANDLOG LEN large-request", ":1\r\n");
    client.check("COMMANDLOG LEN large-reply", ":0\r\n");
    client.ask("GET k");
    client.check("COMMANDLOG LEN large-reply", ":1\r\n");
    // *3 $3 SET $1 k $1000 with its line ends, and the value.
    let wire = encode(&["SET", "k", &value]).len();
    contains(
        &mut client,
        "COMMANDLOG GET -1 large-request",
        &[&format!(":{wire}\r\n"), "... (872 more bytes)"],
    );
    contains(&mut client, "COMMANDLOG GET -1 large-reply", &[":1009\r\n", "$3\r\nGET\r\n"]);
    let wrong = "-ERR type should be one of the following: slow, large-request, large-reply\r\n";
    client.check("COMMANDLOG LEN fast", wrong);
    client.check("COMMANDLOG RESET large-reply", OK);
    client.check("COMMANDLOG GET 5 large-reply", "*0\r\n");
}

#[test]
fn a_command_that_waited_is_logged_when_it_is_answered() {
    let server = Server::with_workers(2, &["--slowlog-log-slower-than", "0"]);
    let (mut client, mut waiter) = (server.client(), server.client());
    waiter.send(encode(&["BLPOP", "list", "0"]));
    wait_until("it waits", || client.blocked_count() == 1);
    assert!(!client.ask("SLOWLOG GET -1").contains("BLPOP"));
    client.check("RPUSH list a", ":1\r\n");
    waiter.expect("*2\r\n$4\r\nlist\r\n$1\r\na\r\n");
    contains(&mut client, "SLOWLOG GET -1", &["*3\r\n$5\r\nBLPOP\r\n$4\r\nlist\r\n$1\r\n0\r\n"]);
    contains(&mut client, "INFO latencystats", &["latency_percentiles_usec_blpop:p50="]);
}

#[test]
fn latencies_of_commands() {
    let server = Server::start(&[]);
    let mut client = server.client();
    client.check("CONFIG RESETSTAT", OK);
    client.check("SET a b", OK);
    client.check("SET a b", OK);
    client.ask("CLIENT ID");
    contains(
        &mut client,
        "LATENCY HISTOGRAM set",
        &["*2\r\n$3\r\nset\r\n*4\r\n$5\r\ncalls\r\n:2\r\n$14\r\nhistogram_usec\r\n"],
    );
    contains(&mut client, "LATENCY HISTOGRAM client", &["$9\r\nclient|id\r\n"]);
    contains(&mut client, "LATENCY HISTOGRAM CLIENT|ID nothing", &["*2\r\n$9\r\nclient|id\r\n"]);
    client.check("LATENCY HISTOGRAM nothing", "*0\r\n");
    client.check(
        "CONFIG SET latency-tracking-info-percentiles",
        "-ERR wrong number of arguments for 'config|set' command\r\n",
    );
    client.send(encode(&["CONFIG", "SET", "latency-tracking-info-percentiles", "0.0 50 100"]));
    client.expect(OK);
    contains(
        &mut client,
        "INFO latencystats",
        &["latency_percentiles_usec_set:p0=", ",p50=", ",p100=", "_client|id:"],
    );
    client.check("CONFIG SET latency-tracking no", OK);
    client.check("CONFIG RESETSTAT", OK);
    client.check("SET a b", OK);
    assert!(!client.ask("INFO latencystats").contains("usec_set"));
}

#[test]
fn slow_events() {
    let server = Server::start(&["--enable-debug-command", "yes"]);
    let mut client = server.client();
    contains(&mut client, "LATENCY DOCTOR", &["latency monitoring is off"]);
    // No other command takes this long, also on a busy machine.
    client.check("CONFIG SET latency-monitor-threshold 250", OK);
    client.check("DEBUG SLEEP 0.3", OK);
    // The lock that DEBUG held is an event as well.
    contains(&mut client, "LATENCY LATEST", &["\r\n*6\r\n$7\r\ncommand\r\n:"]);
    contains(&mut client, "LATENCY HISTORY command", &["*1\r\n*2\r\n:"]);
    contains(&mut client, "LATENCY GRAPH command", &["command - high ", " ms)\n-----"]);
    contains(&mut client, "LATENCY DOCTOR", &["1. command: 1 latency spikes (average "]);
    client.check("LATENCY GRAPH x", "-ERR No samples available for event 'x'\r\n");
    client.check("LATENCY HISTORY x", "*0\r\n");
    client.check("LATENCY RESET x command", ":1\r\n");
    client.ask("LATENCY RESET");
    client.check("LATENCY LATEST", "*0\r\n");
}

#[test]
fn a_primary_and_a_picture() {
    let server = Server::start(&[]);
    let mut client = server.client();
    client.check("ROLE", "*3\r\n$6\r\nmaster\r\n:0\r\n*0\r\n");
    contains(&mut client, "LOLWUT", &["Isotherm ver. ", " Valkey ver. 9.1.2\n"]);
    client.check("CONFIG SET extended-redis-compatibility yes", OK);
    contains(&mut client, "LOLWUT VERSION 5", &["Redis ver. 7.2.4\n"]);
    client.check("LOLWUT VERSION x", "-ERR value is not an integer or out of range\r\n");
}

/// INFO has each field once, and the fields that dashboards for Redis and Valkey read.
#[test]
fn fields_of_info() {
    let server = Server::with_workers(2, &[]);
    let mut client = server.client();
    client.check("AUTH default x", OK);
    client.check("CONFIG SET requirepass y", OK);
    client.check("AUTH wrong", "-WRONGPASS invalid username-password pair or user is disabled.\r\n");
    let text = client.ask("INFO everything");
    let names: Vec<&str> = text.lines().filter_map(|line| Some(line.split_once(':')?.0)).collect();
    let mut once = names.clone();
    once.sort_unstable();
    once.dedup();
    assert_eq!(once.len(), names.len(), "a field is there twice: {text}");
    for name in [
        "uptime_in_seconds",
        "lru_clock",
        "used_memory_startup",
        "allocator_active",
        "allocator_rss_ratio",
        "rss_overhead_bytes",
        "rdb_last_save_time",
        "aof_last_write_status",
        "expire_cycle_cpu_milliseconds",
        "eventloop_duration_cmd_sum",
        "used_active_time_io_thread_2",
        "engines_count",
    ] {
        assert!(names.contains(&name), "{name} is not in {text}");
    }
    assert!(text.contains("\r\nacl_access_denied_auth:1\r\n"), "{text}");
    let value = |name: &str| {
        let line = text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':'));
        line.and_then(|value| value.parse::<f64>().ok())
            .unwrap_or_else(|| panic!("{name} is no number in {text}"))
    };
    assert!(value("used_memory_startup") > 0.0 && value("used_memory_startup") <= value("used_memory_peak"));
    assert!(value("allocator_allocated") <= value("allocator_active"));
    assert!(value("eventloop_cycles") > 0.0 && value("eventloop_duration_sum") > 0.0);
    let report = client.ask("MEMORY MALLOC-STATS");
    assert!(report.len() > 100, "{report}");
    assert!(client.ask("MEMORY STATS").contains("allocator-fragmentation.ratio"));
}

#[test]
fn metrics_over_http() {
    use std::io::{Read, Write};
    let port = common::free_port();
    let server = Server::with_metrics(2, port, &[]);
    let mut client = server.client();
    client.check("SET k v EX 100", OK);
    client.check("GET k", "$1\r\nv\r\n");
    client.check("DEL a b", ":0\r\n");
    let get_of = |path: &str, host: &str| {
        let mut stream = std::net::TcpStream::connect(("127.0.0.1", port)).unwrap();
        stream.write_all(format!("GET {path} HTTP/1.1\r\nHost: {host}\r\n\r\n").as_bytes()).unwrap();
        let mut text = String::new();
        stream.read_to_string(&mut text).unwrap();
        text
    };
    let get = |path: &str| get_of(path, &format!("localhost:{port}"));
    assert!(get_of("/metrics", "evil.example").starts_with("HTTP/1.1 403 "));
    assert!(get_of("/healthz", "evil.example").ends_with("\r\n\r\nok\n"));
    assert!(get("/healthz").ends_with("\r\n\r\nok\n"));
    assert!(get("/").starts_with("HTTP/1.1 404 "));
    let page = get("/metrics");
    assert!(!page.contains("isotherm_swap"), "without swap-mode there is nothing to say");
    for name in ["isotherm_compaction_cpu_percent 25\n", "isotherm_compaction_cpu_milliseconds_total "] {
        assert!(page.contains(name), "{name} is not in {page}");
    }
    if server.client().ask("INFO memory").contains("mem_allocator:jemalloc") {
        for part in ["allocated_bytes", "slabs", "fills_total", "lock_waits_total"] {
            assert!(
                page.contains(&format!("isotherm_allocator_class_{part}{{size=\"64\"}} ")),
                "{part} is not in {page}"
            );
        }
    }
    for line in [
        "\nredis_up 1\n",
        "\n# HELP redis_memory_used_bytes `used_memory` of INFO.\n# TYPE redis_memory_used_bytes gauge\n",
        "\n# TYPE redis_commands_processed_total counter\n",
        "\nredis_commands_total{cmd=\"get\"} 1\n",
        "\nredis_db_keys{db=\"db0\"} 1\n",
        "\nredis_db_keys_expiring{db=\"db0\"} 1\n",
        "\nredis_keyspace_hits_total 1\n",
        "\nredis_rdb_last_bgsave_status 1\n",
        "\nredis_instance_info{role=\"master\",",
        "\nredis_commands_latencies_usec_bucket{cmd=\"get\",le=\"+Inf\"} 1\n",
        "\nredis_commands_latencies_usec_count{cmd=\"get\"} 1\n",
        "\nredis_commandlog_large_reply_length 0\n",
        "\nredis_config_io_threads 2\n",
        "\nredis_config_client_output_buffer_limit_bytes{class=\"pubsub\",limit=\"hard\"} 33554432\n",
        "\nredis_active_time_io_thread_seconds_total{thread=\"1\"} ",
        "\nredis_latest_fork_seconds 0\n",
        "\nredis_slowlog_last_id 0\n",
        ",valkey_version=\"9.1.2\",",
        "\nisotherm_arena_live_bytes ",
        "\n# TYPE isotherm_lock_held_seconds_total counter\n",
        "\nisotherm_lock_holds_total{cause=\"del\",gate=\"no\"} 1\n",
        "\nisotherm_lock_longest_hold_seconds{cause=\"del\",gate=\"no\"} ",
    ] {
        assert!(page.contains(line), "{line:?} is not in {page}");
    }
    assert!(!page.contains("redis_aof_current_size_bytes "), "{page}");
    client.check("CONFIG SET appendonly yes", OK);
    common::wait_until("the first base is listed", || {
        client.info("persistence", "aof_rewrite_in_progress") == 0
    });
    client.check("CONFIG SET appendfsync always", OK);
    client.check("SET k v", OK);
    // The worker counts a held reply down after it has sent it.
    let mut on_disk = String::new();
    common::wait_until("the reply is counted as sent", || {
        on_disk = get("/metrics");
        on_disk.contains("\nisotherm_aof_held_replies 0\n")
    });
    for line in [
        "\nredis_aof_current_size_bytes ",
        "\nredis_aof_pending_bio_fsync 0\n",
        "\n# TYPE isotherm_aof_commits_total counter\nisotherm_aof_commits_total ",
        "\nisotherm_log_offset_total ",
        "\nisotherm_current_save_keys_total 0\n",
    ] {
        assert!(on_disk.contains(line), "{line:?} is not in {on_disk}");
    }
    let counter = |name: &str| {
        let line = on_disk.lines().find(|line| line.starts_with(&format!("isotherm_{name}_total "))).unwrap();
        line.split(' ').nth(1).unwrap().parse::<u64>().unwrap()
    };
    assert!(counter("log_offset") > 0 && counter("log_offset") == counter("log_durable_offset"));
    // Each metric is introduced once, and its values stand together.
    let mut seen: Vec<&str> = Vec::new();
    for line in page.lines().skip_while(|line| !line.starts_with('#')).filter(|line| !line.starts_with('#')) {
        let mut name = line.split([' ', '{']).next().unwrap();
        // The three parts of a histogram are one metric.
        for part in ["_bucket", "_sum", "_count"] {
            name = name.strip_suffix(part).filter(|name| name.ends_with("_usec")).unwrap_or(name);
        }
        assert!(seen.last() == Some(&name) || !seen.contains(&name), "{name} is scattered");
        seen.push(name);
    }
    client.check(
        "CONFIG SET metrics-port 1",
        "-ERR CONFIG SET failed (possibly related to argument 'metrics-port') - the port for metrics can only be set at \
         start\r\n",
    );
}

/// Clients that send a byte now and then stop no other client, and are closed. Once one thread served the
/// port, and its patience began anew with every byte: such a client kept the port for any time.
#[test]
fn slow_clients_of_the_metrics_port() {
    use std::io::{Read, Write};
    use std::net::TcpStream;
    /// Those that serve the port.
    const THREADS: usize = 4;
    let port = common::free_port();
    let _server = Server::with_metrics(1, port, &[]);
    let connect = || {
        let stream = TcpStream::connect(("127.0.0.1", port)).unwrap();
        stream.set_read_timeout(Some(common::PATIENCE)).unwrap();
        stream
    };
    let is_healthy = || {
        let mut stream = connect();
        stream.write_all(b"GET /healthz HTTP/1.1\r\n\r\n").unwrap();
        let mut text = String::new();
        stream.read_to_string(&mut text).expect("it is answered");
        text.ends_with("\r\n\r\nok\n")
    };
    assert!(is_healthy());
    for count in [THREADS - 1, THREADS + 2] {
        let dribble = |mut stream: TcpStream| {
            // The second write to a socket that the server has closed fails.
            wait_until("it is closed", || stream.write_all(b"x").is_err());
        };
        let slow: Vec<_> = (0..count)
            .map(|_| {
                let stream = connect();
                std::thread::spawn(move || dribble(stream))
            })
            .collect();
        assert!(is_healthy(), "beside {count} slow clients");
        if count < THREADS {
            assert!(
                slow.iter().all(|slow| !slow.is_finished()),
                "answered behind the slow clients, not beside them"
            );
        }
        slow.into_iter().for_each(|slow| slow.join().unwrap());
    }
}

/// A probe of the health is answered while there are connections that send nothing, however many: none of
/// them is closed for it. Once each had one of four threads for two seconds.
#[test]
fn the_health_is_known_beside_idle_connections() {
    use std::io::Read;
    use std::net::TcpStream;
    let port = common::free_port();
    let _server = Server::with_metrics(1, port, &[]);
    // All are there at once, unless the machine stands still for as long as a request may take.
    wait_until("it is answered beside twelve", || {
        let idle: Vec<TcpStream> =
            (0..12).map(|_| TcpStream::connect(("127.0.0.1", port)).unwrap()).collect();
        let is_well = health(port).starts_with("HTTP/1.1 200 ");
        let is_open = |mut stream: &TcpStream| {
            stream.set_nonblocking(true).unwrap();
            stream.read(&mut [0]).is_err_and(|error| error.kind() == std::io::ErrorKind::WouldBlock)
        };
        is_well && idle.iter().all(is_open)
    });
    // Of very many the oldest give way.
    let idle: Vec<TcpStream> = (0..300).map(|_| TcpStream::connect(("127.0.0.1", port)).unwrap()).collect();
    assert!(health(port).ends_with("\r\n\r\nok\n"));
    drop(idle);
}

fn health(port: u16) -> String {
    let mut stream = Client::over(std::net::TcpStream::connect(("127.0.0.1", port)).unwrap());
    stream.send("GET /healthz HTTP/1.1\r\n\r\n");
    String::from_utf8(stream.read_to_end()).unwrap()
}

/// A server with a worker that serves no client is not healthy, and is again when it does.
#[test]
fn the_health_is_that_of_the_workers() {
    let port = common::free_port();
    let server = Server::with_metrics(2, port, &["--enable-debug-command", "yes"]);
    let (mut one, mut other) = (server.client(), server.client());
    one.check("PING", "+PONG\r\n");
    other.check("PING", "+PONG\r\n");
    assert!(health(port).ends_with("\r\n\r\nok\n"));
    let mut sent = 0;
    // Longer than the workers are waited for; where this machine was slower, once more.
    wait_until("it is not healthy", || {
        one.send(encode(&["DEBUG", "SLEEP", "1.5"]));
        sent += 1;
        let answer = health(port);
        assert!(
            answer.starts_with("HTTP/1.1 200 ") || answer.contains("no answer for 800 ms from workers "),
            "{answer}"
        );
        answer.starts_with("HTTP/1.1 503 ")
    });
    (0..sent).for_each(|_| one.expect(OK));
    wait_until("it is healthy again", || health(port).starts_with("HTTP/1.1 200 "));
}

/// A value that a transaction has asked the system for is of its moment: later commands ask anew.
#[test]
fn a_transaction_that_reports_the_system_leaves_nothing_behind() {
    const BYTES: usize = 40 << 20;
    let server = Server::start(&[]);
    let mut client = server.client();
    client.check("MULTI", "+OK\r\n");
    client.check("INFO memory", "+QUEUED\r\n");
    client.send(encode(&["EXEC"]));
    client.read_reply();
    let before = client.info("memory", "used_memory_rss");
    client.check(&format!("SET k {}", "v".repeat(BYTES)), "+OK\r\n");
    let after = client.info("memory", "used_memory_rss");
    assert!(after >= before + BYTES as u64 / 2, "{before} before 40 MB more, {after} after");
}

/// A batch that is written in parts has run each of its commands once.
#[test]
fn commands_of_a_cycle_are_counted_once() {
    const COMMANDS: usize = 32;
    let server = Server::start(&[]);
    let mut client = server.client();
    client.check(&format!("SET k {}", "v".repeat(70_000)), "+OK\r\n");
    client.send(encode(&["GET", "k"]).repeat(COMMANDS));
    (0..COMMANDS).for_each(|_| assert!(client.read_reply().starts_with(b"$70000\r\n")));
    let most = client.info("debug", "eventloop_cmd_per_cycle_max");
    assert!((1..=COMMANDS as u64).contains(&most), "{most}");
}
