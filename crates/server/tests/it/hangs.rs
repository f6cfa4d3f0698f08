//! Hanging calls hold up no client that does not need them: each admin command during each call that hangs,
//! and the end of the process.
//!
//! ```text
//!                      swap read   swap write   swap sync   slow script   stopped replica
//!   SAVE                   .           .            .            .              .        a reply in `BOUND`,
//!   CONFIG SET ...         .           .            .            .               .         PING is answered
//!   SHUTDOWN, SIGTERM      .           .            .            .               .         the process ends
//! ```

use crate::common::{Client, Server, binary, encode, free_port, text_field, wait_until};
use crate::swap::Folder;
use crate::swap_faults::{fault, with_cold};
use std::net::TcpStream;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

/// A reply that takes longer does not come. A tenth of it, on a quiet machine.
const BOUND: Duration = Duration::from_secs(10);
/// A process that is asked to end by a signal ends within 8 s. The rest is for a busy machine.
const END_BOUND: Duration = Duration::from_secs(20);
const SAVES: [&str; 2] = ["--save", "3600 1000000"];
const NO_SAVES: [&str; 2] = ["--save", ""];
const AOF: [&str; 2] = ["--appendonly", "yes"];
const BRIEF_READS: [&str; 2] = ["--swap-read-timeout", "300"];

/// A server with cold values, whose disk hangs when they are read.
fn hung(folder: &Folder, more: &[&[&str]]) -> Server {
    let server = with_cold(folder, 200, &more.concat());
    fault(&mut server.client(), "read hang");
    server
}

/// The reply to a request, which comes in time; a PING on two other connections is answered before it, or in
/// time.
#[track_caller]
fn ask_beside(server: &Server, request: &[&str]) -> String {
    let mut clients: Vec<Client> = (0..2).map(|_| server.client()).collect();
    let mut client = server.client();
    let begun = Instant::now();
    client.send(encode(request));
    clients.iter_mut().for_each(|other| other.send(encode(&["PING"])));
    clients.iter_mut().for_each(|other| other.expect("+PONG\r\n"));
    let reply = String::from_utf8_lossy(&client.read_reply()).into_owned();
    assert!(begun.elapsed() < BOUND, "{request:?} took {:?}: {reply}", begun.elapsed());
    reply
}

#[track_caller]
fn end_of(mut server: Server) -> (ExitStatus, String) {
    let begun = Instant::now();
    let status = server.wait();
    assert!(begun.elapsed() < END_BOUND, "{:?}", begun.elapsed());
    (status, server.log())
}

#[track_caller]
fn terminate(server: Server) -> (ExitStatus, String) {
    server.signal("TERM");
    end_of(server)
}

// ---- a save that reads a disk that hangs is ended ----

#[test]
fn flushall_ends_a_save_that_hangs() {
    let folder = Folder::new("hung-flushall");
    let server = hung(&folder, &[&SAVES]);
    let mut client = server.client();
    client.check("BGSAVE", "+Background saving started\r\n");
    assert_eq!(ask_beside(&server, &["FLUSHALL"]), "+OK\r\n");
    server.wait_for_log("Background saving was cancelled");
    // Keys that were flushed are not in the file.
    assert_eq!(client.info("persistence", "rdb_changes_since_last_save"), 0);
    client.check("DEBUG RELOAD NOSAVE", "+OK\r\n");
    client.check("DBSIZE", ":0\r\n");
}

#[test]
fn the_append_only_file_is_switched_off_beside_a_rewrite_that_hangs() {
    let folder = Folder::new("hung-aof-off");
    let server = hung(&folder, &[&NO_SAVES, &AOF]);
    let mut client = server.client();
    client.check("BGREWRITEAOF", "+Background append only file rewriting started\r\n");
    assert_eq!(ask_beside(&server, &["CONFIG", "SET", "appendonly", "no"]), "+OK\r\n");
    server.wait_for_log("Background AOF rewrite was cancelled");
    // On again: its first base hangs too, and nothing else does.
    assert_eq!(ask_beside(&server, &["CONFIG", "SET", "appendonly", "yes"]), "+OK\r\n");
    fault(&mut client, "read none");
    wait_until("the base is there", || client.info("persistence", "aof_rewrite_in_progress") == 0);
    assert_eq!(text_field(&client.ask("INFO persistence"), "aof_last_bgrewrite_status"), "ok");
}

/// SAVE is given up by itself, a save in the background is not.
#[test]
fn save_gives_up_a_disk_that_does_not_answer() {
    let folder = Folder::new("hung-save");
    let server = hung(&folder, &[&NO_SAVES, &BRIEF_READS]);
    assert_eq!(ask_beside(&server, &["SAVE"]), "-ERR\r\n");
    assert!(server.log().contains("cannot be read (the disk does not answer)"));
    let mut client = server.client();
    client.check("BGSAVE", "+Background saving started\r\n");
    fault(&mut client, "read none");
    server.wait_for_log("Background saving terminated with success");
}

#[test]
fn shutdown_ends_a_save_that_hangs() {
    let folder = Folder::new("hung-shutdown");
    let server = hung(&folder, &[&SAVES, &BRIEF_READS]);
    let mut client = server.client();
    client.check("BGSAVE", "+Background saving started\r\n");
    // The last file needs the disk as well.
    let refused = "-ERR Errors trying to SHUTDOWN. Check logs.\r\n";
    assert_eq!(ask_beside(&server, &["SHUTDOWN"]), refused);
    client.send(encode(&["SHUTDOWN", "NOSAVE"]));
    assert_eq!(end_of(server).0.code(), Some(0));
}

// ---- a signal ends the process ----

#[test]
fn a_signal_ends_a_rewrite_that_hangs() {
    let folder = Folder::new("hung-rewrite-term");
    let server = hung(&folder, &[&NO_SAVES, &AOF]);
    server.client().check("BGREWRITEAOF", "+Background append only file rewriting started\r\n");
    let (status, log) = terminate(server);
    assert_eq!(status.code(), Some(0), "{log}");
}

#[test]
fn a_last_save_that_hangs_does_not_keep_the_process() {
    let folder = Folder::new("hung-term");
    let server = hung(&folder, &[&SAVES]);
    let (status, log) = terminate(server);
    assert_eq!(status.code(), Some(1), "{log}");
    assert!(log.contains("Exiting now. Lost are 201 changes"), "{log}");
    // With an append-only file nothing is.
    let folder = Folder::new("hung-term-aof");
    let server = hung(&folder, &[&SAVES, &AOF]);
    let (status, log) = terminate(server);
    assert_eq!(status.code(), Some(1), "{log}");
    assert!(log.contains("Nothing is lost: the append-only file is synced."), "{log}");
}

#[test]
fn a_script_that_has_written_does_not_keep_the_process() {
    let server = Server::with_workers(2, &[]);
    let mut client = server.client();
    client.send(encode(&["EVAL", "server.call('SET', KEYS[1], 'x') while true do end", "1", "key"]));
    let mut other = server.client();
    wait_until("it has written", || other.info("persistence", "rdb_changes_since_last_save") == 1);
    let (status, log) = terminate(server);
    assert_eq!(status.code(), Some(1), "{log}");
    assert!(log.contains("or a script runs on. Exiting now."), "{log}");
}

/// A disk that fails, other than one that hangs, is tried again; then the process stays, and says so.
#[test]
fn a_last_save_that_fails_keeps_the_process_until_the_next_signal() {
    let mut server = Server::start(&["--shutdown-on-sigterm", "save"]);
    let mut client = server.client();
    client.check("SET key value", "+OK\r\n");
    // The name of the file is taken by a folder.
    let taken = server.folder.join("dump.rdb");
    std::fs::create_dir(&taken).unwrap();
    let refused = |client: &mut Client| client.ask("INFO server").contains("shutdown_refused_seconds:");
    let refuse = |server: &Server, client: &mut Client| {
        server.signal("TERM");
        server.wait_for_log("Error trying to save the DB, can't exit.");
        client.check("SET key value", "+OK\r\n");
        wait_until("it is refused", || refused(client));
    };
    refuse(&server, &mut client);
    server.wait_for_log("Another SIGTERM ends the process without that.");
    assert!(server.log().matches("Errors trying to shut down the server.").count() > 2);
    // A shutdown can be called off, and a save ends it.
    client.check("SHUTDOWN ABORT", "+OK\r\n");
    assert!(!refused(&mut client));
    client.check("SHUTDOWN ABORT", "-ERR No shutdown in progress.\r\n");
    refuse(&server, &mut client);
    std::fs::remove_dir(&taken).unwrap();
    client.check("SAVE", "+OK\r\n");
    wait_until("it is forgotten", || !refused(&mut client));
    std::fs::remove_file(&taken).unwrap();
    std::fs::create_dir(&taken).unwrap();
    refuse(&server, &mut client);
    server.signal("TERM");
    assert_eq!(server.wait().code(), Some(1));
    assert!(server.log().contains("Error trying to save the DB. Exit anyway."));
}

/// The file comes to be written while it is tried.
#[test]
fn a_last_save_that_fails_is_tried_again() {
    let mut server = Server::start(&["--shutdown-on-sigterm", "save"]);
    // Before that a signal ends the process as any.
    server.wait_for_log("Ready to accept connections");
    let taken = server.folder.join("dump.rdb");
    std::fs::create_dir(&taken).unwrap();
    server.signal("TERM");
    server.wait_for_log("Error trying to save the DB, can't exit.");
    std::fs::remove_dir(&taken).unwrap();
    assert_eq!(server.wait().code(), Some(0));
}

// ---- a client that changes parameters ----

#[test]
fn a_change_of_parameters_that_hangs_keeps_no_worker() {
    let server = Server::with_workers(3, &["--enable-debug-command", "yes"]);
    let (mut holder, mut first) = (server.client(), server.client());
    server.hold_all_locks_for(Duration::from_secs(3), &mut holder, &[]);
    // It waits for the locks, and has the right to change parameters.
    first.send(encode(&["CONFIG", "SET", "appendonly", "yes"]));
    let mut second = server.client();
    let mut refused = false;
    wait_until("the right is taken", || {
        let reply = second.ask("CONFIG SET timeout 0");
        refused |= reply.starts_with("-ERR CONFIG SET failed - another CONFIG SET is under way");
        refused || first_is_over(&mut first)
    });
    assert!(refused);
    first.expect("+OK\r\n");
    second.check("CONFIG SET timeout 0", "+OK\r\n");
}

fn first_is_over(client: &mut Client) -> bool {
    client.stream.set_nonblocking(true).unwrap();
    let is_over = client.stream.peek(&mut [0]).is_ok();
    client.stream.set_nonblocking(false).unwrap();
    is_over
}

// ---- the table ----

const ROWS: &[&[&str]] = &[
    &["CONFIG", "SET", "maxmemory", "32mb"],
    &["CONFIG", "GET", "maxmemory"],
    &["INFO", "everything"],
    &["CLIENT", "LIST"],
    &["SCAN", "0", "COUNT", "1000"],
    &["BGSAVE"],
    &["SWAPDB", "0", "1"],
    &["SWAPDB", "0", "1"],
    &["FLUSHDB"],
    &["BGREWRITEAOF"],
    &["SAVE"],
    &["CONFIG", "SET", "appendonly", "no"],
    &["CONFIG", "SET", "appendonly", "yes"],
    &["REPLICAOF", "127.0.0.1", "1"],
    &["REPLICAOF", "NO", "ONE"],
    &["BGSAVE"],
    &["FLUSHALL"],
    &["CONFIG", "SET", "timeout", "0"],
];

/// Things that hang.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Column {
    Read,
    Write,
    Sync,
    Script,
    Replica,
}

/// Makes it hang. The returned values keep it so.
fn hang(column: Column, server: &Server) -> Option<(Client, Option<Server>)> {
    let mut client = server.client();
    match column {
        Column::Read => fault(&mut client, "read hang"),
        Column::Write => fault(&mut client, "write hang"),
        Column::Sync => fault(&mut client, "sync hang"),
        Column::Script => {
            let script = "server.call('SET', KEYS[1], 'x') while true do end";
            let mut caller = server.client();
            caller.send(encode(&["EVAL", script, "1", "script"]));
            wait_until("it runs", || client.ask("INFO clients").contains("blocked_clients:"));
            return Some((caller, None));
        }
        Column::Replica => {
            let replica = Server::start(&["--replicaof", &format!("127.0.0.1 {}", server.port)]);
            wait_until("it follows", || client.ask("INFO replication").contains("state=online"));
            replica.signal("STOP");
            return Some((client, Some(replica)));
        }
    }
    None
}

/// One column, to its end by SIGTERM, or by SHUTDOWN.
fn run(column: Column, by_signal: bool) {
    let folder = Folder::new(&format!("hangs-{column:?}-{by_signal}"));
    let checkpoint: &[&str] = if column == Column::Sync { &["--swap-checkpoint", "yes"] } else { &[] };
    let more = [&NO_SAVES[..], &AOF, &BRIEF_READS, checkpoint, &["--shutdown-timeout", "1"]];
    let server = with_cold(&folder, 200, &more.concat());
    let kept = hang(column, &server);
    let begun = Instant::now();
    for row in ROWS {
        let reply = ask_beside(&server, row);
        println!("{column:?} {row:?} {:?}: {:.40?}", begun.elapsed(), reply);
    }
    match by_signal {
        true => server.signal("TERM"),
        // An append-only file without its first base stands in the way.
        false => server.client().send(encode(&["SHUTDOWN", "NOSAVE", "FORCE"])),
    }
    end_of(server);
    drop(kept);
    println!("{column:?} ends: {:?}", begun.elapsed());
}

#[test]
fn each_command_is_answered_beside_each_thing_that_hangs() {
    let columns = [Column::Read, Column::Write, Column::Sync, Column::Script, Column::Replica];
    std::thread::scope(|scope| {
        let runs: Vec<_> = columns
            .into_iter()
            .flat_map(|column| [true, false].map(|by_signal| scope.spawn(move || run(column, by_signal))))
            .collect();
        let failed = runs.into_iter().filter_map(|run| run.join().err()).count();
        assert_eq!(failed, 0);
    });
}

struct Killed(Child);

impl Drop for Killed {
    fn drop(&mut self) {
        _ = self.0.kill();
        _ = self.0.wait();
    }
}

/// Standard output is a pipe that is full: lines of the log are dropped, and no client waits for its
/// reader.
#[test]
fn a_log_without_a_reader_holds_up_no_client() {
    const PIPE_BYTES: usize = 64 << 10;
    let port = free_port();
    let mut command = Command::new(binary());
    command.args(["--port", &port.to_string(), "--bind", "127.0.0.1", "--enable-debug-command", "yes"]);
    command.args(NO_SAVES).stdout(Stdio::piped()).current_dir(std::env::temp_dir());
    let mut process = Killed(command.spawn().unwrap());
    wait_until("it listens", || TcpStream::connect(("127.0.0.1", port)).is_ok());
    let mut client = Client::over(TcpStream::connect(("127.0.0.1", port)).unwrap());
    let line = format!("DEBUG LOG {}", "x".repeat(3000));
    (0..PIPE_BYTES / 2000).for_each(|_| client.check(&line, "+OK\r\n"));
    Client::over(TcpStream::connect(("127.0.0.1", port)).unwrap()).check("PING", "+PONG\r\n");
    let pid = process.0.id().to_string();
    assert!(Command::new("kill").args(["-TERM", &pid]).status().unwrap().success());
    wait_until("it ends", || process.0.try_wait().unwrap().is_some());
}
