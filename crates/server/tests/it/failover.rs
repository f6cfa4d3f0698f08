//! FAILOVER: the users who may ask for it, the fate of writes meanwhile, and that no answered write is lost.
//! Other ends are Isotherm, scripted replicas that answer what they like, and Valkey.

use std::io::{Read, Write};
use std::net::TcpListener;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use crate::aof::{Data, kill};
use crate::common::{self, Client, OnDrop, Server, encode, field, text_field, wait_until};
use crate::primary::{Replica, change, expect_equal, start, valkey};

const ID_LEN: usize = 40;
const READ_ONLY: &str = "-READONLY You can't write against a read only replica.\r\n";

fn state(client: &mut Client) -> String {
    text_field(&client.ask("INFO replication"), "master_failover_state").to_string()
}

fn wait_for_state(client: &mut Client, name: &str) {
    wait_until(name, || state(client) == name);
}

fn is_primary(client: &mut Client) -> bool {
    client.ask("INFO replication").contains("role:master")
}

pub fn follow(replica: &Server, primary: &Server) {
    let mut client = replica.client();
    client.ask(&format!("REPLICAOF 127.0.0.1 {}", primary.port));
    wait_until("the link is up", || client.ask("INFO replication").contains("master_link_status:up"));
    let (mut primary, mark) = (primary.client(), format!("port={},state=online", replica.port));
    wait_until("it is online", || primary.ask("INFO replication").contains(&mark));
}

/// Stops the process where it is. A signal that was sent may not have stopped all threads yet.
pub fn suspend(server: &Server) {
    server.signal("STOP");
    wait_until("all threads have stopped", || {
        let mut tasks = std::fs::read_dir(format!("/proc/{}/task", server.pid())).unwrap();
        tasks.all(|task| {
            let status = std::fs::read_to_string(task.unwrap().path().join("status")).unwrap_or_default();
            status.lines().any(|line| line.starts_with("State:\tT"))
        })
    });
}

fn start_debugged() -> Server {
    start(&["--enable-debug-command", "yes"])
}

/// A primary and its replica.
fn pair() -> (Server, Server) {
    let (first, second) = (start_debugged(), start_debugged());
    follow(&second, &first);
    (first, second)
}

/// The numbers of snapshots and continuations of both sides.
fn syncs(client: &mut Client) -> (u64, u64) {
    let stats = client.ask("INFO stats");
    (field(&stats, "sync_full"), field(&stats, "sync_partial_ok"))
}

#[test]
fn requests_that_are_refused() {
    let (first, second) = pair();
    let (mut one, mut two) = (first.client(), second.client());
    let target = format!("127.0.0.1 {}", second.port);
    for (request, reply) in [
        ("FAILOVER ABORT".into(), "-ERR No failover in progress.\r\n"),
        ("FAILOVER TIMEOUT 0".into(), "-ERR FAILOVER timeout must be greater than 0\r\n"),
        ("FAILOVER TIMEOUT -5".into(), "-ERR FAILOVER timeout must be greater than 0\r\n"),
        ("FAILOVER TIMEOUT x".into(), "-ERR value is not an integer or out of range\r\n"),
        ("FAILOVER TIMEOUT 5 TIMEOUT 6".into(), "-ERR syntax error\r\n"),
        ("FAILOVER TIMEOUT".into(), "-ERR syntax error\r\n"),
        ("FAILOVER ABORT NOW".into(), "-ERR syntax error\r\n"),
        ("FAILOVER TO host".into(), "-ERR syntax error\r\n"),
        ("FAILOVER TO host port".into(), "-ERR value is not an integer or out of range\r\n"),
        (
            "FAILOVER FORCE TIMEOUT 100".into(),
            "-ERR FAILOVER with force option requires both a timeout and target HOST and IP.\r\n",
        ),
        (
            format!("FAILOVER TO {target} FORCE"),
            "-ERR FAILOVER with force option requires both a timeout and target HOST and IP.\r\n",
        ),
        (
            format!("FAILOVER TO nowhere {}", second.port),
            "-ERR FAILOVER target HOST and PORT is not a replica.\r\n",
        ),
        // Itself.
        (
            format!("FAILOVER TO 127.0.0.1 {}", first.port),
            "-ERR FAILOVER target HOST and PORT is not a replica.\r\n",
        ),
    ] {
        one.check(&request, reply);
        assert_eq!(state(&mut one), "no-failover", "{request}");
    }
    two.check("FAILOVER", "-ERR FAILOVER is not valid when server is a replica.\r\n");
    two.check("REPLICAOF NO ONE", "+OK\r\n");
    two.check("FAILOVER", "-ERR FAILOVER requires connected replicas.\r\n");
    one.check("SET key value", "+OK\r\n");
}

/// One that never acknowledges what is written, so that a failover waits.
fn lagging(server: &Server, client: &mut Client, port: u16) -> Replica {
    let mut replica = Replica::new(server);
    for words in [format!("REPLCONF listening-port {port}").as_str(), "REPLCONF capa eof capa psync2"] {
        replica.say(words);
        assert_eq!(replica.line(), "+OK");
    }
    let (_, offset) = replica.full_sync_from_here();
    replica.say(&format!("REPLCONF ACK {offset}"));
    wait_until("it is online", || client.ask("INFO replication").contains("state=online"));
    client.check("SET behind it", "+OK\r\n");
    replica
}

#[test]
fn writes_wait_and_go_on_after_an_abort() {
    let server = start(&[]);
    let mut client = server.client();
    client.check("SET key v", "+OK\r\n");
    let _replica = lagging(&server, &mut client, 7777);
    let (mut writer, mut popper) = (server.client(), server.client());
    popper.send(encode(&["BLPOP", "list", "0"]));
    wait_until("it waits", || client.blocked_count() == 1);
    client.check("FAILOVER", "+OK\r\n");
    assert_eq!(state(&mut client), "waiting-for-sync");
    client.check("FAILOVER", "-ERR FAILOVER already in progress.\r\n");
    client.check("REPLICAOF NO ONE", "-ERR REPLICAOF not allowed while failing over.\r\n");
    client.check("REPLICAOF 127.0.0.1 1", "-ERR REPLICAOF not allowed while failing over.\r\n");
    let mut other = Replica::new(&server);
    other.say("PSYNC ? -1");
    assert_eq!(other.line(), "-NOMASTERLINK Can't SYNC while failing over");
    let info = client.ask("INFO clients");
    assert_eq!(text_field(&info, "paused_reason"), "failover_in_progress");
    assert_eq!(text_field(&info, "paused_actions"), "write");
    // Readers are served; writers wait, whatever clients say of pauses.
    client.check("GET key", "$1\r\nv\r\n");
    writer.send(encode(&["LPUSH", "list", "a", "b"]));
    client.check("CLIENT PAUSE 1", "+OK\r\n");
    wait_until("the client's pause is over", || {
        text_field(&client.ask("INFO clients"), "paused_actions") == "write"
    });
    client.check("CLIENT UNPAUSE", "+OK\r\n");
    writer.expect_silence();
    client.check("FAILOVER ABORT", "+OK\r\n");
    writer.expect(":2\r\n");
    popper.expect("*2\r\n$4\r\nlist\r\n$1\r\nb\r\n");
    assert_eq!(state(&mut client), "no-failover");
    assert_eq!(text_field(&client.ask("INFO clients"), "paused_reason"), "none");
    server.wait_for_log("FAILOVER to any replica aborted: Failover manually aborted");
}

#[test]
fn a_replica_that_lags_or_dies() {
    let server = start(&[]);
    let mut client = server.client();
    let replica = lagging(&server, &mut client, 7777);
    client.check("FAILOVER TO 127.0.0.1 7777 TIMEOUT 100", "+OK\r\n");
    wait_for_state(&mut client, "no-failover");
    server.wait_for_log("FAILOVER requested to 127.0.0.1:7777.");
    server.wait_for_log("FAILOVER to 127.0.0.1:7777 aborted: Replica never caught up before timeout");
    client.check("SET key v", "+OK\r\n");
    // It dies while it is waited for: another may come, or the client gives it up.
    client.check("FAILOVER TO 127.0.0.1 7777", "+OK\r\n");
    drop(replica);
    wait_until("it is gone", || client.info("replication", "connected_slaves") == 0);
    assert_eq!(state(&mut client), "waiting-for-sync");
    client.check("FAILOVER ABORT", "+OK\r\n");
    // It dies before it is asked.
    let port = common::free_port();
    let _replica = lagging(&server, &mut client, port);
    client.check(&format!("FAILOVER TO 127.0.0.1 {port} TIMEOUT 1 FORCE"), "+OK\r\n");
    wait_for_state(&mut client, "failover-in-progress");
    server.wait_for_log(&format!("FAILOVER to 127.0.0.1:{port} time out exceeded, failing over."));
    server.wait_for_log("Error condition on socket for SYNC: Connection refused");
    assert!(!is_primary(&mut client), "there are never two");
    client.check("FAILOVER ABORT", "+OK\r\n");
    assert!(is_primary(&mut client));
    client.check("SET key v", "+OK\r\n");
    assert_eq!(client.ask("CONFIG GET replicaof"), "*2\r\n$9\r\nreplicaof\r\n$0\r\n\r\n");
}

/// A failover to a scripted node, with a write that waits for its end: what that one is asked, and a hand to
/// answer with.
fn ask_scripted(server: &Server, client: &mut Client, writer: &mut Client) -> (Replica, Replica, String) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    let feed = lagging(server, client, port);
    client.check(&format!("FAILOVER TO 127.0.0.1 {port} TIMEOUT 200 FORCE"), "+OK\r\n");
    writer.send(encode(&["SET", "key", "v"]));
    let (stream, _) = listener.accept().expect("it is asked");
    let mut link = Replica::over(stream);
    assert_eq!(link.request(), "PING");
    link.answer("+PONG");
    loop {
        let request = link.request();
        if request.starts_with("PSYNC") {
            return (feed, link, request);
        }
        link.answer("+OK");
    }
}

#[test]
fn what_the_other_node_may_answer() {
    let server = start(&[]);
    let mut client = server.client();
    let mut waiting = server.client();
    waiting.send(encode(&["BLPOP", "list", "0"]));
    // One that can follow a redirection, and one that reads of replicas too.
    let (mut follows, mut reads) = (server.client(), server.client());
    follows.check("CLIENT CAPA redirect", "+OK\r\n");
    follows.send(encode(&["BLPOP", "list", "0"]));
    reads.check("READONLY", "+OK\r\n");
    reads.send(encode(&["XREAD", "BLOCK", "0", "STREAMS", "stream", "0-0"]));
    wait_until("they wait", || client.blocked_count() == 3);
    for (answer, stays) in [
        ("-ERR PSYNC FAILOVER can't be sent to a master.", true),
        ("-NOMASTERLINK Can't SYNC while not connected with my master", true),
        ("-NOPERM no", true),
        ("", true),
        ("+CONTINUE 0123456789012345678901234567890123456789", false),
    ] {
        let mut writer = server.client();
        let (_feed, mut link, request) = ask_scripted(&server, &mut client, &mut writer);
        let end = client.info("replication", "master_repl_offset");
        let id = text_field(&client.ask("INFO replication"), "master_replid").to_string();
        assert_eq!(request, format!("PSYNC {id} {} FAILOVER", end + 1));
        let mut reader = server.client();
        reader.check("CLIENT CAPA redirect", "+OK\r\n");
        reader.send(encode(&["GET", "later"]));
        writer.expect_silence();
        reader.expect_silence();
        wait_until("they wait as well", || client.blocked_count() == 5);
        client.check("SET later v", READ_ONLY);
        match answer {
            "" => drop(link),
            answer => link.answer(answer),
        }
        wait_for_state(&mut client, "no-failover");
        assert_eq!(is_primary(&mut client), stays, "{answer}");
        if stays {
            writer.expect("+OK\r\n");
            server.wait_for_log("aborted: Failover target rejected psync request");
            reader.expect("$-1\r\n");
            wait_until("the others wait still", || client.blocked_count() == 3);
        } else {
            writer.expect(READ_ONLY);
            let redirection = redirection(&mut client);
            reader.expect(&redirection);
            follows.expect(&redirection);
            follows.check("PING", "+PONG\r\n");
            reads.expect_silence();
            wait_until("one waits", || client.blocked_count() == 1);
            waiting.expect(
                "-UNBLOCKED force unblock from blocking operation, instance state changed (master -> replica?)\r\n",
            );
        }
    }
}

/// The answer to a client that can follow.
fn redirection(client: &mut Client) -> String {
    let info = client.ask("INFO replication");
    format!("-REDIRECT {}:{}\r\n", text_field(&info, "master_host"), text_field(&info, "master_port"))
}

#[test]
fn a_replica_sends_those_on_that_can_follow() {
    let (first, second) = pair();
    let mut client = first.client();
    client.check("SET k v", "+OK\r\n");
    let mut replica = second.client();
    wait_until("it is there", || replica.ask("GET k") == "$1\r\nv\r\n");
    let redirection = redirection(&mut replica);
    // Queued while it was a primary.
    let mut queued = first.client();
    queued.check("CLIENT CAPA redirect", "+OK\r\n");
    queued.check("MULTI", "+OK\r\n");
    queued.check("SET k w", "+QUEUED\r\n");
    replica.check("CLIENT CAPA redirect other", "+OK\r\n");
    for command in ["SET k w", "GET k", "BLPOP l 0", "XREAD BLOCK 0 STREAMS s 0"] {
        replica.check(command, &redirection);
    }
    for command in ["PING", "INFO", "CONFIG GET port", "SUBSCRIBE c", "UNSUBSCRIBE c"] {
        assert!(!replica.ask(command).starts_with('-'), "{command}");
    }
    replica.check("MULTI", "+OK\r\n");
    replica.check("GET k", &redirection);
    replica.check("EXEC", "-EXECABORT Transaction discarded because of previous errors.\r\n");
    replica.check("READONLY", "+OK\r\n");
    assert!(replica.ask("CLIENT INFO").contains(" flags=r capa=r "));
    replica.check("GET k", "$1\r\nv\r\n");
    replica.check("SET k w", &redirection);
    replica.check("MULTI", "+OK\r\n");
    replica.check("GET k", "+QUEUED\r\n");
    replica.check("EXEC", "*1\r\n$1\r\nv\r\n");
    replica.check("READWRITE", "+OK\r\n");
    replica.check("GET k", &redirection);
    replica.check("READONLY", "+OK\r\n");
    replica.check("RESET", "+RESET\r\n");
    replica.check("GET k", &redirection);
    // The primary becomes a replica: EXEC names where to go, and the transaction is over.
    client.check("FAILOVER", "+OK\r\n");
    wait_until("it was handed over", || !is_primary(&mut client));
    wait_for_state(&mut client, "no-failover");
    let back = self::redirection(&mut client);
    queued.check("EXEC", &back);
    queued.check("EXEC", "-ERR EXEC without MULTI\r\n");
    replica.check("GET k", "$1\r\nv\r\n");
}

/// A script that reads continues while the other node refuses: the end of the handover does not wait for it.
#[test]
fn one_that_is_refused_ends_beside_a_script() {
    let server = start(&[]);
    let (mut client, mut writer, mut scripts) = (server.client(), server.client(), server.client());
    let (_feed, mut link, _request) = ask_scripted(&server, &mut client, &mut writer);
    scripts.send(encode(&["EVAL_RO", "while true do redis.call('GET', KEYS[1]) end", "1", "n"]));
    wait_until("it takes long", || client.info("stats", "long_scripts") == 1);
    link.answer("-NOPERM no");
    wait_for_state(&mut client, "no-failover");
    assert!(is_primary(&mut client));
    writer.expect("+OK\r\n");
    client.check("SET other v", "+OK\r\n");
    client.check("SCRIPT KILL", "+OK\r\n");
    let killed = String::from_utf8_lossy(&scripts.read_reply()).into_owned();
    assert!(killed.contains("Script killed by user"), "{killed}");
}

#[test]
fn the_one_that_is_asked() {
    let (first, second) = pair();
    let mut one = first.client();
    let id = text_field(&one.ask("INFO replication"), "master_replid").to_string();
    assert_eq!(id.len(), ID_LEN);
    let mut asker = Replica::new(&first);
    asker.say(&format!("PSYNC {id} 1 FAILOVER"));
    assert_eq!(asker.line(), "-ERR PSYNC FAILOVER can't be sent to a master.");
    asker = Replica::new(&second);
    asker.say(&format!("PSYNC {} 1 FAILOVER", "0".repeat(ID_LEN)));
    assert_eq!(asker.line(), "-ERR PSYNC FAILOVER replid must match my replid.");
    assert!(!is_primary(&mut second.client()));
    // A PING of the stream may be on its way.
    let mut end = 0;
    wait_until("both are at one offset", || {
        end = one.info("replication", "master_repl_offset");
        second.client().info("replication", "master_repl_offset") == end
    });
    asker.say("REPLCONF capa psync2");
    assert_eq!(asker.line(), "+OK");
    asker.say(&format!("PSYNC {id} {} FAILOVER", end + 1));
    let line = asker.line();
    assert!(line.starts_with("+CONTINUE ") && !line.contains(&id), "{line}");
    assert!(is_primary(&mut second.client()));
    second.wait_for_log(&format!("Failover request received for replid {id}."));
    second.wait_for_log("PRIMARY MODE enabled (failover request from 'id=");
}

#[test]
fn one_that_was_promoted_meanwhile_refuses() {
    let (first, second) = pair();
    let (mut one, mut two) = (first.client(), second.client());
    // Both change roles at once: the other end of the link is a primary before it is asked to be one.
    suspend(&second);
    one.check("SET key v", "+OK\r\n");
    one.check(&format!("FAILOVER TO 127.0.0.1 {} TIMEOUT 1 FORCE", second.port), "+OK\r\n");
    two.send(encode(&["REPLICAOF", "NO", "ONE"]));
    wait_for_state(&mut one, "failover-in-progress");
    second.signal("CONT");
    two.expect("+OK\r\n");
    wait_for_state(&mut one, "no-failover");
    assert!(is_primary(&mut two));
    // Which of the two came first is open; a handover that was refused leaves two primaries, as REPLICAOF NO
    // ONE has asked for.
    if is_primary(&mut one) {
        first.wait_for_log("aborted: Failover target rejected psync request");
    }
    let reply = one.ask(&format!("REPLICAOF 127.0.0.1 {}", second.port));
    assert!(reply.starts_with("+OK"), "{reply}");
    wait_until("the link is up", || one.ask("INFO replication").contains("master_link_status:up"));
    expect_equal(&mut two, &mut one);
}

#[test]
fn siblings_and_the_former_primary_go_on_without_a_snapshot() {
    let (first, second) = pair();
    let third = start_debugged();
    follow(&third, &first);
    let (mut one, mut two, mut three) = (first.client(), second.client(), third.client());
    change(&mut one, 1);
    one.check(&format!("FAILOVER TO 127.0.0.1 {}", second.port), "+OK\r\n");
    wait_for_state(&mut one, "no-failover");
    assert!(is_primary(&mut two) && !is_primary(&mut one));
    first.wait_for_log(&format!("Failover target 127.0.0.1:{} is synced, failing over.", second.port));
    follow(&third, &second);
    change(&mut two, 2);
    expect_equal(&mut two, &mut one);
    expect_equal(&mut two, &mut three);
    assert_eq!(syncs(&mut two), (0, 2), "one continuation each");
    assert_eq!(syncs(&mut one).0, 2, "the first two");
    assert!(one.ask("CONFIG GET replicaof").contains(&format!("127.0.0.1 {}", second.port)));
}

// ---- under load ----

/// Writes to whichever of the servers takes it, one request after the other, until it is stopped. Returns how
/// many were answered, each a key of its own.
fn write(ports: [u16; 2], name: &str, pipeline: usize, stop: &AtomicBool) -> Vec<usize> {
    let (mut answered, mut number, mut at) = (Vec::new(), 0, 0);
    'connections: while !stop.load(Ordering::Relaxed) {
        let Ok(stream) = std::net::TcpStream::connect(("127.0.0.1", ports[at % 2])) else { break };
        let mut client = Client::over(stream);
        while !stop.load(Ordering::Relaxed) {
            let numbers = number..number + pipeline;
            let mut batch = Vec::new();
            for number in numbers.clone() {
                batch.extend(encode(&["SET", &format!("{name}:{number}"), &number.to_string()]));
            }
            number += pipeline;
            client.send(&batch);
            let mut is_refused = false;
            for number in numbers {
                match &client.read_reply()[..] {
                    b"+OK\r\n" => answered.push(number),
                    reply => {
                        let text = String::from_utf8_lossy(reply).into_owned();
                        assert!(text.starts_with("-READONLY"), "{text}");
                        is_refused = true;
                    }
                }
            }
            if is_refused {
                at += 1;
                thread::sleep(Duration::from_millis(1));
                continue 'connections;
            }
        }
    }
    answered
}

/// Hands over again and again between the two while clients write, and looks for each answered write
/// afterwards.
fn hand_over_under_load(first: &Server, second: &Server, times: usize) {
    let stop = AtomicBool::new(false);
    let ports = [first.port, second.port];
    let (mut one, mut two) = (first.client(), second.client());
    let written = thread::scope(|scope| {
        let stop = &stop;
        let _stopping = OnDrop(|| stop.store(true, Ordering::Relaxed));
        let writers: Vec<_> = [("a", 1), ("b", 1), ("c", 16)]
            .map(|(name, pipeline)| (name, scope.spawn(move || write(ports, name, pipeline, stop))))
            .into();
        for time in 0..times {
            let (from, to) = if time.is_multiple_of(2) { (&mut one, &mut two) } else { (&mut two, &mut one) };
            wait_until("the replica is online", || from.ask("INFO replication").contains("state=online"));
            let before = to.info("stats", "total_commands_processed");
            wait_until("it has had some load", || {
                to.info("stats", "total_commands_processed") > before + 200
            });
            from.check("FAILOVER", "+OK\r\n");
            wait_for_state(from, "no-failover");
            assert!(!is_primary(from) && is_primary(to));
        }
        stop.store(true, Ordering::Relaxed);
        writers.into_iter().map(|(name, writer)| (name, writer.join().unwrap())).collect::<Vec<_>>()
    });
    let (last, other) = if times.is_multiple_of(2) { (&mut one, &mut two) } else { (&mut two, &mut one) };
    wait_until("the link is up", || other.ask("INFO replication").contains("master_link_status:up"));
    expect_equal(last, other);
    for (name, numbers) in written {
        assert!(numbers.len() > times, "{name} has written");
        for number in numbers {
            let value = number.to_string();
            last.check(&format!("GET {name}:{number}"), &format!("${}\r\n{value}\r\n", value.len()));
        }
    }
    let (ours, theirs) = (syncs(&mut one), syncs(&mut two));
    assert_eq!((ours.0 + theirs.0, ours.1 + theirs.1), (1, times as u64), "one snapshot, then none");
}

#[test]
fn no_answered_write_is_lost() {
    let (first, second) = pair();
    hand_over_under_load(&first, &second, 10);
}

#[test]
fn no_answered_write_is_lost_between_this_server_and_valkey() {
    let server = start_debugged();
    let Some(theirs) = valkey(&server) else { return };
    let mut client = theirs.client();
    wait_until("the link is up", || client.ask("INFO replication").contains("master_link_status:up"));
    hand_over_under_load(&server, &theirs, 6);
}

// ---- the end waits for replicas ----

/// A primary whose replica is suspended and lacks a write.
fn behind(more: &[&str]) -> (Server, Server) {
    let first = start(&[&["--enable-debug-command", "yes", "--save", ""], more].concat());
    let second = start_debugged();
    follow(&second, &first);
    let mut client = first.client();
    client.check("SET k 1", "+OK\r\n");
    client.check("WAIT 1 20000", ":1\r\n");
    suspend(&second);
    client.check("INCR k", ":2\r\n");
    (first, second)
}

fn wait_for_end_under_way(client: &mut Client) {
    wait_until("the end is under way", || client.ask("INFO server").contains("shutdown_in_milliseconds:"));
}

#[test]
fn the_end_waits_for_a_replica() {
    for by_signal in [true, false] {
        let (mut first, second) = behind(&["--shutdown-timeout", "300"]);
        let (mut client, mut asker, mut writer) = (first.client(), first.client(), first.client());
        match by_signal {
            true => first.signal("TERM"),
            false => asker.send(encode(&["SHUTDOWN"])),
        }
        wait_for_end_under_way(&mut client);
        let info = client.ask("INFO clients");
        assert_eq!(text_field(&info, "paused_reason"), "shutdown_in_progress");
        client.check("GET k", "$1\r\n2\r\n");
        writer.send(encode(&["INCR", "k"]));
        writer.expect_silence();
        second.signal("CONT");
        assert_eq!(first.wait().code(), Some(0));
        assert_eq!(String::from_utf8_lossy(&writer.read_to_end()), "", "it was not answered");
        asker.expect_end();
        second.client().check("GET k", "$1\r\n2\r\n");
        let log = first.log();
        assert!(log.contains("Waiting for replicas before shutting down."), "{log}");
        assert!(log.contains("1 of 1 replicas are in sync when shutting down."), "{log}");
        assert!(log.contains("is now ready to exit, bye bye"), "{log}");
    }
}

#[test]
fn the_end_waits_so_long_and_no_longer() {
    for (options, timeout) in [("", "1"), ("NOW", "300"), ("", "0")] {
        let (mut first, second) = behind(&["--shutdown-timeout", timeout]);
        first.client().send(encode(&format!("SHUTDOWN {options}").split_whitespace().collect::<Vec<_>>()));
        assert_eq!(first.wait().code(), Some(0));
        let log = first.log();
        assert_eq!(log.contains("Waiting for replicas"), timeout == "1", "{log}");
        let lagging = format!("Lagging replica 127.0.0.1:{} reported offset", second.port);
        assert!(log.contains(&lagging) && log.contains("state=online."), "{log}");
        assert!(log.contains("0 of 1 replicas are in sync when shutting down."), "{log}");
    }
}

#[test]
fn an_end_that_waits_is_called_off_or_fails() {
    let (mut first, second) = behind(&["--shutdown-timeout", "300", "--shutdown-on-sigterm", "save"]);
    const FAILED: &str = "-ERR Errors trying to SHUTDOWN. Check logs.\r\n";
    let mut client = first.client();
    let mut askers = [first.client(), first.client()];
    let ask = |askers: &mut [Client; 2], client: &mut Client| {
        askers.iter_mut().for_each(|asker| asker.send(encode(&["SHUTDOWN", "SAVE"])));
        wait_until("both wait", || client.blocked_count() == 2);
        wait_until("the end is near", || client.ask("INFO server").contains("shutdown_in_milliseconds:"));
    };
    ask(&mut askers, &mut client);
    let id = client.listed("cmd=shutdown", "id").expect("it waits");
    client.check(&format!("CLIENT UNBLOCK {id} ERROR"), ":0\r\n");
    client.check("SHUTDOWN ABORT", "+OK\r\n");
    askers.iter_mut().for_each(|asker| asker.expect(FAILED));
    client.check("SHUTDOWN ABORT", "-ERR No shutdown in progress.\r\n");
    first.wait_for_log("Shutdown manually aborted.");
    client.check("INCR k", ":3\r\n");
    // The last file cannot be written once the replica has all.
    std::fs::create_dir(first.folder.join("dump.rdb")).unwrap();
    ask(&mut askers, &mut client);
    second.signal("CONT");
    askers.iter_mut().for_each(|asker| asker.expect(FAILED));
    first.wait_for_log("1 of 1 replicas are in sync when shutting down.");
    first.wait_for_log("Errors trying to shut down the server. Check the logs for more information.");
    client.check("INCR k", ":4\r\n");
    assert!(!client.ask("INFO server").contains("shutdown_in_milliseconds:"));
    // One that leaves does not wait any more, and a second interrupt is not patient.
    client.check("WAIT 1 20000", ":1\r\n");
    suspend(&second);
    client.check("INCR k", ":5\r\n");
    first.signal("INT");
    wait_for_end_under_way(&mut client);
    first.signal("INT");
    assert_eq!(first.wait().code(), Some(1));
    first.wait_for_log("You insist... exiting now.");
}

/// Whether the server has answered; it may be gone.
fn is_set(client: &mut Client, key: &str) -> bool {
    let mut reply = [0; 5];
    client.stream.write_all(&encode(&["SET", key, "v"])).is_ok()
        && client.stream.read_exact(&mut reply).is_ok()
        && reply == *b"+OK\r\n"
}

#[test]
fn what_was_answered_before_the_end_is_with_the_replica() {
    let (mut first, second) = pair();
    let stop = AtomicBool::new(false);
    let port = first.port;
    let answered: Vec<usize> = thread::scope(|scope| {
        let stop = &stop;
        let _stopping = OnDrop(|| stop.store(true, Ordering::Relaxed));
        let writers: Vec<_> = (0..3)
            .map(|_| {
                scope.spawn(move || {
                    let mut client = Client::over(std::net::TcpStream::connect(("127.0.0.1", port)).unwrap());
                    let id = client.id();
                    let mut count = 0;
                    while !stop.load(Ordering::Relaxed) && is_set(&mut client, &format!("{id}:{count}")) {
                        count += 1;
                    }
                    (id as usize, count)
                })
            })
            .collect();
        let mut client = second.client();
        wait_until("there is some load", || client.ask_number("DBSIZE") > 3000);
        first.signal("TERM");
        let mut keys = Vec::new();
        for writer in writers {
            let (id, count) = writer.join().unwrap();
            for number in 0..count {
                client.check(&format!("EXISTS {id}:{number}"), ":1\r\n");
            }
            keys.push(count);
        }
        keys
    });
    assert_eq!(first.wait().code(), Some(0));
    assert!(answered.iter().sum::<usize>() > 1000);
    let log = first.log();
    assert!(log.contains("1 of 1 replicas are in sync when shutting down."), "{log}");
}

/// A script that only reads runs while writes pause. The handover waits for it, and nothing else does.
#[test]
fn a_script_is_waited_for_by_the_handover_alone() {
    let (first, second) = pair();
    let (mut client, mut reader) = (first.client(), first.client());
    let begin = |client: &mut Client, reader: &mut Client, timeout_ms: u32| {
        suspend(&second);
        client.check("SET behind it", "+OK\r\n");
        client.check(&format!("FAILOVER TO 127.0.0.1 {} TIMEOUT {timeout_ms}", second.port), "+OK\r\n");
        reader.send(encode(&["EVAL_RO", "while true do redis.call('GET', KEYS[1]) end", "1", "key"]));
    };
    let end = |other: &mut Client, reader: &mut Client| {
        other.check("SCRIPT KILL", "+OK\r\n");
        assert!(String::from_utf8_lossy(&reader.read_reply()).contains("Script killed by user"));
    };
    // A time limit ends the pause during the script.
    begin(&mut client, &mut reader, 300);
    wait_until("it runs", || client.info("stats", "long_scripts") == 1);
    wait_for_state(&mut client, "no-failover");
    first.wait_for_log("aborted: Replica never caught up before timeout");
    let mut new = first.client();
    new.check("SET other v", "+OK\r\n");
    end(&mut new, &mut reader);
    second.signal("CONT");
    wait_until("it has all", || second.client().ask("GET other") == "$1\r\nv\r\n");
    // With all there it waits for the end of the script; a new connection is heard.
    begin(&mut client, &mut reader, 50_000);
    wait_until("it runs", || client.info("stats", "long_scripts") == 1);
    second.signal("CONT");
    let has_all = |client: &mut Client| {
        let info = client.ask("INFO replication");
        let offset = format!(",offset={},", text_field(&info, "master_repl_offset"));
        text_field(&info, "slave0").contains(&offset)
    };
    wait_until("it has all", || has_all(&mut client));
    let mut new = first.client();
    new.check("PING", "+PONG\r\n");
    assert_eq!(state(&mut new), "waiting-for-sync");
    end(&mut new, &mut reader);
    wait_until("it is handed over", || !is_primary(&mut new) && state(&mut new) == "no-failover");
    assert!(is_primary(&mut second.client()));
}

// ---- roles that change within a transaction ----

/// The writes of a transaction before its REPLICAOF belong to the history that ends there: the offset is the
/// one that the other node has, so nothing is left out when the link begins anew.
#[test]
fn a_transaction_that_begins_to_follow_keeps_its_offset() {
    let (first, second) = pair();
    let (mut one, mut two) = (first.client(), second.client());
    change(&mut one, 1);
    expect_equal(&mut two, &mut one);
    two.check("REPLICAOF NO ONE", "+OK\r\n");
    one.check("MULTI", "+OK\r\n");
    for line in
        ["SET before 1", &format!("REPLICAOF 127.0.0.1 {}", second.port), "SET behind 1", "GET before"]
    {
        one.check(line, "+QUEUED\r\n");
    }
    one.send(encode(&["EVAL", "return redis.pcall('SET', KEYS[1], 1)['err']", "1", "behind"]));
    one.expect("+QUEUED\r\n");
    let by_script = READ_ONLY.trim_start_matches('-').trim_end();
    let replies =
        format!("*5\r\n+OK\r\n+OK\r\n{READ_ONLY}$1\r\n1\r\n${}\r\n{by_script}\r\n", by_script.len());
    one.check("EXEC", &replies);
    wait_until("the link is up", || one.ask("INFO replication").contains("master_link_status:up"));
    for round in 0..3 {
        two.check("CLIENT KILL TYPE replica", ":1\r\n");
        change(&mut two, 2 + round);
        wait_until("the link is up again", || two.ask("INFO replication").contains("state=online"));
        expect_equal(&mut one, &mut two);
    }
    one.check("EXISTS behind", ":0\r\n");
}

/// Writes of a transaction behind its REPLICAOF NO ONE are logged, as one unit, those of a script that takes
/// long too.
#[test]
fn a_transaction_that_promotes_is_logged_from_there() {
    let primary = start_debugged();
    let data = Data::new();
    let mut server = data.start(1, &["--appendfsync", "always"]);
    follow(&server, &primary);
    let mut client = server.client();
    let long = "for i = 1, 60000 do redis.call('INCR', KEYS[1]) end return redis.call('GET', KEYS[1])";
    // A replica queues no command that writes for certain.
    let brief = "return redis.call('SET', KEYS[1], 1)";
    client.check("MULTI", "+OK\r\n");
    for words in [&["REPLICAOF", "NO", "ONE"][..], &["EVAL", long, "1", "n"], &["EVAL", brief, "1", "behind"]]
    {
        client.send(encode(words));
        client.expect("+QUEUED\r\n");
    }
    client.check("EXEC", "*3\r\n+OK\r\n$5\r\n60000\r\n+OK\r\n");
    client.check("SET after 1", "+OK\r\n");
    kill(&mut server);
    let server = data.start(1, &[]);
    let mut client = server.client();
    client.check("MGET n behind after", "*3\r\n$5\r\n60000\r\n$1\r\n1\r\n$1\r\n1\r\n");
    client.check("DBSIZE", ":3\r\n");
}

/// A sentinel promotes by a transaction, and asks what has become of it on the same connection: neither waits
/// for replicas that the new primary does not have yet.
#[test]
fn a_promotion_in_a_transaction_waits_for_no_replica() {
    let primary = start(&[]);
    let replica = start(&["--repl-ack-quorum", "1", "--repl-ack-timeout", "60000"]);
    primary.client().check("SET key value", "+OK\r\n");
    follow(&replica, &primary);
    let mut client = replica.client();
    client.check("MULTI", "+OK\r\n");
    client.check("REPLICAOF NO ONE", "+QUEUED\r\n");
    client.check("PING", "+QUEUED\r\n");
    client.send("EXEC\r\nPING\r\n");
    client.expect("*2\r\n+OK\r\n+PONG\r\n");
    client.expect("+PONG\r\n");
    assert!(client.ask("INFO replication").contains("role:master\r\n"));
}
