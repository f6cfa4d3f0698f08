//! This server as a replica: of a primary that a test plays line by line, and of a real Valkey (`ISOTHERM_PEER_BIN`, else a
//! reported skip).

use crate::common::{Client, Server, encode, text_field, wait_until};
use crate::peers;
use std::io::{ErrorKind, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::time::Duration;

const ID: &str = "0123456789012345678901234567890123456789";
const OTHER_ID: &str = "abcdefabcdefabcdefabcdefabcdefabcdefabcd";
/// A silence of so many seconds is too long.
const TIMEOUT_SECONDS: &str = "2";

// ---- a primary that a test plays ----

struct Primary {
    listener: TcpListener,
    replica: Server,
}

/// One connection of the replica.
struct Link {
    stream: TcpStream,
    left: Vec<u8>,
}

impl Primary {
    fn start(arguments: &[&str]) -> Primary {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        listener.set_nonblocking(true).unwrap();
        let port = listener.local_addr().unwrap().port().to_string();
        let own = ["--replicaof", "127.0.0.1", &port, "--repl-timeout", TIMEOUT_SECONDS];
        let debug = ["--enable-debug-command", "yes"];
        let replica = Server::with_workers(2, &[&own[..], &debug, arguments].concat());
        Primary { listener, replica }
    }

    fn port(&self) -> u16 {
        self.listener.local_addr().unwrap().port()
    }

    /// The replica connects.
    #[track_caller]
    fn accept(&self) -> Link {
        let mut accepted = None;
        wait_until("the replica connects", || {
            match self.listener.accept() {
                Ok((stream, _)) => accepted = Some(stream),
                Err(error) => assert_eq!(error.kind(), ErrorKind::WouldBlock),
            }
            accepted.is_some()
        });
        let stream = accepted.expect("it was accepted");
        stream.set_nonblocking(false).unwrap();
        stream.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
        Link { stream, left: Vec::new() }
    }

    /// The handshake up to PSYNC, whose arguments are returned.
    #[track_caller]
    fn shake_hands(&self) -> (Link, String) {
        let mut link = self.accept();
        link.expect("PING");
        link.send("+PONG\r\n");
        for start in ["REPLCONF listening-port", "REPLCONF capa eof capa psync2", "REPLCONF version"] {
            let got = link.request();
            assert!(got.starts_with(start), "{got}");
            link.send("+OK\r\n");
        }
        let psync = link.request();
        let asked = psync.strip_prefix("PSYNC ").unwrap_or_else(|| panic!("{psync}")).to_string();
        (link, asked)
    }

    /// A full synchronization with a snapshot of `keys`, at this offset.
    #[track_caller]
    fn sync(&self, keys: &[(&str, &str)], offset: u64) -> Link {
        let (mut link, _) = self.shake_hands();
        link.send(format!("+FULLRESYNC {ID} {offset}\r\n"));
        let snapshot = snapshot(keys);
        link.send(format!("${}\r\n", snapshot.len()));
        link.send(snapshot);
        link.expect_ack(offset);
        link
    }
}

impl Link {
    fn send(&mut self, bytes: impl AsRef<[u8]>) {
        self.stream.write_all(bytes.as_ref()).unwrap();
    }

    fn send_command(&mut self, line: &str) -> u64 {
        let bytes = encode(&line.split(' ').collect::<Vec<_>>());
        self.send(&bytes);
        bytes.len() as u64
    }

    /// One request, its words between blanks.
    #[track_caller]
    fn request(&mut self) -> String {
        let count = self.number('*');
        let word = |_| {
            let len = self.number('$');
            let word = self.take(len);
            self.take(2);
            String::from_utf8(word).unwrap()
        };
        (0..count).map(word).collect::<Vec<_>>().join(" ")
    }

    #[track_caller]
    fn expect(&mut self, request: &str) {
        assert_eq!(self.request(), request);
    }

    /// An ACK of this offset comes, whatever else comes before.
    #[track_caller]
    fn expect_ack(&mut self, offset: u64) {
        let wanted = format!("REPLCONF ACK {offset}");
        for _ in 0..100 {
            let got = self.request();
            assert!(got.starts_with("REPLCONF ACK "), "{got}");
            if got == wanted || got.starts_with(&format!("{wanted} ")) {
                return;
            }
        }
        panic!("no ACK of {offset}");
    }

    #[track_caller]
    fn expect_end(&mut self) {
        let mut bytes = Vec::new();
        if let Err(error) = self.stream.read_to_end(&mut bytes) {
            assert_eq!(error.kind(), ErrorKind::ConnectionReset, "{error}");
        }
    }

    #[track_caller]
    fn number(&mut self, prefix: char) -> usize {
        let mut line = Vec::new();
        while line.last() != Some(&b'\n') {
            line.extend(self.take(1));
            // Empty lines say that the replica is still there.
            if line == b"\n" {
                line.clear();
            }
        }
        let text = String::from_utf8(line).unwrap();
        text.trim_end().strip_prefix(prefix).and_then(|number| number.parse().ok()).expect("a length")
    }

    #[track_caller]
    fn take(&mut self, count: usize) -> Vec<u8> {
        while self.left.len() < count {
            let mut bytes = [0; 4096];
            let read = self.stream.read(&mut bytes).expect("the replica says something");
            assert!(read > 0, "the replica has closed the link");
            self.left.extend_from_slice(&bytes[..read]);
        }
        self.left.drain(..count).collect()
    }
}

/// An RDB file of version 11 with strings.
fn snapshot(keys: &[(&str, &str)]) -> Vec<u8> {
    let mut bytes = b"REDIS0011\xfe\x00".to_vec();
    for (key, value) in keys {
        bytes.push(0);
        for text in [key, value] {
            assert!(text.len() < 64);
            bytes.push(text.len() as u8);
            bytes.extend_from_slice(text.as_bytes());
        }
    }
    bytes.push(0xff);
    let sum = crc64(&bytes);
    bytes.extend_from_slice(&sum.to_le_bytes());
    bytes
}

/// CRC-64/Jones, bit by bit.
fn crc64(bytes: &[u8]) -> u64 {
    bytes.iter().fold(0, |sum, byte| {
        (0..8).fold(sum ^ u64::from(*byte), |sum, _| {
            (sum >> 1) ^ if sum & 1 == 1 { 0x95ac_9329_ac4b_c9b5 } else { 0 }
        })
    })
}

#[track_caller]
fn wait_for_field(client: &mut Client, name: &str, value: &str) {
    wait_until(&format!("{name}:{value}"), || text_field(&client.ask("INFO replication"), name) == value);
}

#[test]
fn a_snapshot_then_the_stream() {
    let primary = Primary::start(&[]);
    let mut link = primary.sync(&[("a", "1"), ("b", "2")], 1000);
    let mut client = primary.replica.client();
    wait_for_field(&mut client, "master_link_status", "up");
    client.check("GET a", "$1\r\n1\r\n");
    let mut end = 1000;
    for command in ["SELECT 0", "SET c 3", "PING", "INCR c"] {
        end += link.send_command(command);
    }
    end += link.send_command("REPLCONF GETACK *");
    // As Valkey's, the ACK counts the question too.
    link.expect_ack(end);
    client.check("GET c", "$1\r\n4\r\n");
    client.check("SET c 1", "-READONLY You can't write against a read only replica.\r\n");
    // A transaction takes effect as a whole.
    for command in ["MULTI", "SET d 5", "SELECT 3", "SET d 6"] {
        link.send_command(command);
    }
    client.check("GET d", "$-1\r\n");
    link.send_command("EXEC");
    wait_until("the transaction is applied", || client.ask("GET d") == "$1\r\n5\r\n");
    client.check("SELECT 3", "+OK\r\n");
    client.check("GET d", "$1\r\n6\r\n");
    let info = client.ask("INFO replication");
    assert_eq!(text_field(&info, "master_replid"), ID);
    assert_eq!(text_field(&info, "role"), "slave");
    assert!(client.ask("CLIENT LIST").contains(" flags=M "));
}

#[test]
fn a_broken_link_goes_on_where_it_was() {
    let primary = Primary::start(&[]);
    let mut link = primary.sync(&[("a", "1")], 70);
    let mut end = 70 + link.send_command("SELECT 2") + link.send_command("SET x 1");
    // The beginning of a transaction and of a command is not counted: it is asked for again.
    link.send_command("MULTI");
    link.send_command("SET x 2");
    link.send("*3\r\n$3\r\nSET\r\n$1\r\n");
    let mut client = primary.replica.client();
    wait_for_field(&mut client, "slave_repl_offset", &end.to_string());
    drop(link);
    let (mut link, asked) = primary.shake_hands();
    assert_eq!(asked, format!("{ID} {}", end + 1));
    link.send(format!("+CONTINUE {OTHER_ID}\r\n"));
    // What was selected is selected still.
    end += link.send_command("SET y 3");
    end += link.send_command("REPLCONF GETACK *");
    link.expect_ack(end);
    client.check("SELECT 2", "+OK\r\n");
    client.check("GET x", "$1\r\n1\r\n");
    client.check("GET y", "$1\r\n3\r\n");
    let info = client.ask("INFO replication");
    assert_eq!(text_field(&info, "master_replid"), OTHER_ID);
    assert_eq!(text_field(&info, "master_replid2"), ID);
}

#[test]
fn a_promoted_replica_writes() {
    let primary = Primary::start(&[]);
    let mut link = primary.sync(&[("a", "1")], 500);
    let mut client = primary.replica.client();
    client.check("REPLICAOF NO ONE", "+OK\r\n");
    link.send_command("SET a 2");
    link.expect_end();
    client.check("SET b 2", "+OK\r\n");
    client.check("GET a", "$1\r\n1\r\n");
    let info = client.ask("INFO replication");
    assert_eq!(text_field(&info, "role"), "master");
    assert_eq!(text_field(&info, "master_replid2"), ID);
    assert_eq!(text_field(&info, "second_repl_offset"), "501");
    // Back again: it asks for what its own history has.
    client.check(&format!("REPLICAOF 127.0.0.1 {}", primary.port()), "+OK\r\n");
    let (_link, asked) = primary.shake_hands();
    assert!(asked.starts_with(text_field(&info, "master_replid")), "{asked}");
    client.check("SET b 3", "-READONLY You can't write against a read only replica.\r\n");
}

// ---- real Valkey ----

#[test]
fn follows_a_real_valkey() {
    let Some(valkey) = peers::peer("valkey-server") else { return };
    let folder = std::env::temp_dir().join(format!("isotherm-replica-of-{}", std::process::id()));
    std::fs::create_dir_all(&folder).unwrap();
    let primary = peers::start(valkey, &folder);
    let mut source = primary.client();
    source.check("CONFIG SET repl-diskless-sync-delay 0", "+OK\r\n");
    peers::fill(&mut source, true);
    let port = primary.port.to_string();
    let replica =
        Server::with_workers(2, &["--replicaof", "127.0.0.1", &port, "--enable-debug-command", "yes"]);
    let mut client = replica.client();
    wait_for_field(&mut client, "master_link_status", "up");
    same(&mut source, &mut client);
    source.check("FLUSHALL", "+OK\r\n");
    peers::fill(&mut source, true);
    same(&mut source, &mut client);
    // The link is killed while it is busy: it goes on in parts.
    for round in 0..20 {
        for n in 0..500 {
            source.send(encode(&["RPUSH", "list", &format!("{round}:{n}")]));
        }
        source.send(encode(&["CLIENT", "KILL", "TYPE", "replica"]));
        (0..501).for_each(|_| assert_ne!(source.read_reply()[0], b'-'));
        // It is another link, on both sides.
        wait_until("the replica is back", || {
            let info = source.ask("INFO stats");
            text_field(&info, "sync_partial_ok") == (round + 1).to_string()
        });
    }
    same(&mut source, &mut client);
    let stats = source.ask("INFO stats");
    assert_eq!(text_field(&stats, "sync_full"), "1");
    assert_eq!(text_field(&stats, "sync_partial_ok"), "20");
    std::fs::remove_dir_all(&folder).ok();
}

/// Offsets, then digests.
#[track_caller]
fn same(primary: &mut Client, replica: &mut Client) {
    wait_until("the replica has the primary's offset", || {
        let offset = |client: &mut Client| {
            text_field(&client.ask("INFO replication"), "master_repl_offset").to_string()
        };
        offset(primary) == offset(replica)
    });
    assert_eq!(replica.ask("DEBUG DIGEST"), primary.ask("DEBUG DIGEST"));
}
