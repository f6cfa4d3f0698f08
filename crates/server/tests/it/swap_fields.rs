//! Hashes whose fields have times, and that are not in memory: their fields leave when they are due.

use crate::common::{Client, Server, encode, field, text_field, wait_until};
use crate::swap::{Folder, swap};

const HASHES: usize = 30;

fn hash(number: usize) -> String {
    format!("hash:{number}")
}

/// Small hashes and large ones; the first ten fields of each have a time.
fn fill(client: &mut Client, ttl_ms: u64) {
    for number in 0..HASHES {
        let (key, count) = (hash(number), if number % 2 == 0 { 12 } else { 300 });
        let fields = (0..count).flat_map(|at| [format!("field:{at}"), format!("value {at} of {number}")]);
        let words: Vec<String> = ["HSET".to_string(), key.clone()].into_iter().chain(fields).collect();
        client.send(encode(&words));
        client.expect(&format!(":{count}\r\n"));
        let head = ["HPEXPIRE".to_string(), key, ttl_ms.to_string(), "FIELDS".into(), "10".into()];
        let words: Vec<String> = head.into_iter().chain((0..10).map(|at| format!("field:{at}"))).collect();
        client.send(encode(&words));
        client.expect(&format!("*10\r\n{}", ":1\r\n".repeat(10)));
    }
}

fn all_cold(client: &mut Client, keys: usize) {
    client.check("DEBUG SWAP-CHAOS 1", "+OK\r\n");
    wait_until("all hashes leave memory", || swap(client, "swap_keys") == keys as u64);
    client.check("DEBUG SWAP-CHAOS 0", "+OK\r\n");
}

fn expired_fields(client: &mut Client) -> u64 {
    field(&client.ask("INFO stats"), "expired_fields")
}

fn timed_hashes(client: &mut Client) -> u64 {
    let info = client.ask("INFO keyspace");
    let line = info.lines().find(|line| line.starts_with("db0:")).expect("there are keys");
    let count = line.split(',').find_map(|part| part.strip_prefix("keys_with_volatile_items="));
    count.expect("it is there").parse().expect("a number")
}

#[test]
fn fields_are_due_while_their_hash_is_on_disk() {
    let folder = Folder::new("fields");
    let server = folder.start(&["--notify-keyspace-events", "Ex"]);
    let mut client = server.client();
    fill(&mut client, 3_600_000);
    client.check("HSET other a 1", ":1\r\n");
    client.check("HEXPIRE other 1 FIELDS 1 a", "*1\r\n:1\r\n");
    client.check("DEL other", ":1\r\n");
    assert_eq!(timed_hashes(&mut client), HASHES as u64);
    let digest = client.ask("DEBUG DIGEST");
    all_cold(&mut client, HASHES);
    assert_eq!(timed_hashes(&mut client), HASHES as u64);
    assert_eq!(client.ask("DEBUG DIGEST"), digest);
    all_cold(&mut client, HASHES);
    client.check("OBJECT ENCODING hash:2", "$9\r\nhashtable\r\n");
    // A time that is far away promotes nothing.
    client.check("HPERSIST hash:0 FIELDS 1 field:0", "*1\r\n:1\r\n");
    assert_eq!(swap(&mut client, "swap_keys"), HASHES as u64 - 1);
    let came_home = swap(&mut client, "swap_came_home");
    // Now all are due soon, and each has left before that.
    for number in 0..HASHES {
        let fields: Vec<String> = (0..10).map(|at| format!("field:{at}")).collect();
        client.ask(&format!("HPEXPIRE hash:{number} 3000 FIELDS 10 {}", fields.join(" ")));
    }
    client.check("HSET last a 1111111111111111111111111111111111 b 2", ":2\r\n");
    client.check("HPEXPIRE last 3000 FIELDS 2 a b", "*2\r\n:1\r\n:1\r\n");
    let mut events = server.client();
    events.send(encode(&["SUBSCRIBE", "__keyevent@0__:hexpired"]));
    events.expect("*3\r\n$9\r\nsubscribe\r\n$23\r\n__keyevent@0__:hexpired\r\n:1\r\n");
    all_cold(&mut client, HASHES + 1);
    wait_until("fields leave", || expired_fields(&mut client) == HASHES as u64 * 10 + 2);
    assert!(swap(&mut client, "swap_came_home") >= came_home + HASHES as u64);
    for _ in 0..=HASHES {
        let event = String::from_utf8(events.read_reply()).expect("text");
        assert!(event.contains("hash:") || event.contains("last"), "{event}");
    }
    client.check("EXISTS last", ":0\r\n");
    client.check("HLEN hash:0", ":2\r\n");
    client.check("HLEN hash:1", ":290\r\n");
    assert_eq!(timed_hashes(&mut client), 0);
    client.check("DEBUG CHECK-INVARIANTS", "+OK\r\n");
}

/// Files have the times; a replica too, which does not expire by itself.
#[test]
fn files_and_replicas_have_the_times_of_fields() {
    let folder = Folder::new("fields-files");
    let server = folder.start(&[]);
    let mut client = server.client();
    fill(&mut client, 3_600_000);
    let of = |client: &mut Client, number: usize| {
        client.ask(&format!("HPEXPIRETIME hash:{number} FIELDS 2 field:3 field:11"))
    };
    let times: Vec<String> = (0..HASHES).map(|number| of(&mut client, number)).collect();
    let digest = client.ask("DEBUG DIGEST");
    all_cold(&mut client, HASHES);
    client.check("SAVE", "+OK\r\n");
    assert_eq!(swap(&mut client, "swap_keys"), HASHES as u64);
    let port = server.port.to_string();
    let replica =
        Server::with_workers(2, &["--replicaof", "127.0.0.1", &port, "--enable-debug-command", "yes"]);
    let mut other = replica.client();
    wait_until("it has all", || other.ask("INFO replication").contains("master_link_status:up"));
    assert_eq!(other.ask("DEBUG DIGEST"), digest);
    assert_eq!((0..HASHES).map(|number| of(&mut other, number)).collect::<Vec<_>>(), times);
    client.check("DEBUG RELOAD NOSAVE", "+OK\r\n");
    assert_eq!(client.ask("DEBUG DIGEST"), digest);
    assert_eq!((0..HASHES).map(|number| of(&mut client, number)).collect::<Vec<_>>(), times);
    // A field that leaves by its time on disk leaves the replica.
    client.check("HPEXPIRE hash:1 3000 FIELDS 1 field:3", "*1\r\n:1\r\n");
    all_cold(&mut client, HASHES);
    wait_until("the replica hears of it", || other.ask("HLEN hash:1") == ":299\r\n");
}

/// A base refers to them, and a start knows when their fields are due without a look at one.
#[test]
fn a_start_knows_when_fields_are_due() {
    let folder = Folder::new("fields-base");
    let more = ["--appendonly", "yes", "--appendfsync", "always", "--swap-checkpoint", "yes"];
    {
        let mut server = folder.start(&more);
        let mut client = server.client();
        wait_until("it is loaded", || !client.ask("DBSIZE").contains("LOADING"));
        fill(&mut client, 3_600_000);
        client.check("HPEXPIRE hash:7 6000 FIELDS 1 field:20", "*1\r\n:1\r\n");
        all_cold(&mut client, HASHES);
        client.check("BGREWRITEAOF", "+Background append only file rewriting started\r\n");
        let under_way =
            |client: &mut Client| field(&client.ask("INFO persistence"), "aof_rewrite_in_progress") == 1;
        wait_until("the rewrite", || !under_way(&mut client));
        assert_eq!(text_field(&client.ask("INFO persistence"), "aof_last_bgrewrite_status"), "ok");
        server.signal("KILL");
        server.wait();
    }
    let server = folder.start(&more);
    let mut client = server.client();
    wait_until("it is loaded", || !client.ask("DBSIZE").contains("LOADING"));
    assert_eq!(timed_hashes(&mut client), HASHES as u64);
    wait_until("the one field leaves", || expired_fields(&mut client) == 1);
    assert_eq!(swap(&mut client, "swap_came_home"), 1, "no other was read");
    client.check("HLEN hash:7", ":299\r\n");
    client.check("HEXISTS hash:7 field:20", ":0\r\n");
    client.check("DEBUG CHECK-INVARIANTS", "+OK\r\n");
}
