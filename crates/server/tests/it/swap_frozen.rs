//! `swap-freeze`: small keys that leave memory with their values are answered as if they lay there, whatever
//! names them.

use crate::common::{Client, Server, encode, field, wait_until};
use crate::swap::{Folder, swap};

const KEYS: usize = 150_000;

pub fn name(number: usize) -> String {
    format!("key:{number:08}")
}

pub fn value(number: usize) -> String {
    format!("value-{}", number * 7919)
}

pub fn set(client: &mut Client, numbers: impl Iterator<Item = usize>) {
    let numbers: Vec<usize> = numbers.collect();
    for some in numbers.chunks(200) {
        client.send(some.iter().flat_map(|n| encode(&["SET", &name(*n), &value(*n)])).collect::<Vec<u8>>());
        some.iter().for_each(|_| client.expect("+OK\r\n"));
    }
}

pub fn check(client: &mut Client, numbers: impl Iterator<Item = usize>) {
    let numbers: Vec<usize> = numbers.collect();
    for some in numbers.chunks(100) {
        client.send(some.iter().flat_map(|n| encode(&["GET", &name(*n)])).collect::<Vec<u8>>());
        for n in some {
            let expected = format!("${}\r\n{}\r\n", value(*n).len(), value(*n));
            assert_eq!(String::from_utf8_lossy(&client.read_reply()), expected, "{n}");
        }
    }
}

impl Folder {
    pub fn start_freezing(&self, more: &[&str]) -> Server {
        let own = ["--swap-freeze", "yes", "--log-memory-limit", "1mb", "--maxmemory", "12mb"];
        self.start(&[&own[..], more].concat())
    }
}

/// All that may leave has left.
pub fn freeze(client: &mut Client, keys: u64) {
    client.check("DEBUG SWAP-CHAOS 1", "+OK\r\n");
    wait_until("all keys leave memory", || swap(client, "swap_frozen_keys") == keys);
    client.check("DEBUG SWAP-CHAOS 0", "+OK\r\n");
}

#[test]
fn more_keys_than_memory_are_there() {
    let folder = Folder::new("frozen-more");
    let server = folder.start_freezing(&[]);
    let (mut client, mut other) = (server.client(), server.client());
    set(&mut client, 0..KEYS * 4);
    client.check("DBSIZE", &format!(":{}\r\n", KEYS * 4));
    assert!(swap(&mut client, "swap_frozen_keys") > KEYS as u64 * 2);
    let used = field(&client.ask("INFO memory"), "used_memory");
    assert!(used < 14 << 20, "{used}");
    check(&mut client, (0..KEYS * 4).step_by(31));
    for n in (0..KEYS * 4).step_by(6007) {
        other.check(&format!("EXISTS {}", name(n)), ":1\r\n");
        other.check(&format!("EXISTS no-{}", name(n)), ":0\r\n");
        other.check(&format!("STRLEN {}", name(n)), &format!(":{}\r\n", value(n).len()));
        other.check(&format!("RENAME {} renamed:{n}", name(n)), "+OK\r\n");
        other.check(&format!("COPY renamed:{n} {}", name(n)), ":1\r\n");
        other.check(&format!("DEL renamed:{n} {} no-{}", name(n), name(n)), ":2\r\n");
        other.check(&format!("SET {} {} GET", name(n), value(n)), "$-1\r\n");
        other.check(&format!("SET {} x NX", name(n + 1)), "$-1\r\n");
        other.check(&format!("EXPIRE {} 1000", name(n + 2)), ":1\r\n");
        other.check(&format!("PERSIST {}", name(n + 2)), ":1\r\n");
    }
    assert_eq!(swap(&mut client, "swap_reads_undeclared"), 0, "declared keys are fetched before");
    client.check("DBSIZE", &format!(":{}\r\n", KEYS * 4));
    client.check("DEBUG CHECK-INVARIANTS", "+OK\r\n");
    client.check("FLUSHALL", "+OK\r\n");
    wait_until("records are given back", || swap(&mut client, "swap_bundles") == 0);
    wait_until("files are removed", || swap(&mut client, "swap_file_bytes") <= 64 << 20);
}

/// Every way to come to a key, with all keys outside memory.
#[test]
fn whatever_names_a_key_finds_it() {
    const FEW: usize = 3000;
    let folder = Folder::new("frozen-ways");
    let server = folder.start_freezing(&["--swap-min-value", "16"]);
    let mut client = server.client();
    set(&mut client, 0..FEW);
    client.check("SET number 41", "+OK\r\n");
    client.check("HSET hash field 1", ":1\r\n");
    client.check("RPUSH list 1 2", ":2\r\n");
    client.check("MSET w_1 b w_2 a", "+OK\r\n");
    let all = FEW as u64 + 5;
    let mut names = Vec::new();
    freeze(&mut client, all);
    client.check("DBSIZE", &format!(":{all}\r\n"));
    let digest = client.ask("DEBUG DIGEST");
    // Walks read records, and bring nothing to memory.
    let mut cursor = "0".to_string();
    loop {
        let reply = client.ask(&format!("SCAN {cursor} COUNT 100"));
        let mut words = reply.split("\r\n").filter(|word| !word.starts_with(['*', '$']) && !word.is_empty());
        cursor = words.next().expect("a cursor").to_string();
        names.extend(words.map(String::from));
        if cursor == "0" {
            break;
        }
    }
    names.sort_unstable();
    names.dedup();
    assert_eq!(names.len() as u64, all);
    assert!(client.ask("KEYS key:0000001*").starts_with("*10\r\n"));
    assert!(client.ask("SCAN 0 COUNT 100000 TYPE hash").contains("hash"));
    assert!(client.ask("RANDOMKEY").starts_with('$'));
    assert_eq!(swap(&mut client, "swap_frozen_keys"), all);
    client.check("INCR number", ":42\r\n");
    client.check("HGET hash field", "$1\r\n1\r\n");
    client.check("TYPE hash", "+hash\r\n");
    freeze(&mut client, all);
    client.check("LRANGE list 0 -1", "*2\r\n$1\r\n1\r\n$1\r\n2\r\n");
    client.check("SORT list BY w_* ALPHA GET w_*", "*2\r\n$1\r\na\r\n$1\r\nb\r\n");
    freeze(&mut client, all);
    client.check("MULTI", "+OK\r\n");
    client.check("INCR number", "+QUEUED\r\n");
    client.check("EXISTS hash list w_1 nothing", "+QUEUED\r\n");
    client.check("EXEC", "*2\r\n:43\r\n:3\r\n");
    freeze(&mut client, all);
    client.send(encode(&["EVAL", "return redis.call('GET', KEYS[1])", "1", "number"]));
    client.expect("$2\r\n43\r\n");
    // A key that the script does not name is waited for.
    client.send(encode(&["EVAL", "return redis.call('EXISTS', 'w_2')", "0"]));
    client.expect(":1\r\n");
    assert!(swap(&mut client, "swap_reads_in_commands") > 0);
    freeze(&mut client, all);
    client.check("SWAPDB 0 1", "+OK\r\n");
    client.check("EXISTS number", ":0\r\n");
    client.check("SELECT 1", "+OK\r\n");
    client.check("GET number", "$2\r\n43\r\n");
    client.check("MOVE number 0", ":1\r\n");
    client.check("SWAPDB 0 1", "+OK\r\n");
    client.check("MOVE number 0", ":1\r\n");
    client.check("SELECT 0", "+OK\r\n");
    client.check("DECRBY number 2", ":41\r\n");
    assert_eq!(client.ask("DEBUG DIGEST"), digest);
    // Files have them all.
    freeze(&mut client, all);
    client.check("SAVE", "+OK\r\n");
    client.check("DEBUG RELOAD NOSAVE", "+OK\r\n");
    assert_eq!(client.ask("DEBUG DIGEST"), digest);
    // And all are promoted.
    freeze(&mut client, all);
    client.check("SWAP VERIFY", "+Verification started\r\n");
    wait_until("all is verified", || swap(&mut client, "swap_verify_rounds") == 1);
    assert!(swap(&mut client, "swap_verify_keys") > 0);
    assert_eq!(swap(&mut client, "swap_verify_bad_keys"), 0);
    client.check("CONFIG SET swap-mode no", "+OK\r\n");
    wait_until("all come home", || swap(&mut client, "swap_frozen_keys") == 0);
    assert_eq!(client.ask("DEBUG DIGEST"), digest);
    client.check("DEBUG CHECK-INVARIANTS", "+OK\r\n");
}

/// A process that is killed has in its append-only file what was outside memory, whether the base refers to
/// values on disk or has them.
#[test]
fn nothing_frozen_is_lost_with_the_process() {
    for checkpoint in ["no", "yes"] {
        let folder = Folder::new(&format!("frozen-killed-{checkpoint}"));
        let more = ["--appendonly", "yes", "--appendfsync", "always", "--swap-checkpoint", checkpoint];
        let loaded = |client: &mut Client| {
            wait_until("it is loaded", || !client.ask("DBSIZE").contains("LOADING"));
        };
        let digest = {
            let mut server = folder.start_freezing(&more);
            let mut client = server.client();
            loaded(&mut client);
            set(&mut client, 0..KEYS);
            // Larger values lie on disk alone, and the base may refer to them.
            for n in 0..500 {
                client.check(&format!("SET large:{n} {}", "x".repeat(2000)), "+OK\r\n");
            }
            client.check("DEBUG SWAP-CHAOS 1", "+OK\r\n");
            wait_until("keys freeze", || swap(&mut client, "swap_frozen_keys") > KEYS as u64 / 2);
            client.check("BGREWRITEAOF", "+Background append only file rewriting started\r\n");
            set(&mut client, (0..KEYS).step_by(90));
            wait_until("the rewrite", || {
                client.ask("INFO persistence").contains("aof_rewrite_in_progress:0")
            });
            assert!(client.ask("INFO persistence").contains("aof_last_bgrewrite_status:ok"));
            client.check(&format!("DEL {}", name(5)), ":1\r\n");
            assert!(swap(&mut client, "swap_frozen_keys") > 0);
            let digest = client.ask("DEBUG DIGEST");
            server.signal("KILL");
            server.wait();
            digest
        };
        let server = folder.start_freezing(&more);
        let mut client = server.client();
        loaded(&mut client);
        assert_eq!(client.ask("DEBUG DIGEST"), digest);
        client.check("DEBUG CHECK-INVARIANTS", "+OK\r\n");
    }
}

/// Keys that expire: frozen ones are counted, seen by none when their time is over, and then leave as any
/// other.
#[test]
fn frozen_keys_expire() {
    const STAY: usize = 2000;
    const GO: usize = 1000;
    let folder = Folder::new("frozen-expire");
    let server = folder.start_freezing(&["--notify-keyspace-events", "Ex"]);
    let replica = Server::start(&["--replicaof", "127.0.0.1", &server.port.to_string()]);
    let (mut client, mut events, mut follower) = (server.client(), server.client(), replica.client());
    events.check(
        "SUBSCRIBE __keyevent@0__:expired",
        "*3\r\n$9\r\nsubscribe\r\n$22\r\n__keyevent@0__:expired\r\n:1\r\n",
    );
    client.check("DEBUG SET-ACTIVE-EXPIRE 0", "+OK\r\n");
    set(&mut client, 0..STAY);
    let all = (STAY + GO) as u64;
    let at = || client_time_ms() + 6000;
    let moment = at();
    let goes = |n: usize| encode(&["SET", &format!("goes:{n}"), "soon", "PXAT", &moment.to_string()]);
    client.send((0..GO).flat_map(goes).collect::<Vec<u8>>());
    (0..GO).for_each(|_| client.expect("+OK\r\n"));
    for n in 0..100 {
        client.check(&format!("EXPIRE {} 5000", name(n)), ":1\r\n");
    }
    freeze(&mut client, all);
    wait_until("the replica has them", || follower.ask("DBSIZE") == format!(":{all}\r\n"));
    assert!(
        client.ask("INFO keyspace").contains("keys=3000,expires=1100"),
        "{}",
        client.ask("INFO keyspace")
    );
    // A key that comes to memory has its expiry, and freezes with it again.
    assert!(client.ask(&format!("TTL {}", name(1))).starts_with(":49") || client_time_ms() > moment);
    freeze(&mut client, all);
    client.check("WATCH goes:1", "+OK\r\n");
    // On a machine that is busy their time may be over already.
    let was_there = client_time_ms() < moment;
    wait_until("their time is over", || client_time_ms() > moment);
    client.check("MULTI", "+OK\r\n");
    client.check("PING", "+QUEUED\r\n");
    client.check("EXEC", if was_there { "*-1\r\n" } else { "*1\r\n+PONG\r\n" });
    // One whose time was over when it was watched has lost nothing.
    client.check("WATCH goes:10", "+OK\r\n");
    client.check("MULTI", "+OK\r\n");
    client.check("PING", "+QUEUED\r\n");
    client.check("EXEC", "*1\r\n+PONG\r\n");
    client.check("KEYS goes:*", "*0\r\n");
    assert!(!client.ask("SCAN 0 COUNT 100000").contains("goes"));
    for _ in 0..30 {
        assert!(client.ask("RANDOMKEY").contains("key:"));
    }
    // Two were met in memory.
    assert!(client.ask_number("DBSIZE") >= all as i64 - 2);
    client.check("GET goes:2", "$-1\r\n");
    client.check("EXISTS goes:3", ":0\r\n");
    client.check("SET goes:4 x NX", "+OK\r\n");
    client.check("DEL goes:4", ":1\r\n");
    let frozen = swap(&mut client, "swap_frozen_keys");
    assert!(frozen > all - 400, "{frozen}");
    client.check("DEBUG SET-ACTIVE-EXPIRE 1", "+OK\r\n");
    client.check("DEBUG SWAP-CHAOS 1", "+OK\r\n");
    wait_until("they leave", || client.ask("DBSIZE") == format!(":{STAY}\r\n"));
    wait_until("on the replica too", || follower.ask("DBSIZE") == format!(":{STAY}\r\n"));
    client.check("DEBUG SWAP-CHAOS 0", "+OK\r\n");
    assert_eq!(field(&client.ask("INFO stats"), "expired_keys"), GO as u64);
    let mut gone: Vec<String> =
        (0..GO).map(|_| String::from_utf8_lossy(&events.read_reply()).into_owned()).collect();
    gone.sort_unstable();
    gone.dedup();
    assert!(gone.len() == GO && gone.iter().all(|event| event.contains("goes:")), "each once");
    client.check("DEBUG CHECK-INVARIANTS", "+OK\r\n");
    assert!(client.ask("INFO keyspace").contains("keys=2000,expires=100"));
    check(&mut client, 0..STAY);
}

fn client_time_ms() -> u128 {
    std::time::UNIX_EPOCH.elapsed().expect("it is later").as_millis()
}

/// A record that cannot be read is an error and never "no such key".
#[test]
fn a_record_that_cannot_be_read_is_an_error() {
    const ERROR: &str = "-SWAPERR A value that this command needs cannot be read from disk\r\n";
    let folder = Folder::new("frozen-lost");
    let server = folder.start_freezing(&[]);
    let mut client = server.client();
    set(&mut client, 0..2000);
    freeze(&mut client, 2000);
    client.check("DEBUG SWAP-FAULT READ IO", "+OK\r\n");
    for request in ["GET", "EXISTS", "TYPE", "INCR", "STRLEN", "TTL", "DEL"] {
        client.check(&format!("{request} {}", name(7)), ERROR);
    }
    client.check("SCAN 0 COUNT 100000", ERROR);
    assert!(client.ask("SAVE").starts_with("-ERR"));
    client.check(&format!("SET {} new", name(7)), ERROR);
    client.check("DBSIZE", ":2000\r\n");
    client.check(&format!("LOCATEKEY {}", name(7)), "$4\r\nssdb\r\n");
    // A command that walks over all keys has no reply for that: the next command has its own.
    client.ask("DEBUG DIGEST");
    client.check("SET another 1", "+OK\r\n");
    // Of COPY and MOVE the key in the other database is not fetched before they run: nothing is written next
    // to the old value.
    client.check("SELECT 1", "+OK\r\n");
    client.check(&format!("SET {} x", name(9)), "+OK\r\n");
    client.check(&format!("COPY {0} {0} DB 0 REPLACE", name(9)), ERROR);
    client.check(&format!("MOVE {} 0", name(9)), ERROR);
    client.check("SELECT 0", "+OK\r\n");
    client.check("DEL another", ":1\r\n");
    client.check("DBSIZE", ":2000\r\n");
    client.check("GET nothing", "$-1\r\n");
    client.check("DEBUG SWAP-FAULT READ NONE", "+OK\r\n");
    wait_until("the disk counts as healthy", || client.ask("INFO swap").contains("swap_state:ok"));
    check(&mut client, 7..9);
    check(&mut client, 0..2000);
    client.check("DEBUG CHECK-INVARIANTS", "+OK\r\n");
}

/// The keys of a pipeline after the one that waits are read with it, whatever names them: here those after a
/// command that blocks.
#[test]
fn a_pipeline_reads_ahead_whatever_names_keys() {
    let folder = Folder::new("frozen-ahead");
    let server = folder.start_freezing(&[]);
    let (mut client, mut other) = (server.client(), server.client());
    if !client.ask("INFO swap").contains("swap_backend:io_uring") {
        return;
    }
    set(&mut client, 0..2000);
    freeze(&mut client, 2000);
    let mut requests = [encode(&["GET", &name(0)]), encode(&["BLPOP", "nothing", "0"])].concat();
    for (n, request) in ["EXISTS", "DEL", "TTL", "TYPE", "PERSIST"].into_iter().enumerate() {
        requests.extend(encode(&[request, &name(100 * (n + 1))]));
    }
    requests.extend(encode(&["SET", &name(600), "x"]));
    client.send(requests);
    wait_until("they are read", || {
        (0..=600).step_by(100).all(|n| other.ask(&format!("LOCATEKEY {}", name(n))) == "$5\r\nredis\r\n")
    });
    other.check("LOCATEKEY key:00000700", "$4\r\nssdb\r\n");
    other.check("RPUSH nothing x", ":1\r\n");
    let replies: Vec<String> =
        (0..8).map(|_| String::from_utf8_lossy(&client.read_reply()).into_owned()).collect();
    assert_eq!(replies[2..], [":1\r\n", ":1\r\n", ":-1\r\n", "+string\r\n", ":0\r\n", "+OK\r\n"]);
    client.check("DEBUG CHECK-INVARIANTS", "+OK\r\n");
}

/// A record that is damaged is given up by name: its keys are absent from then on, all others stay.
#[test]
fn a_record_that_cannot_be_read_is_given_up() {
    const ERROR: &str = "-SWAPERR A value that this command needs cannot be read from disk\r\n";
    let folder = Folder::new("frozen-forget");
    let server = folder.start_freezing(&[]);
    let mut client = server.client();
    // All in one slot, so that a record has several.
    let name = |n: usize| format!("{{s}}key:{n}");
    for n in 0..400 {
        client.check(&format!("SET {} value-{n}", name(n)), "+OK\r\n");
    }
    freeze(&mut client, 400);
    client.check(&format!("SWAP FORGET {}", name(7)), ":0\r\n");
    client.check(&format!("GET {}", name(7)), "$7\r\nvalue-7\r\n");
    client.check("SWAP FORGET nothing", ":0\r\n");
    freeze(&mut client, 400);
    let path = folder.0.join("swap/00000000.cold");
    let bytes = std::fs::read(&path).expect("the file is there");
    // Older records of the key are dead.
    let needle = name(300) + "value-300";
    let found = bytes.windows(needle.len()).enumerate().filter(|(_, part)| *part == needle.as_bytes());
    let places: Vec<usize> = found.map(|(at, _)| at).collect();
    assert!(!places.is_empty());
    let file = std::fs::OpenOptions::new().write(true).open(&path).expect("it is writable");
    for at in places {
        std::os::unix::fs::FileExt::write_all_at(&file, b"X", at as u64).expect("it is written");
    }
    client.check(&format!("GET {}", name(300)), ERROR);
    client.check(&format!("SET {} new", name(300)), ERROR);
    client.check("WATCH {s}key:300", "+OK\r\n");
    let mut other = server.client();
    let lost = other.ask_number(&format!("SWAP FORGET {}", name(300)));
    assert!((1..400).contains(&lost), "{lost}");
    assert_eq!(swap(&mut other, "swap_lost_keys") as i64, lost);
    client.check("MULTI", "+OK\r\n");
    client.check("PING", "+QUEUED\r\n");
    client.check("EXEC", "*-1\r\n");
    client.check(&format!("GET {}", name(300)), "$-1\r\n");
    client.check("DBSIZE", &format!(":{}\r\n", 400 - lost));
    client.check(&format!("SET {} new", name(300)), "+OK\r\n");
    let there = (0..400).filter(|n| client.ask(&format!("GET {}", name(*n))).starts_with("$")).count();
    assert_eq!(there, 400, "no key is an error any more");
    let values = (0..400).filter(|n| client.ask(&format!("GET {}", name(*n))).contains("value-")).count();
    assert_eq!(values as i64, 400 - lost);
    client.check("SAVE", "+OK\r\n");
    client.check("DEBUG CHECK-INVARIANTS", "+OK\r\n");
}

/// A read that did not come back, or one that failed while no other file could be read, is no reason to give
/// up a record.
#[test]
fn a_record_that_cannot_be_read_now_is_not_given_up() {
    const AWAY: &str = "-ERR the disk does not answer: what cannot be read is not given up before it does (see INFO swap)\r\n";
    let folder = Folder::new("frozen-away");
    let server = folder.start_freezing(&["--swap-read-timeout", "300"]);
    let (mut client, mut other) = (server.client(), server.client());
    set(&mut client, 0..2000);
    freeze(&mut client, 2000);
    for trouble in ["HANG 1", "IO"] {
        client.check(&format!("DEBUG SWAP-FAULT READ {trouble}"), "+OK\r\n");
        client.check(&format!("SWAP FORGET {}", name(7)), AWAY);
        client.check("DEBUG SWAP-FAULT READ NONE", "+OK\r\n");
        wait_until("the disk counts as healthy", || other.ask("INFO swap").contains("swap_state:ok"));
    }
    assert_eq!(swap(&mut client, "swap_lost_keys"), 0);
    check(&mut client, 0..2000);
    client.check("DEBUG CHECK-INVARIANTS", "+OK\r\n");
}

/// Written over again and again, by few clients at once: the disk does not grow with that, and all is as it
/// was left.
#[test]
fn records_are_cleaned() {
    let folder = Folder::new("frozen-clean");
    let server = folder.start_freezing(&["--swap-max-disk", "320mb"]);
    let mut client = server.client();
    set(&mut client, 0..KEYS * 2);
    let mut filler = server.client();
    // Larger values of one key after another fill the log, and leave holes next to the records.
    let text = "y".repeat(4000);
    for n in 0..100_000 {
        // A write that takes seconds lets the disk count as degraded for a moment, on a machine that is busy.
        wait_until("there is memory", || filler.ask(&format!("SET filler:{} {text}", n % 9000)) == "+OK\r\n");
        if n % 20_000 == 0 {
            check(&mut client, (0..KEYS * 2).step_by(1013));
        }
    }
    client.check("SWAP CLEAN", "+Cleaning started\r\n");
    wait_until("it is cleaned", || swap(&mut client, "swap_clean_in_progress") == 0);
    assert!(swap(&mut client, "swap_cleaned_segments") > 0);
    check(&mut client, (0..KEYS * 2).step_by(17));
    client.check("DBSIZE", &format!(":{}\r\n", KEYS * 2 + 9000));
    client.check("DEBUG CHECK-INVARIANTS", "+OK\r\n");
}
