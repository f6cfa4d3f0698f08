//! Channels: a subscriber gets every message of its channels, in order, and no other.

use crate::common::{Client, Server, encode, field, read_some, text_field, wait_until};
use std::time::Duration;

const OK: &str = "+OK\r\n";

fn array(proto: u8, words: &[&str]) -> String {
    let sigil = if proto == 3 { '>' } else { '*' };
    let bulks: String = words
        .iter()
        .map(|word| match word.strip_prefix(':') {
            Some(number) => format!(":{number}\r\n"),
            None => format!("${}\r\n{word}\r\n", word.len()),
        })
        .collect();
    format!("{sigil}{}\r\n{bulks}", words.len())
}

#[test]
fn messages_of_every_kind() {
    for workers in [1, 3] {
        for proto in [2, 3] {
            let server = Server::with_workers(workers, &[]);
            let (mut hears, mut says) = (server.client(), server.client());
            if proto == 3 {
                assert!(hears.ask("HELLO 3").starts_with('%'));
            }
            hears.check("SUBSCRIBE a", &array(proto, &["subscribe", "a", ":1"]));
            hears.send(encode(&["SUBSCRIBE", "a", "b"]));
            hears.expect(&array(proto, &["subscribe", "a", ":1"]));
            hears.expect(&array(proto, &["subscribe", "b", ":2"]));
            hears.check("PSUBSCRIBE a*", &array(proto, &["psubscribe", "a*", ":3"]));
            hears.check("SSUBSCRIBE a", &array(proto, &["ssubscribe", "a", ":1"]));
            says.check("PUBLISH a one", ":2\r\n");
            hears.expect(&array(proto, &["message", "a", "one"]));
            hears.expect(&array(proto, &["pmessage", "a*", "a", "one"]));
            says.check("PUBLISH abc two", ":1\r\n");
            hears.expect(&array(proto, &["pmessage", "a*", "abc", "two"]));
            says.check("SPUBLISH a three", ":1\r\n");
            hears.expect(&array(proto, &["smessage", "a", "three"]));
            says.check("PUBLISH c nobody", ":0\r\n");
            says.check("PUBSUB NUMSUB a b c", "*6\r\n$1\r\na\r\n:1\r\n$1\r\nb\r\n:1\r\n$1\r\nc\r\n:0\r\n");
            says.check("PUBSUB NUMPAT", ":1\r\n");
            says.check("PUBSUB SHARDCHANNELS", "*1\r\n$1\r\na\r\n");
            says.check("PUBSUB CHANNELS b*", "*1\r\n$1\r\nb\r\n");
            says.check("PUBSUB SHARDNUMSUB a", "*2\r\n$1\r\na\r\n:1\r\n");
            let stats = says.ask("INFO stats");
            for (name, count) in [("pubsub_channels", 2), ("pubsub_patterns", 1), ("pubsubshard_channels", 1)]
            {
                assert_eq!(field(&stats, name), count);
            }
            let list = says.ask("CLIENT LIST TYPE pubsub");
            assert!(list.contains("flags=P ") && list.contains("sub=2 psub=1 ssub=1 "), "{list}");
            hears.check("UNSUBSCRIBE a", &array(proto, &["unsubscribe", "a", ":2"]));
            hears.check("UNSUBSCRIBE", &array(proto, &["unsubscribe", "b", ":1"]));
            hears.check("PUNSUBSCRIBE", &array(proto, &["punsubscribe", "a*", ":0"]));
            let null = if proto == 3 {
                ">3\r\n$11\r\nunsubscribe\r\n_\r\n:0\r\n"
            } else {
                "*3\r\n$11\r\nunsubscribe\r\n$-1\r\n:0\r\n"
            };
            hears.check("UNSUBSCRIBE", null);
            assert_eq!(says.info("clients", "pubsub_clients"), 1);
            hears.check("SUNSUBSCRIBE a", &array(proto, &["sunsubscribe", "a", ":0"]));
            assert_eq!(says.info("clients", "pubsub_clients"), 0);
            hears.check("GET k", if proto == 3 { "_\r\n" } else { "$-1\r\n" });
        }
    }
}

/// A RESP2 connection that is subscribed can be sent messages only.
#[test]
fn subscribers_in_resp2_may_do_little() {
    let server = Server::start(&[]);
    let mut client = server.client();
    client.check("SUBSCRIBE a", &array(2, &["subscribe", "a", ":1"]));
    let refused = |name: &str| {
        format!(
            "-ERR Can't execute '{name}': only (P|S)SUBSCRIBE / (P|S)UNSUBSCRIBE / PING / QUIT / RESET are allowed in \
             this context\r\n"
        )
    };
    client.check("GET k", &refused("get"));
    client.check("CONFIG GET port", &refused("config|get"));
    client.check("PUBLISH a b", &refused("publish"));
    client.check("PING", "*2\r\n$4\r\npong\r\n$0\r\n\r\n");
    client.check("PING hi", "*2\r\n$4\r\npong\r\n$2\r\nhi\r\n");
    client.check("RESET", "+RESET\r\n");
    client.check("PING", "+PONG\r\n");
    client.check("PUBLISH a b", ":0\r\n");
    client.check("SUBSCRIBE a", &array(2, &["subscribe", "a", ":1"]));
    client.check("QUIT", OK);
    client.expect_end();
}

/// A client that publishes to its own channel gets the reply first, then the message; inside a transaction,
/// the message comes after the reply of EXEC.
#[test]
fn publishing_to_oneself() {
    let server = Server::with_workers(2, &[]);
    let mut client = server.client();
    client.ask("HELLO 3");
    client.check("SUBSCRIBE foo", &array(3, &["subscribe", "foo", ":1"]));
    client.check("PUBLISH foo bar", ":1\r\n");
    client.expect(&array(3, &["message", "foo", "bar"]));
    client.check("MULTI", OK);
    client.check("PING", "+QUEUED\r\n");
    client.check("PUBLISH foo one", "+QUEUED\r\n");
    client.check("PUBLISH foo two", "+QUEUED\r\n");
    client.check("EXEC", "*3\r\n+PONG\r\n:1\r\n:1\r\n");
    client.expect(&array(3, &["message", "foo", "one"]));
    client.expect(&array(3, &["message", "foo", "two"]));
    // In one piece: what was published comes before the end of the subscription.
    client.send(
        [encode(&["PUBLISH", "foo", "three"]), encode(&["UNSUBSCRIBE", "foo"]), encode(&["PING"])].concat(),
    );
    client.expect(":1\r\n");
    client.expect(&array(3, &["message", "foo", "three"]));
    client.expect(&array(3, &["unsubscribe", "foo", ":0"]));
    client.expect("+PONG\r\n");
}

/// CLIENT REPLY drops replies, not messages.
#[test]
fn messages_come_without_replies() {
    let server = Server::start(&[]);
    let (mut hears, mut says) = (server.client(), server.client());
    hears.ask("HELLO 3");
    hears.send(encode(&["CLIENT", "REPLY", "OFF"]));
    hears.send(encode(&["SUBSCRIBE", "a"]));
    hears.expect(&array(3, &["subscribe", "a", ":1"]));
    hears.send(encode(&["PING"]));
    says.check("PUBLISH a m", ":1\r\n");
    hears.expect(&array(3, &["message", "a", "m"]));
    // Pushes of a transaction come without its replies.
    hears.send("MULTI\r\nPING\r\nUNSUBSCRIBE a\r\nEXEC\r\n");
    hears.expect(&array(3, &["unsubscribe", "a", ":0"]));
    hears.check("CLIENT REPLY ON", OK);
}

/// Several publishers and subscribers on several workers, with replies between the messages: nothing is lost,
/// torn or out of order, and all subscribers of a channel hear one and the same order.
#[test]
fn order_across_workers() {
    const SUBSCRIBERS: usize = 6;
    const PUBLISHERS: usize = 4;
    const MESSAGES: usize = 2000;
    let server = Server::with_workers(3, &[]);
    let mut subscribers: Vec<Client> = (0..SUBSCRIBERS)
        .map(|_| {
            let mut client = server.client();
            client.ask("HELLO 3");
            client.check("SUBSCRIBE c", &array(3, &["subscribe", "c", ":1"]));
            client
        })
        .collect();
    std::thread::scope(|scope| {
        for publisher in 0..PUBLISHERS {
            let mut client = server.client();
            scope.spawn(move || {
                let requests: Vec<u8> = (0..MESSAGES)
                    .flat_map(|at| encode(&["PUBLISH", "c", &format!("{publisher}:{at}")]))
                    .collect();
                for part in requests.chunks(10_000) {
                    client.send(part);
                }
                for _ in 0..MESSAGES {
                    client.expect(&format!(":{SUBSCRIBERS}\r\n"));
                }
            });
        }
        let heard: Vec<_> = subscribers
            .iter_mut()
            .map(|client| {
                scope.spawn(move || {
                    let mut heard = Vec::new();
                    let mut pongs = 0;
                    while heard.len() < PUBLISHERS * MESSAGES {
                        if heard.len() % 100 == 0 && pongs < heard.len() / 100 {
                            client.send(encode(&["PING"]));
                        }
                        match String::from_utf8(client.read_reply()).unwrap() {
                            pong if pong == "+PONG\r\n" => pongs += 1,
                            message => {
                                assert!(
                                    message.starts_with(">3\r\n$7\r\nmessage\r\n$1\r\nc\r\n"),
                                    "{message}"
                                );
                                heard.push(message);
                            }
                        }
                    }
                    heard
                })
            })
            .collect();
        let heard: Vec<Vec<String>> = heard.into_iter().map(|thread| thread.join().unwrap()).collect();
        assert!(heard.iter().all(|other| *other == heard[0]), "one order for all");
        for publisher in 0..PUBLISHERS {
            let mine = format!("\r\n{publisher}:");
            let own = heard[0].iter().filter(|message| message.contains(&mine));
            let numbers: Vec<usize> =
                own.map(|message| message.trim_end().rsplit(':').next().unwrap().parse().unwrap()).collect();
            assert_eq!(numbers, (0..MESSAGES).collect::<Vec<_>>());
        }
    });
}

/// A message that was published before UNSUBSCRIBE was sent comes before the reply to UNSUBSCRIBE.
#[test]
fn nothing_is_lost_before_unsubscribe() {
    let server = Server::with_workers(2, &[]);
    let (mut hears, mut says) = (server.client(), server.client());
    for round in 0..200 {
        hears.check("SUBSCRIBE c", &array(2, &["subscribe", "c", ":1"]));
        let text = round.to_string();
        says.check(&format!("PUBLISH c {text}"), ":1\r\n");
        hears.send(encode(&["UNSUBSCRIBE", "c"]));
        hears.expect(&array(2, &["message", "c", &text]));
        hears.expect(&array(2, &["unsubscribe", "c", ":0"]));
        says.check("PUBLISH c x", ":0\r\n");
    }
}

#[test]
fn subscribers_who_do_not_read_are_closed() {
    let server = Server::with_workers(2, &["--client-output-buffer-limit", "pubsub 1mb 0 0"]);
    let (mut deaf, mut hears, mut says) = (server.client(), server.client(), server.client());
    deaf.check("SUBSCRIBE c", &array(2, &["subscribe", "c", ":1"]));
    hears.check("SUBSCRIBE c", &array(2, &["subscribe", "c", ":1"]));
    let payload = "x".repeat(100_000);
    let mut receivers = 2;
    for round in 0.. {
        assert!(round < 1000, "the deaf one is still there");
        receivers = says.ask_number(&format!("PUBLISH c {payload}"));
        hears.expect(&array(2, &["message", "c", &payload]));
        if receivers == 1 {
            break;
        }
    }
    assert_eq!(receivers, 1);
    server.wait_for_log("closed for overcoming of output buffer limits");
    let mut left = deaf.read_to_end();
    left.truncate(40);
    assert!(left.starts_with(b"*3\r\n$7\r\nmessage"), "{:?}", String::from_utf8_lossy(&left));
    assert_eq!(says.info("stats", "client_output_buffer_limit_disconnections"), 1);
}

/// Many channels are subscribed to, listed, and leave with their session.
#[test]
fn many_channels() {
    const CHANNELS: usize = 100_000;
    let server = Server::with_workers(2, &[]);
    let (mut hears, mut says) = (server.client(), server.client());
    says.check("PING", "+PONG\r\n");
    let names: Vec<String> = (0..CHANNELS).map(|at| format!("channel:{at}")).collect();
    let request: Vec<&str> = std::iter::once("SUBSCRIBE").chain(names.iter().map(String::as_str)).collect();
    hears.send(encode(&request));
    for (at, name) in names.iter().enumerate() {
        hears.expect(&array(2, &["subscribe", name, &format!(":{}", at + 1)]));
    }
    assert_eq!(says.info("stats", "pubsub_channels"), CHANNELS as u64);
    says.check("PUBLISH channel:77777 m", ":1\r\n");
    hears.expect(&array(2, &["message", "channel:77777", "m"]));
    let list = says.ask("CLIENT LIST TYPE pubsub");
    let total: usize = list.split("tot-mem=").nth(1).unwrap().split(' ').next().unwrap().parse().unwrap();
    assert!(total > CHANNELS * 16, "what it listens to is accounted for: {list}");
    drop(hears);
    wait_until("no subscription is left", || says.info("stats", "pubsub_channels") == 0);
    says.check("PUBLISH channel:77777 m", ":0\r\n");
}

/// Events of a command are published in order, in the channels and classes that are chosen.
#[test]
fn events_of_keys() {
    let server = Server::with_workers(2, &["--notify-keyspace-events", "KEA"]);
    let (mut hears, mut works) = (server.client(), server.client());
    hears.check("PSUBSCRIBE __key*", &array(2, &["psubscribe", "__key*", ":1"]));
    let mut expect = |events: &[(&str, &str)]| {
        for (event, key) in events {
            let (keyspace, keyevent) = (format!("__keyspace@0__:{key}"), format!("__keyevent@0__:{event}"));
            hears.expect(&array(2, &["pmessage", "__key*", &keyspace, event]));
            hears.expect(&array(2, &["pmessage", "__key*", &keyevent, key]));
        }
    };
    works.check("SET a 1", OK);
    expect(&[("set", "a")]);
    works.check("RENAME a b", OK);
    expect(&[("rename_from", "a"), ("rename_to", "b")]);
    works.check("SET b 2 PX 20", OK);
    expect(&[("set", "b"), ("expire", "b"), ("expired", "b")]);
    works.check("HSET h f v", ":1\r\n");
    works.check("HDEL h f", ":1\r\n");
    expect(&[("hset", "h"), ("hdel", "h"), ("del", "h")]);
    // Misses and new keys are events only where their classes are chosen.
    works.check("CONFIG SET notify-keyspace-events KEAnm", OK);
    works.check("CONFIG GET notify-keyspace-events", "*2\r\n$22\r\nnotify-keyspace-events\r\n$4\r\nAKEm\r\n");
    works.check("GET missing", "$-1\r\n");
    works.check("SET c 1", OK);
    expect(&[("keymiss", "missing"), ("new", "c"), ("set", "c")]);
    works.check("CONFIG SET maxmemory-policy allkeys-random", OK);
    works.check("CONFIG SET maxmemory 1", OK);
    assert!(works.ask("SET d 1").starts_with("-OOM"));
    expect(&[("evicted", "c")]);
    works.check("CONFIG SET maxmemory 0 notify-keyspace-events Kl", OK);
    works.check("SET a 1", OK);
    works.check("RPUSH l 1", ":1\r\n");
    hears.expect(&array(2, &["pmessage", "__key*", "__keyspace@0__:l", "rpush"]));
    works.check("CONFIG SET notify-keyspace-events A", OK);
    works.check("RPUSH l 1", ":2\r\n");
    hears.expect_silence();
}

/// Messages of RESP2 and lines of MONITOR have the form of replies. Among replies that wait for replicas, and
/// are refused, they stay what they are.
#[test]
fn messages_are_not_refused_as_replies() {
    const REFUSED: &str =
        "-NOREPLICAS Not enough replicas acknowledged the change in time: applied, not acknowledged\r\n";
    let server = Server::start(&["--repl-ack-quorum", "1", "--repl-ack-timeout", "60000"]);
    let (mut hears, mut monitors, mut says) = (server.client(), server.client(), server.client());
    wait_until("the log is kept", || says.info("replication", "repl_backlog_active") == 1);
    hears.send([encode(&["SET", "a", "1"]), encode(&["SUBSCRIBE", "c"])].concat());
    wait_until("it listens", || says.info("stats", "pubsub_channels") == 1);
    monitors.send([encode(&["SET", "b", "1"]), encode(&["MONITOR"])].concat());
    wait_until("it monitors", || says.ask("CLIENT LIST").contains(" flags=O "));
    says.check("PUBLISH c m", ":1\r\n");
    says.check("CONFIG SET repl-ack-timeout 1", OK);
    hears.expect(REFUSED);
    hears.expect(REFUSED);
    hears.expect(&array(2, &["message", "c", "m"]));
    monitors.expect(REFUSED);
    monitors.expect(REFUSED);
    wait_until("a line of what was published", || {
        String::from_utf8(monitors.read_reply()).unwrap().contains("\"PUBLISH\" \"c\" \"m\"")
    });
}

/// More is published than may wait undelivered while the subscribers' worker delivers nothing: so much waits
/// and no more, the publishers with the rest wait too, and other clients are answered. Then the subscribers
/// get all of it.
#[test]
fn a_burst_of_large_messages() {
    const PUBLISHERS: usize = 60;
    const EACH: usize = 5;
    const BYTES: usize = 1 << 20;
    /// Number of messages of this size that may wait undelivered: 64 MB.
    const UNDELIVERED: usize = 64;
    /// Longer than a busy machine takes for as many messages as may wait.
    const STANDSTILL: Duration = Duration::from_secs(3);
    let arguments = ["--client-output-buffer-limit", "pubsub 0 0 0", "--enable-debug-command", "yes"];
    let server = Server::with_workers(2, &arguments);
    // Connections go to the two workers in turn: of each pair the first one has the worker of the
    // subscribers.
    let mut pairs: Vec<[Client; 2]> = (0..PUBLISHERS).map(|_| [server.client(), server.client()]).collect();
    pairs.iter_mut().flatten().for_each(|client| client.check("PING", "+PONG\r\n"));
    let (firsts, publishers): (Vec<_>, Vec<_>) =
        pairs.into_iter().map(|[first, second]| (first, second)).unzip();
    let mut firsts = firsts.into_iter();
    let mut holder = firsts.next().unwrap();
    let mut subscribers: Vec<Client> = firsts.by_ref().take(4).collect();
    for subscriber in &mut subscribers {
        subscriber.send(encode(&["SUBSCRIBE", "c"]));
        subscriber.read_reply();
    }
    let [_, mut other] = [server.client(), server.client()];
    let resident_bytes = server.resident_bytes();
    server.hold_all_locks_for(STANDSTILL, &mut holder, &[]);
    let request = encode(&[&b"PUBLISH"[..], b"c", &vec![b'x'; BYTES]]);
    std::thread::scope(|scope| {
        let publishers: Vec<_> = publishers
            .into_iter()
            .map(|mut publisher| {
                let request = &request;
                scope.spawn(move || {
                    (0..EACH).for_each(|_| publisher.send(request));
                    (0..EACH).for_each(|_| publisher.expect(":4\r\n"));
                })
            })
            .collect();
        // The others may have published all of theirs.
        wait_until("publishers wait", || other.waiting_count() >= PUBLISHERS - UNDELIVERED / EACH - 1);
        let published = other.ask("INFO commandstats");
        let calls = text_field(&published, "cmdstat_publish").split([',', '=']).nth(1).unwrap();
        assert!(calls.parse::<usize>().unwrap() <= UNDELIVERED, "{published}");
        // Of what else was sent the server has read no more than twice the request that waits.
        let grown = server.resident_bytes().saturating_sub(resident_bytes);
        let grown_max = (UNDELIVERED + 2 * PUBLISHERS) * BYTES;
        assert!(grown < grown_max as u64, "{} MB", grown >> 20);
        let readers: Vec<_> = subscribers
            .iter_mut()
            .map(|subscriber| {
                scope.spawn(move || {
                    let mut left = (PUBLISHERS * EACH) as u64 * BYTES as u64;
                    let mut bytes = vec![0; BYTES];
                    while left > 0 {
                        let count = read_some(&mut subscriber.stream, &mut bytes).expect("messages come");
                        assert!(count > 0, "closed");
                        left = left.saturating_sub(count as u64);
                    }
                })
            })
            .collect();
        while !publishers.iter().all(|publisher| publisher.is_finished()) {
            other.check("PING", "+PONG\r\n");
            std::thread::sleep(Duration::from_millis(20));
        }
        publishers.into_iter().for_each(|publisher| publisher.join().unwrap());
        readers.into_iter().for_each(|reader| reader.join().unwrap());
    });
    holder.expect("*2\r\n+OK\r\n+OK\r\n");
    assert_eq!(other.waiting_count(), 0);
}
