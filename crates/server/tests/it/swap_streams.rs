//! Streams that are not in memory: all that XINFO shows of them, clients that wait for them, files.

use crate::common::{Client, Server, encode, field, text_field, wait_until};
use crate::swap::{Folder, swap};

const STREAMS: usize = 40;
const ENTRIES: usize = 250;

fn stream(number: usize) -> String {
    format!("stream:{number}")
}

/// Entries, some of them deleted, and groups: one with much that is pending, one that nothing was read from.
fn fill(client: &mut Client, number: usize) {
    let key = stream(number);
    let mut requests = Vec::new();
    for at in 1..=ENTRIES {
        let value = format!("value {at} of {number}");
        requests.push(encode(&["XADD", &key, &format!("{at}-{number}"), "sensor", "7", "value", &value]));
    }
    requests.push(encode(&["XDEL", &key, &format!("3-{number}"), &format!("200-{number}")]));
    requests.push(encode(&["XGROUP", "CREATE", &key, "workers", "0", "ENTRIESREAD", "0"]));
    requests.push(encode(&["XGROUP", "CREATE", &key, "others", "17"]));
    for consumer in ["first", "second", "idle"] {
        let count = if consumer == "idle" { "0" } else { "20" };
        requests.push(encode(&["XGROUP", "CREATECONSUMER", &key, "workers", consumer]));
        if count != "0" {
            let words = ["XREADGROUP", "GROUP", "workers", consumer, "COUNT", count, "STREAMS", &key, ">"];
            requests.push(encode(&words));
        }
    }
    requests.push(encode(&["XACK", &key, "workers", &format!("5-{number}"), &format!("30-{number}")]));
    requests.push(encode(&["XTRIM", &key, "MINID", &format!("2-{number}")]));
    client.send(requests.concat());
    requests.iter().for_each(|_| assert_ne!(client.read_reply()[0], b'-'));
}

fn all_cold(client: &mut Client, keys: usize) {
    client.check("DEBUG SWAP-CHAOS 1", "+OK\r\n");
    wait_until("all streams leave memory", || swap(client, "swap_keys") == keys as u64);
    client.check("DEBUG SWAP-CHAOS 0", "+OK\r\n");
}

fn is_cold(client: &mut Client, key: &str) -> bool {
    client.ask(&format!("LOCATEKEY {key}")) == "$4\r\nssdb\r\n"
}

fn all_of(client: &mut Client) -> Vec<String> {
    let full = |number| client.ask(&format!("XINFO STREAM {} FULL COUNT 0", stream(number)));
    (0..STREAMS).map(full).collect()
}

#[test]
fn streams_are_what_they_were() {
    let folder = Folder::new("streams");
    let server = folder.start(&[]);
    let mut client = server.client();
    (0..STREAMS).for_each(|number| fill(&mut client, number));
    let (all, digest) = (all_of(&mut client), client.ask("DEBUG DIGEST"));
    let dumps: Vec<Vec<u8>> =
        (0..STREAMS).map(|number| client.ask_bytes(&format!("DUMP {}", stream(number)))).collect();
    all_cold(&mut client, STREAMS);
    let reads = swap(&mut client, "swap_reads");
    client.check("TYPE stream:1", "+stream\r\n");
    client.check("OBJECT ENCODING stream:1", "$6\r\nstream\r\n");
    client.check("EXISTS stream:1 stream:2 stream:none", ":2\r\n");
    assert_eq!(swap(&mut client, "swap_reads"), reads);
    assert_eq!(client.ask("DEBUG DIGEST"), digest);
    assert_eq!(all_of(&mut client), all);
    for (number, dump) in dumps.iter().enumerate() {
        all_cold(&mut client, STREAMS);
        assert_eq!(client.ask_bytes(&format!("DUMP {}", stream(number))), *dump, "{number}");
    }
    // Written by a save as they are on disk.
    all_cold(&mut client, STREAMS);
    client.check("SAVE", "+OK\r\n");
    assert_eq!(swap(&mut client, "swap_keys"), STREAMS as u64);
    client.check("DEBUG RELOAD NOSAVE", "+OK\r\n");
    assert_eq!(all_of(&mut client), all);
    all_cold(&mut client, STREAMS);
    client.check("XADD stream:0 1000-1 a b", "$6\r\n1000-1\r\n");
    client.check("XLEN stream:1", &format!(":{}\r\n", ENTRIES - 3));
    client.check("RENAME stream:2 renamed", "+OK\r\n");
    client.check("COPY stream:3 copied", ":1\r\n");
    client.check("DEL stream:4", ":1\r\n");
    client.check("DEBUG CHECK-INVARIANTS", "+OK\r\n");
    assert_eq!(swap(&mut client, "swap_unreadable"), 0);
}

fn waiting(server: &Server, other: &mut Client, words: &[&str]) -> Client {
    let before = other.blocked_count();
    let mut client = server.client();
    client.send(encode(words));
    wait_until("it waits", || other.blocked_count() == before + 1);
    client
}

#[test]
fn clients_wait_for_streams_that_are_not_in_memory() {
    let folder = Folder::new("streams-waiting");
    let server = folder.start(&[]);
    let mut client = server.client();
    fill(&mut client, 0);
    client.check("XGROUP SETID stream:0 workers $", "+OK\r\n");
    client.ask("XGROUP CREATE stream:0 leaving $");
    all_cold(&mut client, 1);
    let mut reader = waiting(&server, &mut client, &["XREAD", "BLOCK", "0", "STREAMS", "stream:0", "$"]);
    let group =
        |name, consumer| ["XREADGROUP", "GROUP", name, consumer, "BLOCK", "0", "STREAMS", "stream:0", ">"];
    let mut worker = waiting(&server, &mut client, &group("workers", "third"));
    let mut leaving = waiting(&server, &mut client, &group("leaving", "fourth"));
    all_cold(&mut client, 1);
    client.check("XGROUP DESTROY stream:0 leaving", ":1\r\n");
    assert!(String::from_utf8_lossy(&leaving.read_reply()).starts_with("-NOGROUP"));
    all_cold(&mut client, 1);
    assert!(is_cold(&mut client, "stream:0"));
    client.check("XADD stream:0 500-5 name value", "$5\r\n500-5\r\n");
    let entry =
        "*1\r\n*2\r\n$8\r\nstream:0\r\n*1\r\n*2\r\n$5\r\n500-5\r\n*2\r\n$4\r\nname\r\n$5\r\nvalue\r\n";
    reader.expect(entry);
    worker.expect(entry);
    // Deleted while it is on disk: a client that waits in a group hears of it.
    let mut worker = waiting(&server, &mut client, &group("workers", "third"));
    all_cold(&mut client, 1);
    client.check("DEL stream:0", ":1\r\n");
    assert!(String::from_utf8_lossy(&worker.read_reply()).starts_with("-NOGROUP"));
    client.check("DEBUG CHECK-INVARIANTS", "+OK\r\n");
}

/// A base refers to streams as to other values.
#[test]
fn a_start_has_the_streams_of_a_base_that_refers() {
    let folder = Folder::new("streams-base");
    let more = ["--appendonly", "yes", "--appendfsync", "always", "--swap-checkpoint", "yes"];
    let (all, digest) = {
        let mut server = folder.start(&more);
        let mut client = server.client();
        wait_until("it is loaded", || !client.ask("DBSIZE").contains("LOADING"));
        (0..STREAMS).for_each(|number| fill(&mut client, number));
        let (all, digest) = (all_of(&mut client), client.ask("DEBUG DIGEST"));
        all_cold(&mut client, STREAMS);
        client.check("BGREWRITEAOF", "+Background append only file rewriting started\r\n");
        let under_way =
            |client: &mut Client| field(&client.ask("INFO persistence"), "aof_rewrite_in_progress") == 1;
        wait_until("the rewrite", || !under_way(&mut client));
        assert_eq!(text_field(&client.ask("INFO persistence"), "aof_last_bgrewrite_status"), "ok");
        server.signal("KILL");
        server.wait();
        (all, digest)
    };
    let server = folder.start(&more);
    let mut client = server.client();
    wait_until("it is loaded", || !client.ask("DBSIZE").contains("LOADING"));
    assert_eq!(swap(&mut client, "swap_keys"), STREAMS as u64);
    assert_eq!(client.ask("DEBUG DIGEST"), digest);
    assert_eq!(all_of(&mut client), all);
    client.check("DEBUG CHECK-INVARIANTS", "+OK\r\n");
}
