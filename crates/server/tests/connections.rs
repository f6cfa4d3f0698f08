//! Connections come, go, are counted, refused, killed and paused.

mod common;

use common::{Client, PATIENCE, Server, encode};
use std::io::{Read, Write};
use std::net::{Shutdown, TcpStream};
use std::os::unix::net::UnixStream;
use std::time::{Duration, Instant};

const OK: &str = "+OK\r\n";

fn field(text: &str, name: &str) -> String {
    let line = text.lines().find_map(|line| line.strip_prefix(&format!("{name}:")));
    line.unwrap_or_else(|| panic!("no {name} in {text}")).to_string()
}

fn wait_until(what: &str, mut is: impl FnMut() -> bool) {
    let begun = Instant::now();
    while !is() {
        assert!(begun.elapsed() < PATIENCE, "{what}");
        std::thread::sleep(Duration::from_millis(5));
    }
}

fn id_of(client: &mut Client) -> u64 {
    client.ask("CLIENT ID").trim_matches([':', '\r', '\n']).parse().unwrap()
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
    assert_eq!(field(&first.ask("INFO clients"), "connected_clients"), (count + 1).to_string());
    drop(clients);
    wait_until("all have left", || field(&first.ask("INFO clients"), "connected_clients") == "1");
}

#[test]
fn too_many_are_refused() {
    let server = Server::with_workers(2, &["--maxclients", "5"]);
    // The one that waited for the server to listen may still be leaving.
    let mut first = server.client();
    first.check("PING", "+PONG\r\n");
    wait_until("alone", || field(&first.ask("INFO clients"), "connected_clients") == "1");
    let mut clients: Vec<Client> = (0..4).map(|_| server.client()).collect();
    clients.iter_mut().for_each(|client| client.check("PING", "+PONG\r\n"));
    let mut refused = server.client();
    assert_eq!(refused.read_to_end(), b"-ERR max number of clients reached\r\n");
    assert_eq!(field(&first.ask("INFO stats"), "rejected_connections"), "1");
    drop(clients);
    wait_until("alone", || field(&first.ask("INFO clients"), "connected_clients") == "1");
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

/// Without file descriptors connections wait; the server neither spins nor ends, and goes on when there are some again.
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
    let arguments = ["--port", "0", "--unixsocket", "s.sock", "--unixsocketperm", "700", "--io-threads", "2"];
    let mut server = Server::spawn(port, common::command(&arguments));
    let path = server.folder.join("s.sock");
    wait_until("it listens", || UnixStream::connect(&path).is_ok());
    use std::os::unix::fs::PermissionsExt;
    assert_eq!(std::fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o700);
    let mut client = Client::over_any(UnixStream::connect(&path).unwrap());
    client.check("SET k v", OK);
    client.check("GET k", "$1\r\nv\r\n");
    assert!(client.ask("CLIENT INFO").contains("s.sock:0 "), "{}", client.ask("CLIENT INFO"));
    assert!(client.ask("CLIENT INFO").contains(" flags=U "));
    server.signal("TERM");
    assert_eq!(server.wait().code(), Some(0));
    assert!(!path.exists());
}

#[test]
fn silent_ones_are_closed() {
    let server = Server::start(&["--timeout", "1"]);
    let (mut silent, mut lively) = (server.client(), server.client());
    silent.check("PING", "+PONG\r\n");
    let begun = Instant::now();
    while begun.elapsed() < Duration::from_millis(2500) {
        lively.check("PING", "+PONG\r\n");
        std::thread::sleep(Duration::from_millis(100));
    }
    silent.expect_end();
}

// ---- one client acts on another, wherever their workers are ----

#[test]
fn a_killed_client_runs_nothing_more() {
    for workers in [1, 3] {
        let server = Server::with_workers(workers, &[]);
        let mut killer = server.client();
        for round in 0..30 {
            let mut victim = server.client();
            let id = id_of(&mut victim);
            killer.check(&format!("CLIENT KILL ID {id}"), ":1\r\n");
            // The reply has come: whatever the victim sends now must not run.
            let _ = victim.stream.write_all(&encode(&["SET", "late", &round.to_string()]));
            victim.expect_end();
            killer.check("EXISTS late", ":0\r\n");
            killer.check(&format!("CLIENT KILL ID {id}"), ":0\r\n");
        }
        let id = id_of(&mut killer);
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

/// Clients of two workers. While the first runs a transaction that sleeps under all locks and then does `what`, the second
/// sends its request, is let in and waits for its locks.
fn wait_behind(what: &str, reply: &str, client: &mut Client, late: &mut Client, request: &str) {
    for words in ["MULTI", "DEBUG SLEEP 0.2", what] {
        client.ask(words);
    }
    client.send("EXEC\r\n");
    std::thread::sleep(Duration::from_millis(80));
    late.send(format!("{request}\r\n"));
    client.expect(&format!("*2\r\n+OK\r\n{reply}"));
}

/// A server with two workers, and a client of each.
fn two_workers() -> (Server, Client, Client) {
    let server = Server::with_workers(2, &["--enable-debug-command", "local"]);
    let (mut first, mut second) = (server.client(), server.client());
    first.check("SADD set member", ":1\r\n");
    second.check("PING", "+PONG\r\n");
    (server, first, second)
}

#[test]
fn a_client_killed_while_it_waits_for_its_locks_runs_nothing() {
    for (before, request, _) in LATE {
        let (_server, mut client, mut late) = two_workers();
        let kill = format!("CLIENT KILL ID {}", id_of(&mut late));
        before.iter().for_each(|request| drop(late.ask(request)));
        wait_behind(&kill, ":1\r\n", &mut client, &mut late, request);
        late.expect_end();
        client.check("EXISTS late other", ":0\r\n");
    }
}

#[test]
fn a_command_paused_while_it_waits_for_its_locks_waits_on() {
    let (_server, mut client, mut late) = two_workers();
    for (before, request, reply) in LATE {
        before.iter().for_each(|request| drop(late.ask(request)));
        wait_behind("CLIENT PAUSE 60000 WRITE", OK, &mut client, &mut late, request);
        late.expect_silence();
        client.check("EXISTS late", ":0\r\n");
        client.check("CLIENT UNPAUSE", OK);
        late.expect(reply);
        client.check("DEL late", ":1\r\n");
    }
    // What a pause does not concern goes on.
    wait_behind("CLIENT PAUSE 60000 WRITE", OK, &mut client, &mut late, "SCARD set");
    late.expect(":1\r\n");
    client.check("CLIENT UNPAUSE", OK);
    wait_behind("CLIENT PAUSE 60000 ALL", OK, &mut client, &mut late, "SCARD set");
    late.expect_silence();
}

/// A command that begins in the millisecond in which the clock was read last, and then waits for its locks, goes by the time
/// at which it has them.
#[test]
fn time_is_that_of_the_lock() {
    let (_server, mut client, mut late) = two_workers();
    let ms = |reply: Vec<u8>| -> i64 { String::from_utf8(reply).unwrap()[1..].trim().parse().unwrap() };
    client.check("SET gone v PX 300", OK);
    client.send("DEBUG SLEEP 0.5\r\n");
    std::thread::sleep(Duration::from_millis(80));
    late.send("PING\r\nGET gone\r\n");
    client.expect(OK);
    late.expect("+PONG\r\n");
    late.expect("$-1\r\n");
    for (request, asked) in [("SET k v PX 800", "PTTL k"), ("MSETEX 1 m v PX 800", "PTTL m")] {
        client.send("DEBUG SLEEP 0.5\r\n");
        std::thread::sleep(Duration::from_millis(80));
        late.send(format!("PING\r\n{request}\r\n{asked}\r\n"));
        client.expect(OK);
        late.expect("+PONG\r\n");
        late.read_reply();
        let left_ms = ms(late.read_reply());
        assert!((500..=800).contains(&left_ms), "{request}: {left_ms} ms are left of 800");
    }
    // As long as it wants to wait for its key it waits, from the moment on in which it was not there.
    client.send("DEBUG SLEEP 0.5\r\n");
    std::thread::sleep(Duration::from_millis(80));
    late.send("PING\r\nBLPOP none 0.4\r\n");
    client.expect(OK);
    let begun = Instant::now();
    late.expect("+PONG\r\n");
    late.expect("*-1\r\n");
    assert!(begun.elapsed() > Duration::from_millis(150), "{:?}", begun.elapsed());
}

#[test]
fn a_pause_holds_and_ends() {
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
        pauser.check("CLIENT PAUSE 300 ALL", OK);
        for (at, other) in others.iter_mut().enumerate() {
            other.send(format!("SET q{at} \"a\\x41 b\"\r\nSET 'r' 'c d'\r\nGET q{at}\r\nGET \"r\"\r\n"));
        }
        others[5].expect_silence();
        for other in &mut others {
            for reply in [OK, OK, "$4\r\naA b\r\n", "$3\r\nc d\r\n"] {
                other.expect(reply);
            }
        }
        // Everything waits, and the time ends it.
        let begun = Instant::now();
        pauser.check("CLIENT PAUSE 300", OK);
        for other in &mut others {
            other.send(encode(&["PING"]));
        }
        others[3].expect_silence();
        for other in &mut others {
            other.expect("+PONG\r\n");
        }
        // The server's clock shows whole milliseconds.
        assert!(begun.elapsed() >= Duration::from_millis(295), "{:?}", begun.elapsed());
        pauser.check("PING", "+PONG\r\n");
    }
}

#[test]
fn who_waits_may_leave() {
    let server = Server::with_workers(2, &[]);
    let mut pauser = server.client();
    pauser.check("CLIENT PAUSE 60000 WRITE", OK);
    for _ in 0..10 {
        server.client().send(encode(&["SET", "k", "v"]));
    }
    std::thread::sleep(Duration::from_millis(50));
    pauser.check("CLIENT UNPAUSE", OK);
    wait_until("all have left", || field(&pauser.ask("INFO clients"), "connected_clients") == "1");
}

fn clients_and_blocked(client: &mut Client) -> [String; 2] {
    let info = client.ask("INFO clients");
    ["connected_clients", "blocked_clients"].map(|name| field(&info, name))
}

/// As in the field a client that leaves while a pause holds it up is gone at once, and with it what it has sent.
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
            client.check("PING", "+PONG\r\n");
            client.send(request);
            std::thread::sleep(Duration::from_millis(20));
            client.stream.shutdown(Shutdown::Write).unwrap();
            half_closed.push(client);
        }
        wait_until("all have left", || clients_and_blocked(&mut pauser) == ["1", "0"]);
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
    slow.send("GET big\r\n".repeat(REPLIES) + "BLPOP none 0\r\n");
    slow.stream.shutdown(Shutdown::Write).unwrap();
    std::thread::sleep(Duration::from_millis(100));
    assert_eq!(slow.read_to_end().len(), REPLIES * ("$1048576\r\n\r\n".len() + (1 << 20)));
    // Stopped until it has been handed what it listens to. Requests and end come in one event: the worker is busy.
    let mut listener = server.client();
    listener.ask("HELLO 3");
    listener.ask("SUBSCRIBE channel");
    observer.send("DEBUG SLEEP 0.2\r\n");
    std::thread::sleep(Duration::from_millis(50));
    listener.send("PUBLISH channel x\r\nBLPOP none 0\r\n");
    listener.stream.shutdown(Shutdown::Write).unwrap();
    observer.expect(OK);
    listener.read_to_end();
    wait_until("all have left", || clients_and_blocked(&mut observer) == ["1", "0"]);
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
    let total: u64 = field(&clients[0].ask("INFO commandstats"), "cmdstat_set")
        .split(',')
        .find_map(|part| part.strip_prefix("calls="))
        .unwrap()
        .parse()
        .unwrap();
    assert_eq!(total, 400);
}

/// A failover tool prolongs a pause again and again while many clients wait: they wait behind one moment, not behind a
/// timer each, so that prolonging costs nothing and the others are served.
#[test]
fn a_pause_that_is_prolonged_is_one_wait() {
    const WRITERS: usize = 150;
    let server = Server::with_workers(2, &[]);
    let mut pauser = server.client();
    let mut readers: Vec<Client> = (0..4).map(|_| server.client()).collect();
    pauser.check("CLIENT PAUSE 400 WRITE", OK);
    let mut writers: Vec<Client> = (0..WRITERS).map(|_| server.client()).collect();
    writers.iter_mut().for_each(|writer| writer.send(encode(&["INCR", "n"])));
    wait_until("all wait", || pauser.ask("CLIENT LIST").matches(" flags=b ").count() == WRITERS);
    let (resident_bytes, cpu) = (server.resident_bytes(), server.cpu());
    for _ in 0..30 {
        pauser.check("CLIENT PAUSE 400 WRITE", OK);
        readers.iter_mut().for_each(|reader| reader.check("PING", "+PONG\r\n"));
        std::thread::sleep(Duration::from_millis(100));
    }
    let grown = server.resident_bytes().saturating_sub(resident_bytes);
    assert!(grown < 8 << 20, "{grown} bytes for waiting");
    // Some hundreds of requests take some milliseconds; a pass over all that wait, each millisecond, would take seconds.
    let used = server.cpu() - cpu;
    assert!(used < Duration::from_secs(1), "{used:?} for waiting");
    pauser.check("GET n", "$-1\r\n");
    // It ends by itself, and all of them run, also those that come while the rest goes on.
    let mut last = server.client();
    last.send(encode(&["INCR", "n"]));
    writers.iter_mut().for_each(|writer| assert!(writer.read_reply().starts_with(b":")));
    last.read_reply();
    pauser.check("GET n", "$3\r\n151\r\n");
    // Connections that close while they wait leave nothing behind.
    pauser.check("CLIENT PAUSE 60000 WRITE", OK);
    writers.iter_mut().for_each(|writer| writer.send(encode(&["INCR", "n"])));
    wait_until("all wait", || pauser.ask("CLIENT LIST").matches(" flags=b ").count() == WRITERS);
    drop(writers);
    pauser.check("CLIENT UNPAUSE", OK);
    wait_until("all have left", || field(&pauser.ask("INFO clients"), "connected_clients") == "6");
    last.check("SET n 0", OK);
    // Nor do those that are killed while they wait: when the pause ends, the workers sleep.
    pauser.check("CLIENT PAUSE 300 WRITE", OK);
    let mut killed = server.client();
    killed.check("CLIENT SETNAME killed", OK);
    killed.send(encode(&["INCR", "n"]));
    wait_until("it waits", || pauser.ask("CLIENT LIST").contains(" flags=b "));
    pauser.check("CLIENT KILL NAME killed", ":1\r\n");
    killed.expect_end();
    std::thread::sleep(Duration::from_millis(400));
    let cpu = server.cpu();
    std::thread::sleep(Duration::from_millis(1000));
    let used = server.cpu() - cpu;
    assert!(used < Duration::from_millis(300), "{used:?} for nothing");
}
