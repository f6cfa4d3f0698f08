//! Commands under other names, and under none (`rename-command`): clients have to use these, while replies,
//! statistics, the append-only file and the stream of a primary do not depend on them.

use crate::aof::Data;
use crate::common::{Server, encode, wait_until};
use crate::replica::Primary;

const RENAMES: [&str; 21] = [
    "--rename-command",
    "SET",
    "VSET",
    "--rename-command",
    "CONFIG",
    "zconfig",
    "--rename-command",
    "FLUSHALL",
    "",
    "--rename-command",
    "MULTI",
    "M",
    "--rename-command",
    "EXEC",
    "E",
    "--rename-command",
    "INCR",
    "DECR2",
    "--rename-command",
    "DEL",
    "",
];

#[test]
fn clients_use_the_new_names() {
    let server = Server::start(&[&RENAMES[..], &["--enable-debug-command", "yes"]].concat());
    let (mut client, mut monitor) = (server.client(), server.client());
    monitor.check("MONITOR", "+OK\r\n");
    for (request, reply) in [
        ("SET k v", "-ERR unknown command 'SET', with args beginning with: 'k' 'v' \r\n"),
        ("FLUSHALL", "-ERR unknown command 'FLUSHALL', with args beginning with: \r\n"),
        ("vset k v EX 100", "+OK\r\n"),
        ("VSET k", "-ERR wrong number of arguments for 'set' command\r\n"),
        ("ZCONFIG GET port x", "*2\r\n$4\r\nport\r\n"),
        ("zconfig nope", "-ERR unknown subcommand 'nope'. Try ZCONFIG HELP.\r\n"),
        ("zconfig get", "-ERR wrong number of arguments for 'config|get' command\r\n"),
        ("COMMAND INFO set", "*1\r\n$-1\r\n"),
        ("COMMAND INFO config|get", "*1\r\n$-1\r\n"),
        ("COMMAND INFO vset", "*1\r\n*10\r\n$3\r\nset\r\n"),
        ("COMMAND DOCS zconfig|get", "*2\r\n$10\r\nconfig|get\r\n"),
        ("COMMAND GETKEYS set a b", "-ERR Invalid command specified\r\n"),
        ("COMMAND GETKEYS vset a b", "*1\r\n$1\r\na\r\n"),
        ("COMMAND LIST FILTERBY PATTERN flush*", "*1\r\n$7\r\nflushdb\r\n"),
        ("M", "+OK\r\n"),
        ("VSET a 1", "+QUEUED\r\n"),
        ("SET a 2", "-ERR unknown command 'SET', with args beginning with: 'a' '2' \r\n"),
        ("E", "-EXECABORT Transaction discarded because of previous errors.\r\n"),
    ] {
        let got = client.ask(request);
        assert!(got.starts_with(reply), "{request}: {got:?}");
    }
    assert!(client.ask("ZCONFIG HELP").starts_with("*11\r\n+ZCONFIG <subcommand>"));
    let stats = client.ask("INFO commandstats");
    assert!(stats.contains("cmdstat_set:calls=1,") && !stats.contains("vset"), "{stats}");
    client.send(encode(&["EVAL", "return server.pcall('SET','x','y')", "0"]));
    client.expect("-ERR Unknown command called from script\r\n");
    client.send(encode(&["EVAL", "return server.pcall('vset','x','y')", "0"]));
    client.expect("+OK\r\n");
    let seen = String::from_utf8_lossy(&monitor.read_reply()).into_owned();
    assert!(seen.ends_with("\"vset\" \"k\" \"v\" \"EX\" \"100\"\r\n"), "{seen}");
}

/// A log may have been written under any names.
#[test]
fn the_append_only_file_knows_both_names() {
    let data = Data::new();
    let mut server = data.start(1, &[]);
    let mut client = server.client();
    for request in ["SET old 1", "MULTI", "INCR old", "SET x 1 EX 1000", "EXEC", "SET gone 1", "DEL gone"] {
        client.ask(request);
    }
    client.send(encode(&["SHUTDOWN"]));
    server.wait();
    let mut server = data.start(2, &RENAMES);
    let mut client = server.client();
    for request in ["VSET new 1", "M", "DECR2 new", "VSET y 1 EX 1000", "E", "VSET z 1"] {
        client.ask(request);
    }
    let digest = client.ask("DEBUG DIGEST");
    client.send(encode(&["SHUTDOWN"]));
    server.wait();
    let server = data.start(2, &RENAMES);
    let mut client = server.client();
    client.check(
        "MGET old new x y z gone",
        "*6\r\n$1\r\n2\r\n$1\r\n2\r\n$1\r\n1\r\n$1\r\n1\r\n$1\r\n1\r\n$-1\r\n",
    );
    assert_eq!(client.ask("DEBUG DIGEST"), digest);
}

/// Commands that a primary sends are obeyed, although clients may not run them here.
#[test]
fn a_replica_obeys_commands_that_clients_do_not_have() {
    let primary = Primary::start(&RENAMES);
    let mut link = primary.sync(&[("k", "v")], 1);
    let mut client = primary.replica.client();
    wait_until("it is there", || client.ask("GET k") == "$1\r\nv\r\n");
    for line in ["SET a 1", "VSET b 2", "INCR a", "DEL k"] {
        link.send_command(line);
    }
    wait_until("it was applied", || client.ask("MGET a b k") == "*3\r\n$1\r\n2\r\n$1\r\n2\r\n$-1\r\n");
    link.send_command("FLUSHALL");
    wait_until("it was applied", || client.ask("DBSIZE") == ":0\r\n");
}
