//! The append-only file: what was answered is there again after a restart, however the server ended.

use crate::common::{Client, OnDrop, Server, command, encode, free_port, wait_until};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};

/// A folder for the data of servers that are started one after the other.
pub struct Data(pub PathBuf);

impl Data {
    pub fn new() -> Data {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        let folder = std::env::temp_dir().join(format!("isotherm-aof-{}-{number}", std::process::id()));
        std::fs::create_dir_all(&folder).unwrap();
        Data(folder)
    }

    pub fn arguments<'a>(&'a self, more: &[&'a str]) -> Vec<&'a str> {
        let mut all =
            vec!["--dir", self.0.to_str().unwrap(), "--appendonly", "yes", "--enable-debug-command", "yes"];
        all.extend_from_slice(more);
        all
    }

    pub fn start(&self, workers: usize, more: &[&str]) -> Server {
        let server = Server::with_workers(workers, &self.arguments(more));
        wait_until("the data is loaded", || !server.client().ask("GET x").starts_with("-LOADING"));
        server
    }

    /// Starts a server that is expected to end by itself. Returns its log.
    pub fn fails_to_start(&self) -> String {
        let port = free_port();
        let text = port.to_string();
        let mut all = vec!["--port", &text, "--bind", "127.0.0.1"];
        all.extend(self.arguments(&[]));
        let mut server = Server::spawn(port, command(&all));
        assert!(!server.wait().success(), "it starts");
        server.log()
    }

    pub fn file(&self, name: &str) -> PathBuf {
        self.0.join("appendonlydir").join(name)
    }

    pub fn write(&self, name: &str, bytes: &[u8]) {
        std::fs::create_dir_all(self.0.join("appendonlydir")).unwrap();
        std::fs::write(self.file(name), bytes).unwrap();
    }

    /// A manifest that lists these log files, and the files.
    pub fn write_log(&self, files: &[&[u8]]) {
        let line = |at: usize| format!("file appendonly.aof.{at}.incr.aof seq {at} type i\n");
        let manifest: String = (1..=files.len()).map(line).collect();
        self.write("appendonly.aof.manifest", manifest.as_bytes());
        for (at, bytes) in files.iter().enumerate() {
            self.write(&format!("appendonly.aof.{}.incr.aof", at + 1), bytes);
        }
    }
}

impl Drop for Data {
    fn drop(&mut self) {
        std::fs::remove_dir_all(&self.0).ok();
    }
}

pub fn wire(requests: &[&str]) -> Vec<u8> {
    let words = |request: &&str| crate::common::encode(&request.split(' ').collect::<Vec<_>>());
    requests.iter().flat_map(words).collect()
}

pub fn kill(server: &mut Server) {
    server.signal("KILL");
    server.wait();
}

fn waits_for(path: &Path, bytes: &[u8]) {
    wait_until("the append-only file has the command", || {
        std::fs::read(path).is_ok_and(|read| read.windows(bytes.len()).any(|window| window == bytes))
    });
}

#[test]
fn all_types_are_there_after_a_restart() {
    let data = Data::new();
    let requests = [
        "SET s value",
        "APPEND s more",
        "INCRBYFLOAT f 1.5",
        "RPUSH l a b c",
        "LMOVE l m LEFT RIGHT",
        "SADD set a b c d",
        "SPOP set 2",
        "ZADD z 1 a 2.5 b",
        "HSET h f v g w",
        "HPEXPIRE h 100000 FIELDS 1 f",
        "XADD x * f v",
        "XGROUP CREATE x g 0",
        "XREADGROUP GROUP g c STREAMS x >",
        "SET e 1 EX 1000",
        "SET gone 1 PX 1",
        "SELECT 5",
        "SET other 1",
        "MULTI",
        "SET t 1",
        "INCR t",
        "EXEC",
        "MOVE other 6",
        "SWAPDB 5 7",
        "PFADD p a b c",
        "SETBIT bits 7 1",
        "GEOADD geo 13 38 place",
        "DEL nothing",
    ];
    let mut server = data.start(2, &["--appendfsync", "always"]);
    let mut client = server.client();
    for request in requests {
        assert!(!client.ask(request).starts_with('-'), "{request}");
    }
    client.check("SELECT 0", "+OK\r\n");
    wait_until("the key expires", || client.ask("EXISTS gone") == ":0\r\n");
    let digest = client.ask("DEBUG DIGEST");
    for _ in 0..2 {
        kill(&mut server);
        server = data.start(2, &["--appendfsync", "always"]);
        client = server.client();
        client.check("DEBUG DIGEST", &digest);
    }
    // Commands that are written after it are there too.
    client.check("SELECT 7", "+OK\r\n");
    client.check("INCR t", ":3\r\n");
    kill(&mut server);
    let server = data.start(1, &[]);
    let mut client = server.client();
    client.check("SELECT 7", "+OK\r\n");
    client.check("GET t", "$1\r\n3\r\n");
}

#[test]
fn the_bytes_are_those_that_valkey_writes() {
    let data = Data::new();
    let server = data.start(1, &[]);
    let mut client = server.client();
    for request in
        ["SET a 1", "GET a", "MULTI", "INCR a", "SELECT 2", "SET b 2 EX 100", "EXEC", "DEL a", "DEL a"]
    {
        client.ask(request);
    }
    client.check("SELECT 0", "+OK\r\n");
    client.check("DEL a", ":1\r\n");
    let mut expected = wire(&["SELECT 0", "SET a 1", "MULTI", "INCR a", "SELECT 2"]);
    let file = data.file("appendonly.aof.1.incr.aof");
    let last = wire(&["EXEC", "SELECT 0", "DEL a"]);
    waits_for(&file, &last);
    let read = std::fs::read(file).unwrap();
    // Between them stands SET b 2 PXAT and the time.
    expected.extend_from_slice(b"*5\r\n$3\r\nSET\r\n$1\r\nb\r\n$1\r\n2\r\n$4\r\nPXAT\r\n");
    assert!(read.starts_with(&expected), "{}", read.escape_ascii());
    assert!(read.ends_with(&last), "{}", read.escape_ascii());
}

#[test]
fn under_always_no_answered_write_is_lost() {
    const CLIENTS: usize = 12;
    let data = Data::new();
    let answered: Vec<AtomicU64> = (0..CLIENTS).map(|_| AtomicU64::new(0)).collect();
    for _ in 0..4 {
        let mut server = data.start(2, &["--appendfsync", "always"]);
        let mut client = server.client();
        for (at, answered) in answered.iter().enumerate() {
            let kept: u64 = number(&client.ask(&format!("GET c{at}")));
            assert!(kept >= answered.load(Ordering::Relaxed), "client {at}: {kept} of {answered:?}");
            assert_eq!(number(&client.ask(&format!("GET d{at}"))), kept, "a transaction is whole");
            answered.store(kept, Ordering::Relaxed);
        }
        let before: u64 = answered.iter().map(|answered| answered.load(Ordering::Relaxed)).sum();
        let is_over = AtomicBool::new(false);
        std::thread::scope(|scope| {
            let _stop = OnDrop(|| is_over.store(true, Ordering::Relaxed));
            for (at, answered) in answered.iter().enumerate() {
                let (client, is_over) = (server.client(), &is_over);
                scope.spawn(move || write_until_the_end(client, at, answered, is_over));
            }
            wait_until("some writes are answered", || {
                let now: u64 = answered.iter().map(|answered| answered.load(Ordering::Relaxed)).sum();
                now >= before + 200
            });
            kill(&mut server);
        });
    }
}

/// Writes numbers, in transactions of two keys, and notes what was answered.
fn write_until_the_end(mut client: Client, at: usize, answered: &AtomicU64, is_over: &AtomicBool) {
    use std::io::{Read, Write};
    let mut next = answered.load(Ordering::Relaxed);
    while !is_over.load(Ordering::Relaxed) {
        next += 1;
        let requests = ["MULTI", &format!("SET c{at} {next}"), &format!("SET d{at} {next}"), "EXEC"];
        let reply = b"+OK\r\n+QUEUED\r\n+QUEUED\r\n*2\r\n+OK\r\n+OK\r\n";
        let mut got = vec![0; reply.len()];
        let asked = client.stream.write_all(&wire(&requests));
        if asked.and_then(|()| client.stream.read_exact(&mut got)).is_err() {
            return;
        }
        assert_eq!(got, reply);
        answered.store(next, Ordering::Relaxed);
    }
}

fn number(reply: &str) -> u64 {
    reply.lines().nth(1).map_or(0, |line| line.parse().unwrap())
}

#[test]
fn a_read_waits_for_what_it_shows() {
    // Replies to reads and to blocked clients come by the same way as those to writes; none may be forgotten
    // there.
    let data = Data::new();
    let server = data.start(2, &["--appendfsync", "always"]);
    let (mut writer, mut reader, mut waiter) = (server.client(), server.client(), server.client());
    for round in 0..50 {
        waiter.send(crate::common::encode(&["BLPOP", "list", "0"]));
        writer.send(wire(&[&format!("SET a {round}"), "GET a", "RPUSH list x", "PING"]));
        let value = format!("{round}");
        writer.expect("+OK\r\n");
        writer.expect(&format!("${}\r\n{value}\r\n", value.len()));
        writer.expect(":1\r\n");
        writer.expect("+PONG\r\n");
        waiter.expect("*2\r\n$4\r\nlist\r\n$1\r\nx\r\n");
        reader.check("GET a", &format!("${}\r\n{value}\r\n", value.len()));
    }
}

#[test]
fn a_torn_tail_is_cut_off() {
    let whole = wire(&["SELECT 0", "SET a 1"]);
    for torn in
        [&b"*3\r\n$3\r\nSET\r\n$1\r\nb\r\n$10\r\nxx"[..], b"*", b"*3\r\n$3", &wire(&["MULTI", "SET c 1"])]
    {
        let data = Data::new();
        data.write_log(&[&[&whole[..], torn].concat()]);
        let mut server = data.start(1, &[]);
        let mut client = server.client();
        client.check("GET a", "$1\r\n1\r\n");
        client.check("DBSIZE", ":1\r\n");
        assert!(server.log().contains("!!! Truncating the AOF appendonly.aof.1.incr.aof at offset 50 !!!"));
        assert_eq!(std::fs::read(data.file("appendonly.aof.1.incr.aof")).unwrap(), whole);
        client.check("SET b 2", "+OK\r\n");
        server.signal("TERM");
        assert!(server.wait().success());
        let server = data.start(1, &[]);
        server.client().check("DBSIZE", ":2\r\n");
    }
}

/// Three writes of 2 KB each, synced one by one: each is a commit with its line. The file, and where the
/// commits begin.
fn three_commits(data: &Data, more: &[&str]) -> (Vec<u8>, Vec<usize>) {
    let mut server = data.start(1, more);
    let mut client = server.client();
    for key in ["a", "b", "c"] {
        client.check(&format!("SET {key} {}", key.repeat(2000)), "+OK\r\n");
    }
    kill(&mut server);
    let bytes = std::fs::read(data.file("appendonly.aof.1.incr.aof")).unwrap();
    let is_mark = |at: &usize| bytes[*at..].starts_with(b"#isotherm commit ");
    let marks = (0..bytes.len()).filter(is_mark).collect();
    (bytes, marks)
}

#[test]
fn a_commit_that_was_torn_is_cut_off() {
    let data = Data::new();
    let (bytes, marks) = three_commits(&data, &["--appendfsync", "always"]);
    let last = marks[2];
    let mut wrong_value = bytes.clone();
    wrong_value[last + 1000] ^= 1;
    let mut lost_start = bytes.clone();
    lost_start[last..last + 200].fill(0);
    let mut zeros = bytes.clone();
    zeros[last..].fill(0);
    for torn in [wrong_value, lost_start, zeros, bytes[..bytes.len() - 1].to_vec()] {
        data.write("appendonly.aof.1.incr.aof", &torn);
        let server = data.start(1, &["--appendfsync", "always"]);
        let mut client = server.client();
        client.check("EXISTS a b c", ":2\r\n");
        assert!(
            server.log().contains(&format!("Truncating the AOF appendonly.aof.1.incr.aof at offset {last} "))
        );
        client.check("SET c more", "+OK\r\n");
        drop(server);
    }
    assert_eq!(data.start(1, &[]).client().ask("GET c"), "$4\r\nmore\r\n");
}

#[test]
fn what_was_durable_and_is_damaged_ends_the_start() {
    let data = Data::new();
    let (bytes, marks) = three_commits(&data, &["--appendfsync", "always"]);
    assert_eq!(marks.len(), 3);
    for (at, byte) in [(marks[1] + 500, b'x'), (marks[1] + 20, b'9'), (marks[0] + 3, 0)] {
        let mut damaged = bytes.clone();
        damaged[at] = byte;
        data.write("appendonly.aof.1.incr.aof", &damaged);
        let log = data.fails_to_start();
        let from = marks.iter().rev().find(|mark| **mark <= at).unwrap();
        let expected = format!("appendonly.aof.1.incr.aof is damaged at offset {from}: ");
        assert!(log.contains(&expected), "{log}");
        assert_eq!(std::fs::read(data.file("appendonly.aof.1.incr.aof")).unwrap(), damaged, "it is not cut");
    }
    // Not looked at, the wrong value is served.
    let mut damaged = bytes.clone();
    damaged[marks[1] + 500] = b'x';
    data.write("appendonly.aof.1.incr.aof", &damaged);
    let server = data.start(1, &["--aof-integrity-check", "no"]);
    assert!(server.client().ask("GET b").contains("bxb"));
}

#[test]
fn without_the_integrity_check_files_are_those_of_valkey() {
    let data = Data::new();
    let (bytes, marks) = three_commits(&data, &["--appendfsync", "always", "--aof-integrity-check", "no"]);
    assert!(marks.is_empty() && !bytes.contains(&b'#'));
    // It can be switched on later.
    let mut server = data.start(1, &["--appendfsync", "always"]);
    let mut client = server.client();
    client.check(&format!("SET d {}", "d".repeat(1000)), "+OK\r\n");
    kill(&mut server);
    let bytes = std::fs::read(data.file("appendonly.aof.1.incr.aof")).unwrap();
    assert!(bytes.windows(17).any(|window| window == b"#isotherm commit "));
    data.start(1, &[]).client().check("EXISTS a b c d", ":4\r\n");
}

/// Commits by the thousand under `always`: the log continues in files that were prepared.
#[test]
fn prepared_files_are_used_and_read_back() {
    const ALWAYS: [&str; 6] =
        ["--appendfsync", "always", "--aof-prepare-bytes", "1mb", "--aof-load-truncated", "no"];
    let data = Data::new();
    let mut server = data.start(2, &ALWAYS);
    let manifest = data.file("appendonly.aof.manifest");
    let files = || std::fs::read_to_string(&manifest).unwrap_or_default().matches("type i").count();
    let mut client = server.client();
    let (mut written, value) = (0, "v".repeat(700));
    let write = |client: &mut Client, written: &mut u64| {
        client.check(&format!("SET key{} {value}{written}", *written % 50), "+OK\r\n");
        client.check("INCR written", &format!(":{}\r\n", *written + 1));
        *written += 1;
    };
    for _ in 0..2 {
        let before = files();
        wait_until("some files were prepared", || {
            (0..100).for_each(|_| write(&mut client, &mut written));
            files() >= before + 3
        });
        let digest = client.ask("DEBUG DIGEST");
        let last = data.file(&format!("appendonly.aof.{}.incr.aof", files()));
        assert!(std::fs::read(&last).unwrap().starts_with(b"#isotherm prepared 1048576 "));
        kill(&mut server);
        server = data.start(2, &ALWAYS);
        client = server.client();
        client.check("DEBUG DIGEST", &digest);
        let bytes = std::fs::read(&last).unwrap();
        assert!(
            bytes.len().is_multiple_of(512)
                && !bytes.ends_with(&isotherm_persist::aof::commit::unused_sector())
        );
    }
    // The file before the last has its length, and one that was prepared is gone with the server.
    server.signal("TERM");
    assert!(server.wait().success());
    assert!(!data.file("temp-appendonly.aof.prepared").exists());
}

#[test]
fn a_commit_whose_length_is_a_lie_takes_no_memory() {
    let data = Data::new();
    let line = isotherm_persist::aof::commit::header(0, 0, std::iter::once(&b"x"[..]));
    let text = String::from_utf8(line).unwrap().replace(" 0 1 0 ", " 0 9223372036854775807 0 ");
    data.write_log(&[text.as_bytes()]);
    let server = data.start(1, &[]);
    server.client().check("DBSIZE", ":0\r\n");
    assert!(server.log().contains("Truncating the AOF appendonly.aof.1.incr.aof at offset 0 "));
}

#[test]
fn what_cannot_be_read_ends_the_start() {
    let whole = wire(&["SELECT 0", "SET a 1"]);
    let torn = &whole[..whole.len() - 3];
    let check = |files: &[&[u8]], expected: &str| {
        let data = Data::new();
        data.write_log(files);
        let log = data.fails_to_start();
        assert!(log.contains(expected), "{expected}: {log}");
        // Nothing was changed.
        for (at, bytes) in files.iter().enumerate() {
            assert_eq!(
                std::fs::read(data.file(&format!("appendonly.aof.{}.incr.aof", at + 1))).unwrap(),
                *bytes
            );
        }
    };
    let bad = [&whole[..], b"what is this\r\n"].concat();
    check(&[&bad], "Bad file format reading the append only file appendonly.aof.1.incr.aof at offset 50");
    check(&[&wire(&["NOSUCH a"])], "error: unknown command 'NOSUCH'");
    check(&[&wire(&["SET a"])], "error: wrong number of arguments for 'SET'");
    check(&[&wire(&["SELECT 16"])], "error: database 16 does not exist");
    check(&[&wire(&["EXEC"])], "ExecWithoutMulti");
    check(&[torn, &whole], "Fatal error: the truncated file is not the last file");
    check(&[b"*99999999999\r\n"], "Bad file format");
    check(&[b"*1\r\n$99999999999\r\n"], "Bad file format");
    let data = Data::new();
    data.write("appendonly.aof.manifest", b"file a seq 1 type b\nfile b seq 1 type b\n");
    assert!(data.fails_to_start().contains("Found duplicate base file information"));
    let data = Data::new();
    data.write_log(&[&whole]);
    std::fs::remove_file(data.file("appendonly.aof.1.incr.aof")).unwrap();
    assert!(data.fails_to_start().contains("The append log file appendonly.aof.1.incr.aof doesn't exist"));
}

#[test]
fn files_that_do_not_join_end_the_start() {
    let whole = wire(&["SELECT 0", "SET a 1"]);
    let check = |places: [&str; 2], expected: &str| {
        let data = Data::new();
        data.write_log(&[&whole, &whole]);
        let lines: String = (1..=2)
            .map(|at| {
                format!(
                    "#isotherm incr {at} {}\nfile appendonly.aof.{at}.incr.aof seq {at} type i\n",
                    places[at - 1]
                )
            })
            .collect();
        data.write("appendonly.aof.manifest", lines.as_bytes());
        let log = data.fails_to_start();
        assert!(log.contains(expected), "{expected}: {log}");
    };
    check(["start 0 len 51", "start 51"], "has 50 bytes of the 51 that its manifest lists");
    check(["start 0 len 50", "start 60"], "begins at 60 in the log, the file before it ends at 50");
}

#[test]
fn files_keep_the_names_that_the_manifest_gives_them() {
    let data = Data::new();
    data.write("any name.aof", &wire(&["SELECT 0", "SET a 1"]));
    data.write("old.aof", b"");
    let manifest = "file old.aof seq 1 type h\nfile \"any name.aof\" seq 7 type i\n";
    data.write("appendonly.aof.manifest", manifest.as_bytes());
    for value in 2..5 {
        let mut server = data.start(1, &["--appendfsync", "always", "--save", ""]);
        let mut client = server.client();
        assert_eq!(client.info("persistence", "rdb_changes_since_last_save"), 0, "what was read is on disk");
        client.check("INCR a", &format!(":{value}\r\n"));
        kill(&mut server);
    }
}

#[test]
fn comments_and_files_of_valkey_are_read() {
    let data = Data::new();
    let first = [&b"#TS:1700000000\r\n"[..], &wire(&["SELECT 3", "SET a 1"]), b"# anything\r\n"].concat();
    // A database is selected anew in each file that Valkey writes; if it were not, the last one would go on.
    data.write_log(&[&first, b"", &wire(&["SELECT 3", "PING", "INCR a"])]);
    let server = data.start(1, &[]);
    let mut client = server.client();
    client.check("SELECT 3", "+OK\r\n");
    client.check("GET a", "$1\r\n2\r\n");
}

#[test]
fn a_full_log_makes_writes_wait_and_they_go_on() {
    const WRITES: usize = 60;
    let data = Data::new();
    // Each write is as large as the limit.
    let server = data.start(2, &["--log-memory-limit", "1mb", "--appendfsync", "always"]);
    let value = "v".repeat(1 << 20);
    let mut clients: Vec<Client> = (0..3).map(|_| server.client()).collect();
    for (at, client) in clients.iter_mut().enumerate() {
        let requests: Vec<String> =
            (0..WRITES).map(|number| format!("SET c{at}-{} {value}", number % 5)).collect();
        let bytes = wire(&requests.iter().map(String::as_str).collect::<Vec<_>>());
        let mut stream = client.stream.try_clone().unwrap();
        std::thread::spawn(move || std::io::Write::write_all(&mut stream, &bytes));
    }
    for client in &mut clients {
        (0..WRITES).for_each(|_| client.expect("+OK\r\n"));
    }
    let log_bytes = clients[0].info("memory", "mem_aof_buffer");
    assert!(log_bytes < 16 << 20, "{log_bytes} B of {} MB", 3 * WRITES);
    clients[0].check("PING", "+PONG\r\n");
}

/// After one character, `K` is the number of a key, `N` a number, `E` an element, `T` milliseconds: one, or
/// many.
const RANDOM: &[&str] = &[
    "SET sK N",
    "SET sK E PX T",
    "INCR iK",
    "APPEND sK E",
    "INCRBYFLOAT fK 0.25",
    "SETRANGE sK N E",
    "GETEX sK PX T",
    "GETDEL sK",
    "MSET sK N sK N",
    "SETBIT bK N 1",
    "BITFIELD bK INCRBY u8 N 3",
    "LPUSH lK E E",
    "RPUSH lK E E E E E E",
    "LPOP lK",
    "RPOP lK 3",
    "LMOVE lK lK LEFT RIGHT",
    "LTRIM lK 0 N",
    "LREM lK 0 E",
    "LINSERT lK BEFORE E E",
    "SADD SK E N",
    "SREM SK E",
    "SPOP SK",
    "SPOP SK 3",
    "SMOVE SK SK E",
    "SUNIONSTORE SK SK SK",
    "SDIFFSTORE SK SK SK",
    "ZADD zK N E",
    "ZINCRBY zK 1.5 E",
    "ZREM zK E",
    "ZPOPMIN zK",
    "ZUNIONSTORE zK 2 zK zK",
    "ZREMRANGEBYRANK zK 0 1",
    "ZRANGESTORE zK zK 0 -1",
    "HSET hK E N E N",
    "HINCRBY hK n 2",
    "HINCRBYFLOAT hK m 0.5",
    "HDEL hK E E",
    "HPEXPIRE hK 100000 FIELDS 1 E",
    "HPERSIST hK FIELDS 1 E",
    "HSETEX hK PX 100000 FIELDS 1 E N",
    "HGETDEL hK FIELDS 1 E",
    "XADD xK * f E",
    "XADD xK MAXLEN ~ 50 * f E",
    "XTRIM xK MAXLEN 20",
    "XGROUP CREATE xK g 0 MKSTREAM",
    "XREADGROUP GROUP g c COUNT 3 STREAMS xK >",
    "XAUTOCLAIM xK g d 0 0 COUNT 2",
    "PFADD pK E E",
    "PFMERGE pK pK",
    "GEOADD gK 13 38 E",
    "GEOADD gK 2 48 E",
    "DEL sK lK",
    "RENAME sK sK",
    "COPY SK SK REPLACE",
    "PEXPIRE lK T",
    "PEXPIRE hK T",
    "PEXPIRE SK T",
    "PERSIST sK",
    "SORT lK ALPHA STORE lK",
    "MOVE sK 1",
    "SELECT 0",
    "SELECT 2",
    "SWAPDB 1 2",
];

fn random_request(prng: &mut isotherm_stdx::Prng) -> String {
    let template = RANDOM[prng.below(RANDOM.len() as u64) as usize];
    let mut word = |word: &str| match word {
        "N" => prng.below(100).to_string(),
        "E" => format!("e{}", prng.below(60)),
        "T" => ["1", "100000"][prng.below(2) as usize].to_string(),
        key if key.len() == 2 && key.ends_with('K') => format!("{}{}", &key[..1], prng.below(30)),
        other => other.to_string(),
    };
    template.split(' ').map(&mut word).collect::<Vec<_>>().join(" ")
}

#[test]
fn what_random_commands_of_several_clients_made_is_there_again() {
    const CLIENTS: u64 = 4;
    const REQUESTS: usize = 1500;
    for workers in [1, 4] {
        let data = Data::new();
        let mut server = data.start(workers, &["--appendfsync", "always"]);
        std::thread::scope(|scope| {
            for seed in 0..CLIENTS {
                let mut client = server.client();
                scope.spawn(move || {
                    let mut prng = isotherm_stdx::Prng::new(seed + 1);
                    for _ in 0..REQUESTS / 10 {
                        let mut requests: Vec<String> = (0..10).map(|_| random_request(&mut prng)).collect();
                        if prng.one_in(4) {
                            requests.insert(2, "MULTI".into());
                            requests.insert(6, "EXEC".into());
                        }
                        client.send(wire(&requests.iter().map(String::as_str).collect::<Vec<_>>()));
                        requests.iter().for_each(|_| drop(client.read_reply()));
                    }
                });
            }
        });
        let mut client = server.client();
        let mut digest = String::new();
        // A key whose time is over leaves when it is looked at.
        let look = |client: &mut Client| {
            for db in 0..3 {
                let names: String = "sifblSzhxpg"
                    .chars()
                    .flat_map(|kind| (0..30).map(move |at| format!(" {kind}{at}")))
                    .collect();
                client.check(&format!("SELECT {db}"), "+OK\r\n");
                client.ask(&format!("EXISTS{names}"));
            }
        };
        wait_until("no key leaves any more", || {
            look(&mut client);
            let before = std::mem::replace(&mut digest, client.ask("DEBUG DIGEST"));
            before == digest
        });
        kill(&mut server);
        let server = data.start(5 - workers, &[]);
        server.client().check("DEBUG DIGEST", &digest);
        let keys: i64 = server.client().ask_number("DBSIZE");
        assert!(keys > 50, "{keys} keys are no test");
    }
}

#[test]
fn debug_loadaof_brings_the_same_data_back() {
    for policy in ["always", "everysec", "no"] {
        let data = Data::new();
        let server = data.start(2, &["--appendfsync", policy]);
        let (mut client, mut waiting) = (server.client(), server.client());
        for request in
            ["SET a 1", "SELECT 3", "RPUSH l a b", "MULTI", "INCR n", "INCR n", "EXEC", "FLUSHALL", "SET a 2"]
        {
            assert!(!client.ask(request).starts_with('-'), "{request}");
        }
        client.check("DEBUG POPULATE 2000 key 10", "+OK\r\n");
        client.check("HSET h f v", ":1\r\n");
        waiting.check("SELECT 3", "+OK\r\n");
        waiting.send("BLPOP later 0\r\n");
        wait_until("the client waits", || client.blocked_count() == 1);
        let file = data.file("appendonly.aof.1.incr.aof");
        client.check("DEBUG LOADAOF", "+OK\r\n");
        let (written, digest) = (std::fs::read(&file).unwrap(), client.ask("DEBUG DIGEST"));
        for _ in 0..2 {
            client.check("DEBUG LOADAOF", "+OK\r\n");
            client.check("DEBUG DIGEST", &digest);
            client.check("HGET h f", "$1\r\nv\r\n");
        }
        client.check("DEBUG CHECK-INVARIANTS", "+OK\r\n");
        assert!(std::fs::read(&file).unwrap() == written, "what is played back is not written again");
        // The log continues.
        client.check("RPUSH later x", ":1\r\n");
        waiting.expect("*2\r\n$5\r\nlater\r\n$1\r\nx\r\n");
        client.check("SET last 1", "+OK\r\n");
        client.check("DEBUG LOADAOF", "+OK\r\n");
        client.check("GET last", "$1\r\n1\r\n");
        client.check("EXISTS later", ":0\r\n");
    }
}

#[test]
fn a_transaction_goes_on_behind_its_flushall() {
    for workers in [1, 2] {
        let data = Data::new();
        let mut server = data.start(workers, &["--appendfsync", "always"]);
        let mut client = server.client();
        client.check("SET before 1", "+OK\r\n");
        client.check("MULTI", "+OK\r\n");
        for request in ["SET a 1", "FLUSHALL", "SET b 2", "SELECT 3", "FLUSHDB", "SET c 3"] {
            client.check(request, "+QUEUED\r\n");
        }
        client.check("EXEC", "*6\r\n+OK\r\n+OK\r\n+OK\r\n+OK\r\n+OK\r\n+OK\r\n");
        let digest = client.ask("DEBUG DIGEST");
        kill(&mut server);
        let server = data.start(workers, &[]);
        server.client().check("DEBUG DIGEST", &digest);
        server.client().check("GET b", "$1\r\n2\r\n");
    }
}

#[test]
fn debug_loadaof_without_a_file_is_an_error() {
    let server = Server::with_workers(1, &["--enable-debug-command", "yes"]);
    let mut client = server.client();
    client.check("DEBUG LOADAOF", "-ERR Error trying to load the AOF files, check server logs.\r\n");
}

#[test]
fn seconds_stand_in_the_file() {
    let data = Data::new();
    let long = "x".repeat(2000);
    // The log stays in its first file.
    let one_file = ["--appendfsync", "always", "--aof-timestamp-enabled", "yes", "--aof-prepare-bytes", "0"];
    let mut server = data.start(1, &one_file);
    let mut client = server.client();
    client.check("SET a 1", "+OK\r\n");
    let read = || std::fs::read(data.file("appendonly.aof.1.incr.aof")).unwrap();
    let stamps = |bytes: &[u8]| -> Vec<i64> {
        let text = String::from_utf8_lossy(bytes).into_owned();
        text.lines().filter_map(|line| line.strip_prefix("#TS:")?.parse().ok()).collect()
    };
    assert!(read().starts_with(b"#TS:"), "the first line is one");
    let mut writes = 0;
    while stamps(&read()).len() < 3 {
        writes += 1;
        client.check(&format!("SET long{writes} {long}"), "+OK\r\n");
    }
    let seconds = stamps(&read());
    assert!(seconds.is_sorted_by(|a, b| a < b), "{seconds:?}: one a second, at most");
    // Without it none is added, and what is there is read again.
    client.check("CONFIG SET aof-timestamp-enabled no", "+OK\r\n");
    client.check("SET b 1", "+OK\r\n");
    let digest = client.ask("DEBUG DIGEST");
    kill(&mut server);
    server = data.start(1, &[]);
    client = server.client();
    client.check("DEBUG DIGEST", &digest);
    client.check("SET c 1", "+OK\r\n");
    drop(server);
    // A file that is cut before a second is whole.
    let bytes = read();
    let cut = String::from_utf8_lossy(&bytes).find(&format!("#TS:{}", seconds[2])).unwrap();
    std::fs::write(data.file("appendonly.aof.1.incr.aof"), &bytes[..cut]).unwrap();
    let server = data.start(1, &["--aof-load-truncated", "no"]);
    let mut client = server.client();
    client.check("GET a", "$1\r\n1\r\n");
    client.check(&format!("EXISTS b long{writes}"), ":0\r\n");
}

#[test]
fn a_base_of_commands_begins_with_its_second() {
    let data = Data::new();
    let more = ["--aof-timestamp-enabled", "yes", "--aof-use-rdb-preamble", "no"];
    let mut server = data.start(1, &more);
    let mut client = server.client();
    client.check("SET a 1", "+OK\r\n");
    client.check("BGREWRITEAOF", "+Background append only file rewriting started\r\n");
    server.wait_for_log("Background AOF rewrite finished successfully");
    let names = std::fs::read_dir(data.file("")).unwrap().map(|entry| entry.unwrap().path());
    let bases: Vec<_> = names.filter(|name| name.to_str().unwrap().ends_with(".base.aof")).collect();
    assert_eq!(bases.len(), 1, "{bases:?}");
    let base = std::fs::read(&bases[0]).unwrap();
    assert!(base.starts_with(b"#TS:"), "{}", base.escape_ascii());
    client.check("DEBUG LOADAOF", "+OK\r\n");
    client.check("GET a", "$1\r\n1\r\n");
    kill(&mut server);
    let server = data.start(1, &[]);
    server.client().check("GET a", "$1\r\n1\r\n");
}

/// Commands of one key run on several threads, others alone: what comes of it is what one thread makes, which
/// runs them in order.
#[test]
fn several_threads_play_back_what_one_does() {
    let data = Data::new();
    let mut prng = isotherm_stdx::Prng::new(13);
    let mut log = Vec::new();
    let mut add = |text: &str| log.extend(encode(&text.split(' ').collect::<Vec<_>>()));
    for number in 0..30_000 {
        let mut key = || format!("key{}", prng.below(500));
        let (one, other) = (key(), key());
        match prng.below(400) {
            0 => add(&format!("SELECT {}", number % 3)),
            1 => add(&format!("MSET {one} x{number} {other} y{number}")),
            2 => add(&format!("COPY {one} {other} REPLACE")),
            3 => {
                add("MULTI");
                add(&format!("APPEND {one} m{number}"));
                add(&format!("APPEND {other} n{number}"));
                add("EXEC");
            }
            4 if number % 7 == 0 => add("FLUSHDB"),
            5..40 => add(&format!("DEL {one}")),
            _ => add(&format!("APPEND {one} {number},")),
        }
    }
    data.write_log(&[&log]);
    let mut digests = [1, 2, 5].map(|workers| {
        let server = data.start(workers, &[]);
        let mut client = server.client();
        client.check("DEBUG CHECK-INVARIANTS", "+OK\r\n");
        client.ask("DEBUG DIGEST")
    });
    digests.sort();
    assert_eq!(digests[0], digests[2]);

    // A command that cannot be run is named, whatever comes after it.
    let bad = log.len();
    let mut damaged = log.clone();
    damaged.extend(encode(&["NOSUCH", "key"]));
    damaged.extend(&log);
    data.write_log(&[&damaged]);
    let said = data.fails_to_start();
    assert!(said.contains(&format!("at offset {bad}, error: unknown command 'NOSUCH'")), "{said}");
}

/// Strings that a log begins with are gathered and built at once: the data is what comes of running each
/// command by itself.
#[test]
fn what_is_gathered_of_a_log_is_what_its_commands_make() {
    for seed in 0..6 {
        let data = Data::new();
        let mut prng = isotherm_stdx::Prng::new(seed);
        let mut log = Vec::new();
        let mut add = |text: &str| log.extend(encode(&text.split(' ').collect::<Vec<_>>()));
        // In some logs other commands come soon, in others late; in some all keys have one slot.
        let (first_other, tag) = ([0, 8_000, 19_000][seed as usize % 3], ["", "{t}"][seed as usize / 3]);
        let later = 4_000_000_000_000u64;
        for number in 0..20_000 {
            let key = format!("{tag}{}", prng.below(5_000));
            let others = if number >= first_other { 400 } else { 0 };
            match prng.below(12_000) {
                0 if others > 0 => add(&format!("MSET {key} x{number} {tag}other y{number}")),
                1 if others > 0 => add("SELECT 1"),
                2 if others > 0 => add("SELECT 0"),
                3 if others > 0 => add("SWAPDB 0 1"),
                turn if turn < others / 8 => add(&format!("DEL {key}")),
                turn if turn < others / 4 => add(&format!("APPEND {key} {number},")),
                turn if turn < others / 2 => add(&format!("PEXPIREAT {key} {}", later + turn)),
                turn if turn < others * 5 / 8 => add(&format!("SET {key} x KEEPTTL")),
                turn if turn < others * 3 / 4 => add(&format!("SET {key} {} NX", "long".repeat(100))),
                // Over when it is loaded.
                turn if turn < others => add(&format!("SET {key} {number} PXAT 1000")),
                turn if turn % 5 == 0 => add(&format!("SET {key} {number} PXAT {}", later + turn)),
                turn => add(&format!("SET {key} {number}-{turn}")),
            }
        }
        let digest = |log: &[u8], workers: usize| {
            data.write_log(&[log]);
            let server = data.start(workers, &[]);
            let mut client = server.client();
            client.check("DEBUG CHECK-INVARIANTS", "+OK\r\n");
            // The digest has keys whose time is over until the expiry cycle removes them; KEYS does not show
            // them.
            for db in 0..2 {
                client.check(&format!("SELECT {db}"), "+OK\r\n");
                wait_until("expired keys are gone", || {
                    let shown = client.ask("KEYS *");
                    let count = shown[1..].split("\r\n").next().expect("a line").to_string();
                    client.ask("DBSIZE") == format!(":{count}\r\n")
                });
            }
            client.ask("DEBUG DIGEST")
        };
        // With a key that is there already nothing is gathered.
        let mut plain = Vec::new();
        for words in [&["MULTI"][..], &["SET", "{z}z", "1"], &["EXEC"]] {
            plain.extend(encode(words));
        }
        plain.extend(&log);
        // Wherever it was swapped to.
        plain.extend(encode(&["DEL", "{z}z"]));
        for words in [&["SELECT", "1"][..], &["DEL", "{z}z"], &["SELECT", "0"], &["DEL", "{z}z"]] {
            plain.extend(encode(words));
        }
        let expected = digest(&plain, 1);
        for workers in [1, 2, 3] {
            assert_eq!(digest(&log, workers), expected, "seed {seed}, {workers} workers");
        }
    }
}
