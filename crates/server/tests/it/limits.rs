//! Every limit that a client's command meets, played through the other ways in: script, append-only file,
//! primary, RDB file, RESTORE.
//!
//! ```text
//!                              client, script    append-only file, primary                RDB file, RESTORE
//!   length of a value          error             the same bytes                           the same bytes
//!   range, count, form         error             start ends, link goes down (`Stops`)     cannot be said
//! ```
//! A value that is longer than a limit of this server's clients is data like any other: it can be read,
//! edited and written again.

use crate::aof::{Data, wire};
use crate::common::{Client, Server, encode, wait_until};
use crate::divergence::waits_for;
use crate::replica::{Primary, wait_for_field};

/// The least that proto-max-bulk-len may be.
const LIMIT: &str = "1048576";
const TOO_LONG: &str = "ERR string exceeds maximum allowed size (proto-max-bulk-len)";
const BIT_TOO_FAR: &str = "ERR bit offset is not an integer or out of range";

/// Requests that make a string of `key` one byte longer than the limit, and the answer to a client.
const LENGTHS: [(&str, &str, &str); 4] = [
    ("a", "SETRANGE a 1048576 x", TOO_LONG),
    ("b", "SETBIT b 8388608 1", BIT_TOO_FAR),
    ("c", "BITFIELD c SET u8 8388608 1", BIT_TOO_FAR),
    // Behind `FULL`.
    ("d", "APPEND d x", TOO_LONG),
];
const FULL: &str = "SETRANGE d 1048575 x";

/// What no server's log holds: a request that was refused where it was said. Before it comes the command in
/// front.
const REFUSED: [(&str, &str, &str); 9] = [
    ("SET n 9223372036854775807", "INCR n", "ERR increment or decrement would overflow"),
    ("SET n 1", "EXPIRE n 9223372036854775807", "ERR invalid expire time in 'expire' command"),
    ("SET n 1", "SETRANGE n -1 x", "ERR offset is out of range"),
    ("SET n 1", "BITFIELD n SET u64 0 1", "ERR Invalid bitfield type"),
    ("SET n 1", "ZADD z nan m", "ERR value is not a valid float"),
    ("SET n 1", "GEOADD g 200 100 m", "ERR invalid longitude,latitude pair"),
    ("SET n 1", "XADD x 0-0 f v", "ERR The ID specified in XADD must be greater than 0-0"),
    ("HSET h f v", "HPEXPIREAT h 9000000000000 FIELDS 2 f", "ERR "),
    ("SET n 1", "HSET h f", "ERR wrong number of arguments for 'hset' command"),
];

fn is_refused(client: &mut Client, request: &str, text: &str) {
    let reply = client.ask(request);
    assert!(reply.starts_with(&format!("-{text}")), "{request}: {reply}");
    let words: Vec<&str> = request.split(' ').collect();
    let script: Vec<&str> =
        ["EVAL", "return redis.call(unpack(ARGV))", "0"].into_iter().chain(words.iter().copied()).collect();
    client.send(encode(&script));
    let reply = String::from_utf8(client.read_reply()).unwrap();
    let is_said = reply.starts_with('-') && (reply.contains(text) || reply.contains("number of args"));
    assert!(is_said, "{request} of a script: {reply}");
}

/// The strings are as long as they were made, and go on from there.
fn check_long(client: &mut Client) {
    for (key, _, _) in LENGTHS {
        assert_eq!(client.ask_number(&format!("STRLEN {key}")), 1_048_577, "{key}");
    }
}

fn edit_long(client: &mut Client) {
    for (key, request, refusal) in LENGTHS {
        assert_eq!(client.ask(&format!("SETBIT {key} 3 1")), ":0\r\n", "{key}");
        client.check(&format!("SETRANGE {key} 1 y"), ":1048577\r\n");
        client.check(&format!("BITFIELD {key} SET u8 16 7"), "*1\r\n:0\r\n");
        client.check(&format!("GETRANGE {key} 0 2"), "$3\r\n\u{10}y\u{7}\r\n");
        // It does not grow further by a client.
        is_refused(client, &format!("APPEND {key} z"), TOO_LONG);
        // Within what is there, though beyond the limit.
        if request.starts_with("SETRANGE") || request.starts_with("APPEND") {
            is_refused(client, request, refusal);
        }
    }
    check_long(client);
}

/// Dumped and restored under other names, which takes the place of the first; then all goes through an RDB
/// file.
fn carry(client: &mut Client) {
    for (key, _, _) in LENGTHS {
        let payload = client.ask_bytes(&format!("DUMP {key}"));
        assert!(payload.len() < 100_000, "what is compressed is no argument that is too long");
        client.send(encode(&[&b"RESTORE"[..], key.as_bytes(), b"0", &payload, b"REPLACE"]));
        assert_eq!(client.read_reply(), b"+OK\r\n", "{key}");
    }
    check_long(client);
    client.check("DEBUG RELOAD", "+OK\r\n");
    check_long(client);
}

fn long_log() -> Vec<u8> {
    let requests: Vec<&str> =
        ["SELECT 0", FULL].into_iter().chain(LENGTHS.map(|(_, request, _)| request)).collect();
    wire(&requests)
}

#[test]
fn a_value_that_is_too_long_for_a_client_comes_by_all_other_ways() {
    let data = Data::new();
    data.write_log(&[&long_log()]);
    let limit = ["--proto-max-bulk-len", LIMIT];
    let server = data.start(1, &limit);
    let mut client = server.client();
    check_long(&mut client);
    edit_long(&mut client);
    carry(&mut client);
    client.check("DEBUG LOADAOF", "+OK\r\n");
    check_long(&mut client);

    let primary = Primary::start(&limit);
    let mut client = primary.replica.client();
    let mut link = primary.sync(&[], 100);
    link.send(long_log());
    link.send_command("SET behind 1");
    wait_until("the stream is applied", || client.ask("GET behind") == "$1\r\n1\r\n");
    check_long(&mut client);
    wait_for_field(&mut client, "master_link_status", "up");
    // Now clients write here, and meet the limit.
    client.check("REPLICAOF NO ONE", "+OK\r\n");
    edit_long(&mut client);
}

#[test]
fn a_client_and_a_script_meet_each_limit() {
    let server = Server::with_workers(1, &["--proto-max-bulk-len", LIMIT]);
    let mut client = server.client();
    assert_eq!(client.ask(FULL), ":1048576\r\n");
    LENGTHS.iter().for_each(|(_, request, refusal)| is_refused(&mut client, request, refusal));
    for (before, request, refusal) in REFUSED {
        assert!(!client.ask(before).starts_with('-'), "{before}");
        is_refused(&mut client, request, refusal);
    }
    client.check("SELECT 16", "-ERR DB index is out of range\r\n");
}

#[test]
fn what_is_refused_everywhere_ends_a_start() {
    for (before, request, refusal) in REFUSED {
        let data = Data::new();
        data.write_log(&[&wire(&["SELECT 0", before, request, "SET behind 1"])]);
        let log = data.fails_to_start();
        let name = request.split(' ').next().unwrap();
        let is_said =
            log.contains(refusal) || log.contains(&format!("wrong number of arguments for '{name}'"));
        assert!(is_said && log.contains("Error reading the append only file"), "{request}: {log}");
    }
}

#[test]
fn what_is_refused_everywhere_stops_a_link() {
    for (before, request, refusal) in REFUSED {
        let primary = Primary::start(&[]);
        let mut client = primary.replica.client();
        let mut link = primary.sync(&[], 100);
        [before, request, "SET behind 1"].iter().for_each(|line| _ = link.send_command(line));
        waits_for(&mut client, "master_refused:command");
        let info = client.ask("INFO replication");
        let name = request.split(' ').next().unwrap();
        assert!(
            info.contains(refusal) || info.contains(&format!("wrong number of arguments for '{name}'")),
            "{request}: {info}"
        );
        client.check("EXISTS behind", ":0\r\n");
    }
    let primary = Primary::start(&[]);
    let mut link = primary.sync(&[], 100);
    link.send_command("SELECT 16");
    waits_for(&mut primary.replica.client(), "master_refused_error:database 16 does not exist");
}
