//! A replica whose memory ends within the stream: nothing is refused because of `maxmemory`, and a
//! transaction that was applied in part is never taken for a place in the history.

use crate::aof::{Data, kill};
use crate::bad_world::limited;
use crate::common::{Client, encode, text_field, wait_until};
use crate::replica::{ID, Link, Primary, wait_for_field};
use crate::replica_aof::rests;

const OK: &str = "+OK\r\n";
/// All keys of a tag lie in one partition, and so in one arena.
const VALUE_BYTES: usize = 3000;

fn set(number: usize) -> Vec<u8> {
    encode(&["SET", &format!("{{tag}}:{number}"), &"v".repeat(VALUE_BYTES)])
}

/// `INCR n` and some keys more, from this number on.
fn transaction(from: usize, count: usize) -> Vec<u8> {
    let mut bytes = [encode(&["MULTI"]), encode(&["INCR", "n"])].concat();
    (from..from + count).for_each(|number| bytes.extend(set(number)));
    bytes.extend(encode(&["EXEC"]));
    bytes
}

/// Sends keys until the replica has no memory for one, and closes the link. The numbers of the keys that it
/// may have are lower.
fn fill(link: &mut Link) -> usize {
    const KEYS_MAX: usize = 400_000;
    let sent = (0..KEYS_MAX).find(|number| !link.try_send(&set(*number)));
    sent.expect("its memory ends")
}

fn number(client: &mut Client, request: &str) -> u64 {
    let reply = client.ask(request);
    reply.trim_start_matches(':').trim_end().parse().unwrap_or_else(|_| panic!("{reply}"))
}

#[test]
fn no_part_of_a_transaction_is_taken_for_a_place_in_the_history() {
    let data = Data::new();
    let folder = data.0.to_str().unwrap();
    let aof = ["--dir", folder, "--appendonly", "yes", "--aof-use-rdb-preamble", "no"];
    let mut primary = Primary::start_with(|port| {
        let own = format!("--replicaof 127.0.0.1 {port} --io-threads 2 --enable-debug-command yes");
        limited("ulimit -v 700000;", &format!("{own} {}", aof.join(" ")))
    });
    let mut link = primary.sync(&[("a", "1")], 1000);
    let mut client = primary.replica.client();
    wait_for_field(&mut client, "master_link_status", "up");
    wait_until("the append-only file has its base", || rests(&mut client));
    let more_than_fit = fill(&mut link);
    drop(link);
    // A command that stands alone has changed nothing: it is asked for again where it was.
    let (mut link, asked) = primary.shake_hands();
    let keys = number(&mut client, "DBSIZE") as usize - 1;
    assert!(keys > 1000 && keys < more_than_fit, "{keys} of {more_than_fit}");
    let end = 1001 + (0..keys).map(|key| set(key).len()).sum::<usize>();
    assert_eq!(asked, format!("{ID} {end}"));
    let info = client.ask("INFO replication");
    let field = |name| text_field(&info, name).to_string();
    assert_eq!((field("master_link_status"), field("master_refused")), ("down".into(), "memory".into()));
    link.send("+CONTINUE\r\n");
    wait_for_field(&mut client, "master_link_status", "up");
    assert!(!client.ask("INFO replication").contains("master_refused"));
    // Of a transaction a part is there, and its place is lost.
    link.send(transaction(keys, 1000));
    let (mut link, asked) = primary.shake_hands();
    assert_eq!(asked, "? -1");
    let text = primary.replica.log();
    assert!(text.contains("A part of a transaction of the primary is in the data"), "{text}");
    let info = client.ask("INFO replication");
    assert_eq!(text_field(&info, "master_refused"), "memory");
    assert_ne!(text_field(&info, "master_replid"), ID);
    client.check("GET n", "$1\r\n1\r\n");
    // The append-only file has nothing of it.
    kill(&mut primary.replica);
    link.expect_end();
    drop(link);
    primary.start_again(&aof);
    let (mut link, asked) = primary.shake_hands();
    assert_eq!(asked, format!("{ID} {end}"));
    let mut client = primary.replica.client();
    assert_eq!(number(&mut client, "DBSIZE") as usize, keys + 1);
    client.check("GET n", "$-1\r\n");
    // With the memory that it needs it continues.
    link.send("+CONTINUE\r\n");
    link.send(transaction(keys, 1000));
    wait_until("the transaction is applied", || client.ask("GET n") == "$1\r\n1\r\n");
    assert_eq!(number(&mut client, "DBSIZE") as usize, keys + 1002);
    // As a primary too nothing is refused.
    client.check("REPLICAOF NO ONE", OK);
    client.check("SET b 1", OK);
}

/// All data comes again, and the replica continues: also if it was promoted in between.
#[test]
fn goes_on_with_all_data_after_a_part_was_applied() {
    let mut promoted = false;
    loop {
        let primary = Primary::start_with(|port| {
            let own = format!("--replicaof 127.0.0.1 {port} --io-threads 2 --enable-debug-command yes");
            limited("ulimit -v 700000;", &own)
        });
        let mut link = primary.sync(&[("a", "1")], 1000);
        let mut client = primary.replica.client();
        wait_for_field(&mut client, "master_link_status", "up");
        let sent = (0..4000).find(|round| !link.try_send(&transaction(round * 100, 100)));
        assert!(sent.is_some(), "its memory ends");
        drop(link);
        let (link, asked) = primary.shake_hands();
        assert_eq!(asked, "? -1");
        if promoted {
            client.check("REPLICAOF NO ONE", OK);
            let info = client.ask("INFO replication");
            assert_ne!(text_field(&info, "master_replid2"), ID);
            return;
        }
        drop(link);
        let mut link = primary.sync(&[("b", "2")], 5000);
        wait_for_field(&mut client, "master_link_status", "up");
        assert!(!client.ask("INFO replication").contains("master_refused"));
        link.send_command("SET c 3");
        wait_until("the stream goes on", || client.ask("GET c") == "$1\r\n3\r\n");
        assert_eq!(number(&mut client, "DBSIZE"), 2);
        client.check("DEBUG CHECK-INVARIANTS", OK);
        promoted = true;
    }
}

/// `maxmemory` that is far exceeded: the stream is applied as it is, transactions too.
#[test]
fn maxmemory_refuses_nothing_of_the_stream() {
    let limits =
        ["--maxmemory", "1mb", "--maxmemory-policy", "noeviction", "--replica-ignore-maxmemory", "no"];
    let primary = Primary::start(&limits);
    let mut link = primary.sync(&[("a", "1")], 1000);
    let mut client = primary.replica.client();
    wait_for_field(&mut client, "master_link_status", "up");
    let sent = transaction(0, 2000);
    link.send(&sent);
    wait_for_field(&mut client, "slave_repl_offset", &(1000 + sent.len()).to_string());
    assert_eq!(number(&mut client, "DBSIZE"), 2002);
    assert_eq!(text_field(&client.ask("INFO replication"), "master_link_status"), "up");
}
