//! Commands of operators that look at what lies on disk (DEBUG, CLUSTER, SWAP): they wait for the disk alone.

use crate::cluster_nodes::Node;
use crate::common::{Client, Server, encode, wait_until};
use crate::swap::{Folder, swap};
use crate::swap_faults::fault;
use crate::swap_frozen::{freeze, name, set};

const NOT_READ: &str =
    "-SWAPERR This command needs more keys on disk than are read before a transaction or a script\r\n";
const FROZEN: usize = 600;
const LONG: usize = 40;

/// Frozen keys, values on disk, and a hash whose pages are; and the signature of it all.
fn with_all_forms(folder: &Folder) -> (Server, String) {
    let server = folder.start_freezing(&["--swap-read-timeout", "0"]);
    let mut client = server.client();
    set(&mut client, 0..FROZEN);
    for n in 0..LONG {
        client.check(&format!("SET long:{n} {}", format!("{n}.").repeat(400)), "+OK\r\n");
    }
    for n in 0..400 {
        client.check(&format!("HSET hash field:{n} {}", format!("{n}-").repeat(60)), ":1\r\n");
    }
    client.check("SET hot 1", "+OK\r\n");
    let digest = client.ask("DEBUG DIGEST");
    client.check("DEBUG SWAP-CHAOS 1", "+OK\r\n");
    wait_until("all leaves memory", || {
        let [frozen, keys] = ["swap_frozen_keys", "swap_keys"].map(|field| swap(&mut client, field));
        (frozen, keys) == (FROZEN as u64 + 1, LONG as u64) && swap(&mut client, "swap_nodes") > 20
    });
    client.check("DEBUG SWAP-CHAOS 0", "+OK\r\n");
    client.check("GET hot", "$1\r\n1\r\n");
    (server, digest)
}

/// Sends these while reads hang. All others are answered meanwhile.
fn hang(server: &Server, requests: &[&[&str]]) -> Vec<Client> {
    let mut other = server.client();
    fault(&mut other, "read hang");
    let waiting: Vec<Client> = requests
        .iter()
        .map(|words| {
            let mut client = server.client();
            client.send(encode(words));
            client
        })
        .collect();
    let is_waiting = |client: &mut Client| client.ask("CLIENT LIST").matches("flags=b").count();
    wait_until("they wait", || is_waiting(&mut other) == requests.len());
    assert!(other.ask("GET hot").starts_with('$'));
    assert!(other.ask("DBSIZE").starts_with(':'), "it holds everything");
    fault(&mut other, "read none");
    waiting
}

#[test]
fn looks_wait_for_the_disk_and_no_client_for_them() {
    let folder = Folder::new("looks-hung");
    let (server, digest) = with_all_forms(&folder);
    let mut client = server.client();
    let of_values = client.ask("DEBUG DIGEST-VALUE nothing");
    let one = name(7);
    let requests: [&[&str]; 6] = [
        &["DEBUG", "DIGEST"],
        &["DEBUG", "OBJECT", "long:1"],
        &["DEBUG", "DIGEST-VALUE", "nothing", "long:2", "hash"],
        &["SSDBKEYS", "*"],
        &["REDISKEYS", "*"],
        &["SWAP", "FORGET", &one],
    ];
    let replies: Vec<String> = hang(&server, &requests)
        .into_iter()
        .map(|mut client| String::from_utf8_lossy(&client.read_reply()).into_owned())
        .collect();
    assert_eq!(replies[0], digest);
    assert!(
        replies[1].contains("encoding:raw") && replies[1].contains("serializedlength:"),
        "{}",
        replies[1]
    );
    assert!(replies[2].starts_with(&of_values.replace("*1", "*3")), "{}", replies[2]);
    assert_eq!(replies[2].matches("+0000000000").count(), 1, "{}", replies[2]);
    let names = |reply: &str| reply.matches("\r\n$").count();
    // The frozen key that was promoted may have been there already.
    let on_disk = names(&replies[3]);
    assert!((FROZEN + LONG - 1..=FROZEN + LONG).contains(&on_disk), "{on_disk}");
    assert!(replies[4].contains("\r\nhash\r\n") && names(&replies[4]) <= 3, "{}", replies[4]);
    assert_eq!(replies[5], ":0\r\n");
    for field in ["swap_reads_undeclared", "swap_reads_in_commands"] {
        assert_eq!(swap(&mut client, field), 0, "{field}");
    }
    client.check("DEBUG CHECK-INVARIANTS", "+OK\r\n");
}

#[test]
fn a_transaction_reads_nothing_for_a_look() {
    let folder = Folder::new("looks-exec");
    let (server, digest) = with_all_forms(&folder);
    let mut client = server.client();
    let looks = ["DEBUG OBJECT long:3 fast", "DEBUG DIGEST-VALUE hash", "DEBUG DIGEST"];
    client.check("MULTI", "+OK\r\n");
    looks.iter().chain(&["DEBUG OBJECT hot", "PING"]).for_each(|look| client.check(look, "+QUEUED\r\n"));
    let reply = client.ask("EXEC");
    let expected = format!("*5\r\n{}+Value at:", NOT_READ.repeat(looks.len()));
    assert!(reply.starts_with(&expected) && reply.ends_with("+PONG\r\n"), "{reply}");
    assert_eq!(swap(&mut client, "swap_reads_in_commands"), 0);
    assert_eq!(client.ask("DEBUG DIGEST"), digest);
    client.check("DEBUG CHECK-INVARIANTS", "+OK\r\n");
}

#[test]
fn a_record_that_cannot_be_read_fails_the_look() {
    let folder = Folder::new("looks-failing");
    let (server, digest) = with_all_forms(&folder);
    let mut client = server.client();
    fault(&mut client, "read io");
    for request in ["DEBUG DIGEST", "DEBUG OBJECT long:1", "DEBUG DIGEST-VALUE hash", "SSDBKEYS *"] {
        let reply = client.ask(request);
        assert!(reply.starts_with("-SWAPERR"), "{request}: {reply}");
    }
    fault(&mut client, "read none");
    wait_until("the disk counts as healthy", || client.ask("INFO swap").contains("swap_state:ok"));
    assert_eq!(client.ask("DEBUG DIGEST"), digest);
}

/// Keys of one slot of a node that has all.
fn with_slot(folder: &Folder) -> (Node, u16) {
    let dir = folder.0.to_str().expect("a plain path");
    let own = ["--dir", dir, "--swap-mode", "yes", "--swap-freeze", "yes", "--maxmemory", "16mb"];
    let node = Node::start(&[&own[..], &["--log-memory-limit", "1mb", "--swap-read-timeout", "0"]].concat());
    let mut client = node.client();
    client.check("CLUSTER ADDSLOTSRANGE 0 16383", "+OK\r\n");
    wait_until("it serves", || client.ask("CLUSTER INFO").contains("cluster_state:ok"));
    let slot = client.ask_number("CLUSTER KEYSLOT {b}") as u16;
    (node, slot)
}

fn fill(client: &mut Client) {
    for n in 0..FROZEN {
        client.check(&format!("SET {{b}}{n} value-{n}"), "+OK\r\n");
    }
    freeze(client, FROZEN as u64);
}

#[test]
fn slots_are_listed_and_flushed_beside_others() {
    let folder = Folder::new("looks-slots");
    let (node, slot) = with_slot(&folder);
    let (mut client, number) = (node.client(), slot.to_string());
    fill(&mut client);
    let list: &[&str] = &["CLUSTER", "GETKEYSINSLOT", &number, "1000"];
    let mut names: Vec<String> = hang(&node.server, &[list])
        .into_iter()
        .flat_map(|mut client| {
            let reply = String::from_utf8_lossy(&client.read_reply()).into_owned();
            reply.split("\r\n").filter(|word| word.starts_with("{b}")).map(String::from).collect::<Vec<_>>()
        })
        .collect();
    names.sort_unstable();
    names.dedup();
    assert_eq!(names.len(), FROZEN);
    assert!(client.ask(&format!("CLUSTER GETKEYSINSLOT {slot} 5")).starts_with("*5\r\n"));
    client.check(&format!("CLUSTER GETKEYSINSLOT {slot} 0"), "*0\r\n");
    assert_eq!(swap(&mut client, "swap_frozen_keys"), FROZEN as u64, "nothing comes home for it");
    client.check("MULTI", "+OK\r\n");
    client.check(&format!("CLUSTER GETKEYSINSLOT {slot} 5"), "+QUEUED\r\n");
    client.check(&format!("CLUSTER FLUSHSLOT {slot}"), "+QUEUED\r\n");
    client.check("EXEC", &format!("*2\r\n{NOT_READ}{NOT_READ}"));
    client.check(&format!("CLUSTER COUNTKEYSINSLOT {slot}"), &format!(":{FROZEN}\r\n"));
    let flush: &[&str] = &["CLUSTER", "FLUSHSLOT", &number];
    hang(&node.server, &[flush]).into_iter().for_each(|mut client| client.expect("+OK\r\n"));
    client.check(&format!("CLUSTER COUNTKEYSINSLOT {slot}"), ":0\r\n");
    client.check("DBSIZE", ":0\r\n");
    for field in ["swap_reads_undeclared", "swap_reads_in_commands"] {
        assert_eq!(swap(&mut client, field), 0, "{field}");
    }
    // A value that cannot be read is deleted unread.
    fill(&mut client);
    fault(&mut client, "read io");
    client.check(&format!("CLUSTER FLUSHSLOT {slot}"), "+OK\r\n");
    client.check("DBSIZE", ":0\r\n");
    fault(&mut client, "read none");
    client.check("DEBUG CHECK-INVARIANTS", "+OK\r\n");
}

#[test]
fn frozen_keys_count_as_before() {
    let folder = Folder::new("looks-counts");
    let server = folder.start_freezing(&[]);
    let mut client = server.client();
    set(&mut client, 0..FROZEN);
    for n in (0..FROZEN).step_by(3) {
        client.check(&format!("EXPIRE {} 1000", name(n)), ":1\r\n");
    }
    let counts = |client: &mut Client| {
        let keyspace = client.ask("INFO keyspace");
        let keys = keyspace.split(",avg_ttl").next().expect("a line").to_string();
        let usage = [5, 6].map(|n| client.ask(&format!("MEMORY USAGE {}", name(n))));
        (keys, usage, client.ask("DBSIZE"))
    };
    let before = counts(&mut client);
    assert!(before.0.ends_with("keys=600,expires=200"), "{}", before.0);
    freeze(&mut client, FROZEN as u64);
    assert_eq!(counts(&mut client), before);
    client.check(&format!("DEL {} {}", name(5), name(9)), ":2\r\n");
    client.check("DBSIZE", ":598\r\n");
    assert!(client.ask("INFO keyspace").contains("keys=598,expires=199,"));
}
