//! The memory of clients: how it is shown, how long it stays, and which clients are closed when it is too
//! much.

use crate::common::{Client, PATIENCE, Server, encode, wait_until};
use std::io::Write;
use std::time::Instant;

const OK: &str = "+OK\r\n";
const KB: usize = 1 << 10;
const MB: usize = 1 << 20;

/// A field of the line of the client with this name; `None` if there is no such client.
fn field(asking: &mut Client, name: &str, field: &str) -> Option<u64> {
    asking.listed(&format!("name={name}"), field).map(|value| value.parse().unwrap())
}

fn named(server: &Server, name: &str) -> Client {
    let mut client = server.client();
    client.check(&format!("CLIENT SETNAME {name}"), OK);
    client
}

/// `*count` and an argument without the two bytes that end it.
fn unfinished(bytes: usize) -> Vec<u8> {
    [format!("*2\r\n${bytes}\r\n").into_bytes(), vec![b'v'; bytes]].concat()
}

#[test]
fn an_unfinished_request_is_shown_in_parts() {
    let server = Server::start(&[]);
    let (mut asking, mut writing) = (server.client(), named(&server, "writing"));
    let own = field(&mut asking, "writing", "tot-mem").unwrap();
    writing.send("*3\r\n$3\r\nset\r\n$2\r\na");
    wait_until("the bytes are there", || field(&mut asking, "writing", "qbuf") == Some(1));
    assert_eq!(field(&mut asking, "writing", "argv-mem"), Some(3));
    assert_eq!(field(&mut asking, "writing", "qbuf-free"), Some((16 * KB - 18) as u64));
    assert!(field(&mut asking, "writing", "tot-mem").unwrap() >= own + 16 * KB as u64);
    let all: u64 = asking
        .ask("CLIENT LIST")
        .lines()
        .filter_map(|line| line.split(' ').find_map(|part| part.strip_prefix("tot-mem=")))
        .map(|bytes| bytes.parse::<u64>().unwrap())
        .sum();
    let asked_with = "CLIENTLIST".len() as u64;
    let info = asking.ask("INFO memory");
    assert!(info.contains(&format!("mem_clients_normal:{}\r\n", all - asked_with)), "{all} {info}");
    // Once it has run, the room stays for another; two idle seconds later it is gone.
    writing.send("b\r\n$1\r\nc\r\n");
    writing.expect(OK);
    assert_eq!(field(&mut asking, "writing", "argv-mem"), Some(0));
    assert_eq!(field(&mut asking, "writing", "qbuf-free"), Some(16 * KB as u64));
    wait_until("the room is given back", || field(&mut asking, "writing", "qbuf-free") == Some(0));
    assert_eq!(field(&mut asking, "writing", "tot-mem"), Some(own));
}

#[test]
fn room_shrinks_to_what_is_needed() {
    let server = Server::start(&["--enable-debug-command", "yes"]);
    let (mut asking, mut writing) = (server.client(), named(&server, "writing"));
    asking.check("DEBUG PAUSE-CRON 1", OK);
    writing.check(&format!("SET k {}", "v".repeat(400_000)), OK);
    assert!(field(&mut asking, "writing", "qbuf-free").unwrap() >= 400_000);
    asking.check("DEBUG PAUSE-CRON 0", OK);
    wait_until("it shrinks while it is busy", || {
        writing.check("SET k v", OK);
        field(&mut asking, "writing", "qbuf-free") == Some(16 * KB as u64)
    });
    // An announced length takes nothing, and the room is never more than twice what has arrived.
    writing.send("*2\r\n$100000000\r\n");
    writing.send(vec![b'v'; 300_000]);
    wait_until("all of it is there", || field(&mut asking, "writing", "qbuf") == Some(300_000));
    let taken = field(&mut asking, "writing", "tot-mem").unwrap();
    assert!((300_000..=650_000).contains(&taken), "{taken}");
}

/// A pipeline of 2.5 KB is read in two parts, with a request cut between them: what was kept of it goes too.
#[test]
fn a_pipeline_in_two_parts_leaves_nothing() {
    let server = Server::start(&[]);
    let (mut asking, mut client) = (server.client(), named(&server, "piping"));
    let own = field(&mut asking, "piping", "tot-mem");
    client.send(encode(&["SET", "k", &"v".repeat(50)]).repeat(32));
    (0..32).for_each(|_| client.expect(OK));
    wait_until("nothing is left", || field(&mut asking, "piping", "tot-mem") == own);
    client.check("PING", "+PONG\r\n");
    assert_eq!(field(&mut asking, "piping", "tot-mem"), own);
}

/// A command that was refused or queued is the last command, and has not run.
#[test]
fn commands_that_ran_are_counted() {
    let server = Server::start(&[]);
    let (mut asking, mut client) = (server.client(), named(&server, "counted"));
    let is = |asking: &mut Client, count: u64, command: &str| {
        assert_eq!(field(asking, "counted", "tot-cmds"), Some(count));
        assert!(asking.ask("CLIENT LIST SKIPME yes").contains(&format!(" cmd={command} ")), "{command}");
    };
    is(&mut asking, 1, "client|setname");
    client.ask("NOSUCH");
    is(&mut asking, 1, "NULL");
    client.ask("GET");
    is(&mut asking, 1, "get");
    client.check("MULTI", OK);
    client.check("SET k v", "+QUEUED\r\n");
    is(&mut asking, 2, "set");
    assert_eq!(field(&mut asking, "counted", "multi-mem"), Some(5 + 3 * 8));
    client.check("EXEC", "*1\r\n+OK\r\n");
    is(&mut asking, 4, "exec");
}

/// A client that sends many small arguments does not say how many bytes they are.
#[test]
fn many_arguments_are_read_in_large_pieces() {
    let server = Server::start(&[]);
    let mut client = server.client();
    let names: Vec<String> = (0..300_000).map(|number| format!("k{number}")).collect();
    let words: Vec<&str> = ["UNLINK"].into_iter().chain(names.iter().map(String::as_str)).collect();
    client.send(encode(&words));
    client.expect(":0\r\n");
    let reads = client.info("stats", "total_reads_processed");
    assert!(reads < 2000, "{reads} reads");
    // The room of 4 MB that they needed is gone: it was not for one large argument.
    let info = client.ask("CLIENT INFO");
    assert!(info.contains(" qbuf=0 qbuf-free=0 argv-mem=10 "), "{info}");
}

#[test]
fn who_takes_most_is_closed_first() {
    let server = Server::start(&[]);
    let mut control = named(&server, "control");
    control.check("CLIENT NO-EVICT ON", OK);
    let mut others = Vec::new();
    for (size, name) in [(128 * KB, "small"), (MB, "middle"), (3 * MB, "large")] {
        for number in 0..2 {
            let name = format!("{name}{number}");
            let mut client = named(&server, &name);
            client.send(unfinished(size));
            wait_until("the bytes are there", || field(&mut control, &name, "qbuf") == Some(size as u64));
            others.push(client);
        }
    }
    let is_there = |control: &mut Client, name: &str| field(control, name, "id").is_some();
    // 10 MB are there. Closing has happened when the next command is answered.
    control.check("CONFIG SET maxmemory-clients 5mb", OK);
    assert!(!is_there(&mut control, "large0") && !is_there(&mut control, "large1"));
    assert!(is_there(&mut control, "middle0") && is_there(&mut control, "middle1"));
    control.check("CONFIG SET maxmemory-clients 1mb", OK);
    assert!(!is_there(&mut control, "middle0") && !is_there(&mut control, "middle1"));
    assert!(is_there(&mut control, "small0") && is_there(&mut control, "small1"));
    let stats = control.ask("INFO stats");
    assert!(stats.contains("\r\nevicted_clients:4\r\n"), "{stats}");
    server.wait_for_log("Evicting client: id=");
    // The smallest limit is 128 KB, whatever was asked for: the control client takes less.
    control.check("CONFIG SET maxmemory-clients 1", OK);
    control.check("CLIENT NO-EVICT OFF", OK);
    control.check("PING", "+PONG\r\n");
    drop(others);
}

#[test]
fn a_large_request_closes_its_client_before_it_runs() {
    let server = Server::start(&["--maxmemory-clients", "3000000"]);
    let (mut asking, mut writing) = (server.client(), server.client());
    writing.check(&format!("SET k {}", "v".repeat(1_000_000)), OK);
    // The end of it may not be read any more.
    let _ = writing.stream.write_all(&encode(&["SET", "k", &"w".repeat(3_000_000)]));
    writing.read_to_end();
    asking.check("STRLEN k", ":1000000\r\n");
    // A client that may not be closed is not.
    asking.check("CLIENT NO-EVICT ON", OK);
    let mut kept = named(&server, "kept");
    kept.check("CLIENT NO-EVICT ON", OK);
    kept.send(unfinished(4_000_000));
    wait_until("the bytes are there", || field(&mut asking, "kept", "qbuf") == Some(4_000_000));
    kept.send("\r\n$1\r\nx\r\n");
    assert!(kept.read_reply().starts_with(b"-ERR unknown command"));
}

#[test]
fn unread_replies_count() {
    let server = Server::start(&["--client-output-buffer-limit", "normal 0 0 0"]);
    let (mut asking, mut rude) = (server.client(), named(&server, "rude"));
    asking.check("CLIENT NO-EVICT ON", OK);
    asking.check(&format!("SET k {}", "v".repeat(MB)), OK);
    rude.send(encode(&["GET", "k"]).repeat(30));
    // It may leave more than 1 MB unread while no other client does.
    wait_until("they wait", || field(&mut asking, "rude", "omem").unwrap() > 10 * MB as u64);
    assert!(field(&mut asking, "rude", "oll").unwrap() > 1);
    asking.check("CONFIG SET maxmemory-clients 1mb", OK);
    wait_until("it is closed", || field(&mut asking, "rude", "id").is_none());
}

/// A handler that repeats itself stops when its client is closed anyway: the reply would have 10 GB.
#[test]
fn no_client_waits_for_a_lost_reply() {
    let server = Server::start(&["--client-output-buffer-limit", "normal 1000000 0 0"]);
    let mut asking = server.client();
    asking.check("HSET h f v", ":1\r\n");
    asking.check("SADD s m", ":1\r\n");
    asking.check("ZADD z 1 m", ":1\r\n");
    for request in ["HRANDFIELD h -999999999", "SRANDMEMBER s -999999999", "ZRANDMEMBER z -200000000"] {
        let begun = Instant::now();
        let mut greedy = server.client();
        greedy.send(encode(&request.split(' ').collect::<Vec<_>>()));
        greedy.expect_end();
        assert!(begun.elapsed() < PATIENCE / 2, "{request}");
    }
    asking.check("PING", "+PONG\r\n");
    assert!(server.resident_bytes() < 100 * MB as u64);
}

/// All replies to what was read at once count together, before any of them is written.
#[test]
fn a_pipeline_is_judged_as_a_whole() {
    let server = Server::start(&["--client-output-buffer-limit", "normal 100000 0 0"]);
    let mut client = server.client();
    client.check(&format!("SET k {}", "v".repeat(10_000)), OK);
    client.send("GET k\r\nPING\r\nPING\r\nPING\r\n".repeat(15));
    client.expect_end();
    server.wait_for_log("closed for overcoming of output buffer limits");
}

#[test]
fn unauthenticated_clients_may_leave_little() {
    let server = Server::start(&["--requirepass", "secret", "--enable-debug-command", "yes"]);
    let (mut known, mut reset, mut unauthenticated) = (server.client(), server.client(), server.client());
    known.check("AUTH secret", OK);
    reset.check("AUTH secret", OK);
    reset.check("RESET", "+RESET\r\n");
    let refused = "-NOAUTH Authentication required.\r\n";
    unauthenticated.check("GET k", refused);
    known.check("DEBUG CLIENT-ENFORCE-REPLY-LIST 1", OK);
    reset.check("GET k", refused);
    unauthenticated.send(encode(&["GET", "k"]));
    unauthenticated.expect_end();
    known.check("DEBUG CLIENT-ENFORCE-REPLY-LIST 0", OK);
    server.client().check("GET k", refused);
}

/// A client that waits for keys takes their names, several times, and what lists it; that is shown, counts
/// for the limit, and is given back when the wait is over.
#[test]
fn waiting_for_keys_is_accounted_for() {
    const KEYS: usize = 20_000;
    let server = Server::start(&[]);
    let (mut asking, mut waiting) = (server.client(), named(&server, "waiting"));
    let own = field(&mut asking, "waiting", "tot-mem").unwrap();
    let mut words = vec!["BLPOP".to_string()];
    words.extend((0..KEYS).map(|number| format!("key:{number:0108}")));
    words.push("0".to_string());
    let request = encode(&words);
    let used = |asking: &mut Client| asking.info("memory", "used_memory");
    let before = used(&mut asking);
    waiting.send(&request);
    wait_until("it waits", || asking.blocked_count() == 1);
    let arguments = words.iter().map(|word| word.len() as u64).sum();
    wait_until("it is accounted for", || field(&mut asking, "waiting", "argv-mem") == Some(arguments));
    wait_until("the room is given back", || field(&mut asking, "waiting", "qbuf-free") == Some(0));
    let accounted = field(&mut asking, "waiting", "tot-mem").unwrap() - own;
    let taken = used(&mut asking) - before;
    assert!(
        accounted * 10 > taken * 8 && accounted * 10 < taken * 12,
        "{accounted} accounted, {taken} taken"
    );
    asking.check("RPUSH key:nobodys x", ":1\r\n");
    asking.check(&format!("RPUSH {} x", words[7]), ":1\r\n");
    waiting.read_reply();
    wait_until("nothing is left", || field(&mut asking, "waiting", "tot-mem") == Some(own));
    assert_eq!(field(&mut asking, "waiting", "argv-mem"), Some(0));
    // And for the limit of all.
    waiting.send(&request);
    wait_until("it waits", || asking.blocked_count() == 1);
    asking.check("CLIENT NO-EVICT on", OK);
    asking.check("CONFIG SET maxmemory-clients 1mb", OK);
    let mut another = server.client();
    another.check("PING", "+PONG\r\n");
    wait_until("it is closed", || field(&mut asking, "waiting", "tot-mem").is_none());
    asking.check(&format!("RPUSH {} x", words[9]), ":1\r\n");
    asking.check(&format!("LLEN {}", words[9]), ":1\r\n");
}

/// A large collection that is evicted is not in the keyspace any more, but in memory for a moment: nothing
/// else leaves for it, and no write is refused.
#[test]
fn one_large_key_makes_room() {
    for policy in ["allkeys-random", "allkeys-lru"] {
        let server = Server::with_workers(1, &["--enable-debug-command", "yes"]);
        let mut client = server.client();
        let value = "v".repeat(60);
        for key in 0..40 {
            let mut words = vec!["HSET".to_string(), format!("hash:{key}")];
            (0..8000).for_each(|field| words.extend([format!("field:{field}"), value.clone()]));
            client.send(encode(&words));
            client.expect(":8000\r\n");
        }
        client.check(&format!("CONFIG SET maxmemory-policy {policy}"), "+OK\r\n");
        let used = client.info("memory", "used_memory");
        client.check(&format!("CONFIG SET maxmemory {}", used - (100 << 10)), "+OK\r\n");
        client.check("SET k v", "+OK\r\n");
        let evicted = client.info("stats", "evicted_keys");
        assert!((1..=3).contains(&evicted), "{policy}: {evicted} keys of 500 KB have left for 100 KB");
    }
}

/// The memory of a transaction's queue is more than Valkey counts as `multi-mem`.
#[test]
fn the_queue_of_a_transaction_is_accounted_for() {
    const COMMANDS: usize = 20_000;
    let server = Server::start(&[]);
    let (mut asking, mut queueing) = (server.client(), named(&server, "queueing"));
    let own = field(&mut asking, "queueing", "tot-mem").unwrap();
    queueing.check("MULTI", OK);
    let before = asking.info("memory", "used_memory");
    queueing.send(encode(&["PING"]).repeat(COMMANDS));
    (0..COMMANDS).for_each(|_| queueing.expect("+QUEUED\r\n"));
    wait_until("the room is given back", || field(&mut asking, "queueing", "qbuf-free") == Some(0));
    let accounted = field(&mut asking, "queueing", "tot-mem").unwrap() - own;
    let taken = asking.info("memory", "used_memory") - before;
    assert!(
        accounted * 10 > taken * 8 && accounted * 10 < taken * 12,
        "{accounted} accounted, {taken} taken"
    );
    assert_eq!(field(&mut asking, "queueing", "multi-mem"), Some(COMMANDS as u64 * (4 + 8)));
    queueing.check("DISCARD", OK);
    wait_until("nothing is left", || field(&mut asking, "queueing", "tot-mem") == Some(own));
}
