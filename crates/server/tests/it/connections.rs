//! Connections come, go, are counted, refused, killed and paused.

use crate::common;
use crate::common::{Client, HOLD, PATIENCE, Server, encode, text_field, wait_until};
use std::io::{Read, Write};
use std::net::{Shutdown, TcpStream};
use std::os::unix::net::UnixStream;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

const OK: &str = "+OK\r\n";

fn connected(client: &mut Client) -> u64 {
    client.info("clients", "connected_clients")
}

#[test]
fn idle_connections_cost_little() {
    let server = Server::with_workers(2, &[]);
    let mut first = server.client();
    first.check("PING", "+PONG\r\n");
    let before = server.resident_bytes();
    // The usual limit of files leaves room for this many on both sides.
    let count = 900;
    let mut clients: Vec<Client> = (0..count).map(|_| server.client()).collect();
    for client in &mut clients {
        client.check("SET k v", OK);
    }
    let grown = server.resident_bytes().saturating_sub(before);
    assert!(grown < count * 4096, "{} bytes each", grown / count);
    assert_eq!(connected(&mut first), count + 1);
    drop(clients);
    wait_until("all have left", || connected(&mut first) == 1);
}

#[test]
fn too_many_are_refused() {
    let server = Server::with_workers(2, &["--maxclients", "5"]);
    // The one that waited for the server to listen may still be leaving.
    let mut first = server.client();
    first.check("PING", "+PONG\r\n");
    wait_until("alone", || connected(&mut first) == 1);
    let mut clients: Vec<Client> = (0..4).map(|_| server.client()).collect();
    clients.iter_mut().for_each(|client| client.check("PING", "+PONG\r\n"));
    let mut refused = server.client();
    assert_eq!(refused.read_to_end(), b"-ERR max number of clients reached\r\n");
    assert_eq!(first.info("stats", "rejected_connections"), 1);
    drop(clients);
    wait_until("alone", || connected(&mut first) == 1);
    server.client().check("PING", "+PONG\r\n");
}

/// The limit on files is the limit on clients, also for CONFIG SET.
#[test]
fn maxclients_follows_the_limit_of_files() {
    let mut command = std::process::Command::new("sh");
    let port = common::free_port();
    let binary = common::binary().display();
    let script = format!("ulimit -n 48; exec {binary} --port {port} --bind 127.0.0.1 --io-threads 1");
    command.args(["-c", &script]);
    let server = Server::spawn(port, command);
    server.wait_for_log("Ready to accept connections");
    assert!(server.log().contains("maxclients has been reduced to 16"), "{}", server.log());
    let mut first = server.client();
    first.check("CONFIG SET maxclients 10", OK);
    first.check("CONFIG SET maxclients 16", OK);
    let refused = first.ask("CONFIG SET maxclients 1000");
    assert!(refused.contains("not able to handle the specified number of clients"), "{refused}");
    let mut clients: Vec<Client> = (0..15).map(|_| server.client()).collect();
    clients.iter_mut().for_each(|client| client.check("PING", "+PONG\r\n"));
    assert_eq!(server.client().read_to_end(), b"-ERR max number of clients reached\r\n");
    first.check("PING", "+PONG\r\n");
}

/// Event loops of many workers, and connections to the port for metrics, have descriptors of their own: with
/// as many clients as there may be, saves find some.
#[test]
fn descriptors_of_threads_are_counted() {
    let run = |files: u32, more: &str| {
        let port = common::free_port();
        let binary = common::binary().display();
        let own = format!("--port {port} --bind 127.0.0.1 --io-threads 64 {more}");
        let mut command = std::process::Command::new("sh");
        command.args(["-c", &format!("ulimit -n {files}; exec {binary} {own}")]);
        let server = Server::spawn(port, command);
        server.wait_for_log("Ready to accept connections");
        server
    };
    let fill = |server: &Server, count: usize| {
        let mut clients: Vec<Client> = (0..count).map(|_| server.client()).collect();
        clients.iter_mut().for_each(|client| client.check("PING", "+PONG\r\n"));
        assert_eq!(server.client().read_to_end(), b"-ERR max number of clients reached\r\n");
        clients
    };
    let saves = |client: &mut Client| {
        client.check("SET k v", OK);
        assert!(client.ask("BGSAVE").starts_with('+'));
        wait_until("it is saved", || client.info("persistence", "rdb_bgsave_in_progress") == 0);
        assert!(client.ask("INFO persistence").contains("rdb_last_bgsave_status:ok"));
    };
    // 214 less 32, and what 64 workers have beyond the 16 of these.
    let server = run(214, "");
    assert!(server.log().contains("maxclients has been reduced to 6 "), "{}", server.log());
    let mut clients = fill(&server, 6);
    saves(&mut clients[0]);
    drop((clients, server));

    let metrics = common::free_port();
    let server = run(254, &format!("--metrics-port {metrics} --appendonly yes"));
    assert!(server.log().contains("maxclients has been reduced to 13 "), "{}", server.log());
    let idle: Vec<TcpStream> = (0..60).map(|_| TcpStream::connect(("127.0.0.1", metrics)).unwrap()).collect();
    let mut clients = fill(&server, 13);
    saves(&mut clients[0]);
    assert!(clients[0].ask("BGREWRITEAOF").starts_with('+'));
    wait_until("it is rewritten", || clients[0].info("persistence", "aof_rewrite_in_progress") == 0);
    assert!(clients[0].ask("INFO persistence").contains("aof_last_bgrewrite_status:ok"));
    clients[0].check("SET k w", OK);
    drop(idle);
}

/// Without file descriptors connections wait; the server neither spins nor ends, and continues when there are
/// some again.
#[test]
fn accepting_rests_when_files_run_out() {
    let server = Server::start(&[]);
    let mut first = server.client();
    first.check("PING", "+PONG\r\n");
    // Below what is open already: every accept fails with EMFILE.
    let limit = |files: &str| {
        let pid = server.pid().to_string();
        std::process::Command::new("prlimit").args(["--pid", &pid, &format!("--nofile={files}")]).status()
    };
    match limit("5:") {
        Ok(status) if status.success() => {}
        other => return eprintln!("skipped: prlimit does not work here ({other:?})"),
    }
    let mut waiting: Vec<TcpStream> =
        (0..5).map(|_| TcpStream::connect(("127.0.0.1", server.port)).unwrap()).collect();
    waiting.iter_mut().for_each(|stream| stream.write_all(b"PING\r\n").unwrap());
    server.wait_for_log("Accepting client connection: Too many open files");
    let cpu = server.cpu();
    std::thread::sleep(Duration::from_millis(600));
    assert!(server.cpu() - cpu < Duration::from_millis(100), "it spins");
    first.check("PING", "+PONG\r\n");
    assert!(limit("1000:").unwrap().success());
    for stream in &mut waiting {
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        let mut reply = [0; 7];
        stream.read_exact(&mut reply).unwrap();
        assert_eq!(&reply, b"+PONG\r\n");
    }
}

#[test]
fn a_unix_socket() {
    let port = common::free_port();
    let group = std::process::Command::new("id").arg("-gn").output().unwrap().stdout;
    let group = String::from_utf8(group).unwrap();
    let arguments = ["--port", "0", "--unixsocket", "s.sock", "--unixsocketperm", "700", "--io-threads", "2"];
    let arguments = [&arguments[..], &["--unixsocketgroup", group.trim()]].concat();
    let mut server = Server::spawn(port, common::command(&arguments));
    let path = server.folder.join("s.sock");
    wait_until("it listens", || UnixStream::connect(&path).is_ok());
    use std::os::unix::fs::{MetadataExt, PermissionsExt};
    assert_eq!(std::fs::metadata(&path).unwrap().gid(), std::fs::metadata("/proc/self").unwrap().gid());
    assert_eq!(std::fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o700);
    let mut client = Client::over_any(UnixStream::connect(&path).unwrap());
    client.check("SET k v", OK);
    client.check("GET k", "$1\r\nv\r\n");
    assert!(client.ask("CLIENT INFO").contains("s.sock:0 "), "{}", client.ask("CLIENT INFO"));
    assert!(client.ask("CLIENT INFO").contains(" flags=U "));
    // Neither the socket of another server nor a file that is none is taken away.
    let file = server.folder.join("file");
    std::fs::write(&file, "data").unwrap();
    for taken in [&path, &file] {
        let arguments = ["--port", "0", "--unixsocket", taken.to_str().unwrap()];
        let mut second = Server::spawn(common::free_port(), common::command(&arguments));
        assert_eq!(second.wait().code(), Some(1));
        assert!(second.log().contains("Failed opening Unix socket: bind: Address already in use"));
    }
    assert_eq!(std::fs::read(&file).unwrap(), b"data");
    client.check("GET k", "$1\r\nv\r\n");
    // One that its process has left is in the way of none.
    server.signal("KILL");
    server.wait();
    assert!(path.exists());
    let left = ["--port", "0", "--unixsocket", path.to_str().unwrap()];
    let mut server = Server::spawn(common::free_port(), common::command(&left));
    wait_until("it listens", || UnixStream::connect(&path).is_ok());
    server.signal("TERM");
    assert_eq!(server.wait().code(), Some(0));
    assert!(!path.exists());
    let unknown = ["--port", "0", "--unixsocket", "s.sock", "--unixsocketgroup", "no such group"];
    let mut server = Server::spawn(common::free_port(), common::command(&unknown));
    assert_eq!(server.wait().code(), Some(1));
    assert!(server.log().contains("Failed opening Unix socket: getgrnam error for group 'no such group': "));
}

/// Connections are moved that are sent to a worker during its long command. One that the worker has taken
/// before stays there.
#[test]
fn a_new_connection_waits_for_no_busy_worker() {
    let server = Server::with_workers(2, &["--enable-debug-command", "yes"]);
    let mut busy = server.client();
    busy.send([encode(&["DEBUG", "LOG", "begun"]), encode(&["DEBUG", "SLEEP", "50"])].concat());
    server.wait_for_log("DEBUG LOG: begun\n");
    for _ in 0..20 {
        server.client().check("PING", "+PONG\r\n");
    }
    busy.expect_silence();
}

#[test]
fn silent_ones_are_closed() {
    let server = Server::start(&["--timeout", "2"]);
    let (mut silent, mut lively) = (server.client(), server.client());
    silent.check("PING", "+PONG\r\n");
    let begun = Instant::now();
    wait_until("the silent one is closed", || connected(&mut lively) == 1);
    assert!(begun.elapsed() >= Duration::from_millis(1900), "closed after {:?}", begun.elapsed());
    silent.expect_end();
    // The other one stays for as long again.
    while begun.elapsed() < Duration::from_millis(4500) {
        lively.check("PING", "+PONG\r\n");
        std::thread::sleep(Duration::from_millis(100));
    }
}

// ---- one client acts on another, wherever their workers are ----

#[test]
fn a_killed_client_runs_nothing_more() {
    for workers in [1, 3] {
        let server = Server::with_workers(workers, &[]);
        let mut killer = server.client();
        for round in 0..30 {
            let mut victim = server.client();
            let id = victim.id();
            killer.check(&format!("CLIENT KILL ID {id}"), ":1\r\n");
            // The reply has come: whatever the victim sends now must not run.
            let _ = victim.stream.write_all(&encode(&["SET", "late", &round.to_string()]));
            victim.expect_end();
            killer.check("EXISTS late", ":0\r\n");
            killer.check(&format!("CLIENT KILL ID {id}"), ":0\r\n");
        }
        let id = killer.id();
        killer.check(&format!("CLIENT KILL ID {id} SKIPME no"), ":1\r\n");
        killer.expect_end();
    }
}

/// Each way to lock, by a request that makes the key `late`, what is sent before it, and its reply.
const LATE: [(&[&str], &str, &str); 5] = [
    (&[], "SET late v", OK),
    (&[], "MSET late v other v", OK),
    (&[], "SUNIONSTORE late set", ":1\r\n"),
    (&[], "SORT set ALPHA STORE late", ":1\r\n"),
    (&["MULTI", "SET late v"], "EXEC", "*1\r\n+OK\r\n"),
];

/// A server with two workers, and a client of each.
struct Two {
    server: Server,
    client: Client,
    late: Client,
}

impl Two {
    fn start() -> Two {
        let server = Server::with_workers(2, &["--enable-debug-command", "local"]);
        let (mut client, mut late) = (server.client(), server.client());
        client.check("SADD set member", ":1\r\n");
        late.check("PING", "+PONG\r\n");
        Two { server, client, late }
    }

    /// While the first client holds all locks, before it does `what` under them, the second sends its
    /// request, is let in and waits for its locks.
    fn wait_behind(&mut self, what: &str, reply: &str, request: &str) {
        self.server.hold_all_locks(&mut self.client, &[what]);
        self.late.send(format!("{request}\r\n"));
        self.client.expect(&format!("*3\r\n+OK\r\n+OK\r\n{reply}"));
    }
}

#[test]
fn a_client_killed_while_it_waits_for_its_locks_runs_nothing() {
    for (before, request, _) in LATE {
        let mut two = Two::start();
        let kill = format!("CLIENT KILL ID {}", two.late.id());
        before.iter().for_each(|request| drop(two.late.ask(request)));
        two.wait_behind(&kill, ":1\r\n", request);
        two.late.expect_end();
        two.client.check("EXISTS late other", ":0\r\n");
    }
}

#[test]
fn a_command_paused_while_it_waits_for_its_locks_waits_on() {
    let mut two = Two::start();
    for (before, request, reply) in LATE {
        before.iter().for_each(|request| drop(two.late.ask(request)));
        two.wait_behind("CLIENT PAUSE 60000 WRITE", OK, request);
        two.late.expect_silence();
        two.client.check("EXISTS late", ":0\r\n");
        two.client.check("CLIENT UNPAUSE", OK);
        two.late.expect(reply);
        two.client.check("DEL late", ":1\r\n");
    }
    // Commands that a pause does not concern run.
    two.wait_behind("CLIENT PAUSE 60000 WRITE", OK, "SCARD set");
    two.late.expect(":1\r\n");
    two.client.check("CLIENT UNPAUSE", OK);
    two.wait_behind("CLIENT PAUSE 60000 ALL", OK, "SCARD set");
    two.late.expect_silence();
}

/// A command that begins in the millisecond in which the clock was read last, and then waits for its locks,
/// goes by the time at which it has them.
#[test]
fn time_is_that_of_the_lock() {
    const TTL: Duration = Duration::from_secs(100);
    let Two { server, mut client, mut late } = Two::start();
    let held = "*2\r\n+OK\r\n+OK\r\n";
    // PING reads the clock.
    client.check(&format!("SET gone v PX {}", HOLD.as_millis() * 3 / 4), OK);
    server.hold_all_locks(&mut client, &[]);
    late.send("PING\r\nGET gone\r\n");
    client.expect(held);
    late.expect("+PONG\r\n");
    late.expect("$-1\r\n");
    let ttl_ms = TTL.as_millis();
    for (request, asked) in [
        (format!("SET k v PX {ttl_ms}"), "PEXPIRETIME k"),
        (format!("MSETEX 1 m v PX {ttl_ms}"), "PEXPIRETIME m"),
    ] {
        let begun = SystemTime::now().duration_since(UNIX_EPOCH).unwrap();
        server.hold_all_locks(&mut client, &[]);
        late.send(format!("PING\r\n{request}\r\n"));
        client.expect(held);
        late.expect("+PONG\r\n");
        late.read_reply();
        let (due_ms, earliest_ms) = (late.ask_number(asked), (begun + HOLD + TTL).as_millis() as i64);
        assert!(due_ms >= earliest_ms, "{request}: {} ms too early", earliest_ms - due_ms);
    }
    // As long as it wants to wait for its key it waits, from the moment on in which it was not there.
    let begun = server.hold_all_locks(&mut client, &[]);
    late.send("PING\r\nBLPOP none 0.4\r\n");
    client.expect(held);
    late.expect("+PONG\r\n");
    late.expect("*-1\r\n");
    // The server's clock shows whole milliseconds.
    assert!(begun.elapsed() >= HOLD + Duration::from_millis(395), "{:?}", begun.elapsed());
}

#[test]
fn a_pause_holds_and_ends() {
    // One of 300 ms: the server's clock shows whole milliseconds.
    const PAUSE: Duration = Duration::from_millis(295);
    for workers in [1, 3] {
        let server = Server::with_workers(workers, &[]);
        let mut pauser = server.client();
        let mut others: Vec<Client> = (0..6).map(|_| server.client()).collect();
        // Writes wait, reads do not.
        pauser.check("CLIENT PAUSE 60000 WRITE", OK);
        for (at, other) in others.iter_mut().enumerate() {
            other.check("GET k", "$-1\r\n");
            other.send(encode(&["SET", &format!("k{at}"), "v"]));
            other.send(encode(&["GET", &format!("k{at}")]));
        }
        others.iter_mut().for_each(Client::expect_silence);
        pauser.check("DBSIZE", ":0\r\n");
        pauser.check("CLIENT UNPAUSE", OK);
        for other in &mut others {
            other.expect(OK);
            other.expect("$1\r\nv\r\n");
        }
        // EXEC waits if one of its commands writes.
        pauser.check("CLIENT PAUSE 60000 WRITE", OK);
        others[0].check("MULTI", OK);
        others[0].check("GET k0", "+QUEUED\r\n");
        others[0].check("EXEC", "*1\r\n$1\r\nv\r\n");
        pauser.check("CLIENT UNPAUSE", OK);
        others[0].check("MULTI", OK);
        others[0].check("SET k0 w", "+QUEUED\r\n");
        pauser.check("CLIENT PAUSE 60000 WRITE", OK);
        others[0].send(encode(&["EXEC"]));
        others[0].expect_silence();
        pauser.check("CLIENT UNPAUSE", OK);
        others[0].expect("*1\r\n+OK\r\n");
        // Inline requests are decoded where they lie, and still come out right when they run later.
        let begun = Instant::now();
        pauser.check("CLIENT PAUSE 300 ALL", OK);
        for (at, other) in others.iter_mut().enumerate() {
            other.send(format!("SET q{at} \"a\\x41 b\"\r\nSET 'r' 'c d'\r\nGET q{at}\r\nGET \"r\"\r\n"));
        }
        for other in others.iter_mut().rev() {
            for reply in [OK, OK, "$4\r\naA b\r\n", "$3\r\nc d\r\n"] {
                other.expect(reply);
                assert!(begun.elapsed() >= PAUSE, "{:?}", begun.elapsed());
            }
        }
        // Everything waits, and the time ends it.
        let begun = Instant::now();
        pauser.check("CLIENT PAUSE 300", OK);
        for other in &mut others {
            other.send(encode(&["PING"]));
        }
        for other in others.iter_mut().rev() {
            other.expect("+PONG\r\n");
            assert!(begun.elapsed() >= PAUSE, "{:?}", begun.elapsed());
        }
        pauser.check("PING", "+PONG\r\n");
    }
}

#[test]
fn who_waits_may_leave() {
    let server = Server::with_workers(2, &[]);
    let mut pauser = server.client();
    pauser.check("CLIENT PAUSE 60000 WRITE", OK);
    // Some leave before it is known that they wait, some afterwards.
    (0..5).for_each(|_| server.client().send(encode(&["SET", "k", "v"])));
    let mut waiting: Vec<Client> = (0..5).map(|_| server.client()).collect();
    waiting.iter_mut().for_each(|client| client.send(encode(&["SET", "k", "v"])));
    wait_until("five wait", || connected(&mut pauser) == 6 && pauser.waiting_count() == 5);
    drop(waiting);
    pauser.check("CLIENT UNPAUSE", OK);
    wait_until("all have left", || connected(&mut pauser) == 1);
}

fn is_alone(client: &mut Client) -> bool {
    connected(client) == 1 && client.blocked_count() == 0
}

/// As in Valkey a client that leaves while a pause holds it up is gone at once, and with it what it has sent.
#[test]
fn who_leaves_in_a_pause_runs_nothing_more() {
    for workers in [1, 2] {
        let server = Server::with_workers(workers, &[]);
        let mut pauser = server.client();
        pauser.check("CLIENT PAUSE 60000 WRITE", OK);
        let mut half_closed = Vec::new();
        for request in ["SET k v\r\n", "GET none\r\nSET k v\r\nGET k\r\n", "BLPOP none 0\r\n"] {
            let mut closed = server.client();
            closed.send(request);
            drop(closed);
            // The end is in the first event, or comes later.
            let mut client = server.client();
            client.send(request);
            client.stream.shutdown(Shutdown::Write).unwrap();
            half_closed.push(client);
            let mut client = server.client();
            let id = client.id();
            client.send(request);
            wait_until("it waits", || pauser.sees_waiting(id));
            client.stream.shutdown(Shutdown::Write).unwrap();
            half_closed.push(client);
        }
        wait_until("all have left", || is_alone(&mut pauser));
        for client in &mut half_closed {
            let got = client.read_to_end();
            assert!(got.is_empty() || got == b"$-1\r\n", "{}", String::from_utf8_lossy(&got));
        }
        pauser.check("CLIENT UNPAUSE", OK);
        pauser.check("EXISTS k", ":0\r\n");
    }
}

/// The end comes while nothing is read, and what has come before it then waits for a key.
#[test]
fn an_end_before_a_wait_for_a_key_is_noticed() {
    let server = Server::with_workers(1, &["--enable-debug-command", "local"]);
    let mut observer = server.client();
    observer.check(&format!("SET big {}", "v".repeat(1 << 20)), OK);
    // Stopped because it reads too little.
    const REPLIES: usize = 64;
    let mut slow = server.client();
    let id = slow.id();
    slow.send("GET big\r\n".repeat(REPLIES) + "BLPOP none 0\r\n");
    slow.stream.shutdown(Shutdown::Write).unwrap();
    wait_until("it is stopped", || observer.unread_bytes(id) > 10 << 20);
    assert_eq!(slow.read_to_end().len(), REPLIES * ("$1048576\r\n\r\n".len() + (1 << 20)));
    // Stopped until it has been handed what it listens to. Requests and end come in one event: the worker is
    // busy.
    let mut listener = server.client();
    listener.ask("HELLO 3");
    listener.ask("SUBSCRIBE channel");
    server.hold_all_locks(&mut observer, &[]);
    listener.send("PUBLISH channel x\r\nBLPOP none 0\r\n");
    listener.stream.shutdown(Shutdown::Write).unwrap();
    observer.expect("*2\r\n+OK\r\n+OK\r\n");
    listener.read_to_end();
    wait_until("all have left", || is_alone(&mut observer));
}

#[test]
fn replies_can_be_turned_off() {
    let server = Server::start(&[]);
    let mut client = server.client();
    client.send("CLIENT REPLY SKIP\r\nSET a 1\r\nGET a\r\n");
    client.expect("$1\r\n1\r\n");
    client.send("CLIENT REPLY OFF\r\nSET a 2\r\nNONSENSE\r\nGET a\r\nCLIENT REPLY ON\r\nGET a\r\n");
    client.expect(OK);
    client.expect("$1\r\n2\r\n");
    client.send("CLIENT REPLY SKIP\r\nRESET\r\nPING\r\n");
    client.expect("+PONG\r\n");
    client.send("CLIENT REPLY OFF\r\nRESET\r\nPING\r\n");
    client.expect("+RESET\r\n");
    client.expect("+PONG\r\n");
}

#[test]
fn resp3_in_the_middle_of_a_pipeline() {
    let server = Server::start(&[]);
    let mut client = server.client();
    client.send("GET none\r\nHELLO 3\r\nGET none\r\nHELLO 2\r\nGET none\r\nRESET\r\nGET none\r\n");
    client.expect("$-1\r\n");
    assert!(client.read_reply().starts_with(b"%"));
    client.expect("_\r\n");
    assert!(client.read_reply().starts_with(b"*"));
    client.expect("$-1\r\n");
    client.expect("+RESET\r\n");
    client.expect("$-1\r\n");
}

#[test]
fn listening_elsewhere() {
    let server = Server::start(&[]);
    let mut client = server.client();
    let other = common::free_port();
    client.check(&format!("CONFIG SET port {other}"), OK);
    wait_until("it listens there", || TcpStream::connect(("127.0.0.1", other)).is_ok());
    wait_until("not here any more", || TcpStream::connect(("127.0.0.1", server.port)).is_err());
    Client::over(TcpStream::connect(("127.0.0.1", other)).unwrap()).check("PING", "+PONG\r\n");
    // A port in use is refused, and the old one stays.
    let taken = std::net::TcpListener::bind(("127.0.0.1", 0)).unwrap();
    let port = taken.local_addr().unwrap().port();
    let reply = client.ask(&format!("CONFIG SET port {port}"));
    assert!(reply.starts_with("-ERR CONFIG SET failed"), "{reply}");
    Client::over(TcpStream::connect(("127.0.0.1", other)).unwrap()).check("PING", "+PONG\r\n");
    client.check(
        "CONFIG GET port",
        &format!("*2\r\n$4\r\nport\r\n${}\r\n{other}\r\n", other.to_string().len()),
    );
}

#[test]
fn every_connection_has_a_worker_and_all_see_the_same() {
    let server = Server::with_workers(4, &[]);
    let mut clients: Vec<Client> = (0..8).map(|_| server.client()).collect();
    for round in 0..50 {
        for at in 0..clients.len() {
            let value = round * 8 + at;
            clients[at].check(&format!("SET shared {value}"), OK);
            let next = (at + 1) % clients.len();
            clients[next].check("GET shared", &format!("${}\r\n{value}\r\n", value.to_string().len()));
        }
    }
    let total: u64 = text_field(&clients[0].ask("INFO commandstats"), "cmdstat_set")
        .split(',')
        .find_map(|part| part.strip_prefix("calls="))
        .unwrap()
        .parse()
        .unwrap();
    assert_eq!(total, 400);
}

/// A failover tool prolongs a pause again and again while many clients wait: they wait behind one moment, not
/// behind a timer each, so that prolonging costs nothing and the others are served.
#[test]
fn a_pause_that_is_prolonged_is_one_wait() {
    const WRITERS: usize = 150;
    // Shorter than all rounds together, and longer than a busy machine may keep one of them waiting.
    const PAUSE: &str = "CLIENT PAUSE 2000 WRITE";
    let server = Server::with_workers(2, &[]);
    let mut pauser = server.client();
    let mut readers: Vec<Client> = (0..4).map(|_| server.client()).collect();
    pauser.check(PAUSE, OK);
    let mut writers: Vec<Client> = (0..WRITERS).map(|_| server.client()).collect();
    writers.iter_mut().for_each(|writer| writer.send(encode(&["INCR", "n"])));
    wait_until("all wait", || {
        pauser.check(PAUSE, OK);
        pauser.waiting_count() == WRITERS
    });
    let (resident_bytes, cpu) = (server.resident_bytes(), server.cpu());
    for _ in 0..30 {
        pauser.check(PAUSE, OK);
        readers.iter_mut().for_each(|reader| reader.check("PING", "+PONG\r\n"));
        std::thread::sleep(Duration::from_millis(100));
    }
    let grown = server.resident_bytes().saturating_sub(resident_bytes);
    assert!(grown < 8 << 20, "{grown} bytes for waiting");
    // Some hundreds of requests take some milliseconds; a pass over all that wait, each millisecond, would
    // take seconds.
    let used = server.cpu() - cpu;
    assert!(used < Duration::from_secs(1), "{used:?} for waiting");
    pauser.check("GET n", "$-1\r\n");
    // It ends by itself, and all of them run, also those that come while the rest runs.
    let mut last = server.client();
    last.send(encode(&["INCR", "n"]));
    writers.iter_mut().for_each(|writer| assert!(writer.read_reply().starts_with(b":")));
    last.read_reply();
    pauser.check("GET n", "$3\r\n151\r\n");
    // Connections that close while they wait leave nothing behind.
    pauser.check("CLIENT PAUSE 60000 WRITE", OK);
    writers.iter_mut().for_each(|writer| writer.send(encode(&["INCR", "n"])));
    wait_until("all wait", || pauser.waiting_count() == WRITERS);
    drop(writers);
    pauser.check("CLIENT UNPAUSE", OK);
    wait_until("all have left", || connected(&mut pauser) == 6);
    last.check("SET n 0", OK);
    // Nor do those that are killed while they wait: when the pause ends, the workers sleep.
    let mut killed = server.client();
    let id = killed.id();
    pauser.check(PAUSE, OK);
    killed.send(encode(&["INCR", "n"]));
    wait_until("it waits", || pauser.sees_waiting(id));
    pauser.check(&format!("CLIENT KILL ID {id}"), ":1\r\n");
    killed.expect_end();
    wait_until("the pause ends", || pauser.ask("INFO clients").contains("\npaused_actions:none\r\n"));
    let cpu = server.cpu();
    std::thread::sleep(Duration::from_millis(1000));
    let used = server.cpu() - cpu;
    assert!(used < Duration::from_millis(300), "{used:?} for nothing");
}

/// A client that reads its reply is not silent, however long that takes.
#[test]
fn a_client_that_reads_a_large_reply_is_not_idle() {
    const MB: usize = 1 << 20;
    let server = Server::start(&[]);
    let (mut reading, mut other) = (server.client(), server.client());
    let of = format!("id={}", reading.id());
    reading.check(&format!("SET k {}", "v".repeat(60 * MB)), OK);
    reading.send(encode(&["GET", "k"]));
    let mut idle_seconds = || other.listed(&of, "idle").unwrap().parse::<u64>().unwrap();
    wait_until("it looks idle", || idle_seconds() > 1);
    let mut piece = vec![0; MB];
    let is_seen = (0..40).any(|_| {
        reading.stream.read_exact(&mut piece).unwrap();
        idle_seconds() == 0
    });
    assert!(is_seen, "40 MB were read");
}
