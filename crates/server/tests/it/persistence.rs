//! RDB files: written, loaded at start, refused when they are damaged.

use crate::common::{self, Client, Server, encode, wait_until};
use crate::failover::follow;
use std::path::Path;

const OK: &str = "+OK\r\n";
const DEBUG: [&str; 2] = ["--enable-debug-command", "yes"];

/// A server in a folder that another one has had, with these arguments.
fn start_in(folder: &Path, arguments: &[&str]) -> Server {
    let dir = folder.display().to_string();
    Server::with_workers(2, &[&DEBUG, &["--dir", &dir, "--save", ""][..], arguments].concat())
}

/// A folder of its own, removed at the end.
pub struct Folder(pub std::path::PathBuf);

impl Folder {
    pub fn new(name: &str) -> Folder {
        let path = std::env::temp_dir().join(format!("isotherm-rdb-{name}-{}", std::process::id()));
        std::fs::create_dir_all(&path).unwrap();
        Folder(path)
    }

    pub fn file(&self) -> std::path::PathBuf {
        self.0.join("dump.rdb")
    }

    fn names(&self) -> Vec<String> {
        let entries = std::fs::read_dir(&self.0).unwrap();
        let mut names: Vec<String> =
            entries.map(|entry| entry.unwrap().file_name().to_string_lossy().into_owned()).collect();
        names.sort();
        names
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        std::fs::remove_dir_all(&self.0).ok();
    }
}

/// Until the data is there.
fn wait_until_loaded(client: &mut Client) {
    wait_until("the data is loaded", || client.info("persistence", "loading") == 0);
}

/// Values of all types, small and large, with times, in two databases.
fn fill(client: &mut Client) {
    client.check("DEBUG POPULATE 2000 key 30", OK);
    let mut requests: Vec<Vec<Vec<u8>>> = Vec::new();
    let words = |line: &str| line.split(' ').map(|word| word.as_bytes().to_vec()).collect::<Vec<_>>();
    for line in [
        "SET string value EX 1000",
        "SET int 12345",
        "SET empty x",
        "RPUSH small a b 1 2",
        "HSET small:h a 1 b 2",
        "HSET times a 1 b 2",
        "HEXPIRE times 1000 FIELDS 1 a",
        "SADD ints 1 2 3",
        "SADD small:s a b 3",
        "ZADD small:z 1 a 2.5 b -inf c",
        "XADD stream 5-1 f v g w",
        "XADD stream 6-1 f v",
        "XGROUP CREATE stream group 0",
        "XREADGROUP GROUP group ann COUNT 1 STREAMS stream >",
    ] {
        requests.push(words(line));
    }
    requests.push(vec![b"SET".to_vec(), b"long".to_vec(), vec![b'x'; 100_000]]);
    for n in 0..3000 {
        requests.push(words(&format!("HSET large:h field:{n} value:{n}")));
        requests.push(words(&format!("RPUSH large:l element:{n}")));
        requests.push(words(&format!("SADD large:s member:{n}")));
        requests.push(words(&format!("ZADD large:z {n} member:{n}")));
        requests.push(words(&format!("XADD large:x {}-0 field value:{n}", n + 1)));
    }
    requests.push(words("EXPIRE large:h 5000"));
    requests.push(words("SELECT 3"));
    requests.push(words("SET other 1"));
    requests.push(words("SELECT 0"));
    requests.iter().for_each(|request| client.send(encode(request)));
    requests.iter().for_each(|request| {
        let reply = client.read_reply();
        assert_ne!(reply[0], b'-', "{}: {}", request[0].escape_ascii(), reply.escape_ascii());
    });
}

#[test]
fn what_is_saved_is_there_after_a_restart() {
    let folder = Folder::new("restart");
    let mut server = start_in(&folder.0, &[]);
    let mut client = server.client();
    fill(&mut client);
    let digest = client.ask("DEBUG DIGEST");
    client.check("SAVE", OK);
    assert_eq!(client.info("persistence", "rdb_changes_since_last_save"), 0);
    assert_eq!(folder.names(), ["dump.rdb"]);
    client.send(encode(&["SHUTDOWN", "NOSAVE"]));
    server.wait();
    let server = start_in(&folder.0, &[]);
    let mut client = server.client();
    wait_until_loaded(&mut client);
    assert_eq!(client.ask("DEBUG DIGEST"), digest);
    assert!((900..=1000).contains(&client.ask_number("TTL string")));
    client.check(
        "XPENDING stream group",
        "*4\r\n:1\r\n$3\r\n5-1\r\n$3\r\n5-1\r\n*1\r\n*2\r\n$3\r\nann\r\n$1\r\n1\r\n",
    );
    client.check("DEBUG RELOAD", OK);
    assert_eq!(client.ask("DEBUG DIGEST"), digest);
    client.check("DEBUG RELOAD NOSAVE MERGE", OK);
    assert_eq!(client.ask("DEBUG DIGEST"), digest);
    client.check("DEBUG CHECK-INVARIANTS", OK);
    server.wait_for_log("Done loading RDB, keys loaded: ");
}

#[test]
fn while_a_file_is_loaded_the_port_answers() {
    let folder = Folder::new("loading");
    let mut server = start_in(&folder.0, &[]);
    let mut client = server.client();
    client.check("DEBUG POPULATE 3000", OK);
    client.check("SAVE", OK);
    client.send(encode(&["SHUTDOWN"]));
    server.wait();
    let mut server = start_in(&folder.0, &["--key-load-delay", "1000"]);
    let mut client = server.client();
    client.check("GET key:1", "-LOADING Isotherm is loading the dataset in memory\r\n");
    client.check("SET key:1 x", "-LOADING Isotherm is loading the dataset in memory\r\n");
    assert_eq!(client.info("persistence", "loading"), 1);
    wait_until("the loader has opened the file", || client.info("persistence", "loading_total_bytes") > 0);
    assert!(!server.log().contains("Ready to accept connections"));
    // A half file does not take the place of the whole one.
    let bytes = std::fs::read(folder.file()).unwrap();
    client.send(encode(&["SHUTDOWN", "SAVE"]));
    assert!(server.wait().success());
    assert!(std::fs::read(folder.file()).unwrap() == bytes);
}

#[test]
fn what_cannot_be_read_ends_the_start() {
    let folder = Folder::new("damaged");
    let mut server = start_in(&folder.0, &[]);
    let mut client = server.client();
    client.check("DEBUG POPULATE 100", OK);
    client.check("SAVE", OK);
    client.send(encode(&["SHUTDOWN"]));
    server.wait();
    let sound = std::fs::read(folder.file()).unwrap();
    let ends = |bytes: &[u8], texts: &[&str]| {
        std::fs::write(folder.file(), bytes).unwrap();
        let (port, dir) = (common::free_port(), folder.0.display().to_string());
        let arguments = ["--port", &port.to_string(), "--dir", &dir, "--hide-user-data-from-log", "no"];
        let mut server = Server::spawn(port, common::command(&arguments));
        assert_eq!(server.wait().code(), Some(1), "{}", server.log());
        let log = server.log();
        for text in texts.iter().chain(&["Fatal error loading the DB, check server logs. Exiting."]) {
            assert!(log.contains(text), "{text:?} is missing in {log}");
        }
        assert!(!log.contains("Ready to accept"), "{log}");
    };
    let cut = &sound[..sound.len() - 200];
    ends(cut, &["Short read or OOM loading DB.", "key 'key:", "Unexpected EOF reading RDB file", "dump.rdb"]);
    ends(b"", &["Unexpected EOF reading RDB file"]);
    ends(b"no such format", &["Wrong signature trying to load DB from file: no such f"]);
    ends(b"REDIS0099\xff", &["Can't handle RDB format version 99"]);
    let mut flipped = sound.clone();
    flipped[sound.len() - 3] ^= 1;
    ends(&flipped, &["Wrong RDB checksum expected: ("]);
    let head = &sound[..sound.iter().position(|&byte| byte == 0xfe).unwrap()];
    ends(&[head, b"\xfe\x40\xff"].concat(), &["FATAL: Data file was created with a server configured"]);
    ends(&[head, b"\xfe\0\0\x01a\x01b\0\x01a\x01c\xff"].concat(), &["RDB has duplicated key 'a' in DB 0"]);
    ends(
        &[head, b"\xfe\0\x02\x01a\x02\x01b\x01b\xff"].concat(),
        &["RDB has a duplicated element, key 'a' in DB 0"],
    );
    ends(&[head, b"\xfe\0\x1b\x01a\xff"].concat(), &["Can't handle foreign type or opcode 27"]);
    std::fs::remove_file(folder.file()).unwrap();
    std::fs::create_dir(folder.file()).unwrap();
    let (port, dir) = (common::free_port(), folder.0.display().to_string());
    let mut server = Server::spawn(port, common::command(&["--port", &port.to_string(), "--dir", &dir]));
    assert_eq!(server.wait().code(), Some(1), "{}", server.log());
}

/// The file would bring back what is gone.
#[test]
fn flushall_ends_a_save() {
    let folder = Folder::new("flushed");
    let server = start_in(&folder.0, &["--save", ""]);
    let (mut client, mut saver) = (server.client(), server.client());
    client.check("DEBUG POPULATE 3000", OK);
    client.check("CONFIG SET rdb-key-save-delay 100000", OK);
    saver.send(encode(&["SAVE"]));
    wait_until("it has begun", || client.info("persistence", "current_save_keys_total") == 3000);
    client.check("FLUSHALL", OK);
    saver.expect("-ERR\r\n");
    wait_until("it leaves no file", || folder.names().is_empty());
    client.check("CONFIG SET rdb-key-save-delay 0", OK);
    saver.check("SAVE", OK);
    assert_eq!(folder.names(), ["dump.rdb"]);
}

#[test]
fn saving_in_the_background() {
    let folder = Folder::new("background");
    let server = start_in(&folder.0, &[]);
    let mut client = server.client();
    client.check("DEBUG POPULATE 3000", OK);
    client.check("BGSAVE CANCEL", "-ERR Background saving is currently not in progress or scheduled\r\n");
    client.check("BGSAVE NOSUCH", "-ERR syntax error\r\n");
    client.check("CONFIG SET rdb-key-save-delay 2000", OK);
    client.check("BGSAVE", "+Background saving started\r\n");
    client.check("BGSAVE", "-ERR Background save already in progress\r\n");
    client.check("BGSAVE SCHEDULE", "-ERR Background save already in progress\r\n");
    client.check("SAVE", "-ERR Background save already in progress\r\n");
    assert_eq!(client.info("persistence", "rdb_bgsave_in_progress"), 1);
    assert_eq!(client.info("persistence", "current_save_keys_total"), 3000);
    client.check("SET behind the:cut", OK);
    client.check("BGSAVE CANCEL", "+Background saving cancelled\r\n");
    client.check("CONFIG SET rdb-key-save-delay 0", OK);
    wait_until("it has ended", || client.info("persistence", "rdb_bgsave_in_progress") == 0);
    assert_eq!(folder.names(), [""; 0], "a save that was cancelled leaves nothing");
    assert!(client.ask("INFO persistence").contains("rdb_last_bgsave_status:ok"));
    client.check("MULTI", OK);
    client.check("BGSAVE", "+QUEUED\r\n");
    client.check("SET in the:file", "+QUEUED\r\n");
    client.check("EXEC", "*2\r\n+Background saving scheduled\r\n+OK\r\n");
    server.wait_for_log("Background saving terminated with success");
    assert_eq!(folder.names(), ["dump.rdb"]);
    assert_eq!(client.info("persistence", "rdb_changes_since_last_save"), 0);
    let since = client.ask_number("LASTSAVE");
    assert_eq!(since as u64, client.info("persistence", "rdb_last_save_time"));
}

/// Each second a line of the log.
#[test]
fn what_takes_long_says_how_far_it_is() {
    let folder = Folder::new("far");
    let mut server = start_in(&folder.0, &["--appendonly", "yes"]);
    let mut client = server.client();
    wait_until_loaded(&mut client);
    client.check("DEBUG POPULATE 20000", OK);
    client.check("SAVE", OK);
    client.check("CONFIG SET rdb-key-save-delay 1000", OK);
    for (request, expected) in [("BGSAVE", "Saving: "), ("BGREWRITEAOF", "Rewriting the append-only file: ")]
    {
        client.check("CONFIG SET rdb-key-save-delay 1000", OK);
        client.ask(request);
        server.wait_for_log(expected);
        client.check("CONFIG SET rdb-key-save-delay 0", OK);
        wait_until("it has ended", || {
            ["rdb_bgsave_in_progress", "aof_rewrite_in_progress"]
                .iter()
                .all(|field| client.info("persistence", field) == 0)
        });
    }
    assert!(server.log().contains(" % of 20000 keys, "), "{}", server.log());
    client.send(encode(&["SHUTDOWN", "NOSAVE"]));
    server.wait();
    let server = start_in(&folder.0, &["--key-load-delay", "1000", "--appendonly", "no"]);
    server.wait_for_log("Loading: ");
    assert!(server.log().contains(" MB/s"), "{}", server.log());
}

#[test]
fn flushall_ends_a_save_and_replaces_the_file() {
    let folder = Folder::new("flushall");
    let server = start_in(&folder.0, &["--rdb-key-save-delay", "2000"]);
    let mut client = server.client();
    client.check("DEBUG POPULATE 3000", OK);
    client.check("BGSAVE", "+Background saving started\r\n");
    client.check("FLUSHALL", OK);
    server.wait_for_log("Background saving was cancelled");
    wait_until("it has ended", || client.info("persistence", "rdb_bgsave_in_progress") == 0);
    assert_eq!(folder.names(), [""; 0]);
    assert_ne!(client.info("persistence", "rdb_changes_since_last_save"), 0);
    client.send(encode(&["CONFIG", "SET", "save", "3600 1"]));
    assert_eq!(client.read_reply(), OK.as_bytes());
    client.check("SET key value", OK);
    client.check("FLUSHALL", OK);
    assert_eq!(client.info("persistence", "rdb_changes_since_last_save"), 0);
    assert_eq!(folder.names(), ["dump.rdb"]);
}

#[test]
fn what_is_written_behind_the_cut_is_not_in_the_file() {
    let folder = Folder::new("cut");
    let mut server = start_in(&folder.0, &["--rdb-key-save-delay", "300"]);
    let mut client = server.client();
    fill(&mut client);
    let digest = client.ask("DEBUG DIGEST");
    client.check("BGSAVE", "+Background saving started\r\n");
    for n in 0..2000 {
        client.send(encode(&["SET", &format!("key:{n}"), "changed"]));
        client.send(encode(&["HDEL", "large:h", &format!("field:{n}")]));
        client.send(encode(&["LPOP", "large:l"]));
    }
    (0..6000).for_each(|_| drop(client.read_reply()));
    client.check("CONFIG SET rdb-key-save-delay 0", OK);
    server.wait_for_log("Background saving terminated with success");
    client.send(encode(&["SHUTDOWN", "NOSAVE"]));
    server.wait();
    let server = start_in(&folder.0, &[]);
    let mut client = server.client();
    wait_until_loaded(&mut client);
    assert_eq!(client.ask("DEBUG DIGEST"), digest);
}

/// The memory of old values that writers keep for a snapshot is bounded: above the limit they wait until the
/// save has progressed.
#[test]
fn writers_wait_for_a_save_that_keeps_much() {
    const KEYS: usize = 20_000;
    const BATCH: usize = 200;
    let folder = Folder::new("limit");
    let server = start_in(&folder.0, &["--snapshot-memory-limit", "200000", "--rdb-key-save-delay", "20"]);
    let (mut client, mut observer) = (server.client(), server.client());
    client.check(&format!("DEBUG POPULATE {KEYS} key 30"), OK);
    let digest = client.ask("DEBUG DIGEST");
    client.check("BGSAVE", "+Background saving started\r\n");
    let mut most = 0;
    for from in (0..KEYS).step_by(BATCH) {
        // From one place to another, so that each write meets another page.
        let keys = || (from..from + BATCH).map(|n| format!("key:{}", n * 7919 % KEYS));
        keys().for_each(|key| client.send(encode(&["SET", &key, "new"])));
        keys().for_each(|key| assert_eq!(client.read_reply(), b"+OK\r\n", "{key}"));
        most = most.max(observer.info("persistence", "current_cow_size"));
    }
    assert!(observer.info("persistence", "snapshot_writer_waits") > 0);
    // Values that two workers have under way when they find it full may be added.
    assert!((1..600_000).contains(&most), "{most} bytes were kept");
    wait_until("the save has ended", || observer.info("persistence", "rdb_bgsave_in_progress") == 0);
    assert_eq!(observer.info("persistence", "current_cow_size"), 0);
    observer.check("CONFIG SET rdb-key-save-delay 0", OK);
    observer.check("DEBUG RELOAD NOSAVE", OK);
    assert_eq!(observer.ask("DEBUG DIGEST"), digest, "the file is the state at the cut");
}

#[test]
fn a_killed_save_leaves_the_old_file() {
    let folder = Folder::new("killed");
    let mut server = start_in(&folder.0, &[]);
    let mut client = server.client();
    client.check("SET old value", OK);
    client.check("SAVE", OK);
    let before = std::fs::read(folder.file()).unwrap();
    client.check("DEBUG POPULATE 3000", OK);
    client.check("CONFIG SET rdb-key-save-delay 5000", OK);
    client.check("BGSAVE", "+Background saving started\r\n");
    wait_until("the file is begun", || folder.names().len() == 2);
    server.signal("KILL");
    server.wait();
    assert!(std::fs::read(folder.file()).unwrap() == before);
    let server = start_in(&folder.0, &[]);
    let mut client = server.client();
    wait_until_loaded(&mut client);
    client.check("DBSIZE", ":1\r\n");
    client.check("GET old", "$5\r\nvalue\r\n");
}

#[test]
fn a_failed_save_stops_writes() {
    let folder = Folder::new("failed");
    let server = start_in(&folder.0, &[]);
    let mut client = server.client();
    client.check("SET key value", OK);
    std::fs::create_dir(folder.file()).unwrap();
    client.check("SAVE", "-ERR\r\n");
    client.check("BGSAVE", "+Background saving started\r\n");
    server.wait_for_log("Background saving error");
    server.wait_for_log("Error moving temp DB file temp-");
    wait_until("it is known", || client.ask("INFO persistence").contains("rdb_last_bgsave_status:err"));
    assert_eq!(folder.names(), ["dump.rdb"], "the temporary file is gone");
    client.check("SET key other", OK);
    client.send(encode(&["CONFIG", "SET", "save", "3600 1"]));
    client.expect(OK);
    let reply = client.ask("SET key third");
    assert!(reply.starts_with("-MISCONF Isotherm is configured to save RDB snapshots, but"), "{reply}");
    client.check("GET key", "$5\r\nother\r\n");
    client.check("MULTI", OK);
    assert!(client.ask("SET key fourth").starts_with("-MISCONF"));
    client.check("DISCARD", OK);
    // Sentinels take that for a node that is down. A queue with one is run if it was queued before.
    assert!(client.ask("PING").starts_with("-MISCONF"));
    client.check("CONFIG SET stop-writes-on-bgsave-error no", OK);
    client.check("PING", "+PONG\r\n");
    client.check("MULTI", OK);
    client.check("PING", "+QUEUED\r\n");
    server.client().check("CONFIG SET stop-writes-on-bgsave-error yes", OK);
    client.check("EXEC", "*1\r\n+PONG\r\n");
    client.check("CONFIG SET stop-writes-on-bgsave-error no", OK);
    client.check("SET key fifth", OK);
    client.check("CONFIG SET stop-writes-on-bgsave-error yes", OK);
    std::fs::remove_dir(folder.file()).unwrap();
    client.check("SAVE", OK);
    client.check("SET key sixth", OK);
    client.check("PING", "+PONG\r\n");
}

/// With a quorum the log is kept before the file is loaded that says where it continues.
#[test]
fn a_file_with_a_history_is_loaded_with_a_quorum() {
    let folder = Folder::new("quorum");
    let mut server = start_in(&folder.0, &[]);
    let mut client = server.client();
    client.check("SET key value", OK);
    // Its file states a history once there is a backlog.
    client.check("CONFIG SET repl-ack-quorum 1", OK);
    wait_until("there is a backlog", || client.info("replication", "repl_backlog_active") == 1);
    client.check("SAVE", OK);
    server.signal("KILL");
    server.wait();
    // The load lasts long enough for the log to be kept meanwhile.
    let server = start_in(&folder.0, &["--repl-ack-quorum", "1", "--key-load-delay", "300000"]);
    let mut client = server.client();
    wait_until_loaded(&mut client);
    wait_until("there is a backlog", || client.info("replication", "repl_backlog_active") == 1);
    client.check("CONFIG SET repl-ack-quorum 0", OK);
    client.check("GET key", "$5\r\nvalue\r\n");
}

/// The log is kept for the quorum before the append-only file says where it begins.
#[test]
fn an_append_only_file_begins_with_a_quorum() {
    let folder = Folder::new("quorum-aof");
    for answer in ["$-1\r\n", "$5\r\nvalue\r\n"] {
        let mut server = start_in(&folder.0, &["--appendonly", "yes", "--repl-ack-quorum", "1"]);
        let mut client = server.client();
        wait_until_loaded(&mut client);
        client.check("CONFIG SET repl-ack-quorum 0", OK);
        client.check("GET key", answer);
        client.check("SET key value", OK);
        client.check("CONFIG SET repl-ack-quorum 1", OK);
        wait_until("there is a backlog", || client.info("replication", "repl_backlog_active") == 1);
        server.signal("TERM");
        assert!(server.wait().success());
    }
}

#[test]
fn save_points_and_the_end_write_files() {
    let folder = Folder::new("points");
    let mut server = start_in(&folder.0, &["--save", "1", "5"]);
    let mut client = server.client();
    (0..6).for_each(|n| client.check(&format!("SET key:{n} value"), OK));
    server.wait_for_log("5 changes in 1 seconds. Saving...");
    server.wait_for_log("Background saving terminated with success");
    client.check("SET key:7 value", OK);
    server.signal("TERM");
    assert!(server.wait().success());
    server.wait_for_log("Saving the final RDB snapshot before exiting.");
    let server = start_in(&folder.0, &[]);
    let mut client = server.client();
    wait_until_loaded(&mut client);
    client.check("DBSIZE", ":7\r\n");
    assert_eq!(client.info("persistence", "rdb_last_load_keys_loaded"), 7);
}

#[test]
fn what_has_expired_stays_behind() {
    let folder = Folder::new("expired");
    let mut server = start_in(&folder.0, &[]);
    let mut client = server.client();
    client.check("DEBUG SET-ACTIVE-EXPIRE 0", OK);
    client.check("SET stays 1 EX 1000", OK);
    client.check("SET goes 1 PX 20", OK);
    client.check("HSET half a 1 b 2", ":2\r\n");
    client.check("HPEXPIRE half 20 FIELDS 1 a", "*1\r\n:1\r\n");
    client.check("HSET whole a 1", ":1\r\n");
    client.check("HPEXPIRE whole 20 FIELDS 1 a", "*1\r\n:1\r\n");
    client.check("SAVE", OK);
    client.send(encode(&["SHUTDOWN"]));
    server.wait();
    let written = std::fs::metadata(folder.file()).unwrap().modified().unwrap();
    wait_until("their time is over", || written.elapsed().unwrap().as_millis() > 40);
    let server = start_in(&folder.0, &[]);
    let mut client = server.client();
    wait_until_loaded(&mut client);
    client.check("DBSIZE", ":2\r\n");
    client.check("HGETALL half", "*2\r\n$1\r\nb\r\n$1\r\n2\r\n");
    assert_eq!(client.info("persistence", "rdb_last_load_keys_expired"), 1);
}

/// Under an LFU policy a file has the counters of its keys, of strings as of large collections, and under
/// another one nothing of it.
#[test]
fn what_is_known_of_the_use_of_keys_is_saved() {
    let folder = Folder::new("use");
    let lfu = ["--maxmemory-policy", "allkeys-lfu", "--lfu-log-factor", "0", "--lfu-decay-time", "0"];
    let names = ["string", "long", "small", "large"];
    let mut server = start_in(&folder.0, &lfu);
    let mut client = server.client();
    client.check("SET string text", OK);
    client.send(encode(&["SET", "long", &"x".repeat(9000)]));
    client.expect(OK);
    client.check("RPUSH small a b", ":2\r\n");
    let fields: Vec<String> = (0..2000).map(|at| format!("field{at}")).collect();
    let members = ["SADD", "large"].into_iter().chain(fields.iter().map(String::as_str));
    client.send(encode(&members.collect::<Vec<_>>()));
    client.expect(":2000\r\n");
    for (at, name) in names.iter().enumerate() {
        (0..10 + at).for_each(|_| client.check(&format!("TOUCH {name}"), ":1\r\n"));
    }
    let counters = |client: &mut Client| names.map(|name| client.ask_number(&format!("OBJECT FREQ {name}")));
    let before = counters(&mut client);
    assert!(before.iter().all(|count| *count > 10) && before.is_sorted(), "{before:?}");
    client.check("SAVE", OK);
    client.send(encode(&["SHUTDOWN", "NOSAVE"]));
    server.wait();
    let mut server = start_in(&folder.0, &lfu);
    let mut client = server.client();
    wait_until_loaded(&mut client);
    assert_eq!(counters(&mut client), before);
    let with = std::fs::metadata(folder.file()).unwrap().len();
    client.send(encode(&["SHUTDOWN", "NOSAVE"]));
    server.wait();
    let server = start_in(&folder.0, &[]);
    let mut client = server.client();
    wait_until_loaded(&mut client);
    client.check("SAVE", OK);
    let without = std::fs::metadata(folder.file()).unwrap().len();
    assert_eq!(with, without + 2 * names.len() as u64, "an opcode and a byte of each key");
}

#[test]
fn data_that_does_not_fit_maxmemory_says_need_and_have() {
    let folder = Folder::new("room");
    {
        let mut server = start_in(&folder.0, &[]);
        let mut client = server.client();
        client.check("DEBUG POPULATE 20000 key 200", OK);
        client.check("SAVE", OK);
        client.send(encode(&["SHUTDOWN", "NOSAVE"]));
        server.wait();
    }
    // The estimate comes in the second second of the load at the earliest.
    let server = start_in(&folder.0, &["--maxmemory", "3mb", "--key-load-delay", "150"]);
    let mut client = server.client();
    wait_until_loaded(&mut client);
    assert_eq!(client.ask("DBSIZE"), ":20000\r\n");
    let log = server.log();
    for needs in ["The data needs about ", "The data takes "] {
        let line = log.lines().find(|line| line.contains(needs)).unwrap_or_else(|| panic!("{needs}: {log}"));
        assert!(line.contains("and maxmemory is 3.00M: writes will be refused when it is loaded."), "{line}");
    }
    assert!(client.ask("SET one more").starts_with("-OOM "));
}

#[test]
fn debug_reload_is_refused_while_a_save_is_under_way() {
    let folder = Folder::new("reload");
    let server = start_in(&folder.0, &[]);
    let mut client = server.client();
    client.check("DEBUG POPULATE 3000", OK);
    client.check("CONFIG SET rdb-key-save-delay 2000", OK);
    client.check("BGSAVE", "+Background saving started\r\n");
    client.check("DEBUG RELOAD", "-ERR Background save already in progress\r\n");
    client.check("BGSAVE CANCEL", "+Background saving cancelled\r\n");
    wait_until("it is over", || client.info("persistence", "rdb_bgsave_in_progress") == 0);
    client.check("CONFIG SET rdb-key-save-delay 0", OK);
    client.check("DEBUG RELOAD", OK);
    client.check("DBSIZE", ":3000\r\n");
}

#[test]
fn debug_reload_drops_what_has_expired_unless_a_replica_has_it() {
    let folder = Folder::new("expired-fields");
    let server = start_in(&folder.0, &[]);
    let mut client = server.client();
    let follower = Server::start(&[]);
    follow(&follower, &server);
    client.check("DEBUG SET-ACTIVE-EXPIRE 0", OK);
    client.check("HSETEX hash PX 1 FIELDS 1 field value", ":1\r\n");
    wait_until("the field has expired", || client.ask("HTTL hash FIELDS 1 field") == "*1\r\n:-2\r\n");
    client.check("DEBUG RELOAD", OK);
    client.check("EXISTS hash", ":1\r\n");
    drop(follower);
    wait_until("no replica is left", || client.info("replication", "connected_slaves") == 0);
    client.check("DEBUG RELOAD", OK);
    client.check("EXISTS hash", ":0\r\n");
}

/// A thread that holds everything ends its own snapshot.
#[test]
fn debug_reload_that_cannot_save_is_an_error() {
    let folder = Folder::new("no-folder");
    let server = start_in(&folder.0, &[]);
    let mut client = server.client();
    std::fs::remove_dir_all(&folder.0).expect("it was there");
    client.check("DEBUG RELOAD", "-ERR\r\n");
    client.check("GET key", "$-1\r\n");
}
