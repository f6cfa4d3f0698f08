//! Rewrites of the append-only file, switching it on and off, and what a start makes a base of.

use crate::aof::{Data, kill, wire};
use crate::common::{Client, Server, encode, wait_until};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

const ON: [&str; 4] = ["--appendfsync", "always", "--save", ""];

fn wait_for_rewrite(client: &mut Client) {
    wait_until("the rewrite is over", || {
        client.info("persistence", "aof_rewrite_in_progress") == 0
            && client.info("persistence", "aof_rewrite_scheduled") == 0
    });
}

/// The names in the folder of the append-only file.
fn names(data: &Data) -> Vec<String> {
    let folder = std::fs::read_dir(data.0.join("appendonlydir")).unwrap();
    let mut names: Vec<String> =
        folder.map(|entry| entry.unwrap().file_name().to_string_lossy().into_owned()).collect();
    names.retain(|name| !name.starts_with('.'));
    names.sort();
    names
}

/// Something of every type, in two databases.
fn fill(client: &mut Client) {
    let long: String = (0..200).map(|at| format!(" {at} m{at}")).collect();
    let requests = [
        "SET s value",
        "SET i 12345",
        "SET e 1 EX 1000",
        "RPUSH l a b 3",
        &format!("RPUSH ll{long}"),
        "SADD set a b c",
        "SADD ints 1 2 3",
        &format!("SADD sl{long}"),
        "ZADD z 1 a 2.5 b inf c -inf d 0.1 e",
        &format!("ZADD zl{long}"),
        "HSET h f v g w",
        &format!("HSET hl{long}"),
        "HSET ht f v g w x y",
        "HPEXPIRE ht 1000000 FIELDS 1 f",
        "XADD x 1-1 f v g w",
        "XADD x 2-1 f v g w",
        "XADD x 3-1 other v",
        "XDEL x 2-1",
        "XGROUP CREATE x g 0",
        "XREADGROUP GROUP g c COUNT 2 STREAMS x >",
        "XGROUP CREATE x ahead 7-7 ENTRIESREAD 5",
        "XGROUP CREATECONSUMER x g lazy",
        "XADD xe 5-5 a b",
        "XTRIM xe MAXLEN 0",
        "PFADD p a b c",
        "SELECT 9",
        "SET other 1",
    ];
    for request in requests {
        assert!(!client.ask(request).starts_with('-'), "{request}");
    }
}

fn restart_and_compare(data: &Data, mut server: Server, more: &[&str]) -> Server {
    let digest = server.client().ask("DEBUG DIGEST");
    kill(&mut server);
    let server = data.start(2, &[&ON, more].concat());
    server.client().check("DEBUG DIGEST", &digest);
    server
}

#[test]
fn a_base_holds_what_was_there_in_both_forms() {
    for preamble in ["yes", "no"] {
        let data = Data::new();
        let more = ["--aof-use-rdb-preamble", preamble];
        let server = data.start(2, &[&ON[..], &more].concat());
        let mut client = server.client();
        fill(&mut client);
        client.check("BGREWRITEAOF", "+Background append only file rewriting started\r\n");
        wait_for_rewrite(&mut client);
        let form = if preamble == "yes" { "rdb" } else { "aof" };
        assert_eq!(
            names(&data),
            [
                &format!("appendonly.aof.2.base.{form}"),
                "appendonly.aof.2.incr.aof",
                "appendonly.aof.manifest"
            ]
        );
        client.check("INCR behind", ":1\r\n");
        let server = restart_and_compare(&data, server, &more);
        let mut client = server.client();
        client.check(
            "XPENDING x g",
            "*4\r\n:2\r\n$3\r\n1-1\r\n$3\r\n3-1\r\n*1\r\n*2\r\n$1\r\nc\r\n$1\r\n2\r\n",
        );
        assert!(client.ask("XINFO STREAM xe").contains("$3\r\n5-5\r\n"), "the last id of an empty stream");
        assert_eq!(client.ask("XINFO CONSUMERS x g").matches("$4\r\nlazy\r\n").count(), 1);
    }
}

#[test]
fn writes_during_rewrites_are_not_lost() {
    const CLIENTS: u64 = 3;
    const REWRITES: u64 = 6;
    let data = Data::new();
    let server = data.start(2, &ON);
    let is_over = AtomicBool::new(false);
    let answered: Vec<AtomicU64> = (0..CLIENTS).map(|_| AtomicU64::new(0)).collect();
    std::thread::scope(|scope| {
        for (at, answered) in answered.iter().enumerate() {
            let (mut client, is_over) = (server.client(), &is_over);
            scope.spawn(move || {
                while !is_over.load(Ordering::Relaxed) {
                    let count = client.ask_number(&format!("INCR counter:{at}")) as u64;
                    client.ask(&format!("RPUSH list:{at} {count}"));
                    answered.store(count, Ordering::Relaxed);
                }
            });
        }
        let mut client = server.client();
        for _ in 0..REWRITES {
            client.check("BGREWRITEAOF", "+Background append only file rewriting started\r\n");
            wait_for_rewrite(&mut client);
        }
        assert_eq!(client.info("persistence", "aof_rewrites"), REWRITES);
        is_over.store(true, Ordering::Relaxed);
    });
    let server = restart_and_compare(&data, server, &[]);
    let mut client = server.client();
    for (at, answered) in answered.iter().enumerate() {
        let answered = answered.load(Ordering::Relaxed);
        assert!(answered > 0);
        client.check(&format!("LLEN list:{at}"), &format!(":{answered}\r\n"));
    }
}

#[test]
fn a_rewrite_that_is_killed_leaves_what_was_there() {
    let data = Data::new();
    let mut server = data.start(2, &[&ON[..], &["--rdb-key-save-delay", "100000"]].concat());
    let mut client = server.client();
    fill(&mut client);
    let digest = client.ask("DEBUG DIGEST");
    client.ask("BGREWRITEAOF");
    wait_until("it is written", || names(&data).iter().any(|name| name.starts_with("temp-rewriteaof")));
    kill(&mut server);
    let server = data.start(2, &ON);
    server.client().check("DEBUG DIGEST", &digest);
    assert!(!names(&data).iter().any(|name| name.starts_with("temp-")), "{:?}", names(&data));
}

#[test]
fn a_base_that_was_never_listed_does_not_stay() {
    let data = Data::new();
    let server = data.start(1, &ON);
    // The next base has this number, and the other form.
    data.write("appendonly.aof.2.base.aof", b"left by a rewrite that was killed");
    let mut client = server.client();
    client.check("SET a 1", "+OK\r\n");
    client.check("BGREWRITEAOF", "+Background append only file rewriting started\r\n");
    wait_for_rewrite(&mut client);
    assert!(!names(&data).contains(&"appendonly.aof.2.base.aof".to_string()), "{:?}", names(&data));
    restart_and_compare(&data, server, &[]);
}

#[test]
fn it_is_switched_on_and_off_while_clients_write() {
    let data = Data::new();
    let server = data.start(2, &["--appendonly", "no", "--appendfsync", "always", "--save", ""]);
    let mut client = server.client();
    fill(&mut client);
    let is_over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        for at in 0..3 {
            let (mut client, is_over) = (server.client(), &is_over);
            scope.spawn(move || {
                while !is_over.load(Ordering::Relaxed) {
                    client.ask(&format!("INCR counter:{at}"));
                }
            });
        }
        for _ in 0..4 {
            client.check("CONFIG SET appendonly yes", "+OK\r\n");
            wait_for_rewrite(&mut client);
            assert_eq!(client.info("persistence", "aof_enabled"), 1);
            // The second time it is ended in the middle of its first base.
            client.check("CONFIG SET appendonly no", "+OK\r\n");
            assert_eq!(client.info("persistence", "aof_enabled"), 0);
            client.check("CONFIG SET appendonly yes", "+OK\r\n");
            client.check("CONFIG SET appendonly no", "+OK\r\n");
        }
        client.check("CONFIG SET appendonly yes", "+OK\r\n");
        wait_for_rewrite(&mut client);
        is_over.store(true, Ordering::Relaxed);
    });
    client.check("INCR after", ":1\r\n");
    restart_and_compare(&data, server, &[]);
}

#[test]
fn without_the_file_a_rewrite_makes_one() {
    let data = Data::new();
    let server = data.start(1, &["--appendonly", "no", "--save", ""]);
    let mut client = server.client();
    fill(&mut client);
    client.check("BGREWRITEAOF", "+Background append only file rewriting started\r\n");
    wait_for_rewrite(&mut client);
    assert_eq!(names(&data), ["appendonly.aof.1.base.rdb", "appendonly.aof.manifest"]);
    restart_and_compare(&data, server, &[]);
}

#[test]
fn an_rdb_file_becomes_the_first_base() {
    let data = Data::new();
    let mut server = data.start(1, &["--appendonly", "no"]);
    let mut client = server.client();
    fill(&mut client);
    client.check("SAVE", "+OK\r\n");
    let digest = client.ask("DEBUG DIGEST");
    kill(&mut server);
    let server = data.start(1, &ON);
    server.client().check("DEBUG DIGEST", &digest);
    server.client().check("INCR more", ":1\r\n");
    // From now on the RDB file does not count.
    std::fs::remove_file(data.0.join("dump.rdb")).unwrap();
    restart_and_compare(&data, server, &[]);
}

#[test]
fn the_single_file_of_old_versions_becomes_the_base() {
    let commands = wire(&["SELECT 0", "SET a 1", "INCR a", "RPUSH l x"]);
    let rdb = {
        let data = Data::new();
        let server = data.start(1, &["--appendonly", "no"]);
        server.client().check("SET r 1", "+OK\r\n");
        server.client().check("SAVE", "+OK\r\n");
        std::fs::read(data.0.join("dump.rdb")).unwrap()
    };
    for (with_preamble, old) in [(false, commands.clone()), (true, [rdb, commands].concat())] {
        let data = Data::new();
        std::fs::write(data.0.join("appendonly.aof"), old).unwrap();
        let server = data.start(1, &ON);
        let mut client = server.client();
        client.check("GET a", "$1\r\n2\r\n");
        client.check("EXISTS r", if with_preamble { ":1\r\n" } else { ":0\r\n" });
        assert!(!data.0.join("appendonly.aof").exists());
        assert!(names(&data).contains(&"appendonly.aof".to_string()), "{:?}", names(&data));
        client.check("INCR a", ":3\r\n");
        let server = restart_and_compare(&data, server, &[]);
        server.client().check("BGREWRITEAOF", "+Background append only file rewriting started\r\n");
        wait_for_rewrite(&mut server.client());
        assert!(!names(&data).contains(&"appendonly.aof".to_string()), "{:?}", names(&data));
        restart_and_compare(&data, server, &[]);
    }
}

#[test]
fn it_is_rewritten_when_it_has_grown() {
    let data = Data::new();
    let more = ["--auto-aof-rewrite-min-size", "10kb", "--auto-aof-rewrite-percentage", "100"];
    let server = data.start(1, &[&ON[..], &more].concat());
    let mut client = server.client();
    client.check("CONFIG SET appendfsync everysec", "+OK\r\n");
    wait_until("it was rewritten twice", || {
        for _ in 0..100 {
            client.check("SET key 0123456789012345678901234567890123456789", "+OK\r\n");
        }
        client.info("persistence", "aof_rewrites") >= 2
    });
    wait_for_rewrite(&mut client);
    assert!(client.info("persistence", "aof_current_size") < 1 << 20);
}

#[test]
fn a_second_server_in_the_folder_is_refused() {
    let data = Data::new();
    let _server = data.start(1, &ON);
    let log = data.fails_to_start();
    assert!(log.contains("Another process writes the append-only file"), "{log}");
}

/// In EXEC, with keys locked, the control thread switches it on, as it does after a synchronization.
#[test]
fn two_threads_may_switch_it_on() {
    let data = Data::new();
    let server = data.start(2, &["--appendonly", "no", "--save", ""]);
    let mut client = server.client();
    let switch = |to| encode(&["CONFIG", "SET", "appendonly", to]);
    let transaction =
        [encode(&["MULTI"]), encode(&["SET", "a", "1"]), switch("yes"), encode(&["EXEC"])].concat();
    for _ in 0..100 {
        client.send([&transaction[..], &switch("no"), &switch("yes")].concat());
        for reply in ["+OK\r\n", "+QUEUED\r\n", "+QUEUED\r\n", "*2\r\n+OK\r\n+OK\r\n", "+OK\r\n", "+OK\r\n"] {
            client.expect(reply);
        }
        client.check("CONFIG SET appendonly no", "+OK\r\n");
    }
    assert!(!server.log().contains("Another process"), "{}", server.log());
}

#[test]
fn saving_and_rewriting_do_not_stand_in_each_others_way() {
    let data = Data::new();
    let server = data.start(2, &["--rdb-key-save-delay", "3000"]);
    let mut client = server.client();
    for at in 0..200 {
        client.ask(&format!("SET k{at} v"));
    }
    client.check("BGREWRITEAOF", "+Background append only file rewriting started\r\n");
    assert!(client.ask("BGSAVE").starts_with("-ERR Another child process is active (AOF?)"));
    client.check("BGREWRITEAOF", "-ERR Background append only file rewriting already in progress\r\n");
    client.check("BGSAVE SCHEDULE", "+Background saving scheduled\r\n");
    client.check("CONFIG SET rdb-key-save-delay 0", "+OK\r\n");
    wait_until("both are over", || {
        client.info("persistence", "rdb_saves") == 1
            && client.info("persistence", "rdb_bgsave_in_progress") == 0
            && client.info("persistence", "aof_rewrites") == 1
    });
    wait_for_rewrite(&mut client);
    client.check("CONFIG SET rdb-key-save-delay 3000", "+OK\r\n");
    client.check("BGSAVE", "+Background saving started\r\n");
    client.check("BGREWRITEAOF", "+Background append only file rewriting scheduled\r\n");
    client.check("CONFIG SET rdb-key-save-delay 0", "+OK\r\n");
    wait_until("the rewrite was begun", || client.info("persistence", "aof_rewrites") == 2);
    wait_for_rewrite(&mut client);
}

/// FLUSHALL has a file without keys written, also if another walk is under way: it comes after that.
#[test]
fn flushed_keys_do_not_come_back_after_a_rewrite() {
    let data = Data::new();
    let options = ["--appendonly", "no", "--save", "3600 1000000"];
    let mut server = data.start(2, &options);
    let mut client = server.client();
    client.check("DEBUG POPULATE 200", "+OK\r\n");
    client.check("SAVE", "+OK\r\n");
    client.check("CONFIG SET rdb-key-save-delay 100000", "+OK\r\n");
    client.check("BGREWRITEAOF", "+Background append only file rewriting started\r\n");
    client.check("FLUSHALL", "+OK\r\n");
    client.check("CONFIG SET rdb-key-save-delay 0", "+OK\r\n");
    wait_until("a file without keys is written", || client.info("persistence", "rdb_saves") == 2);
    wait_until("it is over", || client.info("persistence", "rdb_bgsave_in_progress") == 0);
    kill(&mut server);
    let server = data.start(2, &options);
    let mut client = server.client();
    wait_until("it is loaded", || client.ask("DBSIZE").starts_with(':'));
    client.check("DBSIZE", ":0\r\n");
}
