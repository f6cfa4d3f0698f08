//! MONITOR: a line for every command that ran, in the order in which they ran.

use crate::common::{Client, Server, encode};

const OK: &str = "+OK\r\n";

/// The line after its time: "[0 127.0.0.1:4711] ...", without the port.
fn line(client: &mut Client) -> String {
    let line = String::from_utf8(client.read_reply()).unwrap();
    let (time, rest) = line.trim_end().split_once(' ').unwrap();
    let (seconds, micros) = time.strip_prefix('+').unwrap().split_once('.').unwrap();
    assert!(seconds.parse::<u64>().unwrap() > 1_700_000_000 && micros.len() == 6, "{line}");
    let (from, command) = rest.split_once("] ").unwrap();
    format!("{}] {command}", from.rsplit_once(':').unwrap().0)
}

#[test]
fn every_command_is_seen() {
    for workers in [1, 3] {
        let server = Server::with_workers(workers, &["--requirepass", "secret"]);
        let (mut sees, mut works) = (server.client(), server.client());
        sees.check("AUTH secret", OK);
        sees.check("MONITOR", OK);
        works.check("AUTH secret", OK);
        assert!(works.ask("HELLO 3 AUTH default secret SETNAME me").starts_with('%'));
        works.check("SELECT 3", OK);
        works.send(encode(&[&b"SET"[..], b"k\"\\\x00\xff\n", b"v"]));
        works.expect(OK);
        // Those of administrators are not shown, nor what was refused.
        works.check("CONFIG SET maxmemory 0", OK);
        assert!(works.ask("NONSENSE").starts_with("-ERR unknown command"));
        works.check("MULTI", OK);
        works.check("GET a", "+QUEUED\r\n");
        works.check("EXEC", "*1\r\n_\r\n");
        works.check("MULTI", OK);
        assert!(works.ask("NONSENSE").starts_with("-ERR"));
        assert!(works.ask("EXEC").starts_with("-EXECABORT"));
        assert!(works.ask("INCR").starts_with("-ERR wrong number"));
        for expected in [
            r#"[0 127.0.0.1] "AUTH" "(redacted)""#,
            r#"[0 127.0.0.1] "HELLO" "3" "AUTH" "(redacted)" "(redacted)" "SETNAME" "me""#,
            r#"[3 127.0.0.1] "SELECT" "3""#,
            r#"[3 127.0.0.1] "SET" "k\"\\\x00\xff\n" "v""#,
            r#"[3 127.0.0.1] "MULTI""#,
            r#"[3 127.0.0.1] "GET" "a""#,
            r#"[3 127.0.0.1] "EXEC""#,
            r#"[3 127.0.0.1] "MULTI""#,
            r#"[3 127.0.0.1] "EXEC""#,
        ] {
            assert_eq!(line(&mut sees), expected);
        }
        let list = works.ask("CLIENT LIST");
        assert!(list.contains("flags=O "), "{list}");
    }
}

/// All monitors see one order, and nothing is sent when there is none.
#[test]
fn monitors_come_and_go() {
    let server = Server::with_workers(3, &[]);
    let mut monitors: Vec<Client> = (0..3).map(|_| server.client()).collect();
    monitors.iter_mut().for_each(|client| client.check("MONITOR", OK));
    std::thread::scope(|scope| {
        for worker in 0..3 {
            let mut client = server.client();
            scope.spawn(move || (0..300).for_each(|at| client.check(&format!("SET {worker} {at}"), OK)));
        }
    });
    let seen: Vec<Vec<String>> =
        monitors.iter_mut().map(|client| (0..900).map(|_| line(client)).collect()).collect();
    assert!(seen.iter().all(|other| *other == seen[0]));
    monitors[0].check("RESET", "+RESET\r\n");
    drop(monitors.drain(1..));
    let mut client = server.client();
    client.check("SET k v", OK);
    monitors[0].check("PING", "+PONG\r\n");
    monitors[0].expect_silence();
}
