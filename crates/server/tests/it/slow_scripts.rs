//! Scripts that take long: the clients that wait for them, those that do not, and the moments at which
//! changes become visible.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use crate::common::{Client, OnDrop, PATIENCE, Server, encode, field, wait_until};
use crate::primary::{self, online};

const OK: &str = "+OK\r\n";
const KILLED: &str = "Script killed by user with SCRIPT KILL.";

/// Runs until it is killed.
const ENDLESS: &str = "while true do end";

fn start_script(client: &mut Client, text: &str, keys: &[&str]) {
    let count = keys.len().to_string();
    let words = [&["EVAL", text, &count], keys].concat();
    client.send(encode(&words));
}

fn reply(client: &mut Client) -> String {
    String::from_utf8_lossy(&client.read_reply()).into_owned()
}

fn eval(client: &mut Client, text: &str, keys: &[&str]) -> String {
    start_script(client, text, keys);
    reply(client)
}

#[track_caller]
fn wait_for_long(other: &mut Client, count: u64) {
    wait_until("scripts that take long", || field(&other.ask("INFO stats"), "long_scripts") == count);
}

fn on_both(test: impl Fn(&Server)) {
    for workers in [1, 4] {
        test(&Server::with_workers(workers, &["--enable-debug-command", "yes"]));
    }
}

/// Whether nothing comes for a while.
fn waits(client: &mut Client) -> bool {
    client.stream.set_read_timeout(Some(Duration::from_millis(50))).unwrap();
    let nothing = client.stream.peek(&mut [0]).is_err();
    client.stream.set_read_timeout(Some(crate::common::PATIENCE)).unwrap();
    nothing
}

#[test]
fn only_who_needs_its_keys_waits() {
    on_both(|server| {
        let (mut client, mut other) = (server.client(), server.client());
        other.check("MSET mine 1 theirs 2", OK);
        start_script(&mut client, &format!("redis.call('INCR', KEYS[1]) {ENDLESS}"), &["mine"]);
        wait_for_long(&mut other, 1);
        let mut same = server.client();
        same.send(encode(&["GET", "mine"]));
        // Its connection waits, with all that it sends after that.
        same.send(encode(&["GET", "theirs"]));
        for (command, reply) in [
            ("GET theirs", "$1\r\n2\r\n"),
            ("PING", "+PONG\r\n"),
            ("SET theirs 3", OK),
            ("EXISTS other", ":0\r\n"),
        ] {
            other.check(command, reply);
        }
        assert!(waits(&mut same));
        assert!(field(&other.ask("INFO stats"), "total_script_waits") > 0);
        other.check("SCRIPT KILL", "-UNKILLABLE Sorry the script already executed write commands against the dataset. You can either wait the script termination or kill the server in a hard way using the SHUTDOWN NOSAVE command.\r\n");
        // Neither does its client's end end it.
        drop(client);
        other.check("GET theirs", "$1\r\n3\r\n");
        wait_for_long(&mut other, 1);
    });
}

#[test]
fn a_script_is_killed_unless_it_has_written() {
    on_both(|server| {
        let (mut client, mut killer, mut same) = (server.client(), server.client(), server.client());
        killer.check("SCRIPT KILL", "-NOTBUSY No scripts in execution right now.\r\n");
        for text in [
            "while true do pcall(function() while true do end end) end",
            "while true do redis.call('GET', KEYS[1]) end",
            "table.sort({3, 2, 1, 5, 4}, function(a, b) while true do end end)",
            "coroutine.wrap(function() while true do redis.pcall('PING') end end)()",
        ] {
            start_script(&mut client, text, &["k"]);
            wait_for_long(&mut killer, 1);
            same.send(encode(&["SET", "k", "1"]));
            assert!(waits(&mut same), "{text}");
            killer.check("SCRIPT KILL", OK);
            let error = reply(&mut client);
            assert!(error.contains(KILLED), "{error}");
            assert_eq!(reply(&mut same), OK);
            wait_for_long(&mut killer, 0);
            assert_eq!(eval(&mut client, "return redis.call('GET', KEYS[1])", &["k"]), "$1\r\n1\r\n");
        }
    });
}

/// One that needs all keys in its middle waits for those that run, and not for those that would begin
/// meanwhile.
#[test]
fn who_needs_all_keys_in_its_middle_is_not_passed_by_for_ever() {
    let server = Server::with_workers(4, &[]);
    let is_over = AtomicBool::new(false);
    // Some 50 ms each, so that at any moment one of them has leases.
    let others = "for i = 1, 5000000 do end return redis.call('GET', KEYS[1])";
    std::thread::scope(|scope| {
        let _stop = OnDrop(|| is_over.store(true, Ordering::Release));
        for number in 0..8 {
            let (mut client, key, is_over) = (server.client(), format!("k{number}"), &is_over);
            scope.spawn(move || {
                while !is_over.load(Ordering::Acquire) {
                    assert_eq!(eval(&mut client, others, &[&key]), "$-1\r\n");
                }
            });
        }
        std::thread::sleep(Duration::from_millis(100));
        let mut client = server.client();
        let all = "redis.call('SET', KEYS[1], 1) for i = 1, 1000000 do end return #redis.call('KEYS', '*')";
        for _ in 0..3 {
            let begun = Instant::now();
            assert_eq!(eval(&mut client, all, &["mine"]), ":1\r\n");
            assert!(begun.elapsed() < PATIENCE, "{:?}", begun.elapsed());
        }
    });
}

#[test]
fn what_it_does_is_seen_at_its_end_and_all_at_once() {
    on_both(|server| {
        let mut client = server.client();
        client.check("MSET a 0 b 0", OK);
        let is_over = AtomicBool::new(false);
        std::thread::scope(|scope| {
            let _stop = OnDrop(|| is_over.store(true, Ordering::Release));
            for read in [&["MGET", "a", "b"][..], &["EVAL", "return redis.call('MGET', 'a', 'b')", "0"]] {
                let (mut reader, is_over) = (server.client(), &is_over);
                scope.spawn(move || {
                    let mut reads = 0;
                    while !is_over.load(Ordering::Acquire) || reads == 0 {
                        reader.send(encode(read));
                        let text = reply(&mut reader);
                        let parts: Vec<&str> = text.split("\r\n").collect();
                        assert_eq!(parts[2], parts[4], "{text}");
                        reads += 1;
                    }
                });
            }
            let spin = "for i = 1, 500000 do end";
            for _ in 0..20 {
                let text = format!("redis.call('INCR', 'a') {spin} redis.call('INCR', 'b') {spin} return 1");
                assert_eq!(eval(&mut client, &text, &[]), ":1\r\n");
            }
        });
        client.check("GET b", "$2\r\n20\r\n");
    });
}

/// Money goes from account to account; scripts meet accounts that they do not name, and some take long.
#[test]
fn no_script_sees_another_in_its_middle() {
    const ACCOUNTS: usize = 8;
    let server = Server::with_workers(4, &[]);
    let mut client = server.client();
    (0..ACCOUNTS).for_each(|at| client.check(&format!("SET account:{at} 100"), OK));
    let transfer = |seed: usize, at: usize| {
        let (from, to) = ((seed * 7 + at * 3) % ACCOUNTS, (seed + at * 5 + 1) % ACCOUNTS);
        let spins = if at.is_multiple_of(16) { 300_000 } else { 0 };
        format!(
            "local from, to = tonumber(redis.call('GET', 'account:{from}')), tonumber(redis.call('GET', 'account:' .. {to})) \
             for i = 1, {spins} do end \
             if {from} ~= {to} then redis.call('SET', 'account:{from}', from - 1) redis.call('SET', KEYS[1], to + 1) end \
             local sum = 0 for i = 0, {ACCOUNTS} - 1 do sum = sum + redis.call('GET', 'account:' .. i) end return sum"
        )
    };
    std::thread::scope(|scope| {
        for seed in 0..6 {
            let mut client = server.client();
            scope.spawn(move || {
                for at in 0..150 {
                    let to = format!("account:{}", (seed + at * 5 + 1) % ACCOUNTS);
                    let sum = eval(&mut client, &transfer(seed, at), &[&to]);
                    assert_eq!(sum, format!(":{}\r\n", ACCOUNTS * 100));
                }
            });
        }
        let mut client = server.client();
        scope.spawn(move || {
            let names: Vec<String> = (0..ACCOUNTS).map(|at| format!("account:{at}")).collect();
            let words: Vec<&str> = ["MGET"].into_iter().chain(names.iter().map(String::as_str)).collect();
            for _ in 0..300 {
                client.send(encode(&words));
                let text = reply(&mut client);
                let values =
                    text.split("\r\n").skip(2).step_by(2).filter_map(|value| value.parse::<usize>().ok());
                assert_eq!(values.sum::<usize>(), ACCOUNTS * 100, "{text}");
            }
        });
    });
    wait_for_long(&mut client, 0);
}

#[test]
fn clients_that_wait_too_long_get_an_error() {
    on_both(|server| {
        let (mut client, mut other, mut early) = (server.client(), server.client(), server.client());
        other.check("CONFIG SET busy-reply-threshold 100", OK);
        start_script(&mut client, ENDLESS, &["k"]);
        wait_for_long(&mut other, 1);
        early.send(encode(&["GET", "k"]));
        const BUSY: &str =
            "-BUSY Isotherm is busy running a script. You can only call SCRIPT KILL or SHUTDOWN NOSAVE.\r\n";
        assert_eq!(reply(&mut early), BUSY, "it waited for the threshold");
        for command in
            ["GET k", "KEYS *", "FLUSHALL", "CONFIG SET maxmemory 0", "BGSAVE", "EVAL 'return 1' 0"]
        {
            let words: Vec<&str> = command.split(' ').map(|word| word.trim_matches('\'')).collect();
            let words = if command.starts_with("EVAL") { vec!["EVAL", "return 1", "0"] } else { words };
            other.send(encode(&words));
            assert_eq!(reply(&mut other), BUSY, "{command}");
        }
        other.check("MULTI", OK);
        other.check("GET k", "+QUEUED\r\n");
        let aborted = "-EXECABORT Transaction discarded because of: ";
        assert!(other.ask("EXEC").starts_with(aborted));
        other.check("GET other", "$-1\r\n");
        other.check("SCRIPT KILL", OK);
        assert!(reply(&mut client).contains(KILLED));
        other.check("GET k", "$-1\r\n");
        // As Valkey does.
        other.check("CONFIG SET busy-reply-scope all", OK);
        start_script(&mut client, ENDLESS, &["k"]);
        wait_until("it is late", || other.ask("GET other") == BUSY);
        other.check("PING", BUSY);
        other.check("SCRIPT KILL", OK);
        assert!(reply(&mut client).contains(KILLED));
        wait_until("it is over", || other.ask("PING") == "+PONG\r\n");
        assert!(server.log().contains("Slow script detected: still in execution after"));
    });
}

#[test]
fn what_concerns_all_keys_waits_for_its_end() {
    on_both(|server| {
        let (mut client, mut other) = (server.client(), server.client());
        other.check("SET k 0", OK);
        let spin = "for i = 1, 3000000 do end";
        for command in
            ["KEYS *", "DBSIZE", "FLUSHALL", "CLIENT PAUSE 1", "SAVE", "SWAPDB 0 1", "DEBUG RELOAD"]
        {
            start_script(
                &mut client,
                &format!("redis.call('SET', 'k', 1) {spin} redis.call('SET', 'k', 2) return 2"),
                &[],
            );
            wait_for_long(&mut other, 1);
            other.send(encode(&command.split(' ').collect::<Vec<_>>()));
            let answer = reply(&mut other);
            assert!(!answer.starts_with('-'), "{command}: {answer}");
            assert_eq!(reply(&mut client), ":2\r\n", "{command}");
        }
        // And the other way round: a script that asks for all keys has them to its end.
        let text = format!(
            "{spin} redis.call('FLUSHALL') {spin} redis.call('SET', 'new', 1) return #redis.call('KEYS', '*')"
        );
        start_script(&mut client, &text, &[]);
        wait_for_long(&mut other, 1);
        let begun = Instant::now();
        while waits(&mut client) {
            assert!(begun.elapsed() < crate::common::PATIENCE);
            let keys = other.ask("KEYS *");
            assert!(keys.starts_with("*1\r\n$3\r\nnew") || keys.starts_with("*1\r\n$1\r\nk"), "{keys}");
        }
        assert_eq!(reply(&mut client), ":1\r\n");
    });
}

#[test]
fn waiters_are_served_at_its_end() {
    on_both(|server| {
        let (mut client, mut other, mut waiter) = (server.client(), server.client(), server.client());
        let blocked = |other: &mut Client, count: u64| {
            wait_until("it waits", || field(&other.ask("INFO clients"), "blocked_clients") == count);
        };
        waiter.send(encode(&["BLPOP", "list", "0"]));
        blocked(&mut other, 1);
        let spin = "for i = 1, 3000000 do end";
        let text = format!(
            "redis.call('RPUSH', 'list', 'a') {spin} redis.call('RPUSH', 'list', 'b') {spin} return redis.call('LLEN', 'list')"
        );
        assert_eq!(eval(&mut client, &text, &[]), ":2\r\n");
        assert_eq!(reply(&mut waiter), "*2\r\n$4\r\nlist\r\n$1\r\na\r\n");
        other.check("DEL list", ":1\r\n");
        // One that another's push would serve into a key of the script.
        waiter.send(encode(&["BLMOVE", "source", "target", "LEFT", "LEFT", "0"]));
        blocked(&mut other, 1);
        let text = format!("{spin} {spin} return redis.call('EXISTS', KEYS[1])");
        start_script(&mut client, &text, &["target"]);
        wait_for_long(&mut other, 1);
        other.check("RPUSH source x", ":1\r\n");
        assert_eq!(reply(&mut client), ":0\r\n");
        assert_eq!(reply(&mut waiter), "$1\r\nx\r\n");
        other.check("LRANGE target 0 -1", "*1\r\n$1\r\nx\r\n");
    });
}

#[test]
fn its_keys_do_not_expire_and_are_not_evicted() {
    on_both(|server| {
        let (mut client, mut other) = (server.client(), server.client());
        other.check("CONFIG SET maxmemory-policy allkeys-random", OK);
        other.check("SET k v PX 60", OK);
        other.check("HSET h f v", ":1\r\n");
        other.check("HPEXPIRE h 60 FIELDS 1 f", "*1\r\n:1\r\n");
        let text = "local before = redis.call('TIME')[1] for i = 1, 30000000 do end \
                    return {redis.call('GET', KEYS[1]), redis.call('HGET', KEYS[2], 'f'), redis.call('PTTL', KEYS[1]) > 0}";
        start_script(&mut client, text, &["k", "h"]);
        wait_for_long(&mut other, 1);
        // Everything that may leave does.
        other.send(encode(&["SET", "filler", &"x".repeat(10_000)]));
        reply(&mut other);
        assert_eq!(reply(&mut client), "*3\r\n$1\r\nv\r\n$1\r\nv\r\n:1\r\n");
        wait_until("they expire", || other.ask("EXISTS k h") == ":0\r\n");
    });
}

/// A script that has asked for all keys has leased all.
#[test]
fn no_key_expires_beside_a_script_that_has_asked_for_all() {
    on_both(|server| {
        let mut client = server.client();
        client.check("MSET a 1 b 2", OK);
        client.check("PEXPIRE a 60", ":1\r\n");
        client.check("HSET h f v g w", ":2\r\n");
        client.check("HPEXPIRE h 60 FIELDS 1 f", "*1\r\n:1\r\n");
        let text = "local function count() return #redis.call('KEYS', '*') end local before = count() \
                    for i = 1, 30000000 do end return {before, count(), redis.call('GET', 'a'), redis.call('HLEN', 'h')}";
        assert_eq!(eval(&mut client, text, &[]), "*4\r\n:3\r\n:3\r\n$1\r\n1\r\n:2\r\n");
        wait_until("they expire", || client.ask("DBSIZE") == ":2\r\n" && client.ask("HLEN h") == ":1\r\n");
    });
}

#[test]
fn the_log_has_it_as_one_unit_behind_what_came_meanwhile() {
    let server = primary::start(&[]);
    let (mut client, mut other) = (server.client(), server.client());
    let (mut replica, _) = online(&server);
    let text = "redis.call('SET', 'a', '1') for i = 1, 5000000 do end redis.call('SET', 'b', '2') return 1";
    start_script(&mut client, text, &["a"]);
    wait_for_long(&mut other, 1);
    other.check("SET c 3", OK);
    assert_eq!(reply(&mut client), ":1\r\n");
    let log = |words: &[&[&str]]| {
        words.iter().map(|words| String::from_utf8(encode(words)).unwrap()).collect::<String>()
    };
    let unit = log(&[&["MULTI"], &["SET", "a", "1"], &["SET", "b", "2"], &["EXEC"]]);
    let all = replica.log_to(&log(&[&["EXEC"]]));
    let behind = all.find(&log(&[&["SET", "c", "3"]])).expect("it is logged");
    assert!(all[behind..].ends_with(&unit), "{all}");
}

/// Its session is gone, its keys are free again, and what it did is there.
#[test]
fn the_caller_leaves_in_the_middle() {
    on_both(|server| {
        let mut other = server.client();
        for at in 0..20 {
            let mut client = server.client();
            let spins = if at % 2 == 0 { 20_000_000 } else { 1_000_000 };
            let text =
                format!("redis.call('INCR', KEYS[1]) for i = 1, {spins} do end redis.call('INCR', KEYS[1])");
            start_script(&mut client, &text, &["n"]);
            if at % 2 == 0 {
                wait_for_long(&mut other, 1);
            }
        }
        wait_until("all have ended", || {
            let count = other.ask("GET n");
            field(&other.ask("INFO stats"), "long_scripts") == 0 && count == "$2\r\n40\r\n"
        });
    });
}

#[test]
fn many_slow_scripts_at_once() {
    let server = Server::with_workers(2, &[]);
    let mut clients: Vec<Client> = (0..100).map(|_| server.client()).collect();
    for (at, client) in clients.iter_mut().enumerate() {
        let key = format!("k{}", at % 10);
        start_script(client, "for i = 1, 300000 do end return redis.call('INCR', KEYS[1])", &[&key]);
    }
    for client in &mut clients {
        assert!(reply(client).starts_with(':'));
    }
    let mut other = server.client();
    (0..10).for_each(|at| other.check(&format!("GET k{at}"), "$2\r\n10\r\n"));
    wait_for_long(&mut other, 0);
}

/// One script after the other would keep it waiting for ever.
#[test]
fn what_waits_for_all_scripts_gets_its_turn() {
    on_both(|server| {
        let is_over = AtomicBool::new(false);
        std::thread::scope(|scope| {
            for at in 0..6 {
                let (mut client, is_over) = (server.client(), &is_over);
                scope.spawn(move || {
                    while !is_over.load(Ordering::Relaxed) {
                        eval(
                            &mut client,
                            "for i = 1, 500000 do end return redis.call('INCR', KEYS[1])",
                            &[&at.to_string()],
                        );
                    }
                });
            }
            let _end = OnDrop(|| is_over.store(true, Ordering::Relaxed));
            let mut other = server.client();
            for _ in 0..5 {
                other.check("CONFIG SET hz 10", OK);
                other.check("KEYS nosuch*", "*0\r\n");
            }
        });
    });
}

/// Work that the process does of itself waits too, and holds up nothing else: the thread that begins it takes
/// new connections.
#[test]
fn a_save_that_is_due_waits_for_its_end_and_nothing_waits_for_the_save() {
    let server = Server::with_workers(2, &["--save", "1 1"]);
    let (mut client, mut other) = (server.client(), server.client());
    other.check("SET k v", OK);
    let text = format!("redis.call('GET', KEYS[1]) {ENDLESS}");
    start_script(&mut client, &text, &["mine"]);
    wait_for_long(&mut other, 1);
    std::thread::sleep(Duration::from_millis(1500));
    let mut third = server.client();
    third.check("SET k w", OK);
    assert_eq!(field(&third.ask("INFO persistence"), "rdb_saves"), 0);
    third.check("SCRIPT KILL", OK);
    assert!(reply(&mut client).contains(KILLED));
    wait_until("it is saved", || field(&third.ask("INFO persistence"), "rdb_saves") > 0);
    assert_eq!(eval(&mut client, "return redis.call('GET', 'k')", &[]), "$1\r\nw\r\n");
}

/// Also of one that has written, and while a save waits for its end.
#[test]
fn shutdown_nosave_ends_scripts() {
    for (workers, appends) in [(1, "no"), (1, "yes"), (2, "yes")] {
        let options = ["--save", "1 1", "--appendonly", appends];
        let server = Server::with_workers(workers, &options);
        let (mut client, mut other) = (server.client(), server.client());
        wait_until("it is loaded", || other.ask("PING") == "+PONG\r\n");
        start_script(&mut client, &format!("redis.call('INCR', KEYS[1]) {ENDLESS}"), &["n"]);
        wait_for_long(&mut other, 1);
        other.check("SET k v", OK);
        std::thread::sleep(Duration::from_millis(1200));
        other.send(encode(&["SHUTDOWN", "NOSAVE"]));
        other.expect_end();
        client.expect_end();
    }
}

#[test]
fn flushing_scripts_leaves_those_that_run() {
    on_both(|server| {
        let (mut client, mut other) = (server.client(), server.client());
        start_script(&mut client, "for i = 1, 20000000 do end return 7", &["k"]);
        wait_for_long(&mut other, 1);
        other.check("SCRIPT FLUSH", OK);
        other.check("DEBUG SLEEP 0.01", OK);
        assert_eq!(reply(&mut client), ":7\r\n");
        assert_eq!(eval(&mut client, "return 8", &[]), ":8\r\n");
    });
}

/// Scripts that name all their keys need not wait for each other; one that meets keys is not refused any.
#[test]
fn scripts_that_name_their_keys_run_side_by_side() {
    let server = Server::with_workers(4, &[]);
    let (mut first, mut second, mut other) = (server.client(), server.client(), server.client());
    // A text that is met for the first time has not been looked at: the first of them has the token.
    for _ in 0..2 {
        start_script(&mut first, &format!("redis.call('GET', KEYS[1]) {ENDLESS}"), &["a"]);
        wait_for_long(&mut other, 1);
        start_script(&mut second, &format!("redis.call('GET', KEYS[1]) {ENDLESS}"), &["b"]);
        wait_for_long(&mut other, 2);
        other.check("SCRIPT KILL", OK);
        for client in [&mut first, &mut second] {
            assert!(reply(client).contains(KILLED));
        }
        wait_for_long(&mut other, 0);
    }
    start_script(&mut first, &format!("redis.call('GET', KEYS[1]) {ENDLESS}"), &["a"]);
    start_script(&mut second, &format!("redis.call('GET', KEYS[1]) {ENDLESS}"), &["b"]);
    wait_for_long(&mut other, 2);
    // With them one with the token, and a short one.
    let mut third = server.client();
    start_script(&mut third, &format!("redis.call('GET', 'met') {ENDLESS}"), &[]);
    wait_for_long(&mut other, 3);
    assert_eq!(eval_sha(&mut other, "return redis.call('INCR', KEYS[1])", &["c"]), ":1\r\n");
    let mut same = server.client();
    start_script(&mut same, "return redis.call('SET', KEYS[1], 1)", &["b"]);
    assert!(waits(&mut same));
    other.check("SCRIPT KILL", OK);
    for client in [&mut first, &mut second, &mut third] {
        assert!(reply(client).contains(KILLED));
    }
    assert_eq!(reply(&mut same), OK);
    assert_eq!(field(&other.ask("INFO stats"), "total_script_keys_refused"), 0);
}

/// The text is looked at when it is loaded.
fn eval_sha(client: &mut Client, text: &str, keys: &[&str]) -> String {
    client.send(encode(&["SCRIPT", "LOAD", text]));
    let sha = reply(client);
    let sha = sha.split("\r\n").nth(1).unwrap();
    let count = keys.len().to_string();
    client.send(encode(&[&["EVALSHA", sha, &count], keys].concat()));
    reply(client)
}

#[test]
fn functions_that_take_long_are_shown_and_killed() {
    on_both(|server| {
        let (mut client, mut other) = (server.client(), server.client());
        let library = "#!lua name=l\nlocal calls = 0\nredis.register_function('endless', function(keys) redis.call('GET', keys[1]) while true do end end)\nredis.register_function('count', function() calls = calls + 1 return calls end)";
        other.send(encode(&["FUNCTION", "LOAD", library]));
        assert_eq!(reply(&mut other), "$1\r\nl\r\n");
        client.send(encode(&["FCALL", "count", "0"]));
        assert_eq!(reply(&mut client), ":1\r\n");
        client.send(encode(&["FCALL", "endless", "1", "k"]));
        wait_for_long(&mut other, 1);
        let stats = other.ask("FUNCTION STATS");
        assert!(stats.contains("endless") && stats.contains("duration_ms"), "{stats}");
        let mut same = server.client();
        same.send(encode(&["GET", "k"]));
        assert!(waits(&mut same));
        const BUSY: &str = "-BUSY Isotherm is busy running a script. You can only call FUNCTION KILL or SHUTDOWN NOSAVE.\r\n";
        other.check("SCRIPT KILL", BUSY);
        other.check("CONFIG GET busy-reply-scope", "*2\r\n$16\r\nbusy-reply-scope\r\n$4\r\nkeys\r\n");
        other.check("FUNCTION KILL", OK);
        assert!(reply(&mut client).contains("Script killed by user with FUNCTION KILL."));
        assert_eq!(reply(&mut same), "$-1\r\n");
        wait_for_long(&mut other, 0);
        assert!(other.ask("FUNCTION STATS").starts_with("*4\r\n$14\r\nrunning_script\r\n$-1"));
        // The state of a library is there still.
        client.send(encode(&["FCALL", "count", "0"]));
        assert_eq!(reply(&mut client), ":2\r\n");
    });
}
