//! Every limit that a client's command meets, played through the other ways in: script, append-only file,
//! primary, RDB file, RESTORE.
//!
//! ```text
//!                              client, script    append-only file, primary                RDB file, RESTORE
//!   length of a value          error             the same bytes                           the same bytes
//!   length of a name           error, none       the same bytes                           the same bytes
//!   depth of JSON              error             no log has scripts: start ends, link goes down
//!   range, count, form         error             start ends, link goes down               cannot be said
//!   databases, libraries       error             start ends, link goes down               start ends, error
//!   count that is a lie        error             start ends, link goes down               start ends, error
//! ```
//! A value that is longer than a limit of this server's clients is data like any other: it can be read,
//! edited and written again.

use crate::aof::{Data, wire};
use crate::common::{Client, Server, command, encode, free_port, wait_until};
use crate::divergence::waits_for;
use crate::replica::{ID, Primary, crc64, wait_for_field};

/// The least that proto-max-bulk-len may be.
const LIMIT: &str = "1048576";
const TOO_LONG: &str = "ERR string exceeds maximum allowed size (proto-max-bulk-len)";
const BIT_TOO_FAR: &str = "ERR bit offset is not an integer or out of range";

/// Requests that make a string of `key` one byte longer than the limit, and the answer to a client.
const LENGTHS: [(&str, &str, &str); 4] = [
    ("a", "SETRANGE a 1048576 x", TOO_LONG),
    ("b", "SETBIT b 8388608 1", BIT_TOO_FAR),
    ("c", "BITFIELD c SET u8 8388608 1", BIT_TOO_FAR),
    // After `FULL`.
    ("d", "APPEND d x", TOO_LONG),
];
const FULL: &str = "SETRANGE d 1048575 x";

/// Requests that no server's log holds, as each is refused where a client sends it. Each has a command that
/// comes before it.
const REFUSED: [(&str, &str, &str); 13] = [
    ("SET n 9223372036854775807", "INCR n", "ERR increment or decrement would overflow"),
    ("SET n 1", "EXPIRE n 9223372036854775807", "ERR invalid expire time in 'expire' command"),
    ("SET n 1", "SETRANGE n -1 x", "ERR offset is out of range"),
    ("SET n 1", "BITFIELD n SET u64 0 1", "ERR Invalid bitfield type"),
    ("SET n 1", "ZADD z nan m", "ERR value is not a valid float"),
    ("SET n 1", "GEOADD g 200 100 m", "ERR invalid longitude,latitude pair"),
    ("SET n 1", "XADD x 0-0 f v", "ERR The ID specified in XADD must be greater than 0-0"),
    ("HSET h f v", "HPEXPIREAT h 9000000000000 FIELDS 2 f", "ERR numfields should be greater than 0"),
    ("SET n 1", "HSET h f", "ERR wrong number of arguments for 'hset' command"),
    ("SET n 1", "MOVE n 16", "ERR DB index is out of range"),
    ("SET n 1", "COPY n m DB 16", "ERR DB index is out of range"),
    ("SET n 1", "SWAPDB 0 16", "ERR DB index is out of range"),
    ("SET n 1", "FUNCTION LOAD #!lua\tname=a-b\n", "ERR Library names can only contain letters"),
];
/// A script whose JSON is as deep as it may be, and one whose JSON is deeper. No log of this server, or of
/// a Valkey, has scripts.
const DEEP: &str =
    "EVAL local\tt={}for\ti=1,999\tdo\tt={t}end\tredis.call('SET',KEYS[1],cjson.encode(t)) 1 deep";
const TOO_DEEP: &str =
    "EVAL local\tt={}for\ti=1,1000\tdo\tt={t}end\tredis.call('SET',KEYS[1],cjson.encode(t)) 1 deep";

/// Requests with a name, `#`, that is longer than a client may send.
const NAMES: [&str; 9] = [
    "SET # v",
    "HSET #h f v",
    "HSET h # v",
    "SADD s #",
    "ZADD z 1 #",
    "RPUSH l #",
    "XADD x 1-1 # v",
    "XGROUP CREATE x # 0",
    "XGROUP CREATECONSUMER x # #",
];

fn is_refused(client: &mut Client, request: &str, text: &str) {
    let words: Vec<&str> = request.split(' ').collect();
    client.send(encode(&words));
    let reply = String::from_utf8(client.read_reply()).unwrap();
    let text = text.trim_start_matches("ERR ");
    assert!(reply.starts_with("-ERR ") && reply.contains(text), "{request}: {reply}");
    let script: Vec<&str> =
        ["EVAL", "return redis.call(unpack(ARGV))", "0"].into_iter().chain(words.iter().copied()).collect();
    client.send(encode(&script));
    let reply = String::from_utf8(client.read_reply()).unwrap();
    let of_scripts = ["number of args", "not allowed from script"];
    let is_said = reply.starts_with('-')
        && (reply.contains(text) || of_scripts.iter().any(|text| reply.contains(text)));
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
    for (script, start) in
        [(DEEP, "$-1"), (TOO_DEEP, "-ERR user_script:1: Cannot serialise, excessive nesting (1001)")]
    {
        client.send(encode(&script.split(' ').collect::<Vec<_>>()));
        let reply = String::from_utf8(client.read_reply()).unwrap();
        assert!(reply.starts_with(start), "{reply}");
    }
}

#[test]
fn what_is_refused_everywhere_ends_a_start() {
    let data = Data::new();
    data.write_log(&[&wire(&["SELECT 0", "SET n 1", "SELECT 16", "SET n 2"])]);
    let log = data.fails_to_start();
    assert!(log.contains("database 16 does not exist"), "{log}");
    let data = Data::new();
    data.write_log(&[&wire(&["SELECT 0", DEEP])]);
    let log = data.fails_to_start();
    assert!(log.contains("unknown command 'EVAL'"), "{log}");
    for (before, request, refusal) in REFUSED {
        let data = Data::new();
        data.write_log(&[&wire(&["SELECT 0", before, request, "SET behind 1"])]);
        let log = data.fails_to_start();
        let name = request.split(' ').next().unwrap();
        let refusal = refusal.trim_start_matches("ERR ");
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
        let refusal = refusal.trim_start_matches("ERR ");
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

// ---- names ----

/// Words of a request of `NAMES`.
fn named(request: &str) -> Vec<String> {
    request.split(' ').map(|word| word.replace('#', &"n".repeat(1_048_577))).collect()
}

/// The data that has the names, and the groups of its stream, which a digest leaves out.
fn seen(client: &mut Client) -> (String, Vec<u8>) {
    (client.ask("DEBUG DIGEST"), client.ask_bytes("XINFO GROUPS x"))
}

#[test]
fn a_name_that_is_too_long_for_a_client_comes_by_all_other_ways() {
    let limit = ["--proto-max-bulk-len", LIMIT, "--enable-debug-command", "yes"];
    let server = Server::with_workers(1, &limit);
    for request in NAMES {
        let mut client = server.client();
        client.send(&encode(&named(request))[..100]);
        client.expect("-ERR Protocol error: invalid bulk length\r\n");
        client.expect_end();
    }
    let mut client = server.client();
    let long = "for i, word in ipairs(ARGV) do ARGV[i] = string.gsub(word, '#', string.rep('n', 1048577)) end \
                return redis.call(unpack(ARGV))";
    for request in NAMES {
        let words: Vec<&str> = ["EVAL", long, "0"].into_iter().chain(request.split(' ')).collect();
        client.send(encode(&words));
        let reply = client.read_reply();
        assert_ne!(reply[0], b'-', "{request}: {}", String::from_utf8_lossy(&reply));
    }
    let made = seen(&mut client);
    client.check("DEBUG RELOAD", "+OK\r\n");
    assert!(seen(&mut client) == made, "an RDB file");

    let data = Data::new();
    let log: Vec<u8> = NAMES.iter().flat_map(|request| encode(&named(request))).collect();
    data.write_log(&[&[wire(&["SELECT 0"]), log.clone()].concat()]);
    let server = data.start(1, &limit[..2]);
    let mut client = server.client();
    assert!(seen(&mut client) == made, "an append-only file");
    let restore = "for _, key in ipairs(redis.call('KEYS', '*')) do \
                   redis.call('RESTORE', key, 0, redis.call('DUMP', key), 'REPLACE') end";
    client.send(encode(&["EVAL", restore, "0"]));
    client.expect("$-1\r\n");
    assert!(seen(&mut client) == made, "RESTORE");
    client.check("DEBUG LOADAOF", "+OK\r\n");
    assert!(seen(&mut client) == made, "RESTORE of an append-only file");

    let primary = Primary::start(&limit[..2]);
    let mut client = primary.replica.client();
    let mut link = primary.sync(&[], 100);
    link.send(log);
    link.send_command("SET behind 1");
    wait_until("the stream is applied", || client.ask("GET behind") == "$1\r\n1\r\n");
    link.send_command("DEL behind");
    wait_until("the stream goes on", || client.ask("GET behind") == "$-1\r\n");
    assert!(seen(&mut client) == made, "a primary");
    wait_for_field(&mut client, "master_link_status", "up");
}

// ---- files ----

const LIBRARY: &[u8] = b"#!lua name=a-b\nserver.register_function('f', function() return 1 end)";
const NO_DATABASE: &str =
    "FATAL: Data file was created with a server configured to handle more than 16 databases";

/// Parts of an RDB file that no server of this configuration can have written, and what is said of them.
fn odd_parts() -> [(&'static str, Vec<u8>, &'static str); 6] {
    let library = [b"\xf5", &[0x40, LIBRARY.len() as u8][..], LIBRARY].concat();
    [
        ("database 16", b"\xfe\x10\x00\x01k\x01v".to_vec(), NO_DATABASE),
        ("database 2^40", b"\xfe\x81\x00\x00\x01\0\0\0\0\0\x00\x01k\x01v".to_vec(), NO_DATABASE),
        ("library", library, "Library names can only contain letters"),
        ("count", b"\xfe\x00\x02\x01s\x81\0\0\x01\0\0\0\0\0\x01m".to_vec(), "Internal error in RDB"),
        ("length", b"\xfe\x00\x00\x01k\x81\0\0\x01\0\0\0\0\0\x01m".to_vec(), "Internal error in RDB"),
        ("name", b"\xfe\x00\x00\x81\0\0\x01\0\0\0\0\0\x01k".to_vec(), "Internal error in RDB"),
    ]
}

fn rdb_file(part: &[u8]) -> Vec<u8> {
    let mut file = [b"REDIS0011", part, b"\xff"].concat();
    let sum = crc64(&file);
    file.extend_from_slice(&sum.to_le_bytes());
    file
}

#[test]
fn a_file_that_cannot_be_had_ends_a_start() {
    for (name, part, why) in odd_parts() {
        let data = Data::new();
        std::fs::write(data.0.join("dump.rdb"), rdb_file(&part)).unwrap();
        let port = free_port();
        let words = ["--port", &port.to_string(), "--bind", "127.0.0.1", "--dir", data.0.to_str().unwrap()];
        let mut server = Server::spawn(port, command(&words));
        assert!(!server.wait().success(), "{name}: it starts");
        assert!(server.log().contains(why), "{name}: {}", server.log());
    }
}

#[test]
fn a_snapshot_that_cannot_be_had_stops_a_link() {
    let primary = Primary::start(&[]);
    let mut client = primary.replica.client();
    for (name, part, why) in odd_parts() {
        let (mut link, _) = primary.shake_hands();
        let file = rdb_file(&part);
        link.send(format!("+FULLRESYNC {ID} 100\r\n${}\r\n", file.len()));
        link.send(file);
        wait_until(name, || primary.replica.log().contains(why));
        link.expect_end();
        client.check("PING", "+PONG\r\n");
    }
    // Nothing of them is in the way of data that can be had.
    primary.sync(&[("k", "v")], 100);
    wait_until("it is loaded", || client.ask("GET k") == "$1\r\nv\r\n");
}

#[test]
fn a_payload_that_cannot_be_had_is_refused() {
    let server = Server::start(&[]);
    let mut client = server.client();
    let sealed = |part: &[u8]| {
        let payload = [part, b"\x0b\x00"].concat();
        let sum = crc64(&payload);
        [&payload[..], &sum.to_le_bytes()].concat()
    };
    for (_, part, why) in odd_parts() {
        if part[0] == 0xf5 {
            client.send(encode(&[&b"FUNCTION"[..], b"RESTORE", &sealed(&part)]));
            let reply = String::from_utf8(client.read_reply()).unwrap();
            assert!(reply.starts_with(&format!("-ERR {why}")), "{reply}");
        } else if let [0xfe, 0, kind, 1, _, rest @ ..] = &part[..] {
            client.send(encode(&[&b"RESTORE"[..], b"k", b"0", &sealed(&[&[*kind], rest].concat())]));
            client.expect("-ERR Bad data format\r\n");
        }
    }
    client.check("DBSIZE", ":0\r\n");
}
