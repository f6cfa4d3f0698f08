//! Scripts without an end, of each kind and within EXEC: the process can be asked to end, new connections are
//! served, and clients that need a key get an error.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use crate::common::{Client, Server, encode, field, wait_until};
use crate::primary::Replica;

const OK: &str = "+OK\r\n";
const PONG: &str = "+PONG\r\n";
const BUSY: &str =
    "-BUSY Isotherm is busy running a script. You can only call SCRIPT KILL or SHUTDOWN NOSAVE.\r\n";
const READS: &str = "while true do redis.call('GET', KEYS[1]) end";
const WRITES: &str = "redis.call('INCR', KEYS[1]) while true do end";
const UNKILLABLE: &str = "-UNKILLABLE Sorry the script already executed write commands against the dataset. You can either wait \
     the script termination or kill the server in a hard way using the SHUTDOWN NOSAVE command.\r\n";

fn reply(client: &mut Client) -> String {
    String::from_utf8_lossy(&client.read_reply()).into_owned()
}

#[track_caller]
fn wait_for_long(other: &mut Client, count: u64) {
    wait_until("scripts that take long", || field(&other.ask("INFO stats"), "long_scripts") == count);
}

/// Requests that a client runs.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Kind {
    Script,
    Function,
    InExec,
    FunctionInExec,
}

const KINDS: [Kind; 4] = [Kind::Script, Kind::Function, Kind::InExec, Kind::FunctionInExec];

impl Kind {
    fn is_in_exec(self) -> bool {
        matches!(self, Kind::InExec | Kind::FunctionInExec)
    }

    /// Begins it on a connection of its own, and returns when it takes long.
    fn begin(self, server: &Server, writes: bool) -> Client {
        let (mut client, mut other) = (server.client(), server.client());
        let body = if writes { WRITES } else { READS };
        let words = match self {
            Kind::Script | Kind::InExec => ["EVAL", body, "1", "n"],
            Kind::Function | Kind::FunctionInExec => {
                let library =
                    format!("#!lua name=l\nredis.register_function('endless', function(KEYS) {body} end)");
                client.send(encode(&["FUNCTION", "LOAD", "REPLACE", &library]));
                client.expect("$1\r\nl\r\n");
                ["FCALL", "endless", "1", "n"]
            }
        };
        if self.is_in_exec() {
            client.check("MULTI", OK);
            client.check("SET before 1", "+QUEUED\r\n");
            client.send(encode(&words));
            client.expect("+QUEUED\r\n");
            client.check("INCR before", "+QUEUED\r\n");
            client.send(encode(&["EXEC"]));
        } else {
            client.send(encode(&words));
        }
        wait_for_long(&mut other, 1);
        client
    }
}

fn each_kind(test: impl Fn(Kind, usize)) {
    for kind in KINDS {
        for workers in [1, 4] {
            test(kind, workers);
        }
    }
}

/// SIGTERM waits for a script that has written, as Valkey does; SHUTDOWN NOSAVE does not.
#[test]
fn shutdown_nosave_is_heard_behind_a_signal() {
    each_kind(|kind, workers| {
        let appends = if workers == 1 { "yes" } else { "no" };
        let mut server = Server::with_workers(workers, &["--save", "3600 1", "--appendonly", appends]);
        wait_until("it is loaded", || server.client().ask("PING") == PONG);
        let mut client = kind.begin(&server, true);
        let mut old = server.client();
        old.check("PING", PONG);
        server.signal("TERM");
        server.wait_for_log("Received SIGTERM scheduling shutdown...");
        // The control thread has looked at it.
        let mut new = server.client();
        new.check("PING", PONG);
        old.check("SHUTDOWN ABORT", OK);
        server.wait_for_log("Shutdown manually aborted.");
        server.signal("TERM");
        wait_until("it is heard again", || server.log().matches("Received SIGTERM").count() == 2);
        new.check("PING", PONG);
        new.send(encode(&["SHUTDOWN", "NOSAVE"]));
        new.expect_end();
        client.expect_end();
        let status = server.wait();
        assert_eq!(status.code(), Some(0), "{kind:?}, {workers} workers: {}", server.log());
    });
}

#[test]
fn shutdown_nosave_with_other_words_is_heard() {
    for (kind, words) in [
        (Kind::InExec, &["SHUTDOWN", "NOSAVE", "NOW", "FORCE"][..]),
        (Kind::Script, &["SHUTDOWN", "NOSAVE", "NOW"]),
    ] {
        let mut server = Server::with_workers(1, &["--save", "3600 1"]);
        let mut client = kind.begin(&server, true);
        let mut new = server.client();
        new.check("CONFIG GET save", "*2\r\n$4\r\nsave\r\n$6\r\n3600 1\r\n");
        new.send(encode(words));
        new.expect_end();
        client.expect_end();
        assert_eq!(server.wait().code(), Some(0), "{}", server.log());
    }
}

/// A script that has not written ends with the signal, and so does the process.
#[test]
fn a_signal_ends_what_has_not_written() {
    each_kind(|kind, workers| {
        let mut server = Server::with_workers(workers, &["--save", ""]);
        let _client = kind.begin(&server, false);
        server.signal("TERM");
        assert_eq!(server.wait().code(), Some(0), "{kind:?}, {workers} workers: {}", server.log());
        assert!(!server.log().contains("Exiting now."), "{}", server.log());
    });
}

#[test]
fn a_script_within_exec_is_killed_and_the_rest_runs() {
    for workers in [1, 4] {
        let server = Server::with_workers(workers, &[]);
        server.client().check("CONFIG SET busy-reply-threshold 20", OK);
        for kind in [Kind::InExec, Kind::FunctionInExec] {
            let mut early = server.client();
            early.check("PING", PONG);
            let mut client = kind.begin(&server, false);
            early.send(encode(&["GET", "other"]));
            let busy =
                if kind == Kind::InExec { BUSY.to_string() } else { BUSY.replace("SCRIPT", "FUNCTION") };
            assert_eq!(reply(&mut early), busy, "it waited for the threshold");
            let mut new = server.client();
            for words in [
                &["GET", "before"][..],
                &["SET", "other", "1"],
                &["EVAL", "return 1", "0"],
                &["EVAL", "return 1", "1", "k"],
                &["KEYS", "*"],
                &["CONFIG", "SET", "maxmemory", "0"],
                &["SHUTDOWN"],
                &["SHUTDOWN", "NOW"],
                &["SHUTDOWN", "FORCE"],
            ] {
                new.send(encode(words));
                assert_eq!(reply(&mut new), busy, "{words:?}");
            }
            new.check("PING", PONG);
            new.check("SHUTDOWN ABORT", "-ERR No shutdown in progress.\r\n");
            let (name, wrong) = match kind {
                Kind::InExec => ("SCRIPT", "FUNCTION KILL"),
                _ => ("FUNCTION", "SCRIPT KILL"),
            };
            assert_eq!(new.ask(wrong), busy);
            new.check(&format!("{name} KILL"), OK);
            let answer = reply(&mut client);
            assert!(answer.starts_with("*3\r\n+OK\r\n-"), "{answer}");
            assert!(answer.contains(&format!("Script killed by user with {name} KILL.")), "{answer}");
            assert!(answer.ends_with(":2\r\n"), "{answer}");
            new.check("GET before", "$1\r\n2\r\n");
            wait_for_long(&mut new, 0);
            new.check(&format!("{name} KILL"), "-NOTBUSY No scripts in execution right now.\r\n");
            new.check("CONFIG SET maxmemory 0", OK);
            // Nothing is left in its middle.
            new.send(encode(&["EVAL", "return redis.call('INCR', 'met')", "0"]));
            assert_eq!(reply(&mut new).as_bytes()[0], b':');
        }
        let mut client = Kind::InExec.begin(&server, true);
        let mut new = server.client();
        new.check("SCRIPT KILL", UNKILLABLE);
        new.check("SHUTDOWN ABORT", "-ERR No shutdown in progress.\r\n");
        new.send(encode(&["SHUTDOWN", "NOSAVE"]));
        new.expect_end();
        client.expect_end();
    }
}

const SPIN: &str = "for i = 1, 4000000 do end";

/// Two scripts that take long, and between and after them commands that change the session and the server.
#[test]
fn a_transaction_goes_on_behind_its_slow_scripts() {
    for workers in [1, 4] {
        let server = Server::with_workers(workers, &["--appendonly", "yes", "--enable-debug-command", "yes"]);
        wait_until("it is loaded", || server.client().ask("PING") == PONG);
        let (mut client, mut popper, mut reader) = (server.client(), server.client(), server.client());
        popper.send(encode(&["BLPOP", "list", "0"]));
        wait_until("it waits", || reader.blocked_count() == 1);
        client.check("MULTI", OK);
        let slow = format!("redis.call('INCR', 'a') {SPIN} return redis.call('INCR', KEYS[1])");
        let queue: [&[&str]; 9] = [
            &["SET", "a", "1"],
            &["EVAL", &slow, "1", "b"],
            &["RPUSH", "list", "x", "y"],
            &["CONFIG", "SET", "busy-reply-threshold", "4000"],
            &["EVAL", &slow, "1", "b"],
            &["SELECT", "1"],
            &["SET", "c", "3"],
            &["INFO", "cpu"],
            &["KEYS", "*"],
        ];
        for words in queue {
            client.send(encode(words));
            client.expect("+QUEUED\r\n");
        }
        client.send(encode(&["EXEC"]));
        // Others see the state before it or after it.
        let mut seen = String::new();
        while !seen.ends_with("$1\r\n3\r\n$1\r\n2\r\n") {
            seen = reader.ask("MGET a b");
            assert!(["*2\r\n$-1\r\n$-1\r\n", "*2\r\n$1\r\n3\r\n$1\r\n2\r\n"].contains(&&*seen), "{seen}");
        }
        let answer = reply(&mut client);
        assert!(answer.starts_with("*9\r\n+OK\r\n:1\r\n:2\r\n+OK\r\n:2\r\n+OK\r\n+OK\r\n$"), "{answer}");
        assert!(answer.ends_with("\r\n*1\r\n$1\r\nc\r\n"), "{answer}");
        popper.expect("*2\r\n$4\r\nlist\r\n$1\r\nx\r\n");
        client.check("GET c", "$1\r\n3\r\n");
        let threshold = "*2\r\n$20\r\nbusy-reply-threshold\r\n$4\r\n4000\r\n";
        client.check("CONFIG GET busy-reply-threshold", threshold);
        // And so does the log.
        client.check("DEBUG LOADAOF", OK);
        client.check("GET c", "$1\r\n3\r\n");
        reader.check("MGET a b", "*2\r\n$1\r\n3\r\n$1\r\n2\r\n");
        reader.check("LRANGE list 0 -1", "*1\r\n$1\r\ny\r\n");
    }
}

/// A transaction ends also without its client.
#[test]
fn a_transaction_ends_without_its_client() {
    for workers in [1, 4] {
        let server = Server::with_workers(workers, &[]);
        for kills in [false, true] {
            let (mut client, mut other) = (server.client(), server.client());
            let id = client.id();
            other.check("FLUSHALL", OK);
            client.check("MULTI", OK);
            client.send(encode(&["EVAL", "while redis.call('EXISTS', 'x') == 0 do end", "0"]));
            client.expect("+QUEUED\r\n");
            for request in ["SUBSCRIBE channel", "SET k v"] {
                client.check(request, "+QUEUED\r\n");
            }
            client.send(encode(&["EXEC"]));
            wait_for_long(&mut other, 1);
            if kills {
                assert_eq!(other.ask(&format!("CLIENT KILL ID {id}")), ":1\r\n");
            } else {
                drop(client);
            }
            other.check("SCRIPT KILL", OK);
            wait_until("it has ended", || other.ask("GET k") == "$1\r\nv\r\n");
            wait_until("its client is gone", || {
                other.ask("CLIENT LIST").lines().all(|line| !line.contains(&format!("id={id} ")))
            });
            let none = "*2\r\n$7\r\nchannel\r\n:0\r\n";
            wait_until("it listens no more", || other.ask("PUBSUB NUMSUB channel") == none);
        }
    }
}

/// Connections that come while a command holds all there is are accepted, and go to workers that have nothing
/// to do.
#[test]
fn new_connections_are_served_beside_a_long_command() {
    let server = Server::with_workers(4, &["--enable-debug-command", "yes"]);
    let mut holder = server.client();
    // If the machine stands still for that time, the next attempt shows it.
    let is_shown = (0..5).any(|_| {
        let begun = server.hold_all_locks_for(Duration::from_millis(700), &mut holder, &[]);
        // Then it is known that its worker is busy.
        std::thread::sleep(Duration::from_millis(50).saturating_sub(begun.elapsed()));
        let mut clients: Vec<Client> = (0..8).map(|_| server.client()).collect();
        clients.iter_mut().for_each(|client| client.check("PING", PONG));
        holder.stream.set_nonblocking(true).unwrap();
        let is_over = holder.stream.peek(&mut [0]).is_ok();
        holder.stream.set_nonblocking(false).unwrap();
        holder.expect("*2\r\n+OK\r\n+OK\r\n");
        !is_over
    });
    assert!(is_shown, "they had no answer before its end");
}

// ---- threads that feed replicas ----

/// The snapshot for a replica is due while a script does not end: it waits alone. Other scripts begin, also
/// while it asks for all locks.
#[test]
fn a_snapshot_for_a_replica_waits_for_a_script_alone() {
    let args = ["--repl-diskless-sync-delay", "2", "--busy-reply-threshold", "100"];
    let server = Server::with_workers(2, &args);
    let mut other = server.client();
    // Scripts that are known need no token.
    let brief = "return redis.call('GET', KEYS[1])";
    for text in [READS, brief] {
        other.send(encode(&["SCRIPT", "LOAD", text]));
        other.read_reply();
    }
    let mut replica = Replica::new(&server);
    replica.introduce();
    replica.say("PSYNC ? -1");
    wait_until("it waits", || other.ask("INFO replication").contains("state=wait_bgsave"));
    let mut endless = Kind::Script.begin(&server, false);
    wait_until("it takes too long", || other.ask("GET n") == BUSY);
    let is_over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let asking = scope.spawn(|| {
            while !is_over.load(Ordering::Relaxed) {
                other.send(encode(&["EVAL", brief, "1", "other"]));
                other.expect("$-1\r\n");
            }
        });
        // A line each second: the snapshot is due.
        assert_eq!(replica.take(4), b"\n\n\n\n");
        is_over.store(true, Ordering::Relaxed);
        asking.join().expect("each has run");
    });
    other.check("SCRIPT KILL", OK);
    assert!(reply(&mut endless).contains("Script killed by user"));
    assert!(replica.line().starts_with("+FULLRESYNC "));
}
