//! Scripts that are debugged: sessions, the clients that wait meanwhile, and the events that end them.

use std::time::Duration;

use crate::common::{Client, PATIENCE, Server, encode, field, wait_until};

const OK: &str = "+OK\r\n";
const KILLED: &str = "-ERR Script killed by user with SCRIPT KILL. script: on @user_script:1.\r\n";
const END: &str = "*1\r\n+<endsession>\r\n";
/// Runs until it is killed.
const ENDLESS: &str = "while true do end";

fn reply(client: &mut Client) -> String {
    String::from_utf8_lossy(&client.read_reply()).into_owned()
}

/// A command of the debugger; code is one word.
fn ask(client: &mut Client, line: &str) -> String {
    let words: Vec<&str> = match line.split_once(' ') {
        Some(("eval", code)) => vec!["eval", code],
        _ => line.split(' ').collect(),
    };
    client.send(encode(&words));
    reply(client)
}

/// Begins a session. Returns the output at the first line.
fn begin(client: &mut Client, script: &str, keys: &[&str]) -> String {
    client.check("SCRIPT DEBUG SYNC", OK);
    let count = keys.len().to_string();
    client.send(encode(&[&["EVAL", script, &count], keys].concat()));
    reply(client)
}

fn stopped(line: usize, text: &str) -> String {
    format!("*2\r\n+* Stopped at {line}, stop reason = step over\r\n+-> {line:<3} {text}\r\n")
}

fn on_both(test: impl Fn(&Server)) {
    for workers in [1, 4] {
        test(&Server::with_workers(workers, &["--enable-debug-command", "yes"]));
    }
}

/// Whether nothing comes for a while.
fn waits(client: &mut Client) -> bool {
    client.stream.set_read_timeout(Some(Duration::from_millis(50))).unwrap();
    let nothing = client.stream.peek(&mut [0]).is_err();
    client.stream.set_read_timeout(Some(PATIENCE)).unwrap();
    nothing
}

#[track_caller]
fn wait_for_long(other: &mut Client, count: u64) {
    wait_until("scripts that take long", || field(&other.ask("INFO stats"), "long_scripts") == count);
}

#[test]
fn a_session() {
    on_both(|server| {
        let mut client = server.client();
        let script = "local a = 1\nredis.call('SET', KEYS[1], 'v')\nlocal b = redis.call('GET', KEYS[1])\nredis.debug(a, b)\nreturn b";
        assert_eq!(begin(&mut client, script, &["k"]), stopped(1, "local a = 1"));
        assert_eq!(
            ask(&mut client, "list 1 1"),
            "*2\r\n+-> 1   local a = 1\r\n+   2   redis.call('SET', KEYS[1], 'v')\r\n"
        );
        assert_eq!(ask(&mut client, "s"), stopped(2, "redis.call('SET', KEYS[1], 'v')"));
        assert_eq!(ask(&mut client, "print"), "*1\r\n+<value> a = 1\r\n");
        assert_eq!(ask(&mut client, "print KEYS"), "*1\r\n+<value> {k; }\r\n");
        assert_eq!(
            ask(&mut client, "n"),
            "*4\r\n+<command> SET k v\r\n+<reply> \"+OK\"\r\n+* Stopped at 3, stop reason = step over\r\n\
             +-> 3   local b = redis.call('GET', KEYS[1])\r\n"
        );
        assert_eq!(ask(&mut client, "eval 1 + #ARGV"), "*1\r\n+<retval> 1\r\n");
        assert_eq!(ask(&mut client, "eval error('x')"), "*1\r\n+<error> ldb_eval:1: x\r\n");
        assert_eq!(ask(&mut client, "redis incr n"), "*2\r\n+<command> incr n\r\n+<reply> 1\r\n");
        assert_eq!(
            ask(&mut client, "redis incr k"),
            "*3\r\n+<command> incr k\r\n+<reply> \"-ERR value is not an integer or out of range\"\r\n\
             +<error> -ERR value is not an integer or out of range  \r\n"
        );
        assert_eq!(
            ask(&mut client, "trace"),
            "*2\r\n+In top level:\r\n+-> 3   local b = redis.call('GET', KEYS[1])\r\n"
        );
        assert_eq!(ask(&mut client, "break 5"), "*2\r\n+   4   redis.debug(a, b)\r\n+  #5   return b\r\n");
        assert_eq!(
            ask(&mut client, "c"),
            "*3\r\n+<debug> line 4: 1, v\r\n+* Stopped at 5, stop reason = break point\r\n+->#5   return b\r\n"
        );
        assert_eq!(ask(&mut client, "c"), END);
        assert_eq!(reply(&mut client), "$1\r\nv\r\n");
        client.expect_end();
        server.client().check("MGET k n", "*2\r\n$1\r\nv\r\n$1\r\n1\r\n");
    });
}

#[test]
fn what_is_refused() {
    let server = Server::with_workers(2, &[]);
    let mut client = server.client();
    client.check(
        "SCRIPT DEBUG YES",
        "-ERR Scripts can't be debugged in a forked session here, use SCRIPT DEBUG SYNC\r\n",
    );
    client.check("SCRIPT DEBUG maybe", "-ERR Use SCRIPT DEBUG YES/SYNC/NO\r\n");
    client.check(
        "SCRIPT DEBUG SYNC hello",
        "-ERR No scripting engine found with name 'hello' to enable debug\r\n",
    );
    client.check("SCRIPT DEBUG SYNC LUA", OK);
    client.check(
        "EVALSHA ffffffffffffffffffffffffffffffffffffffff 0",
        "-ERR Please use EVAL instead of EVALSHA for debugging\r\n",
    );
    client.check("EVALSHA f 0", "-NOSCRIPT No matching script.\r\n");
    client.check("MULTI", OK);
    client.check("EVAL x=1 0", "+QUEUED\r\n");
    client.check("EXEC", "*1\r\n-ERR Scripts can't be debugged within MULTI\r\n");
    client.check("SCRIPT DEBUG NO", OK);
    client.check("EVAL return(1) 0", ":1\r\n");
    client.check("SCRIPT DEBUG SYNC", OK);
    client.check("RESET", "+RESET\r\n");
    client.check("EVAL return(1) 0", ":1\r\n");
    // A script that cannot begin ends the session, and the connection.
    let cases = [
        (
            "EVAL foo( 0",
            "-ERR Error compiling script (new function): user_script:1: unexpected symbol near '<eof>'\r\n",
        ),
        ("EVAL return(1) x", "-ERR value is not an integer or out of range\r\n"),
    ];
    for (line, error) in cases {
        let mut client = server.client();
        client.check("SCRIPT DEBUG SYNC", OK);
        client.check(line, END);
        client.expect(error);
        client.expect_end();
    }
}

#[test]
fn others_go_on_beside_it() {
    on_both(|server| {
        let (mut client, mut other) = (server.client(), server.client());
        other.check("MSET mine 1 theirs 2", OK);
        // A text that is new is not known to look at its own keys only.
        other.check("EVAL return(KEYS[1]) 1 theirs", "$6\r\ntheirs\r\n");
        begin(&mut client, "redis.call('INCR', KEYS[1])\nreturn 1", &["mine"]);
        wait_for_long(&mut other, 1);
        let mut same = server.client();
        same.send(encode(&["GET", "mine"]));
        for (command, reply) in [
            ("GET theirs", "$1\r\n2\r\n"),
            ("PING", "+PONG\r\n"),
            ("EVAL return(KEYS[1]) 1 theirs", "$6\r\ntheirs\r\n"),
        ] {
            other.check(command, reply);
        }
        assert!(waits(&mut same));
        // Keys that it meets are its own too, from then on.
        assert_eq!(ask(&mut client, "redis set met 1"), "*2\r\n+<command> set met 1\r\n+<reply> \"+OK\"\r\n");
        let mut met = server.client();
        met.send(encode(&["GET", "met"]));
        assert!(waits(&mut met));
        assert!(ask(&mut client, "c").starts_with(END));
        assert_eq!(reply(&mut client), ":1\r\n");
        same.expect("$1\r\n2\r\n");
        met.expect("$1\r\n1\r\n");
        wait_for_long(&mut other, 0);
    });
}

#[test]
fn who_waits_for_long_gets_an_error() {
    on_both(|server| {
        let (mut client, mut other) = (server.client(), server.client());
        other.check("CONFIG SET busy-reply-threshold 100", OK);
        begin(&mut client, "return redis.call('GET', KEYS[1])", &["mine"]);
        other.send(encode(&["GET", "mine"]));
        assert!(reply(&mut other).starts_with("-BUSY "));
        // A second session waits like other clients.
        let mut second = server.client();
        assert!(begin(&mut second, "return 1", &[]).starts_with("-BUSY "));
        other.check("SCRIPT KILL", OK);
        assert_eq!(reply(&mut client), END);
        client.expect(KILLED);
        client.expect_end();
        other.check("GET mine", "$-1\r\n");
        second.send(encode(&["EVAL", "return 1", "0"]));
        assert_eq!(reply(&mut second), stopped(1, "return 1"));
    });
}

#[test]
fn script_kill_ends_what_loops() {
    on_both(|server| {
        let mut other = server.client();
        // In the script, in code of the user, in a command of the user that fails.
        for (script, line) in [
            (format!("local a = 1 {ENDLESS}"), "c"),
            ("return 1".to_string(), "eval while true do end"),
            ("return 1".to_string(), "eval while true do pcall(error) end"),
            ("return 1".to_string(), "eval string.rep('x', 1e9):find(('x*'):rep(30) .. 'y')"),
        ] {
            let mut client = server.client();
            begin(&mut client, &script, &[]);
            let words: Vec<&str> = line.splitn(2, ' ').collect();
            client.send(encode(&words));
            wait_for_long(&mut other, 1);
            std::thread::sleep(Duration::from_millis(20));
            other.check("PING", "+PONG\r\n");
            other.check("SCRIPT KILL", OK);
            assert!(reply(&mut client).ends_with("+<endsession>\r\n"), "{line}");
            assert!(reply(&mut client).starts_with("-ERR Script killed by user with SCRIPT KILL."), "{line}");
            client.expect_end();
            wait_for_long(&mut other, 0);
        }
    });
}

#[test]
fn a_client_that_is_gone() {
    on_both(|server| {
        let mut other = server.client();
        let script =
            "redis.call('SET', KEYS[1], 1)\nredis.breakpoint()\nredis.call('SET', KEYS[2], 2)\nreturn 1";
        for by in ["kill", "close", "half", "end"] {
            other.check("DEL a b", if by == "kill" { ":0\r\n" } else { ":2\r\n" });
            let mut client = server.client();
            let id = client.id();
            begin(&mut client, script, &["a", "b"]);
            ask(&mut client, "b 3");
            // As in Valkey the script runs to its end.
            match by {
                "kill" => other.check(&format!("CLIENT KILL ID {id}"), ":1\r\n"),
                "close" => drop(client),
                "half" => {
                    client.stream.shutdown(std::net::Shutdown::Write).unwrap();
                    assert!(reply(&mut client).ends_with("+<endsession>\r\n"));
                    client.expect(":1\r\n");
                    client.expect_end();
                }
                // After commands that were sent before.
                _ => {
                    client.send([encode(&["redis", "set", "c", "3"]), encode(&["s"])].concat());
                    client.stream.shutdown(std::net::Shutdown::Write).unwrap();
                    assert!(reply(&mut client).contains("<command> set c 3"));
                    // The step may stop at its line before the end of the connection is seen.
                    while !reply(&mut client).ends_with("+<endsession>\r\n") {}
                    client.expect(":1\r\n");
                    other.check("GET c", "$1\r\n3\r\n");
                }
            }
            other.check("MGET a b", "*2\r\n$1\r\n1\r\n$1\r\n2\r\n");
            wait_for_long(&mut other, 0);
        }
        // One that loops can be killed.
        let mut client = server.client();
        begin(&mut client, ENDLESS, &[]);
        drop(client);
        wait_for_long(&mut other, 1);
        other.check("SCRIPT KILL", OK);
        wait_for_long(&mut other, 0);
    });
}

#[test]
fn what_is_no_command() {
    let mut server = Server::with_workers(2, &[]);
    let much = vec![b'x'; 3 << 20];
    let long = [b"*1\r\n$2000\r\n".to_vec(), vec![b'x'; 2000], b"\r\n".to_vec()].concat();
    let many = b"*2000\r\n".to_vec();
    for bytes in [&much, &long, &many, &b"PING\r\n".to_vec()] {
        let mut client = server.client();
        begin(&mut client, "local a = 1\nreturn a", &[]);
        // It may be closed while that is sent.
        use std::io::Write;
        let _ = client.stream.write_all(bytes);
        assert_eq!(reply(&mut client), END);
        let error = reply(&mut client);
        assert!(
            error.starts_with("-ERR protocol error") || error.starts_with("-ERR max client buffer reached"),
            "{error}"
        );
    }
    // A client that does not read costs some of its own input, and no more.
    let mut client = server.client();
    let script =
        format!("local a = 1\n{}return a", "-- a line of a script that is rather long\n".repeat(1000));
    begin(&mut client, &script, &[]);
    let resident = server.resident_bytes();
    client.stream.set_write_timeout(Some(Duration::from_millis(500))).unwrap();
    use std::io::Write;
    let _ = client.stream.write_all(&encode(&["whole"]).repeat(60_000));
    server.client().check("PING", "+PONG\r\n");
    assert!(
        server.resident_bytes() < resident + (64 << 20),
        "{} MB more",
        (server.resident_bytes() - resident) >> 20
    );
    drop(client);
    wait_for_long(&mut server.client(), 0);
    assert!(server.is_alive());
}

#[test]
fn values_that_are_much() {
    let server = Server::with_workers(1, &[]);
    let mut client = server.client();
    let script =
        "local t = {}\nfor i = 1, 9 do t = {t, t, t, t, t, t, t, t} end\nlocal u = {} u[1] = u\nreturn 1";
    begin(&mut client, script, &[]);
    ask(&mut client, "b 4");
    ask(&mut client, "c");
    let shown = ask(&mut client, "print t");
    assert!(shown.len() < 3 << 20 && shown.contains("..."), "{}", shown.len());
    assert!(ask(&mut client, "print u").contains("<max recursion level reached! Nested table?>"));
    assert!(ask(&mut client, "c").starts_with(END));
}

#[test]
fn the_process_ends_beside_it() {
    for (script, nosave) in [
        ("redis.call('SET', 'k', 1)\nlocal a = 1\nreturn a", false),
        ("local a = 1\nlocal b = 2\nreturn a", false),
        ("redis.call('SET', 'k', 1)\nlocal a = 1\nreturn a", true),
    ] {
        let mut server = Server::with_workers(2, &[]);
        let mut client = server.client();
        begin(&mut client, script, &[]);
        ask(&mut client, "s");
        match nosave {
            true => server.client().send("SHUTDOWN NOSAVE\r\n"),
            false => server.signal("TERM"),
        }
        assert!(server.wait().success());
    }
}

/// The writes of a session are one transaction of the log.
#[test]
fn it_is_atomic_for_a_monitor_of_keys() {
    on_both(|server| {
        let (mut client, mut watcher) = (server.client(), server.client());
        watcher.check("WATCH k", OK);
        begin(&mut client, "redis.call('SET', KEYS[1], 1)\nreturn 1", &["k"]);
        ask(&mut client, "redis set k 0");
        assert!(ask(&mut client, "c").starts_with(END));
        watcher.check("MULTI", OK);
        watcher.check("GET k", "+QUEUED\r\n");
        watcher.check("EXEC", "*-1\r\n");
    });
}
