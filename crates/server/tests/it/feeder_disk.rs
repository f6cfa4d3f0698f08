//! The files of the thread that feeds replicas are on a disk that does not answer: the replicas that need
//! them wait, or start over, and nothing else does.

use std::path::{Path, PathBuf};
use std::process::Command;

use crate::common::{self, Client, Server, free_port, text_field, wait_until};
use crate::primary::{NO_DELAY, Replica, online, write_much};

/// A folder with the library that makes the disk hang while the file `hangs` is there.
pub struct HangingDisk(PathBuf);

impl HangingDisk {
    pub fn new(name: &str) -> HangingDisk {
        let folder =
            std::env::temp_dir().join(format!("isotherm-hanging-disk-{name}-{}", std::process::id()));
        std::fs::create_dir_all(&folder).unwrap();
        let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/it/common/hanging_disk.c");
        let compiled = Command::new("cc")
            .args(["-shared", "-fPIC", "-O1", "-o"])
            .arg(folder.join("disk.so"))
            .arg(source)
            .arg("-ldl")
            .status();
        assert!(compiled.expect("README asks for a C compiler").success());
        HangingDisk(folder)
    }

    pub fn start(&self, arguments: &[&str]) -> Server {
        self.start_with(&[], arguments)
    }

    /// Starts it with a configuration file, or without.
    pub fn start_with(&self, file: &[&str], arguments: &[&str]) -> Server {
        let port = free_port();
        let port_text = port.to_string();
        let mut command = common::command(file);
        command.args(["--port", &port_text, "--bind", "127.0.0.1", "--io-threads", "2"]);
        command.args(NO_DELAY).args(arguments);
        command.env("LD_PRELOAD", self.0.join("disk.so")).env("HANGS", self.0.join("hangs"));
        let server = Server::spawn(port, command);
        wait_until("the server listens", || std::net::TcpStream::connect(("127.0.0.1", port)).is_ok());
        server
    }

    pub fn hang(&self) {
        std::fs::write(self.0.join("hangs"), "").unwrap();
    }

    /// Makes such calls (`open`, `write`, `sync`, `rename`) of files hang whose path has this part, or ends
    /// with it if a `$` follows; or syncs fail (`fail`).
    pub fn hang_call(&self, call: &str, part: &str) {
        let (next, flag) = (self.0.join("next"), self.0.join("hangs"));
        std::fs::write(&next, format!("{call} {part}")).unwrap();
        std::fs::rename(next, flag).unwrap();
    }

    pub fn folder(&self) -> &Path {
        &self.0
    }

    pub fn answer(&self) {
        std::fs::remove_file(self.0.join("hangs")).unwrap();
    }
}

impl Drop for HangingDisk {
    fn drop(&mut self) {
        std::fs::remove_dir_all(&self.0).ok();
    }
}

/// The first byte of the log that the ring has; `None` while it has nothing.
fn ring_first(client: &mut Client) -> Option<u64> {
    text_field(&client.ask("INFO replication"), "repl_log_first_offset_disk").parse().ok()
}

/// The replica gets all of the log from `at` on, and acknowledges it. Returns the log's end.
fn follow(client: &mut Client, replica: &mut Replica, at: u64) -> u64 {
    let end = client.info("replication", "master_repl_offset");
    assert_eq!(replica.take((end - at) as usize).len() as u64, end - at);
    replica.say(&format!("REPLCONF ACK {end}"));
    wait_until("the ACK counts", || client.ask_number("WAIT 1 1") == 1);
    client.info("replication", "master_repl_offset")
}

#[test]
fn only_the_replicas_that_need_the_disk_wait_for_it() {
    let disk = HangingDisk::new("ring");
    let server = disk.start(&["--repl-backlog-size", "1mb", "--repl-backlog-disk-size", "100mb"]);
    let mut client = server.client();
    let (mut slow, slow_at) = online(&server);
    let (mut fast, mut at) = online(&server);
    // The fast one reads during the writes: it never needs the disk.
    let mut lag = 0;
    for _ in 0..30 {
        write_much(&mut client, 4);
        at = follow(&mut client, &mut fast, at);
        lag = client.info("replication", "repl_lag_bytes");
    }
    assert!(lag > 10 << 20, "what the slow one lacks: {lag}");
    wait_until("the ring has it", || ring_first(&mut client).is_some_and(|first| first <= slow_at + 1));

    // A write to the ring hangs.
    disk.hang();
    for _ in 0..10 {
        write_much(&mut client, 4);
        at = follow(&mut client, &mut fast, at);
    }
    server.wait_for_log("can't be written to disk: the disk does not answer. It stays in memory.");
    // The part that the slow one lacks is neither in memory nor in reach, so it starts over.
    server.wait_for_log("closed for overcoming of output buffer limits.");
    slow.expect_end();
    write_much(&mut client, 4);
    at = follow(&mut client, &mut fast, at);
    disk.answer();

    // The disk serves the next slow one again.
    let id = text_field(&client.ask("INFO replication"), "master_replid").to_string();
    let mut slow = Replica::new(&server);
    slow.introduce();
    slow.say(&format!("PSYNC {id} {}", at + 1));
    assert_eq!(slow.line(), format!("+CONTINUE {id}"));
    slow.say(&format!("REPLCONF ACK {at}"));
    let begin = at;
    wait_until("the ring is used again", || {
        write_much(&mut client, 4);
        at = follow(&mut client, &mut fast, at);
        ring_first(&mut client).is_some() && at > begin + (30 << 20)
    });

    // A read hangs.
    disk.hang();
    let reads = slow.take(1000);
    assert_eq!(reads.len(), 1000);
    write_much(&mut client, 4);
    at = follow(&mut client, &mut fast, at);
    disk.answer();
    let rest = (at - begin) as usize - reads.len();
    assert_eq!(slow.take(rest).len(), rest, "all of it comes");
}
