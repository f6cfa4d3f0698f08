//! The conditions of EXEC (Valkey 9.2; not compared with a running server).

use crate::common::{Client, Server, encode, field, wait_until};

const ABORTED: &str = "-EXECABORT Transaction discarded because of: ";
const OTHER_TYPE: &str = "WRONGTYPE Operation against a key holding the wrong kind of value";

/// A transaction that writes `mark`, ended by this EXEC.
#[track_caller]
fn check(client: &mut Client, exec: &str, reply: &str) {
    client.check("MULTI", "+OK\r\n");
    client.check("SET mark 1", "+QUEUED\r\n");
    client.check(exec, reply);
    let has_run = reply.starts_with("*1");
    client.check("DEL mark", if has_run { ":1\r\n" } else { ":0\r\n" });
    client.check("EXEC", "-ERR EXEC without MULTI\r\n");
}

#[test]
fn the_queue_runs_if_they_hold() {
    for workers in [1, 4] {
        let server = Server::with_workers(workers, &[]);
        let mut client = server.client();
        client.check("MSET a 1 b text", "+OK\r\n");
        client.check("RPUSH l x", ":1\r\n");
        let (runs, none) = ("*1\r\n+OK\r\n", "*-1\r\n");
        for (exec, reply) in [
            ("EXEC IFEQ a 1", runs),
            ("EXEC IFEQ a 01", none),
            ("exec ifeq b text nx c xx l IFNE a 2 IFNE c x", runs),
            ("EXEC IFEQ b tex", none),
            ("EXEC IFEQ c x", none),
            ("EXEC IFNE a 1", none),
            ("EXEC NX a", none),
            ("EXEC XX c", none),
            ("EXEC XX a XX b XX c", none),
            ("EXEC NX l", none),
        ] {
            check(&mut client, exec, reply);
        }
        for words in ["IFEQ", "IFEQ a", "NX", "XX a IFNE b", "a", "XX a b", "NX a IFGT b 1"] {
            check(
                &mut client,
                &format!("EXEC {words}"),
                &format!("{ABORTED}invalid check condition syntax\r\n"),
            );
        }
        for words in ["IFEQ l x", "IFNE l x", "XX a IFEQ l x"] {
            check(&mut client, &format!("EXEC {words}"), &format!("{ABORTED}{OTHER_TYPE}\r\n"));
        }
        // The first condition decides.
        check(&mut client, "EXEC NX a IFEQ l x", none);
        client.check("EXEC IFEQ a 1", "-ERR EXEC without MULTI\r\n");
    }
}

#[test]
fn a_watched_key_that_has_changed_comes_first() {
    let server = Server::start(&[]);
    let (mut client, mut other) = (server.client(), server.client());
    client.check("WATCH a", "+OK\r\n");
    other.check("SET a 1", "+OK\r\n");
    check(&mut client, "EXEC nonsense", "*-1\r\n");
    client.check("MULTI", "+OK\r\n");
    client.check("NOPE", "-ERR unknown command 'NOPE', with args beginning with: \r\n");
    client.check("EXEC nonsense", "-EXECABORT Transaction discarded because of previous errors.\r\n");
    // Either way nothing is watched any more.
    client.check("WATCH a", "+OK\r\n");
    check(&mut client, "EXEC NX a", "*-1\r\n");
    other.check("SET a 2", "+OK\r\n");
    check(&mut client, "EXEC XX a", "*1\r\n+OK\r\n");
}

/// They are looked at without a trace, and as of the moment of EXEC, in the database that it is sent in.
#[test]
fn they_leave_no_trace() {
    let server = Server::start(&["--maxmemory-policy", "allkeys-lfu", "--notify-keyspace-events", "Em"]);
    let mut client = server.client();
    let mut events = server.client();
    events.check(
        "SUBSCRIBE __keyevent@0__:keymiss",
        "*3\r\n$9\r\nsubscribe\r\n$22\r\n__keyevent@0__:keymiss\r\n:1\r\n",
    );
    client.check("SET a 1 PX 1000", "+OK\r\n");
    let hits = |client: &mut Client| {
        (client.info("stats", "keyspace_hits"), client.info("stats", "keyspace_misses"))
    };
    let before = hits(&mut client);
    check(&mut client, "EXEC XX a NX b", "*1\r\n+OK\r\n");
    assert_eq!(hits(&mut client), before);
    wait_until("it is over", || client.ask("PTTL a") == ":-2\r\n");
    let before = hits(&mut client);
    check(&mut client, "EXEC NX a", "*1\r\n+OK\r\n");
    assert_eq!(hits(&mut client), before);
    client.check("SELECT 1", "+OK\r\n");
    client.check("SET a 1", "+OK\r\n");
    client.check("SELECT 0", "+OK\r\n");
    client.check("MULTI", "+OK\r\n");
    client.check("SELECT 1", "+QUEUED\r\n");
    client.check("EXEC XX a", "*-1\r\n");
    events.expect("*3\r\n$7\r\nmessage\r\n$22\r\n__keyevent@0__:keymiss\r\n$1\r\na\r\n");
}

#[test]
fn their_keys_are_keys() {
    let server = Server::start(&["--cluster-enabled", "yes"]);
    let mut client = server.client();
    client.check("CLUSTER ADDSLOTSRANGE 0 16383", "+OK\r\n");
    wait_until("the cluster is up", || client.ask("GET {a}") == "$-1\r\n");
    client.check("COMMAND GETKEYS EXEC IFEQ a 1 NX b", "*2\r\n$1\r\na\r\n$1\r\nb\r\n");
    client.check("COMMAND GETKEYSANDFLAGS EXEC XX a", "*1\r\n*2\r\n$1\r\na\r\n*2\r\n+RO\r\n+access\r\n");
    client.check("MULTI", "+OK\r\n");
    client.check("SET {a}mark 1", "+QUEUED\r\n");
    client.check("EXEC NX {b}", "-CROSSSLOT Keys in request don't hash to the same slot\r\n");
    client.check("MULTI", "+OK\r\n");
    client.check("SET {a}mark 1", "+QUEUED\r\n");
    client.check("EXEC NX {a}b", "*1\r\n+OK\r\n");
}

/// The keys of conditions wait for a script that has them, as those of the queue do.
#[test]
fn their_keys_wait_for_a_script() {
    let server = Server::with_workers(2, &[]);
    let (mut script, mut admin, mut client) = (server.client(), server.client(), server.client());
    script.send(encode(&["EVAL", "while true do redis.call('GET', KEYS[1]) end", "1", "k"]));
    wait_until("the script takes long", || field(&admin.ask("INFO stats"), "long_scripts") == 1);
    client.check("MULTI", "+OK\r\n");
    client.check("PING", "+QUEUED\r\n");
    client.send(encode(&["EXEC", "NX", "k"]));
    wait_until("it waits", || field(&admin.ask("INFO stats"), "total_script_waits") == 1);
    admin.check("SCRIPT KILL", "+OK\r\n");
    client.expect("*1\r\n+PONG\r\n");
}
