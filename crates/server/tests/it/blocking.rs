//! Clients that wait for a key, over sockets, with one worker and with several.

use crate::common::{Client, OnDrop, PATIENCE, Server, encode, wait_until};
use std::os::unix::net::UnixStream;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::{Duration, Instant};

const OK: &str = "+OK\r\n";
const QUEUED: &str = "+QUEUED\r\n";
const NOTHING: &str = "*-1\r\n";

fn on_both(test: impl Fn(&Server)) {
    for workers in [1, 3] {
        test(&Server::with_workers(workers, &["--enable-debug-command", "local"]));
    }
}

/// A client that waits already.
fn waiting(server: &Server, request: &str) -> Client {
    let mut observer = server.client();
    let before = observer.blocked_count();
    let mut client = server.client();
    client.send(encode(&request.split_whitespace().collect::<Vec<_>>()));
    wait_for_blocked(&mut observer, before + 1);
    client
}

fn blocking_keys(client: &mut Client) -> u64 {
    client.info("clients", "total_blocking_keys")
}

#[track_caller]
fn wait_for_blocking_keys(client: &mut Client, count: u64) {
    wait_until(&format!("{count} keys that clients wait for"), || blocking_keys(client) == count);
}

#[track_caller]
fn wait_for_blocked(client: &mut Client, count: u64) {
    wait_until(&format!("{count} blocked clients"), || client.blocked_count() == count);
}

fn pair(key: &str, value: &str) -> String {
    format!("*2\r\n${}\r\n{key}\r\n${}\r\n{value}\r\n", key.len(), value.len())
}

#[test]
fn a_push_serves_before_the_next_command() {
    on_both(|server| {
        let mut client = server.client();
        let mut first = waiting(server, "BLPOP a b 0");
        let mut second = waiting(server, "BRPOP b 0");
        let mut third = waiting(server, "BLMPOP 0 2 c b LEFT COUNT 5");
        assert_eq!(blocking_keys(&mut client), 3);
        // The oldest gets what it asked for, and the next what is left.
        client.check("RPUSH b 1 2 3 4", ":4\r\n");
        client.check("EXISTS b", ":0\r\n");
        first.expect(&pair("b", "1"));
        second.expect(&pair("b", "4"));
        third.expect("*2\r\n$1\r\nb\r\n*2\r\n$1\r\n2\r\n$1\r\n3\r\n");
        wait_for_blocked(&mut client, 0);
        wait_for_blocking_keys(&mut client, 0);
        // Each works as before.
        for served in [&mut first, &mut second, &mut third] {
            served.check("PING", "+PONG\r\n");
        }
    });
}

#[test]
fn a_move_reaches_its_destination_wherever_it_lies() {
    on_both(|server| {
        let mut client = server.client();
        for number in 0..20 {
            let (from, to) = (format!("from{number}"), format!("to{number}"));
            let mut mover = waiting(server, &format!("BLMOVE {from} {to} LEFT RIGHT 0"));
            let mut behind = waiting(server, &format!("BLPOP {from} 0"));
            let mut last = waiting(server, &format!("BLPOP {to} 0"));
            client.check(&format!("RPUSH {from} x y"), ":2\r\n");
            mover.expect("$1\r\nx\r\n");
            behind.expect(&pair(&from, "y"));
            last.expect(&pair(&to, "x"));
            client.check(&format!("EXISTS {from} {to}"), ":0\r\n");
        }
        assert_eq!(client.blocked_count(), 0);
    });
}

#[test]
fn a_transaction_is_over_before_anybody_is_served() {
    on_both(|server| {
        let mut client = server.client();
        let mut waiter = waiting(server, "BLPOP k 0");
        for request in ["MULTI", "LPUSH k 1", "DEL k", "LPUSH k 2", "LPUSH k 3", "LLEN k"] {
            client.check(request, if request == "MULTI" { OK } else { QUEUED });
        }
        client.check("EXEC", "*5\r\n:1\r\n:1\r\n:1\r\n:2\r\n:2\r\n");
        waiter.expect(&pair("k", "3"));
        client.check("LRANGE k 0 -1", "*1\r\n$1\r\n2\r\n");
        // No command waits inside one.
        client.check("DEL k", ":1\r\n");
        let inside = ["BLPOP k 0", "BLMOVE k l LEFT LEFT 0", "BLMPOP 0 1 k LEFT", "BRPOPLPUSH k l 0"];
        client.check("MULTI", OK);
        inside.iter().for_each(|request| client.check(request, QUEUED));
        client.check("EXEC", "*4\r\n*-1\r\n$-1\r\n*-1\r\n$-1\r\n");
    });
}

#[test]
fn only_a_list_ends_the_waiting_for_one() {
    on_both(|server| {
        let mut client = server.client();
        let mut waiter = waiting(server, "BLPOP k 0");
        client.check("SET k v", OK);
        client.check("APPEND k v", ":2\r\n");
        client.check("DEL k", ":1\r\n");
        assert_eq!(client.blocked_count(), 1);
        client.check("RPUSH other x", ":1\r\n");
        client.check("RENAME other k", OK);
        waiter.expect(&pair("k", "x"));
        let mut waiter = waiting(server, "BLPOP k 0");
        client.check("SELECT 5", OK);
        client.check("RPUSH k five", ":1\r\n");
        assert_eq!(client.blocked_count(), 1);
        client.check("SWAPDB 0 5", OK);
        waiter.expect(&pair("k", "five"));
        client.check("SELECT 0", OK);
        let mut waiter = waiting(server, "BLPOP copied 0");
        client.check("RPUSH k y", ":1\r\n");
        client.check("COPY k copied", ":1\r\n");
        waiter.expect(&pair("copied", "y"));
    });
}

#[test]
fn sorted_sets() {
    on_both(|server| {
        let mut client = server.client();
        let mut min = waiting(server, "BZPOPMIN a z 0");
        let mut list = waiting(server, "BLPOP z 0");
        let mut max = waiting(server, "BZPOPMAX z 0");
        let mut several = waiting(server, "BZMPOP 0 2 z a MIN COUNT 3");
        client.check("ZADD z 1 a 2 b 3 c 4 d 5 e 6 f", ":6\r\n");
        min.expect("*3\r\n$1\r\nz\r\n$1\r\na\r\n$1\r\n1\r\n");
        max.expect("*3\r\n$1\r\nz\r\n$1\r\nf\r\n$1\r\n6\r\n");
        several.expect(
            "*2\r\n$1\r\nz\r\n*3\r\n*2\r\n$1\r\nb\r\n$1\r\n2\r\n*2\r\n$1\r\nc\r\n$1\r\n3\r\n*2\r\n$1\r\nd\r\n$1\r\n4\r\n",
        );
        client.check("ZCARD z", ":1\r\n");
        client.check("DEL z", ":1\r\n");
        client.check("RPUSH z x", ":1\r\n");
        list.expect(&pair("z", "x"));
        client.check("MULTI", OK);
        client.check("BZPOPMIN z 0", QUEUED);
        client.check("BZMPOP 0 1 none MAX", QUEUED);
        client.check("EXEC", "*2\r\n*-1\r\n*-1\r\n");
    });
}

#[test]
fn times_run_out() {
    on_both(|server| {
        let mut client = server.client();
        let begun = Instant::now();
        let mut patient = waiting(server, "BLPOP k 30");
        let mut waiter = waiting(server, "BLMOVE k l LEFT LEFT 0.25");
        waiter.expect(NOTHING);
        let waited = begun.elapsed();
        // The server counts in whole milliseconds: the one in which the wait begins may be nearly over.
        assert!(waited >= Duration::from_millis(249) && waited < PATIENCE / 2, "{waited:?}");
        wait_for_blocked(&mut client, 1);
        client.check("RPUSH k x", ":1\r\n");
        patient.expect(&pair("k", "x"));
        for (timeout, text) in [
            ("-1", "timeout is negative"),
            ("x", "timeout is not a float or out of range"),
            ("nan", "timeout is not a float or out of range"),
            ("1e300", "timeout is out of range"),
            ("inf", "timeout is out of range"),
            ("9223372036854775", "timeout is out of range"),
        ] {
            client.check(&format!("BLPOP k {timeout}"), &format!("-ERR {text}\r\n"));
        }
    });
}

#[test]
fn client_unblock() {
    on_both(|server| {
        let mut client = server.client();
        for (how, reply) in [
            ("", NOTHING),
            (" TIMEOUT", NOTHING),
            (" error", "-UNBLOCKED client unblocked via CLIENT UNBLOCK\r\n"),
        ] {
            let mut waiter = server.client();
            let id = waiter.id();
            client.check(&format!("CLIENT UNBLOCK {id}{how}"), ":0\r\n");
            waiter.send(encode(&["BRPOP", "k", "0"]));
            wait_for_blocked(&mut client, 1);
            assert!(client.ask(&format!("CLIENT LIST ID {id}")).contains(" flags=b "));
            client.check(&format!("CLIENT UNBLOCK {id}{how}"), ":1\r\n");
            client.check(&format!("CLIENT UNBLOCK {id}{how}"), ":0\r\n");
            waiter.expect(reply);
            waiter.check("PING", "+PONG\r\n");
            assert!(client.ask(&format!("CLIENT LIST ID {id}")).contains(" flags=N "));
        }
        client.check("RPUSH k x", ":1\r\n");
        client.check("LLEN k", ":1\r\n");
        client.check("CLIENT UNBLOCK x", "-ERR value is not an integer or out of range\r\n");
        client.check("CLIENT UNBLOCK -1", ":0\r\n");
    });
}

#[test]
fn a_client_that_is_gone_takes_nothing() {
    on_both(|server| {
        let mut client = server.client();
        drop(waiting(server, "BLPOP k 0"));
        wait_for_blocked(&mut client, 0);
        client.check("RPUSH k x", ":1\r\n");
        client.check("LPOP k", "$1\r\nx\r\n");
        let mut killed = waiting(server, "BLPOP k 0");
        client.check("CLIENT KILL TYPE normal SKIPME yes", ":1\r\n");
        killed.expect_end();
        client.check("RPUSH k x", ":1\r\n");
        client.check("LLEN k", ":1\r\n");
        wait_for_blocking_keys(&mut client, 0);
    });
}

/// An element is not given to a client that has hung up before its own worker has seen that.
#[test]
fn who_has_hung_up_takes_nothing_from_another_worker() {
    let arguments = ["--unixsocket", "s.sock", "--enable-debug-command", "local"];
    let server = Server::with_workers(2, &arguments);
    server.wait_for_log("Ready to accept connections unix");
    server.client().check("PING", "+PONG\r\n");
    // Connections go round over the workers. The end of one of these is there at once.
    let path = server.folder.join("s.sock");
    let [mut client, mut busy, _, mut waiter] = [(); 4].map(|()| {
        let mut client = Client::over_any(UnixStream::connect(&path).unwrap());
        client.check("PING", "+PONG\r\n");
        client
    });
    waiter.send(encode(&["BLPOP", "k", "0"]));
    wait_until("it waits", || client.blocked_count() == 1);
    busy.send([encode(&["DEBUG", "LOG", "busy"]), encode(&["DEBUG", "SLEEP", "2"])].concat());
    server.wait_for_log("DEBUG LOG: busy");
    drop(waiter);
    client.check("RPUSH k x", ":1\r\n");
    client.check("LPOP k", "$1\r\nx\r\n");
}

/// The target of the one that waits lies in another partition.
#[test]
fn who_waits_to_move_is_served_before_who_comes_later() {
    const ROUNDS: usize = 20;
    let server = Server::with_workers(3, &[]);
    let (mut client, mut mover) = (server.client(), server.client());
    let mut moved = 0;
    for round in 0..ROUNDS {
        let (from, to) = (format!("from{round}"), format!("to{round}"));
        mover.send(encode(&["BLMOVE", &from, &to, "LEFT", "RIGHT", "0"]));
        wait_for_blocked(&mut client, 1);
        client.send([encode(&["RPUSH", &from, "x"]), encode(&["LPOP", &from])].concat());
        client.expect(":1\r\n");
        match String::from_utf8_lossy(&client.read_reply()).as_ref() {
            "$-1\r\n" => moved += 1,
            // Another thread had the target.
            _ => client.check(&format!("RPUSH {from} x"), ":1\r\n"),
        }
        mover.expect("$1\r\nx\r\n");
    }
    assert!(moved > ROUNDS / 2, "{moved} of {ROUNDS}");
}

#[test]
fn who_waits_for_several_keys_hears_of_a_wrong_one() {
    const ROUNDS: usize = 20;
    let server = Server::with_workers(3, &[]);
    let (mut client, mut waiter) = (server.client(), server.client());
    let mut refused = 0;
    for round in 0..ROUNDS {
        let (wrong, right) = (format!("wrong{round}"), format!("right{round}"));
        waiter.send(encode(&["BLPOP", &wrong, &right, "0"]));
        wait_for_blocked(&mut client, 1);
        client.check(&format!("SET {wrong} x"), OK);
        client.check(&format!("RPUSH {right} x"), ":1\r\n");
        // Unless another thread had it.
        refused += usize::from(waiter.read_reply().starts_with(b"-WRONGTYPE "));
    }
    assert!(refused > ROUNDS / 2, "{refused} of {ROUNDS}");
}

#[test]
fn what_was_sent_behind_waits_its_turn() {
    on_both(|server| {
        let mut client = server.client();
        let mut waiter = server.client();
        let mut requests = encode(&["SET", "before", "1"]);
        for words in [&["BLPOP", "k", "0"][..], &["INCR", "after"], &["BLPOP", "k", "0"], &["PING"]] {
            requests.extend(encode(words));
        }
        waiter.send(requests);
        waiter.expect(OK);
        wait_for_blocked(&mut client, 1);
        client.check("EXISTS after", ":0\r\n");
        waiter.send("PING late\r\n");
        client.check("RPUSH k 1", ":1\r\n");
        waiter.expect(&pair("k", "1"));
        waiter.expect(":1\r\n");
        wait_for_blocked(&mut client, 1);
        client.check("RPUSH k 2 3", ":2\r\n");
        waiter.expect(&pair("k", "2"));
        waiter.expect("+PONG\r\n");
        waiter.expect("$4\r\nlate\r\n");
        // Without an answer wanted, none comes.
        waiter.send(encode(&["CLIENT", "REPLY", "SKIP"]));
        waiter.send(encode(&["BLPOP", "none", "0"]));
        wait_for_blocked(&mut client, 1);
        client.check("RPUSH none x", ":1\r\n");
        waiter.check("PING", "+PONG\r\n");
    });
}

/// Producers push what consumers take: nothing is lost and nothing is taken twice.
#[test]
fn many_at_once() {
    const EACH: usize = 400;
    on_both(|server| {
        let consume = |which: usize| {
            let mut client = server.client();
            let mut taken = Vec::new();
            loop {
                let request = match which % 3 {
                    0 => format!("BLPOP q{} q{} end 0", which % 4, (which + 1) % 4),
                    1 => "BRPOP q3 q2 q1 q0 end 0".to_string(),
                    _ => "BLMPOP 0 5 q0 q1 q2 q3 end LEFT COUNT 3".to_string(),
                };
                let reply = client.ask(&request);
                if reply.contains("\r\nend\r\n") {
                    return taken;
                }
                taken.extend(reply.lines().filter(|line| line.starts_with('v')).map(String::from));
            }
        };
        let produce = |which: usize| {
            let mut client = server.client();
            for number in 0..EACH {
                let reply = client.ask(&format!("RPUSH q{} v{which}:{number}", (which + number) % 4));
                assert!(reply.starts_with(':'), "{reply}");
            }
        };
        let taken = std::thread::scope(|scope| {
            let consumers: Vec<_> = (0..6).map(|which| scope.spawn(move || consume(which))).collect();
            let producers: Vec<_> = (0..4).map(|which| scope.spawn(move || produce(which))).collect();
            producers.into_iter().for_each(|producer| producer.join().unwrap());
            let mut client = server.client();
            wait_until("all is taken", || client.ask("EXISTS q0 q1 q2 q3") == ":0\r\n");
            for _ in 0..3 * consumers.len() {
                assert!(client.ask("RPUSH end x").starts_with(':'));
            }
            let taken = consumers.into_iter().flat_map(|consumer| consumer.join().unwrap());
            let mut taken: Vec<String> = taken.collect();
            taken.sort();
            taken
        });
        let mut expected: Vec<String> =
            (0..4).flat_map(|which| (0..EACH).map(move |number| format!("v{which}:{number}"))).collect();
        expected.sort();
        assert!(taken == expected, "{} of {} were taken", taken.len(), expected.len());
    });
}

#[test]
fn a_group_that_is_destroyed_ends_the_waiting_for_it() {
    on_both(|server| {
        let mut client = server.client();
        client.check("XGROUP CREATE s g $ MKSTREAM", OK);
        let mut reader = waiting(server, "XREADGROUP GROUP g A BLOCK 0 STREAMS s >");
        let mut other = waiting(server, "XREAD BLOCK 0 STREAMS s $");
        client.check("XGROUP DESTROY s g", ":1\r\n");
        let reply = reader.read_reply();
        assert!(reply.starts_with(b"-NOGROUP "), "{}", String::from_utf8_lossy(&reply));
        client.check("XADD s 1-1 f v", "$3\r\n1-1\r\n");
        assert!(other.read_reply().starts_with(b"*1\r\n*2\r\n$1\r\ns\r\n"));
    });
}

/// Reads of two streams. One of them is touched all the time while an entry comes to the other: whatever
/// thread has the reader in hand at that moment, the entry is read.
#[test]
fn a_stream_that_has_nothing_new_hides_no_other() {
    const ROUNDS: usize = 300;
    /// No read that is served waits this long, however busy the machine is.
    const BLOCK_MS: &str = "10000";
    let server = Server::with_workers(3, &[]);
    let mut setting_up = server.client();
    setting_up.check("XADD s1 1-1 f v", "$3\r\n1-1\r\n");
    let is_over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let stopping = OnDrop(|| is_over.store(true, Relaxed));
        let touching: Vec<_> = (0..3)
            .map(|_| {
                let (server, is_over) = (&server, &is_over);
                scope.spawn(move || {
                    let mut client = server.client();
                    let pipeline = encode(&["EXPIRE", "s1", "1000"]).repeat(50);
                    while !is_over.load(Relaxed) {
                        client.send(&pipeline);
                        (0..50).for_each(|_| client.expect(":1\r\n"));
                    }
                })
            })
            .collect();
        let mut adding = server.client();
        let mut observer = server.client();
        let mut readers: Vec<Client> = (0..3).map(|_| server.client()).collect();
        let mut empty = 0;
        for round in 1..=ROUNDS {
            for reader in &mut readers {
                reader.send(encode(&["XREAD", "BLOCK", BLOCK_MS, "STREAMS", "s1", "s2", "$", "$"]));
            }
            wait_for_blocked(&mut observer, readers.len() as u64);
            adding.check(
                &format!("XADD s2 {round}-1 f v"),
                &format!("${}\r\n{round}-1\r\n", format!("{round}-1").len()),
            );
            let ended =
                readers.iter_mut().map(|reader| usize::from(reader.read_reply() == NOTHING.as_bytes()));
            empty += ended.sum::<usize>();
        }
        drop(stopping);
        touching.into_iter().for_each(|thread| thread.join().unwrap());
        assert_eq!(empty, 0, "reads ended without the entry that was there");
    });
}

/// A try that finds nothing for its client meets a key whose time has come. A client that waits for that key
/// learns of it.
#[test]
fn a_key_that_expires_in_a_try_is_reported() {
    let server = Server::with_workers(1, &["--enable-debug-command", "yes"]);
    let (mut client, mut reader, mut member) = (server.client(), server.client(), server.client());
    client.check("DEBUG SET-ACTIVE-EXPIRE 0", "+OK\r\n");
    client.check("XADD a 1-0 f v", "$3\r\n1-0\r\n");
    client.check("XADD b 1-0 f v", "$3\r\n1-0\r\n");
    client.check("XGROUP CREATE b g $", "+OK\r\n");
    reader.send(encode(&["XREAD", "BLOCK", "0", "STREAMS", "a", "b", "$", "$"]));
    member.send(encode(&["XREADGROUP", "GROUP", "g", "c", "BLOCK", "0", "STREAMS", "b", ">"]));
    wait_for_blocked(&mut client, 2);
    client.check("PEXPIRE b 1", ":1\r\n");
    std::thread::sleep(Duration::from_millis(20));
    // Both look at `a` and `b` for the reader: `b` leaves.
    client.check("EXPIRE a 1000", ":1\r\n");
    let reply = member.read_reply();
    assert!(reply.starts_with(b"-NOGROUP"), "{}", String::from_utf8_lossy(&reply));
}

/// A client that is killed, or closed for its memory, before the push takes nothing.
#[test]
fn a_killed_client_takes_nothing() {
    const ROUNDS: usize = 40;
    for workers in [1, 3] {
        let server = Server::with_workers(workers, &[]);
        let mut client = server.client();
        for round in 0..ROUNDS {
            let mut waiters: Vec<Client> = (0..3).map(|_| server.client()).collect();
            let ids: Vec<String> = waiters.iter_mut().map(|waiter| waiter.id().to_string()).collect();
            let [first, second] = ["k", "l"].map(|key| format!("{key}{round}"));
            for waiter in &mut waiters {
                waiter.send(encode(&["BLPOP", &first, &second, "0"]));
            }
            wait_for_blocked(&mut client, 3);
            let mut pipeline = encode(&["CLIENT", "KILL", "ID", &ids[0], &ids[1], &ids[2]]);
            pipeline.extend(encode(&["RPUSH", &first, "x"]));
            pipeline.extend(encode(&["RPUSH", &second, "y"]));
            pipeline.extend(encode(&["EXISTS", &first, &second]));
            client.send(pipeline);
            [":3\r\n", ":1\r\n", ":1\r\n", ":2\r\n"].iter().for_each(|reply| client.expect(reply));
            waiters.iter_mut().for_each(Client::expect_end);
        }
        wait_for_blocking_keys(&mut client, 0);
    }
}

/// One is killed while others push: it has got what was taken for it, or nothing was.
#[test]
fn a_kill_beside_pushes_loses_nothing() {
    const ROUNDS: usize = 150;
    let server = Server::with_workers(3, &[]);
    let mut client = server.client();
    let mut pushers: Vec<Client> = (0..2).map(|_| server.client()).collect();
    for round in 0..ROUNDS {
        let keys = ["a", "b"].map(|key| format!("{key}{round}"));
        let mut waiter = server.client();
        let id = waiter.id().to_string();
        waiter.send(encode(&["BLPOP", &keys[0], &keys[1], "0"]));
        wait_for_blocked(&mut client, 1);
        client.send(encode(&["CLIENT", "KILL", "ID", &id]));
        for (pusher, key) in pushers.iter_mut().zip(&keys) {
            pusher.send(encode(&["RPUSH", key, "x"]));
        }
        client.expect(":1\r\n");
        pushers.iter_mut().for_each(|pusher| assert!(pusher.read_reply().starts_with(b":")));
        let answer = waiter.read_to_end();
        let left = client.ask(&format!("EXISTS {} {}", keys[0], keys[1]));
        let expected = if answer.is_empty() { ":2\r\n" } else { ":1\r\n" };
        assert_eq!(left, expected, "answered: {:?}", String::from_utf8_lossy(&answer));
    }
}

/// One client waits for very many keys: others go on, SWAPDB and its own leaving too.
#[test]
fn very_many_keys_are_waited_for() {
    const KEYS: usize = 30_000;
    on_both(|server| {
        let mut client = server.client();
        let mut words = vec!["BLPOP".to_string()];
        words.extend((0..KEYS).map(|number| format!("key:{number}")));
        words.push("0".to_string());
        let mut waiter = server.client();
        let cpu = server.cpu();
        waiter.send(encode(&words));
        wait_for_blocking_keys(&mut client, KEYS as u64);
        client.check("SWAPDB 0 1", OK);
        client.check("FLUSHALL", OK);
        client.check("RPUSH key:12345 x", ":1\r\n");
        waiter.expect(&pair("key:12345", "x"));
        wait_for_blocking_keys(&mut client, 0);
        // With a scan for each key it is some tens of seconds.
        let used = server.cpu() - cpu;
        assert!(used < Duration::from_secs(4), "{used:?}");
    });
}

/// Many clients wait for one key: more than are served under one lock.
#[test]
fn very_many_clients_wait_for_one_key() {
    const CLIENTS: usize = 400;
    const EACH: usize = 8;
    on_both(|server| {
        let mut client = server.client();
        client.check("XGROUP CREATE s g $ MKSTREAM", OK);
        let mut readers: Vec<Client> = (0..CLIENTS).map(|_| server.client()).collect();
        for reader in &mut readers {
            reader.send(encode(&["XREAD", "BLOCK", "0", "STREAMS", "s", "$"]));
        }
        wait_for_blocked(&mut client, CLIENTS as u64);
        client.check("XADD s 1-1 f v", "$3\r\n1-1\r\n");
        readers.iter_mut().for_each(|reader| assert!(reader.read_reply().starts_with(b"*1\r\n*2")));
        // The oldest is served first, however many wait.
        for (number, reader) in readers.iter_mut().enumerate() {
            reader.send(encode(&["BLPOP", "k", "0"]));
            wait_for_blocked(&mut client, number as u64 + 1);
        }
        for number in 0..CLIENTS / EACH {
            let values: Vec<String> = (0..EACH).map(|at| (number * EACH + at).to_string()).collect();
            client.check(&format!("RPUSH k {}", values.join(" ")), &format!(":{EACH}\r\n"));
        }
        for (number, reader) in readers.iter_mut().enumerate() {
            reader.expect(&pair("k", &number.to_string()));
        }
        // They leave as they came.
        for reader in &mut readers {
            reader.send(encode(&["BLPOP", "k", "0"]));
        }
        wait_for_blocked(&mut client, CLIENTS as u64);
        drop(readers);
        wait_for_blocked(&mut client, 0);
        wait_for_blocking_keys(&mut client, 0);
    });
}
