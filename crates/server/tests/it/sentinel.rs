//! A real sentinel of Valkey: what it finds, whom it promotes, and what it takes for down. Needs
//! `ISOTHERM_PEER_BIN`, a reported skip without. `cargo xtask stress sentinel` has three sentinels, writers
//! and kills.

use std::net::TcpStream;
use std::path::Path;
use std::process::Command;

use crate::common::{self, Client, OnDrop, Server, free_port, text_field, wait_until};
use crate::peers::peer;
use crate::primary::{NO_DELAY, change, expect_equal, start};

const OK: &str = "+OK\r\n";

/// A sentinel that decides alone, soon. Its file, which it rewrites, is in `folder`.
fn sentinel(program: &Path, primary: &Server, folder: &Path) -> Server {
    let (port, file) = (free_port(), folder.join("sentinel.conf"));
    let text = format!(
        "port {port}\nbind 127.0.0.1\nsentinel monitor main 127.0.0.1 {} 1\n\
         sentinel down-after-milliseconds main 2000\nsentinel failover-timeout main 2000\n",
        primary.port
    );
    std::fs::write(&file, text).unwrap();
    let mut command = Command::new(program);
    command.arg(file).arg("--sentinel");
    let sentinel = Server::spawn(port, command);
    wait_until("the sentinel listens", || TcpStream::connect(("127.0.0.1", port)).is_ok());
    // Its own 10 s, and 2 s four times, would be most of the test. Its 1 s between pings is half of what
    // makes a node down.
    sentinel.client().check("SENTINEL DEBUG info-period 200 publish-period 200 ping-period 500", OK);
    sentinel
}

/// Returns a client of it: a sentinel that changes a node's role ends the connections of all its clients.
fn wait_until_named(sentinel: &mut Client, primary: &Server) -> Client {
    let port = format!("\r\n{}\r\n", primary.port);
    wait_until("the sentinel names the other", || {
        sentinel.ask("SENTINEL GET-MASTER-ADDR-BY-NAME main").ends_with(&port)
    });
    let mut client = primary.client();
    assert!(client.ask("INFO replication").contains("role:master"));
    client
}

fn wait_until_it_follows(sentinel: &mut Client, replica: &Server, primary: &Server) -> Client {
    let name = format!("127.0.0.1:{}", replica.port);
    wait_until("the sentinel sees the replica", || {
        let seen = sentinel.ask("SENTINEL REPLICAS main");
        [&*name, "flags\r\n$5\r\nslave\r\n", "master-link-status\r\n$2\r\nok\r\n"]
            .iter()
            .all(|part| seen.contains(part))
    });
    let mut client = replica.client();
    let info = client.ask("INFO replication");
    assert!(info.contains("role:slave"), "{info}");
    assert_eq!(text_field(&info, "master_port"), primary.port.to_string());
    client
}

#[test]
fn a_sentinel_promotes_the_replica_and_makes_one_of_the_old_primary() {
    let Some(program) = peer("valkey-server") else { return };
    let first = start(&["--enable-debug-command", "yes"]);
    let (first_port, port) = (first.port, first.port.to_string());
    let second = start(&["--enable-debug-command", "yes", "--replicaof", "127.0.0.1", &port]);
    let folder = std::env::temp_dir().join(format!("isotherm-sentinel-it-{}-{port}", std::process::id()));
    std::fs::create_dir_all(&folder).unwrap();
    let _removal = OnDrop(|| _ = std::fs::remove_dir_all(&folder));
    let sentinel = sentinel(&program, &first, &folder);
    let mut asked = sentinel.client();
    let mut two = wait_until_it_follows(&mut asked, &second, &first);
    let mut one = first.client();
    change(&mut one, 1);
    expect_equal(&mut one, &mut two);
    let digest = one.ask("DEBUG DIGEST");

    // kill -9: its folder goes with it.
    drop(first);
    let mut two = wait_until_named(&mut asked, &second);
    assert_eq!(two.ask("DEBUG DIGEST"), digest);
    two.check("SET after it", OK);

    // It comes back as what it was, without its data.
    let again =
        ["--port", &port, "--bind", "127.0.0.1", "--io-threads", "2", "--enable-debug-command", "yes"];
    let first = Server::spawn(first_port, common::command(&[&again[..], &NO_DELAY].concat()));
    wait_until("it listens", || TcpStream::connect(("127.0.0.1", first.port)).is_ok());
    let mut one = wait_until_it_follows(&mut asked, &first, &second);
    expect_equal(&mut one, &mut two);
    one.check("GET after", "$2\r\nit\r\n");

    // The disk of the primary fails. It answers, but is down for the sentinel.
    // (A full sync may have left a file.)
    let file = second.folder.join("dump.rdb");
    std::fs::remove_file(&file).ok();
    std::fs::create_dir(&file).unwrap();
    two.check("BGSAVE", "+Background saving started\r\n");
    let mut one = wait_until_named(&mut asked, &first);
    assert!(two.ask("PING").starts_with("-MISCONF"));
    std::fs::remove_dir(&file).unwrap();
    two.check("SAVE", OK);
    let mut two = wait_until_it_follows(&mut asked, &second, &first);
    one.check("SET last it", OK);
    expect_equal(&mut one, &mut two);
}
