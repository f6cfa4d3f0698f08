//! Large hashes and sets with parts on disk: they answer as if all of it lay in memory, whatever asks.

use crate::common::{Client, Server, encode, field, text_field, wait_until};
use crate::swap::{Folder, swap};

const FIELDS: usize = 30_000;

fn field_name(number: usize) -> String {
    format!("field:{number:06}")
}

/// Some lie in their page, others outside of it.
fn value(number: usize) -> String {
    let text = format!("value {number} ");
    if number.is_multiple_of(10) { text.repeat(40) } else { text.repeat(5) }
}

fn call(client: &mut Client, words: &[&str]) -> String {
    client.send(encode(words));
    String::from_utf8_lossy(&client.read_reply()).into_owned()
}

fn bulk(text: &str) -> String {
    format!("${}\r\n{text}\r\n", text.len())
}

/// The elements of an array of texts.
fn words_of(reply: &str) -> Vec<String> {
    let words = reply.split("\r\n").filter(|word| !word.starts_with(['*', '$']) && !word.is_empty());
    words.map(String::from).collect()
}

fn fill(client: &mut Client) {
    for from in (0..FIELDS).step_by(100) {
        let mut hash = vec!["HSET".to_string(), "hash".to_string()];
        let mut set = vec!["SADD".to_string(), "set".to_string()];
        for n in from..from + 100 {
            hash.extend([field_name(n), value(n)]);
            set.push(value(n));
        }
        client.send([encode(&hash), encode(&set)].concat());
        client.expect(":100\r\n");
        client.expect(":100\r\n");
    }
}

/// What may leave has left: nothing more does while the hand passes several times.
fn sink(client: &mut Client) {
    client.check("DEBUG SWAP-CHAOS 1", "+OK\r\n");
    let (mut before, mut looks) = (0, 0);
    wait_until("all parts leave memory", || {
        std::thread::sleep(std::time::Duration::from_millis(50));
        let nodes = swap(client, "swap_nodes");
        let stands =
            std::mem::replace(&mut before, nodes) == nodes && swap(client, "swap_writes_waiting_bytes") == 0;
        looks = if stands { looks + 1 } else { 0 };
        nodes > 1000 && looks == 3
    });
    client.check("DEBUG SWAP-CHAOS 0", "+OK\r\n");
}

fn start(folder: &Folder, more: &[&str]) -> Server {
    let server = folder.start(&[&["--maxmemory", "64mb"], more].concat());
    wait_until("it has loaded", || server.client().ask("PING") == "+PONG\r\n");
    server
}

#[test]
fn each_command_finds_what_it_names() {
    let folder = Folder::new("nodes-commands");
    let server = start(&folder, &[]);
    let mut client = server.client();
    fill(&mut client);
    let digests = ["hash", "set"].map(|key| client.ask(&format!("DEBUG DIGEST-VALUE {key}")));
    let hot = field(&client.ask("INFO memory"), "used_memory");
    sink(&mut client);
    let cold = field(&client.ask("INFO memory"), "used_memory");
    assert!(cold < hot / 3, "{hot} to {cold}");
    client.check("HLEN hash", &format!(":{FIELDS}\r\n"));
    client.check("SCARD set", &format!(":{FIELDS}\r\n"));
    client.check("TYPE hash", "+hash\r\n");
    client.check("OBJECT ENCODING hash", "$9\r\nhashtable\r\n");
    assert_eq!(swap(&mut client, "swap_nodes_came_home"), 0, "these need no part");
    let reads = swap(&mut client, "swap_reads");
    client.check(&format!("HGET hash {}", field_name(7)), &bulk(&value(7)));
    assert_eq!(swap(&mut client, "swap_reads"), reads + 1, "one part is read");
    for n in (0..FIELDS).step_by(997) {
        client.check(&format!("HGET hash {}", field_name(n)), &bulk(&value(n)));
        client.check(&format!("HEXISTS hash {}", field_name(n)), ":1\r\n");
        client.check(&format!("HEXISTS hash no{}", field_name(n)), ":0\r\n");
        assert_eq!(call(&mut client, &["SISMEMBER", "set", &value(n)]), ":1\r\n");
        assert_eq!(call(&mut client, &["SISMEMBER", "set", "no such"]), ":0\r\n");
    }
    // A pipeline reads ahead.
    let fields = (0..FIELDS).step_by(1301).map(field_name).collect::<Vec<_>>();
    client.send(fields.iter().flat_map(|name| encode(&["HGET", "hash", name])).collect::<Vec<u8>>());
    (0..FIELDS).step_by(1301).for_each(|n| client.expect(&bulk(&value(n))));
    // Changes: of a field that is away, of a new one, and back.
    for n in (0..FIELDS).step_by(1009) {
        client.check(&format!("HSETNX hash {} x", field_name(n)), ":0\r\n");
        client.check(&format!("HSET hash {} 41 new:{n} 1", field_name(n)), ":1\r\n");
        client.check(&format!("HINCRBY hash {} 1", field_name(n)), ":42\r\n");
        client.check(&format!("HDEL hash new:{n} none"), ":1\r\n");
        assert_eq!(call(&mut client, &["HSET", "hash", &field_name(n), &value(n)]), ":0\r\n");
        assert_eq!(call(&mut client, &["SREM", "set", &value(n)]), ":1\r\n");
        assert_eq!(call(&mut client, &["SADD", "set", &value(n), &value(n + 1)]), ":1\r\n");
    }
    assert_eq!(swap(&mut client, "swap_reads_in_commands"), 0, "what they need was read before");
    for (key, digest) in ["hash", "set"].iter().zip(&digests) {
        assert_eq!(client.ask(&format!("DEBUG DIGEST-VALUE {key}")), *digest);
    }
    client.check("DEBUG CHECK-INVARIANTS", "+OK\r\n");
    client.check("DEL hash set", ":2\r\n");
    wait_until("all is given back", || swap(&mut client, "swap_nodes") == 0);
    wait_until("on disk too", || swap(&mut client, "swap_live_bytes") == 0);
}

#[test]
fn walks_and_draws_read_what_they_meet() {
    let folder = Folder::new("nodes-walks");
    let server = start(&folder, &[]);
    let mut client = server.client();
    fill(&mut client);
    sink(&mut client);
    for command in ["SRANDMEMBER set", "HRANDFIELD hash", "SRANDMEMBER set 50", "HRANDFIELD hash -50"] {
        let drawn = words_of(&client.ask(command));
        assert_eq!(drawn.len(), if command.ends_with('0') { 50 } else { 1 }, "{command}");
        assert!(swap(&mut client, "swap_nodes") > 1000, "a draw needs few parts");
    }
    // All members, most, a few, and more than there are, with all of them on disk.
    for (command, count) in [
        (format!("SRANDMEMBER set {}", FIELDS / 2), FIELDS / 2),
        (format!("SRANDMEMBER set {}", FIELDS * 2), FIELDS),
        (format!("SRANDMEMBER set -{}", FIELDS * 2), FIELDS * 2),
        (format!("HRANDFIELD hash {}", FIELDS / 2), FIELDS / 2),
        (format!("HRANDFIELD hash -{}", FIELDS * 2), FIELDS * 2),
        (format!("SRANDMEMBER set {}", FIELDS / 10), FIELDS / 10),
    ] {
        let drawn = client.ask(&command);
        assert!(drawn.starts_with(&format!("*{count}\r\n")), "{command}: {}", &drawn[..20]);
        sink(&mut client);
    }
    // A scan reads what it passes.
    let (mut cursor, mut seen, nodes) = ("0".to_string(), Vec::new(), swap(&mut client, "swap_nodes"));
    for step in 0.. {
        let mut words = words_of(&client.ask(&format!("HSCAN hash {cursor} COUNT 500 NOVALUES"))).into_iter();
        cursor = words.next().expect("a cursor");
        seen.extend(words);
        if step == 3 {
            assert!(swap(&mut client, "swap_nodes") > nodes * 4 / 5, "not all at once");
        }
        if cursor == "0" {
            break;
        }
    }
    seen.sort_unstable();
    seen.dedup();
    assert_eq!(seen.len(), FIELDS);
    sink(&mut client);
    assert_eq!(words_of(&client.ask("HGETALL hash")).len(), 2 * FIELDS);
    // Parts that were only read leave again without being written.
    let written = swap(&mut client, "swap_sunk_bytes");
    sink(&mut client);
    assert!(swap(&mut client, "swap_nodes_left_clean") > 1000);
    assert_eq!(swap(&mut client, "swap_sunk_bytes"), written);
    client.check("SUNIONSTORE other set", &format!(":{FIELDS}\r\n"));
    client.check("SDIFF set other", "*0\r\n");
    sink(&mut client);
    client.check("SINTERCARD 2 set other", &format!(":{FIELDS}\r\n"));
    assert_eq!(words_of(&client.ask("SPOP other 20")).len(), 20);
    client.check("SCARD other", &format!(":{}\r\n", FIELDS - 20));
    client.check("COPY set last", ":1\r\n");
    sink(&mut client);
    let popped = client.ask(&format!("SPOP last {}", FIELDS * 2));
    assert!(
        popped.starts_with(&format!("*{FIELDS}\r\n")) || popped.starts_with(&format!("~{FIELDS}\r\n")),
        "{}",
        &popped[..20]
    );
    client.check("EXISTS last", ":0\r\n");
    client.check("COPY hash hash2", ":1\r\n");
    sink(&mut client);
    client.check("RENAME hash2 {hash2}3", "+OK\r\n");
    assert_eq!(client.ask("DEBUG DIGEST-VALUE hash"), client.ask("DEBUG DIGEST-VALUE {hash2}3"));
    client.check("DEBUG CHECK-INVARIANTS", "+OK\r\n");
}

#[test]
fn transactions_scripts_and_sort_wait_for_them() {
    let folder = Folder::new("nodes-scripts");
    let server = start(&folder, &[]);
    let mut client = server.client();
    fill(&mut client);
    client.check("RPUSH numbers 3 1 2", ":3\r\n");
    sink(&mut client);
    client.check("MULTI", "+OK\r\n");
    client.check(&format!("HGET hash {}", field_name(1)), "+QUEUED\r\n");
    client.check("HSET hash one 1", "+QUEUED\r\n");
    client.check("HDEL hash one", "+QUEUED\r\n");
    client.check("EXEC", &format!("*3\r\n{}:1\r\n:1\r\n", bulk(&value(1))));
    let script = format!(
        "redis.call('HSET', KEYS[1], 'two', 2) return redis.call('HGET', KEYS[1], '{}')",
        field_name(2)
    );
    assert_eq!(call(&mut client, &["EVAL", &script, "1", "hash"]), bulk(&value(2)));
    let moves = "redis.call('SMOVE', KEYS[1], KEYS[2], ARGV[1]) return redis.call('SCARD', KEYS[1])";
    let left = call(&mut client, &["EVAL", moves, "2", "set", "other", &value(77)]);
    assert_eq!(left, format!(":{}\r\n", FIELDS - 1));
    let nodes = swap(&mut client, "swap_nodes");
    assert!(nodes > 1000, "{nodes}: a script brings home what it uses");
    for n in 1..=3 {
        client.check(&format!("HSET hash w{n} {}", 9 - n), ":1\r\n");
    }
    sink(&mut client);
    let sorted = "*3\r\n$1\r\n3\r\n$1\r\n2\r\n$1\r\n1\r\n";
    client.check("SORT numbers BY hash->w*", "*3\r\n$1\r\n1\r\n$1\r\n2\r\n$1\r\n3\r\n");
    client.check("HSET by_3 w 1", ":1\r\n");
    client.check("HSET by_2 w 2", ":1\r\n");
    client.check("HSET by_1 w 3", ":1\r\n");
    client.check("SORT numbers BY by_*->w", sorted);
    // A value that is stored is read first.
    client.check("COPY hash hash7", ":1\r\n");
    client.check("RPUSH seven 7", ":1\r\n");
    sink(&mut client);
    let sorted = format!("*1\r\n{}", bulk(&value(8)));
    client.check(&format!("SORT seven BY nosort GET hash*->{}", field_name(8)), &sorted);
    client.check(&format!("SORT seven BY nosort GET hash*->{} STORE seven", field_name(7)), ":1\r\n");
    client.check("LRANGE seven 0 -1", &format!("*1\r\n{}", bulk(&value(7))));
    client.check("DEBUG CHECK-INVARIANTS", "+OK\r\n");
}

#[test]
fn files_have_all_of_them() {
    let folder = Folder::new("nodes-files");
    let digest = {
        let server = start(&folder, &["--appendonly", "yes", "--log-memory-limit", "1mb"]);
        let mut client = server.client();
        fill(&mut client);
        sink(&mut client);
        client.check("SAVE", "+OK\r\n");
        client.check("BGREWRITEAOF", "+Background append only file rewriting started\r\n");
        wait_until("it is rewritten", || {
            field(&client.ask("INFO persistence"), "aof_rewrite_in_progress") == 0
        });
        assert_eq!(text_field(&client.ask("INFO persistence"), "aof_last_bgrewrite_status"), "ok");
        assert!(swap(&mut client, "swap_nodes") > 1000, "to write a file brings nothing home");
        client.check("HSET hash late 1", ":1\r\n");
        client.check(&format!("HDEL hash {}", field_name(5)), ":1\r\n");
        client.check("WAITAOF 1 0 5000", "*2\r\n:1\r\n:0\r\n");
        client.ask("DEBUG DIGEST")
    };
    let server = start(&folder, &["--appendonly", "yes", "--log-memory-limit", "1mb"]);
    let mut client = server.client();
    assert_eq!(client.ask("DEBUG DIGEST"), digest);
    sink(&mut client);
    client.check("SWAP VERIFY", "+Verification started\r\n");
    wait_until("it is verified", || swap(&mut client, "swap_verify_rounds") == 1);
    assert_eq!(swap(&mut client, "swap_verify_bad_keys"), 0);
    assert!(swap(&mut client, "swap_verify_keys") > 1000);
    // Off: all parts are promoted.
    client.check("CONFIG SET swap-mode no", "+OK\r\n");
    wait_until("all is home", || swap(&mut client, "swap_nodes") == 0);
    assert_eq!(client.ask("DEBUG DIGEST"), digest);
}

#[test]
fn what_cannot_be_read_is_an_error_and_nothing_changes() {
    let folder = Folder::new("nodes-faults");
    let server = start(&folder, &[]);
    let mut client = server.client();
    fill(&mut client);
    sink(&mut client);
    client.check("DEBUG SWAP-FAULT READ IO", "+OK\r\n");
    let name = field_name(123);
    let refused = "-SWAPERR";
    for request in [
        format!("HGET hash {name}"),
        format!("HSET hash {name} x"),
        format!("HSETNX hash {name} x"),
        format!("HDEL hash {name}"),
        "HGETALL hash".to_string(),
        "SUNIONSTORE copy set".to_string(),
        "COPY set copy".to_string(),
        "SPOP set".to_string(),
        "SRANDMEMBER set".to_string(),
        "SORT set STORE copy ALPHA".to_string(),
    ] {
        let reply = client.ask(&request);
        assert!(reply.starts_with(refused), "{request}: {reply}");
    }
    client.check("EXISTS copy", ":0\r\n");
    client.check("HLEN hash", &format!(":{FIELDS}\r\n"));
    client.check("SCARD set", &format!(":{FIELDS}\r\n"));
    client.check("DEBUG SWAP-FAULT READ NONE", "+OK\r\n");
    wait_until("the disk is back", || client.ask(&format!("HGET hash {name}")) == bulk(&value(123)));
    client.check(&format!("HSETNX hash {name} x"), ":0\r\n");
    assert_eq!(words_of(&client.ask("HGETALL hash")).len(), 2 * FIELDS);
    client.check("SUNIONSTORE copy set", &format!(":{FIELDS}\r\n"));
    client.check("DEBUG CHECK-INVARIANTS", "+OK\r\n");
}

/// More in one hash than memory holds.
#[test]
fn a_hash_larger_than_memory_is_there() {
    let folder = Folder::new("nodes-larger");
    let server = folder.start(&["--maxmemory", "6mb"]);
    let mut client = server.client();
    const MANY: usize = 30_000;
    for from in (0..MANY).step_by(50) {
        let mut hash = vec!["HSET".to_string(), "hash".to_string()];
        (from..from + 50).for_each(|n| hash.extend([field_name(n), value(n * 10)]));
        client.send(encode(&hash));
        client.expect(":50\r\n");
    }
    client.check("HLEN hash", &format!(":{MANY}\r\n"));
    assert!(swap(&mut client, "swap_node_bytes") > 7 << 20);
    // Groups that a busy disk has yet to write have a limit of their own.
    wait_until("memory is near its limit", || client.info("memory", "used_memory") < 9 << 20);
    for n in (0..MANY).step_by(1013) {
        client.check(&format!("HGET hash {}", field_name(n)), &bulk(&value(n * 10)));
    }
    client.check("DEBUG CHECK-INVARIANTS", "+OK\r\n");
}

/// A reply nearly as large as the limit is given up and made again while parts of the hash are read: the
/// memory of the one that was given up is not what the next waits for.
#[test]
fn a_reply_that_is_made_again_waits_for_no_memory_of_its_own() {
    const MANY: usize = 100_000;
    let folder = Folder::new("nodes-reply");
    let server = folder.start(&["--maxmemory", "18mb", "--maxmemory-policy", "noeviction"]);
    let mut client = server.client();
    let text = "v".repeat(120);
    for from in (0..MANY).step_by(500) {
        let mut hash = vec!["HSET".to_string(), "hash".to_string()];
        (from..from + 500).for_each(|n| hash.extend([field_name(n), text.clone()]));
        client.send(encode(&hash));
        client.expect(":500\r\n");
    }
    for number in 0..10_000 {
        client.send(encode(&["SET", &field_name(number), &text.repeat(2)]));
        client.expect("+OK\r\n");
    }
    assert!(swap(&mut client, "swap_nodes") > 1000);
    client.send(encode(&["HGETALL", "hash"]));
    let reply = client.read_reply();
    assert_eq!(reply.iter().filter(|byte| **byte == b'$').count(), 2 * MANY);
    assert_eq!(field(&client.ask("INFO stats"), "evicted_keys"), 0);
    client.check("DBSIZE", ":10001\r\n");
}
