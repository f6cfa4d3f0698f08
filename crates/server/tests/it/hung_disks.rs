//! A disk of files that does not answer: each command of an administrator during each call that hangs is
//! answered in time, or by its own error, and no other client feels it.
//!
//! ```text
//!                  RDB file   append-only file   ACL file   configuration
//!   open, write,
//!   sync, rename      .              .              .             .         a reply in `BOUND`,
//!                                                                           PING in `OTHERS_BOUND`
//! ```

use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::time::{Duration, Instant};

use crate::common::{Client, Server, encode, wait_until};
use crate::feeder_disk::HangingDisk;

/// A reply that takes longer does not come. On a quiet machine it takes a tenth of that, or the 5 s of SAVE
/// and of those that write the files of an operator.
const BOUND: Duration = Duration::from_secs(10);
/// Longest wait of a client that needs no disk: ten times that of a quiet machine.
const OTHERS_BOUND: Duration = Duration::from_secs(1);
/// A process that is asked to end by a signal ends within 8 s. The rest is for a busy machine.
const END_BOUND: Duration = Duration::from_secs(20);

const LATE: &str = "-ERR The disk does not answer. The command goes on, and the log has its end\r\n";

/// Columns at a time.
const AT_ONCE: usize = 6;

/// Calls that hang, and the files.
const COLUMNS: &[(&str, &str)] = &[
    ("open", "temp-"),
    ("write", ".rdb"),
    ("sync", ".rdb"),
    ("rename", "dump.rdb"),
    ("open", ".incr.aof"),
    ("write", ".incr.aof"),
    ("sync", ".incr.aof"),
    ("rename", ".manifest"),
    ("open", "users.acl"),
    ("sync", "users.acl"),
    ("open", "server.conf"),
    ("rename", "server.conf"),
];

const ROWS: &[&[&str]] = &[
    &["INFO", "everything"],
    &["CONFIG", "SET", "maxmemory", "64mb"],
    &["ACL", "SAVE"],
    &["ACL", "LOAD"],
    &["CONFIG", "REWRITE"],
    &["BGSAVE"],
    &["SAVE"],
    &["BGREWRITEAOF"],
    &["CONFIG", "SET", "appendfsync", "no"],
    &["CONFIG", "SET", "appendonly", "no"],
    &["CONFIG", "SET", "appendonly", "yes"],
    &["CONFIG", "SET", "timeout", "0"],
    &["REPLICAOF", "127.0.0.1", "1"],
    &["REPLICAOF", "NO", "ONE"],
    &["SWAPDB", "0", "1"],
    &["FLUSHALL"],
];

fn text(reply: Vec<u8>) -> String {
    String::from_utf8_lossy(&reply).into_owned()
}

/// The reply to a request, and the longest wait of a PING meanwhile, on connections of both workers.
fn ask_beside(server: &Server, request: &[&str]) -> (String, Duration) {
    let mut others: Vec<Client> = (0..2).map(|_| server.client()).collect();
    let mut client = server.client();
    std::thread::scope(|scope| {
        let asked = scope.spawn(|| {
            let begun = Instant::now();
            client.send(encode(request));
            let reply = text(client.read_reply());
            assert!(begun.elapsed() < BOUND, "{request:?} took {:?}: {reply}", begun.elapsed());
            reply
        });
        let mut longest = Duration::ZERO;
        while !asked.is_finished() {
            for other in &mut others {
                let begun = Instant::now();
                other.check("PING", "+PONG\r\n");
                longest = longest.max(begun.elapsed());
            }
            std::thread::sleep(Duration::from_millis(20));
        }
        (asked.join().unwrap(), longest)
    })
}

/// Asks one cell of the table; one that has held up others is asked once more.
#[track_caller]
fn ask(server: &Server, request: &[&str]) -> String {
    let (reply, longest) = ask_beside(server, request);
    if longest > OTHERS_BOUND {
        let (_, again) = ask_beside(server, request);
        assert!(again < OTHERS_BOUND, "beside {request:?} a PING took {longest:?}, then {again:?}");
    }
    reply
}

fn start(disk: &HangingDisk, more: &[&str]) -> Server {
    let [file, users] = ["server.conf", "users.acl"].map(|name| disk.folder().join(name));
    std::fs::write(&file, "enable-debug-command yes\n").unwrap();
    std::fs::write(&users, "user default on nopass ~* &* +@all\n").unwrap();
    let users = users.to_str().unwrap();
    let fixed = ["--aclfile", users, "--save", "", "--appendfsync", "everysec"];
    let server = disk.start_with(&[file.to_str().unwrap()], &[&fixed[..], more].concat());
    let mut client = server.client();
    wait_until("it has loaded", || client.ask("PING") == "+PONG\r\n");
    server
}

fn run(number: usize) {
    let (call, part) = COLUMNS[number];
    let disk = HangingDisk::new(&format!("column-{number}"));
    let mut server = start(&disk, &["--appendonly", "yes"]);
    let mut client = server.client();
    client.check("SET key value", "+OK\r\n");
    disk.hang_call(call, part);
    client.check("SET key other", "+OK\r\n");
    let begun = Instant::now();
    for row in ROWS {
        let reply = ask(&server, row);
        println!("{call} {part} {row:?} {:?}: {reply:.60?}", begun.elapsed());
    }
    match number % 2 {
        0 => server.signal("TERM"),
        _ => server.client().send(encode(&["SHUTDOWN", "NOSAVE", "FORCE"])),
    }
    let begun = Instant::now();
    server.wait();
    assert!(begun.elapsed() < END_BOUND, "{call} {part} ends after {:?}", begun.elapsed());
}

#[test]
fn each_command_is_answered_beside_each_call_that_hangs() {
    let next = AtomicUsize::new(0);
    let work = || {
        loop {
            match next.fetch_add(1, Relaxed) {
                number if number < COLUMNS.len() => run(number),
                _ => return,
            }
        }
    };
    std::thread::scope(|scope| {
        let runs: Vec<_> = (0..AT_ONCE).map(|_| scope.spawn(work)).collect();
        let failed = runs.into_iter().filter_map(|run| run.join().err()).count();
        assert_eq!(failed, 0);
    });
}

// ---- what becomes of each ----

#[test]
fn files_of_an_operator_that_hang_hold_up_their_client_only() {
    let disk = HangingDisk::new("operator");
    let server = start(&disk, &[]);
    let mut client = server.client();
    client.check("ACL SETUSER someone on nopass", "+OK\r\n");
    disk.hang_call("sync", "users.acl");
    assert_eq!(ask(&server, &["ACL", "SAVE"]), LATE);
    disk.hang_call("rename", "server.conf");
    server.wait_for_log("ACL SAVE has ended behind its client's wait: done");
    let users = std::fs::read_to_string(disk.folder().join("users.acl")).unwrap();
    assert!(users.contains("user someone"), "{users}");
    // As Sentinels send it.
    client.check("MULTI", "+OK\r\n");
    client.check("CONFIG REWRITE", "+QUEUED\r\n");
    client.check("PING", "+QUEUED\r\n");
    client.check("EXEC", &format!("*2\r\n{LATE}+PONG\r\n"));
    disk.answer();
    client.check("CONFIG REWRITE", "+OK\r\n");
    client.check("ACL LOAD", "+OK\r\n");
    client.check("ACL WHOAMI", "$7\r\ndefault\r\n");
}

#[test]
fn save_is_given_up_while_its_disk_hangs() {
    let disk = HangingDisk::new("save");
    let server = start(&disk, &[]);
    let mut client = server.client();
    client.check("SET key value", "+OK\r\n");
    disk.hang_call("write", ".rdb");
    assert_eq!(ask(&server, &["SAVE"]), "-ERR The disk does not answer: the save is given up\r\n");
    client.check("SAVE", "-ERR Background save already in progress\r\n");
    disk.answer();
    wait_until("it has ended", || client.ask("SAVE") == "+OK\r\n");
    assert_eq!(client.info("persistence", "rdb_changes_since_last_save"), 0);
}

#[test]
fn the_append_only_file_is_off_while_its_last_sync_hangs() {
    let disk = HangingDisk::new("aof-off");
    let server = start(&disk, &["--appendonly", "yes"]);
    let mut client = server.client();
    wait_until("the first base is there", || client.info("persistence", "aof_rewrite_in_progress") == 0);
    disk.hang_call("sync", ".incr.aof");
    client.check("SET key value", "+OK\r\n");
    assert_eq!(ask(&server, &["CONFIG", "SET", "appendonly", "no"]), "+OK\r\n");
    assert!(server.log().contains("The append-only file is off, and its last fsync is still under way."));
    let refused = "-ERR CONFIG SET failed (possibly related to argument 'appendonly') - Unable to turn on AOF. Check server logs.\r\n";
    client.check("CONFIG SET appendonly yes", refused);
    client.check("CONFIG SET maxmemory 64mb", "+OK\r\n");
    disk.answer();
    server.wait_for_log("The last fsync of the append-only file has ended.");
    client.check("CONFIG SET appendonly yes", "+OK\r\n");
    wait_until("the base is there", || client.info("persistence", "aof_rewrite_in_progress") == 0);
    client.check("CONFIG SET appendonly no", "+OK\r\n");
    assert!(!server.log().contains("may be lost"));
}

/// The manifest cannot say that the append-only file was switched off; the RDB file does.
#[test]
fn a_save_behind_an_end_that_could_not_be_noted_is_newer() {
    let disk = HangingDisk::new("aof-end");
    let folder = disk.folder().to_str().unwrap();
    let run = |state: &str, keys: &str| {
        let server = start(&disk, &["--dir", folder, "--appendfsync", "always", "--appendonly", state]);
        let found = keys.split(' ').count();
        server.client().check(&format!("EXISTS {keys}"), &format!(":{found}\r\n"));
        server
    };
    let switch_off = |client: &mut Client| {
        disk.hang_call("rename", ".manifest");
        client.check("CONFIG SET appendonly no", "+OK\r\n");
    };
    let set_and_save = |client: &mut Client, key: &str| {
        client.check(&format!("SET {key} 1"), "+OK\r\n");
        client.check("SAVE", "+OK\r\n");
    };
    let kill = |mut server: Server| {
        server.signal("KILL");
        server.wait();
        // It may have been so before.
        let _ = std::fs::remove_file(disk.folder().join("hangs"));
    };
    let server = start(&disk, &["--dir", folder, "--appendfsync", "always", "--appendonly", "yes"]);
    let mut client = server.client();
    set_and_save(&mut client, "a");
    client.check("SET b 1", "+OK\r\n");
    switch_off(&mut client);
    kill(server);
    // The RDB file was begun beside the log, which has more.
    let server = run("yes", "a b");
    switch_off(&mut server.client());
    set_and_save(&mut server.client(), "c");
    kill(server);
    let server = run("no", "a b c");
    assert!(!server.log().contains("what only that has is not loaded"));
    set_and_save(&mut server.client(), "d");
    kill(server);
    let server = run("yes", "a b c d");
    assert!(server.log().contains("was switched off before the RDB file was written"));
    switch_off(&mut server.client());
    set_and_save(&mut server.client(), "e");
    kill(server);
    run("yes", "a b c d e");
}

#[test]
fn what_changes_a_cluster_hangs_with_its_file_alone() {
    let disk = HangingDisk::new("nodes");
    let server = start(&disk, &["--cluster-enabled", "yes"]);
    let mut client = server.client();
    wait_until("the bus is there", || client.ask("CLUSTER ADDSLOTS 1") == "+OK\r\n");
    disk.hang_call("sync", "nodes.conf");
    let late = "-ERR The cluster bus has not answered in time. What was asked for goes on\r\n";
    assert_eq!(ask(&server, &["CLUSTER", "ADDSLOTS", "2"]), late);
    assert!(ask(&server, &["CLUSTER", "INFO"]).contains("cluster_slots_assigned:"));
    disk.answer();
    client.check("CLUSTER ADDSLOTS 3", "+OK\r\n");
    assert!(client.ask("CLUSTER NODES").contains(" 1-3\n"));
}

// ---- files that take each other's names ----

/// A replica loads the snapshot that it has received: a save of its own that ends meanwhile takes the name of
/// the file, and no more.
#[test]
fn a_save_of_a_replica_does_not_become_its_snapshot() {
    let disk = HangingDisk::new("received");
    let folder = disk.folder().join("replica");
    std::fs::create_dir(&folder).unwrap();
    let primary = Server::start(&["--repl-diskless-sync-delay", "0", "--enable-debug-command", "yes"]);
    let replica =
        disk.start(&["--dir", folder.to_str().unwrap(), "--save", "", "--enable-debug-command", "yes"]);
    let (mut one, mut two) = (primary.client(), replica.client());
    one.check("SET of-primary 1", "+OK\r\n");
    (0..10).for_each(|n| two.check(&format!("SET stale{n} 1"), "+OK\r\n"));
    two.check("CONFIG SET rdb-key-save-delay 200000", "+OK\r\n");
    two.check("BGSAVE", "+Background saving started\r\n");
    disk.hang_call("sync", "/replica$");
    two.check(&format!("REPLICAOF 127.0.0.1 {}", primary.port), "+OK\r\n");
    wait_until("the save has the name", || {
        let bytes = std::fs::read(folder.join("dump.rdb")).unwrap_or_default();
        bytes.windows(6).any(|part| part == b"stale9")
    });
    disk.answer();
    wait_until("the link is up", || two.ask("INFO replication").contains("master_link_status:up"));
    assert_eq!(two.ask("DEBUG DIGEST"), one.ask("DEBUG DIGEST"));
    one.check("SET later 1", "+OK\r\n");
    wait_until("it follows", || two.ask("DEBUG DIGEST") == one.ask("DEBUG DIGEST"));
}

/// A replica gets the file that was made for it: neither a save that would take its name before it is opened
/// nor another `dbfilename` gives it an older or a newer one.
#[test]
fn a_replica_gets_the_file_of_its_cut() {
    let disk = HangingDisk::new("sent");
    let folder = disk.folder().join("primary");
    std::fs::create_dir(&folder).unwrap();
    let arguments = [
        "--dir",
        folder.to_str().unwrap(),
        "--save",
        "",
        "--repl-diskless-sync",
        "no",
        "--enable-protected-configs",
        "yes",
        "--enable-debug-command",
        "yes",
    ];
    let primary = disk.start(&arguments);
    let mut one = primary.client();
    one.check("CONFIG SET dbfilename old.rdb", "+OK\r\n");
    one.check("SAVE", "+OK\r\n");
    one.check("CONFIG SET dbfilename dump.rdb", "+OK\r\n");
    one.check("INCR count", ":1\r\n");
    disk.hang_call("open", "/dump.rdb$");
    let replica = Server::start(&["--enable-protected-configs", "yes", "--enable-debug-command", "yes"]);
    let mut two = replica.client();
    two.check(&format!("REPLICAOF 127.0.0.1 {}", primary.port), "+OK\r\n");
    wait_until("the file has its name", || folder.join("dump.rdb").exists());
    one.check("INCR count", ":2\r\n");
    one.check("SAVE", "-ERR Background save already in progress\r\n");
    one.check("CONFIG SET dbfilename old.rdb", "+OK\r\n");
    disk.answer();
    wait_until("the link is up", || two.ask("INFO replication").contains("master_link_status:up"));
    wait_until("it follows", || two.ask("DEBUG DIGEST") == one.ask("DEBUG DIGEST"));
    two.check("GET count", "$1\r\n2\r\n");
}

/// A log file whose first sync fails is begun again; the one before it keeps what was written.
#[test]
fn a_prepared_file_that_fails_at_first_costs_nothing() {
    let disk = HangingDisk::new("prepared");
    let folder = disk.folder().join("data");
    std::fs::create_dir(&folder).unwrap();
    let arguments = [
        "--dir",
        folder.to_str().unwrap(),
        "--appendonly",
        "yes",
        "--appendfsync",
        "always",
        "--aof-prepare-bytes",
        "1mb",
        "--enable-debug-command",
        "yes",
    ];
    let mut server = disk.start(&arguments);
    let mut client = server.client();
    wait_until("the append-only file is on", || client.ask("INFO persistence").contains("aof_enabled:1"));
    client.check("SELECT 1", "+OK\r\n");
    let path = |name: &str| folder.join("appendonlydir").join(name);
    let next = |number: usize| path(&format!("appendonly.aof.{number}.incr.aof"));
    // Commits come fast enough for a file that is prepared; the second one is in use, the third is ready.
    let mut written = 0;
    wait_until("a file is ready", || {
        for _ in 0..200 {
            client.check(&format!("SET key{written} value"), "+OK\r\n");
            written += 1;
        }
        let ready = std::fs::metadata(path("temp-appendonly.aof.prepared"));
        next(2).exists() && ready.is_ok_and(|ready| ready.len() == 1 << 20)
    });
    let last = (2..).find(|number| !next(number + 1).exists()).expect("one is the last");
    disk.hang_call("fail", ".aof");
    client.send(encode(&["SET", "last", "1"]));
    wait_until("the next file is begun", || next(last + 1).exists());
    disk.answer();
    client.read_reply();
    wait_until("the file is written again", || {
        client.ask("INFO persistence").contains("aof_last_write_status:ok")
    });
    client.check("SET after 1", "+OK\r\n");
    let digest = client.ask("DEBUG DIGEST");
    server.signal("KILL");
    server.wait();
    let server = disk.start(&arguments);
    let mut client = server.client();
    wait_until("it is loaded", || !client.ask("DBSIZE").contains("LOADING"));
    assert_eq!(client.ask("DEBUG DIGEST"), digest);
}
