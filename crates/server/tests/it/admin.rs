//! Commands about sessions and the server over a socket: the own session, the configuration, the other
//! sessions.

use crate::common;
use crate::common::{Client, PATIENCE, Server, encode, wait_until};
use std::io::Write;
use std::time::{Duration, Instant};

const OK: &str = "+OK\r\n";

#[track_caller]
fn bulk(client: &mut Client, request: &str, value: &str) {
    client.check(request, &format!("${}\r\n{value}\r\n", value.len()));
}

#[track_caller]
fn pair(client: &mut Client, request: &str, name: &str, value: &str) {
    let expected = format!("*2\r\n${}\r\n{name}\r\n${}\r\n{value}\r\n", name.len(), value.len());
    client.check(request, &expected);
}

/// The value of a field of INFO, or of CLIENT LIST.
#[track_caller]
fn field(text: &str, name: &str, end: char) -> String {
    let start = text.find(name).unwrap_or_else(|| panic!("{name} is not in {text}")) + name.len();
    text[start..].chars().take_while(|&character| character != end).collect()
}

/// No module is there, and none can be loaded.
#[test]
fn modules() {
    let refused = "-ERR MODULE command not allowed. If the enable-module-command option is set to \"local\", you can run it from a \
                   local connection, otherwise you need to set this option in the configuration file, and then restart the \
                   server.\r\n";
    let server = Server::start(&[]);
    let mut client = server.client();
    client.check("MODULE LIST", "*0\r\n");
    for request in ["MODULE LOAD /x", "MODULE LOADEX /x CONFIG a b", "MODULE UNLOAD x"] {
        client.check(request, refused);
    }
    client.check("MODULE", "-ERR wrong number of arguments for 'module' command\r\n");
    client.check("MODULE NOPE", "-ERR unknown subcommand 'NOPE'. Try MODULE HELP.\r\n");
    assert!(client.ask("MODULE HELP").starts_with("*11\r\n+MODULE <subcommand>"));
    let server = Server::start(&["--enable-module-command", "local"]);
    let mut client = server.client();
    for request in ["MODULE LOAD /x", "MODULE LOADEX /x ARGS y"] {
        client.check(request, "-ERR Error loading the extension. Please check the server logs.\r\n");
    }
    client.check("MODULE UNLOAD x", "-ERR Error unloading module: no such module with that name\r\n");
    server.wait_for_log("Module /x failed to load: ");
}

#[test]
fn passwords() {
    let server = Server::start(&["--requirepass", "secret"]);
    let mut client = server.client();
    client.check("PING", "-NOAUTH Authentication required.\r\n");
    client.check(
        "HELLO 3",
        "-NOAUTH HELLO must be called with the client already authenticated, otherwise the HELLO <proto> AUTH <user> \
         <pass> option can be used to authenticate the client and select the RESP protocol version at the same time\r\n",
    );
    let wrong = "-WRONGPASS invalid username-password pair or user is disabled.\r\n";
    for request in
        ["AUTH secre", "AUTH secrets", "AUTH default x", "AUTH nobody secret", "HELLO 3 AUTH default x"]
    {
        client.check(request, wrong);
    }
    client.check("AUTH secret", OK);
    client.check("PING", "+PONG\r\n");
    client.check("RESET", "+RESET\r\n");
    client.check("PING", "-NOAUTH Authentication required.\r\n");
    assert!(client.ask("HELLO 2 AUTH default secret").starts_with("*14\r\n"));
    client.check("CONFIG SET requirepass other", OK);
    client.check("PING", "+PONG\r\n");
    server.client().check("AUTH secret", wrong);
}

#[test]
fn hello() {
    let server = Server::start(&[]);
    let mut client = server.client();
    client.check("HELLO 4", "-NOPROTO unsupported protocol version\r\n");
    client.check("HELLO x", "-ERR Protocol version is not an integer or out of range\r\n");
    client.check("HELLO 3 SETNAME", "-ERR Syntax error in HELLO option 'SETNAME'\r\n");
    assert!(client.ask("HELLO 3 SETNAME ann").starts_with("%7\r\n$6\r\nserver\r\n$6\r\nvalkey\r\n"));
    bulk(&mut client, "CLIENT GETNAME", "ann");
    client.check("GET nothing", "_\r\n");
    client.check("CONFIG SET availability-zone here extended-redis-compatibility yes", OK);
    let redis = client.ask("HELLO 2");
    assert!(
        redis.starts_with("*16\r\n$6\r\nserver\r\n$5\r\nredis\r\n$7\r\nversion\r\n$5\r\n7.2.4\r\n"),
        "{redis}"
    );
    assert!(redis.ends_with("$17\r\navailability_zone\r\n$4\r\nhere\r\n"), "{redis}");
}

#[test]
fn configuration() {
    let server = Server::start(&["--maxmemory 100mb", "--hz", "50"]);
    let mut client = server.client();
    pair(&mut client, "CONFIG GET MAXMEMORY", "MAXMEMORY", "104857600");
    pair(&mut client, "CONFIG GET h?", "hz", "50");
    client.check("CONFIG SET maxmemory 1gb timeout 7", OK);
    pair(&mut client, "CONFIG GET timeout", "timeout", "7");
    client.check(
        "CONFIG SET maxmemory 2gb hz x",
        "-ERR CONFIG SET failed (possibly related to argument 'hz') - argument couldn't be parsed into an integer\r\n",
    );
    pair(&mut client, "CONFIG GET maxmemory", "maxmemory", "1073741824");
    // It takes effect with the next start, for which CONFIG REWRITE keeps it.
    client.check("CONFIG SET io-threads 3", OK);
    pair(&mut client, "CONFIG GET io-threads", "io-threads", "3");
    client.check("CONFIG REWRITE", "-ERR The server is running without a config file\r\n");
}

/// Valkey repeats an argument up to its first NUL.
#[test]
fn errors_end_what_they_repeat_at_a_nul() {
    let server = Server::start(&["--save", ""]);
    let mut client = server.client();
    client.check("FUNCTION LIST fo\0o", "-ERR Unknown argument fo\r\n");
    client.check("FUNCTION LOAD fo\0o x", "-ERR Unknown option given: fo\r\n");
    let no_engine = "-ERR No scripting engine found with name 'lu' to enable debug\r\n";
    client.check("SCRIPT DEBUG yes lu\0a", no_engine);
    client.check("EVAL #!lua\0\n 0", "-ERR Invalid script shebang\r\n");
    // Nothing is looked at after a name that no script can have.
    client.check("EVALSHA abc 5", "-NOSCRIPT No matching script.\r\n");
    let many = "-ERR Number of keys can't be greater than number of args\r\n";
    client.check(&format!("EVALSHA {} 5", "a".repeat(40)), many);
    client.check("REPLICAOF a x", "-ERR Invalid master port\r\n");
    // The second number is the text after the blank, which is none.
    client.send("*4\r\n$6\r\nCONFIG\r\n$3\r\nSET\r\n$4\r\nsave\r\n$2\r\n1 \r\n");
    client.expect(OK);
    pair(&mut client, "CONFIG GET save", "save", "1 0");
}

#[test]
fn a_port_in_use_is_refused_and_the_old_one_stays() {
    let (server, other) = (Server::start(&[]), Server::start(&[]));
    let mut client = server.client();
    client.check(
        &format!("CONFIG SET maxmemory 7mb port {}", other.port),
        "-ERR CONFIG SET failed (possibly related to argument 'port') - Unable to listen on this port. Check server \
         logs.\r\n",
    );
    pair(&mut client, "CONFIG GET port", "port", &server.port.to_string());
    pair(&mut client, "CONFIG GET maxmemory", "maxmemory", "0");
    wait_until("the old port is open again", || {
        std::net::TcpStream::connect(("127.0.0.1", server.port)).is_ok()
    });
    server.client().check("PING", "+PONG\r\n");
}

#[test]
fn clients_see_and_end_each_other() {
    let server = Server::with_workers(2, &[]);
    let (mut client, mut other) = (server.client(), server.client());
    other.check("CLIENT SETNAME victim", OK);
    other.check("SELECT 3", OK);
    let id = other.id();
    let list = client.ask(&format!("CLIENT LIST ID {id}"));
    assert_eq!(field(&list, "name=", ' '), "victim");
    assert_eq!(field(&list, "db=", ' '), "3");
    assert_eq!(field(&list, "cmd=", ' '), "client|id");
    assert_eq!(field(&client.ask("CLIENT INFO"), "cmd=", ' '), "client|info");
    client.check("CLIENT KILL NAME nobody", ":0\r\n");
    client.check("CLIENT KILL 1.2.3.4:5", "-ERR No such client\r\n");
    client.check("CLIENT KILL NAME victim", ":1\r\n");
    other.expect_end();
    client.check("CLIENT KILL SKIPME no TYPE normal", ":1\r\n");
    client.expect_end();
}

#[test]
fn a_pause_ends_by_itself_and_by_hand() {
    let server = Server::with_workers(2, &[]);
    let (mut client, mut writer) = (server.client(), server.client());
    client.check("CLIENT PAUSE 100000 WRITE", OK);
    writer.check("GET key", "$-1\r\n");
    writer.send(common::encode(&["SET", "key", "1"]));
    writer.expect_silence();
    assert_eq!(field(&client.ask("INFO clients"), "paused_actions:", '\r'), "write");
    // GET was its last command that ran.
    assert!(client.ask("CLIENT LIST").contains(" cmd=set "));
    client.check("CLIENT UNPAUSE", OK);
    writer.expect(OK);
    let begun = Instant::now();
    client.check("CLIENT PAUSE 200", OK);
    writer.check("PING", "+PONG\r\n");
    assert!(begun.elapsed() >= Duration::from_millis(150) && begun.elapsed() < PATIENCE);
}

#[test]
fn information() {
    let server = Server::start(&[]);
    let mut client = server.client();
    client.check("SET key value EX 100", OK);
    client.check("GET nothing", "$-1\r\n");
    assert!(client.ask("NOSUCH").starts_with("-ERR unknown command"));
    let info = client.ask("INFO everything");
    for (name, value) in [
        ("redis_version:", "7.2.4"),
        ("server_name:", "isotherm"),
        ("isotherm_persistence:", "rdb"),
        ("role:", "master"),
        ("keyspace_misses:", "1"),
        ("rdb_changes_since_last_save:", "1"),
        ("errorstat_ERR:", "count=1"),
        ("db0:", "keys=1,expires=1,avg_ttl=0,keys_with_volatile_items=0"),
    ] {
        assert_eq!(field(&info, name, '\r'), value, "{name}");
    }
    assert!(field(&info, "cmdstat_set:", '\r').starts_with("calls=1,usec="));
    client.check("CONFIG RESETSTAT", OK);
    assert_eq!(field(&client.ask("INFO stats"), "keyspace_misses:", '\r'), "0");
    assert!(!client.ask("INFO").contains("# Commandstats"));
    let timed = |client: &mut Client| {
        let line = field(&client.ask("INFO keyspace"), "db0:", '\r').to_string();
        line.rsplit('=').next().unwrap().to_string()
    };
    client.check("HSET h f v g w", ":2\r\n");
    client.check("HEXPIRE h 100 FIELDS 2 f g", "*2\r\n:1\r\n:1\r\n");
    assert_eq!(timed(&mut client), "1");
    client.check("COPY h i", ":1\r\n");
    client.check("RENAME i j", OK);
    assert_eq!(timed(&mut client), "2");
    client.check("HPERSIST h FIELDS 1 f", "*1\r\n:1\r\n");
    assert_eq!(timed(&mut client), "2");
    client.check("HDEL h g", ":1\r\n");
    client.check("SET j string", OK);
    assert_eq!(timed(&mut client), "0");
}

#[test]
fn debug_checks_invariants_alone_and_in_a_transaction() {
    let server = Server::with_workers(2, &["--enable-debug-command", "local"]);
    let mut client = server.client();
    let mut waiting = server.client();
    waiting.send("BLPOP k1 k2 k3 0\r\n");
    wait_until("it waits", || client.blocked_count() == 1);
    client.check("DEBUG POPULATE 3000 key 300", OK);
    client.check("DEBUG CHECK-INVARIANTS", OK);
    client.check("MULTI", OK);
    client.check("RPUSH k2 x", "+QUEUED\r\n");
    client.check("DEBUG CHECK-INVARIANTS", "+QUEUED\r\n");
    client.check("EXEC", "*2\r\n:1\r\n+OK\r\n");
    waiting.expect("*2\r\n$2\r\nk2\r\n$1\r\nx\r\n");
    client.check("DEBUG CHECK-INVARIANTS", OK);
}

/// DEBUG RELOAD stores the keys of a slot again in the order of SCAN, which is one of their hashes.
#[test]
fn debug_reload_of_a_large_slot() {
    const KEYS: usize = 60_000;
    let server = Server::with_workers(1, &["--enable-debug-command", "yes"]);
    let mut client = server.client();
    for some in (0..KEYS).collect::<Vec<_>>().chunks(1000) {
        client.send(
            some.iter().flat_map(|key| encode(&["SET", &format!("{{t}}:{key}"), "v"])).collect::<Vec<_>>(),
        );
        some.iter().for_each(|_| client.expect("+OK\r\n"));
    }
    client.check("DEBUG RELOAD", "+OK\r\n");
    client.check("DBSIZE", &format!(":{KEYS}\r\n"));
    client.check("DEBUG CHECK-INVARIANTS", "+OK\r\n");
}

#[test]
fn debug_needs_a_permission() {
    let server = Server::start(&[]);
    assert!(server.client().ask("DEBUG SLEEP 0").starts_with("-ERR DEBUG command not allowed."));
    let server = Server::start(&["--enable-debug-command", "local"]);
    let mut client = server.client();
    client.check("DEBUG SLEEP 0", OK);
    client.check("DEBUG DIGEST", "+0000000000000000000000000000000000000000\r\n");
    client.check("SET a 1", OK);
    // As Valkey computes it.
    client.check("DEBUG DIGEST-VALUE a", "*1\r\n+b4fc66738120fba0b5aa500ab5c2bf89cea1c5da\r\n");
}

#[test]
fn connections_that_take_too_much_are_closed() {
    let server = Server::start(&["--maxmemory-clients", "2mb"]);
    let (mut client, mut greedy) = (server.client(), server.client());
    client.check("CLIENT NO-EVICT on", OK);
    // The end of it may not be read any more.
    let _ = write!(greedy.stream, "*2\r\n$4\r\nECHO\r\n${}\r\n{}", 8 << 20, "x".repeat(4 << 20));
    wait_until("the large one is closed", || client.info("stats", "evicted_clients") > 0);
    client.check("PING", "+PONG\r\n");
}

#[test]
fn a_transaction_may_change_the_policy_of_what_it_holds() {
    let server = Server::with_workers(2, &[]);
    let mut client = server.client();
    client.check("MULTI", OK);
    for request in
        ["SET key value", "CONFIG SET maxmemory-policy allkeys-lfu", "CLIENT PAUSE 50 WRITE", "INFO"]
    {
        client.check(request, "+QUEUED\r\n");
    }
    assert!(client.ask("EXEC").starts_with("*4\r\n+OK\r\n+OK\r\n+OK\r\n$"));
    wait_until("the policy is in force", || client.ask("OBJECT FREQ key").starts_with(':'));
}

#[test]
fn a_paused_cron_does_nothing() {
    let server = Server::start(&["--enable-debug-command", "yes"]);
    let mut client = server.client();
    client.check("DEBUG PAUSE-CRON 1", OK);
    client.check("SET k v PX 1", OK);
    std::thread::sleep(Duration::from_millis(300));
    client.check("DBSIZE", ":1\r\n");
    client.check("DEBUG PAUSE-CRON 0", OK);
    wait_until("the cron goes on", || client.ask("DBSIZE") == ":0\r\n");
}

#[test]
fn the_configuration_file_is_rewritten() {
    let folder = std::env::temp_dir().join(format!("isotherm-rewrite-{}", std::process::id()));
    std::fs::create_dir_all(&folder).unwrap();
    let path = folder.join("a.conf");
    let other = folder.join("b.conf");
    std::fs::write(&other, "hz 20\n").unwrap();
    let (mine, include) = ("# mine\nbind 127.0.0.1\n", format!("include {}\n", other.display()));
    std::fs::write(&path, format!("{mine}slave-priority 7\n{include}")).unwrap();
    let port = common::free_port();
    let mut command = common::command(&[path.to_str().unwrap(), "--port", &port.to_string()]);
    command.args(["--dir", folder.to_str().unwrap()]);
    let server = Server::spawn(port, command);
    server.wait_for_log("Ready to accept");
    let mut client = server.client();
    client.check("CONFIG SET maxmemory 3mb hz 30", OK);
    client.check("CONFIG REWRITE", OK);
    let text = std::fs::read_to_string(&path).unwrap();
    assert!(text.starts_with(&format!("{mine}replica-priority 7\n{include}")), "{text}");
    for line in
        [&format!("\nport {port}\n"), "\nmaxmemory 3mb\n", "\nhz 30\n", "\n# Generated by CONFIG REWRITE\n"]
    {
        assert!(text.contains(line), "{line} {text}");
    }
    client.check("CONFIG REWRITE", OK);
    assert_eq!(std::fs::read_to_string(&path).unwrap(), text, "rewriting changes nothing more");
    std::fs::remove_dir_all(&folder).unwrap();
    let refused = client.ask("CONFIG REWRITE");
    assert!(refused.starts_with("-ERR Rewriting config file: the next start would fail: "), "{refused}");
    assert!(refused.ends_with(": No such file or directory\r\n"), "{refused}");
}

/// An argument may be of 512 MB; the log line that has it is not.
#[test]
fn a_long_parameter_is_cut_in_the_log() {
    const LINE: &str = "Warning: Could not create server TCP listening socket xxx";
    let server = Server::start(&[]);
    let mut client = server.client();
    client.send(encode(&["CONFIG", "SET", "bind", &"x".repeat(100_000)]));
    let refused = String::from_utf8(client.read_reply()).unwrap();
    assert!(refused.ends_with(" - Failed to bind to specified addresses.\r\n"), "{refused}");
    server.wait_for_log(LINE);
    let longest = server.log().lines().map(str::len).max();
    assert!(longest < Some(5000), "{longest:?}");
}
