//! The words of SHUTDOWN, and the replies while a script takes long, compared with a real Valkey where
//! `ISOTHERM_PEER_BIN` says where its programs are.

use std::path::Path;

use crate::aof::Data;
use crate::common::{Client, Server, encode, wait_until};
use crate::failover::{follow, suspend};
use crate::peers;

const OK: &str = "+OK\r\n";
const FAILED: &str = "-ERR Errors trying to SHUTDOWN. Check logs.\r\n";

/// A server of each make, with its folder: this project's, and Valkey's if it is there.
fn each_make(more: &[&str], mut test: impl FnMut(&str, Server, &Path)) {
    let folder = Data::new();
    let own = [&["--dir", folder.0.to_str().unwrap(), "--enable-debug-command", "yes"], more].concat();
    test("this server", Server::with_workers(2, &own), &folder.0);
    if let Some(program) = peers::peer("valkey-server") {
        let folder = Data::new();
        test("Valkey", peers::start_with(program, &folder.0, more), &folder.0);
    }
}

fn words(text: &str) -> Vec<u8> {
    encode(&text.split_whitespace().collect::<Vec<_>>())
}

#[test]
fn words_that_do_not_go_together_end_nothing() {
    const SYNTAX: &str = "-ERR syntax error\r\n";
    each_make(&["--save", "3600 1"], |make, server, _| {
        let mut client = server.client();
        for options in
            ["SAVE NOSAVE", "NOSAVE SAVE NOW", "ABORT NOW", "ABORT ABORT NOSAVE", "NOW nonsense", "1"]
        {
            client.send(words(&format!("SHUTDOWN {options}")));
            assert_eq!(String::from_utf8_lossy(&client.read_reply()), SYNTAX, "{make}: {options}");
        }
        for options in ["ABORT", "abort"] {
            client.check(&format!("SHUTDOWN {options}"), "-ERR No shutdown in progress.\r\n");
        }
        client.check("PING", "+PONG\r\n");
    });
}

/// Options, whether the name of the file is taken by a folder, whether the process ends, and whether it
/// leaves a file.
const ENDS: [(&str, bool, bool, bool); 10] = [
    ("", false, true, true),
    ("NOSAVE", false, true, false),
    ("SAVE", false, true, true),
    ("NOW", false, true, true),
    ("nosave now force", false, true, false),
    ("SAVE NOW SAVE", false, true, true),
    ("", true, false, false),
    ("SAVE NOW", true, false, false),
    ("FORCE", true, true, false),
    ("NOSAVE", true, true, false),
];

#[test]
fn the_words_say_whether_the_last_file_has_to_be_written() {
    for (options, is_taken, ends, leaves_a_file) in ENDS {
        each_make(&["--save", "3600 1"], |make, mut server, folder| {
            let what = format!("{make}: {options:?}, {is_taken}");
            let file = folder.join("dump.rdb");
            if is_taken {
                std::fs::create_dir(&file).unwrap();
            }
            let mut client = server.client();
            client.check("SET k v", OK);
            client.send(words(&format!("SHUTDOWN {options}")));
            if ends {
                client.expect_end();
                assert_eq!(server.wait().code(), Some(0), "{what}");
            } else {
                assert_eq!(String::from_utf8_lossy(&client.read_reply()), FAILED, "{what}");
                client.check("GET k", "$1\r\nv\r\n");
            }
            assert_eq!(file.is_file(), leaves_a_file, "{what}");
        });
    }
}

#[test]
fn replicas_that_lag_are_waited_for_unless_it_is_said_now() {
    for now in ["NOW", "NOSAVE NOW", "SAVE NOW FORCE"] {
        let patient = ["--shutdown-timeout", "300", "--repl-diskless-sync-delay", "0", "--save", ""];
        each_make(&patient, |make, mut server, folder| {
            let replica = Server::with_workers(1, &["--enable-debug-command", "yes"]);
            follow(&replica, &server);
            let mut client = server.client();
            client.check("SET k 1", OK);
            client.check("WAIT 1 20000", ":1\r\n");
            suspend(&replica);
            client.check("INCR k", ":2\r\n");
            // Without it the end comes later, and can be called off.
            let waits = if now == "NOW" { &["", "NOSAVE", "FORCE", "SAVE FORCE"][..] } else { &[] };
            for options in waits {
                let mut asker = server.client();
                asker.send(words(&format!("SHUTDOWN {options}")));
                wait_until("the end is under way", || {
                    client.ask("INFO server").contains("shutdown_in_milliseconds:")
                });
                client.check("SHUTDOWN ABORT", OK);
                assert_eq!(String::from_utf8_lossy(&asker.read_reply()), FAILED, "{make}: {options}");
            }
            client.check("INCR k", ":3\r\n");
            client.send(words(&format!("SHUTDOWN {now}")));
            client.expect_end();
            assert_eq!(server.wait().code(), Some(0), "{make}: {now}");
            let log = server.log();
            assert!(log.contains("0 of 1 replicas are in sync when shutting down."), "{make}: {log}");
            assert_eq!(folder.join("dump.rdb").is_file(), now.starts_with("SAVE"), "{make}: {now}");
        });
    }
}

// ---- BUSY ----

const SPIN: &str = "while true do redis.call('GET', KEYS[1]) end";
const SPIN_WRITTEN: &str = "redis.call('SET', KEYS[1], 1) while true do end";

/// Begins what takes long, on a connection of its own.
fn begin(server: &Server, is_function: bool, is_in_exec: bool, body: &str) -> Client {
    let mut client = server.client();
    let library = format!("#!lua name=l\nredis.register_function('f', function(KEYS) {body} end)");
    let request = match is_function {
        false => encode(&["EVAL", body, "1", "k"]),
        true => {
            client.send(encode(&["FUNCTION", "LOAD", "REPLACE", &library]));
            client.expect("$1\r\nl\r\n");
            encode(&["FCALL", "f", "1", "k"])
        }
    };
    if is_in_exec {
        client.check("MULTI", OK);
        client.send(&request);
        client.expect("+QUEUED\r\n");
        client.send(encode(&["EXEC"]));
    } else {
        client.send(request);
    }
    let mut other = server.client();
    wait_until("it takes long", || other.ask("PING").starts_with("-BUSY"));
    client
}

/// Requests during a script, which leave the connection as it was.
const BESIDE: [&str; 17] = [
    "PING",
    "GET k",
    "SET k v",
    "EVALSHA 0123456789012345678901234567890123456789 0",
    "FCALL f 1 k",
    "SCRIPT EXISTS x",
    "FUNCTION LIST",
    "CONFIG GET save",
    "CLIENT GETNAME",
    "PUBLISH c m",
    "SUBSCRIBE c",
    "INFO server",
    "SAVE",
    "WATCH k",
    "UNWATCH",
    "SHUTDOWN",
    "SHUTDOWN ABORT",
];

/// Texts of one make, in its own name.
fn heard(server: &Server, requests: &[&str]) -> Vec<String> {
    let mut client = server.client();
    let ask = |request: &&str| {
        client.send(words(request));
        let reply = String::from_utf8_lossy(&client.read_reply()).replace("Valkey is", "Isotherm is");
        format!("{request}: {reply}")
    };
    requests.iter().map(ask).collect()
}

#[test]
fn what_is_answered_beside_a_script_is_what_valkey_answers() {
    let limits = ["--busy-reply-threshold", "50", "--save", ""];
    let mut all: Vec<Vec<String>> = Vec::new();
    each_make(&limits, |make, server, _| {
        if make == "this server" {
            server.client().check("CONFIG SET busy-reply-scope all", OK);
        }
        let mut said = Vec::new();
        for (is_function, is_in_exec) in [(false, false), (true, false), (false, true), (true, true)] {
            let mut client = begin(&server, is_function, is_in_exec, SPIN);
            said.extend(heard(&server, &BESIDE));
            said.extend(heard(&server, &["MULTI", "GET k", "EXEC"]));
            let kills = ["SCRIPT KILL", "FUNCTION KILL"];
            let (right, wrong) = (kills[usize::from(is_function)], kills[usize::from(!is_function)]);
            said.extend(heard(&server, &[wrong, right]));
            said.push(String::from_utf8_lossy(&client.read_reply()).into_owned());
            let mut other = server.client();
            wait_until("it is over", || other.ask("PING") == "+PONG\r\n");
            said.extend(heard(&server, &kills));
        }
        let _client = begin(&server, false, true, SPIN_WRITTEN);
        said.extend(heard(&server, &["FUNCTION KILL", "SCRIPT KILL", "GET k", "SHUTDOWN SAVE"]));
        let mut other = server.client();
        other.send(words("SHUTDOWN NOSAVE"));
        other.expect_end();
        all.push(said);
    });
    let [ours, theirs] = &all[..] else { return };
    for (at, (ours, theirs)) in ours.iter().zip(theirs).enumerate() {
        assert_eq!(ours, theirs, "{at}");
    }
    assert_eq!(ours.len(), theirs.len());
}
