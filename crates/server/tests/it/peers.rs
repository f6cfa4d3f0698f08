//! Files that a real Valkey or Redis has written, and ours in them: equal data by DEBUG DIGEST. Needs
//! `ISOTHERM_PEER_BIN`, the folder of their programs (`cargo xtask peers` prints it); a reported skip
//! without.

use crate::common::{self, Client, Server, encode, wait_until};
use std::path::PathBuf;
use std::process::Command;

pub fn peer(name: &str) -> Option<PathBuf> {
    let Some(folder) = std::env::var_os("ISOTHERM_PEER_BIN") else {
        eprintln!("skipped: ISOTHERM_PEER_BIN does not say where the programs of Valkey and Redis are");
        return None;
    };
    let program = PathBuf::from(folder).join(name);
    if !program.exists() {
        eprintln!("skipped: there is no {}", program.display());
        return None;
    }
    Some(program)
}

pub fn start(program: PathBuf, folder: &std::path::Path) -> Server {
    start_with(program, folder, &[])
}

pub fn start_with(program: PathBuf, folder: &std::path::Path, more: &[&str]) -> Server {
    let port = common::free_port();
    let mut command = Command::new(program);
    command.args(["--port", &port.to_string(), "--bind", "127.0.0.1", "--save", "", "--dir"]).arg(folder);
    command.args(["--enable-debug-command", "yes"]).args(more);
    let server = Server::spawn(port, command);
    wait_until("the server listens", || std::net::TcpStream::connect(("127.0.0.1", port)).is_ok());
    let mut client = server.client();
    wait_until("the data is loaded", || client.info("persistence", "loading") == 0);
    server
}

fn ask_all(client: &mut Client, requests: impl Iterator<Item = String>) {
    let requests: Vec<String> = requests.collect();
    for request in &requests {
        client.send(encode(&request.split(' ').collect::<Vec<_>>()));
    }
    for request in &requests {
        let reply = client.read_reply();
        assert_ne!(reply[0], b'-', "{request}: {}", reply.escape_ascii());
    }
}

/// Small and large values of all types.
pub fn fill(client: &mut Client, has_field_expiry: bool) {
    for (name, count) in [("small", 5), ("middle", 200), ("large", 3000)] {
        let each = |n: u32| {
            vec![
                format!("SET {name}:string:{n} value:{n}"),
                format!("HSET {name}:hash field:{n} value:{n}"),
                format!("HSET {name}:ints {n} {}", n * 1000),
                format!("RPUSH {name}:list element:{n} {n}"),
                format!("SADD {name}:set member:{n}"),
                format!("SADD {name}:intset {}", u64::from(n) * 100_000),
                format!("ZADD {name}:zset {} member:{n}", f64::from(n) / 3.0),
                format!("XADD {name}:stream {}-7 field value:{n} other {n}", n + 1),
            ]
        };
        ask_all(client, (0..count).flat_map(each));
        let rest = [
            format!("XGROUP CREATE {name}:stream group 0"),
            format!("XREADGROUP GROUP group ann COUNT 3 STREAMS {name}:stream >"),
            format!("XDEL {name}:stream 2-7"),
            format!("PEXPIRE {name}:zset 100000000"),
            format!("APPEND {name}:long {}", "x".repeat(count as usize * 10)),
        ];
        ask_all(client, rest.into_iter());
    }
    if has_field_expiry {
        ask_all(client, ["HPEXPIRE middle:hash 100000000 FIELDS 2 field:1 field:2".to_string()].into_iter());
    }
    ask_all(client, ["SELECT 9", "SET in:nine 1", "SELECT 0"].map(String::from).into_iter());
}

/// Written by `first`, read by `second`, written by it and read by the first again.
fn exchange(name: &str, first: PathBuf, second: PathBuf, has_field_expiry: bool) {
    let folder = std::env::temp_dir().join(format!("isotherm-peers-{name}-{}", std::process::id()));
    std::fs::create_dir_all(&folder).unwrap();
    let mut digests = Vec::new();
    for program in [&first, &second, &first] {
        let mut server = start(program.clone(), &folder);
        let mut client = server.client();
        if digests.is_empty() {
            fill(&mut client, has_field_expiry);
        }
        digests.push(client.ask("DEBUG DIGEST"));
        client.check("SAVE", "+OK\r\n");
        client.send(encode(&["SHUTDOWN", "NOSAVE"]));
        server.wait();
    }
    std::fs::remove_dir_all(&folder).ok();
    assert_eq!(digests[1], digests[0], "{name}");
    assert_eq!(digests[2], digests[0], "{name}");
}

#[test]
fn files_pass_between_valkey_and_this_server() {
    let Some(valkey) = peer("valkey-server") else { return };
    exchange("valkey", valkey, common::binary().to_path_buf(), true);
}

#[test]
fn files_pass_between_redis_and_this_server() {
    let Some(redis) = peer("redis-server") else { return };
    exchange("redis", redis, common::binary().to_path_buf(), false);
}
