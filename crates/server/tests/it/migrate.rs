//! MIGRATE between two servers, also of Valkey: replies, and what becomes of keys that change, leave or are
//! cut off on their way.

use std::io::Read;
use std::net::TcpListener;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use crate::common::{Client, PATIENCE, Server, encode, field, wait_until};
use crate::peers;
use crate::primary::Replica;

pub const OK: &str = "+OK\r\n";
pub const NULL: &str = "$-1\r\n";

/// One word of MIGRATE stands for the port of the target.
pub fn migrate(client: &mut Client, port: u16, words: &str) -> String {
    let port = port.to_string();
    let rest = words.split(' ').map(|word| if word == "''" { "" } else { word });
    let words: Vec<&str> = ["MIGRATE", "127.0.0.1", &port].into_iter().chain(rest).collect();
    client.send(encode(&words));
    String::from_utf8_lossy(&client.read_reply()).into_owned()
}

#[track_caller]
pub fn check(client: &mut Client, port: u16, words: &str, reply: &str) {
    assert_eq!(migrate(client, port, words), reply, "MIGRATE {words}");
}

/// Pairs of a source and a target: two of this server, and Valkey on either side where it is available.
fn pairs() -> Vec<(Server, Server)> {
    let ours = || Server::with_workers(2, &["--enable-debug-command", "yes"]);
    let mut pairs = vec![(ours(), ours())];
    if let Some(program) = peers::peer("valkey-server") {
        let theirs = |program: PathBuf| peers::start(program, &std::env::temp_dir());
        pairs.push((ours(), theirs(program.clone())));
        pairs.push((theirs(program), ours()));
    }
    pairs
}

pub const BUSY: &str = "-ERR Target instance replied with error: BUSYKEY Target key name already exists.\r\n";
const NO_INTEGER: &str = "-ERR value is not an integer or out of range\r\n";

#[test]
fn replies_are_those_of_valkey() {
    for (source, target) in pairs() {
        let (mut here, mut there, to) = (source.client(), target.client(), target.port);
        check(&mut here, to, "nokey 0 1000", "+NOKEY\r\n");
        check(&mut here, to, "'' 0 1000 KEYS a b", "+NOKEY\r\n");
        check(&mut here, to, "'' 0 1000 KEYS", "+NOKEY\r\n");
        here.check("MIGRATE a", "-ERR wrong number of arguments for 'migrate' command\r\n");
        check(&mut here, to, "k 0 1000 NONSENSE", "-ERR syntax error\r\n");
        check(&mut here, to, "k 0 1000 AUTH", "-ERR syntax error\r\n");
        check(&mut here, to, "k x 1000", NO_INTEGER);
        check(&mut here, to, "k 0 x", NO_INTEGER);
        let text =
            "-ERR When using MIGRATE KEYS option, the key argument must be set to the empty string\r\n";
        check(&mut here, to, "k 0 1000 KEYS a", text);

        here.check("SET k v", OK);
        check(&mut here, to, "k 0 1000", OK);
        here.check("GET k", NULL);
        there.check("GET k", "$1\r\nv\r\n");
        here.check("SET k w", OK);
        check(&mut here, to, "k 0 1000", BUSY);
        here.check("GET k", "$1\r\nw\r\n");
        check(&mut here, to, "k 0 1000 COPY REPLACE", OK);
        here.check("GET k", "$1\r\nw\r\n");
        there.check("GET k", "$1\r\nw\r\n");

        // Some go, one is refused, some are not there.
        here.check("MSET a 1 b 2 c 3", OK);
        there.check("SET b x", OK);
        check(&mut here, to, "'' 0 1000 KEYS a b no c", BUSY);
        here.check("MGET a b c", "*3\r\n$-1\r\n$1\r\n2\r\n$-1\r\n");
        there.check("MGET a b c", "*3\r\n$1\r\n1\r\n$1\r\nx\r\n$1\r\n3\r\n");
        check(&mut here, to, "'' 0 1000 REPLACE KEYS b b", OK);
        there.check("GET b", "$1\r\n2\r\n");
        here.check("EXISTS b", ":0\r\n");

        here.check("SET t 1 PX 100000", OK);
        check(&mut here, to, "t 7 1000", OK);
        there.check("SELECT 7", OK);
        assert!((90_000..=100_000).contains(&there.ask_number("PTTL t")));
        there.check("SELECT 0", OK);

        here.check("SET q 1", OK);
        let error = "-ERR Target instance replied with error: ";
        check(&mut here, to, "q 99 1000", &format!("{error}ERR DB index is out of range\r\n"));
        let text = "ERR AUTH <password> called without any password configured for the default user. \
                    Are you sure your configuration is correct?";
        check(&mut here, to, "q 0 1000 AUTH wrong", &format!("{error}{text}\r\n"));
        there.check("DEL q", ":1\r\n");
        there.check("CONFIG SET maxmemory 1", OK);
        let text = "OOM command not allowed when used memory > 'maxmemory'.";
        check(&mut here, to, "q 0 1000", &format!("{error}{text}\r\n"));
        there.check("CONFIG SET maxmemory 0", OK);
        there.check("CONFIG SET requirepass secret", OK);
        check(&mut here, to, "q 0 1000 AUTH2 nobody secret", &{
            let text = "WRONGPASS invalid username-password pair or user is disabled.";
            format!("{error}{text}\r\n")
        });
        // The connection was let in before there was a password, so the target has it all the same.
        here.check("EXISTS q", ":1\r\n");
        there.check("DEL q", ":1\r\n");
        check(&mut here, to, "q 0 1000 AUTH2 default secret", OK);
        here.check("EXISTS q", ":0\r\n");
    }
}

/// A tool that empties a slot asks for its names until there are none.
#[test]
fn what_is_past_its_time_is_deleted() {
    let server = Server::with_workers(1, &["--enable-debug-command", "yes"]);
    let mut client = server.client();
    client.check("DEBUG SET-ACTIVE-EXPIRE 0", OK);
    client.check("SET a v PX 1", OK);
    client.check("SET b v PX 1", OK);
    std::thread::sleep(Duration::from_millis(5));
    client.check("DBSIZE", ":2\r\n");
    check(&mut client, server.port, "a 0 1000", "+NOKEY\r\n");
    client.check("DBSIZE", ":1\r\n");
    check(&mut client, server.port, "'' 0 1000 KEYS a b", "+NOKEY\r\n");
    client.check("DBSIZE", ":0\r\n");
    assert_eq!(field(&client.ask("INFO stats"), "expired_keys"), 2);
}

#[test]
fn targets_that_do_not_answer() {
    for (source, _) in pairs() {
        let mut here = source.client();
        here.check("SET k v", OK);
        let writing = "-IOERR error or timeout writing to target instance\r\n";
        let reading = "-IOERR error or timeout reading to target instance\r\n";
        let connecting = "-IOERR error or timeout connecting to the client\r\n";
        check(&mut here, 1, "k 0 1000", writing);
        here.check("MIGRATE nowhere.invalid 1 k 0 1000", connecting);
        let listener = TcpListener::bind(("127.0.0.1", 0)).unwrap();
        let port = listener.local_addr().unwrap().port();
        let begun = Instant::now();
        check(&mut here, port, "k 0 200", reading);
        assert!((Duration::from_millis(150)..PATIENCE).contains(&begun.elapsed()));
        // One that ends each connection.
        let ends = std::thread::spawn(move || {
            listener.incoming().take(3).for_each(|stream| {
                let mut stream = stream.unwrap();
                stream.set_read_timeout(Some(Duration::from_millis(300))).unwrap();
                let _ = stream.read(&mut [0; 1024]);
            });
        });
        check(&mut here, port, "k 0 1000", reading);
        ends.join().unwrap();
        here.check("GET k", "$1\r\nv\r\n");
    }
}

fn digest(client: &mut Client, key: &str) -> String {
    client.ask(&format!("DEBUG DIGEST-VALUE {key}"))
}

#[test]
fn values_of_all_types_and_sizes_arrive() {
    for (source, target) in pairs() {
        let (mut here, mut there) = (source.client(), target.client());
        peers::fill(&mut here, true);
        here.check("CONFIG SET hash-max-listpack-entries 4", OK);
        here.check("HSET pages a 1 b 2 c 3 d 4 e 5", ":5\r\n");
        here.check(&format!("SET very:long {}", "abc".repeat(300_000)), OK);
        let keys = here.ask("KEYS *");
        let keys: Vec<&str> = keys.lines().filter(|line| !line.starts_with(['*', '$'])).collect();
        let before: Vec<String> = keys.iter().map(|key| digest(&mut here, key)).collect();
        let expiry = here.ask_number("PEXPIRETIME middle:zset");
        for some in keys.chunks(5) {
            check(&mut here, target.port, &format!("'' 0 20000 KEYS {}", some.join(" ")), OK);
        }
        here.check("DBSIZE", ":0\r\n");
        for (key, before) in keys.iter().zip(before) {
            assert_eq!(digest(&mut there, key), before, "{key}");
        }
        assert!((there.ask_number("PEXPIRETIME middle:zset") - expiry).abs() < 20_000);
    }
}

// ---- a target that is played ----

/// A target that says what a test wants it to.
struct Played {
    listener: TcpListener,
}

impl Played {
    fn new() -> Played {
        Played { listener: TcpListener::bind(("127.0.0.1", 0)).unwrap() }
    }

    fn port(&self) -> u16 {
        self.listener.local_addr().unwrap().port()
    }

    fn accept(&self) -> Replica {
        let stream = self.listener.accept().unwrap().0;
        stream.set_read_timeout(Some(crate::common::PATIENCE)).unwrap();
        Replica::over(stream)
    }
}

/// A request whose words may be any bytes.
fn request(target: &mut Replica) -> Vec<Vec<u8>> {
    let number = |target: &mut Replica| target.line()[1..].parse::<usize>().expect("a number");
    let count = number(target);
    let mut words = Vec::new();
    for _ in 0..count {
        let length = number(target);
        let mut word = target.take(length + 2);
        word.truncate(length);
        words.push(word);
    }
    words
}

#[track_caller]
fn expect(target: &mut Replica, words: &[&str]) -> Vec<Vec<u8>> {
    let got = request(target);
    let shown: Vec<String> = got.iter().map(|word| String::from_utf8_lossy(word).into_owned()).collect();
    let first: Vec<&str> = shown.iter().map(|word| &**word).take(words.len()).collect();
    assert_eq!(first, words, "{shown:?}");
    got
}

pub fn begin(client: &mut Client, port: u16, words: &str) {
    let port = port.to_string();
    let rest = words.split(' ').map(|word| if word == "''" { "" } else { word });
    let words: Vec<&str> = ["MIGRATE", "127.0.0.1", &port].into_iter().chain(rest).collect();
    client.send(encode(&words));
}

#[test]
fn others_go_on_while_the_target_is_waited_for() {
    let server = Server::start(&[]);
    let (mut client, mut other) = (server.client(), server.client());
    client.check("MSET k 1 l 2", OK);
    let target = Played::new();
    begin(&mut client, target.port(), "k 0 20000");
    let mut link = target.accept();
    expect(&mut link, &["SELECT", "0"]);
    expect(&mut link, &["RESTORE", "k", "0"]);
    // Of the same worker; and the key itself is there still.
    other.check("GET k", "$1\r\n1\r\n");
    other.check("SET l 3", OK);
    assert_eq!(other.blocked_count(), 1);
    let id = other_id(&mut other);
    assert_eq!(other.ask_number(&format!("CLIENT UNBLOCK {id}")), 0);
    link.answer("+OK");
    link.answer("+OK");
    client.expect(OK);
    other.check("EXISTS k", ":0\r\n");
    assert_eq!(other.info("stats", "migrate_cached_sockets"), 1);
    // The connection is used once more, and nothing is selected again.
    client.check("SET k 4", OK);
    begin(&mut client, target.port(), "k 0 20000 COPY");
    expect(&mut link, &["RESTORE", "k", "0"]);
    link.answer("+OK");
    client.expect(OK);
    client.check("GET k", "$1\r\n4\r\n");
    wait_until("the connection is closed", || other.info("stats", "migrate_cached_sockets") == 0);
}

/// The id of the client that waits.
fn other_id(client: &mut Client) -> u64 {
    let mut found = None;
    wait_until("it is listed", || {
        let list = client.ask("CLIENT LIST");
        found = list.lines().find(|line| line.contains("cmd=migrate")).map(str::to_string);
        found.is_some()
    });
    let line = found.expect("it was waited for");
    line.split("id=").nth(1).and_then(|rest| rest.split(' ').next()).unwrap().parse().unwrap()
}

#[test]
fn what_changes_is_sent_again_and_the_third_time_who_writes_waits() {
    let server = Server::with_workers(2, &[]);
    let (mut client, mut other) = (server.client(), server.client());
    client.check("MSET k 1 l 2", OK);
    let target = Played::new();
    begin(&mut client, target.port(), "k 0 20000");
    let mut link = target.accept();
    expect(&mut link, &["SELECT", "0"]);
    let first = expect(&mut link, &["RESTORE", "k", "0"]);
    assert_eq!(first.len(), 4, "nothing is replaced that is not ours");
    other.check("INCR k", ":2\r\n");
    link.answer("+OK");
    link.answer("+OK");
    let second = expect(&mut link, &["RESTORE", "k", "0"]);
    assert_eq!((second.len(), &*second[4]), (5, &b"REPLACE"[..]));
    assert_ne!(second[3], first[3]);
    other.check("INCR k", ":3\r\n");
    link.answer("+OK");
    expect(&mut link, &["RESTORE", "k", "0"]);
    other.send(encode(&["INCR", "k"]));
    other.expect_silence();
    let mut third = server.client();
    third.check("INCR l", ":3\r\n");
    link.answer("+OK");
    client.expect(OK);
    // It comes after the move.
    other.expect(":1\r\n");
}

#[test]
fn a_leased_key_is_given_back_when_the_time_is_over() {
    let server = Server::with_workers(2, &[]);
    let (mut client, mut other) = (server.client(), server.client());
    client.check("SET k 1", OK);
    let target = Played::new();
    begin(&mut client, target.port(), "k 0 700");
    let mut link = target.accept();
    expect(&mut link, &["SELECT", "0"]);
    for value in 2..4 {
        expect(&mut link, &["RESTORE", "k", "0"]);
        other.check("INCR k", &format!(":{value}\r\n"));
        link.answer("+OK");
        if value == 2 {
            link.answer("+OK");
        }
    }
    expect(&mut link, &["RESTORE", "k", "0"]);
    let begun = Instant::now();
    other.check("INCR k", ":4\r\n");
    assert!(begun.elapsed() >= Duration::from_millis(300), "{:?}", begun.elapsed());
    client.expect("-IOERR error or timeout reading to target instance\r\n");
    other.check("FLUSHALL", OK);
}

#[test]
fn what_is_deleted_on_its_way_is_deleted_there() {
    let server = Server::with_workers(2, &[]);
    let (mut client, mut other) = (server.client(), server.client());
    client.check("MSET k 1 l 2", OK);
    let target = Played::new();
    begin(&mut client, target.port(), "'' 0 20000 KEYS k l");
    let mut link = target.accept();
    expect(&mut link, &["SELECT", "0"]);
    expect(&mut link, &["RESTORE", "k", "0"]);
    expect(&mut link, &["RESTORE", "l", "0"]);
    other.check("DEL k", ":1\r\n");
    (0..3).for_each(|_| link.answer("+OK"));
    expect(&mut link, &["DEL", "k"]);
    other.check("EXISTS l", ":0\r\n");
    // Made anew while it is deleted there: it is sent again.
    other.check("SET k 3", OK);
    link.answer(":1");
    let again = expect(&mut link, &["RESTORE", "k", "0"]);
    assert_eq!(again.len(), 4, "there is nothing to replace");
    link.answer("+OK");
    client.expect(OK);
    other.check("EXISTS k", ":0\r\n");
}

#[test]
fn only_ok_lets_a_key_leave() {
    let server = Server::start(&[]);
    let mut client = server.client();
    let target = Played::new();
    for line in ["HTTP/1.1 400 Bad Request", ":1", "+QUEUED", "$2"] {
        client.check("SET k 1", OK);
        begin(&mut client, target.port(), "k 0 20000");
        let mut link = target.accept();
        expect(&mut link, &["SELECT", "0"]);
        expect(&mut link, &["RESTORE", "k", "0"]);
        link.answer("+OK");
        link.answer(line);
        client.expect(&format!("-ERR Target instance replied with error: {line}\r\n"));
        client.check("GET k", "$1\r\n1\r\n");
        // A reply that it sends unasked ends the connection.
        link.answer("+MORE");
        begin(&mut client, target.port(), "k 0 20000");
        expect(&mut link, &["SELECT", "0"]);
        expect(&mut link, &["RESTORE", "k", "0"]);
        link.answer("-NO");
        client.expect("-ERR Target instance replied with error: NO\r\n");
        drop(link);
    }
}

#[test]
fn a_client_that_leaves_does_not_end_it() {
    let server = Server::with_workers(2, &[]);
    let mut other = server.client();
    let target = Played::new();
    for kills in [false, true] {
        let mut client = server.client();
        client.check("SET k 1", OK);
        begin(&mut client, target.port(), "k 0 20000");
        let mut link = target.accept();
        expect(&mut link, &["SELECT", "0"]);
        expect(&mut link, &["RESTORE", "k", "0"]);
        match kills {
            true => other.check(&format!("CLIENT KILL ID {}", other_id(&mut server.client())), ":1\r\n"),
            false => drop(client),
        }
        wait_until("it is gone", || !other.ask("CLIENT LIST").contains("cmd=migrate"));
        other.check("EXISTS k", ":1\r\n");
        link.answer("+OK");
        link.answer("+OK");
        wait_until("the key has left", || other.ask("EXISTS k") == ":0\r\n");
        drop(link);
        wait_until("nothing waits", || other.blocked_count() == 0);
    }
}

#[test]
fn it_is_refused_where_nothing_can_wait() {
    let server = Server::start(&[]);
    let mut client = server.client();
    client.check("SET k 1", OK);
    client.check("MULTI", OK);
    client.check("MIGRATE 127.0.0.1 1 k 0 1000", "+QUEUED\r\n");
    client.check("MIGRATE 127.0.0.1 1 no 0 1000", "+QUEUED\r\n");
    let text = "-ERR MIGRATE is not allowed inside a transaction or a script\r\n";
    client.check("EXEC", &format!("*2\r\n{text}+NOKEY\r\n"));
    client.send(encode(&[
        "EVAL",
        "return redis.pcall('migrate', '127.0.0.1', '1', KEYS[1], '0', '1')",
        "1",
        "k",
    ]));
    let reply = String::from_utf8_lossy(&client.read_reply()).into_owned();
    assert!(reply.starts_with("-ERR MIGRATE is not allowed"), "{reply}");
    client.check("COMMAND GETKEYS MIGRATE h 1 k 0 1", "*1\r\n$1\r\nk\r\n");
}

#[test]
fn pauses_roles_and_the_end_hold_it_up() {
    let mut server = Server::with_workers(2, &[]);
    let (mut client, mut other) = (server.client(), server.client());
    let target = Played::new();
    client.check("SET k 1", OK);
    begin(&mut client, target.port(), "k 0 20000");
    let mut link = target.accept();
    expect(&mut link, &["SELECT", "0"]);
    expect(&mut link, &["RESTORE", "k", "0"]);
    other.check("CLIENT PAUSE 20000 WRITE", OK);
    link.answer("+OK");
    link.answer("+OK");
    client.expect_silence();
    other.check("EXISTS k", ":1\r\n");
    other.check("CLIENT UNPAUSE", OK);
    client.expect(OK);
    // It becomes a replica meanwhile.
    client.check("SET k 1", OK);
    begin(&mut client, target.port(), "k 0 20000");
    expect(&mut link, &["RESTORE", "k", "0"]);
    other.check("REPLICAOF 127.0.0.1 1", OK);
    link.answer("+OK");
    let text = "force unblock from blocking operation, instance state changed (master -> replica?)";
    client.expect(&format!("-UNBLOCKED {text}\r\n"));
    other.check("REPLICAOF NO ONE", OK);
    other.check("EXISTS k", ":1\r\n");
    // The process ends, whatever is on its way.
    begin(&mut client, target.port(), "k 0 20000");
    expect(&mut link, &["RESTORE", "k", "0"]);
    server.signal("TERM");
    server.wait();
}

#[test]
fn what_leaves_is_logged_and_reported() {
    let server = Server::start(&["--appendonly", "yes", "--appendfsync", "always"]);
    let target = Server::start(&[]);
    let (mut client, mut listener) = (server.client(), server.client());
    wait_until("the files are there", || client.info("persistence", "loading") == 0);
    client.check("CONFIG SET notify-keyspace-events Eg", OK);
    listener.send(encode(&["SUBSCRIBE", "__keyevent@0__:del"]));
    listener.read_reply();
    client.check("MSET k 1 l 2", OK);
    check(&mut client, target.port, "'' 0 1000 KEYS k l", OK);
    for key in ["k", "l"] {
        let event = String::from_utf8_lossy(&listener.read_reply()).into_owned();
        assert!(event.ends_with(&format!("$1\r\n{key}\r\n")), "{event}");
    }
    let folder = server.folder.join("appendonlydir");
    let files = std::fs::read_dir(folder).unwrap().map(|file| std::fs::read(file.unwrap().path()).unwrap());
    let log: Vec<u8> = files.flatten().collect();
    let log = String::from_utf8_lossy(&log).into_owned();
    assert!(log.contains("*3\r\n$3\r\nDEL\r\n$1\r\nk\r\n$1\r\nl\r\n"), "{log}");
    let stats = client.ask("INFO commandstats");
    assert!(stats.contains("cmdstat_migrate:calls=1,") && !stats.contains("cmdstat_del:"), "{stats}");
}
