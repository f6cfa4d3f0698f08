//! Commands of a primary, and of an append-only file, that are answered with an error here: the data differ
//! then, and that stops the link, or the start, with its reason.

use crate::aof::{Data, wire};
use crate::common::{Client, text_field, wait_until};
use crate::replica::{ID, Link, Primary, wait_for_field};

/// INFO has a line that is there while a link is down.
pub fn waits_for(client: &mut Client, line: &str) {
    wait_until(line, || client.ask("INFO replication").lines().any(|shown| shown == line));
}

/// The link has ended because of `error`. The next one, which asks for all data.
#[track_caller]
fn asks_for_all(primary: &Primary, client: &mut Client, mut link: Link, error: &str) -> Link {
    link.expect_end();
    waits_for(client, "master_refused:command");
    let info = client.ask("INFO replication");
    assert_eq!(text_field(&info, "master_link_status"), "down");
    assert_eq!(text_field(&info, "master_refused_error"), error);
    let (link, asked) = primary.shake_hands();
    assert_eq!(asked, "? -1");
    link
}

#[test]
fn a_command_that_fails_here_stops_the_link() {
    let primary = Primary::start(&[]);
    let mut client = primary.replica.client();
    let mut link = primary.sync(&[("text", "word")], 100);
    link.send_command("SET before 1");
    link.send_command("INCR text");
    link.send_command("SET behind 1");
    let error = "'incr' is answered with '-ERR value is not an integer or out of range'";
    let mut link = asks_for_all(&primary, &mut client, link, error);
    // The commands before it have run, and none of those after it.
    client.check("MGET before text behind", "*3\r\n$1\r\n1\r\n$4\r\nword\r\n$-1\r\n");
    assert_eq!(text_field(&client.ask("INFO stats"), "unexpected_error_replies"), "1");
    let log = primary.replica.log();
    for line in [
        "== CRITICAL == This replica is sending an error to its primary: '-ERR value is not an integer or out of range' after \
         processing the command 'incr'",
        "and all data is asked for in 1 s",
    ] {
        assert!(log.contains(line), "{line}\n{log}");
    }
    // All data has come: the command does here what it did there.
    link.send(format!("+FULLRESYNC {ID} 200\r\n"));
    let snapshot = crate::replica::snapshot(&[("text", "6")]);
    link.send(format!("${}\r\n", snapshot.len()));
    link.send(snapshot);
    link.expect_ack(200);
    wait_for_field(&mut client, "master_link_status", "up");
    assert!(!client.ask("INFO replication").contains("master_refused"));
    link.send_command("INCR text");
    wait_until("the stream goes on", || client.ask("GET text") == "$1\r\n7\r\n");
}

#[test]
fn a_command_that_is_unknown_here_stops_the_link() {
    let primary = Primary::start(&[]);
    let mut client = primary.replica.client();
    let mut link = primary.sync(&[("a", "1")], 100);
    link.send_command("NOSUCHCOMMAND a b");
    asks_for_all(&primary, &mut client, link, "unknown command 'NOSUCHCOMMAND'");
}

/// A part of it is in the data, which is no state of the primary's history: nothing continues from there.
#[test]
fn a_transaction_that_fails_in_its_middle_has_no_place() {
    let primary = Primary::start(&[]);
    let mut client = primary.replica.client();
    let mut link = primary.sync(&[("text", "word")], 100);
    ["MULTI", "SET before 1", "INCR text", "SET behind 1", "EXEC"]
        .iter()
        .for_each(|line| _ = link.send_command(line));
    let error = "'incr' is answered with '-ERR value is not an integer or out of range', in the middle of its transaction";
    asks_for_all(&primary, &mut client, link, error);
    assert_ne!(text_field(&client.ask("INFO replication"), "master_replid"), ID);
    let log = primary.replica.log();
    assert!(log.contains("A part of a transaction of the primary is in the data"), "{log}");
}

/// A writable replica has data of its own, so a command of the primary that fails there proves no divergence.
#[test]
fn a_replica_that_may_be_written_goes_on() {
    let primary = Primary::start(&["--replica-read-only", "no"]);
    let mut client = primary.replica.client();
    let mut link = primary.sync(&[], 100);
    client.check("SET text word", "+OK\r\n");
    link.send_command("INCR text");
    link.send_command("SET behind 1");
    wait_until("the stream goes on", || client.ask("GET behind") == "$1\r\n1\r\n");
    wait_for_field(&mut client, "master_link_status", "up");
    primary.replica.wait_for_log("after processing the command 'incr'");
}

#[test]
fn a_command_of_the_append_only_file_that_fails_ends_the_start() {
    let whole = wire(&["SELECT 0", "SET text word", "INCR text", "SET behind 1"]);
    let in_transaction = wire(&["SELECT 0", "MULTI", "SET text word", "INCR text", "EXEC", "SET behind 1"]);
    for (bytes, place) in [(&whole, 56), (&in_transaction, 95)] {
        let data = Data::new();
        data.write_log(&[bytes]);
        let log = data.fails_to_start();
        let expected = format!(
            "appendonly.aof.1.incr.aof at offset {place}, error: 'incr' is answered with '-ERR value is not an integer or out of range'"
        );
        assert!(log.contains(&expected), "{expected}\n{log}");
        assert!(
            log.contains("With `propagation-error-behavior ignore` the start passes over such commands"),
            "{log}"
        );
        assert_eq!(std::fs::read(data.file("appendonly.aof.1.incr.aof")).unwrap(), *bytes);
        let server = data.start(1, &["--propagation-error-behavior", "ignore"]);
        server.client().check("MGET text behind", "*2\r\n$4\r\nword\r\n$1\r\n1\r\n");
        assert!(server.log().contains("1 commands of the append-only file replied with an error."));
    }
}
