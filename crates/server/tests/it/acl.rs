//! Users over sockets: what they may do on every path, and what happens when that changes.

use crate::common::{self, Client, Server, encode, wait_until};
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

const OK: &str = "+OK\r\n";
const NO_KEY: &str = "-NOPERM No permissions to access a key\r\n";

fn denied(user: &str, command: &str) -> String {
    format!("-NOPERM User {user} has no permissions to run the '{command}' command\r\n")
}

fn on_both(test: impl Fn(&Server)) {
    for workers in [1, 3] {
        test(&Server::with_workers(workers, &["--enable-debug-command", "local"]));
    }
}

/// A client that is this user with these rules.
fn user(server: &Server, name: &str, rules: &str) -> Client {
    server.client().check(&format!("ACL SETUSER {name} on nopass {rules}"), OK);
    let mut client = server.client();
    client.check(&format!("AUTH {name} any"), OK);
    client
}

const ASKS: &str = "+acl|whoami +ping";

#[test]
fn commands_keys_channels_and_databases_are_asked_about() {
    on_both(|server| {
        let rules =
            format!("{ASKS} +@read +set +mset +publish +select +copy +move ~a:* %R~r:* &news:* db=0,1");
        let mut client = user(server, "ann", &rules);
        client.check("SET a:1 x", OK);
        client.check("GET a:1", "$1\r\nx\r\n");
        client.check("GET r:1", "$-1\r\n");
        client.check("SET r:1 x", NO_KEY);
        client.check("GET b", NO_KEY);
        client.check("MGET a:1 r:1", "*2\r\n$1\r\nx\r\n$-1\r\n");
        client.check("MGET a:1 b", NO_KEY);
        client.check("MSET a:1 1 r:1 1", NO_KEY);
        client.check("DEL a:1", &denied("ann", "del"));
        client.check("CONFIG GET maxmemory", &denied("ann", "config|get"));
        client.check("PUBLISH news:1 x", ":0\r\n");
        client.check("PUBLISH other x", "-NOPERM No permissions to access a channel\r\n");
        client.check("COPY a:1 a:2 DB 1", ":1\r\n");
        client.check("COPY a:1 a:2 DB 1 DB 2", "-NOPERM No permissions to access database\r\n");
        client.check("MOVE a:1 2", "-NOPERM No permissions to access database\r\n");
        client.check("SELECT 2", "-NOPERM No permissions to access database\r\n");
        client.check("SELECT 1", OK);
        client.check("GET a:2", "$1\r\nx\r\n");
        client.check("NONSENSE", "-ERR unknown command 'NONSENSE', with args beginning with: \r\n");
        client.check("GET", "-ERR wrong number of arguments for 'get' command\r\n");
    });
}

#[test]
fn a_transaction_is_asked_about_twice() {
    on_both(|server| {
        let mut admin = server.client();
        let mut client = user(server, "ann", "+multi +exec +get +set +select ~a db=0,1");
        client.check("MULTI", OK);
        client.check("SET b x", NO_KEY);
        client.check("EXEC", "-EXECABORT Transaction discarded because of previous errors.\r\n");
        client.check("MULTI", OK);
        client.check("SET a x", "+QUEUED\r\n");
        client.check("GET a", "+QUEUED\r\n");
        admin.check("ACL SETUSER ann -set", OK);
        client.check(
            "EXEC",
            "*2\r\n-NOPERM ACLs rules changed between the moment the transaction was accumulated and the EXEC call. This \
             command is no longer allowed for the following reason: no permission to execute the command or subcommand\r\n\
             $-1\r\n",
        );
        // Commands that are queued after SELECT are checked in that database.
        admin.check("ACL SETUSER ann +set resetdbs db=0", OK);
        client.check("MULTI", OK);
        client.check("SELECT 1", "-NOPERM No permissions to access database\r\n");
        client.check("EXEC", "-EXECABORT Transaction discarded because of previous errors.\r\n");
        // EXEC itself touches the database only by a condition.
        admin.check("ACL SETUSER ann resetdbs db=1", OK);
        client.check("MULTI", OK);
        client.check("SELECT 1", "+QUEUED\r\n");
        client.check("GET a", "+QUEUED\r\n");
        client.check("EXEC", "*2\r\n+OK\r\n$-1\r\n");
        admin.check("ACL SETUSER ann resetdbs db=0", OK);
        client.check("MULTI", OK);
        client.check(
            "EXEC IFEQ a x",
            "-EXECABORT Transaction discarded because of: NOPERM No permissions to access database\r\n",
        );
        admin.check("ACL SETUSER ann resetdbs db=0,1 -exec", OK);
        client.check("SELECT 0", OK);
        admin.check("ACL SETUSER ann resetdbs db=0", OK);
        client.check("MULTI", OK);
        client.check(
            "EXEC",
            &format!("-EXECABORT Transaction discarded because of: {}", &denied("ann", "exec")[1..]),
        );
        let log = admin.ask("ACL LOG 1");
        assert!(log.contains("multi") && log.contains("exec") && log.contains("user=ann"), "{log}");
    });
}

#[test]
fn scripts_do_what_their_client_may() {
    on_both(|server| {
        let mut client = user(server, "ann", "+eval +get +set ~a");
        let mut eval = |script: &str, keys: &str, reply: &str| {
            client.send(encode(&["EVAL", script, "1", keys]));
            let got = client.read_reply();
            assert!(String::from_utf8_lossy(&got).starts_with(reply), "{script}: {}", got.escape_ascii());
        };
        eval("return redis.call('SET', KEYS[1], 'x')", "a", OK);
        eval("return redis.call('GET', KEYS[1])", "b", NO_KEY);
        eval(
            "return redis.call('GET', 'b')",
            "a",
            "-ERR ACL failure in script: No permissions to access a key",
        );
        eval(
            "return redis.call('DEL', KEYS[1])",
            "a",
            "-ERR ACL failure in script: User ann has no permissions to run the 'del' command",
        );
        eval("return redis.pcall('DEL', KEYS[1])['err']", "a", "$");
        eval(
            "return {redis.acl_check_cmd('GET', 'a'), redis.acl_check_cmd('DEL', 'a')}",
            "a",
            "*2\r\n:1\r\n$-1\r\n",
        );
        // A name alone is asked about as the command.
        eval("return {redis.acl_check_cmd('SET'), redis.acl_check_cmd('DEL')}", "a", "*2\r\n:1\r\n$-1\r\n");
        let log = server.client().ask("ACL LOG 1");
        assert!(log.contains("lua") && log.contains("del"), "{log}");
    });
}

#[test]
fn a_client_that_waits_is_asked_again() {
    on_both(|server| {
        let mut admin = server.client();
        let mut client = user(server, "ann", "+blpop ~a ~b +client|id");
        let id = client.id();
        client.send(encode(&["BLPOP", "a", "0"]));
        wait_until("it waits", || admin.sees_waiting(id));
        admin.check("ACL SETUSER ann resetkeys ~b", OK);
        admin.check("RPUSH a x", ":1\r\n");
        client.expect(NO_KEY);
        admin.check("LLEN a", ":1\r\n");
    });
}

#[test]
fn sort_reads_by_patterns_what_its_user_may_read() {
    on_both(|server| {
        let mut client = user(server, "ann", "+sort ~a");
        client.check("SORT a", "*0\r\n");
        client.check("SORT a BY nosort", "*0\r\n");
        client
            .check("SORT a BY w_*", "-ERR BY option of SORT denied due to insufficient ACL permissions.\r\n");
        client
            .check("SORT a GET #", "-ERR GET option of SORT denied due to insufficient ACL permissions.\r\n");
        server.client().check("ACL SETUSER ann %R~*", OK);
        client.check("SORT a BY w_* GET #", "*0\r\n");
    });
}

#[test]
fn who_loses_a_channel_or_the_user_is_closed() {
    on_both(|server| {
        let mut admin = server.client();
        let mut listener = user(server, "ann", "+subscribe +psubscribe &a* &b*");
        listener.send(encode(&["SUBSCRIBE", "ab"]));
        listener.read_reply();
        admin.check("ACL SETUSER ann -get &c", OK);
        admin.check("PUBLISH ab x", ":1\r\n");
        listener.read_reply();
        admin.check("ACL SETUSER ann resetchannels &b*", OK);
        listener.expect_end();
        let mut other = user(server, "bob", "+ping");
        admin.check("ACL DELUSER ann bob nonsense", ":2\r\n");
        other.expect_end();
        admin.check("ACL DELUSER default", "-ERR The 'default' user cannot be removed\r\n");
        // A client that does it to itself gets its reply first.
        let mut own = user(server, "eve", "+@all ~*");
        own.check("ACL DELUSER eve", ":1\r\n");
        own.expect_end();
        let mut own = user(server, "eve", "+@all &a");
        own.send(encode(&["HELLO", "3"]));
        own.read_reply();
        own.send(encode(&["SUBSCRIBE", "a"]));
        own.read_reply();
        own.check("ACL SETUSER eve resetchannels", OK);
        own.expect_end();
    });
}

#[test]
fn passwords_and_the_default_user() {
    on_both(|server| {
        let mut admin = server.client();
        admin.check(
            "AUTH x",
            "-ERR AUTH <password> called without any password configured for the default user. Are you sure \
                               your configuration is correct?\r\n",
        );
        admin.check("CONFIG SET requirepass secret", OK);
        let mut client = server.client();
        client.check("PING", "-NOAUTH Authentication required.\r\n");
        let wrong = "-WRONGPASS invalid username-password pair or user is disabled.\r\n";
        client.check("AUTH x", wrong);
        client.check("AUTH nosuch secret", wrong);
        client.check("AUTH default secret", OK);
        assert!(
            client.ask("ACL LIST").contains(
                "user default on #2bb80d537b1da3e38bd30361aa855686bde0eacd7162fef6a25fe97bf527a25b"
            )
        );
        let log = client.ask("ACL LOG");
        assert!(log.contains("auth") && log.contains("AUTH") && log.contains("nosuch"), "{log}");
        assert_eq!(client.info("stats", "acl_access_denied_auth"), 2);
        client.check("ACL SETUSER ann on >a >b <a +ping", OK);
        client.check("AUTH ann a", wrong);
        client.check("AUTH ann b", OK);
        client.check("RESET", "+RESET\r\n");
        client.check("PING", "-NOAUTH Authentication required.\r\n");
        client.send(encode(&["HELLO", "2", "AUTH", "ann", "b"]));
        client.read_reply();
        client.check("PING", "+PONG\r\n");
        assert_eq!(admin.listed("user=ann", "user").as_deref(), Some("ann"));
        admin.check("CLIENT KILL USER ann", ":1\r\n");
        client.expect_end();
        admin.check("CLIENT KILL USER nosuch", "-ERR No such user 'nosuch'\r\n");
        admin.check("ACL SETUSER ann off", OK);
        admin.check("AUTH ann b", wrong);
        // The last user who may do everything may lose that too.
        admin.check("ACL SETUSER default -@all", OK);
        admin.check("ACL SETUSER default +@all", &denied("default", "acl|setuser"));
    });
}

#[test]
fn files_are_read_and_written_whole() {
    let path = std::env::temp_dir().join(format!("isotherm-users-{}.acl", std::process::id()));
    let name = path.to_str().expect("text");
    std::fs::write(&path, "user ann on nopass +ping\nuser default on nopass ~* &* +@all\n").expect("written");
    let server = Server::start(&["--aclfile", name]);
    let (mut admin, mut ann) = (server.client(), server.client());
    ann.check("AUTH ann x", OK);
    ann.check("GET a", &denied("ann", "get"));
    admin.check("ACL SETUSER bob on >p ~b +get", OK);
    admin.check("ACL SAVE", OK);
    let digest = admin.ask("ACL DIGEST");
    let text = std::fs::read_to_string(&path).expect("text");
    assert_eq!(text.lines().count(), 3, "{text}");
    admin.check("ACL DELUSER bob", ":1\r\n");
    assert_ne!(admin.ask("ACL DIGEST"), digest);
    admin.check("ACL LOAD", OK);
    assert_eq!(admin.ask("ACL DIGEST"), digest);
    assert!(admin.ask("ACL USERS").contains("bob"));
    ann.check("PING", "+PONG\r\n");
    std::fs::write(&path, "user ann on nopass +ping +get ~*\nnonsense\nuser bob +nosuch\n").expect("written");
    let errors = admin.ask("ACL LOAD");
    let expected = [
        format!("{name}:2 should start with user keyword followed by the username. "),
        format!("{name}:3: Error in applying operation '+nosuch': Unknown command or category name in ACL. "),
        "WARNING: ACL errors detected, no change to the previously active ACL rules was performed\r\n".into(),
    ];
    assert_eq!(errors, format!("-ERR {}", expected.concat()));
    ann.check("GET a", &denied("ann", "get"));
    std::fs::write(&path, "user ann on nopass +ping +get ~*\n").expect("written");
    admin.check("ACL LOAD", OK);
    ann.check("GET a", "$-1\r\n");
    std::fs::write(&path, "user bob on\n").expect("written");
    admin.check("ACL LOAD", OK);
    ann.expect_end();
    admin.check("PING", "+PONG\r\n");
}

#[test]
fn the_configuration_has_users() {
    let path = std::env::temp_dir().join(format!("isotherm-users-{}.conf", std::process::id()));
    std::fs::write(&path, "user ann on nopass +get (+set ~b)\n").expect("written");
    let port = common::free_port();
    let command = common::command(&[path.to_str().expect("text"), "--port", &port.to_string()]);
    let server = Server::spawn(port, command);
    server.wait_for_log("Ready to accept");
    let mut admin = server.client();
    assert!(
        admin
            .ask("ACL LIST")
            .contains("user ann on nopass resetchannels -@all +get (~b resetchannels -@all +set)")
    );
    admin.check("ACL SETUSER ann off", OK);
    admin.check("ACL SETUSER bob +ping", OK);
    admin.check("CONFIG REWRITE", OK);
    let text = std::fs::read_to_string(&path).expect("text");
    let users: Vec<&str> = text.lines().filter(|line| line.starts_with("user ")).collect();
    assert_eq!(
        users,
        [
            "user ann off nopass resetchannels -@all +get (~b resetchannels -@all +set)",
            "user bob off resetchannels -@all +ping",
            "user default on nopass ~* &* +@all",
        ]
    );
    admin.check(
        "ACL SAVE",
        "-ERR This instance is not configured to use an ACL file. You may want to specify users via the ACL SETUSER command and \
         then issue a CONFIG REWRITE (assuming you have a configuration file set) in order to store users in the \
         configuration.\r\n",
    );
}

/// A right that is taken away is gone when the reply leaves: nothing passes afterwards, however many are
/// under way.
#[test]
fn a_right_that_is_taken_away_is_gone() {
    for workers in [1, 2, 16] {
        let server = Server::with_workers(workers, &[]);
        let mut admin = server.client();
        let clients: Vec<Client> = (0..4).map(|_| user(&server, "ann", "+incr ~k +acl|whoami")).collect();
        let has_ended = AtomicBool::new(false);
        std::thread::scope(|scope| {
            for client in clients {
                scope.spawn(|| {
                    let request = encode(&["INCR", "k"]).repeat(8);
                    let mut client = client;
                    while !has_ended.load(Relaxed) {
                        client.send(&request);
                        (0..8).for_each(|_| drop(client.read_reply()));
                    }
                });
            }
            let mut passed = 0;
            for _ in 0..1000 {
                admin.check("ACL SETUSER ann +incr", OK);
                let before = admin.ask("GET k");
                for _ in 0..20 {
                    if admin.ask("GET k") != before {
                        passed += 1;
                        break;
                    }
                }
                admin.check("ACL SETUSER ann -incr", OK);
                let after = admin.ask("GET k");
                for _ in 0..3 {
                    assert_eq!(admin.ask("GET k"), after, "{workers} workers");
                }
            }
            has_ended.store(true, Relaxed);
            assert!(passed > 100, "there was a load: {passed}");
        });
    }
}

#[test]
fn the_log_is_bounded() {
    let server = Server::start(&["--acllog-max-len", "3"]);
    let mut client = server.client();
    let request = encode(&["AUTH", "nosuch", "wrong"]).repeat(1000);
    let mut other = encode(&["PING"]);
    for number in 0..1000 {
        other.extend(encode(&["AUTH", &format!("user{number}"), "wrong"]));
    }
    client.send(&request);
    (0..1000).for_each(|_| drop(client.read_reply()));
    client.send(&other);
    (0..1001).for_each(|_| drop(client.read_reply()));
    assert!(client.ask("ACL LOG 100").starts_with("*3\r\n"));
    assert_eq!(client.info("stats", "acl_access_denied_auth"), 2000);
    client.check("ACL LOG RESET", OK);
    client.check("ACL LOG", "*0\r\n");
}
