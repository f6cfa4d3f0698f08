//! The allocator that the server was built with: it starts, its figures are there, and what is freed goes back.
//!
//! `cargo xtask allocators` runs this for each of the four.

mod common;

use common::{Server, encode, field};

#[test]
fn values_of_all_sizes_come_and_go() {
    const KEYS: usize = 3000;
    let server = Server::with_workers(2, &["--jemalloc-bg-thread", "no"]);
    let mut client = server.client();
    let empty = server.resident_bytes();
    for key in 0..KEYS {
        // To 45 KB: the larger ones are the allocator's.
        let value = vec![b'x'; key * 15];
        client.send(encode(&[b"SET".as_slice(), format!("key:{key}").as_bytes(), &value]));
        client.expect("+OK\r\n");
    }
    let payload: u64 = (0..KEYS as u64).map(|key| key * 15).sum();
    let (info, full) = (client.ask("INFO memory"), server.resident_bytes());
    let used = field(&info, "used_memory");
    assert!(used > payload && used < payload * 5 / 4, "{used} for {payload}");
    for name in ["allocator_allocated", "allocator_active", "allocator_resident"] {
        assert!(field(&info, name) > payload, "{name} in {info}");
    }
    assert!(full > empty + payload, "{full} after {empty}");
    let text = client.ask("MEMORY MALLOC-STATS");
    assert!(text.len() > 60, "{text}");
    assert!(client.ask("MEMORY MALLOC-STATS json").contains('{'));
    client.check("MEMORY MALLOC-STATS xml", "-ERR syntax error\r\n");
    client.check("MEMORY MALLOC-STATS json now", "-ERR syntax error\r\n");
    client.check("FLUSHALL", "+OK\r\n");
    client.check("MEMORY PURGE", "+OK\r\n");
    let after = server.resident_bytes();
    assert!(after < empty + (full - empty) / 2, "{after} after {full}, {empty} when empty");
    assert!(field(&client.ask("INFO memory"), "used_memory") < used / 4);
}

#[test]
fn nonsense_in_malloc_conf_is_said_and_no_reason_to_end() {
    let mut command = common::command(&["--io-threads", "1", "--bind", "127.0.0.1"]);
    let port = common::free_port();
    command.args(["--port", &port.to_string()]).env("MALLOC_CONF", "nonsense:1,narenas:3");
    let server = Server::spawn(port, command);
    server.wait_for_log("Ready to accept connections");
    let name = server.client().ask("INFO memory");
    // The others have no such variable.
    if name.contains("mem_allocator:jemalloc") {
        let log = server.log();
        assert_eq!(log.matches("nonsense").count(), 1, "{log}");
        let report = server.client().ask("MEMORY MALLOC-STATS");
        assert!(report.contains("Arenas: 3") || report.contains("opt.narenas: 3"), "{report}");
    }
}
