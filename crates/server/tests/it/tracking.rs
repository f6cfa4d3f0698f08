//! CLIENT TRACKING: a client that keeps values gets a message when they are no longer right.

use crate::common::{Client, Server, encode, field, wait_until};

const OK: &str = "+OK\r\n";

fn array(words: &[&str]) -> String {
    let bulks: String = words.iter().map(|word| format!("${}\r\n{word}\r\n", word.len())).collect();
    format!("*{}\r\n{bulks}", words.len())
}

fn stale(keys: &[&str]) -> String {
    format!(">2\r\n$10\r\ninvalidate\r\n{}", array(keys))
}

const ALL_STALE: &str = ">2\r\n$10\r\ninvalidate\r\n_\r\n";

/// A session in RESP3.
fn third(server: &Server) -> Client {
    let mut client = server.client();
    assert!(client.ask("HELLO 3").starts_with('%'));
    client
}

#[test]
fn each_read_key_is_invalidated_once() {
    for workers in [1, 2] {
        let server = Server::with_workers(workers, &[]);
        let (mut reads, mut writes) = (third(&server), server.client());
        writes.check("MSET a 1 b 2 c 3", OK);
        reads.check("CLIENT TRACKING ON", OK);
        reads.check("MGET a b", "*2\r\n$1\r\n1\r\n$1\r\n2\r\n");
        assert_eq!(writes.info("stats", "tracking_total_keys"), 2);
        writes.check("SET a 2", OK);
        reads.expect(&stale(&["a"]));
        writes.check("SET a 3", OK);
        writes.check("SET c 3", OK);
        writes.check("EXPIRE b 100", ":1\r\n");
        reads.expect(&stale(&["b"]));
        // Its own changes too, after the reply.
        reads.check("GET a", "$1\r\n3\r\n");
        reads.check("SET a 4", OK);
        reads.expect(&stale(&["a"]));
        // An absent key can be kept as well.
        reads.check("GET missing", "_\r\n");
        writes.check("SET missing 1", OK);
        reads.expect(&stale(&["missing"]));
        // Collections, and several keys at once.
        writes.check("RPUSH l 1", ":1\r\n");
        reads.check("LRANGE l 0 -1", "*1\r\n$1\r\n1\r\n");
        writes.check("RPUSH l 2", ":2\r\n");
        reads.expect(&stale(&["l"]));
        reads.check("GET a", "$1\r\n4\r\n");
        reads.check("GET c", "$1\r\n3\r\n");
        writes.check("DEL a c", ":2\r\n");
        let mut pushes =
            [reads.read_reply(), reads.read_reply()].map(|push| String::from_utf8(push).unwrap());
        pushes.sort();
        assert_eq!(pushes, [stale(&["a"]), stale(&["c"])]);
        // Of a script's keys those that it reads.
        reads.send(encode(&[
            "EVAL_RO",
            "redis.call('PING') return redis.call('GET', KEYS[1])",
            "2",
            "a",
            "b",
        ]));
        assert_eq!(reads.read_reply(), b"_\r\n");
        writes.check("MSET b 2 a 5", OK);
        reads.expect(&stale(&["a"]));
        writes.check("DEL a", ":1\r\n");
        // In a transaction, after all of it.
        reads.check("GET b", "$1\r\n2\r\n");
        reads.check("MULTI", OK);
        reads.check("SET b 1", "+QUEUED\r\n");
        reads.check("PING", "+QUEUED\r\n");
        reads.check("EXEC", "*2\r\n+OK\r\n+PONG\r\n");
        reads.expect(&stale(&["b"]));
        reads.check("GET b", "$1\r\n1\r\n");
        reads.check("CLIENT TRACKING OFF", OK);
        writes.check("SET b 5", OK);
        reads.check("PING", "+PONG\r\n");
        reads.expect_silence();
    }
}

#[test]
fn keys_that_leave_by_themselves() {
    let server = Server::with_workers(2, &[]);
    let (mut reads, mut writes) = (third(&server), server.client());
    reads.check("CLIENT TRACKING ON NOLOOP", OK);
    // Set and read at one time, so that the key is there when it is read.
    reads.check("MULTI", OK);
    reads.check("SET k v PX 30", "+QUEUED\r\n");
    reads.check("GET k", "+QUEUED\r\n");
    reads.check("EXEC", "*2\r\n+OK\r\n$1\r\nv\r\n");
    reads.expect(&stale(&["k"]));
    // A field of a hash.
    writes.check("HSET h f v g w", ":2\r\n");
    reads.check("HGET h g", "$1\r\nw\r\n");
    writes.check("HPEXPIRE h 100000 FIELDS 1 f", "*1\r\n:1\r\n");
    reads.expect(&stale(&["h"]));
    reads.check("MULTI", OK);
    reads.check("HPEXPIRE h 30 FIELDS 1 f", "+QUEUED\r\n");
    reads.check("HGET h g", "+QUEUED\r\n");
    reads.check("EXEC", "*2\r\n*1\r\n:1\r\n$1\r\nw\r\n");
    reads.expect(&stale(&["h"]));
    // All of them.
    for flush in ["FLUSHALL", "FLUSHDB", "FLUSHALL ASYNC"] {
        writes.check(flush, OK);
        reads.expect(ALL_STALE);
        reads.check(flush, OK);
        reads.expect(ALL_STALE);
    }
}

#[test]
fn evicted_keys() {
    let server = Server::start(&["--maxmemory-policy", "allkeys-random"]);
    let (mut reads, mut writes) = (third(&server), server.client());
    reads.check("CLIENT TRACKING ON BCAST PREFIX k", OK);
    writes.check("SET k v", OK);
    reads.expect(&stale(&["k"]));
    writes.check("CONFIG SET maxmemory 1", OK);
    assert!(writes.ask("SET other v").starts_with("-OOM"));
    reads.expect(&stale(&["k"]));
}

#[test]
fn a_table_that_is_too_large() {
    let server = Server::with_workers(2, &["--tracking-table-max-keys", "100"]);
    let (mut reads, mut looks) = (third(&server), server.client());
    reads.check("CLIENT TRACKING ON", OK);
    for at in 0..500 {
        reads.send(encode(&["GET", &at.to_string()]));
    }
    let (mut nulls, mut pushes) = (0, 0);
    while nulls < 500 || pushes < 400 {
        match reads.read_reply().as_slice() {
            b"_\r\n" => nulls += 1,
            push if push.starts_with(b">2\r\n$10\r\ninvalidate\r\n*1\r\n") => pushes += 1,
            other => panic!("{}", String::from_utf8_lossy(other)),
        }
    }
    let stats = looks.ask("INFO stats");
    assert_eq!((field(&stats, "tracking_total_keys"), field(&stats, "tracking_total_items")), (100, 100));
    looks.check("CONFIG SET tracking-table-max-keys 40", OK);
    (0..60).for_each(|_| assert!(reads.read_reply().starts_with(b">2")));
    wait_until("the cron removes 60 keys", || looks.info("stats", "tracking_total_keys") == 40);
    drop(reads);
    wait_until("no client tracks", || looks.info("clients", "tracking_clients") == 0);
    // The other worker empties the table when it has counted its client out.
    wait_until("the table is empty", || looks.info("stats", "tracking_total_keys") == 0);
}

/// Connections that come, read and go leave nothing behind, also while another one tracks the same keys. Once
/// what they had read stayed until the key changed.
#[test]
fn readers_that_are_gone_are_forgotten() {
    const KEYS: usize = 20;
    let server = Server::with_workers(2, &[]);
    let (mut stays, mut looks) = (third(&server), server.client());
    stays.check("CLIENT TRACKING ON", OK);
    let read = |client: &mut Client, from: usize| {
        let keys: Vec<String> = (from..from + KEYS).map(|at| at.to_string()).collect();
        client.ask(&format!("MGET {}", keys.join(" ")));
    };
    read(&mut stays, 0);
    for at in 0..50 {
        let mut goes = third(&server);
        goes.check("CLIENT TRACKING ON", OK);
        // Some of these keys are no one else's.
        read(&mut goes, at % 10);
        if at % 3 == 0 {
            goes.check("CLIENT TRACKING OFF", OK);
        }
    }
    wait_until("one client is left", || looks.info("clients", "connected_clients") == 2);
    wait_until("only its reads are noted", || {
        let stats = looks.ask("INFO stats");
        (field(&stats, "tracking_total_keys"), field(&stats, "tracking_total_items"))
            == (KEYS as u64, KEYS as u64)
    });
    looks.check("SET 3 x", OK);
    stays.expect(&stale(&["3"]));
}

#[test]
fn opting_in_and_out() {
    let server = Server::start(&[]);
    let (mut reads, mut writes) = (third(&server), server.client());
    reads.check(
        "CLIENT CACHING YES",
        "-ERR CLIENT CACHING can be called only when the client is in tracking mode with OPTIN or OPTOUT mode enabled\r\n",
    );
    reads.check("CLIENT TRACKING ON OPTIN", OK);
    reads.check(
        "CLIENT CACHING NO",
        "-ERR CLIENT CACHING NO is only valid when tracking is enabled in OPTOUT mode.\r\n",
    );
    reads.check("GET a", "_\r\n");
    reads.check("CLIENT CACHING YES", OK);
    reads.check("GET b", "_\r\n");
    reads.check("GET c", "_\r\n");
    writes.check("MSET a 1 b 1 c 1", OK);
    reads.expect(&stale(&["b"]));
    // For a whole transaction.
    reads.check("CLIENT CACHING YES", OK);
    reads.check("MULTI", OK);
    reads.check("GET a", "+QUEUED\r\n");
    reads.check("GET b", "+QUEUED\r\n");
    reads.check("EXEC", "*2\r\n$1\r\n1\r\n$1\r\n1\r\n");
    reads.check("GET c", "$1\r\n1\r\n");
    writes.check("MSET a 1 b 1 c 1", OK);
    reads.expect(&stale(&["a"]));
    reads.expect(&stale(&["b"]));
    assert!(reads.ask("CLIENT TRACKING ON OPTOUT").starts_with("-ERR You can't switch OPTIN/OPTOUT mode"));
    reads.check("CLIENT TRACKING OFF", OK);
    reads.check("CLIENT TRACKING ON OPTOUT", OK);
    reads.check("GET a", "$1\r\n1\r\n");
    reads.check("CLIENT CACHING NO", OK);
    reads.check("GET b", "$1\r\n1\r\n");
    writes.check("MSET a 1 b 1", OK);
    reads.expect(&stale(&["a"]));
    reads.check("PING", "+PONG\r\n");
    // A name of no command is the next one too.
    for wrong in ["WRONG", "CLIENT WRONG", "OBJECT WRONG"] {
        reads.check("CLIENT CACHING NO", OK);
        assert!(reads.ask(wrong).starts_with("-ERR unknown "), "{wrong}");
        reads.check("GET b", "$1\r\n1\r\n");
        writes.check("SET b 1", OK);
        reads.expect(&stale(&["b"]));
    }
}

#[test]
fn broadcasts_by_prefix() {
    for workers in [1, 2] {
        let server = Server::with_workers(workers, &[]);
        let (mut hears, mut writes) = (third(&server), third(&server));
        hears.check("CLIENT TRACKING ON BCAST PREFIX a: PREFIX b:", OK);
        writes.check("MULTI", OK);
        for key in ["a:1", "a:2", "b:1", "c:1", "a:1"] {
            writes.check(&format!("INCR {key}"), "+QUEUED\r\n");
        }
        writes.check("EXEC", "*5\r\n:1\r\n:1\r\n:1\r\n:1\r\n:2\r\n");
        hears.expect(&stale(&["a:1", "a:2"]));
        hears.expect(&stale(&["b:1"]));
        let stats = writes.ask("INFO stats");
        assert!(stats.contains("tracking_total_prefixes:2"), "{stats}");
        let list = writes.ask("CLIENT LIST");
        assert!(list.contains("flags=tB "), "{list}");
        // A client that gets every key in a message, but not the keys that it has changed itself.
        writes.check("CLIENT TRACKING ON BCAST NOLOOP", OK);
        writes.check("SET a:3 1", OK);
        hears.expect(&stale(&["a:3"]));
        hears.check("SET zz 1", OK);
        writes.expect(&stale(&["zz"]));
        hears.check(
            "CLIENT TRACKING ON BCAST PREFIX a:x",
            "-ERR Prefix 'a:x' overlaps with an existing prefix 'a:'. Prefixes for a single client must not overlap.\r\n",
        );
        hears.check("CLIENT TRACKING ON BCAST PREFIX d:", OK);
        writes.check("SET d:1 1", OK);
        hears.expect(&stale(&["d:1"]));
        hears.check("RESET", "+RESET\r\n");
        writes.check("SET d:1 2", OK);
        hears.check("PING", "+PONG\r\n");
    }
}

#[test]
fn invalidations_for_another_connection() {
    for workers in [1, 3] {
        let server = Server::with_workers(workers, &[]);
        let (mut reads, mut hears, mut writes) = (server.client(), server.client(), server.client());
        let id = hears.id();
        reads.check("CLIENT GETREDIR", ":-1\r\n");
        assert!(reads.ask("CLIENT TRACKING ON REDIRECT 99999").starts_with("-ERR The client ID you want"));
        reads.check(&format!("CLIENT TRACKING ON REDIRECT {id}"), OK);
        reads.check("CLIENT GETREDIR", &format!(":{id}\r\n"));
        let info = format!(
            "*6\r\n$5\r\nflags\r\n*1\r\n$2\r\non\r\n$8\r\nredirect\r\n:{id}\r\n$8\r\nprefixes\r\n*0\r\n"
        );
        reads.check("CLIENT TRACKINGINFO", &info);
        hears.check(
            "SUBSCRIBE __redis__:invalidate",
            "*3\r\n$9\r\nsubscribe\r\n$20\r\n__redis__:invalidate\r\n:1\r\n",
        );
        let message = |body: &str| format!("*3\r\n$7\r\nmessage\r\n$20\r\n__redis__:invalidate\r\n{body}");
        reads.check("GET k", "$-1\r\n");
        writes.check("SET k 1", OK);
        hears.expect(&message(&array(&["k"])));
        writes.check("FLUSHALL", OK);
        hears.expect(&message("$-1\r\n"));
        // In RESP3 it is a push.
        hears.check("RESET", "+RESET\r\n");
        hears.ask("HELLO 3");
        reads.check("GET k", "$-1\r\n");
        writes.check("SET k 2", OK);
        hears.expect(&stale(&["k"]));
        // When it is gone, the session that tracks gets a message about that.
        reads.ask("HELLO 3");
        drop(hears);
        wait_until("it is gone", || !writes.ask("CLIENT LIST").contains(&format!("id={id} ")));
        reads.check("GET k", "$1\r\n2\r\n");
        writes.check("SET k 3", OK);
        reads.expect(&format!(">2\r\n$21\r\ntracking-redir-broken\r\n:{id}\r\n"));
        let info = reads.ask("CLIENT TRACKINGINFO");
        assert!(info.contains("broken_redirect"), "{info}");
        let list = writes.ask("CLIENT LIST");
        assert!(list.contains("flags=tR ") && list.contains(&format!("redir={id} ")), "{list}");
    }
}

/// Readers and a writer on several workers: a value that is kept is never older than what its last
/// invalidation allows. The writer changes its key to a larger number, each reader keeps the last value that
/// it read until its invalidation.
#[test]
fn no_change_falls_between() {
    const ROUNDS: usize = 300;
    let server = Server::with_workers(3, &[]);
    let mut readers: Vec<Client> = (0..4).map(|_| third(&server)).collect();
    let mut writer = server.client();
    for reader in &mut readers {
        reader.check("CLIENT TRACKING ON", OK);
    }
    for round in 1..=ROUNDS {
        let value = round.to_string();
        writer.send(encode(&["SET", "k", &value]));
        for reader in &mut readers {
            reader.send(encode(&["GET", "k"]));
        }
        writer.expect(OK);
        for reader in &mut readers {
            // The value is kept; if it is the old one, an invalidation must come after it.
            let mut kept = None;
            let fresh = format!("${}\r\n{value}\r\n", value.len());
            while kept.as_deref() != Some(&*fresh) {
                match String::from_utf8(reader.read_reply()).unwrap() {
                    push if push == stale(&["k"]) => reader.send(encode(&["GET", "k"])),
                    read => kept = Some(read),
                }
            }
        }
    }
}

/// Another worker serves a client that waits, notes what the client has read in a table that is full, and has
/// to remove another key of the same client: the message about that key and the reply after it wake the
/// client's worker. Once both lay in the worker's queue until it woke for another reason, up to a second
/// later; builds with debug assertions check that a message to a sleeping worker wakes it.
#[test]
fn a_client_served_by_another_worker_gets_its_messages_at_once() {
    let server = Server::with_workers(2, &["--tracking-table-max-keys", "1"]);
    let (mut reads, mut writes) = (third(&server), server.client());
    writes.check("SET k v", OK);
    for round in 1..=20 {
        reads.check("CLIENT TRACKING ON", OK);
        reads.check("GET k", "$1\r\nv\r\n");
        reads.send(encode(&["XREAD", "BLOCK", "0", "STREAMS", "s", "$"]));
        wait_until("it waits", || writes.blocked_count() == 1);
        let id = format!("{round}-0");
        writes.send(encode(&["XADD", "s", &id, "f", "v"]));
        writes.expect(&format!("${}\r\n{id}\r\n", id.len()));
        // Either of the two keys may be the one that is removed.
        let (mut invalidated, mut served) = (false, false);
        while !invalidated || !served {
            let reply = reads.read_reply();
            (invalidated, served) =
                (invalidated || reply.starts_with(b">"), served || reply.starts_with(b"%"));
        }
        // The other key may be removed as well.
        reads.send("CLIENT TRACKING OFF\r\n");
        while reads.read_reply() != OK.as_bytes() {}
    }
}

/// Invalidations for a connection of another worker wait in its mailbox, as messages do: when they are much,
/// what would cause more of them waits. Meanwhile that worker runs a transaction that locks nothing; should
/// it be too short, a longer one.
#[test]
fn redirected_invalidations_are_bounded() {
    const KEY_BYTES: usize = 1 << 20;
    /// More than may wait undelivered.
    const WRITES: usize = 100;
    /// A command that looks for one takes long.
    const CHANNELS: usize = 10_000;
    let server = Server::with_workers(2, &[]);
    // Connections go to the two workers in turn.
    let mut clients: Vec<Client> = (0..6).map(|_| server.client()).collect();
    clients.iter_mut().for_each(|client| client.check("PING", "+PONG\r\n"));
    let Ok([mut target, mut other, mut busy, mut writer, mut listens, mut tracks]) =
        <[Client; 6]>::try_from(clients)
    else {
        unreachable!("six were made");
    };
    // The target does not listen: what comes for it is dropped, but only by its worker.
    tracks.check(&format!("CLIENT TRACKING ON BCAST REDIRECT {}", target.id()), OK);
    let id = writer.id();
    let write = encode(&["SET", &"k".repeat(KEY_BYTES), "v"]);
    let mut channels = vec!["SUBSCRIBE".to_string()];
    channels.extend((0..CHANNELS).map(|at| format!("channel:{at}")));
    listens.send(encode(&channels));
    (0..CHANNELS).for_each(|_| drop(listens.read_reply()));
    let has_waited = [1_000, 4_000, 16_000].into_iter().any(|commands| {
        busy.check("MULTI", OK);
        busy.send(encode(&["PUBSUB", "CHANNELS", "none*"]).repeat(commands));
        (0..commands).for_each(|_| busy.expect("+QUEUED\r\n"));
        busy.send(encode(&["EXEC"]));
        let mut has_waited = false;
        std::thread::scope(|scope| {
            let writes = scope.spawn(|| {
                for _ in 0..WRITES {
                    writer.send(&write);
                    writer.expect(OK);
                }
            });
            while !writes.is_finished() && !has_waited {
                has_waited = other.sees_waiting(id);
            }
        });
        busy.read_reply();
        has_waited
    });
    assert!(has_waited, "the worker had no message to deliver, or nothing waited for that");
}

/// A client that tracks gets the messages about keys that were evicted for its command before the reply, but
/// does not wait until nothing is left to evict.
#[test]
fn a_command_waits_once_for_what_it_has_evicted() {
    const KEYS: i64 = 5_000;
    let arguments = [
        "--enable-debug-command",
        "yes",
        "--maxmemory-policy",
        "allkeys-random",
        "--maxmemory-eviction-tenacity",
        "0",
    ];
    let server = Server::start(&arguments);
    let (mut tracks, mut other) = (third(&server), server.client());
    // The cron evicts as well.
    other.check("DEBUG PAUSE-CRON 1", OK);
    other.check(&format!("DEBUG POPULATE {KEYS}"), OK);
    tracks.check("CLIENT TRACKING ON BCAST", OK);
    other.check("CONFIG SET maxmemory 1", OK);
    tracks.send([encode(&["GET", "missing"]), encode(&["DBSIZE"])].concat());
    let (mut pushes, mut replies) = (Vec::new(), Vec::new());
    while replies.len() < 2 {
        let reply = String::from_utf8(tracks.read_reply()).unwrap();
        if reply.starts_with('>') { pushes.push(replies.len()) } else { replies.push(reply) }
    }
    assert_eq!(pushes.first(), Some(&0), "a message comes before the first reply");
    assert_eq!(replies[0], "_\r\n");
    let left: i64 = replies[1].trim_start_matches(':').trim_end().parse().unwrap();
    assert!((1..KEYS).contains(&left), "{left} are left");
}
