//! Former holes in servers that run scripts, in the server around the interpreter. (Those of Lua and of the
//! libraries are tests of the crate `script`.)

use std::net::TcpStream;
use std::time::Duration;

use crate::common::{Client, Server, encode, wait_until};
use crate::replica::Primary;

const OK: &str = "+OK\r\n";

fn run(client: &mut Client, words: &[&str]) -> String {
    client.send(encode(words));
    String::from_utf8_lossy(&client.read_reply()).into_owned()
}

/// Something has come to be read.
fn has_reply(stream: &TcpStream) -> bool {
    stream.set_read_timeout(Some(Duration::from_millis(50))).unwrap();
    let came = stream.peek(&mut [0]).is_ok();
    stream.set_read_timeout(Some(crate::common::PATIENCE)).unwrap();
    came
}

/// Ends the script of this client by others. Some of them are clients of another worker.
fn kill(others: &mut [Client], client: &Client) {
    wait_until("the script is killed", || {
        others.iter_mut().for_each(|other| other.send(encode(&["SCRIPT", "KILL"])));
        has_reply(&client.stream)
    });
}

/// A full synchronization replaces what a running script looks at: the data, and the libraries that functions
/// come from.
#[test]
fn cve_2026_23631_full_sync_while_a_script_runs() {
    let primary = Primary::start(&[]);
    let link = primary.sync(&[("old", "1")], 70);
    let mut others: Vec<Client> = (0..8).map(|_| primary.replica.client()).collect();
    let mut client = primary.replica.client();
    client.check("GET old", "$1\r\n1\r\n");
    let script = "local n = 0 while true do n = n + 1 redis.call('GET', KEYS[1]) redis.call('SCAN', '0') end";
    client.send(encode(&["EVAL", script, "1", "old"]));
    assert!(!has_reply(&client.stream), "it runs");
    drop(link);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            // The synchronization begins meanwhile, or waits.
            std::thread::sleep(Duration::from_millis(1500));
            kill(&mut others, &client);
        });
        let _link = primary.sync(&[("new", "2")], 500);
    });
    let reply = String::from_utf8_lossy(&client.read_reply()).into_owned();
    assert!(reply.contains("Script killed by user with SCRIPT KILL."), "{reply}");
    let mut other = primary.replica.client();
    assert_eq!(
        run(&mut other, &["EVAL", "return redis.call('MGET', 'old', 'new')", "0"]),
        "*2\r\n$-1\r\n$1\r\n2\r\n"
    );
    assert_eq!(run(&mut other, &["EVAL", "return 1", "0"]), ":1\r\n");
}

/// The debugger's commands kept a pointer to an interpreter that a flush had freed. It needed no password.
#[test]
fn ghsa_fq2f_crmw_q97r_debugger_after_a_flush() {
    let mut server = Server::with_workers(2, &[]);
    for round in 0..20 {
        let mut client = server.client();
        for mode in ["SYNC", "YES", "NO"] {
            let reply = client.ask(&format!("SCRIPT DEBUG {mode}"));
            assert!(reply.starts_with(['+', '-']), "{reply}");
        }
        assert_eq!(run(&mut client, &["EVAL", "return ARGV[1]", "0", "x"]), "$1\r\nx\r\n");
        // By another client, in both ways, and an interpreter with other rights.
        let mut other = server.client();
        other.check(if round % 2 == 0 { "SCRIPT FLUSH SYNC" } else { "SCRIPT FLUSH ASYNC" }, OK);
        // A debugger that is entered reads from this client, which leaves in the middle of that.
        client.ask("SCRIPT DEBUG SYNC");
        client.send(encode(&["EVAL", "local a = 1 return a", "0"]));
        client.send("*1\r\n$4\r\nhelp\r\n*2\r\n$5\r\nprint\r\n$1\r\na\r\n");
        drop(client);
        other.check("PING", "+PONG\r\n");
    }
    assert!(server.is_alive());
    // And of a client that has not said its password nothing is taken.
    server.client().check("CONFIG SET requirepass secret", OK);
    server.client().check("SCRIPT DEBUG SYNC", "-NOAUTH Authentication required.\r\n");
    server.client().check("SCRIPT FLUSH", "-NOAUTH Authentication required.\r\n");
}

/// A script holds data of a client that is gone.
#[test]
fn a_caller_that_leaves_in_mid_run() {
    let mut server = Server::with_workers(2, &[]);
    for _ in 0..10 {
        let mut client = server.client();
        let script =
            "for i = 1, 200000 do redis.call('SET', KEYS[1], ARGV[1]) end return redis.call('GET', KEYS[1])";
        client.send(encode(&["EVAL", script, "1", "k", &"v".repeat(1000)]));
        drop(client);
    }
    assert_eq!(run(&mut server.client(), &["EVAL", "return 1", "0"]), ":1\r\n");
    assert!(server.is_alive());
}
