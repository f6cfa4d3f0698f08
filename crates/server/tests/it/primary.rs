//! A primary and its replicas: scripted ones that say what no replica should, and Valkey's.

use std::io::Read;
use std::net::TcpStream;
use std::path::PathBuf;
use std::process::Command;

use crate::common::{Client, Server, encode, field, free_port, read_some, text_field, wait_until};

/// A socket that speaks as a replica does.
pub struct Replica {
    pub stream: TcpStream,
    read: Vec<u8>,
}

impl Replica {
    pub fn new(server: &Server) -> Replica {
        Replica::over(server.client().stream)
    }

    pub fn over(stream: TcpStream) -> Replica {
        Replica { stream, read: Vec::new() }
    }

    /// A request that it is asked, its words with spaces between them.
    pub fn request(&mut self) -> String {
        let count = self.line().trim_start_matches('*').parse().expect("a number of words");
        let mut words = Vec::new();
        for _ in 0..count {
            self.line();
            words.push(self.line());
        }
        words.join(" ")
    }

    pub fn answer(&mut self, line: &str) {
        use std::io::Write;
        self.stream.write_all(format!("{line}\r\n").as_bytes()).expect("the server reads");
    }

    pub fn say(&mut self, words: &str) {
        use std::io::Write;
        self.stream.write_all(&encode(&words.split(' ').collect::<Vec<_>>())).expect("the server reads");
    }

    /// Takes `count` bytes, or fewer where the connection ends.
    pub fn take(&mut self, count: usize) -> Vec<u8> {
        let mut bytes = [0; 16 << 10];
        while self.read.len() < count {
            match read_some(&mut self.stream, &mut bytes) {
                Ok(0) => break,
                Ok(got) => self.read.extend_from_slice(&bytes[..got]),
                Err(error) => panic!("nothing came: {error}, but {:?}", self.read.escape_ascii().to_string()),
            }
        }
        let count = count.min(self.read.len());
        self.read.drain(..count).collect()
    }

    /// A line without its end. Empty lines keep the link alive and say nothing.
    pub fn line(&mut self) -> String {
        loop {
            let mut line = Vec::new();
            loop {
                match self.take(1).first() {
                    Some(b'\n') => break,
                    Some(byte) => line.push(*byte),
                    None => return String::from_utf8(line).expect("text") + "<end>",
                }
            }
            let line = String::from_utf8(line).expect("text");
            if !line.trim_end().is_empty() {
                return line.trim_end().to_string();
            }
        }
    }

    pub fn expect_end(&mut self) {
        self.stream.read_to_end(&mut self.read).ok();
    }

    pub fn introduce(&mut self) {
        for words in
            ["REPLCONF listening-port 7777", "REPLCONF capa eof capa psync2", "REPLCONF version 9.1.0"]
        {
            self.say(words);
            assert_eq!(self.line(), "+OK");
        }
    }

    /// A full sync, to the last byte of the snapshot. Returns the history and the offset.
    pub fn full_sync(&mut self) -> (String, u64) {
        self.introduce();
        self.full_sync_from_here()
    }

    /// Does the full sync of a replica that has introduced itself.
    pub fn full_sync_from_here(&mut self) -> (String, u64) {
        self.say("PSYNC ? -1");
        let (id, offset) = self.full_resync();
        self.snapshot();
        (id, offset)
    }

    fn full_resync(&mut self) -> (String, u64) {
        let line = self.line();
        let words: Vec<&str> = line.split(' ').collect();
        assert!(matches!(words[..], ["+FULLRESYNC", ..]), "{line}");
        (words[1].to_string(), words[2].parse().expect("an offset"))
    }

    fn snapshot(&mut self) -> Vec<u8> {
        let line = self.line();
        let Some(mark) = line.strip_prefix("$EOF:") else {
            let length = line.strip_prefix('$').expect("a length").parse().expect("a number");
            return self.take(length);
        };
        let mut bytes = self.take(40);
        while !bytes.ends_with(mark.as_bytes()) {
            bytes.extend(self.take(1));
        }
        bytes.truncate(bytes.len() - 40);
        assert!(bytes.starts_with(b"VALKEY080") || bytes.starts_with(b"REDIS0011"));
        bytes
    }

    /// Reads the log until it ends with `text`.
    pub fn log_to(&mut self, text: &str) -> String {
        let mut log = String::new();
        while !log.ends_with(text) {
            log.push_str(&String::from_utf8(self.take(1)).expect("text"));
        }
        log
    }
}

pub const NO_DELAY: [&str; 4] = ["--repl-diskless-sync-delay", "0", "--repl-ping-replica-period", "3600"];

pub fn start(more: &[&str]) -> Server {
    Server::with_workers(2, &[&NO_DELAY, more].concat())
}

fn set(key: &str) -> String {
    String::from_utf8(encode(&["SET", key, "v"])).expect("text")
}

#[test]
fn a_full_sync_then_the_log_then_where_it_was() {
    let server = start(&[]);
    let mut client = server.client();
    client.check("SET before v", "+OK\r\n");
    let mut replica = Replica::new(&server);
    let (id, offset) = replica.full_sync();
    client.check("SET a v", "+OK\r\n");
    wait_until("it is online", || client.ask("INFO replication").contains("state=online"));
    let info = client.ask("INFO replication");
    assert_eq!(text_field(&info, "master_replid"), id);
    assert!(
        text_field(&info, "slave0").starts_with("ip=127.0.0.1,port=7777,state=online,offset=0,"),
        "{info}"
    );
    // Nothing comes before the first ACK: the mark is the last that it has read.
    replica.stream.set_read_timeout(Some(std::time::Duration::from_millis(100))).unwrap();
    assert!(replica.stream.read(&mut [0; 10]).is_err());
    replica.stream.set_read_timeout(Some(crate::common::PATIENCE)).unwrap();
    replica.say(&format!("REPLCONF ACK {offset}"));
    let log = replica.log_to(&set("a"));
    assert!(log.ends_with(&format!("*2\r\n$6\r\nSELECT\r\n$1\r\n0\r\n{}", set("a"))), "{log}");
    let at = offset + log.len() as u64;
    assert_eq!(client.info("replication", "master_repl_offset"), at);
    drop(replica);
    wait_until("it has left", || client.info("replication", "connected_slaves") == 0);
    client.check("SET b v", "+OK\r\n");
    let mut replica = Replica::new(&server);
    replica.introduce();
    replica.say(&format!("PSYNC {id} {}", at + 1));
    assert_eq!(replica.line(), format!("+CONTINUE {id}"));
    assert_eq!(replica.log_to(&set("b")), set("b"));
    let stats = client.ask("INFO stats");
    assert_eq!((field(&stats, "sync_full"), field(&stats, "sync_partial_ok")), (1, 1));
    assert_eq!(client.listed("cmd=psync", "flags").as_deref(), Some("S"));
    client.check("CLIENT KILL TYPE replica", ":1\r\n");
    replica.expect_end();
    wait_until("it is gone", || client.info("replication", "connected_slaves") == 0);
}

#[test]
fn requests_that_cannot_go_on() {
    let server = start(&[]);
    let mut client = server.client();
    let mut first = Replica::new(&server);
    let (id, offset) = first.full_sync();
    for (request, why) in [
        (format!("PSYNC {id} {}", offset + 1_000_000), "greater than the primary replication offset"),
        (format!("PSYNC {} 1", "0123456789".repeat(4)), "Replication ID mismatch"),
        (format!("PSYNC {id} 0"), "Partial resynchronization not accepted"),
        (format!("PSYNC {id} -5"), "Partial resynchronization not accepted"),
    ] {
        let mut replica = Replica::new(&server);
        replica.introduce();
        replica.say(&request);
        assert_eq!(replica.full_resync().0, id);
        server.wait_for_log(why);
    }
    assert_eq!(client.info("stats", "sync_partial_err"), 4);
    let mut replica = Replica::new(&server);
    replica.say("PSYNC ? x");
    assert_eq!(replica.line(), "-ERR value is not an integer or out of range");
    replica.say("PSYNC ?");
    assert!(replica.line().starts_with("-ERR wrong number of arguments"));
    replica.say("SUBSCRIBE c");
    (0..6).for_each(|_| drop(replica.line()));
    replica.say("PSYNC ? -1");
    assert!(replica.line().starts_with("-ERR Can't execute 'psync'"));
    replica.say("UNSUBSCRIBE");
    (0..6).for_each(|_| drop(replica.line()));
    replica.say("MULTI");
    replica.say("PSYNC ? -1");
    assert_eq!((replica.line().as_str(), &replica.line()[..4]), ("+OK", "-ERR"));
    replica.say("PSYNC ? -1 FAILOVER");
    replica.say("DISCARD");
    assert!(replica.line().starts_with("-ERR"));
}

#[test]
fn what_a_replica_says_that_it_should_not() {
    let server = start(&[]);
    let mut client = server.client();
    client.check("SET key v", "+OK\r\n");
    for (words, command) in
        [("GET key", "get"), ("PING", "ping"), ("SLOWLOG GET", "slowlog|get"), ("MONKEY", "<unknown>")]
    {
        let mut replica = Replica::new(&server);
        replica.full_sync();
        replica.say(words);
        replica.expect_end();
        server.wait_for_log(&format!(
            "Replica generated a reply to command '{command}', disconnecting it: id="
        ));
    }
    server.wait_for_log("Replica can't interact with the keyspace");
    // A second request is none, and ACKs that cannot be are not believed.
    let mut replica = Replica::new(&server);
    let (_, offset) = replica.full_sync();
    replica.say("PSYNC ? -1");
    replica.say("SYNC");
    replica.say(&format!("REPLCONF ACK {}", offset + 1_000_000));
    client.check("SET key w", "+OK\r\n");
    replica.log_to("w\r\n");
    let end = client.info("replication", "master_repl_offset");
    let acked = |client: &mut Client, offset: u64| {
        wait_until("the ACK counts", || {
            client.ask("INFO replication").contains(&format!("state=online,offset={offset},"))
        });
    };
    acked(&mut client, 0);
    replica.say(&format!("REPLCONF ACK {end}"));
    acked(&mut client, end);
    replica.say("REPLCONF ACK 1");
    replica.say("REPLCONF ACK monkey");
    replica.say(&format!("REPLCONF ACK {end} FACK {end}"));
    acked(&mut client, end);
    replica.say(&"x".repeat(100_000));
    replica.expect_end();
}

#[test]
fn a_hundred_replicas_are_served_by_one_cut() {
    let server = Server::with_workers(
        2,
        &["--repl-diskless-sync-delay", "1000", "--repl-diskless-sync-max-replicas", "100"],
    );
    let mut client = server.client();
    client.check("SET key v", "+OK\r\n");
    let mut replicas: Vec<Replica> = (0..100).map(|_| Replica::new(&server)).collect();
    for replica in &mut replicas {
        replica.introduce();
        replica.say("PSYNC ? -1");
    }
    let places: Vec<(String, u64)> = replicas.iter_mut().map(Replica::full_resync).collect();
    assert!(places.iter().all(|place| *place == places[0]));
    let snapshots: Vec<Vec<u8>> = replicas.iter_mut().map(Replica::snapshot).collect();
    assert!(snapshots.iter().all(|snapshot| *snapshot == snapshots[0]));
    assert_eq!(client.info("stats", "total_forks"), 1);
    replicas.iter_mut().for_each(|replica| replica.say("REPLCONF ACK 0"));
    client.check("SET key w", "+OK\r\n");
    for replica in &mut replicas {
        replica.log_to("w\r\n");
    }
}

#[test]
fn a_snapshot_that_no_replica_takes_is_not_made() {
    let server = start(&["--rdb-key-save-delay", "10000000"]);
    let mut client = server.client();
    client.check("SET key v", "+OK\r\n");
    let mut replicas = [Replica::new(&server), Replica::new(&server)];
    client.check("CONFIG SET repl-diskless-sync-delay 1000 repl-diskless-sync-max-replicas 2", "+OK\r\n");
    for replica in &mut replicas {
        replica.introduce();
        replica.say("PSYNC ? -1");
    }
    let [mut one, mut two] = replicas;
    one.full_resync();
    two.full_resync();
    drop(one);
    wait_until("one is left", || client.info("replication", "connected_slaves") == 1);
    assert_eq!(client.info("persistence", "rdb_bgsave_in_progress"), 1, "the other one waits for it");
    drop(two);
    wait_until("it is given up", || client.info("persistence", "rdb_bgsave_in_progress") == 0);
    server.wait_for_log("last replica dropped");
    client.check("CONFIG SET rdb-key-save-delay 0 repl-diskless-sync-delay 0", "+OK\r\n");
    Replica::new(&server).full_sync();
}

#[test]
fn snapshots_of_other_kinds() {
    let server = start(&[]);
    let mut client = server.client();
    client.check("SET a-key v", "+OK\r\n");
    // As `valkey-cli --rdb` asks for it.
    let mut replica = Replica::new(&server);
    replica.introduce();
    replica.say("REPLCONF rdb-only 1");
    assert_eq!(replica.line(), "+OK");
    replica.say("PSYNC ? -1");
    replica.full_resync();
    assert!(replica.snapshot().windows(5).any(|bytes| bytes == b"a-key"));
    replica.expect_end();
    server.wait_for_log(
        "RDB transfer completed, rdb only replica (127.0.0.1:7777) should be disconnected asap",
    );
    // Nothing but what stands around the data.
    let mut replica = Replica::new(&server);
    replica.introduce();
    replica.say("REPLCONF rdb-filter-only functions");
    assert_eq!(replica.line(), "+OK");
    replica.say("REPLCONF rdb-filter-only keys");
    assert_eq!(replica.line(), "-ERR Unsupported rdb-filter-only option: keys");
    replica.say("PSYNC ? -1");
    replica.full_resync();
    assert!(!replica.snapshot().windows(5).any(|bytes| bytes == b"a-key"));
    // An old one, which knows no mark, and no place.
    let mut replica = Replica::new(&server);
    replica.say("SYNC");
    let snapshot = replica.snapshot();
    assert!(snapshot.starts_with(b"REDIS0011") && snapshot.windows(5).any(|bytes| bytes == b"a-key"));
    client.check("SET b v", "+OK\r\n");
    replica.log_to(&set("b"));
    // Fields with a TTL have no place in version 11.
    client.check("HSET h f v", ":1\r\n");
    client.check("HEXPIRE h 1000 FIELDS 1 f", "*1\r\n:1\r\n");
    let mut replica = Replica::new(&server);
    replica.say("REPLCONF capa eof");
    assert_eq!(replica.line(), "+OK");
    replica.say("PSYNC ? -1");
    replica.full_resync();
    replica.expect_end();
    server.wait_for_log("Can't store key (db 0) in RDB version 11");
    server.wait_for_log("SYNC failed. BGSAVE child returned an error");
    assert!(Replica::new(&server).full_sync().1 > 0, "others go on");
}

#[test]
fn a_replica_that_is_silent_is_given_up() {
    let server = start(&[]);
    let mut client = server.client();
    let mut replica = Replica::new(&server);
    replica.full_sync();
    replica.say("REPLCONF ACK 0");
    client.check("CONFIG SET repl-timeout 1", "+OK\r\n");
    replica.expect_end();
    server.wait_for_log("Disconnecting timedout replica (streaming sync): 127.0.0.1:7777");
    wait_until("it is gone", || client.info("replication", "connected_slaves") == 0);
}

#[test]
fn the_log_is_kept_no_longer_than_it_should() {
    let server = start(&["--repl-backlog-ttl", "1"]);
    let mut client = server.client();
    let mut replica = Replica::new(&server);
    let (id, _) = replica.full_sync();
    assert_eq!(client.info("replication", "repl_backlog_active"), 1);
    drop(replica);
    server.wait_for_log("Replication backlog freed after 1 seconds without connected replicas.");
    let info = client.ask("INFO replication");
    assert_eq!(field(&info, "repl_backlog_active"), 0);
    assert_ne!(text_field(&info, "master_replid"), id, "what follows is in no log");
    let mut replica = Replica::new(&server);
    replica.introduce();
    replica.say(&format!("PSYNC {id} 1"));
    replica.full_resync();
}

// ---- slow replicas ----

/// Sets a key to 100 KB, `count` times.
pub fn write_much(client: &mut Client, count: usize) {
    let value = "v".repeat(100_000);
    for number in 0..count {
        client.send(encode(&["SET", "key", &format!("{number:08}{value}")]));
        client.expect("+OK\r\n");
    }
}

#[test]
fn what_a_slow_replica_lacks_lies_on_disk() {
    let server = start(&["--repl-backlog-size", "1mb", "--repl-backlog-disk-size", "100mb"]);
    let mut client = server.client();
    let (mut replica, offset) = online(&server);
    let before = client.info("memory", "used_memory");
    write_much(&mut client, 400);
    let end = client.info("replication", "master_repl_offset");
    wait_until("the rest lies on disk", || {
        client.info("replication", "repl_log_first_offset_disk") < end - (20 << 20)
    });
    wait_until("memory has the backlog", || client.info("memory", "used_memory") < before + (8 << 20));
    let info = client.ask("INFO replication");
    assert_eq!(field(&info, "repl_lag_bytes"), end - offset, "{info}");
    let bytes = replica.take((end - offset) as usize);
    assert_eq!(bytes.len() as u64, end - offset);
    // Each command is as long as the others; the first has its SELECT.
    let command = encode(&["SET", "key", &"v".repeat(100_008)]).len();
    for (number, bytes) in bytes[bytes.len() % command..].chunks(command).enumerate() {
        let place = command - 100_008 - 2;
        assert_eq!(bytes[place..place + 9], *format!("{number:08}v").as_bytes());
    }
    // It leaves, and comes back for what it had: that is on disk too.
    drop(replica);
    wait_until("it is gone", || client.info("replication", "connected_slaves") == 0);
    let id = text_field(&client.ask("INFO replication"), "master_replid").to_string();
    let mut replica = Replica::new(&server);
    replica.introduce();
    replica.say(&format!("PSYNC {id} {}", offset + 1));
    assert_eq!(replica.line(), format!("+CONTINUE {id}"));
    assert!(replica.take((end - offset) as usize) == bytes);
    replica.say(&format!("REPLCONF ACK {end}"));
    wait_until("the ACK counts", || client.info("replication", "repl_lag_bytes") == 0);
}

#[test]
fn a_replica_that_is_too_slow_is_dropped() {
    // Without a ring memory is bounded by the limit of its class; with one by its size.
    for options in [
        ["--repl-backlog-disk-size", "0", "--client-output-buffer-limit", "replica 5mb 5mb 0"],
        ["--repl-backlog-disk-size", "4mb", "--client-output-buffer-limit", "replica 0 0 0"],
    ] {
        let server = start(&[&["--repl-backlog-size", "1mb"][..], &options].concat());
        let mut client = server.client();
        let (_replica, _) = online(&server);
        write_much(&mut client, 400);
        server.wait_for_log("closed for overcoming of output buffer limits.");
        wait_until("it is gone", || client.info("replication", "connected_slaves") == 0);
        assert_eq!(client.info("stats", "client_output_buffer_limit_disconnections"), 1);
    }
}

// ---- clients that wait for ACKs ----

const GETACK: &str = "*3\r\n$8\r\nREPLCONF\r\n$6\r\nGETACK\r\n$1\r\n*\r\n";

/// A replica that is online. Returns where its log begins.
pub fn online(server: &Server) -> (Replica, u64) {
    let mut replica = Replica::new(server);
    let (_, offset) = replica.full_sync();
    replica.say(&format!("REPLCONF ACK {offset}"));
    let mut client = server.client();
    // The log of a primary begins with a PING, so that its offset says something.
    wait_until("it is online", || {
        let info = client.ask("INFO replication");
        info.contains("state=online") && field(&info, "master_repl_offset") > 0
    });
    (replica, offset)
}

#[test]
fn wait_counts_acks() {
    let server = start(&[]);
    let (mut client, mut other) = (server.client(), server.client());
    client.check("WAIT 0 0", ":0\r\n");
    client.check("WAIT 1 10", ":0\r\n");
    client.check("WAIT x 10", "-ERR value is not an integer or out of range\r\n");
    client.check("WAIT 1 -1", "-ERR timeout is negative\r\n");
    client.check(
        "WAITAOF 1 0 0",
        "-ERR WAITAOF cannot be used when numlocal is set but appendonly is disabled.\r\n",
    );
    client.check("WAITAOF 2 0 0", "-ERR value is out of range, value must between 0 and 1\r\n");
    client.check("WAITAOF 0 -1 0", "-ERR value is out of range, must be positive\r\n");
    client.check("WAITAOF 0 a 0", "-ERR value is out of range, must be positive\r\n");
    client.check("WAITAOF 0 0 0", "*2\r\n:0\r\n:0\r\n");
    let (mut replica, offset) = online(&server);
    client.check("WAIT 1 0", ":1\r\n");
    client.check("SET key v", "+OK\r\n");
    let (id, end) = (client.id(), client.info("replication", "master_repl_offset"));
    client.send(encode(&["WAIT", "1", "0"]));
    wait_until("it waits", || other.sees_waiting(id));
    // The ACK is asked for at once.
    let log = replica.log_to(GETACK);
    assert_eq!(offset + (log.len() - GETACK.len()) as u64, end, "{log}");
    replica.say(&format!("REPLCONF ACK {}", end - 1));
    client.expect_silence();
    replica.say(&format!("REPLCONF ACK {end}"));
    client.expect(":1\r\n");
    assert_eq!(other.blocked_count(), 0);
    // A second client's changes are not waited for.
    other.check("SET key w", "+OK\r\n");
    client.check("WAIT 1 0", ":1\r\n");
    other.check("WAIT 1 10", ":0\r\n");
    // Not in a transaction, and not for ever.
    other.check("MULTI", "+OK\r\n");
    other.check("WAIT 1 0", "+QUEUED\r\n");
    other.check("EXEC", "*1\r\n:0\r\n");
    let id = other.id();
    for (how, reply) in [("", ":0\r\n"), (" ERROR", "-UNBLOCKED client unblocked via CLIENT UNBLOCK\r\n")] {
        other.send(encode(&["WAIT", "1", "0"]));
        wait_until("it waits", || client.sees_waiting(id));
        client.check(&format!("CLIENT UNBLOCK {id}{how}"), ":1\r\n");
        other.expect(reply);
    }
    // It waits for what another one was served to it.
    other.send(encode(&["BLPOP", "list", "0"]));
    wait_until("it waits", || client.sees_waiting(id));
    client.check("RPUSH list a", ":1\r\n");
    other.expect("*2\r\n$4\r\nlist\r\n$1\r\na\r\n");
    other.check("WAIT 1 10", ":0\r\n");
    // A replica that leaves is one less.
    drop(replica);
    wait_until("it is gone", || client.info("replication", "connected_slaves") == 0);
    client.check("WAIT 1 10", ":0\r\n");
}

#[test]
fn waitaof_counts_syncs() {
    let server = start(&["--appendonly", "yes", "--appendfsync", "everysec"]);
    let mut client = server.client();
    wait_until("it is loaded", || client.info("persistence", "loading") == 0);
    client.check("SET key v", "+OK\r\n");
    client.check("WAITAOF 1 0 0", "*2\r\n:1\r\n:0\r\n");
    let (mut replica, _) = online(&server);
    client.check("SET key w", "+OK\r\n");
    let end = client.info("replication", "master_repl_offset");
    client.send(encode(&["WAITAOF", "1", "1", "0"]));
    replica.log_to(GETACK);
    replica.say(&format!("REPLCONF ACK {end} FACK {}", end - 1));
    client.expect_silence();
    replica.say(&format!("REPLCONF ACK {end} FACK {end}"));
    client.expect("*2\r\n:1\r\n:1\r\n");
    client.send(encode(&["WAITAOF", "1", "2", "0"]));
    server.client().check("CONFIG SET appendonly no", "+OK\r\n");
    client.expect("-ERR WAITAOF cannot be used when numlocal is set but appendonly is disabled.\r\n");
}

#[test]
fn replies_wait_for_a_quorum() {
    let server = start(&["--repl-ack-quorum", "1", "--repl-ack-timeout", "300"]);
    let (mut client, mut other) = (server.client(), server.client());
    const REFUSED: &str =
        "-NOREPLICAS Not enough replicas acknowledged the change in time: applied, not acknowledged\r\n";
    wait_until("the log is kept", || client.info("replication", "repl_backlog_active") == 1);
    // Without a replica: an error each, in their order, and no hang.
    client.send([encode(&["SET", "a", "1"]), encode(&["MGET", "a", "b"]), encode(&["PING"])].concat());
    client.expect(REFUSED);
    client.expect(REFUSED);
    assert!(["+PONG\r\n", REFUSED].contains(&&*String::from_utf8(client.read_reply()).unwrap()));
    other.check("CONFIG SET repl-ack-timeout 60000", "+OK\r\n");
    let (mut replica, _) = online(&server);
    wait_until("all is acknowledged", || {
        let end = other.info("replication", "master_repl_offset");
        replica.say(&format!("REPLCONF ACK {end}"));
        other.ask("GET a") == "$1\r\n1\r\n"
    });
    client.send(encode(&["SET", "key", "v"]));
    replica.log_to(GETACK);
    let end = other.info("replication", "master_repl_offset");
    // A reader would see what is not acknowledged; others go on.
    other.send(encode(&["GET", "key"]));
    server.client().check("PING", "+PONG\r\n");
    replica.say(&format!("REPLCONF ACK {end}"));
    client.expect("+OK\r\n");
    other.expect("$1\r\nv\r\n");
    client.check("CONFIG SET repl-ack-quorum 0", "+OK\r\n");
    client.check("SET key w", "+OK\r\n");
}

/// A primary that becomes a replica loses what was not acknowledged: no client is answered OK.
#[test]
fn replies_that_wait_are_refused_by_a_replica() {
    let server = start(&["--repl-ack-quorum", "1", "--repl-ack-timeout", "60000"]);
    let (mut client, mut reader, mut other) = (server.client(), server.client(), server.client());
    wait_until("the log is kept", || other.info("replication", "repl_backlog_active") == 1);
    let mut has_run =
        |command: &str| wait_until("it has run", || other.ask("INFO commandstats").contains(command));
    client.send(encode(&["SET", "a", "1"]));
    has_run("cmdstat_set:calls=1");
    reader.send(encode(&["GET", "a"]));
    has_run("cmdstat_get:calls=1");
    other.check(&format!("REPLICAOF 127.0.0.1 {}", free_port()), "+OK\r\n");
    const DEMOTED: &str = "-NOREPLICAS This node is a replica now: applied, not acknowledged\r\n";
    client.expect(DEMOTED);
    reader.expect(DEMOTED);
    client.check("PING", "+PONG\r\n");
}

#[test]
fn writes_need_replicas_that_are_heard_of() {
    let server = start(&["--min-replicas-to-write", "1", "--min-replicas-max-lag", "1"]);
    let mut client = server.client();
    client.check("SET key v", "-NOREPLICAS Not enough good replicas to write.\r\n");
    let (replica, _) = online(&server);
    wait_until("it counts", || client.ask("SET key v") == "+OK\r\n");
    assert_eq!(client.info("replication", "min_slaves_good_slaves"), 1);
    wait_until("it is too silent", || client.ask("SET key v").starts_with("-NOREPLICAS"));
    drop(replica);
}

// ---- Valkey ----

/// Valkey's server as a replica of `server`. `None`, and said so, without one.
pub fn valkey(server: &Server) -> Option<Server> {
    let Some(folder) = std::env::var_os("ISOTHERM_PEER_BIN").map(PathBuf::from) else {
        eprintln!("skipped: ISOTHERM_PEER_BIN does not say where Valkey's programs are");
        return None;
    };
    let port = free_port();
    let mut command = Command::new(folder.join("valkey-server"));
    let primary = format!("127.0.0.1 {}", server.port);
    let (port_text, save) = (port.to_string(), "");
    command.args([
        "--port",
        &port_text,
        "--save",
        save,
        "--enable-debug-command",
        "yes",
        "--replicaof",
        &primary,
    ]);
    let replica = Server::spawn(port, command);
    wait_until("Valkey listens", || TcpStream::connect(("127.0.0.1", port)).is_ok());
    Some(replica)
}

/// Waits until both have the same log and the same data.
pub fn expect_equal(ours: &mut Client, theirs: &mut Client) {
    wait_until("the same offset", || {
        let end = ours.info("replication", "master_repl_offset");
        end == theirs.info("replication", "master_repl_offset")
            && end == ours.info("replication", "master_repl_offset")
    });
    assert_eq!(ours.ask("DEBUG DIGEST"), theirs.ask("DEBUG DIGEST"));
}

/// Some changes of each kind.
pub fn change(client: &mut Client, seed: u64) {
    let mut batch = Vec::new();
    let mut count = 0;
    let mut state = seed;
    let mut below = |n: u64| {
        state = state.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
        (state >> 33) % n
    };
    for _ in 0..5000 {
        let (key, value) = (below(300), below(1000));
        let words = match below(14) {
            0 => format!("SET s{key} {value} PX 500000"),
            1 => format!("APPEND s{key} {value}"),
            2 => format!("RPUSH l{key} {value} a b"),
            3 => format!("LPOP l{key}"),
            4 => format!("SADD t{key} {value}"),
            5 => format!("SPOP t{key} 2"),
            6 => format!("HSET h{key} f{value} {value}"),
            7 => format!("HEXPIRE h{key} 5000 FIELDS 1 f{value}"),
            8 => format!("ZADD z{key} {value} m{value}"),
            9 => format!("ZPOPMIN z{key}"),
            10 => format!("XADD x{key} * f {value}"),
            11 => format!("INCRBYFLOAT i{key} 0.5"),
            12 => format!("DEL s{key} l{key} h{key}"),
            _ => format!("SELECT {}", below(4)),
        };
        batch.extend(encode(&words.split(' ').collect::<Vec<_>>()));
        count += 1;
    }
    client.send(&batch);
    for _ in 0..count {
        client.read_reply();
    }
}

#[test]
fn valkey_follows() {
    let server = start(&["--enable-debug-command", "yes"]);
    let mut client = server.client();
    change(&mut client, 1);
    let Some(replica) = valkey(&server) else { return };
    let mut theirs = replica.client();
    wait_until("the link is up", || theirs.ask("INFO replication").contains("master_link_status:up"));
    change(&mut client, 2);
    expect_equal(&mut client, &mut theirs);
    // The link breaks, and it continues where it was.
    for seed in 3..8 {
        client.check("CLIENT KILL TYPE replica", ":1\r\n");
        change(&mut client, seed);
        wait_until("it is back", || client.info("replication", "connected_slaves") == 1);
        expect_equal(&mut client, &mut theirs);
    }
    let stats = client.ask("INFO stats");
    assert_eq!((field(&stats, "sync_full"), field(&stats, "sync_partial_ok")), (1, 5));
    // By way of the file on disk.
    client.check("CONFIG SET repl-diskless-sync no", "+OK\r\n");
    theirs.check("REPLICAOF NO ONE", "+OK\r\n");
    theirs.check("SET own v", "+OK\r\n");
    theirs.check(&format!("REPLICAOF 127.0.0.1 {}", server.port), "+OK\r\n");
    wait_until("a second full sync", || client.info("stats", "sync_full") == 2);
    server.wait_for_log("Starting BGSAVE for SYNC with target: disk");
    change(&mut client, 9);
    wait_until("the link is up", || theirs.ask("INFO replication").contains("master_link_status:up"));
    expect_equal(&mut client, &mut theirs);
}

#[test]
fn valkey_hands_over() {
    let server = start(&["--enable-debug-command", "yes"]);
    let Some(theirs) = valkey(&server) else { return };
    let (mut ours, mut them) = (server.client(), theirs.client());
    wait_until("the link is up", || them.ask("INFO replication").contains("master_link_status:up"));
    change(&mut ours, 1);
    expect_equal(&mut ours, &mut them);
    // It takes over, and is followed by the one that it followed.
    them.check("REPLICAOF NO ONE", "+OK\r\n");
    ours.check(&format!("REPLICAOF 127.0.0.1 {}", theirs.port), "+OK\r\n");
    wait_until("the link is up", || ours.ask("INFO replication").contains("master_link_status:up"));
    change(&mut them, 2);
    expect_equal(&mut them, &mut ours);
    them.check("FAILOVER", "+OK\r\n");
    wait_until("this node is the primary", || ours.ask("INFO replication").contains("role:master"));
    wait_until("Valkey follows", || them.ask("INFO replication").contains("master_link_status:up"));
    change(&mut ours, 3);
    expect_equal(&mut ours, &mut them);
    let info = ours.ask("INFO stats");
    assert_eq!(
        (field(&info, "sync_full"), field(&info, "sync_partial_ok")),
        (1, 1),
        "nothing was sent twice"
    );
    let end = ours.info("replication", "master_repl_offset");
    wait_until("the ACK counts", || {
        ours.ask("ROLE")
            == format!(
                "*3\r\n$6\r\nmaster\r\n:{end}\r\n*1\r\n*3\r\n$9\r\n127.0.0.1\r\n${}\r\n{}\r\n${}\r\n{end}\r\n",
                theirs.port.to_string().len(),
                theirs.port,
                end.to_string().len()
            )
    });
}

#[test]
fn messages_reach_subscribers_of_replicas() {
    let server = start(&[]);
    let mut client = server.client();
    let (mut replica, _) = online(&server);
    client.check("PUBLISH channel message", ":0\r\n");
    replica.log_to(&String::from_utf8(encode(&["PUBLISH", "channel", "message"])).unwrap());
}
