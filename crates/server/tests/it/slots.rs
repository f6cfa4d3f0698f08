//! Reports of the server on slots and on the keys that are used most.

use crate::common::{Client, Server, encode, wait_until};

const OK: &str = "+OK\r\n";

/// One slot of SLOT-STATS without the costs of commands.
fn slot(number: u16, keys: u64, bytes: u64) -> String {
    format!("*2\r\n:{number}\r\n*4\r\n$9\r\nkey-count\r\n:{keys}\r\n$12\r\nmemory-bytes\r\n:{bytes}\r\n")
}

/// The number after a name in a reply.
fn number(reply: &str, name: &str) -> i64 {
    let (_, rest) = reply.split_once(&format!("{name}\r\n:")).unwrap_or_else(|| panic!("{name}: {reply:?}"));
    rest.split("\r\n").next().unwrap().parse().unwrap()
}

fn stats(client: &mut Client, slot: u16) -> String {
    client.ask(&format!("CLUSTER SLOT-STATS SLOTSRANGE {slot} {slot}"))
}

#[test]
fn slots_report_their_keys_and_bytes() {
    for workers in [1, 4] {
        let server = Server::with_workers(workers, &[]);
        let mut client = server.client();
        // The slots of "a" and "b".
        client.check("CLUSTER KEYSLOT a", ":15495\r\n");
        client.check("CLUSTER KEYSLOT {b}a", ":3300\r\n");
        client
            .check("CLUSTER SLOT-STATS SLOTSRANGE 0 1", &format!("*2\r\n{}{}", slot(0, 0, 0), slot(1, 0, 0)));
        client.check("SET a 1", OK);
        client.check("SET {b}1 1", OK);
        client.check(&format!("SET {{b}}2 {}", "x".repeat(5000)), OK);
        let (a, b) = (stats(&mut client, 15495), stats(&mut client, 3300));
        assert_eq!((number(&a, "key-count"), number(&b, "key-count")), (1, 2));
        assert!((20..100).contains(&number(&a, "memory-bytes")), "{a}");
        assert!((5000..6000).contains(&number(&b, "memory-bytes")), "{b}");
        let top = client.ask("CLUSTER SLOT-STATS ORDERBY memory-bytes LIMIT 2");
        assert_eq!(top, format!("*2\r\n{}{}", &b[4..], &a[4..]));
        let first = format!("*1\r\n{}", slot(0, 0, 0));
        client.check("CLUSTER SLOT-STATS ORDERBY key-count ASC LIMIT 1", &first);
        client.check("MULTI", OK);
        client.check("CLUSTER SLOT-STATS SLOTSRANGE 0 0", "+QUEUED\r\n");
        client.check("EXEC", &format!("*1\r\n{first}"));
        client.check("FLUSHALL", OK);
        assert_eq!(number(&stats(&mut client, 3300), "memory-bytes"), 0);
    }
}

#[test]
fn slots_report_what_commands_cost() {
    let server = Server::with_workers(2, &[]);
    let (mut client, mut other) = (server.client(), server.client());
    client.check("SET a 1", OK);
    assert!(!stats(&mut client, 15495).contains("cpu-usec"));
    client.check("CONFIG SET cluster-slot-stats-enabled yes", OK);
    assert_eq!(number(&stats(&mut client, 15495), "network-bytes-in"), 0);
    for client in [&mut client, &mut other] {
        client.check("SET a 1", OK);
        client.check("GET a", "$1\r\n1\r\n");
        client.check("MULTI", OK);
        client.check("GET a", "+QUEUED\r\n");
        client.check("EXEC", "*1\r\n$1\r\n1\r\n");
        client.check("MGET a b", "*2\r\n$1\r\n1\r\n$-1\r\n");
        client.check("PING", "+PONG\r\n");
    }
    let a = stats(&mut client, 15495);
    let sent =
        [&["SET", "a", "1"][..], &["GET", "a"], &["MULTI"], &["GET", "a"], &["EXEC"], &["MGET", "a", "b"]];
    let sent: usize = sent.iter().map(|words| encode(words).len()).sum();
    assert_eq!(number(&a, "network-bytes-in"), 2 * sent as i64);
    assert_eq!(number(&a, "network-bytes-out"), 2 * (5 + 7 + 11 + 16));
    // It counts for the slot of its first key.
    assert_eq!(number(&stats(&mut client, 3300), "network-bytes-in"), 0);
    let top = client.ask("CLUSTER SLOT-STATS ORDERBY network-bytes-out LIMIT 1");
    assert_eq!(number(&top, "network-bytes-out"), 78);
    client.check("CONFIG RESETSTAT", OK);
    assert_eq!(number(&stats(&mut client, 15495), "network-bytes-out"), 0);
    client.check("CONFIG SET cluster-slot-stats-enabled no", OK);
    client.check("GET a", "$1\r\n1\r\n");
    assert!(!stats(&mut client, 15495).contains("network"));
}

/// The bytes that a slot's commands have brought and got.
fn network(client: &mut Client, slot: u16) -> (i64, i64) {
    let stats = stats(client, slot);
    (number(&stats, "network-bytes-in"), number(&stats, "network-bytes-out"))
}

fn wire(words: &[&str]) -> i64 {
    encode(words).len() as i64
}

#[test]
fn a_script_counts_for_the_slot_of_all_its_keys() {
    let server = Server::with_workers(2, &["--cluster-slot-stats-enabled", "yes"]);
    let mut client = server.client();
    let (a, b) = (15495, 3300);
    // Declared, and not; its commands count with it.
    for (words, reply) in [
        (&["EVAL", "return redis.call('SET', KEYS[1], 'x')", "1", "a"][..], "+OK\r\n"),
        (&["EVAL", "redis.call('SET', 'a', 'y') return redis.call('GET', 'a')", "0"], "$1\r\ny\r\n"),
    ] {
        client.check("CONFIG RESETSTAT", OK);
        client.send(encode(words));
        client.expect(reply);
        assert_eq!(network(&mut client, a), (wire(words), reply.len() as i64), "{words:?}");
        let cpu = client.ask("INFO commandstats");
        let usec = cpu.split_once("cmdstat_eval:calls=1,usec=").unwrap().1.split(',').next().unwrap();
        assert_eq!(number(&stats(&mut client, a), "cpu-usec").to_string(), usec);
    }
    client.check("CONFIG RESETSTAT", OK);
    client.send(encode(&["EVAL", "redis.call('SET', 'a', 'y') redis.call('GET', 'b')", "0"]));
    client.expect("$-1\r\n");
    assert_eq!((network(&mut client, a), network(&mut client, b)), ((0, 0), (0, 0)));
    // One that takes long lets others run meanwhile, and counts for its own slot all the same.
    let long = "for i = 1, 30000 do redis.call('INCR', 'n') end return redis.call('DEL', 'n')";
    let mut other = server.client();
    other.send(encode(&["EVAL", long, "0"]));
    for _ in 0..100 {
        client.check("GET b", "$-1\r\n");
    }
    other.expect(":1\r\n");
    let slot_of_n = client.ask_number("CLUSTER KEYSLOT n") as u16;
    assert_eq!(network(&mut client, slot_of_n), (wire(&["EVAL", long, "0"]), 4));
    assert_eq!(network(&mut client, b), (100 * wire(&["GET", "b"]), 500));
}

#[test]
fn a_client_that_waits_counts_when_it_is_answered() {
    let server = Server::with_workers(2, &["--cluster-slot-stats-enabled", "yes"]);
    let (mut client, mut waiting) = (server.client(), server.client());
    waiting.send(encode(&["BLPOP", "a", "0"]));
    wait_until("it waits", || client.blocked_count() == 1);
    assert_eq!(network(&mut client, 15495), (0, 0));
    assert_eq!(number(&stats(&mut client, 15495), "cpu-usec"), 0);
    client.check("RPUSH a x", ":1\r\n");
    let reply = "*2\r\n$1\r\na\r\n$1\r\nx\r\n";
    waiting.expect(reply);
    let sent = wire(&["BLPOP", "a", "0"]) + wire(&["RPUSH", "a", "x"]);
    assert_eq!(network(&mut client, 15495), (sent, 4 + reply.len() as i64));
}

#[test]
fn a_message_to_a_shard_channel_counts_for_each_that_gets_it() {
    let server = Server::with_workers(2, &["--cluster-slot-stats-enabled", "yes"]);
    let (mut client, mut first, mut second) = (server.client(), server.client(), server.client());
    for subscriber in [&mut first, &mut second] {
        subscriber.send(encode(&["SSUBSCRIBE", "a"]));
        subscriber.read_reply();
    }
    let confirmed = "*3\r\n$10\r\nssubscribe\r\n$1\r\na\r\n:1\r\n".len() as i64;
    assert_eq!(network(&mut client, 15495), (2 * wire(&["SSUBSCRIBE", "a"]), 2 * confirmed));
    client.check("CONFIG RESETSTAT", OK);
    client.check("SPUBLISH a hello", ":2\r\n");
    let message = wire(&["smessage", "a", "hello"]);
    assert_eq!(network(&mut client, 15495), (wire(&["SPUBLISH", "a", "hello"]), 4 + 2 * message));
    // Other channels have no slot.
    client.check("PUBLISH a hello", ":0\r\n");
    assert_eq!(network(&mut client, 15495), (wire(&["SPUBLISH", "a", "hello"]), 4 + 2 * message));
}

#[test]
fn replicas_count_what_they_are_sent() {
    let counted = ["--cluster-slot-stats-enabled", "yes"];
    let primary = Server::with_workers(2, &counted);
    let port = primary.port.to_string();
    let replica = Server::with_workers(2, &[&counted[..], &["--replicaof", "127.0.0.1", &port]].concat());
    let (mut client, mut of_replica) = (primary.client(), replica.client());
    wait_until("it follows", || client.ask("INFO replication").contains("state=online"));
    client.check("SET a 1", OK);
    wait_until("it has it", || of_replica.ask("GET a") == "$1\r\n1\r\n");
    let set = wire(&["SET", "a", "1"]);
    assert_eq!(network(&mut client, 15495), (set, 5 + set));
    // GET brings bytes as well.
    let gets = number(&stats(&mut of_replica, 15495), "network-bytes-in") - set;
    assert_eq!(gets % wire(&["GET", "a"]), 0);
    of_replica.check("CONFIG RESETSTAT", OK);
    client.check("SET a 2", OK);
    wait_until("it has run", || network(&mut of_replica, 15495) == (set, 0));
}

#[test]
fn a_slot_that_leaves_is_counted_anew() {
    let node = Server::with_workers(2, &["--cluster-enabled", "yes", "--cluster-slot-stats-enabled", "yes"]);
    let mut client = node.client();
    client.check("CLUSTER ADDSLOTSRANGE 0 16383", OK);
    wait_until("the cluster is up", || client.ask("SET a 1") == OK);
    client.check("SET b 1", OK);
    client.check("DEL a", ":1\r\n");
    assert!(network(&mut client, 15495).0 > 0);
    client.check("CLUSTER DELSLOTS 15495", OK);
    client.check("CLUSTER SLOT-STATS SLOTSRANGE 15495 15495", "*0\r\n");
    client.check("CLUSTER ADDSLOTS 15495", OK);
    assert_eq!(network(&mut client, 15495), (0, 0));
    assert_eq!(network(&mut client, 3300), (wire(&["SET", "b", "1"]), 5));
    // A command that the bus thread has answered is a call like any other.
    client.check("CLUSTER ADDSLOTS 3300", "-ERR Slot 3300 is already busy\r\n");
    let info = client.ask("INFO commandstats");
    let line = |name: &str| info.lines().find(|line| line.starts_with(name)).unwrap_or_default();
    for (name, figures) in
        [("delslots", ["calls=1,", "failed_calls=0"]), ("addslots", ["calls=2,", "failed_calls=1"])]
    {
        let line = line(&format!("cmdstat_cluster|{name}:"));
        assert!(figures.iter().all(|figure| line.contains(figure)), "{name}: {line:?}");
    }
}

#[test]
fn wrong_words_about_slots() {
    let server = Server::start(&[]);
    let mut client = server.client();
    let syntax = "ERR unknown subcommand or wrong number of arguments for 'slot-stats'. Try CLUSTER HELP.";
    let slot = "ERR Invalid or out of range slot";
    let limit = "ERR Limit has to lie in between 1 and 16384 (maximum number of slots).";
    let metric = "ERR Unrecognized sort metric for ORDERBY.";
    for (words, text) in [
        ("", "ERR wrong number of arguments for 'cluster|slot-stats' command"),
        ("a b", syntax),
        ("slotsrange 0", syntax),
        ("slotsrange 0 1 2", syntax),
        ("slotsrange 1 0", "ERR Start slot number 1 is greater than end slot number 0"),
        ("slotsrange -1 0", slot),
        ("slotsrange 0 16384", slot),
        ("slotsrange x 99999999999999999999", slot),
        ("orderby", "ERR wrong number of arguments for 'cluster|slot-stats' command"),
        ("orderby keys", metric),
        ("orderby cpu-usec", metric),
        ("orderby key-count limit", "ERR syntax error"),
        ("orderby key-count nonsense", "ERR syntax error"),
        ("orderby key-count limit 0", limit),
        ("orderby key-count limit 16385", limit),
        ("orderby key-count limit x", limit),
        ("orderby key-count limit 1 limit 2", "ERR Multiple filters of the same type are disallowed."),
        ("orderby key-count asc desc", "ERR Multiple filters of the same type are disallowed."),
    ] {
        client.check(&format!("cluster slot-stats {words}"), &format!("-{text}\r\n"));
    }
    client.check("CLUSTER INFO", "-ERR This instance has cluster support disabled\r\n");
    client.check("CLUSTER NONSENSE", "-ERR unknown subcommand 'NONSENSE'. Try CLUSTER HELP.\r\n");
    assert!(client.ask("CLUSTER HELP").contains("SLOT-STATS"));
}

#[test]
fn the_most_used_keys_are_found() {
    let server = Server::with_workers(2, &["--hotkeys-sample-ratio", "8"]);
    let mut clients = [server.client(), server.client()];
    for round in 0..400 {
        for client in &mut clients {
            let keys = ["hot", "hot", "warm", "cold:"].map(str::to_owned);
            let mut batch = Vec::new();
            for key in keys {
                let key = if key == "cold:" { format!("{key}{round}") } else { key };
                batch.extend(encode(&["INCR", &key]));
            }
            client.send(batch);
        }
    }
    for client in &mut clients {
        (0..1600).for_each(|_| drop(client.read_reply()));
    }
    let client = &mut clients[0];
    let reply = client.ask("HOTKEYS GET COUNT 2");
    assert!(number(&reply, "sampled-uses") > 100, "{reply}");
    let (hot, warm) = (reply.find("$3\r\nhot\r\n").unwrap(), reply.find("$4\r\nwarm\r\n").unwrap());
    assert!(hot < warm, "{reply}");
    // 1,600 of them, in units of 8.
    let (uses, error) = (number(&reply[hot..], "uses"), number(&reply[hot..], "uses-error"));
    assert!((uses - 1600).abs() <= 2 * error && error < 800, "{uses} +- {error}");
    client.check("HOTKEYS RESET", OK);
    client.check("CONFIG SET hotkeys-sample-ratio 1", OK);
    client.check("GET hot", "$4\r\n1600\r\n");
    let reply = client.ask("HOTKEYS GET");
    assert_eq!((number(&reply, "uses"), number(&reply, "uses-error")), (1, 0));
    client.check("CONFIG SET hotkeys-sample-ratio 0", OK);
    client.check("GET hot", "$4\r\n1600\r\n");
    let reply = client.ask("HOTKEYS GET");
    assert_eq!((number(&reply, "tracking-active"), number(&reply, "sampled-uses")), (0, 0));
    client.check("HOTKEYS GET COUNT 0", "-ERR COUNT must be > 0\r\n");
    client.check("HOTKEYS GET COUNT", "-ERR syntax error\r\n");
    client.check("HOTKEYS GET NUMBER 2", "-ERR syntax error\r\n");
    client.check("HOTKEYS GET COUNT x", "-ERR value is not an integer or out of range\r\n");
    client.check("HOTKEYS", "-ERR wrong number of arguments for 'hotkeys' command\r\n");
    assert!(client.ask("HOTKEYS HELP").contains("RESET"));
}
