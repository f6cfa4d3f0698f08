//! Isotherm as a replica: of a primary that a test plays line by line, and of a real Valkey
//! (`ISOTHERM_PEER_BIN`, else a reported skip).

use crate::aof::Data;
use crate::common::{Client, Server, command, encode, read_some, text_field, wait_until};
use crate::peers;
use std::io::{ErrorKind, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::time::Duration;

pub const ID: &str = "0123456789012345678901234567890123456789";
const MARK: &str = "mmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmm";
pub const OTHER_ID: &str = "abcdefabcdefabcdefabcdefabcdefabcdefabcd";
/// Number of seconds after which a silence is too long. A primary that a test plays says nothing by itself,
/// and its machine may be busy.
const TIMEOUT_SECONDS: &str = "20";

// ---- a primary that a test plays ----

pub struct Primary {
    listener: TcpListener,
    pub replica: Server,
}

/// One connection of the replica.
pub struct Link {
    stream: TcpStream,
    left: Vec<u8>,
}

impl Primary {
    pub fn start(arguments: &[&str]) -> Primary {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        listener.set_nonblocking(true).unwrap();
        let port = listener.local_addr().unwrap().port().to_string();
        let own = ["--replicaof", "127.0.0.1", &port, "--repl-timeout", TIMEOUT_SECONDS];
        let debug = ["--enable-debug-command", "yes"];
        let replica = Server::with_workers(2, &[&own[..], &debug, arguments].concat());
        Primary { listener, replica }
    }

    /// The replica is what `spawn` makes of the primary's port.
    pub fn start_with(spawn: impl FnOnce(u16) -> Server) -> Primary {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        listener.set_nonblocking(true).unwrap();
        let replica = spawn(listener.local_addr().unwrap().port());
        Primary { listener, replica }
    }

    /// The replica comes back with these arguments, after whatever has ended it.
    pub fn start_again(&mut self, arguments: &[&str]) {
        let port = self.port().to_string();
        let own = ["--replicaof", "127.0.0.1", &port, "--repl-timeout", TIMEOUT_SECONDS];
        self.replica = Server::with_workers(2, &[&own[..], arguments].concat());
    }

    pub fn port(&self) -> u16 {
        self.listener.local_addr().unwrap().port()
    }

    /// The replica connects.
    #[track_caller]
    pub fn accept(&self) -> Link {
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
    pub fn shake_hands(&self) -> (Link, String) {
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
    pub fn sync(&self, keys: &[(&str, &str)], offset: u64) -> Link {
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
    pub fn send(&mut self, bytes: impl AsRef<[u8]>) {
        self.stream.write_all(bytes.as_ref()).unwrap();
    }

    /// Makes sent bytes go out at once, after bytes that are not acknowledged too.
    pub fn without_delay(&self) {
        self.stream.set_nodelay(true).unwrap();
    }

    /// Whether the replica still takes it.
    pub fn try_send(&mut self, bytes: &[u8]) -> bool {
        self.stream.write_all(bytes).is_ok()
    }

    pub fn send_command(&mut self, line: &str) -> u64 {
        let bytes = encode(&line.split(' ').collect::<Vec<_>>());
        self.send(&bytes);
        bytes.len() as u64
    }

    /// One request, its words between blanks.
    #[track_caller]
    pub fn request(&mut self) -> String {
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
    pub fn expect(&mut self, request: &str) {
        assert_eq!(self.request(), request);
    }

    /// An ACK of this offset comes, whatever else comes before.
    #[track_caller]
    pub fn expect_ack(&mut self, offset: u64) {
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
    pub fn expect_end(&mut self) {
        let mut bytes = Vec::new();
        if let Err(error) = self.stream.read_to_end(&mut bytes) {
            assert_eq!(error.kind(), ErrorKind::ConnectionReset, "{error}");
        }
    }

    #[track_caller]
    pub fn number(&mut self, prefix: char) -> usize {
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
    pub fn take(&mut self, count: usize) -> Vec<u8> {
        while self.left.len() < count {
            let mut bytes = [0; 4096];
            let read = read_some(&mut self.stream, &mut bytes).expect("the replica says something");
            assert!(read > 0, "the replica has closed the link");
            self.left.extend_from_slice(&bytes[..read]);
        }
        self.left.drain(..count).collect()
    }
}

/// An RDB file of version 11 with strings.
pub fn snapshot(keys: &[(&str, &str)]) -> Vec<u8> {
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
pub fn crc64(bytes: &[u8]) -> u64 {
    bytes.iter().fold(0, |sum, byte| {
        (0..8).fold(sum ^ u64::from(*byte), |sum, _| {
            (sum >> 1) ^ if sum & 1 == 1 { 0x95ac_9329_ac4b_c9b5 } else { 0 }
        })
    })
}

#[track_caller]
pub fn wait_for_field(client: &mut Client, name: &str, value: &str) {
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
    // The database that was selected is selected still.
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
fn a_pause_stops_the_stream() {
    let primary = Primary::start(&[]);
    let mut link = primary.sync(&[("a", "1")], 70);
    let mut client = primary.replica.client();
    let mut end = 70;
    for pause in ["CLIENT PAUSE 100000 WRITE", "CLIENT PAUSE 300 WRITE", "CLIENT PAUSE 300 ALL"] {
        wait_for_field(&mut client, "slave_repl_offset", &end.to_string());
        client.check(pause, "+OK\r\n");
        let sent = link.send_command("INCR a");
        // It is read, and would be applied at once: the second ACK, a second later, shows that it was not.
        if !pause.contains(" 300 ") {
            wait_for_field(&mut client, "slave_read_repl_offset", &(end + sent).to_string());
            (0..2).for_each(|_| link.expect_ack(end));
            assert_eq!(text_field(&client.ask("INFO replication"), "slave_repl_offset"), end.to_string());
            client.check("CLIENT UNPAUSE", "+OK\r\n");
        }
        end += sent;
        // Nothing more comes: the end of the pause is noticed by itself.
        wait_for_field(&mut client, "slave_repl_offset", &end.to_string());
    }
    client.check("GET a", "$1\r\n4\r\n");
}

#[test]
fn a_client_may_kill_the_link() {
    let primary = Primary::start(&[]);
    let mut link = primary.sync(&[("a", "1")], 70);
    let end = 70 + link.send_command("SET a 2");
    let mut client = primary.replica.client();
    wait_for_field(&mut client, "slave_repl_offset", &end.to_string());
    client.check("CLIENT KILL TYPE normal SKIPME yes", ":0\r\n");
    client.check("CLIENT KILL TYPE replica", ":0\r\n");
    client.check("CLIENT KILL TYPE primary", ":1\r\n");
    let (_link, asked) = primary.shake_hands();
    assert_eq!(asked, format!("{ID} {}", end + 1));
}

#[test]
fn the_append_only_file_can_be_switched_on_after_a_sync() {
    for promotes in [false, true] {
        let primary = Primary::start(&[]);
        let _link = primary.sync(&[("a", "1")], 70);
        let mut client = primary.replica.client();
        wait_for_field(&mut client, "master_link_status", "up");
        if promotes {
            client.check("REPLICAOF NO ONE", "+OK\r\n");
        }
        client.check("CONFIG SET appendonly yes", "+OK\r\n");
        wait_until("it is written", || client.ask("INFO persistence").contains("\naof_current_size:"));
    }
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

// ---- what a primary should not send ----

/// Whatever is wrong with a synchronization, the data that there is stays, and another attempt begins.
#[test]
fn bad_snapshots_leave_the_data() {
    let primary = Primary::start(&[]);
    let link = primary.sync(&[("kept", "1")], 100);
    drop(link);
    let mut client = primary.replica.client();
    let good = snapshot(&[("new", "2")]);
    let damaged = {
        let mut bytes = good.clone();
        bytes[14] ^= 1;
        bytes
    };
    let newer = {
        let mut bytes = b"REDIS0999".to_vec();
        bytes.extend_from_slice(&good[9..good.len() - 8]);
        let sum = crc64(&bytes);
        bytes.extend_from_slice(&sum.to_le_bytes());
        bytes
    };
    let framed = |bytes: &[u8], len: usize| [format!("${len}\r\n").into_bytes(), bytes.to_vec()].concat();
    let marked =
        |bytes: &[u8]| [format!("$EOF:{MARK}\r\n").into_bytes(), bytes.to_vec(), MARK.into()].concat();
    let full = format!("+FULLRESYNC {ID} 500\r\n").into_bytes();
    // Bytes that are sent after the question of PSYNC, and whether the connection is closed then.
    let cases: Vec<(&str, Vec<u8>, bool)> = vec![
        ("no id", b"+FULLRESYNC\r\n".to_vec(), false),
        ("a wrong id", b"+FULLRESYNC abc 5\r\n".to_vec(), false),
        ("an offset before the start", format!("+FULLRESYNC {ID} -5\r\n").into_bytes(), false),
        ("a continuation of nothing", b"+CONTINUE x\r\n".to_vec(), false),
        ("an error", b"-ERR what is this\r\n".to_vec(), false),
        ("later", b"-LOADING not now\r\n".to_vec(), false),
        ("no length", [&full[..], b"$\r\n"].concat(), false),
        ("a length that is none", [&full[..], b"$99999999999999999999\r\n"].concat(), false),
        ("an error where the snapshot was to begin", [&full[..], b"-ERR disk\r\n"].concat(), false),
        ("an end before the snapshot", full.clone(), true),
        ("an end within the snapshot", [&full[..], &framed(&good[..20], good.len())].concat(), true),
        ("a file that is shorter than itself", [&full[..], &framed(&good[..20], 20)].concat(), false),
        ("a length that is too small", [&full[..], &framed(&good, good.len() - 3)].concat(), false),
        (
            "a length that is too large",
            [&full[..], &framed(&[&good[..], b"xx"].concat(), good.len() + 2)].concat(),
            false,
        ),
        ("nothing at all", [&full[..], b"$0\r\n"].concat(), false),
        ("a damaged file", [&full[..], &framed(&damaged, damaged.len())].concat(), false),
        ("a file of a newer version", [&full[..], &framed(&newer, newer.len())].concat(), false),
        ("a mark within the data", [&full[..], &marked(&good[..20])].concat(), false),
        ("a mark that never comes", [&full[..], format!("$EOF:{MARK}\r\nREDIS").as_bytes()].concat(), true),
        ("garbage", b"HTTP/1.1 400 Bad Request\r\n".to_vec(), false),
    ];
    for (what, bytes, closes) in cases {
        let (mut link, asked) = primary.shake_hands();
        assert_eq!(asked, format!("{ID} 101"), "{what}: the place is kept");
        link.send(bytes);
        if closes {
            drop(link);
        } else {
            link.expect_end();
        }
        client.check("GET kept", "$1\r\n1\r\n");
        client.check("DBSIZE", ":1\r\n");
    }
    // After all that a good one is taken, and one at an earlier place.
    for (value, offset) in [("2", 600), ("3", 50)] {
        let mut link = primary.sync(&[("new", value)], offset);
        client.check("GET new", &format!("$1\r\n{value}\r\n"));
        client.check("DBSIZE", ":1\r\n");
        let end = offset + link.send_command("REPLCONF GETACK *");
        link.expect_ack(end);
    }
}

/// Data that a module has written cannot be kept: the sync fails by its name, and the next one that has none
/// is taken.
#[test]
fn a_snapshot_with_the_data_of_a_module() {
    const MODULE_VALUE: u8 = 7;
    let primary = Primary::start(&[]);
    let mut bytes = b"REDIS0011\xfe\x00".to_vec();
    // An id of 8 bytes, and the end of what it has written.
    bytes.extend_from_slice(&[MODULE_VALUE, 1, b'm', 0x81, 1, 2, 3, 4, 5, 6, 7, 8, 0, 0xff]);
    let sum = crc64(&bytes);
    bytes.extend_from_slice(&sum.to_le_bytes());
    for _ in 0..2 {
        let (mut link, _) = primary.shake_hands();
        link.send(format!("+FULLRESYNC {ID} 500\r\n${}\r\n", bytes.len()));
        link.send(&bytes);
        link.expect_end();
    }
    let log = primary.replica.log();
    assert!(log.contains("Failed trying to load the PRIMARY synchronization DB"), "{log}");
    let _link = primary.sync(&[("a", "1")], 600);
    primary.replica.client().check("GET a", "$1\r\n1\r\n");
}

#[test]
fn errors_and_silence_at_each_step() {
    let primary = Primary::start(&["--repl-timeout", "1"]);
    let mut client = primary.replica.client();
    // An error to a REPLCONF does no harm.
    let mut link = primary.accept();
    link.expect("PING");
    link.send("-NOAUTH Authentication required.\r\n");
    for _ in 0..3 {
        assert!(link.request().starts_with("REPLCONF"));
        link.send("-ERR unknown command\r\n");
    }
    link.expect("PSYNC ? -1");
    link.send("\n\n\n");
    // Silence, at any step.
    link.expect_end();
    primary.accept().expect_end();
    let mut link = primary.accept();
    link.expect("PING");
    link.expect_end();
    let mut link = primary.accept();
    link.expect("PING");
    link.send("-ERR go away\r\n");
    link.expect_end();
    // One that expects TLS, and one whose line does not end.
    for bytes in [b"\x15\x03\x03\x00\x02\x02\x46".to_vec(), vec![b'x'; 1 << 20]] {
        let mut link = primary.accept();
        link.expect("PING");
        let _ = link.try_send(&bytes);
        link.expect_end();
    }
    let (mut link, _) = primary.shake_hands();
    link.send(format!("+FULLRESYNC {ID} 7\r\n"));
    link.expect_end();
    let (mut link, _) = primary.shake_hands();
    link.send(format!("+FULLRESYNC {ID} 7\r\n$100\r\nREDIS"));
    wait_for_field(&mut client, "master_sync_in_progress", "1");
    wait_for_field(&mut client, "master_sync_left_bytes", "95");
    link.expect_end();
    let mut link = primary.sync(&[("a", "1")], 7);
    link.expect_end();
    let log = primary.replica.log();
    for line in [
        "Timeout connecting to the PRIMARY...",
        "Error reply to PING from primary: '-ERR go away'",
        "Timeout receiving bulk data from PRIMARY...",
        "PRIMARY timeout: no data nor PING received...",
    ] {
        assert!(log.contains(line), "{line}");
    }
}

#[test]
fn a_wrong_password() {
    let primary = Primary::start(&["--primaryauth", "secret", "--primaryuser", "ann"]);
    let mut link = primary.accept();
    link.expect("PING");
    link.send("+PONG\r\n");
    link.expect("AUTH ann secret");
    link.send("-WRONGPASS invalid username-password pair or user is disabled.\r\n");
    link.expect_end();
    primary.replica.wait_for_log("Unable to AUTH to PRIMARY: -WRONGPASS");
    // It is asked again, with what CONFIG SET says then.
    let mut client = primary.replica.client();
    client.check("CONFIG SET primaryauth other primaryuser bob", "+OK\r\n");
    wait_until("the new password is sent", || {
        let mut link = primary.accept();
        link.expect("PING");
        link.send("+PONG\r\n");
        link.request() == "AUTH bob other"
    });
}

#[test]
fn garbage_in_the_stream() {
    let primary = Primary::start(&["--client-query-buffer-limit", "1mb"]);
    let mut client = primary.replica.client();
    let mut link = primary.sync(&[("a", "1")], 100);
    let end = 100 + link.send_command("SELECT 0") + link.send_command("SET b 2");
    let long = "x".repeat(3 << 20);
    let endless =
        format!("*1\r\n$5\r\nMULTI\r\n{}", "*3\r\n$3\r\nSET\r\n$1\r\nb\r\n$1\r\n3\r\n".repeat(60_000));
    let in_transaction = "*1\r\n$5\r\nMULTI\r\n*1\r\n$5\r\nMULTI\r\n".to_string();
    for garbage in [
        "SET b 3\r\n".to_string(),
        "\r\n".into(),
        "*-1\r\n".into(),
        "*0\r\n".into(),
        "*3\r\n$3\r\nSET\r\n:5\r\n".into(),
        "*1\r\n$-5\r\n".into(),
        "*2\r\n$6\r\nSELECT\r\n$3\r\n999\r\n".into(),
        "*1\r\n$4\r\nEXEC\r\n".into(),
        in_transaction,
        format!("*3\r\n$3\r\nSET\r\n$1\r\nb\r\n$99999999\r\n{long}"),
        endless,
    ] {
        let shown = garbage[..garbage.len().min(40)].escape_debug().to_string();
        // It may be cut before all is written.
        let _ = link.stream.write_all(garbage.as_bytes());
        link.expect_end();
        client.check("GET b", "$1\r\n2\r\n");
        let (next, asked) = primary.shake_hands();
        link = next;
        // Where the same place is bad again, the data is asked for anew.
        let place = format!("{ID} {}", end + 1);
        assert!(asked == place || asked == "? -1", "{shown}: {asked}");
        if asked == place {
            link.send("+CONTINUE\r\n");
        } else {
            link.send(format!("+FULLRESYNC {ID} {end}\r\n"));
            let snapshot = snapshot(&[("b", "2")]);
            link.send(format!("${}\r\n", snapshot.len()));
            link.send(snapshot);
            link.expect_ack(end);
        }
    }
    // It still follows.
    link.send_command("SET b 4");
    wait_until("the stream goes on", || client.ask("GET b") == "$1\r\n4\r\n");
}

#[test]
fn commands_that_fail_here_are_counted_and_never_silent() {
    let primary = Primary::start(&["--propagation-error-behavior", "ignore"]);
    let mut client = primary.replica.client();
    let mut link = primary.sync(&[("text", "word")], 100);
    for command in ["NOSUCHCOMMAND a b", "INCR text", "SET", "SET after 1"] {
        link.send_command(command);
    }
    wait_until("the stream goes on", || client.ask("GET after") == "$1\r\n1\r\n");
    // Counted when the thread has done what it had read.
    let mut errors = || text_field(&client.ask("INFO stats"), "unexpected_error_replies").to_string();
    wait_until("the errors are counted", || errors() == "3");
    let info = client.ask("INFO replication");
    assert_eq!(text_field(&info, "repl_unknown_commands"), "1");
    let log = primary.replica.log();
    for line in [
        "== CRITICAL == This replica is sending an error to its primary: '-ERR unknown command 'NOSUCHCOMMAND', with args \
         beginning with: 'a' 'b' ' after processing the command '<unknown>'",
        "'-ERR value is not an integer or out of range' after processing the command 'incr'",
        "'-ERR wrong number of arguments for 'set' command' after processing the command 'set'",
    ] {
        assert!(log.contains(line), "{line}\n{log}");
    }
    client.check("CONFIG SET propagation-error-behavior panic-on-replicas", "+OK\r\n");
    link.send_command("INCR text");
    primary.replica.wait_for_log(
        "This replica panicked sending an error to its primary after processing the command 'incr'",
    );
}

#[test]
fn messages_of_the_primary_reach_subscribers() {
    let primary = Primary::start(&[]);
    let mut link = primary.sync(&[], 100);
    let mut listener = primary.replica.client();
    listener.check("SUBSCRIBE news", "*3\r\n$9\r\nsubscribe\r\n$4\r\nnews\r\n:1\r\n");
    link.send_command("PUBLISH news hello");
    listener.expect("*3\r\n$7\r\nmessage\r\n$4\r\nnews\r\n$5\r\nhello\r\n");
}

/// MONITOR shows what a Valkey shows: the transaction in the order MULTI, its commands, EXEC, and nothing
/// that administrators send.
#[test]
fn the_stream_is_monitored() {
    let primary = Primary::start(&["--bind-source-addr", "127.0.0.3"]);
    let mut link = primary.sync(&[], 100);
    assert_eq!(link.stream.peer_addr().unwrap().ip().to_string(), "127.0.0.3");
    let mut monitor = primary.replica.client();
    monitor.check("MONITOR", "+OK\r\n");
    let commands = [
        "SELECT 2",
        "SET a 1",
        "MULTI",
        "INCR a",
        "PUBLISH news hello",
        "EXEC",
        "PING",
        "REPLCONF GETACK *",
        "DEL a",
    ];
    let from = format!("[2 127.0.0.1:{}]", primary.port());
    commands.iter().for_each(|command| _ = link.send_command(command));
    for command in commands.iter().filter(|command| !command.starts_with("REPLCONF")) {
        let line = String::from_utf8(monitor.read_reply()).unwrap();
        let words: String = command.split(' ').map(|word| format!(" \"{word}\"")).collect();
        assert!(line.trim_end().ends_with(&format!("{from}{words}")), "{line}");
    }
}

#[test]
fn waiting_clients_hear_of_the_role() {
    let primary = Primary::start(&[]);
    let _link = primary.sync(&[], 100);
    let mut client = primary.replica.client();
    client.check("REPLICAOF NO ONE", "+OK\r\n");
    let mut waiting = primary.replica.client();
    waiting.send(encode(&["BLPOP", "list", "0"]));
    wait_until("it waits", || client.blocked_count() == 1);
    client.check(&format!("REPLICAOF 127.0.0.1 {}", primary.port()), "+OK\r\n");
    waiting.expect(
        "-UNBLOCKED force unblock from blocking operation, instance state changed (master -> replica?)\r\n",
    );
    waiting.expect_end();
}

#[test]
fn stale_data_and_keys_whose_time_has_come() {
    let primary = Primary::start(&["--replica-serve-stale-data", "no"]);
    let mut client = primary.replica.client();
    const DOWN: &str =
        "-MASTERDOWN Link with MASTER is down and replica-serve-stale-data is set to 'no'.\r\n";
    client.check("GET a", DOWN);
    client.check("PING", DOWN);
    let mut link = primary.sync(&[("a", "1")], 100);
    wait_for_field(&mut client, "master_link_status", "up");
    client.check("GET a", "$1\r\n1\r\n");
    // It is hidden, and stays until the primary removes it.
    link.send_command("SET short 1 PXAT 1000000000000");
    wait_until("it has come", || client.ask("DBSIZE") == ":2\r\n");
    client.check("GET short", "$-1\r\n");
    client.check("DBSIZE", ":2\r\n");
    link.send_command("DEL short");
    wait_until("it is removed", || client.ask("DBSIZE") == ":1\r\n");
    drop(link);
    wait_until("stale data is refused", || client.ask("GET a") == DOWN);
    client.check("CONFIG SET replica-serve-stale-data yes", "+OK\r\n");
    client.check("GET a", "$1\r\n1\r\n");
}

/// The primary knows nothing of the keys of a replica's own clients, and sends no DEL for them.
#[test]
fn a_writable_replica_expires_what_its_clients_wrote() {
    let primary = Primary::start(&["--replica-read-only", "no"]);
    let mut link = primary.sync(&[("a", "1")], 100);
    let mut client = primary.replica.client();
    wait_for_field(&mut client, "master_link_status", "up");
    client.check("DEBUG SET-ACTIVE-EXPIRE 0", "+OK\r\n");
    // Its primary's, whose time is over: it stays until that removes it.
    link.send_command("SET theirs 1 PXAT 1000000000000");
    wait_until("it has come", || client.ask("DBSIZE") == ":2\r\n");
    client.check("SET own 1 PX 1", "+OK\r\n");
    client.check("SET kept 1 PX 100000", "+OK\r\n");
    client.check("SET no-more 1 PX 1", "+OK\r\n");
    client.check("SET no-more 1", "+OK\r\n");
    client.check("MULTI", "+OK\r\n");
    client.check("SET in-exec 1 PX 1", "+QUEUED\r\n");
    client.check("EXEC", "*1\r\n+OK\r\n");
    let tracked =
        |client: &mut Client| text_field(&client.ask("INFO stats"), "slave_expires_tracked_keys").to_string();
    assert_eq!(tracked(&mut client), "3");
    client.check("DBSIZE", ":6\r\n");
    client.check("DEBUG SET-ACTIVE-EXPIRE 1", "+OK\r\n");
    wait_until("both are gone", || client.ask("DBSIZE") == ":4\r\n");
    client.check("EXISTS kept no-more own in-exec", ":2\r\n");
    assert_eq!(tracked(&mut client), "1");
    // With another role the keys are expired as all others are.
    client.check("REPLICAOF NO ONE", "+OK\r\n");
    assert_eq!(tracked(&mut client), "0");
}

/// A host comes back with another history and without data: a process that was started again too soon, or on
/// another disk.
#[test]
fn an_empty_primary_is_not_followed() {
    for diskless in ["disabled", "flush-before-load"] {
        let primary = Primary::start(&["--repl-diskless-load", diskless]);
        drop(primary.sync(&[("a", "1")], 100));
        let mut client = primary.replica.client();
        for _ in 0..2 {
            let (mut link, asked) = primary.shake_hands();
            assert_eq!(asked, format!("{ID} 101"));
            let empty = snapshot(&[]);
            link.send(format!("+FULLRESYNC {OTHER_ID} 0\r\n${}\r\n", empty.len()));
            link.send(empty);
            link.expect_end();
            client.check("GET a", "$1\r\n1\r\n");
            wait_for_field(&mut client, "master_refused", "empty");
        }
        // With data it is followed again, and without it where REPLICAOF is repeated.
        let keys = snapshot(&[("b", "2")]);
        let (mut link, _) = primary.shake_hands();
        link.send(format!("+FULLRESYNC {OTHER_ID} 0\r\n${}\r\n", keys.len()));
        link.send(keys);
        link.expect_ack(0);
        client.check("GET a", "$-1\r\n");
        client.check("GET b", "$1\r\n2\r\n");
        drop(link);
        let port = primary.port();
        for attempt in 0..2 {
            let (mut link, _) = primary.shake_hands();
            let empty = snapshot(&[]);
            link.send(format!("+FULLRESYNC {ID} 0\r\n${}\r\n", empty.len()));
            link.send(empty);
            if attempt == 0 {
                link.expect_end();
                wait_for_field(&mut client, "master_refused", "empty");
                client.check(
                    &format!("REPLICAOF 127.0.0.1 {port}"),
                    "+OK Already connected to specified master\r\n",
                );
            } else {
                link.expect_ack(0);
            }
        }
        client.check("DBSIZE", ":0\r\n");
    }
}

/// Straight from the socket into an empty keyspace.
#[test]
fn snapshots_without_a_file() {
    let data = Data::new();
    let folder = data.0.to_str().unwrap();
    let arguments = [
        "--dir",
        folder,
        "--repl-diskless-load",
        "flush-before-load",
        "--replica-refuse-empty-primary",
        "no",
    ];
    let primary = Primary::start(&arguments);
    let mut client = primary.replica.client();
    let keys: Vec<(String, String)> = (0..3000).map(|n| (format!("key:{n}"), format!("value:{n}"))).collect();
    let keys: Vec<(&str, &str)> = keys.iter().map(|(key, value)| (&**key, &**value)).collect();
    let large = snapshot(&keys);
    let mut offset = 0;
    for (frame, mark) in [(format!("${}\r\n", large.len()), ""), (format!("$EOF:{MARK}\r\n"), MARK)] {
        offset += 100;
        let (mut link, _) = primary.shake_hands();
        link.send(format!("+FULLRESYNC {ID} {offset}\r\n{frame}"));
        for part in large.chunks(1000) {
            link.send(part);
        }
        for byte in mark.as_bytes() {
            link.send([*byte]);
        }
        link.expect_ack(offset);
        client.check("DBSIZE", ":3000\r\n");
        let end = offset + link.send_command("SET after 1") + link.send_command("REPLCONF GETACK *");
        link.expect_ack(end);
        // Whatever it has, it is asked for anew.
        drop(link);
    }
    let names = || std::fs::read_dir(&data.0).unwrap().count();
    assert_eq!(names(), 0, "there is no file");
    // A snapshot that breaks off leaves nothing half loaded, and no place to continue from.
    let newer = b"REDIS0999".to_vec();
    let broken_mark = [&large[..], &MARK.as_bytes()[1..], b"x"].concat();
    for (what, bytes, frame, keys) in [
        ("a version that is not read", &newer[..], "$9".to_string(), ":3001\r\n"),
        ("an end in the middle", &large[..2000], format!("${}", large.len()), ":0\r\n"),
        ("another mark", &broken_mark, format!("$EOF:{MARK}"), ":0\r\n"),
        ("a length that is too large", &broken_mark, format!("${}", broken_mark.len()), ":0\r\n"),
    ] {
        let (mut link, _) = primary.shake_hands();
        link.send(format!("+FULLRESYNC {ID} 900\r\n{frame}\r\n"));
        let _ = link.stream.write_all(bytes);
        if what == "an end in the middle" {
            drop(link);
        } else {
            link.expect_end();
        }
        wait_until(what, || client.ask("DBSIZE") == keys);
    }
    drop(primary.shake_hands());
    let (_link, asked) = primary.shake_hands();
    assert_eq!(asked, "? -1");
}

// ---- restarts ----

/// Checks the place that the replica asks for after its restart, and that a command then reaches it without a
/// SELECT.
#[track_caller]
pub fn goes_on_behind(primary: &Primary, end: u64, db: u32) {
    let (mut link, asked) = primary.shake_hands();
    assert_eq!(asked, format!("{ID} {}", end + 1));
    link.send("+CONTINUE\r\n");
    let sent = link.send_command("SET after restart");
    let asked = link.send_command("REPLCONF GETACK *");
    link.expect_ack(end + sent + asked);
    let mut client = primary.replica.client();
    client.check(&format!("SELECT {db}"), "+OK\r\n");
    client.check("GET after", "$7\r\nrestart\r\n");
    client.check("GET before", "$7\r\nrestart\r\n");
}

#[test]
fn goes_on_after_a_restart_with_an_rdb_file() {
    let data = Data::new();
    let folder = data.0.to_str().unwrap();
    let mut primary = Primary::start(&["--dir", folder, "--save", "3600 1"]);
    let mut link = primary.sync(&[("a", "1")], 70);
    let mut end = 70 + link.send_command("SELECT 5") + link.send_command("SET before restart");
    end += link.send_command("REPLCONF GETACK *");
    link.expect_ack(end);
    primary.replica.signal("TERM");
    primary.replica.wait();
    drop(link);
    primary.start_again(&["--dir", folder]);
    goes_on_behind(&primary, end, 5);
}

/// A primary's replicas go on after its restart.
#[test]
fn a_primary_that_starts_again_is_followed_where_it_was() {
    for (kills, arguments) in [
        (false, &["--save", "3600 1"][..]),
        (false, &["--appendonly", "yes"]),
        (true, &["--appendonly", "yes", "--appendfsync", "always"]),
    ] {
        let data = Data::new();
        let port = crate::common::free_port();
        let port_text = port.to_string();
        let all = [
            &["--port", &port_text, "--bind", "127.0.0.1", "--dir", data.0.to_str().unwrap()][..],
            &["--repl-diskless-sync-delay", "0", "--io-threads", "2", "--enable-debug-command", "yes"],
            arguments,
        ]
        .concat();
        let mut server = Server::spawn(port, command(&all));
        wait_until("it listens", || TcpStream::connect(("127.0.0.1", port)).is_ok());
        let replica = Server::with_workers(2, &["--replicaof", "127.0.0.1", &port_text]);
        let mut follower = replica.client();
        wait_for_field(&mut follower, "master_link_status", "up");
        let mut client = server.client();
        client.check("SELECT 3", "+OK\r\n");
        client.check("SET a 1", "+OK\r\n");
        client.check("DEBUG SET-ACTIVE-EXPIRE 0", "+OK\r\n");
        client.check("SET over 1 PX 1", "+OK\r\n");
        same_offset(&mut client, &mut follower);
        server.signal(if kills { "KILL" } else { "TERM" });
        server.wait();
        server = Server::spawn(port, command(&all));
        wait_until("it listens", || TcpStream::connect(("127.0.0.1", port)).is_ok());
        wait_for_field(&mut follower, "master_link_status", "up");
        let mut client = server.client();
        client.check("SELECT 3", "+OK\r\n");
        client.check("SET b 2", "+OK\r\n");
        same_offset(&mut client, &mut follower);
        // Keys that were over at the start leave the replica too.
        follower.check("SELECT 3", "+OK\r\n");
        wait_until("the key is gone", || follower.ask("DBSIZE") == ":2\r\n");
        let stats = client.ask("INFO stats");
        assert_eq!(
            (text_field(&stats, "sync_full"), text_field(&stats, "sync_partial_ok")),
            ("0", "1"),
            "{arguments:?}"
        );
        follower.check("SELECT 3", "+OK\r\n");
        follower.check("GET a", "$1\r\n1\r\n");
        follower.check("GET b", "$1\r\n2\r\n");
    }
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
    // The link is killed while it is busy: it continues in parts.
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

#[track_caller]
fn same_offset(primary: &mut Client, replica: &mut Client) {
    let offset =
        |client: &mut Client| text_field(&client.ask("INFO replication"), "master_repl_offset").to_string();
    wait_until("the replica has the primary's offset", || offset(primary) == offset(replica));
}

/// Offsets, then digests.
#[track_caller]
fn same(primary: &mut Client, replica: &mut Client) {
    same_offset(primary, replica);
    assert_eq!(replica.ask("DEBUG DIGEST"), primary.ask("DEBUG DIGEST"));
}
