//! The wall clock is set back and forth by a day: keys expire by it, and nothing else is sooner or later.

use crate::common::{Client, Server, encode, field, text_field, wait_until};
use crate::failover::{follow, suspend};
use crate::swap::{Folder, name, swap};
use crate::swap_faults::with_cold;

const DAY_MS: i64 = 86_400_000;

fn step_clock(client: &mut Client, ahead_ms: i64) {
    client.check(&format!("DEBUG STEP-CLOCK {ahead_ms}"), "+OK\r\n");
}

/// The server's clock is ahead by each of these in turn.
const STEPS: [i64; 4] = [-DAY_MS, 0, DAY_MS, 0];

fn start() -> Server {
    Server::with_workers(2, &["--enable-debug-command", "yes"])
}

#[test]
fn copies_of_values_on_disk_go_all_the_same() {
    const KEYS: usize = 4000;
    let folder = Folder::new("clock-lent");
    let server = with_cold(&folder, KEYS * 5, &["--swap-cache", "1mb"]);
    let mut client = server.client();
    for (turn, ahead_ms) in [0].into_iter().chain(STEPS).enumerate() {
        step_clock(&mut client, ahead_ms);
        let keys = turn * KEYS..(turn + 1) * KEYS;
        client.send(keys.clone().flat_map(|n| encode(&["STRLEN", &name(n)])).collect::<Vec<u8>>());
        keys.clone().for_each(|_| client.expect(":1000\r\n"));
        for n in keys {
            client.send(encode(&["GETRANGE", &name(n), "0", "0"]));
            assert!(client.read_reply().starts_with(b"$1\r\n"));
        }
        wait_until("they go", || swap(&mut client, "swap_lent_bytes") < 3 << 20);
    }
}

#[test]
fn keys_are_idle_for_as_long_as_before() {
    let server = start();
    let mut client = server.client();
    client.check("CONFIG SET maxmemory-policy allkeys-lru", "+OK\r\n");
    for ahead_ms in STEPS {
        client.check("SET used 1", "+OK\r\n");
        step_clock(&mut client, ahead_ms);
        let idle = client.ask("OBJECT IDLETIME used");
        let idle: u64 = idle.trim_start_matches(':').trim_end().parse().expect("a number");
        assert!(idle < 1000, "{idle} seconds");
    }
    // Expiry goes by the wall clock.
    client.check("SET ends 1 EX 3600", "+OK\r\n");
    step_clock(&mut client, DAY_MS);
    wait_until("it has expired", || client.ask("GET ends") == "$-1\r\n");
}

#[test]
fn clients_wait_as_long_as_they_asked_for() {
    let server = start();
    let (mut client, mut waiting) = (server.client(), server.client());
    let is_blocked = |client: &mut Client| client.ask("INFO clients").contains("blocked_clients:1\r\n");
    for ahead_ms in STEPS {
        // Not a day longer,
        waiting.send(encode(&["BLPOP", "list", "0.3"]));
        step_clock(&mut client, ahead_ms);
        waiting.expect("*-1\r\n");
        // nor a day less.
        waiting.send(encode(&["BLPOP", "list", "3000"]));
        wait_until("it is blocked", || is_blocked(&mut client));
        step_clock(&mut client, ahead_ms + DAY_MS);
        client.check("PING", "+PONG\r\n");
        client.check("RPUSH list 1", ":1\r\n");
        waiting.expect("*2\r\n$4\r\nlist\r\n$1\r\n1\r\n");
        client.check("CLIENT PAUSE 300 WRITE", "+OK\r\n");
        step_clock(&mut client, ahead_ms);
        client.check("SET key 1", "+OK\r\n");
    }
}

#[test]
fn nothing_ages_by_a_step() {
    let (server, follower) = (start(), start());
    let (mut client, mut other) = (server.client(), follower.client());
    follow(&follower, &server);
    for ahead_ms in STEPS {
        step_clock(&mut client, ahead_ms);
        step_clock(&mut other, ahead_ms);
        for line in client.ask("CLIENT LIST").lines().filter(|line| line.starts_with("id=")) {
            let of = |name: &str| {
                let word = line.split(' ').find_map(|word| word.strip_prefix(name)).expect("it is there");
                word.parse::<u64>().expect("a number")
            };
            assert!(of("age=") < 1000 && of("idle=") < 1000, "{line}");
        }
        assert!(client.ask("CLIENT LIST IDLE 1000").starts_with("$0\r\n"));
        assert!(field(&client.ask("INFO server"), "uptime_in_seconds") < 1000);
        let replication = client.ask("INFO replication");
        let lag = text_field(&replication, "slave0").split_once("lag=").expect("it has one").1.to_string();
        let lag: u64 = lag.split(',').next().and_then(|lag| lag.parse().ok()).expect("a number");
        assert!(lag < 1000, "{replication}");
        assert!(field(&other.ask("INFO replication"), "master_last_io_seconds_ago") < 1000);
    }
    other.check("REPLICAOF NO ONE", "+OK\r\n");
}

#[test]
fn a_failover_is_given_up_after_its_time() {
    let (server, follower) = (start(), start());
    let mut client = server.client();
    follow(&follower, &server);
    suspend(&follower);
    client.check("SET key 1", "+OK\r\n");
    let to = format!("FAILOVER TO 127.0.0.1 {} TIMEOUT 300", follower.port);
    client.check(&to, "+OK\r\n");
    step_clock(&mut client, -DAY_MS);
    wait_until("it is given up", || {
        text_field(&client.ask("INFO replication"), "master_failover_state") == "no-failover"
    });
}
